"""Pickles of values, and the classes that go by value in them.

A class is one class in all pickles that come here, and has the state that the call was
made with: pickles with other states may have come since.
"""

import io
import pickle
import sys
import weakref

PICKLED = ord("p")
"""The first byte of payloads and values that are pickles."""
SET_STATE = "_class_setstate"


_states = weakref.WeakKeyDictionary()
"""The states that classes have: a tag that tells each from others, and its attributes."""
_noted = None
"""The classes, with their states, of the function that is being loaded."""


def define(kind, state):
    """Gives a class a state; pickles of clients refer to it so."""
    if _noted is not None:
        _noted.append((kind, state))
    give_state(kind, state)
    return kind


def load_noting(data):
    """Loads a pickle; returns the value, and the classes with their states that came with it."""
    global _noted
    _noted = noted = []
    try:
        return pickle.loads(data), noted
    finally:
        _noted = None


def give_state(kind, state):
    """Gives a class a state, unless it has that already."""
    tag, attributes, bases = state
    before = _states.get(kind, (None, ()))
    if before[0] == tag:
        return
    for name in before[1]:
        if name not in attributes[0] and name in vars(kind):
            delattr(kind, name)
    if kind.__bases__ != bases:
        kind.__bases__ = bases
    sys.modules["cloudpickle.cloudpickle"]._class_setstate(kind, attributes)
    _states[kind] = tag, tuple(attributes[0])


class Unpickler(pickle.Unpickler):
    """For what other workers have pickled: classes that are known here stay as they
    are."""

    def find_class(self, module, name):
        found = super().find_class(module, name)
        if name != SET_STATE or module.partition(".")[0] != "cloudpickle":
            return found
        return lambda kind, state: kind if kind in _states else found(kind, state)


def loads(data, buffers=None):
    """Loads a pickle that a worker may have made."""
    if SET_STATE.encode() in bytes(data):
        return Unpickler(io.BytesIO(data), buffers=buffers).load()
    return pickle.loads(data, buffers=buffers)


def dump(value, into=None):
    """A pickle; what has no name that others could find it by goes by value, if
    that can be done here. ``into`` takes large buffers."""
    protocol = pickle.HIGHEST_PROTOCOL
    try:
        data = pickle.dumps(value, protocol, buffer_callback=into and into.start())
        if b"__main__" not in data:
            return data
        import cloudpickle
    except ImportError:
        return data
    except Exception:
        try:
            import cloudpickle
        except ImportError:
            pass
        else:
            return cloudpickle.dumps(value, buffer_callback=into and into.start())
        raise
    return cloudpickle.dumps(value, buffer_callback=into and into.start())
