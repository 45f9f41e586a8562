"""Figures that do not depend on what a reader chooses, each from data; colours are left as names for the page to fill in.

render.py places them; figures that follow the sliders are drawn by ``templates/*.js``. docs/timelines/draw.py and the page of
validations import names of this module too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

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
    text_colour,
)
from paceline.sentences import NOT_CERTAIN
from simulator.base.text import (
    counted,
    format_bytes,
    format_change,
    format_hourly,
    format_interval,
    format_number,
    format_seconds,
    format_share,
    format_throughput,
    format_usd,
    plot_text,
    written,
)
from simulator.memory import PARTS, Memory, PartName
from simulator.spec.workload import Workload

if TYPE_CHECKING:
    from paceline.planning.answer import Candidate, Plan
    from paceline.planning.goal import Goal
    from paceline.reporting.pieces import Kind
    from paceline.reporting.sensitivity import Change
    from paceline.reporting.timeline import Bar, Timeline
    from simulator.spec.figures import Estimate, Stage

_MARGIN_PX = 66
_BAR_PX, _PASS_PX, _CHANGE_PX = 20, 26, 28
"""Height of a lane of the timeline, of one whose passes are numbered, and of a row of the tornado."""
_LONGEST_HOVER, _LONGEST_TICK = 160, 22
_FEWEST_DRAWN = 2
"""Candidates of a plan that are worth a figure."""


def plain(figure: go.Figure) -> dict[str, Any]:
    """The figure as what becomes JSON."""
    found: dict[str, Any] = figure.to_plotly_json()
    return {"data": found["data"], "layout": found["layout"]}


# -- what was measured ---------------------------------------------------------------------


def calibration_figure(workload: Workload) -> go.Figure:
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
            f"<b>{label}</b>, batch {point.batch:,}<br>measured mean {format_seconds(value)}"
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
            f"<b>Step</b>, batch {point.batch:,}<br>median {format_seconds(point.median_s)}<br>"
            f"p5 {format_seconds(point.p5_s)}, p95 {format_seconds(point.p95_s)}<br>{point.steps:,} steps measured"
            for point in points
        ],
        marker={"color": "var(--series-1)", "size": 9},
    )
    top = max(*(point.p95_s for point in points), workload.compute_s(most) + workload.apply_s) * 1e3
    figure.update_layout(
        layout(xaxis={**linear_axis(1, "Batch (samples)"), "range": [0, most]}, yaxis=linear_axis(top, "Step time (ms)", automargin=True))
    )
    return figure


# -- some steps in time --------------------------------------------------------------------


def timeline_figure(timeline: Timeline) -> go.Figure:
    """The timeline as a chart: colour tells the kind, an outline what is critical; its height is in the layout."""
    drawn = go.Figure()
    row = {lane: index for index, lane in enumerate(timeline.lanes)}
    end_s = max((bar.end_s for bar in timeline.bars), default=1.0)
    scale, unit = next((scale, unit) for scale, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")) if end_s * scale >= 1 or unit == "µs")
    # with numbers in bars these are higher
    lane_px, height = (_PASS_PX, 2 * _HALF) if timeline.arrows else (_BAR_PX, 0.6)
    for kind, label in KIND_LABELS.items():
        bars = [bar for bar in timeline.bars if bar.kind == kind]
        if not bars:
            continue
        drawn.add_bar(
            orientation="h",
            name=label,
            legendgroup=kind,
            base=[bar.start_s * scale for bar in bars],
            x=[(bar.end_s - bar.start_s) * scale for bar in bars],
            y=[row[bar.lane] for bar in bars],
            width=[0.9 if bar.critical else height for bar in bars],
            hoverinfo="text",
            hovertext=[_bar_hover(bar) for bar in bars],
            **_in_bars(bars, colour := f"var(--part-{'exposed-communication' if kind == 'communication' else kind})"),
            marker={
                "color": colour,
                "line": {"color": INK, "width": [1.5 if bar.critical else 0 for bar in bars]},
            },
        )
    if timeline.arrows:
        drawn.add_scatter(mode="lines", hoverinfo="skip", showlegend=False, line={"color": MUTED, "width": 0.8}, **_lines(timeline, scale))
    marked = [bar for bar in timeline.bars if bar.lane == timeline.lanes[0]] if timeline.lanes else []
    drawn.update_layout(
        layout(
            barmode="overlay",
            **({"uniformtext": {"minsize": 8, "mode": "hide"}} if timeline.arrows else {}),
            height=_MARGIN_PX + lane_px * len(timeline.lanes),
            margin={"l": 150, "r": 12, "t": 10, "b": 44},
            shapes=[_rule(at * scale) for at in _marked_s(marked)],
            xaxis={
                "title": {"text": f"Time ({unit})", "standoff": 8},
                "range": [0, end_s * scale],
                "gridcolor": "var(--grid)",
                "zeroline": False,
                "nticks": 8,
            },
            yaxis={
                "range": [len(timeline.lanes) - 0.4, -0.6],
                "fixedrange": True,
                "showgrid": False,
                "zeroline": False,
                "tickmode": "array",
                "tickvals": list(row.values()),
                "ticktext": [plot_text(lane) for lane in timeline.lanes],
            },
        )
    )
    return drawn


KIND_LABELS: dict[Kind, str] = {
    "input": "Input",
    "compute": "Compute",
    "forward": "Forward",
    "backward": "Backward",
    "weights": "Gradients of weights",
    "communication": "Communication",
    "waiting": "Waiting",
    "bubble": "Waiting for other stages",
    "apply": "Apply",
}
"""The kinds in the order of a step's parts."""


