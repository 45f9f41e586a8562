"""Paceline as a library: what a script, a notebook and the command line call.

Each function validates its arguments, calls one function of the packages below and returns a
frozen object with ``to_frame()`` (pandas) and a table of its own in notebooks. Nothing is
printed: progress goes to a function of the caller's, what should be known to :mod:`warnings`.
Where it cannot do what it is asked it raises :class:`simulator.errors.PacelineError` with one
sentence, which names arguments in backticks: `` `out` ``, `` `force=True` ``.

Kinds of arguments that several functions have, such as a scenario's :data:`~paceline.arguments.Source`
or its :data:`~paceline.arguments.Settings`, are explained once, in :mod:`paceline.arguments`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field, InstanceOf

from paceline import comparing
from paceline.arguments import (
    Address,
    Answer,
    Asking,
    Backend,
    Count,
    Counts,
    File,
    Folder,
    Function,
    Jobs,
    MustBe,
    Name,
    Observing,
    Over,
    Precision,
    Prices,
    ProfilePlaces,
    Profiles,
    Progress,
    Python,
    Quantity,
    Scheduler,
    Seed,
    Settings,
    Source,
    Stages,
    Steps,
    TestbedSource,
    Text,
    TfConfig,
    Thresholds,
    Timeout,
    checked,
)
from paceline.catalogue import Format
from paceline.lengthy import agree_to_measure, agree_to_one, agree_to_plan, agree_to_sweep
from paceline.planning.answer import Plan
from simulator.catalog import scenario_file
from simulator.errors import CalibrationError, CalibrationWarning, InputError, PacelineWarning
from simulator.files import check_new, check_writable, write_whole
from simulator.loading import load_scenario, pairs_of, table_of
from simulator.prices import parse_prices
from simulator.results import Result
from simulator.scenario import Scenario

if TYPE_CHECKING:
    from calibrate.testbed.platform import Platform
    from calibrate.testbed.prediction import Prediction
    from calibrate.testbed.summary import TestbedRun
    from calibrate.tf_config import TfCluster
    from calibrate.validation.against_points import PointsCase, Refitted
    from calibrate.validation.matrix import Matrix
    from calibrate.validation.validation import Validation
    from calibrate.xplane.profiles import Profiled
    from paceline.catalogue import Catalogue
    from paceline.observing import Observation
    from paceline.planning.answer import Plan
    from paceline.reporting.report import Report
    from paceline.sweeping import Sweep
    from simulator.cluster import Cluster
    from simulator.program.printing import Printed
    from simulator.workload import Workload

__all__ = [
    "calibrate",
    "calibrate_link",
    "calibrate_profile",
    "compare",
    "load",
    "models",
    "observe",
    "plan",
    "preview",
    "read_matrix",
    "read_profiles",
    "read_tf_config",
    "refit",
    "report",
    "scenario_of_tf_config",
    "schema",
    "serve_link",
    "simulate",
    "sweep",
    "testbed",
    "testbed_fit",
    "testbed_predict",
    "testbed_read",
    "validate",
    "validate_matrix",
    "validate_published",
]

_HINTS = {
    "warning": "install the CUDA libraries (`pip install 'paceline[tensorflow-cuda]'`), or check the driver with nvidia-smi",
    "disturbed": "stop what else runs here, and calibrate again",
}
"""What to do about the parts of a provenance that are warned about."""


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
    progress: Steps = None,
    agree: Asking = None,
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
    agree
        Called before what takes hours, with a :class:`~paceline.lengthy.Lengthy`; raises where it should not be. None agrees.

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

    loaded = load_scenario(scenario, settings, parse_prices(prices))
    agree_to_one(loaded, agree)
    return run(loaded, observer=observer, progress=progress)


@checked
def observe(
    scenario: Source,
    settings: Settings = (),
    *,
    prices: Prices = None,
    trace: File | None = None,
    tensorboard: Folder | None = None,
    audit: bool = False,
    progress: Steps = None,
    agree: Asking = None,
) -> Observation:
    """Simulate one scenario, and look closely at its first replication.

    Parameters
    ----------
    scenario, settings, prices, progress, agree
        As for :func:`simulate`.
    trace
        Write a Chrome trace, with the messages' arrows and the critical path of a step: open it
        at ui.perfetto.dev or chrome://tracing.
    tensorboard
        Write scalars and histograms, step by step, into this folder: ``tensorboard --logdir``.
    audit
        Check every law of a sound simulation.

    Returns
    -------
    Observation
        The ``result``, the ``laws`` that were checked, and the sentence on what bounds a step.

    Raises
    ------
    ScenarioError, SimulationError
        As of :func:`simulate`.
    InputError
        A file cannot be written, or is the scenario's own.
    InvariantError
        A law is broken; the message names law and event.

    Examples
    --------
    >>> seen = observe("ring", {"strategy.workers": 2, "run.steps": 5, "run.replications": 3}, audit=True)
    >>> seen.result.replicas, "parts_sum_to_the_step" in seen.laws
    (2, True)
    """
    from paceline.observing import observe as look

    loaded = load_scenario(scenario, settings, parse_prices(prices))
    agree_to_one(loaded, agree)
    return look(loaded, trace=_path(trace), tensorboard=_path(tensorboard), audit=audit, reads=_file_of(scenario), progress=progress)


@checked
def preview(scenario: Source, settings: Settings = (), *, prices: Prices = None) -> Printed:
    """What simulating a scenario would do: its links, ranks, the operations of a step and the rules; nothing is simulated.

    Parameters
    ----------
    scenario, settings, prices
        As for :func:`load`.

    Raises
    ------
    ScenarioError
        One line for each rule broken.

    Examples
    --------
    >>> len(preview("ring", {"strategy.workers": 4}).program.ranks)
    4
    """
    from simulator.preview import preview as made

    return made(load_scenario(scenario, settings, parse_prices(prices)))


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
    retry_failed: bool = False,
    progress: Progress = None,
    agree: Asking = None,
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
        A results file, one line per scenario, each written as soon as it is there: after an
        interruption the same call goes on where it was. None keeps results in memory.
    jobs
        Processes, or tasks at a time; 0 takes all cores. Results do not depend on it.
    backend, scheduler
        Where they run: on this machine, or on a Dask or Ray cluster at that address.
    force
        Begin anew if ``out`` holds the results of another sweep.
    retry_failed
        Simulate again what failed in an earlier run.
    progress
        Called with scenarios done and in all.
    agree
        As for :func:`simulate`.

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

    file = _writable(out, scenario)
    made = grid(scenario, axes_of(over), pairs_of(settings), prices=parse_prices(prices))
    return run(
        made, file, jobs=jobs, backend=backend, scheduler=scheduler, force=force, retry_failed=retry_failed, progress=progress,
        agree=lambda places: agree_to_sweep(made, places, agree, jobs=jobs),
    )  # fmt: skip


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
    agree: Asking = None,
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
        A range ``"1..64"``, of which no more are simulated than needed, or a list.
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
        A results file ``NAME.ndjson`` of what is simulated; an interrupted plan goes on in it. The answer
        is written beside it, as ``NAME.plan.json``: :func:`report` takes both.
    jobs, backend, scheduler, force, progress, agree
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
    file = _writable(out, scenario)
    space = space_of(
        scenario, settings=pairs_of(settings), clusters=clusters, over=axes_of(over or {}), strategies=strategies, workers=workers,
        servers=servers, scaling=scaling, prices=parse_prices(prices),
    )  # fmt: skip
    agree_to_plan([list(line.scenarios.values()) for line in space.lines], agree, jobs=jobs)
    answer = search(space, goal, out=file, jobs=jobs, backend=backend, scheduler=scheduler, force=force, progress=progress)
    if file is not None:
        write_whole(file.with_suffix(".plan.json"), answer.to_json() + "\n")
    return answer


@checked
def report(
    source: Any,
    out: File | None = None,
    *,
    plan: Annotated[InstanceOf[Plan] | str | Path, MustBe("a plan, or the path of one that `paceline.plan` wrote")] | None = None,
    title: Text = "",
    measured: File | None = None,
    what_ifs: bool = True,
    figures: Folder | None = None,
    formats: Annotated[Sequence[Literal["png", "svg"]], MustBe("a list of 'png' and 'svg'")] = ("png", "svg"),
    tables: Folder | None = None,
    force: bool = False,
    jobs: Jobs = 0,
    progress: Stages = None,
) -> Report:
    """Write a report of some results: one HTML file that opens offline, and if wanted its figures and tables as files.

    Parameters
    ----------
    source
        A result, several, a sweep, a plan, a results file (its path, or what :func:`read_results` read),
        or several paths to compare.
    out
        Where to write; a report that is there is replaced. Left out: beside the (first) results file, ending in
        ``.html``, or ``report.html``.
    plan
        What a plan answered, if these are its results.
    title
        Heading of the page; left out: the workload's name.
    measured
        A table (CSV) of your own measurements to show beside the predictions, with the
        columns workers and throughput (samples/s) and, if you like, servers, staleness, batch.
    what_ifs
        Simulate the report's answer again, which takes some seconds, for the timeline of
        some of its steps and for what one change at a time would gain.
    figures
        Write each figure as an image into this folder; needs Chromium and the extra ``figures`` of this package.
    formats
        Of the images.
    tables
        Write each table as CSV into this folder.
    force
        Replace a file at ``out`` that is no report.
    jobs
        Processes for the what-ifs; 0 takes all cores.
    progress
        Called with what is done, what there is in all, and of what: ``"what-ifs"`` or ``"figures"``.

    Raises
    ------
    ResultsError
        There is no result, or a file cannot be read.
    InputError
        ``out`` cannot be written, is no report, or is one of the files that are read.
    StoppedReport
        Ctrl-C came while what-ifs were simulated: the report is written without them.

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
        source, _path(out), plan=Path(plan) if isinstance(plan, str) else plan, title=title, measured=_path(measured), what_ifs=what_ifs,
        figures=_path(figures), formats=tuple(formats), tables=_path(tables), force=force, jobs=jobs, progress=progress,
    )  # fmt: skip


