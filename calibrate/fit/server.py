"""Fits what a tensor and a byte cost the hosts of a worker and a parameter server, from measured pulls and pushes.

The result is the given cluster with ``transport.cpu_per_message_s`` and ``transport.copy_per_byte_s``. :class:`HostWork` has in closed
form how the simulator runs such messages: where the simulator changes, it must follow (tests/calibrate/test_server.py predicts
real pulls and pushes by a fit). Latency and bandwidth are fitted in :mod:`calibrate.fit.link`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
Times = Mapping[Setting, Mapping[int, float]]
"""Median seconds in one direction, by setting and round."""

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
"""Seconds of a draw at least: zero would mean that the measured default is to be taken."""
_OF_LINK = "link_"
"""Begins what the provenance says of the cluster that the server was put into."""


def fit_server(measurements: Path, name: str, base: Cluster, command: str = "") -> Cluster:
    """Fit what pulls and pushes cost the two hosts to measurements, and put it into a cluster, whose link and machines it has.

    Returns
    -------
    Cluster
        ``base`` with ``transport.cpu_per_message_s`` and, where the link is not slower than the hosts, ``transport.copy_per_byte_s``: the
        means of pulls and pushes; their joint draws with those of the link, 90% intervals in ``fit_hosts``. The hosts' work included in a
        link of ``paceline calibrate-link`` is subtracted from its latency and its time per byte.

    Raises
    ------
    CalibrationError
        The file is damaged, or holds too little to be fitted.
    """
    measured = read_measurements(measurements, "servers")
    link = _Link.of(base)
    # between two processes of one machine there is no wire
    wire = link.wire if measured.header.arguments.get("peer") else lambda _: 0.0
    try:
        fitted = _fitted(measured, wire, np.random.default_rng(0))
    except CalibrationError as error:
        raise CalibrationError(f"{measurements}: {error}") from None
    return _with_server(base, name, link, fitted, _facts(base, measured, command, link, fitted))


_TOLERANCE = 0.05
"""Of a time around the fit: beyond it residuals count linearly."""
_NOTHING = 1e-6
"""Of the shortest or the largest time: a bound is approached, never reached."""


@dataclass(frozen=True)
class HostWork:
    """Seconds of ``k`` tensors of ``s`` bytes each that go from one host to another one.

    Each host works on one tensor after the other, ``per_tensor + per_byte * s`` = w on each. The
    receiver is at a tensor while the sender is at the next, and what is between them carries the one
    in between (b seconds a byte), as the simulator runs it:

        base + 2 w + (k - 1) max(w, b s) + b s

    Without a wire, this is base + (k + 1) w.

    Attributes
    ----------
    wire
        Seconds that a byte takes between the hosts, given those that each of them works on it.
    base
        Seconds of a call besides.
    per_tensor, per_byte
        Seconds of each host on a tensor, and on each of its bytes.
    """

    wire: Wire
    base: float
    per_tensor: float
    per_byte: float

    def __call__(self, tensors: ArrayLike, sizes: ArrayLike) -> Array:
        """Seconds for numbers of tensors of some sizes."""
        k, s = np.asarray(tensors, float), np.asarray(sizes, float)
        work, wire = self.per_tensor + self.per_byte * s, self.wire(self.per_byte) * s
        return np.asarray(self.base + 2 * work + (k - 1) * np.maximum(work, wire) + wire, float)

    def slopes(self, k: Array, s: Array) -> Array:
        """Derivatives of the seconds by base, tensor and byte, shape (n, 3)."""
        step = max(self.per_byte, 1e-12) * 1e-6
        wire, slope = self.wire(self.per_byte), (self.wire(self.per_byte + step) - self.wire(self.per_byte)) / step
        by_hosts = self.per_tensor + self.per_byte * s >= wire * s
        turns = np.where(by_hosts, 2 + (k - 1), 2)
        return np.column_stack([np.ones_like(k), turns, s * (turns + np.where(by_hosts, 0, (k - 1) * slope) + slope)])


def _host_work(seconds: Sequence[tuple[Setting, float]], wire: Wire, near: HostWork | None = None) -> HostWork:
    """Fit the work of hosts to the seconds of settings.

    Residuals are log(fit / measured), so that few small tensors count as much as many large ones, with a soft-L1 loss, as those of
    :func:`~calibrate.fit.estimators.line_of_medians`. ``near`` was fitted to nearly the same, and is where the search begins.

    Raises
    ------
    CalibrationError
        There are fewer than two numbers of tensors or sizes, or the time does not grow with the number of tensors.
    """
    k, s, t = np.array([(tensors, size, time_s) for (tensors, size), time_s in seconds], float).reshape(-1, 3).T
    if not (np.all(np.isfinite(t)) and np.all(t > 0)):
        raise CalibrationError("a fit needs finite times above zero")
    if len(np.unique(k)) < 2 or len(np.unique(s)) < 2:
        raise CalibrationError("at least two numbers of tensors and two sizes need a usable time: measure more of them, or more rounds")
    # all unknowns of order one: in shares of the shortest time, and of the longest a tensor and a byte
    units = np.array([np.min(t), np.max(t[k == np.max(k)]) / np.max(k), np.max(t / (k * s + s))])

    def at(parameters: Array) -> HostWork:
        return HostWork(wire, *(parameters * units).tolist())

    def residuals(parameters: Array) -> Array:
        return np.asarray(np.log(at(parameters)(k, s) / t), np.float64)

    def jacobian(parameters: Array) -> Array:
        return np.asarray(at(parameters).slopes(k, s) * units / at(parameters)(k, s)[:, None], np.float64)

    starts = [np.array([0.5, 0.1, 0.5]), np.array([0.1, 0.5, 0.1])]
    if near is not None:
        starts = [np.maximum(np.array([near.base, near.per_tensor, near.per_byte]) / units, 1e-3)]
    best = min(
        (least_squares(residuals, start, jacobian, bounds=(0.0, np.inf), loss="soft_l1", f_scale=_TOLERANCE) for start in starts),
        key=lambda solution: float(solution.cost),
    )
    # a bound is approached, never reached
    parameters = np.where(best.x > _NOTHING, best.x, 0.0)
    if not parameters[1]:
        raise CalibrationError("the time does not grow with the number of tensors: measure more rounds on an idle machine")
    return at(parameters)


# -- the fit -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fitted:
    """The work of hosts in each direction, draws of its mean a tensor and a byte, and the largest relative residual."""

    work: Mapping[str, HostWork]
    draws: Array
    knows_bytes: bool
    points: tuple[ExchangePoint, ...]
    relative_residual: float


def _mean(works: Iterable[HostWork]) -> Array:
    """Mean seconds a tensor and a byte."""
    return np.asarray(np.mean([(work.per_tensor, work.per_byte) for work in works], axis=0))


def _fitted(measured: Measurements, wire: Wire, rng: np.random.Generator) -> _Fitted:
    calls: dict[tuple[str, Setting, int], list[float]] = defaultdict(list)
    for record in measured.of(Exchange):
        calls[record.direction, (record.tensors, record.size_bytes), record.round].append(record.seconds)
    times: dict[str, dict[Setting, dict[int, float]]] = {direction: {} for direction in _DIRECTIONS}
    for (direction, setting, turn), seconds in sorted(calls.items()):
        times[direction].setdefault(setting, {})[turn] = float(np.median(seconds))
    rounds = sorted({turn for *_, turn in calls})
    medians = {direction: _medians(times[direction], list(times[direction]), rounds) for direction in _DIRECTIONS}
    works = {direction: _host_work(medians[direction], wire) for direction in _DIRECTIONS}

    def drawn_of(values: Sequence[Any]) -> list[Any]:
        return [values[index] for index in rng.integers(len(values), size=len(values))]

    def draw() -> Array:
        # rounds, which all settings and both directions have in common, and settings, which the cost model fits more or less well
        some = drawn_of(rounds)
        return _mean(
            _host_work(_medians(by_round, drawn_of(list(by_round)), some), wire, works[direction]) for direction, by_round in times.items()
        )

    draws = np.maximum(bootstrapped(draw, "pulls and pushes"), _SMALLEST)
    per_byte = float(_mean(works.values())[1])
    points, residual = [], 0.0
    for direction, settings in medians.items():
        for (tensors, size), time_s in settings:
            fitted_s = float(works[direction](tensors, size))
            residual = max(residual, abs(fitted_s / time_s - 1.0))
            point = {"direction": direction, "tensors": tensors, "size_bytes": size}
            points.append(ExchangePoint(**point, median_s=digits(time_s), fitted_s=digits(fitted_s)))
    knows_bytes = float(np.quantile(draws[:, 1], 0.05)) > _SMALLEST and per_byte > wire(per_byte)
    return _Fitted(works, draws, knows_bytes, tuple(points), residual)


def _medians(times: Times, settings: Sequence[Setting], rounds: Sequence[int]) -> list[tuple[Setting, float]]:
    medians = []
    for setting in settings:
        here = [times[setting][turn] for turn in rounds if turn in times[setting]]
        if not here:
            raise CalibrationError("no round measured a pull or push")
        medians.append((setting, float(np.median(here))))
    return medians


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
        between, facts = base.inter_node, base.provenance
        share = {"ethernet": "ethernet_share", "rdma": "rdma_share"}.get(between.sort)
        achieved = constants()[share].value if share else 1.0
        latency_s, byte_s = between.latency_s, 1.0 / between.bandwidth_bytes_per_s
        columns = {key: np.array(column) for key, column in _columns(base).items()}
        draws = np.column_stack([columns[_LATENCY], 1.0 / columns[_RATE]]) if {_LATENCY, _RATE} <= columns.keys() else None
        if base.fit_hosts is not None and f"{_OF_LINK}latency_s" in facts:  # what was taken out is put back
            latency_s, byte_s = float(facts[f"{_OF_LINK}latency_s"]), 1.0 / float(facts[f"{_OF_LINK}bandwidth_bytes_per_s"])
            if draws is not None:
                for column, (cost, least, whole) in enumerate(((_TENSOR, _SHORTEST_S, latency_s), (_BYTE, _LEAST_SHARE * byte_s, byte_s))):
                    known = draws[:, column] + 2 * columns.get(cost, 0.0)
                    draws[:, column] = np.where(draws[:, column] > 1.2 * least, known, whole)
        return cls(latency_s, byte_s, draws, base.fit is not None and between.sort == "given", achieved)

    def wire(self, per_byte_s: float) -> float:
        """Seconds that a byte takes between the hosts, which each work on it for so long."""
        if not self.holds_hosts:
            return self.byte_s / self.achieved
        return max(self.byte_s - 2 * per_byte_s, _LEAST_SHARE * self.byte_s)

    def without_hosts(self, costs: Array, draws: Array | None = None) -> Array:
        """Latency and bandwidth without the hosts' work on a message, a row for each draw of its cost a tensor and a byte."""
        own = np.array([[self.latency_s, self.byte_s]]) if draws is None else draws
        own = own[np.arange(len(costs)) % len(own)]
        latency = np.maximum(own[:, 0] - 2 * costs[:, 0], np.minimum(_SHORTEST_S, own[:, 0]))
        return np.column_stack([latency, 1.0 / np.maximum(own[:, 1] - 2 * costs[:, 1], _LEAST_SHARE * own[:, 1])])


