"""Files that calls read and write, with real processes: on this machine, and with
a dispatcher and executors.

The program is the one that FALKON_BINARY names.
"""

import functools
import http.server
import os
import subprocess
import sys
import threading
import unittest

import falkon
from falkon import File, _blake3, _files
from services import Dispatcher, InFolder, wait_until

MIB = 1 << 20
HERE = os.path.dirname(os.path.abspath(__file__))
HERE += os.pathsep + os.path.dirname(HERE)
"""Where workers find this module, and what it imports."""


def copy(source, target, times=1):
    with open(source) as file, open(target, "w") as other:
        other.write(file.read() * times)
    return str(source), str(target)


def read(path):
    with open(path) as file:
        return file.read()


def write(text, path):
    with open(path, "w") as file:
        file.write(text)


def read_when(gate, path):
    import time

    while not os.path.exists(gate):
        time.sleep(0.01)
    return read(path)


def write_when(gate, text, path):
    import time

    while not os.path.exists(gate):
        time.sleep(0.01)
    write(text, path)


def pack(texts, path):
    import zipfile

    with zipfile.ZipFile(path, "w") as archive:
        for name, text in texts.items():
            archive.writestr(name, text)


class Places:
    """Tests that hold wherever calls are made."""

    def setUp(self):
        super().setUp()
        self.executor = self.make_executor()
        self.addCleanup(self.executor.shutdown)
        self.submit = self.executor.submit

    def file(self, name, text=None):
        path = self.path(name)
        if text is not None:
            write(text, path)
        return path

    def writing(self, *files, **options):
        return self.executor.options(outputs=files, **options).submit

    def test_a_call_finds_files_and_leaves_some(self):
        source = File(self.file("a.fits", "sky\n"))
        target = File(self.file("new/b.txt"))
        seen, made = self.writing(target)(copy, source, target, times=2).result(60)
        self.assertEqual([os.path.basename(seen), os.path.basename(made)], ["a.fits", "b.txt"])
        self.assertNotEqual(seen, os.fspath(source))
        self.assertEqual(read(target), "sky\nsky\n")
        # Wherever they are in the arguments; the same one once.
        nested = self.submit(lambda some, one: [read(some["a"][0]), some["a"][0] == one], {"a": [source]}, one=source)
        self.assertEqual(nested.result(60), ["sky\n", True])
        # A file that is changed is another object.
        write("other", source)
        self.assertEqual(self.submit(read, source).result(60), "other")
        self.assertEqual(self.submit(read, source).result(60), "other")

    def test_calls_wait_for_those_that_write_what_they_read(self):
        gate = self.file("gate")
        first, second = File(suffix=".txt"), File("cache:second.txt")
        wrote = self.writing(first)(write_when, gate, "one", first)
        copied = self.writing(second)(copy, first, second, 2)
        listed = [self.submit(lambda files: [read(one) for one in files], [first, second]) for _ in range(5)]
        self.assertFalse(any(one.done() for one in [wrote, copied, *listed]))
        write("", gate)
        for one in listed:
            self.assertEqual(one.result(60), ["one", "oneone"])
        self.assertTrue(copied.result(60)[0].endswith(".txt"))
        self.assertEqual(self.submit(read, wrote.outputs[0]).result(60), "one")
        self.assertIs(wrote.outputs[0].result(60), first)

    def test_members_of_what_calls_write(self):
        archives = [File(suffix=".zip") for _ in range(3)]
        for number, archive in enumerate(archives):
            texts = {"a": "a%d" % number, "d/b": "b%d" % number}
            self.writing(archive)(pack, texts, archive)
        for name in ("a", "d/b"):
            members = [archive.member(name) for archive in archives]
            joined = self.submit(lambda paths: "".join(map(read, paths)), members)
            self.assertEqual(joined.result(60), "".join("%s%d" % (name[-1], number) for number in range(3)))
        missing = self.submit(read, archives[0].member("c"))
        with self.assertRaisesRegex(falkon.TaskFailed, "has no member `c`"):
            missing.result(60)
        file = File(self.file("kept.zip"))
        self.writing(file)(pack, {"a": "kept"}, file)
        self.assertEqual(self.submit(read, file.member("a")).result(60), "kept")
        with self.assertRaisesRegex(ValueError, "no archive"):
            File(suffix=".txt").member("a")
        with self.assertRaisesRegex(ValueError, "no archive"):
            file.member("a").member("b")

    def test_what_is_not_written_or_not_there(self):
        nothing = File()
        wrote = self.writing(nothing)(len, "")
        with self.assertRaisesRegex(falkon.TaskFailed, "did not write its output"):
            wrote.result(60)
        with self.assertRaisesRegex(falkon.DependencyError, "did not write"):
            self.submit(read, nothing).result(60)
        self.assertIsInstance(wrote.outputs[0].exception(60), falkon.TaskFailed)
        with self.assertRaisesRegex(falkon.TaskFailed, "none.txt"):
            self.submit(read, File(self.file("none.txt"))).result(60)
        failing = File()
        failed = self.writing(failing)(lambda path: 1 / 0, failing)
        reads = self.submit(read, failing)
        self.assertIsInstance(failed.exception(60), ZeroDivisionError)
        self.assertIsInstance(reads.exception(60), falkon.DependencyError)
        with self.assertRaises(falkon.DependencyError):
            self.submit(read, failed.outputs[0]).result(60)
        with self.assertRaises((falkon.FalkonError, ValueError)):
            self.submit(read, File("cache:nobody")).result(60)
        for wrong in ["ftp://host/a", "", "cache:", "folder/"]:
            with self.assertRaises(ValueError):
                File(wrong)
        with self.assertRaisesRegex(ValueError, "cannot be written"):
            self.writing("http://host/a")(len, "").result(60)

    def test_a_worker_that_dies_is_replaced(self):
        once, target = self.file("once"), File()

        def die_once(path, target):
            if not os.path.exists(path):
                open(path, "w").close()
                os._exit(3)
            write("there", target)

        wrote = self.writing(target, retries=1)(die_once, once, target)
        self.assertEqual(self.submit(read, target).result(60), "there")
        self.assertIsNone(wrote.result(60))
        dies = self.submit(lambda path: os._exit(3), File(once))
        self.assertIsInstance(dies.exception(60), falkon.WorkerDied)
        slow = self.executor.options(timeout=0.3).submit(read_when, self.file("never"), File(once))
        self.assertIsInstance(slow.exception(60), falkon.CallTimeout)
        cancelled = self.submit(read_when, self.file("never"), File(once))
        wait_until(lambda: cancelled.cancel())
        self.assertEqual(self.submit(read, File(once)).result(60), "")

    def test_apps(self):
        use = falkon.python_app(executor=self.executor)
        source = self.file("a", "text")

        @use
        def both(inputs=(), outputs=()):
            write(read(inputs[0]) + "!", outputs[0])
            return len(inputs)

        @falkon.shell_app(executor=self.executor)
        def upper(path, target):
            return "tr a-z A-Z < %s > %s" % (path, target)

        @use
        def plain(numbers, inputs=None):
            return sum(numbers) + sum(inputs)

        made = both(inputs=[File(source)], outputs=[File()])
        target = File(self.file("up.txt"))
        done = upper(made.outputs[0], target, outputs=[target], stdout=self.file("log"))
        self.assertEqual(done.result(60), 0)
        self.assertEqual(made.result(60), 1)
        self.assertEqual(read(done.outputs[0].result(60)), "TEXT!")
        self.assertEqual(plain([1, 2], inputs=[3]).result(60), 6)
        copied = File()
        hidden = use(lambda value: value)(5, inputs=[File(source)])
        self.assertEqual(hidden.result(60), 5)

    def test_many_calls_with_files_of_their_own(self):
        futures = []
        for number in range(60):
            first, second = File(self.file("in%d" % number, str(number))), File()
            self.writing(second)(copy, first, second)
            futures.append(self.submit(lambda path, n: int(read(path)) + n, second, number))
        self.assertEqual([one.result(120) for one in futures], [2 * n for n in range(60)])
        mapped = self.executor.map(read, [File(self.file("in%d" % n)) for n in range(20)], chunksize=7)
        self.assertEqual(list(mapped), [str(n) for n in range(20)])
        with self.assertRaisesRegex(ValueError, "for one call"):
            self.executor.options(outputs=[File()]).map(abs, [1])

    def test_files_of_other_executors(self):
        gate, made = self.file("gate"), File(self.file("made"))
        wrote = self.writing(made)(write_when, gate, "x", made)
        with falkon.Executor(max_workers=1) as other:
            with self.assertRaisesRegex(ValueError, "another executor"):
                other.submit(read, made).result(60)
            write("", gate)
            wrote.result(60)
            self.assertEqual(other.submit(read, made).result(60), "x")

    def test_a_file_of_the_web(self):
        handler = functools.partial(Quiet, directory=self.folder)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        self.file("page.txt", "from afar")
        url = "http://127.0.0.1:%d/page.txt" % server.server_port
        self.assertEqual(self.submit(read, File(url)).result(60), "from afar")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Here(Places, InFolder):
    def make_executor(self):
        return falkon.Executor(max_workers=2)


