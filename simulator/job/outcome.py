"""The whole job of a scenario, from simulated steps of it: how long, for how much, and where the time goes.

Few steps are simulated (a window, by ``simulator.run``): those of later epochs and, where they differ, of the first epoch or of fewer
workers. The rest is computed: costs.py has a job without faults, renewal.py runs it with them.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from operator import attrgetter
from typing import Any

from simulator.base.errors import ScenarioError, SimulationError
from simulator.base.rng import Streams
from simulator.base.text import format_seconds
from simulator.job.costs import (
    AnyScenario,
    Course,
    best_written_s,
    course_of,
    daly_interval_s,
    ended_by,
    evaluation_batch,
    fill_of,
    first_epoch,
    mtbf_s,
    step_samples,
    young_interval_s,
)
from simulator.job.faults import arrivals, effect_of
from simulator.job.renewal import Crew, Ended, Renewal, checkpoints_of
from simulator.resolve.resolve import resolve
from simulator.results.cost import usd_estimate, usd_of
from simulator.results.intervals import around, interval_of_jobs, prediction_interval
from simulator.results.results import Result
from simulator.scenario import Resolved
from simulator.spec.figures import Checkpointing, Epoch, Estimate, JobOutcome, JobParts, Warned
from simulator.spec.job import Faults
from simulator.spec.uncertainty import RelativeError, relative_error_of
from simulator.strategies.assembling import crowding

_FEWEST_ENDED = 2
"""Runs that an interval can be made of."""

Rates = Callable[[Resolved], Sequence[float]]
"""Throughput in samples/s of each replication of a scenario without a job."""


def window_of(scenario: AnyScenario) -> AnyScenario:
    """The scenario without a job, whose steps represent most of the job's: those of later epochs, if any.

    It has no prices either, so that jobs that differ in these have the same steps.
    """
    unpriced = {"cluster.price": None, "cluster.server_price": None, "cluster.offers": (), "cluster.upgrades": ()}
    job, window = scenario.job, scenario.replaced({"job": None, **unpriced})
    lone = job is not None and job.total_samples <= job.epoch_samples
    return (first_epoch(window) if lone else None) or window


def job_of(scenario: Resolved, window: Result, rates_of: Rates) -> JobOutcome:
    """The whole job.

    Parameters
    ----------
    scenario
        With a job, resolved.
    window
        The result of :func:`window_of` it.
    rates_of
        Simulates others like it: with the work of the first epoch, with fewer workers.

    Raises
    ------
    ScenarioError
        Nothing says how fast checkpoints are written.
    SimulationError
        Faults come so often that the job does not end.
    """
    job = scenario.job
    assert job is not None
    rates = window.throughput_of_each_replication
    slower = first_epoch(scenario.replaced({"job": None})) if job.total_samples > job.epoch_samples else None
    first = rates if slower is None else rates_of(slower)
    # a step of an asynchronous job is made by one worker, and a step of that worker takes as long as one of each
    at_once = scenario.replicas if scenario.strategy.pace.asynchronous else 1
    waits_s = window.breakdown_s.input / at_once
    samples, fills = step_samples(scenario), [fill_of(scenario, first=filling) for filling in (False, True)]
    crew_of = _crews(scenario, job.faults, rates_of) if job.faults is not None else None
    courses, ends = [], []
    for replication, (rate, at_first) in enumerate(zip(rates, first, strict=True)):
        streams = Streams(scenario.run.seed, replication)
        step_s, first_s = samples / rate, samples / at_first
        apart_s = max(step_s - waits_s, 0.0)  # of a step that has its batch
        # An epoch takes longer than its steps because its first batch has to be waited for. What has been prepared by then, q batches,
        # need not be prepared later: the first step has its batch, and the last q - 1 come from the shuffle buffer without any input
        # work. None of these q waits as steps do in the mean. Where input limits, an epoch of n batches of s seconds and steps of c
        # seconds thus takes n s + q c; where it does not, q s + n c.
        waits = [(fill, at_once * max(each_s - apart_s, 0.0)) for fill, each_s in zip(fills, (step_s, first_s), strict=True)]
        fillings_s = [max(fill.seconds - fill.batches * each_s, 0.0) for fill, each_s in waits]
        course = course_of(scenario, step_s, first_s, _evaluation_step_s(scenario, step_s), fillings_s, streams)
        crew = crew_of(replication) if crew_of is not None else None
        faults = arrivals(scenario, crew.faults, streams) if crew is not None else ()
        courses.append(course)
        ends.append(Renewal(course, crew, faults).run())
    return _outcome(scenario, window, courses, ends)


def warned_of(scenario: Resolved, job: JobOutcome) -> Iterator[Warned]:
    """Warnings of a job in addition to those of its steps: unmeasured waits."""
    known, asked = scenario.workload.overheads, scenario.job
    if asked is None or not scenario.waits_for_iterators or (known is not None and known.iterators is not None):
        return
    usual = max(job.each_epoch, key=lambda epoch: epoch.like_it)
    renewed = asked.iterators == "renewed" and job.epochs > 1
    age_s = usual.time_s if renewed else max(epoch.evaluation_s for epoch in job.each_epoch)
    if min(age_s, _MINUTE_S) <= _NOTABLE * usual.time_s:
        return
    when = "between two epochs" if renewed else "after an evaluation"
    each, _ = ended_by(scenario)
    several = f"; each process has {each}, which end one after another" if each > 1 else ""
    yield Warned.of(
        "iterator-ends", asked.iterators,
        f"the end of a tf.data iterator {when} may stop training for as long as the iterator has existed, here up to "
        f"{format_seconds(min(age_s, _MINUTE_S))}{several}; how often was not measured, so the job's time does not include it",
    )  # fmt: skip


_MINUTE_S = 60.0
_NOTABLE = 0.1
"""Of an epoch: a wait that is worth a warning."""


def _outcome(scenario: Resolved, window: Result, courses: Sequence[Course], ends: Sequence[Ended]) -> JobOutcome:
    job = scenario.job
    assert job is not None
    finished = [end for end in ends if not end.given_up]
    if len(finished) < _FEWEST_ENDED:
        which = f"all but one of {len(ends)} runs of the job are" if finished else "every run of the job is"
        raise SimulationError(
            f"{which} given up after more restarts than job.faults.retries ({job.faults and job.faults.retries}): allow more, write "
            "checkpoints more often, or raise run.replications"
        )
    parts = JobParts(**{name: statistics.fmean(getattr(end.parts, name) for end in finished) for name in JobParts.model_fields})
    each = [0.0 if end.given_up else job.total_samples / end.time_s for end in ends]
    all_s = [end.time_s for end in finished]
    # what the model is off by is of steps; the rest is as it is given
    relative_error = relative_error_of(window.discrepancy)
    shares = tuple(_share_of_steps(end) for end in ends) if any(end.faults for end in ends) else ()
    if shares:
        times = interval_of_jobs(all_s, [_share_of_steps(end) for end in finished], relative_error.inverse)
        rates = interval_of_jobs(each, shares, relative_error, power=-1)
    else:
        relative_error = relative_error.times(parts.of_steps / statistics.fmean(all_s))
        times, rates = prediction_interval(all_s, relative_error.inverse), prediction_interval(each, relative_error)
    fastest = max(window.throughput_samples_per_s.high, rates.mean)  # no job is faster than its steps
    rates = Estimate(mean=rates.mean, low=rates.low, high=min(rates.high, fastest))
    times = Estimate(mean=times.mean, low=max(times.low, min(job.total_samples / fastest, times.mean)), high=times.high)
    usual = _mean_course(courses)
    checkpoints_s = checkpoints_of(usual)
    return JobOutcome(
        samples=job.total_samples,
        steps=courses[0].steps,
        epochs=job.total_samples / job.epoch_samples,
        time_s=times,
        cost_usd=_cost_usd(scenario, finished, times, relative_error),
        samples_per_s=rates,
        samples_per_s_of_each_replication=tuple(each),
        steps_share_of_each_replication=shares,
        # of all runs together, so that it is what the parts say
        goodput=_at_most_1(around(parts.steps / statistics.fmean(all_s), [end.parts.steps / end.time_s for end in finished])),
        parts_s=parts,
        each_epoch=_each_epoch(courses, usual, checkpoints_s),
        checkpointing=_checkpointing(scenario, courses, usual, math.fsum(checkpoints_s)),
        mtbf_s=mtbf_s(scenario),
        faults=statistics.fmean(end.faults for end in finished),
        away_node_s=statistics.fmean(math.fsum(until_s - since_s for _, since_s, until_s in end.away) for end in finished),
        given_up=1.0 - len(finished) / len(ends),
    )


def _cost_usd(scenario: Resolved, finished: Sequence[Ended], times: Estimate, relative_error: RelativeError) -> Estimate | None:
    """All nodes until the job ends, but for those that were taken away while they were: nobody pays for these."""
    if not any(end.away for end in finished):
        return usd_estimate(scenario, times, [end.time_s for end in finished])
    costs = [usd_of(scenario, end.time_s, end.away) for end in finished]
    if None in costs:
        return None
    known = [cost for cost in costs if cost is not None]
    interval = interval_of_jobs(known, [_share_of_steps(end) for end in finished], relative_error.inverse)
    low, high = (usd_of(scenario, end_s) or 0.0 for end_s in (times.low, times.high))  # of all nodes, which is the most
    return Estimate(mean=interval.mean, low=min(interval.low, low, interval.mean), high=max(min(interval.high, high), interval.mean))


def _share_of_steps(end: Ended) -> float:
    """Share of the run's time; where a fault ends it at once, 1."""
    return end.parts.of_steps / end.time_s if end.time_s else 1.0


