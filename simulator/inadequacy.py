"""How the discrepancy of a regime reaches the throughput of one scenario.

What is known of a prediction is the breakdown of its steps; with compute that takes
e^c times as long and communication that takes e^m times as long its steps follow from
that, nearly, without simulating again (:func:`factor`).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from simulator.catalog import discrepancy_file
from simulator.complaints import validated
from simulator.discrepancy import Discrepancy, Doubt, Part
from simulator.reading import read_toml
from simulator.results import Breakdown, Utilisation
from simulator.scenario import Scenario
from simulator.spec import Spec
from simulator.strategy import AllReduceStrategy, ParameterServer

__all__ = ["Regime", "discrepancy_of", "doubt_of", "factor", "reach_of", "regime_of", "regimes"]

ALL_REDUCE, SYNCHRONOUS, ASYNCHRONOUS = "all-reduce", "synchronous servers", "asynchronous servers"
MEASURED, CATALOGUE = "measured links", "catalogue"


class Regime(Discrepancy):
    """The discrepancy of one kind of training on one kind of machine."""

    name: Annotated[str, Field(min_length=1)]


class _Regimes(Spec):
    schema_version: int = 1
    regimes: tuple[Regime, ...]


@lru_cache(maxsize=1)
def regimes() -> dict[str, Regime]:
    """Of every regime, by name."""
    path = discrepancy_file()
    return {each.name: each for each in validated(_Regimes, read_toml(path), str(path)).regimes}


def regime_of(scenario: Scenario) -> str:
    """The kind of training, and whether its links were measured or are those of a catalogue; empty for one replica alone."""
    strategy = scenario.strategy
    if isinstance(strategy, ParameterServer):
        kind = SYNCHRONOUS if strategy.mode == "sync" else ASYNCHRONOUS
    elif isinstance(strategy, AllReduceStrategy) and scenario.replicas > 1:
        kind = ALL_REDUCE
    else:
        return ""
    return f"{kind}, {MEASURED if scenario.cluster.basis == 'measured' else CATALOGUE}"


def discrepancy_of(scenario: Scenario) -> Discrepancy | None:
    """What predictions of this scenario are off by: its own, or that of its regime; None where there is none."""
    if scenario.discrepancy == "none":
        return None
    if scenario.discrepancy is not None:
        return scenario.discrepancy
    return regimes().get(regime_of(scenario))


def reach_of(scenario: Scenario) -> float:
    """Doublings of replicas beyond what was calibrated: one replica, or as many workers as a refit had runs of."""
    known = scenario.workload.calibrated
    most = max(known.workers[1], 1.0) if known is not None else 1.0
    return max(math.log2(scenario.replicas / most), 0.0)


def factor(scenario: Scenario, parts: Breakdown, hidden_s: float, use: Utilisation, compute: float, communication: float) -> float:
    """Time of a step, over what it is, where compute and communication take e^compute and e^communication times as long.

    Communication that compute hides comes out where it grows beyond it: of x s exposed and
    h s hidden, max(x e^m, (x + h) e^m - h e^c) s. Workers that do not wait for each other
    queue for the busiest link or server: a share u of a step S is what it needs for all of
    them, which no faster compute takes away, and a worker by itself would need A s. Steps
    are taken to be (A^p + (u S)^p)^(1/p) with the p for which that is S, so that compute
    counts for less and less as u comes near 1.

    Parameters
    ----------
    parts, hidden_s, use
        Of the result as it is.
    compute, communication
        Logarithms of the factors.
    """
    slower, longer = math.exp(compute), math.exp(communication)
    exposed_s = max(parts.exposed_communication * longer, (parts.exposed_communication + hidden_s) * longer - hidden_s * slower)
    on_device = isinstance(scenario.strategy, AllReduceStrategy)
    step_s = parts.input + parts.compute + parts.exposed_communication + parts.waiting + parts.apply
    after_s = parts.input + parts.compute * slower + exposed_s + parts.waiting * slower + parts.apply * (slower if on_device else longer)
    return after_s / step_s


def doubt_of(scenario: Scenario, parts: Breakdown, hidden_s: float, use: Utilisation) -> Doubt | None:
    """The discrepancy as it reaches the throughput of a scenario with these steps; None where there is none."""
    own = discrepancy_of(scenario)
    if own is None:
        return None
    reach, regime = reach_of(scenario), regime_of(scenario)
    of_compute, of_communication = own.compute(reach), own.communication(reach)

    def part(name: str, compute: float, communication: float) -> Part:
        slower = math.log(factor(scenario, parts, hidden_s, use, compute, communication))
        faster = -math.log(factor(scenario, parts, hidden_s, use, -compute, -communication))
        return Part(name=name, slower=slower, faster=faster)

    return Doubt(
        regime=regime,
        reach=reach,
        parts=(
            part("compute", of_compute, 0.0),
            part(f"communication: {regime} on {scenario.cluster.name}", 0.0, of_communication),
        ),
        staleness=own.staleness(reach),
        checked=own.checked,
    )
