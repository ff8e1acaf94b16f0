"""Runs: calls of apps that are recognised, so that none is made twice."""

import logging
import os
import threading
import weakref
from typing import Any, Dict, Iterator, Optional, Tuple, Union

from . import _apps
from ._apps import ShellApp
from ._executor import Executor
from ._futures import FINISHED, Future
from ._keys import digest, key_of
from ._restart import FileState, RestartLog, is_unchanged, state_of

LOG = logging.getLogger("falkon")

_RESULT_DEPTH = 3
"""How deep in what a call returns paths are looked for."""


class Recognised(Future[Any]):
    """The outcome of a call that has a key."""

    __slots__ = ("_key", "_before", "_run", "_files", "_states")

    def __init__(self, key: bytes, run: "Run", files: Dict[str, bool]):
        super().__init__()
        self._key = key
        self._run = run
        self._before = False
        """Whether it was made in an earlier run, and nothing has changed."""
        self._files: Optional[Dict[str, bool]] = files
        """The files that the call names, and whether it appends to them."""
        self._states: Tuple[FileState, ...] = ()
        """What they were when it ended."""

    def _end(self, state: str, result: Any, exception: Optional[BaseException]) -> bool:
        # Whoever has the result can rely on its being kept.
        if state == FINISHED and exception is None and self._files is not None:
            self._run._keep(self, result)
        if not super()._end(state, result, exception):
            return False
        self._files = None
        if not self._before:
            self._run._has_ended()
        return True


class Run:
    """Calls of apps in a run (:func:`run`)."""

    def __init__(self, executor: Optional[Executor], owned: bool, log: Optional[RestartLog]):
        self.executor = executor
        """What makes the calls of apps that have no executor of their own."""
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
        self, app: Any, executor: Executor, args: Tuple[Any, ...], kwargs: Dict[str, Any]
    ) -> Future[Any]:
        """Makes a call of an app, or finds it made."""
        function, wrap = app.function, app._wrap
        cache = app._cache
        if cache is False or (not cache and self._log is None):
            return executor._call(function, wrap, app._class, args, kwargs)
        try:
            key, found = key_of(type(app).__name__, function, args, kwargs)
        except Exception as error:
            LOG.info("a call of %s is not recognised: %s", app.__name__, error)
            return executor._call(function, wrap, app._class, args, kwargs)
        files = dict.fromkeys(found.files, False)
        files.update(_named(args[0] if isinstance(app, ShellApp) else {}, kwargs))
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
            value = None
            if self._log is not None and all(need._before for need in found.needs):
                value = self._log.find(key)
            if value is not None:
                self.skipped += 1
                future._before = True
                future._end(FINISHED, value[0], None)
            else:
                self._pending += 1
                try:
                    executor._call(function, wrap, app._class, args, kwargs, future)
                except BaseException:
                    self._pending -= 1
                    raise
                self.made += 1
            if cache:
                equal[key] = future
        return future

    def _keep(self, future: Recognised, value: Any) -> None:
        """Takes note of what a call gives, and of its files."""
        files = future._files or {}
        try:
            for path in _paths(value, _RESULT_DEPTH):
                files.setdefault(path, False)
            future._states = tuple(state_of(path, files[path]) for path in files)
            if self._log is not None and not future._before:
                with self._lock:
                    self._log.keep(future._key, future._name, value, future._states)
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
        # Those in between may have been closed before.
        outer = _apps._run
        while outer is not None and not outer._open:
            outer = outer._outer
        _apps._run = outer

    def _forked(self) -> None:
        """In a process that was forked: lets go of what belongs to the other."""
        self._lock = threading.RLock()
        if self._open and self._log is not None:
            self._log.close()
        self._open = False


def _stands(future: Recognised) -> bool:
    """Whether a call may stand for an equal one."""
    if not future.done():
        return True
    if future._state != FINISHED or future._exception is not None:
        return False
    return all(map(is_unchanged, future._states))


def _named(streams: Dict[str, Any], kwargs: Dict[str, Any]) -> Iterator[Tuple[str, bool]]:
    """The files that texts name because of where they stand: a command's streams,
    and the arguments ``inputs`` and ``outputs``. And whether they are appended to."""
    for value in streams.values():
        path, mode = value if isinstance(value, tuple) else (value, "")
        if isinstance(path, (str, os.PathLike)):
            yield os.fsdecode(path), mode == "a"
    for name in ("inputs", "outputs"):
        value = kwargs.get(name)
        for path in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(path, (str, os.PathLike)):
                yield os.fsdecode(path), False


def _paths(value: Any, depth: int) -> Iterator[str]:
    """The paths in what a call returned."""
    if isinstance(value, os.PathLike):
        yield os.fsdecode(value)
    elif depth and isinstance(value, (list, tuple)):
        for item in value:
            yield from _paths(item, depth - 1)
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from _paths(item, depth - 1)


def run(
    executor: Union[None, Executor, str, "os.PathLike[str]"] = None,
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
    if a file that it names is not as it was when the call ended: a path
    (:class:`os.PathLike`) among its arguments or in what it returned, what
    ``inputs=`` and ``outputs=`` name, and the streams of a command. The n-th of
    several equal calls is the n-th that there was. Apps with ``cache=False`` are
    called always.

    ``executor`` makes the calls: an executor, or what access file to reach one
    with. Without it, it is the one of :func:`use`, or one that is started for this
    run, with ``options`` (those of :class:`Executor`), and ends with it. If a
    ``with`` block raises, what such an executor has not begun is cancelled.
    """
    log = None if resume is None else RestartLog(os.fspath(resume))
    owned = False
    try:
        if isinstance(executor, Executor):
            if options:
                raise TypeError("options are for an executor that is started for the run")
        elif executor is not None or options or _apps._default is None:
            owned = True
            executor = Executor(executor, **options)
        else:
            executor = _apps._default
    except BaseException:
        if log is not None:
            log.close()
        raise
    begun = Run(executor, owned, log)
    begun._outer, _apps._run = _apps._run, begun
    _runs.add(begun)
    return begun


_runs: "weakref.WeakSet[Run]" = weakref.WeakSet()


def _forked() -> None:
    for begun in list(_runs):
        begun._forked()


os.register_at_fork(after_in_child=_forked)

outside = Run(None, False, None)
"""For calls of apps with ``cache=True`` that are in no run."""
