"""From what replications measured to a result; docs/metrics.md has each formula."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.bottleneck import bottleneck
from simulator.cautions import cautions
from simulator.errors import SimulationError
from simulator.intervals import prediction_interval
from simulator.recorder import Kind, Measured
from simulator.results import Breakdown, Histogram, Quantiles, Result, Staleness, Utilisation
from simulator.scenario import Scenario
from simulator.statistics import CountHistogram, TimeSketch
from simulator.strategy import Single

__all__ = ["alone_scenario", "summarise"]

_SHORTEST_S, _LONGEST_S = 1e-15, 1e15


def summarise(scenario: Scenario, runs: Sequence[Measured], alone: Sequence[Measured]) -> Result:
    """The result of a scenario.

    Parameters
    ----------
    scenario
        What was simulated.
    runs
        Its replications.
    alone
        As many replications of one replica alone with the same random streams, for the
        speed-up.

    Raises
    ------
    SimulationError
        The steps took so little time, or so much, that numbers lose their meaning.
    """
    for run in (*runs, *alone):
        if not _SHORTEST_S <= run.window_s <= _LONGEST_S:
            raise SimulationError(
                f"the measured steps take {run.window_s:g} s together, of which no rate can be computed; "
                "check the times and the jitter of the workload"
            )
    samples_per_s = [run.steps * scenario.batch / run.window_s for run in runs]
    batch_alone = alone_scenario(scenario).batch
    baseline = [run.steps * batch_alone / run.window_s for run in alone]
    rate = prediction_interval(samples_per_s)
    speedup = rate.mean / float(np.mean(baseline))
    breakdown = _breakdown(runs)
    utilisation = _utilisation(runs)
    return Result(
        scenario_hash=scenario.hash,
        scenario=scenario,
        seed=scenario.run.seed,
        replicas=scenario.replicas,
        throughput_samples_per_s=rate,
        updates_per_s=prediction_interval([run.updates / run.window_s for run in runs]),
        monte_carlo_error=float(np.std(samples_per_s, ddof=1) / np.sqrt(len(runs))),
        step_time_s=_step_time(runs),
        speedup=speedup,
        scaling_efficiency=speedup / scenario.replicas,
        staleness=_staleness(runs),
        breakdown_s=breakdown,
        utilisation=utilisation,
        bottleneck=bottleneck(scenario, breakdown, utilisation),
        warnings=cautions(scenario),
        events=sum(run.events for run in runs),
    )


def alone_scenario(scenario: Scenario) -> Scenario:
    """The same workload on one replica alone, which speed-up is counted against.

    Weak scaling keeps the batch of a replica, strong scaling the global batch, so that
    the one replica does the work of all. Its device has the speed that was measured.
    """
    cluster = scenario.cluster.model_copy(update={"node_speed": (), "replicas_per_device": 1})
    return scenario.model_copy(update={"strategy": Single(), "cluster": cluster})


def _step_time(runs: Sequence[Measured]) -> Quantiles:
    pooled = TimeSketch()
    for run in runs:
        pooled.merge(run.step_time)
    p50, p95, p99 = pooled.quantiles(0.5, 0.95, 0.99)
    return Quantiles(mean=pooled.mean(), p50=p50, p95=p95, p99=p99)


def _staleness(runs: Sequence[Measured]) -> Staleness:
    pooled = CountHistogram()
    for run in runs:
        pooled.merge(run.staleness)
    values = sorted(pooled.counts)
    updates = sum(pooled.counts.values())
    servers = range(len(runs[0].server_staleness))
    return Staleness(
        mean=pooled.mean(),
        p50=pooled.quantile(0.5),
        p95=pooled.quantile(0.95),
        p99=pooled.quantile(0.99),
        max=max(values, default=0),
        histogram=Histogram(values=tuple(values), counts=tuple(pooled.counts[value] for value in values)),
        per_server_mean=tuple(sum(run.server_staleness[server] for run in runs) / updates for server in servers),
    )


def _breakdown(runs: Sequence[Measured]) -> Breakdown:
    steps = sum(run.steps for run in runs)
    names = ("input", "compute", "exposed_communication", "waiting", "apply")
    sums = np.sum([run.parts_s for run in runs], axis=0) / steps
    return Breakdown(**dict(zip(names, sums.tolist(), strict=True)))


def _utilisation(runs: Sequence[Measured]) -> Utilisation:
    window_s = sum(run.window_s for run in runs)

    def shares(kind: Kind) -> dict[str, float]:
        # a link's bytes are counted when a message ends, so one that began before the window may bring it above the whole
        return {name: min(sum(run.in_use_s[kind][name] for run in runs) / window_s, 1.0) for name in runs[0].in_use_s[kind]}

    devices, links, servers = shares("devices"), shares("links"), shares("servers")
    busiest = max(links, key=lambda name: links[name], default="")
    return Utilisation(
        devices=_mean(devices),
        links=_mean(links),
        servers=_mean(servers),
        busiest_link=links.get(busiest, 0.0),
        busiest_link_name=busiest,
        busiest_server=max(servers.values(), default=0.0),
    )


def _mean(shares: dict[str, float]) -> float:
    return sum(shares.values()) / len(shares) if shares else 0.0
