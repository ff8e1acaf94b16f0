"""Chains: 150 signals, each made, windowed and transformed; 450 calls."""

import pair
import numpy as np
from scipy import fft, signal


def made(seed):
    return np.random.default_rng(seed).standard_normal(16_384)


def windowed(values):
    return signal.detrend(values) * signal.windows.hann(len(values))


def peak(values):
    return int(np.abs(fft.rfft(values)).argmax())


def ours(executor):
    ends = []
    for seed in range(150):
        ends.append(executor.submit(peak, executor.submit(windowed, executor.submit(made, seed))))
    return sum(end.result() for end in ends)


def theirs(pool):
    layer = range(150)
    for step in (made, windowed, peak):
        layer = list(pool.map(step, layer, chunksize=4))
    return sum(layer)


pair.run(ours, theirs)
