"""Collectives as messages: what they do, by which algorithms, and what their ranks send one another.

Ranks are counted within their group: rank i here is the i-th of the group's list
(:class:`~simulator.collectives.wire.Group`).

The buffer is cut into equal parts. A :class:`Lane` carries messages from one rank to
another, in order; a message holds a run of parts and leaves when the source has its own
data and what the message awaits. A rank has its result when it has received every message
meant for it, and has ended when its own messages have left it as well.

What message k of a lane awaits is a straight line in k, so that a lane of any length takes
a few numbers: a ring of 1,024 ranks has two million messages, and 1,024 lanes.
:func:`flattened` gives the same as tables, which engines simulate message by message.

Sizes are those of NCCL's own tests (``nccl-tests``, ``PERFORMANCE.md``): ``size_bytes`` is
the larger of what a rank puts in and what it gets out.

==============  ===========================================  ==========================================
operation       a rank puts in                               and gets out
==============  ===========================================  ==========================================
all-reduce      a buffer                                     the sum of all
reduce-scatter  a buffer                                     its part of the sum, 1/n
all-gather      its part, 1/n                                all parts
all-to-all      a buffer with a part for each rank           the parts that all have for it
==============  ===========================================  ==========================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int32]

Does = Literal["all-reduce", "reduce-scatter", "all-gather", "all-to-all"]
"""Operation of a collective."""

ALGORITHMS: dict[Does, tuple[str, ...]] = {
    "all-reduce": (
        # NCCL (algos_of_coll in src/device/generate.py), Open MPI (coll_base_allreduce.c), Gloo (allreduce_ring_chunked), TensorFlow
        # (ring_reducer.cc)
        "ring",
        "bidirectional-ring",  # no library: two rings of opposite directions, each with half of the buffer
        "halving-doubling",  # MPICH (Thakur, Rabenseifner and Gropp, IJHPCA 2005), Gloo (allreduce_halving_doubling)
        "double-binary-tree",  # NCCL (TREE, since 2.4)
        "hierarchical",  # Horovod's HOROVOD_HIERARCHICAL_ALLREDUCE (nccl_operations.cc)
        "reduce-to-one-device",  # tf.distribute.ReductionToOneDevice
        "hierarchical-copy",  # tf.distribute.HierarchicalCopyAllReduce
        # NCCL's COLLNET_DIRECT and COLLNET_CHAIN (src/transport/coll_net.cc) with NVIDIA's nccl-rdma-sharp-plugins; HPC-X's HCOLL and UCC
        "sharp",
        "nvls",  # NCCL (NVLS since 2.17, NVLSTree since 2.18; Hopper and later)
    ),
    "reduce-scatter": ("ring", "bidirectional-ring"),  # ring: NCCL, Open MPI (coll_base_reduce_scatter.c)
    "all-gather": ("ring", "bidirectional-ring"),  # ring: NCCL, Gloo (allgather_ring), TensorFlow (ring_gatherer.cc), MPICH
    "all-to-all": ("direct",),  # ncclSend and ncclRecv to and from all others in one group; MPICH's isend and irecv
}
"""Names of the algorithms of each operation. NCCL's PAT, and its NVLS of other operations than all-reduce, are not modelled."""


def whole_buffer(index: int) -> int:  # noqa: ARG001 - the same for all
    """The first part of every message of a lane that carries the whole buffer."""
    return 0


class Await(NamedTuple):
    """Message k of a lane needs ``slope * k + base`` messages of the lane ``number`` from rank ``source``, from k = ``start`` on.

    Messages before ``start`` need none of them.
    """

    source: int
    number: int
    base: int
    slope: int = 0
    start: int = 0

    def messages(self, index: int) -> int:
        """How many must have arrived before message ``index``."""
        return self.slope * index + self.base if index >= self.start else 0


class Message(NamedTuple):
    """Parts ``first`` to ``last - 1``; ``adds``: the target adds them to its own, else it puts them in their place."""

    first: int
    last: int
    adds: bool


@dataclass(frozen=True, slots=True)
class Lane:
    """Messages in order from one rank to another.

    Attributes
    ----------
    source, target
        The two ranks.
    number
        Tells apart lanes between the same two ranks in the same direction.
    messages
        How many there are.
    parts
        How many parts each of them holds.
    first
        The first part of the k-th message, from k = 0 on.
    adding
        The target adds that many of the first messages to its own data, and puts the others in their place.
    awaits
        What the source must have received before.
    meets
        What the target must have received before, if the two wait for one another, as
        large messages of MPI do: the target must then have entered the collective. None
        if a message may come at any time.
    """

    source: int
    target: int
    number: int
    messages: int
    parts: int
    first: Callable[[int], int]
    adding: int
    awaits: tuple[Await, ...] = ()
    meets: tuple[Await, ...] | None = None

    def message(self, index: int) -> Message:
        """The message ``index``, from 0 on."""
        first = self.first(index)
        return Message(first, first + self.parts, index < self.adding)


