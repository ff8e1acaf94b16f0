"""Functions, arguments and outcomes as bytes, and back."""

import functools
import pickle
import types
import weakref
from typing import TYPE_CHECKING, Any, Callable, Optional, Tuple

from . import _classes, _remote, _versions
from ._errors import RemoteError, RemoteTraceback
from ._unchanged import Facts, facts_of

if TYPE_CHECKING:
    from .worker.objects import Pickled

PICKLED = b"p"
"""The first byte of payloads, values and code that are pickles (docs/workers.md)."""

FUNCTIONS_MAX = 4096
"""Functions whose code is kept."""


def dumps(value: Any, into: Optional["Pickled"] = None) -> bytes:
    """Pickles: what is defined in ``__main__`` or has no name goes by value.
    ``into`` takes large buffers, but of what goes by value."""
    try:
        if into is None:
            data = pickle.dumps(value, protocol=5)
        else:
            data = pickle.dumps(value, protocol=5, buffer_callback=into.start())
        # A worker's __main__ is another one.
        if b"__main__" not in data:
            return data
    except Exception:
        pass
    if into is not None:
        into.start()
    return _by_value(value)


def _ours_by_value(value: Any) -> bytes:
    """With what workers run around functions: they may not have this package."""
    import cloudpickle

    cloudpickle.register_pickle_by_value(_remote)
    try:
        return _versions.checked(_classes.dumps(value))
    finally:
        cloudpickle.unregister_pickle_by_value(_remote)


@functools.lru_cache(None)
def applying() -> bytes:
    """The code of a function that calls its first argument with the others."""
    return PICKLED + _versions.code(_ours_by_value(_remote.apply))


def _by_value(value: Any) -> bytes:
    return _versions.checked(_classes.dumps(value))


class Functions:
    """Functions as code.

    A function that a worker can import is named. Any other is pickled with what
    it refers to. The code of one is made again unless it would be the same
    (``_unchanged.py``).
    """

    def __init__(self) -> None:
        self._known: "weakref.WeakKeyDictionary[Any, Tuple[Optional[Facts], bytes]]" = (
            weakref.WeakKeyDictionary()
        )

    def code(self, function: Any, wrap: Optional[Callable[[Any], Any]] = None) -> bytes:
        """The code of a function, with ``wrap`` around it."""
        # Objects of other classes may claim to equal another one.
        has_facts = type(function) in _WITH_FACTS
        known = self._known.get(function) if has_facts else None
        facts: Optional[Facts] = None
        if known is not None:
            facts, code = known
            if facts is not None and facts.hold(function):
                return code
        if has_facts and (known is None or facts is not None):
            facts = facts_of(function)
        if wrap is None:
            code = PICKLED + _versions.code(dumps(function))
        else:
            code = PICKLED + _versions.code(_ours_by_value(wrap(function)))
        if has_facts:
            if len(self._known) >= FUNCTIONS_MAX:
                self._known.clear()
            self._known[function] = (facts, code)
        return code

    def chunk_code(self, function: Any, wrap: Optional[Callable[[Any], Any]] = None) -> bytes:
        """The code of a function that calls it for each tuple of a list."""
        calls = functools.partial(_remote.call_chunk, function)
        by_value = _ours_by_value(calls if wrap is None else wrap(calls))
        return PICKLED + _versions.code(by_value)


_WITH_FACTS = (types.FunctionType, types.BuiltinFunctionType, type)


def value_of(data: bytes) -> Any:
    """The value of a call."""
    if not data:
        return None
    if data[:1] != PICKLED:
        raise RemoteError("the worker returned a value in a form that is not known here")
    return _classes.loads(data[1:])


def exception_of(data: bytes, text: str) -> BaseException:
    """The exception that a call raised, with its traceback there as the cause, if it can be
    unpickled here; a :class:`RemoteError` otherwise."""
    try:
        raised = _classes.loads(data[1:]) if data[:1] == PICKLED else None
    except BaseException:
        raised = None
    if not isinstance(raised, BaseException):
        return RemoteError(text)
    raised.__cause__ = RemoteTraceback(text)
    return raised
