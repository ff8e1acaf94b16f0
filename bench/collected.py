"""What small outputs cost: as files, collected in an archive, and packed afterwards.

    FALKON_BINARY=target/release/falkon python3 bench/collected.py [--tasks N] [--bytes B] [--rounds R] [--directory DIR] [--json]

Python functions write so many random bytes each, through `falkon run` on this machine: nothing,
a file for each (`--output o=out/N`), a member for each (`--output o=out.zip!N`), and a file
for each that `zip -0` packs afterwards. A table shows the seconds from start to end, with the
lowest and the highest of the rounds, what the outputs cost beyond the tasks without any, and
how many files there are in the end. DIR is where the outputs go: by default, a temporary one.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

FALKON = os.environ.get("FALKON_BINARY", "falkon")
FUNCTION = """import os

def nothing(*_):
    os.urandom(%(bytes)d)

def output(*_):
    with open("o", "wb") as file:
        file.write(os.urandom(%(bytes)d))
"""
KINDS = {
    "no outputs": ("nothing", []),
    "files": ("output", ["--output", "o=out/{}"]),
    "members": ("output", ["--output", "o=out.zip!{}"]),
    "files, zip -0": ("output", ["--output", "o=out/{}"]),
}


def measure(kind, directory, tasks):
    """Seconds from start to end, and files in the end."""
    function, options = KINDS[kind]
    begun = time.perf_counter()
    subprocess.run([FALKON, "run", "--quiet", "--range", "1-%d" % tasks, *options, "--call",
                    "writer.py:" + function], cwd=directory, check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    if "zip" in kind:
        subprocess.run(["zip", "-0", "-q", "-r", "-m", "packed.zip", "out"], cwd=directory, check=True)
    # What is not on the disk is not there yet.
    os.sync()
    seconds = time.perf_counter() - begun
    files = sum(len(files) for _, _, files in os.walk(directory)) - 1
    return seconds, files


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", type=int, default=20000)
    parser.add_argument("--bytes", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if "zip" not in kind or shutil.which("zip")]
    runs = {kind: [] for kind in kinds}
    files = {}
    for _ in range(options.rounds):
        for kind in kinds:
            with tempfile.TemporaryDirectory(prefix="falkon-collected-", dir=options.directory) as directory:
                pathlib.Path(directory, "writer.py").write_text(FUNCTION % {"bytes": options.bytes})
                seconds, files[kind] = measure(kind, directory, options.tasks)
                runs[kind].append(seconds)
    least = statistics.median(runs["no outputs"])
    rows = [{"outputs": kind, "seconds": statistics.median(all), "min": min(all), "max": max(all),
             "cost": statistics.median(all) / least, "files": files[kind]} for kind, all in runs.items()]
    if options.json:
        print(json.dumps({"tasks": options.tasks, "bytes": options.bytes, "load": os.getloadavg()[0],
                          "rows": rows}))
        return
    print("%d tasks with %d bytes each, median of %d rounds" % (options.tasks, options.bytes, options.rounds))
    print("%-14s %8s %16s %22s %8s" % ("outputs", "seconds", "lowest, highest", "relative to none", "files"))
    for row in rows:
        spread = "%.2f to %.2f" % (row["min"], row["max"])
        print("%(outputs)-14s %(seconds)8.2f" % row, "%16s %22.2f %8d" % (spread, row["cost"], row["files"]))


main()
