"""Plain data to plotly figures; colours are left as names for the page to fill in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from paceline.reporting.axes import MUTED, PAPER, layout, linear_axis, log_axis, series_colour, workers_axis
from paceline.reporting.context import Facet
from paceline.reporting.points import PARTS, Point, Series
from paceline.reporting.strokes import band, curve, reference
from paceline.reporting.wording import amount, duration, percent, plot_text
from simulator.workload import Workload

__all__ = ["breakdown", "calibration", "efficiency", "plain", "staleness", "staleness_means", "throughput"]

_SMALLEST_SHOWN = 1e-3
_MOST_BARS = 16


def throughput(series: Sequence[Series], ideals: Sequence[float]) -> go.Figure:
    """Throughput against workers with prediction intervals and ideal lines; both axes logarithmic."""
    workers = [point.workers for each in series for point in each.points]
    figure = go.Figure()
    for single in ideals:
        ends = [min(workers), max(workers)]
        reference(figure, ends, [single * count for count in ends], f"Ideal: {amount(single)} samples/s from each worker")
    for each in series:
        # a log axis has no place for zero
        low = [max(point.low, point.throughput * _SMALLEST_SHOWN) for point in each.points]
        band(figure, each, low, [point.throughput for point in each.points], [point.high for point in each.points])
    for each in series:
        curve(figure, each, each.points, [point.throughput for point in each.points], [_rate_text(each, point) for point in each.points])
    seen = [value for each in series for point in each.points for value in (max(point.low, point.throughput * _SMALLEST_SHOWN), point.high)]
    seen += [single * max(workers) for single in ideals]
    figure.update_layout(layout(xaxis=workers_axis(workers), yaxis=log_axis(seen)))
    return figure


def efficiency(series: Sequence[Series]) -> go.Figure:
    """Scaling efficiency against workers, with the prediction interval of the throughput."""
    workers = [point.workers for each in series for point in each.points]
    figure = go.Figure()
    reference(figure, [min(workers), max(workers)], [1.0, 1.0], "Ideal: 100%")
    for each in series:
        points = each.points
        band(
            figure,
            each,
            [point.efficiency_low for point in points],
            [point.efficiency for point in points],
            [point.efficiency_high for point in points],
        )
    for each in series:
        curve(figure, each, each.points, [point.efficiency for point in each.points], [_rate_text(each, point) for point in each.points])
    top = max(max(1.0, point.efficiency_high) for each in series for point in each.points)
    figure.update_layout(layout(xaxis=workers_axis(workers), yaxis=linear_axis(top, tickformat=".0%")))
    return figure


def breakdown(each: Series) -> go.Figure:
    """Where a step's time goes: a stacked bar for each number of workers, its length in words beside it."""
    points = _thinned(each.points)
    rows = list(range(len(points)))
    figure = go.Figure()
    for part, label in PARTS.items():
        shares = [point.share(part) for point in points]
        if not any(shares):
            continue
        figure.add_bar(
            x=shares,
            y=rows,
            orientation="h",
            name=label,
            legendgroup=part,
            hoverinfo="text",
            hovertext=[
                f"<b>{label}</b>, {point.workers:,} workers<br>"
                f"{duration(float(getattr(point.breakdown, part)))}, {percent(share)} of a step"
                for point, share in zip(points, shares, strict=True)
            ],
            marker={"color": f"var(--part-{part.replace('_', '-')})", "line": {"color": PAPER, "width": 1}},
        )
    texts = [
        {
            "x": 1.0,
            "xref": "paper",
            "y": row,
            "yref": "y",
            "text": duration(point.step_mean),
            "xanchor": "left",
            "xshift": 8,
            "showarrow": False,
        }
        for row, point in zip(rows, points, strict=True)
    ]
    for x, text, side, shift in ((1.0, "mean step", "left", 8), (0.0, "workers", "right", -4)):
        texts.append(
            {
                "x": x,
                "xref": "paper",
                "y": 1.0,
                "yref": "paper",
                "yshift": 13,
                "text": text,
                "xanchor": side,
                "xshift": shift,
                "showarrow": False,
                "font": {"size": 11},
            }
        )
    figure.update_layout(
        layout(
            barmode="stack",
            bargap=0.22,
            margin={"l": 56, "r": 72, "t": 26, "b": 28},
            annotations=texts,
            xaxis={
                "range": [0, 1],
                "tickformat": ".0%",
                "tickvals": [0, 0.25, 0.5, 0.75, 1],
                "gridcolor": "var(--grid)",
                "zeroline": False,
                "fixedrange": True,
            },
            yaxis={
                "range": [len(rows) - 0.5, -0.5],
                "fixedrange": True,
                "showgrid": False,
                "zeroline": False,
                "tickmode": "array",
                "tickvals": rows,
                "ticktext": [f"{point.workers:,}" for point in points],
            },
        )
    )
    return figure


