"""Reads a testbed setting from a file, tables or keys, fills in defaults, and reports every fault in one line.

The schema of a setting is in setting.py. :data:`EMULATED_LAWS` are the laws that ``durations`` in
``calibrate/probes/testbed/emulated_model.py`` can draw from.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.measurements import Rows, VariableRecord, read_measurements
from calibrate.probing import run_probe
from calibrate.testbed.setting import NOT_BUILT, SYNTHETIC, WITH_SERVERS, TestbedSetting, TestbedVariable, synthetic_variables
from simulator.base import catalog
from simulator.base.errors import InputError, ScenarioError
from simulator.base.files import mistaken_table, read_toml
from simulator.base.process import scratch
from simulator.base.spec import Spec
from simulator.base.text import did_you_mean
from simulator.base.validation_errors import quoted, validated
from simulator.catalogue.loading import load_workload
from simulator.catalogue.settings import set_in, unset
from simulator.spec.distributions import Distribution, Empirical, Normal, ShiftedExponential
from simulator.spec.workload import Variable, Workload

EMULATED_LAWS = ("constant", "exponential", "gamma", "lognormal", "empirical")
"""Kinds of distributions of the emulated device."""

_LINK = {"bandwidth": "400 Mbit/s"}
_COMPUTE = {"mean": "100 ms", "law": {"kind": "exponential"}}


def load_setting(
    setting: str | Path | Mapping[str, Any] | Spec | None, settings: Iterable[tuple[str, Any]], python: str | None = None
) -> TestbedSetting:
    """The setting that a file or tables mean with keys of it set.

    The file of a model ``FILE.py:FUNCTION`` is run for its variables, once all else is known to be sound.

    Parameters
    ----------
    setting
        A TOML file, or tables as it has them. None starts from 4 asynchronous workers of ``ladder-1mb`` and a parameter server, links of
        400 Mbit/s, and compute drawn from an exponential distribution with mean 100 ms; of a model ``FILE.py:FUNCTION`` from real compute.
    settings
        Dotted keys with values, such as ``("link.bandwidth", "1 Gbit/s")``.
    python
        The user's Python, in which a model is built; this one, if None.

    Raises
    ------
    InputError
        One line for each rule broken, with file and dotted path; or there is no such file or model.
    """
    pairs = list(settings)
    source = str(setting) if isinstance(setting, (str, Path)) else "setting"
    if setting is None:
        table: Mapping[str, Any] = _defaults(unset(set_in({}, pairs, f"{source}: ")))
    elif isinstance(setting, Spec):
        table = setting.model_dump(mode="json", exclude_none=True)
    else:
        table = setting if isinstance(setting, Mapping) else read_toml(Path(setting))
    if isinstance(setting, (str, Path)) and (said := mistaken_table(table, source, "testbed-setting")):
        raise InputError(f"{source}: {said}")
    if any(key == "model" for key, _ in pairs):  # the variables of another model
        table = {key: value for key, value in table.items() if key != "variables"}
    table = unset(set_in(table, pairs, f"{source}: "))
    loaded = validated_setting(with_model(table, f"{source}: model"), source)
    if loaded.is_built:
        return loaded
    return loaded.model_copy(update={"variables": describe_model(loaded.model, python, loaded.batch)})


def _defaults(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults of the keys that are left out, beneath those that are there."""
    mode, model, batch, compute = (keys.get(key) for key in ("mode", "model", "batch", "compute"))
    mode, model = mode or "async", model or SYNTHETIC[0]
    table: dict[str, Any] = {"mode": mode, "workers": 4, "servers": int(mode in WITH_SERVERS), "model": model}
    if mode not in ("mirrored", "apart"):
        table["link"] = _LINK
    if not isinstance(model, str) or (isinstance(compute, Mapping) and compute.get("kind") == "real"):
        return table
    if mode == "apart" or is_function(model):
        return table if compute is not None else table | {"compute": {"kind": "real"}}
    table |= {"compute": _COMPUTE} if synthetic_variables(model) is not None else of_workload(model, batch, "setting: model")
    if isinstance(compute, Mapping) and isinstance(compute.get("law"), Mapping) and "kind" in compute["law"]:
        table["compute"] = {key: value for key, value in table["compute"].items() if key != "law"}  # its parameters are another law's
    return table


