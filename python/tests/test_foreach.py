"""Calls for each of many things, with real processes.

The program is the one that FALKON_BINARY names.
"""

import os
import unittest
import zipfile
from pathlib import Path

import falkon
from services import InFolder


@falkon.python_app
def upper(source, target, mark=""):
    target.write_text(source.read_text().upper() + mark)
    return target


@falkon.shell_app
def lines(source):
    return ["grep", "-c", "", source]


@falkon.python_app
def describe(*args, **kwargs):
    return [str(one) for one in args], {name: str(one) for name, one in kwargs.items()}


class Names(unittest.TestCase):
    def test_names_of_items(self):
        def check(template, item, expected, index=7):
            self.assertEqual(falkon.to(template).path(item, index), Path(expected))

        path = Path("in/deep/a.tar.gz")
        check("out/{name}", path, "out/a.tar.gz")
        check("out/{stem}{suffix}.{index:03d}", path, "out/a.tar.gz.007")
        check("{parent}/{stem}.out", str(path), "in/deep/a.tar.out")
        check("{parent}/{stem}.out", "a", "a.out")
        check("out/{0}-{0:>4}", 5, "out/5-   5")
        check("{}", 5, "5")
        check("{{}}{}", "x", "{}x")
        check("{}", path, path)
        check("{band}/{ra:.1f}", falkon.Row(ra=1.25, band="r"), "r/1.2")
        check("{index}", falkon.Row(index="own"), "own")
        check("same", object(), "same")

    def test_names_that_there_are_not(self):
        for template, item in (
            ("{stem}", 5), ("{band}", falkon.Row(ra=1)), ("{band}", Path("a")),
            ("{}", falkon.Row(ra=1)), ("{0.x}", falkon.Row(ra=1)), ("{stem}", falkon.Row(ra=1)),
        ):  # fmt: skip
            with self.assertRaisesRegex(ValueError, "stands for nothing"):
                falkon.to(template).path(item, 0)
        with self.assertRaises(ValueError):
            falkon.to("{")


