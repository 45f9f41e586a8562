"""Simulation and replay of the schedules of ways of training.

Run r uses the schedule of replication r, and r as the seed of initial values and data order, so that all ways share them. Throughput, its
interval and costs are those of ``paceline simulate``.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from calibrate.learning import Curve, Phase, ReplayedRun, problem_of, replay
from calibrate.probing import Progress
from calibrate.testbed.platform import PRIORS
from calibrate.testbed.readings import read_run
from calibrate.testbed.scenarios import scenario_of
from paceline.learning.learned import MARK, Learned, LearnedPoint, LearnedRun, LearnedWay, Range, Target, TriedRate, widened_time
from paceline.sweeping.grid import Axis, Grid
from simulator.base.errors import InputError
from simulator.base.files import Output, OutputKind, check_apart, marked_kind
from simulator.base.spec import keys_of
from simulator.base.text import counted, listed
from simulator.catalogue.loading import Source, table_of, with_measured
from simulator.engine.schedule import Schedule, schedule_of
from simulator.observing.tensorboard import ScalarFiles
from simulator.resolve.resolve import Asked
from simulator.results.cost import usd_per_hour
from simulator.results.results import Result
from simulator.run import simulate
from simulator.scenario import Scenario
from simulator.spec.prices import Prices
from simulator.strategies.catalogue import kind_of, strategy_table

ANSWER = marked_kind("answer about learning", MARK, ".json")
_CURVES = OutputKind(
    "is not a table of curves",
    lambda path: path.open(encoding="utf-8", errors="replace").readline().startswith("way,rate,seed,time_s,"),
    ".csv",
)
_OTHER = re.compile(r"[^A-Za-z0-9]+")


class LearnedFiles:
    """Output files, checked before the work.

    Parameters
    ----------
    out, curves, tensorboard
        Files of the answer and the curves, and folder of runs for TensorBoard; None: not written.
    force
        Replace existing files of any kind.
    reads
        An input file, which no output may be.

    Raises
    ------
    InputError
        A file cannot be written, is something else, or two are the same.
    """

    def __init__(self, out: Path | None, curves: Path | None, tensorboard: Path | None, *, force: bool, reads: Path | None) -> None:
        check_apart([("`out`", out), ("`curves`", curves)])
        read = () if reads is None else (reads,)
        self._out = None if out is None else Output(out, ANSWER, force=force, reads=read)
        self._curves = None if curves is None else Output(curves, _CURVES, force=force, argument="curves", reads=read)
        self._runs = None if tensorboard is None else ScalarFiles(tensorboard, force=force)

    def write(self, learned: Learned) -> None:
        """Write the requested files."""
        if self._out is not None:
            self._out.write(learned.to_json() + "\n")
        if self._curves is not None:
            self._curves.write(learned.curves().to_csv())
        if self._runs is None:
            return
        for way in learned.ways:
            for run in way.runs:
                name = f"{_OTHER.sub('-', way.name).strip('-')}/seed-{run.seed}"
                self._runs.write(name, ((point.time_s, point.updates, point.metrics) for point in run.points))


_HOUR_S = 3600.0
_MOST_NAMED = 3
RateScaling = Literal["same", "sqrt", "linear"]
"""Growth of the rate with the number of gradients averaged in an update."""
_EXPONENTS: Mapping[RateScaling, float] = {"same": 0.0, "sqrt": 0.5, "linear": 1.0}


@dataclass(frozen=True)
class Contender:
    """A way of training to compare.

    Attributes
    ----------
    name
        Its name.
    parts
        Scenarios, each with its share of the training; one, or two in sequence.
    recorded
        Schedules of real runs, instead of simulated ones.
    """

    name: str
    parts: tuple[tuple[Scenario, float], ...]
    recorded: tuple[Schedule, ...] = ()


def recorded_of(path: Path) -> Contender:
    """Return a real asynchronous run of the testbed, with a schedule for each repeat and the setting's scenario with usual costs.

    Raises
    ------
    InputError
        The run has another mode.
    CalibrationError
        The file is damaged, or has no complete repeat.
    """
    readings = read_run(path)
    setting = readings.setting
    if setting.mode not in ("async", "between-graph"):
        raise InputError(
            f"{path}: `recorded`: is a run of mode {setting.mode}, whose workers update together; only runs of async "
            "and between-graph can be replayed"
        )
    schedules = []
    for run in readings.runs:
        before = min(step.read_version for step in run.steps)  # the warm-up made versions too
        steps = [(step.worker, step.applied_s, max(step.read_version - before, 0), step.version - 1 - before) for step in run.steps]
        schedules.append(Schedule.of_steps(steps, setting.workers))
    values = {name: middle for name, (middle, _, _) in PRIORS.items()}
    scenario = scenario_of(setting, values, readings.cores)
    return Contender(f"recorded: {path.stem}", ((scenario, 1.0),), tuple(schedules))


def contenders_of(
    scenario: Source, axes: Sequence[Axis], strategies: Sequence[str], settings: Sequence[tuple[str, object]], prices: Prices | None
) -> list[Contender]:
    """Return every combination of values with every strategy.

    Parameters
    ----------
    scenario
        A scenario from any source.
    axes
        Keys with their values.
    strategies
        Short names, or ``FIRST/THEN@SHARE``: the first for a share of the training, then the other. None: the scenario's own.
    settings, prices
        Settings and prices of all.

    Raises
    ------
    InputError
        A strategy or a share is invalid.
    ScenarioError
        A combination breaks a rule.
    """
    table, source, beside = table_of(scenario, settings, [key for key, _ in axes])
    contenders: list[Contender] = []
    used: set[str] = set()
    for way in strategies or [""]:
        names, share = _strategies_of(way)
        tables = [_with_strategy(table, name) if name else table for name in names]
        own_axes = [(key, values) for key, values in axes if all(_takes(part, key) for part in tables)]
        used |= {key for key, _ in own_axes}
        grids = [Grid(with_measured(part, source, beside), own_axes, source=source, beside=beside, prices=prices) for part in tables]
        for grid in grids:
            grid.check()
        for place in range(len(grids[0])):
            scenarios = [grid[place] for grid in grids]
            words = [scenario.strategy.in_words for scenario in scenarios]
            name = words[0] if len(words) == 1 else f"{words[0]} for {share:.0%}, then {words[1]}"
            if len(grids[0]) > 1:  # those of one strategy differ in what the axes set
                name = ", ".join([name, *(f"{key.rpartition('.')[2]} {value}" for key, value in grids[0].combination(place).items())])
            shares = (share, 1.0 - share) if len(scenarios) > 1 else (1.0,)
            contenders.append(Contender(name, tuple(zip(scenarios, shares, strict=True))))
    if unused := [key for key, _ in axes if key not in used]:
        raise InputError(f"`over` {unused[0]}: no strategy has this key; check its spelling, or leave it out")
    if prices is not None:
        prices.check()
    return contenders


def _strategies_of(way: str) -> tuple[list[str], float]:
    """Return the strategies of a way, and the share of the first."""
    names, _, share = way.partition("@")
    first, _, then = names.partition("/")
    if bool(then) != bool(share):
        raise InputError(f"`strategies` {way[:60]!r}: must be a name, or two with the share of the first, such as sync-ps/async-ps@0.25")
    if not then:
        return [first], 1.0
    try:
        value = float(share.rstrip("%")) / (100.0 if share.endswith("%") else 1.0)
    except ValueError:
        value = math.nan
    if not 0.0 < value < 1.0:
        raise InputError(f"`strategies` {way[:60]!r}: the share of the first must be between 0 and 1, such as sync-ps/async-ps@0.25")
    return [first, then], value


def _with_strategy(table: Mapping[str, object], name: str) -> dict[str, object]:
    """Return a scenario's tables under another strategy, with its numbers of workers and servers where they apply."""
    strategy = table.get("strategy")
    own: Mapping[str, object] = strategy if isinstance(strategy, Mapping) else {}
    made = strategy_table(name, own)
    kind = kind_of(made)
    for key in (kind.count_key, "servers" if kind.has_servers else ""):
        if key and key in own and key not in made:
            made[key] = own[key]
    return {**table, "strategy": made}


