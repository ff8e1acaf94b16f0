"""Calls that take what other calls return.

A future among the arguments of a call stands for its value: the dispatcher keeps
the call back until that is there, and puts it in front of the arguments
(docs/workers.md). The client waits for nothing.
"""

import struct
import threading
from concurrent.futures import CancelledError
from concurrent.futures._base import FINISHED
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

from ._calls import PICKLED, dumps
from ._errors import DependencyError
from ._taken import given, taken

if TYPE_CHECKING:
    from ._futures import Future
    from ._objects import Objects, Stored
    from ._session import Session
    from .worker import Pickled

GIVEN = b"g"
"""The first byte of payloads with values in front that the client put there."""


class _Pickling(threading.local):
    """Of the arguments that this thread pickles: whose calls they are for, and
    the places of the futures among them."""

    session: Optional["Session"] = None
    places: Optional[Dict["Future[Any]", int]] = None
    uses: Optional[List["Stored"]] = None


_pickling = _Pickling()


class Uses:
    """Notes the objects that this thread's pickles refer to."""

    def __init__(self) -> None:
        self.all: List["Stored"] = []

    def __enter__(self) -> "Uses":
        self._before = _pickling.uses
        _pickling.uses = self.all
        return self

    def __exit__(self, *raised: Any) -> None:
        _pickling.uses = self._before


def used(stored: "Stored") -> None:
    """An object is part of the pickle that is being made."""
    if _pickling.uses is None:
        raise TypeError("an object of calls can only be part of their arguments")
    _pickling.uses.append(stored)


def session_of_arguments() -> Optional["Session"]:
    """Whose calls the arguments are for that are being pickled."""
    return _pickling.session


def reference(future: "Future[Any]") -> Tuple[Any, ...]:
    """What stands for a future in pickled arguments."""
    wanted = _pickling.session
    if wanted is None:
        raise TypeError(
            "a future cannot be pickled: pass it as an argument of a call, which is given its value"
        )
    if future._session is wanted:
        places = _pickling.places
        if places is None:
            places = _pickling.places = {}
        return taken, (places.setdefault(future, len(places)),)
    if not future.done():
        raise ValueError(
            "a future of another executor that is not done cannot be an argument: pass its "
            "result(), or make both calls with one executor"
        )
    if not has_value(future):
        raise failure_of(future)
    stored = wanted.objects and wanted.objects.returned(future)
    return stored.__reduce__() if stored else (given, (future._result,))


def pickled(
    session: "Session", value: Any, into: Optional["Pickled"] = None
) -> Tuple[bytes, Optional[Tuple["Future[Any]", ...]]]:
    """Arguments as bytes, and the futures whose values they take."""
    before = _pickling.session, _pickling.places
    _pickling.session, _pickling.places = session, None
    try:
        data = dumps(value, into)
        places = _pickling.places
        return data, None if places is None else tuple(places)
    finally:
        _pickling.session, _pickling.places = before


def has_value(future: "Future[Any]") -> bool:
    """Whether a future has ended well."""
    return future._state == FINISHED and future._exception is None


def failure_of(
    future: "Future[Any]", cause: Optional[BaseException] = None
) -> DependencyError:
    """What becomes of a call that takes the value of one that failed."""
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


def with_given(
    payload: bytes,
    values: Sequence[Tuple[int, "Future[Any]"]],
    into: "Future[Any]",
    objects: Optional["Objects"],
) -> bytes:
    """The payload of the call of ``into`` with values in front, each with its
    place among all that it takes: those of calls that the dispatcher need not
    know any more."""
    heads: List[int] = []
    parts: List[bytes] = []
    for place, future in values:
        stored = objects and objects.instead_of(future)
        if stored:
            into._objects = (*(into._objects or ()), stored)
            data = stored.reference()
        else:
            value = future._result
            data = b"" if value is None else PICKLED + dumps(value)
        heads += (place, len(data))
        parts.append(data)
    head = struct.pack("<%dI" % (1 + len(heads)), len(values), *heads)
    return b"".join((GIVEN, head, *parts, payload))
