"""Prints plans and advice on stdout: the answer in sentences and one table; with details, all that stands behind a plan.

Sentences come with the plan, tables from :mod:`paceline.planning.tables`; here is chosen which columns a terminal has room for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from paceline.cli.showing_results import show_measurements
from paceline.comparing import has_effect
from paceline.planning.answer import Candidate, Plan, Refused, refused_once
from paceline.planning.tables import candidates_in_rows, plan_tables
from paceline.result_tables import width_table
from paceline.sentences import (
    NOT_CERTAIN,
    servers_note,
    staleness_in_words,
    standing_in_words,
    time_note,
    work_note,
    workers_note,
)
from simulator.base.text import format_hourly, listed
from simulator.results.misread import left_out_in_words

if TYPE_CHECKING:
    from rich.console import Console

    from paceline.planning.advice import Advice
    from simulator.base.table import Table

_FRONT = 8
_MOST_REFUSED = 2
_FIGURES = {
    "rank": "#",
    "cluster": "cluster",
    "strategy": "strategy",
    "name": "configuration",
    "workers": "workers",
    "samples_per_s": "samples/s",
    "samples_per_s_low": "low",
    "samples_per_s_high": "high",
    "hours": "hours",
    "usd_per_hour": "per hour",
    "cost_usd": "cost",
    "confidence": "conf.",
}
"""Columns of configurations for which a terminal of 80 characters has room, and what it calls them."""
_WAYS = {
    "way": "way of training",
    "workers": "workers",
    "samples_per_s": "samples/s",
    "samples_per_s_low": "low",
    "samples_per_s_high": "high",
    "usd_per_hour": "per hour",
    "cost_usd": "cost",
    "memory_bytes": "memory",
    "waiting": "waiting",
}
"""Those of ways of training."""
_GAINS = {
    "improvement": "",
    "gain": "gain",
    "gain_low": "low",
    "gain_high": "high",
    "samples_per_s": "samples/s",
    "bottleneck": "limit then",
}
"""Those of improvements."""
_PAYMENTS = {
    "payment": "way to pay",
    "hours": "hours",
    "usd_per_hour": "per hour",
    "cost_usd": "cost",
    "cost_low_usd": "low",
    "cost_high_usd": "high",
    "capital_usd": "in advance",
    "running_usd_per_hour": "running",
    "confidence": "conf.",
}
"""Those of ways to pay."""
_ADVICE = {
    "strategy": "strategy",
    "nodes": "machines",
    "samples_per_s": "samples/s",
    "samples_per_s_low": "low",
    "samples_per_s_high": "high",
    "scaling_efficiency": "eff.",
    "staleness": "stale",
    "usd_per_million_samples": "per 1M",
    "bottleneck": "limit",
}
"""Those of advice."""
_NARROW = frozenset({"samples_per_s_low", "samples_per_s_high"})


def show_plan(plan: Plan, *, details: bool = False) -> None:
    """The answer in sentences and a table; with ``details`` also all that stands behind it."""
    from rich.text import Text

    from paceline.cli.terminal import printer

    console = printer()
    for sentence in filter(None, (*plan.sentences, plan.why, plan.best_way)):
        console.print(Text(sentence))
    if plan.left_out:
        console.print(Text(f"Not in these figures: {left_out_in_words(plan.left_out)}."))
    console.print()
    first = "answer and runners-up" if plan.feasible else "nearest and runners-up; none reaches the goal"
    if details:
        _candidates(console, plan, first, (plan.chosen, *plan.runners_up))
        _details(console, plan)
    else:
        _candidates(console, plan, first, _compared(plan))
        missing = [(its.cluster, its.text) for its in plan.clusters if its.best is None]
        missing += [(its.strategy, its.text) for its in plan.strategies if its.best is None]
        for name, text in missing:
            console.print(Text(f"{name}: {text}"))
    _payments(console, plan, details=details)
    _refused(console, plan, None if details else _MOST_REFUSED)
    for warning in plan.chosen.result.warnings:
        console.print(Text(f"warning: {warning.text} ({warning.code})"), style="yellow")
    if not details:
        console.print("\n--details prints what stands behind this; --report FILE.html draws it.", style="dim")


def show_advice(advice: Advice) -> None:
    """What to do in sentences, and every configuration in a table."""
    from rich.text import Text

    from paceline.cli.terminal import printer

    console = printer()
    for text in advice.sentences:
        console.print(Text(text))
    console.print()
    table = advice.table()
    rows = tuple((f"{row[0]}{' *' if place == advice.best else ''}", *row[1:]) for place, row in enumerate(table.rows))
    _show(console, replace(table, rows=rows), _ADVICE)
    console.print(Text("* the advice; each with the buckets that are best for it"), style="dim")
    _refused_in_words(console, advice.refused, _MOST_REFUSED)
    for warning in advice.rows[advice.best].result.warnings:
        console.print(Text(f"warning: {warning.text} ({warning.code})"), style="yellow")


def _compared(plan: Plan) -> list[Candidate]:
    """The answer, its runners-up, and the best on each cluster, by each strategy and of each way of training, each once."""
    best = (*(its.best for its in plan.clusters), *(its.best for its in plan.strategies), *(its.best for its in plan.ways))
    return list({its.key: its for its in (plan.chosen, *plan.runners_up, *best) if its is not None}.values())


def _details(console: Console, plan: Plan) -> None:
    """Clusters, strategies, ways of training, cost against time, improvements, and every note."""
    from rich.text import Text

    tables = {table.name: table for table in plan_tables(plan)}
    if "plan-clusters" in tables:
        _clusters(console, plan, tables["plan-clusters"])
    if "plan-strategies" in tables:
        _strategies(console, plan, tables["plan-strategies"])
    if "plan-ways" in tables:
        _ways(console, plan, tables["plan-ways"])
    if note := time_note(plan.candidates, plan.goal):
        console.print(Text(f"{note}\n"))
    if len(plan.pareto) > 1:
        what = "cost of the training against its time" if plan.goal.samples is not None else "price of an hour against throughput"
        more = f" (the first {_FRONT} of {len(plan.pareto)})" if len(plan.pareto) > _FRONT else ""
        _candidates(console, plan, f"Pareto front of those simulated, {what}{more}", plan.pareto[:_FRONT], compared=False)
    _improvements(console, plan, tables.get("plan-improvements"))
    console.print(width_table(plan.chosen.result).to_rich())
    show_measurements(console, plan.chosen.result)
    console.print()
    for text in filter(None, (workers_note(plan), servers_note(plan), work_note(plan))):
        console.print(Text(text))
    for thing in plan.left_out:
        console.print(Text(f"not in these figures: {thing.name}: {thing.text}"), style="dim")
    for text in plan.notes:
        console.print(Text(f"note: {text}"), style="dim")


def _refused(console: Console, plan: Plan, most: int | None) -> None:
    """What cannot be, each reason once, with the number of configurations that share it."""
    told = {its.strategy for its in plan.strategies if its.best is None}  # why, beside its name
    _refused_in_words(console, refused_once(one for one in plan.refused if one.asked not in told), most)


def _refused_in_words(console: Console, reasons: Sequence[Refused], most: int | None) -> None:
    """Each reason, up to a number of them."""
    from rich.text import Text

    for one in reasons[:most]:
        many = f"{one.configurations:,} configurations" if one.configurations > 1 else "1 configuration"
        console.print(Text(f"refused, {many}: {one.name}: {one.text}"), style="yellow")
    if most is not None and len(reasons) > most:
        rest = sum(one.configurations for one in reasons[most:])
        console.print(f"refused, {rest:,} more for {len(reasons) - most} other reasons (--details)", style="yellow")


def _show(console: Console, table: Table, headings: Mapping[str, str]) -> None:
    """Those columns of a table that have a short heading here and a value there."""
    short = table.only(*(column.name for column in table.columns if column.name in headings)).without_empty_columns()
    columns = (
        replace(its, heading=headings[its.name] or " ", kind="compact" if its.name in _NARROW else its.kind) for its in short.columns
    )
    console.print(replace(short, columns=tuple(columns)).to_rich())
    if any(column.name.endswith("_low") for column in short.columns):
        console.print("low, high: the 90% prediction interval", style="dim")


def _candidates(console: Console, plan: Plan, title: str, candidates: Sequence[Candidate], *, compared: bool = True) -> None:
    """Figures of each candidate, and below the table what else must be known of them, and if ``compared`` how they stand to the answer."""
    from rich.text import Text

    table = replace(candidates_in_rows(plan, candidates), title=title)
    if any(its.cost_usd is not None for its in candidates):
        table = table.only(*(column.name for column in table.columns if column.name != "usd_per_hour"))
    _show(console, table, _FIGURES)
    said: dict[str, list[int]] = {}
    for rank, candidate in enumerate(candidates, 1):
        beside = (standing_in_words(candidate), staleness_in_words(candidate.result)) if compared else ()
        for text in filter(None, (*_caveats(candidate), *beside)):
            said.setdefault(text, []).append(rank)
    for text, ranks in said.items():
        whose = "all" if len(ranks) == len(candidates) > 1 else _ranks(ranks)
        console.print(Text(f"{whose}: {text}"))
    console.print()


def _ranks(ranks: Sequence[int]) -> str:
    """Places in the table: a range where none between them is left out."""
    whole = len(ranks) > 2 and ranks[-1] - ranks[0] + 1 == len(ranks)
    return f"{ranks[0]} to {ranks[-1]}" if whole else listed([str(rank) for rank in ranks])


def _caveats(candidate: Candidate) -> Iterator[str]:
    """What must be known of a candidate's figures."""
    if candidate.result.extrapolated:
        yield "extrapolated, beyond what was measured"
    if not candidate.meets:
        yield "misses the goal"


