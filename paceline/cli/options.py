"""Options of commands, made from the signatures of functions; and arguments of functions, made from the command line.

:func:`calling` names functions of ``paceline.api``. Each of their arguments becomes an option, as does each parameter of the command's own
function. Name, type and default come from the signature, the help from the docstring. An option without help is hidden.
:data:`READERS` defines how text is read; its keys are the values of ``Typed.reads``, so change both together.
Every help text imports this module: import heavy modules inside functions.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import sys
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
"""Whether to continue without asking."""

Require: TypeAlias = Annotated[
    list[str] | None,
    Typed(
        metavar="'COLUMN>=VALUE'",
        text="Exit 3 unless this holds, such as 'efficiency>=70%' or 'job_time_s<=12 h'. It compares the mean; "
        "'scaling_efficiency_low>=70%' compares the low end of its interval. Repeatable.",
    ),
]
"""Requirement on a result."""


def _keys(
    *,
    replications: Annotated[int | None, Typed(metavar="R")] = None,
    epochs: Amount | None = None,
    samples: Amount | None = None,
    tokens: Amount | None = None,
    dataset_size: Amount | None = None,
) -> None:
    """Describe the keys of a scenario that have their own options. All but replications are keys of [job].

    Parameters
    ----------
    replications
        Replications of each scenario. Short for --set run.replications=R.
    epochs
        Predict a whole job of N epochs; needs --dataset-size. Short for --set job.epochs=N.
    samples
        Predict a whole job of N samples. Replaces --epochs. Short for --set job.samples=N.
    tokens
        Predict a whole job of N tokens, such as 300e9, of a workload with sequences. Short for --set job.tokens=N.
    dataset_size
        Samples in the data set, such as 1.28e6: one epoch. Short for --set job.dataset_size=N.
    """


_HelpAll: TypeAlias = Annotated[bool, typer.Option(HELP_ALL, is_eager=True, callback=show_all, help="Show every option in full, and exit.")]
_SameHelp: TypeAlias = Annotated[bool, typer.Option(HELP_ALL, is_eager=True, callback=show_all, hidden=True)]
"""Option of a command whose ``--help`` shows everything."""
_METAVARS = {bool: None, int: "N", float: "X", Path: "PATH"}
"""Placeholders of values in the help, by type."""
_DEEPEST = 20
"""Most parts of a dotted key."""
_LONGEST_COUNT = 6
"""Most digits of a number of workers."""
_EVERY = "*"
"""Name, in the library, of every cluster without its own price."""


# -- from functions to options -------------------------------------------------------------------------


@dataclass(frozen=True)
class Calls:
    """The functions that a command calls, and the particulars of its options.

    Attributes
    ----------
    functions
        Names of functions of the library. An argument of several is one option, described by the first.
    keys
        Keys of the scenario with their own options, parameters of :func:`_keys`.
    without
        Arguments that are not options.
    optional
        Arguments that the library requires but the command does not.
    left_out
        Defaults, in words, that differ from the library's.
    common
        Options that ``--help`` shows, by heading; ``--help-all`` shows the others too. Empty: ``--help`` shows all.
    only
        By function, the option that its own arguments require: ``{"refit": "With --refit"}``.
    hints
        Additional help on arguments, by name.
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
    """Mark a command as calling functions of the library, with the fields of :class:`Calls`; its ``given`` receives their arguments."""

    def mark(command: CommandT) -> CommandT:
        command.calls = Calls(functions, **particulars)  # type: ignore[attr-defined]
        return command

    return mark


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command as typer needs it: a function with a typer parameter for each option. Unmarked functions stay as they are."""
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
    whole = _HelpAll if calls.common else _SameHelp
    parameters.append(inspect.Parameter("help_all", inspect.Parameter.KEYWORD_ONLY, annotation=whole, default=False))
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    run.__annotations__ = {}
    run.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
    return run


def _arguments(calls: Calls, own: Collection[str]) -> dict[str, Argument]:
    """Return the library's arguments of a command by name: those of its functions, and after ``--set`` the keys with their own options."""
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
    """Return an argument as a parameter for typer."""
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
    """Return the type that typer reads for an argument of this type: a path or text, if the library accepts them."""
    if kind in (bool, int, float, Path) or get_origin(kind) in (Literal, list):
        return kind
    return Path if Path in get_args(kind) else str


