"""``falkon.Pool``: what is not in CPython's own tests of pools (standard_pool.py)."""

import itertools
import multiprocessing
import os
import pickle
import threading
import unittest

import falkon
from falkon import _program
from services import Dispatcher, InFolder, wait_until


def add(one, other=0):
    return one + other


def third(number):
    if number == 3:
        raise KeyError(number)
    return number


def die(number):
    if number == 1:
        os._exit(3)
    return number


def mark(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    threading.Event().wait()


class Pools(InFolder):
    def setUp(self):
        super().setUp()
        self.pool = self.entered(falkon.Pool(2))

    def test_a_call_that_fails_costs_its_value_only(self):
        values = self.pool.imap(third, range(5))
        self.assertEqual([next(values) for _ in range(3)], [0, 1, 2])
        self.assertRaises(KeyError, next, values)
        self.assertEqual(list(values), [4])

    def test_a_chunk_ends_with_the_call_that_fails(self):
        values = self.pool.imap(third, range(9), chunksize=5)
        self.assertEqual([next(values) for _ in range(3)], [0, 1, 2])
        self.assertRaises(KeyError, next, values)
        self.assertRaises(StopIteration, next, values)

    def test_a_worker_that_dies_fails_its_call_and_no_other(self):
        results = [self.pool.apply_async(die, (number,)) for number in range(4)]
        self.assertRaises(falkon.WorkerDied, results[1].get, 60)
        self.assertEqual([results[at].get(60) for at in (0, 2, 3)], [0, 2, 3])
        self.assertFalse(results[1].successful())

    def test_map_waits_for_all_and_raises_the_first_error(self):
        errors = []
        result = self.pool.map_async(third, range(300), 2, error_callback=errors.append)
        self.assertRaises(KeyError, result.get, 60)
        self.assertEqual(len(errors), 1)
        self.assertEqual(self.pool.map(third, range(4, 1000)), list(range(4, 1000)))

    def test_what_is_not_ready_says_so(self):
        result = self.pool.apply_async(mark, (self.path("begun"),))
        self.assertFalse(result.ready())
        self.assertRaises(ValueError, result.successful)
        self.assertRaises(multiprocessing.TimeoutError, result.get, 0.01)
        values = self.pool.imap_unordered(mark, [self.path("other")])
        self.assertRaises(multiprocessing.TimeoutError, values.next, 0.01)

    def test_an_endless_iterable_is_read_until_the_pool_ends(self):
        values = self.pool.imap(add, itertools.count())
        self.assertEqual([next(values) for _ in range(1000)], list(range(1000)))
        self.pool.terminate()
        self.pool.join()

    def test_terminate_ends_calls_that_are_made(self):
        result = self.pool.apply_async(mark, (self.path("begun"),))
        wait_until(lambda: os.path.exists(self.path("begun")) and open(self.path("begun")).read())
        pid = int(open(self.path("begun")).read())
        self.pool.terminate()
        self.pool.join()
        self.assertTrue(result.ready())
        wait_until(lambda: not os.path.exists("/proc/%d" % pid))

    def test_a_closed_pool_makes_the_calls_it_has(self):
        values = self.pool.imap(add, range(2000))
        self.pool.close()
        for call in (self.pool.apply, self.pool.map, self.pool.imap):
            self.assertRaisesRegex(ValueError, "not running", call, add, ())
        self.pool.join()
        self.assertEqual(list(values), list(range(2000)))

    def test_a_callback_that_fails_is_logged(self):
        with self.assertLogs("falkon", "ERROR"):
            result = self.pool.apply_async(add, (1,), callback=lambda value: value.missing)
            self.assertEqual(result.get(60), 1)

    def test_wrong_arguments(self):
        for wrong in (0, -1, "two", 1.5):
            with self.assertRaises((ValueError, TypeError)):
                falkon.Pool(wrong)
        for wrong in (
            {"maxtasksperchild": 3},
            {"processes": 2, "access": "access.json"},
            {"executor": 3, "initializer": print},
        ):
            self.assertRaises(ValueError, falkon.Pool, **wrong)
        self.assertRaises(TypeError, falkon.Pool, initializer=3)
        self.assertRaises(ValueError, self.pool.map, add, [1], 0)
        self.assertRaises(ValueError, self.pool.imap, add, [1], 0)
        self.assertRaises(TypeError, self.pool.map, add, 3)
        self.assertRaises(TypeError, next, self.pool.imap(add, 3))
        self.assertRaises(TypeError, self.pool.apply, 3)
        self.assertRaises(NotImplementedError, pickle.dumps, self.pool)
        self.assertRaises(ValueError, self.pool.join)


class PoolsOfDispatchers(unittest.TestCase):
    def test_a_pool_of_other_machines_with_options(self):
        with Dispatcher() as dispatcher:
            dispatcher.executor(slots=2, PYTHONPATH=_program.module_path())
            with falkon.Pool(access=dispatcher.access) as pool:
                self.assertEqual(pool.starmap(add, [(1, 2), (3,)]), [3, 3])
            with falkon.Executor(dispatcher.access) as executor:
                pool = falkon.Pool(executor=executor.options(retries=1))
                self.assertEqual(sorted(pool.imap_unordered(add, range(99), 7)), list(range(99)))
                pool.close()
                pool.join()
                # An executor that was given is not closed.
                self.assertEqual(executor.submit(add, 1).result(60), 1)


if __name__ == "__main__":
    unittest.main()
