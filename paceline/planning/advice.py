"""``paceline.advise``: without a goal, what each way of training makes of 1 to N machines, and whether more than one is worth it.

A plan, which has a goal, is made in planner.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from paceline.comparing import compare, never_held, of_more_devices
from paceline.planning.answer import Refused, refused_once
from paceline.planning.bounds import Ceilings
from paceline.planning.space import Line, Space, base_of, counts_of, space_of
from paceline.planning.tables import RATE, WORKERS
from paceline.planning.tuning import best_bucket, bucket_in_words, can_fuse
from paceline.ranges import doubled
from paceline.sentences import change_in_words, staleness_in_words
from paceline.sweeping import Backend, Journal, Runner, Simulations
from simulator.base.errors import SimulationError
from simulator.base.spec import Spec
from simulator.base.table import Cell, Column, Table
from simulator.base.text import Short, counted, estimated, format_hourly, format_usd, sentence
from simulator.catalogue.loading import Source
from simulator.memory import does_not_fit
from simulator.resolve.resolve import resolve
from simulator.results.cost import placement_of, usd_per_hour, usd_per_million_samples
from simulator.results.results import Result
from simulator.results.rows import COLUMNS
from simulator.scenario import Scenario
from simulator.spec.prices import Prices
from simulator.strategies.catalogue import SHORT_NAMES, kind_of
from simulator.strategies.strategy import SOFTWARE, TRAINS, outside_fit, trained_by

if TYPE_CHECKING:
    import pandas as pd

_MOST_OF_A_WAY = 4
"""Of all ways in which a model may be cut on as many devices, those that are best by closed forms are simulated."""
_HALF = 0.5
"""Machines pay that work half as well as the first ones."""


class Advised(Spec):
    """One strategy on a number of machines, with the buckets that are best for it."""

    strategy: str = Field(description="short name, as it was asked for; empty: the scenario's own")
    name: str = Field(description="the configuration in words")
    nodes: int = Field(description="machines that it takes")
    result: Result
    usd_per_hour: float | None = None
    usd_per_million_samples: float | None = Field(default=None, description="at the mean throughput of each run")


class Advice(Short, Spec):
    """What each way of training makes of each number of machines, and what follows from that."""

    see: ClassVar[str] = ".sentences say it in words, to_frame() has every configuration"

    rows: tuple[Advised, ...] = Field(description="by strategy, then by number of machines")
    best: int = Field(description="row that is fastest for certain, or the best of one machine")
    one_machine: int | None = Field(description="row that is fastest on one machine; null where none fits on one")
    sentences: tuple[str, ...] = Field(description="what to do, in words")
    refused: tuple[Refused, ...] = Field(default=(), description="what cannot be, each with the reason")

    def _in_short(self) -> Iterator[str]:
        yield from self.sentences

    def table(self) -> Table:
        """A row for each strategy and number of machines."""
        columns = (
            COLUMNS["strategy"],
            Column("nodes", "count", "Machines"),
            WORKERS,
            *RATE,
            COLUMNS["scaling_efficiency"],
            Column("staleness", "number", "Staleness (updates)"),
            Column("differs", "text", "Updates unlike those of one device"),
            COLUMNS["usd_per_million_samples"],
            Column("bottleneck", "text", "Limited by"),
            Column("name", "text", "Configuration"),
            Column("runs_on", "text", "Run by"),
        )
        rows: list[tuple[Cell, ...]] = []
        for its in self.rows:
            result, rate = its.result, its.result.throughput_samples_per_s
            rows.append(
                (
                    its.strategy or result.scenario.strategy.kind,
                    its.nodes,
                    result.scenario.workers,
                    rate.mean,
                    rate.low,
                    rate.high,
                    result.scaling_efficiency.mean,
                    result.staleness.mean or None,
                    _differs(its) or None,
                    its.usd_per_million_samples,
                    result.bottleneck.label,
                    its.name,
                    ", ".join(SOFTWARE[name] for name in result.scenario.strategy.software) or None,
                )
            )
        return Table("Ways of training on each number of machines", columns, tuple(rows), "advice")

    def to_frame(self) -> pd.DataFrame:
        """The table for pandas."""
        return self.table().to_frame()

    def to_json(self) -> str:
        """All of it as JSON."""
        return self.model_dump_json()


_MACHINES = 8
_CUT = ("fsdp", "pipeline", "tensor", "hybrid")


def strategies_for(scenario: Scenario) -> list[str]:
    """Short names of one way of each kind that suits a scenario, and of a model with layers of what cuts it.

    Names of a kind whose workers wait for each other alike are one way, for which the first stands: of all-reduces the ring.
    """
    found: dict[object, str] = {}
    for name, keys in SHORT_NAMES.items():
        kind = kind_of(keys)
        strategy = kind.model_validate(keys)
        in_a_node = strategy.link == "intra_node"
        if strategy.software and not {*strategy.software} & {*trained_by(scenario.workload)}:
            continue  # it is another framework's
        if not strategy.cuts_batches and (scenario.cluster.replicas_per_node > 1 or not in_a_node):
            found.setdefault((kind, strategy.pace), name)
    return [*found.values(), *(_CUT if scenario.workload.layers else ())]


def space_to_advise(
    scenario: Source,
    *,
    settings: Iterable[tuple[str, Any]] = (),
    machines: str | Iterable[int] | None = None,
    strategies: Sequence[str] = (),
    runs_on: Sequence[str] = (),
    prices: Prices | None = None,
) -> Space:
    """Ways of training on each number of machines, those of servers included.

    Parameters
    ----------
    scenario, settings, runs_on, prices
        As for :func:`paceline.planning.space_of`.
    machines
        As for :func:`machines_of`.
    strategies
        Short names; none: those of :func:`strategies_for`.

    Raises
    ------
    InputError
        An unknown name, or an empty or unreadable range.
    ScenarioError
        The scenario itself breaks a rule, or every configuration does.
    """
    settings = list(settings)
    base = base_of(scenario, settings)
    if base.cluster.nodes is not None:  # how many a run takes is what is varied
        settings.append(("cluster.nodes", None))
    strategies = strategies or strategies_for(base)
    return space_of(
        scenario, settings=settings, strategies=strategies, runs_on=runs_on, machines=machines_of(machines, base), prices=prices
    )


def machines_of(given: str | Iterable[int] | None, scenario: Scenario) -> list[int]:
    """Numbers of machines to try: 1, 2, 4 and so on up to the end of a range, or those of a list.

    Left out, the range ends at as many as the cluster has.

    Raises
    ------
    InputError
        It is empty, or has what is no count.
    """
    if given is None:
        given = f"1..{scenario.cluster.room or _MACHINES}"
    counts = counts_of(given, "machines")
    if not counts.searched:
        return list(counts.values)
    return doubled(counts.values[0], counts.values[-1])


def advise(
    space: Space,
    *,
    out: Path | None = None,
    jobs: int = 0,
    backend: Backend = "local",
    scheduler: str | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Advice:
    """Simulate every configuration of a space, with the buckets that are best for each, and compare them with one machine.

    Parameters
    ----------
    space
        What to choose from, as :func:`space_to_advise` makes it.
    out, jobs, backend, scheduler, force, progress
        As for :func:`paceline.planning.plan`.

    Raises
    ------
    SimulationError
        No configuration could be simulated.
    """
    refused = list(space.refused)
    wanted = [(line, scenario) for line in space.lines for scenario in line.scenarios.values()]
    fitting = []
    for line, scenario in wanted:
        if line.family is None and (why := does_not_fit(resolve(scenario))) is not None:
            refused.append(Refused(name=line.title(scenario.workers), cluster=line.cluster, text=why, configurations=1, asked=line.asked))
        else:
            fitting.append((line, scenario))
    fitting = _promising(fitting)
    with ExitStack() as stack:
        file = stack.enter_context(Journal(out, force=force)) if out is not None else None
        runner = stack.enter_context(Runner(jobs=jobs, backend=backend, scheduler=scheduler))
        simulations = Simulations(runner, file, force=force, progress=progress)
        found: dict[tuple[str, int], Advised] = {}
        outcomes = simulations([scenario for _, scenario in fitting])
        for (line, scenario), outcome in zip(fitting, outcomes, strict=True):
            if not isinstance(outcome, Result):
                failed = f"{outcome.failed.kind}: {outcome.failed.text}"
                name = line.title(scenario.workers)
                refused.append(Refused(name=name, cluster=line.cluster, text=failed, configurations=1, asked=line.asked))
                continue
            result = best_bucket(scenario, outcome, simulations) if line.tunable else outcome
            its = _advised(line, scenario, result)
            key = its.strategy, its.nodes
            if key not in found or _rate(its) > _rate(found[key]):
                found[key] = its
        simulations.finish()
    rows = tuple(found.values())
    if not rows:
        texts = " / ".join(dict.fromkeys(one.text for one in refused))
        raise SimulationError(f"none of the configurations could be simulated: {texts}")
    return _answer(rows, tuple(refused_once(refused)))


def _promising(wanted: Sequence[tuple[Line, Scenario]]) -> list[tuple[Line, Scenario]]:
    """Of all ways in which a model may be cut alike on as many devices, those that are best by closed forms."""
    alike: dict[tuple[str, str, int], list[tuple[float, Line, Scenario]]] = {}
    kept = []
    ceilings: dict[object, Ceilings] = {}
    for line, scenario in wanted:
        if line.family is None:
            kept.append((line, scenario))
            continue
        its = ceilings.setdefault(line.family, Ceilings(line.first))
        its.of(scenario)
        guess = its.expected or scenario.replicas * scenario.batch / resolve(scenario).full_step_s
        alike.setdefault((line.asked, line.cluster, scenario.workers), []).append((guess, line, scenario))
    for same in alike.values():
        kept += [(line, scenario) for _, line, scenario in sorted(same, key=lambda one: (-one[0], one[1].name))[:_MOST_OF_A_WAY]]
    return kept


def _advised(line: Line, scenario: Scenario, result: Result) -> Advised:
    own = result.scenario
    fused = f", {bucket_in_words(own)}" if can_fuse(own) and own.strategy != scenario.strategy else ""
    cost = usd_per_million_samples(result)
    return Advised(
        strategy=line.asked,
        name=f"{line.name}{fused}",
        nodes=placement_of(own).nodes,
        result=result,
        usd_per_hour=usd_per_hour(own),
        usd_per_million_samples=cost.mean if cost is not None else None,
    )


def _rate(its: Advised) -> float:
    return its.result.throughput_samples_per_s.mean


def _answer(rows: tuple[Advised, ...], refused: tuple[Refused, ...]) -> Advice:
    """One machine, or of what is for certain faster the best."""
    one = _preferred(rows, [place for place, its in enumerate(rows) if its.nodes == 1])
    several = [place for place, its in enumerate(rows) if its.nodes > 1]
    faster = several if one is None else [place for place in several if _is_faster(rows[place], rows[one])]
    best = _preferred(rows, faster) if faster else one
    assert best is not None
    return Advice(rows=rows, best=best, one_machine=one, sentences=tuple(_sentences(rows, best, one)), refused=refused)


def _preferred(rows: Sequence[Advised], places: Iterable[int]) -> int | None:
    """Of some rows the fastest; one of whose kind nothing was held against real runs only if it is for certain the faster."""
    by_rate = sorted(places, key=lambda place: -_rate(rows[place]))
    best = next((place for place in by_rate if not _unproven(rows[place].result)), None)
    for place in by_rate:
        if _unproven(rows[place].result) and (best is None or _is_faster(rows[place], rows[best])):
            return place
    return best


def _unproven(result: Result) -> bool:
    """Whether nothing of its kind was compared with real runs, or its times were measured under a backend that does not run it."""
    able = result.scenario.strategy.software
    return never_held(result) or (bool(able) and not {"keras", *TRAINS[result.scenario.workload.backend]} & {*able})


def _is_faster(ours: Advised, theirs: Advised) -> bool:
    """Whether one is faster than another for certain.

    What the model is off by cancels between kinds that were held against real runs, as far as it is equal. Of a kind that was
    not, that is not known: it has to be faster in its worst case than the other in its best.
    """
    if _unproven(ours.result):
        return ours.result.throughput_samples_per_s.low > theirs.result.throughput_samples_per_s.high
    found = compare(ours.result, theirs.result)
    return found.clear and found.ratio.mean > 1.0


def _over(ours: Advised, theirs: Advised) -> str:
    """Throughput of one over that of another as a change, with no more than its devices can do."""
    one, other = ours.result, theirs.result
    ratio = compare(one, other).ratio
    if one.scenario.cluster.even:
        # under the same strategy none does more than one did; under another no more than one that has nothing to wait for
        before = other.ranks if ours.strategy == theirs.strategy else other.speedup.mean
        ratio = of_more_devices(ratio, one.ranks / before)
    return change_in_words(ratio)


def _sentences(rows: Sequence[Advised], best: int, one: int | None) -> Iterator[str]:
    its = rows[best]
    if best == one:
        yield f"Use one machine: {its.name} makes {_does(its)}."
        yield _several(rows, one)
    else:
        yield f"Fastest is {its.name} on {counted(its.nodes, 'machine')}: {_does(its)}."
        if one is not None:
            yield f"That is {_over(its, rows[one])} over the throughput of one machine ({rows[one].name})."
        if (doubtful := _doubtful(rows, best, one)) is not None:
            yield doubtful
        paying = _paying(rows, best, one)
        last = rows[paying]
        if last.nodes == 1:
            yield "For throughput per machine one is best: those that are added work less than half as well."
        elif paying != best:
            yield f"Up to {last.nodes:,} machines those that are added work at least half as well: {last.name} makes {_does(last)}."
    yield from _outside_fit(rows, best)
    yield from _learning(rows, best)
    if its.result.discrepancy is not None:
        yield sentence(its.result.discrepancy.coverage_in_words)
    yield sentence(f"the limit is {its.result.bottleneck.label}: {its.result.bottleneck.text}")
    priced = [place for place, each in enumerate(rows) if each.usd_per_million_samples is not None]
    if priced:
        cheapest = rows[min(priced, key=lambda place: rows[place].usd_per_million_samples or 0.0)]
        hourly = f", at {format_hourly(cheapest.usd_per_hour)} an hour" if cheapest.usd_per_hour is not None else ""
        cost = format_usd(cheapest.usd_per_million_samples or 0.0)
        yield f"Cheapest for each sample is {cheapest.name} on {counted(cheapest.nodes, 'machine')}: {cost} for a million{hourly}."


def _outside_fit(rows: Sequence[Advised], best: int) -> Iterator[str]:
    """What the advice takes where ``fit`` of the Keras 3 that was measured does not run it, and what is best of what it does run."""
    scenario = rows[best].result.scenario
    if not (text := outside_fit(scenario.strategy, scenario.workload)):
        return
    yield sentence(text)
    place = _preferred(rows, [place for place, row in enumerate(rows) if "keras" in row.result.scenario.strategy.software])
    if place is not None:
        yield f"Best of what Keras 3's fit runs is {rows[place].name} on one machine: {_does(rows[place])}."


def _does(its: Advised) -> str:
    rate = its.result.throughput_samples_per_s
    return estimated(rate.mean, rate.low, rate.high, "throughput", "samples/s")


def _several(rows: Sequence[Advised], one: int) -> str:
    """Beside the advice to use one machine: what the best of several would make of it."""
    several = [its for its in rows if its.nodes > 1]
    if not several:
        return "Nothing on several machines was simulated." if len(rows) > 1 else "Nothing else was simulated."
    best = max(several, key=_rate)
    found = f"{best.name} on {counted(best.nodes, 'machine')}: {_over(best, rows[one])}"
    if _rate(best) > _rate(rows[one]):
        return f"The fastest of several is not for certain faster, {found}."
    return f"All on several are slower; the next best is {found}."


def _doubtful(rows: Sequence[Advised], best: int, one: int | None) -> str | None:
    """What has a higher mean than the advice and is not advised, and why; None where nothing has."""
    top = max(rows, key=_rate)
    if _rate(top) <= _rate(rows[best]):
        return None
    name = f"{top.name} on {counted(top.nodes, 'machine')} makes {_does(top)}"
    if one is not None and not _is_faster(top, rows[one]):
        return sentence(f"{name}, but is not for certain faster than one machine")
    why = "nothing of its kind was held against real runs" if never_held(top.result) else "its times were measured under another backend"
    return sentence(f"{name}, but {why}, and it is not for certain faster")


def _learning(rows: Sequence[Advised], best: int) -> Iterator[str]:
    """Where a sample may teach less than it would on one device: of the advice with what does not, and of all others."""
    if differs := _differs(rows[best]):
        yield f"{sentence(differs)} It may need more samples than one device would."
        alike = _preferred(rows, [place for place, its in enumerate(rows) if not _differs(its)])
        if alike is not None:
            its = rows[alike]
            yield f"Best of what trains as one device would is {its.name} on {counted(its.nodes, 'machine')}: {_does(its)}."
    others: dict[str, Advised] = {}
    for its in rows:
        if its.strategy != rows[best].strategy and _differs(its):
            others[its.strategy] = its  # with the most machines
    if others:
        said = "; ".join(f"{name}, since {_differs(its)}" for name, its in others.items())
        yield f"Others that may need more samples than one device would: {said}."


def _differs(its: Advised) -> str:
    """How its updates differ from those of one device with the batch of all, as a part of a sentence; empty where they do not."""
    strategy = its.result.scenario.strategy
    if stale := staleness_in_words(its.result):
        return f"it has {stale}"
    if dropped := strategy.pace.backups:
        return f"each step leaves out the gradients of the {f'{dropped:,} slowest workers' if dropped > 1 else 'slowest worker'}"
    return strategy.inexact if its.result.ranks > 1 else ""


def _paying(rows: Sequence[Advised], best: int, one: int | None) -> int:
    """Of the best strategy, from one machine on, the row up to which each step to more brings at least half of what it adds."""
    own = sorted((place for place, its in enumerate(rows) if its.strategy == rows[best].strategy), key=lambda place: rows[place].nodes)
    if one is not None and rows[own[0]].nodes > 1:
        own.insert(0, one)
    last = own[0]
    for place in own[1:]:
        more = rows[place].nodes / rows[last].nodes - 1
        if _rate(rows[place]) / _rate(rows[last]) - 1 < _HALF * more:
            break
        last = place
    return last
