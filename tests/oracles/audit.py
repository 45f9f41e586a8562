"""The audit of users, and before it every invariant of programs."""

from __future__ import annotations

from oracles.programs import check_program
from simulator.base.rng import Streams
from simulator.checks import invariants
from simulator.engine.replication import drawn_scenario
from simulator.observing.recording import Recording
from simulator.resolve.drawing import compile_program
from simulator.resolve.resolve import resolve
from simulator.scenario import Scenario


def audit(scenario: Scenario, replication: int = 0) -> Recording:
    """Check a scenario's program, then a run of it; see :func:`simulator.checks.invariants.audit`."""
    streams = Streams(scenario.run.seed, replication)
    drawn = drawn_scenario(resolve(scenario), streams)
    check_program(compile_program(drawn, streams), drawn)
    return invariants.audit(scenario, replication)
