"""What the testbed measured, on stdout: for people, or as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer

from paceline.cli.testbed_facts import Facts
from simulator.figures import Estimate
from simulator.text import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["as_data", "show_json", "show_testbed"]

_WIDEST_BAR = 30
_MOST_BARS = 20
_NAMED = 4
_NAMES = {
    "ring": {"push": "all-reduce and wait"},
    "mirrored": {"push": "all-reduce and wait"},
    "sync": {"push": "push and wait"},
}
"""What the parts of a step are where workers step together."""


def as_data(facts: Facts) -> dict[str, Any]:
    """What ``--json`` prints of one file."""
    intervals = {
        name: None if (value := getattr(facts, name)) is None else value.model_dump() for name in ("updates_per_s", "samples_per_s")
    }
    plain = {field.name: getattr(facts, field.name) for field in dataclasses.fields(facts)}
    lists = {name: [dataclasses.asdict(one) for one in plain[name]] for name in ("repeats", "parts", "jobs")}
    return {**plain, **intervals, **lists}


def show_json(data: Any) -> None:
    """Print as JSON."""
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


def show_testbed(files: Sequence[Facts]) -> None:
    """Each file in full, and where there are several, all of them side by side."""
    from rich.console import Console

    console = Console()
    for facts in files:
        _show_one(console, facts)
    if len(files) > 1:
        console.print(_beside_one_another(files))


def _show_one(console: Any, facts: Facts) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Text(facts.label, style="bold"))
    for line in _what_ran(facts):
        console.print(Text(line))
    console.print()
    console.print(_repeats(facts))
    if facts.staleness:
        console.print(_histogram(facts))
    console.print(_parts(facts))
    console.print(_jobs(facts))
    for line in _remarks(facts):
        console.print(Padding(Text(line), (0, 0, 0, 2)), style="dim")
    console.print(Text(f"raw measurements: {facts.file}"), soft_wrap=True)
    console.print()


def _what_ran(facts: Facts) -> Iterator[str]:
    setting, machine = facts.setting, facts.machine
    cores = f", {machine['cores']} cores" if "cores" in machine else ""
    repeats = len(facts.repeats)
    yield (
        f"{setting['steps']} steps a worker, batch {setting['batch']}, {repeats} repeat{'s' if repeats > 1 else ''}; "
        f"TensorFlow {machine['tensorflow']} on {machine['device_name']}{cores}"
    )
    rates = [one.link_bytes_per_s for one in facts.repeats if one.link_bytes_per_s is not None]
    asked = facts.asked_link_bytes_per_s
    if asked is not None and rates:
        low, high = format_rate(min(rates)), format_rate(max(rates))
        moved = low if low == high else f"{low} to {high}"
        yield f"links: asked {format_rate(asked)}, plain sockets moved {moved} ({sum(rates) / len(rates) / asked:.1%})"


def _repeats(facts: Facts) -> Table:
    table = _table("Repeats")
    stale = bool(facts.staleness)
    for heading in ("repeat", "updates", "seconds", "updates/s", "samples/s", *(("mean staleness",) if stale else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in facts.repeats:
        staleness = "" if one.mean_staleness is None else f"{one.mean_staleness:.2f}"
        cells = (str(one.repeat + 1), str(one.updates), f"{one.seconds:.2f}", _figure(one.updates_per_s), _figure(one.samples_per_s))
        table.add_row(*cells, *((staleness,) if stale else ()))
    updates, samples = facts.updates_per_s, facts.samples_per_s
    if updates is not None and samples is not None:
        means = [one.mean_staleness for one in facts.repeats if one.mean_staleness is not None]
        mean = (f"{sum(means) / len(means):.2f}",) if means else ()
        table.add_section()
        table.add_row("mean", "", "", _figure(updates.mean), _figure(samples.mean), *mean)
        table.add_row("next, 90%", "", "", _span(updates), _span(samples), *(("",) if stale else ()))
    return table


def _histogram(facts: Facts) -> Table:
    table = _table("Staleness: updates between a step's read and its own update")
    for heading in ("staleness", "updates", "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    total = sum(facts.staleness.values())
    bars = [(str(value), facts.staleness.get(value, 0)) for value in range(max(facts.staleness) + 1)]
    if len(bars) > _MOST_BARS:
        rest = sum(count for _, count in bars[_MOST_BARS - 1 :])
        bars = [*bars[: _MOST_BARS - 1], (f"{_MOST_BARS - 1} and more", rest)]
    highest = max(count for _, count in bars)
    for name, count in bars:
        table.add_row(name, str(count), f"{count / total:.1%}", "█" * round(_WIDEST_BAR * count / highest))
    return table


def _parts(facts: Facts) -> Table:
    table = _table("Of a step")
    table.add_column("part", no_wrap=True)
    for heading in ("mean", "p50", "p95"):
        table.add_column(heading, justify="right", no_wrap=True)
    mode = facts.setting["mode"]
    for part in facts.parts:
        if part.name in {"ring": ("pull",), "mirrored": ("pull",), "apart": ("pull", "push")}.get(mode, ()):
            continue  # every worker has its own copy
        name = "gap to the next step" if part.name == "gap" else _NAMES.get(mode, {}).get(part.name, part.name)
        table.add_row(name, *(format_seconds(value) for value in (part.mean_s, part.p50_s, part.p95_s)))
    return table


def _jobs(facts: Facts) -> Table:
    table = _table("By job, a repeat")
    table.add_column("job", no_wrap=True)
    sent = facts.loopback_bytes is None
    for heading in ("tasks", *(("sent",) if sent else ()), "CPU time", "CPU time a step"):
        table.add_column(heading, justify="right", no_wrap=True)
    for job in facts.jobs:
        moved = (format_bytes(job.sent_bytes),) if job.sent_bytes is not None else ()
        table.add_row(job.job, str(job.tasks), *moved, format_seconds(job.cpu_s), format_seconds(job.cpu_s_per_step))
    return table


def _remarks(facts: Facts) -> Iterator[str]:
    if facts.loopback_bytes is not None and facts.setting["mode"] not in ("mirrored", "apart"):
        yield f"all tasks share the loopback interface, over which {format_bytes(facts.loopback_bytes)} went in a repeat"
    if facts.setting["overlap"]:
        yield "by layer: compute begins with the first variable that is there; other pulls and pushes go on meanwhile"
    if facts.pulled_dense:
        names = ", ".join(facts.pulled_dense[:_NAMED]) + (", ..." if len(facts.pulled_dense) > _NAMED else "")
        yield f"real compute pulled sparse variables whole: {names}"
    if facts.updates_per_s is None:
        yield "one repeat has no interval; measure with --repeats 2 or more"
    if facts.failure is not None:
        yield f"the run failed after these repeats: {' '.join(facts.failure.split())}"
    elif not facts.complete:
        yield "the run was stopped before its end; only whole repeats are shown"


def _beside_one_another(files: Sequence[Facts]) -> Table:
    table = _table("All files")
    table.add_column("setting")
    for heading in ("updates/s", "next, 90%", "staleness"):
        table.add_column(heading, justify="right", no_wrap=True)
    for facts in files:
        rates = [one.updates_per_s for one in facts.repeats]
        means = [one.mean_staleness for one in facts.repeats if one.mean_staleness is not None]
        interval = "" if facts.updates_per_s is None else _span(facts.updates_per_s)
        table.add_row(facts.label, _figure(sum(rates) / len(rates)), interval, f"{sum(means) / len(means):.2f}" if means else "")
    return table


def _table(title: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left", title_style="bold")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _span(estimate: Estimate) -> str:
    return f"{_figure(estimate.low)} to {_figure(estimate.high)}"
