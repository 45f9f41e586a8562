"""The range in which each figure lies in practice: one far outside is more likely in another unit, or has another prefix.

:data:`RANGES` is the one table of them, by names of keys: a key that is renamed is renamed here too
(tests/unit/test_misreadings.py). Nothing is refused for it: a reader learns how a figure is
read (:func:`implausible`), of a scenario by ``simulator.results.misread``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel

from simulator.base.errors import ReadingWarning
from simulator.base.spec import parts_of, short_name
from simulator.base.text import Kind, format_interval, kind_of_setting, written

Range = tuple[float, float]
"""The least and the most that there is; 0 always is."""

_DAY_S, _YEAR_S = 86_400.0, 365.25 * 86_400.0
_LATENCY: Range = (1e-9, 1.0)  # light goes 30 cm; round the earth and back it takes a fifth of a second
_BANDWIDTH: Range = (1.25e3, 1.25e13)  # 10 kbit/s, 100 Tbit/s: above the memory of any device
_WORK: Range = (1e-12, 3600.0)  # of a step or a part of it
_EACH_BYTE: Range = (1e-15, 1e-3)
_ONCE: Range = (1e-6, 7 * _DAY_S)  # what a job does now and then
_LASTING: Range = (1.0, 300 * _YEAR_S)
_MESSAGE: Range = (1.0, 2.0**40)
_MEMORY: Range = (2.0**20, 2.0**53)
_FLOPS: Range = (1e9, 1e20)

RANGES: Mapping[str, Range] = {
    "latency_s": _LATENCY,
    "intra_node_latency_s": _LATENCY,
    "storage.latency_s": (1e-9, 60.0),
    "coordinator.latency_s": (1e-9, 60.0),
    "coordinator.dispatch_s": (1e-9, 60.0),
    "cpu_per_message_s": _LATENCY,
    "queue_s": (1e-9, 60.0),
    "buffer_s": (1e-9, 60.0),
    "fusion_cycle_s": (1e-6, 60.0),
    "time_slice_s": (1e-6, 10.0),
    "bandwidth_bytes_per_s": _BANDWIDTH,
    "memory_bandwidth_bytes_per_s": (1e6, 1e15),
    "node_bandwidth_bytes_per_s": _BANDWIDTH,
    "flow_cap_bytes_per_s": _BANDWIDTH,
    "write_bytes_per_s": _BANDWIDTH,
    "node_write_bytes_per_s": _BANDWIDTH,
    "restore_bytes_per_s": _BANDWIDTH,
    "base_s": _WORK,
    "per_sample_s": _WORK,
    "least_s": _WORK,
    "apply_s": _WORK,
    "start_spread_s": (1e-9, _DAY_S),
    "per_byte_s": _EACH_BYTE,
    "copy_per_byte_s": _EACH_BYTE,
    "cpu_per_byte_s": _EACH_BYTE,
    "compress_per_byte_s": _EACH_BYTE,
    "decompress_per_byte_s": _EACH_BYTE,
    "startup.value_s": _ONCE,
    "tracing.value_s": _ONCE,
    "evaluation_tracing.value_s": _ONCE,
    "snapshot.value_s": _ONCE,
    "detection_s": _ONCE,
    "restart_s": _ONCE,
    "startup_s": _ONCE,
    "replacement_s": _ONCE,
    "notice_s": _ONCE,
    "every_s": (1e-3, _YEAR_S),
    "checkpoint.duration_s": (1e-6, _DAY_S),
    "worker_mtbf_s": _LASTING,
    "server_mtbf_s": _LASTING,
    "node_mtbf_s": _LASTING,
    "job_mtbf_s": _LASTING,
    "mtbf_s": _LASTING,
    "most_s": _LASTING,
    "wait_s": _ONCE,
    "size_bytes": (1.0, 2.0**47),
    "bucket_size_bytes": _MESSAGE,
    "pipeline_chunk_bytes": _MESSAGE,
    "shard_size_bytes": _MESSAGE,
    "checkpoint_bytes": (1.0, 2.0**53),
    "checkpoint.size_bytes": (1.0, 2.0**53),
    "device_memory_limit_bytes": _MEMORY,
    "memory_bytes": _MEMORY,
    "input_bytes_per_sample": (1e-3, 2.0**43),
    "read_bytes_per_sample": (1e-3, 2.0**43),
    "flops_per_sample": (1.0, 1e20),
    "peak_flops_per_s.float32": _FLOPS,
    "peak_flops_per_s.tf32": _FLOPS,
    "peak_flops_per_s.float16": _FLOPS,
    "peak_flops_per_s.bfloat16": _FLOPS,
    "clock_hz": (1e6, 1e11),
    "usd_per_node_hour": (1e-4, 2000.0),
    "purchase_usd": (1.0, 1e8),
    "upfront_usd": (1.0, 1e8),
    "reserved.usd_per_hour": (1e-4, 2000.0),
    "usd_per_kwh": (1e-3, 10.0),
    "hosting_usd_per_month": (0.1, 1e6),
    "usd_per_node": (0.1, 1e8),
    "power_w": (1.0, 1e6),
    "owned.years": (0.25, 20.0),
    "reserved.years": (1 / 12, 10.0),
    "billing_minimum_s": _ONCE,
    "billing_step_s": _ONCE,
}
"""Ranges by the last names of a key's dotted path, of which the longest counts; in SI units and US dollars."""

