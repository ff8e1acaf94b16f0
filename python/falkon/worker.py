"""Calls Python functions for a Falkon executor, one after another.

An executor starts this program and keeps it. It needs nothing but the standard
library of Python 3.8 or newer. The protocol, and what other languages need, is
described in docs/workers.md.

It is one file, however long: the executor carries it within itself and writes it
down where it runs, and no package is there from which it could load the rest.
"""

import array
import importlib
import io
import json
import linecache
import mmap
import os
import pickle
import socket
import struct
import sys
import time
import traceback
import types
import weakref
from importlib import machinery

VERSION = 1
"""Of the protocol."""

# To the worker.
SETUP, FUNCTION, CALLS = 0, 1, 2
# To the executor.
HELLO, READY, ANSWERS = 0, 1, 2

# How a call ended: it returned and wrote nothing, or there is more to say.
RETURNED, DETAILED = 0, 1
LEFT = 2
"""Within this program: it returned what is in a file."""

# Why a call did not return, as the executor knows it.
RAISED, INITIALIZER_FAILED, VERSION_MISMATCH = 0, 1, 2

RECORD = struct.Struct("<IIBqq")
"""In front of an answer: bytes that follow, index, how it ended, start, end."""
BUFFER_HEAD_BYTES = 16
"""In front of the buffer's answers: how many bytes they are, and the bundle."""
ERROR_CHARS_MAX = 65536
OWN_FRAMES = (__file__, importlib.__file__, "<frozen importlib")
"""Files that a traceback does not begin with."""
NOT_RUN_BY_A_CALL = 0x20 | 0x80 | 0x200
"""Flags of code: generator, coroutine, asynchronous generator."""
READ_BYTES = 1 << 18

_LENGTH = struct.Struct("<I")


# MessagePack, as far as the protocol uses it.


def pack(value):
    """The MessagePack form of an int from 0 on, bool, str, bytes or list."""
    if value is True:
        return b"\xc3"
    if value is False:
        return b"\xc2"
    if isinstance(value, int):
        if value < 0x80:
            return bytes((value,))
        if value < 1 << 32:
            return b"\xce" + value.to_bytes(4, "big")
        return b"\xcf" + value.to_bytes(8, "big")
    if isinstance(value, str):
        value = value.encode("utf-8", "backslashreplace")
        return b"\xdb" + len(value).to_bytes(4, "big") + value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b"\xc6" + len(value).to_bytes(4, "big") + bytes(value)
    return b"\xdd" + len(value).to_bytes(4, "big") + b"".join(map(pack, value))


def unpack(data, at=0):
    """The value that starts at ``at`` in ``data``, and where it ends."""
    tag = data[at]
    at += 1
    if tag < 0x80:
        return tag, at
    if 0x90 <= tag < 0xA0:
        return _unpack_items(data, at, tag & 0x0F)
    if 0xA0 <= tag < 0xC0:
        end = at + (tag & 0x1F)
        return str(data[at:end], "utf-8"), end
    if tag == 0xC0:
        return None, at
    if tag in (0xC2, 0xC3):
        return tag == 0xC3, at
    width = _WIDTHS.get(tag)
    if width is None:
        raise ValueError("a MessagePack type that the protocol does not use: 0x%02x" % tag)
    end = at + width
    number = int.from_bytes(data[at:end], "big")
    if 0xCC <= tag <= 0xCF:
        return number, end
    if tag >= 0xDC:
        return _unpack_items(data, end, number)
    value = data[end : end + number]
    if len(value) < number:
        raise ValueError("the message ends in the middle")
    return (bytes(value) if tag <= 0xC6 else str(value, "utf-8")), end + number


_WIDTHS = {
    0xC4: 1, 0xC5: 2, 0xC6: 4,  # bytes
    0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,  # integers
    0xD9: 1, 0xDA: 2, 0xDB: 4,  # text
    0xDC: 2, 0xDD: 4,  # arrays
}  # fmt: skip


def _unpack_items(data, at, count):
    items = []
    for _ in range(count):
        item, at = unpack(data, at)
        items.append(item)
    return items, at


# Functions, their arguments and their values. The first byte says the form.


def _strings(payload):
    args, _ = unpack(payload, 1)
    return [os.fsdecode(arg) for arg in args], {}


def _json(payload):
    arguments = json.loads(payload[1:])
    return arguments.get("args", ()), arguments.get("kwargs", {})


def _pickle(payload):
    return pickle.loads(memoryview(payload)[1:])


VALUES, GIVEN = ord("v"), ord("g")
"""The first byte of payloads with values of other calls in front."""
DIRECTORY = ord("d")
"""The first byte of payloads of calls that have a directory of their own."""
BEFORE_ARGUMENTS = frozenset((VALUES, GIVEN, DIRECTORY))
_WORD = struct.Struct("<I")


def _split_values(payload):
    """The values in front of a payload, in order, and the payload.

    Those that the dispatcher has put there come first. The client may have put
    others behind them, each with its place among all.
    """
    view, at = memoryview(payload), 0
    values, given = [], {}
    if payload[0] == VALUES:
        (count,) = _WORD.unpack_from(payload, 1)
        at = 5 + 4 * count
        for length in struct.unpack_from("<%dI" % count, payload, 5):
            values.append(view[at : at + length])
            at += length
    if payload[at] == GIVEN:
        (count,) = _WORD.unpack_from(payload, at + 1)
        heads = struct.unpack_from("<%dI" % (2 * count), payload, at + 5)
        at += 5 + 8 * count
        for place, length in zip(heads[::2], heads[1::2]):
            given[place] = view[at : at + length]
            at += length
    if given:
        others = iter(values)
        places = range(len(values) + len(given))
        values = [given[place] if place in given else next(others) for place in places]
    return values, payload[at:]


