"""Libraries that make calls through an executor, at a dispatcher with more slots than
this machine has cores: what they find is what they find in one process, and calls are
made side by side in more slots than there are cores."""

import asyncio
import functools
import importlib.util
import math
import os
import tempfile
import unittest
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import falkon
from falkon import _program
from services import Dispatcher, InFolder, side_by_side, wait_until

CORES = os.cpu_count() or 1
SLOTS = max(16, CORES + 4)
MORE = CORES + 2
"""As many slots are used at once by libraries that take long to import."""


def needs(*modules):
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, "not installed: %s" % ", ".join(missing))


class Met:
    """A function whose first call in each process waits for those in others."""

    def __init__(self, function, folder, wanted):
        self.function = function
        self.folder = folder
        self.wanted = wanted

    def __call__(self, *args, **kwargs):
        if not os.path.exists(os.path.join(self.folder, str(os.getpid()))):
            side_by_side(self.folder, self.wanted)
        return self.function(*args, **kwargs)


def bowl(point):
    return sum((one - place) ** 2 for place, one in enumerate(point))


def wave(x, y=0.0):
    return math.sin(5 * x) * math.exp(-x * x) + y


def log_density(point):
    return -0.5 * bowl(point)


def waves(x):
    return x * abs(math.sin(20 * x))