_NOT_GIVEN = ("fit", "fit_hosts", "uncertainty", "calibrated", "provenance", "computed", "moved", "recast", "passes")
"""What nobody writes by hand."""
_EXAMPLES = (
    ("_bytes_per_s", "bytes per second", "25 Gbit/s"), ("_bytes", "bytes", "64 MiB"), ("_s", "seconds", "20 us"), ("_w", "watts", "5 kW"),
)  # fmt: skip


@dataclass(frozen=True)
class Implausible:
    """A figure that is beyond all that there is.

    Attributes
    ----------
    path
        Dotted path of its key.
    value
        In SI units, or US dollars.
    range
        What there is.
    """

    path: str
    value: float
    range: Range

    @property
    def text(self) -> str:
        """How it is read, what there is, and how it may be written instead."""
        name = self.path.rpartition(".")[2]
        kind: Kind = "usd" if "usd" in name.split("_") else kind_of_setting(name)
        found = next(((unit, example) for ending, unit, example in _EXAMPLES if name.endswith(ending) and "per_byte" not in name), None)
        hint = ""
        if found is not None and short_name(name) != name:
            hint = f'; a plain number is in {found[0]}, and text has its unit: {short_name(name)} = "{found[1]}"'
        return (
            f"{self.path} is read as {written(self.value, kind)}, far outside of what exists ({format_interval(*self.range, kind)}){hint}"
        )


def implausible(spec: BaseModel, where: str = "") -> Iterator[Implausible]:
    """Figures of a specification that are beyond all that there is, the first of each key; ``where`` begins their paths."""
    seen = set()
    for path, key, name, value, (least, most) in _figures(spec, where, where):
        if value and not least <= value <= most and (key, name) not in seen:
            seen.add((key, name))
            yield Implausible(_below(path, name), value, (least, most))


def warn_of_implausible(spec: BaseModel, where: str = "", source: str = "") -> None:
    """Warn of the figures that :func:`implausible` finds, where no result will tell of them; ``source`` begins the messages.

    Warns
    -----
    ReadingWarning
        For each key.
    """
    for its in implausible(spec, where):
        warnings.warn(f"{source}{its.text}", ReadingWarning, stacklevel=3)


def _figures(spec: BaseModel, path: str, key: str) -> Iterator[tuple[str, str, str, float, Range]]:
    """Of each figure that has a range: the path of its table, the same without places in lists, its name, value and range."""
    for name, within in _looked_at(type(spec), key.rpartition(".")[2]):
        value: Any = getattr(spec, name)
        if within is not None:
            if isinstance(value, (int, float)):
                yield path, key, name, float(value), within
        elif isinstance(value, BaseModel):
            yield from _figures(value, _below(path, name), _below(key, name))
        elif isinstance(value, tuple):
            for place, each in enumerate(value):
                if isinstance(each, BaseModel):
                    yield from _figures(each, f"{_below(path, name)}.{place}", _below(key, name))


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


@cache
def _looked_at(kind: type[BaseModel], last: str) -> tuple[tuple[str, Range | None], ...]:
    """Fields of a table whose key ends in ``last`` that have a range, with it, or tables with some, with none."""
    found: list[tuple[str, Range | None]] = []
    for name, field in kind.model_fields.items():
        tables = [part for part in parts_of(field.annotation) if issubclass(part, BaseModel)]
        within = _range_of(f"{last}.{name}")
        if within is not None and not tables:
            found.append((name, within))
        elif name not in _NOT_GIVEN and any(_looked_at(table, name) for table in tables):
            found.append((name, None))
    return tuple(found)


@cache
def _range_of(key: str) -> Range | None:
    """The range of the longest end of a dotted path that has one."""
    names = key.split(".")
    return next((RANGES[end] for first in range(len(names)) if (end := ".".join(names[first:])) in RANGES), None)
