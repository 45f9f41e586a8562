"""The plan of a report: read from its file, which of its results are drawn, its goal in words and its tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from paceline.planning.answer import Candidate, Goal, Plan
from simulator.errors import ResultsError
from simulator.figures import Estimate
from simulator.results import Result
from simulator.rows import COLUMNS
from simulator.table import Cell, Column, Table
from simulator.text import format_number, format_seconds, format_usd, written

__all__ = ["all_candidates", "candidate_tables", "goal_text", "plan_tables", "read_plan", "without_what_ifs"]

_VERSION = 1
_RATE = (
    Column("samples_per_s", "precise", "Throughput (samples/s)"),
    Column("samples_per_s_low", "number", "Low"),
    Column("samples_per_s_high", "number", "High"),
)
_PRICE = Column("usd_per_hour", "hourly", "Cost of an hour")
_WHERE = Column("placement", "text", "Machines")
_SCALING = Column("scaling", "text", "Scaling")
_MACHINES = (Column("nodes", "count", "Nodes"), Column("devices_per_node", "count", "Devices of each"))
_TRAINING = (Column("hours", "precise", "Hours of training"), _PRICE, Column("cost_usd", "sum", "Cost of the training"))
_HOUR_S = 3600.0


def goal_text(goal: Goal) -> str:
    """The goal in words, such as ``"20,000 samples/s"``."""
    if goal.target_throughput_samples_per_s is not None:
        return f"at least {format_number(goal.target_throughput_samples_per_s)} samples/s"
    text = f"{format_number(goal.samples or 0)} samples" + (f" for {written(goal.epochs, 'setting')} epochs" if goal.epochs != 1 else "")
    limits = [f"within {format_seconds(goal.deadline_s)}"] if goal.deadline_s is not None else []
    limits += [f"for at most {format_usd(goal.budget_usd)}"] if goal.budget_usd is not None else []
    return " ".join([text, " and ".join(limits)]).strip()


def plan_tables(plan: Plan) -> tuple[Table, ...]:
    """The answer with its runners-up, the Pareto front, how many servers are enough, and single improvements."""
    scaling = plan.chosen.scaling
    grids = [
        *([_clusters(plan)] if len(plan.clusters) > 1 else []),
        _candidates("plan-candidates", "The answer and its runners-up", [plan.chosen, *plan.runners_up], plan.chosen),
        _candidates("plan-pareto", "No other is both cheaper and faster", plan.pareto, plan.chosen),
        _filled(
            "plan-servers",
            "The same with other numbers of servers",
            (
                Column("servers", "count", "Servers"),
                _SCALING,
                *_RATE,
                _PRICE,
                _WHERE,
            ),
            [
                (each.servers, scaling, *_ends(each.throughput_samples_per_s), each.usd_per_hour, each.placement or None)
                for each in plan.servers
            ],
        ),
        _filled(
            "plan-workers",
            "The same with other numbers of workers",
            (
                Column("workers", "count", "Workers"),
                Column("replicas", "count", "Replicas"),
                _SCALING,
                *_RATE,
                _PRICE,
                _WHERE,
            ),
            [
                (each.workers, each.replicas, scaling, *_ends(each.throughput_samples_per_s), each.usd_per_hour, each.placement or None)
                for each in plan.workers
            ],
        ),
        _filled(
            "plan-improvements",
            "What one improvement would buy",
            (
                Column("improvement", "text", "Improvement"),
                _SCALING,
                Column("gain", "change", "Throughput gained"),
                Column("gain_low", "change", "Least gained"),
                Column("gain_high", "change", "Most gained"),
                *_RATE,
                _PRICE,
                _WHERE,
                Column("bottleneck", "text", "Limited by"),
                Column("text", "text", "What it is"),
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
        Table(
            "What cannot be",
            (Column("name", "text", "Configurations"), Column("configurations", "count", "How many"), Column("text", "text", "Why")),
            tuple((each.name, each.configurations, each.text) for each in plan.refused),
            "plan-refused",
        ),
    ]
    return tuple(grid for grid in grids if grid.rows)


def all_candidates(plan: Plan) -> Table:
    """Every configuration that was simulated."""
    return _candidates("plan-all", "Every configuration simulated", plan.candidates, plan.chosen)


def _ends(estimate: Estimate | None) -> tuple[Cell, Cell, Cell]:
    return (None, None, None) if estimate is None else (estimate.mean, estimate.low, estimate.high)


def _staleness(candidate: Candidate) -> str | None:
    """Mean and 95th percentile; nothing where no gradient is stale."""
    stale = candidate.result.staleness
    return f"{format_number(stale.mean)}, p95 {format_number(stale.p95)}" if stale.max else None


def _clusters(plan: Plan) -> Table:
    """One line for each cluster that was asked for: its best configuration, and how that stands to the goal."""
    columns = (
        Column("cluster", "text", "Cluster"),
        _SCALING,
        *_MACHINES,
        Column("samples_per_s", "precise", "Samples/s"),
        Column("hours", "precise", "Hours"),
        _PRICE,
        Column("cost_usd", "sum", "Cost in all"),
        Column("confidence", "share", "Confidence"),
        Column("text", "text", "How it compares, or why not"),
        Column("name", "text", "Best configuration"),
    )
    rows = []
    for each in plan.clusters:
        best = each.best
        figures: tuple[Cell, ...] = (None,) * 8
        if best is not None:
            rate = best.result.throughput_samples_per_s.mean
            figures = best.scaling, best.nodes, best.devices_per_node, rate, *_training(best), best.confidence
        rows.append((each.cluster, *figures, each.text, best.name if best is not None else None))
    return _filled("plan-clusters", "Each cluster", columns, rows)


_MACHINES = (Column("nodes", "count", "Nodes"), Column("devices_per_node", "count", "Devices of each"))
_TRAINING = (
    Column("hours", "precise", "Hours of training"),
    _PRICE,
    Column("cost_usd", "sum", "Cost of the training"),
)


def _training(candidate: Candidate) -> tuple[Cell, Cell, Cell]:
    """Hours of the training, price of an hour, and what both make together."""
    cost = candidate.cost_usd
    return _hours(candidate), candidate.usd_per_hour, cost.mean if cost is not None else None


def _hours(candidate: Candidate) -> float | None:
    return candidate.time_s.mean / _HOUR_S if candidate.time_s is not None else None


def _filled(id_: str, title: str, columns: Sequence[Column], rows: Sequence[tuple[Cell, ...]]) -> Table:
    """A grid of the columns in which at least one row has a value; a scaling that all rows have stands in the title."""
    seen = [{row[index] for row in rows} - {None} for index in range(len(columns))]
    shown = [index for index, column in enumerate(columns) if seen[index] and (column != _SCALING or len(seen[index]) > 1)]
    common = [*seen[columns.index(_SCALING)]] if _SCALING in columns else []
    named = f"{title}, {common[0]} scaling" if len(common) == 1 else title
    return Table(named, tuple(columns[index] for index in shown), tuple(tuple(row[index] for index in shown) for row in rows), id_)


def _candidates(id_: str, title: str, candidates: Sequence[Candidate], chosen: Candidate) -> Table:
    columns = (
        Column("name", "text", "Configuration"),
        _SCALING,
        Column("servers", "count", "Servers"),
        *_RATE,
        *_TRAINING,
        Column("usd_per_million_samples", "usd", "Cost of a million samples"),
        Column("staleness", "text", "Staleness (updates)"),
        Column("confidence", "share", "Confidence"),
        Column("meets", "text", "Meets the goal"),
        Column("answer_better_in", "text", "Answer better in (paired runs)"),
        Column("bottleneck", "text", "Limited by"),
        _WHERE,
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
    return _filled(id_, title, columns, rows)


def candidate_tables(plan: Plan) -> list[Table]:
    """All that a plan holds: candidates, the answer first; other numbers of workers and servers; improvements; what cannot be."""
    front = {its.key for its in plan.pareto}
    ranks = {its.key: rank for rank, its in enumerate((plan.chosen, *plan.runners_up), 1)}
    candidates = {its.key: its for its in (plan.chosen, *plan.runners_up, *plan.candidates)}
    rows = Candidate.rows_of(candidates.values())
    gain = tuple(Column(name, "change") for name in ("gain", "gain_low", "gain_high"))
    text = Column("text", "text")
    workers = tuple((its.workers, its.replicas, *_ends(its.throughput_samples_per_s), its.usd_per_hour) for its in plan.workers)
    servers = tuple((its.servers, *_ends(its.throughput_samples_per_s), its.usd_per_hour) for its in plan.servers)
    better = tuple(
        (its.name, its.gain, its.gain_low, its.gain_high, *_ends(its.throughput_samples_per_s), its.usd_per_hour, its.bottleneck, its.text)
        for its in plan.improvements
    )
    refused = tuple((its.name, its.configurations, its.text) for its in plan.refused)
    standing = (Column("rank", "count"), Column("pareto", "text"), *(COLUMNS.get(name, Column(name)) for name in rows[0]))
    return [
        Table(
            "Candidates",
            standing,
            tuple((ranks.get(key), key in front, *row.values()) for key, row in zip(candidates, rows, strict=True)),
            "plan",
        ),
        Table("Numbers of workers", (Column("workers", "count"), Column("replicas", "count"), *_RATE, _PRICE), workers, "plan_workers"),
        Table("Numbers of servers", (Column("servers", "count"), *_RATE, _PRICE), servers, "plan_servers"),
        Table(
            "Improvements",
            (Column("improvement", "text"), *gain, *_RATE, _PRICE, Column("bottleneck", "text"), text),
            better,
            "plan_improvements",
        ),
        Table("What cannot be", (Column("name", "text"), Column("configurations", "count"), text), refused, "plan_refused"),
    ]


# -- the file ----------------------------------------------------------------------------


def read_plan(path: Path) -> Plan:
    """Read the answer of a plan, as `paceline plan` writes it beside its results.

    Raises
    ------
    ResultsError
        The file is missing, not readable, no plan, or of a newer schema.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ResultsError(
            f"{path}: there is no such file; check the path; `paceline plan --out FILE.ndjson` writes FILE.plan.json"
        ) from None
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read: {error.strerror or type(error).__name__}") from None
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        raise ResultsError(f"{path}: must be JSON, as `paceline plan` writes it beside its results") from None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > _VERSION:
        raise ResultsError(
            f"{path}: schema_version {version} is newer than {_VERSION}, the newest that this Paceline reads; "
            "update Paceline, or plan again with this one"
        )
    try:
        return Plan.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ResultsError(f"{path}: {where}: {' '.join(str(first['msg']).split())}, so this is no answer of `paceline plan`") from None


def without_what_ifs(
    results: Sequence[Result], labels: Sequence[str] | None, plan: Plan
) -> tuple[list[Result], list[str] | None, list[str]]:
    """Of a plan's results those on machines that can be had: what it simulated for its improvements stands in its own table.

    Parameters
    ----------
    results, labels
        As :func:`paceline.reporting.write_report` takes them.
    plan
        What was answered.

    Returns
    -------
    results, labels
        Those with the workload and the cluster of a candidate, whatever their numbers of workers, servers and nodes.
    notes
        How many are left out.
    """

    def had(result: Result) -> str:
        scenario = result.scenario
        return scenario.workload.model_dump_json() + scenario.cluster.model_copy(update={"nodes": None}).model_dump_json()

    real = {had(its.result) for its in (plan.chosen, *plan.runners_up, *plan.candidates)}
    kept = [index for index, result in enumerate(results) if had(result) in real]
    out = len(results) - len(kept)
    if not out or not kept:
        return list(results), list(labels) if labels is not None else None, []
    notes = [f"{out} what-if{'s' if out > 1 else ''} of the plan stand{'' if out > 1 else 's'} in its table of improvements alone."]
    return [results[index] for index in kept], [labels[index] for index in kept] if labels is not None else None, notes