def _columns(base: Cluster) -> dict[str, tuple[float, ...]]:
    """Draws of a cluster by parameter."""
    return (
        {} if base.uncertainty is None else dict(zip(base.uncertainty.parameters, zip(*base.uncertainty.draws, strict=True), strict=True))
    )


def _with_server(base: Cluster, name: str, link: _Link, fitted: _Fitted, facts: dict[str, str]) -> Cluster:
    center, costs, known = _mean(fitted.work.values()), fitted.draws, [_TENSOR, _BYTE]
    if not fitted.knows_bytes:
        center, costs, known = center * [1.0, 0.0], costs * [1.0, 0.0], [_TENSOR]
    per_tensor_s, per_byte_s = (float(value) for value in center)
    intervals = intervals_90(known, costs[:, : len(known)], center[: len(known)].tolist())
    columns = {key: np.resize(np.array(column), len(costs)) for key, column in _columns(base).items() if key not in (_TENSOR, _BYTE)}
    changes: dict[str, object] = {}
    between_nodes = base.inter_node
    if link.holds_hosts:
        (whole,), links = link.without_hosts(center[None]), link.without_hosts(costs, link.draws)
        between_nodes = base.inter_node.model_copy(update={"latency_s": digits(whole[0]), "bandwidth_bytes_per_s": digits(whole[1])})
        if link.draws is not None:
            columns |= {_LATENCY: links[:, 0], _RATE: links[:, 1]}
        between = intervals_90((_LATENCY, _RATE), links, whole.tolist())
        if base.fit is not None:
            changes["fit"] = base.fit.model_copy(update={"intervals_90": {**base.fit.intervals_90, **between}})
        if base.calibrated is not None and base.calibrated.bandwidth_bytes_per_s is not None:
            changes["calibrated"] = base.calibrated.model_copy(update={"bandwidth_bytes_per_s": between[_RATE]})
    columns |= {key: costs[:, place] for place, key in enumerate(known)}
    transport = {"software": "grpc", "cpu_per_message_s": digits(per_tensor_s), "copy_per_byte_s": digits(per_byte_s)}
    a_byte = f" and {per_byte_s * 1e9:.3g} ns per byte" if fitted.knows_bytes else ""
    changes |= {
        "name": name,
        "description": f"{format_rate(between_nodes.bandwidth_bytes_per_s)} and {format_seconds(between_nodes.latency_s)} between nodes; "
        f"TensorFlow's gRPC costs each host {format_seconds(per_tensor_s)} per tensor{a_byte}",
        "inter_node": between_nodes,
        "transport": base.transport.model_copy(update=transport),
        "uncertainty": drawn(tuple(columns), np.column_stack(list(columns.values()))[:DRAWS_KEPT]),
        "fit_hosts": CalibrationFitHosts(
            **{
                direction: HostCost(
                    per_tensor_s=digits(work.per_tensor),
                    per_byte_s=digits(work.per_byte) if fitted.knows_bytes else None,
                    base_s=digits(work.base),
                )
                for direction, work in fitted.work.items()
            },
            points=fitted.points,
            relative_residual=digits(fitted.relative_residual),
            intervals_90=intervals,
        ),
        "provenance": facts,
    }
    return Cluster.model_validate(base.model_copy(update=changes).model_dump(exclude_unset=True))


