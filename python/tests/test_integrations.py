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
from datetime import timedelta
from pathlib import Path

import falkon
from services import Dispatcher, InFolder, wait_until


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


TOIL_WORKFLOW = """
    import os

    from toil.common import Toil
    from toil.job import Job

    def square(n):
        return n * n

    def total(parts):
        with open(os.environ["TOTAL"], "w") as file:
            file.write(str(sum(parts)))

    def failing(marks):
        marks_there = len(os.listdir(marks))
        open(os.path.join(marks, str(marks_there)), "w").close()
        if not marks_there:
            os._exit(5)

    if __name__ == "__main__":
        parser = Job.Runner.getDefaultArgumentParser()
        parser.add_argument("marks")
        options = parser.parse_args()
        root = Job.wrapFn(square, 0, cores=1, memory="10M", disk="1M")
        parts = [
            root.addChildFn(square, n, cores=0.5, memory="10M", disk="1M").rv() for n in range(4)
        ]
        root.addChildFn(failing, options.marks, cores=1, memory="10M", disk="1M")
        root.addFollowOnFn(total, parts, cores=2, memory="10M", disk="1M")
        with Toil(options) as toil:
            toil.start(root)
    """


@needs("toil")
class Toil(InFolder):
    def batch_system(self, **more):
        from falkon.toil import FalkonBatchSystem
        from toil.common import Config

        config = Config()
        config.workflowID = "test"
        config.cleanWorkDir = "always"
        for name, value in more.items():
            setattr(config, name, value)
        system = FalkonBatchSystem(config, maxCores=2, maxMemory=10**9, maxDisk=2001)
        self.addCleanup(system.shutdown)
        return system

    def job(self, **more):
        from toil.job import JobDescription

        needed = dict(memory=10**8, cores=1, disk=1000, preemptible=False, accelerators=[])
        needed.update(walltime=0)
        needed.update(more)
        found = JobDescription(requirements=needed, jobName="a job", unitName=None)
        found.jobStoreID = "1"
        return found

    def test_jobs_end_and_are_killed(self):
        from toil.batchSystems.abstractBatchSystem import BatchJobExitReason

        system = self.batch_system()
        long = [system.issueBatchJob("sleep 1000", self.job()) for _ in range(2)]
        wait_until(lambda: set(system.getRunningBatchJobIDs()) == set(long))
        self.assertEqual(set(system.getIssuedBatchJobIDs()), set(long))
        system.killBatchJobs(long)
        self.assertEqual(system.getRunningBatchJobIDs(), {})
        system.setEnv("FROM_SYSTEM", "3")
        ends = {
            "exit $FROM_SYSTEM$FROM_JOB": (34, BatchJobExitReason.FAILED),
            "exit 0": (0, BatchJobExitReason.FINISHED),
            "kill -9 $$": (255, BatchJobExitReason.FAILED),
        }
        issued = {
            system.issueBatchJob(command, self.job(), {"FROM_JOB": "4"}): end
            for command, end in ends.items()
        }
        slow = system.issueBatchJob("sleep 1000", self.job(walltime=1))
        issued[slow] = (255, BatchJobExitReason.TIMELIMIT)
        for _ in range(len(issued)):
            ended = system.getUpdatedBatchJob(60)
            self.assertEqual((ended.exitStatus, ended.exitReason), issued.pop(ended.jobID))
        self.assertIsNone(system.getUpdatedBatchJob(0))

    def test_a_workflow_at_a_dispatcher(self):
        dispatcher = self.entered(Dispatcher())
        dispatcher.executor()
        marks = self.path("marks")
        os.mkdir(marks)
        with open(self.path("workflow.py"), "w") as file:
            file.write(textwrap.dedent(TOIL_WORKFLOW))
        package = os.path.dirname(os.path.dirname(falkon.__file__))
        command = [sys.executable, "workflow.py", self.path("store"), marks]
        command += ["--batchSystem", "falkon", "--falkonAccess", dispatcher.access]
        command += ["--retryCount", "1", "--caching", "False"]
        command += ["--setEnv", "TOTAL=" + self.path("total")]
        ran = subprocess.run(
            command,
            cwd=self.folder,
            env=dict(os.environ, PYTHONPATH=package),
            capture_output=True,
            text=True,
            timeout=280,
        )
        self.assertEqual(ran.returncode, 0, ran.stderr[-4000:])
        with open(self.path("total")) as file:
            self.assertEqual(file.read(), "14")
        # The job that failed was tried again.
        self.assertEqual(len(os.listdir(marks)), 2)


