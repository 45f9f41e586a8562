"""Options that several commands have: their help, and how the text that is typed becomes an argument of the library.

Every help text imports this file, so that functions import what is heavy themselves.
"""

from __future__ import annotations

import shlex
import sys
import tomllib
from collections.abc import Collection, Iterable
from typing import Any

import typer

from paceline.ranges import numbers_in
from simulator.base.errors import InputError, ScenarioError

__all__ = [
    "BACKEND_HELP",
    "DATASET_SIZE_HELP",
    "EPOCHS_HELP",
    "JOBS_HELP",
    "PRICE_HELP",
    "SAMPLES_HELP",
    "SCHEDULER_HELP",
    "YES_HELP",
    "command_line",
    "is_given",
    "names_of",
    "needs",
    "number_typed",
    "numbers_of",
    "over_of",
    "parse_axis",
    "parse_setting",
    "prices_of",
    "settings_of",
    "useless",
]

PRICE_HELP = (
    "US dollars that a node costs for an hour, such as ethernet-1g=0.40/h. For machines of your own: lab=BUY:4000USD,years:4 "
    "(and if you like power:0.5kW, electricity:0.30USD/kWh, use:0.6). A price without NAME= is for every cluster that has none. Repeatable."
)
JOBS_HELP = (
    "Scenarios simulated at the same time, one per process; 0: one per core (of the Dask or Ray cluster, if given). "
    "Results do not depend on it."
)
BACKEND_HELP = (
    "Where to simulate: on this machine, or on a Dask or Ray cluster (which need pip install 'paceline\\[dask]' or 'paceline\\[ray]')."
)
SCHEDULER_HELP = (
    "Address of that cluster. Dask: tcp://HOST:PORT of its scheduler. Ray: HOST:PORT, ray://HOST:PORT or auto; "
    "without an address Ray starts a cluster on this machine."
)
EPOCHS_HELP = "Predict a whole job of N epochs, not steps alone; needs --dataset-size. Short for --set job.epochs=N."
SAMPLES_HELP = "Predict a whole job of N samples, in place of --epochs. Short for --set job.samples=N."
DATASET_SIZE_HELP = "Samples in the data set, such as 1.28e6; they make one epoch. Short for --set job.dataset_size=N."
YES_HELP = "Do not ask before simulating for a long time; go on."

_KEYS = {
    "replications": "run.replications",
    "epochs": "job.epochs",
    "samples": "job.samples",
    "dataset_size": "job.dataset_size",
}
"""Keys that have options of their own, by the name of the option's parameter."""
_DEEPEST = 20
"""Parts that a dotted key has at most."""
_EVERY = "*"
"""Stands for every cluster without a price, as the library has it."""


def settings_of(texts: Iterable[str] | None, **more: Any) -> list[tuple[str, Any]]:
    """``--set KEY=VALUE``, as often as given, and settings that have options of their own, where these are given.

    >>> settings_of(["strategy.workers=8"], replications=None, dataset_size=1000.0)
    [('strategy.workers', 8), ('job.dataset_size', 1000.0)]

    Parameters
    ----------
    texts
        As typed.
    more
        Values of options that stand for a key (:data:`_KEYS`); None where the option is not given.

    Raises
    ------
    ScenarioError
        One cannot be read, or is given both ways.
    """
    found = [parse_setting(text) for text in texts or ()]
    for name, value in more.items():
        key = _KEYS[name]
        if value is None:
            continue
        if key in dict(found):
            raise ScenarioError(f"--{name.replace('_', '-')} and --set {key}: say the same; leave one of them out")
        found.append((key, value))
    return found


def over_of(texts: Iterable[str] | None) -> dict[str, list[Any]]:
    """``--over KEY=V1,V2,...``, as often as given.

    Raises
    ------
    ScenarioError
        One cannot be read, or a key is given twice.
    """
    found: dict[str, list[Any]] = {}
    for key, values in map(parse_axis, texts or ()):
        if key in found:
            raise ScenarioError(f"--over {key[:80]}: is given twice; write all its values into one --over, separated by commas")
        found[key] = values
    return found


def prices_of(texts: Iterable[str] | None) -> dict[str, str] | None:
    """``--price [NAME=]PRICE``, as often as given; None where it is not.

    >>> prices_of(["lab=0.40/h", "0.20/h"])
    {'lab': '0.40/h', '*': '0.20/h'}

    Raises
    ------
    InputError
        There is no name before ``=``, or a name is given twice.
    """
    from simulator.base.validation_errors import quoted

    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, price = text.rpartition("=")
        name = name.strip()
        if equals and not name:
            raise InputError(f"--price {quoted(text)}: a name stands before '=', such as --price ethernet-1g=0.40/h")
        if (name or _EVERY) in found:
            whose = f"the price of {name}" if name else "a price for every cluster without one"
            raise InputError(f"--price {quoted(text)}: {whose} is given twice; keep one of them")
        found[name or _EVERY] = price
    return found or None


def command_line() -> str:
    """This command, as it can be typed again."""
    return shlex.join(["paceline", *sys.argv[1:]])


def needs(context: typer.Context, option: str, names: Collection[str]) -> None:
    """Refuse options that say nothing without ``option``, which is not given.

    Parameters
    ----------
    context
        Of the command, which knows what was typed.
    option
        What they go with, as it is typed.
    names
        Parameters of the command, by their names in Python.

    Raises
    ------
    InputError
        One of them is typed.
    """
    if stray := _typed(context, names):
        raise InputError(f"{stray}: goes with {option}; add that, or leave {stray} out")


