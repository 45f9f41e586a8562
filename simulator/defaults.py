"""What a scenario leaves out that decides its result: taken as real TensorFlow was measured to do it, with the reason.

Everything else that is left out is either said by its own default or asked for.
"""

from __future__ import annotations

from typing import Literal

from simulator.results import Assumed
from simulator.scenario import Scenario

__all__ = ["Start", "assumptions", "start_of"]

Start = Literal["together", "staggered", "random-phase"]


def start_of(scenario: Scenario) -> Start:
    """When workers begin: as given, or as it is with their way of training."""
    return scenario.run.start or scenario.strategy.pace.start


def assumptions(scenario: Scenario) -> tuple[Assumed, ...]:
    """What was taken for what the scenario leaves out, where another value would give another result."""
    found = [Assumed(path=its.path, value=its.value, reason=its.reason) for its in scenario.strategy.left_open(scenario)]
    pace = scenario.strategy.pace
    if scenario.run.start is None and pace.asynchronous and scenario.replicas > 1:
        found.append(Assumed(path="run.start", value=pace.start, reason=pace.start_reason))
    return tuple(found)