class Columns(NamedTuple):
    """All lanes by source, as :meth:`Schedule.lanes` gives them, without what they await; int32, shape (lanes,)."""

    source: Indices
    target: Indices
    number: Indices
    messages: Indices
    parts: Indices


@dataclass(frozen=True, slots=True)
class Schedule:
    """One collective.

    Attributes
    ----------
    ranks
        How many take part.
    parts
        Equal parts that a rank's buffer is cut into. Of an operation with a part for each
        rank (reduce-scatter, all-gather) part p is that of rank p mod ``ranks``; of an
        all-to-all, part ``source * ranks + target`` goes from one to the other.
    lanes_from
        The lanes out of a rank, or a switch.
    at_once
        All of them as columns, where that takes no look at each; none: see :func:`columns`.
    switches
        Members behind the ranks that have no data of their own: they add what they get, and pass the sum on.
    """

    ranks: int
    parts: int
    lanes_from: Callable[[int], tuple[Lane, ...]]
    at_once: Callable[[], Columns] | None = None
    switches: int = 0

    @property
    def members(self) -> int:
        """Ranks and switches."""
        return self.ranks + self.switches

    def lanes(self) -> Iterator[Lane]:
        """Every lane, by source."""
        for rank in range(self.members):
            yield from self.lanes_from(rank)

    def share(self, lane: Lane) -> float:
        """Return what all messages of a lane carry together, in buffers."""
        return lane.messages * lane.parts / self.parts


@dataclass(frozen=True, slots=True, eq=False)
class Needs:
    """Dependencies of messages, lane by lane; rows ``start[i]`` to ``start[i + 1] - 1`` are those of lane i.

    A row says that message k of lane i needs ``slope * k + base`` messages of ``lane`` if
    k >= ``onward``, else none. All of dtype int32.

    Attributes
    ----------
    start
        Shape (lanes + 1,).
    lane, base, slope, onward
        Shape (rows,).
    """

    start: Indices
    lane: Indices
    base: Indices
    slope: Indices
    onward: Indices


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """A schedule as tables of int32; lanes are numbered by source, as :meth:`Schedule.lanes` gives them.

    Attributes
    ----------
    ranks, parts, switches
        As in :class:`Schedule`: a message of lane i carries ``each[i] / parts`` of a buffer.
    out
        Lanes ``out[m]`` to ``out[m + 1] - 1`` go out of member m; shape (members + 1,).
    incoming
        Messages that each member gets, shape (members,).
    source, target, number, messages, each
        Of each lane its members, its number, its messages and the parts of each, shape (lanes,).
    awaits
        What the source must have received.
    meets
        What the target must have received, of lanes that wait for their target.
    meeting
        Which lanes do, shape (lanes,), bool.
    """

    ranks: int
    parts: int
    out: Indices
    incoming: Indices
    source: Indices
    target: Indices
    number: Indices
    messages: Indices
    each: Indices
    awaits: Needs
    meets: Needs
    meeting: NDArray[np.bool_]
    switches: int = 0

    @property
    def members(self) -> int:
        """Ranks and switches."""
        return self.ranks + self.switches


@lru_cache(maxsize=32)
def columns(schedule: Schedule) -> Columns:
    """The lanes of a schedule, without what they await."""
    if schedule.at_once is not None:
        return schedule.at_once()
    rows = [(lane.source, lane.target, lane.number, lane.messages, lane.parts) for lane in schedule.lanes()]
    return Columns(*np.ascontiguousarray(np.array(rows, dtype=np.int32).reshape(len(rows), 5).T))


@lru_cache(maxsize=32)
def flattened(schedule: Schedule) -> Tables:
    """The schedule as tables; a lane awaits only lanes into its source, and meets only those into its target.

    Raises
    ------
    KeyError
        A lane awaits one that does not exist.
    """
    lanes = list(schedule.lanes())
    ids = {(lane.source, lane.target, lane.number): index for index, lane in enumerate(lanes)}
    source, target, number, messages, each = columns(schedule)
    incoming = np.bincount(target, weights=messages, minlength=schedule.members).astype(np.int32)
    out = np.searchsorted(source, np.arange(schedule.members + 1)).astype(np.int32)
    awaits = _needs([[(ids[need.source, lane.source, need.number], need) for need in lane.awaits] for lane in lanes])
    meets = _needs([[(ids[need.source, lane.target, need.number], need) for need in lane.meets or ()] for lane in lanes])
    meeting = np.array([lane.meets is not None for lane in lanes], dtype=np.bool_)
    return Tables(
        schedule.ranks, schedule.parts, out, incoming, source, target, number, messages, each, awaits, meets, meeting, schedule.switches
    )


def _needs(of_lanes: list[list[tuple[int, Await]]]) -> Needs:
    start = np.cumsum([0, *map(len, of_lanes)]).astype(np.int32)
    rows = [(lane, need.base, need.slope, need.start) for needs in of_lanes for lane, need in needs]
    return Needs(start, *np.ascontiguousarray(np.array(rows, dtype=np.int32).reshape(len(rows), 4).T))
