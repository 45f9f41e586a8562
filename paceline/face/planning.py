"""plan: the configuration that reaches a goal best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from paceline.face.arguments import checked
from paceline.face.scenarios import GivenPrices, Settings, Source, axes_of, load, out_of, pairs_of, prices_of
from simulator.spec import Spec

if TYPE_CHECKING:
    from paceline.planning.answer import Plan

__all__ = ["plan"]


@checked
def plan(
    scenario: Source,
    *,
    target_throughput: str | float | None = None,
    samples: float | None = None,
    epochs: float | None = None,
    deadline: str | float | None = None,
    budget: str | float | None = None,
    confidence: float = 0.95,
    prefer: Literal["cheapest", "fastest", "fewest-devices"] | None = None,
    clusters: Sequence[str] = (),
    over: Mapping[str, Iterable[Any]] | None = None,
    strategies: Sequence[str] = (),
    workers: str | Sequence[int] | None = None,
    servers: str | Sequence[int] | None = None,
    scaling: Literal["weak", "strong", "both"] | None = None,
    settings: Settings = (),
    prices: GivenPrices = None,
    out: str | Path | None = None,
    jobs: int = 0,
    backend: Literal["local", "dask", "ray"] = "local",
    scheduler: str | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Find the configuration that reaches a goal best.

    The goal is a throughput; or samples (and epochs) within a deadline, a budget, or both.

    Parameters
    ----------
    scenario
        As for :func:`load`.
    target_throughput
        Such as ``"20000 samples/s"``, or a number of samples a second.
    samples, epochs
        Samples of the data set, and how often all of them are trained on (once, if left out).
    deadline
        Such as ``"12 h"``, or seconds.
    budget
        Such as ``"500 USD"``, or US dollars.
    confidence
        Share of real runs that must reach the goal.
    prefer
        What is best among all that do; left out: the fastest where only a budget is given,
        else the cheapest.
    clusters
        Names of the catalogue, or paths of files; none: the scenario's own.
    over
        Further values to choose from, by dotted key.
    strategies
        Short names such as ``"ring"``, ``"sync-ps"``, ``"async-ps"``; none: the scenario's own.
    workers, servers
        A range ``"1..64"``, of which only so many are simulated as are needed, or a list.
    scaling
        Weak: each replica keeps its batch. Strong: all together keep theirs. Left out: as
        the scenario has it.
    settings
        Keys to set in all configurations, whatever their cluster.
    prices
        Of a node for an hour, by the name of its cluster or the path of its file: ``"0.40/h"``, a
        number of US dollars, a :class:`~simulator.cluster.Price`, or for machines of one's own
        ``"BUY:4000USD,years:4,power:0.5kW"`` (also ``electricity:0.30USD/kWh``, ``use:0.6`` of all
        hours). A price alone, or under ``"*"``, is for every cluster that has none.
    out
        A results file of what is simulated; an interrupted plan goes on in it.
    jobs, backend, scheduler, force, progress
        As for :func:`sweep`. The answer does not depend on them.

    Returns
    -------
    Plan
        Where nothing meets the goal, ``feasible`` is False and ``chosen`` the nearest there is.

    Raises
    ------
    InputError
        There is no goal or more than one, a range is empty, a name unknown, a price cannot be
        read or is for none of the clusters, or nothing has the price that a budget needs.
    ScenarioError
        No configuration can be.

    Examples
    --------
    >>> found = plan(
    ...     "ring", target_throughput="10000 samples/s", workers=[1, 2, 4, 8], settings={"run.steps": 20}, jobs=1
    ... )
    >>> found.feasible, found.chosen.result.replicas, found.chosen.scaling
    (True, 8, 'weak')
    """
    from paceline.planning import goal_of, space_of
    from paceline.planning import plan as search

    goal = goal_of(
        target_throughput=target_throughput, samples=samples, epochs=epochs, deadline=deadline, budget=budget, confidence=confidence,
        prefer=prefer,
    )  # fmt: skip
    journal = out_of(out, scenario)
    pairs = pairs_of(settings)
    rest = [(key, value) for key, value in pairs if not isinstance(value, Spec)]
    if len(rest) < len(pairs):
        scenario = load(scenario, pairs)
        rest = [(key, value) for key, value in rest if not key.endswith(".use")]
    space = space_of(
        scenario, settings=rest, clusters=clusters, over=axes_of(over or {}), strategies=strategies, workers=workers, servers=servers,
        scaling=scaling, prices=prices_of(prices),
    )  # fmt: skip
    return search(space, goal, out=journal, jobs=jobs, backend=backend, scheduler=scheduler, force=force, progress=progress)
