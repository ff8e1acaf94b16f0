"""Runs: calls of apps that are recognised, so that none is made twice."""

import logging
import os
import threading
import weakref
from types import MappingProxyType
from typing import Any, Dict, Iterable, Iterator, Mapping, Optional, Sequence, Set, Tuple, Union

from . import _calling
from ._access import Access
from ._executor import Executor
from ._files import File, FileFuture, Skipped, file_of
from ._futures import FINISHED, Future
from ._keys import NoKey, digest, kept_path, key_of
from ._restart import ABSENT, FileState, RestartLog, is_same, is_unchanged, state_of

LOG = logging.getLogger("falkon")

_RESULT_DEPTH = 3
"""How deep in what a call returns paths are looked for."""


_NOTHING: Mapping[str, FileState] = MappingProxyType({})


class Recognised(Future[Any]):
    """The outcome of a call that has a key."""

    __slots__ = ("_key", "_before", "_run", "_files", "_begun", "_states")

    def __init__(self, key: bytes, run: "Run", files: "Files"):
        super().__init__()
        self._key = key
        self._run = run
        self._before = False
        """Whether it was made in an earlier run, and nothing has changed."""
        self._files: Optional[Files] = files
        """The files that the call names."""
        self._begun: Mapping[str, FileState] = _NOTHING
        """The states of the files that it may read, when it was made."""
        self._states: Optional[Sequence[FileState]] = ()
        """The states of its files when it ended; ``None`` if it may have read something else."""

    def _end(self, state: str, result: Any, exception: Optional[BaseException]) -> bool:
        # A result that a caller has is kept.
        if state == FINISHED and exception is None and self._files is not None:
            self._run._keep(self, result)
        if not super()._end(state, result, exception):
            return False
        self._files = None
        self._begun = _NOTHING
        if not self._before:
            self._run._has_ended()
        return True


class Files:
    """The files that a call names."""

    __slots__ = ("paths", "read", "written", "needs")

    def __init__(self, paths: Sequence[str], needs: Sequence[Any]):
        self.paths = dict.fromkeys(paths, False)
        """Each, and whether it is appended to."""
        self.read: Set[str] = set()
        """Files that are declared to be read."""
        self.written: Set[str] = set()
        """Files that are declared to be written. Of others nobody knows."""
        self.needs = needs
        """Calls that the call comes after."""

    def add(self, named: Iterable[Tuple[str, bool, bool]]) -> None:
        """Adds paths, each with whether it is appended to, and whether written."""
        for path, appended, written in named:
            self.paths[path] = appended
            (self.written if written else self.read).add(path)

    def begin(self) -> Dict[str, FileState]:
        """The states, now, of the files that the call may read."""
        return {
            path: state_of(path)
            for path, appended in self.paths.items()
            if not appended and path not in self.written
        }

    def changed(self, begun: Mapping[str, FileState], states: Sequence[FileState]) -> Optional[str]:
        """A file that the call may have read as it was not when the call began."""
        made = {
            state.path: state
            for need in self.needs
            for state in getattr(need, "_states", None) or ()
        }
        for state in states:
            before = made.get(state.path) or begun.get(state.path)
            if state.path in self.written or before is None:
                continue
            # A file that was not there was written by this call, or by one before it.
            if before.kind == ABSENT and state.path not in self.read:
                continue
            if not is_same(before, state):
                return state.path
        return None


_NO_FILES = Files((), ())


