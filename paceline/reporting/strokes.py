"""The strokes that figures over the number of workers are made of."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from paceline.reporting.axes import MUTED, PAPER, band_colour, marker_symbol, series_colour
from paceline.reporting.points import Point, Series
from paceline.reporting.wording import plot_text

__all__ = ["band", "curve", "reference"]


def curve(figure: go.Figure, each: Series, points: Sequence[Point], y: Sequence[float], texts: Sequence[str]) -> None:
    """A curve with a marker a point, hollow beyond what was calibrated."""
    colour = series_colour(each.index)
    figure.add_scatter(
        x=[point.workers for point in points],
        y=list(y),
        mode="lines+markers",
        name=plot_text(each.name),
        legendgroup=f"s{each.index}",
        hoverinfo="text",
        hovertext=list(texts),
        line={"color": colour, "width": 2.25},
        marker={
            "symbol": marker_symbol(each.index),
            "size": 9,
            "color": [PAPER if point.hollow else colour for point in points],
            "line": {"color": colour, "width": 2},
        },
    )


def band(figure: go.Figure, each: Series, low: list[float], middle: list[float], high: list[float]) -> None:
    """An interval around a curve; around a single point, an error bar."""
    workers = [point.workers for point in each.points]
    colour = series_colour(each.index)
    if len(workers) == 1:
        figure.add_scatter(
            x=workers,
            y=middle,
            mode="markers",
            marker={"size": 1, "color": colour},
            legendgroup=f"s{each.index}",
            hoverinfo="skip",
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [max(0.0, high[0] - middle[0])],
                "arrayminus": [max(0.0, middle[0] - low[0])],
                "color": colour,
                "thickness": 1.5,
                "width": 6,
            },
        )
        return
    figure.add_scatter(
        x=workers + workers[::-1],
        y=high + low[::-1],
        mode="lines",
        fill="toself",
        fillcolor=band_colour(each.index),
        line={"width": 0, "color": band_colour(each.index)},
        hoverinfo="skip",
        legendgroup=f"s{each.index}",
    )


def reference(figure: go.Figure, x: Sequence[float], y: Sequence[float], text: str) -> None:
    """A dotted line to compare with."""
    figure.add_scatter(
        x=list(x),
        y=list(y),
        mode="lines",
        line={"color": MUTED, "width": 1.5, "dash": "dot"},
        hoverinfo="text",
        hovertext=[text] * len(x),
        legendgroup="ideal",
    )
