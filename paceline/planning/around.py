"""A plan's answer with other numbers of workers and parameter servers, and other ways to pay. Single changes are in improvements.py.

Break-even of advance payment and rent: for the same work every month, the sum paid so far is a straight line in either case. Let C be
paid in advance, s for every hour and r for an hour in use, with k trainings a month of T hours each, and c for a rented training. The lines
of H = 730.5 hours a month meet after

    C / (k c - s H - k T r) months,

if that is above 0 and within the period that the capital pays for; at its end the residual value of the nodes counts too. Work that takes
more than a month's hours needs several sets of nodes, each with its C and s. Without k, the nodes work their share of all hours in either
case, whatever the time of a training. The price of an hour in use follows from the same k, so the cheaper way for a training is the one
that pays in the lifetime. An hour in use costs the same in both ways at a share of use of

    ((C - residual) / years + s per year) / (8,766 h x (c / T - r)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from paceline.comparing import pays_until
from paceline.planning.answer import BreakEven, JobCount, Payment, ServerCount, WorkerCount
from paceline.planning.configurations import Configuration, candidate_of, configurations_of
from paceline.planning.goal import Goal, job_of, sets_of
from paceline.planning.sentences import beside_the_answer, months_in_words, why_not
from paceline.planning.space import paid_by
from paceline.sweeping import Simulate
from simulator.base.errors import ScenarioError
from simulator.base.text import counted, format_number, format_share, format_usd
from simulator.results.cost import capital_usd, paid_for, placement_of, running_usd_per_hour, usd_per_hour
from simulator.results.results import Result
from simulator.results.what_if import with_strategy
from simulator.scenario import Scenario
from simulator.spec.figures import Estimate
from simulator.spec.paying import HOURS_PER_MONTH, HOURS_PER_YEAR, sets_of_nodes
from simulator.strategies.strategy import Strategy

_HOUR_S = 3600.0
_MONTHS = 12.0


def payments_of(chosen: Configuration, simulate: Simulate, *, feasible: bool) -> tuple[Payment, ...]:
    """Return the answer's configuration with each price of its cluster, the cheapest that reaches the goal first.

    At a spot price the job is simulated with preemptions. With only one price the result is empty.

    Parameters
    ----------
    chosen
        The answer, or the nearest configuration.
    simulate
        Simulates scenarios, and reuses those of the search.
    feasible
        Whether the goal is reached.
    """
    ways = chosen.scenario.cluster.ways_to_pay
    if len(ways) < 2:
        return ()
    used, *others = ways
    line, whole_job = (
        replace(chosen.line, candidates={chosen.workers: chosen.line.candidates[chosen.workers]}),
        chosen.goal.samples is not None,
    )
    rows, reasons = [chosen], {}
    for price in others:
        candidates, reasons[price.called] = paid_by(line, price, whole_job=whole_job)
        words = tuple(price.called if word == used.called else word for word in line.others)
        rows += configurations_of(replace(line, others=words, candidates=candidates), chosen.goal)
    for row, outcome in zip(rows[1:], simulate([row.scenario for row in rows[1:]]), strict=True):
        row.outcome = outcome
        if row.failed:
            reasons[row.scenario.cluster.ways_to_pay[0].called] = f"could not be simulated: {row.failed.text}"
    payments = sorted((_payment(row, chosen, feasible=feasible) for row in rows if row.simulated), key=_by_cost)
    if payments and payments[0].best is not None and payments[0].best.meets:
        payments[0] = payments[0].replaced({"cheapest": True})
    left = [
        Payment(name=price.called, price=price, best=None, capital_usd=0.0, running_usd_per_hour=None, text=reasons[price.called])
        for price in others
        if reasons[price.called]
    ]
    return (*payments, *left)


def _by_cost(payment: Payment) -> tuple[bool, float]:
    """Return a sort key: those that reach the goal first, then by the cost of a training, or of an hour."""
    best = payment.best
    assert best is not None
    return not best.meets, (best.usd_per_hour or 0.0) if best.cost_usd is None else best.cost_usd.mean


def _payment(row: Configuration, chosen: Configuration, *, feasible: bool) -> Payment:
    candidate = candidate_of(row, chosen if feasible else None)
    scenario = candidate.result.scenario
    price = scenario.cluster.ways_to_pay[0]
    if row is chosen:
        text = "the answer" if feasible else "the nearest"
    elif row.meets:
        text = beside_the_answer(row, chosen, candidate) if feasible else "reaches the goal"
    else:
        text = why_not([row], row, ())
    return Payment(
        name=price.called,
        price=price,
        best=candidate,
        capital_usd=sets_of(candidate.result, row.goal) * capital_usd(scenario),
        running_usd_per_hour=running_usd_per_hour(scenario),
        text=text,
    )


# -- when it pays --------------------------------------------------------------------------


class Use(NamedTuple):
    """Use of the nodes.

    Attributes
    ----------
    per_month
        Trainings a month, from the goal; None: as many as fill the share.
    share
        Share of all hours in use, if the goal does not set trainings.
    said
        Whether the share is specified; else use at all hours is assumed.
    """

    per_month: float | None
    share: float
    said: bool

    def hours(self, time_s: float | None) -> float:
        """Return the hours of use in a month for a given time of a training; beyond a month's hours several sets share them."""
        if self.per_month is None or time_s is None:
            return self.share * HOURS_PER_MONTH
        return self.per_month * time_s / _HOUR_S

    def turning_points(self, time_s: Estimate | None) -> list[float | None]:
        """Return times of a training between which the months to break-even are monotonic: ends, and steps of the number of sets."""
        if self.per_month is None or time_s is None:
            return [None]
        full_s = HOURS_PER_MONTH * _HOUR_S / self.per_month
        sets = range(sets_of_nodes(self.hours(time_s.low)), min(sets_of_nodes(self.hours(time_s.high)), _MOST_SETS))
        return [time_s.low, time_s.high, *(number * full_s * beyond for number in sets for beyond in (1.0, 1.0 + 1e-6))]


