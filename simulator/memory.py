"""Memory of devices during training, and whether it fits.

The parts follow from the strategy's statement of what a device holds (:class:`Held`). Parameters, gradients and optimizer slots follow
Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, sections 3.1 and 5; activations, what
tensor and sequence parallelism split of them and what recomputation saves follow Korthikanti et al., "Reducing Activation Recomputation in
Large Transformer Models", MLSys 2023, sections 4 and 5. The strategy gives the micro-batches in flight and the versions of weights
(Narayanan et al., "PipeDream", SOSP 2019, section 3.3).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from simulator.base.spec import Bytes, Spec
from simulator.base.table import Column, Row, Table
from simulator.base.text import Short, counted, format_bytes, listed
from simulator.resolve.resolve import device_of, optimizer_of, resolve
from simulator.scenario import Resolved, Scenario
from simulator.spec.accelerator import Accelerator
from simulator.spec.computed import parameter_bytes_of
from simulator.spec.constants import constants
from simulator.spec.gradients import buckets
from simulator.spec.layers import Layer
from simulator.spec.training import ASSUMED_OPTIMIZER, HEADS, SLOTS, Head, Optimizer
from simulator.spec.workload import Variable, Workload
from simulator.strategies.holding import Held, Owned, fused, layers_of, most_in_flight, values_of

PartName = Literal[
    "parameters", "gradients", "optimizer", "activations", "backward", "logits", "gathered", "buckets", "input", "workspace",
    "reserve",
]  # fmt: skip

PARTS: Mapping[PartName, str] = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer slots",
    "activations": "activations",
    "backward": "backward pass of a layer",
    "logits": "logits",
    "gathered": "gathered parameters",
    "buckets": "communication buckets",
    "input": "input batch",
    "workspace": "work space",
    "reserve": "framework reserve",
}
"""Name of every part in words."""

_RESERVES = {"Kepler": 500, "Maxwell": 500, "Pascal": 500, "Volta": 1050, "Turing": 1050, "Ampere": 1536, "Ada Lovelace": 1536}
_NEWER = 1800
_WORKSPACE_BYTES, _SMALL_WORKSPACE_BYTES, _NEWER_WORKSPACE_BYTES = 85e6, 36e6, 110e6
"""Of matrix products up to Ampere and Ada Lovelace, with deterministic algorithms and without, and beyond: what Megatron-LM's runs hold
besides (evidence.studies.gpu_runs)."""
_STREAMS = 4
_SHORT_LOGIT_BYTES = 6
"""Of a logit in 16 bits and its copy in 32, which computing in 32 bits does not have."""
_MIB = 2.0**20


class Part(Spec):
    """One part of a device's memory."""

    name: PartName
    size_bytes: Bytes | None = Field(default=None, ge=0, description="bytes on the device; left out: unknown")
    text: str = Field(description="composition, or why it is unknown")


class DeviceMemory(Spec):
    """Memory of one kind of devices, such as those of a pipeline stage."""

    name: str = Field(description="device, or stage 0, stage 1 and so on; logical device: a device with a memory limit")
    layers: tuple[str, ...] = Field(default=(), description="first and last layer of each chunk of the model on it")
    parts: tuple[Part, ...]
    capacity_bytes: Bytes | None = Field(default=None, description="memory of the device, or its limit; left out: unknown")

    error: tuple[float, float] = Field(
        default=(1.0, 1.0), description="90% interval of real memory divided by computed memory, without the framework's reserve"
    )

    @property
    def need_bytes(self) -> float:
        """Sum of all known parts."""
        return math.fsum(part.size_bytes or 0.0 for part in self.parts)

    @property
    def interval_bytes(self) -> tuple[float, float]:
        """90% interval of the need."""
        kept_back = math.fsum(part.size_bytes or 0.0 for part in self.parts if part.name == "reserve")
        low, high = (kept_back + factor * (self.need_bytes - kept_back) for factor in self.error)
        return low, high

    @property
    def need_in_words(self) -> str:
        """Return the need, with its interval if there is one."""
        low, high = map(format_bytes, self.interval_bytes)
        return format_bytes(self.need_bytes) + (f" ({low} to {high})" if low != high else "")

    @property
    def free_bytes(self) -> float | None:
        """Free memory at the upper end of the interval, negative if it may not fit; None if the device's memory is unknown."""
        return None if self.capacity_bytes is None else self.capacity_bytes - self.interval_bytes[1]

    @property
    def fits(self) -> bool:
        """Return whether the known parts fit at the upper end of the interval, or the device's memory is unknown."""
        return self.free_bytes is None or self.free_bytes >= 0

    @property
    def largest(self) -> Part:
        """The largest part."""
        return max(self.parts, key=lambda part: part.size_bytes or 0.0)

    def part(self, name: PartName) -> Part | None:
        """One of its parts by name; None if absent."""
        return next((part for part in self.parts if part.name == name), None)


