"""Tables of a plan, shared by pages, the terminal and CSV files, which choose the columns that fit.

A table consists of columns, each with a heading and the value it reads from a candidate, an answer, a count or an improvement.
``paceline.reporting`` and ``paceline.cli.showing_plan`` choose tables and columns by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from paceline.comparing import NOTHING
from paceline.planning.answer import (
    Candidate,
    ClusterAnswer,
    Payment,
    Plan,
    ServerCount,
    StrategyAnswer,
    WayAnswer,
    WorkerCount,
    refused_once,
)
from paceline.sentences import chance_in_words, nodes_beyond, regret_in_words
from simulator.base.table import Column, Table
from simulator.base.text import format_hourly, format_number, format_share, written
from simulator.results.rows import COLUMNS
from simulator.spec.figures import Estimate, Unit

Columns = tuple[Column, ...]
_HOUR_S = 3600.0
_NAME = Column("name", "text", "Configuration", short="configuration")
_SCALING, _NODES, _PRICE, _SERVERS, _REPLICAS = (
    replace(COLUMNS[name], of="") for name in ("scaling", "nodes", "usd_per_hour", "servers", "replicas")
)
WORKERS = Column("workers", "count", "Workers", short="workers")
_CONFIDENCE = Column("confidence", "share", "Confidence", short="conf.")
_LIMIT = Column("bottleneck", "text", "Limited by", short="limit")
_WHERE = Column("placement", "text", "Machines")
_IN_WORDS = frozenset({"rank", "workers", "nodes"})
"""Columns that repeat the words of a configuration and its machines."""


def rate(unit: Unit, of: str = "throughput_samples_per_s") -> Columns:
    """Return columns for throughput in a unit and the ends of its interval, read from an estimate in samples/s."""

    def end(name: str, part: str, heading: str, short: str) -> Column:
        read = Column(name, of=f"{of}.{part}")

        def by(item: Any) -> float | None:
            value = read.read(item)
            return value * unit.per_sample if isinstance(value, (int, float)) else None

        return Column(name, "throughput", heading, by=by, short=short)

    name = f"{unit.name}_per_s"
    return (
        end(name, "mean", f"Throughput ({unit.per_s})", unit.per_s),
        end(f"{name}_low", "low", "Low", "low"),
        end(f"{name}_high", "high", "High", "high"),
    )


def _mean(estimate: Estimate | None) -> float | None:
    return estimate.mean if estimate is not None else None


def _hours(time_s: Estimate | None) -> float | None:
    return time_s.mean / _HOUR_S if time_s is not None else None


_TRAINING = (
    Column("hours", "hours", "Time of training", by=lambda each: _hours(each.time_s), short="time"),
    _PRICE,
    Column("cost_usd", "usd", "Cost of the training", of="cost_usd.mean", short="cost"),
)
"""Columns of a candidate: hours, price of an hour, and their product."""
_SIZES = (_SCALING, replace(WORKERS, of="result.scenario.workers"), _NODES)
_OF_JOB = (
    Column("job_hours", "hours", "Time of the job", by=lambda count: count.job and _hours(count.job.time_s)),
    Column("job_cost_usd", "usd", "Cost of the job", of="job.cost_usd.mean"),
    Column("goodput", "share", "Goodput", of="job.goodput"),
)
_UPGRADES = (
    Column("usd", "usd", "Costs once"),
    Column("months", "number", "Pays after (months)"),
    Column("months_low", "number", "Soonest"),
    Column("months_high", "number", "Latest"),
)
_REFUSED = (Column("name", "text", "Configurations"), Column("configurations", "count", "How many"), Column("text", "text", "Why"))
_BREAK_EVEN = (
    Column("own", "text", "In advance"),
    Column("rented", "text", "Against"),
    *_UPGRADES[1:],
    Column("lasts_months", "number", "Lasts (months)"),
    Column("capital_usd", "usd", "Paid in advance"),
    Column("own_usd_per_month", "usd", "Then a month", of="own_usd_per_month.mean"),
    Column("rented_usd_per_month", "usd", "Rented, a month", of="rented_usd_per_month.mean"),
    Column("share_in_use", "share", "Hours in use"),
    Column("pays_above", "share", "Pays above"),
    Column("text", "text", "In words"),
)


def _of(part: str, columns: Iterable[Column]) -> Columns:
    """Return the same columns, read from a part of an item; empty without that part."""

    def of_part(column: Column) -> Column:
        if (read := column.by) is None:
            return replace(column, of=f"{part}.{column.of or column.name}")
        return replace(column, by=lambda item: None if getattr(item, part) is None else read(getattr(item, part)))

    return tuple(map(of_part, columns))


def _rate_of(plan: Plan) -> Columns:
    """Return the columns of a candidate's throughput, and its MFU where samples are sequences."""
    return *rate(plan.unit, "result.throughput_samples_per_s"), replace(COLUMNS["mfu"], of="result.tokens.mfu.mean")


