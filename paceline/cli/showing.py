"""Progress on stderr and result tables on stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from simulator.results import Result
from simulator.units import format_seconds

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["label", "note", "progress_bar", "show_result", "show_table"]

Advance = Callable[[int, int], None]


def note(message: str) -> None:
    """A remark for the person at the terminal."""
    print(message, file=sys.stderr)


@contextmanager
def progress_bar(title: str) -> Iterator[Advance]:
    """A progress bar on stderr; call what it gives with work done and work in all."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield advance


def label(result: Result) -> str:
    """The strategy in few words, such as ``async PS, 4 servers``."""
    strategy = result.scenario.strategy
    if strategy.kind == "parameter-server":
        return f"{strategy.mode} PS, {strategy.servers} server{'s' if strategy.servers > 1 else ''}"
    return {"single": "single", "mirrored": "mirrored ring", "multi-worker-mirrored": "ring all-reduce"}[strategy.kind]


def show_table(results: Sequence[Result]) -> None:
    """A table for each strategy, and below them what all of them assume."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from paceline.reporting.naming import series_names

    console = Console()
    names = series_names(results)
    for name in dict.fromkeys(names):
        console.print(_table(name, [result for result, its in zip(results, names, strict=True) if its == name]))
    if any(result.extrapolated for result in results):
        console.print("* outside the calibrated range: an extrapolation", style="dim")
    for text in dict.fromkeys(warning.text for result in results for warning in result.warnings if warning.code in _ASSUMPTIONS):
        console.print(Padding(Text(text), (0, 0, 0, 2)), style="dim")


_ASSUMPTIONS = (
    "assumed-network",
    "overridden",
    "free-apply",
    "start-in-window",
    "no-uncertainty",
    "not-calibrated",
    "other-device",
    "phase-locked",
)


def _table(title: str, results: Sequence[Result]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left", title_style="bold")
    for heading in ("workers", "samples/s", "90% interval", "eff.", "step", "stale"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("bottleneck", no_wrap=True)
    for result in results:
        rate = result.throughput_samples_per_s
        table.add_row(
            f"{result.replicas}{'*' if result.extrapolated else ' '}",
            _figure(rate.mean),
            f"{_figure(rate.low)} to {_figure(rate.high)}",
            f"{result.scaling_efficiency:.1%}",
            format_seconds(result.step_time_s.mean),
            f"{result.staleness.mean:.2f}",
            result.bottleneck.name,
        )
    return table


def _figure(rate: float) -> str:
    """Short enough for seven columns to fit into 80 characters."""
    if rate >= 999_999.5:
        return f"{rate / 1e6:,.2f}M"
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def show_result(result: Result) -> None:
    """One result in full."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    console.print(_table(label(result), [result]))
    step, parts, stale = result.step_time_s, result.breakdown_s, result.staleness
    named = (
        ("input", parts.input),
        ("compute", parts.compute),
        ("exposed communication", parts.exposed_communication),
        ("waiting", parts.waiting),
        ("apply", parts.apply),
    )
    quantiles = ("mean", step.mean), ("p50", step.p50), ("p95", step.p95), ("p99", step.p99)
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_row("step time", ", ".join(f"{name} {format_seconds(value)}" for name, value in quantiles))
    lines.add_row("of a step", ", ".join(f"{name} {value / step.mean:.0%}" for name, value in named if value > 0.005 * step.mean))
    lines.add_row("staleness", f"mean {stale.mean:.2f}, p95 {stale.p95}, p99 {stale.p99}, max {stale.max}")
    lines.add_row("limit", Text(result.bottleneck.text))
    for warning in result.warnings:
        lines.add_row("warning", Text(f"{warning.text} ({warning.code})"), style="yellow")
    console.print(lines)
    if result.extrapolated:
        console.print("* outside the calibrated range: an extrapolation", style="dim")
