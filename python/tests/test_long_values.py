"""Values that are longer than what is sent, with a dispatcher between."""

import os
import subprocess
import sys
import unittest

import falkon
from falkon import _program
from services import Dispatcher, wait_until

MIB = 1 << 20


def filled(size, byte=7):
    return bytes([byte]) * size


def pair(one, two):
    return len(one), len(two)


class LongValues(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dispatcher = Dispatcher()
        cls.dispatcher.__enter__()
        cls.addClassCleanup(cls.dispatcher.__exit__)
        cls.start()

    @classmethod
    def start(cls):
        for _ in range(2):
            cls.dispatcher.executor(PYTHONPATH=_program.module_path())

    def setUp(self):
        self.executor = falkon.Executor(self.dispatcher.access)
        self.addCleanup(self.executor.shutdown, cancel_futures=True)
        self.submit = self.executor.submit

    def test_of_any_kind(self):
        for value in [
            filled(9 * MIB),
            bytearray(20 * MIB),
            "text" * 3 * MIB,
            list(range(4 * MIB)),
            {"a": bytes(6 * MIB), "b": [bytes(6 * MIB)]},
        ]:
            self.assertEqual(self.submit(lambda one: one, value).result(60), value)
        for size in (8 * MIB - 100, 8 * MIB, 8 * MIB + 100):
            self.assertEqual(self.submit(bytes, size).result(60), bytes(size))

    def test_calls_take_them(self):
        one, two = self.submit(filled, 10 * MIB), self.submit(filled, 30 * MIB)
        small = self.submit(filled, 10)
        pending = [self.submit(pair, one, two), self.submit(pair, small, two)]
        nested = self.submit(lambda values: sum(map(len, values)), [one, two, one])
        after = self.submit(sum, falkon.gather(nested, self.submit(abs, -1)))
        chain = self.submit(len, self.submit(bytes, self.submit(bytes, one)))
        self.assertEqual([call.result(60) for call in pending], [(10 * MIB, 30 * MIB), (10, 30 * MIB)])
        self.assertEqual(nested.result(60), 50 * MIB)
        self.assertEqual(after.result(60), 50 * MIB + 1)
        self.assertEqual(chain.result(60), 10 * MIB)
        self.assertEqual(one.result(60), filled(10 * MIB))
        self.assertEqual(self.submit(pair, one, two).result(60), (10 * MIB, 30 * MIB))
        self.assertEqual(self.submit(pair, small, one).result(60), (10, 10 * MIB))

    def test_maps_and_callbacks(self):
        found = []
        with falkon.Executor(self.dispatcher.access) as executor:
            executor.submit(filled, 9 * MIB).add_done_callback(
                lambda call: found.append(len(call.result()))
            )
        self.assertEqual(found, [9 * MIB])
        lengths = [len(value) for value in self.executor.map(filled, [9 * MIB] * 6, chunksize=2)]
        self.assertEqual(lengths, [9 * MIB] * 6)

    def test_one_that_is_cancelled(self):
        calls = [self.submit(filled, 9 * MIB) for _ in range(6)]
        calls[3].cancel()
        self.assertEqual([len(calls[n].result(60)) for n in (0, 1, 2, 4, 5)], [9 * MIB] * 5)


class NoRoom(unittest.TestCase):
    def test_the_error_says_what_to_do(self):
        with Dispatcher() as dispatcher, falkon.Executor(dispatcher.access) as executor:
            cache = os.path.join(dispatcher.folder, "cache") + "=12MiB"
            dispatcher.executor("--cache", cache, PYTHONPATH=_program.module_path())
            with self.assertRaisesRegex(falkon.TaskFailed, "returned 2097.* bytes.* larger cache"):
                executor.submit(bytes, 20 * MIB).result(60)
            self.assertEqual(len(executor.submit(bytes, 10 * MIB).result(60)), 10 * MIB)
            self.assertEqual(executor.submit(abs, -1).result(60), 1)

    def test_what_a_killed_client_had_goes_with_its_lease(self):
        script = """
import falkon, os, signal, sys
from falkon import _session
_session.LEASE_SECONDS_SPARE = 0.5
executor = falkon.Executor(sys.argv[1], reconnect=0.5)
executor.submit(len, os.urandom(3 << 20)).result()
made = executor.submit(os.urandom, 9 << 20)
made.result()
print(len(made.result()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
        with Dispatcher() as dispatcher:
            cache = os.path.join(dispatcher.folder, "cache") + "=16MiB"
            dispatcher.executor("--cache", cache, PYTHONPATH=_program.module_path())
            argv = [sys.executable, "-W", "ignore", "-c", script, dispatcher.access]
            killed = subprocess.run(argv, stdout=subprocess.PIPE, text=True)
            self.assertEqual(killed.stdout, "%d\n" % (9 * MIB))
            with falkon.Executor(dispatcher.access) as executor:
                # There is room for it when that of the other is gone.
                def has_room():
                    try:
                        return len(executor.submit(filled, 10 * MIB).result(60)) == 10 * MIB
                    except falkon.TaskFailed:
                        return False

                wait_until(has_room)


if __name__ == "__main__":
    unittest.main()
