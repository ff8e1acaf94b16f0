"""Calls that run once on each executor (``Executor.everywhere``)."""

import threading
from typing import Any, Generic, List, Optional, TypeVar

from ._futures import Future
from ._kinds import Call

T = TypeVar("T")


class First(Future[T], Generic[T]):
    """The first of the calls that a function becomes, of which there are as many as
    executors. The dispatcher knows how many, so the others are there once it has
    accepted them."""

    __slots__ = ("others", "is_placed")

    def __init__(self) -> None:
        super().__init__()
        self.others: Optional[List[Future[T]]] = None
        self.is_placed = threading.Event()
        """Whether the call was accepted, or has failed."""
        # A call with needs, if none, is looked at before it is submitted.
        self._needs = ()

    def accepted(self, count: int) -> List[Future[T]]:
        """The dispatcher has made ``count`` tasks of it; gives the calls of all but the
        first. The session's lock is held."""
        self.others = []
        for task in range((self._task or 0) + 1, (self._task or 0) + count):
            other: Future[T] = Future()
            other._session, other._name, other._task = self._session, self._name, task
            # What one of them reads stays as long as any of them needs it.
            other._objects = self._objects
            self.others.append(other)
        self.is_placed.set()
        return self.others

    def _end(self, state: str, result: Any, exception: Optional[BaseException]) -> bool:
        ended = super()._end(state, result, exception)
        self.is_placed.set()
        return ended

    def all(self) -> List[Future[T]]:
        """All of them, as soon as it is known how many.

        Raises what kept the dispatcher from making any."""
        try:
            self.is_placed.wait()
        except BaseException:
            self.cancel()
            raise
        if self.others is None:
            self.result()
        return [self, *(self.others or ())]


class Alone:
    """The submission of a call that runs everywhere, while it is not known how many tasks
    it became: nothing is submitted behind it, and results of its tasks wait."""

    def __init__(self, request: int, call: Call):
        self.request = request
        self.first: "First[Any]" = call[2]  # type: ignore[assignment]
        self.results: List[Any] = []
        """Runs of results that came before the answer, over another connection."""

    def holds(self, run: Any) -> bool:
        """Whether a run of results is kept until the answer is there."""
        if run[0] + run[1] <= (self.first._task or 0):
            return False
        self.results.append(run)
        return True
