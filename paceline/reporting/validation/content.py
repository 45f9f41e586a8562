"""What a validation says: a summary, its scores and settings as tables, a section of Markdown, files of CSV, and JSON.

:func:`as_data` is what ``paceline validate --json`` prints. A section is found again by ``<!-- begin paceline validate: KEY -->``.
Scores are computed in :mod:`calibrate.validation.validation`.
"""

from __future__ import annotations

import html
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote

from calibrate.validation.against_points import AS_GIVEN, LEFT_OUT, OUTLINE
from calibrate.validation.comparison import Compared
from calibrate.validation.validation import Score, Validation
from paceline.answers import Answer, Figure
from simulator.base.errors import InputError
from simulator.base.table import Column, Table
from simulator.base.text import clean, counted, digits, format_interval, format_number, format_share, sentence, written

_MOST_LISTED, _DIGITS = 4, 8
_ONCE = ("settings.source",)
"""Columns that files leave out: long, the same for all rows of a series, and kept with it in models/published/."""
_MOST_ACROSS = 10
"""Groups that a table of scores has side by side; more stand one below the other."""
_BEGIN = re.compile(r"<!-- begin paceline validate: (.{1,80}?) -->")
_SPECIAL = re.compile(r"([\\`*_\[\]|~#])")


def answer_of_validation(validation: Validation) -> Answer:
    """How good predictions are, how wide their intervals, and what to do about a bias."""
    if not validation.headlines:
        return Answer(headline="Every setting took part in the fit: nothing here was predicted.")
    what, score = validation.headlines[0]
    rules = ", ".join(f"{name} {format_share(error)}" for name, error in sorted(score.baselines.items(), key=lambda rule: rule[1])[:2])
    biased = validation.key == OUTLINE.key and abs(score.median_error) > (score.noise_floor or 0.0)
    refitted = any(column.name == "factor_without" for table in validation.tables for column in table.columns)
    next_step = "`--refit` fits the scenario to these runs" if biased else ""
    next_step = "`--out-scenario FILE.toml` writes the refitted scenario" if refitted else next_step
    missed = [f"threshold missed: {line}" for line in validation.missed]
    return Answer(
        headline=_headline(validation, what, score),
        figures=tuple(_figures(score)),
        confidence=f"median error of simpler rules: {rules}" if rules else "",
        watch_out="; ".join([*missed, *(note.rstrip(".") for note in validation.notes)][:2]),
        next=next_step,
        met=not validation.missed if validation.wanted else None,
        heading="value",
    )


def _headline(validation: Validation, what: str, score: Score) -> str:
    before = next((other for other in validation.scores if other.group == AS_GIVEN), None)
    if score.group == LEFT_OUT and before is not None:
        errors = (f"{format_share(each.median_absolute_error)} {when}" for each, when in ((before, "before"), (score, "after")))
        return f"Refit: median error {', '.join(errors)} (each run predicted from the others)."
    of = f" of {what}" if what else ""
    where = f" ({clean(validation.headline)})" if validation.headline and len(validation.scores) > 1 else ""
    return (
        f"{counted(score.settings, 'setting')} predicted{of}{where}: median error {format_share(score.median_absolute_error)}, "
        f"{format_share(score.inside)} of runs inside the 90% interval."
    )


def _figures(score: Score) -> Iterator[Figure]:
    median, bias = format_share(score.median_absolute_error), written(score.median_error, "error")
    if bias.lstrip("+-") == median:
        yield Figure("median error", bias, note=f"mostly too {'fast' if score.median_error > 0 else 'slow'}")
    else:
        yield Figure("median error", median, note=f"bias {bias}")
    yield Figure("worst error", written(score.worst_error, "error"), note=clean(score.worst_setting))
    yield Figure("inside", format_share(score.inside), note="of runs, in the 90% interval")
    yield Figure("width", format_share(score.median_relative_width), note="of the interval, of what was measured")
    if score.noise_floor is not None:
        yield Figure("noise", format_share(score.noise_floor), note="scatter of repeats")
    if score.median_absolute_staleness_error is not None:
        yield Figure("staleness", written(score.median_absolute_staleness_error, "updates"), note="updates, median error")


def summary(validation: Validation) -> list[str]:
    """Return accuracy and coverage: a headline for each measure, and its figures as a sentence."""
    if not validation.headlines:
        return [answer_of_validation(validation).headline]
    return [text for what, score in validation.headlines for text in (_headline(validation, what, score), _in_words(score))]


def _in_words(score: Score) -> str:
    return sentence("; ".join(f"{figure.what} {figure.mean} ({figure.note})" for figure in _figures(score)))


