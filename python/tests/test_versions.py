"""Workers of another Python, or with another cloudpickle."""

import glob
import os
import subprocess
import sys
import unittest
from importlib.metadata import version

import falkon
from services import Dispatcher

CLOUDPICKLE_2 = os.environ.get("FALKON_CLOUDPICKLE_2")
"""A folder with cloudpickle 2, for its import path."""


def other_python():
    """An interpreter of another minor version, if there is one here."""
    names = ["python3.%d" % minor for minor in range(8, 16) if minor != sys.version_info[1]]
    places = os.environ["PATH"].split(os.pathsep) + glob.glob(
        os.path.expanduser("~/.pyenv/versions/*/bin")
    )
    for name in names:
        for place in places:
            path = os.path.join(place, name)
            if not os.access(path, os.X_OK):
                continue
            said = subprocess.run([path, "-V"], capture_output=True, text=True)
            if said.returncode == 0 and said.stdout.startswith("Python 3."):
                return path, said.stdout.split()[1].rpartition(".")[0]
    return None, None


OTHER, OTHER_VERSION = other_python()


class Versions(unittest.TestCase):
    own = "this client Python %d.%d with cloudpickle %s" % (
        *sys.version_info[:2],
        version("cloudpickle"),
    )

    @unittest.skipUnless(OTHER, "no other Python is here")
    def test_another_python(self):
        with Dispatcher() as dispatcher:
            dispatcher.executor(python=OTHER)
            with falkon.Executor(dispatcher.access) as executor:
                # Modules that both can import do not count.
                self.assertEqual(executor.submit(abs, -1).result(60), 1)

                class Local:
                    pass

                local = lambda: 1  # noqa: E731
                for future in (
                    executor.submit(local),
                    executor.submit(type, Local()),
                    executor.submit(map, local, [1]),
                ):
                    with self.assertRaises(falkon.VersionMismatch) as caught:
                        future.result(60)
                    said = str(caught.exception)
                    self.assertIn("the worker runs Python %s with" % OTHER_VERSION, said)
                    self.assertIn(self.own, said)
                    self.assertIn("--worker python=PATH", said)
                with self.assertRaises(falkon.VersionMismatch):
                    list(executor.map(abs, range(1000), chunksize=10))

    @unittest.skipUnless(CLOUDPICKLE_2, "cloudpickle 2 is not here")
    def test_another_cloudpickle(self):
        with Dispatcher() as dispatcher:
            dispatcher.executor(PYTHONPATH=CLOUDPICKLE_2)
            with falkon.Executor(dispatcher.access) as executor:
                with self.assertRaises(falkon.VersionMismatch) as caught:
                    executor.submit(lambda: 1).result(60)
                self.assertIn("with cloudpickle 2.", str(caught.exception))
                self.assertIn(self.own, str(caught.exception))

    def test_no_cloudpickle(self):
        # Without the site's packages.
        with Dispatcher() as dispatcher:
            dispatcher.executor(python="%s -S" % sys.executable)
            with falkon.Executor(dispatcher.access) as executor:
                with self.assertRaisesRegex(falkon.VersionMismatch, "without cloudpickle"):
                    executor.submit(lambda: 1).result(60)

    def test_an_error_of_another_kind_stays_what_it_is(self):
        with falkon.Executor(max_workers=1) as executor:
            with self.assertRaises(ZeroDivisionError):
                executor.submit(lambda: 0, Bad()).result(60)


class Bad:
    """Raises where it is loaded."""

    def __reduce__(self):
        return divmod, (1, 0)


if __name__ == "__main__":
    unittest.main()
