"""Results files: one outcome of a scenario per line, written, read, gone on with and tried again."""

from __future__ import annotations

import fcntl
import glob
import itertools
import json
import os
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, overload

from paceline.sweeping.backends import WorkersLostError
from paceline.sweeping.lines import (
    CutOffError,
    DamagedError,
    Line,
    Outcome,
    UnclearError,
    begins_line,
    checked_outcome_of,
    holds_lines,
    is_damage,
    line_in,
    line_of,
    outcome_of,
    timed,
)
from simulator.base.checksums import checksum_holds
from simulator.base.errors import InputError, PacelineWarning, ResultsError, SimulationError
from simulator.base.file_kinds import mistaken
from simulator.base.nearest import no_such_file
from simulator.base.outputs import Output, OutputKind
from simulator.base.short import Short
from simulator.base.table import frame_of, html_of
from simulator.base.text import counted, shortly_listed
from simulator.base.validation_errors import quoted
from simulator.results.results import Failure, Result
from simulator.scenario import Scenario

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ResultsFile", "iter_results", "read_results"]

_TIMES, _AHEAD, _RETRY = ".times.ndjson", ".ahead.ndjson", ".retry"
_ANOTHER = "holds the results of another sweep"
_REPLACE = "choose another `out`, or `force=True` to replace it"
_LEFT_OUT = "; left out; the same `paceline sweep` simulates"
_NAMED, _LINES_NAMED = 3, 20
_COMPARED = 100
"""Scenarios that are looked at for the one that a line is the likeliest of."""
_TIME_BEGINS, _IN_TIME = b'{"scenario_hash": "', 2
"""What a line of the file of times begins with, and how many keys it has."""