@checked
def models() -> Catalogue:
    """The workloads, clusters and devices that a scenario can name with ``use``.

    Examples
    --------
    >>> found = models()
    >>> found["ethernet-25g"].kind, found["ethernet-25g"].file.name
    ('cluster', 'ethernet-25g.toml')
    """
    from paceline.catalogue import Catalogue

    return Catalogue()


@checked
def schema(format: Format | None = None) -> dict[str, Any]:  # noqa: A002
    """The JSON Schema of a file format, or of all by their names.

    A quantity may be given as text with a unit under its short name (``latency = "20 us"``)
    or as a number under its full name (``latency_s = 2e-5``).

    Parameters
    ----------
    format
        ``"scenario"``, ``"workload"``, ``"cluster"``, ``"device"``, ``"result"`` or ``"testbed-setting"``; None: all of them.

    Examples
    --------
    >>> sorted(schema()), schema("cluster")["title"]
    (['cluster', 'device', 'result', 'scenario', 'testbed-setting', 'workload'], 'Cluster')
    """
    from paceline.catalogue import schema_of, schemas

    return schemas() if format is None else schema_of(format)


@checked
def calibrate(
    model: Function = None,
    *,
    name: Name,
    step: Function = None,
    from_measurements: Annotated[Sequence[str | Path], MustBe("a list of measurement files")] = (),
    batches: Annotated[Sequence[int], MustBe("a list of batch sizes, such as [16, 32, 64]")] = (16, 32, 64),
    steps: Count = 50,
    runs: Count = 3,
    at_once: Annotated[int, Field(ge=1), MustBe("a whole number from 1 on")] = 1,
    launches: Count = 5,
    accept_disturbed: bool = False,
    device: Annotated[str, MustBe("text such as 'CPU' or 'GPU:1'")] | None = None,
    precision: Precision = "float32",
    jit: bool = False,
    python: Python = None,
    timeout_s: Timeout = 1800.0,
    measurements: Folder = "measurements",
    out: File | None = None,
    command: Text = "",
    progress: Stages = None,
) -> Workload:
    """Measure a real training step on the device at hand, and fit a workload to it; or fit what was measured before.

    TensorFlow runs in child processes; raw measurements are kept and never overwritten. Warns of
    what makes times doubtful: a GPU that TensorFlow does not see, disturbed measurements that were accepted.

    Parameters
    ----------
    model
        ``FILE.py:FUNCTION``; FUNCTION() returns a Keras model or (model, loss, input_spec).
    name
        Of the workload: letters, digits, and ``. _ + -``.
    step
        Instead of a model a training step of your own, ``FILE.py:FUNCTION``: FUNCTION(batch_size)
        returns a callable that makes one step.
    from_measurements
        Instead of measuring: the measurement files of an earlier calibration, all that belong to it.
    batches
        Batch sizes to measure, at least two.
    steps
        Timed steps at each batch size, in each run.
    runs
        Processes to measure in, one after the other; they differ more than steps do.
    at_once
        Processes to measure at the same time as well, each on cores of its own, which shows
        how much of the spread between processes those of one machine have in common, and how
        much longer a step takes while other cores are busy; 1 measures none. CPUs only: elsewhere
        it is left out, with a warning.
    launches
        How often they are started together; fewer than 5 tell little.
    accept_disturbed
        Fit measurements that other processes have disturbed, and runs at different levels,
        with a warning, also in ``provenance["disturbed"]``, instead of refusing.
    device
        ``"CPU"``, ``"GPU"`` or ``"GPU:1"``; None takes the first GPU, else the CPU.
    precision
        ``"float32"`` or ``"mixed_float16"``.
    jit
        Compile the step with XLA.
    python
        A Python that has TensorFlow and the model's packages; None takes this one.
    timeout_s
        Seconds after which a run is given up.
    measurements
        Folder for raw measurements.
    out
        A workload file to write as well, such as ``models/workloads/NAME.toml``, which
        scenarios then ``use``.
    command
        What made it, for ``provenance["command"]``; left out: this call.
    progress
        Called with what is done, what there is in all, and what is counted: steps, then launches at once.

    Raises
    ------
    InputError
        An argument cannot be used, or the file or function does not exist.
    MeasurementsError
        A file of ``from_measurements`` is damaged, given twice, or too little to be fitted.
    CalibrationError
        The child process failed, or what it measured cannot be fitted or trusted.
    KeyboardInterrupt
        Ctrl-C; its text says what of the measurements is kept, and where.

    Examples
    --------
    >>> calibrate("no_such_file.py:build", name="mine")
    Traceback (most recent call last):
        ...
    simulator.errors.InputError: `model`: no_such_file.py: there is no such file; check the path
    """
    from calibrate import fit_workload, write_workload
    from calibrate.calibration import calibrate_step

    target = step if model is None else model
    if sum((model is not None, step is not None, bool(from_measurements))) != 1:
        raise InputError("give one of `model`, `step` and `from_measurements`: what is to be measured, or what was")
    if from_measurements and at_once > 1:
        raise InputError(f"`at_once={at_once}`: nothing is measured where `from_measurements` is given; leave it out")
    path = None if out is None else check_writable(Path(out))
    made_by = command or f"paceline.calibrate({target or [str(file) for file in from_measurements]!r}, name={name!r})"
    if target is None:
        files = [Path(file) for file in from_measurements]
        workload = fit_workload(files, name, made_by, accept_disturbed=accept_disturbed, stored=True)
    else:
        workload = calibrate_step(
            target, name, command=made_by, custom=model is None, batches=sorted(batches), steps=steps, runs=runs, at_once=at_once,
            launches=launches, accept_disturbed=accept_disturbed, device=device, precision=precision, jit=jit, python=python,
            timeout_s=timeout_s, folder=Path(measurements), progress=progress,
        )  # fmt: skip
    _warn_of_measurements(workload.provenance)
    if path is not None:
        write_workload(workload, path)
    return workload


