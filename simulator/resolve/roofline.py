"""How long a counted step takes on a device at best, and what share of that best published trainings have achieved.

The bound adds what is counted: floating-point operations over the device's peak, and
bytes, none of them fused, over its memory's bandwidth. Fused kernels and caches move
fewer, so that efficiencies may exceed 1; what counts is how little they differ between
models and devices. Of five bounds (operations alone; the larger of the two or their sum,
each with all bytes or with those of matrix products only) this one left the least
scatter over the published rows. (Williams, Waterman and Patterson, "Roofline", CACM 2009.)
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from simulator.resolve.published_throughputs import PublishedThroughput, PublishedThroughputs, Scatter, same_device
from simulator.spec.accelerator import Accelerator, accelerators, spelled
from simulator.spec.workload import Counted, Workload

LAUNCH_S = 3.8e-6
"""Seconds for each of many short kernels that wait for one another on the device alone."""
LAUNCH_ALONE_S = 9.6e-6
"""The same where the host waits for each."""
LAUNCH_TOGETHER_S = 0.5e-6
"""Besides their own time, 3.4 - 2.9 us, where all are started as one graph: the least, however little each has to do.

All three: Gray, "Getting Started with CUDA Graphs", NVIDIA, 2019-09-05, V100.
"""
_FEWEST_MODELS = 3
_USUAL_BATCH = 64
"""Where a source does not state its batch; it only says over how many samples the variables' bytes spread."""


class Range(NamedTuple):
    """Low, middle and high; low and high are the ends of a 90% interval."""

    low: float
    mid: float
    high: float


class Achieved(NamedTuple):
    """What share of the bound one published row achieved."""

    model: str
    precision: str
    device: str
    source: str
    software: str
    efficiency: float
    rate: float
    """Samples per second, geometric mean of repeats and batches."""
    unit: str
    url: str


def is_processor(device: Accelerator) -> bool:
    """Whether it is a host's processor, and no accelerator."""
    return device.cores is not None


def bound_s(counted: Counted, device: Accelerator, precision: str, batch: float) -> float | None:
    """Seconds of a step at the device's peak and bandwidth; None where its datasheet states no peak for this precision."""
    peak = device.peak(precision)
    if peak is None:
        return None
    return float(counted.flops(batch) / peak + counted.moved_bytes(batch) / device.memory_bandwidth_bytes_per_s)


@lru_cache(maxsize=32)
def achieved(speeds: PublishedThroughputs) -> tuple[Achieved, ...]:
    """Every published row of a counted model on a device with a datasheet; repeats of one setting as one."""
    found: dict[tuple[str, str, str, str, str], list[tuple[float, PublishedThroughput]]] = {}
    devices = accelerators()
    for row in speeds.rows:
        model, device = speeds.model_of(row.model), devices.get(spelled(row.device))
        if model is None or device is None or is_processor(device):
            continue
        batch = row.batch or _USUAL_BATCH
        best_s = bound_s(model.counted(row.precision), device, row.precision, batch)
        if best_s is not None:
            key = (model.id, row.precision, row.device, row.source, row.software)
            found.setdefault(key, []).append((best_s * row.throughput / batch, row))
    return tuple(
        Achieved(
            *key,
            statistics.geometric_mean(value for value, _ in values),
            statistics.geometric_mean(row.throughput for _, row in values),
            values[0][1].unit,
            values[0][1].url,
        )
        for key, values in found.items()
    )


def _by_model(values: Iterable[tuple[str, float]]) -> list[list[float]]:
    found: dict[str, list[float]] = {}
    for model, value in values:
        found.setdefault(model, []).append(value)
    return list(found.values())


