"""The results file of a sweep or plan while it is written: a journal, and at the end the results in order.

What a line holds, and how others read a file, finished or not, is in results_file.py.
"""

from __future__ import annotations

import fcntl
import os
import warnings
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from paceline.sentences import doubled_in_words
from paceline.sweeping.backends import WorkersLostError
from paceline.sweeping.results_file import (
    DamagedError,
    Line,
    Outcome,
    UnclearError,
    begins_line,
    is_damage,
    line_in,
    outcome_of,
    with_place,
)
from simulator.base.errors import InputError, PacelineWarning, ResultsError, SimulationError
from simulator.base.files import check_writable, replacing
from simulator.base.text import counted
from simulator.base.validation_errors import quoted
from simulator.scenario import Scenario

_ANOTHER = "holds the results of another sweep"
_NO_RESULT, _NO_RESULTS_FILE = "is not a result", "is there already and is not a results file"
_REPLACE = "choose another `out`, or `force=True` to replace it"
_NAMED, _LINES_NAMED = 3, 20
_COMPARED = 100
"""Most scenarios that are searched for the one closest to a line."""


class _Entry(NamedTuple):
    """A complete line of the file."""

    scenario_hash: str
    failed: bool
    number: int
    """Number of the line, from 1."""
    place: int
    """Number, from 0, of its scenario in the sweep; if it does not have one, of its line."""
    begin: int
    """First byte."""
    size: int
    """Number of bytes, including the line end."""


class Written:
    """Outcomes of a finished results file, read on request; iteration needs the memory of one."""

    def __init__(self, path: Path, entries: Sequence[_Entry]) -> None:
        self.path, self._entries = path, entries
        self.failed = [place for place, entry in enumerate(entries) if entry.failed]

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Outcome]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, place: int) -> Outcome:
        try:
            with self.path.open("rb") as file:
                return outcome_of(_text(file, self._entries[place]))
        except DamagedError as error:
            raise ResultsError(f"{self.path}:{place + 1}: {error}") from None
        except ValueError:
            raise ResultsError(f"{self.path}:{place + 1}: is not a result of this version; {_REPLACE}") from None


