"""What is asked before it is begun: simulations of hours, and trainings whose single step takes hours."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from simulator.scenario import Scenario

__all__ = ["agree_to_measure", "agree_to_one", "agree_to_plan", "agree_to_sweep", "cores_of", "told_s"]

_LONG_ALONE_S, _LONG_S = 600.0, 4 * 3600.0
"""What one scenario, and what many may take before it is asked about."""
_LONG_MEASURING_S = 3600.0
"""What real runs may take before it is asked about."""
_SURE = 5.0
"""How many times less the model must say for its word to be enough."""
_LONG_STEP_S = 3600.0
"""No step of a real training takes as long: of what is calibrated for 64 samples, somebody asks for millions."""
_MANY = 100_000
"""Replicas from which on a run takes a minute, and memory that is worth a word."""
_SAMPLE = 1000
_GOLDEN = 0.6180339887498949
_SIMULATED_A_LINE = 16
"""Configurations of one line that a plan simulates at most, or nearly: it halves ranges."""


def cores_of(jobs: int) -> int:
    """Cores that so many jobs keep busy; those of a cluster are not known, and taken to be as many as here."""
    here = os.cpu_count() or 1
    return min(jobs, here) if jobs else here


def agree_to_one(scenario: Scenario, where: str, *, yes: bool) -> None:
    """Ask whether to simulate a scenario, where that takes long.

    Raises
    ------
    InputError
        It does, there is nobody to ask, and ``yes`` is not set.
    Exit
        The answer was no.
    """
    run = scenario.run
    what = f"its {run.replications:,} replications of {_length(scenario)} take"
    _agree([(1.0, scenario)], where, what, _LONG_ALONE_S, cores=1, yes=yes)
    _tell_of_many(scenario, where)


def _tell_of_many(scenario: Scenario, where: str) -> None:
    """Say what a scenario of very many replicas takes, once it is sure that there is memory for it."""
    from paceline.cli.showing import note
    from simulator.effort import check_memory, effort_s, memory_bytes
    from simulator.engine.choosing import likely_engine
    from simulator.text import format_bytes

    if scenario.replicas < _MANY:
        return
    engine = likely_engine(scenario)
    check_memory(scenario, engine)
    note(
        f"{where}: {scenario.replicas:,} replicas take about {told_s(effort_s(scenario, engine))} and "
        f"{format_bytes(memory_bytes(scenario, engine))} of memory (engine {engine})"
    )


def agree_to_sweep(scenarios: Sequence[Scenario], places: range, where: str, *, cores: int, yes: bool) -> None:
    """:func:`agree_to_one` for those scenarios at some places; of thousands, a part stands for all."""
    count = min(len(places), _SAMPLE)
    chosen = places if count == len(places) else [places[int(number * _GOLDEN % 1.0 * len(places))] for number in range(count)]
    sample = ((len(places) / count, scenarios[place]) for place in chosen)
    _agree(sample, where, f"{len(places):,} scenario{'s take' if len(places) > 1 else ' takes'}", _LONG_S, cores=cores, yes=yes)


def agree_to_plan(lines: Sequence[Sequence[Scenario]], where: str, *, cores: int, yes: bool) -> None:
    """:func:`agree_to_one` for a plan: of the configurations of each line, in which workers alone differ, as many as a search looks at."""
    weighed = ((min(1.0, _SIMULATED_A_LINE / len(line)), scenario) for line in lines for scenario in line)
    count = sum(map(len, lines))
    what = f"the search of {count:,} configuration{'s' if count > 1 else ''} takes"
    _agree(weighed, where, what, _LONG_S, cores=cores, yes=yes)


def agree_to_measure(took_s: float, where: str, *, yes: bool) -> None:
    """:func:`agree_to_one` for real runs that are guessed to take so many seconds."""
    if not yes and took_s > _LONG_MEASURING_S:
        _ask(where, f"its runs take about {told_s(took_s)} on this machine", "take fewer settings or repeats", _LONG_MEASURING_S)


def _agree(weighed: Iterable[tuple[float, Scenario]], where: str, what: str, limit_s: float, *, cores: int, yes: bool) -> None:
    """Ask, where scenarios, each as often as its weight says, take longer together than the limit on so many cores."""
    from simulator.effort import effort_s, timed_effort_s
    from simulator.resolve import resolve

    if yes:
        return
    total_s, longest_s, step_s, longest, slowest = 0.0, 0.0, 0.0, None, None
    for weight, given in weighed:
        scenario = resolve(given).scenario
        its_s = effort_s(scenario)
        total_s += weight * its_s
        if its_s > longest_s:
            longest_s, longest = its_s, scenario
        if (its_step_s := scenario.full_step_s) > step_s:
            step_s, slowest = its_step_s, scenario
    if longest is None or slowest is None:
        return
    took_s = max(total_s / cores, longest_s)
    if took_s > limit_s / _SURE:
        took_s *= timed_effort_s(longest) / longest_s
    if took_s > limit_s:
        _ask(where, f"{what} about {told_s(took_s)} to simulate here", "take fewer run.replications or run.steps", limit_s)
    if step_s > _LONG_STEP_S:
        _ask(where, _about_step(slowest, step_s), _instead(slowest, step_s), _LONG_STEP_S)


def _about_step(scenario: Scenario, step_s: float) -> str:
    """How long a step takes, and what of it is out of all proportion."""
    run, known = scenario.run, scenario.workload.calibrated
    steps = run.total_steps(scenario.replicas) / scenario.replicas
    text = f"a step takes about {told_s(step_s)} of training, so {_length(scenario)} take {told_s(step_s * steps)}"
    if known is not None and scenario.batch > known.batch[1]:
        text += f"; a batch of {scenario.batch:,} is {scenario.batch / known.batch[1]:,.0f} times the largest measured ({known.batch[1]:g})"
    return text


def _instead(scenario: Scenario, step_s: float) -> str:
    """What to give in place of what makes a step so long: that without which it would be shortest."""
    from simulator.text import format_rate, format_seconds

    known, load, cluster = scenario.workload.calibrated, scenario.workload, scenario.cluster
    name = scenario.strategy.link or "inter_node"
    link = cluster.intra_node if name == "intra_node" else cluster.inter_node

    def joined(**figures: float) -> Scenario:
        return scenario.model_copy(update={"cluster": cluster.model_copy(update={name: link.model_copy(update=figures)})})

    without = {
        f"give a lower cluster.{name}.latency than {format_seconds(link.latency_s)}": joined(latency_s=0.0),
        f"give a higher cluster.{name}.bandwidth than {format_rate(link.bandwidth_bytes_per_s)}": joined(bandwidth_bytes_per_s=math.inf),
    }
    most = 1.0 if known is None else known.batch[1]
    if scenario.batch > most:
        few = load.model_copy(update={"batch_per_replica": max(1, int(most)), "global_batch": None})
        without["give a smaller batch"] = scenario.model_copy(update={"workload": few})
    left_s = {text: other.full_step_s for text, other in without.items()}
    best = min(left_s, key=left_s.__getitem__)
    return best if left_s[best] < step_s / 2 else "give shorter times in the workload"


def _length(scenario: Scenario) -> str:
    run = scenario.run
    return f"{run.steps:,} steps" if run.job_steps is None else f"a job of {run.job_steps:,} steps"


def told_s(seconds: float) -> str:
    """Seconds in minutes or hours, where there are as many, for people."""
    if seconds < 60:
        return f"{seconds:,.0f} s"
    return (
        f"{seconds / 60:,.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:,.3g} h" if seconds < 3.6e6 else f"{seconds / 3600:,.0f} h"
    )


def _ask(where: str, what: str, instead: str, limit_s: float) -> None:
    from simulator.errors import InputError

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(f"{where}: {what}; more than {told_s(limit_s)} needs --yes; or {instead}")
    if not typer.confirm(f"paceline: {where}: {what}. Go on?", err=True):
        raise typer.Exit(InputError.exit_code)
