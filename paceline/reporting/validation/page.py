"""The page of a validation: one HTML file that opens offline, in the manner of the scaling report.

It uses ``templates/validation.html``, and filters and styles of the report (:mod:`paceline.reporting.render`).
"""

from __future__ import annotations

import base64
import csv
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from calibrate.testbed.platform import MACHINE
from calibrate.validation.comparison import Compared, rows_to_csv
from calibrate.validation.validation import Outline, Validation
from paceline.reporting.axes import (
    INK,
    MUTED,
    PAPER,
    Figure,
    band,
    bars,
    figure,
    linear_axis,
    log_axis,
    marker_symbol,
    rows_axis,
    scatter,
    series_colour,
    upright,
    what_scripts_need,
    whiskers,
    workers_axis,
)
from paceline.reporting.render import environment
from paceline.reporting.validation.content import (
    answer_of_validation,
    brief_tables,
    check_document,
    csv_tables,
    details_file,
    place_section,
    rows_table,
    settings_file,
)
from paceline.tables import write_tables
from simulator.base.errors import InputError
from simulator.base.files import EDITED, Output, OutputKind, check_apart, check_folder, csv_kind, has_header, heading_of, marked_kind
from simulator.base.table import Table
from simulator.base.text import clean, format_number, format_share, plot_text, written

_GENERATOR = '<meta name="generator" content="Paceline validate">'
VALIDATION_PAGE = marked_kind("validation page", _GENERATOR)
"""Pages that a new one may replace."""


def write_validation(validation: Validation, out: Path, *, force: bool = False) -> Path:
    """Write the page; one that is there is replaced, with ``force`` also another file.

    Raises
    ------
    InputError
        ``out`` cannot be written, or is something else.
    """
    return Output(out, VALIDATION_PAGE, force=force).write(render_validation(validation))


def render_validation(validation: Validation) -> str:
    """The page as text: the same for the same validation, byte for byte."""
    curves, lines, rows = curves_of(validation), lines_of(validation), validation.rows
    drawn = {"scatter": scatter_figure(validation), "ratios": ratios_figure(lines, validation.groups)} if rows else {}
    if curves:
        drawn["overlay"] = overlay_figure(curves)
    every, single = rows_table(validation), are_settings(lines)
    return (
        environment()
        .get_template("validation.html")
        .render(
            validation=validation,
            answer=answer_of_validation(validation),
            titles=_titles(validation, lines) if rows else {},
            tables=brief_tables(validation),
            details=[_detail(validation, table) for table in validation.details if table.rows],
            every=every,
            parts=[] if single else _parts(validation, every),
            rules=[(clean(rule), RULES[number % len(RULES)][1]) for number, rule in enumerate(rules_of(rows))],
            curves=curves,
            single=single,
            beyond=any(_is_beyond(row) for row in rows),
            cut=is_cut(lines),
            fitted=any(row.fitted for row in rows),
            needed=what_scripts_need(),
            figures=drawn,
            generator=Markup(_GENERATOR),  # noqa: S704
        )
    )


def _detail(validation: Validation, table: Table) -> dict[str, Any]:
    """A further table, and where it is too long to be read, in its place the file that it is, inside the page."""
    if len(table.rows) <= _MOST_ROWS:
        return {"table": table, "file": "", "data": ""}
    name = details_file(validation.key, table)
    content = csv_tables(validation)[name].to_csv().encode()
    return {"table": table, "file": name, "data": f"data:text/csv;charset=utf-8;base64,{base64.b64encode(content).decode()}"}


_MOST_ROWS = 60


def _parts(validation: Validation, every: Table) -> list[Table]:
    """The table of every setting, cut into those of each group and source, with the same numbers."""
    parts: dict[tuple[str, str], list[int]] = {}
    for place, row in enumerate(validation.rows):
        parts.setdefault((row.group, source_of(row)), []).append(place)
    return [
        replace(
            every,
            title=", ".join(filter(None, key)),
            name=f"rows-{number}",
            note="",
            rows=tuple(every.rows[place] for place in places),
        ).without_empty_columns()
        for number, (key, places) in enumerate(parts.items(), start=1)
    ]


