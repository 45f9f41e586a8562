"""The testbed's parameters: what this machine and TensorFlow cost beyond the bytes and the compute.

:data:`MEANINGS` and :data:`PRIORS` name every parameter. clocks.py and fitting.py estimate them, scenarios.py puts them into a
scenario: a new one needs a line in the table and a place in these modules. :class:`Platform` is also the file
that ``paceline testbed fit`` writes; with other parameters it needs another ``schema_version``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from calibrate.measurements import Z90
from simulator.base.errors import InputError
from simulator.base.files import Output, OutputKind
from simulator.base.spec import Spec
from simulator.base.table import Column, Table, Tabular
from simulator.base.text import counted
from simulator.base.validation_errors import read_answer

_PARAMETERS: dict[str, tuple[float, float, float, str]] = {
    "wire_bytes_per_byte": (1.046, 1.03, 1.07, "bytes on a shaped link for each byte of a tensor (headers, acknowledgements, encoding)"),
    "loopback_bytes_per_s": (2.5e9, 1.0e9, 6.0e9, "rate of a connection over loopback, without the cores' work"),
    "loopback_per_byte_s": (1.3e-9, 6.0e-10, 3.0e-9, "core time per byte of a pull or push over loopback, both hosts together"),
    "loopback_step_s": (4.0e-3, 1.5e-3, 8.0e-3,
        "fixed core time per step over loopback: calls, scheduling, messages (sessions)"),
    "loopback_async_step_s": (6.0e-3, 2.5e-3, 1.2e-2, "the same if a coordinator hands out the steps, without its own work"),
    "loopback_waited_share": (0.5, 0.25, 1.0, "share of the work on bytes that a transfer waits for; the rest overlaps with the step"),
    "step_cpu_s": (4.0e-3, 2.0e-3, 8.0e-3,
        "core time of worker and servers per step over shaped links, whatever its tensors (sessions, 1 server)"),
    "managed_cpu_s": (2.0e-3, 5.0e-4, 8.0e-3, "more of it with a coordinator, without its own work, or with SyncReplicasOptimizer"),
    "server_cpu_s": (1.0e-3, 3.0e-4, 4.0e-3, "more of it for each further server"),
    "elsewhere_cpu_s": (3.0e-4, 1.0e-4, 9.0e-4,
        "more of it for each tensor on another server than the count of steps, which waits for the update"),
    "tensor_cpu_s": (2.0e-4, 8.0e-5, 5.0e-4, "more of it for each tensor that is pulled and pushed"),
    "cpu_per_byte_s": (8.0e-10, 4.0e-10, 1.6e-9, "more of it for each byte of a pull or push, packets included"),
    "layer_cpu_s": (1.0e-4, 4.0e-5, 3.0e-4, "more of it for each sleep of a step by layer after the first"),
    "loopback_ring_per_byte_s": (2.0e-9, 1.0e-9, 4.0e-9,
        "core time per rank for each byte reduced over loopback: packing, sending, adding"),
    "mirrored_per_byte_s": (3.0e-10, 1.0e-10, 1.0e-9,
        "core time per byte that a replica of MirroredStrategy hands to the next one, in one process"),
    "tensor_s": (2.0e-5, 5.0e-6, 2.0e-4, "time of each host per tensor of a pull or push (gRPC RecvTensor), one at a time"),
    "tensor_per_byte_s": (2.0e-10, 5.0e-11, 1.0e-9,
        "the same per byte: serialising before sending, parsing after arrival"),
    "turn_s": (7.0e-4, 7.0e-5, 4.0e-3,
        "time of the two hosts of a ring per message, in sequence (gRPC RecvBuf), without overlapping the transfer"),
    "turn_per_byte_s": (1.5e-9, 4.0e-10, 6.0e-9, "the same per byte: into a protocol buffer, out of it, added to the receiver's own data"),
    "ring_cpu_per_byte_s": (3.0e-9, 1.5e-9, 6.0e-9,
        "core time per byte that a ring sends over shaped links: messages and kernel"),
    "dispatch_s": (2.0e-3, 5.0e-4, 6.0e-3, "the coordinator's work per step, one step at a time"),
    "coordinator_s": (2.0e-3, 2.0e-4, 1.0e-2,
        "further time between steps: messages to and from the coordinator"),
    "session_s": (1.5e-3, 2.0e-4, 1.0e-2, "time between a session's steps (compat.v1): the client's work"),
    "accumulate_s": (1.0e-3, 1.0e-4, 1.0e-2, "time that SyncReplicasOptimizer adds to a step: accumulators, token queue, chief"),
    "ring_step_s": (1.2e-3, 2.0e-4, 1.0e-2, "time between a ring worker's steps: the call of the function, the collective's set-up"),
    "mirrored_step_s": (1.5e-3, 5.0e-4, 4.0e-3, "the same for MirroredStrategy, whose replicas are in one process"),
    "server_s": (2.0e-5, 2.0e-6, 5.0e-4, "service time of a server per gradient tensor"),
    "server_per_byte_s": (1.5e-10, 2.0e-11, 1.0e-9, "the same per byte"),
    "sleep_s": (4.0e-4, 5.0e-5, 2.0e-3, "excess sleep of the emulated device"),
    "layer_sleep_s": (1.7e-4, 5.0e-5, 5.0e-4, "excess of each further sleep, of a step by layer"),
    "queue_s": (2.0e-3, 5.0e-4, 8.0e-3,
        "data that a transfer keeps in its sender's queue if one queue serves all (sharing = tcp); later transfers wait behind it"),
    "weight_sigma": (0.4, 0.15, 1.0,
        "spread of the random weights with which transfers share a link under TCP: sigma of their logarithm if a connection has room "
        "for one packet of 64 KiB in the buffer; smaller with more room"),
    "noise": (0.01, 0.002, 0.05, "over shaped links: relative standard deviation of repeats of one setting, drawn for each run"),
    "loopback_noise": (0.03, 0.01, 0.1, "the same over loopback, where cores are the limit"),
    "misfit": (0.01, 0.002, 0.05,
        "over shaped links: relative standard deviation of the error of a whole setting, beyond that noise"),
    "loopback_misfit": (0.05, 0.01, 0.2, "the same over loopback"),
}  # fmt: skip
"""Of each parameter the value where it is put that no run determines, the ends of its 90% interval (orders of magnitude seen on
CPU machines), and meaning. In the least squares the interval weighs as one more, weak observation."""
MEANINGS = {name: meaning for name, (*_, meaning) in _PARAMETERS.items()}
PRIORS = {name: (value, low, high) for name, (value, low, high, _) in _PARAMETERS.items()}

PARAMETER_COLUMNS = (
    Column("parameter", "any", left=True),
    Column("value", "number"),
    Column("low", "number", "90% from"),
    Column("high", "number", "to"),
    Column("determined", "any", left=True),
    Column("meaning", "text", "meaning"),
)
"""Of the table of a platform's parameters."""
_SPREADS = ("weight_sigma", "noise", "loopback_noise", "misfit", "loopback_misfit")
"""Parameters that are a spread: exponents, which soon leave all numbers behind."""
_MOST_SPREAD = 5.0