@checked
def read_profiles(
    profiles: ProfilePlaces, *, profile_run: Text | None = None, python: Python = None, timeout_s: Timeout = 1800.0
) -> Profiled:
    """Read profiles that tf.profiler or the TensorBoard callback wrote, and tell what a training step in them consists of.

    Parameters
    ----------
    profiles
        By the samples of a step: a TensorBoard log directory, the folder of one run, an
        ``.xplane.pb`` file, or a list of these.
    profile_run
        Name of the profiling run in each log directory; None takes the newest.
    python
        A Python that has TensorFlow, whose classes read the files; None takes this one.
    timeout_s
        Seconds after which reading is given up.

    Returns
    -------
    Profiled
        ``reports``: for each batch size the parts of a step, in seconds; ``to_frame()`` has a row for each.

    Raises
    ------
    InputError
        There is no profile, or it cannot be read.
    CalibrationError
        It has no steps, or that Python has no TensorFlow.

    Examples
    --------
    >>> read_profiles({32: "no/such/folder"})
    Traceback (most recent call last):
        ...
    simulator.errors.InputError: `profiles`: 'no/such/folder': there is no such file or folder; check the path
    """
    from calibrate.xplane.profiles import read_steps

    places = [(Path(place), batch) for batch, its in profiles.items() for place in ([its] if isinstance(its, (str, Path)) else its)]
    return read_steps(places, profile_run, python, timeout_s)


