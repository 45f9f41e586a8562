"""The page of a validation: one HTML file that opens offline, in the manner of the scaling report.

It uses ``templates/validation.html``, and filters and styles of the report (:mod:`paceline.reporting.render`).
"""

from __future__ import annotations

import base64
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup

from calibrate.validation.comparison import Compared
from calibrate.validation.validation import Score, Validation
from paceline.reporting.axes import (
    INK,
    MUTED,
    PAPER,
    band_colour,
    layout,
    linear_axis,
    log_axis,
    marker_symbol,
    series_colour,
    what_scripts_need,
    workers_axis,
)
from paceline.reporting.figures import plain
from paceline.reporting.render import environment
from paceline.reporting.validation.content import brief_tables, csv_tables, details_file, rows_table, scores_table, summaries
from simulator.base.files import Output, marked_kind
from simulator.base.table import Table
from simulator.base.text import NONE, clean, format_number, format_share, listed, plot_text, written

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
    curves, lines = curves_of(validation), lines_of(validation)
    drawn = {"scatter": scatter(validation), "ratios": ratios(lines, validation.groups)} if validation.rows else {}
    if curves:
        drawn["overlay"] = overlay(curves)
    every, tables = rows_table(validation), brief_tables(validation)
    details = [_detail(validation, table) for table in validation.details if table.rows]
    contents = [("ratios", "Predicted over measured")] if validation.rows else []
    contents += [("runs", "Runs that were measured, over what was predicted")] if curves else []
    contents += [("scatter", "Predicted against measured")] if validation.rows else []
    contents += [(f"table-{number}", table.title) for number, table in enumerate(tables, start=1)]
    contents += [(f"detail-{number}", each["table"].title) for number, each in enumerate(details, start=1)]
    contents += [("rows", every.title)] if validation.rows else []
    return (
        environment()
        .get_template("validation.html")
        .render(
            validation=validation,
            summaries=summaries(validation),
            titles=_titles(validation, lines) if validation.rows else {},
            contents=[*contents, ("how-to-read-it", "How to read it")],
            tables=tables,
            details=details,
            every=every,
            parts=[] if are_settings(lines) else _parts(validation, every),
            headlines=[(what, _figures_of(validation, score)) for what, score in validation.headlines],
            groups=[{"index": index, "name": clean(name)} for index, name in enumerate(validation.groups)],
            rules=[(clean(rule), RULES[number % len(RULES)][1]) for number, rule in enumerate(rules_of(validation.rows))],
            curves=[{"index": curve.index, "name": clean(curve.name)} for curve in curves],
            single=are_settings(lines),
            beyond=any(_is_beyond(row) for row in validation.rows),
            cut=is_cut(lines),
            fitted=any(row.fitted for row in validation.rows),
            ratios_px=drawn["ratios"].layout.height if validation.rows else 0,
            needed=what_scripts_need(),
            figures={name: plain(figure) for name, figure in drawn.items()},
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
    its: dict[tuple[str, str], list[int]] = {}
    for place, row in enumerate(validation.rows):
        its.setdefault((row.group, source_of(row)), []).append(place)
    return [
        replace(
            every,
            title=", ".join(filter(None, key)),
            name=f"rows-{number}",
            note="",
            rows=tuple(every.rows[place] for place in places),
        ).without_empty_columns()
        for number, (key, places) in enumerate(its.items(), start=1)
    ]


def _titles(validation: Validation, lines: Sequence[Line]) -> dict[str, str]:
    """What is seen in each figure, of the settings that took no part in a fit where there are any."""
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


_NEAR = 1.1
"""The ratio that the dotted lines mark."""


def _figures_of(validation: Validation, score: Score) -> dict[str, str]:
    """What the cards of a headline show, by the name of the measure; ``simpler``: what simpler rules are off by; ``cause`` of the worst."""
    table = scores_table(Validation("", "", (), (score,)))
    found = dict(zip((column.name for column in table.columns), next(table.texts()), strict=True))
    cause = next((row.note for row in validation.rows if row.name == score.worst_setting and row.error == score.worst_error), "")
    rules = sorted(score.baselines.items(), key=lambda item: item[1])
    return {"noise floor": NONE, **found, "cause": cause, "simpler": listed([f"{name} {format_share(error)}" for name, error in rules])}


# -- figures: colours are left as names for the page ---------------------------------------


_SMALLEST_SHOWN = 1e-3
_MOST_CURVES = 7
_SPAN_FOR_LOG = 10.0


def scatter(validation: Validation) -> go.Figure:
    """Predicted against measured: a point a setting, the range of repeats across, the 90% interval up and down."""
    rows = validation.rows
    seen = [value for row in rows for value in (*row.measured, row.predicted.mean, row.predicted.high, _above_zero(row))]
    low, high = min(seen), max(seen)
    logarithmic = high > _SPAN_FOR_LOG * low
    ends = [low / 1.15, high * 1.15] if logarithmic else [0.0, high * 1.08]
    figure = go.Figure()
    for factor, text, dash in ((1.0, "predicted = measured", "solid"), (1.1, "10% too fast", "dot"), (1 / 1.1, "10% too slow", "dot")):
        figure.add_scatter(
            x=ends,
            y=[end * factor for end in ends],
            mode="lines",
            line={"color": MUTED, "width": 1.25, "dash": dash},
            hoverinfo="text",
            hovertext=[text] * 2,
            legendgroup="lines",
        )
    for index, group in enumerate(validation.groups):
        its = [row for row in rows if row.group == group]
        colour = series_colour(index)
        figure.add_scatter(
            x=[row.mean for row in its],
            y=[row.predicted.mean for row in its],
            mode="markers",
            name=plot_text(group),
            legendgroup=f"s{index}",
            hoverinfo="text",
            hovertext=[_hover(row) for row in its],
            error_x=_bars(colour, [max(row.measured) - row.mean for row in its], [row.mean - min(row.measured) for row in its]),
            error_y=_bars(
                colour, [row.predicted.high - row.predicted.mean for row in its], [row.predicted.mean - _above_zero(row) for row in its]
            ),
            marker=_marker(index, [(row,) for row in its]),
        )
    units = {row.unit for row in rows}
    unit = plot_text(next(iter(units))) if len(units) == 1 else "each in its own unit"
    axes = {name: _axis(seen, ends, f"{name} ({unit})", logarithmic=logarithmic) for name in ("Measured", "Predicted")}
    figure.update_layout(layout(xaxis=axes["Measured"], yaxis=axes["Predicted"], margin={"l": 56, "r": 12, "t": 12, "b": 48}))
    return figure


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


def lines_of(validation: Validation) -> tuple[Line, ...]:
    """Rows of the figure of ratios, group by group: settings, or if these are too many to be read, sources, groups, or all together."""
    rows, groups = validation.rows, validation.groups
    if len(rows) <= _MOST_LINES:
        found = [Line(f"{row.name} *" if row.fitted else row.name, groups.index(row.group), (row,)) for row in rows]
        return tuple(sorted(found, key=lambda line: line.group))
    scored = [row for row in rows if not row.fitted] or rows
    ways: tuple[Callable[[Compared], tuple[str, ...]], ...] = (lambda row: (row.group, source_of(row)), lambda row: (row.group,))
    for way in ways:
        its: dict[tuple[str, ...], list[Compared]] = {}
        for row in scored:
            its.setdefault(way(row), []).append(row)
        if len(its) <= _MOST_LINES:
            lines = [Line(_of_several(key, some), groups.index(key[0]), tuple(some)) for key, some in its.items()]
            return tuple(sorted(lines, key=lambda line: line.group))
    return (Line(_of_several(("all",), scored), 0, tuple(scored)),)


def source_of(row: Compared) -> str:
    """Which table or machine a row is from; empty where that is not known."""
    return str(row.settings.get("table", row.reached.source if row.reached else ""))


def _of_several(names: Sequence[str], rows: Sequence[Compared]) -> str:
    inside, runs = sum(row.inside for row in rows), sum(len(row.measured) for row in rows)
    return f"{', '.join(filter(None, names))}: {inside:,} of {runs:,} inside"


def ratios(lines: Sequence[Line], groups: Sequence[str]) -> go.Figure:
    """Predicted over measured on a logarithmic axis, a row for each line; its height is in the layout.

    Of a setting the 90% interval as whisker, which is dark where it holds none of the repeats, and behind it the noise of these; of
    several settings the median, 10% to 90% of them as whisker, and the worst as a short line. What simpler rules give stands beside,
    pale. What lies beyond the axis is drawn at its edge.
    """
    edge = edge_of(lines)
    figure = go.Figure()
    if are_settings(lines):
        _add_noise(figure, lines, edge)
    _add_rules(figure, lines, edge)
    for index, group in enumerate(groups):
        its = [(place, line) for place, line in enumerate(lines) if line.group == index]
        missed = [place for place, line in its if len(line.rows) == 1 and not line.rows[0].inside]
        _add_lines(figure, {place: line for place, line in its if place not in missed}, edge, group, series_colour(index))
        _add_lines(figure, {place: line for place, line in its if place in missed}, edge, group, INK)
    ticks = [tick for tick in next(some for some in _RATIO_TICKS if edge <= 1.3 * some[-1]) if 1 / edge <= tick <= edge]
    figure.update_layout(
        layout(
            barmode="overlay",
            bargap=0.0,
            height=_FRAME_PX + _LINE_PX * len(lines),
            margin={"l": 8, "r": 12, "t": 6, "b": 46},
            shapes=[
                {
                    "type": "line",
                    "x0": 1,
                    "x1": 1,
                    "xref": "x",
                    "y0": 0,
                    "y1": 1,
                    "yref": "paper",
                    "layer": "below",
                    "line": {"color": MUTED, "width": 1},
                }
            ],
            xaxis={
                **log_axis([1 / edge, edge], "Predicted over measured"),
                "tickmode": "array",
                "tickvals": ticks,
                "ticktext": [f"{tick:.3g}" for tick in ticks],
                "fixedrange": True,
            },
            yaxis={
                "range": [len(lines) - 0.5, -0.75],
                "fixedrange": True,
                "showgrid": False,
                "zeroline": False,
                "tickmode": "array",
                "tickvals": list(range(len(lines))),
                "ticktext": [plot_text(_shortened(line.name)) for line in lines],
                "ticklabelposition": "inside top",
                "tickfont": {"size": 11, "color": INK},
            },
        )
    )
    return figure


def are_settings(lines: Sequence[Line]) -> bool:
    """Whether each line is of one setting."""
    return all(len(line.rows) == 1 for line in lines)


def size_of(ratio: float) -> float:
    """How far a ratio is from 1, in either direction."""
    return max(ratio, 1 / ratio) if ratio > 0 else math.inf


def edge_of(lines: Sequence[Line]) -> float:
    """The ratio at the end of the axis, which begins at its inverse: that of what is drawn of predictions, up to :data:`FARTHEST`."""
    return min(FARTHEST, 1.05 * max(_NARROWEST, *(size_of(end) for line in lines for end in _span(line))))


def is_cut(lines: Sequence[Line]) -> bool:
    """Whether something that is drawn lies beyond the axis."""
    edge = edge_of(lines)
    return any(size_of(end) > edge for line in lines for end in (*_span(line), *_of_rules(line).values()))


def _at(ratio: float, edge: float) -> float:
    return min(max(ratio, 1 / edge), edge)


def _add_noise(figure: go.Figure, lines: Sequence[Line], edge: float) -> None:
    """The noise of each setting's repeats, behind what is drawn of it."""
    noisy = [(place, _at(1.0 + line.rows[0].noise, edge)) for place, line in enumerate(lines) if line.rows[0].noise is not None]
    if noisy:
        figure.add_bar(
            x=[high - 1 / high for _, high in noisy],
            base=[1 / high for _, high in noisy],
            y=[place for place, _ in noisy],
            orientation="h",
            width=1.0,
            hoverinfo="skip",
            legendgroup="noise",
            marker={"color": "var(--grid)", "line": {"width": 0}},
        )


def _add_rules(figure: go.Figure, lines: Sequence[Line], edge: float) -> None:
    """What simpler rules give, pale."""
    for number, rule in enumerate(rules_of([row for line in lines for row in line.rows])):
        its = [(place, line, _of_rules(line)[rule]) for place, line in enumerate(lines) if rule in _of_rules(line)]
        several = "" if are_settings(lines) else " in the median"
        figure.add_scatter(
            x=[_at(ratio, edge) for _, _, ratio in its],
            y=[place for place, _, _ in its],
            mode="markers",
            name=plot_text(rule),
            legendgroup=f"rule{number}",
            hoverinfo="text",
            hovertext=[
                f"<b>{plot_text(line.name)}</b><br>{plot_text(rule)}: {written(ratio - 1.0, 'error')}{several}" for _, line, ratio in its
            ],
            marker={"symbol": RULES[number % len(RULES)][0], "size": 7, "color": MUTED},
            opacity=0.6,
        )


def _of_rules(line: Line) -> dict[str, float]:
    """The median ratio that each rule gives that predicts all settings of a line."""
    shared = [rule for rule in rules_of(line.rows) if all(rule in row.baselines for row in line.rows)]
    return {rule: statistics.median(row.baselines[rule] / row.mean for row in line.rows) for rule in shared}


def _add_lines(figure: go.Figure, its: Mapping[int, Line], edge: float, group: str, whisker: str) -> None:
    """Lines of a group by their places, with whiskers of a colour."""
    if not its:
        return
    spans = [[_at(ratio, edge) for ratio in _span(line)] for line in its.values()]
    index = next(iter(its.values())).group
    common: dict[str, Any] = {
        "y": list(its),
        "mode": "markers",
        "name": plot_text(group),
        "legendgroup": f"s{index}",
        "hoverinfo": "text",
        "hovertext": [_hover(line.rows[0]) if len(line.rows) == 1 else _hover_of_several(line) for line in its.values()],
    }
    up, down = [high - middle for _, middle, high, *_ in spans], [middle - low for low, middle, *_ in spans]
    figure.add_scatter(
        x=[middle for _, middle, *_ in spans],
        error_x=_bars(whisker, up, down) | {"thickness": 2.5 if whisker == INK else 1.5},
        marker=_marker(index, [line.rows for line in its.values()]),
        **common,
    )
    if any(len(line.rows) > 1 for line in its.values()):
        short = {"symbol": "line-ns", "size": 9, "line": {"color": series_colour(index), "width": 1.75}}
        figure.add_scatter(x=[span[-1] if len(span) > 3 else None for span in spans], marker=short, **common)


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


def _span(line: Line) -> tuple[float, ...]:
    """Low end, middle and high end of what is drawn as ratios: of a setting its interval; of several 10%, median, 90%, and the worst."""
    if len(line.rows) == 1:
        (row,) = line.rows
        return row.predicted.low / row.mean, row.predicted.mean / row.mean, row.predicted.high / row.mean
    low, middle, high = np.quantile([row.predicted.mean / row.mean for row in line.rows], (0.1, 0.5, 0.9)).tolist()
    return low, middle, high, worst_of(line.rows).error + 1.0


def worst_of(rows: Sequence[Compared]) -> Compared:
    """Whose error is largest in size."""
    return max(rows, key=lambda row: abs(row.error))


def _hover_of_several(line: Line) -> str:
    """What a source tells: its errors, and the worst with what is known of it."""
    low, middle, high, *_ = _span(line)
    worst = worst_of(line.rows)
    lines = [
        f"<b>{plot_text(line.name)}</b>",
        f"median error {written(middle - 1.0, 'error')}, 10% to 90%: {written(low - 1.0, 'error')} to {written(high - 1.0, 'error')}",
        f"worst {written(worst.error, 'error')}: {plot_text(worst.name)}",
    ]
    return "<br>".join([*lines, plot_text(worst.note)] if worst.note else lines)


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
    """What a point of a figure tells."""
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


def _bars(colour: str, up: Sequence[float], down: Sequence[float]) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(0.0, value) for value in up],
        "arrayminus": [max(0.0, value) for value in down],
        "color": colour,
        "thickness": 1.25,
        "width": 0,
    }