def _titles(validation: Validation, lines: Sequence[Line]) -> dict[str, str]:
    """Return what is seen in each figure, of the settings that took no part in a fit where there are any."""
    rows = [row for row in validation.rows if not row.fitted] or validation.rows
    runs, inside = sum(len(row.measured) for row in rows), sum(row.inside for row in rows)
    near = sum(1 / _NEAR <= row.predicted.mean / row.mean <= _NEAR for row in rows)
    scored = [line for line in lines if not any(row.fitted for row in line.rows)] or lines
    medians = [statistics.median(row.error for row in line.rows) for line in scored]
    of = "" if are_settings(lines) else " in the median of each"
    return {
        "overlay": f"{inside:,} of {runs:,} runs lie in the 90% interval",
        "scatter": f"{near:,} of {len(rows):,} settings are predicted within 10%",
        "ratios": f"{inside:,} of {runs:,} runs lie in the 90% interval; errors go from {written(min(medians), 'error')} to "
        f"{written(max(medians), 'error')}{of}",
    }


# -- figures: colours are left as names for the page ---------------------------------------


_SMALLEST_SHOWN = 1e-3
_MOST_CURVES = 7
_SPAN_FOR_LOG = 10.0
_NEAR = 1.1
"""The ratio that the dotted lines mark."""


def scatter_figure(validation: Validation) -> Figure:
    """Predicted against measured: a point a setting, the range of repeats across, the 90% interval up and down."""
    rows = validation.rows
    seen = [value for row in rows for value in (*row.measured, row.predicted.mean, row.predicted.high, _above_zero(row))]
    low, high = min(seen), max(seen)
    logarithmic = high > _SPAN_FOR_LOG * low
    ends = [low / 1.15, high * 1.15] if logarithmic else [0.0, high * 1.08]
    drawn = [
        scatter(
            ends, [end * factor for end in ends], mode="lines", line={"color": MUTED, "width": 1.25, "dash": dash}, hovertext=[text] * 2,
            legendgroup="lines",
        )
        for factor, text, dash in (
            (1.0, "predicted = measured", "solid"), (_NEAR, "10% too fast", "dot"), (1 / _NEAR, "10% too slow", "dot")
        )
    ]  # fmt: skip
    for index, group in enumerate(validation.groups):
        own = [row for row in rows if row.group == group]
        measured, predicted = [row.mean for row in own], [row.predicted.mean for row in own]
        look = series_colour(index), 1.25, 0
        across = whiskers(measured, [min(row.measured) for row in own], [max(row.measured) for row in own], *look)
        up = whiskers(predicted, [_above_zero(row) for row in own], [row.predicted.high for row in own], *look)
        told = [_hover(row) for row in own]
        marker = _marker(index, [(row,) for row in own])
        drawn.append(scatter(measured, predicted, **_named(index, group), hovertext=told, error_x=across, error_y=up, marker=marker))
    units = {row.unit for row in rows}
    unit = plot_text(next(iter(units))) if len(units) == 1 else "each in its own unit"
    axes = {
        f"{name}axis": log_axis([*seen, *ends], f"{title} ({unit})")
        if logarithmic
        else linear_axis(ends[1] / 1.08, f"{title} ({unit})", tickformat="~s" if ends[1] >= 10_000 else "")
        for name, title in (("x", "Measured"), ("y", "Predicted"))
    }
    return figure(drawn, **axes, margin={"l": 56, "r": 12, "t": 12, "b": 48})


def _named(index: int, name: str) -> dict[str, str]:
    return {"name": plot_text(name), "legendgroup": f"s{index}"}