def _in_bars(bars: Sequence[Bar], colour: str) -> dict[str, object]:
    """What stands in bars of a colour; nothing where they have no labels."""
    if not any(bar.label for bar in bars):
        return {}
    return {
        "text": [bar.label for bar in bars],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "insidetextfont": {"size": 10, "color": text_colour(colour)},
        "constraintext": "inside",
    }


_HALF = 0.38
"""Of a bar's height in lanes: lines of messages lead from edge to edge."""


def _lines(timeline: Timeline, scale: float) -> dict[str, list[float | None]]:
    """A line for each message, from the lane that sent it to the lane that it came to."""
    row = {lane: index for index, lane in enumerate(timeline.lanes)}
    x: list[float | None] = []
    y: list[float | None] = []
    for arrow in timeline.arrows:
        begin, end = row[arrow.source], row[arrow.target]
        edge = _HALF if end > begin else -_HALF
        x += [arrow.sent_s * scale, arrow.arrived_s * scale, None]
        y += [begin + edge, end - edge, None]
    return {"x": x, "y": y}


def _bar_hover(bar: Bar) -> str:
    critical = ", on the critical path" if bar.critical else ""
    return f"<b>{KIND_LABELS[bar.kind]}</b>{critical}<br>{plot_text(bar.text, _LONGEST_HOVER)}<br>from {format_seconds(bar.start_s)}"


def _marked_s(bars: Sequence[Bar]) -> list[float]:
    return [bars[0].start_s, bars[-1].end_s] if bars else []


def _rule(at: float) -> dict[str, object]:
    """Where the marked step begins or ends."""
    line = {"color": INK, "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": line}


# -- the stages of a pipeline --------------------------------------------------------------

STAGE_PARTS = (("compute", "Busy"), ("exposed-communication", "Communication"), ("bubble", "Bubble"), ("input", "Input"))
"""What the time of a stage goes into, by the name of its colour."""


