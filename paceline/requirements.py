"""Requirements on a result, such as ``efficiency>=70%``.

A requirement compares a column of :data:`simulator.results.rows.COLUMNS`: the mean of an estimate, or an end of its interval
(``scaling_efficiency_low``).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from simulator.base.errors import InputError, UnitError
from simulator.base.table import Column, Row
from simulator.base.text import did_you_mean, format_interval, written
from simulator.base.units import number_of, parse_quantity, share_of
from simulator.base.validation_errors import quoted
from simulator.results.results import Result
from simulator.results.rows import COLUMNS

_RULE = "must be a column, a comparison and a value, such as 'efficiency>=70%'"
_TEXT = re.compile(r"\s*([^<>=!]+?)\s*(>=|<=|==|!=|>|<|=)\s*([^<>=!]+?)\s*")
_ORDERED: dict[str, Callable[[float, float], bool]] = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_COMPARISONS: dict[str, Callable[..., bool]] = {**_ORDERED, "==": operator.eq, "=": operator.eq, "!=": operator.ne}
_UNITS = {"usd": r"\s*(?:USD|\$)\s*", "hourly": r"\s*(?:USD|\$|/\s*h)\s*", "throughput": r"\s*(?:samples|updates)\s*/\s*s$"}
_TOKENS = r"\s*tokens\s*/\s*s$"
"""Units allowed after a number, by the kind of its column, and of tokens."""
_RUN_MEANS = {"step_time_s": "mean_step_s", "staleness": "mean_staleness"}
"""Figures whose interval has another name than their mean."""


@dataclass(frozen=True)
class Requirement:
    """Requirement on a column of a result.

    Attributes
    ----------
    text
        Text as written.
    column
        The compared column.
    comparison
        One of >=, <=, >, <, == (or =) and !=.
    limit
        The limit: a number in the column's unit, or text.
    """

    text: str
    column: Column
    comparison: str
    limit: float | str

    @classmethod
    def of(cls, text: str) -> Requirement:
        """Read a requirement.

        >>> Requirement.of("efficiency >= 70%").limit, Requirement.of("job_time_s<=12 h").limit, Requirement.of("bottleneck==compute").limit
        (0.7, 43200.0, 'compute')

        Raises
        ------
        InputError
            The text is not a requirement, names no column, or its value is not of the column's kind.
        """
        match = _TEXT.fullmatch(text)
        if not match:
            raise InputError(f"`require`: {quoted(text)} {_RULE}")
        name, comparison, value = match.groups()
        column = COLUMNS.get(name) or _BY_HEADING.get(name.lower())
        where = f"`require`: {quoted(text)}"
        if column is None:
            hint = did_you_mean(name, [*COLUMNS, *_BY_HEADING], "docs/reference.md lists them")
            raise InputError(f"{where}: there is no column {quoted(name)}; {hint}")
        if column.kind in ("text", "any"):
            if comparison in _ORDERED:
                raise InputError(f"{where}: {column.name} is not a number; compare it with == or !=")
            return cls(text.strip(), column, comparison, value)
        try:
            return cls(text.strip(), column, comparison, _number(column, name, value, where))
        except UnitError as error:
            raise InputError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None

    def judge(self, row: Row) -> tuple[bool, str]:
        """Return whether a result's row meets the requirement, with a sentence if it does not, or if its interval contains the limit."""
        value = row[self.column.name]
        if value is None:
            return False, f"{self.text} is not met: there is no {self.column.name} in this result"
        if isinstance(self.limit, str):
            shown = written(value, self.column.kind)
            met = _COMPARISONS[self.comparison](shown, self.limit)
            return met, "" if met else f"{self.text} is not met: it is {shown or 'empty'}"
        assert not isinstance(value, str)
        met = _COMPARISONS[self.comparison](value, self.limit)
        shown, ends = self._shown(value), self._ends(row)
        straddles = ends is not None and self.comparison in _ORDERED and ends[0] < self.limit < ends[1]
        interval = "" if ends is None else f" (90% interval {format_interval(*ends, self.column.kind)})"
        if not met:
            hope = "; the interval contains the limit" if straddles else ""
            return False, f"{self.text} is not met: it is {shown}{interval}{hope}"
        if not straddles:
            return True, ""
        end = _ENDS[f"{self._path}.{'low' if '>' in self.comparison else 'high'}"]
        safer = f"{end}{self.comparison}{self.text.rpartition(self.comparison)[2].strip()}"
        return True, f"{self.text} is met by the mean, {shown}, but the interval contains the limit{interval}; {safer} is stricter"

    @property
    def _path(self) -> str:
        path = self.column.of.removesuffix(".mean")
        return _RUN_MEANS.get(path, path) if path != self.column.of else ""

    def _ends(self, row: Row) -> tuple[float, float] | None:
        """Return the ends of the column's interval; None without one."""
        low, high = (row.get(_ENDS.get(f"{self._path}.{end}", "")) for end in ("low", "high"))
        return None if low is None or high is None else (float(low), float(high))

    def _shown(self, value: float) -> str:
        """Return the value as shown, with more digits if it looks like the limit."""
        shown = written(value, self.column.kind)
        alike = value != self.limit and shown == written(self.limit, self.column.kind)
        return f"{shown} ({value:.10g})" if alike else shown


def requirements_of(texts: str | Iterable[str]) -> tuple[Requirement, ...]:
    """Return requirements, each read by :meth:`Requirement.of`."""
    return tuple(map(Requirement.of, [texts] if isinstance(texts, str) else texts))


def _number(column: Column, name: str, text: str, where: str) -> float:
    """Return the limit of a numeric column."""
    if column.kind == "share":
        return share_of(text, where, "70%")
    if column.kind == "seconds":
        is_bare = re.fullmatch(r"[\d.]+(?:[eE][+-]?\d+)?", text) and name.endswith("_s")
        return number_of(text, f"{where}: {text!r}") if is_bare else parse_quantity(text, "time")
    unit = _TOKENS if column.name.startswith("tokens_per_s") else _UNITS.get(column.kind, "$^")
    return number_of(re.sub(unit, "", text), f"{where}: {text!r}")


_ENDS = {column.of: column.name for column in COLUMNS.values() if column.of.endswith((".low", ".high"))}
"""Columns of interval ends, by the figures that they read."""
_BY_HEADING = {column.heading.partition(" (")[0].lower(): column for column in reversed(COLUMNS.values()) if column.of.endswith(".mean")}
"""Columns of estimates by their headings, such as "efficiency"; of several with one heading the first."""


def judged(requirements: Iterable[Requirement], result: Result) -> tuple[list[str], list[str]]:
    """Return sentences on requirements that a result misses, and on those that only its mean meets."""
    row = result.row()
    verdicts = [requirement.judge(row) for requirement in requirements]
    return [text for met, text in verdicts if not met], [text for met, text in verdicts if met and text]
