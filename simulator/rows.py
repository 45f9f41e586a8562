"""Results as rows of a table: the figures that one compares, under plain names with their units.

:data:`COLUMNS` is the one list of them: frames, CSV files, the terminal and the report choose from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from simulator.cost import placement_of, usd_per_hour, usd_per_million_samples
from simulator.results import Estimate, Failure, Outcome, Placement, Result
from simulator.scenario import Scenario
from simulator.table import Cell, Column, Row, flat
from simulator.text import Kind

__all__ = ["BRIEF", "COLUMNS", "ResultColumn", "row_of", "rows_of_outcomes", "scaling_of"]


class _Read:
    """One outcome, as columns read it; what several of them need is worked out once."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.scenario: Scenario = outcome.scenario

    @cached_property
    def placed(self) -> Placement:
        return placement_of(self.scenario)

    @cached_property
    def cost(self) -> Estimate | None:
        return usd_per_million_samples(self.outcome) if isinstance(self.outcome, Result) else None


@dataclass(frozen=True)
class ResultColumn(Column):
    """A column of a table of results.

    Attributes
    ----------
    read
        Its value, of what is known of an outcome; None of a figure where there is no result.
    """

    read: Callable[[_Read], Cell] = lambda _: None


def _setting(name: str, kind: Kind, heading: str, meaning: str, read: Callable[[_Read], Cell]) -> ResultColumn:
    """A column that a scenario without a result has too."""
    return ResultColumn(name, kind, heading, meaning, read=read)


def _figure(name: str, kind: Kind, heading: str, meaning: str, of: Callable[[Result], Cell]) -> ResultColumn:
    """A column of results alone."""

    def read(its: _Read) -> Cell:
        return of(its.outcome) if isinstance(its.outcome, Result) else None

    return ResultColumn(name, kind, heading, meaning, read=read)


def _mean(end: str, of: Callable[[Result], Estimate | None]) -> Callable[[Result], Cell]:
    """An end of an interval that older versions did not write."""

    def read(result: Result) -> Cell:
        estimate = of(result)
        return None if estimate is None else float(getattr(estimate, end))

    return read


def _share(place: int) -> Callable[[Result], Cell]:
    """Of the variance behind the interval of the throughput."""
    return lambda result: result.scatter.shares[place] if result.scatter is not None else None


def scaling_of(scenario: Scenario) -> Literal["weak", "strong"]:
    """``"weak"``: the batch of each replica is fixed; ``"strong"``: that of all together."""
    return "weak" if scenario.workload.global_batch is None else "strong"


def _strategy(its: _Read) -> str:
    strategy = its.scenario.strategy
    return f"{strategy.kind}, {strategy.variant}" if strategy.variant else strategy.kind


def _failed(its: _Read) -> Cell:
    outcome = its.outcome
    return f"{outcome.failed.kind}: {outcome.failed.text}" if isinstance(outcome, Failure) else "" if isinstance(outcome, Result) else None


