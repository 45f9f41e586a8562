"""``paceline.sweep``: simulates scenarios, keeps outcomes in a results file, and goes on where it was stopped.

Scenarios of a grid are made in grid.py, simulated in runner.py, and written in journal.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from paceline.sweeping.journal import Journal, Written
from paceline.sweeping.results_file import Outcome, Outcomes, line_of
from paceline.sweeping.runner import Backend, Runner
from simulator.base.errors import ResultsError, SimulationError
from simulator.base.table import html_of
from simulator.base.text import shortly_listed
from simulator.results.results import Failure
from simulator.scenario import Scenario

Progress = Callable[[int, int], None]
_NAMED = 3
_READ = 100
"""Failures that are looked at for their reasons."""


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Outcomes):
    """Outcomes of a sweep, in the order of its scenarios.

    Those that were written to a file are read from it whenever they are asked for: going
    through them one by one takes no more memory than one.

    Attributes
    ----------
    path
        The results file; None where all outcomes are held.
    """

    see: ClassVar[str] = "to_frame() has a row for each, sweep[0] is the first; paceline.report(sweep) draws them"

    path: Path | None
    _outcomes: tuple[Outcome, ...] | Written = field(repr=False)

    def _repr_html_(self) -> str:
        """What a notebook shows: the first rows, with the most important figures."""
        return html_of(self, f"Sweep of {len(self)} scenarios", total=len(self))

    def check(self, name: Callable[[int], str] | None = None) -> None:
        """Do nothing where every scenario has a result.

        Parameters
        ----------
        name
            What to call scenario 0, 1, ...; left out: by number, from 1.

        Raises
        ------
        SimulationError
            Some failed; the message tells each reason once, with the scenarios that share it.
        """
        if not self.failed:
            return
        called = name if name is not None else (lambda place: f"scenario {place + 1}")
        reasons: dict[str, list[str]] = {}
        for place in self.failed[:_READ]:
            if isinstance(outcome := self[place], Failure):
                reasons.setdefault(outcome.failed.text, []).append(called(place))
        told = [f"{text} ({shortly_listed(places)})" for text, places in list(reasons.items())[:_NAMED]]
        more = "; and others" if len(reasons) > _NAMED or len(self.failed) > _READ else ""
        kept = "" if self.path is None else f"; {self.path} tells of them all, `retry_failed=True` simulates them again"
        raise SimulationError(f"{len(self.failed)} of {len(self)} scenarios failed: {'; '.join(told)}{more}{kept}")


def sweep(
    scenarios: Sequence[Scenario],
    out: Path | None = None,
    *,
    jobs: int = 0,
    backend: Backend = "local",
    scheduler: str | None = None,
    force: bool = False,
    retry_failed: bool = False,
    progress: Progress | None = None,
    agree: Callable[[Sequence[int]], None] | None = None,
) -> Sweep:
    """Simulate scenarios in parallel, and write each outcome to a results file.

    A scenario whose simulation fails is written as a failure, and the others go on. The
    bytes of the finished file depend on the scenarios alone. Stopped at any moment and called
    again, it simulates what the file does not have yet.

    Parameters
    ----------
    scenarios
        What to simulate, in order; a :class:`~paceline.sweeping.grid.Grid` builds each when its turn comes.
    out
        The results file; outcomes that it already has are kept. None: outcomes are held in memory.
    jobs, backend, scheduler
        Where and on how many processes, as in :class:`~paceline.sweeping.runner.Runner`.
    force
        Replace ``out``, whatever it is; results of this very sweep are kept.
    retry_failed
        Simulate again those that the file has as failures.
    progress
        Called with scenarios done and in all.
    agree
        Called with the places of the scenarios that are yet to be simulated, before any is; raises where they shall not be.

    Raises
    ------
    InputError
        ``out`` cannot be written or is being written, or the cluster cannot be used.
    ResultsError
        ``out`` holds results of another sweep, or is no results file.
    SimulationError
        A worker process was killed; a results file keeps earlier outcomes.
    """
    runner = Runner(jobs=jobs, backend=backend, scheduler=scheduler)
    tell = progress or (lambda *_: None)
    total = len(scenarios)
    if out is None:
        if agree is not None:
            agree(range(total))
        tell(0, total)
        held: list[Outcome] = []
        with closing(runner.run(scenarios)) as outcomes:
            for outcome in outcomes:
                held.append(outcome)
                tell(len(held), total)
        return Sweep(None, tuple(held))
    with Journal(out, force=force) as file:
        # of a new file the hashes come with the lines
        hashes = [""] * total if file.is_empty else [scenario.hash for scenario in scenarios]
        if not file.is_empty:
            file.go_on_with(scenarios, hashes)
        todo = [place for place, key in enumerate(hashes) if key not in file or (retry_failed and file.failed(key))]
        if agree is not None:
            agree(todo)
        kept = total - len(todo)
        tell(kept, total)
        done = kept
        try:
            # closed, it ends its processes also where this one is stopped between two outcomes
            with file.keeping(), closing(runner.lines(scenarios[place] for place in todo)) as groups:
                for group in groups:
                    for number, line in group:
                        hashes[todo[number]] = line.scenario_hash
                    file.write((todo[number], line) for number, line in group)
                    done += len(group)
                    tell(done, total)
            return Sweep(file.path, file.finish(hashes))
        except KeyboardInterrupt:
            tell(max(done, kept + file.written()), total)  # perhaps it came between a line and the word of it
            raise


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
        self._progress = progress or (lambda *_: None)
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
        new = [scenario for key, scenario in _by_hash(scenarios) if key not in self._places]
        for scenario in new:
            self._places[scenario.hash] = len(self._places)
        if self._file is not None:
            self._refuse_others(self._file, len(self._places))
            taken = {key: outcome for key, _ in _by_hash(new) if (outcome := self._file.outcome(key)) is not None}
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
        new = [scenario for key, scenario in _by_hash(scenarios) if key not in self._known_aside]
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


def _by_hash(scenarios: Iterable[Scenario]) -> Iterable[tuple[str, Scenario]]:
    """Each scenario once, with its hash."""
    return {scenario.hash: scenario for scenario in scenarios}.items()
