"""Figures that do not depend on what a reader chooses; colours are left as names for the page to fill in."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from paceline.reporting.axes import MUTED, layout, linear_axis
from paceline.reporting.grids import Column, Grid
from simulator.text import format_duration
from simulator.workload import Workload

__all__ = ["calibration", "calibration_grid", "plain"]


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
            f"<b>{label}</b>, batch {point.batch:,}<br>measured mean {format_duration(value)}"
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
            f"<b>Step</b>, batch {point.batch:,}<br>median {format_duration(point.median_s)}<br>"
            f"p5 {format_duration(point.p5_s)}, p95 {format_duration(point.p95_s)}<br>{point.steps:,} steps measured"
            for point in points
        ],
        marker={"color": "var(--series-1)", "size": 9},
    )
    top = max(*(point.p95_s for point in points), workload.compute_s(most) + workload.apply_s) * 1e3
    figure.update_layout(layout(xaxis={**linear_axis(1, "Batch (samples)"), "range": [0, most]}, yaxis=linear_axis(top, automargin=True)))
    return figure


def calibration_grid(workload: Workload, index: int) -> Grid:
    """The measured points that the figure shows, beside the fitted step time."""
    assert workload.fit is not None
    times = ("Median", "5%", "95%", "Mean", "Fitted", "Forward", "Backward", "Apply")
    columns = (Column("Batch", "count"), Column("Steps measured", "count"), *(Column(name, "seconds") for name in times))
    rows = tuple(
        (
            point.batch,
            point.steps,
            point.median_s,
            point.p5_s,
            point.p95_s,
            point.mean_s,
            workload.compute_s(point.batch) + workload.apply_s,
            point.forward_s,
            point.backward_s,
            point.apply_s,
        )
        for point in workload.fit.points
    )
    return Grid(f"calibration-{index}", "Measured and fitted step times", columns, rows)


def plain(figure: go.Figure) -> dict[str, Any]:
    """The figure as what becomes JSON."""
    found: dict[str, Any] = figure.to_plotly_json()
    return {"data": found["data"], "layout": found["layout"]}
