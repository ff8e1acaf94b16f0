"""Falkon as a backend of joblib.

>>> import joblib, falkon.joblib
>>> falkon.joblib.register()
>>> with joblib.parallel_config("falkon"):
...     joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(n) for n in (-1, -2))
[1, 2]
"""

import os
import threading
from typing import Any, Callable, Optional, Set, Tuple

from joblib import register_parallel_backend
from joblib.parallel import (
    AutoBatchingMixin,
    BatchedCalls,
    ParallelBackendBase,
    SequentialBackend,
)
from joblib._parallel_backends import FallbackToBackend

from . import _remote
from ._access import key_of
from ._executor import Executor

_lock = threading.Lock()
_kept: Optional[Tuple[Any, Executor]] = None
"""The executor of the last ``Parallel``, and what it was started with: the next
one finds workers that run and have loaded what they need."""


def _executor(access: Any, workers: int) -> Executor:
    global _kept
    key = (os.getpid(), key_of(access), None if access is not None else workers)
    with _lock:
        if _kept is not None and _kept[0] == key and _kept[1]._shared._session.error is None:
            return _kept[1]
        before, _kept = _kept, None
        if before is not None and before[0][0] == os.getpid():
            before[1].shutdown(wait=False)
        made = Executor(access) if access is not None else Executor(max_workers=workers)
        _kept = (key, made)
        return made


def _batch(function: Any) -> Any:
    return _remote.Batch(function, __name__)  # type: ignore[no-untyped-call]


class FalkonBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """The backend that :func:`register` registers.

    ``access``
        The access file of a dispatcher, or a list of several; without one, calls are made on this
        machine. With one, ``n_jobs`` says how many batches are under way.
    ``executor``
        A :class:`falkon.Executor` to use instead, with its options.
    """

    supports_retrieve_callback = True
    supports_sharedmem = False

    def __init__(
        self,
        nesting_level: Optional[int] = None,
        inner_max_num_threads: Optional[int] = None,
        access: Any = None,
        executor: Optional[Executor] = None,
        **options: Any,
    ):
        super().__init__(
            nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads, **options
        )
        self._access = access
        self._given = executor
        self._executor: Optional[Executor] = None
        self._pending: Set[Any] = set()

    @property
    def _is_nested(self) -> bool:
        """Whether it is used within a call, without a dispatcher's name: workers of
        its own would be more than the machine has processors."""
        return self._access is None and self._given is None and bool(self.nesting_level)

    def effective_n_jobs(self, n_jobs: Optional[int]) -> int:
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None or self._is_nested:
            return 1
        if n_jobs < 0:
            executor = self._given
            if executor is None and self._access is not None:
                executor = _executor(self._access, 0)
            slots = (os.cpu_count() or 1) if executor is None else executor.max_workers
            return max(slots + 1 + n_jobs, 1)
        return n_jobs

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        prefer: Any = None,
        require: Any = None,
        **_: Any,
    ) -> int:
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1 and self._access is None and self._given is None:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        self._executor = self._given or _executor(self._access, n_jobs)
        return n_jobs

    def submit(
        self, func: Callable[[], Any], callback: Optional[Callable[[Any], Any]] = None
    ) -> Any:
        if self._executor is None:
            raise RuntimeError("the backend has not been configured")
        executor = self._executor
        if isinstance(func, BatchedCalls) and not executor._large:
            # The batch's parts are arguments, so that large ones travel once.
            _, made_of = func.__reduce__()
            batch = (BatchedCalls, _batch, executor._class, made_of, {})
            future = executor._call(*batch, files=executor._files)
        else:
            future = executor.submit(func)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Any) -> Any:
        return out.result()

    def terminate(self) -> None:
        # Workers are kept for the next one.
        self._executor = None
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        for future in list(self._pending):
            future.cancel()
        self.reset_batch_stats()
        if not ensure_ready:
            self._executor = None


def register(make_default: bool = False) -> None:
    """Lets ``joblib.parallel_config("falkon")`` and ``Parallel(backend="falkon")``
    make calls with :class:`falkon.Executor`; ``make_default`` has all others do
    so as well."""
    register_parallel_backend("falkon", FalkonBackend, make_default=make_default)
