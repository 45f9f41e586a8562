"""What a scenario's figures leave out: neither simulated nor paid for, and so no part of any time or cost."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.base.spec import Spec
from simulator.memory import not_checked
from simulator.resolve.resolve import resolve
from simulator.scenario import Scenario


class LeftOut(Spec):
    """One thing that the figures do not hold."""

    name: str
    text: str


def left_out(scenario: Scenario) -> tuple[LeftOut, ...]:
    """What throughput, time and cost of a scenario do not hold, each with the reason.

    >>> from simulator.catalogue.loading import load_scenario
    >>> [each.name for each in left_out(load_scenario("ring"))]
    ['preparing input', 'whether a batch fits into memory', 'start-up, evaluation and checkpoints', 'failures of nodes']
    """
    load, price = scenario.workload, scenario.cluster.price
    found = []
    if not load.input(scenario.batch) and scenario.input is None:
        text = "nothing says how long it takes (input, workload.input), so every batch is ready when it is needed"
        found.append(LeftOut(name="preparing input", text=text))
    if (why := not_checked(resolve(scenario))) is not None:
        found.append(LeftOut(name="whether a batch fits into memory", text=f"not checked: {why}"))
    if scenario.job is None:
        found.append(LeftOut(name="start-up, evaluation and checkpoints", text="only training steps count, without a [job]"))
    at_spot = price is not None and (price.preemption is not None or "spot" in price.terms.lower())
    spot = "; at a spot price they are taken away in the middle of a run" if at_spot else ""
    spot += ", which only a [job] lives through" if spot and scenario.job is None else ""
    if scenario.faults is None:
        text = f"nodes are taken never to fail or to be taken away, and no step is repeated{spot}"
        found.append(LeftOut(name="failures of nodes", text=text))
    if price is not None:
        found.append(LeftOut(name="storage and transfer of data", text="nodes alone are priced"))
    return tuple(found)


def left_out_in_words(things: Iterable[LeftOut]) -> str:
    """Their names, as the end of a sentence."""
    return "; ".join(each.name for each in things)
