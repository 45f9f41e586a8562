"""A workload: the cost of one training step on one device, measured or computed from dimensions (``[workload]``, ``models/workloads``).

``calibrate.fit`` writes measured ones; computed.py makes times of dimensions. Other modules name fields as text: those that hold for
one device (``_OF_A_DEVICE`` of ``simulator.resolve.device_transfer``) and those that were measured (``_MEASURED_PARTS`` of
``simulator.catalogue.loading``); a new field may belong there. A new field is also left out of files and hashes where it is not set
(``_WRITTEN_IF_SET``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
from pydantic import ConfigDict, Field, SerializationInfo, SerializerFunctionWrapHandler, model_serializer, model_validator

from simulator.base.spec import (
    SAMPLE_BYTES,
    STEP_FLOPS,
    Bytes,
    Interval,
    Moderate,
    PerByte,
    PositiveSeconds,
    PositiveShare,
    Seconds,
    Share,
    Spec,
    Terse,
    Usual,
    WorkTime,
    short_name,
)
from simulator.base.text import Short, counted, format_bytes, format_seconds
from simulator.base.validation_errors import is_valid
from simulator.spec.computed import EAGER, Computed, known_device, step_of
from simulator.spec.constants import Known
from simulator.spec.dimensions import Residual, Transformer
from simulator.spec.distributions import Constant, Distribution, Empirical
from simulator.spec.job import Overheads
from simulator.spec.layers import Layer
from simulator.spec.training import NoiseScale, Passes, Precision, Recast
from simulator.spec.uncertainty import Uncertainty


class Affine(Terse):
    """Seconds as a function of the samples in a batch: ``base_s + per_sample_s * batch``, but at least ``least_s``."""

    base_s: WorkTime = Field(description="fixed time, whatever the batch")
    per_sample_s: WorkTime = Field(description="time per sample of the batch")
    least_s: WorkTime = Field(default=0.0, description="minimum time, which the host needs to launch all kernels; left out: none")

    def times(self, factor: float) -> Affine:
        """Scale the times by a factor."""
        return Affine(base_s=self.base_s * factor, per_sample_s=self.per_sample_s * factor, least_s=self.least_s * factor)

    def __call__(self, batch: float) -> float:
        """Seconds for a batch of this many samples."""
        return max(float(self.base_s + self.per_sample_s * batch), float(self.least_s))


class Variable(Terse, only=("tensors", "columns")):
    """One trainable variable and its gradient.

    The workload lists them in the order in which their gradients become ready in the
    backward pass; ``creation_index`` is the order in which the model created them, which
    is the order in which TensorFlow places them on parameter servers.
    """

    name: str = Field(min_length=1, max_length=10_000, description="name of the variable; names are unique")
    size_bytes: Annotated[Bytes, Usual(1.0, 2.0**47)] = Field(
        gt=0, description="bytes of the variable: 4 per value, or 2 with precision = bfloat16"
    )
    creation_index: int = Field(ge=0, description="position, from 0, in the order in which the model creates its variables")
    ready: Share = Field(
        description="share of the backward pass after which the gradient is ready (1 for the last variable); with parameter servers, the "
        "forward pass needs the variable at share 1 - ready"
    )
    rows: int | None = Field(
        default=None,
        ge=1,
        le=10**12,
        description="first dimension, along which a partitioner splits it; left out: it can be split anywhere",
    )
    sparse_bytes_per_sample: Annotated[Moderate, Field(gt=0)] | None = Field(
        default=None,
        description="sparse gradient (IndexedSlices): bytes of the rows and indices that one sample touches; a batch's gradient has this "
        "many per sample, and a pull at most the variable's size",
    )
    columns: int | None = Field(
        default=None,
        ge=1,
        le=10**12,
        description="last dimension, which makes it one matrix for low-rank compression; left out: from rows",
    )
    tensors: int = Field(
        default=1,
        ge=1,
        le=100_000,
        description="number of equal tensors that this entry represents; each is placed on one server and costs host time on its own",
    )

    @property
    def each(self) -> tuple[Variable, ...]:
        """The equal tensors that it represents; only itself if it is one."""
        return (self.single,) * self.tensors

    @property
    def single(self) -> Variable:
        """One of the tensors that it represents; itself if it is one."""
        if self.tensors == 1:
            return self
        sparse = None if self.sparse_bytes_per_sample is None else self.sparse_bytes_per_sample / self.tensors
        part = {"size_bytes": self.size_bytes / self.tensors, "sparse_bytes_per_sample": sparse, "tensors": 1}
        return self.model_copy(update={**part, "rows": None, "columns": None})

    def gradient_bytes(self, batch: int) -> float:
        """Bytes of the gradient of a batch: dense as the variable, or the rows touched."""
        if self.sparse_bytes_per_sample is None:
            return float(self.size_bytes)
        return self.sparse_bytes_per_sample * batch

    def pull_bytes(self, batch: int) -> float:
        """Bytes that a worker reads: the whole variable, or only the touched rows of a sparse one."""
        return min(float(self.size_bytes), self.gradient_bytes(batch))


class ServerCost(Spec):
    """Service time of a parameter server for one gradient tensor: per tensor and per byte."""

    base_s: WorkTime = Field(default=0.0, description="time per tensor")
    per_byte_s: PerByte = Field(default=0.0, description="time per byte")

    def __call__(self, size_bytes: float) -> float:
        """Seconds to apply (or to add to an accumulator) a gradient of this size."""
        return float(self.base_s + self.per_byte_s * size_bytes)


class WorkloadRange(Spec):
    """Measured range of the workload; results warn outside it."""

    batch: Interval = Field(description="fewest and most samples per batch")
    tensor_bytes: Interval | None = Field(
        default=None, description="smallest and largest gradient that servers were measured with, in bytes"
    )
    workers: Interval = Field(default=(1, 1), description="fewest and most workers")
    servers: Interval = Field(default=(0, 0), description="fewest and most parameter servers; 0: none")
    device: str = Field(default="", description="device on which it was measured")


class CalibrationPoint(Spec):
    """Step times measured at one batch size, in seconds, warm-up removed."""

    batch: int = Field(ge=1, description="samples per step")
    steps: int = Field(ge=1, description="steps that were timed")
    mean_s: PositiveSeconds = Field(description="mean time of a step")
    p5_s: PositiveSeconds = Field(description="5th percentile")
    median_s: PositiveSeconds = Field(description="median")
    p95_s: PositiveSeconds = Field(description="95th percentile")
    forward_s: Seconds = Field(description="mean time of the forward pass")
    backward_s: Seconds = Field(description="mean time of the backward pass")
    apply_s: Seconds = Field(description="mean time of the optimizer's update")


class LawScore(Spec):
    """One candidate distribution of step times with its Bayesian information criterion (lower is better)."""

    kind: str = Field(description="name of the distribution, as under jitter")
    bic: float = Field(description="its Bayesian information criterion; lower is better")


class CalibrationFit(Spec):
    """How well the workload's curves describe the measurements."""

    points: tuple[CalibrationPoint, ...] = Field(default=(), description="measured times for each batch size")
    relative_residual: Annotated[float, Field(ge=0)] = Field(description="largest relative error of the curve at a measured mean")
    laws: tuple[LawScore, ...] = Field(default=(), description="distributions of jitter that were tried, each with its score")
    intervals_90: dict[str, tuple[float, float]] = Field(default_factory=dict, description="90% interval of each parameter")
    peak_memory_bytes: dict[str, float] = Field(
        default_factory=dict, description="peak device memory by batch size, if the device reports it"
    )


