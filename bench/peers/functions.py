"""Calls a function that does nothing CALLS times through two workers of PEER.

    functions.py PEER MODE CALLS

MODE is `submit`, a call and a future for each, or `map`, the peer's own way to
call a function for many values, with its own choice of how many travel together;
both print calls per second, without the start of the workers, and the processor time
for each of all processes that take part, in microseconds. With `import`, how
many milliseconds the import of the peer's package takes.
"""

import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import processor


def noop(value):
    return value


def results(futures):
    return [future.result() for future in futures]


def falkon():
    from falkon import Executor

    yield
    with Executor(max_workers=2) as executor:
        yield {
            "submit": lambda calls: results([executor.submit(noop, n) for n in range(calls)]),
            "map": lambda calls: list(executor.map(noop, range(calls))),
        }


def pool():
    from concurrent.futures import ProcessPoolExecutor

    yield
    with ProcessPoolExecutor(2) as executor:
        yield {
            "submit": lambda calls: results([executor.submit(noop, n) for n in range(calls)]),
            "map": lambda calls: list(executor.map(noop, range(calls))),
        }


def joblib():
    from joblib import Parallel, delayed

    yield
    yield {"map": lambda calls: Parallel(n_jobs=2)(delayed(noop)(n) for n in range(calls))}


def dask():
    from dask.distributed import Client, LocalCluster

    yield
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            yield {
                "submit": lambda calls: client.gather(
                    [client.submit(noop, n, pure=False) for n in range(calls)]
                ),
                "map": lambda calls: client.gather(client.map(noop, range(calls), pure=False)),
            }


def ray():
    import ray

    yield
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    remote = ray.remote(noop)
    yield {"submit": lambda calls: ray.get([remote.remote(n) for n in range(calls)])}
    ray.shutdown()


def parsl():
    import parsl
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor
    from parsl.providers import LocalProvider

    yield
    workers = HighThroughputExecutor(
        label="two",
        max_workers_per_node=2,
        address="127.0.0.1",
        provider=LocalProvider(init_blocks=1, max_blocks=1),
    )
    parsl.load(Config(executors=[workers], usage_tracking=0))
    app = parsl.python_app(noop)
    yield {"submit": lambda calls: results([app(n) for n in range(calls)])}
    parsl.dfk().cleanup()


PEERS = {
    "falkon": falkon,
    "pool": pool,
    "joblib": joblib,
    "dask": dask,
    "ray": ray,
    "parsl": parsl,
}
"""Each imports its package, then starts its workers and says how it calls, then
ends them."""


def main():
    peer, mode, calls = sys.argv[1], sys.argv[2], int(sys.argv[3])
    processor.adopt()
    stages = PEERS[peer]()
    begin = time.perf_counter()
    next(stages)
    if mode == "import":
        print("%.1f" % ((time.perf_counter() - begin) * 1000))
        return
    run = next(stages)[mode]
    # Workers start, and import what they need.
    run(max(calls // 10, 2))
    used, begin = processor.seconds(), time.perf_counter()
    run(calls)
    taken, used = time.perf_counter() - begin, processor.seconds() - used
    print("%.0f %.2f" % (calls / taken, used * 1e6 / calls))
    next(stages, None)


if __name__ == "__main__":
    main()
