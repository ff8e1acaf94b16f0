"""How fast calls from Python are, beside the standard library's pool.

    FALKON_BINARY=target/release/falkon PYTHONPATH=python python bench/python.py [--json]

Submits no-op calls one by one and takes a future for each; then makes calls one
after another. The executors take turns, and medians of the rounds are given, with the
processor time of all processes that take part, per call. Then
graphs of as many calls, whose arguments are futures: 100 in each of the chains, a
tree in which each call takes what 10 others return, layers of 1,000 of which each
call takes what 3 of the layer before return. And runs of an app's calls, one for each
number: nothing noted, all noted, and resumed, so that all are skipped. Last, what an
import costs, as processor time of an interpreter beyond that of one that does nothing.
"""

import argparse
import concurrent.futures
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import falkon
import processor


def noop():
    return None


def throughput(executor, calls):
    """Calls per second, and microseconds of processor time for each."""
    used, start = processor.seconds(), time.perf_counter()
    futures = [executor.submit(noop) for _ in range(calls)]
    for future in futures:
        future.result()
    taken = time.perf_counter() - start
    return calls / taken, (processor.seconds() - used) * 1e6 / calls


def latencies(executor, calls):
    """Microseconds of each round trip, and of processor time for each."""
    taken = []
    used = processor.seconds()
    for _ in range(calls):
        start = time.perf_counter()
        executor.submit(noop).result()
        taken.append((time.perf_counter() - start) * 1e6)
    return taken, (processor.seconds() - used) * 1e6 / calls


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


def increment(value):
    return value + 1


def total(*values):
    return sum(values)


