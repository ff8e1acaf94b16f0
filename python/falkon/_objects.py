"""Arguments and values that are too large to travel with calls.

Each becomes an object: a file in a folder that workers of this machine read and
write too (docs/workers.md). One that was put there is not put there again as long
as it is known, and goes when no call needs it any more.
"""

import functools
import itertools
import operator
import os
import pickle
import struct
import threading
import time
import weakref
from collections import OrderedDict
from concurrent.futures import Future as StandardFuture
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    List,
    Optional,
    Sequence,
    Tuple,
)

from . import _dataflow
from ._caches import Caches, no_room
from ._calls import PICKLED, dumps
from ._classes import Unpickler
from ._dataflow import pickled, pickled_with_uses
from ._errors import FalkonError, NoRoom
from ._futures import FINISHED, Future
from ._program import new_folder, overflow_of
from ._taken import given, staged, stored

if TYPE_CHECKING:
    from ._large import Large
    from ._session import Kind, Session
    from .worker import Pickled

LARGE_BYTES = 1 << 20
"""Arguments whose pickle is longer are objects, as values are (worker.py)."""
RECENT_BYTES = 256 << 20
"""Objects that no call needs are kept for the next calls up to this."""
MAKING_LOCKS = 16
PIECES, PIECE_BYTES = 64, 1024
"""Of each long part of a content, so many pieces tell which file may have it."""
PAYLOAD_BYTES = (16 << 20) - 4096
"""The longest arguments that travel with a call."""

_NAMED = b"o"
"""The first byte of values that are the name of an object."""
_IN_CACHE = b"c"
"""The first byte of values that are objects in caches."""
_NEVER_LARGE = frozenset((bool, int, float, complex, type(None)))
BUFFERS_MAX = 16
"""Buffers of one value that are objects of their own, so that what else has them
has them in common."""
CONTAINER_ITEMS_MAX = 256
"""Items of lists, tuples and mappings that are looked at one by one for large ones."""
CONTAINER_DEPTH_MAX = 4


def _pickled_aside(value: Any, dump: Callable[..., bytes] = dumps) -> "Pickled":
    """A pickle of a value, and beside it large buffers."""
    # Loaded when there is first anything large: what makes objects is the same
    # here as in workers.
    from .worker import Pickled

    return Pickled(value, dump)  # type: ignore[no-untyped-call]


def _digest(made: "Pickled", shared: bool, of_pieces: bool) -> bytes:
    """A hash of a pickle and its buffers, or ``of_pieces`` of the long ones."""
    import hashlib

    content = hashlib.sha256(b"shared" if shared else b"own")
    for part in (made.data, *made.buffers):
        length = len(part)
        content.update(b"%d " % length)
        if not of_pieces or length <= PIECES * PIECE_BYTES:
            content.update(part)
            continue
        view = memoryview(part)
        for number in range(PIECES):
            at = number * (length - PIECE_BYTES) // (PIECES - 1)
            content.update(view[at : at + PIECE_BYTES])
    return content.digest()


CLOSING_SECONDS = (0.0, 0.01, 0.05, 0.2, 0.5)
"""Pauses between attempts to remove a folder: workers that were killed may write
into it until they are gone."""


def _remove_folder(folder: str) -> None:
    try:
        os.rmdir(folder)
        return
    except FileNotFoundError:
        return
    except OSError:
        import shutil
    for pause in CLOSING_SECONDS:
        time.sleep(pause)
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return


class Stored:
    """An object, which is there as long as this is."""

    __slots__ = ("name", "shared", "bytes", "value", "object", "waits", "__weakref__")

    def __init__(self, name: str, shared: bool, length: int, value: Any):
        self.name = name
        self.shared = shared
        # What it is to executors elsewhere.
        self.object: Optional[List[Any]] = None
        # Whether it is in no cache yet.
        self.waits = False
        self.bytes = length
        # What it was made of, if that cannot change.
        self.value = value

    def __reduce__(self) -> Tuple[Any, ...]:
        _, uses = _dataflow.arguments_of()
        if uses is None:
            raise TypeError("an object of calls can only be part of their arguments")
        uses.stored.append(self)
        if self.object is None:
            return stored, (self.name, self.shared)
        from ._files import call_name

        name = call_name(self.object[1], uses.read(self.object), False)
        return staged, (name, self.name, self.shared)


