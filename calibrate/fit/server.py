"""Fits what a tensor and a byte cost the hosts of a worker and a parameter server, from measured pulls and pushes.

The result is the given cluster with ``transport.cpu_per_message_s`` and ``transport.copy_per_byte_s``. :class:`HostWork` has in closed
form how the simulator runs such messages: where the simulator changes, it must follow (tests/calibrate/test_server.py predicts
real pulls and pushes by a fit). Latency and bandwidth are fitted in :mod:`calibrate.fit.link`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares

from calibrate.fit.estimators import DRAWS_KEPT, bootstrapped, drawn, intervals_90
from calibrate.fit.writing import provenance
from calibrate.measurements import Exchange, Measurements, Note, read_measurements
from simulator.base.errors import CalibrationError
from simulator.base.text import digits, format_rate, format_seconds, format_share
from simulator.spec.cluster import CalibrationFitHosts, Cluster, ExchangePoint, HostCost
from simulator.spec.constants import constants

Array = NDArray[np.float64]
Setting = tuple[int, float]
"""Tensors, and bytes of each."""
Wire = Callable[[float], float]
"""Seconds of a byte between the hosts, given those of each host on it."""
Times = Mapping[tuple[str, Setting], Mapping[int, float]]
"""Median seconds by direction and setting, then by round."""

_DIRECTIONS = ("pull", "push")
_TENSOR, _BYTE = "transport.cpu_per_message_s", "transport.copy_per_byte_s"
_LATENCY, _RATE = "inter_node.latency_s", "inter_node.bandwidth_bytes_per_s"
_SHORTEST_S = 1e-6
"""No latency is taken to be less."""
_LEAST_SHARE = 0.1
"""Of what a byte took on a link by ``paceline calibrate-link``, which holds the hosts' work: what at least remains to the link."""
_POOR = 0.25
"""Of the times of half of the pulls and pushes: a fit that is further off is warned about."""
_SMALLEST = 1e-15
"""Seconds of a draw at least: zero would mean that practice is to be taken."""
_OF_LINK = "link_"
"""Begins what the provenance says of the cluster that the server was put into."""


def fit_server(measurements: Path, name: str, base: Cluster, command: str = "", seed: int = 0) -> Cluster:
    """Fit what pulls and pushes cost the two hosts to measurements, and put it into a cluster.

    Parameters
    ----------
    measurements
        File written by :func:`calibrate.profiling.profile_server`.
    name
        Of the cluster.
    base
        The cluster whose link and machines it has.
    command
        Command line that made it, for the provenance.
    seed
        Of the bootstrap.

    Returns
    -------
    Cluster
        ``base`` with ``transport.cpu_per_message_s`` and, where the link is not slower than the hosts, ``transport.copy_per_byte_s``: the
        means of pulls and pushes; their joint draws beside those of the link, 90% intervals in ``fit_hosts``. What a link by
        ``paceline calibrate-link`` holds of the hosts' work is taken out of its latency and of its time a byte.

    Raises
    ------
    CalibrationError
        The file is damaged, or holds too little to be fitted.
    """
    measured = read_measurements(measurements)
    measured.check_probe("servers", "a file of `paceline calibrate-server`")
    link = _Link.of(base)
    wire = link.wire if measured.header.arguments.get("peer") else no_wire
    try:
        fitted = _fitted(_times(measured), wire, np.random.default_rng(seed))
    except CalibrationError as error:
        raise CalibrationError(f"{measurements}: {error}") from None
    return _with_server(base, name, link, fitted, _facts(base, measured, command, link, fitted))


_TOLERANCE = 0.05
"""Of a time around the fit: beyond it residuals count linearly."""
_NOTHING = 1e-6
"""Of the shortest or the largest time: a bound is approached, never reached."""


def no_wire(_: float) -> float:
    """Between two processes of one machine there is none."""
    return 0.0


