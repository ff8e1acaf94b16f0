"""How evenly instances share the slots of real executors.

    FALKON_BINARY=target/release/falkon python3 bench/shares.py [--seconds 60] [--slots 2] [--rounds 1] [--json]

Three instances have tasks throughout: of 1 s, of 50 ms, and /bin/true. A table shows, for
each round, how many tasks of each ended within the time, and how long they ran, as a part
of an equal share: a third of what all three were given. 1 is fair. The first tasks of each
count: nothing is known of their run times yet.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

FALKON = str(pathlib.Path(os.environ.get("FALKON_BINARY", "target/release/falkon")).resolve())
COMMANDS = {
    "sleep 1": (1.0, ["sh", "-c", "sleep 1"]),
    "sleep 0.05": (0.05, ["sh", "-c", "sleep 0.05"]),
    "/bin/true": (0.0002, ["/bin/true"]),
}


def start(directory):
    """A dispatcher, and how its clients find it."""
    access = os.path.join(directory, "access.json")
    dispatcher = subprocess.Popen([FALKON, "start", "--listen", "127.0.0.1:0", "--dir", directory],
                                  stderr=subprocess.PIPE, text=True)
    for line in dispatcher.stderr:
        if "dispatcher at " in line:
            break
    else:
        sys.exit("the dispatcher does not start")
    # Its later output is not read, and must not hold it up.
    os.set_blocking(dispatcher.stderr.fileno(), False)
    return dispatcher, access


@contextlib.contextmanager
def node(directory, *options):
    """A dispatcher with one executor, and how its clients find it."""
    dispatcher, access = start(directory)
    executor = subprocess.Popen([FALKON, "executor", "--access", access, *options], stderr=subprocess.DEVNULL)
    try:
        yield access
    finally:
        for process in (executor, dispatcher):
            process.kill()
            process.wait()


def falkon(command, access, *args):
    ran = subprocess.run([FALKON, command, "--access", access, *args],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return ran.stdout.strip()


def given(results, begun, ended):
    """How many tasks ended within a time, and the seconds that they ran within it."""
    tasks, seconds = 0, 0.0
    for line in results.splitlines():
        times = json.loads(line)["times"]
        within = min(times["ended"], ended) - max(times["started"], begun)
        seconds += max(within, 0.0)
        tasks += begun <= times["ended"] <= ended
    return tasks, seconds


def measure(seconds, slots):
    with tempfile.TemporaryDirectory(prefix="falkon-shares-") as directory:
        with node(directory, "--slots", str(slots)) as access:
            ids, begun = {}, time.time()
            for name, (task_seconds, command) in COMMANDS.items():
                count = int(slots * seconds / task_seconds) + slots
                ids[name] = falkon("submit", access, "--range", f"1-{count}", "--", *command)
            time.sleep(max(0.0, begun + seconds - time.time()))
            ended = time.time()
            return {name: given(falkon("results", access, "--json", "--no-wait", found), begun, ended)
                    for name, found in ids.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    rounds = [measure(args.seconds, args.slots) for _ in range(args.rounds)]
    equal = [sum(seconds for _, seconds in found.values()) / len(found) for found in rounds]
    rows = [{"name": name, "tasks": [found[name][0] for found in rounds],
             "rounds": [found[name][1] / share for found, share in zip(rounds, equal)]}
            for name in COMMANDS]
    if args.json:
        print(json.dumps({"name": "shares", "machine": platform.platform(), "duration": args.seconds,
                          "slots": args.slots, "load": load, "rows": rows}))
        return
    print("%d slots for %.0f s, load before %.1f" % (args.slots, args.seconds, load))
    print("%-12s %20s  %s" % ("tasks of", "ended", "ran, of an equal share"))
    for row in rows:
        print("%-12s %20s  %s" % (row["name"], " ".join(map(str, row["tasks"])),
                                  " ".join("%.2f" % one for one in row["rounds"])))


if __name__ == "__main__":
    main()
