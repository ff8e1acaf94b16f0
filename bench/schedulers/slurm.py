#!/usr/bin/env python3
"""Falkon on a real Slurm, beside Slurm itself, on daemons of its own
(tests/schedulers/slurm.sh, which needs root).

    bench/schedulers/slurm.py [throughput|start|stages|all] [--rounds N] [--json]

throughput  1,000 times /bin/true: as jobs of their own, as one job array, and as
            tasks of one Falkon allocation that is asked for when they come, and
            that is there already, of all nodes and of one, which is as many CPUs
            as two real cores are; xargs, without any scheduler, is the floor.
            Jobs end when slurmctld says so in its log.
start       From the first submission to the start of the first task, on an idle
            Slurm, beside sbatch of the same command.
stages      The 18-stage workload of falkon-sc07 4.5, times divided by 60, for
            different idle times: time, utilization (of what Slurm's log says
            nodes were held for), allocations, and what is left at the end.

What is compared takes turns within a round, and ratios are of one round.
FALKON is the program [target/release/falkon].
"""

import argparse
import atexit
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TASKS = 1000
NODES, CPUS = 8, 2
WAIT_S_MAX = 600
# falkon-sc07 4.5: stages, and how long tasks of the eighth to the tenth run;
# those of all others run for 60 s.
STAGES = [1, 2, 4, 8, 16, 32, 64, 1, 640, 160, 5, 21, 17, 13, 9, 4, 2, 1]
STAGE_SECONDS = {8: 120, 9: 6, 10: 12}
SCALE = 60
IDLE_SECONDS = [15, 60, 120, 180, None]


def wait_for(what, ready, pause=0.02):
    deadline = time.monotonic() + WAIT_S_MAX
    while not (found := ready()):
        if time.monotonic() > deadline:
            sys.exit(f"waited {WAIT_S_MAX} s for: {what}")
        time.sleep(pause)
    return found


