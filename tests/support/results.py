"""Plausible results, built without the engine: what a sweep of three strategies could have written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from paceline.planning.answer import Candidate, Improvement, Plan, Refused, ServerCount, WorkerCount
from paceline.planning.goal import Goal
from simulator.results.cost import cost_of_samples, placement_of, time_of_samples_s, usd_per_hour, usd_per_million_samples
from simulator.results.results import Result
from simulator.scenario import Scenario
from simulator.spec.cluster import Cluster
from simulator.spec.figures import Bottleneck, Breakdown, Estimate, Histogram, Quantiles, Scatter, Staleness, Utilisation, Warned

WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
STRATEGIES: tuple[dict[str, Any], ...] = (
    {"kind": "multi-worker-mirrored"},
    {"kind": "parameter-server", "mode": "sync", "servers": 4},
    {"kind": "parameter-server", "mode": "async", "servers": 4},
)
_FORWARD, _BACKWARD, _APPLY = (1.1e-3, 5.2e-5), (1.9e-3, 1.06e-4), 6e-4
_SIZES = (98_304, 8_192, 294_912, 256, 1_179_648, 512, 4_718_592, 512, 2_097_152, 40_960)


def _fit() -> dict[str, Any]:
    def point(batch: int) -> dict[str, Any]:
        forward, backward = (base + slope * batch for base, slope in (_FORWARD, _BACKWARD))
        total = forward + backward + _APPLY
        return {
            "batch": batch,
            "steps": 60,
            "mean_s": total * 1.02,
            "p5_s": total * 0.955,
            "median_s": total * 1.005,
            "p95_s": total * 1.14,
            "forward_s": forward * 0.99,
            "backward_s": backward * 1.03,
            "apply_s": _APPLY * 1.01,
        }

    return {
        "points": [point(batch) for batch in (8, 16, 32, 64)],
        "relative_residual": 0.031,
        "laws": [{"kind": "lognormal", "bic": -812.4}, {"kind": "gamma", "bic": -806.9}, {"kind": "normal", "bic": -761.0}],
        "intervals_90": {"forward.per_sample_s": (5.0e-5, 5.4e-5), "backward.per_sample_s": (1.01e-4, 1.11e-4)},
    }


def scenario_of(strategy: Mapping[str, Any], workers: int, *, name: str = "cnn-cifar", fit: bool = True, **changes: Any) -> Scenario:
    """A scenario of the sweep; ``changes`` replace whole sections."""
    workload: dict[str, Any] = {
        "name": name,
        "description": "Three convolutions and two dense layers on 32x32x3 images.",
        "batch_per_replica": 32,
        "forward": {"base_s": _FORWARD[0], "per_sample_s": _FORWARD[1]},
        "backward": {"base_s": _BACKWARD[0], "per_sample_s": _BACKWARD[1]},
        "apply_s": _APPLY,
        "jitter": {"kind": "lognormal", "sigma": 0.06},
        "run_to_run_cv": 0.015,
        "variables": [
            {
                "name": f"layer_{index}/kernel",
                "size_bytes": size,
                "creation_index": len(_SIZES) - 1 - index,
                "ready": (index + 1) / len(_SIZES),
            }
            for index, size in enumerate(_SIZES)
        ],
        "calibrated": {"batch": (8, 64), "workers": (1, 8), "device": "Intel Xeon, 2 cores"},
        "uncertainty": {"parameters": ["forward.per_sample_s"], "draws": [[5.1e-5], [5.2e-5], [5.3e-5]]},
        "provenance": {"device": "Intel Xeon, 2 cores", "tensorflow": "2.21.0", "measured": "60 steps at each of 4 batch sizes"},
    }
    if fit:
        workload["fit"] = _fit()
    cluster = {
        "name": "ethernet-10g",
        "description": "10 Gbit/s Ethernet, one device a node.",
        "inter_node": {"bandwidth_bytes_per_s": 1.25e9, "latency_s": 5e-5},
        "provenance": {"source": "nominal rate of the port"},
    }
    tables: dict[str, Any] = {"workload": workload, "cluster": cluster, "strategy": {**strategy, "workers": workers}, "run": {"seed": 7}}
    for section, values in changes.items():
        tables[section] = {**tables[section], **values}
    return Scenario.model_validate(tables)


def _costs(scenario: Scenario) -> tuple[float, float, float]:
    """Exposed communication, waiting and the mean staleness of a made-up but sensible law."""
    n, size, rate = scenario.replicas, scenario.workload.parameter_bytes, scenario.cluster.inter_node.bandwidth_bytes_per_s
    if n == 1:
        return 0.0, 0.0, 0.0
    if scenario.strategy.kind == "multi-worker-mirrored":
        return 2 * (n - 1) / n * size / rate * 0.35 + 2 * (n - 1) * 1.1e-5, 6e-4 * math.log(n), 0.0
    load = size / rate * n / scenario.servers * 0.5
    if getattr(scenario.strategy, "mode", "") == "sync":
        return load + 2e-4, 7e-4 * math.log(n), 0.0
    return max(2e-4, load - 5e-3), 0.0, n - 1.0


def _histogram(mean: float) -> Staleness:
    centre, spread = round(mean), max(1.0, mean**0.62)
    values = tuple(range(max(0, int(centre - 3 * spread)), int(centre + 3 * spread) + 1)) if centre else (0,)
    counts = tuple(max(1, round(2000 / spread * math.exp(-(((value - centre) / spread) ** 2) / 2))) for value in values)
    high = values[-1]
    return Staleness(
        mean=mean,
        p50=centre,
        p95=min(high, round(centre + 1.6 * spread)),
        p99=high,
        max=high,
        histogram=Histogram(values=values, counts=counts),
    )


def _runs(rate: float, spread: float) -> tuple[float, ...]:
    """Rates of 19 runs: ends and mean as the result's own, a common part by which runs pair, and a little of each scenario's own."""
    common = (-1.0, 0.8, *(0.2 / 17 + 0.06 * (number - 8) for number in range(17)))
    return tuple(rate * (1 + spread * part + 0.002 * ((7 * run + int(rate)) % 5 - 2)) for run, part in enumerate(common))


def plausible(scenario: Scenario) -> Result:
    """A result that such a scenario could have."""
    n, batch = scenario.replicas, scenario.batch
    compute = scenario.workload.compute_s(batch)
    exposed, waiting, stale = _costs(scenario)
    step = compute + _APPLY + exposed + waiting
    rate, single = n * batch / step, batch / (compute + _APPLY)
    spread = 0.04 + (0.05 * math.log2(n / 8) if n > 8 else 0)
    ring = scenario.strategy.kind == "multi-worker-mirrored"
    network = exposed > compute
    name = "compute" if not network else ("latency" if ring else "server-network")
    text = {
        "compute": "The devices themselves: forward and backward pass fill most of the step.",
        "latency": f"Latency: each all-reduce waits for {2 * (n - 1)} messages, one after the other.",
        "server-network": "The servers' links: they are busy 96% of the time, and the workers wait for them.",
    }[name]
    warnings = [
        Warned(
            code="assumed-network",
            path="cluster.inter_node",
            value=scenario.cluster.name,
            text="The network's figures are assumed, not measured.",
        )
    ]
    if n > 8:
        warnings.append(
            Warned(
                code="outside-calibration",
                path="strategy.workers",
                value=float(n),
                range=(1, 8),
                text=f"{n} workers: calibrated between 1 and 8.",
            )
        )
    return Result(
        scenario_hash=scenario.hash,
        scenario=scenario,
        seed=scenario.run.seed,
        replicas=n,
        placement=placement_of(scenario),
        throughput_samples_per_s=Estimate(mean=rate, low=rate * (1 - spread), high=rate * (1 + spread * 0.8)),
        updates_per_s=Estimate(mean=rate / batch, low=rate / batch * (1 - spread), high=rate / batch * (1 + spread)),
        throughput_of_each_replication=_runs(rate, spread),
        monte_carlo_error=rate * 0.004,
        step_time_s=Quantiles(mean=step, p50=step * 0.99, p95=step * 1.11, p99=step * 1.19),
        mean_step_s=Estimate(mean=step, low=step * 0.98, high=step * 1.02),
        scatter=Scatter(model=0.0, parameters=0.0, luck=0.0),
        speedup=Estimate(mean=rate / single, low=rate / single * 0.98, high=rate / single * 1.02),
        scaling_efficiency=Estimate(mean=rate / single / n, low=rate / single / n * 0.98, high=rate / single / n * 1.02),
        staleness=_histogram(stale),
        breakdown_s=Breakdown(input=0.0, compute=compute, exposed_communication=exposed, waiting=waiting, apply=_APPLY),
        utilisation=Utilisation(
            devices=compute / step, links=0.4, servers=0.3, busiest_link=0.96, busiest_link_name="server 0, in", busiest_server=0.5
        ),
        bottleneck=Bottleneck(name=name, share=exposed / step, text=text),  # type: ignore[arg-type]
        warnings=tuple(warnings),
        events=120_000,
    )


def sweep(strategies: tuple[dict[str, Any], ...] = STRATEGIES, workers: tuple[int, ...] = WORKERS, **changes: Any) -> list[Result]:
    """Each strategy at each number of workers."""
    return [plausible(scenario_of(strategy, count, **changes)) for strategy in strategies for count in workers]


HOSTILE = (
    "</script><script>window.pwned=1</script>",
    '<img src=x onerror="window.pwned=1">"\'`&amp;',
    "\u202e\u0645\u0631\u062d\u0628\u0627 abc \u05e9\u05dc\u05d5\u05dd",
    "%{x} $x^2$ {{ 7*7 }} {% raw %} <a href='javascript:window.pwned=1'>x</a>",
    "x" * 10_000,
)


def hostile_sweep() -> list[Result]:
    """Names and texts that try to break out of the page, in every place that takes free text."""
    found = []
    for index, text in enumerate(HOSTILE):
        base = scenario_of(STRATEGIES[2], 4 * (index + 1), name=text)
        cluster = Cluster.model_validate(
            {**base.cluster.model_dump(), "name": text, "description": text, "device": text, "provenance": {text: text}}
        )
        measured = base.workload.calibrated
        assert measured is not None
        here = measured.model_copy(update={"device": text})
        workload = base.workload.model_copy(update={"description": text, "provenance": {text: text}, "calibrated": here})
        result = plausible(base.model_copy(update={"cluster": cluster, "workload": workload}))
        warned = Warned(code=text, path=text, value=text, text=text)
        found.append(
            result.model_copy(update={"bottleneck": Bottleneck(name="compute", text=text), "warnings": (*result.warnings, warned)})
        )
    return found


PRICE = {"usd_per_node_hour": 0.9, "terms": "on demand", "source": "a price list", "date": "2026-01-01"}
RATES = (1.25e9, 3.125e9, 12.5e9)


def grid(workers: tuple[int, ...] = (1, 4, 16), servers: tuple[int, ...] = (2, 8), batches: tuple[int, ...] = (16, 64)) -> list[Result]:
    """A sweep of four keys over three strategies, the ring without servers, on a cluster that has a price."""
    found = []
    for rate in RATES:
        cluster = {"inter_node": {"bandwidth_bytes_per_s": rate, "latency_s": 5e-5}, "price": PRICE}
        for batch in batches:
            load = {"batch_per_replica": batch}
            found += sweep(STRATEGIES[:1], workers, cluster=cluster, workload=load)
            for count in servers:
                held = tuple({**strategy, "servers": count} for strategy in STRATEGIES[1:])
                found += sweep(held, workers, cluster=cluster, workload=load)
    return found


def planned(results: list[Result], text: str) -> Plan:
    """What a plan over such results could have answered, with a text in every place that takes one."""

    def candidate(result: Result) -> Candidate:
        return Candidate(
            name=text,
            what=text,
            others=(),
            scaling="weak",
            result=result,
            usd_per_hour=usd_per_hour(result.scenario),
            usd_per_million_samples=usd_per_million_samples(result),
            time_s=time_of_samples_s(result, 1e9),
            cost_usd=cost_of_samples(result, 1e9),
            confidence=0.97,
            reached_by=19,
            meets=result.replicas > 4,
            nodes=placement_of(result.scenario).nodes,
            devices_per_node=1,
            placement=text,
        )

    candidates = tuple(candidate(result) for result in results)
    chosen = candidates[min(3, len(candidates) - 1)]
    rate = chosen.result.throughput_samples_per_s
    counted: dict[str, Any] = {
        "throughput_samples_per_s": rate,
        "throughput_of_each_replication": chosen.result.throughput_of_each_replication,
        "nodes": 8,
        "placement": text,
    }
    return Plan(
        goal=Goal(samples=1e9, deadline_s=43_200.0),
        feasible=True,
        chosen=chosen,
        why=text,
        runners_up=candidates[-2:],
        pareto=candidates[:3],
        candidates=candidates,
        servers=(ServerCount(servers=4, usd_per_hour=None, **counted),),
        servers_enough=4,
        workers=(WorkerCount(workers=8, replicas=8, usd_per_hour=7.2, **counted),),
        workers_pay_until=8,
        improvements=(
            Improvement(name=text, text=text, throughput_samples_per_s=rate, gain=0.12, gain_low=0.12, gain_high=0.12, bottleneck=text),
        ),
        refused=(Refused(name=text, text=text, configurations=3),),
        considered=1200,
        discarded=1100,
        simulated=42,
        sentences=("The cheapest is this one.", "Nineteen of twenty runs reach the goal.", "The network limits it."),
        notes=(text,),
    )
