"""Library functions that compare predictions with measurements, and refit scenarios to them.

Parameters, defaults and docstrings are also the options and the help of ``paceline validate``. Predictions and scores are made in
``calibrate/validation``, pages and files in ``paceline.reporting.validation``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from paceline.arguments import (
    Asking,
    Command,
    Count,
    File,
    Folder,
    Force,
    MustBe,
    Python,
    Settings,
    Source,
    Stages,
    Thresholds,
    Timeout,
    Typed,
    checked,
    file_of,
    instance_of,
    path_of,
)
from simulator.base.errors import InputError

if TYPE_CHECKING:
    from calibrate.validation.against_points import PointsCase, Refitted
    from calibrate.validation.matrix import Matrix
    from calibrate.validation.validation import Validation
    from simulator.results.results import Result
    from simulator.scenario import Scenario
else:
    Matrix = instance_of("calibrate.validation.matrix", "Matrix")


@checked
def validate(
    scenario: Source,
    measured: Annotated[File, Typed(metavar="POINTS.csv")],
    settings: Settings = (),
    *,
    unit: Literal["samples/s", "updates/s"] = "samples/s",
    thresholds: Thresholds = None,
    out: Annotated[File | None, Typed(short="-o", metavar="FILE.html")] = None,
    markdown: Annotated[File | None, Typed(metavar="FILE.md")] = None,
    rows: Annotated[File | None, Typed(metavar="FILE.csv")] = None,
    tables: Annotated[Folder | None, Typed(metavar="FOLDER")] = None,
    force: Force = False,
    agree: Asking = None,
    command: Command = "",
    progress: Stages = None,
) -> Validation:
    """Predict your own runs and compare: signed errors, and whether each run lies inside its 90% interval.

    Parameters
    ----------
    scenario, settings
        As for :func:`load`.

        What was measured; workers, servers and batch come from the points.
    measured
        Your own measurements, a table with the columns ``workers`` and ``throughput``, and where they differ ``servers``, ``batch`` and
        ``staleness`` (mean, in updates). A line for each run; lines with the same setting are repeats, which show the noise.
    unit
        Unit of the throughput in that table.
    thresholds
        What every score must reach: ``max_median`` and ``max_worst`` (size of the error of throughput, as a share: ``0.02`` or
        ``"2%"``), ``max_staleness`` (error of mean staleness, in updates), ``max_distance`` (between distributions of staleness, 0 to 1)
        and ``min_coverage`` (share of runs inside the 90% interval). ``missed`` of the answer says which are not reached.
    out
        Write an HTML page.

        One of a validation that is there is replaced.
    markdown
        Put a section into a Markdown file; replaces the one of before.
    rows
        Write the settings that took no part in a fit as rows that a discrepancy can be estimated from (docs/calibration.md).
    tables
        Write every setting and the longer tables as CSV files into this folder; ``markdown`` then links to them in their place.
    force
        Replace files that are there and something else than what is written.
    agree
        As for :func:`simulate`.
    command
        What made the page, as it says itself; empty: this call.
    progress
        Called with the number done, the number of all, and what is counted.

    Returns
    -------
    Validation
        A row for each setting, scores of each group, and what missed its threshold. Errors are predicted over measured, less 1.

    Raises
    ------
    InputError
        An argument, the scenario or a line of the points is wrong; the message names file, line, column and rule.
    SimulationError
        A prediction failed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> points = Path(mkdtemp(), "points.csv")
    >>> _ = points.write_text("workers,throughput\\n2,7000\\n2,7100\\n4,13500\\n")
    >>> found = validate("async-ps", points, {"run.steps": 20, "run.replications": 3}, thresholds={"max_worst": "80%"})
    >>> found.to_frame()["measured"].tolist(), found.score.settings, found.missed
    ([7050.0, 13500.0], 2, ())
    """
    from calibrate.validation.against_points import OUTLINE, validate_points
    from calibrate.validation.validation import thresholds_of
    from paceline.lengthy import agree_to_sweep
    from paceline.reporting.validation import ValidationFiles

    limits = thresholds_of(thresholds or {})
    case = _points_case(scenario, measured, settings, unit)
    files = ValidationFiles(path_of(out), path_of(markdown), path_of(rows), path_of(tables), force=force)
    files.check((OUTLINE,), _read_by(scenario, measured))
    scenarios = case.scenarios
    agree_to_sweep(scenarios, range(len(scenarios)), agree, jobs=0)
    validation = validate_points(case, _simulating(progress)).made_by(command or "paceline.validate").judged(limits)
    files.write(validation)
    return validation


@checked
def refit(
    scenario: Source,
    measured: File,
    settings: Settings = (),
    *,
    unit: Literal["samples/s", "updates/s"] = "samples/s",
    out_scenario: Annotated[File | None, Typed(metavar="FILE.toml")] = None,
    thresholds: Thresholds = None,
    out: File | None = None,
    markdown: File | None = None,
    rows: File | None = None,
    tables: Folder | None = None,
    force: Force = False,
    agree: Asking = None,
    command: Command = "",
    progress: Stages = None,
) -> Refitted:
    """Fit a scenario's compute, links and server costs to your own runs, and predict each run from the others.

    What the runs do not determine stays as it is.

    Parameters
    ----------
    scenario, measured, settings, unit
        As for :func:`validate`.
    out_scenario
        Write the scenario with the fitted values.

        It also says what the runs leave open, and what predictions are off by.
    thresholds
        As for :func:`validate`.

        Held against the predictions of each run from the others.
    out, markdown, rows, tables, force, agree, command, progress
        As for :func:`validate`.

    Returns
    -------
    Refitted
        The refitted ``scenario``, ``factors`` of its quantities with ``intervals_90``, and the
        ``validation`` with its scores; ``write`` writes the scenario's file.

    Raises
    ------
    InputError
        An argument, the scenario or a line of the points is wrong; names file, line, column and rule.
    CalibrationError
        No values explain the runs: the search does not end.
    SimulationError
        A prediction failed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> points = Path(mkdtemp(), "points.csv")
    >>> _ = points.write_text("workers,throughput\\n1,1800\\n1,1810\\n")
    >>> found = refit("async-ps", points, {"run.steps": 20, "run.replications": 3})
    >>> low, high = found.intervals_90["compute"]
    >>> low < found.factors["compute"] < high, found.scenario.workload.forward.base_s > 0
    (True, True)
    """
    from calibrate.validation.against_points import OUTLINE, refit_to_points
    from calibrate.validation.validation import thresholds_of
    from paceline.lengthy import agree_to_sweep
    from paceline.reporting.validation import ValidationFiles
    from paceline.sweeping.backends import local_workers

    limits = thresholds_of(thresholds or {})
    case = _points_case(scenario, measured, settings, unit)
    files = ValidationFiles(path_of(out), path_of(markdown), path_of(rows), path_of(tables), path_of(out_scenario), force=force)
    files.check((OUTLINE,), _read_by(scenario, measured))
    scenarios = case.scenarios
    agree_to_sweep(scenarios, range(len(scenarios)), agree, jobs=0)
    command = command or "paceline.refit"
    with local_workers(0) as workers:

        def spread(function: Callable[[Scenario], Any], asked: Iterable[Scenario]) -> Iterable[Any]:
            return list(workers.map(function, list(asked)))

        found = refit_to_points(case, _simulating(progress), apply=spread, command=command, progress=_stage(progress, "fits"))
    found = replace(found, validation=found.validation.made_by(command).judged(limits))
    if out_scenario is not None:
        found.write(Path(out_scenario), force=force)
    files.write(found.validation)
    return found


@checked
def read_matrix(
    matrix: Annotated[str | Path, MustBe("the name of a matrix, such as 'quick', 'random:1', or a file")] = "quick",
    *,
    count: Count | None = None,
    out_matrix: File | None = None,
    force: Force = False,
) -> Matrix:
    """List the settings that :func:`validate_matrix` measures, some to fit and others held out. Nothing is measured.

    No file that the matrix names as a model is run either, so that it is not known how long its settings take.

    Parameters
    ----------
    matrix
        Which settings are measured on this machine, which of them fitted and which held out. A seed draws those held out at random.

        A name of the catalogue: ``"quick"`` (some minutes), ``"headline"``, ``"first"`` or ``"development"``; the path of a file; or
        ``"random:SEED"``, which draws settings from the space that docs/testbed.md declares.
    count
        How many settings ``random:SEED`` draws; left out: 12.
    out_matrix
        Write what ``random:SEED`` has drawn.
    force
        Replace ``out_matrix`` where it is there already.

    Returns
    -------
    Matrix
        The settings ``fit`` and ``held_out``; ``to_frame()`` has about how long each takes, in seconds.

    Raises
    ------
    InputError
        There is no such matrix, or it breaks a rule.

    Examples
    --------
    >>> drawn = read_matrix("random:1", count=3)
    >>> len(drawn.held_out), drawn.drawn_by, list(drawn.to_frame())
    (3, 1, ['group', 'setting', 'steps', 'guessed_s'])
    """
    from calibrate.validation.random_matrix import matrix_named, random_text
    from simulator.base.files import EDITED, Output

    target = path_of(out_matrix)
    found = matrix_named(matrix, count)
    if target is not None:
        seed = _seed_of(found)
        Output(target, EDITED, force=force, argument="out_matrix").write(random_text(seed, len(found.held_out)))
    return found


def _seed_of(matrix: Matrix) -> int:
    """The seed that settings were drawn by, which alone are written to a file.

    Raises
    ------
    InputError
        They are a file's.
    """
    if matrix.drawn_by is None:
        raise InputError(f"`out_matrix`: goes with settings that are drawn, such as `matrix='random:1'`; {matrix.name[:60]!r} has its own")
    return matrix.drawn_by


@checked
def validate_matrix(
    matrix: Annotated[
        str | Path | Matrix,
        MustBe("the name of a matrix, such as 'quick', a file, or a matrix"),
        Typed(metavar="NAME|FILE.toml|random:SEED", reads="text"),
    ] = "quick",
    *,
    count: Annotated[Count, Typed(metavar="N")] | None = None,
    out_matrix: Annotated[File | None, Typed(metavar="FILE.toml")] = None,
    measurements: Folder = "measurements",
    platform: Annotated[File | None, Typed(metavar="FILE.json")] = None,
    python: Python = None,
    timeout_s: Timeout = 600.0,
    thresholds: Thresholds = None,
    out: File | None = None,
    markdown: File | None = None,
    rows: File | None = None,
    tables: Folder | None = None,
    force: Force = False,
    agree: Asking = None,
    command: Command = "",
    progress: Stages = None,
) -> Validation:
    """Run real TensorFlow clusters on this machine, fit small ones, and predict larger and different ones.

    Parameters
    ----------
    matrix, count, out_matrix
        As for :func:`read_matrix`.

        A matrix may also be what that returned.
    measurements
        Folder of raw measurements; what is there already is not measured again.
    platform
        Write what the matrix has fitted.

        A JSON file, which :func:`testbed_predict` takes.
    python
        A Python that has TensorFlow; left out: the one that runs Paceline.
    timeout_s
        Seconds after which one run is given up.
    thresholds, out, markdown, rows, tables, force, agree, command, progress
        As for :func:`validate`.

    Returns
    -------
    Validation
        A row for each setting, scores of each group of those held out, and what missed its threshold. A setting that fails is run once
        more. One that fails again has no row; ``notes`` say so, and the table ``unmeasured`` has it and why.

    Raises
    ------
    InputError
        Some of the matrix cannot be measured, fitted or predicted. This is found out before anything is measured.
    CalibrationError
        Several settings in a row could not be measured, or one that the fit cannot do without. What came before is kept; the same call
        goes on there.

    Examples
    --------
    >>> validate_matrix("quikc")
    Traceback (most recent call last):
        ...
    simulator.base.errors.ScenarioError: `matrix`: there is no matrix named 'quikc'; did you mean quick?
    """
    from calibrate.testbed.running import guessed_run_s
    from calibrate.validation.matrix import Matrix, check_matrix, with_models
    from calibrate.validation.random_matrix import matrix_named, random_text
    from calibrate.validation.running import outline_of, pending_settings
    from calibrate.validation.running import validate_matrix as measure_and_compare
    from calibrate.validation.validation import thresholds_of
    from paceline.lengthy import agree_to_measure
    from paceline.reporting.validation import ValidationFiles
    from simulator.base.files import EDITED, Output

    limits = thresholds_of(thresholds or {})
    chosen = matrix if isinstance(matrix, Matrix) else matrix_named(matrix, count)
    target = path_of(out_matrix)
    files = ValidationFiles(
        path_of(out), path_of(markdown), path_of(rows), path_of(tables), platform=path_of(platform), matrix=target, force=force
    )
    files.check((outline_of(chosen),))
    seed = None if target is None else _seed_of(chosen)
    chosen = with_models(chosen, python=python)
    folder = Path(measurements)
    pending = pending_settings(chosen, folder)
    check_matrix(chosen, pending, folder, python=python, timeout_s=timeout_s)
    about = (
        f"{len(chosen.fit)} settings to fit, {len(chosen.held_out)} held out, {chosen.repeats} repeats each; raw measurements go to "
        f"{folder}, and what is there already is used"
    )
    agree_to_measure(about, math.fsum(guessed_run_s(one, chosen.repeats) for one in pending), agree)
    if target is not None and seed is not None:
        Output(target, EDITED, force=force, argument="out_matrix").write(random_text(seed, len(chosen.held_out)))
    found = measure_and_compare(chosen, folder, python=python, timeout_s=timeout_s, progress=progress)
    if platform is not None:
        found.platform.write(Path(platform), force=force)
    validation = found.validation.made_by(command or "paceline.validate_matrix").judged(limits)
    files.write(validation)
    return validation


def _points_case(scenario: Source, measured: str | Path, settings: Settings, unit: Literal["samples/s", "updates/s"]) -> PointsCase:
    """A scenario with the points that were measured of it."""
    from calibrate.validation.against_points import PointsCase
    from calibrate.validation.points import base_scenario, read_points
    from simulator.catalogue.loading import table_of

    points = read_points(Path(measured))
    table, source, beside = table_of(scenario, settings)
    base = base_scenario(table, points, source=source, beside=beside)
    return PointsCase(table, source, beside, Path(measured), tuple(point.as_throughput(base) for point in points), unit)


def _read_by(scenario: Any, measured: str | Path) -> list[Path]:
    """The files that a validation reads."""
    return [file for file in (file_of(scenario), Path(measured)) if file is not None]


def _simulating(progress: Stages) -> Callable[[Sequence[Scenario]], Sequence[Result]]:
    """Simulates scenarios on all cores."""
    from paceline.sweeping import sweep as run

    def simulate_all(scenarios: Sequence[Scenario]) -> Sequence[Result]:
        swept = run(scenarios, progress=_stage(progress, "settings"))
        swept.check()
        return swept.results

    return simulate_all


def _stage(progress: Stages, what: str) -> Callable[[int, int], None] | None:
    """Progress of one part of the work."""
    return None if progress is None else lambda done, total: progress(done, total, what)