class Counted(Spec):
    """Operations and bytes of a step on any device, counted from its graph, not measured.

    Floating-point operations are those of matrix products and convolutions, forward and
    backward, a multiplication and an addition being two. Bytes are what every operation
    reads and writes, as if none were fused with another: an upper bound.
    """

    flops_per_sample: Annotated[Moderate, Field(gt=0), STEP_FLOPS] = Field(description="floating-point operations per sample")
    base_bytes: Bytes = Field(default=0.0, ge=0, description="bytes moved between device and memory, whatever the batch")
    per_sample_bytes: Bytes = Field(default=0.0, ge=0, description="bytes moved per sample")
    kernels: int = Field(default=0, ge=0, le=10**9, description="operations per step that are launched one by one")

    def flops(self, batch: float) -> float:
        """Floating-point operations of a step."""
        return self.flops_per_sample * batch

    def moved_bytes(self, batch: float) -> float:
        """Bytes that a step moves."""
        return float(self.base_bytes + self.per_sample_bytes * batch)


Factor = Annotated[Moderate, Field(gt=0, le=1e6)]


class DeviceTransfer(Spec):
    """Change of a workload's compute times to another device than the measured one, and its rule.

    A scenario gives ``factor`` (time there over time here: low and high, or low, middle and
    high) and ``source``; all else is filled in when the scenario is resolved.
    """

    rule: Literal["given", "measured-there", "published-pair", "roofline"] = Field(
        default="given", description="how the factor was determined; leave it out in a scenario that gives the factor"
    )
    factor: tuple[Factor, ...] = Field(
        min_length=2, max_length=3, description="time on the new device / time on the measured device: low, (middle,) high"
    )
    source: str = Field(default="", max_length=10_000, description="with rule = given: source of the factor")
    from_device: str = Field(default="", description="device on which the workload was measured; filled in when the scenario is resolved")
    to_device: str = Field(default="", description="device to which it was scaled; filled in when the scenario is resolved")
    sources: tuple[str, ...] = Field(
        default=(), description="sources of the figures in the factor; filled in when the scenario is resolved"
    )
    text: str = Field(default="", description="the rule in one sentence; filled in when the scenario is resolved")

    def _broken_rules(self) -> Iterator[str]:
        if list(self.factor) != sorted(self.factor):
            yield "factor must be low and high, or low, middle and high, in this order"
        if self.rule == "given" and not self.source.strip():
            yield "source is missing: give the source of the factor"
        if self.rule != "given" and not self.to_device:
            yield 'rule is set by Paceline: give factor and source, or leave "moved" out'

    @property
    def applied(self) -> bool:
        """Return whether the times of the workload are already scaled."""
        return bool(self.to_device)

    @property
    def low_mid_high(self) -> tuple[float, float, float]:
        """The factor; its middle defaults to the geometric mean of low and high."""
        low, high = self.factor[0], self.factor[-1]
        return low, self.factor[1] if len(self.factor) == 3 else (low * high) ** 0.5, high