_MOST_SETS = 1000


def use_of(scenario: Scenario, goal: Goal | None = None) -> Use:
    """Return the use of nodes: the goal's trainings a month, or as many as fill the expected share of hours.

    Parameters
    ----------
    scenario
        Its prices may give that share (``share_in_use``); the first one counts.
    goal
        Goal of a plan, if any.
    """
    often = None if goal is None else goal.trainings_per_month
    shares = [price.share_in_use for price in scenario.cluster.ways_to_pay if price.share_in_use is not None]
    return Use(often, shares[0] if shares else 1.0, often is not None or bool(shares))


def break_even_of(payments: Sequence[Payment], use: Use) -> tuple[BreakEven, ...]:
    """Compare each advance payment for the answer with each hourly price, for the same work."""
    compared = [payment for payment in payments if payment.best is not None]
    own = [payment for payment in compared if payment.price.committed_usd is not None and payment.price.costs.years is not None]
    rented = [payment for payment in compared if payment.price.committed_usd is None]
    return tuple(_break_even(payment, other, use) for payment in own for other in rented)


def _break_even(own: Payment, rented: Payment, use: Use) -> BreakEven:
    assert own.best is not None
    assert rented.best is not None
    if own.price.share_in_use is not None:  # each way to pay has its own
        use = use._replace(share=own.price.share_in_use)
    scenario, time_s, cost = own.best.result.scenario, own.best.time_s, rented.best.cost_usd
    priced = [(nodes, price) for nodes, price in paid_for(scenario) if price is not None]
    lasts = min(price.costs.years for _, price in priced if price.costs.years is not None) * _MONTHS
    standing = math.fsum(nodes * price.costs.standing_usd_per_hour for nodes, price in priced)
    running = math.fsum(nodes * price.costs.running_usd_per_hour for nodes, price in priced)
    residual = math.fsum(nodes * price.costs.residual_usd for nodes, price in priced)
    capital = capital_usd(scenario)
    rent = rented.best.usd_per_hour or 0.0
    if cost is not None and time_s is not None:
        rent = cost.mean / (time_s.mean / _HOUR_S)

    def month(at_s: float | None) -> tuple[float, int, float, float]:
        """Return hours in use, sets of nodes, and their cost owned and rented, at one time of a training."""
        hours = use.hours(at_s)
        sets = sets_of_nodes(hours)
        rented_usd = hours * rent
        if use.per_month is not None and at_s is not None and cost is not None and time_s is not None:
            ends_s, ends_usd = (time_s.low, time_s.mean, time_s.high), (cost.low, cost.mean, cost.high)
            rented_usd = float(np.interp(at_s, ends_s, ends_usd)) * use.per_month
        return hours, sets, sets * standing * HOURS_PER_MONTH + hours * running, rented_usd

    months = [month(at_s) for at_s in (None if time_s is None else time_s.mean, *use.turning_points(time_s))]
    ends = [months_of(sets * capital, rented_usd - own_usd, lasts, sets * residual) for _, sets, own_usd, rented_usd in months]
    hours, sets, _, rented_usd = months[0]
    fixed = (capital - residual) / (lasts / _MONTHS * HOURS_PER_YEAR) + standing
    left = rented_usd / hours - running
    answer = BreakEven(
        own=own.name,
        rented=rented.name,
        months=ends[0],
        months_low=min((end for end in ends if end is not None), default=None),
        months_high=None if None in ends else max(end for end in ends if end is not None),
        lasts_months=lasts,
        sets_of_nodes=sets,
        capital_usd=sets * capital,
        own_usd_per_month=_over([own_usd for _, _, own_usd, _ in months]),
        rented_usd_per_month=_over([rented_usd for *_, rented_usd in months]),
        trainings_per_month=use.per_month,
        share_in_use=hours / HOURS_PER_MONTH / sets,
        pays_above=fixed / left if 0 < fixed <= left else None,
        text="",
    )
    return answer.replaced({"text": _in_words(answer, use)})


