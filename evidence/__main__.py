"""``python -m evidence``: published tables predicted and compared, and the rows that come of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from evidence.validating import published_scenario, validate_hybrids, validate_published
from paceline.cli.app import main, program
from paceline.cli.options import command_line
from paceline.cli.showing_validation import show_validation
from paceline.cli.terminal import note, progress_bar, show_json
from paceline.reporting.validation import as_data
from simulator.base.files import Output, csv_kind

_MISSED = 3
"""Exit code where a threshold is missed."""

Only = Annotated[list[str] | None, typer.Option("--only", metavar="TABLE|SERIES", help="One table or series. Repeatable.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE.html", help="Write an HTML page.")]
Rows = Annotated[Path | None, typer.Option("--rows", metavar="FILE.csv", help="Write rows that a discrepancy can be estimated from.")]
Tables = Annotated[Path | None, typer.Option("--tables", metavar="FOLDER", help="Write every setting as CSV files into this folder.")]
MaxMedian = Annotated[str | None, typer.Option("--max-median", metavar="SHARE", help="Threshold: median size of errors, such as 8%.")]
MinCoverage = Annotated[str | None, typer.Option("--min-coverage", metavar="SHARE", help="Threshold: share of runs inside the interval.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace files that something else has written.")]
Json = Annotated[bool, typer.Option("--json", help="Print every setting and the scores as JSON.")]


def published(
    regimes: Annotated[list[str] | None, typer.Option("--regime", help="One regime, such as NCCL or moved. Repeatable.")] = None,
    only: Only = None,
    out: Out = None,
    rows: Rows = None,
    tables: Tables = None,
    max_median: MaxMedian = None,
    min_coverage: MinCoverage = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Predict published tables of throughput from their smallest rows and facts about hardware."""
    files = {"out": out, "rows": rows, "tables": tables}
    with progress_bar("series") as advance:
        found = validate_published(
            regimes or [], only=only or [], progress=lambda done, total, _: advance(done, total),
            thresholds=_thresholds(max_median, min_coverage), force=force, command=command_line("python", "-m", "evidence"), **files,
        )  # fmt: skip
    _show(found, files, json=json)


def hybrids(
    only: Only = None,
    keep: Annotated[Path | None, typer.Option("--keep", metavar="FOLDER", help="Keep rows there, and go on behind them.")] = None,
    out: Out = None,
    rows: Rows = None,
    tables: Tables = None,
    max_median: MaxMedian = None,
    min_coverage: MinCoverage = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Predict published trainings that cut a model over devices: pipelines, split tensors, sharded state."""
    files = {"out": out, "rows": rows, "tables": tables}
    with progress_bar("rows") as advance:
        found = validate_hybrids(
            only or [], keep=keep, progress=lambda done, total, _: advance(done, total),
            thresholds=_thresholds(max_median, min_coverage), force=force, command=command_line("python", "-m", "evidence"), **files,
        )  # fmt: skip
    _show(found, files, json=json)


def row(
    name: Annotated[str, typer.Argument(metavar="ROW", help="Its name in the tables, such as 'SERIES: 8 on 2'.")],
    out_scenario: Annotated[Path, typer.Option("--out-scenario", metavar="FILE.toml", help="The scenario's file.")],
    force: Force = False,
) -> None:
    """Write the scenario by which one published row is predicted."""
    published_scenario(name, out_scenario=out_scenario, force=force)
    note(f"wrote {out_scenario}; use it with: paceline simulate {out_scenario}")


def trainings(
    rows: Annotated[Path | None, typer.Option("--rows", metavar="FILE.csv", help="Write every duration and cost as CSV.")] = None,
    learnt: Annotated[
        Path | None, typer.Option("--learnt", metavar="FILE.csv", help="What the stand-in learned; read, or with --replay written.")
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option("--replay", metavar="FOLDER", help="Let the stand-in learn, and keep replays there; a quarter of an hour."),
    ] = None,
    force: Force = False,
) -> None:
    """Predict how long whole published trainings took, what they cost, and which way of training loses accuracy."""
    from evidence.published import accuracies, trainings_report
    from evidence.published import trainings as whole

    outputs = {}
    if rows is not None:
        outputs["rows"] = Output(rows, trainings_report.ROWS_FILE, force=force, argument="rows")
    if learnt is not None and replay is not None:
        outputs["learnt"] = Output(learnt, trainings_report.LEARNT_FILE, force=force, argument="learnt")
    with progress_bar("updates") as advance:
        found = accuracies.learnt(replay, progress=lambda done, total, _: advance(done, total)) if replay is not None else ()
    if learnt is not None and replay is None:
        found = accuracies.learnt_from(learnt)
    durations, eight = whole.trainings(), whole.switched_rows()
    texts = trainings_report.tables_of(durations, eight, accuracies.published_accuracies(), found)
    typer.echo("\n\n".join(texts.values()))
    if "rows" in outputs:
        outputs["rows"].write(trainings_report.rows_table((*durations, *eight)).to_csv())
    if "learnt" in outputs:
        outputs["learnt"].write(trainings_report.learnt_table(found).to_csv())
    for path in filter(None, (rows, learnt if replay is not None else None)):
        note(f"wrote {path}")


def _thresholds(max_median: str | None, min_coverage: str | None) -> dict[str, str]:
    return {name: text for name, text in (("max_median", max_median), ("min_coverage", min_coverage)) if text is not None}


def _show(found: Any, files: dict[str, Path | None], *, json: bool) -> None:
    show_json(as_data(found)) if json else show_validation(found)
    for path in filter(None, files.values()):
        note(f"wrote {path}")
    for line in found.missed:
        note(f"threshold missed: {line}")
    if found.missed:
        raise typer.Exit(_MISSED)


def batches(
    rows: Annotated[Path | None, typer.Option("--rows", metavar="FILE.csv", help="Write every batch as CSV.")] = None,
    force: Force = False,
) -> None:
    """Predict how many samples published trainings took at larger batches, by the gradient noise scale; print Markdown tables."""
    from evidence.published.batches import batch_rows, rows_table, scores_table

    found = batch_rows()
    table = rows_table(found)
    output = None
    if rows is not None:
        output = Output(rows, csv_kind([column.name for column in table.columns]), force=force, argument="rows")
    typer.echo(scores_table(found).to_markdown())
    typer.echo(table.to_markdown() if output is None else f"wrote {output.write(table.to_csv())}")


app = program("Published tables that predictions are compared with.", published, hybrids, trainings, batches, row)

if __name__ == "__main__":
    main(app, "python -m evidence")
