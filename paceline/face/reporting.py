"""report: results, a sweep or a plan as one HTML file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from paceline.face.arguments import checked
from simulator.errors import InputError, SimulationError
from simulator.files import check_writable
from simulator.results import Outcome, Result
from simulator.spec import Spec
from simulator.table import Row, Table, frame_of

if TYPE_CHECKING:
    import pandas as pd

    from paceline.planning.answer import Plan
    from paceline.reporting import ResultsFile

__all__ = ["Report", "report"]

Reported: TypeAlias = "Outcome | Iterable[Outcome] | Plan | ResultsFile | str | Path | Sequence[str | Path]"
"""What a report can be of."""


@dataclass(frozen=True)
class Report:
    """A report that was written.

    Attributes
    ----------
    path
        The HTML file; it opens offline.
    bytes
        Its size.
    notes
        Sentences that it repeats on where its results come from.
    outcomes
        What it shows.
    """

    path: Path
    bytes: int
    notes: tuple[str, ...] = ()
    outcomes: Sequence[Outcome] = field(default=(), repr=False)

    def to_frame(self) -> pd.DataFrame:
        """A row each of what it shows, columns as in :data:`simulator.rows.COLUMNS`."""
        return frame_of(self.outcomes)

    def _repr_html_(self) -> str:
        row: Row = {"file": str(self.path), "MiB": self.bytes / 2**20, "results": len(self.outcomes), "notes": " ".join(self.notes)}
        return Table.of([row], "Report").to_html()


@checked
def report(
    source: Reported,
    out: str | Path = "report.html",
    *,
    title: str = "",
    measured: str | Path | None = None,
    what_ifs: bool = True,
    jobs: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Write a report of some results: one HTML file that opens offline.

    Parameters
    ----------
    source
        A result, several, a sweep, a plan, a results file (its path, or what :func:`read_results` read),
        or several paths to compare.
    out
        Where to write; a file that is there is replaced.
    title
        Heading of the page; left out: the workload's name.
    measured
        A table (CSV) of your own measurements to show beside the predictions, with the
        columns workers and throughput (samples/s) and, if you like, servers, staleness, batch.
    what_ifs
        Simulate the report's answer again, which takes some seconds, for the timeline of
        some of its steps and for what one change at a time would gain.
    jobs
        Processes for that; 0 takes all cores.
    progress
        Called with what-ifs done and in all.

    Raises
    ------
    ResultsError
        There is no result, or a file cannot be read.
    InputError
        ``out`` cannot be written, or is one of the files that are read.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import paceline
    >>> result = paceline.simulate(paceline.load("ring", {"run.steps": 10, "run.replications": 3}))
    >>> with TemporaryDirectory() as folder:
    ...     written = report(result, f"{folder}/ring.html", what_ifs=False)
    >>> written.path.name, len(written.to_frame())
    ('ring.html', 1)
    """
    from paceline.planning.answer import Plan
    from paceline.reporting import ResultsFile, write_report
    from paceline.reporting.gathering import labels_of, read_all
    from paceline.reporting.measured import overlay_of
    from paceline.reporting.simulated import SimulatedSections, simulated_sections
    from paceline.sweeping import Sweep

    target = Path(out)
    notes: list[str] = []
    labels: list[str] | None = None
    chosen: Plan | None = None
    outcomes: Sequence[Outcome]
    if isinstance(source, Outcome):
        outcomes = [source]
    elif isinstance(source, Plan):
        chosen, outcomes = source, [candidate.result for candidate in source.candidates]
    elif isinstance(source, Sweep):
        outcomes = source
        try:
            source.check()
        except SimulationError as error:
            notes.append(f"{error}.")
    elif paths := _paths(source):
        check_writable(target, "out")
        if any(path.exists() and target.exists() and path.samefile(target) for path in paths):
            raise InputError(f"out: {target}: is one of the results files; choose another path")
        held, notes = read_all(paths)
        labels = labels_of(paths, [len(its.results) for its in held])
        outcomes = [result for its in held for result in its.results]
    elif isinstance(source, ResultsFile):
        outcomes = (*source.results, *source.failures)
        notes += source.notes
    elif isinstance(source, Iterable) and not isinstance(source, Spec):
        outcomes = [_outcome(its) for its in source]
    else:
        outcomes = [_outcome(source)]
    results = [outcome for outcome in outcomes if isinstance(outcome, Result)]
    overlay = overlay_of(Path(measured), results, labels) if measured is not None else None
    simulated = simulated_sections(results, labels, chosen, jobs, progress=progress) if what_ifs and results else SimulatedSections()
    notes += simulated.notes
    write_report(
        results, target, notes=notes, labels=labels, plan=chosen, measured=overlay, timeline=simulated.timeline,
        sensitivity=simulated.sensitivity, title=title,
    )  # fmt: skip
    return Report(target, target.stat().st_size, tuple(notes), outcomes)


def _outcome(given: object) -> Outcome:
    if not isinstance(given, Outcome):
        raise InputError(f"source: must be results, a sweep, a plan or results files, not {type(given).__name__}")
    return given


def _paths(source: object) -> list[Path]:
    """The files, where the source is one or several of them."""
    if isinstance(source, (str, Path)):
        return [Path(source)]
    if not isinstance(source, Sequence) or not all(isinstance(part, (str, Path)) for part in source):
        return []
    return [Path(part) for part in source]
