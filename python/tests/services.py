"""A dispatcher and executors for tests, as processes."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

import falkon


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("it did not come about within a minute")
        time.sleep(0.01)


def is_alive(pid):
    """Whether a process is there and has not ended."""
    try:
        with open("/proc/%d/stat" % pid) as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def side_by_side(folder, wanted):
    """Waits until so many processes make calls at once; how many there were."""
    open(os.path.join(folder, str(os.getpid())), "w").close()
    deadline = time.monotonic() + 60
    while len(os.listdir(folder)) < wanted and time.monotonic() < deadline:
        time.sleep(0.005)
    return len(os.listdir(folder))


class InFolder(unittest.TestCase):
    """Tests that have a folder each."""

    def setUp(self):
        self.folder = self.entered(tempfile.TemporaryDirectory())

    def path(self, name):
        return os.path.join(self.folder, name)

    def entered(self, context):
        """The value of a context, which is left when the test ends."""
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value


class Dispatcher:
    """A dispatcher in a folder of its own, with executors; all of it ends with
    the ``with`` block. With a ``disk``, its folder is a disk of that size."""

    def __init__(self, disk=None):
        self.disk = disk
        self.program = os.environ["FALKON_BINARY"]
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        self.folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        if self.disk:
            self._mount(self.disk)
            self._stack.callback(subprocess.run, ["umount", "-l", self.folder], check=True)
        self.access = os.path.join(self.folder, "access.json")
        self._listen("127.0.0.1:0")
        wait_until(lambda: os.path.exists(self.access))
        return self

    def _mount(self, size, *options):
        options = ",".join(["size=" + size, *options])
        mount = ["mount", "-t", "tmpfs", "-o", options, "none", self.folder]
        if os.geteuid() or subprocess.run(mount, check=False).returncode:
            self._stack.close()
            raise unittest.SkipTest("only root can mount a small disk")

    def resize_disk(self, size):
        """Gives its disk another size."""
        self._mount(size, "remount")

    def _listen(self, address):
        self.process = self._start("start", "--dir", self.folder, "--listen", address)

    def kill(self):
        """Ends the dispatcher as a machine that fails does."""
        self.process.kill()
        self.process.wait()

    def start_again(self):
        """Starts it again where it was."""
        with open(self.access) as access:
            self._listen(json.load(access)["addresses"][0])

    def __exit__(self, *raised):
        self._stack.close()

    def _start(self, *arguments, **options):
        process = subprocess.Popen(
            [self.program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **options,
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def executor(self, *options, python=sys.executable, slots=2, **environment):
        """Starts an executor whose workers have this interpreter; its process."""
        worker = "python=" + python
        options = ["--worker", worker, "--slots", str(slots), *options]
        variables = dict(os.environ, **environment)
        return self._start("executor", "--access", self.access, *options, env=variables)


class AtDispatcher(unittest.TestCase):
    """Tests of an executor of a dispatcher of their own, without executors at first."""

    def setUp(self):
        self.dispatcher = Dispatcher()
        self.dispatcher.__enter__()
        self.addCleanup(self.dispatcher.__exit__)
        self.executor = falkon.Executor(self.dispatcher.access)
        self.addCleanup(self.executor.shutdown, cancel_futures=True)
