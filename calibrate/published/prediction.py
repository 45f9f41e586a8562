"""From a series' smallest row to predictions of all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calibrate.published.baselines import alpha_beta, linear
from calibrate.published.left_out import discrepancy_without
from calibrate.published.scenarios import Situation, scenario_of, table_of
from calibrate.published.solving import Solved, compute_that_gives
from calibrate.published.tables import Row
from calibrate.validation.comparison import Compared
from calibrate.validation.reaching import drawn_interval, reached_of
from simulator import simulate
from simulator.constants import Known
from simulator.inadequacy import regime_of
from simulator.loading import scenario_from_table
from simulator.scenario import Scenario

__all__ = ["base_of", "compared", "solved", "tables_of"]

Table = dict[str, Any]

_CLOSE = 0.02


def base_of(rows: Sequence[Row]) -> Row:
    """The row that the workload of a series is taken from: the smallest."""
    return rows[0]


def solved(situation: Situation, base: Row, practice: Mapping[str, Known]) -> Solved:
    """The compute with which the scenario of the base row gives what was measured."""
    return compute_that_gives(
        base, lambda compute_s: simulate(scenario_of(situation, base, compute_s, practice)).throughput_samples_per_s.mean
    )


def tables_of(situation: Situation, rows: Sequence[Row], practice: Mapping[str, Known], table: str | None) -> tuple[list[Table], Solved]:
    """Every row of a series as the nested tables of its scenario's file, and how the base row was solved.

    Parameters
    ----------
    practice
        Constants in place of the catalogue's: those fitted without the series' table.
    table
        Whose rows the discrepancy is estimated without; left out: that of the catalogue.
    """
    base = base_of(rows)
    found = solved(situation, base, practice)
    tables = []
    for row in rows:
        its_s = found.compute_s * row.batch_per_replica / base.batch_per_replica
        its = table_of(situation, row, its_s, practice)
        regime = regime_of(scenario_from_table(its, situation.series.id))
        if table is not None and regime:
            its["discrepancy"] = discrepancy_without(table, regime).model_dump(exclude_none=True)
        tables.append(its)
    return tables, found


def compared(situation: Situation, rows: Sequence[Row], practice: Mapping[str, Known], table: str | None = None) -> list[Compared]:
    """Every row of a series beside its prediction; the one that the workload was taken from is marked.

    Parameters
    ----------
    practice, table
        As in :func:`tables_of`.
    """
    tables, found = tables_of(situation, rows, practice, table)
    base = base_of(rows)
    return [
        _compared(situation, row, base, scenario_from_table(its, situation.series.id), found) for row, its in zip(rows, tables, strict=True)
    ]


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
