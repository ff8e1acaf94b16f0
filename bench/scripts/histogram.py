"""Histograms of 300 samples, added up by a tree."""

import pair
import numpy as np

EDGES = np.linspace(-4, 4, 201)


def histogram(seed):
    values = np.random.default_rng(seed).standard_normal(50_000)
    return np.histogram(values, EDGES)[0]


def add(left, right):
    return left + right


pair.tree(histogram, range(300), add, lambda total: int(total[100]), 8)
