"""Published all-reduce series, and a small ladder of models of how their time grows with size and ranks.

Every model starts from a latency L, of an empty message, and the time of the bytes alone,
b = 2 (n - 1) / n S / B, for S bytes over n ranks at a bus bandwidth B (Thakur, Rabenseifner
and Gropp, "Optimization of collective communication operations in MPICH", 2005):

- *line*, two numbers: L + b.
- *pipeline*, three: L + b + 2 k sqrt(L b), which for k = 1 is the least time of a message
  cut into the best number of pieces through a pipeline (Hoefler and Moor, "Energy, memory,
  and runtime tradeoffs for implementing collective communication operations", 2014).
- *protocols*, six: the fastest of three lines, as of NCCL's LL, LL128 and Simple, of which
  each next one has more latency and more bandwidth.

With more ranks the latency grows by one of two laws: of a *ring*, as n - 1; of a *tree*, a
constant for its launch plus what grows as the logarithm of the nodes.
"""

from __future__ import annotations

import csv
import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from calibrate.published.data import data_file
from simulator.spec import Rate, Spec

__all__ = ["LADDER", "LAWS", "Assumed", "Law", "Model", "Point", "Series", "bytes_on_bus", "latency_ratio", "nominal_bus", "read_series"]

Values = NDArray[np.float64]
Law = Literal["ring", "tree"]
LAWS: tuple[Law, ...] = ("ring", "tree")

_LAUNCH_S = 12e-6
"""Of a collective, which no number of ranks changes: NCCL's tuner has 7 to 14 us (``src/graph/tuning.cc``)."""


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
    transport: Literal["rdma", "sockets"] | None = Field(default=None, description="between nodes; left out: not stated")


class Point(NamedTuple):
    """All repeats of one size."""

    size_bytes: float
    times_s: tuple[float, ...]

    @property
    def mean_s(self) -> float:
        """Mean over the repeats, in seconds."""
        return sum(self.times_s) / len(self.times_s)


class Assumed(NamedTuple):
    """Of a number a priori: the mean and the standard deviation of its logarithm."""

    mean: float
    spread: float


@dataclass(frozen=True)
class Model:
    """One rung of the ladder.

    Attributes
    ----------
    name
        For people.
    extra
        What is assumed of its numbers beside latency and bandwidth.
    log_time
        From log L, log b, each of shape (sizes,), and the logarithms of the extra numbers to
        the logarithm of the time, shape (sizes,).
    """

    name: str
    extra: tuple[Assumed, ...]
    log_time: Callable[[Values, Values, Values], Values]


def _line(latency: Values, moving: Values, _: Values) -> Values:
    return np.logaddexp(latency, moving)


def _pipeline(latency: Values, moving: Values, extra: Values) -> Values:
    time: Values = np.logaddexp(np.logaddexp(latency, moving), math.log(2.0) + extra[0] + (latency + moving) / 2.0)
    return time


def _protocols(latency: Values, moving: Values, extra: Values) -> Values:
    ll = np.logaddexp(latency, moving + extra[2])
    ll128 = np.logaddexp(latency + extra[0], moving + extra[3])
    simple = np.logaddexp(latency + extra[0] + extra[1], moving)
    time: Values = np.minimum(np.minimum(ll, ll128), simple)
    return time


LADDER = (
    Model("line", (), _line),
    Model("pipeline", (Assumed(math.log(0.5), 1.0),), _pipeline),
    # NCCL's hwLat and the bytes of its flags (simulator.cluster.Protocols); its tuner has LL at a quarter of the bandwidth
    Model(
        "protocols",
        (
            Assumed(math.log(4.0 / 2.7), 0.4),
            Assumed(math.log(14.0 / 4.0) / 2.0, 0.6),
            Assumed(math.log(4.0), 0.7),
            Assumed(math.log(1.2), 0.4),
        ),
        _protocols,
    ),
)
"""From the plainest to the one with the most mechanism."""


def bytes_on_bus(ranks: int) -> float:
    """2 (n - 1) / n: bytes that each rank sends for each byte reduced."""
    return 2.0 * (ranks - 1) / ranks


def nominal_bus(series: Series) -> float | None:
    """Most that the stated rates let a bus bandwidth be, in bytes a second; none where a rate is not stated.

    Between nodes a ring sends :func:`bytes_on_bus` of the ranks through each node's links. A
    tree over two nodes with a switch in each, where devices share the links, sends but
    that of the nodes: S instead of 2 (n - 1) / n S.
    """
    rates = [] if series.device_bandwidth_bytes_per_s is None else [series.device_bandwidth_bytes_per_s]
    if series.nodes > 1:
        if series.node_bandwidth_bytes_per_s is None:
            return None
        by_tree = series.nodes == 2 and series.switched and "halving-doubling" in series.algorithms
        spared = bytes_on_bus(series.ranks) / bytes_on_bus(series.nodes) if by_tree else 1.0
        rates.append(series.node_bandwidth_bytes_per_s * spared)
    return min(rates, default=None)


def latency_ratio(law: Law, few: Series, many: Series, latency_s: float) -> float:
    """How many times the latency of one series another of the same system has.

    Parameters
    ----------
    latency_s
        Of ``few``.
    """
    if law == "ring":
        return (many.ranks - 1) / (few.ranks - 1)
    launch_s = min(_LAUNCH_S, latency_s / 2.0)
    steps = (few.nodes, many.nodes) if few.nodes > 1 else (few.ranks, many.ranks)
    return (launch_s + (latency_s - launch_s) * math.log2(steps[1]) / math.log2(steps[0])) / latency_s


def read_series() -> dict[Series, tuple[Point, ...]]:
    """Every published series with its sizes in order."""
    with data_file("nccl.toml").open("rb") as file:
        series = {one.name: one for one in map(Series.model_validate, tomllib.load(file)["series"])}
    times: dict[str, dict[float, list[float]]] = {name: {} for name in series}
    with data_file("nccl.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            times[row["series"]].setdefault(float(row["size_bytes"]), []).append(float(row["time_us"]) * 1e-6)
    return {series[name]: tuple(Point(size, tuple(some)) for size, some in sorted(sizes.items())) for name, sizes in times.items()}
