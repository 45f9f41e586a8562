"""Comparison of results: the ratio of their throughputs, its interval, and the number of paired runs that agree.

:mod:`simulator.results.intervals` pairs runs and makes intervals; :mod:`paceline.gain_bounds` limits gains.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paceline.gain_bounds import NO_BOUNDS, GainBounds, bounded, gain_bounds
from simulator.base.rng import Streams
from simulator.base.text import Short, format_interval, format_number, format_share
from simulator.results.intervals import paired_ratio, wins
from simulator.results.results import Result
from simulator.spec.figures import Estimate, JobOutcome
from simulator.spec.uncertainty import Z_90, Part, between

NOTHING = 0.0005
"""A change of throughput that reads as 0.0%."""
LITTLE = 0.01
"""A smaller gain is not worth mentioning."""
_AS_MULTIPLE = 3.0
"""The same threshold for the ratio of two throughputs."""


@dataclass(frozen=True, repr=False)
class Comparison(Short):
    """Throughput of one result over that of another.

    Attributes
    ----------
    ratio
        Mean, and 90% prediction interval.
    runs
        Pairs of runs that share their draws. If 0, the interval spans the worst to the best combination.
    wins, losses
        Pairs in which the first is faster, and slower.
    """

    see: ClassVar[str] = ".ratio, .clear, .runs, .wins, .losses"

    ratio: Estimate
    runs: int = 0
    wins: int = 0
    losses: int = 0

    def _in_short(self) -> Iterator[str]:
        ratio = self.ratio
        yield f"{format_number(ratio.mean)} times the throughput (90% of runs: {format_interval(ratio.low, ratio.high)})"
        yield (
            f"faster in {self.wins} of {self.runs} runs, slower in {self.losses}"
            if self.runs
            else "the runs share no draws: from both intervals"
        )
        yield "" if self.clear else "not certain which is faster"

    @property
    def clear(self) -> bool:
        """Return whether the interval shows which of the two is faster."""
        return has_effect(self.ratio)


def rank(result: Result) -> float:
    """Return the key that ranks results, best first: the mean time of the whole job in seconds, else the negated throughput.

    Headlines, figures and tables use it; a plan ranks by its goal.
    """
    return -result.throughput_samples_per_s.mean if result.job is None else result.job.time_s.mean


def over_whole_job(result: Result) -> Result:
    """Return the result with its throughput over the whole job; unchanged without a job.

    Model error applies to steps, so to first order it is scaled by their share of the job's time.
    """
    job = result.job
    if job is None:
        return result
    share, applied = share_of_steps(job), result.discrepancy
    if applied is not None:
        applied = applied.model_copy(update={"parts": tuple(part.times(share) for part in applied.parts)})
    rates = {"throughput_samples_per_s": job.samples_per_s, "throughput_of_each_replication": job.samples_per_s_of_each_replication}
    return result.model_copy(update={**rates, "discrepancy": applied})


def share_of_steps(job: JobOutcome) -> float:
    """Return the share of a job's time spent in steps, mean over replications."""
    return fmean(job.steps_share_of_each_replication or [job.parts_s.of_steps / job.time_s.mean if job.time_s.mean else 1.0])


def compare(ours: Result, theirs: Result, *, whole_jobs: bool = False, bounds: GainBounds | None = None) -> Comparison:
    """Return the ratio of our throughput to theirs, paired by run where they share draws; with ``whole_jobs`` over whole jobs.

    Model error counts only where it differs between the two (:func:`simulator.spec.uncertainty.between`). If the two differ only in
    speeds of links and devices, the interval is cut at ``bounds`` of the possible gain (:mod:`paceline.gain_bounds`), if known.
    """
    if whole_jobs:  # whose faults are fewer the sooner they end
        ours, theirs, bounds = over_whole_job(ours), over_whole_job(theirs), NO_BOUNDS
    if not share_draws(ours, theirs):
        rate, other = ours.throughput_samples_per_s, theirs.throughput_samples_per_s
        # ends that a short run lets fall to zero would make the ratio infinite
        low, high = rate.low / max(other.high, other.mean), rate.high / max(other.low, NOTHING * other.mean)
        return Comparison(Estimate(mean=rate.mean / other.mean, low=low, high=high))
    rates, others = ours.throughput_of_each_replication, theirs.throughput_of_each_replication
    if bounds is None:
        bounds = gain_bounds(ours.scenario, theirs.scenario)
    ratio = bounded(paired_ratio(rates, others, between(ours.discrepancy, theirs.discrepancy)), bounds)
    return Comparison(ratio, runs=len(rates), wins=wins(rates, others), losses=wins(others, rates))


def of_more_devices(ratio: Estimate, times: float) -> Estimate:
    """Return a ratio of throughputs with its interval cut at ``times``, the ratio of the numbers of equal devices.

    Regardless of model error, an added device does not work better than an existing one.
    """
    return bounded(ratio, GainBounds(0.0, times))


