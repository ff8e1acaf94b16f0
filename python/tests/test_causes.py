"""Why a call failed comes beside its text: no text is taken for what it resembles."""

import sys
import unittest

import falkon
from falkon import File
from falkon._errors import RemoteTraceback
from services import InFolder

INITIALIZER = "falkon initializer\nTraceback (most recent call last):\nno\n"
VERSIONS = "falkon: other versions\nthe worker runs Python 1.5"
WORKER = "its worker exited with 3 in the middle of the call"
MORE_THAN_AN_ERROR_HAS = 100_000


class Stays(Exception):
    """Cannot be pickled."""

    def __reduce__(self):
        raise TypeError("it stays here")


class Leaves(SystemExit):
    """Cannot be pickled, and its text stands alone."""

    def __reduce__(self):
        raise TypeError("it stays here")


class Bad:
    """Raises where it is loaded, as an argument or as a function."""

    def __reduce__(self):
        return divmod, (1, 0)

    def __call__(self, *args):
        return args


def raise_(kind, *args):
    raise kind(*args)


def raise_in_a_group(text):
    raise ExceptionGroup("several", [Stays(text)])  # noqa: F821


def say(text):
    print(text)
    print(text, file=sys.stderr)
    return text


def raise_at_length():
    raise ValueError("first" + MORE_THAN_AN_ERROR_HAS * "." + "last")


class Causes(unittest.TestCase):
    def setUp(self):
        self.executor = falkon.Executor(max_workers=1)
        self.addCleanup(self.executor.shutdown)

    def exception(self, function, *args):
        return self.executor.submit(function, *args).exception(60)

    def test_no_exception_is_taken_for_what_its_text_resembles(self):
        for said in (INITIALIZER, VERSIONS, WORKER, "Traceback"):
            for also in (said, "RuntimeError: " + said, "\nRuntimeError: " + said):
                raised = self.exception(raise_, RuntimeError, also)
                self.assertIs(type(raised), RuntimeError, raised)
                self.assertEqual(raised.args, (also,))
                self.assertIs(type(raised.__cause__), RemoteTraceback)
                raised = self.exception(raise_, Stays, also)
                self.assertIs(type(raised), falkon.RemoteError, raised)
                self.assertIn(also.strip(), str(raised))
        self.assertEqual(self.executor.submit(abs, -1).result(60), 1)

    def test_no_text_of_an_exit_is_taken_for_what_it_resembles(self):
        for said in (INITIALIZER, VERSIONS, WORKER, "Traceback"):
            for also in (said, "RuntimeError: " + said):
                raised = self.exception(raise_, Leaves, also)
                self.assertIs(type(raised), falkon.TaskFailed, raised)
                self.assertEqual(str(raised), also)

    def test_no_output_is_taken_for_what_it_resembles(self):
        with falkon.Executor(max_workers=1, output=None) as executor:
            for said in (INITIALIZER, VERSIONS, WORKER):
                also = "RuntimeError: " + said
                self.assertEqual(executor.submit(say, also).result(60), also)

    def test_what_was_raised_is_known_whatever_its_text_is(self):
        raised = self.exception(raise_, Stays, "first" + MORE_THAN_AN_ERROR_HAS * "." + "last")
        self.assertIs(type(raised), falkon.RemoteError)
        self.assertTrue(str(raised).endswith("last"))
        with falkon.Executor(max_workers=1, initializer=raise_at_length) as executor:
            with self.assertRaisesRegex(falkon.InitializerFailed, "^the initializer raised\n(.|\n)*last$"):
                executor.submit(abs, 1).result(60)

    @unittest.skipUnless(sys.version_info >= (3, 11), "this Python has no groups of exceptions")
    def test_a_group_that_stays_is_known_as_raised(self):
        self.assertIs(type(self.exception(raise_in_a_group, "inner")), falkon.RemoteError)


class BeforeACall(InFolder):
    """Exceptions before a call has its arguments, whatever stands in front of them."""

    def test_it_comes_back_as_what_it_is(self):
        path = self.path("file")
        with open(path, "w") as file:
            file.write("text")
        with falkon.Executor(max_workers=1) as executor:
            gone = executor.submit(abs, -1)
            self.assertEqual(gone.result(60), 1)
            for front in (lambda: gone, lambda: executor.submit(abs, -2), lambda: File(path)):
                for function, args in ((max, (front(), Bad())), (Bad(), (front(),))):
                    raised = executor.submit(function, *args).exception(60)
                    self.assertIs(type(raised), ZeroDivisionError, raised)
                    self.assertIs(type(raised.__cause__), RemoteTraceback)


if __name__ == "__main__":
    unittest.main()