class HostWork:
    """Seconds of ``k`` tensors of ``s`` bytes each that go from one host to another one.

    Each host works on one tensor after the other, ``per_tensor_ + per_byte_ * s`` = w on each. The
    receiver is at a tensor while the sender is at the next, and what is between them carries the one
    in between (b seconds a byte), as the simulator runs it:

        base_ + 2 w + (k - 1) max(w, b s) + b s

    Without a wire, this is base_ + (k + 1) w. Residuals are log(fit / measured), so that few small tensors count as much
    as many large ones, with a soft-L1 loss, as those of :class:`~calibrate.fit.estimators.AffineCost`.

    Parameters
    ----------
    wire
        Seconds that a byte takes between the hosts, given those that each of them works on it.

    Attributes
    ----------
    base_
        Seconds of a call besides.
    per_tensor_
        Seconds of each host on a tensor.
    per_byte_
        Seconds of each host on a byte.
    relative_residual_
        Largest relative distance of what was measured from the fit.
    """

    def __init__(self, wire: Callable[[float], float] = no_wire) -> None:
        self._wire = wire
        self.base_ = 0.0
        self.per_tensor_ = 0.0
        self.per_byte_ = 0.0
        self.relative_residual_ = 0.0

    def fit(self, tensors: ArrayLike, sizes: ArrayLike, seconds: ArrayLike, near: HostWork | None = None) -> HostWork:
        """Learn from numbers of tensors, bytes of each, and seconds; each of shape (n,).

        ``near`` was fitted to nearly the same, and is where the search begins.

        Raises
        ------
        CalibrationError
            There are fewer than two numbers of tensors or sizes, or the time does not grow with the number of tensors.
        """
        k, s, t = np.asarray(tensors, float), np.asarray(sizes, float), np.asarray(seconds, float)
        if not (np.all(np.isfinite(t)) and np.all(t > 0)):
            raise CalibrationError("a fit needs finite times above zero")
        if len(np.unique(k)) < 2 or len(np.unique(s)) < 2:
            raise CalibrationError("at least two numbers of tensors and two sizes must have a usable time: measure more of them, or rounds")
        # all unknowns of order one: in shares of the shortest time, and of the longest a tensor and a byte
        units = np.array([np.min(t), np.max(t[k == np.max(k)]) / np.max(k), np.max(t / (k * s + s))])

        def residuals(parameters: Array) -> Array:
            base, per_tensor, per_byte = (parameters * units).tolist()
            return np.asarray(np.log(self._seconds(base, per_tensor, per_byte, k, s) / t), np.float64)

        def jacobian(parameters: Array) -> Array:
            base, per_tensor, per_byte = (parameters * units).tolist()
            slopes = self._slopes(per_tensor, per_byte, k, s) * units
            return np.asarray(slopes / self._seconds(base, per_tensor, per_byte, k, s)[:, None], np.float64)

        starts = [np.array([0.5, 0.1, 0.5]), np.array([0.1, 0.5, 0.1])]
        if near is not None:
            starts = [np.maximum(np.array([near.base_, near.per_tensor_, near.per_byte_]) / units, 1e-3)]
        found = min(
            (least_squares(residuals, start, jacobian, bounds=(0.0, np.inf), loss="soft_l1", f_scale=_TOLERANCE) for start in starts),
            key=lambda solution: float(solution.cost),
        )
        base, per_tensor, per_byte = (float(value) if value > _NOTHING else 0.0 for value in found.x)
        if not per_tensor:
            raise CalibrationError("the time does not grow with the number of tensors; measure more rounds, on a quiet machine")
        self.base_, self.per_tensor_, self.per_byte_ = (float(value) for value in np.array([base, per_tensor, per_byte]) * units)
        self.relative_residual_ = float(np.max(np.abs(self(k, s) / t - 1.0)))
        return self

    def __call__(self, tensors: ArrayLike, sizes: ArrayLike) -> Array:
        """Seconds for numbers of tensors of some sizes."""
        return self._seconds(self.base_, self.per_tensor_, self.per_byte_, np.asarray(tensors, float), np.asarray(sizes, float))

    def _seconds(self, base: float, per_tensor: float, per_byte: float, k: Array, s: Array) -> Array:
        work, wire = per_tensor + per_byte * s, self._wire(per_byte) * s
        return np.asarray(base + 2 * work + (k - 1) * np.maximum(work, wire) + wire, float)

    def _slopes(self, per_tensor: float, per_byte: float, k: Array, s: Array) -> Array:
        """Derivatives of the seconds by each of the three, shape (n, 3)."""
        step = max(per_byte, 1e-12) * 1e-6
        wire, slope = self._wire(per_byte), (self._wire(per_byte + step) - self._wire(per_byte)) / step
        by_hosts = per_tensor + per_byte * s >= wire * s
        turns = np.where(by_hosts, 2 + (k - 1), 2)
        return np.column_stack([np.ones_like(k), turns, s * (turns + np.where(by_hosts, 0, (k - 1) * slope) + slope)])