@checked
def calibrate_profile(
    profiles: Profiles,
    *,
    name: Name,
    model: Function = None,
    checkpoint: File | None = None,
    variables: File | None = None,
    profile_run: Text | None = None,
    precision: Precision = "float32",
    python: Python = None,
    timeout_s: Timeout = 1800.0,
    out: File | None = None,
    command: Text = "",
) -> Workload:
    """Fit a workload to profiles of a training that has been run; nothing is measured.

    Profiles do not tell the sizes of the model's variables: give one of ``model``, ``checkpoint`` and ``variables``.

    Parameters
    ----------
    profiles
        As for :func:`read_profiles`, or what it has read. From one batch size alone, all time counts as the samples'.
    name
        Of the workload.
    model
        ``FILE.py:FUNCTION`` that returns the Keras model; it is built, not run.
    checkpoint
        A checkpoint (prefix or folder), a SavedModel's folder, or a ``.keras`` file.
    variables
        A JSON file: ``[{"name": "dense/kernel", "shape": [784, 10], "dtype": "float32"}, ...]``, as created.
    profile_run, python, timeout_s
        As for :func:`read_profiles`.
    precision
        ``"float32"`` or ``"mixed_float16"``, which a profile does not tell either.
    out
        A workload file to write as well.
    command
        What made it, for ``provenance["command"]``; left out: this call.

    Returns
    -------
    Workload
        What the profiles could not tell stands in its ``provenance``, by subject.

    Raises
    ------
    InputError
        A profile cannot be used, or nothing tells the sizes of the variables.
    CalibrationError
        The profiles have no steps, or what was asked of that Python failed.

    Examples
    --------
    >>> calibrate_profile({32: "no/such/folder"}, name="mine", variables="variables.json")
    Traceback (most recent call last):
        ...
    simulator.errors.InputError: `profiles`: 'no/such/folder': there is no such file or folder; check the path
    """
    from calibrate import write_workload
    from calibrate.calibration import calibrate_profile as fit

    path = None if out is None else check_writable(Path(out))
    profiled = (
        read_profiles(profiles, profile_run=profile_run, python=python, timeout_s=timeout_s) if isinstance(profiles, Mapping) else profiles
    )
    workload = fit(
        profiled, name, model=model, checkpoint=None if checkpoint is None else Path(checkpoint),
        variables=None if variables is None else Path(variables), precision=precision, python=python, timeout_s=timeout_s,
        command=command or f"paceline.calibrate_profile(..., name={name!r})",
    )  # fmt: skip
    if path is not None:
        write_workload(workload, path)
    return workload


