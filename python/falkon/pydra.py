"""Pydra's tasks on Falkon.

>>> from pydra import Submitter
>>> from falkon.pydra import FalkonWorker
>>> with Submitter(plugin=FalkonWorker, access="access.json") as submitter:  # doctest: +SKIP
...     submitter(task)
"""

from typing import Optional

from pydra.engine.workers import WORKERS, ConcurrentFuturesWorker, Worker

from ._access import Access
from ._executor import Executor


class FalkonWorker(ConcurrentFuturesWorker):  # type: ignore[misc]
    """A worker for Pydra that makes calls with :class:`falkon.Executor`.

    ``access``
        The access file of a dispatcher, or a list of several; without one, calls are made on this
        machine. Tasks' cache directories must be where its executors find them.
    ``n_procs``
        Calls made side by side on this machine; without ``access`` only.
    ``executor``
        A :class:`falkon.Executor` to use instead, with its options.
    """

    plugin_name = "falkon"

    def __init__(
        self,
        access: Access = None,
        n_procs: Optional[int] = None,
        executor: Optional[Executor] = None,
    ):
        # The method of its base class starts processes.
        Worker.__init__(self)
        self._given = executor
        self.pool = executor or Executor(access, max_workers=n_procs)
        self.n_procs = n_procs or self.pool.max_workers

    def close(self) -> None:
        if self._given is None:
            self.pool.shutdown()


def register() -> None:
    """Lets ``Submitter(plugin="falkon")`` use :class:`FalkonWorker`."""
    WORKERS[FalkonWorker.plugin_name] = FalkonWorker
