"""Value references: what pickled arguments name in place of values that they do not hold.

A pickle names functions of the module ``falkon_taken``, which each worker has for
itself (worker/references.py) and which give the values there; here they are never called. The
module's name has no dot: workers would import this package first for a module in it,
and need not have it.
"""

import abc
import sys
import threading
import types
from concurrent.futures import CancelledError
from concurrent.futures._base import FINISHED
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ._errors import DependencyError

NAME = "falkon_taken"


def _taken(place: int) -> Any:
    raise RuntimeError("values of other calls are in workers alone")


def _stored(name: str, shared: bool) -> Any:
    raise RuntimeError("objects of calls are read by workers alone")


def _staged(name: str, identity: str, shared: bool) -> Any:
    raise RuntimeError("objects of calls are read by workers alone")


def _file(name: str) -> Any:
    raise RuntimeError("files of calls are where workers are")


def _given(value: Any) -> Any:
    return value


def _define(kind: Any, state: Any) -> Any:
    return kind  # The class is this process's own.


def _module() -> types.ModuleType:
    # Where a call imports this package, the worker's module is there.
    module = sys.modules.get(NAME)
    if module is None:
        module = sys.modules[NAME] = types.ModuleType(NAME)
        for function in (_taken, _given, _stored, _staged, _file, _define):
            name = function.__name__[1:]
            function.__module__ = NAME
            function.__name__ = function.__qualname__ = name
            setattr(module, name, function)
    return module


taken: Callable[[int], Any] = _module().taken
"""The value of another call, in the order in which arguments name them."""
given: Callable[[Any], Any] = _module().given
"""The value of a call that had ended when it was passed on."""
stored: Callable[[str, bool], Any] = _module().stored
"""An object that is too large to travel with a call; calls of a worker may share it."""
staged: Callable[[str, str, bool], Any] = _module().staged
"""An object that is too large, in the directory of the call."""
file: Callable[[str], Any] = _module().file
"""The path of a file that a call reads or writes."""
define: Callable[[Any, Any], Any] = _module().define
"""Gives a class that goes by value a state."""


class Maker(abc.ABC):
    """A session, as far as futures and arguments of its calls need one."""

    access: Optional[str]
    """The access file of its dispatcher, if that is not of this session alone."""
    clusters: Tuple[str, ...]
    """The access files of the dispatchers whose executors make its calls, if these are several."""
    objects: Any
    """Arguments and values that are too large to travel with calls."""

    @abc.abstractmethod
    def cancel(self, future: Any) -> None:
        """Ends a call whose outcome nobody wants any more."""

    @abc.abstractmethod
    def fetch(self, url: str) -> Any:
        """The value that an object in a cache is."""


class _Pickling(threading.local):
    """State of the arguments that this thread pickles: the session whose calls they are
    for, and the places of the futures among them."""

    session: Optional[Maker] = None
    places: Optional[Dict[Any, int]] = None
    uses: Optional["Uses"] = None


pickling = _Pickling()


class Uses:
    """The files and objects that a call uses besides its arguments, noted while this
    thread pickles these."""

    __slots__ = ("stored", "inputs", "outputs", "waits", "_before")

    def __init__(self) -> None:
        self.stored: List[Any] = []
        """Objects (``Stored``), which are to stay as long as the call needs them."""
        self.inputs: List[Any] = []
        """Objects that are brought to where the call is made, as the protocol has them."""
        self.outputs: List[Tuple[Any, Any]] = []
        """Files (``File``) that the call writes, and the objects that these become."""
        self.waits: List[Any] = []
        """Futures of calls that write what this one reads."""

    def __enter__(self) -> "Uses":
        self._before = pickling.uses
        pickling.uses = self
        return self

    def __exit__(self, *raised: Any) -> None:
        pickling.uses = self._before
        self._before = None

    def __bool__(self) -> bool:
        return bool(self.stored or self.inputs or self.outputs)

    def read(self, wanted: Any) -> int:
        """The place of an object among those that the call reads."""
        for place, known in enumerate(self.inputs):
            if known[0] == wanted[0]:
                return place
        self.inputs.append(wanted)
        return len(self.inputs) - 1

    def waits_for_caches(self) -> bool:
        """Whether an object of the call is in no cache yet."""
        return any(stored.waits for stored in self.stored)

    def mark(self) -> Tuple[int, int, int]:
        """How much is noted, for :meth:`undo`."""
        return len(self.stored), len(self.inputs), len(self.waits)

    def undo(self, mark: Tuple[int, int, int]) -> None:
        """Forgets all notes since a mark."""
        del self.stored[mark[0] :], self.inputs[mark[1] :], self.waits[mark[2] :]


def arguments_of() -> Tuple[Optional[Maker], Optional[Uses]]:
    """The session whose arguments this thread pickles, and their uses."""
    if pickling.uses is None and pickling.session is not None:
        pickling.uses = Uses()
    return pickling.session, pickling.uses


def upstream(future: Any) -> Sequence[Any]:
    """The calls that one waits for: those whose values it takes, and those that
    write files that it reads."""
    needs, uses = future._needs or (), future._objects
    return needs if uses is None else (*needs, *uses.waits)


def reference(future: Any) -> Tuple[Any, ...]:
    """The reference to a future in pickled arguments."""
    wanted = pickling.session
    if wanted is None:
        raise TypeError(
            "a future cannot be pickled: pass it as an argument of a call, which is given its value"
        )
    if future._session is wanted:
        places = pickling.places
        if places is None:
            places = pickling.places = {}
        return taken, (places.setdefault(future, len(places)),)
    if not future.done():
        raise ValueError(
            "a future of another executor that is not done cannot be an argument: pass its "
            "result(), or make both calls with one executor"
        )
    if not has_value(future):
        raise failure_of(future)
    stored = wanted.objects.returned(future)
    return stored.__reduce__() if stored else (given, (future._result,))


def has_value(future: Any) -> bool:
    """Whether a future has ended well."""
    return bool(future._state == FINISHED and future._exception is None)


def failure_of(future: Any, cause: Optional[BaseException] = None) -> DependencyError:
    """The error of a call that takes the value of one that failed."""
    cause = cause or future._exception
    if cause is None:
        cause = CancelledError()
        what = "was cancelled"
    elif isinstance(cause, DependencyError) and cause.__cause__ is not None:
        error = DependencyError(cause.args[0])
        error.__cause__ = cause.__cause__
        return error
    else:
        what = "failed: %s: %s" % (type(cause).__name__, cause)
    name = future._name or "a call"
    error = DependencyError("%s, whose value this call depends on, %s" % (name, what))
    error.__cause__ = cause
    return error