def _takes(table: Mapping[str, object], key: str) -> bool:
    """Return whether a scenario of this strategy has a key; a single device, for example, has no number of workers."""
    section, _, rest = key.partition(".")
    name = rest.partition(".")[0]
    return section != "strategy" or not name or name in keys_of(kind_of(table.get("strategy")))


@dataclass(frozen=True)
class Course:
    """The problem, its target, its runs, and the settings of the replay.

    Attributes
    ----------
    problem
        As for :func:`paceline.learn`, with its ``epochs``, ``seeds``, ``rates``, ``batch``, ``rate_scaling``, ``by_staleness`` and
        ``checkpoints``.
    target
        The target to reach.
    folder
        Folder of measurements.
    python, jobs, timeout_s
        Settings of the replay, as for :func:`paceline.learn`.
    progress
        Called with the finished and total number, and what is counted.
    """

    problem: str
    target: Target
    folder: Path
    epochs: float
    seeds: int
    rates: Sequence[float] = (1.0,)
    batch: int | None = None
    rate_scaling: RateScaling = "same"
    by_staleness: bool = False
    checkpoints: int = 50
    python: str | None = None
    jobs: int = 1
    timeout_s: float = 7200.0
    progress: Progress = lambda *_: None


@dataclass(frozen=True)
class _Prepared:
    """A contender with its simulated schedules."""

    contender: Contender
    results: tuple[Result, ...]
    schedules: tuple[tuple[Schedule, ...], ...]
    """For each seed, the schedules of the parts."""


