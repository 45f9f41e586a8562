"""Moves a workload from the device that it was measured on to another, by the best rule that there is, or refuses.

In this order: a factor that the scenario gives; the same model measured on that device; a published pair of the same model on both; a
roofline. Forward and backward pass and the optimizer's update on the device are moved. Costs of hosts, servers and links are not scaled,
nor are the jitter of a step and the spread of runs, because their change is unknown.

The bound of a roofline adds what is counted: floating-point operations over the device's peak, and bytes, none of them fused,
over its memory's bandwidth. Fused kernels and caches move fewer, so that efficiencies may exceed 1; what counts is how little
they differ between models and devices. Of five bounds (operations alone; the larger of the two or their sum, each with all bytes
or with those of matrix products only) this one left the least scatter over the published rows. (Williams, Waterman and
Patterson, "Roofline", CACM 2009.)

How much faster mixed float16 trains than float32 on one device follows from published rows of both with the same software.
"""

from __future__ import annotations

import math
import statistics
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.base.errors import ScenarioError
from simulator.base.text import did_you_mean, written
from simulator.resolve.published_throughputs import (
    Pair,
    PublishedThroughput,
    PublishedThroughputs,
    Range,
    Scatter,
    grouped,
    kind_of,
    load_published_throughputs,
    plain,
    same_device,
)
from simulator.spec.accelerator import Accelerator, accelerator_named, accelerators, spelled
from simulator.spec.computed import parameter_bytes_of
from simulator.spec.constants import Known
from simulator.spec.uncertainty import Uncertainty
from simulator.spec.workload import DISTRIBUTION_PARTS, Counted, DeviceTransfer, Workload

LAUNCH_S = 3.8e-6
"""Seconds per kernel for many short kernels in sequence on the device."""
LAUNCH_ALONE_S = 9.6e-6
"""The same where the host waits for each."""
LAUNCH_TOGETHER_S = 0.5e-6
"""Besides their own time, 3.4 - 2.9 us, where all are started as one graph: the least, however little each has to do.

All three: Gray, "Getting Started with CUDA Graphs", NVIDIA, 2019-09-05, V100.
"""
_USUAL_BATCH = 64
"""Where a source does not state its batch; it only says over how many samples the variables' bytes spread."""


class Achieved(NamedTuple):
    """Share of the bound that one published row achieved."""

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
    """Tell whether it is a host's processor, and no accelerator."""
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
    rows = []
    devices = accelerators()
    for row in speeds.rows:
        model, device = speeds.model_of(row.model), devices.get(spelled(row.device))
        if model is None or device is None or is_processor(device):
            continue
        batch = row.batch or _USUAL_BATCH
        best_s = bound_s(model.counted(row.precision), device, row.precision, batch)
        if best_s is not None:
            key = (model.id, row.precision, row.device, row.source, row.software)
            rows.append((key, (best_s * row.throughput / batch, row)))
    return tuple(
        Achieved(
            *key,
            statistics.geometric_mean(value for value, _ in values),
            statistics.geometric_mean(row.throughput for _, row in values),
            values[0][1].unit,
            values[0][1].url,
        )
        for key, values in grouped(rows).items()
    )


@lru_cache(maxsize=32)
def efficiency(speeds: PublishedThroughputs) -> Range | None:
    """Efficiency that one more model would achieve: 90% prediction interval over models, each counted once however many rows it has.

    Spread between the means of models and spread of rows around their model's mean are
    added, with Student's t for the number of models. None of fewer than three models.
    """
    models = grouped((each.model, math.log(each.efficiency)) for each in achieved(speeds)).values()
    if len(models) < _FEWEST_MODELS:
        return None
    means = [statistics.fmean(values) for values in models]
    inside = statistics.fmean(statistics.pvariance(values) for values in models)
    half = Scatter(math.sqrt(statistics.variance(means) + inside), len(models) - 1).half_width(len(models))
    return Range.of_logs(statistics.fmean(means), half)