def _over(of_each: Sequence[float]) -> Estimate:
    """Return the first value, that of the mean time, with the lowest and the highest."""
    return Estimate(mean=of_each[0], low=min(of_each), high=max(of_each))


def months_of(capital_usd: float, saved_usd: float, lasts_months: float, residual_usd: float = 0.0) -> float | None:
    """Return the months after which savings exceed the advance payment.

    The residual value of the nodes counts only at the end.

    Parameters
    ----------
    capital_usd, residual_usd
        Advance payment, and residual value at the end.
    saved_usd
        Savings each month.
    lasts_months
        Lifetime of the nodes.

    Returns
    -------
    float or None
        None: never within their lifetime.
    """
    if saved_usd <= 0 or capital_usd - residual_usd > saved_usd * lasts_months:
        return None
    return min(capital_usd / saved_usd, lasts_months)


def _in_words(pair: BreakEven, use: Use) -> str:
    own, rented = format_usd(pair.own_usd_per_month.mean), format_usd(pair.rented_usd_per_month.mean)
    work = "its work takes" if pair.trainings_per_month is None else f"{format_number(pair.trainings_per_month)} trainings a month take"
    sets = f" of {counted(pair.sets_of_nodes, 'set')} of nodes" if pair.sets_of_nodes > 1 else ""
    texts = [
        f"{pair.own} against {pair.rented} {months_in_words(pair.months, pair.months_low, pair.months_high, pair.lasts_in_words)}: "
        f"{format_usd(pair.capital_usd)} at the beginning and then {own} a month, against {rented} a month",
        f"{work} {format_share(pair.share_in_use)} of all hours{sets}{'' if use.said else ' (assumed)'}",
        f"it pays above {format_share(pair.pays_above)}" if pair.pays_above is not None else "it would not pay even at full use",
    ]
    return "; ".join(texts)


_MORE_IS_LITTLE = 1.02