@dataclass(frozen=True)
class Line:
    """One row of the figure of ratios: a setting, or the settings of one source and group together.

    Attributes
    ----------
    name
        What its axis says.
    group
        Index of the group, whose colour it has.
    rows
        One, or several that took part in no fit.
    """

    name: str
    group: int
    rows: tuple[Compared, ...]

    @property
    def single(self) -> bool:
        """Return whether it is of one setting."""
        return len(self.rows) == 1

    @cached_property
    def span(self) -> tuple[float, ...]:
        """Low end, middle and high end of what is drawn as ratios: of a setting its interval; of several 10%, median, 90%, the worst."""
        if self.single:
            (row,) = self.rows
            return row.predicted.low / row.mean, row.predicted.mean / row.mean, row.predicted.high / row.mean
        quantiles = np.quantile([row.predicted.mean / row.mean for row in self.rows], (0.1, 0.5, 0.9))
        return (*quantiles.tolist(), self.worst.error + 1.0)

    @property
    def worst(self) -> Compared:
        """The setting whose error is largest in size."""
        return max(self.rows, key=lambda row: abs(row.error))

    @cached_property
    def by_rules(self) -> dict[str, float]:
        """The median ratio that each simpler rule gives that predicts all its settings."""
        shared = [rule for rule in rules_of(self.rows) if all(rule in row.baselines for row in self.rows)]
        return {rule: statistics.median(row.baselines[rule] / row.mean for row in self.rows) for rule in shared}

    @property
    def told(self) -> str:
        """Return what its point tells: of several settings their errors, and the worst with what is known of it."""
        if self.single:
            return _hover(self.rows[0])
        low, middle, high, *_ = (written(ratio - 1.0, "error") for ratio in self.span)
        lines = [
            f"<b>{plot_text(self.name)}</b>",
            f"median error {middle}, 10% to 90%: {low} to {high}",
            f"worst {written(self.worst.error, 'error')}: {plot_text(self.worst.name)}",
            plot_text(self.worst.note),
        ]
        return "<br>".join(lines if self.worst.note else lines[:-1])


def lines_of(validation: Validation) -> tuple[Line, ...]:
    """Rows of the figure of ratios, group by group: settings, or if these are too many to be read, sources, groups, or all together."""
    rows, groups = validation.rows, validation.groups
    if len(rows) <= _MOST_LINES:
        lines = [Line(f"{row.name} *" if row.fitted else row.name, groups.index(row.group), (row,)) for row in rows]
        return tuple(sorted(lines, key=lambda line: line.group))
    scored = [row for row in rows if not row.fitted] or rows
    ways: tuple[Callable[[Compared], tuple[str, ...]], ...] = (lambda row: (row.group, source_of(row)), lambda row: (row.group,))
    for way in ways:
        sources: dict[tuple[str, ...], list[Compared]] = {}
        for row in scored:
            sources.setdefault(way(row), []).append(row)
        if len(sources) <= _MOST_LINES:
            lines = [Line(_of_several(key, some), groups.index(key[0]), tuple(some)) for key, some in sources.items()]
            return tuple(sorted(lines, key=lambda line: line.group))
    return (Line(_of_several(("all",), scored), 0, tuple(scored)),)


def source_of(row: Compared) -> str:
    """Which table or machine a row is from; empty where that is not known."""
    return str(row.settings.get("table", row.reached.source if row.reached else ""))


def _of_several(names: Sequence[str], rows: Sequence[Compared]) -> str:
    inside, runs = sum(row.inside for row in rows), sum(len(row.measured) for row in rows)
    return f"{', '.join(filter(None, names))}: {inside:,} of {runs:,} inside"


