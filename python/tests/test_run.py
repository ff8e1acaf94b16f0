"""Runs that are resumed, and calls that stand for equal ones, with real processes.

The program is the one that FALKON_BINARY names.
"""

import itertools
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import unittest
from pathlib import Path

import falkon
from falkon import _keys, _restart
from falkon._keys import key_of
from services import InFolder, wait_until

SCRIPT_HEAD = """
import os, sys
from pathlib import Path
import falkon

def called(name):
    # One write to what is appended to: whole, whoever else writes.
    with open("calls", "a") as file:
        file.write(name + "\\n")
"""


class Folder(InFolder):
    """Scripts that are run, each time in an interpreter of its own, in a folder."""

    def start(self, script, seed="random", **options):
        with open(self.path("script.py"), "w") as file:
            file.write(SCRIPT_HEAD + textwrap.dedent(script))
        environment = dict(os.environ, PYTHONHASHSEED=str(seed))
        places = [os.path.dirname(os.path.dirname(falkon.__file__)), environment.get("PYTHONPATH")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, places))
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", "script.py"],
            cwd=self.folder, env=environment, stdout=subprocess.PIPE, text=True, **options,
        )  # fmt: skip

    def run_script(self, script, seed="random"):
        """The text that a script prints, and the calls that were made, sorted."""
        if os.path.exists(self.path("calls")):
            os.unlink(self.path("calls"))
        process = self.start(script, seed)
        said, _ = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, said)
        return said, self.calls()

    def calls(self):
        try:
            with open(self.path("calls")) as file:
                return sorted(file.read().split())
        except FileNotFoundError:
            return []

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)

    def read(self, name):
        with open(self.path(name)) as file:
            return file.read()


PIPELINE = """
    @falkon.python_app
    def part(number, source):
        called("part%d" % number)
        return int(source.read_text()) * number

    @falkon.python_app
    def total(values, target):
        called("total")
        target.write_text(str(sum(values)))
        return target

    @falkon.shell_app
    def twice(source, stdout):
        called("twice")
        return ["cat", source, source]

    with falkon.run(resume="state", max_workers=2) as run:
        parts = [part(number, Path("in%d" % (number % 2))) for number in range(4)]
        twice(total(parts, Path("sum")), stdout="doubled")
    print(run.made, run.skipped, Path("doubled").read_text())
"""
PARTS = ["part0", "part1", "part2", "part3"]


