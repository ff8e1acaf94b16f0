"""Falkon beside HyperQueue: what is not about processes per second.

    hyperqueue_table.py FALKON ROUNDS SUBMITTED [JSON]

Runs in HyperQueue's environment. HyperQueue is used as its Python package
offers it: a LocalCluster in a process of its own, a Client here (the package
has no `hq` program, and no worker that starts no processes). Rounds alternate.
SUBMITTED is how many tasks are queued for the rows about submission and memory.
With JSON, the figures go to that file as well, one object per line.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TQDM_DISABLE"] = "1"
ROUND_TRIPS = 50
# Seconds until a service must be ready.
READY_MAX = 60
# What its package cannot run: no-op tasks per second of its server alone, with 64
# workers of 128 cpus that start no processes, built from its source of August
# 2026, on the machine of docs/performance.md.
QUOTED_NOOP = 109_382


def serve(cores):
    """The process that HyperQueue's server and workers live in."""
    from hyperqueue import LocalCluster
    from hyperqueue.cluster import WorkerConfig

    with LocalCluster() as cluster:
        if cores:
            cluster.start_worker(WorkerConfig(cores=cores))
        print("server in", cluster.cluster.server_dir, flush=True)
        sys.stdin.read()


class HyperQueue:
    """A cluster, ended with the block."""

    def __init__(self, cores):
        self.cores = cores

    def __enter__(self):
        from hyperqueue import Client

        command = [sys.executable, __file__, "serve", str(self.cores)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        # It prints more than that.
        for line in self.process.stdout:
            if line.startswith("server in "):
                self.client = Client(line[len("server in "):].strip())
                break
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()

    def job(self, tasks):
        from hyperqueue import Job

        job = Job()
        for number in range(tasks):
            job.program(["/bin/true", "object-%08d" % number], stdout=None, stderr=None)
        return job


class Falkon:
    """A dispatcher without executors, ended with the block."""

    def __init__(self, program, scratch):
        self.program, self.dir = program, os.path.join(scratch, "falkon")

    def __enter__(self):
        command = [self.program, "start", "--dir", self.dir, "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        self.access = os.path.join(self.dir, "access.json")
        deadline = time.monotonic() + READY_MAX
        while subprocess.run([self.program, "status", "--access", self.access],
                             capture_output=True).returncode:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise SystemExit("falkon start does not come up")
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        subprocess.run(["rm", "-rf", self.dir])


# Its client refuses jobs that are too large for one message.
JOB_TASKS_MAX = 200_000


def resident(pid):
    """Bytes of memory that a process has."""
    with open("/proc/%d/statm" % pid) as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def timed(action):
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def bench(program, *arguments):
    """The figures of a `falkon bench`, by name."""
    command = [program, "bench", *arguments, "--rounds", "1", "--json"]
    table = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {row["name"]: row["median"] for row in table["rows"]}


def round_trips(scratch):
    """One task after the other through HyperQueue, from its submission until it
    runs: the median, in ms. Its client looks only once a second whether a job
    has ended, so the way back is not counted."""
    from hyperqueue import Job

    pipe = os.path.join(scratch, "pipe")
    with HyperQueue(2) as queue:
        def trip():
            os.mkfifo(pipe)
            job = Job()
            job.program(["/bin/sh", "-c", "echo >" + pipe], stdout=None, stderr=None)
            queue.client.submit(job)
            with open(pipe) as told:
                told.read()
            os.unlink(pipe)

        trip()
        return 1e3 * statistics.median(timed(trip) for _ in range(ROUND_TRIPS))


def queued_by_hyperqueue(tasks):
    """Seconds to submit, and the server's bytes per task."""
    with HyperQueue(0) as queue:
        shares = range(0, tasks, JOB_TASKS_MAX)
        jobs = [queue.job(min(JOB_TASKS_MAX, tasks - first)) for first in shares]
        before = resident(queue.process.pid)
        seconds = timed(lambda: [queue.client.submit(job) for job in jobs])
        return seconds, (resident(queue.process.pid) - before) / tasks


def queued_by_falkon(program, scratch, source, tasks):
    """The same, with the start and the end of the submitting program."""
    with Falkon(program, scratch) as falkon:
        before = resident(falkon.process.pid)
        command = [program, "submit", "--access", falkon.access, *source, "--", "/bin/true", "{}"]
        seconds = timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
        return seconds, (resident(falkon.process.pid) - before) / tasks


def measure(program, rounds, tasks):
    """One dict per row: figures of each side, and whether more is better."""
    rows = {}

    def add(name, unit, falkon, hyperqueue, bar, more=False):
        row = rows.setdefault(name, {"name": name, "unit": unit, "falkon": [], "hyperqueue": [],
                                     "bar": bar, "more_is_better": more})
        row["falkon"].append(falkon)
        row["hyperqueue"].append(hyperqueue)

    million = tasks / 1e6
    with tempfile.TemporaryDirectory() as scratch:
        lines = os.path.join(scratch, "lines")
        with open(lines, "w") as out:
            out.writelines("object-%08d\n" % number for number in range(tasks))
        for _ in range(rounds):
            theirs = round_trips(scratch)
            ours = bench(program, "latency")
            add("round trip of one process, p50 **", "ms", ours["/bin/true, p50"] / 1e3, theirs, None)
            add("the same, ours a builtin that does nothing", "ms", ours["@noop, p50"] / 1e3, theirs, 50)
            seconds, memory = queued_by_hyperqueue(tasks)
            for name, source in [("distinct", ["--each-line", lines]),
                                 ("ours an array", ["--range", "1-%d" % tasks])]:
                own_seconds, own_memory = queued_by_falkon(program, scratch, source, tasks)
                name = ", %s" % name
                add("submission of 1,000,000 tasks" + name, "s", own_seconds / million, seconds / million, 2)
                add("memory per queued task" + name, "bytes", own_memory, memory, 1 / 0.3)
            noop = bench(program, "dispatch", "--executors", "64")
            add("no-op dispatch, 64 executors, an array *", "tasks/s", noop["falkon"], QUOTED_NOOP, 9, True)
            noop = bench(program, "dispatch", "--distinct", "--executors", "64")
            add("the same, distinct tasks *", "tasks/s", noop["falkon"], QUOTED_NOOP, None, True)
    return list(rows.values())


def main():
    program, rounds, tasks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rows = measure(program, rounds, tasks)
    print("\n%-46s %-8s %12s %12s %8s %6s" % ("beside HyperQueue (medians)", "", "falkon", "hyperqueue", "ahead", "bar"))
    for row in rows:
        ours, theirs = statistics.median(row["falkon"]), statistics.median(row["hyperqueue"])
        row["ahead"] = ours / theirs if row["more_is_better"] else theirs / max(ours, 1e-9)
        bar = "%.1f" % row["bar"] if row["bar"] else ""
        print("%-46s %-8s %12.6g %12.6g %8.1f %6s" % (row["name"], row["unit"], ours, theirs, row["ahead"], bar))
    print("* HyperQueue's figure is quoted: workers that start no processes are not in its package.\n"
          "  %s tasks were queued for the rows about submission and memory; HyperQueue's jobs were\n"
          "  built before the clock started, Falkon's times are those of the whole program.\n"
          "** HyperQueue's is only the way to the task: its client looks for ends once a second." % format(tasks, ","))
    if len(sys.argv) > 4:
        with open(sys.argv[4], "a") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        main()