@checked
def calibrate_link(
    name: Name,
    *,
    peer: Address | None = None,
    sizes: Annotated[Sequence[int], MustBe("a list of message sizes in bytes, such as [1024, 1048576]")] | None = None,
    rounds: Annotated[int, Field(ge=2), MustBe("a whole number from 2 on")] = 7,
    python: Python = None,
    timeout_s: Timeout = 900.0,
    measurements: Folder = "measurements",
    out: File | None = None,
    command: Text = "",
    progress: Stages = None,
) -> Cluster:
    """Measure a link through TensorFlow's own gRPC transport, and fit latency and bandwidth.

    Parameters
    ----------
    name
        Of the cluster: letters, digits, and ``. _ + -``.
    peer
        ``HOST:PORT`` where :func:`serve_link` runs on another host, which must be able to connect
        back to this one. None measures between two processes of this machine, in a network
        namespace that nobody else can reach; with GPUs also copies between host and device, and all-reduce.
    sizes
        Bytes of the messages, at least two sizes; None takes 1 KiB to 64 MiB.
    rounds
        How often each size is measured, in turn.
    python
        A Python that has TensorFlow; None takes this one.
    timeout_s
        Seconds after which measuring is given up.
    measurements
        Folder for raw measurements.
    out
        A cluster file to write as well, such as ``models/clusters/NAME.toml``, which scenarios then ``use``.
    command
        What made it, for ``provenance["command"]``; left out: this call.
    progress
        Called with transfers done and in all, and ``"transfers"``.

    Returns
    -------
    Cluster
        ``inter_node`` with latency in seconds and bandwidth in bytes per second, and their 90% intervals in ``fit``.

    Raises
    ------
    InputError
        An argument cannot be used.
    CalibrationError
        The peer cannot be reached, a process failed, or what was measured is too little to be fitted.
    KeyboardInterrupt
        Ctrl-C; its text says what of the measurements is kept, and where.

    Examples
    --------
    >>> calibrate_link("lab", peer="10.0.0.2")
    Traceback (most recent call last):
        ...
    simulator.errors.InputError: `peer`: '10.0.0.2': must be HOST:PORT, such as 10.0.0.2:2222
    """
    from calibrate import write_cluster
    from calibrate.calibration import calibrate_link as measure
    from calibrate.profiling import DEFAULT_SIZES

    path = None if out is None else check_writable(Path(out))
    cluster = measure(
        name, peer=peer, sizes=sizes or DEFAULT_SIZES, rounds=rounds, python=python, timeout_s=timeout_s, folder=Path(measurements),
        progress=progress, command=command or f"paceline.calibrate_link({name!r})",
    )  # fmt: skip
    _warn_of_measurements(cluster.provenance)
    if path is not None:
        write_cluster(cluster, path)
    return cluster