def chains(executor, calls):
    heads = [executor.submit(increment, 0) for _ in range(calls // 100)]
    futures = list(heads)
    for _ in range(99):
        heads = [executor.submit(increment, head) for head in heads]
        futures += heads
    return futures, lambda: {head.result() for head in heads} == {100}


def fan_in(executor, calls):
    leaves = calls * 9 // 10
    layer = [executor.submit(total, 1) for _ in range(leaves)]
    futures = list(layer)
    while len(layer) > 1:
        layer = [executor.submit(total, *layer[at : at + 10]) for at in range(0, len(layer), 10)]
        futures += layer
    return futures, lambda: layer[0].result() == leaves


def layers(executor, calls):
    rng = random.Random(0)
    layer, values = [executor.submit(total, 1) for _ in range(1000)], [1] * 1000
    futures = list(layer)
    while len(futures) < calls:
        chosen = [rng.sample(range(1000), 3) for _ in range(1000)]
        layer = [executor.submit(total, *[layer[at] for at in three]) for three in chosen]
        values = [sum(values[at] for at in three) for three in chosen]
        futures += layer
    return futures, lambda: [future.result() for future in layer] == values


GRAPHS = {"chains": chains, "fan-in": fan_in, "layers": layers}


def graph_rates(executor, graph, calls):
    """Calls per second: until all are submitted, and until all have ended."""
    start = time.perf_counter()
    futures, is_right = graph(executor, calls)
    submitted = time.perf_counter()
    for future in futures:
        future.result()
    ended = time.perf_counter()
    assert is_right(), graph.__name__
    return len(futures) / (submitted - start), len(futures) / (ended - start)


RUNS = ("run", "run, noted", "run, resumed")


def run_rates(executor, calls):
    """Calls per second of each of the runs: until all have ended."""
    app = falkon.python_app(increment)
    with tempfile.TemporaryDirectory() as folder:
        for resume, skipped in ((None, 0), (folder, 0), (folder, calls)):
            start = time.perf_counter()
            with falkon.run(executor, resume=resume) as run:
                futures = falkon.foreach(app, range(calls))
            yield calls / (time.perf_counter() - start)
            assert run.skipped == skipped
            assert futures[-1].result() == calls


IMPORTS = {
    "import falkon": "import falkon",
    "with falkon.Executor": "import falkon; falkon.Executor",
    "import concurrent.futures": "import concurrent.futures",
    "with ProcessPoolExecutor": "import concurrent.futures; concurrent.futures.ProcessPoolExecutor",
}


def import_ms(rounds):
    """Processor time of each import in milliseconds, the least of some rounds."""
    least = {}
    for _ in range(rounds):
        for name, code in {"": "pass", **IMPORTS}.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            least[name] = min(least.get(name, took), took)
    return {name: (least[name] - least[""]) * 1e3 for name in IMPORTS}


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--peer-calls", type=int, default=20_000)
    parser.add_argument("--graph-calls", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pending", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    rates = {"falkon": [], "ProcessPoolExecutor": []}
    round_trips = {"falkon": [], "ProcessPoolExecutor": []}
    # Processor time per call, of both.
    used = {name: {"call": [], "round trip": []} for name in rates}
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
                    rate, each = throughput(executor, calls)
                    rates[name].append(rate)
                    used[name]["call"].append(each)
                    trips, each = latencies(executor, 1000)
                    round_trips[name].append(sorted(trips))
                    used[name]["round trip"].append(each)
            graphs = {name: [] for name in GRAPHS}
            runs = {name: [] for name in RUNS}
            for _ in range(options.rounds):
                for name, graph in GRAPHS.items():
                    graphs[name].append(graph_rates(ours, graph, options.graph_calls))
                for name, rate in zip(RUNS, run_rates(ours, options.calls)):
                    runs[name].append(rate)
    per_future = memory_per_future(options.pending)
    imports = import_ms(2 + 2 * options.rounds)

    found = {
        "machine": platform.platform(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "first_result_seconds": ready,
        "pending": options.pending,
        "bytes_per_pending_future": per_future,
        "import_ms": imports,
    }
    for name in rates:
        trips = round_trips[name]
        found[name] = {
            "calls_per_second": rates[name],
            "round_trip_us": {
                "p50": [one[len(one) // 2] for one in trips],
                "p99": [one[len(one) * 99 // 100] for one in trips],
            },
            "processor_us": used[name],
        }
    for name, rounds in graphs.items():
        ended = [rate for _, rate in rounds]
        found[name] = {
            "calls_per_second": ended,
            "submitted_per_second": [rate for rate, _ in rounds],
        }
    for name, ended in runs.items():
        found[name] = {"calls_per_second": ended}
    found["ratio"] = [ours / theirs for ours, theirs in zip(*rates.values())]
    if options.json:
        json.dump(found, sys.stdout, indent=2)
        print()
        return
    print("Python %(python)s, %(cpus)d CPUs, load %(load).1f, %(machine)s" % found)
    middle = statistics.median

    def shown(rounds):
        return "%.0f (%.0f-%.0f)" % (middle(rounds), min(rounds), max(rounds))

    head = ("", "calls/s", "processor us", "round trip p50 us", "p99 us", "processor us")
    print("%-20s %28s %13s %22s %8s %13s" % head)
    for name in rates:
        one = found[name]
        trip, each = one["round_trip_us"], one["processor_us"]
        row = (name, shown(one["calls_per_second"]), middle(each["call"]), shown(trip["p50"]),
               middle(trip["p99"]), middle(each["round trip"]))
        print("%-20s %28s %13.1f %22s %8.0f %13.1f" % row)
    print("ratio: %.1f" % middle(found["ratio"]))
    print("%-20s %28s %10s" % ("graph of dependent", "calls/s", "submitted"))
    for name in graphs:
        one = found[name]
        print("%-20s %28s %10.0f" % (name, shown(one["calls_per_second"]), middle(one["submitted_per_second"])))
    print("%-20s %28s" % ("apps", "calls/s"))
    for name in RUNS:
        print("%-20s %28s" % (name, shown(found[name]["calls_per_second"])))
    print("first result after %.0f ms; %.0f bytes per pending future (of %d)" % (
        ready * 1000, per_future, options.pending))
    print("processor time of imports in ms: " + ", ".join("%s %.1f" % one for one in imports.items()))


if __name__ == "__main__":
    main()
