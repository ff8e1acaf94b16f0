"""Group sums of 120 tables, added up by a tree."""

import pair
import numpy as np
import pandas as pd


def grouped(seed):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"key": rng.integers(0, 50, 20_000), "value": rng.random(20_000)})
    return table.groupby("key").value.agg(["sum", "count"])


def add(left, right):
    return left.add(right, fill_value=0)


pair.tree(grouped, range(120), add, lambda total: float(total["sum"].max()), 4)
