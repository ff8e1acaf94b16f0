"""``falkon.Executor``."""

import itertools
import os
import sys
import threading
import time
import weakref
from collections import deque
from concurrent.futures import Executor as StandardExecutor
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Deque,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    ParamSpec,
    Sequence,
    Tuple,
    TypeVar,
    Union,
)

from . import _early, _remote
from ._access import Access, places_of
from ._arguments import Shared, arguments, use
from ._calls import PICKLED, Functions, applying, dumps
from ._connection import AWAY_SECONDS
from ._errors import NoRoom
from ._everywhere import First
from ._futures import Future
from ._imports import foreseen
from ._kinds import Kind
from ._objects import LARGE_BYTES, Objects
from ._options import listed, seconds, task_class, workers
from ._output import write_output
from ._program import Program
from ._session import Session
from ._slots import Slots
from ._stored import Stored

if TYPE_CHECKING:
    from ._environment import Environment, Place

CHUNKS_PER_WORKER = 64
"""Automatic chunks of ``map``: enough for the last ones to be short."""
CHUNK_CALLS_MAX = 256
KINDS_MAX = 1024
"""Functions with options whose code is kept for the next calls."""
LARGE_KINDS_MAX = 4
"""Kinds with large code that are kept."""
CODE_BYTES = 8 << 20
"""The longest code that travels with calls where it cannot be an object."""

P = ParamSpec("P")
T = TypeVar("T")


