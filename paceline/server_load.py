"""What one worker's pull and push cost a parameter server's host, beside a link of 10 Gbit/s: a closed form, and its sentences.

It must agree with the simulator's model of hosts (tests/calibrate/test_server.py compares the two). The commands ``calibrate`` and
``calibrate-server`` show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simulator.base.text import counted, format_number, format_rate, format_seconds
from simulator.spec.constants import constants
from simulator.spec.workload import Workload

RATE_BYTES_PER_S = 10e9 / 8
"""Of the link that a server's host is held against: 10 Gbit/s, in each direction."""


_CLEARLY = 1.25
"""Times as long as the link is the host at work, at least, before it is called the limit."""


@dataclass(frozen=True)
class ServerLoad:
    """A pull and a push of one worker, of all variables of a model, over TensorFlow's gRPC.

    Attributes
    ----------
    tensors
        Variables of the model.
    size_bytes
        Of all of them.
    per_tensor_s, per_byte_s
        Seconds that a host works on a tensor, and on a byte.
    """

    tensors: int
    size_bytes: float
    per_tensor_s: float
    per_byte_s: float

    @classmethod
    def of(cls, workload: Workload) -> ServerLoad:
        """That of a workload, with what gRPC costs hosts in practice (docs/numbers.md).

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
        """Work of the server's host on one worker's pull and push: each tensor and byte twice."""
        return 2 * (self.tensors * self.per_tensor_s + self.size_bytes * self.per_byte_s)

    @property
    def wire_s(self) -> float:
        """Time on a link of 10 Gbit/s, whose two directions carry pull and push at once."""
        return self.size_bytes / RATE_BYTES_PER_S

    @property
    def updates_per_s(self) -> float:
        """Steps of workers that one server's host can serve in a second, at most."""
        return 1.0 / self.host_s

    @property
    def hosts_limit(self) -> bool:
        """Whether the host is kept longer than such a link, by so much that it is sure to be the limit: work on few tensors about ties."""
        return self.host_s > _CLEARLY * self.wire_s

    def to_dict(self) -> dict[str, Any]:
        """What is said of it, as plain data."""
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
        """What the host's work means for a training, as a sentence without its full stop."""
        return (
            f"{self._size}: a server works {format_seconds(self.host_s)} on one worker's pull and push, "
            f"at most about {_per_second(self.updates_per_s)}"
        )

    @property
    def against_network(self) -> str:
        """What limits a server first, as a part of a sentence."""
        return f"hosts limit before a link of {format_rate(RATE_BYTES_PER_S)}, at about {_per_second(self.updates_per_s)} a server"

    @property
    def _size(self) -> str:
        return f"{counted(self.tensors, 'tensor')} and {format_number(self.size_bytes / 1e6)} MB"


def _per_second(rate: float) -> str:
    return f"{format_number(rate, 2)} updates/s"
