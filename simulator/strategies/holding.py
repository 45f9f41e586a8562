"""Which device holds which part of a model: the one description from which memory, traffic and updates of devices are derived.

A strategy says of each chunk of the model which devices hold it (:class:`Held`); of each
variable in it follows what a device has, who has the same, and who shares it
(:class:`Owned`). The bytes of each kind of number are given once too (:class:`Values`).
Bytes of a device's memory are added up in :mod:`simulator.memory`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from simulator.spec.computed import value_bytes_of
from simulator.spec.layers import Layer
from simulator.spec.workload import Variable, Workload

ReducePrecision = Literal["float32", "compute"]

_HALF = 0.5
"""Bytes in 16 bits over those in 32."""


class Held(NamedTuple):
    """The part of a model that one device holds during training: all of it, or a stage.

    Attributes
    ----------
    first, last
        Layers ``first`` to ``last - 1``; of a workload without layers, or where ``last`` is none, all. A device with several chunks of
        the model has one of these for each.
    tensor
        Devices that each tensor is split over.
    sequence
        Whether activations that tensor splitting leaves whole are split along the sequence as well.
    context
        Devices that each sequence is split over, with all that is computed and kept of it; all have the same variables.
    expert
        Devices that the experts of a layer are spread over.
    expert_tensor
        Devices that each expert is split over, of those that split tensors; none: all.
    copies
        Of this chunk: copies of the model times ``context``.
    in_flight
        Micro-batches whose activations it holds, at each moment of a step at which all its chunks together may hold most; as many
        moments for each chunk of a device.
    versions
        Of its weights that it keeps at most.
    parameter_shards, gradient_shards, slot_shards
        Copies that share one copy of parameters, gradients, optimizer slots (Rajbhandari et al., "ZeRO", SC 2020); 1: each has all;
        0 of slots: none is on a device.
    gathers
        Whether parameters are in the precision of computing only while they are gathered for their layer (PyTorch's FSDP).
    gathered
        Layers whose shared parameters are on a device whole at the same time; none: all of them, once they were gathered.
    reduced
        Bytes of gradients while they are reduced over those of their variables.
    short_gradients
        Whether gradients are kept in 16 bits, and copied to 32 for the update by those that share slots (DeepSpeed).
    fused
        Bytes of gradients that are reduced as one, once this many have come; 0: each layer's; none: all of a chunk's.
    tied
        Variables, by creation_index, of which another stage has a copy, since layers of both use them: both keep the whole state of
        theirs, and sum their gradients.
    copied
        Layers that have their stage's copy of a variable of another stage's: number of the layer, and creation_index. Of a stage that
        is the first that uses it, and none where the stage has the variable itself.
    on_host
        Names of its layers that are on the device's host, with all that they hold.
    """

    first: int = 0
    last: int | None = None
    tensor: int = 1
    sequence: bool = False
    context: int = 1
    expert: int = 1
    expert_tensor: int | None = None
    copies: int = 1
    in_flight: tuple[int, ...] = (1,)
    versions: int = 1
    parameter_shards: int = 1
    gradient_shards: int = 1
    slot_shards: int = 1
    gathers: bool = False
    gathered: int | None = 2
    reduced: float = 1.0
    short_gradients: bool = False
    fused: float | None = None
    tied: frozenset[int] = frozenset()
    copied: frozenset[tuple[int, int]] = frozenset()
    on_host: frozenset[str] = frozenset()

    @property
    def experts_split(self) -> int:
        """Devices that each expert is split over."""
        return self.expert_tensor or self.tensor

    @property
    def spreads(self) -> bool:
        """Tell whether other devices have the same experts than have the same of all else."""
        return self.expert > 1 or self.experts_split != self.tensor

    def sharing(self, shards: int, *, experts: bool = False) -> Sharing:
        """Who has the same of a variable, and shares it, where ``shards`` neighbouring copies share one state.

        Experts that are spread over copies are held by fewer of them, and of those that share a state only they can share these
        (DeepSpeed's and Megatron-LM's groups of expert data parallelism: Rajbhandari et al., "DeepSpeed-MoE", ICML 2022, section 5).
        """
        if not experts or not self.spreads:
            return Sharing(self.copies, shards)
        over, alike = self.expert * self.experts_split, self.copies * self.tensor
        return Sharing(max(alike // over, 1), shards * self.tensor // over if shards > 1 and shards * self.tensor % over == 0 else 1)


class Sharing(NamedTuple):
    """Who has the same.

    Attributes
    ----------
    copies
        So many.
    shards
        Of them, those that share one; 1: each has all.
    """

    copies: int
    shards: int


class Model:
    """The layers and variables of a workload as a key: themselves, not equal ones, which take long to compare.

    Draws of a workload's times share them, as do its batches: values that depend only on them are computed once.
    """

    __slots__ = ("layers", "variables")

    def __init__(self, load: Workload | Model) -> None:
        self.layers: tuple[Layer, ...] = load.layers
        self.variables: tuple[Variable, ...] = load.variables

    def __hash__(self) -> int:
        return hash((id(self.layers), id(self.variables)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.layers is self.layers and other.variables is self.variables


class Owned(NamedTuple):
    """One variable on a device.

    Attributes
    ----------
    variable
        Itself.
    share
        Of it that is the device's, before copies that have the same share it: it is divided by those that split it, and by those over
        which its experts are spread.
    experts
        Whether experts have it.
    tied
        Whether another stage has a copy.
    copy
        Whether it is the copy of another stage's.
    frozen
        Whether it is not trained: all such variables of a layer are taken as one.
    """

    variable: Variable
    share: float
    experts: bool = False
    tied: bool = False
    copy: bool = False
    frozen: bool = False

    def gradient_bytes(self, batch: int) -> float:
        """Bytes of its gradient, before copies share it; none if it is frozen."""
        return 0.0 if self.frozen else self.variable.gradient_bytes(batch) * self.share

    def over(self, held: Held, shards: int) -> int:
        """Devices that share it, where ``shards`` copies share one state."""
        return max(held.sharing(shards, experts=self.experts).shards, 1)


def layers_of(load: Workload | Model, held: Held) -> Sequence[Sequence[Owned]]:
    """The variables of a chunk as a device has them, for each of its layers; for a workload without layers, each separately."""
    return _layers_of(Model(load), held.first, held.last, held.tensor, held.expert, held.experts_split, held.tied, held.copied)


@lru_cache(maxsize=1024)
def _layers_of(
    model: Model,
    first: int,
    last: int | None,
    tensor: int,
    expert: int,
    experts_split: int,
    tied: frozenset[int],
    copied: frozenset[tuple[int, int]],
) -> tuple[tuple[Owned, ...], ...]:
    if not model.layers:
        return tuple((Owned(variable, 1.0),) for variable in model.variables)
    variables, owner = _by_number(model)

    def owned(number: int, *, copy: bool = False) -> Owned:
        """A copy is divided as the variable itself."""
        layer = owner[number]
        experts = layer.experts is not None and number in layer.experts.variables
        share = (1.0 / (experts_split if experts else tensor) if layer.tensor is not None else 1.0) / (expert if experts else 1)
        return Owned(variables[number], share, experts, number in tied, copy)

    def frozen(layer: Layer) -> Iterator[Owned]:
        of_experts = layer.experts.frozen_bytes if layer.experts is not None else 0.0
        for size_bytes, experts in ((layer.frozen_bytes, False), (of_experts, True)):
            if size_bytes:
                variable = Variable(name=f"{layer.name}/frozen", size_bytes=size_bytes, creation_index=len(variables), ready=1.0)
                share = (1.0 / tensor if layer.tensor is not None else 1.0) / (expert if experts else 1)
                yield Owned(variable, share, experts, frozen=True)

    return tuple(
        (*map(owned, layer.variables), *(owned(number, copy=True) for number in layer.tied if (place, number) in copied), *frozen(layer))
        for place, layer in enumerate(model.layers[first:last], first)
    )


@lru_cache(maxsize=16)
def _by_number(model: Model) -> tuple[Mapping[int, Variable], Mapping[int, Layer]]:
    """Variables, and the layers that have them, by creation_index."""
    variables = {variable.creation_index: variable for variable in model.variables}
    return variables, {number: layer for layer in model.layers for number in layer.variables}


def fused(sizes: Sequence[float], least_bytes: float | None) -> list[list[int]]:
    """Numbers of the layers whose gradients are reduced as one: from the last layer on, until they have ``least_bytes``.

    Parameters
    ----------
    sizes
        Bytes of each layer's gradients.
    least_bytes
        As :attr:`Held.fused`.
    """
    full: list[list[int]] = []
    open_: list[int] = []
    filled = 0.0
    for number in reversed(range(len(sizes))):
        open_.append(number)
        filled += sizes[number]
        if least_bytes is not None and filled >= least_bytes:
            full.append(open_)
            open_, filled = [], 0.0
    if full and not filled:  # nothing to reduce for by themselves
        full[-1] += open_
    elif open_:
        full.append(open_)
    return full


class Values(NamedTuple):
    """Bytes of numbers relative to those in the workload.

    Variables are given in 32 bits, or all in 16 (``bfloat16``), where they are what is
    computed with. In mixed precision a device computes with 16-bit copies of
    them, which are what sharded data parallelism gathers, and keeps those in 32 bits with the
    optimizer's state (Micikevicius et al., "Mixed Precision Training", ICLR 2018; ZeRO,
    section 3.1; ``MixedPrecisionPolicy.param_dtype`` of PyTorch's FSDP).

    Attributes
    ----------
    parameters
        That are computed with, and gathered.
    masters
        Kept in 32 bits with the slots.
    reduced
        Gradients while they are reduced.
    activations
        That are kept, handed on between stages, and exchanged by those that split tensors or have experts; their gradients too.
    """

    parameters: float
    masters: float
    reduced: float
    activations: float


def values_of(load: Workload, reduce_precision: ReducePrecision = "float32") -> Values:
    """Return what numbers take in a workload's precision.

    Parameters
    ----------
    load
        Resolved: sizes of its layers are those of the precision that it was measured in.
    reduce_precision
        What gradients are reduced in: float32, or what is computed in.
    """
    mixed = load.precision.startswith("mixed")
    measured_in = load.precision if load.recast is None else load.recast.from_precision
    return Values(
        parameters=_HALF if mixed else 1.0,
        masters=1.0 if mixed else 0.0,
        reduced=_HALF if mixed and reduce_precision == "compute" else 1.0,
        activations=value_bytes_of(load.precision) / value_bytes_of(measured_in),
    )


def most_in_flight(chunks: Iterable[Held]) -> int:
    """The most micro-batches of one chunk that a device holds at a time."""
    return max(max(chunk.in_flight) for chunk in chunks)
