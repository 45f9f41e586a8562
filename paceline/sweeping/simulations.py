"""Simulates scenarios as a plan, an advice or a report's what-ifs ask for them: each once, kept in a results file where there is one.

Another run of the same plan goes on with that file. A sweep, which knows all its scenarios beforehand, is in sweep.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext

from paceline.sweeping.journal import Journal
from paceline.sweeping.lines import Outcome, line_of
from paceline.sweeping.runner import Runner
from simulator.base.errors import ResultsError
from simulator.scenario import Scenario

Simulate = Callable[[Sequence[Scenario]], Sequence[Outcome]]
"""Scenarios into outcomes, in their order."""


class Simulations:
    """Simulates what a plan asks for; asked again, it remembers.

    A plan asks for the same scenarios in the same order, whatever the number of jobs. So
    its results file is one that an interrupted run has begun, or belongs to another plan.

    Parameters
    ----------
    runner
        Where to simulate.
    file
        What is simulated goes there; at the end it is in the order in which it was asked for.
    force
        Begin anew if the file belongs to another plan.
    progress
        Called with scenarios done and asked for.
    """

    def __init__(
        self,
        runner: Runner,
        file: Journal | None = None,
        *,
        force: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._runner = runner
        self._file = file
        self._force = force
        self._progress = progress if progress is not None else _silent
        self._places: dict[str, int] = {}  # of all that was asked for
        self._known: dict[str, Outcome] = {}
        self._known_aside: dict[str, Outcome] = {}
        self._taken = 0  # of them from the file

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Outcome]:
        """Outcomes in the order of the scenarios.

        Raises
        ------
        ResultsError
            The file belongs to another plan.
        """
        new = [scenario for key, scenario in {its.hash: its for its in scenarios}.items() if key not in self._places]
        for scenario in new:
            self._places[scenario.hash] = len(self._places)
        if self._file is not None:
            self._refuse_others(self._file, len(self._places))
            taken = {its.hash: outcome for its in new if (outcome := self._file.outcome(its.hash)) is not None}
            self._known |= taken
            self._taken += len(taken)
        left = [scenario for scenario in new if scenario.hash not in self._known]
        total = len(self._places)
        self._progress(len(self._known), total)
        try:
            keeping = self._file.keeping() if self._file is not None else nullcontext()
            with keeping, closing(self._runner.completed(left)) as groups:
                for group in groups:
                    if self._file is not None:
                        self._file.write((self._places[outcome.scenario_hash], line_of(outcome)) for _, outcome in group)
                    self._known |= {outcome.scenario_hash: outcome for _, outcome in group}
                    self._progress(len(self._known), total)
        except KeyboardInterrupt:
            if self._file is not None:  # perhaps it came between a line and the word of it
                self._progress(self._taken + self._file.written(), total)
            raise
        return [self._known[scenario.hash] for scenario in scenarios]

    def aside(self, scenarios: Sequence[Scenario]) -> list[Outcome]:
        """Outcomes of scenarios that are no part of the plan: remembered, and neither kept in the file nor counted."""
        new = [scenario for key, scenario in {its.hash: its for its in scenarios}.items() if key not in self._known_aside]
        with closing(self._runner.completed(new)) as groups:
            for group in groups:
                self._known_aside |= {outcome.scenario_hash: outcome for _, outcome in group}
                self._progress(len(self._known), len(self._places))
        return [self._known_aside[scenario.hash] for scenario in scenarios]

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Of every scenario that was asked for, in the order in which it first was."""
        return tuple(self._known[key] for key in self._places)

    def finish(self) -> None:
        """Nothing more will be asked for.

        Raises
        ------
        ResultsError
            The file holds more than this plan asks for.
        """
        if self._file is not None:
            self._refuse_others(self._file, None)
            self._file.finish(list(self._places))

    def _refuse_others(self, file: Journal, among: int | None) -> None:
        """Raise ResultsError, or forget them, where lines with places below a number, or any, are of nothing that was asked for."""
        number = file.others(self._places, among)
        if number is not None and not self._force:
            raise ResultsError(
                f"{file.path}:{number}: holds the results of another plan or sweep; choose another `out`, or `force=True` to replace it"
            )
        if number is not None:
            file.keep(self._places)


def _silent(done: int, total: int) -> None:
    """Tell nobody."""
