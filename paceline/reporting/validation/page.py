"""The page of a validation: one HTML file that opens offline, in the manner of the scaling report.

It uses ``templates/validation.html``, and filters and styles of the report (:mod:`paceline.reporting.render`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from paceline.reporting.validation.content import scores_table, summaries, tables_of
from simulator.base.outputs import Output, marked_kind
from simulator.base.text import NONE, clean, format_number, format_share, plot_text, written

__all__ = ["VALIDATION_PAGE", "curves_of", "render_validation", "write_validation"]

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
    curves = curves_of(validation)
    drawn = {"scatter": scatter(validation), "errors": errors(validation)} if validation.rows else {}
    if curves:
        drawn["overlay"] = overlay(curves)
    return (
        environment()
        .get_template("validation.html")
        .render(
            validation=validation,
            summaries=summaries(validation),
            titles=_titles(validation) if validation.rows else {},
            tables=tables_of(validation),
            headlines=[(what, _figures_of(score)) for what, score in validation.headlines],
            groups=[{"index": index, "name": clean(name)} for index, name in enumerate(validation.groups)],
            curves=[{"index": curve.index, "name": clean(curve.name)} for curve in curves],
            beyond=format_share(FARTHEST) if any(row.error > FARTHEST for row in validation.rows) else "",
            errors_px=errors_height(len(validation.rows)),
            needed=what_scripts_need(),
            figures={name: plain(figure) for name, figure in drawn.items()},
            generator=Markup(_GENERATOR),  # noqa: S704
        )
    )


def _titles(validation: Validation) -> dict[str, str]:
    """What is seen in each figure, of the settings that took no part in a fit where there are any."""
    rows = [row for row in validation.rows if not row.fitted] or validation.rows
    runs, inside = sum(len(row.measured) for row in rows), sum(row.inside for row in rows)
    near = sum(1 / _NEAR <= row.predicted.mean / row.mean <= _NEAR for row in rows)
    errors = [row.error for row in rows]
    return {
        "overlay": f"{inside:,} of {runs:,} runs lie in the 90% interval",
        "scatter": f"{near:,} of {len(rows):,} settings are predicted within 10%",
        "errors": f"Errors go from {written(min(errors), 'error')} to {written(max(errors), 'error')}",
    }


_NEAR = 1.1
"""The ratio that the dotted lines mark."""


def _figures_of(score: Score) -> dict[str, str]:
    """What the cards of a headline show, by the name of the measure."""
    table = scores_table(Validation("", "", (), (score,)))
    return dict.fromkeys(("noise floor",), NONE) | dict(zip((column.name for column in table.columns), next(table.texts()), strict=True))


# -- figures: colours are left as names for the page ---------------------------------------


_SMALLEST_SHOWN = 1e-3
_MOST_CURVES = 7
_SPAN_FOR_LOG = 10.0
_MOST_LABELLED = 45
_ROW_PX, _THIN_ROW_PX = 19, 7
_FRAME_PX, _TALLEST_PX = 70, 2400
FARTHEST = 3.0
"""Errors beyond are drawn there: a wrong unit would leave no room for the others."""


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
            marker={
                "symbol": marker_symbol(index),
                "size": 9,
                "color": [PAPER if row.fitted else colour for row in its],
                "line": {"color": colour, "width": 1.75},
            },
        )
    units = {row.unit for row in rows}
    unit = plot_text(next(iter(units))) if len(units) == 1 else "each in its own unit"
    axes = {name: _axis(seen, ends, f"{name} ({unit})", logarithmic=logarithmic) for name in ("Measured", "Predicted")}
    figure.update_layout(layout(xaxis=axes["Measured"], yaxis=axes["Predicted"], margin={"l": 56, "r": 12, "t": 12, "b": 48}))
    return figure


def errors(validation: Validation) -> go.Figure:
    """The signed error of each setting with its interval, group by group; behind it the noise of its repeats."""
    numbered = list(enumerate(validation.rows, start=1))
    ordered = [(number, row) for group in validation.groups for number, row in numbered if row.group == group]
    places = {number: place for place, (number, _) in enumerate(ordered)}
    figure = go.Figure()
    noisy = [(places[number], min(row.noise, FARTHEST)) for number, row in ordered if row.noise is not None]
    if noisy:
        figure.add_bar(
            x=[2 * noise for _, noise in noisy],
            base=[-noise for _, noise in noisy],
            y=[place for place, _ in noisy],
            orientation="h",
            width=1.0,
            hoverinfo="skip",
            legendgroup="noise",
            marker={"color": "var(--grid)", "line": {"width": 0}},
        )
    for index, group in enumerate(validation.groups):
        its = [(places[number], row) for number, row in ordered if row.group == group]
        colour = series_colour(index)
        figure.add_scatter(
            x=[_drawn(row.error) for _, row in its],
            y=[place for place, _ in its],
            mode="markers",
            name=plot_text(group),
            legendgroup=f"s{index}",
            hoverinfo="text",
            hovertext=[_hover(row) for _, row in its],
            error_x=_bars(
                colour,
                [_drawn(row.predicted.high / row.mean - 1.0) - _drawn(row.error) for _, row in its],
                [_drawn(row.error) - _drawn(row.predicted.low / row.mean - 1.0) for _, row in its],
            ),
            marker={
                "symbol": marker_symbol(index),
                "size": 8,
                "color": [PAPER if row.fitted else colour for _, row in its],
                "line": {"color": colour, "width": 1.75},
            },
        )
    labelled = len(ordered) <= _MOST_LABELLED
    ticks = range(0, len(ordered), 1 if labelled else 10)
    ends = [_drawn(end / row.mean - 1.0) for _, row in ordered for end in (row.predicted.low, row.predicted.high, row.predicted.mean)]
    ends += [sign * noise for _, noise in noisy for sign in (1, -1)]
    room = 0.05 * (max(*ends, 0.02) - min(*ends, -0.02))
    figure.update_layout(
        layout(
            barmode="overlay",
            bargap=0.0,
            margin={"l": 40, "r": 16, "t": 10, "b": 48},
            shapes=[
                {"type": "line", "x0": 0, "x1": 0, "xref": "x", "y0": 0, "y1": 1, "yref": "paper", "line": {"color": INK, "width": 1.25}}
            ],
            xaxis={
                **linear_axis(1, "Predicted over measured, less one", tickformat="+.0%"),
                "range": [min(*ends, -0.02) - room, max(*ends, 0.02) + room],
                "fixedrange": True,
            },
            yaxis={
                "range": [len(ordered) - 0.4, -0.6],
                "fixedrange": True,
                "showgrid": False,
                "zeroline": False,
                "tickmode": "array",
                "tickvals": list(ticks),
                "ticktext": [str(ordered[place][0]) for place in ticks],
            },
        )
    )
    return figure


def _drawn(error: float) -> float:
    return min(error, FARTHEST)


def errors_height(rows: int) -> int:
    """Pixels that the figure of errors needs."""
    return min(_TALLEST_PX, max(180, _FRAME_PX + rows * (_ROW_PX if rows <= _MOST_LABELLED else _THIN_ROW_PX)))


def _hover(row: Compared) -> str:
    """What a point of a figure tells."""
    repeats = f"mean of {len(row.measured)}, {format_number(min(row.measured))} to {format_number(max(row.measured))}"
    noise = "" if row.noise is None else f", noise {format_share(row.noise)}"
    unit = plot_text(row.unit)
    lines = [
        f"<b>{plot_text(row.name)}</b>",
        plot_text(row.group),
        f"measured {format_number(row.mean, 4)} {unit}" + (f" ({repeats})" if len(row.measured) > 1 else ""),
        f"predicted {format_number(row.predicted.mean, 4)} {unit}, "
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
