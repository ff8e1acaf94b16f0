"""Digests of modules that are not installed.

A worker finds a function by its module's name, and then runs what the module's file
says. So a call of it is recognised by that file, by those of the modules that it
imports and that are not installed either, and by nothing that this process has
loaded. Of these files count the statements that the call may run: all but functions
whose names occur nowhere in what counts. Comments and places of lines do not count.
"""

import ast
import functools
import hashlib
import importlib.machinery
import os
import sys
import time
import types
from typing import (
    Any,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

MODULES_MAX = 500
"""Modules of one's own that a call may need and still be recognised."""
RACY_SECONDS = 2.0
"""A file that was written to a shorter time ago may have been written to again
without another time."""
_DYNAMIC = frozenset(
    ("globals", "locals", "vars", "eval", "exec", "getattr", "__dict__", "__import__",
     "import_module", "__getattr__", "attrgetter", "methodcaller")
)  # fmt: skip
"""Names in code that may find others by texts that it puts together."""
_APPS = frozenset(("python_app", "shell_app"))
"""Decorators that do nothing but to mark."""

State = Tuple[int, ...]


class Unknown(Exception):
    """A module whose code is not known."""


class Statement(NamedTuple):
    """A statement of a module."""

    defines: str
    """The function that it defines, if it does nothing else."""
    digest: bytes
    names: FrozenSet[str]
    """All names and texts in it."""
    imports: Tuple[Tuple[int, str, Tuple[str, ...]], ...]
    """Level, module, and names that are taken from it."""


class Wanted:
    """Modules that a call needs, and names of theirs that it may use."""

    __slots__ = ("modules", "names")

    def __init__(self) -> None:
        self.modules: Set[str] = set()
        self.names: Set[str] = set()

    def add(self, other: "Wanted") -> None:
        self.modules |= other.modules
        self.names |= other.names

    def imported(self, package: Optional[str], level: int, name: str, names: Iterable[str]) -> None:
        """Code in a package imports a module, and takes names from it."""
        if level:
            parts = (package or "").split(".")
            if level > len(parts) or not package:
                return  # The value raises.
            name = ".".join((*parts[: len(parts) - level + 1], *filter(None, (name,))))
        parts = name.split(".")
        if is_installed(parts[0]):
            return
        self.modules.update(".".join(parts[:count]) for count in range(1, len(parts) + 1))
        self.names.update(names)


# Where modules are.


def is_installed(name: str) -> bool:
    """Whether a module counts by its name: it comes with Python, or was installed."""
    top = name.partition(".")[0]
    if top in _OURS or top in sys.builtin_module_names:
        return True
    file, folders = _place(top)
    if file is not None:
        return _is_in_place(file)
    if folders is not None:
        return all(map(_is_in_place, folders))
    # A module that was made by hand has no code that could be compared.
    return top in sys.stdlib_module_names


_OURS = frozenset((__name__.partition(".")[0], "falkon_taken", "__main__"))
"""Modules that are others in workers, whatever they are here."""


@functools.lru_cache(4096)
def _is_in_place(file: str) -> bool:
    parts = file.split(os.sep)
    if "site-packages" in parts or "dist-packages" in parts:
        return True
    import sysconfig

    places = sysconfig.get_paths()
    return any(file.startswith(places[one] + os.sep) for one in ("stdlib", "platstdlib"))


def _spec(name: str, path: Optional[List[str]]) -> Any:
    """Where a module is that is not loaded; nothing is imported."""
    try:
        return importlib.machinery.PathFinder.find_spec(name, path)
    except Exception:
        return None


def _place(name: str) -> Tuple[Optional[str], Optional[List[str]]]:
    """The file of a module, and the folders of its submodules."""
    module = sys.modules.get(name)
    if module is not None:
        folders = getattr(module, "__path__", None)
        return getattr(module, "__file__", None), None if folders is None else list(folders)
    above, _, _ = name.rpartition(".")
    path = None
    if above:
        _, path = _place(above)
        if path is None:
            return None, None
    spec = _spec(name, path)
    if spec is None:
        return None, None
    folders = spec.submodule_search_locations
    file = spec.origin if spec.has_location else None
    return file, None if folders is None else list(folders)


# Contents of files.


def _state(path: str) -> State:
    """The state of a file, by which a change is seen; empty if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev


def _may_change(state: State) -> bool:
    """Whether a file is so new that it may change and look the same."""
    return bool(state) and time.time() - max(state[1], state[2]) / 1e9 < RACY_SECONDS


_read: Dict[str, Tuple[State, Any]] = {}
"""The contents of files and folders that were read, and their states then."""


def _kept(path: str, read: Any) -> Any:
    """The content of a file or folder, which is read again when that has changed."""
    state = _state(path)
    known = _read.get(path)
    if known is not None and known[0] == state:
        return known[1]
    made = read(path)
    if not _may_change(state):
        if len(_read) >= 4 * MODULES_MAX:
            _read.clear()
        _read[path] = (state, made)
    return made


def _digest(*parts: bytes) -> bytes:
    made = hashlib.blake2b(digest_size=16)
    for part in parts:
        made.update(b"%d " % len(part))
        made.update(part)
    return made.digest()


def _statements(path: str) -> List[Statement]:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise Unknown("%s cannot be read: %s" % (path, error)) from None
    if not path.endswith((".py", ".pyw")):
        return [Statement("", _digest(data), frozenset(), ())]
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError) as error:
        raise Unknown("%s cannot be read: %s" % (path, error)) from None
    return [_statement(node) for node in tree.body]


def _statement(node: ast.stmt) -> Statement:
    names: Set[str] = set()
    imports: List[Tuple[int, str, Tuple[str, ...]]] = []
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            names.add(one.id)
        elif isinstance(one, ast.Attribute):
            names.add(one.attr)
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            names.update(one.value.split(".") if len(one.value) < 256 else ())
        elif isinstance(one, ast.alias):
            names.update(one.name.split("."))
        elif isinstance(one, ast.keyword) and one.arg:
            names.add(one.arg)
        if isinstance(one, ast.Import):
            imports += [(0, alias.name, ()) for alias in one.names]
        elif isinstance(one, ast.ImportFrom):
            imports.append((one.level, one.module or "", tuple(alias.name for alias in one.names)))
    defines = ""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _only_defines(node):
        defines = node.name
    return Statement(defines, _digest(ast.dump(node).encode()), frozenset(names), tuple(imports))


def _only_defines(node: Any) -> bool:
    """Whether a statement does nothing but to define a function."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call):
            if not all(isinstance(one.value, ast.Constant) for one in decorator.keywords):
                return False
            decorator = decorator.func
        name = decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")
        if name not in _APPS:
            return False
    defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
    return all(isinstance(one, (ast.Constant, ast.Name)) for one in defaults)


def _submodules(path: str) -> FrozenSet[str]:
    """The names of modules that a folder may hold."""
    try:
        return frozenset(name.partition(".")[0] for name in os.listdir(path))
    except OSError:
        return frozenset()


# The parts that count.

_Names = FrozenSet[str]
_known: Dict[Tuple[_Names, _Names], Tuple[bytes, List[Tuple[str, State]], List[str]]] = {}
"""Digests, the files and folders that they were made from, and what was nowhere."""


def digest_of(modules: _Names, names: _Names) -> bytes:
    """The digest of all that calls may run of these modules, which are not installed,
    if they use these names, and of what that imports.

    Raises :class:`Unknown`.
    """
    if not modules:
        return b""
    known = _known.get((modules, names))
    if known is not None:
        made, states, absent = known
        if all(_state(path) == state for path, state in states) and not any(map(_is_there, absent)):
            return made
    code = _Code(modules, names)
    made = code.digest()
    if not any(map(_may_change, code.states.values())):
        if len(_known) >= 1024:
            _known.clear()
        _known[modules, names] = (made, list(code.states.items()), list(code.absent))
    return made


def _is_there(name: str) -> bool:
    return _place(name) != (None, None)


class _Code:
    """The code that calls may run, as it is being found."""

    def __init__(self, modules: _Names, names: _Names) -> None:
        self.states: Dict[str, State] = {}
        self.absent: Set[str] = set()
        self._wanted = Wanted()
        self._wanted.modules |= modules
        self._wanted.names |= names
        self._modules: Dict[str, List[Statement]] = {}
        self._folders: Dict[str, List[str]] = {}
        self._counts: Dict[str, List[bool]] = {}
        self._all = not _DYNAMIC.isdisjoint(names)

    def digest(self) -> bytes:
        wanted = self._wanted
        while True:
            before = len(wanted.modules), len(wanted.names), self._all
            for name in sorted(wanted.modules - self._modules.keys()):
                self._load(name)
            for name, statements in self._modules.items():
                self._count(name, statements)
            if before == (len(wanted.modules), len(wanted.names), self._all):
                break
            if len(self._modules) > MODULES_MAX:
                raise Unknown("it needs more than %d modules that are not installed" % MODULES_MAX)
        parts: List[bytes] = []
        for name in sorted(self._modules):
            counted = zip(self._modules[name], self._counts[name])
            parts += (name.encode(), b"".join(one.digest for one, counts in counted if counts))
        return _digest(*parts)

    def _load(self, name: str) -> None:
        self._modules[name] = []
        self._counts[name] = []
        file, folders = _place(name)
        if file is None and folders is None:
            self.absent.add(name)
            if name in sys.modules:
                raise Unknown("the module %s has no file" % name)
            return
        for folder in folders or ():
            self.states[folder] = _state(folder)
        self._folders[name] = folders or []
        if file is not None:
            self.states[file] = _state(file)
            self._modules[name] = _kept(file, _statements)
            self._counts[name] = [False] * len(self._modules[name])

    def _count(self, name: str, statements: List[Statement]) -> None:
        wanted, counts = self._wanted, self._counts[name]
        package = name if name in self._folders and self._folders[name] else name.rpartition(".")[0]
        for at, one in enumerate(statements):
            if counts[at] or (one.defines and not self._all and one.defines not in wanted.names):
                continue
            counts[at] = True
            wanted.names |= one.names
            self._all = self._all or not _DYNAMIC.isdisjoint(one.names)
            for level, module, names in one.imports:
                wanted.imported(package, level, module, names)
        for folder in self._folders.get(name, ()):
            found = _kept(folder, _submodules) & wanted.names
            wanted.modules.update("%s.%s" % (name, one) for one in found)


# The names that code in this process uses.


@functools.lru_cache(4096)
def names_of(code: types.CodeType) -> FrozenSet[str]:
    """All names and texts in code and in the code within it."""
    names: Set[str] = set(code.co_names)
    for constant in _constants(code.co_consts):
        if isinstance(constant, types.CodeType):
            names |= names_of(constant)
        elif isinstance(constant, str) and len(constant) < 256:
            names.update(constant.split("."))
    return frozenset(names)


def _constants(constants: Iterable[Any]) -> Iterator[Any]:
    for one in constants:
        if isinstance(one, (tuple, frozenset)):
            yield from _constants(one)
        else:
            yield one


@functools.lru_cache(4096)
def imports_of(code: types.CodeType) -> Tuple[Tuple[int, str, Tuple[str, ...]], ...]:
    """The imports of code and of the code within it: level, module, names."""
    import dis

    found: List[Tuple[int, str, Tuple[str, ...]]] = []
    last: List[Any] = [None, None]
    for one in dis.get_instructions(code):
        if one.opname == "IMPORT_NAME":
            level, names = last
            found.append((level or 0, one.argval, tuple(names or ())))
        if "LOAD" in one.opname:
            last = [last[1], one.argval]
    dynamic = not _IMPORTERS.isdisjoint(code.co_names)
    for constant in _constants(code.co_consts):
        if isinstance(constant, types.CodeType):
            found += imports_of(constant)
        elif dynamic and isinstance(constant, str):
            if all(part.isidentifier() for part in constant.split(".")):
                found.append((0, constant, ()))
    return tuple(found)


_IMPORTERS = frozenset(("import_module", "__import__"))