def learn(contenders: Sequence[Contender], course: Course) -> Learned:
    """Replay every contender, with every seed and rate.

    Raises
    ------
    InputError
        The problem cannot be used or lacks the metric, or a strategy cannot be replayed.
    CalibrationError
        The user's function or model failed.
    """
    problem, target, seeds = course.problem, course.target, course.seeds
    about = problem_of(problem, course.folder, course.python, course.timeout_s)
    _check_size(about.samples, contenders, course)
    prepared = []
    for number, contender in enumerate(contenders):
        course.progress(number, len(contenders), "simulations")
        prepared.append(_prepare(contender, about.samples, course))
    course.progress(len(contenders), len(contenders), "simulations")
    by_rate: list[dict[float, LearnedWay]] = [{} for _ in prepared]
    pending = [(place, rate) for place in range(len(prepared)) for rate in dict.fromkeys(course.rates)]
    while pending:
        runs = [ReplayedRun(seed, tuple(_phases(prepared[place], seed, rate, course))) for place, rate in pending for seed in range(seeds)]
        replayed = replay(
            problem, runs, course.folder, metric=target.metric, python=course.python, jobs=course.jobs, timeout_s=course.timeout_s,
            progress=course.progress,
        )  # fmt: skip
        if not by_rate[0]:
            _check_target(target, replayed)
        curves = iter(replayed)
        for place, rate in pending:
            by_rate[place][rate] = _way(prepared[place], rate, about.samples, [next(curves) for _ in range(seeds)], course)
        most = len(set(course.rates)) + MOST_WIDENED
        wider = [(place, wider_rate(tried, target, most)) for place, tried in enumerate(by_rate)]
        pending = [(place, rate) for place, rate in wider if rate is not None]
    ways = [_best(tried, target).replaced({"tried": tuple(map(TriedRate.of, tried.values()))}) for tried in by_rate]
    return Learned(
        problem=problem,
        samples=about.samples,
        optimizer=about.optimizer,
        epochs=course.epochs,
        stand_in=not is_workload(about.parameters, contenders[0].parts[0][0]),
        target=target,
        ways=tuple(ways),
        warnings=tuple(_warned(about.parameters, prepared, course.batch)),
    )


MOST_WIDENED = 4
"""Most rates tried in addition to the requested ones, until the best is between others."""


def _best(tried: Mapping[float, LearnedWay], target: Target) -> LearnedWay:
    return min(tried.values(), key=lambda way: _order(way, target))


def wider_rate(tried: Mapping[float, LearnedWay], target: Target, most: int) -> float | None:
    """Return a rate beyond those tried, by the ratio of the outermost two, if the best is outermost; None if only one was requested."""
    rates = sorted(tried)
    if not 1 < len(rates) < most:
        return None
    edge, inner = (rates[0], rates[1]) if (best := _best(tried, target).rate) == rates[0] else (rates[-1], rates[-2])
    return float(f"{edge * edge / inner:.3g}") if best == edge else None


def _check_size(samples: int, contenders: Sequence[Contender], course: Course) -> None:
    """Refuse a batch that exceeds the data, and epochs of less than one gradient."""
    largest = course.batch or max(scenario.batch for contender in contenders for scenario, _ in contender.parts)
    if largest > samples:
        raise InputError(f"`batch`: {largest:,} samples exceed the {samples:,} of the training data; give a smaller one")
    if course.epochs * samples < largest:
        raise InputError(f"`epochs`: {course.epochs:g} of {samples:,} samples are less than one batch of {largest:,}; give more")


