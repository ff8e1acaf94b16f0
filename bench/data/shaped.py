#!/usr/bin/env python3
"""Data diffusion for real and simulated: the same work on the same machine.

    bench/data/shaped.py [--rounds N] [--workload NAME] [--policy NAME] [--json]
    bench/data/shaped.py --mixed [--seconds N]

Eight executors, a dispatcher and a store, each in a network namespace of its
own, with links of limited bandwidth, run scaled versions of the papers' MI and
stacking workloads under every policy; tasks that read from disks of limited
bandwidth; and tasks that compute on processors of which they get a share. `falkon
sim` runs the same on a machine with these bandwidths, and `falkon model` says what
averages give where disks take no time. With --mixed all kinds of work run at once.
Needs Linux, iproute2, rustc, FUSE, and root. FALKON is the program
[target/release/falkon].
"""

import argparse
import dataclasses
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
import machine

POLICIES = ["first-available", "first-cache-available", "max-cache-hit", "max-compute-util",
            "good-cache-compute", "queue-aware"]
NODES = 8
SLOTS = 2
# The proportions of the papers' machine: 1 Gb/s for a node, and 4.4 Gb/s of the
# store for 64 nodes.
NODE_BANDWIDTH = 10_000_000
STORE_BANDWIDTH = 5_500_000
# Which task is first somewhere, and so what is evicted, can depend on the last
# bit of a time: simulated figures are the median of runs whose store answers
# within a tenth more or less of the measured time.
SIMULATIONS = 9
OPERATION_SPREAD = 0.1
MASK = (1 << 64) - 1
# Of the simulator's draws at its default seed: those of objects and of run times.
SEED_OBJECTS = 1 ^ 4
SEED_RUNS = 1 ^ 2
# Disks slower than links, as the papers' were (92 MB/s beside 1 Gb/s), and slower
# when they are written.
DISK_READ = 8_000_000
DISK_WRITE = 6_000_000
# A slot's processor: 1 ms in each 50 ms, so that sixteen of them take a third of one.
SHARE_US = 1_000
PERIOD_US = 50_000


@dataclasses.dataclass(frozen=True)
class Workload:
    """Tasks that read one object each and compute for a while."""

    name: str
    tasks: int
    objects: int
    object_bytes: int
    cache_bytes: int
    # Run times are from half of this to half as much again: tasks that all take
    # the same march in step, and what they read then depends on the last bit of
    # who is first.
    run_ms: int
    # "uniform", "zipf", or so many tasks in a row that read the same.
    choice: object
    # "wait": nothing but time. "read": the object from the disk, then time.
    # "compute": the object, then work for a slot's processor.
    work: str = "wait"
    # Run times are around `run_ms` by this share of it.
    spread: float = 0.5

    def object_of(self, task):
        share = fraction_of(SEED_OBJECTS, task)
        if self.choice == "uniform":
            return min(int(share * self.objects), self.objects - 1)
        if self.choice == "zipf":
            return min(max(int((self.objects + 1) ** share), 1), self.objects) - 1
        return task // self.choice % self.objects

    def run_s(self, task):
        return self.run_ms / 1000 * (1 - self.spread + 2 * self.spread * fraction_of(SEED_RUNS, task))

    def has_disks(self):
        return self.work != "wait"

    def working_set_bytes(self):
        return self.object_bytes * len({self.object_of(task) for task in range(self.tasks)})

    def choice_toml(self):
        if self.choice == "uniform":
            return 'choice = "uniform"'
        if self.choice == "zipf":
            return 'choice = "zipf", exponent = 1.0'
        return f'choice = "sequential", times = {self.choice}'


WORKLOADS = [
    # Every file is read by 12 tasks; all caches together hold 3 copies of each.
    Workload("mi", 768, 64, 800_000, 20_000_000, 10, "uniform"),
    # Locality 5: each image holds five objects of the catalogue.
    Workload("stacking", 800, 160, 400_000, 20_000_000, 20, 5),
    # Reads of tasks, fetched objects and objects sent to peers share a disk that is
    # slower than the link.
    Workload("disks", 1024, 64, 1_600_000, 40_000_000, 100, "uniform", "read"),
    # Tasks that read a little and compute for long.
    Workload("computing", 480, 96, 800_000, 20_000_000, 1_500, "uniform", "compute"),
]


def mix(value):
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & MASK
    return value ^ value >> 31


def fraction_of(seed, index):
    """The simulator's own choice of objects, so that both read the same."""
    mixed = mix((mix(seed) + (index + 1) * 0x9E3779B97F4A7C15) & MASK)
    return (mixed >> 11) / (1 << 53)


