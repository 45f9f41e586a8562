"""What throughput gains or loses by one change at a time, simulated: a tornado."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from paceline.comparing import compare, has_effect
from paceline.planning.answer import Improvement
from paceline.planning.improvements import improvements
from paceline.reporting.axes import INK, MUTED, layout
from paceline.reporting.halving import Halving, halvings
from paceline.reporting.shortened import all_reduces_a_step
from paceline.sweeping import Outcome, Runner, Simulations
from simulator.errors import SimulationError
from simulator.figures import Estimate
from simulator.intervals import FEWEST_REPLICATIONS
from simulator.results import Result
from simulator.scenario import Scenario
from simulator.text import format_change, plot_text

__all__ = ["Change", "changes_of", "figure"]

_MOST_EVENTS = 300_000
"""Events of one what-if that one or two seconds of one core take."""
_MOST_EVENTS_OF_ALL = 2_000_000
"""Of one what-if of as few steps as make sense; beyond it has fewer replications than an interval without assumptions needs."""
_REFUSED_EVENTS = 5_000_000
_FEWEST, _FEWEST_STEPS = 5, 20
_EVENTS_AN_ALL_REDUCE, _EVENTS_A_RANK = 40, 0.1
"""What an all-reduce of all ranks at once costs, and each rank's part in a step, in events that take as long."""
_ROW_PX = 30
_MARGIN_PX = 66


@dataclass(frozen=True)
class Change:
    """One change to the configuration that the report answers with.

    Attributes
    ----------
    name
        Such as ``2x network``.
    text
        What was changed, in a sentence.
    gain
        Throughput over that without the change, run by run, less 1: the mean; none where it is not known.
    low, high
        Ends of its 90% prediction interval.
    reason
        What limits it then; or why it is not known.
    row
        What is changed, such as ``network``: a change up and one down share a row of the tornado.
    run
        How long was simulated, with and without the change, where that is less than the result itself rests on.
    """

    name: str
    text: str
    gain: float | None
    low: float | None
    high: float | None
    reason: str
    row: str
    run: str = ""

    @property
    def seen(self) -> bool:
        """Whether the runs show an effect: the interval of the gain leaves out nought."""
        if self.gain is None or self.low is None or self.high is None:
            return False
        return has_effect(Estimate(mean=1 + self.gain, low=1 + self.low, high=1 + self.high))


def changes_of(result: Result, jobs: int = 0, progress: Callable[[int, int], None] | None = None) -> tuple[Change, ...]:
    """Simulate improvements and their opposites, each alone, with the same random streams as the configuration itself.

    So each run with a change has its pair without. A configuration that takes long to
    simulate is simulated with 19 replications only, then with fewer steps, then with fewer
    replications, the one without a change too; each change says so.

    Parameters
    ----------
    result
        Of the configuration that is changed.
    jobs
        Processes; 0 takes all cores.
    progress
        Called with scenarios done and known so far.

    Returns
    -------
    tuple of Change
        Those with the greatest effect first, those not known last.

    Raises
    ------
    SimulationError
        It takes too long even so, or a process was killed.
    """
    scenario, told = _affordable(result)
    with Runner(jobs=jobs) as runner:
        run = Simulations(runner, progress=progress)
        (base,) = run([scenario])
        if not isinstance(base, Result):
            raise SimulationError(base.failed.text)
        better = [_of_improvement(its, told) for its in improvements(scenario, base, run)]
        worse = halvings(scenario)
        outcomes = run([its.scenario for its in worse])
    changes = better + [_of_halving(its, outcome, base, told) for its, outcome in zip(worse, outcomes, strict=True)]
    return tuple(sorted(changes, key=lambda its: (its.gain is None, -abs(its.gain or 0.0), its.name)))


