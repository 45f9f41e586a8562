"""What a simulation answers: frozen, versioned, and the same bytes for the same scenario."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import Field

from simulator.scenario import Scenario
from simulator.spec import Spec

__all__ = ["Bottleneck", "Breakdown", "Estimate", "Histogram", "Quantiles", "Result", "Staleness", "Utilisation", "Warned"]


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
    per_server_mean: tuple[float, ...] = Field(default=(), description="the same, counted on each server by itself")


class Breakdown(Spec):
    """Where the mean step's time goes, in seconds; the parts sum to ``step_time_s.mean``."""

    input: float
    compute: float
    exposed_communication: float
    waiting: float
    apply: float


class Utilisation(Spec):
    """Busy share of each kind of resource: mean over all of the kind, and of the busiest one."""

    devices: float
    links: float
    servers: float
    busiest_link: float
    busiest_link_name: str
    busiest_server: float


class Bottleneck(Spec):
    """What limits the throughput: a name to sort by, and a sentence."""

    name: Literal["compute", "input", "network", "server-network", "server", "stragglers", "latency", "apply"]
    text: str


class Warned(Spec):
    """Something that the reader must know before trusting the numbers."""

    code: str
    path: str
    value: float | str
    range: tuple[float, float] | None = None
    text: str


class Result(Spec):
    """The answer to one scenario. All but ``wall_time_s`` depends on the scenario alone."""

    schema_version: Literal[1] = 1
    scenario_hash: str
    scenario: Scenario
    seed: int
    replicas: int
    throughput_samples_per_s: Estimate
    updates_per_s: Estimate
    monte_carlo_error: float = Field(description="standard error of the mean throughput over replications, samples/s")
    step_time_s: Quantiles
    speedup: float = Field(description="throughput over that of one replica (docs/metrics.md)")
    scaling_efficiency: float
    staleness: Staleness
    breakdown_s: Breakdown
    utilisation: Utilisation
    bottleneck: Bottleneck
    warnings: tuple[Warned, ...]
    events: int = Field(description="events of the simulation kernel, all replications")
    wall_time_s: float | None = Field(
        default=None, description="time the simulation took; null in sweeps, whose files must not depend on it"
    )

    @property
    def extrapolated(self) -> bool:
        """Whether it leaves the range in which workload or cluster were calibrated."""
        return any(warning.code == "outside-calibration" for warning in self.warnings)

    def to_json(self) -> str:
        """One line of JSON; quantities under their SI names; floats round-trip exactly."""
        return json.dumps(self.model_dump(mode="json"), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
