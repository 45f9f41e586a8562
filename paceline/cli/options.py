"""Options of commands, made of what functions take; and their arguments, made of what is typed.

:func:`calling` names functions of ``paceline.api``. Each of their arguments is an option of the command, and so is each parameter of the
command's own function: name, type and default as in the signature, the help as the docstring has it. An option that has no help is hidden.
How text is read is at home here: the keys of :data:`READERS` are the words of ``Typed.reads``, so change both.
Every help text imports this file, so import what is heavy inside functions.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args, get_origin

import typer

from paceline.arguments import Amount, Argument, Typed, arguments_of
from paceline.cli.help import HELP_ALL, show_all
from paceline.ranges import numbers_in
from simulator.base.errors import InputError, ScenarioError

CommandT = TypeVar("CommandT", bound=Callable[..., None])

Yes: TypeAlias = Annotated[bool, Typed(short="-y", text="Skip the confirmation.")]
"""Whether to go on without a question."""

Require: TypeAlias = Annotated[
    list[str] | None,
    Typed(
        metavar="'COLUMN>=VALUE'",
        text="Exit 3 unless this holds, such as 'efficiency>=70%' or 'job_time_s<=12 h'. The mean of an estimate is compared; "
        "'scaling_efficiency_low>=70%' compares the low end of its interval. Repeatable.",
    ),
]
"""What a result must be."""


def _keys(
    *,
    replications: Annotated[int | None, Typed(metavar="R")] = None,
    epochs: Amount | None = None,
    samples: Amount | None = None,
    dataset_size: Amount | None = None,
) -> None:
    """Stand for the keys of a scenario that have options of their own. All but replications are keys of [job].

    Parameters
    ----------
    replications
        Replications of each scenario. Short for --set run.replications=R.
    epochs
        Predict a whole job of N epochs; needs --dataset-size. Short for --set job.epochs=N.
    samples
        Predict a whole job of N samples. Replaces --epochs. Short for --set job.samples=N.
    dataset_size
        Samples in the data set, such as 1.28e6: one epoch. Short for --set job.dataset_size=N.
    """


_HelpAll: TypeAlias = Annotated[
    bool, typer.Option(HELP_ALL, is_eager=True, callback=show_all, help="Show every option with all that it means, and exit.")
]
_METAVARS = {bool: None, int: "N", float: "X", Path: "PATH"}
"""What stands for a value of a type in the help."""
_DEEPEST = 20
"""Parts that a dotted key has at most."""
_LONGEST_COUNT = 6
"""Digits of a number of workers."""
_EVERY = "*"
"""Stands for every cluster without a price, as the library has it."""


# -- from functions to options -------------------------------------------------------------------------


@dataclass(frozen=True)
class Calls:
    """What a command calls, and what is particular to its options.

    Attributes
    ----------
    functions
        Of the library, by name. What several take is one option, as the first has it.
    keys
        Keys of the scenario that have options of their own, parameters of :func:`_keys`.
    without
        Arguments that are no options.
    optional
        Arguments that the library needs and the command does not, or not always.
    left_out
        Defaults, in words, where they differ from those of the library.
    common
        Options that ``--help`` shows, by heading; ``--help-all`` shows the others too. Empty: there are few, and it shows all.
    only
        By functions, the option that what only they take needs: ``{"refit": "With --refit"}``.
    hints
        More on an argument, by its name.
    """

    functions: tuple[str, ...]
    keys: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    common: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    only: Mapping[str, str] = field(default_factory=dict)
    hints: Mapping[str, str] = field(default_factory=dict)


def calling(*functions: str, **particulars: Any) -> Callable[[CommandT], CommandT]:
    """Mark a command as one that calls functions of the library, with the fields of :class:`Calls`; its ``given`` gets their arguments."""

    def mark(command: CommandT) -> CommandT:
        command.calls = Calls(functions, **particulars)  # type: ignore[attr-defined]
        return command

    return mark


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer knows one: a function with a parameter of typer's for each option; one that is not marked is one already."""
    calls: Calls | None = getattr(command, "calls", None)
    if calls is None:
        return command
    own = arguments_of(command)
    takes_given = own.pop("given", None) is not None
    arguments = _arguments(calls, own)

    def run(context: typer.Context, **typed: Any) -> None:
        given = [Given(context, arguments, typed, calls.keys)] if takes_given else []
        command(*given, **{name: typed[name] for name in own})

    order = [name for names in calls.common.values() for name in names]
    every = {**arguments, **own}
    every = {name: every[name] for name in (*(name for name in every if name not in order), *order)}
    parameters = [_parameter(name, argument, calls) for name, argument in every.items()]
    if calls.common:
        parameters.append(inspect.Parameter("help_all", inspect.Parameter.KEYWORD_ONLY, annotation=_HelpAll, default=False))
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    run.__annotations__ = {}
    run.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
    return run


