"""Blocked Cholesky factorisation: 12 x 12 blocks, 364 calls that depend on one another."""

import pair
import numpy as np
import scipy.linalg

BLOCKS, SIZE = 12, 96


def block(row, column):
    values = np.random.default_rng(row * BLOCKS + column).random((SIZE, SIZE))
    return values + SIZE * BLOCKS * np.eye(SIZE) + values.T if row == column else values


def factor(a):
    return scipy.linalg.cholesky(a, lower=True)


def solve(l, a):
    return scipy.linalg.solve_triangular(l, a.T, lower=True).T


def update(a, left, right):
    return a - left @ right.T


def start():
    return {(i, j): block(i, j) for i in range(BLOCKS) for j in range(i + 1)}


def ours(executor):
    a = start()
    for k in range(BLOCKS):
        a[k, k] = executor.submit(factor, a[k, k])
        for i in range(k + 1, BLOCKS):
            a[i, k] = executor.submit(solve, a[k, k], a[i, k])
        for i in range(k + 1, BLOCKS):
            for j in range(k + 1, i + 1):
                a[i, j] = executor.submit(update, a[i, j], a[i, k], a[j, k])
    return sum(float(np.trace(a[k, k].result())) for k in range(BLOCKS))


def theirs(pool):
    a = start()
    for k in range(BLOCKS):
        a[k, k] = pool.submit(factor, a[k, k]).result()
        below = range(k + 1, BLOCKS)
        solved = {i: pool.submit(solve, a[k, k], a[i, k]) for i in below}
        for i, future in solved.items():
            a[i, k] = future.result()
        updated = {
            (i, j): pool.submit(update, a[i, j], a[i, k], a[j, k])
            for i in below
            for j in range(k + 1, i + 1)
        }
        for place, future in updated.items():
            a[place] = future.result()
    return sum(float(np.trace(a[k, k])) for k in range(BLOCKS))


pair.run(ours, theirs)
