"""How fast calls from Python are, beside the standard library's pool.

    FALKON_BINARY=target/release/falkon PYTHONPATH=python python bench/python.py [--json]

Submits no-op calls one by one and takes a future for each; then makes calls one
after another. The executors take turns, and medians of the rounds are given.
"""

import argparse
import concurrent.futures
import json
import os
import platform
import statistics
import sys
import time

import falkon


def noop():
    return None


def throughput(executor, calls):
    start = time.perf_counter()
    futures = [executor.submit(noop) for _ in range(calls)]
    for future in futures:
        future.result()
    return calls / (time.perf_counter() - start)


def latencies(executor, calls):
    taken = []
    for _ in range(calls):
        start = time.perf_counter()
        executor.submit(noop).result()
        taken.append((time.perf_counter() - start) * 1e6)
    return taken


def memory_per_future(calls):
    """Resident bytes of this process for each future that is pending."""
    with falkon.Executor(max_workers=1) as executor:
        executor.submit(noop).result()
        before = resident()
        blocked = executor.submit(time.sleep, 3600)
        futures = [executor.submit(noop) for _ in range(calls)]
        after = resident()
        blocked.cancel()
        futures[-1].result()
        return (after - before) / calls


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--peer-calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pending", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    rates = {"falkon": [], "ProcessPoolExecutor": []}
    round_trips = {"falkon": [], "ProcessPoolExecutor": []}
    start = time.perf_counter()
    with falkon.Executor(max_workers=options.workers) as ours:
        ours.submit(noop).result()
        ready = time.perf_counter() - start
        with concurrent.futures.ProcessPoolExecutor(options.workers) as theirs:
            pools = {"falkon": (ours, options.calls), "ProcessPoolExecutor": (theirs, options.peer_calls)}
            for executor, calls in pools.values():
                throughput(executor, calls // 10)
            for _ in range(options.rounds):
                for name, (executor, calls) in pools.items():
                    rates[name].append(throughput(executor, calls))
                    round_trips[name] += latencies(executor, 1000)
    per_future = memory_per_future(options.pending)

    found = {
        "machine": platform.platform(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "first_result_seconds": ready,
        "pending": options.pending,
        "bytes_per_pending_future": per_future,
    }
    for name in rates:
        trips = sorted(round_trips[name])
        found[name] = {
            "calls_per_second": statistics.median(rates[name]),
            "spread": [min(rates[name]), max(rates[name])],
            "round_trip_us": {"p50": trips[len(trips) // 2], "p99": trips[len(trips) * 99 // 100]},
        }
    ratio = found["falkon"]["calls_per_second"] / found["ProcessPoolExecutor"]["calls_per_second"]
    found["ratio"] = ratio
    if options.json:
        json.dump(found, sys.stdout, indent=2)
        print()
        return
    print("Python %(python)s, %(cpus)d CPUs, load %(load).1f, %(machine)s" % found)
    print("%-20s %12s %26s %10s %10s" % ("", "calls/s", "spread", "p50 us", "p99 us"))
    for name in rates:
        one = found[name]
        spread = "%.0f-%.0f" % tuple(one["spread"])
        trip = one["round_trip_us"]
        row = (name, one["calls_per_second"], spread, trip["p50"], trip["p99"])
        print("%-20s %12.0f %26s %10.0f %10.0f" % row)
    print("ratio: %.1f" % ratio)
    print("first result after %.0f ms; %.0f bytes per pending future (of %d)" % (
        ready * 1000, per_future, options.pending))


if __name__ == "__main__":
    main()
