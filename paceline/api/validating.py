"""Library functions that compare predictions with measurements, refit scenarios, and run real TensorFlow clusters on this machine.

Parameters, defaults and docstrings are also the options and the help of ``paceline validate`` and ``paceline testbed``.
``calibrate/validation`` makes predictions and scores, ``calibrate/testbed`` runs clusters, ``paceline.reporting.validation`` writes pages
and files.
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
    Progress,
    Python,
    Seed,
    Settings,
    Source,
    Stages,
    TestbedSource,
    Text,
    Thresholds,
    Timeout,
    Typed,
    checked,
    file_of,
    instance_of,
    path_of,
)
from simulator.base.errors import CalibrationError, InputError

if TYPE_CHECKING:
    from calibrate.testbed.platform import Platform
    from calibrate.testbed.prediction import Prediction
    from calibrate.testbed.readings import Readings
    from calibrate.testbed.summary import TestbedRun
    from calibrate.validation.against_points import PointsCase, Refitted
    from calibrate.validation.matrix import Matrix
    from calibrate.validation.validation import Validation
    from paceline.reporting.validation import ValidationFiles
    from simulator.results.results import Result
    from simulator.scenario import Scenario
else:
    Matrix = instance_of("calibrate.validation.matrix", "Matrix")
    Platform = instance_of("calibrate.testbed.platform", "Platform")


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
    """Predict your own runs and compare: signed errors, and whether each run is inside its 90% interval.

    Parameters
    ----------
    scenario, settings
        As for :func:`load`.

        Describe the measured training; workers, servers and batch come from the points.
    measured
        Table of your own measurements, one line per run. Columns: ``workers`` and ``throughput``; optional: ``servers``,
        ``batch`` and ``staleness`` (mean, in updates). Lines with the same setting are repeats, which show the noise.
    unit
        Unit of the throughput in that table.
    thresholds
        Limits of every score: ``max_median`` and ``max_worst`` (absolute error of throughput, as a share: ``0.02`` or
        ``"2%"``), ``max_staleness`` (error of mean staleness, in updates), ``max_distance`` (between distributions of staleness, 0 to 1)
        and ``min_coverage`` (share of runs inside the 90% interval). ``missed`` of the answer names missed ones.
    out
        Write an HTML page.

        An existing page of a validation is replaced.
    markdown
        Write the result into a section of a Markdown file; replaces an earlier one.
    rows
        Write the settings that were not used in a fit as rows from which model error can be estimated.
    tables
        Write every setting and the longer tables as CSV files into this folder. ``markdown`` then links to them.
    force
        Replace files, whatever they are.
    agree
        As for :func:`simulate`.
    command
        Command that makes the page, for its provenance; empty: this call.
    progress
        Called with the finished and total number, and what is counted.

    Returns
    -------
    Validation
        A row for each setting, scores of each group, and missed thresholds. Errors are predicted over measured, minus 1.

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
    from calibrate.validation.against_points import validate_points
    from calibrate.validation.validation import thresholds_of
    from paceline.reporting.validation import ValidationFiles

    limits = thresholds_of(thresholds or {})
    files = ValidationFiles({"out": path_of(out), "markdown": path_of(markdown), "rows": path_of(rows)}, path_of(tables), force=force)
    case = _points_case(scenario, measured, settings, unit, files, agree)
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

    Values that the runs do not determine stay unchanged.

    Parameters
    ----------
    scenario, measured, settings, unit
        As for :func:`validate`.
    out_scenario
        Write the scenario with the fitted values.

        It also contains the fit uncertainty and the model error.
    thresholds
        As for :func:`validate`.

        They apply to the predictions of each run from the others.
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
        An argument, the scenario or a line of the points is wrong; the message names file, line, column and rule.
    CalibrationError
        No values explain the runs, so the search does not converge.
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
    from calibrate.validation.against_points import refit_to_points
    from calibrate.validation.validation import thresholds_of
    from paceline.reporting.validation import ValidationFiles
    from paceline.sweeping.backends import local_workers

    limits = thresholds_of(thresholds or {})
    paths = {"out": path_of(out), "markdown": path_of(markdown), "rows": path_of(rows), "out_scenario": path_of(out_scenario)}
    files = ValidationFiles(paths, path_of(tables), force=force)
    case = _points_case(scenario, measured, settings, unit, files, agree)
    command = command or "paceline.refit"
    with local_workers(0) as workers:

        def spread(function: Callable[[Scenario], Any], asked: Iterable[Scenario]) -> Iterable[Any]:
            return list(workers.map(function, list(asked)))

        refitted = refit_to_points(case, _simulating(progress), apply=spread, command=command, progress=_stage(progress, "fits"))
    refitted = replace(refitted, validation=refitted.validation.made_by(command).judged(limits))
    if out_scenario is not None:
        refitted.write(Path(out_scenario), force=force)
    files.write(refitted.validation)
    return refitted


