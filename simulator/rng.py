"""Named, independent random streams, all spawned from one seed.

The stream ``("compute", 3)`` of replication 5 depends on the seed, the replication and
its own name alone: adding a worker, or another use of chance, changes no other stream.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.laws import Law, Slowdown

__all__ = ["Factors", "Streams"]

_BLOCK = 16
_ONE = np.ones(1)


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

    def of_the_seed(self, name: str, index: int = 0) -> np.random.Generator:
        """A stream that all replications have in common, from its start."""
        key = (zlib.crc32(name.encode()), index)
        return np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=key))


class _Parked:
    """A stream at rest: the state of its generator alone, an eighth of the memory; ten thousand workers have one each.

    All parked streams draw by the same generator, into which each puts its state and from
    which it takes it back.
    """

    __slots__ = ("_increment", "_spare", "_state")

    _generator = np.random.Generator(np.random.PCG64(0))
    _in_use = threading.Lock()  # several simulations may run in threads of one process

    def __init__(self, generator: np.random.Generator) -> None:
        self._keep(generator.bit_generator.state)

    def _keep(self, state: Mapping[str, Any]) -> None:
        self._state: int = state["state"]["state"]
        self._increment: int = state["state"]["inc"]
        # half of a 64-bit draw that a draw of 32 bits has left over
        self._spare: int | None = state["uinteger"] if state["has_uint32"] else None

    def sample(self, law: Law, size: int) -> NDArray[np.float64]:
        """The next draws of a law, shape (size,)."""
        bits = self._generator.bit_generator
        with self._in_use:
            bits.state = {
                "bit_generator": "PCG64",
                "state": {"state": self._state, "inc": self._increment},
                "has_uint32": int(self._spare is not None),
                "uinteger": self._spare or 0,
            }
            values = law.sample(self._generator, size)
            self._keep(bits.state)
        return values


class Factors:
    """What a worker's step times are multiplied by: jitter of mean 1, times its slow-down where it has one.

    Drawn in blocks from the worker's own streams; the draws do not depend on the size of
    the blocks. None is below ``least``, the fastest step that was seen.
    """

    __slots__ = ("_at", "_block", "_law", "_least", "_left", "_slow", "_slowdown", "_states", "_stream")

    def __init__(self, law: Law, slowdown: Slowdown | None, streams: Streams, worker: int, least: float = 0.0) -> None:
        self._law = law
        self._least = least
        self._stream = None if law.kind == "constant" else _Parked(streams.generator("compute", worker))
        self._slowdown = slowdown
        self._states = None
        self._block = _ONE
        self._at = 0
        if slowdown is not None:
            self._states = streams.generator("slowdown", worker)
            self._slow = bool(self._states.random() < slowdown.slow_share)
            self._left = self._sojourn(slowdown, self._states)

    @property
    def constant(self) -> bool:
        """Whether every factor is 1."""
        return self._stream is None and self._states is None

    def block(self, size: int) -> NDArray[np.float64]:
        """The next factors, shape (size,)."""
        values = np.ones(size) if self._stream is None else self._stream.sample(self._law, size) / self._law.mean()
        if self._least:
            np.maximum(values, self._least, out=values)
        if self._slowdown is not None and self._states is not None:
            self._slow_down(values, self._slowdown, self._states)
        return values

    def next(self) -> float:
        """The next factor alone; not to be mixed with :meth:`block`."""
        if not self._at:
            if self.constant:
                return 1.0
            self._block = self.block(_BLOCK)
            self._at = _BLOCK
        self._at -= 1
        return float(self._block[_BLOCK - 1 - self._at])

    def _sojourn(self, slowdown: Slowdown, states: np.random.Generator) -> int:
        """Steps that the present state lasts."""
        mean = slowdown.mean_slow_steps if self._slow else slowdown.mean_normal_steps
        return int(states.geometric(1.0 / mean))

    def _slow_down(self, values: NDArray[np.float64], slowdown: Slowdown, states: np.random.Generator) -> None:
        at = 0
        while at < len(values):
            run = min(self._left, len(values) - at)
            if self._slow:
                values[at : at + run] *= slowdown.factor
            at += run
            self._left -= run
            if not self._left:
                self._slow = not self._slow
                self._left = self._sojourn(slowdown, states)
