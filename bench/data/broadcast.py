#!/usr/bin/env python3
"""One large object to many nodes: Falkon and others over the same links.

    bench/data/broadcast.py [--nodes 8,16,32,64] [--size MB] [--link MB/S] [--rounds N]
                            [--only NAME] [--faults] [--json]

Each node, and the store that has the object, is in a network namespace of its own whose
link carries so many MB per second in each direction (machine.py). A row has the time until
the last node has all of the object, in relation to size/link + log2(nodes) x chunk/link,
which is what Falkon's chunks take that pass through one node after another; how often the
object left the store; and how much of this machine's processors was used meanwhile, by
whatever ran: a row that used nearly all of it measures the processors.

Beside `falkon data broadcast` there are relays (relay.rs: plain TCP connections from each
node to the next, which is what this machine can do at all), copies (each node reads a part
of the object from the store, and the seconds are those of the whole), swarms of aria2 and of libtorrent,
TaskVine, Ray, and Slurm's sbcast. What is neither there nor can be installed is left out
with a line that says so (../peers/broadcasts.py). With --faults, further rows have a node
killed and one stopped when half of that time is over, and say when all others have it.

--only takes one name, and may be repeated; --ray-nodes says to how many Ray is taken, whose
daemons need some 500 MB of memory per node.

Needs Linux, iproute2, util-linux, and root. FALKON is the program [target/release/falkon].
"""

import argparse
import json
import math
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "peers"), str(HERE.parent / "peers/taskvine")]
import broadcasts
import machine
import packages

# At which part of the bound something happens to a node.
FAULT_AT = 0.5
# The variable with the peers that were prepared before the namespaces were made.
PREPARED = "FALKON_BENCH_PEERS"


