"""Writes a report of whatever has results: a result, several, a sweep, a plan, results files.

It collects the results, has what-ifs and a timeline simulated (simulated.py), and has page, card and images written (render.py,
exporting.py); of the tables it says which there are (:mod:`paceline.tables`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from paceline.learning.learned import Learned, is_learned, read_learned
from paceline.planning.answer import Plan, read_plan
from paceline.planning.tables import candidates_table, plan_tables
from paceline.reporting.content import Content, content_of
from paceline.reporting.exporting import Format, check_images, export_figures, find_browser
from paceline.reporting.measured import overlay_of
from paceline.reporting.render import CARD, REPORT, render, render_card
from paceline.reporting.simulated import with_simulated
from paceline.sweeping import ResultsFile, Sweep
from paceline.tables import (
    CONFIGURATION,
    EPOCH_COLUMNS,
    EXCHANGE_COLUMNS,
    MEASUREMENT_COLUMNS,
    PART_COLUMNS,
    SENSITIVITY_COLUMNS,
    STAGE_COLUMNS,
    TIMELINE_COLUMNS,
    calibration_table,
    check_tables,
    job_epochs,
    job_parts,
    measured_table,
    numbered_stages,
    sensitivity_table,
    timeline_table,
    write_tables,
)
from simulator.base.errors import InputError, SimulationError
from simulator.base.files import Output, check_apart
from simulator.base.spec import Spec
from simulator.base.table import Column, Row, Table, frame_of
from simulator.base.text import Short, counted, format_bytes
from simulator.results.next_measurement import width_of
from simulator.results.results import Failure, Outcome, Result
from simulator.results.rows import COLUMNS
from simulator.run import simulate
from simulator.spec.figures import Breakdown, Utilisation

if TYPE_CHECKING:
    import pandas as pd

Reported: TypeAlias = Outcome | Iterable[Outcome] | Plan | Learned | ResultsFile | str | Path | Sequence[str | Path]
"""What a report can be of."""
Progress: TypeAlias = Callable[[int, int, str], None]

_MOST_NAMED = 3


@dataclass(frozen=True, repr=False)
class Report(Short):
    """A report that was written.

    Attributes
    ----------
    path
        The HTML file; it opens offline.
    bytes
        Its size.
    notes
        Sentences that it repeats on where its results come from.
    unmatched
        Measured settings that stand beside no prediction, each with its line of the file and the reason.
    tables
        CSV files that were written besides.
    figures
        Images that were written besides.
    card
        The answer as one picture, where one was asked for.
    outcomes
        What it shows.
    """

    see: ClassVar[str] = "open .path in a browser, .notes say where its results come from"

    path: Path
    bytes: int
    notes: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    tables: tuple[Path, ...] = ()
    figures: tuple[Path, ...] = ()
    card: Path | None = None
    outcomes: Sequence[Outcome] = field(default=(), repr=False)

    def _in_short(self) -> Iterator[str]:
        yield f"{self.path} ({format_bytes(self.bytes)})"
        yield counted(len(self.outcomes), "result")
        for what, files in (("figure", self.figures), ("table", self.tables)):
            yield f"{counted(len(files), what)} as files" if files else ""

    def to_frame(self) -> pd.DataFrame:
        """A row each of what it shows, columns as in :data:`simulator.results.rows.COLUMNS`."""
        return frame_of(self.outcomes)

    def _repr_html_(self) -> str:
        row: Row = {"file": str(self.path), "MiB": self.bytes / 2**20, "results": len(self.outcomes), "notes": " ".join(self.notes)}
        return Table.of([row], "Report").to_html()


class StoppedReport(KeyboardInterrupt):
    """Ctrl-C came while what-ifs were simulated: the report is written without them.

    Attributes
    ----------
    report
        What was written.
    """

    def __init__(self, report: Report) -> None:
        super().__init__(f"the report is written, without what-ifs: {report.path}")
        self.report = report


@dataclass(frozen=True)
class Source:
    """What a report is of.

    Attributes
    ----------
    results, failures
        Of scenarios.
    notes
        Sentences on what a reader must know; where there are several files, after the file's name.
    labels
        For each result the name of its file, with as much of its path as tells it from the others; None for a single file.
    plan
        That the results are of.
    files
        That they were read from.
    learned
        What was learned with several ways of training.
    """

    results: Sequence[Result]
    failures: Sequence[Failure] = ()
    notes: tuple[str, ...] = ()
    labels: list[str] | None = None
    plan: Plan | None = None
    files: tuple[Path, ...] = ()
    learned: Learned | None = None


def report(
    source: Reported,
    out: Path | None = None,
    *,
    plan: Plan | Path | None = None,
    learned: Learned | Path | None = None,
    title: str = "",
    measured: Path | None = None,
    what_ifs: bool = True,
    figures: Path | None = None,
    formats: Sequence[Format] = ("png", "svg"),
    tables: Path | None = None,
    card: Path | None = None,
    force: bool = False,
    jobs: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Write a report; parameters and errors as of :func:`paceline.report`."""
    shown = _with_plan(_source_of(source), plan)
    if learned is not None:
        shown = replace(shown, learned=read_learned(learned) if isinstance(learned, Path) else learned)
    overlay = overlay_of(measured, shown.results, shown.labels) if measured is not None else None
    reads = [path for path in (measured, plan, learned) if isinstance(path, Path)]
    target = _target(shown.files, out, force=force, reads=reads)
    reads += shown.files
    check_apart([("`out`", target), ("`card`", card)])
    picture = Output(card, CARD, force=force, argument="card", reads=reads) if card is not None else None
    if figures is not None:
        find_browser()
        check_images(figures, formats, force=force)
    content = content_of(
        shown.results, shown.notes, labels=shown.labels, plan=shown.plan, measured=overlay, learned=shown.learned, failures=shown.failures,
        title=title,
    )  # fmt: skip
    outputs: dict[str, Output] = {}
    if tables is not None:
        outputs = check_tables([*tables_of(content), *(_SIMULATED if what_ifs else ())], tables, force=force, reads=reads)
    known, stopped = len(content.notes), None
    if what_ifs:
        content, stopped = with_simulated(content, jobs, progress=_part(progress, "what-ifs"))
    Output(target, REPORT, force=force).write(render(content))
    if picture is not None:
        picture.write(render_card(content))
    unmatched = tuple(
        f"{measured}:{row.line}: {row.setting}: stands beside no prediction: {row.why}" for row in (overlay.unmatched if overlay else ())
    )
    notes = (*shown.notes, *content.notes[known:])
    done = Report(target, target.stat().st_size, notes, unmatched, card=card, outcomes=(*shown.results, *shown.failures))
    if stopped is not None:
        raise StoppedReport(done) from stopped
    written = write_tables({table.name: table for table in tables_of(content)}, outputs) if tables is not None else ()
    images = export_figures(target, figures, formats, _part(progress, "figures"), force=force) if figures is not None else ()
    return replace(done, tables=written, figures=images)