def _affordable(result: Result) -> tuple[Scenario, str]:
    """The scenario with as many replications and steps as some seconds allow, and what was changed for that, in words."""
    scenario = result.scenario
    run = scenario.run
    rank_steps = run.total_steps(scenario.replicas) * run.replications
    work = result.events + rank_steps * (_EVENTS_A_RANK + _EVENTS_AN_ALL_REDUCE * all_reduces_a_step(scenario) / scenario.replicas)
    if work <= _MOST_EVENTS:
        return scenario, ""

    def fewer(count: int, fewest: int, most_events: float) -> int:
        """As many of a count as so much work allows."""
        return min(count, max(fewest, int(count * most_events / work)))

    replications, steps = fewer(run.replications, FEWEST_REPLICATIONS, _MOST_EVENTS), run.steps
    work *= replications / run.replications
    if run.job_steps is None and work > _MOST_EVENTS:
        steps = fewer(steps, _FEWEST_STEPS, _MOST_EVENTS)
        work *= steps / run.steps
    if work > _MOST_EVENTS_OF_ALL:
        replications, all_of_them = fewer(replications, _FEWEST, _MOST_EVENTS_OF_ALL), replications
        work *= replications / all_of_them
    if work > _REFUSED_EVENTS:
        raise SimulationError("one change alone would take minutes to simulate; simulate some yourself with `paceline sweep --over`")
    if run.job_steps is None:
        scenario = scenario.shortened(steps, min(run.warmup, steps // 4))
        steps = scenario.run.steps
    short = scenario.run.model_copy(update={"replications": replications})
    length = f"{steps:,} steps" if run.job_steps is None else f"{run.job_steps:,} steps of all workers together"
    told = f"{replications} replications of {length}"
    return scenario.model_copy(update={"run": short}), told


_ROWS = {
    "network": "network", "latency": "latency", "links in a node": "links in a node", "host link": "host link", "device": "device",
    "PS": "server", "batch": "batch",
}  # fmt: skip
"""What an improvement's name says of what it changes; any other has a row of its own."""


def _of_improvement(its: Improvement, told: str) -> Change:
    row = next((row for word, row in _ROWS.items() if word in its.name), its.name)
    if its.effect is None:
        return Change(its.name, "", None, None, None, its.text, row)
    return _changed(its.name, its.text, its.effect, its.bottleneck, row, told)


def _of_halving(its: Halving, outcome: Outcome, base: Result, told: str) -> Change:
    if not isinstance(outcome, Result):
        return Change(its.name, its.text, None, None, None, outcome.failed.text, its.row)
    return _changed(its.name, its.text, compare(outcome, base).ratio, outcome.bottleneck.label, its.row, told)


def _changed(name: str, text: str, ratio: Estimate, reason: str, row: str, told: str) -> Change:
    return Change(name, text, ratio.mean - 1, ratio.low - 1, ratio.high - 1, reason, row, told)


def figure(changes: Sequence[Change]) -> go.Figure:
    """The tornado: a row for each thing that is changed, the change that does most on top; its height is in the layout."""
    known = [its for its in changes if its.gain is not None]
    rows = list(dict.fromkeys(its.row for its in sorted(known, key=lambda its: -abs(its.gain or 0.0))))
    drawn = go.Figure()
    held: dict[str, int] = {}
    for its in known:
        place = held[its.row] = held.get(its.row, -1) + 1
        _bar(drawn, its, rows.index(its.row) + _OFFSETS[min(place, 1)])
    ends = [end for its in known for end in (its.gain, its.low, its.high) if end is not None] + [0.0]
    room = 0.36 * ((max(ends) - min(ends)) or 1.0)
    drawn.update_layout(
        layout(
            barmode="overlay",
            height=_MARGIN_PX + _ROW_PX * len(rows),
            margin={"l": 88, "r": 16, "t": 10, "b": 44},
            shapes=[
                {"type": "line", "xref": "x", "yref": "paper", "x0": 0, "x1": 0, "y0": 0, "y1": 1, "line": {"color": MUTED, "width": 1}}
            ],
            xaxis={
                "title": {"text": "Change of the throughput", "standoff": 8},
                "range": [min(ends) - room, max(ends) + room],
                "tickformat": "+.0%",
                "nticks": 7,
                "gridcolor": "var(--grid)",
                "zeroline": False,
            },
            yaxis={
                "range": [len(rows) - 0.45, -0.55],
                "fixedrange": True,
                "showgrid": False,
                "zeroline": False,
                "tickmode": "array",
                "tickvals": list(range(len(rows))),
                "ticktext": [plot_text(row.capitalize()) for row in rows],
            },
        )
    )
    return drawn


_OFFSETS = (-0.2, 0.2)
_SMALL = 0.1
"""A change below which the first decimal of its percentage matters."""


def _bar(drawn: go.Figure, its: Change, at: float) -> None:
    """One change: a bar from nought to its gain, its interval, and the figure beside it."""
    assert its.gain is not None
    assert its.low is not None
    assert its.high is not None
    colour = "var(--series-1)" if its.gain >= 0 else "var(--series-2)"
    told = format_change(its.gain, 0 if abs(its.gain) >= _SMALL else 1) if its.seen else "effect not certain"
    drawn.add_bar(
        orientation="h",
        x=[its.gain],
        y=[at],
        width=0.34,
        name=plot_text(its.name),
        showlegend=False,
        hoverinfo="text",
        hovertext=[
            f"<b>{plot_text(its.name)}</b>: {format_change(its.gain)}{'' if its.seen else ', effect not certain'}<br>"
            f"90% interval, run by run: {format_change(its.low)} to {format_change(its.high)}<br>"
            f"then limited by: {plot_text(its.reason.replace('-', ' '))}"
        ],
        marker={"color": colour, "line": {"width": 0}},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, its.high - its.gain)],
            "arrayminus": [max(0.0, its.gain - its.low)],
            "color": INK,
            "thickness": 1,
            "width": 3,
        },
    )
    side = its.gain >= 0
    drawn.add_annotation(
        x=max(its.high, its.gain) if side else min(its.low, its.gain),
        y=at,
        text=f"{plot_text(its.name)} {told}" if its.seen else f"{plot_text(its.name)}: {told}",
        xanchor="left" if side else "right",
        xshift=6 if side else -6,
        showarrow=False,
        font={"size": 11},
    )
