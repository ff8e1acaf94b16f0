"""The examples that need Python, at small size. Each checks its own result."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")


class Examples(unittest.TestCase):
    def run_example(self, *command, **variables):
        package = os.path.join(EXAMPLES, "..", "python")
        environment = dict(os.environ, PYTHONPATH=package, **variables)
        ran = subprocess.run(
            [*command],
            cwd=EXAMPLES,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertRegex(ran.stdout, r"that was overhead: -?\d+ %")
        return ran.stdout

    def test_word_count(self):
        said = self.run_example(sys.executable, "word-count/word_count.py", "60")
        self.assertIn("the counts are those of one process", said)

    @unittest.skipUnless(shutil.which("glpsol"), "not installed: glpsol")
    def test_mars(self):
        said = self.run_example(sys.executable, "mars/mars.py", "4")
        self.assertIn("profit as published (126.0571)", said)

    @unittest.skipUnless(
        shutil.which("vina")
        and os.path.exists("/usr/share/autodock/Tests/1pgp_rec.pdbqt")
        and importlib.util.find_spec("rdkit")
        and importlib.util.find_spec("meeko"),
        "not installed: autodock-vina, autodock-test, rdkit, meeko",
    )
    def test_docking(self):
        said = self.run_example(sys.executable, "docking/screen.py", "3")
        self.assertIn("scores are those of the same calls", said)

    @unittest.skipUnless(
        shutil.which("elastix") and importlib.util.find_spec("nibabel"),
        "not installed: elastix, nibabel",
    )
    def test_fmri(self):
        said = self.run_example(sys.executable, "fmri/align.py", "2")
        self.assertIn("found where they had been moved to", said)

    @unittest.skipUnless(
        shutil.which("mProjectPP") and importlib.util.find_spec("astropy"),
        "not installed: montage, astropy",
    )
    def test_montage(self):
        said = self.run_example(sys.executable, "montage/mosaic.py", "2")
        self.assertIn("byte for byte", said)

    @unittest.skipUnless(importlib.util.find_spec("openmm"), "not installed: openmm")
    def test_moldyn(self):
        said = self.run_example(sys.executable, "moldyn/moldyn.py", "2")
        self.assertIn("the same energies again", said)

    def test_sort(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "sort")
            binary = os.environ["FALKON_BINARY"]
            said = self.run_example("sort/run.sh", "5000", "3", OUT=out, FALKON=binary, SLOTS="2")
        self.assertIn("both wrote the same bytes: 5000 lines", said)


if __name__ == "__main__":
    unittest.main()
