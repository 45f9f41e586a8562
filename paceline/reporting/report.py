"""A report of whatever has results: a result, several, a sweep, a plan, results files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from simulator.errors import InputError, SimulationError
from simulator.files import check_writable
from simulator.results import Outcome, Result
from simulator.spec import Spec
from simulator.table import Row, Table, frame_of

if TYPE_CHECKING:
    import pandas as pd

    from paceline.planning.answer import Plan
    from paceline.sweeping import ResultsFile

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


def report(
    source: Reported,
    out: Path,
    *,
    title: str = "",
    measured: Path | None = None,
    what_ifs: bool = True,
    jobs: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Write a report; parameters and errors as of :func:`paceline.report`."""
    from paceline.planning.answer import Plan
    from paceline.reporting import write_report
    from paceline.reporting.gathering import gather
    from paceline.reporting.measured import overlay_of
    from paceline.reporting.simulated import SimulatedSections, simulated_sections
    from paceline.sweeping import ResultsFile, Sweep

    target = out
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
        check_writable(target)
        if any(path.exists() and target.exists() and path.samefile(target) for path in paths):
            raise InputError(f"`out`: {str(target)!r}: is one of the results files; choose another path")
        outcomes, labels, _, notes = gather(paths)
    elif isinstance(source, ResultsFile):
        outcomes = (*source.results, *source.failures)
        notes += source.notes
    elif isinstance(source, Iterable) and not isinstance(source, Spec):
        outcomes = [_outcome(its) for its in source]
    else:
        outcomes = [_outcome(source)]
    results = [outcome for outcome in outcomes if isinstance(outcome, Result)]
    overlay = overlay_of(measured, results, labels) if measured is not None else None
    simulated = simulated_sections(results, labels, chosen, jobs, progress=progress) if what_ifs and results else SimulatedSections()
    notes += simulated.notes
    write_report(
        results, target, notes=notes, labels=labels, plan=chosen, measured=overlay, timeline=simulated.timeline,
        sensitivity=simulated.sensitivity, title=title,
    )  # fmt: skip
    return Report(target, target.stat().st_size, tuple(notes), outcomes)


def _outcome(given: object) -> Outcome:
    if not isinstance(given, Outcome):
        raise InputError(f"`source`: must be results, a sweep, a plan or results files, not {type(given).__name__}")
    return given


def _paths(source: object) -> list[Path]:
    """The files, where the source is one or several of them."""
    if isinstance(source, (str, Path)):
        return [Path(source)]
    if not isinstance(source, Sequence) or not all(isinstance(part, (str, Path)) for part in source):
        return []
    return [Path(part) for part in source]