@lru_cache(maxsize=32)
def ratio_scatter(speeds: PublishedThroughputs) -> Scatter | None:
    """How far published pairs lie from the ratio of their two bounds: root mean square of logarithms.

    A model counts as the root of its number of pairs, so that one odd pair does not decide, nor the model with the most pairs.

    A pair's distance is the difference of its two logarithmic efficiencies, so no mean is
    fitted. None of fewer than three models.
    """
    rows = achieved(speeds)
    models = grouped(
        (row.model, math.log(row.efficiency / other.efficiency) ** 2)
        for number, row in enumerate(rows)
        for other in rows[:number]
        if row[0:2] == other[0:2] and row[3:5] == other[3:5] and not same_device(row.device, other.device)
    ).values()
    if len(models) < _FEWEST_MODELS:
        return None
    squares, weights = (statistics.fmean(values) for values in models), [math.sqrt(len(values)) for values in models]
    return Scatter(math.sqrt(statistics.fmean(squares, weights)), len(models))


def roofline(load: Workload, here: Accelerator | None, there: Accelerator, speeds: PublishedThroughputs) -> Range | None:
    """Time there over time here by the bounds of both devices, or by that of the one there and published efficiencies.

    Between two accelerators the ratio of their bounds is taken, with the scatter of published pairs around it. Time beyond the lowest
    published efficiency (a host that cannot keep up, kernels too small) is assumed not to change. From a processor, or a device without
    datasheet, the time there is the bound over the published efficiencies, and starting the kernels one by one is added to it.

    None where operations are not counted, a peak is not known, or too little is published.
    """
    known = efficiency(speeds)
    if load.counted is None or known is None or is_processor(there):
        return None
    batches: tuple[float, ...] = (1.0,)  # that a scenario trains with, or the smallest and the largest measured
    if load.batch_per_replica is not None:
        batches = (float(load.batch_per_replica),)
    elif load.calibrated is not None:
        batches = tuple(dict.fromkeys(load.calibrated.batch))
    ranges = [_at(load, load.counted, here, there, known, speeds, batch) for batch in batches]
    kept = [each for each in ranges if each is not None]
    if len(kept) < len(ranges):
        return None
    return Range(min(each.low for each in kept), statistics.geometric_mean(each.mid for each in kept), max(each.high for each in kept))


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


_FEWEST_MODELS = 3


class SpeedUp(NamedTuple):
    """Throughput in mixed precision over that in float32, of one model by one software on one device."""

    model: str
    device: str
    gain: float
    source: str


def speed_ups(speeds: PublishedThroughputs) -> list[SpeedUp]:
    """Every model that one software has trained in both precisions on one device."""
    rows: list[tuple[tuple[str, ...], PublishedThroughput]] = []
    for row in speeds.rows:
        software = row.software.partition(",")[0]
        rows.append(((speeds.key_of(row.model), row.device, row.source, software, row.unit, row.setting, row.precision), row))
    known, gains = grouped(rows), []
    for (model, device, *rest, precision), plainly in known.items():
        mixed = known.get((model, device, *rest, "mixed_float16"))
        if precision == "float32" and mixed is not None:
            rate, before = (statistics.geometric_mean(row.throughput for row in alike) for alike in (mixed, plainly))
            gains.append(SpeedUp(model, device, rate / before, mixed[0].url))
    return gains


def precision_gain(
    device: str, model: str | None = None, speeds: PublishedThroughputs | None = None
) -> tuple[float, float, float, tuple[str, ...]] | None:
    """Throughput in mixed precision over that in float32 on one device.

    Parameters
    ----------
    device
        Name of the device, such as a cluster's ``device``.
    model
        The model; its own rows are taken where there are any, else those of all models.
    speeds
        Published rows; left out: those of the catalogue.

    Returns
    -------
    tuple or None
        Low, middle and high (a 90% prediction interval, Student's t) and the sources; None
        where fewer than three models are published in both precisions on this device.
    """
    speeds, kind = load_published_throughputs() if speeds is None else speeds, kind_of(device)
    every = speed_ups(speeds)
    logs = grouped((each.model, math.log(each.gain)) for each in every if speeds.kinds[each.device] == kind)
    # how much sources differ about one model on one device, pooled over all that several have
    between_sources = Scatter.pooled(grouped(((each.model, each.device), math.log(each.gain)) for each in every).values())
    if len(logs) < _FEWEST_MODELS or between_sources is None:
        return None
    key = speeds.key_of(model) if model else ""
    if key in logs:
        mean, half = statistics.fmean(logs[key]), between_sources.half_width(len(logs[key]))
    else:
        means = [statistics.fmean(values) for values in logs.values()]
        sigma = math.sqrt(statistics.variance(means) + between_sources.sigma**2)
        mean, half = statistics.fmean(means), Scatter(sigma, len(means) - 1).half_width(len(means))
    sources = {each.source for each in every if speeds.kinds[each.device] == kind and (key not in logs or each.model == key)}
    return (*Range.of_logs(mean, half), tuple(sorted(sources)))