def _in_cluster(plan: Plan) -> Columns:
    columns = (
        Column("devices_per_node", "count", "Devices of each"),
        replace(_rate_of(plan)[0], heading=plan.unit.per_s.capitalize()),
        *(replace(column, heading=heading) for column, heading in zip(_TRAINING, ("Time", _PRICE.heading, "Total cost"), strict=True)),
    )
    return _of("best", columns)


_WAY = Column("way", "text", "Way of training", short="way of training")
_OF_WAY = (
    Column("memory_bytes", "bytes", "Memory of a device", short="memory"),
    Column("waiting", "share", "Waiting (bubbles)", short="waiting"),
)
_LIMITS = "Comparison and limit"


def plan_tables(plan: Plan) -> tuple[Table, ...]:
    """Return every table that has rows, with all its columns.

    Their names: ``plan-clusters`` and ``plan-strategies``, if several were requested; ``plan-ways``, the best of each way of training;
    ``plan-candidates``, the answer and its runners-up; ``plan-pareto``, the front of cost and time; ``plan-servers`` and
    ``plan-workers``, the answer with other numbers of them; ``plan-payments``, the answer with each way to pay; ``plan-break-even``, when
    advance payment pays off; ``plan-improvements``; ``plan-refused``; ``plan-all``, every simulated configuration.
    """
    clusters = plan.clusters if len(plan.clusters) > 1 else ()
    training, of_job = _of("best", (*_rate_of(plan), *_TRAINING)), _OF_JOB if any(count.job is not None for count in plan.workers) else ()
    tables = (
        _best_of_each("plan-clusters", "Each cluster", COLUMNS["cluster"], _in_cluster(plan), clusters),
        _best_of_each("plan-strategies", "Each strategy", COLUMNS["strategy"], training, plan.strategies),
        _best_of_each("plan-ways", "The best of each way of training", _WAY, (*training, *_OF_WAY), plan.ways, _LIMITS),
        _candidates("plan-candidates", "The answer and its runners-up", (plan.chosen, *plan.runners_up), plan),
        _candidates("plan-pareto", "Pareto front of cost and time", plan.pareto, plan),
        _counts("plan-servers", "Other numbers of servers", (_SERVERS,), plan.servers, plan),
        _counts("plan-workers", "Other numbers of workers", (WORKERS, _REPLICAS), plan.workers, plan, of_job),
        Table.reading("Ways to pay", _PAYMENTS, plan.payments, "plan-payments"),
        Table.reading("When advance payment pays off", _BREAK_EVEN, plan.break_even, "plan-break-even"),
        _improvements(plan),
        Table.reading("Impossible configurations", _REFUSED, refused_once(plan.refused), "plan-refused"),
        _candidates("plan-all", "Every configuration simulated", plan.candidates, plan),
    )
    return tuple(table for table in tables if table.rows)


_CHANCES = (
    Column("best", "text", "Best with probability", by=lambda decision: chance_in_words(decision.best, decision.runs)),
    Column("regret", "text", "Expected regret", by=regret_in_words),
    Column("regret_share", "share", "Share of the best"),
)


def candidates_table(plan: Plan) -> Table:
    """Return the table of every simulated configuration, the answer first, with ranks and all columns of results."""
    rows = plan.rows()
    names = [name for name in rows[0] if name != "standing"]
    columns = (Column("rank", "count"), Column("pareto", "text"), *(COLUMNS.get(name, Column(name)) for name in names[1:]))
    cells = tuple((rank if row["standing"] else None, *(row[name] for name in names)) for rank, row in enumerate(rows, 1))
    if (pair := plan.decisive) is not None:
        columns = (*columns, Column("pays_above", "share"))
        cells = tuple((*row, pair.pays_above) for row in cells)
    return Table("Candidates", columns, cells, "plan")


def candidates_in_rows(plan: Plan, candidates: Sequence[Candidate]) -> Table:
    """Return a row for each configuration, with names reduced to what differs, and without the number of workers."""
    every = (plan.chosen, *plan.candidates)
    scalings, clusters = {each.scaling for each in every}, {each.result.scenario.cluster.name for each in every}
    names = [each.named(workers=False, scaling=len(scalings) > 1, cluster=len(clusters) > 1) for each in candidates]
    return _candidates("plan-compared", "", candidates, plan, names)


MOST_ALTERNATIVES = 5