def _arguments(calls: Calls, own: Collection[str]) -> dict[str, Argument]:
    """Arguments that a command takes for the library, by name: those of its functions, and behind ``--set`` keys that have options."""
    from paceline import api

    arguments: dict[str, Argument] = {}
    for function in calls.functions:
        for name, argument in arguments_of(getattr(api, function)).items():
            if name in arguments or name in own or name in calls.without or argument.typed.reads == "nothing":
                continue
            text = argument.text
            if f"--{name}" not in calls.only.get(function, f"--{name}"):
                within = text[:1].lower() + text[1:] if re.match(r"[A-Z](?:[a-z]| )", text) else text
                text = f"{calls.only[function]}: {within}"
            arguments[name] = replace(argument, text=text)
            if name == "settings":
                of_keys = arguments_of(_keys)
                arguments |= {key: of_keys[key] for key in calls.keys}
    return arguments


def _parameter(name: str, argument: Argument, calls: Calls) -> inspect.Parameter:
    """An argument as a parameter of a function that typer knows."""
    typed, default = argument.typed, argument.default
    reader, empty = READERS.get(typed.reads), inspect.Parameter.empty
    kind = _kind_typed(argument.kind) if reader is None else reader.kind
    needed = default is empty and name not in calls.optional
    listed = ",".join(map(str, default)) if isinstance(default, tuple) else ""
    if default is empty or (reader is not None and not isinstance(default, str)):
        default = None
    info = typer.Argument() if typed.place else typer.Option(typed.name or f"--{name.rstrip('_').replace('_', '-')}")
    if typed.short:
        info.param_decls = (typed.short,)
    info.help = " ".join(filter(None, (argument.text, reader and reader.hint, calls.hints.get(name))))
    info.hidden = not info.help
    info.show_default = calls.left_out.get(name) or listed or not (default is None or default is False or default == "")
    usual = "|".join(get_args(kind)) if get_origin(kind) is Literal else _METAVARS.get(kind, "TEXT")
    info.metavar = typed.metavar or (reader.metavar if reader else "") or usual
    info.rich_help_panel = next((panel for panel, names in calls.common.items() if name in names), None)
    if kind is int:
        info.min, info.max = argument.must.least, argument.must.most
    if typed.reads == "amount":
        info.parser = number_typed
    bare: Any = kind if needed or default is not None else kind | None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[bare, info], default=empty if needed else default)


def _kind_typed(kind: Any) -> Any:
    """Type of what is typed for an argument of this type: a path or text, where those are among what the library takes."""
    if kind in (bool, int, float, Path) or get_origin(kind) in (Literal, list):
        return kind
    return Path if Path in get_args(kind) else str