@checked
def read_matrix(
    matrix: Annotated[str | Path, MustBe("the name of a matrix, such as 'quick', 'random:1', or a file")] = "quick",
    *,
    count: Count | None = None,
    out_matrix: File | None = None,
    force: Force = False,
) -> Matrix:
    """List the settings that :func:`validate_matrix` measures, some to fit and others held out, without measuring.

    Model files of the matrix are not run either, so the duration of their settings is unknown.

    Parameters
    ----------
    matrix
        Settings to measure: a name, a file, or a seed that draws them. The matrix says which are used for the fit and which are held out.

        A name of the catalogue: ``"quick"`` (some minutes), ``"headline"``, ``"first"`` or ``"development"``; the path of a file; or
        ``"random:SEED"``, which draws settings from the space that docs/measure.md declares.
    count
        Number of settings that ``random:SEED`` draws. Default: 12.
    out_matrix
        Write the settings that ``random:SEED`` draws.
    force
        Replace the file at ``out_matrix``.

    Returns
    -------
    Matrix
        The settings ``fit`` and ``held_out``; ``to_frame()`` has an estimated duration of each, in seconds.

    Raises
    ------
    InputError
        The matrix does not exist, or breaks a rule.

    Examples
    --------
    >>> drawn = read_matrix("random:1", count=3)
    >>> len(drawn.held_out), drawn.drawn_by, list(drawn.to_frame())
    (3, 1, ['group', 'setting', 'steps', 'guessed_s'])
    """
    from calibrate.validation.random_matrix import matrix_named, random_text
    from simulator.base.files import EDITED, Output

    chosen = matrix_named(matrix, count)
    if out_matrix is not None:
        seed = _seed_of(chosen)
        Output(Path(out_matrix), EDITED, force=force, argument="out_matrix").write(random_text(seed, len(chosen.held_out)))
    return chosen


def _seed_of(matrix: Matrix) -> int:
    """Return the seed of drawn settings; only those can be written to a file.

    Raises
    ------
    InputError
        The settings come from a file.
    """
    if matrix.drawn_by is None:
        raise InputError(f"`out_matrix`: needs drawn settings, such as `matrix='random:1'`; {matrix.name[:60]!r} has its own")
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

        Or the matrix itself.
    measurements
        Folder for raw measurements. Settings with measurements there are not measured again.
    platform
        Write the fitted parameters of this machine.

        A JSON file, which :func:`testbed_predict` takes.
    python
        A Python with TensorFlow. Default: the one that runs Paceline.
    timeout_s
        Seconds after which one run is stopped.
    thresholds, out, markdown, rows, tables, force, agree, command, progress
        As for :func:`validate`.

    Returns
    -------
    Validation
        A row for each setting, scores of each held-out group, and missed thresholds. A setting that fails is run once more. One that fails
        again has no row; ``notes`` and the table ``unmeasured`` name it and the reason.

    Raises
    ------
    InputError
        Part of the matrix cannot be measured, fitted or predicted. This is checked before anything is measured.
    CalibrationError
        Several settings in a row, or one that the fit needs, could not be measured. Finished settings are kept; the same call resumes.

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
    paths = {"out": path_of(out), "markdown": path_of(markdown), "rows": path_of(rows), "out_matrix": target, "platform": path_of(platform)}
    files = ValidationFiles(paths, path_of(tables), force=force)
    files.check((outline_of(chosen),))
    seed = None if target is None else _seed_of(chosen)
    chosen = with_models(chosen, python=python)
    folder = Path(measurements)
    pending = pending_settings(chosen, folder)
    check_matrix(chosen, pending, folder, python=python, timeout_s=timeout_s)
    about = (
        f"{len(chosen.fit)} settings to fit, {len(chosen.held_out)} held out, {chosen.repeats} repeats each; raw measurements go to "
        f"{folder}, and existing ones are used"
    )
    agree_to_measure(about, math.fsum(guessed_run_s(setting, chosen.repeats) for setting in pending), agree)
    if target is not None and seed is not None:
        Output(target, EDITED, force=force, argument="out_matrix").write(random_text(seed, len(chosen.held_out)))
    compared, fitted = measure_and_compare(chosen, folder, python=python, timeout_s=timeout_s, progress=progress)
    if platform is not None:
        fitted.write(Path(platform), force=force)
    validation = compared.made_by(command or "paceline.validate_matrix").judged(limits)
    files.write(validation)
    return validation


