"""Runs a script's calls through Falkon, through Falkon with workers that are copies of the
script's process, or through a forking pool: "falkon", "fork" or "pool" as first argument. Scripts import this first, as sorted imports have falkon before numpy."""

import sys

WORKERS = 2
IS_FALKON = sys.argv[1] != "pool"
TEMPLATE = "fork" if sys.argv[1] == "fork" else True

if IS_FALKON:
    import falkon
else:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor


def run(ours, theirs):
    """Prints what ``ours(executor)`` or ``theirs(pool)`` returns."""
    if IS_FALKON:
        with falkon.Executor(max_workers=WORKERS, template=TEMPLATE) as executor:
            value = ours(executor)
    else:
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(WORKERS, mp_context=context) as pool:
            value = theirs(pool)
    print(value if isinstance(value, (int, str)) else "%.6g" % value)


def bag(function, items, finish, chunksize):
    """A script of independent calls: ``finish`` makes one value of theirs."""

    def ours(executor):
        return finish(list(executor.map(function, items)))

    def theirs(pool):
        return finish(list(pool.map(function, items, chunksize=chunksize)))

    run(ours, theirs)


def tree(function, items, combine, finish, chunksize):
    """A script of calls whose values are combined two by two, and two of these."""

    def ours(executor):
        layer = [executor.submit(function, item) for item in items]
        while len(layer) > 1:
            pairs = zip(layer[::2], layer[1::2])
            layer = [executor.submit(combine, *pair) for pair in pairs] + layer[len(layer) & ~1 :]
        return finish(layer[0].result())

    def theirs(pool):
        layer = list(pool.map(function, items, chunksize=chunksize))
        while len(layer) > 1:
            rest = layer[len(layer) & ~1 :]
            layer = list(pool.map(combine, layer[: len(layer) & ~1 : 2], layer[1::2], chunksize=chunksize))
            layer += rest
        return finish(layer[0])

    run(ours, theirs)
