"""Runs the commands whose answers these pages quote, and puts what they print now in place of what is shown: ``make quotes``.

A page shows some lines of an answer beneath the command (``...`` where some are left out) or in a block of text after it, or some of its
sentences behind a ``>``. Lines become those from the one that is like the first shown to the one that is like the last, and so do
sentences. Lines are alike that are the same, have the same words before their first number, or the same first word. What has no like any
more is left, and named. A command finds the last scenario of its page as mine.toml, and the last table of runs as points.csv.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from rich.console import Console
from rich.progress import track

from paceline.cli.app import main as paceline

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_MEASURING = ("calibrate", "calibrate-input", "calibrate-link", "calibrate-server", "serve", "testbed", "watch")  # no two answers are equal
_PART = re.compile(r"^```(\w*)\n(.*?)^```$|^> ([^\n]+)$", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", re.MULTILINE)
_NAMED = re.compile(r"`(paceline [^`]+)`[^`\n]*:\n+$")


class Quote(NamedTuple):
    """What a page shows of a command's answer, where it stands in the page, and the files of the page that the command may name."""

    page: Path
    command: str
    shown: str
    start: int
    files: tuple[tuple[str, str], ...] = ()

    @property
    def in_sentences(self) -> bool:
        """Whether sentences are quoted, not lines."""
        return "\n" not in self.shown

    @property
    def repeatable(self) -> bool:
        """Whether running the command again prints the same."""
        words = self.command.split()
        return words[:1] == ["paceline"] and words[1] not in _MEASURING


def shown_of(page: Path) -> list[Quote]:
    """All that a page shows as an answer, with an empty command where none is named."""
    text, command = page.read_text(encoding="utf-8"), ""
    files: dict[str, str] = {}
    quotes = []
    for part in _PART.finditer(text):
        kind, inside, _ = part.groups()
        if kind == "toml" and "[strategy]" in inside and ("[workload" in inside or "workload =" in inside):
            files["mine.toml"] = inside
        elif kind == "csv":
            files["points.csv"] = inside
        elif kind == "console":
            for match in _COMMAND.finditer(inside):
                command = re.sub(r"\\\n\s*", "", match[1])
                if match[2].strip(" .\n"):
                    quotes.append(Quote(page, command, match[2], part.start(2) + match.start(2), tuple(files.items())))
        elif kind in (None, "", "text"):
            named = _NAMED.search(text[: part.start()])
            group = 3 if kind is None else 2
            of = "" if kind == "" else named[1] if named else command
            quotes.append(Quote(page, of, part[group], part.start(group), tuple(files.items())))
    return quotes


def quotes_of(page: Path) -> list[Quote]:
    """What a page shows of answers that a command prints again."""
    return [quote for quote in shown_of(page) if quote.repeatable]


def answer(quote: Quote, *more: str) -> str:
    """What the command prints, with ``more`` arguments, in a folder of its own."""
    columns = "10000" if quote.in_sentences else "100" if max(map(len, quote.shown.splitlines())) > 80 else "80"
    return _printed((*shlex.split(quote.command, comments=True), *more), columns, quote.files)


@functools.cache
def _printed(words: tuple[str, ...], columns: str, files: tuple[tuple[str, str], ...]) -> str:
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, COLUMNS=columns),
        mock.patch.object(sys, "argv", list(words)),
        contextlib.redirect_stdout(io.StringIO()) as printed,
        contextlib.redirect_stderr(io.StringIO()) as noted,
    ):
        for name, text in files:
            Path(name).write_text(text, encoding="utf-8")
        try:
            paceline()
        except SystemExit as ended:
            if ended.code not in (None, 0, 3):  # 3 is an answer too: it does not fit, or misses the goal
                raise RuntimeError(f"{shlex.join(words)} ended with exit code {ended.code}: {noted.getvalue()}") from ended
    text = printed.getvalue() + (noted.getvalue() if columns == "10000" else "")
    return "\n".join(line.rstrip() for line in text.splitlines())


def _beginning(line: str) -> str:
    """The words before the first number, or that number where there are none."""
    words = re.sub("─+", "─", " ".join(line.split()))
    return re.split(r"\d", words)[0].strip() or words.partition(" ")[0]


def _first_word(line: str) -> str:
    return line.strip().partition(" ")[0] if line[:1].strip() else ""


def _first_words(sentence: str) -> str:
    return " ".join(sentence.split()[:3])


def _span(shown: list[str], printed: list[str], last_likeness: Callable[[str], str]) -> tuple[int, int] | str:
    """Return the places of the printed lines that stand for the first and the last shown, or the one of these that has no like.

    A paragraph that is broken into other lines now, which are indented but for its first, ends where it ends.
    """
    likenesses = (str, _beginning, last_likeness)
    first = next((place for of in likenesses for place, line in enumerate(printed) if of(line) and of(line) == of(shown[0])), None)
    if first is None:
        return shown[0]
    if len(shown) == 1:
        return first, first
    for of in likenesses:
        wanted = sum(of(line) == of(shown[-1]) for line in shown[1:])
        places = [place for place, line in enumerate(printed) if place > first and of(line) and of(line) == of(shown[-1])]
        if len(places) >= wanted:
            return first, places[wanted - 1]
    if not shown[-1].startswith(" ") or isinstance(span := _span(shown[:-1], printed, last_likeness), str):
        return shown[-1]
    return first, next((place for place in range(span[1], len(printed) - 1) if not printed[place + 1].startswith(" ")), len(printed) - 1)


def rewritten(quote: Quote, printed: str) -> tuple[str, list[str]]:
    """Return what the page shows of this answer, and the shown lines that have no counterpart in it."""
    if quote.in_sentences:
        sentences = [part for line in printed.splitlines() for part in _sentences(line)]
        span = _span(_sentences(quote.shown), sentences, _first_words)
        return (quote.shown, [span]) if isinstance(span, str) else (" ".join(sentences[span[0] : span[1] + 1]), [])
    lines, rest, lost = [], printed.splitlines(), []
    for apart, group in groupby(quote.shown.splitlines(), key=lambda line: line.strip() in ("", "...")):
        shown = list(group)
        span = shown[0] if apart else _span(shown, rest, _first_word)
        if isinstance(span, str):
            lines += shown
            lost += [] if apart else [span]
        else:
            lines += rest[span[0] : span[1] + 1]
            rest = rest[span[1] + 1 :]
    return "".join(f"{line}\n" for line in lines), lost


def _sentences(text: str) -> list[str]:
    return re.split(r"(?<=\.) (?=[A-Z])", text)


def rewritten_pages(pages: Iterable[Path]) -> Iterator[str]:
    """Write each page whose quotes have changed; yield its name, and lines that must be changed by hand."""
    for page in pages:
        before = after = page.read_text(encoding="utf-8")
        for quote in reversed(quotes_of(page)):
            text, lost = rewritten(quote, answer(quote))
            after = after[: quote.start] + text + after[quote.start + len(quote.shown) :]
            yield from (f"{page.relative_to(ROOT)}: `{quote.command}` prints nothing like: {line}" for line in lost)
        if after != before:
            page.write_text(after, encoding="utf-8")
            yield f"{page.relative_to(ROOT)}: changed"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("pages", nargs="*", type=Path, help="pages to bring up to date, such as docs/plan.md; left out: all of them")
    chosen = [path.resolve() for path in parser.parse_args().pages] or PAGES
    for said in rewritten_pages(track(chosen, "What commands print", console=Console(stderr=True))):
        sys.stdout.write(f"{said}\n")
    sys.stdout.write("All other quotes are what their commands print.\n")