def _points_case(
    scenario: Source, measured: File, settings: Settings, unit: Literal["samples/s", "updates/s"], files: ValidationFiles, agree: Asking
) -> PointsCase:
    """Return a scenario with its measured points, once the files are writable and the simulation is agreed to."""
    from calibrate.validation.against_points import OUTLINE, PointsCase
    from calibrate.validation.points import base_scenario, read_points
    from paceline.lengthy import agree_to_sweep
    from simulator.catalogue.loading import table_of

    points = read_points(Path(measured))
    table, source, beside = table_of(scenario, settings)
    base = base_scenario(table, points, source=source, beside=beside)
    case = PointsCase(table, source, beside, Path(measured), tuple(point.as_throughput(base) for point in points), unit)
    files.check((OUTLINE,), [file for file in (file_of(scenario), Path(measured)) if file is not None])
    agree_to_sweep(case.scenarios, range(len(case.scenarios)), agree, jobs=0)
    return case


def _simulating(progress: Stages) -> Callable[[Sequence[Scenario]], Sequence[Result]]:
    from paceline.sweeping import sweep as run

    def simulate_all(scenarios: Sequence[Scenario]) -> Sequence[Result]:
        swept = run(scenarios, progress=_stage(progress, "settings"))
        swept.check()
        return swept.results

    return simulate_all


def _stage(progress: Stages, what: str) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, total: progress(done, total, what)


