"""Exceptions of users' code in this process, and terminals that do not take the output of calls:
the session goes on."""

import io
import logging
import os
import subprocess
import sys
import threading
import time
import unittest

import falkon
from falkon._futures import FINISHED, Future
from falkon._output import write_output


class Unfit(BaseException):
    """No Exception: nobody is to catch it by chance."""


class Logged(logging.Handler):
    """The log records of a ``with`` block."""

    def __enter__(self):
        self.records = []
        self.loggers = [logging.getLogger(name) for name in ("falkon", "concurrent.futures")]
        for logger in self.loggers:
            logger.addHandler(self)
            logger.propagate = False
        return self

    def __exit__(self, *raised):
        for logger in self.loggers:
            logger.removeHandler(self)
            logger.propagate = True

    def emit(self, record):
        self.records.append(record)


def raise_(error):
    raise error


class Broken:
    """Is pickled, and raises what no handler of exceptions catches where it is made."""

    def __init__(self, home):
        self.home = home

    def __reduce__(self):
        return (Broken.made, (self.home,))

    @staticmethod
    def made(home):
        if os.getpid() == home:
            raise Unfit("not here")
        return Broken(home)


class UserCode(unittest.TestCase):
    def goes_on(self, executor, bystanders):
        for bystander in bystanders:
            self.assertIsNone(bystander.result(60))
        self.assertEqual(executor.submit(abs, -1).result(60), 1)

    def test_what_output_raises_is_logged_once(self):
        for error in (ValueError("no"), SystemExit(3), KeyboardInterrupt(), Unfit()):
            with Logged() as logged:
                output = lambda stream, data, error=error: raise_(error)
                with falkon.Executor(max_workers=2, output=output) as executor:
                    bystanders = [executor.submit(time.sleep, 0.05) for _ in range(3)]
                    for text in ("a", "b"):
                        self.assertIsNone(executor.submit(print, text).result(60))
                    self.goes_on(executor, bystanders)
            self.assertEqual(len(logged.records), 1, logged.records)
            self.assertIn("could not be shown", logged.records[0].getMessage())

    def test_what_callbacks_raise_ends_nothing_else(self):
        for error in (ValueError("no"), SystemExit(3), KeyboardInterrupt(), Unfit()):
            with Logged() as logged, falkon.Executor(max_workers=2, output=None) as executor:
                heard = threading.Event()
                bystanders = [executor.submit(time.sleep, 0.05) for _ in range(3)]
                future = executor.submit(time.sleep, 0.01)
                future.add_done_callback(lambda _, error=error: raise_(error))
                future.add_done_callback(lambda _: heard.set())
                self.assertTrue(heard.wait(60))
                self.goes_on(executor, bystanders)
            self.assertEqual(len(logged.records), 1)

    def test_callbacks_of_the_main_thread_raise_there_what_ends_it(self):
        with Logged():
            future, heard = Future(), []
            future.add_done_callback(lambda _: raise_(SystemExit(3)))
            future.add_done_callback(heard.append)
            with self.assertRaises(SystemExit):
                future.cancel()
            self.assertEqual(heard, [future])

    def test_a_future_that_cannot_be_ended_costs_its_call(self):
        class Awkward(Future):
            def _end(self, state, result, exception):
                if state == FINISHED and exception is None:
                    raise OSError(28, "no room for what is to be kept")
                return super()._end(state, result, exception)

        with Logged() as logged, falkon.Executor(max_workers=2) as executor:
            bystanders = [executor.submit(time.sleep, 0.05) for _ in range(3)]
            future = executor._call(abs, None, executor._class, (-1,), {}, Awkward())
            with self.assertRaisesRegex(OSError, "no room"):
                future.result(60)
            with self.assertRaises(Unfit):
                executor.submit(Broken, os.getpid()).result(60)
            self.goes_on(executor, bystanders)
        self.assertEqual(len(logged.records), 1)

    def test_a_character_that_cannot_be_shown_is_replaced(self):
        for encoding, wanted in (("latin-1", b"a?\xe9\n"), ("ascii", b"a??\n")):
            raw = io.BytesIO()
            before, sys.stdout = sys.stdout, io.TextIOWrapper(raw, encoding=encoding)
            try:
                write_output(1, "a→é\n".encode())
                self.assertEqual(raw.getvalue(), wanted)
            finally:
                sys.stdout = before

    def test_streams_that_are_closed_full_or_plain(self):
        script = (
            "import falkon, sys\n"
            "%s\n"
            "with falkon.Executor(max_workers=2) as executor:\n"
            "    futures = [executor.submit(print, 'a →', n) for n in range(3)]\n"
            "    assert [one.result(60) for one in futures] == [None] * 3\n"
            "    assert executor.submit(abs, -1).result(60) == 1\n"
            "print('fine', file=sys.stderr)\n"
            "%s\n"
        )
        still = "sys.stdout = None"
        for breaks, repair in (
            ("sys.stdout.close()", still),
            ("sys.stdout = open('/dev/full', 'w')", "import os; os._exit(0)"),
            ("sys.stdout = sys.__stdout__ = None", still),
            ("sys.stdout.reconfigure(encoding='ascii')", ""),
            ("sys.stdout.reconfigure(encoding='latin-1')", ""),
        ):
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", script % (breaks, repair)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                timeout=120,
            )
            with self.subTest(breaks=breaks):
                self.assertIn("fine\n", done.stderr)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertLessEqual(done.stderr.count("could not be shown"), 1)


if __name__ == "__main__":
    unittest.main()
