"""kill -9 of clients, their programs, executors and workers while calls are made: every
call ends right or with an error that is documented, and nothing is left behind.

FALKON_SEED is the seed, FALKON_ROUNDS how often (by default a few times).
"""

import glob
import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import falkon
from falkon import _program
from services import Dispatcher, wait_until

ROUNDS = int(os.environ.get("FALKON_ROUNDS", "3"))
SEED = int(os.environ.get("FALKON_SEED", random.randrange(1 << 32)))
ENDS = (falkon.WorkerDied, falkon.CallLost, falkon.DependencyError, falkon.SessionLost)
"""Errors that a call may end with where something was killed (docs/python.md)."""
MIB = 1 << 20


def made(size, *values):
    """Bytes that depend on all that they are made of."""
    import hashlib

    digest = hashlib.sha256(repr(size).encode())
    for value in values:
        digest.update(value)
    return (digest.digest() * (size // 32 + 1))[:size]


def children(process):
    """The processes that a process has started, however deep."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as stat:
                parts = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(parts[1]) == process:
            number = int(path.split("/")[2])
            found += [number, *children(number)]
    return found


def command(process):
    try:
        with open("/proc/%d/cmdline" % process, "rb") as line:
            return line.read().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def workers(process):
    return [child for child in children(process) if "worker.py" in command(child)]


def some(draw, processes, most):
    return draw.sample(processes, min(len(processes), draw.randrange(most + 1)))


def kill(process):
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass


def left(folder):
    """Names left in a folder for temporary files, but for the scratch space of a program
    that was killed itself: the next one here removes it."""
    return [name for name in os.listdir(folder)
            if not re.fullmatch(r"falkon-[0-9a-f]+-[0-9]+-[0-9]+", name)]


class Graph:
    """Random calls, some of which take what others return."""

    def __init__(self, draw, executor):
        self.draw = draw
        self.executor = executor
        self.futures = []
        self.wanted = []

    def add(self, count):
        draw = self.draw
        for _ in range(count):
            size = draw.choice((10, 1000, 100_000, MIB - 100, MIB + 100, 3 * MIB, 9 * MIB))
            places = [draw.randrange(len(self.futures)) for _ in range(draw.choice((0, 0, 1, 3)))] \
                if self.futures else []
            own = bytes(draw.choice((10, 10, 2 * MIB)))
            futures = [self.futures[place] for place in places]
            self.futures.append(self.executor.submit(made, size, own, *futures))
            wanted = made(size, own, *(self.wanted[place] for place in places))
            self.wanted.append(wanted)

    def check(self, test, said):
        failed = 0
        for number, (future, wanted) in enumerate(zip(self.futures, self.wanted)):
            try:
                value = future.result(100)
            except ENDS:
                failed += 1
            except BaseException as error:
                raise AssertionError("%s, call %d" % (said, number)) from error
            else:
                same = hashlib.sha256(value).digest() == hashlib.sha256(wanted).digest()
                test.assertTrue(same, "%s, call %d" % (said, number))
        return failed


KILLING = """
import os, signal
with open(%r, "ab") as file:
    file.write(b".")
    file.flush()
    if file.tell() <= %d:
        os.kill(os.getpid(), signal.SIGKILL)
"""


class Kills(unittest.TestCase):
    def rounds(self):
        for number in range(ROUNDS):
            seed = SEED + number
            yield "FALKON_SEED=%d FALKON_ROUNDS=1" % seed, random.Random(seed)

    def test_workers_here(self):
        for said, draw in self.rounds():
            with falkon.Executor(max_workers=2) as executor:
                program = executor._shared._session.connection.program.process.pid
                graph = Graph(draw, executor)
                for _ in range(4):
                    graph.add(draw.randrange(1, 12))
                    draw.choice(graph.futures).exception(100)
                    for worker in some(draw, workers(program), 2):
                        kill(worker)
                graph.check(self, said)
                self.assertEqual(executor.submit(abs, -1).result(100), 1, said)

    def killing(self, times):
        """A folder with a module that kills the process that imports it, so many times."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        with open(os.path.join(folder.name, "falkon_test_kills.py"), "w") as file:
            file.write(KILLING % (os.path.join(folder.name, "times"), times))
        sys.path.insert(0, folder.name)
        self.addCleanup(sys.path.remove, folder.name)
        return os.path.join(folder.name, "times")

    def test_a_worker_that_is_killed_before_it_takes_calls_is_started_again(self):
        for template in (True, False):
            noted = self.killing(5)
            options = {"preload": ["falkon_test_kills"], "template": template}
            with falkon.Executor(max_workers=2, **options) as executor:
                self.assertEqual(list(executor.map(abs, range(-9, 0))), list(range(9, 0, -1)))
            self.assertGreaterEqual(os.path.getsize(noted), 5)

    def test_that_all_workers_are_killed_is_said_after_a_while(self):
        self.killing(1000)
        options = {"preload": ["falkon_test_kills"], "template": False}
        with falkon.Executor(max_workers=1, **options) as executor:
            for _ in range(2):
                with self.assertRaisesRegex(falkon.TaskFailed, "signal 9 before it took calls.*8 before"):
                    executor.submit(abs, -1).result(100)

    def test_the_program_here(self):
        for said, draw in self.rounds():
            with tempfile.TemporaryDirectory() as folder:
                before, os.environ["TMPDIR"] = os.environ.get("TMPDIR"), folder
                try:
                    executor = falkon.Executor(max_workers=2)
                finally:
                    if before is None:
                        del os.environ["TMPDIR"]
                    else:
                        os.environ["TMPDIR"] = before
                program = executor._shared._session.connection.program.process.pid
                graph = Graph(draw, executor)
                graph.add(draw.randrange(1, 30))
                draw.choice(graph.futures).exception(100)
                processes = children(program)
                kill(program)
                graph.check(self, said)
                with self.assertRaises(falkon.SessionLost, msg=said):
                    executor.submit(abs, -1).result(100)
                executor.shutdown()
                wait_until(lambda: not any(map(command, processes)))
                try:
                    wait_until(lambda: not left(folder))
                except AssertionError:
                    raise AssertionError("%s: %s" % (said, left(folder))) from None
                # The next program here removes what is left.
                environment = dict(os.environ, TMPDIR=folder)
                script = "import falkon; falkon.Executor(max_workers=1).submit(abs, 1).result()"
                subprocess.run([sys.executable, "-c", script], env=environment, check=True)
                wait_until(lambda: not os.listdir(folder))

    def test_the_client_here(self):
        script = """
import falkon, os, random, sys, threading
from test_kills import Graph
draw = random.Random(int(sys.argv[1]))
executor = falkon.Executor(max_workers=2)
graph = Graph(draw, executor)
graph.add(draw.randrange(1, 30))
draw.choice(graph.futures).exception(100)
print("ready", flush=True)
sys.stdin.readline()
"""
        for said, draw in self.rounds():
            with tempfile.TemporaryDirectory() as folder:
                paths = [os.path.dirname(os.path.abspath(__file__)), os.environ.get("PYTHONPATH", "")]
                environment = dict(os.environ, TMPDIR=folder, PYTHONPATH=os.pathsep.join(paths))
                client = subprocess.Popen(
                    [sys.executable, "-W", "ignore", "-c", script, str(draw.randrange(1 << 32))],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=environment,
                )
                self.assertEqual(client.stdout.readline(), b"ready\n", said)
                processes = children(client.pid)
                client.kill()
                client.communicate()
                wait_until(lambda: not any(map(command, processes)))
                wait_until(lambda: not os.listdir(folder))

    def test_connected(self):
        with Dispatcher() as dispatcher:
            start = lambda: dispatcher.executor(PYTHONPATH=_program.module_path())
            executors = [start(), start()]
            for said, draw in self.rounds():
                with falkon.Executor(dispatcher.access) as executor:
                    connection = executor._shared._session.connection
                    graph = Graph(draw, executor)
                    for _ in range(4):
                        graph.add(draw.randrange(1, 10))
                        draw.choice(graph.futures).exception(100)
                        what = draw.choice(("worker", "program"))
                        if what == "program":
                            # The connection is made again.
                            kill(connection.program.process.pid)
                        else:
                            for one in executors:
                                for worker in some(draw, workers(one.pid), 1):
                                    kill(worker)
                    graph.check(self, said)
                    self.assertEqual(executor.submit(abs, -1).result(100), 1, said)


if __name__ == "__main__":
    unittest.main()
