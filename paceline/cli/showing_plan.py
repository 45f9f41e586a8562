"""Print plans and advice on stdout: the answer and its alternatives, and everything else with details.

Sentences come with the plan, tables from :mod:`paceline.planning.tables`. This module chooses the columns that fit a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from paceline.cli.showing_results import measurements
from paceline.cli.terminal import Part, Styled, display, display_answer
from paceline.planning.advice import answer_of_advice
from paceline.planning.answer import Candidate, Plan, Refused, refused_once
from paceline.planning.sentences import answer_of_plan
from paceline.planning.tables import MOST_ALTERNATIVES, alternatives_of, brief, candidates_in_rows, plan_tables
from paceline.sentences import (
    servers_note,
    staleness_in_words,
    standing_in_words,
    time_note,
    work_note,
    workers_note,
)
from paceline.tables import width_table
from simulator.base.table import Column, Table
from simulator.base.text import Kind, counted, format_share, listed

if TYPE_CHECKING:
    from paceline.planning.advice import Advice
    from simulator.results.results import Result

_FRONT = 8
_RATES = tuple(f"{unit}_per_s{end}" for unit in ("samples", "tokens") for end in ("", "_low", "_high"))
"""Columns of the throughput, of which a table has those of one unit."""
_FIGURES = ("rank", "cluster", "strategy", "name", "workers", *_RATES, "hours", "usd_per_hour", "cost_usd", "confidence")
"""Columns of configurations that fit into 80 characters."""
_TABLES: Mapping[str, Sequence[str]] = {
    "plan-clusters": (*_FIGURES, "nodes"),
    "plan-strategies": [name for name in _FIGURES if name != "usd_per_hour"],
    "plan-ways": ["way", "workers", *_RATES, "usd_per_hour", "cost_usd", "memory_bytes", "waiting"],
    "plan-payments": [
        "payment", "hours", "usd_per_hour", "cost_usd", "cost_low_usd", "cost_high_usd", "capital_usd", "running_usd_per_hour",
        "confidence",
    ],
    "plan-improvements": ("improvement", "gain", "gain_low", "gain_high", "samples_per_s", "tokens_per_s", "bottleneck"),
}  # fmt: skip
"""Tables of the details, each with the columns that fit."""
_REMARKS = ("best", "best_placement", "text", "price")
"""Columns that are shown below these tables."""
_ADVICE = (
    "strategy", "nodes", *_RATES, "scaling_efficiency", "staleness", "usd_per_million_samples", "bottleneck",
)  # fmt: skip
_KINDS: Mapping[str, Kind] = dict.fromkeys(_RATES, "number")
"""How a terminal writes a column otherwise than a file: to three digits."""


def show_plan(plan: Plan, *, details: bool = False) -> None:
    """Show the answer and its alternatives; with ``details`` everything that was compared."""
    footer = "" if details else "Details: --details   Report: --report plan.html"
    display_answer(answer_of_plan(plan))
    display("", *_plan(plan, details=details))
    if footer:
        display("", Styled(footer, "dim"))


def _plan(plan: Plan, *, details: bool) -> Iterator[Part]:
    if not details:
        yield from _alternatives(plan)
        return
    for text in filter(None, (*plan.sentences, plan.why)):
        yield from (text, "")
    yield from _candidates(plan, "answer and runners-up" if plan.feasible else "nearest and runners-up", (plan.chosen, *plan.runners_up))
    if sizes := [candidate for candidate in (plan.fewest, plan.most) if candidate is not None]:
        yield from _candidates(plan, "the fewest devices that may suffice, and the most that pay", sizes, compared=False)
    yield from _details(plan)
    yield from _refused(refused_once(plan.refused))
    yield from _warnings(plan.chosen.result)


def _alternatives(plan: Plan) -> Iterator[Part]:
    """Yield the ways to pay if there are several, the runners-up, and refused configurations."""
    if plan.payments:
        table = next(table for table in plan_tables(plan) if table.name == "plan-payments")
        yield from _shown(replace(table, title="Ways to pay"), ("payment", "usd_per_hour", "cost_usd", "capital_usd", "confidence"))
        above = [(pair.own, pair.rented, pair.pays_above) for pair in plan.break_even if pair.pays_above is not None]
        yield from (
            f"{own} pays if used more than {format_share(share)} of all hours, compared with {rented}" for own, rented, share in above
        )
        yield from (f"{payment.name}: {payment.text}" for payment in plan.payments if payment.best is None)
        yield ""
    if others := alternatives_of(plan)[:MOST_ALTERNATIVES]:
        table = replace(candidates_in_rows(plan, others), title="Alternatives")
        yield from _shown(table, ("cluster", "name", "workers", "samples_per_s", "tokens_per_s", "hours", "cost_usd", "confidence"))
    yield from (f"{answer.cluster}: {answer.text}" for answer in plan.clusters if answer.best is None)
    yield from (f"{answer.strategy}: {answer.text}" for answer in plan.strategies if answer.best is None)


def show_advice(advice: Advice, *, details: bool = False) -> None:
    """Show the advice and each strategy's throughput by number of machines; with ``details`` every configuration."""
    display_answer(answer_of_advice(advice), _by_machines(advice), footer="" if details else "Details: --details")
    if details:
        table = advice.table()
        rows = tuple((f"{row[0]}{' *' if place == advice.best else ''}", *row[1:]) for place, row in enumerate(table.rows))
        display("", *_shown(replace(table, rows=rows), _ADVICE))
        display(*_refused(advice.refused), *_warnings(advice.rows[advice.best].result))


