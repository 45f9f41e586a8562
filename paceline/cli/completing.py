"""Shell completion: commands, options, names of the catalogue, keys and their values.

typer makes the scripts that ``paceline --install-completion`` installs. At every Tab they call ``paceline`` with the words typed so
far in environment variables. To answer fast, this module uses only these words and :data:`KEYS_FILE`, and does not load the simulator.
``python docs/completion_keys.py`` writes that file.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand

from simulator.base.catalog import Kind, entries

KEYS_FILE = Path(__file__).with_name("keys.json")
"""Every key of ``--set``, with its meaning and its values if they are few; and names that only the library has: strategies,
software, sorts of links."""


class Word(NamedTuple):
    """A completion, with a short description."""

    text: str
    help: str = ""


# -- the command line so far ------------------------------------------------------------


class _Typed(NamedTuple):
    """The words before the completed one, that word, and the part of it that the shell does not replace."""

    before: list[str]
    last: str
    kept: int = 0


def answer(root: Any) -> bool:
    """Print what can be typed next, if a shell has asked for it; ``root`` is the group of all commands."""
    instruction, _, shell = os.environ.get("_PACELINE_COMPLETE", "").partition("_")
    if instruction != "complete" or shell not in _SHELLS:
        return False
    read, written = _SHELLS[shell]
    typed = read()
    words = list(dict.fromkeys(word for word in words_for(root, typed.before, typed.last) if word.text.startswith(typed.last)))
    if len(words) == 1:
        words += _going_on(words[0])
    sys.stdout.write(written([word._replace(text=word.text[typed.kept :]) for word in words]))
    return True


def _going_on(word: Word) -> Iterable[Word]:
    """Return longer words instead of a single incomplete one, after which the shell would put a space."""
    if word.text.endswith("="):
        return [Word(f"{word.text}VALUE", word.help)]
    return _files(word.text) if word.text.endswith("/") else []


def words_for(root: Any, before: Sequence[str], last: str) -> Iterator[Word]:
    """Yield completions of ``last`` after the words ``before``, which leave out the program's name."""
    command, waiting = root, None
    of = ""
    arguments, no_more_options = 0, False
    for word in before:
        if waiting is not None:
            waiting = None
        elif word == "--" and not no_more_options:
            no_more_options = True
        elif word.startswith("-") and not no_more_options:
            parameter = _option(command, word.partition("=")[0])
            waiting = parameter if parameter is not None and not parameter.is_flag and "=" not in word else None
        elif word in (members := getattr(command, "commands", {})):
            command, of = members[word], word
        else:
            arguments += 1
    if waiting is not None:
        yield from _values(waiting, of, last)
    elif last.startswith("-") and not no_more_options:
        name, equals, value = last.partition("=")
        parameter = _option(command, name) if equals else None
        if parameter is not None:
            yield from (word._replace(text=f"{name}={word.text}") for word in _values(parameter, of, value))
        else:
            yield from _options(command, before)
    elif members := getattr(command, "commands", {}):
        yield from (Word(name, first_words(member.help)) for name, member in members.items() if not member.hidden)
    elif places := [parameter for parameter in command.params if parameter.param_type_name == "argument"]:
        place = places[min(arguments, len(places) - 1)]
        if arguments < len(places) or place.nargs == -1:
            yield from _values(place, of, last)


def _option(command: Any, name: str) -> Any:
    options = (each for each in command.params if each.param_type_name == "option")
    return next((option for option in options if name in (*option.opts, *option.secondary_opts)), None)


def _options(command: Any, before: Sequence[str]) -> Iterator[Word]:
    """Yield long names of options, without those that are given already and cannot be repeated."""
    for option in command.params:
        names = {*option.opts, *option.secondary_opts}
        if option.param_type_name == "option" and not option.hidden and (option.multiple or not names & {*before}):
            help_text = first_words(option.help)
            yield from (Word(name, help_text) for name in (*option.opts, *option.secondary_opts) if name.startswith("--"))
    yield Word("--help", "Show this message and exit")


def _values(parameter: Any, of: str, begun: str) -> Iterable[Word]:
    """Yield values of an option or argument of a command."""
    words = _VALUES.get(f"{of}.{parameter.name}") or _VALUES.get(parameter.name)
    if words is not None:
        return words(begun)
    context = typer.Context(TyperCommand(of or "paceline"))
    return [Word(item.value) for item in parameter.shell_complete(context, begun) if item.type == "plain"]


