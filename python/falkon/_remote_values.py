"""Remote values: what calls return and leave in the caches of executors."""

import os
import threading
from concurrent.futures import Executor
from typing import Any, Optional

from ._errors import FalkonError
from ._files import File, call_name
from ._futures import Future
from ._references import Maker, arguments_of, given, has_value, reference, staged


class RemoteValue(Future[Any]):
    """The outcome of a call with ``large_result``. The value is fetched when somebody
    asks for it."""

    __slots__ = ("file", "_executor", "_in_session", "_fetching", "_is_here")

    def __init__(self, executor: Executor, session: Maker):
        super().__init__()
        self.file = File(suffix=".value")
        """The file that the call leaves its value in."""
        self._executor: Optional[Executor] = executor
        self._in_session = session
        self._fetching = threading.Lock()
        self._is_here = False
        session.objects.fetch_at_end(self)

    @property
    def is_here(self) -> bool:
        """Whether the value has been fetched."""
        return self._is_here

    def result(self, timeout: Optional[float] = None) -> Any:
        super().result(timeout)
        self.fetch()
        return self._result

    def fetch(self, may_make_again: bool = True) -> None:
        """Fetches the value, unless it has been."""
        with self._fetching:
            if self._is_here:
                return
            try:
                self._result = self._in_session.fetch(self.file.url)
            except FalkonError:
                executor = self._executor
                if executor is None or not may_make_again:
                    raise
                # No executor holds it any more: a call that reads it has it made again.
                executor.submit(os.fspath, self.file).result()
                self._result = self._in_session.fetch(self.file.url)
            self._is_here = True
            self._executor = None

    def __reduce__(self) -> Any:
        session, uses = arguments_of()
        if session is self._in_session and uses is not None:
            place = self.file.read_by(session, uses)
            return staged, (call_name(self.file.url, place, False), "", False)
        if session is None or not has_value(self):
            return reference(self)
        return given, (self.result(),)