def stages_figure(stages: Sequence[Stage]) -> go.Figure:
    """A bar for each stage, of what its devices' time goes into; its height is in the layout."""
    drawn = go.Figure()
    values = (
        [its.busy for its in stages],
        [its.communication for its in stages],
        [its.bubble for its in stages],
        [its.input for its in stages],
    )
    for (colour, label), shares in zip(STAGE_PARTS, values, strict=True):
        if not any(shares):
            continue
        drawn.add_bar(
            orientation="h",
            name=label,
            x=shares,
            y=list(range(len(stages))),
            width=0.7,
            hoverinfo="text",
            hovertext=[
                f"<b>Stage {number}</b>, {plot_text(its.layers)}<br>{label}: {format_share(share)} of the time"
                for number, (its, share) in enumerate(zip(stages, shares, strict=True))
            ],
            marker={"color": f"var(--part-{colour})", "line": {"width": 0}},
        )
    drawn.update_layout(
        layout(
            barmode="stack",
            height=_MARGIN_PX + _BAR_PX * max(len(stages), 3),
            margin={"l": 134, "r": 16, "t": 10, "b": 44},
            xaxis={
                "title": {"text": "Share of the time", "standoff": 8},
                "range": [0, 1],
                "tickformat": ".0%",
                "dtick": 0.25,
                "gridcolor": "var(--grid)",
                "zeroline": False,
            },
            yaxis={
                "range": [len(stages) - 0.4, -0.6],
                "fixedrange": True,
                "showgrid": False,
                "zeroline": False,
                "tickmode": "array",
                "tickvals": list(range(len(stages))),
                "ticktext": [plot_text(f"{number}: {its.layers}", _LONGEST_TICK) for number, its in enumerate(stages)],
            },
        )
    )
    return drawn


# -- one change at a time ------------------------------------------------------------------


def sensitivity_figure(changes: Sequence[Change]) -> go.Figure:
    """The tornado: a row for each change that does anything, what does most on top, opposites together; its height is in the layout.

    Pale is what no interval leaves certain.
    """
    moving = sorted((its for its in changes if its.moves), key=lambda its: -abs(its.gain or 0.0))
    order = list(dict.fromkeys(its.row for its in moving))
    shown = sorted(moving, key=lambda its: (order.index(its.row), -(its.gain or 0.0)))
    drawn = go.Figure()
    for row, its in enumerate(shown):
        _bar(drawn, its, row)
    ends = [end for its in shown for end in (its.low, its.high) if end is not None] + [0.0]
    room = 0.04 * ((max(ends) - min(ends)) or 1.0)
    drawn.update_layout(
        layout(
            barmode="overlay",
            height=_MARGIN_PX + _CHANGE_PX * max(len(shown), 2),
            margin={"l": 122, "r": 58, "t": 10, "b": 44},
            shapes=[
                {"type": "line", "xref": "x", "yref": "paper", "x0": 0, "x1": 0, "y0": 0, "y1": 1, "line": {"color": MUTED, "width": 1}}
            ],
            annotations=[] if shown else [_said("no change that was tried does anything")],
            xaxis={
                "title": {"text": "Change of throughput", "standoff": 8},
                "range": [min(ends) - room, max(ends) + room],
                "tickformat": "+.0%",
                "nticks": 4,
                "tickangle": 0,
                "gridcolor": "var(--grid)",
                "zeroline": False,
                "fixedrange": True,
            },
            yaxis={
                "range": [len(shown) - 0.45, -0.55],
                "fixedrange": True,
                "showgrid": False,
                "zeroline": False,
                "tickmode": "array",
                "tickvals": list(range(len(shown))),
                "ticktext": [plot_text(its.name, _LONGEST_TICK) for its in shown],
            },
        )
    )
    return drawn


_PALE = 0.35
"""Opacity of what is not certain."""


def _said(words: str) -> dict[str, object]:
    """Words where there is nothing to draw."""
    return {"text": words, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False, "font": {"size": 14, "color": MUTED}}


def _bar(drawn: go.Figure, its: Change, row: int) -> None:
    """One change: a bar from nought to its gain, its interval, and the figure at the side."""
    assert its.gain is not None
    assert its.low is not None
    assert its.high is not None
    drawn.add_bar(
        orientation="h",
        x=[its.gain],
        y=[row],
        width=0.56,
        name=plot_text(its.name),
        showlegend=False,
        hoverinfo="text",
        hovertext=[
            f"<b>{plot_text(its.name)}</b>: {format_change(its.gain)}{'' if its.seen else f', {NOT_CERTAIN}'}<br>"
            f"90% interval, run by run: {format_change(its.low)} to {format_change(its.high)}<br>"
            f"then limited by: {plot_text(its.reason)}"
        ],
        marker={
            "color": "var(--series-1)" if its.gain >= 0 else "var(--series-2)",
            "opacity": 1.0 if its.seen else _PALE,
            "line": {"width": 0},
        },
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, its.high - its.gain)],
            "arrayminus": [max(0.0, its.gain - its.low)],
            "color": INK if its.seen else MUTED,
            "thickness": 1,
            "width": 3,
        },
    )
    drawn.add_annotation(
        x=1,
        xref="paper",
        y=row,
        text=format_change(its.gain),
        xanchor="left",
        xshift=8,
        showarrow=False,
        font={"color": INK if its.seen else MUTED},
    )


