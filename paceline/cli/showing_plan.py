"""A plan on stdout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.comparing import has_effect
from paceline.planning.answer import Candidate, Plan
from paceline.planning.further import workers_of
from paceline.sentences import paired_in_words, servers_note, staleness_in_words, time_note, work_note, workers_note
from simulator.left_out import left_out_in_words
from simulator.text import format_throughput, format_usd_per_hour, format_usd_sum

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
    if plan.left_out:
        console.print(Text(f"Not in these figures: {left_out_in_words(plan.left_out)}."))
    console.print()
    _clusters(console, plan)
    first = "answer and runners-up" if plan.feasible else "nearest and runners-up; none reaches the goal"
    _candidates(console, first, (plan.chosen, *plan.runners_up))
    if note := time_note(plan.candidates, plan.goal):
        console.print(Text(f"{note}\n"))
    if len(plan.pareto) > 1:
        what = "cost of the training against its time" if plan.goal.samples is not None else "price of an hour against throughput"
        more = f" (the first {_FRONT} of {len(plan.pareto)})" if len(plan.pareto) > _FRONT else ""
        _candidates(console, f"Pareto front of those simulated, {what}{more}", plan.pareto[:_FRONT])
    _improvements(console, plan)
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

    told = _Told.of(candidates)
    table = _table(title, "", "workers", "nodes", "samples/s", "90% interval", *told.headings())
    for rank, candidate in enumerate(candidates, 1):
        rate, scenario = candidate.result.throughput_samples_per_s, candidate.result.scenario
        table.add_row(
            str(rank),
            f"{workers_of(scenario)}{'*' if candidate.result.extrapolated else ''}",
            _machines(candidate),
            _short(rate.mean),
            f"{_brief(rate.low)} to {_brief(rate.high)}",
            *told.figures(candidate),
        )
    console.print(table)
    for rank, candidate in enumerate(candidates, 1):
        paired, stale = paired_in_words(candidate), staleness_in_words(candidate.result)
        more = "".join(f"; {text}" for text in (paired, stale) if text)
        console.print(Text(f"{rank}  {candidate.name}: {candidate.placement}; limit: {candidate.result.bottleneck.label}{more}"))
    _legend(console, candidates)


def _clusters(console: Console, plan: Plan) -> None:
    """One line for each cluster that was asked for, where there are several, and below the table how it stands to the goal."""
    from rich.text import Text

    if len(plan.clusters) < _SEVERAL:
        return
    bests = [its.best for its in plan.clusters if its.best is not None]
    told = _Told.of(bests)
    table = _table("each cluster", "cluster", "workers", "nodes", "samples/s", *told.headings())
    table.columns[0].justify = "left"
    for its in plan.clusters:
        best = its.best
        if best is None:
            table.add_row(_fitted(its.cluster), *["-"] * (len(table.columns) - 1))
            continue
        workers = f"{workers_of(best.result.scenario)}{'*' if best.result.extrapolated else ''}"
        rate = best.result.throughput_samples_per_s
        table.add_row(_fitted(its.cluster), workers, _machines(best), _short(rate.mean), *told.figures(best))
    console.print(table)
    for its in plan.clusters:
        what = f"{its.best.name.replace(f' on {its.cluster}', '')}: {its.best.placement}; " if its.best is not None else ""
        console.print(Text(f"{its.cluster}: {what}{its.text}"))
    _legend(console, bests)


_SEVERAL = 2
_LONGEST_NAME = 17


def _fitted(name: str) -> str:
    """The name of a cluster, or the end of a path, that leaves room for figures."""
    return name if len(name) <= _LONGEST_NAME else f"…{name[1 - _LONGEST_NAME :]}"


@dataclass(frozen=True)
class _Told:
    """Which columns of a training's time and price a table has: those in which at least one row has a value."""

    trained: bool
    priced: bool

    @classmethod
    def of(cls, candidates: Sequence[Candidate]) -> _Told:
        return cls(any(each.time_s is not None for each in candidates), any(each.usd_per_hour is not None for each in candidates))

    def _kept(self, hours: str, hourly: str, cost: str, confidence: str) -> list[str]:
        kept = (self.trained, hours), (self.priced, hourly), (self.trained and self.priced, cost), (True, confidence)
        return [text for told, text in kept if told]

    def headings(self) -> list[str]:
        return self._kept("hours", "$/hour", "cost $", "conf.")

    def figures(self, candidate: Candidate) -> list[str]:
        """Time of the training in hours, price of an hour, what both make together, and the confidence."""
        hourly, time_s, cost = candidate.usd_per_hour, candidate.time_s, candidate.cost_usd
        return self._kept(
            f"{time_s.mean / _HOUR_S:.5g}" if time_s is not None else "-",
            format_usd_per_hour(hourly) if hourly is not None else "-",
            format_usd_sum(cost.mean) if cost is not None else "-",
            f"{candidate.confidence:.2f}{'' if candidate.meets else '!'}",
        )


_HOUR_S = 3600.0


def _machines(candidate: Candidate) -> str:
    """Nodes, and the devices of each."""
    return "-" if candidate.nodes is None else f"{candidate.nodes:,}x{candidate.devices_per_node}"


def _legend(console: Console, candidates: Sequence[Candidate]) -> None:
    if any(candidate.nodes is not None for candidate in candidates):
        console.print("nodes: machines x devices of each", style="dim")
    if any(candidate.result.extrapolated for candidate in candidates):
        console.print("* beyond what was measured: an extrapolation", style="dim")
    if not all(candidate.meets for candidate in candidates):
        console.print("! misses the goal", style="dim")
    console.print()


def _brief(rate: float) -> str:
    """The end of an interval in at most five characters."""
    return format_throughput(rate) if rate < 10_000 else f"{rate / 1e3:.3g}k" if rate < 999_500 else f"{rate / 1e6:.3g}M"


def _short(rate: float) -> str:
    """A throughput in at most seven characters."""
    return format_throughput(rate) if rate < 100_000 else f"{rate / 1e3:,.0f}k" if rate < 1e7 else f"{rate:.2g}"


def _improvements(console: Console, plan: Plan) -> None:
    from rich.text import Text

    table = _table(f"what one improvement would bring, {plan.chosen.scaling} scaling", "")
    table.columns[0].justify = "left"
    for heading in ("gain ", "90% interval", "samples/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("limit then", overflow="fold")
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
        console.print("~ effect not certain: the interval of the gain, run by run, holds 0", style="dim")
    for one in plan.improvements:
        console.print(Text(f"{one.name}: {one.text}"), style="" if one.gain is None else "dim")
    console.print()
