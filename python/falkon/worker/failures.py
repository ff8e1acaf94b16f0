"""Why calls did not return, and what is reported of that."""

import importlib
import os
import traceback

from .pickles import PICKLED, dump, loads

RAISED, INITIALIZER_FAILED, VERSION_MISMATCH = 0, 1, 2
"""Causes, as the executor knows them."""
ERROR_CHARS_MAX = 65536
OWN_FRAMES = (os.path.dirname(__file__), importlib.__file__, "<frozen importlib")
"""Files that a traceback does not begin with."""

outer = None
"""The exception that a client handled when it was forked."""


class InitializerFailed(RuntimeError):
    """An initializer raised; the text is its traceback."""


class VersionMismatch(RuntimeError):
    """A pickle needs another Python or another cloudpickle; the text names them."""


def separate(exception):
    """A call's exception was not raised while the client handled something."""
    while exception.__context__ is not None:
        if exception.__context__ is outer:
            exception.__context__ = None
        else:
            exception = exception.__context__


def failure(exception):
    """The exit code, the text and the cause for a call that did not return."""
    if isinstance(exception, SystemExit):
        code = exception.code
        if code is None:
            return 0, "", None
        if isinstance(code, int):
            return code & 0xFF, "", None
        return 1, str(code)[-ERROR_CHARS_MAX:], None
    if isinstance(exception, InitializerFailed):
        said = str(exception)[-ERROR_CHARS_MAX:]
        return 1, "the initializer raised\n" + said, INITIALIZER_FAILED
    if isinstance(exception, VersionMismatch):
        return 1, str(exception)[-ERROR_CHARS_MAX:], VERSION_MISMATCH
    return 1, describe(exception), RAISED


def encode_raised(exception, form):
    """The exception that a call raised, as bytes; empty if its caller cannot make use of it."""
    if form != PICKLED or isinstance(exception, (InitializerFailed, VersionMismatch)):
        return b""
    try:
        data = dump(exception)
        # Many exceptions are pickled and cannot be made from that.
        loads(data)
    except BaseException:
        return b""
    return b"p" + data


def describe(exception):
    """A traceback without the frames of this program and what it imports with."""
    frames = exception.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(OWN_FRAMES):
        frames = frames.tb_next
    try:
        lines = traceback.format_exception(type(exception), exception, frames)
        text = "".join(lines).rstrip("\n")
    except Exception as trouble:
        text = "%s (its text cannot be had: %s)" % (type(exception).__name__, trouble)
    return text[-ERROR_CHARS_MAX:]
