"""The modules that calls are expected to import: those of this process that are installed.

Workers of one environment are copies of a template that has imported it
(docs/python-start.md). What is foreseen wrongly costs the template time and memory, and what
is not foreseen is imported where it is needed; neither changes what a call gives.
"""

import sys
import types
from typing import Any, Iterator, List, Set

NAMES_BYTES_MAX = 16 << 10
"""Names travel with functions."""
OWN_MODULES_MAX = 500
"""Modules of one's own that are looked through."""
_NOT_CALLED = frozenset(("falkon", "msgspec", "IPython", "ipykernel", "pip", "setuptools"))
"""Packages that belong to this side."""


def foreseen() -> str:
    """Names of modules, separated by commas, in the order in which they were loaded."""
    packages = {"cloudpickle"}
    modules: Set[str] = {"cloudpickle"}
    for space in _own_spaces():
        for name, value in space:
            if name.startswith("_"):
                continue
            if type(value) is types.ModuleType:
                modules.add(value.__name__)
                packages.add(value.__name__.partition(".")[0])
            else:
                is_named = isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType))
                module = getattr(value if is_named else type(value), "__module__", None)
                if type(module) is str:
                    packages.add(module.partition(".")[0])
    packages = {name for name in packages - _NOT_CALLED if _is_installed(sys.modules.get(name))}
    packages.add("cloudpickle")
    names: List[str] = []
    room = NAMES_BYTES_MAX
    for name in ("cloudpickle", *list(sys.modules)):
        package, _, rest = name.partition(".")
        if package not in packages or name in names[:1]:
            continue
        if name not in modules and ("." in rest or rest.startswith(("_", "test", "conftest"))):
            continue
        room -= len(name) + 1
        if room < 0:
            break
        names.append(name)
    return ",".join(names)


def _own_spaces() -> Iterator[List[Any]]:
    """The names that modules which are not installed refer to."""
    count = 0
    for name, module in list(sys.modules.items()):
        if type(module) is not types.ModuleType or name.partition(".")[0] in _NOT_CALLED:
            continue
        if name != "__main__":
            file = getattr(module, "__file__", None)
            if type(file) is not str or _is_installed(module) or file.startswith(_OF_PYTHON):
                continue
        count += 1
        if count > OWN_MODULES_MAX:
            return
        yield list(module.__dict__.items())


def _is_installed(module: Any) -> bool:
    file = getattr(module, "__file__", None)
    return type(file) is str and ("/site-packages/" in file or "/dist-packages/" in file)


_OF_PYTHON = types.__file__.rpartition("/")[0] + "/"
