"""What the library's functions take: described once, for the library, the command line and the reference.

An argument is described where a function takes it. What it means stands in the function's docstring, of which the
first paragraph is for everybody, further ones for callers of the library. What it must be, and how it is typed at a
terminal, stand in its type: :class:`MustBe` and :class:`Typed`. Kinds that several functions have are here.
:func:`checked` holds what is given against all that, and :func:`arguments_of` tells it to the command line.

The command line reads this to show a help, so that what is heavy is imported when a function is called.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from simulator.base.errors import InputError

ParamsT = ParamSpec("ParamsT")
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True)
class MustBe:
    """What an argument must be.

    Attributes
    ----------
    what
        As the end of "must be": ``"a whole number; 0 takes all cores"``. A choice of words says it by itself.
    least, most
        Of a number.
    holds
        Whether a value is such a thing, where its type does not say it.
    """

    what: str
    least: int | None = None
    most: int | None = None
    holds: Callable[[Any], bool] | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """The check, for pydantic."""
        from pydantic_core import core_schema

        def check(value: Any) -> Any:
            too_low, too_high = self.least is not None and value < self.least, self.most is not None and value > self.most
            if too_low or too_high or not (self.holds is None or self.holds(value)):
                raise ValueError(f"must be {self.what}")
            return value

        return core_schema.no_info_after_validator_function(check, handler(source))


@dataclass(frozen=True)
class Typed:
    """How an argument is typed on the command line, where its name and type do not tell.

    Attributes
    ----------
    name
        Of the option, ``"--over"``; left out: that of the argument.
    short
        One letter for it, ``"-o"``.
    metavar
        What stands for its value in the help.
    place
        Whether it is no option: known by its place.
    reads
        What its text is, one of :data:`paceline.cli.options.READERS`.
    example
        Text that can be read so.
    text
        What it means, where the docstring of who takes it does not say so.
    """

    name: str = ""
    short: str = ""
    metavar: str = ""
    place: bool = False
    reads: str = ""
    example: str = ""
    text: str = ""


NOT_TYPED = Typed(reads="nothing")
"""Of what only a program gives."""


def instance_of(module: str, name: str) -> Any:
    """The type of an object of a class whose module is only imported by those who make one."""
    return Annotated[Any, MustBe(f"a {name}", holds=lambda value: isinstance(value, getattr(sys.modules.get(module), name, ())))]


if TYPE_CHECKING:
    from calibrate.tf_config import TfCluster
    from calibrate.xplane.profiles import Profiled
    from paceline.lengthy import Lengthy
    from simulator.base.files import Output, OutputKind
    from simulator.base.records import Observer
    from simulator.base.spec import Spec
    from simulator.results.results import Result
    from simulator.scenario import Scenario
    from simulator.spec.paying import Price

    Pairs: TypeAlias = Iterable[tuple[str, Any]]
    Values: TypeAlias = Iterable[Any]
else:
    Lengthy = Any  # of what a function is called with nothing is checked
    Observer = Annotated[Any, MustBe("an object with a method `record`", holds=lambda it: callable(getattr(it, "record", None)))]
    Pairs = Values = instance_of("collections.abc", "Iterable")
    Price = instance_of("simulator.spec.cluster", "Price")
    Profiled = instance_of("calibrate.xplane.profiles", "Profiled")
    Result = instance_of("simulator.results.results", "Result")
    Scenario = instance_of("simulator.scenario", "Scenario")
    Spec = instance_of("simulator.base.spec", "Spec")
    TfCluster = instance_of("calibrate.tf_config", "TfCluster")

Source: TypeAlias = Annotated[
    str | Path | Mapping[str, Any] | Scenario,
    MustBe("a file, a name such as 'ring', nested tables or a loaded scenario"),
    Typed(place=True, metavar="SCENARIO.toml"),
]
"""A scenario: a file, the name of one that comes along, nested tables as a file has them, or one that is loaded already."""

Settings: TypeAlias = Annotated[
    Mapping[str, Any] | Pairs, MustBe("keys with values, such as {'strategy.workers': 8}"), Typed("--set", reads="settings")
]
"""Values by dotted key, such as ``{"strategy.workers": 8, "cluster.inter_node.bandwidth": "10 Gbit/s"}``; None unsets a key."""

Over: TypeAlias = Annotated[
    Mapping[str, Values],
    MustBe("keys with lists of values or ranges, such as {'strategy.workers': [1, 2, 4]} or {'strategy.workers': '1..8'}"),
    Typed(reads="over"),
]
"""Values to try, by dotted key; a range such as ``"1..8"`` stands for its whole numbers, None among the values for the key left out."""

Prices: TypeAlias = Annotated[
    str | float | Mapping[str, str | float | Price] | None,
    MustBe("prices by the name of a cluster, such as {'ethernet-1g': '0.40/h'}, or one for all clusters without any, such as '0.40/h'"),
    Typed("--price", reads="prices"),
]
"""Of a node for an hour, by the name of its cluster, such as ``{"ethernet-1g": "0.40/h"}``; alone, or under ``"*"``, of all without one."""

TestbedSource: TypeAlias = Annotated[
    str | Path | Mapping[str, Any] | Spec | None, MustBe("a file, or nested tables"), Typed(place=True, metavar="SETTING.toml")
]
"""A setting of the testbed: a file, nested tables as a file has them, one that is loaded already, or None for the one that needs none."""

Seed: TypeAlias = Annotated[int, MustBe("a whole number from 0 on", least=0)]
"""Of everything random: the same seed gives the same."""

Answer: TypeAlias = Annotated[Result, MustBe("a result, such as `paceline.simulate` gives")]
"""The result of one scenario."""

File: TypeAlias = Annotated[str | Path, MustBe("the path of a file")]
"""A file that is read or written."""

Folder: TypeAlias = Annotated[str | Path, MustBe("the path of a folder")]
"""A folder that files are read from or written into."""

Force: TypeAlias = Annotated[bool, Typed(short="-f")]
"""Whether files are replaced that something else has written."""

Text: TypeAlias = Annotated[str, MustBe("text")]
"""Any text."""

Command: TypeAlias = Annotated[str, MustBe("text"), NOT_TYPED]
"""What made a file, as it says itself; empty: the call of the library."""

Count: TypeAlias = Annotated[int, MustBe("a whole number")]
"""How many of something."""

Amount: TypeAlias = Annotated[float, MustBe("a number, such as 1.28e6"), Typed(metavar="N", reads="amount")]
"""A number that is often large, such as of samples."""

Quantity: TypeAlias = str | float
"""Text with a unit, or a number in SI units; what it must be is said where it is taken."""

Counts: TypeAlias = Annotated[
    str | Sequence[int] | None, MustBe("a range such as '1..64', or a list of whole numbers"), Typed(metavar="RANGE")
]
"""Numbers to choose from: a range ``"1..64"``, or a list of which each counts."""

Names: TypeAlias = Annotated[Sequence[str], MustBe("a list of names"), Typed(reads="names")]
"""Several names."""

Rates: TypeAlias = Annotated[
    tuple[float, ...] | list[float],
    MustBe("a list of numbers above 0, such as [1, 0.3]", holds=lambda rates: bool(rates) and all(0 < rate < math.inf for rate in rates)),
    Typed("--rate", reads="decimals", example="1,0.3,0.1"),
]
"""What an optimizer's learning rate is multiplied by: the best of several is taken."""

