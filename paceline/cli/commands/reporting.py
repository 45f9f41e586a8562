"""``paceline demo``, ``report``, ``serve`` and ``quickstart``: write a page of results, serve a live page, go from a real step to a page.

``quickstart`` calls ``calibrate``, ``sweep`` and ``report`` of ``paceline.api``. It recognises files of an earlier quickstart by
``_COMMAND`` in their provenance.
"""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping
from contextlib import ExitStack
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.arguments import Force, MustBe
from paceline.cli.options import Given, calling

if TYPE_CHECKING:
    from paceline.reporting.exporting import Format
    from paceline.sweeping import Sweep

_NAME = "quickstart"
_WORKERS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
_BATCHES = (16, 32, 64)


@calling()
def demo(*, out: Path = Path("paceline-demo.html"), force: Force = False, json: bool = False) -> None:
    """Predict a model that comes with Paceline, and write a report.

    It takes some seconds, measures nothing and needs no TensorFlow. It simulates the scenario `ring` on 1 to 64 workers: a small
    convolutional network that was measured on a CPU, on an assumed network of 25 Gbit/s.

    Example: `paceline demo --out demo.html`

    Parameters
    ----------
    out
        The report to write. An earlier report is replaced.
    force
        Replace the file at --out, whatever it is.
    json
        Print each result as a line of JSON, not as a table.
    """
    from paceline import api
    from paceline.cli.terminal import note, progress_bar
    from paceline.reporting.render import REPORT
    from simulator.base.files import Output

    Output(out, REPORT, force=force)
    replaced = out.exists()
    with progress_bar("scenarios") as advance:
        swept = api.sweep("ring", {"strategy.workers": _WORKERS[:7]}, jobs=1, progress=advance)
    _draw_and_show(swept, out, force=force, jobs=1, json=json)
    note(f"{'Replaced' if replaced else 'Wrote'} {out}. Next: paceline init, for a scenario of your own")


@calling(
    "report",
    common={
        "What to show": ("measured", "plan", "learned", "title"),
        "Output": ("out", "card", "figures", "formats", "tables", "force", "open_", "json"),
    },
)
def report(given: Given, *, open_: bool = False, json: bool = False) -> None:
    """Write a scaling report: one HTML file.

    Example: `paceline report results.ndjson -o reports/resnet50.html --open`

    The page works offline. It compares several results files.

    Parameters
    ----------
    open_
        Open the page in your browser when it is written.
    json
        Print the names of the written files as JSON.
    """
    from paceline import api
    from paceline.cli.ending import StoppedError
    from paceline.cli.terminal import note, stages_bar
    from paceline.reporting.report import StoppedReport
    from simulator.results.results import Result

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
    if json:
        results = sum(isinstance(outcome, Result) for outcome in written.outcomes)
        data: dict[str, Any] = {"report": str(written.path), "results": results, "notes": list(written.notes), "bytes": written.bytes}
        data |= {"card": str(written.card)} if written.card is not None else {}
        files = {"tables": written.tables, "figures": written.figures}
        typer.echo(dumps(data | {name: [*map(str, paths)] for name, paths in files.items() if paths}))
    if open_ and not webbrowser.open(written.path.resolve().as_uri()):
        note(f"No browser found; open {written.path} yourself")


def _formats_of(text: str | None, figures: Path | None) -> list[Format]:
    """Read image formats such as ``png,svg``; both by default.

    Raises
    ------
    InputError
        A format is missing or unknown, or no figures are written.
    """
    from typing import get_args

    from paceline.reporting.exporting import Format
    from simulator.base.errors import InputError
    from simulator.base.text import did_you_mean

    known: tuple[Format, ...] = get_args(Format)
    if text is None:
        return list(known)
    if figures is None:
        raise InputError(f"--format {text[:40]!r}: needs --figures; add --figures DIR, or leave --format out")
    parts = [part.strip().lower() for part in text.split(",")]
    for part in parts:
        if part not in known:
            hint = did_you_mean(part, known, "write --format png,svg")
            raise InputError(f"--format {text[:40]!r}: {part[:40]!r} must be one of {', '.join(known)}; {hint}")
    return [kind for kind in known if kind in parts]