_ALL = (
    _setting("workload", "text", "Workload", "name of the workload", lambda its: its.scenario.workload.name),
    _setting("cluster", "text", "Cluster", "name of the cluster", lambda its: its.scenario.cluster.name),
    _setting("strategy", "text", "Strategy", "kind, with the mode or the algorithm", _strategy),
    _setting("scaling", "text", "Scaling", "weak: each replica keeps its batch; strong: all together keep theirs",
             lambda its: scaling_of(its.scenario)),
    _setting("replicas", "count", "Replicas", "copies of the model that train", lambda its: its.scenario.replicas),
    _setting("servers", "count", "Servers", "parameter servers", lambda its: its.scenario.servers),
    _setting("nodes", "count", "Nodes", "machines in all; of a cluster of a fixed size, all of it", lambda its: its.placed.nodes),
    _setting("devices_per_node", "count", "Devices of a node", "devices of a machine", lambda its: its.placed.devices_per_node),
    _setting("placement", "text", "Placement", "where replicas and servers sit, in words", lambda its: its.placed.text),
    _setting("batch_per_replica", "count", "Batch of a replica", "samples that a replica takes per step", lambda its: its.scenario.batch),
    _setting("global_batch", "count", "Batch of all replicas", "samples that all replicas take per step",
             lambda its: its.scenario.batch * its.scenario.replicas),
    _figure("throughput_samples_per_s", "number", "Throughput (samples/s)", "mean over replications",
            lambda its: its.throughput_samples_per_s.mean),
    _figure("throughput_low", "number", "Low", "low end of the 90% prediction interval, samples/s",
            lambda its: its.throughput_samples_per_s.low),
    _figure("throughput_high", "number", "High", "high end", lambda its: its.throughput_samples_per_s.high),
    _figure("share_model", "share", "Variance by the model", "of the variance behind that interval: what the model is off by", _share(0)),
    _figure("share_parameters", "share", "Variance by fits", "what fits of workload and cluster leave open", _share(1)),
    _figure("share_luck", "share", "Variance by chance", "what differs from run to run", _share(2)),
    _figure("updates_per_s", "number", "Updates/s", "updates of the model per second", lambda its: its.updates_per_s.mean),
    _figure("speedup", "number", "Speed-up", "throughput over that of one replica with the same draws, mean over replications",
            lambda its: its.speedup.mean),
    _figure("speedup_low", "number", "Low speed-up", "low end of its 90% prediction interval", lambda its: its.speedup.low),
    _figure("speedup_high", "number", "High speed-up", "high end", lambda its: its.speedup.high),
    _figure("scaling_efficiency", "share", "Efficiency", "speed-up over replicas, mean", lambda its: its.scaling_efficiency.mean),
    _figure("scaling_efficiency_low", "share", "Low efficiency", "low end of its 90% prediction interval",
            lambda its: its.scaling_efficiency.low),
    _figure("scaling_efficiency_high", "share", "High efficiency", "high end", lambda its: its.scaling_efficiency.high),
    _figure("step_mean_s", "seconds", "Step, mean", "mean time of a step", lambda its: its.step_time_s.mean),
    _figure("step_mean_low_s", "seconds", "Step, low mean", "low end of the 90% prediction interval of one run's mean",
            _mean("low", lambda its: its.mean_step_s)),
    _figure("step_mean_high_s", "seconds", "Step, high mean", "high end", _mean("high", lambda its: its.mean_step_s)),
    _figure("step_p50_s", "seconds", "Step, median", "its median", lambda its: its.step_time_s.p50),
    _figure("step_p95_s", "seconds", "Step, 95%", "its 95th percentile", lambda its: its.step_time_s.p95),
    _figure("step_p99_s", "seconds", "Step, 99%", "its 99th percentile", lambda its: its.step_time_s.p99),
    _figure("staleness_mean", "number", "Mean staleness", "updates between an update's read and its application, mean",
            lambda its: its.staleness.mean),
    _figure("staleness_mean_low", "number", "Low mean staleness", "low end of the 90% prediction interval of one run's mean",
            _mean("low", lambda its: its.mean_staleness)),
    _figure("staleness_mean_high", "number", "High mean staleness", "high end", _mean("high", lambda its: its.mean_staleness)),
    _figure("staleness_p50", "count", "Staleness, median", "median", lambda its: its.staleness.p50),
    _figure("staleness_p95", "count", "Staleness, 95%", "95th percentile", lambda its: its.staleness.p95),
    _figure("staleness_p99", "count", "Staleness, 99%", "99th percentile", lambda its: its.staleness.p99),
    _figure("staleness_max", "count", "Staleness, most", "largest", lambda its: its.staleness.max),
    _figure("dropped_share", "share", "Gradients dropped", "share of gradients that came too late", lambda its: its.dropped_share),
    _figure("input_s", "seconds", "Input", "of the mean step: waiting for input", lambda its: its.breakdown_s.input),
    _figure("compute_s", "seconds", "Compute", "of the mean step: forward and backward pass", lambda its: its.breakdown_s.compute),
    _figure("exposed_communication_s", "seconds", "Exposed communication", "of the mean step: communication that nothing hides",
            lambda its: its.breakdown_s.exposed_communication),
    _figure("waiting_s", "seconds", "Waiting", "of the mean step: waiting for others", lambda its: its.breakdown_s.waiting),
    _figure("apply_s", "seconds", "Apply", "of the mean step: applying the update", lambda its: its.breakdown_s.apply),
    _figure("hidden_communication_s", "seconds", "Hidden communication", "communication beside compute; no part of the step",
            lambda its: its.hidden_communication_s),
    _figure("devices_busy", "share", "Devices busy", "share of the time in which devices compute, mean of all",
            lambda its: its.utilisation.devices),
    _figure("links_busy", "share", "Links busy", "share of the links' bandwidth in use, mean of all", lambda its: its.utilisation.links),
    _figure("servers_busy", "share", "Servers busy", "share of the time in which servers work, mean of all",
            lambda its: its.utilisation.servers),
    _figure("busiest_link", "text", "Name of the busiest link", "name of the link most in use",
            lambda its: its.utilisation.busiest_link_name),
    _figure("busiest_link_busy", "share", "Busiest link", "its share", lambda its: its.utilisation.busiest_link),
    _figure("busiest_server_busy", "share", "Busiest server", "share of the server most in use",
            lambda its: its.utilisation.busiest_server),
    _figure("bottleneck", "text", "Limited by", "what limits the throughput", lambda its: its.bottleneck.name),
    _figure("balance", "text", "In balance with",
            "what takes nearly as much of a step, so that neither alone is the limit; else empty",
            lambda its: its.bottleneck.balance or ""),
    _setting("usd_per_hour", "hourly", "Cost of an hour", "US dollars per hour for all nodes; empty without a price",
             lambda its: usd_per_hour(its.scenario)),
    _setting("usd_per_million_samples", "usd", "Cost of a million samples", "US dollars for a million samples, mean",
             lambda its: its.cost.mean if its.cost else None),
    _setting("usd_per_million_samples_low", "usd", "Low cost", "low end, from the throughput's interval",
             lambda its: its.cost.low if its.cost else None),
    _setting("usd_per_million_samples_high", "usd", "High cost", "high end", lambda its: its.cost.high if its.cost else None),
    _figure("warnings", "count", "Warnings", "how many the result carries", lambda its: len(its.warnings)),
    _figure("coverage", "text", "Coverage", "weakest grade of what speaks for it: checked, interpolation or uncovered",
            lambda its: its.grade),
    _figure("extrapolated", "any", "Beyond what was measured", "whether some aspect of it is covered by nothing that was measured",
            lambda its: its.extrapolated),
    _figure("assumed", "text", "Assumed", "what the scenario leaves out and was taken as TensorFlow does it",
            lambda its: ", ".join(f"{one.path} = {one.value}" for one in its.assumed)),
    _setting("failed", "text", "Failed", "why there is no result; else empty", _failed),
    _setting("scenario_hash", "text", "Scenario", "of the scenario", lambda its: its.outcome.scenario_hash),
    _figure("monte_carlo_error_samples_per_s", "number", "Monte Carlo error",
            "standard error of the mean throughput over replications, samples/s", lambda its: its.monte_carlo_error),
    _figure("updates_per_s_low", "number", "Low updates/s", "low end of the 90% prediction interval of the updates per second",
            lambda its: its.updates_per_s.low),
    _figure("updates_per_s_high", "number", "High updates/s", "high end", lambda its: its.updates_per_s.high),
    _figure("wasted_samples_per_s", "number", "Samples/s dropped", "samples per second whose gradients came too late",
            lambda its: its.wasted_samples_per_s),
    _figure("staleness_bound", "count", "Bound of staleness", "most that the strategy allows; empty where nothing bounds it",
            lambda its: its.staleness.bound),
    _figure("mixed_reads_share", "share", "Mixed reads", "share of reads that mix versions of the variables",
            lambda its: its.staleness.mixed_reads),
    _figure("bottleneck_text", "text", "What limits it", "the same in a sentence", lambda its: its.bottleneck.text),
    _setting("steps_of_a_replica", "count", "Steps of each", "steps that each replica makes; empty where the job has as many in all",
             lambda its: its.scenario.run.steps if its.scenario.run.job_steps is None else None),
    _setting("job_steps", "count", "Steps of the job", "steps of all replicas together; empty where each has its own",
             lambda its: its.scenario.run.job_steps),
    _setting("replications", "count", "Replications", "how often it is simulated", lambda its: its.scenario.run.replications),
    _setting("seed", "any", "Seed", "of all random numbers", lambda its: its.scenario.run.seed),
    _figure("events", "count", "Events", "events of the simulation kernel, all replications", lambda its: its.events),
)  # fmt: skip