COMPUTE = ("forward.base_s", "forward.per_sample_s", "backward.base_s", "backward.per_sample_s", "apply_s")
"""Times that are scaled."""
_DRAWS = 60
_FLOPS_APART = 0.3
_PARAMETERS_APART = 0.15
_Z95 = statistics.NormalDist().inv_cdf(0.95)


class _Offer(NamedTuple):
    """Result of a rule: the factor, its sources, and the rule in one sentence; by ``there``, the workload measured there."""

    factor: Range
    sources: tuple[str, ...]
    text: str
    there: Workload | None = None


def moved_to(
    load: Workload,
    device: str,
    stand_ins: Iterable[Workload] = (),
    speeds: PublishedThroughputs | None = None,
    own: Mapping[str, Known] | None = None,
    *,
    eager: bool | None = None,
) -> Workload:
    """The workload as it would run on another device.

    Parameters
    ----------
    load
        As it was measured; one that names no device, or the same, is given back as it is. One
        whose times are computed is computed for that device.
    device
        Name of the device to move to, such as a cluster's ``device``.
    stand_ins
        Other workloads, one of which may have been measured there.
    speeds
        Published rows; left out: those of the catalogue.
    own
        Constants in place of those of ``models/practice.toml``, if times are computed.
    eager
        Whether a framework launches each kernel, if times are computed; None: as they were.

    Returns
    -------
    Workload
        Its compute times multiplied by the middle of the factor, and joint draws of them by
        draws of the factor (:func:`factors`), so that every interval of a prediction widens.
        ``moved`` tells by which rule.

    Raises
    ------
    ScenarioError
        No rule leads there; or it was moved already, elsewhere.
    """
    moved = load.moved
    if load.is_computed and moved is None and not _own_times(load):
        try:
            return load.computed_for(device, own or {}, eager=eager)
        except ValueError as error:
            raise ScenarioError(f"cluster.device: {device!r} {error} (the times of the workload {load.name!r} are computed)") from None
    here = load.device
    if moved is not None and moved.applied:
        if same_device(moved.to_device, device) or not device:
            return load
        raise ScenarioError(
            f"the workload {load.name!r} was already scaled from {moved.from_device!r} to {moved.to_device!r}, so it cannot be scaled to "
            f"{device!r}: give the workload as measured"
        )
    if not here or not device or same_device(here, device) or _own_times(load):
        return load
    if moved is not None:
        text = f"by the scenario's factor ({moved.source})"
        return _scaled(load, "given", here, device, _Offer(Range(*moved.low_mid_high), (moved.source,), text))
    speeds = load_published_throughputs() if speeds is None else speeds
    problems: list[str] = []
    rules: tuple[tuple[str, Callable[[], _Offer | str]], ...] = (
        ("measured-there", lambda: _measured_there(load, device, stand_ins)),
        ("published-pair", lambda: _published_pair(load, here, device, speeds)),
        ("roofline", lambda: _by_roofline(load, here, device, speeds)),
    )
    for rule, offer_of in rules:
        offer = offer_of()
        if isinstance(offer, _Offer):
            return _scaled(load, rule, here, device, offer)
        problems.append(offer)
    raise ScenarioError(
        f"cluster.device: the workload {load.name!r} was measured on {here!r}, the cluster has {device!r}, and the ratio of their speeds "
        f"is unknown: calibrate the same model there ({problems[0]}), or use a published pair ({problems[1]}) or a roofline "
        f'({problems[2]}), or give time there / time here: workload.moved = {{factor = [0.2, 0.3], source = "..."}}'
    )


