"""How far a scenario's predictions are from measured points, for any factors of its quantities."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from calibrate.validation.at_points import Unit
from calibrate.validation.candidates import Candidate, with_factors
from calibrate.validation.points import Setting
from simulator.replication import replicate
from simulator.resolve import resolve
from simulator.scenario import Scenario

__all__ = ["Array", "Map", "Model"]

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
        self._rate = _samples_per_s if unit == "samples/s" else _updates_per_s
        self._apply = apply
        self._known: dict[str, Rate] = {}

    def residuals(self, candidates: Sequence[Candidate], logs: Array, places: Sequence[int]) -> Array:
        """Of the settings at ``places``, then of the priors."""
        rates = self._rates(candidates, logs, places)
        found = [math.log(rate / self._measured[place]) / self._sd[place] for place, (rate, _) in zip(places, rates, strict=True)]
        return np.array([*found, *(logs / [candidate.prior_log_sd for candidate in candidates])])

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
    scenario = resolve(scenario).scenario  # with what a move to another device leaves open too
    return scenario.model_copy(
        update={
            "workload": scenario.workload.model_copy(update={"uncertainty": None, "run_to_run_cv": 0.0}),
            "cluster": scenario.cluster.model_copy(update={"uncertainty": None}),
            "run": scenario.run.model_copy(update={"replications": replications}),
        }
    )


def _samples_per_s(scenario: Scenario) -> Rate:
    runs = [replicate(scenario, replication) for replication in range(scenario.run.replications)]
    return _mean([run.accepted_steps * scenario.batch / run.window_s for run in runs])


def _updates_per_s(scenario: Scenario) -> Rate:
    runs = [replicate(scenario, replication) for replication in range(scenario.run.replications)]
    return _mean([run.updates / run.window_s for run in runs])


def _mean(rates: Sequence[float]) -> Rate:
    mean = statistics.fmean(rates)
    return mean, statistics.stdev(rates) / mean / math.sqrt(len(rates))
