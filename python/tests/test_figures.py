"""bench/figures.py: what is printed by commands comes into the tables of pages."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

FIGURES = pathlib.Path(__file__).resolve().parents[2] / "bench" / "figures.py"
REGISTRY = """
[[command]]
name = "one"
command = "python3 printed.py 5 3 4"
pages = ["page.md"]
minutes = 1
json = true

[[command]]
name = "other"
command = "python3 printed.py 7"
pages = ["page.md"]
minutes = 1
json = true
"""
TABLES = """<!-- figures: all in page.md -->
| one | {one::rate} | {one::rate::m::x1000} | {one::load} |
| ratio | {one::rate::/rate} |
| other | {other::rate} |
<!-- end -->
"""
PAGE = """before
<!-- figures: all -->
<!-- end -->
after
"""
PRINTED = """
import json, sys
rounds = [float(word) for word in sys.argv[1:] if word.isdigit()]
if "fails" in sys.argv: sys.exit("no")
print(json.dumps({"machine": {"debug_build": "debug" in sys.argv}, "rows": [{"name": "rate", "unit": "/s", "rounds": rounds, "median": 0}]}, separators=(",", ":")))
"""


@unittest.skipUnless(importlib.util.find_spec("tomllib"), "not there before Python 3.11: tomllib")
class Figures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "bench").mkdir()
        self.write("bench/figures.py", FIGURES.read_text(encoding="utf-8"))
        self.write("bench/figures.toml", REGISTRY)
        self.write("bench/figures-tables.md", TABLES)
        self.write("page.md", PAGE)
        self.write("printed.py", PRINTED)
        self.write("falkon", "#!/bin/sh\necho falkon 0\n")
        (self.root / "falkon").chmod(0o755)

    def write(self, path, text):
        (self.root / path).write_text(text, encoding="utf-8")

    def figures(self, *words):
        command = [sys.executable, self.root / "bench/figures.py", *words]
        environment = {**os.environ, "FALKON": str(self.root / "falkon"), "PYTHON": sys.executable}
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    def runs(self):
        return json.loads((self.root / "bench/figures-runs.json").read_text(encoding="utf-8"))

    def lines(self):
        return (self.root / "page.md").read_text(encoding="utf-8").splitlines()

    def test_what_a_run_prints_is_in_the_table_and_others_lines_stay(self):
        ran = self.figures("run", "one")
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        load = self.runs()["one"]["load"]
        self.assertEqual(list(self.runs()), ["one"])
        self.assertEqual(self.lines(), [
            "before", "<!-- figures: all -->",
            "| one | 4.00 (3.00 to 5.00) | 4,000 | %s |" % load,
            "| ratio | 1.00 (1.00 to 1.00) |", "| other | – |", "<!-- end -->", "after",
        ])
        self.assertEqual(self.figures("run", "other").returncode, 0)
        self.assertEqual(self.lines()[4], "| other | 7.00 |")
        # On another machine only one of them runs.
        (self.root / "target/figures/other.json").unlink()
        self.write("bench/figures.toml", REGISTRY.replace("5 3 4", "9"))
        self.assertEqual(self.figures("run", "one").returncode, 0)
        self.assertEqual([self.lines()[at] for at in (2, 4)], [
            "| one | 9.00 | 9,000 | %s |" % self.runs()["one"]["load"], "| other | 7.00 |"])
        self.assertIn(self.runs()["one"]["date"], self.figures().stdout)

    def test_runs_that_mean_nothing_are_not_noted(self):
        for word in "5 fails", "5 debug":
            self.write("bench/figures.toml", REGISTRY.replace("5 3 4", word))
            self.assertEqual(self.figures("run", "one").returncode, 1)
            self.assertFalse((self.root / "bench/figures-runs.json").exists())
            self.assertEqual(self.lines()[2], "| one | – | – | – |")

    def test_commands_that_are_not_there_are_refused(self):
        self.assertIn("there is no none", self.figures("run", "none").stderr)


if __name__ == "__main__":
    unittest.main()
