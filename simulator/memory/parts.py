"""The parts of what a device holds while it trains, in bytes, from what a strategy says that it holds (:class:`Held`).

Parameters, gradients and optimizer slots follow Rajbhandari et al., "ZeRO: Memory
Optimizations Toward Training Trillion Parameter Models", SC 2020, sections 3.1 and 5;
activations, what tensor and sequence parallelism split of them and what recomputation saves
follow Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
MLSys 2023, sections 4 and 5. How many micro-batches are in flight and how many versions of
weights are stashed (Narayanan et al., "PipeDream", SOSP 2019, section 3.3) is the strategy's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from simulator.accelerator import Accelerator, accelerator_named
from simulator.defaults import optimizer_of
from simulator.layers import Layer
from simulator.resolve import resolve
from simulator.scenario import Scenario
from simulator.spec import Bytes, Spec
from simulator.strategies.setup import Held
from simulator.training import Optimizer
from simulator.workload import Variable, Workload

__all__ = ["PARTS", "SLOTS", "DeviceMemory", "Part", "PartName", "devices_of", "memory_of"]

PartName = Literal[
    "parameters", "gradients", "optimizer", "activations", "recomputed", "gathered", "buckets", "input", "reserve",
]  # fmt: skip

PARTS: Mapping[PartName, str] = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer slots",
    "activations": "activations",
    "recomputed": "layer computed again",
    "gathered": "gathered parameters",
    "buckets": "communication buckets",
    "input": "input batch",
    "reserve": "framework reserve",
}
"""Every part with its name for a reader."""

SLOTS: Mapping[Optimizer, int] = {"sgd": 0, "momentum": 1, "adagrad": 1, "rmsprop": 1, "adam": 2, "lamb": 2, "adafactor": 1}
"""Values of four bytes that an optimizer keeps of each parameter, as ``build`` of each in Keras 3 makes them, with its defaults
(tests/calibrate/test_memory.py counts them). Adafactor has besides one for each row and each column of a matrix (Shazeer and
Stern, ICML 2018, section 4, who keep nothing else of it)."""

_FLOAT32_BYTES = 4.0
_MIXED = 0.5
"""Bytes of a parameter and of a gradient in 16 bits over those in 32."""

_RESERVES = {"Kepler": 500, "Maxwell": 500, "Pascal": 500, "Volta": 1050, "Turing": 1050, "Ampere": 1536}
_NEWER = 1800
_MIB = 2.0**20


class Part(Spec):
    """One part of what a device holds."""

    name: PartName
    size_bytes: Bytes | None = Field(default=None, ge=0, description="on the device; left out: not known")
    text: str = Field(description="what it is made of, or why it is not known")


class DeviceMemory(Spec):
    """What one kind of devices holds: of a pipeline those of a stage."""

    name: str = Field(description="device, or stage 1 and so on")
    layers: tuple[str, ...] = Field(default=(), description="first and last layer of each chunk of the model that it has")
    parts: tuple[Part, ...]
    capacity_bytes: Bytes | None = Field(default=None, description="of the device; left out: not known")

    @property
    def need_bytes(self) -> float:
        """Sum of all parts that are known."""
        return sum(part.size_bytes or 0.0 for part in self.parts)

    @property
    def free_bytes(self) -> float | None:
        """What is left, below 0 where it does not fit; none where the device's memory is not known."""
        return None if self.capacity_bytes is None else self.capacity_bytes - self.need_bytes

    @property
    def fits(self) -> bool:
        """Whether what is known of its parts fits, or the device's memory is not known."""
        return self.free_bytes is None or self.free_bytes >= 0

    @property
    def largest(self) -> Part:
        """The part that takes most."""
        return max(self.parts, key=lambda part: part.size_bytes or 0.0)

    def part(self, name: PartName) -> Part | None:
        """One of its parts; none where it has none of it."""
        return next((part for part in self.parts if part.name == name), None)


def memory_of(scenario: Scenario) -> tuple[DeviceMemory, ...]:
    """What each kind of devices of a scenario holds at its peak.

    A batch that is cut into micro-batches is held one micro-batch at a time, or as many as
    the strategy has in flight. Where the workload has no layers, or is one whose peak memory
    was measured and that nothing cuts, activations are what was measured beyond parameters
    and gradients, linear between batch sizes; with neither they are not known.

    Returns
    -------
    tuple of DeviceMemory
        In the order of the stages. Parts that are 0 whatever the batch are left out.

    Raises
    ------
    ScenarioError
        The workload cannot be moved to the cluster's device.
    """
    return devices_of(resolve(scenario).scenario)