def memory_of(scenario: Resolved) -> tuple[DeviceMemory, ...]:
    """Return the peak memory of each kind of devices of a scenario.

    A batch that is cut into micro-batches is held one micro-batch at a time, or as many as the strategy has in flight. For a workload
    without layers, or with measured peak memory and no split, activations are the measured memory beyond parameters and gradients, linear
    between batch sizes; with neither they are unknown.

    Returns
    -------
    tuple of DeviceMemory
        In the order of the stages. Parts that are 0 for every batch are left out.

    Raises
    ------
    ScenarioError
        The workload cannot be scaled to the cluster's device.
    """
    return devices_of(scenario, device_of(scenario))


def devices_of(scenario: Resolved, device: Accelerator | None) -> tuple[DeviceMemory, ...]:
    """The same for a device that was looked up already, because the look-up is slow."""
    stages, layers = scenario.strategy.held(scenario), scenario.workload.layers
    limit = scenario.cluster.device_memory_limit_bytes  # of an allocator of its own, from which nothing is kept back
    capacity = limit if limit is not None else device.memory_bytes if device is not None else None
    known = {name: scenario.practice.get(name, constants()[name]) for name in _needs(scenario)}
    low, high = (choose(getattr(each, end) / each.value for each in known.values()) for choose, end in ((min, "low"), (max, "high")))
    devices = []
    for number, chunks in enumerate(stages):
        held = _Device(scenario, chunks, device)
        parts = _shared(held.parts(), scenario.cluster.replicas_per_device if limit is None else 1)
        if device is not None and limit is None:
            parts.append(_reserve(device))
        named = tuple(_between(layers, chunk) for chunk in chunks) if layers and len(stages) > 1 else ()
        name = f"stage {number}" if len(stages) > 1 else "device" if limit is None else "logical device"
        # the user's own peaks are not rescaled by other runs
        error = (low, high) if held.measured is None and layers else (1.0, 1.0)
        devices.append(DeviceMemory(name=name, layers=named, parts=tuple(parts), capacity_bytes=capacity, error=error))
    return tuple(devices)


def _needs(scenario: Resolved) -> Iterator[str]:
    """Constants with the interval of memory: of any model, and of what is known less well."""
    yield "memory_need"
    if any(layer.experts is not None for layer in scenario.workload.layers):
        yield "memory_need_experts"
    if any(chunk.gathers for stage in scenario.strategy.held(scenario) for chunk in stage):
        yield "memory_need_gathered"


def _evidence(scenario: Resolved, devices: Iterable[DeviceMemory]) -> str:
    """Runs that the widest of the intervals comes from, or that the scenario gives its own."""
    if all(device.error == (1.0, 1.0) for device in devices):
        return ""
    name = list(_needs(scenario))[-1]
    return "interval set by the scenario" if name in scenario.practice else constants()[name].prior.source.partition(":")[0]


def _between(layers: Sequence[Layer], chunk: Held) -> str:
    first, last = layers[chunk.first], layers[(chunk.last or len(layers)) - 1]
    return first.name if first is last else f"{first.name} to {last.name}"


def _shared(parts: Iterable[Part], replicas: int) -> list[Part]:
    """Parts of all replicas that share a device."""
    if replicas == 1:
        return list(parts)
    return [
        part
        if part.size_bytes is None
        else part.replaced({"size_bytes": part.size_bytes * replicas, "text": f"{part.text}; of {replicas} replicas"})
        for part in parts
    ]


def _reserve(device: Accelerator) -> Part:
    """Return the GPU memory that TensorFlow reserves for CUDA and its libraries, by compute capability.

    ``MinSystemMemory`` in tensorflow/core/common_runtime/gpu/gpu_device.cc: 500 MiB up to
    capability 6, 1,050 MiB of 7, 1,536 MiB of 8, 1,800 MiB beyond. Fragmentation is not in it
    (ZeRO, section 3.2, has seen up to 30% of memory lost to it).
    """
    size_bytes = _RESERVES.get(device.generation, _NEWER) * _MIB
    return Part(name="reserve", size_bytes=size_bytes, text=f"for CUDA and its libraries on {device.generation}, as TensorFlow keeps back")


