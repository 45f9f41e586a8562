"""``paceline.sweep``: simulates scenarios, keeps outcomes in a results file, and goes on where it was stopped.

Scenarios of a grid are made in grid.py, simulated in runner.py, and written in journal.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from paceline.sweeping.journal import Journal, Written
from paceline.sweeping.lines import Outcome
from paceline.sweeping.results_file import Outcomes
from paceline.sweeping.runner import Backend, Runner
from simulator.base.errors import SimulationError
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

    @property
    def failed(self) -> Sequence[int]:
        """Numbers, from 0, of the scenarios that could not be simulated."""
        held = self._outcomes
        return held.failed if isinstance(held, Written) else [at for at, its in enumerate(held) if isinstance(its, Failure)]

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
            if isinstance(its := self[place], Failure):
                reasons.setdefault(its.failed.text, []).append(called(place))
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
    tell = progress if progress is not None else _silent
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


def _silent(done: int, total: int) -> None:
    """Tell nobody."""
