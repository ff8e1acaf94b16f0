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
    from ._files import File
    from ._futures import Future
    from ._objects import Objects, Stored
    from ._session import Session
    from .worker import Pickled

GIVEN_BYTES_MAX = 2 << 20
"""Values that travel with a call as they are; of more, an object is made."""
GIVEN = b"g"
"""The first byte of payloads with values in front that the client put there."""


class _Pickling(threading.local):
    """Of the arguments that this thread pickles: whose calls they are for, and
    the places of the futures among them."""

    session: Optional["Session"] = None
    places: Optional[Dict["Future[Any]", int]] = None
    uses: Optional["Uses"] = None


_pickling = _Pickling()


class Uses:
    """What a call has to do with files and objects besides what it is passed;
    noted while this thread pickles its arguments."""

    __slots__ = ("stored", "inputs", "outputs", "waits", "_before")

    def __init__(self) -> None:
        self.stored: List["Stored"] = []
        """Objects, which are to stay as long as the call needs them."""
        self.inputs: List[Any] = []
        """What is brought to where it is made, as the protocol has it."""
        self.outputs: List[Tuple["File", Any]] = []
        """What it writes."""
        self.waits: List["Future[Any]"] = []
        """Calls that write what it reads."""

    def __enter__(self) -> "Uses":
        self._before = _pickling.uses
        _pickling.uses = self
        return self

    def __exit__(self, *raised: Any) -> None:
        _pickling.uses = self._before
        self._before = None

    def __bool__(self) -> bool:
        return bool(self.stored or self.inputs or self.outputs)

    def read(self, wanted: Any) -> int:
        """The place of an object among what the call reads."""
        for place, known in enumerate(self.inputs):
            if known[0] == wanted[0]:
                return place
        self.inputs.append(wanted)
        return len(self.inputs) - 1

    def waits_for_caches(self) -> bool:
        """Whether an object of it is in no cache yet."""
        return any(stored.waits for stored in self.stored)

    def mark(self) -> Tuple[int, int, int]:
        """How much is noted."""
        return len(self.stored), len(self.inputs), len(self.waits)

    def undo(self, mark: Tuple[int, int, int]) -> None:
        """Forgets what was noted since."""
        del self.stored[mark[0] :], self.inputs[mark[1] :], self.waits[mark[2] :]


def arguments_of() -> Tuple[Optional["Session"], Optional[Uses]]:
    """Whose calls the arguments are for that this thread pickles, and what they
    use."""
    if _pickling.uses is None and _pickling.session is not None:
        _pickling.uses = Uses()
    return _pickling.session, _pickling.uses


def upstream(future: "Future[Any]") -> Sequence["Future[Any]"]:
    """The calls that one waits for: those whose values it takes, and those that
    write what it reads."""
    needs, uses = future._needs or (), future._objects
    return needs if uses is None else (*needs, *uses.waits)


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
    stored = wanted.objects.returned(future)
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


def pickled_with_uses(
    session: "Session", value: Any
) -> Tuple[bytes, Optional[Tuple["Future[Any]", ...]], Optional[Uses]]:
    """As :func:`pickled`, and what else the call uses, which is noted if there is
    anything."""
    before, _pickling.uses = _pickling.uses, None
    try:
        data, needs = pickled(session, value)
        return data, needs, _pickling.uses
    finally:
        _pickling.uses = before


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
    session: "Session",
) -> bytes:
    """The payload of the call of ``into`` with values in front, each with its
    place among all that it takes: those of calls that the dispatcher need not
    know any more. Those that are large together are one object."""
    objects = session.objects
    parts: List[Any] = []
    for _, future in values:
        stored = objects.instead_of(future)
        if stored is None and not has_value(future):
            raise failure_of(future)  # It was cancelled, or its value could not be fetched.
        if stored is None and future._result is not None:
            parts.append(PICKLED + dumps(future._result))
        else:
            parts.append(stored or b"")
    if sum(len(part) for part in parts if isinstance(part, bytes)) > GIVEN_BYTES_MAX:
        parts = objects.pack(parts)
    uses = into._objects or Uses()
    with uses:
        for place, part in enumerate(parts):
            if not isinstance(part, bytes):
                parts[place] = PICKLED + pickled(session, part)[0]
    if uses:
        into._objects = uses
    heads: List[int] = []
    for (place, _), part in zip(values, parts):
        heads += (place, len(part))
    head = struct.pack("<%dI" % (1 + len(heads)), len(values), *heads)
    return b"".join((GIVEN, head, *parts, payload))


def places_given(payload: bytes) -> Sequence[int]:
    """The places of the values that the client put in front of a payload."""
    return _heads(payload)[::2] if payload[:1] == GIVEN else ()


def without_given(payload: bytes) -> bytes:
    """A payload without the values that the client put in front."""
    if payload[:1] != GIVEN:
        return payload
    heads = _heads(payload)
    return payload[5 + 4 * len(heads) + sum(heads[1::2]) :]


def _heads(payload: bytes) -> Tuple[int, ...]:
    (count,) = struct.unpack_from("<I", payload, 1)
    return struct.unpack_from("<%dI" % (2 * count), payload, 5)