class _Device:
    """One kind of devices: the chunks of the model that it holds, each with the layers in it."""

    def __init__(self, scenario: Resolved, chunks: Sequence[Held], device: Accelerator | None) -> None:
        self.scenario, self.chunks, self.device, self.load = scenario, chunks, device, scenario.workload
        self.micro_batch = -(-scenario.batch // scenario.training.micro_batches)
        self.samples = self.micro_batch / chunks[0].context
        self.mixed = self.load.precision.startswith("mixed")
        self.value_bytes = parameter_bytes_of(self.load.precision)
        self.values = values_of(self.load)
        self.optimizer = optimizer_of(scenario)
        as_measured = self.load.recast is None and _as_measured(scenario, chunks)
        self.measured = _measured_at(self.load, self.micro_batch) if as_measured else None

    def parts(self) -> list[Part]:
        """Return all parts except the framework's reserve."""
        parts = [self._parameters(), self._gradients(), self._slots()]
        if self.measured is not None:
            parts.append(self._beyond(self.measured))
        elif self.load.layers:
            # logits are gone when the backward pass of a layer begins
            parts += [self._activations(), max(self._backward(), self._logits(), key=_size_of), self._input(), *self._workspace()]
        else:
            parts += [Part(name="activations", text=self._why_not_known()), self._input()]
        parts += [self._gathered(), self._buckets()]
        return [part for part in parts if part.size_bytes != 0 or part.name in ("parameters", "gradients", "optimizer")]

    # -- parameters, gradients, slots --------------------------------------------------

    def _pieces(self, chunk: Held) -> Sequence[Sequence[Owned]]:
        """Variables of a chunk by layer, if on the device."""
        layers = layers_of(self.load, chunk)
        if not chunk.on_host:
            return layers
        names = [layer.name for layer in self.load.layers[chunk.first : chunk.last]]
        return [layer for layer, name in zip(layers, names, strict=True) if name not in chunk.on_host]

    def _layers(self, chunk: Held) -> list[Layer]:
        """Layers that are on the device."""
        return [layer for layer in self.load.layers[chunk.first : chunk.last] if layer.name not in chunk.on_host]

    def _held(self, size_of: Callable[[Owned], float], shards: Callable[[Held], int], *, versions: bool = False) -> float:
        """Bytes of all chunks, each shared by some devices."""
        sizes: list[float] = []
        for chunk in self.chunks:
            over, times = _over(chunk, shards(chunk)), chunk.versions if versions else 1
            sizes += [size_of(owned) / over[owned.experts] * times for piece in self._pieces(chunk) for owned in piece]
        return math.fsum(sizes)

    def _whole(self, size_of: Callable[[Owned], float], chunk: Held, shards: int) -> list[float]:
        """Bytes of each layer of a chunk that are shared, as they are before."""
        over, copied = _over(chunk, shards), chunk.gathers and self.mixed
        return [math.fsum(size_of(owned) for owned in piece if over[owned.experts] > 1 or copied) for piece in self._pieces(chunk)]

    def _parameter_bytes(self, owned: Owned) -> float:
        """In mixed precision what is computed with: a copy in 16 bits of variables that belong to the optimizer's state."""
        return float(owned.variable.size_bytes * self.values.parameters) * owned.share

    def _gradient_bytes(self, owned: Owned) -> float:
        return owned.gradient_bytes(self.scenario.batch)

    def _slot_bytes(self, owned: Owned) -> float:
        """The optimizer's own, and in mixed precision the variable itself, in 32 bits as they are."""
        slots = self.optimizer is not None and not owned.frozen
        own = _slots_of(owned.variable, self.optimizer, self.value_bytes) if slots and self.optimizer is not None else 0.0
        return (float(owned.variable.size_bytes) * self.values.masters + own) * owned.share

    def _parameters(self) -> Part:
        held = self.chunks[0]
        if held.gathers and self.mixed:
            return Part(name="parameters", size_bytes=0.0, text="in 16 bits while they are gathered, in 32 with the optimizer's")
        size = self._held(self._parameter_bytes, lambda chunk: chunk.parameter_shards, versions=True)
        versions = max(chunk.versions for chunk in self.chunks)
        text = f"{self.value_bytes} bytes each" if not self.mixed else "2 bytes each, for computing"
        if self.mixed and not held.slot_shards:  # what was pulled is in 32 bits
            size, text = (
                size / self.values.parameters * (1 + self.values.parameters),
                "4 bytes each as pulled, and 2 for computing",
            )
        text += f"; {versions} versions" if versions > 1 else ""
        return Part(name="parameters", size_bytes=size, text=f"{text}{_split(held)}{_sharded(held.parameter_shards)}")

    def _gradients(self) -> Part:
        """Kept in 16 bits, they are copied to 32 for the update (``estimate_zero2_model_states_mem_needs`` of DeepSpeed has both)."""
        held, each_bytes, copy = self.chunks[0], self.value_bytes, ""
        size = self._held(self._gradient_bytes, lambda chunk: chunk.gradient_shards)
        if held.short_gradients:
            size = size * self.values.parameters + self._held(self._gradient_bytes, lambda chunk: chunk.slot_shards)
            each_bytes, copy = 2, f"; {each_bytes} in a copy for the update{_sharded(held.slot_shards)}"
        return Part(name="gradients", size_bytes=size, text=f"{each_bytes} bytes each{_sharded(held.gradient_shards)}{copy}")

    def _slots(self) -> Part:
        held = self.chunks[0]
        if not held.slot_shards:
            return Part(name="optimizer", size_bytes=0.0, text="on parameter servers")
        if self.optimizer is None:
            why = "included in the measured memory" if _peaks(self.load) else "training.optimizer is not given"
            return Part(name="optimizer", text=why)
        size = self._held(self._slot_bytes, lambda chunk: chunk.slot_shards)
        assumed = " (assumed)" if self.scenario.training.optimizer is None else ""
        master = " and variables of 4 bytes each" if self.mixed else f", {self.value_bytes} bytes each" * (self.value_bytes != 4)
        return Part(name="optimizer", size_bytes=size, text=f"slots of {self.optimizer}{assumed}{master}{_sharded(held.slot_shards)}")

    # -- activations -------------------------------------------------------------------

    def _activations(self) -> Part:
        """Activations of micro-batches in flight, without recomputed ones, at the time when all chunks together have most.

        Of interleaved stages the first then has those of v p + p - 1 chunks, L (1 + (p - 1) / (p v)) layers (Korthikanti et al.,
        section 4.2.3).
        """
        stored = [self._stored_of(chunk) for chunk in self.chunks]
        moments: Iterable[Sequence[int]] = zip(*(chunk.in_flight for chunk in self.chunks), strict=True)
        if self.scenario.training.offload:  # what is computed with, and what is on its way
            inputs = [[self._stored(*layer, chunk) for layer in self._with_inputs(chunk)] for chunk in self.chunks]
            stored = [2 * max(sizes, default=0.0) for sizes in inputs]
            moments = [[1] * len(self.chunks)]
        size = max(math.fsum(count * bytes_of_one for count, bytes_of_one in zip(counts, stored, strict=True)) for counts in moments)
        flying = most_in_flight(self.chunks)
        text = f"of {f'{flying} micro-batches' if flying > 1 else 'a batch'} of {counted(self.micro_batch, 'sample')}"
        text += f", 1/{self.chunks[0].context} of each sequence" if self.chunks[0].context > 1 else ""
        if self.scenario.training.recompute != "none":
            text += f"; {self.scenario.training.recompute} recomputation"
        if self.scenario.training.offload:
            text = f"of one layer and the next, {text}; the rest is on the host"
        return Part(name="activations", size_bytes=size * self.samples * self.values.activations, text=text)

    def _stored_of(self, chunk: Held) -> float:
        """Bytes per sample that a chunk keeps from its forward to its backward pass."""
        return math.fsum(self._stored(layer, before, chunk) for layer, before in self._with_inputs(chunk))

    def _with_inputs(self, chunk: Held) -> Iterator[tuple[Layer, float]]:
        """Yield layers that are on the device, each with the bytes per sample that it gets."""
        before = self._input_of(chunk)
        for layer in self.load.layers[chunk.first : chunk.last]:
            if layer.name not in chunk.on_host:
                yield layer, before
            before = layer.output_bytes_per_sample

    def _input_of(self, chunk: Held) -> float:
        """Bytes per sample that the first layer of a chunk gets; those of the model's input are a part of their own."""
        return float(self.load.layers[chunk.first - 1].output_bytes_per_sample) if chunk.first else 0.0

    def _stored(self, layer: Layer, input_bytes: float, chunk: Held) -> float:
        """Bytes per sample that a layer keeps from its forward to its backward pass."""
        recompute, kept = self.scenario.training.recompute, float(layer.kept_bytes_per_sample)
        if recompute == "full":
            return min(kept, input_bytes / (chunk.tensor if chunk.sequence and layer.tensor is not None else 1))
        if recompute == "selective" and layer.kept_selectively_bytes_per_sample is not None:
            kept = float(layer.kept_selectively_bytes_per_sample)
        return _split_kept(layer, kept, chunk)

    def _backward(self) -> Part:
        """Return what is computed again, and gradients inside: there once, of the layer that needs most."""
        recompute, most = self.scenario.training.recompute, 0.0
        for chunk in self.chunks:
            for layer in self._layers(chunk):
                size = layer.temporary_bytes_per_sample / (chunk.tensor if layer.tensor is not None else 1)
                if recompute != "none":
                    stored = self._stored(layer, 0.0, chunk) if recompute == "selective" else 0.0
                    size += _split_kept(layer, float(layer.kept_bytes_per_sample), chunk) - stored
                most = max(most, size)
        return Part(
            name="backward",
            size_bytes=most * self.samples * self.values.activations,
            text="gradients inside a layer" + ", and its activations, computed again" * (recompute != "none"),
        )

    def _logits(self) -> Part:
        """Logits of micro-batches in flight, and what the cross-entropy of one of them takes besides."""
        scenario, kept_bytes, sizes = self.scenario, 0.0, []
        head = scenario.training.head or self._usual_head()
        each, wide = HEADS[head], self.load.precision == "float32"
        for chunk in self.chunks:
            for layer in self._layers(chunk):
                count = layer.logits_per_sample * self.samples / (chunk.tensor if layer.tensor is not None else 1)
                if each.tokens is not None and self.load.transformer is not None:
                    count *= min(each.tokens / (self.samples * self.load.transformer.sequence), 1.0)
                kept_bytes += count * each.kept * max(chunk.in_flight)
                sizes.append(count * max(each.more - _SHORT_LOGIT_BYTES * wide, 0))
        kept = f"{each.kept:g} bytes each kept, {each.more:g} more" if each.kept else f"{each.more:g} bytes each, of {each.tokens:,} tokens"
        return Part(name="logits", size_bytes=kept_bytes + max(sizes, default=0.0), text=f"{kept} while the cross-entropy runs ({head})")

    def _usual_head(self) -> Head:
        """The cross-entropy of the software that most likely runs it."""
        model = self.load.transformer
        separate = model is not None and model.kernels == "separate"
        return "plain" if separate or any(chunk.gradient_shards > 1 or chunk.parameter_shards > 1 for chunk in self.chunks) else "parallel"

    def _workspace(self) -> Iterator[Part]:
        """Yield what the libraries of matrix products take from the framework's allocator: measured, and more from Hopper on.

        cuBLAS has 8 MiB in each of PyTorch's handles before Hopper and 32 MiB from it on, or where algorithms are deterministic
        (``CUBLAS_WORKSPACE_CONFIG``). Products of several experts run on four streams, each with Transformer Engine's 4 or 32 MiB.
        """
        if self.device is None:
            return
        experts = [layer.experts for chunk in self.chunks for layer in self._layers(chunk)]
        newer, grouped = self.device.newer, any(each is not None and each.grouped for each in experts)
        size_bytes = _WORKSPACE_BYTES if self.scenario.training.deterministic is not False else _SMALL_WORKSPACE_BYTES
        size_bytes = (_NEWER_WORKSPACE_BYTES if newer else size_bytes) + grouped * _STREAMS * (32 if newer else 4) * _MIB
        yield Part(name="workspace", size_bytes=size_bytes, text=f"for matrix products on {self.device.generation}, as measured")

    def _why_not_known(self) -> str:
        """Say why the activations of a workload without layers are unknown."""
        if self.load.recast is not None:
            return f"the workload {self.load.name!r} was measured in another precision and has no layers"
        if peaks := _peaks(self.load):
            return f"the smallest batch whose peak memory was measured has {min(peaks):g} samples, more than {self.micro_batch:,}"
        return f"the workload {self.load.name!r} has neither layers nor measured peak memory"

    def _beyond(self, peak_bytes: float) -> Part:
        """Return the measured memory of the whole model beyond its parameters and gradients, and slots if known."""
        sizes = [self._parameter_bytes, self._gradient_bytes, *([self._slot_bytes] if self.optimizer is not None else [])]
        known = math.fsum(size_of(Owned(variable, 1.0)) for size_of in sizes for variable in self.load.variables)
        batches = ", ".join(f"{batch:g}" for batch in _peaks(self.load))
        return Part(
            name="activations",
            size_bytes=max(peak_bytes - known, 0.0),
            text=f"everything else for a batch of {counted(self.micro_batch, 'sample')}, from the peaks measured with {batches} samples",
        )

    # -- what comes and goes -----------------------------------------------------------

    def _gathered(self) -> Part:
        """Parameters that are shared out come together: for a layer while the next one's are fetched, or once for all of a step.

        FSDP keeps those of embedding and head, and has those of each layer twice while they come: as one message, and as tensors
        (``fully_shard`` of PyTorch; measured in evidence.studies.gpu_runs).
        """
        size, kept = 0.0, any(chunk.gathered is None for chunk in self.chunks)
        more = max(chunk.gathered or 1 for chunk in self.chunks) - 1
        whole = [(chunk, self._whole(self._parameter_bytes, chunk, chunk.parameter_shards)) for chunk in self.chunks]
        layers = [size_bytes for _, sizes in whole for size_bytes in sizes]
        if layers:
            size = math.fsum(layers) if kept else min((1 + more) * max(layers), math.fsum(layers))
        if self.load.layers and self.mixed and self.chunks[0].gathers and not kept:
            named = [pair for chunk, sizes in whole for pair in zip(self._layers(chunk), sizes, strict=True)]
            ends = [size_bytes for layer, size_bytes in named if layer.logits_per_sample]
            inner = [size_bytes for layer, size_bytes in named if not layer.logits_per_sample and layer is not self.load.layers[0]]
            ends += [size_bytes for layer, size_bytes in named if layer is self.load.layers[0]]
            size = min(math.fsum(ends) + 2 * (1 + more) * max(inner, default=0.0), math.fsum(layers))
        following = {0: "", 1: " and the next one"}.get(more, f" and the next {more}")
        text = "for all layers, kept from the first to the last micro-batch" if kept else f"for the current layer{following}"
        return Part(name="gathered", size_bytes=size, text=text)

    def _buckets(self) -> Part:
        """Gradients are copied into a buffer that is reduced as one: of each device the largest, all of them, or none."""
        scenario, reduction, size = self.scenario, self.scenario.strategy.reduction, 0.0
        if reduction is not None and reduction.buckets_held == "none":
            return Part(name="buckets", size_bytes=0.0, text="gradients lie in the buffer that is reduced")
        if reduction is not None and scenario.replicas > 1:
            sizes = [bucket.size_bytes for bucket in reduction.buckets(self.load, scenario.batch, scenario.replicas)]
            held = max(sizes) if reduction.buckets_held == "largest" else math.fsum(sizes)
            size = min(held, self._held(self._gradient_bytes, lambda _: 1))
        else:
            size = max(self._fused_bytes(chunk) for chunk in self.chunks)
        return Part(name="buckets", size_bytes=size, text="gradients that are reduced together")

    def _fused_bytes(self, chunk: Held) -> float:
        """The most that a chunk reduces as one of gradients that are not kept whole."""
        shared = self._whole(self._gradient_bytes, chunk, chunk.gradient_shards)
        if not any(shared):
            return 0.0
        if chunk.fused and not self.load.layers:
            filled = buckets(self.load, self.scenario.batch, chunk.fused / chunk.reduced, self.scenario.replicas)
            return max(size_bytes for _, size_bytes in filled) * chunk.reduced
        sizes = [math.fsum(self._gradient_bytes(owned) for owned in piece) * chunk.reduced for piece in self._pieces(chunk)]
        return max(math.fsum(shared[number] for number in numbers) for numbers in fused(sizes, chunk.fused)) * chunk.reduced

    def _input(self) -> Part:
        """The input batch, on the first stage."""
        if self.load.layers and all(chunk.first for chunk in self.chunks):
            return Part(name="input", size_bytes=0.0, text="of the first stage")
        each = self.load.input_bytes_per_sample
        if each is None:
            return Part(name="input", text="workload.input_bytes_per_sample is not given")
        return Part(name="input", size_bytes=each * self.samples, text=counted(self.micro_batch, "sample"))


def _over(chunk: Held, shards: int) -> tuple[int, int]:
    """Devices that share a variable, and a variable of experts, if ``shards`` copies shard one state."""
    return max(chunk.sharing(shards).shards, 1), max(chunk.sharing(shards, experts=True).shards, 1)


# -- rules ---------------------------------------------------------------------------------


def state_bytes(scenario: Resolved) -> float:
    """Bytes of a checkpoint: variables and their slots, of the most common optimizer if none is given."""
    return float(math.fsum(variable.size_bytes + slot_bytes(scenario, variable) for variable in scenario.workload.variables))


def slot_bytes(scenario: Resolved, variable: Variable) -> float:
    """Bytes of a variable's slots, of the most common optimizer if none is given."""
    return _slots_of(variable, optimizer_of(scenario) or ASSUMED_OPTIMIZER, parameter_bytes_of(scenario.workload.precision))


def _slots_of(variable: Variable, optimizer: Optimizer, value_bytes: int) -> float:
    """Bytes of an optimizer's slots for one variable, whose values have as many bytes as its own."""
    factors = 0.0
    if optimizer == "adafactor" and variable.rows is not None and value_bytes * variable.rows < variable.size_bytes:
        factors = value_bytes * variable.rows + variable.size_bytes / variable.rows
    return float(variable.size_bytes * SLOTS[optimizer] + factors)


def _split_kept(layer: Layer, kept: float, chunk: Held) -> float:
    """Return what each of the devices that split a layer keeps of its activations (Korthikanti et al., equations 2 to 4).

    Tokens that were sent to experts are whole on each of the devices that split one.
    """
    if layer.tensor is None or chunk.tensor == 1:
        return kept
    whole = 0.0 if chunk.sequence else min(layer.tensor.kept_whole * float(layer.kept_bytes_per_sample), kept)
    sent = min(layer.experts.kept_bytes_per_sample, kept - whole) if layer.experts is not None else 0.0
    return whole + (sent * (chunk.expert_tensor or chunk.tensor) + kept - whole - sent) / chunk.tensor


def _size_of(part: Part) -> float:
    return part.size_bytes or 0.0


def _split(held: Held) -> str:
    return f", split over {held.tensor} devices" if held.tensor > 1 else ""


def _sharded(shards: int) -> str:
    return f", sharded over {shards} devices" if shards > 1 else ""


# -- measured peaks ------------------------------------------------------------------------


def _peaks(load: Workload) -> dict[float, float]:
    """Peak memory by batch, smallest first; never less than that of a smaller batch."""
    given = load.fit.peak_memory_bytes if load.fit is not None else {}
    batches = sorted((float(batch), peak) for batch, peak in given.items())
    highest = np.maximum.accumulate([peak for _, peak in batches])
    return {batch: float(peak) for (batch, _), peak in zip(batches, highest, strict=True)}


def _as_measured(scenario: Resolved, chunks: Sequence[Held]) -> bool:
    """Tell whether activations are what they were when peaks were measured: of the whole model, on one device, each kept."""
    if not _peaks(scenario.workload) or len(chunks) > 1:
        return False
    held, layers = chunks[0], len(scenario.workload.layers)
    whole = (
        held.first == 0
        and held.last in (None, layers)
        and not held.on_host
        and held.tensor == held.context == 1
        and held.expert == 1
        and held.in_flight == (1,)
    )
    return not layers or (whole and scenario.training.recompute == "none")


def _measured_at(load: Workload, batch: float) -> float | None:
    """Peak bytes with a batch, linear between those measured and beyond; none below the smallest, whose peak decides nothing there."""
    peaks = _peaks(load)
    if batch < min(peaks):
        return None
    *_, largest = peaks
    need = float(np.interp(batch, list(peaks), list(peaks.values())))
    if batch > largest and len(peaks) > 1:
        (before, low), (last, high) = list(pairwise(peaks.items()))[-1]
        need += (high - low) / (last - before) * (batch - last)
    return need


_LARGEST_BATCH = 10**9
"""Limit of a replica's batch, as in workloads."""
_STATE: tuple[PartName, ...] = ("parameters", "gradients", "optimizer", "gathered", "reserve")
"""Parts that do not shrink with the batch."""


class Memory(Short, Spec):
    """Memory of a scenario's devices, and the free part."""

    see: ClassVar[str] = "table() has every part in bytes, .refused and .not_checked have the reasons"

    scenario_hash: str = Field(description="hash of the simulated scenario")
    device: str = Field(description="device of the cluster; empty if the cluster names none")
    batch: int = Field(description="samples per replica and step")
    micro_batch: int = Field(description="samples per micro-batch")
    devices: tuple[DeviceMemory, ...] = Field(description="one entry, or one per stage of a pipeline")
    largest_batch: int | None = Field(description="largest batch of a replica that fits; null: unknown; 0: none fits")
    free_bytes: float | None = Field(
        description="smallest free memory of any device at the upper end of its interval; below 0: it may not fit; null: unknown"
    )
    refused: str | None = Field(description="why it does not fit; null if it fits or was not checked")
    not_checked: str | None = Field(description="what is unknown if it was not checked; null if it was")
    evidence: str = Field(default="", description="real runs from which the intervals come; empty: there are no intervals")

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
        """The device with the least free memory, or if unknown with the largest need."""
        return _tightest(self.devices)

    def table(self) -> Table:
        """One row per device and one column per part, in bytes."""
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
        """The parts of the tightest device, each with its composition."""
        columns = Column("part", "text"), Column("size_bytes", "bytes", "size"), Column("text", "text", "made of")
        device = self.tightest
        rows = tuple((PARTS[part.name], part.size_bytes, part.text) for part in device.parts)
        return Table(f"Memory of a device: {device.name}" if len(self.devices) > 1 else "Memory of a device", columns, rows, name="parts")

    @classmethod
    def rows_of(cls, items: Iterable[Memory]) -> list[Row]:
        """One row per device, in bytes."""
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
    """Return the memory of a scenario's devices, whether it fits, and the largest batch that does.

    Raises
    ------
    ScenarioError
        The workload cannot be scaled to the cluster's device.

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
        evidence=_evidence(resolved, devices),
    )


def does_not_fit(scenario: Resolved) -> str | None:
    """Message if a device may need more memory than it has; None if all fit or it is unknown.

    The upper end of the 90% interval of the known parts counts, so a device that cannot hold parameters and gradients is detected even if
    its activations are unknown. The message gives the device, its need, the largest part, and what to try.
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
                f"{cluster.device} has {format_bytes(device.memory_bytes)}; set a limit of at most "
                f"{format_bytes(device.memory_bytes / most)}, or fewer cluster.replicas_per_device"
            )
    tightest = _tightest(memory_of(scenario))
    if tightest.fits or tightest.capacity_bytes is None:
        return None
    each, micro_batch = cluster.replicas_per_device if limit is None else 1, _micro_batch(scenario)
    cut = "micro-batch" if micro_batch < scenario.batch else "batch"
    whose = (
        f"{each} replicas of {counted(micro_batch, 'sample')} need" if each > 1 else f"a {cut} of {counted(micro_batch, 'sample')} needs"
    )
    where = f"{tightest.name} ({', '.join(tightest.layers)}): " if tightest.layers else ""
    largest = tightest.largest
    of_it = f" ({PARTS[largest.name]} {format_bytes(largest.size_bytes or 0.0)}: {largest.text})"
    on, has = ("a device", f"{cluster.device} has") if limit is None else ("its logical device", "cluster.device_memory_limit is")
    return (
        f"{where}{whose} about {tightest.need_in_words} on {on}{of_it}, but {has} "
        f"{format_bytes(tightest.capacity_bytes)}; {_advice(scenario, tightest)}"
    )


