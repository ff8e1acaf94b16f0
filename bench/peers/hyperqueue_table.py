"""Falkon beside HyperQueue: what is not about processes per second.

    hyperqueue_table.py FALKON ROUNDS SUBMITTED [JSON]

Runs in HyperQueue's environment. HyperQueue is used as its Python package
offers it: a LocalCluster in a process of its own, a Client here (the package
has no `hq` program, and no worker that starts no processes). Rounds alternate, and
both do the same work: single tasks beside single tasks, processes beside processes.
SUBMITTED is how many tasks are queued for the rows about submission and memory.
With JSON, the figures go to that file as well, one object per line.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import processor

os.environ["TQDM_DISABLE"] = "1"
ROUND_TRIPS = 50
# Seconds until a service must be ready.
READY_MAX = 60
# Pause between two looks at whether a task has ended: so much may its round trip
# seem longer than it is. Looks without a pause would take the processor that the
# task runs on.
LOOK_S = 0.0005


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


# What measures Falkon; `make lab` builds it.
LAB = pathlib.Path(__file__).resolve().parents[2] / "target/release/falkon-lab"
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
    """The figures of a `falkon-lab bench`, by name."""
    command = [LAB, "bench", *arguments, "--rounds", "1", "--json"]
    measured = {**os.environ, "FALKON": program}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=measured)
    table = json.loads(run.stdout)
    return {row["name"]: row["median"] for row in table["rows"]}


def round_trips():
    """One process after the other through HyperQueue, from its submission until its
    result is here: the median, in ms, and the processor time of client, server and
    worker for each, in ms. Its client waits for the ends of jobs by asking once a
    second, but says at once which tasks have failed: so these fail (/bin/false)."""
    from hyperqueue import Job

    with HyperQueue(2) as queue:
        def trip():
            job = Job()
            job.program(["/bin/false"], stdout=None, stderr=None)
            submitted = queue.client.submit(job)
            while not queue.client.get_failed_tasks(submitted):
                time.sleep(LOOK_S)

        trip()
        before = processor.seconds()
        trips = [timed(trip) for _ in range(ROUND_TRIPS)]
        used = processor.seconds() - before
        return 1e3 * statistics.median(trips), 1e3 * used / ROUND_TRIPS


def first_of_hyperqueue():
    """Seconds from nothing to the result of a first process, all ended again."""
    from hyperqueue import Job

    def one():
        with HyperQueue(2) as queue:
            job = Job()
            job.program(["/bin/false"], stdout=None, stderr=None)
            submitted = queue.client.submit(job)
            while not queue.client.get_failed_tasks(submitted):
                time.sleep(LOOK_S)

    return timed(one)


def first_of_falkon(program):
    return timed(lambda: subprocess.run([program, "run", "--quiet", "-j", "2", "--", "/bin/false"],
                                        stdin=subprocess.DEVNULL))


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
    """One dict per row: figures of each side; less is better of all."""
    rows = {}

    def add(name, unit, falkon, hyperqueue):
        row = rows.setdefault(name, {"name": name, "unit": unit, "falkon": [], "hyperqueue": []})
        row["falkon"].append(falkon)
        row["hyperqueue"].append(hyperqueue)

    million = tasks / 1e6
    with tempfile.TemporaryDirectory() as scratch:
        lines = os.path.join(scratch, "lines")
        with open(lines, "w") as out:
            out.writelines("object-%08d\n" % number for number in range(tasks))
        for _ in range(rounds):
            theirs, their_processor = round_trips()
            ours = bench(program, "latency", "--failing")
            add("round trip of one process", "ms", ours["one process, p50"] / 1e3, theirs)
            add("processor time of that", "ms", ours["one process, processor time"] / 1e3, their_processor)
            add("from nothing to a first result, and its end", "s", first_of_falkon(program), first_of_hyperqueue())
            seconds, memory = queued_by_hyperqueue(tasks)
            own_seconds, own_memory = queued_by_falkon(program, scratch, ["--each-line", lines], tasks)
            add("submission of 1,000,000 distinct tasks", "s", own_seconds / million, seconds / million)
            add("memory per queued distinct task", "bytes", own_memory, memory)
    return list(rows.values())


def main():
    program, rounds, tasks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rows = measure(program, rounds, tasks)
    print("\n%-46s %-6s %10s %11s %18s" % ("beside HyperQueue (medians)", "", "falkon", "hyperqueue", "hyperqueue / falkon"))
    for row in rows:
        ours, theirs = statistics.median(row["falkon"]), statistics.median(row["hyperqueue"])
        print("%-46s %-6s %10.4g %11.4g %18.1f" % (row["name"], row["unit"], ours, theirs, theirs / max(ours, 1e-9)))
    print("From submission to the result at the client; processes fail (/bin/false), as HyperQueue's client\n"
          "asks for other ends once a second only.\n"
          "%s tasks were queued for the rows about submission and memory; HyperQueue's jobs were\n"
          "built before the clock started, Falkon's times are those of the whole program.\n"
          "Processor time is that of client, server and worker; the process itself does not count, and\n"
          "HyperQueue's client takes some of it to ask." % format(tasks, ","))
    if len(sys.argv) > 4:
        with open(sys.argv[4], "a") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        main()
