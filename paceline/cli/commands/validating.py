"""``paceline validate``, ``watch`` and ``testbed``: predictions compared with measurements, a running training, and real clusters.

They call ``validate``, ``refit``, ``validate_matrix``, ``watch`` and the ``testbed`` functions of ``paceline.api``;
:mod:`paceline.cli.showing_validation` prints validations. ``_LIMITS`` names the fields of ``Thresholds`` in
:mod:`calibrate.validation.validation`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from paceline.arguments import Typed
from paceline.cli.ending import MISSED
from paceline.cli.options import Given, Yes, calling, command_line

if TYPE_CHECKING:
    from rich.console import Group

    from calibrate.testbed.summary import TestbedRun
    from paceline.watching import Watched

_OF_POINTS = ("settings", "unit", "refit", "out_scenario")
_OF_MATRIX = ("matrix", "count", "list_", "out_matrix", "measurements", "platform", "python", "timeout_s")
_LIMITS = ("max_median", "max_worst", "max_staleness", "max_distance", "min_coverage")
_OF_RESULTS = ("out", "markdown", "rows", "tables", "platform", "measurements", "timeout_s", *_LIMITS)


Limit: TypeAlias = Annotated[str | None, Typed(metavar="SHARE")]
"""A threshold."""
_MOST_EVENTS = 8
"""Most events that the screen of a watch shows."""


@calling(
    "validate", "refit", "validate_matrix",
    optional=("scenario", "measured"),
    only={"refit": "With --refit", "validate_matrix": "Without a scenario"},
    hints={"scenario": "Needs --measured."},
    common={
        "Your own runs": ("measured", "settings", "refit", "out_scenario"),
        "New measurements on this machine": ("matrix", "count", "list_"),
        "Output": ("out", "max_median", "min_coverage", "yes", "json"),
    },
)  # fmt: skip
def validate(
    given: Given,
    *,
    refit: bool = False,
    list_: bool = False,
    max_median: Limit = None,
    max_worst: Limit = None,
    max_staleness: Annotated[Limit, Typed(metavar="UPDATES")] = None,
    max_distance: Limit = None,
    min_coverage: Limit = None,
    details: bool = False,
    yes: Yes = False,
    json: bool = False,
) -> None:
    """Compare predictions with measurements.

    Example: `paceline validate my.toml --measured points.csv --out validation.html`

    Example: `paceline validate --matrix quick --out validation.html`

    Your own runs: give a scenario and --measured. The answer has the signed error of each prediction, and whether each run is inside its
    90% interval. --refit fits the scenario to your runs and predicts each run from the others. POINTS.csv has a heading such as
    `workers,servers,throughput` and a line for each run, such as `8,2,1234.5`.

    New measurements: without a scenario, real TensorFlow clusters run on this machine. Small ones are used for a fit; larger and
    different ones are predicted, measured and compared. --matrix is quick (some minutes); random:SEED, drawn at random as
    docs/measure.md describes; headline, first or development, on which Paceline was developed; or your own file.

    Example: `paceline validate my.toml --measured points.csv --refit --out-scenario refitted.toml`

    Example: `paceline validate --matrix random:1 --count 12 --list`

    The exit code is 3 if any group of settings misses a threshold.

    Parameters
    ----------
    refit
        Fit compute, link and server cost of the scenario to the points, and predict each point from the others. Shows old and new
        values, the points that determine them, and their uncertainty.
    list_
        List the settings of the matrix and about how long they take, without measuring or running any file.
    max_median
        Threshold: median absolute error of throughput, such as 2%.
    max_worst
        Threshold: largest error of throughput, such as 6%.
    max_staleness
        Threshold: largest error of mean staleness, in updates.
    max_distance
        Threshold: largest distance between distributions of staleness, 0 to 1.
    min_coverage
        Threshold: smallest share of runs inside the 90% interval, such as 80%.
    details
        Also show every score, setting, table and note.
    yes
        Skip the confirmation.
    json
        Print every setting and the scores as JSON.
    """
    from paceline import api
    from paceline.cli.ending import keeping
    from paceline.cli.showing_validation import show_matrix, show_validation
    from paceline.cli.terminal import asking, note, progress_bar, show_json, stages_bar
    from paceline.reporting.validation import as_data
    from simulator.base.errors import InputError

    scenario, measured = given.get("scenario"), given.get("measured")
    on_points = scenario is not None or measured is not None
    if on_points:
        given.useless("SCENARIO.toml and --measured", _OF_MATRIX)
    else:
        given.needs("SCENARIO.toml and --measured", _OF_POINTS)
    if not refit:
        given.needs("--refit", ["out_scenario"])
    if list_:
        given.useless("--list", _OF_RESULTS)
    limits = dict(zip(_LIMITS, (max_median, max_worst, max_staleness, max_distance, min_coverage), strict=True))
    common: dict[str, Any] = {"thresholds": {name: text for name, text in limits.items() if text is not None}, "command": command_line()}
    if on_points:
        if scenario is None or measured is None:
            raise InputError("validate: SCENARIO.toml and --measured POINTS.csv belong together; give both")
        common["agree"] = None if yes else asking(scenario, yes=yes)
        with stages_bar() as progress:
            if refit:
                validation = api.refit(**given.of(api.refit), progress=progress, **common).validation
            else:
                validation = api.validate(**given.of(api.validate), progress=progress, **common)
    else:
        out_matrix, measurements = given.get("out_matrix"), given["measurements"]
        asked = {"matrix": given["matrix"], "count": given.get("count"), "force": given["force"]}
        chosen = api.read_matrix(**asked, out_matrix=out_matrix if list_ else None)  # of a run it is written once all files are looked at
        if list_:
            if out_matrix is not None:
                note(f"wrote {out_matrix}")
            show_json(chosen.as_data()) if json else show_matrix(chosen)
            return
        common["agree"] = asking(chosen.name, yes=yes)
        with progress_bar("settings") as advance, keeping(lambda: _kept(measurements)):
            measuring: dict[str, Any] = {**given.of(api.validate_matrix), "matrix": chosen, "count": None}
            validation = api.validate_matrix(**measuring, progress=lambda done, total, _: advance(done, total), **common)
    shown: dict[str, Any] = {"details": details, "kept": "out_scenario" in given, "command": command_line()}
    show_json(as_data(validation)) if json else show_validation(validation, **shown)
    for name in ("out_matrix", "platform", "out_scenario", "out", "markdown", "rows", "tables"):
        if name in given:
            note(f"wrote {given[name]}" + (f"; use it with: paceline simulate {given[name]}" if name == "out_scenario" else ""))
    for line in validation.missed:
        note(f"paceline: threshold missed: {line}")
    if validation.missed:
        raise typer.Exit(MISSED)


def _kept(measurements: Path) -> str:
    """Return a sentence on what a stopped validation leaves behind."""
    some = any(measurements.glob("*-testbed-*.ndjson"))
    return f"finished measurements are kept in {measurements}; run the command again to resume" if some else ""


@calling(
    "watch",
    keys=("replications",),
    common={
        "What to watch": ("settings", "once", "until_steps", "every", "pattern"),
        "Output": ("out_scenario", "force", "yes", "json"),
    },
)
def watch(given: Given, *, yes: Yes = False, json: bool = False) -> None:
    """Compare a running training with its prediction.

    Example: `paceline watch mine.toml run.ndjson`

    Example: `paceline watch mine.toml run.ndjson --once --out-scenario refitted.toml`

    Example: `paceline watch mine.toml worker0.log worker1.log --pattern 'step (?P<step>\\d+) took (?P<time_s>[\\d.]+) s'`

    It reports when and why the training deviates from its prediction. STEPS are files that grow during the training. A callback writes
    one: `model.fit(..., callbacks=[RecordSteps("run.ndjson")])` with `from paceline.keras_callback import RecordSteps`. It also reads a
    TensorBoard folder, a log with step times, a table (CSV) or a profile.

    The watch ends with the training, or with Ctrl-C, and can be started again. The exit code is 3 if the run left its interval, or
    became slower within it.

    Parameters
    ----------
    json
        Print the state as JSON, one line for each look with new steps.
    """
    from paceline import api
    from paceline.cli.ending import Interrupted, Terminated
    from paceline.cli.terminal import asking, display_answer, note

    def in_order(error: Any) -> bool:
        if isinstance(error, Interrupted) and not isinstance(error, Terminated):
            error.heed()
            return True
        return False

    if "out_scenario" not in given:
        given.needs("--out-scenario", ["force"])
    with ExitStack() as shown:
        telling = _as_json() if json else _on_screen(shown, once=given.get("once", False))
        seen = api.watch(**given, agree=asking(given["scenario"], yes=yes), command=command_line(), telling=telling, stopped=in_order)
    if json:
        typer.echo(dumps({**seen.to_dict(), "final": True}, allow_nan=False))
    else:
        display_answer(seen.answer)
    if "out_scenario" in given:
        note(f"wrote {given['out_scenario']}; use it with: paceline simulate {given['out_scenario']}")
    if seen.left:
        raise typer.Exit(MISSED)


def _as_json() -> Callable[[Watched], None]:
    """Return a function that writes a line for each look with new steps or events."""
    before: list[Any] = []

    def tell(update: Watched) -> None:
        at = [[len(verdict.run) for verdict in update.verdicts], update.ended]
        if before != at or update.events:
            before[:] = at
            typer.echo(dumps({**update.to_dict(), "final": False}, allow_nan=False))
            sys.stdout.flush()

    return tell


def _on_screen(shown: ExitStack, *, once: bool) -> Callable[[Watched], None]:
    """Show one screen on a terminal; elsewhere print a line for each event, unless the answer of a single look says it."""
    from paceline.cli.terminal import note, printer

    console = printer(highlight=False)
    if console.is_terminal:
        from rich.live import Live

        events: list[str] = []
        live = shown.enter_context(Live(console=console, refresh_per_second=4))

        def tell(update: Watched) -> None:
            events.extend(update.events)
            live.update(_screen(update, events))

        return tell

    def tell_lines(update: Watched) -> None:
        for event in update.events if len(update.events) > 1 or not once else ():
            note(event)

    return tell_lines


def _screen(update: Watched, events: list[str]) -> Group:
    """Return measured and predicted figures, events, and their causes."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    lines: list[Any] = [update.table().to_rich()]
    lines += [Text(event, style="bold") for event in events[-_MOST_EVENTS:]]
    for reason in dict.fromkeys(reason for reasons in update.reasons.values() for reason in reasons):
        lines += [Text(f"why: {reason.text}"), Padding(Text(reason.remedy), (0, 0, 0, 5))]
    remarks = dict.fromkeys(text for verdict in update.verdicts for text in (*verdict.run.remarks, *verdict.steadiness.remarks))
    lines += [Text(text, style="dim") for text in remarks]
    return Group(*lines)


