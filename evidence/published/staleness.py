"""Published distributions of staleness, predicted.

Nobody published how the workers' step times spread. So one number is fitted for each family of runs (one model, data and set of machines):
the coefficient of variation of a gamma distribution of step times, for which the simulated distribution is nearest to that of the family's
first run. Predicted: the other runs of the family, among them 30 workers from 10. Communication is left out, because it adds the same to
every step.

The mean says little: a worker that reads as soon as its update is applied misses one of
every other worker, n - 1, whatever the step times. The shape is what is at stake.
"""

from __future__ import annotations

import math
import statistics
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from pydantic import Field
from scipy.optimize import minimize_scalar
from scipy.stats import geom, poisson
from scipy.stats import t as student

from calibrate.validation.comparison import Compared, histogram_distance
from evidence.published.tables import data_file
from evidence.rows import rows_in
from simulator import scenario_from_table
from simulator.base.compact import CountHistogram
from simulator.base.spec import Spec
from simulator.base.text import format_number
from simulator.engine.replication import replicate
from simulator.resolve.resolve import resolve
from simulator.spec.figures import Estimate

GROUP = "staleness"
_REPLICATIONS = 6
_FITTING = 2
"""Replications of each distribution that a fit looks at."""
_SPREADS = (0.01, 2.0)
"""Coefficients of variation that are looked at: from nearly equal steps to twice as wide as exponential ones."""


class StalenessSeries(Spec):
    """A run whose distribution of staleness somebody published."""

    name: str
    family: str = Field(description="runs of one family have one spread of step times; the first is fitted")
    source: str
    setting: str
    workers: int = Field(ge=2)
    updates: int = Field(ge=1, description="of the whole run")
    discarded: float = Field(default=0.0, ge=0, lt=1, description="share of the run that the histogram leaves out at its start")
    reading_error: float = Field(default=0.0, ge=0, description="of the mean, where the histogram was read from a figure")


class _Simulated(NamedTuple):
    """Counts by staleness of all replications, and the mean of each."""

    counts: Mapping[int, float]
    means: tuple[float, ...]


def read_staleness() -> dict[StalenessSeries, dict[int, float]]:
    """Every published run with its counts by staleness."""
    with data_file("staleness.toml").open("rb") as file:
        series = {one.name: one for one in map(StalenessSeries.model_validate, tomllib.load(file)["series"])}
    counts: dict[str, dict[int, float]] = {name: {} for name in series}
    for row in rows_in(data_file("staleness.csv")):
        counts[row["series"]][int(row["staleness"])] = float(row["count"])
    return {series[name]: some for name, some in counts.items()}


def staleness_rows() -> list[Compared]:
    """Mean and distribution of staleness of every published run, fitted or predicted.

    The mean stands in the place of throughput, too. Its interval holds the differences
    between runs as long as the published one and the error of reading a figure. The rule
    beside it is n - 1. ``settings`` has the Kolmogorov distances of simpler distributions of
    that mean: all updates alike, Poisson, geometric.
    """
    published = read_staleness()
    spreads: dict[str, float] = {}
    rows = []
    for series, counts in published.items():
        fitted = series.family not in spreads
        if fitted:
            spreads[series.family] = _fitted_spread(series, counts)
        rows.append(_compared(series, counts, spreads[series.family], fitted))
    return rows


def _compared(series: StalenessSeries, counts: Mapping[int, float], spread: float, fitted: bool) -> Compared:
    simulated = _simulated(series.workers, round(series.updates / series.workers), series.discarded, spread, _REPLICATIONS)
    mean, published_mean = _mean(simulated.counts), _mean(counts)
    deviation = statistics.stdev(simulated.means) * math.sqrt(1 + 1 / _REPLICATIONS)
    margin = float(student.ppf(0.95, _REPLICATIONS - 1)) * deviation + series.reading_error
    rule = series.workers - 1.0
    return Compared(
        name=series.name,
        group=GROUP,
        fitted=fitted,
        unit="updates",
        measured=(published_mean,),
        predicted=Estimate(mean=mean, low=mean - margin, high=mean + margin),
        staleness_measured=(published_mean,),
        staleness_predicted=mean,
        staleness_distance=histogram_distance(simulated.counts, counts),
        baselines={"n - 1": rule},
        settings={
            "workers": series.workers,
            "spread": spread,
            "distance of all n - 1": histogram_distance({series.workers - 1: 1.0}, counts),
            "distance of Poisson": histogram_distance({k: float(poisson.pmf(k, rule)) for k in range(20 * series.workers)}, counts),
            "distance of geometric": histogram_distance(
                {k: float(geom.pmf(k + 1, 1 / (rule + 1))) for k in range(20 * series.workers)}, counts
            ),
        },
        note=f"{series.setting}; spread of step times {format_number(spread)}, "
        f"of {'this run' if fitted else f'the first run of {series.family}'}",
    )


def _fitted_spread(series: StalenessSeries, counts: Mapping[int, float]) -> float:
    """The coefficient of variation of step times whose distribution of staleness is nearest to this one."""
    steps = round(series.updates / series.workers)

    def distance(log: float) -> float:
        simulated = _simulated(series.workers, steps, series.discarded, math.exp(log), _FITTING)
        return histogram_distance(simulated.counts, counts)

    low, high = map(math.log, _SPREADS)
    found = minimize_scalar(distance, bounds=(low, high), method="bounded", options={"xatol": 0.02})
    return math.exp(float(found.x))


@cache
def _simulated(workers: int, steps: int, discarded: float, spread: float, replications: int) -> _Simulated:
    """Asynchronous workers whose step times have a gamma distribution with this coefficient of variation."""
    scenario = scenario_from_table(
        {
            "workload": {
                "name": "steps",
                "batch_per_replica": 1,
                "forward": {"base": "10 ms", "per_sample": "0 s"},
                "backward": {"base": "20 ms", "per_sample": "0 s"},
                "jitter": {"kind": "gamma", "shape": spread**-2},
                "variables": [{"name": "v", "size": "4 B", "creation_index": 0, "ready": 1.0}],
            },
            "cluster": {"name": "no network", "inter_node": {"bandwidth": "1000 GB/s", "latency": "0 s"}},
            "strategy": {"kind": "parameter-server", "mode": "async", "workers": workers},
            "run": {
                "steps": steps,
                "warmup_steps": round(discarded * steps),
                "start": "random-phase",
                "replications": replications,
                "seed": 11,
            },
        },
        "published staleness",
    )
    pooled, means = CountHistogram(), []
    for number in range(replications):
        one = replicate(resolve(scenario), number).staleness
        means.append(_mean(one.counts))
        pooled.merge(one)
    return _Simulated(dict(pooled.counts), tuple(means))


def _mean(counts: Mapping[int, float]) -> float:
    return sum(value * count for value, count in counts.items()) / sum(counts.values())
