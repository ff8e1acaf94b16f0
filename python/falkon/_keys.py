"""Keys of calls: bytes that are the same each time a script is run.

A pickle is not: sets are in another order with each interpreter, classes of
``__main__`` have random names in it, equal texts are one object or two, and a line
that was put in front of a function changes its line numbers. So what is pickled
here goes through a filter, and only the digest is kept.

What is sent by value counts by its content, what is sent by its name by the code of
its module (``_sources.py``). A call of which anything cannot be compared has no key.
"""

import functools
import hashlib
import marshal
import os
import pickle
import sys
import threading
import types
import weakref
from typing import Any, Callable, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

from ._calling import InPlace
from ._files import File, FileFuture, divided
from ._futures import Future
from ._gathered import Gathered
from ._sources import Unknown, Wanted, digest_of, imports_of, is_installed, names_of
from ._unchanged import DESCRIPTORS, Facts, facts_of, global_names, is_importable

KEY_BYTES = 16
"""The length of a key; two of a billion calls have the same with a probability of
10⁻²¹."""
FORMAT = b"falkon key 2 " + (sys.implementation.cache_tag or "").encode()
"""In front of what is hashed: another Python has other byte code."""

_ATOMS = frozenset((str, int, float, complex, bytes, bool, type(None), list, tuple, dict, bytearray))
_SIMPLE = frozenset((str, int, float, bytes, bool, type(None)))
_NOT_OF_A_CLASS = frozenset(
    (
        "__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__",
        "__static_attributes__", "__annotate__", "__annotate_func__",
        "__annotations_cache__", "_abc_impl", "__slotnames__",
    )
)  # fmt: skip
"""Attributes that say nothing of what a class does, or change with each run."""
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
"""Types whose objects have no content."""
_CACHED = type(functools.lru_cache(None)(len))


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
    """The path of a file, if it is one, or the paths of an archive's files, if it is a
    member; of what is on the web or in S3 only the name counts.

    Raises :class:`NoKey` for one that is in caches alone, which end sooner or later.
    """
    if file.url.startswith("cache:"):
        raise NoKey("%s is in caches alone" % file.url)
    if not file.url.startswith("/"):
        return []
    parts = divided(file.url)
    if parts is None:
        return [file.url]
    import glob

    further = glob.escape(parts[0][: -len(".zip")]) + ".part*.zip"
    return [parts[0], *sorted(glob.glob(further))]


class _Sink:
    """A file for pickles that keeps nothing but their digest."""

    __slots__ = ("hash", "write")

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(FORMAT, digest_size=KEY_BYTES)
        self.write = self.hash.update


class Arguments:
    """The files and futures among the arguments of a call."""

    __slots__ = ("files", "needs", "written")

    def __init__(self, written: Sequence[File] = ()) -> None:
        self.files: List[str] = []
        """Paths of files, in the order in which they were found."""
        self.written = written
        """Files that the call writes."""
        self.needs: List[Any] = []
        """Futures whose values the call takes."""


