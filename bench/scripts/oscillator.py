"""A parameter sweep of an ordinary differential equation: 200 calls."""

import pair
import numpy as np
from scipy.integrate import solve_ivp


def amplitude(damping):
    def motion(t, y):
        return [y[1], damping * (1 - y[0] ** 2) * y[1] - y[0]]

    found = solve_ivp(motion, (0, 5), [1.0, 0.0])
    return float(np.abs(found.y[0]).max())


pair.bag(amplitude, [0.01 * number for number in range(200)], sum, 8)