_LEAST_SHARE = 1e-6
"""Share of a device below which replicas do not slow each other down."""

_ANY = {
    "forward": {"base_s": 1.0, "per_sample_s": 0.0},
    "backward": {"base_s": 1.0, "per_sample_s": 0.0},
    "variables": ({"name": "any", "size_bytes": 4.0, "creation_index": 0, "ready": 1.0},),
}
"""Required parts of a workload, as placeholders."""


DISTRIBUTION_PARTS = ("jitter", "jitter_steps", "jitter_draws", "jitter_least"), ("run_to_run_cv", "run_to_run_shared")
"""Fields that belong together: whoever sets the first of them has no use for the others as they were measured."""


BY_DIMENSIONS: Mapping[str, type[Transformer] | type[Residual]] = {"transformer": Transformer, "residual": Residual}
"""Tables of dimensions, from which everything that a workload does not give is computed."""
_MEASURED = ("forward", "backward", "variables")


def _one_of(schema: dict[str, Any]) -> None:
    """Allow dimensions in place of measured keys."""
    required = [name for name in schema["required"] if name not in _MEASURED]
    schema["required"] = required
    schema.setdefault("allOf", []).append({"anyOf": [{"required": list(_MEASURED)}, *({"required": [name]} for name in BY_DIMENSIONS)]})


