"""A small cluster on one machine: network namespaces joined by links of limited
bandwidth, disks and processors that are limited too, a web server as the persistent
store, and Falkon's own services.

Everything is in mount, network and process namespaces of its own (`isolate`),
so that nothing is left behind however the program ends.
"""

import http.client
import http.server
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time

import disk

WORK = pathlib.Path("/run/work")
STORE_PORT = 8000
HUB = "10.77.0.254"
HEAD = "10.77.0.1"
STORE = "10.77.0.2"
MTU = 1500
# Of each frame on a link, what the application sees: the rest is Ethernet, IP
# and TCP with time stamps.
PAYLOAD_SHARE = (MTU - 52) / (MTU + 14)
# A link may get ahead of its rate by so much: more than what it carries between
# two ticks of the kernel's clock at the rates here.
BURST_BYTES = 1 << 16
# What a link holds until it is sent; TCP takes losses for a sign to slow down.
# Short, so that small messages do not wait long behind large ones.
QUEUE_BYTES = 1 << 18
# How TCP finds its pace: as Linux does unless told otherwise, whatever this machine was
# told. Two connections of BBR that share a link with so short a queue overfill it.
CONGESTION = "cubic"
SECONDS_MAX = 900
# Control groups of the tasks that compute, and the weight that they have together
# beside all else on the machine.
GROUPS = pathlib.Path("/run/groups")
GROUP_WEIGHT = 10_000


