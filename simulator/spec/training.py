"""``[training]``: how a step is computed whatever the strategy: micro-batches, recomputation, precision, optimizer.

``simulator.resolve.resolve`` applies it to the workload, where :class:`Passes` and :class:`Recast` note what was done. A new optimizer
needs its number of slots in ``SLOTS``. :class:`NoiseScale` (``[workload.noise_scale]``) changes nothing that is simulated:
``paceline.learning.planning`` predicts from it the samples to a target, and ``calibrate.fit.noise_scale`` fits it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from simulator.base.spec import Moderate, Seconds, Share, Spec, Terse

Precision = Literal["float32", "mixed_float16", "mixed_bfloat16", "bfloat16"]
"""Precision as Keras names its policies; only ``bfloat16`` has variables, gradients and slots in 16 bits, without a copy in 32."""
Factor = Annotated[Moderate, Field(gt=0, le=1e6)]

GROWTH_STEPS = 2000
"""Steps without a gradient that is not finite after which TensorFlow doubles the loss scale
(``tf.keras.mixed_precision.LossScaleOptimizer``, ``dynamic_growth_steps``)."""

Optimizer = Literal["sgd", "momentum", "adagrad", "rmsprop", "adam", "lamb", "adafactor"]
"""An optimizer by what it keeps of each parameter: :data:`SLOTS`."""

SLOTS: Mapping[Optimizer, int] = {"sgd": 0, "momentum": 1, "adagrad": 1, "rmsprop": 1, "adam": 2, "lamb": 2, "adafactor": 1}
"""Values, each of as many bytes as a variable's, that an optimizer keeps of each parameter, as ``build`` of each in Keras 3 makes them,
with its defaults (tests/calibrate/test_memory.py counts them). Adafactor has besides one for each row and each column of a matrix
(Shazeer and Stern, ICML 2018, section 4, who keep nothing else of it)."""

Head = Literal["parallel", "parallel-fused", "plain", "fused", "chunked"]
"""Cross-entropy by what a device holds of each logit: :data:`HEADS`."""


class LogitBytes(NamedTuple):
    """Bytes of a logit where products give 16 bits."""

    kept: float
    """From the forward to the backward pass."""
    more: float
    """Besides, while its cross-entropy runs; 6 less where products give 32 bits."""
    tokens: int | None = None
    """Of how many tokens at a time; None: of all."""


HEADS: Mapping[Head, LogitBytes] = {
    "parallel": LogitBytes(4, 2),
    "parallel-fused": LogitBytes(4, 6),
    "plain": LogitBytes(4, 14),
    "fused": LogitBytes(2, 0),
    "chunked": LogitBytes(0, 18, 256),
}
"""Bytes by cross-entropy: what was measured of real runs (``python -m evidence.studies.gpu_runs``), and sources.

