"""Arguments of the library's functions, described once for the library, the command line and the reference.

The docstring of a function says what an argument means: its first paragraph is for everybody, later ones are for callers of the library.
The type of the argument says what it must be, and how it is typed at a terminal: :class:`MustBe` and :class:`Typed`. Types that several
functions share are here. :func:`checked` checks arguments, and :func:`arguments_of` describes them to the command line.

The command line imports this module for every help text, so heavy modules are imported inside functions.
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

from simulator.base.errors import InputError, what_to_install

ParamsT = ParamSpec("ParamsT")
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True)
class MustBe:
    """The rule of an argument.

    Attributes
    ----------
    what
        Text after "must be": ``"a whole number; 0 uses all cores"``. A choice of words needs none.
    least, most
        Limits of a number.
    holds
        Check of a value, where its type does not suffice.
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
    """The form of an argument on the command line, where its name and type do not determine it.

    Attributes
    ----------
    name
        Name of the option, ``"--over"``; default: that of the argument.
    short
        One-letter name, ``"-o"``.
    metavar
        Placeholder of its value in the help.
    place
        Whether it is positional instead of an option.
    reads
        Format of its text, one of :data:`paceline.cli.options.READERS`.
    example
        Valid text.
    text
        Description, where the function's docstring has none.
    """

    name: str = ""
    short: str = ""
    metavar: str = ""
    place: bool = False
    reads: str = ""
    example: str = ""
    text: str = ""


NOT_TYPED = Typed(reads="nothing")
"""Marks arguments that only a program gives."""


def instance_of(module: str, name: str) -> Any:
    """Return the type of instances of a class whose module is imported only by those who make one."""
    return Annotated[Any, MustBe(f"a {name}", holds=lambda value: isinstance(value, getattr(sys.modules.get(module), name, ())))]


if TYPE_CHECKING:
    from calibrate.tf_config import TfCluster
    from calibrate.traces.profiles import Profiled
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
    Profiled = instance_of("calibrate.traces.profiles", "Profiled")
    Result = instance_of("simulator.results.results", "Result")
    Scenario = instance_of("simulator.scenario", "Scenario")
    Spec = instance_of("simulator.base.spec", "Spec")
    TfCluster = instance_of("calibrate.tf_config", "TfCluster")

Source: TypeAlias = Annotated[
    str | Path | Mapping[str, Any] | Scenario,
    MustBe("a file, a name such as 'ring', nested tables or a loaded scenario"),
    Typed(place=True, metavar="SCENARIO.toml"),
]
"""A scenario: a file, the name of a built-in one, nested tables as in a file, or a loaded scenario."""

Settings: TypeAlias = Annotated[
    Mapping[str, Any] | Pairs, MustBe("keys with values, such as {'strategy.workers': 8}"), Typed("--set", reads="settings")
]
"""Values by dotted key, such as ``{"strategy.workers": 8, "cluster.inter_node.bandwidth": "10 Gbit/s"}``; None unsets a key."""

Over: TypeAlias = Annotated[
    Mapping[str, Values],
    MustBe("keys with lists of values or ranges, such as {'strategy.workers': [1, 2, 4]} or {'strategy.workers': '1..8'}"),
    Typed(reads="over"),
]
"""Values to try, by dotted key. A range such as ``"1..8"`` means its whole numbers; None means that the key is left out."""

Prices: TypeAlias = Annotated[
    str | float | Mapping[str, str | float | Price] | None,
    MustBe("prices by the name of a cluster, such as {'ethernet-1g': '0.40/h'}, or one for all other clusters, such as '0.40/h'"),
    Typed("--price", reads="prices"),
]
"""Prices of a node per hour, by cluster, such as ``{"ethernet-1g": "0.40/h"}``; a single price, or ``"*"``, is for all others."""

TestbedSource: TypeAlias = Annotated[
    str | Path | Mapping[str, Any] | Spec | None, MustBe("a file, or nested tables"), Typed(place=True, metavar="SETTING.toml")
]
"""A setting of the testbed: a file, nested tables as in a file, a loaded setting, or None for the default."""

Seed: TypeAlias = Annotated[int, MustBe("a whole number from 0", least=0)]
"""Seed of everything random; equal seeds give equal results."""

Answer: TypeAlias = Annotated[Result, MustBe("a result, as `paceline.simulate` returns it")]
"""The result of one scenario."""

