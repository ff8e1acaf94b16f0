"""Monte Carlo: 1,000 calls."""

import pair
import numpy as np


def inside(seed):
    points = np.random.default_rng(seed).random((2, 20_000))
    return int(((points**2).sum(axis=0) < 1).sum())


pair.bag(inside, range(1000), sum, 16)