class Resume(Folder):
    def test_calls_that_were_made_are_not_made_again_unless_a_file_is_another(self):
        self.write("in0", "10")
        self.write("in1", "1")
        self.assertEqual(self.run_script(PIPELINE), ("6 0 2424\n", [*PARTS, "total", "twice"]))
        self.assertEqual(self.run_script(PIPELINE), ("0 6 2424\n", []))
        # A new time alone changes nothing.
        os.utime(self.path("in0"), (1, 1))
        os.utime(self.path("sum"), (1, 1))
        self.assertEqual(self.run_script(PIPELINE), ("0 6 2424\n", []))
        # Calls that read a changed file, and all that follow from them.
        self.write("in0", "20")
        again = ["part0", "part2", "total", "twice"]
        self.assertEqual(self.run_script(PIPELINE), ("4 2 4444\n", again))
        # An output that is lost or spoilt is made again.
        os.unlink(self.path("doubled"))
        self.assertEqual(self.run_script(PIPELINE), ("1 5 4444\n", ["twice"]))
        self.write("sum", "45")
        self.assertEqual(self.run_script(PIPELINE), ("2 4 4444\n", ["total", "twice"]))
        # The same call, but elsewhere in the script, and with other calls.
        longer = PIPELINE.replace("with falkon", "# A comment.\n\n    with falkon").replace(
            "range(4)", "range(5)"
        )
        self.assertEqual(self.run_script(longer), ("3 4 124124\n", ["part4", "total", "twice"]))

    def test_a_function_that_is_changed_is_called_again(self):
        script = """
            FACTOR = 2

            def inner(value):
                return value * FACTOR

            @falkon.python_app
            def outer(value):
                called("outer")
                return inner(value)

            @falkon.python_app
            def other(value):
                called("other")
                return value

            with falkon.run(resume="state", max_workers=1):
                print(outer(other(3)).result())
        """
        self.assertEqual(self.run_script(script), ("6\n", ["other", "outer"]))
        script = script.replace("FACTOR = 2", "FACTOR = 4")
        self.assertEqual(self.run_script(script), ("12\n", ["outer"]))
        script = script.replace("value * FACTOR", "value * FACTOR + 1")
        self.assertEqual(self.run_script(script), ("13\n", ["outer"]))
        self.assertEqual(self.run_script(script), ("13\n", []))
        # The first code again: its last value counts, which other code gave.
        self.assertEqual(self.run_script(script.replace(" + 1", "")), ("12\n", []))

    def test_a_script_that_is_killed_goes_on_where_it_was(self):
        script = """
            import time

            @falkon.python_app
            def step(number, before):
                called("step%d" % number)
                while number == 10 and not os.path.exists("go"):
                    time.sleep(0.01)
                return before + [number]

            with falkon.run(resume="state", max_workers=1) as run:
                value = []
                for number in range(20):
                    value = step(number, value)
                print(value.result() == list(range(20)), run.made, run.skipped)
        """
        process = self.start(script)
        wait_until(lambda: "step10" in self.calls())
        # The one before it has ended; its line may still be under way.
        log = os.path.join("state", _restart.LOG_NAME)
        wait_until(lambda: self.read(log).count("\n") == 11)
        process.kill()
        process.communicate()
        self.assertEqual(process.returncode, -signal.SIGKILL)
        # A line that is torn off, and one that is damaged.
        lines = self.read(log).splitlines(True)
        self.write(log, "".join(lines[:-2]) + lines[-2].replace("name", "neme") + lines[-1][:-20])
        self.write("go", "")
        expected = sorted("step%d" % number for number in range(8, 20))
        self.assertEqual(self.run_script(script), ("True 12 8\n", expected))
        self.assertEqual(self.run_script(script), ("True 0 20\n", []))

    def test_calls_that_fail_are_made_again_and_large_values_are_apart(self):
        script = """
            @falkon.python_app
            def large(number):
                called("large")
                return bytes(%d)

            @falkon.python_app
            def fails(data):
                called("fails")
                return len(data) // os.path.getsize("divisor")

            with falkon.run(resume="state", max_workers=1):
                print(fails(large(1)).exception())
        """ % (_restart.VALUE_BYTES_MAX + 1)
        self.write("divisor", "")
        said, calls = self.run_script(script)
        self.assertIn("division", said)
        self.assertEqual(calls, ["fails", "large"])
        self.write("divisor", "x")
        self.assertEqual(self.run_script(script), ("None\n", ["fails"]))
        self.assertEqual(self.run_script(script), ("None\n", []))
        (name,) = os.listdir(self.path("state/values"))
        self.assertLess(os.path.getsize(self.path("state/" + _restart.LOG_NAME)), 2000)
        with open(self.path("state/values/" + name), "r+b") as file:
            file.seek(1000)
            file.write(b"x")
        self.assertEqual(self.run_script(script), ("None\n", ["fails", "large"]))

    def test_equal_calls_are_several_unless_they_are_cached_and_others_are_exempt(self):
        script = """
            import itertools

            @falkon.python_app
            def draw():
                called("draw")
                return os.urandom(8)

            @falkon.python_app(cache=True)
            def once(value):
                called("once")
                return os.urandom(8)

            @falkon.python_app(cache=False)
            def always(value):
                called("always")
                return value

            with falkon.run(resume="state", max_workers=2):
                drawn = [draw() for _ in range(5)]
                same = [once(number % 2) for number in range(6)]
                falkon.gather(always(drawn), always(1), draw()).result()
                after = once(always(1))
                print([one.result().hex() for one in drawn + same], len(set(same)))
                print(len({one.result() for one in drawn + same}))
                after.result()
        """
        first, calls = self.run_script(script)
        self.assertEqual(calls, ["always"] * 3 + ["draw"] * 6 + ["once"] * 3)
        self.assertTrue(first.endswith(" 2\n7\n"), first)
        second, calls = self.run_script(script)
        self.assertEqual(second, first)
        # A call that takes the value of one that is always made is made as well.
        self.assertEqual(calls, ["always"] * 3 + ["once"])

    def test_values_of_classes_of_the_script_and_gathered_ones(self):
        script = """
            from dataclasses import dataclass

            @dataclass
            class Point:
                x: int
                names: frozenset = frozenset()

            @falkon.python_app
            def point(x, names):
                called("point")
                return Point(x, names)

            @falkon.python_app
            def sums(points, scale={"a": 1}):
                called("sums")
                return sum(one.x for one in points), sorted(points[0].names)

            with falkon.run(resume="state", max_workers=2):
                points = [point(x, frozenset(("a", "b", "c"))) for x in range(3)]
                print(sums(falkon.gather(points)).result())
                print(points[1].result().x, type(points[1].result()) is Point)
        """
        said = "(3, ['a', 'b', 'c'])\n1 True\n"
        self.assertEqual(self.run_script(script, seed=1), (said, ["point"] * 3 + ["sums"]))
        self.assertEqual(self.run_script(script, seed=2), (said, []))

    def test_what_a_block_that_raises_has_not_begun_is_cancelled(self):
        script = """
            import time

            @falkon.python_app
            def wait(number):
                called("wait")
                return time.sleep(0.01)

            try:
                with falkon.run(resume="state", max_workers=1) as run:
                    futures = [wait(number) for number in range(2000)]
                    futures[0].result()
                    raise LookupError
            except LookupError:
                cancelled = sum(future.cancelled() for future in futures)
            print(cancelled > 1000, all(future.done() for future in futures))
        """
        self.assertEqual(self.run_script(script)[0], "True True\n")

    def test_a_call_whose_input_is_edited_meanwhile_is_made_again(self):
        script = """
            import time
            HOW = sys.argv[1:]

            @falkon.python_app
            def read(source, inputs=()):
                called("read")
                found = [Path(one).read_text() for one in (source, *inputs)]
                open("read", "w").close()
                while not os.path.exists("edited"):
                    time.sleep(0.01)
                return found

            @falkon.python_app
            def copy(source, target):
                called("copy")
                target.write_text(source.read_text())

            with falkon.run(resume="state", max_workers=2) as run:
                found = read(%s)
                while not os.path.exists("edited") and not os.path.exists("read"):
                    time.sleep(0.01)
                if not os.path.exists("edited"):
                    for name in ("source", "other"):
                        with open(name, "w") as file:
                            file.write("two")
                    open("edited", "w").close()
                print(found.result())
                # What a call writes may have been something else before.
                copy(Path("source"), Path("copied")).result()
        """
        for way in ('Path("source")', '"x", inputs=["source"]', 'falkon.File("source"), inputs=["other"]'):
            text = script % way
            for name in ("source", "other", "x"):
                self.write(name, "one")
            for name in ("read", "edited", "copied"):
                if os.path.exists(self.path(name)):
                    os.unlink(self.path(name))
            first, _ = self.run_script(text)
            self.assertIn("one", first)
            self.assertNotIn("two", first)
            second, calls = self.run_script(text)
            self.assertEqual((second.count("two"), calls), (way.count("source") + way.count("other"), ["read"]))
            self.assertEqual(self.run_script(text), (second, []))

    def test_an_absent_file_that_appears_is_a_change(self):
        script = """
            @falkon.python_app
            def read(source):
                called("read")
                return source.exists()

            with falkon.run(resume="state", max_workers=1) as run:
                print(read(Path("late")).result())
        """
        self.assertEqual(self.run_script(script), ("False\n", ["read"]))
        self.assertEqual(self.run_script(script), ("False\n", []))
        self.write("late", "")
        self.assertEqual(self.run_script(script), ("True\n", ["read"]))
        self.assertEqual(self.run_script(script), ("True\n", []))

    def test_files_that_calls_declare(self):
        script = """
            @falkon.python_app
            def make(number, source, outputs):
                called("make%d" % number)
                outputs[0].write_text(source.read_text() + str(number))

            @falkon.shell_app
            def join(*files):
                called("join")
                return ["cat", *files]

            @falkon.python_app
            def count(whole, table):
                called("count")
                return len(whole.read_text()), len(table)

            with falkon.run(resume="state", max_workers=2) as run:
                table = run.executor.put(list(range(1000)))
                source = falkon.File("source")
                parts = [make(n, source, outputs=[falkon.File("part%d" % n)]) for n in range(3)]
                whole = join(*[one.outputs[0] for one in parts], stdout="whole")
                whole.result()
                counted = count(falkon.File("whole"), table)
                print(counted.result(), parts[0].outputs[0].result().url == os.path.abspath("part0"))
            print(run.made, run.skipped)
        """
        self.write("source", "-")
        made = ["count", "join", "make0", "make1", "make2"]
        self.assertEqual(self.run_script(script), ("(6, 1000) True\n5 0\n", made))
        self.assertEqual(self.run_script(script), ("(6, 1000) True\n0 5\n", []))
        # A file that is gone is made again, and with it what is made of it.
        os.unlink(self.path("part1"))
        self.assertEqual(self.run_script(script)[1], ["join", "make1"])
        self.write("source", "--")
        self.assertEqual(self.run_script(script), ("(9, 1000) True\n5 0\n", made))
        # A file that was in caches alone is made again where it is read.
        caches = script.replace('File("part', 'File("cache:part')
        caches = caches.replace(', parts[0].outputs[0].result().url == os.path.abspath("part0")', "")
        self.assertEqual(self.run_script(caches)[1], made[1:])
        self.assertEqual(self.run_script(caches), ("(9, 1000)\n0 5\n", []))
        os.unlink(self.path("whole"))
        self.assertEqual(self.run_script(caches)[1], made[1:])
        self.assertEqual(self.run_script(caches)[1], [])

    def test_what_was_in_caches_alone_is_made_again_if_it_is_read(self):
        script = """
            @falkon.python_app
            def first(number, outputs):
                called("first%d" % number)
                outputs[0].write_text("a" * number)

            @falkon.python_app
            def second(source, outputs):
                called("second" + source.read_text())
                outputs[0].write_text(source.read_text() + "b")

            @falkon.python_app
            def length(source, times):
                called("length" + source.read_text())
                return len(source.read_text()) * times

            with falkon.run(resume="state", max_workers=2) as run:
                ends = []
                for number in range(1, 4):
                    one = first(number, outputs=[falkon.File(suffix=".txt")])
                    two = second(one.outputs[0], outputs=[falkon.File()])
                    ends.append(length(two.outputs[0], TIMES if number == 2 else 1))
                print([end.result() for end in ends], length(two.outputs[0], 1).result())
            print(run.made, run.skipped)
        """
        made = sorted("first1 first2 first3 seconda secondaa secondaaa lengthab lengthaab lengthaaab lengthaaab".split())
        one, two = script.replace("TIMES", "1"), script.replace("TIMES", "2")
        self.assertEqual(self.run_script(one), ("[2, 3, 4] 4\n10 0\n", made))
        self.assertEqual(self.run_script(one), ("[2, 3, 4] 4\n0 10\n", []))
        # A call is new, and the file that it reads is made again, with that one's inputs.
        again = ["first2", "lengthaab", "secondaa"]
        self.assertEqual(self.run_script(two), ("[2, 6, 4] 4\n3 7\n", again))
        self.assertEqual(self.run_script(two), ("[2, 6, 4] 4\n0 10\n", []))

    def test_without_a_block_and_in_a_forked_process(self):
        script = """
            @falkon.python_app
            def call(number):
                called("call%d" % number)
                return number

            run = falkon.run(resume="state", max_workers=1)
            call(1).result()
            if os.fork() == 0:
                # It has no part in the run, and may have one of its own.
                try:
                    run.close()
                    with falkon.run(resume="theirs", max_workers=1):
                        assert call(2).result() == 2
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.wait()[1] == 0
            call(3)
        """
        self.assertEqual(self.run_script(script), ("", ["call1", "call2", "call3"]))
        self.assertEqual(self.run_script(script), ("", []))