class ResultsFile(Short, Sequence[Outcome]):
    """A file with one outcome per line, in the order of the scenarios: a sequence of them.

    :meth:`read` reads any such file. :meth:`open` opens one that a sweep or a plan writes, or
    begins it; while it is open, no other process can open it. Lines go past all buffers of the
    process: however it ends, the file holds whole lines and at most the beginning of one more,
    which the next to write cuts off. Its bytes depend on the scenarios alone. Each line ends with a
    checksum of itself: one that was damaged or changed is named, left out by who reads, and simulated
    again by who goes on; lines behind it are kept. Three files lie beside it:

    - ``NAME.times.ndjson``: the duration of each simulation. A time is written before its line, so that
      none can be missing; one too many is cut off when the next is written.
    - ``.NAME.ndjson.ahead.ndjson``: lines that were finished before those in front of them, with their
      times in them; it is there only as long as there are such. They are not synced: they survive the end of the process,
      perhaps not that of the machine.
    - ``.NAME.ndjson.retry``: a copy in which failures are tried again; it takes the file's place when it is whole.

    Attributes
    ----------
    path
        The file.
    hashes
        The scenario's hash of each line.
    failed
        Numbers, from 0, of the lines that hold a failure.
    ahead
        Lines that wait for their turn, by their number.
    notes
        Sentences on what a reader must know about the file, such as that it was cut off.
    """

    see = "to_frame() has a row for each, [0] is the first; paceline.report(results) draws them"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hashes: list[str] = []
        self.failed: list[int] = []
        self.ahead: dict[int, Line] = {}
        self.notes: tuple[str, ...] = ()
        self._held: list[Outcome] | None = None
        self._ends = array("Q")
        self._tail = b""
        self._waiting: dict[str, Line] = {}  # of scenarios whose places are not known yet
        self._foreign = False  # what waits is not all ours
        self._behind = False  # there are more lines behind the last, the first of them damaged
        self._damaged: list[str] = []  # lines that are not told of yet, each with what is wrong
        self._file: BinaryIO
        self._new = False
        self._beside: dict[str, BinaryIO] = {}

    # -- a sequence ---------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.hashes)

    def __iter__(self) -> Iterator[Outcome]:
        if self._held is not None:
            yield from self._held
            return
        with self.path.open("rb") as file:
            for index, line in zip(range(len(self)), file, strict=False):
                yield self._outcome(index, line)

    @overload
    def __getitem__(self, index: int) -> Outcome: ...
    @overload
    def __getitem__(self, index: slice) -> list[Outcome]: ...
    def __getitem__(self, index: int | slice) -> Outcome | list[Outcome]:
        places = range(len(self))[index]
        if not isinstance(places, int):
            return [self[place] for place in places]
        return self._held[places] if self._held is not None else self._outcome(places, self._text(places))

    @property
    def results(self) -> tuple[Result, ...]:
        """All results, in the order of the file; equal workloads and clusters of theirs are one object."""
        return tuple(outcome for outcome in self if isinstance(outcome, Result))

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Scenarios that could not be simulated, in the order of the file."""
        return tuple(outcome for outcome in (self[place] for place in self.failed) if isinstance(outcome, Failure))

    def _in_short(self) -> Iterator[str]:
        yield f"{counted(len(self), 'scenario')} in {self.path}"
        yield f"{len(self.failed):,} failed" if self.failed else ""

    def to_frame(self) -> pd.DataFrame:
        """A row per outcome, failures last: the settings that differ, then :data:`simulator.results.rows.COLUMNS`."""
        return frame_of((*self.results, *self.failures))

    def _repr_html_(self) -> str:
        """What a notebook shows: the first rows, with the most important figures."""
        caption = f"Results of {len(self)} scenarios. {' '.join(self.notes)}".rstrip()
        return html_of((*self.results, *self.failures), caption, total=len(self))

    def _text(self, index: int) -> bytes:
        """A line as it stands in the file."""
        begin = self._ends[index - 1] if index else 0
        with self.path.open("rb") as file:
            file.seek(begin)
            return file.read(self._ends[index] - begin)

    def _outcome(self, index: int, text: bytes) -> Outcome:
        try:
            return outcome_of(text)
        except DamagedError as error:
            raise ResultsError(f"{self.path}:{index + 1}: {error}") from None
        except ValueError:
            raise ResultsError(f"{self.path}:{index + 1}: is no result of this version; {_REPLACE}") from None

    # -- reading ------------------------------------------------------------------------

    @classmethod
    def read(cls, path: str | Path) -> ResultsFile:
        """Read the results that a sweep wrote.

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
        its, notes = cls(Path(path)), list[str]()
        its._held = list(iter_results(its.path, notes))
        its.hashes = [outcome.scenario_hash for outcome in its._held]
        its.failed = [at for at, outcome in enumerate(its._held) if isinstance(outcome, Failure)]
        said = list(notes)
        if its.failed:
            reasons = "; ".join(dict.fromkeys(failure.failed.text for failure in its.failures[:_NAMED]))
            more = "; ..." if len(its.failed) > _NAMED else ""
            notes.append(f"{len(its.failed)} of {len(its)} scenarios failed: {reasons}{more}")
        if len(its.failed) == len(its):
            if its.failed:
                raise ResultsError(f"{path}: holds no result: {notes[-1]}")
            if any(_LEFT_OUT in note for note in said):
                raise ResultsError(f"{said[0].removesuffix('.')}; no other result is there")
            whole = "complete " if said else ""
            raise ResultsError(f"{path}: holds no {whole}result; `paceline sweep` writes them")
        its.notes = tuple(notes)
        return its

    # -- opening and closing ------------------------------------------------------------

    @classmethod
    def open(cls, path: Path, *, force: bool = False) -> ResultsFile:
        """Open the results file of a sweep or plan to go on with it, or begin one; a context manager.

        Parameters
        ----------
        path
            The results file.
        force
            Begin anew if there is a file that is none, also of those beside it.

        Raises
        ------
        InputError
            It is no regular file, has the name of a file of times, cannot be read or written, or is
            being written by another process; or a file that would lie beside it is there and is none of a sweep's.
        ResultsError
            It is there and is no results file of this version.
        """
        shown = f"`out` {str(path)[:120]!r}"
        if path.exists() and not path.is_file():
            raise InputError(f"{shown}: is no regular file, so no sweep can go on in it; choose another path")
        if path.name.endswith(_TIMES):
            raise InputError(f"{shown}: names like this are for the times of other sweeps; choose another name, such as results.ndjson")
        cls.check_beside(path, force=force)
        new, its = not path.exists(), cls(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            its._file = path.open("a+b")
        except OSError as error:
            raise InputError(f"{shown}: cannot be read and written: {error.strerror}; choose another path") from None
        try:
            its._lock(shown)
            its._new = new
            if new:  # what lies beside it belonged to one that is gone
                cls.ahead_of(path).unlink(missing_ok=True)
            its._remove_retry()
            its._take_notice(force=force)
            if len(its) and not force:
                its._check_times()
        except BaseException:
            its.close()
            raise
        return its

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others write to it; one without any line is removed, unless lines that wait for their turn lie beside it."""
        if self._new and not self._file.closed and not self._holds_a_line() and not self.ahead_of(self.path).exists():
            self.path.unlink(missing_ok=True)
        self._file.close()
        for file in self._beside.values():
            file.close()
        self._beside.clear()

    def clear(self) -> None:
        """Begin anew, with no line."""
        self._file.truncate(0)
        self._forget()
        self.ahead_of(self.path).unlink(missing_ok=True)
        if (times := self._beside.pop(_TIMES, None)) is not None:
            times.close()

    def _holds_a_line(self) -> bool:
        """Whether there is a whole line on disk, which who is stopped may not have counted."""
        if len(self):
            return True
        self._file.seek(0)
        return self._file.readline().endswith(b"\n")

    def _forget(self) -> None:
        self.hashes, self.failed, self._ends, self._tail = [], [], array("Q"), b""
        self._waiting, self._foreign, self._behind, self._damaged = {}, False, False, []

    def _lock(self, shown: str) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{shown}: another process is writing to it; wait until it has ended, or choose another path") from None
        except OSError:
            return  # a file system without locks
        if not os.path.exists(self.path) or not os.path.samestat(os.fstat(self._file.fileno()), os.stat(self.path)):
            raise InputError(f"{shown}: was just replaced by another process; run the command again")

    def look_again(self, scenarios: Sequence[Scenario]) -> None:
        """Take notice of what the files hold: who was stopped in the midst of a line may have written it without knowing.

        Parameters
        ----------
        scenarios
            Those whose outcomes are written, in order.
        """
        self._forget()
        self._take_notice(force=False)
        self.ahead.clear()
        self.go_on_with(scenarios)

    def _take_notice(self, *, force: bool) -> None:
        """Find all whole lines, and what is left behind them; those behind a damaged one wait for their turn."""
        self._file.seek(0)
        times_s: dict[str, float | None] = {}
        for number, text in enumerate(self._file, start=1):
            if not text.endswith(b"\n") and begins_line(text):
                self._tail = text
                break
            line, fault = _line_or_fault(text)
            if fault is not None and is_damage(fault, self.path):
                times_s = times_s or self.times_s()
                self._behind = True
                self._damaged.append(f"{self.path}:{number}: {fault}")
                continue
            if line is None:
                if force:
                    self.clear()
                    return
                if fault is not None and not isinstance(fault, UnclearError):
                    raise ResultsError(f"{self.path}:{number}: {fault}; {_REPLACE}")
                where = f"{self.path}:{number}: is no result" if number > 1 else f"{self.path}: is there already and is no results file"
                raise ResultsError(f"{where} of this version; {_REPLACE}")
            if self._behind:
                took_s = times_s.get(line.scenario_hash) if line.took_s is None else line.took_s
                self._waiting[line.scenario_hash] = line._replace(took_s=took_s)
            else:
                self._note(line._replace(text=text))
        self._read_ahead()

    def _read_ahead(self) -> None:
        """Find the lines that were finished before their turn."""
        path, written = self.ahead_of(self.path), set(self.hashes)
        if not path.exists():
            return
        with path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                if not text.endswith(b"\n"):
                    break
                line, fault = _line_or_fault(text)
                if fault is not None and is_damage(fault, path):
                    self._damaged.append(f"{path}:{number}: {fault}")
                elif line is None:
                    self._foreign = True
                elif line.scenario_hash not in written:
                    self._waiting[line.scenario_hash] = line

    def _note(self, line: Line) -> None:
        """Take notice of the line behind the last."""
        if line.failed:
            self.failed.append(len(self))
        self.hashes.append(line.scenario_hash)
        self._ends.append((self._ends[-1] if self._ends else 0) + len(line.text))

    # -- going on -----------------------------------------------------------------------

    def go_on_with(self, scenarios: Sequence[Scenario], *, force: bool = False) -> None:
        """Make sure that it is the beginning of what these scenarios give, and find what was finished ahead.

        Parameters
        ----------
        scenarios
            Those whose outcomes are to be written, in order.
        force
            Begin anew if it is not.

        Raises
        ------
        ResultsError
            It holds results of other scenarios; the message says where, and what differs.
        """
        if (fault := self._fault(scenarios)) is not None:
            if not force:
                raise ResultsError(f"{fault}; {_REPLACE}")
            self.clear()
        for place in range(len(self), len(scenarios)):
            if not self._waiting:
                break
            self.expect(scenarios[place].hash, place)
        path = self.ahead_of(self.path)
        if self._waiting or self._foreign:
            if not force:
                raise ResultsError(f"{self._stray(scenarios)}; {_REPLACE}")
            self._waiting.clear()
            self.ahead.clear()
        if not self.ahead:
            path.unlink(missing_ok=True)

    def expect(self, scenario_hash: str, place: int) -> Line | None:
        """The line of a scenario that is there before its turn, which it now waits for; None where there is none.

        Parameters
        ----------
        scenario_hash
            The hash of the scenario.
        place
            Number, from 0, that its line will have.
        """
        if (line := self._waiting.pop(scenario_hash, None)) is not None:
            self.ahead[place] = line
        return line

    def drop_failures_ahead(self) -> None:
        """Forget failures among what is there before its turn: they are tried again in their turn."""
        self.ahead = {place: line for place, line in self.ahead.items() if not line.failed}
        if not self.ahead:
            self.ahead_of(self.path).unlink(missing_ok=True)

    def missing(self, total: int, *, retry_failed: bool = False) -> list[int]:
        """Places, from 0, of the scenarios that are yet to be simulated, in order.

        Parameters
        ----------
        total
            Number of scenarios.
        retry_failed
            Whether failures are too.
        """
        tried = self.failed if retry_failed else []
        ahead = {place for place, line in self.ahead.items() if not (retry_failed and line.failed)}
        return [*tried, *(place for place in range(len(self), total) if place not in ahead)]

    @property
    def leaves_over(self) -> bool:
        """Whether it has lines that nobody has asked for: damaged ones, or such as wait for a turn that they have not."""
        return self._behind or bool(self._waiting)

    def _fault(self, scenarios: Sequence[Scenario]) -> str | None:
        """Where and how it differs from what these scenarios give; None where it does not."""
        for index, found in enumerate(self.hashes):
            if index >= len(scenarios):
                return f"{self.path}:{index + 1}: {_ANOTHER}, of {len(self):,} scenarios and not {len(scenarios):,}"
            if scenarios[index].hash != found:
                return f"{self.path}:{index + 1}: {_ANOTHER}{self._difference(index, scenarios[index])}"
        index = len(self)
        if self._behind and index >= len(scenarios):
            return f"{self.path}:{index + 1}: {_ANOTHER}, of more than {len(scenarios):,} scenarios"
        if self._tail and not self._behind and (index >= len(scenarios) or not begins_line(self._tail, scenarios[index].hash)):
            return f"{self.path}:{index + 1}: {_ANOTHER}"
        return None

    def _stray(self, scenarios: Sequence[Scenario]) -> str:
        """Where the first line stands that waits for a turn which none of these scenarios has, and what it has otherwise."""
        ahead = self.ahead_of(self.path)
        for scenario_hash, line in itertools.islice(self._waiting.items(), 1):
            path, number = next((path, number) for path in (self.path, ahead) if (number := _number_of(scenario_hash, path)))
            if path == self.path and number > len(scenarios):
                return f"{path}:{number}: {_ANOTHER}, of more than {len(scenarios):,} scenarios"
            there = outcome_of(line.text).scenario
            # damage may have taken the ends of lines, so that the number alone does not tell which it was
            nearest = sorted(self.missing(len(scenarios)), key=lambda place: abs(place + 1 - number))[:_COMPARED]
            differences = (_differences(there, scenarios[place]) for place in nearest)
            return f"{path}:{number}: {_ANOTHER}{_told(min(differences, key=len, default=[]))}"
        return f"{ahead}: {_ANOTHER}"

    def _difference(self, index: int, scenario: Scenario) -> str:
        """What the scenario of a line has otherwise than the one that should be there."""
        try:
            there = self[index].scenario
        except ResultsError:
            return ""
        return _told(_differences(there, scenario))

    def times_s(self) -> dict[str, float | None]:
        """Duration of each simulation by the hash of its scenario, as far as they are known."""
        path = self.times_of(self.path)
        if not path.is_file():
            return {}
        with path.open("rb") as file:
            return dict(entry for line in file if (entry := _time_in(line)) is not None)

    @staticmethod
    def times_of(path: Path) -> Path:
        """The file of times that belongs to a results file."""
        return path.with_suffix(_TIMES)

    @staticmethod
    def ahead_of(path: Path) -> Path:
        """Where lines wait that were finished before those in front of them."""
        return path.with_name(f".{path.name}{_AHEAD}")

    @classmethod
    def beside(cls, path: Path) -> tuple[Path, ...]:
        """Every file that may come to lie beside a results file."""
        return tuple(beside for beside, _ in cls._kinds_beside(path))

    @classmethod
    def check_beside(cls, path: Path, *, force: bool = False) -> None:
        """Make sure that each file which comes to lie beside a results file can be written, and replaces nothing of anybody else's.

        Raises
        ------
        InputError
            One cannot, or would.
        """
        for beside, kind in cls._kinds_beside(path):
            Output(beside, kind, force=force, beside=True)

    @classmethod
    def _kinds_beside(cls, path: Path) -> Iterator[tuple[Path, OutputKind]]:
        results = OutputKind("is no results file", _is_results_file)
        times = OutputKind(
            "does not hold the times of its simulations",
            lambda file: _holds_times(file) and not _sharing_times(path),
        )
        retry = path.with_name(f".{path.name}{_RETRY}")
        yield from ((cls.times_of(path), times), (cls.ahead_of(path), results), (retry, results), (cls.times_of(retry), times))

    # -- writing ------------------------------------------------------------------------

    def append(self, outcome: Outcome) -> None:
        """Write an outcome, as :meth:`write`."""
        self.write([line_of(outcome)])

    def write(self, lines: Iterable[Line] = (), *, sync: bool = True) -> None:
        """Write lines, each followed by those that waited for it; then, unless told otherwise, wait until they are on disk.

        Raises
        ------
        SimulationError
            They cannot be written, as on a full disk; what was written before is kept.
        """
        self._tell_of_damage()
        waiting = bool(self.ahead)
        with _explained(self.path):
            self._catch_up()
            for line in lines:
                self._write(line)
                self._catch_up()
            if sync:
                os.fsync(self._file.fileno())
            if waiting and not self.ahead and not self._waiting:
                if (ahead := self._beside.pop(_AHEAD, None)) is not None:
                    ahead.close()
                self.ahead_of(self.path).unlink(missing_ok=True)

    def write_ahead(self, place: int, line: Line) -> None:
        """Write down a line that is there before its turn; it goes to its place with the line in front of it.

        Raises
        ------
        SimulationError
            It cannot be written, as on a full disk.
        """
        self._put_ahead(line)
        self.ahead[place] = line

    def _put_ahead(self, line: Line) -> None:
        path = self.ahead_of(self.path)
        with _explained(path):
            if _AHEAD not in self._beside:
                file = self._beside[_AHEAD] = path.open("a+b")
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
            _put(self._beside[_AHEAD], timed(line))

    def _save_behind(self) -> None:
        """Copy what stands behind a damaged line to where lines wait, before it is cut off."""
        for line in (*self.ahead.values(), *self._waiting.values()):
            self._put_ahead(line)
        if _AHEAD in self._beside:
            os.fsync(self._beside[_AHEAD].fileno())

    def _tell_of_damage(self) -> None:
        damaged, self._damaged = self._damaged, []
        for what in damaged[:_NAMED]:
            warnings.warn(PacelineWarning(f"{what}; it is simulated again"), stacklevel=3)
        if more := damaged[_NAMED:]:
            places = ", ".join(what.partition(": ")[0] for what in more[:_LINES_NAMED])
            warnings.warn(PacelineWarning(f"so are {counted(len(more), 'line')} more: {places}"), stacklevel=3)

    def retried(self, again: Iterator[Outcome], progress: Callable[[int, int], None]) -> ResultsFile:
        """Itself with new outcomes in place of the failures; until the last is there, the old file stands.

        Parameters
        ----------
        again
            The outcomes, in order.
        progress
            Called with failures done and in all.

        Returns
        -------
        ResultsFile
            The new one, open; this one is closed.
        """
        self._tell_of_damage()
        times_s, failed, done = self.times_s(), set(self.failed), 0
        new = ResultsFile.open(self.path.with_name(f".{self.path.name}{_RETRY}"), force=True)
        try:
            progress(done, len(failed))
            for place, scenario_hash in enumerate(self.hashes):
                if place in failed:
                    new.append(next(again))
                    progress(done := done + 1, len(failed))
                else:
                    new.write([Line(self._text(place), scenario_hash, times_s.get(scenario_hash), failed=False)], sync=False)
            os.fsync(new._file.fileno())
            if self._behind:
                self._save_behind()
            os.replace(self.times_of(new.path), self.times_of(self.path))
            os.replace(new.path, self.path)
        except BaseException:
            new.close()
            self._remove_retry()
            raise
        new.path, new.ahead, self.ahead = self.path, self.ahead, {}
        self.close()
        return new

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Around simulations whose outcomes are written.

        Raises
        ------
        WorkersLostError
            Their processes are gone; it says that what is finished is kept here, where something is.
        """
        try:
            yield
        except WorkersLostError as error:
            files = [str(path) for path, lines in ((self.path, self.hashes), (self.ahead_of(self.path), self.ahead)) if lines]
            if not files:
                raise
            raise WorkersLostError(error.what, error.advice, f"finished results are kept in {' and '.join(files)}") from None

    def _catch_up(self) -> None:
        """Write the lines that waited for the last one."""
        while (line := self.ahead.get(len(self))) is not None:
            self._write(line)
            del self.ahead[len(self) - 1]

    def _write(self, line: Line) -> None:
        if _TIMES not in self._beside:
            self._beside[_TIMES] = self._open_times()
        _put(self._beside[_TIMES], json.dumps({"scenario_hash": line.scenario_hash, "wall_time_s": line.took_s}).encode() + b"\n")
        if self._behind:
            self._save_behind()
        if self._tail or self._behind:
            self._file.truncate(self._ends[-1] if self._ends else 0)
            self._tail, self._behind = b"", False
        _put(self._file, line.text)
        self._note(line)

    def _open_times(self) -> BinaryIO:
        """The file of times, cut off behind the last line that is whole and of an outcome that is there."""
        file, written = self.times_of(self.path).open("a+b"), set(self.hashes)
        file.seek(0)
        end = 0
        for text, _ in zip(file, range(len(self)), strict=False):
            entry = _time_in(text)
            if entry is None or entry[0] not in written:
                break
            end += len(text)
        file.truncate(end)
        return file

    def _check_times(self) -> None:
        """Make sure that the times which lie beside it are of its simulations.

        Raises
        ------
        ResultsError
            They are of others.
        """
        path, known = self.times_of(self.path), set(self.hashes)
        if not path.is_file():
            return
        with path.open("rb") as file:
            for number, (text, _) in enumerate(zip(file, range(len(self)), strict=False), start=1):
                if (entry := _time_in(text)) is not None and entry[0] not in known:
                    raise ResultsError(f"{path}:{number}: holds the times of another sweep; {_REPLACE}")

    def _remove_retry(self) -> None:
        """Remove what a retry has left that was stopped."""
        path = self.path.with_name(f".{self.path.name}{_RETRY}")
        path.unlink(missing_ok=True)
        self.times_of(path).unlink(missing_ok=True)


read_results = ResultsFile.read


def iter_results(path: Path, notes: list[str] | None = None) -> Iterator[Outcome]:
    """The outcomes that a sweep wrote, one by one, in the order of the file.

    A last line that was cut off is left out, and so are lines that were damaged or changed after they were written.

    Parameters
    ----------
    path
        The file; it may also be put together by hand, with empty lines and keys in any order.
    notes
        Gets sentences on the lines that are left out, and on those that have no checksum.

    Raises
    ------
    ResultsError
        As :meth:`ResultsFile.read`, once the line is reached; a file that holds nothing is none.
    """
    notes = notes if notes is not None else []
    left_out: dict[str, list[int]] = {}
    read, unsure = False, 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if not text.strip():
                    continue
                try:
                    outcome = checked_outcome_of(text)
                except ResultsError as error:
                    if number == 1 and not is_damage(error, path) and (said := mistaken(path, "results")):
                        raise ResultsError(f"{path}: {said}") from None
                    if isinstance(error, CutOffError) and not line.endswith(b"\n"):
                        notes.append(
                            f"The results file ends in the middle of line {number}, as after an interrupted sweep; that line is left out."
                        )
                    elif (read and isinstance(error, DamagedError)) or is_damage(error, path):
                        left_out.setdefault(str(error), []).append(number)
                    else:
                        raise ResultsError(f"{path}:{number}: {error}") from None
                else:
                    read = True
                    unsure += checksum_holds(text) is None
                    yield outcome
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
            f"{counted(unsure, 'line')} of {path} {'has' if unsure == 1 else 'have'} no checksum, as from an earlier version: "
            "whether the figures are as they were simulated cannot be told."
        )


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SimulationError(f"{path}: cannot be written: {error.strerror}; finished results are kept: run again when it can") from None