def count_workers(answer: Scenario, most: int, simulate: Simulate, goal: Goal) -> tuple[WorkerCount, ...]:
    """Return throughput with 1, 2, 4, ... workers and the answer's own number.

    The numbers go to ``most``, at least one doubling beyond the answer; after that they stop at the first doubling that does not pay.
    """
    if not answer.strategy.count_key:
        return ()
    own = answer.workers
    top = max(most, 2 * own)
    numbers = sorted({own, *(2**power for power in range(top.bit_length()) if 2**power <= top)})
    scenarios = {number: _changed(answer, answer.strategy.with_count, number, own) for number in numbers}

    def counted(*some: int) -> list[WorkerCount]:
        """Simulate numbers that rules allow; a fixed number of nodes is not a limit."""
        outcomes = simulate([scenario for number in some if (scenario := scenarios[number]) is not None])
        return [_workers(result, goal) for result in outcomes if isinstance(result, Result)]

    counts = counted(*(number for number in numbers if number <= 2 * own))
    for number in (number for number in numbers if number > 2 * own):
        if len(counts) > 1 and paying_workers(counts[-2:]) != counts[-1].workers:
            break
        counts += counted(number)
    return tuple(counts)


def paying_workers(counts: Sequence[WorkerCount]) -> int | None:
    """Return the most workers up to which each doubling pays (:func:`paceline.comparing.pays_until`); None if none was simulated.

    For a whole job, samples per second of the job count, time outside steps included.
    """
    rates = [(count.job.samples_per_s if count.job is not None else count.throughput_samples_per_s).mean for count in counts]
    return counts[pays_until([(count.workers, rate) for count, rate in zip(counts, rates, strict=True)])].workers if counts else None


def _changed(answer: Scenario, with_number: Callable[[int], Strategy], number: int, own: int) -> Scenario | None:
    """Return the answer with another number of workers or servers; None if rules forbid it."""
    try:
        return answer if number == own else with_strategy(answer, with_number(number))
    except ScenarioError:
        return None


def _figures(result: Result) -> dict[str, Any]:
    """Return the figures shown for every number of workers or servers."""
    placement = placement_of(result.scenario)
    return {
        "throughput_samples_per_s": result.throughput_samples_per_s,
        "throughput_of_each_replication": result.throughput_of_each_replication,
        "discrepancy": result.discrepancy,
        "usd_per_hour": usd_per_hour(result.scenario),
        "nodes": placement.nodes,
        "placement": placement.text,
    }


def _workers(result: Result, goal: Goal) -> WorkerCount:
    job, counted = job_of(result, goal), None
    if job is not None:
        counted = JobCount(
            time_s=job.time_s,
            cost_usd=job.cost_usd,
            samples_per_s=job.samples_per_s,
            samples_per_s_of_each_replication=job.samples_per_s_of_each_replication,
            goodput=job.goodput.mean,
        )
    return WorkerCount(workers=result.scenario.workers, replicas=result.replicas, job=counted, **_figures(result))


def count_servers(answer: Scenario, simulate: Simulate) -> tuple[ServerCount, ...]:
    """Return throughput with 1, 2, 4, ... parameter servers until a doubling gains less than 2%, then with relevant numbers in between."""
    if not answer.servers:
        return ()
    counts: dict[int, ServerCount] = {}

    def try_(number: int) -> bool:
        """Simulate a number of servers; return whether it is possible."""
        scenario = _changed(answer, answer.strategy.with_servers, number, answer.servers)
        for result in simulate([scenario]) if scenario is not None else ():
            if isinstance(result, Result):
                counts[number] = ServerCount(servers=number, **_figures(result))
        return scenario is not None and number in counts

    try_(answer.servers)
    number = 1
    while try_(number) and not (number > max(answer.servers, 1) and not _gains(counts[number // 2], counts[number])):
        number *= 2
    # between the last that gains much and the next that was tried, the fewest that are enough
    while (enough := enough_servers([counts[key] for key in sorted(counts)])) is not None:
        below = max((key for key in counts if key < enough), default=0)
        if enough - below <= 1 or not try_((enough + below) // 2):
            break
    return tuple(counts[key] for key in sorted(counts))


def _gains(few: ServerCount, many: ServerCount) -> bool:
    return many.throughput_samples_per_s.mean >= _MORE_IS_LITTLE * few.throughput_samples_per_s.mean


def enough_servers(counts: Sequence[ServerCount]) -> int | None:
    """Return the fewest servers such that no larger simulated number is 2% faster; None without servers."""
    enough = (few for place, few in enumerate(counts) if not any(_gains(few, many) for many in counts[place + 1 :]))
    return next((count.servers for count in enough), None)
