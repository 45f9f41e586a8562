"""From a series' smallest row to predictions of all others."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from calibrate.published.asynchronous import asynchronous_scenario
from calibrate.published.baselines import alpha_beta, linear
from calibrate.published.constants import Constants
from calibrate.published.situations import Situation, scenario_of
from calibrate.published.tables import Row
from calibrate.validation.comparison import Compared
from calibrate.validation.reaching import drawn_interval, reached_of
from simulator import simulate
from simulator.results import Estimate
from simulator.scenario import Scenario

__all__ = ["Build", "compared", "fit", "fitted_step", "group_of", "predict"]


class Build(Protocol):
    """Builds the scenario of a row of a fitted series; with draws, an uncertain one."""

    def __call__(self, row: Row, draws: Sequence[Mapping[str, float]] = (), seed: int = 0) -> Scenario:
        """The scenario of a row."""


_DRAWS = 40
_ROUNDS = 8
_TRAFFIC = (0.05, 20.0)


def group_of(regime: str, *, held_out: bool) -> str:
    """The group of a row: its regime, and whether constants were fitted on its table."""
    return regime if held_out else f"{regime}, constants fitted on its table"


def predict(situation: Situation, row: Row, step_s: float, constants: Mapping[str, float]) -> float:
    """Samples a second of a row, with every constant at its value."""
    if row.replicas == 1:
        return row.batch_per_replica / step_s
    return simulate(scenario_of(situation, row, step_s, constants)).throughput_samples_per_s.mean


def fitted_step(situation: Situation, rows: Sequence[Row], constants: Mapping[str, float]) -> tuple[Situation, float, int]:
    """Step time of one device, from the smallest row; where that has several devices, also the traffic, from the two smallest.

    Returns
    -------
    tuple
        The situation with its traffic, seconds of a step of one device alone, and how many rows were used.
    """
    first = rows[0]
    if first.replicas == 1:
        return situation, first.step_s, 1
    sizes = sorted({row.replicas for row in rows})
    if len(sizes) < 3:
        return situation, _step_that_gives(situation, first, constants), 1
    second = next(row for row in rows if row.replicas == sizes[1])
    low, high = _TRAFFIC
    for _ in range(_ROUNDS):
        middle = (low * high) ** 0.5
        changed = situation.model_copy(update={"traffic": middle})
        too_fast = predict(changed, second, _step_that_gives(changed, first, constants), constants) > second.mean
        low, high = (middle, high) if too_fast else (low, middle)
    changed = situation.model_copy(update={"traffic": (low * high) ** 0.5})
    return changed, _step_that_gives(changed, first, constants), 2


def _step_that_gives(situation: Situation, row: Row, constants: Mapping[str, float]) -> float:
    """Seconds of a step of one device with which a row comes out as it was measured."""
    step_s = row.step_s
    for _ in range(4):
        excess_s = row.replicas * row.batch_per_replica / predict(situation, row, step_s, constants) - row.step_s
        step_s = max(step_s - excess_s, 0.02 * row.step_s)
    return step_s


def fit(situation: Situation, rows: Sequence[Row], constants: Mapping[str, float]) -> tuple[Build, int]:
    """What a series' smallest rows say, as a function that builds the scenario of any row, and how many rows were used."""
    if situation.stack.kind != "asynchronous":
        fitted, step_s, used = fitted_step(situation, rows, constants)
        return (lambda row, draws=(), seed=0: scenario_of(fitted, row, step_s, constants, draws, seed)), used
    sizes = sorted({row.replicas for row in rows})
    second = next((row for row in rows if len(sizes) > 2 and row.replicas == sizes[1]), None)
    known = (rows[0], second)
    return (lambda row, draws=(), seed=0: asynchronous_scenario(situation, row, known, constants, draws, seed)), 2 if second else 1


def compared(situation: Situation, rows: Sequence[Row], constants: Constants) -> list[Compared]:
    """Every row of a series beside its prediction; those it was fitted on are marked."""
    held_out = not constants.fitted_on(situation.series.table)
    build, used = fit(situation, rows, constants)
    sizes = sorted({row.replicas for row in rows})[:used]
    return [_compared(situation, row, rows[0], build, constants, held_out, row.replicas in sizes, used) for row in rows]


def _compared(
    situation: Situation, row: Row, smallest: Row, build: Build, constants: Constants, held_out: bool, fitted: bool, used: int
) -> Compared:
    series = situation.series
    mean = simulate(build(row)).throughput_samples_per_s.mean
    low = high = mean
    reached = None
    if not fitted:
        seed = zlib.crc32(f"{series.id} {row.replicas} {row.nodes}".encode())
        result = simulate(build(row, constants.draws(seed, _DRAWS), seed))
        drawn = result.throughput_samples_per_s
        low, high = min(drawn.low, mean), max(drawn.high, mean)
        # a table that constants were fitted on says nothing of tables that nobody has seen
        if held_out:
            reached = reached_of(result.discrepancy, drawn_interval(result, mean=mean), source=series.table, series=series.id)
    notes = [series.note] if series.note else []
    if smallest.replicas > 1:
        which = "its two smallest rows" if used == 2 else "its smallest row"
        notes.append(f"no row of one device: fitted on {which}, of {smallest.replicas} devices and more")
    return Compared(
        name=f"{series.id}: {row.replicas} on {row.nodes}",
        group=group_of(series.regime, held_out=held_out),
        fitted=fitted,
        unit=row.unit,
        measured=row.throughput,
        predicted=Estimate(mean=mean, low=low, high=high),
        baselines={"linear": linear(smallest, row), "alpha-beta": alpha_beta(situation, smallest, row)},
        settings={
            "table": series.table, "series": series.id, "workers": row.replicas, "nodes": row.nodes, "servers": row.servers or 0,
            "batch": row.batch_per_replica, "network": series.network, "cluster": series.cluster, "source": row.source, "level": row.level,
        },
        note="; ".join(notes),
        reached=reached,
    )  # fmt: skip