_WRITTEN_IF_SET = (
    "device_work", "layers", "overheads", "noise_scale", "passes", "recast", *BY_DIMENSIONS, "computed", "measured_with", "backend",
)  # fmt: skip


class Workload(Short, Terse, only=_WRITTEN_IF_SET):
    """A model's training step on one device, and what must be communicated for it."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=_one_of)
    see: ClassVar[str] = "to_frame() lists every key; paceline.load('ring', {'workload': workload}) puts it into a scenario"

    schema_version: Literal[1] = Field(default=1, description="version of this format")
    name: str = Field(default="own workload", min_length=1, max_length=10_000, description="for readers")
    description: str = Field(default="", description="for readers")
    model: str = Field(
        default="", max_length=200, description="name of the model, such as resnet-50; workloads of the same model may replace each other"
    )
    backend: Literal["tensorflow", "jax", "torch"] = Field(
        default="tensorflow", description="framework that the times were measured under, as Keras names its backends"
    )
    precision: Precision = Field(default="float32", description="precision in which the times were measured, as Keras names its policies")
    batch_per_replica: int | None = Field(default=None, ge=1, le=10**9, description="samples per replica and step (weak scaling)")
    global_batch: int | None = Field(
        default=None, ge=1, le=10**12, description="samples of all replicas together per step (strong scaling)"
    )
    forward: Affine = Field(description="time of the forward pass of a batch on the measured device")
    backward: Affine = Field(description="time of the backward pass of a batch")
    measured_with: Literal["device", "servers"] = Field(
        default="device",
        description="what a measured step included. device: only computing; servers: the whole step of one worker with the strategy's "
        "parameter servers, so forward and backward include a pull and a push, which are subtracted once",
    )
    apply_s: WorkTime = Field(default=0.0, description="optimizer's update of all variables on the device")
    input: Affine = Field(
        default=Affine(base_s=0.0, per_sample_s=0.0), description="time to prepare a batch, while the previous one is computed"
    )
    input_bytes_per_sample: Annotated[Moderate, Field(gt=0), SAMPLE_BYTES] | None = Field(
        default=None, description="bytes of one sample as fed to a replica; needed if a client feeds all workers"
    )
    jitter: Distribution = Field(default=Constant(), description="distribution of a step's time around its mean")
    jitter_steps: int | None = Field(
        default=None, ge=1, description="timed steps to which the distribution of jitter was fitted; left out: those of the fit's points"
    )
    jitter_draws: tuple[Distribution, ...] = Field(
        default=(),
        max_length=1000,
        description="distributions of jitter fitted to bootstrap samples of the steps; each run takes one of them",
    )
    jitter_least: PositiveShare | None = Field(
        default=None,
        description="fastest measured step divided by the mean; the distribution of jitter is truncated there; left out: not truncated",
    )
    run_to_run_cv: Share = Field(default=0.0, description="coefficient of variation of a worker process's mean speed from run to run")
    run_to_run_shared: Share | None = Field(
        default=None,
        description="share of that variance common to processes that run on one machine at the same time; left out: not measured, each "
        "process is drawn independently",
    )
    busy_core_slowdown: float = Field(
        default=0.0,
        ge=0,
        le=10,
        description="with compute on cores that all nodes share (cluster.shared_cores with device_is_host): share by which it slows down "
        "per other busy core",
    )
    device_work: Affine | None = Field(
        default=None,
        description="seconds of a step that need the whole device; with replicas that share a device (cluster.device_sharing = "
        '"concurrent"), this divided by the step\'s time is the share of it that one replica keeps busy; left out: the '
        "update plus the part of each pass that grows with the batch, or the whole pass if least gives the time to launch "
        "its kernels",
    )
    server: ServerCost = Field(default=ServerCost(), description="service time of a parameter server for one gradient tensor")
    variables: tuple[Variable, ...] = Field(
        min_length=1, max_length=100_000, description="trainable variables, in the order in which their gradients become ready"
    )
    calibrated: WorkloadRange | None = Field(default=None, description="measured range; results warn outside it")
    uncertainty: Uncertainty | None = Field(default=None, description="uncertainty of the fit of the times")
    fit: CalibrationFit | None = Field(default=None, description="how well the fit describes the measurements")
    provenance: dict[str, str] = Field(default_factory=dict, description="source of each figure")
    overridden: tuple[str, ...] = Field(default=(), description="fitted or measured parts that the scenario overrides")
    counted: Counted | None = Field(default=None, description="operations and bytes of a step on any device; left out: not counted")
    moved: DeviceTransfer | None = Field(
        default=None, description="factor by which times change on a device other than the measured one; left out: from a rule"
    )
    layers: tuple[Layer, ...] = Field(
        default=(), max_length=10_000, description="layers in the order of the forward pass; needed by strategies that split a model"
    )
    overheads: Overheads | None = Field(default=None, description="time that its jobs spend outside steps")
    noise_scale: NoiseScale | None = Field(
        default=None,
        description="gradient noise scale, which predicts the samples to a target with other batches; no effect on simulations",
    )
    passes: Passes | None = Field(
        default=None, description="passes of a step made of micro-batches; filled in when the scenario is resolved"
    )
    recast: Recast | None = Field(
        default=None, description="change to a precision other than the measured one; filled in when the scenario is resolved"
    )

    transformer: Transformer | None = Field(
        default=None, description="dimensions of a transformer, from which everything not given is computed (docs/numbers.md)"
    )
    residual: Residual | None = Field(
        default=None, description="dimensions of a residual network, from which everything not given is computed"
    )
    computed: Computed | None = Field(default=None, description="parts computed from dimensions; filled in when the workload is read")

    def _in_short(self) -> Iterator[str]:
        yield f"{self.name}, {self.precision}"
        if self.variables:
            size = math.fsum(variable.size_bytes for variable in self.variables)
            yield f"{counted(len(self.variables), 'variable')} of {format_bytes(size)} in all"
        if (batch := self.batch_per_replica) is not None:
            both = format_seconds(self.forward(batch) + self.backward(batch))
            yield f"forward and backward pass of {counted(batch, 'sample')}: {both}"

    @model_validator(mode="before")
    @classmethod
    def _of_dimensions(cls, data: Any) -> Any:
        """Fill in what follows from dimensions, unless the table gives it."""
        given = [name for name in BY_DIMENSIONS if data.get(name) is not None] if isinstance(data, Mapping) else []
        if not given:
            return data
        if len(given) > 1:
            raise ValueError(f"has both {' and '.join(given)}; keep one")
        model, table, precision, before = BY_DIMENSIONS[given[0]], data[given[0]], data.get("precision", "float32"), data.get("computed")
        known = precision in get_args(Precision) and (before is None or is_valid(Computed, before))
        if not is_valid(model, table) or not known:
            # their own faults are reported, not that something is missing that would follow from them
            return {**_ANY, **data}
        dimensions = model.model_validate(table)
        if before is None:
            try:
                return _filled(data, _expanded(dimensions, precision, dimensions.device, ()))
            except ValueError as error:
                raise ValueError(f"{given[0]}.device: {dimensions.device!r} {error}") from None
        was = Computed.model_validate(before)
        lacking = [name for name in was.keys if name not in data]
        if not lacking:
            return data
        expanded = _expanded(dimensions, precision, was.device, tuple(was.constants.items()))
        return {**data, **{name: expanded[name] for name in lacking if name in expanded}}

    @property
    def keras_3(self) -> str:
        """Version of the Keras 3 whose model was measured under TensorFlow; empty of all else, and of a step of the user's own."""
        version, own_step = self.provenance.get("keras", ""), "--step" in self.provenance.get("command", "").split()
        return version if self.backend == "tensorflow" and version.startswith("3.") and not own_step else ""

    @model_serializer(mode="wrap")
    def _terse(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Leave out what follows from dimensions too, since it follows from them again when it is read.

        The context ``{"filled": True}`` of a serialisation asks for it.
        """
        written = super()._terse(handler, info)
        if self.computed is not None and self.dimensions is not None and not (info.context or {}).get("filled"):
            expanded = _expanded(self.dimensions, self.precision, self.computed.device, tuple(self.computed.constants.items()))
            for name in self.computed.keys:
                if getattr(self, name) == expanded.get(name):
                    written.pop(name, None)
        return written

    def _broken_rules(self) -> Iterator[str]:
        indices = sorted(variable.creation_index for variable in self.variables)
        if indices != list(range(len(indices))):
            yield "variables must have each creation_index from 0 exactly once"
        for earlier, later in zip(self.variables, self.variables[1:], strict=False):
            if later.ready < earlier.ready:
                yield (
                    f"variables must be in the order in which their gradients become ready, but {earlier.name[:60]!r} (ready "
                    f"{earlier.ready!r}) comes before {later.name[:60]!r} (ready {later.ready!r})"
                )
        if self.forward(1) + self.backward(1) <= 0:
            yield "forward and backward must take more than 0 s together"
        if self.uncertainty is not None:
            yield from self.uncertainty.broken_rules_of(self)
        yield from self._rules_of_layers()

    def _rules_of_layers(self) -> Iterator[str]:
        if not self.layers:
            return
        of_layers = sorted(index for layer in self.layers for index in layer.variables)
        if of_layers != list(range(len(self.variables))):
            yield f"layers must list each of the {len(self.variables)} variables once, by creation_index"
        if not math.fsum(layer.forward + layer.backward_work for layer in self.layers):
            yield "layers must have work: forward and backward of all layers are 0"
        for layer in self.layers:
            if layer.experts is not None and not set(layer.experts.variables) <= set(layer.variables):
                yield f"layer {layer.name[:60]!r}: its experts list variables that the layer does not have"
            if not set(layer.tied) <= set(of_layers) - set(layer.variables):
                named = ", ".join(map(str, layer.tied[:10]))
                yield f"layer {layer.name[:60]!r}: tied ({named}) must list variables of other layers, by creation_index"

    @property
    def dimensions(self) -> Transformer | Residual | None:
        """Dimensions of the model, if it is described by them."""
        return self.transformer or self.residual

    @property
    def is_computed(self) -> bool:
        """Return whether its times are computed from dimensions."""
        return self.computed is not None and self.computed.timed

    @property
    def is_eager(self) -> bool:
        """Return whether its times are computed for a framework that launches each kernel."""
        return self.computed is not None and EAGER in self.computed.constants

    @property
    def is_in_proportion(self) -> bool:
        """Return whether its passes are taken to be in proportion to the batch; a step with servers holds more than passes."""
        fitted = self.uncertainty is not None and any(name.endswith(".base_s") for name in self.uncertainty.parameters)
        fixed = any(each.base_s or each.least_s for each in (self.forward, self.backward))
        return not (self.is_computed or fitted or fixed or self.measured_with == "servers")

    @property
    def timed_batch(self) -> float | None:
        """The one batch that passes in proportion to it were timed with, by ``calibrated``; None where more is known, or nothing."""
        known = self.calibrated
        if known is None or not self.is_in_proportion or known.batch[0] < known.batch[1]:
            return None
        return float(known.batch[0])

    @property
    def told_batch(self) -> float | None:
        """The global batch to which passes are proportional, if no measured batches are given; else None."""
        return float(self.global_batch) if self.global_batch and self.calibrated is None and self.is_in_proportion else None

    def timed_at(self, batch: int) -> Workload:
        """Itself, or with this as the one batch that passes in proportion to it were timed with, where it does not say which."""
        if self.calibrated is not None or not self.is_in_proportion:
            return self
        return self.model_copy(update={"calibrated": WorkloadRange(batch=(float(batch), float(batch)))})

    @property
    def device(self) -> str:
        """Device of its times, measured or computed; empty if not given."""
        if self.moved is not None and self.moved.applied:
            return self.moved.to_device
        if self.computed is not None and self.computed.timed:
            return self.computed.device
        return self.calibrated.device if self.calibrated is not None else ""

    def computed_for(self, device: str, own: Mapping[str, Known], *, eager: bool | None = None) -> Workload:
        """Return the workload for another device, or with other constants; itself where neither is other, or its times are not computed.

        Parameters
        ----------
        device
            A name of ``models/devices``; empty: the one it is for.
        own
            Constants by name, in place of those of ``models/practice.toml``.
        eager
            Whether a framework launches each kernel; None: as it is.

        Raises
        ------
        ValueError
            Times cannot be computed for this device: it is not known, or states no peak for the workload's precision;
            the message begins behind its name.
        """
        was, dimensions = self.computed, self.dimensions
        if was is None or dimensions is None or not was.timed:
            return self
        others = {name: known for name, known in own.items() if name in was.constants and known != was.constants[name]}
        launched = self.is_eager if eager is None else eager
        if not others and launched == self.is_eager and (not device or known_device(device).name == was.device):
            return self
        expanded = _expanded(dimensions, self.precision, device or was.device, tuple(own.items()), launched)
        given = {name: getattr(self, name) for name in type(self).model_fields if name not in was.keys and name != "computed"}
        return Workload.model_validate(_filled(given, {name: expanded[name] for name in (*was.keys, "computed")}))

    @property
    def moved_by_factor(self) -> bool:
        """Return whether its times are scaled from another device by a factor."""
        return self.moved is not None and self.moved.applied and self.moved.rule != "measured-there"

    @property
    def steps_seen(self) -> int | None:
        """Timed steps that the distribution of jitter was fitted to; none where it was given, not measured."""
        if "jitter" in self.overridden:
            return None
        points = self.fit.points if self.fit is not None else ()
        return self.jitter_steps or sum(point.steps for point in points) or None

    @property
    def draws_its_distribution(self) -> bool:
        """Return whether each replication has a distribution of jitter of its own, by :meth:`with_drawn_distribution`."""
        return bool(self.jitter_draws) or (isinstance(self.jitter, Empirical) and self.steps_seen is not None)

    def with_drawn_distribution(self, rng: np.random.Generator) -> Workload:
        """A copy with one of the distributions of jitter that the measured steps may come from.

        A fitted distribution is one of ``jitter_draws``; a measured sample is resampled.
        """
        if self.jitter_draws:
            return self.model_copy(update={"jitter": self.jitter_draws[int(rng.integers(len(self.jitter_draws)))]})
        if isinstance(self.jitter, Empirical) and self.steps_seen is not None:
            return self.model_copy(update={"jitter": self.jitter.resampled(self.steps_seen, rng)})
        return self

    @property
    def parameter_bytes(self) -> float:
        """Bytes of all trainable variables."""
        return float(math.fsum(variable.size_bytes for variable in self.variables))

    def forward_s(self, batch: float) -> float:
        """Mean seconds of a step before its last backward pass: the forward pass, or all parts but the last one's backward pass."""
        return self.forward(batch) if self.passes is None else self.passes.forward_s(self.forward, self.backward, batch)

    def backward_s(self, batch: float) -> float:
        """Mean seconds of a step's last backward pass, within which gradients become ready."""
        return self.backward(batch) if self.passes is None else self.passes.backward_s(self.forward, self.backward, batch)

    def compute_s(self, batch: float) -> float:
        """Mean seconds of all passes of a step together."""
        return self.forward_s(batch) + self.backward_s(batch)

    def busy_share(self, batch: float) -> float:
        """Share of a device that a step of a single replica keeps busy, mean over the step: its work on the device divided by its time.

        On a processor the work is measured: CPU seconds over cores. On an accelerator the
        host may need longer to start kernels than they take, or they may be too small to fill
        the device; only what grows with the batch is then sure to need all of it.
        """
        whole_s = self.compute_s(batch) + self.apply_s
        parts = self.passes.micro_batches if self.passes is not None else 1
        if self.device_work is not None:
            work_s = parts * self.device_work(batch / parts)
        else:
            # what is computed again, or in parts, keeps the share of the passes that it is made of
            passes = self.forward, self.backward
            once_s = math.fsum(each(batch / parts) for each in passes)
            busy_s = math.fsum(each.per_sample_s * batch / parts + (each.base_s if each.least_s else 0.0) for each in passes)
            work_s = self.apply_s + self.compute_s(batch) * (busy_s / once_s if once_s else 1.0)
        return float(min(max(work_s / whole_s, _LEAST_SHARE), 1.0)) if whole_s else 1.0

    def first_pass(self, batch: float) -> float:
        """Share of :meth:`forward_s` that is the first forward pass, in which variables are needed one by one."""
        if self.passes is None or self.passes.micro_batches == 1:
            return 1.0
        whole_s = self.forward_s(batch)
        return self.forward(batch / self.passes.micro_batches) / whole_s if whole_s else 1.0


@lru_cache(maxsize=64)
def _expanded(
    dimensions: Transformer | Residual, precision: str, device: str, own: tuple[tuple[str, Known], ...], eager: bool = False
) -> dict[str, Any]:
    """Compute and validate what follows from dimensions: :func:`~simulator.spec.computed.step_of` with its errors."""
    step = step_of(dimensions, precision, device, dict(own), eager=eager)
    tables: dict[str, type[Spec]] = {"counted": Counted, "forward": Affine, "backward": Affine, "uncertainty": Uncertainty}
    validated = {name: table.model_validate(step[name]) for name, table in tables.items()}
    return {**step, **validated, "variables": tuple(map(Variable.model_validate, step["variables"]))}


def _filled(data: Mapping[str, Any], expanded: Mapping[str, Any]) -> dict[str, Any]:
    """A workload's table with what follows from its dimensions, where it is not given; draws of what is given are left out."""
    keys = [name for name in expanded if name != "computed" and data.get(name) is None and data.get(short_name(name)) is None]
    own = data.get("variables")
    if isinstance(own, Sequence) and len(own) != len(expanded["variables"]) and "layers" in keys:
        keys.remove("layers")  # which name other variables
    filled = {**data, **{name: expanded[name] for name in keys}}
    for name in ("forward", "backward"):
        if isinstance(given := data.get(name), Mapping) and not {short_name(key) for key in given} >= {"base", "per_sample"}:
            own = {short_name(key) for key in given}
            filled[name] = {**{key: value for key, value in expanded[name].model_dump().items() if short_name(key) not in own}, **given}
    if "uncertainty" in keys:
        names, draws = expanded["uncertainty"].parameters, expanded["uncertainty"].draws
        kept = [column for column, name in enumerate(names) if name.partition(".")[0] in keys]
        if not kept:
            keys.remove("uncertainty")
            del filled["uncertainty"]
        elif len(kept) < len(names):
            drawn = tuple(tuple(draw[column] for column in kept) for draw in draws)
            filled["uncertainty"] = Uncertainty(parameters=tuple(names[column] for column in kept), draws=drawn)
    return {**filled, "computed": {**expanded["computed"], "keys": keys}}