# -- memory --------------------------------------------------------------------------------

MEMORY_COLOURS: dict[PartName, str] = {
    **{name: f"var(--series-{place + 1})" for place, name in enumerate(list(PARTS)[:6])},
    "buckets": "var(--part-waiting)",
    "temporary": "var(--part-exposed-communication)",
    "workspace": "var(--part-apply)",
    "input": "var(--part-input)",
    "reserve": MUTED,
}
"""Of each part of a device's memory."""
_GIB = 2.0**30


def memory_figure(memory: Memory) -> go.Figure:
    """A bar of parts for each kind of device, against a line where its memory ends; its height is in the layout."""
    drawn = go.Figure()
    devices = memory.devices
    for name, label in PARTS.items():
        held = [(row, part.size_bytes) for row, its in enumerate(devices) if (part := its.part(name)) is not None and part.size_bytes]
        if held:
            drawn.add_bar(
                orientation="h",
                name=label,
                x=[size / _GIB for _, size in held],
                y=[row for row, _ in held],
                width=0.6,
                hoverinfo="text",
                hovertext=[f"<b>{label}</b>, {plot_text(devices[row].name)}<br>{format_bytes(size)}" for row, size in held],
                marker={"color": MEMORY_COLOURS[name], "line": {"width": 0}},
            )
    capacity = max((its.capacity_bytes or 0.0 for its in devices), default=0.0) / _GIB
    most = max(capacity, *(its.need_bytes / _GIB for its in devices))
    drawn.update_layout(
        layout(
            barmode="stack",
            height=_MARGIN_PX + _CHANGE_PX * len(devices),
            margin={"l": 88, "r": 16, "t": 10, "b": 44},
            shapes=[_rule(capacity)],
            xaxis=linear_axis(most, "Memory (GiB)"),
            yaxis={
                "range": [len(devices) - 0.45, -0.55],
                "fixedrange": True,
                "showgrid": False,
                "zeroline": False,
                "tickmode": "array",
                "tickvals": list(range(len(devices))),
                "ticktext": [plot_text(its.name.capitalize()) for its in devices],
            },
        )
    )
    return drawn


# -- a plan --------------------------------------------------------------------------------


