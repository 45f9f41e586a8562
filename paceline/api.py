"""Paceline as a library: what a script, a notebook and the command line call.

Each function validates its arguments, calls one function of the packages below and returns a
frozen object with ``to_frame()`` (pandas) and a table of its own in notebooks. Nothing is
printed: progress goes to a function of the caller's, what should be known to :mod:`warnings`.
Where it cannot do what it is asked it raises :class:`simulator.errors.PacelineError` with one
sentence, which names arguments in backticks: `` `out` ``, `` `force=True` ``.

Kinds of arguments that several functions have, such as a scenario's :data:`~paceline.arguments.Source`
or its :data:`~paceline.arguments.Settings`, are told once, in :mod:`paceline.arguments`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field, InstanceOf

from paceline import comparing
from paceline.arguments import (
    Answer,
    Backend,
    Count,
    Counts,
    File,
    Folder,
    Jobs,
    MustBe,
    Observing,
    Over,
    Prices,
    Progress,
    Quantity,
    Scheduler,
    Settings,
    Source,
    Stages,
    Text,
    Thresholds,
    checked,
)
from simulator.catalog import scenario_file
from simulator.errors import InputError
from simulator.files import check_writable
from simulator.loading import load_scenario, pairs_of, table_of
from simulator.prices import parse_prices
from simulator.results import Result
from simulator.scenario import Scenario

if TYPE_CHECKING:
    from calibrate.validation.against_points import PointsCase, Refitted
    from calibrate.validation.matrix import Matrix
    from calibrate.validation.validation import Validation
    from paceline.planning.answer import Plan
    from paceline.reporting.report import Report
    from paceline.sweeping import Sweep
    from simulator.workload import Workload

__all__ = [
    "calibrate", "compare", "load", "plan", "read_matrix", "refit", "report", "simulate", "sweep", "validate", "validate_matrix",
    "validate_published",
]  # fmt: skip


@checked
def load(scenario: Source, settings: Settings = (), *, prices: Prices = None) -> Scenario:
    """Load a scenario, set keys of it, validate it.

    Parameters
    ----------
    scenario
        A path; the name of a scenario that comes along (``"ring"``, ``"async-ps"``, ...);
        nested tables as a file has them; or a scenario, to change it.
    settings
        Values by dotted key, quantities as text with a unit. ``workload``, ``cluster`` or
        ``strategy`` as a whole may be set to a loaded or calibrated one.
    prices
        As for :func:`plan`.

    Raises
    ------
    ScenarioError
        One line for each rule broken, with file and dotted key.
    InputError
        A price cannot be read, or is for a cluster of another name.

    Examples
    --------
    >>> scenario = load("ring", {"strategy.workers": 16, "cluster.inter_node.bandwidth": "10 Gbit/s"})
    >>> scenario.replicas, scenario.cluster.inter_node.bandwidth_bytes_per_s
    (16, 1250000000.0)
    >>> load(scenario, {"strategy.workers": 2}).replicas
    2
    """
    return load_scenario(scenario, settings, parse_prices(prices))


@checked
def simulate(
    scenario: Source,
    settings: Settings = (),
    *,
    prices: Prices = None,
    observer: Observing = None,
    progress: Annotated[Callable[[float, int], None] | None, MustBe("a function")] = None,
) -> Result:
    """Simulate one scenario.

    Parameters
    ----------
    scenario, settings
        As for :func:`load`.
    prices
        As for :func:`plan`.
    observer
        Receives every record of the first replication: a trace, an audit.
    progress
        Called with replications done, and what share of the present one, and with how many there are in all: after each, and
        in long ones after each some thousand steps.

    Returns
    -------
    Result
        Depends on the scenario alone, but for ``wall_time_s``.

    Raises
    ------
    ScenarioError
        One line for each rule broken, with file and dotted key.
    SimulationError
        The engine found an impossible state, such as a dead-lock.

    Examples
    --------
    >>> result = simulate("ring", {"strategy.workers": 4, "run.steps": 10, "run.replications": 3})
    >>> result.scaling_efficiency.mean < 1, result.bottleneck.name, len(result.to_frame())
    (True, 'compute', 1)
    """
    from simulator.run import simulate as run

    return run(load_scenario(scenario, settings, parse_prices(prices)), observer=observer, progress=progress)


@checked
def compare(ours: Answer, theirs: Answer) -> comparing.Comparison:
    """Throughput of one result over that of another, run by run where their runs share their draws.

    Parameters
    ----------
    ours, theirs
        Results, such as two of a sweep.

    Returns
    -------
    Comparison
        ``ratio`` (mean, and 90% prediction interval), and in how many of ``runs`` ours
        ``wins`` and ``losses``. ``runs`` is 0 where the two have another seed or number of
        replications: the interval is then as wide as those of both allow.

    Examples
    --------
    >>> short = {"strategy.workers": 4, "run.steps": 10}
    >>> slow, fast = (simulate("ring", {**short, "cluster.use": name}) for name in ("ethernet-1g", "ethernet-25g"))
    >>> found = compare(fast, slow)
    >>> found.wins, found.runs, found.ratio.low > 1
    (19, 19, True)
    """
    return comparing.compare(ours, theirs)


@checked
def sweep(
    scenario: Source,
    over: Over,
    *,
    settings: Settings = (),
    prices: Prices = None,
    out: File | None = None,
    jobs: Jobs = 0,
    backend: Backend = "local",
    scheduler: Scheduler = None,
    force: bool = False,
    progress: Progress = None,
) -> Sweep:
    """Simulate every combination of some values.

    Parameters
    ----------
    scenario
        As for :func:`load`.
    over
        Values by dotted key; the last key changes fastest.
    settings
        Keys to set in all of them.
    prices
        As for :func:`plan`.
    out
        A results file, a line a scenario, each written as soon as it is there: after an
        interruption the same call goes on where it was. None keeps results in memory.
    jobs
        Processes, or tasks at a time; 0 takes all cores. Results do not depend on it.
    backend, scheduler
        Where they run: on this machine, or on a Dask or Ray cluster at that address.
    force
        Begin anew if ``out`` holds the results of another sweep.
    progress
        Called with scenarios done and in all.

    Returns
    -------
    Sweep
        A sequence of results, and of failures where a scenario could not be simulated.

    Raises
    ------
    ScenarioError
        A combination breaks a rule; the message says which one.
    ResultsError
        ``out`` holds something else.
    InputError
        An argument is of the wrong kind, ``out`` cannot be written or is the scenario's own file, or the cluster cannot be used.

    Examples
    --------
    >>> swept = sweep("ring", {"strategy.workers": [1, 4]}, settings={"run.steps": 10, "run.replications": 3}, jobs=1)
    >>> [result.replicas for result in swept]
    [1, 4]
    >>> swept.to_frame()["scaling_efficiency"].tolist()[0]
    1.0
    """
    from paceline.sweeping import axes_of, grid
    from paceline.sweeping import sweep as run

    journal = _writable(out, scenario)
    made = grid(scenario, axes_of(over), pairs_of(settings), prices=parse_prices(prices))
    return run(made, journal, jobs=jobs, backend=backend, scheduler=scheduler, force=force, progress=progress)


@checked
def plan(
    scenario: Source,
    *,
    target_throughput: Annotated[Quantity, MustBe("a number, or text with a unit, such as '20000 samples/s'")] | None = None,
    samples: Annotated[float, MustBe("a number, such as 1.28e6")] | None = None,
    epochs: Annotated[float, MustBe("a number, such as 90")] | None = None,
    deadline: Annotated[Quantity, MustBe("a number, or text with a unit, such as '12 h'")] | None = None,
    budget: Annotated[Quantity, MustBe("a number, or text with a unit, such as '500 USD'")] | None = None,
    confidence: Annotated[float, MustBe("a number such as 0.95")] = 0.95,
    prefer: Literal["cheapest", "fastest", "fewest-devices"] | None = None,
    clusters: Annotated[Sequence[str], MustBe("a list of names or paths, such as ['ethernet-10g']")] = (),
    over: Over | None = None,
    strategies: Annotated[Sequence[str], MustBe("a list of names, such as ['ring', 'async-ps']")] = (),
    workers: Counts = None,
    servers: Counts = None,
    scaling: Literal["weak", "strong", "both"] | None = None,
    settings: Settings = (),
    prices: Prices = None,
    out: File | None = None,
    jobs: Jobs = 0,
    backend: Backend = "local",
    scheduler: Scheduler = None,
    force: bool = False,
    progress: Progress = None,
) -> Plan:
    """Find the configuration that reaches a goal best.

    The goal is a throughput; or samples (and epochs) within a deadline, a budget, or both.

    Parameters
    ----------
    scenario
        As for :func:`load`.
    target_throughput
        Such as ``"20000 samples/s"``, or a number of samples a second.
    samples, epochs
        Samples of the data set, and how often all of them are trained on (once, if left out).
    deadline
        Such as ``"12 h"``, or seconds.
    budget
        Such as ``"500 USD"``, or US dollars.
    confidence
        Share of real runs that must reach the goal.
    prefer
        What is best among all that do; left out: the fastest where only a budget is given,
        else the cheapest.
    clusters
        Names of the catalogue, or paths of files; none: the scenario's own.
    over
        Further values to choose from, by dotted key.
    strategies
        Short names such as ``"ring"``, ``"sync-ps"``, ``"async-ps"``; none: the scenario's own.
    workers, servers
        A range ``"1..64"``, of which only so many are simulated as are needed, or a list.
    scaling
        Weak: each replica keeps its batch. Strong: all together keep theirs. Left out: as
        the scenario has it.
    settings
        Keys to set in all configurations, whatever their cluster.
    prices
        Of a node for an hour, by the name of its cluster or the path of its file: ``"0.40/h"``, a
        number of US dollars, a :class:`~simulator.cluster.Price`, or for machines of one's own
        ``"BUY:4000USD,years:4,power:0.5kW"`` (also ``electricity:0.30USD/kWh``, ``use:0.6`` of all
        hours). A price alone, or under ``"*"``, is for every cluster that has none.
    out
        A results file of what is simulated; an interrupted plan goes on in it.
    jobs, backend, scheduler, force, progress
        As for :func:`sweep`. The answer does not depend on them.

    Returns
    -------
    Plan
        Where nothing meets the goal, ``feasible`` is False and ``chosen`` the nearest there is.

    Raises
    ------
    InputError
        There is no goal or more than one, a range is empty, a name unknown, a price cannot be
        read or is for none of the clusters, or nothing has the price that a budget needs.
    ScenarioError
        No configuration can be.

    Examples
    --------
    >>> found = plan(
    ...     "ring", target_throughput="10000 samples/s", workers=[1, 2, 4, 8], settings={"run.steps": 20}, jobs=1
    ... )
    >>> found.feasible, found.chosen.result.replicas, found.chosen.scaling
    (True, 8, 'weak')
    """
    from paceline.planning import goal_of, space_of
    from paceline.planning import plan as search
    from paceline.sweeping import axes_of

    goal = goal_of(
        target_throughput=target_throughput, samples=samples, epochs=epochs, deadline=deadline, budget=budget, confidence=confidence,
        prefer=prefer,
    )  # fmt: skip
    journal = _writable(out, scenario)
    space = space_of(
        scenario, settings=pairs_of(settings), clusters=clusters, over=axes_of(over or {}), strategies=strategies, workers=workers,
        servers=servers, scaling=scaling, prices=parse_prices(prices),
    )  # fmt: skip
    return search(space, goal, out=journal, jobs=jobs, backend=backend, scheduler=scheduler, force=force, progress=progress)


@checked
def report(
    source: Any,
    out: File = "report.html",
    *,
    title: Text = "",
    measured: File | None = None,
    what_ifs: bool = True,
    jobs: Jobs = 0,
    progress: Progress = None,
) -> Report:
    """Write a report of some results: one HTML file that opens offline.

    Parameters
    ----------
    source
        A result, several, a sweep, a plan, a results file (its path, or what :func:`read_results` read),
        or several paths to compare.
    out
        Where to write; a file that is there is replaced.
    title
        Heading of the page; left out: the workload's name.
    measured
        A table (CSV) of your own measurements to show beside the predictions, with the
        columns workers and throughput (samples/s) and, if you like, servers, staleness, batch.
    what_ifs
        Simulate the report's answer again, which takes some seconds, for the timeline of
        some of its steps and for what one change at a time would gain.
    jobs
        Processes for that; 0 takes all cores.
    progress
        Called with what-ifs done and in all.

    Raises
    ------
    ResultsError
        There is no result, or a file cannot be read.
    InputError
        ``out`` cannot be written, or is one of the files that are read.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import paceline
    >>> result = paceline.simulate(paceline.load("ring", {"run.steps": 10, "run.replications": 3}))
    >>> with TemporaryDirectory() as folder:
    ...     written = report(result, f"{folder}/ring.html", what_ifs=False)
    >>> written.path.name, len(written.to_frame())
    ('ring.html', 1)
    """
    from paceline.reporting.report import report as write

    return write(
        source, Path(out), title=title, measured=None if measured is None else Path(measured), what_ifs=what_ifs, jobs=jobs,
        progress=progress,
    )  # fmt: skip


@checked
def calibrate(
    builder: Annotated[str, MustBe("text such as 'my_model.py:build'")],
    *,
    name: Text,
    batches: Annotated[Sequence[int], MustBe("a list of batch sizes, such as [16, 32, 64]")] = (16, 32, 64),
    steps: Count = 50,
    runs: Count = 3,
    at_once: Count = 1,
    launches: Count = 5,
    accept_disturbed: bool = False,
    step: bool = False,
    device: Annotated[str, MustBe("text such as 'CPU' or 'GPU:1'")] | None = None,
    precision: Literal["float32", "mixed_float16"] = "float32",
    jit: bool = False,
    python: Annotated[str, MustBe("the path of a Python")] | None = None,
    timeout_s: Annotated[float, MustBe("a number of seconds")] = 1800.0,
    measurements: Folder = "measurements",
    out: File | None = None,
    progress: Annotated[Callable[[int, int, str], None] | None, MustBe("a function")] = None,
) -> Workload:
    """Measure a real training step on the device at hand, and fit a workload to it.

    TensorFlow runs in child processes; raw measurements are kept and never overwritten.

    Parameters
    ----------
    builder
        ``FILE.py:FUNCTION``; FUNCTION() returns a Keras model or (model, loss, input_spec).
    name
        Of the workload.
    batches
        Batch sizes to measure, at least two.
    steps
        Timed steps at each batch size, in each run.
    runs
        Processes to measure in, one after the other; they differ more than steps do.
    at_once
        Processes to measure at the same time as well, each on cores of its own, which shows
        how much of the spread between processes those of one machine have in common; 1
        measures none. CPUs only.
    launches
        How often they are started together; fewer than 5 tell little.
    accept_disturbed
        Fit measurements that other processes have disturbed, and runs at different levels,
        with a warning in ``provenance["disturbed"]`` instead of refusing.
    step
        ``builder`` is a training step of your own instead: FUNCTION(batch_size) returns a
        callable that makes one step.
    device
        ``"CPU"``, ``"GPU"`` or ``"GPU:1"``; None takes the first GPU, else the CPU.
    precision
        ``"float32"`` or ``"mixed_float16"``.
    jit
        Compile the step with XLA.
    python
        A Python that has TensorFlow and the model's packages; None takes this one.
    timeout_s
        Seconds after which measuring is given up.
    measurements
        Folder for raw measurements.
    out
        A workload file to write as well, such as ``models/workloads/NAME.toml``, which
        scenarios then ``use``.
    progress
        Called with steps done, steps in all, and what is going on.

    Raises
    ------
    InputError
        An argument cannot be used, or the file or function does not exist.
    CalibrationError
        The child process failed, or what it measured cannot be fitted or trusted.

    Examples
    --------
    >>> calibrate("no_such_file.py:build", name="mine")
    Traceback (most recent call last):
        ...
    simulator.errors.InputError: MODEL.py:FUNCTION: no_such_file.py: there is no such file; check the path
    """
    from calibrate import fit_workload, profile_at_once, profile_runs, write_workload
    from calibrate.profiling import obstacle_to_at_once

    if out is not None:
        check_writable(Path(out))
    options: dict[str, Any] = {
        "custom": step, "batches": sorted(batches), "steps": steps, "device": device, "precision": precision, "jit": jit,
        "python": python, "timeout_s": timeout_s, "folder": Path(measurements), "progress": progress,
    }  # fmt: skip
    if at_once > 1:
        obstacle = obstacle_to_at_once(at_once, (device or "CPU").partition(":")[0].upper())
        if obstacle:
            raise InputError(f"`at_once`: {at_once}: {obstacle}; leave it out")
    files = profile_runs(builder, name, runs=runs, **options)
    if at_once > 1:
        files += profile_at_once(builder, name, processes=at_once, launches=launches, out=files[0], **options)
    workload = fit_workload(files, name, f"paceline.calibrate({builder!r}, name={name!r})", accept_disturbed=accept_disturbed)
    if "disturbed" in workload.provenance:
        warnings.warn(workload.provenance["disturbed"], stacklevel=3)  # through the check of the arguments
    if out is not None:
        write_workload(workload, Path(out))
    return workload


@checked
def validate(
    scenario: Source,
    measured: File,
    settings: Settings = (),
    *,
    unit: Literal["samples/s", "updates/s"] = "samples/s",
    thresholds: Thresholds = None,
    out: File | None = None,
    markdown: File | None = None,
    rows: File | None = None,
    force: bool = False,
    agree: Annotated[Callable[[Sequence[Scenario]], None] | None, MustBe("a function")] = None,
    command: Text = "",
    progress: Stages = None,
) -> Validation:
    """Predict what you have measured, and compare: signed errors, and whether each run lies inside its 90% interval.

    Parameters
    ----------
    scenario, settings
        What was measured, as for :func:`load`; workers, servers and batch come from the points.
    measured
        A CSV file with columns ``workers`` and ``throughput``, and where they differ ``servers``,
        ``batch`` and ``staleness`` (mean, in updates). A line for each run; lines with the same
        setting are repeats, which show the noise.
    unit
        Of the throughput in it.
    thresholds
        What every score must reach: ``max_median`` and ``max_worst`` (size of the error of
        throughput, as a share: ``0.02`` or ``"2%"``), ``max_staleness`` (error of mean staleness,
        in updates), ``max_distance`` (between distributions of staleness, 0 to 1) and
        ``min_coverage`` (share of runs inside the 90% interval). ``missed`` of the answer says which are not.
    out
        An HTML page to write.
    markdown
        A Markdown file whose section of this kind of validation is written, or replaced.
    rows
        A CSV file to write of settings that took part in no fit, from which a discrepancy can be estimated.
    force
        Replace files that are no output of Paceline.
    agree
        Called with the scenarios once all is checked and before they are simulated; what it raises ends the call.
    command
        By which the page says that it was made; this call, if left out.
    progress
        Called with what is done, what there is in all, and what is counted.

    Returns
    -------
    Validation
        A row for each setting, scores of each group, and what missed its threshold.

    Raises
    ------
    InputError
        An argument, the scenario or a line of the points is wrong; names file, line, column and rule.
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
    case = _points_case(scenario, measured, settings, unit)
    files = ValidationFiles(_path(out), _path(markdown), _path(rows), force=force)
    files.check(_read_by(scenario, measured))
    scenarios = case.scenarios
    if agree is not None:
        agree(scenarios)
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
    out_scenario: File | None = None,
    thresholds: Thresholds = None,
    out: File | None = None,
    markdown: File | None = None,
    rows: File | None = None,
    force: bool = False,
    agree: Annotated[Callable[[Sequence[Scenario]], None] | None, MustBe("a function")] = None,
    command: Text = "",
    progress: Stages = None,
) -> Refitted:
    """Bring a scenario to what you have measured: fit its compute, links and servers, and predict each point from the others.

    What the points do not determine stays as it is.

    Parameters
    ----------
    scenario, measured, settings, unit
        As for :func:`validate`.
    out_scenario
        A scenario file to write, with the refitted values, what the points leave open, and what
        predictions are off by.
    thresholds
        As for :func:`validate`, held against predictions of each point from the others.
    out, markdown, rows, force, agree, command, progress
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
        No values explain the points: the search does not end.
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
    case = _points_case(scenario, measured, settings, unit)
    files = ValidationFiles(_path(out), _path(markdown), _path(rows), _path(out_scenario), force=force)
    files.check(_read_by(scenario, measured))
    scenarios = case.scenarios
    if agree is not None:
        agree(scenarios)
    command = command or "paceline.refit"
    with local_workers(0) as workers:

        def spread(function: Callable[[Scenario], Any], asked: Iterable[Scenario]) -> Iterable[Any]:
            return list(workers.map(function, list(asked)))

        found = refit_to_points(case, _simulating(progress), apply=spread, command=command, progress=_stage(progress, "fits"))
    found = replace(found, validation=found.validation.made_by(command).judged(limits))
    if out_scenario is not None:
        found.write(Path(out_scenario))
    files.write(found.validation)
    return found


@checked
def read_matrix(
    matrix: Annotated[str | Path, MustBe("the name of a matrix, such as 'quick', 'random:1', or a file")] = "quick",
    *,
    count: Count | None = None,
    out_matrix: File | None = None,
    python: Text | None = None,
    force: bool = False,
) -> Matrix:
    """The settings that :func:`validate_matrix` measures, some to fit and others held out; nothing is measured.

    Parameters
    ----------
    matrix
        A name of the catalogue: ``"quick"`` (some minutes), ``"headline"``, ``"first"`` or
        ``"development"``; a file; or ``"random:SEED"``, which draws from the space that
        docs/testbed.md declares.
    count
        Settings that are drawn, with ``"random:SEED"``; 12 if left out.
    out_matrix
        A file to write what was drawn to.
    python
        A Python that has the models' packages; this one, if left out.
    force
        Replace ``out_matrix`` where it is there already.

    Returns
    -------
    Matrix
        Its ``fit`` and ``held_out``; ``to_frame()`` has about how long each takes, in seconds.

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
    from simulator.files import write_whole

    target = _path(out_matrix)
    found = matrix_named(matrix, count, python=python)
    if target is not None:
        if found.drawn_by is None:
            raise InputError(
                f"`out_matrix`: goes with settings that are drawn, such as `matrix='random:1'`; {str(matrix)[:60]!r} has its own"
            )
        check_writable(target)
        if target.is_file() and target.stat().st_size and not force:
            raise InputError(f"`out_matrix`: {str(target)!r} is there already; overwrite it with `force=True`, or choose another")
        write_whole(target, random_text(found.drawn_by, len(found.held_out)))
    return found


