"""``paceline report``: the results of sweeps as one HTML page, its figures as images, its tables as CSV."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.commands import Panel
from paceline.cli.options import Given, calling

if TYPE_CHECKING:
    from paceline.reporting.exporting import Format
    from paceline.reporting.report import Report

PANEL, ORDER = Panel.PREDICT, 50


@calling("report")
def report(
    given: Given,
    *,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in your browser when it is written.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON which files were written.")] = False,
) -> None:
    """Write a scaling report: one HTML file that opens offline.

    Give several results files to compare them, and your own measurements to see them beside
    the predictions.

    Example: paceline report results.ndjson -o reports/resnet50.html --open
    """
    from paceline import api
    from paceline.cli.ending import StoppedError
    from paceline.cli.terminal import note, stages_bar
    from paceline.reporting.report import StoppedReport

    stopped, formats = None, _formats_of(given.get("formats"), given.get("figures"))
    try:
        with stages_bar() as advance:
            written = api.report(**{**given, "formats": formats}, progress=advance)
    except StoppedReport as stop:
        written, stopped = stop.report, stop
    for text in (*written.notes, *written.unmatched):
        note(text)
    note(f"Wrote {written.path}")
    if written.card is not None:
        note(f"Wrote {written.card}")
    if stopped is not None:
        raise StoppedError(str(stopped))
    if "tables" in given:
        note(f"Wrote {len(written.tables)} tables into {given['tables']}")
    if "figures" in given:
        note(f"Wrote {len(written.figures)} images into {given['figures']}")
    if as_json:
        typer.echo(json.dumps(_as_data(written)))
    if open_ and not webbrowser.open(written.path.resolve().as_uri()):
        note(f"There is no browser to be found; open {written.path} yourself")


def _formats_of(text: str | None, figures: Path | None) -> list[Format]:
    """Read ``png,svg``; both where nothing is said.

    Raises
    ------
    InputError
        There is none, one that figures cannot be written as, or no figure is written.
    """
    from typing import get_args

    from paceline.reporting.exporting import Format
    from simulator.base.errors import InputError
    from simulator.base.text import did_you_mean

    known: tuple[Format, ...] = get_args(Format)
    if text is None:
        return list(known)
    if figures is None:
        raise InputError(f"--format {text[:40]!r}: goes with --figures; add --figures DIR, or leave --format out")
    given = [part.strip().lower() for part in text.split(",")]
    for part in given:
        if part not in known:
            hint = did_you_mean(part, known, "write such as --format png,svg")
            raise InputError(f"--format {text[:40]!r}: {part[:40]!r} must be one of {', '.join(known)}; {hint}")
    return [kind for kind in known if kind in given]


def _as_data(written: Report) -> dict[str, object]:
    """What ``--json`` prints."""
    from simulator.results.results import Result

    results = sum(isinstance(outcome, Result) for outcome in written.outcomes)
    data: dict[str, object] = {"report": str(written.path), "results": results, "notes": list(written.notes), "bytes": written.bytes}
    files = {"tables": written.tables, "figures": written.figures}
    data |= {"card": str(written.card)} if written.card is not None else {}
    return data | {name: [str(file) for file in its] for name, its in files.items() if its}
