"""A screen in three stages over a store where names take time: files, or members of archives.

    FALKON_BINARY=target/release/falkon python3 bench/docking.py [--tasks N] [--rounds N] [--json]

The workflow of section 6 of "Design and Evaluation of a Collective IO Model for Loosely Coupled
Petascale Programming": dock, then summarize, sort and select, then archive. The docking
itself is left out: a Python function writes 10 KB (--bytes) with a score for each of 4,000
molecules (--tasks). The store's creates and opens take 5 ms, one after another (bench/data/disk.py,
over a folder in memory).

Files: stage 1 writes a file for each molecule (`--output o=out/N`), stage 2 is a task that reads
all of them and writes the best hundred, stage 3 packs them with `tar`. Members: stage 1 collects
them (`--output o=out.zip!N`), stage 2 is the same task over `falkon archive get` into its own
directory, and stage 3 has nothing left to do. The best hundred of both must be equal.

Needs /dev/fuse, util-linux, and root or user namespaces.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "data"))
import disk

FALKON = str(pathlib.Path(os.environ.get("FALKON_BINARY", "target/release/falkon")).resolve())
UNLIMITED = 1e12
NAME_S = 0.005
BEST = 100
NICE = -15
DOCK = """import hashlib

def dock(number):
    score = int.from_bytes(hashlib.sha256(number.encode()).digest()[:6], "big")
    with open("o", "w") as file:
        file.write("%%d %%s\\n" %% (score, number))
        file.write("pose\\n" * (%d // 5))
"""
SELECT = """import os, sys

def score(entry):
    with open(entry.path) as file:
        head = file.readline().split()
        file.read()
    return int(head[0]), head[1]

with os.scandir(sys.argv[1]) as entries:
    scores = sorted(score(entry) for entry in entries)
with open("best", "w") as best:
    for one in scores[: %d]:
        print(*one, file=best)
""" % BEST


def isolate():
    """Runs this program again in namespaces of its own: mounts end with it."""
    if os.environ.get("FALKON_BENCH_ISOLATED") == "1":
        return
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        words += ["--map-root-user"]
    else:
        os.nice(NICE)
    os.environ["FALKON_BENCH_ISOLATED"] = "1"
    os.execvp(words[0], [*words, sys.executable, *sys.argv])


def timed(folder, words):
    begun = time.perf_counter()
    subprocess.run(words, cwd=folder, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def screen(options, has_members):
    """The seconds of the stages, and what was selected."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="falkon-docking-", dir="/dev/shm"))
    store, files, near = (place / name for name in ("store", "files", "near"))
    for folder in (store, files, near):
        folder.mkdir()
    (near / "dock.py").write_text(DOCK % options.bytes)
    (near / "select.py").write_text(SELECT)
    served = disk.limited(store, files, UNLIMITED, UNLIMITED, NAME_S, NAME_S)
    run = [FALKON, "run", "--quiet"]
    task = [*run, "--output", "best=" + str(store / "best"), "--input", "select.py=select.py"]
    try:
        target = store / ("out.zip!{}" if has_members else "out/{}")
        dock = [*run, "--range", "1-%d" % options.tasks, "--output", "o=%s" % target, "--call", "dock.py:dock"]
        stages = [timed(near, [*dock, "--", "{}"])]
        if has_members:
            script = "'%s' archive get '%s' --to in && python3 select.py in" % (FALKON, store / "out.zip")
            stages.append(timed(near, [*task, "--", "sh", "-c", script]))
            stages.append(0.0)
        else:
            stages.append(timed(near, [*task, "--", "python3", "select.py", str(store / "out")]))
            stages.append(timed(near, ["tar", "cf", str(store / "out.tar"), "-C", str(store), "out"]))
        return stages, (files / "best").read_text()
    finally:
        served.kill()
        served.wait()
        subprocess.run(["umount", "--lazy", store], check=False)
        shutil.rmtree(place)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", type=int, default=4000)
    parser.add_argument("--bytes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    isolate()
    load = os.getloadavg()[0]
    runs = {"files": [], "members": []}
    for _ in range(options.rounds):
        selected = set()
        for name, stages in runs.items():
            seconds, best = screen(options, name == "members")
            stages.append(seconds)
            selected.add(best)
            print(name, "%.2f, %.2f, %.2f s" % tuple(seconds), file=sys.stderr)
        if len(selected) != 1 or len(selected.pop().splitlines()) != min(BEST, options.tasks):
            sys.exit("the two have not selected the same")
    rows = []
    for stage in range(3):
        ratios = [files[stage] / members[stage] for files, members in zip(runs["files"], runs["members"])
                  if members[stage]]
        rows.append({"name": "stage %d" % (stage + 1), "stage": stage + 1, "ratio": statistics.median(ratios) if ratios else None,
                     "ratio_min": min(ratios, default=None), "ratio_max": max(ratios, default=None),
                     **{name: statistics.median(one[stage] for one in of) for name, of in runs.items()}})
    if options.json:
        print(json.dumps({"tasks": options.tasks, "bytes": options.bytes, "load": load, "rows": rows}))
        return
    print("%-6s %10s %10s %8s" % ("stage", "files, s", "members, s", "ratio"))
    for row in rows:
        ratio = "%.1f" % row["ratio"] if row["ratio"] else ""
        print("%(stage)-6d %(files)10.2f %(members)10.2f" % row, "%8s" % ratio)


main()