class Given(dict[str, Any]):
    """What was typed for the library, as its functions take it: ``api.plan(**given)``. What was not typed, they know.

    Parameters
    ----------
    context
        Of the command, which knows what was typed.
    arguments
        Of the library.
    typed
        What typer has made of the command line, by name.
    keys
        Those of ``arguments`` that are keys of the scenario: they become settings.
    """

    def __init__(
        self, context: typer.Context, arguments: Mapping[str, Argument], typed: Mapping[str, Any], keys: Collection[str] = ()
    ) -> None:
        super().__init__()
        self._context, self._typed = context, typed
        more = {key: typed[key] for key in keys if typed[key] is not None}
        for name, argument in arguments.items():
            value, reads, example = typed[name], argument.typed.reads, argument.typed.example
            if name == "settings":
                if value or more:
                    self[name] = settings_of(value, **more)
            elif name not in keys and value not in (None, []):
                self[name] = READERS[reads].read(value, self.option(name), example) if reads else value

    def of(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Return what one of several functions takes of it."""
        return {name: self[name] for name in inspect.signature(function).parameters if name in self}

    def text(self, name: str) -> Any:
        """Return what was typed, as it is; None where it was not."""
        return self._typed[name]

    def option(self, name: str) -> str:
        """How a parameter, by its name in Python, is typed; an argument is known by what stands for it."""
        parameter = next(each for each in self._context.command.params if each.name == name)
        return str(next((word for word in parameter.opts if word.startswith("--")), parameter.metavar or name))

    def is_typed(self, name: str) -> bool:
        """Return whether a parameter, by its name in Python, was typed."""
        source = self._context.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    def needs(self, option: str, names: Collection[str]) -> None:
        """Refuse options that have no effect without ``option``, which is not given.

        Parameters
        ----------
        option
            What they go with, as it is typed.
        names
            Parameters of the command, by their names in Python.

        Raises
        ------
        InputError
            One of them is typed.
        """
        if stray := self._first(names):
            raise InputError(f"{stray}: goes with {option}; add that, or leave {stray} out")

    def useless(self, beside: str, names: Collection[str]) -> None:
        """Refuse options that have no effect with another, which is given; parameters and errors as for :meth:`needs`."""
        if stray := self._first(names):
            raise InputError(f"{stray}: has no effect with {beside}; leave one of them out")

    def _first(self, names: Collection[str]) -> str | None:
        """The first of the parameters ``names`` that was typed, as it is typed."""
        typed = (str(each.name) for each in self._context.command.params if each.name in names)
        return next((self.option(name) for name in typed if self.is_typed(name)), None)


def command_line(*program: str) -> str:
    """This command, as it can be typed again; ``program``: the words that start it, where these are not ``paceline``."""
    return shlex.join([*(program or ("paceline",)), *sys.argv[1:]])


# -- from text to arguments ---------------------------------------------------------------------------


def settings_of(texts: Iterable[str] | None, **more: Any) -> list[tuple[str, Any]]:
    """``--set KEY=VALUE``, as often as given, and settings that have options of their own, where these are given.

    >>> settings_of(["strategy.workers=8"], dataset_size=1000.0)
    [('strategy.workers', 8), ('job.dataset_size', 1000.0)]

    Parameters
    ----------
    texts
        As typed.
    more
        Values of options that stand for a key (:func:`_keys`).

    Raises
    ------
    ScenarioError
        One cannot be read, or is given both ways.
    """
    settings = [parse_setting(text) for text in texts or ()]
    for name, value in more.items():
        key = f"{'run' if name == 'replications' else 'job'}.{name}"
        if key in dict(settings):
            raise ScenarioError(f"--{name.replace('_', '-')} and --set {key}: are the same; leave one of them out")
        settings.append((key, value))
    return settings


def over_of(texts: Iterable[str], *_: str) -> dict[str, list[Any]]:
    """``--over KEY=V1,V2,...``, as often as given.

    Raises
    ------
    ScenarioError
        One cannot be read, or a key is given twice.
    """
    axes: dict[str, list[Any]] = {}
    for key, values in map(parse_axis, texts):
        if key in axes:
            raise ScenarioError(f"--over {key[:80]}: is given twice; write all its values into one --over, separated by commas")
        axes[key] = values
    return axes


def prices_of(texts: Iterable[str], *_: str) -> dict[str, str]:
    """``--price [NAME=]PRICE``, as often as given.

    >>> prices_of(["lab=0.40/h", "0.20/h"])
    {'lab': '0.40/h', '*': '0.20/h'}

    Raises
    ------
    InputError
        There is no name before ``=``, or a name is given twice.
    """
    from simulator.base.validation_errors import quoted

    prices: dict[str, str] = {}
    for text in texts:
        name, equals, price = text.rpartition("=")
        name = name.strip()
        if equals and not name:
            raise InputError(f"--price {quoted(text)}: a name stands before '=', such as --price ethernet-1g=0.40/h")
        if (name or _EVERY) in prices:
            whose = f"the price of {name}" if name else "a price for every cluster without one"
            raise InputError(f"--price {quoted(text)}: {whose} is given twice; keep one of them")
        prices[name or _EVERY] = price
    return prices


def by_workers_of(texts: Iterable[str], option: str, *_: str) -> dict[int | str, str]:
    """``N=VALUE``, as often as given, or several separated by commas; N is a number, or one with its unit, such as ``16 devices``.

    >>> by_workers_of(["1=60ms,8=170ms"], "--step")
    {1: '60ms', 8: '170ms'}

    Raises
    ------
    InputError
        There is no number of workers, or one is given twice.
    """
    values: dict[int | str, str] = {}
    for part in ",".join(texts).split(","):
        count, equals, value = part.partition("=")
        if not equals or not count.strip():
            raise InputError(f"{option} {part[:80]!r}: must be N=VALUE with a number of workers, such as {option} 8=170ms")
        key = _count_of(count)
        if key in values:
            raise InputError(f"{option} {key}: is given twice; keep one, or put repeats into a table of workers and throughput")
        values[key] = value.strip()
    return values


def run_files_of(texts: Iterable[str], *_: str) -> list[Any]:
    """``[N=]FILE``, as often as given; a file that is there under the whole name is that.

    >>> run_files_of(["one.ndjson", "8=eight.csv", "16 devices=both.csv"])
    [PosixPath('one.ndjson'), (8, PosixPath('eight.csv')), ('16 devices', PosixPath('both.csv'))]
    """
    files: list[Any] = []
    for text in texts:
        count, equals, file = text.partition("=")
        has_count = equals and count.strip()[:1].isdigit() and not Path(text).exists()
        files.append((_count_of(count), Path(file)) if has_count else Path(text))
    return files


def _count_of(text: str) -> int | str:
    """A number of workers; one with a unit stays text."""
    count = text.strip()
    is_number = count.isascii() and count.isdigit() and len(count) <= _LONGEST_COUNT and int(count) > 0
    return int(count) if is_number else count


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


def decimals_of(text: str, option: str, example: str) -> list[float]:
    """Numbers separated by commas; raises InputError where one is no number."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} {text[:80]!r}: must be numbers separated by commas, such as {example}") from None


