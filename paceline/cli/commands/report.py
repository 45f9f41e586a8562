"""``paceline report``: the results of sweeps as one HTML page, its figures as images, its tables as CSV."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.commands import Panel

if TYPE_CHECKING:
    from paceline.reporting.exporting import Format
    from paceline.reporting.report import Report

__all__ = ["report"]

PANEL, ORDER = Panel.PREDICT, 50


def report(
    source: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULTS.ndjson",
            help="Results file of `paceline sweep` or `paceline plan`; give several to compare them.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE.html",
            help="The page to write; left out: beside the first results file, with its name and .html.",
            show_default=False,
        ),
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option(
            metavar="POINTS.csv",
            help="Your own measurements, to be shown beside the predictions: a table with the columns workers and throughput (samples/s), "
            "and if you like servers, staleness and batch.",
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            metavar="PLAN.json",
            help="Begin the page with the answer of a plan: `paceline plan --out FILE.ndjson` wrote it as FILE.plan.json.",
        ),
    ] = None,
    title: Annotated[
        str, typer.Option(metavar="TEXT", help="Heading of the page; left out: the name of the workload.", show_default=False)
    ] = "",
    figures: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Also write each figure as an image into this folder; needs Chromium and pip install 'paceline\\[figures]'."
        ),
    ] = None,
    formats: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="png,svg", help="Formats of the images, separated by commas; needs --figures.", show_default="png,svg"
        ),
    ] = None,
    tables: Annotated[Path | None, typer.Option(metavar="DIR", help="Also write each table as a CSV file into this folder.")] = None,
    what_ifs: Annotated[
        bool,
        typer.Option(
            "--simulate/--no-simulate",
            help="Whether to simulate the answer again, which takes some seconds, for a timeline and for what changes would bring.",
        ),
    ] = True,
    jobs: Annotated[int, typer.Option(help="Processes for these simulations; 0: one per core.", min=0)] = 0,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in your browser when it is written.")] = False,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Replace the files of --out, --tables and --figures whatever they are.")
    ] = False,
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

    stopped = ""
    try:
        with stages_bar() as advance:
            written = api.report(
                source,
                out,
                plan=plan,
                title=title,
                measured=measured,
                what_ifs=what_ifs,
                figures=figures,
                formats=_formats_of(formats, figures),
                tables=tables,
                force=force,
                jobs=jobs,
                progress=advance,
            )
    except StoppedReport as stop:
        written, stopped = stop.report, str(stop)
    for text in (*written.notes, *written.unmatched):
        note(text)
    note(f"Wrote {written.path}")
    if stopped:
        raise StoppedError(stopped)
    if tables is not None:
        note(f"Wrote {len(written.tables)} tables into {tables}")
    if figures is not None:
        note(f"Wrote {len(written.figures)} images into {figures}")
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
    from simulator.base.nearest import did_you_mean

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
    return data | {name: [str(file) for file in its] for name, its in files.items() if its}