def useless(context: typer.Context, beside: str, names: Collection[str]) -> None:
    """Refuse options that say nothing beside another, which is given; parameters and errors as for :func:`needs`."""
    if stray := _typed(context, names):
        raise InputError(f"{stray}: says nothing with {beside}; leave one or the other out")


def is_given(context: typer.Context, name: str) -> bool:
    """Whether a parameter, by its name in Python, was typed."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _typed(context: typer.Context, names: Collection[str]) -> str | None:
    """The first of the parameters ``names`` that was typed, as it is typed."""
    for parameter in context.command.params:
        if parameter.name in names and is_given(context, parameter.name):
            (name, *_) = parameter.opts
            return name if name.startswith("-") else (parameter.metavar or name)  # an argument is known by what stands for it
    return None


def numbers_of(text: str, option: str, example: str = "16,32,64") -> list[int]:
    """Whole numbers from 1 on, separated by commas; ranges among them.

    Raises
    ------
    InputError
        One is none, or below 1.
    """
    numbers = numbers_in(text, f"{option} ")
    if numbers is None:
        raise InputError(f"{option} {text!r}: must be whole numbers separated by commas, such as {example}, or a range such as 1..8")
    if min(numbers) < 1:
        raise InputError(f"{option} {min(numbers)}: must be at least 1")
    return numbers


def names_of(text: str | None, option: str) -> list[str]:
    """Names separated by commas, each once.

    Raises
    ------
    InputError
        One is empty.
    """
    if text is None:
        return []
    names = list(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(names):
        raise InputError(f"{option} {text[:80]!r}: must be names separated by commas, none of them empty")
    return names


def parse_setting(text: str) -> tuple[str, Any]:
    """Split ``key=value``; the value is TOML where it parses as TOML, else text; None, which unsets the key, where there is none.

    Raises
    ------
    ScenarioError
        There is no ``=``, or no key.
    """
    from simulator.base.validation_errors import quoted

    key, equals, raw = text.partition("=")
    key = key.strip()
    if not equals or not _is_dotted(key):
        raise ScenarioError(
            f"--set {quoted(text)}: must be key=value with a dotted key of at most {_DEEPEST} parts, such as strategy.workers=8"
        )
    try:
        value = _parse_value(raw)
    except ScenarioError as error:
        raise ScenarioError(f"--set {key}={error}") from None
    _warn_of_thousands(raw, value, f"--set {key}=")
    return key, value


def parse_axis(text: str) -> tuple[str, list[Any]]:
    """Read ``key=v1,v2,...``, or a range of whole numbers; each value is TOML where it parses as TOML, else text; None where there is none.

    >>> parse_axis("strategy.workers=1..3,8")
    ('strategy.workers', [1, 2, 3, 8])
    >>> parse_axis("strategy.bound=,4")
    ('strategy.bound', [None, 4])

    Raises
    ------
    ScenarioError
        There is no key, or no value.
    """
    key, equals, raw = text.partition("=")
    key = key.strip()
    if not equals or not _is_dotted(key):
        raise ScenarioError(f"--over {text[:80]!r}: must be key=v1,v2,..., such as strategy.workers=1,2,4,8 or strategy.workers=1..8")
    values: list[Any] | None = numbers_in(raw, f"--over {key}=")
    if values is None:
        from simulator.base.files import exact

        try:
            values = list(tomllib.loads(f"values = [{raw}]\n", parse_float=exact)["values"])
        except (ValueError, RecursionError):
            values = [_parse_value(part) for part in raw.split(",")]
        except ScenarioError as error:
            raise ScenarioError(f"--over {key}: {error}") from None
        for part, value in zip(raw.split(","), values, strict=False):
            _warn_of_thousands(part, value, f"--over {key}=")
    if values in ([], [None]):
        raise ScenarioError(f"--over {text[:80]!r}: has no values; write {key}=v1,v2,...")
    return key, values


def number_typed(text: str) -> float:
    """What an option for a number of samples, epochs or parameters is given, as typer reads it.

    Raises
    ------
    typer.BadParameter
        It is no number, or may be read in two ways.
    """
    from simulator.base.errors import UnitError
    from simulator.base.units import number_of

    try:
        return number_of(text, repr(text[:40]))
    except UnitError as error:
        raise typer.BadParameter(str(error)) from None


def _is_dotted(text: str) -> bool:
    """Whether a text names a key, such as ``cluster.inter_node.latency``."""
    parts = text.split(".")
    return all(part.strip() for part in parts) and len(parts) <= _DEEPEST


def _warn_of_thousands(raw: str, value: object, where: str) -> None:
    """Warn where a number that is typed may mean thousands: a file is TOML, which knows decimals alone, a command line need not be."""
    if isinstance(value, float):
        from simulator.base.units import warn_of_thousands

        warn_of_thousands(raw.strip(), where)


def _parse_value(raw: str) -> Any:
    """TOML where it parses as TOML, else text; None where there is nothing."""
    from simulator.base.files import exact

    try:
        table = tomllib.loads(f"value = {raw}\n", parse_float=exact)
    except (ValueError, RecursionError):
        return raw.strip() or None
    return table["value"] if len(table) == 1 else raw.strip()