def pareto_figure(plan: Plan) -> tuple[go.Figure, str, str] | None:
    """Cost against time of the whole training, or dollars an hour against throughput where the goal is a rate.

    Returns
    -------
    tuple or None
        The figure, what it is of, and what is seen, in words; none where fewer than two candidates have a price above 0.
    """
    whole = plan.goal.samples is not None
    priced = [each for each in plan.candidates if _place(each, whole=whole) is not None]
    if len(priced) < _FEWEST_DRAWN:
        return None
    front = sorted(place for each in plan.pareto if (place := _place(each, whole=whole)) is not None)
    figure = go.Figure()
    figure.add_scatter(
        x=[x for x, _ in front],
        y=[y for _, y in front],
        mode="lines",
        line={"color": "var(--series-1)", "width": 1.5, "dash": "dot", "shape": "hv" if whole else "vh"},
        hoverinfo="skip",
    )
    for met, colour, symbol in ((True, "var(--series-1)", "circle"), (False, MUTED, "triangle-down")):
        held = [each for each in priced if each.meets == met]
        if held:
            places = [place for each in held if (place := _place(each, whole=whole)) is not None]
            figure.add_scatter(
                x=[x for x, _ in places],
                y=[y for _, y in places],
                mode="markers",
                hoverinfo="text",
                hovertext=[_candidate_hover(each, whole=whole) for each in held],
                marker={
                    "size": 8,
                    "color": [PAPER if each.result.extrapolated else colour for each in held],
                    "symbol": symbol,
                    "line": {"color": colour, "width": 1.5},
                },
            )
    if (chosen := _place(plan.chosen, whole=whole)) is not None:
        figure.add_scatter(
            x=[chosen[0]],
            y=[chosen[1]],
            mode="markers",
            hoverinfo="skip",
            marker={"size": 18, "symbol": "circle-open", "color": INK, "line": {"color": INK, "width": 2}},
        )
    everywhere = [place for each in priced if (place := _place(each, whole=whole)) is not None]
    everywhere += [(x if x is not None else everywhere[0][0], y if y is not None else everywhere[0][1]) for x, y in [_goal_at(plan.goal)]]
    title_x, title_y = ("Time (hours)", "Cost (US dollars)") if whole else ("Throughput (samples/s)", "Price (US dollars an hour)")
    axes = log_axis([x for x, _ in everywhere], title_x), log_axis([y for _, y in everywhere], title_y)
    shapes, words = _goal_lines(plan.goal, whole=whole)
    marked = {its.key: its for its in (plan.chosen, *(plan.pareto[:1]), *(plan.pareto[-1:]))}
    middle = math.sqrt(min(x for x, _ in everywhere) * max(x for x, _ in everywhere))
    labels = [_candidate_label(its, place, middle) for its in marked.values() if (place := _place(its, whole=whole)) is not None]
    figure.update_layout(
        layout(margin={"l": 62, "r": 14, "t": 16, "b": 44}, xaxis=axes[0], yaxis=axes[1], shapes=shapes, annotations=[*words, *labels])
    )
    caption = "Circles reach the goal, triangles miss it; hollow: beyond what was measured; ringed: the answer; dotted: no other is both "
    caption += "cheaper and faster; dashed: the goal"
    seen = f"{len(priced)} configurations, {sum(each.meets for each in priced)} of which reach the goal; {len(front)} on the Pareto front."
    return figure, caption, seen


def _goal_at(goal: Goal) -> tuple[float | None, float | None]:
    """Where the goal lies on the two axes: a deadline in hours and a budget in US dollars, or a throughput."""
    if goal.target_throughput_samples_per_s is not None:
        return goal.target_throughput_samples_per_s, None
    return (goal.deadline_s / 3600 if goal.deadline_s is not None else None), goal.budget_usd


