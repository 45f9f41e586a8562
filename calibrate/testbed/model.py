"""The model that a testbed setting trains: where its code is, and which variables it has.

A model is ``FILE.py:FUNCTION``, a workload of the catalogue, or a synthetic one, whose name becomes that of a function
of ``models/keras/ladder.py``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.measurements import Rows, VariableRecord, read_measurements
from calibrate.probing import run_probe
from calibrate.testbed.setting import TestbedVariable, synthetic_variables
from simulator.base import catalog
from simulator.base.errors import InputError, ScenarioError
from simulator.base.process import scratch
from simulator.base.validation_errors import quoted
from simulator.catalogue.loading import load_workload
from simulator.spec.distributions import Distribution, Empirical, Normal, ShiftedExponential
from simulator.spec.workload import Variable, Workload

Describe = Callable[[str, int], tuple[TestbedVariable, ...]]
"""The variables of ``FILE.py:FUNCTION`` at a batch size."""

_TIMEOUT_S = 300.0
"""After which a process that describes a model is stopped."""
_QUANTILES = 200
_ITEM_BYTES = 4
"""Bytes of a float32, the type in which an emulated model keeps what a workload gives as bytes."""


def is_function(model: str) -> bool:
    """Whether a model is named as ``FILE.py:FUNCTION``."""
    return ".py" in model and not model.endswith(".toml")


def whole_path(model: str, folder: Path, where: str) -> str:
    """A model ``FILE.py:FUNCTION`` with the whole path of its file, which is looked up in a folder first.

    Raises
    ------
    ScenarioError
        There is no such file; ``where`` begins the message.
    """
    file, separator, function = model.rpartition(":")
    for path in (folder / file, Path(file)) if separator else ():
        if path.is_file():
            return f"{path.absolute()}:{function}"
    raise ScenarioError(f"{where}: {quoted(model)}: there is no such file, in {folder} or here; write FILE.py:FUNCTION")


def builder_of(model: str) -> str:
    """The ``FILE.py:FUNCTION`` that builds a model: itself, or for a synthetic one the file that Paceline brings along.

    Raises
    ------
    InputError
        The model has no code, as a workload has none.
    """
    if synthetic_variables(model) is not None:
        return f"{catalog.builder('ladder')}:{model.replace('-', '_').replace('/', '_')}"
    file, separator, function = model.rpartition(":")
    if not separator or not file.endswith(".py") or not function:
        raise InputError(
            f"model {model!r} has no code to be computed; give FILE.py:FUNCTION or a synthetic one, or choose emulated compute"
        )
    return f"{Path(file).absolute()}:{function}"


def describe_model(model: str, python: str | None = None, batch: int = 32) -> tuple[TestbedVariable, ...]:
    """The variables of a model, in the order of creation.

    The model is built and traced in a child process. Its gradients are taken to become
    ready evenly over the backward pass, the last variable's first; `paceline calibrate`
    measures when they do.

    Parameters
    ----------
    model
        ``FILE.py:FUNCTION``, as ``paceline calibrate`` takes it, or a synthetic one.
    python
        The user's Python; this one, if None.
    batch
        Samples of a step: they decide how many rows a sparse variable's gradient has.

    Raises
    ------
    InputError
        There is no such file or function, or no such Python.
    CalibrationError
        The model cannot be built, or not be traced.
    """
    known = synthetic_variables(model)
    if known is not None:
        return tuple(TestbedVariable.model_validate(one) for one in known)
    with scratch() as folder:
        out = folder / "model.ndjson"
        run_probe("testbed.run", ["--describe", builder_of(model), "--batch", str(batch)], out, python, _TIMEOUT_S)
        measured = read_measurements(out)
    rows = {record.variable: int(record.rows) for record in measured.of(Rows)}
    variables = measured.of(VariableRecord)
    return tuple(
        TestbedVariable(
            name=one.name,
            shape=one.shape,
            dtype=one.dtype,
            rows=min(rows[one.index], one.shape[0]) if one.index in rows else None,
            ready=1.0 - index / len(variables),
        )
        for index, one in enumerate(variables)
    )


def of_workload(name: str, batch: int | None, where: str, beside: Path | None = None) -> dict[str, Any]:
    """Keys of a testbed setting for a workload of the catalogue: ``variables``, ``compute`` and ``batch``.

    Variables have the workload's bytes, as float32. Compute is emulated: its mean is that
    of forward and backward pass at the batch, its law the workload's jitter.

    Parameters
    ----------
    name
        A name in the catalogue, or a path that ends in ``.toml``.
    batch
        Samples of a step; the workload's own if None, or 32 where it has none.
    where
        Option or key that asks, for messages.
    beside
        A folder that a relative path is also looked up in.

    Raises
    ------
    ScenarioError
        There is no such workload, or its file is no good.
    """
    workload = load_workload(catalog.find("workloads", name, where, beside))
    samples = batch or workload.batch_per_replica or 32
    created = sorted(workload.variables, key=lambda variable: variable.creation_index)
    return {
        "variables": [_variable(variable, samples) for variable in created],
        "compute": {"kind": "emulated", "mean_s": workload.compute_s(samples), "law": _law(workload).model_dump()},
        "batch": samples,
    }


def _variable(variable: Variable, batch: int) -> dict[str, Any]:
    items = max(math.ceil(variable.size_bytes / _ITEM_BYTES), 1)
    rows = variable.rows if variable.rows and items % variable.rows == 0 else None
    shape = (rows, items // rows) if rows else (items,)
    found: dict[str, Any] = {"name": variable.name, "shape": shape, "ready": max(variable.ready, 1e-6)}
    if variable.sparse_bytes_per_sample is not None:
        row_bytes = variable.size_bytes / shape[0]
        found["rows"] = min(max(round(variable.pull_bytes(batch) / row_bytes), 1), shape[0])
    return found


def _law(workload: Workload) -> Distribution:
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
    return Empirical(values=tuple((values / values.mean()).tolist()), persistence=law.persistence)
