"""How fast Parsl's apps are on Falkon, beside Parsl's own executors.

    FALKON_BINARY=target/release/falkon PYTHONPATH=python python bench/parsl_apps.py [--rounds N] [--json]

Needs Parsl. Calls an app that does nothing so many times (--tasks), one amount after
another in one process, as `parsl-perf --iterate` does, after a few calls that start the
workers. "nothing" is an executor that ends each task while it is submitted: what
Parsl itself takes, and no executor can be faster. Each executor with two workers,
taking turns, in three settings: Parsl as it is configured by default; without its log
(`initialize_logging=False`); and also with Python's collector looking at objects
after each 100,000 new ones instead of 700 (`gc.set_threshold(100_000, 50, 100)`).
Medians of the rounds, least to most; processor time is the whole client process's.
"""

import argparse
import concurrent.futures
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

SETTINGS = ("default", "no log", "no log, rare collections")
EXECUTORS = ("nothing", "falkon", "threads", "htex")
WARM_UP = 100


def executor_of(name):
    if name == "falkon":
        from falkon.parsl import FalkonExecutor

        return FalkonExecutor(max_workers=2)
    if name == "threads":
        from parsl.executors import ThreadPoolExecutor

        return ThreadPoolExecutor(max_threads=2)
    if name == "htex":
        from parsl.executors import HighThroughputExecutor
        from parsl.providers import LocalProvider

        return HighThroughputExecutor(
            max_workers_per_node=2,
            address="127.0.0.1",
            provider=LocalProvider(init_blocks=1, max_blocks=1),
        )
    from parsl.executors.base import ParslExecutor
    from parsl.utils import RepresentationMixin

    class Nothing(ParslExecutor, RepresentationMixin):
        label = "nothing"
        storage_access = working_dir = remote_monitoring_radio = None

        def start(self):
            pass

        def submit(self, func, resource_specification, *args, **kwargs):
            future = concurrent.futures.Future()
            future.set_result(7)
            return future

        def shutdown(self):
            super().shutdown()

    return Nothing()


def seven():
    return 7


def measure(name, setting, amounts):
    """Tasks per second and microseconds of processor time per task, for each amount."""
    import parsl

    if "rare collections" in setting:
        gc.set_threshold(100_000, 50, 100)
    config = parsl.Config(
        executors=[executor_of(name)],
        strategy="none",
        usage_tracking=0,
        initialize_logging="no log" not in setting,
    )
    figures = []
    with parsl.load(config):
        app = parsl.python_app(seven)
        for amount in (WARM_UP, *amounts):
            start, start_cpu = time.perf_counter(), time.process_time()
            futures = [app() for _ in range(amount)]
            for future in concurrent.futures.as_completed(futures):
                assert future.result() == 7
            taken, cpu = time.perf_counter() - start, time.process_time() - start_cpu
            figures.append([amount / taken, cpu / amount * 1e6])
    return figures[1:]


def measured(name, setting, amounts):
    """The same, in a process of its own."""
    command = [sys.executable, os.path.abspath(__file__), "--measure", name, setting]
    command += ["--tasks", ",".join(map(str, amounts))]
    # HighThroughputExecutor finds its programs in the search path.
    places = [os.path.dirname(sys.executable), os.environ["PATH"]]
    paths = map(os.path.abspath, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    environment = dict(os.environ, PATH=os.pathsep.join(places), PYTHONPATH=os.pathsep.join(paths))
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", default="2000,4000,8000,16000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    amounts = [int(amount) for amount in options.tasks.split(",")]
    if options.measure:
        print(json.dumps(measure(*options.measure, amounts)))
        return

    rounds = {(setting, name): [] for setting in SETTINGS for name in EXECUTORS}
    for _ in range(options.rounds):
        for (setting, name), figures in rounds.items():
            figures.append(measured(name, setting, amounts))

    import parsl

    found = {
        "machine": platform.platform(),
        "python": platform.python_version(),
        "parsl": parsl.__version__,
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "tasks": amounts,
    }
    for setting in SETTINGS:
        found[setting] = {}
        for name in EXECUTORS:
            rates = [[rate for rate, _ in one] for one in rounds[setting, name]]
            cpu = [[micros for _, micros in one] for one in rounds[setting, name]]
            found[setting][name] = {
                "tasks_per_second": [statistics.median(all) for all in zip(*rates)],
                "spread": [[min(all), max(all)] for all in zip(*rates)],
                "client_cpu_us": [statistics.median(all) for all in zip(*cpu)],
                # Of those measured right after one another.
                "of_nothing": statistics.median(
                    one[-1][0] / nothing[-1][0]
                    for one, nothing in zip(rounds[setting, name], rounds[setting, "nothing"])
                ),
            }
    if options.json:
        json.dump(found, sys.stdout, indent=2)
        print()
        return
    print("Parsl %(parsl)s, Python %(python)s, %(cpus)d CPUs, load %(load).1f, %(machine)s" % found)
    for setting in SETTINGS:
        columns = "".join("%22d" % amount for amount in amounts)
        print("\n%s: tasks/s\n%-10s%s %12s %12s" % (setting, "", columns, "/ nothing", "CPU us/task"))
        for name, one in found[setting].items():
            columns = "".join(
                "%22s" % ("%.0f (%.0f-%.0f)" % (rate, *spread))
                for rate, spread in zip(one["tasks_per_second"], one["spread"])
            )
            last = (one["of_nothing"], one["client_cpu_us"][-1])
            print("%-10s%s %12.2f %12.0f" % (name, columns, *last))


if __name__ == "__main__":
    main()