def _part(progress: Progress | None, part: str) -> Callable[[int, int], None] | None:
    """Progress of a part of the work."""
    return None if progress is None else lambda done, total: progress(done, total, part)


def _source_of(source: object) -> Source:
    """Whatever has results.

    Raises
    ------
    InputError
        It has none, or a file is given twice.
    ResultsError
        A file cannot be read.
    """
    if isinstance(source, Learned):
        return _of_learned(source)
    if isinstance(source, Plan):
        return Source([candidate.result for candidate in source.candidates], notes=source.notes, plan=source)
    if isinstance(source, Sweep):
        try:
            source.check()
        except SimulationError as error:
            return _of(source, (f"{error}.",))
        return _of(source)
    if isinstance(source, ResultsFile):
        return _of(source, source.notes)
    if paths := _paths(source):
        if len(paths) == 1 and is_learned(paths[0]):
            return replace(_of_learned(read_learned(paths[0])), files=tuple(paths))
        return source_of_files(paths)
    if isinstance(source, Iterable) and not isinstance(source, Spec):
        return _of(source)
    return _of([source])


def _of_learned(learned: Learned) -> Source:
    """Return what was learned, with the results of its scenarios, which are simulated again: that takes a moment."""
    scenarios = {way.scenario.hash: way.scenario for way in learned.ways}
    return Source([simulate(scenario) for scenario in scenarios.values()], learned=learned)


def _of(outcomes: Iterable[object], notes: Sequence[str] = ()) -> Source:
    results, failures = [], []
    for outcome in outcomes:
        if isinstance(outcome, Result):
            results.append(outcome)
        elif isinstance(outcome, Failure):
            failures.append(outcome)
        else:
            raise InputError(f"`source`: must be results, a sweep, a plan or results files, not {type(outcome).__name__}")
    return Source(results, failures, tuple(notes))


