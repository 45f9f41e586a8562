"""The tables of a plan, for a page, a terminal and CSV files alike: each shows the columns that it has room for.

``paceline.reporting`` and ``paceline.cli.showing_plan`` choose tables and columns by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from paceline.planning.answer import (
    Candidate,
    ClusterAnswer,
    Improvement,
    Plan,
    ServerCount,
    StrategyAnswer,
    WayAnswer,
    WorkerCount,
    refused_once,
)
from paceline.sentences import chance_in_words, nodes_beyond, regret_in_words
from simulator.base.table import Cell, Column, Table
from simulator.base.text import format_hourly, written
from simulator.results.rows import COLUMNS
from simulator.spec.figures import Estimate

AnswerT = TypeVar("AnswerT", bound=ClusterAnswer | StrategyAnswer | WayAnswer)
_HOUR_S = 3600.0
_NAME = Column("name", "text", "Configuration")
_SCALING = COLUMNS["scaling"]
_SERVERS = COLUMNS["servers"]
_NODES = COLUMNS["nodes"]
WORKERS = Column("workers", "count", "Workers")
RATE = (
    Column("samples_per_s", "throughput", "Throughput (samples/s)"),
    Column("samples_per_s_low", "throughput", "Low"),
    Column("samples_per_s_high", "throughput", "High"),
)
"""Throughput and the ends of its interval."""
_PRICE = COLUMNS["usd_per_hour"]
_TRAINING = (Column("hours", "number", "Hours of training"), _PRICE, Column("cost_usd", "usd", "Cost of the training"))
_OF_JOB = (
    Column("job_hours", "number", "Hours of the job"),
    Column("job_cost_usd", "usd", "Cost of the job"),
    Column("goodput", "share", "Goodput"),
)
_UPGRADES = (
    Column("usd", "usd", "Costs once"),
    Column("months", "number", "Pays after (months)"),
    Column("months_low", "number", "Soonest"),
    Column("months_high", "number", "Latest"),
)
_WHERE = Column("placement", "text", "Machines")
_IN_WORDS = frozenset({"rank", "workers", "nodes"})
"""Columns that the words of a configuration and of its machines say as well."""


def plan_tables(plan: Plan) -> tuple[Table, ...]:
    """Every table that has a row, with all its columns.

    They are, by their names: ``plan-clusters`` and ``plan-strategies``, each that was asked for where there are several;
    ``plan-ways``, the best of each way of training;
    ``plan-candidates``, the answer and its runners-up; ``plan-pareto``, the front of cost and
    time; ``plan-servers``, ``plan-workers``, the answer with other numbers of them;
    ``plan-payments``, the answer in each way to pay, and ``plan-break-even``, when what is paid in advance pays;
    ``plan-improvements``; ``plan-refused``; ``plan-all``, every configuration that was simulated.
    """
    tables = (
        _clusters(plan),
        _strategies(plan),
        _ways(plan),
        _candidates("plan-candidates", "The answer and its runners-up", (plan.chosen, *plan.runners_up), plan),
        _candidates("plan-pareto", "No other is both cheaper and faster", plan.pareto, plan),
        _counts(
            "plan-servers", "The same with other numbers of servers", (_SERVERS,), [((its.servers,), its) for its in plan.servers], plan
        ),
        _counts(
            "plan-workers",
            "The same with other numbers of workers",
            (WORKERS, COLUMNS["replicas"]),
            [((its.workers, its.replicas), its) for its in plan.workers],
            plan,
            _OF_JOB if any(its.job is not None for its in plan.workers) else (),
        ),
        _payments(plan),
        _break_even(plan),
        _improvements(plan),
        Table(
            "What cannot be",
            (Column("name", "text", "Configurations"), Column("configurations", "count", "How many"), Column("text", "text", "Why")),
            tuple((each.name, each.configurations, each.text) for each in refused_once(plan.refused)),
            "plan-refused",
        ),
        _candidates("plan-all", "Every configuration simulated", plan.candidates, plan),
    )
    return tuple(table for table in tables if table.rows)


def candidates_table(plan: Plan) -> Table:
    """Every configuration that was simulated, the answer first, with its rank and all columns of its result."""
    front = {its.key for its in plan.pareto}
    ranks = {its.key: rank for rank, its in enumerate((plan.chosen, *plan.runners_up), 1)}
    candidates = {its.key: its for its in (plan.chosen, *plan.runners_up, *plan.candidates)}
    rows = Candidate.rows_of(candidates.values())
    columns = (Column("rank", "count"), Column("pareto", "text"), *(COLUMNS.get(name, Column(name)) for name in rows[0]))
    cells = tuple((ranks.get(key), key in front, *row.values()) for key, row in zip(candidates, rows, strict=True))
    return Table("Candidates", columns, cells, "plan")


def candidates_in_rows(plan: Plan, candidates: Sequence[Candidate]) -> Table:
    """Some configurations, one per row, their names without the number of workers, and without what all of the plan share."""
    held = (plan.chosen, *plan.candidates)
    scalings, clusters = {its.scaling for its in held}, {its.result.scenario.cluster.name for its in held}
    names = [its.named(workers=False, scaling=len(scalings) > 1, cluster=len(clusters) > 1) for its in candidates]
    return _candidates("plan-compared", "", candidates, plan, names)


def brief(table: Table) -> Table:
    """A table of a plan without what stands in it twice: empty columns, numbers that its words say, a scaling that all rows share.

    That scaling stands in the title.
    """
    names = [column.name for column in table.columns]
    if {_NAME.name, _WHERE.name} <= set(names):
        names = [name for name in names if name not in _IN_WORDS]
    table = table.only(*names).without_empty_columns()
    shared = {row[place] for row in table.rows for place, column in enumerate(table.columns) if column == _SCALING} - {None}
    if len(shared) != 1:
        return table
    names = [column.name for column in table.columns if column != _SCALING]
    return replace(table.only(*names), title=f"{table.title}, {shared.pop()} scaling")


def _clusters(plan: Plan) -> Table:
    """A line for each cluster that was asked for: its best configuration, and how that stands to the goal."""
    columns = (
        Column("devices_per_node", "count", "Devices of each"),
        Column("samples_per_s", "throughput", "Samples/s"),
        Column("hours", "number", "Hours"),
        _PRICE,
        Column("cost_usd", "usd", "Cost in all"),
    )
    answers = plan.clusters if len(plan.clusters) > 1 else ()
    named = "plan-clusters", "Each cluster", COLUMNS["cluster"]
    return _best_of_each(*named, columns, answers, lambda _, best: (best.devices_per_node, _rate(best)[0], *_training(best)))


def _strategies(plan: Plan) -> Table:
    """A line for each strategy that was asked for: its best configuration, and how that stands to the goal."""
    named = "plan-strategies", "Each strategy", COLUMNS["strategy"]
    return _best_of_each(*named, (*RATE, *_TRAINING), plan.strategies, lambda _, best: (*_rate(best), *_training(best)))


def _ways(plan: Plan) -> Table:
    """A line for each way of training: its best configuration, and what limits it."""
    columns = (*RATE, *_TRAINING, Column("memory_bytes", "bytes", "Memory of a device"), Column("waiting", "share", "Waiting (bubbles)"))
    named = "plan-ways", "The best of each way of training", Column("way", "text", "Way of training")
    return _best_of_each(
        *named,
        columns,
        plan.ways,
        lambda its, best: (*_rate(best), *_training(best), its.memory_bytes, its.waiting),
        "How it compares, and what limits it",
    )


def _best_of_each(
    name: str,
    title: str,
    of: Column,
    columns: Sequence[Column],
    answers: Sequence[AnswerT],
    figures: Callable[[AnswerT, Candidate], tuple[Cell, ...]],
    what: str = "How it compares, or why not",
) -> Table:
    """A line for each answer: the best configuration of what the first column names, its figures, and what is said of it."""
    every = (
        of,
        _SCALING,
        WORKERS,
        _NODES,
        *columns,
        Column("confidence", "share", "Confidence"),
        Column("text", "text", what),
        Column("best", "text", "Best configuration"),
    )
    rows: list[tuple[Cell, ...]] = []
    for its in answers:
        thing, best = getattr(its, of.name), its.best
        if best is None:
            rows.append((thing, *(None,) * (len(every) - 3), its.text, None))
        else:
            sizes = best.scaling, best.result.scenario.workers, best.nodes
            rows.append((thing, *sizes, *figures(its, best), best.confidence, its.text, best.name))
    return Table(title, every, tuple(rows), name)


def _rate(candidate: Candidate) -> tuple[Cell, Cell, Cell]:
    return _ends(candidate.result.throughput_samples_per_s)


def _candidates(name: str, title: str, candidates: Sequence[Candidate], plan: Plan, names: Sequence[str] = ()) -> Table:
    columns = (
        Column("rank", "count", "Rank"),
        _NAME,
        _SCALING,
        WORKERS,
        _NODES,
        *RATE,
        *_TRAINING,
        COLUMNS["usd_per_million_samples"],
        Column("staleness", "text", "Staleness (updates)"),
        Column("confidence", "share", "Confidence"),
        Column("meets", "text", "Meets the goal"),
        Column("answer_better_in", "text", "Answer better in (paired runs)"),
        Column("best", "text", "Best with probability"),
        Column("regret", "text", "Expected regret"),
        Column("regret_share", "share", "Of the best"),
        Column("bottleneck", "text", "Limited by"),
        _WHERE,
    )
    rows = tuple(
        (
            rank,
            named,
            each.scaling,
            each.result.scenario.workers,
            each.nodes,
            *_ends(each.result.throughput_samples_per_s),
            *_training(each),
            # the cost of the training says the same of its samples
            each.usd_per_million_samples.mean if each.usd_per_million_samples is not None and each.cost_usd is None else None,
            _staleness(each),
            each.confidence,
            ("yes" if each.meets else "no") + (" (the answer)" if each == plan.chosen else ""),
            f"{each.paired.by} in {each.paired.wins} of {each.paired.runs}" if each.paired is not None else None,
            chance_in_words(each.decision.best, each.decision.runs) if each.decision is not None else None,
            regret_in_words(each.decision) if each.decision is not None else None,
            each.decision.regret_share if each.decision is not None else None,
            each.result.bottleneck.label,
            each.placement,
        )
        for rank, (named, each) in enumerate(zip(names or [its.name for its in candidates], candidates, strict=True), 1)
    )
    return Table(title, columns, rows, name)


def _counts(
    name: str,
    title: str,
    counted: tuple[Column, ...],
    rows: Iterable[tuple[tuple[int, ...], ServerCount | WorkerCount]],
    plan: Plan,
    of_job: tuple[Column, ...] = (),
) -> Table:
    """The chosen configuration with other numbers of something; where its whole job is predicted, with ``of_job``."""
    cells = tuple(
        (
            *numbers,
            plan.chosen.scaling,
            *_ends(its.throughput_samples_per_s),
            *(_job(its) if of_job else ()),
            its.usd_per_hour,
            _where(its, plan),
        )
        for numbers, its in rows
    )
    return Table(title, (*counted, _SCALING, *RATE, *of_job, _PRICE, _WHERE), cells, name)


def _job(its: ServerCount | WorkerCount) -> tuple[Cell, Cell, Cell]:
    """Hours, cost and goodput of the whole job."""
    job = its.job if isinstance(its, WorkerCount) else None
    if job is None:
        return None, None, None
    return job.time_s.mean / _HOUR_S, job.cost_usd.mean if job.cost_usd is not None else None, job.goodput


def _payments(plan: Plan) -> Table:
    """A line for each way to pay for the answer: what a training costs, what is paid before that, and what limits it."""
    columns = (
        Column("payment", "text", "Way to pay"),
        Column("hours", "number", "Hours of training"),
        _PRICE,
        Column("cost_usd", "usd", "Cost of the training"),
        Column("cost_low_usd", "usd", "Low cost"),
        Column("cost_high_usd", "usd", "High cost"),
        Column("capital_usd", "usd", "In advance"),
        Column("running_usd_per_hour", "hourly", "Running, per hour in use"),
        Column("confidence", "share", "Confidence"),
        Column("bottleneck", "text", "Limited by"),
        Column("text", "text", "How it compares, or why not"),
        Column("price", "text", "Price of a node, and where it is from"),
    )
    rows: list[tuple[Cell, ...]] = []
    for its in plan.payments:
        said = f"{format_hourly(its.price.usd_per_node_hour)} an hour in use: {its.price.said}"
        if (best := its.best) is None:
            rows.append((its.name, *(None,) * (len(columns) - 3), its.text, said))
            continue
        hours, hourly, _ = _training(best)
        figures = hours, hourly, *_ends(best.cost_usd), its.capital_usd, its.running_usd_per_hour
        rows.append((its.name, *figures, best.confidence, best.result.bottleneck.label, its.text, said))
    return Table("The answer in each way to pay", columns, tuple(rows), "plan-payments")


def _break_even(plan: Plan) -> Table:
    """A line for each way to pay in advance beside each by the hour."""
    columns = (
        Column("own", "text", "In advance"),
        Column("rented", "text", "Against"),
        Column("months", "number", "Pays after (months)"),
        Column("months_low", "number", "Soonest"),
        Column("months_high", "number", "Latest"),
        Column("lasts_months", "number", "Lasts (months)"),
        Column("capital_usd", "usd", "Paid in advance"),
        Column("own_usd_per_month", "usd", "Then a month"),
        Column("rented_usd_per_month", "usd", "Rented, a month"),
        Column("share_in_use", "share", "Hours in use"),
        Column("pays_above", "share", "Pays above"),
        Column("text", "text", "In words"),
    )
    rows = tuple(
        (
            *(its.own, its.rented, its.months, its.months_low, its.months_high, its.lasts_months, its.capital_usd),
            *(its.own_usd_per_month.mean, its.rented_usd_per_month.mean, its.share_in_use, its.pays_above, its.text),
        )
        for its in plan.break_even
    )
    return Table("When paying in advance pays", columns, rows, "plan-break-even")


def _improvements(plan: Plan) -> Table:
    priced = any(each.usd is not None for each in plan.improvements)
    columns = (
        Column("improvement", "text", "Improvement"),
        _SCALING,
        Column("gain", "change", "Throughput gained"),
        Column("gain_low", "change", "Least gained"),
        Column("gain_high", "change", "Most gained"),
        *RATE,
        _PRICE,
        *(_UPGRADES if priced else ()),
        _WHERE,
        Column("bottleneck", "text", "Limited by"),
        Column("text", "text", "What it is"),
    )
    rows = tuple(
        (
            each.name,
            plan.chosen.scaling,
            each.gain,
            each.gain_low,
            each.gain_high,
            *_ends(each.throughput_samples_per_s),
            each.usd_per_hour,
            *((each.usd, each.months, each.months_low, each.months_high) if priced else ()),
            _where(each, plan),
            each.bottleneck,
            each.text,
        )
        for each in plan.improvements
    )
    return Table("What one improvement would buy", columns, rows, "plan-improvements")


def _where(its: Improvement | ServerCount | WorkerCount, plan: Plan) -> str | None:
    """Its machines, and which of them it needs besides those of the cluster."""
    return ", ".join(filter(None, (its.placement, nodes_beyond(its.nodes, plan.chosen.result.scenario)))) or None


def _ends(estimate: Estimate | None) -> tuple[Cell, Cell, Cell]:
    return (None, None, None) if estimate is None else (estimate.mean, estimate.low, estimate.high)


def _training(candidate: Candidate) -> tuple[Cell, Cell, Cell]:
    """Hours of the training, price of an hour, and what both make together."""
    time_s, cost = candidate.time_s, candidate.cost_usd
    hours = time_s.mean / _HOUR_S if time_s is not None else None
    return hours, candidate.usd_per_hour, cost.mean if cost is not None else None


def _staleness(candidate: Candidate) -> str | None:
    """Mean and 95th percentile; nothing where no gradient is stale."""
    stale = candidate.result.staleness
    return f"{written(stale.mean, 'updates')}, p95 {stale.p95:,}" if stale.max else None