KEYS = """
    from falkon._keys import key_of
    import dataclasses, enum, functools, threading, re

    CONSTANTS = {"one", "two", "three", "four"}
    TABLE = {"b": frozenset(("x", "y", "z")), "a": [1, (2.5, None, ...)]}
    LOCK = threading.Lock()
    PATTERN = re.compile("a+b")

    class Color(enum.Enum):
        RED = 1
        BLUE = frozenset(("p", "q", "r"))

    @dataclasses.dataclass
    class Base:
        names: set = dataclasses.field(default_factory=set)

        @property
        def size(self):
            return len(self.names)

    class Derived(Base):
        __slots__ = ("extra",)

        @staticmethod
        def make(names):
            return Derived(names)

        def clone(self):
            return Derived.make(self.names | CONSTANTS)

    def constants(value):
        return value in {"five", "six", "seven"} and value in CONSTANTS and TABLE and LOCK

    def even(number):
        return number == 0 or odd(number - 1)

    def odd(number):
        return number != 0 and even(number - 1) and PATTERN

    def comprehension(values, *, key=None):
        try:
            return sorted((Color(value).name for value in values if constants(value)), key=key)
        except ValueError:
            return {value: [lambda: value] for value in values}

    def closure(names):
        def inner(value):
            return value in names or inner(None) or Derived(names)
        return inner

    recursive = [1]
    recursive.append(recursive)
    text = "".join(["sa", "me"])
    arguments = [
        (), ("same", text), ({"k", "l", "m"}, [frozenset((("n", 1), ("o", 2)))]),
        (Color.BLUE, Derived({"s", "t"})), (Derived, closure), (recursive,),
        (Path("a") / "b", lambda value: value in {"u", "v"}), (print, os.path.join, 1, 1.0, True),
        ({"y": 1, "x": 2},), (functools.partial(even, 3), Derived({"w"}).clone),
    ]
    functions = [constants, even, odd, comprehension, closure({"e", "f", "g"}), Derived,
                 functools.partial(closure, {"h", "i"}), len, falkon.python_app(odd).function]
    keys = []
    for function in functions:
        keys += [key_of("App", function, one, {})[0].hex() for one in arguments]
    for names in ({"p": 1, "q": 2}, {"q": 2, "p": 1}):
        keys.append(key_of("App", even, (), names)[0].hex())
    print(*keys, sep="\\n")
"""


