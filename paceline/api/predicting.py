"""Library functions that predict: single scenarios, grids, plans, advice, and reports.

Parameters, defaults and docstrings are also the options and the help of the commands that predict. ``simulator``, ``paceline.sweeping``,
``planning`` and ``reporting`` do the work; this module checks arguments and passes them on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from paceline.arguments import (
    Amount,
    Answer,
    Asking,
    Backend,
    Counts,
    File,
    Folder,
    Force,
    Jobs,
    MustBe,
    Names,
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
    Typed,
    checked,
    file_of,
    instance_of,
    path_of,
    writable,
)

if TYPE_CHECKING:
    from paceline.comparing import Comparison
    from paceline.learning import Learned
    from paceline.observing import Observation
    from paceline.planning.advice import Advice
    from paceline.planning.answer import Plan
    from paceline.reporting.report import Report
    from paceline.sweeping import Sweep
    from simulator.base.records import Observer
    from simulator.memory import Memory
    from simulator.program.printing import Printed
    from simulator.results.results import Result
    from simulator.scenario import Scenario
else:
    Learned = instance_of("paceline.learning.learned", "Learned")
    Plan = instance_of("paceline.planning.answer", "Plan")


@checked
def load(scenario: Source, settings: Settings = (), *, prices: Prices = None) -> Scenario:
    """Load a scenario, change some of its keys, and check it.

    Parameters
    ----------
    scenario
        A scenario file, or the name of an example, such as ``"ring"``, ``"sync-ps"``, ``"async-ps"`` or ``"fsdp"``. ``paceline init``
        writes your own file.

        Also nested tables as in a file, or a loaded scenario.
    settings
        Change a key of the scenario, such as strategy.workers=64 or cluster.inter_node.bandwidth='10 Gbit/s'.

        Quantities are text with a unit. None restores the default of a key. ``workload``, ``cluster`` or
        ``strategy`` may be set to a loaded or calibrated one. A new ``strategy.kind`` (or another kind, or
        mode) drops keys that it does not have, and a key replaces another that it excludes; a
        warning names dropped keys.
    prices
        Price of a node per hour in US dollars, such as ethernet-1g=0.40/h. NAME is a cluster or the path of its file; a price
        without a name is for all other clusters. Machines that you buy: ``BUY:4000USD,years:4``, and optionally
        ``power:0.5kW``, ``electricity:0.30USD/kWh`` and ``use:0.6`` (share of all hours in use).

        ``"*"`` also means all other clusters. Prices are text such as ``"0.40/h"``, numbers, or a :class:`~simulator.spec.cluster.Price`.

    Returns
    -------
    Scenario
        Frozen, with all quantities in seconds, bytes and bytes per second.

    Raises
    ------
    ScenarioError
        One line for each broken rule, with file and dotted key.
    InputError
        A price cannot be read, or is for a cluster that the scenario does not have.

    Warns
    -----
    SettingWarning
        A setting excludes keys of the scenario, which are dropped.

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
    scenario, settings, prices
        As for :func:`load`.
    observer
        Receives every record of the first replication, for a trace or an audit.
    progress
        Called with the finished replications, including the share of the current one, and their total: after each
        replication, and in long ones every few thousand steps.
    agree
        Called with a :class:`~paceline.lengthy.Lengthy` before a simulation that takes hours; it raises to prevent it.
        None: it always starts.

    Returns
    -------
    Result
        Throughput, staleness, step times, bottleneck, and their intervals. The same scenario gives the same result.

    Raises
    ------
    ScenarioError
        One line for each broken rule, with file and dotted key.
    SimulationError
        The simulation reached an impossible state, such as a deadlock.

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
    trace: Annotated[File | None, Typed(metavar="FILE.json")] = None,
    tensorboard: Annotated[Folder | None, Typed(metavar="DIR")] = None,
    audit: bool = False,
    force: Force = False,
    progress: Steps = None,
    agree: Asking = None,
) -> Observation:
    """Simulate one scenario, and record its first replication.

    Parameters
    ----------
    scenario, settings, prices, progress, agree
        As for :func:`simulate`.
    trace
        Write a timeline of the first replication as a Chrome trace, for ui.perfetto.dev or chrome://tracing. It has an arrow for each
        message and the critical path of a step. An earlier trace of Paceline is replaced.
    tensorboard
        Write the first replication for TensorBoard into this folder, step by step. Open it with ``tensorboard --logdir DIR``. An
        earlier run of Paceline is replaced.
    audit
        Check the first replication against every invariant of the simulation, such as that no byte is lost.
    force
        Replace the files at ``trace`` and ``tensorboard``, whatever they are.

    Returns
    -------
    Observation
        The ``result``, the checked invariants (``laws``), and a sentence on what bounds a step.

    Raises
    ------
    ScenarioError, SimulationError
        As in :func:`simulate`.
    InputError
        A file cannot be written, is the scenario's own, or exists and is something else.
    InvariantError
        An invariant is violated; the message names the invariant and the event.

    Examples
    --------
    >>> seen = observe("ring", {"strategy.workers": 2, "run.steps": 5, "run.replications": 3}, audit=True)
    >>> seen.result.replicas, "parts_sum_to_the_step" in seen.laws
    (2, True)
    """
    from contextlib import ExitStack

    from paceline.lengthy import agree_to_audit, agree_to_one
    from paceline.observing import Observation, counts_of, write_trace
    from simulator.observing.recording import FanOut, Recording
    from simulator.resolve.resolve import Asked
    from simulator.run import simulate as run

    loaded = _loaded(scenario, settings, prices)
    agree_to_one(loaded, agree)
    if audit:
        agree_to_audit(loaded, agree)
    asked = Asked.of(loaded)
    observers: list[Observer] = []
    page, recording = None, Recording(asked.resolved)
    if trace is not None:
        from simulator.base.files import Output
        from simulator.observing.chrome_trace import TRACE

        read = file_of(scenario)
        page = Output(Path(trace), TRACE, force=force, argument="trace", reads=[] if read is None else [read])
        observers.append(recording)
    with ExitStack() as open_files:
        if tensorboard is not None:
            from simulator.observing.tensorboard import TensorBoard

            observers.append(open_files.enter_context(TensorBoard(Path(tensorboard), asked.resolved, force=force)))
        result = run(asked, observer=FanOut(observers) if observers else None, progress=progress)
    seen = Observation(
        result, trace=path_of(trace), bound="" if page is None else write_trace(page, loaded, recording), tensorboard=path_of(tensorboard)
    )
    if not audit:
        return seen
    from simulator.checks import invariants

    return replace(seen, records=counts_of(invariants.audit(loaded)), laws=invariants.laws())


