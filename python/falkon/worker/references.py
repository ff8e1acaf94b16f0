"""The module ``falkon_taken``, whose functions pickles name."""

import sys
import types

from .arguments import file, given, staged, stored, taken
from .changes import settle
from .failures import InitializerFailed, VersionMismatch
from .pickles import define
from .values import keep


def make_importable():
    """Has arguments that refer to values of other calls find them here, also
    where Falkon's package is not installed."""
    module = types.ModuleType("falkon_taken")
    functions = (taken, given, stored, staged, file, keep, settle, define)
    for known in functions + (InitializerFailed, VersionMismatch):
        known.__module__ = module.__name__
        setattr(module, known.__name__, known)
    sys.modules[module.__name__] = module
