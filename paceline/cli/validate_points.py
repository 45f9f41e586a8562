"""``paceline validate SCENARIO.toml --measured POINTS.csv``: a user's own runs beside the predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from calibrate.validation.points import Setting, Unit, base_scenario, compared, read_points, scenarios_at
from calibrate.validation.validation import scores_of
from paceline.cli.asking import agree_to_sweep, cores_of
from paceline.cli.calibrating import command_line
from paceline.cli.options import parse_setting
from paceline.cli.showing import note, progress_bar
from paceline.cli.validating import Wanted, check_outputs, finish, machine, today
from paceline.reporting.validation.content import Validation
from paceline.sweeping import sweep
from paceline.sweeping.backends import local_workers
from simulator.catalog import scenario_file
from simulator.errors import InputError
from simulator.files import check_writable, write_whole
from simulator.loading import apply_settings, read_toml
from simulator.resolve import resolve
from simulator.results import Result
from simulator.scenario import Scenario

__all__ = ["validate_points"]

AS_GIVEN = "as given"
LEFT_OUT = "each point from the others"
REFITTED = "refitted to all points"


def validate_points(
    scenario: Path, measured: Path, unit: str, set_: Sequence[str], wanted: Wanted, *, yes: bool, refit: bool, out_scenario: Path | None
) -> None:
    """Simulate the scenario at every setting measured, compare, and with ``refit`` bring it to them."""
    if unit not in get_args(Unit):
        raise InputError(f"--unit {unit[:40]!r}: must be samples/s or updates/s")
    if out_scenario is not None and not refit:
        raise InputError("--out-scenario: is the scenario with refitted values; give --refit too")
    file = scenario_file(scenario)
    settings = read_points(measured)
    table = apply_settings(read_toml(file), [parse_setting(text) for text in set_], f"{file}: ")
    check_outputs(wanted, file, measured)
    _check_scenario(out_scenario, wanted, file, measured)
    case = _Case(table, file, measured, settings, "samples/s" if unit == "samples/s" else "updates/s")
    given = case.scenarios(table)
    agree_to_sweep(given, range(len(given)), str(file), cores=cores_of(0), yes=yes)
    if refit:
        _refitted(case, wanted, out_scenario)
        return
    with progress_bar("settings") as advance:
        results = _simulated(given, advance)
    rows = tuple(compared(settings, results, case.unit))
    finish(case.validation(rows, scores_of(rows), results), wanted)


def _check_scenario(out: Path | None, wanted: Wanted, *reads: Path) -> None:
    if out is None:
        return
    for read in reads:
        check_writable(out, reads=read)
    if out.exists() and not wanted.force:
        raise InputError(f"--out-scenario {str(out)!r}: is there already; overwrite it with --force, or choose another name")
    if out.resolve() in [path.resolve() for path in (wanted.out, wanted.markdown, wanted.rows) if path is not None]:
        raise InputError(f"--out-scenario {str(out)!r}: is another output too; give it a name of its own")


class _Case:
    """A scenario, the points that were measured of it, and what is said of both."""

    def __init__(self, table: Mapping[str, Any], file: Path, measured: Path, settings: Sequence[Setting], unit: Unit) -> None:
        self.table, self.file, self.measured, self.settings, self.unit = table, file, measured, settings, unit
        self.base = resolve(base_scenario(table, settings, source=str(file), beside=file.parent)).scenario  # what a refit scales

    def scenarios(self, table: Mapping[str, Any], settings: Sequence[Setting] | None = None) -> list[Scenario]:
        """The scenario of a table at every setting, or at some."""
        chosen = self.settings if settings is None else settings
        return scenarios_at(table, chosen, source=str(self.file), points=self.measured, beside=self.file.parent)

    def validation(self, rows: Sequence[Any], scores: Sequence[Any], results: Sequence[Result], **more: Any) -> Validation:
        """Everything that is told of it."""
        run = self.base.run
        runs = sum(len(setting.throughput) for setting in self.settings)
        length = f"a job of {run.job_steps:,} steps" if run.job_steps else f"{run.steps:,} steps of each worker"
        about = (
            f"{self.measured.name} holds {runs} run{'s' if runs > 1 else ''} at {len(self.settings)} "
            f"setting{'s' if len(self.settings) > 1 else ''}; each setting was simulated as {self.file.name} with its workers, servers and "
            f"batch: {run.replications} replications of {length}, seed {run.seed}.",
        )
        notes = [*more.pop("notes", ()), *_warnings(results)]
        if all(len(setting.throughput) == 1 for setting in self.settings):
            notes.insert(0, "No setting was measured twice, so how much of an error is noise cannot be told: repeat some runs.")
        return Validation(
            key="points",
            title=f"{self.base.workload.name}, {self.base.strategy.way}",
            rows=tuple(rows),
            scores=tuple(scores),
            command=command_line(),
            date=today(),
            machine=machine(),
            about=about,
            notes=tuple(notes),
            overlay=tuple(dict.fromkeys(row.group for row in rows if row.group != LEFT_OUT)),
            **more,
        )


def _warnings(results: Sequence[Result]) -> Iterator[str]:
    """What the predictions warn of, each kind once."""
    told: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for warning in result.warnings:
            told.setdefault((warning.code, warning.path), []).append(warning.text)
    for texts in told.values():
        yield (
            texts[-1]
            if len(texts) in (1, len(results)) and len(set(texts)) == 1
            else f"{texts[-1]} ({len(texts)} of {len(results)} settings)"
        )


def _refitted(case: _Case, wanted: Wanted, out_scenario: Path | None) -> None:
    import tomlkit

    from calibrate.validation.discrepancy import own_discrepancy
    from calibrate.validation.refit import refit, refitted_table
    from paceline.cli.telling_refit import about_refit, refit_data, refit_tables

    given = case.scenarios(case.table)
    with progress_bar("fits") as advance, _spread() as apply:
        found = refit(case.settings, given, case.unit, apply=apply, progress=advance)

    def table_of(fitted: Any) -> dict[str, Any]:
        about = f"fitted to {case.measured.name} by {command_line()}"
        return refitted_table(case.table, case.base, fitted, about=about, beside=case.file.parent)

    final = table_of(found.fitted)
    alone = [
        scenario
        for setting, fitted in zip(case.settings, found.left_out, strict=False)
        for scenario in case.scenarios(table_of(fitted), [setting])
    ]
    with progress_bar("settings") as advance:
        results = _simulated([*given, *(case.scenarios(final) if found.fitted.moved else []), *alone], advance)
    count = len(given)
    rows = compared(case.settings, results[:count], case.unit, group=AS_GIVEN)
    if found.fitted.moved:
        rows += compared(case.settings, results[count : 2 * count], case.unit, group=REFITTED, fitted=True)
    notes = about_refit(found, case.settings)
    if alone:
        left_out = compared(case.settings, results[2 * count :], case.unit, group=LEFT_OUT)
        rows += left_out
        own = own_discrepancy(left_out, results[2 * count :])
        if own is not None:
            final = {**final, "discrepancy": own.discrepancy.model_dump(exclude_defaults=True)}
            notes.append(f"What predictions are off by, in [discrepancy] of the refitted scenario, is {own.discrepancy.about}.")
    scores = [score for score in scores_of(rows) if score.group in (AS_GIVEN, LEFT_OUT)]
    validation = case.validation(
        rows,
        scores,
        results[:count],
        notes=notes,
        tables=refit_tables(found, case.base, case.settings),
        headline=LEFT_OUT if alone else AS_GIVEN,
        checked=(LEFT_OUT if alone else AS_GIVEN,),
        extra={"refit": refit_data(found, case.base, case.settings)},
    )
    if out_scenario is not None:
        write_whole(out_scenario, tomlkit.dumps(final))
        note(f"wrote {out_scenario}; use it with: paceline simulate {out_scenario}")
    finish(validation, wanted)


def _simulated(scenarios: Sequence[Scenario], advance: Callable[[int, int], None]) -> Sequence[Result]:
    """All replications of every scenario, on all cores."""
    swept = sweep(scenarios, progress=advance)
    swept.check()
    return swept.results


@contextmanager
def _spread() -> Iterator[Callable[[Callable[[Scenario], Any], Iterable[Scenario]], Iterable[Any]]]:
    """A ``map`` over all cores, whose processes stay for as long as they are needed."""
    with local_workers(0) as workers:
        yield lambda function, scenarios: list(workers.map(function, list(scenarios)))
