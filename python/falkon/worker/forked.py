"""Templates that are a client's own process, forked (python/falkon/_fork.py)."""

import io
import os
import socket
import sys
import traceback

from . import failures, modules
from .changes import watch_all, watch_loaded, watched
from .references import make_importable
from .serving import Worker, work
from .template import PR_SET_PDEATHSIG, UNFIT, Template

KEY_BYTES_MAX = 128
"""Room for the setting that says which task a process is."""

_dup2 = os.dup2
"""The function as it is before it is watched."""


class Forked(Template):
    """The process of a client, forked (python/falkon/_fork.py): its modules with their
    state, and nothing else of it."""

    def __init__(self, orders, host, instance):
        import ctypes
        import fcntl
        import gc

        # Garbage of the client, when it was forked, is not collected here.
        gc.freeze()
        self.libc = ctypes.CDLL(None)
        self.libc.prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0)
        if os.getppid() != host:
            os._exit(1)
        self.host = host
        os.setpgid(0, 0)
        sys.settrace(None)
        sys.setprofile(None)
        reset_signals()
        failures.outer = sys.exc_info()[1]
        self.orders = socket.socket(fileno=fcntl.fcntl(orders, fcntl.F_DUPFD_CLOEXEC, 3))
        let_go_of_files(self.orders.fileno())
        self.renew_streams()
        self.make_room(instance)
        # If the client is a worker itself.
        sys.__dict__.pop("_falkon_initialised", None)
        modules.forget_loaded()
        make_importable()
        if not watched:
            watch_all(Worker.call.__code__)
            modules.watch_modules()
            watch_loaded()

    @staticmethod
    def is_stale():
        """Modules that the client has loaded are still there."""
        return False

    def renew_streams(self):
        """Standard streams of its own. What the client has not written stays unwritten, and
        those who have its streams write to where these do."""
        self.streams = [sys.stdin, sys.stdout, sys.stderr]
        self.streams += [sys.__stdin__, sys.__stdout__, sys.__stderr__]
        purge = getattr(self.libc, "__fpurge", None)
        if purge is not None:
            import ctypes

            for name in ("stdin", "stdout", "stderr"):
                purge(ctypes.c_void_p.in_dll(self.libc, name))
        usual = os.environ.get("PYTHONIOENCODING", "").partition(":")
        encoding, errors = usual[0] or sys.getfilesystemencoding(), usual[2] or "strict"
        sys.stdin = sys.__stdin__ = open(0, encoding=encoding, closefd=False)
        for name, fd, how in (("stdout", 1, errors), ("stderr", 2, "backslashreplace")):
            raw = io.BufferedWriter(io.FileIO(fd, "w", closefd=False))
            stream = io.TextIOWrapper(raw, encoding, how, write_through=fd == 2)
            setattr(sys, name, stream)
            setattr(sys, "__%s__" % name, stream)

    def make_room(self, instance):
        """Moves variables away from where the kernel shows them, for :meth:`show`."""
        import ctypes

        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        self.key, end = int(fields[47]), int(fields[48])
        if end - self.key < KEY_BYTES_MAX:
            os._exit(UNFIT)
        variables = ctypes.POINTER(ctypes.c_void_p).in_dll(self.libc, "environ")
        moved, at = [], 0
        while variables and variables[at]:
            if self.key <= variables[at] < end:
                moved.append(ctypes.string_at(variables[at]).partition(b"="))
            at += 1
        for name, _, value in moved:
            self.libc.setenv(name, value, 1)
        self.show(b"FALKON_TASK_KEY=%s:" % instance.encode())

    def show(self, setting):
        import ctypes

        if len(setting) >= KEY_BYTES_MAX:
            os._exit(1)
        ctypes.memmove(self.key, setting.ljust(KEY_BYTES_MAX, b"\0"), KEY_BYTES_MAX)


def reset_signals():
    """Has signals handled as in an interpreter that was just started."""
    import signal

    signal.set_wakeup_fd(-1)
    usual = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGPIPE: signal.SIG_IGN,
        signal.SIGXFSZ: signal.SIG_IGN,
    }
    for number in signal.valid_signals():
        wanted = usual.get(number, signal.SIG_DFL)
        if signal.getsignal(number) is not wanted:
            try:
                signal.signal(number, wanted)
            except (OSError, ValueError):
                pass  # The handler cannot be changed.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def let_go_of_files(kept):
    """Closes all descriptors but one. Their numbers stay taken, by what can neither be read
    nor written: an object of the client that is closed must not close what was opened
    here."""
    null = os.open(os.devnull, os.O_RDWR)
    while null < 3:
        null = os.open(os.devnull, os.O_RDWR)
    nothing = os.open(os.devnull, os.O_PATH)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd < 3:
            _dup2(null, fd)
        elif fd not in (kept, null, nothing) and os.path.exists("/proc/self/fd/%d" % fd):
            _dup2(nothing, fd, False)
    os.close(null)
    os.close(nothing)


def serve_forked(orders, host, instance):
    """Goes on as a template, in a process that a client has forked; never returns."""
    try:
        Forked(orders.fileno(), host, instance).serve()
        work()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)