Runs: TypeAlias = Annotated[int, MustBe("a whole number from 2 to 1000", least=2, most=1000), Typed(metavar="N")]
"""How many runs are replayed of each way of training."""

Problem: TypeAlias = Annotated[str, MustBe("the name of a problem, or text such as 'my_model.py:build'"), Typed(metavar="PROBLEM")]
"""A model with its data: the name of one that comes along, or ``FILE.py:FUNCTION``."""

Aim: TypeAlias = Annotated[str, MustBe("a metric with a value, such as 'accuracy=0.95'"), Typed(metavar="METRIC=VALUE")]
"""How good is good enough."""

Numbers: TypeAlias = Annotated[Sequence[int], MustBe("a list of whole numbers"), Typed(reads="numbers", example="16,32,64")]
"""Several whole numbers."""

Jobs: TypeAlias = Annotated[int, MustBe("a whole number from 0 on; 0 takes all cores", least=0), Typed(metavar="N")]
"""Processes, or tasks at a time; 0 takes all cores, of the cluster where there is one."""

Backend: TypeAlias = Literal["local", "dask", "ray"]
"""Where simulations run: processes of this machine, or a Dask or Ray cluster."""

Carrying: TypeAlias = Literal["grpc", "gloo"]
"""What carries bytes between processes: TensorFlow's gRPC, or PyTorch's gloo."""