def share_draws(ours: Result, theirs: Result) -> bool:
    """Return whether run i of one and run i of the other share their draws.

    They do if seed and number of replications are equal, because seed, replication and name identify a stream of random numbers.
    Workloads moved to different devices do not: their factors are drawn in the same order but are unrelated.
    """
    rates, others = ours.throughput_of_each_replication, theirs.throughput_of_each_replication
    moved, moved_too = ours.moved, theirs.moved
    apart = moved is not None and moved_too is not None and moved != moved_too
    return ours.seed == theirs.seed and len(rates) == len(others) > 1 and not apart


def has_effect(ratio: Estimate) -> bool:
    """Return whether an interval of ratios lies on one side of 1, and the mean visibly differs from 1.

    An interval that begins at 1 counts: the change does no harm, and only the size of its effect is uncertain.
    """
    return not ratio.low < 1.0 < ratio.high and abs(ratio.mean - 1.0) >= NOTHING


@dataclass(frozen=True)
class Change:
    """One change to the configuration that the report answers with.

    Attributes
    ----------
    name
        Such as ``2x network``.
    text
        What was changed, in a sentence.
    gain
        Throughput over that without the change, run by run, less 1: the mean; none where it is not known.
    low, high
        Ends of its 90% prediction interval.
    reason
        What limits it then; or why it is not known.
    row
        What is changed, such as ``network``: a change up and one down share a row of the tornado.
    run
        How long was simulated, with and without the change, where that is less than the result itself rests on.
    """

    name: str
    text: str
    gain: float | None
    low: float | None
    high: float | None
    reason: str
    row: str
    run: str = ""

    @property
    def moves(self) -> bool:
        """Return whether the throughput changes on average, as far as anybody reads."""
        return self.gain is not None and abs(self.gain) >= NOTHING

    @property
    def seen(self) -> bool:
        """Return whether the runs show an effect: the interval of the gain leaves out nought."""
        if self.gain is None or self.low is None or self.high is None:
            return False
        return has_effect(Estimate(mean=1 + self.gain, low=1 + self.low, high=1 + self.high))


def never_validated(result: Result) -> bool:
    """Return whether no result of this kind was compared with real runs, so that its relative error is unknown."""
    scenario, applied = result.scenario, result.discrepancy
    return scenario.discrepancy is None and scenario.ranks > 1 and (applied is None or applied.borrowed)


def rivals_of(results: Sequence[Result], best: int, conditions: Sequence[int]) -> list[int]:
    """Return results with as many ranks as the best and the same ``conditions``, best first."""
    there = [
        index
        for index, result in enumerate(results)
        if index != best and result.ranks == results[best].ranks and conditions[index] == conditions[best]
    ]
    return sorted(there, key=lambda index: rank(results[index]))


def is_condition(path: str) -> bool:
    """Return whether a setting, given by its dotted name, is a condition that nobody chooses, such as the rate of failures."""
    return path.startswith(_CONDITIONS) and path not in _CHOSEN


_CONDITIONS = (
    "cluster.background", "cluster.slow_nodes", "cluster.slowdown", "input.jitter", "input.work", "job.dataset_size", "job.epochs",
    "job.faults", "job.samples", "job.startup", "job.tracing", "run.seed", "workload.input", "workload.jitter", "workload.run_to_run",
)  # fmt: skip
_CHOSEN = ("job.faults.detection_s", "job.faults.elastic", "job.faults.min_workers", "job.faults.retries")
"""Settings under conditions that are chosen nevertheless."""


def pays_until(rates: Sequence[tuple[int, float]]) -> int:
    """Return the place up to which more devices pay: added devices are at least half as effective as existing ones.

    Going from n to m devices pays if the rate grows by at least half of linear scaling: T(m) / T(n) >= 1 + (m / n - 1) / 2. For a
    doubling that is 1.5.

    Parameters
    ----------
    rates
        Ascending numbers of devices, each with samples per second.

    Examples
    --------
    >>> pays_until([(1, 100.0), (2, 190.0), (4, 300.0), (8, 380.0)])
    2
    """
    last = 0
    for place, ((few, slow), (many, fast)) in enumerate(itertools.pairwise(rates), 1):
        if fast < (1 + (many / few - 1) * (_PAYS - 1)) * slow:
            break
        last = place
    return last


_PAYS = 1.5
"""Least ratio of a doubling that pays."""


def throughput_apart(ratio: float) -> str:
    """Return the difference of two throughputs in words.

    Parameters
    ----------
    ratio
        The first over the second.

    Examples
    --------
    >>> throughput_apart(233 / 457), throughput_apart(457 / 233), throughput_apart(4.0)
    ('49% lower throughput', '96% higher throughput', '4.00 times the throughput')
    """
    if ratio >= _AS_MULTIPLE:
        return f"{format_number(ratio)} times the throughput"
    return f"{format_share(abs(ratio - 1.0))} {'higher' if ratio > 1.0 else 'lower'} throughput"


