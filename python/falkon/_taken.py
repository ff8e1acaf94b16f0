"""What pickled arguments name for a value of another call.

A worker has a module of this name of its own (worker.py), whose functions give
the values; these are never called.
"""

from typing import Any


def taken(place: int) -> Any:
    """The value of another call, in the order in which arguments name them."""
    raise RuntimeError("values of other calls are in workers alone")


def stored(name: str, shared: bool) -> Any:
    """What is too large to travel with a call; calls of a worker may share it."""
    raise RuntimeError("objects of calls are read by workers alone")


def staged(name: str, identity: str, shared: bool) -> Any:
    """What is too large to travel with a call, in the directory of the call."""
    raise RuntimeError("objects of calls are read by workers alone")


def file(name: str) -> Any:
    """The path of a file that a call reads or writes."""
    raise RuntimeError("files of calls are where workers are")


def given(value: Any) -> Any:
    """The value of a call that had ended when it was passed on."""
    return value
