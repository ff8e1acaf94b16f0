"""The Mandelbrot set, 400 rows of it."""

import pair
import numpy as np


def row(number):
    c = np.linspace(-2, 0.6, 600) + 1j * (number / 200 - 1)
    z, inside = np.zeros_like(c), np.zeros(len(c), int)
    for _ in range(60):
        is_in = np.abs(z) < 2
        z[is_in] = z[is_in] ** 2 + c[is_in]
        inside += is_in
    return int(inside.sum())


pair.bag(row, range(400), sum, 8)
