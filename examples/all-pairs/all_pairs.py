#!/usr/bin/env python3
"""All pairs of a set of files, compared by how well they compress together.

The normalized compression distance (Cilibrasi and Vitanyi, "Clustering by
Compression", 2005) of two files is near 0 if one says what the other says, and
near 1 if they have nothing in common. The program is an ordinary one that knows
nothing of Falkon.

    all_pairs.py compare A B              one pair: prints "A<tab>B<tab>distance"
    all_pairs.py serial FILE...           all pairs, one after the other
    all_pairs.py check MATRIX             what the distances say, and whether it can be true
    all_pairs.py times RESULTS            how long tasks of a Falkon run took

Exit status: 0 done, 1 something failed or a check did not pass, 2 the arguments
were not understood.
"""

import json
import lzma
import os
import sys

# Raw streams have no header that would count as common to all files; the
# dictionary holds two of the largest files that run.sh takes.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 17}]

# Pairs that are shown.
NEAREST = 5


def compressed(data):
    return len(lzma.compress(data, format=lzma.FORMAT_RAW, filters=FILTERS))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def line(left, right):
    """The line of the matrix that compares two files."""
    a, b = read(left), read(right)
    alone = compressed(a), compressed(b)
    distance = (compressed(a + b) - min(alone)) / max(alone)
    return f"{os.path.basename(left)}\t{os.path.basename(right)}\t{distance:.6f}\n"


def check(matrix):
    """Whether each file is nearest to itself; prints the nearest others."""
    distances = {}
    with open(matrix, encoding="utf-8") as lines:
        for text in lines:
            left, right, distance = text.rstrip("\n").split("\t")
            distances.setdefault(left, {})[right] = float(distance)
    wrong = [left for left, row in distances.items() if min(row, key=row.get) != left]
    incomplete = [left for left, row in distances.items() if row.keys() != distances.keys()]
    pairs = [
        (distance, left, right)
        for left, row in distances.items()
        for right, distance in row.items()
        if left < right
    ]
    for distance, left, right in sorted(pairs)[:NEAREST]:
        print(f"{distance:.3f}  {left}  {right}")
    print(f"{len(distances)} files, {sum(map(len, distances.values()))} pairs; the nearest {NEAREST} above")
    for left in wrong:
        print(f"FAILED {left} is not nearest to itself")
    for left in incomplete:
        print(f"FAILED {left} was not compared with all others")
    return not (wrong or incomplete or not distances)


def times(results):
    """Prints how long tasks took from start to end, and how long they waited for files."""
    tasks = ran = staging = 0
    with open(results, encoding="utf-8") as lines:
        for text in lines:
            result = json.loads(text)
            tasks += 1
            ran += result["times"]["ended"] - result["times"]["started"]
            staging += result["data"]["staging_seconds"]
    print(f"a task took {1000 * ran / tasks:.1f} ms on average, with the start of Python")
    print(f"a task waited {1000 * staging / tasks:.2f} ms for its three files on average, without a core")


def main(arguments):
    command, arguments = (arguments or [""])[0], arguments[1:]
    if command == "compare" and len(arguments) == 2:
        sys.stdout.write(line(*arguments))
    elif command == "serial" and arguments:
        for left in arguments:
            for right in arguments:
                sys.stdout.write(line(left, right))
    elif command == "check" and len(arguments) == 1:
        return 0 if check(*arguments) else 1
    elif command == "times" and len(arguments) == 1:
        times(*arguments)
    else:
        sys.stderr.write(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OSError as error:
        sys.exit(f"all_pairs: {error}")
