"""Calls compute what the code says when they are made, in workers that no other
client has used.

The program is the one that FALKON_BINARY names.
"""

import io
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest

import falkon
from falkon import _calls, _unchanged
from services import Dispatcher, wait_until


def values_of(executor, function, *changes):
    """The value of a call before and after each of some changes."""
    values = [executor.submit(function).result(60)]
    for change in changes:
        change()
        values.append(executor.submit(function).result(60))
    return values


def script(text, **names):
    """Definitions of a script whose functions and classes go by value."""
    space = {"__name__": "__main__", **names}
    exec(text, space)
    return types.SimpleNamespace(**space), space


class Sent(unittest.TestCase):
    """Functions are sent as they are."""

    @classmethod
    def setUpClass(cls):
        cls.executor = falkon.Executor(max_workers=1)
        cls.addClassCleanup(cls.executor.shutdown)

    def check(self, text, changes, expected):
        """A function ``f`` of a script gives these values as statements change it."""
        found, space = script(text)
        steps = [lambda one=one: exec(one, space) for one in changes]
        self.assertEqual(values_of(self.executor, found.f, *steps), expected, text)

    def test_globals_however_deep_they_are_used(self):
        text = """
S = 1
def f():
    def inner():
        return sum(S * i for i in [1, 2])
    return inner()
"""
        self.check(text, ["S = 2", "S = 2.0", "S = True"], [3, 6, 6.0, 3])
        text = "def g(): return 1\ndef f(): return (lambda: (lambda: g())())()"
        self.check(text, ["def g(): return 2", "g = [3].pop"], [1, 2, 3])

    def test_attributes_of_functions_defaults_and_code(self):
        text = "def g(x=1): return x * g.factor\ng.factor = 1\ndef f(): return g()"
        changes = ["g.factor = 2", "g.__defaults__ = (5,)", "g.__code__ = (lambda x: -x).__code__"]
        self.check(text, changes, [1, 2, 10, -5])
        self.check("def f(*, a=1): return a", ["f.__kwdefaults__['a'] = 2"], [1, 2])
        self.check("def f(): return f.n\nf.n = 1", ["f.n = 2", "f.__dict__ = {'n': 3}"], [1, 2, 3])

    def test_values_in_containers_objects_and_names_that_come_and_go(self):
        text = "T = {'a': [1, (2, {3})]}\ndef f(): return repr(T)"
        changes = ["T['a'].append(4)", "T['a'][1][1].add(5)", "T['b'] = T.pop('a')"]
        given = ["{'a': [1, (2, {3})]}", "{'a': [1, (2, {3}), 4]}", "{'a': [1, (2, {3, 5}), 4]}"]
        self.check(text, changes, [*given, given[-1].replace("a", "b")])
        text = "class C:\n  pass\nc = C()\nc.x = [1]\ndef f(): return c.x"
        changes = ["c.x.append(2)", "c.__dict__ = {'x': 0}", "c = C()\nc.x = 5"]
        self.check(text, changes, [[1], [1, 2], 0, 5])
        self.check("def f(): return len([1])", ["len = str", "del len"], [1, "[1]", 1])
        text = "class I(int): pass\nk = I(1)\nk.y = 1\ndef f(): return k.y"
        self.check(text, ["k.y = 2"], [1, 2])
        text = "from functools import partial\np = partial(pow, 2)\ndef f(): return p(exp=3)"
        self.check(text, ["p.keywords['mod'] = 5"], [8, 3])

    def test_closures(self):
        def make(value):
            def change(new):
                nonlocal value
                value = new

            return (lambda: value), change

        function, change = make(1)
        steps = [lambda: change(2), lambda: change([3])]
        self.assertEqual(values_of(self.executor, function, *steps), [1, 2, [3]])

    def test_classes_are_as_they_were_for_each_call_and_stay_as_they_are_here(self):
        text = """
class Config: rate = 1
class Other: rate = 2
class Base(Other): pass
class Point(Base):
    def __init__(self, x): self.x = x
    def get(self): return self.x * Config.rate * self.rate
def f(): return Config.rate, getattr(Config, 'extra', 0), Point.rate
def make(x): return Point(x)
def get(p): return p.get(), isinstance(p, Point)
"""
        found, _ = script(text)
        expected, futures = [], []
        for rate in (1, 2, 1, 3, 2, 1):
            found.Config.rate = rate
            if rate == 2:
                found.Config.extra = 5
            elif rate == 3:
                del found.Config.extra
            for bases in ((found.Other,), (found.Base,)):
                found.Point.__bases__ = bases
                found.Other.rate = rate if len(futures) % 4 else 2
                expected.append(found.f())
                futures.append(self.executor.submit(found.f))
        self.assertEqual([one.result(60) for one in futures], expected)
        # A value that comes back is of the class that is here, which stays as it is.
        found.Other.rate, found.Config.rate = 2, 1
        made = self.executor.submit(found.make, 10)
        taken = self.executor.submit(found.get, made)
        found.Other.rate, found.Config.rate = 3, 5
        point = made.result(60)
        self.assertIs(type(point), found.Point)
        self.assertEqual((found.Other.rate, found.Config.rate, point.get()), (3, 5, 150))
        self.assertEqual(taken.result(60), (20, True))
        self.assertEqual(self.executor.submit(found.get, point).result(60), (150, True))
        self.assertEqual(self.executor.submit(found.get, made).result(60), (150, True))

    def test_equal_callables_are_not_taken_for_each_other(self):
        class Adds:
            def __init__(self, number):
                self.number = number

            def __eq__(self, other):
                return True

            def __hash__(self):
                return 1

            def __call__(self):
                return self.number

        self.assertEqual([self.executor.submit(Adds(n)).result(60) for n in range(3)], [0, 1, 2])

    def test_a_module_function_that_is_replaced(self):
        module = types.ModuleType("replaced_for_tests")
        exec("def f(): return 1", module.__dict__)
        sys.modules[module.__name__] = module
        self.addCleanup(sys.modules.pop, module.__name__)
        functions = _calls.Functions()
        before = functions.code(module.f)
        self.assertEqual(functions.code(module.f), before)
        first = module.f
        exec("def f(): return 2", module.__dict__)
        self.assertNotEqual(functions.code(first), before)

    def test_what_stays_as_it_is_is_not_pickled_again(self):
        text = """
import dataclasses, os.path, typing
RATE, TABLE = 2, {"a": [1, 2]}
class Config:
    rate = 1
    def double(self): return 2 * self.rate
@dataclasses.dataclass
class Point:
    x: int = 0
    rest: list = dataclasses.field(default_factory=list)
config = Config()
def g(n: typing.List[int]): return RATE * n
def f(n=1): return g(n), TABLE, Config, Point(1), config, os.path.join("a", "b"), f
"""
        found, _ = script(text)
        facts = _unchanged.facts_of(found.f)
        self.assertIsNotNone(facts)
        self.assertTrue(facts.hold(found.f))
        found.Point.rest = 1
        self.assertFalse(facts.hold(found.f))


