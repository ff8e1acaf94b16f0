#!/usr/bin/env python3
"""Two sites as one queue, joined by a slow link: what has to cross it, and what does.

    bench/data/sites.py [--nodes N] [--link MB/S] [--tasks N] [--objects N] [--rounds N]
                        [--policy NAME] [--json]

A dispatcher, a relay, half of the nodes and the store are at the near site; a second relay
and the other nodes are at the far one. Each host is in a network namespace of its own
(machine.py). Tasks in the manner of the papers' MI workload each read one of some objects in
the store. The far site has to get each object that its tasks read once: a row has the bytes
that crossed the link in relation to that, with messages and acknowledgements; the same for
what the store sent in all, in relation to what each of the sites had to read once; and the
tasks of each site.

Needs Linux, iproute2, util-linux, and root. FALKON is the program [target/release/falkon].
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
import machine
import shaped

SLOTS = 2
NODE_BANDWIDTH = 10_000_000
STORE_BANDWIDTH = 20_000_000
SITES = ("near", "far")


class Sites:
    """A dispatcher, a relay at each site, and executors whose caches are empty."""

    def __init__(self, cluster, options):
        self.cluster, self.options = cluster, options
        self.run = machine.WORK / "run"
        self.run.mkdir()
        self.processes = []
        self.access = ["--access", str(self.run / "d/access.json")]
        self.start("head", "dispatcher", ["start", "--dir", str(self.run / "d"), "--security", "none", "--force",
                                          "--listen", f"{machine.HEAD}:0"])
        machine.wait_for("the dispatcher", lambda: "dispatcher at" in self.log("dispatcher"))
        # Each relay is on the first node of its site.
        for site, node in zip(SITES, (0, options.nodes)):
            self.start(f"n{node}", site, [
                "relay", "--upstream", str(self.run / "d/access-executor.json"), "--name", site,
                "--listen", f"{machine.address(node)}:0", "--dir", str(self.run / site), "--force"])
            machine.wait_for(f"the relay {site}", (self.run / site / "access-executor.json").exists)
        for node in range(2 * options.nodes):
            site = SITES[node >= options.nodes]
            self.start(f"n{node}", f"n{node}", [
                "executor", "--access", str(self.run / site / "access-executor.json"), "--name", f"n{node}",
                "--slots", str(SLOTS), "--cache", f"{self.run}/cache-{node}={options.cache}"])
        machine.wait_for("the executors", lambda: self.joined() == 2 * options.nodes)

    def joined(self):
        return sum(self.log(site).count(" joined") for site in SITES)

    def log(self, name):
        return (self.run / f"{name}.log").read_text()

    def start(self, host, name, words):
        self.processes.append(self.cluster.start(host, [self.options.falkon, *words], f"run/{name}.log"))

    def end(self):
        self.cluster.end(self.processes)
        subprocess.run(["rm", "-rf", str(self.run)], check=True)


def run(cluster, options):
    sites = Sites(cluster, options)
    try:
        return measure(cluster, options, sites)
    finally:
        sites.end()


def measure(cluster, options, sites):
    workload = shaped.Workload("sites", options.tasks, options.objects, options.size, options.cache, options.run_ms,
                               "uniform")
    tasks = sites.run / "tasks.jsonl"
    lines = (json.dumps(shaped.task_line(cluster, workload, task)) + "\n" for task in range(workload.tasks))
    tasks.write_text("".join(lines), encoding="utf-8")
    machine.counters()
    before = cluster.between_sites()
    done = cluster.run("head", [options.falkon, "submit", *sites.access, "--policy", options.policy, "--wait",
                                "--json", "--tasks", str(tasks)])
    crossed = [now - then for now, then in zip(cluster.between_sites(), before)]
    if done.returncode != 0:
        raise RuntimeError(f"falkon submit: exit status {done.returncode}: {done.stderr.strip()[-2000:]}")
    results = [json.loads(line) for line in done.stdout.splitlines()]
    read = {site: set() for site in SITES}
    counts = dict.fromkeys(SITES, 0)
    for result in results:
        site = result["executor"].split("/")[0]
        counts[site] += 1
        read[site].add(workload.object_of(int(result["id"])))
    times = [result["times"] for result in results]
    must_cross = options.size * len(read["far"])
    must_read = options.size * sum(map(len, read.values()))
    return {
        "seconds": max(one["delivered"] for one in times) - min(one["queued"] for one in times),
        "far_tasks": counts["far"], "near_tasks": counts["near"],
        "far_objects": len(read["far"]), "near_objects": len(read["near"]),
        "crossed": sum(crossed), "crossed_of_once": sum(crossed) / must_cross,
        "store_of_once": machine.counters()["bytes"] / must_read,
    }


def show(options, runs):
    if options.json:
        print(json.dumps({"name": "sites", "machine": platform.platform(), "load": options.load,
                          "nodes": options.nodes, "link": options.link, "policy": options.policy,
                          "tasks": options.tasks, "objects": options.objects, "size": options.size, "rows": runs}))
        return
    print(f"{options.tasks} tasks that each read one of {options.objects} objects of {options.size / 1e6:.1f} MB, two "
          f"sites of {options.nodes} nodes, {options.link / 1e6:.0f} MB/s between them, {options.policy}, "
          f"{len(runs)} rounds, load {options.load:.1f}")
    rows = [("makespan", "seconds", "s", "%.2f"), ("tasks of the near site", "near_tasks", "", "%d"),
            ("tasks of the far site", "far_tasks", "", "%d"),
            ("objects that the far site read", "far_objects", "", "%d"),
            ("bytes between the sites", "crossed", "MB", "%.1f"),
            ("the same, of what the far site read once", "crossed_of_once", "x", "%.3f"),
            ("sent by the store, of what each site read once", "store_of_once", "x", "%.3f")]
    for name, key, unit, form in rows:
        values = [run[key] / (1e6 if unit == "MB" else 1) for run in runs]
        print(f"{name:48} {form % statistics.median(values):>9} {unit:2} ({form % min(values)} to "
              f"{form % max(values)})")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--nodes", type=int, default=4, help="of each site")
    options.add_argument("--link", type=float, default=2.0, help="between the sites, MB/s")
    options.add_argument("--tasks", type=int, default=1600)
    options.add_argument("--objects", type=int, default=100)
    options.add_argument("--size", type=float, default=0.8, help="of an object, MB")
    options.add_argument("--cache", type=float, default=40.0, help="of a node, MB")
    options.add_argument("--run-ms", type=int, default=400)
    options.add_argument("--policy", choices=shaped.POLICIES, default="good-cache-compute")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", action="store_true")
    options = options.parse_args()
    machine.isolate()
    options.falkon = str(pathlib.Path(os.environ.get("FALKON", "target/release/falkon")).resolve())
    options.load = os.getloadavg()[0]
    for name in ("link", "size", "cache"):
        setattr(options, name, round(1e6 * getattr(options, name)))
    cluster = machine.Cluster(2 * options.nodes, NODE_BANDWIDTH, STORE_BANDWIDTH, (options.nodes, options.link))
    machine.start_store(cluster)
    runs = []
    for _ in range(options.rounds):
        runs.append(run(cluster, options))
        print(f"{runs[-1]['seconds']:.1f} s, {runs[-1]['crossed_of_once']:.3f} x over the link", file=sys.stderr)
    show(options, runs)


if __name__ == "__main__":
    main()