class Falkon:
    """`falkon data broadcast` to executors that are there."""

    name = "Falkon"

    def __init__(self, cluster, falkon, size):
        self.cluster, self.falkon, self.size = cluster, falkon, size
        self.run = machine.WORK / "falkon"
        self.others, self.executors = [], {}

    def start(self, nodes):
        self.run.mkdir()
        self.access = ["--access", str(self.run / "d/access.json")]
        words = [self.falkon, "start", "--dir", str(self.run / "d"), "--security", "none", "--force",
                 "--listen", f"{machine.HEAD}:0"]
        self.others = [self.cluster.start("head", words, "falkon/start.log")]
        machine.wait_for("the dispatcher", lambda: "dispatcher at" in self.log())
        for node in range(nodes):
            words = [self.falkon, "executor", *self.access, "--name", f"n{node}", "--slots", "1",
                     "--cache", f"{self.run}/cache-{node}={2 * self.size}"]
            self.executors[node] = self.cluster.start(f"n{node}", words, f"falkon/n{node}.log")
        machine.wait_for("the executors", lambda: self.log().count(" joined") == nodes)

    def log(self):
        return (self.run / "start.log").read_text()

    def broadcast(self):
        source = f"http://{machine.STORE}:{machine.STORE_PORT}/{self.size}/0"
        return ["ip", "netns", "exec", "head", self.falkon, "data", "broadcast", *self.access, "--json", source]

    def measure(self):
        begun = time.monotonic()
        done = subprocess.run(self.broadcast(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=machine.SECONDS_MAX)
        seconds = time.monotonic() - begun
        found = [json.loads(line)["status"] for line in done.stdout.splitlines()]
        if done.returncode != 0 or found != ["done"] * len(self.executors):
            raise RuntimeError(f"falkon data broadcast: {done.stderr.strip()[-2000:]}")
        return seconds

    def measure_with(self, number, after_s):
        """Until all but one node have it, which gets a signal meanwhile."""
        node = len(self.executors) // 2
        victim, wanted = self.executors[node], len(self.executors) - 1
        begun = time.monotonic()
        running = subprocess.Popen(self.broadcast(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True)
        try:
            time.sleep(after_s)
            victim.send_signal(number)
            done = set()
            for line in running.stdout:
                one = json.loads(line)
                if one["status"] == "done" and one["executor"] != f"n{node}":
                    done.add(one["executor"])
                if len(done) == wanted:
                    return time.monotonic() - begun
            raise RuntimeError(f"{len(done)} of {wanted} nodes have it")
        finally:
            victim.kill()
            running.kill()
            running.wait()

    def stop(self):
        self.cluster.end([*self.others, *self.executors.values()])
        broadcasts.remove(self.run)


class Copies:
    """Each node reads from the store."""

    name = "copies"

    def __init__(self, cluster, _, size):
        self.cluster, self.size = cluster, size

    def start(self, nodes):
        self.nodes = nodes

    def measure(self):
        """Of a part of the object each, so that it takes about as long as the others."""
        part = self.size // self.nodes
        begun = time.monotonic()
        words = ["curl", "-sSf", "-o", "/dev/null", f"http://{machine.STORE}:{machine.STORE_PORT}/{part}/0"]
        readers = [self.cluster.start(f"n{node}", words, "copies.log") for node in range(self.nodes)]
        for reader in readers:
            if reader.wait() != 0:
                raise RuntimeError((machine.WORK / "copies.log").read_text())
            self.cluster.processes.remove(reader)
        return (time.monotonic() - begun) * self.size / part

    def stop(self):
        pass


class Relays:
    """Each node passes on what comes to the next, as fast as TCP carries it."""

    name = "relays"

    def __init__(self, cluster, _, size):
        self.cluster, self.size = cluster, size
        self.run, self.relays = machine.WORK / "relays", []

    def start(self, nodes):
        self.run.mkdir()
        self.program = str(self.run / "relay")
        machine.sh("rustc", "--edition", "2024", "-O", "-o", self.program, str(HERE / "relay.rs"))
        for node in range(nodes):
            next_one = [machine.address(node + 1)] if node + 1 < nodes else []
            words = [self.program, "receive", str(self.size), str(self.run / f"object-{node}"), *next_one]
            self.relays.append(self.cluster.start(f"n{node}", words, f"relays/{node}.log"))
        logs = [self.run / f"{node}.log" for node in range(nodes)]
        machine.wait_for("the relays", lambda: all("ready" in log.read_text() for log in logs))

    def measure(self):
        begun = time.monotonic()
        words = [self.program, "send", str(self.size), machine.address(0)]
        ends = [self.cluster.start("store", words, "relays/store.log"), *self.relays]
        for one in ends:
            if one.wait() != 0:
                raise RuntimeError("a relay has failed")
        seconds = time.monotonic() - begun
        for one in ends:
            self.cluster.processes.remove(one)
        self.relays = []
        return seconds

    def stop(self):
        self.cluster.end(self.relays)
        broadcasts.remove(self.run)


def bound_s(options, nodes):
    return (options.size + math.log2(nodes) * chunk_bytes(options.size)) / options.link


def chunk_bytes(size):
    """Of an object that Falkon broadcasts (`Chunks` in core/src/data/broadcast.rs)."""
    part = max(size // 256, 1)
    return min(max(1 << part.bit_length() - 1, 128 << 10), 1 << 20)


def busy():
    """Seconds of all processors so far: in use, and in all."""
    with open("/proc/stat", encoding="ascii") as lines:
        times = [int(one) for one in lines.readline().split()[1:9]]
    return sum(times) - times[3] - times[4], sum(times)


def row_of(cluster, options, nodes, name, measure):
    """One measurement."""
    used, total = busy()
    left = cluster.left_store()
    seconds = measure()
    now_used, now_total = busy()
    bound = bound_s(options, nodes)
    found = {"name": name, "nodes": nodes, "seconds": seconds, "of_bound": seconds / bound,
             "from_store": (cluster.left_store() - left) / options.size,
             "processors": (now_used - used) / (now_total - total)}
    print(f"{name}, {nodes} nodes: {seconds:.2f} s, {found['of_bound']:.2f} of the bound", file=sys.stderr)
    return found


def runs_of(cluster, options, make, nodes):
    """What one contender gives in a round."""
    contender = make()
    try:
        contender.start(nodes)
        return [row_of(cluster, options, nodes, contender.name, contender.measure)]
    finally:
        contender.stop()


def faults(cluster, options, make, nodes):
    found = []
    for name, number in (("Falkon, one killed", signal.SIGKILL), ("Falkon, one stopped", signal.SIGSTOP)):
        contender = make()
        try:
            contender.start(nodes)
            found.append(row_of(cluster, options, nodes, name, lambda: contender.measure_with(
                number, FAULT_AT * bound_s(options, nodes))))
        finally:
            contender.stop()
    return found


def measure(cluster, options, prepared):
    falkon = lambda: Falkon(cluster, options.falkon, options.size)
    relays = lambda: Relays(cluster, None, options.size)
    copies = lambda: Copies(cluster, None, options.size)
    peers = [lambda kind=kind: kind(cluster, prepared[kind.name], options.size)
             for kind in broadcasts.PEERS if prepared.get(kind.name)]
    contenders = [one for one in [falkon, relays, copies, *peers] if wanted(options, one().name)]
    rows = {}
    for _ in range(options.rounds):
        for nodes in options.nodes:
            found = []
            for make in contenders:
                if make().name == "Ray" and nodes > options.ray_nodes:
                    continue
                try:
                    found += runs_of(cluster, options, make, nodes)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    print(f"{make().name}, {nodes} nodes: left out: {error}", file=sys.stderr)
            if options.faults:
                found += faults(cluster, options, falkon, nodes)
            for one in found:
                rows.setdefault((nodes, one["name"]), []).append(one)
    return rows


def wanted(options, name):
    return not options.only or name in options.only


def prepare(options):
    """What each peer needs, which may come from the network that is still there."""
    found = {}
    for kind in broadcasts.PEERS:
        if wanted(options, kind.name):
            try:
                found[kind.name] = kind.install()
            except packages.LeftOut as why:
                print(f"left out: {kind.name}: {why}", file=sys.stderr)
    return found


def show(options, rows):
    keys = ("seconds", "of_bound", "from_store", "processors")
    merged = [{"name": name, "nodes": nodes, **{key: [run[key] for run in runs] for key in keys}}
              for (nodes, name), runs in rows.items()]
    if options.json:
        table = {"name": "broadcast", "machine": platform.platform(), "size": options.size, "link": options.link,
                 "load": options.load}
        for nodes in options.nodes:
            bound = {"name": f"bound, {nodes}", "seconds": [bound_s(options, nodes)]}
            of_these = [{**one, "name": f"{one['name']}, {nodes}"} for one in merged if one["nodes"] == nodes]
            table.setdefault("rows", []).extend([bound, *of_these])
        print(json.dumps(table))
        return
    print(f"{options.size / 1e6:.0f} MB over links of {options.link / 1e6:.0f} MB/s, {options.rounds} rounds, "
          f"load {options.load:.1f}")
    print("%5s  %-22s %8s %18s %9s %11s %11s" % ("nodes", "", "seconds", "lowest, highest", "of bound", "from store", "processors"))
    for one in merged:
        seconds = one["seconds"]
        middle = {key: statistics.median(one[key]) for key in keys}
        print("%5d  %-22s %8.2f %18s %9.2f %10.2fx %10.0f%%" % (
            one["nodes"], one["name"], middle["seconds"], "%.2f to %.2f" % (min(seconds), max(seconds)),
            middle["of_bound"], middle["from_store"], 100 * middle["processors"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="8,16,32,64", help="how many, one after another [8,16,32,64]")
    parser.add_argument("--size", type=float, default=80, help="MB of the object [80]")
    parser.add_argument("--link", type=float, default=5, help="MB/s of each link [5]")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", action="append", help="a name: Falkon, relays, copies, " + ", ".join(
        kind.name for kind in broadcasts.PEERS))
    parser.add_argument("--ray-nodes", type=int, default=8)
    parser.add_argument("--faults", action="store_true", help="Falkon with a node killed, and with one stopped")
    parser.add_argument("--json", action="store_true", help="a line of JSON instead of the table")
    options = parser.parse_args()
    options.size, options.link = round(1e6 * options.size), 1e6 * options.link
    options.nodes = [int(one) for one in options.nodes.split(",")]
    root = HERE.parents[1]
    options.falkon = os.path.abspath(os.environ.get("FALKON", root / "target/release/falkon"))
    if not os.access(options.falkon, os.X_OK):
        parser.exit(2, f"there is no {options.falkon}: run make, or say where it is with FALKON=PROGRAM\n")
    if PREPARED not in os.environ:
        os.environ[PREPARED] = json.dumps(prepare(options))
    machine.isolate()
    options.load = os.getloadavg()[0]
    cluster = machine.Cluster(max(options.nodes), options.link, options.link)
    try:
        machine.start_store(cluster)
        show(options, measure(cluster, options, json.loads(os.environ[PREPARED])))
    finally:
        cluster.end(list(cluster.processes))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("broadcast: it was told to end"))
    try:
        main()
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"broadcast: {error}")
