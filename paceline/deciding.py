"""Configurations compared as decisions: how likely each is the best, and what choosing it is expected to cost where it is not.

Run by run with the draws that all have in common, and with what the model is off by, whose causes cancel as far as two results have them
alike. One pair by its ratio is compared in :mod:`paceline.comparing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from paceline.comparing import share_draws, share_of_steps
from simulator.base.rng import Streams
from simulator.results.results import Result
from simulator.spec.figures import JobOutcome
from simulator.spec.uncertainty import Z_90, Part

Array = NDArray[np.float64]

_DRAWS = 8192
"""Of causes of the model, and of runs with them: a probability is so known to half a per cent."""


class Stake(NamedTuple):
    """What is at stake with one of several alternatives.

    Attributes
    ----------
    best
        Probability that it is the best of them.
    regret
        Expected excess of its value over that of the best (Savage, "The theory of statistical decision", 1951; the expected opportunity
        loss of Raiffa and Schlaifer, "Applied statistical decision theory", 1961).
    share
        The same as a share of the best one's value.
    where_not_best
        That share in the mean over the cases in which another one is the best; None where there are none.
    """

    best: float
    regret: float
    share: float
    where_not_best: float | None


def stakes(values: Array, runs: int, *, most: bool = False) -> list[Stake]:
    """Of alternatives whose values were drawn together.

    Parameters
    ----------
    values
        Shape (alternatives, draws), above zero. Of equals each has its part of the probability.
    runs
        Runs that the draws rest on: a probability is at least 1 / (runs + 1) and at most runs / (runs + 1), which is what they can show.
    most
        Whether more is better; else less is.
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
            regret=float(its_loss.mean()),
            share=float(its_shares.mean()),
            where_not_best=None if won.all() else float(its_shares[~won].mean()),
        )
        for chance, its_loss, its_shares, won in zip(chances, loss, shares, winners, strict=True)
    ]


_EQUAL = 1e-9


def drawn_rates(results: Sequence[Result], rates: Sequence[Sequence[float]], steps: Sequence[Sequence[float]]) -> Array:
    """Rates of several configurations in one real run each, drawn together.

    Each draw takes one replication, the same of all that share their draws with the first, and one standard normal number for each cause
    of what the model is off by, the same of all results that have that cause.

    Parameters
    ----------
    results
        Of the configurations.
    rates
        Samples a second of each replication: of the steps, or of a whole job.
    steps
        Of the time of each replication, the share that steps have, which alone the model is off by.

    Returns
    -------
    numpy.ndarray
        Shape (results, draws).
    """
    streams = Streams(results[0].seed, 0)
    parts = [its.discrepancy.parts if its.discrepancy is not None else () for its in results]
    names = list(dict.fromkeys(part.name for its in parts for part in its))
    causes = {name: streams.of_the_seed("cause", number).standard_normal(_DRAWS) for number, name in enumerate(names)}
    found = np.empty((len(results), _DRAWS))
    for place, (its, own, shares) in enumerate(zip(results, rates, steps, strict=True)):
        runs = np.arange(_DRAWS) % len(own)
        if place and not share_draws(results[0], its):
            runs = streams.of_the_seed("run", place).integers(len(own), size=_DRAWS)
        longer = np.zeros(_DRAWS)
        for part in parts[place]:
            longer += _longer(part, causes[part.name])
        share = np.asarray(shares)[runs]
        found[place] = np.asarray(own)[runs] / (1.0 - share + share * np.exp(longer))
    return found


def fastest(results: Sequence[Result]) -> list[Stake]:
    """What is at stake with each of several results, where more samples a second are preferred: over whole jobs where all have one."""
    jobs = [result.job for result in results if result.job is not None]
    if len(jobs) == len(results):
        rates = [job.samples_per_s_of_each_replication for job in jobs]
        steps = [step_shares(job, len(own)) for job, own in zip(jobs, rates, strict=True)]
    else:
        rates = [result.throughput_of_each_replication for result in results]
        steps = [[1.0] * len(own) for own in rates]
    return stakes(drawn_rates(results, rates, steps), min(map(len, rates)), most=True)


def step_shares(job: JobOutcome, runs: int) -> Sequence[float]:
    """Share of the time of each run in which steps are made."""
    return job.steps_share_of_each_replication or [share_of_steps(job)] * runs


def _longer(part: Part, cause: Array) -> Array:
    """By how much the logarithm of a step's time rises where a cause is so many standard deviations off, by straight lines."""
    slower, faster = part.ends
    inside = np.interp(cause, [-Z_90, -1.0, 0.0, 1.0, Z_90], [-faster, -part.faster, 0.0, part.slower, slower])
    return inside * np.maximum(np.abs(cause) / Z_90, 1.0)