class Keys(Folder):
    def keys(self, script, seed):
        return self.run_script(script, seed)[0].split()

    def test_keys_are_the_same_in_every_interpreter_and_those_of_others_differ(self):
        keys = self.keys(KEYS, 1)
        self.assertEqual(len(keys), 92)
        # Named arguments are in any order; an app's function is the function.
        self.assertEqual(keys.pop(), keys[-1])
        self.assertEqual(keys[20:30], keys[80:90])
        del keys[80:90]
        self.assertEqual(len(set(keys)), len(keys))
        for seed in (2, 3):
            self.assertEqual(self.keys("\n\n    # Moved.\n" + KEYS, seed)[:80], keys[:80])

    def test_a_function_is_the_same_when_it_has_been_called_often(self):
        # The interpreter puts other instructions where code is hot.
        before = key_of("App", fails_first.function, (), {})[0]
        for _ in range(1000):
            fails_first.function(os.devnull)
        _keys._known.clear()
        self.assertEqual(key_of("App", fails_first.function, (), {})[0], before)

    def test_what_a_function_refers_to_is_part_of_it(self):
        keys = self.keys(KEYS, 1)
        for old, new, changed in (
            ('"four"}', '"fore"}', {0, 3, 4, 5, 6}),
            ("number - 1) and", "number - 2) and", {1, 2}),
            ('"six"', '"sax"', {0, 3}),
            ("BLUE = frozenset", "BLACK = frozenset", {3}),
            ('"g"})', '"h"})', {4}),
            ("names | CONSTANTS", "CONSTANTS | names", {4, 5, 6}),
            ("len(self.names)", "len(self.names) + 1", {4, 5, 6}),
        ):
            text = KEYS.replace(old, new).replace("Color.BLUE", "Color.BLACK" if "BLACK" in new else "Color.BLUE")
            others = self.keys(text, 2)
            # Without arguments.
            differ = {at for at in range(8) if keys[10 * at] != others[10 * at]}
            self.assertEqual(differ, changed, (old, new))

    def test_modules_of_ones_own_count_and_installed_ones_by_name(self):
        script = """
            from falkon._keys import key_of
            import json, mine
            from mine import helper

            def attribute(value):
                return mine.helper(value), json.dumps(value)

            def imported(value):
                return helper(value)

            print(*(key_of("App", one, (), {})[0].hex() for one in (attribute, imported, mine.helper)))
        """
        text = "def helper(value):\n    return value\n"
        self.write("mine.py", text)
        first = self.keys(script, 1)
        self.write("mine.py", "# A comment.\n" + text)
        second = self.keys(script, 2)
        self.assertEqual([a == b for a, b in zip(first, second)], [True, True, True])
        self.write("mine.py", text.replace("return value", "return -value"))
        third = self.keys(script, 3)
        self.assertFalse(set(first + second) & set(third))


    def keys_of(self, scripts, seed=1):
        """The keys of calls of the functions ``f`` of scripts; ``none`` without one."""
        text = """
            from falkon._keys import key_of
            for text in %r:
                space = {"__name__": "__main__"}
                exec(text, space)
                try:
                    print(key_of("App", space["f"], (), {})[0].hex())
                except Exception:
                    print("none")
        """ % [textwrap.dedent(one) for one in scripts]
        return self.keys(text, seed)

    def check_edits(self, script, *edits):
        """Each edit of a script makes another function, and the same script the same."""
        for old, _ in edits:
            self.assertIn(old, script)
        edited = [script.replace(old, new) for old, new in edits]
        before, *after = self.keys_of([script, *edited])
        self.assertEqual(self.keys_of([script], 2), [before])
        self.assertNotEqual(before, "none")
        self.assertEqual(len({before, *after}), 1 + len(edits), (script, edits, before, after))

    def test_what_is_used_in_other_ways_counts(self):
        for script, *edits in (
            (
                """
                from types import MappingProxyType
                TABLE = {"alpha": MappingProxyType({"k": 1}), "keys": {2: 0}.keys(), "m": memoryview(b"3")}
                def f(): return TABLE
                """,
                ('{"k": 1}', '{"k": 2}'), ("{2: 0}", "{3: 0}"), ('b"3"', 'b"4"'), ("alpha", "beta"),
            ),
            (
                """
                import threading
                def helper(): return 1
                class Model:
                    def __init__(self, alpha): self.alpha, self.lock = alpha, threading.Lock()
                MODEL, REGISTRY = Model(0.1), {"h": helper, "lock": threading.Lock()}
                def f(): return REGISTRY, MODEL, helper()
                """,
                ("0.1", "0.2"), ("return 1", "return 2"), ("self.alpha,", "self.beta,"),
            ),
            (
                """
                import functools
                @functools.lru_cache(maxsize=None)
                def cached(): return 1
                @functools.wraps(cached)
                def wrapped(): return cached()
                class C:
                    @functools.cached_property
                    def x(self): return 2
                def f(): return cached(), wrapped(), C().x
                """,
                ("return 1", "return 3"), ("return 2", "return 4"), ("None", "5"),
            ),
            (
                """
                class Meta(type):
                    def __call__(self): return 1
                class C(metaclass=Meta):
                    pass
                def g(): return g.factor
                g.factor = 2
                def f(*, x: int = 3): return C(), g(), f.__annotations__
                """,
                ("return 1", "return 3"), ("= 2", "= 4"), ("= 3", "= 5"), ("int", "float"),
            ),
            (
                """
                def deep(n):
                    def inner(): return [sum(S for _ in range(n)) for _ in range(n)]
                    return inner
                S = 1
                def f(): return deep(2)()
                """,
                ("S = 1", "S = 2"), ("deep(2)", "deep(3)"),
            ),
        ):
            self.check_edits(script, *edits)
        unknown = ("open('/dev/null', 'w')", "(n for n in [1])", "__import__('socket').socket()")
        scripts = ["DATA = [1, {'a': %s}]\ndef f(): return DATA" % one for one in unknown]
        self.assertEqual(self.keys_of(scripts), ["none"] * 3)

    def test_modules_that_are_used_in_any_way_count(self):
        os.makedirs(self.path("pk/deep"))
        files = {
            "first.py": "import second\ndef helper(): return second.helper()\ndef other(): return 0\n",
            "second.py": "from pk import sub\nVALUE = 1\ndef helper(): return sub.helper() + VALUE\n",
            "pk/__init__.py": "",
            "pk/sub.py": "from .deep.down import below\ndef helper(): return below() + 2\n",
            "pk/deep/__init__.py": "LEVEL = 3\n",
            "pk/deep/down.py": "def below(): return 4\ndef unused(): return 5\n",
            "pk/idle.py": "VALUE = 6\n",
        }
        for name, text in files.items():
            self.write(name, text)
        ways = (
            "import first\ndef f(): return first.helper()",
            "from first import helper\ndef f(): return helper()",
            "from first import helper as f",
            "def f():\n    import first\n    return first.helper()",
            "def f():\n    from first import helper\n    return helper()",
            "import importlib\ndef f(): return importlib.import_module('first').helper()",
            "import functools, first\nf = functools.partial(first.helper)",
            "import second, pk.sub\ndef f(): return pk.sub.helper(), second.helper()",
        )
        counts = [
            ("second.py", "VALUE = 1", "VALUE = 7"), ("pk/sub.py", "+ 2", "+ 8"),
            ("pk/deep/__init__.py", "3", "9"), ("pk/deep/down.py", "return 4", "return 10"),
        ]  # fmt: skip
        before = self.keys_of(ways)
        self.assertNotIn("none", before)
        self.assertEqual(len(set(before)), len(ways))
        for name, old, new in counts:
            self.write(name, files[name].replace(old, new))
            after = self.keys_of(ways)
            self.assertFalse(set(before) & set(after), name)
            self.write(name, files[name])
        self.assertEqual(self.keys_of(ways), before)
        # Values that no call can reach, and values without meaning.
        for name, old, new in (
            ("first.py", "return 0", "return 1"), ("pk/deep/down.py", "return 5", "return 6"),
            ("pk/idle.py", "6", "7"), ("second.py", "VALUE = 1", "\n# One.\nVALUE  =  1"),
        ):  # fmt: skip
            self.write(name, files[name].replace(old, new))
            after = self.keys_of(ways)
            # Nobody knows the names that are put together when it runs.
            self.assertEqual(sum(a == b for a, b in zip(before, after)) >= len(ways) - 1, True, name)
            self.write(name, files[name])

    def test_a_module_that_is_edited_while_the_script_runs_counts_as_it_is(self):
        script = """
            from falkon._keys import key_of
            import mine

            def f():
                return mine.value()

            keys = []
            for at in range(6):
                with open("mine.py", "w") as file:
                    file.write("def value(): return %d\\n" % (at % 3))
                keys.append(key_of("App", f, (), {})[0].hex())
            print(*keys)
        """
        self.write("mine.py", "def value(): return 0\n")
        keys = self.keys(script, 1)
        self.assertEqual(keys[:3], keys[3:])
        self.assertEqual(len(set(keys)), 3)