File: TypeAlias = Annotated[str | Path, MustBe("the path of a file")]
"""A file to read or write."""

Folder: TypeAlias = Annotated[str | Path, MustBe("the path of a folder")]
"""A folder to read files from or write them into."""

Force: TypeAlias = Annotated[bool, Typed(short="-f")]
"""Whether to replace files that something else wrote."""

Text: TypeAlias = Annotated[str, MustBe("text")]
"""Any text."""

Command: TypeAlias = Annotated[str, MustBe("text"), NOT_TYPED]
"""The command that makes a file, for its provenance; empty: the call of the library."""

Count: TypeAlias = Annotated[int, MustBe("a whole number")]
"""A count."""

Amount: TypeAlias = Annotated[float, MustBe("a number, such as 1.28e6"), Typed(metavar="N", reads="amount")]
"""A number that is often large, such as a number of samples."""

Quantity: TypeAlias = str | float
"""Text with a unit, or a number in SI units; each argument has its own rule."""

Counts: TypeAlias = Annotated[
    str | Sequence[int] | None, MustBe("a range such as '1..64', or a list of whole numbers"), Typed(metavar="RANGE")
]
"""Numbers to choose from: a range ``"1..64"`` to search, or a list of which every value is used."""

Names: TypeAlias = Annotated[Sequence[str], MustBe("a list of names"), Typed(reads="names")]
"""Several names."""

Rates: TypeAlias = Annotated[
    tuple[float, ...] | list[float],
    MustBe("a list of numbers above 0, such as [1, 0.3]", holds=lambda rates: bool(rates) and all(0 < rate < math.inf for rate in rates)),
    Typed("--rate", reads="decimals", example="1,0.3,0.1"),
]
"""Factors of the optimizer's learning rate; the best is used."""

Runs: TypeAlias = Annotated[int, MustBe("a whole number from 2 to 1000", least=2, most=1000), Typed(metavar="N")]
"""Number of replayed runs of each strategy."""

Problem: TypeAlias = Annotated[str, MustBe("the name of a problem, or text such as 'my_model.py:build'"), Typed(metavar="PROBLEM")]
"""A model with its data: a built-in name, or ``FILE.py:FUNCTION``."""

Aim: TypeAlias = Annotated[str, MustBe("a metric with a value, such as 'accuracy=0.95'"), Typed(metavar="METRIC=VALUE")]
"""Metric and value to reach."""

Numbers: TypeAlias = Annotated[Sequence[int], MustBe("a list of whole numbers"), Typed(reads="numbers", example="16,32,64")]
"""Several whole numbers."""

Jobs: TypeAlias = Annotated[int, MustBe("a whole number from 0; 0 uses all cores", least=0), Typed(metavar="N")]
"""Processes, or concurrent tasks; 0 uses all cores, of the cluster if one is used."""

Backend: TypeAlias = Literal["local", "dask", "ray"]
"""Where simulations run: processes of this machine, or a Dask or Ray cluster."""

Carrying: TypeAlias = Literal["grpc", "gloo"]
"""Transport between processes: TensorFlow's gRPC, or PyTorch's gloo."""

KerasBackend: TypeAlias = Annotated[str | None, MustBe("text such as 'jax'"), Typed(metavar="tensorflow|jax|torch")]
"""Backend of a Keras model."""

Scheduler: TypeAlias = Annotated[str | None, MustBe("the address of a cluster, such as 'tcp://127.0.0.1:8786'"), Typed(metavar="ADDRESS")]
"""Address of a Dask or Ray cluster."""

Progress: TypeAlias = Annotated[Callable[[int, int], None] | None, MustBe("a function"), NOT_TYPED]
"""Called with finished and total work."""

Steps: TypeAlias = Annotated[Callable[[float, int], None] | None, MustBe("a function"), NOT_TYPED]
"""Called with finished work, the last item possibly in part, and total work."""

Asking: TypeAlias = Annotated[Callable[[Lengthy], None] | None, MustBe("a function"), NOT_TYPED]
"""Called before lengthy work; raises to prevent it."""

Stages: TypeAlias = Annotated[Callable[[int, int, str], None] | None, MustBe("a function"), NOT_TYPED]
"""Called with finished work, total work, and what is counted; counting starts again with each stage."""

