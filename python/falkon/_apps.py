"""Apps: functions and commands whose calls run in parallel, as their arguments
become available."""

import functools
import os
import threading
from typing import (
    Any,
    Callable,
    Dict,
    Generic,
    Iterable,
    List,
    Optional,
    ParamSpec,
    Tuple,
    TypeVar,
    Union,
    overload,
)

from . import _remote
from ._executor import Executor
from ._futures import CANCELLED_AND_NOTIFIED, FINISHED, Future
from ._objects import files_of
from ._options import task_class

P = ParamSpec("P")
T = TypeVar("T")

_default: Optional[Executor] = None
_default_lock = threading.Lock()
_run: Any = None
"""The run that is open (_run.py)."""


def use(executor: Optional[Executor]) -> None:
    """Has apps without an executor of their own use this one.

    Without it, or after ``use(None)``, the first call of an app starts what it
    needs on this machine; that ends with the interpreter, when all calls have
    ended.
    """
    global _default
    with _default_lock:
        _default = executor


def default_executor() -> Executor:
    """The executor that apps without one of their own use."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Executor()
        return _default


def _forked() -> None:
    global _default, _default_lock, _run
    _default, _default_lock, _run = None, threading.Lock(), None


os.register_at_fork(after_in_child=_forked)


class App(Generic[P, T]):
    """A function whose calls are made elsewhere, and give a future at once.

    ``app.function`` is the function itself, to be called here.
    """

    _wrap: Optional[Callable[[Any], Any]] = None

    def __init__(
        self,
        function: Callable[..., Any],
        executor: Optional[Executor],
        options: Dict[str, Any],
        cache: Optional[bool] = None,
    ):
        if not callable(function):
            raise TypeError("%r is no function: it cannot be an app" % (function,))
        self.function = function
        self._executor = executor
        self._cache = cache
        self._class = task_class(options)
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._called(args, kwargs)

    def _called(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Future[Any]:
        """A call with what the function is given elsewhere."""
        run = _run
        executor = self._executor
        if executor is None:
            executor = (_default or default_executor()) if run is None else run.executor
        files = files_of(self.function, kwargs)
        if run is None:
            if not self._cache:
                call = (self.function, self._wrap, self._class, args, kwargs)
                return executor._call(*call, files=files)
            from ._run import outside as run
        future: Future[Any] = run._call(self, executor, args, kwargs, files)
        return future

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        # As functions do: the app of a class is a method of its objects.
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self) -> Any:
        # By the name that it has in its module, as functions; or by value.
        return _restore_app, (type(self), self.function)


def _restore_app(kind: Any, function: Any) -> Any:
    return function if isinstance(function, App) else kind(function, None, {})


class ShellApp(App[P, int]):
    """A function that returns a command, which is run where the function is
    called."""

    _wrap = _remote.Shell

    def __init__(
        self,
        function: Callable[..., Any],
        executor: Optional[Executor],
        options: Dict[str, Any],
        cache: Optional[bool] = None,
    ):
        super().__init__(function, executor, options, cache)
        import inspect  # It takes as long as much of the rest.

        parameters = inspect.signature(function).parameters
        takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        self._streams = tuple(name for name in _remote.STREAMS if name in parameters or takes_all)
        self._places = {
            name: place
            for place, (name, one) in enumerate(parameters.items())
            if name in _remote.STREAMS and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        }
        self._defaults = {
            name: parameters[name].default
            for name in _remote.STREAMS
            if name in parameters and parameters[name].default not in (None, inspect.Parameter.empty)
        }

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Future[int]:
        files: Dict[str, Any] = dict(self._defaults)
        for name, place in self._places.items():
            if place < len(args):
                files[name] = args[place]
        for name in _remote.STREAMS:
            if name in kwargs:
                files[name] = kwargs[name] if name in self._streams else kwargs.pop(name)
        return self._called((files, *args), kwargs)


@overload
def python_app(function: Callable[P, T], /) -> App[P, T]: ...
@overload
def python_app(
    *, executor: Optional[Executor] = None, cache: Optional[bool] = None, **options: Any
) -> Callable[[Callable[P, T]], App[P, T]]: ...
def python_app(
    function: Optional[Callable[..., Any]] = None,
    /,
    *,
    executor: Optional[Executor] = None,
    cache: Optional[bool] = None,
    **options: Any,
) -> Any:
    """Makes an app of a function: its calls run in parallel, and give futures.

    Futures among the arguments, also inside of lists and other objects, stand for
    their values, for which nobody waits here.

    >>> @python_app
    ... def double(value):
    ...     return 2 * value
    >>> double(double(1)).result()
    4

    A call with ``outputs=[File(…), …]`` writes these files, and one with
    ``inputs=[…]`` reads them besides those among its arguments; the function is
    passed their paths if it has parameters of these names. The future's ``outputs``
    stand for the files.

    ``executor`` makes its calls; without it, that of the :func:`run`, or of
    :func:`use`. With ``cache=True`` calls with equal arguments are one call: as
    long as the run lasts, or the executor if there is none, and the files that it
    names stay as they are. With ``cache=False`` a run that is resumed makes all
    calls again. The other options are those of :meth:`Executor.options`.
    """
    if function is not None:
        return App(function, executor, options, cache)
    return lambda function: App(function, executor, options, cache)


@overload
def shell_app(function: Callable[P, Any], /) -> ShellApp[P]: ...
@overload
def shell_app(
    *, executor: Optional[Executor] = None, cache: Optional[bool] = None, **options: Any
) -> Callable[[Callable[P, Any]], ShellApp[P]]: ...
def shell_app(
    function: Optional[Callable[..., Any]] = None,
    /,
    *,
    executor: Optional[Executor] = None,
    cache: Optional[bool] = None,
    **options: Any,
) -> Any:
    """Makes an app of a function that returns a command: a text for the shell, or
    a list of a program and its arguments.

    The value is the exit status, 0; a command that ends with another, or by a
    signal, raises :class:`subprocess.CalledProcessError`. What it writes comes out
    as with other calls, or goes where the call's ``stdout`` and ``stderr`` say:
    files that are made anew, or ``(file, "a")`` to append; ``stdin`` is a file that
    it reads. Options as for :func:`python_app`.

    >>> @shell_app
    ... def count(file):
    ...     return "wc -l < %s" % file
    >>> count("a.txt", stdout="a.lines").result()
    0
    """
    if function is not None:
        return ShellApp(function, executor, options, cache)
    return lambda function: ShellApp(function, executor, options, cache)


class Gathered(Future[List[Any]]):
    """The values of several futures, once all are there."""

    __slots__ = ("_futures", "_left")

    def __init__(self, futures: List[Any]):
        super().__init__()
        self._futures = futures
        self._left = len(futures)
        lock = threading.Lock()

        def ended(future: Any) -> None:
            with lock:
                self._left -= 1
                left = self._left
            if future.cancelled() or future.exception() is not None:
                self._settle()
            elif left == 0:
                self._settle()

        if not futures:
            self._end(FINISHED, [], None)
        for future in futures:
            future.add_done_callback(ended)

    def _settle(self) -> None:
        values = []
        for future in self._futures:
            if not future.done():
                continue
            if future.cancelled():
                self._end(CANCELLED_AND_NOTIFIED, None, None)
                return
            if future.exception() is not None:
                self._end(FINISHED, None, future.exception())
                return
            values.append(future.result())
        if len(values) == len(self._futures):
            self._end(FINISHED, values, None)

    def cancel(self) -> bool:
        """Cancels all of them that have not ended."""
        if self.done():
            return self.cancelled()
        for future in self._futures:
            future.cancel()
        self._end(CANCELLED_AND_NOTIFIED, None, None)
        return self.cancelled()

    def __reduce__(self) -> Any:
        # As an argument it stands for the list of their values.
        return list, (self._futures,)


def gather(*futures: Union[Any, Iterable[Any]]) -> Future[List[Any]]:
    """A future of the values of several, in their order: of ``gather(a, b, …)`` or
    of a list of futures.

    It ends when all have ended well, or as soon as one of them fails or is
    cancelled. As an argument of a call it stands for the list of their values.
    """
    if len(futures) == 1 and not hasattr(futures[0], "add_done_callback"):
        return Gathered(list(futures[0]))
    return Gathered(list(futures))
