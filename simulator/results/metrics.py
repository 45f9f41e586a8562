"""Makes a result from measurements of replications; docs/metrics.md has each formula, so change both together.

``simulator.engine.recorder`` decides what is measured. Keys of a result are in results.py and ``simulator.spec.figures``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from simulator.base.compact import CountHistogram, GroupedCounts, TimeSketch
from simulator.base.errors import SimulationError
from simulator.base.rng import Streams
from simulator.engine.phases import random_order
from simulator.engine.recorder import LISTED_WORKERS, Kind, Measured, Name
from simulator.program.port_names import PortName
from simulator.resolve.drawing import as_workers, drawn_quantities
from simulator.resolve.measured_defaults import with_nominal_defaults
from simulator.resolve.resolve import Asked
from simulator.results.bottleneck import bottleneck, first_of_all
from simulator.results.cost import placement_of
from simulator.results.inadequacy import applied_discrepancy, coverage, limit_of_host
from simulator.results.intervals import around, prediction_interval
from simulator.results.results import Result
from simulator.results.variance import decomposed
from simulator.results.warnings import warnings_of
from simulator.results.what_if import Gains, contested, gains_of, typical
from simulator.scenario import Resolved, Scenario
from simulator.spec.accelerator import accelerator_named
from simulator.spec.figures import (
    Breakdown,
    Estimate,
    Histogram,
    Phase,
    Quantiles,
    Reduced,
    Scatter,
    Stage,
    Staleness,
    Tokens,
    Utilisation,
)
from simulator.spec.uncertainty import AppliedDiscrepancy, RelativeError, relative_error_of

_SHORTEST_S, _LONGEST_S = 1e-15, 1e15


class Window(NamedTuple):
    """Number of steps that a replication measured, and their seconds."""

    steps: int
    window_s: float

    @classmethod
    def of(cls, run: Measured) -> Self:
        """The window of a replication."""
        return cls(run.steps, run.window_s)


def summarise(
    asked: Asked, runs: Sequence[Measured], alone: Sequence[Window], again: Callable[[Resolved, int], Measured] | None = None
) -> Result:
    """The result of a scenario.

    Parameters
    ----------
    asked
        What was simulated.
    runs
        Its replications.
    alone
        The same replications of the single-replica baseline with the same random streams, for the speed-up.
    again
        Simulates a replication of a resolved scenario, by number, to find the limit among several parts; None: use shares of a step.

    Raises
    ------
    SimulationError
        The steps took too little or too much time for meaningful numbers.
    """
    for run in (*map(Window.of, runs), *alone):
        if not _SHORTEST_S <= run.window_s <= _LONGEST_S:
            raise SimulationError(
                f"the measured steps take {run.window_s:g} s together, which gives no rate: check the times and the jitter of the workload"
            )
    scenario = asked.resolved
    achieved = as_workers(with_nominal_defaults(scenario))
    kept = 1.0 - scenario.training.skipped  # of updates, those that loss scaling lets through
    step_samples = achieved.batch / achieved.layout.ranks_per_replica  # of each step of a rank
    samples_per_s = [run.accepted_steps * kept * step_samples / run.window_s for run in runs]
    steps = sum(run.steps for run in runs)
    dropped = 1.0 - math.fsum(run.accepted_steps for run in runs) * kept / steps
    batch_alone = scenario.workload.global_batch or scenario.batch  # strong scaling gives the one replica the work of all
    baseline = [run.steps * kept * batch_alone / run.window_s for run in alone]
    breakdown, hidden_s, (utilisation, busiest) = _breakdown(runs), _hidden_s(runs), _utilisation(runs)
    # both runs of a replication have their draws in common, which so cancel
    speedups = [together / single for together, single in zip(samples_per_s, baseline, strict=True)]
    linear, stages, phase = _linear(scenario, alone), _stages(achieved, runs), _phase(achieved, runs)
    applied = applied_discrepancy(scenario, breakdown, hidden_s, utilisation, achieved, math.fsum(speedups) / len(speedups) / linear)
    relative_error = relative_error_of(applied)
    step_time, staleness = _step_time(runs), _staleness(achieved, runs, [stage.staleness for stage in stages])
    exposed = breakdown.exposed_communication / step_time.mean
    gains: Gains | None = None
    if again is not None and (parts := contested(achieved, breakdown, hidden_s, utilisation)):
        waited, numbers = breakdown.waiting / step_time.mean, typical(scenario, samples_per_s)
        gains = gains_of(scenario, parts, waited, numbers, lambda changed, number: _rate(again(changed, number)))
    exchanges = achieved.strategy.model_parallel(achieved).exchanges(Streams(scenario.run.seed, 0))
    all_reduces = tuple(Reduced(size_bytes=size, algorithm=name, protocol=kind) for size, name, kind in runs[0].algorithms)
    limit = bottleneck(achieved, breakdown, utilisation, busiest, stages, exchanges, gains, all_reduces)
    throughput = prediction_interval(samples_per_s, relative_error)
    tokens = _tokens(scenario, throughput)
    limit, first = limit_of_host(scenario, breakdown, limit), first_of_all(achieved, math.fsum(speedups) / len(speedups))
    return Result(
        scenario_hash=asked.given.hash,
        scenario=asked.given,
        moved=asked.moved,
        seed=scenario.run.seed,
        replicas=scenario.replicas,
        placement=placement_of(scenario),
        throughput_samples_per_s=throughput,
        tokens=tokens,
        updates_per_s=prediction_interval([run.updates * kept / run.window_s for run in runs], relative_error),
        throughput_of_each_replication=tuple(samples_per_s),
        wasted_samples_per_s=float(np.mean([(run.steps - run.accepted_steps * kept) * step_samples / run.window_s for run in runs])),
        dropped_share=dropped if dropped > 1e-12 else 0.0,
        monte_carlo_error=float(np.std(samples_per_s, ddof=1) / np.sqrt(len(runs))),
        step_time_s=step_time,
        mean_step_s=around(step_time.mean, [run.step_time.mean() for run in runs], relative_error.inverse),
        speedup=_at_most(linear, speedups, relative_error),
        scaling_efficiency=_at_most(linear / scenario.ranks, [speedup / scenario.ranks for speedup in speedups], relative_error),
        staleness=staleness,
        mean_staleness=_mean_staleness(scenario, runs, staleness.mean, applied),
        discrepancy=applied,
        scatter=_scatter(scenario, samples_per_s, relative_error),
        phase=phase,
        breakdown_s=breakdown,
        hidden_communication_s=hidden_s,
        stages=stages,
        exchanges=exchanges,
        all_reduces=all_reduces,
        utilisation=utilisation,
        bottleneck=limit.replaced({"text": " ".join([*(f"{each}." for each in first), limit.text])}),
        coverage=coverage(scenario),
        assumed=asked.assumed,
        warnings=warnings_of(asked, phase, tokens, aligned=any(run.aligned for run in runs), exchanges=exchanges, exposed=exposed),
        events=sum(run.events for run in runs),
    )


def _tokens(scenario: Resolved, throughput: Estimate) -> Tokens | None:
    """The throughput in tokens, and the share of the devices' peak that the model's operations need; None without sequences.

    Recomputation, padding and a mask do not count. Where some nodes have other devices, their peak is unknown.
    """
    model, cluster = scenario.workload.transformer, scenario.cluster
    if model is None:
        return None
    per_s, of_weights = throughput.times(model.sequence), 6.0 * model.parameters_per_token
    device = accelerator_named(cluster.device or scenario.workload.device)
    peak = device.peak(scenario.workload.precision) if device is not None else None
    if any(kind.speed != 1.0 for kind in cluster.node_classes):
        peak = None
    devices = math.ceil(scenario.ranks / cluster.replicas_per_device)

    def mfu(flops_per_token: float) -> Estimate | None:
        return None if peak is None else per_s.times(flops_per_token / (devices * peak))

    return Tokens(
        per_sample=model.sequence,
        per_s=per_s,
        parameters=model.parameters_per_token,
        mfu=mfu(of_weights),
        mfu_with_attention=mfu(of_weights + model.attention_flops_per_token),
    )


def _rate(run: Measured) -> float:
    """Accepted steps per second."""
    return run.accepted_steps / run.window_s


def _at_most(linear: float, values: Sequence[float], relative_error: RelativeError) -> Estimate:
    """A speed-up or an efficiency with its interval, which model error does not extend beyond linear scaling.

    It may exceed linear scaling if runs themselves do, by the luck of drawn speeds.
    """
    estimate = prediction_interval(values, relative_error)
    return Estimate(mean=estimate.mean, low=estimate.low, high=max(min(estimate.high, linear), *values))


def _linear(scenario: Resolved, alone: Sequence[Window]) -> float:
    """Upper limit of all devices together, in throughputs of the single-replica baseline.

    Devices that do the same work each can lose time together and gain none, for as long as any of them may be slow: their speeds
    are added. Parameter servers take over the update, which the single-replica baseline makes itself.
    """
    cluster, load = scenario.cluster, scenario.workload
    speeds = float(scenario.ranks)
    if cluster.node_classes or cluster.node_speed:
        speeds = float(np.add.reduce(cluster.speeds_of(np.arange(scenario.ranks) // cluster.replicas_per_node)))
    if not scenario.servers:
        return speeds
    step_s = math.fsum(window.window_s for window in alone) / sum(window.steps for window in alone)
    return float(speeds * step_s / max(step_s - load.apply_s, _SHORTEST_S))


def applied_to_runs(scenario: Resolved, runs: Sequence[Measured]) -> AppliedDiscrepancy | None:
    """Effect of the discrepancy on the throughput of these replications; None if there is none."""
    return applied_discrepancy(scenario, _breakdown(runs), _hidden_s(runs), _utilisation(runs)[0])


def _hidden_s(runs: Sequence[Measured]) -> float:
    return _of_a_step(runs, [run.hidden_s for run in runs])


def _of_a_step(runs: Sequence[Measured], totals_s: Sequence[float]) -> float:
    """Seconds of the mean step, from those of all steps of each replication, each counted as if it took as long as the others.

    So the mean step times the mean throughput is the batch: a replication that was drawn slow makes fewer steps.
    """
    times = math.fsum(total_s / run.window_s for total_s, run in zip(totals_s, runs, strict=True))
    return times / math.fsum(run.steps / run.window_s for run in runs)


def _mean_staleness(scenario: Resolved, runs: Sequence[Measured], mean: float, applied: AppliedDiscrepancy | None) -> Estimate | None:
    """Mean staleness of one run, with its interval; exactly known of pipelines that apply late gradients; none where none are late."""
    if not scenario.servers:
        return Estimate(mean=mean, low=mean, high=mean) if mean else None
    sd = applied.staleness if applied is not None else 0.0
    return around(mean, [run.staleness.mean() for run in runs], RelativeError(sd, sd))


def _scatter(scenario: Resolved, rates: Sequence[float], relative_error: RelativeError) -> Scatter:
    """Return the contributions to the throughput's interval.

    The effect of parameters is separated from luck by how the replications' throughputs follow their draws
    (:func:`simulator.results.variance.decomposed`).
    """
    logs = np.array([math.log(rate) for rate in rates])
    chance, sd = decomposed(logs, drawn_quantities(scenario), errors=False).chance, float(logs.std(ddof=1))
    return Scatter(model=relative_error.sd, parameters=math.sqrt(1.0 - chance) * sd, luck=math.sqrt(chance) * sd)


def _step_time(runs: Sequence[Measured]) -> Quantiles:
    pooled = TimeSketch()
    for run in runs:
        pooled.merge(run.step_time)
    p50, p95, p99 = pooled.quantiles(0.5, 0.95, 0.99)
    return Quantiles(mean=_of_a_step(runs, [run.step_time.mean() * run.steps for run in runs]), p50=p50, p95=p95, p99=p99)


def _staleness(scenario: Resolved, runs: Sequence[Measured], late: Sequence[int]) -> Staleness:
    """Staleness of all updates; of a pipeline whose stages apply gradients ``late`` updates late, each stage's part counts as one."""
    pooled, mixed = CountHistogram(), CountHistogram()
    servers = [CountHistogram() for _ in runs[0].server_staleness]
    workers = GroupedCounts(scenario.ranks) if runs[0].worker_staleness is not None else None
    for run in runs:
        pooled.merge(run.staleness)
        mixed.merge(run.mixed_reads)
        for server, counts_of_run in zip(servers, run.server_staleness, strict=True):
            server.merge(counts_of_run)
        if workers is not None and run.worker_staleness is not None:
            workers.merge(run.worker_staleness)
    if any(late):
        updates, pooled = sum(pooled.counts.values()), CountHistogram()
        for by in late:
            pooled.add(by, updates)
    counts, spreads = pooled.counts, mixed.counts
    values = sorted(counts)
    listed = workers if scenario.ranks <= LISTED_WORKERS else None
    reads = sum(spreads.values())
    bound = scenario.strategy.pace.bound
    return Staleness(
        mean=pooled.mean(),
        p50=pooled.quantile(0.5),
        p95=pooled.quantile(0.95),
        p99=pooled.quantile(0.99),
        max=max(values, default=0),
        histogram=Histogram(values=tuple(values), counts=tuple(counts[value] for value in values)),
        bound=(scenario.replicas - 1) * (2 * bound + 1) if bound is not None else None,
        per_server_mean=tuple(server.mean() for server in servers),
        per_server_p95=tuple(server.quantile(0.95) for server in servers),
        per_worker_mean=tuple(listed.means()) if listed is not None else (),
        per_worker_p95=tuple(listed.quantiles(0.95)) if listed is not None else (),
        per_worker_max=tuple(listed.largest.tolist()) if listed is not None else (),
        mixed_reads=1.0 - spreads.get(0, 0) / reads if reads else 0.0,
        mixed_spread_mean=mixed.mean(),
        mixed_spread_max=max(spreads, default=0),
    )


