"""Predicts a testbed setting by simulated runs, each with its own draw of what the fit leaves open.

The scenario is made in scenarios.py; the noise and misfit that widen the interval are estimated in fitting.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from calibrate.testbed.clocks import work_of_step
from calibrate.testbed.fitting import factors_of
from calibrate.testbed.platform import Platform
from calibrate.testbed.readings import mean_of
from calibrate.testbed.scenarios import RealCompute, scenario_of
from calibrate.testbed.setting import TestbedSetting
from calibrate.testbed.summary import RATE_COLUMNS
from simulator.base.table import Cell, Column, Table, Tabular
from simulator.base.text import estimated, listed
from simulator.engine.recorder import Measured
from simulator.engine.replication import replicate
from simulator.resolve.resolve import resolve
from simulator.results.intervals import prediction_interval, widened
from simulator.results.metrics import applied_to_runs
from simulator.spec.figures import Estimate
from simulator.spec.uncertainty import AppliedDiscrepancy, relative_error_of


@dataclass(frozen=True, repr=False)
class Prediction(Tabular):
    """Prediction for one real run of a setting; a table in notebooks.

    Attributes
    ----------
    setting
        What would be run.
    updates_per_s
        Mean, and the 90% interval for one run.
    staleness
        Updates by their staleness, over all replications; empty where all step together.
    drawn
        The interval without the model's own error.
    applied
        That error, as far as it reaches this; none for a single replica.
    undetermined
        Parameters that it rests on and that no run of the fit has determined.
    """

    see: ClassVar[str] = "to_frame() has every figure, .staleness the distribution"

    setting: TestbedSetting
    updates_per_s: Estimate
    staleness: Counter[int]
    drawn: Estimate
    applied: AppliedDiscrepancy | None
    undetermined: tuple[str, ...]

    def _in_short(self) -> Iterator[str]:
        yield self.setting.label
        rate = self.samples_per_s
        yield estimated(rate.mean, rate.low, rate.high, "throughput", "samples/s")
        yield f"not determined by any run: {listed(self.undetermined)}" if self.undetermined else ""

    @property
    def samples_per_s(self) -> Estimate:
        """Mean, and the 90% interval for one run."""
        samples = self.setting.samples_per_update
        return Estimate(**{key: value * samples for key, value in self.updates_per_s.model_dump().items()})

    @property
    def mean_staleness(self) -> float | None:
        """Mean over all updates."""
        return mean_of(self.staleness)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        return {
            "setting": self.setting.model_dump(mode="json"),
            "updates_per_s": self.updates_per_s.model_dump(),
            "samples_per_s": self.samples_per_s.model_dump(),
            "mean_staleness": self.mean_staleness,
            "staleness": {str(value): count for value, count in sorted(self.staleness.items())},
            "undetermined": list(self.undetermined),
        }

    def table(self) -> Table:
        """Rates with their 90% intervals for one run, and the mean staleness."""
        rates = (("updates/s", self.updates_per_s), ("samples/s", self.samples_per_s))
        rows: list[tuple[Cell, ...]] = [(name, rate.mean, rate.low, rate.high) for name, rate in rates]
        if self.mean_staleness is not None:
            rows.append(("mean staleness", self.mean_staleness, None, None))
        return Table(self.setting.label, (Column("value", "text", " "), *RATE_COLUMNS), tuple(rows))


def predict_setting(
    setting: TestbedSetting,
    platform: Platform,
    *,
    compute: RealCompute | None = None,
    one_gpu: bool = False,
    replications: int = 59,
    seed: int = 0,
) -> Prediction:
    """Simulate a setting on a calibrated platform.

    Each replication has a joint draw of the fitted parameters and its own compute times. The mean is theirs; the interval also includes the
    common misfit of all runs of this setting, the noise of a single run, and the model error of such trainings
    (:func:`simulator.results.metrics.applied_to_runs`).

    Parameters
    ----------
    setting
        What is to be run.
    platform
        The machine as calibrated, by runs that are not of this setting.
    compute
        What a real model's step takes, measured with nothing else on the machine.
    one_gpu
        The replicas share one GPU.
    replications
        Simulated runs; 19 is the fewest for a distribution-free interval.
    seed
        Seed of all random streams.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    drawing = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
    rates: list[float] = []
    runs: list[Measured] = []
    stale: Counter[int] = Counter()
    for number in range(replications):
        values = platform.values(number)
        own = compute.drawn(drawing) if compute is not None else None
        scenario = resolve(scenario_of(setting, values, platform.cores, compute=own, one_gpu=one_gpu, replications=2, seed=seed))
        run = replicate(scenario, number)
        runs.append(run)
        rates.append(run.updates / run.window_s)
        if setting.mode in ("async", "between-graph"):
            stale.update(run.staleness.counts)
    mean = math.fsum(rates) / len(rates)
    ends = prediction_interval((np.array(rates) * factors_of(platform, setting, replications, rng)).tolist())
    drawn = Estimate(mean=mean, low=min(ends.low, mean), high=max(ends.high, mean))
    if setting.link is not None and compute is None:
        shared = platform.cores if _busy(setting, platform, runs, mean) > _CONTENDED else None
        scenario = resolve(scenario.replaced({"cluster.shared_cores": shared}))
    applied = applied_to_runs(scenario, runs)
    undetermined = sorted(name for name in _rests_on(setting) if not platform.parameters[name].determined)
    return Prediction(setting, widened(drawn, relative_error_of(applied)), stale, drawn, applied, tuple(undetermined))


_CONTENDED = 0.5
"""Share of the cores' time from which on tasks wait for a core as much as for a link: model errors are then those of shared cores."""


def _busy(setting: TestbedSetting, platform: Platform, runs: Sequence[Measured], updates_per_s: float) -> float:
    """Share of the cores' time that simulated tasks take; of a ring, which is simulated without cores, by its bytes."""
    if setting.servers:
        return math.fsum(float(run.in_use_s["cores"].mean()) / run.window_s for run in runs) / len(runs)
    sent = 2.0 * (setting.workers - 1) * setting.parameter_bytes
    return platform.parameters["ring_cpu_per_byte_s"].value * sent * updates_per_s / platform.cores


def _rests_on(setting: TestbedSetting) -> set[str]:
    """Parameters that a prediction of the setting rests on most."""
    names = {"wire_bytes_per_byte" if setting.link is not None else "loopback_bytes_per_s"}
    if setting.servers:
        names |= {name for name, amount in work_of_step(setting).items() if amount}
    if setting.link is None:
        names |= {"loopback_waited_share" if setting.servers else "loopback_ring_per_byte_s"}
    else:
        names |= {"tensor_s", "tensor_per_byte_s"} if setting.servers else {"turn_s", "turn_per_byte_s"}
    names |= {
        "async": {"dispatch_s", "coordinator_s"},
        "ring": {"ring_step_s"},
        "mirrored": {"mirrored_step_s", "mirrored_per_byte_s"},
    }.get(setting.mode, {"session_s"})
    if setting.link is not None and setting.link.sharing == "tcp":
        names |= {"weight_sigma", "queue_s"}
    return names
