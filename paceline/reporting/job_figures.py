"""The whole job as a timeline, drawn from the means that a result says of it: no moment of it is simulated anew."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from paceline.reporting.axes import JOB_COLOURS, PAPER, layout, text_colour
from paceline.result_tables import PART_LABELS
from simulator.base.text import format_seconds, plot_text
from simulator.results.results import Result
from simulator.spec.figures import Epoch, JobOutcome

_MOST_EPOCHS = 24
"""That are drawn one by one."""
_LANE_PX, _AXIS_PX, _TOP_PX = 30, 46, 10
_UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
_LEAST_IN_UNIT = 3.0
_LONGEST = 160


@dataclass(frozen=True)
class Piece:
    """A stretch of time.

    Attributes
    ----------
    part
        Of :class:`~simulator.spec.figures.JobParts`, whose colour it has.
    text
        What it is, in words.
    """

    part: str
    seconds: float
    text: str


@dataclass(frozen=True)
class Strip:
    """Pieces one after the other.

    Attributes
    ----------
    name
        In front of it.
    scale
        Strips with the same one have a common axis.
    """

    name: str
    scale: str
    pieces: tuple[Piece, ...]


def strips_of(result: Result) -> tuple[Strip, ...]:
    """The whole job; its first epoch and a later one; and a fault, where there are any. Nothing without a job."""
    job = result.job
    if job is None:
        return ()
    strips = [Strip("Whole job", "job", tuple(_whole(job, _epochs(result))))]
    if job.each_epoch:
        first, *later = job.each_epoch
        startup = [Piece("startup", job.parts_s.startup, "until the first step begins")]
        usual = max(later, key=lambda its: its.like_it, default=None)
        strips.append(Strip("Start and epoch 1", "epoch", (*startup, *_epoch(first, usual))))
        if usual is not None:
            strips.append(Strip(f"Epoch {usual.number:,}", "epoch", tuple(_epoch(usual, usual))))
    if job.faults and (job.parts_s.down or job.parts_s.lost_work):
        strips.append(Strip("A fault", "fault", tuple(_fault(job))))
    kept = (Strip(its.name, its.scale, tuple(piece for piece in its.pieces if piece.seconds > 0)) for its in strips)
    return tuple(its for its in kept if its.pieces)


def _epochs(result: Result) -> list[Epoch]:
    """Every epoch in its order; none where they are too many to be drawn one by one."""
    job, asked = result.job, result.scenario.job
    assert job is not None
    left = {its.number: its.like_it for its in job.each_epoch}
    count = sum(left.values())
    if count > _MOST_EPOCHS:
        return []
    every = asked.evaluation.every_epochs if asked is not None and asked.evaluation is not None else 0
    found = []
    for number in range(1, count + 1):
        evaluated = bool(every) and number % every == 0
        begun = [its for its in job.each_epoch if its.number <= number and left[its.number]]
        # a group begins where it says; of those that go on the one that is evaluated as this epoch is
        its = next((one for one in begun if one.number == number), None) or min(begun, key=lambda one: bool(one.evaluation_s) != evaluated)
        left[its.number] -= 1
        found.append(its)
    return found


def _whole(job: JobOutcome, epochs: Sequence[Epoch]) -> Iterator[Piece]:
    """From start to end; faults, which come anywhere, at the end."""
    parts = job.parts_s
    yield Piece("startup", parts.startup, "until the first step begins")
    if epochs:
        usual = max(epochs[1:], key=lambda its: its.like_it, default=None)
        for number, its in enumerate(epochs, 1):
            yield from (Piece(piece.part, piece.seconds, f"epoch {number:,}: {piece.text}") for piece in _epoch(its, usual))
    else:
        yield Piece("tracing", parts.tracing, "first steps, by which they take longer")
        yield Piece("first_epoch", parts.first_epoch, "by which the first epoch's steps take longer")
        yield Piece("filling", parts.filling, "first batches of all epochs together")
        yield Piece("iterators", parts.iterators, "ends of tf.data iterators, of all epochs together")
        yield Piece("steps", parts.steps, "steps of all epochs together")
        yield Piece("evaluation", parts.evaluation, "evaluations together")
        yield Piece("checkpoints", parts.checkpoints, "checkpoints together")
    for name in ("lost_work", "down", "fewer_workers"):
        yield Piece(name, getattr(parts, name), "of all faults together, mean over runs")


def _epoch(its: Epoch, usual: Epoch | None) -> Iterator[Piece]:
    """One epoch: what its first step takes beyond a later one, its steps, and what follows; slower steps than usual apart."""
    steps_s = max(its.time_s - its.evaluation_s - its.checkpoint_s - its.iterators_s, 0.0)
    opening_s = min(max(its.first_step_s - its.step_s, 0.0), steps_s)
    traced = its.number == 1
    yield Piece("iterators", its.iterators_s, "until the last epoch's tf.data iterators have ended")
    yield Piece("tracing" if traced else "filling", opening_s, "by which its first step takes longer than later ones")
    slower_s = max(its.step_s - usual.step_s, 0.0) * its.steps if usual is not None and traced else 0.0
    slower_s = min(slower_s, steps_s - opening_s)
    yield Piece("steps", steps_s - opening_s - slower_s, f"{its.steps:,.0f} steps")
    yield Piece("first_epoch", slower_s, "by which its steps take longer than in later epochs")
    yield Piece("checkpoints", its.checkpoint_s, "waiting for checkpoints")
    yield Piece("evaluation", its.evaluation_s, "evaluation")


def _fault(job: JobOutcome) -> Iterator[Piece]:
    """A fault of mean consequences: the work since the last checkpoint is lost, then nothing is done, then it is done again."""
    lost_s, down_s = job.parts_s.lost_work / job.faults, job.parts_s.down / job.faults
    if job.checkpointing is not None:
        yield Piece("checkpoints", job.checkpointing.cost_s, "the last checkpoint before it")
    yield Piece("lost_work", lost_s, "steps since then, whose work is lost (mean over faults)")
    yield Piece("down", down_s, "until it is noticed, and what crashed is there again and has read the checkpoint (mean)")
    yield Piece("steps", lost_s or down_s, "the same steps again" if lost_s else "steps")


def job_timeline_figure(strips: Sequence[Strip]) -> go.Figure:
    """Each strip to the scale of its axis; its height is in the layout."""
    drawn = go.Figure()
    scales = list(dict.fromkeys(its.scale for its in strips))
    panels = [[its for its in strips if its.scale == scale] for scale in scales]
    height = _TOP_PX + sum(_LANE_PX * len(panel) + _AXIS_PX for panel in panels)
    axes: dict[str, object] = {}
    top = height - _TOP_PX
    named: set[str] = set()
    for index, panel in enumerate(panels):
        number = "" if not index else str(index + 1)
        end_s = max(math.fsum(piece.seconds for piece in its.pieces) for its in panel)
        scale, unit = next(((scale, unit) for scale, unit in _UNITS if end_s >= _LEAST_IN_UNIT * scale), _UNITS[-1])
        bottom = top - _LANE_PX * len(panel)
        axes[f"xaxis{number}"] = {
            "anchor": f"y{number}", "range": [0, end_s / scale * 1.005], "title": {"text": f"Time ({unit})", "standoff": 4},
            "gridcolor": "var(--grid)", "zeroline": False, "nticks": 5, "fixedrange": True,
        }  # fmt: skip
        axes[f"yaxis{number}"] = {
            "anchor": f"x{number}", "domain": [bottom / height, top / height],
            "range": [len(panel) - 0.5, -0.5], "fixedrange": True, "showgrid": False, "zeroline": False,
            "tickmode": "array", "tickvals": list(range(len(panel))), "ticktext": [plot_text(its.name) for its in panel],
        }  # fmt: skip
        for row, strip in enumerate(panel):
            _draw(drawn, strip, row, number, scale, named)
        top = bottom - _AXIS_PX
    drawn.update_layout(
        layout(
            barmode="overlay",
            height=height,
            margin={"l": 122, "r": 16, "t": 0, "b": 0},
            uniformtext={"minsize": 9, "mode": "hide"},
            **axes,
        )
    )
    return drawn


def _draw(drawn: go.Figure, strip: Strip, row: int, number: str, scale: float, named: set[str]) -> None:
    """The pieces of a strip, those of a part as one trace; each part is named once in the legend of an exported image."""
    begins: dict[str, list[tuple[float, Piece]]] = {}
    at = 0.0
    for piece in strip.pieces:
        begins.setdefault(piece.part, []).append((at, piece))
        at += piece.seconds
    for part in (name for name in PART_LABELS if name in begins):
        held = begins[part]
        drawn.add_bar(
            orientation="h",
            xaxis=f"x{number}",
            yaxis=f"y{number}",
            name=PART_LABELS[part],
            legendgroup=part,
            showlegend=part not in named,
            base=[begin / scale for begin, _ in held],
            x=[piece.seconds / scale for _, piece in held],
            y=[row] * len(held),
            width=0.72,
            text=[format_seconds(piece.seconds) for _, piece in held],
            textposition="inside",
            insidetextanchor="middle",
            insidetextfont={"color": text_colour(JOB_COLOURS[part])},
            textangle=0,
            constraintext="inside",
            hoverinfo="text",
            hovertext=[
                f"<b>{PART_LABELS[part]}</b> {format_seconds(piece.seconds)}<br>{plot_text(piece.text, _LONGEST)}"
                f"<br>from {format_seconds(begin)}"
                for begin, piece in held
            ],
            marker={"color": JOB_COLOURS[part], "line": {"color": PAPER, "width": 0.5}},
        )
        named.add(part)