Remarks: TypeAlias = Annotated[Callable[[str], None] | None, MustBe("a function"), NOT_TYPED]
"""Called with each remark during a measurement, such as its expected duration."""

Observing: TypeAlias = Annotated[Observer | None, MustBe("an object with a method `record`"), NOT_TYPED]
"""Receives every record of the first replication."""

Thresholds: TypeAlias = Annotated[
    Mapping[str, str | float] | None, MustBe("thresholds with their values, such as {'max_median': '2%', 'min_coverage': 0.8}"), NOT_TYPED
]
"""Thresholds of a validation, by name: ``max_median``, ``max_worst``, ``max_staleness``, ``max_distance``, ``min_coverage``."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
Name: TypeAlias = Annotated[
    str,
    MustBe(
        "letters, digits, '.', '_', '+' or '-', beginning with a letter or digit, such as my-model",
        holds=lambda text: _NAME.fullmatch(text) is not None,
    ),
    Typed(metavar="NAME"),
]
"""Name of a workload or cluster, and of its files."""

Function: TypeAlias = Annotated[str | None, MustBe("text such as 'my_model.py:build'"), Typed(metavar="FILE.py:FUNCTION")]
"""A function in a Python file, ``FILE.py:FUNCTION``."""

Precision: TypeAlias = Annotated[Literal["float32", "mixed_float16", "mixed_bfloat16", "bfloat16"], Typed(reads="text")]
"""Precision of the numbers in a step."""

Python: TypeAlias = Annotated[str | None, MustBe("the path of a Python"), Typed(metavar="PATH")]
"""A Python with TensorFlow; None: the running one."""

Timeout: TypeAlias = Annotated[
    float,
    MustBe("a number of seconds above 0", holds=lambda seconds: 0.0 < seconds < math.inf),
    Typed("--timeout", metavar="SECONDS"),
]
"""Timeout in seconds."""

Address: TypeAlias = Annotated[str, MustBe("text such as '10.0.0.2:2222'"), Typed(metavar="HOST:PORT")]
"""``HOST:PORT``."""

ProfilePlaces: TypeAlias = Annotated[
    Mapping[int, str | Path | Sequence[str | Path]],
    MustBe("log directories by the samples of a step, such as {16: 'logs16', 32: 'logs32'}"),
]
"""Profiles by samples per step: a TensorBoard log directory, the folder of one run, an ``.xplane.pb`` file, or a list of these."""

Profiles: TypeAlias = Annotated[
    ProfilePlaces | Profiled,
    MustBe("log directories by the samples of a step, such as {16: 'logs16', 32: 'logs32'}, or profiles already read"),
]
"""Profiles: their paths, or the result of :func:`paceline.read_profiles`."""

TfConfig: TypeAlias = Annotated[str | TfCluster, MustBe("a file, JSON, 'env', or a cluster already read")]
"""A TF_CONFIG or ClusterSpec: a file, the JSON itself, ``env`` for the environment variable, or one already read."""


Format: TypeAlias = Literal["scenario", "workload", "cluster", "device", "input", "faults", "result", "testbed-setting"]
"""Formats of files."""


# -- what a function takes, told --------------------------------------------------------------


@dataclass(frozen=True)
class Argument:
    """An argument of a function, described for the command line.

    Attributes
    ----------
    kind
        Its type, without annotations and without None.
    default
        Its default; :data:`inspect.Parameter.empty` if it is required.
    must
        Its rule.
    typed
        Its form on the command line.
    text
        Its meaning: the first paragraph of its description.
    """

    kind: Any
    default: Any
    must: MustBe
    typed: Typed
    text: str


def arguments_of(function: Callable[..., Any]) -> dict[str, Argument]:
    """Return the arguments of a function by name."""
    arguments = {}
    kinds = _kinds_of(function)
    for name, parameter in inspect.signature(function).parameters.items():
        notes, kind = _noted(kinds[name])
        typed = Typed(**{key: value for note in notes if isinstance(note, Typed) for key, value in vars(note).items() if value})
        must = next((note for note in reversed(notes) if isinstance(note, MustBe)), MustBe(""))
        arguments[name] = Argument(kind, parameter.default, must, typed, _described(function, name) or typed.text)
    return arguments


def _kinds_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of a function's arguments. Its return type may be imported for type checkers only."""
    bare = inspect.unwrap(function)
    hints = {name: kind for name, kind in bare.__annotations__.items() if name != "return"}
    return get_type_hints(type(bare.__name__, (), {"__annotations__": hints}), bare.__globals__, include_extras=True)


