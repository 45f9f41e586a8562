"""Sentences about results and plans that the terminal, reports and plans share.

:mod:`simulator.base.text` formats numbers, :mod:`simulator.results.bottleneck` describes limits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from paceline.comparing import of_more_devices
from simulator.base.text import (
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
    usd_per_billion_tokens,
    usd_per_hour,
    usd_per_million_samples,
)
from simulator.results.intervals import paired_ratio
from simulator.results.results import Result
from simulator.spec.figures import Checkpointing, Estimate, JobOutcome, Unit
from simulator.spec.uncertainty import between

if TYPE_CHECKING:
    from paceline.planning.answer import Candidate, Decision, Improvement, JobCount, Plan, ServerCount, WorkerCount
    from paceline.planning.goal import Goal
    from simulator.scenario import Scenario

NOT_CERTAIN = "effect not certain"
"""For a change whose interval, paired by run, contains 0."""

_VISIBLE = 0.0005
"""Smallest difference that a reader would notice."""


def doubled_in_words(count: int) -> str:
    """Return a remark on results that later results of the same scenarios replace; empty where there are none."""
    if not count:
        return ""
    return f"{counted(count, 'earlier result')} of repeated scenarios {'are' if count > 1 else 'is'} left out; the last counts."


def cost_in_words(result: Result) -> str | None:
    """Return the price of an hour of all machines, its source, and the cost of a million samples or a billion tokens; None without one."""
    hourly, price = usd_per_hour(result.scenario), result.scenario.cluster.price
    cost, many, what = usd_per_billion_tokens(result), 1e9, "a billion tokens"
    if result.scenario.unit.name == "samples":
        cost, many, what = usd_per_million_samples(result), 1e6, "a million samples"
    if hourly is None or cost is None or price is None:
        return None
    text = (
        f"{format_hourly(hourly)} an hour for {placement_of(result.scenario).nodes:,} x "
        f"{format_hourly(price.usd_per_node_hour)} ({price.said}); {format_usd(cost.mean)} for {what}"
    )
    at_mean = hourly / 3600 / result.rate.mean * many
    if format_usd(at_mean) != format_usd(cost.mean) and format_usd(cost.low) != format_usd(cost.high):
        text += f" (90% of runs: {format_usd(cost.low)} to {format_usd(cost.high)}; mean over runs, which differ: at the mean "
        text += f"throughput {format_usd(at_mean)})"
    if (committed := committed_usd(result.scenario)) is not None:
        text += f"; {format_usd(committed)} {for_what(result.scenario)}"
    return "; ".join(filter(None, (text, running_in_words(result.scenario))))


def for_what(scenario: Scenario) -> str:
    """Return what the money pays for where machines are not rented by the hour."""
    reserved = [price for _, price in paid_for(scenario) if price is not None and price.reserved is not None]
    upfront = capital_usd(scenario)
    if not reserved:
        return "to buy"
    return f"for the term ({format_usd(upfront)} of it up front)" if upfront else "for the term"


def running_in_words(scenario: Scenario) -> str:
    """Return the hourly running cost of bought or reserved machines; empty where they are rented by the hour, or it is not known."""
    running = running_usd_per_hour(scenario)
    if running is None or committed_usd(scenario) is None:
        return ""
    return f"running costs {format_hourly(running)} an hour in use"


# -- plans ---------------------------------------------------------------------------------


def goal_in_words(goal: Goal, unit: Unit) -> str:
    """Return a goal as ``100,000 samples in 12 h``."""
    if goal.target_throughput_samples_per_s is not None:
        return f"{written(goal.target_throughput_samples_per_s * unit.per_sample, 'setting')} {unit.per_s}"
    total = goal.samples
    assert total is not None
    limits = [f"in {written(goal.deadline_s, 'setting_s')}"] if goal.deadline_s is not None else []
    limits += [f"within ${goal.budget_usd:,.10g}"] if goal.budget_usd is not None else []
    return f"{_total_in_words(total * unit.per_sample)} {unit.name} {' '.join(limits)}"


def _total_in_words(total: float) -> str:
    """A number of samples as people type it: ``1e9``, ``1.28e6``, ``50,000``."""
    mantissa, _, power = f"{total:.3g}".partition("e")
    return f"{mantissa}e{int(power)}" if power and total >= 1e6 and float(f"{mantissa}e{power}") == total else format_count(total)


def staleness_in_words(result: Result) -> str:
    """Return how stale gradients are; empty where none is stale."""
    stale = result.staleness
    return f"gradients {written(stale.mean, 'updates')} updates old on average (p95 {stale.p95})" if stale.max else ""


def chance_in_words(best: float, runs: int, *, percent: bool = False) -> str:
    """Return the probability of being the best, as a bound where the runs resolve no more."""
    least = 1.0 / (runs + 1)
    bound = "at least " if best >= 1.0 - least - _ROUNDING else "at most " if best <= least + _ROUNDING else ""
    return f"{bound}{format_share(best) if percent else format_number(best, 2)}"


_ROUNDING = 1e-9


def regret_in_words(decision: Decision) -> str:
    """Return the expected regret of choosing a candidate, with its unit."""
    if decision.unit == "usd":
        return format_usd(decision.regret)
    return format_seconds(decision.regret) if decision.unit == "s" else f"{written(decision.regret, 'throughput')} {decision.unit}"


def standing_in_words(candidate: Candidate) -> str:
    """Compare a candidate with the answer in one sentence; empty where results are deterministic.

    It gives the candidate's probability of being the best, model error included. Where that is not known, it counts paired runs.
    """
    paired, decision = candidate.paired, candidate.decision
    pairs = "" if paired is None else f"the answer is {paired.by} in {paired.wins} of {paired.runs} paired runs"
    if decision is None:
        return pairs
    regret = f"{regret_in_words(decision)} ({format_share(decision.regret_share)})"
    text = f"best with probability {chance_in_words(decision.best, decision.runs)}, expected regret {regret}"
    decided = paired is not None and paired.wins == paired.runs
    if decided and decision.best > 1.0 / (decision.runs + 1) + _ROUNDING:
        return f"{text}: {pairs}, but model errors of the two differ"
    return text


def stake_in_words(answer: Candidate) -> str:
    """Return the probability that the answer is the best candidate, and its mean loss otherwise; empty where results are deterministic."""
    decision = answer.decision
    if decision is None:
        return ""
    better = "cheaper" if decision.unit == "usd" else "faster"
    text = f"{chance_in_words(decision.best, decision.runs, percent=True)} that no alternative is {better}"
    if decision.regret_where_not_best is None:
        return text
    less = format_share(decision.regret_where_not_best)
    worse = {"usd": f"costs {less} more", "s": f"takes {less} longer"}.get(decision.unit, f"is {less} slower")
    return f"{text}; if one is, this {worse} on average"


LARGER_BATCH = "2x batch"
"""Name of the only change that also affects convergence."""
_WORTH_A_LARGER_BATCH = 1.25


def helpfulness(name: str, gain: float) -> float:
    """Return a sort key for changes: the gain, discounted for a larger batch, which also needs more samples.

    >>> helpfulness(LARGER_BATCH, 0.24) < helpfulness("2x bandwidth", 0.2) < helpfulness(LARGER_BATCH, 0.26)
    True
    """
    return gain / _WORTH_A_LARGER_BATCH if name == LARGER_BATCH else gain


def change_in_words(ratio: Estimate) -> str:
    """Return a change of throughput with its interval: ``+76% (90% of runs: +70% to +82%)``."""
    change, low, high = (format_change(value - 1) for value in (ratio.mean, ratio.low, ratio.high))
    return change if low == high else f"{change} (90% of runs: {low} to {high})"


def time_note(candidates: Sequence[Candidate], goal: Goal) -> str:
    """Explain why times and costs exceed those at the mean throughput; empty where the difference is not visible."""
    total = goal.samples
    if total is None:
        return ""
    if any(candidate.result.job is not None for candidate in candidates):
        return "Hours and cost cover the whole job, including time outside steps; throughput covers its steps only."
    times = [(candidate.time_s, candidate.result.throughput_samples_per_s.mean) for candidate in candidates]
    most = max((time_s.mean * rate / total - 1 for time_s, rate in times if time_s is not None), default=0.0)
    if most < _VISIBLE:
        return ""
    return (
        f"Hours and cost are means over runs. They exceed samples / mean throughput by up to {format_share(most)}, "
        "because slow runs lose more time than fast runs save."
    )


def nodes_beyond(nodes: int | None, scenario: Scenario) -> str:
    """Return how many nodes are missing from the cluster; empty where there are enough, or no limit."""
    cluster = scenario.cluster
    if nodes is None or cluster.room is None or nodes <= cluster.room:
        return ""
    return f"{counted(nodes - cluster.room, 'node')} more than {cluster.room_key} gives"


def beyond_in_brackets(changed: Improvement | ServerCount | WorkerCount, plan: Plan) -> str:
    """Return missing nodes of a variant of the answer, in brackets, to follow its name."""
    text = nodes_beyond(changed.nodes, plan.chosen.result.scenario)
    return f" ({text})" if text else ""


def workers_note(plan: Plan) -> str:
    """Return where adding workers stops paying; empty where that was not simulated."""
    counts, until = plan.workers, plan.workers_pay_until
    if len(counts) < _PAIR or until is None:
        return ""
    if until == counts[-1].workers:
        return (
            f"Adding workers pays up to {until:,}{beyond_in_brackets(counts[-1], plan)}, the most simulated ({_PER_WORKER}): "
            "each doubling gains at least 50%."
        )
    place = next(index for index, count in enumerate(counts) if count.workers == until)
    after = counts[place + 1]
    pays = f"pays up to {until:,}{beyond_in_brackets(counts[place], plan)}" if place else "does not pay"
    what = f"{plan.unit.per_s} of the whole job change" if after.job is not None else "throughput changes"
    return (
        f"Adding workers {pays} ({_PER_WORKER}): from {until:,} to {after.workers:,}{beyond_in_brackets(after, plan)} {what} by "
        f"{change_in_words(_growth(counts[place], after))}, "
        f"less than half of the ideal {format_change(after.workers / until - 1)}."
    )


_PAIR = 2
_PER_WORKER = "judged by throughput per worker, not by the goal"


def servers_note(plan: Plan) -> str:
    """Return how many parameter servers are enough; empty where there are none."""
    enough = plan.servers_enough
    if enough is None:
        return ""
    more = [count for count in plan.servers if count.servers > enough]
    fewest = next(count for count in plan.servers if count.servers == enough)
    beyond = beyond_in_brackets(fewest, plan)
    shown = f"{enough} parameter server{'s' if enough > 1 else ''}{beyond} {'are' if enough > 1 else 'is'} enough"
    if not more:
        return f"{shown}, the most simulated. More may gain 2% or more, or be impossible (no more variables to spread)."
    best = max(more, key=lambda count: count.throughput_samples_per_s.mean)
    growth = _growth(fewest, best)
    changes = f"{best.servers}{beyond_in_brackets(best, plan)} change throughput by {change_in_words(growth)}"
    return f"{shown}: {changes}, and no number up to {more[-1].servers} by 2% or more on average."


def work_note(plan: Plan) -> str:
    """Count the configurations that were discarded, skipped, refused and simulated."""
    refused = sum(refusal.configurations for refusal in plan.refused)
    parts = [f"{plan.discarded:,} discarded by closed forms"]
    parts += [f"{plan.passed_over:,} skipped by the search"] if plan.passed_over else []
    parts += [f"{refused:,} refused"] if refused else []
    others = plan.simulated - len(plan.candidates)
    reasons = (
        (plan.for_each_cluster, "only to find the best on each cluster"),
        (plan.for_each_strategy, "only to find the best of each strategy"),
        (plan.for_tuning, "to choose bucket sizes"),
        (plan.for_each_way, "only to find the best of each way of training"),
    )
    only = [f"{count:,} of them {why}" for count, why in reasons if count]
    each = f" ({', '.join(only)})" if only else ""
    return (
        f"{plan.considered:,} configurations were considered: {', '.join(parts)}, {len(plan.candidates):,} simulated{each}. "
        f"{others:,} variants of the answer were simulated too."
    )


def _growth(few: WorkerCount | ServerCount, many: WorkerCount | ServerCount) -> Estimate:
    """Return the ratio of throughputs of many to few; limited to that of the numbers of workers."""
    before = getattr(few, "workers", 0)  # servers are counted without
    most = getattr(many, "workers", 0) / before if before else math.inf
    jobs: tuple[JobCount | None, JobCount | None] = getattr(many, "job", None), getattr(few, "job", None)
    runs, others = many.throughput_of_each_replication, few.throughput_of_each_replication
    if jobs[0] is not None and jobs[1] is not None:
        runs, others = jobs[0].samples_per_s_of_each_replication, jobs[1].samples_per_s_of_each_replication
    return of_more_devices(paired_ratio(runs, others, between(many.discrepancy, few.discrepancy)), most)


# -- the whole job -------------------------------------------------------------------------


def job_in_words(result: Result) -> list[tuple[str, str]]:
    """Return labelled sentences on a whole job next to its answer and the table of its epochs; empty without one."""
    job = result.job
    if job is None:
        return []
    epochs = f"{written(job.epochs, 'setting')} epoch{'' if job.epochs == 1 else 's'}"
    unit = result.scenario.unit
    length = f"{written(job.samples * unit.per_sample, 'setting')} {unit.name} in {epochs}, {written(job.steps, 'setting')} steps"
    said = [("length", length)]
    good, low, high = (written(value, "share") for value in (job.goodput.mean, job.goodput.low, job.goodput.high))
    runs = f" (90% of runs: {format_interval(job.goodput.low, job.goodput.high, 'share')})" if low != high else ""
    whole, steady = map(format_throughput, (job.samples_per_s.mean * unit.per_sample, result.rate.mean))
    said.append(("goodput", f"{good}{runs} of the time; {whole} {unit.per_s} over the whole job, {steady} while it steps"))
    if job.checkpointing is not None:
        said.append(("checkpoints", checkpoints_in_words(job.checkpointing)))
    if text := faults_in_words(job):
        said.append(("faults", text))
    return said


def checkpoints_in_words(state: Checkpointing) -> str:
    """Return interval and cost of checkpoints, and the best interval."""
    stops = f"each stops training for {format_seconds(state.cost_s)} ({format_bytes(state.size_bytes)})"
    text = f"every {format_seconds(state.interval_s)} of steps; {stops}"
    if state.set_s is not None and written(state.set_s, "seconds") != written(state.interval_s, "seconds"):
        text += f"; {format_seconds(state.set_s)} is specified, rounded to whole steps"
    if state.best_s is None:
        return text
    rules = ", ".join(f"{name} {format_seconds(value)}" for name, value in (("Young", state.young_s), ("Daly", state.daly_s)) if value)
    return f"{text}; best after {format_seconds(state.best_s)} of steps{f' ({rules})' if rules else ''}"


def faults_in_words(job: JobOutcome) -> str:
    """Return how many faults are expected; empty where nothing fails."""
    if not job.faults and job.mtbf_s is None:
        return ""
    if job.faults:
        between = f", one every {format_seconds(job.time_s.mean / job.faults)}" if job.faults > 1 else ""
        text = f"{written(job.faults, 'number')} on average before the end of the job{between}"
    else:
        expected = f"; one is expected every {format_seconds(job.mtbf_s)}" if job.mtbf_s is not None else ""
        text = f"none before the end of the job in any run{expected}"
    return f"{text}; {format_share(job.given_up)} of runs are given up" if job.given_up else text
