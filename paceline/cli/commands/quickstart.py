"""``paceline quickstart``: from a real training step to a scaling report, in one command.

It calls ``calibrate``, ``sweep`` and ``report`` of ``paceline.api`` in turn, with options of its own. Files of an earlier quickstart are
known by ``_COMMAND`` in their provenance.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from paceline.cli.commands import Panel

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
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Replace the report, and what is written beside it, even if no quickstart wrote it.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print each result as a line of JSON, in place of a table.")] = False,
) -> None:
    """Measure a small Keras model here, predict it on 1 to 256 workers, and write a report.

    It takes about a minute, and needs TensorFlow. It times training steps of a small
    convolutional network on this machine and fits a workload to them. Then it simulates ring
    all-reduce and synchronous and asynchronous parameter servers on an assumed network of
    25 Gbit/s, prints a table and draws a report. On a busy machine it warns and goes on, where
    [bold]paceline calibrate[/bold] would refuse.

    Beside the report it writes the workload and the results. What an earlier quickstart wrote there is
    replaced; anything else needs --force.

    Example: [bold]paceline quickstart --out reports/quickstart.html[/bold]
    """
    from paceline import api
    from paceline.cli.ending import keeping
    from paceline.cli.measuring import measuring, note_of_measurements
    from paceline.cli.showing_results import show_table
    from paceline.cli.terminal import note, progress_bar, stages_bar
    from simulator.base import catalog
    from simulator.catalogue.loading import load_workload

    results_file, workload_file = out.with_suffix(".ndjson"), out.with_suffix(".workload.toml")
    _check_files(out, force=force)

    stopped_before = workload_file.exists() and not (out.exists() and out.stat().st_mtime >= workload_file.stat().st_mtime)
    if stopped_before and _is_own_workload(workload_file):
        note(f"1/3  going on with what was measured before: {workload_file}; delete it to measure again")
        workload = load_workload(workload_file)
    else:
        builder = f"{catalog.builder('cnn')}:build"
        note(f"1/3  profiling {builder} with TensorFlow")
        with measuring() as profiled:
            # a first look, on whatever machine: what was disturbed is said loudly, and no reason to stop
            workload = api.calibrate(
                builder, name=_NAME, batches=_BATCHES, accept_disturbed=True, python=python, out=workload_file, force=force,
                command=_COMMAND, progress=profiled,
            )  # fmt: skip
    note_of_measurements(workload.provenance)

    note(f"2/3  simulating 1 to {_WORKERS[-1]} workers on the assumed network ethernet-25g")
    _check_files(out, force=force)  # once more: some time has passed
    with progress_bar("scenarios") as advance, keeping(lambda: f"the fitted workload is kept: {workload_file}"):
        swept = api.sweep(_table({"use": str(workload_file)}), _over(), out=results_file, jobs=jobs, force=True, progress=advance)
    swept.check()
    results = swept.results

    note("3/3  drawing the report")
    with stages_bar() as parts, keeping(lambda: f"results are kept; draw them with: paceline report {results_file}"):
        api.report(swept, out, force=force, jobs=jobs, progress=parts)
    if json:
        for result in results:
            typer.echo(result.to_json())
    else:
        show_table(results)
    note("The network is an assumption (models/clusters/ethernet-25g.toml): measure yours with `paceline calibrate-link`.")
    note(f"wrote {out}\n      {results_file}\n      {workload_file}")


def _check_files(out: Path, *, force: bool) -> None:
    """Make sure that all files can be written, and that those that are there are of an earlier quickstart.

    Raises
    ------
    InputError, ResultsError
        One cannot, or is something else.
    """
    from paceline.reporting.render import REPORT
    from paceline.sweeping import Journal
    from simulator.base.files import Output, OutputKind, check_apart

    results, workload = out.with_suffix(".ndjson"), out.with_suffix(".workload.toml")
    check_apart([("`out`", out), ("a file beside it", results), ("a file beside it", workload)])
    page = OutputKind("is no report of a quickstart", lambda path: REPORT.holds(path) and _MARK.encode() in path.read_bytes())
    Output(out, page, force=force)
    Output(workload, OutputKind("is no workload of a quickstart", _is_own_workload), force=force, beside=True)
    Output(results, OutputKind("holds no results of a quickstart", _are_own_results), force=force, beside=True)
    if results.exists() and not force:
        with Journal(results):  # which nobody else may be writing to
            pass


_COMMAND = "paceline quickstart"
_MARK = f"<dd><bdi>{_COMMAND}</bdi></dd>"
"""In a report: what made the workload."""


def _is_own_workload(path: Path) -> bool:
    from simulator.base.files import fitted_table

    its = fitted_table(path)
    return bool(its) and its["provenance"]["command"] == _COMMAND


def _are_own_results(path: Path) -> bool:
    """Whether a file has what the sweep of a quickstart gives, or the beginning of that, whatever was measured."""
    from paceline.sweeping import axes_of, grid, outcomes_in
    from paceline.sweeping.lines import begins_line
    from simulator.base.errors import PacelineError

    try:
        found = outcomes_in(path)
        if not found:
            return begins_line(path.read_bytes())
        workload = found[0].scenario.workload
        if workload.provenance.get("command") != _COMMAND:
            return False
        asked = grid(_table(workload.model_dump(mode="json", exclude_none=True)), axes_of(_over()))
        return {its.scenario_hash for its in found} <= {scenario.hash for scenario in asked}
    except PacelineError:
        return False


def _strategies() -> list[dict[str, object]]:
    server = {"kind": "parameter-server", "servers": 4}
    return [{"kind": "multi-worker-mirrored"}, {**server, "mode": "sync"}, {**server, "mode": "async"}]


def _over() -> dict[str, list[Any]]:
    return {"strategy": _strategies(), "strategy.workers": _WORKERS}


def _table(workload: Mapping[str, object]) -> dict[str, object]:
    return {
        "workload": {**workload, "batch_per_replica": 32},
        "cluster": {"use": "ethernet-25g"},
        "run": {"steps": 40, "warmup_steps": 8, "seed": 1, "grouping": "per-server"},
    }
