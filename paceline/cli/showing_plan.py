"""A plan on stdout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from paceline.comparing import has_effect
from paceline.planning.answer import Candidate, Plan
from paceline.planning.tables import plan_tables
from paceline.sentences import NOT_CERTAIN, paired_in_words, servers_note, staleness_in_words, time_note, work_note, workers_note
from simulator.left_out import left_out_in_words
from simulator.text import listed

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.table import Table

__all__ = ["show_plan"]

_FRONT = 8
_MOST_REFUSED = 6
_FIGURES = {
    "rank": "#",
    "cluster": "cluster",
    "workers": "workers",
    "nodes": "nodes",
    "samples_per_s": "samples/s",
    "samples_per_s_low": "low",
    "samples_per_s_high": "high",
    "hours": "hours",
    "usd_per_hour": "per hour",
    "cost_usd": "cost",
    "confidence": "conf.",
}
"""Columns of configurations for which a terminal of 80 characters has room, and what it calls them; the rest stands in sentences."""
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
_NARROW = frozenset({"samples_per_s_low", "samples_per_s_high"})


def show_plan(plan: Plan) -> None:
    """The answer in sentences, then what stands behind it in tables."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    tables = {table.name: table for table in plan_tables(plan)}
    for sentence in filter(None, (*plan.sentences, plan.why, plan.best_way)):
        console.print(Text(sentence))
    if plan.left_out:
        console.print(Text(f"Not in these figures: {left_out_in_words(plan.left_out)}."))
    console.print()
    if "plan-clusters" in tables:
        _clusters(console, plan, tables["plan-clusters"])
    if "plan-ways" in tables:
        _ways(console, plan, tables["plan-ways"])
    first = "answer and runners-up" if plan.feasible else "nearest and runners-up; none reaches the goal"
    _candidates(console, replace(tables["plan-candidates"], title=first), (plan.chosen, *plan.runners_up))
    if note := time_note(plan.candidates, plan.goal):
        console.print(Text(f"{note}\n"))
    if len(plan.pareto) > 1:
        what = "cost of the training against its time" if plan.goal.samples is not None else "price of an hour against throughput"
        more = f" (the first {_FRONT} of {len(plan.pareto)})" if len(plan.pareto) > _FRONT else ""
        front = replace(
            tables["plan-pareto"], title=f"Pareto front of those simulated, {what}{more}", rows=tables["plan-pareto"].rows[:_FRONT]
        )
        _candidates(console, front, plan.pareto[:_FRONT])
    _improvements(console, plan, tables.get("plan-improvements"))
    for text in filter(None, (workers_note(plan), servers_note(plan), work_note(plan))):
        console.print(Text(text))
    for one in plan.refused[:_MOST_REFUSED]:
        many = f"{one.configurations:,} configurations" if one.configurations > 1 else "1 configuration"
        console.print(Text(f"refused, {many}: {one.name}: {one.text}"), style="yellow")
    if len(plan.refused) > _MOST_REFUSED:
        console.print(f"and {len(plan.refused) - _MOST_REFUSED} more that are refused; --json lists all", style="yellow")
    for thing in plan.left_out:
        console.print(Text(f"not in these figures: {thing.name}: {thing.text}"), style="dim")
    for warning in plan.chosen.result.warnings:
        console.print(Text(f"warning: {warning.text} ({warning.code})"), style="yellow")
    for text in plan.notes:
        console.print(Text(f"note: {text}"), style="dim")


def _show(console: Console, table: Table, headings: Mapping[str, str]) -> None:
    """Those columns of a table that have a short heading here and a value there."""
    short = table.only(*(column.name for column in table.columns if column.name in headings)).without_empty_columns()
    columns = (
        replace(its, heading=headings[its.name] or " ", kind="compact" if its.name in _NARROW else its.kind) for its in short.columns
    )
    console.print(replace(short, columns=tuple(columns)).to_rich())
    if any(column.name.endswith("_low") for column in short.columns):
        console.print("low and high: ends of the 90% prediction interval", style="dim")


def _candidates(console: Console, table: Table, candidates: Sequence[Candidate]) -> None:
    """Figures of each candidate, and below the table what it is and what limits it."""
    from rich.text import Text

    _show(console, table, _FIGURES)
    for rank, candidate in enumerate(candidates, 1):
        limit = f"limit: {candidate.result.bottleneck.label}"
        parts = (candidate.placement, limit, paired_in_words(candidate), staleness_in_words(candidate.result), *_caveats(candidate))
        console.print(Text(f"{rank}  {candidate.name}: {'; '.join(filter(None, parts))}"))
    _legend(console, candidates)


def _caveats(candidate: Candidate) -> Iterator[str]:
    """What must be known of a candidate's figures."""
    if candidate.result.extrapolated:
        yield "extrapolated"
    if not candidate.meets:
        yield "misses the goal"


def _legend(console: Console, candidates: Sequence[Candidate]) -> None:
    if any(candidate.result.extrapolated for candidate in candidates):
        console.print("extrapolated: beyond what was measured", style="dim")
    console.print()


def _clusters(console: Console, plan: Plan, table: Table) -> None:
    """A line for each cluster that was asked for, and below the table how it stands to the goal."""
    from rich.text import Text

    _show(console, table, _FIGURES)
    for its in plan.clusters:
        best = its.best
        what = () if best is None else (f"{best.name.replace(f' on {its.cluster}', '')}: {best.placement}",)
        console.print(Text(f"{its.cluster}: {'; '.join((*what, its.text, *(_caveats(best) if best is not None else ())))}"))
    _legend(console, [its.best for its in plan.clusters if its.best is not None])


def _ways(console: Console, plan: Plan, table: Table) -> None:
    """A line for each way of training, and below the table what its best is, and what limits it."""
    from rich.text import Text

    _show(console, table, _WAYS)
    for its in plan.ways:
        best = its.best
        what = () if best is None else (f"{best.name}: {best.placement}",)
        console.print(Text(f"{its.way}: {'; '.join((*what, its.text, *(_caveats(best) if best is not None else ())))}"))
    _legend(console, [its.best for its in plan.ways if its.best is not None])


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