class Run:
    """Calls of apps in a run (:func:`run`)."""

    def __init__(self, executor: Optional[Executor], owned: bool, log: Optional[RestartLog]):
        self.executor = executor
        """The executor of apps that have none of their own."""
        self.made = 0
        """Calls that were made."""
        self.skipped = 0
        """Calls that were not made, as they had been in an earlier run, or as an
        equal one of an app with ``cache=True`` was."""
        self._owned = owned
        self._log = log
        self._lock = threading.RLock()
        self._ended = threading.Condition(self._lock)
        """All calls have."""
        self._pending = 0
        self._counts: Dict[bytes, int] = {}
        """How many calls with each key there have been."""
        self._equal: "weakref.WeakKeyDictionary[Any, Dict[bytes, Recognised]]"
        self._equal = weakref.WeakKeyDictionary()
        """Calls that stand for equal ones, by what makes them."""
        self._outer: Optional[Run] = None
        self._open = True

    def _call(
        self,
        app: Any,
        executor: Executor,
        args: Tuple[Any, ...],
        kwargs: Dict[str, Any],
        declared: Tuple[Sequence[Any], Sequence[Any]],
    ) -> Future[Any]:
        """Makes a call of an app, or finds it made."""
        call = (app.function, app._wrap, app._class, args, kwargs)
        cache = app._cache
        if cache is False or (not cache and self._log is None):
            return executor._call(*call, files=declared)
        try:
            reads, writes = [file_of(one) for one in declared[0]], [file_of(one) for one in declared[1]]
            declared = reads, writes
            key, found = key_of(type(app).__name__, app.function, args, kwargs, (reads, writes))
            files = Files(found.files, found.needs) if found.files else _NO_FILES
            streams = app._named_streams(args)
            if streams or kwargs:
                named = list(_named(streams, kwargs))
                if named:
                    files = files if files.paths else Files((), found.needs)
                    files.add(named)
            for declares, some in ((files.read, reads), (files.written, writes)):
                for one in some:
                    declares.update(() if one.is_in_caches else kept_path(one))
            in_caches = [one for one in writes if one.is_in_caches]
            if cache and in_caches:
                raise NoKey("each call writes to caches what it names")
        except Exception as error:
            LOG.info("a call of %s is not recognised: %s", app.__name__, error)
            return executor._call(*call, files=declared)
        with self._lock:
            if cache:
                equal = self._equal.setdefault(executor._shared, {})
                stands = equal.get(key)
                if stands is not None and _stands(stands):
                    self.skipped += 1
                    return stands
            else:
                count = self._counts.get(key, 0)
                self._counts[key] = count + 1
                if count:
                    key = digest(key, count.to_bytes(8, "big"))
            future = Recognised(key, self, files)
            known = None
            if self._log is not None and all(need._before for need in found.needs):
                known = self._log.find(key)
            if known is not None:
                self.skipped += 1
                future._before = True
                future._files = None
                future._states = known[1]
                future._end(FINISHED, known[0], None)
                if writes:
                    future.outputs = [FileFuture(one, future) for one in writes]
                if in_caches:
                    skipped = Skipped(future, lambda: self._make_again(key, files, executor, call, declared))
                    for one in in_caches:
                        one._made = skipped
            else:
                self._make(future, files, executor, call, declared)
            if cache:
                equal[key] = future
        return future

    def _make(
        self, future: Recognised, files: Files, executor: Executor, call: Any, declared: Any
    ) -> None:
        """Makes a call; the lock is held."""
        self._pending += 1
        if files.paths:
            future._begun = files.begin()
        try:
            executor._call(*call, future, declared)
        except BaseException:
            self._pending -= 1
            raise
        self.made += 1

    def _make_again(
        self, key: bytes, files: Files, executor: Executor, call: Any, declared: Any
    ) -> Recognised:
        """Makes a call that was skipped: what it had written to caches is read."""
        future = Recognised(key, self, files)
        with self._lock:
            if not self._open:
                future._files = None  # The call is noted no more.
            self._make(future, files, executor, call, declared)
            self.skipped -= 1
        return future

    def _keep(self, future: Recognised, value: Any) -> None:
        """Takes note of what a call gives, and of its files."""
        files = future._files
        if files is None:
            return
        try:
            for path in _paths(value, _RESULT_DEPTH):
                files = files if files.paths else Files((), ())
                files.paths.setdefault(path, False)
                files.written.add(path)
            states = [state_of(path, appended) for path, appended in files.paths.items()]
            changed = files.changed(future._begun, states)
            if changed is not None:
                future._states = None
                LOG.info(
                    "what %s gave is not kept: %s changed while the call was made (if the call "
                    "writes it, have it among outputs=, or returned)", future._name, changed,
                )  # fmt: skip
                return
            future._states = states
            if self._log is not None:
                self._log.keep(future._key, future._name, value, states)
        except NoKey as error:
            LOG.info("what %s gave is not kept: %s", future._name, error)
        except Exception:
            # Of another's class, as a path; the call itself is well.
            LOG.exception("what %s gave cannot be kept", future._name)

    def _has_ended(self) -> None:
        with self._lock:
            self._pending -= 1
            if not self._pending:
                self._ended.notify_all()

    # Ending.

    def close(self) -> None:
        """Waits until all calls have ended, and ends the run."""
        self._close(False)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._close(kind is not None)

    def _close(self, cancel: bool) -> None:
        if not self._open:
            return
        if self._owned and self.executor is not None:
            self.executor.shutdown(cancel_futures=cancel)
        with self._lock:
            while self._pending:
                self._ended.wait()
            self._open = False
        if self._log is not None:
            self._log.close()
            LOG.info("%s: %d calls made, %d skipped", self._log.folder, self.made, self.skipped)
        # Runs in between may have been closed before.
        outer = _calling.run
        while outer is not None and not outer._open:
            outer = outer._outer
        _calling.run = outer

    def _forked(self) -> None:
        """In a process that was forked: lets go of what belongs to the other."""
        self._lock = threading.RLock()
        if self._open and self._log is not None:
            self._log.close()
        self._open = False