def source_of_files(paths: Sequence[Path]) -> Source:
    """All results of some files.

    Raises
    ------
    InputError
        A file is given twice.
    ResultsError
        One of them cannot be read.
    """
    for index, path in enumerate(paths):
        for earlier in paths[:index]:
            if earlier == path or (path.exists() and earlier.exists() and path.samefile(earlier)):
                raise InputError(f"{path}: is given twice; give each results file once")
    files = [ResultsFile.read(path) for path in paths]
    names = _names(paths)
    every = [(name, result) for name, file in zip(names, files, strict=True) for result in file.results]
    notes = [f"{file.path}: {note}" if len(files) > 1 else note for file in files for note in file.notes]
    return Source(
        [result for _, result in every],
        [failure for file in files for failure in file.failures],
        tuple(notes),
        [name for name, _ in every] if len(files) > 1 else None,
        files=tuple(paths),
    )


def _names(paths: Sequence[Path]) -> list[str]:
    """The name of each file, with as much of its path as tells it from the others."""
    whole = [path.resolve() for path in paths]
    stems = [path.with_suffix("") for path in whole]
    # where two files of a folder differ in the ending alone it is part of the name
    parts = [(path if stems.count(stem) > 1 else stem).parts for path, stem in zip(whole, stems, strict=True)]
    return ["/".join(own[-_depth(own, parts) :]) for own in parts]


def _depth(mine: tuple[str, ...], all_parts: Sequence[tuple[str, ...]]) -> int:
    """How many parts of a path, from its end, no other path has as well."""
    return next(depth for depth in range(1, len(mine) + 1) if sum(parts[-depth:] == mine[-depth:] for parts in all_parts) == 1)


def _with_plan(shown: Source, plan: Plan | Path | None) -> Source:
    """Results with the plan that they are of; those on machines that it simulated for its improvements alone stand in their table."""
    if plan is None:
        return shown
    answer = read_plan(plan) if isinstance(plan, Path) else plan
    real = {_machines(candidate.result) for candidate in (answer.chosen, *answer.runners_up, *answer.candidates)}
    kept = [index for index, result in enumerate(shown.results) if _machines(result) in real] or range(len(shown.results))
    labels = None if shown.labels is None else [shown.labels[index] for index in kept]
    return replace(shown, results=[shown.results[index] for index in kept], labels=labels, plan=answer)


def _machines(result: Result) -> str:
    """Workload and cluster of a result, whatever its numbers of workers, servers and nodes."""
    scenario = result.scenario
    return scenario.workload.model_dump_json() + scenario.cluster.model_copy(update={"nodes": None, "available": None}).model_dump_json()


def _paths(source: object) -> list[Path]:
    """The files, where the source is one or several of them."""
    if isinstance(source, (str, Path)):
        return [Path(source)]
    if not isinstance(source, Sequence) or not all(isinstance(part, (str, Path)) for part in source):
        return []
    return [Path(part) for part in source]


def _target(files: Sequence[Path], out: Path | None, *, force: bool, reads: Sequence[Path]) -> Path:
    """Where the page goes.

    Raises
    ------
    InputError
        It is a file that is read, or one that is no report of ours.
    """
    target = out if out is not None else _beside(files) if files else Path("report.html")
    if os.path.exists(target):
        for which, what in ((files, "one of the results files"), (reads, "a file that the report is made from")):
            if any(os.path.exists(path) and os.path.samefile(target, path) for path in which):
                raise InputError(f"{target}: is {what}; choose another `out`")
    return Output(target, REPORT, force=force).path


def _beside(files: Sequence[Path]) -> Path:
    """Beside the first of the results files, named after all, or after the first where they are many."""
    first = files[0]
    if len(files) == 1:
        return first.with_suffix(".html")
    stems = [path.stem for path in files]
    name = "-".join(stems) if len(stems) <= _MOST_NAMED else f"{first.stem}-and-{len(stems) - 1}-more"
    return first.with_name(f"{name[:120]}.html")


# -- all tables of a report, as CSV files with numbers as they are -----------------------------

