"""Attacks on values: each way in which people, spreadsheets and other countries write one; read as meant, refused, or said."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from torture.attacks import Attack, Trial
from torture.endings import Ended

_TIMES = {
    "s": 1.0,
    "sec": 1.0,
    "seconds": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ns": 1e-9,
    "min": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hours": 3600.0,
    "d": 86400.0,
    "days": 86400.0,
}
_SIZES = {
    "B": 1.0,
    "bytes": 1.0,
    "kB": 1e3,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "megabytes": 1e6,
}
_RATES = {
    "bit/s": 1 / 8,
    "kbit/s": 1e3 / 8,
    "Mbit/s": 1e6 / 8,
    "Gbit/s": 1e9 / 8,
    "Gb/s": 1e9 / 8,
    "Gbps": 1e9 / 8,
    "Tbit/s": 1e12 / 8,
    "B/s": 1.0,
    "MB/s": 1e6,
    "GB/s": 1e9,
    "GiB/s": 2.0**30,
    "Gbit per second": 1e9 / 8,
}
_WRONG = {
    "time": ("", "m", "M", "Ms", "mS", "MS", "S", "Sec", "H", "s/step", "Hz", "B", "%", "usd", "u s", "''", "1"),
    "size": ("", "b", "kb", "Kb", "Mb", "MBit", "mb", "mB", "Gb", "gb", "GBit", "bit", "Mbit", "MB/s", "G", "M", "k", "million", "s", "%"),
    "rate": (
        "",
        "G",
        "Gbit",
        "GB",
        "gbps",
        "GBps",
        "gbit/s",
        "mbit/s",
        "mb/s",
        "Gbit/S",
        "Gbit/m",
        "Gbit/M",
        "s/GB",
        "GHz",
        "Gbit/Gs",
        "Gbit/us/s",
        "%",
    ),
    "count": ("s", "%", "k", "K", "M", "workers", "x", "e", "GB"),
    "share": ("x", "percent", "%%", "s", "/100"),
    "money": ("EUR", "€", "GBP", "/h", "k", "M", "usd/day", "$$", "cents"),
    "date": ("x",),
}
"""Units of nothing, of something else, or of two things."""
_PLAIN = ("1", "2", "2.5", "0.5", "10", "1e3", "1E2", "+3", ".5", "5.", "007", "1.25e-1")
_ODD = (
    *("2,5", "1.000", "1,000", "1.000,5", "1,000.5", "1 000", "1\u00a0000", "1\u202f000", "1'000", "١٢", "１２", "½", "1/2", "1e"),
    *("1e400", "1e-400", "1e99", "1e-30", "-1", "−1", "nan", "inf", "Infinity", "", " ", "1..5", "1.5.5", "O", "l0", "1e3.5", "2^10"),
    *("1+1", "true", "'1'"),
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_GOOD_DATES = (
    "2025-12-31",
    "2024-02-29",
    "2025-12",
    "2025-1-1",
    "31.12.2025",
    "12/31/2025",
    "2025-12-31T00:00:00",
)  # shown as they were given
_DATES = (
    *("2026-13-45", "2026-02-30", "2025-02-29", "20251231", "0000-01-01", "9999-01-01"),
    *("yesterday", "2025-W01-1", "1e3"),
)


@dataclass(frozen=True)
class _Key:
    """A key of a scenario, or an option, that takes a quantity.

    Attributes
    ----------
    path
        Dotted, as one sets it.
    dimension
        What it measures.
    read
        Where it stands in a result's scenario, in SI.
    sane
        Between which values nobody need be asked; a value beyond is refused or remarked upon.
    file
        Which scenario it is set in.
    """

    path: str
    dimension: str
    read: str
    sane: tuple[float, float]
    file: str = "scenario.toml"


_KEYS = (
    _Key("cluster.inter_node.latency", "time", "cluster.inter_node.latency_s", (0.0, 0.9)),
    _Key("workload.apply", "time", "workload.apply_s", (0.0, 1e5)),
    _Key("run.start_spread", "time", "run.start_spread_s", (0.0, 1e5)),
    _Key("job.faults.restart", "time", "job.faults.restart_s", (0.0, 1e6), "rich.toml"),
    _Key("job.faults.worker_mtbf", "time", "job.faults.worker_mtbf_s", (600.0, 1e8), "rich.toml"),
    _Key("strategy.bucket_size", "size", "strategy.bucket_size_bytes", (1e3, 1e11), "ring.toml"),
    _Key("job.checkpoint.size", "size", "job.checkpoint.size_bytes", (0.0, 1e12), "rich.toml"),
    _Key("cluster.inter_node.bandwidth", "rate", "cluster.inter_node.bandwidth_bytes_per_s", (1e5, 1e12)),
    _Key("cluster.storage.bandwidth", "rate", "cluster.storage.bandwidth_bytes_per_s", (1e5, 1e13), "rich.toml"),
    _Key("strategy.workers", "count", "strategy.workers", (1, 1e5)),
    _Key("workload.batch_per_replica", "count", "workload.batch_per_replica", (1, 1e6)),
    _Key("run.steps", "count", "run.steps", (1, 1e6)),
    _Key("job.dataset_size", "count", "job.dataset_size", (1, 1e12), "rich.toml"),
    _Key("cluster.slow_nodes.share", "share", "cluster.slow_nodes.share", (0.0, 1.0), "rich.toml"),
    _Key("cluster.price.usd_per_node_hour", "money", "cluster.price.usd_per_node_hour", (0.001, 1e3), "rich.toml"),
    _Key("cluster.price.date", "date", "cluster.price.date", (0.0, 0.0), "rich.toml"),
)
_UNITS = {
    "time": _TIMES,
    "size": _SIZES,
    "rate": _RATES,
    "count": {"": 1.0},
    "share": {"": 1.0, "%": 0.01},
    "money": {"": 1.0, " USD": 1.0},
    "date": {},
}


class Misreadings(Attack):
    """Gives a key a value that may be misread."""

    name, share = "misreadings", 12
    what = "a value is written in one of the ways that people write one: read as it is meant, refused, or remarked upon"

    def run(self, trial: Trial) -> None:
        """Set it, and look at what the scenario of the result holds."""
        key = trial.rng.choice(_KEYS)
        trial.sort = key.dimension
        text, meant = _written(key, trial)
        trial.lay_out()
        value = text if trial.rng.random() < 0.5 else json.dumps(text)
        ended = trial.run("simulate", key.file, "--set", f"{key.path}={value}", "--set", "run.replications=2", "--json", "--yes")
        if ended.code == 0:
            for said in _misread(key, text, meant, ended):
                trial.find("misreading", f"{said}; {ended.stderr[-300:]}", ended.words)


def _written(key: _Key, trial: Trial) -> tuple[str, float | None]:
    """A value as somebody writes it, and what it means; None where nobody can tell."""
    rng = trial.rng
    if key.dimension == "date":
        return rng.choice((*_DATES, *_GOOD_DATES)), None
    right = rng.random() < 0.5
    unit = rng.choice(list(_UNITS[key.dimension])) if right else rng.choice(_WRONG[key.dimension])
    number = rng.choice(_PLAIN if rng.random() < 0.5 else _ODD)
    text = f"{number}{rng.choice(('', ' ')) if not unit.startswith(' ') else ''}{unit}"
    if not _NUMBER.fullmatch(number):
        return text, None
    return text, float(number) * _UNITS[key.dimension][unit] if right else None


def _misread(key: _Key, text: str, meant: float | None, ended: Ended) -> Iterator[str]:
    """What is wrong with how a value was taken."""
    result = json.loads(ended.stdout)
    held = result["scenario"]
    for part in key.read.split("."):
        held = held.get(part) if isinstance(held, dict) else None
    remarks = [ended.stderr, *(warning["text"] for warning in result.get("warnings", ()))]
    remarked = any(key.path.split(".")[-1] in text for text in remarks)
    if remarked:
        return
    if key.dimension == "date":
        if text not in _GOOD_DATES:
            yield f"{text!r} is taken for a date: {held!r}"
    elif not isinstance(held, (int, float)) or isinstance(held, bool):
        if text.strip():  # nothing at all gives a key its default back
            yield f"{text!r} became {held!r}"
    elif meant is None:
        yield f"{text!r}, which can mean several things or none, became {held!r}"
    elif not math.isclose(held, meant, rel_tol=1e-9):
        yield f"{text!r}, which means {meant!r}, became {held!r}"
    elif not key.sane[0] <= held <= key.sane[1]:
        yield f"{text!r} is {held!r}, which nobody means"