class Executor(StandardExecutor):
    """Makes calls in other processes, here or on many machines.

    A :class:`concurrent.futures.Executor`. Without ``access`` it starts what it
    needs on this machine, and nothing of it outlives this process; with it, calls
    go to the dispatcher that the access file opens. With a list of access files, the
    executors of all these dispatchers make the calls, as one queue
    (docs/several-clusters.md).

    ``max_workers``
        Calls made side by side on this machine; one per CPU by default.
    ``initializer``, ``initargs``
        Called once in each worker before its first call.
    ``preload``
        Modules that workers load before their first call.
    ``environment``
        An archive that conda-pack or venv-pack has made (``.tar``, ``.tar.gz``,
        ``.tar.zst``; a path, a URL, or a :class:`File`). Each executor receives and
        unpacks it once, and calls are made by its ``bin/python``, which needs
        ``cloudpickle`` where functions go by value. Such calls have a directory of
        their own each, which takes a few milliseconds.
    ``reconnect``
        Seconds that a dispatcher may be away, because it is started again or the
        network is down, before calls fail with :class:`falkon.SessionLost`; 60 by
        default. Each call still ends once. With several access files, the calls of a
        dispatcher that is away go to the others, and wait while all are away.
    ``output``
        What becomes of what calls write: by default it is written where this
        process writes. A function is given the number of the stream (1 or 2) and
        bytes; ``None`` drops it.
    ``template``
        What workers are copies of: by default, where that is safe, of a process that has
        imported what this one has of installed packages. ``"fork"``: of this process as
        it is now, with the state of its modules, if it has no other thread. ``False``: of
        none; each imports by itself. ``FALKON_TEMPLATE=fork`` in the environment is
        ``"fork"`` for executors that do not say.
    """

    def __init__(
        self,
        access: Access = None,
        *,
        max_workers: Optional[int] = None,
        initializer: Optional[Callable[..., Any]] = None,
        initargs: Tuple[Any, ...] = (),
        preload: Sequence[str] = (),
        reconnect: float = AWAY_SECONDS,
        output: Optional[Callable[[int, bytes], None]] = write_output,
        template: Optional[Union[bool, str]] = None,
        environment: Optional["Place"] = None,
        _parent: Optional["Executor"] = None,
        _class: Optional[List[Any]] = None,
        _files: Tuple[Sequence[Any], Sequence[Any]] = ((), ()),
        _large: bool = False,
    ):
        self._class = _class or task_class({})
        # The files that its calls read and write besides their arguments.
        self._files = _files
        self._large = _large
        # An executor lives as long as those that differ from it in options.
        self._parent = _parent
        self._shared: _Shared
        if _parent is not None:
            self._shared = _parent._shared
            return
        if max_workers is not None:
            max_workers = workers("max_workers", max_workers)
        reconnect = seconds("reconnect", reconnect)
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        of_calls = None
        if environment is not None:
            from ._environment import Environment

            of_calls = Environment(environment)
            if preload or template:
                raise ValueError(
                    "preload and template are for the interpreter that runs here, not for that of "
                    "an environment"
                )
            template = False
        early = None
        starts: Callable[[List[str]], Program] = Program
        if template is None or not isinstance(template, bool):
            from . import _fork

            template = _fork.chosen(template, access is None)
            if template == "fork" and _fork.is_fit():
                starts = _fork.Program
        imports = foreseen() if template and starts is Program else None
        options: List[str] = []
        place, clusters = places_of(access)
        if access is not None:
            if max_workers is not None or preload:
                raise ValueError(
                    "max_workers and preload are for workers that are started here; those of a "
                    "dispatcher are set where its executors are started"
                )
        else:
            options += ["--here", "--worker", "python=" + sys.executable]
            if max_workers is not None:
                options += ["--jobs", str(max_workers)]
            for module in preload:
                options += ["--preload", module]
            if imports is None:
                _early.forget()
            else:
                early = _early.take(options, imports)
                _early.remember(options, imports)
                imports = imports if early is None else early.imports
                options += ["--foresee", imports]
        wrap = None
        if initializer is not None:
            wrap = _Wrap(initializer, tuple(initargs))
        session = Session(options, output, place, reconnect, early, starts, clusters)
        self._shared = _Shared(session, wrap, max_workers or os.cpu_count() or 1, imports)
        self._shared.environment = of_calls
        self._shared.reconnect = reconnect
        # Like a standard executor, one that nobody refers to any more
        # takes no calls, and ends when those it has have ended.
        self._shared.finalizer = weakref.finalize(self, _Shared.leave, self._shared)
        self._shared.finalizer.atexit = False

    @property
    def max_workers(self) -> int:
        """Calls that are made side by side: the workers of this machine, or, with a
        dispatcher, as many as its executors have slots now for calls with these
        options; 1 while there is no executor.
        """
        return self._shared.slots.of(self._class)

    # Dask and others look for this name.
    _max_workers = max_workers

    def _repr_html_(self) -> str:
        from . import _notebook

        session = self._shared._session
        places = session.clusters or ([session.access] if session.access is not None else [])
        here = session.objects.is_here
        place = "this machine" if here else ", ".join(map(str, places)) or "a dispatcher"
        return _notebook.of_executor(place, session.pending(), self._shared.workers if here else 0)

    def __reduce__(self) -> Any:
        # Calls that are passed it make theirs at the same dispatcher.
        session, wrap = self._shared._session, self._shared._wrap
        if session.objects.is_here:
            raise TypeError(
                "an executor of this machine alone cannot be passed to a call: start a "
                "dispatcher (`falkon start`) and pass Executor(its access file)"
            )
        initializer = None if wrap is None else wrap._initializer
        environment = self._shared.environment
        archive = None if environment is None else environment.archive.url
        access: Access = tuple(map(os.path.abspath, session.clusters))
        if session.access is not None:
            access = os.path.abspath(session.access)
        of_dispatcher = (access, initializer, self._shared.reconnect, archive)
        return _connected, (of_dispatcher, self._class, self._files, self._large)

    def options(self, **options: Any) -> "Executor":
        """The same executor, for calls with these options.

        ``cpus``, ``gpus``, ``memory`` (bytes, or a text such as ``"2GiB"``),
        ``resources`` (name to count): what a call needs; ``alternatives`` (a list of
        mappings such as ``{"cpus": 16}``): what it may hold instead. ``timeout`` (the call is
        ended; seconds, a :class:`datetime.timedelta`, or a text such as ``"5m"``),
        ``retries`` (how often it is tried again), ``priority`` (higher first),
        ``runtime_estimate`` (a time, or ``"auto"``: as others of the kind took),
        ``speculate`` (``True``: a call among the last that
        takes far longer than others like it is made a second time on another node, and
        the first value counts; for functions that write nothing but outputs in stores,
        and not with ``large_result``). What the command line would refuse raises
        :class:`ValueError`, or :class:`TypeError`, here.

        ``inputs`` and ``outputs``: lists of files (:class:`File`, or their paths or
        URLs) that a call reads, besides those among its arguments, and writes. A
        function that is passed one of the ``outputs`` is given the path to write
        to. Both are for one call: the next one writes other files.

        ``large_result=True``: where a dispatcher is between, the values of calls that
        are submitted stay in the cache of the executor that made the call. Calls that
        take one get it from there; it is brought here when ``result()`` is asked for,
        and made again if it is lost. With several access files values are always brought
        here.
        """
        inputs, outputs = (listed(name, options.pop(name, ())) for name in ("inputs", "outputs"))
        large = options.pop("large_result", False)
        if not isinstance(large, bool):
            raise TypeError("large_result=%r is not accepted: it is True or False" % (large,))
        if large and options.get("speculate"):
            raise ValueError("two calls would leave the same value: leave out speculate or large_result")
        of_class = task_class(options)
        return Executor(_parent=self, _class=of_class, _files=(inputs, outputs), _large=large)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if self._large and self._shared.session().access is not None:
            return self._call_remote(fn, args, kwargs)
        return self._call(fn, None, self._class, args, kwargs, files=self._files)

    def _call(
        self,
        fn: Callable[..., Any],
        inner: Optional[Callable[[Any], Any]],
        of_class: List[Any],
        args: Tuple[Any, ...],
        kwargs: Dict[str, Any],
        future: Optional[Future[Any]] = None,
        files: Tuple[Sequence[Any], Sequence[Any]] = ((), ()),
    ) -> Future[Any]:
        """Has a call made, with ``inner`` around the function."""
        shared = self._shared
        if future is None:
            future = Future()
        try:
            kind = shared.kind(fn, of_class, inner)
            if shared.environment is not None:
                files = shared.environment.files(files)
            if kind.before:
                args = (*kind.before, *args)
            if args or kwargs or files[0] or files[1]:
                session = shared.session()
                data, future._needs, uses = arguments(session, args, kwargs, files=files)
                payload = PICKLED + data
                if uses:
                    kind = use(uses, session, future, kind)
            else:
                payload = _NOTHING
        except Exception as exception:
            # The call fails, as with the standard executors.
            shared.session()
            future.set_exception(exception)
            return future
        shared.session().submit(kind, payload, future)
        return future

    def _call_remote(
        self, fn: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]
    ) -> Future[Any]:
        """Has a call made whose value stays where it is made."""
        from ._remote_values import RemoteValue

        future = RemoteValue(self, self._shared.session())
        inputs, outputs = self._files
        self._call(
            fn,
            _remote.Large,
            self._class,
            (future.file, *args),
            kwargs,
            future,
            (inputs, (*outputs, future.file)),
        )
        future.outputs = future.outputs[:-1]
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: Optional[float] = None,
        chunksize: Optional[int] = None,
        buffersize: Optional[int] = None,
    ) -> Iterator[T]:
        """Calls a function for each set of arguments; yields what it returns, in
        their order.

        ``chunksize`` calls travel together as one task; by default so many that
        each worker still gets many chunks. With ``buffersize``, so many tasks are
        under way at most whose values have not been yielded, and the iterables are
        read no further; chunks are of one call then unless ``chunksize`` is given.
        """
        if chunksize is not None and chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None and not isinstance(buffersize, int):
            raise TypeError("buffersize must be an integer or None")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        if self._files[0] or self._files[1]:
            raise ValueError("inputs and outputs are for one call: submit() each, or pass Files")
        if self._large:
            chunksize = 1
        if buffersize is not None:
            if chunksize in (None, 1):
                one_by_one = (self.submit(fn, *args) for args in zip(*iterables))
                return _in_order(one_by_one, buffersize, timeout)
            calls: Iterable[Any] = zip(*iterables)
        else:
            calls = list(zip(*iterables))
            if chunksize is None:
                chunks = self.max_workers * CHUNKS_PER_WORKER
                chunksize = min(max(len(calls) // chunks, 1), CHUNK_CALLS_MAX)
            if chunksize == 1:
                return super().map(fn, *zip(*calls), timeout=timeout) if calls else iter(())
        chunks_of = self._chunks(fn, iter(calls), chunksize or 1)
        return _unchunk(_in_order(chunks_of, buffersize, timeout))

    def _chunks(
        self, fn: Callable[..., Any], calls: Iterator[Any], chunksize: int
    ) -> Iterator[Future[Any]]:
        """Has chunks of calls made, one after another."""
        shared = self._shared
        kind = shared.chunk_kind(fn, self._class)
        session, environment = shared.session(), shared.environment
        files = ((), ()) if environment is None else environment.files(((), ()))
        while True:
            chunk: Tuple[Any, ...] = (list(itertools.islice(calls, chunksize)),)
            if not chunk[0]:
                return
            if kind.before:
                chunk = (*kind.before, *chunk)
            future: Future[Any] = Future()
            data, future._needs, uses = arguments(session, chunk, {}, chunk=True, files=files)
            of_kind = use(uses, session, future, kind) if uses else kind
            session.submit(of_kind, PICKLED + data, future)
            yield future

    def everywhere(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> List[Future[T]]:
        """Makes a call once on each executor that is there now, in one of its workers.

        Returns a future for each, once the dispatcher has counted them. A call ends with
        :class:`TaskFailed` if its executor leaves. Without a dispatcher there is one
        executor. Arguments cannot be futures: pass their results.
        """
        if self._files[1] or self._large:
            raise ValueError("each executor would write the same files: leave out outputs and large_result")
        shared = self._shared
        session = shared.session()
        if session.objects.is_here:
            return [self.submit(fn, *args, **kwargs)]
        first: First[T] = First()
        kind = shared.kind(fn, self._class)
        files = self._files
        if shared.environment is not None:
            files = shared.environment.files(files)
        data, needs, uses = arguments(session, (*kind.before, *args), kwargs, files=files)
        if needs or (uses and uses.waits):
            raise ValueError(
                "a call that is made everywhere waits for no others: pass the result() of futures"
            )
        if uses and uses.outputs:
            raise ValueError("each executor would write the same files: pass paths as texts")
        session.submit(use(uses, session, first, kind) if uses else kind, PICKLED + data, first)
        return first.all()

    def broadcast(
        self, *objects: Union[str, "os.PathLike[str]"], to: Union[str, Sequence[str]] = ()
    ) -> List[str]:
        """Brings files or objects (:class:`File`, paths, URLs, ``cache:KEY``) into the
        caches of all executors, ahead of the calls that read them; with ``to`` only of
        those that offer these resources.

        Returns the names of the executors that have them. Without a dispatcher there is
        nothing to bring, and nothing is done.
        """
        from ._client import Client

        session = self._shared.session()
        dispatchers = session.clusters or filter(None, [session.access])
        have = [Client(access).broadcast(*objects, to=to) for access in dispatchers]
        return list(itertools.chain.from_iterable(have))

    def put(self, value: T) -> Future[T]:
        """A future that has this value, for many calls that take it.

        The value is passed to each worker once, and its calls have it in common:
        they must not change it. Arguments that are passed as they are belong to
        one call each.
        """
        return Shared(self._shared.session(), value)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._shared.shutdown(wait, cancel_futures)


_NOTHING = PICKLED + dumps(((), {}))


def _in_order(
    calls: Iterator[Future[Any]], ahead: Optional[int], timeout: Optional[float]
) -> Iterator[Any]:
    """The values of calls, in their order; ``ahead`` of them are made before the value of the first
    is taken, or all."""
    deadline = None if timeout is None else time.monotonic() + timeout
    futures = deque(itertools.islice(calls, ahead))

    def results() -> Iterator[Any]:
        try:
            while futures:
                left = None if deadline is None else deadline - time.monotonic()
                value = futures[0].result(left)
                futures.popleft()
                if ahead is not None:
                    futures.extend(itertools.islice(calls, 1))
                yield value
                value = None
        finally:
            for future in futures:
                future.cancel()

    return results()


def _unchunk(chunks: Iterator[Any]) -> Iterator[Any]:
    """The values of calls whose chunks return them."""
    for values, raised in chunks:
        values.reverse()
        while values:
            yield values.pop()
        if raised is not None:
            raise raised


_connections: "weakref.WeakValueDictionary[Tuple[Any, ...], Executor]"
_connections = weakref.WeakValueDictionary()
_connections_lock = threading.Lock()


def _connected(
    of_dispatcher: Tuple[Any, ...],
    of_class: List[Any],
    files: Tuple[Sequence[Any], Sequence[Any]],
    large: bool,
) -> Executor:
    """An executor that was passed to a call: those of one dispatcher that are there
    at the same time are one."""
    access, initializer, reconnect, archive = of_dispatcher
    key = (os.getpid(), access, reconnect, archive)
    with _connections_lock:
        root = _connections.get(key) if initializer is None else None
        if root is None:
            function, arguments = initializer or (None, ())
            root = Executor(
                access,
                initializer=function,
                initargs=arguments,
                reconnect=reconnect,
                environment=archive,
            )
            if initializer is None:
                _connections[key] = root
    return Executor(_parent=root, _class=of_class, _files=files, _large=large)


class _Wrap:
    """Puts an initializer around functions."""

    def __init__(self, initializer: Callable[..., Any], arguments: Tuple[Any, ...]):
        self._initializer = (initializer, arguments)
        self._made: Optional[bytes] = None
        self._lock = threading.RLock()
        self.stored: Optional[Stored] = None
        """The initializer as an object, if it is too large to travel with functions."""

    def make(self, objects: Objects) -> bytes:
        """Returns the initializer and its arguments as they were for the first call."""
        with self._lock:
            if self._made is None:
                made = dumps(self._initializer)
                if len(made) > LARGE_BYTES:
                    try:
                        self.stored = objects.store_shared(made)
                    except NoRoom:
                        if len(made) > CODE_BYTES:
                            raise
                self._made = made
            return self._made

    @property
    def key(self) -> str:
        """A key that tells workers that have run it from others; it has been made."""
        import hashlib

        return hashlib.sha256(self._made or b"").hexdigest()[:32]

    def __call__(self, function: Any) -> Any:
        made = self._made if self.stored is None else None
        return _remote.Initialised(function, made, self.key)  # type: ignore[no-untyped-call]


class _Both:
    """Puts two things around functions."""

    def __init__(self, inner: Callable[[Any], Any], outer: Callable[[Any], Any]):
        self.inner = inner
        self.outer = outer

    def __call__(self, function: Any) -> Any:
        return self.outer(self.inner(function))


class _Shared:
    """The state that an executor shares with those that differ from it in options."""

    def __init__(
        self, session: Session, wrap: Optional[_Wrap], workers: int, imports: Optional[str]
    ):
        self.workers = workers
        self._imports = imports
        self.slots = Slots(session, workers)
        self.reconnect = AWAY_SECONDS
        self.environment: Optional["Environment"] = None
        self.finalizer: Any = None
        self._wrap = wrap
        self._functions = Functions()
        self._wrapped: Dict[Any, Functions] = {}
        self._kinds: Dict[Any, Kind] = {}
        self._large_kinds: Deque[Any] = deque()
        """The keys of those whose functions are large, the oldest first."""
        self._down = False
        self._session = session
        _open.add(self)

    def session(self) -> Session:
        if self._down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if _exiting:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")
        return self._session

    def kind(
        self, function: Any, task_class: List[Any], inner: Optional[Callable[[Any], Any]] = None
    ) -> Kind:
        """The kind of calls of a function, with ``inner`` around it, with these
        options."""
        if not callable(function):
            raise TypeError("%r is no function: it cannot be called" % (function,))
        self._make_initializer()
        if inner is None:
            code = self._functions.code(function, self._wrap)
        else:
            functions = self._wrapped.setdefault(inner, Functions())
            wrap = inner if self._wrap is None else _Both(inner, self._wrap)
            code = functions.code(function, wrap)
        key = (code, id(task_class))
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._new_kind(function, code, task_class)
            if len(self._kinds) >= KINDS_MAX:
                self._kinds.clear()
                self._large_kinds.clear()
            self._kinds[key] = kind
            if len(code) > LARGE_BYTES:
                self._large_kinds.append(key)
                if len(self._large_kinds) > LARGE_KINDS_MAX:
                    self._kinds.pop(self._large_kinds.popleft(), None)
        return kind

    def _make_initializer(self) -> None:
        if self._wrap is not None:
            self._wrap.make(self._session.objects)

    def _new_kind(self, function: Any, code: bytes, task_class: List[Any]) -> Kind:
        name = _name(function)
        if self.environment is not None:
            task_class = self.environment.task_class(task_class)
        kind: Optional[Kind] = None
        if len(code) > LARGE_BYTES:
            try:
                stored = self._session.objects.code(code)
                kind = Kind(name, applying(), task_class, self._variables)
                kind.before = (stored,)
            except NoRoom:
                if len(code) > CODE_BYTES:
                    raise
        if kind is None:
            kind = Kind(name, code, task_class, self._variables)
        if self._wrap is not None and self._wrap.stored is not None:
            kind.before += (self._wrap.stored,)
        return kind

    @property
    def _variables(self) -> List[Tuple[str, str]]:
        """Variables of its workers."""
        environment = [] if self.environment is None else [self.environment.variable]
        if self._wrap is not None:
            environment.append(("FALKON_WORKER_INITIALIZER", self._wrap.key))
        if self._imports is not None:
            environment.append(("FALKON_WORKER_IMPORTS", self._imports))
        return environment

    def chunk_kind(self, function: Any, task_class: List[Any]) -> Kind:
        """The kind of calls of many tuples of arguments each."""
        self._make_initializer()
        code = self._functions.chunk_code(function, self._wrap)
        return self._new_kind(function, code, task_class)

    def leave(self) -> None:
        """Takes no more calls; ends when those there are have ended."""
        self._down = True
        self._session.close_when_done()

    def shutdown(self, wait: bool, cancel: bool) -> None:
        self.leave()
        if cancel:
            self._session.cancel_waiting(self.workers)
            self._session.close_when_done()
        if wait and cancel:
            self._session.join_or_give_up()
        elif wait:
            self._session.join()


def _name(function: Any) -> str:
    name = getattr(function, "__qualname__", None) or type(function).__name__
    return "%s:%s" % (getattr(function, "__module__", None) or "", name)


_open: "weakref.WeakSet[_Shared]" = weakref.WeakSet()
_exiting = False


def _at_exit() -> None:
    """Calls that are under way end before the interpreter does."""
    global _exiting
    _exiting = True
    for shared in list(_open):
        shared._session.close_when_done()
    for shared in list(_open):
        session = shared._session
        count = session.join_or_give_up()
        if count and sys.stderr is not None:
            calls = "1 call is" if count == 1 else "%d calls are" % count
            said = "falkon: %s given up: the dispatcher of %s is gone" % (calls, session.access)
            print(said, file=sys.stderr)


# Before threads are joined, as the standard executors do.
getattr(threading, "_register_atexit")(_at_exit)