class Slurm:
    """Daemons of so many nodes, in a directory of their own."""

    def __init__(self, site, nodes, cpus):
        self.home = pathlib.Path(site, "slurm")
        script = ROOT / "tests/schedulers/slurm.sh"
        self.daemons = subprocess.Popen([str(script), str(self.home), str(nodes), str(cpus)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        said = self.daemons.stdout.readline().strip()
        if said != "ready":
            sys.exit(said or "Slurm did not start")
        self.environment = {**os.environ, "SLURM_CONF": str(self.home / "slurm.conf")}
        self.version = self.run("sinfo", "--version")
        self.log_at = 0

    def run(self, *words):
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def sbatch(self, *options, command="/bin/true"):
        script = f"#!/bin/sh\n{command}\n"
        subprocess.run(["sbatch", "-Q", "-o", "/dev/null", *options], env=self.environment, input=script,
                       stdout=subprocess.DEVNULL, text=True, check=True)

    def jobs(self):
        return self.run("squeue", "-h", "-o", "%i").split()

    def wait_for_no_jobs(self):
        wait_for("no job is left", lambda: not self.jobs(), 0.3)

    def events(self):
        """Nodes that were given to and taken from jobs since last asked, as
        slurmctld says: (seconds since 1970, job, nodes), without nodes at the end."""
        with open(self.home / "log/slurmctld.log", encoding="utf-8", errors="replace") as log:
            log.seek(self.log_at)
            text = log.read()
            self.log_at = log.tell()
        found = []
        for line in text.splitlines():
            match = re.match(r"\[(\S+)\] (?:sched(?:/backfill)?: (?:Allocate|_start_job: Started) |_job_complete: )"
                             r"JobId=(\S+?)(?:\(\d+\))? (.*)", line)
            if match is None:
                continue
            at = datetime.datetime.fromisoformat(match[1]).timestamp()
            if "done" in match[3] or "OVERRUN" in match[3]:
                found.append((at, match[2], 0))
            elif given := re.search(r"(?:NodeList=| on )(\S+)", match[3]):
                found.append((at, match[2], count(given[1])))
        return found

    def stop(self):
        self.daemons.stdin.close()
        self.daemons.wait()


def count(nodes):
    """How many nodes a list like n[1-3,7] names."""
    ranges = re.search(r"\[(.*)\]", nodes)
    if ranges is None:
        return 1
    ends = [one.split("-") for one in ranges[1].split(",")]
    return sum(int(end[-1]) - int(end[0]) + 1 for end in ends)


class Falkon:
    """A dispatcher with one queue of that Slurm."""

    def __init__(self, falkon, site, slurm, **queue):
        self.falkon, self.slurm = falkon, slurm
        self.home = pathlib.Path(tempfile.mkdtemp(dir=site))
        lines = [f"{key} = {json.dumps(value)}" for key, value in queue.items()]
        (self.home / "slurm.toml").write_text("\n".join(['kind = "slurm"', *lines, ""]))
        self.log = open(self.home / "log", "w+", encoding="utf-8")
        words = [falkon, "start", "--dir", str(self.home / "d"), "--provision", str(self.home / "slurm.toml"),
                 "--listen", "127.0.0.1:0"]
        self.service = subprocess.Popen(words, env=slurm.environment, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log)
        atexit.register(self.service.kill)
        self.access = ["--access", str(self.home / "d/access.json")]
        wait_for("the dispatcher", lambda: "dispatcher at " in self.said())
        wait_for("the queue", lambda: self.state() == "ready")

    def provision(self, *words):
        done = subprocess.run([self.falkon, "provision", *self.access, *words], env=self.slurm.environment,
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"falkon provision failed:\n{done.stderr}\n{self.said()}")
        return done.stdout

    def status(self):
        return json.loads(self.provision("list", "--json"))

    def state(self):
        queues = self.status()["queues"]
        return queues and queues[0]["state"]

    def executors(self):
        return sum(one["executors"] for one in self.status()["allocations"] if not one["ending"])

    def submit(self, *words):
        begun = time.monotonic()
        command = [self.falkon, "submit", *self.access, "--wait", *words]
        done = subprocess.run(command, env=self.slurm.environment, capture_output=True, text=True)
        seconds = time.monotonic() - begun
        if done.returncode != 0:
            sys.exit(f"falkon submit failed:\n{done.stderr}\n{self.said()}")
        return seconds, done.stdout

    def said(self):
        self.log.flush()
        return (self.home / "log").read_text()

    def wait_for_none(self):
        wait_for("no allocation is left", lambda: not self.status()["allocations"], 0.1)

    def stop(self):
        self.provision("remove", "slurm")
        wait_for("the queue is removed", lambda: not self.status()["queues"], 0.1)
        self.service.terminate()
        self.service.wait()
        atexit.unregister(self.service.kill)
        self.log.close()
        shutil.rmtree(self.home)


def queue(nodes, **more):
    """A queue that asks for all at once and gives back what is idle."""
    return {"nodes_max": nodes, "walltime": 600, "release": "idle", "idle": 1, "query_interval": 1, **more}


def throughput(falkon, site, rounds):
    slurm = Slurm(site, NODES, CPUS)
    names = ("sbatch", "array", "falkon, with its allocation", "falkon", "falkon, one node",
             f"xargs -P {os.cpu_count()}")
    found = {name: [] for name in names}
    try:
        for _ in range(rounds):
            for name, submit in (("sbatch", lambda: [slurm.sbatch() for _ in range(TASKS)]),
                                 ("array", lambda: slurm.sbatch(f"--array=1-{TASKS}"))):
                slurm.events()
                begun = time.time()
                submit()
                slurm.wait_for_no_jobs()
                ends = [at for at, _, nodes in slurm.events() if nodes == 0]
                if len(ends) < TASKS:
                    sys.exit(f"slurmctld's log has {len(ends)} ends of {TASKS} jobs")
                found[name].append(max(ends) - begun)
            tasks = ["--quiet", "--range", f"1-{TASKS}", "--", "/bin/true"]
            for nodes, cold, warm in ((NODES, "falkon, with its allocation", "falkon"),
                                      (1, None, "falkon, one node")):
                one = Falkon(falkon, site, slurm, **queue(nodes, idle=60))
                seconds, _ = one.submit(*tasks)
                if cold is not None:
                    found[cold].append(seconds)
                wait_for("all executors", lambda: one.executors() == nodes)
                if (jobs := len(slurm.jobs())) != 1:
                    sys.exit(f"{jobs} allocations, not one")
                found[warm].append(one.submit(*tasks)[0])
                one.stop()
                slurm.wait_for_no_jobs()
            begun = time.monotonic()
            numbers = "\n".join(map(str, range(TASKS)))
            subprocess.run(["xargs", "-P", str(os.cpu_count()), "-n", "1", "/bin/true"], input=numbers, text=True,
                           check=True)
            found[names[-1]].append(time.monotonic() - begun)
    finally:
        slurm.stop()
    table = [("", "s, median", "least to most", "tasks/s", "x the array")]
    figures = {}
    for name, seconds in found.items():
        ratio = statistics.median(other / own for own, other in zip(seconds, found["array"]))
        median = statistics.median(seconds)
        figures[name] = {"seconds": seconds, "median": median, "tasks_per_second": TASKS / median,
                         "times_the_array": ratio}
        table.append((name, f"{median:.2f}", spread(seconds, 2), f"{TASKS / median:.0f}", f"{ratio:.1f}"))
    return slurm.version, f"{TASKS} x /bin/true, {NODES} nodes of {CPUS} CPUs", table, figures


def start(falkon, site, rounds):
    slurm = Slurm(site, NODES, CPUS)
    found = {"sbatch": [], "falkon": []}
    try:
        one = Falkon(falkon, site, slurm, **queue(NODES))
        mark = pathlib.Path(site, "mark")
        command = f"date +%s.%N >{mark}.new; mv {mark}.new {mark}"
        for _ in range(rounds):
            for name, submit in (("sbatch", lambda: slurm.sbatch(command=command)),
                                 ("falkon", lambda: one.submit("--quiet", "--", "sh", "-c", command))):
                begun = time.time()
                submit()
                wait_for("the first task", mark.exists)
                found[name].append(float(mark.read_text()) - begun)
                mark.unlink()
                one.wait_for_none()
                slurm.wait_for_no_jobs()
        one.stop()
    finally:
        slurm.stop()
    table = [("", "s, median", "least to most", "later, median")]
    figures = {}
    for name, seconds in found.items():
        later = statistics.median(own - other for own, other in zip(seconds, found["sbatch"]))
        figures[name] = {"seconds": seconds, "median": statistics.median(seconds), "later": later}
        table.append((name, f"{statistics.median(seconds):.2f}", spread(seconds, 2), f"{later:.2f}"))
    return slurm.version, "from submission to the first task's start, idle Slurm", table, figures


def stages(falkon, site, rounds):
    nodes, cpus = 32, 1
    slurm = Slurm(site, nodes, cpus)
    names = {idle: f"idle {idle} s / {SCALE}" if idle else "never given back" for idle in IDLE_SECONDS}
    found = {name: [] for name in names.values()}
    try:
        for _ in range(rounds):
            for idle, name in names.items():
                found[name].append(one_of_stages(falkon, site, slurm, nodes, cpus, idle))
    finally:
        slurm.stop()
    table = [("", "s, median", "least to most", "utilization", "efficiency", "allocations", "tasks", "left")]
    figures = {}
    for name, runs in found.items():
        middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        figures[name] = {"runs": runs, "median": middle}
        table.append((name, f"{middle['seconds']:.1f}", spread([run["seconds"] for run in runs], 1),
                      f"{100 * middle['utilization']:.0f} %", f"{100 * middle['efficiency']:.0f} %",
                      f"{middle['allocations']:.0f}", f"{middle['tasks']:.0f}", f"{middle['left']:.0f}"))
    seconds = [figures[name]["median"]["seconds"] for name in found]
    used = [figures[name]["median"]["utilization"] for name in found]
    ranks = seconds == sorted(seconds, reverse=True), used == sorted(used, reverse=True)
    figures["ranked by time"], figures["ranked by utilization"] = ranks
    words = ["as in the paper" if rank else "not as in the paper" for rank in ranks]
    title = (f"18 stages, {sum(STAGES)} tasks, times / {SCALE}, {nodes} nodes of {cpus} CPUs; "
             f"ranking by time {words[0]}, by utilization {words[1]}")
    return slurm.version, title, table, figures


def one_of_stages(falkon, site, slurm, nodes, cpus, idle):
    """One run: the workload's figures, after falkon-sc07 4.5."""
    slurm.events()
    held = {"idle": idle / SCALE} if idle else {"idle": -1, "nodes_min": nodes}
    one = Falkon(falkon, site, slurm, **queue(nodes, query_interval=0.2, delay=1, **held))
    if idle is None:
        wait_for("all executors", lambda: one.executors() == nodes)
    durations = [STAGE_SECONDS.get(stage, 60) / SCALE for stage in range(1, len(STAGES) + 1)]
    begun, done = time.time(), 0
    for tasks, seconds in zip(STAGES, durations):
        command = ["sh", "-c", f"exec sleep {seconds:.3f}", "{}"]
        _, results = one.submit("--json", "--range", f"1-{tasks}", "--", *command)
        done += sum(json.loads(line)["status"] == "done" for line in results.splitlines())
    ended = time.time()
    if idle is not None:
        one.wait_for_none()
    one.stop()
    slurm.wait_for_no_jobs()
    given = slurm.events()
    if idle is None:
        held, allocations = (ended - begun) * nodes, 0
    else:
        held, allocations = node_seconds(given), sum(count > 0 for _, _, count in given)
    work = sum(tasks * seconds for tasks, seconds in zip(STAGES, durations))
    ideal = sum(-(-tasks // (nodes * cpus)) * seconds for tasks, seconds in zip(STAGES, durations))
    return {"seconds": ended - begun, "utilization": work / (held * cpus), "efficiency": ideal / (ended - begun),
            "allocations": allocations, "tasks": done, "left": len(slurm.jobs())}


def node_seconds(events):
    """For how long jobs held nodes."""
    seconds, running = 0.0, {}
    for at, job, count in events:
        if count:
            running[job] = (at, count)
        elif job in running:
            since, nodes = running.pop(job)
            seconds += (at - since) * nodes
    return seconds


def spread(values, digits):
    return f"{min(values):.{digits}f}-{max(values):.{digits}f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    benches = {"throughput": throughput, "start": start, "stages": stages}
    parser.add_argument("what", nargs="?", default="all", choices=[*benches, "all"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="a line of JSON per table")
    options = parser.parse_args()
    falkon = os.path.abspath(os.environ.get("FALKON", ROOT / "target/release/falkon"))
    if not os.access(falkon, os.X_OK):
        sys.exit(f"there is no {falkon}: run make, or say where it is with FALKON=PROGRAM")
    version = subprocess.run([falkon, "--version"], capture_output=True, text=True).stdout.strip()
    for name in benches if options.what == "all" else [options.what]:
        with tempfile.TemporaryDirectory() as site:
            load = os.getloadavg()[0]
            slurm, title, table, figures = benches[name](falkon, site, options.rounds)
        machine = f"{platform.platform()}, {os.cpu_count()} CPUs"
        if options.json:
            print(json.dumps({"bench": name, "machine": machine, "version": version, "slurm": slurm,
                              "rounds": options.rounds, "load": load, "figures": figures}))
            continue
        print(f"{title}\n{version}, {slurm}, {machine}; {options.rounds} rounds, load before {load:.1f}")
        widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
        for row in table:
            print(row[0].ljust(widths[0]), *(cell.rjust(width + 2) for cell, width in zip(row[1:], widths[1:])))
        print()


if __name__ == "__main__":
    main()
