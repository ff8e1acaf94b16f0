"""Runs every test of this folder, or those of the modules that are named. One that takes
longer than LONGEST_SECONDS ends its module's run, which then prints where each thread of it
stands.

Each module has a process of its own, PROCESSES at a time, and says what it has found when it
is over: tests mostly wait for other processes."""

import concurrent.futures
import faulthandler
import pathlib
import subprocess
import sys
import unittest

LONGEST_SECONDS = 300.0
PROCESSES = 3
HERE = pathlib.Path(__file__).resolve().parent


class Watched(unittest.TextTestResult):
    """What ``python -v`` of unittest shows, with a limit for each test."""

    def startTest(self, test):
        faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)
        super().startTest(test)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)


def run(modules):
    """Runs the tests of modules here. Returns whether they passed."""
    tests = unittest.defaultTestLoader.loadTestsFromNames(modules)
    return unittest.TextTestRunner(verbosity=2, resultclass=Watched).run(tests).wasSuccessful()


def run_apart(module):
    """Runs the tests of a module in a process, with this one's options."""
    options = ["-W%s" % option for option in sys.warnoptions]
    command = [sys.executable, *options, __file__, module]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def size(module):
    """How long a module takes, about: the longest begin first."""
    return (HERE / (module + ".py")).stat().st_size


def main():
    if sys.argv[1:]:
        sys.exit(not run(sys.argv[1:]))
    modules = sorted((path.stem for path in HERE.glob("test_*.py")), key=size, reverse=True)
    failed = []
    with concurrent.futures.ThreadPoolExecutor(PROCESSES) as processes:
        started = {processes.submit(run_apart, module): module for module in modules}
        for ended in concurrent.futures.as_completed(started):
            sys.stdout.buffer.write(ended.result().stdout)
            sys.stdout.buffer.flush()
            if ended.result().returncode != 0:
                failed.append(started[ended])
    if failed:
        sys.exit("failed: " + ", ".join(sorted(failed)))


if __name__ == "__main__":
    main()
