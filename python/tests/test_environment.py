"""``Executor(environment=…)``: calls made by an interpreter that comes in an archive."""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

import falkon
from services import Dispatcher


def by_value():
    """A function that goes by value: its module is nowhere else."""

    def about():
        import shutil
        import sys

        import only_packed

        return sys.prefix, only_packed.TEXT, shutil.which("python")

    return about


def packed(folder):
    """An environment as venv-pack makes them; its archive."""
    made = os.path.join(folder, "made")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    # Packages of this one are there too: cloudpickle, above all.
    (packages,) = [
        os.path.join(made, "lib", name, "site-packages") for name in os.listdir(os.path.join(made, "lib"))
    ]
    import cloudpickle

    shutil.copytree(os.path.dirname(cloudpickle.__file__), os.path.join(packages, "cloudpickle"))
    with open(os.path.join(packages, "only_packed.py"), "w") as file:
        file.write("TEXT = 'packed'\n")
    link = os.path.join(made, "lib64")
    if os.path.islink(link):
        os.unlink(link)
    archive = os.path.join(folder, "env.tar.gz")
    with tarfile.open(archive, "w:gz") as tar:
        for name in sorted(os.listdir(made)):
            tar.add(os.path.join(made, name), name)
    return archive


class Environments(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.archive = packed(cls.folder.name)

    def check(self, executor):
        """Calls of each kind are made in the environment."""
        about = by_value()
        ended = [call.result(60) for call in [executor.submit(about) for _ in range(5)]]
        ended += [call.result(60) for call in executor.everywhere(about)]
        (prefix,) = {one[0] for one in ended}
        self.assertNotEqual(prefix, sys.prefix)
        self.assertEqual({one[1] for one in ended}, {"packed"})
        self.assertEqual(os.path.dirname(ended[0][2]), os.path.join(prefix, "bin"))
        # Each call has a directory of its own, and other inputs beside the environment.
        given = os.path.join(self.folder.name, "given")
        with open(given, "w") as file:
            file.write("given")
        read = executor.submit(lambda path: path.read_text(), falkon.File(given))
        self.assertEqual(read.result(60), "given")
        self.assertEqual(list(executor.map(abs, range(-100, 0))), list(range(100, 0, -1)))
        large = executor.submit(len, bytes(2 << 20))
        self.assertEqual(executor.submit(abs, large).result(60), 2 << 20)
        with self.assertRaises(ZeroDivisionError):
            executor.submit(lambda: 1 // 0).result(60)
        self.assertEqual(executor.options(cpus=1, timeout=60).submit(about).result(60)[1], "packed")

    def test_on_this_machine(self):
        with falkon.Executor(max_workers=2, environment=self.archive) as executor:
            self.check(executor)

    def test_of_a_directory(self):
        made = os.path.join(self.folder.name, "made")
        with falkon.Executor(max_workers=2, environment=made) as executor:
            self.check(executor)
        with Dispatcher() as dispatcher:
            dispatcher.executor()
            with falkon.Executor(dispatcher.access, environment=made + "/") as executor:
                self.check(executor)

    def test_at_a_dispatcher(self):
        with Dispatcher() as dispatcher:
            dispatcher.executor()
            with falkon.Executor(dispatcher.access, environment=falkon.File(self.archive)) as executor:
                self.check(executor)

    def test_one_beside_others_without(self):
        with Dispatcher() as dispatcher:
            dispatcher.executor()
            plain = falkon.Executor(dispatcher.access)
            packed = falkon.Executor(dispatcher.access, environment=self.archive)
            with plain, packed:
                both = [executor.submit(lambda: sys.prefix) for executor in (plain, packed) * 3]
                prefixes = [call.result(60) for call in both]
                self.assertEqual(len(set(prefixes)), 2)
                self.assertEqual(set(prefixes[::2]), {sys.prefix})

    def test_an_archive_without_an_interpreter_and_none_at_all(self):
        empty = os.path.join(self.folder.name, "empty.tar")
        with tarfile.open(empty, "w") as tar:
            tar.add(__file__, "some.py")
        with falkon.Executor(max_workers=1, environment=empty) as executor:
            with self.assertRaisesRegex(falkon.TaskFailed, "has no bin/python"):
                executor.submit(abs, -1).result(60)
        with falkon.Executor(max_workers=1, environment="/nowhere/env.tar") as executor:
            with self.assertRaisesRegex(falkon.TaskFailed, "/nowhere/env.tar"):
                executor.submit(abs, -1).result(60)

    def test_wrong_values(self):
        for wrong in (1, ["env.tar"], b"env.tar"):
            with self.assertRaisesRegex(TypeError, "environment="):
                falkon.Executor(environment=wrong)
        for options in ({"preload": ["json"]}, {"template": True}):
            with self.assertRaisesRegex(ValueError, "interpreter"):
                falkon.Executor(environment=self.archive, **options)


if __name__ == "__main__":
    unittest.main()
