"""Digests of the code that calls may run: of modules that are not installed, by the
names that are used of them."""

import os
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

from falkon import _sources

NAME = "falkon_test_sources"


class Digests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        sys.path.insert(0, self.folder)
        self.addCleanup(sys.path.remove, self.folder)
        self.addCleanup(_sources._known.clear)

    def write(self, **files):
        """Files below the package, ``__`` in their names standing for folders."""
        for name, text in files.items():
            path = os.path.join(self.folder, NAME, *name.split("__")) + ".py"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            for above in (os.path.join(self.folder, NAME), os.path.dirname(path)):
                open(os.path.join(above, "__init__.py"), "a").close()
            with open(path, "w") as file:
                file.write(textwrap.dedent(text))
        sys.path_importer_cache.clear()

    def digest(self, module, *names):
        _sources._known.clear()
        found = frozenset(("%s.%s" % (NAME, module),))
        return _sources.digest_of(found, frozenset(names))

    def changes(self, module, name, **files):
        """Whether the digest of a name of a module is another with these files."""
        before = self.digest(module, name)
        self.write(**files)
        return self.digest(module, name) != before

    def test_what_a_relative_import_names_counts(self):
        first, other = "def first(): return 1\n", "def first(): return 2\n"
        for level, where in ((".", "sub__near"), ("..", "far")):
            with self.subTest(level=level):
                module = where.rpartition("_")[2]
                text = "from %s%s import first\ndef f(): return first()\n" % (level, module)
                self.write(**{"sub__taker": text, where: first})
                self.assertFalse(self.changes("sub.taker", "f"))
                self.assertTrue(self.changes("sub.taker", "f", **{where: other}))

    def test_functions_that_are_not_used_count_where_their_definition_runs_something(self):
        for head, counts in (
            ("def g(a=1, *, b=None):", False),
            ("@python_app\ndef g():", False),
            ("@falkon.python_app(cache=True)\ndef g():", False),
            ("@python_app(cache=made())\ndef g():", True),
            ("@registered\ndef g():", True),
            ("@registered(1)\ndef g():", True),
            ("def g(a=made()):", True),
            ("def g(*, a=made()):", True),
        ):
            with self.subTest(head=head):
                self.write(taker="def f(): return 1\n" + head + "\n    return 1\n")
                taker = "def f(): return 1\n" + head + "\n    return 2\n"
                self.assertEqual(self.changes("taker", "f", taker=taker), counts)

    def test_a_module_that_was_nowhere_is_found_later(self):
        self.write(taker="import %s.late\ndef f(): return 1\n" % NAME)
        wanted = frozenset((NAME + ".taker",)), frozenset("f")
        with mock.patch.object(_sources, "_may_change", lambda state: False):
            before = _sources.digest_of(*wanted)
            self.assertEqual(_sources.digest_of(*wanted), before)
            self.write(late="first = 1\n")
            # The folder is as it was, as far as its state says.
            state = _sources._state
            known = _sources._known[wanted]
            unchanged = dict(known[1])
            with mock.patch.object(_sources, "_state", lambda path: unchanged.get(path) or state(path)):
                self.assertNotEqual(_sources.digest_of(*wanted), before)

    def test_only_what_cannot_change_unseen_is_remembered(self):
        self.write(taker="def f(): return 1\n")
        wanted = frozenset((NAME + ".taker",)), frozenset("f")
        for may_change in (True, False):
            with mock.patch.object(_sources, "_may_change", lambda state: may_change):
                _sources.digest_of(*wanted)
            self.assertEqual(wanted in _sources._known, not may_change)

    def test_a_call_that_needs_too_many_modules_is_not_recognised(self):
        self.write(taker="from . import first, second\ndef f(): return 1\n", first="", second="")
        with mock.patch.object(_sources, "MODULES_MAX", 1):
            with self.assertRaisesRegex(_sources.Unknown, "more than 1 modules"):
                self.digest("taker", "f", "first", "second")


if __name__ == "__main__":
    unittest.main()