def ratios_figure(lines: Sequence[Line], groups: Sequence[str]) -> Figure:
    """Predicted over measured on a logarithmic axis, a row for each line; its height is in the layout.

    Of a setting the 90% interval as whisker, which is dark where it holds none of the repeats, and behind it the noise of these; of
    several settings the median, 10% to 90% of them as whisker, and the worst as a short line. What simpler rules give stands beside,
    pale. What lies beyond the axis is drawn at its edge.
    """
    edge = edge_of(lines)

    def at(ratio: float) -> float:
        return min(max(ratio, 1 / edge), edge)

    drawn, several = [], "" if are_settings(lines) else " in the median"
    noises = [(place, line.rows[0].noise) for place, line in enumerate(lines)] if are_settings(lines) else []
    noisy = {place: at(1.0 + noise) for place, noise in noises if noise is not None}
    if noisy:
        marker: dict[str, Any] = {"color": "var(--grid)", "line": {"width": 0}}
        widths, lows = [high - 1 / high for high in noisy.values()], [1 / high for high in noisy.values()]
        drawn.append(bars(widths, list(noisy), base=lows, width=1.0, hoverinfo="skip", legendgroup="noise", marker=marker))
    for number, rule in enumerate(rules_of([row for line in lines for row in line.rows])):
        ratios = {place: line.by_rules[rule] for place, line in enumerate(lines) if rule in line.by_rules}
        texts = [
            f"<b>{plot_text(lines[place].name)}</b><br>{plot_text(rule)}: {written(ratio - 1.0, 'error')}{several}"
            for place, ratio in ratios.items()
        ]
        marker = {"symbol": RULES[number % len(RULES)][0], "size": 7, "color": MUTED}
        look = {"name": plot_text(rule), "legendgroup": f"rule{number}", "opacity": 0.6, "marker": marker}
        drawn.append(scatter([at(ratio) for ratio in ratios.values()], list(ratios), hovertext=texts, **look))
    for index, group in enumerate(groups):
        for dark in (False, True):
            own = {
                place: line for place, line in enumerate(lines) if line.group == index and dark == (line.single and not line.rows[0].inside)
            }
            if not own:
                continue
            spans = [[at(ratio) for ratio in line.span] for line in own.values()]
            low, middle, high = ([span[end] for span in spans] for end in range(3))
            common = {**_named(index, group), "hovertext": [line.told for line in own.values()]}
            errors = whiskers(middle, low, high, *((INK, 2.5) if dark else (series_colour(index), 1.5)), 0)
            drawn.append(scatter(middle, list(own), **common, error_x=errors, marker=_marker(index, [line.rows for line in own.values()])))
            if not all(line.single for line in own.values()):
                marker = {"symbol": "line-ns", "size": 9, "line": {"color": series_colour(index), "width": 1.75}}
                drawn.append(scatter([span[-1] if len(span) > 3 else None for span in spans], list(own), marker=marker, **common))
    ticks = [tick for tick in next(some for some in _RATIO_TICKS if edge <= 1.3 * some[-1]) if 1 / edge <= tick <= edge]
    labels = {"tickmode": "array", "tickvals": ticks, "ticktext": [f"{tick:.3g}" for tick in ticks]}
    inside = {"ticklabelposition": "inside top", "tickfont": {"size": 11, "color": INK}, "range": [len(lines) - 0.5, -0.75]}
    return figure(
        drawn,
        barmode="overlay",
        bargap=0.0,
        height=_FRAME_PX + _LINE_PX * len(lines),
        margin={"l": 8, "r": 12, "t": 6, "b": 46},
        shapes=[{**upright(1, color=MUTED), "layer": "below"}],
        xaxis={**log_axis([1 / edge, edge], "Predicted over measured"), **labels, "fixedrange": True},
        yaxis={**rows_axis([_shortened(line.name) for line in lines]), **inside},
    )


def are_settings(lines: Sequence[Line]) -> bool:
    """Return whether each line is of one setting."""
    return all(line.single for line in lines)


def size_of(ratio: float) -> float:
    """How far a ratio is from 1, in either direction."""
    return max(ratio, 1 / ratio) if ratio > 0 else math.inf


def edge_of(lines: Sequence[Line]) -> float:
    """The ratio at the end of the axis, which begins at its inverse: that of what is drawn of predictions, up to :data:`FARTHEST`."""
    return min(FARTHEST, 1.05 * max(_NARROWEST, *(size_of(end) for line in lines for end in line.span)))


def is_cut(lines: Sequence[Line]) -> bool:
    """Return whether something that is drawn lies beyond the axis."""
    return any(size_of(end) > edge_of(lines) for line in lines for end in (*line.span, *line.by_rules.values()))


FARTHEST = 8.0
"""Where the axis ends at most: a wrong unit would leave no room for the others."""
RULES = (
    ("triangle-up-open", "△"),
    ("triangle-down-open", "▽"),
    ("diamond-open", "◇"),
    ("square-open", "□"),
    ("star-open", "☆"),
    ("x-thin-open", "×"),
)
"""The marker of each simpler rule, and the letter that looks like it."""
_NARROWEST = 1.1
_RATIO_TICKS = (
    (0.9, 0.95, 1.0, 1.05, 1.1),
    (0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4),
    (0.5, 0.7, 1.0, 1.4, 2.0),
    (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0),
)
_MOST_LINES = 60
_LINE_PX, _FRAME_PX = 28, 62
_LONGEST_NAME = 54


def rules_of(rows: Sequence[Compared]) -> list[str]:
    """Simpler rules that some rows have predictions of."""
    return sorted({rule for row in rows for rule in row.baselines})


def _marker(index: int, some: Sequence[Sequence[Compared]]) -> dict[str, Any]:
    """Of each point: hollow beyond what was calibrated, as in a report; pale if it took part in a fit."""
    colour = series_colour(index)
    return {
        "symbol": marker_symbol(index),
        "size": 9,
        "color": [PAPER if all(_is_beyond(row) for row in rows) else colour for rows in some],
        "opacity": [0.45 if all(row.fitted for row in rows) else 1.0 for rows in some],
        "line": {"color": colour, "width": 1.75},
    }


