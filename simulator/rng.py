"""Named, independent random streams, all spawned from one seed.

The stream ``("compute", 3)`` of replication 5 depends on the seed, the replication and
its own name alone: adding a worker, or another use of chance, changes no other stream.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

from simulator.laws import Law

__all__ = ["Streams", "factors"]

_BLOCK = 256


class Streams:
    """The random streams of one replication.

    Parameters
    ----------
    seed
        The scenario's seed.
    replication
        Number of the replication, from 0.
    """

    def __init__(self, seed: int, replication: int) -> None:
        self._seed = seed
        self._replication = replication

    def generator(self, name: str, index: int = 0) -> np.random.Generator:
        """The stream of this name and index; asking twice gives it from its start."""
        key = (self._replication, zlib.crc32(name.encode()), index)
        return np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=key))


def factors(law: Law, rng: np.random.Generator) -> Iterator[float]:
    """Endless draws of a law divided by its mean, sampled in blocks of 256."""
    if law.kind == "constant":
        while True:
            yield 1.0
    mean = law.mean()
    while True:
        yield from (law.sample(rng, _BLOCK) / mean).tolist()