class Joined:
    """A pickle, or the object that one is, and the objects that its buffers are:
    what it stands for is put together where the call is made."""

    __slots__ = ("data", "buffers")

    def __init__(self, data: Any, buffers: Sequence[Stored]):
        self.data = data
        self.buffers = buffers

    def __reduce__(self) -> Tuple[Any, ...]:
        return functools.partial(pickle.loads, buffers=list(self.buffers)), (self.data,)


class _Part:
    """What is pickled at a place in an object's bytes."""

    __slots__ = ("whole", "place")

    def __init__(self, whole: Stored, place: slice):
        self.whole = whole
        self.place = place

    def __reduce__(self) -> Tuple[Any, ...]:
        return pickle.loads, (_Bytes(self.whole, self.place),)


class _Bytes(_Part):
    """The bytes at a place in an object's."""

    __slots__ = ()

    def __reduce__(self) -> Tuple[Any, ...]:
        return operator.getitem, (self.whole, self.place)


class Shared(Future[Any]):
    """A value that workers are to have once each: :meth:`Executor.put`."""

    __slots__ = ("_stored",)

    def __init__(self, session: "Session", value: Any):
        super().__init__()
        self._stored: Optional[Tuple["Session", Stored]] = None
        made = _pickled_aside(value)
        if made.is_large():  # type: ignore[no-untyped-call]
            try:
                self._stored = session, session.objects.store(made, True)
            except FalkonError:
                pass  # It is passed on as it is, when there are executors.
        self._end(FINISHED, value, None)

    def __reduce__(self) -> Any:
        if self._stored is not None and self._stored[0] is _dataflow.arguments_of()[0]:
            return self._stored[1].__reduce__()
        return given, (self._result,)


