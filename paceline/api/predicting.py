"""What a training does on a cluster: one scenario, grids of them, plans, and reports on all of these."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from paceline.arguments import (
    Answer,
    Asking,
    Backend,
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
    Steps,
    Text,
    checked,
    file_of,
    instance_of,
    path_of,
    writable,
)  # fmt: skip

if TYPE_CHECKING:
    from paceline.comparing import Comparison
    from paceline.observing import Observation
    from paceline.planning.advice import Advice
    from paceline.planning.answer import Plan
    from paceline.reporting.report import Report
    from paceline.sweeping import Sweep
    from simulator.memory import Memory
    from simulator.program.printing import Printed
    from simulator.results.results import Result
    from simulator.scenario import Scenario
else:
    Plan = instance_of("paceline.planning.answer", "Plan")

__all__ = ["compare", "load", "memory", "observe", "plan", "preview", "report", "simulate", "sweep"]


@checked
def load(scenario: Source, settings: Settings = (), *, prices: Prices = None) -> Scenario:
    """Load a scenario, change some of its keys, and check it.

    Parameters
    ----------
    scenario
        The path of a file; the name of a scenario that comes with Paceline (``"ring"``, ``"async-ps"``, ...);
        nested tables as a file has them; or a scenario that is loaded already.
    settings
        Values by dotted key, quantities as text with a unit. None unsets a key: its default holds
        again. ``workload``, ``cluster`` or ``strategy`` as a whole may be set to a loaded or calibrated
        one. A new ``strategy.kind`` (or another kind, or mode) drops the keys that it does not have,
        and one of two keys that exclude each other replaces the other; a warning names what is dropped.
    prices
        As for :func:`plan`.

    Returns
    -------
    Scenario
        Frozen, with all quantities in seconds, bytes and bytes per second.

    Raises
    ------
    ScenarioError
        One line for each rule broken, with file and dotted key.
    InputError
        A price cannot be read, or is for a cluster that the scenario does not have.

    Warns
    -----
    SettingWarning
        A setting excludes keys of the scenario; these are left out.

    Examples
    --------
    >>> scenario = load("ring", {"strategy.workers": 16, "cluster.inter_node.bandwidth": "10 Gbit/s"})
    >>> scenario.replicas, scenario.cluster.inter_node.bandwidth_bytes_per_s
    (16, 1250000000.0)
    >>> load(scenario, {"strategy.workers": 2}).replicas
    2
    """
    return _loaded(scenario, settings, prices)


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
        Receives every record of the first replication, for a trace or an audit.
    progress
        Called with the number of replications done, the share of the present one included, and the number of all: after each
        replication, and in long ones after every some thousand steps.
    agree
        Called with a :class:`~paceline.lengthy.Lengthy` before a simulation that takes hours; it raises if it is not to start.
        None: it starts.

    Returns
    -------
    Result
        Throughput, staleness, step times, bottleneck, and their intervals. The same scenario gives the same result, except for
        ``wall_time_s``.

    Raises
    ------
    ScenarioError
        One line for each rule broken, with file and dotted key.
    SimulationError
        The simulation came to an impossible state, such as a deadlock.

    Examples
    --------
    >>> result = simulate("ring", {"strategy.workers": 4, "run.steps": 10, "run.replications": 3})
    >>> result.scaling_efficiency.mean < 1, result.bottleneck.name, len(result.to_frame())
    (True, 'compute', 1)
    """
    from paceline.lengthy import agree_to_one
    from simulator.run import simulate as run

    loaded = _loaded(scenario, settings, prices)
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
    force: bool = False,
    progress: Steps = None,
    agree: Asking = None,
) -> Observation:
    """Simulate one scenario, and write down what its first replication did.

    Parameters
    ----------
    scenario, settings, prices, progress, agree
        As for :func:`simulate`.
    trace
        Write a Chrome trace to this file, with arrows for messages and the critical path of a step. Open it
        at ui.perfetto.dev or chrome://tracing. A trace of Paceline that is there is replaced.
    tensorboard
        Write scalars and histograms, step by step, into this folder. Open it with ``tensorboard --logdir``.
        A run of Paceline that is there is replaced.
    audit
        Check every law that a sound simulation obeys.
    force
        Replace files that are nothing of the kind.

    Returns
    -------
    Observation
        The ``result``, the ``laws`` that were checked, and a sentence on what bounds a step.

    Raises
    ------
    ScenarioError, SimulationError
        As of :func:`simulate`.
    InputError
        A file cannot be written, is the scenario's own, or is there already and something else.
    InvariantError
        A law is broken; the message names law and event.

    Examples
    --------
    >>> seen = observe("ring", {"strategy.workers": 2, "run.steps": 5, "run.replications": 3}, audit=True)
    >>> seen.result.replicas, "parts_sum_to_the_step" in seen.laws
    (2, True)
    """
    from paceline.lengthy import agree_to_one
    from paceline.observing import observe as look

    loaded = _loaded(scenario, settings, prices)
    agree_to_one(loaded, agree)
    return look(
        loaded, trace=path_of(trace), tensorboard=path_of(tensorboard), audit=audit, reads=file_of(scenario), force=force,
        progress=progress,
    )  # fmt: skip


