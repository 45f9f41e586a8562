"""From a scenario to its step program."""

from __future__ import annotations

from simulator.errors import SimulationError
from simulator.program.program import Program
from simulator.rng import Streams
from simulator.scenario import Scenario
from simulator.strategies.all_reduce.routine import compile_together
from simulator.strategies.all_reducing import AllReduceStrategy
from simulator.strategies.parameter_server.routine import compile_servers
from simulator.strategies.servers import ParameterServer
from simulator.strategies.single import Single

__all__ = ["compile_program"]


def compile_program(scenario: Scenario, streams: Streams | None = None) -> Program:
    """What happens in a step of a scenario.

    Parameters
    ----------
    scenario
        What is simulated: as a user writes it, or as drawn for a replication.
    streams
        Choose the routes of connections; left out: those of the first replication.

    Raises
    ------
    SimulationError
        Nobody compiles its strategy.
    """
    streams = streams or Streams(scenario.run.seed, 0)
    if isinstance(scenario.strategy, ParameterServer):
        return compile_servers(scenario, streams)
    if isinstance(scenario.strategy, (Single, AllReduceStrategy)):
        return compile_together(scenario, streams)
    raise SimulationError(f"nobody compiles the strategy {scenario.strategy.kind!r}: it has a spec, but no routine")
