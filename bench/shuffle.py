#!/usr/bin/env python3
"""A sort over several nodes, beside the bound of their links.

    FALKON=target/release/falkon python3 bench/shuffle.py [--bytes 800MB] [--nodes 8] [--link 5MB] [--rounds N] [--json]

A dispatcher, a web server with the input and eight executors (--nodes), each in a network
namespace of its own (bench/data/machine.py), are joined by links of 5 MB/s (--link) in each
direction; the server's has as much as all nodes together. Random records of 100 bytes are
sorted by their keys (bench/data/sort.rs): one task for each part of the input divides it
into ranges of keys, which are one archive in the executor's cache, and one task for each
range merges its members of all archives. There are eight parts, and eight ranges, for each
node (--parts). Caches are in memory and hold half of the input each.

The bound is what the links need: each node receives its share of the input, and then, of its
ranges, all that the other nodes have, which cannot begin before the last part is divided.
The result is checked by the number of records, a sum over all, and the order of the keys.
Needs iproute2, util-linux, rustc and root, and memory for three times the input.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "data"))
import machine

RECORD_BYTES = 100
SLOTS = 4
UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9}


def quantity(text):
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return int(float(text[: -len(unit)]) * factor)
    return int(text)


class Sort:
    """The machine, and the input on its server."""

    def __init__(self, options):
        self.options = options
        self.parts = options.nodes * options.parts
        self.cluster = machine.Cluster(options.nodes, options.link, options.link * options.nodes)
        self.program = machine.WORK / "sort"
        machine.sh("rustc", "--edition", "2024", "-O", "-o", str(self.program), str(HERE / "data/sort.rs"))
        self.files = machine.WORK / "files"
        self.files.mkdir()
        records = options.bytes // RECORD_BYTES // self.parts
        self.records = self.sum = 0
        for part in range(self.parts):
            count, number = machine.sh(str(self.program), "make", str(part), str(records),
                                       str(self.files / str(part))).split()
            self.records += int(count)
            self.sum = (self.sum + int(number)) % 2**64
        self.cluster.start("store", [sys.executable, "-m", "http.server", str(machine.STORE_PORT), "--protocol",
                                     "HTTP/1.1", "--directory", str(self.files)], "store.log")

    def bound_s(self):
        """Seconds for a node's share of the input, and for what it receives of its ranges."""
        share = self.records * RECORD_BYTES / self.options.nodes
        return share / self.options.link * (1 + (self.options.nodes - 1) / self.options.nodes)

    def tasks(self):
        store = f"http://{machine.STORE}:{machine.STORE_PORT}"
        for part in range(self.parts):
            yield {"command": [str(self.program), "scatter", "part", str(self.parts), "ranges"],
                   "inputs": [f"part={store}/{part}"], "outputs": [f"ranges/=cache:{part}.zip"]}
        for number in range(self.parts):
            yield {"command": [str(self.program), "merge", "sorted", *(f"part.{part}" for part in range(self.parts))],
                   "inputs": [f"part.{part}=cache:{part}.zip!{number}" for part in range(self.parts)],
                   "outputs": [f"sorted=cache:sorted.{number}"]}

    def run(self):
        run = machine.WORK / "run"
        run.mkdir()
        falkon, options, cluster = self.options.falkon, self.options, self.cluster
        access = ["--access", str(run / "d/access.json")]
        cache = self.records * RECORD_BYTES // 2
        processes = [cluster.start("head", [falkon, "start", "--dir", str(run / "d"), "--security", "none", "--force",
                                            "--listen", f"{machine.HEAD}:0"], "run/start.log")]
        log = run / "start.log"
        machine.wait_for("the dispatcher", lambda: "dispatcher at" in log.read_text())
        for node in range(options.nodes):
            words = [falkon, "executor", *access, "--name", f"n{node}", "--slots", str(SLOTS),
                     "--cache", f"{run}/cache-{node}={cache}"]
            processes.append(cluster.start(f"n{node}", words, f"run/n{node}.log"))
        machine.wait_for("the executors", lambda: log.read_text().count(" joined") == options.nodes)
        tasks = run / "tasks.jsonl"
        tasks.write_text("".join(json.dumps(task) + "\n" for task in self.tasks()))
        received = cluster.received()
        done = cluster.run("head", [falkon, "submit", *access, "--wait", "--json", "--quiet", "--tasks", str(tasks)])
        received = cluster.received() - received
        cluster.end(processes)
        subprocess.run(["rm", "-rf", str(run)], check=True)
        if done.returncode != 0:
            raise RuntimeError(f"falkon submit: exit status {done.returncode}: {done.stderr.strip()[-2000:]}")
        results = sorted(map(json.loads, done.stdout.splitlines()), key=lambda result: result["index"])
        self.check([result["stdout"].split() for result in results[self.parts:]])
        times = [result["times"] for result in results]
        begun = min(one["queued"] for one in times)
        ended = max(one["delivered"] for one in times)
        divided = max(one["delivered"] for one in times[: self.parts])
        return {"seconds": ended - begun, "divided_s": divided - begun, "received_bytes": received,
                "of_bound": self.bound_s() / (ended - begun)}

    def check(self, merged):
        if sum(int(line[0]) for line in merged) != self.records:
            raise RuntimeError("records are missing")
        if sum(int(line[1]) for line in merged) % 2**64 != self.sum:
            raise RuntimeError("records are others")
        keys = [key for line in merged for key in line[2:]]
        if keys != sorted(keys):
            raise RuntimeError("the ranges are not in order")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bytes", type=quantity, default=800 * 10**6)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--link", type=quantity, default=5 * 10**6)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.falkon = str(pathlib.Path(os.environ.get("FALKON", "target/release/falkon")).resolve())
    machine.isolate()
    load = os.getloadavg()[0]
    sort = Sort(options)
    runs = []
    for _ in range(options.rounds):
        runs.append(sort.run())
        print("%(seconds).2f s, %(of_bound).2f of the bound" % runs[-1], file=sys.stderr)
    seconds = [run["seconds"] for run in runs]
    figures = {"bytes": sort.records * RECORD_BYTES, "nodes": options.nodes, "link": options.link, "parts": sort.parts,
               "load": load, "bound_s": sort.bound_s(), "seconds": statistics.median(seconds), "min": min(seconds),
               "max": max(seconds), "of_bound": sort.bound_s() / statistics.median(seconds), "runs": runs}
    if options.json:
        print(json.dumps(figures))
        return
    print("%(parts)d parts, %(bytes)d bytes, %(nodes)d nodes: %(seconds).2f s (%(min).2f to %(max).2f), bound "
          "%(bound_s).2f s: %(of_bound).2f of it" % figures)


main()
