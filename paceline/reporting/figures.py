"""Figures that do not depend on what a reader chooses, each from data; colours are left as names for the page to fill in.

render.py places them; figures that follow the sliders are drawn by ``templates/*.js``. The whole job is drawn from the means that a
result says of it. docs/timelines/draw.py imports names of this module too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paceline.reporting.axes import (
    INK,
    JOB_COLOURS,
    MUTED,
    PAPER,
    Figure,
    axis,
    bars,
    figure,
    linear_axis,
    log_axis,
    marker_symbol,
    part_colour,
    rows_axis,
    scatter,
    series_colour,
    spread_curve,
    upright,
    whiskers,
    words_at,
    words_in_bars,
)
from paceline.sentences import NOT_CERTAIN
from paceline.tables import PART_LABELS
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
from simulator.results.results import Result
from simulator.spec.figures import Epoch, Estimate, JobOutcome, Stage
from simulator.spec.workload import Workload

if TYPE_CHECKING:
    from paceline.comparing import Change
    from paceline.learning.learned import Learned, LearnedWay
    from paceline.planning.answer import Candidate, Plan
    from paceline.reporting.timeline import Bar, Kind, Timeline

_MARGIN_PX = 66
_BAR_PX, _PASS_PX, _CHANGE_PX = 20, 26, 28
"""Height of a lane of the timeline, of one whose passes are numbered, and of a row of the tornado."""
_LONGEST_HOVER, _LONGEST_TICK = 160, 22
_FEWEST_DRAWN = 2
"""Candidates of a plan that are worth a figure."""
_HOUR_S = 3600.0


# -- what was measured ---------------------------------------------------------------------


def calibration_figure(workload: Workload) -> Figure:
    """Step times measured against batch size, and the fitted lines."""
    assert workload.fit is not None
    points = workload.fit.points
    batches = [point.batch for point in points]
    most = max(batches) * 1.08
    fitted: dict[str, tuple[Callable[[float], float], str]] = {
        "step": (lambda batch: workload.compute_s(batch) + workload.apply_s, "var(--series-1)"),
        "forward": (workload.forward, "var(--series-3)"),
        "backward": (workload.backward, "var(--series-2)"),
        "apply": (lambda _: workload.apply_s, MUTED),
    }
    drawn, whole = [], fitted["step"][0]
    for part, (time_s, colour) in fitted.items():
        line = {"color": colour, "width": 2 if part == "step" else 1.5, "dash": "solid" if part == "step" else "dash"}
        ends = [time_s(0) * 1e3, time_s(most) * 1e3]
        drawn.append(scatter([0, most], ends, mode="lines", legendgroup=part, name=part.capitalize(), line=line))
    for part, (_, colour) in list(fitted.items())[1:]:
        measured = [float(getattr(point, f"{part}_s")) for point in points]
        texts = [
            f"<b>{part.capitalize()}</b>, batch {batch:,}<br>measured mean {format_seconds(value)}"
            for batch, value in zip(batches, measured, strict=True)
        ]
        marker = {"color": colour, "size": 7, "symbol": "diamond"}
        drawn.append(scatter(batches, [value * 1e3 for value in measured], legendgroup=part, hovertext=texts, marker=marker))
    low, middle, high = ([getattr(point, f"{name}_s") * 1e3 for point in points] for name in ("p5", "median", "p95"))
    texts = [
        f"<b>Step</b>, batch {point.batch:,}<br>median {format_seconds(point.median_s)}<br>"
        f"p5 {format_seconds(point.p5_s)}, p95 {format_seconds(point.p95_s)}<br>{point.steps:,} steps measured"
        for point in points
    ]
    spread = whiskers(middle, low, high, "var(--series-1)", width=5)
    marker = {"color": "var(--series-1)", "size": 9}
    drawn.append(scatter(batches, middle, legendgroup="step", error_y=spread, hovertext=texts, marker=marker))
    y_axis = linear_axis(max(*high, whole(most) * 1e3), "Step time (ms)", automargin=True)
    return figure(drawn, xaxis={**linear_axis(1, "Batch (samples)"), "range": [0, most]}, yaxis=y_axis)


# -- some steps in time --------------------------------------------------------------------


def timeline_figure(timeline: Timeline) -> Figure:
    """The timeline as a chart: colour tells the kind, an outline what is critical; its height is in the layout."""
    row = {lane: index for index, lane in enumerate(timeline.lanes)}
    end_s = max((bar.end_s for bar in timeline.bars), default=1.0)
    scale, unit = next((scale, unit) for scale, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")) if end_s * scale >= 1 or unit == "µs")
    # with numbers in bars these are higher
    lane_px, height = (_PASS_PX, 2 * _HALF) if timeline.arrows else (_BAR_PX, 0.6)
    drawn = []
    for kind, label in KIND_LABELS.items():
        of_kind, colour = [bar for bar in timeline.bars if bar.kind == kind], part_colour(kind)
        if of_kind:
            drawn.append(
                bars(
                    [(bar.end_s - bar.start_s) * scale for bar in of_kind],
                    [row[bar.lane] for bar in of_kind],
                    name=label,
                    legendgroup=kind,
                    base=[bar.start_s * scale for bar in of_kind],
                    width=[0.9 if bar.critical else height for bar in of_kind],
                    hovertext=[_bar_hover(bar) for bar in of_kind],
                    marker={"color": colour, "line": {"color": INK, "width": [1.5 if bar.critical else 0 for bar in of_kind]}},
                    **(words_in_bars([bar.label for bar in of_kind], colour, 10) if any(bar.label for bar in of_kind) else {}),
                )
            )
    if timeline.arrows:
        drawn.append(scatter(**_lines(timeline, row, scale), mode="lines", showlegend=False, line={"color": MUTED, "width": 0.8}))
    path = [bar for bar in timeline.bars if bar.lane == timeline.lanes[0]] if timeline.lanes else []
    return figure(
        drawn,
        barmode="overlay",
        **({"uniformtext": {"minsize": 8, "mode": "hide"}} if timeline.arrows else {}),
        height=_MARGIN_PX + lane_px * len(timeline.lanes),
        margin={"l": 150, "r": 12, "t": 10, "b": 44},
        shapes=[upright(at_s * scale, dash="dot") for at_s in ((path[0].start_s, path[-1].end_s) if path else ())],
        xaxis=axis(f"Time ({unit})", range=[0, end_s * scale], nticks=8),
        yaxis=rows_axis(timeline.lanes, 0.6),
    )


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
_HALF = 0.38
"""Of a bar's height in lanes: lines of messages lead from edge to edge."""


