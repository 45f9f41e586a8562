"""Fits what a job costs besides its steps: start-up, tracing, first evaluation, checkpoints, ends of iterators.

Each value has an interval over the processes that were measured. ``calibrate/probes/overheads.py`` and ``step.py`` write the
records; :mod:`calibrate.fit.step` puts the result into the workload (:mod:`simulator.spec.job`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from calibrate.fit.intervals import digits
from calibrate.fit.step_times import StepTable
from calibrate.measurements import Measurements
from calibrate.records import CheckpointTime, EvaluationTime, IteratorEnd, StartUpTime, Unmeasured, WarmUp
from simulator.job.iterators import longest_wait_s
from simulator.spec.job import Duration, IteratorEnds, Overheads


def fit_overheads(runs: Sequence[Measurements], table: StepTable) -> tuple[Overheads | None, dict[str, str]]:
    """What the runs measured beside steps, and what the provenance says of it.

    Parameters
    ----------
    runs
        Measurements of one step, each of a process of its own.
    table
        Their plain steps, in the same order of runs.

    Returns
    -------
    Overheads or None
        None where the files have none of it.
    dict of str to str
        ``overheads``: how often it was measured; ``unmeasured``: what could not be, and why.
    """
    startups = [record.seconds for run in runs for record in run.of(StartUpTime)]
    tracings = _tracings(runs, table) if startups else []
    evaluations = [seconds for run in runs if (seconds := _first_evaluation(run)) is not None]
    written = [record for run in runs for record in run.of(CheckpointTime)]
    facts: dict[str, str] = {}
    if startups:
        checkpoints = f", {len(written)} checkpoints" if written else ""
        facts["overheads"] = f"{len(startups)} process{'es' if len(startups) > 1 else ''}{checkpoints}"
        if not all(record.of_process for run in runs for record in run.of(StartUpTime)):
            facts["overheads"] += "; start-up without that of the interpreter, which this system does not tell"
        if written and not all(record.cold for record in written):
            facts["overheads"] += "; checkpoints were read from the page cache"
    if failures := {record.what: record.why for run in runs for record in run.of(Unmeasured)}:
        facts["unmeasured"] = "; ".join(f"{what} could not be measured ({why})" for what, why in failures.items())
    fields: dict[str, Any] = {
        "startup": duration_of(startups),
        "tracing": duration_of(tracings),
        "evaluation_tracing": duration_of(evaluations),
        "iterators": iterator_ends([record for run in runs for record in run.of(IteratorEnd)]),
        **_of_checkpoints(runs, written),
    }
    found = {key: value for key, value in fields.items() if value is not None}
    return (Overheads(**found) if found else None), facts


def duration_of(values: Sequence[float]) -> Duration | None:
    """Mean of a time over runs, and the 90% prediction interval for one run more.

    The interval is Student's, of logarithms: ``mean ± t s sqrt(1 + 1/n)`` (as of a lognormal
    law, since a time is above zero); of times of which one is zero, it is taken without
    logarithms and cut off at zero. One value is taken as it is: it says nothing of a spread.

    >>> duration_of([2.0, 2.0, 2.0]).high_s
    2.0
    """
    if not values:
        return None
    times = np.asarray(values, dtype=float)
    mean = float(times.mean())
    low = high = mean
    if times.size > 1:
        t = float(stats.t.ppf(0.95, times.size - 1)) * math.sqrt(1.0 + 1.0 / times.size)
        if times.min() > 0:
            logs = np.log(times)
            half = t * float(logs.std(ddof=1))
            low, high = math.exp(float(logs.mean()) - half), math.exp(float(logs.mean()) + half)
        else:
            half = t * float(times.std(ddof=1))
            low, high = max(0.0, mean - half), mean + half
    value = digits(mean)
    return Duration(value_s=value, low_s=min(value, digits(low)), high_s=max(value, digits(high)))


def iterator_ends(records: Sequence[IteratorEnd]) -> IteratorEnds | None:
    """How many ends of iterators waited for the next turn of the thread that tunes them, of those that came well before it.

    One that waited took as long as was left until that turn, half of which nothing else takes; None without any that can be judged.
    """
    judged = [(record.wait_s, left_s) for record in records if (left_s := longest_wait_s(record.age_s)) >= _JUDGED_S]
    if not judged:
        return None
    return IteratorEnds(ended=len(judged), waited=sum(1 for wait_s, left_s in judged if wait_s > left_s / 2))


_JUDGED_S = 0.02
"""Time to the next turn from which on a wait for it can be distinguished from the work of ending an iterator, a millisecond or so."""


def _tracings(runs: Sequence[Measurements], table: StepTable) -> list[float]:
    """By which the first step of each run takes longer than the plain steps of the same batch size and run."""
    found = []
    for number, run in enumerate(runs):
        first = next(iter(run.of(WarmUp)), None)
        rounds = [] if first is None else [its for its, of in zip(table.rounds[first.batch], table.runs, strict=True) if of == number]
        if first is not None and rounds:
            found.append(max(0.0, first.seconds - float(np.concatenate(rounds).mean())))
    return found


def _first_evaluation(run: Measurements) -> float | None:
    """By which the first evaluation step of a run takes longer than the others."""
    times = [record.seconds for record in sorted(run.of(EvaluationTime), key=lambda record: record.index)]
    return max(0.0, times[0] - float(np.mean(times[1:]))) if len(times) > 1 else None


def _of_checkpoints(runs: Sequence[Measurements], written: Sequence[CheckpointTime]) -> dict[str, Any]:
    if not written:
        return {}
    size = float(np.mean([record.size_bytes for record in written]))
    writing = float(np.mean([record.write_s + record.sync_s for record in written]))
    reading = float(np.mean([record.restore_s for record in written]))
    # copies of one process are alike; processes differ
    snapshots = [float(np.mean([one.snapshot_s for one in its])) for run in runs if (its := run.of(CheckpointTime))]
    return {
        "checkpoint_bytes": digits(size),
        "write_bytes_per_s": digits(size / writing) if writing > 0 else None,
        "restore_bytes_per_s": digits(size / reading),
        "snapshot": duration_of(snapshots),
    }
