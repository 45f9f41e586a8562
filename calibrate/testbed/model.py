"""What the testbed trains: where its code is, and which variables it has."""

from __future__ import annotations

import tempfile
from pathlib import Path

from calibrate.measurements import read_measurements
from calibrate.probing import run_probe
from calibrate.records import Rows, VariableRecord
from calibrate.testbed.ladder import variables_of
from calibrate.testbed.setting import TestbedVariable
from simulator import catalog
from simulator.errors import InputError

__all__ = ["builder_of", "describe_model"]


def builder_of(model: str) -> str:
    """The ``FILE.py:FUNCTION`` that builds a model: itself, or for one of the ladder the file that Paceline brings along.

    Raises
    ------
    InputError
        The model has no code, as a workload has none.
    """
    if variables_of(model) is not None:
        return f"{catalog.builder('ladder')}:{model.replace('-', '_').replace('/', '_')}"
    file, separator, function = model.rpartition(":")
    if not separator or not file.endswith(".py") or not function:
        raise InputError(
            f"model {model!r} has no code to be computed; give FILE.py:FUNCTION or one of the ladder, or choose emulated compute"
        )
    return f"{Path(file).absolute()}:{function}"


def describe_model(model: str, python: str | None = None, batch: int = 32, timeout_s: float = 300.0) -> tuple[TestbedVariable, ...]:
    """The variables of a model, in the order of creation.

    The model is built and traced in a child process. Its gradients are taken to become
    ready evenly over the backward pass, the last variable's first; `paceline calibrate`
    measures when they do.

    Parameters
    ----------
    model
        ``FILE.py:FUNCTION``, as ``paceline calibrate`` takes it, or one of the ladder.
    python
        The user's Python; this one, if None.
    batch
        Samples of a step: they tell how many rows a sparse variable's gradient has.
    timeout_s
        Seconds after which the child is stopped.

    Raises
    ------
    InputError
        There is no such file or function, or no such Python.
    CalibrationError
        The model cannot be built, or not be traced.
    """
    known = variables_of(model)
    if known is not None:
        return tuple(TestbedVariable.model_validate(one) for one in known)
    with tempfile.TemporaryDirectory(prefix="paceline-") as scratch:
        out = Path(scratch) / "model.ndjson"
        run_probe("testbed/run.py", ["--describe", builder_of(model), "--batch", str(batch)], out, python, timeout_s)
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
