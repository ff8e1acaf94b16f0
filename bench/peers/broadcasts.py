"""What else brings an object to many nodes, for bench/data/broadcast.py.

Each peer has a `name`; `install`, which is called where there is a network, and gives what
the others need as text or raises `LeftOut`; `start`, which starts what is there before
anybody wants the object; `measure`, which brings it to all nodes and gives the seconds until
the last has it; and `stop`.
"""

import hashlib
import http.server
import json
import os
import pathlib
import socket
import subprocess
import threading
import time
import xmlrpc.client

import machine
import packages
import taskvine

SWARM_PORT, RPC_PORT = 6881, 6800
TORRENT_PIECE_BYTES = 1 << 18
RAY_PORT = 6379
SLURM_PORTS = {"slurmctld": 6817, "slurmd": 6818}


def remove(folder):
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def until(what, condition, seconds=machine.SECONDS_MAX):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {seconds} s for {what}")
        time.sleep(0.02)


class Peer:
    def __init__(self, cluster, prepared, size):
        self.cluster, self.prepared, self.size = cluster, prepared, size
        self.place = machine.WORK / "peer"
        self.processes = []

    def begin(self, host, words, log="log"):
        process = self.cluster.start(host, [str(word) for word in words], f"peer/{log}")
        self.processes.append(process)
        return process

    def content(self, name):
        """The object as a file."""
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        block = os.urandom(1 << 20)
        with open(path, "wb") as file:
            for left in range(self.size, 0, -len(block)):
                file.write(block[:left])
        return path

    def stop(self):
        self.cluster.end(self.processes)
        remove(self.place)


def bencoded(value):
    if isinstance(value, int):
        return b"i%de" % value
    if isinstance(value, bytes):
        return b"%d:%s" % (len(value), value)
    return b"d" + b"".join(bencoded(key) + bencoded(one) for key, one in sorted(value.items())) + b"e"


class Tracker(http.server.BaseHTTPRequestHandler):
    """Knows all peers from the beginning."""

    addresses = []

    def do_GET(self):
        own = socket.inet_aton(self.client_address[0])
        port = SWARM_PORT.to_bytes(2, "big")
        peers = b"".join(socket.inet_aton(one) + port for one in self.addresses if socket.inet_aton(one) != own)
        text = bencoded({b"interval": 60, b"min interval": 1, b"peers": peers})
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class Swarm(Peer):
    """BitTorrent: the store seeds, and a tracker names all nodes to each."""

    def start(self, nodes):
        self.nodes = nodes
        self.place.mkdir()
        seed = self.content("seed/object")
        pieces = b""
        with open(seed, "rb") as file:
            while piece := file.read(TORRENT_PIECE_BYTES):
                pieces += hashlib.sha1(piece).digest()
        Tracker.addresses = [machine.STORE, *map(machine.address, range(nodes))]
        self.tracker = http.server.ThreadingHTTPServer((machine.HUB, 0), Tracker)
        threading.Thread(target=self.tracker.serve_forever, daemon=True).start()
        announce = f"http://{machine.HUB}:{self.tracker.server_address[1]}/announce"
        self.torrent = self.place / "object.torrent"
        self.torrent.write_bytes(bencoded({b"announce": announce.encode(), b"info": {
            b"length": self.size, b"name": b"object", b"piece length": TORRENT_PIECE_BYTES, b"pieces": pieces}}))
        for node in range(nodes):
            (self.place / f"n{node}").mkdir()
        self.start_programs()

    def stop(self):
        self.tracker.shutdown()
        self.tracker.server_close()
        super().stop()

    def until_all_have_it(self):
        missing = set(range(self.nodes))

        def none_is_missing():
            missing.difference_update([one for one in missing if (self.place / f"n{one}/done").exists()])
            return not missing

        until("the swarm", none_is_missing)