@checked
def serve_link(
    address: Address, *, python: Python = None, ready: Annotated[Callable[[], None] | None, MustBe("a function")] = None
) -> None:
    """Be the other half of :func:`calibrate_link` on this host, until Ctrl-C; returns never.

    TensorFlow's server listens on all interfaces of the host, whatever address it is given, and
    who reaches it can run code: use it in a trusted network only.

    Parameters
    ----------
    address
        ``HOST:PORT`` of this host, as the other one reaches it.
    python
        A Python that has TensorFlow; None takes this one.
    ready
        Called when it can be measured with.

    Raises
    ------
    InputError
        The address is none, or there is no such Python.
    CalibrationError
        The server could not be started: the port is taken, say.
    KeyboardInterrupt
        Ctrl-C; the server is stopped first.

    Examples
    --------
    >>> serve_link("10.0.0.2")
    Traceback (most recent call last):
        ...
    simulator.errors.InputError: `address`: '10.0.0.2': must be HOST:PORT, such as 10.0.0.2:2222
    """
    from calibrate.profiling import serve_link as serve

    serve(address, python, ready)


@checked
def read_tf_config(tf_config: Text) -> TfCluster:
    """Read a cluster as TensorFlow knows it.

    Parameters
    ----------
    tf_config
        ``"env"`` for the environment variable TF_CONFIG; or JSON that begins with a brace, or the path
        of a file with such JSON: a TF_CONFIG, or a ClusterSpec alone.

    Raises
    ------
    InputError
        It is no JSON or no cluster, an address is wrong or used twice, or nobody trains.

    Examples
    --------
    >>> read_tf_config('{"cluster": {"worker": ["h1:2222", "h2:2222"], "ps": ["h3:2222"]}}').strategy
    'parameter-server'
    """
    from calibrate.tf_config import read_tf_config as read

    return read(tf_config)


@checked
def scenario_of_tf_config(
    tf_config: TfConfig,
    *,
    workload: Text,
    batch: Count,
    cluster: Text = "ethernet-25g",
    devices_per_worker: Count = 1,
    out: File | None = None,
) -> Scenario:
    """A scenario of the cluster that a TF_CONFIG describes.

    Parameters
    ----------
    tf_config
        As for :func:`read_tf_config`, or what it has read.
    workload
        A workload of the catalogue, or the path of its file.
    batch
        Samples that each replica takes a step.
    cluster
        Hardware and links, of which addresses tell nothing: a cluster of the catalogue, or a file.
    devices_per_worker
        Devices, so replicas, that each worker drives.
    out
        A scenario file to write as well, with remarks on what a TF_CONFIG leaves open; it must not exist yet.

    Raises
    ------
    InputError
        The TF_CONFIG cannot be used, a number is below 1, or ``out`` exists or cannot be written.
    ScenarioError
        The scenario breaks a rule, or names a workload or cluster that there is not.

    Examples
    --------
    >>> scenario = scenario_of_tf_config('{"cluster": {"worker": ["h1:2222", "h2:2222"]}}', workload="cnn-cpu", batch=32)
    >>> scenario.replicas, scenario.strategy.kind
    (2, 'multi-worker-mirrored')
    """
    from calibrate.tf_config import scenario_of, scenario_text

    path = None if out is None else check_new(Path(out))
    tasks = read_tf_config(tf_config) if isinstance(tf_config, str) else tf_config
    text = scenario_text(tasks, workload, batch, cluster, devices_per_worker)
    scenario = scenario_of(text, str(path or "`tf_config`"), None if path is None else path.parent)
    if path is not None:
        write_whole(path, text)
    return scenario


