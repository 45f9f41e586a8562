"""Library functions that explain why a training does not scale, and compare a running training with its prediction.

Parameters, defaults and docstrings are also the options and the help of ``paceline why`` and ``paceline watch``.
:mod:`paceline.diagnosing` and :mod:`paceline.watching` do the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from paceline.arguments import (
    NOT_TYPED,
    Amount,
    Asking,
    Command,
    File,
    Force,
    Jobs,
    MustBe,
    Progress,
    Python,
    Quantity,
    Settings,
    Source,
    Text,
    Typed,
    checked,
    file_of,
    path_of,
)

if TYPE_CHECKING:
    from calibrate.observations import Observed
    from calibrate.observations import Quantity as Said
    from paceline.diagnosing import Diagnosis, Seen
    from paceline.watching import Watched
    from simulator.results.results import Result
    from simulator.scenario import Scenario

ByWorkers = Annotated[
    Mapping[Any, Quantity], MustBe("values by numbers of workers, such as {1: '60 ms', 8: '170 ms'}"), Typed(reads="by workers")
]
"""A value for each number of workers."""

Steps = Annotated[
    Mapping[Any, Quantity | Path],
    MustBe("times or files by numbers of workers, such as {1: '60 ms', 8: Path('trace.json')}"),
    Typed(reads="by workers", metavar="N=TIME|FILE"),
]
"""A time, or a file with recorded steps, for each number of workers."""

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
    step: Steps | None = None,
    throughput: Annotated[ByWorkers, Typed(metavar="N=RATE")] | None = None,
    steps_per_s: Annotated[ByWorkers, Typed(metavar="N=RATE")] | None = None,
    epoch: Annotated[ByWorkers, Typed(metavar="N=TIME")] | None = None,
    dataset_size: Amount | None = None,
    run: Annotated[RunFiles, Typed(metavar="[N=]FILE")] = (),
    pattern: Text | None = None,
    python: Python = None,
    jobs: Jobs = 0,
    progress: Progress = None,
) -> Diagnosis:
    """Explain why a training on several workers is no faster: causes, their costs, remedies, and what to measure next.

    Parameters
    ----------
    scenario, settings
        As for :func:`load`.

        Describes the training: model, cluster and strategy. Its number of workers has no effect.
    step
        Time of a step on N workers, such as 8=170ms, or a trace: 8=trace.json.gz; 1 is one device. Workers are counted as in the
        scenario; ``16 devices=TIME`` counts devices. Without a scenario each worker has one device. A trace may tell N itself, and other
        files as of --run are read too.

        Such as ``{1: "60 ms", 8: "170 ms"}``, or ``{"1 device": "60 ms", "16 devices": "170 ms"}``; ``"1 worker"`` has all its devices
        and servers. With a global batch a single device takes all of it.
    throughput
        Total samples/s of N workers, instead of times.
    steps_per_s
        Steps/s of N workers, instead of times.
    epoch
        Time of an epoch on N workers, instead of times of steps.
    dataset_size
        Samples of that epoch. Default: those of the scenario, or as many as make the smallest run as fast as predicted.
    run
        File with recorded steps: of Paceline's Keras callback, CSV, event files of TensorBoard, logs, XPlane profiles, traces of
        PyTorch; or a table of whole runs, with the columns workers and throughput. N is the number of workers, if the file does not
        have it.

        Such as ``["one.ndjson", (8, "eight.csv")]``; several files with the same number are workers of one training.
    pattern
        Regular expression that finds steps in a log. Groups: step, time_s, time_ms or rate.

        None: a known one.
    python
        A Python with TensorFlow, which reads profiles.

        None: the running one.
    jobs
        As for :func:`sweep`.
    progress
        Called with finished and requested scenarios.

    Returns
    -------
    Diagnosis
        ``causes`` with the time that each costs, ``changes`` with their gains, ``measure``, and ``sentences`` on all of them.

    Raises
    ------
    InputError
        No run has several workers, a value or a file cannot be read, or a run has no steady part.
    ScenarioError
        The scenario breaks a rule, or cannot have this number of workers.

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
    with Runner(jobs=jobs) as runner:
        simulate = Simulations(runner, progress=progress)
        files = {count: value for count, value in (step or {}).items() if isinstance(value, Path)}
        times = {count: value for count, value in (step or {}).items() if count not in files}
        run = [*run, *(file if count == str(file) else (count, file) for count, file in files.items())]
        seen, remarks = _typed(told, times, throughput or {}, steps_per_s or {})
        for more, said in (_epochs(told, epoch or {}, dataset_size, simulate), _recorded(told, run, pattern, python)):
            seen, remarks = [*seen, *more], [*remarks, *said]
        return diagnose(told, seen, simulate, remarks)


