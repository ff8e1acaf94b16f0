"""Objects: arguments and values that are too large to travel with calls.

Each is a file: a pickle; the buffers that it refers to, as large arrays are made of;
the place of each of these and its length; and how many there are.
"""

import io
import mmap
import os
import pickle
import struct

from .pickles import SET_STATE, Unpickler, dump

LARGE_BYTES = 1 << 20
"""A longer value is an object, not part of a message."""
OBJECT = ord("o")
"""The first byte of values that are the name of an object."""
BUFFER_ALIGNMENT = 64
COMPARED_BYTES = 1 << 18
SHARED_OBJECTS_MAX = 8
"""Objects that a worker keeps for its next calls."""

_PLACE = struct.Struct("<QQ")
_COUNT = struct.Struct("<Q")


class _Bulk:
    """Bytes whose pickle refers to them as they are."""

    def __init__(self, value):
        self.value = value

    def __reduce__(self):
        return bytes, (pickle.PickleBuffer(self.value),)


class Pickled:
    """A pickle that ``dump`` makes, and the large buffers that it leaves out."""

    def __init__(self, value, dump):
        self.buffers = []
        if type(value) is bytes and len(value) > LARGE_BYTES:
            value = _Bulk(value)
        self.data = dump(value, self)

    def start(self):
        """Begins a pickle, which may be tried again; returns its callback for buffers."""
        del self.buffers[:]
        return self._put_aside

    def _put_aside(self, buffer):
        view = buffer.raw()
        if view.nbytes < LARGE_BYTES:
            return True
        self.buffers.append(view)
        return False

    def is_large(self):
        return bool(self.buffers) or len(self.data) > LARGE_BYTES

    def length(self):
        return len(self.data) + sum(view.nbytes for view in self.buffers)

    def write(self, path):
        """Makes an object, which has its name when it is whole."""
        part = path + ".part"
        try:
            with open(part, "xb") as file:
                self.write_to(file)
            os.rename(part, path)
        except BaseException:
            try:
                os.unlink(part)
            except OSError:
                pass
            raise

    def is_in(self, file):
        """Whether a file begins with what :meth:`write_to` writes of this."""
        chunk = bytearray(COMPARED_BYTES)
        at = 0
        for part in (self.data, *self.buffers):
            if at:
                at += -at % BUFFER_ALIGNMENT
                file.seek(at)
            view = memoryview(part)
            for begin in range(0, len(view), COMPARED_BYTES):
                wanted = view[begin : begin + COMPARED_BYTES]
                if len(wanted) < len(chunk):
                    chunk = bytearray(len(wanted))
                # Compared as memory is; two views would be item by item.
                if file.readinto(chunk) != len(chunk) or chunk != wanted:
                    return False
            at += len(view)
            chunk = bytearray(COMPARED_BYTES)
        return True

    def write_to(self, file):
        """Writes an object to an empty file."""
        file.write(self.data)
        places = []
        for view in self.buffers:
            file.write(bytes(-file.tell() % BUFFER_ALIGNMENT))
            places.append(_PLACE.pack(file.tell(), view.nbytes))
            file.write(view)
        file.write(b"".join(places) + _COUNT.pack(len(places)))


def read_object(path, unpickler=None):
    """The value that an object is. Buffers are the file's pages, and copies of pages that are
    written to: changes are seen by nobody else. ``unpickler`` is for pickles that have classes with
    their states."""
    with open(path, "rb") as file:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    view = memoryview(pages)
    (count,) = _COUNT.unpack_from(view, len(view) - _COUNT.size)
    places = len(view) - _COUNT.size - count * _PLACE.size
    buffers = []
    for number in range(count):
        at, length = _PLACE.unpack_from(view, places + number * _PLACE.size)
        buffers.append(view[at : at + length])
    end = _PLACE.unpack_from(view, places)[0] if count else places
    if pages.find(SET_STATE.encode(), 0, end) < 0:
        return pickle.loads(view, buffers=buffers)
    return (unpickler or Unpickler)(io.BytesIO(view[:end]), buffers=buffers).load()


class Objects:
    """The objects of a worker's calls."""

    def __init__(self, folder):
        self.folder = folder
        self._shared = {}
        """Objects that calls have in common, the one used last at the end."""

    def read(self, name, shared=False, path=None):
        value = self._shared.pop(name, self)
        if value is self:
            value = read_object(path or os.path.join(self.folder, name))
        if shared:
            self._shared[name] = value
            while len(self._shared) > SHARED_OBJECTS_MAX:
                del self._shared[next(iter(self._shared))]
        return value

    def encode(self, value):
        """The value of a call as bytes: a pickle, or the name of an object."""
        pickled = Pickled(value, dump)
        if not pickled.is_large():
            return b"p" + pickled.data
        name = os.urandom(16).hex()
        pickled.write(os.path.join(self.folder, name))
        return b"o" + name.encode()


here = None
"""The objects of calls, if a folder is shared with those who make them."""
