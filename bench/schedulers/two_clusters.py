#!/usr/bin/env python3
"""Two clusters as one queue, beside one cluster of their joint size: a Slurm and a Grid
Engine, each with a relay, in network namespaces that reach the dispatcher and not each
other (tests/schedulers, which need root), and a Slurm with as many nodes.

    bench/schedulers/two_clusters.py [--rounds N] [--tasks N] [--json]

Half of the nodes leave when half of the tasks have ended: in the two clusters all of
Slurm's, in the one cluster those of one of two queues. What is compared takes turns
within a round, and the ratio is of one round. FALKON is the program
[target/release/falkon].
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Of each of the two clusters.
NODES, CPUS = 4, 2
TASK_S = 0.2
WAIT_S_MAX = 120
DISPATCHER = "10.98.0.1"
PACKAGES = ["slurmctld", "slurmd", "slurm-client", "munge",
            "gridengine-master", "gridengine-exec", "gridengine-client"]


def wait_for(what, ready, pause=0.05):
    deadline = time.monotonic() + WAIT_S_MAX
    while not (found := ready()):
        if time.monotonic() > deadline:
            sys.exit(f"waited {WAIT_S_MAX} s for: {what}")
        time.sleep(pause)
    return found


def system(*words):
    subprocess.run(words, check=True)


class Network:
    """A network of its own, with a link to this one."""

    def __init__(self, number):
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; read line"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.holder.stdout.readline()
        name, here, there = f"cluster{number}", f"10.98.{number}.1", f"10.98.{number}.2"
        system("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
        system("ip", "addr", "add", f"{here}/24", "dev", name)
        system("ip", "link", "set", name, "up")
        for words in (["link", "set", "lo", "up"], ["addr", "add", f"{there}/24", "dev", "eth0"],
                      ["link", "set", "eth0", "up"], ["route", "add", "default", "via", here]):
            system(*self.inside("ip", *words))
        self.address = there

    def inside(self, *words):
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", *words]

    def close(self):
        self.holder.stdin.close()
        self.holder.wait()


class Daemons:
    """A scheduler, in a network."""

    def __init__(self, network, script, home, *args):
        words = network.inside(str(ROOT / "tests/schedulers" / script), str(home), *map(str, args))
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        said = self.process.stdout.readline().strip()
        if said != "ready":
            sys.exit(said or f"{script} did not start")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Service:
    """A dispatcher, or a relay, with its directory."""

    def __init__(self, falkon, home, words, environment=None, inside=lambda *words: list(words)):
        self.falkon, self.dir, self.inside = falkon, home, inside
        self.log = open(f"{home}.log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(inside(falkon, *words, "--dir", str(home)), env=environment,
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        wait_for("a service", lambda: (home / "access.json").exists())

    def command(self, command, *words):
        """A command of Falkon's for it."""
        access = ["--access", str(self.dir / "access.json")]
        return self.inside(self.falkon, command, *access, *words)

    def run(self, *words):
        command = self.command(*words)
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"falkon {words[0]} failed:\n{done.stderr}\n{self.said()}")
        return done.stdout

    def said(self):
        return pathlib.Path(self.log.name).read_text(encoding="utf-8")

    def nodes(self):
        executors = json.loads(self.run("status", "--json"))["executors"]
        return sum(one.get("nodes") or 1 for one in executors if one["connected"])

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def queue_file(home, name, kind, nodes, job=""):
    path = home / f"{name}.toml"
    path.write_text(f'kind = "{kind}"\nnodes_max = {nodes}\nrelease = "idle"\nidle = 30\nwalltime = 600\n'
                    f'query_interval = 1\n{job}')
    return str(path)


def measure(dispatcher, nodes, tasks, drain):
    """Seconds for all tasks, on nodes that are there; half leave in the midst."""
    dispatcher.run("submit", "--wait", "--quiet", "--range", f"1-{nodes * CPUS * 10}", "--", "sh", "-c", "exec sleep 0.3", "{}")
    wait_for(f"{nodes} nodes", lambda: dispatcher.nodes() == nodes)
    begun = time.monotonic()
    command = dispatcher.command("submit", "--wait", "--json", "--range", f"1-{tasks}",
                                 "--", "sh", "-c", f"exec sleep {TASK_S}", "{}")
    client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    done = {}
    for line in client.stdout:
        result = json.loads(line)
        if "index" not in result:
            continue
        assert result["status"] == "done" and result["index"] not in done, result
        done[result["index"]] = result["executor"]
        if len(done) == tasks // 2:
            drain()
    if client.wait() != 0 or len(done) != tasks:
        sys.exit(f"{len(done)} of {tasks} tasks are done\n{dispatcher.said()}")
    return time.monotonic() - begun


