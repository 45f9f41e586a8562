"""Makes a command's options from the functions of ``paceline.api`` that it calls, and their arguments from what is typed.

:func:`calling` names the functions. Each argument becomes an option, except those in ``without``, those marked ``NOT_TYPED``, and
those that the command declares itself. The command gets the values as its first parameter, a :class:`Given`.
To change an option's help or default, edit the function in ``paceline/api``; its name, short form or metavar is in ``Typed`` of
``paceline.arguments``. At home here is how text is read: the keys of :data:`READERS` are the words of ``Typed.reads``, so change both.
Options that stand for one scenario key (``_KEYS``, such as ``--epochs``) are written here; :func:`settings_of` knows their table.
Every help text imports this file, so import what is heavy inside functions.
"""

from __future__ import annotations

import inspect
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args, get_origin

import typer

from paceline.ranges import numbers_in
from simulator.base.errors import InputError, ScenarioError

if TYPE_CHECKING:
    from paceline.arguments import Argument

CommandT = TypeVar("CommandT", bound=Callable[..., None])

YES_HELP = "Do not ask before simulating for a long time; go on."
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help=YES_HELP)]
"""Whether to go on without a question."""

Require: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--require",
        metavar="'COLUMN>=VALUE'",
        help="Exit 3 unless this holds, such as 'efficiency>=70%' or 'job_time_s<=12 h'. An estimate is compared by its mean; "
        "'scaling_efficiency_low>=70%' takes the low end of its interval. Repeatable.",
        show_default=False,
    ),
]
"""What a result must be."""

_KEYS = {
    "replications": (int, "R", "Replications of each scenario. Short for --set run.replications=R."),
    "epochs": (float, "N", "Predict a whole job of N epochs, not steps alone; needs --dataset-size. Short for --set job.epochs=N."),
    "samples": (float, "N", "Predict a whole job of N samples, in place of --epochs. Short for --set job.samples=N."),
    "dataset_size": (float, "N", "Samples in the data set, such as 1.28e6; they make one epoch. Short for --set job.dataset_size=N."),
}
"""Keys that have options of their own, by the name of the option's parameter: type, what stands for the value, and help. All but
replications are keys of [job]."""
_DEEPEST = 20
"""Parts that a dotted key has at most."""
_LONGEST_COUNT = 6
"""Digits of a number of workers."""
_EVERY = "*"
"""Stands for every cluster without a price, as the library has it."""


# -- from a function of the library to options -----------------------------------------------------


@dataclass(frozen=True)
class Calls:
    """What a command calls, and what is particular to its options.

    Attributes
    ----------
    functions
        Of the library, by name. What several take is one option, as the first has it.
    keys
        Keys of the scenario that have options of their own, some of :data:`_KEYS`.
    without
        Arguments that are no options.
    optional
        Arguments that the library needs and the command does not, or not always.
    left_out
        What holds without an option, in words, where the command has other defaults than the library.
    panels
        Headings in the help, each with the options below it.
    only
        By functions, the option without which what only they take says nothing: ``{"refit": "With --refit"}``.
    hints
        What is to be said of an argument besides, by its name.
    """

    functions: tuple[str, ...]
    keys: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    panels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    only: Mapping[str, str] = field(default_factory=dict)
    hints: Mapping[str, str] = field(default_factory=dict)


