"""Functions by the numbers that the executor gave them."""

import importlib
import linecache
import os
import sys
import types

from .pickles import give_state, load_noting

NOT_RUN_BY_A_CALL = 0x20 | 0x80 | 0x200
"""Flags of code: generator, coroutine, asynchronous generator."""


class Functions:
    """Functions by the numbers that the executor gave them."""

    def __init__(self):
        self.known = {}
        self._defined = {}
        self._with_classes = {}
        self._modules = {}

    def define(self, number, name, code):
        self.known.pop(number, None)
        self._with_classes.pop(number, None)
        self._defined[number] = (name.decode(), code)

    def load(self, number):
        """Finds a function the first time that it is called, and each time if classes
        came with it."""
        known = self._with_classes.get(number)
        if known is not None:
            function, classes = known
            for kind, state in classes:
                give_state(kind, state)
            return function
        name, code = self._defined[number]
        classes = []
        if code[:1] == b"p":
            function, classes = load_noting(code[1:])
        else:
            module, _, path = name.partition(":")
            if not path:
                raise ValueError("%r names no function: write MODULE:FUNCTION" % name)
            function = self._module_of(code) if code else importlib.import_module(module)
            place = module
            for part in path.split("."):
                try:
                    function = getattr(function, part)
                except AttributeError:
                    raise AttributeError("%s has no attribute %r" % (place, part)) from None
                place = "%s.%s" % (place, part)
        if not callable(function):
            raise TypeError("%s is no function: it cannot be called" % name)
        if getattr(getattr(function, "__code__", None), "co_flags", 0) & NOT_RUN_BY_A_CALL:
            raise TypeError(
                "%s is a generator or asynchronous: a call runs nothing of it; write a function "
                "that runs it, with list() or asyncio.run()" % name
            )
        if classes:
            self._with_classes[number] = function, classes
        else:
            self.known[number] = function
        return function

    def _module_of(self, code):
        """The module whose file name and source text ``code`` is."""
        module = self._modules.get(code)
        if module is None:
            if code[:1] != b"s":
                raise ValueError("code in a form that this worker does not know")
            file, _, source = code[1:].partition(b"\0")
            file, text = os.fsdecode(file), source.decode()
            module = types.ModuleType("falkon_shipped_%d" % len(self._modules))
            module.__file__ = file
            lines = text.splitlines(True)
            linecache.cache[file] = (len(source), None, lines, file)
            sys.modules[module.__name__] = module
            exec(compile(source, file, "exec"), module.__dict__)
            self._modules[code] = module
        return module
