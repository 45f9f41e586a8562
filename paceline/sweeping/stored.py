"""The lines of a results file, found again by number."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path

from paceline.sweeping.lines import LineReader
from simulator.errors import ResultsError
from simulator.results import Failure, Result

__all__ = ["StoredLines"]

Outcome = Result | Failure


class StoredLines:
    """The whole lines of a results file, found again by number; none is held.

    Attributes
    ----------
    path
        The file.
    hashes
        Of the scenario of each line.
    failed
        Numbers, from 0, of the lines that hold a failure.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hashes: list[str] = []
        self.failed: list[int] = []
        self._ends = array("Q")
        self._reader = LineReader()

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def end(self) -> int:
        """Bytes of all lines."""
        return self._ends[-1] if self._ends else 0

    def add(self, scenario_hash: str, length: int, *, failed: bool) -> None:
        """Take notice of a line that was written behind the last."""
        if failed:
            self.failed.append(len(self.hashes))
        self.hashes.append(scenario_hash)
        self._ends.append(self.end + length)

    def raw(self, index: int) -> bytes:
        """A line as it stands in the file."""
        begin = self._ends[index - 1] if index else 0
        with self.path.open("rb") as file:
            file.seek(begin)
            return file.read(self._ends[index] - begin)

    def __getitem__(self, index: int) -> Outcome:
        return self._parsed(index, self.raw(index))

    def __iter__(self) -> Iterator[Outcome]:
        with self.path.open("rb") as file:
            for index, line in zip(range(len(self)), file, strict=False):
                yield self._parsed(index, line)

    def _parsed(self, index: int, line: bytes) -> Outcome:
        try:
            return self._reader.read(line)
        except ValueError:
            raise ResultsError(
                f"{self.path}:{index + 1}: is no result of this version; choose another --out, or --force to replace it"
            ) from None