class Journal:
    """A results file that a sweep or plan writes; a context manager, inside which no other process can open the file.

    Each outcome is appended as a line at once, with the place of its scenario in the sweep; the last line of a scenario counts. Lines are
    unbuffered: however the process ends, the file has complete lines and at most the beginning of one more, which the next writer cuts off.
    :meth:`finish` rewrites the file with all lines in order and without places, so that its bytes depend only on the scenarios. Each line
    ends with its checksum: a damaged or changed line is named and simulated again; later lines are kept.

    Parameters
    ----------
    path
        The results file, new or to be resumed.
    force
        Replace a file of another kind.

    Raises
    ------
    InputError
        The file is not a regular file, cannot be read or written, or is being written by another process.
    ResultsError
        The file exists and is not a results file of this version.
    """

    def __init__(self, path: Path, *, force: bool = False) -> None:
        shown = f"`out` {str(path)[:120]!r}"
        if path.exists() and not path.is_file():
            raise InputError(f"{shown}: is not a regular file, so a sweep cannot resume from it; choose another path")
        self.path, self._force, self._new = path, force, False
        new = not path.exists()
        try:
            check_writable(path)  # also the folder, in which the finished file takes its place
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b", buffering=0)
        except InputError as error:
            raise InputError(f"`out` {error}") from None
        except OSError as error:
            raise InputError(f"{shown}: cannot be read and written: {error.strerror}; choose another path") from None
        self._told = False  # of damage
        self._unlike: Mapping[str, int] | None = None  # places by hash of what is to be kept, where the file has it otherwise
        try:
            self._lock(shown)
            self._new = new  # and nobody else's
            self._read()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the file; remove it if it is new and has no complete line."""
        if self._new and not self._file.closed and not self._lines_from(0):
            self.path.unlink(missing_ok=True)
        self._file.close()

    def _lock(self, shown: str) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{shown}: another process is writing to it; wait until it has ended, or choose another path") from None
        except OSError:
            return  # a file system without locks
        if not os.path.exists(self.path) or not os.path.samestat(os.fstat(self._file.fileno()), os.stat(self.path)):
            raise InputError(f"{shown}: was just replaced by another process; run the command again")

    def _read(self) -> None:
        """Find all complete lines, damaged ones, and the rest after the last."""
        self._entries: list[_Entry] = []
        self._damaged: list[tuple[str, str]] = []  # where each is, and what is wrong with it
        self._tail, self._end = b"", 0
        self._finished = True  # no line has a place, and nothing else is there
        with self._reading(0) as lines:
            for number, text in enumerate(lines, start=1):
                where = f"{self.path}:{number}"
                problem = f"{where if number > 1 else self.path}: {_NO_RESULT if number > 1 else _NO_RESULTS_FILE} of this version"
                if not text.endswith(b"\n") and begins_line(text):
                    self._tail, self._finished = text, False
                    break
                try:
                    line = line_in(text)
                except ResultsError as error:
                    line = None
                    if is_damage(error, self.path):
                        self._damaged.append((where, str(error)))
                        self._finished, problem = False, ""
                    elif not isinstance(error, UnclearError):
                        problem = f"{where}: {error}"
                if line is not None:
                    place = number - 1 if line.place is None else line.place
                    self._entries.append(_Entry(line.scenario_hash, line.failed, number, place, self._end, len(text)))
                    self._finished &= line.place is None
                elif problem and not self._force:
                    raise ResultsError(f"{problem}; {_REPLACE}")
                elif problem:
                    self._file.truncate(0)
                    self._read()
                    return
                self._end += len(text)
        self._begun = self._end
        self._of = {entry.scenario_hash: entry for entry in self._entries}
        self._lines_read = Counter(entry.scenario_hash for entry in self._entries if not entry.failed)

    @contextmanager
    def _reading(self, begin: int) -> Iterator[BinaryIO]:
        """The file from a byte on; nothing that is read stays in a buffer."""
        with os.fdopen(os.dup(self._file.fileno()), "rb") as file:
            file.seek(begin)
            yield file

    def _lines_from(self, begin: int) -> int:
        with self._reading(begin) as file:
            return sum(text.endswith(b"\n") for text in file)

    # -- what is there ------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Return whether the file is empty."""
        return not (self._entries or self._damaged or self._tail)

    def __contains__(self, scenario_hash: str) -> bool:
        return scenario_hash in self._of

    def failed(self, scenario_hash: str) -> bool:
        """Return whether the file has a scenario as failed."""
        return scenario_hash in self._of and self._of[scenario_hash].failed

    def outcome(self, scenario_hash: str) -> Outcome | None:
        """Return the outcome of a scenario, if the file has it."""
        if (entry := self._of.get(scenario_hash)) is None:
            return None
        with self._reading(0) as file:
            return outcome_of(_text(file, entry))

    def others(self, hashes: Container[str], among: int | None = None) -> int | None:
        """Number, from 1, of the first line that is of none of some scenarios; None where there is none.

        Parameters
        ----------
        hashes
            Of the scenarios.
        among
            Only lines with a place below this are looked at. Left out: all are.
        """
        # damage may have taken the ends of lines, so that a line's number does not tell its place
        unsure = among is not None and bool(self._damaged)
        looked_at = (entry for entry in self._entries if among is None or (entry.place < among and not unsure))
        return next((entry.number for entry in looked_at if entry.scenario_hash not in hashes), None)

    def written(self) -> int:
        """Lines that were written since it was opened; one whose writer was stopped right behind it may not have been counted."""
        return self._lines_from(self._begun)

    # -- going on -----------------------------------------------------------------------

    def go_on_with(self, scenarios: Sequence[Scenario], hashes: Sequence[str]) -> None:
        """Check that the file belongs to these scenarios with these hashes, before anything is written.

        Raises
        ------
        ResultsError
            It has results of other scenarios; the message names the line and the difference.
        """
        places = dict(zip(reversed(hashes), reversed(range(len(hashes))), strict=True))
        if not self._force:
            if (number := self.others(places)) is not None:
                entry = next(entry for entry in self._entries if entry.number == number)
                raise ResultsError(f"{self.path}:{number}: {_ANOTHER}{self._difference(entry, scenarios, hashes)}; {_REPLACE}")
            if self._tail and not any(begins_line(self._tail, scenario_hash) for scenario_hash in hashes):
                raise ResultsError(f"{self.path}:{len(self._entries) + len(self._damaged) + 1}: {_ANOTHER}; {_REPLACE}")
        self.keep(places)

    def keep(self, places: Mapping[str, int]) -> None:
        """Keep only these scenarios, given by hashes with their places; the file changes with the next line."""
        if self._damaged or any(places.get(scenario_hash) != entry.place for scenario_hash, entry in self._of.items()):
            self._unlike = places
            self._of = {scenario_hash: self._of[scenario_hash] for scenario_hash in places if scenario_hash in self._of}

    def _difference(self, entry: _Entry, scenarios: Sequence[Scenario], hashes: Sequence[str]) -> str:
        """Return the difference of a line's scenario from the closest missing one, to append to a sentence."""
        if entry.place >= len(scenarios):
            return f", of more than {counted(len(scenarios), 'scenario')}"
        try:
            with self._reading(0) as file:
                there = outcome_of(_text(file, entry)).scenario.model_dump(mode="json")
        except (ResultsError, ValueError):
            return ""
        # damage may have taken the ends of lines, so that the place alone does not tell which it was
        missing = (place for place, scenario_hash in enumerate(hashes) if scenario_hash not in self._of)
        nearest = sorted(missing, key=lambda place: abs(place - entry.place))[:_COMPARED]
        each = [list(_differing(there, scenarios[place].model_dump(mode="json"))) for place in nearest]
        differences = min(each, key=len, default=[])
        more = f" and {len(differences) - 1} more" if len(differences) > 1 else ""
        return f", where {differences[0]}{more}" if differences else ""

    # -- writing ------------------------------------------------------------------------

    def write(self, lines: Iterable[tuple[int, Line]]) -> None:
        """Write lines, each with the place, from 0, of its scenario, and wait until they are on disk.

        Raises
        ------
        SimulationError
            They cannot be written, for example because the disk is full; earlier lines are kept.
        """
        self._tell_of_damage("it is simulated again")
        with _explained(self.path):
            if self._unlike is not None:
                kept = sorted(self._of, key=self._unlike.__getitem__)
                self._write_anew([(scenario_hash, self._unlike[scenario_hash]) for scenario_hash in kept])
                self._unlike = None
            if self._tail:
                self._file.truncate(self._end)
                self._tail = b""
            for place, line in lines:
                self._write(line._replace(text=with_place(line.text, place), place=place))
            os.fsync(self._file.fileno())

    def _write(self, line: Line) -> None:
        assert line.place is not None
        left = line.text
        while left:  # past Python's buffer: nothing is left in it that could come late
            left = left[os.write(self._file.fileno(), left) :]
        entry = _Entry(line.scenario_hash, line.failed, len(self._entries) + 1, line.place, self._end, len(line.text))
        self._finished = False
        self._end += entry.size
        self._entries.append(entry)
        self._of[line.scenario_hash] = entry

    def finish(self, hashes: Sequence[str]) -> Written:
        """Finish the file: put all lines in order, without places.

        Parameters
        ----------
        hashes
            Hashes of all scenarios, in order; the file must have each.

        Raises
        ------
        SimulationError
            The file cannot be rewritten; the journal is kept.
        """
        self._tell_of_damage("it is left out")
        if not (self._finished and [entry.scenario_hash for entry in self._entries] == list(hashes)):
            with _explained(self.path):
                self._write_anew([(scenario_hash, None) for scenario_hash in hashes])
        needed = Counter(hashes)
        repeated = sum(max(self._lines_read[key] - count, 0) for key, count in needed.items())
        if repeated:
            warnings.warn(PacelineWarning(f"{self.path}: {doubled_in_words(repeated)}"), stacklevel=3)
        return Written(self.path, self._entries)

    def _write_anew(self, lines: Sequence[tuple[str, int | None]]) -> None:
        """Replace the file atomically by one with only these scenarios and places, in this order."""
        target = Path(os.path.realpath(self.path))
        entries: list[_Entry] = []
        with replacing(target) as new, self._reading(0) as old:
            for index, (scenario_hash, place) in enumerate(lines):
                entry, begin = self._of[scenario_hash], new.tell()
                size = new.write(with_place(_text(old, entry), place))
                entries.append(_Entry(scenario_hash, entry.failed, index + 1, index if place is None else place, begin, size))
            file = open(new.name, "a+b", buffering=0)  # noqa: SIM115 - it stays open, and locked before others see it
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._file.close()
        self._file, self._tail, self._finished = file, b"", all(place is None for _, place in lines)
        self._entries, self._of = entries, {entry.scenario_hash: entry for entry in entries}
        self._begun = self._end = entries[-1].begin + entries[-1].size if entries else 0

    def _tell_of_damage(self, then: str) -> None:
        if self._told:
            return
        self._told = True
        for where, fault in self._damaged[:_NAMED]:
            warnings.warn(PacelineWarning(f"{where}: {fault}; {then}"), stacklevel=3)
        if more := self._damaged[_NAMED:]:
            places = ", ".join(where for where, _ in more[:_LINES_NAMED])
            warnings.warn(PacelineWarning(f"so are {counted(len(more), 'line')} more: {places}"), stacklevel=3)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Wrap simulations whose outcomes are written.

        Raises
        ------
        WorkersLostError
            Their processes are gone; the message says that finished results, if any, are saved.
        """
        try:
            yield
        except WorkersLostError as error:
            if not self._entries:
                raise
            raise WorkersLostError(error.what, error.advice, f"finished results are saved in {self.path}") from None


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SimulationError(
            f"{path}: cannot be written: {error.strerror}; finished results are saved: run again when it can be written"
        ) from None


def _text(file: BinaryIO, entry: _Entry) -> bytes:
    file.seek(entry.begin)
    return file.read(entry.size)


def _differing(there: Any, here: Any, where: str = "") -> Iterator[str]:
    """Yield each differing dotted key, with both values if they are short."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in (*there, *(key for key in here if key not in there)):
            yield from _differing(there.get(key), here.get(key), f"{where}.{key}" if where else key)
    elif there != here:
        was, now = ("left out" if value is None else quoted(value) for value in (there, here))
        both_short = not any(isinstance(value, (Mapping, list)) for value in (there, here))
        yield f"{where} was {was} and is now {now}" if both_short else f"{where} differs"
