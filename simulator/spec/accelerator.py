"""A device as its vendor describes it: memory, bandwidth and peak rates, each with its source (``models/devices``).

These are datasheet figures, which no training reaches. They compare devices with each other and never give a step time directly:
``simulator.resolve.device_transfer`` and ``simulator.spec.computed`` derive times from them. Clusters and workloads name a device by its
``name`` or an alias. A new ``generation`` may need an entry in ``_RESERVES`` of ``simulator.memory``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from simulator.base.catalog import entries
from simulator.base.errors import ScenarioError
from simulator.base.files import read_toml
from simulator.base.spec import MEMORY, Bytes, Moderate, PositiveShare, Rate, Spec, Usual
from simulator.base.validation_errors import validated, warn_of_implausible

Flops = Annotated[Moderate, Field(gt=0), Usual(1e9, 1e20)]
Text = Annotated[str, Field(min_length=1, max_length=1000)]


_KNOWN_GENERATIONS = ("Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada Lovelace")


class PeakFlops(Spec):
    """Floating-point operations per second for dense matrices; a multiplication and an addition count as two."""

    float32: Flops | None = Field(default=None, description="outside of tensor cores")
    tf32: Flops | None = Field(default=None, description="float32 data on tensor cores, with 10 bits of mantissa (Ampere and later)")
    float16: Flops | None = Field(default=None, description="on tensor cores if the device has them")
    bfloat16: Flops | None = Field(default=None, description="on tensor cores")
    float8: Flops | None = Field(default=None, description="on tensor cores, with sums in float32 (Ada Lovelace, Hopper and later)")


class Cores(Spec):
    """Inputs to the peak of a CPU: cores x clock x operations per core and cycle."""

    count: int = Field(ge=1, le=1_000_000, description="physical cores of all sockets")
    clock_hz: Annotated[Moderate, Field(gt=0), Usual(1e6, 1e11)] = Field(
        description="clock rate that the cores sustain during such operations"
    )
    float32_flops_per_cycle: int = Field(
        ge=1, le=1_000_000, description="operations of one core per cycle: vector units x lanes x 2 for multiply-add"
    )


class HighestMfu(Spec):
    """The highest model FLOPs utilisation, attention included, that a published training reached on the device or one of the same chip."""

    mfu: PositiveShare = Field(description="operations of the model, without recomputation, over the peak (docs/metrics.md)")
    run: Text = Field(description="the training, in a few words")
    source: Text = Field(description="where it is published, and how the figure follows")


class Accelerator(Spec):
    """One device: a GPU, one die of a board with two, or all CPUs of a host together."""

    schema_version: Literal[1] = Field(default=1, description="version of this format")
    name: str = Field(min_length=1, max_length=200, description="name that clusters and workloads give under `device`")
    aliases: tuple[Text, ...] = Field(default=(), max_length=100, description="other spellings, such as those reported by drivers")
    description: str = Field(default="", description="for readers")
    host: Literal["", "Grace"] = Field(
        default="", description="processor on the device's module, which launches its kernels; left out: the server's"
    )
    generation: str = Field(min_length=1, max_length=100, description="the vendor's name of the architecture, such as Volta")
    year: int = Field(ge=1990, le=2100, description="year of the first datasheet")
    memory_bytes: Annotated[Bytes, MEMORY] | None = Field(default=None, gt=0, description="memory of the device; left out: the host's own")
    memory_bandwidth_bytes_per_s: Annotated[Rate, Usual(1e6, 1e15)] = Field(gt=0, description="bandwidth between the device and its memory")
    peak_flops_per_s: PeakFlops = Field(default=PeakFlops(), description="peak rates by number format")
    cores: Cores | None = Field(default=None, description="cores of a CPU, in place of peak_flops_per_s.float32")
    highest_mfu: dict[Literal["16-bit", "32-bit"], HighestMfu] = Field(
        default_factory=dict, description="highest published MFU by width of the number format; results above it warn"
    )
    provenance: dict[str, Text] = Field(description="for each figure, its document and date")

    def _broken_rules(self) -> Iterator[str]:
        if self.cores is not None and self.peak_flops_per_s.float32 is not None:
            yield "has both cores and peak_flops_per_s.float32, which follows from them; keep one"
        if self.cores is None and not any(name.startswith("peak") for name in self.figures):
            yield "has no peak rate: give peak_flops_per_s.float32 or another; for a CPU, give cores"
        if lacking := [figure for figure in self.figures if figure not in self.provenance]:
            yield f"provenance must name a source for {' and '.join(lacking)}"

    @property
    def figures(self) -> tuple[str, ...]:
        """Figures given in the file, each of which needs a source: ``memory``, ``memory_bandwidth``, and peaks by number format."""
        peaks = [f"peak_flops_per_s.{name}" for name, value in self.peak_flops_per_s if value is not None]
        memory = ["memory"] if self.memory_bytes is not None else []
        return (*memory, "memory_bandwidth", *peaks, *(["cores"] if self.cores else []))

    @property
    def newer(self) -> bool:
        """Return whether its generation is newer than those with published shares of peak for matrix products and attention.

        Its datasheet's peak is further from what kernels, clocks under load and hosts allow, and by how much is known of
        few trainings (``newer_matrix_share`` and ``newer_attention_share`` of models/practice.toml). Processors are not meant.
        """
        return self.cores is None and self.generation not in _KNOWN_GENERATIONS

    @property
    def blackwell(self) -> bool:
        """Return whether matrix products reach less of its peak than on Hopper (``blackwell_matrix_share``)."""
        return self.generation == "Blackwell"

    @property
    def launch_share(self) -> str:
        """Constant of what a host next to the device needs of ``launch_s``; empty: all of it."""
        return "grace_launch_share" if self.host else "newer_launch_share" if self.newer else ""

    def peak(self, precision: str) -> float | None:
        """Peak operations per second for training in this precision; None if the datasheet gives none.

        Parameters
        ----------
        precision
            In TensorFlow's words: ``float32``, ``mixed_float16``, ``mixed_bfloat16`` or ``bfloat16``. With float32 it is the peak of
            ``tf32`` where the device has it, since TensorFlow uses it by default
            (``tf.config.experimental.enable_tensor_float_32_execution``).
        """
        peaks, cores = self.peak_flops_per_s, self.cores
        if precision != "float32":
            return {"mixed_float16": peaks.float16, "mixed_bfloat16": peaks.bfloat16, "bfloat16": peaks.bfloat16}.get(precision)
        of_cores = peaks.float32 if cores is None else cores.count * cores.clock_hz * cores.float32_flops_per_cycle
        return peaks.tf32 or of_cores

    def highest(self, precision: str) -> HighestMfu | None:
        """Highest published MFU in this precision; None where none is known."""
        return self.highest_mfu.get("32-bit" if precision == "float32" else "16-bit")


def load_accelerator(path: str | Path) -> Accelerator:
    """Read and validate a device file.

    Raises
    ------
    ScenarioError
        One line for each rule broken.

    Warns
    -----
    ReadingWarning
        A figure is far from those of all other devices.
    """
    device = validated(Accelerator, read_toml(path), str(path))
    warn_of_implausible(device, source=f"{path}: ")
    return device


def accelerators() -> Mapping[str, Accelerator]:
    """Map the names and aliases of all devices of the catalogue, as :func:`spelled` writes them, to the devices.

    Use this map for many look-ups: each call checks whether a file has changed.

    Raises
    ------
    ScenarioError
        A device file of the catalogue is broken, or two of them claim one name.
    """
    # when a file was written last, or 0 where it cannot be told, as reading it will
    return _by_name(tuple((file.absolute(), file.stat().st_mtime_ns if file.exists() else 0) for file in entries("devices").values()))


def accelerator_named(device: str) -> Accelerator | None:
    """The device with this name or alias, ignoring case and a trailing `` (GPU)``; None if the catalogue has no such file.

    Raises
    ------
    ScenarioError
        A device file of the catalogue is broken, or two of them claim one name.
    """
    return accelerators().get(spelled(device)) if device else None


def memory_bandwidth_of(device: str) -> float | None:
    """Bytes per second between a device and its memory; None if the name is empty or unknown to the catalogue."""
    known = accelerator_named(device)
    return known.memory_bandwidth_bytes_per_s if known is not None else None


def spelled(name: str) -> str:
    """A name without case and without the kind that `paceline calibrate` appends: ``tesla t4`` of ``Tesla T4 (GPU)``."""
    return re.sub(r"\s*\((gpu|cpu)\)$", "", " ".join(name.split()).casefold())


@cache
def _by_name(files: tuple[tuple[Path, int], ...]) -> dict[str, Accelerator]:
    by_name: dict[str, Accelerator] = {}
    devices = [(file, load_accelerator(file)) for file, _ in files]
    for file, device in devices:
        for name in (device.name, *device.aliases):
            other = by_name.setdefault(spelled(name), device)
            if other is not device:
                raise ScenarioError(f"{file}: {name!r} is also a name of {other.name!r}; each name must identify one device")
    for file, device in devices:  # and by the name of the catalogue, unless that is another's
        by_name.setdefault(spelled(file.stem), device)
    return by_name