ABOUT_TESTBED = "Run a real TensorFlow cluster on this machine."

Json: TypeAlias = Annotated[bool, Typed(text="Print as JSON.")]
"""Whether to print the answer as JSON."""


@calling(
    "testbed",
    common={"What to run": ("settings", "repeats", "seed", "python"), "Output": ("measurements", "json")},
)
def run(given: Given, *, json: Json = False) -> None:
    """Run a real TensorFlow cluster on this machine and measure it.

    Without options it runs 4 asynchronous workers and a parameter server on links of 400 Mbit/s, for about a minute. It prints
    updates/s and samples/s of each repeat and the 90% interval of the next, staleness, the parts of a step, and bytes and CPU time of
    each job. Workers and servers are processes in network namespaces that nobody else can reach; nothing is left behind.

    Keys of the setting, for --set and for a file (`paceline schema testbed-setting` has all of them):

    `mode` is one of these. `async` (ParameterServerStrategy with a ClusterCoordinator): one process hands out
    steps, and servers apply updates on arrival. `between-graph` (sessions of tf.compat.v1): the same without
    a coordinator. `sync` (SyncReplicasOptimizer): servers average the gradients of all workers, or of all but
    backup_workers, before they update. `ring` (MultiWorkerMirroredStrategy): all-reduce over a ring, without
    servers. `mirrored` (MirroredStrategy): replicas on logical devices of one process, without a network.
    `apart`: processes compute at the same time and exchange nothing, which shows the cost of busy cores.

    `workers`, `servers`, `backup_workers`, `threads` (TensorFlow threads of each process).

    `link`=loopback, which needs no root; or `link.bandwidth`='1 Gbit/s' per host and direction,
    `link.sharing`=fair (one queue per peer) or tcp (as TCP decides), `link.buffer`='20 ms',
    `link.congestion`=cubic.

    `model`: ladder-1mb, -4mb, -16mb or -64mb (with /16 in 16 variables), FILE.py:FUNCTION as for paceline
    calibrate, or a workload of paceline models list.

    `compute.mean`='50 ms' with `compute.law.kind`=constant, exponential, gamma (`compute.law.shape`) or lognormal
    (`compute.law.sigma`): a sleep drawn from that distribution. `compute.kind`=real: real passes of the model. `batch`: samples per
    worker and step. `overlap`=true: layers pull, compute and push one by one.

    `steps` and `warm_up` of each worker; `start_spread`='1 s' within which asynchronous workers start.

    `checkpoint_every`=20 steps, and in a file `faults`: workers or servers that are killed and come back
    (docs/jobs.md).

    Example: `paceline testbed run --set workers=8 --set servers=2 --set model=ladder-4mb --set compute.mean='50 ms'`

    Example: `paceline testbed run mine.toml --set link=loopback --repeats 5 --json`
    """
    from paceline.api import testbed
    from paceline.cli.terminal import show_json

    with _measuring() as advance:
        ran = testbed(**given, progress=advance)
    if json:
        show_json(ran.to_dict())
    else:
        _print_runs([ran])


