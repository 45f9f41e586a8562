"""Library function that explains why a training does not scale.

Parameters, defaults and docstring are also the options and the help of ``paceline why``. The work is done in
:mod:`paceline.diagnosing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from paceline.arguments import Jobs, MustBe, Progress, Python, Quantity, Settings, Source, Text, Typed, checked

if TYPE_CHECKING:
    from paceline.diagnosing import Diagnosis, Seen
    from simulator.scenario import Scenario

__all__ = ["positive", "why"]

ByWorkers = Annotated[
    Mapping[int, Quantity], MustBe("times by numbers of workers, such as {1: '60 ms', 8: '170 ms'}"), Typed(reads="by workers")
]
"""A value for each number of workers."""

RunFiles = Annotated[
    Sequence[Any],
    MustBe("a list of files, or of numbers of workers with a file, such as ['one.ndjson', (8, 'eight.csv')]"),
    Typed(reads="run files"),
]
"""Files in which runs were recorded, each alone or with its number of workers before it."""


@checked
def why(
    scenario: Source,
    settings: Settings = (),
    *,
    step: Annotated[ByWorkers, Typed("--step", metavar="N=TIME", reads="by workers", example="--step 1=60ms --step 8=170ms")] | None = None,
    throughput: Annotated[ByWorkers, Typed("--throughput", metavar="N=RATE", reads="by workers", example="--throughput 8=1500")]
    | None = None,
    run: Annotated[RunFiles, Typed("--run", metavar="[N=]FILE", reads="run files")] = (),
    pattern: Text | None = None,
    python: Python = None,
    jobs: Jobs = 0,
    progress: Progress = None,
) -> Diagnosis:
    """Explain why a training on several workers is no faster: causes, what each costs, what would help, what to measure next.

    Parameters
    ----------
    scenario, settings
        As for :func:`load`.

        What is told of the training: its model, cluster and strategy. How many workers it has does not matter.
    step
        Time of a step by the number of workers: of one device alone, and of several. Without a scenario each worker has one device.

        Such as ``{1: "60 ms", 8: "170 ms"}``.
    throughput
        Samples/s of all workers together by their number, in place of times.
    run
        Files in which steps were recorded: of Paceline's Keras callback, CSV, TensorBoard's event files, logs, XPlane profiles; or a
        table of whole runs, with the columns workers and throughput. The number of workers stands before a file that does not tell it.

        Such as ``["one.ndjson", (8, "eight.csv")]``; several files with the same number are workers of one training.
    pattern
        Regular expression with groups named step, time_s, time_ms or rate, by which a log tells steps.

        None: one of those that are known.
    python
        A Python that has TensorFlow, which reads profiles.

        None takes the one that runs.
    jobs
        As for :func:`sweep`.
    progress
        Called with scenarios done and asked for.

    Returns
    -------
    Diagnosis
        ``causes`` with the time that each costs, ``changes`` with their gains, ``measure``, and all in ``sentences``.

    Raises
    ------
    InputError
        Nothing was seen of several workers, a value or a file cannot be read, or a run has no steady part.
    ScenarioError
        The scenario breaks a rule, or cannot have as many workers.

    Warns
    -----
    ReadingWarning
        A file's figures look wrong, such as times in ms that are read as seconds.

    Examples
    --------
    >>> found = why("ring", {"run.steps": 20}, step={1: "9 ms", 8: "12 ms"}, jobs=1)
    >>> found.as_told, found.causes[0].known
    (True, 'told')
    """
    from paceline.api.predicting import load
    from paceline.diagnosing import diagnose
    from paceline.sweeping import Runner, Simulations

    told = load(scenario, settings)
    seen, remarks = _seen(told, step or {}, throughput or {}, run, pattern, python)
    with Runner(jobs=jobs) as runner:
        return diagnose(told, seen, Simulations(runner, progress=progress), remarks)


def _seen(
    told: Scenario, step: Mapping[int, Any], throughput: Mapping[int, Any], run: Sequence[Any], pattern: str | None, python: str | None
) -> tuple[list[Seen], list[str]]:
    """All that was seen, in order, and what is to be said of it."""
    from calibrate.recorded.reading import read_recorded
    from calibrate.validation.points import is_points, read_points
    from paceline.diagnosing import seen_in_points, seen_in_runs, seen_in_steps, seen_in_throughputs

    steps_s = {workers: positive("step", workers, value, time=True) for workers, value in step.items()}
    rates = {workers: positive("throughput", workers, value, time=False) for workers, value in throughput.items()}
    found = [*seen_in_steps(steps_s), *seen_in_throughputs(rates, told)]
    recorded = []
    for each in run:
        workers, file = each if isinstance(each, tuple) else (None, each)
        path = Path(file)
        if is_points(path):
            found += seen_in_points(read_points(path), told, path.name)
        else:
            samples = None if workers is None else workers * told.batch
            recorded += [(workers, one) for one in read_recorded([path], pattern=pattern, samples=samples, python=python)]
    more, remarks = seen_in_runs(recorded, told)
    return [*found, *more], remarks


def positive(name: str, workers: Any, value: Any, *, time: bool) -> float:
    """What was typed for a number of workers: a time in seconds, or a rate in samples/s.

    Raises
    ------
    InputError
        It is none above 0, or the number of workers is none.
    """
    from paceline.scenario_text import quantity_of
    from simulator.base.errors import InputError, UnitError
    from simulator.base.units import number_of

    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise InputError(f"`{name}`: {workers!r} must be a whole number of workers from 1 on, such as 8")
    if time:
        return quantity_of(value, "time", f"{name} {workers}")
    try:
        rate = number_of(value, repr(value[:40])) if isinstance(value, str) else float(value)
    except UnitError as error:
        raise InputError(f"`{name} {workers}`: {error}") from None
    if not 0.0 < rate < 1e15:
        raise InputError(f"`{name} {workers}`: {value!r} must be above 0, such as 1500 (samples/s of all workers together)")
    return rate
