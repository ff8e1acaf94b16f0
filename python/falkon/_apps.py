"""Apps: functions and commands whose calls run in parallel, as their arguments
become available."""

import functools
from typing import (
    Any,
    Callable,
    Dict,
    Generic,
    Optional,
    ParamSpec,
    Tuple,
    TypeVar,
    overload,
)

from . import _calling, _remote
from ._arguments import files_of
from ._calling import InPlace, default_executor
from ._executor import Executor
from ._futures import Future
from ._options import task_class

P = ParamSpec("P")
T = TypeVar("T")


class App(InPlace, Generic[P, T]):
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
        run = _calling.run
        executor = self._executor
        if executor is None:
            executor = default_executor() if run is None else run.executor
        files = files_of(self.function, kwargs)
        if run is None:
            if not self._cache:
                call = (self.function, self._wrap, self._class, args, kwargs)
                return executor._call(*call, files=files)
            from ._run import outside as run
        future: Future[Any] = run._call(self, executor, args, kwargs, files)
        return future

    def _named_streams(self, args: Tuple[Any, ...]) -> Dict[str, Any]:
        """The files that arguments name for the streams of a command."""
        return {}

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        # The app of a class is a method of its objects, as a function is.
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
        import inspect  # Its import takes as long as much of the rest.

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

    def _named_streams(self, args: Tuple[Any, ...]) -> Dict[str, Any]:
        files: Dict[str, Any] = args[0]
        return files


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
