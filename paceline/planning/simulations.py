"""The simulations of a plan: each scenario once, in a journal that another run of the same plan goes on with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext

from paceline.sweeping import Journal, Outcome, Runner
from simulator.errors import ResultsError
from simulator.results import Result
from simulator.scenario import Scenario

__all__ = ["Simulate", "Simulations"]

Simulate = Callable[[Sequence[Scenario]], Sequence[Outcome]]
"""Scenarios into outcomes, in their order."""


class Simulations:
    """Simulates what a plan asks for; asked again, it remembers.

    A plan asks for the same scenarios in the same order, whatever the number of jobs. So
    the lines of its journal are those that an interrupted run had written, or it belongs
    to another plan.

    Parameters
    ----------
    runner
        Where to simulate.
    journal
        What is simulated goes there, in the order in which it is asked for.
    force
        Begin anew if the journal belongs to another plan.
    progress
        Called with scenarios done and asked for.
    """

    def __init__(
        self,
        runner: Runner,
        journal: Journal | None = None,
        *,
        force: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._runner = runner
        self._journal = journal
        self._force = force
        self._progress = progress
        self._known: dict[str, Outcome] = {}

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Outcome]:
        """Outcomes in the order of the scenarios.

        Raises
        ------
        ResultsError
            The journal belongs to another plan.
        """
        asked = {scenario.hash: scenario for scenario in scenarios}
        hashes = [scenario.hash for scenario in scenarios] if len(asked) < len(scenarios) else list(asked)
        new = {key: scenario for key, scenario in asked.items() if key not in self._known}
        left = [scenario for key, scenario in new.items() if not self._take_from_journal(key, scenario)]
        total = len(self._known) + len(left)
        self._tell(total)
        try:
            keeping = self._journal.keeping() if self._journal is not None else nullcontext()
            with keeping, closing(self._runner.run(left)) as outcomes:
                for outcome in outcomes:
                    kept = outcome.model_copy(update={"wall_time_s": None}) if isinstance(outcome, Result) else outcome
                    if self._journal is not None:
                        self._journal.append(outcome)
                    self._known[outcome.scenario_hash] = kept
                    self._tell(total)
        except KeyboardInterrupt:
            if self._journal is not None and self._progress is not None:
                self._progress(len(self._journal), total)  # perhaps it came between a line and the word of it
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
            The journal holds more than this plan asks for.
        """
        if self._journal is not None and len(self._journal) > len(self._known):
            self._refuse(len(self._known))

    def _take_from_journal(self, key: str, scenario: Scenario) -> bool:
        """Whether the outcome stands where an earlier run of this plan would have written it."""
        place = len(self._known)
        if self._journal is None or place >= len(self._journal):
            return False
        if self._journal.lines.hashes[place] != key:
            self._refuse(place)
            return False
        outcome = self._journal.known(scenario)
        assert outcome is not None, "a line whose hash is known can be read"
        self._known[key] = outcome
        return True

    def _refuse(self, place: int) -> None:
        """The journal belongs to another plan: say so, or replace it."""
        journal = self._journal
        assert journal is not None
        if not self._force:
            raise ResultsError(
                f"{journal.lines.path}:{place + 1}: holds the results of another plan or sweep; "
                "choose another --out, or --force to replace it"
            )
        journal.clear()
        for outcome in self._known.values():
            journal.append(outcome)

    def _tell(self, total: int) -> None:
        if self._progress is not None:
            self._progress(len(self._known), total)
