"""Features that libraries look for in an executor: its slots, itself within calls, maps that read
their iterables as they go."""

import importlib.util
import os
import pickle
import tempfile
import time
import unittest

import falkon
from falkon import _program
from services import Dispatcher, side_by_side, wait_until

SLOTS = 16


def through(executor, number):
    return executor.submit(abs, -number).result(60), executor.max_workers


def from_within(executor, folder, wanted):
    return list(executor.map(side_by_side, [folder] * wanted, [wanted] * wanted))


class Slots(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dispatcher = Dispatcher()
        cls.dispatcher.__enter__()
        cls.addClassCleanup(cls.dispatcher.__exit__)
        cls.executor = falkon.Executor(cls.dispatcher.access)
        cls.addClassCleanup(cls.executor.shutdown)
        cls.none = cls.executor.max_workers
        for slots in (SLOTS - 4, 4):
            cls.dispatcher.executor("--memory", "4GiB", slots=slots, PYTHONPATH=_program.module_path())
        wait_until(lambda: cls.executor.max_workers == SLOTS)

    def test_as_many_as_executors_have_now(self):
        self.assertEqual(self.none, 1)
        self.assertEqual(self.executor._max_workers, SLOTS)
        self.assertEqual(self.executor.options(cpus=3).max_workers, 4 + 1)
        self.assertEqual(self.executor.options(cpus=0.5).max_workers, 2 * SLOTS)
        self.assertEqual(self.executor.options(memory="3GiB").max_workers, 2)
        self.assertEqual(self.executor.options(gpus=1).max_workers, 1)
        with falkon.Executor(max_workers=3) as here:
            self.assertEqual(here._max_workers, 3)
            self.assertEqual(here.options(cpus=2)._max_workers, 1)
        # A callback is the receiving thread's.
        seen = []
        future = self.executor.submit(time.sleep, 0.1)
        self.executor._shared.slots._asked = None  # The slots are asked for anew.
        future.add_done_callback(lambda _: seen.append(self.executor.max_workers))
        future.result(60)
        wait_until(lambda: seen == [SLOTS])

    @unittest.skipUnless(importlib.util.find_spec("dask"), "dask is not installed")
    def test_dask_uses_all_of_them(self):
        import dask

        with tempfile.TemporaryDirectory() as folder:
            calls = [dask.delayed(side_by_side)(folder, SLOTS) for _ in range(SLOTS)]
            found = dask.compute(*calls, scheduler=self.executor)
        # Each has seen all others: they were made side by side.
        self.assertEqual(found, (SLOTS,) * SLOTS)

    @unittest.skipUnless(importlib.util.find_spec("joblib"), "joblib is not installed")
    def test_joblib_uses_all_of_them(self):
        import falkon.joblib
        import joblib

        falkon.joblib.register()
        with joblib.parallel_config("falkon", access=self.dispatcher.access):
            self.assertEqual(joblib.effective_n_jobs(-1), SLOTS)
        falkon.joblib._kept[1].shutdown()
        with tempfile.TemporaryDirectory() as folder:
            with joblib.parallel_config("falkon", n_jobs=-1, executor=self.executor):
                calls = [joblib.delayed(side_by_side)(folder, SLOTS) for _ in range(SLOTS)]
                found = joblib.Parallel(batch_size=1, pre_dispatch="all")(calls)
        self.assertEqual(found, [SLOTS] * SLOTS)

    def test_an_executor_within_calls_is_at_the_same_dispatcher(self):
        client = falkon.Client(self.dispatcher.access)
        instances = lambda: len(client.status()["instances"])
        before = instances()
        whole = self.executor.options(retries=1)
        found = whole.submit(through, whole, 5).result(60)
        self.assertEqual(found, (5, SLOTS))
        again = pickle.loads(pickle.dumps(whole.options(cpus=2)))
        self.assertEqual(again.submit(abs, -2).result(60), 2)
        self.assertEqual(again.max_workers, SLOTS // 2)
        with tempfile.TemporaryDirectory() as folder:
            found = whole.submit(from_within, whole, folder, SLOTS - 2).result(120)
        self.assertEqual(found, [SLOTS - 2] * (SLOTS - 2))
        # The executors' instances end with them.
        del again
        wait_until(lambda: instances() == before)
        with falkon.Executor(max_workers=1) as here:
            with self.assertRaisesRegex(TypeError, "falkon start"):
                here.submit(through, here, 1).result(60)

    def test_a_map_reads_no_further_than_its_buffer(self):
        read = []

        def numbers():
            for number in range(100):
                read.append(number)
                yield number

        for options, ahead, step in (
            ({"buffersize": 5}, 5, 1),
            ({"buffersize": 3, "chunksize": 4}, 12, 4),
        ):
            del read[:]
            values = self.executor.map(abs, numbers(), **options)
            self.assertEqual(len(read), ahead)
            for number in range(30):
                self.assertEqual(next(values), number)
                self.assertLessEqual(len(read), number + 1 + ahead + step)
            values.close()
            self.assertLess(len(read), 60)
        self.assertEqual(list(self.executor.map(abs, numbers(), buffersize=7)), list(range(100)))
        with tempfile.TemporaryDirectory() as folder:
            calls = [folder] * 50, [SLOTS] * 50
            found = self.executor.map(side_by_side, *calls, buffersize=SLOTS)
            self.assertEqual(list(found), [SLOTS] * 50)
        found = self.executor.map(pow, range(50), [2] * 50, buffersize=2, chunksize=7)
        self.assertEqual(list(found), [n * n for n in range(50)])
        with self.assertRaises(ZeroDivisionError):
            list(self.executor.map(divmod, [1, 2], [1, 0], buffersize=1))
        with self.assertRaisesRegex(TypeError, "buffersize must be an integer or None"):
            self.executor.map(abs, [1], buffersize="1")
        with self.assertRaisesRegex(ValueError, "buffersize must be None or > 0"):
            self.executor.map(abs, [1], buffersize=0)


if __name__ == "__main__":
    unittest.main()
