"""What was learned, drawn: curves against simulated time, and what reaching the target takes, with the range of the runs.

``templates/learning.html`` places them; what is said of it is in :mod:`paceline.learning.learned`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from paceline.learning.learned import Learned, LearnedWay, Range
from paceline.reporting.axes import INK, MUTED, band_colour, layout, linear_axis, log_axis, marker_symbol, series_colour
from simulator.base.text import format_number, format_seconds, format_throughput, format_usd, plot_text

_POINTS = 60
_ROW_PX, _AROUND_PX = 34, 70
_LONGEST = 36
_TICKS = 4
"""Of each of up to three axes beside one another."""

Floats = NDArray[np.float64]


def curves_figure(learned: Learned, metric: str, series: Sequence[int]) -> go.Figure:
    """A metric against simulated time: the median of the runs of each way, in the range of them; ``series`` has the number of each."""
    figure = go.Figure()
    spans = [_spread(way, metric) for way in learned.ways]
    for number, way, span in zip(series, learned.ways, spans, strict=True):
        if span is None:
            continue
        times_s, (low, middle, high) = span
        figure.add_scatter(
            x=[*times_s, *times_s[::-1]], y=[*high, *low[::-1]], mode="lines", line={"width": 0}, fill="toself",
            fillcolor=band_colour(number), hoverinfo="skip",
        )  # fmt: skip
        figure.add_scatter(
            x=times_s.tolist(), y=middle.tolist(), mode="lines", line={"color": series_colour(number), "width": 2.25}, hoverinfo="text",
            hovertext=[
                f"<b>{plot_text(way.name)}</b><br>{format_seconds(at_s)}: {format_number(value)} "
                f"({format_number(least)} to {format_number(most)})"
                for at_s, value, least, most in zip(times_s, middle, low, high, strict=True)
            ],
        )  # fmt: skip
        figure.add_scatter(
            x=times_s[-1:].tolist(), y=middle[-1:].tolist(), mode="markers", hoverinfo="skip",
            marker={"size": 9, "symbol": marker_symbol(number), "color": series_colour(number)},
        )  # fmt: skip
    title = plot_text(metric)
    every = [span for span in spans if span is not None]
    times = [float(one) for times_s, _ in every for one in (times_s[0], times_s[-1])]
    values = [float(one) for _, three in every for one in three.ravel()]
    falls = metric == "loss"
    y_axis = log_axis([*values, learned.target.value] if _is_target(learned, metric) else values, title) if falls else linear_axis(
        max(values, default=1.0), title
    )  # fmt: skip
    if times and _is_target(learned, metric):
        figure.add_scatter(
            x=[min(times), max(times)], y=[learned.target.value] * 2, mode="lines", hoverinfo="skip",
            line={"color": MUTED, "width": 1.5, "dash": "dot"},
        )  # fmt: skip
    figure.update_layout(layout(margin={"l": 62, "r": 14, "t": 12, "b": 44}, xaxis=log_axis(times, "Simulated time (s)"), yaxis=y_axis))
    return figure


def _is_target(learned: Learned, metric: str) -> bool:
    return metric == learned.target.metric


def _spread(way: LearnedWay, metric: str) -> tuple[Floats, Floats] | None:
    """Times, and the smallest, middle and largest value of the runs at each, shape (3, times); none without two validations."""
    curves = []
    for run in (its for its in way.runs if not its.diverged):
        points = [(point.time_s, point.metrics[metric]) for point in run.points[1:] if metric in point.metrics]
        if len(points) > 1:
            curves.append(np.array(points).T)
    if not curves:
        return None
    begin_s, end_s = max(curve[0, 0] for curve in curves), min(curve[0, -1] for curve in curves)
    if not 0 < begin_s < end_s:
        return None
    times_s = np.geomspace(begin_s, end_s, _POINTS)
    values = np.array([np.interp(times_s, *curve) for curve in curves])
    return times_s, np.array([values.min(axis=0), np.median(values, axis=0), values.max(axis=0)])


def target_figure(learned: Learned, series: Sequence[int]) -> go.Figure:
    """Of each way the time and the cost to the target, and the throughput beside them; ``series`` has the number of each."""
    ways = learned.ways[::-1]
    names = [plot_text(way.name, _LONGEST) for way in ways]
    priced = any(way.cost_usd is not None for way in ways)
    panels = ["time", *(["cost"] if priced else []), "rate"]
    figure = go.Figure()
    axes = {}
    for place, panel in enumerate(panels):
        number = "" if not place else str(place + 1)
        for row, way in enumerate(ways):
            its = {"time": way.time_s, "cost": way.cost_usd, "rate": None}[panel]
            _add_row(figure, way, its, row, series[len(ways) - 1 - row], f"x{number}", panel)
        width = 1.0 / len(panels)
        axes[f"xaxis{number}"] = {
            **_axis_of(panel, ways), "nticks": _TICKS, "tickangle": 0, "anchor": "y",
            "domain": [place * width + (0.02 if place else 0.0), (place + 1) * width - 0.02],
        }  # fmt: skip
    rows = list(range(len(ways)))
    y_axis = {"tickvals": rows, "ticktext": names, "range": [-0.6, len(ways) - 0.4], "automargin": True, "ticks": "", "zeroline": False}
    height = _AROUND_PX + _ROW_PX * len(ways)
    figure.update_layout(layout(margin={"l": 210, "r": 14, "t": 8, "b": 48}, height=height, yaxis=y_axis, **axes))
    return figure


def _axis_of(panel: str, ways: Sequence[LearnedWay]) -> dict[str, object]:
    if panel == "rate":
        return linear_axis(max(way.samples_per_s for way in ways), "Samples per second")
    ranges = [its for way in ways if (its := way.time_s if panel == "time" else way.cost_usd) is not None]
    high = max((its.high for its in ranges), default=1.0)
    return linear_axis(high, "Time (s)" if panel == "time" else "Cost (US dollars)")


def _add_row(figure: go.Figure, way: LearnedWay, its: Range | None, row: int, colour: int, axis: str, panel: str) -> None:
    if panel == "rate":
        value, error, text = way.samples_per_s, None, f"{format_throughput(way.samples_per_s)} samples/s"
    elif its is None:
        return
    else:
        value = its.median
        error = {"type": "data", "symmetric": False, "array": [its.high - its.median], "arrayminus": [its.median - its.low],
                 "color": INK, "thickness": 1.5, "width": 4}  # fmt: skip
        said = format_seconds if panel == "time" else format_usd
        text = f"{said(its.median)} ({said(its.low)} to {said(its.high)}), {way.reached} of {len(way.runs)} runs"
    hollow = not way.always and panel != "rate"
    figure.add_scatter(
        x=[value], y=[row], xaxis=axis, yaxis="y", mode="markers", error_x=error, hoverinfo="text",
        hovertext=[f"<b>{plot_text(way.name)}</b><br>{text}"],
        marker={"size": 10, "symbol": marker_symbol(colour) + ("-open" if hollow else ""), "color": series_colour(colour)},
    )  # fmt: skip
