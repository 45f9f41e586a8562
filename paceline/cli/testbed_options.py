"""From the options of ``paceline testbed run``, and a file, to a setting; every fault named in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrate.testbed.model import Describe, function_of, validated_setting, with_model
from calibrate.testbed.setting import TestbedSetting
from simulator.errors import InputError, ScenarioError, UnitError
from simulator.loading import read_toml
from simulator.units import Dimension, parse_quantity
from simulator.validation_errors import quoted

__all__ = ["DEFAULT_LINK", "Asked", "compute_of", "setting_of"]

DEFAULT_LINK = "400 Mbit/s"
_DEFAULTS: dict[str, Any] = {"mode": "async", "workers": 4, "model": "ladder-1mb"}
_DEFAULT_COMPUTE = "exponential 100 ms"
_WITH_SERVERS = ("async", "between-graph", "sync")
_LAWS: dict[str, str | None] = {"constant": None, "exponential": None, "gamma": "shape", "lognormal": "sigma"}
_COMPUTE = re.compile(r"(?P<law>[a-z-]+)\s*(?:\((?P<parameter>[^()]*)\))?\s+(?P<mean>\S.*)")
_COMPUTE_RULE = (
    "must be a law and its mean, such as 'exponential 100 ms', 'constant 50 ms', 'gamma(16) 100 ms', 'lognormal(0.3) 100 ms'; or real"
)


@dataclass(frozen=True)
class Asked:
    """What was typed; None where nothing was. Quantities are text with a unit."""

    mode: str | None = None
    workers: int | None = None
    servers: int | None = None
    backup_workers: int | None = None
    link: str | None = None
    sharing: str | None = None
    buffer: str | None = None
    congestion: str | None = None
    model: str | None = None
    compute: str | None = None
    batch: int | None = None
    by_layer: bool | None = None
    steps: int | None = None
    warm_up: int | None = None
    start_spread: str | None = None
    threads: int | None = None


_SAME = ("mode", "workers", "servers", "backup_workers", "model", "batch", "steps", "warm_up", "threads")
"""Options with the name of their key."""
_OPTION_OF = {
    **{name: f"--{name.replace('_', '-')}" for name in _SAME},
    "overlap": "--by-layer",
    "start_spread_s": "--start-spread",
    "compute.mean_s": "--compute",
    "compute.law.shape": "--compute",
    "compute.law.sigma": "--compute",
    "link.bandwidth_bytes_per_s": "--link",
    "link.buffer_s": "--buffer",
    "link.sharing": "--sharing",
    "link.congestion": "--congestion",
}


def setting_of(asked: Asked, file: Path | None, describe: Describe) -> TestbedSetting:
    """The setting that a file and options mean together; options override the file.

    Parameters
    ----------
    asked
        The options.
    file
        A TOML file with the keys of a :class:`TestbedSetting`; None takes the command's own defaults.
    describe
        Called for a model ``FILE.py:FUNCTION``, once all else is known to be sound.

    Raises
    ------
    InputError
        One line for each rule broken, with option or file and dotted path.
    """
    table = dict(_DEFAULTS) if file is None else read_toml(file)
    source = "testbed run" if file is None else str(file)
    table |= {name: value for name in _SAME if (value := getattr(asked, name)) is not None}
    if asked.by_layer is not None:
        table["overlap"] = asked.by_layer
    if asked.start_spread is not None:
        table.pop("start_spread", None)
        table["start_spread_s"] = _quantity("--start-spread", asked.start_spread, "time")
    if file is None and asked.servers is None:
        table["servers"] = 1 if table["mode"] in _WITH_SERVERS else 0
    link = _link(asked, table, own_default=file is None)
    if link is not None:
        table["link"] = link
    else:
        table.pop("link", None)
    return _modelled(asked, table, source, describe, own_default=file is None)


def compute_of(text: str, option: str = "--compute") -> dict[str, Any]:
    """The table ``compute`` that a text such as ``gamma(16) 100 ms`` stands for.

    Raises
    ------
    InputError
        It is no law with its mean.
    """
    plain = text.strip()
    if plain == "real":
        return {"kind": "real"}
    found = _COMPUTE.fullmatch(plain)
    if found is None or found["law"] not in _LAWS:
        raise InputError(f"{option} {quoted(text)}: {_COMPUTE_RULE}")
    law, name = found["law"], _LAWS[found["law"]]
    if (name is None) != (found["parameter"] is None):
        raise InputError(
            f"{option} {quoted(text)}: {law} takes {f'its {name} in brackets' if name else 'nothing in brackets'}; {_COMPUTE_RULE}"
        )
    table: dict[str, Any] = {"kind": law}
    if name is not None:
        try:
            table[name] = float(found["parameter"])
        except ValueError:
            raise InputError(f"{option} {quoted(text)}: {name} of {law} must be a number; {_COMPUTE_RULE}") from None
    return {"kind": "emulated", "mean_s": _quantity(option, found["mean"], "time"), "law": table}


def _quantity(option: str, text: str, dimension: Dimension) -> float:
    try:
        return parse_quantity(text, dimension)
    except UnitError as error:
        raise InputError(f"{option}: {error}") from None


def _link(asked: Asked, table: Mapping[str, Any], *, own_default: bool) -> Any:
    """The table ``link``; None for loopback."""
    link: Any = table.get("link")
    if asked.link is not None:
        others = {key: value for key, value in link.items() if key != "bandwidth"} if isinstance(link, Mapping) else {}
        link = None if asked.link.strip() == "loopback" else others | {"bandwidth_bytes_per_s": _rate(asked.link)}
    elif own_default and table["mode"] not in ("mirrored", "apart"):
        link = {"bandwidth_bytes_per_s": parse_quantity(DEFAULT_LINK, "rate")}
    shape: dict[str, Any] = {}
    if asked.sharing is not None:
        shape["sharing"] = asked.sharing
    if asked.buffer is not None:
        shape["buffer_s"] = _quantity("--buffer", asked.buffer, "time")
    if asked.congestion is not None:
        shape["congestion"] = asked.congestion
    if shape and link is None:
        given = ", ".join(_OPTION_OF[f"link.{name}"] for name in shape)
        raise InputError(f"{given}: belong to a shaped link, and there is none; give --link '{DEFAULT_LINK}' or leave them out")
    if shape and isinstance(link, Mapping):
        return {key: value for key, value in link.items() if f"{key}_s" not in shape} | shape
    return link


def _rate(text: str) -> float:
    try:
        return parse_quantity(text, "rate")
    except UnitError as error:
        raise InputError(f"--link: {error}{'' if str(error).endswith('?') else '; or loopback'}") from None


def _modelled(asked: Asked, table: dict[str, Any], source: str, describe: Describe, *, own_default: bool) -> TestbedSetting:
    """Fill in variables and compute of the model, and validate."""
    if asked.compute is not None:
        table["compute"] = compute_of(asked.compute)
    if asked.model is not None:
        table.pop("variables", None)  # those of the file are another model's
    model = table.get("model", "ladder-4mb")
    where = "--model" if asked.model is not None else f"{source}: model"
    if own_default and "compute" not in table and isinstance(model, str) and (function_of(model) or table["mode"] == "apart"):
        table["compute"] = {"kind": "real"}
    try:
        table = with_model(table, source, where, describe)
        if own_default:
            table.setdefault("compute", compute_of(_DEFAULT_COMPUTE))
        return validated_setting(table, source)
    except ScenarioError as error:  # a key that an option has set is named by the option
        raise ScenarioError(*(_by_option(problem, source, asked) for problem in error.problems)) from None


def _by_option(problem: str, source: str, asked: Asked) -> str:
    path, _, rest = problem.removeprefix(f"{source}: ").partition(": ")
    option = _OPTION_OF.get(path, "")
    name = {"overlap": "by_layer"}.get(path, option.removeprefix("--").replace("-", "_"))
    return f"{option} ({path}): {rest}" if option and getattr(asked, name) is not None else problem
