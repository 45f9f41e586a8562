"""What the parts of a model cost that a hybrid gives to its devices: seconds of their passes, bytes that they hand on, exchange and reduce.

A layer's pass takes its share of the time that the whole model's pass of as many samples
takes; where its tensors are split over devices, their part of the work is divided, while
the host starts as many kernels as before. Bytes of memory are in ``simulator.memory``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import numpy as np

from simulator.spec.gradients import buckets
from simulator.spec.layers import Layer, balanced
from simulator.spec.training import Training
from simulator.spec.workload import Affine, Workload
from simulator.strategies.holding import Held, Model, Owned, Values, fused, layers_of
from simulator.strategies.setup import Setup


class Reduced(NamedTuple):
    """Gradients that are reduced as one.

    Attributes
    ----------
    chunk
        Whose backward pass makes them.
    layers
        That this has gone through since those that are reduced before.
    dense_bytes, expert_bytes
        Of variables that all copies have, and of those of experts that are spread over copies, as a rank has them.
    """

    chunk: int
    layers: Sequence[Part]
    dense_bytes: float
    expert_bytes: float


class Costs:
    """What the parts of a model cost.

    Parameters
    ----------
    setup
        With devices that split tensors taken together (:mod:`simulator.resolve.drawing`).
    chunks
        What devices hold of each part, in the model's order.
    split
        How a micro-batch's work is split.
    values
        Bytes of a value, of each kind.
    bucket_size_bytes
        Of gradients that are reduced as one; None: all of a part.
    """

    def __init__(self, setup: Setup, chunks: Sequence[Held], split: Split, values: Values, bucket_size_bytes: float | None) -> None:
        self._setup, self._bucket_size_bytes = setup, bucket_size_bytes
        self._samples = setup.batch / setup.training.micro_batches
        self._chunks, self._split, self._values = chunks, split, values

    @property
    def whole(self) -> Held:
        """Who has, and shares, whatever part it is."""
        return self._chunks[0]

    @cached_property
    def parts(self) -> list[Part]:
        """Of the whole model, in order."""
        return self._of(self._chunks) if self._setup.workload.layers else [self._undivided()]

    def _of(self, chunks: Sequence[Held]) -> list[Part]:
        setup = self._setup
        return parts_of(setup.workload, chunks, self._samples, self._split, setup.training, self._values, setup.batch)

    @cached_property
    def _each_layer(self) -> list[Held]:
        return [chunk._replace(first=at, last=at + 1) for chunk in self._chunks for at in range(chunk.first, chunk.last or 0)]

    @cached_property
    def _layers(self) -> list[Part]:
        return self._of(self._each_layer)

    def layers_of(self, part: Part) -> list[Part]:
        """Each layer of a part by itself."""
        return self._layers[part.first : part.last] if self._setup.workload.layers else [part]

    def experts_s(self, chunks: Sequence[Held]) -> list[float]:
        """Of each layer of some chunks, seconds of a micro-batch's passes that grow with the tokens of the busiest device."""
        layers = [at for chunk in chunks for at in range(chunk.first, chunk.last or 0)]
        none = parts_of(
            self._setup.workload, self._each_layer, self._samples, self._split._replace(tokens=0.0), self._setup.training, self._values,
            self._setup.batch,
        )  # fmt: skip
        both = [(self._layers[at], none[at]) for at in layers]
        return [(of.forward_s + of.backward_s + of.again_s) - (no.forward_s + no.backward_s + no.again_s) for of, no in both]

    def _undivided(self) -> Part:
        """All of a workload without layers, which only its batch can be cut of."""
        load, setup = self._setup.workload, self._setup
        forward_s = load.forward(self._samples)
        again_s = forward_s if setup.training.recompute == "full" else 0.0
        owned = [one for its in layers_of(load, self.whole) for one in its]
        state, none = state_of(owned, 1, self._values, setup.batch), Exchanged()
        return Part(0, 0, forward_s, load.backward(self._samples), again_s, none, none, 0.0, 0.0, state, State())

    def reduced(self, chunk: int, part: Part) -> list[Reduced]:
        """What of a part's gradients is reduced as one, in the order in which it becomes ready."""
        setup, bucket_size_bytes = self._setup, self._bucket_size_bytes
        whole = [Reduced(chunk, [part], part.dense.gradient_bytes, part.experts.gradient_bytes)]
        if bucket_size_bytes is None:
            return whole
        if not setup.workload.layers:
            filled = buckets(setup.workload, setup.batch, bucket_size_bytes / self._values.reduced, setup.layout.replicas)
            shares = np.diff([ready for ready, _ in filled], prepend=0.0).tolist()
            pieces = [part._replace(backward_s=part.backward_s * share, again_s=part.again_s * share) for share in shares]
            return [
                Reduced(chunk, [piece], size_bytes * self._values.reduced, 0.0)
                for piece, (_, size_bytes) in zip(pieces, filled, strict=True)
            ]
        layers = self.layers_of(part)
        of_device = [(layer.dense.gradient_bytes + layer.experts.gradient_bytes) / self.whole.tensor for layer in layers]
        found: list[Reduced] = []
        for numbers in fused(of_device, bucket_size_bytes):
            its = [layers[number] for number in numbers]
            dense, experts = (
                math.fsum(layer.dense.gradient_bytes for layer in its),
                math.fsum(layer.experts.gradient_bytes for layer in its),
            )
            found.append(Reduced(chunk, its, dense, experts))
        return found if len(found) > 1 else whole

    def applied(self, parts: Sequence[Part]) -> float:
        """Share of the whole model's update that a device makes: of what it has, and does not leave to those that share it."""
        model, batch = Model(self._setup.workload), self._setup.batch
        first = {part.first for part in parts}
        its = math.fsum(size for chunk in self._chunks if chunk.first in first for size in _updated_bytes(model, chunk, batch))
        return its / _gradient_bytes(model, batch)


