"""A run of all kinds of work at once: tasks of different lengths come at a rate that
grows, read what is in caches, at peers and in the store, and compute, while one node
joins and another dies."""

import json
import math
import os
import statistics
import subprocess
import sys
import time

import machine
import shaped

# Of the run: when a node joins, and when one is killed.
JOINS_AT = 0.25
DIES_AT = 0.6
# How often the rate of arrivals grows, and how.
INTERVALS = 6
FIRST_PER_S = 2
GROWTH = 1.3
MOST_PER_S = 5
# Before tasks come, simulated executors are there.
SIMULATED_FROM_S = 10
POLICY = "max-compute-util"


def workload(seconds):
    """Tasks for so many seconds."""
    tasks, rate = 0, FIRST_PER_S
    for _ in range(INTERVALS):
        tasks += round(rate * seconds / INTERVALS)
        rate = grown(rate)
    return shaped.Workload("mixed", tasks, 200, 2_400_000, 48_000_000, 2_100, "zipf", "compute", 0.8)


def grown(rate):
    return min(-int(-rate * GROWTH // 1), MOST_PER_S)


def arrivals(work, seconds):
    """When each task comes, as the simulator has it."""
    times, begun, rate = [], 0.0, FIRST_PER_S
    while len(times) < work.tasks:
        count = round(rate * seconds / INTERVALS)
        if grown(rate) == rate:
            count = work.tasks
        times += [begun + at / rate for at in range(count)]
        begun, rate = begun + seconds / INTERVALS, grown(rate)
    return times[: work.tasks]


def run_real(cluster, falkon, seconds):
    """Tasks wait for timers, which an executor beside the dispatcher runs: the end of
    its timer is when a task comes."""
    work = workload(seconds)
    services = shaped.Services(cluster, falkon, work)
    for node in range(shaped.NODES - 1):
        services.start_executor(node, ["--resource", "work=2"])
    words = ["--slots", str(work.tasks), "--resource", f"timer={work.tasks}",
             "--cache", f"{services.run}/cache-timers=1000000"]
    services.start("head", [falkon, "executor", *services.access, "--name", "timers", *words], "timers.log")
    services.wait_for_executors(shaped.NODES)
    tasks = services.run / "tasks.jsonl"
    with open(tasks, "w", encoding="utf-8") as lines:
        for task, at in enumerate(arrivals(work, seconds)):
            lines.write(json.dumps({"id": f"t{task}", "command": ["@sleep", f"{at:.6f}"],
                                    "resources": {"timer": 1}}) + "\n")
        for task in range(work.tasks):
            one = shaped.task_line(cluster, work, task)
            lines.write(json.dumps({**one, "after": [f"t{task}"], "resources": {"work": 1}}) + "\n")
    machine.counters()
    results = services.run / "results.jsonl"
    process = cluster.start("head", [falkon, "submit", *services.access, "--policy", POLICY, "--wait", "--json",
                                     "--quiet", "--tasks", str(tasks)], "run/results.jsonl")
    machine.wait_for("the first task", lambda: results.stat().st_size > 0)
    begun = time.monotonic()

    loads = []

    def sleep_until(share):
        while time.monotonic() < begun + share * seconds and process.poll() is None:
            loads.append(os.getloadavg()[0])
            time.sleep(max(min(1, begun + share * seconds - time.monotonic()), 0))

    sleep_until(JOINS_AT)
    services.start_executor(shaped.NODES - 1, ["--resource", "work=2"])
    sleep_until(DIES_AT)
    services.kill_executor(0)
    sleep_until(math.inf)
    if process.wait() != 0:
        raise RuntimeError(f"falkon submit: exit status {process.returncode}: {results.read_text()[-2000:]}")
    cluster.processes.remove(process)
    ended = [json.loads(line) for line in results.read_text().splitlines() if line.startswith("{")]
    store = machine.counters()["bytes"]
    services.end()
    return {**summary(ended, work, store), "load": [min(loads), statistics.mean(loads), max(loads)]}


def summary(results, work, store):
    by_index = {result["index"]: result for result in results}
    came = [by_index[task]["times"]["ended"] for task in range(work.tasks)]
    tasks = [by_index[work.tasks + task] for task in range(work.tasks)]
    failed = [one for one in tasks if one["exit_code"] != 0]
    if failed:
        raise RuntimeError(f"{len(failed)} tasks failed, {json.dumps(failed[0])}")
    responses = [one["times"]["delivered"] - at for one, at in zip(tasks, came)]
    executes = [one["times"]["ended"] - one["times"]["started"] for one in tasks]
    read = work.tasks * work.object_bytes
    sums = {source: sum(one["data"][source]["bytes"] for one in tasks) for source in ("local", "peer", "store")}
    return {"makespan_s": max(one["times"]["delivered"] for one in tasks) - min(came),
            "response_s": statistics.mean(responses), "response_p95_s": at_share(responses, 0.95),
            "execute_s": statistics.mean(executes),
            "wait_s": statistics.mean(one["times"]["started"] - at for one, at in zip(tasks, came)),
            "store_share": store / read, "sums": sums,
            "tried_again": sum(one["attempts"] > 1 for one in tasks)}


def at_share(values, share):
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def run_simulated(falkon, seconds, operation_s):
    work = workload(seconds)
    nodes = [(1, f"until = {SIMULATED_FROM_S + DIES_AT * seconds}"), (shaped.NODES - 2, ""),
             (1, f"from = {SIMULATED_FROM_S + JOINS_AT * seconds}")]
    workload_toml = (f"from = {SIMULATED_FROM_S}\narrivals = {{ rate = {FIRST_PER_S}, factor = {GROWTH}, "
                     f"max = {MOST_PER_S}, interval = {seconds / INTERVALS} }}")
    run = shaped.call_with_file(falkon, "sim", shaped.scenario(
        work, POLICY, operation_s, nodes=nodes, workload_more=workload_toml, more="[client]\nbundle = 0\n"))
    read = run["reads"]["bytes"]
    return {"makespan_s": run["makespan_s"], "response_s": run["response"]["mean_s"],
            "response_p95_s": run["response"]["p95_s"], "execute_s": run["execute_s"], "wait_s": run["wait_s"],
            "store_share": run["store_bytes"] / read, "peer_share": run["peer"]["bytes"] / read,
            "runs": run["runs"]}


def main(cluster, falkon, seconds, operation_s):
    begun = time.time()
    simulated = run_simulated(falkon, seconds, operation_s)
    print(f"simulated in {time.time() - begun:.1f} s: {json.dumps(simulated)}", file=sys.stderr, flush=True)
    real = run_real(cluster, falkon, seconds)
    print(json.dumps({"workload": "mixed", "seconds": seconds, "tasks": workload(seconds).tasks,
                      "real": real, "simulated": simulated}), flush=True)
    print(f"{'':16}{'real':>10}{'simulated':>10}{'error':>10}")
    for name in ("makespan_s", "response_s", "response_p95_s", "execute_s"):
        error = simulated[name] / real[name] - 1
        print(f"{name:16}{real[name]:10.3f}{simulated[name]:10.3f}{100 * error:8.1f} %")