class Objects:
    """The objects of a session: files of this machine, if its workers are here, or
    else objects in the caches of executors."""

    def __init__(self, access: Optional[str], folder: Optional[str] = None) -> None:
        self._access = access
        self.folder = ""
        self.overflow = ""
        """The folder of output of calls that is too long to be sent, if that is here."""
        if access is None:
            self.folder = folder or new_folder()
            self.overflow = overflow_of(self.folder)
        self.caches = None if access is None else Caches(access, LARGE_BYTES)
        self._process = os.getpid()
        self.large: "weakref.WeakSet[Large]" = weakref.WeakSet()
        """Futures whose values are in caches."""
        self._lock = threading.RLock()
        self._making = tuple(threading.RLock() for _ in range(MAKING_LOCKS))
        """Each keeps threads apart that make objects of the same content."""
        self._numbers = itertools.count()
        self._by_content: "weakref.WeakValueDictionary[bytes, Stored]"
        self._by_content = weakref.WeakValueDictionary()
        self._by_identity: "weakref.WeakValueDictionary[int, Stored]"
        self._by_identity = weakref.WeakValueDictionary()
        self._recent: "OrderedDict[Stored, None]" = OrderedDict()
        self._recent_bytes = 0
        self._results: "weakref.WeakKeyDictionary[Future[Any], Stored]"
        self._results = weakref.WeakKeyDictionary()

    def close(self) -> None:
        """Removes all of them."""
        if self._process != os.getpid():
            return
        for folder in filter(None, [self.folder, self.overflow]):
            _remove_folder(folder)
        if self.caches is not None:
            self.caches.close()

    def bring(self) -> None:
        """Has the values here that are in caches and may be asked for: the session
        ends."""
        if self._process != os.getpid():
            return
        for future in list(self.large):
            try:
                if _dataflow.has_value(future):
                    future.fetch(may_make_again=False)
            except FalkonError:
                pass  # Whoever asks for it is told.

    def forget(self) -> None:
        """In a process that was forked: they are the other's."""
        self._lock = threading.RLock()
        self._making = tuple(threading.RLock() for _ in self._making)
        if self.caches is not None:
            self.caches.forget()

    def store(self, made: "Pickled", shared: bool, value: Any = None) -> Stored:
        """The object that a pickle is. Calls of a worker have one that is
        ``shared`` in common. ``value`` is what it was made of, if that cannot
        change."""
        # An argument whose file is here is compared with it, which takes a fraction of the
        # time that a hash of all of it does.
        digest = _digest(made, shared, self._access is None)
        with self._making[digest[0] % MAKING_LOCKS]:
            found = self._by_content.get(digest)
            if found is not None and self._access is None and not self._is(found, made):
                found = None
            if found is None:
                # A number, as one of the same content may be about to go.
                name = "%s-%d" % (digest[:16].hex(), next(self._numbers))
                found = Stored(name, shared, made.length(), value)  # type: ignore[no-untyped-call]
                self._write(made, found)
                with self._lock:
                    self._by_content[digest] = found
        with self._lock:
            if found.value is not None:
                self._by_identity[id(found.value)] = found
            self._note_use(found)
        return found

    def _is(self, stored: Stored, made: "Pickled") -> bool:
        """Whether a file here has this content."""
        try:
            with open(os.path.join(self.folder, stored.name), "rb", buffering=0) as file:
                return made.is_in(file)  # type: ignore[no-untyped-call, no-any-return]
        except OSError:
            return False

    def _write(self, made: "Pickled", stored: Stored) -> None:
        """Writes an object, or puts it into a cache."""
        if self.caches is not None:
            self.caches.take_in(made, stored)
            return
        try:
            made.write(os.path.join(self.folder, stored.name))  # type: ignore[no-untyped-call]
        except OSError as error:
            raise no_room(stored.bytes, LARGE_BYTES, self.folder, error) from error
        self._own(stored)

    def store_bytes(self, content: Any) -> Stored:
        """The object that these bytes are; a call finds them as a buffer."""
        return self.store(_pickled_aside(pickle.PickleBuffer(content)), False)

    def store_shared(self, content: bytes) -> Stored:
        """The object that these bytes are, which the calls of a worker have in common."""
        return self.store(_pickled_aside(content), True)

    def join(self, made: "Pickled") -> Joined:
        """What a large pickle is where a call is made: each of its buffers is an
        object, so that other calls with the same ones have these in common."""
        data, buffers = made.data, [self.store_bytes(view) for view in made.buffers]
        is_small = len(data) <= LARGE_BYTES
        return Joined(data if is_small else self.store_bytes(data), buffers)

    def pack(self, parts: List[Any]) -> List[Any]:
        """Values, as which calls are given them, with all that are pickles in one
        object."""
        whole = b"".join(part for part in parts if isinstance(part, bytes))
        stored, at = self.store_bytes(whole), 0
        packed: List[Any] = []
        for part in parts:
            if not isinstance(part, bytes):
                packed.append(part)
                continue
            end = at + len(part)
            packed.append(_Part(stored, slice(at + len(PICKLED), end)) if part else part)
            at = end
        return packed

    def code(self, code: bytes) -> Stored:
        """The object that a function's code is. The calls of a worker have the
        function in common."""
        made = _pickled_aside(None, lambda value, into: code[len(PICKLED) :])
        return self.store(made, True)

    def _own(self, found: Stored) -> Stored:
        """Has an object go when nobody refers to it."""
        path = os.path.join(self.folder, found.name)
        weakref.finalize(found, _remove, path, self._process).atexit = False
        return found

    def _note_use(self, found: Stored) -> None:
        if found in self._recent:
            self._recent.move_to_end(found)
            return
        self._recent[found] = None
        self._recent_bytes += found.bytes
        while self._recent_bytes > RECENT_BYTES:
            oldest, _ = self._recent.popitem(last=False)
            self._recent_bytes -= oldest.bytes

    def of_value(self, value: Any) -> Optional[Stored]:
        """The object that was made of this very value, if it cannot change."""
        found = self._by_identity.get(id(value))
        return found if found is not None and found.value is value else None

    def take(self, future: Future[Any], named: bytes) -> Any:
        """What a call returned, an object that is there as long as its future."""
        from .worker import read_object

        name = str(named[1:], "utf-8")
        path = os.path.join(self.folder, name)
        self._results[future] = self._own(Stored(name, False, 0, None))
        return read_object(path, Unpickler)  # type: ignore[no-untyped-call]

    def returned_in_cache(self, future: Future[Any], value: bytes) -> Stored:
        """The object in a cache that a call returned, which stays there as long as its
        future does."""
        import msgspec

        wire = msgspec.msgpack.decode(value[1:])
        stored = Stored(wire[1], False, wire[3], None)
        stored.object = wire
        if self.caches is not None:
            self.caches.adopt(stored)
        self._results[future] = stored
        return stored

    def returned(self, future: Future[Any]) -> Optional[Stored]:
        """The object that a call returned, if it is one."""
        return self._results.get(future) if self._results else None

    def instead_of(self, future: Future[Any]) -> Optional[Stored]:
        """The object that stands for a value that is known here, if it is a
        large one."""
        found = self.returned(future)
        if self._access is None and found is None and type(future._result) not in _NEVER_LARGE:
            made = _pickled_aside(future._result)
            if made.is_large():
                found = self.store(made, False)
        return found


