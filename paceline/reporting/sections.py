"""Sections that only some reports have: a plan, simulated changes, a timeline, measured points."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from paceline.reporting.answer import name_at
from paceline.reporting.context import Report
from paceline.reporting.coordinates import scaling_of
from paceline.reporting.grids import Column, Grid
from paceline.reporting.planned import all_candidates, goal_text, pareto, plan_grids
from paceline.sentences import servers_note, time_note, work_note, workers_note
from simulator.text import clean, format_change, format_share

if TYPE_CHECKING:
    from paceline.reporting.measured import Beside, Overlay
    from paceline.reporting.sensitivity import Change
    from paceline.reporting.timeline import Timeline

__all__ = ["Sections", "sections_of"]

_KINDS = {"input": "input", "compute": "compute", "communication": "exposed-communication", "waiting": "waiting", "apply": "apply"}
_MOST_SAID = 5
_LONGEST = 600


@dataclass
class Sections:
    """What the page's template needs for them.

    Attributes
    ----------
    values
        For the template, under the names that it uses.
    figures
        Under the id of the element that each is drawn in.
    measured
        Measured throughputs in samples/s, each with the index of its prediction.
    """

    values: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, go.Figure] = field(default_factory=dict)
    measured: list[tuple[int, float]] = field(default_factory=list)


def sections_of(report: Report) -> Sections:
    """Arrange what the report has of them; what it has not is left out."""
    found = Sections()
    found.values.update(plan_figure=None, goal="", overlay_error="")
    if report.plan is not None:
        found.values.update(
            goal=goal_text(report.plan.goal),
            plan_tables=plan_grids(report.plan),
            plan_time=time_note(report.plan.candidates, report.plan.goal),
            plan_work=work_note(report.plan),
            plan_servers=servers_note(report.plan),
            plan_workers=workers_note(report.plan),
        )
        if (drawn := pareto(report.plan)) is not None:
            found.figures["pareto"] = drawn[0]
            found.values.update(plan_figure={"about": drawn[1], "seen": drawn[2]}, plan_all=all_candidates(report.plan))
    if report.sensitivity:
        _add_sensitivity(found, report.sensitivity, scaling_of(report.answer.result.scenario))
    if report.timeline is not None:
        _add_timeline(found, report.timeline)
    if report.measured is not None:
        _add_measured(found, report.measured, report)
    return found


def _height_px(figure: go.Figure, otherwise: int) -> int:
    return int(figure.layout.height or otherwise)


def _add_sensitivity(found: Sections, changes: Sequence[Change], scaling: str) -> None:
    from paceline.reporting.sensitivity import figure

    drawn = figure(changes)
    known = [change for change in changes if change.gain is not None]
    told = [
        f"{clean(change.name)}: {format_change(change.gain) if change.seen else 'effect not certain'}"
        for change in known[:_MOST_SAID]
        if change.gain is not None
    ]
    columns = (
        Column("Change"),
        Column("Scaling"),
        Column("Throughput changes by", "change"),
        Column("Low", "change"),
        Column("High", "change"),
        Column("What it is"),
        Column("Limited by, or why it is not known"),
    )
    rows = tuple((each.name, scaling, each.gain, each.low, each.high, each.text, each.reason) for each in changes)
    found.figures["sensitivity"] = drawn
    found.values.update(
        sensitivity_label="Change of throughput by one change at a time. " + ("; ".join(told) if told else "None is known") + ".",
        sensitivity_px=_height_px(drawn, 320),
        sensitivity_run=next((change.run for change in known if change.run), ""),
        sensitivity_table=Grid("sensitivity", "What one change would do", columns, rows),
    )


def _add_timeline(found: Sections, timeline: Timeline) -> None:
    from paceline.reporting.timeline import figure

    drawn = figure(timeline)
    columns = (Column("Lane"), Column("From", "seconds"), Column("To", "seconds"), Column("Kind"), Column("What"), Column("Critical"))
    rows = tuple((bar.lane, bar.start_s, bar.end_s, bar.kind, bar.text, "yes" if bar.critical else "no") for bar in timeline.bars)
    used = [kind for kind in _KINDS if any(bar.kind == kind for bar in timeline.bars)]
    lanes = len(timeline.lanes)
    found.figures["timeline"] = drawn
    found.values.update(
        timeline_label=f"Gantt chart of {lanes} lane{'s' if lanes != 1 else ''}. {clean(timeline.sentence, _LONGEST)}",
        timeline_px=_height_px(drawn, 360),
        timeline_table=Grid("timeline", "Bars of the timeline", columns, rows),
        timeline_parts=[(_KINDS[kind], kind.capitalize()) for kind in used],
    )


def _add_measured(found: Sections, overlay: Overlay, report: Report) -> None:
    # one scenario may be there once a file, told apart by its name
    named = {(result.scenario_hash, name_at(report.at, index)): index for index, result in enumerate(report.results)}
    of_hash = {result.scenario_hash: index for index, result in enumerate(report.results)}
    places = [
        (named.get((row.scenario_hash, row.name), of_hash[row.scenario_hash]), row) for row in overlay.rows if row.scenario_hash in of_hash
    ]
    found.measured = [(index, row.measured) for index, row in places]
    found.values["overlay_error"] = _told(overlay)
    found.values["fit_table"] = _by_curve(places, report)
    columns = (
        Column("Setting"),
        Column("Strategy"),
        Column("Scaling"),
        Column("Predicted (samples/s)", "number"),
        Column("Low", "number"),
        Column("High", "number"),
        Column("Measured (samples/s)", "number"),
        Column("Error", "change"),
        Column("Inside the interval"),
        Column("Predicted staleness", "number"),
        Column("Measured staleness", "number"),
    )
    scalings = {result.scenario_hash: scaling_of(result.scenario) for result in report.results}
    rows = tuple(
        (
            row.setting,
            row.name,
            scalings.get(row.scenario_hash, ""),
            row.predicted.mean,
            row.predicted.low,
            row.predicted.high,
            row.measured,
            row.error,
            "yes" if row.inside else "no",
            row.staleness_predicted,
            row.staleness_measured,
        )
        for row in overlay.rows
    )
    found.values["measured_table"] = Grid("measured", "Measured against predicted", columns, rows)
    found.values["unmatched_table"] = Grid(
        "measured-only",
        "Measured, but not predicted",
        (Column("Setting"), Column("Measured (samples/s)", "number"), Column("Line", "count"), Column("Why")),
        tuple((each.setting, each.measured, each.line, each.why) for each in overlay.unmatched),
    )


def _told(overlay: Overlay) -> str:
    """How far measured settings lie from their predictions; no error where one setting stands beside several of them."""
    settings = len({row.line for row in overlay.rows})
    if not settings:
        return ""
    counted = f"{settings} measured setting{'s' if settings > 1 else ''}"
    if settings < len(overlay.rows):
        fit = "fits" if settings == 1 else "fit"
        return f"{counted} {fit} {len(overlay.rows)} predictions, so the error is told for each curve, under “Measured against predicted”"
    middle = format_share(statistics.median(abs(row.error) for row in overlay.rows))
    inside = sum(row.inside for row in overlay.rows)
    return f"beside {counted} the median error is {middle}, and {inside} of them lie{'s' if inside == 1 else ''} in the interval"


def _by_curve(places: Sequence[tuple[int, Beside]], report: Report) -> Grid:
    """How well each curve fits, since a measured setting may stand beside several."""
    held: dict[int, list[Beside]] = {}
    for index, row in places:
        held.setdefault(report.at.curve_of[index], []).append(row)
    columns = (
        Column("Strategy"),
        Column("Scaling"),
        Column("Settings", "count"),
        Column("Median error, sign left out", "share"),
        Column("Inside the interval", "count"),
    )
    scaling = {curve: scaling_of(result.scenario) for curve, result in zip(report.at.curve_of, report.results, strict=True)}
    rows = tuple(
        (
            report.at.curves[curve].name,
            scaling[curve],
            len(its),
            statistics.median(abs(row.error) for row in its),
            sum(row.inside for row in its),
        )
        for curve, its in held.items()
    )
    return Grid("measured-by-curve", "Error of each curve", columns, rows)
