"""Harm that calls and callers can do to each other: crashes, memory, values that cannot be pickled,
recursion, signals, threads."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import unittest

import falkon
from falkon import _program
from services import Dispatcher, is_alive, wait_until


class Awkward(Exception):
    """Cannot be pickled."""

    def __reduce__(self):
        raise TypeError("not this one")


class Fragile:
    """Is pickled, and cannot be made from that where it is not wanted."""

    def __init__(self, home):
        self.home = home

    def __reduce__(self):
        return (Fragile.made, (self.home,))

    @staticmethod
    def made(home):
        if os.getpid() != home:
            raise LookupError("made elsewhere")
        return Fragile(home)


def raise_(kind, *arguments):
    raise kind(*arguments)


def segfault():
    import ctypes

    ctypes.string_at(0)


def take_memory(count):
    """Takes more than it may."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (count // 2, limits[1]))
    try:
        return len(bytearray(count))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def fragile():
    return Fragile(os.getpid())


def numbers(count):
    yield from range(count)


def generator():
    return numbers(3)


def calls(access, depth):
    """Makes calls at the dispatcher that this one was made by."""
    if depth == 0:
        return 1
    with falkon.Executor(access) as executor:
        return sum(executor.map(calls, [access] * 2, [depth - 1] * 2, chunksize=1))


class Failures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.executor = falkon.Executor(max_workers=2)
        cls.addClassCleanup(cls.executor.shutdown)

    def value(self, function, *args):
        return self.executor.submit(function, *args).result(60)

    def test_crashes(self):
        for function, arguments, died_of in [
            (segfault, (), signal.SIGSEGV),
            (os.abort, (), signal.SIGABRT),
            # The kernel kills so when memory is short.
            (signal.raise_signal, (signal.SIGKILL,), signal.SIGKILL),
        ]:
            others = [self.executor.submit(abs, -n) for n in range(20)]
            with self.assertRaises(falkon.WorkerDied) as caught:
                self.value(function, *arguments)
            self.assertEqual(caught.exception.signal, died_of)
            self.assertEqual([other.result(60) for other in others], list(range(20)))

    def test_memory_that_is_not_there(self):
        with self.assertRaises(MemoryError):
            self.value(take_memory, 1 << 40)
        self.assertEqual(self.value(abs, -1), 1)

    def test_exceptions_of_any_kind(self):
        with self.assertRaisesRegex(falkon.RemoteError, "Awkward: 3"):
            self.value(raise_, Awkward, 3)
        with self.assertRaises(KeyboardInterrupt):
            self.value(raise_, KeyboardInterrupt)
        with self.assertRaises(GeneratorExit):
            self.value(raise_, GeneratorExit)
        with self.assertRaises(StopIteration):
            self.value(raise_, StopIteration)

    def test_values_that_cannot_be_made_here(self):
        with self.assertRaisesRegex(LookupError, "made elsewhere"):
            self.value(fragile)
        self.assertEqual(self.value(abs, -1), 1)

    def test_generators(self):
        with self.assertRaisesRegex(TypeError, r"write a function\s+that runs it, with list\(\)"):
            self.value(numbers, 3)
        with self.assertRaisesRegex(Exception, "generator"):
            self.value(generator)
        self.assertEqual(list(self.executor.map(abs, numbers(3))), [0, 1, 2])
        self.assertEqual(list(self.executor.map(abs, numbers(3), chunksize=2)), [0, 1, 2])

    def test_threads_that_submit_cancel_and_shut_down(self):
        executor = falkon.Executor(max_workers=2)
        begun = threading.Barrier(6)
        made = []

        def submit():
            begun.wait(60)
            with contextlib.suppress(RuntimeError):
                while True:
                    future = executor.submit(abs, -7)
                    made.append(future)
                    if len(made) % 3 == 0:
                        future.cancel()

        threads = [threading.Thread(target=submit) for _ in range(5)]
        for thread in threads:
            thread.start()
        begun.wait(60)
        wait_until(lambda: len(made) > 1000)
        executor.shutdown(wait=False)
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())
        executor.shutdown()
        self.assertEqual({one.result(0) for one in made if not one.cancelled()}, {7})