def _own_times(load: Workload) -> bool:
    """Tell whether the scenario gives the times of both passes itself: then none of them is of the device measured."""
    return all(any(name.startswith(part) for name in load.overridden) for part in ("forward", "backward"))


def _measured_there(load: Workload, device: str, stand_ins: Iterable[Workload]) -> _Offer | str:
    if not load.model:
        return "workload.model is unknown"
    for other in stand_ins:
        known = other.calibrated
        if (
            known is not None
            and plain(other.model) == plain(load.model)
            and (other.precision, other.backend) == (load.precision, load.backend)
            and known.device
            and same_device(known.device, device)
            and _sizes(other) == _sizes(load)
        ):
            batches = [batch for batch in (*known.batch, *(load.calibrated.batch if load.calibrated else ())) if batch > 0]
            ratios = sorted(_step_s(other, batch) / _step_s(load, batch) for batch in batches)
            text = f"its times are taken from {other.name!r}, the same model measured there"
            return _Offer(Range(ratios[0], statistics.geometric_mean(ratios), ratios[-1]), (f"workload {other.name!r}",), text, other)
    return f"no workload of model {load.model!r} in {load.precision} was measured there"


def _sizes(load: Workload) -> list[float]:
    return sorted(variable.size_bytes for variable in load.variables)


def _step_s(load: Workload, batch: float) -> float:
    return float(load.compute_s(batch) + load.apply_s)


def _published_pair(load: Workload, here: str, device: str, speeds: PublishedThroughputs) -> _Offer | str:
    if not load.model:
        return "workload.model is unknown"
    pairs = speeds.pairs_of(load.model, load.precision, here, device)
    if not pairs:
        return f"no published pair of model {load.model!r} in {load.precision} on both"
    if why := _unlike(load, speeds):
        return why
    names = ", ".join(f"{pair.source} ({pair.software}, batch {pair.batch or 'not stated'})" for pair in pairs)
    text = f"by {'a published pair' if len(pairs) == 1 else f'{len(pairs)} published pairs'} of {load.model} on both: {names}"
    return _Offer(pair_range(pairs, speeds.scatter), tuple(dict.fromkeys(pair.url for pair in pairs)), text)


def pair_range(pairs: Sequence[Pair], scatter: Scatter) -> Range:
    """Geometric mean of their factors, with the 90% interval of one more source.

    It is as wide as sources scatter around one another for one model on two devices, with
    Student's t; the spread of only these few pairs would be too uncertain.
    """
    logs = [math.log(pair.factor) for pair in pairs]
    return Range.of_logs(statistics.fmean(logs), scatter.half_width(len(logs)))


def _unlike(load: Workload, speeds: PublishedThroughputs) -> str:
    """Why a workload of a published model's name is another model; empty if it may be that one."""
    model = speeds.model_of(load.model)
    if model is None:
        return ""
    if load.counted is not None and abs(math.log(load.counted.flops_per_sample / model.flops_per_sample)) > _FLOPS_APART:
        theirs, ours = (written(each.flops_per_sample, "compact") for each in (model, load.counted))
        return f"the published {model.id} has {theirs} operations per sample, not {ours}"
    parameters = load.parameter_bytes / parameter_bytes_of(load.precision)
    if abs(math.log(parameters / model.parameters)) > _PARAMETERS_APART:
        return f"the published {model.id} has {written(model.parameters, 'compact')} parameters, not {written(parameters, 'compact')}"
    return ""


def _by_roofline(load: Workload, here: str, device: str, speeds: PublishedThroughputs) -> _Offer | str:
    there = accelerator_named(device)
    if load.counted is None:
        return "its operations were not counted: profile it again"
    if there is None:
        hint = did_you_mean(device, accelerators())
        return f"models/devices does not know {device!r}{f'; {hint}' if hint else ''}"
    if is_processor(there):
        return f"no efficiency is published for a CPU such as {device!r}"
    known = accelerator_named(here)
    factor = roofline(load, known, there, speeds)
    if factor is None:
        return f"no peak rate of {device!r} for {load.precision}, or too few published rows"
    used = [each for each in (known, there) if each is not None and not is_processor(each)]
    tables = sorted({each.source for each in achieved(speeds)})
    text = (
        f"by {'the ratio of two rooflines' if len(used) == 2 else 'a roofline'} (operations and bytes counted, peaks and bandwidths of "
        f"models/devices) with the efficiencies of published trainings (models/published/speeds.csv, {len(tables)} sources)"
    )
    sheets = tuple(f"models/devices: {each.name}" for each in used)
    return _Offer(factor, (*sheets, *(f"models/published/speeds.csv: {table}" for table in tables)), text)


