"""Sentences about results and plans that more than one place says: the terminal, the report, a plan.

:mod:`simulator.base.text` says how numbers are written, :mod:`simulator.results.bottleneck` what limits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from paceline.comparing import of_more_devices
from simulator.base.text import (
    Kind,
    counted,
    format_bytes,
    format_change,
    format_count,
    format_hourly,
    format_interval,
    format_number,
    format_seconds,
    format_share,
    format_throughput,
    format_usd,
    written,
)
from simulator.results.cost import (
    capital_usd,
    committed_usd,
    paid_for,
    placement_of,
    running_usd_per_hour,
    usd_per_hour,
    usd_per_million_samples,
)
from simulator.results.intervals import paired_ratio
from simulator.results.next_measurement import width_of
from simulator.results.results import Result
from simulator.spec.figures import Checkpointing, Estimate, JobOutcome
from simulator.spec.uncertainty import between

if TYPE_CHECKING:
    from paceline.planning.answer import Candidate, Decision, Improvement, JobCount, Plan, ServerCount, WorkerCount
    from paceline.planning.goal import Goal
    from simulator.scenario import Scenario

NOT_CERTAIN = "effect not certain"
"""Of a change whose interval, run by run, holds 0."""

_VISIBLE = 0.0005
"""A share that a reader's calculator would find."""


def variance_in_words(result: Result) -> str:
    """What the interval of the throughput is made of, and how often such intervals hold; empty where that is not known."""
    scatter, applied = result.scatter, result.discrepancy
    if scatter is None or not any(scatter.shares):
        return ""
    model, fits, chance = map(format_share, scatter.shares)
    held = applied.coverage_in_words if applied is not None else "what the model itself is off by is not in it"
    parts = f"{model} is what the model itself is off by, {fits} what the fits leave open, {chance} run-to-run variation"
    return f"of its variance {parts}; {held}"


def coverage_in_words(result: Result) -> str:
    """How often such intervals held real runs that took no part in them; empty where the model's own error is not in them."""
    return "" if result.discrepancy is None else result.discrepancy.coverage_in_words


def measure_next_in_words(result: Result, *, brief: bool = False) -> str:
    """The command that would narrow the interval most, and the one that is expected then; empty where none would by much."""
    best = next((measurement for measurement in width_of(result).measure_next if measurement.left <= _WORTH_MEASURING), None)
    if best is None:
        return ""
    expected = "could at best" if best.at_best else "should"
    if brief:
        return f"`{' '.join(best.command.split()[:2])}` {expected} leave {format_share(best.left)} of the width."
    then = best.throughput_samples_per_s
    ends = format_interval(then.low, then.high, "throughput")
    return f"`{best.command}` {expected} narrow the 90% interval to {ends} samples/s, {format_share(best.left)} as wide"


_WORTH_MEASURING = 0.9
"""What leaves more of the width is not worth a sentence."""


def doubled_in_words(count: int) -> str:
    """That results are left out of which there are later ones of the same scenarios; empty where there are none."""
    if not count:
        return ""
    return f"{counted(count, 'result')} of a scenario that is there again {'are' if count > 1 else 'is'} left out; the last counts."


def cost_in_words(result: Result) -> str | None:
    """Price of an hour of all machines, where it is from, and what a million samples cost; None where there is no price."""
    hourly, million, price = usd_per_hour(result.scenario), usd_per_million_samples(result), result.scenario.cluster.price
    if hourly is None or million is None or price is None:
        return None
    text = (
        f"{format_hourly(hourly)} an hour for {placement_of(result.scenario).nodes:,} x "
        f"{format_hourly(price.usd_per_node_hour)} ({price.said}); {format_usd(million.mean)} for a million samples"
    )
    at_mean = hourly / 3600 / result.throughput_samples_per_s.mean * 1e6
    if format_usd(at_mean) != format_usd(million.mean):
        text += f" (90% of runs: {format_usd(million.low)} to {format_usd(million.high)}; mean over runs, which differ: at the mean "
        text += f"throughput {format_usd(at_mean)})"
    if (committed := committed_usd(result.scenario)) is not None:
        text += f"; {format_usd(committed)} {for_what(result.scenario)}"
    return "; ".join(filter(None, (text, running_in_words(result.scenario))))


def for_what(scenario: Scenario) -> str:
    """For what machines take money that are not rented by the hour."""
    reserved = [price for _, price in paid_for(scenario) if price is not None and price.reserved is not None]
    upfront = capital_usd(scenario)
    if not reserved:
        return "to buy"
    return f"for the term ({format_usd(upfront)} of it up front)" if upfront else "for the term"


