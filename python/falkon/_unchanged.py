"""Whether something would be pickled as it was.

Pickling a function with what it refers to takes as long as many short calls. So its
pickle is kept, and with it the *facts* that it was made from: which code, constants,
globals, cells, attributes and modules there were. Reading these again takes a
microsecond. As long as each is the very same object, the pickle would be the same.

Facts cover what cannot change in place, and containers and plain objects by what they
hold. A function that refers to anything else has no facts, and is pickled each time.
"""

import builtins
import copyreg
import functools
import sys
import types
from itertools import repeat
from operator import attrgetter, is_
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Optional, Sequence, Set, Tuple

OBJECTS_MAX = 512
"""A function that refers to more objects than this is pickled each time: reading as many again
would take as long."""

_ATOMS = frozenset(
    (int, float, complex, str, bytes, bool, type(None), range, type(...), type(NotImplemented))
)
_NAMED_ATOMS = frozenset(
    (
        "pathlib.PosixPath", "pathlib.PurePosixPath", "pathlib._local.PosixPath",
        "pathlib._local.PurePosixPath", "datetime.date", "datetime.time", "datetime.datetime",
        "datetime.timedelta", "datetime.timezone", "decimal.Decimal", "fractions.Fraction",
        "uuid.UUID", "re.Pattern",
    )
)  # fmt: skip
"""Classes of modules that need not be loaded, whose objects do not change."""
DESCRIPTORS = frozenset(
    (
        types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
        types.GetSetDescriptorType, types.MemberDescriptorType,
    )
)  # fmt: skip
_GLOBAL = frozenset(
    ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
)
_NAMED = (type(functools.lru_cache(None)(len)), types.BuiltinFunctionType)
_MISSING = object()

_function_fields = attrgetter(
    "__code__", "__defaults__", "__kwdefaults__", "__doc__", "__name__", "__qualname__", "__module__",
    "__dict__", "__annotations__",
)  # fmt: skip
_class_fields = attrgetter("__bases__", "__name__", "__qualname__")

Fact = Callable[[], bool]


class _Changing(Exception):
    """Something can change without a fact that would tell."""


@functools.lru_cache(4096)
def global_names(code: types.CodeType) -> FrozenSet[str]:
    """The names that code and the code within it look up among globals."""
    import dis

    names: Set[str] = {one.argval for one in dis.get_instructions(code) if one.opname in _GLOBAL}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= global_names(constant)
    return frozenset(names)


def is_importable(value: Any) -> bool:
    """Whether workers find a function, a class or a module by its name."""
    if type(value) is types.ModuleType:
        return sys.modules.get(value.__name__) is value
    module = getattr(value, "__module__", None)
    if type(module) is not str or module == "__main__" or isinstance(value, types.MethodType):
        return False
    found: Any = sys.modules.get(module, _MISSING)
    for part in getattr(value, "__qualname__", "").split("."):
        found = getattr(found, part, _MISSING)
    return found is value


class Facts:
    """The facts that the pickle of a function was made from."""

    __slots__ = ("_fields", "_facts")

    def __init__(self, fields: Optional[Tuple[Any, ...]], facts: Sequence[Fact]):
        # The function itself is not referred to: facts must not keep it.
        self._fields = fields
        self._facts = facts

    def hold(self, function: Any) -> bool:
        """Whether its pickle would be the same."""
        fields = self._fields
        try:
            if fields is None:
                if not is_importable(function):
                    return False
            elif fields and not all(map(is_, _function_fields(function), fields)):
                return False
            for fact in self._facts:
                if not fact():
                    return False
        except Exception:  # An attribute is gone, a cell is empty, a dict is being changed.
            return False
        return True


def facts_of(function: Any, by_name: Callable[[Any], bool] = is_importable) -> Optional[Facts]:
    """The facts that the pickle of a function would be made from now; ``None`` if
    they would not tell each change of it. To be asked for before it is pickled, so
    that a change in between is noticed. ``by_name`` says whether a function, a class
    or a module counts by its name alone."""
    collected = _Collected(function, by_name)
    try:
        if by_name(function):
            collected.is_by_name()
            return Facts(None, collected.facts)
        if type(function) is not types.FunctionType:
            return None
        fields = _function_fields(function)
        collected.function(function)
    except (_Changing, AttributeError, ValueError, RecursionError, RuntimeError):
        return None
    except Exception:
        return None  # From an attribute of another's class.
    if collected.meets_root and "<locals>" in function.__qualname__:
        return None  # The facts would keep it for ever.
    return Facts(fields, collected.facts)


