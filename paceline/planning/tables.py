"""The tables of a plan, for a page, a terminal and CSV files alike: each shows the columns that it has room for.

``paceline.reporting`` and ``paceline.cli.showing_plan`` choose tables and columns by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from paceline.planning.answer import Candidate, Payment, Plan, refused_once
from paceline.sentences import chance_in_words, nodes_beyond, regret_in_words
from simulator.base.table import Column, Row, Table
from simulator.base.text import format_hourly, written
from simulator.results.rows import COLUMNS
from simulator.spec.figures import Estimate

_HOUR_S = 3600.0
_NAME = Column("name", "text", "Configuration")
_SCALING, _NODES, _PRICE = COLUMNS["scaling"], COLUMNS["nodes"], COLUMNS["usd_per_hour"]
WORKERS = Column("workers", "count", "Workers")
RATE = (
    Column("samples_per_s", "throughput", "Throughput (samples/s)"),
    Column("samples_per_s_low", "throughput", "Low"),
    Column("samples_per_s_high", "throughput", "High"),
)
"""Throughput and the ends of its interval."""
_TRAINING = (Column("hours", "number", "Hours of training"), _PRICE, Column("cost_usd", "usd", "Cost of the training"))
_CONFIDENCE = Column("confidence", "share", "Confidence")
_LIMIT = Column("bottleneck", "text", "Limited by")
_MONTHS = (
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
    of_job = (
        Column("job_hours", "number", "Hours of the job"),
        Column("job_cost_usd", "usd", "Cost of the job"),
        Column("goodput", "share", "Goodput"),
    )
    of_upgrades = (Column("usd", "usd", "Costs once"), *_MONTHS)
    jobs, upgrades = any(count.job is not None for count in plan.workers), any(change.usd is not None for change in plan.improvements)
    changed = (*RATE, *(of_job if jobs else ()), _PRICE, _WHERE)

    def of_changed(item: Any) -> Row:
        """The answer with something else in it, and which machines it needs besides those of the cluster."""
        beyond = nodes_beyond(item.nodes, plan.chosen.result.scenario)
        where = ", ".join(filter(None, (item.placement, beyond))) or None
        row: Row = {"scaling": plan.chosen.scaling, **_ends(RATE, item.throughput_samples_per_s), "placement": where}
        if (job := getattr(item, "job", None)) is not None:
            cost = job.cost_usd.mean if job.cost_usd is not None else None
            row |= {"job_hours": job.time_s.mean / _HOUR_S, "job_cost_usd": cost, "goodput": job.goodput}
        return row

    tables = (
        _table(
            "plan-clusters",
            "Each cluster",
            (
                *(COLUMNS["cluster"], _SCALING, WORKERS, _NODES, Column("devices_per_node", "count", "Devices of each")),
                *(Column("samples_per_s", "throughput", "Samples/s"), Column("hours", "number", "Hours"), _PRICE),
                *(Column("cost_usd", "usd", "Cost in all"), *_compared("How it compares, or why not")),
            ),
            plan.clusters if len(plan.clusters) > 1 else (),
            _of_best,
        ),
        _table(
            "plan-strategies",
            "Each strategy",
            (COLUMNS["strategy"], _SCALING, WORKERS, _NODES, *RATE, *_TRAINING, *_compared("How it compares, or why not")),
            plan.strategies,
            _of_best,
        ),
        _table(
            "plan-ways",
            "The best of each way of training",
            (
                *(Column("way", "text", "Way of training"), _SCALING, WORKERS, _NODES, *RATE, *_TRAINING),
                *(Column("memory_bytes", "bytes", "Memory of a device"), Column("waiting", "share", "Waiting (bubbles)")),
                *_compared("How it compares, and what limits it"),
            ),
            plan.ways,
            _of_best,
        ),
        _candidates("plan-candidates", "The answer and its runners-up", (plan.chosen, *plan.runners_up), plan),
        _candidates("plan-pareto", "No other is both cheaper and faster", plan.pareto, plan),
        _table(
            "plan-servers",
            "The same with other numbers of servers",
            (COLUMNS["servers"], _SCALING, *RATE, _PRICE, _WHERE),
            plan.servers,
            of_changed,
        ),
        _table(
            "plan-workers",
            "The same with other numbers of workers",
            (WORKERS, COLUMNS["replicas"], _SCALING, *changed),
            plan.workers,
            of_changed,
        ),
        _table(
            "plan-payments",
            "The answer in each way to pay",
            (
                Column("payment", "text", "Way to pay"),
                *_TRAINING,
                Column("cost_low_usd", "usd", "Low cost"),
                Column("cost_high_usd", "usd", "High cost"),
                Column("capital_usd", "usd", "In advance"),
                Column("running_usd_per_hour", "hourly", "Running, per hour in use"),
                _CONFIDENCE,
                _LIMIT,
                Column("text", "text", "How it compares, or why not"),
                Column("price", "text", "Price of a node, and where it is from"),
            ),
            plan.payments,
            _of_payment,
        ),
        _table(
            "plan-break-even",
            "When paying in advance pays",
            (
                Column("own", "text", "In advance"),
                Column("rented", "text", "Against"),
                *_MONTHS,
                Column("lasts_months", "number", "Lasts (months)"),
                Column("capital_usd", "usd", "Paid in advance"),
                Column("own_usd_per_month", "usd", "Then a month"),
                Column("rented_usd_per_month", "usd", "Rented, a month"),
                Column("share_in_use", "share", "Hours in use"),
                Column("pays_above", "share", "Pays above"),
                Column("text", "text", "In words"),
            ),
            plan.break_even,
            lambda pair: {"own_usd_per_month": pair.own_usd_per_month.mean, "rented_usd_per_month": pair.rented_usd_per_month.mean},
        ),
        _table(
            "plan-improvements",
            "What one improvement would buy",
            (
                Column("improvement", "text", "Improvement"),
                _SCALING,
                Column("gain", "change", "Throughput gained"),
                Column("gain_low", "change", "Least gained"),
                Column("gain_high", "change", "Most gained"),
                *RATE,
                _PRICE,
                *(of_upgrades if upgrades else ()),
                _WHERE,
                _LIMIT,
                Column("text", "text", "What it is"),
            ),
            plan.improvements,
            lambda change: {"improvement": change.name, **of_changed(change)},
        ),
        _table(
            "plan-refused",
            "What cannot be",
            (Column("name", "text", "Configurations"), Column("configurations", "count", "How many"), Column("text", "text", "Why")),
            refused_once(plan.refused),
        ),
        _candidates("plan-all", "Every configuration simulated", plan.candidates, plan),
    )
    return tuple(table for table in tables if table.rows)


def candidates_table(plan: Plan) -> Table:
    """Every configuration that was simulated, the answer first, with its rank and all columns of its result."""
    rows = plan.rows()
    known = {**COLUMNS, "pareto": Column("pareto", "text")}
    columns = (Column("rank", "count"), *(known.get(name, Column(name)) for name in rows[0] if name != "standing"))
    cells = tuple((rank if standing else None, *row) for rank, (standing, *row) in enumerate((row.values() for row in rows), 1))
    return Table("Candidates", columns, cells, "plan")


def candidates_in_rows(plan: Plan, candidates: Sequence[Candidate]) -> Table:
    """Some configurations, one per row, their names without the number of workers, and without what all of the plan share."""
    every = (plan.chosen, *plan.candidates)
    scalings = {candidate.scaling for candidate in every}
    clusters = {candidate.result.scenario.cluster.name for candidate in every}
    names = [candidate.named(workers=False, scaling=len(scalings) > 1, cluster=len(clusters) > 1) for candidate in candidates]
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


def _table(name: str, title: str, columns: tuple[Column, ...], items: Iterable[Any], values: Callable[[Any], Row] = lambda _: {}) -> Table:
    """A row for each item: what ``values`` gives of it by the names of columns, else the item's attribute of that name, else nothing."""
    rows = [(item, values(item)) for item in items]
    cells = (tuple(row[key] if key in row else getattr(item, key, None) for key in (each.name for each in columns)) for item, row in rows)
    return Table(title, columns, tuple(cells), name)