def _clusters(console: Console, plan: Plan, table: Table) -> None:
    """A line for each cluster that was asked for, and below the table how it stands to the goal."""
    from rich.text import Text

    _show(console, table, {**_FIGURES, "nodes": "nodes"})
    for its in plan.clusters:
        best = its.best
        what = () if best is None else (f"{best.named(cluster=False)}: {best.placement}",)
        console.print(Text(f"{its.cluster}: {'; '.join((*what, its.text, *(_caveats(best) if best is not None else ())))}"))
    console.print()


def _strategies(console: Console, plan: Plan, table: Table) -> None:
    """A line for each strategy that was asked for, and below the table how it stands to the goal."""
    from rich.text import Text

    _show(console, table, {name: heading for name, heading in _FIGURES.items() if name != "usd_per_hour"})
    for its in plan.strategies:
        caveats = _caveats(its.best) if its.best is not None else ()
        console.print(Text(f"{its.strategy}: {'; '.join((its.text, *caveats))}"))
    console.print()


def _ways(console: Console, plan: Plan, table: Table) -> None:
    """A line for each way of training, and below the table what its best is, and what limits it."""
    from rich.text import Text

    _show(console, table, _WAYS)
    for its in plan.ways:
        best = its.best
        what = () if best is None else (f"{best.name}: {best.placement}",)
        console.print(Text(f"{its.way}: {'; '.join((*what, its.text, *(_caveats(best) if best is not None else ())))}"))
    console.print()


