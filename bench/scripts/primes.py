"""A bag of 1,500 short calls without any package."""

import pair


def primes(start):
    return sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(start, start + 40))


pair.bag(primes, range(100_000, 160_000, 40), sum, 32)
