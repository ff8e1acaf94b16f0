"""A dispatcher that dies and comes back, and what becomes of calls meanwhile."""

import os
import signal
import subprocess
import sys
import unittest
from unittest import mock

import falkon
from falkon import _connection, _program, _session
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
            # The call may be made before a dispatcher is asked to cancel it.
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

    def test_a_shutdown_that_cancels_does_not_wait_for_a_dispatcher_that_is_gone(self):
        self.dispatcher.executor(PYTHONPATH=_program.module_path())
        executor = falkon.Executor(self.dispatcher.access, reconnect=10_000)
        self.addCleanup(executor._shared._session.close)
        self.assertEqual(executor.submit(abs, -1).result(60), 1)
        calls = [executor.submit(wait_for, self.path("never"), n) for n in range(10)]
        session = executor._shared._session
        submissions = session._submissions
        wait_until(lambda: len(submissions._pending) == 10 and not submissions._sent)
        request = session.connection.request

        def last(tag, *words):
            # The dispatcher goes when it is asked which calls have begun.
            if tag == _connection.TASKS:
                self.dispatcher.kill()
            return request(tag, *words)

        with mock.patch.object(session.connection, "request", last):
            executor.shutdown(cancel_futures=True)
        self.assertTrue(all(one.done() for one in calls))
        for one in calls:
            self.assertTrue(one.cancelled() or isinstance(one.exception(), falkon.SessionLost))

    def test_a_shutdown_that_cancels_when_the_dispatcher_is_gone(self):
        self.dispatcher.executor(PYTHONPATH=_program.module_path())
        executor = falkon.Executor(self.dispatcher.access, reconnect=10_000)
        self.addCleanup(executor._shared._session.close)
        self.assertEqual(executor.submit(abs, -1).result(60), 1)
        call = executor.submit(wait_for, self.path("never"), 1)
        self.dispatcher.kill()
        executor.shutdown(cancel_futures=True)
        self.assertIsInstance(call.exception(0), falkon.SessionLost)

    def test_an_interpreter_ends_although_its_dispatcher_is_gone(self):
        self.dispatcher.executor(PYTHONPATH=_program.module_path())
        script = """
import falkon, os, sys, time
executor = falkon.Executor(sys.argv[1], reconnect=10_000)
executor.submit(abs, -1).result()
call = executor.submit(time.sleep, 1_000_000)
call.add_done_callback(lambda call: print(type(call.exception()).__name__, flush=True))
print("ready", flush=True)
sys.stdin.readline()
"""
        interpreter = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", script, self.dispatcher.access],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(interpreter.wait)
        self.addCleanup(interpreter.kill)
        self.assertEqual(interpreter.stdout.readline(), "ready\n")
        self.dispatcher.kill()
        out, err = interpreter.communicate("\n", timeout=60)
        self.assertEqual(out, "SessionLost\n")
        self.assertIn("falkon: 1 call is given up: the dispatcher of ", err)

    def test_an_owner_goes_on(self):
        self.calls_survive(self.dispatcher.access)

    def test_a_client_goes_on(self):
        # A client's access file does not open an instance, the instance's secret does.
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


