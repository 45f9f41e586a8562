"""What a scenario leaves out that decides its result: taken as real TensorFlow was measured to do it, with the reason.

Everything else that is left out is either said by its own default or asked for.
"""

from __future__ import annotations

from typing import Literal

from simulator.figures import Assumed
from simulator.scenario import Scenario
from simulator.spec import Spec

__all__ = ["Start", "assumptions", "filled_in", "start_of"]

Start = Literal["together", "staggered", "random-phase"]


def start_of(scenario: Scenario) -> Start:
    """When workers begin: as given, or as it is with their way of training."""
    return scenario.run.start or scenario.strategy.pace.start


def filled_in(scenario: Scenario) -> Scenario:
    """The scenario with what it leaves out in place; itself where it leaves out nothing."""
    strategy = scenario.strategy
    changes: dict[str, Spec] = {}
    if scenario.run.start is None:
        changes["run"] = scenario.run.model_copy(update={"start": start_of(scenario)})
    if (filled := strategy.filled_in()) is not strategy:
        changes["strategy"] = filled
    return scenario.model_copy(update=changes) if changes else scenario


def assumptions(scenario: Scenario) -> tuple[Assumed, ...]:
    """What was taken for what the scenario leaves out, where another value would give another result."""
    found = [Assumed(path=its.path, value=its.value, reason=its.reason) for its in scenario.strategy.left_open(scenario)]
    pace = scenario.strategy.pace
    if scenario.run.start is None and pace.asynchronous and scenario.replicas > 1:
        found.append(Assumed(path="run.start", value=pace.start, reason=pace.start_reason))
    return tuple(found)
