"""``paceline validate``: predictions beside what was measured.

It calls ``validate``, ``refit`` and ``validate_matrix`` of ``paceline.api`` and prints by :mod:`paceline.cli.showing_validation`.
``_LIMITS`` names the fields of ``Thresholds`` in :mod:`calibrate.validation.validation`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.commands import MISSED, Panel
from paceline.cli.options import Given, calling, command_line

if TYPE_CHECKING:
    from calibrate.validation.validation import Validation

PANEL, ORDER = Panel.MEASURE, 80
_OF_POINTS = ("settings", "unit", "refit", "out_scenario")
_OF_MATRIX = ("matrix", "count", "list_", "out_matrix", "measurements", "platform", "python", "timeout_s")
_LIMITS = ("max_median", "max_worst", "max_staleness", "max_distance", "min_coverage")
_OF_RESULTS = ("out", "markdown", "rows", "tables", "platform", "measurements", "timeout_s", *_LIMITS)


@calling(
    "validate", "refit", "validate_matrix",
    optional=("scenario", "measured"),
    only={"refit": "With --refit", "validate_matrix": "Without a scenario"},
    hints={"scenario": "Needs --measured."},
)  # fmt: skip
def validate(
    given: Given,
    *,
    refit: Annotated[
        bool,
        typer.Option(
            "--refit",
            help="Fit compute, link and server cost of the scenario to the points; shows what moved, from what to what, which points "
            "determine it and what they leave open, and predicts each point from the others.",
        ),
    ] = False,
    list_: Annotated[
        bool,
        typer.Option(
            "--list",
            help="Only show the settings of the matrix, and about how long they take; nothing is measured, and no file of a model run.",
        ),
    ] = False,
    max_median: Annotated[
        str | None, typer.Option(help="Threshold: median size of the error of throughput, such as 2%.", metavar="SHARE", show_default=False)
    ] = None,
    max_worst: Annotated[
        str | None, typer.Option(help="Threshold: largest error of throughput, such as 6%.", metavar="SHARE", show_default=False)
    ] = None,
    max_staleness: Annotated[
        str | None, typer.Option(help="Threshold: largest error of mean staleness, in updates.", metavar="UPDATES", show_default=False)
    ] = None,
    max_distance: Annotated[
        str | None,
        typer.Option(help="Threshold: largest distance between distributions of staleness, 0 to 1.", metavar="SHARE", show_default=False),
    ] = None,
    min_coverage: Annotated[
        str | None,
        typer.Option(help="Threshold: least share of runs inside the 90% interval, such as 80%.", metavar="SHARE", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before simulating or measuring for a long time; go on.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print every setting and the scores as JSON.")] = False,
) -> None:
    """Compare predictions with measurements: your own, or new ones made here.

    [bold]Your own runs[/bold]: give a scenario and --measured. You see the signed error of each
    prediction, and whether each run lies inside its 90% interval. [bold]--refit[/bold] fits the
    scenario to your runs and predicts each run from the others, so that the fit cannot flatter itself.

    [bold]New measurements[/bold]: without any of these, real TensorFlow clusters run on this machine.
    Small ones are fitted; larger and different ones are predicted, measured and compared.
    [bold]--matrix[/bold] names the settings: quick (some minutes); random:SEED, drawn at random as
    docs/testbed.md describes; headline, first and development, which a person chose and Paceline was
    developed on; or a file of yours. The whole matrix is checked before anything is measured.

    Exit code 3 if any group of settings misses a threshold.

    POINTS.csv looks like this: [bold]workers,servers,throughput[/bold] and below it a line
    for each run, such as [bold]8,2,1234.5[/bold].

    Example: [bold]paceline validate async-ps --measured points.csv --out validation.html[/bold]

    Example: [bold]paceline validate my.toml --measured points.csv --refit --out-scenario refitted.toml[/bold]

    Example: [bold]paceline validate --matrix quick --out validation.html[/bold]

    Example: [bold]paceline validate --matrix random:1 --count 12 --list[/bold]
    """
    from paceline import api
    from paceline.cli.asking import asking
    from paceline.cli.ending import keeping
    from paceline.cli.showing_validation import show_matrix, show_validation
    from paceline.cli.terminal import note, progress_bar, show_json, stages_bar
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
        given.useless("--list, which measures nothing", _OF_RESULTS)
    limits = dict(zip(_LIMITS, (max_median, max_worst, max_staleness, max_distance, min_coverage), strict=True))
    common: dict[str, Any] = {"thresholds": {name: text for name, text in limits.items() if text is not None}, "command": command_line()}
    if on_points:
        if scenario is None or measured is None:
            raise InputError("validate: SCENARIO.toml and --measured POINTS.csv belong together; give both")
        common["agree"] = None if yes else asking(scenario, yes=yes)
        with stages_bar() as progress:
            if refit:
                found = api.refit(**given.of(api.refit), progress=progress, **common).validation
            else:
                found = api.validate(**given.of(api.validate), progress=progress, **common)
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
            found = api.validate_matrix(**measuring, progress=lambda done, total, _: advance(done, total), **common)
    show_json(as_data(found)) if json else show_validation(found)
    for name in ("out_matrix", "platform", "out_scenario", "out", "markdown", "rows", "tables"):
        if name in given:
            note(f"wrote {given[name]}" + (f"; use it with: paceline simulate {given[name]}" if name == "out_scenario" else ""))
    if on_points and not refit and not json and (biased := _biased(found)):
        note(f"{biased}; this fits the scenario to the runs:\n  {command_line()} --refit")
    for line in found.missed:
        note(f"paceline: threshold missed: {line}")
    if found.missed:
        raise typer.Exit(MISSED)


def _biased(found: Validation) -> str:
    """That predictions are off to one side by more than runs scatter; "" where they are not."""
    from simulator.base.text import format_share, written

    score = max(found.scores, key=lambda its: abs(its.median_error))
    if abs(score.median_error) <= (score.noise_floor or 0):
        return ""
    than = "" if score.noise_floor is None else f", more than the {format_share(score.noise_floor)} by which runs scatter"
    return f"predictions have a bias of {written(score.median_error, 'error')}{than}"


def _kept(measurements: Path) -> str:
    """What a validation that was stopped leaves behind."""
    some = any(measurements.glob("*-testbed-*.ndjson"))
    return f"what was measured is kept in {measurements}; the same command goes on there" if some else ""
