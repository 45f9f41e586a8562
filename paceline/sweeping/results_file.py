"""Reads results files, whole or still being written; the order of the sweep is made on reading.

They are written in journal.py; what a line holds is in lines.py.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, overload

from paceline.sentences import doubled_in_words
from paceline.sweeping.lines import CutOffError, DamagedError, Outcome, checked_outcome_of, is_damage
from simulator.base.errors import ResultsError
from simulator.base.files import checksum_holds, mistaken
from simulator.base.table import frame_of, html_of
from simulator.base.text import Short, counted, no_such_file, shortly_listed
from simulator.results.results import Failure, Result

if TYPE_CHECKING:
    import pandas as pd

    from paceline.sweeping.journal import Written

LineT = TypeVar("LineT")
_LEFT_OUT = "; left out; the same `paceline sweep` simulates"
_REASONS, _LINES_NAMED = 3, 20


class Outcomes(Short, Sequence[Outcome]):
    """Results and failures in the order of their scenarios.

    Attributes
    ----------
    path
        The results file that they stand in; None where they are held alone.
    """

    path: Path | None
    _outcomes: Sequence[Outcome] | Written

    @property
    @abstractmethod
    def failed(self) -> Sequence[int]:
        """Numbers, from 0, of the scenarios that could not be simulated."""

    def __len__(self) -> int:
        return len(self._outcomes)

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self._outcomes)

    @overload
    def __getitem__(self, index: int) -> Outcome: ...
    @overload
    def __getitem__(self, index: slice) -> list[Outcome]: ...
    def __getitem__(self, index: int | slice) -> Outcome | list[Outcome]:
        places = range(len(self))[index]
        return self._outcomes[places] if isinstance(places, int) else [self._outcomes[place] for place in places]

    @property
    def results(self) -> tuple[Result, ...]:
        """All results, without the failures; equal workloads and clusters of theirs are one object."""
        return tuple(outcome for outcome in self if isinstance(outcome, Result))

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Scenarios that could not be simulated, and why."""
        return tuple(outcome for outcome in (self[place] for place in self.failed) if isinstance(outcome, Failure))

    def _in_short(self) -> Iterator[str]:
        yield f"{counted(len(self), 'scenario')}{'' if self.path is None else f' in {self.path}'}"
        yield f"{len(self.failed):,} failed" if self.failed else ""

    def to_frame(self) -> pd.DataFrame:
        """A row per scenario: the settings that differ, then :data:`simulator.results.rows.COLUMNS`."""
        return frame_of(self)


class ResultsFile(Outcomes):
    """What a file held when it was read.

    Attributes
    ----------
    notes
        Sentences on what a reader must know about the file, such as that it was cut off.
    """

    see = "to_frame() has a row for each, [0] is the first; paceline.report(results) draws them"
    path: Path

    def __init__(self, path: Path, outcomes: Sequence[Outcome], notes: Sequence[str]) -> None:
        self.path, self.notes, self._outcomes = path, tuple(notes), outcomes

    @property
    def failed(self) -> Sequence[int]:
        """Numbers, from 0, of the scenarios that could not be simulated."""
        return [place for place, outcome in enumerate(self) if isinstance(outcome, Failure)]

    def to_frame(self) -> pd.DataFrame:
        """A row per outcome, failures last: the settings that differ, then :data:`simulator.results.rows.COLUMNS`."""
        return frame_of((*self.results, *self.failures))

    def _repr_html_(self) -> str:
        """What a notebook shows: the first rows, with the most important figures."""
        caption = f"Results of {len(self)} scenarios. {' '.join(self.notes)}".rstrip()
        return html_of((*self.results, *self.failures), caption, total=len(self))

    @classmethod
    def read(cls, path: str | Path) -> ResultsFile:
        """Read the results that a sweep wrote, or has written up to now.

        A last line that was cut off (the sweep was interrupted while writing) is left out, and
        so are lines that were damaged or changed after they were written; notes say so. Others
        tell of lines without a checksum, and of scenarios that failed.

        Raises
        ------
        ResultsError
            The file is missing, not readable or holds no result; or a line is no result, or of
            another version, or no JSON in a file without any line of a sweep's.

        Examples
        --------
        >>> import paceline
        >>> from tempfile import TemporaryDirectory
        >>> settings = {"run.steps": 10, "run.replications": 3}
        >>> with TemporaryDirectory() as folder:
        ...     swept = paceline.sweep("ring", {"strategy.workers": [1, 2]}, settings=settings, out=f"{folder}/ring.ndjson", jobs=1)
        ...     read = paceline.read_results(f"{folder}/ring.ndjson")
        >>> read.to_frame()["replicas"].tolist()
        [1, 2]
        """
        notes: list[str] = []
        its = cls(Path(path), outcomes_in(Path(path), notes), ())
        its.notes = (*notes, *_of_failures(its))
        if len(its.failed) < len(its):
            return its
        if its.failed:
            raise ResultsError(f"{path}: holds no result: {its.notes[-1]}")
        if any(_LEFT_OUT in note for note in notes):
            raise ResultsError(f"{notes[0].removesuffix('.')}; no other result is there")
        raise ResultsError(f"{path}: holds no {'complete ' if notes else ''}result; `paceline sweep` writes them")


