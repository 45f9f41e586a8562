"""Whether a step's batch fits into the memory of a device, where both were measured or are published."""

from __future__ import annotations

import numpy as np

from simulator.accelerator import accelerator_named
from simulator.resolve import resolve
from simulator.scenario import Scenario
from simulator.text import format_bytes

__all__ = ["does_not_fit", "not_checked"]


def does_not_fit(scenario: Scenario) -> str | None:
    """A sentence where the replicas of a device need more memory than it has; None where they fit, or it is not known.

    The peak that was measured at other batch sizes is taken to grow linearly between them
    and beyond; below the smallest it is that of the smallest at most, which decides nothing.
    """
    memory_bytes, peaks = _known(scenario)
    if memory_bytes is None or not peaks:
        return None
    batches = sorted(peaks)
    batch, each = scenario.batch, scenario.cluster.replicas_per_device
    if batch < batches[0]:
        return None
    need_bytes = float(np.interp(batch, batches, [peaks[its] for its in batches]))
    if batch > batches[-1] and len(batches) > 1:
        slope = (peaks[batches[-1]] - peaks[batches[-2]]) / (batches[-1] - batches[-2])
        need_bytes += max(slope, 0.0) * (batch - batches[-1])
    if need_bytes * each <= memory_bytes:
        return None
    whose = f"{each} replicas of {batch:,} samples need" if each > 1 else f"a batch of {batch:,} samples needs"
    return (
        f"{whose} about {format_bytes(need_bytes * each)} on a device, by the peaks measured with {', '.join(f'{b:g}' for b in batches)} "
        f"samples, but {scenario.cluster.device} has {format_bytes(memory_bytes)}; take a smaller batch"
    )


def not_checked(scenario: Scenario) -> str | None:
    """Why the memory of a scenario's devices could not be checked; None where it could."""
    memory_bytes, peaks = _known(scenario)
    if memory_bytes is None:
        name = scenario.cluster.device
        return f"the memory of {name!r} is not known" if name else f"the cluster {scenario.cluster.name!r} names no device"
    return None if peaks else f"the workload {scenario.workload.name!r} has no measured peak memory"


def _known(scenario: Scenario) -> tuple[float | None, dict[float, float]]:
    """Memory of the device, and peaks by batch size, as far as they are known."""
    fit = resolve(scenario).scenario.workload.fit
    peaks = {float(batch): peak for batch, peak in (fit.peak_memory_bytes if fit is not None else {}).items()}
    device = accelerator_named(scenario.cluster.device) if scenario.cluster.device else None
    return (device.memory_bytes if device is not None else None), peaks