@needs("psij")
class PsiJ(InFolder):
    def submit(self, executor, *argv, **more):
        from psij import Job, JobSpec

        attributes = more.pop("attributes", None)
        job = Job(JobSpec(argv[0], list(argv[1:]), launcher="single", **more))
        if attributes is not None:
            job.spec.attributes = attributes
        executor.submit(job)
        return job

    def executor(self, url=None):
        from psij import JobExecutor, JobExecutorConfig

        config = JobExecutorConfig(work_directory=Path(self.path("work")))
        return JobExecutor.get_instance("falkon", url=url, config=config)

    def test_jobs(self):
        from psij import InvalidJobException, Job, JobAttributes, JobState, ResourceSpecV1

        executor = self.executor()
        out = Path(self.path("out"))
        seen = []
        executor.set_job_status_callback(lambda job, status: seen.append(status.state))
        script = 'echo $ONE $(wc -l < "$PSIJ_NODEFILE") ${PWD##*/}; cat'
        given = Path(self.path("given"))
        given.write_text("input")
        job = self.submit(
            executor,
            "/bin/sh",
            "-c",
            script,
            directory=Path(self.folder),
            environment={"ONE": 1, "PATH": os.environ["PATH"]},
            inherit_environment=False,
            stdin_path=given,
            stdout_path=out,
            resources=ResourceSpecV1(process_count=3),
        )
        status = job.wait(timedelta(minutes=1))
        self.assertEqual((status.state, status.exit_code), (JobState.COMPLETED, 0))
        wanted = "1 3 %s\ninput" % os.path.basename(self.folder)
        self.assertEqual(out.read_text(), wanted)
        self.assertEqual(seen, [JobState.QUEUED, JobState.ACTIVE, JobState.COMPLETED])
        failed = self.submit(executor, "/bin/sh", "-c", "exit 3").wait(timedelta(minutes=1))
        self.assertEqual((failed.state, failed.exit_code), (JobState.FAILED, 3))
        limit = JobAttributes(duration=timedelta(seconds=1))
        slow = self.submit(executor, "/bin/sleep", "1000", attributes=limit)
        self.assertEqual(slow.wait(timedelta(minutes=1)).state, JobState.FAILED)
        running = self.submit(executor, "/bin/sleep", "1000")
        running.wait(timedelta(minutes=1), target_states=[JobState.ACTIVE])
        self.assertIn(running.native_id, executor.list())
        attached = Job()
        executor.attach(attached, running.native_id)
        running.cancel()
        for one in (running, attached):
            self.assertEqual(one.wait(timedelta(minutes=1)).state, JobState.CANCELED)
        self.assertNotIn(running.native_id, executor.list())
        # What is left are the launchers.
        left = [name for name in os.listdir(self.path("work/falkon"))]
        self.assertEqual(left, [])
        with self.assertRaises(InvalidJobException):
            self.submit(executor, "/bin/true", resources=ResourceSpecV1(node_count=2))
        wrong = JobAttributes(custom_attributes={"falkon.priorit": 3})
        with self.assertRaises(InvalidJobException):
            self.submit(executor, "/bin/true", attributes=wrong)

    def test_a_dispatcher(self):
        from psij import JobAttributes, JobState

        dispatcher = self.entered(Dispatcher())
        dispatcher.executor()
        executor = self.executor(dispatcher.access)
        with_priority = JobAttributes(custom_attributes={"falkon.priority": 3})
        jobs = [
            self.submit(executor, "/bin/sh", "-c", "exit %d" % n, attributes=with_priority)
            for n in range(3)
        ]
        codes = [job.wait(timedelta(minutes=1)).exit_code for job in jobs]
        self.assertEqual(codes, [0, 1, 2])
        self.assertEqual(jobs[0].status.state, JobState.COMPLETED)