@calling()
def show(*, files: Annotated[list[Path], Typed(place=True, metavar="FILE...")], json: bool = False) -> None:
    """Show measurements of `paceline testbed run` again.

    Example: `paceline testbed show measurements/*-testbed-*.ndjson`

    For a run that failed or was stopped, it shows the complete repeats.

    Parameters
    ----------
    files
        Measurement files written by `paceline testbed run`.
    json
        Print as JSON: a list with one entry per file.
    """
    from paceline.api import testbed_read
    from paceline.cli.terminal import show_json

    runs = [testbed_read(file) for file in files]
    if json:
        show_json([run.to_dict() for run in runs])
    else:
        _print_runs(runs)


@calling("testbed_fit", left_out={"out": "testbed.json"})
def fit(given: Given, *, json: bool = False) -> None:
    """Fit the overheads of this machine and of TensorFlow from small runs.

    Each parameter gets a 90% interval and a sentence on the runs that determine it. Without such runs it keeps a documented prior, and
    is marked. You need at least `paceline testbed run --set workers=1 --set compute.law.kind=constant --set model=ladder-4mb`,
    and the same with `--set model=ladder-1mb/16`; for rings one with mode=ring and 2 workers.

    Example: `paceline testbed fit measurements/*-testbed-*.ndjson -o machine.json`

    Parameters
    ----------
    json
        Print the parameters as JSON.
    """
    from paceline.api import testbed_fit
    from paceline.cli.terminal import display, note, progress_bar

    out = given.get("out") or Path("testbed.json")
    with progress_bar("fitting") as advance:
        platform = testbed_fit(**{**given, "out": out}, progress=advance)
    if json:
        typer.echo(platform.model_dump_json(indent=2, exclude={"draws"}))
    else:
        display(platform.table(), "Times in seconds, rates in bytes per second. The file says what determines each.")
    note(f"wrote {out}; predict with `paceline testbed predict {out} --set workers=8 --set servers=2`")