def _by_machines(advice: Advice) -> Table:
    """Return a row for each strategy (merged where figures are equal) and a column for each number of machines."""
    counts = sorted({row.nodes for row in advice.rows})
    best = advice.rows[advice.best]
    names: dict[tuple[float | None, ...], list[str]] = {}
    for name in dict.fromkeys(row.strategy for row in advice.rows):
        own = [row for row in advice.rows if row.strategy == name]
        rates = {row.nodes: row.result.rate.mean for row in own}
        shown, servers = name or best.result.scenario.strategy.kind, {row.result.scenario.servers for row in own}
        shown += f" ({counted(servers.pop(), 'server')})" if len(servers) == 1 and all(servers) else ""
        names.setdefault(tuple(map(rates.get, counts)), []).append(f"{shown} *" if name == best.strategy else shown)
    columns = (Column("strategy", "text"), *(Column(counted(count, "machine"), "number") for count in counts))
    cells = tuple((", ".join(same), *rates) for rates, same in names.items())
    return Table(advice.unit.per_s.capitalize(), columns, cells, more="* advised")


def _warnings(result: Result) -> Iterator[Styled]:
    return (Styled(f"warning: {warning.text} ({warning.code})", "yellow") for warning in result.warnings)


def _details(plan: Plan) -> Iterator[Part]:
    """Yield tables of clusters, strategies, ways of training and to pay, improvements and the Pareto front, and every note."""
    for table in map(brief, plan_tables(plan)):
        if table.name in _TABLES:
            yield from _with_remarks(table, _TABLES[table.name])
    yield from (Styled(pair.text, "dim") for pair in plan.break_even)
    if note := time_note(plan.candidates, plan.goal):
        yield f"{note}\n"
    if len(plan.pareto) > 1:
        axes = "cost and time of the training" if plan.goal.samples is not None else "hourly price and throughput"
        more = f" (the first {_FRONT} of {len(plan.pareto)})" if len(plan.pareto) > _FRONT else ""
        yield from _candidates(plan, f"Pareto front by {axes}{more}", plan.pareto[:_FRONT], compared=False)
    yield width_table(plan.chosen.result)
    yield from measurements(plan.chosen.result)
    yield ""
    yield from filter(None, (workers_note(plan), servers_note(plan), work_note(plan)))
    yield from (Styled(f"not included: {thing.name}: {thing.text}", "dim") for thing in plan.left_out)
    yield from (Styled(f"note: {text}", "dim") for text in plan.notes)


def _with_remarks(table: Table, names: Sequence[str]) -> Iterator[Part]:
    """Yield a table, then for each row what does not fit into its columns."""
    yield from _shown(table, names)
    places = [place for place, column in enumerate(table.columns) if column.name in _REMARKS]
    for row in table.rows:
        yield f"{row[0]}: {'; '.join(str(row[place]) for place in places if row[place] is not None)}"
    yield ""


def _refused(reasons: Sequence[Refused]) -> Iterator[Styled]:
    """Yield reasons for refusals with the number of configurations that each covers."""
    for reason in reasons:
        yield Styled(f"refused, {counted(reason.configurations, 'configuration')}: {reason.name}: {reason.text}", "yellow")


def _shown(table: Table, names: Sequence[str]) -> Iterator[Part]:
    """Yield a table reduced to the named columns that have values."""
    short = table.narrow(*(column.name for column in table.columns if column.name in names))
    columns = tuple(replace(column, kind=_KINDS.get(column.name, column.kind)) for column in short.columns)
    marked = any(str(cell).endswith("% *") for row in short.rows for cell in row)
    yield replace(short, columns=columns, more="* misses the goal" if marked else short.more)
    if any(column.name.endswith("_low") for column in short.columns):
        yield Styled("low, high: the 90% prediction interval", "dim")


def _candidates(plan: Plan, title: str, candidates: Sequence[Candidate], *, compared: bool = True) -> Iterator[Part]:
    """Yield a table of candidates, then remarks on them and, if ``compared``, their comparison with the answer."""
    table = replace(candidates_in_rows(plan, candidates), title=title)
    if any(candidate.cost_usd is not None for candidate in candidates):
        table = table.only(*(column.name for column in table.columns if column.name != "usd_per_hour"))
    yield from _shown(table, _FIGURES)
    said: dict[str, list[int]] = {}
    for rank, candidate in enumerate(candidates, 1):
        beside = (standing_in_words(candidate), staleness_in_words(candidate.result)) if compared else ()
        beyond = "extrapolated beyond measured settings" if candidate.result.extrapolated else ""
        for text in filter(None, (beyond, *beside)):
            said.setdefault(text, []).append(rank)
    for text, ranks in said.items():
        yield f"{'all' if len(ranks) == len(candidates) > 1 else _ranks(ranks)}: {text}"
    yield ""


def _ranks(ranks: Sequence[int]) -> str:
    """Return places in the table, as a range where they are consecutive."""
    whole = len(ranks) > 2 and ranks[-1] - ranks[0] + 1 == len(ranks)
    return f"{ranks[0]} to {ranks[-1]}" if whole else listed([str(rank) for rank in ranks])
