"""Calls that take what other calls return.

A future among the arguments of a call stands for its value: the dispatcher keeps
the call back until that is there, and puts it in front of the arguments
(docs/workers.md). The client waits for nothing.
"""

import struct
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple

from ._calls import PICKLED, dumps
from ._errors import NoRoom
from ._futures import Future
from ._objects import PAYLOAD_BYTES
from ._references import Maker, Uses, failure_of, has_value, pickling

if TYPE_CHECKING:
    from .worker.objects import Pickled

GIVEN_BYTES_MAX = 2 << 20
"""Values that travel with a call as they are; of more, an object is made."""
FEW_VALUES = 32
"""Values that are known here and are put in front of a call while other calls wait; of
more, or of one that is longer than ``SHORT_VALUE_BYTES``, an object may have to be made."""
SHORT_VALUE_BYTES = GIVEN_BYTES_MAX // FEW_VALUES
GIVEN = b"g"
"""The first byte of payloads with values in front that the client put there."""


def pickled(
    session: Maker, value: Any, into: Optional["Pickled"] = None
) -> Tuple[bytes, Optional[Tuple[Future[Any], ...]]]:
    """Arguments as bytes, and the futures whose values they take."""
    before = pickling.session, pickling.places
    pickling.session, pickling.places = session, None
    try:
        data = dumps(value, into)
        places = pickling.places
        return data, None if places is None else tuple(places)
    finally:
        pickling.session, pickling.places = before


def pickled_with_uses(
    session: Maker, value: Any
) -> Tuple[bytes, Optional[Tuple[Future[Any], ...]], Optional[Uses]]:
    """Pickles as :func:`pickled` does; returns the files and objects that the call uses as well, if
    there are any."""
    before, pickling.uses = pickling.uses, None
    try:
        data, needs = pickled(session, value)
        return data, needs, pickling.uses
    finally:
        pickling.uses = before


def with_given(
    payload: bytes,
    values: Sequence[Tuple[int, Future[Any]]],
    into: Future[Any],
    session: Maker,
) -> bytes:
    """The payload of the call of ``into`` with values in front, each with its
    place among all that it takes: those of calls that the dispatcher need not
    know any more. Those that are large together are one object."""
    objects = session.objects
    parts: List[Any] = []
    for _, future in values:
        stored = objects.instead_of(future)
        if stored is None and not has_value(future):
            raise failure_of(future)  # The call was cancelled, or its value could not be fetched.
        if stored is None and future._result is not None:
            parts.append(PICKLED + dumps(future._result))
        else:
            parts.append(stored or b"")
    length = sum(len(part) for part in parts if isinstance(part, bytes))
    if length > GIVEN_BYTES_MAX:
        try:
            parts = objects.pack(parts)
        except NoRoom:
            if length + len(payload) > PAYLOAD_BYTES:
                raise
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
