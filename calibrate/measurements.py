"""Measurement files (NDJSON): what a line may hold, a class for each kind; how files are named, read and checked.

Probes cannot import this: what ``recorder.write(KIND, ...)`` gets in ``calibrate/probes`` and ``evidence/probes`` must have the kinds
and fields of these classes. Files that users keep must stay readable, so a new field needs a default; a study may have
records of its own. The version is also in ``calibrate/probes/recording.py``, which adds the checksum of each line that
:mod:`simulator.base.files` checks.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simulator.base.errors import CalibrationError
from simulator.base.files import CHANGED, bytes_of, checksum_holds, mistaken
from simulator.base.files import KEY as CHECKSUM
from simulator.base.text import printable
from simulator.base.validation_errors import fault_of

SCHEMA_VERSION = 1

FRAMEWORKS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch", "keras": "Keras 3"}
"""Packages that a probe may need in the user's Python, by their names in records, each with its name for readers."""

Z90 = 1.6449
"""Half the 90% interval of a normal distribution, in standard deviations, with the digits that fitted files have been written with."""

_MOST = 1e100
"""Larger values could not be summed or squared, and no probe measures them."""
Positive = Annotated[float, Field(gt=0, le=_MOST, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, le=_MOST, allow_inf_nan=False)]
_MOST_COUNTED = 10**15
"""Nothing that a probe counts is more, and sums of such numbers still fit into 64 bits."""
Count = Annotated[int, Field(ge=0, le=_MOST_COUNTED)]
Several = Annotated[int, Field(ge=1, le=_MOST_COUNTED)]
Batch = Annotated[int, Field(ge=1, le=10**9)]
Calls = Annotated[int, Field(ge=1, le=4096)]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Record(_Line):
    """One line of a measurement file; its class is found by the line's ``kind``.

    Attributes
    ----------
    timed
        Whether a file of a probe that has one is not empty.
    """

    kinds: ClassVar[dict[str, type[Record]]] = {}
    timed: ClassVar[bool] = False

    def __init_subclass__(cls, kind: str = "", timed: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.timed = timed
        if kind:
            Record.kinds[kind] = cls


class _OfStep(Record):
    batch: Batch
    index: Count


class _OfStretch(Record):
    batch: Batch
    calls: Calls
    round: Count
    epoch: Literal["first", "later"]


class OfRepeat(Record):
    """One line of a repeat of the testbed."""

    repeat: Count


class Header(Record, kind="header"):
    """First line: what was asked for, and when."""

    schema_version: Literal[1]
    probe: Literal["step", "links", "servers", "testbed", "job", "input", "replay", "noise_scale"]
    started: str
    arguments: dict[str, Any]


class Fingerprint(Record, kind="fingerprint"):
    """Machine, device and framework that the times hold for: ``backend``, and its version under the same name."""

    model_config = ConfigDict(extra="allow")

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


class WarmUp(Record, kind="warmup", timed=True):
    """One step of the warm-up: kept, not fitted."""

    batch: Batch
    seconds: Positive


class StartUpTime(Record, kind="startup"):
    """Seconds from the start of the process until its first step began, without what the probe did for itself.

    ``of_process`` is false where the system does not tell when a process was started: then
    the interpreter's own start is not in it.
    """

    seconds: Positive
    of_process: bool


class EvaluationTime(_OfStep, kind="evaluation"):
    """One of the first steps of an evaluation in this process; the first traces."""

    seconds: Positive


class CheckpointTime(Record, kind="checkpoint"):
    """One checkpoint: written, synchronised with the disk, read again, and its variables copied to the host.

    ``cold``: whether the system was asked to forget the file before it was read.
    """

    index: Count
    size_bytes: Positive
    write_s: NotNegative
    sync_s: NotNegative
    restore_s: Positive
    cold: bool
    snapshot_s: NotNegative


class IteratorEnd(Record, kind="iterator"):
    """The end of one ``tf.data`` iterator: how old it was, and how long that took."""

    index: Count
    age_s: Positive
    wait_s: NotNegative


class Unmeasured(Record, kind="unmeasured"):
    """Something outside the steps could not be measured."""

    what: Literal["evaluation", "checkpoint", "iterators"]
    why: str


class StepTime(Record, kind="step", timed=True):
    """One timed step as the user wrote it; ``cpu_s``: of the processor, by all threads of its process."""

    batch: Batch
    round: Count
    seconds: Positive
    cpu_s: NotNegative | None = None


class Plan(Record, kind="plan"):
    """Plan of a calibration within its budget: processes from this one on, rounds of each, steps of a batch size.

    ``whole``: everything that was asked for.
    """

    processes: Several
    rounds: Several
    steps: Several
    whole: bool


class Load(Record, kind="load"):
    """Other load of the machine in a period: before the first step, in a round, or in all valid rounds.

    ``others_s`` are seconds of the cores at hand that other processes took, ``stolen_s``
    those that the hypervisor gave to other machines. ``why`` says what disturbed the steps;
    a round with a reason does not count.
    """

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


class Split(_OfStep, kind="split", timed=True):
    """One step with clocks inside."""

    forward_s: NotNegative
    backward_s: NotNegative
    apply_s: NotNegative


class Ready(_OfStep, kind="ready"):
    """When each gradient of one step was there, in seconds after the loss, by variable."""

    observed: bool
    ready_s: dict[Count, NotNegative]


class Rows(_OfStep, kind="rows"):
    """Rows of a sparse gradient that one step touched."""

    variable: Count
    rows: NotNegative


class VariableRecord(Record, kind="variable"):
    """One trainable variable; ``created`` tells the order of creation."""

    index: Count
    name: str
    shape: tuple[Annotated[int, Field(le=_MOST_COUNTED)], ...]
    dtype: str
    size_bytes: Positive
    gradient_dtype: str
    sparse_row_bytes: Positive | None
    created: Count


class Memory(Record, kind="memory"):
    """Peak bytes on the device during one step."""

    batch: Batch
    peak_bytes: NotNegative


class LayerRecord(_OfStep, kind="layer"):
    """One layer of the model at one batch size, by its graph; ``variables`` by the order of creation, flops none where not countable."""

    name: str = Field(min_length=1)
    variables: tuple[Count, ...]
    output_bytes: NotNegative
    kept_bytes: NotNegative
    flops: NotNegative | None


class LayerTimes(_OfStep, kind="layers"):
    """One step with clocks between the layers: seconds of each layer's passes, in the order of the forward pass."""

    forward_s: tuple[NotNegative, ...]
    backward_s: tuple[NotNegative, ...]


class CountedStep(Record, kind="counted"):
    """Work of one step on a device, counted from its graph; nothing where ``why`` says that it could not be."""

    batch: Batch
    flops: NotNegative | None = None
    bytes: NotNegative | None = None
    kernels: Count | None = None
    why: str = ""


class ServerTime(Record, kind="server", timed=True):
    """Seconds of one call that applies ``applies`` gradients of one size, one after the other."""

    size_bytes: Positive
    round: Count
    applies: Batch
    seconds: Positive


class Transfer(Record, kind="transfer", timed=True):
    """Seconds of one call that moves a tensor ``hops`` times, one after the other; ``cpu_s``: of the processor, by its process."""

    path: str
    size_bytes: Positive
    round: Count
    hops: Count
    seconds: Positive
    cpu_s: NotNegative | None = None


class Exchange(Record, kind="exchange", timed=True):
    """Seconds of one call in which a worker pulls that many variables of one size from a server, or pushes as many gradients to it."""

    direction: Literal["pull", "push"]
    tensors: Several
    size_bytes: Positive
    round: Count
    seconds: Positive


class Updated(OfRepeat, kind="update"):
    """One step of one worker of the testbed; times are seconds since the common start."""

    worker: Annotated[int, Field(ge=-1, le=_MOST_COUNTED)]
    start_s: float
    pulled_s: float
    computed_s: float
    applied_s: float
    read_version: Count
    version: Count


class JobEvent(OfRepeat, kind="event"):
    """An event of a testbed job outside its steps; times are seconds since the first common start.

    ``launched`` and ``started`` are of all tasks of an attempt; ``killed``, ``missed`` (it was
    dead already), ``restarted``, ``back`` of the ``task`` itself; ``noticed`` and ``recovered``
    of the task that says so, about the task in ``of`` where it knows which; ``ended`` of a task
    that did not outlive another; ``checkpoint`` and ``restored`` begin at that time.
    """

    attempt: Count
    what: Literal["launched", "started", "killed", "missed", "noticed", "ended", "restarted", "back", "recovered", "checkpoint", "restored"]
    at_s: float
    task: str = ""
    of: str = ""
    seconds: NotNegative | None = None
    step: Count | None = None
    message: str = ""


class Used(OfRepeat, kind="used"):
    """Data sent and received, and compute, of one task of the testbed between the common start and its end."""

    task: str
    sent_bytes: NotNegative
    received_bytes: NotNegative
    user_s: NotNegative
    system_s: NotNegative


class LinkCheck(OfRepeat, kind="link"):
    """How fast plain sockets moved bytes between two hosts of the testbed."""

    asked_bytes_per_s: Positive
    bytes_per_s: Positive


class Repeat(OfRepeat, kind="repeat", timed=True):
    """A repeat of the testbed came to its end; all of its records come before this one."""

    clock_drift_s: float
    others_share: float | None = Field(
        default=None, description="share of the cores' time taken by other processes, the kernel or the hypervisor"
    )


class PipelineRecord(Record, kind="pipeline"):
    """A tf.data pipeline as its graph tells it; -1 means AUTOTUNE or unknown."""

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


class FirstBatch(_OfStretch, kind="first_batch"):
    """From asking for an iterator to its first batch."""

    seconds: Positive


class Batches(_OfStretch, kind="batches", timed=True):
    """Batches of one stretch, one after another at full speed: seconds of each; CPU time and bytes read for one."""

    seconds: Annotated[list[NotNegative], Field(min_length=1)]
    cpu_s: NotNegative
    read_bytes: NotNegative | None = None


class StageNode(_Line):
    """One stage, as tf.data runs it: seconds of its own and elements for each batch."""

    id: int
    name: str
    asynchronous: bool
    interleaves: bool
    seconds: NotNegative
    elements: NotNegative
    inputs: list[int]
    parameters: dict[str, float]


class Stages(_OfStretch, kind="stages"):
    """tf.data's own accounting of a stretch (its autotuning model).

    Where the pipeline switches autotuning off, ``separate`` is true: the account is that of a stretch of its own, with
    autotuning on, whose times are not used.
    """

    nodes: list[StageNode]
    separate: bool = False


class Ahead(Record, kind="ahead"):
    """Batches ready after a pause of the consumer that was long enough for ``most``."""

    batches: Count
    most: Several
    mean_s: Positive


class Note(Record, kind="note"):
    """Anything else worth keeping."""

    model_config = ConfigDict(extra="allow")

    pulled_dense: tuple[str, ...] = ()


class Problem(Record, kind="problem", timed=True):
    """A model and its data, as the user's function makes them."""

    name: str
    samples: Several
    validation_samples: Several
    parameters: Several
    optimizer: str


class Learned(Record, kind="learned"):
    """How good the model of a run was at one moment: time since the first step's begin, as simulated; metrics that are finite."""

    run: str
    time_s: NotNegative
    updates: Count
    samples: Count
    metrics: dict[str, float]


class Replayed(Record, kind="replayed", timed=True):
    """A run came to its end, or its loss was no finite number any more."""

    run: str
    diverged: bool


class GradientNorms(Record, kind="gradient_norms", timed=True):
    """Square norms of the mean gradient of some samples, drawn again for each, with the model after some steps."""

    step: Count
    trained_batch: Batch
    batch: Batch
    squares: Annotated[tuple[NotNegative, ...], Field(min_length=2)]


class Failure(Record, kind="error"):
    """The probe stopped here, and why."""

    type: str
    message: str
    where: str = ""
    lacks: Literal["", "tensorflow", "jax", "torch", "keras"] = Field(default="", description="packages that the Python lacks")


class End(Record, kind="end"):
    """Last line of a run that came to its end."""


# -- files ---------------------------------------------------------------------------------

RecordT = TypeVar("RecordT", bound=Record)
CUT_SHORT = "the file was cut short, or the probe stopped too early: use the whole file, or measure again"
"""Why measurements lack what comes late in a run, and what to try, whether they were taken just now or lie stored."""
_PROBES = {
    "step": ("a training step", "files made by `paceline calibrate`"),
    "links": ("links", "a file of `paceline calibrate-link`"),
    "servers": ("a parameter server", "a file of `paceline calibrate-server`"),
    "input": ("an input pipeline", "a file of `paceline calibrate-input`"),
    "replay": ("a model that learns", ""),
    "noise_scale": ("gradient norms", "files made by `paceline calibrate --noise-scale`"),
}
"""What probes measure, and the commands that write such files."""
_OTHER_FILE = "is this a measurement file of this version of Paceline?"


class MeasurementsError(CalibrationError):
    """A measurement file is damaged, or not the one that is needed: bad input, exit code 2, since no run has failed."""

    exit_code: ClassVar[int] = 2


@dataclass(frozen=True)
class Measurements:
    """Everything that one run of a probe has written.

    Attributes
    ----------
    path
        The file.
    sha256
        Of its content, as hexadecimal digits.
    records
        In the order in which they were measured.
    truncated
        The last line was cut off in the middle of writing, and left out.
    """

    path: Path
    sha256: str
    records: tuple[Record, ...]
    truncated: bool

    def of(self, kind: type[RecordT]) -> list[RecordT]:
        """The records of one kind."""
        return [record for record in self.records if isinstance(record, kind)]

    @property
    def header(self) -> Header:
        """Return what was asked for."""
        return self.of(Header)[0]

    @property
    def fingerprint(self) -> Fingerprint:
        """Return what it was measured on."""
        for fingerprint in self.of(Fingerprint):
            return fingerprint
        raise CalibrationError(f"{self.path}: has no fingerprint of the device: {CUT_SHORT}")

    @property
    def empty(self) -> bool:
        """Nothing was timed."""
        return not any(record.timed for record in self.records)

    @property
    def complete(self) -> bool:
        """The probe came to its end."""
        return bool(self.of(End))

    @property
    def failure(self) -> Failure | None:
        """Why the probe stopped, if it said so."""
        return next(reversed(self.of(Failure)), None)


def new_file(folder: Path, name: str, probe: str) -> Path:
    """A name for a measurement file that does not exist yet: nothing measured is ever overwritten."""
    stem = f"{name}-{probe}-{datetime.now().strftime('%Y%m%dT%H%M%S')}"
    names = itertools.chain([stem], (f"{stem}-{count}" for count in itertools.count(2)))
    return next(path for file in names if not (path := folder / f"{file}.ndjson").exists())


def read_measurements(path: Path, probe: str | None = None) -> Measurements:
    """Read and validate a measurement file; of a probe, where one is named.

    A last line that was cut off in writing is left out and remembered; any other fault is
    an error.

    Raises
    ------
    MeasurementsError
        One line with file, line number and what is wrong with it.
    """
    content = bytes_of(path, MeasurementsError)
    records: list[Record] = []
    truncated = False
    lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines):  # no newline behind it: the writer was stopped
                truncated = True
                break
            raise _refused(path, number, f"is not JSON ({_shown(line)})") from None
        if checksum_holds(line) is False:
            raise MeasurementsError(f"{path}:{number}: {CHANGED}; {_hint(number)}")
        try:
            records.append(_record(data))
        except ValidationError as error:
            raise _refused(path, number, fault_of(error)) from None
        except (LookupError, TypeError) as error:
            raise _refused(path, number, error.args[0]) from None
        except RecursionError:
            raise MeasurementsError(f"{path}:{number}: is nested too deeply; {_hint(number)}") from None
    if not records:
        raise MeasurementsError(f"{path}: has no measurements: measure again")
    if not isinstance(records[0], Header):
        raise MeasurementsError(f"{path}:1: must be a header with schema_version {SCHEMA_VERSION}; {_OTHER_FILE}")
    measured = records[0].probe
    if probe is not None and measured != probe:
        (about, _), (needed, files) = _PROBES.get(measured, (f"a {measured}", "")), _PROBES[probe]
        raise MeasurementsError(f"{path}: has measurements of {about}, not of {needed}: use {files}")
    return Measurements(path, hashlib.sha256(content).hexdigest(), tuple(records), truncated)


def _record(data: Any) -> Record:
    if not isinstance(data, dict):
        raise TypeError("must be an object in braces with a kind")
    kind = data.pop("kind", None)
    if not isinstance(kind, str) or kind not in Record.kinds:
        raise LookupError("is not a record of a known kind")
    data.pop(CHECKSUM, None)
    return Record.kinds[kind].model_validate(data)


def _refused(path: Path, number: int, fault: str) -> MeasurementsError:
    """The error of a line; a file of another kind, which its first line shows, is called what it is."""
    if number == 1 and (said := mistaken(path, "measurements")):
        return MeasurementsError(f"{path}: {said}")
    return MeasurementsError(f"{path}:{number}: {fault}; {_hint(number)}")


def _hint(number: int) -> str:
    """Return what to try about a faulty line; without the first line, the header, a file is useless."""
    return _OTHER_FILE if number == 1 else "delete the line, or measure again"


def _shown(line: bytes) -> str:
    text = printable(line[:40].decode("utf-8", "backslashreplace"))
    return f"'{text}{'...' if len(line) > 40 else ''}'"
