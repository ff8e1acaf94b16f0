"""Map and reduce without any package: words of 250 texts, counted and added up."""

import pair
import collections
import random

WORDS = ["w%d" % number for number in range(500)]


def count(seed):
    rng = random.Random(seed)
    return collections.Counter(rng.choices(WORDS, k=4000))


def add(left, right):
    return left + right


pair.tree(count, range(250), add, lambda counted: counted["w7"], 8)
