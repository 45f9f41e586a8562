"""Costs of the parts of a model on the devices of a hybrid strategy: seconds of passes, bytes sent on, exchanged and reduced.

A layer's pass takes its share of the time that the whole model's pass of as many samples
takes; where its tensors are split over devices, their part of the work is divided, while
the host starts as many kernels as before. Bytes of memory are in ``simulator.memory``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from simulator.spec.layers import Layer, balanced
from simulator.spec.workload import Affine, Workload
from simulator.strategies.holding import Held, Model, Owned, Values, layers_of

Cut = Literal["balanced", "even"]

_MESSAGE, _COLLECTIVE, _STEP = 7.0, 2.5, 300.0
"""Kernels that a framework's host could launch in the same time: for a message that others wait for (to another stage, around a ring,
to experts), for a collective of split tensors, and for each step (optimizer, norms, logging). Fitted with the host's time per kernel to 365
runs by Megatron-LM; those of other shapes are predicted within 9% in the median (evidence.studies.gpu_runs)."""
_OF_RING, _OF_EXPERTS = 3, 4
"""Messages of a layer in both passes: of keys and values, their gradients too, for each device more; tokens to experts and back."""


class Attended(NamedTuple):
    """Keys and values of a layer that devices with parts of a sequence pass around a ring, while each attends to those that it has.

    Attributes
    ----------
    size_bytes
        Of the whole sequence, as much as a device attends to.
    hidden_s
        Seconds of attention meanwhile.
    times
        How often it goes around: once; backward also as gradients, which travel with them.
    """

    size_bytes: float
    hidden_s: float
    times: int


class Exchanged(NamedTuple):
    """Exchanges during a pass of some layers, in bytes each.

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
    attended
        Keys and values among the devices that split sequences.
    split
        All-reduces among the devices that split each expert, where these are not all that split tensors.
    """

    tensor: tuple[float, ...] = ()
    tokens: tuple[float, ...] = ()
    copied: tuple[float, ...] = ()
    host_s: float = 0.0
    attended: tuple[Attended, ...] = ()
    split: tuple[float, ...] = ()

    @property
    def total_bytes(self) -> float:
        """Of all of it."""
        attended = math.fsum(each.size_bytes * each.times for each in self.attended)
        return math.fsum((*self.tensor, *self.tokens, *self.copied, *self.split)) + attended

    def again(self, other: Exchanged) -> Exchanged:
        """This, and what another pass exchanges once more."""
        pairs: Iterator[tuple[Any, Any]] = zip(self, other, strict=True)
        return Exchanged(*(mine + theirs for mine, theirs in pairs))


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

    @classmethod
    def of(cls, owned: Sequence[Owned], tensor: int, values: Values, batch: int) -> State:
        """Return what a rank has of some variables: all devices that split tensors with each other, which are taken as one.

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
        gradients = [each.gradient_bytes(batch) for each in owned]
        return State(
            math.fsum(float(each.variable.size_bytes) * each.share for each in owned) * tensor * values.parameters,
            math.fsum(gradients) * tensor * values.reduced,
            math.fsum(size for size, each in zip(gradients, owned, strict=True) if each.tied) * tensor * values.reduced,
        )


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

    @property
    def passes_s(self) -> float:
        """Seconds of all that it computes."""
        return self.forward_s + self.backward_s + self.again_s


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


