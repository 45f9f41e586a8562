"""A plan on stdout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paceline.comparing import has_effect
from paceline.planning.answer import Candidate, Plan
from paceline.planning.further import workers_of
from paceline.planning.wording import figure, money, servers_note, staleness_in_words, workers_note
from simulator.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["show_plan"]

_FRONT = 8
_MOST_REFUSED = 6


def show_plan(plan: Plan) -> None:
    """The answer in sentences, then what stands behind it in tables."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for sentence in (*plan.sentences, plan.why):
        console.print(Text(sentence))
    console.print()
    first = "answer and runners-up" if plan.feasible else "nearest and runners-up; none reaches the goal"
    _candidates(console, first, (plan.chosen, *plan.runners_up))
    if len(plan.pareto) > 1:
        what = "cost of the training against its time" if plan.goal.samples is not None else "price of an hour against throughput"
        more = f" (the first {_FRONT} of {len(plan.pareto)})" if len(plan.pareto) > _FRONT else ""
        _candidates(console, f"Pareto front of those simulated, {what}{more}", plan.pareto[:_FRONT])
    _improvements(console, plan)
    for text in filter(None, (workers_note(plan), servers_note(plan), _work(plan))):
        console.print(Text(text))
    for one in plan.refused[:_MOST_REFUSED]:
        many = f"{one.configurations:,} configurations" if one.configurations > 1 else "1 configuration"
        console.print(Text(f"refused, {many}: {one.name}: {one.text}"), style="yellow")
    if len(plan.refused) > _MOST_REFUSED:
        console.print(f"and {len(plan.refused) - _MOST_REFUSED} more that are refused; --json lists all", style="yellow")
    for warning in plan.chosen.result.warnings:
        console.print(Text(f"warning: {warning.text} ({warning.code})"), style="yellow")
    for text in plan.notes:
        console.print(Text(f"note: {text}"), style="dim")


def _work(plan: Plan) -> str:
    refused = sum(one.configurations for one in plan.refused)
    parts = [f"{plan.discarded:,} were discarded by closed forms"]
    parts += [f"{plan.passed_over:,} passed over by the search"] if plan.passed_over else []
    parts += [f"{refused:,} refused"] if refused else []
    others = plan.simulated - len(plan.candidates)
    return (
        f"{plan.considered:,} configurations were considered: {', '.join(parts)}, {len(plan.candidates):,} simulated, "
        f"and {others:,} scenarios besides around the answer."
    )


def _table(title: str, *columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left", title_style="bold")
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _candidates(console: Console, title: str, candidates: Sequence[Candidate]) -> None:
    """Figures of each candidate, and below the table what it is and what limits it, which no column would hold."""
    from rich.text import Text

    with_time = any(candidate.time_s is not None for candidate in candidates)
    time = ["time"] if with_time else []
    table = _table(title, "", "workers", "PS", "scaling", "samples/s", "90% interval", *time, "cost", "conf.")
    for rank, candidate in enumerate(candidates, 1):
        rate, scenario = candidate.result.throughput_samples_per_s, candidate.result.scenario
        table.add_row(
            str(rank),
            f"{workers_of(scenario)}{'*' if candidate.result.extrapolated else ''}",
            str(scenario.servers or "-"),
            candidate.scaling,
            _short(rate.mean),
            f"{_short(rate.low)} to {_short(rate.high)}",
            *([format_seconds(candidate.time_s.mean) if candidate.time_s is not None else "-"] if with_time else []),
            _cost(candidate),
            f"{candidate.confidence:.2f}{'' if candidate.meets else '!'}",
        )
    console.print(table)
    for rank, candidate in enumerate(candidates, 1):
        stale = staleness_in_words(candidate.result)
        console.print(Text(f"{rank}  {candidate.name}; limit: {candidate.result.bottleneck.name}{f'; {stale}' if stale else ''}"))
    if any(candidate.result.extrapolated for candidate in candidates):
        console.print("* outside the calibrated range: an extrapolation", style="dim")
    if not all(candidate.meets for candidate in candidates):
        console.print("! misses the goal", style="dim")
    console.print()


def _short(rate: float) -> str:
    """A throughput, or a sum from 1,000 USD on, in at most seven characters."""
    return figure(rate) if rate < 100_000 else f"{rate / 1e3:,.0f}k" if rate < 1e7 else f"{rate:.2g}"


def _cost(candidate: Candidate) -> str:
    """Of the training; where the goal has no samples, of an hour."""
    if candidate.cost_usd is not None:
        return _dollars(candidate.cost_usd.mean)
    return "-" if candidate.usd_per_hour is None else f"{_dollars(candidate.usd_per_hour)}/h"


def _dollars(usd: float) -> str:
    """A sum in at most eight characters."""
    return f"${_short(usd) if usd >= 1000 else money(usd).removesuffix(' USD')}"


def _improvements(console: Console, plan: Plan) -> None:
    from rich.text import Text

    table = _table(f"what one improvement would bring, {plan.chosen.scaling} scaling", "")
    table.columns[0].justify = "left"
    for heading in ("gain ", "90% interval", "samples/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("limit then", no_wrap=True)
    without_effect = False
    for one in plan.improvements:
        rate, effect = one.throughput_samples_per_s, one.effect
        if rate is None or effect is None:
            continue
        unseen = "" if has_effect(effect) else "~"
        table.add_row(
            one.name,
            f"{effect.mean - 1:+z.1%}{unseen or ' '}",
            f"{effect.low - 1:+z.1%} to {effect.high - 1:+z.1%}",
            _short(rate.mean),
            one.bottleneck,
        )
        without_effect |= bool(unseen)
    if table.row_count:
        console.print(table)
    if without_effect:
        console.print("~ no effect seen: the interval of the gain, run by run, holds 0", style="dim")
    for one in plan.improvements:
        console.print(Text(f"{one.name}: {one.text}"), style="" if one.gain is None else "dim")
    console.print()
