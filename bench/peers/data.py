#!/usr/bin/env python3
"""A workload that is about data: 1,000 tasks that each read one of 50 files of
10 MiB, on 3 executors of one core that have caches for all of it. The files
are on a web server.

    bench/peers/data.py [ROUNDS]      default: 3

Each round runs it with the tasks shuffled and sorted by file, under the default
policy and under queue-aware: time from the submission, client included, to the
last result; share of inputs that the executor held when they were wanted; bytes
that the web server sent, and that executors got from each other for tasks that
waited. Beside it TaskVine, which has the files from the web server or from its
manager, as it can be installed (taskvine/taskvine.py); it does not say how many
inputs its workers held, nor what they got from each other.

FALKON is the program [target/release/falkon], PEERS_HOME where TaskVine is kept
[~/.cache/falkon-peers], PEERS_JSON a file to which the figures are added.
"""

import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "data"), str(HERE / "taskvine")]
import machine
import packages
import taskvine

FILES = 50
FILE_BYTES = 10 << 20
TASKS = 1000
EXECUTORS = 3


def wait_for(path, text, count):
    deadline = time.monotonic() + 60
    while path.read_text().count(text) < count:
        if time.monotonic() > deadline:
            sys.exit(f"waited 60 s for '{text}' in:\n{path.read_text()}")
        time.sleep(0.01)


def run(falkon, site, store, tasks, policy):
    """Seconds, hit ratio, and MB from the store and from peers, of one run with
    empty caches."""
    store.bytes = 0
    with tempfile.TemporaryDirectory(dir=site) as scratch:
        scratch = pathlib.Path(scratch)
        log = scratch / "log"
        access = ["--access", str(scratch / "d/access.json")]
        with open(log, "wb") as output:
            def start(*words):
                return subprocess.Popen([falkon, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output)

            services = [start("start", "--dir", str(scratch / "d"))]
            try:
                wait_for(log, "dispatcher at ", 1)
                for number in range(EXECUTORS):
                    services.append(start("executor", *access, "--name", f"e{number}", "--slots", "1",
                                          "--cache", f"{scratch}/cache-{number}=2GiB"))
                wait_for(log, " joined", EXECUTORS)
                begun = time.monotonic()
                done = subprocess.run([falkon, "submit", *access, "--policy", policy, "--wait", "--json",
                                       "--tasks", str(tasks)], capture_output=True, text=True)
                seconds = time.monotonic() - begun
            finally:
                for service in reversed(services):
                    service.terminate()
                    service.wait()
        if done.returncode != 0:
            sys.exit(f"falkon submit failed:\n{done.stderr}")
    data = [json.loads(line)["data"] for line in done.stdout.splitlines()]
    hits = sum(one["local"]["objects"] for one in data) / TASKS
    return seconds, hits, store.bytes / 1e6, sum(one["peer"]["bytes"] for one in data) / 1e6


def task_file(site, order, source):
    """The tasks as `falkon submit` takes them."""
    tasks = pathlib.Path(site, "tasks.jsonl")
    with open(tasks, "w", encoding="utf-8") as lines:
        for number in order:
            lines.write(json.dumps({"command": ["/bin/true"], "inputs": [f"in={source}/{number}"]}) + "\n")
    return tasks


def run_taskvine(root, site, store, order, mode, source):
    """As `run`, of TaskVine."""
    tasks = pathlib.Path(site, "taskvine.tasks")
    tasks.write_text("".join(f"{source}/{number}\n" for number in order))
    store.bytes = 0
    with tempfile.TemporaryDirectory(dir=site) as scratch:
        seconds, sent = taskvine.run(root, scratch, mode, EXECUTORS, tasks)
    return seconds, None, (sent + store.bytes) / 1e6, None


def contenders(falkon, site, store):
    """Those of each order: name, and what runs it."""
    source = f"http://127.0.0.1:{store.server_address[1]}/{FILE_BYTES}"
    found = [
        (f"Falkon, {policy}", lambda order, policy=policy: run(falkon, site, store, task_file(site, order, source), policy))
        for policy in ("max-compute-util", "queue-aware")
    ]
    try:
        root = taskvine.install(packages.home())
    except packages.LeftOut as why:
        print(f"left out: {why}")
        return found
    files = pathlib.Path(site, "files")
    files.mkdir()
    for number in range(FILES):
        (files / str(number)).write_bytes(os.urandom(FILE_BYTES))
    name = f"TaskVine {taskvine.version(root)}"
    for words, mode, place in (("files on the web", "url", source), ("files at the manager", "file", files),
                               ("the same, no peers", "nopeers", files)):
        found.append((f"{name}, {words}", lambda order, mode=mode, place=place:
                      run_taskvine(root, site, store, order, mode, place)))
    return found


def main():
    falkon = os.path.abspath(os.environ.get("FALKON", HERE.parents[1] / "target/release/falkon"))
    if not os.access(falkon, os.X_OK):
        sys.exit(f"there is no {falkon}: run make, or say where it is with FALKON=PROGRAM")
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    store = machine.StoreServer("127.0.0.1", 0)
    threading.Thread(target=store.serve_forever, daemon=True).start()
    ordered = [number % FILES for number in range(TASKS)]
    orders = {"shuffled": random.Random(1).sample(ordered, TASKS), "sorted by file": sorted(ordered)}
    with tempfile.TemporaryDirectory() as site:
        runners = contenders(falkon, site, store)
        found = {(order, name): [] for order in orders for name, _ in runners}
        for _ in range(rounds):
            for order, numbers in orders.items():
                for name, runner in runners:
                    found[order, name].append(runner(numbers))
    show(found, rounds)


def show(found, rounds):
    """As a table, and as JSON."""
    print(f"{TASKS} tasks, {FILES} files of {FILE_BYTES >> 20} MiB, {EXECUTORS} executors of one core; "
          f"{rounds} rounds, load {os.getloadavg()[0]:.1f}")
    print(f"{'':16}{'':46}{'s, median':>10}{'least to most':>16}{'own cache':>11}{'MB store':>10}{'MB peers':>10}")
    for (order, name), runs in found.items():
        seconds = [one[0] for one in runs]
        hits, sent, peer = (None if runs[0][at] is None else statistics.median(one[at] for one in runs) for at in (1, 2, 3))
        hits_shown = "" if hits is None else f"{100 * hits:.1f} %"
        peer_shown = "" if peer is None else f"{peer:.0f}"
        print(f"{order:16}{name:46}{statistics.median(seconds):10.2f}{min(seconds):9.2f}-{max(seconds):<6.2f}"
              f"{hits_shown:>11}{sent:10.0f}{peer_shown:>10}")
        if os.environ.get("PEERS_JSON"):
            with open(os.environ["PEERS_JSON"], "a", encoding="utf-8") as lines:
                lines.write(json.dumps({"what": f"data, {order}", "who": name, "seconds": seconds, "hit_ratio": hits,
                                        "store_mb": sent, "peer_mb": peer}) + "\n")


if __name__ == "__main__":
    main()