@checked
def testbed(
    setting: TestbedSource = None,
    settings: Settings = (),
    *,
    repeats: Annotated[int, Field(ge=1, le=1000), MustBe("a whole number from 1 to 1,000")] = 3,
    seed: Seed = 0,
    python: Annotated[str, MustBe("the path of a Python")] | None = None,
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False), MustBe("a number of seconds above 0")] = 600.0,
    measurements: Folder = "measurements",
    progress: Annotated[Callable[[int, int], None] | None, MustBe("a function")] = None,
) -> TestbedRun:
    """Start a real TensorFlow cluster on this machine, train on it, and measure every step.

    Workers and parameter servers are processes in network namespaces that nobody else can
    reach. Nothing of it is left behind, however it ends; raw measurements are kept, and never
    overwritten.

    Parameters
    ----------
    setting
        What runs: a TOML file, nested tables as it has them, or None: 4 asynchronous workers of
        ``ladder-1mb`` and a parameter server on links of 400 Mbit/s, with compute that is drawn
        from an exponential law of 100 ms.
    settings
        Values by dotted key of :class:`calibrate.testbed.setting.TestbedSetting`, quantities as text
        with a unit, such as ``{"workers": 8, "link.bandwidth": "1 Gbit/s"}``. ``link = "loopback"`` needs
        no root. ``model`` is a synthetic one (``"ladder-4mb"``), ``"FILE.py:FUNCTION"`` or a workload.
    repeats
        How often it is run; each repeat starts a new cluster.
    seed
        Of emulated compute and of staggered starts.
    python
        A Python that has TensorFlow; None takes this one.
    timeout_s
        Seconds after which a repeat is given up.
    measurements
        Folder for raw measurements; each call adds a file.
    progress
        Called with repeats done and repeats in all.

    Returns
    -------
    TestbedRun
        Updates/s and samples/s of each repeat with the 90% interval of the next, staleness, where a
        step's time goes, bytes and CPU seconds of each job.

    Warns
    -----
    PacelineWarning
        Links cannot be shaped here and none were asked for: the run is on loopback.

    Raises
    ------
    InputError
        One line for each rule broken, with file and dotted key; or this machine cannot run it.
    CalibrationError
        A task died or hung. Whole repeats are kept; a note of the error says where.

    Examples
    --------
    >>> testbed(settings={"workers": 0})
    Traceback (most recent call last):
        ...
    simulator.errors.ScenarioError: setting: workers: 0 must be at least 1
    """
    from calibrate.testbed.loading import load_setting
    from calibrate.testbed.model import describe_model
    from calibrate.testbed.running import measure_setting, on_available_links
    from calibrate.testbed.summary import TestbedRun

    pairs = pairs_of(settings)
    chosen = setting is not None or any(key.partition(".")[0] == "link" for key, _ in pairs)
    loaded = load_setting(setting, pairs, lambda model, batch: describe_model(model, python, batch))
    source = str(setting) if isinstance(setting, (str, Path)) else "setting"
    return TestbedRun.of(
        measure_setting(
            on_available_links(loaded, source, chosen=chosen), Path(measurements), repeats=repeats, seed=seed, timeout_s=timeout_s,
            python=python, progress=None if progress is None else lambda done, total, _: progress(done, total),
        )
    )  # fmt: skip


@checked
def testbed_read(file: File) -> TestbedRun:
    """Read what :func:`testbed` has measured; whole repeats of a run that failed, or was stopped, are read too.

    Parameters
    ----------
    file
        Of raw measurements.

    Raises
    ------
    InputError
        It is not there, is damaged, is no testbed run, or holds no whole repeat.

    Examples
    --------
    >>> testbed_read("nowhere.ndjson")
    Traceback (most recent call last):
        ...
    simulator.errors.InputError: nowhere.ndjson: cannot be read: No such file or directory; check the path
    """
    from calibrate.testbed.summary import TestbedRun

    try:
        return TestbedRun.read(Path(file))
    except CalibrationError as error:  # no run has failed: the file is not one to be read
        raise InputError(str(error)) from None


@checked
def testbed_fit(
    files: Annotated[Sequence[str | Path], MustBe("a list of files of measurements")],
    *,
    name: Text = "testbed",
    out: File | None = None,
    seed: Seed = 0,
    progress: Progress = None,
) -> Platform:
    """Fit what this machine and TensorFlow cost beyond bytes and compute, from small runs of :func:`testbed`.

    Each parameter gets a 90% interval and a sentence on what determines it. One that the runs do
    not determine keeps a documented prior, and is marked.

    Parameters
    ----------
    files
        Of raw measurements: emulated compute of a constant law, 1 worker in the modes with servers, 2
        in a ring. At least two sizes of the model; links and loopback where both are to be predicted.
    name
        Of the machine.
    out
        A file (JSON) to write the parameters to as well, which :func:`testbed_predict` reads.
    seed
        Of the joint draws that hold what the fit leaves open.
    progress
        Called with what is done and what there is in all.

    Warns
    -----
    PacelineWarning
        A file cannot be read and is left out.

    Raises
    ------
    InputError
        No file can be fitted, or ``out`` cannot be written.

    Examples
    --------
    >>> testbed_fit([])
    Traceback (most recent call last):
        ...
    simulator.errors.InputError: `files`: none of them can be fitted; measure with `paceline testbed run`
    """
    from calibrate.testbed.fitting import fit_platform
    from calibrate.testbed.platform import Platform
    from calibrate.testbed.readings import read_run

    if out is not None:
        Platform.check_replaceable(Path(out))
    readings = []
    for path in map(Path, files):
        try:
            readings.append(read_run(path))
        except CalibrationError as error:  # such as a run that was stopped
            warnings.warn(PacelineWarning(f"left out: {error}"), stacklevel=3)  # through the check of the arguments
    if not readings:
        raise InputError("`files`: none of them can be fitted; measure with `paceline testbed run`")
    following = None if progress is None else lambda done, total, _: progress(done, total)
    try:
        platform = fit_platform(readings, name, readings[0].cores, seed=seed, progress=following)
    except CalibrationError as error:  # nothing has failed: the files are not the ones that are needed
        raise InputError(f"{', '.join(map(str, files[:3]))}: {error}") from None
    if out is not None:
        platform.write(Path(out))
    return platform


