"""What a simulation answers: frozen, versioned, and the same bytes for the same scenario."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from simulator.discrepancy import Doubt
from simulator.scenario import Scenario
from simulator.spec import Spec
from simulator.table import Row
from simulator.workload import DeviceTransfer

__all__ = [
    "Assumed",
    "Bottleneck",
    "Breakdown",
    "Coverage",
    "Estimate",
    "Failed",
    "Failure",
    "Histogram",
    "Limit",
    "Outcome",
    "Phase",
    "Placement",
    "Quantiles",
    "Reduced",
    "Result",
    "Scatter",
    "Staleness",
    "Utilisation",
    "Warned",
]


class Estimate(Spec):
    """Mean over replications, and a 90% prediction interval for one real run of as many steps."""

    mean: float
    low: float
    high: float


class Quantiles(Spec):
    """Distribution of a time over steps, in seconds."""

    mean: float
    p50: float
    p95: float
    p99: float


class Scatter(Spec):
    """What widens the interval of the throughput: standard deviations of its logarithm."""

    model: float = Field(ge=0, description="what the model is off by: the discrepancy")
    parameters: float = Field(ge=0, description="what the fits of workload and cluster leave open")
    luck: float = Field(ge=0, description="what differs between runs: jitter, starts, speeds of processes")

    @property
    def shares(self) -> tuple[float, float, float]:
        """Of the variance: model, parameters, luck; zeros where there is none."""
        squares = self.model**2, self.parameters**2, self.luck**2
        total = sum(squares)
        model, parameters, luck = (square / total if total else 0.0 for square in squares)
        return model, parameters, luck


class Histogram(Spec):
    """``counts[i]`` updates had staleness ``values[i]``."""

    values: tuple[int, ...]
    counts: tuple[int, ...]


class Staleness(Spec):
    """Updates applied between the read that an update was computed from and its own application."""

    mean: float
    p50: int
    p95: int
    p99: int
    max: int
    histogram: Histogram
    bound: int | None = Field(default=None, description="what it can be at most under stale-synchronous clocks: (n - 1) (2 bound + 1)")
    per_server_mean: tuple[float, ...] = Field(default=(), description="the same, counted on each server by itself")
    per_server_p95: tuple[int, ...] = ()
    per_worker_mean: tuple[float, ...] = Field(default=(), description="of each worker's updates; up to 1,024 workers are listed")
    per_worker_p95: tuple[int, ...] = Field(default=(), description="to 15% above 16")
    per_worker_max: tuple[int, ...] = ()
    mixed_reads: float = Field(default=0.0, description="share of reads that found different versions on different servers")
    mixed_spread_mean: float = Field(default=0.0, description="updates between the newest and the oldest of those, mean over all reads")
    mixed_spread_max: int = 0


class Breakdown(Spec):
    """Where the mean step's time goes, in seconds; the parts sum to ``step_time_s.mean``."""

    input: float
    compute: float
    exposed_communication: float
    waiting: float
    apply: float


class Placement(Spec):
    """Where the scenario's processes sit: what one would have to rent or to buy."""

    nodes: int = Field(description="machines in all; of a cluster of a fixed size, all of it")
    worker_nodes: int = Field(description="machines that hold replicas")
    server_nodes: int = Field(description="machines that hold parameter servers and nothing else")
    replicas_per_node: int = Field(description="replicas on a full machine")
    devices_per_node: int = Field(description="devices of a machine, in use or not")
    text: str = Field(description="all of that in words")


class Phase(Spec):
    """Whether asynchronous workers moved together (docs/metrics.md)."""

    order_at_start: float = Field(description="1: all workers at the same point of their steps; about 1 / sqrt(n): anywhere")
    order_at_end: float
    order_of_random_phases: float = Field(description="what n workers anywhere exceed with a chance of one in four")
    mixed_share: float = Field(description="share of replications in which the order fell to that of random phases")
    mixed_after_s: float | None = Field(default=None, description="median of when it did, of those replications")
    run_s: float = Field(default=0.0, description="mean length of a run, warm-up included")


class Reduced(Spec):
    """How buffers of one size were all-reduced."""

    size_bytes: float
    algorithm: str
    protocol: str


class Utilisation(Spec):
    """Busy share of each kind of resource: mean over all of the kind, and of the busiest one."""

    devices: float
    links: float
    servers: float
    busiest_link: float
    busiest_link_name: str
    busiest_server: float
    cores: float = Field(default=0.0, description="of the cores that all nodes share; 0 where each has its own")


Limit = Literal[
    "compute", "input", "network", "server-network", "fabric", "host-link", "host-cpu", "client", "server", "stragglers",
    "shared-cores", "coordinator", "latency", "apply",
]  # fmt: skip
"""What can limit a throughput."""


class Bottleneck(Spec):
    """What limits the throughput: a name to sort by, and a sentence."""

    name: Limit
    balance: Limit | None = Field(default=None, description="what takes nearly as much of a step, so that neither alone is the limit")
    text: str

    @property
    def label(self) -> str:
        """The name, or both where two are in balance; for reading."""
        return self.name.replace("-", " ") if self.balance is None else f"{self.name} and {self.balance} in balance".replace("-", " ")


class Assumed(Spec):
    """What was taken for something that the scenario leaves out, and why."""

    path: str
    value: str
    reason: str


class Coverage(Spec):
    """What speaks for one aspect of a prediction."""

    about: Literal["batch", "device", "workers"]
    grade: Literal["checked", "interpolation", "uncovered"] = Field(
        description="checked: held against real runs of that kind; interpolation: between what was measured; uncovered: by nothing"
    )
    text: str


class Warned(Spec):
    """Something that the reader must know before trusting the numbers."""

    code: str
    path: str
    value: float | str
    range: tuple[float, float] | None = None
    text: str


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
        from simulator.rows import rows_of_outcomes

        return rows_of_outcomes(items)

    @classmethod
    def shown_columns(cls, rows: Sequence[Row]) -> list[str]:
        """All of one row; of several the settings that differ and the most important figures."""
        from simulator.rows import BRIEF, COLUMNS

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


class Failed(Spec):
    """Why a scenario has no result."""

    kind: str = Field(description="the error's name, such as DeadlockError")
    text: str = Field(description="what it said, in one line")


class Failure(Outcome):
    """What a sweep writes in place of the result of a scenario that could not be simulated."""

    failed: Failed