_OF_A_DEVICE = ("forward", "backward", "apply_s", "busy_core_slowdown", "device_work", "uncertainty", "calibrated", "fit", "counted")
"""Factor from a workload measured on the other device."""


def _scaled(load: Workload, rule: str, here: str, device: str, offer: _Offer) -> Workload:
    moved = DeviceTransfer.model_validate(
        {"rule": rule, "factor": offer.factor, "source": load.moved.source if load.moved else "", "from_device": here, "to_device": device,
         "sources": offer.sources, "text": offer.text}
    )  # fmt: skip
    if offer.there is not None:
        other = offer.there
        times = {name: getattr(other, name) for name in _OF_A_DEVICE}
        # a distribution that the scenario gives goes before the other workload's; what belongs to it goes with it
        own = {name: getattr(other, name) for first, *rest in DISTRIBUTION_PARTS if first not in load.overridden for name in (first, *rest)}
        return load.replaced({**times, **own, "moved": moved})
    # what share of the one device it keeps busy says nothing of the other
    return scaled(load, offer.factor).replaced({"moved": moved, "device_work": None})


def scaled(load: Workload, factor: Range, stream: bytes = b"moved device") -> Workload:
    """A workload whose compute takes an uncertain number of times as long.

    Its times are multiplied by the middle of the factor, and joint draws of them by draws of
    the factor; what the host needs to start kernels (``least_s``) stays.

    Parameters
    ----------
    factor
        Low, middle and high, a 90% interval.
    stream
        Names the draws: those of two factors of one workload must have different names.
    """
    low, mid, high = factor
    drawn = load.uncertainty
    count = max(_DRAWS, len(drawn.draws) if drawn else 0)
    update: dict[str, Any] = {name: load.value_at(name) * mid for name in COMPUTE}
    update["uncertainty"] = _with_factors(load, factors(low, mid, high, count, stream))
    if load.device_work is not None:
        update |= {f"device_work.{name}": load.device_work.value_at(name) * mid for name in ("base_s", "per_sample_s")}
    if load.fit is not None:  # the curve through what was measured is no longer the workload's
        update |= {"fit.points": (), "fit.laws": (), "fit.intervals_90": {}}
    return load.replaced({**update, "jitter_steps": load.steps_seen})


def _with_factors(load: Workload, drawn: NDArray[np.float64]) -> Uncertainty:
    """Joint draws with the factor in them: those of the fit in turn, each with a draw of the factor; without, the factor's alone."""
    known = load.uncertainty
    names = tuple(dict.fromkeys((*(known.parameters if known else ()), *COMPUTE)))
    values = {name: load.value_at(name) for name in names}
    rows = [dict(zip(known.parameters, draw, strict=True)) for draw in known.draws] if known else [{}]
    draws = []
    for number, factor in enumerate(drawn):
        row = {**values, **rows[number % len(rows)]}
        draws.append(tuple(float(row[name] * factor) if name in COMPUTE else row[name] for name in names))
    return Uncertainty(parameters=names, draws=tuple(draws))


def factors(low: float, mid: float, high: float, count: int, stream: bytes = b"moved device") -> NDArray[np.float64]:
    """Draws of a factor: lognormal on each side of its middle, with its low and high end as 5% and 95% points, shape (count,).

    The draws are the quantiles of that distribution at equal steps, in an order drawn from the stream
    of that name, so that the same factor gives the same draws.
    """
    scores = np.array([statistics.NormalDist().inv_cdf((index + 0.5) / count) for index in range(count)])
    below, above = math.log(mid / low) / _Z95, math.log(high / mid) / _Z95
    values: NDArray[np.float64] = mid * np.exp(scores * np.where(scores < 0.0, below, above))
    return np.random.default_rng(np.random.SeedSequence(zlib.crc32(stream))).permutation(values)