# What Nextflow 26.08 writes at the top of a task's script: HyperQueueExecutorTest.groovy.
NEXTFLOW_SCRIPT = """#!/bin/bash
#HQ --name nf-task-{name}
#HQ --stream {log}
#HQ --cwd {folder}
#HQ --resource mem=64
#HQ --cpus 1
#HQ --time-limit 60sec
#HQ --priority 2
NXF_CHDIR={folder}
# NEXTFLOW TASK: task-{name}
#HQ --no-directive here
{body}
"""


class HyperQueueCommands(InFolder):
    """``hq`` as Nextflow calls it: HyperQueueExecutor.groovy."""

    def setUp(self):
        super().setUp()
        dispatcher = self.entered(Dispatcher())
        self.executor = dispatcher.executor
        installed = subprocess.run(
            [sys.executable, "-m", "falkon.hq", "install", self.path("it's")],
            capture_output=True,
            text=True,
            check=True,
        )
        self.hq = installed.stdout.strip()
        self.environment = dict(os.environ, FALKON_ACCESS=dispatcher.access)

    def call(self, *words, cwd=None, fails=False):
        """As Nextflow does: both streams together."""
        ran = subprocess.run(
            [self.hq, *words],
            cwd=cwd,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.assertEqual(ran.returncode, int(fails), ran.stdout)
        return ran.stdout

    def submit(self, name, body):
        folder = self.path(name)
        os.mkdir(folder)
        quoted = lambda path: path.replace(" ", "\\ ")
        log = os.path.join(folder, ".command.log")
        # As its quote(): escaped, and in double quotes where that changed something.
        log = '"%s"' % quoted(log) if " " in log else log
        written = '"%s"' % quoted(folder) if " " in folder else folder
        script = NEXTFLOW_SCRIPT.format(name=len(name), log=log, folder=written, body=body)
        with open(os.path.join(folder, ".command.run"), "w") as file:
            file.write(script.replace("NXF_CHDIR=" + written, "NXF_CHDIR='%s'" % folder))
        words = ("--output-mode=quiet", "submit", "--directives=file", ".command.run")
        # `text as Integer` of the line without its end.
        return str(int(self.call(*words, cwd=folder).strip()))

    def states(self):
        listed = self.call("--output-mode=quiet", "job", "list", "--all")
        return dict(line.split(" ") for line in listed.split("\n") if line)

    def test_submit_list_and_cancel(self):
        first = self.submit("a b", "pwd; echo problem >&2; echo $FALKON_CPUS; touch done")
        self.assertEqual(self.states(), {first: "WAITING"})
        self.executor(slots=2)
        wait_until(lambda: self.states()[first] == "FINISHED")
        with open(self.path("a b/.command.log")) as log:
            self.assertEqual(log.read(), "%s\nproblem\n1\n" % self.path("a b"))
        self.assertTrue(os.path.exists(self.path("a b/done")))
        failing = self.submit("failing", "exit 3")
        long = [self.submit(name, "touch started; sleep 1000") for name in ("x", "y")]
        wait_until(lambda: [self.states()[one] for one in long] == ["RUNNING"] * 2)
        self.assertEqual(self.call("job", "cancel", ",".join(long)), "")
        wait_until(lambda: [self.states()[one] for one in long] == ["CANCELED"] * 2)
        self.assertEqual(self.states()[failing], "FAILED")

    def test_what_it_refuses(self):
        self.assertIn("no option of hq's --pin", self.refused("#HQ --pin taskset"))
        self.assertIn("--cpus lacks its value", self.refused("#HQ --cpus"))
        self.assertIn("this `hq` is Falkon's", self.call("worker", "start", fails=True))
        self.assertIn("there is no instance", self.call("job", "cancel", "77", fails=True))

    def refused(self, header):
        with open(self.path("script"), "w") as file:
            file.write("#!/bin/bash\n%s\n" % header)
        return self.call("submit", "--directives=file", "script", cwd=self.folder, fails=True)


if __name__ == "__main__":
    unittest.main()
