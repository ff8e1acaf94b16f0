"""``falkon.gather``: several futures as one."""

import threading
from typing import Any, Iterable, List, Union

from ._futures import CANCELLED_AND_NOTIFIED, FINISHED, Future


class Gathered(Future[List[Any]]):
    """The values of several futures, once all are there."""

    __slots__ = ("_futures", "_left")

    def __init__(self, futures: List[Any]):
        super().__init__()
        self._futures = futures
        self._left = len(futures)
        lock = threading.Lock()

        def ended(future: Any) -> None:
            with lock:
                self._left -= 1
                left = self._left
            if future.cancelled() or future.exception() is not None:
                self._settle()
            elif left == 0:
                self._settle()

        if not futures:
            self._end(FINISHED, [], None)
        for future in futures:
            future.add_done_callback(ended)

    def _settle(self) -> None:
        values = []
        for future in self._futures:
            if not future.done():
                continue
            if future.cancelled():
                self._end(CANCELLED_AND_NOTIFIED, None, None)
                return
            if future.exception() is not None:
                self._end(FINISHED, None, future.exception())
                return
            values.append(future.result())
        if len(values) == len(self._futures):
            self._end(FINISHED, values, None)

    def cancel(self) -> bool:
        """Cancels all of them that have not ended."""
        if self.done():
            return self.cancelled()
        for future in self._futures:
            future.cancel()
        self._end(CANCELLED_AND_NOTIFIED, None, None)
        return self.cancelled()

    def __reduce__(self) -> Any:
        # A gathered future that is an argument stands for the list of their values.
        return list, (self._futures,)


def gather(*futures: Union[Any, Iterable[Any]]) -> Future[List[Any]]:
    """A future of the values of several, in their order: of ``gather(a, b, …)`` or
    of a list of futures.

    It ends when all have ended well, or as soon as one of them fails or is
    cancelled. As an argument of a call it stands for the list of their values.
    """
    if len(futures) == 1 and not hasattr(futures[0], "add_done_callback"):
        return Gathered(list(futures[0]))
    return Gathered(list(futures))