@calling("serve")
def serve(given: Given, *, open_: bool = False) -> None:
    """Change a scenario in the browser and see the effect.

    Example: `paceline serve ring --open`

    Example: `paceline serve mine.toml --set strategy.workers=64 --port 8050`

    Move sliders, choose strategies and clusters, or edit the scenario in a form or as TOML. Save the answer as a scenario or a report,
    plan from it, or copy it as a link. Only this machine can reach the page, and the link opens it once. Ctrl-C stops it.

    Parameters
    ----------
    open_
        Open the page in your browser.
    """
    from paceline import api
    from paceline.cli.ending import serving
    from paceline.cli.terminal import note, stages_bar

    answers = False
    with ExitStack() as shown:
        advance = shown.enter_context(stages_bar())

        def ready(link: str) -> None:
            nonlocal answers
            answers = True
            shown.close()
            typer.echo(link)
            note("Open the link. Ctrl-C stops it." if "host" not in given else "Anyone with the link can use the page. Ctrl-C stops it.")
            if open_ and not webbrowser.open(link):
                note("No browser found; open the link yourself")

        with serving(lambda: answers):
            api.serve(**given, ready=ready, progress=advance)


@calling()
def quickstart(
    *,
    out: Path = Path("reports/quickstart.html"),
    python: str | None = None,
    jobs: Annotated[int, MustBe("", least=0)] = 0,
    force: Force = False,
    json: bool = False,
) -> None:
    """Measure a small model here, predict it on 1 to 256 workers.

    It takes about a minute, and needs TensorFlow. It times training steps of a small Keras model, a convolutional network, on this
    machine and fits a workload. Then it simulates ring all-reduce and synchronous and asynchronous parameter servers on an assumed
    network of 25 Gbit/s, prints a table and writes a report. On a busy machine it warns and continues, unlike `paceline calibrate`.

    The workload and the results are written next to the report. Files of an earlier quickstart are replaced; others need --force.

    Example: `paceline quickstart --out reports/quickstart.html`

    Parameters
    ----------
    out
        The report to write.
    python
        A Python that has TensorFlow. Default: the one that runs Paceline.
    jobs
        Processes that simulate; 0: one per core.
    force
        Replace the report and the files next to it, even if no quickstart wrote them.
    json
        Print each result as a line of JSON, not as a table.
    """
    from paceline import api
    from paceline.cli.ending import keeping
    from paceline.cli.terminal import measuring, note, note_of_measurements, progress_bar, remark
    from simulator.base import catalog
    from simulator.catalogue.loading import load_workload

    results_file, workload_file = out.with_suffix(".ndjson"), out.with_suffix(".workload.toml")
    _check_files(out, force=force)

    stopped_before = workload_file.exists() and not (out.exists() and out.stat().st_mtime >= workload_file.stat().st_mtime)
    if stopped_before and _is_own_workload(workload_file):
        note(f"1/3  using earlier measurements: {workload_file} (delete it to measure again)")
        workload = load_workload(workload_file)
    else:
        builder = f"{catalog.builder('cnn')}:build"
        note(f"1/3  profiling {builder} with TensorFlow")
        with measuring() as profiled:
            # a first look, on whatever machine: what was disturbed is said loudly, and no reason to stop
            workload = api.calibrate(
                builder, name=_NAME, batches=_BATCHES, accept_disturbed=True, python=python, out=workload_file, force=force,
                command=_COMMAND, progress=profiled, remark=remark,
            )  # fmt: skip
    note_of_measurements(workload.provenance)

    note(f"2/3  simulating 1 to {_WORKERS[-1]} workers on the assumed network ethernet-25g")
    _check_files(out, force=force)  # once more: some time has passed
    with progress_bar("scenarios") as advance, keeping(lambda: f"the fitted workload is saved: {workload_file}"):
        swept = api.sweep(_table({"use": str(workload_file)}), _over(), out=results_file, jobs=jobs, force=True, progress=advance)
    swept.check()

    note("3/3  drawing the report")
    with keeping(lambda: f"results are saved; draw them with: paceline report {results_file}"):
        _draw_and_show(swept, out, force=force, jobs=jobs, json=json)
    note("The network is an assumption (models/clusters/ethernet-25g.toml): measure yours with `paceline calibrate-link`.")
    note(f"wrote {out}\n      {results_file}\n      {workload_file}")