def submit_and_be_killed(access):
    """Ends like a process that runs out of memory, with a call under way."""
    executor = falkon.Executor(access, reconnect=5)
    executor.submit(abs, -1)
    print(executor._shared._session.connection.instance, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


class Vanished(InFolder):
    def test_what_a_killed_client_had_has_an_end(self):
        dispatcher = self.entered(Dispatcher())
        code = "import test_reconnect; test_reconnect.submit_and_be_killed(%r)"
        environment = dict(os.environ)
        paths = [os.path.dirname(__file__), _program.module_path()]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        command = [sys.executable, "-c", code % dispatcher.access]
        killed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
        self.assertEqual(killed.returncode, -signal.SIGKILL)
        client = falkon.Client(dispatcher.access)

        def left():
            (instance,) = client.status()["instances"]
            self.assertEqual(instance["id"], int(killed.stdout))
            return instance["expires"] and instance["expires"] - client.status()["now"]

        wait_until(lambda: left() is not None)
        # Of 65 seconds: longer than it would have looked for its dispatcher.
        self.assertGreater(left(), 5)
        self.assertLessEqual(left(), 65)

    def test_the_lease_is_longer_than_a_client_looks_for_its_dispatcher(self):
        for seconds in (0.0, 0.1, 60.0, 3600.0, 1e6):
            options = _session.instance_options("access.json", seconds)
            self.assertGreaterEqual(options[5], (seconds + 60) * 1e6)
        self.assertIsNone(_session.instance_options("access.json", float("inf"))[5])
        self.assertIsNone(_session.instance_options(None, 60.0)[5])


class AwayForAMoment(InFolder):
    def test_a_need_that_nobody_offers_now_waits(self):
        dispatcher = self.entered(Dispatcher())
        path = _program.module_path()
        dispatcher.executor("--resource", "plain=1", PYTHONPATH=path)
        go = self.path("go")
        with falkon.Executor(dispatcher.access) as executor:
            self.assertEqual(executor.submit(abs, -1).result(60), 1)
            needs = executor.options(resources={"big": 1})
            waiting = [needs.submit(wait_for, go, n) for n in range(4)]
            client = falkon.Client(dispatcher.access)
            first = dispatcher.executor("--resource", "big=1", PYTHONPATH=path)
            wait_until(lambda: client.status()["instances"][0]["dispatched"] > 0)
            # The only one that offers it is away, and given up after 3 seconds.
            first.kill()
            first.wait()
            wait_until(lambda: len(client.status()["executors"]) == 1)
            self.assertEqual(client.status()["instances"][0]["unschedulable"][0]["tasks"], 4)
            self.assertEqual([future.done() for future in waiting], [False] * 4)
            with open(go, "w"):
                pass
            dispatcher.executor("--resource", "big=1", PYTHONPATH=path)
            self.assertEqual([future.result(60) for future in waiting], [0, 1, 2, 3])


class Loss(InFolder):
    """A machine that went down took the end of the journal with it."""

    def setUp(self):
        super().setUp()
        self.dispatcher = self.entered(Dispatcher())

    def cut(self, sizes):
        """Takes what was written since the journal's files had these sizes."""
        for path, size in self.sizes().items():
            kept = sizes.get(path, 0)
            if size > kept:
                os.truncate(path, kept)

    def sizes(self):
        folder = os.path.join(self.dispatcher.folder, "journal")
        paths = [os.path.join(folder, name) for name in os.listdir(folder)]
        return {path: os.path.getsize(path) for path in paths if not path.endswith("lock")}

    def lose_five_of_ten(self, executor):
        first = [executor.submit(abs, -n) for n in range(5)]
        session = executor._shared._session
        submissions = session._submissions

        def accepted():
            with session._lock:
                return not submissions._sent and not submissions._queue

        wait_until(accepted)
        sizes = self.sizes()
        lost = [executor.submit(abs, -n) for n in range(5, 10)]
        wait_until(accepted)
        with self.assertLogs("falkon", "WARNING") as told:
            self.dispatcher.kill()
            wait_until(lambda: told.records)
            self.cut(sizes)
            self.dispatcher.start_again()
        return first, lost

    def test_calls_that_are_lost_end_and_the_others_go_on(self):
        with falkon.Executor(self.dispatcher.access) as executor:
            first, lost = self.lose_five_of_ten(executor)
            for future in lost:
                with self.assertRaisesRegex(falkon.CallLost, "does not know this call any more"):
                    future.result(60)
            more = [executor.submit(abs, -n) for n in range(10, 20)]
            self.dispatcher.executor(PYTHONPATH=_program.module_path())
            self.assertEqual([future.result(60) for future in first], list(range(5)))
            self.assertEqual([future.result(60) for future in more], list(range(10, 20)))

    def test_calls_submitted_behind_lost_ones_are_made(self):
        with falkon.Executor(self.dispatcher.access) as executor:
            session = executor._shared._session
            # The session learns of the loss by the refusal of the next submission.
            session.connection.resumes = lambda ask: None
            first, lost = self.lose_five_of_ten(executor)
            more = [executor.submit(abs, -n) for n in range(10, 20)]
            for future in lost:
                with self.assertRaises(falkon.CallLost):
                    future.result(60)
            self.dispatcher.executor(PYTHONPATH=_program.module_path())
            self.assertEqual([future.result(60) for future in first + more], [*range(5), *range(10, 20)])

    def test_another_clients_tasks_take_no_place_of_a_calls(self):
        with falkon.Executor(self.dispatcher.access) as executor:
            first = executor.submit(abs, -1)
            session = executor._shared._session
            wait_until(lambda: not session._submissions._sent)
            instance = session.connection.instance
            own = connection_of_another(self.dispatcher.access, instance)
            try:
                (kind,) = executor._shared._kinds.values()
                rows = [1, [b"", bytes(12)]]
                task_class = kind.task_class
                submission = [3, kind.template, rows, [task_class], [[3, 0]], None, [], None, None]
                answer = own(1, instance, 1, 99, submission)
                self.assertEqual(answer[0], 1)
                more = [executor.submit(abs, -n) for n in range(20)]
                self.dispatcher.executor(PYTHONPATH=_program.module_path())
                self.assertEqual([future.result(60) for future in more], list(range(20)))
                self.assertEqual(first.result(60), 1)
            finally:
                own(None)


def connection_of_another(access, instance):
    """Another client of an instance: a function that makes requests."""
    connection = _connection.Connection([], access, 0.0)
    messages = _connection.messages_of(connection.program.socket, lambda poll: None)

    def ask(tag, *fields):
        if tag is None:
            connection.hang_up()
            connection.program.wait()
            connection.close()
            return None
        with connection.lock:
            request = connection.request(tag, *fields)
        return next(message for message in messages if message[1] == request)

    return ask


if __name__ == "__main__":
    unittest.main()
