"""Documents about Python: their code runs and prints what they say, and the
reference is complete."""

import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import falkon
import reference
import stubs
import run_document
from services import Dispatcher

HERE = os.path.dirname(os.path.abspath(__file__))
DOCS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "docs")


class Documents(unittest.TestCase):
    def run_code(self, name):
        path = os.path.join(DOCS, name)
        with open(path) as file:
            expected = re.findall(r"^#> (.*)$", file.read(), re.M)
        with tempfile.TemporaryDirectory() as folder:
            # Under the name that documents call it by.
            binary = os.path.join(folder, "bin")
            os.mkdir(binary)
            os.symlink(os.environ["FALKON_BINARY"], os.path.join(binary, "falkon"))
            places = [binary, os.path.dirname(sys.executable), os.environ["PATH"]]
            environment = dict(os.environ, PATH=os.pathsep.join(places))
            environment["PYTHONPATH"] = os.path.dirname(HERE)
            process = subprocess.Popen(
                [sys.executable, os.path.join(HERE, "run_document.py"), path],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            try:
                said, complaint = process.communicate(timeout=120)
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        if process.returncode == run_document.NOT_INSTALLED:
            self.skipTest(complaint.strip().splitlines()[-1])
        self.assertEqual(process.returncode, 0, complaint)
        if expected:
            self.assertEqual(said.splitlines(), expected)

    def test_the_reference_is_complete(self):
        for _, heading, text in reference.entries():
            self.assertTrue(text, "%s has no docstring" % heading)
        with open(os.path.join(DOCS, "python-reference.md")) as file:
            self.assertEqual(
                file.read(),
                reference.page(),
                "python python/tests/reference.py > docs/python-reference.md",
            )

    def test_the_stub_of_the_asynchronous_client_is_up_to_date(self):
        with open(os.path.join(stubs.FOLDER, "_async_client.pyi")) as file:
            self.assertEqual(
                file.read(),
                stubs.stub(),
                "python python/tests/stubs.py > python/falkon/_async_client.pyi",
            )

    def test_the_page_of_files_has_every_file_of_a_dispatcher(self):
        with open(os.path.join(DOCS, "files.md")) as file:
            page = set(re.findall(r"[^`]+", file.read()))
        with Dispatcher() as dispatcher:
            dispatcher.executor()
            client = falkon.Client(dispatcher.access)
            client.submit(["true"]).wait(progress=False)
            found = []
            for _, folders, files in os.walk(dispatcher.folder):
                found += [name + "/" for name in folders] + files
        self.assertIn("journal/", found)
        for name in found:
            general = re.sub(r"^[0-9]+", "NUMBER", name)
            known = {general, "pages/" + general, general.replace("NUMBER", "00000001")}
            self.assertTrue(known & page, "docs/files.md does not have %s" % name)


def _case(name):
    def test(self):
        self.run_code(name)

    return test


# Pages that promise that their code runs as it stands.
for _path in sorted(
    glob.glob(os.path.join(DOCS, "python-*.md")) + glob.glob(os.path.join(DOCS, "from-*.md"))
):
    _name = os.path.basename(_path)
    with open(_path) as _file:
        if "```python\n" in _file.read():
            _test = "test_" + _name[:-3].replace("-", "_")
            setattr(Documents, _test, _case(_name))

if __name__ == "__main__":
    unittest.main()