def _lines(timeline: Timeline, row: Mapping[str, int], scale: float) -> dict[str, list[float | None]]:
    """A line for each message, from the lane that sent it to the lane that it came to."""
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


# -- the stages of a pipeline --------------------------------------------------------------

STAGE_PARTS = {
    "busy": ("compute", "Busy"),
    "communication": ("communication", "Communication"),
    "bubble": ("bubble", "Bubble"),
    "input": ("input", "Input"),
}
"""What the time of a stage goes into: the part whose colour it has, and what it is called."""


def stages_figure(stages: Sequence[Stage]) -> Figure:
    """A bar for each stage, of what its devices' time goes into; its height is in the layout."""
    drawn = []
    for name, (part, label) in STAGE_PARTS.items():
        shares = [getattr(stage, name) for stage in stages]
        texts = [
            f"<b>Stage {number}</b>, {plot_text(stage.layers)}<br>{label}: {format_share(share)} of the time"
            for number, (stage, share) in enumerate(zip(stages, shares, strict=True))
        ]
        if any(shares):
            marker = {"color": part_colour(part), "line": {"width": 0}}
            drawn.append(bars(shares, list(range(len(stages))), name=label, width=0.7, hovertext=texts, marker=marker))
    return figure(
        drawn,
        barmode="stack",
        height=_MARGIN_PX + _BAR_PX * max(len(stages), 3),
        margin={"l": 134, "r": 16, "t": 10, "b": 44},
        xaxis=axis("Share of the time", range=[0, 1], tickformat=".0%", dtick=0.25),
        yaxis=rows_axis([f"{number}: {stage.layers}" for number, stage in enumerate(stages)], 0.6, _LONGEST_TICK),
    )


# -- one change at a time ------------------------------------------------------------------

_PALE = 0.35
"""Opacity of what is not certain."""


