"""Whether what a scenario's devices hold fits into their memory: before anything is simulated, and with which batch at most."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from pydantic import Field

from simulator.base.spec import Spec
from simulator.base.table import Column, Row, Table
from simulator.base.text import Short, counted, format_bytes, listed
from simulator.memory.parts import PARTS, DeviceMemory, PartName, device_of, devices_of, memory_of, samples_in_words
from simulator.resolve.resolve import resolve
from simulator.scenario import Resolved, Scenario

_LARGEST_BATCH = 10**9
"""Of a replica, as workloads have it."""
_STATE: tuple[PartName, ...] = ("parameters", "gradients", "optimizer", "gathered", "reserve")
"""Parts that a smaller batch does not make smaller."""


class Memory(Short, Spec):
    """What the devices of a scenario hold, and what is left."""

    see: ClassVar[str] = "table() has every part in bytes, .refused and .not_checked the reasons"

    scenario_hash: str = Field(description="hash of what is simulated")
    device: str = Field(description="as the cluster names it; empty where it names none")
    batch: int = Field(description="samples that a replica takes a step")
    micro_batch: int = Field(description="of them, samples that are computed at a time")
    devices: tuple[DeviceMemory, ...] = Field(description="one, or one for each stage of a pipeline")
    largest_batch: int | None = Field(description="samples of a replica that fit at most; none where that is not known, 0 where none fits")
    free_bytes: float | None = Field(
        description="least that any device has left at the upper end of its interval; below 0: it may not fit; none: not known"
    )
    refused: str | None = Field(description="why it does not fit; none where it does, or where it was not checked")
    not_checked: str | None = Field(description="what is not known, so that it was not checked whether it fits; none where it was")

    def _in_short(self) -> Iterator[str]:
        device = self.tightest
        has = "" if device.capacity_bytes is None else f" of {format_bytes(device.capacity_bytes)}"
        yield f"{device.need_in_words}{has} on {self.device or 'a device'}"
        yield f"{counted(len(self.devices), 'stage')}, the fullest {device.name}" if len(self.devices) > 1 else ""
        fits = "it fits" if self.refused is None else "it does not fit"
        yield f"not checked: {self.not_checked}" if self.not_checked is not None else fits
        yield "" if self.largest_batch is None else f"largest batch {self.largest_batch:,}"

    @property
    def tightest(self) -> DeviceMemory:
        """The device that has least left, or where that is not known needs most."""
        return _tightest(self.devices)

    def table(self) -> Table:
        """A row for each device and a column for each part that any has, in bytes."""
        columns = [Column("name", "text", "devices"), Column("layers", "text")]
        columns += [Column(f"{name}_bytes", "bytes", heading) for name, heading in PARTS.items()]
        columns += [
            Column("need_bytes", "bytes", "need"),
            Column("need_low_bytes", "bytes", "from"),
            Column("need_high_bytes", "bytes", "to"),
        ]
        columns += [Column("capacity_bytes", "bytes", "has"), Column("free_bytes", "bytes", "free")]
        rows = tuple(tuple(row[column.name] for column in columns) for row in self.rows_of([self]))
        return Table("Memory of a device", tuple(columns), rows, name="memory").without_empty_columns()

    def parts_table(self) -> Table:
        """The parts of the tightest device, each with what it is made of."""
        columns = Column("part", "text"), Column("size_bytes", "bytes", "size"), Column("text", "text", "made of")
        device = self.tightest
        rows = tuple((PARTS[part.name], part.size_bytes, part.text) for part in device.parts)
        return Table(f"Memory of a device: {device.name}" if len(self.devices) > 1 else "Memory of a device", columns, rows, name="parts")

    @classmethod
    def rows_of(cls, items: Iterable[Memory]) -> list[Row]:
        """A row for each device, in bytes."""
        return [row for item in items for row in item._rows()]

    def _rows(self) -> Iterator[Row]:
        for device in self.devices:
            sizes: Row = {f"{name}_bytes": None for name in PARTS}
            sizes |= {f"{part.name}_bytes": part.size_bytes for part in device.parts}
            low, high = device.interval_bytes
            ends: Row = {"need_bytes": device.need_bytes, "need_low_bytes": low, "need_high_bytes": high}
            ends |= {"capacity_bytes": device.capacity_bytes, "free_bytes": device.free_bytes}
            yield {"name": device.name, "layers": ", ".join(device.layers), **sizes, **ends}


def memory(scenario: Scenario) -> Memory:
    """What the devices of a scenario hold, whether it fits, and with which batch it does.

    Raises
    ------
    ScenarioError
        The workload cannot be moved to the cluster's device.

    Examples
    --------
    >>> from simulator.catalogue.loading import load_scenario
    >>> found = memory(load_scenario("ring"))
    >>> [part.name for part in found.tightest.parts if part.size_bytes], found.free_bytes is None
    (['parameters', 'gradients', 'buckets'], True)
    """
    resolved = resolve(scenario)
    devices = memory_of(resolved)
    return Memory(
        scenario_hash=scenario.hash,
        device=scenario.cluster.device,
        batch=scenario.batch,
        micro_batch=_micro_batch(resolved),
        devices=devices,
        largest_batch=largest_batch(resolved),
        free_bytes=_tightest(devices).free_bytes,
        refused=does_not_fit(resolved),
        not_checked=not_checked(resolved),
    )


def does_not_fit(scenario: Resolved) -> str | None:
    """A sentence where a device may need more memory than it has; None where all fit, or it is not known.

    The upper end of the 90% interval of what is needed decides.

    What is known of its parts decides, so that a device which cannot hold parameters and
    gradients is found whether its activations are known or not. The sentence says which
    device, what it needs, what takes most of it, and what to try.
    """
    device, cluster = device_of(scenario), scenario.cluster
    limit = cluster.device_memory_limit_bytes
    if device is None and limit is None:
        return None
    if device is not None and device.memory_bytes is not None and limit is not None:
        most = cluster.replicas_per_device
        if most * limit > device.memory_bytes:
            return (
                f"{most} logical devices of {format_bytes(limit)} (cluster.device_memory_limit) need {format_bytes(most * limit)}, but "
                f"{cluster.device} has {format_bytes(device.memory_bytes)}; take a limit of at most "
                f"{format_bytes(device.memory_bytes / most)}, or fewer cluster.replicas_per_device"
            )
    tightest = _tightest(devices_of(scenario, device))
    if tightest.fits or tightest.capacity_bytes is None:
        return None
    each, micro_batch = cluster.replicas_per_device if limit is None else 1, _micro_batch(scenario)
    cut = "micro-batch" if micro_batch < scenario.batch else "batch"
    whose = f"{each} replicas of {samples_in_words(micro_batch)} need" if each > 1 else f"a {cut} of {samples_in_words(micro_batch)} needs"
    where = f"{tightest.name} ({', '.join(tightest.layers)}): " if tightest.layers else ""
    largest = tightest.largest
    of_it = f" ({PARTS[largest.name]} {format_bytes(largest.size_bytes or 0.0)}: {largest.text})"
    on, has = ("a device", f"{cluster.device} has") if limit is None else ("its logical device", "cluster.device_memory_limit is")
    return (
        f"{where}{whose} about {tightest.need_in_words} on {on}{of_it}, but {has} "
        f"{format_bytes(tightest.capacity_bytes)}; {_advice(scenario, tightest)}"
    )


def not_checked(scenario: Resolved) -> str | None:
    """Why it could not be checked whether a scenario's devices hold what they need; None where it could."""
    device = device_of(scenario)
    if device is None and scenario.cluster.device_memory_limit_bytes is None:
        name = scenario.cluster.device
        return f"the memory of {name!r} is not known" if name else f"the cluster {scenario.cluster.name!r} names no device"
    devices = devices_of(scenario, device)
    unknown = (part.text for device in devices for part in device.parts if part.name == "activations" and part.size_bytes is None)
    return next(unknown, None)


