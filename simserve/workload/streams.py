"""Random streams: one numpy generator per source of randomness, keyed by its name.

Arrivals, input lengths, classes, routers and so on each draw from their own stream, so that a change of one leaves the
others bit-equal: two scenarios that differ in one thing are compared on the same traffic (common random numbers).
"""

import numpy as np


def random_stream(seed: int, name: str) -> np.random.Generator:
    """Return the generator of one source of randomness; the same seed and name give the same numbers in any process.

    The name enters `numpy.random.SeedSequence` as a spawn key, the way `spawn()` derives independent children.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=tuple(name.encode())))