def _phase(scenario: Resolved, runs: Sequence[Measured]) -> Phase | None:
    phases = [run.phases for run in runs if run.phases is not None and run.phases.first is not None]
    if not phases:
        return None
    mixed = [phase.mixed_s for phase in phases if phase.mixed_s is not None]
    return Phase(
        order_at_start=float(np.mean([phase.first for phase in phases if phase.first is not None])),
        order_at_end=float(np.mean([phase.last for phase in phases])),
        order_of_random_phases=random_order(scenario.replicas),
        mixed_share=len(mixed) / len(phases),
        mixed_after_s=float(np.median(mixed)) if mixed else None,
        run_s=float(np.mean([run.run_s for run in runs])),
    )


def _breakdown(runs: Sequence[Measured]) -> Breakdown:
    parts = zip(*(run.parts_s for run in runs), strict=True)
    return Breakdown(**{name: max(_of_a_step(runs, totals_s), 0.0) for name, totals_s in zip(Breakdown.model_fields, parts, strict=True)})


def _stages(achieved: Scenario, runs: Sequence[Measured]) -> tuple[Stage, ...]:
    parts = [run.parts_by_routine_s for run in runs if run.parts_by_routine_s is not None]
    if not parts:
        return ()
    spent = np.sum(parts, axis=0)
    shares = (np.maximum(spent, 0.0) / spent.sum(axis=1, keepdims=True)).tolist()
    return tuple(
        Stage(
            layers=stage.layers,
            layer_count=stage.layer_count,
            devices=stage.devices,
            parameter_bytes=stage.parameter_bytes,
            busy=compute + apply,
            bubble=waiting,
            communication=communication,
            input=reading,
            staleness=stage.delay,
        )
        for stage, (reading, compute, communication, waiting, apply) in zip(
            achieved.strategy.model_parallel(achieved).stages, shares, strict=True
        )
    )


