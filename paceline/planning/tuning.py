"""The fastest of several scenarios that do the same on the same machines, and buckets: into how many all-reduces gradients are best fused.

One large all-reduce carries its bytes with the fewest messages, and nothing hides it; many
small ones go on while the backward pass still computes, and each pays its latency. Which
is better depends on the model and the network, so sizes are simulated.

Where only the fastest of several scenarios is wanted, a few short runs with the same draws rule most of them out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

from paceline.sweeping import Simulate, Simulations
from simulator.base.errors import ScenarioError
from simulator.base.text import written
from simulator.base.validation_errors import validated
from simulator.resolve.drawing import as_workers, compile_program
from simulator.resolve.resolve import resolve
from simulator.results.results import Result
from simulator.scenario import Drawn, Scenario

BUCKET_KEY = "strategy.bucket_size"
_PARTS = (2, 4, 8, 16, 32)
"""Buckets that all gradients are fused into: about this many."""
_LEAST_BYTES = 64 * 1024.0
"""Smaller ones take longer to start than to send on any network."""
_HEAT_RUNS, _HEAT_STEPS = 3, 10
"""Replications of each scenario in a heat, and measured steps of each."""
_TIMES_A_HEAT = 8
"""A scenario has a heat only where its own runs are so many times as long."""
_WORTH = 1.005
"""Another size is taken if it is faster by half a percent."""


def can_fuse(scenario: Scenario) -> bool:
    """Whether a scenario reduces gradients among replicas in buckets whose size is free."""
    return scenario.strategy.fuses and scenario.replicas > 1


def with_bucket(scenario: Scenario, size_bytes: float | None) -> Scenario:
    """A scenario that fuses gradients up to another size; None fuses all of them.

    Raises
    ------
    ScenarioError
        It breaks a rule.
    """
    return validated(Scenario, {**scenario.sections, "strategy": scenario.strategy.with_buckets(size_bytes)}, BUCKET_KEY)


def with_buckets(scenario: Scenario) -> list[Scenario]:
    """The scenario with each other size of buckets that is worth a try, the largest first.

    Sizes are powers of two, in bytes, below that of all gradients of a replica. Of those that make the same buckets, as sizes do that
    are larger than all gradients of a stage, only the first.
    """
    if not can_fuse(scenario):
        return []
    whole = math.fsum(scenario.strategy.pushed_bytes(scenario))
    own = scenario.strategy.bucket_bytes
    sizes = dict.fromkeys(2.0 ** int(whole / parts - 1).bit_length() for parts in _PARTS if whole / parts >= _LEAST_BYTES)
    scenarios: list[Scenario] = []
    for size in sizes:
        if size != own:
            with suppress(ScenarioError):
                scenarios.append(with_bucket(scenario, size))
    return _unlike(scenarios)


def best_bucket(scenario: Scenario, result: Result, simulate: Simulate) -> Result:
    """The fastest of a scenario and of those with other sizes of buckets; itself where none is faster by more than next to nothing."""
    others = may_be_fastest(_unlike([scenario, *with_buckets(scenario)])[1:], simulate)
    fastest = fastest_of([outcome for outcome in simulate(others) if isinstance(outcome, Result)])
    return fastest if fastest is not None and _rate(fastest) > _WORTH * _rate(result) else result


def _unlike(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """Of scenarios that differ in their buckets alone, the first of each that makes the same: their runs are the same as well."""
    if len(scenarios) < 2:
        return list(scenarios)
    steps: list[tuple[object, ...]] = []
    unlike = []
    for scenario in scenarios:
        program = compile_program(Drawn(as_workers(resolve(scenario))))
        rule = program.rules.reduction
        step = program.routines, rule if rule is not None and rule.cycle_s is not None else None  # a cycle's fill by the size itself
        if step not in steps:
            steps.append(step)
            unlike.append(scenario)
    return unlike


def may_be_fastest(scenarios: Sequence[Scenario], simulate: Simulate, within: float = 1.0) -> list[Scenario]:
    """Those that a few short runs of each, with the same draws, leave in the race for the highest throughput, in their order.

    Only the fastest of these runs, or all that are within a factor of it. What could not be simulated stays, so that its failure is
    told. If the full runs are not much longer than the short ones, all scenarios stay.
    """
    heats = [_short(scenario) for scenario in scenarios]
    if len(scenarios) < 2 or any(heat is None for heat in heats):
        return list(scenarios)
    briefly = simulate.aside if isinstance(simulate, Simulations) else simulate
    outcomes = briefly([heat for heat in heats if heat is not None])
    rates = [_rate(outcome) if isinstance(outcome, Result) else math.inf for outcome in outcomes]
    least = max((rate for rate in rates if math.isfinite(rate)), default=0.0) / within
    return [scenario for scenario, rate in zip(scenarios, rates, strict=True) if rate >= least]


def _short(scenario: Scenario) -> Scenario | None:
    """A few short replications of a scenario; None if the full run is not much longer."""
    run, warmup = scenario.run, min(scenario.run.warmup, _HEAT_STEPS)
    if run.replications * run.steps < _TIMES_A_HEAT * _HEAT_RUNS * (warmup + _HEAT_STEPS):
        return None
    changes = {"replications": _HEAT_RUNS, "steps": warmup + _HEAT_STEPS, "warmup_steps": warmup, "job_steps": None}
    try:
        return validated(Scenario, {**scenario.sections, "run": run.model_copy(update=changes), "job": None}, "run")
    except ScenarioError:
        return None


def fastest_of(results: Sequence[Result]) -> Result | None:
    """The one with the highest mean throughput, the first of equal ones; None of none."""
    return max(results, key=_rate, default=None)


def bucket_in_words(scenario: Scenario) -> str:
    """``buckets of 1 MiB``, or ``all gradients in one bucket``."""
    size = scenario.strategy.bucket_bytes
    return "all gradients in one bucket" if size is None else f"buckets of {written(size, 'setting_bytes')}"


def _rate(result: Result) -> float:
    return result.throughput_samples_per_s.mean
