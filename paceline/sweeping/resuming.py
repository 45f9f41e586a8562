"""sweep: scenarios into a journal, going on where it was stopped."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from paceline.sweeping.ahead import Ahead
from paceline.sweeping.journal import Journal
from paceline.sweeping.lines import Line, begins_line, timeless
from paceline.sweeping.outcome import Sweep
from paceline.sweeping.retrying import clean_up, retried
from paceline.sweeping.running import Backend, Outcome, Runner
from simulator.errors import ResultsError
from simulator.scenario import Scenario
from simulator.validation_errors import quoted

__all__ = ["sweep"]

Progress = Callable[[int, int], None]


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
    agree: Callable[[range], None] | None = None,
) -> Sweep:
    """Simulate scenarios in parallel, and write each outcome to a journal.

    A scenario whose simulation fails is written as a failure, and the others go on. The
    journal's bytes depend on the scenarios alone. Stopped at any moment and called again,
    it goes on after the last whole line.

    Parameters
    ----------
    scenarios
        What to simulate, in order; a :class:`~paceline.sweeping.grid.Grid` builds each when its turn comes.
    out
        The journal; outcomes that it already has, in this order, are kept. None: outcomes are held in memory.
    jobs, backend, scheduler
        Where and on how many processes, as in :class:`~paceline.sweeping.running.Runner`.
    force
        Begin anew if ``out`` holds another sweep.
    retry_failed
        Simulate those again of which the journal tells that they failed.
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
        A worker process was killed; a journal keeps earlier outcomes.
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
    journal = Journal.open(out, force=force)
    ahead: Ahead | None = None
    try:
        if (fault := _another(journal, scenarios)) is not None:
            if not force:
                raise ResultsError(f"{fault}; choose another --out, or --force to replace it")
            journal.clear()
        ahead = Ahead(journal, scenarios, force=force)
        if agree is not None:
            agree(range(len(journal), total))
        clean_up(out)
        if retry_failed and journal.lines.failed:
            journal = retried(journal, scenarios, runner, tell)
        tell(len(journal) + len(ahead), total)
        _go_on(journal, ahead, scenarios, runner, tell)
        return Sweep(out, journal.lines)
    except KeyboardInterrupt:
        tell(len(journal) + len(ahead or ()), total)  # perhaps it came between a line and the word of it
        raise
    finally:
        if ahead is not None:
            ahead.close(journal)
        journal.close()


def _go_on(journal: Journal, ahead: Ahead, scenarios: Sequence[Scenario], runner: Runner, tell: Progress) -> None:
    """Write what is missing, in order: from what was finished ahead in an earlier run, else simulated."""
    total = len(scenarios)
    finished = {place for place in range(len(journal), total) if place in ahead}
    rest = [place for place in range(len(journal), total) if place not in finished]

    def early(number: int, line: Line) -> None:
        ahead.keep(rest[number], line)
        tell(len(journal) + len(ahead), total)

    def hand_over() -> None:
        while len(journal) in finished:
            ahead.hand_over(len(journal), journal)
            tell(len(journal) + len(ahead), total)

    hand_over()
    # closed, it ends its processes also where this one is stopped between two outcomes
    with journal.keeping(), closing(runner.lines((scenarios[place] for place in rest), early)) as groups:
        for lines in groups:
            begin = 0
            while begin < len(lines):
                first = len(journal)
                # up to the next that was finished in an earlier run
                some = list(itertools.takewhile(lambda place: place not in finished, range(first, first + len(lines) - begin)))
                journal.write(lines[begin : begin + len(some)])
                for place in some:
                    ahead.drop(place)
                begin += len(some)
                tell(len(journal) + len(ahead), total)
                hand_over()


def _silent(done: int, total: int) -> None:
    """Tell nobody."""


def _another(journal: Journal, scenarios: Sequence[Scenario]) -> str | None:
    """Where and how a journal differs from what a sweep of these scenarios would have written; None where it does not."""
    path = journal.lines.path
    for index, found in enumerate(journal.lines.hashes):
        if index >= len(scenarios):
            return f"{path}:{index + 1}: holds the results of another sweep, of {len(journal):,} scenarios and not {len(scenarios):,}"
        if scenarios[index].hash != found:
            return f"{path}:{index + 1}: holds the results of another sweep{_difference(journal, index, scenarios[index])}"
    index = len(journal)
    if journal.tail and (index >= len(scenarios) or not begins_line(journal.tail, scenarios[index].hash)):
        return f"{path}:{index + 1}: holds the results of another sweep"
    return None


def _difference(journal: Journal, index: int, scenario: Scenario) -> str:
    """What a scenario of a journal has otherwise than the one that would be there."""
    try:
        there = journal.lines[index].scenario
    except ResultsError:
        return ""
    found = list(_differing(there.model_dump(mode="json"), scenario.model_dump(mode="json")))
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f", where {found[0]}{more}" if found else ""


def _differing(there: Any, here: Any, where: str = "") -> Iterator[str]:
    """Each dotted key that differs, with both values where they are short."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in (*there, *(key for key in here if key not in there)):
            yield from _differing(there.get(key), here.get(key), f"{where}.{key}" if where else key)
    elif there != here:
        both_short = not any(isinstance(value, (Mapping, list)) for value in (there, here))
        yield f"{where} was {_shown(there)} and is now {_shown(here)}" if both_short else f"{where} differs"


def _shown(value: object) -> str:
    return "left out" if value is None else quoted(value)
