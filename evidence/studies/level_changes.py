"""How soon ``paceline watch`` tells that steps become longer in mid-run, and how often it tells it of runs in which they do not.

``python -m evidence.studies.level_changes --runs N`` draws runs whose mean step is as predicted, half of them from a gamma distribution and
half from a lognormal one, watches them as they grow, and prints a row for each kind of run. The prediction's interval is as wide as that of
an assumed network, so that only a change within the run can be told.

``evidence/tables/level-changes.csv`` has the rows of 40 runs of each kind: of 2,000 steps of one level how many runs are called slower,
and of those that become longer at step 1,001 how many are called so within 60 steps, with the median of steps until then (one look every
5 steps). ``steps_stay``: steps keep one exact value for a while. 60 steps with an autocorrelation of 0.9 are worth about 4 independent
ones.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import signal, stats

from calibrate.observations import Predicted
from calibrate.recorded.run import Growing
from paceline.watching.verdict import Verdict, verdict_of
from simulator import load_scenario, simulate
from simulator.results.results import Result

Array = NDArray[np.float64]

CHANGES = (1.1, 1.2, 1.5)
"""Factors by which steps become longer."""
WITHIN = 60
"""Steps behind a change in which it is to be told."""
_STEADY, _BEFORE, _BETWEEN_LOOKS = 2_000, 1_000, 5
_WIDE = 3.0
"""How many times as long or as short a run may be as predicted."""


@dataclass(frozen=True)
class Kind:
    """A kind of runs: coefficient of variation, autocorrelation of successive steps, and whether steps stay what they were for a while.

    Else steps change gradually: a normal autoregression of first order, drawn through the distribution.
    """

    cv: float
    persistence: float
    stays: bool = False


KINDS = (
    *(Kind(cv, persistence) for persistence in (0.0, 0.5, 0.9) for cv in (0.02, 0.05, 0.1, 0.2)),
    *(Kind(0.1, persistence, stays=True) for persistence in (0.5, 0.9)),
)


def drawn(kind: Kind, count: int, seed: int) -> Array:
    """Steps with the mean 1, shape (count,); a lognormal distribution has the odd seeds, a gamma distribution the even ones."""
    rng = np.random.default_rng([seed, count])
    fresh = rng.normal(size=count)
    if kind.stays:
        new = rng.random(count) >= kind.persistence
        new[0] = True
        normal = fresh[np.maximum.accumulate(np.where(new, np.arange(count), 0))]
    else:
        scaled = np.concatenate([fresh[:1], fresh[1:] * np.sqrt(1 - kind.persistence**2)])
        normal = np.asarray(signal.lfilter([1.0], [1.0, -kind.persistence], scaled))
    sigma = float(np.sqrt(np.log1p(kind.cv**2)))
    if seed % 2:
        return np.exp(sigma * normal - sigma**2 / 2)
    return np.asarray(stats.gamma.ppf(stats.norm.cdf(normal), 1 / kind.cv**2, scale=kind.cv**2))


class Watching:
    """Compares runs with one prediction with a wide interval."""

    def __init__(self) -> None:
        self._result: Result = simulate(load_scenario("ring", {"run.steps": 20, "run.replications": 3}))
        known = Predicted.of(self._result, 0.99)
        low_s, high_s = known.mean_s / _WIDE, known.mean_s * _WIDE
        self._predicted = replace(known, low_s=low_s, high_s=high_s, least_s=low_s, most_s=high_s)

    def verdict(self, steps: Array) -> Verdict:
        """Of steps in units of the predicted mean, shape (n,)."""
        growing = Growing("steps.csv", "table")
        for place, step_s in enumerate((steps * self._predicted.mean_s).tolist()):
            growing.add(place + 1, step_s)
        return verdict_of(growing.run(), self._result, self._predicted)

    def is_false_alarm(self, kind: Kind, seed: int) -> bool:
        """Whether a run of one level is called outside."""
        return bool(self.verdict(drawn(kind, _STEADY, seed)).was_outside)

    def delay(self, kind: Kind, factor: float, seed: int) -> int | None:
        """Steps behind a change after which it is told, of a run that is looked at every few steps; None: not within those asked for."""
        steps = drawn(kind, _BEFORE + WITHIN, seed)
        steps[_BEFORE:] *= factor
        looks = range(_BETWEEN_LOOKS, WITHIN + 1, _BETWEEN_LOOKS)
        return next((behind for behind in looks if self._is_told(steps[: _BEFORE + behind])), None)

    def _is_told(self, steps: Array) -> bool:
        """Whether a run is reported as slower from about the right step on."""
        since = self.verdict(steps).since
        return since is not None and since.first_step > _BEFORE - WITHIN


def row(watching: Watching, kind: Kind, runs: int) -> str:
    """A row of the page's table, from a number of runs of each kind."""
    alarms = sum(watching.is_false_alarm(kind, seed) for seed in range(runs))
    cells = [f"{kind.persistence:g}{' (stays)' if kind.stays else ''}", f"{kind.cv:.0%}", f"{alarms}"]
    for factor in CHANGES:
        delays = [watching.delay(kind, factor, seed) for seed in range(runs)]
        told = [delay for delay in delays if delay is not None]
        cells.append(f"{len(told)}" + (f" ({statistics.median_low(told)})" if told else ""))
    return f"| {' | '.join(cells)} |"


def rows(runs: int) -> Iterator[str]:
    """The table."""
    changes = " | ".join(f"+{factor - 1:.0%}" for factor in CHANGES)
    yield f"| autocorrelation | coefficient of variation | false alarms | {changes} |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    watching = Watching()
    for kind in KINDS:
        yield row(watching, kind, runs)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40, help="of each kind and change")
    for line in rows(parser.parse_args().runs):
        print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
