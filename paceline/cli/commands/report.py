"""``paceline report``: the results of sweeps as one HTML page, its figures as images, its tables as CSV."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.commands import Panel

__all__ = ["report"]

PANEL, ORDER = Panel.PREDICT, 50


def report(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULTS.ndjson", help="What `paceline sweep --out` wrote; several are compared.", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE.html",
            help="Where to write; left out: beside the (first) results, ending in .html.",
            show_default=False,
        ),
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option(
            metavar="POINTS.csv",
            help="Your own measurements, shown beside the predictions: a table with the columns workers and throughput (samples/s) "
            "and, if you like, servers, staleness and batch.",
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            metavar="PLAN.json", help="A plan's answer, to begin the report with: `paceline plan --out FILE.ndjson` writes FILE.plan.json."
        ),
    ] = None,
    title: Annotated[
        str, typer.Option(metavar="TEXT", help="Heading of the page; left out: the workload's name.", show_default=False)
    ] = "",
    figures: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write each figure as an image; needs Chromium and the extra `figures` of this package."),
    ] = None,
    format_: Annotated[str, typer.Option("--format", metavar="png,svg", help="Formats of --figures, separated by commas.")] = "png,svg",
    tables: Annotated[Path | None, typer.Option(metavar="DIR", help="Also write each table as CSV.")] = None,
    no_simulate: Annotated[
        bool,
        typer.Option("--no-simulate", help="Leave out the timeline and the what-ifs, which simulate the answer again for some seconds."),
    ] = False,
    jobs: Annotated[int, typer.Option(help="Processes for the what-ifs; 0 takes all cores.", min=0)] = 0,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite a file that is no report of ours.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write a scaling report: one HTML file that opens offline.

    Give several results files to compare them, and your own measurements to see them beside
    the predictions.

    Example: paceline report results.ndjson -o reports/resnet50.html --open
    """
    from paceline.cli.ending import StoppedError
    from paceline.cli.reporting import formats_of, open_page, target_of
    from paceline.cli.showing import progress_bar
    from paceline.reporting import write_report
    from paceline.reporting.exporting import check_browser, export_figures
    from paceline.reporting.gathering import gather
    from paceline.reporting.measured import overlay_of
    from paceline.reporting.planned import read_plan, without_what_ifs
    from paceline.reporting.simulated import SimulatedSections, simulated_sections
    from simulator.files import check_folder, check_writable

    formats = formats_of(format_)
    found, labels, failures, notes = gather(results)
    planned = read_plan(plan) if plan is not None else None
    if planned is not None:
        found, labels, left_out = without_what_ifs(found, labels, planned)
        notes += left_out
    overlay = overlay_of(measured, found, labels) if measured is not None else None
    target = target_of(results, out, force=force, reads=[path for path in (measured, plan) if path is not None])
    check_writable(target)
    if figures is not None:
        check_browser()
        check_folder(figures)
    if tables is not None:
        check_folder(tables)
    simulated = SimulatedSections()
    if not no_simulate:
        with progress_bar("what-ifs") as advance:
            simulated = simulated_sections(found, labels, planned, jobs, progress=advance, stoppable=True)
    notes += simulated.notes
    write_report(
        found,
        target,
        notes=notes,
        labels=labels,
        plan=planned,
        measured=overlay,
        timeline=simulated.timeline,
        sensitivity=simulated.sensitivity,
        title=title,
    )
    for note in notes:
        typer.echo(note, err=True)
    for its in overlay.unmatched if overlay is not None else ():
        typer.echo(f"{measured}:{its.line}: {its.setting}: stands beside no prediction: {its.why}", err=True)
    typer.echo(f"Wrote {target}", err=True)
    if simulated.stopped:
        raise StoppedError(f"the report is written, without what-ifs: {target}")
    written: dict[str, object] = {"report": str(target), "results": len(found), "notes": notes, "bytes": target.stat().st_size}
    if tables is not None:
        from paceline.reporting.tables import tables_of, write_tables

        content = tables_of(
            found,
            labels=labels,
            plan=planned,
            measured=overlay,
            timeline=simulated.timeline,
            sensitivity=simulated.sensitivity,
            failures=failures,
        )
        files = write_tables(content, tables)
        typer.echo(f"Wrote {len(files)} tables into {tables}", err=True)
        written["tables"] = [str(file) for file in files]
    if figures is not None:
        with progress_bar("figures") as advance:
            files = export_figures(target, figures, formats, advance)
        typer.echo(f"Wrote {len(files)} images into {figures}", err=True)
        written["figures"] = [str(file) for file in files]
    if as_json:
        typer.echo(json.dumps(written))
    if open_ and not open_page(target):
        typer.echo(f"There is no browser to be found; open {target} yourself", err=True)
