"""All points of a report as columns: what the page's script draws figures and fills tables from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from paceline.reporting.coordinates import Coordinates
from simulator.cost import placement_of, server_nodes, usd_per_hour, usd_per_million_samples
from simulator.discrepancy import Z_90
from simulator.figures import Estimate, Histogram
from simulator.intervals import FEWEST_REPLICATIONS, normal_half_width
from simulator.results import Result
from simulator.text import clean

__all__ = ["MOST_BINS", "MOST_RUNS", "PARTS", "columns_of", "first_runs"]

PARTS = {
    "input": "Input",
    "compute": "Compute",
    "exposed_communication": "Exposed communication",
    "waiting": "Waiting for others",
    "apply": "Apply",
}
"""The parts of a step, in the order in which they are stacked."""

MOST_BINS = 48
"""Bars of a histogram of staleness; more values than that share bars."""

MOST_RUNS = 100
"""Of a result with more replications as many are embedded, for comparing one with another run by run."""

_LONGEST_TEXT = 600

_NUMBERS: dict[str, Callable[[Result], float | int | None]] = {
    "throughput": lambda result: result.throughput_samples_per_s.mean,
    "low": lambda result: result.throughput_samples_per_s.low,
    "high": lambda result: result.throughput_samples_per_s.high,
    "error": lambda result: result.monte_carlo_error,
    "updates": lambda result: result.updates_per_s.mean,
    "speedup": lambda result: result.speedup.mean,
    "speedup_low": lambda result: result.speedup.low,
    "speedup_high": lambda result: result.speedup.high,
    "efficiency": lambda result: result.scaling_efficiency.mean,
    "efficiency_low": lambda result: result.scaling_efficiency.low,
    "efficiency_high": lambda result: result.scaling_efficiency.high,
    "wasted": lambda result: result.wasted_samples_per_s,
    "dropped": lambda result: result.dropped_share,
    "step_mean": lambda result: result.step_time_s.mean,
    "step_p50": lambda result: result.step_time_s.p50,
    "step_p95": lambda result: result.step_time_s.p95,
    "step_p99": lambda result: result.step_time_s.p99,
    "input": lambda result: result.breakdown_s.input,
    "compute": lambda result: result.breakdown_s.compute,
    "exposed_communication": lambda result: result.breakdown_s.exposed_communication,
    "waiting": lambda result: result.breakdown_s.waiting,
    "apply": lambda result: result.breakdown_s.apply,
    "hidden_communication": lambda result: result.hidden_communication_s,
    "stale_mean": lambda result: result.staleness.mean if _asynchronous(result) else None,
    "stale_p50": lambda result: result.staleness.p50 if _asynchronous(result) else None,
    "stale_p95": lambda result: result.staleness.p95 if _asynchronous(result) else None,
    "stale_p99": lambda result: result.staleness.p99 if _asynchronous(result) else None,
    "stale_max": lambda result: result.staleness.max if _asynchronous(result) else None,
    "devices_busy": lambda result: result.utilisation.devices,
    "links_busy": lambda result: result.utilisation.links,
    "busiest_link": lambda result: result.utilisation.busiest_link,
    "servers_busy": lambda result: result.utilisation.servers if result.scenario.servers else None,
    "busiest_server": lambda result: result.utilisation.busiest_server if result.scenario.servers else None,
    "cores_busy": lambda result: result.utilisation.cores if result.scenario.cluster.shared_cores else None,
    "replicas": lambda result: result.replicas,
    "servers": lambda result: result.scenario.servers or None,
    "nodes": lambda result: placement_of(result.scenario).nodes,
    "devices_per_node": lambda result: result.scenario.cluster.devices_per_node,
    "server_nodes": lambda result: server_nodes(result.scenario) or None,
    "batch": lambda result: result.scenario.batch,
    "steps": lambda result: result.scenario.run.steps if result.scenario.run.job_steps is None else None,
    "job_steps": lambda result: result.scenario.run.job_steps,
    "replications": lambda result: result.scenario.run.replications,
    "seed": lambda result: result.seed,
    "hourly": lambda result: usd_per_hour(result.scenario),
    "beyond": lambda result: int(result.extrapolated),
    "calibrated": lambda result: int(result.scenario.workload.calibrated is not None),
}
"""What is embedded under which name; times in seconds, rates in samples/s, shares 0 to 1; none where it does not apply."""

_TEXTS: dict[str, Callable[[Result], str]] = {
    "limit": lambda result: result.bottleneck.label,
    "grade": lambda result: result.grade,
    "limit_text": lambda result: result.bottleneck.text,
    "link_name": lambda result: result.utilisation.busiest_link_name,
    "all_reduce": lambda result: "; ".join(dict.fromkeys(f"{each.algorithm} ({each.protocol})" for each in result.all_reduces)),
    "placement": lambda result: placement_of(result.scenario).text,
    "hash": lambda result: result.scenario_hash,
}


def columns_of(results: Sequence[Result], at: Coordinates, chosen: int = 0, measured: Sequence[tuple[int, float]] = ()) -> dict[str, Any]:
    """Plain data, ready to become JSON.

    Parameters
    ----------
    results
        In the order of ``at``.
    at
        Where each stands.
    chosen
        The result that the page begins with.
    measured
        Measured throughputs, in samples/s, each with the index of its prediction.

    Returns
    -------
    dict
        ``keys``, ``groups`` and ``curves``; ``curve`` (of each result) and ``at`` (for each key,
        of each result, the index of its value); ``numbers`` and ``texts``: a column for each
        name, texts as [distinct texts, index of each result]; ``cost``: mean, low and high in
        US dollars for a million samples; ``warnings``: [distinct sentences, indices of each
        result]; ``parts``: of a step, with what they are called; ``chosen``: curve and indices
        of values to begin with; ``measured``: as given; ``histograms``: of each result none, or
        [first staleness, width of a bin, counts]; ``runs``: of each result its throughput in
        each replication, of the first :data:`MOST_RUNS`; ``moves``: of each result a number for
        the move of its workload to another device, -1 for none; ``half_widths``: for each number
        of runs below 19 :func:`simulator.intervals.normal_half_width`; ``doubts``: of each result
        the parts of its discrepancy, [number of the cause, slower, faster]; ``z_90``: standard
        deviations to an end of a normal 90% interval.
    """
    costs = [usd_per_million_samples(result) for result in results]
    return {
        "keys": [{"path": key.path, "name": key.name, "kind": key.kind, "values": list(key.values)} for key in at.keys],
        "groups": [{"id": group.id, "name": group.name, "labels": list(group.labels)} for group in at.groups],
        "curves": [{"name": curve.name, "labels": list(curve.labels)} for curve in at.curves],
        "curve": list(at.curve_of),
        "at": [[place[index] for place in at.places] for index in range(len(at.keys))],
        "numbers": {name: [_number(read(result)) for result in results] for name, read in _NUMBERS.items()},
        "texts": {
            name: _indexed([clean(read(result), _LONGEST_TEXT) if read(result) else "" for result in results])
            for name, read in _TEXTS.items()
        },
        "cost": {part: [None if cost is None else _number(getattr(cost, part)) for cost in costs] for part in Estimate.model_fields},
        "warnings": _warnings(results),
        "parts": [[part, name] for part, name in PARTS.items()],
        "chosen": {"curve": at.curve_of[chosen], "at": [max(0, place) for place in at.places[chosen]]},
        "measured": [[index, value] for index, value in measured],
        "histograms": [_histogram(result.staleness.histogram) if _asynchronous(result) else None for result in results],
        **_pairing(results),
    }


def first_runs(result: Result) -> Result:
    """A result with at most :data:`MOST_RUNS` of its runs: what one on the page is compared by with another, in figures and in text."""
    return result.model_copy(update={"throughput_of_each_replication": result.throughput_of_each_replication[:MOST_RUNS]})


def _pairing(results: Sequence[Result]) -> dict[str, Any]:
    """What :func:`paceline.comparing.compare` needs, for the page's script to do the same."""
    runs = [[float(f"{rate:.7g}") for rate in result.throughput_of_each_replication] for result in map(first_runs, results)]
    moved = [result.moved for result in results]
    known = list(dict.fromkeys(its.model_dump_json() for its in moved if its is not None))
    doubts = [its.discrepancy.parts if its.discrepancy is not None else () for its in results]
    causes = {name: index for index, name in enumerate(dict.fromkeys(part.name for parts in doubts for part in parts))}
    return {
        "runs": runs,
        "doubts": [[[causes[part.name], part.slower, part.faster] for part in parts] for parts in doubts],
        "z_90": Z_90,
        "moves": [-1 if its is None else known.index(its.model_dump_json()) for its in moved],
        "half_widths": {str(count): normal_half_width(count) for count in sorted(set(map(len, runs))) if 1 < count < FEWEST_REPLICATIONS},
    }


def _asynchronous(result: Result) -> bool:
    return result.scenario.strategy.pace.asynchronous


def _number(value: float | int | None) -> float | int | None:
    """JSON knows no infinity."""
    return value if value is None or math.isfinite(value) else None


def _indexed(texts: Sequence[str]) -> list[Any]:
    places: dict[str, int] = {}
    indices = [places.setdefault(text, len(places)) for text in texts]
    return [list(places), indices]


def _warnings(results: Sequence[Result]) -> list[Any]:
    places: dict[str, int] = {}
    of = [[places.setdefault(clean(warned.text, _LONGEST_TEXT), len(places)) for warned in result.warnings] for result in results]
    return [list(places), of]


def _histogram(histogram: Histogram) -> list[Any] | None:
    """At most :data:`MOST_BINS` bins of equal width, from the least value on."""
    if not sum(histogram.counts):
        return None
    low, high = min(histogram.values), max(histogram.values)
    width = max(1, math.ceil((high - low + 1) / MOST_BINS))
    bins = [0] * ((high - low) // width + 1)
    for value, count in zip(histogram.values, histogram.counts, strict=True):
        bins[(value - low) // width] += count
    return [low, width, bins]
