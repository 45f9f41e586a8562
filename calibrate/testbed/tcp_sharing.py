"""How TCP shares a link that it decides over, from runs of two workers whose transfers meet."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from calibrate.testbed.platform import PRIORS, Parameter, log_width
from calibrate.testbed.readings import Readings
from calibrate.testbed.scenarios import scenario_of
from calibrate.testbed.setting import TestbedSetting
from simulator.engine.replication import replicate
from simulator.resolve.resolve import resolve

__all__ = ["fit_tcp_sharing", "shows_tcp"]

Array = NDArray[np.float64]

_TRIED = {"queue_s": (5e-4, 1e-3, 2e-3, 3.5e-3, 5e-3, 7.5e-3), "weight_sigma": (0.15, 0.3, 0.5, 0.8)}
_RUNS = 6
_ERROR = 0.05
"""Relative, with which a simulated rate stands for a measured one."""
_UNLIKELY = 1e-6


def shows_tcp(setting: TestbedSetting) -> bool:
    """Whether a run of a setting shows how TCP shares a link: two workers whose transfers meet."""
    shared = setting.link is not None and setting.link.sharing == "tcp" and setting.workers == 2
    return shared and setting.compute.kind == "emulated" and not setting.overlap


def fit_tcp_sharing(
    readings: Sequence[Readings], found: Mapping[str, Parameter], cores: float, *, count: int, seed: int
) -> tuple[dict[str, Parameter], list[dict[str, float]]]:
    """How long a transfer keeps waiting in its sender's queue, and the spread of weights: from 2 workers whose transfers meet.

    The spread is that of a connection which has room for one packet in the buffer; that of a
    setting follows from its own room (:func:`calibrate.testbed.scenarios.scenario_of`).

    Both move the workers' phases, which change seldom, so that a rate can have two values
    for the same numbers. So the whole range is tried, and every pair counts by how well it
    describes the runs (its likelihood with normal errors, times the prior): the draws of
    the two hold phases that meet and phases that do not, where the runs do not tell which.

    Parameters
    ----------
    readings
        Runs of all kinds; those that :func:`shows_tcp` names are used.
    found
        All other parameters.
    cores
        Cores of the machine.
    count
        How many joint draws are wanted.
    seed
        Seed of the draws.

    Returns
    -------
    parameters
        The two; none without such runs.
    draws
        Draws of the two together; empty ones without such runs.
    """
    runs = [one for one in readings if shows_tcp(one.setting)]
    if not runs:
        return {}, [{}] * count
    values = {name: parameter.value for name, parameter in found.items()}
    pairs = np.array(list(itertools.product(*_TRIED.values())))
    logs = np.zeros(len(pairs))
    for one in runs:
        measured = np.log(one.updates_per_s)
        for number, pair in enumerate(pairs):
            tried = values | dict(zip(_TRIED, pair.tolist(), strict=True))
            scenario = resolve(scenario_of(one.setting, tried, cores, replications=_RUNS))
            rates = [run.updates / run.window_s for run in (replicate(scenario, each) for each in range(_RUNS))]
            # a run could have had the rate of any of the simulated ones
            off = (measured[:, None] - np.log(rates)) / _ERROR
            logs[number] += float(np.log(np.exp(-0.5 * off**2).mean(axis=1) + _UNLIKELY).mean())
    for column, name in enumerate(_TRIED):
        logs -= 0.5 * (np.log(pairs[:, column] / PRIORS[name][0]) / log_width(name)) ** 2
    chances = np.exp(logs - logs.max())
    chances /= chances.sum()
    parameters = {name: _weighted(name, pairs[:, column], chances, len(runs)) for column, name in enumerate(_TRIED)}
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
    chosen = pairs[rng.choice(len(pairs), size=count, p=chances)]
    return parameters, [dict(zip(_TRIED, pair, strict=True)) for pair in chosen.tolist()]


def _weighted(name: str, tried: Array, chances: Array, settings: int) -> Parameter:
    """A parameter from the values that were tried, and how likely each is."""
    mean = float(chances @ np.log(tried))
    deviation = math.sqrt(float(chances @ (np.log(tried) - mean) ** 2))
    order = np.argsort(tried)
    below = np.cumsum(chances[order])
    low, high = (float(tried[order][np.searchsorted(below, share).clip(0, len(tried) - 1)]) for share in (0.05, 0.95))
    return Parameter(
        value=min(max(math.exp(mean), low), high),
        low=low,
        high=high,
        determined=deviation < 0.5 * log_width(name),
        why=f"throughput of 2 workers whose transfers meet, sharing = tcp ({settings} settings); pairs of both by how likely they are",
    )
