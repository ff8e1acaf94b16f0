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


def _stored(name: str, shared: bool) -> Any:
    raise RuntimeError("objects of calls are read by workers alone")


def _staged(name: str, identity: str, shared: bool) -> Any:
    raise RuntimeError("objects of calls are read by workers alone")


def _file(name: str) -> Any:
    raise RuntimeError("files of calls are where workers are")


def _given(value: Any) -> Any:
    return value


def _define(kind: Any, state: Any) -> Any:
    return kind  # It is this process's own.


def _module() -> types.ModuleType:
    # Where a call imports this package, it is the worker's that is there.
    module = sys.modules.get(NAME)
    if module is None:
        module = sys.modules[NAME] = types.ModuleType(NAME)
        for function in (_taken, _given, _stored, _staged, _file, _define):
            name = function.__name__[1:]
            function.__module__ = NAME
            function.__name__ = function.__qualname__ = name
            setattr(module, name, function)
    return module


taken: Callable[[int], Any] = _module().taken
"""The value of another call, in the order in which arguments name them."""
given: Callable[[Any], Any] = _module().given
"""The value of a call that had ended when it was passed on."""
stored: Callable[[str, bool], Any] = _module().stored
"""What is too large to travel with a call; calls of a worker may share it."""
staged: Callable[[str, str, bool], Any] = _module().staged
"""Such a thing in the directory of the call."""
file: Callable[[str], Any] = _module().file
"""The path of a file that a call reads or writes."""
define: Callable[[Any, Any], Any] = _module().define
"""Gives a class that goes by value a state."""
