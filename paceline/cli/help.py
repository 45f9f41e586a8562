"""The output of ``--help`` and ``--help-all``: plain text, wrapped to the terminal.

For a command with many options, ``--help`` shows the common ones with the first sentence of their texts; ``--help-all`` shows
everything. :attr:`paceline.cli.options.Calls.common` lists the common options. Every ``--help`` imports this module: import nothing heavy.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import typer

HELP_ALL = "--help-all"
_WIDEST = 100
_NAMES_WIDEST = 26
"""Width of the column of options; the text of a longer option begins on the next line."""
_EXAMPLES = 2
"""Most examples that ``--help`` shows."""
_ARGUMENTS, _COMMANDS, _OPTIONS, _MORE = "Arguments", "Commands", "Options", "More options"


def show_all(context: typer.Context, wanted: bool) -> None:
    """Print all of a command's help, and exit."""
    if wanted:
        typer.echo(help_of(context.command, context, everything=True), color=context.color)
        raise typer.Exit


def help_of(command: Any, context: Any, *, everything: bool = False) -> str:
    """Return the help of a command or of a group of commands."""
    shown = [each for each in command.get_params(context) if not getattr(each, "hidden", False)]
    options = [each for each in shown if each.param_type_name == "option"]
    places = [each for each in shown if each.param_type_name == "argument"]
    members = [each for each in getattr(command, "commands", {}).values() if not each.hidden]
    brief = not everything and any(HELP_ALL in option.opts for option in options)

    paragraphs = (command.help or "").split("\n\n")
    if brief:
        paragraphs = [paragraphs[0], *[each for each in paragraphs if each.startswith("Example: ")][:_EXAMPLES]]
    words = ["Usage:", context.command_path, "COMMAND" if members else "", *map(_place, places), "[OPTIONS]"]
    panels = {_ARGUMENTS: [_row(each, brief=brief) for each in places]}
    for member in members:
        panels.setdefault(member.rich_help_panel or _COMMANDS, []).append((member.name, (member.help or "").split("\n\n")[0]))
    common = [option for option in options if getattr(option, "rich_help_panel", None)]
    for option in common:
        panels.setdefault(option.rich_help_panel, []).append(_row(option, brief=brief))
    if not brief:
        panels[_MORE if common else _OPTIONS] = [_row(option, brief=brief) for option in options if option not in common]
    column = min(max(len(names) for rows in panels.values() for names, _ in rows), _NAMES_WIDEST)
    blocks = [" ".join(filter(None, words)), *map(_paragraph, paragraphs)]
    blocks += ["\n".join([typer.style(heading, bold=True), *_lines(rows, column)]) for heading, rows in panels.items() if rows]
    if brief:
        count = sum(not {HELP_ALL, "--help"} & {*option.opts} for option in options)
        blocks.append(f"All {count} options: {context.command_path} {HELP_ALL}")
    return "\n\n".join(blocks)


def examples_in(paragraph: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a paragraph of examples, each with its remark; nothing for other paragraphs."""
    if paragraph.startswith("Example: "):
        for command, after in re.findall(r"`(.+?)`([^`]*)", paragraph):
            yield command, re.sub(r"^,? ?then$|, then$", "", after.strip(" ,.")).strip()


def first_sentence(text: str) -> str:
    """Return the first sentence of a text."""
    return re.split(r"(?<=[.])\s+(?=[A-Z`'\d-])", text, maxsplit=1)[0]


def _width() -> int:
    return min(shutil.get_terminal_size().columns, _WIDEST)


def _paragraph(text: str) -> str:
    lines = [line for command, remark in examples_in(text) for line in _command(command, remark)]
    return "\n".join(lines) or textwrap.fill(text, _width(), break_on_hyphens=False)


def _command(command: str, remark: str) -> Iterator[str]:
    """Return a command as lines that can be pasted into a shell, broken between words."""
    words = re.findall(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""", re.sub(r"( --?[\w-]+) (?!-)", r"\1\0", command))
    line = "  $"
    for number, word in enumerate(words):
        if len(line) + len(word) + (3 if number + 1 < len(words) else 1) > _width():
            yield f"{line} \\"
            line = "     "
        line += f" {word}".replace("\0", " ")
    if remark and len(line) + len(remark) + 4 > _width():
        yield f"  # {remark}:"
        remark = ""
    yield line + (f"  # {remark}" if remark else "")


def _lines(rows: Iterable[tuple[str, str]], column: int) -> Iterator[str]:
    for names, text in rows:
        lines = textwrap.wrap(text, _width() - column - 4, break_on_hyphens=False)
        if len(names) > column or not lines:
            yield f"  {names}"
        else:
            yield f"  {names:<{column}}  {lines.pop(0)}"
        yield from (f"{'':{column + 4}}{line}" for line in lines)


def _place(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _row(parameter: Any, *, brief: bool) -> tuple[str, str]:
    """Return an option or argument with its value, and its meaning."""
    text = first_sentence(parameter.help or "") if brief else parameter.help or ""
    if parameter.param_type_name == "argument":
        return _place(parameter), text
    names = ", ".join(sorted((*parameter.opts, *parameter.secondary_opts), key=len))
    default = parameter.show_default if isinstance(parameter.show_default, str) else parameter.default if parameter.show_default else None
    if parameter.is_flag:
        return names, text
    more = " [required]" if parameter.required else f" [default: {default}]" if default not in (None, "") else ""
    return f"{names} {parameter.metavar}", text + more
