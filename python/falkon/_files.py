"""``falkon.File``: files that calls read and write (docs/data.md)."""

import os
import posixpath
from typing import Any, Callable, List, Optional, Tuple, Union

from . import _references
from ._blake3 import digest
from ._data import asked, version_of
from ._errors import FalkonError
from ._futures import CANCELLED_AND_NOTIFIED, FINISHED, Future
from ._references import Maker, Uses, file

Wire = List[Any]
"""An object as the protocol has it: id, URL, version, size."""

_CACHE = "cache:"
# What divides an archive from its members.
_DIVIDER = ".zip!"


def object_of(url: str, version: str, size: Optional[int]) -> Wire:
    """An object of a URL in a version."""
    return [digest(url.encode() + b"\0" + version.encode())[:16], url, version, size]


def _member_object(archive: Wire, url: str) -> Wire:
    """A member of an archive in caches: by its version (``member_version`` in ``object.rs``)."""
    return object_of(url, "archive:" + archive[0].hex(), None)


def call_name(url: str, place: int, is_written: bool) -> str:
    """Under which name a call finds an object in its directory: the rule that
    executors have (``call_name`` in ``declared.rs``)."""
    plain = url.split("?")[0].split("#")[0]
    if plain.startswith(_CACHE):
        plain = plain[len(_CACHE) :]
    base = plain.rpartition("/")[2]
    if base in ("", ".", "..") or "\0" in base:
        base = "object"
    return "%s/%d/%s" % ("out" if is_written else "in", place, base)


def held(session: Maker, url: str) -> Wire:
    """An object that was put into caches (``falkon data put``)."""
    if session.clusters:
        raise ValueError(_only_one(url))
    if session.access is None:
        raise ValueError("no call writes %s" % url)
    found = asked("where", session.access, "--json", url)
    if found.get("version") is None:
        raise FalkonError("no executor holds %s" % url)
    return [bytes.fromhex(found["id"]), found["url"], found["version"], found["size"]]


def _only_one(url: str) -> str:
    return (
        "%s is in caches, and the executors of several dispatchers have none in common: name a "
        "path that all of them can read, or a URL" % url
    )


class _Made:
    """The call that writes a file."""

    __slots__ = ("session", "future", "object")

    def __init__(self, session: Maker, future: Future[Any], written: Wire):
        self.session = session
        self.future = future
        self.object = written


class Skipped:
    """A call wrote a file in an earlier run, to caches alone: it is made again if
    another call reads the file."""

    __slots__ = ("future", "_make", "_again")

    def __init__(self, future: Future[Any], make: Callable[[], Future[Any]]):
        self.future = future
        self._make = make
        self._again: Optional[Future[Any]] = None

    def make(self) -> Future[Any]:
        """Makes the call, once."""
        if self._again is None:
            self._again = self._make()
        return self._again


class File(os.PathLike):  # type: ignore[type-arg]
    """A file that calls read or write.

    As an argument of a call it is brought to where the call is made, and the
    function is given its path there (a :class:`pathlib.Path`). One that is among
    the ``outputs`` of a call (:meth:`Executor.options`) is written by it: the
    function is given a path to write to. Calls that read it wait for that, as they
    do for a future. A file is written once.

    ``place`` is a path, the same wherever calls are made; the URL of a file on the
    web or in S3; ``ARCHIVE.zip!MEMBER`` for a member of an archive; ``cache:KEY`` for one that is in the caches of executors alone, or
    nothing: then it is there too, under a key of its own that ends in ``suffix``.
    """

    __slots__ = ("url", "_made", "_named_from", "_archive", "_known")

    def __init__(self, place: Union[None, str, "os.PathLike[str]"] = None, *, suffix: str = ""):
        self.url: str
        if place is None:
            key = _CACHE + os.urandom(16).hex()
            self.url, self._named_from = key + suffix, len(key)
        else:
            self.url, self._named_from = _url(os.fspath(place)), 0
        self._made: Union[None, _Made, Skipped] = None
        self._known: Optional[Wire] = None
        parts = divided(self.url) if self.is_in_caches else None
        self._archive: Optional[File] = File(parts[0]) if parts else None

    def member(self, name: str) -> "File":
        """A member of this archive, whose name ends in ``.zip``. A call that reads it waits
        for the call that writes the archive, and receives this member alone."""
        if not self.url.endswith(_DIVIDER[:-1]) or divided(self.url):
            raise ValueError("no archive whose name ends in .zip: %r" % (self,))
        member = File(self.url + "!" + name)
        member._archive = self
        return member

    @classmethod
    def of_folder(cls, place: str) -> "File":
        """A directory that calls find unpacked, as it is now: whoever reads it first packs it."""
        folder = cls(place.rstrip("/") or place)
        folder.url += "/"
        now = version_of(folder.url)
        folder._known = object_of(now["url"], now["version"], now["size"])
        return folder

    @property
    def is_in_caches(self) -> bool:
        """Whether it is in the caches of executors alone."""
        return self.url.startswith(_CACHE)

    @property
    def call_name(self) -> str:
        """The file's name for calls: of a key that was drawn, the end."""
        return self.url[self._named_from :]

    def __fspath__(self) -> str:
        if not self.url.startswith("/") or divided(self.url):
            raise TypeError("%s is no path here: calls that take the file are given one" % self.url)
        return self.url

    def __repr__(self) -> str:
        return "File(%r)" % self.url

    def __reduce__(self) -> Tuple[Any, ...]:
        session, uses = _references.arguments_of()
        if session is None or uses is None:
            return File, (self.url,)
        for place, (written, _) in enumerate(uses.outputs):
            if written is self:
                return file, (call_name(self.url, place, True),)
        return file, (call_name(self.url, self.read_by(session, uses), False),)

    def read_by(self, session: Maker, uses: Uses) -> int:
        """The file's place among the objects that a call reads."""
        return uses.read(self._object(session, uses))

    def _object(self, session: Maker, uses: Uses) -> Wire:
        """The object that a call reads, which waits for the one that writes it."""
        if self._archive is not None:
            archive = self._archive._object(session, uses)
            return _member_object(archive, self.url) if self.is_in_caches else self._now(session)
        if isinstance(self._made, Skipped):
            again = self._made.make()
            if isinstance(self._made, Skipped):
                raise _references.failure_of(again)
        made = self._made
        if made is None:
            return self._now(session)
        if made.session is not session:
            if not made.future.done():
                raise ValueError(
                    "%r is written by a call of another executor that is not done" % (self,)
                )
            return self._now(session)
        if not made.future.done():
            uses.waits.append(made.future)
        elif not _references.has_value(made.future):
            raise _references.failure_of(made.future)
        return made.object

    def _now(self, session: Maker) -> Wire:
        """The object that it is at this moment."""
        if self._known is not None:
            return self._known
        if self.url.startswith(_CACHE):
            return held(session, self.url)
        if not self.url.startswith("/") or divided(self.url):
            # The executor asks the server, or reads the archive.
            return object_of(self.url, "", None)
        try:
            now = os.stat(self.url)
        except OSError:
            # The file may be there where the call is made.
            return object_of(self.url, "", None)
        return object_of(self.url, "%d-%d" % (now.st_size, now.st_mtime_ns), now.st_size)

    def _written_by(self) -> Wire:
        if self.url.startswith(("http:", "https:")) or divided(self.url):
            raise ValueError("%r cannot be written" % (self,))
        # A version that is its own: not what another call has written.
        return object_of(self.url, "made:" + os.urandom(16).hex(), None)


