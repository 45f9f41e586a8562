"""What the testbed trains for ``--model``: the variables of its twin, and how long a step computes."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np

from simulator import catalog
from simulator.laws import Empirical, Law, Normal, ShiftedExponential
from simulator.loading import load_workload
from simulator.workload import Variable, Workload

__all__ = ["of_workload"]

_QUANTILES = 200
_ITEM_BYTES = 4
"""Of float32, the type in which a twin keeps what a workload gives as bytes."""


def of_workload(name: str, batch: int | None, where: str) -> dict[str, Any]:
    """Keys of a testbed setting for a workload of the catalogue: ``variables``, ``compute`` and ``batch``.

    Variables have the workload's bytes, as float32. Compute is emulated: its mean is that
    of forward and backward pass at the batch, its law the workload's jitter.

    Parameters
    ----------
    name
        Of the catalogue, or a path that ends in ``.toml``.
    batch
        Samples of a step; the workload's own if None, or 32 where it has none.
    where
        Option or key that asks, for messages.

    Raises
    ------
    ScenarioError
        There is no such workload, or its file is no good.
    """
    workload = load_workload(catalog.find("workloads", name, where))
    samples = batch or workload.batch_per_replica or 32
    created = sorted(workload.variables, key=lambda variable: variable.creation_index)
    return {
        "variables": [_twin(variable, samples) for variable in created],
        "compute": {"kind": "emulated", "mean_s": workload.compute_s(samples), "law": _law(workload).model_dump()},
        "batch": samples,
    }


def _twin(variable: Variable, batch: int) -> dict[str, Any]:
    items = max(math.ceil(variable.size_bytes / _ITEM_BYTES), 1)
    rows = variable.rows if variable.rows and items % variable.rows == 0 else None
    shape = (rows, items // rows) if rows else (items,)
    twin: dict[str, Any] = {"name": variable.name, "shape": shape, "ready": max(variable.ready, 1e-6)}
    if variable.sparse_bytes_per_sample is not None:
        row_bytes = variable.size_bytes / shape[0]
        twin["rows"] = min(max(round(variable.pull_bytes(batch) / row_bytes), 1), shape[0])
    return twin


def _law(workload: Workload) -> Law:
    """The workload's jitter as a law that the emulated device draws from: others by 200 quantiles of equal probability, mean 1."""
    law = workload.jitter
    places = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    if isinstance(law, Normal):
        values = np.maximum([statistics.NormalDist(1.0, law.cv).inv_cdf(place) for place in places], 0.01)
    elif isinstance(law, ShiftedExponential):
        values = 1.0 - law.tail * np.log1p(-places)
    elif isinstance(law, Empirical):
        values = np.asarray(law.values)
    else:
        return law
    return Empirical(values=tuple((values / values.mean()).tolist()))