_ENDS = (("", "mean"), ("_low", "low"), ("_high", "high"))
_KEYS = (CONFIGURATION, *(COLUMNS[name] for name in ("scaling", "replicas", "ranks", "scenario_hash")))
"""What tells the rows of one result from those of the others."""
_OF_PLAN = ("plan-workers", "plan-servers", "plan-improvements", "plan-refused")
"""Tables of a plan that are files of their own: those of candidates are part of one."""
_SIMULATED = (Table("", SENSITIVITY_COLUMNS, (), "sensitivity"), Table("", TIMELINE_COLUMNS, (), "timeline"))
"""Without rows: what is simulated for a report alone, and not known before."""
_OF_EACH: dict[str, tuple[tuple[Column, ...], Callable[[Result], Iterable[object]]]] = {
    "breakdown": (
        (
            *(Column(f"{part}_s", "seconds", of=f"breakdown_s.{part}") for part in Breakdown.model_fields),
            Column("hidden_communication_s", "seconds"),
            Column("step_mean_s", "seconds", of="step_time_s.mean"),
        ),
        lambda result: [result],
    ),
    "utilisation": (tuple(Column(name) for name in Utilisation.model_fields), lambda result: [result.utilisation]),
    "staleness": (
        (Column("staleness", "count"), Column("updates", "count"), Column("share", "share")),
        lambda result: _staleness(result),
    ),
    "replications": (
        (Column("replication", "count"), Column("samples_per_s", "throughput")),
        lambda result: (
            {"replication": number, "samples_per_s": rate} for number, rate in enumerate(result.throughput_of_each_replication)
        ),
    ),
    "all_reduces": (
        (Column("size_bytes", "count"), Column("algorithm", "text"), Column("protocol", "text")),
        lambda result: result.all_reduces,
    ),
    "stages": (STAGE_COLUMNS, numbered_stages),
    "exchanges": (EXCHANGE_COLUMNS, lambda result: result.exchanges),
    "job_parts": (PART_COLUMNS, job_parts),
    "job_epochs": (EPOCH_COLUMNS, job_epochs),
    "contributions": (
        (
            Column("quantity", "text", of="name"),
            Column("kind", "text"),
            *(Column(name + end, "share", of=f"{name}.{of}") for name in ("first", "total") for end, of in _ENDS),
        ),
        lambda result: width_of(result).contributions,
    ),
    "measurements": (MEASUREMENT_COLUMNS, lambda result: width_of(result).measure_next),
    "warnings": (
        (
            Column("code", "text"),
            Column("path", "text"),
            Column("value"),
            Column("low", by=lambda warned: warned.range and warned.range[0]),
            Column("high", by=lambda warned: warned.range and warned.range[1]),
            Column("text", "text"),
        ),
        lambda result: result.warnings,
    ),
}
"""Tables with some rows, or none, for each result, by their names: their columns, and what these read."""
_FAILURES = (
    COLUMNS["scenario_hash"],
    Column("strategy", "text", COLUMNS["strategy"].heading, by=lambda failure: failure.scenario.strategy.title()),
    COLUMNS["cluster"],
    COLUMNS["replicas"],
    Column("kind", "text", of="failed.kind"),
    Column("text", "text", of="failed.text"),
)


def tables_of(content: Content) -> tuple[Table, ...]:
    """The tables of a report; those that would have no row are left out."""
    results, at, plan = content.results, content.at, content.plan
    names = [at.title_of(index) for index in range(len(results))]
    rows = Result.rows_of(results)
    columns = (CONFIGURATION, *(COLUMNS.get(name, Column(name)) for name in rows[0]))
    cells = tuple((name, *row.values()) for name, row in zip(names, rows, strict=True))
    tables = [Table("Results", columns, cells, "results")]
    for name, (own, items_of) in _OF_EACH.items():
        keyed = (
            (configuration, result.scenario.scaling, result.replicas, result.ranks, result.scenario_hash, *row)
            for configuration, result in zip(names, results, strict=True)
            for row in Table.reading("", own, items_of(result)).rows
        )
        tables.append(Table(name.replace("_", "-").capitalize(), (*_KEYS, *own), tuple(keyed), name))
    loads = {result.scenario.workload.name: result.scenario.workload for result in results}
    tables += [calibration_table(loads.values()), Table.reading("Scenarios that failed", _FAILURES, content.failures, "failures")]
    if plan is not None:
        tables.append(candidates_table(plan))
        tables += [replace(table, name=table.name.replace("-", "_")) for table in plan_tables(plan) if table.name in _OF_PLAN]
    if content.measured is not None:
        tables.append(measured_table(content.measured, results))
    tables.append(sensitivity_table(content.sensitivity, content.answer.result.scenario.scaling))
    if content.timeline is not None:
        tables.append(timeline_table(content.timeline))
    return tuple(table for table in tables if table.rows)


def _staleness(result: Result) -> Iterator[Row]:
    """The histogram of an asynchronous training; any other has no staleness."""
    histogram = result.staleness.histogram
    total = sum(histogram.counts)
    for value, count in zip(histogram.values, histogram.counts, strict=True) if result.scenario.strategy.pace.asynchronous else ():
        yield {"staleness": value, "updates": count, "share": count / total if total else None}