# Objects: arguments and values that are too large to travel with calls. Each is a
# file: a pickle; the buffers that it refers to, as large arrays are made of; where
# each of these begins and its length; and how many there are.

LARGE_BYTES = 1 << 20
"""What is longer than this is an object, not part of a message."""
OBJECT = ord("o")
"""The first byte of values that are the name of an object."""
BUFFER_ALIGNMENT = 64
COMPARED_BYTES = 1 << 18
_PLACE = struct.Struct("<QQ")
_COUNT = struct.Struct("<Q")
SHARED_OBJECTS_MAX = 8
"""Objects that a worker keeps for its next calls."""


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
        """What a pickle is to be made with, which may be tried again."""
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
    """What an object is. Buffers are the file's pages, and copies of those that
    are written to: changes are seen by nobody else. ``unpickler`` is for pickles that
    have classes with their states."""
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
    if pages.find(_SET_STATE.encode(), 0, end) < 0:
        return pickle.loads(view, buffers=buffers)
    return (unpickler or _Unpickler)(io.BytesIO(view[:end]), buffers=buffers).load()


class Objects:
    """The objects of a worker's calls."""

    def __init__(self, folder):
        self.folder = folder
        self._shared = {}
        """Those that calls have in common, the one used last at the end."""

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
        """What a call returned: a pickle, or the name of an object."""
        pickled = Pickled(value, _dump)
        if not pickled.is_large():
            return b"p" + pickled.data
        name = os.urandom(16).hex()
        pickled.write(os.path.join(self.folder, name))
        return b"o" + name.encode()


_objects = None
"""Where objects are, if calls have any."""


def stored(name, shared):
    """An object; arguments refer to it so."""
    if _objects is None:
        raise ValueError("an object is where this worker cannot read it")
    return _objects.read(name, shared)


_directory = ""
"""Of the call whose arguments are being read."""
_staged = Objects("")
"""Objects that come with calls, by their paths."""


def staged(name, identity, shared):
    """An object that was brought to the call's directory."""
    path = os.path.join(_directory, name)
    return _staged.read(identity if shared else path, shared, path)


def keep(value, path):
    """Leaves what a call returned in a file."""
    Pickled(value, _dump).write(os.fspath(path))


def file(name):
    """The path of a file that the call reads or writes."""
    import pathlib

    return pathlib.Path(_directory, name)


_values = []
"""What other calls returned, for the call whose arguments are being read."""


def taken(place):
    """The value of another call; arguments refer to it so."""
    data = _values[place]
    if not data:
        return None
    if data[0] == PICKLED:
        return _loads(data[1:])
    if data[0] == OBJECT:
        return stored(str(data[1:], "utf-8"), False)
    if data[:1] == b"j":
        return json.loads(bytes(data[1:]))
    raise ValueError("of what a call returned that this one takes, there is only a text")


class InitializerFailed(RuntimeError):
    """An initializer raised; the text is its traceback."""


class VersionMismatch(RuntimeError):
    """A pickle needs another Python or another cloudpickle; the text names them."""


def given(value):
    """The value of a call that had ended when it was passed on."""
    return value


# Classes that go by value. One is the same class in all that comes here, and has the
# state that the call was made with: others may have come since.

_states = weakref.WeakKeyDictionary()
"""The states that classes have: what tells each from others, and its attributes."""
_defined = None
"""The classes, with their states, of the function that is being loaded."""
_SET_STATE = "_class_setstate"


def define(kind, state):
    """Gives a class a state; pickles of clients refer to it so."""
    if _defined is not None:
        _defined.append((kind, state))
    _give_state(kind, state)
    return kind


def _give_state(kind, state):
    tag, attributes, bases = state
    before = _states.get(kind, (None, ()))
    if before[0] == tag:
        return
    for name in before[1]:
        if name not in attributes[0] and name in vars(kind):
            delattr(kind, name)
    if kind.__bases__ != bases:
        kind.__bases__ = bases
    sys.modules["cloudpickle.cloudpickle"]._class_setstate(kind, attributes)
    _states[kind] = tag, tuple(attributes[0])


class _Unpickler(pickle.Unpickler):
    """For what other workers have pickled: classes that are known here stay as they
    are."""

    def find_class(self, module, name):
        found = super().find_class(module, name)
        if name != _SET_STATE or module.partition(".")[0] != "cloudpickle":
            return found
        return lambda kind, state: kind if kind in _states else found(kind, state)


def _loads(data, buffers=None):
    """What a pickle says that a worker may have made."""
    if _SET_STATE.encode() in bytes(data):
        return _Unpickler(io.BytesIO(data), buffers=buffers).load()
    return pickle.loads(data, buffers=buffers)


def _importable():
    """Has arguments that refer to values of other calls find them here, also
    where Falkon's package is not installed."""
    module = types.ModuleType("falkon_taken")
    functions = (taken, given, stored, staged, file, keep, settle, define)
    for known in functions + (InitializerFailed, VersionMismatch):
        known.__module__ = module.__name__
        setattr(module, known.__name__, known)
    sys.modules[module.__name__] = module


def _enter(directory):
    """Has a call that is passed texts or JSON be where its data objects are, by their names,
    as a command is."""
    if sys.path[:1] == [""]:
        # Modules are found where they were.
        sys.path[0] = os.getcwd()
    os.chdir(directory)


def form_of_arguments(payload):
    """The form of the arguments behind what stands in front of them."""
    try:
        if payload[0] == DIRECTORY:
            payload = payload[5 + _WORD.unpack_from(payload, 1)[0] :]
        if payload:
            _, payload = _split_values(payload)
        return payload[0] if payload else 0
    except (struct.error, IndexError, StopIteration):
        return 0  # A payload that nobody can read has no form.


