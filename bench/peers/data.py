#!/usr/bin/env python3
"""A workload that is about data: 1,000 tasks that each read one of 50 files of
10 MiB, on 3 executors of one core that have caches for all of it. The files
are on a web server.

    bench/peers/data.py [ROUNDS]      default: 3

Each round runs it with the tasks shuffled and sorted by file, under the default
policy and under queue-aware: time from the submission, client included, to the
last result; share of inputs that the executor held when they were wanted; bytes
that the web server sent, and that executors got from each other for tasks that
waited. FALKON is the program [target/release/falkon].
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
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "data"))
import machine

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
                for service in services:
                    service.wait()
        if done.returncode != 0:
            sys.exit(f"falkon submit failed:\n{done.stderr}")
    data = [json.loads(line)["data"] for line in done.stdout.splitlines()]
    hits = sum(one["local"]["objects"] for one in data) / TASKS
    return seconds, hits, store.bytes / 1e6, sum(one["peer"]["bytes"] for one in data) / 1e6


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    falkon = os.path.abspath(os.environ.get("FALKON", root / "target/release/falkon"))
    if not os.access(falkon, os.X_OK):
        sys.exit(f"there is no {falkon}: run make, or say where it is with FALKON=PROGRAM")
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    store = machine.StoreServer("127.0.0.1", 0)
    threading.Thread(target=store.serve_forever, daemon=True).start()
    source = f"http://127.0.0.1:{store.server_address[1]}/{FILE_BYTES}"
    with tempfile.TemporaryDirectory() as site:
        ordered = [number % FILES for number in range(TASKS)]
        orders = {"shuffled": random.Random(1).sample(ordered, TASKS), "sorted by file": sorted(ordered)}
        contenders = [(order, policy) for order in orders for policy in ("max-compute-util", "queue-aware")]
        found = {contender: [] for contender in contenders}
        for _ in range(rounds):
            for order, policy in contenders:
                tasks = pathlib.Path(site, "tasks.jsonl")
                with open(tasks, "w", encoding="utf-8") as lines:
                    for number in orders[order]:
                        task = {"command": ["/bin/true"], "inputs": [f"in={source}/{number}"]}
                        lines.write(json.dumps(task) + "\n")
                found[order, policy].append(run(falkon, site, store, tasks, policy))
    print(f"{TASKS} tasks, {FILES} files of {FILE_BYTES >> 20} MiB, {EXECUTORS} executors of one core; "
          f"{rounds} rounds, load {os.getloadavg()[0]:.1f}")
    print(f"{'':16}{'policy':18}{'s, median':>10}{'least to most':>16}{'own cache':>11}{'MB store':>10}{'MB peers':>10}")
    for order, policy in contenders:
        runs = found[order, policy]
        seconds = [one[0] for one in runs]
        hits, sent, peer = (statistics.median(one[at] for one in runs) for at in (1, 2, 3))
        print(f"{order:16}{policy:18}{statistics.median(seconds):10.2f}{min(seconds):9.2f}-{max(seconds):<6.2f}"
              f"{100 * hits:9.1f} %{sent:10.0f}{peer:10.0f}")


if __name__ == "__main__":
    main()