def sensitivity_figure(changes: Sequence[Change]) -> Figure:
    """The tornado: a row for each change that does anything, what does most on top, opposites together; its height is in the layout.

    Pale is what no interval leaves certain.
    """
    moving = sorted((change for change in changes if change.moves), key=lambda change: -abs(change.gain or 0.0))
    order = list(dict.fromkeys(change.row for change in moving))
    shown = sorted(moving, key=lambda change: (order.index(change.row), -(change.gain or 0.0)))
    ends = [end for change in shown for end in (change.low, change.high) if end is not None] + [0.0]
    room = 0.04 * ((max(ends) - min(ends)) or 1.0)
    gains = [
        words_at(
            1, row, "paper", "y", format_change(change.gain or 0.0), xanchor="left", xshift=8, font={"color": INK if change.seen else MUTED}
        )
        for row, change in enumerate(shown)
    ]
    nothing = words_at(0.5, 0.5, "paper", "paper", "no change that was tried does anything", font={"size": 14, "color": MUTED})
    return figure(
        [_change_bar(change, row) for row, change in enumerate(shown)],
        barmode="overlay",
        height=_MARGIN_PX + _CHANGE_PX * max(len(shown), 2),
        margin={"l": 122, "r": 58, "t": 10, "b": 44},
        shapes=[upright(0, color=MUTED)],
        annotations=gains or [nothing],
        xaxis=axis(
            "Change of throughput", range=[min(ends) - room, max(ends) + room], tickformat="+.0%", nticks=4, tickangle=0, fixedrange=True
        ),
        yaxis=rows_axis([change.name for change in shown], longest=_LONGEST_TICK),
    )


def _change_bar(change: Change, row: int) -> dict[str, Any]:
    """A bar from nought to the gain, and its interval."""
    assert change.gain is not None
    assert change.low is not None
    assert change.high is not None
    text = (
        f"<b>{plot_text(change.name)}</b>: {format_change(change.gain)}{'' if change.seen else f', {NOT_CERTAIN}'}<br>"
        f"90% interval, run by run: {format_change(change.low)} to {format_change(change.high)}<br>"
        f"then limited by: {plot_text(change.reason)}"
    )
    colour, opacity = "var(--series-1)" if change.gain >= 0 else "var(--series-2)", 1.0 if change.seen else _PALE
    return bars(
        [change.gain],
        [row],
        width=0.56,
        name=plot_text(change.name),
        showlegend=False,
        hovertext=[text],
        marker={"color": colour, "opacity": opacity, "line": {"width": 0}},
        error_x=whiskers([change.gain], [change.low], [change.high], INK if change.seen else MUTED, thickness=1, width=3),
    )


# -- memory --------------------------------------------------------------------------------

MEMORY_COLOURS: dict[PartName, str] = {
    **{name: f"var(--series-{place + 1})" for place, name in enumerate(list(PARTS)[:6])},
    "buckets": "var(--part-waiting)",
    "logits": "var(--part-exposed-communication)",
    "workspace": "var(--part-apply)",
    "input": "var(--part-input)",
    "reserve": MUTED,
}
"""Of each part of a device's memory."""
_GIB = 2.0**30


def memory_figure(memory: Memory) -> Figure:
    """A bar of parts for each kind of device, against a line where its memory ends; its height is in the layout."""
    devices, drawn = memory.devices, []
    for name, label in PARTS.items():
        sizes = {row: part.size_bytes for row, device in enumerate(devices) if (part := device.part(name)) is not None and part.size_bytes}
        if sizes:
            texts = [f"<b>{label}</b>, {plot_text(devices[row].name)}<br>{format_bytes(size)}" for row, size in sizes.items()]
            marker = {"color": MEMORY_COLOURS[name], "line": {"width": 0}}
            drawn.append(bars([size / _GIB for size in sizes.values()], list(sizes), name=label, width=0.6, hovertext=texts, marker=marker))
    capacity = max((device.capacity_bytes or 0.0 for device in devices), default=0.0) / _GIB
    return figure(
        drawn,
        barmode="stack",
        height=_MARGIN_PX + _CHANGE_PX * len(devices),
        margin={"l": 88, "r": 16, "t": 10, "b": 44},
        shapes=[upright(capacity, dash="dot")],
        xaxis=linear_axis(max(capacity, *(device.need_bytes / _GIB for device in devices)), "Memory (GiB)"),
        yaxis=rows_axis([device.name.capitalize() for device in devices]),
    )


# -- a plan --------------------------------------------------------------------------------

_LABEL = {"size": 11, "color": INK}
_CLOSE = 0.15
"""Of the width of a figure: points nearer to the answer have no label next to its own."""


