"""The physical quantities of a scenario that a refit may move, each with what is believed of it beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from simulator.scenario import Scenario
from simulator.spec import Spec

__all__ = ["Candidate", "candidates_of", "value_at", "with_factors"]


class Candidate(Spec):
    """A quantity that one factor scales, whatever numbers of the scenario it is made of.

    The logarithm of the factor is believed to be normal around 0, so that twice and half
    are equally likely.
    """

    name: str = Field(description="for people")
    section: Literal["workload", "cluster"]
    targets: tuple[str, ...] = Field(min_length=1, description="dotted names within the section, all scaled alike")
    prior_log_sd: float = Field(gt=0, description="standard deviation of the logarithm of the factor, before any point is seen")
    starts: tuple[float, ...] = Field(
        default=(), description="factors to search from besides 1: what hides behind compute has no slope there"
    )

    @property
    def paths(self) -> tuple[str, ...]:
        """Dotted names within the scenario."""
        return tuple(f"{self.section}.{target}" for target in self.targets)


_COMPUTE = Candidate(
    name="compute",
    section="workload",
    targets=("forward.base_s", "forward.per_sample_s", "backward.base_s", "backward.per_sample_s"),
    prior_log_sd=0.25,
)
"""Another clock, another thermal state, shared cores: mostly within a third of what was calibrated."""
_SERVER = Candidate(
    name="server's cost of a gradient", section="workload", targets=("server.base_s", "server.per_byte_s"), prior_log_sd=0.7
)
"""Known by its order of magnitude: twice or half at one standard deviation."""
_BANDWIDTH = Candidate(
    name="bandwidth between nodes", section="cluster", targets=("inter_node.bandwidth_bytes_per_s",), prior_log_sd=0.7, starts=(0.3, 0.1)
)
"""What a port is sold as and what TensorFlow gets through it differ by a factor of two or more."""
_LATENCY = Candidate(
    name="latency between nodes", section="cluster", targets=("inter_node.latency_s",), prior_log_sd=1.0, starts=(3.0, 10.0)
)
"""Includes software, which data sheets leave out."""
_INSIDE = Candidate(
    name="bandwidth inside a node", section="cluster", targets=("intra_node.bandwidth_bytes_per_s",), prior_log_sd=0.7, starts=(0.3, 0.1)
)
_INSIDE_LATENCY = Candidate(
    name="latency inside a node", section="cluster", targets=("intra_node.latency_s",), prior_log_sd=1.0, starts=(3.0, 10.0)
)


def candidates_of(scenario: Scenario) -> tuple[list[Candidate], dict[str, str]]:
    """What a refit of the scenario may move, and for what it may not, the reason by name."""
    wanted = [_COMPUTE]
    if scenario.strategy.link == "intra_node":
        wanted += [_INSIDE, _INSIDE_LATENCY]
    elif scenario.strategy.link == "inter_node":
        wanted += [_BANDWIDTH, _LATENCY]
    if scenario.servers:
        wanted.append(_SERVER)
    found: list[Candidate] = []
    left: dict[str, str] = {}
    for each in wanted:
        targets = tuple(target for target in each.targets if value_at(scenario, f"{each.section}.{target}") > 0)
        if targets:
            found.append(each.model_copy(update={"targets": targets}))
        else:
            left[each.name] = f"is 0 in the scenario, which no factor changes; set {each.paths[0]} to have it fitted"
    return found, left


def value_at(scenario: Scenario, path: str) -> float:
    """The number at a dotted name of the scenario."""
    owner: Any = scenario
    for part in path.split("."):
        owner = getattr(owner, part)
    return float(owner)


def with_factors(scenario: Scenario, candidates: Sequence[Candidate], factors: Sequence[float]) -> Scenario:
    """The scenario with each candidate's numbers scaled."""
    for candidate, factor in zip(candidates, factors, strict=True):
        for path in candidate.paths:
            scenario = _replaced(scenario, path.split("."), value_at(scenario, path) * factor)
    return scenario


def _replaced(spec: Any, path: Sequence[str], value: float) -> Any:
    head, *rest = path
    assert isinstance(spec, BaseModel)
    return spec.model_copy(update={head: _replaced(getattr(spec, head), rest, value) if rest else value})