KerasBackend: TypeAlias = Annotated[str | None, MustBe("text such as 'jax'"), Typed(metavar="tensorflow|jax|torch")]
"""What a Keras model runs on."""

Scheduler: TypeAlias = Annotated[str | None, MustBe("the address of a cluster, such as 'tcp://127.0.0.1:8786'"), Typed(metavar="ADDRESS")]
"""Where a Dask or Ray cluster is."""

Progress: TypeAlias = Annotated[Callable[[int, int], None] | None, MustBe("a function"), NOT_TYPED]
"""Called with what is done and what there is in all."""

Steps: TypeAlias = Annotated[Callable[[float, int], None] | None, MustBe("a function"), NOT_TYPED]
"""Called with what is done, the last in part, and what there is in all."""

Asking: TypeAlias = Annotated[Callable[[Lengthy], None] | None, MustBe("a function"), NOT_TYPED]
"""Called before what takes hours; raises where it should not be."""

Stages: TypeAlias = Annotated[Callable[[int, int, str], None] | None, MustBe("a function"), NOT_TYPED]
"""Called with what is done, what there is in all, and what is counted: work of several parts begins anew with each."""

Remarks: TypeAlias = Annotated[Callable[[str], None] | None, MustBe("a function"), NOT_TYPED]
"""Called with each remark while measuring, such as how long it takes."""

Observing: TypeAlias = Annotated[Observer | None, MustBe("an object with a method `record`"), NOT_TYPED]
"""Receives every record of the first replication."""

