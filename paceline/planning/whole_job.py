"""The whole job that a goal asks for: how long it is, and the samples a second that the goal is held against.

A goal with samples asks for a training from its start to its end. Where the scenario says what a job does beside steps, or
its workload has that measured, every configuration is simulated as such a job, and time, cost and confidence are the job's;
else they are those of the steps alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any, NamedTuple

from paceline.planning.goal import Goal
from simulator.base.errors import InputError
from simulator.base.validation_errors import quoted
from simulator.catalogue.loading import Source, load_scenario, table_of
from simulator.results.cost import LEAST_PER_S, cost_of_samples, time_of_samples_s
from simulator.results.results import Result
from simulator.spec.discrepancy import Off, off_of
from simulator.spec.figures import Estimate, JobOutcome

__all__ = ["Length", "cost_of", "job_of", "length_of", "off_by", "rates_of", "sample_s_of", "time_of"]


class Length(NamedTuple):
    """How long a training is, of the goal and of the configurations alike.

    Attributes
    ----------
    samples, epochs
        Of the data set, and how often all of them are trained on; None where the goal has none.
    settings
        Keys to set in all configurations.
    """

    samples: float | None
    epochs: float | None
    settings: list[tuple[str, Any]]


def length_of(
    scenario: Source,
    settings: Iterable[tuple[str, Any]],
    *,
    samples: float | None,
    epochs: float | None,
    dataset_size: float | None,
    rate: bool,
) -> Length:
    """The length of a training, from what is asked for and what the scenario's ``[job]`` says.

    Parameters
    ----------
    scenario, settings
        As for :func:`paceline.planning.space_of`.
    samples, dataset_size
        Samples of the data set, under either name.
    epochs
        Passes over it; left out: the job's, else one.
    rate
        Whether the goal is a throughput, which needs no length.

    Raises
    ------
    InputError
        Both names are given.
    ScenarioError
        The scenario breaks a rule.
    """
    settings = list(settings)
    if samples is not None and dataset_size is not None:
        raise InputError(
            f"`samples` {quoted(samples)} and `dataset_size` {quoted(dataset_size)}: are two names of the samples of the data set; give one"
        )
    size = samples if samples is not None else dataset_size
    if rate:
        return Length(size, epochs, settings)
    job = table_of(scenario, settings)[0].get("job")
    if job is not None and not isinstance(job, Mapping):
        return Length(size, epochs, settings)  # which is refused where the scenario is loaded
    asked = size is not None or epochs is not None
    size, epochs = _completed(size, epochs, job or {})
    if not asked or size is None or (job is None and not _has_overheads(scenario, settings)):
        return Length(size, epochs, settings)
    own = {"job.dataset_size": size, "job.epochs": 1.0 if epochs is None else epochs}
    kept = [(key, value) for key, value in settings if key not in own and key != "job.samples"]
    return Length(size, epochs, [*kept, *own.items()])


def _completed(size: float | None, epochs: float | None, job: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Samples of the data set and passes over it, with what the scenario's job says in place of what is not asked for.

    A job's samples are all that it trains on: of a data set that is known they say how many passes, else they are one pass.
    """
    samples, own_size, own_epochs = (_number(job.get(name)) for name in ("samples", "dataset_size", "epochs"))
    if size is None and epochs is None and samples is not None:
        passes = own_epochs or (samples / own_size if own_size else 1.0)
        return samples / passes, passes
    return size if size is not None else own_size, epochs if epochs is not None else own_epochs


def _number(value: object) -> float | None:
    """A number above zero, as a job may have it; what else stands there is refused where the scenario is loaded."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf else None


def _has_overheads(scenario: Source, settings: Iterable[tuple[str, Any]]) -> bool:
    """Whether a job of a scenario without ``[job]`` takes longer than its steps: something was measured, or a pipeline fills its cache."""
    loaded = load_scenario(scenario, settings)
    return loaded.workload.overheads is not None or loaded.input is not None


def job_of(result: Result, goal: Goal) -> JobOutcome | None:
    """The whole job that a goal is about; None where the goal is a rate, or steps alone were simulated."""
    return result.job if goal.total_samples is not None else None


def rates_of(result: Result, goal: Goal) -> tuple[float, ...]:
    """Samples a second of each replication that the goal is held against: of the whole job, or of the steps alone."""
    job = job_of(result, goal)
    if job is None:
        return result.throughput_of_each_replication
    return tuple(max(rate, LEAST_PER_S) for rate in job.samples_per_s_of_each_replication)


def off_by(result: Result, goal: Goal) -> Off:
    """What the model is off by, of the samples a second that the goal is held against: in a job, of its steps alone."""
    off, job = off_of(result.discrepancy), job_of(result, goal)
    return off if job is None or not job.time_s.mean else off.times(job.parts_s.of_steps / job.time_s.mean)


def sample_s_of(result: Result, goal: Goal) -> float:
    """Seconds a sample takes, mean over replications."""
    rates = rates_of(result, goal) or (result.throughput_samples_per_s.mean,)
    return fmean(1.0 / max(rate, LEAST_PER_S) for rate in rates)


def time_of(result: Result, goal: Goal) -> Estimate | None:
    """Seconds of the training; None where the goal has no samples."""
    if (job := job_of(result, goal)) is not None:
        return job.time_s
    return None if goal.total_samples is None else time_of_samples_s(result, goal.total_samples)


def cost_of(result: Result, goal: Goal) -> Estimate | None:
    """US dollars of the training; None where the goal has no samples, or the cluster no price."""
    if (job := job_of(result, goal)) is not None:
        return job.cost_usd
    return None if goal.total_samples is None else cost_of_samples(result, goal.total_samples)