def _noted(kind: Any) -> tuple[list[Any], Any]:
    """Return the annotations of a type, the most specific last, and the type itself without None."""
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
    """Return the first paragraph on an argument in a docstring; "As for" refers to another function's."""
    section = _PARAMETERS.search(inspect.getdoc(function) or "")
    entries = _ENTRY.findall(f"{section[1]}\n" if section else "")
    first = next((" ".join(text.strip().split("\n\n")[0].split()) for names, text in entries if name in names.split(", ")), "")
    if (elsewhere := _ELSEWHERE.match(first)) is None:
        return first
    return f"{_described(getattr(import_module('paceline'), elsewhere[1]), name)} {first[elsewhere.end() :]}".strip()


# -- checks of given arguments -----------------------------------------------------------------


def checked(function: Callable[ParamsT, AnswerT]) -> Callable[ParamsT, AnswerT]:
    """Return the function with its arguments checked against their types.

    Numbers and arrays of numpy are converted to Python's own. Results, scenarios and other models are passed through, neither copied nor
    validated again.

    Raises
    ------
    InputError
        By the returned function: an argument is wrong.

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
    simulator.base.errors.InputError: `jobs`: 'four' must be a whole number from 0; 0 uses all cores
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
        try:
            return function(*positional, **by_name)
        except ModuleNotFoundError as error:
            raise what_to_install(error) from None

    shown = [each.replace(annotation=_without_notes(each.annotation)) for each in signature.parameters.values()]
    call.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return call


class _WithoutNotes(ast.NodeTransformer):
    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        noted = isinstance(node.value, ast.Name) and node.value.id == "Annotated" and isinstance(node.slice, ast.Tuple)
        return self.visit(node.slice.elts[0]) if noted else node  # type: ignore[attr-defined]


def _without_notes(annotation: Any) -> Any:
    """Return a type that :func:`help` shows by its name."""
    if not isinstance(annotation, str) or "Annotated" not in annotation:
        return annotation
    return ast.unparse(_WithoutNotes().visit(ast.parse(annotation, mode="eval")))


def refusal(name: str, value: object, rule: str) -> InputError:
    """Return the error for a value that breaks a rule, which begins with "must be"."""
    from simulator.base.validation_errors import quoted

    return InputError(f"`{name}`: {quoted(value)} {rule}")


def _must_be(kind: Any, value: object) -> str:
    """Return the rule of a type, with the nearest word of a choice; empty where the type has no rule."""
    from simulator.base.text import did_you_mean, listed

    notes, bare = _noted(kind)
    if rules := [note.what for note in notes if isinstance(note, MustBe)]:
        return f"must be {rules[-1]}"
    if get_origin(bare) is Literal:
        hint = did_you_mean(value, get_args(bare), written="'{}'") if isinstance(value, str) else ""
        return f"must be {listed([repr(choice) for choice in get_args(bare)], 'or')}{f'; {hint}' if hint else ''}"
    return ""


def output_of(out: str | Path | None, kind: OutputKind, *, force: bool) -> Output | None:
    """Return a file to write, if any, checked before the work; errors as in :class:`simulator.base.files.Output`."""
    from simulator.base.files import Output

    return None if out is None else Output(Path(out), kind, force=force)


def path_of(path: str | Path | None) -> Path | None:
    """Return a path from text or a path; None without one."""
    return None if path is None else Path(path)


def file_of(scenario: Any) -> Path | None:
    """Return the file that a scenario is read from, if any."""
    from simulator.base.catalog import scenario_file

    return scenario_file(scenario) if isinstance(scenario, (str, Path)) else None


def writable(out: str | Path | None, scenario: Any) -> Path | None:
    """Return a results file to write, if any.

    Raises
    ------
    InputError
        The file cannot be written, is the scenario's file, or has the extension of another format.
    """
    from simulator.base.files import check_ending, check_writable

    if out is None:
        return None
    path = check_writable(Path(out), file_of(scenario))
    check_ending(path, ".ndjson", "`out`: ", ", from which `paceline report` makes pages, and with --tables tables (CSV)")
    return path
