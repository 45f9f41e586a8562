"""What ``paceline report`` does before it writes: reads, names, checks, and simulates the answer again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.errors import InputError, SimulationError

if TYPE_CHECKING:
    from paceline.planning.answer import Plan
    from paceline.reporting import ResultsFile
    from paceline.reporting.exporting import Format
    from paceline.reporting.sensitivity import Change
    from paceline.reporting.timeline import Timeline
    from simulator.results import Result

__all__ = ["INTERRUPTED", "Extras", "extras_of", "formats_of", "labels_of", "last_of_each", "open_page", "read_all", "target_of"]

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the signal's number, as shells have it."""

_MOST_NAMED = 3


@dataclass(frozen=True)
class Extras:
    """What simulating the answer again gave, and whether the user stopped it."""

    timeline: Timeline | None = None
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    stopped: bool = False


def read_all(paths: Sequence[Path]) -> tuple[list[ResultsFile], list[str]]:
    """Every results file, and what must be known of them; where there are several, after the file's name.

    Raises
    ------
    InputError
        A file is given twice.
    ResultsError
        One of them cannot be read.
    """
    from paceline.reporting import read_results

    for index, path in enumerate(paths):
        for earlier in paths[:index]:
            if earlier == path or (os.path.exists(path) and os.path.exists(earlier) and os.path.samefile(earlier, path)):
                raise InputError(f"{path}: is given twice; give each results file once")
    held, notes = [], []
    for path in paths:
        its = read_results(path)
        held.append(its)
        notes += [f"{path}: {note}" if len(paths) > 1 else note for note in its.notes]
    return held, notes


def labels_of(paths: Sequence[Path], counts: Sequence[int]) -> list[str] | None:
    """For each result the name of its file, with as much of its path as tells it from the others; none for a single file."""
    if len(paths) == 1:
        return None
    whole = [path.resolve() for path in paths]
    stems = [path.with_suffix("") for path in whole]
    # where two files of a folder differ in the ending alone it is part of the name
    parts = [(path if stems.count(stem) > 1 else stem).parts for path, stem in zip(whole, stems, strict=True)]
    names = ["/".join(its[-_depth(its, parts) :]) for its in parts]
    return [name for name, count in zip(names, counts, strict=True) for _ in range(count)]


def _depth(mine: tuple[str, ...], all_parts: Sequence[tuple[str, ...]]) -> int:
    """How many parts of a path, from its end, no other path has as well."""
    return next(depth for depth in range(1, len(mine) + 1) if sum(its[-depth:] == mine[-depth:] for its in all_parts) == 1)


def last_of_each(results: Sequence[Result], labels: Sequence[str] | None) -> tuple[list[Result], list[str] | None, list[str]]:
    """Of results of the same scenario in the same file the last one; their labels; and a note where others are left out."""
    sources = labels if labels is not None else [""] * len(results)
    last = {(source, result.scenario_hash): result for source, result in zip(sources, results, strict=True)}
    doubled = len(results) - len(last)
    are = "s of a scenario that is there twice are" if doubled > 1 else " of a scenario that is there twice is"
    notes = [f"{doubled} result{are} left out."] if doubled else []
    return list(last.values()), [source for source, _ in last] if labels is not None else None, notes


def target_of(results: Sequence[Path], out: Path | None, *, force: bool, reads: Sequence[Path] = ()) -> Path:
    """Where the page goes.

    Parameters
    ----------
    results
        The results files, after which it is named where ``out`` is left out.
    out
        As given.
    force
        Whether a file that is no report of ours may be replaced.
    reads
        Other files that are read, which it must not replace.

    Raises
    ------
    InputError
        It is a file that is read, or one that is no report of ours.
    """
    from paceline.reporting.render import GENERATOR

    target = out if out is not None else _beside(results)
    if os.path.exists(target):
        if any(os.path.exists(path) and os.path.samefile(target, path) for path in results):
            raise InputError(f"{target}: is the results file itself; choose another path with --out")
        if any(os.path.samefile(target, path) for path in reads):
            raise InputError(f"{target}: is a file that the report is made from; choose another path with --out")
    if os.path.isfile(target) and not force and not _is_ours(target, GENERATOR):
        raise InputError(
            f"{target}: is there already and is no report of Paceline; overwrite it with --force, or choose another path with --out"
        )
    return target


def _beside(results: Sequence[Path]) -> Path:
    """Beside the first of them, named after all, or after the first where they are many."""
    first = results[0]
    if len(results) == 1:
        return first.with_suffix(".html")
    stems = [path.stem for path in results]
    name = "-".join(stems) if len(stems) <= _MOST_NAMED else f"{first.stem}-and-{len(stems) - 1}-more"
    return first.with_name(f"{name[:120]}.html")


def _is_ours(path: Path, mark: str) -> bool:
    """Whether a file is empty or a report, which a new one may replace."""
    try:
        with path.open("rb") as file:
            start = file.read(4096)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or type(error).__name__}; choose another path with --out") from None
    return not start or mark.encode() in start


def formats_of(text: str) -> tuple[Format, ...]:
    """Read ``png,svg``.

    Raises
    ------
    InputError
        There is none, or one that figures cannot be written as.
    """
    from paceline.reporting.exporting import FORMATS

    given = [part.strip().lower() for part in text.split(",")]
    for part in given:
        if part not in FORMATS:
            raise InputError(f"--format {text[:40]!r}: {part[:40]!r} must be one of {', '.join(FORMATS)}; write such as --format png,svg")
    return tuple(kind for kind in FORMATS if kind in given)


def extras_of(results: Sequence[Result], labels: Sequence[str] | None, plan: Plan | None, jobs: int, *, stoppable: bool = False) -> Extras:
    """Simulate the report's answer again: three of its steps for the timeline, and one change at a time; what fails is noted.

    Parameters
    ----------
    results, labels, plan
        As :func:`paceline.reporting.write_report` takes them.
    jobs
        Processes for the what-ifs; 0 takes all cores.
    stoppable
        Whether Ctrl-C only ends the simulating, so that the report is written without the rest.

    Raises
    ------
    ResultsError
        The plan's answer is not among the results.
    """
    from paceline.cli.showing import progress_bar
    from paceline.reporting.answer import answer_of
    from paceline.reporting.coordinates import coordinates_of
    from paceline.reporting.sensitivity import changes_of
    from paceline.reporting.timeline import timeline_of

    answer = answer_of(results, coordinates_of(results, labels), plan.chosen.result.scenario_hash if plan is not None else None)
    timeline: Timeline | None = None
    changes: tuple[Change, ...] = ()
    notes: list[str] = []
    stopped = False
    try:
        try:
            timeline = timeline_of(answer.result.scenario, answer.name)
        except SimulationError as error:
            notes.append(f"There is no timeline: {error}.")
        try:
            with progress_bar("what-ifs") as advance:
                changes = changes_of(answer.result, jobs, advance)
        except SimulationError as error:
            notes.append(f"There are no what-ifs: {error}.")
    except KeyboardInterrupt:
        if not stoppable:
            raise
        stopped = True
        notes.append(f"There are no what-ifs{'' if timeline is not None else ', and there is no timeline'}: they were interrupted.")
    return Extras(timeline, changes, tuple(notes), stopped)


def open_page(path: Path) -> bool:
    """Open a page in the user's browser; whether there is one."""
    import webbrowser

    return webbrowser.open(path.resolve().as_uri())