class Services:
    """A dispatcher and executors whose caches are empty."""

    def __init__(self, cluster, falkon, workload):
        self.cluster, self.falkon, self.workload = cluster, falkon, workload
        self.run = machine.WORK / "run"
        self.run.mkdir()
        self.executors = {}
        self.others = []
        self.access = ["--access", str(self.run / "d/access.json")]
        self.start("head", [falkon, "start", "--dir", str(self.run / "d"), "--security", "none", "--force",
                            "--listen", f"{machine.HEAD}:0"], "start.log")
        machine.wait_for("the dispatcher", lambda: "dispatcher at" in self.log())

    def log(self):
        return (self.run / "start.log").read_text()

    def start(self, host, words, log):
        self.others.append(self.cluster.start(host, words, f"run/{log}"))

    def start_executor(self, node, more=()):
        place = self.cluster.disk(node) if self.workload.has_disks() else self.run
        words = [self.falkon, "executor", *self.access, "--name", f"n{node}", "--slots", str(SLOTS),
                 "--cache", f"{place}/cache-{node}={self.workload.cache_bytes}", *more]
        self.executors[node] = self.cluster.start(f"n{node}", words, f"run/n{node}.log")

    def wait_for_executors(self, count):
        machine.wait_for("the executors", lambda: self.log().count(" joined") == count)

    def kill_executor(self, node):
        process = self.executors.pop(node)
        process.kill()
        process.wait()
        self.cluster.processes.remove(process)

    def end(self):
        self.cluster.end([*self.others, *self.executors.values()])
        places = [self.run]
        if self.workload.has_disks():
            places += [self.cluster.disk(node) / f"cache-{node}" for node in range(NODES)]
        subprocess.run(["rm", "-rf", *map(str, places)], check=True)


def task_line(cluster, workload, task):
    """A task as a line of a task file."""
    source = f"http://{machine.STORE}:{machine.STORE_PORT}/{workload.object_bytes}/{workload.object_of(task)}"
    one = {"inputs": [f"in={source}"]}
    if workload.work == "wait":
        return {**one, "command": ["@sleep", f"{workload.run_s(task):.6f}"]}
    share_us, period_us = (SHARE_US, PERIOD_US) if workload.work == "compute" else (0, 1)
    words = [machine.WORK / "work", f"{workload.run_s(task):.6f}", cluster.groups, share_us, period_us]
    return {**one, "command": [str(word) for word in words]}


def run_real(cluster, falkon, workload, policy):
    """Runs a workload with executors whose caches are empty."""
    services = Services(cluster, falkon, workload)
    for node in range(NODES):
        services.start_executor(node)
    services.wait_for_executors(NODES)
    tasks = services.run / "tasks.jsonl"
    lines = (json.dumps(task_line(cluster, workload, task)) + "\n" for task in range(workload.tasks))
    tasks.write_text("".join(lines), encoding="utf-8")
    machine.counters()
    received = cluster.received()
    done = cluster.run("head", [falkon, "submit", *services.access, "--policy", policy, "--wait", "--json",
                                "--tasks", str(tasks)])
    store = machine.counters()["bytes"]
    # Messages and acknowledgements are a fraction of a percent.
    peers = max(cluster.received() - received - store, 0)
    services.end()
    if done.returncode != 0:
        raise RuntimeError(f"falkon submit: exit status {done.returncode}: {done.stderr.strip()[-2000:]}")
    results = [json.loads(line) for line in done.stdout.splitlines()]
    return summary(results, store, peers, workload)


def summary(results, store, peers, workload):
    """Shares are of the bytes that tasks read, by what moved: also what was
    fetched ahead of them."""
    times = [result["times"] for result in results]
    seconds = max(one["delivered"] for one in times) - min(one["queued"] for one in times)
    read = len(results) * workload.object_bytes
    return shares_of(seconds, read, store, peers, workload)


def shares_of(seconds, read, store, peers, workload):
    return {"seconds": seconds, "local_share": max(1 - (store + peers) / read, 0),
            "peer_share": peers / read, "store_share": store / read, "store_bytes": store,
            "store_of_working_set": store / workload.working_set_bytes()}