def arguments_with_values(payload):
    """Arguments that take values of other calls, and the form they have without."""
    global _directory, _values
    has_directory = payload[0] == DIRECTORY
    if has_directory:
        (length,) = _WORD.unpack_from(payload, 1)
        _directory = os.fsdecode(payload[5 : 5 + length])
        payload = payload[5 + length :]
    if payload:
        _values, payload = _split_values(payload)
    try:
        form = payload[0] if payload else 0
        if has_directory and form != PICKLED:
            _enter(_directory)
        return (ARGUMENTS[form](payload) if form else ((), {})), form
    finally:
        _values = []


PICKLED = ord("p")
ARGUMENTS = {ord("s"): _strings, ord("j"): _json, PICKLED: _pickle}
"""From the first byte of a payload to how it is read."""


def _dump(value, into=None):
    """A pickle; what has no name that others could find it by goes by value, if
    that can be done here. ``into`` takes large buffers."""
    protocol = pickle.HIGHEST_PROTOCOL
    try:
        data = pickle.dumps(value, protocol, buffer_callback=into and into.start())
        if b"__main__" not in data:
            return data
        import cloudpickle
    except ImportError:
        return data
    except Exception:
        try:
            import cloudpickle
        except ImportError:
            pass
        else:
            return cloudpickle.dumps(value, buffer_callback=into and into.start())
        raise
    return cloudpickle.dumps(value, buffer_callback=into and into.start())


VALUE_BYTES_MAX = 8 << 20
"""A longer value is left in a file, of which the executor makes an object."""


class Left:
    """A value that is in a file."""

    def __init__(self, pickled):
        global _left
        _left += 1
        self.path = "%s.%d" % (_left_prefix, _left)
        try:
            pickled.write(self.path)
        except OSError as error:
            raise OSError(
                error.errno,
                "it returned %d bytes, which could not be written for the executor's cache: %s"
                % (pickled.length(), error.strerror),
                self.path,
            ) from None


_left, _left_prefix = 0, ""
"""Values that were left in files, and how the files' names begin."""


def _value(value):
    """What a call returned, where no folder is shared with its caller: a pickle, or a
    file if that is too long to be sent."""
    pickled = Pickled(value, _dump)
    if pickled.length() > VALUE_BYTES_MAX:
        return Left(pickled)
    return b"p" + (_dump(value) if pickled.buffers else pickled.data)


NEVER_LARGE = frozenset((bool, int, float, complex, type(None)))


def encode_value(value, form):
    """What a call with a payload of this form returned, as bytes."""
    if form == PICKLED:
        if type(value) in NEVER_LARGE:
            return b"p" + _dump(value)
        return _value(value) if _objects is None else _objects.encode(value)
    try:
        return b"j" + json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except Exception:
        return b"r" + repr(value).encode("utf-8", "backslashreplace")


class Functions:
    """Functions by the numbers that the executor gave them."""

    def __init__(self):
        self.known = {}
        self._defined = {}
        self._with_classes = {}
        self._modules = {}

    def define(self, number, name, code):
        self.known.pop(number, None)
        self._with_classes.pop(number, None)
        self._defined[number] = (name.decode(), code)

    def load(self, number):
        """Finds a function the first time that it is called, and each time if classes
        came with it."""
        global _defined
        known = self._with_classes.get(number)
        if known is not None:
            function, classes = known
            for kind, state in classes:
                _give_state(kind, state)
            return function
        name, code = self._defined[number]
        classes = []
        if code[:1] == b"p":
            _defined = classes
            try:
                function = pickle.loads(code[1:])
            finally:
                _defined = None
        else:
            module, _, path = name.partition(":")
            if not path:
                raise ValueError("%r names no function: write MODULE:FUNCTION" % name)
            function = self._module_of(code) if code else importlib.import_module(module)
            place = module
            for part in path.split("."):
                try:
                    function = getattr(function, part)
                except AttributeError:
                    raise AttributeError("%s has no attribute %r" % (place, part)) from None
                place = "%s.%s" % (place, part)
        if not callable(function):
            raise TypeError("%s is no function: it cannot be called" % name)
        if getattr(getattr(function, "__code__", None), "co_flags", 0) & NOT_RUN_BY_A_CALL:
            raise TypeError(
                "%s is a generator or asynchronous: a call runs nothing of it; write a function "
                "that runs it, with list() or asyncio.run()" % name
            )
        if classes:
            self._with_classes[number] = function, classes
        else:
            self.known[number] = function
        return function

    def _module_of(self, code):
        """The module whose file name and source text ``code`` is."""
        module = self._modules.get(code)
        if module is None:
            if code[:1] != b"s":
                raise ValueError("code in a form that this worker does not know")
            file, _, source = code[1:].partition(b"\0")
            file, text = os.fsdecode(file), source.decode()
            module = types.ModuleType("falkon_shipped_%d" % len(self._modules))
            module.__file__ = file
            lines = text.splitlines(True)
            linecache.cache[file] = (len(source), None, lines, file)
            sys.modules[module.__name__] = module
            exec(compile(source, file, "exec"), module.__dict__)
            self._modules[code] = module
        return module


# What calls write.

_copy = os.dup2
_fork = os.fork
"""The functions as they are before they are watched."""


