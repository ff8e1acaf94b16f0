"""How near the replay of a recorded run comes to the run.

    FALKON_BINARY=target/release/falkon python3 bench/replay.py [--rounds 1] [--only NAME] [--json]

Eleven runs of different kinds, each recorded and then replayed with nothing changed; and four
that are replayed with other slots, executors, a policy or a cache, and then run that way. A
table shows, for each, the makespan of the run, that of the replay, and by how much of the
first the second is longer.
"""

import argparse
import http.server
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import threading
import time

FALKON = str(pathlib.Path(os.environ.get("FALKON_BINARY", "target/release/falkon")).resolve())
SLOTS = "4"
MIB = 1 << 20


def falkon(*args):
    """Runs a command, some of whose tasks may fail."""
    ran = subprocess.run([FALKON, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if ran.returncode not in (0, 1):
        sys.exit("falkon %s: %s" % (" ".join(args), ran.stderr.strip()))
    return ran.stdout


def run(directory, *args):
    out = os.path.join(directory, "out")
    falkon("run", "-j", SLOTS, "--quiet", "--out", out, *args)
    return out


def tasks(directory, rows):
    path = os.path.join(directory, "tasks.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return run(directory, "--tasks", path)


def shell(script):
    return ["sh", "-c", script]


def short(directory):
    return run(directory, "--range", "1-5000", "--", "true", "{}")


def long(directory):
    return run(directory, "--range", "1-12", "--", *shell("sleep 2"))


def uneven(directory):
    return run(directory, "--range", "1-60", "--", *shell("sleep 0.$(($0 * 37 % 90 + 10))"))


def failing(directory):
    return run(directory, "--range", "1-80", "--retries", "1", "--", *shell("sleep 0.2; exit $(($0 % 4 == 0))"))


def data(directory):
    """Tasks that each read one of few files of a store."""
    paths = [os.path.join(directory, "in.%d" % number) for number in range(12)]
    for path in paths:
        pathlib.Path(path).write_bytes(os.urandom(4 * MIB))
    return tasks(directory, ({"command": shell("cksum < x; sleep 0.2"), "inputs": ["x=%s" % paths[at % 12]]}
                             for at in range(96)))


def written(directory):
    """Tasks that each leave an object in a cache, which another one reads."""
    return tasks(directory, [
        row for at in range(40) for row in (
            {"id": "w%d" % at, "command": shell("head -c %d /dev/zero > y; sleep 0.1" % MIB),
             "outputs": ["y=cache:y%d" % at]},
            {"command": shell("cksum < x; sleep 0.1"), "inputs": ["x=cache:y%d" % at]})])


def chains(directory):
    """Six chains of tasks on four slots."""
    return tasks(directory, ({"id": "%d.%d" % (chain, at), "command": shell("sleep 0.2"),
                              "after": ["%d.%d" % (chain, at - 1)] if at else []}
                             for at in range(12) for chain in range(6)))


def stages(directory):
    """Stages of tasks, each after all of the stage before."""
    return tasks(directory, ({"id": "%d.%d" % (stage, at), "command": shell("sleep 0.%d" % (1 + at % 4)),
                              "after": ["%d.%d" % (stage - 1, one) for one in range(10)] if stage else []}
                             for stage in range(6) for at in range(10)))


def reserving(directory):
    """Tasks of which some take two slots or all four."""
    return tasks(directory, ({"command": shell("sleep 0.%d" % (2 + at % 5)), "cpus": (1, 2, 1, 4)[at % 4]}
                             for at in range(60)))


class Service:
    """A dispatcher, whose events are the record."""

    def __init__(self, directory, *args):
        self.dir = os.path.join(directory, "dispatcher")
        self.access = os.path.join(self.dir, "access.json")
        self.executors = []
        self.process = subprocess.Popen([FALKON, "start", "--listen", "127.0.0.1:0", "--dir", self.dir, *args],
                                        stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if "dispatcher at " in line:
                break
        else:
            sys.exit("the dispatcher does not start")
        os.set_blocking(self.process.stderr.fileno(), False)

    def join(self, slots, *args):
        self.executors.append(subprocess.Popen(
            [FALKON, "executor", "--access", self.access, "--slots", str(slots), *args], stderr=subprocess.DEVNULL))
        return self.executors[-1]

    def submit(self, *args):
        return falkon("submit", "--access", self.access, *args).strip()

    def executors_there(self):
        return len(json.loads(falkon("status", "--access", self.access, "--json"))["executors"])

    def has_executors(self, count):
        while self.executors_there() != count:
            time.sleep(0.1)

    def wait(self, instance):
        falkon("wait", "--access", self.access, instance)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in [*self.executors, self.process]:
            process.terminate()
            process.wait()


def joining(directory):
    """Executors come one after another while tasks run."""
    with Service(directory) as service:
        service.join(1)
        found = service.submit("--range", "1-60", "--", *shell("sleep 0.5"))
        for _ in range(3):
            time.sleep(1.5)
            service.join(1)
        service.wait(found)
    return service.dir


def provisioned(directory):
    """Nodes are acquired for the tasks that wait: two processes of this machine."""
    with Service(directory) as service:
        falkon("provision", "--access", service.access, "add", "local", "--nodes-max", "2", "--idle", "1s")
        service.wait(service.submit("--range", "1-60", "--", *shell("sleep 0.4")))
        service.has_executors(0)
    return service.dir


KINDS = {kind.__name__: kind for kind in (short, long, uneven, failing, data, written, chains, stages,
                                          reserving, joining, provisioned)}


class Store(http.server.ThreadingHTTPServer):
    """A store of small objects, each of which takes a while."""

    daemon_threads = True

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(200)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", "1000")
            self.end_headers()

        def do_GET(self):
            time.sleep(0.4)
            self.do_HEAD()
            self.wfile.write(b"x" * 1000)

        def log_message(self, *_):
            """Says nothing."""

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()


def reading(policy, cache="1MiB"):
    """Tasks that read one of 16 objects each, on two executors with caches."""
    def ran(directory):
        with Store(("127.0.0.1", 0), Store.Answer) as store, Service(directory) as service:
            url = "http://127.0.0.1:%d/" % store.server_address[1]
            path = os.path.join(directory, "tasks.jsonl")
            with open(path, "w", encoding="utf-8") as file:
                for at in range(120):
                    inputs = ["x=%s%d" % (url, at * 7 % 16)]
                    file.write(json.dumps({"command": shell("cksum < x; sleep 0.1"), "inputs": inputs}) + "\n")
            for name in "ab":
                place = "%s=%s" % (os.path.join(directory, name), cache)
                service.join(1, "--cache", place, "--no-mount")
            service.has_executors(2)
            service.wait(service.submit("--policy", policy, "--tasks", path))
        return service.dir
    return ran


def uneven_on(slots, executors):
    def ran(directory):
        with Service(directory) as service:
            for _ in range(executors):
                service.join(slots)
            service.has_executors(executors)
            service.wait(service.submit("--range", "1-48", "--", *shell("sleep 0.$(($0 * 37 % 90 + 10))")))
        return service.dir
    return ran


CHANGES = {
    "slots": (uneven_on(2, 1), ["--slots", "4"], uneven_on(4, 1)),
    "executors": (uneven_on(2, 1), ["--executors", "3"], uneven_on(2, 3)),
    "policy": (reading("first-available"), ["--policy", "max-compute-util"], reading("max-compute-util")),
    "cache": (reading("first-available"), ["--cache", "6000"], reading("first-available", "6000")),
}


def measure(kind):
    """The makespans of a run and of its replay."""
    with tempfile.TemporaryDirectory(prefix="falkon-replay-") as directory:
        found = json.loads(falkon("replay", "--json", kind(directory)))
        return found["recorded"]["makespan_s"], found["replayed"]["makespan_s"]


def predict(recorded, options, changed):
    """The makespans of a changed run, and of the replay that foresaw it."""
    with tempfile.TemporaryDirectory(prefix="falkon-replay-") as directory:
        foreseen = json.loads(falkon("replay", "--json", *options, recorded(directory)))["changed"]["makespan_s"]
    with tempfile.TemporaryDirectory(prefix="falkon-replay-") as directory:
        return json.loads(falkon("replay", "--json", changed(directory)))["recorded"]["makespan_s"], foreseen


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=[*KINDS, *CHANGES], action="append")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    rows = []
    for name in args.only or [*KINDS, *CHANGES]:
        once = (lambda: measure(KINDS[name])) if name in KINDS else (lambda: predict(*CHANGES[name]))
        found = [once() for _ in range(args.rounds)]
        rows.append({"name": name, "ran_s": [one for one, _ in found],
                     "replayed_s": [other for _, other in found],
                     "rounds": [100.0 * (other / one - 1.0) for one, other in found]})
    if args.json:
        print(json.dumps({"name": "replay", "machine": platform.platform(), "load": load, "rows": rows}))
        return
    print("load before %.1f" % load)
    print("%-12s %12s %12s  %s" % ("run", "ran, s", "replayed, s", "longer by, %"))
    for row in rows:
        print("%-12s %12.3f %12.3f  %s" % (row["name"], row["ran_s"][-1], row["replayed_s"][-1],
                                           " ".join("%+.1f" % one for one in row["rounds"])))


if __name__ == "__main__":
    main()
