"""Arguments and values that are too large to travel with calls.

Each becomes an object: a file in a folder that workers of this machine read and
write too (docs/workers.md). One that was put there is not put there again as long
as it is known, and goes when no call needs it any more.
"""

import itertools
import os
import pickle
import threading
import time
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Callable, List, Optional

from ._caches import Caches, no_room
from ._calls import PICKLED, dumps
from ._classes import Unpickler
from ._errors import FalkonError, NoRoom
from ._futures import Future
from ._program import new_folder, overflow_of
from ._references import has_value
from ._stored import Joined, Part, Stored

if TYPE_CHECKING:
    from .worker.objects import Pickled

LARGE_BYTES = 1 << 20
"""Arguments whose pickle is longer are objects, as values are (worker/objects.py)."""
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
NEVER_LARGE = frozenset((bool, int, float, complex, type(None)))


def pickled_aside(value: Any, dump: Callable[..., bytes] = dumps) -> "Pickled":
    """A pickle of a value, and beside it large buffers."""
    # Loaded when there is first anything large: what makes objects is the same
    # here as in workers.
    from .worker.objects import Pickled

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


class Objects:
    """The objects of a session: files of this machine, if its workers are here, or
    else objects in the caches of executors. Where the executors are several dispatchers',
    there are none."""

    def __init__(
        self, access: Optional[str], folder: Optional[str] = None, has_objects: bool = True
    ) -> None:
        self.is_here = has_objects and access is None
        """Whether they are files of this machine."""
        self.folder = ""
        self.overflow = ""
        """The folder of output of calls that is too long to be sent, if that is here."""
        if self.is_here:
            self.folder = folder or new_folder()
            self.overflow = overflow_of(self.folder)
        self.caches = None if access is None else Caches(access, LARGE_BYTES)
        self._process = os.getpid()
        self._fetched_at_end: "weakref.WeakSet[Any]" = weakref.WeakSet()
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

    def fetch_at_end(self, future: Future[Any]) -> None:
        """Has :meth:`bring` fetch the value of a future, which has a method ``fetch``."""
        self._fetched_at_end.add(future)

    def bring(self) -> None:
        """Fetches the values that are in caches and may be asked for: the session ends."""
        if self._process != os.getpid():
            return
        for future in list(self._fetched_at_end):
            try:
                if has_value(future):
                    future.fetch(may_make_again=False)
            except FalkonError:
                pass  # The future's result() raises that again.

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
        if not self.is_here and self.caches is None:
            raise NoRoom(
                "%d bytes, which are more than travel with a call: the executors of several "
                "dispatchers have no cache in common; write them to a file that all can read, "
                "and pass its name" % made.length()  # type: ignore[no-untyped-call]
            )
        # An argument whose file is here is compared with it, which takes a fraction of the
        # time that a hash of all of it does.
        digest = _digest(made, shared, self.is_here)
        with self._making[digest[0] % MAKING_LOCKS]:
            found = self._by_content.get(digest)
            if found is not None and self.is_here and not self._is(found, made):
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
        return self.store(pickled_aside(pickle.PickleBuffer(content)), False)

    def store_shared(self, content: bytes) -> Stored:
        """The object that these bytes are, which the calls of a worker have in common."""
        return self.store(pickled_aside(content), True)

    def join(self, made: "Pickled") -> Joined:
        """Stores a large pickle as objects: each of its buffers is one, so that other calls with
        the same buffers have these in common."""
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
            packed.append(Part(stored, slice(at + len(PICKLED), end)) if part else part)
            at = end
        return packed

    def code(self, code: bytes) -> Stored:
        """The object that a function's code is. The calls of a worker have the
        function in common."""
        made = pickled_aside(None, lambda value, into: code[len(PICKLED) :])
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
        """The value of a call that is an object, which is there as long as its future."""
        from .worker.objects import read_object

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
        if self.is_here and found is None and type(future._result) not in NEVER_LARGE:
            made = pickled_aside(future._result)
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