def pareto_figure(plan: Plan) -> Figure | None:
    """Cost against time of the whole training, or dollars an hour against throughput where the goal is a rate.

    None where fewer than two candidates have a price above 0.
    """
    whole = plan.goal.samples is not None
    every = {candidate.key: candidate for candidate in (*plan.candidates, plan.chosen, *plan.pareto)}
    places = {key: place for key, candidate in every.items() if (place := _place(candidate, whole=whole)) is not None}
    priced = [candidate for candidate in plan.candidates if candidate.key in places]
    if len(priced) < _FEWEST_DRAWN:
        return None
    front = sorted(places[candidate.key] for candidate in plan.pareto if candidate.key in places)
    dotted = {"color": "var(--series-1)", "width": 1.5, "dash": "dot", "shape": "hv" if whole else "vh"}
    drawn = [scatter(*_columns(front), mode="lines", line=dotted)]
    for met, colour, symbol in ((True, "var(--series-1)", "circle"), (False, MUTED, "triangle-down")):
        if some := [candidate for candidate in priced if candidate.meets == met]:
            fill = [PAPER if candidate.result.extrapolated else colour for candidate in some]
            marker = {"size": 8, "color": fill, "symbol": symbol, "line": {"color": colour, "width": 1.5}}
            texts = [_candidate_hover(candidate, whole=whole) for candidate in some]
            drawn.append(scatter(*_columns([places[candidate.key] for candidate in some]), hovertext=texts, marker=marker))
    if plan.chosen.key in places:
        ring = {"size": 18, "symbol": "circle-open", "color": INK, "line": {"color": INK, "width": 2}}
        drawn.append(scatter(*_columns([places[plan.chosen.key]]), marker=ring))
    xs, ys = _columns([places[candidate.key] for candidate in priced])
    # where the goal lies: a deadline in hours and a budget in US dollars, or a throughput
    goal = plan.goal
    goal_x = goal.deadline_s / _HOUR_S if goal.deadline_s is not None else None
    target, unit = goal.target_throughput_samples_per_s, plan.unit
    goal_x, goal_y = (goal_x, goal.budget_usd) if whole else (None if target is None else target * unit.per_sample, None)
    shapes, words = [], []
    if goal_x is not None:
        xs.append(goal_x)
        shapes.append(upright(goal_x, dash="dash"))
        said = f"deadline {written(goal.deadline_s, 'setting_s')}" if whole else f"{written(goal_x, 'setting')} {unit.per_s}"
        words.append(words_at(math.log10(goal_x), 1, "x", "paper", said, xanchor="right", yanchor="top", xshift=-4, font=_LABEL))
    if goal_y is not None:
        ys.append(goal_y)
        shapes.append({**upright(0, dash="dash"), "xref": "paper", "yref": "y", "x1": 1, "y0": goal_y, "y1": goal_y})
        said = f"budget {format_usd(goal_y)}"
        words.append(words_at(1, math.log10(goal_y), "paper", "y", said, xanchor="right", yanchor="bottom", font=_LABEL))
    title_x, title_y = ("Time (hours)", "Cost (US dollars)") if whole else (f"Throughput ({unit.per_s})", "Price (US dollars an hour)")
    # how many workers the answer and the ends of the front have, above or below the point, on the side that has more room
    middle = math.sqrt(min(xs) * max(xs))
    span = math.log(max(xs) / min(xs)) or 1.0
    for key in dict.fromkeys(candidate.key for candidate in (plan.chosen, *plan.pareto[:1], *plan.pareto[-1:]) if candidate.key in places):
        x, y = places[key]
        if key != plan.chosen.key and plan.chosen.key in places and abs(math.log(x / places[plan.chosen.key][0])) < _CLOSE * span:
            continue
        side = {"xanchor": "left", "xshift": 7} if x < middle else {"xanchor": "right", "xshift": -7}
        count = counted(every[key].result.scenario.workers, "worker")
        above = {"yanchor": "bottom", "yshift": 8} if key == plan.chosen.key else {"yanchor": "top", "yshift": -3}
        words.append(words_at(math.log10(x), math.log10(y), "x", "y", count, font=_LABEL, **above, **side))
    margin = {"l": 62, "r": 14, "t": 16, "b": 44}
    return figure(drawn, margin=margin, xaxis=log_axis(xs, title_x), yaxis=log_axis(ys, title_y), shapes=shapes, annotations=words)


def _columns(places: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in places], [y for _, y in places]


def _place(candidate: Candidate, *, whole: bool) -> tuple[float, float] | None:
    """Where it stands on the two axes; none without a price, or where that is 0, for which a logarithmic axis has no place."""
    if not whole:
        return (candidate.result.rate.mean, candidate.usd_per_hour) if candidate.usd_per_hour else None
    time_s, cost = candidate.time_s, candidate.cost_usd
    return (time_s.mean / _HOUR_S, cost.mean) if time_s is not None and cost is not None and cost.mean else None