def median_of(runs):
    """The run of median length, and the shortest and the longest."""
    runs = sorted(runs, key=lambda run: run["seconds"])
    return runs[len(runs) // 2], runs[0]["seconds"], runs[-1]["seconds"]


def simulate(falkon, workload, policy, operation_s):
    shares = [2 * run / (SIMULATIONS - 1) - 1 for run in range(SIMULATIONS)]
    return median_of([run_simulated(falkon, workload, policy, operation_s * (1 + OPERATION_SPREAD * share))
                      for share in shares])


def run_simulated(falkon, workload, policy, operation_s):
    run = call_with_file(falkon, "sim", scenario(workload, policy, operation_s))
    return shares_of(run["makespan_s"], run["reads"]["bytes"], run["store_bytes"], run["peer"]["bytes"], workload)


def scenario(workload, policy, operation_s, nodes=((NODES, ""),), workload_more="", more=""):
    """The machine and the work for the simulator: `nodes` are groups, how many and
    what they have besides."""
    disks = f"disk_read = {DISK_READ}\ndisk_write = {DISK_WRITE}\n" if workload.has_disks() else ""
    # A builtin starts no process.
    executor = "" if workload.has_disks() else "[executor]\nstart = 0"
    groups = "".join(f"""
[[nodes]]
count = {count}
slots = {SLOTS}
cache = {workload.cache_bytes}
{disks}{group_more}
""" for count, group_more in nodes)
    return f"""
name = "{workload.name}-{policy}"
[workload]
tasks = {workload.tasks}
kind = "compute"
run_min = {(1 - workload.spread) * workload.run_ms / 1000}
run_max = {(1 + workload.spread) * workload.run_ms / 1000}
inputs = {{ objects = {workload.objects}, size = {workload.object_bytes}, {workload.choice_toml()} }}
{workload_more}
[policy]
name = "{policy}"
{groups}
[network]
node_bandwidth = {NODE_BANDWIDTH}
dispatcher_bandwidth = "100Gb/s"
[store]
bandwidth = {STORE_BANDWIDTH}
operation = {operation_s:.6f}
{executor}
{more}"""


def run_model(falkon, workload, hits):
    """What the abstract model gives with the hits that were measured; with its
    own estimate of them if `hits` is none."""
    shares = "" if hits is None else (
        f'[hits]\nlocal = {hits["local_share"]}\npeer = {hits["peer_share"]}\nstore = {hits["store_share"]}\n')
    description = f"""
[workload]
tasks = {workload.tasks}
run = "{workload.run_ms}ms"
objects_per_task = 1
object = {workload.object_bytes}
objects = {workload.objects}
[machine]
nodes = {NODES}
slots_per_node = {SLOTS}
cache = {workload.cache_bytes}
node_bandwidth = {NODE_BANDWIDTH}
store_bandwidth = {STORE_BANDWIDTH}
fetches_ahead = true
{shares}"""
    figures = call_with_file(falkon, "model", description)["figures"]
    return next(figure["value"] for figure in figures if figure["symbol"] == "W")


def call_with_file(falkon, command, text):
    path = machine.WORK / f"{command}.toml"
    path.write_text(text, encoding="utf-8")
    done = subprocess.run([falkon, command, str(path), "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"falkon {command}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def compare(cluster, falkon, workload, policies, rounds, operation_s):
    """A row for each policy; rounds alternate between policies."""
    real = {policy: [] for policy in policies}
    for _ in range(rounds):
        for policy in policies:
            real[policy].append(run_real(cluster, falkon, workload, policy))
            print(f"{workload.name} {policy}: {real[policy][-1]['seconds']:.2f} s", file=sys.stderr)
    rows = []
    for policy in policies:
        middle, real_least_s, real_most_s = median_of(real[policy])
        simulated, sim_least_s, sim_most_s = simulate(falkon, workload, policy, operation_s)
        # The model knows of no disks.
        model = None if workload.has_disks() else run_model(falkon, workload, middle)
        rows.append({
            "workload": workload.name, "policy": policy, "real": middle,
            "real_least_s": real_least_s, "real_most_s": real_most_s,
            "simulated": simulated, "simulated_least_s": sim_least_s, "simulated_most_s": sim_most_s,
            "real_of_simulated": middle["seconds"] / simulated["seconds"],
            "model_s": model, "model_error": model and model / middle["seconds"] - 1,
            "model_estimated_hits_s": model and run_model(falkon, workload, None)})
    return rows


def swapped(rows):
    """Pairs of policies whose order is another for real than simulated, and
    whether either is a matter of chance: some runs of one were as long as some
    of the other."""
    def overlaps(one, other, which):
        return (one[f"{which}_least_s"] <= other[f"{which}_most_s"]
                and other[f"{which}_least_s"] <= one[f"{which}_most_s"])

    pairs = []
    for at, one in enumerate(rows):
        for other in rows[at + 1:]:
            apart = {which: one[which]["seconds"] / other[which]["seconds"] - 1 for which in ("real", "simulated")}
            if apart["real"] * apart["simulated"] < 0:
                is_chance = any(overlaps(one, other, which) for which in apart)
                names = f"{one['policy']} and {other['policy']}"
                pairs.append((f"{names}, {100 * apart['real']:+.1f} % for real and "
                              f"{100 * apart['simulated']:+.1f} % simulated", is_chance))
    return pairs


def shares(run):
    return " / ".join(f"{100 * run[f'{source}_share']:.0f}" for source in ("local", "peer", "store"))


def table(rows):
    print(f"{'':33}{'time, s':^47}{'own / peers / store, %':^30}{'store / set':^15}{'model':^16}")
    print(f"{'workload':10}{'policy':23}{'real':>8}{'least to most':>15}{'sim':>8}{'least to most':>15}{'ratio':>7}"
          f"{'real':>14}{'sim':>14}{'real':>8}{'sim':>6}{'s':>8}{'error':>8}")
    for row in rows:
        real, simulated = row["real"], row["simulated"]
        print(f"{row['workload']:10}{row['policy']:23}{real['seconds']:8.2f}"
              f"{row['real_least_s']:8.2f}-{row['real_most_s']:<6.2f}{simulated['seconds']:8.2f}"
              f"{row['simulated_least_s']:8.2f}-{row['simulated_most_s']:<6.2f}"
              f"{row['real_of_simulated']:7.3f}{shares(real):>14}{shares(simulated):>14}"
              f"{real['store_of_working_set']:8.2f}{simulated['store_of_working_set']:6.2f}"
              + (f"{row['model_s']:8.2f}{100 * row['model_error']:7.1f}%" if row["model_s"] else ""))
    ratios = [abs(row["real_of_simulated"] - 1) for row in rows]
    errors = [abs(row["model_error"]) for row in rows if row["model_s"]]
    print(f"real against simulated: {100 * statistics.mean(ratios):.1f} % apart on average, {100 * max(ratios):.1f} % at most")
    if errors:
        print(f"model with the hits measured: {100 * statistics.mean(errors):.1f} % off on average, {100 * max(errors):.1f} % at most")
    for name in dict.fromkeys(row["workload"] for row in rows):
        pairs = swapped([row for row in rows if row["workload"] == name])
        for is_chance, what in ((False, "order of policies differs"), (True, "as long, within the spread of runs")):
            said = "; ".join(pair for pair, chance in pairs if chance == is_chance)
            if said:
                print(f"{name}: {what}: {said}")
        if all(is_chance for _, is_chance in pairs):
            print(f"{name}: order of policies is the same")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1, help="real runs of each [1]")
    parser.add_argument("--workload", action="append", choices=[one.name for one in WORKLOADS])
    parser.add_argument("--policy", action="append", choices=POLICIES)
    parser.add_argument("--json", action="store_true", help="a line of JSON for each row instead of the table")
    parser.add_argument("--mixed", action="store_true", help="a run of all kinds of work instead, see mixed.py")
    parser.add_argument("--seconds", type=int, default=600, help="for how long tasks of --mixed come [600]")
    arguments = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[2]
    falkon = os.path.abspath(os.environ.get("FALKON", root / "target/release/falkon"))
    if not os.access(falkon, os.X_OK):
        parser.exit(2, f"there is no {falkon}: run make, or say where it is with FALKON=PROGRAM\n")
    machine.isolate()
    cluster = machine.Cluster(NODES, NODE_BANDWIDTH, STORE_BANDWIDTH)
    machine.start_store(cluster)
    floor = machine.measure_store(cluster)
    print(f"{NODES} nodes x {SLOTS} slots, {NODE_BANDWIDTH / 1e6} MB/s each, store {STORE_BANDWIDTH / 1e6} MB/s; measured "
          f"{floor['bytes_per_s'] / 1e6:.2f} MB/s and {1000 * floor['operation_s']:.2f} ms for a byte; "
          f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    cluster.limit_disks(DISK_READ, DISK_WRITE)
    cluster.limit_processors()
    machine.sh("rustc", "--edition", "2024", "-O", "-o", str(machine.WORK / "work"),
               str(pathlib.Path(__file__).resolve().parent / "work.rs"))
    try:
        measure(cluster, falkon, arguments, floor["operation_s"])
    finally:
        cluster.end(list(cluster.processes))
        cluster.ungroup()


def measure(cluster, falkon, arguments, operation_s):
    if arguments.mixed:
        import mixed
        return mixed.main(cluster, falkon, arguments.seconds, operation_s)
    rows = []
    for workload in WORKLOADS:
        if arguments.workload is None or workload.name in arguments.workload:
            rows += compare(cluster, falkon, workload, arguments.policy or POLICIES,
                            max(arguments.rounds, 1), operation_s)
    if arguments.json:
        for row in rows:
            print(json.dumps(row))
    else:
        table(rows)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("shaped: it was told to end"))
    sys.modules["shaped"] = sys.modules["__main__"]
    try:
        main()
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"shaped: {error}")
