"""Calls whose values stay in the caches of executors."""

import os
import subprocess
import tempfile
import threading
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

from . import _dataflow, _remote
from ._classes import Unpickler
from ._connection import access_of_instance
from ._errors import FalkonError
from ._files import File, call_name
from ._futures import Future
from ._program import find
from ._taken import given, staged
from .worker import read_object

if TYPE_CHECKING:
    from ._executor import Executor
    from ._session import Session


class Large(Future[Any]):
    """The outcome of a call with ``large_result``. The value is brought here when
    it is asked for."""

    __slots__ = ("_executor", "_in_session", "_file", "_fetching", "_is_here")

    def __init__(self, executor: "Executor", session: "Session"):
        super().__init__()
        self._executor: Optional["Executor"] = executor
        self._in_session = session
        self._file = File(suffix=".value")
        self._fetching = threading.Lock()
        self._is_here = False
        session.objects.large.add(self)

    def result(self, timeout: Optional[float] = None) -> Any:
        super().result(timeout)
        self.fetch()
        return self._result

    def fetch(self, may_make_again: bool = True) -> None:
        """Brings the value here, if it is not."""
        with self._fetching:
            if self._is_here:
                return
            try:
                self._result = fetched(self._in_session, self._file.url)
            except FalkonError:
                executor = self._executor
                if executor is None or not may_make_again:
                    raise
                # Nobody holds it any more: a call that reads it has it made again.
                executor.submit(os.fspath, self._file).result()
                self._result = fetched(self._in_session, self._file.url)
            self._is_here = True
            self._executor = None

    def __reduce__(self) -> Any:
        session, uses = _dataflow.arguments_of()
        if session is self._in_session and uses is not None:
            place = self._file.read_by(session, uses)
            return staged, (call_name(self._file.url, place, False), "", False)
        if session is None or not _dataflow.has_value(self):
            return _dataflow.reference(self)
        return given, (self.result(),)


def submit(
    executor: "Executor", function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]
) -> Large:
    """Has a call made whose value stays where it is made."""
    future = Large(executor, executor._shared.session())
    inputs, outputs = executor._files
    executor._call(
        function,
        _remote.Large,
        executor._class,
        (future._file, *args),
        kwargs,
        future,
        (inputs, (*outputs, future._file)),
    )
    future.outputs = future.outputs[:-1]
    return future


def fetched(session: "Session", url: str) -> Any:
    """The value that an object in a cache is."""
    connection = session.connection
    access = session.access or ""
    own = access_of_instance(access, connection.instance or 0, connection.secret)
    keep: Tuple[int, ...] = ()
    if own is not None:
        keep = (os.memfd_create("access"),)
    try:
        if own is not None:
            os.fchmod(keep[0], 0o600)
            os.write(keep[0], own)
            access = "/proc/self/fd/%d" % keep[0]
        # A file without a name: nothing of it is left, however this process ends.
        with tempfile.TemporaryFile() as value:
            done = subprocess.run(
                [find(), "data", "get", "--access", access, url],
                stdin=subprocess.DEVNULL,
                stdout=value,
                stderr=subprocess.PIPE,
                text=True,
                pass_fds=keep,
            )
            if done.returncode:
                raise FalkonError(done.stderr.strip() or "%s cannot be had" % url)
            path = "/proc/self/fd/%d" % value.fileno()
            return read_object(path, Unpickler)  # type: ignore[no-untyped-call]
    finally:
        for file in keep:
            os.close(file)
