"""Makes the step program of what one replication simulates, by asking its strategy for it."""

from __future__ import annotations

from simulator.base.rng import Streams
from simulator.program.program import Program
from simulator.scenario import Drawn


def compile_program(scenario: Drawn, streams: Streams | None = None) -> Program:
    """What happens in a step of a scenario.

    Parameters
    ----------
    scenario
        What one replication simulates.
    streams
        Choose the routes of connections; left out: those of the first replication.
    """
    return scenario.strategy.program(scenario, streams or Streams(scenario.run.seed, 0))