def _is_beyond(row: Compared) -> bool:
    return row.reached is not None and row.reached.reach > 0


def _shortened(name: str) -> str:
    """A name as an axis has room for, with its end, which tells settings of a series apart."""
    plain = clean(name, 200)
    if len(plain) <= _LONGEST_NAME:
        return plain
    end = _LONGEST_NAME // 2 - 2
    return f"{plain[: _LONGEST_NAME - end - 1].rstrip()}…{plain[-end:].lstrip()}"


def _hover(row: Compared) -> str:
    """Return what a point of a figure tells."""
    repeats = f"mean of {len(row.measured)}, {format_number(min(row.measured))} to {format_number(max(row.measured))}"
    noise = "" if row.noise is None else f", noise {format_share(row.noise)}"
    unit = plot_text(row.unit)
    lines = [
        f"<b>{plot_text(row.name)}</b>",
        plot_text(row.group),
        f"measured {format_number(row.mean)} {unit}" + (f" ({repeats})" if len(row.measured) > 1 else ""),
        f"predicted {format_number(row.predicted.mean)} {unit}, "
        f"90% {format_number(row.predicted.low)} to {format_number(row.predicted.high)}",
        f"error {written(row.error, 'error')}{noise}",
    ]
    return "<br>".join([*lines, "took part in the fit"] if row.fitted else lines)


def _above_zero(row: Compared) -> float:
    """The interval's low end where a logarithmic axis has a place for it."""
    return max(row.predicted.low, row.predicted.mean * _SMALLEST_SHOWN)


@dataclass(frozen=True)
class Curve:
    """Predictions of one group that differ in the number of workers alone, ascending."""

    index: int
    name: str
    rows: tuple[Compared, ...]


def curves_of(validation: Validation) -> tuple[Curve, ...]:
    """The curves to draw; none where there are too many to tell apart, or no setting names its workers."""
    drawn = [row for row in validation.rows if row.group in validation.overlay]
    if not all(isinstance(row.settings.get("workers"), float) for row in drawn):
        return ()
    others = list(dict.fromkeys(key for row in drawn for key in row.settings if key != "workers"))
    varied = [key for key in others if len({row.settings.get(key) for row in drawn}) > 1]
    several = len({row.group for row in drawn}) > 1
    held: dict[str, list[Compared]] = {}
    for row in drawn:
        parts = [row.group] if several or not varied else []
        parts += [f"{key}: {_plain(row.settings[key])}" for key in varied if key in row.settings]
        held.setdefault(", ".join(parts), []).append(row)
    curves = [
        Curve(index, name, tuple(sorted(rows, key=lambda row: float(row.settings["workers"]))))
        for index, (name, rows) in enumerate(held.items())
    ]
    return tuple(curves) if len(curves) <= _MOST_CURVES else ()


def overlay_figure(curves: Sequence[Curve]) -> Figure:
    """A curve with its 90% interval a group, and every repeat that was measured as a point."""
    drawn, values = [], []
    seen: dict[tuple[float, float], str] = {}
    for curve in curves:
        workers, colour = [float(row.settings["workers"]) for row in curve.rows], series_colour(curve.index)
        low, middle = [_above_zero(row) for row in curve.rows], [row.predicted.mean for row in curve.rows]
        high, texts = [row.predicted.high for row in curve.rows], [_hover(row) for row in curve.rows]
        if len(workers) > 1:
            drawn.append(band(workers, low, high, curve.index, legendgroup=f"s{curve.index}"))
        line, marker = {"color": colour, "width": 2.25}, {"symbol": marker_symbol(curve.index), "size": 8, "color": colour}
        errors = {**whiskers(middle, low, high, colour, 1.25, 5), "visible": len(workers) == 1}
        named = _named(curve.index, curve.name)
        drawn.append(scatter(workers, middle, mode="lines+markers", **named, hovertext=texts, line=line, marker=marker, error_y=errors))
        values += [*low, *middle, *high]
        for row, text in zip(curve.rows, texts, strict=True):
            seen |= {place: text for value in row.measured if (place := (float(row.settings["workers"]), value)) not in seen}
    counts, measured = [workers for workers, _ in seen], [value for _, value in seen]
    cross = {"symbol": "x-thin", "size": 9, "color": PAPER, "line": {"color": INK, "width": 2}}
    drawn.append(scatter(counts, measured, legendgroup="measured", hovertext=list(seen.values()), marker=cross))
    return figure(drawn, xaxis=workers_axis([round(workers) for workers in counts]), yaxis=log_axis([*measured, *values]))


