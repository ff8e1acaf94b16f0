"""Functions, arguments and outcomes as bytes, and back."""

import functools
import pickle
import sys
import types
import weakref
from typing import TYPE_CHECKING, Any, Callable, Optional, Tuple

from . import _remote, _versions
from ._errors import RemoteError, RemoteTraceback

if TYPE_CHECKING:
    from .worker import Pickled

PICKLED = b"p"
"""The first byte of payloads, values and code that are pickles (docs/workers.md)."""

_PLAIN = (int, float, complex, str, bytes, bool, type(None), types.ModuleType, type, range)
_PLAIN_CALLABLE = (types.BuiltinFunctionType, types.MethodDescriptorType)


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
        return _versions.checked(cloudpickle.dumps(value, protocol=5))
    finally:
        cloudpickle.unregister_pickle_by_value(_remote)


def _by_value(value: Any) -> bytes:
    import cloudpickle

    return _versions.checked(cloudpickle.dumps(value, protocol=5))


class Functions:
    """Functions as code, which is made once for each as long as that is safe.

    A function that a worker can import is named. Any other is pickled with what
    it refers to, and again when that may have changed: when it refers to another
    object, or to one that can change in place.
    """

    def __init__(self) -> None:
        self._known: "weakref.WeakKeyDictionary[Any, Tuple[Any, bytes]]" = (
            weakref.WeakKeyDictionary()
        )

    def code(self, function: Any, wrap: Optional[Callable[[Any], Any]] = None) -> bytes:
        """The code of a function, with ``wrap`` around it."""
        try:
            known = self._known.get(function)
        except TypeError:
            known = None
        if known is not None:
            captured, code = known
            if captured is None or _same(captured, _captured(function)):
                return code
        if wrap is None:
            code = PICKLED + _versions.code(dumps(function))
        else:
            code = PICKLED + _versions.code(_ours_by_value(wrap(function)))
        importable = _is_importable(function)
        captured = None if importable else _captured(function)
        if importable or captured is not None:
            try:
                self._known[function] = (captured, code)
            except TypeError:
                pass  # What cannot be referred to weakly is pickled each time.
        return code

    def chunk_code(self, function: Any, wrap: Optional[Callable[[Any], Any]] = None) -> bytes:
        """The code of a function that calls it for each tuple of a list."""
        inner = function if wrap is None else wrap(function)
        by_value = _ours_by_value(functools.partial(_remote.call_chunk, inner))
        return PICKLED + _versions.code(by_value)


def _is_importable(function: Any) -> bool:
    module = getattr(function, "__module__", None)
    if module is None or module == "__main__" or isinstance(function, types.MethodType):
        return False
    found: Any = sys.modules.get(module)
    for part in getattr(function, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    return found is function


def _same(before: Optional[Tuple[Any, ...]], now: Optional[Tuple[Any, ...]]) -> bool:
    return (
        before is not None
        and now is not None
        and len(before) == len(now)
        and all(a is b for a, b in zip(before, now))
    )


def _captured(function: Any, depth: int = 0) -> Optional[Tuple[Any, ...]]:
    """What a function refers to; ``None`` if some of it can change in place."""
    if type(function) is not types.FunctionType or depth > 8:
        return None
    found = [function.__code__]
    values = list(function.__defaults__ or ())
    values += (function.__kwdefaults__ or {}).values()
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:
            return None
    names = list(function.__code__.co_names)
    for constant in function.__code__.co_consts:
        if isinstance(constant, types.CodeType):
            names += constant.co_names
    space = function.__globals__
    values += [space[name] for name in names if name in space]
    for value in values:
        found.append(value)
        if isinstance(value, types.FunctionType):
            if value is function or _is_importable(value):
                continue
            inner = _captured(value, depth + 1)
            if inner is None:
                return None
            found += inner
        elif not isinstance(value, _PLAIN + _PLAIN_CALLABLE):
            return None
    return tuple(found)


def value_of(data: bytes) -> Any:
    """What a call returned."""
    if not data:
        return None
    if data[:1] != PICKLED:
        raise RemoteError("the worker returned a value in a form that is not known here")
    return pickle.loads(memoryview(data)[1:])


def exception_of(data: bytes, text: str) -> BaseException:
    """What a call raised: the exception itself if it can be brought here, with
    its traceback there as the cause."""
    try:
        raised = pickle.loads(memoryview(data)[1:]) if data[:1] == PICKLED else None
    except BaseException:
        raised = None
    if not isinstance(raised, BaseException):
        return RemoteError(text)
    raised.__cause__ = RemoteTraceback(text)
    return raised
