"""CPython's own tests of ``multiprocessing.Pool``, on ``falkon.Pool``.

They are in the standard library's test suite (Debian: libpython3.11-testsuite).
Left out, because they look into private parts: test_resource_warning and the tests of
workers that are replaced. Two are read as:

- test_make_pool: a pool of no workers is refused.
- test_traceback: the traceback of the worker is the error's cause; the function is not one
  of this class, which has a pool.
"""

import unittest

import falkon
from test import _test_multiprocessing as standard


class PoolTest(standard._TestPool, unittest.TestCase):
    TYPE = "processes"
    Pool = falkon.Pool

    test_resource_warning = None

    def test_make_pool(self):
        for processes in (-1, 0):
            self.assertRaises(ValueError, self.Pool, processes)

    def test_traceback(self):
        with self.Pool(1) as pool, self.assertRaises(RuntimeError) as raised:
            pool.apply(standard._TestPool._test_traceback)
        self.assertEqual(raised.exception.args, (123,))
        self.assertIn("raise RuntimeError(123) # some comment", str(raised.exception.__cause__))


def load_tests(loader, tests, pattern):
    return loader.loadTestsFromTestCase(PoolTest)


if __name__ == "__main__":
    unittest.main()