# -- the fit -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fitted:
    """Seconds a tensor and a byte: those of each direction, their mean, and draws of it."""

    work: Mapping[str, HostWork]
    draws: Array
    knows_bytes: bool
    points: tuple[ExchangePoint, ...]

    @property
    def per_tensor_s(self) -> float:
        return float(np.mean([work.per_tensor_ for work in self.work.values()]))

    @property
    def per_byte_s(self) -> float:
        return float(np.mean([work.per_byte_ for work in self.work.values()]))


def _times(measured: Measurements) -> Times:
    calls: dict[tuple[str, Setting], dict[int, list[float]]] = {}
    for one in measured.of(Exchange):
        calls.setdefault((one.direction, (one.tensors, one.size_bytes)), {}).setdefault(one.round, []).append(one.seconds)
    return {key: {turn: float(np.median(seconds)) for turn, seconds in its.items()} for key, its in calls.items()}


def _fitted(times: Times, wire: Wire, rng: np.random.Generator) -> _Fitted:
    settings = {direction: sorted(setting for which, setting in times if which == direction) for direction in _DIRECTIONS}
    rounds = sorted({turn for its in times.values() for turn in its})
    work = {direction: _work(times, direction, settings[direction], rounds, wire) for direction in _DIRECTIONS}

    def draw() -> Array:
        # rounds, which all settings and both directions have in common, and settings, which the law fits more or less well
        some = [rounds[index] for index in rng.integers(len(rounds), size=len(rounds))]
        each = []
        for direction in _DIRECTIONS:
            ours = settings[direction]
            chosen = [ours[index] for index in rng.integers(len(ours), size=len(ours))]
            each.append(_work(times, direction, chosen, some, wire, work[direction]))
        return np.array([np.mean([one.per_tensor_ for one in each]), np.mean([one.per_byte_ for one in each])])

    table = np.maximum(bootstrapped(draw, "pulls and pushes"), _SMALLEST)
    per_byte = float(np.mean([one.per_byte_ for one in work.values()]))
    knows_bytes = float(np.quantile(table[:, 1], 0.05)) > _SMALLEST and per_byte > wire(per_byte)
    points = tuple(
        ExchangePoint(
            direction=direction, tensors=tensors, size_bytes=size, median_s=digits(_median(times, direction, (tensors, size), rounds)),
            fitted_s=digits(float(work[direction](tensors, size))),
        )
        for direction in _DIRECTIONS
        for tensors, size in settings[direction]
    )  # fmt: skip
    return _Fitted(work, table, knows_bytes, points)


def _work(times: Times, direction: str, settings: list[Setting], rounds: list[int], wire: Wire, near: HostWork | None = None) -> HostWork:
    counts, sizes = zip(*settings, strict=True) if settings else ((), ())
    return HostWork(wire).fit(counts, sizes, [_median(times, direction, setting, rounds) for setting in settings], near)


def _median(times: Times, direction: str, setting: Setting, rounds: list[int]) -> float:
    its = times[direction, setting]
    here = [its[turn] for turn in rounds if turn in its]
    if not here:
        raise CalibrationError("a pull or push was measured in none of the rounds")
    return float(np.median(here))


