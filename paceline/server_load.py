"""Cost of one worker's pull and push for a parameter server's host, compared with a link of 10 Gbit/s: a closed form and its sentences.

It agrees with the simulator's model of hosts (tests/calibrate/test_server.py compares the two). ``calibrate`` and
``calibrate-server`` print it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simulator.base.text import counted, format_number, format_rate, format_seconds
from simulator.spec.constants import constants
from simulator.spec.workload import Workload

RATE_BYTES_PER_S = 10e9 / 8
"""Rate, in each direction, of the link that a server's host is compared with: 10 Gbit/s."""


_CLEARLY = 1.25
"""Least ratio of host time to link time at which the host is called the limit."""


@dataclass(frozen=True)
class ServerLoad:
    """A pull and a push of one worker, of all variables of a model, over TensorFlow's gRPC.

    Attributes
    ----------
    tensors
        Variables of the model.
    size_bytes
        Bytes of all variables.
    per_tensor_s, per_byte_s
        Host seconds per tensor, and per byte.
    """

    tensors: int
    size_bytes: float
    per_tensor_s: float
    per_byte_s: float

    @classmethod
    def of(cls, workload: Workload) -> ServerLoad:
        """Return the load of a workload, with measured costs of gRPC (docs/numbers.md).

        Examples
        --------
        >>> from simulator.base.catalog import find
        >>> from simulator.catalogue.loading import load_workload
        >>> ServerLoad.of(load_workload(find("workloads", "resnet-50", ""))).hosts_limit
        False
        """
        known = constants()
        tensors = sum(each.tensors for each in workload.variables)
        return cls(tensors, workload.parameter_bytes, known["grpc_tensor_s"].value, known["grpc_byte_s"].value)

    @property
    def host_s(self) -> float:
        """Host time for one worker's pull and push; each tensor and byte counts twice."""
        return 2 * (self.tensors * self.per_tensor_s + self.size_bytes * self.per_byte_s)

    @property
    def wire_s(self) -> float:
        """Time on a link of 10 Gbit/s, which carries pull and push at once."""
        return self.size_bytes / RATE_BYTES_PER_S

    @property
    def updates_per_s(self) -> float:
        """Most worker steps per second that one server's host can serve."""
        return 1.0 / self.host_s

    @property
    def hosts_limit(self) -> bool:
        """Whether the host certainly limits before the link; with few tensors the two are about equal."""
        return self.host_s > _CLEARLY * self.wire_s

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return {
            "tensors": self.tensors,
            "size_bytes": self.size_bytes,
            "server_host_s": self.host_s,
            "link_s": self.wire_s,
            "link_bytes_per_s": RATE_BYTES_PER_S,
            "updates_per_s": self.updates_per_s,
            "hosts_limit_first": self.hosts_limit,
        }

    @property
    def as_rate(self) -> str:
        """The load in a sentence without a full stop."""
        return (
            f"{self._size}: one worker's pull and push take {format_seconds(self.host_s)} of a server's host, "
            f"so it serves at most about {_per_second(self.updates_per_s)}"
        )

    @property
    def against_network(self) -> str:
        """The first limit of a server, as part of a sentence."""
        return f"hosts limit before a link of {format_rate(RATE_BYTES_PER_S)}, at about {_per_second(self.updates_per_s)} a server"

    @property
    def _size(self) -> str:
        return f"{counted(self.tensors, 'tensor')} and {format_number(self.size_bytes / 1e6)} MB"


def _per_second(rate: float) -> str:
    return f"{format_number(rate, 2)} updates/s"
