"""Workers of another Python, or with another cloudpickle: found out and named.

What goes by value holds byte code, which one minor version of Python understands,
and names parts of cloudpickle, which change. Such a pickle is wrapped into one
that any worker can load: it carries the text of a function that compares
versions and then loads the rest. What is pickled by its name alone works
everywhere and is not wrapped.
"""

import functools
import re
import struct
import sys
from typing import Tuple

_LOADER = """
import sys, types

def load(data):
    import pickle
    python = "%%d.%%d" %% sys.version_info[:2]
    error = None
    if python == %(python)r:
        try:
            return pickle.loads(data)
        except Exception as raised:
            error = raised
    try:
        import cloudpickle
        theirs = cloudpickle.__version__
    except ImportError:
        theirs = None
    if error is not None:
        if theirs == %(cloudpickle)r:
            raise error
        if isinstance(error, ImportError) and error.name != "cloudpickle":
            raise error
    kind = getattr(sys.modules.get("falkon_taken"), "VersionMismatch", RuntimeError)
    raise kind(
        "the worker runs Python " + python
        + (" without cloudpickle" if theirs is None else " with cloudpickle " + theirs)
        + ", this client Python %(python)s with cloudpickle %(cloudpickle)s, and what was sent "
        "goes by value: start the executor with --worker python=PATH, an interpreter of "
        "Python %(python)s that has cloudpickle %(cloudpickle)s, or have what is called in a "
        "module that both can import"
        + ("" if error is None else " (%%s: %%s)" %% (type(error).__name__, error))
    ) from None

sys.modules[%(module)r] = module = types.ModuleType(%(module)r)
module.load = load
"""

_INT = struct.Struct("<I")


def _text(value: str) -> bytes:
    data = value.encode()
    return b"X" + _INT.pack(len(data)) + data


@functools.lru_cache(None)
def _operations() -> Tuple[bytes, bytes]:
    """Operations of a pickle: those that make the module with the function, if
    the worker does not have it, and those that put the function on the stack."""
    import cloudpickle

    python = "%d.%d" % sys.version_info[:2]
    module = "falkon_loader_" + re.sub(r"\W", "_", python + "_" + cloudpickle.__version__)
    values = {"python": python, "cloudpickle": cloudpickle.__version__, "module": module}
    source = _LOADER % values
    # A pickle of this process can be loaded here.
    exec(source, {})
    # A short text, for it is compiled for each function.
    check = "import sys\nif %r not in sys.modules: exec(source)" % module
    make = (
        b"\x80\x03cbuiltins\nexec\n" + _text(check)
        + b"}" + _text("source") + _text(source) + b"s\x86R0"
    )  # fmt: skip
    return make, b"\x80\x03c" + module.encode() + b"\nload\n"


def checked(data: bytes) -> bytes:
    """A pickle that loads this one, unless the versions there are others. The
    worker has loaded code before (:func:`code`)."""
    return _operations()[1] + b"B" + _INT.pack(len(data)) + data + b"\x85R."


def code(data: bytes) -> bytes:
    """The pickle of a function, which prepares the worker for others."""
    return _operations()[0] + data