def _payments(console: Console, plan: Plan, *, details: bool) -> None:
    """The answer in each way to pay, and below the table what the price of each is; with ``details`` when it pays, in words."""
    from rich.text import Text

    table = next((table for table in plan_tables(plan) if table.name == "plan-payments"), None)
    if table is None:
        return
    _show(console, replace(table, title="the answer in each way to pay"), _PAYMENTS)
    console.print("running: of an hour in use, beside the share of what is paid in advance", style="dim")
    for its in plan.payments:
        console.print(Text(f"{its.name}: {its.text}; {format_hourly(its.price.usd_per_node_hour)} for a node and hour ({its.price.said})"))
    for each in plan.break_even if details else ():
        console.print(Text(each.text), style="dim")
    console.print()


def _improvements(console: Console, plan: Plan, table: Table | None) -> None:
    """What was simulated in a table, and below it each in a sentence."""
    from rich.text import Text

    if table is None:
        return
    simulated = [place for place, one in enumerate(plan.improvements) if one.gain is not None]
    if simulated:
        title = f"what one improvement would bring, {plan.chosen.scaling} scaling"
        _show(console, replace(table, title=title, rows=tuple(table.rows[place] for place in simulated)), _GAINS)
    open_ = [one.name for one in plan.improvements if one.effect is not None and not has_effect(one.effect)]
    if open_:
        console.print(Text(f"{NOT_CERTAIN}, for the interval of the gain, run by run, holds 0: {listed(open_)}"), style="dim")
    for one in plan.improvements:
        console.print(Text(f"{one.name}: {one.text}"), style="" if one.gain is None else "dim")
    console.print()