class Items(InFolder):
    @classmethod
    def setUpClass(cls):
        cls.executor = falkon.Executor(max_workers=2, output=None)
        falkon.use(cls.executor)

    @classmethod
    def tearDownClass(cls):
        falkon.use(None)
        cls.executor.shutdown()

    def setUp(self):
        super().setUp()
        self.folder = Path(self.folder)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def test_files_in_order_and_folders_that_are_made(self):
        texts = {"in/b.txt": "b", "in/a.txt": "a", "in/deep/c.txt": "c", "in/no.dat": "x"}
        for name, text in texts.items():
            self.write(name, text)
        found = falkon.glob(self.folder / "in/**/*.txt", str(self.folder / "in/a.*"))
        self.assertEqual([one.name for one in found], ["a.txt", "b.txt", "c.txt"])
        self.assertEqual(falkon.glob(self.folder / "none*"), [])
        targets = falkon.to(self.folder / "out/{index}/{stem}.up")
        made = falkon.foreach(upper, found, targets, mark="!")
        names = [self.folder / "out" / name for name in ("0/a.up", "1/b.up", "2/c.up")]
        self.assertEqual([one.result(60) for one in made], names)
        self.assertEqual([one.read_text() for one in names], ["A!", "B!", "C!"])
        # Of those futures another one, which has no names but numbers.
        counted = falkon.foreach(lines, made, stdout=falkon.to(self.folder / "counts/{index}"))
        self.assertEqual([one.result(60) for one in counted], [0, 0, 0])
        self.assertEqual((self.folder / "counts/2").read_text(), "1\n")
        with self.assertRaisesRegex(ValueError, "a future"):
            falkon.foreach(lines, made, stdout=falkon.to("{}"))

    def test_members_of_archives(self):
        archive = self.folder / "scores.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
            for number in range(3):
                made.writestr("%d/energy.dat" % number, "e%d" % number)
            made.writestr("top.txt", "at the top")
        found = falkon.members("%s!*/energy.dat" % archive)
        self.assertEqual([one.url for one in found], ["%s!%d/energy.dat" % (archive, n) for n in range(3)])
        targets = falkon.to(self.folder / "out/{index}-{stem}.up")
        done = falkon.foreach(upper, found, targets)
        names = [self.folder / "out" / ("%d-energy.up" % number) for number in range(3)]
        self.assertEqual([one.result(60) for one in done], names)
        self.assertEqual([one.read_text() for one in names], ["E0", "E1", "E2"])
        # One that is named, also by a relative path, and one at the top.
        here = os.path.relpath(archive)
        target = self.folder / "top.up"
        upper(falkon.File(here + "!top.txt"), target).result(60)
        self.assertEqual(target.read_text(), "AT THE TOP")
        with self.assertRaises(TypeError):
            os.fspath(found[0])
        with self.assertRaisesRegex(falkon.FalkonError, "has no member `none`"):
            upper(falkon.File("%s!none" % archive), target).result(60)
        with self.assertRaisesRegex(falkon.FalkonError, "there is no archive"):
            falkon.members("%s!*" % (self.folder / "none.zip"))
        with self.assertRaisesRegex(ValueError, "no members of an archive"):
            falkon.members("a.txt")

    def test_numbers_rows_functions_and_methods(self):
        self.assertEqual([one.result(60) for one in falkon.foreach(pow, range(4), 2)], [0, 1, 4, 9])
        table = self.write("sky.csv", '\ufeffra,band,note\n1.5,r,"a, b"\n\n2,g,\n')
        rows = falkon.rows(table, types={"ra": float})
        out = str(self.folder / "{band}")
        made = falkon.foreach(describe, rows, 7, inputs=[falkon.to(out), "x"], deep=True)
        r, g = str(self.folder / "r"), str(self.folder / "g")
        self.assertEqual(made[0].result(60), (["7"], {
            "ra": "1.5", "band": "r", "note": "a, b", "deep": "True",
            "inputs": "[%r, 'x']" % Path(r),
        }))  # fmt: skip
        self.assertEqual(made[1].result(60)[1]["inputs"], "[%r, 'x']" % Path(g))

        class Model:
            def __init__(self, base):
                self.base = base

            @falkon.python_app
            def predict(self, value):
                return self.base + value

        self.assertEqual([one.result(60) for one in falkon.foreach(Model(1).predict, [1, 2])], [2, 3])
        with self.assertRaisesRegex(TypeError, "no function"):
            falkon.foreach(3, [1])

    def test_tables(self):
        tabs = self.write("a.tsv", "x\ty\n1\t2\n")
        self.assertEqual(list(falkon.rows(tabs)), [{"x": "1", "y": "2"}])
        other = self.write("a.txt", "x;y\n1;2")
        self.assertEqual(list(falkon.rows(other, delimiter=";", types={"y": int})), [{"x": "1", "y": 2}])
        json = self.write("a.jsonl", '{"x": [1]}\n\n{"x": null, "z": 2}\n')
        self.assertEqual(list(falkon.rows(json)), [{"x": [1]}, {"x": None, "z": 2}])
        self.assertEqual(list(falkon.rows(self.write("none.csv", ""))), [])
        for name, text, types, said in (
            ("b.csv", "x,y\n1\n", {}, "line 2 has 1 values, but there are 2 columns"),
            ("c.csv", "x,x\n1,2\n", {}, "two columns have one name"),
            ("d.csv", "x,y\n1,a\n", {"y": int}, "row 1: y: invalid literal"),
            ("e.csv", "x,y\n1,a\n", {"z": int}, "row 1 has no column 'z'"),
            ("f.jsonl", "{", {}, "line 1 is no JSON"),
            ("g.jsonl", "[]", {}, "line 1 is no object"),
        ):
            with self.assertRaisesRegex(ValueError, "%s: %s" % (name, said)):
                list(falkon.rows(self.write(name, text), types=types))

    def test_items_in_a_run_that_is_resumed(self):
        for number in range(20):
            self.write("in/%02d.txt" % number, str(number))
        counts = []
        for attempt in range(3):
            with falkon.run(resume=self.folder / "state") as run:
                found = falkon.glob(self.folder / "in/*.txt")
                falkon.foreach(upper, found, falkon.to(self.folder / "out/{stem}.up"))
            counts.append((run.made, run.skipped))
            (self.folder / "out" / ("%02d.up" % attempt)).unlink()
            self.write("in/1%d.txt" % attempt, "new")
        self.assertEqual(counts, [(20, 0), (2, 18), (2, 18)])


if __name__ == "__main__":
    unittest.main()