def not_checked(scenario: Resolved) -> str | None:
    """Say why the memory of a scenario could not be checked; None if it was checked."""
    if device_of(scenario) is None and scenario.cluster.device_memory_limit_bytes is None:
        name = scenario.cluster.device
        return f"the memory of {name!r} is unknown" if name else f"the cluster {scenario.cluster.name!r} names no device"
    unknown = (
        part.text for device in memory_of(scenario) for part in device.parts if part.name == "activations" and part.size_bytes is None
    )
    return next(unknown, None)


def largest_batch(scenario: Resolved) -> int | None:
    """Largest batch of a replica with which every device fits, by bisection: a smaller batch never needs more.

    Returns
    -------
    int or None
        A multiple of the scenario's micro-batches. 0 if no batch fits. None if unknown: the device's memory or activations are unknown, or
        nothing grows with the batch.
    """
    count, device = scenario.training.micro_batches, device_of(scenario)

    def devices(micro_batch: int) -> tuple[DeviceMemory, ...]:
        batch = {"workload.batch_per_replica": micro_batch * count, "workload.global_batch": None}
        return devices_of(scenario.replaced(batch), device)

    def fits(micro_batch: int) -> bool:
        return all(device.fits for device in devices(micro_batch))

    most = _LARGEST_BATCH // count
    if not_checked(scenario) is not None or (most > 1 and fits(most)):
        return None
    low = bisect_left(range(1, most), True, key=lambda micro_batch: not fits(micro_batch))
    known = all(part.size_bytes is not None for device in devices(max(low, 1)) for part in device.parts if part.name == "activations")
    return low * count if known else None


def _micro_batch(scenario: Resolved) -> int:
    return -(-scenario.batch // scenario.training.micro_batches)


def _tightest(devices: Sequence[DeviceMemory]) -> DeviceMemory:
    return max(devices, key=lambda device: device.need_bytes)


def _advice(scenario: Resolved, device: DeviceMemory) -> str:
    """Return changes that would reduce the need; a device with more memory always helps."""
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