def _utilisation(runs: Sequence[Measured]) -> tuple[Utilisation, PortName | None]:
    """Shares in use, and the busiest link."""
    window_s = math.fsum(run.window_s for run in runs)
    total = Measured()
    for run in runs:
        total.add_use(run)

    def shares(kind: Kind) -> tuple[Sequence[Name], NDArray[np.float64]]:
        names, used_s = total.names.get(kind, ()), total.in_use_s.get(kind, np.zeros(0))
        # a link's bytes are counted when a message ends, so one that began before the window may bring it above the whole
        return names, np.minimum(used_s / window_s, 1.0)

    (_, devices), (names, links), (_, servers), (_, cores) = shares("devices"), shares("links"), shares("servers"), shares("cores")
    busiest = int(links.argmax()) if len(links) else None
    name = names[busiest] if busiest is not None else None
    use = Utilisation(
        devices=_mean(devices),
        links=_mean(links),
        servers=_mean(servers),
        busiest_link=0.0 if busiest is None else float(links[busiest]),
        busiest_link_name="" if name is None else str(name),
        busiest_server=float(servers.max(initial=0.0)),
        cores=_mean(cores),
    )
    return use, name if isinstance(name, PortName) else None


def _mean(shares: NDArray[np.float64]) -> float:
    return float(shares.mean()) if len(shares) else 0.0