def _check_target(target: Target, curves: Sequence[Curve]) -> None:
    """Refuse an unknown metric, or a target that is reached before the first update."""
    names = dict.fromkeys(name for curve in curves for point in curve.points for name in point.metrics)
    if target.metric not in names:
        raise InputError(f"the model has no metric {target.metric!r}; it has {', '.join(names)}")
    if all(target.reached_by(curve.points[0].metrics.get(target.metric)) for curve in curves):
        other = f"{target.metric}{'>=' if target.at_most else '<='}{target.value:g}"
        raise InputError(f"`target`: {target.in_words} is already reached before the first update; did you mean {other}?")


def _prepare(contender: Contender, samples: int, course: Course) -> _Prepared:
    """Simulate the parts of a contender, and take from each the gradients of its share."""
    asked = [Asked.of(scenario) for scenario, _ in contender.parts]
    results = tuple(map(simulate, asked))
    counts = [max(round(share * course.epochs * samples / (course.batch or scenario.batch)), 1) for scenario, share in contender.parts]
    if known := contender.recorded:
        return _Prepared(contender, results, tuple((known[seed % len(known)].first(counts[0]),) for seed in range(course.seeds)))
    parts = [(part.resolved.replaced({"job": None}), count) for part, count in zip(asked, counts, strict=True)]
    return _Prepared(
        contender, results, tuple(tuple(schedule_of(part, count, seed) for part, count in parts) for seed in range(course.seeds))
    )


def _phases(prepared: _Prepared, seed: int, rate: float, course: Course) -> Iterator[Phase]:
    for (scenario, share), schedule in zip(prepared.contender.parts, prepared.schedules[seed], strict=True):
        points = max(round(course.checkpoints * share), 1)
        averaged = schedule.averaged if schedule.every == 1 and not schedule.neighbours else 1
        scaled = rate * averaged ** _EXPONENTS[course.rate_scaling]
        yield Phase(schedule, len(schedule), course.batch or scenario.batch, scaled, course.by_staleness, points)


def _way(prepared: _Prepared, rate: float, samples: int, curves: Sequence[Curve], course: Course) -> LearnedWay:
    contender = prepared.contender
    (scenario, _), result = contender.parts[-1], prepared.results[-1]
    clocks = [_Clock(prepared, seed) for seed in range(len(curves))]
    runs = tuple(_run(seed, curve, course.target, clocks[seed]) for seed, curve in enumerate(curves))
    times = Range.of([run.reached_s for run in runs if run.reached_s is not None])
    rates = [result.throughput_samples_per_s for result in prepared.results]
    low, high = (None, None)
    if times is not None and not contender.recorded and all(rate.low > 0 for rate in rates):
        low, high = widened_time(times, min(rate.low / rate.mean for rate in rates), max(rate.high / rate.mean for rate in rates))
    costs = [clocks[run.seed].usd(run.reached_s) for run in runs if run.reached_s is not None]
    samples_per_s = result.throughput_samples_per_s.mean
    if contender.recorded:
        every = [schedules[0] for schedules in prepared.schedules]
        samples_per_s = statistics.fmean(len(schedule) / float(schedule.time_s[-1]) for schedule in every) * scenario.batch
    return LearnedWay(
        name=contender.name,
        scenario=scenario,
        rate=rate,
        tried=(),
        workers=scenario.replicas,
        staleness=_staleness(prepared),
        batch=course.batch or scenario.batch,
        epochs=None if any(run.diverged for run in runs) else max(run.points[-1].samples for run in runs) / samples,
        samples_per_s=samples_per_s,
        usd_per_hour=usd_per_hour(scenario),
        runs=runs,
        time_s=times,
        time_low_s=low,
        time_high_s=high,
        cost_usd=Range.of([cost for cost in costs if cost is not None]),
        samples=Range.of([float(run.reached_samples) for run in runs if run.reached_samples is not None]),
        last=Range.of([run.last for run in runs if run.last is not None and not run.diverged]),
    )