@lru_cache(maxsize=32)
def efficiency(speeds: PublishedThroughputs) -> Range | None:
    """Efficiency that one more model would achieve: 90% prediction interval over models, each counted once however many rows it has.

    Spread between the means of models and spread of rows around their model's mean are
    added, with Student's t for the number of models. None of fewer than three models.
    """
    models = _by_model((each.model, math.log(each.efficiency)) for each in achieved(speeds))
    if len(models) < _FEWEST_MODELS:
        return None
    means = [statistics.fmean(values) for values in models]
    mean = statistics.fmean(means)
    inside = statistics.fmean(statistics.pvariance(values) for values in models)
    half = Scatter(math.sqrt(statistics.variance(means) + inside), len(models) - 1).half_width(len(models))
    return Range(math.exp(mean - half), math.exp(mean), math.exp(mean + half))


@lru_cache(maxsize=32)
def ratio_scatter(speeds: PublishedThroughputs) -> Scatter | None:
    """How far published pairs lie from the ratio of their two bounds: root mean square of logarithms, each model counted once.

    A pair's distance is the difference of its two logarithmic efficiencies, so no mean is
    fitted. None of fewer than three models.
    """
    rows = achieved(speeds)
    distances = [
        (one.model, math.log(one.efficiency / other.efficiency) ** 2)
        for number, one in enumerate(rows)
        for other in rows[:number]
        if one[0:2] == other[0:2] and one[3:5] == other[3:5] and not same_device(one.device, other.device)
    ]
    models = _by_model(distances)
    if len(models) < _FEWEST_MODELS:
        return None
    return Scatter(math.sqrt(statistics.fmean(statistics.fmean(values) for values in models)), len(models))


def roofline(load: Workload, here: Accelerator | None, there: Accelerator, speeds: PublishedThroughputs) -> Range | None:
    """Time there over time here by the bounds of both devices, or by that of the one there and published efficiencies.

    Between two accelerators the ratio of their bounds is taken, with the scatter of
    published pairs around it. What the workload takes here beyond the least published
    efficiency (a host that cannot keep up, kernels too small) is taken not to change.
    From a processor, or a device without datasheet, the time there is the bound over the
    published efficiencies, and starting the kernels one by one is added to it.

    None where operations are not counted, a peak is not known, or too little is published.
    """
    known = efficiency(speeds)
    if load.counted is None or known is None or is_processor(there):
        return None
    found = [_at(load, load.counted, here, there, known, speeds, batch) for batch in _batches(load)]
    kept = [each for each in found if each is not None]
    if len(kept) < len(found):
        return None
    return Range(min(each.low for each in kept), statistics.geometric_mean(each.mid for each in kept), max(each.high for each in kept))


def _batches(load: Workload) -> Sequence[float]:
    """The batch that a scenario trains with, or the smallest and the largest measured."""
    if load.batch_per_replica is not None:
        return (float(load.batch_per_replica),)
    return tuple(dict.fromkeys(load.calibrated.batch)) if load.calibrated is not None else (1.0,)


def _at(
    load: Workload, counted: Counted, here: Accelerator | None, there: Accelerator, known: Range, speeds: PublishedThroughputs, batch: float
) -> Range | None:
    measured_s = load.compute_s(batch) + load.apply_s
    there_s = bound_s(counted, there, load.precision, batch)
    here_s = bound_s(counted, here, load.precision, batch) if here is not None and not is_processor(here) else None
    if there_s is None:
        return None
    if here_s is None:
        ends = (known.high, LAUNCH_TOGETHER_S), (known.mid, LAUNCH_S), (known.low, LAUNCH_ALONE_S)
        return Range(*((there_s / share + counted.kernels * launch_s) / measured_s for share, launch_s in ends))
    scatter = ratio_scatter(speeds)
    if scatter is None:
        return None
    ratio, wider = there_s / here_s, math.exp(scatter.half_width())
    share = min(1.0, here_s / measured_s / known.low)
    low, mid, high = sorted((ratio / wider, share * ratio + (1.0 - share), share * ratio * wider + (1.0 - share)))
    return Range(low, mid, high)
