"""``paceline watch``: a running training beside its prediction, on one screen, or as lines of JSON.

It calls ``paceline.api.watch``.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.commands import MISSED, Panel
from paceline.cli.options import Given, Yes, calling, command_line

if TYPE_CHECKING:
    from rich.console import Group

    from paceline.watching import Update

PANEL, ORDER = Panel.MEASURE, 85
_MOST_EVENTS = 8


@calling("watch", keys=("replications",))
def watch(
    given: Given,
    *,
    yes: Yes = False,
    json: Annotated[bool, typer.Option("--json", help="Print how it stands as JSON, one line per look that has new steps.")] = False,
) -> None:
    """Follow a running training beside its prediction: since when and why it is not as predicted.

    STEPS are files that record steps while it trains: a line in your script writes one,
    [bold]model.fit(..., callbacks=[RecordSteps("run.ndjson")])[/bold] with
    [bold]from paceline.keras_callback import RecordSteps[/bold]. TensorBoard's folder, a log with step times,
    a table (CSV) and a profile can be watched too.

    The watch ends with the training, or with Ctrl-C. It may be stopped and begun again.

    Exit code 3 if the run left its interval, or became slower within it.

    Example: [bold]paceline watch mine.toml run.ndjson[/bold]

    Example: [bold]paceline watch mine.toml run.ndjson --once --out-scenario refitted.toml[/bold]

    Example: [bold]paceline watch mine.toml worker0.log worker1.log --pattern 'step (?P<step>\\d+) took (?P<time_s>[\\d.]+) s'[/bold]
    """
    from paceline import api
    from paceline.cli.asking import asking
    from paceline.cli.ending import Interrupted, Terminated
    from paceline.cli.terminal import note, say

    def in_order(error: Any) -> bool:
        if isinstance(error, Interrupted) and not isinstance(error, Terminated):
            error.heed()
            return True
        return False

    if "out_scenario" not in given:
        given.needs("--out-scenario", ["force"])
    with ExitStack() as shown:
        telling = _as_json() if json else _on_screen(shown)
        seen = api.watch(**given, agree=asking(given["scenario"], yes=yes), command=command_line(), telling=telling, stopped=in_order)
    if json:
        typer.echo(dumps({**seen.to_dict(), "final": True}, allow_nan=False))
    else:
        say(f"{seen.sentence}.")
    if "out_scenario" in given:
        note(f"wrote {given['out_scenario']}; use it with: paceline simulate {given['out_scenario']}")
    if seen.left:
        raise typer.Exit(MISSED)


def _as_json() -> Any:
    """Writes a line for each look with new steps or news."""
    before: dict[str, Any] = {}

    def tell(update: Update) -> None:
        at = [len(its.run) for its in update.verdicts], update.ended
        if before.get("at") != at or update.events:
            before["at"] = at
            typer.echo(dumps({**update.to_dict(), "final": False}, allow_nan=False))
            sys.stdout.flush()

    return tell


def _on_screen(shown: ExitStack) -> Any:
    """One screen where there is a terminal; else what is new, a line each, and the figures once at the end."""
    from paceline.cli.terminal import note, printer

    console = printer(highlight=False)
    events: list[str] = []
    last: list[Update] = []
    if console.is_terminal:
        from rich.live import Live

        live = shown.enter_context(Live(console=console, refresh_per_second=4))

        def tell(update: Update) -> None:
            events.extend(update.events)
            live.update(_screen(update, events))

        return tell

    def tell_lines(update: Update) -> None:
        for event in update.events:
            note(event)
            events.append(event)
        if not last:
            shown.callback(lambda: console.print(_screen(last[-1], [])))
        last.append(update)
        del last[:-1]

    return tell_lines


def _screen(update: Update, events: list[str]) -> Group:
    """What is measured beside what is predicted, what happened, and why."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    lines: list[Any] = [update.table().to_rich()]
    lines += [Text(event, style="bold") for event in events[-_MOST_EVENTS:]]
    for reason in dict.fromkeys(reason for reasons in update.reasons.values() for reason in reasons):
        lines += [Text(f"why: {reason.text}"), Padding(Text(reason.remedy), (0, 0, 0, 5))]
    remarks = dict.fromkeys(text for its in update.verdicts for text in (*its.run.remarks, *its.found.remarks))
    lines += [Text(text, style="dim") for text in remarks]
    return Group(*lines)