def _url(place: str) -> str:
    """The URL of a file, as executors write it."""
    if place.startswith("file:"):
        from urllib.parse import unquote, urlsplit

        parts = urlsplit(place)
        if parts.netloc not in ("", "localhost"):
            raise ValueError("a file of another machine: %r" % place)
        place = unquote(parts.path)
        if divided(place):
            raise ValueError("rename the file: what has .zip! in its name is a member: %r" % place)
    elif place.startswith(_CACHE):
        if place == _CACHE:
            raise ValueError("a key belongs behind %r" % _CACHE)
        return place
    elif "://" in place:
        if place.partition("://")[0] not in ("http", "https", "s3"):
            raise ValueError("files are paths, http:, https:, s3: or cache:, not %r" % place)
        return place
    if not place or place.endswith("/"):
        raise ValueError("no file: %r" % place)
    archive, member = divided(place) or (place, None)
    parts_of = posixpath.join(os.getcwd(), archive).split("/")
    # The folder that .. leads to depends on links.
    url = "/" + "/".join(part for part in parts_of if part not in ("", "."))
    if member is not None:
        url += "!" + member
    url.encode()
    return url


def divided(place: str) -> Optional[Tuple[str, str]]:
    """The archive and the name of what is its member: what is in front of the first
    ``!`` that ``.zip`` precedes, and behind it."""
    start, mark, member = place.partition(_DIVIDER)
    return (start + _DIVIDER[:-1], member) if mark else None


class FileFuture(Future[File]):
    """A file once the call that writes it is done: ``future.outputs[0]``. As an
    argument it stands for the file."""

    __slots__ = ("file", "_call")

    def __init__(self, written: File, call: Future[Any]):
        super().__init__()
        self.file = written
        self._call = call
        call.add_done_callback(self._settle)

    def _settle(self, call: Future[Any]) -> None:
        if call.cancelled():
            self._end(CANCELLED_AND_NOTIFIED, None, None)
        elif call.exception() is not None:
            self._end(FINISHED, None, call.exception())
        else:
            self._end(FINISHED, self.file, None)

    def cancel(self) -> bool:
        """Cancels the call."""
        return self._call.cancel()

    def __reduce__(self) -> Any:
        return self.file.__reduce__()


def writes(uses: Uses, inputs: Any, outputs: Any, session: Maker) -> None:
    """A call is to read and write these files."""
    for one in outputs:
        written = file_of(one)
        if written.is_in_caches and session.clusters:
            raise ValueError(_only_one(written.url))
        uses.outputs.append((written, written._written_by()))
    for one in inputs:
        file_of(one).read_by(session, uses)


def bind(uses: Uses, session: Maker, future: Future[Any]) -> None:
    """The call is made: what it writes is known by it."""
    for written, made in uses.outputs:
        written._made = _Made(session, future, made)
    future.outputs = [FileFuture(written, future) for written, _ in uses.outputs]


def file_of(one: Any) -> File:
    """The file that a path, a URL or a future of a file stands for."""
    if isinstance(one, FileFuture):
        return one.file
    return one if isinstance(one, File) else File(one)
