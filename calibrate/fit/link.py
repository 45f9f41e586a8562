"""Fits the links of a cluster to a measurement file of transfers, with intervals and provenance.

The names of paths (``grpc``, ``gloo``, ``host-to-device``, ``device-to-host``, ``all-reduce-N``) are those that
``calibrate/probes/transfers.py`` and ``gloo_links.py`` write. What messages cost hosts is fitted in :mod:`calibrate.fit.server`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrate.fit.estimators import AffineCost, ChainSlope
from calibrate.fit.intervals import DRAWS, bootstrapped, digits, drawn, intervals_90, quantiles
from calibrate.fit.writing import provenance, provenance_of_table
from calibrate.link_tables import read_link_table
from calibrate.measurements import Measurements, read_measurements
from calibrate.records import Transfer
from simulator.base.errors import CalibrationError, InputError
from simulator.base.text import format_rate, format_seconds, format_share
from simulator.spec.cluster import CalibrationFitLink, Cluster, ClusterRange, Link, LinkPoint
from simulator.spec.transport import Transport

Array = NDArray[np.float64]

_PARAMETERS = ("inter_node.latency_s", "inter_node.bandwidth_bytes_per_s")
_TOLERANCE = 0.05
"""Of the times of a size around the line: beyond it they count linearly."""
_NETWORKS = {"grpc": "TensorFlow's gRPC", "gloo": "PyTorch's gloo"}
"""What carries bytes between processes."""
_LEAST_SHARE = 0.05
"""Of a byte's time that is the wire's, however long hosts work on it: they do so while others cross."""
_ALL_REDUCE = "all-reduce-"
_DEVICE_PATHS = ("host-to-device", "device-to-host")


def fit_link(measurements: Path, name: str, command: str = "", seed: int = 0) -> Cluster:
    """Fit latency and bandwidth of a link to measured transfers.

    Parameters
    ----------
    measurements
        File written by :func:`calibrate.profile_link`.
    name
        Of the cluster.
    command
        Command line that made it, for the provenance.
    seed
        Of the bootstrap.

    Returns
    -------
    Cluster
        ``inter_node`` from the transfers between processes; ``intra_node`` from copies between host and
        device, where there were any; 90% intervals and joint bootstrap draws.

    Raises
    ------
    CalibrationError
        The file is damaged, or holds too little to be fitted.
    """
    measured = read_measurements(measurements)
    measured.check_probe("links", "a file of `paceline calibrate-link`")
    rng = np.random.default_rng(seed)
    network = "gloo" if measured.header.arguments.get("carrier") == "gloo" else "grpc"
    chain = _chain(measured, network)
    try:
        center, residual = _link_of(chain)
    except CalibrationError as error:
        raise CalibrationError(f"{measurements}: transfers between processes: {error}") from None
    draws = bootstrapped(lambda: _link_of(chain.resampled(rng))[0], "the transfers")
    work = _work_of_hosts(measured, network)
    whole, center, draws = center, _on_the_wire(center, work), np.apply_along_axis(_on_the_wire, 1, draws, work)
    notes = provenance([measured], command)
    inside, remark = _inside(measured)
    notes.update(remark)
    on_device = _on_device(measured)
    description = f"{_NETWORKS[network]}: {_in_words(whole)}"
    cluster = _cluster(name, description, center, draws, residual, chain, notes)
    transport = None
    if any(work):
        transport = Transport(software="given", cpu_per_message_s=digits(work[0] / 2), copy_per_byte_s=digits(work[1] / 2))
    found = {"intra_node": inside, "intra_device": on_device, "transport": transport}
    return cluster.model_copy(update={name: link for name, link in found.items() if link is not None})


def fit_link_table(path: Path, name: str, command: str = "", seed: int = 0, ranks: int | None = None) -> Cluster:
    """Fit latency and bandwidth of a link to what another tool printed of it.

    Parameters
    ----------
    path, ranks
        As for :func:`calibrate.link_tables.read_link_table`.
    name, command, seed
        As for :func:`fit_link`.

    Returns
    -------
    Cluster
        ``inter_node``, as :func:`fit_link` gives it. The interval is from how far what was measured lies from the line; of a stream,
        from how its intervals differ.

    Raises
    ------
    InputError
        The file cannot be read, is of no tool that is known, or holds too little to be fitted.
    """
    table, rng = read_link_table(path, ranks), np.random.default_rng(seed)
    notes = provenance_of_table(path, table, command)
    if table.messages:
        chain = ChainSlope().fit_single(*zip(*table.messages, strict=True))
        try:
            center, residual = _link_of(chain)
        except CalibrationError as error:
            raise InputError(f"{path}: {table.tool}: {error}") from None
        line = AffineCost(_TOLERANCE).fit(*chain.points())
        draws = bootstrapped(lambda: _link_of(chain.around(line, rng))[0], f"{path}: the times of {table.tool}")
    else:
        rates, chain = np.array(table.rates_bytes_per_s), ChainSlope()
        center, residual = np.array([table.latency_s or 0.0, rates.mean()]), float(np.max(np.abs(rates / rates.mean() - 1.0)))
        draws = np.array([[center[0], rng.choice(rates, len(rates)).mean()] for _ in range(DRAWS)])
    return _cluster(name, f"{table.tool}: {_in_words(center)}", center, draws, residual, chain, notes, ranks=table.ranks)


def _in_words(link: Array) -> str:
    return f"{format_rate(link[1])}, {format_seconds(link[0])} per message"


def _cluster(
    name: str, description: str, center: Array, draws: Array, residual: float, chain: ChainSlope, notes: dict[str, str], ranks: int = 2
) -> Cluster:
    """A cluster whose nodes are joined by a link with this latency and bandwidth, and these draws of both, shape (draws, 2)."""
    bandwidths = np.append(np.quantile(draws[:, 1], [0.05, 0.95]), center[1])
    sizes, *_ = chain.points()
    return Cluster(
        name=name,
        description=description,
        basis="measured",
        inter_node=Link(latency_s=digits(center[0]), bandwidth_bytes_per_s=digits(center[1])),
        calibrated=ClusterRange(
            message_bytes=(float(sizes[0]), float(sizes[-1])) if len(sizes) else None,
            nodes=(1, ranks),
            bandwidth_bytes_per_s=(digits(np.min(bandwidths)), digits(np.max(bandwidths))),
        ),
        uncertainty=drawn(_PARAMETERS, draws),
        fit=CalibrationFitLink(
            points=tuple(_point(size, chain.costs_[size]) for size in sizes),
            relative_residual=digits(residual),
            intervals_90=intervals_90(_PARAMETERS, draws),
        ),
        provenance=notes,
    )


def _chain(measured: Measurements, path: str) -> ChainSlope:
    records = [record for record in measured.of(Transfer) if record.path == path]
    return ChainSlope().fit(
        [one.size_bytes for one in records], [one.hops for one in records], [one.round for one in records], [one.seconds for one in records]
    )


def _link_of(chain: ChainSlope) -> tuple[Array, float]:
    """Latency in seconds and bandwidth in bytes per second, and the largest relative residual."""
    sizes, seconds, errors = chain.points()
    if len(sizes) < 2:
        raise CalibrationError(f"{len(sizes)} message size(s) gave a usable time; a fit needs at least 2: measure more sizes or rounds")
    cost = AffineCost(_TOLERANCE).fit(sizes, seconds, errors)
    if cost.slope_ <= 0:
        raise CalibrationError("the time does not grow with the size of the message; measure larger messages, on a quiet machine")
    return np.array([cost.base_, 1.0 / cost.slope_]), cost.relative_residual_


def _work_of_hosts(measured: Measurements, path: str) -> tuple[float, float]:
    """Processor seconds of a process for each message that it sends while it receives another, and for each of its bytes.

    Of transfers that do not tell it, none. A half of it is each end's: so long a message is worked on before it stands for the link,
    and after it has come.
    """
    records = [record for record in measured.of(Transfer) if record.path == path]
    used_s = [one.cpu_s for one in records if one.cpu_s is not None]
    if not used_s or len(used_s) < len(records):
        return 0.0, 0.0
    chain = ChainSlope().fit([one.size_bytes for one in records], [one.hops for one in records], [one.round for one in records], used_s)
    sizes, seconds, errors = chain.points()
    if len(sizes) < 2:
        return 0.0, 0.0
    cost = AffineCost(_TOLERANCE).fit(sizes, seconds, errors)
    return max(cost.base_, 0.0), max(cost.slope_, 0.0)


def _on_the_wire(link: Array, work: tuple[float, float]) -> Array:
    """Latency and bandwidth of a link without what its hosts do meanwhile, of which not all can be its time."""
    latency_s, bytes_per_s = link
    each_byte_s = 1.0 / bytes_per_s
    return np.array([max(latency_s - work[0], 0.0), 1.0 / max(each_byte_s - work[1], _LEAST_SHARE * each_byte_s)])


def _inside(measured: Measurements) -> tuple[Link | None, dict[str, str]]:
    """The link inside a node, from the slower direction of the copies between host and device."""
    links: list[Link] = []
    notes: dict[str, str] = {}
    for path in sorted({record.path for record in measured.of(Transfer)} - {*_NETWORKS}):
        try:
            (latency, bandwidth), residual = _link_of(_chain(measured, path))
        except CalibrationError as error:
            notes[path] = str(error)
            continue
        notes[path] = f"{format_rate(bandwidth)}, {format_seconds(latency)} a message, largest relative residual {format_share(residual)}"
        if path in _DEVICE_PATHS:
            links.append(Link(latency_s=digits(latency), bandwidth_bytes_per_s=digits(bandwidth)))
    return (min(links, key=lambda link: float(link.bandwidth_bytes_per_s)) if links else None), notes


def _on_device(measured: Measurements) -> Link | None:
    """The memory that logical devices of one processor share, from all-reduces between them; none where they were not measured.

    In a ring of n each sends 2 (n - 1) times an n-th of the buffer, so that all together
    move 2 (n - 1) times its bytes, in as many turns.
    """
    logical = int(measured.header.arguments.get("logical_devices") or 0)
    if logical < 2 or measured.fingerprint.device_kind != "CPU":
        return None
    (seconds, bytes_per_s), _ = _link_of(_chain(measured, f"{_ALL_REDUCE}{logical}"))
    turns = 2 * (logical - 1)
    return Link(latency_s=digits(seconds / turns), bandwidth_bytes_per_s=digits(bytes_per_s * turns))


def _point(size: float, costs: Array) -> LinkPoint:
    p5, median, p95 = quantiles(costs[costs > 0])
    return LinkPoint(size_bytes=float(size), p5_s=p5, median_s=median, p95_s=p95)
