"""What is large travels as what is small: functions, arguments and values, here
and with a dispatcher."""

import functools
import os
import unittest

import falkon
from services import Dispatcher

MIB = 1 << 20
GLOBAL = bytes(18 * MIB)


class Model:
    """Has a method that is called elsewhere."""

    def __init__(self, content):
        self.content = content

    def predict(self, number):
        return len(self.content) + number


class Sizes:
    """The same here and elsewhere."""

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

    def test_initializers_with_much_about_them(self):
        content = bytes(17 * MIB)
        with falkon.Executor(max_workers=1, initializer=len, initargs=(content,)) as executor:
            self.assertEqual(executor.submit(abs, -1).result(60), 1)


class Elsewhere(Sizes, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dispatcher = Dispatcher()
        cls.dispatcher.__enter__()
        cls.addClassCleanup(cls.dispatcher.__exit__)
        cls.dispatcher.executor()
        cls.executor = falkon.Executor(cls.dispatcher.access)
        cls.addClassCleanup(cls.executor.shutdown)
        cls.executor.submit(abs, -1).result(60)

    def setUp(self):
        self.submit = self.executor.submit

    def put(self):
        return len(self.executor._shared.session().objects._put)


if __name__ == "__main__":
    unittest.main()