def alternatives_of(plan: Plan) -> list[Candidate]:
    """The best on each cluster, by each strategy, of each way of training and to pay, the runners-up, and fewer and more workers."""
    every: tuple[ClusterAnswer | StrategyAnswer | WayAnswer | Payment, ...] = (*plan.clusters, *plan.strategies, *plan.ways, *plan.payments)
    best = (answer.best for answer in every)
    others = (candidate for candidate in (*plan.runners_up, *best, plan.fewest, plan.most) if candidate is not None)
    return list({candidate.key: candidate for candidate in others if candidate.key != plan.chosen.key}.values())


def alternatives_table(plan: Plan) -> Table:
    """The answer and some alternatives in six columns."""
    shown = [plan.chosen, *alternatives_of(plan)[:MOST_ALTERNATIVES]]
    table = candidates_in_rows(plan, shown).without_empty_columns()
    names = [column.name for column in table.columns]
    time = ["hours" if "hours" in names else f"{plan.unit.name}_per_s", "cost_usd" if "cost_usd" in names else "usd_per_hour"]
    table = table.only(*(name for name in (_NAME.name, WORKERS.name, *time, _CONFIDENCE.name) if name in names))
    headings = {"hours": "Time", "cost_usd": "Cost", "usd_per_hour": "Cost per hour", _CONFIDENCE.name: "Probability"}
    columns = (*(replace(column, heading=headings.get(column.name, column.heading)) for column in table.columns), _COMPARED)
    rows = tuple((*row, compared_in_words(each, plan.chosen)) for row, each in zip(table.rows, shown, strict=True))
    return Table("Alternatives", columns, rows, "plan-alternatives")


_COMPARED = Column("compared", "text", "Compared with the answer")


def compared_in_words(candidate: Candidate, answer: Candidate) -> str:
    """How a candidate compares with the answer, in at most eight words: ``0.7% dearer, 26% slower``."""
    if candidate.key == answer.key:
        return "the answer"
    cost, time_s = candidate.cost_usd, candidate.time_s
    misses = "misses the goal" if answer.meets and not candidate.meets else ""
    if cost is not None and answer.cost_usd is not None:
        dearer = _apart(cost.mean, answer.cost_usd.mean, "dearer", "cheaper")
    else:
        dearer = _apart(candidate.usd_per_hour or 0.0, answer.usd_per_hour or 0.0, "dearer", "cheaper")
    if time_s is not None and answer.time_s is not None:
        slower = _apart(time_s.mean, answer.time_s.mean, "slower", "faster")
    else:
        ours, theirs = (each.result.throughput_samples_per_s.mean for each in (candidate, answer))
        slower = _apart(theirs, ours, "slower", "faster")
    return ", ".join([text for text in (misses, dearer, slower) if text][:2]) or "the same"


def _apart(ours: float, theirs: float, more: str, less: str) -> str:
    """``26% slower``, ``2.9 times dearer``; empty where there is nothing to compare, or no difference to see."""
    if not ours or not theirs or abs(ours / theirs - 1) < NOTHING:
        return ""
    larger, word = (ours / theirs, more) if ours > theirs else (theirs / ours, less)
    return f"{format_number(larger, 2)} times {word}" if larger >= _AS_TIMES else f"{format_share(abs(ours / theirs - 1))} {word}"


_AS_TIMES = 2.0


def brief(table: Table) -> Table:
    """Return a table of a plan without empty or redundant columns; a scaling that all rows share moves to the title."""
    names = [column.name for column in table.columns]
    if {_NAME.name, _WHERE.name} <= set(names):
        names = [name for name in names if name not in _IN_WORDS]
    table = table.only(*names).without_empty_columns()
    shared = {row[place] for row in table.rows for place, column in enumerate(table.columns) if column.name == _SCALING.name} - {None}
    if len(shared) != 1:
        return table
    names = [column.name for column in table.columns if column.name != _SCALING.name]
    return replace(table.only(*names), title=f"{table.title}, {shared.pop()} scaling")


def _best_of_each(
    name: str, title: str, of: Column, columns: Columns, answers: Iterable[object], how: str = "Comparison, or why not"
) -> Table:
    """Return a row for each answer: the best configuration of its group, its figures, and a comparison."""
    said = Column("best", "text", "Best configuration", of="best.name"), replace(_WHERE, name="best_placement", of="best.placement")
    every = (replace(of, of=""), *_of("best", _SIZES), *columns, *_of("best", (_CONFIDENCE,)), *said, Column("text", "text", how))
    return Table.reading(title, every, answers, name)


