"""``paceline quickstart``: from a real training step to a scaling report, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from paceline.cli.commands import Panel

__all__ = ["quickstart"]

PANEL, ORDER = Panel.PREDICT, 10

_NAME = "quickstart"
_WORKERS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
_BATCHES = (16, 32, 64)


def quickstart(
    out: Annotated[Path, typer.Option("--out", help="The report to write.")] = Path("reports/quickstart.html"),
    python: Annotated[
        str | None, typer.Option(help="Python that has TensorFlow; left out: the one that runs paceline.", show_default=False)
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes that simulate; 0: one per core.", min=0)] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print each result as a line of JSON, in place of a table.")] = False,
) -> None:
    """Measure a small Keras model here, predict it on 1 to 256 workers, and write a report.

    It takes about a minute, and needs TensorFlow. It times training steps of a small
    convolutional network on this machine and fits a workload to them. Then it simulates ring
    all-reduce and synchronous and asynchronous parameter servers on an assumed network of
    25 Gbit/s, prints a table and draws a report. On a busy machine it warns and goes on, where
    [bold]paceline calibrate[/bold] would refuse.

    Example: [bold]paceline quickstart --out reports/quickstart.html[/bold]
    """
    from paceline import api
    from paceline.cli.ending import keeping
    from paceline.cli.measuring import measuring, note_of_measurements
    from paceline.cli.showing_results import show_table
    from paceline.cli.terminal import note, progress_bar, stages_bar
    from simulator import catalog
    from simulator.files import check_writable
    from simulator.loading import load_workload

    check_writable(out)
    results_file = check_writable(out.with_suffix(".ndjson"))
    workload_file = check_writable(out.with_suffix(".workload.toml"))

    stopped_before = workload_file.exists() and not (out.exists() and out.stat().st_mtime >= workload_file.stat().st_mtime)
    if stopped_before:
        note(f"1/3  going on with what was measured before: {workload_file}; delete it to measure again")
        workload = load_workload(workload_file)
    else:
        builder = f"{catalog.builder('cnn')}:build"
        note(f"1/3  profiling {builder} with TensorFlow")
        with measuring() as profiled:
            # a first look, on whatever machine: what was disturbed is said loudly, and no reason to stop
            workload = api.calibrate(
                builder, name=_NAME, batches=_BATCHES, accept_disturbed=True, python=python, out=workload_file,
                command="paceline quickstart", progress=profiled,
            )  # fmt: skip
    note_of_measurements(workload.provenance)

    note(f"2/3  simulating 1 to {_WORKERS[-1]} workers on the assumed network ethernet-25g")
    over: dict[str, list[Any]] = {"strategy": _strategies(), "strategy.workers": _WORKERS}
    with progress_bar("scenarios") as advance, keeping(lambda: f"the fitted workload is kept: {workload_file}"):
        swept = api.sweep(_table(workload_file), over, out=results_file, jobs=jobs, force=True, progress=advance)
    swept.check()
    results = swept.results

    note("3/3  drawing the report")
    with stages_bar() as parts, keeping(lambda: f"results are kept; draw them with: paceline report {results_file}"):
        api.report(swept, out, force=True, jobs=jobs, progress=parts)
    if json:
        for result in results:
            typer.echo(result.to_json())
    else:
        show_table(results)
    note("The network is an assumption (models/clusters/ethernet-25g.toml): measure yours with `paceline calibrate-link`.")
    note(f"wrote {out}\n      {results_file}\n      {workload_file}")


def _strategies() -> list[dict[str, object]]:
    server = {"kind": "parameter-server", "servers": 4}
    return [{"kind": "multi-worker-mirrored"}, {**server, "mode": "sync"}, {**server, "mode": "async"}]


def _table(workload_file: Path) -> dict[str, object]:
    return {
        "workload": {"use": str(workload_file), "batch_per_replica": 32},
        "cluster": {"use": "ethernet-25g"},
        "run": {"steps": 40, "warmup_steps": 8, "seed": 1, "grouping": "per-server"},
    }
