"""Blocked matrix product: 8 x 8 blocks, 512 products, each added to the sum before."""

import pair
import numpy as np

BLOCKS, SIZE = 8, 64


def block(seed):
    return np.random.default_rng(seed).random((SIZE, SIZE))


def multiply(a, b):
    return a @ b


def multiply_add(total, a, b):
    return total + a @ b


def start(offset):
    places = [(i, j) for i in range(BLOCKS) for j in range(BLOCKS)]
    return {place: block(offset + number) for number, place in enumerate(places)}


def ours(executor):
    a, b, ends = start(0), start(1000), []
    for i, j in a:
        total = executor.submit(multiply, a[i, 0], b[0, j])
        for k in range(1, BLOCKS):
            total = executor.submit(multiply_add, total, a[i, k], b[k, j])
        ends.append(total)
    return sum(float(end.result().sum()) for end in ends)


def theirs(pool):
    a, b = start(0), start(1000)
    total = {(i, j): pool.submit(multiply, a[i, 0], b[0, j]) for i, j in a}
    total = {place: future.result() for place, future in total.items()}
    for k in range(1, BLOCKS):
        step = {(i, j): pool.submit(multiply_add, total[i, j], a[i, k], b[k, j]) for i, j in a}
        total = {place: future.result() for place, future in step.items()}
    return sum(float(end.sum()) for end in total.values())


pair.run(ours, theirs)
