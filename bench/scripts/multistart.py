"""Minimisation from 150 places; the best counts."""

import pair
import numpy as np
from scipy import optimize


def minimum(seed):
    start = np.random.default_rng(seed).uniform(-2, 2, 4)
    return round(float(optimize.minimize(optimize.rosen, start, method="BFGS").fun), 3)


pair.bag(minimum, range(150), min, 4)
