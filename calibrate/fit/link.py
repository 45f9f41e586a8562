"""Fits the links of a cluster to a measurement file of transfers, with intervals and provenance.

The names of paths (``grpc``, ``gloo``, ``host-to-device``, ``device-to-host``, ``all-reduce-N``) are those that
``calibrate/probes/transfers.py`` and ``links.py`` write. Host costs of messages are fitted in :mod:`calibrate.fit.server`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrate.fit.estimators import DRAWS, Line, MessageCosts, bootstrapped, drawn, intervals_90, line_of_medians, quantiles
from calibrate.fit.writing import made, provenance
from calibrate.measurements import Measurements, Transfer, read_measurements
from simulator.base.errors import CalibrationError, InputError
from simulator.base.files import bytes_of
from simulator.base.text import counted, digits, format_rate, format_seconds, format_share
from simulator.spec.cluster import CalibrationFitLink, Cluster, ClusterRange, Link, LinkPoint
from simulator.spec.transport import Transport

Array = NDArray[np.float64]

Part = Literal["inter_node", "intra_node"]
"""Links of a cluster that tables describe."""

_FIGURES = ("latency_s", "bandwidth_bytes_per_s")
_UNSEEN = Link(latency_s=50e-6, bandwidth_bytes_per_s=1.25e9, sort="ethernet")
"""Between nodes, where only the inside of one was seen: Ethernet of 10 Gbit/s, as in models/clusters/ethernet-10g.toml."""
_TOLERANCE = 0.05
"""Of the times of a size around the line: beyond it they count linearly."""
_NETWORKS = {"grpc": "TensorFlow's gRPC", "gloo": "PyTorch's gloo"}
"""Software that carries bytes between processes."""
_LEAST_SHARE = 0.05
"""Of a byte's time that is the wire's, however long hosts work on it: they do so while others cross."""
_ALL_REDUCE = "all-reduce-"
_DEVICE_PATHS = ("host-to-device", "device-to-host")


def fit_link(measurements: Path, name: str, command: str = "") -> Cluster:
    """Fit latency and bandwidth of a link to transfers that :func:`calibrate.profiling.profile_link` measured.

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
    measured = read_measurements(measurements, "links")
    rng = np.random.default_rng(0)
    network = "gloo" if measured.header.arguments.get("carrier") == "gloo" else "grpc"
    costs = _costs(measured, network)
    try:
        line, residual = _line_of(costs)
    except CalibrationError as error:
        raise CalibrationError(f"{measurements}: transfers between processes: {error}") from None
    work = _work_of_hosts(measured, network)
    draws = bootstrapped(lambda: _on_the_wire(_line_of(costs.resampled(rng))[0], work), "the transfers")
    inside, remarks = _inside(measured)
    description = f"{_NETWORKS[network]}: {_in_words(line.base, 1.0 / line.slope)}"
    notes = provenance([measured], command) | remarks
    cluster = _cluster(name, description, _on_the_wire(line, work), draws, residual, costs, notes)
    parts: dict[str, Link | Transport | None] = {"intra_node": inside, "intra_device": _on_device(measured)}
    if any(work):
        parts["transport"] = Transport(software="given", cpu_per_message_s=digits(work.base / 2), copy_per_byte_s=digits(work.slope / 2))
    return cluster.model_copy(update={key: part for key, part in parts.items() if part is not None})