class Log(Folder):
    def test_a_log_that_is_torn_or_damaged_anywhere_is_never_wrong(self):
        seed = random.randrange(1 << 32)
        rng = random.Random(seed)
        values = [None, 1, "text", b"x" * (_restart.VALUE_BYTES_MAX + 1), ["a\n", {"b": 2.5}]]
        expected = {}
        folder = self.path("state")
        path = os.path.join(folder, _restart.LOG_NAME)
        for attempt in range(300):
            log = _restart.RestartLog(folder)
            known = 0
            for key, value in expected.items():
                found = log.find(key)
                known += found is not None
                self.assertIn(found, (None, (value, [])), (seed, attempt))
            for _ in range(rng.randrange(4)):
                key = rng.randbytes(16)
                expected[key] = rng.choice(values)
                log.keep(key, "some:name", expected[key], ())
                self.assertEqual(log.find(key), (expected[key], []), (seed, attempt))
            log.close()
            with open(path, "rb") as file:
                data = bytearray(file.read())
            kind = rng.randrange(3)
            head = len(_restart.HEAD)
            if kind == 0:
                del data[rng.randrange(max(0, len(data) - 300), len(data)) :]
            elif kind == 1 and len(data) > head:
                data[rng.randrange(head, len(data))] ^= 1 << rng.randrange(8)
            with open(path, "wb") as file:
                file.write(data)
        self.assertGreater(known, 50, seed)


