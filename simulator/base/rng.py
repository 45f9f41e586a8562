"""Named, independent random streams, all spawned from one seed.

The stream ``("compute", 3)`` of replication 5 depends on the seed, the replication and
its own name alone: adding a worker, or another use of chance, changes no other stream.
"""

from __future__ import annotations

import zlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simulator.base.pcg64 import Words, seeded

__all__ = ["Streams"]

_KEPT_STREAMS = 1024
"""Up to this number of indices, streams are kept: some 40 kB."""


class Streams:
    """The random streams of one replication.

    Parameters
    ----------
    seed
        The scenario's seed.
    replication
        Number of the replication, from 0.

    Attributes
    ----------
    replication
        As given.
    """

    def __init__(self, seed: int, replication: int) -> None:
        self._seed = seed
        self.replication = replication

    def generator(self, name: str, index: int = 0) -> np.random.Generator:
        """The stream of this name and index; asking twice gives it from its start."""
        key = (self.replication, zlib.crc32(name.encode()), index)
        return np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=key))

    def states(self, name: str, indices: NDArray[np.int64]) -> Words:
        """The streams of a name and many indices from their start, as states of their generators alone: shape (n, 4)."""
        key = self.replication, zlib.crc32(name.encode())
        if len(indices) > _KEPT_STREAMS:
            return seeded(self._seed, key, indices)
        return _kept(self._seed, key, indices.tobytes()).copy()

    def of_the_seed(self, name: str, index: int = 0) -> np.random.Generator:
        """A stream that all replications have in common, from its start."""
        key = (zlib.crc32(name.encode()), index)
        return np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=key))


@lru_cache(maxsize=64)
def _kept(seed: int, key: tuple[int, ...], indices: bytes) -> Words:
    """The same streams, which the scenarios of a sweep have in common."""
    return seeded(seed, key, np.frombuffer(indices, dtype=np.int64))
