#!/usr/bin/env python3
"""Real tasks with log-normal memory: with `--memory auto`, with a fixed safe maximum, and as
an oracle would run them, who knows how much each will have.

    FALKON_BINARY=target/release/falkon python3 bench/memory_auto.py [--tasks 500] [--rounds 1] [--json]

Each task fills its memory, and waits for the rest of its time. A node offers 16 slots and
8 GiB; the median of the tasks is 192 MiB, sigma 0.5, each of 1 to 3 seconds, so that what is
scarce is the slots with the right sizes and memory with the safe one. A table shows, for each
way, the time from the first start to the last end, and how many tries were lost as they had
outgrown their size.
"""

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile

from shares import falkon, node

SLOTS, NODE_MIB = 16, 8192
MEDIAN_MIB, SIGMA = 192, 0.5
# The memory of an interpreter beside the bytes that it fills, rounded up.
INTERPRETER_MIB = 24
FILL = "import sys, time; began = time.monotonic(); held = b'x' * (int(sys.argv[1]) << 20); " \
       "time.sleep(max(0, float(sys.argv[2]) - time.monotonic() + began))"


def write(path, tasks, claims):
    """A task file, in which each task claims what it is said to."""
    with open(path, "w", encoding="utf-8") as file:
        for (peak, seconds), claim in zip(tasks, claims):
            command = [sys.executable, "-S", "-c", FILL, str(peak), "%.2f" % seconds]
            file.write(json.dumps({"command": command, "memory": claim}) + "\n")


def makespan(access, path):
    """From the first start to the last end, and how many tries were lost."""
    instance = falkon("submit", access, "--tasks", path)
    falkon("wait", access, instance)
    results = [json.loads(line) for line in falkon("results", access, instance, "--json").splitlines()]
    failed = [one for one in results if one.get("exit_code") != 0]
    if failed:
        sys.exit("a task failed: %s" % json.dumps(failed[0]))
    times = [one["times"] for one in results]
    took = max(one["ended"] for one in times) - min(one["started"] for one in times)
    return took, sum(one["attempts"] - 1 for one in results)


def measure(tasks):
    """The makespan and the lost tries of each way, on a node of its own."""
    safe = max(peak for peak, _ in tasks) + INTERPRETER_MIB
    ways = {
        "oracle": ["%dMiB" % (peak + INTERPRETER_MIB) for peak, _ in tasks],
        "auto": ["auto"] * len(tasks),
        "safe maximum": ["%dMiB" % safe] * len(tasks),
    }
    found = {}
    for name, claims in ways.items():
        with tempfile.TemporaryDirectory(prefix="falkon-memory-") as directory:
            path = os.path.join(directory, "tasks.jsonl")
            write(path, tasks, claims)
            with node(directory, "--slots", str(SLOTS), "--memory", "%dMiB" % NODE_MIB) as access:
                found[name] = makespan(access, path)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    rounds = []
    for number in range(args.rounds):
        numbers = random.Random(args.seed + number)
        tasks = [(min(NODE_MIB // 2, int(numbers.lognormvariate(0, SIGMA) * MEDIAN_MIB)), numbers.uniform(1, 3))
                 for _ in range(args.tasks)]
        rounds.append(measure(tasks))
    if args.json:
        print(json.dumps({"name": "memory-auto", "machine": platform.platform(), "load": load, "tasks": args.tasks,
                          "seed": args.seed, "rounds": rounds}))
        return
    print("%d tasks, load before %.1f; median and range of %d rounds, seed %d"
          % (args.tasks, load, args.rounds, args.seed))
    print("%-14s %10s %18s %12s %18s" % ("memory", "seconds", "", "lost tries", "auto is, times"))
    for name in rounds[0]:
        took = [one[name][0] for one in rounds]
        ratios = [one[name][0] / one["auto"][0] for one in rounds]
        print("%-14s %10.1f %8.1f to %6.1f %12d %8.2f (%.2f to %.2f)"
              % (name, statistics.median(took), min(took), max(took), sum(one[name][1] for one in rounds),
                 statistics.median(ratios), min(ratios), max(ratios)))


if __name__ == "__main__":
    main()