COLUMNS: dict[str, ResultColumn] = {column.name: column for column in _ALL}
"""Every column of a table of results by its name: what it means, how it is written, how it is read; docs/metrics.md has the formulas."""

BRIEF = (
    "strategy", "cluster", "scaling", "replicas", "nodes", "throughput_samples_per_s", "throughput_low", "throughput_high",
    "scaling_efficiency", "staleness_mean", "usd_per_million_samples", "bottleneck", "balance", "warnings", "failed",
)  # fmt: skip
"""Of those, the columns that a small table shows."""


def row_of(outcome: Outcome) -> Row:
    """The row of one result, or of a scenario that has none: all of :data:`COLUMNS`."""
    its = _Read(outcome)
    return {name: column.read(its) for name, column in COLUMNS.items()}


def rows_of_outcomes(outcomes: Iterable[Outcome]) -> list[Row]:
    """A row each; before its figures stand the settings that differ among them, under their dotted names."""
    rows, settings = [], []
    for outcome in outcomes:
        rows.append(row_of(outcome))
        settings.append(flat(outcome.scenario))
    swept = _that_differ(settings)
    return [{name: own.get(name) for name in swept} | row for own, row in zip(settings, rows, strict=True)]


def _that_differ(settings: Sequence[Row]) -> list[str]:
    """Keys with several values; one that only some strategies have counts among those."""
    values: dict[str, set[Cell]] = {}
    for own in settings:
        for name, value in own.items():
            values.setdefault(name, set()).add(value)
    return [name for name, found in values.items() if len(found) > 1]