def _at_most_1(estimate: Estimate) -> Estimate:
    return Estimate(mean=min(estimate.mean, 1.0), low=min(estimate.low, 1.0), high=min(estimate.high, 1.0))


def _crews(scenario: Resolved, faults: Faults, rates_of: Rates) -> Callable[[int], Crew]:
    """Who trains in each replication, with throughputs for fewer workers as they are needed."""
    pace, layout = scenario.strategy.pace, scenario.layout
    needed = workers = layout.processes
    if layout.servers:
        needed = faults.min_workers if pace.asynchronous else -(-pace.awaited(layout.replicas) // layout.replicas_per_process)
    elif faults.elastic:
        needed = faults.min_workers
    needed = min(needed, workers)

    @cache
    def rates_without(missing: int) -> Sequence[float]:
        """Rates of the same training with fewer workers, each with its batch."""
        strategy = scenario.strategy.fewer((workers - missing) * layout.replicas_per_process, layout.ranks)
        try:
            strategy.check_layout(scenario.cluster)
        except ValueError as error:
            raise ScenarioError(
                f"the job cannot continue with {workers - missing} of {workers} workers: {error}; raise min_workers"
            ) from None
        batch = {"workload.batch_per_replica": scenario.batch, "workload.global_batch": None}
        return rates_of(resolve(window_of(scenario).replaced({**batch, "strategy": strategy})))

    def step_s(replication: int, present: int) -> float:
        """Seconds of a step: throughputs are simulated with 1, 2, 4, ... fewer, and between those taken on a straight line."""
        missing = workers - present
        less = 1 << (missing.bit_length() - 1)
        more = max(min(2 * less, workers - needed), less)
        low, high = (rates_without(count)[replication] for count in (less, more))
        share = (missing - less) / (more - less) if more > less else 0.0
        return step_samples(scenario) / (low + share * (high - low))

    return lambda replication: Crew(faults, workers, needed, partial(effect_of, scenario), partial(step_s, replication))


def _evaluation_step_s(scenario: Resolved, step_s: float) -> float:
    """Seconds of a step of an evaluation: the forward pass of the slowest replica, or of its input where that takes longer.

    Of models that are cut over devices the share of a step that the forward pass has of the work.
    """
    job, load, cluster = scenario.job, scenario.workload, scenario.cluster
    assert job is not None
    if job.evaluation is None:
        return 0.0
    batch = evaluation_batch(scenario)
    forward_s = load.forward(batch)
    if scenario.layout.ranks_per_replica > 1:
        share = load.forward(scenario.batch) / (load.compute_s(scenario.batch) + load.apply_s)
        return float(step_s * share * batch / scenario.batch)
    slowest = min(cluster.speed_of(node) for node in {0, *range(min(scenario.layout.worker_nodes, _LOOKED_AT))})
    return float(max(forward_s * crowding(scenario) / slowest, load.input(batch)))


_LOOKED_AT = 10_000


def _mean_course(courses: Sequence[Course]) -> Course:
    """The course with means of what differs between courses."""
    means: dict[str, Any] = {name: _mean(courses, attrgetter(name)) for name in _SECONDS}
    # steps between checkpoints, as steps of mean length; 0 where they come after epochs
    write_steps = max(round(_interval_s(courses) / means["step_s"]), 1.0) if courses[0].write_steps else 0.0
    return replace(courses[0], write_steps=write_steps, **means)


_SECONDS = (
    "step_s", "first_step_s", "startup_s", "tracing_s", "evaluation_tracing_s", "filling_s", "first_filling_s", "evaluation_s",
)  # fmt: skip


def _each_epoch(courses: Sequence[Course], usual: Course, checkpoints_s: Sequence[float]) -> tuple[Epoch, ...]:
    """The epochs without faults, equal ones merged."""
    epochs: list[Epoch] = []
    like_it: Counter[int] = Counter()
    place_of: dict[tuple[_Kind, _Kind | None], int] = {}
    lived_s: dict[_Kind | None, float] = {None: 0.0}
    before: _Kind | None = None
    for number, (steps, written_s) in enumerate(zip(usual.epochs, checkpoints_s, strict=True)):
        evaluates = usual.evaluates(number)
        kind = number == 0, steps, evaluates, evaluates and number + 1 == usual.evaluation_every, written_s
        key = kind, before if usual.iterators is not None else None  # one ends the iterators of the one before
        if key not in place_of:
            epoch = _epoch(courses, usual, number, written_s, lived_s[before])
            lived_s[kind] = epoch.time_s - epoch.iterators_s - (0.0 if number else usual.tracing_s)
            alike = (at for at, other in enumerate(epochs) if other.replaced({"number": epoch.number}) == epoch)
            place_of[key] = next(alike, len(epochs))
            if place_of[key] == len(epochs):
                epochs.append(epoch)
        like_it[place_of[key]] += 1
        before = kind
    return tuple(epoch.replaced({"like_it": like_it[at]}) for at, epoch in enumerate(epochs))


_Kind = tuple[bool, float, bool, bool, float]
"""Properties of an epoch: whether it is the first, its steps, whether an evaluation follows, whether that is the first, and checkpoints."""


def _epoch(courses: Sequence[Course], usual: Course, number: int, checkpoint_s: float, age_s: float) -> Epoch:
    """One of them, in which training waits for so long for checkpoints; it ends iterators of that age."""
    steps, step_s, filling_s, tracing_s = usual.epochs[number], usual.step_s, usual.filling_s, 0.0
    if not number:
        step_s, filling_s, tracing_s = usual.first_step_s, usual.first_filling_s, usual.tracing_s
    first_s = step_s + tracing_s + filling_s
    evaluation_s = iterators_s = 0.0
    if usual.evaluates(number):
        evaluation_s = _mean(courses, lambda course: course.evaluation_s + _ending_s(course, course.evaluation_s))
    if evaluation_s and number + 1 == usual.evaluation_every:
        evaluation_s += usual.evaluation_tracing_s
    if number and usual.renews:
        iterators_s = _mean(courses, lambda course: _ending_s(course, age_s))
    return Epoch(
        number=number + 1,
        like_it=1,
        time_s=first_s + max(steps - 1.0, 0.0) * step_s + evaluation_s + checkpoint_s + iterators_s,
        first_step_s=first_s,
        step_s=step_s,
        steps=steps,
        evaluation_s=evaluation_s,
        checkpoint_s=checkpoint_s,
        iterators_s=iterators_s,
    )


def _ending_s(course: Course, age_s: float) -> float:
    """For which the end of iterators of that age stops the training, in the mean over draws."""
    return course.iterators.mean_wait_s(age_s) if course.iterators is not None else 0.0


def _mean(courses: Sequence[Course], of: Callable[[Course], float]) -> float:
    return statistics.fmean(of(course) for course in courses)


def _interval_s(courses: Sequence[Course]) -> float:
    """Mean seconds of steps between checkpoints: each run has as many whole steps as its own interval takes."""
    return _mean(courses, lambda course: course.step_s * (course.write_steps or course.write_epochs * course.epochs[0]))


def _checkpointing(scenario: Resolved, courses: Sequence[Course], usual: Course, spent_s: float) -> Checkpointing | None:
    job = scenario.job
    if not (usual.write_steps or usual.write_epochs):
        return None
    between_s = mtbf_s(scenario, stopping=True)
    written = sum(usual.written_in())
    cost_s = spent_s / written if written and usual.writing.lasts_s else usual.writing.stop_s
    interval_s = _interval_s(courses)
    assert job is not None
    assert job.checkpoint is not None
    best_s = None if between_s is None else best_written_s(usual.writing, between_s)
    return Checkpointing(
        set_s=best_s if job.checkpoint.interval == "best" else job.checkpoint.every_s,
        interval_s=interval_s,
        wall_s=interval_s + cost_s,
        cost_s=cost_s,
        size_bytes=usual.writing.size_bytes,
        best_s=best_s,
        young_s=None if between_s is None else young_interval_s(cost_s, between_s),
        daly_s=None if between_s is None else daly_interval_s(cost_s, between_s),
    )
