"""Apps, with real processes. The program is the one that FALKON_BINARY names."""

import concurrent.futures
import os
import signal
import subprocess
import sys
import textwrap
import time
import unittest

import falkon
from services import InFolder


@falkon.python_app
def double(value):
    """Twice as much."""
    return 2 * value


@falkon.python_app(retries=1, cpus=0.5)
def combine(values, plus=0):
    return sum(values) + plus


@falkon.python_app
def fails():
    raise LookupError("nothing there")


@falkon.shell_app
def shout(text):
    return "printf %%s '%s' | tr a-z A-Z" % text


@falkon.shell_app
def copy(source, stdout="copied"):
    return ["cat", source]


@falkon.shell_app
def run(*command):
    return list(command)


@falkon.shell_app(timeout=60)
def concatenate(*files):
    return ["cat", *files]


def read(path):
    with open(path) as file:
        return file.read()


class Apps(InFolder):
    @classmethod
    def setUpClass(cls):
        cls.written = []
        cls.executor = falkon.Executor(
            max_workers=2, output=lambda stream, data: cls.written.append((stream, data))
        )
        falkon.use(cls.executor)

    @classmethod
    def tearDownClass(cls):
        falkon.use(None)
        cls.executor.shutdown()

    def test_calls_of_apps_give_futures_and_take_them(self):
        self.assertEqual(double(double(1)).result(60), 4)
        self.assertEqual(combine([double(1), double(2)], plus=double(3)).result(60), 12)
        self.assertEqual(double.function(2), 4)
        self.assertEqual((double.__name__, double.__doc__), ("double", "Twice as much."))

    def test_methods_closures_and_apps_that_others_know(self):
        factor = 3

        class Model:
            def __init__(self, base):
                self.base = base

            @falkon.python_app
            def predict(self, value):
                return self.base + factor * value

        self.assertEqual(Model(1).predict(double(1)).result(60), 7)

        @falkon.python_app
        def indirect(value):
            return double.function(value) + 1

        self.assertEqual(indirect(2).result(60), 5)

    def test_an_app_has_its_own_executor_if_it_is_given_one(self):
        with falkon.Executor(max_workers=1, initializer=os.putenv, initargs=("A", "b")) as own:
            app = falkon.python_app(executor=own)(os.getpid)
            shell = falkon.shell_app(executor=own)(lambda: "test -n x")
            ours = falkon.python_app(os.getpid)
            self.assertNotEqual(app().result(60), ours().result(60))
            self.assertEqual(shell().result(60), 0)

    def test_options_that_there_are_not_are_refused_at_once(self):
        with self.assertRaises(TypeError):
            falkon.python_app(color="red")(read)
        with self.assertRaisesRegex(TypeError, "cannot be an app"):
            falkon.python_app(3)

    def test_gathered_futures(self):
        four = falkon.gather(double(1), double(2))
        self.assertEqual(four.result(60), [2, 4])
        self.assertEqual(falkon.gather([]).result(0), [])
        self.assertEqual(combine(falkon.gather([double(3), double(double(1))])).result(60), 10)
        with self.assertRaises(LookupError):
            falkon.gather([double(1), fails(), double(3)]).result(60)
        waits = run("sleep", "60")
        gathered = falkon.gather(double(1), waits)
        self.assertTrue(gathered.cancel())
        self.assertTrue(waits.cancelled())
        done, pending = concurrent.futures.wait([falkon.gather(double(1))], timeout=60)
        self.assertEqual((len(done), len(pending)), (1, 0))

    def test_commands_of_the_shell_and_lists(self):
        self.assertEqual(shout("hello").result(60), 0)
        self.assertIn((1, b"HELLO"), self.written)
        self.assertEqual(run(sys.executable, "-c", "import sys; sys.stderr.write('no')").result(60), 0)
        self.assertIn((2, b"no"), self.written)

    def test_streams_go_to_files(self):
        one, two = self.path("one"), self.path("two")
        with open(one, "w") as file:
            file.write("1")
        self.assertEqual(copy(one, stdout=two).result(60), 0)
        self.assertEqual(read(two), "1")
        self.assertEqual(copy(one, self.path("three")).result(60), 0)
        self.assertEqual(read(self.path("three")), "1")
        self.assertEqual(run("cat", stdin=one, stdout=(two, "a")).result(60), 0)
        self.assertEqual(read(two), "11")
        self.assertEqual(run("sh", "-c", "echo problem >&2", stderr=two).result(60), 0)
        self.assertEqual(read(two), "problem\n")
        with self.assertRaises(FileNotFoundError):
            run("cat", stdin=self.path("none")).result(60)

    def test_a_default_in_the_signature_is_where_a_stream_goes(self):
        target = self.path("default")

        @falkon.shell_app
        def say(word, stdout=target):
            return ["echo", word]

        self.assertEqual(say("hello").result(60), 0)
        self.assertEqual(read(target), "hello\n")

    def test_commands_that_fail(self):
        with self.assertRaises(subprocess.CalledProcessError) as caught:
            run("sh", "-c", "exit 3").result(60)
        self.assertEqual(caught.exception.returncode, 3)
        self.assertEqual(caught.exception.cmd, ["sh", "-c", "exit 3"])
        with self.assertRaises(subprocess.CalledProcessError) as caught:
            run("sh", "-c", "kill -9 $$").result(60)
        self.assertEqual(caught.exception.returncode, -signal.SIGKILL)
        with self.assertRaises(FileNotFoundError):
            run("no-such-program-anywhere").result(60)
        with self.assertRaisesRegex(TypeError, "returns a command"):
            falkon.shell_app(lambda: 3)().result(60)
        with self.assertRaises(falkon.DependencyError) as caught:
            double(run("false")).result(60)
        self.assertIsInstance(caught.exception.__cause__, subprocess.CalledProcessError)

    def test_a_pipeline_of_commands_and_functions(self):
        parts = [self.path("part%d" % number) for number in range(4)]

        def after(value, *_):
            return value

        made = [run("echo", str(at), stdout=path) for at, path in enumerate(parts)]
        kept = [self.executor.submit(after, path, one) for path, one in zip(parts, made)]
        whole = self.path("whole")
        joined = concatenate(*kept, stdout=whole)
        text = self.executor.submit(after, whole, joined)
        self.assertEqual(self.executor.submit(read, text).result(60), "0\n1\n2\n3\n")

    def test_a_command_that_is_cancelled_leaves_nothing(self):
        mark = self.path("pid")
        running = run("sh", "-c", "echo $$ > %s.new; mv %s.new %s; exec sleep 600" % ((mark,) * 3))
        while not os.path.exists(mark):
            time.sleep(0.01)
        pid = int(read(mark))
        self.assertTrue(running.cancel())
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.02)
        self.fail("process %d is still there" % pid)


class DefaultExecutor(unittest.TestCase):
    def test_the_first_call_starts_what_it_needs(self):
        script = """
            import falkon

            @falkon.python_app
            def square(value):
                return value * value

            print(falkon.gather([square(square(n)) for n in range(4)]).result())
            late = square(5)
            late.add_done_callback(lambda future: print(future.result()))
        """
        out = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)],
            stdout=subprocess.PIPE, check=True, timeout=120, text=True,
        ).stdout
        self.assertEqual(out, "[0, 1, 16, 81]\n25\n")


if __name__ == "__main__":
    unittest.main()
