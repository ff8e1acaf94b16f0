"""Workers that are copies of a template: as any others, sooner.

The program is the one that FALKON_BINARY names.
"""

import glob
import os
import random
import signal
import stat
import sys
import tempfile
import threading
import unittest
import unittest.mock

import falkon
from falkon import _executor
from services import Dispatcher, InFolder, side_by_side, wait_until

PACKAGE = """
import os
with open(os.path.join({folder!r}, "loaded"), "a") as _file:
    _file.write("%d\\n" % os.getpid())
value = {value}
{more}
"""


def state():
    """The state that a call finds of its process."""
    fds = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            fds.append((fd if fd < 3 else 3, stat.S_IFMT(os.fstat(fd).st_mode)))
        except OSError:
            pass  # The descriptor was the list's own.
    handlers = [str(signal.getsignal(one)) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)]
    mask = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    names = sorted(name for name in os.environ if not name.startswith("FALKON_TASK"))
    with open("/proc/self/status") as status:
        lines = [line for line in status if line.startswith(("SigB", "SigI", "SigC", "Umask", "Thr"))]
    is_leader = os.getpgid(0) == os.getpid()
    return sorted(fds), handlers, mask, names, os.getcwd(), sys.path, sys.argv, lines, is_leader


class InTemplate(InFolder):
    """Tests with a package that is installed as far as anybody can tell."""

    def setUp(self):
        super().setUp()
        self.packages = self.path("site-packages")
        os.mkdir(self.packages)
        self.name = "falkon_test_%d" % random.getrandbits(48)
        sys.path.append(self.packages)
        self.addCleanup(sys.path.remove, self.packages)
        # By it the processes of a test are found.
        self.mark = "%016x" % random.getrandbits(64)
        os.environ["FALKON_TEST_MARK"] = self.mark
        self.addCleanup(os.environ.pop, "FALKON_TEST_MARK")
        self.addCleanup(lambda: wait_until(lambda: not self.processes()))

    def write(self, value=1, more=""):
        text = PACKAGE.format(folder=self.folder, value=value, more=more)
        with open(os.path.join(self.packages, self.name + ".py"), "w") as file:
            file.write(text)

    def executor(self, **options):
        """An executor whose calls are expected to import the package."""
        return self.entered(self.foreseeing(**options))

    def foreseeing(self, *access, **options):
        names = "cloudpickle," + self.name
        with unittest.mock.patch.object(_executor, "foreseen", lambda: names):
            return falkon.Executor(*access, **options)

    def loads(self):
        """How often the package was loaded."""
        try:
            with open(self.path("loaded")) as file:
                return len(file.readlines())
        except FileNotFoundError:
            return 0

    def value(self):
        """A function that gives the package's value and its process."""
        name = self.name

        def value():
            import importlib

            is_there = name in sys.modules
            return importlib.import_module(name).value, is_there, os.getpid()

        return value

    def folder_of_its_own(self):
        """A folder for :func:`side_by_side`."""
        folder = self.path("side-by-side")
        os.mkdir(folder)
        return folder

    def processes(self):
        """The living Python processes of this test."""
        found = []
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(path, "rb") as file:
                    is_marked = self.mark.encode() in file.read()
                pid = int(path.split("/")[2])
                with open("/proc/%d/cmdline" % pid) as file:
                    if is_marked and "worker.py" in file.read():
                        found.append(pid)
            except OSError:
                pass
        return found


