"""Arguments and values that are too large to travel with calls, with real
processes.

The program is the one that FALKON_BINARY names. With FALKON_LARGE=1 there are
some of a gigabyte.
"""

import gc
import glob
import os
import pickle
import random
import subprocess
import sys
import tempfile
import threading
import unittest

import falkon
from services import Dispatcher, wait_until

MIB = 1 << 20


class Counted:
    """Says how often it was made of a pickle in this process."""

    loaded = 0

    def __init__(self, content):
        self.content = content

    def __setstate__(self, state):
        self.__dict__ = state
        Counted.loaded += 1


class Table:
    """A buffer that pickles may leave out, as arrays are."""

    def __init__(self, buffer):
        self.buffer = memoryview(buffer).cast("B")

    def __reduce_ex__(self, protocol):
        return Table, (pickle.PickleBuffer(self.buffer),)


def change(value):
    """Changes what it is given; says what it was."""
    if isinstance(value, Table):
        value = value.buffer
    before = value[0]
    value[0] = 77
    return before, value[0], len(value)


def loads(counted):
    import os

    return os.getpid(), type(counted).loaded, len(counted.content)


class Objects(unittest.TestCase):
    """Workers are on this machine."""

    def setUp(self):
        self.executor = falkon.Executor(max_workers=2)
        self.addCleanup(self.executor.shutdown)
        self.submit = self.executor.submit
        self.folder = self.executor._shared._session.objects.folder

    def objects(self):
        return os.listdir(self.folder)

    def test_of_any_kind_and_place(self):
        for value in [
            os.urandom(20 * MIB),
            "text" * MIB,
            bytearray(3 * MIB),
            list(range(MIB)),
            {"a": bytes(2 * MIB), "b": [1, 2]},
            (lambda data: lambda: data)(bytes(2 * MIB)),
        ]:
            same = (lambda one: lambda: one())(value) if callable(value) else value
            whole = self.submit(lambda *args, **named: (args, named), 1, value, x=same, y=2)
            (one, first), named = whole.result(60)
            if callable(value):
                first, named["x"], value = first(), named["x"](), value()
            self.assertEqual((one, first, named), (1, value, {"x": value, "y": 2}))

    def test_one_is_put_there_once(self):
        data, again = bytes(3 * MIB), bytearray(b"\1") * (3 * MIB)
        futures = [self.submit(lambda *args: len(b"".join(args)), data, again) for _ in range(50)]
        self.assertEqual({future.result(60) for future in futures}, {6 * MIB})
        self.assertEqual(len(self.objects()), 2)
        again[0] = 9  # The object is another one from now on.
        self.assertEqual(self.submit(max, again).result(60), 9)
        self.assertEqual(len(self.objects()), 3)

    def test_one_that_differs_anywhere_is_another(self):
        def digest(*args):
            import hashlib

            return [hashlib.sha256(bytes(one)).digest() for one in args]

        seed = int(os.environ.get("FALKON_SEED") or random.randrange(1 << 32))
        draw = random.Random(seed)
        buffers = [bytearray(draw.randrange(MIB, 4 * MIB) + 1) for _ in range(3)]
        values = [buffers[0], Table(buffers[1]), [buffers[2], Table(buffers[0])]]
        bytes_of = lambda one: bytes(getattr(one, "buffer", one))
        calls, wanted = [], []
        for _ in range(30):
            changed = draw.choice(buffers)
            for _ in range(draw.randrange(2)):
                changed[draw.randrange(len(changed))] ^= 1
            one, two, (three, four) = values
            flat = [one, two.buffer, three, four.buffer]
            calls.append(self.submit(lambda a, b, c: digest(a, b.buffer, c[0], c[1].buffer), *values))
            wanted.append(digest(*map(bytes_of, flat)))
        for number, call in enumerate(calls):
            self.assertEqual(call.result(60), wanted[number], "seed %d: call %d" % (seed, number))

    def test_calls_have_what_is_theirs(self):
        for value in [list(range(MIB)), bytearray(3 * MIB), Table(bytearray(3 * MIB))]:
            first = 0
            futures = [self.submit(change, value) for _ in range(6)]
            length = len(value.buffer if isinstance(value, Table) else value)
            for future in futures:
                self.assertEqual(future.result(60), (first, 77, length))

    def test_what_is_put_is_had_in_common(self):
        shared = self.executor.put(Counted(list(range(MIB))))
        self.assertEqual(len(shared.result().content), MIB)
        futures = [self.submit(loads, shared) for _ in range(40)]
        seen = {}
        for future in futures:
            process, count, length = future.result(60)
            self.assertEqual((count, length), (1, MIB))
            seen.setdefault(process, 0)
        self.assertLessEqual(len(seen), 2)
        nested = self.submit(lambda pair: loads(pair[1]), [1, shared])
        self.assertEqual(nested.result(60)[1:], (1, MIB))
        self.assertEqual(len(self.objects()), 1)
        small = self.executor.put(3)
        self.assertEqual(self.submit(pow, small, 2).result(60), 9)
        # An object of another executor is passed on.
        with falkon.Executor(max_workers=1) as other:
            self.assertEqual(other.submit(loads, shared).result(60)[2], MIB)

    def test_values_go_from_call_to_call(self):
        opened = os.path.join(self.folder, "open")

        def make(path):
            import os
            import time

            while not os.path.exists(path):
                time.sleep(0.01)
            return bytearray(40 * (1 << 20))

        made = self.submit(make, opened)
        pending = [self.submit(change, made) for _ in range(4)]
        listed = self.submit(lambda values: sum(map(len, values)), [made, made])
        open(opened, "w").close()
        self.assertEqual({one.result(60) for one in pending}, {(0, 77, 40 * MIB)})
        self.assertEqual(listed.result(60), 80 * MIB)
        # A value that is known here goes the same way, as do large ones with it.
        self.assertEqual(self.submit(change, made).result(60), (0, 77, 40 * MIB))
        self.assertEqual(self.submit(lambda pair: len(pair[0]), [made]).result(60), 40 * MIB)
        self.assertEqual(self.submit(lambda both: len(both), falkon.gather(made, made)).result(60), 2)
        result = made.result(60)
        self.assertEqual(change(result), (0, 77, 40 * MIB))
        table = self.submit(Table, bytearray(5 * MIB)).result(60)
        self.assertEqual(change(table), (0, 77, 5 * MIB))

    def test_a_value_of_a_session_that_is_over(self):
        with falkon.Executor(max_workers=1) as other:
            made = other.submit(bytes, 30 * MIB)
            made.result(60)
        self.assertEqual(self.submit(len, made).result(60), 30 * MIB)

    def test_chunks(self):
        data = bytes(2 * MIB)
        lengths = self.executor.map(lambda data, n: len(data) + n, [data] * 200, range(200), chunksize=20)
        self.assertEqual(list(lengths), [2 * MIB + n for n in range(200)])
        self.assertEqual(len(self.objects()), 1)
        made = self.executor.map(bytes, [MIB] * 40, chunksize=10)
        self.assertEqual([len(one) for one in made], [MIB] * 40)

    def test_many_that_are_large_together(self):
        parts = [bytes([n]) * (MIB // 2) for n in range(60)]
        self.assertEqual(self.submit(lambda *args: len(b"".join(args)), *parts).result(60), 30 * MIB)
        gate = self.submit(abs, -1)
        with_future = self.submit(lambda pair: pair[0] + len(pair[1]), [gate, bytes(3 * MIB)])
        self.assertEqual(with_future.result(60), 1 + 3 * MIB)

    def test_they_go_when_nobody_needs_them(self):
        made = self.submit(bytes, 3 * MIB)
        self.assertEqual(len(made.result(60)), 3 * MIB)
        taken = self.submit(len, made)
        self.assertEqual(taken.result(60), 3 * MIB)
        self.assertEqual(len(self.objects()), 1)
        del made, taken
        gc.collect()
        wait_until(lambda: not self.objects())
        # Of arguments, some are kept for calls to come.
        objects = self.executor._shared._session.objects
        for n in range(8):
            self.submit(len, bytes([n]) * (48 * MIB)).result(60)
        wait_until(lambda: len(self.objects()) <= 5)
        self.assertGreater(len(self.objects()), 1)
        self.executor.shutdown()
        self.assertFalse(os.path.exists(self.folder))
        self.assertEqual(objects.folder, self.folder)

    def test_threads_put_the_same_at_once(self):
        data, lengths = os.urandom(4 * MIB), []

        def run():
            for _ in range(5):
                lengths.append(self.submit(len, bytearray(data)).result(60))

        threads = [threading.Thread(target=run) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(lengths, [4 * MIB] * 30)
        self.assertEqual(len(self.objects()), 1)

    def test_nothing_stays_if_the_interpreter_is_killed(self):
        script = """
import falkon, os, signal
executor = falkon.Executor(max_workers=1)
executor.submit(len, bytes(5 << 20)).result()
made = executor.submit(bytes, 5 << 20)
made.result()
os.kill(os.getpid(), signal.SIGKILL)
"""
        with tempfile.TemporaryDirectory() as folder:
            environment = dict(os.environ, TMPDIR=folder)
            subprocess.run([sys.executable, "-c", script], env=environment)
            wait_until(lambda: not glob.glob(folder + "/*"))

    def test_what_cannot_be_written_is_said(self):
        os.chmod(self.folder, 0o500)
        self.addCleanup(os.chmod, self.folder, 0o700)
        if os.access(self.folder, os.W_OK):
            os.rmdir(self.folder)
            self.addCleanup(os.mkdir, self.folder)
        self.assertEqual(self.submit(len, bytes(2 * MIB)).result(60), 2 * MIB)
        with self.assertRaisesRegex(falkon.FalkonError, "20971.* bytes.*could not be written to"):
            self.submit(len, bytes(20 * MIB)).result(60)
        with self.assertRaises(OSError):
            self.submit(bytes, 2 * MIB).result(60)
        self.assertEqual(self.submit(abs, -1).result(60), 1)

    @unittest.skipUnless(os.environ.get("FALKON_LARGE"), "FALKON_LARGE is not set")
    def test_a_gigabyte(self):
        data = bytes(1 << 30)
        futures = [self.submit(len, data) for _ in range(20)]
        self.assertEqual({future.result(600) for future in futures}, {1 << 30})
        table = Table(bytearray(1 << 30))
        self.assertEqual(self.submit(change, table).result(600), (0, 77, 1 << 30))
        made = self.submit(bytearray, 1 << 30)
        self.assertEqual(self.submit(change, made).result(600), (0, 77, 1 << 30))
        self.assertEqual(len(made.result(600)), 1 << 30)


class Elsewhere(unittest.TestCase):
    """Workers are where the executors of a dispatcher are."""

    def test_limits(self):
        with Dispatcher() as dispatcher, falkon.Executor(dispatcher.access) as executor:
            dispatcher.executor()
            data = os.urandom(5 * MIB)
            self.assertEqual(executor.submit(bytes, data).result(60), data)
            self.assertEqual(executor.submit(bytes, 20 * MIB).result(60), bytes(20 * MIB))
            self.assertEqual(executor.submit(len, bytes(20 * MIB)).result(60), 20 * MIB)
            large = [executor.submit(bytes, 6 * MIB) for _ in range(2)]
            self.assertEqual(executor.submit(lambda *values: len(values), *large).result(60), 2)
            self.assertEqual(executor.submit(len, executor.put(data)).result(60), 5 * MIB)


if __name__ == "__main__":
    unittest.main()