class Given(dict[str, Any]):
    """Arguments typed for the library: ``api.plan(**given)``. Others keep the library's defaults.

    Parameters
    ----------
    context
        The context of the command.
    arguments
        Arguments of the library.
    typed
        Values that typer has read, by name.
    keys
        Names in ``arguments`` that are keys of the scenario: they become settings.
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
        """Return the arguments that a function accepts."""
        return {name: self[name] for name in inspect.signature(function).parameters if name in self}

    def text(self, name: str) -> Any:
        """Return the value as typed; None if it was not typed."""
        return self._typed[name]

    def option(self, name: str) -> str:
        """Return how a parameter, given by its name in Python, is typed; for an argument its placeholder."""
        parameter = next(each for each in self._context.command.params if each.name == name)
        return str(next((word for word in parameter.opts if word.startswith("--")), parameter.metavar or name))

    def is_typed(self, name: str) -> bool:
        """Return whether a parameter, given by its name in Python, was typed."""
        source = self._context.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    def needs(self, option: str, names: Collection[str]) -> None:
        """Refuse options that need ``option``, which is not given.

        Parameters
        ----------
        option
            The option that they need, as typed.
        names
            Parameters of the command, by their names in Python.

        Raises
        ------
        InputError
            One of them was typed.
        """
        if stray := self._first(names):
            raise InputError(f"{stray}: needs {option}; add it, or leave {stray} out")

    def useless(self, beside: str, names: Collection[str]) -> None:
        """Refuse options that have no effect with a given one; parameters and errors as in :meth:`needs`."""
        if stray := self._first(names):
            raise InputError(f"{stray}: has no effect with {beside}; leave one of them out")

    def _first(self, names: Collection[str]) -> str | None:
        """Return the first of the parameters ``names`` that was typed, as typed."""
        typed = (str(each.name) for each in self._context.command.params if each.name in names)
        return next((self.option(name) for name in typed if self.is_typed(name)), None)


def command_line(*program: str) -> str:
    """Return this command line to type again; ``program`` replaces ``paceline``."""
    return shlex.join([*(program or ("paceline",)), *sys.argv[1:]])


# -- from text to arguments ---------------------------------------------------------------------------


def settings_of(texts: Iterable[str] | None, **more: Any) -> list[tuple[str, Any]]:
    """Return the settings of every ``--set KEY=VALUE``, and of options that set a key.

    >>> settings_of(["strategy.workers=8"], dataset_size=1000.0)
    [('strategy.workers', 8), ('job.dataset_size', 1000.0)]

    Parameters
    ----------
    texts
        As typed.
    more
        Values of options that set a key (:func:`_keys`).

    Raises
    ------
    ScenarioError
        A setting cannot be read, or is given both ways.
    """
    settings = [parse_setting(text) for text in texts or ()]
    for name, value in more.items():
        key = f"{'run' if name == 'replications' else 'job'}.{name}"
        if key in dict(settings):
            raise ScenarioError(f"--{name.replace('_', '-')} and --set {key}: both set the same key; leave one of them out")
        settings.append((key, value))
    return settings


def over_of(texts: Iterable[str], *_: str) -> dict[str, list[Any]]:
    """Return the axes of every ``--over KEY=V1,V2,...``.

    Raises
    ------
    ScenarioError
        An axis cannot be read, or a key is given twice.
    """
    axes: dict[str, list[Any]] = {}
    for key, values in map(parse_axis, texts):
        if key in axes:
            raise ScenarioError(f"--over {key[:80]}: is given twice; write all its values into one --over, separated by commas")
        axes[key] = values
    return axes


def prices_of(texts: Iterable[str], *_: str) -> dict[str, str]:
    """Return the prices of every ``--price [NAME=]PRICE``.

    >>> prices_of(["lab=0.40/h", "0.20/h"])
    {'lab': '0.40/h', '*': '0.20/h'}

    Raises
    ------
    InputError
        The name before ``=`` is missing, or a name is given twice.
    """
    from simulator.base.validation_errors import quoted

    prices: dict[str, str] = {}
    for text in texts:
        name, equals, price = text.rpartition("=")
        name = name.strip()
        if equals and not name:
            raise InputError(f"--price {quoted(text)}: the name before '=' is missing; write it as in --price ethernet-1g=0.40/h")
        if (name or _EVERY) in prices:
            whose = f"the price of {name}" if name else "a price for every cluster without one"
            raise InputError(f"--price {quoted(text)}: {whose} is given twice; keep one")
        prices[name or _EVERY] = price
    return prices


def by_workers_of(texts: Iterable[str], option: str, *_: str) -> dict[int | str, str | Path]:
    """Return values by number of workers from ``N=VALUE``, repeated or separated by commas; N may have a unit, as in ``16 devices``.

    A step may also be a file, ``N=FILE`` or ``FILE``, whose name then stands for N.

    >>> by_workers_of(["1=60ms,8=170ms"], "--step")
    {1: '60ms', 8: '170ms'}

    Raises
    ------
    InputError
        The number of workers is missing or given twice.
    """
    texts = list(texts)
    files = [text for text in texts if option == "--step" and _names_file(text)]
    values: dict[int | str, str | Path] = {}
    for file in run_files_of(files):
        values.update([file if isinstance(file, tuple) else (str(file), file)])
    for part in filter(None, ",".join(text for text in texts if text not in files).split(",") if len(files) < len(texts) else ()):
        count, equals, value = part.partition("=")
        if not equals or not count.strip():
            raise InputError(f"{option} {part[:80]!r}: must be N=VALUE with a number of workers, such as {option} 8=170ms")
        key = _count_of(count)
        if key in values:
            raise InputError(f"{option} {key}: is given twice; keep one, or put repeats into a table of workers and throughput")
        values[key] = value.strip()
    return values


def _names_file(text: str) -> bool:
    return Path(text).is_file() or Path(text.partition("=")[2]).is_file()


def run_files_of(texts: Iterable[str], *_: str) -> list[Any]:
    """Return files of runs from every ``[N=]FILE``; an existing file of the whole name takes precedence.

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
    """Return a number of workers; one with a unit stays text."""
    count = text.strip()
    is_number = count.isascii() and count.isdigit() and len(count) <= _LONGEST_COUNT and int(count) > 0
    return int(count) if is_number else count


