"""How many processes, rounds and steps a calibration has time for: arithmetic without a clock, for calibrate/probes/step.py.

A budget is wall time for all processes of a calibration, from the start of the first. Where everything fits, everything is measured. Else
later processes only time steps, rounds get shorter, then fewer, and last a process is left out: how much processes differ is seen from
two at least.
"""

from __future__ import annotations

from typing import NamedTuple

FEWEST_ROUNDS, FEWEST_STEPS = 2, 2
"""Rounds of a process, and timed steps at each batch size in a round."""
FEWEST_PROCESSES = 2
SPLIT_STEPS, SPLIT_WARM_UP = 4, 1
"""Steps with clocks inside, at each batch size, where time is short."""
WINDOW = 5
"""Steps between two looks at whether a step is warm."""


class Costs(NamedTuple):
    """Times of this process up to the end of its warm-up, in seconds.

    Attributes
    ----------
    begun_s
        From its start to the end of the warm-up.
    once_s
        One step at each batch size.
    rest_s, short_rest_s
        What follows the rounds: all of it; and with as few steps with clocks inside as there may be.
    """

    begun_s: float
    once_s: float
    rest_s: float = 0.0
    short_rest_s: float = 0.0


class Plan(NamedTuple):
    """Quantities to measure.

    Attributes
    ----------
    processes
        This one and those after it.
    rounds
        Rounds of each process.
    steps
        Timed steps at each batch size, over all rounds of a process.
    whole
        Whether everything that was asked for is measured.
    until_s
        Seconds after the start of this process from which on no round begins.
    total_s
        Seconds for all processes, disturbances left out.
    """

    processes: int
    rounds: int
    steps: int
    whole: bool
    until_s: float
    total_s: float


def plan_of(costs: Costs, budget_s: float, processes: int, rounds: int, steps: int, *, plain: bool = False) -> Plan:
    """Plan this process and those after it.

    Parameters
    ----------
    budget_s
        For all of them, from the start of this one.
    processes, rounds, steps
        At most.
    plain
        This process only times steps, as those after it do, and their number stays.
    """
    whole = planned(costs, processes, rounds, steps)
    if whole.total_s <= budget_s and not plain:
        return _until(whole, costs, budget_s)
    short = costs._replace(rest_s=0.0 if plain else costs.short_rest_s)
    fewest = processes if plain else min(FEWEST_PROCESSES, processes)
    for count in range(processes, fewest - 1, -1):
        sets = (budget_s - short.rest_s - count * short.begun_s) / (count * short.once_s)
        if sets >= FEWEST_ROUNDS * (FEWEST_STEPS + 1):
            break
    # the first step after a change of batch size is not timed
    each = min(int(sets / rounds) - 1, steps // rounds)
    if each < FEWEST_STEPS:
        rounds, each = max(FEWEST_ROUNDS, min(rounds, int(sets / (FEWEST_STEPS + 1)))), FEWEST_STEPS
    total_s = count * (short.begun_s + short.once_s * rounds * (each + 1)) + short.rest_s
    return _until(Plan(count, rounds, rounds * each, False, 0.0, total_s), short, budget_s)


def planned(costs: Costs, processes: int, rounds: int, steps: int) -> Plan:
    """Plan to measure everything in every process, however long that takes."""
    total_s = processes * (costs.begun_s + costs.once_s * (rounds + steps) + costs.rest_s)
    return Plan(processes, rounds, steps, True, 0.0, total_s)


def _until(plan: Plan, costs: Costs, budget_s: float) -> Plan:
    """The plan with this process's share of what the budget leaves for rounds."""
    rest_s = costs.rest_s * (plan.processes if plan.whole else 1)
    return plan._replace(until_s=costs.begun_s + (budget_s - rest_s - plan.processes * costs.begun_s) / plan.processes)


def warm_up_limit_s(budget_s: float, processes: int, batches: int) -> float:
    """Seconds after which a batch size counts as warm: over all of them, a third of the budget."""
    return budget_s / (3 * processes * batches)


def window_of(step_s: float, limit_s: float) -> int:
    """Steps of a window, of which two must agree within the limit."""
    return max(1, min(WINDOW, int(limit_s / (2 * step_s))))