def staleness(facet: Facet, series: Sequence[Series]) -> go.Figure:
    """The distribution of staleness at one number of workers, as probability of an update."""
    figure = go.Figure()
    top = 0.0
    for index, starts, probabilities in facet.curves:
        top = max(top, *probabilities)
        ends = [start + facet.width - 1 for start in starts]
        figure.add_bar(
            x=[(start + end) / 2 for start, end in zip(starts, ends, strict=True)],
            y=list(probabilities),
            width=facet.width * 0.9,
            legendgroup=f"s{index}",
            hoverinfo="text",
            hovertext=[
                f"<b>{plot_text(series[index].name)}</b><br>staleness {_span(start, end)}: {percent(probability)} of updates"
                for start, end, probability in zip(starts, ends, probabilities, strict=True)
            ],
            marker={"color": series_colour(index), "opacity": 0.9 if len(facet.curves) == 1 else 0.6, "line": {"width": 0}},
        )
    low = min(starts[0] for _, starts, _ in facet.curves) - 0.5
    high = max(starts[-1] for _, starts, _ in facet.curves) + facet.width - 0.5
    room = 0.03 * (high - low)
    few = {"dtick": 1} if high - low <= 8 else {"nticks": 6}
    x_axis = {**linear_axis(1, "Staleness (updates)"), "range": [low - room, high + room], "showgrid": False, "tickformat": ",d", **few}
    figure.update_layout(
        layout(
            barmode="overlay", bargap=0.1, xaxis=x_axis, yaxis={**linear_axis(top, tickformat=".0%" if top >= 0.05 else ".1%"), "nticks": 4}
        )
    )
    return figure


def staleness_means(series: Sequence[Series]) -> go.Figure:
    """Mean staleness against workers, beside the n - 1 of workers that are always busy computing."""
    held = [
        (each, [point for point in each.points if point.staleness_mean > 0 and point.workers > 1]) for each in series if each.asynchronous
    ]
    workers = [point.workers for _, points in held for point in points]
    figure = go.Figure()
    ends = sorted(set(workers))
    reference(figure, ends, [count - 1.0 for count in ends], "n \u2212 1")
    for each, points in held:
        texts = [
            f"<b>{plot_text(each.name)}</b><br>{point.workers:,} workers<br>"
            f"mean staleness {amount(point.staleness_mean)}, 95% below {point.staleness_p95:,}"
            for point in points
        ]
        curve(figure, each, points, [point.staleness_mean for point in points], texts)
    means = [point.staleness_mean for _, points in held for point in points] + [count - 1.0 for count in ends]
    figure.update_layout(layout(xaxis=workers_axis(workers), yaxis=log_axis(means)))
    return figure


def calibration(workload: Workload) -> go.Figure:
    """Step times measured against batch size, and the fitted lines."""
    assert workload.fit is not None
    points = workload.fit.points
    most = max(point.batch for point in points) * 1.08
    figure = go.Figure()
    lines = (
        ("step", "Step", lambda batch: workload.compute_s(batch) + workload.apply_s, "var(--series-1)", "solid"),
        ("forward", "Forward", workload.forward, "var(--series-3)", "dash"),
        ("backward", "Backward", workload.backward, "var(--series-2)", "dash"),
        ("apply", "Apply", lambda _: workload.apply_s, MUTED, "dash"),
    )
    for group, label, law, colour, dash in lines:
        figure.add_scatter(
            x=[0, most],
            y=[law(0) * 1e3, law(most) * 1e3],
            mode="lines",
            legendgroup=group,
            hoverinfo="skip",
            name=label,
            line={"color": colour, "width": 2 if dash == "solid" else 1.5, "dash": dash},
        )
    for group, label, _, colour, _ in lines[1:]:
        measured = [float(getattr(point, f"{group}_s")) for point in points]
        texts = [
            f"<b>{label}</b>, batch {point.batch:,}<br>measured mean {duration(value)}"
            for point, value in zip(points, measured, strict=True)
        ]
        figure.add_scatter(
            x=[point.batch for point in points],
            y=[value * 1e3 for value in measured],
            mode="markers",
            legendgroup=group,
            hoverinfo="text",
            hovertext=texts,
            marker={"color": colour, "size": 7, "symbol": "diamond"},
        )
    figure.add_scatter(
        x=[point.batch for point in points],
        y=[point.median_s * 1e3 for point in points],
        mode="markers",
        legendgroup="step",
        hoverinfo="text",
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, point.p95_s - point.median_s) * 1e3 for point in points],
            "arrayminus": [max(0.0, point.median_s - point.p5_s) * 1e3 for point in points],
            "color": "var(--series-1)",
            "thickness": 1.5,
            "width": 5,
        },
        hovertext=[
            f"<b>Step</b>, batch {point.batch:,}<br>median {duration(point.median_s)}<br>"
            f"p5 {duration(point.p5_s)}, p95 {duration(point.p95_s)}<br>{point.steps:,} steps measured"
            for point in points
        ],
        marker={"color": "var(--series-1)", "size": 9},
    )
    top = max(*(point.p95_s for point in points), workload.compute_s(most) + workload.apply_s) * 1e3
    figure.update_layout(layout(xaxis={**linear_axis(1, "Batch (samples)"), "range": [0, most]}, yaxis=linear_axis(top, automargin=True)))
    return figure


def _rate_text(each: Series, point: Point) -> str:
    lines = [
        f"<b>{plot_text(each.name)}</b>",
        f"{point.workers:,} workers: {amount(point.throughput)} samples/s",
        f"90% interval {amount(point.low)} to {amount(point.high)}",
        f"speed-up {amount(point.speedup)}, efficiency {percent(point.efficiency)}",
    ]
    return "<br>".join([*lines, "beyond the calibrated range"] if point.hollow else lines)


def _thinned(points: Sequence[Point]) -> list[Point]:
    if len(points) <= _MOST_BARS:
        return list(points)
    last = len(points) - 1
    return [points[round(place * last / (_MOST_BARS - 1))] for place in range(_MOST_BARS)]


def _span(start: int, end: int) -> str:
    return f"{start:,}" if start == end else f"{start:,} to {end:,}"


def plain(figure: go.Figure) -> dict[str, Any]:
    """The figure as what becomes JSON."""
    found: dict[str, Any] = figure.to_plotly_json()
    return {"data": found["data"], "layout": found["layout"]}
