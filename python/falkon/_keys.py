"""What a call is, as bytes that are the same each time a script is run.

A pickle is not: sets are in another order with each interpreter, classes of
``__main__`` have random names in it, equal texts are one object or two, and a line
that was put in front of a function changes its line numbers. So what is pickled
here goes through a filter, and only the digest is kept.
"""

import functools
import hashlib
import marshal
import os
import pickle
import sys
import types
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

from ._apps import App, Gathered
from ._files import File, FileFuture
from ._futures import Future
from ._unchanged import Facts, facts_of, global_names, is_importable

KEY_BYTES = 16
"""The length of a key; two of a billion calls have the same with a probability of
10⁻²¹."""
FORMAT = b"falkon key 1 " + (sys.implementation.cache_tag or "").encode()
"""In front of what is hashed: another Python has other byte code."""

_ATOMS = frozenset((str, int, float, complex, bytes, bool, type(None), list, tuple, dict, bytearray))
_SIMPLE = frozenset((str, int, float, bytes, bool, type(None)))
_NOT_OF_A_CLASS = frozenset(
    (
        "__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__",
        "__static_attributes__", "__annotate__", "__annotate_func__",
        "__annotations_cache__", "_abc_impl",
    )
)  # fmt: skip
"""Attributes that say nothing of what a class does, or change with each run."""


_Seen = Dict[int, Tuple[int, Any]]
"""Functions and classes by their ids: a number, and what keeps the id taken."""
_Part = Callable[[Any], bytes]


class NoKey(Exception):
    """A call that cannot be recognised."""


def digest(*parts: bytes) -> bytes:
    """The digest of some bytes."""
    made = hashlib.blake2b(FORMAT, digest_size=KEY_BYTES)
    for part in parts:
        made.update(part)
    return made.digest()


def kept_path(file: File) -> List[str]:
    """The path of a file, if it is one; of what is on the web or in S3 only the name
    counts.

    Raises :class:`NoKey` for one that is in caches alone, which end sooner or later.
    """
    if file.url.startswith("cache:"):
        raise NoKey("%s is in caches alone" % file.url)
    return [file.url] if file.url.startswith("/") else []


class _Sink:
    """A file for pickles of which nothing but the digest is wanted."""

    __slots__ = ("hash", "write")

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(FORMAT, digest_size=KEY_BYTES)
        self.write = self.hash.update


class Arguments:
    """What was found among the arguments of a call."""

    __slots__ = ("files", "needs")

    def __init__(self) -> None:
        self.files: List[str] = []
        """Paths of files, in the order in which they were found."""
        self.needs: List[Any] = []
        """Futures whose values the call takes."""


class _Digest(pickle.Pickler):
    """The digest of a value."""

    def __init__(self, seen: _Seen, found: Optional[Arguments]):
        self._sink = _Sink()
        super().__init__(self._sink, protocol=5)
        self._seen = seen
        self._found = found

    def persistent_id(self, value: Any) -> Any:
        """What stands for a value; ``None`` if its pickle does."""
        kind = type(value)
        if kind in _ATOMS:
            return None
        if isinstance(value, (set, frozenset)):
            return "set", kind, sorted(self._of(item) for item in value)
        if isinstance(value, FileFuture):
            value = value.file
        if isinstance(value, File):
            return self._file(value)
        if isinstance(value, Future):
            return self._future(value)
        if kind is types.FunctionType:
            return self._once(value, _function) if _is_own(value) else None
        if isinstance(value, type):
            return self._once(value, _class) if _is_own(value) else None
        if kind is types.CodeType:
            return _code(value)
        if kind is types.ModuleType:
            return "module", value.__name__, _module_file(value)
        if hasattr(kind, "__fspath__"):
            path = os.fspath(value)
            if self._found is not None:
                self._found.files.append(os.fsdecode(path))
            return "file", path
        if isinstance(value, App):
            return "app", value.function
        return None

    def _file(self, file: File) -> Any:
        if self._found is not None:
            if file._made is not None:
                if getattr(file._made.future, "_key", None) is None:
                    raise NoKey("it reads what a call writes that is not kept")
                self._found.needs.append(file._made.future)
            self._found.files += kept_path(file)
        return "file", file.url

    def _future(self, future: "Future[Any]") -> Any:
        if self._found is None:
            raise NoKey("a function refers to a future")
        if isinstance(future, Gathered):
            return "gathered", future._futures
        key = getattr(future, "_key", None)
        if key is None:
            if not (future.done() and not future.cancelled() and future.exception() is None):
                raise NoKey("it takes the value of a call that is no app's, or is not kept")
            # One of `large_result` (_large.py): to be hashed it would have to be fetched.
            if getattr(future, "_is_here", True) is False:
                raise NoKey("it takes a large value that is not here")
            made = _values.get(future)
            if made is None:
                made = _values[future] = self._of(future.result())
            return "value", made
        self._found.needs.append(future)
        return "call", key

    def _once(self, value: Any, parts: Callable[[Any, "_Part"], Any]) -> Any:
        """What a function or a class consists of; if it was seen before, its
        number alone."""
        seen = self._seen
        before = seen.get(id(value))
        if before is not None:
            return "seen", before[0]
        seen[id(value)] = (len(seen), value)
        return parts(value, lambda part: _part(part, seen))

    def _of(self, value: Any) -> bytes:
        # Sets are in any order, so that each item counts as if it were the first.
        return _digest_of(value, dict(self._seen), self._found)