def _put(file: BinaryIO, data: bytes) -> None:
    """Write to the end of a file that was opened to append, past Python's buffer: nothing is left in it that could come late."""
    while data:
        data = data[os.write(file.fileno(), data) :]


def _time_in(text: bytes) -> tuple[str, float | None] | None:
    """Hash and seconds of a line of the file of times; None where it is cut off or no such line."""
    try:
        entry = json.loads(text)
        return (str(entry["scenario_hash"]), entry["wall_time_s"]) if text.endswith(b"\n") and len(entry) == _IN_TIME else None
    except (ValueError, KeyError, TypeError):
        return None


def _line_or_fault(text: bytes) -> tuple[Line | None, ResultsError | None]:
    """The line that a text is, or why it cannot be read; neither where it is another program's."""
    try:
        return line_in(text), None
    except ResultsError as error:
        return None, error


def _is_results_file(path: Path) -> bool:
    """Whether a file has the lines of a sweep alone; some may be damaged, and the last cut off."""

    def counts(text: bytes) -> bool:
        line, fault = _line_or_fault(text)
        return line is not None or (fault is not None and is_damage(fault, path))

    with path.open("rb") as file:
        return all((not text.endswith(b"\n") and begins_line(text)) or counts(text) for text in file)


def _holds_times(path: Path) -> bool:
    """Whether a file has times alone; the last may be cut off."""
    with path.open("rb") as file:
        return all(_time_in(text) is not None if text.endswith(b"\n") else _begins_time(text) for text in file)