def _candidate_hover(candidate: Candidate, *, whole: bool) -> str:
    rate, unit = candidate.result.rate, candidate.result.scenario.unit
    lines = [f"<b>{plot_text(candidate.name)}</b>", f"{candidate.scaling} scaling, {plot_text(candidate.placement)}"]
    lines.append(f"{format_throughput(rate.mean)} {unit.per_s} (90% interval {format_interval(rate.low, rate.high, 'throughput')})")
    if whole and candidate.time_s is not None and candidate.cost_usd is not None:
        lines.append(f"{format_seconds(candidate.time_s.mean)} and {format_usd(candidate.cost_usd.mean)}")
    elif candidate.usd_per_hour is not None:
        lines.append(f"{format_hourly(candidate.usd_per_hour)} an hour")
    return "<br>".join([*lines, f"meets the goal with {format_share(candidate.confidence)} confidence"])


_POINTS = 24
"""Of a line, at which a reader may ask what was paid by then."""


def paying_figure(plan: Plan) -> Figure | None:
    """What has been paid after some months for the same work, in each way to pay; none where none is in advance, or none by the hour.

    A line and a band for each way, in the order of the plan's payments; diamonds where paying in advance begins to pay, with whiskers
    of their 90% intervals.
    """
    if not plan.break_even:
        return None
    series = {payment.name: number for number, payment in enumerate(plan.payments)}
    most = max(pair.lasts_months for pair in plan.break_even)
    lines: dict[str, tuple[float, Estimate, float]] = {}
    for pair in plan.break_even:
        lines.setdefault(pair.own, (pair.capital_usd, pair.own_usd_per_month, pair.lasts_months))
        lines.setdefault(pair.rented, (0.0, pair.rented_usd_per_month, most))
    drawn = []
    for name, (capital, month, lasts) in sorted(lines.items(), key=lambda line: series[line[0]]):
        low, middle, high = (
            [capital + usd * lasts * place / _POINTS for place in range(_POINTS + 1)] for usd in (month.low, month.mean, month.high)
        )
        months = [lasts * place / _POINTS for place in range(_POINTS + 1)]
        texts = [
            f"<b>{plot_text(name)}</b><br>{format_number(after)} months: {format_usd(paid)} ({format_usd(least)} to {format_usd(largest)})"
            for after, least, paid, largest in zip(months, low, middle, high, strict=True)
        ]
        drawn += spread_curve(months, low, middle, high, series[name], texts, width=2, dash="solid" if capital else "dash")
    for pair in plan.break_even:
        if pair.months is not None:
            soonest = pair.months if pair.months_low is None else pair.months_low
            latest = pair.lasts_months if pair.months_high is None else pair.months_high
            marker = {"size": 11, "symbol": "diamond", "color": series_colour(series[pair.own]), "line": {"color": INK, "width": 1.5}}
            drawn.append(
                scatter(
                    [pair.months], [pair.capital_usd + pair.own_usd_per_month.mean * pair.months], marker=marker,
                    hovertext=[plot_text(pair.text, _LONGEST_HOVER * 2)], error_x=whiskers([pair.months], [soonest], [latest]),
                )
            )  # fmt: skip
    highest = max(capital + month.high * lasts for capital, month, lasts in lines.values())
    axes = {"xaxis": linear_axis(most, "Months"), "yaxis": linear_axis(highest, "Paid by then (US dollars)")}
    return figure(drawn, margin={"l": 72, "r": 14, "t": 12, "b": 44}, **axes)


# -- the whole job -------------------------------------------------------------------------

_MOST_EPOCHS = 24
"""That are drawn one by one."""
_LANE_PX, _AXIS_PX, _TOP_PX = 30, 46, 10
_UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
_LEAST_IN_UNIT = 3.0


@dataclass(frozen=True)
class Stretch:
    """A stretch of time: the part of :class:`~simulator.spec.figures.JobParts` whose colour it has, and what it is in words."""

    part: str
    seconds: float
    text: str


@dataclass(frozen=True)
class Strip:
    """Stretches of time one after the other, with a name in front; strips with the same ``scale`` have a common axis."""

    name: str
    scale: str
    pieces: tuple[Stretch, ...]


def strips_of(result: Result) -> tuple[Strip, ...]:
    """The whole job; its first epoch and a later one; and a fault, where there are any. Nothing without a job."""
    job = result.job
    if job is None:
        return ()
    strips = [("Whole job", "job", [*_whole(job, _epochs(result))])]
    if job.each_epoch:
        first, *later = job.each_epoch
        usual = max(later, key=lambda epoch: epoch.like_it, default=None)
        startup = Stretch("startup", job.parts_s.startup, "until the first step begins")
        strips.append(("Start and epoch 1", "epoch", [startup, *_epoch(first, usual)]))
        if usual is not None:
            strips.append((f"Epoch {usual.number:,}", "epoch", [*_epoch(usual, usual)]))
    if job.faults and (job.parts_s.down or job.parts_s.lost_work):
        strips.append(("A fault", "fault", [*_fault(job)]))
    kept = (Strip(name, scale, tuple(piece for piece in pieces if piece.seconds > 0)) for name, scale, pieces in strips)
    return tuple(strip for strip in kept if strip.pieces)


