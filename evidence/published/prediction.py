"""From a series' smallest row to predictions of all others, and the simpler rules that they must beat."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from calibrate.validation.comparison import Compared, drawn_interval, reached_of
from evidence.discrepancy import Sample, deviations, validated_rows
from evidence.published.scenarios import PublishedCase, element_bytes, pushes, scenario_of, table_of, with_servers
from evidence.published.tables import Row
from simulator import simulate
from simulator.base.files import read_toml
from simulator.base.spec import Spec
from simulator.base.validation_errors import validated
from simulator.catalogue.loading import scenario_from_table
from simulator.results.inadequacy import regime_of
from simulator.scenario import Scenario
from simulator.spec.constants import Known
from simulator.spec.uncertainty import Discrepancy, Regime

FILE = "left_out.toml"
"""Constants fitted without each table in turn."""

_LEAST_COMPUTE = 0.01
"""Share of the measured step: with less compute than this the model's communication alone takes longer."""
_LEAST_LEFT = 0.05
"""Share of the smallest row's step that counts as compute in a simple rule, whatever the formula says of the rest."""
_SOLVED, _UNSOLVED = 1e-3, 0.02
"""Relative error of throughput at which the search for a row's compute ends, and from which on none is taken to give it."""
_ROUNDS = 12


def base_of(rows: Sequence[Row]) -> Row:
    """The row that the workload of a series is taken from: the smallest."""
    return rows[0]


def solved(case: PublishedCase, base: Row, practice: Mapping[str, Known]) -> Solved:
    """The compute with which the scenario of the base row gives what was measured; its whole step, where that holds a pull and push."""
    if with_servers(case, base):
        return Solved(base.step_s, 0.0)
    return compute_that_gives(base, lambda compute_s: simulate(scenario_of(case, base, compute_s, practice)).throughput_samples_per_s.mean)


def tables_of(
    case: PublishedCase, rows: Sequence[Row], practice: Mapping[str, Known], table: str | None
) -> tuple[list[dict[str, Any]], Solved]:
    """Every row of a series as the nested tables of its scenario's file, and how the base row was solved.

    Parameters
    ----------
    practice
        Constants in place of the catalogue's: those fitted without the series' table.
    table
        Whose rows the discrepancy is estimated without; left out: that of the catalogue.
    """
    base = base_of(rows)
    found = solved(case, base, practice)
    tables = []
    for row in rows:
        its_s = found.compute_s * row.batch_per_replica / base.batch_per_replica
        its = table_of(case, row, its_s, practice, whole_step=with_servers(case, base))
        regime = regime_of(scenario_from_table(its, case.series.id))
        if table is not None and regime is not None:
            its["discrepancy"] = discrepancy_without(table, regime).model_dump(exclude_none=True)
        tables.append(its)
    return tables, found


def compared(case: PublishedCase, rows: Sequence[Row], practice: Mapping[str, Known], table: str | None = None) -> list[Compared]:
    """Every row of a series with its prediction; the one that the workload was taken from is marked.

    Parameters
    ----------
    practice, table
        As in :func:`tables_of`.
    """
    tables, found = tables_of(case, rows, practice, table)
    base = base_of(rows)
    return [_compared(case, row, base, scenario_from_table(its, case.series.id), found) for row, its in zip(rows, tables, strict=True)]


def _compared(case: PublishedCase, row: Row, base: Row, scenario: Scenario, found: Solved) -> Compared:
    series = case.series
    fitted = row is base
    result = simulate(scenario)
    rate = result.throughput_samples_per_s
    notes = [series.note] if series.note else []
    if fitted and abs(found.error) > _UNSOLVED:
        notes.append("communication alone takes longer than this row's step, so that no compute gives it")
    if base.replicas > 1:
        notes.append(f"no row of one device: fitted on its smallest row, of {base.replicas} devices")
    return Compared(
        name=row_name(case, row),
        group=series.regime,
        fitted=fitted,
        unit=row.unit,
        measured=row.throughput,
        predicted=rate,
        baselines={"linear": linear(base, row), "alpha-beta": alpha_beta(case, base, row)},
        settings={
            "table": series.table, "series": series.id, "workers": row.replicas, "nodes": row.nodes, "servers": row.servers or 0,
            "batch": row.batch_per_replica, "network": series.network, "cluster": series.cluster, "source": row.source, "level": row.level,
        },
        note="; ".join(notes),
        reached=None if fitted else reached_of(result.discrepancy, drawn_interval(result), source=series.table, series=series.id),
    )  # fmt: skip


def row_name(case: PublishedCase, row: Row) -> str:
    """Name of a row: its series, devices and nodes."""
    return f"{case.series.id}: {row.replicas} on {row.nodes}"


