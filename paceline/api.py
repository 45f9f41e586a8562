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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

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
    Text,
    checked,
)
from simulator.catalog import scenario_file
from simulator.errors import InputError
from simulator.files import check_writable
from simulator.loading import load_scenario, pairs_of
from simulator.prices import parse_prices
from simulator.results import Result
from simulator.scenario import Scenario

if TYPE_CHECKING:
    from paceline.planning.answer import Plan
    from paceline.reporting.report import Report
    from paceline.sweeping import Sweep
    from simulator.workload import Workload

__all__ = ["calibrate", "compare", "load", "plan", "report", "simulate", "sweep"]


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


def _writable(out: str | Path | None, scenario: Any) -> Path | None:
    """A results file to write, if there is to be one; its folder is made.

    Raises
    ------
    InputError
        It cannot be written, or is the file of the scenario.
    """
    reads = scenario_file(scenario) if isinstance(scenario, (str, Path)) else None
    return None if out is None else check_writable(Path(out), reads=reads)