class Elsewhere(Places, InFolder):
    @classmethod
    def setUpClass(cls):
        cls.dispatcher = Dispatcher()
        cls.dispatcher.__enter__()
        cls.dispatcher.executor(PYTHONPATH=HERE)
        cls.dispatcher.executor(PYTHONPATH=HERE)

    @classmethod
    def tearDownClass(cls):
        cls.dispatcher.__exit__(None, None, None)

    def make_executor(self):
        return falkon.Executor(self.dispatcher.access)

    def data(self, *words):
        command = [self.dispatcher.program, "data", words[0], "--access", self.dispatcher.access, *words[1:]]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def test_what_was_put_into_caches(self):
        path = self.file("table.csv", "1,2")
        self.data("put", path)
        self.assertEqual(self.submit(read, File("cache:table.csv")).result(60), "1,2")
        path = self.file("put.zip")
        pack({"a": "1", "b": "2"}, path)
        self.data("put", path)
        for name in (File("cache:put.zip!b"), File("cache:put.zip").member("b")):
            self.assertEqual(self.submit(read, name).result(60), "2")

    def test_large_arguments_are_put_there_once(self):
        self.submit(abs, 1).result(60)
        data = os.urandom(20 * MIB)
        futures = [self.submit(lambda data, n: len(data) + n, data, n) for n in range(30)]
        self.assertEqual([one.result(60) for one in futures], [20 * MIB + n for n in range(30)])
        shared = self.executor.put(list(range(MIB)))
        sums = [self.submit(lambda table, n: table[n], shared, n) for n in range(30)]
        self.assertEqual([one.result(60) for one in sums], list(range(30)))
        lengths = self.executor.map(lambda a, b: len(a) + len(b), [data] * 10, [shared] * 10, chunksize=5)
        self.assertEqual(list(lengths), [21 * MIB] * 10)
        put = lambda: [line for line in self.data("ls").splitlines() if "MiB" in line and "cache:" in line]
        self.assertEqual(len(put()), 2)
        self.executor.shutdown()
        self.assertEqual(put(), [])

    def test_large_results(self):
        for access in (self.dispatcher.access, os.path.join(self.dispatcher.folder, "access-client.json")):
            with falkon.Executor(access) as executor:
                large = executor.options(large_result=True)
                first = large.submit(bytearray, 20 * MIB)
                second = large.submit(lambda data: data * 2, first)
                lengths = [executor.submit(len, one) for one in (first, second) for _ in range(3)]
                self.assertEqual([one.result(60) for one in lengths], [20 * MIB] * 3 + [40 * MIB] * 3)
                nested = executor.submit(lambda pair: sum(map(len, pair)), [first, second])
                self.assertEqual(nested.result(60), 60 * MIB)
                result = first.result(60)
                self.assertEqual((len(result), first.outputs), (20 * MIB, []))
                self.assertIs(first.result(60), result)
                failed = large.submit(lambda: 1 / 0)
                self.assertIsInstance(failed.exception(60), ZeroDivisionError)
                with self.assertRaises(ZeroDivisionError):
                    failed.result(60)
                with self.assertRaises(falkon.DependencyError):
                    executor.submit(len, failed).result(60)
                small = large.submit(lambda: {"a": 1})
                mapped = large.map(bytes, [9 * MIB, 10 * MIB])
                self.assertEqual([len(one) for one in mapped], [9 * MIB, 10 * MIB])
                dropped = executor.submit(len, large.submit(bytes, 10 * MIB))
            # A value that nobody asked for before the end is here all the same.
            self.assertEqual((small.result(60), len(second.result(60))), ({"a": 1}, 40 * MIB))
            self.assertEqual(dropped.result(60), 10 * MIB)
        self.assertEqual(self.submit(len, second).result(60), 40 * MIB)
        with falkon.Executor(max_workers=1) as here:
            self.assertEqual(here.options(large_result=True).submit(len, "abc").result(60), 3)


