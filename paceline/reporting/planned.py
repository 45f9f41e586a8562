"""What a plan answers, as sentences, tables and a figure of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from paceline.reporting.axes import INK, MUTED, PAPER, layout, log_axis
from paceline.reporting.grids import Cell, Column, Grid
from simulator.figures import Estimate
from simulator.text import format_duration, format_number, format_share, format_usd, plot_text

if TYPE_CHECKING:
    from paceline.planning.answer import Candidate, Plan
    from paceline.planning.goal import Goal

__all__ = ["all_candidates", "goal_text", "pareto", "plan_grids"]

_FEWEST_DRAWN = 2
_RATE = (Column("Throughput (samples/s)", "precise"), Column("Low", "number"), Column("High", "number"))


def goal_text(goal: Goal) -> str:
    """The goal in words, such as ``"20,000 samples/s"``."""
    if goal.target_throughput_samples_per_s is not None:
        return f"at least {format_number(goal.target_throughput_samples_per_s)} samples/s"
    text = f"{format_number(goal.samples or 0)} samples" + (f" for {goal.epochs:g} epochs" if goal.epochs != 1 else "")
    limits = [f"within {format_duration(goal.deadline_s)}"] if goal.deadline_s is not None else []
    limits += [f"for at most {format_usd(goal.budget_usd)}"] if goal.budget_usd is not None else []
    return " ".join([text, " and ".join(limits)]).strip()


def plan_grids(plan: Plan) -> tuple[Grid, ...]:
    """The answer with its runners-up, the Pareto front, how many servers are enough, and single improvements."""
    scaling = plan.chosen.scaling
    grids = [
        *([_clusters(plan)] if len(plan.clusters) > 1 else []),
        _candidates("plan-candidates", "The answer and its runners-up", [plan.chosen, *plan.runners_up], plan.chosen),
        _candidates("plan-pareto", "No other is both cheaper and faster", plan.pareto, plan.chosen),
        _told(
            "plan-servers",
            "The same with other numbers of servers",
            (Column("Servers", "count"), _SCALING, *_RATE, Column("Cost of an hour", "hourly"), Column("Machines")),
            [
                (each.servers, scaling, *_ends(each.throughput_samples_per_s), each.usd_per_hour, each.placement or None)
                for each in plan.servers
            ],
        ),
        _told(
            "plan-workers",
            "The same with other numbers of workers",
            (
                Column("Workers", "count"),
                Column("Replicas", "count"),
                _SCALING,
                *_RATE,
                Column("Cost of an hour", "hourly"),
                Column("Machines"),
            ),
            [
                (each.workers, each.replicas, scaling, *_ends(each.throughput_samples_per_s), each.usd_per_hour, each.placement or None)
                for each in plan.workers
            ],
        ),
        _told(
            "plan-improvements",
            "What one improvement would buy",
            (
                Column("Improvement"),
                _SCALING,
                Column("Throughput gained", "change"),
                Column("Least gained", "change"),
                Column("Most gained", "change"),
                *_RATE,
                Column("Cost of an hour", "hourly"),
                Column("Machines"),
                Column("Limited by"),
                Column("What it is"),
            ),
            [
                (
                    each.name,
                    scaling,
                    each.gain,
                    each.gain_low,
                    each.gain_high,
                    *_ends(each.throughput_samples_per_s),
                    each.usd_per_hour,
                    each.placement or None,
                    each.bottleneck.replace("-", " "),
                    each.text,
                )
                for each in plan.improvements
            ],
        ),
        Grid(
            "plan-refused",
            "What cannot be",
            (Column("Configurations"), Column("How many", "count"), Column("Why")),
            tuple((each.name, each.configurations, each.text) for each in plan.refused),
        ),
    ]
    return tuple(grid for grid in grids if grid.rows)


def all_candidates(plan: Plan) -> Grid:
    """Every configuration that was simulated."""
    return _candidates("plan-all", "Every configuration simulated", plan.candidates, plan.chosen)


def _ends(estimate: Estimate | None) -> tuple[Cell, Cell, Cell]:
    return (None, None, None) if estimate is None else (estimate.mean, estimate.low, estimate.high)


def _staleness(candidate: Candidate) -> str | None:
    """Mean and 95th percentile; nothing where no gradient is stale."""
    stale = candidate.result.staleness
    return f"{format_number(stale.mean)}, p95 {format_number(stale.p95)}" if stale.max else None


def _clusters(plan: Plan) -> Grid:
    """One line for each cluster that was asked for: its best configuration, and how that stands to the goal."""
    columns = (
        Column("Cluster"),
        _SCALING,
        *_MACHINES,
        Column("Samples/s", "precise"),
        Column("Hours", "precise"),
        Column("Cost of an hour", "hourly"),
        Column("Cost in all", "sum"),
        Column("Confidence", "share"),
        Column("How it compares, or why not"),
        Column("Best configuration"),
    )
    rows = []
    for each in plan.clusters:
        best = each.best
        figures: tuple[Cell, ...] = (None,) * 8
        if best is not None:
            rate = best.result.throughput_samples_per_s.mean
            figures = best.scaling, best.nodes, best.devices_per_node, rate, *_training(best), best.confidence
        rows.append((each.cluster, *figures, each.text, best.name if best is not None else None))
    return _told("plan-clusters", "Each cluster", columns, rows)


_MACHINES = (Column("Nodes", "count"), Column("Devices of each", "count"))
_TRAINING = (Column("Hours of training", "precise"), Column("Cost of an hour", "hourly"), Column("Cost of the training", "sum"))


def _training(candidate: Candidate) -> tuple[Cell, Cell, Cell]:
    """Hours of the training, price of an hour, and what both make together."""
    cost = candidate.cost_usd
    return _hours(candidate), candidate.usd_per_hour, cost.mean if cost is not None else None


def _hours(candidate: Candidate) -> float | None:
    return candidate.time_s.mean / _HOUR_S if candidate.time_s is not None else None


def _told(id_: str, title: str, columns: Sequence[Column], rows: Sequence[tuple[Cell, ...]]) -> Grid:
    """A grid of the columns in which at least one row has a value; a scaling that all rows have stands in the title."""
    seen = [{row[index] for row in rows} - {None} for index in range(len(columns))]
    told = [index for index, column in enumerate(columns) if seen[index] and (column != _SCALING or len(seen[index]) > 1)]
    common = [*seen[columns.index(_SCALING)]] if _SCALING in columns else []
    named = f"{title}, {common[0]} scaling" if len(common) == 1 else title
    return Grid(id_, named, tuple(columns[index] for index in told), tuple(tuple(row[index] for index in told) for row in rows))


_SCALING = Column("Scaling")
_HOUR_S = 3600.0


def _candidates(id_: str, title: str, candidates: Sequence[Candidate], chosen: Candidate) -> Grid:
    columns = (
        Column("Configuration"),
        _SCALING,
        Column("Servers", "count"),
        *_RATE,
        *_TRAINING,
        Column("Cost of a million samples", "usd"),
        Column("Staleness (updates)"),
        Column("Confidence", "share"),
        Column("Meets the goal"),
        Column("Answer better in (paired runs)"),
        Column("Limited by"),
        Column("Machines"),
    )
    rows = tuple(
        (
            each.name,
            each.scaling,
            None if each.placement else each.result.scenario.servers or None,  # machines say it, but in old plans
            *_ends(each.result.throughput_samples_per_s),
            *_training(each),
            # the cost of the training says the same of its samples
            each.usd_per_million_samples.mean if each.usd_per_million_samples is not None and each.cost_usd is None else None,
            _staleness(each),
            each.confidence,
            ("yes" if each.meets else "no") + (" (the answer)" if each == chosen else ""),
            f"{each.paired.by} in {each.paired.wins} of {each.paired.runs}" if each.paired is not None else None,
            each.result.bottleneck.label,
            each.placement or None,
        )
        for each in candidates
    )
    return _told(id_, title, columns, rows)


def pareto(plan: Plan) -> tuple[go.Figure, str, str] | None:
    """Cost against time of the whole training, or dollars an hour against throughput where the goal is a rate.

    Returns
    -------
    tuple or None
        The figure, what it is of, and what is seen, in words; none where fewer than two candidates have a price above 0.
    """
    whole = plan.goal.total_samples is not None
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
    for met, colour in ((True, "var(--series-1)"), (False, MUTED)):
        held = [each for each in priced if each.meets == met]
        if held:
            places = [place for each in held if (place := _place(each, whole=whole)) is not None]
            figure.add_scatter(
                x=[x for x, _ in places],
                y=[y for _, y in places],
                mode="markers",
                hoverinfo="text",
                hovertext=[_hover(each, whole=whole) for each in held],
                marker={"size": 8, "color": colour if met else PAPER, "symbol": "circle", "line": {"color": colour, "width": 1.5}},
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
    title_x, title_y = ("Hours of training", "US dollars") if whole else ("Throughput (samples/s)", "US dollars an hour")
    axes = log_axis([x for x, _ in everywhere], title_x), log_axis([y for _, y in everywhere])
    figure.update_layout(layout(xaxis=axes[0], yaxis=axes[1]))
    caption = f"{title_y} against {title_x[0].lower()}{title_x[1:]}; filled: meets the goal; ringed: the answer; dotted: the Pareto front"
    seen = f"{len(priced)} configurations, {sum(each.meets for each in priced)} of which meet the goal; {len(front)} on the Pareto front."
    return figure, caption, seen


def _place(each: Candidate, *, whole: bool) -> tuple[float, float] | None:
    """Where it stands on the two axes; none without a price, or where that is 0, for which a logarithmic axis has no place."""
    if whole:
        return (each.time_s.mean / 3600, each.cost_usd.mean) if each.time_s is not None and each.cost_usd and each.cost_usd.mean else None
    return (each.result.throughput_samples_per_s.mean, each.usd_per_hour) if each.usd_per_hour else None


def _hover(each: Candidate, *, whole: bool) -> str:
    rate = each.result.throughput_samples_per_s
    where = each.placement or f"{each.result.replicas:,} replicas"
    lines = [f"<b>{plot_text(each.name)}</b>", f"{each.scaling} scaling, {plot_text(where)}"]
    lines.append(f"{format_number(rate.mean)} samples/s (90% interval {format_number(rate.low)} to {format_number(rate.high)})")
    if whole and each.time_s is not None and each.cost_usd is not None:
        lines.append(f"{format_duration(each.time_s.mean)} and {format_usd(each.cost_usd.mean)}")
    elif each.usd_per_hour is not None:
        lines.append(f"{format_usd(each.usd_per_hour)} an hour")
    return "<br>".join([*lines, f"meets the goal with {format_share(each.confidence)} confidence"])