def _goal_lines(goal: Goal, *, whole: bool) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """A line for each limit of the goal, and what it says."""
    x, y = _goal_at(goal)
    line = {"color": INK, "width": 1, "dash": "dash"}
    shapes: list[dict[str, object]] = []
    words: list[dict[str, object]] = []
    if x is not None:
        shapes.append({"type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1, "line": line})
        said = f"deadline {written(goal.deadline_s, 'setting_s')}" if whole else f"{written(x, 'setting')} samples/s"
        words.append(_beside(math.log10(x), 1, "x", "paper", said, xanchor="right", yanchor="top", xshift=-4))
    if y is not None:
        shapes.append({"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line})
        words.append(_beside(1, math.log10(y), "paper", "y", f"budget {format_usd(y)}", xanchor="right", yanchor="bottom"))
    return shapes, words


def _beside(x: float, y: float, xref: str, yref: str, text: str, **changes: object) -> dict[str, object]:
    return {"x": x, "y": y, "xref": xref, "yref": yref, "text": text, "showarrow": False, "font": {"size": 11, "color": INK}, **changes}


def _candidate_label(each: Candidate, place: tuple[float, float], middle: float) -> dict[str, object]:
    """How many workers it has, below its point, on the side that has more room."""
    x, y = (math.log10(value) for value in place)
    side = {"xanchor": "left", "xshift": 7} if place[0] < middle else {"xanchor": "right", "xshift": -7}
    return _beside(x, y, "x", "y", counted(each.result.scenario.workers, "worker"), yanchor="top", yshift=-3, **side)


def _place(each: Candidate, *, whole: bool) -> tuple[float, float] | None:
    """Where it stands on the two axes; none without a price, or where that is 0, for which a logarithmic axis has no place."""
    if whole:
        return (each.time_s.mean / 3600, each.cost_usd.mean) if each.time_s is not None and each.cost_usd and each.cost_usd.mean else None
    return (each.result.throughput_samples_per_s.mean, each.usd_per_hour) if each.usd_per_hour else None


def paying_figure(plan: Plan) -> go.Figure | None:
    """What has been paid after some months for the same work, in each way to pay; none where none is in advance, or none by the hour.

    A line and a band for each way, in the order of the plan's payments; diamonds where paying in advance begins to pay, with whiskers
    of their 90% intervals.
    """
    if not plan.break_even:
        return None
    series = {its.name: number for number, its in enumerate(plan.payments)}
    most = max(its.lasts_months for its in plan.break_even)
    lines: dict[str, tuple[float, Estimate, float]] = {}
    for its in plan.break_even:
        lines.setdefault(its.own, (its.capital_usd, its.own_usd_per_month, its.lasts_months))
        lines.setdefault(its.rented, (0.0, its.rented_usd_per_month, most))
    figure = go.Figure()
    for name, (capital, month, lasts) in sorted(lines.items(), key=lambda its: series[its[0]]):
        number = series[name]
        ends = [capital + month.high * lasts, capital + month.low * lasts]
        figure.add_scatter(
            x=[0, lasts, lasts, 0], y=[capital, *ends, capital], mode="lines", line={"width": 0}, fill="toself",
            fillcolor=band_colour(number), hoverinfo="skip",
        )  # fmt: skip
        months = [lasts * place / _POINTS for place in range(_POINTS + 1)]
        figure.add_scatter(
            x=months, y=[capital + month.mean * its for its in months], mode="lines",
            line={"color": series_colour(number), "width": 2, "dash": "solid" if capital else "dash"}, hoverinfo="text",
            hovertext=[
                f"<b>{plot_text(name)}</b><br>{format_number(its)} months: {format_usd(capital + month.mean * its)} "
                f"({format_usd(capital + month.low * its)} to {format_usd(capital + month.high * its)})"
                for its in months
            ],
        )  # fmt: skip
        figure.add_scatter(
            x=[lasts], y=[capital + month.mean * lasts], mode="markers", hoverinfo="skip",
            marker={"size": 9, "symbol": marker_symbol(number), "color": series_colour(number)},
        )  # fmt: skip
    for its in plan.break_even:
        if its.months is None:
            continue
        latest = its.lasts_months if its.months_high is None else its.months_high
        soonest = its.months if its.months_low is None else its.months_low
        figure.add_scatter(
            x=[its.months], y=[its.capital_usd + its.own_usd_per_month.mean * its.months], mode="markers", hoverinfo="text",
            hovertext=[plot_text(its.text, _LONGEST_HOVER * 2)],
            error_x={"type": "data", "symmetric": False, "array": [latest - its.months], "arrayminus": [its.months - soonest],
                     "color": INK, "thickness": 1.5, "width": 4},
            marker={"size": 11, "symbol": "diamond", "color": series_colour(series[its.own]), "line": {"color": INK, "width": 1.5}},
        )  # fmt: skip
    highest = max(capital + month.high * lasts for capital, month, lasts in lines.values())
    axes = linear_axis(most, "Months"), linear_axis(highest, "Paid by then (US dollars)")
    figure.update_layout(layout(margin={"l": 72, "r": 14, "t": 12, "b": 44}, xaxis=axes[0], yaxis=axes[1]))
    return figure


_POINTS = 24
"""Of a line, at which a reader may ask what was paid by then."""


def _candidate_hover(each: Candidate, *, whole: bool) -> str:
    rate = each.result.throughput_samples_per_s
    lines = [f"<b>{plot_text(each.name)}</b>", f"{each.scaling} scaling, {plot_text(each.placement)}"]
    lines.append(f"{format_throughput(rate.mean)} samples/s (90% interval {format_interval(rate.low, rate.high, 'throughput')})")
    if whole and each.time_s is not None and each.cost_usd is not None:
        lines.append(f"{format_seconds(each.time_s.mean)} and {format_usd(each.cost_usd.mean)}")
    elif each.usd_per_hour is not None:
        lines.append(f"{format_hourly(each.usd_per_hour)} an hour")
    return "<br>".join([*lines, f"meets the goal with {format_share(each.confidence)} confidence"])
