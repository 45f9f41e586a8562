"""Several results files as one report's results: read, told apart by the names of their files, nothing twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from paceline.sentences import doubled_in_words
from paceline.sweeping import ResultsFile
from simulator.errors import InputError
from simulator.results import Failure, Result

__all__ = ["Gathered", "gather"]


class Gathered(NamedTuple):
    """What several results files hold."""

    results: list[Result]
    """The last one where a file has several of the same scenario."""
    labels: list[str] | None
    """For each result the name of its file, with as much of its path as tells it from the others; None for a single file."""
    failures: list[Failure]
    notes: list[str]
    """Sentences on what a reader must know; where there are several files, after the file's name."""


def gather(paths: Sequence[Path]) -> Gathered:
    """Read results files.

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
    last = {(name, result.scenario_hash): result for name, result in every}
    notes = [f"{file.path}: {note}" if len(files) > 1 else note for file in files for note in file.notes]
    notes += filter(None, [doubled_in_words(len(every) - len(last))])
    labels = [name for name, _ in last] if len(files) > 1 else None
    return Gathered(list(last.values()), labels, [failure for file in files for failure in file.failures], notes)


def _names(paths: Sequence[Path]) -> list[str]:
    """The name of each file, with as much of its path as tells it from the others."""
    whole = [path.resolve() for path in paths]
    stems = [path.with_suffix("") for path in whole]
    # where two files of a folder differ in the ending alone it is part of the name
    parts = [(path if stems.count(stem) > 1 else stem).parts for path, stem in zip(whole, stems, strict=True)]
    return ["/".join(its[-_depth(its, parts) :]) for its in parts]


def _depth(mine: tuple[str, ...], all_parts: Sequence[tuple[str, ...]]) -> int:
    """How many parts of a path, from its end, no other path has as well."""
    return next(depth for depth in range(1, len(mine) + 1) if sum(its[-depth:] == mine[-depth:] for its in all_parts) == 1)