@checked
def testbed(
    setting: TestbedSource = None,
    settings: Settings = (),
    *,
    repeats: Annotated[int, MustBe("a whole number from 1 to 1,000", least=1, most=1000)] = 3,
    seed: Seed = 0,
    timeout_s: Timeout = 600.0,
    python: Python = None,
    measurements: Folder = "measurements",
    progress: Progress = None,
) -> TestbedRun:
    """Start a real TensorFlow cluster on this machine, train on it, and measure every step.

    Workers and parameter servers are processes in network namespaces that nobody else can reach. They are removed however the run ends.
    Raw measurements are kept, and never overwritten.

    Parameters
    ----------
    setting
        File with the keys of a setting. Default: no file, all keys at their defaults.

        Or nested tables as in such a file. The defaults are 4 asynchronous workers of ``ladder-1mb`` and a parameter server on
        links of 400 Mbit/s, with compute drawn from an exponential distribution of mean 100 ms.
    settings
        Change a key of the setting, such as workers=8 or link.bandwidth='1 Gbit/s'.

        Keys are those of :class:`calibrate.testbed.setting.TestbedSetting`; quantities are text with a unit. ``link = "loopback"`` needs
        no root. ``model`` is a synthetic one (``"ladder-4mb"``), ``"FILE.py:FUNCTION"`` or a workload.
    repeats
        Number of runs. Each starts a new cluster.
    seed
        Seed of emulated compute and of staggered starts.
    timeout_s
        Seconds after which a repeat is stopped.
    python
        A Python with TensorFlow. Default: the one that runs Paceline.
    measurements
        Folder for raw measurements; each run adds a file.
    progress
        Called with the finished and total number of repeats.

    Returns
    -------
    TestbedRun
        Updates/s and samples/s of each repeat with the 90% interval of the next; staleness in updates; the parts of a
        step in seconds; bytes and CPU seconds of each job.

    Warns
    -----
    PacelineWarning
        Links cannot be shaped here and were not requested, so loopback is used. Or the run failed and is repeated once.

    Raises
    ------
    InputError
        One line for each broken rule, with file and dotted key; or this machine cannot run it.
    CalibrationError
        A task died or hung in both of two runs. Complete repeats are kept; a note on the error says where.

    Examples
    --------
    >>> testbed(settings={"workers": 0})
    Traceback (most recent call last):
        ...
    simulator.base.errors.ScenarioError: setting: workers: 0 must be at least 1
    """
    from calibrate.testbed.loading import load_setting
    from calibrate.testbed.running import measure_setting, on_available_links, retried
    from calibrate.testbed.summary import TestbedRun
    from simulator.catalogue.loading import pairs_of

    pairs = pairs_of(settings)
    chosen = setting is not None or any(key.partition(".")[0] == "link" for key, _ in pairs)
    loaded = load_setting(setting, pairs, python)
    source = str(setting) if isinstance(setting, (str, Path)) else "setting"
    able = on_available_links(loaded, source, chosen=chosen)

    def measure() -> Readings:
        return measure_setting(
            able, Path(measurements), repeats=repeats, seed=seed, timeout_s=timeout_s, python=python,
            progress=None if progress is None else lambda done, total, _: progress(done, total),
        )  # fmt: skip

    return TestbedRun.of(retried(measure, able.label))


@checked
def testbed_read(file: File) -> TestbedRun:
    """Read measurements of :func:`testbed`. For a run that failed or was stopped, complete repeats are read.

    Parameters
    ----------
    file
        A file of raw measurements.

    Returns
    -------
    TestbedRun
        As for :func:`testbed`.

    Raises
    ------
    InputError
        The file does not exist, is damaged, is not a testbed run, or has no complete repeat.

    Examples
    --------
    >>> testbed_read("nowhere.ndjson")
    Traceback (most recent call last):
        ...
    simulator.base.errors.InputError: nowhere.ndjson: there is no such file; check the path
    """
    from calibrate.testbed.summary import TestbedRun

    try:
        return TestbedRun.read(Path(file))
    except CalibrationError as error:  # no run has failed: the file is not one to be read
        raise InputError(str(error)) from None