def _typed(
    told: Scenario, step: Mapping[Any, Any], throughput: Mapping[Any, Any], steps_per_s: Mapping[Any, Any]
) -> tuple[list[Seen], list[str]]:
    from paceline.diagnosing import seen_in_figures

    typed: Mapping[Said, tuple[str, Mapping[Any, Any]]] = {
        "step_time_s": ("step", step), "throughput": ("throughput", throughput), "steps_per_s": ("steps_per_s", steps_per_s),
    }  # fmt: skip
    seen = []
    for quantity, (option, values) in typed.items():
        seen += seen_in_figures(quantity, {count: positive(option, count, value) for count, value in values.items()}, told)
    each = told.ranks // told.workers
    counts = [own for own in seen if not own.alone]
    remarks = []
    if each > 1 and counts:
        remarks = [f"counts are of workers of {each} devices each, such as {counts[-1].workers} for {counts[-1].workers * each} devices"]
    return seen, remarks


def _epochs(told: Scenario, epoch: Mapping[Any, Any], dataset_size: float | None, simulate: Any) -> tuple[list[Seen], list[str]]:
    from calibrate.observations import alone_step_of
    from paceline.diagnosing import seen_in_epochs
    from paceline.diagnosing.fitting import step_of

    def predicted_s(observed: Observed) -> float:
        (result,) = simulate([told if observed.alone else observed.scenario_of(told)])
        return alone_step_of(result) if observed.alone else step_of(result)

    return seen_in_epochs({count: positive("epoch", count, value) for count, value in epoch.items()}, told, dataset_size, predicted_s)


def _recorded(told: Scenario, run: Sequence[Any], pattern: str | None, python: str | None) -> tuple[list[Seen], list[str]]:
    from calibrate.observations import observed_at, samples_of_step
    from calibrate.recorded.reading import read_recorded
    from calibrate.validation.points import is_points, read_points
    from paceline.diagnosing import seen_in_points, seen_in_runs

    seen, recorded = [], []
    for each in run:
        count, file = each if isinstance(each, tuple) else (None, each)
        path = Path(file)
        if is_points(path):
            seen += seen_in_points(read_points(path), told, path.name)
        else:
            samples = None if count is None else samples_of_step(observed_at(count, told, "--run"), told)
            recorded += [(count, record) for record in read_recorded([path], pattern=pattern, samples=samples, python=python)]
    more, remarks = seen_in_runs(recorded, told)
    return [*seen, *more], remarks


def positive(name: str, count: Any, value: Any) -> float:
    """Return the value for a count: a time in seconds, or a rate.

    Raises
    ------
    InputError
        The value is not a positive number.
    """
    from paceline.scenario_text import quantity_of
    from simulator.base.errors import InputError, UnitError
    from simulator.base.units import number_of

    given = {count: value}
    argument = f"{name}={given!r}"
    if name in ("step", "epoch"):
        return quantity_of(value, "time", argument)
    try:
        rate = number_of(value, repr(value[:40])) if isinstance(value, str) else float(value)
    except UnitError as error:
        raise InputError(f"`{argument}`: {error}") from None
    if not 0.0 < rate < 1e15:
        raise InputError(f"`{argument}` must be above 0, such as 1500 (samples/s of all workers together)")
    return rate


Telling = Annotated[Callable[[Any], None] | None, MustBe("a function"), NOT_TYPED]
"""Called with a :class:`~paceline.watching.Watched` after each look."""


