"""Cubed's arrays on Falkon.

>>> import cubed
>>> from falkon.cubed import FalkonExecutor
>>> spec = cubed.Spec(work_dir="shared", executor=FalkonExecutor("access.json"))  # doctest: +SKIP
"""

import asyncio
from concurrent.futures import Future
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from cubed.runtime.asyncio import async_map_dag
from cubed.runtime.backup import use_backups_default
from cubed.runtime.executors.local import SingleThreadedExecutor, run_func_processes
from cubed.runtime.types import Callback, DagExecutor
from cubed.runtime.utils import asyncio_run

from ._access import Access
from ._executor import Executor

RETRIES = 2
"""Options as with Cubed's other executors."""


class FalkonExecutor(DagExecutor):  # type: ignore[misc]
    """An executor for Cubed that makes calls with :class:`falkon.Executor`.

    ``access``
        The access file of a dispatcher, or a list of several; without one, calls are made on this
        machine. The spec's ``work_dir`` must be where its executors find it.
    ``max_workers``
        As with :class:`falkon.Executor`; without ``access`` only.
    ``executor``
        A :class:`falkon.Executor` to use instead, with its options.
    ``options``
        Cubed's own: ``retries``, ``batch_size``, ``use_backups``,
        ``compute_arrays_in_parallel``.
    """

    def __init__(
        self,
        access: Access = None,
        max_workers: Optional[int] = None,
        executor: Optional[Executor] = None,
        **options: Any,
    ):
        super().__init__(**options)
        self._access = access
        self._max_workers = max_workers
        self._given = executor
        # Kept, so that the next computation finds workers that have loaded what
        # they need.
        self._own: Optional[Executor] = None

    def __reduce__(self) -> Any:
        # Calls are passed their array's spec, with this in it, which workers that do
        # not have this package must read. What they compute themselves they compute
        # in one thread.
        return SingleThreadedExecutor, ()

    def __copy__(self) -> "FalkonExecutor":
        return self

    def __deepcopy__(self, memo: Dict[int, Any]) -> "FalkonExecutor":
        return self

    @property
    def name(self) -> str:
        return "falkon"

    def _executor(self) -> Executor:
        own = self._own
        if self._given is not None:
            return self._given
        if own is None or own._shared._session.error is not None:
            own = self._own = Executor(self._access, max_workers=self._max_workers)
        return own

    def execute_dag(
        self,
        dag: Any,
        callbacks: Optional[Sequence[Callback]] = None,
        spec: Any = None,
        compute_id: Optional[str] = None,
        **options: Any,
    ) -> None:
        options = {**self.kwargs, **options}
        if "use_backups" not in options and spec is not None:
            options["use_backups"] = use_backups_default(spec)
        calls = _Calls(self._executor().options(retries=options.pop("retries", RETRIES)))
        try:
            asyncio_run(
                async_map_dag(
                    calls.submit, dag=dag, callbacks=callbacks, compute_id=compute_id, **options
                )
            )
        finally:
            calls.cancel()


class _Calls:
    """The calls of one computation."""

    def __init__(self, executor: Executor):
        self._executor = executor
        self._pending: Set["Future[Any]"] = set()

    def submit(
        self, inputs: Sequence[Any], **common: Any
    ) -> List[Tuple[Any, "asyncio.Future[Any]"]]:
        """Submits a call for each input of an operation."""
        # Arguments that all have in common travel once if they are large.
        shared: Dict[str, Any] = {
            name: self._executor.put(value) for name, value in common.items()
        }
        submitted = []
        for one in inputs:
            future = self._executor.submit(run_func_processes, one, **shared)
            self._pending.add(future)
            future.add_done_callback(self._pending.discard)
            submitted.append((one, asyncio.wrap_future(future)))
        return submitted

    def cancel(self) -> None:
        """Cancels those that have not ended: one of them has failed."""
        for future in list(self._pending):
            future.cancel()