class Work(NamedTuple):
    """The work of a micro-batch.

    Attributes
    ----------
    load
        Its times count, and its layers where it has some.
    samples
        Of the micro-batch; of each sample a device has its part of the sequence, where these are split.
    recompute
        What is computed again in the backward pass.
    tokens
        Of the busiest device with experts over the mean: its work, and what is sent to it.
    host_factor
        Time of a layer on the host over that on a device.
    """

    load: Workload
    samples: float
    recompute: str
    tokens: float = 1.0
    host_factor: float = 1.0

    def seconds(self, whole: Held) -> list[float]:
        """Seconds of each layer's passes on a device or its host."""
        seconds = [math.fsum(passes) for passes in zip(*self._passes_s(whole), strict=True)]
        for at in range(len(seconds)) if whole.on_host else ():
            layer = whole._replace(first=at, last=at + 1)
            seconds[at] += math.fsum(self._host_s(layer, forward=of) for of in (True, False))
        return seconds

    def part(self, chunk: Held, values: Values, batch: int) -> Part:
        """Return what a chunk of the model costs; ``batch``: samples of all micro-batches together."""
        load = self.load
        passes_s = self._passes_s(chunk)
        forward_s, backward_s, again_s = map(math.fsum, passes_s)
        part = _sizes_of(Model(load), chunk, self.samples, self.tokens, values, batch)
        there, back = part.forward, part.backward
        if chunk.context > 1:
            once, twice, again = (tuple(self._attended(chunk, values, *each)) for each in zip(passes_s, (1, 2, 1), strict=True))
            there = there._replace(attended=once)
            back = back._replace(attended=twice + (again if self.recompute == "selective" else ()))
        if chunk.on_host:
            there, back = (each._replace(host_s=self._host_s(chunk, forward=of)) for each, of in ((there, True), (back, False)))
        if self.recompute == "full":  # what is computed again is exchanged again
            back = back.again(there)
        return part._replace(forward_s=forward_s, backward_s=backward_s, again_s=again_s, forward=there, backward=back)

    def _attended(self, chunk: Held, values: Values, pass_s: Sequence[float], times: int) -> Iterator[Attended]:
        """Keys and values of the layers of a pass; of the last step of a ring's, nothing is sent while a device attends."""
        for layer, layer_s in zip(self.load.layers[chunk.first : chunk.last], pass_s, strict=True):
            if layer.attention is not None and layer_s:
                size = layer.attention.bytes_per_sample * self.samples * chunk.context * values.activations
                hidden_s = layer.attention.work * layer_s * (1.0 - 1.0 / chunk.context)
                yield Attended(size / (chunk.tensor if layer.tensor is not None else 1), hidden_s, times)

    def _passes_s(self, chunk: Held) -> tuple[list[float], ...]:
        """Seconds of the forward pass, the backward pass and the recomputation of each layer of a chunk on a device."""
        layers = self.load.layers[chunk.first : chunk.last]
        if not layers:  # only its batch can be cut
            once_s = self.load.forward(self.samples)
            return [once_s], [self.load.backward(self.samples)], [once_s if self.recompute == "full" else 0.0]
        launched = self._launched(chunk)
        forward_s, backward_s = (
            [self._pass_s(cost, layer, work / whole if whole else 0.0, n, chunk) for n, (layer, work) in zip(launched, works, strict=True)]
            for cost, whole, works in (self._works(chunk, forward=of) for of in (True, False))
        )
        again = {"none": 0.0, "full": 1.0}
        again_s = [again.get(self.recompute, layer.selective_work) * of_s for layer, of_s in zip(layers, forward_s, strict=True)]
        return forward_s, backward_s, again_s

    def _works(self, chunk: Held, *, forward: bool) -> tuple[Affine, float, list[tuple[Layer, float]]]:
        """The cost of the whole model's pass and the work in it, and the layers of a chunk, each with its part of that work."""
        works = [layer.forward if forward else layer.backward_work for layer in self.load.layers]
        some = slice(chunk.first, chunk.last)
        of_chunk = list(zip(self.load.layers[some], works[some], strict=True))
        return self.load.forward if forward else self.load.backward, math.fsum(works), of_chunk

    def _launched(self, chunk: Held) -> list[float | None]:
        """Of the kernels of the model, those that a device launches of each layer of a chunk; None where they were not counted."""
        kernels, launched = math.fsum(layer.kernels for layer in self.load.layers), list[float | None]()
        for layer in self.load.layers[chunk.first : chunk.last]:
            own = layer.kernels
            if layer.experts is not None and chunk.expert > 1:
                own += _MESSAGE * _OF_EXPERTS - layer.kernels * layer.experts.launched * (1.0 - 1.0 / chunk.expert)
            if layer.attention is not None:
                own += _MESSAGE * _OF_RING * (chunk.context - 1)
            if layer.tensor is not None and chunk.tensor > 1:
                own += _COLLECTIVE * len((*layer.tensor.forward_bytes_per_sample, *layer.tensor.backward_bytes_per_sample))
            launched.append(own / kernels if kernels else None)
        return launched

    def launching(self, part: Part, chunk: Held, ends: int, turns: float) -> Part:
        """A part whose passes take at least what the host takes.

        Parameters
        ----------
        ends
            Stages that the part hands on to.
        turns
            Passes of each kind that follow each other in a step, over which the host's work for the step is spread.
        """
        passes, kernels = (self.load.forward, self.load.backward), math.fsum(layer.kernels for layer in self.load.layers)
        if not kernels:
            return part
        launched = math.fsum(share or 0.0 for share in self._launched(chunk))
        more_s = (ends * _MESSAGE + _STEP / (2.0 * turns)) * math.fsum(each.least_s for each in passes) / kernels
        there, back = (each.least_s * launched + more_s for each in passes)
        return part._replace(forward_s=max(part.forward_s, there), backward_s=max(part.backward_s, back))

    def _pass_s(self, cost: Affine, layer: Layer, share: float, launched: float | None, chunk: Held) -> float:
        """Seconds of one layer's pass on a device: of its work, or of the host that starts it, whichever takes longer."""
        if layer.name in chunk.on_host:
            return 0.0
        experts = layer.experts.work if layer.experts is not None else 0.0
        work = 1.0 + experts * (self.tokens - 1.0)
        if chunk.tensor > 1 and layer.tensor is not None:
            divided = 1.0 if chunk.sequence else layer.tensor.divided  # norms and dropout too, along the sequence
            work *= divided / chunk.tensor + 1.0 - divided
        least_s = cost.least_s * (share if launched is None else launched)
        return float(max(least_s, share * (cost.base_s + cost.per_sample_s * self.samples) * work))

    def _host_s(self, chunk: Held, *, forward: bool) -> float:
        """Seconds in which the host computes those layers of a chunk that are on it."""
        (cost, whole, works), host_s = self._works(chunk, forward=forward), 0.0
        for layer, work in works:
            if layer.name in chunk.on_host and whole:
                host_s += self.host_factor * cost(self.samples) * work / whole
        return host_s


