"""Kinds of calls, and calls grouped by kind as a submission has them."""

import copy
from bisect import bisect_left
from typing import Any, Dict, List, Optional, Sequence, Tuple

import msgspec

from ._futures import Future
from ._references import upstream
from ._stored import Stored

_encode = msgspec.msgpack.Encoder().encode

Call = Tuple["Kind", bytes, Future[Any]]
"""The function with its options, the arguments, and the outcome."""


class Kind:
    """A function and options that calls have in common, as the protocol has them."""

    __slots__ = ("name", "template", "task_class", "has_data", "before", "_with_data")

    def __init__(
        self,
        name: str,
        code: bytes,
        task_class: List[Any],
        environment: Sequence[Tuple[str, str]] = (),
    ):
        self.name = name
        # Whether calls of this kind read or write data objects.
        self.has_data = False
        self._with_data: Optional["Kind"] = None
        # Objects that its calls are passed before their arguments: too large for code.
        self.before: Tuple[Stored, ...] = ()
        function = ["python", name.encode(), code]
        env = [[name.encode(), value.encode()] for name, value in environment]
        self.template = _encode([2, [[], env, None, None, [], [], None, [function, b""]]])
        self.task_class = task_class

    def with_data(self) -> "Kind":
        """The same, for calls that read or write data objects."""
        if self.has_data:
            return self
        if self._with_data is None:
            other = copy.copy(self)
            other.has_data = True
            self._with_data = other
        return self._with_data


def with_data(kind: Kind, future: Future[Any]) -> Kind:
    """The kind of a call that may have come to read objects."""
    uses = future._objects
    return kind.with_data() if uses and uses.inputs else kind


class Groups:
    """Calls in the order in which they are submitted: all of a kind together,
    but none before a call whose value it takes. Until they have numbers, those of
    the first group have -1 for one, of the second -2, and so on."""

    __slots__ = ("all", "first", "_of_kind")

    def __init__(self) -> None:
        self.all: List[Tuple[Kind, List[Call]]] = []
        self.first: Dict[Kind, Tuple[int, List[Call]]] = {}
        """The first group of each kind, with the number that stands for it."""
        self._of_kind: Dict[Kind, List[int]] = {}

    def new(self, kind: Kind) -> Tuple[int, List[Call]]:
        """Begins a group."""
        calls: List[Call] = []
        self._of_kind.setdefault(kind, []).append(len(self.all))
        self.all.append((kind, calls))
        return self.first.setdefault(kind, (-len(self.all), calls))

    def add(self, call: Call) -> None:
        """Adds a call to the first group of its kind that does not come before
        those whose values it takes."""
        kind, _, future = call
        least = 0
        for need in upstream(future):
            if need._task is not None and need._task < 0:
                least = max(least, -1 - need._task)
        places = self._of_kind.get(kind, ())
        at = bisect_left(places, least) if least else 0
        if at == len(places):
            self.new(kind)
            place = len(self.all) - 1
        else:
            place = places[at]
        future._task = -1 - place
        self.all[place][1].append(call)
