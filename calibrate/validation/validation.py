"""A validation of any kind: rows, scores by group and in all over what took part in no fit, and thresholds for them.

The fields of :class:`Thresholds` are options of ``paceline validate``, named in ``paceline/cli/commands/validating.py`` too. One row is
in comparison.py; pages, Markdown and JSON are made in ``paceline.reporting.validation``.
"""

from __future__ import annotations

import math
import os
import platform
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar

from pydantic import Field

from calibrate.validation.comparison import Compared
from simulator.base.errors import InputError
from simulator.base.spec import Spec
from simulator.base.table import Cell, Column, Table, Tabular
from simulator.base.text import Kind, counted, did_you_mean, format_change, format_share, written
from simulator.base.units import share_of

ALL = "all"
"""Name of the score over all groups, where nothing else is said."""
_LIMIT: Kind = "limit_share"
_SMALL = 0.01
"""Size below which an error is not worth a line."""


class Score(Spec):
    """Of one group, or of all; None where nothing was measured that it could be computed from."""

    group: str
    settings: int = Field(description="settings outside the fit")
    median_error: float = Field(description="median of the signed relative errors of throughput: the bias")
    median_absolute_error: float
    worst_error: float = Field(description="signed error of largest magnitude")
    worst_setting: str
    noise_floor: float | None = Field(description="relative standard deviation of repeats, pooled over settings")
    inside: float = Field(description="share of repeats inside the 90% interval")
    median_relative_width: float
    median_interval_score: float
    worst_staleness_error: float | None = Field(description="largest error in magnitude, signed: predicted minus measured mean")
    median_absolute_staleness_error: float | None
    worst_staleness_distance: float | None
    baselines: dict[str, float] = Field(default_factory=dict, description="median absolute error of simpler rules")
    worst_of_baselines: dict[str, float] = Field(default_factory=dict, description="their signed error of largest magnitude")

    @property
    def width_over_noise(self) -> float | None:
        """Median width of the intervals over the noise floor of repeats (3.3 for a normal one without any other doubt)."""
        return self.median_relative_width / self.noise_floor if self.noise_floor else None


class Thresholds(Spec):
    """Thresholds for every score of a validation; what is left out is not checked."""

    max_median: float | None = Field(default=None, ge=0, description="median absolute error of throughput, as a share")
    max_worst: float | None = Field(default=None, ge=0, description="largest absolute error of throughput, as a share")
    max_staleness: float | None = Field(default=None, ge=0, description="largest absolute error of mean staleness, in updates")
    max_distance: float | None = Field(default=None, ge=0, le=1, description="largest Kolmogorov distance of staleness distributions")
    min_coverage: float | None = Field(default=None, ge=0, le=1, description="smallest share of repeats inside the 90% interval")

    @property
    def words(self) -> str:
        """All of them; empty if there are none."""
        parts: tuple[tuple[str, float | None, Kind], ...] = (
            ("median error up to {}", self.max_median, _LIMIT),
            ("worst error up to {}", self.max_worst, _LIMIT),
            ("staleness within {} updates", self.max_staleness, "setting"),
            ("staleness distance up to {}", self.max_distance, "setting"),
            ("at least {} inside the 90% interval", self.min_coverage, _LIMIT),
        )
        return ", ".join(text.format(written(value, kind)) for text, value, kind in parts if value is not None)

    def missed(self, score: Score) -> list[str]:
        """One sentence for each threshold that the score misses."""
        stale = score.worst_staleness_error
        checks: tuple[tuple[str, float | None, float | None, Kind, Kind], ...] = (
            ("median error of throughput", score.median_absolute_error, self.max_median, "share", _LIMIT),
            ("worst error of throughput", abs(score.worst_error), self.max_worst, "share", _LIMIT),
            ("worst error of mean staleness", stale and abs(stale), self.max_staleness, "number", "setting"),
            ("worst distance between staleness distributions", score.worst_staleness_distance, self.max_distance, "number", "setting"),
        )
        sentences = [
            f"{what} is {written(value, kind)}, above {written(limit, kind_of_limit)}"
            for what, value, limit, kind, kind_of_limit in checks
            if limit is not None and value is not None and value > limit
        ]
        if self.min_coverage is not None and score.inside < self.min_coverage:
            sentences.append(
                f"{format_share(score.inside)} of repeats are inside the 90% interval, below {written(self.min_coverage, _LIMIT)}"
            )
        return sentences

    def not_to_be_judged(self, scores: Sequence[Score]) -> list[str]:
        """A sentence for each threshold that nothing was measured for: a gate must not pass because there was nothing to see."""
        if self == Thresholds():
            return []
        if not scores:
            return ["no setting was held out, so there is nothing to judge"]
        seen = (
            ("mean staleness", self.max_staleness, any(score.worst_staleness_error is not None for score in scores)),
            ("a distribution of staleness", self.max_distance, any(score.worst_staleness_distance is not None for score in scores)),
        )
        return [
            f"{what} was not both measured and predicted in any setting, so it cannot be judged"
            for what, limit, there in seen
            if limit is not None and not there
        ]