@checked
def watch(
    scenario: Source,
    sources: Annotated[
        Sequence[str | Path], MustBe("a list of files in which steps are recorded"), Typed(place=True, metavar="STEPS...", reads="files")
    ],
    settings: Settings = (),
    *,
    once: bool = False,
    until_steps: Annotated[int | None, MustBe("a whole number from 1 on", least=1), Typed(metavar="N")] = None,
    every: Annotated[
        float, MustBe("a number of seconds from 0.1 on", holds=lambda seconds: 0.1 <= seconds < float("inf")), Typed(metavar="SECONDS")
    ] = 2.0,
    pattern: Text | None = None,
    coverage: Annotated[
        float, MustBe("a share from 0.9 to 0.9999", holds=lambda share: 0.9 <= share <= 0.9999), Typed(metavar="SHARE")
    ] = 0.99,
    journal: Annotated[File | None, Typed(metavar="FILE.ndjson")] = None,
    out_scenario: Annotated[File | None, Typed(metavar="FILE.toml")] = None,
    python: Python = None,
    jobs: Jobs = 0,
    force: Force = False,
    agree: Asking = None,
    command: Command = "",
    telling: Telling = None,
    stopped: Annotated[Callable[[Any], bool] | None, MustBe("a function"), NOT_TYPED] = None,
) -> Watched:
    """Compare the steps of a running training with the prediction, and report when and why they deviate.

    Parameters
    ----------
    scenario, settings
        As for :func:`load`.

        Describes the training.
    sources
        Files with recorded steps, one for each recording worker: of Paceline's Keras callback, a table (CSV) of steps, a TensorBoard
        folder, a log, or profiles. Files may still grow.
    once
        Read the files once, and end.
    until_steps
        End when every worker has made N steps. Default: at the end of the training, if its file shows it.
    every
        Seconds between reads.
    pattern
        Regular expression that finds steps in lines of a log. Groups: ``step``, and ``time_s``, ``time_ms``, ``rate`` (steps/s) or
        ``throughput`` (samples/s).
    coverage
        Share of runs within their prediction that must not be reported as outside their interval.
    journal
        Keep reported events in this file, so that a second watch does not repeat them.
    out_scenario
        Fit the scenario to the steps when the watch ends, and write it here.

        As :func:`refit` does.
    python
        A Python with TensorFlow, for profiles. Default: the one that runs Paceline.
    jobs
        Processes that simulate possible causes; 0: one per core.
    force
        Replace the file at ``out_scenario``.
    agree
        As for :func:`simulate`.
    command
        Command that makes the scenario, for its provenance; empty: this call.
    telling
        Called with the state after each read.
    stopped
        Called with the KeyboardInterrupt of Ctrl-C; returns whether the watch ends in order. None: it does.

    Returns
    -------
    Watched
        The final state: ``left`` says whether the run left its interval, ``reasons`` why; ``table()`` has the figures.

    Raises
    ------
    InputError
        A source, an argument or a file cannot be used; the message names file, line and rule.
    ScenarioError
        The scenario breaks a rule.
    SimulationError
        The scenario cannot be simulated.
    CalibrationError
        No values of the scenario explain the steps.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> steps = Path(mkdtemp(), "steps.csv")
    >>> _ = steps.write_text("step_time_ms\\n" + "".join(f"{300 + row % 7}\\n" for row in range(60)))
    >>> seen = watch("ring", [steps], {"run.steps": 20, "run.replications": 3}, once=True)
    >>> seen.state, seen.left
    ('slower', True)
    """
    from calibrate.recorded.reading import file_and_run
    from paceline.api.predicting import simulate
    from paceline.watching import Watch
    from simulator.base.errors import InputError
    from simulator.base.files import EDITED, Output

    if not sources:
        raise InputError("`sources`: give at least one file with recorded steps, such as run.ndjson of paceline.keras_callback")
    given = [Path(source) for source in sources]
    if double := next((source for place, source in enumerate(given) if source in given[:place]), None):
        raise InputError(f"`sources`: {str(double)!r}: is given twice; keep one")
    missing = next((file for file, _ in map(file_and_run, given) if not file.exists()), None)
    if missing is not None:
        from simulator.base.text import no_such_file

        raise InputError(f"{missing}: {no_such_file(missing)}")
    if out_scenario is not None:
        read = [file for file in (file_of(scenario), *given) if file is not None]
        Output(Path(out_scenario), EDITED, force=force, argument="out_scenario", reads=read)
    result = simulate(scenario, settings, agree=agree)
    training = Watch(result, given, coverage=coverage, journal=path_of(journal), pattern=pattern, python=python, waits=not once, jobs=jobs)

    def updates() -> Iterator[Watched]:
        if once:
            yield training.look()
        else:
            yield from training.updates(every, until_steps)

    update = None
    try:
        for update in updates():
            if telling is not None:
                telling(update)
    except KeyboardInterrupt as error:
        if update is None or (stopped is not None and not stopped(error)):
            raise
    assert update is not None
    if out_scenario is not None:
        _write_refitted(scenario, settings, result, update, Path(out_scenario), force=force, command=command or "paceline.watch")
    return update


def _write_refitted(scenario: Any, settings: Any, result: Result, update: Watched, out: Path, *, force: bool, command: str) -> None:
    """Fit the scenario to the current steps, and write it.

    Raises
    ------
    InputError
        There are too few steps, or their unit is in doubt.
    CalibrationError
        No values explain the steps.
    """
    from calibrate.validation.against_points import PointsCase, refit_to_points
    from calibrate.validation.points import Setting
    from paceline.sweeping import sweep
    from simulator.base.errors import InputError
    from simulator.catalogue.loading import table_of

    if update.doubt:
        raise InputError(f"`out_scenario`: no fit, since the figures are ambiguous: {update.doubt}")
    if update.state == "unclear":
        raise InputError(f"`out_scenario`: {update.sentence}; continue watching")
    table, source, beside = table_of(scenario, settings)
    seen = Setting(workers=result.scenario.workers, throughput=(update.predicted.samples / update.mean_s,), line=1)
    case = PointsCase(table, source, beside, Path(update.verdicts[0].run.source), (seen,), "samples/s")

    def simulated(scenarios: Sequence[Scenario]) -> Sequence[Result]:
        swept = sweep(scenarios, jobs=1)
        swept.check()
        return swept.results

    refit_to_points(case, simulated, command=command).write(out, force=force)
