"""What a simulation answers: frozen, versioned, and the same bytes for the same scenario."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from simulator.cost import placement_of, usd_per_hour, usd_per_million_samples
from simulator.discrepancy import Doubt
from simulator.figures import (
    Assumed,
    Bottleneck,
    Breakdown,
    Coverage,
    Estimate,
    Phase,
    Placement,
    Quantiles,
    Reduced,
    Scatter,
    Staleness,
    Utilisation,
    Warned,
)
from simulator.rows import BRIEF, COLUMNS
from simulator.scenario import Scenario
from simulator.spec import Spec
from simulator.table import Cell, Row, flat
from simulator.workload import DeviceTransfer

__all__ = ["Failed", "Failure", "Outcome", "Result"]


class Outcome(Spec):
    """What became of one scenario: a :class:`Result`, or a :class:`Failure`."""

    schema_version: Literal[1] = 1
    scenario_hash: str
    scenario: Scenario

    def to_json(self) -> str:
        """One line of JSON; quantities under their SI names; floats round-trip exactly."""
        return json.dumps(self.model_dump(mode="json"), separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    @classmethod
    def rows_of(cls, items: Iterable[Outcome]) -> list[Row]:
        """A row each of :data:`simulator.rows.COLUMNS`, after the settings that differ among them."""
        rows, settings = [], []
        for outcome in items:
            rows.append(outcome.row())
            settings.append(flat(outcome.scenario))
        swept = _that_differ(settings)
        return [{name: own.get(name) for name in swept} | row for own, row in zip(settings, rows, strict=True)]

    def row(self) -> Row:
        """All of :data:`simulator.rows.COLUMNS`; None where there is no such figure."""
        own = {"scenario_hash": self.scenario_hash, "usd_per_hour": usd_per_hour(self.scenario)}
        return dict.fromkeys(COLUMNS) | _setting(self.scenario) | own | self._figures()

    def _figures(self) -> Row:
        return {}

    @classmethod
    def shown_columns(cls, rows: Sequence[Row]) -> list[str]:
        """All of one row; of several the settings that differ and the most important figures."""
        return [name for row in rows[:1] for name in row if len(rows) == 1 or name in BRIEF or name not in COLUMNS]

    def _caption(self) -> str:
        return f"{type(self).__name__} of {self.scenario.workload.name} on {self.scenario.cluster.name}"


class Result(Outcome):
    """The answer to one scenario. All but ``wall_time_s`` depends on the scenario alone."""

    seed: int
    replicas: int
    placement: Placement | None = Field(default=None, description="where it all sits; null in files written by older versions")
    throughput_samples_per_s: Estimate
    updates_per_s: Estimate
    throughput_of_each_replication: tuple[float, ...] = Field(default=(), description="samples/s: the distribution behind the interval")
    wasted_samples_per_s: float = Field(default=0.0, description="samples whose gradients came too late and were dropped")
    dropped_share: float = Field(default=0.0, description="share of gradients dropped")
    monte_carlo_error: float = Field(description="standard error of the mean throughput over replications, samples/s")
    step_time_s: Quantiles
    mean_step_s: Estimate | None = Field(
        default=None, description="mean time of a step of one run; null in files written by older versions"
    )
    speedup: Estimate = Field(description="throughput over that of one replica with the same draws, run by run (docs/metrics.md)")
    scaling_efficiency: Estimate = Field(description="speed-up over replicas")
    staleness: Staleness
    mean_staleness: Estimate | None = Field(
        default=None, description="mean staleness of one run; null without parameter servers and in files written by older versions"
    )
    discrepancy: Doubt | None = Field(default=None, description="what the model is off by, as far as intervals hold it; null: they do not")
    scatter: Scatter | None = Field(
        default=None, description="what the interval of the throughput is made of; null in files written by older versions"
    )
    phase: Phase | None = Field(default=None, description="of several asynchronous workers")
    breakdown_s: Breakdown
    hidden_communication_s: float = Field(
        default=0.0, description="communication of the mean step that went on while the replica computed; no part of the step's time"
    )
    moved: DeviceTransfer | None = Field(
        default=None, description="to which device the workload was moved, how far and by which rule; null where it was not"
    )
    all_reduces: tuple[Reduced, ...] = Field(default=(), description="algorithm and protocol of each bucket size")
    utilisation: Utilisation
    bottleneck: Bottleneck
    coverage: tuple[Coverage, ...] = Field(default=(), description="how far it lies from anything that was measured, aspect by aspect")
    assumed: tuple[Assumed, ...] = Field(default=(), description="what the scenario leaves out and was taken as TensorFlow does it")
    warnings: tuple[Warned, ...]
    events: int = Field(description="events of the simulation kernel, all replications")
    wall_time_s: float | None = Field(
        default=None, description="time the simulation took; null in sweeps, whose files must not depend on it"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_before(cls, data: Any) -> Any:
        """What older versions wrote otherwise.

        The speed-up was a number: it gets the relative interval of the throughput, which is too
        wide. A workload that was moved stood so in the scenario itself.
        """
        if not isinstance(data, dict):
            return data
        if "moved" not in data and isinstance(scenario := data.get("scenario"), dict):
            moved = load.get("moved") if isinstance(load := scenario.get("workload"), dict) else None
            data = {**data, "moved": moved if isinstance(moved, dict) and moved.get("to_device") else None}
        rate = data.get("throughput_samples_per_s")
        for key in ("speedup", "scaling_efficiency"):
            value = data.get(key)
            if isinstance(value, (int, float)) and isinstance(rate, dict) and rate.get("mean"):
                ends = {end: value * rate[end] / rate["mean"] for end in ("low", "high") if isinstance(rate.get(end), (int, float))}
                data = {**data, key: {"mean": value, **ends}}
        return data

    @property
    def grade(self) -> str:
        """The weakest grade of :attr:`coverage`; empty in files written by older versions."""
        order = ("uncovered", "interpolation", "checked")
        return min((its.grade for its in self.coverage), key=order.index, default="")

    @property
    def extrapolated(self) -> bool:
        """Whether any aspect of it is covered by nothing that was measured."""
        moved = any(its.about == "device" and its.grade == "uncovered" for its in self.coverage)
        return moved or any(warning.code == "outside-calibration" for warning in self.warnings)

    def _figures(self) -> Row:
        rate, step, stale, use = self.throughput_samples_per_s, self.step_time_s, self.staleness, self.utilisation
        cost = usd_per_million_samples(self)
        one_step, one_stale = self.mean_step_s, self.mean_staleness
        shares = self.scatter.shares if self.scatter is not None else (None, None, None)
        return {
            "throughput_samples_per_s": rate.mean,
            "throughput_low": rate.low,
            "throughput_high": rate.high,
            "share_model": shares[0],
            "share_parameters": shares[1],
            "share_luck": shares[2],
            "updates_per_s": self.updates_per_s.mean,
            "speedup": self.speedup.mean,
            "speedup_low": self.speedup.low,
            "speedup_high": self.speedup.high,
            "scaling_efficiency": self.scaling_efficiency.mean,
            "scaling_efficiency_low": self.scaling_efficiency.low,
            "scaling_efficiency_high": self.scaling_efficiency.high,
            "step_mean_s": step.mean,
            "step_mean_low_s": one_step.low if one_step else None,
            "step_mean_high_s": one_step.high if one_step else None,
            "step_p50_s": step.p50,
            "step_p95_s": step.p95,
            "step_p99_s": step.p99,
            "staleness_mean": stale.mean,
            "staleness_mean_low": one_stale.low if one_stale else None,
            "staleness_mean_high": one_stale.high if one_stale else None,
            "staleness_p50": stale.p50,
            "staleness_p95": stale.p95,
            "staleness_p99": stale.p99,
            "staleness_max": stale.max,
            "dropped_share": self.dropped_share,
            **{f"{part}_s": float(getattr(self.breakdown_s, part)) for part in type(self.breakdown_s).model_fields},
            "hidden_communication_s": self.hidden_communication_s,
            "devices_busy": use.devices,
            "links_busy": use.links,
            "servers_busy": use.servers,
            "busiest_link": use.busiest_link_name,
            "busiest_link_busy": use.busiest_link,
            "busiest_server_busy": use.busiest_server,
            "bottleneck": self.bottleneck.name,
            "balance": self.bottleneck.balance or "",
            "usd_per_million_samples": cost.mean if cost else None,
            "usd_per_million_samples_low": cost.low if cost else None,
            "usd_per_million_samples_high": cost.high if cost else None,
            "warnings": len(self.warnings),
            "coverage": self.grade,
            "extrapolated": self.extrapolated,
            "assumed": ", ".join(f"{its.path} = {its.value}" for its in self.assumed),
            "failed": "",
        }


class Failed(Spec):
    """Why a scenario has no result."""

    kind: str = Field(description="the error's name, such as DeadlockError")
    text: str = Field(description="what it said, in one line")


class Failure(Outcome):
    """What a sweep writes in place of the result of a scenario that could not be simulated."""

    failed: Failed

    def _figures(self) -> Row:
        return {"failed": f"{self.failed.kind}: {self.failed.text}"}


def _that_differ(settings: Sequence[Row]) -> list[str]:
    """Keys with several values; one that only some strategies have counts among those."""
    values: dict[str, set[Cell]] = {}
    for own in settings:
        for name, value in own.items():
            values.setdefault(name, set()).add(value)
    return [name for name, found in values.items() if len(found) > 1]


def _setting(scenario: Scenario) -> Row:
    strategy, placed = scenario.strategy, placement_of(scenario)
    return {
        "workload": scenario.workload.name,
        "cluster": scenario.cluster.name,
        "strategy": f"{strategy.kind}, {strategy.variant}" if strategy.variant else strategy.kind,
        "scaling": "weak" if scenario.workload.global_batch is None else "strong",
        "replicas": scenario.replicas,
        "servers": scenario.servers,
        "nodes": placed.nodes,
        "devices_per_node": placed.devices_per_node,
        "placement": placed.text,
        "batch_per_replica": scenario.batch,
        "global_batch": scenario.batch * scenario.replicas,
    }