class Stream:
    """Standard output or standard error, in a file that is emptied after each
    call that wrote something."""

    def __init__(self, target, text, path, capture_bytes):
        self.path = path
        self.target = target
        self.text = text
        self.capture_bytes = capture_bytes
        self.kept = 0
        self.fd = -1
        self._open()

    def _open(self):
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        fd = os.open(self.path, flags, 0o600)
        _copy(fd, self.target)
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = fd

    def renew(self):
        """Has children that are left write to where nobody reads."""
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass  # The call removed it.
        self._open()

    def drop(self):
        """Drops what threads have written since the last call."""
        if os.lseek(self.fd, 0, os.SEEK_END):
            os.ftruncate(self.fd, 0)

    def take(self):
        """What was written: its first bytes, its length, and the file that
        holds all of it if it is long."""
        total = os.lseek(self.fd, 0, os.SEEK_END)
        if not total:
            return [b"", 0, b""]
        head = os.pread(self.fd, min(total, self.capture_bytes), 0)
        if total <= self.capture_bytes:
            os.ftruncate(self.fd, 0)
            return [head, total, b""]
        self.kept += 1
        kept = "%s.%d" % (self.path, self.kept)
        os.rename(self.path, kept)
        self._open()
        return [head, total, os.fsencode(kept)]


def _flush(streams):
    """Brings what Python has not written yet to the files."""
    for stream in streams:
        try:
            stream.text.flush()
        except (ValueError, OSError):
            # The call closed it, or the disk is full: the next one starts anew.
            _copy(stream.fd, stream.target)
            raw = io.FileIO(stream.target, "w", closefd=False)
            stream.text = io.TextIOWrapper(io.BufferedWriter(raw), errors="backslashreplace")
            setattr(sys, "stdout" if stream.target == 1 else "stderr", stream.text)


def _line_buffer_c():
    """Has the C library write standard output line by line, as on a terminal,
    so that what C code prints is there when its call ends."""
    try:
        import ctypes

        libc = ctypes.CDLL(None)
        stdout = ctypes.c_void_p.in_dll(libc, "stdout")
        libc.setvbuf(stdout, None, 1, 0)
    except Exception:
        pass  # Without it such output comes late, and nothing else is worse.


# What calls change in this process.

_undo = {}
"""How to undo what the call under way has changed of the process, by what it is."""
_IMPORT = "<frozen importlib._bootstrap>"


def _is_importing():
    """Whether a module that is being imported asks: what it does stays."""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_filename == _IMPORT:
            return True
        if code is Worker.call.__code__:
            return False
        frame = frame.f_back
    return False


def settle():
    """Keeps what was changed so far: that is what an initializer is for."""
    _undo.clear()


def undo():
    """Makes the process what it was before the call. ``False`` if that cannot be
    done."""
    is_done = True
    while _undo:
        # Timers first: what handles their signals may be undone as well.
        back = _undo.pop("timers", None) or _undo.popitem()[1]
        try:
            back()
        except Exception:
            is_done = False
    return is_done


def _watch(modules, name, note):
    """Has ``note`` called, with the function, before a function that changes the
    process; what it returns is called with the result."""
    found = [module for module in modules if hasattr(module, name)]
    if not found:
        return
    function = getattr(found[0], name)

    def watched(*args, **kwargs):
        if _is_importing():
            return function(*args, **kwargs)
        then = note(function, *args, **kwargs)
        result = function(*args, **kwargs)
        if then is not None:
            then(result)
        return result

    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(watched, attribute, getattr(function, attribute))
    for module in found:
        setattr(module, name, watched)
    _watched[function] = watched
    for known in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks):
        if function in known:
            known.add(watched)


_watched = {}
"""The functions that are watched, and what stands in their places."""


def _watch_loaded():
    """Puts watched functions in their places in modules that were loaded before: in those of
    one's own."""
    for module_name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if type(path) is not str or is_installed(path) or path.startswith(_OF_PYTHON):
            continue
        if module_name.partition(".")[0] == "falkon":
            continue  # It does not call them for calls.
        for name, value in list(vars(module).items()):
            if type(value) is types.BuiltinFunctionType and value in _watched:
                setattr(module, name, _watched[value])


def _watch_all():
    """Watches all that changes the process for later calls. Looking at each after
    each call would take longer than a short call."""
    import _posixsubprocess
    import _signal
    import posix
    import resource

    variables = os.environ._data
    set_variable, unset_variable = os.putenv, os.unsetenv

    def variable(_, name, *value):
        name = os.fsencode(name)
        before = variables.get(name)

        def back():
            if before is None:
                variables.pop(name, None)
                unset_variable(name)
            else:
                variables[name] = before
                set_variable(name, before)

        _undo.setdefault(("variable", name), back)

    change_folder = os.fchdir

    def folder(*_):
        if "folder" in _undo:
            return
        fd = os.open(".", os.O_RDONLY | getattr(os, "O_PATH", 0) | os.O_CLOEXEC)

        def back():
            try:
                change_folder(fd)
            finally:
                os.close(fd)

        _undo["folder"] = back

    def mask(function, *_):
        return lambda before: _undo.setdefault("mask", lambda: function(before))

    def handler(function, number, *_):
        def then(before):
            # One that C code has set is not known, and cannot be set.
            if before is not None:
                _undo.setdefault(("handler", int(number)), lambda: function(number, before))

        return then

    set_timer = _signal.setitimer

    def timer(*_):
        def back():
            for which in (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF):
                set_timer(which, 0)

        _undo.setdefault("timers", back)

    def blocked(function, *_):
        return lambda before: _undo.setdefault(
            "blocked", lambda: function(_signal.SIG_SETMASK, before)
        )

    def limit(function, which, *_):
        before = resource.getrlimit(which)
        _undo.setdefault(("limit", which), lambda: set_limit(which, before))

    set_limit = resource.setrlimit

    def other_limit(_, pid, which, *limits):
        if limits and pid in (0, os.getpid()):
            limit(None, which)

    copy = os.dup2

    def stream(_, fd, target, *more, **named):
        if target in (1, 2) and ("stream", target) not in _undo:
            kept = os.dup(target)

            def back():
                try:
                    copy(kept, target)
                finally:
                    os.close(kept)

            _undo["stream", target] = back

    def child(*_, **__):
        _undo.setdefault("child", lambda: None)

    for name in ("putenv", "unsetenv"):
        _watch((os, posix), name, variable)
        if hasattr(os.environ, name):  # Before Python 3.9.
            setattr(os.environ, name, getattr(os, name))
    for name in ("chdir", "fchdir"):
        _watch((os, posix), name, folder)
    _watch((os, posix), "umask", mask)
    _watch((os, posix), "dup2", stream)
    signals = [_signal, *filter(None, [sys.modules.get("signal")])]
    _watch([_signal], "signal", handler)
    _watch(signals, "pthread_sigmask", blocked)
    for name in ("alarm", "setitimer"):
        _watch(signals, name, timer)
    _watch([resource], "setrlimit", limit)
    _watch([resource], "prlimit", other_limit)
    for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system"):
        _watch((os, posix), name, child)
    _watch([_posixsubprocess], "fork_exec", child)
    if "subprocess" in sys.modules:
        _watch([sys.modules["subprocess"]], "_fork_exec", child)