def _compared(heading: str) -> tuple[Column, ...]:
    """How the best of something compares, and which that is."""
    return _CONFIDENCE, Column("text", "text", heading), Column("best", "text", "Best configuration")


def _of_best(answer: Any) -> Row:
    """The figures of the best configuration of a cluster, a strategy or a way of training."""
    best: Candidate | None = answer.best
    return {"best": None} if best is None else {**_figures(best), "best": best.name}


def _figures(candidate: Candidate) -> Row:
    time_s, cost = candidate.time_s, candidate.cost_usd
    return {
        "scaling": candidate.scaling,
        "workers": candidate.result.scenario.workers,
        "nodes": candidate.nodes,
        "devices_per_node": candidate.devices_per_node,
        **_ends(RATE, candidate.result.throughput_samples_per_s),
        "hours": time_s.mean / _HOUR_S if time_s is not None else None,
        "usd_per_hour": candidate.usd_per_hour,
        "cost_usd": cost.mean if cost is not None else None,
        "confidence": candidate.confidence,
        "bottleneck": candidate.result.bottleneck.label,
    }


def _ends(columns: Sequence[Column], estimate: Estimate | None) -> Row:
    values = (None, None, None) if estimate is None else (estimate.mean, estimate.low, estimate.high)
    return {column.name: value for column, value in zip(columns, values, strict=True)}


