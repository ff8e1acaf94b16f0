"""The executor and the run that make the calls of apps."""

import os
import threading
from typing import Any, Callable, Optional

from ._executor import Executor

_default: Optional[Executor] = None
_default_lock = threading.Lock()
run: Any = None
"""The run that is open."""


def use(executor: Optional[Executor]) -> None:
    """Has apps without an executor of their own use this one.

    Without it, or after ``use(None)``, the first call of an app starts what it
    needs on this machine; that ends with the interpreter, when all calls have
    ended.
    """
    global _default
    with _default_lock:
        _default = executor


def chosen_executor() -> Optional[Executor]:
    """The executor that apps without one of their own use, if there is one already."""
    return _default


def default_executor() -> Executor:
    """The executor that apps without one of their own use."""
    global _default
    if _default is not None:
        return _default
    with _default_lock:
        if _default is None:
            _default = Executor()
        return _default


def _forked() -> None:
    global _default, _default_lock, run
    _default, _default_lock, run = None, threading.Lock(), None


os.register_at_fork(after_in_child=_forked)


class InPlace:
    """A callable in a function's place: as an argument of a call it counts as that
    function."""

    function: Callable[..., Any]
    """The function itself."""