class Solved(NamedTuple):
    """Seconds of compute, and by how much the row is still off: predicted over measured throughput, less one."""

    compute_s: float
    error: float


def compute_that_gives(row: Row, throughput: Callable[[float], float]) -> Solved:
    """Solve for the compute of a row, within a tenth of a percent of its throughput where that is possible.

    Parameters
    ----------
    throughput
        What the simulation gives for seconds of compute; falling.
    """
    low_s, high_s = _LEAST_COMPUTE * row.step_s, row.step_s
    compute_s = high_s
    for turn in range(_ROUNDS):
        error = throughput(compute_s) / row.mean - 1.0
        if abs(error) <= _SOLVED:
            break
        if error > 0:
            low_s = compute_s
            high_s = max(high_s, 2.0 * compute_s) if compute_s >= high_s else high_s
        else:
            high_s = compute_s
        # as if all but compute took the same time whatever the compute, which is exact where nothing overlaps
        guess_s = compute_s + row.step_s * (1.0 - 1.0 / (1.0 + error))
        if guess_s <= low_s <= _LEAST_COMPUTE * row.step_s:
            guess_s = low_s if turn < 2 else (low_s + high_s) / 2
        elif not low_s < guess_s < high_s or turn > _ROUNDS // 2:
            guess_s = (low_s + high_s) / 2
        if guess_s == compute_s:
            break
        compute_s = guess_s
    return Solved(compute_s, error)


class _Entry(Known):
    table: str
    name: str


class _LeftOut(Spec):
    left_out: tuple[_Entry, ...]


def left_out(home: Path) -> dict[str, dict[str, Known]]:
    """Constants by name for each table, fitted on all other tables.

    Raises
    ------
    ScenarioError
        The file is missing or broken.
    """
    path = home / FILE
    found: dict[str, dict[str, Known]] = {}
    for entry in validated(_LeftOut, read_toml(path), str(path)).left_out:
        known = Known(value=entry.value, low=entry.low, high=entry.high)
        found.setdefault(entry.table, {})[entry.name] = known
    return found


@lru_cache(maxsize=256)
def discrepancy_without(table: str, regime: Regime) -> Discrepancy:
    """Model error of a regime, estimated from the rows of ``models/validated`` without those of a table.

    Raises
    ------
    InputError
        A file of such rows is broken.
    """
    compute, communication = deviations(_sample(), regime, without=table)
    return Discrepancy(compute=compute, communication=communication, about=f"without {table}")


@lru_cache(maxsize=1)
def _sample() -> Sample:
    return Sample.of(validated_rows())


def linear(smallest: Row, row: Row) -> float:
    """Throughput of the smallest row times the ratio of devices: ideal scaling."""
    return smallest.mean * row.replicas / smallest.replicas * (row.batch_per_replica / smallest.batch_per_replica)


def alpha_beta(case: PublishedCase, smallest: Row, row: Row) -> float:
    """Throughput of a step of compute and then of communication at the links' nominal rates, nothing overlapped.

    Compute is the step of the smallest row, less the communication that the same formula
    gives for it. A ring all-reduce takes 2 (n - 1) alpha +
    2 (n - 1) / n S / B with the slowest link that it crosses (Patarasuk and Yuan 2009);
    servers that share the variables evenly take 2 alpha + 2 n S / (s B), n workers with s
    servers (Li et al., "Scaling distributed machine learning with the parameter server",
    OSDI 2014).
    """
    # what the smallest row already communicates by the same formula is no compute; none of it is left below nothing
    compute_s = max(smallest.step_s - _communication_s(case, smallest), _LEAST_LEFT * smallest.step_s)
    compute_s *= row.batch_per_replica / smallest.batch_per_replica
    return float(row.replicas * row.batch_per_replica / (compute_s + _communication_s(case, row)))


def _communication_s(case: PublishedCase, row: Row) -> float:
    facts, stack = case.cluster, case.stack
    if row.replicas == 1:
        return 0.0
    link = facts.inter_node if row.nodes > 1 else facts.intra_node
    bandwidth = link.bandwidth_bytes_per_s * (facts.nics_per_node if row.nodes > 1 else 1)
    size = sum(tensor.elements for tensor in case.tensors) * element_bytes(stack) / stack.every
    if not pushes(stack, row):
        turns = 2 * (row.replicas - 1)
        return float(turns * link.latency_s + turns / row.replicas * size / bandwidth)
    workers = row.nodes if stack.worker == "node" else row.replicas
    return float(2 * link.latency_s + 2 * workers * size / ((row.servers or row.nodes) * bandwidth))