def running_in_words(scenario: Scenario) -> str:
    """What an hour costs beside the capital; nothing where machines are rented by the hour, or that part is not known."""
    running = running_usd_per_hour(scenario)
    if running is None or committed_usd(scenario) is None:
        return ""
    return f"running costs {format_hourly(running)} an hour in use"


# -- plans ---------------------------------------------------------------------------------


def goal_in_words(goal: Goal) -> str:
    """What is asked for: ``100,000 samples in 12 h``."""
    if goal.target_throughput_samples_per_s is not None:
        return f"{written(goal.target_throughput_samples_per_s, 'setting')} samples/s"
    total = goal.samples
    assert total is not None
    limits = [f"in {written(goal.deadline_s, 'setting_s')}"] if goal.deadline_s is not None else []
    limits += [f"for {format_usd(goal.budget_usd)}"] if goal.budget_usd is not None else []
    return f"{format_count(total)} samples {' and '.join(limits)}"


def staleness_in_words(result: Result) -> str:
    """How old gradients are; nothing where none is."""
    stale = result.staleness
    return f"gradients {written(stale.mean, 'updates')} updates old on average (p95 {stale.p95})" if stale.max else ""


def chance_in_words(best: float, runs: int) -> str:
    """A probability to be the best; at either end of what the runs can show, that it may be beyond it."""
    least = 1.0 / (runs + 1)
    bound = "at least " if best >= 1.0 - least - _ROUNDING else "at most " if best <= least + _ROUNDING else ""
    return f"{bound}{format_number(best, 2)}"


_ROUNDING = 1e-9


def regret_in_words(decision: Decision) -> str:
    """What choosing it is expected to cost, in its unit."""
    if decision.unit == "usd":
        return format_usd(decision.regret)
    return format_seconds(decision.regret) if decision.unit == "s" else f"{written(decision.regret, 'throughput')} samples/s"


def standing_in_words(candidate: Candidate) -> str:
    """Return how a candidate stands beside the answer, in one number with its reason; nothing where chance has no say.

    That is its probability to be the best, which counts the model's error as the paired runs do not; where it is not compared so, the
    paired runs alone.
    """
    paired, decision = candidate.paired, candidate.decision
    pairs = "" if paired is None else f"the answer is {paired.by} in {paired.wins} of {paired.runs} paired runs"
    if decision is None:
        return pairs
    regret = f"{regret_in_words(decision)} ({format_share(decision.regret_share)})"
    text = f"the best with a probability of {chance_in_words(decision.best, decision.runs)}, expected regret {regret}"
    decided = paired is not None and paired.wins == paired.runs
    if decided and decision.best > 1.0 / (decision.runs + 1) + _ROUNDING:
        return f"{text}: {pairs}, but the model errs otherwise for the two"
    return text


def stake_in_words(answer: Candidate) -> str:
    """How probably the answer is the best of those compared, and by how much it is worse where it is not; empty where chance has no say."""
    decision = answer.decision
    if decision is None:
        return ""
    text = f"best of {decision.among} candidates with probability {chance_in_words(decision.best, decision.runs)}"
    if decision.regret_where_not_best is None:
        return text
    worse = {"usd": "dearer", "s": "slower", "samples/s": "slower"}[decision.unit]
    return f"{text} (else {format_share(decision.regret_where_not_best)} {worse} on average)"


LARGER_BATCH = "2x batch"
"""Name of the one change that changes what is learned as well."""
_WORTH_A_LARGER_BATCH = 1.25


def helpfulness(name: str, gain: float) -> float:
    """Sorts changes by what they gain; a larger batch, which costs samples besides, helps most only where it gains a quarter more.

    >>> helpfulness(LARGER_BATCH, 0.24) < helpfulness("2x bandwidth", 0.2) < helpfulness(LARGER_BATCH, 0.26)
    True
    """
    return gain / _WORTH_A_LARGER_BATCH if name == LARGER_BATCH else gain


def change_in_words(ratio: Estimate) -> str:
    """A change of throughput with its interval: ``+76% (90% of runs: +70% to +82%)``."""
    change, low, high = (format_change(value - 1) for value in (ratio.mean, ratio.low, ratio.high))
    return change if low == high else f"{change} (90% of runs: {low} to {high})"


