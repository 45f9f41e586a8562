"""Asks :mod:`paceline.diagnosing` why the workers of a training are slower than predicted, where their record does not show it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from paceline.diagnosing import Seen, diagnose
from paceline.sweeping import Runner, Simulations
from paceline.watching.reasons import Reason
from paceline.watching.verdict import Verdict
from simulator.base.errors import PacelineError
from simulator.base.text import format_share
from simulator.scenario import Scenario

_MOST = 3
_LIKELY = 0.1
_LEAST_ERROR = 0.005


def explained(scenario: Scenario, verdicts: Sequence[Verdict], jobs: int = 0) -> tuple[Reason, ...]:
    """Causes that the scenario does not know of and that would make its step as long as it is; none for a single worker.

    Each is fitted by simulations, which takes some seconds. What cannot be simulated is a reason of its own.
    """
    if (scenario.ranks < 2 and not scenario.servers) or not scenario.strategy.count_key:
        return ()
    try:
        with Runner(jobs=jobs) as runner:
            found = diagnose(scenario, [seen_now(scenario, verdicts)], Simulations(runner))
    except PacelineError as error:
        return (Reason("not-diagnosed", f"what would explain it could not be simulated: {error}", None, "see `paceline why`"),)
    likely = [cause for cause in found.causes if cause.known == "found" and cause.probability >= _LIKELY][:_MOST]
    return tuple(
        Reason(
            cause.key,
            f"{cause.title} (chance {format_share(cause.probability)}): {cause.text}",
            cause.cost_s.mean,
            found.measure if place == 0 and found.measure else cause.remedy,
        )
        for place, cause in enumerate(likely)
    )


def seen_now(scenario: Scenario, verdicts: Sequence[Verdict]) -> Seen:
    """What is seen of the workers at present, as a diagnosis takes it."""
    known = [(its, its.now) for its in verdicts if its.now is not None]
    waits = not scenario.strategy.pace.asynchronous
    steps = [now.mean_s for _, now in known]
    step_s = statistics.fmean(steps) if waits else len(steps) / math.fsum(1.0 / one for one in steps)

    def means(name: str) -> tuple[float, ...]:
        found = [its.mean(name, now) for its, now in known]
        return tuple(one for one in found if one is not None) if all(one is not None for one in found) else ()

    return Seen(
        workers=scenario.workers,
        step_s=step_s,
        error=max(statistics.fmean([its.found.error_of(now.rows) for its, now in known]) / step_s, _LEAST_ERROR),
        is_average=any(its.run.each != "step" for its, _ in known),
        own_step_s=() if waits else tuple(steps),
        compute_s=means("compute_s"),
        input_s=means("input_s"),
        cpu_s=means("cpu_s"),
        source=", ".join(dict.fromkeys(its.run.source for its, _ in known)),
    )
