"""executorlib's interface on Falkon.

>>> from falkon.executorlib import FalkonExecutor
>>> with FalkonExecutor("access.json") as executor:  # doctest: +SKIP
...     executor.submit(sum, [1, 2], resource_dict={"threads_per_core": 2})
"""

import operator
import os
from concurrent.futures import Future
from threading import Lock
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from executorlib import BaseExecutor, get_item_from_future

from ._access import Access
from ._executor import Executor

OPTIONS = {
    "threads_per_core": "cpus",
    "gpus_per_core": "gpus",
    "run_time_max": "timeout",
    "priority": "priority",
}
"""Falkon's names of the resources that executorlib names."""

_Part = type(get_item_from_future(Future(), ""))
"""What executorlib makes of a future whose value has several parts."""


class FalkonExecutor(BaseExecutor):  # type: ignore[misc]
    """An executor of executorlib that makes calls with :class:`falkon.Executor`.

    ``access``
        The access file of a dispatcher, or a list of several; without one, calls are made on this
        machine.
    ``max_workers``
        As with :class:`falkon.Executor`; without ``access`` only.
    ``resource_dict``
        What calls have that do not say: ``threads_per_core`` (CPUs), ``gpus_per_core``,
        ``run_time_max`` (seconds), ``priority`` and ``cwd``. Others are refused.
    ``executor``
        A :class:`falkon.Executor` to use instead, with its options.
    """

    def __init__(
        self,
        access: Access = None,
        max_workers: Optional[int] = None,
        resource_dict: Optional[Mapping[str, Any]] = None,
        executor: Optional[Executor] = None,
    ):
        # The method of its base class takes one of executorlib's schedulers.
        self._is_active = True
        self._own = executor is None
        self._executor = executor or Executor(access, max_workers=max_workers)
        self._resources = dict(resource_dict or {})
        self._differing: Dict[Tuple[Tuple[str, Any], ...], Executor] = {}
        self._for(self._resources)

    @property
    def max_workers(self) -> int:
        return self._executor.max_workers

    @property
    def info(self) -> Dict[str, Any]:
        return {"max_workers": self.max_workers, **self._resources}

    @property
    def future_queue(self) -> None:
        """There is none: calls are with the dispatcher as soon as they are submitted."""

    def __len__(self) -> int:
        """The number of calls that have not ended."""
        return self._executor._shared.session().pending()

    def submit(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        resource_dict: Optional[Mapping[str, Any]] = None,
        **kwargs: Any,
    ) -> "Future[Any]":
        if not self._is_active:
            raise RuntimeError("cannot schedule new futures after shutdown")
        resources = {**self._resources, **(resource_dict or {})}
        executor = self._for(resources)
        if resources.get("cwd") is not None:
            fn = _in_folder(fn, os.path.abspath(resources["cwd"]))
        return executor.submit(fn, *self._whole(args), **self._whole(kwargs))

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: Optional[float] = None,
        chunksize: int = 1,
    ) -> Iterator[Any]:
        # A future in place of an iterable stands for one, as in executorlib.
        found = [one.result() if isinstance(one, Future) else one for one in iterables]
        futures = [self.submit(fn, *args) for args in zip(*found)]
        return (future.result(timeout) for future in futures)

    def batched(self, iterable: List["Future[Any]"], n: int) -> List["Future[Any]"]:
        """Futures of lists of ``n`` values each, in the order in which the calls end; the last
        list may be shorter. Those that failed calls leave without values fail."""
        if n < 1:
            raise ValueError("n must be at least one")
        return _Batches(list(iterable), n).futures

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_active = False
        if self._own:
            self._executor.shutdown(wait, cancel_futures=cancel_futures)

    def __exit__(self, *_: Any) -> None:
        self.shutdown()

    def _for(self, resources: Mapping[str, Any]) -> Executor:
        """The executor for calls with these resources."""
        options = {}
        for name, value in resources.items():
            if name == "cores" and value not in (None, 1):
                raise ValueError(
                    "cores=%r is a call in that many processes of MPI, which Falkon does not make: "
                    "threads_per_core reserves CPUs" % (value,)
                )
            if name in OPTIONS and value is not None:
                options[OPTIONS[name]] = value
            elif name not in ("cores", "cwd", *OPTIONS):
                known = ", ".join(("cwd", *OPTIONS))
                raise ValueError("Falkon has no %r in resource_dict: it has %s" % (name, known))
        key = tuple(sorted(options.items()))
        if key not in self._differing:
            executor = self._executor
            self._differing[key] = executor.options(**options) if options else executor
        return self._differing[key]

    def _whole(self, value: Any) -> Any:
        """An argument in which a part of a future is the future of a call that takes it."""
        if isinstance(value, _Part):
            part = object.__getattribute__(value, "__dict__")
            return self._executor.submit(operator.getitem, part["_future"], part["_selector"])
        if type(value) in (list, tuple):
            return type(value)(map(self._whole, value))
        if type(value) is dict:
            return {name: self._whole(item) for name, item in value.items()}
        return value


def _in_folder(fn: Callable[..., Any], folder: str) -> Callable[..., Any]:
    # A function within a function: workers need not have this package.
    def call(*args: Any, **kwargs: Any) -> Any:
        before = os.getcwd()
        os.makedirs(folder, exist_ok=True)
        os.chdir(folder)
        try:
            return fn(*args, **kwargs)
        finally:
            os.chdir(before)

    return call


class _Batches:
    """Values of futures, in lists as they come."""

    def __init__(self, given: List["Future[Any]"], size: int):
        self.futures: List["Future[Any]"] = [Future() for _ in range(0, len(given), size)]
        self._size = size
        self._left = len(given)
        self._full = 0
        self._values: List[Any] = []
        self._failure: Optional[BaseException] = None
        self._lock = Lock()
        for future in given:
            future.add_done_callback(self._ended)

    def _ended(self, future: "Future[Any]") -> None:
        with self._lock:
            self._left -= 1
            try:
                self._values.append(future.result())
            except BaseException as failure:
                self._failure = failure
            if len(self._values) == self._size or (self._values and not self._left):
                self.futures[self._full].set_result(self._values)
                self._values = []
                self._full += 1
            if not self._left:
                for rest in self.futures[self._full :]:
                    rest.set_exception(self._failure)