class Loss(unittest.TestCase):
    def test_what_is_lost_is_made_again(self):
        with Dispatcher() as dispatcher, falkon.Executor(dispatcher.access) as executor:
            first = dispatcher.executor(PYTHONPATH=HERE)
            middle = File()
            wrote = executor.options(outputs=[middle]).submit(write, "again", middle)
            self.assertIsNone(wrote.result(60))
            large = executor.options(large_result=True).submit(bytes, 10 * MIB)
            self.assertIsNone(large.exception(60))
            first.kill()
            first.wait()
            dispatcher.executor(PYTHONPATH=HERE)
            self.assertEqual(executor.submit(read, middle).result(60), "again")
            self.assertEqual(len(large.result(60)), 10 * MIB)


class Names(unittest.TestCase):
    def test_ids_are_those_of_the_program(self):
        for length, digest in [
            (0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
            (1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"),
            (1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"),
            (5120, "9cadc15fed8b5d854562b26a9536d9707cadeda9b143978f319ab34230535833"),
        ]:
            # The vectors that BLAKE3's authors give.
            data = bytes(at % 251 for at in range(length))
            self.assertEqual(_blake3.digest(data).hex(), digest)

    def test_names_are_those_that_executors_give(self):
        # The cases are those of call_name in declared.rs.
        for url, place, is_written, name in [
            ("/data/a.fits", 0, False, "in/0/a.fits"),
            ("https://host/b.csv?c=/d", 12, False, "in/12/b.csv"),
            ("cache:e/f.txt", 1, True, "out/1/f.txt"),
            ("cache:", 2, False, "in/2/object"),
            ("s3://bucket/key/", 2, False, "in/2/object"),
            ("/a/..", 2, False, "in/2/object"),
            ("cache:a\0b", 2, False, "in/2/object"),
        ]:
            self.assertEqual(_files.call_name(url, place, is_written), name)

    def test_places(self):
        here = os.getcwd()
        for place, url in [
            ("a.txt", here + "/a.txt"),
            ("./b//c", here + "/b/c"),
            ("/d/../e", "/d/../e"),
            ("file:///f%20g", "/f g"),
            ("s3://bucket/key", "s3://bucket/key"),
        ]:
            self.assertEqual(File(place).url, url)
        self.assertEqual(os.fspath(File("/a/b")), "/a/b")
        with self.assertRaises(TypeError):
            os.fspath(File())


if __name__ == "__main__":
    unittest.main()
