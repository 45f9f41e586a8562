"""The versioned schema of a measurement file: a class for each kind of line.

Probes cannot import this: what ``recorder.write(KIND, ...)`` gets in ``calibrate/probes`` and ``evidence/probes`` must have the kinds
and fields of these classes. Files that users keep must stay readable, so a new field needs a default. The version also stands
in ``calibrate/probes/recorder.py``. Files are read in :mod:`calibrate.measurements`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

SCHEMA_VERSION = 1

FRAMEWORKS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch", "keras": "Keras 3"}
"""What a probe may need of the user's Python, by the names that records have, each with its name for readers."""

_MOST = 1e100
"""What is larger cannot be summed or squared, and nothing that a probe measures is."""
Positive = Annotated[float, Field(gt=0, le=_MOST, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, le=_MOST, allow_inf_nan=False)]
_MOST_COUNTED = 10**15
"""Nothing that a probe counts is more, and sums of such numbers still fit into 64 bits."""
Count = Annotated[int, Field(ge=0, le=_MOST_COUNTED)]
Several = Annotated[int, Field(ge=1, le=_MOST_COUNTED)]
Batch = Annotated[int, Field(ge=1, le=10**9)]
Calls = Annotated[int, Field(ge=1, le=4096)]


class _Record(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Header(_Record):
    """First line: what was asked for, and when."""

    kind: Literal["header"]
    schema_version: Literal[1]
    probe: Literal["step", "links", "servers", "testbed", "job", "input", "replay", "noise_scale"]
    started: str
    arguments: dict[str, Any]


class Fingerprint(_Record):
    """Machine, device and framework that the times hold for: ``backend``, and its version under the same name."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="allow")

    kind: Literal["fingerprint"]
    backend: Literal["tensorflow", "jax", "torch"] = "tensorflow"
    tensorflow: str = ""
    jax: str = ""
    torch: str = ""
    python: str
    device: str
    device_kind: str
    device_name: str
    gpu_unseen: bool = False
    gpus_present: tuple[str, ...] = ()
    cores: Several | None = None

    @property
    def software(self) -> str:
        """The framework and its version, in words."""
        return f"{FRAMEWORKS[self.backend]} {getattr(self, self.backend)}"


class WarmUp(_Record):
    """One step of the warm-up: kept, not fitted."""

    kind: Literal["warmup"]
    batch: Batch
    seconds: Positive


class StartUpTime(_Record):
    """Seconds from the start of the process until its first step began, without what the probe did for itself.

    ``of_process`` is false where the system does not tell when a process was started: then
    the interpreter's own start is not in it.
    """

    kind: Literal["startup"]
    seconds: Positive
    of_process: bool


class EvaluationTime(_Record):
    """One of the first steps of an evaluation in this process; the first traces."""

    kind: Literal["evaluation"]
    batch: Batch
    index: Count
    seconds: Positive


class CheckpointTime(_Record):
    """One checkpoint: written, synchronised with the disk, read again, and its variables copied to the host.

    ``cold``: whether the system was asked to forget the file before it was read.
    """

    kind: Literal["checkpoint"]
    index: Count
    size_bytes: Positive
    write_s: NotNegative
    sync_s: NotNegative
    restore_s: Positive
    cold: bool
    snapshot_s: NotNegative


class IteratorEnd(_Record):
    """The end of one ``tf.data`` iterator: how old it was, and how long that took."""

    kind: Literal["iterator"]
    index: Count
    age_s: Positive
    wait_s: NotNegative


class Unmeasured(_Record):
    """Something beside the steps could not be measured."""

    kind: Literal["unmeasured"]
    what: Literal["evaluation", "checkpoint", "iterators"]
    why: str


class StepTime(_Record):
    """One timed step as the user wrote it; ``cpu_s``: of the processor, by all threads of its process."""

    kind: Literal["step"]
    batch: Batch
    round: Count
    seconds: Positive
    cpu_s: NotNegative | None = None


class Load(_Record):
    """What else the machine did in a stretch of time: before the first step, in a round, or in all rounds that count.

    ``others_s`` are seconds of the cores at hand that other processes took, ``stolen_s``
    those that the hypervisor gave to other machines. ``why`` says what disturbed the steps;
    a round with a reason does not count.
    """

    kind: Literal["load"]
    stage: Literal["before", "round", "rounds"]
    round: Count | None = None
    wall_s: Positive
    cores: Several
    own_s: NotNegative
    others_s: NotNegative | None
    stolen_s: NotNegative
    switches: Count
    throttled: Count
    clock_hz: Positive | None
    gpu_percent: NotNegative | None = None
    why: str = ""


class Split(_Record):
    """One step with clocks inside."""

    kind: Literal["split"]
    batch: Batch
    index: Count
    forward_s: NotNegative
    backward_s: NotNegative
    apply_s: NotNegative


class Ready(_Record):
    """When each gradient of one step was there, in seconds after the loss, by variable."""

    kind: Literal["ready"]
    batch: Batch
    index: Count
    observed: bool
    ready_s: dict[Count, NotNegative]


class Rows(_Record):
    """Rows of a sparse gradient that one step touched."""

    kind: Literal["rows"]
    batch: Batch
    index: Count
    variable: Count
    rows: NotNegative


class VariableRecord(_Record):
    """One trainable variable; ``created`` tells the order of creation."""

    kind: Literal["variable"]
    index: Count
    name: str
    shape: tuple[Annotated[int, Field(le=_MOST_COUNTED)], ...]
    dtype: str
    size_bytes: Positive
    gradient_dtype: str
    sparse_row_bytes: Positive | None
    created: Count


class Memory(_Record):
    """Peak bytes on the device during one step."""

    kind: Literal["memory"]
    batch: Batch
    peak_bytes: NotNegative


class LayerRecord(_Record):
    """One layer of the model at one batch size, by its graph; ``variables`` by the order of creation, flops none where not countable."""

    kind: Literal["layer"]
    batch: Batch
    index: Count
    name: str = Field(min_length=1)
    variables: tuple[Count, ...]
    output_bytes: NotNegative
    kept_bytes: NotNegative
    flops: NotNegative | None


class LayerTimes(_Record):
    """One step with clocks between the layers: seconds of each layer's passes, in the order of the forward pass."""

    kind: Literal["layers"]
    batch: Batch
    index: Count
    forward_s: tuple[NotNegative, ...]
    backward_s: tuple[NotNegative, ...]


class CountedStep(_Record):
    """What one step asks of a device, counted from its graph; nothing where ``why`` says that it could not be."""

    kind: Literal["counted"]
    batch: Batch
    flops: NotNegative | None = None
    bytes: NotNegative | None = None
    kernels: Count | None = None
    why: str = ""


class ServerTime(_Record):
    """Seconds of one call that applies ``applies`` gradients of one size, one after the other."""

    kind: Literal["server"]
    size_bytes: Positive
    round: Count
    applies: Batch
    seconds: Positive


class Transfer(_Record):
    """Seconds of one call that moves a tensor ``hops`` times, one after the other; ``cpu_s``: of the processor, by its process."""

    kind: Literal["transfer"]
    path: str
    size_bytes: Positive
    round: Count
    hops: Count
    seconds: Positive
    cpu_s: NotNegative | None = None


class Exchange(_Record):
    """Seconds of one call in which a worker pulls that many variables of one size from a server, or pushes as many gradients to it."""

    kind: Literal["exchange"]
    direction: Literal["pull", "push"]
    tensors: Several
    size_bytes: Positive
    round: Count
    seconds: Positive


class Updated(_Record):
    """One step of one worker of the testbed; times are seconds since the common start."""

    kind: Literal["update"]
    repeat: Count
    worker: Annotated[int, Field(ge=-1, le=_MOST_COUNTED)]
    start_s: float
    pulled_s: float
    computed_s: float
    applied_s: float
    read_version: Count
    version: Count


class JobEvent(_Record):
    """Something that happened to a job of the testbed beside its steps; times are seconds since the first common start.

    ``launched`` and ``started`` are of all tasks of an attempt; ``killed``, ``missed`` (it was
    dead already), ``restarted``, ``back`` of the ``task`` itself; ``noticed`` and ``recovered``
    of the task that says so, about the task in ``of`` where it knows which; ``ended`` of a task
    that did not outlive another; ``checkpoint`` and ``restored`` begin at that time.
    """

    kind: Literal["event"]
    repeat: Count
    attempt: Count
    what: Literal["launched", "started", "killed", "missed", "noticed", "ended", "restarted", "back", "recovered", "checkpoint", "restored"]
    at_s: float
    task: str = ""
    of: str = ""
    seconds: NotNegative | None = None
    step: Count | None = None
    message: str = ""


class StagePass(_Record):
    """One pass of one stage of a model that is on several devices; times are seconds since the common start."""

    kind: Literal["pass"]
    repeat: Count
    step: Count
    stage: Count
    phase: Literal["forward", "backward", "apply"]
    micro_batch: Count
    begun_s: float
    ended_s: float


class Span(_Record):
    """A part of a whole training; times are seconds since the start of its process, epochs count from 0 on."""

    kind: Literal["span"]
    what: Literal["step", "evaluation step", "evaluation", "checkpoint", "epoch", "job"]
    epoch: Count
    began_s: NotNegative
    ended_s: NotNegative


class Used(_Record):
    """What one task of the testbed has sent, received and computed between the common start and its end."""

    kind: Literal["used"]
    repeat: Count
    task: str
    sent_bytes: NotNegative
    received_bytes: NotNegative
    user_s: NotNegative
    system_s: NotNegative


class LinkCheck(_Record):
    """How fast plain sockets moved bytes between two hosts of the testbed."""

    kind: Literal["link"]
    repeat: Count
    asked_bytes_per_s: Positive
    bytes_per_s: Positive


class Repeat(_Record):
    """A repeat of the testbed came to its end; all of its records stand before this one."""

    kind: Literal["repeat"]
    repeat: Count
    clock_drift_s: float
    others_share: float | None = Field(
        default=None, description="of the cores' time, what other processes, the kernel or the hypervisor took"
    )


class PipelineRecord(_Record):
    """A tf.data pipeline as its graph tells it; -1 stands for AUTOTUNE, and for what is not known."""

    kind: Literal["pipeline"]
    takes: list[str]
    stages: list[dict[str, Any]]
    batch: Batch
    batched: bool
    epoch_batches: Annotated[int, Field(le=_MOST_COUNTED)]
    shuffle_samples: Annotated[int, Field(ge=0, le=10**12)]
    prefetch: Annotated[int, Field(le=10**6)] | None
    calls: list[Annotated[int, Field(le=4096)]]
    cached: bool
    cores: Several


class FirstBatch(_Record):
    """From asking for an iterator to its first batch."""

    kind: Literal["first_batch"]
    batch: Batch
    calls: Calls
    round: Count
    epoch: Literal["first", "later"]
    seconds: Positive


class Batches(_Record):
    """Batches of one stretch, one after another at full speed: seconds of each; CPU time and bytes read for one."""

    kind: Literal["batches"]
    batch: Batch
    calls: Calls
    round: Count
    epoch: Literal["first", "later"]
    seconds: Annotated[list[NotNegative], Field(min_length=1)]
    cpu_s: NotNegative
    read_bytes: NotNegative | None = None


class StageNode(_Record):
    """One stage, as tf.data runs it: seconds of its own and elements for each batch."""

    id: int
    name: str
    asynchronous: bool
    interleaves: bool
    seconds: NotNegative
    elements: NotNegative
    inputs: list[int]
    parameters: dict[str, float]


class Stages(_Record):
    """tf.data's own accounting of a stretch (its autotuning model).

    Where the pipeline switches autotuning off, ``separate`` is true: the account is that of a stretch of its own, with
    autotuning on, whose times are not used.
    """

    kind: Literal["stages"]
    batch: Batch
    calls: Calls
    round: Count
    epoch: Literal["first", "later"]
    nodes: list[StageNode]
    separate: bool = False


class Ahead(_Record):
    """Batches that stood ready after a pause of the consumer that was long enough for ``most``."""

    kind: Literal["ahead"]
    batches: Count
    most: Several
    mean_s: Positive


class Note(_Record):
    """Anything else worth keeping."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="allow")

    kind: Literal["note"]
    pulled_dense: tuple[str, ...] = ()


class Problem(_Record):
    """A model and its data, as the user's function makes them."""

    kind: Literal["problem"]
    name: str
    samples: Several
    validation_samples: Several
    parameters: Several
    optimizer: str


class Learned(_Record):
    """How good the model of a run was at one moment: time since the first step's begin, as simulated; metrics that are finite."""

    kind: Literal["learned"]
    run: str
    time_s: NotNegative
    updates: Count
    samples: Count
    metrics: dict[str, float]


class Replayed(_Record):
    """A run came to its end, or its loss was no finite number any more."""

    kind: Literal["replayed"]
    run: str
    diverged: bool


class GradientNorms(_Record):
    """Square norms of the mean gradient of some samples, drawn anew for each, with the model as it was after some steps."""

    kind: Literal["gradient_norms"]
    step: Count
    trained_batch: Batch
    batch: Batch
    squares: Annotated[tuple[NotNegative, ...], Field(min_length=2)]


class Failure(_Record):
    """The probe stopped here, and why."""

    kind: Literal["error"]
    type: str
    message: str
    where: str = ""
    lacks: Literal["", "tensorflow", "jax", "torch", "keras"] = Field(default="", description="what that Python does not have installed")


class End(_Record):
    """Last line of a run that came to its end."""

    kind: Literal["end"]


Record = Annotated[
    Header
    | Fingerprint
    | WarmUp
    | StartUpTime
    | EvaluationTime
    | CheckpointTime
    | IteratorEnd
    | Unmeasured
    | StepTime
    | Load
    | Split
    | Ready
    | Rows
    | VariableRecord
    | Memory
    | LayerRecord
    | LayerTimes
    | CountedStep
    | ServerTime
    | Transfer
    | Exchange
    | Updated
    | JobEvent
    | StagePass
    | Span
    | Used
    | LinkCheck
    | Repeat
    | PipelineRecord
    | FirstBatch
    | Batches
    | Stages
    | Ahead
    | Note
    | Problem
    | Learned
    | Replayed
    | GradientNorms
    | Failure
    | End,
    Field(discriminator="kind"),
]

record_adapter: TypeAdapter[Any] = TypeAdapter(Record)
"""Validates one parsed line."""