def two(falkon, site, tasks):
    home = pathlib.Path(tempfile.mkdtemp(dir=site))
    networks = [Network(1), Network(2)]
    reached = subprocess.run(networks[0].inside("ping", "-c1", "-W1", networks[1].address),
                             capture_output=True).returncode == 0
    if reached:
        sys.exit("the two clusters reach each other")
    parts = [Daemons(networks[0], "slurm.sh", home / "slurm", NODES, CPUS),
             Daemons(networks[1], "gridengine.sh", home / "gridengine", NODES * CPUS)]
    dispatcher = Service(falkon, home / "d", ["start", "--listen", f"{DISPATCHER}:0"])
    upstream = str(home / "d/access-executor.json")
    environments = [{**os.environ, "SLURM_CONF": str(home / "slurm/slurm.conf")},
                    {**os.environ, "PATH": f"{home / 'gridengine/bin'}:{os.environ['PATH']}"}]
    files = [queue_file(home, "slurm", "slurm", NODES),
             queue_file(home, "gridengine", "gridengine", NODES,
                        f'[job]\ncpus = {CPUS}\nsettings = {{ pe = "smp" }}\n')]
    relays = []
    for number in range(2):
        words = ["relay", "--upstream", upstream, "--listen", "127.0.0.1:0", "--provision", files[number]]
        relays.append(Service(falkon, home / f"relay{number}", words, environments[number],
                              networks[number].inside))
    try:
        return measure(dispatcher, 2 * NODES, tasks, lambda: relays[0].run("provision", "remove", "slurm"))
    finally:
        for part in [*relays, dispatcher, *parts, *networks]:
            part.close()


def one(falkon, site, tasks):
    home = pathlib.Path(tempfile.mkdtemp(dir=site))
    network = Network(3)
    daemons = Daemons(network, "slurm.sh", home / "slurm", 2 * NODES, CPUS)
    environment = {**os.environ, "SLURM_CONF": str(home / "slurm/slurm.conf")}
    words = ["start", "--listen", "127.0.0.1:0", "--provision", queue_file(home, "first", "slurm", NODES)]
    dispatcher = Service(falkon, home / "d", words, environment, network.inside)
    try:
        dispatcher.run("provision", "add", queue_file(home, "second", "slurm", NODES))
        return measure(dispatcher, 2 * NODES, tasks, lambda: dispatcher.run("provision", "remove", "first"))
    finally:
        for part in [dispatcher, daemons, network]:
            part.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.inside:
        # In a network in which nothing else is, nothing can be installed.
        install = '. "$0/install.sh"; skip() { echo "skipped: $*" >&2; exit 1; }; installed "$@"'
        system("bash", "-euc", install, str(ROOT / "tests/schedulers"), *PACKAGES)
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv, "--inside"])
    system("ip", "link", "set", "lo", "up")
    system("ip", "addr", "add", f"{DISPATCHER}/32", "dev", "lo")
    falkon = os.environ.get("FALKON", str(ROOT / "target/release/falkon"))
    found = {"two clusters": [], "one cluster": []}
    with tempfile.TemporaryDirectory(prefix="falkon-two-") as site:
        for _ in range(args.rounds):
            found["two clusters"].append(two(falkon, site, args.tasks))
            found["one cluster"].append(one(falkon, site, args.tasks))
    # All nodes for the first half of the tasks, half of them for the other.
    slots = 2 * NODES * CPUS
    ideal = args.tasks * TASK_S / slots * 1.5
    ratios = [of_two / of_one for of_two, of_one in zip(found["two clusters"], found["one cluster"])]
    if args.json:
        print(json.dumps({"tasks": args.tasks, "ideal_s": ideal, "seconds": found, "ratios": ratios}))
        return
    print(f"{args.tasks} tasks of {TASK_S} s on {slots} slots, of which half leave in the midst; "
          f"ideal {ideal:.1f} s, load {os.getloadavg()[0]:.1f}")
    for name, seconds in found.items():
        print(f"  {name:<14} {statistics.median(seconds):8.2f} s ({min(seconds):.2f} to {max(seconds):.2f})")
    print(f"  {'ratio':<14} {statistics.median(ratios):8.3f}   ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