Array = NDArray[np.float64]

_DRAWS = 8192
"""Number of joint draws of model error and runs, which resolves a probability to half a per cent."""


class Stake(NamedTuple):
    """Stake of one of several alternatives.

    Attributes
    ----------
    best
        Probability of being the best.
    regret
        Expected excess of its value over that of the best (Savage, "The theory of statistical decision", 1951; the expected opportunity
        loss of Raiffa and Schlaifer, "Applied statistical decision theory", 1961).
    share
        Regret as a share of the best value.
    where_not_best
        Mean of that share over the cases in which another alternative is the best; None without such cases.
    """

    best: float
    regret: float
    share: float
    where_not_best: float | None


def stakes(values: Array, runs: int, *, most: bool = False) -> list[Stake]:
    """Return the stakes of alternatives whose values were drawn jointly.

    Parameters
    ----------
    values
        Shape (alternatives, draws), above zero. Equal alternatives share the probability.
    runs
        Number of simulated runs, which limits a probability to 1 / (runs + 1) at least and runs / (runs + 1) at most.
    most
        Whether more is better.
    """
    best = values.max(axis=0) if most else values.min(axis=0)
    loss = best - values if most else values - best
    shares = loss / best
    winners = loss <= _EQUAL * best
    chances = (winners / winners.sum(axis=0)).mean(axis=1)
    least = 1.0 / (runs + 1)
    return [
        Stake(
            best=min(max(float(chance), least), 1.0 - least),
            regret=float(own_loss.mean()),
            share=float(own_shares.mean()),
            where_not_best=None if won.all() else float(own_shares[~won].mean()),
        )
        for chance, own_loss, own_shares, won in zip(chances, loss, shares, winners, strict=True)
    ]


_EQUAL = 1e-9


def drawn_rates(results: Sequence[Result], rates: Sequence[Sequence[float]], steps: Sequence[Sequence[float]]) -> Array:
    """Return joint draws of the rates of several configurations in one real run each.

    A draw picks one replication, the same for all results that share draws with the first, and a standard normal number for each cause of
    model error, the same for all results with that cause.

    Parameters
    ----------
    results
        Results of the configurations.
    rates
        Samples per second of each replication: of the steps, or of the whole job.
    steps
        Share of steps in the time of each replication; model error applies to that share only.

    Returns
    -------
    numpy.ndarray
        Shape (results, draws).
    """
    streams = Streams(results[0].seed, 0)
    parts = [result.discrepancy.parts if result.discrepancy is not None else () for result in results]
    names = list(dict.fromkeys(part.name for of_result in parts for part in of_result))
    causes = {name: streams.of_the_seed("cause", number).standard_normal(_DRAWS) for number, name in enumerate(names)}
    drawn = np.empty((len(results), _DRAWS))
    for place, (result, own, shares) in enumerate(zip(results, rates, steps, strict=True)):
        runs = np.arange(_DRAWS) % len(own)
        if place and not share_draws(results[0], result):
            runs = streams.of_the_seed("run", place).integers(len(own), size=_DRAWS)
        longer = np.zeros(_DRAWS)
        for part in parts[place]:
            longer += _longer(part, causes[part.name])
        share = np.asarray(shares)[runs]
        drawn[place] = np.asarray(own)[runs] / (1.0 - share + share * np.exp(longer))
    return drawn


def fastest(results: Sequence[Result]) -> list[Stake]:
    """Return the stakes of several results by samples per second, over whole jobs if all have one."""
    jobs = [result.job for result in results if result.job is not None]
    if len(jobs) == len(results):
        rates = [job.samples_per_s_of_each_replication for job in jobs]
        steps = [step_shares(job, len(own)) for job, own in zip(jobs, rates, strict=True)]
    else:
        rates = [result.throughput_of_each_replication for result in results]
        steps = [[1.0] * len(own) for own in rates]
    return stakes(drawn_rates(results, rates, steps), min(map(len, rates)), most=True)


def step_shares(job: JobOutcome, runs: int) -> Sequence[float]:
    """Return the share of each run's time spent in steps."""
    return job.steps_share_of_each_replication or [share_of_steps(job)] * runs


def _longer(part: Part, cause: Array) -> Array:
    """Return the increase of a step's log time for deviations of a cause, in standard deviations, by piecewise linear interpolation."""
    slower, faster = part.ends
    inside = np.interp(cause, [-Z_90, -1.0, 0.0, 1.0, Z_90], [-faster, -part.faster, 0.0, part.slower, slower])
    return inside * np.maximum(np.abs(cause) / Z_90, 1.0)