def _candidates(name: str, title: str, candidates: Sequence[Candidate], plan: Plan, names: Sequence[str] = ()) -> Table:
    ranks = {candidate.key: rank for rank, candidate in enumerate(candidates)}
    columns = (
        Column("rank", "count", "Rank", by=lambda each: ranks[each.key] + 1, short="#"),
        replace(_NAME, by=lambda each: names[ranks[each.key]]) if names else _NAME,
        *_SIZES,
        *_rate_of(plan),
        *_TRAINING,
        # the cost of the training says the same of its samples
        replace(COLUMNS["usd_per_million_samples"], by=lambda each: None if each.cost_usd else _mean(each.usd_per_million_samples)),
        Column("staleness", "text", "Staleness (updates)", by=_staleness),
        replace(_CONFIDENCE, kind="text", left=False, by=lambda each: _confidence(each, plan)) if names else _CONFIDENCE,
        Column("meets", "text", "Meets the goal", by=lambda each: _meets(each, plan)),
        Column("answer_better_in", "text", "Answer better in (paired runs)", by=_better_in),
        *_of("decision", _CHANCES),
        replace(_LIMIT, of="result.bottleneck.label"),
        _WHERE,
    )
    return Table.reading(title, columns, candidates, name)


def _counts(name: str, title: str, counted: Columns, rows: Iterable[ServerCount | WorkerCount], plan: Plan, of_job: Columns = ()) -> Table:
    """Return the chosen configuration with other numbers of workers or servers; for a whole job with the columns ``of_job``."""
    return Table.reading(title, (*counted, _scaling_of(plan), *rate(plan.unit), *of_job, _PRICE, _machines(plan)), rows, name)


def _scaling_of(plan: Plan) -> Column:
    return replace(_SCALING, by=lambda _: plan.chosen.scaling)


def _machines(plan: Plan) -> Column:
    """Return the machines of an item, and how many the cluster lacks."""

    def where(item: Any) -> str | None:
        return ", ".join(filter(None, (item.placement, nodes_beyond(item.nodes, plan.chosen.result.scenario)))) or None

    return replace(_WHERE, by=where)


def _price_in_words(payment: Payment) -> str:
    return f"{format_hourly(payment.price.usd_per_node_hour)} an hour in use: {payment.price.said}"


def _running(payment: Payment) -> float | None:
    return payment.running_usd_per_hour if payment.best is not None else None


_PAYMENTS = (
    Column("payment", "text", "Way to pay", of="name", short="way to pay"),
    *_of("best", _TRAINING),
    Column("cost_low_usd", "usd", "Low cost", of="best.cost_usd.low", short="low"),
    Column("cost_high_usd", "usd", "High cost", of="best.cost_usd.high", short="high"),
    Column("capital_usd", "usd", "In advance", by=lambda payment: payment.best and payment.capital_usd, short="in advance"),
    Column("running_usd_per_hour", "hourly", "Running, per hour in use", by=_running, short="running"),
    *_of("best", (_CONFIDENCE, replace(_LIMIT, of="result.bottleneck.label"))),
    Column("text", "text", "Comparison, or why not"),
    Column("price", "text", "Price of a node, and its source", by=lambda payment: _price_in_words(payment)),
)


def _improvements(plan: Plan) -> Table:
    columns = (
        Column("improvement", "text", "Improvement", of="name", short=" "),
        _scaling_of(plan),
        Column("gain", "change", "Throughput gained", short="gain"),
        Column("gain_low", "change", "Least gained", short="low"),
        Column("gain_high", "change", "Most gained", short="high"),
        *rate(plan.unit),
        _PRICE,
        *(_UPGRADES if any(improvement.usd is not None for improvement in plan.improvements) else ()),
        _machines(plan),
        replace(_LIMIT, short="limit then"),
        Column("text", "text", "What it is"),
    )
    return Table.reading("Gain of one improvement", columns, plan.improvements, "plan-improvements")


def _confidence(candidate: Candidate, plan: Plan) -> str:
    """``94.8% *`` for one that misses the goal that others reach."""
    misses = plan.feasible and not candidate.meets
    return f"{written(candidate.confidence, 'limit_share')} *" if misses else format_share(candidate.confidence)


def _meets(candidate: Candidate, plan: Plan) -> str:
    return ("yes" if candidate.meets else "no") + (" (the answer)" if candidate == plan.chosen else "")


def _better_in(candidate: Candidate) -> str | None:
    paired = candidate.paired
    return f"{paired.by} in {paired.wins} of {paired.runs}" if paired is not None else None


def _staleness(candidate: Candidate) -> str | None:
    """Return mean and 95th percentile of staleness; empty if no gradient is stale."""
    stale = candidate.result.staleness
    return f"{written(stale.mean, 'updates')}, p95 {stale.p95:,}" if stale.max else None
