"""Futures that are small: a million of them may be pending."""

import threading
from concurrent.futures import CancelledError, TimeoutError
from concurrent.futures import Future as StandardFuture
from concurrent.futures import InvalidStateError
from concurrent.futures._base import LOGGER
from time import monotonic
from typing import Any, Callable, List, Optional, Sequence, Tuple, TypeVar

from ._references import Maker, Uses, reference

# The standard library's words for a future's states.
PENDING = "PENDING"
RUNNING = "RUNNING"
CANCELLED = "CANCELLED"
CANCELLED_AND_NOTIFIED = "CANCELLED_AND_NOTIFIED"
FINISHED = "FINISHED"

T = TypeVar("T")
Callback = Callable[[Any], object]

_lock = threading.Lock()
"""Guards the state of every future, for a few instructions at a time."""

_OVER = (CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED)


class Future(StandardFuture[T]):
    """The outcome of a call, as with :class:`concurrent.futures.Future`.

    A condition is made only for a future that somebody waits for; otherwise one
    takes some hundred bytes.
    """

    __slots__ = (
        "_state",
        "_result",
        "_exception",
        "_callbacks",
        "_wakers",
        "_cond",
        "_session",
        "_task",
        "_name",
        "_needs",
        "_objects",
    )

    outputs: Sequence[Any] = ()
    """Futures of the files that the call writes (``FileFuture``), in the order in which it
    names them."""

    def __init__(self) -> None:  # The base class's would make a condition.
        self._state: str = PENDING
        self._result: Optional[T] = None
        self._exception: Optional[BaseException] = None
        self._callbacks: Optional[List[Callback]] = None
        self._wakers: Optional[List[Any]] = None
        self._cond: Optional[threading.Condition] = None
        # The session that makes the call, and the number that it has there once it is sent.
        self._session: Optional[Maker] = None
        self._task: Optional[int] = None
        # The name of the function; and the calls whose values it takes, until it has ended.
        self._name = ""
        self._needs: Optional[Tuple["Future[Any]", ...]] = None
        # The files and objects that its arguments refer to, likewise.
        self._objects: Optional[Uses] = None

    def __reduce__(self) -> Any:
        # A future that is an argument stands for its value.
        return reference(self)

    # The attributes that `concurrent.futures.wait` and `as_completed` use.

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        condition = self._cond
        if condition is None:
            with _lock:
                condition = self._cond
                if condition is None:
                    condition = self._cond = threading.Condition()
        return condition

    @property
    def _waiters(self) -> List[Any]:  # type: ignore[override]
        if self._wakers is None:
            self._wakers = []
        return self._wakers

    @property
    def _done_callbacks(self) -> List[Callback]:
        if self._callbacks is None:
            self._callbacks = []
        return self._callbacks

    # Ending.

    def _end(self, state: str, result: Any, exception: Optional[BaseException]) -> bool:
        """Ends it, if it has not ended. Returns whether it had not."""
        with _lock:
            condition = self._cond
            if condition is None:
                if self._state in _OVER:
                    return False
                self._result = result
                self._exception = exception
                self._state = state
        if condition is not None:
            with condition:
                if self._state in _OVER:
                    return False
                self._result = result
                self._exception = exception
                self._state = state
                for waker in self._wakers or () if state != CANCELLED else ():
                    if state == FINISHED:
                        if exception is None:
                            waker.add_result(self)
                        else:
                            waker.add_exception(self)
                    else:
                        waker.add_cancelled(self)
                condition.notify_all()
        self._session = None
        self._needs = self._objects = None
        if self._callbacks:
            self._invoke_callbacks()
        return True

    def set_result(self, result: T) -> None:
        if not self._end(FINISHED, result, None):
            raise InvalidStateError("{}: {!r}".format(self._state, self))

    def set_exception(self, exception: Optional[BaseException]) -> None:
        if not self._end(FINISHED, None, exception):
            raise InvalidStateError("{}: {!r}".format(self._state, self))

    def cancel(self) -> bool:
        """Cancels the call; one that is being made is ended.

        Returns whether it is cancelled: ``False`` if it had ended before.
        """
        if self._state == RUNNING:
            return False
        session = self._session
        # Waiters are notified by the maker of the call, as with standard futures.
        if self._end(CANCELLED if session is None else CANCELLED_AND_NOTIFIED, None, None):
            if session is not None:
                session.cancel(self)
            return True
        return self._state != FINISHED

    def set_running_or_notify_cancel(self) -> bool:
        with _lock:
            if self._state == PENDING:
                self._state = RUNNING
                return True
            notifies = self._state == CANCELLED
            if notifies:
                self._state = CANCELLED_AND_NOTIFIED
        if notifies:
            for waker in self._wakers or ():
                waker.add_cancelled(self)
            return False
        LOGGER.critical("Future %s in unexpected state: %s", id(self), self._state)
        raise RuntimeError("Future in unexpected state")

    # Asking.

    def cancelled(self) -> bool:
        return self._state in (CANCELLED, CANCELLED_AND_NOTIFIED)

    def running(self) -> bool:
        return self._state == RUNNING

    def done(self) -> bool:
        return self._state in _OVER

    def add_done_callback(self, fn: Callback) -> None:
        with _lock:
            condition = self._cond
            if condition is None and self._state not in _OVER:
                self._done_callbacks.append(fn)
                return
        if condition is not None:
            with condition:
                if self._state not in _OVER:
                    self._done_callbacks.append(fn)
                    return
        try:
            fn(self)
        except Exception:
            LOGGER.exception("exception calling callback for %r", self)

    def _invoke_callbacks(self) -> None:
        callbacks, self._callbacks = self._callbacks, None
        raised: Optional[BaseException] = None
        for callback in callbacks or ():
            try:
                callback(self)
            except Exception:
                LOGGER.exception("exception calling callback for %r", self)
            except BaseException as exception:
                # SystemExit, or a signal's: for the thread that it is meant to end.
                LOGGER.exception("exception calling callback for %r", self)
                raised = exception
        if raised is not None and threading.current_thread() is threading.main_thread():
            raise raised

    def _wait(self, timeout: Optional[float]) -> None:
        if self._state in _OVER:
            return
        condition = self._condition
        with condition:
            deadline = None if timeout is None else monotonic() + timeout
            while self._state not in _OVER:
                left = None if deadline is None else deadline - monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError()
                condition.wait(left)

    def result(self, timeout: Optional[float] = None) -> T:
        try:
            self._wait(timeout)
            if self._state != FINISHED:
                raise CancelledError()
            if self._exception is not None:
                raise self._exception
            return self._result  # type: ignore[return-value]
        finally:
            # The traceback of the exception refers to this frame.
            self = None  # type: ignore[assignment]

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        self._wait(timeout)
        if self._state != FINISHED:
            raise CancelledError()
        return self._exception
