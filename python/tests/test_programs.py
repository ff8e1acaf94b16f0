"""Random programs that change while they run, beside an interpreter that is new for
each call: whichever way a call is made, it never gives another value.

The program is the one that FALKON_BINARY names. FALKON_SEED repeats a failure.
"""

import os
import random
import subprocess
import sys
import tempfile
import textwrap
import unittest

import falkon

PROGRAMS = int(os.environ.get("FALKON_PROGRAMS", "3"))
STEPS = 40

# Forks before it knows anything: each child is a new interpreter.
REFERENCE = """
import os, sys
for line in sys.stdin:
    statements, call = eval(line)
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            space = {"__name__": "__main__"}
            for statement in statements:
                exec(statement, space)
            said = repr(eval(call, space))
        except Exception as error:
            said = "raises " + type(error).__name__
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        print(repr(pipe.read()), flush=True)
    os.wait()
"""

START = """
import dataclasses, enum, functools, collections
import m0
from m0 import value as named
G0, G1, G2 = 1, [1, 2], {"a": 1}
class C0:
    rate = 2
    table = [1]
    def m(self, x):
        return x * self.rate + G0 + len(self.table)
    @staticmethod
    def s(x):
        return x + C0.rate
    @classmethod
    def c(cls, x):
        return x - cls.rate
    @property
    def p(self):
        return self.rate * 2 + sum(G1)
class C1(C0):
    def m(self, x):
        return super().m(x) + 1
@dataclasses.dataclass
class D0:
    x: int = 1
    def get(self):
        return self.x + G0 + C0.rate
class E0(enum.Enum):
    A = 1
    B = 2
instance = C1()
def make(k):
    def inner(x):
        return x * k + G0
    return inner
bound = make(2)
part = functools.partial(make(3))
"""

BODIES = (
    "x + G0", "x + sum(G1)", "G2.get('a', 0) + x + len(G2)", "C0.rate * x", "C0().m(x)", "C1().m(x)",
    "C0.s(x)", "C1.c(x)", "C1().p + x", "D0(x).get()", "D0(x)", "E0.A.value + x", "E0(1 + x % 2).name",
    "(lambda: [sum(G0 * i for i in range(n)) for n in range(x)])()", "m0.value(x)", "named(x)",
    "(lambda y: (lambda: y + G0 + getattr(C0, 'extra', 0))())(x)", "getattr(C0, 'extra', None)",
    "instance.m(x)", "getattr(instance, 'own', 0) + x", "bound(x)", "part(x)", "isinstance(D0(x), D0)",
    "type(instance) is C1", "y", "deep(x)", "local(x)", "[one.value for one in E0]", "D0(x) == D0(x)",
)  # fmt: skip


class Program:
    """A program as its statements, which are run here."""

    def __init__(self, rng, folder):
        self.rng = rng
        self.folder = folder
        self.statements = []
        self.space = {"__name__": "__main__"}
        for name in ("m0", "m1"):
            self.edit_module(name)
        self.run(START)
        for number in range(6):
            self.define(number)

    def run(self, statement):
        exec(statement, self.space)
        self.statements.append(statement)

    def edit_module(self, name):
        number = self.rng.randrange(3)
        text = "def value(x): return x + %d\n" % number
        if name == "m0":
            text = "import m1\nK = %d\ndef unused(): return %d\ndef value(x): return m1.value(x) * K\n" % (
                number, self.rng.randrange(3),
            )  # fmt: skip
        with open(os.path.join(self.folder, name + ".py"), "w") as file:
            file.write(text)

    def define(self, number):
        body = self.rng.choice(BODIES)
        calls = " + repr(f%d(x))" % self.rng.randrange(number) if number else ""
        self.run(textwrap.dedent("""
            def f%d(x, y=%d):
                def deep(n):
                    return (lambda: G0 + n + f%d.factor)()
                def local(n):
                    import m0
                    return m0.value(n)
                return repr(%s)%s
            f%d.factor = %d
        """) % (number, self.rng.randrange(3), number, body, calls, number, self.rng.randrange(3)))

    def edit(self):
        rng, k = self.rng, self.rng.randrange(3)
        f = rng.randrange(6)
        edits = (
            "G0 = %d" % k, "G0 = %d.0" % k, "G1.append(%d)" % k, "G1 = [%d]" % k, "G2['a'] = %d" % k,
            "G2['b%d'] = 1" % k, "C0.rate = %d" % k, "C0.rate = %d" % k, "C0.table.append(1)",
            "C0.table = [1] * %d" % k, "C0.extra = %d" % k, "if 'extra' in vars(C0): del C0.extra",
            "C0.m = lambda self, x: x - %d + self.rate" % k, "C1.rate = %d" % k,
            "if 'rate' in vars(C1): del C1.rate", "instance.own = %d" % k, "f%d.factor = %d" % (f, k),
            "f%d.__defaults__ = (%d,)" % (f, k), "bound = make(%d)" % k, "part = functools.partial(make(%d))" % k,
            "f%d.__code__ = (lambda x, y=1: repr((x, %d, G0))).__code__" % (f, k), "instance.__class__ = C%d" % (k % 2),
            "class D0(D0):\n    def get(self): return %d" % k, "C1.__bases__ = (type('B', (C0,), {'rate': %d}),)" % k,
        )  # fmt: skip
        kind = rng.randrange(len(edits) + 6)
        if kind < len(edits):
            self.run(edits[kind])
        elif kind < len(edits) + 3:
            self.define(f)
        else:
            return rng.choice(("m0", "m1"))
        return None