def first_words(text: str | None) -> str:
    """Return the beginning of a help text, without its details."""
    plain = " ".join((text or "").split())
    first = re.split(r"(?<=.{20})(?:[.;:](?: |$)| \()", plain, maxsplit=1)[0].removesuffix(".")
    return first if len(first) <= _LONGEST else f"{first[:_LONGEST].rpartition(' ')[0]}..."


_LONGEST = 70


# -- values -------------------------------------------------------------------------------


def _names(*kinds: Kind) -> list[str]:
    return [name for kind in kinds for name in entries(kind)]


def _named(*kinds: Kind) -> Callable[[str], Iterator[Word]]:
    """Yield names of the catalogue, and files that may define the same kind."""

    def words(begun: str) -> Iterator[Word]:
        yield from map(Word, _names(*kinds))
        yield from _files(begun)

    return words


def _files(begun: str) -> Iterator[Word]:
    """Yield TOML files, and folders that contain some."""
    folder, _, part = begun.rpartition("/")
    inside = Path(folder or ("/" if begun.startswith("/") else "."))
    before = begun[: len(begun) - len(part)]
    try:
        paths = sorted(inside.iterdir())
    except OSError:
        return
    for path in paths:
        if path.name.startswith(".") != part.startswith("."):
            continue
        if path.is_dir():
            yield Word(f"{before}{path.name}/")
        elif path.suffix == ".toml":
            yield Word(f"{before}{path.name}")


def _listed(words: Callable[[], Iterable[str]]) -> Callable[[str], Iterator[Word]]:
    """Yield lists of names separated by commas, without repetition."""

    def more(begun: str) -> Iterator[Word]:
        before, comma, _ = begun.rpartition(",")
        return (Word(f"{before}{comma}{name}") for name in words() if name not in before.split(","))

    return more


def _keys(table: str, *, several: bool = False) -> Callable[[str], Iterator[Word]]:
    """Yield keys, or values of the typed key, for ``KEY=VALUE`` or, with ``several``, ``KEY=V1,V2``."""

    def words(begun: str) -> Iterator[Word]:
        known = _known()[table]
        key, equals, value = begun.partition("=")
        near = [name for name in known if name.startswith(key)]
        if equals:
            yield from (Word(f"{key}={word.text}") for word in _values_of_key(known.get(key, {}), value, several=several))
        elif len(near) == 1 and len(known[near[0]]) > 1:
            yield from (Word(f"{near[0]}={word.text}") for word in _values_of_key(known[near[0]], "", several=several))
        else:
            yield from (Word(f"{name}=", known[name]["help"]) for name in near)

    return words


def _values_of_key(about: Mapping[str, Any], begun: str, *, several: bool) -> Iterable[Word]:
    """Return the values of a key if they are few: a list, or names of a kind of the catalogue."""
    names = about.get("values") or _names(*about.get("of", ()))
    if several:
        return _listed(lambda: names)(begun)
    return [*map(Word, names), *(_files(begun) if about.get("of", ["devices"]) != ["devices"] else ())]


def known_keys() -> list[str]:
    """Return every dotted key of a scenario that can be set."""
    return list(_known()["scenario"])


def _prices(begun: str) -> Iterator[Word]:
    return (Word(f"{name}=") for name in _names("clusters") if "=" not in begun)


def _known() -> Any:
    return json.loads(KEYS_FILE.read_text(encoding="utf-8"))


def _matrices(_: str) -> Iterator[Word]:
    yield from map(Word, _names("matrices"))
    yield Word("random:", "settings drawn by a seed")


def _sorts(_: str) -> Iterator[Word]:
    return (Word(name, meaning) for name, meaning in _known()["sorts"].items())