def _epochs(result: Result) -> list[Epoch]:
    """Every epoch in its order; none where they are too many to be drawn one by one."""
    job, asked = result.job, result.scenario.job
    assert job is not None
    left = {epoch.number: epoch.like_it for epoch in job.each_epoch}
    count = sum(left.values())
    if count > _MOST_EPOCHS:
        return []
    every = asked.evaluation.every_epochs if asked is not None and asked.evaluation is not None else 0
    epochs = []
    for number in range(1, count + 1):
        evaluated = bool(every) and number % every == 0
        begun = [epoch for epoch in job.each_epoch if epoch.number <= number and left[epoch.number]]
        # a group begins where it says; of those that go on the one that is evaluated as this epoch is
        this = min(begun, key=lambda epoch: (epoch.number != number, bool(epoch.evaluation_s) != evaluated))
        left[this.number] -= 1
        epochs.append(this)
    return epochs


_TOGETHER = {
    "tracing": "first steps, by which they take longer",
    "first_epoch": "by which the first epoch's steps take longer",
    "filling": "first batches of all epochs together",
    "iterators": "ends of tf.data iterators, of all epochs together",
    "steps": "steps of all epochs together",
    "evaluation": "evaluations together",
    "checkpoints": "checkpoints together",
}


def _whole(job: JobOutcome, epochs: Sequence[Epoch]) -> Iterator[Stretch]:
    """From start to end; faults, which come anywhere, at the end."""
    yield Stretch("startup", job.parts_s.startup, "until the first step begins")
    usual = max(epochs[1:], key=lambda epoch: epoch.like_it, default=None)
    for number, epoch in enumerate(epochs, 1):
        yield from (Stretch(piece.part, piece.seconds, f"epoch {number:,}: {piece.text}") for piece in _epoch(epoch, usual))
    if not epochs:
        yield from (Stretch(name, getattr(job.parts_s, name), text) for name, text in _TOGETHER.items())
    for name in ("lost_work", "down", "fewer_workers"):
        yield Stretch(name, getattr(job.parts_s, name), "of all faults together, mean over runs")


def _epoch(epoch: Epoch, usual: Epoch | None) -> Iterator[Stretch]:
    """Yield what its first step takes beyond a later one, its steps, and what follows; slower steps than usual apart."""
    steps_s = max(epoch.time_s - epoch.evaluation_s - epoch.checkpoint_s - epoch.iterators_s, 0.0)
    opening_s = min(max(epoch.first_step_s - epoch.step_s, 0.0), steps_s)
    traced = epoch.number == 1
    yield Stretch("iterators", epoch.iterators_s, "until the last epoch's tf.data iterators have ended")
    yield Stretch("tracing" if traced else "filling", opening_s, "by which its first step takes longer than later ones")
    slower_s = max(epoch.step_s - usual.step_s, 0.0) * epoch.steps if usual is not None and traced else 0.0
    slower_s = min(slower_s, steps_s - opening_s)
    yield Stretch("steps", steps_s - opening_s - slower_s, f"{epoch.steps:,.0f} steps")
    yield Stretch("first_epoch", slower_s, "by which its steps take longer than in later epochs")
    yield Stretch("checkpoints", epoch.checkpoint_s, "waiting for checkpoints")
    yield Stretch("evaluation", epoch.evaluation_s, "evaluation")


def _fault(job: JobOutcome) -> Iterator[Stretch]:
    """A fault of mean consequences: the work since the last checkpoint is lost, then nothing is done, then it is done again."""
    lost_s, down_s = job.parts_s.lost_work / job.faults, job.parts_s.down / job.faults
    if job.checkpointing is not None:
        yield Stretch("checkpoints", job.checkpointing.cost_s, "the last checkpoint before it")
    yield Stretch("lost_work", lost_s, "steps since then, whose work is lost (mean over faults)")
    yield Stretch("down", down_s, "until it is noticed, and what crashed is there again and has read the checkpoint (mean)")
    yield Stretch("steps", lost_s or down_s, "the same steps again" if lost_s else "steps")


