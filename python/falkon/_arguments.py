"""The arguments of calls: what is pickled, and which of them are objects."""

import operator
import struct
from concurrent.futures import Future as StandardFuture
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

from ._dataflow import pickled, pickled_with_uses
from ._errors import FalkonError, NoRoom
from ._futures import FINISHED, Future
from ._kinds import Kind
from ._objects import LARGE_BYTES, NEVER_LARGE, PAYLOAD_BYTES, Objects, pickled_aside
from ._references import Maker, Uses, arguments_of, given, has_value
from ._stored import Stored

if TYPE_CHECKING:
    from .worker.objects import Pickled

BUFFERS_MAX = 16
"""Buffers of one value that are objects of their own, so that what else has them
has them in common."""
CONTAINER_ITEMS_MAX = 256
"""Items of lists, tuples and mappings that are looked at one by one for large ones."""
CONTAINER_DEPTH_MAX = 4


class Shared(Future[Any]):
    """A value that workers are to have once each: :meth:`Executor.put`."""

    __slots__ = ("_stored",)

    def __init__(self, session: Maker, value: Any):
        super().__init__()
        self._stored: Optional[Tuple[Maker, Stored]] = None
        made = pickled_aside(value)
        if made.is_large():  # type: ignore[no-untyped-call]
            try:
                self._stored = session, session.objects.store(made, True)
            except FalkonError:
                pass  # The value travels as it is, when there are executors.
        self._end(FINISHED, value, None)

    def __reduce__(self) -> Any:
        if self._stored is not None and self._stored[0] is arguments_of()[0]:
            return self._stored[1].__reduce__()
        return given, (self._result,)


Arguments = Tuple[bytes, Optional[Tuple[Future[Any], ...]], Optional[Uses]]


def arguments(
    session: Maker,
    args: Tuple[Any, ...],
    kwargs: Dict[str, Any],
    *,
    chunk: bool = False,
    files: Tuple[Sequence[Any], Sequence[Any]] = ((), ()),
) -> Arguments:
    """The arguments of a call as a pickle, the futures whose values they take, and
    the objects that it uses. Of a ``chunk``, the only argument is a list of the
    arguments of many. ``files`` are those that the call reads and writes besides."""
    if not chunk and not (files[0] or files[1] or _has_large(args, kwargs)):
        found = pickled_with_uses(session, (args, kwargs))
        if len(found[0]) <= LARGE_BYTES:
            return found
    with Uses() as uses:
        if files[0] or files[1]:
            from ._files import writes

            writes(uses, *files, session)
        before = uses.mark()
        split = _Split(session, session.objects, uses)
        if not chunk:
            args, kwargs = split.of_call(args, kwargs)
        data, needs = pickled(session, (args, kwargs))
        if chunk and len(data) > LARGE_BYTES:
            uses.undo(before)
            args, kwargs = split.of_chunk(args)
            data, needs = pickled(session, (args, kwargs))
        if len(data) > LARGE_BYTES:
            try:
                return _aside(session, (args, kwargs), uses, before)
            except NoRoom:
                if len(data) > PAYLOAD_BYTES:
                    raise
        return data, needs, uses


def _aside(
    session: Maker, value: Any, uses: Uses, before: Tuple[int, int, int]
) -> Arguments:
    """Arguments whose pickle is large although no part of it is that could be an
    object: the pickle is one, and what it refers to is found with the call."""
    needs: Optional[Tuple[Future[Any], ...]] = None

    def dump(value: Any, into: "Pickled") -> bytes:
        nonlocal needs
        uses.undo(before)
        data, needs = pickled(session, value, into)
        return data

    joined = session.objects.join(pickled_aside(value, dump))
    return pickled(session, joined)[0], needs, uses


def files_of(
    function: Callable[..., Any], named: Dict[str, Any]
) -> Tuple[Sequence[Any], Sequence[Any]]:
    """The files that a call of an app reads and writes, by its arguments
    ``inputs`` and ``outputs``; a function that does not take these is not passed
    them."""
    if "inputs" not in named and "outputs" not in named:
        return (), ()
    import inspect

    from ._files import File, FileFuture

    parameters = inspect.signature(function).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    declared: List[Sequence[Any]] = []
    for name in ("inputs", "outputs"):
        if name not in parameters and not takes_all:
            declared.append(named.pop(name, ()))
            continue
        # Another value of a parameter of this name is for the function alone.
        given = named.get(name, ())
        given = given if isinstance(given, (list, tuple)) else ()
        declared.append([one for one in given if isinstance(one, (File, FileFuture))])
    return declared[0], declared[1]


