"""From a series' smallest row to predictions of all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calibrate.published.baselines import alpha_beta, linear
from calibrate.published.scenarios import Situation, scenario_of
from calibrate.published.solving import Solved, compute_that_gives
from calibrate.published.tables import Row
from calibrate.validation.comparison import Compared
from calibrate.validation.reaching import drawn_interval, reached_of
from simulator import simulate
from simulator.constants import Known
from simulator.scenario import Scenario

__all__ = ["base_of", "compared", "scenarios_of", "solved"]

_CLOSE = 0.02


def base_of(rows: Sequence[Row]) -> Row:
    """The row that the workload of a series is taken from: the smallest."""
    return rows[0]


def solved(situation: Situation, base: Row, practice: Mapping[str, Known]) -> Solved:
    """The compute with which the scenario of the base row gives what was measured."""
    return compute_that_gives(
        base, lambda compute_s: simulate(scenario_of(situation, base, compute_s, practice)).throughput_samples_per_s.mean
    )


def scenarios_of(situation: Situation, rows: Sequence[Row], practice: Mapping[str, Known]) -> tuple[list[Scenario], Solved]:
    """The scenario of every row of a series, and how the base row was solved."""
    base = base_of(rows)
    found = solved(situation, base, practice)
    each_s = [found.compute_s * row.batch_per_replica / base.batch_per_replica for row in rows]
    return [scenario_of(situation, row, its, practice) for row, its in zip(rows, each_s, strict=True)], found


def compared(situation: Situation, rows: Sequence[Row], practice: Mapping[str, Known]) -> list[Compared]:
    """Every row of a series beside its prediction; the one that the workload was taken from is marked.

    Parameters
    ----------
    practice
        Constants in place of the catalogue's: those fitted without the series' table.
    """
    scenarios, found = scenarios_of(situation, rows, practice)
    base = base_of(rows)
    return [_compared(situation, row, base, scenario, found) for row, scenario in zip(rows, scenarios, strict=True)]


def _compared(situation: Situation, row: Row, base: Row, scenario: Scenario, found: Solved) -> Compared:
    series = situation.series
    fitted = row is base
    result = simulate(scenario)
    rate = result.throughput_samples_per_s
    notes = [series.note] if series.note else []
    if fitted and abs(found.error) > _CLOSE:
        notes.append("communication alone takes longer than this row's step, so that no compute gives it")
    if base.replicas > 1:
        notes.append(f"no row of one device: fitted on its smallest row, of {base.replicas} devices")
    return Compared(
        name=f"{series.id}: {row.replicas} on {row.nodes}",
        group=series.regime,
        fitted=fitted,
        unit=row.unit,
        measured=row.throughput,
        predicted=rate,
        baselines={"linear": linear(base, row), "alpha-beta": alpha_beta(situation, base, row)},
        settings={
            "table": series.table, "series": series.id, "workers": row.replicas, "nodes": row.nodes, "servers": row.servers or 0,
            "batch": row.batch_per_replica, "network": series.network, "cluster": series.cluster, "source": row.source, "level": row.level,
        },
        note="; ".join(notes),
        reached=None if fitted else reached_of(result.discrepancy, drawn_interval(result), source=series.table, series=series.id),
    )  # fmt: skip