def job_timeline_figure(strips: Sequence[Strip]) -> Figure:
    """Each strip to the scale of its axis; its height is in the layout."""
    panels = [[strip for strip in strips if strip.scale == scale] for scale in dict.fromkeys(strip.scale for strip in strips)]
    height = _TOP_PX + sum(_LANE_PX * len(panel) + _AXIS_PX for panel in panels)
    drawn: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    top = height - _TOP_PX
    for index, panel in enumerate(panels):
        number = "" if not index else str(index + 1)
        end_s = max(math.fsum(piece.seconds for piece in strip.pieces) for strip in panel)
        scale, unit = next(((scale, unit) for scale, unit in _UNITS if end_s >= _LEAST_IN_UNIT * scale), _UNITS[-1])
        bottom = top - _LANE_PX * len(panel)
        axes[f"xaxis{number}"] = axis(f"Time ({unit})", anchor=f"y{number}", range=[0, end_s / scale * 1.005], nticks=5, fixedrange=True)
        axes[f"xaxis{number}"]["title"]["standoff"] = 4
        rows = rows_axis([strip.name for strip in panel], 0.5)
        axes[f"yaxis{number}"] = {**rows, "anchor": f"x{number}", "domain": [bottom / height, top / height]}
        for row, strip in enumerate(panel):
            drawn += [{**trace, "xaxis": f"x{number}", "yaxis": f"y{number}"} for trace in _strip_bars(strip, row, scale)]
        top = bottom - _AXIS_PX
    named: set[str] = set()
    for trace in drawn:  # each part once in the legend of an exported image
        trace["showlegend"] = trace["legendgroup"] not in named
        named.add(trace["legendgroup"])
    margin = {"l": 122, "r": 16, "t": 0, "b": 0}
    return figure(drawn, barmode="overlay", height=height, margin=margin, uniformtext={"minsize": 9, "mode": "hide"}, **axes)


def _strip_bars(strip: Strip, row: int, scale: float) -> Iterator[dict[str, Any]]:
    """The pieces of a strip, those of a part as one trace."""
    begins: dict[str, list[tuple[float, Stretch]]] = {}
    begin_s = 0.0
    for piece in strip.pieces:
        begins.setdefault(piece.part, []).append((begin_s, piece))
        begin_s += piece.seconds
    for part in (name for name in PART_LABELS if name in begins):
        placed = begins[part]
        yield bars(
            [piece.seconds / scale for _, piece in placed],
            [row] * len(placed),
            name=PART_LABELS[part],
            legendgroup=part,
            base=[begin_s / scale for begin_s, _ in placed],
            width=0.72,
            hovertext=[
                f"<b>{PART_LABELS[part]}</b> {format_seconds(piece.seconds)}<br>{plot_text(piece.text, _LONGEST_HOVER)}"
                f"<br>from {format_seconds(begin_s)}"
                for begin_s, piece in placed
            ],
            marker={"color": JOB_COLOURS[part], "line": {"color": PAPER, "width": 0.5}},
            **words_in_bars([format_seconds(piece.seconds) for _, piece in placed], JOB_COLOURS[part]),
        )


# -- what was learned ----------------------------------------------------------------------

_TIMES = 60
_ROW_PX, _AROUND_PX = 34, 70
_LONGEST_WAY = 36
_TICKS = 4
"""Of each of up to three axes beside one another."""


def curves_figure(learned: Learned, metric: str, series: Sequence[int]) -> Figure:
    """A metric against simulated time: the median of the runs of each way, in the range of them; ``series`` has the number of each.

    Of an accuracy what it lacks to 1, since that is what still changes at its end.
    """
    errors = "accuracy" in metric
    drawn = []
    times_s, values = [], []
    for number, way in zip(series, learned.ways, strict=True):
        if (spread := _spread(way, metric)) is None:
            continue
        at_s, low, middle, high = (spread[0], *(_errors(spread[place]) for place in (3, 2, 1))) if errors else spread
        times_s += [at_s[0], at_s[-1]]
        values += [*low, *middle, *high]
        texts = [
            f"<b>{plot_text(way.name)}</b><br>{format_seconds(time_s)}: {format_number(value)} "
            f"({format_number(least)} to {format_number(most)})"
            for time_s, least, value, most in zip(at_s, low, middle, high, strict=True)
        ]
        drawn += spread_curve(at_s, low, middle, high, number, texts, width=2.25)
    target = [learned.target.value] if metric == learned.target.metric else []
    target, title = (_errors(target), f"1 − {plot_text(metric)}") if errors else (target, plot_text(metric))
    y_axis = log_axis([*values, *target], title) if errors or metric == "loss" else linear_axis(max(values, default=1.0), title)
    if times_s and target:
        drawn.append(scatter([min(times_s), max(times_s)], target * 2, mode="lines", line={"color": MUTED, "width": 1.5, "dash": "dot"}))
    margin = {"l": 62, "r": 14, "t": 12, "b": 44}
    return figure(drawn, margin=margin, xaxis=log_axis(times_s, "Simulated time (s)"), yaxis=y_axis)


