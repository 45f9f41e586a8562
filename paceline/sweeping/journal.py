"""Journals: outcomes on disk, one line each, that survive being killed at any moment."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pydantic_core import from_json

from paceline.sweeping.backends import WorkersLostError
from paceline.sweeping.lines import Line, begins_line, hash_of_line, line_of
from paceline.sweeping.stored import StoredLines
from simulator.errors import InputError, ResultsError, SimulationError
from simulator.results import Failure, Result
from simulator.scenario import Scenario

__all__ = ["Journal"]

Outcome = Result | Failure
_TIMES = ".times.ndjson"
_AHEAD = ".ahead.ndjson"


class Journal:
    """A results file that grows by one line an outcome.

    Lines are written past all buffers of the process, so that whatever kills it leaves
    whole lines and at most the beginning of one, which the next to write cuts off; those
    that come together are then synced, before more is waited for. While it
    is open nobody else can open it. How long each simulation took, which the lines do not
    tell since they must depend on the scenarios alone, stands in ``RESULTS.times.ndjson``.

    Use :meth:`open`, as a context manager.

    Attributes
    ----------
    lines
        What it holds.
    tail
        A half-written line behind the last whole one, or nothing.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.lines = StoredLines(path)
        self._new = False
        self.tail = b""
        self._file = file
        self._known: dict[str, int] = {}
        self._clock: BinaryIO | None = None

    @classmethod
    def open(cls, path: Path, *, force: bool = False) -> Journal:
        """Open a journal, or begin one.

        Parameters
        ----------
        path
            The results file.
        force
            Begin anew if there is a file that is no journal.

        Raises
        ------
        InputError
            It is no regular file, has the name of a file of times, cannot be read or written, or is
            being written by another process.
        ResultsError
            It is there and is no journal.
        """
        shown = f"--out {str(path)[:120]!r}"
        if path.exists() and not path.is_file():
            raise InputError(f"{shown}: is no regular file, so no sweep can go on in it; choose another path")
        if path.name.endswith(_TIMES):
            raise InputError(f"{shown}: names like this are for the times of other sweeps; choose another name, such as results.ndjson")
        new = not path.exists()
        try:
            file = path.open("a+b")
        except OSError as error:
            raise InputError(f"{shown}: cannot be read and written: {error.strerror}; choose another path") from None
        journal = cls(path, file)
        try:
            journal._lock(shown)
            journal._new = new
            if new:  # what lies beside it is of one that is gone
                cls.remove(cls.ahead_of(path))
            journal._read(force=force)
        except BaseException:
            journal.close()
            raise
        return journal

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.lines)

    def close(self) -> None:
        """Let others write to it; a new one that got no line is removed, unless outcomes that wait for their turn lie beside it."""
        if self._new and not len(self) and not self._file.closed and not self.ahead_of(self.lines.path).exists():
            self.lines.path.unlink(missing_ok=True)
        self._file.close()
        if self._clock is not None:
            self._clock.close()
            self._clock = None

    def known(self, scenario: Scenario) -> Outcome | None:
        """The outcome of a scenario, if it is there."""
        index = self._known.get(scenario.hash)
        return None if index is None else self.lines[index]

    def append(self, outcome: Outcome) -> None:
        """Write the line of an outcome, as :meth:`write`."""
        self.write([line_of(outcome)])

    def write(self, lines: Iterable[Line], *, sync: bool = True) -> None:
        """Write some lines, and unless told otherwise wait until they are on disk.

        Raises
        ------
        SimulationError
            They cannot be written, as on a full disk; what was written before is kept.
        """
        try:
            for line in lines:
                self._write(line.text, line.scenario_hash, line.took_s, failed=line.failed)
            if sync:
                os.fsync(self._file.fileno())
        except OSError as error:
            raise SimulationError(
                f"{self.lines.path}: cannot be written: {error.strerror}; finished results are kept: run again when it can"
            ) from None

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Around simulations whose outcomes are appended.

        Raises
        ------
        WorkersLostError
            Their processes are gone; it says that what is finished is kept here, where something is.
        """
        try:
            yield
        except WorkersLostError as error:
            ahead = self.ahead_of(self.lines.path)
            files = [str(path) for path, holds in ((self.lines.path, len(self)), (ahead, ahead.exists() and ahead.stat().st_size)) if holds]
            if not files:
                raise
            raise WorkersLostError(error.what, error.advice, f"finished results are kept in {' and '.join(files)}") from None

    def _write(self, line: bytes, scenario_hash: str, took_s: float | None, *, failed: bool) -> None:
        if self._clock is None:
            self._clock = self._open_times()
        # the time first: one too many is cut off at the next beginning, one too few could not be made good
        _put(self._clock, json.dumps({"scenario_hash": scenario_hash, "wall_time_s": took_s}).encode() + b"\n")
        if self.tail:
            self._file.truncate(self.lines.end)
            self.tail = b""
        _put(self._file, line)
        self._note(scenario_hash, len(line), failed=failed)

    def take_place_of(self, path: Path) -> None:
        """Become the journal of that path, in one stroke."""
        os.fsync(self._file.fileno())
        os.replace(self.times_of(self.lines.path), self.times_of(path))
        os.replace(self.lines.path, path)
        self.lines.path = path

    def times(self) -> dict[str, float | None]:
        """Seconds that each simulation took, by the hash of its scenario, as far as they are known."""
        found: dict[str, float | None] = {}
        path = self.times_of(self.lines.path)
        if path.is_file():
            with path.open("rb") as file:
                for line in file:
                    if (entry := _time_in(line)) is not None:
                        found[entry[0]] = entry[1]
        return found

    @staticmethod
    def times_of(path: Path) -> Path:
        """The file of times that belongs to a results file."""
        return path.with_suffix(_TIMES)

    @staticmethod
    def ahead_of(path: Path) -> Path:
        """Where outcomes wait that are there before those in front of them."""
        return path.with_name(f".{path.name}{_AHEAD}")

    @classmethod
    def remove(cls, path: Path) -> None:
        """Remove a journal, if it is there, and its times."""
        path.unlink(missing_ok=True)
        cls.times_of(path).unlink(missing_ok=True)

    def clear(self) -> None:
        """Begin anew, with no line."""
        if self._clock is not None:
            self._clock.close()
            self._clock = None
        self._file.truncate(0)
        path = self.lines.path
        self.lines, self.tail, self._known = StoredLines(path), b"", {}

    def _lock(self, shown: str) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{shown}: another process is writing to it; wait until it has ended, or choose another path") from None
        except OSError:
            return  # a file system without locks
        if not os.path.exists(self.lines.path) or not os.path.samestat(os.fstat(self._file.fileno()), os.stat(self.lines.path)):
            raise InputError(f"{shown}: was just replaced by another process; run the command again")

    def _read(self, *, force: bool) -> None:
        """Take notice of all whole lines, and of what is left behind them."""
        path = self.lines.path
        self._file.seek(0)
        for line in self._file:
            found = hash_of_line(line)
            if not line.endswith(b"\n") and (begins_line(line) or found is not None):
                self.tail = line
                return
            try:
                data = from_json(line)
            except ValueError:
                data = None
            if found is None or not isinstance(data, dict):
                if force:
                    self.clear()
                    return
                where = f"{path}:{len(self) + 1}: is no result" if len(self) else f"{path}: is there already and is no results file"
                raise ResultsError(f"{where} of this version; choose another --out, or --force to replace it")
            self._note(found, len(line), failed="failed" in data)

    def _note(self, scenario_hash: str, length: int, *, failed: bool) -> None:
        self._known[scenario_hash] = len(self.lines)
        self.lines.add(scenario_hash, length, failed=failed)

    def _open_times(self) -> BinaryIO:
        """The file of times, open behind the last line that is whole and of an outcome that is there."""
        file = self.times_of(self.lines.path).open("a+b")
        file.seek(0)
        end = 0
        for line, _ in zip(file, range(len(self)), strict=False):
            entry = _time_in(line)
            if entry is None or entry[0] not in self._known:
                break
            end += len(line)
        file.truncate(end)
        return file


def _put(file: BinaryIO, data: bytes) -> None:
    """Write to the end of a file that was opened to append, past Python's buffer: nothing is left in it that could come late."""
    while data:
        data = data[os.write(file.fileno(), data) :]


def _time_in(line: bytes) -> tuple[str, float | None] | None:
    """Hash and seconds of a line of the file of times; None where it is cut off or no such line."""
    try:
        entry = json.loads(line)
        return (str(entry["scenario_hash"]), entry["wall_time_s"]) if line.endswith(b"\n") else None
    except (ValueError, KeyError, TypeError):
        return None
