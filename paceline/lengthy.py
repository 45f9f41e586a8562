"""Asks before long work begins: simulations, sweeps and searches, real measuring runs, and trainings whose single step takes hours.

:mod:`simulator.effort` estimates; here are the limits and the words. Whoever starts the work is asked, or only informed: :data:`Agree`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from simulator.base.text import format_bytes, format_count, format_rate, format_rough_seconds, written
from simulator.effort import check_memory, effort_s, memory_bytes, timed_effort_s
from simulator.engine.choosing import likely_engine
from simulator.resolve.resolve import resolve
from simulator.scenario import Resolved, Scenario

_LONG_ALONE_S, _LONG_S = 600.0, 4 * 3600.0
"""What one scenario, and what many may take before it is asked about."""
_LONG_MEASURING_S = 3600.0
"""What real runs may take before it is asked about."""
_TRUSTED_MARGIN = 5.0
"""An estimate below the limit by this factor is trusted; a larger one is checked by timing a short run (:func:`timed_effort_s`)."""
_LONG_STEP_S = 3600.0
"""No step of a real training takes as long: it is likely a mistake, such as a batch of millions where 64 samples were measured."""
_MANY = 100_000
"""Replicas from which on a run takes a minute, and memory that is worth a word."""
_SAMPLE = 1000
_GOLDEN = 0.6180339887498949
_SIMULATED_PER_LINE = 16
"""About the most configurations of one line that a plan simulates: it searches by halving ranges."""


@dataclass(frozen=True)
class Lengthy:
    """Work that takes long.

    Attributes
    ----------
    what
        What takes how long: "its 19 replications of 1,000 steps take about 3 h to simulate here".
    instead
        What would take less: "take fewer run.replications or run.steps".
    limit_s
        Seconds that such work may take before it is asked about; None where it is only worth a word.
    """

    what: str
    instead: str = ""
    limit_s: float | None = None


Agree: TypeAlias = Callable[[Lengthy], None]
"""Called before lengthy work is begun; raises where it should not be."""


def agree_to_one(scenario: Scenario, agree: Agree | None) -> None:
    """Ask whether to simulate a scenario, where that takes long; tell what one of very many replicas takes.

    Raises
    ------
    InputError
        There is not the memory for very many replicas.
    """
    if agree is None:
        return
    resolved = resolve(scenario)
    what = f"its {scenario.run.replications:,} replications of {_length(scenario)} take"
    _ask([(1.0, resolved)], what, _LONG_ALONE_S, agree, cores=1)
    if scenario.replicas < _MANY:
        return
    engine = likely_engine(resolved)
    check_memory(resolved, engine)
    took, memory = format_rough_seconds(effort_s(resolved, engine)), format_bytes(memory_bytes(resolved, engine))
    agree(Lengthy(f"{scenario.replicas:,} replicas take about {took} and {memory} of memory (engine {engine})"))


def agree_to_audit(scenario: Scenario, agree: Agree | None) -> None:
    """Ask whether to audit a scenario, where that takes long: the textbook engine runs it."""
    if agree is not None:
        audited = scenario.replaced({"run.engine": "simpy", "run.replications": 1})
        _ask([(1.0, resolve(audited))], f"an audit of {_length(scenario)} takes", _LONG_ALONE_S, agree, cores=1)


def agree_to_sweep(scenarios: Sequence[Scenario], places: Sequence[int], agree: Agree | None, *, jobs: int) -> None:
    """Ask whether to simulate those scenarios at some places, where that takes long; of thousands, a part stands for all."""
    if agree is None:
        return
    count = min(len(places), _SAMPLE)
    chosen = places if count == len(places) else [places[int(number * _GOLDEN % 1.0 * len(places))] for number in range(count)]
    sample = [(len(places) / count, resolve(scenarios[place])) for place in chosen]
    _ask(sample, f"{len(places):,} scenario{'s take' if len(places) > 1 else ' takes'}", _LONG_S, agree, cores=_cores(jobs))


def agree_to_plan(lines: Sequence[Sequence[Resolved]], agree: Agree | None, *, jobs: int) -> None:
    """Ask whether to search a plan's configurations, where that takes long.

    Parameters
    ----------
    lines
        Configurations of which one is searched, line by line, such as those that differ in nothing but their workers; of each, as many
        count as a search looks at.
    agree
        Asks; None agrees to everything.
    jobs
        Processes; 0 takes all cores.
    """
    if agree is None:
        return
    weighed = [(min(1.0, _SIMULATED_PER_LINE / len(line)), scenario) for line in lines for scenario in line]
    count = len(weighed)
    what = f"the search of {count:,} configuration{'s' if count > 1 else ''} takes"
    _ask(weighed, what, _LONG_S, agree, cores=_cores(jobs))


def agree_to_measure(what: str, took_s: float, agree: Agree | None) -> None:
    """Ask whether to begin real runs, where these take long, and say what they are.

    Parameters
    ----------
    what
        Is run, and where its measurements go.
    took_s
        Seconds that it is estimated to take; 0 where all is measured already.
    agree
        Asks; None agrees to everything.
    """
    if agree is None:
        return
    about = f"about {format_rough_seconds(took_s)}" if took_s else ""
    if took_s > _LONG_MEASURING_S:
        agree(Lengthy(f"its runs take {about} on this machine", "take fewer settings or repeats", _LONG_MEASURING_S))
    agree(Lengthy(f"{what}; {f'{about} to measure' if took_s else 'all measured before'}"))


def _cores(jobs: int) -> int:
    """Cores that some jobs keep busy; those of a cluster are not known, and taken to be as many as here."""
    here = os.cpu_count() or 1
    return min(jobs, here) if jobs else here


def _ask(weighed: Sequence[tuple[float, Resolved]], what: str, limit_s: float, agree: Agree, *, cores: int) -> None:
    """Ask, where scenarios, each as often as its weight says, take longer together than the limit on that many cores."""
    efforts_s = [effort_s(scenario) for _, scenario in weighed]
    if not any(efforts_s):
        return
    longest_s = max(efforts_s)
    took_s = max(sum(weight * each_s for (weight, _), each_s in zip(weighed, efforts_s, strict=True)) / cores, longest_s)
    if took_s > limit_s / _TRUSTED_MARGIN:
        took_s *= timed_effort_s(weighed[efforts_s.index(longest_s)][1]) / longest_s
    if took_s > limit_s:
        agree(Lengthy(f"{what} about {format_rough_seconds(took_s)} to simulate here", "take fewer run.replications or run.steps", limit_s))
    slowest = max((scenario for _, scenario in weighed), key=lambda scenario: scenario.full_step_s)
    if slowest.full_step_s > _LONG_STEP_S:
        agree(Lengthy(_about_step(slowest, slowest.full_step_s), _instead(slowest, slowest.full_step_s), _LONG_STEP_S))


def _about_step(scenario: Scenario, step_s: float) -> str:
    """Say how long a step takes, and what of it is out of all proportion."""
    run, known = scenario.run, scenario.workload.calibrated
    steps = run.total_steps(scenario.replicas) / scenario.replicas
    all_s = format_rough_seconds(step_s * steps)
    text = f"a step takes about {format_rough_seconds(step_s)} of training, so {_length(scenario)} take {all_s}"
    if known is not None and scenario.batch > known.batch[1]:
        largest = known.batch[1]
        times = format_count(scenario.batch / largest)
        text += f"; a batch of {scenario.batch:,} is {times} times the largest measured ({written(largest, 'any')})"
    return text


def _instead(scenario: Scenario, step_s: float) -> str:
    """Say what to give in place of what makes a step so long: that without which it would be shortest."""
    known, name = scenario.workload.calibrated, f"cluster.{scenario.strategy.link or 'inter_node'}"
    latency, rate = f"{name}.latency", f"{name}.bandwidth"
    latency_s, bytes_per_s = scenario.value_at(f"{latency}_s"), scenario.value_at(f"{rate}_bytes_per_s")
    without = {
        f"give a lower {latency} than {written(latency_s, 'setting_s')}": scenario.replaced({f"{latency}_s": 0.0}),
        f"give a higher {rate} than {format_rate(bytes_per_s)}": scenario.replaced({f"{rate}_bytes_per_s": math.inf}),
    }
    most = 1.0 if known is None else known.batch[1]
    if scenario.batch > most:
        few = {"workload.batch_per_replica": max(1, int(most)), "workload.global_batch": None}
        without["give a smaller batch"] = scenario.replaced(few)
    left_s = {text: other.full_step_s for text, other in without.items()}
    best = min(left_s, key=left_s.__getitem__)
    return best if left_s[best] < step_s / 2 else "give shorter times in the workload"


def _length(scenario: Scenario) -> str:
    run = scenario.run
    return f"{run.steps:,} steps" if run.job_steps is None else f"a job of {run.job_steps:,} steps"
