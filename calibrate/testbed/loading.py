"""Reads a testbed setting from a file, tables or keys, fills in defaults, and reports every fault in one line.

The schema of a setting is in setting.py. :data:`EMULATED_LAWS` are the laws that ``durations`` in
``calibrate/probes/testbed/emulated_model.py`` can draw from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from calibrate.testbed.model import Describe, is_function, of_workload, whole_path
from calibrate.testbed.setting import NOT_BUILT, SYNTHETIC, WITH_SERVERS, TestbedSetting, synthetic_variables
from simulator.base.errors import InputError, ScenarioError
from simulator.base.files import mistaken_table, read_toml
from simulator.base.spec import Spec
from simulator.base.text import did_you_mean
from simulator.base.validation_errors import quoted, validated
from simulator.catalogue.settings import set_in, unset

EMULATED_LAWS = ("constant", "exponential", "gamma", "lognormal", "empirical")
"""Kinds of law that the emulated device draws from."""

_LINK = {"bandwidth": "400 Mbit/s"}
_COMPUTE = {"mean": "100 ms", "law": {"kind": "exponential"}}


def load_setting(
    setting: str | Path | Mapping[str, Any] | Spec | None, settings: Iterable[tuple[str, Any]], describe: Describe
) -> TestbedSetting:
    """The setting that a file or tables mean with keys of it set.

    Parameters
    ----------
    setting
        A TOML file, or tables as it has them. None starts from 4 asynchronous workers of
        ``ladder-1mb`` and a parameter server, links of 400 Mbit/s, and compute that is drawn
        from an exponential law of 100 ms; of a model ``FILE.py:FUNCTION`` from real compute.
    settings
        Dotted keys with values, such as ``("link.bandwidth", "1 Gbit/s")``.
    describe
        Called for a model ``FILE.py:FUNCTION``, once all else is known to be sound.

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
    return validated_setting(with_model(table, source, f"{source}: model", describe), source)


def _defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """What stands for the keys that nobody has given, beneath those that somebody has."""
    mode, model, batch, compute = (given.get(key) for key in ("mode", "model", "batch", "compute"))
    mode, model = mode or "async", model or SYNTHETIC[0]
    table: dict[str, Any] = {"mode": mode, "workers": 4, "servers": int(mode in WITH_SERVERS), "model": model}
    if mode not in ("mirrored", "apart"):
        table["link"] = _LINK
    if not isinstance(model, str) or (isinstance(compute, Mapping) and compute.get("kind") == "real"):
        return table
    if mode == "apart" or is_function(model):
        return table if compute is not None else table | {"compute": {"kind": "real"}}
    table |= {"compute": _COMPUTE} if synthetic_variables(model) is not None else _of_workload(model, batch, "setting: model")
    if isinstance(compute, Mapping) and isinstance(compute.get("law"), Mapping) and "kind" in compute["law"]:
        table["compute"] = {key: value for key, value in table["compute"].items() if key != "law"}  # its parameters are another law's
    return table


def _of_workload(model: str, batch: Any, where: str, beside: Path | None = None) -> dict[str, Any]:
    if model.startswith(("ladder", "uneven")):
        there_are = f"there are {', '.join(SYNTHETIC)}, and {SYNTHETIC[1]}/16 with 16 variables"
        raise ScenarioError(f"{where}: {quoted(model)} is no synthetic model; {did_you_mean(model, SYNTHETIC, there_are)}")
    return of_workload(model, batch if isinstance(batch, int) and batch > 0 else None, where, beside)


def with_model(table: Mapping[str, Any], source: str, where: str, describe: Describe, beside: Path | None = None) -> dict[str, Any]:
    """A setting's table with the variables of the model that it names, and of a workload compute and batch where it leaves them out.

    Parameters
    ----------
    table
        Keys of a :class:`~calibrate.testbed.setting.TestbedSetting`.
    source
        What messages call the table.
    where
        File and key that name the model.
    describe
        Called for a model ``FILE.py:FUNCTION``, once all else is known to be sound.
    beside
        A folder that a relative path of a model is looked up in first. The model is then
        named by its whole path, which means the same from any folder.

    Raises
    ------
    InputError
        There is no such model; or a rule of a setting is broken.
    """
    found = dict(table)
    model = found.get("model", "ladder-4mb")
    if not isinstance(model, str):
        raise ScenarioError(f"{where}: must be text in quotes, such as {SYNTHETIC[0]!r}")
    if "variables" in found or synthetic_variables(model) is not None:
        return found
    if is_function(model):
        if beside is not None:
            found["model"] = model = whole_path(model, beside, where)
        checked = validated_setting(found | {"variables": (NOT_BUILT,)}, source)
        return found | {"variables": describe(model, checked.batch)}
    return _of_workload(model, found.get("batch"), where, beside) | found


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
        raise ScenarioError(f"{source}: compute.law.kind: {law!r} is no law of the emulated device; there are {', '.join(EMULATED_LAWS)}")
    return setting
