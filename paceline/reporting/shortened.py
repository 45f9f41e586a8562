"""A run that is short enough to be looked at record by record, and what was left out for it."""

from __future__ import annotations

from pydantic import ValidationError

from simulator.errors import SimulationError
from simulator.scenario import Scenario

__all__ = ["all_reduces_a_step", "records_a_step", "shortened"]

_MOST_RECORDS = 300_000
"""Some seconds of simulation, and some hundred megabytes of records."""
_FEWEST_STEPS = 6
_BESIDES = 3
"""Records of a step that are no message: its compute, its update and itself, about."""


def shortened(scenario: Scenario) -> tuple[Scenario, str]:
    """The scenario with fewer steps, and if that is not enough with fewer replicas, so that its records fit into memory.

    Fewer steps are the first steps of the very same run: its random streams do not depend
    on how long it is. Fewer replicas are another scenario.

    Returns
    -------
    Scenario
        The scenario itself where it is short enough.
    str
        What was changed, as sentences; empty where nothing was.

    Raises
    ------
    SimulationError
        It cannot be made small enough.
    """
    told: list[str] = []
    replicas = scenario.replicas
    fewer = replicas
    while fewer > 2 and records_a_step(scenario, fewer) * _FEWEST_STEPS > _MOST_RECORDS:
        fewer = max(2, fewer // 2)
    if fewer < replicas:
        scenario = _with_replicas(scenario, fewer)
        told.append(
            f"Simulated with {scenario.replicas:,} replicas in place of {replicas:,}, of which every message would take too long: "
            "how long messages and queues take differs from the run with all."
        )
    whole = scenario.run.total_steps(scenario.replicas) / scenario.replicas
    steps = max(_FEWEST_STEPS, _MOST_RECORDS // records_a_step(scenario, scenario.replicas))
    if steps < whole:
        warmup = min(scenario.run.warmup, steps // 3)
        scenario = scenario.shortened(steps, warmup)
        steps = scenario.run.steps
        told.append(f"Cut to the first {steps:,} steps of each replica, of {whole:,.0f}.")
    return scenario, " ".join(told)


def records_a_step(scenario: Scenario, replicas: int) -> int:
    """About how many records one step of so many replicas makes."""
    messages = 0
    if scenario.servers:
        tensors = scenario.strategy.tensors(scenario)
        carried = len(tensors.variables) + len(tensors.gradients)
        copied = carried if scenario.cluster.host_link is not None else 0
        messages = carried + copied + 2 * len(tensors.gradients) + len(tensors.forward) + len(tensors.backward)
    else:
        # each with the piece of compute that its gradients come from
        messages = all_reduces_a_step(scenario) * (1 + (2 * (replicas - 1) if scenario.rank_messages else 1))
        messages += scenario.strategy.messages_a_step(scenario)
    return replicas * (messages + _BESIDES)


def all_reduces_a_step(scenario: Scenario) -> int:
    """Of how many buckets the gradients of a step are at most; 0 where they are not all-reduced."""
    reduction = scenario.strategy.reduction
    return len(reduction.buckets(scenario.workload, scenario.batch, scenario.replicas)) if reduction is not None else 0


def _with_replicas(scenario: Scenario, replicas: int) -> Scenario:
    """The same with so many replicas, each with as many samples as before."""
    load = scenario.workload.model_copy(update={"batch_per_replica": scenario.batch, "global_batch": None})
    try:
        strategy = scenario.strategy.fewer(replicas, scenario.replicas)
        return Scenario(**{**scenario.sections, "workload": load, "strategy": strategy})
    except ValidationError as error:
        reason = " ".join(str(error.errors(include_url=False)[0]["msg"]).split())
        raise SimulationError(f"the timeline needs a smaller run, and with {replicas:,} replicas there is none: {reason}") from None