def _begins_time(part: bytes) -> bool:
    return part.startswith(_TIME_BEGINS) or _TIME_BEGINS.startswith(part)


def _sharing_times(path: Path) -> bool:
    """Whether another results file has its times where those of this one go, as ``r.json`` beside ``r.ndjson``."""
    times = ResultsFile.times_of(path)
    others = (other for other in path.parent.glob(f"{glob.escape(path.stem)}*") if other.is_file() and other.name != path.name)
    return any(ResultsFile.times_of(other) == times and holds_lines(other) for other in others)


def _number_of(scenario_hash: str, path: Path) -> int:
    """Number, from 1, of the line of a scenario in a file; 0 where there is none."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        return next((number for number, text in enumerate(file, start=1) if begins_line(text, scenario_hash)), 0)


def _differences(there: Scenario, here: Scenario) -> list[str]:
    return list(_differing(there.model_dump(mode="json"), here.model_dump(mode="json")))


def _told(differences: Sequence[str]) -> str:
    """What differs, to be put behind a sentence."""
    more = f" and {len(differences) - 1} more" if len(differences) > 1 else ""
    return f", where {differences[0]}{more}" if differences else ""


def _differing(there: Any, here: Any, where: str = "") -> Iterator[str]:
    """Each dotted key that differs, with both values where they are short."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in (*there, *(key for key in here if key not in there)):
            yield from _differing(there.get(key), here.get(key), f"{where}.{key}" if where else key)
    elif there != here:
        was, now = ("left out" if value is None else quoted(value) for value in (there, here))
        both_short = not any(isinstance(value, (Mapping, list)) for value in (there, here))
        yield f"{where} was {was} and is now {now}" if both_short else f"{where} differs"
