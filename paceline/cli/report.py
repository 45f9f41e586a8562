"""``paceline report``: the results of a sweep as one HTML page."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["report"]


def report(
    results: Annotated[Path, typer.Argument(metavar="RESULTS.ndjson", help="What `paceline sweep --out` wrote.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE.html", help="Where to write; left out: beside the results, ending in .html.", show_default=False
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite a file that is no report of ours.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write a scaling report: one HTML file that opens offline.

    Example: paceline report results.ndjson -o reports/resnet50.html
    """
    from paceline.reporting import read_results, write_report
    from paceline.reporting.render import GENERATOR
    from simulator.errors import InputError

    held = read_results(results)
    target = out if out is not None else results.with_suffix(".html")
    if os.path.exists(target) and os.path.samefile(target, results):
        raise InputError(f"{target}: is the results file itself; choose another path with --out")
    if os.path.isfile(target) and not force and not _is_ours(target, GENERATOR):
        raise InputError(
            f"{target}: is there already and is no report of Paceline; overwrite it with --force, or choose another path with --out"
        )
    write_report(held.results, target, notes=held.notes)
    for note in held.notes:
        typer.echo(note, err=True)
    typer.echo(f"Wrote {target}", err=True)
    if as_json:
        typer.echo(
            json.dumps({"report": str(target), "results": len(held.results), "notes": list(held.notes), "bytes": target.stat().st_size})
        )


def _is_ours(path: Path, mark: str) -> bool:
    """Whether a file is empty or a report, which a new one may replace."""
    try:
        with path.open("rb") as file:
            start = file.read(4096)
    except OSError as error:
        from simulator.errors import InputError

        raise InputError(f"{path}: cannot be read: {error.strerror or type(error).__name__}; choose another path with --out") from None
    return not start or mark.encode() in start