class _Clock:
    """Clock of a job, which adds its start and pauses to the time of steps from 0."""

    def __init__(self, prepared: _Prepared, seed: int) -> None:
        self._stretches = []  # of each part: when its steps begin without the job, and in it, how much longer it takes, its price
        begins_s, later_s = 0.0, _beside(prepared.results[0])[0]
        for result, schedule, (scenario, _) in zip(prepared.results, prepared.schedules[seed], prepared.contender.parts, strict=True):
            ratio = _beside(result)[1]
            self._stretches.append((begins_s, later_s, ratio, usd_per_hour(scenario)))
            begins_s += float(schedule.time_s[-1])
            later_s += ratio * float(schedule.time_s[-1])

    def at(self, time_s: float) -> float:
        """Return seconds of the job after a time of steps."""
        begins_s, later_s, ratio, _ = next(stretch for stretch in reversed(self._stretches) if stretch[0] <= time_s)
        return later_s + ratio * (time_s - begins_s)

    def usd(self, job_s: float) -> float | None:
        """Return US dollars of the job until then; None if any part has no price."""
        begin_s = [0.0, *(later_s for _, later_s, *_ in self._stretches[1:])]
        spent = 0.0
        for (*_, usd), from_s, until_s in zip(self._stretches, begin_s, [*begin_s[1:], math.inf], strict=True):
            if from_s >= job_s:
                break
            if usd is None:
                return None
            spent += (min(job_s, until_s) - from_s) / _HOUR_S * usd
        return spent


def _beside(result: Result) -> tuple[float, float]:
    """Return seconds before a job's first step, and the ratio of later time to time of steps; 0 and 1 without a job."""
    if result.job is None:
        return 0.0, 1.0
    parts = result.job.parts_s
    first_s = parts.startup + parts.tracing
    return first_s, (result.job.time_s.mean - first_s) / parts.steps


def _run(seed: int, curve: Curve, target: Target, clock: _Clock) -> LearnedRun:
    points = tuple(
        LearnedPoint(time_s=clock.at(point.time_s), samples=point.samples, updates=point.updates, metrics=point.metrics)
        for point in curve.points
    )
    # before the first update nothing has been learned
    reached = next((point for point in points[1:] if target.reached_by(point.metrics.get(target.metric))), None)
    values = [point.metrics[target.metric] for point in points if target.metric in point.metrics]
    return LearnedRun(
        seed=seed,
        diverged=curve.diverged,
        points=points,
        reached_s=reached.time_s if reached else None,
        reached_samples=reached.samples if reached else None,
        best=(min if target.at_most else max)(values) if values else None,
        last=values[-1] if values else None,
    )


def _staleness(prepared: _Prepared) -> float:
    """Return mean staleness as in ``paceline simulate``, or of the recorded run."""
    updates = [len(schedule) for schedule in prepared.schedules[0]]
    if prepared.contender.recorded:
        means = [statistics.fmean(schedules[0].mean_staleness for schedules in prepared.schedules)]
    else:
        means = [result.staleness.mean for result in prepared.results]
    return math.fsum(mean * count for mean, count in zip(means, updates, strict=True)) / sum(updates)


def _order(way: LearnedWay, target: Target) -> tuple[float, float, float]:
    """Return the sort key of rates: more runs that reach the target, then time, then the final metric."""
    end = way.last.median if way.last is not None else math.inf
    return (-way.reached, way.time_s.median if way.time_s is not None else 0.0, end if target.at_most or way.last is None else -end)


def is_workload(parameters: int, scenario: Scenario) -> bool:
    """Return whether a model seems to be the simulated workload, by its number of parameters."""
    return abs(scenario.workload.parameter_bytes - 4.0 * parameters) < 1.0


def _warned(parameters: int, prepared: Sequence[_Prepared], batch: int | None) -> Iterator[str]:
    loads = {each.contender.parts[0][0].workload.name: each.contender.parts[0][0] for each in prepared}
    scenario = next((scenario for scenario in loads.values() if not is_workload(parameters, scenario)), None)
    if scenario is not None:
        yield (
            f"times are those of {scenario.workload.name}, learning is that of another model ({counted(parameters, 'parameter')}). The "
            "order of the ways may carry over; accuracies and samples to the target do not"
        )
    batches = {scenario.batch for each in prepared for scenario, _ in each.contender.parts} - {batch} if batch is not None else set()
    if batches:
        yield f"a step has the time of {listed([f'{other:,}' for other in sorted(batches)], 'or')} samples, but learns from {batch:,}"
    told: dict[str, dict[str, None]] = {}
    for each in prepared:
        recorded = len(each.contender.recorded)
        if 0 < recorded < len(each.schedules):
            yield f"{each.contender.name} has {counted(recorded, 'run')}: schedules are replayed with several seeds each"
        for text in (warning.text for result in each.results for warning in result.warnings):
            told.setdefault(text, {})[each.contender.name] = None
    for text, names in told.items():
        some = "; ".join(names) if len(names) <= _MOST_NAMED else f"{len(names)} of {len(prepared)} ways"
        yield text if len(names) == len(prepared) else f"{some}: {text}"