@checked
def validate_matrix(
    matrix: Annotated[str | Path | InstanceOf[BaseModel], MustBe("the name of a matrix, such as 'quick', a file, or a matrix")] = "quick",
    *,
    count: Count | None = None,
    measurements: Folder = "measurements",
    platform: File | None = None,
    python: Text | None = None,
    timeout_s: Annotated[float, Field(gt=0), MustBe("a number of seconds above 0")] = 600.0,
    thresholds: Thresholds = None,
    out: File | None = None,
    markdown: File | None = None,
    rows: File | None = None,
    force: bool = False,
    agree: Annotated[Callable[[float], None] | None, MustBe("a function")] = None,
    command: Text = "",
    progress: Stages = None,
) -> Validation:
    """Run real TensorFlow clusters on this machine, fit small ones, and predict larger and different ones.

    Parameters
    ----------
    matrix, count
        As for :func:`read_matrix`, or what it gave.
    measurements
        Folder of raw measurements; what is there already is not measured again.
    platform
        A file to write what was fitted to, which `paceline testbed predict` takes.
    python
        A Python that has TensorFlow; this one, if left out.
    timeout_s
        Seconds after which one run is given up.
    thresholds, out, markdown, rows, force, command, progress
        As for :func:`validate`.
    agree
        Called with the seconds that measuring takes by a guess, once all is checked and before it begins; what it raises ends
        the call.

    Returns
    -------
    Validation
        A row for each setting, scores of each group of those held out, and what missed its threshold.

    Raises
    ------
    InputError
        The matrix cannot be measured, fitted and predicted whole, which is found out before anything is measured.
    CalibrationError
        A setting could not be measured; what came before is kept, and the same call goes on there.

    Examples
    --------
    >>> validate_matrix("quikc")
    Traceback (most recent call last):
        ...
    simulator.errors.ScenarioError: `matrix`: there is no matrix named 'quikc'; did you mean quick?
    """
    from calibrate.testbed.platform import Platform
    from calibrate.testbed.running import guessed_run_s
    from calibrate.validation.matrix import Matrix, check_matrix
    from calibrate.validation.random_matrix import matrix_named
    from calibrate.validation.running import pending_settings
    from calibrate.validation.running import validate_matrix as measure_and_compare
    from calibrate.validation.validation import thresholds_of
    from paceline.reporting.validation import ValidationFiles

    limits = thresholds_of(thresholds or {})
    chosen = matrix if isinstance(matrix, Matrix) else matrix_named(matrix, count, python=python)  # type: ignore[arg-type]
    files = ValidationFiles(_path(out), _path(markdown), _path(rows), platform=_path(platform), force=force)
    files.check()
    if platform is not None:
        Platform.check_replaceable(Path(platform), "`platform`:")
    folder = Path(measurements)
    pending = pending_settings(chosen, folder)
    check_matrix(chosen, pending, folder, python=python, timeout_s=timeout_s)
    if agree is not None:
        agree(sum(guessed_run_s(one, chosen.repeats) for one in pending))
    found = measure_and_compare(chosen, folder, python=python, timeout_s=timeout_s, progress=progress)
    if platform is not None:
        found.platform.write(Path(platform))
    validation = found.validation.made_by(command or "paceline.validate_matrix").judged(limits)
    files.write(validation)
    return validation