@lru_cache(maxsize=4096)
def _sizes_of(model: Model, chunk: Held, samples: float, tokens: float, values: Values, batch: int) -> Part:
    """A chunk without its times: the same for all replications, whatever times are drawn."""
    layers, (first, last, _) = model.layers, slice(chunk.first, chunk.last).indices(len(model.layers))
    owned = [each for layer in layers_of(model, chunk) for each in layer]
    spread = [each.experts and chunk.spreads for each in owned]  # experts that every copy has whole are as all else
    tensor = chunk.tensor if layers else 1
    dense, experts = (
        State.of([each for each, apart in zip(owned, spread, strict=True) if apart is of], tensor, values, batch) for of in (False, True)
    )
    forward, backward = (_exchanged(layers, chunk, samples, tokens, values, forward=of) for of in (True, False))
    input_bytes = _handed_bytes(layers[first - 1], samples, values) if first else 0.0
    output_bytes = _handed_bytes(layers[last - 1], samples, values) if layers else 0.0
    return Part(first, last, 0.0, 0.0, 0.0, forward, backward, input_bytes, output_bytes, dense, experts)


def _handed_bytes(layer: Layer, samples: float, values: Values) -> float:
    return layer.output_bytes_per_sample * samples * values.activations


def _exchanged(layers: Sequence[Layer], chunk: Held, samples: float, tokens: float, values: Values, *, forward: bool) -> Exchanged:
    """Return what the layers of a chunk exchange; neighbours of which one is on the host copy what goes between them."""
    tensor: list[float] = []
    dispatched: list[float] = []
    copied: list[float] = []
    split: list[float] = []
    for number in range(chunk.first, len(layers) if chunk.last is None else chunk.last):
        layer = layers[number]
        if number and (layer.name in chunk.on_host) != (layers[number - 1].name in chunk.on_host):
            copied.append(_handed_bytes(layers[number - 1], samples, values))
        if layer.name in chunk.on_host:
            continue
        if chunk.tensor > 1 and layer.tensor is not None:
            each = layer.tensor.forward_bytes_per_sample if forward else layer.tensor.backward_bytes_per_sample
            sizes = [size * samples * values.activations for size in each]
            if sizes and layer.experts is not None and chunk.experts_split < chunk.tensor:
                own = sizes.pop(-1 if forward else 0)  # experts come last forward
                split += [own * chunk.experts_split / chunk.tensor] * (chunk.experts_split > 1)
            tensor += sizes
        if layer.experts is not None:  # to the experts, and back
            sent = layer.experts.used * layer.experts.bytes_per_sample * samples * values.activations
            dispatched += [sent * tokens] * 2
    return Exchanged(tuple(tensor), tuple(dispatched), tuple(copied), split=tuple(split))


@lru_cache(maxsize=1024)
def updated_bytes(model: Model, chunk: Held, batch: int) -> tuple[float, ...]:
    """Of the gradients of a chunk, what a device updates with: of each variable what it does not leave to those that share it."""
    owned = [each for layer in layers_of(model, chunk) for each in layer]
    return tuple(each.gradient_bytes(batch) / each.over(chunk, chunk.slot_shards) for each in owned)


@lru_cache(maxsize=256)
def gradient_bytes(model: Model, batch: int) -> float:
    """Of all variables."""
    return math.fsum(variable.gradient_bytes(batch) for variable in model.variables)


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
        balanced: of each layer's passes (:meth:`Work.seconds`).

    Raises
    ------
    ValueError
        With a sentence, where there is no such cut.
    """
    layers = load.layers
    if stages > len(layers):
        raise ValueError(
            f"{stages} parts (strategy.pipeline x chunks) need at least {stages} layers, and workload {load.name!r} has {len(layers)}, "
            "embedding and head included: use fewer"
        )
    if not isinstance(how, str):
        ends = (*how, len(layers))
        if len(ends) != stages or list(ends) != sorted(set(ends)) or ends[0] < 1:
            raise ValueError(
                f"strategy.stages ({list(how)}) must list the first layer of each of the {stages} stages except the first: increasing "
                f"numbers from 1 to {len(layers) - 1}"
            )
        return ends
    if how == "balanced":
        slowest_s = max(times) or 1.0
        return balanced(tuple(round(layer_s / slowest_s, 9) for layer_s in times), stages)  # what differs by rounding alone is cut alike
    work = [(layer.forward, layer.backward_work) for layer in layers]
    most = max(work, key=work.count)
    body = [number for number, of_layer in enumerate(work) if of_layer == most]
    if stages > len(body):
        raise ValueError(
            f'strategy.stages = "even" needs at least one of the repeated layers per stage, and workload {load.name!r} has {len(body)} '
            f'for {stages} stages: use fewer stages, or "balanced"'
        )
    begins = [body[number * len(body) // stages] for number in range(1, stages)]
    return (*begins, len(layers))