def devices_of(scenario: Scenario) -> tuple[DeviceMemory, ...]:
    """The same of a scenario that is resolved already."""
    stages = scenario.strategy.held(scenario)
    device = accelerator_named(scenario.cluster.device) if scenario.cluster.device else None
    capacity = device.memory_bytes if device is not None else None
    layers = scenario.workload.layers
    found = []
    for number, chunks in enumerate(stages):
        parts = _shared(_Device(scenario, chunks).parts(), scenario.cluster.replicas_per_device)
        if device is not None and capacity is not None:
            parts.append(_reserve(device))
        named = tuple(_between(layers, chunk) for chunk in chunks) if layers and len(stages) > 1 else ()
        name = f"stage {number + 1}" if len(stages) > 1 else "device"
        found.append(DeviceMemory(name=name, layers=named, parts=tuple(parts), capacity_bytes=capacity))
    return tuple(found)


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
        else part.model_copy(update={"size_bytes": part.size_bytes * replicas, "text": f"{part.text}; of {replicas} replicas"})
        for part in parts
    ]


def _reserve(device: Accelerator) -> Part:
    """What TensorFlow leaves of a GPU's memory to CUDA and its libraries, by compute capability.

    ``MinSystemMemory`` in tensorflow/core/common_runtime/gpu/gpu_device.cc: 500 MiB up to
    capability 6, 1,050 MiB of 7, 1,536 MiB of 8, 1,800 MiB beyond. Fragmentation is not in it
    (ZeRO, section 3.2, has seen up to 30% of memory lost to it).
    """
    size_bytes = _RESERVES.get(device.generation, _NEWER) * _MIB
    return Part(name="reserve", size_bytes=size_bytes, text=f"what TensorFlow leaves to CUDA and its libraries on {device.generation}")


class _State(NamedTuple):
    """Bytes of parameters, their gradients and the optimizer's slots; slots none where the optimizer is not known."""

    parameters: float
    gradients: float
    slots: float | None


