"""The arguments of calls: payloads, whose first byte says their form, and the references
in them, which give values here."""

import json
import os
import pickle
import struct
import sys

from . import objects
from .messages import unpack
from .objects import OBJECT, Objects
from .pickles import PICKLED, loads

VALUES, GIVEN = ord("v"), ord("g")
"""The first byte of payloads with values of other calls in front."""
DIRECTORY = ord("d")
"""The first byte of payloads of calls that have a directory of their own."""
BEFORE_ARGUMENTS = frozenset((VALUES, GIVEN, DIRECTORY))

_WORD = struct.Struct("<I")
_directory = ""
"""The directory of the call whose arguments are being read."""
_staged = Objects("")
"""Objects that come with calls, by their paths."""
_values = []
"""The values of other calls, for the call whose arguments are being read."""


def _strings(payload):
    args, _ = unpack(payload, 1)
    return [os.fsdecode(arg) for arg in args], {}


def _json(payload):
    arguments = json.loads(payload[1:])
    return arguments.get("args", ()), arguments.get("kwargs", {})


def _pickle(payload):
    return pickle.loads(memoryview(payload)[1:])


ARGUMENTS = {ord("s"): _strings, ord("j"): _json, PICKLED: _pickle}
"""From the first byte of a payload to how it is read."""


def _split_values(payload):
    """The values in front of a payload, in order, and the payload.

    Those that the dispatcher has put there come first. The client may have put
    others behind them, each with its place among all.
    """
    view, at = memoryview(payload), 0
    values, given = [], {}
    if payload[0] == VALUES:
        (count,) = _WORD.unpack_from(payload, 1)
        at = 5 + 4 * count
        for length in struct.unpack_from("<%dI" % count, payload, 5):
            values.append(view[at : at + length])
            at += length
    if payload[at] == GIVEN:
        (count,) = _WORD.unpack_from(payload, at + 1)
        heads = struct.unpack_from("<%dI" % (2 * count), payload, at + 5)
        at += 5 + 8 * count
        for place, length in zip(heads[::2], heads[1::2]):
            given[place] = view[at : at + length]
            at += length
    if given:
        others = iter(values)
        places = range(len(values) + len(given))
        values = [given[place] if place in given else next(others) for place in places]
    return values, payload[at:]


def form_of_arguments(payload):
    """The form of the arguments behind what stands in front of them."""
    try:
        if payload[0] == DIRECTORY:
            payload = payload[5 + _WORD.unpack_from(payload, 1)[0] :]
        if payload:
            _, payload = _split_values(payload)
        return payload[0] if payload else 0
    except (struct.error, IndexError, StopIteration):
        return 0  # A payload that nobody can read has no form.


def arguments_with_values(payload):
    """Arguments that take values of other calls, and the form they have without."""
    global _directory, _values
    has_directory = payload[0] == DIRECTORY
    if has_directory:
        (length,) = _WORD.unpack_from(payload, 1)
        _directory = os.fsdecode(payload[5 : 5 + length])
        payload = payload[5 + length :]
    if payload:
        _values, payload = _split_values(payload)
    try:
        form = payload[0] if payload else 0
        if has_directory and form != PICKLED:
            _enter(_directory)
        return (ARGUMENTS[form](payload) if form else ((), {})), form
    finally:
        _values = []


def _enter(directory):
    """Has a call that is passed texts or JSON be where its data objects are, by their names,
    as a command is."""
    if sys.path[:1] == [""]:
        # Modules are found where they were.
        sys.path[0] = os.getcwd()
    os.chdir(directory)


# References.


def stored(name, shared):
    """An object; arguments refer to it so."""
    if objects.here is None:
        raise ValueError("an object is where this worker cannot read it")
    return objects.here.read(name, shared)


def staged(name, identity, shared):
    """An object that was brought to the call's directory."""
    path = os.path.join(_directory, name)
    return _staged.read(identity if shared else path, shared, path)


def file(name):
    """The path of a file that the call reads or writes."""
    import pathlib

    return pathlib.Path(_directory, name)


def taken(place):
    """The value of another call; arguments refer to it so."""
    data = _values[place]
    if not data:
        return None
    if data[0] == PICKLED:
        return loads(data[1:])
    if data[0] == OBJECT:
        return stored(str(data[1:], "utf-8"), False)
    if data[:1] == b"j":
        return json.loads(bytes(data[1:]))
    raise ValueError("of what a call returned that this one takes, there is only a text")


def given(value):
    """The value of a call that had ended when it was passed on."""
    return value