def _digest_of(value: Any, seen: "_Seen", found: Optional[Arguments]) -> bytes:
    """The digest of a value.

    Without a memo, which would tell one object twice from two equal ones; what
    contains itself needs one.
    """
    made = _Digest(seen, found)
    made.fast = True
    try:
        made.dump(value)
    except ValueError as error:
        if "cyclic" not in str(error):
            raise
        made = _Digest(seen, found)
        made.dump(value)
    return made._sink.hash.digest()


def _part(value: Any, seen: "_Seen") -> bytes:
    """The digest of something that a function or class refers to; that of its
    type if it cannot be pickled, as locks and connections."""
    try:
        return _digest_of(value, seen, None)
    except NoKey:
        raise
    except Exception:
        return _digest_of(("of", type(value).__qualname__), seen, None)


def _code(code: types.CodeType) -> Tuple[Any, ...]:
    """What a code object does; not where it stands."""
    return (
        "code", code.co_code, code.co_consts, code.co_names, code.co_varnames,
        code.co_freevars, code.co_cellvars, code.co_argcount, code.co_posonlyargcount,
        code.co_kwonlyargcount, code.co_flags, getattr(code, "co_exceptiontable", b""),
    )  # fmt: skip


def _function(function: Any, part: _Part) -> Tuple[Any, ...]:
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(part(cell.cell_contents))
        except ValueError:
            cells.append(b"")
    space = function.__globals__
    names = sorted(name for name in global_names(function.__code__) if name in space)
    return (
        "function",
        function.__qualname__,
        function.__code__,
        [part(value) for value in function.__defaults__ or ()],
        [(name, part(value)) for name, value in sorted((function.__kwdefaults__ or {}).items())],
        cells,
        [(name, part(space[name])) for name in names],
    )


def _class(kind: Any, part: _Part) -> Tuple[Any, ...]:
    members = []
    for name, value in sorted(vars(kind).items()):
        if name in _NOT_OF_A_CLASS:
            continue
        if isinstance(value, (staticmethod, classmethod)):
            value = (type(value).__name__, value.__func__)
        elif isinstance(value, property):
            value = ("property", value.fget, value.fset, value.fdel)
        members.append((name, part(value)))
    return "class", kind.__qualname__, [part(base) for base in kind.__bases__], members


def _is_own(value: Any) -> bool:
    """Whether a function or class counts with what it consists of: it is not one
    of an installed module, which counts by its name."""
    module = getattr(value, "__module__", None)
    if module is None or module == "__main__" or not is_importable(value):
        return True
    return not _is_installed(module)


@functools.lru_cache(None)
def _is_installed(name: str) -> bool:
    if name.partition(".")[0] == __name__.partition(".")[0]:
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        return True
    import sysconfig

    places = sysconfig.get_paths()
    kept = {places.get(place) for place in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(file.startswith(place + os.sep) for place in kept if place)


def _module_file(module: types.ModuleType) -> bytes:
    """The digest of the file of a module that is not installed."""
    if module.__name__ == "__main__" or _is_installed(module.__name__):
        return b""
    file = module.__file__ or ""
    try:
        stat = os.stat(file)
        return _file_digest(file, stat.st_size, stat.st_mtime_ns)
    except OSError:
        return b""


@functools.lru_cache(256)
def _file_digest(path: str, _size: int, _mtime_ns: int) -> bytes:
    with open(path, "rb") as file:
        return digest(file.read())


_values: "weakref.WeakKeyDictionary[Any, bytes]" = weakref.WeakKeyDictionary()
"""Digests of the values of futures that have none of their own, as those that
many calls have in common (:meth:`Executor.put`)."""
_known: "weakref.WeakKeyDictionary[Any, Tuple[Facts, bytes]]" = weakref.WeakKeyDictionary()
"""Digests of functions, and what they were made from."""


def _is_named(value: Any) -> bool:
    """Whether something counts by its name alone."""
    if not is_importable(value):
        return False
    is_module = isinstance(value, types.ModuleType)
    return _is_installed(value.__name__ if is_module else value.__module__)


def _function_digest(function: Any) -> bytes:
    """The digest of a function, which is made once as long as what it was made
    from is the same."""
    if type(function) is not types.FunctionType:
        return _digest_of(function, {}, None)
    known = _known.get(function)
    if known is not None and known[0].hold(function):
        return known[1]
    facts = facts_of(function, _is_named)
    made = _digest_of(function, {}, None)
    if facts is not None:
        _known[function] = (facts, made)
    return made


def key_of(
    kind: str,
    function: Any,
    args: Tuple[Any, ...],
    kwargs: Dict[str, Any],
    declared: Tuple[List[File], List[File]] = ([], []),
) -> Tuple[bytes, Arguments]:
    """The key of a call of a function by an app of this kind, and what is among
    its arguments; it is declared to read and to write files besides.

    Raises :class:`NoKey` or what pickling raises.
    """
    code = _function_digest(function)
    found = Arguments()
    named: Any = sorted(kwargs.items()) if kwargs else ()
    if declared[0] or declared[1]:
        named = [*named, declared]
    elif not named and all(type(value) in _SIMPLE for value in args):
        # The usual ones, in the form that does not know of objects.
        return digest(kind.encode(), code, b"s", marshal.dumps(args, 0)), found
    return digest(kind.encode(), code, b"p", _digest_of((args, named), {}, found)), found
