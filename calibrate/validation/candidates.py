"""The quantities of a scenario that a refit may scale, with their priors, and the residuals of predictions under given factors.

A new quantity is a :class:`Candidate`: names of keys within workload or cluster. Which factors are best is searched in refit.py.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from calibrate.validation.points import Setting, Unit
from simulator.base.spec import Spec
from simulator.engine.replication import replicate
from simulator.resolve.resolve import resolve
from simulator.scenario import Scenario


class Candidate(Spec):
    """A quantity that one factor scales, whatever numbers of the scenario it is made of.

    The logarithm of the factor is believed to be normal around 0, so that twice and half
    are equally likely.
    """

    name: str = Field(description="as tables have it")
    section: Literal["workload", "cluster"]
    targets: tuple[str, ...] = Field(min_length=1, description="dotted names within the section, all scaled alike")
    prior_log_sd: float = Field(gt=0, description="standard deviation of the logarithm of the factor, before any point is seen")
    starts: tuple[float, ...] = Field(
        default=(), description="factors to search from besides 1: what hides behind compute has no slope there"
    )

    @property
    def paths(self) -> tuple[str, ...]:
        """Dotted names within the scenario."""
        return tuple(f"{self.section}.{target}" for target in self.targets)


_COMPUTE = Candidate(
    name="compute",
    section="workload",
    targets=("forward.base_s", "forward.per_sample_s", "backward.base_s", "backward.per_sample_s"),
    prior_log_sd=0.25,
)
"""Another clock, another thermal state, shared cores: mostly within a third of what was calibrated."""
_SERVER = Candidate(
    name="server's cost of a gradient", section="workload", targets=("server.base_s", "server.per_byte_s"), prior_log_sd=0.7
)
"""Known by its order of magnitude: twice or half at one standard deviation."""
_BANDWIDTH = Candidate(
    name="bandwidth between nodes", section="cluster", targets=("inter_node.bandwidth_bytes_per_s",), prior_log_sd=0.7, starts=(0.3, 0.1)
)
"""What a port is sold as and what TensorFlow gets through it differ by a factor of two or more."""
_LATENCY = Candidate(
    name="latency between nodes", section="cluster", targets=("inter_node.latency_s",), prior_log_sd=1.0, starts=(3.0, 10.0)
)
"""Includes software, which data sheets leave out."""
_INSIDE = Candidate(
    name="bandwidth inside a node", section="cluster", targets=("intra_node.bandwidth_bytes_per_s",), prior_log_sd=0.7, starts=(0.3, 0.1)
)
_INSIDE_LATENCY = Candidate(
    name="latency inside a node", section="cluster", targets=("intra_node.latency_s",), prior_log_sd=1.0, starts=(3.0, 10.0)
)


def candidates_of(scenario: Scenario) -> tuple[list[Candidate], dict[str, str]]:
    """What a refit of the scenario may move, and for what it may not, the reason by name."""
    wanted = [_COMPUTE]
    if scenario.strategy.link == "intra_node":
        wanted += [_INSIDE, _INSIDE_LATENCY]
    elif scenario.strategy.link == "inter_node":
        wanted += [_BANDWIDTH, _LATENCY]
    if scenario.servers:
        wanted.append(_SERVER)
    candidates: list[Candidate] = []
    left: dict[str, str] = {}
    for each in wanted:
        targets = tuple(target for target in each.targets if scenario.value_at(f"{each.section}.{target}") > 0)
        if targets:
            candidates.append(each.model_copy(update={"targets": targets}))
        else:
            left[each.name] = f"is 0 in the scenario, which no factor changes; set {each.paths[0]} to have it fitted"
    return candidates, left


def with_factors(scenario: Scenario, candidates: Sequence[Candidate], factors: Sequence[float]) -> Scenario:
    """The scenario with each candidate's numbers scaled."""
    for candidate, factor in zip(candidates, factors, strict=True):
        scenario = scenario.replaced({path: scenario.value_at(path) * factor for path in candidate.paths})
    return scenario


Array = NDArray[np.float64]
Rate = tuple[float, float]
"""Mean over replications, and its standard error as a share."""
Map = Callable[[Callable[[Scenario], Rate], Iterable[Scenario]], Iterable[Rate]]
"""How a function is applied to several scenarios: one after the other, or in processes."""

_LEAST_SD = 0.005
"""No residual counts as better known than to this share."""


class Model:
    """Residuals of settings under factors; what was predicted once is not simulated again."""

    def __init__(
        self, settings: Sequence[Setting], scenarios: Sequence[Scenario], unit: Unit, noise: float, replications: int, apply: Map
    ) -> None:
        self.scenarios = [_certain(scenario, replications) for scenario in scenarios]
        self._measured = [statistics.fmean(setting.throughput) for setting in settings]
        self._measured_sd = [noise / math.sqrt(len(setting.throughput)) for setting in settings]
        self._sd = [max(sd, _LEAST_SD) for sd in self._measured_sd]
        self._rate = partial(_rate, unit)
        self._apply = apply
        self._known: dict[str, Rate] = {}

    def residuals(self, candidates: Sequence[Candidate], logs: Array, places: Sequence[int]) -> Array:
        """Of the settings at ``places``, then of the priors."""
        rates = self._rates(candidates, logs, places)
        off = [math.log(rate / self._measured[place]) / self._sd[place] for place, (rate, _) in zip(places, rates, strict=True)]
        return np.array([*off, *(logs / [candidate.prior_log_sd for candidate in candidates])])

    def weigh(self, candidates: Sequence[Candidate], logs: Array) -> None:
        """Count chance in the simulation as noise too, as large as it is under these factors."""
        rates = self._rates(candidates, logs, range(len(self.scenarios)))
        self._sd = [max(math.hypot(sd, error), _LEAST_SD) for sd, (_, error) in zip(self._measured_sd, rates, strict=True)]

    def _rates(self, candidates: Sequence[Candidate], logs: Array, places: Sequence[int]) -> list[Rate]:
        factors = [float(factor) for factor in np.exp(logs)]
        asked = [with_factors(self.scenarios[place], candidates, factors) for place in places]
        hashes = [scenario.hash for scenario in asked]
        new = {key: scenario for key, scenario in zip(hashes, asked, strict=True) if key not in self._known}
        self._known.update(zip(new, self._apply(self._rate, new.values()), strict=True))
        return [self._known[key] for key in hashes]


def _certain(scenario: Scenario, replications: int) -> Scenario:
    """Without what the fit of the workload left open and without spread between runs, which the mean of many runs does not have."""
    scenario = resolve(scenario)  # with what a move to another device leaves open too
    certain = {"workload.uncertainty": None, "workload.run_to_run_cv": 0.0, "cluster.uncertainty": None}
    return scenario.replaced({**certain, "run.replications": replications})


def _rate(unit: Unit, scenario: Scenario) -> Rate:
    runs = [replicate(resolve(scenario), replication) for replication in range(scenario.run.replications)]
    if unit == "samples/s":
        rates = [run.accepted_steps * (1.0 - scenario.training.skipped) * scenario.batch / run.window_s for run in runs]
    else:
        rates = [run.updates / run.window_s for run in runs]
    mean = statistics.fmean(rates)
    return mean, statistics.stdev(rates) / mean / math.sqrt(len(rates))