def use(uses: Uses, session: Maker, future: Future[Any], kind: Kind) -> Kind:
    """The call of a future uses objects. Gives its kind."""
    future._objects = uses
    if uses.outputs:
        from ._files import bind

        bind(uses, session, future)
    return kind.with_data() if uses.inputs or uses.outputs else kind


def declared(calls: Sequence[Tuple[Any, bytes, Future[Any]]]) -> List[Any]:
    """The data objects of calls, as a submission lists them."""
    objects: List[Any] = []
    numbers: Dict[bytes, int] = {}
    lists: Tuple[List[int], List[int], List[int], List[int]] = ([], [], [], [])
    inputs, input_ends, outputs, output_ends = lists
    for _, _, future in calls:
        uses = future._objects  # Another thread may cancel it.
        read = uses.inputs if uses else ()
        written = [made for _, made in uses.outputs] if uses else ()
        for items, some in ((inputs, read), (outputs, written)):
            for one in some:
                number = numbers.setdefault(one[0], len(objects))
                if number == len(objects):
                    objects.append(one)
                items.append(number)
        input_ends.append(len(inputs))
        output_ends.append(len(outputs))
    columns = [struct.pack("<%dI" % len(column), *column) for column in lists]
    return [objects, [1, columns[0], columns[1]], [1, columns[2], columns[3]]]


def _has_large(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
    """Whether an argument is known to be large without a pickle of it."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind in NEVER_LARGE or kind is list or kind is tuple or kind is dict:
            continue
        if kind is bytes or kind is bytearray or kind is str:
            if len(value) > LARGE_BYTES:
                return True
        elif kind.__module__ == "numpy" and getattr(value, "nbytes", 0) > LARGE_BYTES:
            return True
    return False


class _Split:
    """Takes large arguments out of a call."""

    def __init__(self, session: Maker, objects: Objects, uses: Uses):
        self._session = session
        self._objects = objects
        self._uses = uses
        self._done: Dict[int, Any] = {}

    def of_call(
        self, args: Tuple[Any, ...], kwargs: Dict[str, Any]
    ) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
        named = {name: self.replaced(value) for name, value in kwargs.items()}
        return tuple(map(self.replaced, args)), named

    def of_chunk(self, args: Tuple[Any, ...]) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
        *before, calls = args
        return (*before, [tuple(map(self.replaced, one)) for one in calls]), {}

    def replaced(self, value: Any, depth: int = 0) -> Any:
        if type(value) in NEVER_LARGE or isinstance(value, Stored):
            return value
        if isinstance(value, StandardFuture):
            if isinstance(value, Shared) or not isinstance(value, Future):
                return value
            known = has_value(value)
            return known and self._objects.instead_of(value) or value
        key = id(value)
        if key not in self._done:
            self._done[key] = self._replacement(value, depth)
        return self._done[key]

    def _items(self, value: Any, depth: int) -> Any:
        """A container whose large items are replaced; itself if there are none."""
        kind = type(value)
        if depth >= CONTAINER_DEPTH_MAX or len(value) > CONTAINER_ITEMS_MAX:
            return value
        if kind is dict:
            named = {name: self.replaced(item, depth + 1) for name, item in value.items()}
            return named if any(named[name] is not value[name] for name in value) else value
        items = [self.replaced(item, depth + 1) for item in value]
        return kind(items) if any(map(operator.is_not, items, value)) else value

    def _replacement(self, value: Any, depth: int) -> Any:
        found = self._objects.of_value(value)
        if found is not None:
            return found
        if type(value) in (list, tuple, dict):
            items = self._items(value, depth)
            if items is not value:
                return items
        before = self._uses.mark()
        takes: List[Any] = []

        def dump(value: Any, into: "Pickled") -> bytes:
            data, needs = pickled(self._session, value, into)
            takes.extend(needs or ())
            return data

        made = pickled_aside(value, dump)
        refers = self._uses.mark() != before
        self._uses.undo(before)
        # An argument that takes values of calls is another object for each call.
        if takes or refers or not made.is_large():
            return value
        fixed = type(value) in (bytes, str)
        try:
            if 0 < len(made.buffers) <= BUFFERS_MAX and not fixed:
                return self._objects.join(made)
            return self._objects.store(made, fixed, value if fixed else None)
        except NoRoom:
            if made.length() > PAYLOAD_BYTES:  # type: ignore[no-untyped-call]
                raise
            return value
