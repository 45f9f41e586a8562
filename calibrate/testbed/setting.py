"""The schema of a testbed setting, in a file and for the probe (``for_probe``).

``calibrate/probes/testbed`` reads the keys by name: change a key on both sides. Files are read in loading.py.

Synthetic models, of 1 to 64 MB, are known without building anything: a stack of square-ish dense layers without biases
(``models/keras/ladder.py`` builds the same as a Keras model, for real compute), or uneven variables, only for emulated compute.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from simulator.base.spec import PositiveSeconds, PositiveShare, Rate, Seconds, Spec, Terse
from simulator.spec.distributions import Constant, Distribution

SYNTHETIC = ("ladder-1mb", "ladder-4mb", "ladder-16mb", "ladder-64mb")
"""Names of synthetic models; ``ladder-4mb/16`` is the same with 16 variables in place of 4."""
WITH_SERVERS = ("async", "between-graph", "sync")
"""Modes with parameter servers."""

_NAME = re.compile(r"(ladder|uneven)-(1|4|16|64)mb(?:/(\d{1,3}))?")
_WIDTH = 256
_LAYERS, _UNEVEN_LAYERS = 4, 6
_MOST_UNEVEN = 10

_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8}


def synthetic_variables(model: str) -> list[dict[str, Any]] | None:
    """Variables of a synthetic model, in the order of creation; None of any other.

    Layers of ``ladder-4mb/8`` are equal. Of ``uneven-4mb/6`` each has twice the bytes of the
    one before, as the last dense layers of a convolutional network have most of its weights.
    Gradients become ready evenly over the backward pass, the last layer's first.
    """
    named = _NAME.fullmatch(model)
    if named is None:
        return None
    uneven = named[1] == "uneven"
    count = int(named[3] or (_UNEVEN_LAYERS if uneven else _LAYERS))
    if count < 1 or (uneven and count > _MOST_UNEVEN):
        return None
    rows = int(named[2]) * 2**20 // (4 * _WIDTH)
    each = [rows * 2**index // (2**count - 1) for index in range(count)] if uneven else [rows // count] * count
    return [
        {"name": f"layer_{index}", "shape": (count_of_rows, _WIDTH), "ready": 1.0 - index / count}
        for index, count_of_rows in enumerate(each)
    ]


class TestbedVariable(Spec):
    """One variable of the model that is trained, in the order of creation."""

    __test__ = False  # pytest takes names that begin with Test for tests

    name: str = Field(min_length=1, max_length=10_000, description="name of the variable")
    shape: tuple[Annotated[int, Field(ge=1)], ...] = Field(description="shape of the variable")
    dtype: str = Field(default="float32", description="TensorFlow's name of its number type")
    rows: int | None = Field(default=None, ge=1, description="rows that a step touches, for a sparse variable")
    ready: PositiveShare = Field(description="share of the backward pass after which its gradient is ready")

    @property
    def row_bytes(self) -> float:
        """Bytes of one row, along the first dimension."""
        return self.size_bytes / self.shape[0] if self.shape else self.size_bytes

    @property
    def size_bytes(self) -> float:
        """Bytes name of the variable."""
        return float(math.prod(self.shape) * _BYTES.get(self.dtype, 4))


class ShapedLink(Spec):
    """Links between hosts, each a network namespace; every interface is shaped in both directions."""

    bandwidth_bytes_per_s: Rate = Field(description="rate of each interface in each direction")
    sharing: Literal["fair", "tcp"] = Field(
        default="fair", description="fair: one htb class per peer; tcp: one token bucket, shared by TCP"
    )
    congestion: str = Field(default="cubic", pattern=r"^[a-z0-9_-]{1,30}$", description="TCP's congestion control")
    buffer_s: PositiveSeconds = Field(default=0.02, le=10, description="queue limit of an interface, as time at its rate")

    @model_validator(mode="before")
    @classmethod
    def _table(cls, data: Any) -> Any:
        if isinstance(data, str):
            raise ValueError('must be "loopback", or a table such as {bandwidth = "400 Mbit/s"}')
        return data

    def for_probe(self) -> dict[str, Any]:
        """The table that the probe reads."""
        return {
            "bits_per_s": self.bandwidth_bytes_per_s * 8,
            "sharing": self.sharing,
            "buffer_ms": self.buffer_s * 1000,
            "congestion": self.congestion,
        }

    @staticmethod
    def as_probed(link: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a link that the probe has read.

        Raises
        ------
        KeyError, TypeError, OverflowError
            It is none.
        """
        return {
            "bandwidth_bytes_per_s": link["bits_per_s"] / 8,
            "buffer_s": link["buffer_ms"] / 1000,
            "sharing": link["sharing"],
            "congestion": link["congestion"],
        }


NOT_BUILT = TestbedVariable(name="not built", shape=(1,), ready=1.0)
"""Stands for the variables of a model ``FILE.py:FUNCTION`` as long as its file has not been run."""


