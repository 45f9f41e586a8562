"""How much faster mixed float16 trains than float32 on one device, by published rows of both with the same software.

An interval with its sources; none where fewer than three models are published in both.
"""

from __future__ import annotations

import math
import statistics
from typing import NamedTuple

from simulator.resolve.published_throughputs import PublishedThroughputs, Scatter, kind_of, load_published_throughputs

_FEWEST_MODELS = 3


class SpeedUp(NamedTuple):
    """Throughput in mixed precision over that in float32, of one model by one software on one device."""

    model: str
    device: str
    gain: float
    source: str


def speed_ups(speeds: PublishedThroughputs) -> list[SpeedUp]:
    """Every model that one software has trained in both precisions on one device."""
    known: dict[tuple[str, ...], tuple[list[float], str]] = {}
    for row in speeds.rows:
        software = row.software.partition(",")[0]
        key = (speeds.key_of(row.model), row.device, row.source, software, row.unit, row.setting, row.precision)
        known.setdefault(key, ([], row.url))[0].append(row.throughput)
    found = []
    for (model, device, *rest, precision), (plain, _) in known.items():
        mixed = known.get((model, device, *rest, "mixed_float16"))
        if precision == "float32" and mixed is not None:
            found.append(SpeedUp(model, device, statistics.geometric_mean(mixed[0]) / statistics.geometric_mean(plain), mixed[1]))
    return found


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
    logs: dict[str, list[float]] = {}
    for each in every:
        if speeds.kinds[each.device] == kind:
            logs.setdefault(each.model, []).append(math.log(each.gain))
    if len(logs) < _FEWEST_MODELS:
        return None
    between_sources = _scatter(every)
    key = speeds.key_of(model) if model else ""
    if key in logs:
        mean, half = statistics.fmean(logs[key]), between_sources.half_width(len(logs[key]))
    else:
        means = [statistics.fmean(values) for values in logs.values()]
        sigma = math.sqrt(statistics.variance(means) + between_sources.sigma**2)
        mean, half = statistics.fmean(means), Scatter(sigma, len(means) - 1).half_width(len(means))
    sources = {each.source for each in every if speeds.kinds[each.device] == kind and (key not in logs or each.model == key)}
    return math.exp(mean - half), math.exp(mean), math.exp(mean + half), tuple(sorted(sources))


def _scatter(every: list[SpeedUp]) -> Scatter:
    """How much sources differ about one model on one device, pooled over all that several have."""
    groups: dict[tuple[str, str], list[float]] = {}
    for each in every:
        groups.setdefault((each.model, each.device), []).append(math.log(each.gain))
    several = [values for values in groups.values() if len(values) > 1]
    freedom = sum(len(values) - 1 for values in several)
    return Scatter(math.sqrt(math.fsum((len(values) - 1) * statistics.variance(values) for values in several) / freedom), freedom)