def calling(*functions: str, **particulars: Any) -> Callable[[CommandT], CommandT]:
    """Mark a command as one that calls functions of the library, with the fields of :class:`Calls`."""

    def mark(command: CommandT) -> CommandT:
        command.calls = Calls(functions, **particulars)  # type: ignore[attr-defined]
        return command

    return mark


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer knows one: a function with an option for each argument of the library that it passes on."""
    calls: Calls | None = getattr(command, "calls", None)
    if calls is None:
        return command
    (_, *own) = inspect.signature(command, eval_str=True).parameters.values()
    arguments = _arguments(calls, {its.name for its in own})
    parameters = [*(_parameter(name, its, calls) for name, its in arguments.items()), *own]

    def run(context: typer.Context, **typed: Any) -> None:
        passed = {name: typed.pop(name) for name in arguments}
        command(Given(context, arguments, passed, calls.keys), **typed)

    by_name = inspect.Parameter.KEYWORD_ONLY
    context = inspect.Parameter("context", by_name, annotation=typer.Context)
    run.__annotations__ = {}
    run.__signature__ = inspect.Signature([context, *(its.replace(kind=by_name) for its in parameters)])  # type: ignore[attr-defined]
    return run


def _arguments(calls: Calls, own: Collection[str]) -> dict[str, Argument]:
    """What a command takes for the library, by name: arguments of its functions, and behind ``--set`` keys that have options."""
    from paceline import api
    from paceline.arguments import Argument, MustBe, Typed, arguments_of

    found: dict[str, Argument] = {}
    for function in calls.functions:
        for name, its in arguments_of(getattr(api, function)).items():
            if name in found or name in own or name in calls.without or its.typed.reads == "nothing":
                continue
            text = re.sub(r"\[(?=[a-z])", r"\\[", its.text)  # which is no markup of rich
            found[name] = replace(its, text=f"{calls.only[function]}: {_within(text)}" if function in calls.only else text)
            if name == "settings":
                for key in calls.keys:
                    kind, metavar, text = _KEYS[key]
                    reads = "amount" if kind is float else ""
                    found[key] = Argument(kind, None, MustBe(""), Typed(metavar=metavar, reads=reads), text)
    return found


def _within(text: str) -> str:
    """The sentence with a small first letter, to stand after a colon."""
    return text[:1].lower() + text[1:] if re.match(r"[A-Z](?:[a-z]| )", text) else text


def _parameter(name: str, its: Argument, calls: Calls) -> inspect.Parameter:
    """An argument of the library as a parameter of a command."""
    reader, empty = READERS.get(its.typed.reads), inspect.Parameter.empty
    kind = _kind_typed(its.kind) if reader is None else reader.kind
    needed = its.default is empty and name not in calls.optional
    default = its.default if (reader is None and its.default is not empty) or isinstance(its.default, str) else None
    listed = ",".join(map(str, its.default)) if isinstance(its.default, tuple) else ""
    info = typer.Argument() if its.typed.place else typer.Option(its.typed.name or f"--{name.replace('_', '-')}")
    if its.typed.short:
        info.param_decls = (its.typed.short,)
    info.help = " ".join(filter(None, (its.text, reader and reader.hint, calls.hints.get(name))))
    info.show_default = calls.left_out.get(name) or listed or not (default is None or default is False or default == "")
    info.metavar = its.typed.metavar or (reader.metavar if reader else "") or None
    info.rich_help_panel = next((panel for panel, names in calls.panels.items() if name in names), None)
    if kind is int:
        info.min, info.max = its.must.least, its.must.most
    if its.typed.reads == "amount":
        info.parser = number_typed
    typed = kind if needed or default is not None else kind | None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[typed, info], default=empty if needed else default)


def _kind_typed(kind: Any) -> Any:
    """What is typed for an argument of this type: a path or text, where those are among what the library takes."""
    if kind in (bool, int, float) or get_origin(kind) is Literal:
        return kind
    return Path if Path in get_args(kind) else str


class Given(Mapping[str, Any]):
    """What was typed for the library, as its functions take it: ``api.plan(**given)``. What was not typed, they know.

    Text is read when it is asked for, so that a command can look first at what goes with what.

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
        self._context, self._arguments, self._typed = context, arguments, typed
        self._keys = {key: typed[key] for key in keys}

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        value, typed = self._typed[name], self._arguments[name].typed
        if name == "settings":
            return settings_of(value, **self._keys)
        return READERS[typed.reads].read(value, typed.example, self.option(name)) if typed.reads else value

    def __iter__(self) -> Iterator[str]:
        return filter(self.__contains__, self._arguments)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        by_keys = name == "settings" and any(value is not None for value in self._keys.values())
        return name not in self._keys and (by_keys or self._typed.get(str(name)) not in (None, []))

    def of(self, function: Callable[..., Any]) -> dict[str, Any]:
        """What one of several functions takes of it."""
        return {name: self[name] for name in self if name in inspect.signature(function).parameters}

    def text(self, name: str) -> Any:
        """What was typed, as it is; None where it was not."""
        return self._typed[name]

    def option(self, name: str) -> str:
        """How a parameter, by its name in Python, is typed; an argument is known by what stands for it."""
        its = next(each for each in self._context.command.params if each.name == name)
        return str(next((each for each in its.opts if each.startswith("--")), its.metavar or name))

    def is_typed(self, name: str) -> bool:
        """Whether a parameter, by its name in Python, was typed."""
        source = self._context.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    def needs(self, option: str, names: Collection[str]) -> None:
        """Refuse options that say nothing without ``option``, which is not given.

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
        """Refuse options that say nothing beside another, which is given; parameters and errors as for :meth:`needs`."""
        if stray := self._first(names):
            raise InputError(f"{stray}: says nothing with {beside}; leave one or the other out")

    def _first(self, names: Collection[str]) -> str | None:
        """The first of the parameters ``names`` that was typed, as it is typed."""
        return next((self.option(its.name) for its in self._context.command.params if its.name in names and self.is_typed(its.name)), None)


def command_line(*program: str) -> str:
    """This command, as it can be typed again; ``program``: the words that start it, where these are not ``paceline``."""
    return shlex.join([*(program or ("paceline",)), *sys.argv[1:]])


# -- from text to arguments ---------------------------------------------------------------------------


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
        key = f"{'run' if name == 'replications' else 'job'}.{name}"
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


def by_workers_of(texts: Iterable[str], option: str) -> dict[int | str, str]:
    """``N=VALUE``, as often as given, or several separated by commas; N is a number, or one with its unit, such as ``16 devices``.

    >>> by_workers_of(["1=60ms,8=170ms"], "--step")
    {1: '60ms', 8: '170ms'}

    Raises
    ------
    InputError
        There is no number of workers, or one is given twice.
    """
    values: dict[int | str, str] = {}
    for part in (part for text in texts for part in text.split(",")):
        count, equals, value = part.partition("=")
        if not equals or not count.strip():
            raise InputError(f"{option} {part[:80]!r}: must be N=VALUE with a number of workers, such as {option} 8=170ms")
        key = int(count) if _is_count(count) else count.strip()
        if key in values:
            raise InputError(f"{option} {key}: is given twice; keep one, or put repeats into a table of workers and throughput")
        values[key] = value.strip()
    return values


def run_files_of(texts: Iterable[str]) -> list[Any]:
    """``[N=]FILE``, as often as given; a file that is there under the whole name is that.

    >>> run_files_of(["one.ndjson", "8=eight.csv", "16 devices=both.csv"])
    [PosixPath('one.ndjson'), (8, PosixPath('eight.csv')), ('16 devices', PosixPath('both.csv'))]
    """
    files: list[Any] = []
    for text in texts:
        count, equals, file = text.partition("=")
        if equals and count.strip()[:1].isdigit() and not Path(text).exists():
            files.append((int(count) if _is_count(count) else count.strip(), Path(file)))
        else:
            files.append(Path(text))
    return files


def _is_count(text: str) -> bool:
    return text.strip().isascii() and text.strip().isdigit() and len(text.strip()) <= _LONGEST_COUNT and int(text) > 0


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
    """Numbers separated by commas.

    Raises
    ------
    InputError
        One is no number.
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} {text[:80]!r}: must be numbers separated by commas, such as {example}") from None


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
    if None in values[1:]:
        raise ScenarioError(
            f"--over {text[:80]!r}: has nothing between two commas; for the default of {key} begin with a comma: {key}=,v1,v2"
        )
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


