"""What a validation has to say, whatever was validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calibrate.validation.comparison import Compared
from calibrate.validation.validation import Score

__all__ = ["Table", "Validation"]


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes
    ----------
    rows
        Each with one text a column.
    text
        A sentence below the title.
    left
        Columns that hold words, by their index; the others hold numbers.
    long
        For the page and Markdown: too wide or too long for a terminal.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text: str = ""
    left: tuple[int, ...] = (0,)
    long: bool = False


@dataclass(frozen=True)
class Validation:
    """Predictions beside measurements, their scores, and how they came about.

    Attributes
    ----------
    key
        Short name, which tells sections of one Markdown file apart: ``points``, ``published``.
    title
        What was validated.
    rows
        In the order of the tables; numbered from 1.
    scores
        As :func:`calibrate.validation.validation.scores_of` gives them; empty where every setting took part in a fit.
    command, date, machine
        How, when and where it was made.
    about
        Sentences on how the predictions were made.
    notes
        What a reader must know before trusting the numbers.
    tables
        Whatever else there is to show, such as moved parameters or exclusions.
    overlay
        Groups to draw as throughput against workers, measured over predicted.
    headline
        Group whose score the summary tells; the last one if left out.
    apart
        In place of one headline, several whose errors are not alike, each told by itself: the
        name of its score and what was predicted, in words.
    checked
        Groups whose scores are held against the thresholds; all scores if left out.
    wanted, missed
        The thresholds that were asked for, in words, and a sentence for each that is missed.
    extra
        What the JSON has besides.
    """

    key: str
    title: str
    rows: tuple[Compared, ...]
    scores: tuple[Score, ...]
    command: str = ""
    date: str = ""
    machine: str = ""
    about: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    overlay: tuple[str, ...] = ()
    headline: str = ""
    apart: tuple[tuple[str, str], ...] = ()
    checked: tuple[str, ...] = ()
    wanted: str = ""
    missed: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def score(self) -> Score | None:
        """The score that the summary tells."""
        named = [score for score in self.scores if score.group == self.headline] or list(self.scores)
        return named[-1] if named else None

    @property
    def headlines(self) -> tuple[tuple[str, Score], ...]:
        """The scores that the summary tells, each with what it is of; of a single headline the words are empty."""
        if self.apart:
            by_group = {score.group: score for score in self.scores}
            return tuple((what, by_group[group]) for group, what in self.apart if group in by_group)
        return () if self.score is None else (("", self.score),)

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups, in the order in which they first appear."""
        return tuple(dict.fromkeys(row.group for row in self.rows))

    @property
    def origin(self) -> str:
        """When and where it was made, as a sentence."""
        parts = [f"Written {self.date}" if self.date else "", f"on {self.machine}" if self.machine else ""]
        return " ".join(filter(None, parts)) or "Written"
