"""A bootstrap: 500 resamplings of one sample, and their spread."""

import pair
import numpy as np
from scipy import stats

SAMPLE = np.random.default_rng(0).lognormal(size=5000)


def resampled(seed):
    drawn = np.random.default_rng(seed).choice(SAMPLE, len(SAMPLE))
    return float(stats.trim_mean(drawn, 0.1))


pair.bag(resampled, range(500), lambda found: float(np.std(found)), 16)