# -- the cluster ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Link:
    """The link between nodes of the cluster that a server is put into, as it was before one was.

    Attributes
    ----------
    latency_s, byte_s
        Of a message, and of each of its bytes.
    draws
        Joint draws of the two; none where there are none.
    holds_hosts
        ``paceline calibrate-link`` measured it, so that they hold the hosts' work.
    achieved
        Share of the bandwidth that transfers get.
    """

    latency_s: float
    byte_s: float
    draws: Array | None
    holds_hosts: bool
    achieved: float

    @classmethod
    def of(cls, base: Cluster) -> _Link:
        """That of a cluster, which an earlier fit may have put a server into."""
        its, facts = base.inter_node, base.provenance
        share = {"ethernet": "ethernet_share", "rdma": "rdma_share"}.get(its.sort)
        achieved = constants()[share].value if share else 1.0
        latency_s, byte_s = its.latency_s, 1.0 / its.bandwidth_bytes_per_s
        columns = {key: np.array(column) for key, column in _columns(base).items()}
        draws = np.column_stack([columns[_LATENCY], 1.0 / columns[_RATE]]) if {_LATENCY, _RATE} <= columns.keys() else None
        if base.fit_hosts is not None and f"{_OF_LINK}latency_s" in facts:  # what was taken out is put back
            latency_s, byte_s = float(facts[f"{_OF_LINK}latency_s"]), 1.0 / float(facts[f"{_OF_LINK}bandwidth_bytes_per_s"])
            if draws is not None:
                for column, (cost, least, whole) in enumerate(((_TENSOR, _SHORTEST_S, latency_s), (_BYTE, _LEAST_SHARE * byte_s, byte_s))):
                    known = draws[:, column] + 2 * columns.get(cost, 0.0)
                    draws[:, column] = np.where(draws[:, column] > 1.2 * least, known, whole)
        return cls(latency_s, byte_s, draws, base.fit is not None and its.sort == "given", achieved)

    def wire(self, per_byte_s: float) -> float:
        """Seconds that a byte takes between the hosts, which each work on it for so long."""
        if not self.holds_hosts:
            return self.byte_s / self.achieved
        return max(self.byte_s - 2 * per_byte_s, _LEAST_SHARE * self.byte_s)

    def without_hosts(self, costs: Array) -> Array:
        """Draws of latency and bandwidth without the hosts' work on a message, one for each draw of what that costs a tensor and a byte."""
        own = np.array([[self.latency_s, self.byte_s]]) if self.draws is None else self.draws
        own = own[np.arange(len(costs)) % len(own)]
        if not self.holds_hosts:
            return np.column_stack([own[:, 0], 1.0 / own[:, 1]])
        latency = np.maximum(own[:, 0] - 2 * costs[:, 0], np.minimum(_SHORTEST_S, own[:, 0]))
        return np.column_stack([latency, 1.0 / np.maximum(own[:, 1] - 2 * costs[:, 1], _LEAST_SHARE * own[:, 1])])


def _columns(base: Cluster) -> dict[str, tuple[float, ...]]:
    """Draws of a cluster by parameter."""
    return (
        {} if base.uncertainty is None else dict(zip(base.uncertainty.parameters, zip(*base.uncertainty.draws, strict=True), strict=True))
    )


