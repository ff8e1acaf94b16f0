"""The restart log: which calls of a script have been made, and what they gave.

After Swift's (*Middleware Support for Many-Task Computing*, §3.2): a call is noted
when it has ended, so that a script that is run again after a failure makes only
those that had not.

A folder has the log and what is too large for it. The log is text: a line that
names the format, then a line for each call, a checksum and JSON. It is only
appended to, a line with one write; an end that was torn off is cut away, and a line
that is damaged is as if it were not there.
"""

import fcntl
import functools
import logging
import mmap
import os
import pickle
import threading
import time
import zlib
from hashlib import blake2b
from typing import Any, Dict, Iterable, List, Optional, Tuple

import msgspec

from ._errors import FalkonError
from ._keys import digest

LOG = logging.getLogger("falkon")

LOG_NAME = "calls.log"
VALUES_NAME = "values"
HEAD = b"falkon restart log 1\n"
"""The first line of a log."""
VALUE_BYTES_MAX = 16 << 10
"""The longest pickle of a value in the log; others have files of their own."""
HASHED_BYTES_MAX = 4 << 20
"""The longest file whose contents are compared where its time has changed."""

FILE, FOLDER, ABSENT, APPENDED = "file", "folder", "absent", "appended"
"""The state of a path when a call ended. A file that is appended to, or a folder, counts as
unchanged while it is there; an absent path, as where calls are made on other machines, while it is
absent."""
RACY_NS = 2_000_000_000
"""A file that was written to a shorter time ago may have been written to again
without another time."""


class ResumeError(FalkonError):
    """A folder cannot be what a run is resumed from."""


class FileState(msgspec.Struct, array_like=True):
    """A file as a call left it."""

    path: str
    kind: str
    size: int = 0
    """In bytes."""
    mtime: int = 0
    """In nanoseconds."""
    digest: bytes = b""
    """Of its contents; empty for long files."""


