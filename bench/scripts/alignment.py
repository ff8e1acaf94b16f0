"""A wave front: the edit distance of two texts in 20 x 20 blocks, 400 calls."""

import pair
import random

BLOCKS, SIZE = 20, 60
RNG = random.Random(0)
LEFT, RIGHT = ("".join(RNG.choices("ACGT", k=BLOCKS * SIZE)) for _ in range(2))


def distances(row, column, above, before):
    """The last row and column of a block, of those above and before it."""
    top = above[0] if above else [column * SIZE + at for at in range(SIZE + 1)]
    side = before[1] if before else [row * SIZE + at for at in range(SIZE + 1)]
    last, right = list(top), [top[-1]]
    for i in range(SIZE):
        line = [side[i + 1]]
        letter = LEFT[row * SIZE + i]
        for j in range(SIZE):
            change = last[j] + (letter != RIGHT[column * SIZE + j])
            line.append(min(change, last[j + 1] + 1, line[j] + 1))
        last = line
        right.append(line[-1])
    return last, right


def ours(executor):
    blocks = {}
    for row in range(BLOCKS):
        for column in range(BLOCKS):
            above, before = blocks.get((row - 1, column)), blocks.get((row, column - 1))
            blocks[row, column] = executor.submit(distances, row, column, above, before)
    return blocks[BLOCKS - 1, BLOCKS - 1].result()[0][-1]


def theirs(pool):
    blocks = {}
    for front in range(2 * BLOCKS - 1):
        places = [(row, front - row) for row in range(BLOCKS) if 0 <= front - row < BLOCKS]
        futures = {
            (row, column): pool.submit(
                distances, row, column, blocks.get((row - 1, column)), blocks.get((row, column - 1))
            )
            for row, column in places
        }
        blocks.update((place, future.result()) for place, future in futures.items())
    return blocks[BLOCKS - 1, BLOCKS - 1][0][-1]


pair.run(ours, theirs)