def names_of(text: str, option: str, *_: str) -> list[str]:
    """Names separated by commas, each once; raises InputError where one is empty."""
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
        return key, _value_of(raw, f"--set {key}=")
    except ScenarioError as error:
        raise ScenarioError(f"--set {key}={error}") from None


def parse_axis(text: str) -> tuple[str, list[Any]]:
    """Read ``key=v1,v2,...``, or a range of whole numbers; each value is TOML where it parses as TOML, else text; None where the first is
    empty.

    >>> parse_axis("strategy.workers=1..3,8")
    ('strategy.workers', [1, 2, 3, 8])
    >>> parse_axis("strategy.bound=,4")
    ('strategy.bound', [None, 4])

    Raises
    ------
    ScenarioError
        There is no key, no value, or an empty one behind the first.
    """
    key, equals, raw = text.partition("=")
    key = key.strip()
    if not equals or not _is_dotted(key):
        raise ScenarioError(f"--over {text[:80]!r}: must be key=v1,v2,..., such as strategy.workers=1,2,4,8 or strategy.workers=1..8")
    values: list[Any] | None = numbers_in(raw, where := f"--over {key}=")
    if values is None:
        try:
            values = _toml(f"[{raw}]")
            if values is None:
                values = [_value_of(part, where) for part in raw.split(",")]
            else:
                for part, value in zip(raw.split(","), values, strict=False):
                    _warn_of_thousands(part, value, where)
        except ScenarioError as error:
            raise ScenarioError(f"--over {key}: {error}") from None
    if values in ([], [None]):
        raise ScenarioError(f"--over {text[:80]!r}: has no values; write {key}=v1,v2,...")
    if None in values[1:]:
        raise ScenarioError(
            f"--over {text[:80]!r}: has nothing between two commas; for the default of {key} begin with a comma: {key}=,v1,v2"
        )
    return key, values


def _is_dotted(text: str) -> bool:
    """Return whether a text names a key, such as ``cluster.inter_node.latency``."""
    parts = text.split(".")
    return all(part.strip() for part in parts) and len(parts) <= _DEEPEST