parallel: 16-bit logits are copied to 32 bits, in which all else happens in place (``vocab_parallel_cross_entropy`` of Megatron-LM).
parallel-fused: compiled kernels copy them once more (its ``--cross-entropy-loss-fusion``). plain: logits, float32 copy, log-softmax
and the gradients of these two (``torch.nn.functional.cross_entropy`` of ``logits.float()``). fused: the gradient is written over the logits
(Hsu et al., "Liger Kernel", arXiv:2410.10989). chunked: head and cross-entropy of some tokens at a time, nothing kept.
"""

ASSUMED_OPTIMIZER: Optimizer = "adam"
"""Default if it is left out and memory is computed from layers."""


class Training(Terse):
    """``[training]`` of a scenario."""

    micro_batches: int = Field(
        default=1,
        ge=1,
        le=100_000,
        description="micro-batches per batch of a replica, computed in sequence; gradients are summed, then reduced and applied once "
        "(gradient accumulation; the micro-batches of a pipeline)",
    )
    recompute: Literal["none", "selective", "full"] = Field(
        default="none",
        description="activations recomputed in the backward pass instead of kept; full: all but the input of each layer; selective: "
        "those that layers mark as cheap",
    )
    launch: Literal["eager", "graph"] | None = Field(
        default=None,
        description="who launches kernels, for times computed from dimensions; eager: a framework, one after the other (PyTorch, "
        "Megatron-LM); graph: a compiled program or a captured graph (XLA, CUDA graphs); left out: eager with strategy.kind = hybrid, else "
        "graph, with intervals that include eager",
    )
    optimizer: Optimizer | None = Field(
        default=None,
        description="optimizer, whose slots devices or parameter servers keep in memory (docs/large-models.md); left out: adam if memory "
        "is computed from layers, else as measured",
    )
    head: Head | None = Field(
        default=None,
        description="how the head computes its cross-entropy, which decides the memory of logits; parallel: Megatron-LM; parallel-fused: "
        "its --cross-entropy-loss-fusion; plain: PyTorch's own; fused: the gradient overwrites the logits (Liger); chunked: some tokens at "
        "a time, none kept; left out: plain with transformer.kernels = separate or with sharded gradients or parameters, else parallel",
    )
    deterministic: bool | None = Field(
        default=None,
        description="deterministic algorithms, whose matrix products take more work space (CUBLAS_WORKSPACE_CONFIG = :4096:8); left out: "
        "unknown, and the larger counts",
    )
    offload: bool = Field(
        default=False, description="with recompute = full: the kept inputs of layers are moved to the host until the backward pass"
    )
    precision: Precision | None = Field(
        default=None,
        description="precision of computing, as Keras names its policies; with a mixed policy, variables, gradients and slots stay "
        "float32; with bfloat16 they have 2 bytes too; left out: the workload's own",
    )
    precision_factor: tuple[Factor, ...] | None = Field(
        default=None,
        min_length=2,
        max_length=3,
        description="time of a step in this precision / in the workload's own, on one device: low, (middle,) high; left out: as published",
    )
    precision_source: str = Field(default="", max_length=10_000, description="source of precision_factor")
    skipped_share: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        default=None,
        description="share of steps whose update is skipped because a gradient was not finite (dynamic loss scaling); left out: with "
        f"precision = mixed_float16 one step in {GROWTH_STEPS + 1}, the steady state of TensorFlow's loss scale, else none",
    )

    def _broken_rules(self) -> Iterator[str]:
        if self.offload and self.recompute != "full":
            yield f'offload needs recompute = "full", not "{self.recompute}": give it, or leave offload out'
        if self.precision_factor is not None:
            if self.precision is None:
                yield "precision_factor needs precision: give it too, such as mixed_float16"
            if list(self.precision_factor) != sorted(self.precision_factor):
                yield "precision_factor must be low and high, or low, middle and high, in this order"
            if not self.precision_source.strip():
                yield "precision_source is missing: say source of precision_factor"
        elif self.precision_source:
            yield "precision_source needs precision_factor: give both or neither"

    @property
    def skipped(self) -> float:
        """Share of steps computed in vain, because loss scaling skips their update.

        The scale is doubled after ``GROWTH_STEPS`` steps that went well; at the level that a
        model allows the next step then overflows, which halves it again: one in ``GROWTH_STEPS + 1``.
        """
        if self.skipped_share is not None:
            return self.skipped_share
        return 1.0 / (GROWTH_STEPS + 1) if self.precision == "mixed_float16" else 0.0


class Passes(Spec):
    """The passes of a step made of micro-batches (m ``micro_batches``, r ``recomputed``, e ``encoding_s``)."""

    micro_batches: int = Field(
        default=1,
        ge=1,
        description="parts of the batch, in sequence; gradients are summed and sent from the backward pass of the last part on",
    )
    recomputed: Share = Field(default=0.0, description="share of the forward pass that is recomputed in the backward pass")
    encoding_s: Seconds = Field(default=0.0, description="time to compress gradients before they are sent")

    def backward_s(self, forward: Callable[[float], float], backward: Callable[[float], float], batch: float) -> float:
        """Seconds of the backward pass that ends a step, that of its last part: w(b/m) + r f(b/m) + e."""
        part = batch / self.micro_batches
        return float(backward(part) + self.recomputed * forward(part) + self.encoding_s)

    def forward_s(self, forward: Callable[[float], float], backward: Callable[[float], float], batch: float) -> float:
        """Seconds of all before it: m f(b/m) + (m - 1) (w(b/m) + r f(b/m))."""
        count = self.micro_batches
        part = batch / count
        return count * forward(part) + (count - 1) * (backward(part) + self.recomputed * forward(part))


class Recast(Spec):
    """Change of a workload's times to another precision than it was measured in; filled in when a scenario is resolved."""

    from_precision: Precision = Field(description="precision in which the times were measured")
    factor: tuple[Factor, Factor, Factor] = Field(description="time in this precision / in the measured one: low, middle, high")
    text: str = Field(description="the rule in a sentence")
    sources: tuple[str, ...] = Field(default=(), description="source of the factor")


Samples = Annotated[Moderate, Field(ge=0)]


class NoiseScale(Spec):
    """Gradient noise scale over a whole training, with its 90% interval: samples of the batch whose gradient has as much noise as signal.

    A file may give only ``samples``, which is then exact. If the gradient cannot be distinguished from its noise with certainty, the
    interval has no upper end: there is ``low`` but no ``high``.
    """

    samples: Samples = Field(description="batch whose gradient has as much noise as signal, on average over training")
    low: Samples = Field(description="low end of its 90% interval; left out: samples is exact")
    high: Samples | None = Field(default=None, description="high end of its 90% interval; left out with low given: no upper end")
    source: Literal["measured", "given"] = Field(default="given", description="source: measured by paceline calibrate, or given")

    @model_validator(mode="before")
    @classmethod
    def _exact(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and "samples" in data and data.get("low") is None and data.get("high") is None:
            return {**data, "low": data["samples"], "high": data["samples"]}
        return data

    def _broken_rules(self) -> Iterator[str]:
        if self.low > self.samples or (self.high is not None and self.high < self.samples):
            high = "no upper end" if self.high is None else f"high ({self.high:g})"
            yield f"samples ({self.samples:g}) must lie between low ({self.low:g}) and {high}"