@falkon.python_app(cache=True)
def once(path):
    with open(path, "a") as file:
        file.write("x")
    return os.getpid()


@falkon.python_app(cache=True)
def fails_first(path):
    if not os.path.exists(path):
        open(path, "w").close()
        raise LookupError(path)
    return "well"


class Cached(Folder):
    def test_equal_calls_are_one_as_long_as_files_are_the_same(self):
        path, source = Path(self.path("log")), self.path("source")
        self.write("source", "1")

        @falkon.python_app(cache=True)
        def read(file):
            return file.read_text()

        with falkon.Executor(max_workers=2) as executor:
            falkon.use(executor)
            self.addCleanup(falkon.use, None)
            self.assertIs(once(str(path)), once(str(path)))
            self.assertEqual(once(str(path)).result(60), once(str(path)).result(60))
            self.assertEqual(path.read_text(), "x")
            self.assertEqual(read(Path(source)).result(60), "1")
            self.write("source", "23")
            self.assertEqual(read(Path(source)).result(60), "23")
            # A call that failed does not stand for others.
            with self.assertRaises(LookupError):
                fails_first(self.path("tried")).result(60)
            self.assertEqual(fails_first(self.path("tried")).result(60), "well")
            with falkon.run() as run:
                self.assertIs(run.executor, executor)
                once(str(path)).result(60)
                self.assertIs(once(str(path)), once(str(path)))
                self.assertEqual((run.made, run.skipped), (1, 2))
            self.assertEqual(path.read_text(), "xx")

    def test_a_function_that_changes_while_the_script_runs_is_called_again(self):
        class Config:
            rate = 1

        @falkon.python_app(cache=True)
        def scaled(value):
            return value * Config.rate

        with falkon.run(max_workers=1) as run:
            values = []
            for rate in (1, 2, 1, 2):
                Config.rate = rate
                values.append(scaled(10).result(60))
            self.assertEqual((values, run.made, run.skipped), ([10, 20, 10, 20], 2, 2))

    def test_threads_that_make_equal_calls_at_once_make_one(self):
        path = self.path("log")
        with falkon.run(resume=self.path("state"), max_workers=2) as run:
            found = []
            threads = [
                threading.Thread(target=lambda: found.extend(once(path) for _ in range(50)))
                for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(len({one.result(60) for one in found}), 1)
            self.assertEqual((len(set(found)), run.made, run.skipped), (1, 1, 199))
        self.assertEqual(self.read("log"), "x")

    def test_what_cannot_be_recognised_is_called(self):
        @falkon.python_app(cache=True)
        def count(values):
            return len(list(values))

        with falkon.run(max_workers=1) as run:
            self.assertEqual(count(itertools.count).exception(60).__class__, TypeError)
            with self.assertRaises(TypeError):
                count(threading.Lock()).result(60)
            outside = run.executor.submit(abs, -1)
            self.assertEqual(count([outside]).result(60), 1)

    def test_one_run_at_a_time_and_no_other_files(self):
        state = self.path("state")
        with falkon.run(resume=state, max_workers=1):
            with self.assertRaisesRegex(falkon.ResumeError, "another run uses"):
                falkon.run(resume=state)
        with falkon.run(resume=state, max_workers=1):
            pass
        os.makedirs(self.path("other"))
        self.write(os.path.join("other", _restart.LOG_NAME), "something else")
        with self.assertRaisesRegex(falkon.ResumeError, "no restart log"):
            falkon.run(resume=self.path("other"))
        self.write("file", "")
        with self.assertRaisesRegex(falkon.ResumeError, "cannot be resumed from"):
            falkon.run(resume=self.path("file"))
        with falkon.Executor(max_workers=1) as executor:
            with self.assertRaises(TypeError):
                falkon.run(executor, resume=state, max_workers=2)
            with falkon.run(executor, resume=state), falkon.run(executor) as inner:
                self.assertEqual(once(self.path("log")).result(60) > 0, True)
                self.assertEqual(inner.made, 1)
            self.assertEqual(executor.submit(abs, -1).result(60), 1)

    @unittest.skipUnless(os.path.exists("/dev/full"), "there is no /dev/full")
    def test_a_run_goes_on_when_its_log_cannot_be_written(self):
        state = self.path("state")
        with self.assertLogs("falkon", "ERROR") as said:
            with falkon.run(resume=state, max_workers=1) as run:
                full = os.open("/dev/full", os.O_WRONLY)
                self.addCleanup(os.close, full)
                log, kept = run._log._fd, os.dup(run._log._fd)
                os.dup2(full, log)
                values = [once(self.path("log%d" % at)).result(60) for at in range(3)]
                os.dup2(kept, log)
                os.close(kept)
        self.assertEqual(len(values), 3)
        self.assertIn("are not kept any more", said.output[0])
        self.assertEqual(len(said.output), 1)


if __name__ == "__main__":
    unittest.main()