@checked
def preview(scenario: Source, settings: Settings = (), *, prices: Prices = None) -> Printed:
    """Return what would be simulated (links, ranks, operations of a step, rules), without simulating it.

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
        One line for each broken rule.

    Examples
    --------
    >>> len(preview("ring", {"strategy.workers": 4}).program.ranks)
    4
    """
    from simulator.run import preview as made

    return made(_loaded(scenario, settings, prices))


@checked
def memory(scenario: Source, settings: Settings = ()) -> Memory:
    """Return the memory that a device needs, by part, and whether it fits, without simulating.

    Parameters
    ----------
    scenario, settings
        As for :func:`load`.

    Returns
    -------
    Memory
        A table with a row for each stage of a pipeline, or one row; ``free_bytes``, ``largest_batch`` (samples of a replica),
        ``refused`` (why it does not fit) and ``not_checked`` (why that is unknown).

    Raises
    ------
    ScenarioError
        One line for each broken rule.

    Examples
    --------
    >>> found = memory("ring", {"cluster.use": "p3.16xlarge", "training.optimizer": "adam"})
    >>> round(found.tightest.need_bytes / 2**20), found.largest_batch, found.not_checked
    (1057, None, "the workload 'cnn-cpu' has neither layers nor measured peak memory")
    """
    from simulator.base.validation_errors import warn_of_implausible
    from simulator.memory import memory as made

    loaded = _loaded(scenario, settings)
    warn_of_implausible(loaded)
    return made(loaded)


