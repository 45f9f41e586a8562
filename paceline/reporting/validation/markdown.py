"""A validation as a section of a Markdown file, which a later run replaces and leaves the rest alone."""

from __future__ import annotations

import html
import re

from calibrate.validation.validation import Validation
from paceline.reporting.validation.content import Table, in_words
from paceline.reporting.validation.facts import rows_table, scores_table, summaries
from simulator.errors import InputError
from simulator.text import clean

__all__ = ["check_document", "place_section", "section"]

_LONGEST_CELL = 300
_BEGIN = re.compile(r"<!-- begin paceline validate: (.{1,80}?) -->")
_SPECIAL = re.compile(r"([\\`*_\[\]|~#])")


def section(validation: Validation) -> str:
    """The validation between two comments that name it, so that it can be found and replaced."""
    parts = [f"## {_text(validation.title)}", *(_text(each, 2000) for each in summaries(validation))]
    if validation.wanted:
        met = f"All thresholds are met: {validation.wanted}." if not validation.missed else "Thresholds missed:"
        parts += [_text(met, 600), *(["\n".join(f"- {_text(line, 600)}" for line in validation.missed)] if validation.missed else [])]
    parts += [_text(sentence, 1000) for sentence in validation.about]
    if validation.scores:
        parts += _table(scores_table(validation))
    for table in (*validation.tables, *validation.details):
        parts += _table(in_words(table))
    parts += _table(rows_table(validation))
    if validation.notes:
        parts += ["### Notes", "\n".join(f"- {_text(note, 1000)}" for note in validation.notes)]
    made = f"{_text(validation.origin, 400)}"
    if validation.command:
        made += f" by `{clean(validation.command, 400).replace('`', chr(39))}`"
    parts.append(f"{made}.")
    begin, end = _marks(validation.key)
    return "\n\n".join([begin, *parts, end]) + "\n"


def place_section(document: str, validation: Validation) -> str:
    """The document with its section of this key replaced, or the section at its end.

    Raises
    ------
    InputError
        The document has the beginning of a section without its end.
    """
    check_document(document)
    begin, end = _marks(validation.key)
    new = section(validation)
    start = document.find(begin)
    if start < 0:
        return f"{document.rstrip()}\n\n{new}" if document.strip() else new
    stop = document.index(end, start)
    return document[:start] + new + document[stop + len(end) :].removeprefix("\n")


def check_document(document: str, where: str = "the Markdown file") -> None:
    """Make sure that every section of a document that begins also ends.

    Raises
    ------
    InputError
        One does not.
    """
    for begin in _BEGIN.finditer(document):
        _, end = _marks(begin.group(1))
        if document.find(end, begin.end()) < 0:
            raise InputError(f"{where}: has {begin.group()} without {end}; put the end back, or delete the section")


def _marks(key: str) -> tuple[str, str]:
    return f"<!-- begin paceline validate: {key} -->", f"<!-- end paceline validate: {key} -->"


def _table(table: Table) -> list[str]:
    rules = ["---" if index in table.left else "---:" for index in range(len(table.columns))]
    lines = [[_text(name) if name else " " for name in table.columns], rules]
    lines += [[_text(cell, _LONGEST_CELL) if cell else " " for cell in row] for row in table.rows]
    grid = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return [f"### {_text(table.title)}", *([_text(table.text, 1000)] if table.text else []), grid]


def _text(text: str, longest: int = 120) -> str:
    """Text that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", html.escape(clean(text, longest), quote=False))