def log_width(name: str) -> float:
    """Standard deviation of the logarithm of a parameter under its prior."""
    _, low, high = PRIORS[name]
    return math.log(high / low) / (2 * Z90)


class Parameter(Spec):
    """One number of the fit."""

    value: float = Field(ge=0)
    low: float = Field(ge=0, description="end of the 90% interval")
    high: float = Field(ge=0)
    determined: bool = Field(default=True, description="false: the runs do not determine it, and a prior is used")
    freedom: int | None = Field(default=None, ge=1, description="degrees of freedom of a standard deviation; null: taken as exact")
    why: str = Field(default="", description="runs that determine it, or source of the prior")

    @classmethod
    def around(cls, value: float, deviation: float, why: str, *, determined: bool = True) -> Parameter:
        """A value with its standard deviation, as if it were normal; none is below 0."""
        low, high = value - Z90 * deviation, value + Z90 * deviation
        return cls(value=max(value, 0.0), low=max(low, 0.0), high=max(high, 0.0), determined=determined, why=why)

    @classmethod
    def prior(cls, name: str) -> Parameter:
        """Where a parameter is put that no run determines."""
        value, low, high = PRIORS[name]
        return cls(value=value, low=low, high=high, determined=False, why="no run determines it: the prior is used")


class Platform(Tabular, Spec):
    """All parameters of a testbed, and joint draws of those that were fitted."""

    see: ClassVar[str] = "to_frame() has every parameter"

    schema_version: Literal[4] = 4
    name: str = Field(min_length=1, max_length=200)
    cores: float = Field(ge=1, description="cores of the machine, shared by all tasks")
    parameters: dict[str, Parameter]
    draws: tuple[dict[str, float], ...] = Field(
        default=(),
        description="joint draws of timed or fitted parameters; priors are not drawn",
    )
    provenance: dict[str, Any] = Field(default_factory=dict)

    def _in_short(self) -> Iterator[str]:
        yield self.name
        yield f"{self.cores:g} cores, {counted(len(self.parameters), 'parameter')}, {counted(len(self.draws), 'joint draw')}"

    @model_validator(mode="after")
    def _known(self) -> Platform:
        unknown = sorted(set(self.parameters) - set(MEANINGS))
        if unknown:
            raise ValueError(f"parameters has {unknown[0]!r}, which is not one of {', '.join(MEANINGS)}")
        missing = sorted(set(MEANINGS) - set(self.parameters))
        if missing:
            raise ValueError(f"parameters lacks {missing[0]!r}")
        values = [(f"parameters.{name}", name, parameter.value) for name, parameter in self.parameters.items()]
        values += [(f"draws.{place}.{name}", name, value) for place, draw in enumerate(self.draws) for name, value in draw.items()]
        for where, name, value in values:
            if name not in MEANINGS:
                raise ValueError(f"{where} is not one of {', '.join(MEANINGS)}")
            if value < 0 or (name in _SPREADS and value > _MOST_SPREAD):
                raise ValueError(f"{where} ({value:g}) must be at least 0{f' and at most {_MOST_SPREAD:g}' if name in _SPREADS else ''}")
        return self

    def write(self, path: Path, *, force: bool = False) -> None:
        """Write it as JSON, which :meth:`read` takes; a machine that is there is replaced, with ``force`` also another file.

        Raises
        ------
        InputError
            Something else is there, or the file cannot be written.
        """
        Output(path, MACHINE, force=force).write(self.model_dump_json(indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Platform:
        """Read what :meth:`write` has written.

        Raises
        ------
        InputError
            There is no such file, or it is no platform.
        """
        return read_answer(cls, path, None, "paceline testbed fit", "fit the same measurements again")

    def table(self) -> Table:
        """Each parameter with its 90% interval; times in seconds, rates in bytes per second."""
        rows = tuple(
            (name, parameter.value, parameter.low, parameter.high, "yes" if parameter.determined else "no: prior", MEANINGS[name])
            for name, parameter in self.parameters.items()
        )
        return Table("", PARAMETER_COLUMNS, rows)

    def values(self, draw: int | None = None) -> dict[str, float]:
        """The parameters, or one joint draw of them."""
        values = {name: parameter.value for name, parameter in self.parameters.items()}
        if draw is not None and self.draws:
            values |= self.draws[draw % len(self.draws)]
        return values


def _is_machine(path: Path) -> bool:
    try:
        Platform.read(path)
    except InputError:
        return False
    return True


MACHINE = OutputKind("is not a machine file written by a fit", _is_machine, ".json")
"""Files that a new fit may replace."""