_LEAST_ERROR = 1e-4
"""A logarithmic axis has no place for none."""


def _errors(values: Sequence[float]) -> list[float]:
    return [max(1 - value, _LEAST_ERROR) for value in values]


def _spread(way: LearnedWay, metric: str) -> tuple[list[float], ...] | None:
    """Times, and the smallest, middle and largest value of the runs at each; none without two validations."""
    import numpy as np

    curves = []
    for run in (run for run in way.runs if not run.diverged):
        points = [(point.time_s, point.metrics[metric]) for point in run.points[1:] if metric in point.metrics]
        if len(points) > 1:
            curves.append(np.array(points).T)
    begin_s, end_s = max((curve[0, 0] for curve in curves), default=0.0), min((curve[0, -1] for curve in curves), default=0.0)
    if not 0 < begin_s < end_s:
        return None
    times_s = np.geomspace(begin_s, end_s, _TIMES)
    values = np.array([np.interp(times_s, *curve) for curve in curves])
    return tuple(line.tolist() for line in (times_s, values.min(axis=0), np.median(values, axis=0), values.max(axis=0)))


def target_figure(learned: Learned, series: Sequence[int]) -> Figure:
    """Of each way the time and the cost to the target, and the throughput beside them; ``series`` has the number of each."""
    ways, numbers = learned.ways[::-1], series[::-1]
    panels = ["time", *(["cost"] if any(way.cost_usd is not None for way in ways) else []), "rate"]
    drawn: list[dict[str, Any]] = []
    axes = {}
    for place, panel in enumerate(panels):
        number = "" if not place else str(place + 1)
        traces = (_way_point(way, row, colour, panel) for row, (way, colour) in enumerate(zip(ways, numbers, strict=True)))
        drawn += [{**trace, "xaxis": f"x{number}", "yaxis": "y"} for trace in traces if trace is not None]
        width = 1.0 / len(panels)
        domain = [place * width + (0.02 if place else 0.0), (place + 1) * width - 0.02]
        axes[f"xaxis{number}"] = {**_axis_of(panel, ways), "nticks": _TICKS, "tickangle": 0, "anchor": "y", "domain": domain}
    names = [plot_text(way.name, _LONGEST_WAY) for way in ways]
    ticks = {"tickvals": list(range(len(ways))), "ticktext": names, "automargin": True, "showgrid": False, "zeroline": False}
    y_axis = {"range": [-0.6, len(ways) - 0.4], **ticks}
    return figure(drawn, margin={"l": 210, "r": 14, "t": 8, "b": 48}, height=_AROUND_PX + _ROW_PX * len(ways), yaxis=y_axis, **axes)


def _axis_of(panel: str, ways: Sequence[LearnedWay]) -> dict[str, Any]:
    if panel == "rate":
        return linear_axis(max(way.samples_per_s for way in ways), "Samples per second")
    ranges = [way.time_s if panel == "time" else way.cost_usd for way in ways]
    title = "Time (s)" if panel == "time" else "Cost (US dollars)"
    return linear_axis(max((each.high for each in ranges if each is not None), default=1.0), title)


def _way_point(way: LearnedWay, row: int, number: int, panel: str) -> dict[str, Any] | None:
    """A way's place on an axis; none where it never reached the target."""
    symbol, more = marker_symbol(number), {}
    if panel == "rate":
        value, text = way.samples_per_s, f"{format_throughput(way.samples_per_s)} samples/s"
    else:
        reached, said = (way.time_s, format_seconds) if panel == "time" else (way.cost_usd, format_usd)
        if reached is None:
            return None
        value = reached.median
        text = f"{said(value)} ({said(reached.low)} to {said(reached.high)}), {way.reached} of {len(way.runs)} runs"
        more = {"error_x": whiskers([value], [reached.low], [reached.high])}
        symbol += "" if way.always else "-open"
    marker = {"size": 10, "symbol": symbol, "color": series_colour(number)}
    return scatter([value], [row], hovertext=[f"<b>{plot_text(way.name)}</b><br>{text}"], marker=marker, **more)
