"""A pipeline over 120 time series: made, smoothed, measured; 360 calls."""

import pair
import numpy as np
import pandas as pd


def made(seed):
    index = pd.date_range("2024-01-01", periods=2000, freq="h")
    return pd.Series(np.random.default_rng(seed).standard_normal(2000).cumsum(), index)


def smoothed(series):
    return series.rolling(24).mean().resample("D").last()


def measured(series):
    return float(series.diff().abs().max())


def ours(executor):
    ends = []
    for seed in range(120):
        made_one = executor.submit(made, seed)
        ends.append(executor.submit(measured, executor.submit(smoothed, made_one)))
    return sum(end.result() for end in ends)


def theirs(pool):
    layer = range(120)
    for step in (made, smoothed, measured):
        layer = list(pool.map(step, layer, chunksize=4))
    return sum(layer)


pair.run(ours, theirs)