class Programs(unittest.TestCase):
    def test_no_call_gives_another_value_than_a_new_interpreter(self):
        seed = int(os.environ.get("FALKON_SEED", random.randrange(1 << 32)))
        print("FALKON_SEED=%d" % seed, file=sys.stderr)
        for number in range(PROGRAMS):
            with self.subTest(seed=seed, number=number), tempfile.TemporaryDirectory() as folder:
                self.check(random.Random(seed * 1000 + number), folder)

    def check(self, rng, folder):
        # An interpreter takes a compiled file of the same second and length as it is.
        variables = {"PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])}
        variables["PYTHONDONTWRITEBYTECODE"] = "1"
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        self.addCleanup(self.restore, before)
        sys.path.insert(0, folder)
        reference = subprocess.Popen(
            [sys.executable, "-c", REFERENCE], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            program = Program(rng, folder)
            with falkon.Executor(max_workers=2) as executor:
                self.go(rng, program, executor, reference, os.path.join(folder, "state"))
        finally:
            reference.stdin.close()
            reference.wait()
            reference.stdout.close()
            sys.path.remove(folder)
            for name in ("m0", "m1"):
                sys.modules.pop(name, None)
            self.restore(before)

    def restore(self, variables):
        for name, value in variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def go(self, rng, program, executor, reference, state):
        pending = []
        run = falkon.run(executor, resume=state)
        try:
            for _ in range(STEPS):
                module = program.edit() if rng.random() < 0.7 else None
                if module or rng.random() < 0.3:
                    self.settle(pending, program)
                if module:
                    program.edit_module(module)
                if rng.random() < 0.2:
                    self.settle(pending, program)
                    run.close()
                    run = falkon.run(executor, resume=state)
                for _ in range(rng.randrange(4)):
                    name, x = "f%d" % rng.randrange(6), rng.randrange(3)
                    function = program.space[name]
                    kind = rng.randrange(3)
                    if kind == 0:
                        future = executor.submit(function, x)
                    else:
                        future = falkon.python_app(cache=kind == 1 or None)(function)(x)
                    call = "%s(%d)" % (name, x)
                    print(repr((program.statements, call)), file=reference.stdin, flush=True)
                    expected = eval(reference.stdout.readline())
                    pending.append((future, expected, call, kind, len(program.statements)))
            self.settle(pending, program)
        finally:
            run.close()

    def settle(self, pending, program):
        for future, expected, call, kind, count in pending:
            error = future.exception(60)
            found = "raises " + type(error).__name__ if error else repr(future.result())
            history = "\n".join(program.statements[1:count])
            self.assertEqual(found, expected, "%s, made as %d:\n%s\n%s" % (call, kind, history, error))
        pending.clear()


if __name__ == "__main__":
    unittest.main()