class Libraries(InFolder):
    @classmethod
    def setUpClass(cls):
        cls.dispatcher = Dispatcher()
        cls.dispatcher.__enter__()
        cls.addClassCleanup(cls.dispatcher.__exit__)
        cls.dispatcher.executor(slots=SLOTS, PYTHONPATH=_program.module_path(), OMP_NUM_THREADS="1")
        cls.executor = falkon.Executor(cls.dispatcher.access)
        cls.addClassCleanup(cls.executor.shutdown)
        wait_until(lambda: cls.executor.max_workers == SLOTS)

    def met(self, function, wanted=SLOTS):
        """The function, and a check that so many processes called it at once."""
        folder = tempfile.mkdtemp(dir=self.folder)
        return Met(function, folder, wanted), lambda: self.assertGreaterEqual(
            len(os.listdir(folder)), wanted
        )

    def test_asyncio(self):
        called, check = self.met(pow)

        async def together():
            loop = asyncio.get_running_loop()
            calls = [loop.run_in_executor(self.executor, called, n, 2) for n in range(50)]
            calls += [asyncio.wrap_future(self.executor.submit(called, n, 3)) for n in range(50)]
            return await asyncio.gather(*calls)

        self.assertEqual(
            asyncio.run(together()), [n**2 for n in range(50)] + [n**3 for n in range(50)]
        )
        check()

    @needs("anyio", "trio")
    def test_trio_and_asyncio_through_anyio(self):
        import anyio
        import anyio.to_thread

        async def call(function, *args):
            future = self.executor.submit(function, *args)
            try:
                return await anyio.to_thread.run_sync(future.result, abandon_on_cancel=True)
            finally:
                future.cancel()

        async def together(called, found, slow):
            async def one(n):
                found[n] = await call(called, n, 2)

            async with anyio.create_task_group() as group:
                for n in range(100):
                    group.start_soon(one, n)
            with anyio.move_on_after(0.1):
                await call(slow, 60)

        for backend in ("trio", "asyncio"):
            called, check = self.met(pow)
            found = {}
            slow = _Sleep()
            anyio.run(together, called, found, slow, backend=backend)
            self.assertEqual(found, {n: n * n for n in range(100)})
            check()
            # The call that nobody waited for any more has been ended.
            wait_until(lambda: self.executor._shared._session.pending() == 0)

    def test_threads(self):
        called, check = self.met(pow)

        def some(first):
            futures = [self.executor.submit(called, n, 2) for n in range(first, first + 50)]
            return [future.result(120) for future in futures]

        with ThreadPoolExecutor(SLOTS) as threads:
            found = list(threads.map(some, range(0, 50 * SLOTS, 50)))
        self.assertEqual(sum(found, []), [n * n for n in range(50 * SLOTS)])
        check()

    @needs("scipy")
    def test_scipy(self):
        from scipy import integrate, optimize

        bounds = [(-3, 3), (-3, 3), (-3, 3)]
        called, check = self.met(bowl)
        evolve = functools.partial(
            optimize.differential_evolution, bounds=bounds, rng=1, maxiter=5, updating="deferred"
        )
        one, other = evolve(bowl), evolve(called, workers=self.executor.map)
        self.assertEqual(list(one.x), list(other.x))
        self.assertEqual((one.fun, one.nfev), (other.fun, other.nfev))
        check()

        grid = functools.partial(optimize.brute, ranges=bounds, Ns=5, finish=None)
        self.assertEqual(list(grid(bowl)), list(grid(bowl, workers=self.executor.map)))

        whole = functools.partial(integrate.quad_vec, wave, 0, 3, limit=8, epsabs=1e-12)
        self.assertEqual(whole()[0], whole(workers=self.executor.map)[0])

    @needs("emcee", "numpy")
    def test_emcee(self):
        import emcee
        import numpy

        start = numpy.random.default_rng(1).normal(size=(2 * SLOTS, 3))
        called, check = self.met(log_density)
        chains = []
        for function, pool in ((log_density, None), (called, self.executor)):
            numpy.random.seed(1)
            sampler = emcee.EnsembleSampler(2 * SLOTS, 3, function, pool=pool)
            sampler.run_mcmc(start, 10)
            chains.append(sampler.get_chain())
        self.assertTrue(numpy.array_equal(*chains))
        check()

    @needs("optuna")
    def test_optuna(self):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        called, check = self.met(bowl)

        def asked(study):
            trial = study.ask()
            return trial, [trial.suggest_float("x", -3, 3), trial.suggest_float("y", -3, 3)]

        def new_study():
            return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))

        serial, study = new_study(), new_study()
        for _ in range(3 * SLOTS):
            trial, point = asked(serial)
            serial.tell(trial, bowl(point))
        # There are as many trials under way as slots.
        running, left = {}, 3 * SLOTS
        while running or left:
            while left and len(running) < SLOTS:
                trial, point = asked(study)
                running[self.executor.submit(called, point)] = trial
                left -= 1
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                study.tell(running.pop(future), future.result())
        self.assertEqual(study.best_params, serial.best_params)
        values = [[trial.value for trial in one.trials] for one in (study, serial)]
        self.assertEqual(*values)
        check()

    @needs("adaptive")
    def test_adaptive(self):
        from adaptive import BlockingRunner, Learner1D

        called, check = self.met(waves)
        learner = Learner1D(called, (-1, 1))
        BlockingRunner(
            learner,
            executor=self.executor,
            ntasks=self.executor.max_workers,
            shutdown_executor=False,
            npoints_goal=200,
        )
        # The library's choice of points depends on the order in which values come.
        self.assertGreaterEqual(learner.npoints, 200)
        self.assertEqual(learner.data, {x: waves(x) for x in learner.data})
        check()

    @needs("sklearn", "joblib")
    def test_scikit_learn(self):
        import falkon.joblib
        import joblib
        import numpy
        from sklearn.datasets import make_classification
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.model_selection import GridSearchCV
        from sklearn.neighbors import KNeighborsClassifier

        falkon.joblib.register()
        inputs, classes = make_classification(200, 5, random_state=1)
        called, check = self.met(_score, MORE)

        def search(scoring):
            grid = {"n_neighbors": [1, 3, 5, 7], "weights": ["uniform", "distance"]}
            return GridSearchCV(KNeighborsClassifier(), grid, scoring=scoring, cv=4).fit(
                inputs, classes
            )

        def forest():
            return RandomForestClassifier(30, random_state=1).fit(inputs, classes)

        serial = search(_score).cv_results_["mean_test_score"], forest().predict_proba(inputs)
        with joblib.parallel_config("falkon", n_jobs=MORE, executor=self.executor):
            found = search(called).cv_results_["mean_test_score"], forest().predict_proba(inputs)
        for one, other in zip(serial, found):
            self.assertTrue(numpy.array_equal(one, other))
        check()

    @needs("cubed")
    def test_cubed(self):
        import cubed
        import cubed.array_api as xp
        import numpy
        from falkon.cubed import FalkonExecutor

        called, check = self.met(_doubled, MORE)
        executor = FalkonExecutor(executor=self.executor)
        spec = cubed.Spec(work_dir=self.folder, allowed_mem="200MB", executor=executor)
        numbers = numpy.arange(4 * MORE * 100.0).reshape(4 * MORE, 100)
        array = xp.asarray(numbers, chunks=(4, 100), spec=spec)
        doubled = cubed.map_blocks(called, array, dtype=array.dtype)
        self.assertTrue(numpy.array_equal(doubled.compute(), 2 * numbers))
        check()
        mean = xp.mean(xp.add(array, array), axis=0).compute()
        self.assertTrue(numpy.allclose(mean, 2 * numbers.mean(axis=0)))

        failing = cubed.map_blocks(_fails, array, dtype=array.dtype)
        with self.assertRaises(ZeroDivisionError):
            failing.compute(retries=0)
        wait_until(lambda: self.executor._shared._session.pending() == 0)

    @needs("pydra")
    def test_pydra(self):
        from falkon.pydra import FalkonWorker
        from pydra import Submitter, Workflow, mark

        # Pydra leaves this process in a directory of the workflow's.
        self.addCleanup(os.chdir, os.getcwd())
        folder = self.path("met")
        os.mkdir(folder)
        power = mark.task(_power)

        def run(worker, name, wanted, **options):
            whole = Workflow(name=name, input_spec=["bases"], cache_dir=self.path(name))
            whole.split("bases", bases=list(range(MORE)))
            whole.add(power(name="power", base=whole.lzin.bases, folder=folder, wanted=wanted))
            whole.add(power(name="again", base=whole.power.lzout.out, folder=folder, wanted=1))
            whole.set_output([("out", whole.again.lzout.out)])
            with Submitter(plugin=worker, **options) as submitter:
                submitter(whole)
            return [one.output.out for one in whole.result()]

        found = run(FalkonWorker, "remote", MORE, executor=self.executor)
        self.assertGreaterEqual(len(os.listdir(folder)), MORE)
        self.assertEqual(found, [n**4 for n in range(MORE)])
        self.assertEqual(run("serial", "serial", 1), found)

    @needs("executorlib")
    def test_executorlib(self):
        import executorlib
        from falkon.executorlib import FalkonExecutor

        called, check = self.met(_pair, MORE)
        executor = FalkonExecutor(executor=self.executor)
        self.assertIsInstance(executor, executorlib.BaseExecutor)
        pairs = [executor.submit(called, number) for number in range(MORE)]
        check_sum = sum(2 * number + 1 for number in range(MORE))
        parts = [part for pair in pairs for part in executorlib.split_future(pair, 2)]
        # Parts are taken where calls are made, in lists and tables too.
        total = executor.submit(_sum_of, parts[:2], rest={"more": parts[2:]})
        self.assertEqual(total.result(60), check_sum)
        check()
        named = executor.submit(dict, one=1)
        one = executorlib.get_item_from_future(named, "one")
        self.assertEqual(executor.submit(abs, one, resource_dict={"priority": 2}).result(60), 1)
        self.assertEqual(list(executor.map(pow, [2, 3], [3, 2])), [8, 9])

        batches = executor.batched(pairs, 3)
        found = [value for batch in batches for value in batch.result(60)]
        self.assertEqual(sorted(found), [(n, n + 1) for n in range(MORE)])
        self.assertTrue(all(len(batch.result()) == 3 for batch in batches[:-1]))
        failing = [executor.submit(_fails, 1.0) for _ in range(2)]
        for batch in executor.batched(failing, 1):
            self.assertRaises(ZeroDivisionError, batch.result, 60)

        folder = self.path("calls/one")
        here = executor.submit(os.getcwd, resource_dict={"cwd": folder, "threads_per_core": 2})
        self.assertEqual(here.result(60), os.path.realpath(folder))
        for wrong, said in [("cores", "processes of MPI"), ("partition", "has no 'partition'")]:
            with self.assertRaisesRegex(ValueError, said):
                executor.submit(abs, 1, resource_dict={wrong: 2})
        executor.shutdown()
        self.assertRaises(RuntimeError, executor.submit, abs, 1)
        self.assertEqual(self.executor.submit(abs, -1).result(60), 1)


class _Sleep:
    def __call__(self, seconds):
        import time

        time.sleep(seconds)


def _score(estimator, inputs, classes):
    return estimator.score(inputs, classes)


def _doubled(block):
    return 2 * block


def _pair(number):
    return number, number + 1


def _sum_of(first, rest):
    return sum(first) + sum(rest["more"])


def _fails(block):
    return block / (1 // 0)


def _power(base, folder, wanted):
    side_by_side(folder, wanted)
    return base**2


if __name__ == "__main__":
    unittest.main()