@calling("testbed_predict")
def predict(given: Given, *, json: Json = False) -> None:
    """Predict what `paceline testbed run` would measure in a setting, without running it.

    Example: `paceline testbed predict machine.json --set workers=16 --set servers=2 --set compute.mean='400 ms'`

    Keys of the setting are those of `paceline testbed run`; compute must be emulated.
    """
    from paceline.api import testbed_predict
    from paceline.cli.terminal import display, say, show_json

    prediction = testbed_predict(**given)
    if json:
        show_json(prediction.to_dict())
        return
    display(prediction.table())
    if prediction.undetermined:
        say(f"no run determines these parameters, so priors are used: {', '.join(prediction.undetermined)}")


@contextmanager
def _measuring() -> Iterator[Callable[[float, int], None]]:
    """Show a progress bar for the repeats; if they stop or fail, report how many are kept."""
    from paceline.cli.ending import StoppedError
    from paceline.cli.terminal import note, progress_bar
    from simulator.base.errors import CalibrationError

    try:
        with progress_bar("repeats") as advance:
            yield advance
    except KeyboardInterrupt as error:
        raise StoppedError("; ".join(getattr(error, "__notes__", ()))) from None
    except CalibrationError as error:
        for text in getattr(error, "__notes__", ()):
            note(f"paceline: {text}")
        raise


def _print_runs(runs: Sequence[TestbedRun]) -> None:
    """Print each run in full, then several side by side."""
    from calibrate.testbed.summary import side_by_side
    from paceline.cli.terminal import Styled, display, say

    for run in runs:
        display(Styled(run.label, "bold"), *run.lines())
        for table in run.tables():
            display("", table)
        display(*(Styled(line, "dim", 2) for line in run.remarks()))
        say(f"raw measurements: {run.file}\n")
    if len(runs) > 1:
        display(side_by_side(runs))