# Modules that are not installed, which may be edited while this worker is there.

RACY_NS = 100_000_000
"""A file that was written to a shorter time ago may be written to again without
another time."""
_loaded = {}
"""The files of such modules: what they were when they were loaded."""


def _state(path):
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev


def _content(path):
    import hashlib

    with open(path, "rb") as file:
        return hashlib.md5(file.read()).digest()


def _note_loaded(path):
    """A module is about to be read."""
    if path.startswith(_OF_PYTHON) and not is_installed(path):
        return
    try:
        if is_installed(path):
            if _installed is not None:
                _installed[path] = _state(path)
            return
        state = _state(path)
        is_racy = time.time_ns() - state[1] < RACY_NS
        _loaded[path] = [state, _content(path) if is_racy else None]
    except OSError:
        pass  # It is not read either.


_OF_PYTHON = os.path.dirname(os.__file__) + os.sep
_installed = None
"""The files of modules that are installed, in a template."""


def is_installed(path):
    """Whether a module's file belongs to what is installed, beside Python itself."""
    return "/site-packages/" in path or "/dist-packages/" in path


def _watch_modules():
    for loader, name in (
        (machinery.SourceFileLoader, "path_stats"),
        (machinery.ExtensionFileLoader, "create_module"),
    ):
        _watch_loader(loader, name, getattr(loader, name))


def _watch_loader(loader, name, function):
    def watched(self, asked):
        _note_loaded(self.path)
        return function(self, asked)

    setattr(loader, name, watched)


def have_modules_changed():
    """Whether a module would be another now if it were loaded."""
    for path, known in _loaded.items():
        state, content = known
        try:
            if _state(path) != state:
                return True
            if content is not None:
                if _content(path) != content:
                    return True
                if time.time_ns() - state[1] >= RACY_NS:
                    known[1] = None
        except OSError:
            return True
    return False


# Templates: processes that import what calls are expected to need, and of which workers are
# copies (crates/node/src/process/copy.rs). A copy begins where a worker does that was started
# as a program, with these modules loaded.

UNFIT = 3
"""The exit status of a template of which no copy may be made."""
_PR_SET_PDEATHSIG = 1
_PID = struct.Struct("=i")


