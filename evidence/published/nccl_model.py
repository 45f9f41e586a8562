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

A fit of a model to times of a few sizes is robust, in logarithms, with weak priors: the
logarithm of each number has a normal prior (Gelman et al., "Bayesian Data Analysis", chapter
5), and residuals count by soft L1, which outliers do not dominate. Where larger sizes are
asked for, the scatter that is allowed doubles with every :data:`_HALF_LIFE` doublings below
the largest size that is fitted: a misfit of small sizes should not bend what is near the
question.

Stated rates of links may not be achieved: sockets move a fraction of the adapter's rate. So each model is fitted twice, with a prior around
the stated rate and with one around what the sizes reached, and both are averaged by how well they explain the times (their evidence by
Laplace's approximation, tempered, because misfits of neighbours are alike).
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.optimize import least_squares

from evidence.published.tables import data_file
from evidence.rows import rows_in
from simulator.base.spec import Rate, Spec

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
        return math.fsum(self.times_s) / len(self.times_s)


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
        Assumptions on its numbers other than latency and bandwidth.
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


MODELS = (
    Model("line", (), _line),
    Model("pipeline", (Assumed(math.log(0.5), 1.0),), _pipeline),
    # NCCL's hwLat and the bytes of its flags (simulator.spec.cluster.Protocols); its tuner has LL at a quarter of the bandwidth
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
    for row in rows_in(data_file("nccl.csv")):
        times[row["series"]].setdefault(float(row["size_bytes"]), []).append(float(row["time_us"]) * 1e-6)
    return {series[name]: tuple(Point(size, tuple(some)) for size, some in sorted(sizes.items())) for name, sizes in times.items()}


SCATTER = 0.05
"""Relative scatter of a published time around a smooth curve: what a residual counts against the priors."""
_HALF_LIFE = 3.0
_LATENCY = Assumed(math.log(50e-6), 1.5)
_SHARE = Assumed(math.log(0.9), 0.25)
"""Of the stated rate that a bus bandwidth reaches."""
_SHARE_OF_SOCKETS = Assumed(math.log(0.4), 0.7)
"""With sockets, a CPU copies data that RDMA transfers directly."""
_STATED_HOLDS = {"rdma": 0.98, "sockets": 0.9, None: 0.8}
"""How likely a priori the stated rate tells the bandwidth, by what carries bytes between nodes; inside one as by RDMA."""
_BEYOND = Assumed(math.log(1.5), 1.0)
"""Over what the largest size reached, where no rate is stated or the stated one does not hold."""
_TEMPERED = 0.5
_CARRIED = 0.5
"""Share of a size's residual that comes back with more ranks: whether it is the library's own or chance is not known."""


class _Mode(NamedTuple):
    """One of the optima: logarithms of latency, bandwidth and the model's own numbers, shape (numbers,)."""

    weight: float
    logs: Values
    covariance: Values


@dataclass(frozen=True)
class Fit:
    """A model's numbers for one series, and how well they are known."""

    model: Model
    series: Series
    points: tuple[Point, ...]
    modes: tuple[_Mode, ...]

    def predict(self, sizes_bytes: Sequence[float], many: Series | None = None, law: Law = "ring") -> tuple[Values, Values]:
        """Logarithms of the times of other sizes, perhaps on more ranks of the same system.

        Parameters
        ----------
        many
            The series with more ranks; left out: the fitted one. Sizes that were fitted
            then carry :data:`_CARRIED` of their residual over.
        law
            By which the latency grows with the ranks.

        Returns
        -------
        times, variance : ndarray
            Log seconds, and the variance that the fit leaves them, each of shape (sizes,).
        """
        means = np.array([self._moved(mode.logs, sizes_bytes, many, law) for mode in self.modes])
        weights = np.array([mode.weight for mode in self.modes])
        mean = weights @ means
        inside = np.array([self._variance(mode, at, sizes_bytes, many, law) for mode, at in zip(self.modes, means, strict=True)])
        variance = weights @ (inside + (means - mean) ** 2)
        if many is not None:
            left = dict(zip((point.size_bytes for point in self.points), self.residuals(), strict=True))
            mean = mean + _CARRIED * np.array([left.get(size, 0.0) for size in sizes_bytes])
        return mean, variance

    def residuals(self) -> Values:
        """Log measured less log fitted time of each size."""
        fitted, _ = self.predict([point.size_bytes for point in self.points])
        left: Values = np.log([point.mean_s for point in self.points]) - fitted
        return left

    def _moved(self, logs: Values, sizes_bytes: Sequence[float], many: Series | None, law: Law) -> Values:
        latency, bandwidth = float(logs[0]), float(logs[1])
        if many is not None:
            latency += math.log(latency_ratio(law, self.series, many, math.exp(latency)))
            before, after = _stated(self.series), _stated(many)
            if before is not None and after is not None:
                bandwidth += after.mean - before.mean
        return _log_times(self.model, many or self.series, np.array([latency, bandwidth, *logs[2:]]), sizes_bytes)

    def _variance(self, mode: _Mode, at: Values, sizes_bytes: Sequence[float], many: Series | None, law: Law) -> Values:
        slopes = []
        for number, deviation in enumerate(np.sqrt(np.diag(mode.covariance))):
            step = max(0.1 * deviation, 1e-4)
            moved = mode.logs.copy()
            moved[number] += step
            slopes.append((self._moved(moved, sizes_bytes, many, law) - at) / step)
        variance: Values = np.einsum("is,ij,js->s", np.array(slopes), mode.covariance, np.array(slopes))
        return variance


def fit(model: Model, series: Series, points: Sequence[Point], *, larger: bool = False) -> Fit:
    """The numbers of a model that explain these times best.

    Minimises the sum of soft L1 losses of log(fitted / measured) over the scatter, and of
    squares of the numbers' distances from their priors.

    Parameters
    ----------
    points
        Two sizes or more, in order.
    larger
        Whether the fit is for larger sizes: smaller ones then count less.
    """
    sizes = [point.size_bytes for point in points]
    measured = np.log([point.mean_s for point in points])
    doublings = np.log2(sizes[-1] / np.array(sizes)) if larger else np.zeros(len(sizes))
    scatter = SCATTER * 2.0 ** (doublings / _HALF_LIFE)
    reached = math.log(bytes_on_bus(series.ranks) * sizes[-1]) - float(measured[-1])
    found = []
    for weight, bandwidth in _bandwidths(series, reached):
        prior = (_LATENCY, bandwidth, *model.extra)
        mean, spread = np.array([number.mean for number in prior]), np.array([number.spread for number in prior])

        def residuals(logs: Values, mean: Values = mean, spread: Values = spread) -> Values:
            off = (_log_times(model, series, logs, sizes) - measured) / scatter
            robust = np.sign(off) * np.sqrt(2.0 * (np.sqrt(1.0 + off**2) - 1.0))
            return np.concatenate([robust, (logs - mean) / spread])

        tried = []
        for start in {float(mean[1]), reached}:
            first = mean.copy()
            first[:2] = measured.min(), start
            tried.append(least_squares(residuals, first, xtol=1e-5, ftol=1e-5))
        best = min(tried, key=lambda one: float(one.cost))
        covariance = np.linalg.inv(best.jac.T @ best.jac)
        evidence = -_TEMPERED * best.cost + np.linalg.slogdet(covariance)[1] / 2.0 - np.log(spread).sum()
        found.append((math.log(weight) + float(evidence), best.x, covariance))
    most = max(evidence for evidence, _, _ in found)
    weights = np.exp([evidence - most for evidence, _, _ in found])
    modes = (_Mode(float(weight), logs, covariance) for weight, (_, logs, covariance) in zip(weights / weights.sum(), found, strict=True))
    return Fit(model, series, tuple(points), tuple(modes))


def _bandwidths(series: Series, reached: float) -> list[tuple[float, Assumed]]:
    """Priors of the bandwidth's logarithm, each with its weight."""
    beyond = Assumed(reached + _BEYOND.mean, _BEYOND.spread)
    stated = _stated(series)
    if stated is None:
        return [(1.0, beyond)]
    holds = _STATED_HOLDS[_transport(series)]
    return [(holds, stated), (1.0 - holds, beyond)]


def _stated(series: Series) -> Assumed | None:
    """What the stated rates let expect of the bandwidth's logarithm; none where one is not stated."""
    nominal = nominal_bus(series)
    if nominal is None:
        return None
    share = _SHARE_OF_SOCKETS if _transport(series) == "sockets" else _SHARE
    return Assumed(math.log(nominal) + share.mean, share.spread)


def _transport(series: Series) -> str | None:
    return series.transport if series.nodes > 1 else "rdma"


def _log_times(model: Model, series: Series, logs: Values, sizes_bytes: Sequence[float]) -> Values:
    moving = np.log(bytes_on_bus(series.ranks) * np.asarray(sizes_bytes, dtype=float)) - logs[1]
    times: Values = model.log_time(np.full(len(moving), logs[0]), moving, logs[2:])
    return times
