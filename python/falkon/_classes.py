"""Classes that go by value: one class in a worker, whatever its state when it was sent.

cloudpickle gives each class an identity, so that a class is one in all that a process
is sent, and sets its attributes anew with each pickle. So the last pickle that came
decides what the class is, also for calls that were made before it changed, and, in
values that come back, for the process that has defined it. Here a pickle says which
state of the class it needs; workers give the class that state for the call
(``falkon_taken.define``), and classes of this process stay as they are.
"""

import functools
import io
import pickle
import weakref
from typing import Any, Callable, Optional, Tuple

from ._references import define
from ._unchanged import Facts, facts_of_class

CLASSES_MAX = 4096
"""Classes whose state is known."""
SET_STATE = b"_class_setstate"
"""In pickles that set the state of a class."""

_states: "weakref.WeakKeyDictionary[type, Tuple[Optional[Facts], bytes]]"
_states = weakref.WeakKeyDictionary()
_sent: "weakref.WeakSet[type]" = weakref.WeakSet()
"""Classes of this process that others were sent."""


def dumps(value: Any) -> bytes:
    """A pickle in which what others cannot import goes by value."""
    with io.BytesIO() as file:
        _pickler()(file, protocol=5).dump(value)
        return file.getvalue()


def loads(data: bytes) -> Any:
    """Loads a pickle of another process; classes of this one stay as they are."""
    if SET_STATE in data:
        return Unpickler(io.BytesIO(data)).load()
    return pickle.loads(data)


@functools.lru_cache(None)
def _pickler() -> Any:
    import cloudpickle

    set_state = getattr(cloudpickle.cloudpickle, "_class_setstate", None)

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            made = super().reducer_override(value)
            if type(made) is tuple and len(made) == 6 and made[5] is set_state:
                _sent.add(value)
                state = _state_of(value), made[2], value.__bases__
                return (*made[:2], state, *made[3:5], define)
            return made

    return Pickler


def _state_of(kind: type) -> bytes:
    """A tag that tells a state of a class from others."""
    known = _states.get(kind)
    if known is not None and known[0] is not None and known[0].hold(kind):
        return known[1]
    import hashlib

    import cloudpickle

    facts = facts_of_class(kind)
    made = hashlib.sha256(cloudpickle.dumps(kind, protocol=5)).digest()[:16]
    if len(_states) >= CLASSES_MAX:
        _states.clear()
    _states[kind] = facts, made
    return made


class Unpickler(pickle.Unpickler):
    """For pickles of other processes."""

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if name == "_class_setstate" and module.partition(".")[0] == "cloudpickle":
            return functools.partial(_set_state, found)
        return found


def _set_state(set_state: Callable[[Any, Any], Any], kind: Any, state: Any) -> Any:
    return kind if kind in _sent else set_state(kind, state)