def initialise(name):
    global initialised
    initialised = name


initialised = "nobody"


def who():
    return initialised


class Initialised(unittest.TestCase):
    """Initializers run for the calls of their executor alone."""

    def setUp(self):
        self.dispatcher = Dispatcher().__enter__()
        self.addCleanup(self.dispatcher.__exit__, None, None, None)

    def executor(self, name=None):
        options = {"initializer": initialise, "initargs": (name,)} if name else {}
        executor = falkon.Executor(self.dispatcher.access, **options)
        self.addCleanup(executor.shutdown)
        return executor

    def check(self, *options):
        here = os.path.dirname(os.path.abspath(__file__))
        places = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
        self.dispatcher.executor(*options, slots=1, PYTHONPATH=places)
        first, second, none = self.executor("first"), self.executor("second"), self.executor()
        for executor, name in [(first, "first"), (second, "second"), (none, "nobody")] * 2:
            self.assertEqual(executor.submit(who).result(60), name)
        return first, second, none

    def test_each_executor_has_its_own_workers(self):
        first, _, none = self.check()
        self.assertEqual(none.submit(initialise, "changed").result(60), None)
        self.assertEqual(self.executor().submit(who).result(60), "nobody")

    def test_shared_workers_are_shared_by_those_that_initialise_alike(self):
        first, second, none = self.check("--share-workers")
        pid = none.submit(os.getpid).result(60)
        self.assertEqual(self.executor().submit(os.getpid).result(60), pid)
        pid = first.submit(os.getpid).result(60)
        self.assertEqual(self.executor("first").submit(os.getpid).result(60), pid)
        self.assertNotEqual(self.executor("third").submit(os.getpid).result(60), pid)


def state():
    """State of this process that calls share."""
    timers = [signal.getitimer(which)[0] > 0 for which in range(3)]
    limits = [resource.getrlimit(which) for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)]
    mask = os.umask(0o22)
    os.umask(mask)
    handlers = [signal.getsignal(one) for one in (signal.SIGALRM, signal.SIGUSR1, signal.SIGINT)]
    told = subprocess.run(["sh", "-c", "echo $FALKON_TEST:$FALKON_OTHER:$HOME"], capture_output=True)
    return os.getcwd(), dict(os.environ), told.stdout, mask, timers, limits, str(handlers)


def stream_names():
    return repr(sys.stdout), repr(sys.stderr)


def change_all():
    os.chdir("/")
    os.environ["FALKON_TEST"] = "1"
    os.environ["HOME"] = "elsewhere"
    os.putenv("FALKON_OTHER", "2")
    os.umask(0o777)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.alarm(1)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.001)
    for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE):
        _, most = resource.getrlimit(which)
        resource.setrlimit(which, (0 if which == resource.RLIMIT_CORE else 64, most))


def replace_streams():
    sys.stdout = io.StringIO()
    sys.stdout.close()
    sys.stderr = None


