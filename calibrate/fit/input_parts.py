"""Splits the time of a batch of a tf.data pipeline into a serial and a parallel part.

tf.data's own account of its stages tells the parts, or where it gives none, wall-clock and CPU time alone. A batch takes
``max(serial, parallel / calls)``, so at any number of calls ``serial`` is at most the time that it took and ``parallel`` at most
that time the calls. One thread does the serial part: CPU time beyond what one thread had is parallel.
Both parts are fitted over all settings in :mod:`calibrate.fit.input_pipeline`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from calibrate.records import StageNode

FALLS = 0.05
"""Of the time with the fewest calls: more calls must save as much, and twice its standard error, to count as their limit."""
SCALES = 0.75
"""Of the speed-up that calls promise: where less comes of it, something else has become the limit."""
FULL = 0.8
"""Of the cores' time: more calls than cores, which use so much, wait for cores and tell nothing of the pipeline."""


class Clock(NamedTuple):
    """Mean seconds of a batch with a number of calls, the standard error of that mean, CPU seconds of the whole process."""

    mean_s: float
    error_s: float
    cpu_s: float


class Costs(NamedTuple):
    """Seconds of a batch."""

    serial_s: float
    parallel_s: float


class Split(NamedTuple):
    """The likeliest parts, and the least and the largest that the measured times allow."""

    center: Costs
    least: Costs
    largest: Costs

    def end(self, *, serial: bool) -> Costs:
        """One end of what the times allow: as much as can be is serial, or else parallel."""
        if serial:
            return Costs(self.largest.serial_s, self.least.parallel_s)
        return Costs(self.least.serial_s, self.largest.parallel_s)


def limited_by_clock(clocks: Mapping[int, Clock], cores: int) -> dict[int, bool]:
    """For each number of calls whether calls are the limit; without those that wait for cores."""
    fewest = min(clocks)
    usable = {calls: its for calls, its in clocks.items() if calls == fewest or calls <= cores or its.cpu_s <= FULL * cores * its.mean_s}
    least, first = min(usable.values()), usable[fewest]
    falls = first.mean_s - least.mean_s > max(FALLS * first.mean_s, 2.0 * float(np.hypot(first.error_s, least.error_s)))
    return {
        calls: falls and (calls == fewest or its.mean_s * calls < first.mean_s * fewest / SCALES) for calls, its in sorted(usable.items())
    }


def split_by_clock(clocks: Mapping[int, Clock], limited: Mapping[int, bool], *, parallel: bool, sure: bool) -> Split:
    """Parts of a batch's time.

    Parameters
    ----------
    clocks, limited
        By number of calls; ``limited`` as by :func:`limited_by_clock`.
    parallel
        Whether the pipeline has a stage with parallel calls at all.
    sure
        Several numbers of calls were measured, and nothing else disturbed them. Otherwise every split that agrees with
        clock and CPU time stands between ``least`` and ``largest``.
    """
    fewest = clocks[min(limited)]
    shortest = min(clocks[calls].mean_s for calls in limited)
    most_parallel = min(clocks[calls].mean_s * calls for calls in limited)
    by_calls = [clocks[calls].mean_s * calls for calls, its in limited.items() if its]
    others = [clocks[calls].mean_s for calls, its in limited.items() if not its]
    if not by_calls and not parallel:
        alone = Costs(float(np.mean(others)), 0.0)
        return Split(alone, alone, alone)

    least_serial, least_parallel = max(0.0, fewest.cpu_s - most_parallel), max(0.0, fewest.cpu_s - shortest)
    least_serial, least_parallel = min(least_serial, shortest), min(least_parallel, most_parallel)
    if not sure:
        low, high = Costs(least_serial, least_parallel), Costs(shortest, most_parallel)
    else:
        serial = float(np.mean(others)) if others else None
        its_parallel = float(np.mean(by_calls)) if by_calls else None
        # without calls as the limit nobody waits for the parallel part, which can be no more than the CPU time that was used
        bound = max(least_parallel, min(most_parallel, fewest.cpu_s))
        low = Costs(least_serial if serial is None else serial, least_parallel if its_parallel is None else its_parallel)
        high = Costs(shortest if serial is None else serial, bound if its_parallel is None else its_parallel)
    center = Costs(
        float(np.mean(others)) if others else low.serial_s,
        float(np.mean(by_calls)) if by_calls else (low.parallel_s + high.parallel_s) / 2.0,
    )
    return Split(center, low, high)


def stages_of(nodes: Sequence[StageNode]) -> tuple[float, float]:
    """Serial and parallel seconds of a batch by tf.data's own account.

    Stages between asynchronous ones share a thread, so the serial part is that of the slowest thread; the parallel part is
    that of all stages with parallel calls, which share the pipeline's threads.
    """
    by_id = {node.id: node for node in nodes}
    inner = {one for node in nodes for one in node.inputs}
    slowest, parallel = 0.0, 0.0
    threads = [(node.id, False) for node in nodes if node.id not in inner]
    while threads:
        start, shared = threads.pop()
        total, waiting = 0.0, [start]
        while waiting:
            node = by_id.get(waiting.pop())
            if node is None:
                continue
            if node.asynchronous and "parallelism" in node.parameters:
                parallel += node.seconds
                threads += [(one, shared or node.interleaves) for one in node.inputs]
            elif node.asynchronous and node.id != start:
                threads.append((node.id, shared))
            else:
                total += node.seconds
                waiting += node.inputs
        if shared:
            parallel += total
        else:
            slowest = max(slowest, total)
    return slowest, parallel