def numbers_of(text: str, option: str, example: str = "16,32,64") -> list[int]:
    """Return whole numbers from 1, given separated by commas or as ranges.

    Raises
    ------
    InputError
        A part is not a whole number, or is below 1.
    """
    numbers = numbers_in(text, f"{option} ")
    if numbers is None:
        raise InputError(f"{option} {text!r}: must be whole numbers separated by commas, such as {example}, or a range such as 1..8")
    if min(numbers) < 1:
        raise InputError(f"{option} {min(numbers)}: must be at least 1")
    return numbers


def decimals_of(text: str, option: str, example: str) -> list[float]:
    """Return numbers separated by commas; raises InputError for anything else."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} {text[:80]!r}: must be numbers separated by commas, such as {example}") from None


def names_of(text: str, option: str, *_: str) -> list[str]:
    """Return names separated by commas, each once; raises InputError for an empty one."""
    names = list(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(names):
        raise InputError(f"{option} {text[:80]!r}: must be names separated by commas, none empty")
    return names


def parse_setting(text: str) -> tuple[str, Any]:
    """Split ``key=value``. The value is TOML if it parses as TOML, else text; an empty one is None, which unsets the key.

    Raises
    ------
    ScenarioError
        The ``=`` or the key is missing.
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
    """Read ``key=v1,v2,...`` or a range of whole numbers. Each value is TOML if it parses as TOML, else text; an empty first one is None.

    >>> parse_axis("strategy.workers=1..3,8")
    ('strategy.workers', [1, 2, 3, 8])
    >>> parse_axis("strategy.bound=,4")
    ('strategy.bound', [None, 4])

    Raises
    ------
    ScenarioError
        The key or all values are missing, or a value after the first is empty.
    """
    from simulator.base.files import toml_value

    key, equals, raw = text.partition("=")
    key = key.strip()
    if not equals or not _is_dotted(key):
        raise ScenarioError(f"--over {text[:80]!r}: must be key=v1,v2,..., such as strategy.workers=1,2,4,8 or strategy.workers=1..8")
    values: list[Any] | None = numbers_in(raw, where := f"--over {key}=")
    if values is None:
        try:
            values = toml_value(f"[{raw}]")
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
            f"--over {text[:80]!r}: a value between commas is missing; to include the default of {key}, begin with a comma: {key}=,v1,v2"
        )
    return key, values


def _is_dotted(text: str) -> bool:
    """Return whether a text names a key, such as ``cluster.inter_node.latency``."""
    parts = text.split(".")
    return all(part.strip() for part in parts) and len(parts) <= _DEEPEST


def _value_of(raw: str, where: str) -> Any:
    """Return a value read as TOML if it parses as TOML, else text; None if it is empty."""
    from simulator.base.files import toml_value

    value = toml_value(raw)
    _warn_of_thousands(raw, value, where)
    return raw.strip() or None if value is None else value


def _warn_of_thousands(raw: str, value: object, where: str) -> None:
    """Warn where a typed number such as 1.000 may mean thousands. TOML files have only decimals."""
    if isinstance(value, float):
        from simulator.base.units import warn_of_thousands

        warn_of_thousands(raw.strip(), where)


def number_typed(text: str) -> float:
    """Return a typed number of samples, epochs or parameters, for typer.

    Raises
    ------
    typer.BadParameter
        It is not a number, or can be read in two ways.
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
    """Conversion of an option's text to an argument.

    Attributes
    ----------
    kind
        Type that typer reads.
    read
        Converts that to an argument, given how the option is typed and an example.
    metavar
        Placeholder of the value in the help.
    hint
        Text that the help adds to the argument's description.
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
"""Readers by :attr:`paceline.arguments.Typed.reads`."""


# -- messages of the library, in options ---------------------------------------------------------

_ARGUMENT = re.compile(r"`([a-z]\w*)(?:=([^`]+))?`(?:: (?='))?")
"""An argument that a message of the library names, alone or with a value."""
running: list[Any] = []
"""Parameters of the running command."""


def in_options(text: str, parameters: Iterable[Any] | None = None) -> str:
    """Return a message of the library with arguments written as options of the running command.

    The library names an argument in backticks, alone (``out``) or with a value (``force=True``). Other text in backticks is unchanged.
    """
    options = {parameter.name: parameter for parameter in (running if parameters is None else parameters)}

    def option(argument: re.Match[str]) -> str:
        parameter = options.get(argument[1])
        return argument[0] if parameter is None else _as_typed(parameter, argument[2]) + (" " if argument[0].endswith(" ") else "")

    return _ARGUMENT.sub(option, text)


def _as_typed(parameter: Any, value: str | None) -> str:
    """Return an option, or an argument's placeholder, as it is typed."""
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