class Aria2(Swarm):
    name = "aria2"

    @staticmethod
    def install():
        return packages.program("aria2c", "aria2")

    def start_programs(self):
        script = self.place / "done.sh"
        script.write_text('#!/bin/sh\n: >"$(dirname "$3")/done"\n')
        script.chmod(0o755)
        common = [self.prepared, "--quiet", f"--listen-port={SWARM_PORT}", "--enable-dht=false", "--enable-dht6=false",
                  "--bt-enable-lpd=false", "--file-allocation=none", "--seed-ratio=0"]
        self.begin("store", [*common, f"--dir={self.place}/seed", "--check-integrity", self.torrent])
        for node in range(self.nodes):
            self.begin(f"n{node}", [*common, f"--dir={self.place}/n{node}", "--enable-rpc", "--rpc-listen-all",
                                    f"--rpc-listen-port={RPC_PORT}", f"--on-bt-download-complete={script}"])
        self.daemons = [xmlrpc.client.ServerProxy(f"http://{machine.address(node)}:{RPC_PORT}/rpc")
                        for node in range(self.nodes)]
        until("aria2", lambda: all(map(self.answers, self.daemons)), 60)

    @staticmethod
    def answers(daemon):
        try:
            return daemon.aria2.getVersion()
        except OSError:
            return None

    def measure(self):
        torrent = xmlrpc.client.Binary(self.torrent.read_bytes())
        begun = time.monotonic()
        for daemon in self.daemons:
            daemon.aria2.addTorrent(torrent)
        self.until_all_have_it()
        return time.monotonic() - begun


LIBTORRENT = """
import os, pathlib, sys, time
import libtorrent

torrent, folder, port, go = sys.argv[1:]
folder = pathlib.Path(folder)
session = libtorrent.session({
    "listen_interfaces": "0.0.0.0:" + port, "enable_dht": False, "enable_lsd": False, "enable_upnp": False,
    "enable_natpmp": False, "enable_outgoing_utp": False, "enable_incoming_utp": False,
})
(folder / "ready").touch()
while go and not os.path.exists(go):
    time.sleep(0.01)
handle = session.add_torrent({"ti": libtorrent.torrent_info(torrent), "save_path": str(folder)})
while not handle.status().is_seeding:
    time.sleep(0.02)
(folder / "done").touch()
while True:
    time.sleep(60)
"""


class Libtorrent(Swarm):
    name = "libtorrent"

    @staticmethod
    def install():
        return str(packages.python("libtorrent"))

    def start_programs(self):
        seed, self.go = self.place / "seed", self.place / "go"
        words = [self.prepared, "-c", LIBTORRENT, self.torrent]
        self.begin("store", [*words, seed, SWARM_PORT, ""])
        folders = [self.place / f"n{node}" for node in range(self.nodes)]
        for node, folder in enumerate(folders):
            self.begin(f"n{node}", [*words, folder, SWARM_PORT, self.go])
        until("libtorrent", lambda: (seed / "done").exists() and all((one / "ready").exists() for one in folders), 120)

    def measure(self):
        begun = time.monotonic()
        self.go.touch()
        self.until_all_have_it()
        return time.monotonic() - begun


class TaskVine(Peer):
    """A task for each worker that reads the object from the web."""

    name = "TaskVine"

    @staticmethod
    def install():
        return str(taskvine.install(packages.home()))

    def start(self, nodes):
        self.place.mkdir()
        self.root = pathlib.Path(self.prepared)
        tasks, self.port = self.place / "tasks", self.place / "port"
        source = f"http://{machine.STORE}:{machine.STORE_PORT}/{self.size}/0"
        tasks.write_text("".join(f"{source} n{node}\n" for node in range(nodes)))
        words = taskvine.command(self.root, "tmp/campaign", "url", str(nodes), self.port, tasks)
        # It writes logs to where it is started.
        self.manager = self.begin("head", ["sh", "-c", 'cd "$0" && exec "$@"', self.place, *words], "manager")
        until("TaskVine's manager", lambda: self.port.exists() and self.port.read_text().endswith("\n"), 60)
        self.nodes = nodes

    def measure(self):
        """The manager begins to count when all workers are there."""
        for node in range(self.nodes):
            folder = self.place / f"worker-{node}"
            folder.mkdir()
            self.begin(f"n{node}", taskvine.command(
                self.root, "usr/bin/vine_worker", "--cores", "1", "--feature", f"n{node}", "--workdir", folder,
                machine.HEAD, self.port.read_text().strip()), "workers")
        if self.manager.wait(machine.SECONDS_MAX) != 0:
            raise RuntimeError((self.place / "manager").read_text()[-2000:])
        self.processes.remove(self.manager)
        self.cluster.processes.remove(self.manager)
        return json.loads((self.place / "manager").read_text().splitlines()[-1])["seconds"]


