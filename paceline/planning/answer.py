"""What a plan answers: frozen, versioned, plain data."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import Field

from simulator.results import Estimate, Result
from simulator.spec import Seconds, Spec

__all__ = ["Candidate", "Goal", "Improvement", "Plan", "Scaling", "ServerCount"]

Scaling = Literal["weak", "strong"]
"""Weak: the batch of each replica is fixed; strong: that of all together."""


class Goal(Spec):
    """What the training must reach, and what is preferred among all that do."""

    target_throughput_samples_per_s: float | None = Field(default=None, gt=0)
    samples: float | None = Field(default=None, gt=0, description="of the data set: one epoch")
    epochs: float = Field(default=1.0, gt=0)
    deadline_s: Seconds | None = Field(default=None, gt=0)
    budget_usd: float | None = Field(default=None, gt=0)
    confidence: float = Field(default=0.95, gt=0, lt=1, description="share of real runs that must reach the goal")
    prefer: Literal["cheapest", "fastest", "fewest-devices"] = "cheapest"

    @property
    def total_samples(self) -> float | None:
        """Samples of the whole training; None where the goal is a rate."""
        return None if self.samples is None else self.samples * self.epochs


class Candidate(Spec):
    """One configuration that was simulated, and how it stands to the goal."""

    name: str = Field(description="strategy, cluster, workers and scaling in words")
    scaling: Scaling
    result: Result
    usd_per_hour: float | None
    usd_per_million_samples: Estimate | None
    time_s: Estimate | None = Field(description="of the whole training; None where the goal has no samples")
    cost_usd: Estimate | None = Field(description="of the whole training; None where the goal has no samples or the cluster no price")
    confidence: float = Field(description="predicted share of real runs that reach the goal, from the replications")
    meets: bool


class ServerCount(Spec):
    """Throughput of the chosen configuration with another number of parameter servers."""

    servers: int
    throughput_samples_per_s: Estimate
    usd_per_hour: float | None


class Improvement(Spec):
    """One change to the chosen configuration, simulated; or the reason why it was not."""

    name: str = Field(description="such as: 2x network")
    text: str = Field(description="what was changed, in a sentence, with the source of any figure; or why it is not known")
    throughput_samples_per_s: Estimate | None = None
    gain: float | None = Field(default=None, description="throughput over that of the chosen configuration, less 1")
    usd_per_hour: float | None = None
    bottleneck: str = ""


class Plan(Spec):
    """The answer."""

    schema_version: Literal[1] = 1
    goal: Goal
    feasible: bool
    chosen: Candidate = Field(description="the best that meets the goal; where none does, the nearest")
    why: str = Field(description="why this one, in a sentence or two")
    runners_up: tuple[Candidate, ...]
    pareto: tuple[Candidate, ...] = Field(description="no other simulated is both cheaper and faster; ascending in time")
    candidates: tuple[Candidate, ...] = Field(description="all that were simulated")
    servers: tuple[ServerCount, ...] = Field(default=(), description="of a parameter-server answer; ascending")
    servers_enough: int | None = Field(default=None, description="the fewest from which more servers gain less than 2%")
    workers_pay_until: int | None = Field(
        default=None, description="the most replicas up to which another doubling still pays (docs/planning.md)"
    )
    improvements: tuple[Improvement, ...] = Field(default=(), description="greatest gain first; those without a figure last")
    considered: int = Field(description="configurations that the ranges name")
    discarded: int = Field(description="of those, ruled out by closed forms, never simulated")
    simulated: int = Field(description="scenarios that were really simulated, those for servers and improvements included")
    notes: tuple[str, ...] = ()

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.model_dump(mode="json"), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
