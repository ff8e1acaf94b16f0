"""Arguments and values that are too large to travel with calls.

Each becomes an object: a file in a folder that workers of this machine read and
write too (docs/workers.md). One that was put there is not put there again as long
as it is known, and goes when no call needs it any more.
"""

import itertools
import os
import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from concurrent.futures import Future as StandardFuture
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from . import _dataflow
from ._calls import dumps
from ._dataflow import pickled
from ._futures import FINISHED, Future
from ._taken import given, stored

if TYPE_CHECKING:
    from ._session import Session
    from .worker import Pickled

LARGE_BYTES = 1 << 20
"""Arguments whose pickle is longer are objects, as values are (worker.py)."""
RECENT_BYTES = 256 << 20
"""Objects that no call needs are kept for the next calls up to this."""
PAYLOAD_BYTES = (16 << 20) - 4096
"""The longest arguments that travel with a call."""

_NAMED = b"o"
"""The first byte of values that are the name of an object."""
_NEVER_LARGE = (bool, int, float, complex, type(None))


def _pickled_aside(value: Any, dump: Callable[..., bytes] = dumps) -> "Pickled":
    """A pickle of a value, and beside it large buffers."""
    # Loaded when there is first anything large: what makes objects is the same
    # here as in workers.
    from .worker import Pickled

    return Pickled(value, dump)  # type: ignore[no-untyped-call]


class Stored:
    """An object, which is there as long as this is."""

    __slots__ = ("name", "shared", "bytes", "value", "__weakref__")

    def __init__(self, name: str, shared: bool, length: int, value: Any):
        self.name = name
        self.shared = shared
        self.bytes = length
        # What it was made of, if that cannot change.
        self.value = value

    def __reduce__(self) -> Tuple[Any, ...]:
        _dataflow.used(self)
        return stored, (self.name, self.shared)

    def reference(self) -> bytes:
        """How a value says which object it is."""
        return _NAMED + self.name.encode()


class Shared(Future[Any]):
    """A value that workers are to have once each: :meth:`Executor.put`."""

    __slots__ = ("_stored",)

    def __init__(self, session: "Session", value: Any):
        super().__init__()
        self._stored: Optional[Tuple["Session", Stored]] = None
        if session.objects is not None:
            made = _pickled_aside(value)
            self._stored = session, session.objects.store(made, True)
        self._end(FINISHED, value, None)

    def __reduce__(self) -> Any:
        if self._stored is not None and self._stored[0] is _dataflow.session_of_arguments():
            return self._stored[1].__reduce__()
        return given, (self._result,)


class Objects:
    """The objects of a session whose workers are on this machine."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="falkon-objects-")
        self._process = os.getpid()
        self._lock = threading.RLock()
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
        if self._process == os.getpid():
            shutil.rmtree(self.folder, ignore_errors=True)

    def forget(self) -> None:
        """In a process that was forked: they are the other's."""
        self._lock = threading.RLock()

    def store(self, made: "Pickled", shared: bool, value: Any = None) -> Stored:
        """The object that a pickle is. Calls of a worker have one that is
        ``shared`` in common. ``value`` is what it was made of, if that cannot
        change."""
        import hashlib

        content = hashlib.sha256(b"shared" if shared else b"own")
        for part in (made.data, *made.buffers):
            content.update(b"%d " % len(part))
            content.update(part)
        digest = content.digest()
        with self._lock:
            found = self._by_content.get(digest)
            if found is None:
                # A number, as one of the same content may be about to go.
                name = "%s-%d" % (digest[:16].hex(), next(self._numbers))
                made.write(os.path.join(self.folder, name))
                found = self._own(Stored(name, shared, made.length(), value))
                self._by_content[digest] = found
            if found.value is not None:
                self._by_identity[id(found.value)] = found
            self._note_use(found)
            return found

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
        return read_object(path)  # type: ignore[no-untyped-call]

    def returned(self, future: Future[Any]) -> Optional[Stored]:
        """The object that a call returned, if it is one."""
        return self._results.get(future) if self._results else None

    def instead_of(self, future: Future[Any]) -> Optional[Stored]:
        """The object that stands for a value that is known here, if it is a
        large one."""
        found = self.returned(future)
        if found is None and type(future._result) not in _NEVER_LARGE:
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


def is_named(value: bytes) -> bool:
    """Whether a value is the name of an object."""
    return value[:1] == _NAMED


Arguments = Tuple[bytes, Optional[Tuple[Future[Any], ...]], Optional[Tuple[Stored, ...]]]


def arguments(
    session: "Session", args: Tuple[Any, ...], kwargs: Dict[str, Any], chunk: bool = False
) -> Arguments:
    """The arguments of a call as a pickle, the futures whose values they take, and
    the objects that they refer to. Of a ``chunk``, the only argument is a list of
    the arguments of many."""
    if session.objects is None:
        data, needs = pickled(session, (args, kwargs))
        return data, needs, None
    with _dataflow.Uses() as uses:
        split = _Split(session, session.objects, uses.all)
        if not chunk and (_has_large(args) or _has_large(kwargs.values())):
            args, kwargs = split.of_call(args, kwargs)
        data, needs = pickled(session, (args, kwargs))
        if len(data) > LARGE_BYTES:
            del uses.all[:]
            args, kwargs = split.of_chunk(args) if chunk else split.of_call(args, kwargs)
            data, needs = pickled(session, (args, kwargs))
        if len(data) > PAYLOAD_BYTES and needs is None and not uses.all:
            data, needs = pickled(session, split.replaced((args, kwargs)))
        return data, needs, tuple(uses.all) or None


def _has_large(values: Any) -> bool:
    """Whether one of them is known to be large without making a pickle of it."""
    for value in values:
        kind = type(value)
        if kind is bytes or kind is bytearray or kind is str:
            if len(value) > LARGE_BYTES:
                return True
        elif kind.__module__ == "numpy" and getattr(value, "nbytes", 0) > LARGE_BYTES:
            return True
    return False


class _Split:
    """Takes large arguments out of a call."""

    def __init__(self, session: "Session", objects: Objects, uses: List[Stored]):
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
        return ([tuple(map(self.replaced, one)) for one in args[0]],), {}

    def replaced(self, value: Any) -> Any:
        if type(value) in _NEVER_LARGE or isinstance(value, Stored):
            return value
        if isinstance(value, StandardFuture):
            if isinstance(value, Shared) or not isinstance(value, Future):
                return value
            known = _dataflow.has_value(value)
            return known and self._objects.instead_of(value) or value
        key = id(value)
        if key not in self._done:
            self._done[key] = self._replacement(value)
        return self._done[key]

    def _replacement(self, value: Any) -> Any:
        found = self._objects.of_value(value)
        if found is not None:
            return found
        before = len(self._uses)
        takes: List[Any] = []

        def dump(value: Any, into: "Pickled") -> bytes:
            data, needs = pickled(self._session, value, into)
            takes.extend(needs or ())
            return data

        made = _pickled_aside(value, dump)
        refers = len(self._uses) > before
        del self._uses[before:]
        # What takes values of calls is another thing for each call.
        if takes or refers or not made.is_large():
            return value
        fixed = type(value) in (bytes, str)
        return self._objects.store(made, fixed, value if fixed else None)