RAY = """
import sys, time
import numpy, ray

address, own, nodes, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
ray.init(address=address, _node_ip_address=own, log_to_driver=False)
deadline = time.monotonic() + 300
while sum(one["Alive"] for one in ray.nodes()) < nodes + 2:
    if time.monotonic() > deadline:
        sys.exit("not all of Ray's nodes are there")
    time.sleep(0.1)

@ray.remote(num_cpus=0)
def put(size):
    return [ray.put(numpy.ones(size, dtype="u1"))]

@ray.remote(num_cpus=0)
def read(data):
    return len(data)

readers = [read.options(resources={"n%d" % node: 1}) for node in range(nodes)]
# Each node has a worker then.
ray.get([one.remote(b"") for one in readers])
[data] = ray.get(put.options(resources={"store": 1}).remote(size))
begun = time.monotonic()
assert ray.get([one.remote(data) for one in readers]) == [size] * nodes
print(time.monotonic() - begun)
"""


class Ray(Peer):
    """A task on each node that takes the object, which is in the memory of another."""

    name = "Ray"

    @staticmethod
    def install():
        return str(packages.python("ray", "numpy"))

    def start(self, nodes):
        self.place.mkdir()
        self.nodes = nodes
        os.environ.update(RAY_DISABLE_IMPORT_WARNING="1", RAY_USAGE_STATS_ENABLED="0")
        ray = pathlib.Path(self.prepared).with_name("ray")
        head = f"{machine.HEAD}:{RAY_PORT}"
        common = [ray, "start", "--block", "--disable-usage-stats", f"--object-store-memory={max(3 * self.size, 100 << 20)}"]
        self.begin("head", [*common, "--head", f"--port={RAY_PORT}", f"--node-ip-address={machine.HEAD}", "--num-cpus=0",
                            "--include-dashboard=false", f"--temp-dir={self.place}"], "ray-head")
        until("Ray", lambda: self.reaches(machine.HEAD, RAY_PORT), 120)
        for host, own in [("store", machine.STORE), *((f"n{node}", machine.address(node)) for node in range(nodes))]:
            log = f"ray-{host}"
            self.begin(host, [*common, f"--address={head}", f"--node-ip-address={own}", "--num-cpus=1",
                              "--resources=" + json.dumps({host: 1})], log)
            # All at once would take longer than Ray waits for any.
            until("a node of Ray", lambda: "runtime started" in (self.place / log).read_text(), 60)

    @staticmethod
    def reaches(host, port):
        try:
            socket.create_connection((host, port), 1).close()
        except OSError:
            return False
        return True

    def measure(self):
        words = [self.prepared, "-c", RAY, f"{machine.HEAD}:{RAY_PORT}", machine.HEAD, self.nodes, self.size]
        done = self.cluster.run("head", [str(word) for word in words])
        if done.returncode != 0:
            raise RuntimeError(f"Ray: {done.stderr.strip()[-2000:]}")
        return float(done.stdout.split()[-1])


