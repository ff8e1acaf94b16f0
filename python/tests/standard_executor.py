"""CPython's own tests of ``concurrent.futures``, on ``falkon.Executor``.

They are in the standard library's test suite (Debian: libpython3.11-testsuite).
Left out, because they look into private parts or test something else:

- test_interpreter_shutdown, test_submit_after_interpreter_shutdown,
  test_hang_gh83386: scripts that name a standard executor; ours are in
  test_executor.py.
- the process pool's own shutdown tests, test_killed_child,
  test_ressources_gced_in_workers, test_saturation, test_idle_process_reuse,
  test_max_tasks: the pool's queues, processes and semaphores.
- test_exit_at_task_unpickle and the like, which expect a pool to break as a
  whole when one worker dies: here only that call fails (test_executor.py).
- FailingInitializer's check that the pool's logger was used.
"""

import multiprocessing
import unittest

import falkon
import test.test_concurrent_futures as standard


class FalkonMixin(standard.ExecutorMixin):
    executor_type = falkon.Executor


class WaitTest(FalkonMixin, standard.WaitTests, standard.BaseTestCase):
    pass


class AsCompletedTest(FalkonMixin, standard.AsCompletedTests, standard.BaseTestCase):
    pass


class ExecutorTest(FalkonMixin, standard.ExecutorTest, standard.BaseTestCase):
    test_map_chunksize = standard.ProcessPoolExecutorTest.test_map_chunksize


class ShutdownTest(FalkonMixin, standard.ExecutorShutdownTest, standard.BaseTestCase):
    test_interpreter_shutdown = None
    test_submit_after_interpreter_shutdown = None
    test_hang_gh83386 = None


class InitializerTest(FalkonMixin, standard.InitializerMixin, standard.BaseTestCase):
    def setUp(self):
        self.executor_kwargs = dict(initializer=standard.init, initargs=("initialized",))
        standard.ExecutorMixin.setUp(self)


class FutureTest(standard.FutureTests):
    def setUp(self):
        super().setUp()
        self._future = standard.Future
        standard.Future = falkon.Future

    def tearDown(self):
        standard.Future = self._future
        super().tearDown()


def load_tests(loader, tests, pattern):
    cases = (WaitTest, AsCompletedTest, ExecutorTest, ShutdownTest, InitializerTest, FutureTest)
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    unittest.main()