def time_note(candidates: Sequence[Candidate], goal: Goal) -> str:
    """By how much times and costs exceed those at the mean throughput; nothing where no reader would find so."""
    total = goal.samples
    if total is None:
        return ""
    if any(candidate.result.job is not None for candidate in candidates):
        return "Hours and cost are those of the whole job, with all that is no step; throughput is that of its steps."
    times = [(candidate.time_s, candidate.result.throughput_samples_per_s.mean) for candidate in candidates]
    most = max((time_s.mean * rate / total - 1 for time_s, rate in times if time_s is not None), default=0.0)
    if most < _VISIBLE:
        return ""
    return (
        f"Hours and cost are means over runs: up to {format_share(most)} more than samples / mean throughput gives, "
        "because slow runs take longer than fast ones save."
    )


def nodes_beyond(nodes: int | None, scenario: Scenario) -> str:
    """How many nodes more than the cluster has something around a scenario needs; nothing where they are enough, or not limited."""
    cluster = scenario.cluster
    if nodes is None or cluster.room is None or nodes <= cluster.room:
        return ""
    return f"{counted(nodes - cluster.room, 'node')} more than {cluster.room_key} gives"


def beyond_in_brackets(changed: Improvement | ServerCount | WorkerCount, plan: Plan) -> str:
    """The same of something around a plan's answer, to stand behind its name."""
    text = nodes_beyond(changed.nodes, plan.chosen.result.scenario)
    return f" ({text})" if text else ""


def workers_note(plan: Plan) -> str:
    """Where adding workers stops paying; nothing where that was not simulated."""
    counts, until = plan.workers, plan.workers_pay_until
    if len(counts) < _PAIR or until is None:
        return ""
    if until == counts[-1].workers:
        return (
            f"Adding workers pays up to {until:,}{beyond_in_brackets(counts[-1], plan)}, the most that were simulated, {_PER_WORKER}: "
            "each doubling brings at least half again as much."
        )
    place = next(index for index, count in enumerate(counts) if count.workers == until)
    after = counts[place + 1]
    pays = f"pays up to {until:,}{beyond_in_brackets(counts[place], plan)}" if place else "does not pay"
    what = "samples/s of the whole job change" if after.job is not None else "throughput changes"
    return (
        f"Adding workers {pays}, {_PER_WORKER}: from {until:,} to {after.workers:,}{beyond_in_brackets(after, plan)} {what} by "
        f"{change_in_words(_growth(counts[place], after))}, "
        f"less than half of the {format_share(after.workers / until - 1)} that they add."
    )


_PAIR = 2
_PER_WORKER = "judged by throughput per worker, not by the goal"


def servers_note(plan: Plan) -> str:
    """How many parameter servers are enough; nothing where there are none."""
    enough = plan.servers_enough
    if enough is None:
        return ""
    more = [count for count in plan.servers if count.servers > enough]
    fewest = next(count for count in plan.servers if count.servers == enough)
    beyond = beyond_in_brackets(fewest, plan)
    shown = f"{enough} parameter server{'s' if enough > 1 else ''}{beyond} {'are' if enough > 1 else 'is'} enough"
    if not more:
        return f"{shown}, the most that were simulated: more may still bring 2% or more, or cannot be (no more variables to spread)."
    best = max(more, key=lambda count: count.throughput_samples_per_s.mean)
    growth = _growth(fewest, best)
    changes = f"{best.servers}{beyond_in_brackets(best, plan)} change throughput by {change_in_words(growth)}"
    return f"{shown}: {changes}, and no number up to {more[-1].servers} by 2% or more on average."


def work_note(plan: Plan) -> str:
    """What became of the configurations that the ranges name, and what was simulated besides."""
    refused = sum(refusal.configurations for refusal in plan.refused)
    parts = [f"{plan.discarded:,} were discarded by closed forms"]
    parts += [f"{plan.passed_over:,} passed over by the search"] if plan.passed_over else []
    parts += [f"{refused:,} refused"] if refused else []
    others = plan.simulated - len(plan.candidates)
    reasons = (
        (plan.for_each_cluster, "only so that each cluster has its best"),
        (plan.for_each_strategy, "only so that each strategy has its best"),
        (plan.for_tuning, "to choose the size of buckets"),
        (plan.for_each_way, "only so that each way of training has its best"),
    )
    only = [f"{count:,} of them {why}" for count, why in reasons if count]
    each = f" ({', '.join(only)})" if only else ""
    return (
        f"{plan.considered:,} configurations were considered: {', '.join(parts)}, {len(plan.candidates):,} simulated{each}, "
        f"and {others:,} scenarios besides around the answer."
    )


