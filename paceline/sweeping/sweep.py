"""sweep: scenarios into outcomes, kept in a results file, and gone on with where it was stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, overload

from paceline.sweeping.lines import Line, Outcome, timeless
from paceline.sweeping.results_file import ResultsFile
from paceline.sweeping.runner import Backend, Runner
from simulator.base.errors import SimulationError
from simulator.base.short import Short
from simulator.base.table import frame_of, html_of
from simulator.base.text import counted, shortly_listed
from simulator.results.results import Failure, Result
from simulator.scenario import Scenario

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Sweep", "sweep"]

Progress = Callable[[int, int], None]
_NAMED = 3
_READ = 100
"""Failures that are looked at for their reasons."""


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Short, Sequence[Outcome]):
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
    _outcomes: tuple[Outcome, ...] | ResultsFile = field(repr=False)

    def __len__(self) -> int:
        return len(self._outcomes)

    def _in_short(self) -> Iterator[str]:
        yield f"{counted(len(self), 'scenario')}{'' if self.path is None else f' in {self.path}'}"
        yield f"{len(self.failed):,} failed" if self.failed else ""

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self._outcomes)

    @overload
    def __getitem__(self, index: int) -> Outcome: ...
    @overload
    def __getitem__(self, index: slice) -> list[Outcome]: ...
    def __getitem__(self, index: int | slice) -> Outcome | list[Outcome]:
        places = range(len(self))[index]
        return self._outcomes[places] if isinstance(places, int) else [self._outcomes[place] for place in places]

    def to_frame(self) -> pd.DataFrame:
        """A row per scenario: the settings that differ, then :data:`simulator.results.rows.COLUMNS`."""
        return frame_of(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: the first rows, with the most important figures."""
        return html_of(self, f"Sweep of {len(self)} scenarios", total=len(self))

    @property
    def results(self) -> tuple[Result, ...]:
        """All results, without the failures; equal workloads and clusters of theirs are one object."""
        return tuple(outcome for outcome in self if isinstance(outcome, Result))

    @property
    def failed(self) -> Sequence[int]:
        """Numbers, from 0, of the scenarios that could not be simulated."""
        held = self._outcomes
        return held.failed if isinstance(held, ResultsFile) else [at for at, its in enumerate(held) if isinstance(its, Failure)]

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Scenarios that could not be simulated, and why."""
        return tuple(outcome for outcome in (self[place] for place in self.failed) if isinstance(outcome, Failure))

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
    file's bytes depend on the scenarios alone. Stopped at any moment and called again,
    it goes on after the last whole line.

    Parameters
    ----------
    scenarios
        What to simulate, in order; a :class:`~paceline.sweeping.grid.Grid` builds each when its turn comes.
    out
        The results file; outcomes that it already has, in this order, are kept. None: outcomes are held in memory.
    jobs, backend, scheduler
        Where and on how many processes, as in :class:`~paceline.sweeping.runner.Runner`.
    force
        Replace ``out`` and the files beside it, whatever they are; results of this very sweep are kept.
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
                held.append(timeless(outcome))
                tell(len(held), total)
        return Sweep(None, tuple(held))
    with ResultsFile.open(out, force=force) as file:
        file.go_on_with(scenarios, force=force)
        if agree is not None:
            agree(file.missing(total, retry_failed=retry_failed))
        if retry_failed:  # of those that are there before their turn too
            file.drop_failures_ahead()
        if not (retry_failed and file.failed):
            return _gone_on(file, scenarios, runner, tell)
        with closing(runner.run(scenarios[place] for place in file.failed)) as again:
            retried = file.retried(again, tell)
    with retried:
        return _gone_on(retried, scenarios, runner, tell)


def _gone_on(file: ResultsFile, scenarios: Sequence[Scenario], runner: Runner, tell: Progress) -> Sweep:
    """The sweep, once what is missing is written: what was finished ahead in an earlier run is not simulated again."""
    total = len(scenarios)
    rest = file.missing(total)
    tell(len(file) + len(file.ahead), total)

    def early(number: int, line: Line) -> None:
        file.write_ahead(rest[number], line)
        tell(len(file) + len(file.ahead), total)

    done = 0
    try:
        file.write()
        # closed, it ends its processes also where this one is stopped between two outcomes
        with file.keeping(), closing(runner.lines((scenarios[place] for place in rest), early)) as groups:
            for lines in groups:
                places, done = rest[done : done + len(lines)], done + len(lines)
                # one that came early may be there already, written with the line in front of it
                file.write(line for place, line in zip(places, lines, strict=True) if place >= len(file))
                tell(len(file) + len(file.ahead), total)
    except KeyboardInterrupt:
        file.look_again(scenarios)  # perhaps it came between a line and the word of it
        tell(len(file) + len(file.ahead), total)
        raise
    return Sweep(file.path, file)


def _silent(done: int, total: int) -> None:
    """Tell nobody."""
