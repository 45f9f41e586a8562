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
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
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

    console = Console()
    for name in dict.fromkeys(map(label, results)):
        console.print(_table(name, [result for result in results if label(result) == name]))
    if any(result.extrapolated for result in results):
        console.print("* outside the calibrated range: an extrapolation", style="dim")
    for text in dict.fromkeys(warning.text for result in results for warning in result.warnings if warning.code in _ASSUMPTIONS):
        console.print(f"  {text}", style="dim", markup=False, highlight=False)


_ASSUMPTIONS = ("assumed-network", "no-uncertainty", "not-calibrated", "other-device", "phase-locked")


def _table(title: str, results: Sequence[Result]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left", title_style="bold")
    for heading in ("workers", "samples/s", "90% interval", "eff.", "step", "staleness"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("bottleneck", no_wrap=True)
    for result in results:
        rate = result.throughput_samples_per_s
        large = rate.low >= 100
        table.add_row(
            f"{result.replicas}{'*' if result.extrapolated else ' '}",
            f"{rate.mean:,.0f}" if large else f"{rate.mean:.3g}",
            f"{rate.low:,.0f} to {rate.high:,.0f}" if large else f"{rate.low:.3g} to {rate.high:.3g}",
            f"{result.scaling_efficiency:.1%}",
            format_seconds(result.step_time_s.mean),
            f"{result.staleness.mean:.2f}",
            result.bottleneck.name,
        )
    return table


def show_result(result: Result) -> None:
    """One result in full."""
    from rich.console import Console

    show_table([result])
    console = Console()
    step, parts = result.step_time_s, result.breakdown_s
    console.print(
        f"step time   mean {format_seconds(step.mean)}, p50 {format_seconds(step.p50)}, "
        f"p95 {format_seconds(step.p95)}, p99 {format_seconds(step.p99)}",
        highlight=False,
    )
    named = (
        ("input", parts.input),
        ("compute", parts.compute),
        ("exposed communication", parts.exposed_communication),
        ("waiting", parts.waiting),
        ("apply", parts.apply),
    )
    console.print(
        "of a step   " + ", ".join(f"{name} {value / step.mean:.0%}" for name, value in named if value > 0.005 * step.mean), highlight=False
    )
    console.print(
        f"staleness   mean {result.staleness.mean:.2f}, p95 {result.staleness.p95}, p99 {result.staleness.p99}, max {result.staleness.max}",
        highlight=False,
    )
    console.print(f"limit       {result.bottleneck.text}", highlight=False, markup=False)
    for warning in result.warnings:
        console.print(f"warning     {warning.text} ({warning.code})", highlight=False, markup=False, style="yellow")