def _remove(path: str, process: int) -> None:
    if os.getpid() == process:
        try:
            os.unlink(path)
        except OSError:
            pass  # The folder may be gone.


def is_in_cache(value: bytes) -> bool:
    """Whether a value is an object in the cache of an executor."""
    return value[:1] == _IN_CACHE


def is_named(value: bytes) -> bool:
    """Whether a value is the name of an object."""
    return value[:1] == _NAMED


Arguments = Tuple[bytes, Optional[Tuple[Future[Any], ...]], Optional[_dataflow.Uses]]


def arguments(
    session: "Session",
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
    with _dataflow.Uses() as uses:
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
    session: "Session", value: Any, uses: _dataflow.Uses, before: Tuple[int, int, int]
) -> Arguments:
    """Arguments whose pickle is large although no part of it is that could be an
    object: the pickle is one, and what it refers to is found with the call."""
    needs: Optional[Tuple[Future[Any], ...]] = None

    def dump(value: Any, into: "Pickled") -> bytes:
        nonlocal needs
        uses.undo(before)
        data, needs = pickled(session, value, into)
        return data

    joined = session.objects.join(_pickled_aside(value, dump))
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
        # What else a parameter of this name means is the function's affair.
        given = named.get(name, ())
        given = given if isinstance(given, (list, tuple)) else ()
        declared.append([one for one in given if isinstance(one, (File, FileFuture))])
    return declared[0], declared[1]


def use(uses: _dataflow.Uses, session: "Session", future: Future[Any], kind: "Kind") -> "Kind":
    """The call of a future uses objects. Gives its kind."""
    future._objects = uses
    if uses.outputs:
        from ._files import bind

        bind(uses, session, future)
    return kind.with_data() if uses.inputs or uses.outputs else kind


def declared(calls: Sequence[Tuple[Any, bytes, Future[Any]]]) -> List[Any]:
    """What a submission says of the data objects of its calls."""
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
    """Whether one is known to be large without making a pickle of it."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind in _NEVER_LARGE or kind is list or kind is tuple or kind is dict:
            continue
        if kind is bytes or kind is bytearray or kind is str:
            if len(value) > LARGE_BYTES:
                return True
        elif kind.__module__ == "numpy" and getattr(value, "nbytes", 0) > LARGE_BYTES:
            return True
    return False


class _Split:
    """Takes large arguments out of a call."""

    def __init__(self, session: "Session", objects: Objects, uses: _dataflow.Uses):
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
        if type(value) in _NEVER_LARGE or isinstance(value, Stored):
            return value
        if isinstance(value, StandardFuture):
            if isinstance(value, Shared) or not isinstance(value, Future):
                return value
            known = _dataflow.has_value(value)
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

        made = _pickled_aside(value, dump)
        refers = self._uses.mark() != before
        self._uses.undo(before)
        # What takes values of calls is another thing for each call.
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