_EXAMPLES = {"max_median": "2%", "max_worst": "6%", "max_staleness": "0.1", "max_distance": "0.1", "min_coverage": "80%"}


def thresholds_of(wanted: Mapping[str, float | str]) -> Thresholds:
    """Thresholds by name, each a number or as a person writes it.

    >>> thresholds_of({"max_median": "2%", "min_coverage": 0.8})
    Thresholds(max_median=0.02, max_worst=None, max_staleness=None, max_distance=None, min_coverage=0.8)

    Raises
    ------
    InputError
        There is no such threshold, or one is no number or out of its range.
    """
    for name in wanted:
        if name not in _EXAMPLES:
            hint = did_you_mean(name, _EXAMPLES, f"there are {', '.join(_EXAMPLES)}", written="`{}`")
            raise InputError(f"`thresholds`: no threshold is named {str(name)[:60]!r}; {hint}")
    texts = {name: value if isinstance(value, str) else f"{value:g}" for name, value in wanted.items()}
    values = {name: share_of(text, f"`{name}`", _EXAMPLES[name]) for name, text in texts.items()}
    for name in ("max_distance", "min_coverage"):
        if values.get(name, 0.0) > 1:
            raise InputError(f"`{name}`: {texts[name]!r}: must be at most 1 or 100%, such as {_EXAMPLES[name]}")
    return Thresholds(**values)


@dataclass(frozen=True)
class Outline:
    """Names of a validation's table files, known before it is made.

    Attributes
    ----------
    key
        Of the validation.
    families
        Each that there may be rows of; ``""`` where there are no families.
    details
        Its further tables, without rows.
    """

    key: str
    families: tuple[str, ...] = ("",)
    details: tuple[Table, ...] = ()


