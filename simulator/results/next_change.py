"""What the next change would bring, where shares of a step do not tell: simulated again, with the same draws.

A part that takes most of a step is its limit only as far as nothing else takes nearly as
long at the same time. Where compute hides communication that lasts as long, twice the
device waits for the links at once, and devices that compute for 91% of a step bring a tenth.
Which part limits is what changes the throughput when it is made twice as fast. That is
simulated, once for each part, where two parts last long enough that halving one leaves the
other (:func:`contested`); and where three may limit and none brings much alone, with two of
them twice as fast.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

from simulator.base.errors import PacelineError
from simulator.resolve.resolve import resolve
from simulator.results.what_if import with_communication, with_compute, with_even_workers, with_input_times, with_service
from simulator.scenario import Resolved, Scenario
from simulator.spec.figures import Breakdown, Utilisation
from simulator.strategies.pipelines import batch_s

Part = Literal["compute", "communication", "server", "input", "waiting"]


class Gains(NamedTuple):
    """Throughput over what it is, less 1, the mean over replications; below 0 where a change does harm, as earlier messages that collide.

    Attributes
    ----------
    alone
        With one part twice as fast, or without what makes workers wait for each other.
    together
        With two of them, where several parts could be what keeps the best from bringing more; else empty.
    """

    alone: Mapping[Part, float]
    together: Mapping[tuple[Part, Part], float]


class _Change(NamedTuple):
    """One part made better."""

    words: str
    made: Callable[[Scenario], Scenario]


CHANGES: Mapping[Part, _Change] = {
    "compute": _Change("devices", lambda its: with_compute(its, 0.5)),
    "communication": _Change("communication", lambda its: with_communication(its, 2.0)),
    "server": _Change("parameter servers", lambda its: with_service(its, 0.5)),
    "input": _Change("input pipelines", lambda its: with_input_times(its, 0.5)),
    "waiting": _Change("variation between workers", with_even_workers),
}
"""Each part with what is twice as fast then, in words; of waiting what is then gone."""

_AS_LONG = 0.3
"""A part that lasts half as long as the longest is what is waited for once that one is twice as fast; waiting in a queue may
go altogether if what serves it is twice as fast, so that less than half counts too."""
_MUCH = 0.5
"""What brings as much is a limit by itself: half of what it would if nothing else lasted."""
_NOISE = 0.05
"""What brings less may be first by chance."""
_FEWEST_STEPS, _FEWEST_APART = 10, 20
"""Of a replication in which a change is tried; the second where workers do not wait for each other and drift apart."""
_TRIES_ARE_ONE_OF = 20
"""A change is tried for this part of all steps of all replications, so that trying each of four costs a quarter more."""
_MOST_RANKS = 10_000
"""Beyond it another replication takes long, and shares are all there is."""


def contested(scenario: Resolved, parts: Breakdown, hidden_s: float, use: Utilisation) -> list[Part]:
    """All parts of a step, where several of them may be its limit; empty where there is one alone.

    How long a part lasts counts what others hide of it: of communication what is exposed and
    what is hidden, and the busiest link of workers that do not wait for each other.

    Parameters
    ----------
    scenario
        What was simulated, resolved.
    parts, hidden_s, use
        Of its mean step.
    """
    if scenario.ranks > _MOST_RANKS:
        return []
    step_s = parts.input + parts.compute + parts.exposed_communication + parts.waiting + parts.apply
    sent_s = max(parts.exposed_communication + hidden_s, use.busiest_link * step_s)
    served_s = max(use.busiest_server * step_s, parts.apply if scenario.servers else 0.0)
    # waiting for each other may be for who waits for input
    read_s = max(batch_s(scenario), parts.input + parts.waiting if parts.input else 0.0)
    lasts: dict[Part, float] = {
        "compute": parts.compute + (0.0 if scenario.servers else parts.apply),
        "communication": sent_s,
        "server": served_s,
        "input": read_s,
    }
    if not parts.input and not scenario.strategy.pace.coordinated and scenario.strategy.model_parallel(scenario).bubble is None:
        lasts["waiting"] = parts.waiting
    longest = max(lasts.values())
    several = sum(seconds >= _AS_LONG * longest for seconds in lasts.values()) > 1
    return [part for part, seconds in lasts.items() if seconds] if several else []


def tried(scenario: Resolved) -> tuple[int, Resolved]:
    """In how many replications changes are tried, and the scenario with the steps of each.

    In as many as there are steps for, since what limits one draw of what is uncertain need not limit others: many short runs come
    nearer to what whole runs show than a few long ones.
    """
    run = scenario.run
    all_of_each = max(run.total_steps(scenario.ranks) // scenario.ranks, 1)
    fewest = min(_FEWEST_STEPS if scenario.strategy.pace.together else _FEWEST_APART, all_of_each)
    if run.start_spread_s is not None:  # starts that are told apart may decide the whole run
        fewest = all_of_each
    steps = max(_FEWEST_STEPS, fewest, all_of_each * run.replications // _TRIES_ARE_ONE_OF)
    count = min(run.replications, steps // fewest)
    steps //= count
    return count, scenario.shortened(steps, steps // 2) if steps < all_of_each else scenario


def typical(scenario: Resolved, rates: Sequence[float]) -> list[int]:
    """Numbers of the replications in which changes are tried, by the throughput of each: evenly from slow to fast."""
    count, _ = tried(scenario)
    ordered = sorted(range(len(rates)), key=lambda number: rates[number])
    return [ordered[(2 * place + 1) * len(ordered) // (2 * count)] for place in range(count)]


def gains_of(
    scenario: Resolved, parts: list[Part], waited: float, replications: Sequence[int], simulated: Callable[[Resolved, int], float]
) -> Gains | None:
    """What each part brings if it is twice as fast, in a run of fewer steps: they are all alike, and the draws the same.

    Parameters
    ----------
    scenario
        What was simulated, resolved.
    parts
        Those to try.
    waited
        Share of a step that workers wait for the slowest: even ones save no more, the rest is that what was drawn slow no longer is.
    replications
        Numbers of those to try them in, such as :func:`typical` ones.
    simulated
        The throughput of a replication of a scenario, resolved; with the same draws whatever the scenario.

    Returns
    -------
    Gains or None
        None where one of the changes breaks a rule, or cannot be simulated.
    """
    _, scenario = tried(scenario)
    rates = [simulated(scenario, number) for number in replications]

    def gain(*faster: Part) -> float:
        its: Scenario = scenario
        for part in faster:
            its = CHANGES[part].made(its)
        faster_one = resolve(its)
        ratios = (simulated(faster_one, number) / rate for number, rate in zip(replications, rates, strict=True))
        return statistics.fmean(ratios) - 1.0

    try:
        alone = {part: gain(part) for part in parts}
        if "waiting" in alone:
            alone["waiting"] = min(alone["waiting"], waited / (1.0 - waited))
        return Gains(alone, {pair: gain(*pair) for pair in _in_question(alone)})
    except PacelineError:
        return None


def _in_question(alone: Mapping[Part, float]) -> Iterable[tuple[Part, Part]]:
    """Pairs of parts that may limit together."""
    first, *others = sorted(alone, key=lambda part: -alone[part])
    if len(others) < 2 or alone[first] >= _MUCH:
        return ()
    return [(first, other) for other in others] if alone[first] >= _NOISE else combinations(alone, 2)
