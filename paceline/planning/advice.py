"""``paceline.advise``: the throughput of each strategy on 1 to N machines, and whether more than one machine is worth it.

planner.py makes plans, which have a goal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from paceline.answers import MOST_FIGURES, Answer, confidence_of, figure, figures_of, limit_of, next_of, outcome_in_words, watch_out
from paceline.comparing import compare, never_validated, of_more_devices, pays_until
from paceline.planning.answer import Refused, refused_once
from paceline.planning.search import best_bucket, bucket_in_words, can_fuse
from paceline.planning.space import Line, Space, base_of, counts_of, fitting, space_of
from paceline.planning.tables import WORKERS, rate
from paceline.ranges import doubled
from paceline.sentences import staleness_in_words
from paceline.sweeping import Backend, Journal, Runner, Simulations
from simulator.base.errors import SimulationError
from simulator.base.spec import Spec
from simulator.base.table import Column, Table, Tabular
from simulator.base.text import counted, format_number
from simulator.catalogue.loading import Source
from simulator.results.cost import placement_of, usd_per_billion_tokens, usd_per_hour, usd_per_million_samples
from simulator.results.results import Result
from simulator.results.rows import COLUMNS
from simulator.scenario import Scenario
from simulator.spec.figures import Estimate, Unit
from simulator.spec.prices import Prices
from simulator.strategies.catalogue import KINDS, SHORT_NAMES, kind_of
from simulator.strategies.strategy import SOFTWARE, TRAINS, trained_by

_MOST_OF_A_WAY = 4
"""Most ways to cut a model on the same number of devices that are simulated: the best by closed forms."""


class Advised(Spec):
    """A strategy on a number of machines, with its best bucket size."""

    strategy: str = Field(description="short name, as requested; empty: the scenario's own strategy")
    name: str = Field(description="the configuration in words")
    nodes: int = Field(description="machines that it uses")
    result: Result
    usd_per_hour: float | None = None
    usd_per_million_samples: float | None = Field(default=None, description="at the mean throughput of each run")


class Advice(Tabular, Spec):
    """Results of each strategy on each number of machines, and the advice."""

    see: ClassVar[str] = ".sentences explains it, to_frame() has every configuration"

    rows: tuple[Advised, ...] = Field(description="by strategy, then by number of machines")
    best: int = Field(description="the fastest row that certainly beats one machine, or the best on one machine")
    one_machine: int | None = Field(description="the fastest row on one machine; null if none fits")
    sentences: tuple[str, ...] = Field(default=(), description="the answer: its headline and labelled lines")
    refused: tuple[Refused, ...] = Field(default=(), description="impossible configurations, each with the reason")

    def _in_short(self) -> Iterator[str]:
        yield from self.sentences

    @property
    def unit(self) -> Unit:
        """What its trainings count."""
        return self.rows[self.best].result.scenario.unit

    def table(self) -> Table:
        """Return a row for each strategy and number of machines."""
        columns = (
            replace(COLUMNS["strategy"], by=lambda row: row.strategy or row.result.scenario.strategy.kind),
            Column("nodes", "count", "Machines", short="machines"),
            replace(WORKERS, of="result.scenario.workers"),
            *rate(self.unit, "result.throughput_samples_per_s"),
            replace(COLUMNS["mfu"], of="result.tokens.mfu.mean"),
            replace(COLUMNS["scaling_efficiency"], of="result.scaling_efficiency.mean"),
            Column("staleness", "number", "Staleness (updates)", by=lambda row: row.result.staleness.mean or None, short="stale"),
            Column("differs", "text", "Different updates than one device", by=lambda row: _differs(row) or None),
            replace(COLUMNS["usd_per_million_samples"], of=""),
            replace(COLUMNS["usd_per_billion_tokens"], by=_usd_of_tokens),
            Column("bottleneck", "text", "Limited by", of="result.bottleneck.label", short="limit"),
            Column("name", "text", "Configuration"),
            Column("runs_on", "text", "Run by", by=_software),
        )
        return Table.reading("Strategies by number of machines", columns, self.rows, "advice")


_MACHINES = 8
_CUT = ("fsdp", "pipeline", "tensor", "hybrid")


def strategies_for(scenario: Scenario) -> list[str]:
    """Return the short name of one strategy of each kind that suits a scenario; for a model with layers those that cut it too.

    Strategies of a kind that wait in the same way count as one, represented by the first, such as ring for all-reduces. The scenario's
    own strategy is added if another package defines it.
    """
    of_kinds: dict[object, str] = {}
    for name, keys in SHORT_NAMES.items():
        kind = kind_of(keys)
        strategy = kind.model_validate(keys)
        in_a_node = strategy.link == "intra_node"
        if strategy.software and not {*strategy.software} & {*trained_by(scenario.workload)}:
            continue  # it is another framework's
        if not strategy.cuts_batches and (scenario.cluster.replicas_per_node > 1 or not in_a_node):
            of_kinds.setdefault((kind, strategy.pace), name)
    own = scenario.strategy.kind
    return [*of_kinds.values(), *(() if own in KINDS else (own,)), *(_CUT if scenario.workload.layers else ())]


def space_to_advise(
    scenario: Source,
    *,
    settings: Iterable[tuple[str, Any]] = (),
    machines: str | Iterable[int] | None = None,
    strategies: Sequence[str] = (),
    runs_on: Sequence[str] = (),
    prices: Prices | None = None,
) -> Space:
    """Return the space of strategies on each number of machines; parameter servers count as machines.

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
        A name is unknown, or a range is empty or unreadable.
    ScenarioError
        The scenario breaks a rule, or every configuration does.
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
    """Return numbers of machines to try: 1, 2, 4 and so on to the end of a range, or those of a list.

    By default the range ends at the size of the cluster.

    Raises
    ------
    InputError
        The range is empty, or an entry is not a count.
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
    """Simulate every configuration of a space, each with its best bucket size, and compare them with one machine.

    Parameters
    ----------
    space
        The configurations, from :func:`space_to_advise`.
    out, jobs, backend, scheduler, force, progress
        As for :func:`paceline.planning.plan`.

    Raises
    ------
    SimulationError
        No configuration could be simulated.
    """
    refused = list(space.refused)
    lines, unfit = fitting(space)
    refused += [line.refused(why, 1, workers, asked=line.asked) for line, texts in unfit.items() for workers, why in texts.items()]
    wanted = _promising(lines)
    with (
        nullcontext() if out is None else Journal(out, force=force) as file,
        Runner(jobs=jobs, backend=backend, scheduler=scheduler) as runner,
    ):
        simulations = Simulations(runner, file, force=force, progress=progress)
        fastest: dict[tuple[str, int], Advised] = {}
        outcomes = simulations([line.candidates[workers].given for line, workers in wanted])
        for (line, workers), outcome in zip(wanted, outcomes, strict=True):
            if not isinstance(outcome, Result):
                text = f"{outcome.failed.kind}: {outcome.failed.text}"
                refused.append(line.refused(text, 1, workers, asked=line.asked))
                continue
            scenario = line.candidates[workers].given
            row = _advised(line, scenario, best_bucket(scenario, outcome, simulations) if line.tunable else outcome)
            key = row.strategy, row.nodes
            if key not in fastest or _rate(row) > _rate(fastest[key]):
                fastest[key] = row
        simulations.finish()
    rows = tuple(fastest.values())
    if not rows:
        texts = " / ".join(dict.fromkeys(refusal.text for refusal in refused))
        raise SimulationError(f"none of the configurations could be simulated: {texts}")
    # one machine, or of what is for certain faster the best
    alone = _preferred(row for row in rows if row.nodes == 1)
    faster = [row for row in rows if row.nodes > 1 and (alone is None or _is_faster(row, alone))]
    best = _preferred(faster) if faster else alone
    assert best is not None
    places = {id(row): place for place, row in enumerate(rows)}
    one_machine = None if alone is None else places[id(alone)]
    advice = Advice(rows=rows, best=places[id(best)], one_machine=one_machine, refused=tuple(refused_once(refused)))
    return advice.replaced({"sentences": answer_of_advice(advice).sentences})


def _promising(lines: Sequence[Line]) -> list[tuple[Line, int]]:
    """Return lines with numbers of workers; of all ways to cut a model on the same devices only the best by closed forms."""
    alike: dict[tuple[str, str, int], list[tuple[float, str, Line]]] = {}
    for line in lines:
        for workers, asked in line.candidates.items() if line.cut else ():
            line.ceilings.of(asked)
            alike.setdefault((line.asked, line.cluster, workers), []).append((-line.ceilings.guess(asked.resolved), line.name, line))
    best = [(line, key[2]) for key, same in alike.items() for _, _, line in sorted(same, key=itemgetter(0, 1))[:_MOST_OF_A_WAY]]
    return [*((line, workers) for line in lines if not line.cut for workers in line.candidates), *best]


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


def _usd_of_tokens(row: Advised) -> float | None:
    cost = usd_per_billion_tokens(row.result)
    return None if cost is None else cost.mean


def _rate(row: Advised) -> float:
    return row.result.throughput_samples_per_s.mean


def _preferred(rows: Iterable[Advised]) -> Advised | None:
    """Return the fastest row; one whose kind was never validated only if it is certainly faster."""
    by_rate = sorted(rows, key=lambda row: -_rate(row))
    best = next((row for row in by_rate if not _unproven(row.result)), None)
    return next((row for row in by_rate if _unproven(row.result) and (best is None or _is_faster(row, best))), best)


def _unproven(result: Result) -> bool:
    """Return whether its kind was never validated, or its times were measured under a backend that does not run it."""
    able = result.scenario.strategy.software
    return never_validated(result) or (bool(able) and not {"keras", *TRAINS[result.scenario.workload.backend]} & {*able})


def _is_faster(ours: Advised, theirs: Advised) -> bool:
    """Return whether one is certainly faster than another.

    Equal model error of validated kinds cancels. The error of a kind that was never validated is unknown, so its worst case must beat
    the other's best case.
    """
    if _unproven(ours.result):
        return ours.result.throughput_samples_per_s.low > theirs.result.throughput_samples_per_s.high
    comparison = compare(ours.result, theirs.result)
    return comparison.clear and comparison.ratio.mean > 1.0


def _ratio(ours: Advised, theirs: Advised) -> Estimate:
    """Return the ratio of two throughputs, limited by the number of devices."""
    ratio = compare(ours.result, theirs.result).ratio
    if not ours.result.scenario.cluster.even:
        return ratio
    # under the same strategy none does more than one did; under another no more than one that has nothing to wait for
    before = theirs.result.ranks if ours.strategy == theirs.strategy else theirs.result.speedup.mean
    return of_more_devices(ratio, ours.result.ranks / before)


def _on_machines(row: Advised) -> str:
    on, cluster = f" on {counted(row.nodes, 'machine')}", row.result.scenario.cluster.name
    return row.name.replace(f" on {cluster}", f"{on} of {cluster}", 1) if f" on {cluster}" in row.name else f"{row.name}{on}"


def answer_of_advice(advice: Advice) -> Answer:
    """Return the advice: what to use, and how much faster than one machine it is."""
    best = advice.rows[advice.best]
    alone = None if advice.one_machine is None else advice.rows[advice.one_machine]
    rate = outcome_in_words(best.result)
    if best is alone:
        headline = f"Use one machine: {best.name}, {rate}; several are not certainly faster."
    elif alone is None:
        headline = f"Use {_on_machines(best)}: {rate}."
    else:
        headline = f"Use {_on_machines(best)}: {rate}, {format_number(_ratio(best, alone).mean, 2)} times one machine."
    more_samples = f"{differs}, so it may need more samples" if (differs := _differs(best)) else ""
    figures, pays = figures_of(best.result), ""
    if alone is not None:
        figures = tuple(replace(shown, note="") if shown.what == "efficiency" else shown for shown in figures)
    if alone is not None and best is not alone:
        figures = (figure("speedup", _ratio(best, alone), "number", "times one machine"), *figures)[:MOST_FIGURES]
        last = _last_that_pays(advice.rows, best, alone)
        pays = f"; adding machines pays up to {last.nodes:,}" if last.nodes > 1 else "; adding machines does not pay"
    return Answer(
        headline=headline,
        figures=figures,
        limit=f"{limit_of(best.result)}{pays}",
        confidence=confidence_of(best.result),
        watch_out="; ".join(filter(None, [more_samples, _doubtful(advice.rows, best, alone), watch_out(best.result)])),
        next=next_of(best.result),
    )


def _doubtful(rows: Sequence[Advised], best: Advised, alone: Advised | None) -> str:
    """Name a configuration with a higher mean that is not advised, with the reason; empty where there is none."""
    top = max(rows, key=_rate)
    if _rate(top) <= _rate(best):
        return ""
    makes = f"{_on_machines(top)} may reach {outcome_in_words(top.result)}"
    if alone is not None and not _is_faster(top, alone):
        return f"{makes}, but is not certainly faster than one machine"
    return f"{makes}, but was {'never validated' if never_validated(top.result) else 'measured under another backend'}"


def _software(row: Advised) -> str | None:
    """Return the software that runs it."""
    return ", ".join(SOFTWARE[name] for name in row.result.scenario.strategy.software) or None


def _differs(row: Advised) -> str:
    """Return how its updates differ from those of one device with the global batch; empty if they do not."""
    strategy = row.result.scenario.strategy
    if stale := staleness_in_words(row.result):
        return f"it has {stale}"
    if dropped := strategy.pace.backups:
        return f"each step leaves out the gradients of the {f'{dropped:,} slowest workers' if dropped > 1 else 'slowest worker'}"
    return strategy.inexact if row.result.ranks > 1 else ""


def _last_that_pays(rows: Sequence[Advised], best: Advised, alone: Advised | None) -> Advised:
    """Return the last row of the best strategy up to which adding machines pays."""
    own = sorted((row for row in rows if row.strategy == best.strategy), key=lambda row: row.nodes)
    if alone is not None and own[0].nodes > 1:
        own.insert(0, alone)
    return own[pays_until([(row.nodes, _rate(row)) for row in own])]