@dataclass(frozen=True, repr=False)
class Validation(Tabular):
    """Predictions next to measurements, their scores, and how they were made.

    Attributes
    ----------
    key
        Short name, which tells sections of one Markdown file apart: ``points``, ``published``.
    title
        What was validated.
    rows
        In the order of the tables; numbered from 1.
    scores
        As :func:`scores_of` gives them; empty where every setting took part in a fit.
    command, date, machine
        How, when and where it was made.
    about
        Sentences on how the predictions were made.
    notes
        What a reader must know before trusting the numbers.
    tables
        Whatever else there is to show, such as moved parameters.
    details
        Further tables, which are too wide or too long for a terminal, such as exclusions.
    family
        Which rows are in one CSV file, by the family's name; all of them, if left out.
    overlay
        Groups to draw as throughput against workers, measured over predicted.
    headline
        Group whose score the summary tells; the last one if left out.
    apart
        Several headlines in place of one, for errors that are not comparable: the name of the score and what was predicted, in words.
    checked
        Groups whose scores are compared with the thresholds; all scores if left out.
    wanted, missed
        The thresholds that were asked for, in words, and a sentence for each that is missed.
    extra
        What the JSON has besides.
    """

    see: ClassVar[str] = "to_frame() has every setting, .scores every group, .notes the remarks"

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
    details: tuple[Table, ...] = ()
    family: Callable[[Compared], str] | None = None
    overlay: tuple[str, ...] = ()
    headline: str = ""
    apart: tuple[tuple[str, str], ...] = ()
    checked: tuple[str, ...] = ()
    wanted: str = ""
    missed: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def _in_short(self) -> Iterator[str]:
        yield self.title
        yield counted(len(self.rows), "setting")
        for what, score in self.headlines:
            worst = f"median error {format_share(score.median_absolute_error)}, worst {format_change(score.worst_error)}"
            yield f"{f'{what}: ' if what else ''}{worst}, {format_share(score.inside)} of runs inside the 90% interval"
        yield f"{counted(len(self.missed), 'threshold')} missed" if self.missed else ""

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

    def made_by(self, command: str) -> Validation:
        """The same, made by a command, now and on this machine."""
        return replace(self, command=command, date=datetime.now().astimezone().isoformat(sep=" ", timespec="minutes"), machine=_machine())

    def judged(self, thresholds: Thresholds) -> Validation:
        """The same with every score, or those of chosen groups, compared with thresholds."""
        checked = [score for score in self.scores if not self.checked or score.group in self.checked]
        several = len(self.scores) > 1
        missed = [f"{score.group}: {line}" if several else line for score in checked for line in thresholds.missed(score)]
        return replace(self, wanted=thresholds.words, missed=(*missed, *thresholds.not_to_be_judged(checked)))

    def table(self) -> Table:
        """A row for each setting: throughput measured and predicted, errors, noise, staleness."""
        return Table.of([_cells(row) for row in self.rows], "Every setting", name="rows")

    def by_family(self) -> dict[str, Validation]:
        """The rows of each family, in the order in which families first appear."""
        if self.family is None:
            return {"": self}
        return {name: replace(self, rows=tuple(rows)) for name, rows in _grouped(self.rows, self.family).items()}

    def _repr_html_(self) -> str:
        rows: list[dict[str, Cell]] = [{"group": score.group, **{name: getattr(score, name) for name in _SHOWN}} for score in self.scores]
        return Table.of(rows, self.title).without_empty_columns().to_html()


_SHOWN = (
    "settings",
    "median_error",
    "median_absolute_error",
    "worst_error",
    "worst_setting",
    "noise_floor",
    "inside",
    "median_relative_width",
)
"""Of a score, in a notebook."""


def _cells(row: Compared) -> dict[str, Cell]:
    staleness = row.staleness_measured
    return {
        "name": row.name,
        "group": row.group,
        "fitted": row.fitted,
        "unit": row.unit,
        "repeats": len(row.measured),
        "measured": row.mean,
        "measured_each": " ".join(f"{value:.6g}" for value in row.measured) if len(row.measured) > 1 else None,
        "predicted": row.predicted.mean,
        "low": row.predicted.low,
        "high": row.predicted.high,
        "error": row.error,
        "noise": row.noise,
        "repeats_inside": row.inside,
        "interval_score": row.interval_score,
        "staleness_measured": statistics.fmean(staleness) if staleness else None,
        "staleness_predicted": row.staleness_predicted,
        "staleness_error": row.staleness_error,
        "staleness_distance": row.staleness_distance,
        "note": row.note,
        **{f"settings.{name}": value for name, value in row.settings.items()},
        **{f"baselines.{name}": value for name, value in row.baselines.items()},
    }