def _stands(future: Recognised) -> bool:
    """Whether a call may stand for an equal one."""
    if not future.done():
        # The files that it is declared to read were read as they are, or will be.
        files = future._files
        begun = [] if files is None else [future._begun.get(path) for path in files.read]
        return all(is_unchanged(state) for state in begun if state and state.kind != ABSENT)
    if future._state != FINISHED or future._exception is not None or future._states is None:
        return False
    return all(map(is_unchanged, future._states))


def _named(streams: Dict[str, Any], kwargs: Dict[str, Any]) -> Iterator[Tuple[str, bool, bool]]:
    """The files that texts name because of where they stand: a command's streams,
    and the arguments ``inputs`` and ``outputs``. And whether they are appended to,
    and whether they are written."""
    for name, value in streams.items():
        path, mode = value if isinstance(value, tuple) else (value, "")
        is_written = name != "stdin"
        if isinstance(path, File):
            yield from ((path, mode == "a", is_written) for path in kept_path(path))
        elif isinstance(path, (str, os.PathLike)):
            yield os.fsdecode(path), mode == "a", is_written
    for name in ("inputs", "outputs"):
        value = kwargs.get(name)
        for path in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(path, (str, os.PathLike)) and not isinstance(path, File):
                yield os.fsdecode(path), False, name == "outputs"


def _paths(value: Any, depth: int) -> Iterator[str]:
    """The paths in what a call returned."""
    if isinstance(value, File):
        yield from kept_path(value)
    elif isinstance(value, os.PathLike):
        yield os.fsdecode(value)
    elif depth and isinstance(value, (list, tuple)):
        for item in value:
            yield from _paths(item, depth - 1)
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from _paths(item, depth - 1)


def run(
    executor: Union[Executor, Access] = None,
    *,
    resume: Union[None, str, "os.PathLike[str]"] = None,
    **options: Any,
) -> Run:
    """Begins a run: what apps call from here on is part of it, until it is closed,
    or to the end of its ``with`` block, which waits for all of it.

    With ``resume``, a folder, each call that ended well is noted there, and a call
    that was made in an earlier run is not made again: its future has the value
    that it gave then.

    >>> with falkon.run(resume="state") as run:
    ...     results = [simulate(n) for n in range(1000)]
    >>> print(run.made, run.skipped)
    1000 0

    A call is the same if the app's function and the arguments are; a future among
    them counts as the call that it is of. It is made again if one of those was, or
    if a file that it names is not as it was when the call ended: a
    :class:`File` or path (:class:`os.PathLike`) among its arguments or in what it
    returned, what ``inputs=`` and ``outputs=`` name, and the streams of a command.
    One during which a file that it may read was changed is not noted. One with a
    file that is in caches alone is always made. The n-th of several equal calls is
    the n-th that there was. Apps with ``cache=False`` are called always.

    ``executor`` makes the calls: an executor, or what access file (or list of several) to reach
    one with. Without it, it is the one of :func:`use`, or one that is started for this
    run, with ``options`` (those of :class:`Executor`), and ends with it. If a
    ``with`` block raises, what such an executor has not begun is cancelled.
    """
    log = None if resume is None else RestartLog(os.fspath(resume))
    owned = False
    try:
        if isinstance(executor, Executor):
            if options:
                raise TypeError("options are for an executor that is started for the run")
        elif executor is not None or options or _calling.chosen_executor() is None:
            owned = True
            executor = Executor(executor, **options)
        else:
            executor = _calling.chosen_executor()
    except BaseException:
        if log is not None:
            log.close()
        raise
    begun = Run(executor, owned, log)
    begun._outer, _calling.run = _calling.run, begun
    _runs.add(begun)
    return begun


_runs: "weakref.WeakSet[Run]" = weakref.WeakSet()


def _forked() -> None:
    for begun in list(_runs):
        begun._forked()


os.register_at_fork(after_in_child=_forked)

outside = Run(None, False, None)
"""For calls of apps with ``cache=True`` that are in no run."""