def _candidates(name: str, title: str, candidates: Sequence[Candidate], plan: Plan, names: Sequence[str] = ()) -> Table:
    columns = (
        *(Column("rank", "count", "Rank"), _NAME, _SCALING, WORKERS, _NODES, *RATE, *_TRAINING, COLUMNS["usd_per_million_samples"]),
        Column("staleness", "text", "Staleness (updates)"),
        _CONFIDENCE,
        Column("meets", "text", "Meets the goal"),
        Column("answer_better_in", "text", "Answer better in (paired runs)"),
        Column("best", "text", "Best with probability"),
        Column("regret", "text", "Expected regret"),
        Column("regret_share", "share", "Of the best"),
        _LIMIT,
        _WHERE,
    )

    def values(ranked: tuple[int, Candidate]) -> Row:
        place, candidate = ranked
        paired, decision, stale = candidate.paired, candidate.decision, candidate.result.staleness
        million = candidate.usd_per_million_samples
        return {
            "rank": place + 1,
            "name": names[place] if names else candidate.name,
            **_figures(candidate),
            # the cost of the training says the same of its samples
            "usd_per_million_samples": million.mean if million is not None and candidate.cost_usd is None else None,
            "staleness": f"{written(stale.mean, 'updates')}, p95 {stale.p95:,}" if stale.max else None,
            "meets": ("yes" if candidate.meets else "no") + (" (the answer)" if candidate == plan.chosen else ""),
            "answer_better_in": f"{paired.by} in {paired.wins} of {paired.runs}" if paired is not None else None,
            "best": chance_in_words(decision.best, decision.runs) if decision is not None else None,
            "regret": regret_in_words(decision) if decision is not None else None,
            "regret_share": decision.regret_share if decision is not None else None,
            "placement": candidate.placement,
        }

    return _table(name, title, columns, enumerate(candidates), values)


def _of_payment(payment: Payment) -> Row:
    """What a training costs in one way to pay, what is paid before that, and what limits it."""
    said = {"payment": payment.name, "price": f"{format_hourly(payment.price.usd_per_node_hour)} an hour in use: {payment.price.said}"}
    if (best := payment.best) is None:
        return {**said, "capital_usd": None, "running_usd_per_hour": None}
    cost = best.cost_usd
    ends = (None, None) if cost is None else (cost.low, cost.high)
    return {**said, **_figures(best), "cost_low_usd": ends[0], "cost_high_usd": ends[1]}
