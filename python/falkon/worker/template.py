"""Templates: processes that import what calls are expected to need, and of which workers
are copies (crates/process/src/copy.rs). A copy begins where a worker does that was
started as a program, with these modules loaded."""

import array
import importlib
import os
import socket
import struct
import sys
import time
from importlib import machinery

from . import modules
from .changes import settle
from .serving import READ_BYTES

UNFIT = 3
"""The exit status of a template of which no copy may be made."""

PR_SET_PDEATHSIG = 1
_PID = struct.Struct("=i")
_dup2, _fork = os.dup2, os.fork
"""The functions as they are before they are watched."""


class Template:
    """A process that is copied when the executor asks for it."""

    def __init__(self):
        import ctypes

        self.libc = ctypes.CDLL(None)
        self.host = os.getppid()
        # Modules must not meet the orders on standard input.
        self.orders = socket.socket(fileno=os.dup(0))
        null = os.open(os.devnull, os.O_RDONLY)
        _dup2(null, 0)
        os.close(null)
        # The executor knows processes that calls leave behind by their tasks' keys, as the
        # kernel shows them: where the environment was when the program was started.
        self.key = 0
        variables = ctypes.POINTER(ctypes.c_void_p).in_dll(self.libc, "environ")
        for at in range(len(os.environ)):
            if variables[at] and ctypes.string_at(variables[at]).startswith(b"FALKON_TASK_KEY="):
                self.key = variables[at]

    def load(self, names):
        """Imports modules that are installed, as far as that can be done."""
        import gc

        modules.note_installed(True)
        gc.disable()
        for name in names:
            try:
                found = machinery.PathFinder.find_spec(name.partition(".")[0])
                if found is not None and modules.is_installed(found.origin or ""):
                    importlib.import_module(name)
            except BaseException:
                pass  # A worker that needs it reports the error.
        settle()
        sys.stdout.flush()
        sys.stderr.flush()
        # Copies share what is there, and need not look through it for garbage.
        gc.freeze()

    def is_fit(self):
        """Whether copies can be made: nothing was left that processes cannot share. Threads that
        end when their process is forked, as those of OpenBLAS, do not count."""
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = _fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        own = (0, 1, 2, self.orders.fileno())
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd not in own and os.path.exists("/proc/self/fd/%d" % fd):
                return False
        return self.is_alone() and self.key != 0

    @staticmethod
    def is_alone():
        """Whether the process has one thread."""
        return len(os.listdir("/proc/self/task")) == 1

    def serve(self):
        """Makes copies; returns in these."""
        size = array.array("i").itemsize
        while True:
            fds = array.array("i")
            data, ancillary, _, _ = self.orders.recvmsg(READ_BYTES, socket.CMSG_SPACE(3 * size))
            for level, kind, content in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(content[: len(content) // size * size])
            if not data or self.is_stale():
                os._exit(0)
            if len(fds) != 3 or not self.is_alone():
                os._exit(UNFIT)
            if self.copy(data, fds):
                return
            for fd in fds:
                os.close(fd)
            self.reap()

    @staticmethod
    def reap():
        """Waits for the processes between it and copies, as far as they have ended."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass

    def is_stale(self):
        """Whether an interpreter that is started now would load other modules."""
        return modules.have_modules_changed() or modules.have_installed_changed()

    def copy(self, settings, fds):
        """Makes a copy; whether this is the copy."""
        if _fork():
            return False
        between = os.getpid()
        try:
            if _fork():
                os._exit(0)
            # An orphan has the host as its parent.
            while os.getppid() == between:
                time.sleep(0.0001)
            self.become(settings.split(b"\0")[:-1], *fds)
        except BaseException:
            os._exit(1)
        return True

    def become(self, settings, stdout, stderr, answer):
        """Becomes a process as the host starts them."""
        import gc

        self.libc.prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0)
        if os.getppid() != self.host:
            os._exit(1)
        os.setpgid(0, 0)
        self.orders.close()
        _dup2(stdout, 1)
        _dup2(stderr, 2)
        self.show(settings[0])
        for setting in settings:
            name, _, value = setting.partition(b"=")
            os.environ[os.fsdecode(name)] = os.fsdecode(value)
        modules.note_installed(False)
        importlib.invalidate_caches()
        # The generator is in the state that all copies would go on from.
        random = sys.modules.get("numpy.random")
        if random is not None:
            random.seed()
        settle()
        gc.enable()
        os.write(answer, _PID.pack(os.getpid()))
        for fd in (stdout, stderr, answer):
            os.close(fd)

    def show(self, setting):
        """Has the kernel show which task this process is."""
        import ctypes

        if len(ctypes.string_at(self.key)) != len(setting):
            os._exit(1)
        ctypes.memmove(self.key, setting, len(setting))