def fit_link_table(path: Path, name: str, command: str = "", ranks: int | None = None) -> Cluster:
    """Fit latency and bandwidth of a link to what another tool printed of it (:func:`read_link_table`).

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
    table = read_link_table(path, ranks)
    notes = {**made(command), "measurements": str(path), "measurements_sha256": table.sha256, "tool": table.tool}
    return fit_table(table, str(path), name, notes)


def fit_table(table: LinkTable, path: str, name: str, notes: dict[str, str], *, part: Part = "inter_node", spread: float = 0.0) -> Cluster:
    """Fit the link that is ``part`` of a cluster; ``path`` is the source, for messages.

    ``spread`` is the standard deviation of the logarithm of both figures that the times themselves do not show.
    """
    rng = np.random.default_rng(0)
    costs = MessageCosts.of(
        {size: np.array([time_s for own, time_s in table.messages if own == size]) for size in sorted({size for size, _ in table.messages})}
    )
    if table.messages:
        try:
            line, residual = _line_of(costs)
        except CalibrationError as error:
            raise InputError(f"{path}: {table.tool}: {error}") from None
        unweighted = line_of_medians(*costs.points(), tolerance=_TOLERANCE)
        center = _figures(line)
        draws = bootstrapped(lambda: _figures(_line_of(costs.around(unweighted, rng))[0]), f"{path}: the times of {table.tool}")
    else:
        rates = np.array(table.rates_bytes_per_s)
        center, residual = np.array([table.latency_s or 0.0, rates.mean()]), float(np.max(np.abs(rates / rates.mean() - 1.0)))
        draws = np.array([[center[0], rng.choice(rates, len(rates)).mean()] for _ in range(DRAWS)])
        if table.latency_s is None:
            notes["no_latency"] = f"{table.tool} does not report the latency of a message, which is set to 0"
    if spread:
        draws = draws * np.exp(spread * rng.standard_normal(len(draws)))[:, None] ** np.array([-1.0, 1.0])
    return _cluster(name, f"{table.tool}: {_in_words(*center)}", center, draws, residual, costs, notes, ranks=table.ranks, part=part)


def _in_words(latency_s: float, bytes_per_s: float) -> str:
    return f"{format_rate(bytes_per_s)}, {format_seconds(latency_s)} per message"


def _cluster(
    name: str, description: str, center: Array, draws: Array, residual: float, costs: MessageCosts, notes: dict[str, str], ranks: int = 2,
    part: Part = "inter_node",
) -> Cluster:  # fmt: skip
    """A cluster whose nodes or devices are joined by a link with this latency and bandwidth, and these draws of both, shape (draws, 2)."""
    link, parameters = (
        Link(latency_s=digits(center[0]), bandwidth_bytes_per_s=digits(center[1])),
        tuple(f"{part}.{key}" for key in _FIGURES),
    )
    bandwidths = np.append(np.quantile(draws[:, 1], [0.05, 0.95]), center[1])
    sizes, *_ = costs.points()
    return Cluster(
        name=name,
        description=description,
        basis="measured",
        **({"inter_node": _UNSEEN} | {part: link}),
        calibrated=ClusterRange(
            message_bytes=(float(sizes[0]), float(sizes[-1])) if len(sizes) else None,
            nodes=(1, ranks),
            bandwidth_bytes_per_s=(digits(np.min(bandwidths)), digits(np.max(bandwidths))) if part == "inter_node" else None,
        ),
        uncertainty=drawn(parameters, draws),
        fit=CalibrationFitLink(
            points=tuple(_point(size, costs.costs[size]) for size in sizes),
            relative_residual=digits(residual),
            intervals_90=intervals_90(parameters, draws),
        ),
        provenance=notes,
    )


def _costs(measured: Measurements, path: str) -> MessageCosts:
    records = [record for record in measured.of(Transfer) if record.path == path]
    return MessageCosts.of_chains((record.size_bytes, record.hops, record.round, record.seconds) for record in records)


def _line_of(costs: MessageCosts) -> tuple[Line, float]:
    """Seconds of a message by its bytes, and the largest relative residual."""
    sizes, seconds, errors = costs.points()
    if len(sizes) < 2:
        raise CalibrationError(f"{len(sizes)} message size(s) gave a usable time, but a fit needs at least 2: measure more sizes or rounds")
    line = line_of_medians(sizes, seconds, errors, tolerance=_TOLERANCE)
    if line.slope <= 0:
        raise CalibrationError("the time does not grow with the size of the message: measure larger messages on an idle machine")
    return line, line.residual(sizes, seconds)


def _figures(line: Line) -> Array:
    """Latency in seconds and bandwidth in bytes per second."""
    return np.array([line.base, 1.0 / line.slope])


def _work_of_hosts(measured: Measurements, path: str) -> Line:
    """Processor seconds of a process for each message that it sends while it receives another, and for each of its bytes.

    Of transfers that do not tell it, none. Each end takes half of it: the work before a message is sent, and after it has arrived.
    """
    records = [record for record in measured.of(Transfer) if record.path == path]
    used = [(record.size_bytes, record.hops, record.round, record.cpu_s) for record in records if record.cpu_s is not None]
    sizes, seconds, errors = MessageCosts.of_chains(used).points()
    if len(used) < len(records) or len(sizes) < 2:
        return Line(0.0, 0.0)
    return line_of_medians(sizes, seconds, errors, tolerance=_TOLERANCE)


def _on_the_wire(line: Line, work: Line) -> Array:
    """Latency and bandwidth of a link without what its hosts do meanwhile, of which not all can be its time."""
    each_byte_s = 1.0 / (1.0 / line.slope)
    return np.array([max(line.base - work.base, 0.0), 1.0 / max(each_byte_s - work.slope, _LEAST_SHARE * each_byte_s)])


def _inside(measured: Measurements) -> tuple[Link | None, dict[str, str]]:
    """The link inside a node, from the slower direction of the copies between host and device."""
    links: list[Link] = []
    notes: dict[str, str] = {}
    for path in sorted({record.path for record in measured.of(Transfer)} - {*_NETWORKS}):
        try:
            line, residual = _line_of(_costs(measured, path))
        except CalibrationError as error:
            notes[path] = str(error)
            continue
        latency_s, bytes_per_s = _figures(line)
        notes[path] = (
            f"{format_rate(bytes_per_s)}, {format_seconds(latency_s)} per message, largest relative residual {format_share(residual)}"
        )
        if path in _DEVICE_PATHS:
            links.append(Link(latency_s=digits(latency_s), bandwidth_bytes_per_s=digits(bytes_per_s)))
    return (min(links, key=lambda link: float(link.bandwidth_bytes_per_s)) if links else None), notes


def _on_device(measured: Measurements) -> Link | None:
    """The memory that logical devices of one processor share, from all-reduces between them; none where they were not measured.

    In a ring of n each sends 2 (n - 1) times an n-th of the buffer, so that all together
    move 2 (n - 1) times its bytes, in as many turns.
    """
    logical = int(measured.header.arguments.get("logical_devices") or 0)
    if logical < 2 or measured.fingerprint.device_kind != "CPU":
        return None
    seconds, bytes_per_s = _figures(_line_of(_costs(measured, f"{_ALL_REDUCE}{logical}"))[0])
    turns = 2 * (logical - 1)
    return Link(latency_s=digits(seconds / turns), bandwidth_bytes_per_s=digits(bytes_per_s * turns))


def _point(size: float, costs: Array) -> LinkPoint:
    p5, median, p95 = quantiles(costs[costs > 0])
    return LinkPoint(size_bytes=float(size), p5_s=p5, median_s=median, p95_s=p95)


class LinkTable(NamedTuple):
    """Output of a tool about a link.

    Attributes
    ----------
    tool
        Its name, and what it ran.
    messages
        Bytes and seconds of single messages, in the order of the table.
    rates_bytes_per_s
        Of a stream, one for each interval; where there are no messages.
    latency_s
        Of a stream, if the tool tells it.
    ranks
        That took part.
    sha256
        Of the file, as hexadecimal digits.
    """

    tool: str
    messages: tuple[tuple[float, float], ...] = ()
    rates_bytes_per_s: tuple[float, ...] = ()
    latency_s: float | None = None
    ranks: int = 2
    sha256: str = ""


def read_link_table(path: Path, ranks: int | None = None) -> LinkTable:
    """Read the output of a tool that timed a link; lines of anything else in it are skipped.

    ``ranks`` are processes of a collective, where the table does not say it.

    Raises
    ------
    InputError
        It cannot be read, is of none of the tools, or says too little.
    """
    raw = bytes_of(path)
    text = raw.decode("utf-8", errors="replace")
    for reader in _READERS:
        if (table := reader(text, path, ranks)) is not None:
            return table._replace(sha256=hashlib.sha256(raw).hexdigest())
    raise InputError(
        f"{path}: has no table of nccl-tests, osu_latency, osu_bw, osu_allreduce, gloo's benchmark or iperf3 (with or without --json): "
        "save the full output of one of them, such as `all_reduce_perf -b 8 -e 1G -f 2 > link.txt`"
    )


def _ranks(ranks: int | None, said: int | None, path: Path, tool: str) -> int:
    """How many took part: as the table says, or else as is given."""
    count = said or ranks
    if count is None:
        raise InputError(f"{path}: {tool} does not report the number of processes: give `ranks`, such as 4")
    if count < 2:
        raise InputError(f"{path}: {tool} ran in a single process, which sends nothing over a link: run it with at least 2")
    return count


# -- nccl-tests --------------------------------------------------------------------------------

_NCCL_HEADING = re.compile(r"^#\s+size\s+count\s+type\b.*\bbusbw\b", re.MULTILINE)
_NCCL_RANK = re.compile(r"^#\s+Rank\s+\d+\b.* on\s+(\S+)", re.MULTILINE)
_NCCL_ROW = re.compile(r"^[ \t]*(\d+)[ \t]+\d+[ \t]+[a-z]\w*[ \t]+([a-z]\w*)?[ \t]*(.*)$", re.MULTILINE)
_NCCL_NAME = re.compile(r"\b((?:all_reduce|all_gather|reduce_scatter|sendrecv|broadcast|reduce|alltoall|gather|scatter|hypercube)_perf)\b")
_NCCL_COLUMNS = 4
"""Time, algbw, busbw and errors, out of place and in place."""


def _nccl(text: str, path: Path, ranks: int | None) -> LinkTable | None:
    if not _NCCL_HEADING.search(text):
        return None
    rows: list[tuple[float, str, list[tuple[float, float, float]]]] = []
    for size, operation, rest in _NCCL_ROW.findall(text):
        words = rest.split()
        words = words[len(words) % _NCCL_COLUMNS :]  # the root stands before them
        timed = [tuple(map(_number, words[place : place + 3])) for place in range(0, len(words), _NCCL_COLUMNS)]
        rows.append((float(size), operation, [(us, algbw, busbw) for us, algbw, busbw in timed if us > 0]))
    rows = [row for row in rows if row[0] > 0 and row[2]]
    if not rows:
        raise InputError(f"{path}: the table of nccl-tests has no rows, because it ended before anything was timed")
    hosts = _NCCL_RANK.findall(text)
    _, operation, largest = max(rows)
    shares = [busbw / algbw for _, algbw, busbw in largest if algbw > 0]
    share = max(shares, default=0.0)
    reduces_all = operation not in ("none", "") and share > _ALMOST_1
    name = named[1] if (named := _NCCL_NAME.search(text)) else "all_reduce_perf" if reduces_all else "a collective"
    said = len(hosts) or (round(2.0 / (2.0 - share)) if name == "all_reduce_perf" and share < _ALMOST_2 else None)
    count = _ranks(ranks, said, path, name)
    turns = parts = 1
    if name == "all_reduce_perf":
        turns, parts = 2 * (count - 1), count
    elif name in _NCCL_HALF or share < _ALMOST_1:
        turns, parts = count - 1, count
    where = f" on {counted(len(set(hosts)), 'host')}" if hosts else ""
    timings = [(size, us * 1e-6) for size, _, timed in rows for us, _, _ in timed]
    return _collective(f"nccl-tests ({name}, {counted(count, 'rank')}{where})", timings, count, turns, parts)


def _collective(tool: str, timings: Iterable[tuple[float, float]], count: int, turns: float, parts: float) -> LinkTable:
    """A collective of so many ranks, from bytes and seconds, whose messages are a part of its buffer and follow each other in turns."""
    return LinkTable(tool, tuple((size / parts, seconds / turns) for size, seconds in timings), ranks=count)


_NCCL_HALF = "all_gather_perf", "reduce_scatter_perf", "alltoall_perf"
"""Each rank sends an n-th in each of n - 1 turns."""
_ALMOST_1, _ALMOST_2 = 0.98, 1.995
"""Busbw over algbw, as rounded figures give it, of a message as a whole, and of so many ranks that rounding decides how many."""


def _number(word: str) -> float:
    """A figure of a table; 0 where there is none, such as N/A."""
    try:
        return float(word)
    except ValueError:
        return 0.0


# -- OSU micro-benchmarks ----------------------------------------------------------------------

_OSU_TEST = re.compile(r"^# OSU \S+ (.+?) Test\b.*$", re.MULTILINE)
_OSU_ROW = re.compile(r"^[ \t]*(\d+)[ \t]+(\d+(?:\.\d+)?)(?=[ \t]|$)", re.MULTILINE)


def _osu(text: str, path: Path, ranks: int | None) -> LinkTable | None:
    tests = list(_OSU_TEST.finditer(text))
    if not tests:
        return None
    ends = [*(test.start() for test in tests[1:]), len(text)]
    tables = {
        test[1]: [(float(size), float(value)) for size, value in _OSU_ROW.findall(text, test.end(), end) if float(size) and float(value)]
        for test, end in zip(tests, ends, strict=True)
    }
    if rows := tables.get("Latency"):
        return LinkTable("osu_latency", tuple((size, us * 1e-6) for size, us in rows))
    if rows := tables.get("Allreduce Latency"):
        count = _ranks(ranks, None, path, "osu_allreduce")
        timings = [(size, us * 1e-6) for size, us in rows]
        return _collective(f"osu_allreduce ({counted(count, 'rank')})", timings, count, 2 * (count - 1), count)
    if rows := tables.get("Bandwidth"):
        fastest = max(rate for _, rate in rows)
        return LinkTable("osu_bw", rates_bytes_per_s=tuple(rate * 1e6 for _, rate in rows if rate > _STREAM * fastest))
    raise InputError(
        f"{path}: has OSU's {', '.join(tables)}, but only osu_latency, osu_bw and osu_allreduce with at least one row can be read"
    )


_STREAM = 0.9
"""Messages of a stream that reach this share of the highest rate are large enough to fill the link."""


# -- gloo's benchmark --------------------------------------------------------------------------

_GLOO_HEADING = re.compile(r"^\s*(size \(B\)\s+)?elements\s+min \((us|ns)\)\s+p50 \(\2\).*avg \(GB/s\)", re.MULTILINE)
_GLOO_ROW = re.compile(r"^\s*((?:\d+\s+){5,6}\d+(?:\.\d+)?)\s+\d+\s*$", re.MULTILINE)
_VALUES = 1, 2, 4, 8
"""Bytes that an element may have."""


def _gloo(text: str, path: Path, ranks: int | None) -> LinkTable | None:
    heading, algorithm = _GLOO_HEADING.search(text), re.search(r"^Algorithm:\s+(\w+)", text, re.MULTILINE)
    if heading is None or algorithm is None:
        return None
    name, said = algorithm[1].removeprefix("cuda_").removeprefix("new_"), re.search(r"\bprocesses=(\d+)", text)
    count = _ranks(ranks, int(said[1]) if said else None, path, "gloo's benchmark")
    if not name.startswith("allreduce"):
        raise InputError(f"{path}: has gloo's benchmark {name}, but only all-reduces can be read: run one, such as allreduce_ring_chunked")
    turns, parts = 2.0 * (count - 1), float(count)
    if name == "allreduce_ring":  # whole buffers
        turns, parts = count - 1.0, 1.0
    elif "halving_doubling" in name:
        turns, parts = 2.0 * math.log2(count), count * math.log2(count) / (count - 1)
    unit_s, timings = 1e-6 if heading[2] == "us" else 1e-9, []
    for row in _GLOO_ROW.findall(text, heading.end()):
        *first, _, p50, _, _, rate = map(float, row.split())
        if not p50:
            continue
        seconds, elements = p50 * unit_s, first[-1]
        said_bytes = rate * 2**30 * seconds / elements
        value_bytes = min(_VALUES, key=lambda each: abs(math.log(each / said_bytes))) if said_bytes else _VALUES[2]
        timings.append((first[0] if heading[1] else elements * value_bytes, seconds))
    if not timings:
        raise InputError(f"{path}: the table of gloo's benchmark has no rows, because it ended before anything was timed")
    return _collective(f"gloo's benchmark ({name}, {counted(count, 'rank')})", timings, count, turns, parts)


# -- iperf3 ------------------------------------------------------------------------------------

_IPERF_LINE = re.compile(r"^\[\s*(\w+)\]\s+([\d.]+)-([\d.]+)\s+sec\s+[\d.]+\s+\w*Bytes\s+([\d.]+)\s+([KMGT]?)bits/sec(.*)$", re.MULTILINE)
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_WHOLE = 0.5
"""Intervals shorter than this share of the first are ends of a run."""


def _iperf(text: str, path: Path, _: int | None) -> LinkTable | None:
    lines = [(name, float(end) - float(begin), float(rate) * _PREFIXES[prefix] / 8.0, rest)
             for name, begin, end, rate, prefix, rest in _IPERF_LINE.findall(text)]  # fmt: skip
    if not lines:
        return None
    if any(name == "SUM" for name, *_ in lines):
        lines = [line for line in lines if line[0] == "SUM"]
    ends = [rate for _, _, rate, rest in lines if rest.split()[-1:] in (["sender"], ["receiver"])]
    parts = [line for line in lines if line[3].split()[-1:] not in (["sender"], ["receiver"])]
    rates = [rate for _, long_s, rate, rest in parts if long_s >= _WHOLE * parts[0][1] and "omitted" not in rest]
    return _stream(path, rates, ends)


def _iperf_json(text: str, path: Path, _: int | None) -> LinkTable | None:
    try:
        data = json.loads(text[text.index("{") :])
    except ValueError:
        return None
    if not isinstance(data, dict) or "intervals" not in data or "end" not in data:
        return None
    if "error" in data:
        raise InputError(f"{path}: iperf3 ended with an error ({data['error']}): run it again")
    try:
        sums, end = [each["sum"] for each in data["intervals"]], data["end"]
        rates = [float(each["bits_per_second"]) / 8.0 for each in sums
                 if not each.get("omitted") and each["seconds"] >= _WHOLE * sums[0]["seconds"]]  # fmt: skip
        ends = [float(end[name]["bits_per_second"]) / 8.0 for name in ("sum_sent", "sum_received") if name in end]
        rtts_s = [float(each["sender"]["min_rtt"]) * 1e-6 for each in end.get("streams", ()) if each.get("sender", {}).get("min_rtt")]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"{path}: looks like iperf3's JSON, but is not what iperf3 --json prints; save all of its output") from None
    return _stream(path, rates, ends)._replace(latency_s=min(rtts_s) / 2 if rtts_s else None)


def _stream(path: Path, rates: list[float], ends: list[float]) -> LinkTable:
    """A stream by its intervals, or else by what its two ends saw of it."""
    known = tuple(rate for rate in (rates if len(rates) > 1 else ends) if rate > 0)
    if len(known) < 2:
        raise InputError(f"{path}: iperf3 reports one bitrate, which gives no interval: run it for a few seconds with `-i 1`")
    return LinkTable("iperf3", rates_bytes_per_s=known)


_READERS: tuple[Callable[[str, Path, int | None], LinkTable | None], ...] = (_nccl, _osu, _gloo, _iperf_json, _iperf)