@checked
def testbed_fit(
    files: Annotated[Sequence[str | Path], MustBe("a list of files of measurements"), Typed(place=True, metavar="FILE...", reads="files")],
    *,
    name: Text = "testbed",
    out: Annotated[File | None, Typed(short="-o", metavar="FILE.json")] = None,
    seed: Seed = 0,
    force: Force = False,
    progress: Progress = None,
) -> Platform:
    """Fit the overheads of this machine and of TensorFlow beyond bytes and compute, from small runs of :func:`testbed`.

    Each parameter gets a 90% interval and a sentence on the runs that determine it. Without such runs it keeps a documented prior, and is
    marked.

    Parameters
    ----------
    files
        Measurement files of ``paceline testbed run`` with emulated, constant compute: 1 worker, or a ring of 2.

        Modes with servers need 1 worker and at least two model sizes; to predict both links and loopback, measure both.
    name
        Name of the machine.
    out
        Write the parameters into this file.

        :func:`testbed_predict` reads it. An existing one is replaced; None writes none.
    seed
        Seed of the draws of fit uncertainty.
    force
        Replace the file at ``out``, whatever it is.
    progress
        Called with the finished and total number of fits.

    Returns
    -------
    Platform
        The machine's parameters, in seconds and bytes, with their intervals.

    Warns
    -----
    PacelineWarning
        A file cannot be read and is left out.

    Raises
    ------
    InputError
        No file can be fitted, or ``out`` cannot be written or is something else.

    Examples
    --------
    >>> testbed_fit([])
    Traceback (most recent call last):
        ...
    simulator.base.errors.InputError: `files`: no file can be fitted; measure with `paceline testbed run`
    """
    import warnings

    from calibrate.testbed.fitting import fit_platform
    from calibrate.testbed.platform import MACHINE
    from calibrate.testbed.readings import read_run
    from simulator.base.errors import PacelineWarning
    from simulator.base.files import Output

    if out is not None:
        Output(Path(out), MACHINE, force=force)
    readings = []
    for path in map(Path, files):
        try:
            readings.append(read_run(path))
        except CalibrationError as error:  # such as a run that was stopped
            warnings.warn(PacelineWarning(f"left out: {error}"), stacklevel=3)  # through the check of the arguments
    if not readings:
        raise InputError("`files`: no file can be fitted; measure with `paceline testbed run`")
    following = None if progress is None else lambda done, total, _: progress(done, total)
    try:
        platform = fit_platform(readings, name, readings[0].cores, seed=seed, progress=following)
    except CalibrationError as error:  # nothing has failed: the files are not the ones that are needed
        raise InputError(f"{', '.join(map(str, files[:3]))}: {error}") from None
    if out is not None:
        platform.write(Path(out), force=force)
    return platform


@checked
def testbed_predict(
    platform: Annotated[
        str | Path | Platform,
        MustBe("the file or the result of `paceline.testbed_fit`"),
        Typed(place=True, metavar="FILE.json"),
    ],
    setting: TestbedSource = None,
    settings: Settings = (),
    *,
    replications: Annotated[int, MustBe("a whole number from 19 to 10,000", least=19, most=10_000)] = 59,
    seed: Seed = 0,
    python: Python = None,
) -> Prediction:
    """Predict what :func:`testbed` would measure in a setting, without running it.

    Parameters
    ----------
    platform
        Parameters written by ``paceline testbed fit``.

        Or the result of :func:`testbed_fit`.
    setting, settings
        As for :func:`testbed`.

        Compute must be emulated.
    replications
        Simulated runs.

        Each has its own draw of fit uncertainty.
    seed
        Seed of the simulation.
    python
        A Python that can build a model ``FILE.py:FUNCTION``. Default: the one that runs Paceline.

    Returns
    -------
    Prediction
        Updates/s and samples/s with the 90% interval of one run, and staleness in updates.

    Raises
    ------
    InputError
        One line for each broken rule; or the file has no parameters.

    Examples
    --------
    >>> from calibrate.testbed.platform import MEANINGS, Parameter, Platform
    >>> unmeasured = Platform(name="any", cores=2, parameters={name: Parameter.prior(name) for name in MEANINGS})
    >>> slow = testbed_predict(unmeasured, settings={"mode": "between-graph", "workers": 2, "steps": 10}, replications=19)
    >>> fast = testbed_predict(
    ...     unmeasured, settings={"mode": "between-graph", "workers": 2, "steps": 10, "compute.mean": "20 ms"}, replications=19
    ... )
    >>> slow.updates_per_s.mean < fast.updates_per_s.mean, slow.undetermined[0]
    (True, 'cpu_per_byte_s')
    """
    from calibrate.testbed.loading import load_setting
    from calibrate.testbed.platform import Platform
    from calibrate.testbed.prediction import predict_setting
    from simulator.catalogue.loading import pairs_of

    fitted = platform if isinstance(platform, Platform) else Platform.read(Path(str(platform)))
    loaded = load_setting(setting, pairs_of(settings), python)
    if loaded.compute.kind == "real":
        raise InputError(
            "compute.kind: 'real': its duration is unknown without a run; set `compute.mean` and `compute.law`, or compare in a matrix "
            "(`paceline validate`)"
        )
    return predict_setting(loaded, fitted, replications=replications, seed=seed)