class AtADispatcher(unittest.TestCase):
    def test_a_call_makes_calls_where_it_was_made(self):
        with Dispatcher() as dispatcher:
            dispatcher.executor(slots=8, PYTHONPATH=_program.module_path())
            with falkon.Executor(dispatcher.access) as executor:
                self.assertEqual(executor.submit(calls, dispatcher.access, 2).result(60), 4)
            self.assertEqual(falkon.Client(dispatcher.access).instances(), [])


class Signals(unittest.TestCase):
    def interrupted(self, statements):
        """Runs a script that is interrupted in the midst of this, within a
        function of an executor, and looks at what is left of it."""
        script = """
            import contextlib, falkon, os, signal, sys, threading, time

            # It is ignored in what a shell has started in the background.
            signal.signal(signal.SIGINT, signal.default_int_handler)

            def pid_of_worker(n):
                time.sleep(0.1)
                return os.getpid()

            def waits_for_a_result():
                frame = sys._current_frames()[threading.main_thread().ident]
                while frame is not None and frame.f_code.co_name != "result":
                    frame = frame.f_back
                return frame is not None

            def interrupt_when(condition):
                def watch():
                    while not condition():
                        time.sleep(0.001)
                    os.killpg(0, signal.SIGINT)
                threading.Thread(target=watch, daemon=True).start()

            @contextlib.contextmanager
            def both_workers_held(executor):
                # Calls that are submitted end no sooner than they come.
                held = [executor.submit(time.sleep, 3600) for _ in range(2)]
                try:
                    yield
                finally:
                    for one in held:
                        one.cancel()

            try:
                with falkon.Executor(max_workers=2) as executor:
                    pids = set(executor.map(pid_of_worker, range(4), chunksize=1))
                    pids.add(executor._shared._session.connection.program.process.pid)
                    print(*pids, flush=True)
                    session = executor._shared._session
                    %s
            except KeyboardInterrupt:
                print("interrupted", session.pending(), flush=True)
            """
        body = textwrap.indent(textwrap.dedent(statements).strip(), " " * 20).strip()
        command = [sys.executable, "-c", textwrap.dedent(script) % body.replace("\n" + " " * 12, "\n")]
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=120, start_new_session=True
        )
        self.assertEqual((ran.stderr, ran.returncode), ("", 0))
        pids, said = ran.stdout.splitlines()
        self.assertEqual(said, "interrupted 0")
        for pid in map(int, pids.split()):
            wait_until(lambda: not is_alive(pid))

    def test_during_map(self):
        self.interrupted(
            """
            values = executor.map(time.sleep, [0.01] + [3600] * 50, chunksize=1)
            next(values)
            interrupt_when(waits_for_a_result)
            list(values)
            """
        )

    def test_during_result(self):
        self.interrupted(
            """
            future = executor.submit(time.sleep, 3600)
            interrupt_when(waits_for_a_result)
            try:
                future.result()
            finally:
                future.cancel()
            """
        )

    def test_during_submit(self):
        self.interrupted(
            """
            with both_workers_held(executor):
                interrupt_when(lambda: session.pending() > 20_000)
                while True:
                    executor.submit(abs, -1)
            """
        )

    def test_during_submit_of_much(self):
        self.interrupted(
            """
            data = bytes(1 << 20)
            with both_workers_held(executor):
                interrupt_when(lambda: session.pending() > 100)
                while True:
                    executor.submit(len, data)
            """
        )

    def test_a_handler_that_submits(self):
        before = signal.getsignal(signal.SIGALRM)
        made = []
        with falkon.Executor(max_workers=2) as executor:
            executor.submit(len, b"").result(60)  # Nothing is imported later.
            handler = lambda *_: made.append(executor.submit(len, b"x" * 100_000))
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            try:
                futures = [executor.submit(len, bytes(10_000)) for _ in range(5000)]
                wait_until(lambda: made)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
            self.assertEqual({future.result(60) for future in futures}, {10_000})
            self.assertTrue(made)
            self.assertEqual({future.result(60) for future in made}, {100_000})


if __name__ == "__main__":
    unittest.main()