@checked
def preview(scenario: Source, settings: Settings = (), *, prices: Prices = None) -> Printed:
    """Show what would be simulated: links, ranks, the operations of a step, and rules. Nothing is simulated.

    Parameters
    ----------
    scenario, settings, prices
        As for :func:`load`.

    Returns
    -------
    Printed
        The ``program``, with mean seconds of its passes. ``paceline simulate --program`` prints it.

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

    return made(_loaded(scenario, settings, prices))


@checked
def memory(scenario: Source, settings: Settings = ()) -> Memory:
    """Show what a device holds while it trains, part by part, and whether that fits. Nothing is simulated.

    Parameters
    ----------
    scenario, settings
        As for :func:`load`.

    Returns
    -------
    Memory
        A table with a row for each stage of a pipeline (one row where there is none); ``free_bytes``, ``largest_batch``
        (samples of a replica), and in ``refused`` and ``not_checked`` why it does not fit, or why that is not known.

    Raises
    ------
    ScenarioError
        One line for each rule broken.

    Examples
    --------
    >>> found = memory("ring", {"cluster.use": "p3.16xlarge", "training.optimizer": "adam"})
    >>> round(found.tightest.need_bytes / 2**20), found.largest_batch, found.not_checked
    (1057, None, "the workload 'cnn-cpu' has neither layers nor measured peak memory")
    """
    from simulator.memory import memory as made
    from simulator.spec.plausible import warn_of_implausible

    loaded = _loaded(scenario, settings)
    warn_of_implausible(loaded)
    return made(loaded)


@checked
def compare(ours: Answer, theirs: Answer) -> Comparison:
    """Compare the throughput of two results, run by run where both drew the same random numbers.

    Parameters
    ----------
    ours, theirs
        Two results, such as two of a sweep.

    Returns
    -------
    Comparison
        ``ratio``: throughput of ours over that of theirs, mean and 90% prediction interval. ``wins``
        and ``losses``: in how many of the ``runs`` ours was faster or slower. ``runs`` is 0 where the two
        differ in seed or number of replications; the interval is then as wide as both results' intervals allow.

    Examples
    --------
    >>> short = {"strategy.workers": 4, "run.steps": 10}
    >>> slow, fast = (simulate("ring", {**short, "cluster.use": name}) for name in ("ethernet-1g", "ethernet-25g"))
    >>> found = compare(fast, slow)
    >>> found.wins, found.runs, found.ratio.low > 1
    (19, 19, True)
    """
    from paceline.comparing import compare as held_against

    return held_against(ours, theirs)


@checked
def sweep(
    scenario: Source,
    over: Over,
    settings: Settings = (),
    *,
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
    """Simulate a scenario with every combination of some values.

    Parameters
    ----------
    scenario
        As for :func:`load`.
    over
        Lists of values by dotted key, or a range of whole numbers such as ``"1..8"``. The last key changes fastest.
    settings
        Keys to set in all combinations.
    prices
        As for :func:`plan`.
    out
        A results file with one line per scenario. Lines are written as they come: after an
        interruption the same call goes on where it was. None keeps results in memory only.
    jobs
        Processes, or tasks at a time; 0 takes all cores. Results do not depend on it.
    backend, scheduler
        Where scenarios are simulated: on this machine, or on a Dask or Ray cluster at the address ``scheduler``.
    force
        Replace ``out`` and the files beside it, whatever they are; results of this very sweep are kept.
    retry_failed
        Simulate again what failed in an earlier run.
    progress
        Called with the number of scenarios done and of all.
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
        An argument is of the wrong kind; ``out`` cannot be written, or is the scenario's own file; or the Dask or Ray cluster
        cannot be used.

    Examples
    --------
    >>> swept = sweep("ring", {"strategy.workers": [1, 4]}, settings={"run.steps": 10, "run.replications": 3}, jobs=1)
    >>> [result.replicas for result in swept]
    [1, 4]
    >>> swept.to_frame()["scaling_efficiency"].tolist()[0]
    1.0
    """
    from paceline.lengthy import agree_to_sweep
    from paceline.sweeping import axes_of, grid
    from paceline.sweeping import sweep as run
    from simulator.catalogue.loading import pairs_of
    from simulator.spec.prices import parse_prices

    file = writable(out, scenario)
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
    dataset_size: Annotated[float, MustBe("a number, such as 1.28e6")] | None = None,
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
    batches: Counts = None,
    runs_on: Annotated[Sequence[str], MustBe("a list of names, such as ['tensorflow']")] = (),
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
    """Find the cheapest, fastest or smallest configuration that reaches a goal.

    The goal is a throughput; or a number of samples (and epochs) within a deadline, a budget, or both.

    Parameters
    ----------
    scenario
        As for :func:`load`.
    target_throughput
        Throughput to reach, such as ``"20000 samples/s"``, or a number of samples per second.
    samples, epochs
        Samples of the data set, and how often all of them are trained on; None: as the scenario's ``[job]`` says, else once.
        Where the scenario has a ``[job]``, an ``[input]`` or measured overheads, time and cost are those of the whole job.
    dataset_size
        The same as ``samples``.
    deadline
        Time within which the training must end, such as ``"12 h"``, or a number of seconds.
    budget
        What it may cost, such as ``"500 USD"``, or a number of US dollars; of machines whose price is a purchase, what they may cost to
        buy.
    confidence
        Share of real runs that must reach the goal, between 0 and 1.
    prefer
        What is best among all that reach the goal; None: the fastest where only a budget is given,
        else the cheapest.
    clusters
        Clusters to choose from: names of the catalogue, or paths of files; none: the scenario's own.
    over
        Further values to choose from, by dotted key.
    strategies
        Strategies to choose from, by short names such as ``"ring"``, ``"sync-ps"``, ``"async-ps"``. For a workload with layers also
        ``"pipeline"`` and ``"hybrid"``, each of which spans degrees (docs/planning.md). None given: the scenario's own, and for a
        workload with layers all that cut it.
    workers, servers
        A range ``"1..64"``, of which no more are simulated than needed, or a list.
    scaling
        ``"weak"``: each replica keeps its batch. ``"strong"``: all replicas together keep theirs. None: as
        the scenario has it.
    batches
        Batches to choose from, where a larger one is allowed: a range ``"16..512"``, of which 16, 32, 64 and so on and its end are
        taken, or a list; samples of each replica with weak scaling, of all together with strong. None: as the scenario has it.
    runs_on
        Take only what one of these runs as it comes: ``"tensorflow"``, ``"horovod"``, ``"pytorch"``, ``"deepspeed"``,
        ``"megatron-lm"``; none: whatever runs it.
    settings
        Keys to set in all configurations, whatever their cluster. Buckets are chosen by the plan, unless ``strategy.bucket_size``
        is among these, or in ``over``.
    prices
        Price of a node per hour, by the name of its cluster or the path of its file: ``"0.40/h"``, a
        number of US dollars, a :class:`~simulator.spec.cluster.Price`, or for machines that you own
        ``"BUY:4000USD,years:4,power:0.5kW"`` (also ``electricity:0.30USD/kWh``, ``use:0.6`` of all
        hours). A price alone, or under ``"*"``, is for every cluster that has none.
    out
        A results file ``NAME.ndjson`` for what is simulated; an interrupted plan goes on in it. The answer
        is written beside it, as ``NAME.plan.json``, in place of an earlier one. :func:`report` takes both.
    jobs, backend, scheduler, force, progress, agree
        As for :func:`sweep`. The answer does not depend on them.

    Returns
    -------
    Plan
        The answer: ``chosen`` and the runners-up, with time in seconds and cost in US dollars, and ``why``. Where nothing meets
        the goal, ``feasible`` is False and ``chosen`` is the nearest there is.

    Raises
    ------
    InputError
        There is no goal or more than one; a range is empty; a name is unknown; a price cannot be
        read or is for none of the clusters; or no cluster has the price that a budget needs.
    ScenarioError
        No configuration is possible.

    Examples
    --------
    >>> found = plan(
    ...     "ring", target_throughput="10000 samples/s", workers=[1, 2, 4, 8], settings={"run.steps": 20}, jobs=1
    ... )
    >>> found.feasible, found.chosen.result.replicas, found.chosen.scaling
    (True, 8, 'weak')
    """
    from paceline.lengthy import agree_to_plan
    from paceline.planning import goal_of, length_of, space_of
    from paceline.planning import plan as search
    from paceline.reporting.planned import PLAN, plan_file_of
    from paceline.sweeping import axes_of
    from simulator.base.outputs import Output
    from simulator.catalogue.loading import pairs_of
    from simulator.spec.prices import parse_prices

    settings = pairs_of(settings)
    length = length_of(scenario, settings, samples=samples, epochs=epochs, dataset_size=dataset_size, rate=target_throughput is not None)
    goal = goal_of(
        target_throughput=target_throughput, samples=length.samples, epochs=length.epochs, deadline=deadline, budget=budget,
        confidence=confidence, prefer=prefer,
    )  # fmt: skip
    file = writable(out, scenario)
    beside = None if file is None else Output(plan_file_of(file), PLAN, force=force, beside=True)
    space = space_of(
        scenario, settings=length.settings, clusters=clusters, over=axes_of(over or {}), strategies=strategies, workers=workers,
        servers=servers, scaling=scaling, batches=batches, runs_on=runs_on, prices=parse_prices(prices),
    )  # fmt: skip
    agree_to_plan(space.searched_together, agree, jobs=jobs)
    answer = search(space, goal, out=file, jobs=jobs, backend=backend, scheduler=scheduler, force=force, progress=progress)
    if beside is not None:
        beside.write(answer.to_json() + "\n")
    return answer


@checked
def advise(
    scenario: Source,
    *,
    machines: Counts = None,
    strategies: Annotated[Sequence[str], MustBe("a list of names, such as ['ring', 'async-ps']")] = (),
    settings: Settings = (),
    prices: Prices = None,
    out: File | None = None,
    jobs: Jobs = 0,
    backend: Backend = "local",
    scheduler: Scheduler = None,
    force: bool = False,
    progress: Progress = None,
    agree: Asking = None,
) -> Advice:
    """Without a goal: what ways of training make of 1 to N machines, and whether more than one is worth it.

    Parameters
    ----------
    scenario
        As for :func:`load`; its strategy and its number of workers are what is varied.
    machines
        Numbers of machines: a range ``"1..16"``, of which 1, 2, 4 and so on and its end are taken, or a list. None: up to as many as
        the cluster has, else 8. Parameter servers have machines of their own among them, unless the scenario says otherwise; all
        devices of the others train.
    strategies
        Short names; none given: one device, all-reduce in a node and between nodes, parameter servers of each kind, decentralised
        training, and of a model with layers what cuts it.
    settings
        Keys to set in all configurations. Buckets are chosen for each, unless ``strategy.bucket_size`` is among these.
    prices
        As for :func:`plan`.
    out
        A results file ``NAME.ndjson`` for what is simulated; what was interrupted goes on in it.
    jobs, backend, scheduler, force, progress, agree
        As for :func:`sweep`.

    Returns
    -------
    Advice
        ``sentences`` say what to do; ``rows`` have each configuration with its result, ``to_frame()`` a row for each.

    Raises
    ------
    InputError
        A range is empty, or a name is unknown.
    ScenarioError
        No configuration is possible.

    Examples
    --------
    >>> found = advise("ring", machines=[1, 4], strategies=["single", "ring"], settings={"run.steps": 20}, jobs=1)
    >>> [(its.strategy, its.nodes) for its in found.rows], found.rows[found.best].nodes
    ([('single', 1), ('ring', 1), ('ring', 4)], 4)
    """
    from paceline.lengthy import agree_to_plan
    from paceline.planning import advise as compare_all
    from paceline.planning import space_to_advise
    from simulator.catalogue.loading import pairs_of
    from simulator.spec.prices import parse_prices

    file = writable(out, scenario)
    space = space_to_advise(scenario, settings=pairs_of(settings), machines=machines, strategies=strategies, prices=parse_prices(prices))
    agree_to_plan(space.searched_together, agree, jobs=jobs)
    return compare_all(space, out=file, jobs=jobs, backend=backend, scheduler=scheduler, force=force, progress=progress)


@checked
def report(
    source: Any,
    out: File | None = None,
    *,
    plan: Annotated[Plan | str | Path, MustBe("a plan, or the path of one that `paceline.plan` wrote")] | None = None,
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
    """Write a report of results: one HTML file that opens offline. Its figures and tables can be written as files too.

    Parameters
    ----------
    source
        A result or several, a sweep, a plan, a results file (its path, or what :func:`paceline.read_results` read),
        or several paths to compare.
    out
        The file to write; a report that is there is replaced. None: beside the (first) results file, ending in
        ``.html``, or ``report.html``.
    plan
        The plan's answer, or its path, if these are the results of a plan.
    title
        Heading of the page; empty: the workload's name.
    measured
        A CSV file of your own measurements to show beside the predictions: columns ``workers`` and
        ``throughput`` (samples/s), and where you have them ``servers``, ``staleness``, ``batch``.
    what_ifs
        Simulate the report's answer again, which takes some seconds: for the timeline of
        some of its steps, and for what one change at a time would gain.
    figures
        Write each figure as an image into this folder, in place of earlier ones; needs Chromium and this package's extra
        ``figures``.
    formats
        Formats of the images.
    tables
        Write each table as CSV into this folder, in place of tables of the same name and heading.
    force
        Replace a file at ``out`` that is no report, and files in ``figures`` and ``tables`` that are none of the kind.
    jobs
        Processes for the what-ifs; 0 takes all cores.
    progress
        Called with the number done, the number of all, and what is counted: ``"what-ifs"`` or ``"figures"``.

    Returns
    -------
    Report
        The ``path`` of the page and what else was written; ``to_frame()`` has a row for each result.

    Raises
    ------
    ResultsError
        There is no result, or a file cannot be read.
    InputError
        ``out`` cannot be written, is no report, or is one of the files that are read.
    StoppedReport
        Ctrl-C came while what-ifs were simulated; the report is written without them.

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
        source, path_of(out), plan=Path(plan) if isinstance(plan, str) else plan, title=title, measured=path_of(measured),
        what_ifs=what_ifs, figures=path_of(figures), formats=tuple(formats), tables=path_of(tables), force=force, jobs=jobs,
        progress=progress,
    )  # fmt: skip


def _loaded(scenario: Source, settings: Settings, prices: Prices = None) -> Scenario:
    from simulator.catalogue.loading import load_scenario
    from simulator.spec.prices import parse_prices

    return load_scenario(scenario, settings, parse_prices(prices))