@checked
def compare(ours: Answer, theirs: Answer) -> Comparison:
    """Compare the throughput of two results, paired by run if both share their random numbers.

    Parameters
    ----------
    ours, theirs
        Two results, such as two of a sweep.

    Returns
    -------
    Comparison
        ``ratio``: our throughput over theirs, mean and 90% prediction interval. ``wins`` and ``losses``:
        number of the ``runs`` in which ours was faster or slower. ``runs`` is 0 if the two differ in seed or
        number of replications; the interval then spans the worst to the best combination.

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
def unmet(
    results: Annotated[Any, MustBe("a result, or several, such as a sweep")], require: Annotated[Any, MustBe("a list of requirements")]
) -> tuple[str, ...]:
    """Check requirements on results, for example in continuous integration.

    Parameters
    ----------
    results
        A result, or several, such as a sweep; each must meet every requirement.
    require
        Text such as ``"efficiency>=70%"``, or a list of such: a column (docs/reference.md) or the heading of an estimate; one of
        >=, <=, >, <, ==, !=; and a value with its unit. A column with an interval is compared by its estimate; the column of an end,
        such as ``scaling_efficiency_low``, is stricter.

    Returns
    -------
    tuple
        A sentence for each missed requirement, with value, interval and limit; empty if all are met.

    Raises
    ------
    InputError
        A requirement cannot be read, or there is no such column.

    Examples
    --------
    >>> result = simulate("ring", {"strategy.workers": 1, "run.steps": 10, "run.replications": 3})
    >>> unmet(result, ["efficiency>=70%", "replicas>=2"])
    ('replicas>=2 is not met: it is 1',)
    """
    from paceline.requirements import judged, requirements_of
    from simulator.results.results import Result

    requirements = requirements_of(require)
    several = [results] if isinstance(results, Result) else list(results)
    return tuple(text for result in several for text in judged(requirements, result)[0])


@checked
def sweep(
    scenario: Source,
    over: Over,
    settings: Settings = (),
    *,
    prices: Prices = None,
    out: Annotated[File | None, Typed(metavar="FILE.ndjson")] = None,
    force: Force = False,
    retry_failed: bool = False,
    jobs: Jobs = 0,
    backend: Backend = "local",
    scheduler: Scheduler = None,
    progress: Progress = None,
    agree: Asking = None,
) -> Sweep:
    """Simulate a scenario with every combination of some values.

    Parameters
    ----------
    scenario
        As for :func:`load`.
    over
        Values to try for a key; every combination is simulated. The last key changes fastest.

        Lists of values, or a range of whole numbers such as ``"1..8"``.
    settings
        Change a key in all scenarios, such as run.steps=50.
    prices
        As for :func:`load`.
    out
        Results file: one line of JSON for each scenario, in the order of the grid.

        Lines are written at once: after an interruption the same call resumes. None keeps results in memory only.
    force
        Replace ``out`` and the files next to it, whatever they are. Results of the same sweep are kept.
    retry_failed
        Simulate again the scenarios that failed in an earlier run.
    jobs
        Scenarios simulated at the same time, one per process; 0: one per core. With Dask or Ray: per core of the cluster. Results do
        not depend on it.
    backend
        Where to simulate: on this machine, or on a Dask or Ray cluster. These need pip install 'paceline[dask]' or 'paceline[ray]'.
    scheduler
        Address of the Dask or Ray cluster. Dask: ``tcp://HOST:PORT`` of its scheduler. Ray: ``HOST:PORT``, ``ray://HOST:PORT`` or
        ``auto``; without an address Ray starts a cluster on this machine.
    progress
        Called with the finished and total number of scenarios.
    agree
        As for :func:`simulate`.

    Returns
    -------
    Sweep
        A sequence of results, with a failure for each scenario that could not be simulated.

    Raises
    ------
    ScenarioError
        A combination breaks a rule; the message names it.
    ResultsError
        ``out`` holds something else.
    InputError
        An argument has the wrong type; ``out`` cannot be written, or is the scenario's own file; or the Dask or Ray cluster
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
    target_throughput: Annotated[Quantity, MustBe("a number, or text with a unit, such as '20000 samples/s'"), Typed(metavar="RATE")]
    | None = None,
    samples: Amount | None = None,
    tokens: Amount | None = None,
    epochs: Annotated[Amount, MustBe("a number, such as 90")] | None = None,
    dataset_size: Amount | None = None,
    deadline: Annotated[Quantity, MustBe("a number, or text with a unit, such as '12 h'"), Typed(metavar="TIME")] | None = None,
    budget: Annotated[Quantity, MustBe("a number, or text with a unit, such as '500 USD'"), Typed(metavar="SUM")] | None = None,
    confidence: Annotated[float, MustBe("a number such as 0.95"), Typed(metavar="SHARE")] = 0.95,
    prefer: Literal["cheapest", "fastest", "fewest-devices"] | None = None,
    trainings_per_month: Annotated[Amount, MustBe("a number above 0, such as 20"), Typed(metavar="NUMBER")] | None = None,
    clusters: Annotated[Names, MustBe("a list of names or paths, such as ['ethernet-10g']")] = (),
    strategies: Annotated[Names, MustBe("a list of names, such as ['ring', 'async-ps']")] = (),
    workers: Counts = None,
    servers: Annotated[Counts, Typed(metavar="LIST")] = None,
    scaling: Literal["weak", "strong", "both"] | None = None,
    batches: Annotated[Counts, Typed("--batch")] = None,
    runs_on: Annotated[Names, MustBe("a list of names, such as ['tensorflow']")] = (),
    over: Over | None = None,
    settings: Settings = (),
    prices: Prices = None,
    out: Annotated[File | None, Typed(metavar="FILE.ndjson")] = None,
    force: Force = False,
    jobs: Jobs = 0,
    backend: Backend = "local",
    scheduler: Scheduler = None,
    progress: Stages = None,
    agree: Asking = None,
) -> Plan:
    """Find the cheapest, fastest or smallest configuration that reaches a goal.

    The goal is a throughput; or a number of samples (and epochs) within a deadline, a budget, or both.

    Parameters
    ----------
    scenario
        As for :func:`load`.
    target_throughput
        Throughput to reach, such as ``"20000 samples/s"``.

        A number is in samples per second; ``"1e6 tokens/s"`` needs a workload with sequences.
    samples
        Samples of the whole training, such as ``1e9``. Replaces ``epochs``; needs ``deadline``, ``budget`` or both.
    tokens
        Tokens in place of samples, such as ``300e9``. Needs a workload with sequences.
    epochs
        Passes over the data set. Default: those of [job] in the scenario, else 1.

        If the scenario has a ``[job]``, an ``[input]`` or measured overheads, time and cost cover the whole job.
    dataset_size
        Samples in the data set, such as ``1.28e6``: one epoch.
    deadline
        Longest training time, such as ``"12h"`` or ``"30 min"``.

        A number is in seconds.
    budget
        Highest cost in US dollars, such as ``"500 USD"``. With a BUY: price it limits the price of the machines. Clusters without a
        price need ``prices``.
    confidence
        Probability that a real run reaches the goal. R replications resolve at most R / (R + 1): 19 resolve 0.95.
    prefer
        Preference among all that reach the goal. Default: the cheapest; the fastest if there is only a budget.
    trainings_per_month
        Trainings per month, which determine the hours in use of bought and reserved nodes, and so the price of an hour and the months
        until a purchase pays off. Default: as many as fill the price's share_in_use.
    clusters
        Clusters to choose from: names of ``paceline models list``, or files. Default: that of the scenario.
    strategies
        Strategies to choose from, such as ring,sync-ps,async-ps. All: single, mirrored, ring, halving-doubling, tree, hierarchical,
        auto (the fastest all-reduce), sync-ps, backup, async-ps, ssp; for models with layers also pipeline, tensor, zero1, zero2, fsdp
        and hybrid, each in all of its degrees. Default: that of the scenario; for a model with layers all that cut it.

        docs/plan.md describes them.
    workers
        Numbers of workers, such as ``1..64`` or ``1,2,4,8``. A range is searched; every value of a list is simulated. Default:
        ``1..64``.
    servers
        Numbers of parameter servers, such as ``1,2,4`` or ``1..4``. Default: that of the scenario.
    scaling
        Effect of more workers on the batch. weak: the batch of each replica is fixed; strong: the global batch is fixed. Default: as in
        the scenario.
    batches
        Batch sizes to choose from: a list, or a range such as ``16..512``, which means 16, 32, 64 and so on and its end. Per replica with
        weak scaling, global with strong. Default: that of the scenario.
    runs_on
        Choose only what one of these frameworks supports: keras, tensorflow, horovod, pytorch, deepspeed, megatron-lm, jax. keras is fit of
        Keras 3 on TensorFlow.
    over
        Values of any other key to choose from.
    settings
        Change a key everywhere, such as run.steps=200.

        The plan chooses bucket sizes, unless ``strategy.bucket_size`` is among these, or in ``over``.
    prices
        As for :func:`load`.
    out
        Save every result here, and the plan as ``FILE.plan.json``. After an interruption run the same command again to resume.

        The plan replaces an earlier one; :func:`report` reads both files.
    force
        Replace ``out`` and the files next to it, whatever they are. Results of this plan are kept.
    jobs, backend, scheduler, agree
        As for :func:`sweep`.
    progress
        Called with finished and total work, and what is counted: "configurations", then "bounds", then simulated "scenarios", whose
        total grows during the search.

    Returns
    -------
    Plan
        The answer: ``chosen`` and the runners-up, with time in seconds and cost in US dollars, and ``why``. If nothing meets
        the goal, ``feasible`` is False and ``chosen`` is the nearest configuration.

    Raises
    ------
    InputError
        There is no goal or more than one; a goal in tokens for several lengths of sequences; a
        range is empty; a name is unknown; a price cannot be read or is for another cluster; or no
        cluster has the price that a budget needs.
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
    from paceline.planning import goal_of, length_of, space_of, with_offers
    from paceline.planning import plan as search
    from paceline.planning.answer import PLAN, plan_file_of
    from paceline.sweeping import axes_of
    from simulator.base.errors import InputError
    from simulator.base.files import Output
    from simulator.catalogue.loading import load_scenario, pairs_of
    from simulator.spec.prices import parse_prices

    settings = pairs_of(settings)
    rate = target_throughput is not None
    length = length_of(scenario, settings, samples=samples, tokens=tokens, epochs=epochs, dataset_size=dataset_size, rate=rate)
    in_tokens = isinstance(target_throughput, str) and "token" in target_throughput
    goal = goal_of(
        target_throughput=target_throughput, samples=length.samples, epochs=length.epochs, deadline=deadline, budget=budget,
        confidence=confidence, prefer=prefer, trainings_per_month=trainings_per_month,
        unit=load_scenario(scenario, settings).unit if in_tokens else None,
    )  # fmt: skip
    file = writable(out, scenario)
    beside = None if file is None else Output(plan_file_of(file), PLAN, force=force, beside=True)
    space = space_of(
        scenario, settings=length.settings, clusters=clusters, over=axes_of(over or {}), strategies=strategies, workers=workers,
        servers=servers, scaling=scaling, batches=batches, runs_on=runs_on, prices=parse_prices(prices),
        progress=None if progress is None else lambda done, total: progress(done, total, "configurations"),
    )  # fmt: skip
    if (tokens is not None or in_tokens) and len({line.first.unit for line in space.lines}) > 1:
        raise InputError("`over`: a goal in tokens needs sequences of one length; plan for each length by itself")
    space = with_offers(space, whole_job=goal.samples is not None)
    agree_to_plan(space.searched_together, agree, jobs=jobs)
    answer = search(
        space, goal, out=file, jobs=jobs, backend=backend, scheduler=scheduler, force=force, progress=progress,
    )  # fmt: skip
    if beside is not None:
        beside.write(answer.to_json() + "\n")
    return answer


@checked
def advise(
    scenario: Source,
    *,
    machines: Counts = None,
    strategies: Annotated[Names, MustBe("a list of names, such as ['ring', 'async-ps']")] = (),
    runs_on: Annotated[Names, MustBe("a list of names, such as ['keras']")] = (),
    settings: Settings = (),
    prices: Prices = None,
    out: Annotated[File | None, Typed(metavar="FILE.ndjson")] = None,
    force: Force = False,
    jobs: Jobs = 0,
    backend: Backend = "local",
    scheduler: Scheduler = None,
    progress: Progress = None,
    agree: Asking = None,
) -> Advice:
    """Compare strategies on 1 to N machines, without a goal, and advise whether more than one machine is worth it.

    Parameters
    ----------
    scenario
        As for :func:`load`. Its strategy and number of workers are varied.
    machines
        Numbers of machines, parameter servers included: a list, or a range such as ``1..16``, which means 1, 2, 4 and so on and its end.
        Default: up to the size of the cluster, else 8.

        Parameter servers have their own machines among them, unless the scenario says otherwise; all devices of the others train.
    strategies
        Strategies to compare, such as ring,sync-ps,async-ps. Default: one device, ring all-reduce, parameter servers (sync-ps, backup,
        async-ps, ssp) and decentralised training; for a model with layers also fsdp, pipeline, tensor and hybrid.
    runs_on
        As for :func:`plan`.
    settings
        Change a key in all configurations, such as run.steps=200.

        The best bucket size of each is used, unless ``strategy.bucket_size`` is among these.
    prices
        As for :func:`load`.
    out
        Save every result here. After an interruption run the same command again to resume.
    force
        Replace ``out`` and the files next to it, whatever they are. Results of this advice are kept.
    jobs, backend, scheduler, progress, agree
        As for :func:`sweep`.

    Returns
    -------
    Advice
        ``sentences`` give the advice; ``rows`` has each configuration with its result, ``to_frame()`` a row for each.

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
    space = space_to_advise(
        scenario, settings=pairs_of(settings), machines=machines, strategies=strategies, runs_on=runs_on, prices=parse_prices(prices)
    )
    agree_to_plan(space.searched_together, agree, jobs=jobs)
    return compare_all(space, out=file, jobs=jobs, backend=backend, scheduler=scheduler, force=force, progress=progress)


