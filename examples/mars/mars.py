"""A refinery's best profit, for many supplies and capacities, with falkon.Executor.

    mars.py [STEPS]              default: 20, so 400 linear programs

The model is Bruce Murtagh's oil refinery, which comes with GLPK (Debian:
glpk-utils); each call solves it with `glpsol` for one supply of crude oil and one
capacity of the cracker. What is known of it is checked: the profit as published,
that more supply and more capacity never earn less, that each further unit earns
no more than the one before, and that the same calls in this process give the same
numbers.
"""

import gzip
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

MODEL = "/usr/share/doc/glpk-utils/examples/murtagh.mps"
PUBLISHED = 126.0571
"""Profit of the model as it is."""
SUPPLY, CAPACITY = 26.316, 7.26
"""The right-hand sides of MVOLBOL and VCAPCCU as they are."""
SLACK = 1e-6
"""Relative error of a solution."""


def read_model():
    for path, opener in ((MODEL, open), (MODEL + ".gz", gzip.open)):
        if os.path.exists(path):
            with opener(path, "rt") as file:
                return file.read()
    return None


def solve(model, supply, capacity):
    """The best profit."""
    model = re.sub(r"(LIMITMAX  MVOLBOL   )\S+", lambda found: found[1] + "%.6g" % supply, model)
    model = re.sub(r"(LIMITMAX  VCAPCCU   )\S+", lambda found: found[1] + "%.6g" % capacity, model)
    with tempfile.TemporaryDirectory() as folder:
        path, solution = os.path.join(folder, "model.mps"), os.path.join(folder, "solution")
        with open(path, "w") as file:
            file.write(model)
        command = ["glpsol", "--max", path, "--output", solution]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(solution) as file:
            found = re.search(r"^Objective: +PROFIT = (\S+)", file.read(), re.M)
    return float(found[1])


def check(profits, steps):
    """What theory says of a linear program's value: it is monotone and concave in
    each right-hand side."""
    for row in range(steps):
        for line in (
            [profits[row, column] for column in range(steps)],
            [profits[column, row] for column in range(steps)],
        ):
            slack = SLACK * max(map(abs, line))
            gains = [after - before for before, after in zip(line, line[1:])]
            assert all(gain >= -slack for gain in gains), "more earned less: %r" % line
            for before, after in zip(gains, gains[1:]):
                assert after <= before + slack, "gains grew: %r" % line


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    model = read_model()
    if model is None or shutil.which("glpsol") is None:
        sys.exit("mars: glpsol and its examples are needed (Debian: glpk-utils)")
    factors = [0.5 + step / steps for step in range(steps)]
    cells = list(itertools.product(range(steps), repeat=2))
    supplies = [SUPPLY * factors[row] for row, _ in cells]
    capacities = [CAPACITY * factors[column] for _, column in cells]

    workers = os.cpu_count() or 1
    begin = time.perf_counter()
    # Falkon's import and start are in the clock.
    import falkon

    with falkon.Executor(max_workers=workers) as executor:
        solved = list(executor.map(solve, [model] * len(cells), supplies, capacities, chunksize=1))
    taken = time.perf_counter() - begin
    profits = dict(zip(cells, solved))

    begin = time.perf_counter()
    alone = [solve(model, supply, capacity) for supply, capacity in zip(supplies, capacities)]
    serial = time.perf_counter() - begin

    print("%d linear programs; profit from %.4f to %.4f" % (len(cells), min(alone), max(alone)))
    print("%.2f s with %d workers, %.2f s one after another" % (taken, workers, serial))
    overhead = 1 - serial / (taken * workers)
    print("share of the workers' time that was overhead: %.0f %%" % (100 * overhead))
    base = solve(model, SUPPLY, CAPACITY)
    assert abs(base - PUBLISHED) < 1e-4, "the profit is %r, not %r" % (base, PUBLISHED)
    assert alone == solved, "the same calls gave other numbers"
    check(profits, steps)
    print("profit as published (%.4f), monotone, concave, and the same one after another" % base)


if __name__ == "__main__":
    main()