def _with_server(base: Cluster, name: str, link: _Link, fitted: _Fitted, facts: dict[str, str]) -> Cluster:
    per_tensor_s, per_byte_s = fitted.per_tensor_s, fitted.per_byte_s if fitted.knows_bytes else 0.0
    costs = fitted.draws * [1.0, 1.0 if fitted.knows_bytes else 0.0]
    known = [_TENSOR, _BYTE] if fitted.knows_bytes else [_TENSOR]
    intervals = intervals_90(known, costs[:, : len(known)], [per_tensor_s, per_byte_s][: len(known)])
    columns = {key: np.resize(np.array(its), len(costs)) for key, its in _columns(base).items() if key not in (_TENSOR, _BYTE)}
    changes: dict[str, object] = {}
    between_nodes = base.inter_node
    if link.holds_hosts:
        center = _Link(link.latency_s, link.byte_s, None, True, 1.0).without_hosts(np.array([[per_tensor_s, per_byte_s]]))[0]
        links = link.without_hosts(costs)
        between_nodes = base.inter_node.model_copy(update={"latency_s": digits(center[0]), "bandwidth_bytes_per_s": digits(center[1])})
        if link.draws is not None:
            columns |= {_LATENCY: links[:, 0], _RATE: links[:, 1]}
        between = intervals_90((_LATENCY, _RATE), links, [float(value) for value in center])
        if base.fit is not None:
            changes["fit"] = base.fit.model_copy(update={"intervals_90": {**base.fit.intervals_90, **between}})
        if base.calibrated is not None and base.calibrated.bandwidth_bytes_per_s is not None:
            changes["calibrated"] = base.calibrated.model_copy(update={"bandwidth_bytes_per_s": between[_RATE]})
    columns |= {_TENSOR: costs[:, 0], **({_BYTE: costs[:, 1]} if fitted.knows_bytes else {})}
    transport = {"software": "grpc", "cpu_per_message_s": digits(per_tensor_s), "copy_per_byte_s": digits(per_byte_s)}
    a_byte = f" and {per_byte_s * 1e9:.3g} ns a byte" if fitted.knows_bytes else ""
    changes |= {
        "name": name,
        "description": f"{format_rate(between_nodes.bandwidth_bytes_per_s)} and {format_seconds(between_nodes.latency_s)} between nodes; "
        f"TensorFlow's gRPC costs each host {format_seconds(per_tensor_s)} a tensor{a_byte}",
        "inter_node": between_nodes,
        "transport": base.transport.model_copy(update=transport),
        "uncertainty": drawn(tuple(columns), np.column_stack(list(columns.values()))[:DRAWS_KEPT]),
        "fit_hosts": CalibrationFitHosts(
            **{direction: _cost(work, fitted.knows_bytes) for direction, work in fitted.work.items()},
            points=fitted.points,
            relative_residual=digits(max(work.relative_residual_ for work in fitted.work.values())),
            intervals_90=intervals,
        ),
        "provenance": facts,
    }
    return Cluster.model_validate(base.model_copy(update=changes).model_dump(exclude_unset=True))


def _cost(work: HostWork, knows_bytes: bool) -> HostCost:
    per_byte_s = digits(work.per_byte_) if knows_bytes else None
    return HostCost(per_tensor_s=digits(work.per_tensor_), per_byte_s=per_byte_s, base_s=digits(work.base_))


def _facts(base: Cluster, measured: Measurements, command: str, link: _Link, fitted: _Fitted) -> dict[str, str]:
    """Where the server's figures are from, and then, with a prefix, where those of its link are."""
    facts = provenance([measured], command)
    facts["hosts"] = (
        "both hosts count as equally fast; cpu_per_message_s and copy_per_byte_s are the means of pulls and pushes, and a push holds "
        "what the server takes to subtract the gradient"
    )
    if not fitted.knows_bytes:
        facts["bytes"] = "the link is slower than the hosts, so that copy_per_byte_s is not known: it is taken from practice"
    if left_out := [str(extra["left_out"]) for note in measured.of(Note) if (extra := note.model_extra or {}).get("left_out")]:
        facts["left_out"] = "; ".join(left_out)
    off = float(np.median([abs(point.fitted_s / point.median_s - 1.0) for point in fitted.points]))
    if off > _POOR:
        whose = f" (is the link between these two hosts that of {base.name!r}?)" if measured.header.arguments.get("peer") else ""
        facts["weak"] = f"half of the pulls and pushes are off the fit by more than {format_share(off)}{whose}"
    if base.fit_hosts is not None:  # a server was put into it before
        facts |= {key: value for key, value in base.provenance.items() if key.startswith(_OF_LINK)}
    else:
        facts |= {f"{_OF_LINK}{key}": value for key, value in {"name": base.name, **base.provenance}.items()}
    if link.holds_hosts:
        facts |= {f"{_OF_LINK}latency_s": f"{link.latency_s:.7g}", f"{_OF_LINK}bandwidth_bytes_per_s": f"{1.0 / link.byte_s:.7g}"}
        taken = "2 x cpu_per_message_s from its latency" + (", 2 x copy_per_byte_s from its time a byte" if fitted.knows_bytes else "")
        facts["link"] = (
            f"paceline calibrate-link measured {format_seconds(link.latency_s)} and {format_rate(1.0 / link.byte_s)}, "
            f"which hold what the two hosts do with a message: {taken} taken out here"
        )
    return facts