@checked
def testbed_predict(
    platform: Annotated[str | Path | InstanceOf[BaseModel], MustBe("a file as `paceline.testbed_fit` writes it, or what it returns")],
    setting: TestbedSource = None,
    settings: Settings = (),
    *,
    replications: Annotated[int, Field(ge=19, le=10_000), MustBe("a whole number from 19 to 10,000")] = 59,
    seed: Seed = 0,
    python: Annotated[str, MustBe("the path of a Python")] | None = None,
) -> Prediction:
    """Predict what :func:`testbed` would measure in a setting, without running it.

    Parameters
    ----------
    platform
        The machine's parameters: what :func:`testbed_fit` returned, or the file that it wrote.
    setting, settings
        As for :func:`testbed`; compute must be emulated.
    replications
        Simulated runs, each with its own draw of what the fit leaves open.
    seed
        Of the simulation.
    python
        A Python in which a model ``FILE.py:FUNCTION`` can be built, for its variables; None takes this one.

    Returns
    -------
    Prediction
        Updates/s and samples/s with the 90% interval of one run, and staleness.

    Raises
    ------
    InputError
        One line for each rule broken; or the file holds no parameters.

    Examples
    --------
    >>> from calibrate.testbed.platform import MEANINGS, Parameter, Platform
    >>> unmeasured = Platform(name="any", cores=2, parameters={name: Parameter.prior(name) for name in MEANINGS})
    >>> slow = testbed_predict(unmeasured, settings={"mode": "between-graph", "workers": 2, "steps": 10}, replications=19)
    >>> fast = testbed_predict(
    ...     unmeasured, settings={"mode": "between-graph", "workers": 2, "steps": 10, "compute.mean": "20 ms"}, replications=19
    ... )
    >>> slow.updates_per_s.mean < fast.updates_per_s.mean, slow.undetermined[0]
    (True, 'session_s')
    """
    from calibrate.testbed.loading import load_setting
    from calibrate.testbed.model import describe_model
    from calibrate.testbed.platform import Platform
    from calibrate.testbed.prediction import predict_setting

    fitted = platform if isinstance(platform, Platform) else Platform.read(Path(str(platform)))
    loaded = load_setting(setting, pairs_of(settings), lambda model, batch: describe_model(model, python, batch))
    if loaded.compute.kind == "real":
        raise InputError(
            "compute.kind: 'real': how long it takes is not known without a run; set a mean and a law, or compare in a matrix "
            "(`paceline validate`)"
        )
    return predict_setting(loaded, fitted, replications=replications, seed=seed)


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
    agree: Asking = None,
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
        As for :func:`simulate`.
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
    out_scenario: File | None = None,
    thresholds: Thresholds = None,
    out: File | None = None,
    markdown: File | None = None,
    rows: File | None = None,
    force: bool = False,
    agree: Asking = None,
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
    agree_to_sweep(scenarios, range(len(scenarios)), agree, jobs=0)
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
            raise InputError(f"`out_matrix`: {str(target)!r}: is there already; overwrite it with `force=True`, or choose another")
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
    agree: Asking = None,
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
    thresholds, out, markdown, rows, force, agree, command, progress
        As for :func:`validate`.

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
        Platform.check_replaceable(Path(platform))
    folder = Path(measurements)
    pending = pending_settings(chosen, folder)
    check_matrix(chosen, pending, folder, python=python, timeout_s=timeout_s)
    about = (
        f"{len(chosen.fit)} settings to fit, {len(chosen.held_out)} held out, {chosen.repeats} repeats each; raw measurements go to "
        f"{folder}, and what is there already is used"
    )
    agree_to_measure(about, sum(guessed_run_s(one, chosen.repeats) for one in pending), agree)
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
    return [file for file in (_file_of(scenario), Path(measured)) if file is not None]


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


def _file_of(scenario: Any) -> Path | None:
    """The file that a scenario is read from; None where it is none."""
    return scenario_file(scenario) if isinstance(scenario, (str, Path)) else None


def _writable(out: str | Path | None, scenario: Any) -> Path | None:
    """A results file to write, if there is to be one; its folder is made.

    Raises
    ------
    InputError
        It cannot be written, or is the file of the scenario.
    """
    return None if out is None else check_writable(Path(out), reads=_file_of(scenario))


def _warn_of_measurements(provenance: Mapping[str, str]) -> None:
    """That a GPU of this machine was not used, or that disturbed measurements were fitted."""
    for key, hint in _HINTS.items():
        if key in provenance:
            warnings.warn(f"{provenance[key]}; {hint}", CalibrationWarning, stacklevel=4)  # through the check of the arguments