class Sbcast(Peer):
    """Slurm's sbcast from the store to an allocation of all nodes, each with a folder of its
    own for it."""

    name = "sbcast"

    @staticmethod
    def install():
        for program, package in (("slurmctld", "slurmctld"), ("slurmd", "slurmd"), ("sbcast", "slurm-client"),
                                 ("munged", "munge")):
            packages.program(program, package)
        return "there"

    def start(self, nodes):
        self.nodes = nodes
        self.place.mkdir()
        os.chmod(self.place, 0o755)
        for folder in ("state", "bcast", "seed", "munge"):
            (self.place / folder).mkdir(mode=0o755)
        self.content("seed/object")
        key = self.place / "munge/key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        config = self.place / "slurm.conf"
        config.write_text(self.config(nodes))
        # There are no groups in a host's namespace, and nobody uses any.
        (self.place / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        os.environ["SLURM_CONF"] = str(config)
        munge = [f"--{name}={self.place}/munge/{value}" for name, value in (
            ("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))]
        self.begin("head", ["munged", "--foreground", "--force", *munge])
        until("munged", lambda: (self.place / "munge/socket").exists(), 30)
        self.begin("head", ["slurmctld", "-D"])
        for node in range(nodes):
            spool, landing = self.place / f"spool/n{node}", self.place / f"bcast-{node}"
            spool.mkdir(parents=True)
            landing.mkdir()
            # Each host has a mount namespace of its own.
            self.begin(f"n{node}", ["sh", "-c", f"mount --bind {landing} {self.place}/bcast && exec slurmd -D -N n{node}"])
        idle = ["sinfo", "-h", "-N", "-t", "idle", "-o", "%N"]
        until("Slurm", lambda: len(self.cluster.run("head", idle).stdout.split()) == nodes, 120)

    def config(self, nodes):
        host = socket.gethostname().split(".")[0]
        lines = [
            "ClusterName=bench", f"SlurmctldHost={host}({machine.HEAD})", "SlurmUser=root", "SlurmdUser=root",
            f"SlurmctldPort={SLURM_PORTS['slurmctld']}", "AuthType=auth/munge",
            f"AuthInfo=socket={self.place}/munge/socket", "CredType=cred/munge",
            f"StateSaveLocation={self.place}/state", f"SlurmdSpoolDir={self.place}/spool/%n",
            f"SlurmctldPidFile={self.place}/slurmctld.pid", f"SlurmdPidFile={self.place}/slurmd.%n.pid",
            f"SlurmctldLogFile={self.place}/slurmctld.log", f"SlurmdLogFile={self.place}/slurmd.%n.log",
            "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "MpiDefault=none", "SwitchType=switch/none",
            "SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU", "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none", "JobCompType=jobcomp/none", "ReturnToService=2",
            "MessageTimeout=90", "SlurmdParameters=config_overrides", "PropagateResourceLimits=NONE",
        ]
        for node in range(nodes):
            lines.append(f"NodeName=n{node} NodeHostname={host} NodeAddr={machine.address(node)} "
                         f"Port={SLURM_PORTS['slurmd']} CPUs=1 RealMemory=1000 State=UNKNOWN")
        lines.append(f"PartitionName=main Nodes=n[0-{nodes - 1}] Default=YES MaxTime=INFINITE State=UP")
        return "\n".join(lines) + "\n"

    def measure(self):
        """Of sbcast alone, in an allocation that is there."""
        script = (f"begun=$(date +%s.%N); sbcast --timeout=600 {self.place}/seed/object {self.place}/bcast/object "
                  "&& ended=$(date +%s.%N) && echo $begun $ended")
        done = self.cluster.run("store", ["salloc", "-Q", "-N", str(self.nodes), "sh", "-c", script])
        landed = [(self.place / f"bcast-{node}/object") for node in range(self.nodes)]
        if done.returncode != 0 or not all(one.exists() and one.stat().st_size == self.size for one in landed):
            raise RuntimeError(f"sbcast: {done.stderr.strip()[-2000:]}")
        begun, ended = map(float, done.stdout.split())
        return ended - begun


PEERS = [Aria2, Libtorrent, TaskVine, Ray, Sbcast]
