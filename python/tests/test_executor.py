"""``falkon.Executor`` with real processes: ``tests/python.sh target/debug/falkon``.

The program is the one that FALKON_BINARY names.
"""

import asyncio
import concurrent.futures
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest

import falkon
from falkon import _program
from services import Dispatcher, is_alive, wait_until


class Picklable(Exception):
    def __init__(self, first, second):
        super().__init__(first)
        self.second = second

    def __reduce__(self):
        return (Picklable, (self.args[0], self.second))


class Unpicklable(Exception):
    """Can be pickled, and cannot be made from that."""

    def __init__(self, first, second):
        super().__init__(first)


class Local:
    def __init__(self, value):
        self.value = value


def raise_(exception):
    raise exception


def nested(depth):
    if depth == 0:
        return 0
    with falkon.Executor(max_workers=1) as executor:
        return 1 + executor.submit(nested, depth - 1).result()


def set_up(value):
    global is_set_up
    is_set_up = value


def what_is_set_up():
    return is_set_up


class Calls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.executor = falkon.Executor(max_workers=2)

    @classmethod
    def tearDownClass(cls):
        cls.executor.shutdown()

    def value(self, function, *args, **kwargs):
        return self.executor.submit(function, *args, **kwargs).result(60)

    def test_anything_is_called(self):
        factor = 3
        self.assertEqual(self.value(lambda x, y=1: factor * x + y, 2, y=5), 11)
        self.assertEqual(self.value(max, [1, 5, 2], key=lambda x: -x), 1)
        self.assertEqual(self.value(str.upper, "a"), "A")
        self.assertEqual(self.value("a b".split), ["a", "b"])
        self.assertIsNone(self.value(lambda: None))
        self.assertEqual(self.executor.submit(dict, self=1, fn=2).result(60), {"self": 1, "fn": 2})

    def test_values_of_classes_that_only_this_process_has(self):
        class Here:
            def __init__(self, value):
                self.value = value

        changed = self.value(lambda one: Here(one.value + 1), Here(1))
        self.assertIsInstance(changed, Here)
        self.assertEqual(changed.value, 2)

    def test_a_function_sees_what_it_refers_to_as_it_is_now(self):
        seen = []

        def length():
            return len(seen)

        self.assertEqual(self.value(length), 0)
        seen.append(1)
        self.assertEqual(self.value(length), 1)
        for offset in range(3):
            self.assertEqual(self.value(lambda: offset), offset)

    def test_exceptions_come_back_with_their_traceback(self):
        with self.assertRaises(Picklable) as caught:
            self.value(raise_, Picklable("one", 2))
        self.assertEqual(caught.exception.second, 2)
        self.assertIn("in raise_", str(caught.exception.__cause__))
        with self.assertRaises(falkon.RemoteError) as caught:
            self.value(_raise_unpicklable)
        self.assertIn("Unpicklable: one", str(caught.exception))
        with self.assertRaises(SystemExit):
            self.value(sys.exit, 3)

    def test_what_cannot_be_pickled_fails_its_call_alone(self):
        for function, arguments in [(len, (threading.Lock(),)), (threading.Lock, ())]:
            with self.assertRaisesRegex(Exception, "pickle"):
                self.value(function, *arguments)
        self.assertEqual(self.value(abs, -1), 1)

    def test_a_call_that_ends_its_worker_fails_alone(self):
        others = [self.executor.submit(abs, -i) for i in range(100)]
        with self.assertRaises(falkon.WorkerDied) as caught:
            self.value(os._exit, 7)
        self.assertEqual(caught.exception.exit_code, 7)
        with self.assertRaises(falkon.WorkerDied) as caught:
            self.value(_kill_itself)
        self.assertEqual(caught.exception.signal, signal.SIGKILL)
        self.assertIsInstance(caught.exception, concurrent.futures.BrokenExecutor)
        self.assertEqual([other.result(60) for other in others], list(range(100)))

    def test_options(self):
        with self.assertRaises(falkon.CallTimeout):
            self.executor.options(timeout=0.2).submit(time.sleep, 1000).result(60)
        with tempfile.TemporaryDirectory() as folder:
            tries = os.path.join(folder, "tries")
            again = self.executor.options(retries=2)
            self.assertEqual(again.submit(_third_time, tries).result(60), 3)
        with self.assertRaises(falkon.TaskFailed):
            self.executor.options(gpus=1000).submit(abs, 1).result(60)
        kept = falkon.Executor(max_workers=1).options(priority=1)
        self.assertEqual(kept.submit(abs, -1).result(60), 1)
        with self.assertRaises(ValueError):
            self.executor.options(timeout=-1)
        with self.assertRaises(TypeError):
            self.executor.options(colour="blue")

    def test_a_running_call_is_cancelled(self):
        with tempfile.TemporaryDirectory() as folder:
            started = os.path.join(folder, "started")
            os.mkfifo(started)
            future = self.executor.submit(_tell_and_sleep, started)
            with open(started) as told:
                pid = int(told.readline())
            self.assertTrue(future.cancel())
            self.assertTrue(future.cancelled())
            with self.assertRaises(concurrent.futures.CancelledError):
                future.result(60)
            wait_until(lambda: not is_alive(pid))
        self.assertEqual(self.value(abs, -2), 2)

    def test_map(self):
        numbers = range(1000)
        for chunksize in (None, 1, 7, 5000):
            squares = self.executor.map(pow, numbers, [2] * 1000, chunksize=chunksize)
            self.assertEqual(list(squares), [number**2 for number in numbers])
        self.assertEqual(list(self.executor.map(abs, [])), [])
        before = []
        with self.assertRaises(ZeroDivisionError):
            for value in self.executor.map(lambda n: 1 / n, [1, 2, 0, 4], chunksize=4):
                before.append(value)
        self.assertEqual(before, [1, 0.5])
        with self.assertRaises(TimeoutError):
            list(self.executor.map(time.sleep, [1000], timeout=0.05))
        with self.assertRaises(ValueError):
            self.executor.map(abs, [1], chunksize=0)

    def test_many_threads_submit(self):
        values = {}

        def submit(number):
            futures = [self.executor.submit(divmod, i, number) for i in range(500)]
            values[number] = [future.result(60) for future in futures]

        threads = [threading.Thread(target=submit, args=(number,)) for number in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number in range(1, 9):
            self.assertEqual(values[number], [divmod(i, number) for i in range(500)])

    def test_asyncio_and_callbacks(self):
        async def together():
            loop = asyncio.get_running_loop()
            return await asyncio.gather(
                loop.run_in_executor(self.executor, abs, -1),
                asyncio.wrap_future(self.executor.submit(abs, -2)),
            )

        self.assertEqual(asyncio.run(together()), [1, 2])
        heard = []
        done = threading.Event()
        future = self.executor.submit(abs, -3)
        future.add_done_callback(lambda one: (heard.append(one.result()), done.set()))
        self.assertTrue(done.wait(60))
        self.assertEqual(heard, [3])

    def test_a_call_may_make_calls(self):
        self.assertEqual(self.value(nested, 2), 2)

    def test_what_calls_write_is_passed_on(self):
        written = []
        output = lambda stream, data: written.append((stream, data))
        with falkon.Executor(max_workers=1, output=output) as executor:
            executor.submit(print, "out").result(60)
            executor.submit(os.write, 2, b"err").result(60)
            executor.submit(print, "x" * 200_000).result(60)
        self.assertEqual(written[:2], [(1, b"out\n"), (2, b"err")])
        self.assertEqual(len(written[2][1]), 200_001)


class Ends(unittest.TestCase):
    def test_long_output_is_passed_on_whole_and_leaves_no_file(self):
        written = {1: [], 2: []}

        def write(letter):
            print(letter * 300_000)
            print("end", file=sys.stderr)

        def output(stream, data):
            written[stream].append(data)

        with falkon.Executor(max_workers=1, output=output) as executor:
            folder = executor._shared.session().objects.overflow
            list(executor.map(write, "ab"))
            self.assertEqual([name for name in os.listdir(folder) if name[0].isdigit()], [])
        self.assertEqual(sorted(written[1]), [b"a" * 300_000 + b"\n", b"b" * 300_000 + b"\n"])
        self.assertEqual(written[2], [b"end\n", b"end\n"])
        self.assertFalse(os.path.exists(folder))

    def test_an_executor_elsewhere_keeps_long_output_and_the_first_bytes_say_so(self):
        written = []

        def write():
            sys.stdout.write("a" * 300_000)

        with Dispatcher() as dispatcher:
            dispatcher.executor()
            with falkon.Executor(dispatcher.access, output=lambda *one: written.append(one)) as far:
                far.submit(write).result(60)
        said = b"\n[falkon: cut: 65536 of 300000 bytes: the rest stays with the executor that "
        self.assertEqual(written, [(1, b"a" * 65536 + said + b"made the call]\n")])

    def test_after_shutdown(self):
        executor = falkon.Executor(max_workers=1)
        future = executor.submit(abs, -1)
        executor.shutdown(wait=False)
        self.assertEqual(future.result(60), 1)
        with self.assertRaises(RuntimeError):
            executor.submit(abs, -1)
        executor.shutdown()

    def test_a_callback_shuts_down(self):
        executor = falkon.Executor(max_workers=1)
        first = executor.submit(abs, -1)
        pending = [executor.submit(time.sleep, 1000) for _ in range(5)]
        first.add_done_callback(
            lambda _: executor.shutdown(wait=False, cancel_futures=True)
        )
        concurrent.futures.wait(pending[1:], 60)
        self.assertTrue(all(future.cancelled() for future in pending[1:]))
        pending[0].cancel()
        executor.shutdown()

    def test_the_program_is_killed(self):
        executor = falkon.Executor(max_workers=1)
        pending = [executor.submit(time.sleep, 1000) for _ in range(3)]
        executor._shared._session.connection.program.process.kill()
        for future in pending:
            with self.assertRaises(falkon.SessionLost):
                future.result(60)
        with self.assertRaises(concurrent.futures.BrokenExecutor):
            executor.submit(abs, 1)
        executor.shutdown()

    def test_an_initializer(self):
        with falkon.Executor(max_workers=2, initializer=set_up, initargs=(4,)) as executor:
            futures = [executor.submit(what_is_set_up) for _ in range(10)]
            self.assertEqual({future.result(60) for future in futures}, {4})
            self.assertEqual(list(executor.map(lambda n: n + 1, range(300))), list(range(1, 301)))
        with falkon.Executor(initializer=raise_, initargs=(ValueError("not today"),)) as executor:
            with self.assertRaisesRegex(falkon.InitializerFailed, "not today"):
                executor.submit(abs, 1).result(60)
            with self.assertRaises(concurrent.futures.BrokenExecutor):
                executor.submit(abs, 1)

    def test_a_program_that_is_not_there(self):
        before = os.environ["FALKON_BINARY"]
        os.environ["FALKON_BINARY"] = "/nowhere/falkon"
        try:
            with self.assertRaisesRegex(falkon.FalkonError, "/nowhere/falkon"):
                falkon.Executor()
        finally:
            os.environ["FALKON_BINARY"] = before

    def test_a_program_of_another_release(self):
        before = _program.PROTOCOL_VERSION
        _program.PROTOCOL_VERSION = before + 1
        try:
            with self.assertRaisesRegex(falkon.SessionLost, "speaks protocol %d" % (before + 1)):
                falkon.Executor()
        finally:
            _program.PROTOCOL_VERSION = before

    def test_a_forked_child_has_no_part_in_it(self):
        with falkon.Executor(max_workers=1) as executor:
            self.assertEqual(executor.submit(abs, -1).result(60), 1)
            child = os.fork()
            if child == 0:
                try:
                    executor.submit(abs, -1)
                except falkon.SessionLost:
                    with falkon.Executor(max_workers=1) as own:
                        os._exit(own.submit(abs, -5).result(60))
                finally:
                    os._exit(1)
            _, status = os.waitpid(child, 0)
            self.assertEqual(os.waitstatus_to_exitcode(status), 5)
            self.assertEqual(executor.submit(abs, -1).result(60), 1)

    def run_script(self, text, **options):
        command = [sys.executable, "-c", textwrap.dedent(text)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)

    def test_the_interpreter_ends_with_calls_pending(self):
        ran = self.run_script(
            """
            import falkon, time
            executor = falkon.Executor(max_workers=2)
            def late():
                time.sleep(0.5)
                print("late")
            for _ in range(3):
                executor.submit(late)
            """
        )
        self.assertEqual((ran.stdout, ran.stderr, ran.returncode), ("late\n" * 3, "", 0))

    def test_a_working_directory_that_is_gone(self):
        ran = self.run_script(
            """
            import os, sys, tempfile
            folder = tempfile.mkdtemp()
            os.chdir(folder)
            os.rmdir(folder)
            sys.path.insert(0, "")
            import falkon
            with falkon.Executor(max_workers=1) as executor:
                print(executor.submit(pow, 2, 5).result())
            """
        )
        self.assertEqual((ran.stdout, ran.stderr, ran.returncode), ("32\n", "", 0))

    def test_nothing_is_left_of_an_interpreter_that_was_killed(self):
        script = """
            import falkon, os, time
            executor = falkon.Executor(max_workers=2)
            pids = [executor.submit(os.getpid).result(60) for _ in range(2)]
            pids.append(executor._shared._session.connection.program.process.pid)
            executor.submit(time.sleep, 1000)
            print(*pids, flush=True)
            time.sleep(1000)
            """
        command = [sys.executable, "-c", textwrap.dedent(script)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            pids = [int(word) for word in process.stdout.readline().split()]
            process.kill()
        self.assertEqual(len(pids), 3)
        for pid in pids:
            wait_until(lambda: not is_alive(pid))

    def test_ctrl_c_is_for_the_script_alone(self):
        script = """
            import falkon, os, signal, time
            # It is ignored in what a shell has started in the background.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with falkon.Executor(max_workers=1) as executor:
                try:
                    future = executor.submit(time.sleep, 0.5)
                    os.killpg(0, signal.SIGINT)
                    future.result()
                except KeyboardInterrupt:
                    print("interrupted", executor.submit(abs, -1).result(60))
            """
        ran = self.run_script(script, start_new_session=True)
        self.assertEqual((ran.stdout, ran.returncode), ("interrupted 1\n", 0), ran.stderr)


class Elsewhere(unittest.TestCase):
    def test_calls_go_to_a_dispatcher(self):
        program = os.environ["FALKON_BINARY"]
        with tempfile.TemporaryDirectory() as folder:
            access = os.path.join(folder, "access.json")
            start = [program, "start", "--dir", folder, "--listen", "127.0.0.1:0"]
            services = [subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)]
            try:
                wait_until(lambda: os.path.exists(access))
                worker = "python=" + sys.executable
                executor = [program, "executor", "--access", access, "--worker", worker]
                services.append(
                    subprocess.Popen(executor, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                )
                with falkon.Executor(access, reconnect=0) as far:
                    self.assertEqual(far.submit(abs, -1).result(60), 1)
                    self.assertEqual(list(far.map(abs, range(-500, 0))), list(range(500, 0, -1)))
                    pending = far.submit(time.sleep, 1000)
                    subprocess.run([program, "stop", "--access", access], check=True)
                    with self.assertRaises(falkon.SessionLost):
                        pending.result(60)
            finally:
                for service in services:
                    service.kill()
                for service in services:
                    service.wait()

    def test_an_access_file_that_is_not_there(self):
        with self.assertRaisesRegex(falkon.SessionLost, "/nowhere/access.json"):
            falkon.Executor("/nowhere/access.json")


def _raise_unpicklable():
    raise Unpicklable("one", 2)


def _kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def _third_time(path):
    with open(path, "a") as tries:
        tries.write("x")
    count = os.path.getsize(path)
    if count < 3:
        raise RuntimeError(count)
    return count


def _tell_and_sleep(path):
    with open(path, "w") as told:
        told.write("%d\n" % os.getpid())
    time.sleep(1000)


if __name__ == "__main__":
    unittest.main()
