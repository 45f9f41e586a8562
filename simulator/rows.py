"""Results as rows of a table: the figures that one compares, under plain names with their units."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simulator.cost import placement_of, usd_per_hour, usd_per_million_samples
from simulator.results import Failure, Outcome, Result
from simulator.scenario import Scenario
from simulator.table import Cell, Row, flat

__all__ = ["BRIEF", "COLUMNS", "row_of", "rows_of_outcomes"]

COLUMNS: dict[str, str] = {
    "workload": "name of the workload",
    "cluster": "name of the cluster",
    "strategy": "kind, with the mode or the algorithm",
    "scaling": "weak: each replica keeps its batch; strong: all together keep theirs",
    "replicas": "copies of the model that train",
    "servers": "parameter servers",
    "nodes": "machines in all; of a cluster of a fixed size, all of it",
    "devices_per_node": "devices of a machine",
    "placement": "where replicas and servers sit, in words",
    "batch_per_replica": "samples that a replica takes a step",
    "global_batch": "samples that all replicas take a step",
    "throughput_samples_per_s": "mean over replications",
    "throughput_low": "low end of the 90% prediction interval, samples/s",
    "throughput_high": "high end",
    "share_model": "of the variance behind that interval: what the model is off by",
    "share_parameters": "what fits of workload and cluster leave open",
    "share_luck": "what differs from run to run",
    "updates_per_s": "updates of the model a second",
    "speedup": "throughput over that of one replica with the same draws, mean over replications",
    "speedup_low": "low end of its 90% prediction interval",
    "speedup_high": "high end",
    "scaling_efficiency": "speed-up over replicas, mean",
    "scaling_efficiency_low": "low end of its 90% prediction interval",
    "scaling_efficiency_high": "high end",
    "step_mean_s": "mean time of a step",
    "step_mean_low_s": "low end of the 90% prediction interval of one run's mean",
    "step_mean_high_s": "high end",
    "step_p50_s": "its median",
    "step_p95_s": "its 95th percentile",
    "step_p99_s": "its 99th percentile",
    "staleness_mean": "updates between an update's read and its application, mean",
    "staleness_mean_low": "low end of the 90% prediction interval of one run's mean",
    "staleness_mean_high": "high end",
    "staleness_p50": "median",
    "staleness_p95": "95th percentile",
    "staleness_p99": "99th percentile",
    "staleness_max": "largest",
    "dropped_share": "share of gradients that came too late",
    "input_s": "of the mean step: waiting for input",
    "compute_s": "of the mean step: forward and backward pass",
    "exposed_communication_s": "of the mean step: communication that nothing hides",
    "waiting_s": "of the mean step: waiting for others",
    "apply_s": "of the mean step: applying the update",
    "hidden_communication_s": "communication beside compute; no part of the step",
    "devices_busy": "share of the time in which devices compute, mean of all",
    "links_busy": "share of the links' bandwidth in use, mean of all",
    "servers_busy": "share of the time in which servers work, mean of all",
    "busiest_link": "name of the link most in use",
    "busiest_link_busy": "its share",
    "busiest_server_busy": "share of the server most in use",
    "bottleneck": "what limits the throughput",
    "balance": "what takes nearly as much of a step, so that neither alone is the limit; else empty",
    "usd_per_hour": "US dollars an hour for all nodes; empty without a price",
    "usd_per_million_samples": "US dollars for a million samples, mean",
    "usd_per_million_samples_low": "low end, from the throughput's interval",
    "usd_per_million_samples_high": "high end",
    "warnings": "how many the result carries",
    "coverage": "weakest grade of what speaks for it: checked, interpolation or uncovered",
    "extrapolated": "whether some aspect of it is covered by nothing that was measured",
    "assumed": "what the scenario leaves out and was taken as TensorFlow does it",
    "failed": "why there is no result; else empty",
    "scenario_hash": "of the scenario",
}
"""Every column of a table of results, with what it means; docs/metrics.md has the formulas."""

BRIEF = (
    "strategy", "cluster", "scaling", "replicas", "nodes", "throughput_samples_per_s", "throughput_low", "throughput_high",
    "scaling_efficiency", "staleness_mean", "usd_per_million_samples", "bottleneck", "balance", "warnings", "failed",
)  # fmt: skip
"""Of those, the columns that a small table shows."""


def row_of(outcome: Outcome) -> Row:
    """The row of one result, or of a scenario that has none: all of :data:`COLUMNS`."""
    row: Row = dict.fromkeys(COLUMNS)
    row |= _setting(outcome.scenario)
    row["scenario_hash"] = outcome.scenario_hash
    row["usd_per_hour"] = usd_per_hour(outcome.scenario)
    if isinstance(outcome, Result):
        row |= _figures(outcome)
    elif isinstance(outcome, Failure):
        row["failed"] = f"{outcome.failed.kind}: {outcome.failed.text}"
    return row


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


def _setting(scenario: Scenario) -> Row:
    strategy, placed = scenario.strategy, placement_of(scenario)
    return {
        "workload": scenario.workload.name,
        "cluster": scenario.cluster.name,
        "strategy": f"{strategy.kind}, {strategy.variant}" if strategy.variant else strategy.kind,
        "scaling": "weak" if scenario.workload.global_batch is None else "strong",
        "replicas": scenario.replicas,
        "servers": scenario.servers,
        "nodes": placed.nodes,
        "devices_per_node": placed.devices_per_node,
        "placement": placed.text,
        "batch_per_replica": scenario.batch,
        "global_batch": scenario.batch * scenario.replicas,
    }


def _figures(result: Result) -> Row:
    rate, step, stale, use = result.throughput_samples_per_s, result.step_time_s, result.staleness, result.utilisation
    cost = usd_per_million_samples(result)
    one_step, one_stale = result.mean_step_s, result.mean_staleness
    shares = result.scatter.shares if result.scatter is not None else (None, None, None)
    return {
        "throughput_samples_per_s": rate.mean,
        "throughput_low": rate.low,
        "throughput_high": rate.high,
        "share_model": shares[0],
        "share_parameters": shares[1],
        "share_luck": shares[2],
        "updates_per_s": result.updates_per_s.mean,
        "speedup": result.speedup.mean,
        "speedup_low": result.speedup.low,
        "speedup_high": result.speedup.high,
        "scaling_efficiency": result.scaling_efficiency.mean,
        "scaling_efficiency_low": result.scaling_efficiency.low,
        "scaling_efficiency_high": result.scaling_efficiency.high,
        "step_mean_s": step.mean,
        "step_mean_low_s": one_step.low if one_step else None,
        "step_mean_high_s": one_step.high if one_step else None,
        "step_p50_s": step.p50,
        "step_p95_s": step.p95,
        "step_p99_s": step.p99,
        "staleness_mean": stale.mean,
        "staleness_mean_low": one_stale.low if one_stale else None,
        "staleness_mean_high": one_stale.high if one_stale else None,
        "staleness_p50": stale.p50,
        "staleness_p95": stale.p95,
        "staleness_p99": stale.p99,
        "staleness_max": stale.max,
        "dropped_share": result.dropped_share,
        **{f"{part}_s": float(getattr(result.breakdown_s, part)) for part in type(result.breakdown_s).model_fields},
        "hidden_communication_s": result.hidden_communication_s,
        "devices_busy": use.devices,
        "links_busy": use.links,
        "servers_busy": use.servers,
        "busiest_link": use.busiest_link_name,
        "busiest_link_busy": use.busiest_link,
        "busiest_server_busy": use.busiest_server,
        "bottleneck": result.bottleneck.name,
        "balance": result.bottleneck.balance or "",
        "usd_per_million_samples": cost.mean if cost else None,
        "usd_per_million_samples_low": cost.low if cost else None,
        "usd_per_million_samples_high": cost.high if cost else None,
        "warnings": len(result.warnings),
        "coverage": result.grade,
        "extrapolated": result.extrapolated,
        "assumed": ", ".join(f"{its.path} = {its.value}" for its in result.assumed),
        "failed": "",
    }
