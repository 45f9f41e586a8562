"""What a report simulates besides its results: some steps of its answer for the timeline, and one change at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.errors import SimulationError
from simulator.results import Result

if TYPE_CHECKING:
    from paceline.planning.answer import Plan
    from paceline.reporting.sensitivity import Change
    from paceline.reporting.timeline import Timeline

__all__ = ["Extras", "extras_of"]


@dataclass(frozen=True)
class Extras:
    """What simulating the answer again gave, and whether the user stopped it."""

    timeline: Timeline | None = None
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    stopped: bool = False


def extras_of(
    results: Sequence[Result],
    labels: Sequence[str] | None,
    plan: Plan | None,
    jobs: int,
    *,
    progress: Callable[[int, int], None] | None = None,
    stoppable: bool = False,
) -> Extras:
    """Simulate the report's answer again: three of its steps for the timeline, and one change at a time; what fails is noted.

    Parameters
    ----------
    results, labels, plan
        As :func:`paceline.reporting.write_report` takes them.
    jobs
        Processes for the what-ifs; 0 takes all cores.
    progress
        Called with what-ifs done and in all.
    stoppable
        Whether Ctrl-C only ends the simulating, so that the report is written without the rest.

    Raises
    ------
    ResultsError
        The plan's answer is not among the results.
    """
    from paceline.reporting.answer import answer_of
    from paceline.reporting.coordinates import coordinates_of
    from paceline.reporting.sensitivity import changes_of
    from paceline.reporting.timeline import timeline_of

    answer = answer_of(results, coordinates_of(results, labels), plan.chosen.result.scenario_hash if plan is not None else None)
    timeline: Timeline | None = None
    changes: tuple[Change, ...] = ()
    notes: list[str] = []
    stopped = False
    try:
        try:
            timeline = timeline_of(answer.result.scenario, answer.name)
        except SimulationError as error:
            notes.append(f"There is no timeline: {error}.")
        try:
            changes = changes_of(answer.result, jobs, progress)
        except SimulationError as error:
            notes.append(f"There are no what-ifs: {error}.")
    except KeyboardInterrupt:
        if not stoppable:
            raise
        stopped = True
        notes.append(f"There are no what-ifs{'' if timeline is not None else ', and there is no timeline'}: they were interrupted.")
    return Extras(timeline, changes, tuple(notes), stopped)
