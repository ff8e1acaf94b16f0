"""Large calls travel also before there is an executor, and hold up nobody while their
parts are written or put into a cache."""

import os
import threading
import unittest
from unittest import mock

import falkon
from falkon import _program
from services import AtDispatcher, wait_until

MIB = 1 << 20


def lengths(*values):
    return [len(value) for value in values]


def total(*values):
    return sum(len(value) if isinstance(value, (bytes, list)) else value for value in values)


class BeforeTheFirstExecutor(AtDispatcher):
    def setUp(self):
        super().setUp()
        self.submit = self.executor.submit

    def start(self, *options):
        self.dispatcher.executor(*options, PYTHONPATH=_program.module_path())

    def test_calls_with_much_about_them_wait(self):
        content, other = os.urandom(20 * MIB), bytearray(os.urandom(3 * MIB))
        first = self.submit(abs, -1)
        argument = self.submit(lengths, content, other)
        function = self.submit(lambda: len(content))
        taken = self.submit(total, argument, first, function)
        again = self.submit(total, taken, content)
        put = self.executor.put(list(range(2 * MIB)))
        shared = [self.submit(len, put) for _ in range(3)]
        each = self.executor.map(lambda number: len(content) + number, range(20))
        changed = self.submit(sum, other[:1])
        bystander = self.submit(pow, first, 2)
        before = bytes(other)
        other[0] ^= 1
        copied = self.submit(bytes, other)
        self.start()
        self.assertEqual(bystander.result(60), 1)
        self.assertEqual(argument.result(60), [20 * MIB, 3 * MIB])
        self.assertEqual(function.result(60), 20 * MIB)
        self.assertEqual(taken.result(60), 2 + 1 + 20 * MIB)
        self.assertEqual(again.result(60), 3 + 40 * MIB)
        self.assertEqual([one.result(60) for one in shared], [2 * MIB] * 3)
        self.assertEqual(list(each), [20 * MIB + number for number in range(20)])
        self.assertEqual(changed.result(60), before[0])
        self.assertEqual(copied.result(60), bytes(other))

    def test_one_is_put_there_once(self):
        content = os.urandom(20 * MIB)
        found = [self.submit(lengths, content, number) for number in ("a", "bc")]
        self.start()
        self.assertEqual([one.result(60) for one in found], [[20 * MIB, 1], [20 * MIB, 2]])
        self.assertEqual(len(self.executor._shared.session().objects.caches.put), 1)

    def test_those_that_wait_can_be_cancelled(self):
        waits = [self.submit(len, os.urandom(17 * MIB)) for _ in range(3)]
        after = self.submit(abs, waits[0])
        self.assertTrue(waits[0].cancel())
        self.start()
        self.assertIsInstance(after.exception(60), falkon.DependencyError)
        self.assertEqual(waits[1].result(60), 17 * MIB)
        more = self.submit(len, os.urandom(17 * MIB))
        self.assertEqual(more.result(60), 17 * MIB)

    def test_a_shutdown_cancels_them(self):
        waits = [self.submit(len, os.urandom(17 * MIB)) for _ in range(3)]
        self.executor.shutdown(cancel_futures=True)
        self.assertTrue(all(one.cancelled() for one in waits))

    def test_no_cache_has_room(self):
        waits = self.submit(len, os.urandom(17 * MIB))
        self.start("--cache", os.path.join(self.dispatcher.folder, "cache") + "=1MiB")
        with self.assertRaisesRegex(falkon.NoRoom, "(?s)1782.* bytes.*--cache"):
            waits.result(60)
        self.assertEqual(self.submit(abs, -1).result(60), 1)


class Others(unittest.TestCase):
    """Other threads' calls while values that are done are made an object."""

    def test_submit_meanwhile(self):
        executor = falkon.Executor(max_workers=2)
        self.addCleanup(executor.shutdown, cancel_futures=True)
        parts = [executor.submit(os.urandom, 900_000) for _ in range(4)]
        for part in parts:
            part.result(60)
        objects = executor._shared.session().objects
        begun, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)
        write = objects._write

        def slow(*args):
            begun.set()
            go_on.wait(60)
            return write(*args)

        with mock.patch.object(objects, "_write", slow):
            wholes = []
            thread = threading.Thread(
                target=lambda: wholes.append(executor.submit(lengths, *parts)), daemon=True
            )
            thread.start()
            self.assertTrue(begun.wait(60))
            self.assertEqual(executor.submit(abs, -1).result(60), 1)
            large = []
            other = threading.Thread(
                target=lambda: large.append(executor.submit(len, bytes(100))), daemon=True
            )
            other.start()
            wait_until(lambda: large and large[0].done())
            go_on.set()
            thread.join()
        self.assertEqual(wholes[0].result(60), [900_000] * 4)


if __name__ == "__main__":
    unittest.main()
