#!/usr/bin/env python3
"""An object too large for any cache, read from the room that executors lend, over shaped links.

    bench/data/stripes.py [--members 1,2,4,8,16] [--size MB] [--link MB/S] [--reader MB/S]
                          [--rounds N] [--json]

Each member, the reader and the store, which has the object, are in network namespaces of
their own (machine.py). A member's link carries --link MB/s in each direction; those of the
reader and the store carry --reader MB/s. A row has the time in which a task on the reader
gets all of the object from so many members that have its stripes already, in relation to
size / min(members x link, reader); the bandwidth that the reader sees; how often the object
left the store meanwhile, which is to be 0; and how much of this machine's processors was
used: a row that used nearly all of it measures the processors.

Needs Linux, iproute2, util-linux, and root, and FUSE: the first task, which has the object
striped, reads it through a file system. FALKON is the program [target/release/falkon].
"""

import argparse
import json
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
sys.path[:0] = [str(HERE.parent / "peers")]
import broadcasts
import machine

UNIT_BYTES = 4 << 20
READER = "10.77.0.3"
STARTER = "10.77.0.4"
SMALL_CACHE = "1MiB"


def lent_bytes(size, members):
    """What a member lends, so that it takes all of them to have the object."""
    units = -(-size // UNIT_BYTES)
    return -(-units // members) * UNIT_BYTES


class Falkon:
    """A dispatcher, members, an executor whose task has the object striped, and a reader."""

    def __init__(self, cluster, options, members):
        self.cluster, self.options, self.members = cluster, options, members
        self.run = machine.WORK / "falkon"
        self.processes = []

    def start(self):
        self.run.mkdir()
        self.access = ["--access", str(self.run / "d/access.json")]
        words = [self.options.falkon, "start", "--dir", str(self.run / "d"), "--security", "none", "--force",
                 "--listen", f"{machine.HEAD}:0"]
        self.processes = [self.cluster.start("head", words, "falkon/start.log")]
        machine.wait_for("the dispatcher", lambda: "dispatcher at" in self.log())
        lent = lent_bytes(self.options.size, self.members)
        for member in range(self.members):
            lend = ["--lend", f"{self.run}/lent-{member}={lent}"]
            self.executor(f"n{member}", SMALL_CACHE, [*lend, "--no-mount"])
        self.executor("starter", SMALL_CACHE, ["--resource", "starter=1"])
        self.executor("reader", 2 * self.options.size, ["--resource", "reader=1"])
        machine.wait_for("the executors", lambda: self.log().count(" joined") == self.members + 2)

    def executor(self, host, cache, more):
        words = [self.options.falkon, "executor", *self.access, "--name", host, "--slots", "1",
                 "--cache", f"{self.run}/cache-{host}={cache}", *more]
        self.processes.append(self.cluster.start(host, words, f"falkon/{host}.log"))

    def log(self):
        return (self.run / "start.log").read_text()

    def task(self, host):
        """Runs a task that reads all of the object, and says how long it waited for it."""
        source = f"http://{machine.STORE}:{machine.STORE_PORT}/{self.options.size}/0"
        words = ["submit", *self.access, "--json", "--wait", "--resource", f"{host}=1", "--input", f"in={source}",
                 "--", "sha256sum", "in"]
        done = self.cluster.run("head", [self.options.falkon, *words])
        results = [json.loads(line) for line in done.stdout.splitlines() if '"status"' in line]
        if done.returncode != 0 or [one["status"] for one in results] != ["done"]:
            raise RuntimeError(f"falkon submit: {done.stdout[-1000:]} {done.stderr[-2000:]}")
        return results[0]

    def measure(self):
        first = self.task("starter")
        left, (used, total) = self.cluster.left_store(), busy()
        read = self.task("reader")
        if read["stdout"] != first["stdout"]:
            raise RuntimeError("the reader has another file")
        now_used, now_total = busy()
        seconds = read["data"]["staging_seconds"]
        return {"seconds": seconds, "of_bound": bound_s(self.options, self.members) / seconds,
                "bandwidth": self.options.size / seconds,
                "from_store": (self.cluster.left_store() - left) / self.options.size,
                "processors": (now_used - used) / (now_total - total)}

    def stop(self):
        self.cluster.end(self.processes)
        broadcasts.remove(self.run)


def busy():
    """Seconds of all processors so far: in use, and in all."""
    with open("/proc/stat", encoding="ascii") as lines:
        times = [int(one) for one in lines.readline().split()[1:9]]
    return sum(times) - times[3] - times[4], sum(times)


def bound_s(options, members):
    return options.size / min(members * options.link, options.reader)


def measure(cluster, options):
    rows = {}
    for _ in range(options.rounds):
        for members in options.members:
            falkon = Falkon(cluster, options, members)
            try:
                falkon.start()
                found = falkon.measure()
            finally:
                falkon.stop()
            print(f"{members} members: {found['seconds']:.2f} s, {found['of_bound']:.2f} of the bound",
                  file=sys.stderr)
            rows.setdefault(members, []).append(found)
    return rows


def show(options, rows):
    keys = ("seconds", "of_bound", "bandwidth", "from_store", "processors")
    merged = [{"name": f"{members} members", **{key: [run[key] for run in runs] for key in keys}}
              for members, runs in rows.items()]
    if options.json:
        print(json.dumps({"name": "stripes", "machine": platform.platform(), "size": options.size,
                          "link": options.link, "reader": options.reader, "load": options.load, "rows": merged}))
        return
    print(f"{options.size / 1e6:.0f} MB from members with links of {options.link / 1e6:.0f} MB/s, to a reader "
          f"with {options.reader / 1e6:.0f} MB/s, {options.rounds} rounds, load {options.load:.1f}")
    print("%-12s %8s %18s %9s %9s %11s %11s" % ("", "seconds", "lowest, highest", "of bound", "MB/s", "from store",
                                                "processors"))
    for one in merged:
        middle = {key: statistics.median(one[key]) for key in keys}
        spread = "%.2f to %.2f" % (min(one["seconds"]), max(one["seconds"]))
        print("%-12s %8.2f %18s %9.2f %9.1f %10.2fx %10.0f%%" % (
            one["name"], middle["seconds"], spread, middle["of_bound"], middle["bandwidth"] / 1e6,
            middle["from_store"], 100 * middle["processors"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", default="1,2,4,8,16", help="how many, one after another [1,2,4,8,16]")
    parser.add_argument("--size", type=float, default=134, help="MB of the object [134]")
    parser.add_argument("--link", type=float, default=6, help="MB/s of a member's link [6]")
    parser.add_argument("--reader", type=float, default=96, help="MB/s of the reader's link [96]")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="a line of JSON instead of the table")
    options = parser.parse_args()
    options.size, options.link, options.reader = (round(1e6 * one)
                                                  for one in (options.size, options.link, options.reader))
    options.members = [int(one) for one in options.members.split(",")]
    root = HERE.parents[1]
    options.falkon = os.path.abspath(os.environ.get("FALKON", root / "target/release/falkon"))
    if not os.access(options.falkon, os.X_OK):
        parser.exit(2, f"there is no {options.falkon}: run make, or say where it is with FALKON=PROGRAM\n")
    machine.isolate()
    options.load = os.getloadavg()[0]
    cluster = machine.Cluster(max(options.members), options.link, options.reader)
    cluster.host("reader", READER, options.reader)
    cluster.host("starter", STARTER, options.reader)
    try:
        machine.start_store(cluster)
        show(options, measure(cluster, options))
    finally:
        cluster.end(list(cluster.processes))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stripes: it was told to end"))
    try:
        main()
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"stripes: {error}")