def _value_of(raw: str, where: str) -> Any:
    """TOML where it parses as TOML, else text; None where there is nothing."""
    value = _toml(raw)
    _warn_of_thousands(raw, value, where)
    return raw.strip() or None if value is None else value


def _toml(raw: str) -> Any:
    """The value that a text is in TOML; None where it is none."""
    from simulator.base.files import exact

    try:
        table = tomllib.loads(f"value = {raw}\n", parse_float=exact)
    except (ValueError, RecursionError):
        return None
    return table["value"] if len(table) == 1 else None


def _warn_of_thousands(raw: str, value: object, where: str) -> None:
    """Warn where a number that is typed may mean thousands: a file is TOML, which knows decimals alone, a command line need not be."""
    if isinstance(value, float):
        from simulator.base.units import warn_of_thousands

        warn_of_thousands(raw.strip(), where)


def number_typed(text: str) -> float:
    """Return what an option for a number of samples, epochs or parameters is given, as typer reads it.

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


def _as_it_is(value: Any, *_: str) -> Any:
    return value


class Reader(NamedTuple):
    """How the text of an option becomes an argument.

    Attributes
    ----------
    kind
        What typer makes of what is typed.
    read
        Makes an argument of that, given how the option is typed and an example.
    metavar
        What stands for the value in the help.
    hint
        What the help adds to the meaning of the argument.
    """

    kind: Any
    read: Callable[..., Any] = _as_it_is
    metavar: str = ""
    hint: str = ""


READERS: Mapping[str, Reader] = {
    "settings": Reader(list[str], settings_of, "KEY=VALUE", "KEY= without a value restores its default. Repeatable."),
    "over": Reader(list[str], over_of, "KEY=V1,V2,...", "Such as strategy.workers=1,4,16 or strategy.workers=1..8. Repeatable."),
    "prices": Reader(list[str], prices_of, "[NAME=]PRICE", "Repeatable."),
    "by workers": Reader(list[str], by_workers_of, "N=VALUE", "Repeatable."),
    "run files": Reader(list[str], run_files_of, "[N=]FILE", "Repeatable."),
    "names": Reader(str, names_of, "A,B,..."),
    "numbers": Reader(str, numbers_of, "N,N,..."),
    "decimals": Reader(str, decimals_of, "X,Y,..."),
    "amount": Reader(float),
    "text": Reader(str),
    "files": Reader(list[Path], metavar="FILE"),
}
"""By what :attr:`paceline.arguments.Typed.reads` says."""


# -- messages of the library, in options ---------------------------------------------------------

_ARGUMENT = re.compile(r"`([a-z]\w*)(?:=([^`]+))?`(?:: (?='))?")
"""An argument in a message of the library, alone or with a value."""
running: list[Any] = []
"""Parameters of the command that runs."""


def in_options(text: str, parameters: Iterable[Any] | None = None) -> str:
    """A message of the library, in the words of the command that runs: an argument as the option that gives it.

    The library names an argument in backticks, alone (``out``) or with a value (``force=True``);
    what is no argument of the command stays as it is.
    """
    options = {parameter.name: parameter for parameter in (running if parameters is None else parameters)}

    def option(argument: re.Match[str]) -> str:
        parameter = options.get(argument[1])
        return argument[0] if parameter is None else _as_typed(parameter, argument[2]) + (" " if argument[0].endswith(" ") else "")

    return _ARGUMENT.sub(option, text)


def _as_typed(parameter: Any, value: str | None) -> str:
    """An option, or the place of an argument, as one types it."""
    name = next((name for name in parameter.opts if name.startswith("--")), None) or parameter.metavar or parameter.name.upper()
    if value is None:
        return str(name)
    try:
        argument = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return f"{name} {value}"
    if isinstance(argument, bool):
        return str(name if argument else (parameter.secondary_opts or [name])[0])
    if isinstance(argument, (int, float)):
        return f"{name} {value}"  # 1.28e6 stays as it is written

    def word(value: object) -> str:
        return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)

    words = [f"{key}={word(each)}" for key, each in argument.items()] if isinstance(argument, dict) else [word(argument)]
    return " ".join(f"{name} {shlex.quote(each)}" for each in words)
