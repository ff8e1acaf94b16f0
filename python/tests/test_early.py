"""Scripts whose executor starts with ``import falkon``, as in an earlier run.

The program is the one that FALKON_BINARY names.
"""

import glob
import os
import signal
import subprocess
import sys
import unittest

import falkon
from falkon import _early
from services import InFolder, wait_until

HEAD = """
import os, sys
import falkon
from falkon import _early
early = _early._early
pid = early and early.program.process.pid
"""
TAIL = """
def found(name):
    import os
    umask = os.umask(0)
    return os.getcwd(), os.environ.get("SEEN"), umask, name in sys.path
with falkon.Executor(max_workers=1) as executor:
    is_early = pid == executor._shared._session.connection.program.process.pid
    calls = executor.submit(found, "/no/such").result(60)
print(early is not None, is_early, calls)
"""


class Early(InFolder):
    def setUp(self):
        super().setUp()
        self.mark = os.urandom(8).hex()
        package = os.path.dirname(os.path.dirname(falkon.__file__))
        self.environment = dict(
            os.environ, XDG_CACHE_HOME=self.path("cache"), PYTHONPATH=package, MARK=self.mark
        )
        self.addCleanup(lambda: wait_until(lambda: not self.left()))

    def left(self):
        """Processes of this test that live."""
        found = []
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(path, "rb") as file:
                    if self.mark.encode() in file.read():
                        found.append(path)
            except OSError:
                pass
        return found

    def start(self, between="", tail=TAIL):
        with open(self.path("script.py"), "w") as file:
            file.write(HEAD + between + tail)
        command = [sys.executable, self.path("script.py")]
        return subprocess.Popen(
            command, env=self.environment, cwd=self.folder, stdout=subprocess.PIPE, text=True
        )

    def run_script(self, between="", tail=TAIL):
        with self.start(between, tail) as process:
            text = process.communicate(timeout=120)[0]
        self.assertEqual(process.returncode, 0, text)
        return text.strip()

    def remembered(self):
        return glob.glob(self.path("cache/falkon/starts/*"))

    def test_the_second_run_starts_with_the_import(self):
        umask = os.umask(0o22)
        os.umask(umask)
        calls = repr((os.path.realpath(self.folder), None, umask, False))
        self.assertEqual(self.run_script(), "False False " + calls)
        self.assertEqual(self.run_script(), "True True " + calls)
        os.environ["FALKON_START_AHEAD"] = "0"
        self.addCleanup(os.environ.pop, "FALKON_START_AHEAD")
        self.environment["FALKON_START_AHEAD"] = "0"
        self.assertEqual(self.run_script(), "False False " + calls)

    def test_what_workers_inherit_is_that_of_the_executor(self):
        self.run_script()
        for between, expected in (
            ("os.chdir('/')", ("/", None)),
            ("os.environ['SEEN'] = 'yes'", (os.path.realpath(self.folder), "yes")),
            ("os.umask(0o70)", (os.path.realpath(self.folder), None, 0o70)),
            ("sys.path.append('/no/such')", (os.path.realpath(self.folder), None)),
        ):
            text = self.run_script(between + "\n")
            found = eval(text.partition(" ")[2].partition(" ")[2])
            self.assertTrue(text.startswith("True False"), text)
            self.assertEqual(found[: len(expected)], expected, between)
            self.assertEqual(found[3], "sys.path" in between)

    def test_what_packages_set_for_threads_is_there_from_the_start(self):
        change = "os.environ['OMP_NUM_THREADS'] = '3'\n"
        self.assertTrue(self.run_script(change).startswith("False False"))
        self.assertTrue(self.run_script(change).startswith("True True"))

    def test_a_script_that_makes_no_executor_any_more_is_forgotten(self):
        self.run_script()
        self.assertEqual(len(self.remembered()), 1)
        self.assertEqual(self.run_script(tail="print(early is not None)"), "True")
        self.assertEqual(self.remembered(), [])
        self.assertEqual(self.run_script(tail="print(early is not None)"), "False")

    def test_a_script_that_is_killed_or_forks_leaves_nothing(self):
        self.run_script()
        with self.start(tail="print(early is not None, flush=True)\nimport time; time.sleep(999)") as process:
            self.assertEqual(process.stdout.readline(), "True\n")
            process.send_signal(signal.SIGKILL)
        wait_until(lambda: not self.left())
        forking = "if not os.fork(): os._exit(_early._early is not None)\nassert os.wait()[1] == 0\n"
        self.assertTrue(self.run_script(forking).startswith("True True"))

    def test_too_many_are_forgotten_and_files_of_others_stay(self):
        folder = self.path("cache/falkon/starts")
        os.makedirs(folder)
        names = ["%016x" % number for number in range(_early.SCRIPTS_MAX)]
        for name in [*names, "mine", "0123456789abcdeg", "notes.txt"]:
            open(os.path.join(folder, name), "w").close()
        self.run_script()
        left = {os.path.basename(path) for path in self.remembered()}
        self.assertEqual(len(left), 4, left)
        self.assertLessEqual({"mine", "0123456789abcdeg", "notes.txt"}, left)

    def test_what_somebody_else_may_have_written_is_not_used(self):
        self.run_script()
        (path,) = self.remembered()
        os.chmod(path, 0o666)
        self.assertTrue(self.run_script().startswith("False False"))
        os.chmod(path, 0o600)
        with open(path, "r+") as file:
            text = file.read()
        for wrong in ("", text[:-5], text.replace("falkon 1", "falkon 0"), "\0" * 40_000):
            with open(path, "w") as file:
                file.write(wrong)
            self.assertTrue(self.run_script().startswith("False False"), wrong[:80])


if __name__ == "__main__":
    unittest.main()