def brief_tables(validation: Validation) -> tuple[Table, ...]:
    """Those that are read to their end."""
    scores = scores_table(validation)
    if len(scores.rows) > _MOST_ACROSS:
        # which settings they are stands with the largest errors
        scores = scores.only(*(column.name for column in scores.columns if column.name != "worst setting"))
    else:
        scores = scores.transposed("measure")
    return (*((scores,) if validation.scores else ()), *(table for table in validation.tables if table.rows))


def csv_tables(validation: Validation) -> dict[str, Table]:
    """Return what becomes a file each, by the file's name: the settings of each family, and the tables that are too long to read.

    Numbers have eight digits: fits end in others from machine to machine.
    """
    tables: dict[str, Table] = {}
    for family, part in validation.by_family().items():
        table = part.table().without_empty_columns()
        table = table.only(*(column.name for column in table.columns if column.name not in _ONCE))
        tables[settings_file(validation.key, family)] = replace(table, title=f"Every setting{f', {family}' if family else ''}")
    for table in validation.details:
        tables[details_file(validation.key, table)] = table
    return {
        name: replace(
            table, rows=tuple(tuple(digits(cell, _DIGITS) if isinstance(cell, float) else cell for cell in row) for row in table.rows)
        )
        for name, table in tables.items()
    }


def settings_file(key: str, family: str) -> str:
    """The name of the CSV file of a family's settings, by the key of the validation."""
    return "-".join(filter(None, (key, re.sub(r"[^a-z0-9]+", "-", family.lower()).strip("-")))) + ".csv"


def details_file(key: str, table: Table) -> str:
    """The name of the CSV file of a further table, by the key of the validation."""
    return f"{key}-{table.name}.csv"


def scores_table(validation: Validation) -> Table:
    """A row for each group, a column for each measure; measures that no group has are left out."""
    rules = sorted({name for score in validation.scores for name in score.baselines})
    columns = [*_MEASURES, *(column for rule in rules for column in _of_rule(rule))]
    note = (
        "Of throughput, over the settings that took no part in the fit. Errors are predicted over measured, less one; interval widths and "
        "scores are shares of what was measured; errors of staleness are in updates."
    )
    if rules:
        note += f" Last, what simpler rules give ({', '.join(rules)}): the median size of their errors, and the worst one."
    return Table.reading("Scores", columns, validation.scores, "scores", note).without_empty_columns()


_MEASURES = (
    Column("group", "text"),
    Column("settings", "count"),
    Column("median error (bias)", "error", of="median_error"),
    Column("median size of error", "share", of="median_absolute_error"),
    Column("worst error", "error", of="worst_error"),
    Column("worst setting", "text", of="worst_setting"),
    Column("noise floor", "share", of="noise_floor"),
    Column("inside 90% interval", "share", of="inside"),
    Column("interval width", "share", of="median_relative_width"),
    Column("width over noise", "number", of="width_over_noise"),
    Column("interval score", "share", of="median_interval_score"),
    Column("staleness error", "updates", of="median_absolute_staleness_error"),
    Column("worst staleness error", "difference", of="worst_staleness_error"),
    Column("worst staleness distance", "updates", of="worst_staleness_distance"),
)


def _of_rule(rule: str) -> tuple[Column, Column]:
    """Return what a simpler rule gives: the median size of its errors, and the worst one."""
    return (
        Column(rule, "share", by=lambda score: score.baselines.get(rule)),
        Column(f"{rule}, worst", "error", by=lambda score: score.worst_of_baselines.get(rule)),
    )


def rows_table(validation: Validation) -> Table:
    """A row for each setting, numbered as in the figures; columns that are empty throughout are left out."""
    rows = validation.rows
    several = len({row.unit for row in rows}) > 1
    rules = sorted({name for row in rows for name in row.baselines})
    columns = [column for column in _OF_ROWS if several or column.name != "unit"]
    columns += [Column(rule, "error", by=partial(_error_of, rule)) for rule in rules]
    unit = "" if several or not rows else f" Throughput in {rows[0].unit}."
    fitted = " A star marks what took part in a fit, which scores leave out." if any(row.fitted for row in rows) else ""
    note = f"Measured is the mean of the repeats; noise is their relative standard deviation.{unit}{fitted}"
    table = Table.reading("Every setting", (*columns, Column("note", "text")), rows, "rows", note)
    numbered = tuple((number, *row) for number, row in enumerate(table.rows, start=1))
    return replace(table, columns=(Column("number", "count", "No."), *table.columns), rows=numbered).without_empty_columns()