def _draw_and_show(swept: Sweep, out: Path, *, force: bool, jobs: int, json: bool) -> None:
    """Write the report of a sweep, and show its answer."""
    from paceline import api
    from paceline.cli.showing_results import show_table
    from paceline.cli.terminal import stages_bar

    with stages_bar() as parts:
        api.report(swept, out, force=force, jobs=jobs, progress=parts)
    if json:
        for result in swept.results:
            typer.echo(result.to_json())
    else:
        show_table(swept.results)


def _check_files(out: Path, *, force: bool) -> None:
    """Check that all files can be written, and that existing ones come from an earlier quickstart.

    Raises
    ------
    InputError, ResultsError
        A file cannot be written, or is something else.
    """
    from paceline.reporting.render import REPORT, origin_mark
    from paceline.sweeping import Journal
    from simulator.base.files import Output, OutputKind, check_apart

    results, workload = out.with_suffix(".ndjson"), out.with_suffix(".workload.toml")
    check_apart([("`out`", out), ("a file next to it", results), ("a file next to it", workload)])
    mark = origin_mark(_COMMAND).encode()
    page = OutputKind("is not a report of a quickstart", lambda path: REPORT.holds(path) and mark in path.read_bytes(), ".html")
    Output(out, page, force=force)
    Output(workload, OutputKind("is not a workload of a quickstart", _is_own_workload), force=force, beside=True)
    Output(results, OutputKind("has no results of a quickstart", _are_own_results), force=force, beside=True)
    if results.exists() and not force:
        with Journal(results):  # which nobody else may be writing to
            pass


_COMMAND = "paceline quickstart"


def _is_own_workload(path: Path) -> bool:
    from simulator.base.files import fitted_table

    table = fitted_table(path)
    return bool(table) and table["provenance"]["command"] == _COMMAND


def _are_own_results(path: Path) -> bool:
    """Return whether a file holds the results of a quickstart's sweep, or the first of them."""
    from paceline.sweeping import axes_of, grid, outcomes_in
    from paceline.sweeping.results_file import begins_line
    from simulator.base.errors import PacelineError

    try:
        outcomes = outcomes_in(path)
        if not outcomes:
            return begins_line(path.read_bytes())
        workload = outcomes[0].scenario.workload
        if workload.provenance.get("command") != _COMMAND:
            return False
        asked = grid(_table(workload.model_dump(mode="json", exclude_none=True)), axes_of(_over()))
        return {outcome.scenario_hash for outcome in outcomes} <= {scenario.hash for scenario in asked}
    except PacelineError:
        return False


def _over() -> dict[str, list[Any]]:
    server = {"kind": "parameter-server", "servers": 4}
    strategies = [{"kind": "multi-worker-mirrored"}, {**server, "mode": "sync"}, {**server, "mode": "async"}]
    return {"strategy": strategies, "strategy.workers": _WORKERS}


def _table(workload: Mapping[str, object]) -> dict[str, object]:
    return {
        "workload": {**workload, "batch_per_replica": 32},
        "cluster": {"use": "ethernet-25g"},
        "run": {"steps": 40, "warmup_steps": 8, "seed": 1, "grouping": "per-server"},
    }