class _Device:
    """One kind of devices: the chunks of the model that it holds, each with the layers in it."""

    def __init__(self, scenario: Scenario, chunks: Sequence[Held]) -> None:
        self.scenario, self.chunks, self.load = scenario, chunks, scenario.workload
        self.micro_batch = -(-scenario.batch // scenario.training.micro_batches)
        self.mixed = self.load.precision != "float32"
        self.optimizer = optimizer_of(scenario)
        self.variables = {variable.creation_index: variable for variable in self.load.variables}

    def parts(self) -> list[Part]:
        """What is held, but for what the framework keeps to itself."""
        states = [self._state(chunk) for chunk in self.chunks]
        slots = self._slots(states)
        found = [self._parameters(states), self._gradients(states), slots]
        measured = _measured_at(self.load, self.micro_batch) if _as_measured(self.scenario, self.chunks) else None
        if measured is not None:
            found.append(self._beyond(measured))
        elif self.load.layers:
            found += [self._activations(), self._recomputed(), self._input()]
        else:
            found += [Part(name="activations", text=_why_not_known(self.load, self.micro_batch)), self._input()]
        found += [self._gathered(), self._buckets(states)]
        return [part for part in found if part.size_bytes != 0 or part.name in ("parameters", "gradients", "optimizer")]

    # -- parameters, gradients, slots --------------------------------------------------

    def _state(self, chunk: Held) -> _State:
        """Of a chunk, before it is shared with others."""
        return self._sum(self._owned(chunk))

    def _owned(self, chunk: Held) -> list[tuple[Variable, float]]:
        """Variables of a chunk, each with the share of it that one device has of those that split it."""
        if not self.load.layers:
            return [(variable, 1.0) for variable in self.load.variables]
        return [each for layer in self.load.layers[chunk.first : chunk.last] for each in self._of_layer(layer, chunk)]

    def _of_layer(self, layer: Layer, chunk: Held) -> list[tuple[Variable, float]]:
        split = 1.0 / chunk.tensor if layer.tensor is not None else 1.0
        of_experts = frozenset(layer.experts.variables) if layer.experts is not None and chunk.expert > 1 else frozenset()
        return [(self.variables[index], split / chunk.expert if index in of_experts else split) for index in layer.variables]

    def _sum(self, owned: Iterable[tuple[Variable, float]]) -> _State:
        parameters = gradients = slots = 0.0
        for variable, share in owned:
            parameters += variable.size_bytes * share
            gradients += variable.gradient_bytes(self.micro_batch) * share
            slots += _slot_bytes(variable, self.optimizer) * share
        if self.mixed:
            slots += parameters  # the master weights
            parameters, gradients = parameters * _MIXED, gradients * _MIXED
        return _State(parameters, gradients, None if self.optimizer is None else slots)

    def _parameters(self, states: Sequence[_State]) -> Part:
        size = sum(state.parameters * its.versions / its.parameter_shards for state, its in zip(states, self.chunks, strict=True))
        held = self.chunks[0]
        versions = f"; {max(its.versions for its in self.chunks)} versions" if any(its.versions > 1 for its in self.chunks) else ""
        text = f"{'2' if self.mixed else '4'} bytes each{versions}{_split(held)}{_sharded(held.parameter_shards)}"
        return Part(name="parameters", size_bytes=size, text=text)

    def _gradients(self, states: Sequence[_State]) -> Part:
        size = sum(state.gradients / its.gradient_shards for state, its in zip(states, self.chunks, strict=True))
        text = f"{'2' if self.mixed else '4'} bytes each{_sharded(self.chunks[0].gradient_shards)}"
        return Part(name="gradients", size_bytes=size, text=text)

    def _slots(self, states: Sequence[_State]) -> Part:
        held = self.chunks[0]
        if not held.slot_shards:
            return Part(name="optimizer", size_bytes=0.0, text="on parameter servers")
        if self.optimizer is None:
            why = "in what was measured" if _peaks(self.load) else "training.optimizer is not given"
            return Part(name="optimizer", text=why)
        size = sum((state.slots or 0.0) / its.slot_shards for state, its in zip(states, self.chunks, strict=True))
        assumed = " (assumed)" if self.scenario.training.optimizer is None else ""
        master = " and master weights of 4 bytes each" if self.mixed else ""
        text = f"slots of {self.optimizer}{assumed}{master}{_sharded(held.slot_shards)}"
        return Part(name="optimizer", size_bytes=size, text=text)

    # -- activations -------------------------------------------------------------------

    def _activations(self) -> Part:
        """Of the micro-batches in flight, of all layers but what is computed again."""
        size = 0.0
        for chunk in self.chunks:
            before = self._input_of(chunk)
            for layer in self.load.layers[chunk.first : chunk.last]:
                size += self._stored(layer, before, chunk) * self.micro_batch * chunk.in_flight
                before = layer.output_bytes_per_sample
        flying = max(chunk.in_flight for chunk in self.chunks)
        text = f"of {f'{flying} micro-batches' if flying > 1 else 'a batch'} of {self.micro_batch:,} samples"
        if self.scenario.training.recompute != "none":
            text += f"; {self.scenario.training.recompute} recomputation"
        return Part(name="activations", size_bytes=size, text=text)

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

    def _recomputed(self) -> Part:
        """What is computed again is there once, of the layer that needs most."""
        recompute, most = self.scenario.training.recompute, 0.0
        for chunk in self.chunks if recompute != "none" else ():
            for layer in self.load.layers[chunk.first : chunk.last]:
                stored = self._stored(layer, 0.0, chunk) if recompute == "selective" else 0.0
                most = max(most, _split_kept(layer, float(layer.kept_bytes_per_sample), chunk) - stored)
        return Part(name="recomputed", size_bytes=most * self.micro_batch, text="activations of one layer in its backward pass")

    def _beyond(self, peak_bytes: float) -> Part:
        """What was measured of the whole model beyond its parameters and gradients, and slots where they are known."""
        whole = self._sum((variable, 1.0) for variable in self.load.variables)
        known = whole.parameters + whole.gradients + (whole.slots or 0.0)
        batches = ", ".join(f"{batch:g}" for batch in _peaks(self.load))
        return Part(
            name="activations",
            size_bytes=max(peak_bytes - known, 0.0),
            text=f"all else of a batch of {self.micro_batch:,} samples, by the peaks measured with {batches} samples",
        )

    # -- what comes and goes -----------------------------------------------------------

    def _gathered(self) -> Part:
        """Parameters that are shared out come together for a layer while the next one's are fetched."""
        sizes = [
            self._sum(owned).parameters for chunk in self.chunks if chunk.parameter_shards > 1 for owned in self._pieces(chunk)
        ]  # fmt: skip
        return Part(name="gathered", size_bytes=2 * max(sizes, default=0.0), text="of the layer that computes and of the next one")

    def _pieces(self, chunk: Held) -> list[list[tuple[Variable, float]]]:
        """What comes together at a time: the variables of a layer, or one of a workload without."""
        if not self.load.layers:
            return [[(variable, 1.0)] for variable in self.load.variables]
        return [self._of_layer(layer, chunk) for layer in self.load.layers[chunk.first : chunk.last]]

    def _buckets(self, states: Sequence[_State]) -> Part:
        """Gradients are copied into a buffer that is reduced as one: of each device the largest."""
        scenario, size = self.scenario, 0.0
        reduction, own = scenario.strategy.reduction, sum(state.gradients for state in states)
        if reduction is not None and scenario.replicas > 1:
            size = max(bucket.size_bytes for bucket in reduction.buckets(self.load, scenario.batch, scenario.replicas))
            size *= _MIXED if self.mixed else 1.0
        elif any(chunk.gradient_shards > 1 for chunk in self.chunks):
            size = max(self._sum(owned).gradients for chunk in self.chunks for owned in self._pieces(chunk))
        return Part(name="buckets", size_bytes=min(size, own), text="gradients that are reduced as one")

    def _input(self) -> Part:
        """The batch itself, where the model begins."""
        if self.load.layers and all(chunk.first for chunk in self.chunks):
            return Part(name="input", size_bytes=0.0, text="of the first stage")
        each = self.load.input_bytes_per_sample
        if each is None:
            return Part(name="input", text="workload.input_bytes_per_sample is not given")
        return Part(name="input", size_bytes=each * self.micro_batch, text=f"{self.micro_batch:,} samples")


# -- rules ---------------------------------------------------------------------------------


def _slot_bytes(variable: Variable, optimizer: Optimizer | None) -> float:
    """Bytes of an optimizer's slots for one variable, which are in 32 bits."""
    if optimizer is None:
        return 0.0
    factors = 0.0
    if optimizer == "adafactor" and variable.rows is not None and _FLOAT32_BYTES * variable.rows < variable.size_bytes:
        factors = _FLOAT32_BYTES * variable.rows + variable.size_bytes / variable.rows
    return float(variable.size_bytes * SLOTS[optimizer] + factors)


def _split_kept(layer: Layer, kept: float, chunk: Held) -> float:
    """What each of the devices that split a layer keeps of its activations (Korthikanti et al., equations 2 to 4)."""
    if layer.tensor is None or chunk.tensor == 1:
        return kept
    whole = 0.0 if chunk.sequence else min(layer.tensor.kept_whole * float(layer.kept_bytes_per_sample), kept)
    return whole + (kept - whole) / chunk.tensor


def _split(held: Held) -> str:
    return f", split over {held.tensor} devices" if held.tensor > 1 else ""


def _sharded(shards: int) -> str:
    return f", shared by {shards} devices" if shards > 1 else ""


# -- measured peaks ------------------------------------------------------------------------


def _peaks(load: Workload) -> dict[float, float]:
    """Peak memory by batch, smallest first; never less than that of a smaller batch."""
    given = load.fit.peak_memory_bytes if load.fit is not None else {}
    batches = sorted((float(batch), peak) for batch, peak in given.items())
    highest = np.maximum.accumulate([peak for _, peak in batches])
    return {batch: float(peak) for (batch, _), peak in zip(batches, highest, strict=True)}


def _as_measured(scenario: Scenario, chunks: Sequence[Held]) -> bool:
    """Whether activations are what they were when peaks were measured: of the whole model, on one device, each kept."""
    if not _peaks(scenario.workload) or len(chunks) > 1:
        return False
    held, layers = chunks[0], len(scenario.workload.layers)
    whole = held.first == 0 and held.last in (None, layers) and held.tensor == 1 and held.expert == 1 and held.in_flight == 1
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


def _why_not_known(load: Workload, batch: int) -> str:
    """Why the activations of a workload without layers are not known."""
    if peaks := _peaks(load):
        return f"the smallest batch whose peak memory was measured has {min(peaks):g} samples, more than {batch:,}"
    return f"the workload {load.name!r} has neither layers nor measured peak memory"
