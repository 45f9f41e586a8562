"""Ways to pay for a plan's answer: what each costs, and after how many months what was paid in advance has cost less than renting.

For the same work every month, what has been paid by then is a straight line for either way. With C paid at the beginning, s for every
hour and r for an hour in use, k trainings a month of T hours each, and c for a training that is rented, the lines of H = 730.5 hours a
month meet after

    C / (k c - s H - k T r) months,

if that is above 0 and within what the capital is paid for. A slow run takes longer in both ways, so the ends of the interval of T give
those of the months. An hour in use costs the same in both ways at a share of hours in use of

    ((C - residual) / years + s per year) / (8,766 h x (c / T - r)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from paceline.planning.answer import BreakEven, Payment
from paceline.planning.goal import Goal
from paceline.planning.judging import Judge, Point
from paceline.planning.sentences import beside_the_answer, months_in_words, why_not
from paceline.planning.space import paid_by, spot_refused
from paceline.sweeping import Simulate
from simulator.base.errors import InputError, ScenarioError
from simulator.base.text import format_number, format_share, format_usd
from simulator.base.validation_errors import quoted
from simulator.results.cost import capital_usd, paid_for, running_usd_per_hour
from simulator.results.results import Result
from simulator.scenario import Scenario
from simulator.spec.figures import Estimate
from simulator.spec.paying import HOURS_PER_MONTH, HOURS_PER_YEAR, Price

__all__ = ["Use", "break_even_of", "check_trainings", "months_of", "payments_of", "use_of"]

_HOUR_S = 3600.0
_MONTHS = 12.0


def payments_of(chosen: Point, judge: Judge, run: Simulate, *, feasible: bool) -> tuple[Payment, ...]:
    """The answer's configuration in each way to pay that its cluster has, the cheapest that reaches the goal first.

    At a spot price the job is simulated with its preemptions. Nothing where there is one way alone.

    Parameters
    ----------
    chosen
        The answer, or where there is none the nearest.
    judge
        Of the goal.
    run
        Simulates scenarios; those of the search are known.
    feasible
        Whether the goal is reached.
    """
    ways = chosen.scenario.cluster.ways_to_pay
    if len(ways) < 2:
        return ()
    used, whole = ways[0].called, judge.goal.samples is not None
    points: dict[str, Point] = {used: chosen}
    reasons: dict[str, str] = {}
    for price in ways[1:]:
        try:
            scenario = paid_by(chosen.scenario, price.called)
        except ScenarioError as error:
            reasons[price.called] = error.reasons[0]
            continue
        if why := spot_refused(price, scenario, whole_job=whole):
            reasons[price.called] = why
            continue
        others = tuple(price.called if its == used else its for its in chosen.line.others)
        line = replace(chosen.line, others=others, scenarios={chosen.workers: scenario}, family=None)
        points[price.called] = judge.points(line)[0]
    rest = [point for point in points.values() if point is not chosen]
    for point, outcome in zip(rest, run([point.scenario for point in rest]), strict=True):
        point.outcome = outcome
        if not isinstance(outcome, Result):
            reasons[point.scenario.cluster.ways_to_pay[0].called] = f"could not be simulated: {outcome.failed.text}"
    compared = [_payment(point, chosen, judge, feasible=feasible) for point in points.values() if point.result is not None]
    found = sorted(compared, key=_by_cost)
    if found and found[0].best is not None and found[0].best.meets:
        found[0] = found[0].model_copy(update={"cheapest": True})
    left = [
        Payment(name=price.called, price=price, best=None, capital_usd=0.0, running_usd_per_hour=None, text=reasons[price.called])
        for price in ways
        if price.called in reasons
    ]
    return (*found, *left)


def _by_cost(its: Payment) -> tuple[bool, float]:
    """Sorts those that reach the goal first, each by the cost of a training, or of an hour."""
    best = its.best
    assert best is not None
    return not best.meets, (best.usd_per_hour or 0.0) if best.cost_usd is None else best.cost_usd.mean


def _payment(point: Point, chosen: Point, judge: Judge, *, feasible: bool) -> Payment:
    price = point.scenario.cluster.ways_to_pay[0]
    its = judge.candidate(point, chosen if feasible else None)
    if point is chosen:
        text = "the answer" if feasible else "the nearest"
    elif judge.meets(point):
        text = beside_the_answer(judge, point, chosen, {id(point): its}) if feasible else "reaches the goal"
    else:
        text = why_not(judge, [point], point, ())
    return Payment(
        name=price.called,
        price=price,
        best=its,
        capital_usd=capital_usd(point.scenario),
        running_usd_per_hour=running_usd_per_hour(point.scenario),
        text=text,
    )


# -- when it pays --------------------------------------------------------------------------


def check_trainings(per_month: float | None, goal: Goal) -> None:
    """Refuse a number of trainings a month that is none, or that a goal has no use for.

    Raises
    ------
    InputError
        It is not above 0, or the goal is a throughput.
    """
    if per_month is None:
        return
    if not 0 < per_month < math.inf:
        raise InputError(f"`trainings_per_month` {quoted(per_month)} must be a number above 0, such as 20")
    if goal.samples is None:
        raise InputError(
            f"`trainings_per_month` {quoted(per_month)} counts how often the goal's samples are trained on, and a throughput has none: "
            "give `samples` with `deadline` or `budget`, or leave it out"
        )


def break_even_of(payments: Sequence[Payment], use: Use) -> tuple[BreakEven, ...]:
    """Each way to pay for the answer in advance against each by the hour, for the same work."""
    compared = [its for its in payments if its.best is not None]
    own = [its for its in compared if its.price.committed_usd is not None and its.price.years is not None]
    rented = [its for its in compared if its.price.committed_usd is None]
    return tuple(_break_even(one, other, use) for one in own for other in rented)


def _break_even(own: Payment, rented: Payment, use: Use) -> BreakEven:
    assert own.best is not None
    assert rented.best is not None
    scenario, time_s = own.best.result.scenario, own.best.time_s
    held = [(nodes, price) for nodes, price in paid_for(scenario) if price is not None]
    lasts_years = min(price.years for _, price in held if price.years is not None)
    standing = math.fsum(nodes * price.standing_usd_per_hour for nodes, price in held)
    running = math.fsum(nodes * price.running_usd_per_hour for nodes, price in held)
    hours, often = use.hours(time_s), use.per_month
    each_month = _each(hours, lambda its: standing * HOURS_PER_MONTH + its * running)
    rent = rented.best.usd_per_hour or 0.0
    if often is not None and rented.best.cost_usd is not None:
        rented_month = _each(rented.best.cost_usd, lambda its: its * often)
    else:
        rented_month = _each(hours, lambda its: its * rent)
    capital, lasts = own.capital_usd, lasts_years * _MONTHS
    mean, soonest, latest = (
        months_of(capital, getattr(rented_month, end) - getattr(each_month, end), lasts) for end in ("mean", "high", "low")
    )
    residual = math.fsum(nodes * price.owned.residual_usd for nodes, price in held if price.owned is not None)
    fixed = (capital - residual) / (lasts_years * HOURS_PER_YEAR) + standing
    left = rented_month.mean / hours.mean - running
    found = BreakEven(
        own=own.name,
        rented=rented.name,
        months=mean,
        months_low=soonest,
        months_high=latest,
        lasts_months=lasts,
        capital_usd=capital,
        own_usd_per_month=each_month,
        rented_usd_per_month=rented_month,
        trainings_per_month=often,
        share_in_use=hours.mean / HOURS_PER_MONTH,
        pays_above=fixed / left if 0 < fixed <= left else None,
        text="",
    )
    return found.model_copy(update={"text": _in_words(found, own.price, hours, use)})


class Use(NamedTuple):
    """How much the nodes are used.

    Attributes
    ----------
    per_month
        Trainings of the goal's samples; None where it has none.
    share
        Of all hours, where nothing else is known.
    said
        Whether somebody said so; else it is assumed that they work at all hours.
    """

    per_month: float | None
    share: float
    said: bool

    def hours(self, time_s: Estimate | None) -> Estimate:
        """Hours of a month in which they work, where a training takes that time."""
        if self.per_month is None or time_s is None:
            hours = self.share * HOURS_PER_MONTH
            return Estimate(mean=hours, low=hours, high=hours)
        often = self.per_month
        return _each(time_s, lambda its: often * its / _HOUR_S)


def use_of(scenario: Scenario, time_s: Estimate | None = None, trainings_per_month: float | None = None) -> Use:
    """So many trainings a month, or as many as fill the share of hours in which the nodes are expected to work.

    Parameters
    ----------
    scenario
        Whose prices may say it (``share_in_use``); the first that does counts.
    time_s
        Of a training; None where the goal has no samples.
    trainings_per_month
        As somebody said; None: nobody did.
    """
    shares = [price.share_in_use for price in scenario.cluster.ways_to_pay if price.share_in_use is not None]
    share = shares[0] if shares else 1.0
    if trainings_per_month is None and time_s is not None:
        return Use(share * HOURS_PER_MONTH / (time_s.mean / _HOUR_S), share, bool(shares))
    return Use(trainings_per_month, share, trainings_per_month is not None or bool(shares))


def _each(estimate: Estimate, of: Callable[[float], float]) -> Estimate:
    return Estimate(mean=of(estimate.mean), low=of(estimate.low), high=of(estimate.high))


def months_of(capital_usd: float, saved_usd: float, lasts_months: float) -> float | None:
    """Months after which what is saved each month is the capital; None: never, or not as long as it lasts."""
    if saved_usd <= 0 or capital_usd > saved_usd * lasts_months:
        return None
    return capital_usd / saved_usd


def _in_words(its: BreakEven, price: Price, hours: Estimate, use: Use) -> str:
    own, rented = format_usd(its.own_usd_per_month.mean), format_usd(its.rented_usd_per_month.mean)
    work = "its work takes" if its.trainings_per_month is None else f"{format_number(its.trainings_per_month)} trainings a month take"
    texts = [
        f"{its.own} against {its.rented} {months_in_words(its.months, its.months_low, its.months_high, its.lasts_in_words)}: "
        f"{format_usd(its.capital_usd)} at the beginning and then {own} a month, against {rented} a month",
        f"{work} {format_share(its.share_in_use)} of all hours{'' if use.said else ' (assumed)'}",
        f"it pays above {format_share(its.pays_above)}" if its.pays_above is not None else "it would pay at no use",
    ]
    share = price.share_in_use or 1.0
    if abs(share - its.share_in_use) > _VISIBLE:
        texts.append(f"its price of an hour is worked out for {format_share(share)}")
    if hours.high > HOURS_PER_MONTH * (1 + _VISIBLE):
        texts.append("slow runs need more hours than a month has")
    return "; ".join(texts)


_VISIBLE = 0.01
