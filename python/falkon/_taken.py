"""What pickled arguments name for a value of another call.

A worker has a module of the name ``falkon_taken`` of its own (worker.py), whose
functions give the values; here they are never called. The name has no dot: a
module in this package would have workers import the package first, which they need
not have.
"""

import sys
import types
from typing import Any, Callable

NAME = "falkon_taken"


def _taken(place: int) -> Any:
    raise RuntimeError("values of other calls are in workers alone")


def _given(value: Any) -> Any:
    return value


def _module() -> types.ModuleType:
    # Where a call imports this package, it is the worker's that is there.
    module = sys.modules.get(NAME)
    if module is None:
        module = sys.modules[NAME] = types.ModuleType(NAME)
        for name, function in (("taken", _taken), ("given", _given)):
            function.__module__ = NAME
            function.__name__ = function.__qualname__ = name
            setattr(module, name, function)
    return module


taken: Callable[[int], Any] = _module().taken
"""The value of another call, in the order in which arguments name them."""
given: Callable[[Any], Any] = _module().given
"""The value of a call that had ended when it was passed on."""
