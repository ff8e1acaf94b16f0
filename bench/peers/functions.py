"""Calls a function that does nothing CALLS times through two workers of PEER.

    functions.py PEER CALLS

Prints calls per second, without the start of the workers. Each call is a call
of its own, submitted as the peer's users do it: with its `map` where it has one.
"""

import contextlib
import sys
import time


def noop(value):
    return value


@contextlib.contextmanager
def falkon():
    from falkon import Executor

    with Executor(max_workers=2) as executor:
        yield lambda calls: list(executor.map(noop, range(calls)))


@contextlib.contextmanager
def pool():
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(2) as executor:
        yield lambda calls: list(executor.map(noop, range(calls)))


@contextlib.contextmanager
def dask():
    from dask.distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            yield lambda calls: client.gather(client.map(noop, range(calls), pure=False))


@contextlib.contextmanager
def ray():
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    remote = ray.remote(noop)
    yield lambda calls: ray.get([remote.remote(value) for value in range(calls)])
    ray.shutdown()


@contextlib.contextmanager
def parsl():
    import parsl
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor
    from parsl.providers import LocalProvider

    workers = HighThroughputExecutor(
        label="two",
        max_workers_per_node=2,
        address="127.0.0.1",
        provider=LocalProvider(init_blocks=1, max_blocks=1),
    )
    parsl.load(Config(executors=[workers], usage_tracking=0))
    app = parsl.python_app(noop)

    def run(calls):
        for future in [app(value) for value in range(calls)]:
            future.result()

    yield run
    parsl.dfk().cleanup()


PEERS = {"falkon": falkon, "pool": pool, "dask": dask, "ray": ray, "parsl": parsl}


def main():
    peer, calls = sys.argv[1], int(sys.argv[2])
    with PEERS[peer]() as run:
        # Workers start, and import what they need.
        run(max(calls // 10, 2))
        begin = time.perf_counter()
        run(calls)
        taken = time.perf_counter() - begin
    print("%.0f" % (calls / taken))


if __name__ == "__main__":
    main()