def _machine() -> str:
    """Processor, cores and Python of this machine, in words."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass  # not Linux
    cores = os.cpu_count() or 1
    return f"{name}, {cores} core{'s' if cores > 1 else ''}, Python {platform.python_version()}"


def scores_of(rows: Iterable[Compared], total: str = ALL) -> list[Score]:
    """A score for each group, in the order in which groups first appear, then one for all if there are several.

    Settings that took part in the fit are left out; a group with no others has no score.

    Parameters
    ----------
    rows
        Rows with comparable errors: one score of throughputs and bandwidths together would be meaningless.
    total
        Name of the score for all.
    """
    groups = _grouped((row for row in rows if not row.fitted), lambda row: row.group)
    scores = [_score(group, members) for group, members in groups.items()]
    if len(groups) > 1:
        scores.append(_score(total, [row for members in groups.values() for row in members]))
    return scores


def _grouped(rows: Iterable[Compared], name_of: Callable[[Compared], str]) -> dict[str, list[Compared]]:
    """Rows by a name, in the order in which names first appear."""
    groups: dict[str, list[Compared]] = {}
    for row in rows:
        groups.setdefault(name_of(row), []).append(row)
    return groups


def largest_errors(rows: Iterable[Compared], of: str = "", *, most: int = 6, of_a_series: int | None = None) -> Table:
    """The largest errors of rows that took part in no fit, with what is known of them.

    Parameters
    ----------
    rows
        Rows with comparable errors.
    of
        What they are of, for the title.
    most
        How many are shown.
    of_a_series
        How many may be of one series, whose name is that of the row up to the first colon or comma.
    """
    columns = (
        Column("setting", "text"),
        Column("group", "text"),
        Column("measured", "number"),
        Column("predicted", "number"),
        Column("error", "error"),
        Column("note", "text", "what is known about it"),
    )
    shown: list[Compared] = []
    of_series: Counter[str] = Counter()
    for row in sorted((row for row in rows if not row.fitted), key=lambda row: -abs(row.error)):
        series = re.split("[:,]", row.name)[0]
        of_series[series] += 1
        if abs(row.error) >= _SMALL and (of_a_series is None or of_series[series] <= of_a_series):
            shown.append(row)
    cells = tuple((row.name, row.group, row.mean, row.predicted.mean, row.error, row.note or None) for row in shown[:most])
    note = "" if of_a_series is None else f"At most {of_a_series} per series."
    title = f"The largest errors{f', {of}' if of else ''}"
    return Table(title, columns, cells, "worst", note).without_empty_columns()


def _score(group: str, rows: Sequence[Compared]) -> Score:
    worst = max(rows, key=lambda row: abs(row.error))
    stale = [error for row in rows if (error := row.staleness_error) is not None]
    distances = [row.staleness_distance for row in rows if row.staleness_distance is not None]
    shared = set.intersection(*(set(row.baselines) for row in rows))
    return Score(
        group=group,
        settings=len(rows),
        median_error=statistics.median(row.error for row in rows),
        median_absolute_error=statistics.median(abs(row.error) for row in rows),
        worst_error=worst.error,
        worst_setting=worst.name,
        noise_floor=_noise_floor(rows),
        inside=sum(row.inside for row in rows) / sum(len(row.measured) for row in rows),
        median_relative_width=statistics.median(row.relative_width for row in rows),
        median_interval_score=statistics.median(row.interval_score for row in rows),
        worst_staleness_error=max(stale, key=abs) if stale else None,
        median_absolute_staleness_error=statistics.median(map(abs, stale)) if stale else None,
        worst_staleness_distance=max(distances) if distances else None,
        baselines={name: statistics.median(abs(row.baseline_error(name)) for row in rows) for name in sorted(shared)},
        worst_of_baselines={name: max((row.baseline_error(name) for row in rows), key=abs) for name in sorted(shared)},
    )


def _noise_floor(rows: Sequence[Compared]) -> float | None:
    """Root mean square of the settings' relative standard deviations, each with its degrees of freedom."""
    freedom = sum(len(row.measured) - 1 for row in rows)
    if not freedom:
        return None
    return math.sqrt(math.fsum((row.noise or 0.0) ** 2 * (len(row.measured) - 1) for row in rows) / freedom)
