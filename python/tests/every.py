"""Runs every test of this folder. One that takes longer than LONGEST_SECONDS ends
the run, which then prints where each thread of it stands."""

import faulthandler
import os
import sys
import unittest

LONGEST_SECONDS = 300.0


class Watched(unittest.TextTestResult):
    """What ``python -v`` of unittest shows, with a limit for each test."""

    def startTest(self, test):
        faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)
        super().startTest(test)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)


def main():
    tests = unittest.defaultTestLoader.discover(os.path.dirname(os.path.abspath(__file__)))
    ended = unittest.TextTestRunner(verbosity=2, resultclass=Watched).run(tests)
    sys.exit(not ended.wasSuccessful())


if __name__ == "__main__":
    main()