class Template:
    """A process that is copied when the executor asks for it."""

    def __init__(self):
        import ctypes

        self.libc = ctypes.CDLL(None)
        self.host = os.getppid()
        # Modules must not meet the orders on standard input.
        self.orders = socket.socket(fileno=os.dup(0))
        null = os.open(os.devnull, os.O_RDONLY)
        _copy(null, 0)
        os.close(null)
        # The executor knows processes that calls leave behind by their tasks' keys, as the
        # kernel shows them: where the environment was when the program was started.
        self.key = 0
        variables = ctypes.POINTER(ctypes.c_void_p).in_dll(self.libc, "environ")
        for at in range(len(os.environ)):
            if variables[at] and ctypes.string_at(variables[at]).startswith(b"FALKON_TASK_KEY="):
                self.key = variables[at]

    def load(self, names):
        """Imports modules that are installed, as far as that can be done."""
        global _installed
        import gc

        _installed = {}
        gc.disable()
        for name in names:
            try:
                found = machinery.PathFinder.find_spec(name.partition(".")[0])
                if found is not None and is_installed(found.origin or ""):
                    importlib.import_module(name)
            except BaseException:
                pass  # A worker that needs it says so.
        settle()
        sys.stdout.flush()
        sys.stderr.flush()
        # Copies share what is there, and need not look through it for garbage.
        gc.freeze()

    def is_fit(self):
        """Whether copies can be made: nothing was left that processes cannot share. Threads that
        end when their process is forked, as those of OpenBLAS, do not count."""
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = _fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        own = (0, 1, 2, self.orders.fileno())
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd not in own and os.path.exists("/proc/self/fd/%d" % fd):
                return False
        return self.is_alone() and self.key != 0

    @staticmethod
    def is_alone():
        """Whether the process has one thread."""
        return len(os.listdir("/proc/self/task")) == 1

    def serve(self):
        """Makes copies; returns in these."""
        size = array.array("i").itemsize
        while True:
            fds = array.array("i")
            data, ancillary, _, _ = self.orders.recvmsg(READ_BYTES, socket.CMSG_SPACE(3 * size))
            for level, kind, content in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(content[: len(content) // size * size])
            if not data or self.is_stale():
                os._exit(0)
            if len(fds) != 3 or not self.is_alone():
                os._exit(UNFIT)
            if self.copy(data, fds):
                return
            for fd in fds:
                os.close(fd)
            self.reap()

    @staticmethod
    def reap():
        """Waits for the processes between it and copies, as far as they have ended."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass

    def is_stale(self):
        """Whether an interpreter that is started now would load other modules."""
        if have_modules_changed():
            return True
        try:
            return any(_state(path) != state for path, state in _installed.items())
        except OSError:
            return True

    def copy(self, settings, fds):
        """Makes a copy; whether this is the copy."""
        if _fork():
            return False
        between = os.getpid()
        try:
            if _fork():
                os._exit(0)
            # An orphan has the host as its parent.
            while os.getppid() == between:
                time.sleep(0.0001)
            self.become(settings.split(b"\0")[:-1], *fds)
        except BaseException:
            os._exit(1)
        return True

    def become(self, settings, stdout, stderr, answer):
        """Becomes a process as the host starts them."""
        global _installed
        import gc

        self.libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)
        if os.getppid() != self.host:
            os._exit(1)
        os.setpgid(0, 0)
        self.orders.close()
        _copy(stdout, 1)
        _copy(stderr, 2)
        self.show(settings[0])
        for setting in settings:
            name, _, value = setting.partition(b"=")
            os.environ[os.fsdecode(name)] = os.fsdecode(value)
        _installed = None
        importlib.invalidate_caches()
        # Its generator is in the state that all copies would go on from.
        random = sys.modules.get("numpy.random")
        if random is not None:
            random.seed()
        settle()
        gc.enable()
        os.write(answer, _PID.pack(os.getpid()))
        for fd in (stdout, stderr, answer):
            os.close(fd)


    def show(self, setting):
        """Has the kernel show which task this process is."""
        import ctypes

        if len(ctypes.string_at(self.key)) != len(setting):
            os._exit(1)
        ctypes.memmove(self.key, setting, len(setting))


KEY_BYTES_MAX = 128
"""Room for the setting that says which task a process is."""


class Forked(Template):
    """The process of a client, forked (python/falkon/_fork.py): its modules with their
    state, and nothing else of it."""

    def __init__(self, orders, host, instance):
        global _raised
        import ctypes
        import fcntl
        import gc

        # Garbage of the client, when it was forked, is not collected here.
        gc.freeze()
        self.libc = ctypes.CDLL(None)
        self.libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)
        if os.getppid() != host:
            os._exit(1)
        self.host = host
        os.setpgid(0, 0)
        sys.settrace(None)
        sys.setprofile(None)
        reset_signals()
        _raised = sys.exc_info()[1]
        self.orders = socket.socket(fileno=fcntl.fcntl(orders, fcntl.F_DUPFD_CLOEXEC, 3))
        let_go_of_files(self.orders.fileno())
        self.renew_streams()
        self.make_room(instance)
        # If the client is a worker itself.
        sys.__dict__.pop("_falkon_initialised", None)
        _loaded.clear()
        _importable()
        if not _watched:
            _watch_all()
            _watch_modules()
            _watch_loaded()

    @staticmethod
    def is_stale():
        """Modules that the client has loaded are still there."""
        return False

    def renew_streams(self):
        """Standard streams of its own. What the client has not written stays unwritten, and
        those who have its streams write to where these do."""
        self.streams = [sys.stdin, sys.stdout, sys.stderr]
        self.streams += [sys.__stdin__, sys.__stdout__, sys.__stderr__]
        purge = getattr(self.libc, "__fpurge", None)
        if purge is not None:
            import ctypes

            for name in ("stdin", "stdout", "stderr"):
                purge(ctypes.c_void_p.in_dll(self.libc, name))
        usual = os.environ.get("PYTHONIOENCODING", "").partition(":")
        encoding, errors = usual[0] or sys.getfilesystemencoding(), usual[2] or "strict"
        sys.stdin = sys.__stdin__ = open(0, encoding=encoding, closefd=False)
        for name, fd, how in (("stdout", 1, errors), ("stderr", 2, "backslashreplace")):
            raw = io.BufferedWriter(io.FileIO(fd, "w", closefd=False))
            stream = io.TextIOWrapper(raw, encoding, how, write_through=fd == 2)
            setattr(sys, name, stream)
            setattr(sys, "__%s__" % name, stream)

    def make_room(self, instance):
        """Moves variables away from where the kernel shows them, for :meth:`show`."""
        import ctypes

        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        self.key, end = int(fields[47]), int(fields[48])
        if end - self.key < KEY_BYTES_MAX:
            os._exit(UNFIT)
        variables = ctypes.POINTER(ctypes.c_void_p).in_dll(self.libc, "environ")
        moved, at = [], 0
        while variables and variables[at]:
            if self.key <= variables[at] < end:
                moved.append(ctypes.string_at(variables[at]).partition(b"="))
            at += 1
        for name, _, value in moved:
            self.libc.setenv(name, value, 1)
        self.show(b"FALKON_TASK_KEY=%s:" % instance.encode())

    def show(self, setting):
        import ctypes

        if len(setting) >= KEY_BYTES_MAX:
            os._exit(1)
        ctypes.memmove(self.key, setting.ljust(KEY_BYTES_MAX, b"\0"), KEY_BYTES_MAX)


def reset_signals():
    """Has signals handled as in an interpreter that was just started."""
    import signal

    signal.set_wakeup_fd(-1)
    usual = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGPIPE: signal.SIG_IGN,
        signal.SIGXFSZ: signal.SIG_IGN,
    }
    for number in signal.valid_signals():
        wanted = usual.get(number, signal.SIG_DFL)
        if signal.getsignal(number) is not wanted:
            try:
                signal.signal(number, wanted)
            except (OSError, ValueError):
                pass  # It cannot be changed.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def let_go_of_files(kept):
    """Closes all descriptors but one. Their numbers stay taken, by what can neither be read
    nor written: an object of the client that is closed must not close what was opened
    here."""
    null = os.open(os.devnull, os.O_RDWR)
    while null < 3:
        null = os.open(os.devnull, os.O_RDWR)
    nothing = os.open(os.devnull, os.O_PATH)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd < 3:
            _copy(null, fd)
        elif fd not in (kept, null, nothing) and os.path.exists("/proc/self/fd/%d" % fd):
            _copy(nothing, fd, False)
    os.close(null)
    os.close(nothing)


def serve_forked(orders, host, instance):
    """Goes on as a template, in a process that a client has forked; never returns."""
    try:
        Forked(orders.fileno(), host, instance).serve()
        work()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


# The conversation.


class Connection:
    """Frames to and from the executor."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.fds = array.array("i")
        # Read into one place: memory of its own for each message would cost as
        # much as a short call.
        self._read = memoryview(bytearray(READ_BYTES))
        self._rest = bytearray()

    def send(self, *parts):
        length = sum(map(len, parts))
        self.socket.sendall(b"".join((_LENGTH.pack(length),) + parts))

    def receive(self):
        """The next message; ``None`` when the executor is gone."""
        rest = self._rest
        while True:
            if len(rest) >= 4:
                end = 4 + _LENGTH.unpack_from(rest)[0]
                if len(rest) >= end:
                    message, _ = unpack(bytes(rest[4:end]))
                    del rest[:end]
                    return message
            count = self.socket.recv_into(self._read)
            if not count:
                return None
            rest += self._read[:count]

    def receive_setup(self):
        """The first message, which brings two file descriptors."""
        size = array.array("i").itemsize
        data, ancillary, _, _ = self.socket.recvmsg(READ_BYTES, socket.CMSG_SPACE(2 * size))
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self.fds.frombytes(content[: len(content) // size * size])
        self._rest += data
        return self.receive()


class Worker:
    """What stays between calls."""

    def __init__(self, connection, setup):
        _, buffer_bytes, capture_bytes, stdout, stderr, self.preload = setup
        self.connection = connection
        buffer, self.claims = connection.fds
        self.buffer = memoryview(mmap.mmap(buffer, buffer_bytes))
        self.words = self.buffer[:BUFFER_HEAD_BYTES].cast("Q")
        os.close(buffer)
        os.set_inheritable(self.claims, False)
        self.functions = Functions()
        self.streams = (
            Stream(1, sys.stdout, os.fsdecode(stdout), capture_bytes),
            Stream(2, sys.stderr, os.fsdecode(stderr), capture_bytes),
        )
        global _left_prefix
        _left_prefix = os.fsdecode(stdout) + ".value"
        self.bundle = 0
        # Its state cannot be made what it was, so that it makes no more calls.
        self.is_worn = False

    def flush(self, done):
        """Sends the answers in the buffer."""
        used = self.words[0]
        answers = self.buffer[BUFFER_HEAD_BYTES : BUFFER_HEAD_BYTES + used]
        self.connection.send(pack_head(ANSWERS, 3), pack(self.bundle), pack(done), pack(answers))
        self.words[0] = 0

    def serve(self):
        error = ""
        try:
            for module in self.preload:
                importlib.import_module(module)
        except BaseException as exception:
            error = describe(exception)
        _flush(self.streams)
        for stream in self.streams:
            written = stream.take()[0].decode("utf-8", "replace")
            error = error and error + written
        settle()
        self.connection.send(pack([READY, error]))
        while True:
            message = self.connection.receive()
            if message is None:
                return
            if message[0] == FUNCTION:
                self.functions.define(*message[1:])
            elif message[0] == CALLS:
                # One that ends before it claims a call is replaced.
                if self.is_worn or have_modules_changed() or not self.call(*message[1:]):
                    return
            else:
                raise ValueError("a message that this worker does not know: %r" % (message[0],))

    def call(self, bundle, numbers, lengths, payloads):
        """Makes the calls of a bundle; ``False`` if the executor is gone."""
        numbers = memoryview(numbers).cast("I").tolist()
        lengths = memoryview(lengths).cast("I").tolist()
        self.bundle = bundle
        self.words[0] = 0
        self.words[1] = bundle
        # Whatever is looked up for each call is looked up once.
        words, buffer, head = self.words, self.buffer, BUFFER_HEAD_BYTES
        room, claims, claim = len(buffer) - head, self.claims, os.read
        known, load = self.functions.known.get, self.functions.load
        arguments, record, size = ARGUMENTS, RECORD.pack, RECORD.size
        clock, lseek, getpid = time.monotonic_ns, os.lseek, os.getpid
        out, err = self.streams
        system, changes, is_worn = sys, _undo, False
        pid = getpid()
        out.drop()
        err.drop()
        used = at = 0
        started = clock() // 1000
        for index, number in enumerate(numbers):
            # A call is made only by who has its claim: this worker, or the
            # executor, which takes calls back from behind a long one.
            try:
                if not claim(claims, 1):
                    return False
            except BlockingIOError:
                break
            kind = RETURNED
            end = at + lengths[index]
            form = payloads[at] if end > at else 0
            try:
                function = known(number) or load(number)
                if form in BEFORE_ARGUMENTS:
                    (args, kwargs), form = arguments_with_values(payloads[at:end])
                    value = function(*args, **kwargs)
                elif form:
                    args, kwargs = arguments[form](payloads[at:end])
                    value = function(*args, **kwargs)
                else:
                    value = function()
                body = b"" if value is None else encode_value(value, form)
                value = None
            except BaseException as exception:
                kind = DETAILED
                if _raised is not None:
                    _separate(exception)
                if form in BEFORE_ARGUMENTS:
                    # The call did not come to have its arguments.
                    form = form_of_arguments(payloads[at:end])
                code, body, cause = failure(exception)
                raised = encode_raised(exception, form)
            if getpid() != pid:
                # A child that the call made and did not end.
                end_child(code if kind else 0, body if kind else "", self.streams)
            if type(body) is Left:
                kind = LEFT
            at = end
            if system.stdout is not out.text or system.stderr is not err.text:
                self.restore_streams()
            try:
                out.text.flush()
                err.text.flush()
            except (ValueError, OSError):
                _flush(self.streams)
            if kind or lseek(out.fd, 0, 2) or lseek(err.fd, 0, 2):
                text, value = (body, raised) if kind == DETAILED else ("", body)
                code = code if kind == DETAILED else 0
                more = []
                if kind == LEFT:
                    value, more = b"", [os.fsencode(body.path)]
                elif kind == DETAILED and cause is not None:
                    more = [b"", cause]
                kind = DETAILED
                body = pack([code, value, text] + out.take() + err.take() + more)
                value = raised = None
            if changes:
                is_worn = self.is_worn = not self.undo()
            now = clock() // 1000
            end = used + size + len(body)
            if end > room:
                self.flush(False)
                used, end = 0, size + len(body)
            answer = record(len(body), index, kind, started, now) + body
            if end > room:
                self.connection.send(
                    pack_head(ANSWERS, 3), pack(bundle), pack(False), pack(answer)
                )
            else:
                buffer[head + used : head + end] = answer
                words[0] = used = end
            started = now
            if is_worn:
                break
        self.flush(True)
        return True


    def restore_streams(self):
        """Has Python write where it did before the call."""
        for stream, name in zip(self.streams, ("stdout", "stderr")):
            found = getattr(sys, name, None)
            if found is not stream.text:
                try:
                    found.flush()
                except Exception:
                    pass  # It is the call's own.
                setattr(sys, name, stream.text)

    def undo(self):
        """Makes the process what it was before the call. ``False`` if that cannot be
        done."""
        if _undo.pop("child", None) is not None:
            for stream in self.streams:
                stream.renew()
        return undo()


def end_child(code, text, streams):
    """Ends a process that a call forked, which has come to the call's end."""
    try:
        if text:
            sys.stderr.write(text + "\n")
        _flush(streams)
    finally:
        os._exit(code)


_raised = None
"""The exception that a client handled when it was forked."""


def _separate(exception):
    """A call's exception was not raised while the client handled something."""
    while exception.__context__ is not None:
        if exception.__context__ is _raised:
            exception.__context__ = None
        else:
            exception = exception.__context__


def pack_head(number, fields):
    """The head of a message with so many fields."""
    return bytes((0x91 + fields, number))


def failure(exception):
    """The exit code, the text and the cause for a call that did not return."""
    if isinstance(exception, SystemExit):
        code = exception.code
        if code is None:
            return 0, "", None
        if isinstance(code, int):
            return code & 0xFF, "", None
        return 1, str(code)[-ERROR_CHARS_MAX:], None
    if isinstance(exception, InitializerFailed):
        said = str(exception)[-ERROR_CHARS_MAX:]
        return 1, "the initializer raised\n" + said, INITIALIZER_FAILED
    if isinstance(exception, VersionMismatch):
        return 1, str(exception)[-ERROR_CHARS_MAX:], VERSION_MISMATCH
    return 1, describe(exception), RAISED


def encode_raised(exception, form):
    """What a call raised, as bytes; empty if its caller cannot make use of it."""
    if form != PICKLED or isinstance(exception, (InitializerFailed, VersionMismatch)):
        return b""
    try:
        data = _dump(exception)
        # Many exceptions are pickled and cannot be made from that.
        _loads(data)
    except BaseException:
        return b""
    return b"p" + data


def describe(exception):
    """A traceback without the frames of this program and what it imports with."""
    frames = exception.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(OWN_FRAMES):
        frames = frames.tb_next
    try:
        lines = traceback.format_exception(type(exception), exception, frames)
        text = "".join(lines).rstrip("\n")
    except Exception as trouble:
        text = "%s (its text cannot be had: %s)" % (type(exception).__name__, trouble)
    return text[-ERROR_CHARS_MAX:]


def main():
    foreseen = os.environ.pop("FALKON_WORKER_TEMPLATE", None)
    # As with `python -c`: modules are found in the working directory. (Run as
    # a file, the first entry is the file's folder.)
    sys.path[0:1] = [""]
    sys.argv[:] = [""]
    _importable()
    _watch_all()
    _watch_modules()
    if foreseen is not None:
        template = Template()
        template.load(foreseen.split(","))
        if not template.is_fit():
            os._exit(UNFIT)
        template.serve()
    work()


def work():
    """Makes calls until the executor is gone."""
    global _objects
    path = os.environ.pop("FALKON_WORKER_SOCKET")
    token = os.environ.pop("FALKON_WORKER_TOKEN")
    folder = os.environ.pop("FALKON_WORKER_OBJECTS", None)
    os.environ.pop("FALKON_WORKER_INITIALIZER", None)  # It tells workers apart, no more.
    if folder is not None:
        _objects = Objects(folder)
    connection = Connection(path)
    connection.send(pack([HELLO, VERSION, token]))
    setup = connection.receive_setup()
    if setup is None:
        return
    _line_buffer_c()
    Worker(connection, setup).serve()


if __name__ == "__main__":
    main()
    # Neither threads that calls left behind nor handlers hold this up.
    os._exit(0)
