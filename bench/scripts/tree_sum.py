"""A tree reduction: 512 vectors, added two by two, 1,023 calls."""

import pair
import numpy as np


def vector(seed):
    return np.random.default_rng(seed).random(2000)


def add(left, right):
    return left + right


pair.tree(vector, range(512), add, lambda total: float(total.sum()), 8)
