"""Changes that calls make in their process, and their undoing."""

import os
import sys
import types

from .modules import OF_PYTHON, is_installed

PACKAGES = ("falkon", "falkon_worker")
"""Packages that do not change the process for calls."""


changed = {}
"""How to undo what the call under way has changed of the process, by what it is."""
watched = {}
"""The functions that are watched, and what stands in their places."""
_IMPORT = "<frozen importlib._bootstrap>"
_calls = None
"""The code that calls functions."""


def _is_importing():
    """Whether a module that is being imported asks: what it does stays."""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_filename == _IMPORT:
            return True
        if code is _calls:
            return False
        frame = frame.f_back
    return False


def settle():
    """Keeps what was changed so far: that is what an initializer is for."""
    changed.clear()


def undo():
    """Makes the process what it was before the call. ``False`` if that cannot be
    done."""
    is_done = True
    while changed:
        # Timers first: what handles their signals may be undone as well.
        back = changed.pop("timers", None) or changed.popitem()[1]
        try:
            back()
        except Exception:
            is_done = False
    return is_done


def _watch(modules, name, note):
    """Has ``note`` called, with the function, before a function that changes the
    process; what it returns is called with the result."""
    found = [module for module in modules if hasattr(module, name)]
    if not found:
        return
    function = getattr(found[0], name)

    def stands_in(*args, **kwargs):
        if _is_importing():
            return function(*args, **kwargs)
        then = note(function, *args, **kwargs)
        result = function(*args, **kwargs)
        if then is not None:
            then(result)
        return result

    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(stands_in, attribute, getattr(function, attribute))
    for module in found:
        setattr(module, name, stands_in)
    watched[function] = stands_in
    for known in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks):
        if function in known:
            known.add(stands_in)


def watch_loaded():
    """Puts watched functions in their places in modules that were loaded before: in those of
    one's own."""
    for module_name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if type(path) is not str or is_installed(path) or path.startswith(OF_PYTHON):
            continue
        if module_name.partition(".")[0] in PACKAGES:
            continue  # Those do not call them for calls.
        for name, value in list(vars(module).items()):
            if type(value) is types.BuiltinFunctionType and value in watched:
                setattr(module, name, watched[value])


def watch_all(calls):
    """Watches all that changes the process for later calls. Looking at each after
    each call would take longer than a short call. ``calls`` is the code that calls
    functions."""
    import _posixsubprocess
    import _signal
    import posix
    import resource

    global _calls
    _calls = calls

    variables = os.environ._data
    set_variable, unset_variable = os.putenv, os.unsetenv

    def variable(_, name, *value):
        name = os.fsencode(name)
        before = variables.get(name)

        def back():
            if before is None:
                variables.pop(name, None)
                unset_variable(name)
            else:
                variables[name] = before
                set_variable(name, before)

        changed.setdefault(("variable", name), back)

    change_folder = os.fchdir

    def folder(*_):
        if "folder" in changed:
            return
        fd = os.open(".", os.O_RDONLY | getattr(os, "O_PATH", 0) | os.O_CLOEXEC)

        def back():
            try:
                change_folder(fd)
            finally:
                os.close(fd)

        changed["folder"] = back

    def mask(function, *_):
        return lambda before: changed.setdefault("mask", lambda: function(before))

    def handler(function, number, *_):
        def then(before):
            # A handler that C code has set is not known, and cannot be set.
            if before is not None:
                changed.setdefault(("handler", int(number)), lambda: function(number, before))

        return then

    set_timer = _signal.setitimer

    def timer(*_):
        def back():
            for which in (_signal.ITIMER_REAL, _signal.ITIMER_VIRTUAL, _signal.ITIMER_PROF):
                set_timer(which, 0)

        changed.setdefault("timers", back)

    def blocked(function, *_):
        return lambda before: changed.setdefault(
            "blocked", lambda: function(_signal.SIG_SETMASK, before)
        )

    def limit(function, which, *_):
        before = resource.getrlimit(which)
        changed.setdefault(("limit", which), lambda: set_limit(which, before))

    set_limit = resource.setrlimit

    def other_limit(_, pid, which, *limits):
        if limits and pid in (0, os.getpid()):
            limit(None, which)

    copy = os.dup2

    def stream(_, fd, target, *more, **named):
        if target in (1, 2) and ("stream", target) not in changed:
            kept = os.dup(target)

            def back():
                try:
                    copy(kept, target)
                finally:
                    os.close(kept)

            changed["stream", target] = back

    def child(*_, **__):
        changed.setdefault("child", lambda: None)

    for name in ("putenv", "unsetenv"):
        _watch((os, posix), name, variable)
        if hasattr(os.environ, name):  # Before Python 3.9.
            setattr(os.environ, name, getattr(os, name))
    for name in ("chdir", "fchdir"):
        _watch((os, posix), name, folder)
    _watch((os, posix), "umask", mask)
    _watch((os, posix), "dup2", stream)
    signals = [_signal, *filter(None, [sys.modules.get("signal")])]
    _watch([_signal], "signal", handler)
    _watch(signals, "pthread_sigmask", blocked)
    for name in ("alarm", "setitimer"):
        _watch(signals, name, timer)
    _watch([resource], "setrlimit", limit)
    _watch([resource], "prlimit", other_limit)
    for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system"):
        _watch((os, posix), name, child)
    _watch([_posixsubprocess], "fork_exec", child)
    if "subprocess" in sys.modules:
        _watch([sys.modules["subprocess"]], "_fork_exec", child)