def isolate():
    """Runs this program again in namespaces of its own, which end with it."""
    if os.environ.get("FALKON_BENCH_ISOLATED") == "1":
        disk.prefer_session()
        return
    for tool in ("ip", "tc", "unshare", "setpriv", "rustc"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is not there: install iproute2, util-linux and Rust")
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        command += ["--map-root-user"]
    os.environ["FALKON_BENCH_ISOLATED"] = "1"
    disk.run_apart([*command, sys.executable, *sys.argv])


def sh(*words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def address(node):
    return f"10.77.0.{10 + node}"


def limit(tc, device, bandwidth):
    """Limits what leaves by a device to so many bytes of payload per second."""
    rate = f"{round(8 * bandwidth / PAYLOAD_SHARE)}bit"
    sh(*tc, "qdisc", "add", "dev", device, "root", "handle", "1:", "tbf",
       "rate", rate, "burst", str(BURST_BYTES), "limit", str(QUEUE_BYTES))


class Cluster:
    """Hosts on one switch: `head`, `store` and nodes `n0`, `n1`, ....

    Bandwidths are bytes per second of payload, in each direction; the head's
    link has no limit."""

    def __init__(self, nodes, node_bandwidth, store_bandwidth, far=None):
        """`far` is the first node of a second site with a switch of its own, and the
        bandwidth of the link between the two sites."""
        self.nodes = nodes
        self.processes = []
        self.groups = None
        sh("mount", "-t", "tmpfs", "tmpfs", "/run")
        for folder in (WORK / "tmp", pathlib.Path("/run/netns")):
            folder.mkdir(parents=True)
        sh("ip", "link", "set", "lo", "up")
        sh("ip", "link", "add", "switch", "mtu", str(MTU), "type", "bridge")
        sh("ip", "addr", "add", f"{HUB}/24", "dev", "switch")
        sh("ip", "link", "set", "switch", "up")
        self.host("head", HEAD, None)
        self.host("store", STORE, store_bandwidth)
        first_far, between = far or (nodes, None)
        if far is not None:
            self.far_site(between)
        for node in range(nodes):
            self.host(f"n{node}", address(node), node_bandwidth, "switch" if node < first_far else "far")

    def far_site(self, bandwidth):
        sh("ip", "link", "add", "far", "mtu", str(MTU), "type", "bridge")
        sh("ip", "link", "set", "far", "up")
        sh("ip", "link", "add", "to-far", "mtu", str(MTU), "type", "veth",
           "peer", "name", "from-far", "mtu", str(MTU))
        sh("ip", "link", "set", "to-far", "master", "switch", "up")
        sh("ip", "link", "set", "from-far", "master", "far", "up")
        for device in ("to-far", "from-far"):
            limit(("tc",), device, bandwidth)

    def between_sites(self):
        """Bytes of payload that have gone to the far site and come from it, about."""
        counts = json.loads(sh("ip", "-s", "-j", "link", "show", "dev", "to-far"))[0]["stats64"]
        return PAYLOAD_SHARE * counts["tx"]["bytes"], PAYLOAD_SHARE * counts["rx"]["bytes"]

    def host(self, name, ip, bandwidth, switch="switch"):
        sh("ip", "netns", "add", name)
        port = f"to-{name}"
        sh("ip", "link", "add", port, "mtu", str(MTU), "type", "veth",
           "peer", "name", "eth0", "mtu", str(MTU), "netns", name)
        sh("ip", "link", "set", port, "master", switch, "up")
        inside = ("ip", "-n", name)
        sh(*inside, "addr", "add", f"{ip}/24", "dev", "eth0")
        sh(*inside, "link", "set", "eth0", "up")
        sh(*inside, "link", "set", "lo", "up")
        sh(*inside, "route", "replace", "10.77.0.0/24", "dev", "eth0", "proto", "kernel",
           "scope", "link", "src", ip, "congctl", CONGESTION)
        if bandwidth is not None:
            limit(("tc",), port, bandwidth)
            limit(("tc", "-n", name), "eth0", bandwidth)

    def limit_disks(self, read_bytes_per_s, write_bytes_per_s):
        """Gives each node a disk of its own: nothing of it is kept in memory."""
        for node in range(self.nodes):
            folder = WORK / f"disk-{node}.files"
            for place in (folder, self.disk(node)):
                place.mkdir()
            disk.limited(self.disk(node), folder, read_bytes_per_s, write_bytes_per_s)

    def disk(self, node):
        return WORK / f"disk-{node}"

    def limit_processors(self):
        """Makes a place for control groups of the tasks; `ungroup` removes it."""
        GROUPS.mkdir()
        try:
            sh("mount", "-t", "cgroup", "-o", "cpu", "cgroup", str(GROUPS))
            weight, value = "cpu.shares", 262144
        except RuntimeError:
            sh("mount", "-t", "cgroup2", "cgroup2", str(GROUPS))
            weight, value = "cpu.weight", GROUP_WEIGHT
        self.groups = GROUPS / f"falkon-shaped-{time.time_ns()}"
        self.groups.mkdir()
        (self.groups / weight).write_text(str(value))
        if weight == "cpu.weight":
            (self.groups / "cgroup.subtree_control").write_text("+cpu")
        (self.groups / "outside").mkdir()

    def ungroup(self):
        if self.groups is None:
            return
        for group in [*self.groups.iterdir(), self.groups]:
            if group.is_dir():
                wait_for(f"the processes of {group} to end", lambda: removed(group))

    def start(self, host, words, log):
        environment = dict(os.environ, TMPDIR=str(WORK / "tmp"), HOME=str(WORK))
        with open(WORK / log, "wb") as output:
            process = subprocess.Popen(
                ["ip", "netns", "exec", host, *words],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
        self.processes.append(process)
        return process

    def run(self, host, words):
        environment = dict(os.environ, TMPDIR=str(WORK / "tmp"), HOME=str(WORK))
        return subprocess.run(["ip", "netns", "exec", host, *words], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, env=environment, timeout=SECONDS_MAX)

    def received(self):
        """Bytes of payload that have come to all nodes so far, about."""
        links = json.loads(sh("ip", "-s", "-j", "link", "show"))
        sent = {link["ifname"]: link["stats64"]["tx"]["bytes"] for link in links}
        return PAYLOAD_SHARE * sum(sent[f"to-n{node}"] for node in range(self.nodes))

    def left_store(self):
        """Bytes of payload that the store has sent so far, about."""
        links = json.loads(sh("ip", "-s", "-j", "link", "show", "dev", "to-store"))
        return PAYLOAD_SHARE * links[0]["stats64"]["rx"]["bytes"]

    def end(self, processes):
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)
            self.processes.remove(process)


def removed(group):
    try:
        group.rmdir()
    except OSError:
        return False
    return True


def wait_for(what, condition):
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited 60 s for {what}")
        time.sleep(0.01)


class StoreServer(http.server.ThreadingHTTPServer):
    """Objects `/SIZE/NUMBER` of so many bytes, whole or in ranges, and how many
    bytes of them were sent."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address="0.0.0.0", port=STORE_PORT):
        super().__init__((address, port), StoreHandler)
        self.lock = threading.Lock()
        self.gets = self.bytes = 0


class StoreHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Heads and bodies are written apart: they are not to wait for each other.
    disable_nagle_algorithm = True
    contents = memoryview(bytes(range(256)) * 4096)

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, with_body):
        if self.path == "/counters":
            with self.server.lock:
                text = json.dumps({"gets": self.server.gets, "bytes": self.server.bytes}).encode()
                self.server.gets = self.server.bytes = 0
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            return
        size = int(self.path.split("/")[1])
        first, last = 0, size - 1
        wanted = self.headers.get("Range")
        if wanted is not None:
            begin, end = wanted.removeprefix("bytes=").split("-")
            first, last = int(begin), min(int(end or last), last)
        self.send_response(200 if wanted is None else 206)
        if wanted is not None:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("ETag", '"1"')
        self.end_headers()
        if with_body:
            self.body(last - first + 1)

    def body(self, left):
        with self.server.lock:
            self.server.gets += 1
        while left > 0:
            piece = self.contents[: min(left, 1 << 16)]
            self.wfile.write(piece)
            left -= len(piece)
            with self.server.lock:
                self.server.bytes += len(piece)

    def log_message(self, *_):
        pass


def counters():
    """What the store has sent since this was last asked."""
    connection = http.client.HTTPConnection(STORE, STORE_PORT, timeout=60)
    connection.request("GET", "/counters")
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def start_store(cluster):
    cluster.start("store", [sys.executable, __file__, "serve"], "store.log")

    def answers():
        try:
            counters()
        except OSError:
            return False
        return True

    wait_for("the store", answers)


def measure_store(cluster):
    """Seconds for a byte, and bytes per second of a large object, as a node
    sees them."""
    done = cluster.run("n0", [sys.executable, __file__, "probe"])
    if done.returncode != 0:
        raise RuntimeError(f"the store cannot be reached: {done.stderr.strip()}")
    return json.loads(done.stdout)


def probe():
    connection = http.client.HTTPConnection(STORE, STORE_PORT, timeout=60)

    def get(size):
        begun = time.monotonic()
        connection.request("GET", f"/{size}/0")
        connection.getresponse().read()
        return time.monotonic() - begun

    get(1)
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    operation = statistics.median(get(1) for _ in range(21))
    large = 8 << 20
    print(json.dumps({"operation_s": operation, "bytes_per_s": large / get(large)}))


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        disk.prefer()
        StoreServer().serve_forever()
    elif sys.argv[1:] == ["probe"]:
        probe()
