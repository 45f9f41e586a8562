"""The simulations of a plan: each scenario once, in a results file that another run of the same plan goes on with."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext

from paceline.sweeping.lines import Outcome, outcome_of, timeless
from paceline.sweeping.results_file import ResultsFile
from paceline.sweeping.runner import Runner
from simulator.base.errors import ResultsError
from simulator.scenario import Scenario

__all__ = ["Simulate", "Simulations"]

Simulate = Callable[[Sequence[Scenario]], Sequence[Outcome]]
"""Scenarios into outcomes, in their order."""


class Simulations:
    """Simulates what a plan asks for; asked again, it remembers.

    A plan asks for the same scenarios in the same order, whatever the number of jobs. So
    the lines of its results file are those that an interrupted run had written, or it belongs
    to another plan.

    Parameters
    ----------
    runner
        Where to simulate.
    file
        What is simulated goes there, in the order in which it is asked for.
    force
        Begin anew if the file belongs to another plan.
    progress
        Called with scenarios done and asked for.
    """

    def __init__(
        self,
        runner: Runner,
        file: ResultsFile | None = None,
        *,
        force: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._runner = runner
        self._file = file
        self._force = force
        self._progress = progress
        self._known: dict[str, Outcome] = {}

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Outcome]:
        """Outcomes in the order of the scenarios.

        Raises
        ------
        ResultsError
            The file belongs to another plan.
        """
        asked = {scenario.hash: scenario for scenario in scenarios}
        hashes = [scenario.hash for scenario in scenarios] if len(asked) < len(scenarios) else list(asked)
        new = {key: scenario for key, scenario in asked.items() if key not in self._known}
        order = deque(key for key in new if not self._take_from_file(key))
        early = {key: line for place, key in enumerate(order, start=len(self._known)) if (line := self._waits(key, place)) is not None}
        left = [new[key] for key in order if key not in early]
        total = len(self._known) + len(order)
        self._tell(total)
        try:
            keeping = self._file.keeping() if self._file is not None else nullcontext()
            with keeping, closing(self._runner.run(left)) as outcomes:
                self._take_early(order, early)
                for outcome in outcomes:
                    kept = timeless(outcome)
                    if self._file is not None:
                        self._file.append(outcome)
                    self._known[order.popleft()] = kept
                    self._take_early(order, early)
                    self._tell(total)
        except KeyboardInterrupt:
            if self._file is not None and self._progress is not None:
                self._progress(len(self._file), total)  # perhaps it came between a line and the word of it
            raise
        return [self._known[key] for key in hashes]

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Of every scenario that was asked for, in the order in which it first was."""
        return tuple(self._known.values())

    def finish(self) -> None:
        """Nothing more will be asked for.

        Raises
        ------
        ResultsError
            The file holds more than this plan asks for.
        """
        if self._file is not None and (len(self._file) > len(self._known) or self._file.leaves_over):
            self._refuse(len(self._known))

    def _take_from_file(self, key: str) -> bool:
        """Whether the outcome stands where an earlier run of this plan would have written it."""
        place = len(self._known)
        if self._file is None or place >= len(self._file):
            return False
        if self._file.hashes[place] != key:
            self._refuse(place)
            return False
        self._known[key] = self._file[place]
        return True

    def _waits(self, key: str, place: int) -> Outcome | None:
        """The outcome that an earlier run has left for this place, where those in front of it are yet to be simulated."""
        line = self._file.expect(key, place) if self._file is not None else None
        return outcome_of(line.text) if line is not None else None

    def _take_early(self, order: deque[str], early: Mapping[str, Outcome]) -> None:
        """Count those whose turn has come among what is known, and write them."""
        while order and order[0] in early:
            key = order.popleft()
            self._known[key] = early[key]
        if early and self._file is not None:
            self._file.write()

    def _refuse(self, place: int) -> None:
        """The file belongs to another plan: say so, or replace it."""
        assert self._file is not None
        if not self._force:
            raise ResultsError(
                f"{self._file.path}:{place + 1}: holds the results of another plan or sweep; "
                "choose another `out`, or `force=True` to replace it"
            )
        self._file.clear()
        for outcome in self._known.values():
            self._file.append(outcome)

    def _tell(self, total: int) -> None:
        if self._progress is not None:
            self._progress(len(self._known), total)