@checked
def report(
    source: Annotated[Any, Typed(place=True, metavar="RESULTS.ndjson", reads="files")],
    out: Annotated[File | None, Typed(short="-o", metavar="FILE.html")] = None,
    *,
    measured: Annotated[File | None, Typed(metavar="POINTS.csv")] = None,
    plan: Annotated[
        Plan | str | Path | None, MustBe("a plan, or the path of one that `paceline.plan` wrote"), Typed(metavar="PLAN.json")
    ] = None,
    learned: Annotated[
        Learned | str | Path | None,
        MustBe("the answer of `paceline.learn`, or the path of its file"),
        Typed(metavar="LEARNED.json"),
    ] = None,
    title: Annotated[Text, Typed(metavar="TEXT")] = "",
    figures: Annotated[Folder | None, Typed(metavar="DIR")] = None,
    formats: Annotated[
        Sequence[Literal["png", "svg"]], MustBe("a list of 'png' and 'svg'"), Typed("--format", metavar="png,svg", reads="text")
    ] = ("png", "svg"),
    tables: Annotated[Folder | None, Typed(metavar="DIR")] = None,
    card: Annotated[File | None, Typed(metavar="FILE.svg")] = None,
    what_ifs: Annotated[bool, Typed("--simulate/--no-simulate")] = True,
    jobs: Jobs = 0,
    force: Force = False,
    progress: Stages = None,
) -> Report:
    """Write a report of results: one HTML file that works offline. Its figures and tables can be written as files too.

    Parameters
    ----------
    source
        Results file of ``paceline sweep`` or ``paceline plan``; several are compared.

        Also a result or several, a sweep, a plan, or the output of :func:`paceline.read_results`.
    out
        The page to write. Default: the name of the first results file, with ``.html``.

        Without a results file, ``report.html``. An existing report is replaced.
    measured
        Table of your own measurements to show with the predictions. Columns: ``workers`` and ``throughput`` (samples/s); optional:
        ``servers``, ``staleness`` and ``batch``.
    plan
        Begin the page with a plan: the ``FILE.plan.json`` of ``paceline plan --out FILE.ndjson``.

        Or the plan itself.
    learned
        Also show the answer of ``paceline learn --out FILE.json``.

        Or the answer itself, which can be the only source.
    title
        Heading of the page. Default: the name of the workload.
    figures
        Also write each figure as an image into this folder. Earlier images there are replaced. Needs Chromium or
        Chrome.
    formats
        Formats of the images; needs ``figures``.
    tables
        Also write each table as a CSV file into this folder. Tables of the same name and heading are replaced.
    card
        Also write the answer as one picture (SVG) for a message or a wiki.
    what_ifs
        Whether to simulate the answer again for a timeline and for the effects of changes. It takes some seconds.
    jobs
        Processes for these simulations; 0: one per core.
    force
        Replace files at ``out``, and in ``tables`` and ``figures``, whatever they are.
    progress
        Called with the finished and total number, and what is counted: ``"what-ifs"`` or ``"figures"``.

    Returns
    -------
    Report
        The ``path`` of the page and other written files; ``to_frame()`` has a row for each result.

    Raises
    ------
    ResultsError
        There is no result, or a file cannot be read.
    InputError
        ``out`` cannot be written, is not a report, or is an input file.
    StoppedReport
        Ctrl-C stopped the simulation of what-ifs; the report is written without them.

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
        source, path_of(out), plan=Path(plan) if isinstance(plan, str) else plan,
        learned=Path(learned) if isinstance(learned, str) else learned, title=title, measured=path_of(measured),
        what_ifs=what_ifs, figures=path_of(figures), formats=tuple(formats), tables=path_of(tables), card=path_of(card),
        force=force, jobs=jobs, progress=progress,
    )  # fmt: skip


def _loaded(scenario: Source, settings: Settings, prices: Prices = None) -> Scenario:
    from simulator.catalogue.loading import load_scenario
    from simulator.spec.prices import parse_prices

    return load_scenario(scenario, settings, parse_prices(prices))
