"""``falkon.Pool``: the interface of ``multiprocessing.Pool``."""

import itertools
import logging
import queue
import threading
from collections import deque
from concurrent.futures import CancelledError, wait
from multiprocessing import TimeoutError
from typing import (
    Any,
    Callable,
    Deque,
    Generic,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
    TypeVar,
)

from ._executor import CHUNK_CALLS_MAX, CHUNKS_PER_WORKER, Executor
from ._futures import Future
from ._options import workers

T = TypeVar("T")
Callback = Optional[Callable[[Any], Any]]
LOG = logging.getLogger("falkon")
RUNNING, CLOSED, TERMINATED = "running", "closed", "terminated"


class AsyncResult(Generic[T]):
    """What a call of :class:`Pool` returns, or several calls together, once it is there."""

    def __init__(self, callback: Callback, error_callback: Callback):
        self._callbacks = (callback, error_callback)
        self._ended = threading.Event()
        self._value: Any = None
        self._error: Optional[BaseException] = None

    def _end(self, value: Any, error: Optional[BaseException]) -> None:
        self._value, self._error = value, error
        callback = self._callbacks[error is not None]
        self._callbacks = (None, None)
        if callback is not None:
            try:
                callback(value if error is None else error)
            except Exception:
                LOG.exception("a callback of a pool has failed")
        self._ended.set()

    def get(self, timeout: Optional[float] = None) -> T:
        """What the call returns; raises what it raises, or
        ``multiprocessing.TimeoutError`` after ``timeout`` seconds."""
        if not self._ended.wait(timeout):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[no-any-return]

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits until the call has ended, or for ``timeout`` seconds."""
        self._ended.wait(timeout)

    def ready(self) -> bool:
        """Whether the call has ended."""
        return self._ended.is_set()

    def successful(self) -> bool:
        """Whether a call that has ended has raised nothing."""
        if not self.ready():
            raise ValueError("%r not ready" % (self,))
        return self._error is None


class _MapResult(AsyncResult[List[Any]]):
    """The values of many calls, which are made in chunks."""

    def __init__(self, callback: Callback, error_callback: Callback):
        super().__init__(callback, error_callback)
        self._lock = threading.Lock()
        self._parts: List[Any] = []
        # The chunks that have not ended, and one until all are submitted.
        self._left = 1
        self._first_error: Optional[BaseException] = None

    def add(self) -> int:
        """One more chunk; its number."""
        with self._lock:
            self._left += 1
            self._parts.append(())
            return len(self._parts) - 1

    def take(self, number: int, values: Sequence[Any], error: Optional[BaseException]) -> None:
        with self._lock:
            self._parts[number] = values
        self.has_ended(error)

    def has_ended(self, error: Optional[BaseException] = None) -> None:
        """A chunk has ended, or all are submitted."""
        with self._lock:
            self._left -= 1
            if self._first_error is None:
                self._first_error = error
            if self._left:
                return
            parts, self._parts = self._parts, []
        if self._first_error is not None:
            self._end(None, self._first_error)
        else:
            self._end(list(itertools.chain.from_iterable(parts)), None)


class _Values(Iterator[T]):
    """The values of calls one by one, while others are still made; ``is_chunked`` if many
    calls travel together."""

    def __init__(self, is_ordered: bool, is_chunked: bool):
        self._is_ordered = is_ordered
        self._is_chunked = is_chunked
        self._changed = threading.Condition()
        # In their order, or those that have ended.
        self._futures: Deque[Future[Any]] = deque()
        self._under_way = 0
        self._is_fed = False
        self._feeding_error: Optional[BaseException] = None
        self._values: List[Any] = []
        self._raises: Optional[BaseException] = None

    def add(self, future: Future[Any]) -> None:
        with self._changed:
            self._under_way += 1
            if self._is_ordered:
                self._futures.append(future)

    def take(self, future: Future[Any]) -> None:
        """A call has ended."""
        with self._changed:
            self._under_way -= 1
            if not self._is_ordered:
                self._futures.append(future)
            self._changed.notify_all()

    def all_added(self, error: Optional[BaseException] = None) -> None:
        """No call follows, because these are all, or because of an error."""
        with self._changed:
            self._is_fed = True
            self._feeding_error = error
            self._changed.notify_all()

    def next(self, timeout: Optional[float] = None) -> T:
        """The next value; raises what its call raises, or
        ``multiprocessing.TimeoutError`` after ``timeout`` seconds."""
        while not self._values:
            if self._raises is not None:
                # A chunk ends with the first call that fails. The calls behind it are not made.
                error, self._raises = self._raises, StopIteration()
                raise error
            value = self._next_ended(timeout).result()
            if not self._is_chunked:
                return value  # type: ignore[no-any-return]
            values, self._raises = value
            self._values = values[::-1]
        return self._values.pop()  # type: ignore[no-any-return]

    def _next_ended(self, timeout: Optional[float]) -> Future[Any]:
        with self._changed:
            if not self._changed.wait_for(self._has_next, timeout):
                raise TimeoutError
            if self._futures:
                return self._futures.popleft()
            error, self._feeding_error = self._feeding_error, None
        raise StopIteration if error is None else error

    def _has_next(self) -> bool:
        """Whether there is something to return or to raise."""
        if self._futures:
            return self._futures[0].done()
        return self._is_fed and not self._under_way

    def __next__(self) -> T:
        return self.next()

    def __iter__(self) -> "_Values[T]":
        return self


class Pool:
    """The interface of ``multiprocessing.Pool``, for programs that are written for one.

    Without ``access``, calls are made by ``processes`` workers of this machine; with it,
    by those of the dispatcher that the access file opens, or of several. ``executor`` is an
    :class:`Executor` to use instead, with its options.

    A call fails with :class:`WorkerDied` if its worker dies; the others go on. Workers
    are kept: ``maxtasksperchild`` is refused. Locks and queues of ``multiprocessing``
    cannot be passed to calls.

    >>> with falkon.Pool(2) as pool:
    ...     print(pool.map(abs, [-1, 2, -3]))
    [1, 2, 3]
    """

    def __init__(
        self,
        processes: Optional[int] = None,
        initializer: Optional[Callable[..., Any]] = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: Optional[int] = None,
        *,
        access: Any = None,
        executor: Optional[Executor] = None,
    ):
        if maxtasksperchild is not None:
            raise ValueError("maxtasksperchild is not for this pool: its workers are kept")
        if processes is not None:
            if access is not None or executor is not None:
                raise ValueError(
                    "processes are workers of this machine: leave it out with access or executor"
                )
            processes = workers("processes", processes)
        if executor is not None and (access is not None or initializer is not None):
            raise ValueError("executor has an access file and an initializer already")
        self._owns = executor is None
        if executor is None:
            executor = Executor(
                access, max_workers=processes, initializer=initializer, initargs=tuple(initargs)
            )
        self._executor = executor
        self._lock = threading.Lock()
        self._state = RUNNING
        self._pending: Set[Future[Any]] = set()
        self._feeder: Optional[threading.Thread] = None
        self._to_feed: "queue.SimpleQueue[Any]" = queue.SimpleQueue()

    # Calls.

    def apply(
        self, func: Callable[..., T], args: Sequence[Any] = (), kwds: Mapping[str, Any] = {}
    ) -> T:
        """Makes a call, and returns what it returns."""
        return self.apply_async(func, args, kwds).get()

    def apply_async(
        self,
        func: Callable[..., T],
        args: Sequence[Any] = (),
        kwds: Mapping[str, Any] = {},
        callback: Callback = None,
        error_callback: Callback = None,
    ) -> AsyncResult[T]:
        """Has a call made. ``callback`` is called with what it returns,
        ``error_callback`` with what it raises."""
        self._check()
        result: AsyncResult[T] = AsyncResult(callback, error_callback)
        future = self._executor.submit(func, *args, **kwds)
        self._follow(future, lambda future: result._end(*_outcome(future)))
        return result

    def map(
        self, func: Callable[[Any], T], iterable: Iterable[Any], chunksize: Optional[int] = None
    ) -> List[T]:
        """Calls a function with each of many values; returns what it returns, in their order.

        ``chunksize`` calls travel together; by default as many as with :meth:`Executor.map`.
        """
        return self.map_async(func, iterable, chunksize).get()

    def starmap(
        self,
        func: Callable[..., T],
        iterable: Iterable[Iterable[Any]],
        chunksize: Optional[int] = None,
    ) -> List[T]:
        """:meth:`map` of tuples, each of which is the arguments of a call."""
        return self.starmap_async(func, iterable, chunksize).get()

    def map_async(
        self,
        func: Callable[[Any], T],
        iterable: Iterable[Any],
        chunksize: Optional[int] = None,
        callback: Callback = None,
        error_callback: Callback = None,
    ) -> AsyncResult[List[T]]:
        """:meth:`map`, of which the result can be asked for later."""
        # Values that cannot be listed raise here.
        calls = [(value,) for value in iterable]
        return self._map(func, calls, chunksize, callback, error_callback)

    def starmap_async(
        self,
        func: Callable[..., T],
        iterable: Iterable[Iterable[Any]],
        chunksize: Optional[int] = None,
        callback: Callback = None,
        error_callback: Callback = None,
    ) -> AsyncResult[List[T]]:
        """:meth:`starmap`, of which the result can be asked for later."""
        calls = [tuple(values) for values in iterable]
        return self._map(func, calls, chunksize, callback, error_callback)

    def imap(
        self, func: Callable[[Any], T], iterable: Iterable[Any], chunksize: int = 1
    ) -> Iterator[T]:
        """:meth:`map`, of which values can be taken one by one, in their order, while others
        are made. The iterable is read by a thread."""
        return self._imap(func, iterable, chunksize, True)

    def imap_unordered(
        self, func: Callable[[Any], T], iterable: Iterable[Any], chunksize: int = 1
    ) -> Iterator[T]:
        """:meth:`imap` with values as they come."""
        return self._imap(func, iterable, chunksize, False)

    def _map(
        self,
        function: Callable[..., Any],
        calls: List[Tuple[Any, ...]],
        chunksize: Optional[int],
        callback: Callback,
        error_callback: Callback,
    ) -> AsyncResult[List[Any]]:
        self._check()
        if chunksize is None:
            chunks = self._executor.max_workers * CHUNKS_PER_WORKER
            chunksize = min(max(len(calls) // chunks, 1), CHUNK_CALLS_MAX)
        chunksize = _checked(chunksize)
        result = _MapResult(callback, error_callback)
        error = None
        try:
            for future in self._submit(function, iter(calls), chunksize):
                self._follow(future, _take(result, result.add(), chunksize > 1))
        except Exception as exception:
            error = exception
        result.has_ended(error)
        return result

    def _imap(
        self,
        function: Callable[..., Any],
        iterable: Iterable[Any],
        chunksize: int,
        is_ordered: bool,
    ) -> Iterator[Any]:
        chunksize = _checked(chunksize)
        values: _Values[Any] = _Values(is_ordered, chunksize > 1)
        with self._lock:
            self._check()
            if self._feeder is None:
                self._feeder = threading.Thread(
                    target=self._feed, name="falkon pool", daemon=True
                )
                self._feeder.start()
            self._to_feed.put((function, iterable, chunksize, values))
        return values

    def _feed(self) -> None:
        """Submits the calls of :meth:`imap`, until the pool is closed."""
        while True:
            wanted = self._to_feed.get()
            if wanted is None:
                return
            self._feed_all(*wanted)
            wanted = None

    def _feed_all(
        self,
        function: Callable[..., Any],
        iterable: Iterable[Any],
        chunksize: int,
        values: _Values[Any],
    ) -> None:
        error: Optional[BaseException] = None
        try:
            calls = ((value,) for value in iterable)
            for future in self._submit(function, calls, chunksize):
                values.add(future)
                self._follow(future, values.take)
                if self._state == TERMINATED:
                    raise CancelledError("the pool has been terminated")
        except BaseException as exception:
            # It is raised where the values are taken.
            error = exception
        values.all_added(error)

    def _submit(
        self, function: Callable[..., Any], calls: Iterator[Tuple[Any, ...]], chunksize: int
    ) -> Iterator[Future[Any]]:
        if chunksize > 1:
            return self._executor._chunks(function, calls, chunksize)
        return (self._executor.submit(function, *arguments) for arguments in calls)

    def _follow(self, future: Future[Any], ended: Callable[[Future[Any]], Any]) -> None:
        """Keeps a future until it has ended."""
        self._pending.add(future)

        def take(future: Future[Any]) -> None:
            self._pending.discard(future)
            ended(future)

        future.add_done_callback(take)

    # Ending.

    def _check(self) -> None:
        if self._state != RUNNING:
            raise ValueError("Pool not running")

    def close(self) -> None:
        """Takes no more calls; those that are there are made."""
        self._stop(CLOSED)

    def terminate(self) -> None:
        """Takes no more calls, and ends those that are there."""
        self._stop(TERMINATED)
        self._cancel()

    def _stop(self, state: str) -> None:
        with self._lock:
            is_first = self._state == RUNNING
            if self._state != TERMINATED:
                self._state = state
            if is_first and self._feeder is not None:
                self._to_feed.put(None)

    def _cancel(self) -> None:
        for future in list(self._pending):
            future.cancel()

    def join(self) -> None:
        """Waits until all calls have ended, after :meth:`close` or :meth:`terminate`."""
        if self._state == RUNNING:
            raise ValueError("Pool is still running")
        if self._feeder is not None:
            self._feeder.join()
        if self._state == TERMINATED:
            # Those that were submitted meanwhile.
            self._cancel()
        wait(list(self._pending))
        if self._owns:
            self._executor.shutdown()

    def __enter__(self) -> "Pool":
        self._check()
        return self

    def __exit__(self, *_: Any) -> None:
        self.terminate()

    def __reduce__(self) -> Any:
        raise NotImplementedError("pool objects cannot be passed between processes or pickled")

    def __repr__(self) -> str:
        return "<%s.%s %s>" % (type(self).__module__, type(self).__qualname__, self._state)


def _checked(chunksize: int) -> int:
    if chunksize < 1:
        raise ValueError("chunksize must be 1 or more, not %r" % (chunksize,))
    return chunksize


def _outcome(future: Future[Any]) -> Tuple[Any, Optional[BaseException]]:
    try:
        return future.result(), None
    except BaseException as error:
        return None, error


def _take(result: _MapResult, number: int, is_chunked: bool) -> Callable[[Future[Any]], None]:
    """What takes the values of a chunk."""

    def take(future: Future[Any]) -> None:
        value, error = _outcome(future)
        if error is None and is_chunked:
            value, error = value
        elif error is None:
            value = (value,)
        result.take(number, value or (), error)

    return take
