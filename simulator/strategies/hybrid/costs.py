"""What the parts of a model cost: the work of their passes, what is reduced of their gradients, and what is updated.

Parts are those of :mod:`simulator.strategies.hybrid.parts`; ``Hybrid`` makes of these costs what each stage's step is made of
(:class:`simulator.strategies.hybrid.routine.StageCosts`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np

from simulator.spec.gradients import buckets
from simulator.strategies.holding import Held, Model, Values, fused, layers_of
from simulator.strategies.hybrid.parts import Exchanged, Part, Split, State, parts_of, state_of
from simulator.strategies.hybrid.routine import Reduced
from simulator.strategies.setup import Setup


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
