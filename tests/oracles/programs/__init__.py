"""Laws that every step program must obey and that need no run, and :func:`check_program`, which checks them.

They compare a program with the scenario that it stands for: what is trained, where it runs,
and how what travels is cut (:meth:`simulator.strategies.strategy.Strategy.tensors`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oracles.programs.collectives import (
    all_reduces_move_enough,
    collectives_say_when_they_go_on,
    exchanges_carry_the_buckets,
    gradients_enter_one_bucket,
    groups_agree,
    groups_divide_the_ranks,
)
from oracles.programs.messages import messages_go_where_they_say, what_departs_lands, what_is_sent_to_ranks_is_received
from oracles.programs.pipelines import pipelines_prepare_the_batches
from oracles.programs.servers import gradients_reach_their_server_once, servers_work_as_measured, variables_are_pulled_once
from oracles.programs.structure import (
    gates_have_rules,
    machines_are_those_of_the_cluster,
    passes_are_whole,
    rules_are_those_of_the_strategy,
    steps_begin_and_end,
    tables_fit_together,
)
from simulator.program.program import Program
from simulator.scenario import Scenario

__all__ = ["PROGRAM_INVARIANTS", "check_program"]


def check_program(program: Program, scenario: Scenario) -> None:
    """Check every law of :data:`PROGRAM_INVARIANTS`.

    Parameters
    ----------
    program
        What happens in a step.
    scenario
        What it was made of, as drawn for a replication.

    Raises
    ------
    InvariantError
        A law is broken; names the law and the place.
    """
    for law in PROGRAM_INVARIANTS:
        law(program, scenario)


PROGRAM_INVARIANTS: Sequence[Callable[[Program, Scenario], None]] = (
    tables_fit_together,
    steps_begin_and_end,
    gates_have_rules,
    passes_are_whole,
    rules_are_those_of_the_strategy,
    machines_are_those_of_the_cluster,
    pipelines_prepare_the_batches,
    messages_go_where_they_say,
    what_departs_lands,
    what_is_sent_to_ranks_is_received,
    gradients_reach_their_server_once,
    variables_are_pulled_once,
    servers_work_as_measured,
    groups_divide_the_ranks,
    groups_agree,
    collectives_say_when_they_go_on,
    gradients_enter_one_bucket,
    all_reduces_move_enough,
    exchanges_carry_the_buckets,
)
"""Every law that :func:`check_program` checks."""
