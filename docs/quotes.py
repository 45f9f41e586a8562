"""Runs the commands whose answers these pages quote, and puts what they print now in place of what is shown: ``make quotes``.

A page shows some lines of an answer, in their order, or some of its sentences behind a ``>``. Each line that is shown becomes the next
line printed that is the same, or has the same words before its first number, or the same first word. Sentences become those from the
one that begins like the first shown to the one that begins like the last. What has no like any more is left, and named.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from rich.console import Console
from rich.progress import track

from paceline.cli.app import main as paceline

__all__ = ["PAGES", "ROOT", "Quote", "anew", "answer", "quotes_of", "write_anew"]

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINES = re.compile(r"^\$ (paceline (?:simulate|memory) (?!.*--(?:json|trace))[^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", re.MULTILINE)
_NAMED = re.compile(r"`(paceline (?:simulate|memory) (?![^`]*--(?:json|trace|program))[^`]+)`[^`\n]*:\n+$")
_SENTENCES = re.compile(r"^\$ (paceline (?:plan|simulate) [^\n]*)\n```\n+(?:[^\n>`|#][^\n]*\n+)?> ([^\n]+)$", re.MULTILINE)


class Quote(NamedTuple):
    """What a page shows of a command's answer, where it stands in the page, and the scenario that the page calls mine.toml."""

    page: Path
    command: str
    shown: str
    start: int
    scenario: str = ""

    @property
    def in_sentences(self) -> bool:
        """Whether sentences are quoted, not lines."""
        return "\n" not in self.shown


def quotes_of(page: Path) -> list[Quote]:
    """All that a page quotes: beneath the command, in the block of text next to it or to the line that names it, or behind a ``>``."""
    text, scenario, pending = page.read_text(encoding="utf-8"), "", ""
    quotes = [Quote(page, match[1], match[2], match.start(2)) for match in _SENTENCES.finditer(text)]
    for block in _BLOCK.finditer(text):
        kind, inside = block.groups()
        if kind == "toml" and "[strategy]" in inside and ("[workload" in inside or "workload =" in inside):
            scenario = inside
        elif kind == "console":
            answers = [(match[1], match[2], block.start(2) + match.start(2)) for match in _LINES.finditer(inside)]
            quotes += [Quote(page, command, shown, start, scenario) for command, shown, start in answers if shown.strip(" .\n")]
            pending = answers[-1][0] if answers and not answers[-1][1] else ""
        elif kind == "text" and (command := pending or "".join(_NAMED.findall(text[: block.start()]))):
            quotes.append(Quote(page, command, inside, block.start(2), scenario))
            pending = ""
    return sorted(quotes, key=lambda quote: quote.start)


def answer(quote: Quote, *more: str) -> str:
    """What the command prints, with ``more`` arguments, in a folder of its own."""
    columns = "10000" if quote.in_sentences else "100" if max(map(len, quote.shown.splitlines())) > 80 else "80"
    words = [*shlex.split(quote.command, comments=True), *more]
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, COLUMNS=columns),
        mock.patch.object(sys, "argv", words),
        contextlib.redirect_stdout(io.StringIO()) as printed,
        contextlib.redirect_stderr(io.StringIO()) as noted,
    ):
        Path("mine.toml").write_text(quote.scenario, encoding="utf-8")
        try:
            paceline()
        except SystemExit as ended:
            if ended.code:
                raise RuntimeError(
                    f"{quote.page.name}: {shlex.join(words)} ended with exit code {ended.code}: {noted.getvalue()}"
                ) from ended
    text = printed.getvalue() + (noted.getvalue() if quote.in_sentences else "")
    return "\n".join(line.rstrip() for line in text.splitlines())


def _beginning(line: str) -> str:
    """The words before the first number, or that number where there are none."""
    words = re.sub("─+", "─", " ".join(line.split()))
    return re.split(r"\d", words)[0].strip() or words.partition(" ")[0]


def _first_word(line: str) -> str:
    return line.strip().partition(" ")[0] if line[:1].strip() else ""


_LIKENESSES: tuple[Callable[[str], str], ...] = (str, _beginning, _first_word)


def _like(line: str, printed: list[str]) -> int | None:
    """The place of the printed line that stands for a shown one."""
    for of in _LIKENESSES:
        for place, other in enumerate(printed):
            if of(line) and of(other) == of(line):
                return place
    return None


def anew(quote: Quote, printed: str) -> tuple[str, list[str]]:
    """What the page shows of this answer, and what was shown that has no like in it."""
    return _sentences_anew(quote.shown, printed) if quote.in_sentences else _lines_anew(quote.shown, printed)


def _lines_anew(shown: str, printed: str) -> tuple[str, list[str]]:
    lines, rest, lost = [], printed.splitlines(), []
    for line in shown.splitlines():
        place = _like(line, rest) if line.strip(" .") else None
        if place is not None:
            lines.append(rest[place])
            rest = rest[place + 1 :]
        else:
            lines.append(line)
            lost += [line] if line.strip(" .") else []
    return "".join(f"{line}\n" for line in lines), lost


def _sentences_anew(shown: str, printed: str) -> tuple[str, list[str]]:
    first, last = _sentences(shown)[0], _sentences(shown)[-1]
    sentences = [sentence for line in printed.splitlines() for sentence in _sentences(line)]
    start = _like(first, sentences)
    if start is None:
        return shown, [first]
    end = _like(last, sentences[start:])
    return (shown, [last]) if end is None else (" ".join(sentences[start : start + end + 1]), [])


def _sentences(text: str) -> list[str]:
    return re.split(r"(?<=\.) (?=[A-Z])", text)


def write_anew(pages: Iterable[Path]) -> Iterator[str]:
    """Write each page whose quotes have changed, and say which; and what in it has to be mended by hand."""
    for page in pages:
        before = after = page.read_text(encoding="utf-8")
        for quote in reversed(quotes_of(page)):
            text, lost = anew(quote, answer(quote))
            after = after[: quote.start] + text + after[quote.start + len(quote.shown) :]
            yield from (f"{page.relative_to(ROOT)}: `{quote.command}` prints nothing like: {line}" for line in lost)
        if after != before:
            page.write_text(after, encoding="utf-8")
            yield f"{page.relative_to(ROOT)}: changed"


if __name__ == "__main__":
    for said in write_anew(track(PAGES, "What commands print", console=Console(stderr=True))):
        sys.stdout.write(f"{said}\n")
    sys.stdout.write("All other quotes are what their commands print.\n")