class Compute(Spec):
    """Compute of a worker between the last byte of its pull and the first of its push."""

    kind: Literal["emulated", "real"] = Field(
        default="emulated", description="emulated: a sleep drawn from a distribution; real: the model's forward and backward pass"
    )
    mean_s: PositiveSeconds = Field(default=0.1, description="emulated: mean of the sleep")
    law: Distribution = Field(default=Constant(), description="emulated: distribution of the sleep around its mean")


class TestbedFault(Spec):
    """A task that is killed on purpose, and started again."""

    __test__ = False  # pytest takes names that begin with Test for tests

    at_s: Seconds = Field(description="time from the common start")
    of: Literal["worker", "server"] = Field(default="worker", description="what is killed")
    number: int = Field(default=0, ge=0, description="number of the process, from 0")
    back_after_s: Seconds = Field(description="time until it is restarted; if all have to restart, not before the fault is detected")


def _or_loopback(schema: dict[str, Any]) -> None:
    schema["anyOf"].append({"const": "loopback"})


class TestbedSetting(Terse, only=("faults", "checkpoint_every")):
    """One experiment, without its number of repeats."""

    __test__ = False  # pytest takes names that begin with Test for tests

    mode: Literal["async", "between-graph", "sync", "ring", "mirrored", "apart"] = Field(
        description="async: ParameterServerStrategy with a ClusterCoordinator; between-graph: asynchronous sessions (compat.v1); sync: "
        "SyncReplicasOptimizer; ring: MultiWorkerMirroredStrategy; mirrored: MirroredStrategy on logical devices; apart: "
        "processes that compute at the same time and exchange nothing"
    )
    workers: int = Field(ge=1, le=64, description="worker processes; mirrored: replicas in one process")
    servers: int = Field(default=0, ge=0, le=32, description="parameter servers; ring, mirrored and apart have none")
    backup_workers: int = Field(default=0, ge=0, description="sync: number of gradients per step that are not waited for")
    link: ShapedLink | None = Field(
        default=None,
        description="a table with bandwidth; loopback or left out: the loopback interface",
        json_schema_extra=_or_loopback,
    )
    model: str = Field(
        default="ladder-4mb",
        description="ladder-1mb, -4mb, -16mb, -64mb (/16: in 16 variables), FILE.py:FUNCTION, or a workload",
    )
    variables: tuple[TestbedVariable, ...] = Field(default=(), description="variables of the model; left out: from its name")
    batch: int = Field(default=32, ge=1, description="samples per worker and step")
    compute: Compute = Field(default=Compute(), description="compute of a step")
    overlap: bool = Field(
        default=False, description="layer by layer: a layer waits only for its variable, and its gradient is sent when ready"
    )
    steps: int = Field(default=50, ge=2, le=1_000_000, description="steps per worker, on average")
    warm_up: int = Field(default=3, ge=1, description="steps per worker before the common start, not measured")
    start_spread_s: Seconds = Field(default=0.0, description="period in which asynchronous workers start at random; 0: all together")
    threads: int = Field(default=1, ge=1, le=1024, description="TensorFlow's intra-op threads per process")
    gpu_memory_mib: int = Field(default=4096, ge=64, description="mirrored on a GPU: memory of each logical device")

    checkpoint_every: int | None = Field(
        default=None,
        ge=1,
        description="steps per worker, on average, between checkpoints for which all wait; left out: none",
    )
    faults: tuple[TestbedFault, ...] = Field(
        default=(), max_length=1000, description="async and ring: processes that are killed and restarted"
    )

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("link") == "loopback":
            data = {**data, "link": None}
        if isinstance(data, dict) and not data.get("variables"):
            variables = synthetic_variables(data.get("model", "ladder-4mb"))
            if variables is not None:
                return {**data, "variables": variables}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> TestbedSetting:
        if not self.variables:
            raise ValueError(f"model {self.model!r} is not synthetic, so its variables must be given")
        with_servers = self.mode in WITH_SERVERS
        if with_servers != (self.servers > 0):
            raise ValueError(f'mode = "{self.mode}" takes {"at least one server" if with_servers else "no servers"}; it has {self.servers}')
        if self.backup_workers and self.mode != "sync":
            raise ValueError(f'backup_workers ({self.backup_workers}) need mode = "sync", not "{self.mode}"')
        if self.backup_workers >= self.workers:
            raise ValueError(f"backup_workers ({self.backup_workers}) must be fewer than workers ({self.workers})")
        if self.mode == "ring" and self.workers < 2:
            raise ValueError("a ring needs at least 2 workers")
        if self.mode == "mirrored" and self.link is not None:
            raise ValueError('mode = "mirrored" is one process on one host: leave link out')
        if self.mode == "apart" and self.workers < 2:
            raise ValueError(
                f'mode = "apart" compares one process with several simultaneous ones: it needs at least 2 workers, not {self.workers}'
            )
        if self.mode == "apart" and (self.link is not None or self.compute.kind != "real"):
            raise ValueError('mode = "apart" is real compute of processes that exchange nothing: leave link out')
        if self.start_spread_s and self.mode in ("sync", "ring", "mirrored", "apart"):
            raise ValueError(f'start_spread applies to asynchronous workers; in mode = "{self.mode}" all begin together')
        if self.compute.kind == "real" and self.model.startswith("ladder-") is False and ":" not in self.model:
            raise ValueError(
                f"compute.kind = real needs a model that can be built (FILE.py:FUNCTION or a synthetic one), not {self.model!r}"
            )
        self._check_job()
        return self

    def _check_job(self) -> None:
        """Checkpoints and faults, where there are any."""
        for key in ("checkpoint_every", "faults"):
            if getattr(self, key) and self.mode not in ("async", "ring"):
                raise ValueError(f'{key} applies to mode = "async" and "ring", which continue after a fault, not to "{self.mode}"')
        if self.is_job and self.start_spread_s:
            raise ValueError("start_spread cannot be combined with faults or checkpoint_every")
        for index, fault in enumerate(self.faults):
            there = self.servers if fault.of == "server" else self.workers
            if fault.number >= there:
                has = f"{there} (0 to {there - 1})" if there else "none"
                raise ValueError(f"faults.{index}.number is {fault.number}, but of {fault.of}s there are {has}")
            if self.link is not None and self.mode == "async" and fault.of == "worker":
                raise ValueError(
                    f'faults.{index}: a worker that restarts alone needs link = "loopback", because a dead host does not return to its '
                    "network"
                )

    @property
    def is_built(self) -> bool:
        """Tell whether the variables are known; those of a model ``FILE.py:FUNCTION`` are when its file has been run."""
        return self.variables != (NOT_BUILT,)

    @property
    def is_job(self) -> bool:
        """Tell whether it is run as a job that outlasts faults, with its steps reported as they end."""
        return bool(self.faults or self.checkpoint_every)

    @property
    def parameter_bytes(self) -> float:
        """Bytes of all variables, dense."""
        return math.fsum(variable.size_bytes for variable in self.variables)

    @property
    def moved_bytes(self) -> float:
        """Bytes that a worker's step pulls, and pushes: for a sparse variable only the touched rows, if only they are sent."""
        sparse = self.servers > 0 and self.compute.kind == "emulated"
        rows = [
            variable.rows * variable.row_bytes if variable.rows is not None and sparse else variable.size_bytes
            for variable in self.variables
        ]
        return float(math.fsum(rows))

    @property
    def sleeps(self) -> int:
        """Sleeps of the emulated device in a step: one, or by layer one in each pass for each variable; none of real compute but one."""
        return 2 * len(self.variables) if self.overlap and self.compute.kind == "emulated" else 1

    @property
    def samples_per_update(self) -> int:
        """Samples that an update of the model is computed from: one batch, or where workers step together, those of all that count."""
        if self.mode in ("ring", "mirrored"):
            return self.batch * self.workers
        return self.batch * (self.workers - self.backup_workers) if self.mode == "sync" else self.batch

    @property
    def kind_of_run(self) -> str:
        """Content hash without the length of the run: settings that differ only in that are the same experiment."""
        return self.model_copy(update={"steps": 2, "warm_up": 1, "gpu_memory_mib": 64}).hash

    @property
    def label(self) -> str:
        """In words: mode, workers, servers, link, model, compute."""
        servers = f" x {self.servers} PS" if self.servers else ""
        backup = f" ({self.backup_workers} backup)" if self.backup_workers else ""
        link = "loopback" if self.link is None else f"{self.link.bandwidth_bytes_per_s * 8e-6:g} Mbit/s {self.link.sharing}"
        law = self.compute.law
        shape = getattr(law, "shape", None) or getattr(law, "sigma", None)
        named = f"{law.kind}({shape:g})" if shape is not None else law.kind
        if persistence := getattr(law, "persistence", 0.0):
            named += f" persistence {persistence:g}"
        compute = self.compute.kind if self.compute.kind == "real" else f"{named} {self.compute.mean_s * 1000:g} ms"
        extra = (", by layer" if self.overlap else "") + (f", start over {self.start_spread_s:g} s" if self.start_spread_s else "")
        if self.checkpoint_every is not None:
            extra += f", checkpoint every {self.checkpoint_every}"
        if self.faults:
            extra += f", {len(self.faults)} fault{'s' if len(self.faults) > 1 else ''}"
        where = "" if self.mode in ("mirrored", "apart") else f", {link}"
        return f"{self.mode} {self.workers}{servers}{backup}{where}, {self.model_name}, {compute}{extra}"

    @property
    def model_name(self) -> str:
        """The model as a reader sees it: of a path the file's name, with its function."""
        return self.model.replace("\\", "/").rpartition("/")[2] if ".py:" in self.model or self.model.endswith(".toml") else self.model

    @property
    def hash(self) -> str:
        """Content hash: equal settings, and only they, have it in common."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def for_probe(self, repeats: int, seed: int, timeout_s: float) -> dict[str, Any]:
        """The table that the probe reads."""
        link = None if self.link is None else self.link.for_probe()
        plain = self.model_dump(mode="json", exclude={"link"})
        return {**plain, "link": link, "repeats": repeats, "seed": seed, "timeout_s": timeout_s}
