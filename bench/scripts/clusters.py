"""Lloyd's algorithm: 20 rounds over 16 parts of the points, 340 calls."""

import pair
import numpy as np

PARTS, ROUNDS, CENTRES = 16, 20, 8


def part(number):
    rng = np.random.default_rng(number)
    return rng.standard_normal((4000, 2)) + rng.integers(0, 4, (4000, 1))


def assigned(number, centres):
    points = part(number)
    nearest = ((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    sums = [points[nearest == centre].sum(axis=0) for centre in range(CENTRES)]
    return np.array(sums), np.bincount(nearest, minlength=CENTRES)


def moved(*found):
    sums, counts = (sum(column) for column in zip(*found))
    return sums / np.maximum(counts, 1)[:, None]


def ours(executor):
    centres = part(0)[:CENTRES]
    for _ in range(ROUNDS):
        found = [executor.submit(assigned, number, centres) for number in range(PARTS)]
        centres = executor.submit(moved, *found)
    return float(centres.result().sum())


def theirs(pool):
    centres = part(0)[:CENTRES]
    for _ in range(ROUNDS):
        found = [pool.submit(assigned, number, centres) for number in range(PARTS)]
        centres = moved(*[future.result() for future in found])
    return float(centres.sum())


pair.run(ours, theirs)