class _Digest(pickle.Pickler):
    """The digest of a value."""

    def __init__(self, seen: _Seen, found: Optional[Arguments], wanted: Wanted):
        import cloudpickle

        self._sink = _Sink()
        super().__init__(self._sink, protocol=5)
        # Types whose objects go by value, however they do.
        self.dispatch_table = cloudpickle.CloudPickler.dispatch_table
        self._seen = seen
        self._found = found
        self._wanted = wanted

    def persistent_id(self, value: Any) -> Any:
        """The form that a value counts by; ``None`` if it counts by its pickle."""
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
            return self._named(value) or self._once(value, _function)
        if isinstance(value, type):
            return self._named(value) or self._once(value, _class)
        if kind is _CACHED:
            return self._named(value) or ("cached", value.cache_parameters(), value.__wrapped__)
        if kind is types.BuiltinFunctionType or kind.__name__ == "ufunc":
            return self._named(value) if is_importable(value) else None
        if kind is types.CodeType:
            return _code(value)
        if kind is types.ModuleType:
            return self._module(value)
        if kind in DESCRIPTORS:
            return "descriptor", kind.__name__, value.__objclass__, value.__name__
        if kind in _LOCKS:
            return "lock", kind.__name__
        if hasattr(kind, "__fspath__"):
            path = os.fspath(value)
            if self._found is not None:
                self._found.files.append(os.fsdecode(path))
            return "file", path
        if isinstance(value, InPlace):
            return "app", value.function
        return None

    def _file(self, file: File) -> Any:
        if file.is_in_caches:
            return self._file_in_caches(file)
        if divided(file.url):
            if file._archive is not None:
                self._file(file._archive)
            # A file that joins the set may have the member that counts.
            paths = kept_path(file)
            if self._found is not None:
                self._found.files += paths
            return "member", file.url, paths
        if self._found is not None:
            if file._made is not None:
                if getattr(file._made.future, "_key", None) is None:
                    raise NoKey("it reads what a call writes that is not kept")
                self._found.needs.append(file._made.future)
            self._found.files += kept_path(file)
        return "file", file.url

    def _file_in_caches(self, file: File) -> Any:
        """The form of a file that is in caches alone: the call that writes it."""
        if file._archive is not None:
            archive = file._archive
            return "member", self._file_in_caches(archive), file.url[len(archive.url) :]
        if self._found is not None:
            for place, written in enumerate(self._found.written):
                if written is file:
                    return "written", place, file.call_name
            future = file._made and file._made.future
            key = getattr(future, "_key", None)
            if key is not None:
                self._found.needs.append(future)
                places = [place for place, one in enumerate(future.outputs) if one.file is file]
                return "made", key, places, file.call_name
        raise NoKey("%s is in caches alone, and no call that is kept writes it" % file.url)

    def _future(self, future: "Future[Any]") -> Any:
        if self._found is None:
            raise NoKey("a function refers to a future")
        if isinstance(future, Gathered):
            return "gathered", future._futures
        key = getattr(future, "_key", None)
        if key is None:
            if not (future.done() and not future.cancelled() and future.exception() is None):
                raise NoKey("it takes the value of a call that is no app's, or is not kept")
            # A remote value would have to be fetched to be hashed.
            if getattr(future, "is_here", True) is False:
                raise NoKey("it takes a large value that is not here")
            known = _values.get(future)
            if known is None:
                wanted = Wanted()
                made = _digest_of(future.result(), {}, self._found, wanted)
                known = _values[future] = made, wanted
            self._wanted.add(known[1])
            return "value", known[0]
        self._found.needs.append(future)
        return "call", key

    def _named(self, value: Any) -> Any:
        """The form of a function or a class that goes by its name; ``None`` if it goes by value."""
        if not is_importable(value):
            return None
        module, name = value.__module__, value.__qualname__
        if not is_installed(module):
            self._wanted.imported(None, 0, module, name.split("."))
        return "named", module, name

    def _module(self, module: types.ModuleType) -> Any:
        name = module.__name__
        if not is_importable(module):
            raise NoKey("the module %s goes by value" % name)
        if not is_installed(name):
            self._wanted.imported(None, 0, name, ())
        return "module", name

    def _once(self, value: Any, parts: Callable[[Any, "_Part", Wanted], Any]) -> Any:
        """The parts of a function or a class; if it was seen before, its number alone."""
        seen = self._seen
        before = seen.get(id(value))
        if before is not None:
            return "seen", before[0]
        seen[id(value)] = (len(seen), value)
        return parts(value, lambda part: _digest_of(part, seen, None, self._wanted), self._wanted)

    def _of(self, value: Any) -> bytes:
        # Sets are in any order, so that each item counts as if it were the first.
        return _digest_of(value, dict(self._seen), self._found, self._wanted)


def _digest_of(value: Any, seen: "_Seen", found: Optional[Arguments], wanted: Wanted) -> bytes:
    """The digest of a value.

    Without a memo, which would tell one object twice from two equal ones; what
    contains itself needs one.
    """
    before = dict(seen)
    made = _Digest(seen, found, wanted)
    made.fast = True
    try:
        made.dump(value)
    except ValueError:
        # Fast mode has no digest of a value that contains itself. Another error is
        # raised again below.
        seen.clear()
        seen.update(before)
        made = _Digest(seen, found, wanted)
        made.dump(value)
    return made._sink.hash.digest()


