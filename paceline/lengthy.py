"""Confirmation before long work: simulations, sweeps, searches, real runs, and trainings whose single step takes hours.

:mod:`simulator.effort` estimates durations; this module has the limits and the messages. The caller is asked by :data:`Agree`.
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
"""Seconds that one scenario, and that many, may take without a question."""
_LONG_MEASURING_S = 3600.0
"""Seconds that real runs may take without a question."""
_TRUSTED_MARGIN = 5.0
"""An estimate this far below the limit is trusted; a larger one is checked by timing a short run (:func:`timed_effort_s`)."""
_LONG_STEP_S = 3600.0
"""A longer step is likely a mistake, such as a batch of millions where 64 samples were measured."""
_MANY = 100_000
"""From this many replicas on, a run takes a minute, and much memory."""
_SAMPLE = 1000
_GOLDEN = 0.6180339887498949
_SIMULATED_PER_LINE = 16
"""About the most configurations of one line that a plan simulates, since it bisects ranges."""


@dataclass(frozen=True)
class Lengthy:
    """Lengthy work.

    Attributes
    ----------
    what
        The work and its duration: "its 19 replications of 1,000 steps take about 3 h to simulate here".
    instead
        How to shorten it: "take fewer run.replications or run.steps".
    limit_s
        Seconds that such work may take without a question; None if it is only reported.
    """

    what: str
    instead: str = ""
    limit_s: float | None = None


Agree: TypeAlias = Callable[[Lengthy], None]
"""Called before lengthy work; raises to prevent it."""


def agree_to_one(scenario: Scenario, agree: Agree | None) -> None:
    """Ask whether to simulate a scenario that takes long; report the needs of very many replicas.

    Raises
    ------
    InputError
        Memory does not suffice for the replicas.
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
    """Ask whether to audit a scenario, if the textbook engine takes long for it."""
    if agree is not None:
        audited = scenario.replaced({"run.engine": "simpy", "run.replications": 1})
        _ask([(1.0, resolve(audited))], f"an audit of {_length(scenario)} takes", _LONG_ALONE_S, agree, cores=1)


def agree_to_sweep(scenarios: Sequence[Scenario], places: Sequence[int], agree: Agree | None, *, jobs: int) -> None:
    """Ask whether to simulate the scenarios at some places, if that takes long; of thousands, a sample is estimated."""
    if agree is None:
        return
    count = min(len(places), _SAMPLE)
    chosen = places if count == len(places) else [places[int(number * _GOLDEN % 1.0 * len(places))] for number in range(count)]
    sample = [(len(places) / count, resolve(scenarios[place])) for place in chosen]
    _ask(sample, f"{len(places):,} scenario{'s take' if len(places) > 1 else ' takes'}", _LONG_S, agree, cores=_cores(jobs))


def agree_to_plan(lines: Sequence[Sequence[Resolved]], agree: Agree | None, *, jobs: int) -> None:
    """Ask whether to search a plan's configurations, if that takes long.

    Parameters
    ----------
    lines
        Lines of configurations to search, such as those that differ only in workers; each counts for the configurations that a search
        simulates.
    agree
        Asks; None agrees to everything.
    jobs
        Processes; 0 uses all cores.
    """
    if agree is None:
        return
    weighed = [(min(1.0, _SIMULATED_PER_LINE / len(line)), scenario) for line in lines for scenario in line]
    count = len(weighed)
    what = f"the search of {count:,} configuration{'s' if count > 1 else ''} takes"
    _ask(weighed, what, _LONG_S, agree, cores=_cores(jobs))


def agree_to_measure(what: str, took_s: float, agree: Agree | None) -> None:
    """Ask whether to begin real runs, if they take long, and describe them.

    Parameters
    ----------
    what
        The runs, and the folder of their measurements.
    took_s
        Estimated seconds; 0 if everything is measured already.
    agree
        Asks; None agrees to everything.
    """
    if agree is None:
        return
    about = f"about {format_rough_seconds(took_s)}" if took_s else ""
    if took_s > _LONG_MEASURING_S:
        agree(Lengthy(f"its runs take {about} on this machine", "take fewer settings or repeats", _LONG_MEASURING_S))
    agree(Lengthy(f"{what}; {f'{about} to measure' if took_s else 'all measured already'}"))


def _cores(jobs: int) -> int:
    """Return the cores that some jobs keep busy; a cluster is assumed to have as many as this machine."""
    here = os.cpu_count() or 1
    return min(jobs, here) if jobs else here


def _ask(weighed: Sequence[tuple[float, Resolved]], what: str, limit_s: float, agree: Agree, *, cores: int) -> None:
    """Ask if scenarios, counted by their weights, together take longer than the limit on that many cores."""
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
    """Return a sentence on the time of a step and on any value out of proportion."""
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
    """Return what to change to shorten a step most."""
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
