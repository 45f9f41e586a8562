"""Scores and rows as words and numbers: the same in the terminal, on the page and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from calibrate.validation.comparison import Compared
from calibrate.validation.validation import Score, Validation
from paceline.reporting.validation.content import Table
from simulator.text import clean, format_number

__all__ = ["NONE", "facts_of", "rows_table", "scores_table", "share", "signed", "summaries", "summary"]

NONE = "–"
"""In place of what was not measured."""
_MOST_LISTED = 4


def signed(value: float, digits: int = 1) -> str:
    """A signed share: ``"+1.8%"``, ``"−12%"``."""
    text = f"{abs(value):.{digits}%}" if abs(value) < 0.0995 else f"{abs(value):.0%}"
    zero = not any(letter in "123456789" for letter in text)
    return text if zero else f"{'+' if value > 0 else '−'}{text}"


def share(value: float | None, digits: int = 1) -> str:
    """A share that has no sign; a dash for none."""
    if value is None:
        return NONE
    return f"{value:.{digits}%}" if abs(value) < 0.0995 else f"{value:.0%}"


def _plain(value: float | None, *, sign: bool = False) -> str:
    if value is None:
        return NONE
    text = f"{abs(value):.2f}"
    return text if not sign or text == "0.00" else f"{'+' if value > 0 else '−'}{text}"


def facts_of(score: Score, baselines: Sequence[str] = ()) -> dict[str, str]:
    """Every measure of a score by its name, in the order in which they are read."""
    ratio = score.width_over_noise
    facts = {
        "settings": f"{score.settings:,}",
        "median error (bias)": signed(score.median_error),
        "median size of error": share(score.median_absolute_error),
        "worst error": signed(score.worst_error),
        "worst setting": score.worst_setting,
        "noise floor": share(score.noise_floor),
        "inside 90% interval": f"{score.inside:.0%}",
        "interval width": share(score.median_relative_width),
        "width over noise": NONE if ratio is None else f"{ratio:.1f}",
        "interval score": share(score.median_interval_score),
        "staleness error": _plain(score.median_absolute_staleness_error),
        "worst staleness error": _plain(score.worst_staleness_error, sign=True),
        "worst staleness distance": _plain(score.worst_staleness_distance),
    }
    for name in baselines:
        worst = score.worst_of_baselines.get(name)
        facts |= {name: share(score.baselines.get(name)), f"{name}, worst": NONE if worst is None else signed(worst)}
    return facts


def baselines_of(validation: Validation) -> list[str]:
    """Names of the simpler rules that some score has."""
    return sorted({name for score in validation.scores for name in score.baselines})


def scores_table(validation: Validation) -> Table:
    """A row a measure, a column a group; measures that no group has are left out."""
    held = [facts_of(score, baselines_of(validation)) for score in validation.scores]
    names = [name for name in (held[0] if held else {}) if any(facts[name] != NONE for facts in held)]
    text = (
        "Of throughput, over the settings that took no part in the fit. Errors are predicted over measured, less one; interval widths and "
        "scores are shares of what was measured; errors of staleness are in updates."
    )
    if rules := baselines_of(validation):
        text += f" Last, what simpler rules give ({', '.join(rules)}): the median size of their errors, and the worst one."
    rows = tuple((name, *(facts[name] for facts in held)) for name in names)
    return Table("Scores", ("measure", *(score.group for score in validation.scores)), rows, text)


def rows_table(validation: Validation) -> Table:
    """A row a setting, numbered as in the figures; columns that are empty throughout are left out."""
    several = len({row.unit for row in validation.rows}) > 1
    rules = sorted({name for row in validation.rows for name in row.baselines})
    columns = [
        "",
        "setting",
        "group",
        "measured",
        "repeats",
        "predicted",
        "90% interval",
        "error",
        "noise",
        "staleness",
        "predicted staleness",
    ]
    columns += ["error of staleness", "distance", *rules, "note"]
    cells = [[str(index), *_cells(row, several, rules)] for index, row in enumerate(validation.rows, start=1)]
    kept = [column for column in range(len(columns)) if any(row[column] not in ("", NONE) for row in cells)]
    words = {"setting", "group", "note"}
    unit = "" if several or not validation.rows else f" Throughput in {validation.rows[0].unit}."
    fitted = " A star marks what took part in a fit, which scores leave out." if any(row.fitted for row in validation.rows) else ""
    return Table(
        "Every setting",
        tuple(columns[column] for column in kept),
        tuple(tuple(row[column] for column in kept) for row in cells),
        f"Measured is the mean of the repeats; noise is their relative standard deviation.{unit}{fitted}",
        tuple(place for place, column in enumerate(kept) if columns[column] in words),
    )


def _cells(row: Compared, several: bool, rules: Sequence[str]) -> list[str]:
    unit = f" {row.unit}" if several else ""
    stale = row.staleness_measured
    return [
        f"{row.name} *" if row.fitted else row.name,
        row.group,
        format_number(row.mean, 4) + unit,
        _repeats(row.measured),
        format_number(row.predicted.mean, 4),
        f"{format_number(row.predicted.low)} to {format_number(row.predicted.high)}",
        signed(row.error),
        share(row.noise),
        f"{sum(stale) / len(stale):.2f}" if stale else NONE,
        _plain(row.staleness_predicted),
        _plain(row.staleness_error, sign=True),
        _plain(row.staleness_distance),
        *(signed(row.baseline_error(name)) if name in row.baselines else NONE for name in rules),
        row.note,
    ]


def _repeats(values: Sequence[float]) -> str:
    if len(values) == 1:
        return "1"
    if len(values) <= _MOST_LISTED:
        return "; ".join(format_number(value) for value in values)
    return f"{len(values)}: {format_number(min(values))} to {format_number(max(values))}"


def summary(validation: Validation) -> list[str]:
    """How good, and how sure: two or three sentences of each headline."""
    return [sentence for paragraph in _paragraphs(validation) for sentence in paragraph]


def summaries(validation: Validation) -> list[str]:
    """The same as a paragraph for each headline."""
    return [" ".join(paragraph) for paragraph in _paragraphs(validation)]


def _paragraphs(validation: Validation) -> list[list[str]]:
    if not validation.headlines:
        return [["Every setting took part in the fit, so nothing here tells how good predictions of other settings are."]]
    where = f" ({clean(validation.headline)})" if validation.headline and len(validation.scores) > 1 else ""
    return [_told(score, what, where) for what, score in validation.headlines]


def _told(score: Score, what: str, where: str) -> list[str]:
    worst = clean(score.worst_setting)
    if score.settings == 1:
        of = f" for {what}" if what else ""
        first = f"One setting was predicted{where}{of}: {worst}, off by {signed(score.worst_error)}."
    else:
        first = (
            f"Of {score.settings:,} settings{where}, predicted {what or 'throughput'} is off by {share(score.median_absolute_error)} "
            f"in the median (bias {signed(score.median_error)}), at worst by {signed(score.worst_error)} ({worst})."
        )
    ratio = score.width_over_noise
    width = f"the median width of an interval is {share(score.median_relative_width)} of what was measured"
    noise = (
        "nothing was repeated, so the noise of the measurements is not known"
        if score.noise_floor is None
        else f"repeats scatter by {share(score.noise_floor)}"
        + ("" if ratio is None else f", so an interval is {ratio:.1f} times that noise wide")
    )
    sentences = [first, f"The 90% intervals hold {score.inside:.0%} of what was measured; {width}; {noise}."]
    if score.median_absolute_staleness_error is not None:
        sentences.append(
            f"Mean staleness is off by {_plain(score.median_absolute_staleness_error)} updates in the median, "
            f"at worst by {_plain(score.worst_staleness_error, sign=True)}."
        )
    return sentences