def _code(code: types.CodeType) -> Tuple[Any, ...]:
    """The parts of a code object that say what it does, not where it stands."""
    return (
        "code", code.co_code, code.co_consts, code.co_names, code.co_varnames,
        code.co_freevars, code.co_cellvars, code.co_argcount, code.co_posonlyargcount,
        code.co_kwonlyargcount, code.co_flags, getattr(code, "co_exceptiontable", b""),
    )  # fmt: skip


def _function(function: Any, part: _Part, wanted: Wanted) -> Tuple[Any, ...]:
    cells = []
    for cell in function.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:
            cells.append(b"")  # The cell is empty.
        else:
            cells.append(part(content))
    space, code = function.__globals__, function.__code__
    wanted.names |= names_of(code)
    package = space.get("__package__")
    for level, module, taken in imports_of(code):
        wanted.imported(package, level, module, taken)
    names = sorted(name for name in global_names(code) if name in space)
    return (
        "function",
        function.__qualname__,
        code,
        [part(value) for value in function.__defaults__ or ()],
        [(name, part(value)) for name, value in sorted((function.__kwdefaults__ or {}).items())],
        cells,
        [(name, part(space[name])) for name in names],
        [(name, part(value)) for name, value in sorted(function.__dict__.items())],
        [(name, part(value)) for name, value in function.__annotations__.items()],
    )


def _class(kind: Any, part: _Part, wanted: Wanted) -> Tuple[Any, ...]:
    members = []
    for name, value in sorted(vars(kind).items()):
        if name in _NOT_OF_A_CLASS:
            continue
        if isinstance(value, (staticmethod, classmethod)):
            value = (type(value).__name__, value.__func__)
        elif isinstance(value, property):
            value = ("property", value.fget, value.fset, value.fdel)
        wanted.names.add(name)
        members.append((name, part(value)))
    made = "class", kind.__qualname__, [part(base) for base in kind.__bases__], members
    return made if type(kind) is type else (*made, part(type(kind)))


_values: "weakref.WeakKeyDictionary[Any, Tuple[bytes, Wanted]]" = weakref.WeakKeyDictionary()
"""Digests of the values of futures that have none of their own, as those that
many calls have in common (:meth:`Executor.put`)."""


class _Known(NamedTuple):
    """The digest of a function, and what it refers to."""

    facts: Optional[Facts]
    digest: bytes
    modules: FrozenSet[str]
    names: FrozenSet[str]


_known: "weakref.WeakKeyDictionary[Any, _Known]" = weakref.WeakKeyDictionary()


def _code_of(function: Any) -> _Known:
    """The digest of a function, which is made once as long as what it refers to is the same."""
    can_be_known = type(function) in _CAN_BE_KNOWN
    known = _known.get(function) if can_be_known else None
    if known is not None and known.facts is not None and known.facts.hold(function):
        return known
    facts = facts_of(function) if can_be_known else None
    wanted = Wanted()
    made = _digest_of(function, {}, None, wanted)
    code = _Known(facts, made, frozenset(wanted.modules), frozenset(wanted.names))
    if facts is not None:
        _known[function] = code
    return code


_CAN_BE_KNOWN = (types.FunctionType, types.BuiltinFunctionType)


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
    code = _code_of(function)
    found = Arguments(declared[1])
    named: Any = sorted(kwargs.items()) if kwargs else ()
    if declared[0] or declared[1]:
        named = [*named, declared]
    elif not named and all(type(value) in _SIMPLE for value in args):
        # The usual ones, in the form that does not know of objects.
        modules = code.modules and _modules(code.modules, code.names) or b""
        return digest(kind.encode(), code.digest, modules, b"s", marshal.dumps(args, 0)), found
    wanted = Wanted()
    arguments = _digest_of((args, named), {}, found, wanted)
    modules = _modules(code.modules | wanted.modules, code.names | wanted.names)
    return digest(kind.encode(), code.digest, modules, b"p", arguments), found


def _modules(modules: FrozenSet[str], names: FrozenSet[str]) -> bytes:
    try:
        return digest_of(modules, names)
    except Unknown as error:
        raise NoKey(str(error)) from None
