"""What large arguments cost, beside copies of memory of the same run.

    FALKON_BINARY=target/release/falkon PYTHONPATH=python python bench/sizes.py [--json]

An array of 1 GB as an argument of one call in each of 4 workers, and one of 100 MB of
200 calls: until all calls have ended, each of which looks at one byte in each page; as
an argument, and with `Executor.put`. The floors are a copy of as many bytes with memcpy,
and a write of them to a file where objects are (`TMPDIR`); all take turns, and medians
are given. `copy of calls` is the time of a copy of memory divided by that of the calls: 1
is as fast as one copy.
"""

import argparse
import json
import os
import statistics
import tempfile
import time

import falkon
import numpy


def touch(array):
    return int(array[::4096].sum())


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def copied(array):
    target = numpy.empty_like(array)
    target[::4096] = 1  # Its pages are there.

    def copy():
        numpy.copyto(target, array)

    return timed(copy)


def written(array):
    with tempfile.TemporaryFile() as file:
        return timed(lambda: file.write(memoryview(array)))


def called(executor, array, calls):
    futures = [executor.submit(touch, array) for _ in range(calls)]
    for future in futures:
        future.result()


def put(executor, array, calls):
    shared = executor.put(array)
    futures = [executor.submit(touch, shared) for _ in range(calls)]
    for future in futures:
        future.result()


def measured(size, calls, workers, rounds):
    found = {"copy": [], "file": [], "calls": [], "put": []}
    with falkon.Executor(max_workers=workers) as executor:
        executor.submit(touch, numpy.zeros(10, numpy.uint8)).result()
        for number in range(0, 2 * rounds, 2):
            # Another content each time: what is known is not put there again.
            array = numpy.full(size, number + 1, numpy.uint8)
            found["copy"].append(copied(array))
            found["file"].append(written(array))
            found["calls"].append(timed(lambda: called(executor, array, calls)))
            array[:] = number + 2
            found["put"].append(timed(lambda: put(executor, array, calls)))
            del array
    seconds = {name: statistics.median(times) for name, times in found.items()}
    return {
        "bytes": size,
        "calls": calls,
        "workers": workers,
        "seconds": seconds,
        "spread": {name: [min(times), max(times)] for name, times in found.items()},
        "ratios": {
            "%s of %s" % (floor, name): seconds[floor] / seconds[name]
            for name in ("calls", "put")
            for floor in ("copy", "file")
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    shapes = [(1_000_000_000, 4, 4), (100_000_000, 200, 4)]
    results = [measured(*shape, options.rounds) for shape in shapes]
    if options.json:
        print(json.dumps({"load": os.getloadavg()[0], "results": results}))
        return
    print("load %.1f" % os.getloadavg()[0])
    for one in results:
        seconds, spread = one["seconds"], one["spread"]
        print("%d bytes, %d calls, %d workers" % (one["bytes"], one["calls"], one["workers"]))
        for name in seconds:
            print("  %-6s %7.3f s (%.3f to %.3f)" % (name, seconds[name], *spread[name]))
        for name, ratio in one["ratios"].items():
            print("  %-14s %5.2f" % (name, ratio))


if __name__ == "__main__":
    main()
