"""Parsl's apps on Falkon.

>>> import parsl
>>> from falkon.parsl import FalkonExecutor
>>> parsl.load(parsl.Config(executors=[FalkonExecutor()]))  # doctest: +SKIP
"""

from concurrent.futures import Future
from typing import Any, Callable, Dict, List, Optional, Sequence

from parsl.data_provider.staging import Staging
from parsl.executors.base import ParslExecutor
from parsl.executors.errors import InvalidResourceSpecification
from parsl.monitoring.radios.base import RadioConfig
from parsl.monitoring.radios.filesystem import FilesystemRadio
from parsl.utils import RepresentationMixin

from ._access import Access
from ._executor import Executor

MEBIBYTE = 1 << 20
MINUTE_SECONDS = 60

_SPECIFIED: Dict[str, Callable[[Any], Dict[str, Any]]] = {
    "cores": lambda cores: {"cpus": cores},
    "gpus": lambda gpus: {"gpus": gpus},
    "memory": lambda mebibytes: {"memory": int(mebibytes * MEBIBYTE)},
    "priority": lambda priority: {"priority": int(priority)},
    "running_time_min": lambda minutes: {"runtime_estimate": minutes * MINUTE_SECONDS or None},
    "timeout": lambda seconds: {"timeout": seconds},
    "resources": lambda resources: {"resources": resources},
}
"""From the words of a resource specification to options of calls. ``cores``,
``memory`` (MiB), ``gpus``, ``priority`` and ``running_time_min`` are those of
Parsl's other executors."""


class FalkonExecutor(ParslExecutor, RepresentationMixin):
    """A Parsl executor that makes calls with :class:`falkon.Executor`.

    ``label``
        Its name in Parsl.
    ``access``
        The access file of a dispatcher, or a list of several; without one, calls are made on this
        machine.
    ``max_workers``, ``preload``
        As with :class:`falkon.Executor`; without ``access`` only.
    ``working_dir``, ``storage_access``, ``remote_monitoring_radio``
        As with Parsl's executors: where files are staged to, by what, and how
        monitored calls report.

    A resource specification (``parsl_resource_specification``) may have
    ``cores``, ``memory`` (MiB), ``gpus``, ``priority``, ``running_time_min``
    (minutes that a call is expected to take), ``timeout`` (seconds) and
    ``resources`` (name to count).
    """

    def __init__(
        self,
        label: str = "falkon",
        access: Access = None,
        max_workers: Optional[int] = None,
        preload: Sequence[str] = (),
        working_dir: Optional[str] = None,
        storage_access: Optional[List[Staging]] = None,
        remote_monitoring_radio: Optional[RadioConfig] = None,
    ):
        super().__init__()
        self.label = label
        self.access = access
        self.max_workers = max_workers
        self.preload = preload
        self.working_dir = working_dir
        self.storage_access = storage_access
        self.remote_monitoring_radio = remote_monitoring_radio or FilesystemRadio()
        self._executor: Optional[Executor] = None
        self._with_options: Dict[str, Executor] = {}

    def start(self) -> None:
        self._executor = Executor(self.access, max_workers=self.max_workers, preload=self.preload)

    def submit(
        self,
        func: Callable[..., Any],
        resource_specification: Dict[str, Any],
        *args: Any,
        **kwargs: Any,
    ) -> "Future[Any]":
        executor = self._for(resource_specification) if resource_specification else self._executor
        if executor is None:
            raise RuntimeError("the executor %s has not been started" % self.label)
        return executor.submit(func, *args, **kwargs)

    def _for(self, specification: Dict[str, Any]) -> Optional[Executor]:
        """The executor for calls with these resources."""
        unknown = set(specification) - set(_SPECIFIED)
        if unknown:
            raise InvalidResourceSpecification(
                unknown, "it may have %s" % ", ".join(sorted(_SPECIFIED))
            )
        key = repr(sorted(specification.items()))
        found = self._with_options.get(key)
        if found is None and self._executor is not None:
            options: Dict[str, Any] = {}
            for name, value in specification.items():
                options.update(_SPECIFIED[name](value))
            found = self._with_options[key] = self._executor.options(**options)
        return found

    def shutdown(self) -> None:
        self._with_options.clear()
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
        super().shutdown()
