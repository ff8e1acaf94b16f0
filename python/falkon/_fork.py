"""Workers that are copies of this process (``Executor(template="fork")``).

The process forks itself three times, each the child of the one before: the first executes
the program, the second the process host, and the third is the template of which workers are
copies (crates/process/src/copy.rs). So the host and the program look after it, and
after the workers, as after all that they have started themselves.
"""

import gc
import logging
import os
import signal
import socket
import sys
import threading
from typing import Any, List, Optional, Tuple, Union

from . import _program

ENVIRONMENT_BYTES_MIN = 128
"""A process shows by its environment, as it was when it was executed, which task it belongs
to: room for that."""
LOG = logging.getLogger("falkon")

_is_said = False


def chosen(template: Any, is_here: bool) -> Union[bool, str]:
    """The meaning of an executor's ``template``."""
    if template is None:
        variable = os.environ.get("FALKON_TEMPLATE", "")
        if variable not in ("", "fork"):
            raise ValueError("FALKON_TEMPLATE=%r is not accepted: it is fork, or not set" % variable)
        return "fork" if variable and is_here else True
    if template == "fork":
        if not is_here:
            raise ValueError(
                'template="fork" is for workers that are started here; with a dispatcher they are '
                "copies of no process of this machine"
            )
        return "fork"
    raise ValueError("template=%r is not accepted: it is True, False or 'fork'" % (template,))


def is_fit() -> bool:
    """Whether this process can be copied. Says once why not."""
    global _is_said
    reason = _reason()
    if reason is None:
        return True
    if not _is_said:
        _is_said = True
        LOG.warning(
            'template="fork": workers import modules by themselves, with none of the state that '
            "modules have here: %s",
            reason,
        )
    return False


def _reason() -> Optional[str]:
    if threading.current_thread() is not threading.main_thread():
        return "the executor is made in another thread than the main one"
    names = [one.name for one in threading.enumerate() if one is not threading.current_thread()]
    if names:
        return "threads do not survive a fork, and there are %s" % ", ".join(sorted(names))
    if len(sys._current_frames()) > 1:
        return "threads do not survive a fork, and there are some that Python has not started"
    start, end = environment_place()
    if end - start < ENVIRONMENT_BYTES_MIN:
        return "the environment with which this process was started is too short"
    return None


def environment_place() -> Tuple[int, int]:
    """Where the environment is with which this process was executed: addresses."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return int(fields[47]), int(fields[48])


class Child:
    """A process that was forked, with what is needed of :class:`subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: Optional[int] = None
        self._lock = threading.Lock()

    def poll(self) -> Optional[int]:
        if self._lock.acquire(False):
            try:
                self._wait(os.WNOHANG)
            finally:
                self._lock.release()
        return self.returncode

    def wait(self) -> int:
        with self._lock:
            self._wait(0)
        return self.returncode or 0

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _wait(self, options: int) -> None:
        if self.returncode is not None:
            return
        try:
            pid, status = os.waitpid(self.pid, options)
        except ChildProcessError:
            self.returncode = 0  # Somebody else has waited for it.
            return
        if pid:
            self.returncode = os.waitstatus_to_exitcode(status)


class Program(_program.Program):
    """The program, with a template that is this process as it is now."""

    def __init__(self, options: List[str]) -> None:
        self.socket, theirs = _program.socket_pair()
        self._errors = _program.new_errors()
        environment = _program.environment_of()
        command = _program.command_of(options)
        instance = os.urandom(8).hex()
        # Imported once for all.
        import cloudpickle  # noqa: F401

        from .worker import forked

        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):
                pass
        # Garbage of this process must not be collected there, nor a handler called.
        was_enabled = gc.isenabled()
        gc.disable()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork()
            if not pid:
                _become_program(theirs, self._errors.fileno(), command, environment, instance, mask, forked)
        except OSError as error:
            self.socket.close()
            raise _program.FalkonError("this process cannot be forked: %s" % error) from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            if was_enabled:
                gc.enable()
            theirs.close()
        self.process = Child(pid)


def _become_program(theirs, errors, command, environment, instance, mask, forked):  # type: ignore[no-untyped-def]
    """Goes on as the program in a process that was forked; never returns."""
    try:
        os.setsid()
        _open_standard_streams()
        launches, launched = _socket_pair()
        ends, ended = _socket_pair()
        host = os.fork()
        if not host:
            _become_host(launched, ended, errors, command[0], environment, instance, mask, forked)
        keep = [launches.fileno(), ends.fileno()]
        given = "%d:%s:%d:%d" % (host, instance, *keep)
        _execute([*command, "--forked", given], environment, (theirs.fileno(), -1, errors), keep, mask)
    except BaseException as error:
        _give_up(errors, error)
    finally:
        os._exit(127)


def _become_host(launched, ended, errors, program, environment, instance, mask, forked):  # type: ignore[no-untyped-def]
    """Goes on as the process host; never returns."""
    try:
        os.setsid()
        orders, taken = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        host = os.getpid()
        template = os.fork()
        if not template:
            forked.serve_forked(taken, host, instance)
        keep = [orders.fileno()]
        command = [program, "task-host", instance, "", "%d:%d" % (template, *keep)]
        streams = (launched.fileno(), ended.fileno(), errors)
        _execute(command, environment, streams, keep, mask)
    except BaseException as error:
        _give_up(errors, error)
    finally:
        os._exit(127)


def _socket_pair():  # type: ignore[no-untyped-def]
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def _open_standard_streams() -> None:
    """Descriptors that are opened from then on are none of theirs."""
    while True:
        fd = os.open(os.devnull, os.O_RDWR)
        if fd > 2:
            os.close(fd)
            return


def _give_up(errors: int, error: BaseException) -> None:
    os.write(errors, ("falkon cannot be started: %s" % error).encode("utf-8", "replace"))


def _execute(command, environment, streams, keep, mask):  # type: ignore[no-untyped-def]
    """Executes a program with these streams, -1 being none, and no other descriptors but
    those to ``keep``."""
    null = os.open(os.devnull, os.O_RDWR)
    # None of them is overwritten before it is copied.
    streams = [os.dup(null if stream < 0 else stream) for stream in streams]
    while min(streams) < 3:
        streams = [os.dup(stream) if stream < 3 else stream for stream in streams]
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2:
            try:
                os.set_inheritable(fd, fd in keep)
            except OSError:
                pass  # The descriptor was the list's own.
    for number in signal.valid_signals():
        # Handlers are this process's; what it ignores stays ignored, but as with
        # subprocess.Popen.
        if callable(signal.getsignal(number)) or number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.execvpe(command[0], command, environment)
