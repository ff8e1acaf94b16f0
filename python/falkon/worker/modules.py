"""Modules that may be edited while a worker is there."""

import os
import time
from importlib import machinery

RACY_NS = 100_000_000
"""A file that was written to a shorter time ago may be written to again without
another time."""
OF_PYTHON = os.path.dirname(os.__file__) + os.sep

_loaded = {}
"""The files of modules that are not installed: what they were when they were loaded."""
_installed = None
"""The files of modules that are installed, in a template."""


def _state(path):
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev


def _content(path):
    import hashlib

    with open(path, "rb") as file:
        return hashlib.md5(file.read()).digest()


def _note_loaded(path):
    """A module is about to be read."""
    if path.startswith(OF_PYTHON) and not is_installed(path):
        return
    try:
        if is_installed(path):
            if _installed is not None:
                _installed[path] = _state(path)
            return
        state = _state(path)
        is_racy = time.time_ns() - state[1] < RACY_NS
        _loaded[path] = [state, _content(path) if is_racy else None]
    except OSError:
        pass  # The module is not read either.


def is_installed(path):
    """Whether a module's file belongs to what is installed, beside Python itself."""
    return "/site-packages/" in path or "/dist-packages/" in path


def watch_modules():
    for loader, name in (
        (machinery.SourceFileLoader, "path_stats"),
        (machinery.ExtensionFileLoader, "create_module"),
    ):
        _watch_loader(loader, name, getattr(loader, name))


def _watch_loader(loader, name, function):
    def watched(self, asked):
        _note_loaded(self.path)
        return function(self, asked)

    setattr(loader, name, watched)


def have_modules_changed():
    """Whether a module would be another now if it were loaded."""
    for path, known in _loaded.items():
        state, content = known
        try:
            if _state(path) != state:
                return True
            if content is not None:
                if _content(path) != content:
                    return True
                if time.time_ns() - state[1] >= RACY_NS:
                    known[1] = None
        except OSError:
            return True
    return False


def note_installed(does):
    """Has files of installed modules noted as they are loaded from now on, or not."""
    global _installed
    _installed = {} if does else None


def have_installed_changed():
    """Whether an installed module that was noted would be another now."""
    try:
        return any(_state(path) != state for path, state in _installed.items())
    except OSError:
        return True


def forget_loaded():
    """Takes what is loaded now as it is."""
    _loaded.clear()
