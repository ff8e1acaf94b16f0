"""Large functions, arguments and values travel as small ones do, here and with a dispatcher."""

import functools
import hashlib
import os
import random
import unittest

import falkon
from falkon import _program
from services import Dispatcher

MIB = 1 << 20
GLOBAL = bytes(18 * MIB)


class Model:
    """Has a method that is called elsewhere."""

    def __init__(self, content):
        self.content = content

    def predict(self, number):
        return len(self.content) + number


def made(size, form, *given):
    """A value of a size and a form, which depends on all that it is made of."""
    import hashlib

    digest = hashlib.sha256()

    def take(one):
        if isinstance(one, (list, tuple)):
            for part in one:
                take(part)
        else:
            digest.update(one if isinstance(one, (bytes, bytearray)) else repr(one).encode())

    take(given)
    content = (digest.digest() * (size // 32 + 1))[:size]
    if form == "list":
        return [content[at : at + 100_000] for at in range(0, size, 100_000)]
    return bytearray(content) if form == "bytearray" else content


def summed(value):
    return hashlib.sha256(value if isinstance(value, (bytes, bytearray)) else b"".join(value)).digest()


class Sizes:
    """The same here and elsewhere."""

    near = [MIB, 2 * MIB, 4 * MIB, 8 * MIB - 20_000, 8 * MIB, 11 * MIB, 16 * MIB - 4096, 16 * MIB]
    """Where values begin to travel otherwise, or messages end."""

    def size(self, draw):
        kind = draw.random()
        if kind < 0.4:
            return draw.randrange(0, 3000)
        if kind < 0.8:
            return draw.randrange(60_000, MIB - 200)
        return draw.choice(self.near) + draw.choice((-200, -1, 0, 1, 200))

    def test_random_graphs_are_as_if_made_one_after_another(self):
        seed = int(os.environ.get("FALKON_SEED") or random.randrange(1 << 32))
        draw = random.Random(seed)
        futures, wanted = [], []
        for _ in range(60):
            form = draw.choice(("bytes", "bytearray", "list"))
            width = draw.choice((0, 1, 2, 3, 9, 11, 25, 40))
            places = [draw.randrange(len(futures)) for _ in range(width if futures else 0)]
            own = made(self.size(draw) if draw.random() < 0.3 else 9, "bytes", draw.random())
            size = self.size(draw)
            nested = draw.random() < 0.5
            takes = [futures[place] for place in places]
            args = (size, form, own, takes) if nested else (size, form, own, *takes)
            futures.append(self.submit(made, *args))
            values = [wanted[place] for place in places]
            args = (size, form, own, values) if nested else (size, form, own, *values)
            wanted.append(made(*args))
            if draw.random() < 0.2:
                draw.choice(futures).result(60)
        for number, (future, value) in enumerate(zip(futures, wanted)):
            said = "seed %d: call %d" % (seed, number)
            try:
                found = future.result(60)
            except Exception as error:
                raise AssertionError(said) from error
            self.assertEqual(type(found), type(value), said)
            self.assertEqual(summed(found), summed(value), said)
        session = self.executor._shared.session()
        self.assertEqual((len(session._submissions._wide), len(session._preparing)), (0, 0), said)

    def test_fan_ins_pending_and_done(self):
        def total(*values):
            return sum(map(len, values))

        parts = [self.submit(os.urandom, 100_000) for _ in range(200)]
        whole = self.submit(total, *parts)
        more = self.submit(pow, self.submit(pow, whole, 1), 1)
        self.assertEqual(whole.result(60), 20_000_000)
        self.assertEqual(more.result(60), 20_000_000)
        for part in parts:
            part.result(60)
        self.assertEqual(self.submit(total, *parts).result(60), 20_000_000)
        failed = self.submit(os.urandom, -1)
        with self.assertRaises(falkon.DependencyError):
            self.submit(pow, self.submit(total, *parts, failed), 1).result(60)

    def test_a_call_that_is_made_again_is_cancelled(self):
        parts = [self.submit(os.urandom, 900_000) for _ in range(20)]
        whole = self.submit(lambda *values: len(values), *parts)
        more = self.submit(abs, whole)
        for part in parts:
            part.result(60)
        whole.cancel()
        # Either way, as the call may have ended.
        self.assertIsInstance(more.exception(60), (type(None), falkon.DependencyError))
        self.assertEqual(self.submit(abs, -1).result(60), 1)

    def test_functions_with_much_about_them(self):
        content = os.urandom(17 * MIB)
        bystander = self.submit(abs, -1)
        self.assertEqual(self.submit(lambda: len(content)).result(60), 17 * MIB)
        self.assertEqual(self.submit(lambda: len(GLOBAL)).result(60), 18 * MIB)
        partial = functools.partial(lambda one, two: len(one) + two, content)
        self.assertEqual(self.submit(partial, 3).result(60), 17 * MIB + 3)
        self.assertEqual(self.submit(partial, two=4).result(60), 17 * MIB + 4)
        default = lambda one=content: len(one)
        self.assertEqual(self.submit(default).result(60), 17 * MIB)
        self.assertEqual(bystander.result(60), 1)

    def test_a_method_of_something_large_in_a_map(self):
        model = Model(bytearray(20 * MIB))
        wanted = [20 * MIB + number for number in range(40)]
        for chunksize in (1, 7):
            found = self.executor.map(model.predict, range(40), chunksize=chunksize)
            self.assertEqual(list(found), wanted)

    def test_initializers_with_much_about_them(self):
        content = os.urandom(17 * MIB)

        def keep(content, *more):
            import sys

            sys.kept = len(content), *more
            sys.times = getattr(sys, "times", 0) + 1

        def kept():
            import os
            import sys

            return sys.kept, sys.times, os.getpid()

        with self.executor_with(keep, content, 3) as executor:
            objects = executor._shared.session().objects
            stored = []
            store = objects._write
            objects._write = lambda made, one: (stored.append(one.bytes), store(made, one))
            seen = {}
            calls = [executor.submit(kept) for _ in range(6)]
            calls += [executor.submit(lambda one, n=n: (kept(), n + one)[0], 1) for n in range(6)]
            large = executor.submit(lambda: (kept(), len(GLOBAL)))
            for one in calls:
                what, times, process = one.result(60)
                self.assertEqual((what, times), ((17 * MIB, 3), 1))
                seen.setdefault(process, 0)
            self.assertEqual(large.result(60)[0][0], (17 * MIB, 3))
            self.assertEqual(large.result(60)[1], 18 * MIB)
            self.assertEqual(list(executor.map(pow, range(40), [2] * 40)), [n * n for n in range(40)])
            self.assertLessEqual(len(seen), 2)
            self.assertEqual([size // MIB for size in stored if size < 18 * MIB], [17])

    def test_one_that_changes_is_another_one(self):
        content = bytearray(2 * MIB)
        first = lambda: content[0]
        self.assertEqual(self.submit(first).result(60), 0)
        content[0] = 7
        self.assertEqual(self.submit(first).result(60), 7)

    def test_apps(self):
        content = bytes(2 * MIB)
        app = falkon.python_app(executor=self.executor)(lambda number: len(content) + number)
        self.assertEqual(app(app(1)).result(60), 4 * MIB + 1)
        shell = falkon.shell_app(executor=self.executor)(lambda: "exit %d" % (len(content) % 2))
        self.assertEqual(shell().result(60), 0)

    def test_arguments_that_are_large_together_and_take_values(self):
        value = self.submit(os.urandom, 10)
        texts = ["%030d" % number for number in range(600_000)]
        given = (texts, [value, {"more": bytearray(18 * MIB)}], value)

        def lengths(given):
            texts, (value, named), again = given
            return len(texts), texts[-1], len(named["more"]), value == again

        found = self.submit(lengths, given).result(60)
        self.assertEqual(found, (600_000, texts[-1], 18 * MIB, True))

    def test_a_part_that_is_in_many_is_put_there_once(self):
        def total(one):
            data, (number,) = one["data"], one["number"]
            return len(data) + number

        data = bytearray(3 * MIB)
        calls = [{"data": data, "number": (number,)} for number in range(20)]
        before = self.put()
        found = [self.submit(total, one) for one in calls]
        self.assertEqual([one.result(60) for one in found], [3 * MIB + n for n in range(20)])
        self.assertEqual(self.put() - before, 1)


class Here(Sizes, unittest.TestCase):
    def setUp(self):
        self.executor = falkon.Executor(max_workers=2)
        self.addCleanup(self.executor.shutdown)
        self.submit = self.executor.submit

    def put(self):
        return len(os.listdir(self.executor._shared.session().objects.folder))

    def executor_with(self, *initializer):
        function, *arguments = initializer
        return falkon.Executor(max_workers=2, initializer=function, initargs=arguments)


class Elsewhere(Sizes, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dispatcher = Dispatcher()
        cls.dispatcher.__enter__()
        cls.addClassCleanup(cls.dispatcher.__exit__)
        cls.dispatcher.executor(PYTHONPATH=_program.module_path())
        cls.executor = falkon.Executor(cls.dispatcher.access)
        cls.addClassCleanup(cls.executor.shutdown)
        cls.executor.submit(abs, -1).result(60)

    def setUp(self):
        self.submit = self.executor.submit

    def put(self):
        return len(self.executor._shared.session().objects.caches.put)

    def executor_with(self, *initializer):
        function, *arguments = initializer
        access = self.dispatcher.access
        return falkon.Executor(access, initializer=function, initargs=arguments)


if __name__ == "__main__":
    unittest.main()