read_results = ResultsFile.read


def _of_failures(its: ResultsFile) -> Iterator[str]:
    """A sentence on what failed, where something did."""
    if its.failed:
        reasons = "; ".join(dict.fromkeys(failure.failed.text for failure in its.failures[:_REASONS]))
        yield f"{len(its.failed)} of {len(its)} scenarios failed: {reasons}{'; ...' if len(its.failed) > _REASONS else ''}"


def in_order(lines: Iterable[tuple[str, int | None, LineT]]) -> list[LineT]:
    """The lines of a results file that count, in the order of the sweep.

    A finished file has the order itself, and its lines have no places. A line with a place was written when its simulation ended. The
    last line of a scenario counts.

    Parameters
    ----------
    lines
        The scenario's hash, the place in the sweep where the line has one, and whatever stands for the line; in the order of the file.
    """
    kept: dict[str, tuple[int, LineT]] = {}
    for number, (scenario_hash, place, line) in enumerate(lines):
        at = kept[scenario_hash][0] if scenario_hash in kept else number
        kept[scenario_hash] = (at if place is None else place, line)
    return [line for _, line in sorted(kept.values(), key=lambda entry: entry[0])]


def outcomes_in(path: Path, notes: list[str] | None = None) -> list[Outcome]:
    """The outcomes that a sweep wrote, in the order of the sweep; else as :meth:`ResultsFile.read`.

    Parameters
    ----------
    path
        The file; it may also be put together by hand, with empty lines and keys in any order.
    notes
        Gets sentences on the lines that are left out, and on those that have no checksum.

    Raises
    ------
    ResultsError
        As :meth:`ResultsFile.read`, but a file may hold nothing.
    """
    notes = notes if notes is not None else []
    found: list[tuple[str, int | None, Outcome]] = []
    left_out: dict[str, list[int]] = {}
    unsure = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if not text.strip():
                    continue
                try:
                    outcome, place = checked_outcome_of(text)
                except ResultsError as error:
                    if number == 1 and not is_damage(error, path) and (said := mistaken(path, "results")):
                        raise ResultsError(f"{path}: {said}") from None
                    if isinstance(error, CutOffError) and not line.endswith(b"\n"):
                        notes.append(
                            f"The results file ends in the middle of line {number}, as after an interrupted sweep; that line is left out."
                        )
                    elif (found and isinstance(error, DamagedError)) or is_damage(error, path):
                        left_out.setdefault(str(error), []).append(number)
                    else:
                        raise ResultsError(f"{path}:{number}: {error}") from None
                else:
                    unsure += checksum_holds(text) is None
                    found.append((outcome.scenario_hash, place, outcome))
    except FileNotFoundError:
        hint = no_such_file(path, "check the path, or write it with `paceline sweep`")
        raise ResultsError(f"{path}: {hint}") from None
    except (OSError, ValueError) as error:  # a ValueError where the path has a zero byte
        raise ResultsError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or type(error).__name__}") from None
    for why, numbers in left_out.items():
        places = shortly_listed([f"{path}:{number}" for number in numbers], _LINES_NAMED)
        notes.append(f"{places}: {why}{_LEFT_OUT} {'it' if len(numbers) == 1 else 'them'} again.")
    if unsure:
        notes.append(
            f"{counted(unsure, 'line')} of {path} {'has' if unsure == 1 else 'have'} no checksum: "
            "whether the figures are as they were simulated cannot be told."
        )
    ordered = in_order(found)
    if repeated := sum(isinstance(outcome, Result) for _, _, outcome in found) - sum(isinstance(outcome, Result) for outcome in ordered):
        notes.append(f"{path}: {doubled_in_words(repeated)}")
    return ordered