_OF_ROWS = (
    Column("setting", "text", by=lambda row: f"{row.name} *" if row.fitted else row.name),
    Column("group", "text"),
    Column("unit", "text"),
    Column("measured", "throughput", of="mean"),
    Column("repeats", "text", left=False, by=lambda row: _repeats(row.measured)),
    Column("predicted", "throughput", of="predicted.mean"),
    Column("90% interval", "text", left=False, short="90%", by=lambda row: format_interval(row.predicted.low, row.predicted.high)),
    Column("error", "error"),
    Column("noise", "share"),
    Column("staleness", "updates", by=lambda row: statistics.fmean(row.staleness_measured) if row.staleness_measured else None),
    Column("predicted staleness", "updates", of="staleness_predicted"),
    Column("error of staleness", "difference", short="stale", of="staleness_error"),
    Column("distance", "updates", of="staleness_distance"),
)


def _error_of(rule: str, row: Compared) -> float | None:
    return row.baseline_error(rule) if rule in row.baselines else None


def _repeats(values: Sequence[float]) -> str:
    if len(values) == 1:
        return "1"
    if len(values) <= _MOST_LISTED:
        return "; ".join(format_number(value) for value in values)
    return f"{len(values)}: {format_interval(min(values), max(values))}"


def section(validation: Validation, links: Mapping[str, str] | None = None) -> str:
    """The validation between two comments that name it, so that it can be found and replaced.

    Parameters
    ----------
    validation
        What is written.
    links
        Where the file of each of :func:`csv_tables` lies; the section then has links in place of
        what these hold.
    """
    parts = [f"## {_text(validation.title)}", *(_text(text, 2000) for text in summary(validation))]
    if validation.wanted:
        met = f"All thresholds are met: {validation.wanted}." if not validation.missed else "Thresholds missed:"
        parts += [_text(met, 600), *(["\n".join(f"- {_text(line, 600)}" for line in validation.missed)] if validation.missed else [])]
    parts += [_text(text, 1000) for text in validation.about]
    tables = brief_tables(validation) if links is not None else (*brief_tables(validation), *validation.details, rows_table(validation))
    parts += [table.to_markdown() for table in tables]
    if links is not None:
        parts += [
            "### Every row, as CSV",
            _ABOUT_FILES,
            "\n".join(_linked(table, links[name]) for name, table in csv_tables(validation).items()),
        ]
    if validation.notes:
        parts += ["### Notes", "\n".join(f"- {_text(note, 1000)}" for note in validation.notes)]
    made = f"{_text(validation.origin, 400)}"
    if validation.command:
        made += f" by `{clean(validation.command, 400).replace('`', chr(39))}`"
    parts.append(f"{made}.")
    begin, end = _marks(validation.key)
    return "\n\n".join([begin, *parts, end]) + "\n"


_ABOUT_FILES = (
    "`measured` is the mean of the repeats, which stand in `measured_each`; `low` and `high` are the 90% interval; `error` is predicted "
    "over measured, less one; `fitted` is 1 where a row took part in a fit, which scores leave out; `baselines.` are what simpler rules "
    "predict, `settings.` facts of the row."
)


def _linked(table: Table, where: str) -> str:
    count = len(table.rows)
    return f"- {_text(table.title)}: [{_text(where.rpartition('/')[2])}]({quote(where)}), {count:,} row{'s' if count != 1 else ''}"


def place_section(document: str, validation: Validation, links: Mapping[str, str] | None = None) -> str:
    """The document with its section of this key replaced, or the section at its end; ``links`` as :func:`section` has them.

    Raises
    ------
    InputError
        The document has the beginning of a section without its end.
    """
    check_document(document)
    begin, end = _marks(validation.key)
    new = section(validation, links)
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


def _text(text: str, longest: int = 120) -> str:
    """Text that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", html.escape(clean(text, longest), quote=False))


def as_data(validation: Validation) -> dict[str, Any]:
    """Rows, scores, thresholds and all that is said, ready to become JSON: numbers in SI units, shares as 0 to 1."""
    return {
        "title": validation.title,
        "command": validation.command,
        "date": validation.date,
        "machine": validation.machine,
        "summary": summary(validation),
        "scores": [{**score.model_dump(mode="json"), "width_over_noise": score.width_over_noise} for score in validation.scores],
        "rows": [{**row.model_dump(mode="json"), **{key: getattr(row, name) for key, name in _DERIVED.items()}} for row in validation.rows],
        "notes": list(validation.notes),
        "thresholds": {"wanted": validation.wanted, "missed": list(validation.missed)},
        **validation.extra,
    }


_DERIVED = {
    "measured_mean": "mean",
    "error": "error",
    "noise": "noise",
    "repeats_inside": "inside",
    "interval_score": "interval_score",
    "staleness_error": "staleness_error",
}
"""What follows of a row from what it holds, under the names of JSON."""
