"""Published all-reduce series, and the simulator's collectives set up for them.

NCCL reduces by a ring or a tree, each by one of three protocols, whichever its tuner
finds fastest for a size. Here a ring and halving-doubling, by the same protocols, stand
for them, and :class:`simulator.collectives.Auto` chooses: halving-doubling sends
2 (m - 1) / m S between m nodes in 2 log2(m) messages, as NCCL's double tree does for two
nodes, and its latency grows as a tree's. Its stages are not pipelined, which those of a
tree are; so bandwidth inside a node comes out above the hardware's where several nodes
are fitted. Added to the collective's duration: a constant for its launch.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from calibrate.published.data import data_file
from simulator import scenario_from_table
from simulator.cluster import Cluster, Link, Protocol, Protocols
from simulator.collectives import Auto, Collective, collective_for
from simulator.network.ports import Connection
from simulator.network.topology import Topology
from simulator.rng import Streams
from simulator.scenario import Scenario
from simulator.spec import Rate, Spec

__all__ = ["Nominal", "Numbers", "Point", "Series", "durations_s", "least_durations_s", "nominal_of", "read_series"]

_CHUNK_BYTES = 512 * 1024.0  # of algorithms in pieces, which none of these is


class Series(Spec):
    """A setting whose all-reduces somebody timed, by size."""

    name: str
    system: str = Field(description="series of one system differ in how many of its nodes take part")
    source: str
    hardware: str = Field(description="as the source has it")
    ranks: int = Field(ge=2)
    nodes: int = Field(ge=1)
    switched: bool = Field(default=False, description="whether a switch joins the devices of a node (NVSwitch)")
    device_bandwidth_bytes_per_s: Rate | None = Field(
        default=None, gt=0, description="nominal, each direction of a device's links in its node"
    )
    node_bandwidth_bytes_per_s: Rate | None = Field(default=None, gt=0, description="nominal, each direction of a node's links to others")
    algorithms: tuple[str, ...] = Field(default=("ring", "halving-doubling"), description="fewer where the source turned the tree off")


class Point(NamedTuple):
    """All repeats of one size."""

    size_bytes: float
    times_s: tuple[float, ...]

    @property
    def mean_s(self) -> float:
        """Mean over the repeats, in seconds."""
        return sum(self.times_s) / len(self.times_s)


class Nominal(NamedTuple):
    """What fitted shares of bandwidths are shares of, in bytes a second."""

    node: float
    device: float


class Numbers(NamedTuple):
    """What is fitted of a system. Latencies are factors on those that NCCL assumes (:class:`simulator.cluster.Protocols`)."""

    launch_s: float
    """Constant of a collective: launch of the kernel and its end. Not modelled by the simulator."""
    node_latency: float
    """Of messages between nodes."""
    device_latency: float
    """Of messages inside a node."""
    ll128_latency: float
    """Of LL128, on top of these."""
    simple_latency: float
    """Of Simple, on top of these."""
    ll_wire: float
    """Time of a byte by LL over that by Simple: two for its flags, more where its bandwidth is capped."""
    ll128_wire: float
    """The same of LL128."""
    node_share: float
    """Bandwidth between nodes over nominal."""
    device_share: float
    """Bandwidth inside a node over nominal."""


def read_series() -> dict[Series, tuple[Point, ...]]:
    """Every published series with its sizes in order."""
    with data_file("nccl.toml").open("rb") as file:
        series = {one.name: one for one in map(Series.model_validate, tomllib.load(file)["series"])}
    times: dict[str, dict[float, list[float]]] = {name: {} for name in series}
    with data_file("nccl.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            times[row["series"]].setdefault(float(row["size_bytes"]), []).append(float(row["time_us"]) * 1e-6)
    return {series[name]: tuple(Point(size, tuple(some)) for size, some in sorted(sizes.items())) for name, sizes in times.items()}


def nominal_of(series: Series, largest: Point) -> Nominal:
    """The nominal rates; where the source states none, multiples of what the largest size that is fitted got."""
    got = largest.size_bytes / largest.mean_s
    return Nominal(series.node_bandwidth_bytes_per_s or 2 * got, series.device_bandwidth_bytes_per_s or 3 * got)


def durations_s(series: Series, nominal: Nominal, numbers: Numbers, sizes_bytes: Sequence[float]) -> NDArray[np.float64]:
    """Predicted seconds of all-reduces of these sizes, shape (sizes,): by what the simulator chooses for each."""
    collective = Auto(_candidates(series, nominal, numbers))
    return np.array([numbers.launch_s + collective.duration_s(size) for size in sizes_bytes])


def least_durations_s(series: Series, nominal: Nominal, numbers: Numbers, sizes_bytes: Sequence[float]) -> NDArray[np.float64]:
    """The same by what is fastest for each size, which is continuous in the numbers.

    The simulator chooses once for all sizes from one power of two to the next: near a
    change of protocol it may be slower, and its times jump where a choice changes.
    """
    candidates = _candidates(series, nominal, numbers)
    least_s = np.full(len(sizes_bytes), np.inf)
    for number, size in enumerate(sizes_bytes):
        for candidate in candidates:
            if candidate.least_s(size) < least_s[number]:
                least_s[number] = min(least_s[number], candidate.duration_s(size))
    return numbers.launch_s + least_s


def _candidates(series: Series, nominal: Nominal, numbers: Numbers) -> list[Collective]:
    cluster = _cluster(series, nominal, numbers)
    scenario = _scenario(series.ranks, series.nodes).model_copy(update={"cluster": cluster})
    streams = Streams(0, 0)

    def connect() -> Callable[[int, int], Connection]:
        return Topology(scenario, streams).between_replicas

    per_node = series.ranks // series.nodes
    return [
        collective_for(name, protocol, cluster, series.ranks, per_node, connect(), connect, _CHUNK_BYTES)
        for name in series.algorithms
        for protocol in ("simple", "ll128", "ll")
    ]


def _cluster(series: Series, nominal: Nominal, numbers: Numbers) -> Cluster:
    factors = {"ll": 1.0, "ll128": numbers.ll128_latency, "simple": numbers.simple_latency}
    wires = {"ll": numbers.ll_wire, "ll128": numbers.ll128_wire, "simple": 1.0}
    protocols = {
        name: Protocol(
            latency_s=assumed.latency_s * numbers.node_latency * factors[name],
            intra_node_latency_s=assumed.intra_node_latency_s * numbers.device_latency * factors[name],
            wire_bytes_per_byte=wires[name],
        )
        for name, assumed in Protocols()
    }
    return Cluster(
        name=series.name,
        nodes=series.nodes,
        devices_per_node=series.ranks // series.nodes,
        intra_node=Link(bandwidth_bytes_per_s=nominal.device * numbers.device_share),
        inter_node=Link(bandwidth_bytes_per_s=nominal.node * numbers.node_share),
        protocols=Protocols(**protocols),
    )


@cache
def _scenario(ranks: int, nodes: int) -> Scenario:
    """Of as many replicas; only its cluster and where they sit count here."""
    return scenario_from_table(
        {
            "workload": {
                "name": "nothing",
                "batch_per_replica": 1,
                "forward": {"base": "1 ms", "per_sample": "0 s"},
                "backward": {"base": "1 ms", "per_sample": "0 s"},
                "variables": [{"name": "v", "size": "4 B", "creation_index": 0, "ready": 1.0}],
            },
            "cluster": {
                "name": "any",
                "nodes": nodes,
                "devices_per_node": ranks // nodes,
                "inter_node": {"bandwidth": "1 GB/s", "latency": "0 s"},
            },
            "strategy": {"kind": "multi-worker-mirrored", "workers": nodes},
            "run": {"steps": 2},
        },
        "published all-reduces",
    )