Thresholds: TypeAlias = Annotated[
    Mapping[str, str | float] | None, MustBe("thresholds with their values, such as {'max_median': '2%', 'min_coverage': 0.8}"), NOT_TYPED
]
"""What a validation must reach, by name: ``max_median``, ``max_worst``, ``max_staleness``, ``max_distance``, ``min_coverage``."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
Name: TypeAlias = Annotated[
    str,
    MustBe(
        "letters, digits, '.', '_', '+' or '-', beginning with a letter or digit, such as my-model",
        holds=lambda text: _NAME.fullmatch(text) is not None,
    ),
    Typed(metavar="NAME"),
]
"""Of a workload or cluster, and of its files."""

Function: TypeAlias = Annotated[str | None, MustBe("text such as 'my_model.py:build'"), Typed(metavar="FILE.py:FUNCTION")]
"""A function in a file of Python, ``FILE.py:FUNCTION``."""

Precision: TypeAlias = Annotated[Literal["float32", "mixed_float16", "mixed_bfloat16", "bfloat16"], Typed(reads="text")]
"""Of the numbers that a step computes with."""

Python: TypeAlias = Annotated[str | None, MustBe("the path of a Python"), Typed(metavar="PATH")]
"""A Python that has TensorFlow; None takes the one that runs."""

Timeout: TypeAlias = Annotated[
    float,
    MustBe("a number of seconds above 0", holds=lambda seconds: 0.0 < seconds < math.inf),
    Typed("--timeout", metavar="SECONDS"),
]
"""Seconds after which something is given up."""

Address: TypeAlias = Annotated[str, MustBe("text such as '10.0.0.2:2222'"), Typed(metavar="HOST:PORT")]
"""``HOST:PORT``."""

ProfilePlaces: TypeAlias = Annotated[
    Mapping[int, str | Path | Sequence[str | Path]],
    MustBe("log directories by the samples of a step, such as {16: 'logs16', 32: 'logs32'}"),
]
"""By the samples of a step: a TensorBoard log directory, the folder of one run, an ``.xplane.pb`` file, or a list of these."""

Profiles: TypeAlias = Annotated[
    ProfilePlaces | Profiled,
    MustBe("log directories by the samples of a step, such as {16: 'logs16', 32: 'logs32'}, or profiles that are read"),
]
"""Profiles: where they are, or what :func:`paceline.read_profiles` has read."""

TfConfig: TypeAlias = Annotated[str | TfCluster, MustBe("a file, JSON, 'env', or a cluster that is read")]
"""A TF_CONFIG or ClusterSpec: a file, the JSON itself, ``env`` for the environment variable, or what has been read."""


Format: TypeAlias = Literal["scenario", "workload", "cluster", "device", "input", "faults", "result", "testbed-setting"]
"""The formats of files."""


# -- what a function takes, told --------------------------------------------------------------


@dataclass(frozen=True)
class Argument:
    """An argument of a function, as a command line needs to know it.

    Attributes
    ----------
    kind
        Its type, without what is noted beside it, and without None.
    default
        What holds where it is left out; :data:`inspect.Parameter.empty` where it must be given.
    must
        What it must be.
    typed
        How it is typed.
    text
        What it means: the first paragraph of its description.
    """

    kind: Any
    default: Any
    must: MustBe
    typed: Typed
    text: str


def arguments_of(function: Callable[..., Any]) -> dict[str, Argument]:
    """What a function takes, by name."""
    arguments = {}
    kinds = _kinds_of(function)
    for name, parameter in inspect.signature(function).parameters.items():
        notes, kind = _noted(kinds[name])
        typed = Typed(**{key: value for note in notes if isinstance(note, Typed) for key, value in vars(note).items() if value})
        must = next((note for note in reversed(notes) if isinstance(note, MustBe)), MustBe(""))
        arguments[name] = Argument(kind, parameter.default, must, typed, _described(function, name) or typed.text)
    return arguments


def _kinds_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of a function's arguments. What it returns may be imported for type checkers only."""
    bare = inspect.unwrap(function)
    hints = {name: kind for name, kind in bare.__annotations__.items() if name != "return"}
    return get_type_hints(type(bare.__name__, (), {"__annotations__": hints}), bare.__globals__, include_extras=True)


def _noted(kind: Any) -> tuple[list[Any], Any]:
    """What is noted beside a type, the most particular last, and the type itself; of one that may be None, the other."""
    if get_origin(kind) is Annotated:
        annotated, *notes = get_args(kind)
        inner, bare = _noted(annotated)
        return [*inner, *notes], bare
    if get_origin(kind) in (Union, UnionType):
        others = [each for each in get_args(kind) if each is not type(None)]
        return _noted(others[0]) if len(others) == 1 else ([], Union[tuple(others)])  # noqa: UP007
    return [], kind


