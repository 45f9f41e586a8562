"""Measured points over predicted curves: throughput against workers."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go

from calibrate.validation.comparison import Compared
from calibrate.validation.validation import Validation
from paceline.reporting.axes import INK, PAPER, band_colour, layout, log_axis, marker_symbol, series_colour, workers_axis
from paceline.reporting.validation.figures import hover
from simulator.text import plot_text

__all__ = ["Curve", "curves_of", "overlay"]

_MOST_CURVES = 7
_SMALLEST_SHOWN = 1e-3


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
            hovertext=[hover(row) for row in curve.rows],
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
                seen.setdefault((float(row.settings["workers"]), value), hover(row))
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
