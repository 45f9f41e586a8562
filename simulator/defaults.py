"""What a scenario leaves out that decides its result: taken as real TensorFlow was measured to do it, with the reason.

Everything else that is left out is either said by its own default or asked for.
"""

from __future__ import annotations

from typing import Literal

from simulator.results import Assumed
from simulator.scenario import Scenario
from simulator.spec import Spec
from simulator.strategy import ParameterServer

__all__ = ["Start", "assumptions", "filled_in", "start_of"]

Start = Literal["together", "staggered", "random-phase"]

_RANDOM_PULLS = (
    "TensorFlow answers the reads of a step in random order (Hashemi et al., TicTac, 2019; in order of need, throughput of real runs "
    "came out 11% too high, docs/fidelity.md)"
)
_APART = "between-graph workers are started one by one, so their steps begin at different times"
_AT_ONCE = "one coordinator hands all workers their first step at the same time, and lines them up again whenever it is waited for"
_ONE_CLIENT = "one client starts all workers"


def start_of(scenario: Scenario) -> Start:
    """When workers begin: as given, or as it is with their way of training."""
    return scenario.run.start or _start(scenario)[0]


def _start(scenario: Scenario) -> tuple[Literal["together", "random-phase"], str]:
    """As it is with the way of training, and why."""
    strategy = scenario.strategy
    if not isinstance(strategy, ParameterServer) or strategy.mode == "sync":
        return "together", "all make each step together, whenever they begin"
    if strategy.coordinator is not None:
        return "together", _AT_ONCE
    if strategy.replication == "in-graph":
        return "together", _ONE_CLIENT
    return "random-phase", _APART


def filled_in(scenario: Scenario) -> Scenario:
    """The scenario with what it leaves out in place; itself where it leaves out nothing."""
    strategy = scenario.strategy
    changes: dict[str, Spec] = {}
    if scenario.run.start is None:
        changes["run"] = scenario.run.model_copy(update={"start": start_of(scenario)})
    if isinstance(strategy, ParameterServer) and strategy.pull_order is None:
        changes["strategy"] = strategy.model_copy(update={"pull_order": strategy.pulls})
    return scenario.model_copy(update=changes) if changes else scenario


def assumptions(scenario: Scenario) -> tuple[Assumed, ...]:
    """What was taken for what the scenario leaves out, where another value would give another result."""
    strategy, found = scenario.strategy, []
    if not isinstance(strategy, ParameterServer):
        return ()
    several = len(scenario.workload.variables) > 1 or strategy.partitioner is not None
    if strategy.pull_order is None and scenario.run.grouping == "none" and several:
        found.append(Assumed(path="strategy.pull_order", value=strategy.pulls, reason=_RANDOM_PULLS))
    if scenario.run.start is None and strategy.mode != "sync" and scenario.replicas > 1:
        start, reason = _start(scenario)
        found.append(Assumed(path="run.start", value=start, reason=reason))
    return tuple(found)
