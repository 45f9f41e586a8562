"""Some steps of a run as a Gantt chart, with the critical path of one of them."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from paceline.reporting.axes import INK, layout
from paceline.reporting.lanes import Window
from paceline.reporting.pieces import Kind, Piece, coarse
from paceline.reporting.shortened import shortened
from simulator.observing.critical_path import CriticalPath, critical_path, median_step
from simulator.observing.recording import Recording
from simulator.observing.step_bound import bound_of_step
from simulator.records import Transfer
from simulator.replication import replicate
from simulator.scenario import Scenario
from simulator.text import format_bytes, format_duration, plot_text

__all__ = ["Bar", "Kind", "Timeline", "figure", "timeline_of"]

_STEPS = 3
_MOST_REPLICAS = 8
_MOST_CONNECTIONS = 10
_MOST_SERVERS = 6
_MOST_BARS = 150
_ROW_PX = 20
_MARGIN_PX = 66
_PATH = "critical path"
_LONGEST_HOVER = 160


@dataclass(frozen=True)
class Bar:
    """One piece of work or waiting, in one lane.

    Attributes
    ----------
    lane
        One of :attr:`Timeline.lanes`.
    start_s, end_s
        In seconds from the left edge of the chart.
    kind
        What the time went into, which is its colour.
    critical
        Whether it lies on the critical path of the middle step.
    text
        What it is, in words.
    """

    lane: str
    start_s: float
    end_s: float
    kind: Kind
    critical: bool
    text: str


@dataclass(frozen=True)
class Timeline:
    """Some steps of replication 0 of a scenario.

    Attributes
    ----------
    name
        Of the curve or configuration that it is of.
    lanes
        From top to bottom: the critical path, replicas, connections, servers.
    bars
        In the order of the lanes, and in each of time; no two of a lane overlap.
    sentence
        What bounds the step whose critical path is marked.
    note
        What is drawn and what is not, and whether the run was made shorter or smaller for it.
    """

    name: str
    lanes: tuple[str, ...]
    bars: tuple[Bar, ...]
    sentence: str
    note: str


def timeline_of(scenario: Scenario, name: str) -> Timeline | None:
    """Simulate replication 0 again and lay out three steps of a replica: one of median length, and those around it.

    A long or large run is cut to its first steps, or to fewer replicas if that is not
    enough; the note says so.

    Parameters
    ----------
    scenario
        What to look into.
    name
        What the chart is to be called.

    Returns
    -------
    Timeline or None
        None where no step ended.

    Raises
    ------
    SimulationError
        The run cannot be made small enough.
    """
    short, told = shortened(scenario)
    recording = Recording()
    replicate(short, 0, recording)
    measured = recording.steps[short.warmup * short.replicas :] or recording.steps
    if not measured:
        return None
    path = critical_path(recording, median_step(measured))
    own = [step for step in recording.steps if step.replica == path.step.replica]
    first = max(0, min(path.number - 1 - _STEPS // 2, len(own) - _STEPS))
    last = min(first + _STEPS, len(own)) - 1
    window = Window(recording, path, own[first].start_s, own[last].end_s)
    drawn = _Drawn(window, path)
    steps = f"step {first + 1}" if first == last else f"steps {first + 1} to {last + 1}"
    note = " ".join(part for part in (f"Drawn are {steps} of {path.name} in the first replication.", *drawn.left_out, told) if part)
    return Timeline(name, tuple(drawn.lanes), drawn.bars, bound_of_step(path), note)


class _Drawn:
    """The lanes that are drawn, and what is left out."""

    def __init__(self, window: Window, path: CriticalPath) -> None:
        self._window = window
        self._path = path
        self.left_out: list[str] = []
        self.lanes: dict[str, list[Piece]] = {f"{_PATH} of step {path.number}": window.path()}
        through = {place for segment in path.segments for place in segment.places}
        shown = self._replicas({place.replica for place in through})
        self.lanes |= {str(window.place(replica)): window.of_replica(replica) for replica in shown}
        carried = window.connections()
        near = {lane: its for lane, its in carried.items() if any(_touches(piece, set(shown)) for piece in its)}
        mine = {lane for lane, its in near.items() if any(_touches(piece, {path.step.replica}) for piece in its)}
        self._add(near, mine, _MOST_CONNECTIONS, len(carried), "connections")
        served = window.servers()
        self._add(served, {str(place) for place in through if place.kind == "server"}, _MOST_SERVERS, len(served), "servers")
        window_s = window.end_s - window.start_s
        for lane, pieces in self.lanes.items():
            if len(pieces) > _MOST_BARS and not lane.startswith(_PATH):
                self.lanes[lane] = coarse(pieces, window_s / _MOST_BARS)
                told = f"Pieces shorter than {format_duration(window_s / _MOST_BARS)} are drawn as part of those beside them."
                self.left_out = [*(one for one in self.left_out if one != told), told]

    @property
    def bars(self) -> tuple[Bar, ...]:
        start_s = self._window.start_s
        return tuple(
            Bar(lane, piece.start_s - start_s, piece.end_s - start_s, piece.kind, piece.critical, _text(lane, piece))
            for lane, pieces in self.lanes.items()
            for piece in pieces
        )

    def _replicas(self, through: set[int | None]) -> list[int]:
        """All replicas where they are few; else that of the path, those that it leads through, the slowest, the fastest, and some."""
        steps = self._window.steps
        replicas = sorted(steps)
        if len(replicas) <= _MOST_REPLICAS:
            return replicas
        length = {
            replica: (
                float(f"{statistics.fmean(step.end_s - step.start_s for step in its):.9g}"),
                statistics.fmean(step.compute_s for step in its),
            )
            for replica, its in steps.items()
        }
        fastest, slowest = min(replicas, key=lambda one: (length[one], one)), max(replicas, key=lambda one: (length[one], -one))
        others = [replica for replica in replicas if replica in through]
        spread = [replicas[round(place * (len(replicas) - 1) / (_MOST_REPLICAS - 1))] for place in range(_MOST_REPLICAS)]
        shown = sorted(list(dict.fromkeys([self._path.step.replica, slowest, fastest, *others[:3], *spread]))[:_MOST_REPLICAS])
        who = self._window.place(0).kind
        self.left_out.append(
            f"Of {len(replicas):,} {who}s {len(shown)} are drawn, {who} {slowest} the slowest and {who} {fastest} the fastest among all."
        )
        return shown

    def _add(self, lanes: dict[str, list[Piece]], mine: set[str], most: int, of: int, what: str) -> None:
        """Add lanes, those of the path first where there are too many."""
        order = sorted(lanes, key=lambda lane: (not any(piece.critical for piece in lanes[lane]), lane not in mine, _naturally(lane)))
        shown = sorted(order[:most], key=_naturally)
        self.lanes |= {lane: lanes[lane] for lane in shown}
        if len(shown) < of:
            self.left_out.append(f"Of {of:,} {what} {len(shown)} are drawn.")


def _touches(piece: Piece, replicas: set[int]) -> bool:
    """Whether a message from or to one of these is in it."""
    return any(end.replica in replicas for work in piece.works if isinstance(work, Transfer) for end in (work.source, work.target))


def _text(lane: str, piece: Piece) -> str:
    """What a bar is: ``push, 14 messages, 3.2 MiB``."""
    transfers = [work for work in piece.works if isinstance(work, Transfer)]
    parts = [piece.what if lane.startswith(_PATH) else f"{lane}: {piece.what}"]
    if len(piece.works) > 1:
        parts.append(f"{len(piece.works):,} {'messages' if transfers else 'pieces'}")
    if transfers:
        parts.append(format_bytes(sum(work.size_bytes for work in transfers)))
    return ", ".join([*parts, format_duration(piece.length_s)])


def _naturally(name: str) -> list[tuple[int, str]]:
    """Sorts ``worker 2`` before ``worker 10``."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def figure(timeline: Timeline) -> go.Figure:
    """The timeline as a chart: colour tells the kind, an outline what is critical; its height is in the layout."""
    drawn = go.Figure()
    row = {lane: index for index, lane in enumerate(timeline.lanes)}
    end_s = max((bar.end_s for bar in timeline.bars), default=1.0)
    scale, unit = next((scale, unit) for scale, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")) if end_s * scale >= 1 or unit == "µs")
    for kind, label in _LABELS.items():
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
            width=[0.9 if bar.critical else 0.6 for bar in bars],
            hoverinfo="text",
            hovertext=[_hover(bar) for bar in bars],
            marker={
                "color": f"var(--part-{'exposed-communication' if kind == 'communication' else kind})",
                "line": {"color": INK, "width": [1.5 if bar.critical else 0 for bar in bars]},
            },
        )
    marked = [bar for bar in timeline.bars if bar.lane == timeline.lanes[0]] if timeline.lanes else []
    drawn.update_layout(
        layout(
            barmode="overlay",
            height=_MARGIN_PX + _ROW_PX * len(timeline.lanes),
            margin={"l": 150, "r": 12, "t": 10, "b": 44},
            shapes=[_rule(at * scale) for at in _ends(marked)],
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


_LABELS: dict[Kind, str] = {
    "input": "Input",
    "compute": "Compute",
    "communication": "Communication",
    "waiting": "Waiting",
    "apply": "Apply",
}
"""The kinds in the order of a step's parts."""


def _hover(bar: Bar) -> str:
    critical = ", on the critical path" if bar.critical else ""
    return f"<b>{_LABELS[bar.kind]}</b>{critical}<br>{plot_text(bar.text, _LONGEST_HOVER)}<br>from {format_duration(bar.start_s)}"


def _ends(bars: Sequence[Bar]) -> list[float]:
    return [bars[0].start_s, bars[-1].end_s] if bars else []


def _rule(at: float) -> dict[str, object]:
    """Where the marked step begins or ends."""
    line = {"color": INK, "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": line}
