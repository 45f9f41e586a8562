"""What was asked, what the answer is, and how far it can be trusted: facts for the summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.comparing import compare
from paceline.reporting.coordinates import Coordinates
from paceline.reporting.naming import setting_text
from simulator.errors import ResultsError
from simulator.results import Result

__all__ = ["Answer", "Asked", "Trust", "answer_of", "asked_of", "name_at", "trust_of"]


@dataclass(frozen=True)
class Asked:
    """The question.

    Attributes
    ----------
    fewest, most
        Replicas.
    curves
        How many strategies, clusters and so on are compared.
    scalings
        ``weak``: the batch of each replica is fixed; ``strong``: that of all together is.
    batches
        The batch sizes, of one replica (weak) or of all (strong), ascending.
    """

    fewest: int
    most: int
    curves: int
    clusters: tuple[str, ...]
    scalings: tuple[str, ...]
    batches: tuple[int, ...]


@dataclass(frozen=True)
class Answer:
    """The fastest result among those with the most replicas, and what else must be said of it.

    Attributes
    ----------
    index, result
        Which one it is among the results.
    name
        Its curve, and its settings where more than the number of replicas is swept.
    peak, peak_name
        The highest throughput anywhere, where that is elsewhere and its runs leave no doubt.
    alone
        Whether there is nothing to compare it with.
    """

    index: int
    result: Result
    name: str
    peak: Result | None
    peak_name: str
    alone: bool


@dataclass(frozen=True)
class Trust:
    """What the numbers rest on.

    Attributes
    ----------
    results, hollow
        How many there are, and how many lie beyond what was measured.
    assumed
        Clusters whose figures are assumed.
    uncalibrated
        Workloads that do not record what was measured.
    unfitted
        Whether a workload carries no uncertainty.
    workers, batch, device
        What was measured, where there is one workload.
    """

    results: int
    hollow: int
    assumed: tuple[str, ...]
    uncalibrated: tuple[str, ...]
    unfitted: bool
    workers: tuple[int, int] | None
    batch: tuple[int, int] | None
    device: str


def asked_of(results: Sequence[Result], at: Coordinates) -> Asked:
    """What the results together ask."""
    loads = [result.scenario.workload for result in results]
    batches = {load.batch_per_replica or load.global_batch for load in loads}
    return Asked(
        fewest=min(result.replicas for result in results),
        most=max(result.replicas for result in results),
        curves=len(at.curves),
        clusters=tuple(dict.fromkeys(result.scenario.cluster.name for result in results)),
        scalings=next(group.labels for group in at.groups if group.id == "scaling"),
        batches=tuple(sorted(batch for batch in batches if batch is not None)),
    )


def answer_of(results: Sequence[Result], at: Coordinates, chosen: str | None = None) -> Answer:
    """Find the fastest result where there are most replicas.

    Parameters
    ----------
    results
        In the order of ``at``.
    at
        Where each stands.
    chosen
        Hash of a scenario that something else chose, such as a plan; it is the answer then.

    Raises
    ------
    ResultsError
        The chosen one is not among the results.
    """

    def rate(index: int) -> float:
        return results[index].throughput_samples_per_s.mean

    most = max(result.replicas for result in results)
    told = next((index for index, result in enumerate(results) if result.scenario_hash == chosen), None)
    there = [index for index, result in enumerate(results) if result.replicas == (most if told is None else results[told].replicas)]
    if chosen is not None and told is None:
        raise ResultsError(
            f"the plan's answer, scenario {chosen}, is not among the results; give the results file that `paceline plan` wrote with it"
        )
    best = told if told is not None else max(there, key=rate)
    top = max(range(len(results)), key=rate)
    elsewhere = told is None and compare(results[top], results[best]).ratio.low > 1.0
    return Answer(
        index=best,
        result=results[best],
        name=name_at(at, best),
        peak=results[top] if elsewhere else None,
        peak_name=name_at(at, top) if elsewhere else "",
        alone=len(there) == 1,
    )


def name_at(at: Coordinates, index: int) -> str:
    """The name of a result's curve, and its settings where more than the number of replicas is swept."""
    parts = [at.name_of(index)]
    for key, place in list(zip(at.keys, at.places[index], strict=True))[1:]:
        if len(key.values) > 1 and place >= 0:
            parts.append(setting_text(key.path, key.values[place]))
    return " · ".join(parts)


def trust_of(results: Sequence[Result]) -> Trust:
    """Collect what the numbers rest on."""
    loads = {result.scenario.workload.name: result.scenario.workload for result in results}
    ranges = [load.calibrated for load in loads.values() if load.calibrated is not None]
    first = ranges[0] if len(ranges) == 1 and len(loads) == 1 else None
    return Trust(
        results=len(results),
        hollow=sum(result.extrapolated for result in results),
        assumed=tuple(dict.fromkeys(result.scenario.cluster.name for result in results if result.scenario.cluster.basis == "assumed")),
        uncalibrated=tuple(name for name, load in loads.items() if load.calibrated is None),
        unfitted=any(load.uncertainty is None for load in loads.values()),
        workers=(int(first.workers[0]), int(first.workers[1])) if first else None,
        batch=(int(first.batch[0]), int(first.batch[1])) if first else None,
        device=first.device if first else "",
    )