def largest_batch(scenario: Resolved) -> int | None:
    """Samples of a replica with which every device fits at most, by bisection: a smaller batch never needs more.

    Returns
    -------
    int or None
        A multiple of the scenario's micro-batches. 0 where no batch fits. None where it is
        not known: the device's memory or activations are not, or nothing grows with the batch.
    """
    device = device_of(scenario)
    count = scenario.training.micro_batches

    def devices(micro_batch: int) -> tuple[DeviceMemory, ...]:
        load = scenario.workload.model_copy(update={"batch_per_replica": micro_batch * count, "global_batch": None})
        return devices_of(scenario.model_copy(update={"workload": load}), device)

    def fits(micro_batch: int) -> bool:
        return all(device.fits for device in devices(micro_batch))

    most = _LARGEST_BATCH // count
    if not_checked(scenario) is not None or (most > 1 and fits(most)):
        return None
    low, high = 0, 1
    while high < most and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    known = all(part.size_bytes is not None for device in devices(max(low, 1)) for part in device.parts if part.name == "activations")
    return low * count if known else None


def _micro_batch(scenario: Resolved) -> int:
    return -(-scenario.batch // scenario.training.micro_batches)


def _tightest(devices: Sequence[DeviceMemory]) -> DeviceMemory:
    return max(devices, key=lambda device: device.need_bytes)


def _advice(scenario: Resolved, device: DeviceMemory) -> str:
    """What would make it need less, as far as it would help; a device with more memory helps anyway."""
    layers, training = scenario.workload.layers, scenario.training
    sizes: dict[PartName, float] = {part.name: part.size_bytes or 0.0 for part in device.parts}
    state_bytes = math.fsum(sizes.get(name, 0.0) for name in _STATE)
    tries = []
    if state_bytes < (device.capacity_bytes or 0.0):
        if _micro_batch(scenario) > 1:
            tries += ["a smaller batch", *([f"more training.micro_batches than {training.micro_batches}"] if layers else [])]
        if layers and training.recompute != "full" and sizes.get("activations"):
            tries.append('training.recompute = "full"')
    if layers and device.largest.name in ("parameters", "gradients", "optimizer"):
        tries.append('strategy.shard, or a larger strategy.pipeline or strategy.tensor (kind = "hybrid")')
    if scenario.cluster.device_memory_limit_bytes is not None:
        tries.insert(0, "a larger one")
    return f"take {listed(tries or ['a device with more memory'], 'or')}"