def _growth(few: WorkerCount | ServerCount, many: WorkerCount | ServerCount) -> Estimate:
    """Throughput of many over that of few; workers bring no more than their own number does."""
    before = getattr(few, "workers", 0)  # servers are counted without
    most = getattr(many, "workers", 0) / before if before else math.inf
    jobs: tuple[JobCount | None, JobCount | None] = getattr(many, "job", None), getattr(few, "job", None)
    runs, others = many.throughput_of_each_replication, few.throughput_of_each_replication
    if jobs[0] is not None and jobs[1] is not None:
        runs, others = jobs[0].samples_per_s_of_each_replication, jobs[1].samples_per_s_of_each_replication
    return of_more_devices(paired_ratio(runs, others, between(many.discrepancy, few.discrepancy)), most)


# -- the whole job -------------------------------------------------------------------------


def job_in_words(result: Result) -> list[tuple[str, str]]:
    """What there is to say of a job, each under a heading; nothing without one."""
    job = result.job
    if job is None:
        return []
    time_s, cost = job.time_s, job.cost_usd
    said = [("time", f"{format_seconds(time_s.mean)}{_of_runs(time_s.low, time_s.high, 'seconds')} for {length_in_words(job)}")]
    if cost is not None:
        said.append(("cost", f"{format_usd(cost.mean)}{_of_runs(cost.low, cost.high, 'usd')} for all of it"))
    rate, steady = job.samples_per_s.mean, result.throughput_samples_per_s.mean
    good = f"{written(job.goodput.mean, 'share')}{_of_runs(job.goodput.low, job.goodput.high, 'share')} of the time"
    said.append(("goodput", f"{good}; {format_throughput(rate)} samples/s over the whole job, {format_throughput(steady)} while it steps"))
    if job.each_epoch:
        said.append(("epochs", epochs_in_words(job)))
    if job.checkpointing is not None:
        said.append(("checkpoints", checkpoints_in_words(job.checkpointing)))
    if text := faults_in_words(job):
        said.append(("faults", text))
    return said


def length_in_words(job: JobOutcome) -> str:
    """How long the job is: ``1,280,000 samples in 10 epochs, 2,500 steps``."""
    epochs = f"{written(job.epochs, 'setting')} epoch{'' if job.epochs == 1 else 's'}"
    return f"{written(job.samples, 'setting')} samples in {epochs}, {written(job.steps, 'setting')} steps"


def epochs_in_words(job: JobOutcome) -> str:
    """The first epoch, and the one that most of the others are like."""
    first, *later = job.each_epoch
    text = f"the first {format_seconds(first.time_s)}, of that its first step {format_seconds(first.first_step_s)}"
    if later:
        most = max(later, key=lambda epoch: epoch.like_it)
        count = f", as {most.like_it:,} of {sum(epoch.like_it for epoch in job.each_epoch):,} are" if most.like_it > 1 else ""
        text += f"; later ones {format_seconds(most.time_s)}{count}"
    return text


def checkpoints_in_words(state: Checkpointing) -> str:
    """How often, at what cost, and how often would be best."""
    waits = f"{format_seconds(state.cost_s)} of waiting each ({format_bytes(state.size_bytes)})"
    text = f"after every {format_seconds(state.interval_s)} of steps, {format_seconds(state.interval_s + state.cost_s)} with {waits}"
    if state.set_s is not None and written(state.set_s, "seconds") != written(state.interval_s, "seconds"):
        text += f"; set to {format_seconds(state.set_s)}, which whole steps make {format_seconds(state.interval_s)}"
    if state.best_s is None:
        return text
    rules = ", ".join(f"{name} {format_seconds(value)}" for name, value in (("Young", state.young_s), ("Daly", state.daly_s)) if value)
    return f"{text}; best after {format_seconds(state.best_s)} of steps{f' ({rules})' if rules else ''}"


def faults_in_words(job: JobOutcome) -> str:
    """How many are expected; empty where nothing fails."""
    if not job.faults and job.mtbf_s is None:
        return ""
    if job.faults:
        between = f", one every {format_seconds(job.time_s.mean / job.faults)}" if job.faults > 1 else ""
        text = f"{written(job.faults, 'number')} on average until the job ends{between}"
    else:
        expected = f"; the mean times say one every {format_seconds(job.mtbf_s)}" if job.mtbf_s is not None else ""
        text = f"none in any run until the job ends{expected}"
    return f"{text}; {format_share(job.given_up)} of runs are given up" if job.given_up else text


def _of_runs(low: float, high: float, kind: Kind) -> str:
    """An interval in brackets, where its ends can be told apart."""
    return f" (90% of runs: {format_interval(low, high, kind)})" if written(low, kind) != written(high, kind) else ""