def _axis(seen: Sequence[float], ends: Sequence[float], title: str, *, logarithmic: bool) -> dict[str, Any]:
    if logarithmic:
        return log_axis([*seen, *ends], title)
    return linear_axis(ends[1] / 1.08, title, tickformat="~s" if ends[1] >= 10_000 else "")


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


def overlay(curves: tuple[Curve, ...]) -> go.Figure:
    """A curve with its 90% interval a group, and every repeat that was measured as a point."""
    figure = go.Figure()
    for curve in curves:
        workers = [float(row.settings["workers"]) for row in curve.rows]
        colour = series_colour(curve.index)
        low = [max(row.predicted.low, row.predicted.mean * _SMALLEST_SHOWN) for row in curve.rows]
        high = [row.predicted.high for row in curve.rows]
        if len(workers) > 1:
            figure.add_scatter(
                x=workers + workers[::-1],
                y=high + low[::-1],
                mode="lines",
                fill="toself",
                fillcolor=band_colour(curve.index),
                line={"width": 0, "color": band_colour(curve.index)},
                hoverinfo="skip",
                legendgroup=f"s{curve.index}",
            )
        figure.add_scatter(
            x=workers,
            y=[row.predicted.mean for row in curve.rows],
            mode="lines+markers",
            name=plot_text(curve.name),
            legendgroup=f"s{curve.index}",
            hoverinfo="text",
            hovertext=[_hover(row) for row in curve.rows],
            line={"color": colour, "width": 2.25},
            marker={"symbol": marker_symbol(curve.index), "size": 8, "color": colour},
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [top - row.predicted.mean for top, row in zip(high, curve.rows, strict=True)],
                "arrayminus": [row.predicted.mean - bottom for bottom, row in zip(low, curve.rows, strict=True)],
                "color": colour,
                "thickness": 1.25,
                "width": 5,
                "visible": len(workers) == 1,
            },
        )
    seen: dict[tuple[float, float], str] = {}
    for curve in curves:
        for row in curve.rows:
            for value in row.measured:
                seen.setdefault((float(row.settings["workers"]), value), _hover(row))
    figure.add_scatter(
        x=[workers for workers, _ in seen],
        y=[value for _, value in seen],
        mode="markers",
        legendgroup="measured",
        hoverinfo="text",
        hovertext=list(seen.values()),
        marker={"symbol": "x-thin", "size": 9, "color": PAPER, "line": {"color": INK, "width": 2}},
    )
    counts = [round(workers) for workers, _ in seen]
    values = [value for _, value in seen] + [
        end for curve in curves for row in curve.rows for end in (row.predicted.high, row.predicted.mean)
    ]
    values += [max(row.predicted.low, row.predicted.mean * _SMALLEST_SHOWN) for curve in curves for row in curve.rows]
    figure.update_layout(layout(xaxis=workers_axis(counts), yaxis=log_axis(values)))
    return figure


def _plain(value: float | str) -> str:
    return f"{value:g}" if isinstance(value, float) else value
