"""A cluster: nodes, the devices in them, and the links inside and between nodes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from simulator.spec import Bytes, Rate, Seconds, Spec
from simulator.uncertainty import Uncertainty

__all__ = ["CalibrationFitLink", "Cluster", "ClusterRange", "Link", "LinkPoint"]

Interval = tuple[Annotated[float, Field(ge=0)], Annotated[float, Field(ge=0)]]


class Link(Spec):
    """A full-duplex link: each direction has the whole bandwidth to itself."""

    bandwidth_bytes_per_s: Rate = Field(gt=0)
    latency_s: Seconds = Field(default=0.0, ge=0, description="added to each message; it delays, but does not occupy the link")


class ClusterRange(Spec):
    """Within what the links were measured; beyond it a result warns."""

    message_bytes: Interval | None = None
    nodes: Interval | None = None
    bandwidth_bytes_per_s: Interval | None = Field(default=None, description="of the link between nodes, as measured")


class LinkPoint(Spec):
    """Times measured for one message size."""

    size_bytes: Bytes = Field(gt=0)
    median_s: Seconds = Field(gt=0)
    p5_s: Seconds = Field(gt=0)
    p95_s: Seconds = Field(gt=0)


class CalibrationFitLink(Spec):
    """How well latency and bandwidth describe what was measured on the link between nodes."""

    points: tuple[LinkPoint, ...] = ()
    relative_residual: Annotated[float, Field(ge=0)]
    intervals_90: dict[str, tuple[float, float]] = Field(default_factory=dict)


class Cluster(Spec):
    """Identical nodes with devices, joined by a switch that is never the bottleneck."""

    schema_version: Literal[1] = 1
    name: str = Field(min_length=1, max_length=10_000)
    description: str = ""
    basis: Literal["assumed", "measured", "published"] = Field(
        default="assumed", description="where the figures come from; a result says when they are assumed"
    )
    device: str = ""
    nodes: int | None = Field(default=None, ge=1, le=1_000_000, description="left out: as many as the strategy needs")
    devices_per_node: int = Field(default=1, ge=1, le=1024)
    replicas_per_device: int = Field(default=1, ge=1, le=1024, description="replicas that share a device, each getting an equal part of it")
    node_speed: tuple[Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)], ...] = Field(
        default=(),
        max_length=1_000_000,
        description="speed of the devices of node 0, 1, ... relative to the measured one; nodes beyond the list have 1",
    )
    intra_node: Link = Field(default=Link(bandwidth_bytes_per_s=16e9, latency_s=5e-6), description="between the devices of a node")
    inter_node: Link = Field(description="between a node and the switch; the latency is from node to node")
    calibrated: ClusterRange | None = None
    uncertainty: Uncertainty | None = None
    fit: CalibrationFitLink | None = None
    provenance: dict[str, str] = Field(default_factory=dict)
    overridden: tuple[str, ...] = Field(default=(), description="fitted or measured parts that the scenario has set itself")

    @model_validator(mode="after")
    def _consistent(self) -> Cluster:
        if self.nodes is not None and len(self.node_speed) > self.nodes:
            raise ValueError(f"node_speed names {len(self.node_speed)} nodes, but there are {self.nodes}")
        if self.uncertainty is not None:
            self.uncertainty.check(self)
        return self

    @property
    def replicas_per_node(self) -> int:
        """How many replicas a node takes."""
        return self.devices_per_node * self.replicas_per_device

    def speed_of(self, node: int) -> float:
        """Relative speed of the devices of a node."""
        return self.node_speed[node] if node < len(self.node_speed) else 1.0
