"""``falkon.Executor([...])``: the executors of several dispatchers as one queue."""

import json
import os
import subprocess
import tempfile
import time
import unittest

import falkon
from services import Dispatcher, wait_until

MIB = 1 << 20
HERE = os.path.dirname(os.path.abspath(__file__))


def cluster():
    """The cluster that makes the call."""
    return os.environ["CLUSTER"]


def passing(value, gate):
    """Its argument and the cluster, once the gate is open."""
    while not os.path.exists(gate):
        time.sleep(0.005)
    return value, cluster()


def within(executor):
    """What a call of a call gives."""
    return executor.submit(abs, -3).result(60)


def instances(dispatcher):
    command = [dispatcher.program, "status", "--access", dispatcher.access, "--json"]
    found = subprocess.run(command, capture_output=True, check=True)
    return json.loads(found.stdout)["instances"]


class Clusters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dispatchers = []
        path = os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")])
        for name in ("left", "right"):
            dispatcher = Dispatcher()
            dispatcher.__enter__()
            cls.addClassCleanup(dispatcher.__exit__)
            dispatcher.executor(CLUSTER=name, PYTHONPATH=path)
            cls.dispatchers.append(dispatcher)
        cls.files = [dispatcher.access for dispatcher in cls.dispatchers]

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.executor = falkon.Executor(self.files)
        self.addCleanup(self.executor.shutdown, cancel_futures=True)
        wait_until(lambda: self.executor.options(cpus=1).max_workers == 4 or time.sleep(1))

    def test_both_make_calls_of_one_queue_though_one_is_killed(self):
        gate = os.path.join(self.folder.name, "gate")
        first = [self.executor.submit(passing, n, gate) for n in range(4)]
        calls = [self.executor.submit(abs, -n) for n in range(2000)]
        left = self.dispatchers[0]
        wait_until(lambda: instances(left) and instances(left)[0]["running"] == 2)
        left.kill()
        left.start_again()
        open(gate, "w").close()
        self.assertEqual([call.result(120) for call in calls], [*range(2000)])
        found = [call.result(120) for call in first]
        self.assertEqual([value for value, _ in found], [*range(4)])
        self.assertEqual({place for _, place in found}, {"left", "right"})

    def test_calls_take_values_of_calls_and_long_ones_arrive(self):
        submit = self.executor.submit
        small = submit(len, submit(bytes, 5))
        parts = [submit(bytes, n * MIB) for n in (1, 3, 9, 20)]
        self.assertEqual(small.result(60), 5)
        self.assertEqual([len(part.result(60)) for part in parts], [n * MIB for n in (1, 3, 9, 20)])
        self.assertEqual(submit(len, parts[2]).result(60), 9 * MIB)
        self.assertEqual(submit(len, submit(bytes, 9 * MIB)).result(60), 9 * MIB)
        self.assertEqual(submit(len, bytes(5 * MIB)).result(60), 5 * MIB)
        self.assertEqual(list(self.executor.map(len, [bytes(2 * MIB)] * 3)), [2 * MIB] * 3)
        shared = self.executor.put(bytes(3 * MIB))
        self.assertEqual([submit(len, shared).result(60) for _ in range(2)], [3 * MIB] * 2)
        large = self.executor.options(large_result=True).submit(bytes, 2 * MIB)
        self.assertEqual(len(large.result(60)), 2 * MIB)
        for one in (bytes(17 * MIB), parts[3], submit(bytes, 17 * MIB)):
            with self.assertRaisesRegex(falkon.NoRoom, "several dispatchers"):
                submit(len, one).result(60)
        # What was fetched takes no room in caches.
        for access in self.files:
            self.assertEqual(falkon.Client(access).data.ls(), [])

    def test_files_are_read_and_written(self):
        made = falkon.File(os.path.join(self.folder.name, "made"))
        written = self.executor.options(outputs=[made]).submit(_write, made, "text")
        self.assertEqual(self.executor.submit(_read, written.outputs[0]).result(60), "text")
        with self.assertRaisesRegex(ValueError, "none in common"):
            self.executor.options(outputs=[falkon.File()]).submit(abs, 1).result(60)
        with self.assertRaisesRegex(ValueError, "none in common"):
            self.executor.submit(_read, falkon.File("cache:key")).result(60)

    def test_each_executor_of_all_makes_a_call(self):
        calls = self.executor.everywhere(cluster)
        self.assertEqual(sorted(call.result(60) for call in calls), ["left", "right"])

    def test_it_is_passed_to_calls(self):
        self.assertEqual(self.executor.submit(within, self.executor).result(60), 3)

    def test_nothing_is_left(self):
        with falkon.Executor(self.files) as executor:
            self.assertEqual(executor.submit(abs, -1).result(60), 1)
        self.executor.shutdown()
        for dispatcher in self.dispatchers:
            self.assertEqual(instances(dispatcher), [])

    def test_what_is_refused(self):
        one = self.files[0]
        with falkon.Executor([one]) as executor:
            self.assertEqual(executor.submit(abs, -1).result(60), 1)
            self.assertEqual(len(executor.everywhere(abs, -1)), 1)
        with self.assertRaisesRegex(ValueError, "empty"):
            falkon.Executor([])
        with self.assertRaisesRegex(TypeError, "a list of several"):
            falkon.Executor(3)
        with self.assertRaisesRegex(falkon.SessionLost, "of the same dispatcher"):
            falkon.Executor([one, one])
        with self.assertRaisesRegex(falkon.SessionLost, "owner"):
            falkon.Executor([one, os.path.join(os.path.dirname(one), "access-executor.json")])
        with self.assertRaisesRegex(ValueError, "max_workers"):
            falkon.Executor(self.files, max_workers=2)
        for kind in (falkon.Client, falkon.AsyncClient):
            with self.assertRaisesRegex(TypeError, "falkon run"):
                kind(self.files)


def _write(file, text):
    with open(file, "w") as opened:
        opened.write(text)


def _read(file):
    with open(file) as opened:
        return opened.read()


if __name__ == "__main__":
    unittest.main()
