"""Epochs of a ``tf.data`` pipeline: what the first does that later ones need not, and how long each waits for its first batch."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from simulator.scenario import Scenario
from simulator.spec.input_pipeline import InputWork
from simulator.strategies.pipelines import pipelines

AnyScenario = TypeVar("AnyScenario", bound=Scenario)


def first_epoch(scenario: AnyScenario) -> AnyScenario | None:
    """The scenario with the work of the first epoch in its steps; none where later epochs are alike (nothing is cached).

    >>> from simulator.catalogue.loading import load_scenario
    >>> first_epoch(load_scenario("ring")) is None
    True
    """
    its = scenario.input
    if its is None or its.cached is None or its.cached == its.work:
        return None
    return scenario.model_copy(update={"input": its.model_copy(update={"cached": None})})


class Fill(NamedTuple):
    """What is prepared before an epoch's first batch is there.

    Attributes
    ----------
    batches
        The first, and those that the shuffle buffer holds; no more than the epoch has.
    seconds
        Mean time until the first batch is there.
    """

    batches: float
    seconds: float


def fill_of(scenario: Scenario, first: bool) -> Fill:
    """What an epoch begins with: the fill of its shuffle buffer, and the first batch.

    ``shuffle`` gives nothing before its buffer is full, or the epoch is read to its end
    (tensorflow/core/kernels/data/shuffle_dataset_op.cc); here it is filled at the rate at
    which the pipeline prepares samples, all pipelines at the same time. Then comes the
    first batch. Of several pipelines it is the slowest.

    Parameters
    ----------
    scenario
        With all its epochs: as it was written, or resolved.
    first
        Whether the epoch is the first, in which nothing is cached yet.
    """
    its = scenario.input
    if its is not None and its.cached is not None:
        work = its.work if first else its.cached
        if work == InputWork():
            return Fill(0.0, 0.0)
        scenario = scenario.model_copy(update={"input": its.model_copy(update={"work": work, "cached": None})})
    found = pipelines(scenario)
    if found is None:
        return Fill(0.0, 0.0)
    held = its.shuffle_buffer * its.shuffle_fill if its is not None else 0.0
    batches = 1.0 + held / found.samples
    if scenario.job is not None:
        batches = np.minimum(batches, np.maximum(scenario.job.epoch_samples / len(found.samples) / found.samples, 1.0))
    slowest = int((found.fair_s * batches).argmax())
    return Fill(float(batches[slowest]), float((found.fair_s * batches)[slowest]))