class Between(unittest.TestCase):
    """Changes that a call makes in its process are undone before the next one."""

    def setUp(self):
        self.written = []
        output = lambda stream, data: self.written.append((stream, data))
        self.executor = falkon.Executor(max_workers=1, output=output)
        self.addCleanup(self.executor.shutdown)

    def value(self, function, *args):
        return self.executor.submit(function, *args).result(60)

    def test_the_process_is_as_it_was(self):
        before, pid = self.value(state), self.value(os.getpid)
        for change in (change_all, lambda: (change_all(), 1 / 0), lambda: [change_all(), change_all()]):
            try:
                self.value(change)
            except ZeroDivisionError:
                pass
            self.assertEqual(self.value(state), before)
        # Functions that go by the names of these are watched as well.
        self.value(os.chdir, "/")
        self.value(os.umask, 0o777)
        self.value(os.putenv, "FALKON_TEST", "1")
        self.assertEqual(self.value(state), before)
        self.assertEqual(self.value(os.getpid), pid)

    def test_a_worker_whose_state_cannot_be_restored_is_replaced(self):
        def lower():
            before = resource.getrlimit(resource.RLIMIT_CORE)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if os.getuid() == 0:  # A user who may raise the limit again: as if one might not.
                os.setresuid(65534, 65534, 0)
            return before

        before = self.value(lower)
        pids = [self.executor.submit(os.getpid) for _ in range(20)]
        self.assertEqual(len({one.result(60) for one in pids}), 1)
        self.assertEqual(self.value(resource.getrlimit, resource.RLIMIT_CORE), before)
        self.assertEqual(self.value(os.getuid), os.getuid())

    def test_streams_are_as_they_were(self):
        before = self.value(stream_names)
        self.value(replace_streams)
        self.assertEqual(self.value(stream_names), before)
        self.value(print, "said")
        self.executor.shutdown()
        self.assertEqual(self.written, [(1, b"said\n")])

    def test_what_comes_late_is_no_other_calls_output(self):
        def leave(fifo):
            subprocess.Popen(["sh", "-c", "read line < %s; echo late; echo > %s.done" % (fifo, fifo)])
            print("in time", flush=True)

        def release(fifo):
            with open(fifo, "w") as told:
                told.write("go\n")
            with open(fifo + ".done") as done:
                done.read()
            print("after")

        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, "fifo")
            os.mkfifo(fifo)
            os.mkfifo(fifo + ".done")
            self.value(leave, fifo)
            self.value(release, fifo)
        self.executor.shutdown()
        self.assertEqual(self.written, [(1, b"in time\n"), (1, b"after\n")])

    def test_what_a_thread_writes_between_calls_is_nobodys_output(self):
        def leave(folder):
            def late():
                while not os.path.exists(folder + "/go"):
                    time.sleep(0.001)
                print("late", flush=True)
                open(folder + "/written", "w").close()

            threading.Thread(target=late, daemon=True).start()

        with tempfile.TemporaryDirectory() as folder:
            self.value(leave, folder)
            open(folder + "/go", "w").close()
            wait_until(lambda: os.path.exists(folder + "/written"))
            self.value(print, "mine")
        self.executor.shutdown()
        self.assertEqual(self.written, [(1, b"mine\n")])

    def test_what_an_import_and_an_initializer_change_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "sets_for_tests.py"), "w") as file:
                file.write("import os\nos.environ['FALKON_TEST'] = 'imported'\n")

            def begin():
                sys.path.insert(0, folder)
                os.umask(0o27)

            def use():
                import sets_for_tests

                return os.environ["FALKON_TEST"], os.umask(0)

            with falkon.Executor(max_workers=1, initializer=begin) as executor:
                for _ in range(3):
                    self.assertEqual(executor.submit(use).result(60), ("imported", 0o27))

    def test_a_module_that_is_edited_is_another(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "edited_for_tests.py")

            def use():
                if folder not in sys.path:
                    sys.path.insert(0, folder)
                import edited_for_tests

                return edited_for_tests.value()

            # An interpreter takes compiled files of the same second as they are.
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
            self.addCleanup(os.environ.pop, "PYTHONDONTWRITEBYTECODE")
            with falkon.Executor(max_workers=1) as executor:
                for number in range(5):
                    with open(path, "w") as file:
                        file.write("def value(): return %d\n" % number)
                    futures = [executor.submit(use) for _ in range(20)]
                    self.assertEqual({one.result(60) for one in futures}, {number})

    def test_a_child_that_a_call_forks_ends_as_it_says(self):
        def fork(ending):
            pid = os.fork()
            if pid == 0:
                print("child")
                exec(ending)
                return None
            return os.waitpid(pid, 0)[1] >> 8

        for ending, code in (("raise SystemExit(3)", 3), ("pass", 0), ("1 / 0", 1)):
            self.assertEqual(self.value(fork, ending), code)
        self.executor.shutdown()
        written = b"".join(data for stream, data in self.written if stream == 1)
        self.assertEqual(written.count(b"child"), 3)
        self.assertIn(b"ZeroDivisionError", b"".join(data for _, data in self.written))


if __name__ == "__main__":
    unittest.main()