def _facts(base: Cluster, measured: Measurements, command: str, link: _Link, fitted: _Fitted) -> dict[str, str]:
    """Where the server's figures are from, and then, with a prefix, where those of its link are."""
    facts = provenance([measured], command)
    facts["hosts"] = (
        "both hosts count as equally fast; cpu_per_message_s and copy_per_byte_s are means of pulls and pushes, and a push includes the "
        "server's time to subtract the gradient"
    )
    if not fitted.knows_bytes:
        facts["bytes"] = "the link is slower than the hosts, so copy_per_byte_s is unknown: the measured default is used"
    if left_out := [str(extra["left_out"]) for note in measured.of(Note) if (extra := note.model_extra or {}).get("left_out")]:
        facts["left_out"] = "; ".join(left_out)
    error = float(np.median([abs(point.fitted_s / point.median_s - 1.0) for point in fitted.points]))
    if error > _POOR:
        whose = f" (is the link between these two hosts the one of {base.name!r}?)" if measured.header.arguments.get("peer") else ""
        facts["weak"] = f"half of the pulls and pushes differ from the fit by more than {format_share(error)}{whose}"
    if base.fit_hosts is not None:  # a server was put into it before
        facts |= {key: value for key, value in base.provenance.items() if key.startswith(_OF_LINK)}
    else:
        facts |= {f"{_OF_LINK}{key}": value for key, value in {"name": base.name, **base.provenance}.items()}
    if link.holds_hosts:
        facts |= {f"{_OF_LINK}latency_s": f"{link.latency_s:.7g}", f"{_OF_LINK}bandwidth_bytes_per_s": f"{1.0 / link.byte_s:.7g}"}
        taken = "2 x cpu_per_message_s from its latency" + (", 2 x copy_per_byte_s from its time per byte" if fitted.knows_bytes else "")
        facts["link"] = (
            f"paceline calibrate-link measured {format_seconds(link.latency_s)} and {format_rate(1.0 / link.byte_s)}, which include the "
            f"work of both hosts on a message: {taken} subtracted here"
        )
    return facts