def with_model(table: Mapping[str, Any], where: str, beside: Path | None = None) -> dict[str, Any]:
    """A setting's table with the variables of the model that it names, and of a workload compute and batch where it leaves them out.

    Those of a model ``FILE.py:FUNCTION``, whose file has not been run, are not built yet.

    Parameters
    ----------
    table
        Keys of a :class:`~calibrate.testbed.setting.TestbedSetting`.
    where
        File and key that name the model.
    beside
        A folder that a relative path of a model is looked up in first. The model is then
        named by its whole path, which means the same from any folder.

    Raises
    ------
    InputError
        There is no such model.
    """
    completed = dict(table)
    model = completed.get("model", "ladder-4mb")
    if not isinstance(model, str):
        raise ScenarioError(f"{where}: must be text in quotes, such as {SYNTHETIC[0]!r}")
    if "variables" in completed or synthetic_variables(model) is not None:
        return completed
    if is_function(model):
        if beside is not None:
            file, separator, function = model.rpartition(":")
            known = [path.absolute() for path in (beside / file, Path(file)) if separator and path.is_file()]
            if not known:
                raise ScenarioError(
                    f"{where}: {quoted(model)}: no such file in {beside} or here: write FILE.py:FUNCTION"
                )  # fmt: skip
            completed["model"] = f"{known[0]}:{function}"
        return completed | {"variables": (NOT_BUILT,)}
    return of_workload(model, completed.get("batch"), where, beside) | completed


def validated_setting(table: Mapping[str, Any], source: str) -> TestbedSetting:
    """The setting of a table whose model is known.

    Raises
    ------
    ScenarioError
        One line for each rule broken.
    """
    setting = validated(TestbedSetting, table, source)
    law = setting.compute.law.kind
    if law not in EMULATED_LAWS:
        raise ScenarioError(
            f"{source}: compute.law.kind: {law!r} is not a distribution of the emulated device; there are {', '.join(EMULATED_LAWS)}"
        )
    return setting


_TIMEOUT_S = 300.0
"""After which a process that describes a model is stopped."""
_QUANTILES = 200
_ITEM_BYTES = 4
"""Bytes of a float32, the type in which an emulated model keeps what a workload gives as bytes."""


def is_function(model: str) -> bool:
    """Tell whether a model is named as ``FILE.py:FUNCTION``."""
    return ".py" in model and not model.endswith(".toml")


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
        raise InputError(f"model {model!r} has no code to compute: give FILE.py:FUNCTION or a synthetic model, or choose emulated compute")
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
        return tuple(TestbedVariable.model_validate(variable) for variable in known)
    with scratch() as folder:
        out = folder / "model.ndjson"
        run_probe("testbed.run", ["--describe", builder_of(model), "--batch", str(batch)], out, python, _TIMEOUT_S)
        measured = read_measurements(out)
    rows = {record.variable: int(record.rows) for record in measured.of(Rows)}
    variables = measured.of(VariableRecord)
    return tuple(
        TestbedVariable(
            name=variable.name,
            shape=variable.shape,
            dtype=variable.dtype,
            rows=min(rows[variable.index], variable.shape[0]) if variable.index in rows else None,
            ready=1.0 - index / len(variables),
        )
        for index, variable in enumerate(variables)
    )


def of_workload(name: str, batch: Any, where: str, beside: Path | None = None) -> dict[str, Any]:
    """Keys of a testbed setting for a workload of the catalogue: ``variables``, ``compute`` and ``batch``.

    Variables have the workload's bytes, as float32. Compute is emulated: its mean is the forward plus backward pass at the batch, its
    distribution the workload's jitter.

    Parameters
    ----------
    name
        A name in the catalogue, or a path that ends in ``.toml``.
    batch
        Samples of a step; the workload's own if it is no number of them, or 32 where it has none.
    where
        Option or key that asks, for messages.
    beside
        A folder that a relative path is also looked up in.

    Raises
    ------
    ScenarioError
        There is no such workload, or its file is no good.
    """
    if name.startswith(("ladder", "uneven")):
        there_are = f"there are {', '.join(SYNTHETIC)}, and {SYNTHETIC[1]}/16 with 16 variables"
        raise ScenarioError(f"{where}: {quoted(name)} is not a synthetic model; {did_you_mean(name, SYNTHETIC, there_are)}")
    workload = load_workload(catalog.find("workloads", name, where, beside))
    samples = batch if isinstance(batch, int) and batch > 0 else workload.batch_per_replica or 32
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
    entry: dict[str, Any] = {"name": variable.name, "shape": shape, "ready": max(variable.ready, 1e-6)}
    if variable.sparse_bytes_per_sample is not None:
        row_bytes = variable.size_bytes / shape[0]
        entry["rows"] = min(max(round(variable.pull_bytes(batch) / row_bytes), 1), shape[0])
    return entry


def _law(workload: Workload) -> Distribution:
    """The workload's jitter as a distribution of the emulated device; other kinds become 200 quantiles of equal probability, mean 1."""
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
