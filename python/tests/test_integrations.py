"""Other projects' interfaces, with the projects themselves where they are
installed."""

import importlib.util
import operator
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

import falkon


def needs(*modules):
    """Skips tests where the other side is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, "not installed: %s" % ", ".join(missing))


@needs("parsl")
class Parsl(unittest.TestCase):
    def setUp(self):
        import parsl
        from falkon.parsl import FalkonExecutor

        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        executor = FalkonExecutor(max_workers=2, working_dir=self.folder)
        config = parsl.Config(executors=[executor], run_dir=self.folder, usage_tracking=0)
        loaded = parsl.load(config)
        self.addCleanup(parsl.clear)
        self.addCleanup(loaded.cleanup)
        self.parsl = parsl

    def test_apps_files_and_dataflow(self):
        from parsl.data_provider.files import File

        @self.parsl.python_app
        def add(one, other):
            return one + other

        @self.parsl.bash_app
        def write(text, outputs=()):
            return "echo %s > %s" % (text, outputs[0])

        @self.parsl.python_app
        def read(inputs=()):
            with open(inputs[0]) as file:
                return file.read()

        self.assertEqual(add(add(1, 2), add(3, 4)).result(60), 10)
        path = File(os.path.join(self.folder, "hello"))
        written = write("hello", outputs=[path])
        self.assertEqual(read(inputs=[written.outputs[0]]).result(60), "hello\n")

        @self.parsl.python_app
        def fails():
            raise KeyError("no")

        with self.assertRaises(KeyError):
            fails().result(60)

    def test_resources(self):
        from parsl.executors.errors import InvalidResourceSpecification

        @self.parsl.python_app
        def where(parsl_resource_specification={}):
            return os.getpid()

        wanted = {"cores": 1, "memory": 100, "running_time_min": 1, "priority": 3}
        self.assertNotEqual(where(parsl_resource_specification=wanted).result(60), os.getpid())
        with self.assertRaises(InvalidResourceSpecification):
            where(parsl_resource_specification={"wheels": 4}).result(60)
        with self.assertRaises(falkon.TaskFailed):
            where(parsl_resource_specification={"gpus": 1000}).result(60)


def _nested(number):
    import joblib

    squares = joblib.Parallel(2, "falkon")(joblib.delayed(pow)(n, 2) for n in (number, 2))
    with joblib.parallel_config("falkon", n_jobs=2):
        pids = joblib.Parallel()(joblib.delayed(os.getpid)() for _ in range(4))
    return squares, set(pids), os.getpid()


@needs("joblib")
class Joblib(unittest.TestCase):
    def test_parallel(self):
        import falkon.joblib
        import joblib

        falkon.joblib.register()
        with joblib.parallel_config("falkon", n_jobs=2):
            calls = [joblib.delayed(pow)(n, 2) for n in range(500)]
            self.assertEqual(joblib.Parallel()(calls), [n * n for n in range(500)])
            pids = set(joblib.Parallel()(joblib.delayed(os.getpid)() for _ in range(20)))
            self.assertNotIn(os.getpid(), pids)
            with self.assertRaises(ZeroDivisionError):
                joblib.Parallel()(joblib.delayed(divmod)(1, n) for n in (1, 0, 2))
            with self.assertRaises(falkon.WorkerDied):
                joblib.Parallel()(joblib.delayed(os._exit)(n) for n in (1, 2))
            # The next one works again, and its values come as they are asked for.
            values = joblib.Parallel(return_as="generator")(calls)
            self.assertEqual(next(values), 0)
            self.assertEqual(sum(1 for _ in values), 499)
        with falkon.Executor(max_workers=1) as executor:
            with joblib.parallel_config("falkon", n_jobs=2, executor=executor):
                self.assertEqual(joblib.Parallel()(calls[:3]), [0, 1, 4])

    def test_the_backend_within_a_call(self):
        import falkon.joblib
        import joblib

        falkon.joblib.register()
        with joblib.parallel_config("falkon", n_jobs=2):
            found = joblib.Parallel()(joblib.delayed(_nested)(n) for n in range(4))
        # The calls run one after another, in the worker itself.
        self.assertEqual([squares for squares, _, _ in found], [[n * n, 4] for n in range(4)])
        self.assertTrue(all(pids == {pid} for _, pids, pid in found))

    def test_what_many_batches_have_travels_once(self):
        import falkon.joblib
        import joblib

        falkon.joblib.register()
        data = bytearray(20 << 20)
        with falkon.Executor(max_workers=2) as executor:
            with joblib.parallel_config("falkon", n_jobs=2, executor=executor):
                calls = [joblib.delayed(lambda one, n: len(one) + n)(data, n) for n in range(12)]
                wanted = [(20 << 20) + n for n in range(12)]
                self.assertEqual(joblib.Parallel(batch_size=3)(calls), wanted)
            self.assertEqual(len(os.listdir(executor._shared.session().objects.folder)), 1)


@needs("dask")
class Dask(unittest.TestCase):
    def test_an_executor_is_a_scheduler(self):
        import dask

        add = dask.delayed(operator.add)
        level = [dask.delayed(n) for n in range(32)]
        while len(level) > 1:
            level = [add(*pair) for pair in zip(level[::2], level[1::2])]
        with falkon.Executor(max_workers=2) as executor:
            (total,) = dask.compute(level[0], scheduler=executor)
            self.assertEqual(total, sum(range(32)))
            with self.assertRaises(ZeroDivisionError):
                dask.compute(dask.delayed(divmod)(1, 0), scheduler=executor)


SNAKEFILE = """
    rule all:
        input: "sum", "whole"

    rule one:
        output: "part-{n}"
        threads: lambda wildcards: 1000 if wildcards.n == "2" else 1
        resources: mem_mb=10
        shell: "echo $(({wildcards.n} * {wildcards.n})) > {output}"

    rule sum:
        input: expand("part-{n}", n=range(1, 3))
        output: "sum"
        log: "log/sum"
        threads: 1
        shell: "cat {input} > {output}; echo $OMP_NUM_THREADS > {log}; tr '\\\\0' ' ' < /proc/$PPID/cmdline >> {log}"

    rule whole:
        input: "sum"
        output: temp("whole")
        benchmark: "bench"
        shell: "tr '\\\\0' ' ' < /proc/$PPID/cmdline > {output}; grep -q snakemake {output}"
    """


SHELL_RULES = """
    envvars: "JOB_SECRET"
    shell.prefix("set -eu; PREFIX=it; ")

    rule all:
        input: "all", "touched"
        default_target: True

    rule quoted:
        output: temp("quoted"), directory("deep/er")
        params: text="$HOME"
        shell: r'''echo "${{PREFIX}}'s" '{params.text}' > {output[0]}; mkdir -p {output[1]}'''

    rule kept:
        input: "quoted"
        output: protected("kept")
        shell: "cat {input} > {output}; echo $JOB_SECRET >> {output}"

    rule old:
        output: "old"
        shell: "[ ! -e {output} ] && echo new > {output}"

    rule touched:
        output: touch("touched")
        shell: "true"

    rule joined:
        input: "kept", "old"
        output: "all", temp("attempts")
        shell: "[ ! -e {output[1]} ]; touch {output[1]}; echo attempt >> log; [ $(wc -l < log) = 2 ]; cat {input} > {output[0]}"
    """


@needs("snakemake")
class Snakemake(unittest.TestCase):
    def run_snakemake(self, folder, *options, **variables):
        package = os.path.dirname(os.path.dirname(falkon.__file__))
        environment = dict(os.environ, PYTHONPATH=package, **variables)
        return subprocess.run(
            [sys.executable, "-m", "snakemake", "--executor", "falkon", "--jobs", "2", *options],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def test_a_workflow(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "Snakefile"), "w") as snakefile:
                snakefile.write(textwrap.dedent(SNAKEFILE))
            ran = self.run_snakemake(folder)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            with open(os.path.join(folder, "sum")) as total:
                self.assertEqual(sum(map(int, total.read().split())), 5)
            # A shell command alone needs no Snakemake, what is timed does.
            with open(os.path.join(folder, "log", "sum")) as log:
                threads, parent = log.read().split("\n")
            self.assertEqual(threads, "1")
            self.assertNotIn("snakemake", parent)
            self.assertTrue(os.path.exists(os.path.join(folder, "bench")))

    def test_what_a_shell_command_may_have(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "Snakefile"), "w") as snakefile:
                snakefile.write(textwrap.dedent(SHELL_RULES))
            # From an earlier version, so that it is made again.
            with open(os.path.join(folder, "old"), "w") as old:
                old.write("old")
            options = ("--forceall", "--falkon-retries", "1")
            ran = self.run_snakemake(folder, *options, JOB_SECRET="whisper")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            left = set(os.listdir(folder)) - {".snakemake", "Snakefile"}
            self.assertEqual(left, {"old", "kept", "touched", "deep", "all", "log"})
            with open(os.path.join(folder, "all")) as all_:
                self.assertEqual(all_.read().split(), ["it's", "$HOME", "whisper", "new"])
            self.assertEqual(os.stat(os.path.join(folder, "kept")).st_mode & 0o222, 0)
            again = self.run_snakemake(folder, JOB_SECRET="whisper")
            self.assertIn("Nothing to be done", again.stderr)

    def test_a_job_that_fails(self):
        for options, code in ((), 3), (("--falkon-whole-jobs",), 1):
            with self.subTest(options=options), tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, "Snakefile"), "w") as snakefile:
                    snakefile.write(
                        'rule all:\n    output: "x"\n    shell: "touch x; echo why >&2; exit 3"\n'
                    )
                ran = self.run_snakemake(folder, *options)
                self.assertNotEqual(ran.returncode, 0)
                self.assertIn("why", ran.stderr)
                self.assertIn("Falkon: it exited with code %d" % code, ran.stderr)
                self.assertFalse(os.path.exists(os.path.join(folder, "x")))


if __name__ == "__main__":
    unittest.main()
