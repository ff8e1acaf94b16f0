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
- test_gh105829_should_not_deadlock_if_wakeup_pipe_full: the pool's own thread.

The deadlock tests, where a process pool breaks as a whole, are read as: the call
ends with an error, and the executor goes on.
"""

import importlib
import multiprocessing
import pkgutil
import sys
import types
import unittest

import falkon
import test.test_concurrent_futures


def _all_of(module):
    """The names of the tests, which are several modules from Python 3.12 on."""
    found = types.SimpleNamespace(**vars(module))
    for one in pkgutil.iter_modules(getattr(module, "__path__", ())):
        vars(found).update(vars(importlib.import_module(module.__name__ + "." + one.name)))
    return found


standard = _all_of(test.test_concurrent_futures)
TIMEOUT_SECONDS = 120


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
        self._module = sys.modules[standard.FutureTests.__module__]
        self._future = self._module.Future
        self._module.Future = falkon.Future

    def tearDown(self):
        self._module.Future = self._future
        super().tearDown()


class DeadlockTest(FalkonMixin, standard.ExecutorDeadlockTest, standard.BaseTestCase):
    test_gh105829_should_not_deadlock_if_wakeup_pipe_full = None

    def setUp(self):
        super().setUp()
        # Some of what is made of pickles replaces it.
        self.addCleanup(setattr, sys, "stderr", sys.stderr)

    def ends(self, future):
        """A call ends with an error, and soon."""
        try:
            future.result(TIMEOUT_SECONDS)
        except TimeoutError:
            self.fail("the call does not end")
        except BaseException:
            return
        self.fail("the call has ended well")

    def _check_crash(self, error, func, *args, ignore_stderr=False):
        self.ends(self.executor.submit(func, *args))
        self.assertEqual(self.executor.submit(abs, -1).result(TIMEOUT_SECONDS), 1)

    def test_shutdown_deadlock(self):
        future = self.executor.submit(standard._crash, delay=0.1)
        self.executor.shutdown(wait=True)
        self.ends(future)

    def test_shutdown_deadlock_pickle(self):
        self.assertEqual(self.executor.submit(id, 42).result(TIMEOUT_SECONDS) > 0, True)
        future = self.executor.submit(id, standard.ErrorAtPickle())
        self.executor.shutdown(wait=False)
        self.ends(future)
        self.executor.shutdown(wait=True)

    def test_crash_big_data(self):
        data = "a" * (32 << 20)
        crashes = getattr(standard, "_crash_with_data", standard.CrashAtUnpickle)
        for future in [self.executor.submit(crashes, data) for _ in range(4)]:
            self.ends(future)
        self.assertEqual(self.executor.submit(abs, -1).result(TIMEOUT_SECONDS), 1)


def load_tests(loader, tests, pattern):
    cases = [WaitTest, AsCompletedTest, ExecutorTest, ShutdownTest, InitializerTest, FutureTest]
    cases.append(DeadlockTest)
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    unittest.main()
