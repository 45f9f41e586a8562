"""Fits the links of a cluster to the collectives in traces: what they achieved under the load of a training.

A kernel of a collective also waits for the slowest rank, which one rank's trace does not tell from moving bytes. So of equal
collectives the fastest half is fitted, and the interval reaches from the median of all to the fastest one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from calibrate.fit.link import LinkTable, Part, fit_table
from calibrate.fit.writing import made
from calibrate.traces.profiles import Profiled
from calibrate.traces.trace import Collective, Trace
from simulator.base.text import counted
from simulator.spec.cluster import Cluster, ClusterRange
from simulator.spec.uncertainty import Z_90

_APART = 4.0
"""Ratio of the largest message to the smallest from which latency and bandwidth are told apart."""
_FEW, _WAITING = 3, 1.5
"""With fewer equal collectives than this, waiting is not seen, and the interval reaches this factor up and down (an assumption)."""


class _Times(NamedTuple):
    """Equal collectives over one link: bytes of a message, seconds of each turn, and how many groups share the link of a node."""

    message_bytes: float
    seconds: Sequence[float]
    sharing: float


def fit_traced_links(profiled: Profiled, name: str, command: str = "") -> Cluster | None:
    """Fit a cluster to the collectives of traces; None where there are none, or none has its size recorded.

    Devices of a node are those that the process saw; without them each rank counts as a node. Groups inside a node give ``intra_node``,
    others ``inter_node``; where a node takes part in several groups of the same kind, all are assumed to communicate at once.
    """
    first = profiled.profiles[0].trace
    seconds: dict[Collective, list[float]] = defaultdict(list)
    for op in (op for profile in profiled.profiles for step in profile.steps for op in step.ops):
        if op.collective is not None and op.collective.turns_and_parts is not None and op.end_s > op.start_s:
            seconds[op.collective].append(op.end_s - op.start_s)
    if not seconds:
        return None
    world = first.world_size or max(own.size for own in seconds)
    seen = (first.node_devices if first.on_device else 0) or 0
    each = min(seen, world) or 1
    each = 1 if world % each else each
    parts: dict[Part, list[_Times]] = {"intra_node": [], "inter_node": []}
    for own, times in seconds.items():
        members = Counter(rank // each for rank in own.ranks)
        turns, cut = own.turns_and_parts or (1, 1)
        # ranks that are not listed are taken as neighbours
        inside = len(members) == 1 if members else own.size <= each
        sharing = 1.0 if inside else each / max(members.values(), default=min(own.size, each))
        link: Part = "intra_node" if inside else "inter_node"
        parts[link].append(_Times(own.size_bytes / cut, [time_s / turns for time_s in times], sharing))
    fitted = {part: _fitted(part, times, first, name, command) for part, times in parts.items() if times}
    cluster = fitted.get("inter_node") or fitted["intra_node"]
    notes = dict(cluster.provenance)
    update: dict[str, object] = {"devices_per_node": each}
    if "inter_node" not in fitted:
        notes["inter_node"] = "one node was traced, so the link between nodes is an assumption (10 Gbit/s): give your own"
    elif inner := fitted.get("intra_node"):
        update["intra_node"] = inner.intra_node
        notes["intra_node"] = inner.description
    elif each > 1 and any(own.sharing < each for own in parts["inter_node"]):
        update["intra_node"] = cluster.inter_node
        notes["intra_node"] = "rings crossed it at the rate of the link between nodes, so it is at least as fast: taken as equal"
    elif each > 1:
        notes["intra_node"] = "no collective stayed inside a node, so the link there is an assumption (128 Gbit/s): give your own"
    if each == 1 and world > 1:
        notes["node"] = (
            f"each rank counts as a node, as the trace lists {seen or 'no'} devices of a machine; else give cluster.devices_per_node"
        )
    measured = cluster.calibrated or ClusterRange()
    update |= {"calibrated": measured.model_copy(update={"nodes": (1, max(world // each, 1))}), "provenance": notes}
    return cluster.model_copy(update=update)


def _fitted(part: Part, times: Sequence[_Times], trace: Trace, name: str, command: str) -> Cluster:
    fast = [(own.message_bytes * own.sharing, time_s) for own in times for time_s in sorted(own.seconds)[: math.ceil(len(own.seconds) / 2)]]
    sizes = [size for size, _ in fast]
    repeated = [own for own in times if len(own.seconds) >= _FEW]
    waits = [math.log(float(np.median(own.seconds)) / min(own.seconds)) for own in repeated]
    reach = float(np.mean(waits)) if waits else 2 * math.log(_WAITING)
    notes: dict[str, str] = {
        **made(command),
        "profiles": str(trace.path),
        "profiles_sha256": trace.sha256,
        "collectives": f"{sum(len(own.seconds) for own in times)} of one rank under the load of a training; the fastest half of equal "
        "ones, since the others wait longer for the slowest rank",
        **_said(trace.lacks),
    }
    if not waits:
        notes["waiting"] = f"too few equal collectives to see waiting: the interval reaches a factor of {_WAITING} up and down"
    tool = f"PyTorch's profiler ({counted(len(times), 'kind')} of collectives)"
    world = trace.world_size or 2
    if max(sizes) >= _APART * min(sizes):
        table = LinkTable(tool, tuple(fast), ranks=world)
    else:
        table = LinkTable(tool, rates_bytes_per_s=tuple(size / time_s for size, time_s in fast), ranks=world)
    return fit_table(table, str(trace.path), name, notes, part=part, spread=max(reach, 0.0) / (2 * Z_90))


def _said(lacks: Mapping[str, str]) -> dict[str, str]:
    return {key: lacks[key] for key in ("rank", "sizes") if key in lacks}
