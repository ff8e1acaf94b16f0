"""Short Python scripts as a whole, through Falkon and through a forking pool.

    FALKON_BINARY=target/release/falkon PYTHONPATH=python python bench/scripts.py [--json]

Each script of bench/scripts is started as a new process, in turns with each kind of
executor, of two workers each: imports, start, calls and end count. The kinds are Falkon as
it is without options, Falkon with template="fork", and a forking pool. A script's graph of
100 to 1,500 calls is submitted as futures of futures with Falkon; with the standard
library's ProcessPoolExecutor, whose workers are forked, it goes level by level, bags in
chunks. All print the same value, or the benchmark fails. The ratio of a script is that
of the medians of its rounds, to the forking pool's. Needs numpy, scipy, pandas and scikit-learn. Libraries use
one thread in each process (OMP_NUM_THREADS, OPENBLAS_NUM_THREADS). A first round is
dropped; after it Falkon knows the scripts (docs/python-start.md). With --first it knows
none of them.

Then, how long the first result takes with numpy and scipy loaded, from before the executor
is made, beside what importing them takes.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent / "scripts"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "pair")
KINDS = ("falkon", "fork", "pool")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


FIRST = """
import sys, time, multiprocessing, concurrent.futures, falkon
falkon.Executor, concurrent.futures.ProcessPoolExecutor
start = time.perf_counter()
import numpy, scipy.linalg, scipy.optimize
imported = time.perf_counter()
if sys.argv[1] != "pool":
    template = "fork" if sys.argv[1] == "fork" else True
    pool = falkon.Executor(max_workers=2, template=template)
else:
    context = multiprocessing.get_context("fork")
    pool = concurrent.futures.ProcessPoolExecutor(2, mp_context=context)
pool.submit(scipy.linalg.norm, [3, 4]).result()
print(imported - start, time.perf_counter() - imported)
"""


def run(name, kind, variables):
    """Seconds of a script's process, those of processors with all that it started, and
    what it printed."""
    if kind == "fork":
        # Nothing is started early for it, and what is known for the other kind is kept.
        variables = {**variables, "FALKON_START_AHEAD": "0"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, FOLDER / (name + ".py"), kind],
        stdout=subprocess.PIPE,
        env={**os.environ, **ONE_THREAD, **variables},
        check=True,
        text=True,
    )
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, used, done.stdout


def rounds_of(name, rounds, variables):
    """Seconds of each round, by kind, and those of processors. A first round, which is
    dropped, fills caches."""
    taken = {kind: [] for kind in KINDS}
    used = {kind: [] for kind in KINDS}
    for number in range(rounds + 1):
        printed = set()
        for kind in KINDS[number % 3 :] + KINDS[: number % 3]:
            seconds, of_processors, text = run(name, kind, variables)
            printed.add(text)
            if number:
                taken[kind].append(seconds)
                used[kind].append(of_processors)
        if len(printed) > 1:
            sys.exit("%s: the values differ: %s" % (name, ", ".join(map(str.strip, printed))))
    return taken, used


def first_results(rounds):
    """Seconds that imports took, and first results after them, by kind."""
    found = {kind: [] for kind in KINDS}
    imports = []
    for number in range(rounds + 1):
        for kind in KINDS[number % 3 :] + KINDS[: number % 3]:
            command = [sys.executable, "-c", FIRST, kind]
            text = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
            imported, first = map(float, text.split())
            if number:
                imports.append(imported)
                found[kind].append(first)
    return imports, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("scripts", nargs="*", default=SCRIPTS)
    options = parser.parse_args()
    found = {
        "machine": platform.platform(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "scripts": {},
    }
    if not options.json:
        print("Python %(python)s, %(cpus)d CPUs, load %(load).1f, %(machine)s" % found)
        head = ("seconds", "falkon", 'template="fork"', "forking pool", "ratios", "processors")
        print("%-18s %18s %18s %18s %11s %11s" % head)
    variables = {"FALKON_START_AHEAD": "0"} if options.first else {}
    for name in options.scripts:
        taken, used = rounds_of(name, options.rounds, variables)
        medians = {kind: statistics.median(taken[kind]) for kind in KINDS}
        ratio = {kind: medians[kind] / medians["pool"] for kind in KINDS[:-1]}
        # The least is what it takes without what others do to caches.
        of_processors = {kind: min(used[kind]) / min(used["pool"]) for kind in KINDS[:-1]}
        found["scripts"][name] = {
            "seconds": taken,
            "median": medians,
            "ratio": ratio,
            "processor_seconds": used,
            "processor_ratio": of_processors,
        }
        if not options.json:
            texts = ["%.2f (%.2f-%.2f)" % (medians[k], min(taken[k]), max(taken[k])) for k in KINDS]
            both = ["%.2f, %.2f" % tuple(one.values()) for one in (ratio, of_processors)]
            print("%-18s %18s %18s %18s %11s %11s" % (name, *texts, *both), flush=True)
    for what, name in ("ratio", "time"), ("processor_ratio", "processor time"):
        found[what] = {}
        for kind in KINDS[:-1]:
            ratios = [one[what][kind] for one in found["scripts"].values()]
            of_kind = {"median": statistics.median(ratios), "largest": max(ratios)}
            found[what][kind] = of_kind
            if not options.json:
                text = "%s: ratios of %s: median %.2f, largest %.2f"
                print(text % (kind, name, *of_kind.values()), flush=True)
    imports, firsts = first_results(options.rounds)
    found["import_seconds"], found["first_result_seconds"] = imports, firsts
    if options.json:
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        ms = [statistics.median(one) * 1e3 for one in (imports, *firsts.values())]
        text = "imports take %.0f ms; then first results: falkon %.0f ms, fork %.0f ms, pool %.0f ms"
        print(text % tuple(ms))


if __name__ == "__main__":
    main()
