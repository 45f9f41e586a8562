"""Several results files as one report's results: read, told apart by the names of their files, nothing twice."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from paceline.reporting.reading import ResultsFile, read_results
from simulator.errors import InputError
from simulator.results import Result

__all__ = ["labels_of", "last_of_each", "read_all"]


def read_all(paths: Sequence[Path]) -> tuple[list[ResultsFile], list[str]]:
    """Every results file, and what must be known of them; where there are several, after the file's name.

    Raises
    ------
    InputError
        A file is given twice.
    ResultsError
        One of them cannot be read.
    """
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