@lru_cache(maxsize=1024)
def _updated_bytes(model: Model, chunk: Held, batch: int) -> tuple[float, ...]:
    """Of the gradients of a chunk, what a device updates with: of each variable what it does not leave to those that share it."""
    owned = [one for layer in layers_of(model, chunk) for one in layer]
    return tuple(one.variable.gradient_bytes(batch) * one.share / one.over(chunk, chunk.slot_shards) for one in owned)


@lru_cache(maxsize=256)
def _gradient_bytes(model: Model, batch: int) -> float:
    """Of all variables."""
    return math.fsum(variable.gradient_bytes(batch) for variable in model.variables)


Cut = Literal["balanced", "even"]


class Split(NamedTuple):
    """How the work of each layer is divided.

    Attributes
    ----------
    tokens
        Of the busiest device with experts over the mean: its work, and what is sent to it.
    host_factor
        Time of a layer on the host over that on a device.
    """

    tokens: float = 1.0
    host_factor: float = 1.0


class Exchanged(NamedTuple):
    """What a pass of some layers exchanges amid its work, in bytes of each exchange.

    Attributes
    ----------
    tensor
        All-reduces among the devices that share tensors.
    tokens
        All-to-alls among the devices that experts are spread over.
    copied
        Copies between the device and its host.
    host_s
        Seconds in which the host computes, and the device does not.
    """

    tensor: tuple[float, ...] = ()
    tokens: tuple[float, ...] = ()
    copied: tuple[float, ...] = ()
    host_s: float = 0.0

    @property
    def total_bytes(self) -> float:
        """Of all of it."""
        return math.fsum(self.tensor) + math.fsum(self.tokens) + math.fsum(self.copied)

    def again(self, other: Exchanged) -> Exchanged:
        """This, and what another pass exchanges once more."""
        return Exchanged(self.tensor + other.tensor, self.tokens + other.tokens, self.copied + other.copied, self.host_s + other.host_s)


class State(NamedTuple):
    """Bytes that a rank has of some variables, before copies that have the same share them.

    Attributes
    ----------
    parameter_bytes
        As they are gathered.
    gradient_bytes
        As they are reduced.
    tied_bytes
        Of these, gradients that are summed with those of another stage's copy.
    """

    parameter_bytes: float = 0.0
    gradient_bytes: float = 0.0
    tied_bytes: float = 0.0

    def plus(self, other: State) -> State:
        """Of both."""
        return State(*(mine + its for mine, its in zip(self, other, strict=True)))


class Part(NamedTuple):
    """Some layers that follow each other, for one micro-batch.

    Attributes
    ----------
    first, last
        Layers ``first`` to ``last - 1``.
    forward_s, backward_s, again_s
        Seconds of each pass, and of what the backward pass computes once more.
    forward, backward
        What they exchange.
    input_bytes, output_bytes
        Handed over by the part before, and to the next one.
    dense, experts
        Variables that every copy has, and those of experts that are spread over copies, as a rank has them.
    """

    first: int
    last: int
    forward_s: float
    backward_s: float
    again_s: float
    forward: Exchanged
    backward: Exchanged
    input_bytes: float
    output_bytes: float
    dense: State
    experts: State


