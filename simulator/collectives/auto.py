"""A collective that takes, for each class of sizes, the one of several candidates that is fastest by their own simulated times.

Which algorithms and protocols are candidates is decided in ``factory``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from simulator.collectives.around import Times
from simulator.collectives.collective import Choice, Collective
from simulator.collectives.exchanges import Plan
from simulator.collectives.use import Use


class Auto(Collective):
    """For each size, whichever collective is fastest for ranks that enter together.

    They are compared once for each class of sizes from one power of two up to the next,
    at the middle of the class.

    Parameters
    ----------
    candidates
        In order of preference among equals; all count on the same links. One whose busiest port alone takes longer
        than another's whole duration is not evaluated.
    """

    def __init__(self, candidates: Sequence[Collective]) -> None:
        self._candidates = candidates
        self._fastest: dict[int, Collective] = {}

    @property
    def aligned(self) -> bool:
        """Whether any buffer so far was handled by ranks that had to enter together."""
        return any(collective.aligned for collective in self._fastest.values())

    @property
    def chosen(self) -> dict[tuple[float, float], Choice]:
        """What was chosen so far for sizes from the first number of bytes up to the second."""
        return {(2.0**k, 2.0 ** (k + 1)): collective.choice(2.0**k) for k, collective in sorted(self._fastest.items())}

    def choice(self, size_bytes: float) -> Choice:
        """How a buffer of this size is handled."""
        return self._for(size_bytes).choice(size_bytes)

    def plan(self, size_bytes: float) -> Plan:
        """The messages for a buffer of this size."""
        return self._for(size_bytes).plan(size_bytes)

    def finish_s(self, ready_s: Times, size_bytes: float, free_s: Times | None = None) -> Times:
        """When each rank has ended; see :class:`~simulator.collectives.collective.Collective`."""
        return self._for(size_bytes).finish_s(ready_s, size_bytes, free_s)

    @property
    def use(self) -> Use:
        """Counts what crosses the links."""
        return self._candidates[0].use

    def watch(self, size_bytes: float) -> None:
        """Have the links that a buffer of this size crosses counted from now on."""
        self._for(size_bytes).watch(size_bytes)

    def finish_run_s(self, enter_s: Times, sizes_bytes: Sequence[float]) -> Times | None:
        """When each rank has ended the last of several, if one collective is the fastest for all of them."""
        fastest = {self._for(size) for size in sizes_bytes}
        return fastest.pop().finish_run_s(enter_s, sizes_bytes) if len(fastest) == 1 else None

    def account(self, size_bytes: float, times: int = 1) -> None:
        """Count buffers of this size on the links that they cross."""
        self._for(size_bytes).account(size_bytes, times)

    def least_s(self, size_bytes: float) -> float:
        """A lower bound of the duration."""
        return self._for(size_bytes).least_s(size_bytes)

    def duration_s(self, size_bytes: float) -> float:
        """Seconds from ranks that enter together to the last one's end."""
        return self._for(size_bytes).duration_s(size_bytes)

    def _for(self, size_bytes: float) -> Collective:
        size_class = math.floor(math.log2(max(size_bytes, 1.0)))
        fastest = self._fastest.get(size_class)
        if fastest is None:
            middle_bytes = 1.5 * 2.0**size_class
            fastest, best_s = self._candidates[0], math.inf
            for candidate in self._candidates:
                if candidate.least_s(middle_bytes) < best_s and (duration_s := candidate.duration_s(middle_bytes)) < best_s:
                    fastest, best_s = candidate, duration_s
            self._fastest[size_class] = fastest
        return fastest