def facts_of_class(kind: Any) -> Optional[Facts]:
    """The facts that the pickle of a class would be made from, if it goes by value."""
    collected = _Collected(None, is_importable)
    try:
        collected.value(kind)
    except Exception:
        return None
    return Facts((), collected.facts)


class _Collected:
    """Facts, as they are being collected."""

    def __init__(self, root: Any, by_name: Callable[[Any], bool]) -> None:
        self.facts: List[Fact] = []
        self.meets_root = False
        self._root = root
        self._by_name = by_name
        self._seen: Dict[int, Any] = {}
        self._names = False

    def is_by_name(self) -> None:
        """Something goes by name, which none does if its module is registered."""
        if self._names:
            return
        self._names = True
        import cloudpickle

        registered = cloudpickle.list_registry_pickle_by_value
        if registered():
            raise _Changing
        self.facts.append(lambda: not registered())

    def all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.value(value)

    def value(self, value: Any) -> None:
        """Adds the facts about a value."""
        kind = type(value)
        if kind in _ATOMS or kind in DESCRIPTORS:
            return
        if value is self._root:
            self.meets_root = True
            return
        if id(value) in self._seen:
            return
        if len(self._seen) >= OBJECTS_MAX:
            raise _Changing
        self._seen[id(value)] = value
        if kind is tuple or kind is frozenset:
            self.all(value)
        elif kind is types.ModuleType:
            self._module(value)
        elif kind is types.FunctionType:
            if self._by_name(value):
                self._importable(value)
            else:
                self._fields(value, _function_fields)
                self.function(value)
        elif isinstance(value, type):
            self._type(value)
        elif kind in _NAMED:
            self._builtin(value)
        elif kind is list or kind is set:
            self._items(value)
        elif kind is dict or kind is types.MappingProxyType:
            self.mapping(value)
        elif kind is staticmethod or kind is classmethod:
            self.value(value.__func__)
            self._fields(value, attrgetter("__func__", "__dict__"))
            self.mapping(value.__dict__)
        elif kind is property:
            fields = self._fields(value, attrgetter("fget", "fset", "fdel", "__doc__"))
            self.all(fields)
        elif kind is functools.partial:
            self.all((value.func, value.args))
            self._fields(value, attrgetter("func", "args", "keywords", "__dict__"))
            self.mapping(value.keywords)
            self.mapping(value.__dict__)
        elif _is_named_atom(kind):
            pass
        else:
            self._plain(value, kind)

    def _fields(self, holder: Any, read: Callable[[Any], Tuple[Any, ...]]) -> Tuple[Any, ...]:
        before = read(holder)
        self.facts.append(lambda: all(map(is_, read(holder), before)))
        return before

    def mapping(self, value: Any) -> None:
        """The items of a dict, in its order."""
        values = self._entries(value)
        self.all(value)
        self.all(values)

    def _entries(self, value: Any) -> Tuple[Any, ...]:
        """The keys and values of a dict, whatever these hold."""
        keys, values = tuple(value), tuple(value.values())
        count = len(keys)
        if not count:
            self.facts.append(lambda: not value)
            return ()
        self.facts.append(
            lambda: (
                len(value) == count and all(map(is_, value, keys)) and all(map(is_, value.values(), values))
            )
        )
        return values

    def _items(self, value: Any) -> None:
        items = tuple(value)
        count = len(items)
        self.facts.append(lambda: len(value) == count and all(map(is_, value, items)))
        self.all(items)

    def _looked_up(self, space: Callable[..., Any], names: Sequence[str]) -> Tuple[Any, ...]:
        """The objects that names stand for, or that they stand for none."""
        names = tuple(names)
        found = tuple(map(space, names, repeat(_MISSING)))
        if names:
            self.facts.append(lambda: all(map(is_, map(space, names, repeat(_MISSING)), found)))
        return tuple(value for value in found if value is not _MISSING)

    def _module(self, module: Any) -> None:
        self.is_by_name()
        if not self._by_name(module):
            raise _Changing
        self._looked_up(sys.modules.get, (module.__name__,))
        self._fields(module, attrgetter("__name__", "__package__"))

    def _importable(self, value: Any) -> None:
        self.is_by_name()
        module, name = value.__module__, value.__qualname__
        self._looked_up(sys.modules.get, (module,))
        if "." in name:
            self.facts.append(lambda: is_importable(value))
        else:
            space = sys.modules[module].__dict__
            self.facts.append(lambda: value.__module__ is module and space.get(name) is value)

    def _builtin(self, value: Any) -> None:
        owner = getattr(value, "__self__", None)
        if isinstance(owner, types.ModuleType) or owner is None:
            if self._by_name(value):
                if owner is not builtins:
                    self._importable(value)
                return
        raise _Changing

    def _type(self, kind: Any) -> None:
        if self._by_name(kind):
            if kind.__module__ != "builtins":
                self._importable(kind)
            return
        # Of others what goes by value depends on the metaclass.
        if type(kind) is not type:
            raise _Changing
        self._fields(kind, _class_fields)
        copyreg._slotnames(kind)  # type: ignore[attr-defined]  # Pickling notes them there.
        self.all(kind.__bases__)
        self.mapping(vars(kind))

    def function(self, function: Any) -> None:
        """The objects that go by value with a function, without its fields."""
        self.value(function.__defaults__)
        if function.__kwdefaults__:
            self.mapping(function.__kwdefaults__)
        self.mapping(function.__dict__)
        # Notes say what is meant; of classes, also what they are.
        values = self._entries(function.__annotations__)
        self.all(value for value in values if isinstance(value, type))
        referred: List[Any] = []
        cells = function.__closure__
        if cells:
            contents = [cell.cell_contents for cell in cells]
            self.facts.append(lambda: all(map(is_, map(_contents, cells), contents)))
            referred += contents
        space = function.__globals__
        names = (*sorted(global_names(function.__code__)), "__package__", "__name__", "__path__")
        referred += self._looked_up(space.get, (*names, "__file__"))
        self.all(referred)
        self._submodules(referred, function.__code__.co_names)

    def _submodules(self, referred: Iterable[Any], names: Sequence[str]) -> None:
        """The loaded submodules that code can name go with it."""
        packages = [one.__name__ for one in referred if isinstance(one, types.ModuleType)]
        while packages:
            places = ["%s.%s" % (packages[-1], name) for name in names]
            packages.pop()
            self._looked_up(sys.modules.get, places)
            packages += [place for place in places if place in sys.modules]

    def _plain(self, value: Any, kind: Any) -> None:
        """An object that is pickled as its class, its ``__dict__`` and its slots."""
        if not (
            kind.__reduce_ex__ is object.__reduce_ex__
            and kind.__reduce__ is object.__reduce__
            and kind.__getattribute__ is object.__getattribute__
            and kind.__new__ is object.__new__
            and getattr(kind, "__getstate__", None) is getattr(object, "__getstate__", None)
            and not hasattr(kind, "__getnewargs__")
            and not hasattr(kind, "__getnewargs_ex__")
            and kind not in copyreg.dispatch_table
            and not kind.__module__.partition(".")[0] == __name__.partition(".")[0]
        ):
            raise _Changing
        held = getattr(value, "__dict__", None)
        self.facts.append(lambda: type(value) is kind and getattr(value, "__dict__", None) is held)
        self.value(kind)
        if held is not None:
            self.mapping(held)
        slots: Sequence[str] = copyreg._slotnames(kind)  # type: ignore[attr-defined]
        if slots:
            read = functools.partial(getattr, value)
            self.all(self._looked_up(read, slots))


_contents = attrgetter("cell_contents")


def _is_named_atom(kind: Any) -> bool:
    name = "%s.%s" % (kind.__module__, kind.__qualname__)
    return name in _NAMED_ATOMS and is_importable(kind)