def cut(load: Workload, stages: int, how: Cut | Sequence[int], times: Sequence[float]) -> tuple[int, ...]:
    """Where a model is cut: one past the last layer of each stage.

    Parameters
    ----------
    load
        With layers.
    stages
        How many; at most as many as layers.
    how
        balanced: so that the compute of the slowest stage takes as little time as it can. even: as many of the layers that there
        are most of on each, as nearly as that goes; what comes before the first of them and after the last is with those. Or the
        first layer of each stage but the first.
    times
        balanced: of each layer's passes (:func:`seconds_of`).

    Raises
    ------
    ValueError
        With a sentence, where there is no such cut.
    """
    layers = load.layers
    if stages > len(layers):
        raise ValueError(f"{stages} stages need as many layers, and workload {load.name!r} has {len(layers)}: take fewer stages")
    if not isinstance(how, str):
        ends = (*how, len(layers))
        if len(ends) != stages or list(ends) != sorted(set(ends)) or ends[0] < 1:
            raise ValueError(
                f"strategy.stages ({list(how)}) must name the first layer of each of the {stages} stages but the first: rising numbers "
                f"from 1 to {len(layers) - 1}"
            )
        return ends
    if how == "balanced":
        slowest_s = max(times) or 1.0
        return balanced(tuple(round(its / slowest_s, 9) for its in times), stages)  # what differs by rounding alone is cut alike
    work = [(layer.forward, layer.backward_work) for layer in layers]
    most = max(work, key=work.count)
    body = [number for number, its in enumerate(work) if its == most]
    if stages > len(body):
        raise ValueError(
            f'strategy.stages = "even" puts equal layers on each stage, and of those that workload {load.name!r} has most of there are '
            f"{len(body)} for {stages} stages: take fewer stages, or balanced"
        )
    begins = [body[number * len(body) // stages] for number in range(1, stages)]
    return (*begins, len(layers))


def seconds_of(load: Workload, whole: Held, samples: float, split: Split, training: Training) -> list[float]:
    """Of each layer, seconds of a micro-batch's passes on a device or its host; arguments are those of :func:`parts_of`."""
    found = [math.fsum(its) for its in zip(*_passes_s(load, whole, samples, split, training), strict=True)]
    for at in range(len(found)) if whole.on_host else ():
        layer = whole._replace(first=at, last=at + 1)
        found[at] += math.fsum(_host_s(load, layer, samples, split, forward=of) for of in (True, False))
    return found


def state_of(owned: Sequence[Owned], tensor: int, values: Values, batch: int) -> State:
    """What a rank has of some variables: all devices that split tensors with each other, which are taken as one.

    Parameters
    ----------
    owned
        As one device has them.
    tensor
        Devices that split tensors.
    values
        What numbers take.
    batch
        Samples of all micro-batches together, on which sizes of sparse gradients depend.
    """
    gradients = [its.variable.gradient_bytes(batch) * its.share for its in owned]
    return State(
        math.fsum(float(its.variable.size_bytes) * its.share for its in owned) * tensor * values.parameters,
        math.fsum(gradients) * tensor * values.reduced,
        math.fsum(size for size, its in zip(gradients, owned, strict=True) if its.tied) * tensor * values.reduced,
    )


def parts_of(
    load: Workload, chunks: Sequence[Held], samples: float, split: Split, training: Training, values: Values, batch: int
) -> list[Part]:
    """The parts that chunks of a model are.

    Parameters
    ----------
    load
        With layers; its times count.
    chunks
        Of the model, in order.
    samples
        Of a micro-batch.
    split
        How work is divided.
    training
        Says what is computed again.
    values
        What numbers take.
    batch
        Samples of all micro-batches together.
    """
    model, found = Model(load), []
    for chunk in chunks:
        forward_s, backward_s, again_s = map(math.fsum, _passes_s(load, chunk, samples, split, training))
        sizes = _sizes_of(model, chunk, samples, split.tokens, values, batch)
        there, back = sizes.forward, sizes.backward
        if chunk.on_host:
            there, back = (
                its._replace(host_s=_host_s(load, chunk, samples, split, forward=of)) for its, of in ((there, True), (back, False))
            )
        if training.recompute == "full":  # what is computed again is exchanged again
            back = back.again(there)
        found.append(
            Part(
                first=chunk.first,
                last=len(load.layers[: chunk.last]),
                forward_s=forward_s,
                backward_s=backward_s,
                again_s=again_s,
                forward=there,
                backward=back,
                input_bytes=sizes.input_bytes,
                output_bytes=sizes.output_bytes,
                dense=sizes.dense,
                experts=sizes.experts,
            )
        )
    return found


def _passes_s(load: Workload, chunk: Held, samples: float, split: Split, training: Training) -> tuple[list[float], ...]:
    """Of each layer of a chunk, seconds of its forward and its backward pass on a device, and of what is computed again."""
    forward, backward = math.fsum(layer.forward for layer in load.layers), math.fsum(layer.backward_work for layer in load.layers)
    its = load.layers[chunk.first : chunk.last]
    forward_s = [_pass_s(load.forward, layer, layer.forward / forward if forward else 0.0, samples, split, chunk) for layer in its]
    backward_s = [
        _pass_s(load.backward, layer, layer.backward_work / backward if backward else 0.0, samples, split, chunk) for layer in its
    ]
    again = {"none": 0.0, "full": 1.0}
    again_s = [again.get(training.recompute, layer.selective_work) * its_s for layer, its_s in zip(its, forward_s, strict=True)]
    return forward_s, backward_s, again_s


class _Sizes(NamedTuple):
    """Bytes of a :class:`Part`, which do not depend on its times."""

    forward: Exchanged
    backward: Exchanged
    input_bytes: float
    output_bytes: float
    dense: State
    experts: State


@lru_cache(maxsize=4096)
def _sizes_of(model: Model, chunk: Held, samples: float, tokens: float, values: Values, batch: int) -> _Sizes:
    """Of a chunk, whatever times are drawn: the same for all replications."""
    layers, (first, last, _) = model.layers, slice(chunk.first, chunk.last).indices(len(model.layers))
    owned = [one for layer in layers_of(model, chunk) for one in layer]
    spread = [its.experts and chunk.expert > 1 for its in owned]  # experts that every copy has whole are as all else
    dense, experts = (
        state_of([its for its, apart in zip(owned, spread, strict=True) if apart is of], chunk.tensor, values, batch)
        for of in (False, True)
    )
    return _Sizes(
        forward=_exchanged(layers, chunk, samples, tokens, values, forward=True),
        backward=_exchanged(layers, chunk, samples, tokens, values, forward=False),
        input_bytes=_handed_bytes(layers[first - 1], samples, values) if first else 0.0,
        output_bytes=_handed_bytes(layers[last - 1], samples, values),
        dense=dense,
        experts=experts,
    )


def _handed_bytes(layer: Layer, samples: float, values: Values) -> float:
    return layer.output_bytes_per_sample * samples * values.activations


def _pass_s(law: Affine, layer: Layer, share: float, samples: float, split: Split, chunk: Held) -> float:
    """Seconds of one layer's pass on a device: of its work, or of the host that starts it, whichever takes longer."""
    if layer.name in chunk.on_host:
        return 0.0
    experts = layer.experts.work if layer.experts is not None else 0.0
    work = 1.0 + experts * (split.tokens - 1.0)
    if chunk.tensor > 1 and layer.tensor is not None:
        divided = 1.0 if chunk.sequence else layer.tensor.divided  # norms and dropout too, along the sequence
        work *= divided / chunk.tensor + 1.0 - divided
    return float(max(share * law.least_s, share * (law.base_s + law.per_sample_s * samples) * work))


def _exchanged(layers: Sequence[Layer], chunk: Held, samples: float, tokens: float, values: Values, *, forward: bool) -> Exchanged:
    """What the layers of a chunk exchange; neighbours of which one is on the host copy what goes between them."""
    tensor: list[float] = []
    dispatched: list[float] = []
    copied: list[float] = []
    for number in range(chunk.first, len(layers) if chunk.last is None else chunk.last):
        layer = layers[number]
        if number and (layer.name in chunk.on_host) != (layers[number - 1].name in chunk.on_host):
            copied.append(_handed_bytes(layers[number - 1], samples, values))
        if layer.name in chunk.on_host:
            continue
        if chunk.tensor > 1 and layer.tensor is not None:
            each = layer.tensor.forward_bytes_per_sample if forward else layer.tensor.backward_bytes_per_sample
            tensor += [size * samples * values.activations for size in each]
        if layer.experts is not None:  # to the experts, and back
            sent = layer.experts.used * layer.experts.bytes_per_sample * samples * values.activations
            dispatched += [sent * tokens] * 2
    return Exchanged(tuple(tensor), tuple(dispatched), tuple(copied))


def _host_s(load: Workload, chunk: Held, samples: float, split: Split, *, forward: bool) -> float:
    """Seconds in which the host computes those layers of a chunk that are on it."""
    law, host_s = load.forward if forward else load.backward, 0.0
    whole = math.fsum(layer.forward if forward else layer.backward_work for layer in load.layers)
    for layer in load.layers[chunk.first : chunk.last]:
        if layer.name in chunk.on_host:
            host_s += split.host_factor * law(samples) * (layer.forward if forward else layer.backward_work) / whole if whole else 0.0
    return host_s
