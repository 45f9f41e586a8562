"""Operations in a profile, and the part of a training step that each belongs to, by TensorFlow's names of scopes and types.

The patterns here are all that knows optimizers and collectives by name. Times of the parts are added up in steps.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from calibrate.xplane.reading import Event, Timeline

Role = Literal["forward", "gradient", "optimizer", "input", "communication", "copy"]

# TensorFlow's own rules for the name of a node and of its type
_FULL_NAME = re.compile(r"([A-Za-z0-9.][A-Za-z0-9_./>\-]*):([A-Z_][A-Za-z0-9_]*)")
_GRADIENT = re.compile(r"(^|/)(gradient_tape|gradients(_\d+)?)/|_grad/")
_OPTIMIZER = re.compile(
    r"(^|/)(adam|adamw|adamax|nadam|sgd|rmsprop|adagrad|adadelta|adafactor|ftrl|lion|lamb|muon|momentum|gradientdescent|"
    r"loss_scale_optimizer|update_[^/]*)(_\d+)?/",
    re.IGNORECASE,
)
_APPLY = re.compile(r"(Resource|Sparse)*(Sparse)?Apply[A-Z]")
_COLLECTIVE = re.compile(r"(?i)nccl|^Collective|^_?Xla?AllReduce")
_TRANSFER = ("_Send", "_Recv", "_HostSend", "_HostRecv", "RecvTensor", "RecvBuf")
_DERIVED = ("TensorFlow Ops", "XLA Ops")


@dataclass(frozen=True, slots=True)
class Op:
    """One operation, or one kernel of it on a GPU.

    Attributes
    ----------
    path
        Name of the node in the graph, such as ``gradient_tape/dense/MatMul/MatMul_1``.
    kind
        Its type, such as ``MatMul``; the kernel's name where none was recorded.
    role
        The part of a step that it belongs to.
    start_s, end_s
        Seconds since the profile began.
    size_bytes
        Bytes that it moves, where that was recorded; else 0.
    correlation
        Number that a kernel shares with the call on the host that launched it; else None.
    """

    path: str
    kind: str
    role: Role
    start_s: float
    end_s: float
    size_bytes: float = 0.0
    correlation: int | None = None


def role_of(path: str, kind: str) -> Role:
    """The part of a step that an operation belongs to, by the scopes in its name and by its type.

    ``tf.GradientTape`` names what it adds ``gradient_tape/...``, ``tf.gradients`` names it
    ``gradients/..._grad/...``; optimizers open a scope of their own name; whatever is left
    counts as forward.
    """
    if kind.startswith("Memcpy"):
        return "copy"
    if _COLLECTIVE.search(kind) or kind in _TRANSFER:
        return "communication"
    if "Iterator" in kind:
        return "input"
    if _GRADIENT.search(path):
        return "gradient"
    if _APPLY.match(kind) or _OPTIMIZER.search(path):
        return "optimizer"
    return "forward"


def begin(op: Op) -> float:
    """When an operation begins, by which they are sorted."""
    return op.start_s


def host_ops(lines: Iterable[Timeline]) -> list[Op]:
    """Operations that ran on the host's threads, in the order in which they began."""
    found = []
    for line in lines:
        for event in line.events:
            match = _FULL_NAME.fullmatch(event.name)
            if match:
                found.append(Op(match[1], match[2], role_of(match[1], match[2]), event.start_s, event.end_s, _bytes(event)))
            elif event.name.startswith(_TRANSFER[-2:]):
                found.append(Op("", event.name, "communication", event.start_s, event.end_s, _bytes(event)))
    return sorted(found, key=lambda op: (op.start_s, op.end_s))


def device_ops(lines: Iterable[Timeline]) -> list[Op]:
    """Kernels and copies on one device, in the order in which they began.

    Taken from the device's streams; where a plane has none, from the line of TensorFlow's
    operations or of XLA's.
    """
    ours = list(lines)
    streams = [line for line in ours if line.name.startswith("Stream")]
    for name in _DERIVED:
        streams = streams or [line for line in ours if line.name == name]
    return sorted((op for line in streams for op in _of_stream(line)), key=lambda op: (op.start_s, op.end_s))


def _of_stream(line: Timeline) -> Iterator[Op]:
    for event in line.events:
        statistics = event.statistics
        named = str(statistics.get("tf_op") or (event.name if line.name in _DERIVED else ""))
        path, _, kind = named.partition(":")
        # a kernel's own name tells copies and collectives, whatever operation asked for them
        kind = event.name if event.name.startswith("Memcpy") or "nccl" in event.name.lower() else kind or event.name
        yield Op(path, kind, role_of(path, kind), event.start_s, event.end_s, _bytes(event), event.number("correlation_id"))


def _bytes(event: Event) -> float:
    """Bytes moved: ``memcpy_details`` reads ``kind_src:... kind_dst:... size:4096 dest:0 async:1``."""
    given = event.number("bytes_transferred")
    if given is not None:
        return float(given)
    match = re.search(r"\bsize:(\d+)", str(event.statistics.get("memcpy_details", "")))
    return float(match[1]) if match else 0.0


def union_s(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds that at least one of the spans (start, end) covers."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return total


def uncovered_s(spans: Iterable[tuple[float, float]], others: Iterable[tuple[float, float]]) -> float:
    """Seconds that some span covers and none of the others does."""
    ours, theirs = list(spans), list(others)
    return union_s([*ours, *theirs]) - union_s(theirs)