class Record(msgspec.Struct, omit_defaults=True):
    """A line of the log."""

    key: bytes
    name: str
    files: List[FileState] = []
    value: Optional[bytes] = None
    """A pickle; of ``None`` if it is absent."""
    apart: Optional[bytes] = None
    """The digest of a pickle that is in a file of its own."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode


@functools.lru_cache(1 << 14)
def _contents(path: str, _size: int, _mtime: int) -> bytes:
    """The digest of what is in a file, which is read once for all calls that name
    it, unless it changes."""
    with open(path, "rb") as file:
        return blake2b(file.read(HASHED_BYTES_MAX + 1), digest_size=16).digest()


def _contents_of(path: str, stat: os.stat_result) -> bytes:
    is_racy = time.time_ns() - stat.st_mtime_ns < RACY_NS
    read = _contents.__wrapped__ if is_racy else _contents
    return read(path, stat.st_size, stat.st_mtime_ns)


def state_of(path: str, appended: bool = False) -> FileState:
    """A file as it is."""
    try:
        stat = os.stat(path)
        if appended or not os.path.isfile(path):
            return FileState(path, APPENDED if appended else FOLDER)
        size, mtime = stat.st_size, stat.st_mtime_ns
        contents = _contents_of(path, stat) if size <= HASHED_BYTES_MAX else b""
        return FileState(path, FILE, size, mtime, contents)
    except (OSError, ValueError):
        # A name may hold what no file's can.
        return FileState(path, ABSENT)


def is_unchanged(state: FileState) -> bool:
    """Whether a file is as it was."""
    try:
        stat = os.stat(state.path)
        if state.kind == ABSENT:
            return False
        if state.kind != FILE:
            return True
        if stat.st_size != state.size:
            return False
        is_racy = time.time_ns() - stat.st_mtime_ns < RACY_NS
        if stat.st_mtime_ns == state.mtime and not (is_racy and state.digest):
            return True
        return bool(state.digest) and state.digest == _contents_of(state.path, stat)
    except (OSError, ValueError):
        return state.kind == ABSENT


def is_same(before: FileState, now: FileState) -> bool:
    """Whether a file was the same at two times."""
    if before.kind != now.kind or before.size != now.size:
        return False
    # Two contents may have one time; of long files nothing else is known.
    return before.digest == now.digest and (bool(now.digest) or before.mtime == now.mtime)


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        import cloudpickle

        made: bytes = cloudpickle.dumps(value, protocol=5)
        return made


class RestartLog:
    """A restart log in a folder, which is made if it is not there. One run uses
    it at a time."""

    def __init__(self, folder: str):
        self.folder = folder
        try:
            os.makedirs(folder, exist_ok=True)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._fd = os.open(os.path.join(folder, LOG_NAME), flags, 0o666)
        except OSError as error:
            raise ResumeError("the folder %r cannot be resumed from: %s" % (folder, error)) from error
        self._places: Dict[bytes, Tuple[int, int]] = {}
        """Of each call, where its last line is, and how long that is."""
        self._broken = False
        self._appending = threading.Lock()
        try:
            self._lock()
            self._read()
        except BaseException:
            os.close(self._fd)
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResumeError(
                "another run uses the folder %r: wait for its end, or give each a folder of "
                "its own" % self.folder
            ) from None
        except OSError as error:
            LOG.warning("%s cannot be locked (%s): let no other run use it", self.folder, error)

    def _read(self) -> None:
        size = os.fstat(self._fd).st_size
        head = os.pread(self._fd, len(HEAD), 0)
        if size < len(HEAD) and HEAD.startswith(head):
            os.ftruncate(self._fd, 0)
            os.write(self._fd, HEAD)
            self._end = len(HEAD)
            return
        with mmap.mmap(self._fd, size, prot=mmap.PROT_READ) as log:
            if head != HEAD:
                raise ResumeError(
                    "%s is no restart log of this version of Falkon: name another folder"
                    % os.path.join(self.folder, LOG_NAME)
                )
            at = len(HEAD)
            while True:
                end = log.find(b"\n", at) + 1
                if not end:
                    break
                record = _record(log[at:end])
                if record is not None:
                    self._places[record.key] = (at, end - at)
                at = end
        if at < size:
            os.ftruncate(self._fd, at)
        self._end = at

    def find(self, key: bytes) -> Optional[Tuple[Any, List[FileState]]]:
        """The value of a call, and its files; ``None`` if it was not made, or if a file of it has
        changed."""
        place = self._places.get(key)
        if place is None:
            return None
        record = _record(os.pread(self._fd, place[1], place[0]))
        if record is None or not all(map(is_unchanged, record.files)):
            return None
        try:
            if record.apart is not None:
                with open(self._file(key), "rb") as file:
                    data = file.read()
                if digest(data) != record.apart:
                    return None
            elif record.value is not None:
                data = record.value
            else:
                return None, record.files
            return pickle.loads(data), record.files
        except Exception as error:
            LOG.info("what %s gave cannot be read, it is called again: %s", record.name, error)
            return None

    def keep(self, key: bytes, name: str, value: Any, files: Iterable[FileState]) -> None:
        """Notes what a call gave."""
        if self._broken:
            return
        record = Record(key, name, list(files))
        try:
            data = None if value is None else _pickled(value)
            if data is not None and len(data) > VALUE_BYTES_MAX:
                self._write_apart(key, data)
                record.apart = digest(data)
            else:
                record.value = data
            text = _encode(record)
        except OSError as error:
            with self._appending:
                self._stop(error)
            return
        except Exception as error:
            LOG.warning("what %s gave cannot be kept: %s", name, error)
            return
        self._append(key, b"%08x %s\n" % (zlib.crc32(text), text))

    def _append(self, key: bytes, line: bytes) -> None:
        with self._appending:
            if self._broken:
                return
            try:
                written = os.write(self._fd, line)
            except OSError as error:
                self._stop(error)
                return
            if written < len(line):
                self._stop(OSError("the disk took %d of %d bytes" % (written, len(line))))
                return
            self._places[key] = (self._end, len(line))
            self._end += len(line)

    def _file(self, key: bytes) -> str:
        return os.path.join(self.folder, VALUES_NAME, key.hex())

    def _write_apart(self, key: bytes, data: bytes) -> None:
        """A file has its name when it is whole, and before the log has it."""
        path = self._file(key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".new", "wb") as file:
            file.write(data)
        os.replace(path + ".new", path)

    def _stop(self, error: OSError) -> None:
        """The run goes on; what it gives from here on is not kept. The lock is held."""
        if self._broken:
            return
        self._broken = True
        try:
            os.ftruncate(self._fd, self._end)
        except OSError:
            pass  # The next run that opens the log cuts off what is torn.
        LOG.error(
            "%s: %s; results are not kept any more, and their calls are made again when "
            "this run is resumed",
            self.folder,
            error,
        )

    def close(self) -> None:
        """Lets another run use it."""
        os.close(self._fd)


def _record(line: bytes) -> Optional[Record]:
    """The record in a line; ``None`` if it is damaged."""
    text = line[9:-1]
    try:
        if int(line[:8], 16) == zlib.crc32(text):
            return _decode(text)
    except (ValueError, msgspec.MsgspecError):
        pass
    return None