class Copies(InTemplate):
    def test_the_template_imports_once_for_all_workers(self):
        self.write(5)
        executor = self.executor(max_workers=3)
        value = self.value()

        folder = self.folder_of_its_own()

        def beside_others():
            side_by_side(folder, 3)
            return value()

        found = [one.result(60) for one in [executor.submit(beside_others) for _ in range(9)]]
        self.assertEqual({one[:2] for one in found}, {(5, True)})
        self.assertEqual(len({one[2] for one in found}), 3)
        self.assertEqual(self.loads(), 1)

    def test_without_a_template_each_imports_by_itself(self):
        self.write(5)
        executor = self.executor(max_workers=1, template=False)
        self.assertEqual(executor.submit(self.value()).result(60)[:2], (5, False))

    def test_a_call_finds_its_process_as_without_a_template(self):
        self.write()
        stop = threading.Event()
        thread = threading.Thread(target=stop.wait)
        thread.start()
        try:
            with tempfile.TemporaryFile() as held:
                os.set_inheritable(held.fileno(), True)
                copied = self.executor(max_workers=1).submit(state).result(60)
                plain = self.executor(max_workers=1, template=False).submit(state).result(60)
        finally:
            stop.set()
            thread.join()
        self.assertEqual(copied, plain)

    def test_copies_draw_different_numbers(self):
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.skipTest("numpy is not installed")
        self.write(more="import numpy.random")
        executor = self.executor(max_workers=3)

        folder = self.folder_of_its_own()

        def drawn():
            import random

            import numpy

            side_by_side(folder, 3)
            return os.getpid(), random.random(), float(numpy.random.random())

        found = {one.result(60) for one in [executor.submit(drawn) for _ in range(9)]}
        self.assertEqual(len({one[0] for one in found}), 3)
        for column in (1, 2):
            self.assertEqual(len({one[column] for one in found}), len(found))
        self.assertEqual(self.loads(), 1)

    def test_an_initializer_runs_in_each_worker_and_not_in_the_template(self):
        self.write()
        place = self.path("initialised")

        def note():
            with open(place, "a") as file:
                file.write("%d\n" % os.getpid())

        folder = self.folder_of_its_own()

        def pid():
            side_by_side(folder, 2)
            return os.getpid()

        executor = self.executor(max_workers=2, initializer=note)
        pids = {one.result(60) for one in [executor.submit(pid) for _ in range(6)]}
        with open(place) as file:
            self.assertEqual(sorted(map(int, file)), sorted(pids))
        self.assertEqual(self.loads(), 1)

    def test_an_edited_package_is_loaded_anew_by_the_next_worker(self):
        self.write(1)
        executor = self.executor(max_workers=1)
        value = self.value()
        self.assertEqual(executor.submit(value).result(60)[0], 1)
        self.write(22)
        self.assertRaises(falkon.WorkerDied, executor.submit(os._exit, 1).result, 60)
        self.assertEqual(executor.submit(value).result(60)[0], 22)
        # There is a template again, which has it.
        wait_until(lambda: executor.submit(os._exit, 1).exception(60)
                   and executor.submit(value).result(60)[:2] == (22, True))  # fmt: skip

    def test_an_executor_of_a_dispatcher_copies_too(self):
        self.write(7)
        with Dispatcher() as dispatcher:
            dispatcher.executor(PYTHONPATH=self.packages)
            with self.foreseeing(dispatcher.access) as executor:
                self.assertEqual(executor.submit(self.value()).result(60)[:2], (7, True))


class WithoutCopies(InTemplate):
    """Where there can be no copies workers start as without a template."""

    def check(self, more, loaded=False):
        self.write(3, more)
        executor = self.executor(max_workers=2)
        value = self.value()
        for _ in range(3):
            self.assertEqual(executor.submit(value).result(60)[0], 3)

    def test_threads_that_stay(self):
        self.check("import threading, time\nthreading.Thread(target=time.sleep, args=(999,), daemon=True).start()")

    def test_files_that_stay_open(self):
        self.check("import socket\nkept = socket.socket()")

    def test_imports_that_end_the_process(self):
        self.check("if 'FALKON_TEST_MARK' in os.environ and os.getppid() and not __import__('gc').isenabled(): os._exit(9)")

    def test_imports_that_crash(self):
        self.check("if not __import__('gc').isenabled(): os.kill(os.getpid(), 11)")

    def test_imports_that_hang(self):
        self.check("import time\nif not __import__('gc').isenabled(): time.sleep(999)")

    def test_imports_that_raise(self):
        self.write(3, "if not __import__('gc').isenabled(): raise KeyboardInterrupt")
        executor = self.executor(max_workers=1)
        self.assertEqual(executor.submit(self.value()).result(60)[:2], (3, False))


class Killed(InTemplate):
    def test_template_and_workers_are_killed_at_random_under_load(self):
        seed = int(os.environ.get("FALKON_SEED") or random.getrandbits(32))
        print("FALKON_SEED=%d" % seed, file=sys.stderr)
        rng = random.Random(seed)
        self.write(2)
        executor = self.executor(max_workers=3)
        value = self.value()
        ended = threading.Event()

        def kill():
            while not ended.wait(rng.uniform(0.01, 0.1)):
                processes = self.processes()
                if processes:
                    try:
                        os.kill(rng.choice(processes), signal.SIGKILL)
                    except ProcessLookupError:
                        pass

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            for _ in range(15):
                futures = [executor.submit(value) for _ in range(40)]
                for future in futures:
                    try:
                        self.assertEqual(future.result(120)[0], 2)
                    except falkon.WorkerDied as error:
                        self.assertEqual(error.signal, signal.SIGKILL)
                    except falkon.TaskFailed as error:
                        self.assertIn("worker", str(error))
        finally:
            ended.set()
            killer.join()
        # The worker goes on as if nothing had happened.
        wait_until(lambda: executor.submit(value).exception(60) is None)
        found = [executor.submit(value).result(60)[0] for _ in range(20)]
        self.assertEqual(found, [2] * 20)


if __name__ == "__main__":
    unittest.main()
