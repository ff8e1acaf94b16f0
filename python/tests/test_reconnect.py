"""A dispatcher that dies and comes back, and what becomes of calls meanwhile."""

import os
import unittest

import falkon
from falkon import _program
from services import Dispatcher, InFolder, wait_until


def note(path, number):
    """Leaves a line for each time that it is called."""
    with open(path, "a") as file:
        file.write("%d\n" % number)
    return number * number


def wait_for(path, number):
    """Ends when there is a file."""
    wait_until(lambda: os.path.exists(path))
    return number


class Reconnect(InFolder):
    def setUp(self):
        super().setUp()
        self.dispatcher = self.entered(Dispatcher())
        self.ended = []

    def watched(self, futures):
        for future in futures:
            future.add_done_callback(self.ended.append)
        return futures

    def calls_survive(self, access):
        """Kills the dispatcher and starts it again, with calls that have ended,
        that are being made, that wait, and that are submitted meanwhile."""
        go = self.path("go")
        notes = self.path("notes")
        self.dispatcher.executor(PYTHONPATH=_program.module_path())
        with falkon.Executor(access) as executor:
            squares = self.watched([executor.submit(note, notes, n) for n in range(100)])
            squares[-1].result(60)
            running = self.watched([executor.submit(wait_for, go, n) for n in range(2)])
            waiting = self.watched([executor.submit(note, notes, n) for n in range(100, 200)])
            # It may be made before a dispatcher hears that nobody wants it.
            unwanted = executor.submit(note, self.path("unwanted"), 1000)
            with self.assertLogs("falkon", "WARNING") as told:
                self.dispatcher.kill()
                meanwhile = self.watched([executor.submit(note, notes, n) for n in range(200, 5000)])
                values = squares[:10] + waiting + meanwhile[:90]
                taken = self.watched(
                    [executor.submit(divmod, value, one) for value, one in zip(values, meanwhile[1:])]
                )
                self.assertTrue(unwanted.cancel())
                wait_until(lambda: told.records)
                self.dispatcher.start_again()
                squares += waiting + meanwhile
                with open(go, "w"):
                    pass
                self.assertEqual([future.result(60) for future in running], [0, 1])
            self.assertEqual([future.result(60) for future in squares], [n * n for n in range(5000)])
            numbers = [*range(10), *range(100, 290)]
            for future, number, one in zip(taken, numbers, range(201, 5000)):
                self.assertEqual(future.result(60), divmod(number * number, one * one))
        self.assertEqual(len(told.records), 1)
        self.assertEqual(len(self.ended), len(set(self.ended)))
        self.assertEqual(set(self.ended), {*squares, *running, *taken})
        with open(notes) as file:
            self.assertEqual(sorted(int(line) for line in file), list(range(5000)))

    def test_an_owner_goes_on(self):
        self.calls_survive(self.dispatcher.access)

    def test_a_client_goes_on(self):
        # Its access file does not open an instance, its instance's secret does.
        self.calls_survive(os.path.join(self.dispatcher.folder, "access-client.json"))

    def test_only_the_connection_is_lost(self):
        self.dispatcher.executor(PYTHONPATH=_program.module_path())
        with falkon.Executor(self.dispatcher.access) as executor:
            go = self.path("go")
            pending = self.watched([executor.submit(wait_for, go, n) for n in range(10)])
            for _ in range(3):
                connection = executor._shared._session.connection
                wait_until(lambda: not connection.is_away)
                before = connection.program
                with self.assertLogs("falkon", "WARNING"):
                    before.process.kill()
                    wait_until(lambda: connection.program is not before)
                self.assertEqual(executor.submit(abs, -1).cancel(), True)
            with open(go, "w"):
                pass
            self.assertEqual([future.result(60) for future in pending], list(range(10)))
        self.assertEqual(len(self.ended), 10)

    def test_it_stays_away(self):
        with falkon.Executor(self.dispatcher.access, reconnect=0.1) as executor:
            pending = executor.submit(abs, -1)
            with self.assertLogs("falkon", "WARNING"):
                self.dispatcher.kill()
                with self.assertRaises(falkon.SessionLost):
                    pending.result(60)
            with self.assertRaises(falkon.SessionLost):
                executor.submit(abs, -1)

    def test_nobody_waits_for_one_that_has_forgotten(self):
        with falkon.Executor(self.dispatcher.access) as executor:
            pending = executor.submit(abs, -1)
            connection = executor._shared._session.connection
            with self.assertLogs("falkon", "WARNING") as told:
                self.dispatcher.kill()
                wait_until(lambda: told.records)
                self.dispatcher.start_again()
                wait_until(lambda: not connection.is_away)
            falkon.Client(self.dispatcher.access).instance(connection.instance).destroy()
            with self.assertRaisesRegex(falkon.SessionLost, "destroyed"):
                pending.result(60)


if __name__ == "__main__":
    unittest.main()