_SETTING = _keys("testbed-setting")
_VALUES: Mapping[str, Callable[[str], Iterable[Word]]] = {
    "scenario": _named("scenarios"),
    "settings": _keys("scenario"),
    "over": _keys("scenario", several=True),
    "prices": _prices,
    "clusters": _listed(partial(_names, "clusters")),
    "cluster": _named("clusters"),
    "workload": _named("workloads"),
    "strategies": _listed(lambda: _known()["strategies"]),
    "strategy": lambda _: map(Word, _known()["begun_with"]),
    "show.name": _named("workloads", "clusters", "devices", "inputs", "faults"),
    "run.settings": _SETTING,
    "predict.settings": _SETTING,
    "setting": _files,
    "matrix": _matrices,
    "formats": _listed(lambda: ("png", "svg")),
    "runs_on": _listed(lambda: _known()["software"]),
    "init.sort": _sorts,
    "precision": lambda _: map(Word, ("float32", "mixed_float16", "mixed_bfloat16", "bfloat16")),
}
"""Kinds of values by parameter name in Python; prefixed by a command where they differ there."""


# -- shells -------------------------------------------------------------------------------


def _split(text: str) -> list[str]:
    """Split a line into words as a shell does; the last may lack its closing quote."""
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:
        words.append(lexer.token)
    return words


def _of_bash() -> _Typed:
    """Read the words from bash, which splits ``key=value`` into three words and replaces the last."""
    words = _split(os.environ.get("COMP_WORDS", ""))
    number = int(os.environ.get("COMP_CWORD", "0"))
    joined: list[str] = []
    before = own = ""
    for own in (*words[: number + 1], *([] if number < len(words) else [""])):
        if own == "=" and joined[-1:] and joined[-1].startswith("--"):
            joined.append("")  # --option=value: the value is a word of its own
        elif joined and (own in _BREAKS or before in _BREAKS):
            joined[-1] += own
        else:
            joined.append(own)
        before = own
    last = joined.pop() if joined else ""
    return _Typed(joined[1:], last, len(last) - (0 if own in _BREAKS else len(own)))


_BREAKS = ("=", ":")
"""Characters that bash treats as separate words."""


def _of_line() -> _Typed:
    """Read the words of the line up to the cursor, as zsh and fish pass it."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    words = _split(line)[1:]
    return _Typed(words[:-1], words[-1]) if words and not line.endswith(" ") else _Typed(words, "")


def _of_powershell() -> _Typed:
    words, last = _split(os.environ.get("_TYPER_COMPLETE_ARGS", ""))[1:], os.environ.get("_TYPER_COMPLETE_WORD_TO_COMPLETE", "")
    return _Typed(words[:-1] if last else words, last)


def _in_bash(words: Sequence[Word]) -> str:
    """Return words escaped for bash: a space needs a backslash unless the word begins with a quote."""
    space = " " if _is_quoted(os.environ.get("COMP_WORDS", "")) else "\\ "
    return "".join(word.text.replace(" ", space) + "\n" for word in words)


def _is_quoted(text: str) -> bool:
    """Return whether a quote is open at the end of a text."""
    try:
        shlex.split(text)
    except ValueError:
        return True
    return False


def _in_zsh(words: Sequence[Word]) -> str:
    def quoted(text: str) -> str:
        for letter, instead in (('"', '""'), ("'", "''"), ("$", "\\$"), ("`", "\\`"), (":", r"\\:")):
            text = text.replace(letter, instead)
        return f'"{text}"'

    lines = "\n".join(f"{quoted(word.text)}:{quoted(word.help)}" if word.help else quoted(word.text) for word in words)
    return f"_arguments '*: :(({lines}))'\n" if lines else "_files\n"


def _in_fish(words: Sequence[Word]) -> str:
    if os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":  # asks by the exit code whether there is anything but files
        sys.exit(0 if words else 1)
    return "".join(f"{word.text}\t{word.help}\n" if word.help else f"{word.text}\n" for word in words)


def _in_powershell(words: Sequence[Word]) -> str:
    def quoted(text: str) -> str:
        return f"'{text}'" if " " in text else text

    return "".join(f"{quoted(word.text)}:::{word.help or ' '}\n" for word in words)


_SHELLS: Mapping[str, tuple[Callable[[], _Typed], Callable[[Sequence[Word]], str]]] = {
    "bash": (_of_bash, _in_bash),
    "zsh": (_of_line, _in_zsh),
    "fish": (_of_line, _in_fish),
    "powershell": (_of_powershell, _in_powershell),
    "pwsh": (_of_powershell, _in_powershell),
}