@checked
def validate_published(
    regimes: Annotated[Sequence[str], MustBe("a list of regimes, such as ['all-reduce', 'NCCL']")] = (),
    *,
    thresholds: Thresholds = None,
    out: File | None = None,
    markdown: File | None = None,
    rows: File | None = None,
    force: bool = False,
    command: Text = "",
    progress: Stages = None,
) -> Validation:
    """Predict tables that others have measured and published, from their smallest rows and facts about hardware.

    Parameters
    ----------
    regimes
        Some of ``"sync PS"``, ``"async PS"``, ``"all-reduce"``, ``"staleness"``, ``"NCCL"`` and
        ``"moved"`` (trainings moved to another device); all, if left out.
    thresholds, out, markdown, rows, force, command, progress
        As for :func:`validate`.

    Returns
    -------
    Validation
        A row for each published setting, scores of each regime, and what missed its threshold.

    Raises
    ------
    InputError
        There is no such regime, or a file cannot be written.

    Examples
    --------
    >>> found = validate_published(["moved"])
    >>> found.title, len(found.to_frame()) > 100
    ('Published trainings moved to another device', True)
    """
    from calibrate.published.validation import validate_published as predict_and_compare
    from calibrate.validation.validation import thresholds_of
    from paceline.reporting.validation import ValidationFiles
    from paceline.sweeping.backends import local_workers

    limits = thresholds_of(thresholds or {})
    files = ValidationFiles(_path(out), _path(markdown), _path(rows), force=force)
    files.check()
    with local_workers(0) as workers:
        found = predict_and_compare(tuple(regimes) or None, progress, spread=workers.map)
    validation = found.validation.made_by(command or "paceline.validate_published").judged(limits)
    files.write(validation)
    return validation


def _points_case(scenario: Source, measured: str | Path, settings: Settings, unit: Literal["samples/s", "updates/s"]) -> PointsCase:
    """A scenario with the points that were measured of it."""
    from calibrate.validation.against_points import PointsCase
    from calibrate.validation.points import read_points

    points = read_points(Path(measured))
    table, source, beside = table_of(scenario, settings)
    return PointsCase(table, source, beside, Path(measured), points, unit)


def _read_by(scenario: Any, measured: str | Path) -> list[Path]:
    """The files that a validation reads."""
    return [*([scenario_file(scenario)] if isinstance(scenario, (str, Path)) else []), Path(measured)]


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


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def _writable(out: str | Path | None, scenario: Any) -> Path | None:
    """A results file to write, if there is to be one; its folder is made.

    Raises
    ------
    InputError
        It cannot be written, or is the file of the scenario.
    """
    reads = scenario_file(scenario) if isinstance(scenario, (str, Path)) else None
    return None if out is None else check_writable(Path(out), reads=reads)
