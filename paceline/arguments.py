"""What the library's functions take, and how a wrong argument is refused: with one sentence, before anything is done.

Each kind of argument is a type that carries what it must be (:class:`MustBe`); :func:`checked`
has pydantic hold what is given against them. A choice of words says by itself what it must be.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from pydantic import ConfigDict, Field, InstanceOf, PlainValidator, ValidationError, validate_call

from paceline.lengthy import Lengthy
from simulator.base.catalog import scenario_file
from simulator.base.errors import InputError
from simulator.base.nearest import did_you_mean
from simulator.base.outputs import check_writable
from simulator.base.records import Observer
from simulator.base.spec import Spec
from simulator.base.text import listed
from simulator.base.validation_errors import quoted, rule_of
from simulator.results.results import Result
from simulator.scenario import Scenario
from simulator.spec.cluster import Price

__all__ = [
    "Address",
    "Answer",
    "Asking",
    "Backend",
    "Count",
    "Counts",
    "File",
    "Folder",
    "Function",
    "Jobs",
    "MustBe",
    "Name",
    "Observing",
    "Over",
    "Precision",
    "Prices",
    "ProfilePlaces",
    "Profiles",
    "Progress",
    "Python",
    "Quantity",
    "Scheduler",
    "Seed",
    "Settings",
    "Source",
    "Stages",
    "Steps",
    "TestbedSource",
    "Text",
    "TfConfig",
    "Thresholds",
    "Timeout",
    "checked",
    "file_of",
    "path_of",
    "refusal",
    "writable",
]

ParamsT = ParamSpec("ParamsT")
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True)
class MustBe:
    """What an argument must be, as the end of "must be": ``MustBe("a whole number; 0 takes all cores")``."""

    what: str


def _instance_of(module: str, name: str) -> Any:
    """Instances of a class of a module that is only imported by those who make one."""

    def check(value: Any) -> Any:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is None or not isinstance(value, kind):
            raise ValueError(f"must be a {name}")
        return value

    return Annotated[Any, PlainValidator(check)]


Source: TypeAlias = Annotated[
    str | Path | Mapping[str, Any] | InstanceOf[Scenario], MustBe("a file, a name such as 'ring', nested tables or a loaded scenario")
]
"""A scenario: a file, the name of one that comes along, nested tables as a file has them, or one that is loaded already."""

Settings: TypeAlias = Annotated[
    Mapping[str, Any] | InstanceOf[Iterable[tuple[str, Any]]], MustBe("keys with values, such as {'strategy.workers': 8}")
]
"""Values by dotted key, such as ``{"strategy.workers": 8, "cluster.inter_node.bandwidth": "10 Gbit/s"}``; None unsets a key."""

Over: TypeAlias = Annotated[
    Mapping[str, InstanceOf[Iterable[Any]]],
    MustBe("keys with lists of values or ranges, such as {'strategy.workers': [1, 2, 4]} or {'strategy.workers': '1..8'}"),
]
"""Values to try, by dotted key; a range such as ``"1..8"`` stands for its whole numbers, None among the values for the key left out."""

Prices: TypeAlias = Annotated[
    str | float | Mapping[str, str | float | InstanceOf[Price]] | None,
    MustBe("prices by the name of a cluster, such as {'ethernet-1g': '0.40/h'}, or one for all clusters without any, such as '0.40/h'"),
]
"""Of a node for an hour, by the name of its cluster, such as ``{"ethernet-1g": "0.40/h"}``; alone, or under ``"*"``, of all without one."""

TestbedSource: TypeAlias = Annotated[str | Path | Mapping[str, Any] | InstanceOf[Spec] | None, MustBe("a file, or nested tables")]
"""A setting of the testbed: a file, nested tables as a file has them, one that is loaded already, or None for the one that needs none."""

Seed: TypeAlias = Annotated[int, Field(ge=0), MustBe("a whole number from 0 on")]
"""Of everything random: the same seed gives the same."""

Answer: TypeAlias = Annotated[InstanceOf[Result], MustBe("a result, such as `paceline.simulate` gives")]
"""The result of one scenario."""

File: TypeAlias = Annotated[str | Path, MustBe("the path of a file")]
"""A file that is read or written."""

Folder: TypeAlias = Annotated[str | Path, MustBe("the path of a folder")]
"""A folder that files are read from or written into."""

Text: TypeAlias = Annotated[str, MustBe("text")]
"""Any text."""

Count: TypeAlias = Annotated[int, MustBe("a whole number")]
"""How many of something."""

Quantity: TypeAlias = str | float
"""Text with a unit, or a number in SI units; what it must be is said where it is taken."""

Counts: TypeAlias = Annotated[str | Sequence[int] | None, MustBe("a range such as '1..64', or a list of whole numbers")]
"""Numbers to choose from: a range ``"1..64"``, or a list of which each counts."""

Jobs: TypeAlias = Annotated[int, Field(ge=0), MustBe("a whole number from 0 on; 0 takes all cores")]
"""Processes, or tasks at a time; 0 takes all cores, of the cluster where there is one."""

Backend: TypeAlias = Literal["local", "dask", "ray"]
"""Where simulations run: processes of this machine, or a Dask or Ray cluster."""

Scheduler: TypeAlias = Annotated[str | None, MustBe("the address of a cluster, such as 'tcp://127.0.0.1:8786'")]
"""Where a Dask or Ray cluster is."""

Progress: TypeAlias = Annotated[Callable[[int, int], None] | None, MustBe("a function")]
"""Called with what is done and what there is in all."""

Steps: TypeAlias = Annotated[Callable[[float, int], None] | None, MustBe("a function")]
"""Called with what is done, the last in part, and what there is in all."""

Asking: TypeAlias = Annotated[Callable[[Lengthy], None] | None, MustBe("a function")]
"""Called before what takes hours; raises where it should not be."""

Stages: TypeAlias = Annotated[Callable[[int, int, str], None] | None, MustBe("a function")]
"""Called with what is done, what there is in all, and what is counted: work of several parts begins anew with each."""

Thresholds: TypeAlias = Annotated[
    Mapping[str, str | float] | None, MustBe("thresholds with their values, such as {'max_median': '2%', 'min_coverage': 0.8}")
]
"""What a validation must reach, by name: ``max_median``, ``max_worst``, ``max_staleness``, ``max_distance``, ``min_coverage``."""

Name: TypeAlias = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$"),
    MustBe("letters, digits, '.', '_', '+' or '-', beginning with a letter or digit, such as my-model"),
]
"""Of a workload or cluster, and of its files."""

Function: TypeAlias = Annotated[str | None, MustBe("text such as 'my_model.py:build'")]
"""A function in a file of Python, ``FILE.py:FUNCTION``."""

Precision: TypeAlias = Literal["float32", "mixed_float16"]
"""Of the numbers that a step computes with."""

Python: TypeAlias = Annotated[str | None, MustBe("the path of a Python")]
"""A Python that has TensorFlow; None takes the one that runs."""

Timeout: TypeAlias = Annotated[float, MustBe("a number of seconds")]
"""Seconds after which something is given up."""

Address: TypeAlias = Annotated[str, MustBe("text such as '10.0.0.2:2222'")]
"""``HOST:PORT``."""

ProfilePlaces: TypeAlias = Annotated[
    Mapping[int, str | Path | Sequence[str | Path]],
    MustBe("log directories by the samples of a step, such as {16: 'logs16', 32: 'logs32'}"),
]
"""By the samples of a step: a TensorBoard log directory, the folder of one run, an ``.xplane.pb`` file, or a list of these."""

if TYPE_CHECKING:
    from calibrate.tf_config import TfCluster
    from calibrate.xplane.profiles import Profiled
else:
    Profiled = _instance_of("calibrate.xplane.profiles", "Profiled")
    TfCluster = _instance_of("calibrate.tf_config", "TfCluster")

Profiles: TypeAlias = Annotated[
    ProfilePlaces | Profiled,
    MustBe("log directories by the samples of a step, such as {16: 'logs16', 32: 'logs32'}, or profiles that are read"),
]
"""Profiles: where they are, or what :func:`paceline.read_profiles` has read."""

TfConfig: TypeAlias = Annotated[str | TfCluster, MustBe("a file, JSON, 'env', or a cluster that is read")]
"""A TF_CONFIG or ClusterSpec: a file, the JSON itself, ``env`` for the environment variable, or what has been read."""

Observing: TypeAlias = Annotated[Observer | None, MustBe("an object with a method `record`")]
"""Receives every record of the first replication."""


def checked(function: Callable[ParamsT, AnswerT]) -> Callable[ParamsT, AnswerT]:
    """The function, refusing arguments that are not what their annotations say.

    Numbers and arrays of numpy are given to it as Python's own. Results, scenarios and other
    models are given to it as they are, neither copied nor validated again.

    Raises
    ------
    InputError
        By the function that is returned: an argument is wrong.

    Examples
    --------
    >>> @checked
    ... def twice(jobs: Jobs) -> int:
    ...     return 2 * jobs
    >>> twice(np.int64(4))
    8
    >>> twice("four")
    Traceback (most recent call last):
        ...
    simulator.base.errors.InputError: `jobs`: 'four' must be a whole number from 0 on; 0 takes all cores
    """
    signature = inspect.signature(function)

    @wraps(function)
    def given(*args: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, named

    # what is returned may be imported for type checkers only
    given.__annotations__ = {name: kind for name, kind in function.__annotations__.items() if name != "return"}

    @cache
    def validate() -> Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]:
        return validate_call(config=ConfigDict(strict=True, arbitrary_types_allowed=True))(given)

    @wraps(function)
    def call(*args: ParamsT.args, **named: ParamsT.kwargs) -> AnswerT:
        bound = signature.bind(*args, **named)
        for name, value in bound.arguments.items():
            if isinstance(value, (np.generic, np.ndarray)):
                bound.arguments[name] = value.tolist()
        try:
            positional, by_name = validate()(*bound.args, **bound.kwargs)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            place = problem["loc"][0]
            name = list(signature.parameters)[place] if isinstance(place, int) else place
            rule = _must_be(get_type_hints(given, include_extras=True)[name], bound.arguments[name]) or rule_of(problem)
            raise refusal(name, bound.arguments[name], rule) from None
        return function(*positional, **by_name)

    return call


def refusal(name: str, value: object, rule: str) -> InputError:
    """That an argument's value breaks a rule, which begins with "must be"."""
    return InputError(f"`{name}`: {quoted(value)} {rule}")


def _must_be(kind: Any, given: object) -> str:
    """What an argument of this kind must be, and of words which may have been meant; "" where its type does not say it."""
    for its in (kind, *(get_args(kind) if get_origin(kind) in (Union, UnionType) else ())):
        if found := [each.what for each in getattr(its, "__metadata__", ()) if isinstance(each, MustBe)]:
            return f"must be {found[-1]}"
        if get_origin(its) is Literal:
            hint = did_you_mean(given, get_args(its), written="'{}'") if isinstance(given, str) else ""
            return f"must be {listed([repr(choice) for choice in get_args(its)], 'or')}{f'; {hint}' if hint else ''}"
    return ""


def path_of(given: str | Path | None) -> Path | None:
    """A path that was given as text or as such; None where none was."""
    return None if given is None else Path(given)


def file_of(scenario: Any) -> Path | None:
    """The file that a scenario is read from; None where it is none."""
    return scenario_file(scenario) if isinstance(scenario, (str, Path)) else None


def writable(out: str | Path | None, scenario: Any) -> Path | None:
    """A results file to write, if there is to be one.

    Raises
    ------
    InputError
        It cannot be written, or is the file of the scenario.
    """
    return None if out is None else check_writable(Path(out), reads=file_of(scenario))
