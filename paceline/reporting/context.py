"""From results to everything that the page says; no file, no drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.comparing import rivals_of, share_draws, verdict
from paceline.reporting.answer import Answer, Asked, Trust, answer_of, asked_of, name_at, trust_of
from paceline.reporting.caveats import Caveat, caveats_of
from paceline.reporting.columns import MOST_RUNS, first_runs
from paceline.reporting.coordinates import Coordinates, coordinates_of
from paceline.reporting.reproduce import Recipe, recipe_of
from simulator.cost import usd_per_hour, why_no_cost
from simulator.errors import ResultsError
from simulator.results import Result
from simulator.text import clean
from simulator.workload import Workload

if TYPE_CHECKING:
    from paceline.planning.answer import Plan
    from paceline.reporting.measured import Overlay
    from paceline.reporting.sensitivity import Change
    from paceline.reporting.timeline import Timeline

__all__ = ["Report", "build_report"]

_MOST_EXPLAINED = 3


@dataclass(frozen=True)
class Report:
    """Everything that the page says.

    Attributes
    ----------
    results
        Each scenario of each file once.
    at
        Where each of them stands.
    against
        The answer against the next fastest with as many replicas; empty where there is none.
    unpriced
        Why some results have no cost, a sentence a cluster.
    """

    title: str
    results: tuple[Result, ...]
    at: Coordinates
    asked: Asked
    answer: Answer
    against: str
    trust: Trust
    unpriced: tuple[str, ...]
    workloads: tuple[Workload, ...]
    caveats: tuple[Caveat, ...]
    recipe: Recipe
    notes: tuple[str, ...]
    plan: Plan | None
    measured: Overlay | None
    timeline: Timeline | None
    sensitivity: tuple[Change, ...]


def build_report(
    results: Sequence[Result],
    notes: Sequence[str] = (),
    *,
    labels: Sequence[str] | None = None,
    plan: Plan | None = None,
    measured: Overlay | None = None,
    timeline: Timeline | None = None,
    sensitivity: Sequence[Change] = (),
    title: str = "",
) -> Report:
    """Arrange results for reading.

    Parameters
    ----------
    results
        At least one; in any order. Of results of the same scenario in the same file the last counts.
    notes
        Sentences that the report repeats, such as that a file was cut off.
    labels
        Of each result, the file that it comes from, where several are compared.
    plan
        What a plan answered, if these are its results.
    measured
        Measured points beside the predictions.
    timeline
        Some steps as a Gantt chart.
    sensitivity
        What single changes to the answer's configuration gain.
    title
        In place of the workloads' names.

    Raises
    ------
    ResultsError
        There is no result, or not one label a result.
    """
    if not results:
        raise ResultsError("a report needs at least one result")
    if labels is not None and len(labels) != len(results):
        raise ResultsError(f"a report of {len(results)} results needs as many labels, not {len(labels)}")
    sources = list(labels) if labels is not None else [""] * len(results)
    last = {(source, result.scenario_hash): index for index, (source, result) in enumerate(zip(sources, results, strict=True))}
    unique = [results[index] for index in last.values()]
    all_notes = list(notes)
    if doubled := len(results) - len(unique):
        all_notes.append(
            f"{doubled} result{'s' if doubled > 1 else ''} of a scenario that is there twice {'are' if doubled > 1 else 'is'} left out."
        )
    at = coordinates_of(unique, None if labels is None else [source for source, _ in last])
    names = [at.name_of(index) for index in range(len(unique))]
    workloads = tuple({result.scenario.workload.name: result.scenario.workload for result in reversed(unique)}.values())[::-1]
    named = " and ".join(clean(load.name) for load in workloads[:2]) + (f" and {len(workloads) - 2} more" if len(workloads) > 2 else "")
    answer = answer_of(unique, at, plan.chosen.result.scenario_hash if plan is not None else None)
    return Report(
        title=clean(title) if title else named,
        results=tuple(unique),
        at=at,
        asked=asked_of(unique, at),
        answer=answer,
        against=_against(unique, at, answer),
        trust=trust_of(unique),
        unpriced=_unpriced(unique),
        workloads=workloads,
        caveats=caveats_of(unique, names),
        recipe=recipe_of(unique, names),
        notes=tuple(all_notes),
        plan=plan,
        measured=measured,
        timeline=timeline,
        sensitivity=tuple(sensitivity),
    )


def _against(results: Sequence[Result], at: Coordinates, answer: Answer) -> str:
    others = rivals_of(results, answer.index)
    if not others:
        return ""
    ours, theirs = answer.result, results[others[0]]
    cut = ""
    if share_draws(ours, theirs) and (runs := len(ours.throughput_of_each_replication)) > MOST_RUNS:
        ours, theirs = first_runs(ours), first_runs(theirs)
        cut = f" (the first {MOST_RUNS} of {runs:,} runs are compared)"
    text = verdict(ours, theirs, "it", name_at(at, others[0]), "there") + cut
    more = len(others) - 1
    return f"{text}; {more} more {'was' if more == 1 else 'were'} slower on average" if more else text


def _unpriced(results: Sequence[Result]) -> tuple[str, ...]:
    """Why there is no cost, for each cluster without a price; of many, the first."""
    found = {result.scenario.cluster.name: why_no_cost(result.scenario) for result in results if usd_per_hour(result.scenario) is None}
    texts = tuple(found.values())
    more = len(texts) - _MOST_EXPLAINED
    return texts if more <= 0 else (*texts[:_MOST_EXPLAINED], f"{more} more clusters have no price either")
