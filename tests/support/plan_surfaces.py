"""A plan as its reader sees it: its answer, the tables on the terminal, ``--json``, and the page of the report, each read back."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

import paceline
from paceline.answers import Answer, Figure
from paceline.cli.showing_plan import show_plan
from paceline.planning import Plan
from paceline.planning.sentences import answer_of_plan


@dataclass(frozen=True)
class Question:
    """A scenario as tables, or the name of an example, and what :func:`paceline.plan` is asked of it."""

    table: dict[str, Any] | str
    options: dict[str, Any]


@dataclass
class Answered:
    """A plan as its reader sees it."""

    question: Question
    plan: Plan

    @cached_property
    def data(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        written: dict[str, Any] = json.loads(self.plan.to_json())
        return written

    @cached_property
    def answer(self) -> Answer:
        """What is shown first."""
        return answer_of_plan(self.plan)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """The small table of the answer."""
        return {figure.what: figure for figure in self.answer.figures}

    @cached_property
    def said(self) -> list[str]:
        """Lines of the terminal with ``--details``, one a sentence."""
        shown = io.StringIO()
        with mock.patch.dict(os.environ, {"COLUMNS": "100000"}), contextlib.redirect_stdout(shown):
            show_plan(self.plan, details=True)
        return shown.getvalue().splitlines()

    @cached_property
    def tables(self) -> dict[str, list[dict[str, str]]]:
        """Tables of the terminal by their titles: each row by its headings."""
        return dict(tables_in(self.said))

    @cached_property
    def page(self) -> Page:
        """The report, without its simulated what-ifs."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "plan.html"
            paceline.report(self.plan, path, what_ifs=False, jobs=1)
            page = Page()
            page.feed(path.read_text(encoding="utf-8"))
        return page


HEADINGS = (
    "#", "configuration", "cluster", "strategy", "way of training", "way to pay", "workers", "nodes", "samples/s", "low", "high", "time",
    "per hour", "cost", "conf.", "memory", "waiting", "gain", "limit then", "in advance", "running",
)  # fmt: skip
_HEADING = "|".join(rf"(?<!\S){re.escape(name)}(?!\S)" for name in sorted(HEADINGS, key=len, reverse=True))
_LEFT = frozenset({"", "configuration", "cluster", "strategy", "way of training", "way to pay", "limit then"})


def tables_in(lines: list[str]) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Tables of the terminal with their titles, of lines wide enough for every cell."""
    for place, line in enumerate(lines):
        if set(line.strip()) != {"─"}:
            continue
        heads, title = lines[place - 1], lines[place - 2].strip()
        columns = [(match.end(), match.group()) for match in re.finditer(_HEADING, heads)]
        if not columns:
            continue
        if heads.startswith("   "):  # what is improved has no heading
            columns.insert(0, (0, ""))
        rows = []
        for row in itertools.takewhile(
            lambda text: text.strip() and not text.startswith(("low, high:", "running: ", "* ")), lines[place + 1 :]
        ):
            cells, begins = {}, 0
            for (end, name), (after, following) in zip(columns, [*columns[1:], (len(row), "")], strict=True):
                if name in _LEFT:  # up to the next column: numbers end where their heading does
                    end = after if following in _LEFT else begins + len(row[begins:after].rstrip().rpartition("  ")[0])
                cells[name], begins = row[begins:end].strip(), end
            rows.append(cells)
        yield title, rows


class Page(HTMLParser):
    """What a page shows: its text, and its tables by name, each row by its headings."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[dict[str, str]]] = {}
        self.pieces: list[str] = []
        self.data: dict[str, Any] = {}
        self._tag, self._table, self._heads, self._cells, self._in_head = "", "", [], [], False
        self._script = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "table":
            self._table, self._heads = attributes.get("data-csv") or "", []
            self.tables[self._table] = []
        elif tag in ("script", "style"):
            self._script = attributes.get("id") or tag
        elif tag == "thead":
            self._in_head = True
        elif tag == "tr":
            self._cells = []
        elif tag in ("td", "th"):
            self._cells.append("")
            self._tag = tag
        elif tag in ("p", "dd", "dt", "h2", "h3", "li", "section"):
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._script = ""
        elif tag == "tr" and self._table:
            if self._in_head:
                self._heads = self._cells
            else:
                self.tables[self._table].append(dict(zip(self._heads, self._cells, strict=True)))
        elif tag == "thead":
            self._in_head = False
        elif tag == "table":
            self._table = ""
        elif tag in ("td", "th"):
            self._tag = ""

    def handle_data(self, data: str) -> None:
        if self._script:
            if self._script == "points":
                self.data = json.loads(data)
        elif self._tag:
            self._cells[-1] += data
        else:
            self.pieces.append(data)

    @cached_property
    def text(self) -> str:
        """All that is no table."""
        return re.sub(r"[ \t]+", " ", "".join(self.pieces))


def answered(question: Question) -> Answered:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Answered(question, paceline.plan(question.table, **question.options, jobs=1))
