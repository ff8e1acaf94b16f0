"""A session's objects in the caches of executors."""

import os
import shutil
import tempfile
import threading
import weakref
from collections import deque
from typing import (
    IO,
    TYPE_CHECKING,
    Any,
    Callable,
    Deque,
    Dict,
    List,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from ._errors import FalkonError, NoRoom
from ._stored import Stored

if TYPE_CHECKING:
    from .worker.objects import Pickled

RECENT_BYTES = 256 << 20
"""Objects in caches that no call needs, before they are dropped there."""
COPY_BYTES = 1 << 20


def no_room(length: int, limit: int, folder: str, error: OSError) -> NoRoom:
    """The error for an object that cannot be written to this machine's disk."""
    return NoRoom(
        "%d bytes, more than travel with a call (%d), could not be written to %s: %s; TMPDIR "
        "names another place" % (length, limit, folder, error)
    )


class Caches:
    """The objects that a session has put into the caches of executors, and those that it keeps here
    until the first executor has come."""

    def __init__(self, access: str, limit: int):
        self._access = access
        self.instance = 0
        """Objects under its number go with it, also if this process is killed."""
        self._limit = limit
        self.has_executor: Callable[[], Optional[bool]] = lambda: None
        """Whether an executor is connected; ``None`` if this thread cannot ask."""
        self.put: Set[str] = set()
        """URLs of objects that were put into caches."""
        self._unneeded: Deque[Tuple[List[Any], int]] = deque()
        """Objects that no call needs any more, with their lengths."""
        self._lock = threading.RLock()
        self._spool = _Spool()

    def take_in(self, made: "Pickled", stored: Stored) -> None:
        """Puts an object into a cache; without an executor it is kept here, and
        :meth:`place` does so. Nothing of it has a name here: it goes with this process,
        however that ends."""
        self._make_room()
        key = "instances/%d/%s-%s" % (self.instance, stored.name, os.urandom(8).hex())
        # Nobody has its id until it is in a cache; until then its key names it.
        stored.object = [key.encode(), "cache:" + key, None, made.length()]  # type: ignore[no-untyped-call]
        can_put = self.has_executor()
        try:
            with tempfile.TemporaryFile() as file:
                made.write_to(file)  # type: ignore[no-untyped-call]
                file.flush()
                if not (can_put and self._put(file, stored)):
                    self._spool.add(key, file)
                    stored.waits = True
        except OSError as error:
            raise no_room(stored.bytes, self._limit, tempfile.gettempdir(), error) from error
        self._watch(stored)

    def adopt(self, stored: Stored) -> None:
        """Takes over an object that an executor has put into its cache."""
        assert stored.object is not None
        with self._lock:
            self.put.add(stored.object[1])
        self._watch(stored)

    def _watch(self, stored: Stored) -> None:
        assert stored.object is not None
        drop = weakref.finalize(stored, self._let_go, stored.object, stored.bytes)
        drop.atexit = False

    def place(self, stored: Stored, wait: Callable[[], None]) -> None:
        """Puts an object into a cache that was kept here; calls ``wait`` as long as
        there is no executor."""
        assert stored.object is not None
        if not stored.waits:
            return
        key = _key(stored.object)
        while not self.has_executor():
            wait()
        try:
            with tempfile.TemporaryFile() as file:
                self._spool.copy(key, file)
                file.flush()
                while not self._put(file, stored):
                    wait()
        except OSError as error:
            raise no_room(stored.bytes, self._limit, tempfile.gettempdir(), error) from error
        stored.waits = False
        self._spool.drop(key)

    def _put(self, file: IO[bytes], stored: Stored) -> bool:
        """Puts what a file has into a cache; ``False`` if there is no executor."""
        from ._data import asked

        assert stored.object is not None
        key, path = stored.object[1], "/proc/self/fd/%d" % file.fileno()
        command = "put", self._access, "--json", "--key", key, path
        try:
            put = asked(*command, keep=(file.fileno(),))
        except FalkonError as error:
            if not self.has_executor():
                return False
            raise NoRoom(
                "%d bytes, more than travel with a call (%d), could not be put into the "
                "cache of an executor: %s; there must be one whose --cache has room for it, "
                "or pass the name of a file that executors can read"
                % (stored.bytes, self._limit, error)
            ) from error
        with self._lock:
            self.put.add(put["url"])
        stored.object[:] = [bytes.fromhex(put["id"]), put["url"], put["version"], put["size"]]
        return True

    def _let_go(self, wire: List[Any], length: int) -> None:
        """No call needs an object any more. Takes no lock: an object may be collected
        as garbage anywhere."""
        self._unneeded.append((wire, length))

    def _make_room(self) -> None:
        """Drops from caches what no call needs, if that is worth while."""
        if sum(length for _, length in list(self._unneeded)) < RECENT_BYTES:
            return
        gone: List[str] = []
        with self._lock:
            while self._unneeded:
                wire, _ = self._unneeded.popleft()
                self._spool.drop(_key(wire))
                if wire[1] in self.put:
                    gone.append(wire[1])
        if gone and self._remove(gone):
            with self._lock:
                self.put.difference_update(gone)

    def close(self) -> None:
        """Drops from caches all that is there."""
        self._spool.close()
        if self.put:
            self._remove(sorted(self.put), "--force")

    def _remove(self, urls: Sequence[str], *options: str) -> bool:
        from ._data import asked

        try:
            asked("rm", self._access, *options, *urls)
            return True
        except FalkonError:
            return False  # The executors may be gone, and their caches with them.

    def forget(self) -> None:
        """In a process that was forked: the objects are the other's."""
        self._lock = threading.RLock()
        self.put = set()


def _key(wire: List[Any]) -> str:
    url: str = wire[1]
    return url[len("cache:") :]


class _Spool:
    """Objects by their keys, one behind another in a file without a name."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._file: Optional[IO[bytes]] = None
        self._places: Dict[str, Tuple[int, int]] = {}

    def add(self, key: str, source: IO[bytes]) -> None:
        with self._lock:
            if self._file is None:
                self._file = tempfile.TemporaryFile()
            begin = self._file.seek(0, os.SEEK_END)
            source.seek(0)
            shutil.copyfileobj(source, self._file, COPY_BYTES)
            self._places[key] = begin, self._file.tell() - begin

    def copy(self, key: str, target: IO[bytes]) -> None:
        with self._lock:
            begin, left = self._places[key]
            assert self._file is not None
            self._file.seek(begin)
            while left:
                part = self._file.read(min(left, COPY_BYTES))
                target.write(part)
                left -= len(part)

    def drop(self, key: str) -> None:
        """The file goes with the last of them."""
        with self._lock:
            self._places.pop(key, None)
            if not self._places:
                self.close()

    def close(self) -> None:
        with self._lock:
            self._places.clear()
            if self._file is not None:
                self._file.close()
                self._file = None
