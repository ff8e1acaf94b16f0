"""Values in the caches of executors that are on their way here."""

import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, List

from ._errors import TaskFailed
from ._futures import FINISHED, Future
from ._stored import Stored

FETCHERS_MAX = 2
"""Values that are fetched at a time."""


class Arriving:
    """Calls that have ended and whose values are fetched: by threads, as the one that
    receives results must not wait."""

    def __init__(self, fetch: Callable[[str], Any], has_ended: Callable[[], None]):
        self._fetch = fetch
        self._has_ended = has_ended
        self._lock = threading.RLock()
        self._stored: Dict[Future[Any], Stored] = {}
        self._waiting: Deque[Future[Any]] = deque()
        self._fetchers = 0

    def __len__(self) -> int:
        return len(self._stored)

    def __contains__(self, future: Future[Any]) -> bool:
        return future in self._stored

    def add(self, future: Future[Any], stored: Stored) -> None:
        """Has the value of a call fetched, with which its future ends."""
        with self._lock:
            self._stored[future] = stored
            self._waiting.append(future)
            if self._fetchers == FETCHERS_MAX:
                return
            self._fetchers += 1
        threading.Thread(target=self._run, daemon=True, name="falkon").start()

    def give_up(self) -> List[Future[Any]]:
        """Fetches no more; returns the calls whose values have not come."""
        with self._lock:
            left = list(self._stored)
            self._stored.clear()
            self._waiting.clear()
            return left

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._fetchers -= 1
                    return
                future = self._waiting.popleft()
                stored = self._stored[future]
            try:
                if not future.done():
                    assert stored.object is not None
                    future._end(FINISHED, self._fetch(stored.object[1]), None)
            except BaseException as error:
                failed = TaskFailed(
                    "it returned %d bytes, which an executor has in its cache, and they cannot be "
                    "fetched: %s" % (stored.bytes, error)
                )
                failed.__cause__ = error
                future._end(FINISHED, None, failed)
            with self._lock:
                self._stored.pop(future, None)
            self._has_ended()