class Reader(NamedTuple):
    """How the text of an option becomes an argument.

    Attributes
    ----------
    kind
        What typer makes of what is typed.
    read
        Makes an argument of that, given an example and how the option is typed.
    metavar
        What stands for the value in the help.
    hint
        What the help says beside what the argument means.
    """

    kind: Any
    read: Callable[[Any, str, str], Any]
    metavar: str = ""
    hint: str = ""


READERS: Mapping[str, Reader] = {
    "settings": Reader(
        list[str],
        lambda texts, *_: settings_of(texts),
        "KEY=VALUE",
        "KEY= without a value gives it its default back. Repeatable.",
    ),
    "over": Reader(
        list[str],
        lambda texts, *_: over_of(texts),
        "KEY=V1,V2,...",
        "Such as strategy.workers=1,4,16 or a range such as strategy.workers=1..8. Repeatable.",
    ),
    "prices": Reader(list[str], lambda texts, *_: prices_of(texts), "[NAME=]PRICE", "Such as ethernet-1g=0.40/h. Repeatable."),
    "by workers": Reader(list[str], lambda texts, _, option: by_workers_of(texts, option), "N=VALUE", "Repeatable."),
    "run files": Reader(list[str], lambda texts, *_: run_files_of(texts), "[N=]FILE", "Repeatable."),
    "names": Reader(str, lambda text, _, option: names_of(text, option), "A,B,..."),
    "numbers": Reader(str, lambda text, example, option: numbers_of(text, option, example)),
    "decimals": Reader(str, lambda text, example, option: decimals_of(text, option, example), "X,Y,..."),
    "amount": Reader(float, lambda number, *_: number),
    "text": Reader(str, lambda text, *_: text),
    "files": Reader(list[Path], lambda files, *_: files, "FILE"),
}
"""By what :attr:`paceline.arguments.Typed.reads` says."""


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
