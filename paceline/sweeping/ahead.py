"""Outcomes that are there before those in front of them: kept beside the journal until their turn comes."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.sweeping.journal import Journal
from paceline.sweeping.lines import Line
from simulator.errors import ResultsError
from simulator.scenario import Scenario

__all__ = ["Ahead"]


class Ahead:
    """What a sweep on several processes has finished out of order, so that a stop does not lose it.

    It lies in :meth:`Journal.ahead_of`, a journal too, which is there only as long as it holds
    something that the other does not. Its lines are not synced one by one: they survive the
    end of the process, perhaps not that of the machine.

    Parameters
    ----------
    journal
        Of the sweep, open.
    scenarios
        Those of the sweep.
    force
        Begin anew if what lies there belongs to another sweep.

    Raises
    ------
    ResultsError
        What lies there belongs to another sweep.
    """

    def __init__(self, journal: Journal, scenarios: Sequence[Scenario], *, force: bool = False) -> None:
        self._path = Journal.ahead_of(journal.lines.path)
        self._file = Journal.open(self._path, force=force) if self._path.exists() else None
        self._lines: dict[int, int] = {}
        try:
            if self._file is not None and not self._find(self._file, journal, scenarios):
                if not force:
                    raise ResultsError(f"{self._path}: holds the results of another sweep; choose another --out, or --force to replace it")
                self._forget()
        except BaseException:
            if self._file is not None:
                self._file.close()
            raise
        self._times = self._file.times() if self._file is not None else {}

    def _find(self, file: Journal, journal: Journal, scenarios: Sequence[Scenario]) -> bool:
        """Note which line is whose; whether each is of this sweep."""
        in_turn = set(journal.lines.hashes)
        lines = {scenario_hash: line for line, scenario_hash in enumerate(file.lines.hashes) if scenario_hash not in in_turn}
        missing = set(lines)
        for place in range(len(journal), len(scenarios)):
            if not missing:
                break
            if (line := lines.get(scenario_hash := scenarios[place].hash)) is not None:
                self._lines[place] = line
                missing.discard(scenario_hash)
        return not missing

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, place: int) -> bool:
        return place in self._lines

    def keep(self, place: int, line: Line) -> None:
        """Write down the line of the scenario at a place of the sweep.

        Raises
        ------
        SimulationError
            It cannot be written, as on a full disk.
        """
        if self._file is None:
            self._file = Journal.open(self._path)
        self._file.write([line], sync=False)
        self._lines[place] = len(self._file) - 1

    def hand_over(self, place: int, journal: Journal) -> None:
        """Its turn has come: the line goes to the journal as it is."""
        assert self._file is not None
        line = self._lines[place]
        scenario_hash = self._file.lines.hashes[line]
        failed = line in self._file.lines.failed
        journal.write([Line(self._file.lines.raw(line), scenario_hash, self._times.get(scenario_hash), failed)])
        self.drop(place)

    def drop(self, place: int) -> None:
        """The journal has it now."""
        if self._lines.pop(place, None) is not None and not self._lines:
            self._forget()

    def _forget(self) -> None:
        self._lines.clear()
        if self._file is not None:
            self._file.clear()

    def close(self, journal: Journal) -> None:
        """Let others write to it; if it holds nothing that the journal does not, it is removed."""
        if self._file is None:
            return
        if set(self._file.lines.hashes) <= set(journal.lines.hashes):
            Journal.remove(self._path)
        self._file.close()
        self._file = None
