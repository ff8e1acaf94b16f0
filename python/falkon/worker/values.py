"""The values of calls, as bytes."""

import json
import os

from . import objects
from .objects import Pickled
from .pickles import PICKLED, dump

VALUE_BYTES_MAX = 8 << 20
"""A longer value is left in a file, of which the executor makes an object."""
NEVER_LARGE = frozenset((bool, int, float, complex, type(None)))

_left, _left_prefix = 0, ""
"""Values that were left in files, and how the files' names begin."""


def encode_value(value, form):
    """The value of a call with a payload of this form, as bytes."""
    if form == PICKLED:
        if type(value) in NEVER_LARGE:
            return b"p" + dump(value)
        return _value(value) if objects.here is None else objects.here.encode(value)
    try:
        return b"j" + json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except Exception:
        return b"r" + repr(value).encode("utf-8", "backslashreplace")


class Left:
    """A value that is in a file."""

    def __init__(self, pickled):
        global _left
        _left += 1
        self.path = "%s.%d" % (_left_prefix, _left)
        try:
            pickled.write(self.path)
        except OSError as error:
            raise OSError(
                error.errno,
                "it returned %d bytes, which could not be written for the executor's cache: %s"
                % (pickled.length(), error.strerror),
                self.path,
            ) from None


def leave_at(prefix):
    """Says how the names begin of files that values are left in."""
    global _left_prefix
    _left_prefix = prefix


def _value(value):
    """The value of a call, where no folder is shared with its caller: a pickle, or a file if that
    is too long to be sent."""
    pickled = Pickled(value, dump)
    if pickled.length() > VALUE_BYTES_MAX:
        return Left(pickled)
    return b"p" + (dump(value) if pickled.buffers else pickled.data)


def keep(value, path):
    """Leaves what a call returned in a file."""
    Pickled(value, dump).write(os.fspath(path))