_PARAMETERS = re.compile(r"^Parameters\n-+\n(.*?)(?=^\w+\n---|\Z)", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^(\S.*)\n((?:[ ].*\n|\n)+)", re.MULTILINE)
_ELSEWHERE = re.compile(r"As for :func:`(\w+)`\.? ?")


def _described(function: Callable[..., Any], name: str) -> str:
    """The first paragraph of what a docstring says of an argument; "As for" another function: what that says."""
    section = _PARAMETERS.search(inspect.getdoc(function) or "")
    entries = _ENTRY.findall(f"{section[1]}\n" if section else "")
    first = next((" ".join(text.strip().split("\n\n")[0].split()) for names, text in entries if name in names.split(", ")), "")
    if (elsewhere := _ELSEWHERE.match(first)) is None:
        return first
    return f"{_described(getattr(import_module('paceline'), elsewhere[1]), name)} {first[elsewhere.end() :]}".strip()


# -- what a function is given, held against that -----------------------------------------------


def checked(function: Callable[ParamsT, AnswerT]) -> Callable[ParamsT, AnswerT]:
    """The function, refusing arguments that are not what their types say.

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
    >>> import numpy as np
    >>> twice(np.int64(4))
    8
    >>> twice("four")
    Traceback (most recent call last):
        ...
    simulator.base.errors.InputError: `jobs`: 'four' must be a whole number from 0 on; 0 takes all cores
    """
    signature = inspect.signature(function)

    @cache
    def validate() -> Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]:
        from pydantic import ConfigDict, validate_call

        @wraps(function)
        def arguments(*args: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
            return args, named

        # what is returned may be imported for type checkers only
        arguments.__annotations__ = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
        return validate_call(config=ConfigDict(strict=True, arbitrary_types_allowed=True))(arguments)

    @wraps(function)
    def call(*args: ParamsT.args, **named: ParamsT.kwargs) -> AnswerT:
        from pydantic import ValidationError

        bound = signature.bind(*args, **named)
        if (numpy := sys.modules.get("numpy")) is not None:
            plain = ((name, value.tolist()) for name, value in bound.arguments.items() if isinstance(value, (numpy.generic, numpy.ndarray)))
            bound.arguments.update(list(plain))
        try:
            positional, by_name = validate()(*bound.args, **bound.kwargs)
        except ValidationError as error:
            from simulator.base.validation_errors import rule_of

            problem = error.errors(include_url=False)[0]
            place = problem["loc"][0]
            name = list(signature.parameters)[place] if isinstance(place, int) else place
            rule = _must_be(_kinds_of(function)[name], bound.arguments[name]) or rule_of(problem)
            raise refusal(name, bound.arguments[name], rule) from None
        return function(*positional, **by_name)

    shown = [each.replace(annotation=_without_notes(each.annotation)) for each in signature.parameters.values()]
    call.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return call


class _WithoutNotes(ast.NodeTransformer):
    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        noted = isinstance(node.value, ast.Name) and node.value.id == "Annotated" and isinstance(node.slice, ast.Tuple)
        return self.visit(node.slice.elts[0]) if noted else node  # type: ignore[attr-defined]


def _without_notes(annotation: Any) -> Any:
    """A type as :func:`help` shows it: its name."""
    if not isinstance(annotation, str) or "Annotated" not in annotation:
        return annotation
    return ast.unparse(_WithoutNotes().visit(ast.parse(annotation, mode="eval")))


def refusal(name: str, value: object, rule: str) -> InputError:
    """That an argument's value breaks a rule, which begins with "must be"."""
    from simulator.base.validation_errors import quoted

    return InputError(f"`{name}`: {quoted(value)} {rule}")


def _must_be(kind: Any, value: object) -> str:
    """What an argument of this kind must be, and of words which may have been meant; "" where its type does not say it."""
    from simulator.base.text import did_you_mean, listed

    notes, bare = _noted(kind)
    if rules := [note.what for note in notes if isinstance(note, MustBe)]:
        return f"must be {rules[-1]}"
    if get_origin(bare) is Literal:
        hint = did_you_mean(value, get_args(bare), written="'{}'") if isinstance(value, str) else ""
        return f"must be {listed([repr(choice) for choice in get_args(bare)], 'or')}{f'; {hint}' if hint else ''}"
    return ""


def output_of(out: str | Path | None, kind: OutputKind, *, force: bool) -> Output | None:
    """A file to write, if there is to be one, found out before the work; errors as of :class:`simulator.base.files.Output`."""
    from simulator.base.files import Output

    return None if out is None else Output(Path(out), kind, force=force)


def path_of(path: str | Path | None) -> Path | None:
    """A path that was given as text or as such; None where none was."""
    return None if path is None else Path(path)


def file_of(scenario: Any) -> Path | None:
    """The file that a scenario is read from; None where it is none."""
    from simulator.base.catalog import scenario_file

    return scenario_file(scenario) if isinstance(scenario, (str, Path)) else None


def writable(out: str | Path | None, scenario: Any) -> Path | None:
    """A results file to write, if there is to be one.

    Raises
    ------
    InputError
        It cannot be written, is the file of the scenario, or its name promises another format.
    """
    from simulator.base.files import check_ending, check_writable

    if out is None:
        return None
    path = check_writable(Path(out), file_of(scenario))
    check_ending(path, ".ndjson", "`out`: ", ", from which `paceline report` makes pages, and with --tables tables (CSV)")
    return path