def _plain(value: float | str) -> str:
    return f"{value:g}" if isinstance(value, float) else value


@dataclass(frozen=True)
class ValidationFiles:
    """What is to be written of a validation.

    Attributes
    ----------
    paths
        By the argument that names a file, None where it is not wanted: ``out``, a page; ``markdown``, in which the section of this kind of
        validation is replaced; ``rows``, CSV; and files that somebody else writes beside these.
    tables
        A folder of CSV files, which the section in ``markdown`` then has links to.
    force
        Whether files may be replaced that are something else.
    """

    paths: Mapping[str, Path | None]
    tables: Path | None = None
    force: bool = False
    _tables: dict[str, Output] = field(default_factory=dict, init=False, repr=False)

    def check(self, outlines: Sequence[Outline], reads: Sequence[Path] = ()) -> None:
        """Make sure, before the work, that all can be written and replace nothing of anybody else's.

        Parameters
        ----------
        outlines
            Of each validation that it may become, what its tables are.
        reads
            Files that are read.

        Raises
        ------
        InputError
            One cannot, or two are the same.
        """
        named = [(name, path) for name, path in self.paths.items() if path is not None]
        for name, path in named:
            Output(path, _KINDS[name], force=self.force, argument=name, reads=reads)
        if self.tables is not None:
            check_folder(self.tables, "tables")
            for outline in outlines:
                for name, kind in kinds_of_tables(outline).items():
                    self._tables[name] = Output(self.tables / name, kind, force=self.force, argument="tables", reads=reads)
        if (document := self.paths.get("markdown")) is not None:
            check_document(_document(document), f"`markdown`: {str(document)!r}")
        named += [("tables", output.path) for output in self._tables.values()]
        check_apart((f"`{name}`", path) for name, path in named)

    def write(self, validation: Validation) -> None:
        """Write what was asked for, and :meth:`check` found to be possible, but the files of somebody else; the tables last.

        Raises
        ------
        InputError
            A file cannot be written, or something else has come to lie there.
        """
        made = {} if self.tables is None else csv_tables(validation)
        out, markdown, rows = (self.paths.get(name) for name in ("out", "markdown", "rows"))
        if out is not None:
            write_validation(validation, out, force=self.force)
        if markdown is not None:
            links = {name: Path(os.path.relpath(self._tables[name].path, markdown.parent)).as_posix() for name in made}
            section = place_section(_document(markdown), validation, links if made else None)
            Output(markdown, _KINDS["markdown"], force=self.force, argument="markdown").write(section)
        if rows is not None:
            Output(rows, _KINDS["rows"], force=self.force, argument="rows").write(rows_to_csv(validation.rows))
        write_tables(made, self._tables)


def kinds_of_tables(outline: Outline) -> dict[str, OutputKind]:
    """Return what each file may replace that a table becomes, by its name: of settings, only the validation tells all columns."""
    settings = {settings_file(outline.key, family): _OF_SETTINGS for family in outline.families}
    return settings | {details_file(outline.key, table): csv_kind([column.name for column in table.columns]) for table in outline.details}


_SETTINGS = ["name", "group", "fitted", "unit", "repeats", "measured"]
"""What the heading of a table of settings begins with."""
_OF_SETTINGS = OutputKind("is no table of a validation's settings", lambda path: heading_of(path)[: len(_SETTINGS)] == _SETTINGS)


def _is_markdown(path: Path) -> bool:
    return path.suffix.lower() in (".md", ".markdown") or "<!-- begin paceline validate: " in _document(path)


_KINDS = {
    "out": VALIDATION_PAGE,
    "markdown": OutputKind("is no Markdown file (NAME.md)", _is_markdown, ".md"),
    "rows": OutputKind("holds no such rows", lambda path: has_header(path, next(csv.reader([rows_to_csv(())]))), ".csv"),
    "out_scenario": EDITED,
    "out_matrix": EDITED,
    "platform": MACHINE,
}


def _document(path: Path) -> str:
    """Return what a Markdown file holds so far."""
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except UnicodeDecodeError:
        raise InputError(f"`markdown`: {str(path)!r}: is no text in UTF-8; choose another file") from None
