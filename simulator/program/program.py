"""Data types of a program: ports, paths, hosts, ranks, operations and rules.

A program is data without randomness: it says what may happen after what, over which
links, and by which rules; when it happens is found out by an engine, with the numbers that
are drawn for a replication. Tables that grow with the ranks are columns of numpy arrays.

A new kind of operation, gate or rule is carried out by both ``simulator.engine.textbook`` and
``simulator.engine.production`` (codes.py, tables.py), which tests/property/test_engines_agree.py
compares; checked in tests/oracles/programs; and printed in ``simulator.program.printing``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simulator.base.records import EVERYBODY, NOTHING, Place, numbered
from simulator.program.port_names import PortName
from simulator.program.schedule import Does, Tables
from simulator.spec.transport import Transport

INSTANT_S = 1e-12
"""Events that are no further apart happen in one instant: less is the rounding of sums. Who takes a turn is decided at its end."""
Floats = NDArray[np.float64]
Integers = NDArray[np.integer]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Ports:
    """Resources that connections share: one direction of a link each, or a device that several use. Columns of shape (ports,).

    Attributes
    ----------
    capacity
        Bytes per second; of a device, seconds of work per second.
    ceiling
        Most that a connection gets per unit of its weight, in bytes per second; infinite where there is no such limit.
    incast_loss, incast_flows
        What each active connection beyond ``incast_flows`` costs: the capacity is divided by 1 + loss x (connections - flows).
    names
        What each is (:class:`~simulator.program.port_names.PortName`): its kind, whose it is, and a text for results.
    nominal
        What it has where nobody else uses it, of which its use is counted; ``capacity`` is what unresponsive traffic of others leaves
        of it at the beginning. None: the same.
    beside
        Background flows that always share it; None: there are none.
    """

    capacity: Floats
    ceiling: Floats
    incast_loss: Floats
    incast_flows: Integers
    names: Sequence[PortName]
    nominal: Floats | None = None
    beside: Floats | None = None

    @property
    def whole(self) -> Floats:
        """The capacity of each where nobody else uses it, shape (ports,)."""
        return self.capacity if self.nominal is None else self.nominal

    @property
    def others(self) -> Floats:
        """Flows of others that always share each, shape (ports,)."""
        return np.broadcast_to(0.0, len(self.capacity)) if self.beside is None else self.beside


@dataclass(frozen=True)
class Changes:
    """Background traffic on some ports, changing during a run. Columns of shape (changes,), but for ``port``.

    Attributes
    ----------
    port
        Ports that it is about, ascending.
    at_s
        Since when, in seconds; the first is 0, and what it says is in the table of ports already.
    left
        Share of a port's whole capacity that is left.
    beside
        Background flows that share it.
    repeat_s
        After which all begins again; none: the last stays.
    """

    port: Integers
    at_s: Floats
    left: Floats
    beside: Floats
    repeat_s: float | None = None


@dataclass(frozen=True)
class Paths:
    """Connections: each carries its messages in order over some ports. Columns of shape (paths,), but for ``first`` and ``port``.

    Attributes
    ----------
    first
        Shape (paths + 1,): path p crosses ``port[first[p]:first[p + 1]]``.
    port
        Ports of all paths, one path after the other.
    latency_s
        Delays a message without occupying the path, in seconds.
    source, target
        The hosts at its ends that work on messages; -1: none.
    asked_for
        Whether its messages are answers to requests that go the other way.
    weight
        Of each relative to others, in whole numbers; none: that of all is 1.
    sender, receiver
        The nodes whose links its messages share by turns, weights or a queue, by number; -1: it stays inside a node. None: no path is
        shared in such a way.
    """

    first: Integers
    port: Integers
    latency_s: Floats
    source: Integers
    target: Integers
    asked_for: Flags
    weight: Floats | None = None
    sender: Integers | None = None
    receiver: Integers | None = None

    def __len__(self) -> int:
        return len(self.latency_s)


@dataclass(frozen=True)
class Hosts:
    """Hosts that work on messages: nodes, or the processes on them."""

    count: int
    names: Sequence[PortName]


@dataclass(frozen=True)
class Cores:
    """The cores of the one machine that all nodes are processes of, and how long one keeps a core while others wait."""

    number: float
    slice_s: float


@dataclass(frozen=True)
class Devices:
    """Devices of ranks.

    Attributes
    ----------
    count
        How many. Those that several ranks, or a rank and a server, use are ports: each of their users has a seat, a path over that port.
    on_cores
        Whether their work takes place on the shared cores.
    slowdown
        Share by which work takes longer while the rank communicates.
    busy_core_slowdown
        On the cores: share by which work takes longer for each other core that is busy.
    """

    count: int
    on_cores: bool
    slowdown: float
    busy_core_slowdown: float


@dataclass(frozen=True)
class Servers:
    """Parameter servers.

    Attributes
    ----------
    count
        How many.
    seat
        Of each, the path by which it works on a worker's device; -1: it has a processor of its own, or the shared cores. Shape (servers,).
    on_cores
        Whether they work on the shared cores.
    """

    count: int
    seat: Integers
    on_cores: bool


@dataclass(frozen=True)
class Ranks:
    """Who makes steps. Columns of shape (ranks,), but for ``path``.

    A rank is one device's part in the job; ranks of one data-parallel copy hold one model
    together. Batches, speed-up and staleness count copies.

    Attributes
    ----------
    device
        What each computes on.
    copy
        The data-parallel copy that it belongs to.
    routine
        What it does in a step.
    seat
        The path over its device's port where that is shared; -1: it has the device to itself.
    path
        The path of each slot that operations send over, shape (ranks, slots); -1: none.
    peer
        The rank that each slot leads to, where it leads to one, shape (ranks, slots); -1: none.
    names
        What records call them.
    """

    device: Integers
    copy: Integers
    routine: Integers
    seat: Integers
    path: Integers
    peer: Integers
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.device)


Kind = Literal["gate", "compute", "send", "receive", "serve", "collective"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that a rank does in a step.

    It begins when the operations named in ``after`` have ended in this step; computes of a
    rank begin one after the other, in their order.

    Attributes
    ----------
    kind
        gate: goes on when a rule lets it; compute: work on the rank's device; send: bytes
        over a path; receive: what another rank has sent; serve: a server works on a tensor;
        collective: with others of a group.
    name
        What is done, such as "push". Gates: "turn" (the step is handed out, and begins to
        read), "prepare" (the client has the batch), "input" (the batch is there), "update"
        (the rank may end its step).
    number
        Which of those of its name it is, where it is of one tensor, bucket or neighbour among several; -1: the name says it all.
    after
        Numbers of operations of the same routine.
    forward, backward, apply
        compute: shares of the rank's forward pass, backward pass and update.
    joins
        compute: made in one piece with the next compute where that can begin as well.
    slot
        send: which of the rank's paths.
    size_bytes
        send, collective: bytes.
    tensors
        send: of the model, that go as this one message; hosts work on each.
    source, target
        send: its ends; the rank's own where their number is :data:`~simulator.base.records.OWN`.
    departs, lands
        From the beginning of the one to the end of the other the rank communicates. Collectives say so where ranks meet in several
        groups, or amid their passes; else they are known to follow the passes.
    channel
        send to a rank, receive: messages of a channel are received in the order in which they come, one by each receive.
    from_step
        send to a rank, receive: takes place from this step on; before, it ends as it begins.
    feeds
        send: brings the batch that the gate "input" waits for.
    server, tensor, cost_s
        serve: where, which, and seconds.
    does
        collective: what is done (:data:`~simulator.program.schedule.Does`).
    partition
        collective: the ranks that take part are those of the group that the rank is in, of this partition of all ranks.
    bucket, every, ready
        collective: its number, from 0 on in the order in which the group reduces; it takes place in each ``every``-th step only; share
        of the backward pass after which its data is there. Those of different partitions go on at the same time.
    lasts_s
        collective: ends for all of the group so long after the last of them has entered it, and the group's one before it of this
        partition has ended. None: as long as its messages take, or what all ranks reduce at once.
    moves_s
        collective that lasts a known time: for so much of it, the last, it needs the links that its group shares with others.
    """

    kind: Kind
    name: str
    number: int = NOTHING
    after: tuple[int, ...] = ()
    forward: float = 0.0
    backward: float = 0.0
    apply: float = 0.0
    joins: bool = False
    slot: int = -1
    size_bytes: float = 0.0
    tensors: float = 1.0
    source: Place = EVERYBODY
    target: Place = EVERYBODY
    departs: bool = False
    lands: bool = False
    channel: int = -1
    from_step: int = 0
    feeds: bool = False
    server: int = -1
    tensor: int = -1
    cost_s: float = 0.0
    does: Does = "all-reduce"
    partition: int = 0
    bucket: int = -1
    every: int = 1
    ready: float = 1.0
    lasts_s: float | None = None
    moves_s: float = 0.0

    @property
    def title(self) -> str:
        """Name and number: ``push 7``."""
        return numbered(self.name, self.number)

    @property
    def pattern(self) -> str:
        """Return what all of its name are called: ``push *``."""
        return self.name if self.number == NOTHING else f"{self.name} *"


@dataclass(frozen=True)
class Routine:
    """Operations of a rank in a step.

    Attributes
    ----------
    operations
        The first is the gate "turn"; a step has ended when all have.
    shuffled
        Operations, first and last + 1, that begin in a random order in each step.
    """

    operations: tuple[Operation, ...]
    shuffled: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Dispatcher:
    """One process hands out steps, one at a time (``strategy.coordinator``)."""

    dispatch_s: float
    latency_s: float


@dataclass(frozen=True)
class Client:
    """One process prepares every rank's batch, one at a time."""

    input_s: float


@dataclass(frozen=True)
class Feed:
    """Pipelines that prepare batches (:mod:`simulator.strategies.pipelines`). Columns of shape (pipelines,), but where it says another.

    A pipeline prepares one batch after the other. A batch has simultaneous parts and is ready when all have ended. All are multiplied by
    what is drawn for the batch.

    Attributes
    ----------
    of_rank
        The pipeline that feeds each rank, shape (ranks,); its ranks get their parts of a batch together.
    prefetch
        Maximum number of ready batches before another is begun; 0: each is begun when it is asked for.
    own_s
        Seconds for what it shares with nobody.
    path, amount
        What crosses ports that it shares: paths, and bytes or CPU seconds of a batch, shape (pipelines, flows).
    work_s
        CPU seconds of each thread on the cores that all nodes share, shape (pipelines, threads).
    mean_s
        Seconds of a batch that shares nothing.
    """

    of_rank: Integers
    prefetch: int
    own_s: Floats
    path: Integers
    amount: Floats
    work_s: Floats
    mean_s: Floats

    def __len__(self) -> int:
        return len(self.own_s)

    @property
    def alone(self) -> bool:
        """Tell whether pipelines share nothing, so that it is known when a batch will be there as soon as it is begun."""
        return not self.path.shape[1] and not self.work_s.shape[1]


@dataclass(frozen=True)
class Asynchronous:
    """Each gradient is applied when its turn comes at its server; a step whose gradients are all applied is an update.

    Attributes
    ----------
    parts
        Gradients of a step on each server.
    """

    parts: tuple[int, ...]


@dataclass(frozen=True)
class Synchronous:
    """``SyncReplicasOptimizer``: accumulators, a chief, and a queue of tokens.

    Attributes
    ----------
    required
        Gradients that an update averages.
    cancel
        Whether a rank whose gradients have become too late stops computing.
    server, cost_s
        Of each tensor: where it is, and seconds to apply it.
    """

    required: int
    cancel: bool
    server: tuple[int, ...]
    cost_s: tuple[float, ...]


@dataclass(frozen=True)
class HostCopies:
    """Buffers go by the hosts' memory: what a rank's part of the link to its host carries, in each direction."""

    latency_s: float
    s_per_byte: float


@dataclass(frozen=True)
class Reduction:
    """How ranks reduce their buckets, beyond one after the other.

    Attributes
    ----------
    cycle_s
        Every cycle, what is ready on all ranks is fused and reduced; none: each bucket as it becomes ready.
    most_bytes
        With a cycle: what is fused at most.
    by_need
        Whether those go first that the next forward pass needs first, and it begins when they have come.
    copies
        Where buffers go by the hosts' memory.
    """

    cycle_s: float | None = None
    most_bytes: float = math.inf
    by_need: bool = False
    copies: HostCopies | None = None


@dataclass(frozen=True)
class Exchange:
    """The messages of one collective, lane by lane; ranks are counted within the group.

    Attributes
    ----------
    tables
        Who sends how many messages to whom, and what each must await.
    path
        The path of each lane, shape (lanes,). Lanes of several exchanges between the same two ranks may have it in common.
    size_bytes
        Of each message of a lane, shape (lanes,).
    group
        Which of the program's groups.
    """

    tables: Tables
    path: Integers
    size_bytes: Floats
    group: int = 0


@dataclass(frozen=True)
class Rules:
    """Rules outside the graph: small state machines with integer state.

    Attributes
    ----------
    steps_shared
        Steps of the whole job that are handed out to whoever asks; none: as many as are asked for.
    steps_each
        Steps of every rank; none likewise.
    closes
        Whether the measurement ends when a rank has made all of its steps.
    bound
        Stale-synchronous: steps that a rank may be ahead of the slowest; none: any.
    dispatcher, client
        As there are.
    updates
        What becomes of gradients at servers; none without servers.
    sync_every
        Steps after which all ranks hold the same variables.
    reduction
        How ranks reduce their buckets; none where they have none.
    """

    steps_shared: int | None = None
    steps_each: int | None = None
    closes: bool = False
    bound: int | None = None
    dispatcher: Dispatcher | None = None
    client: Client | None = None
    updates: Asynchronous | Synchronous | None = None
    sync_every: int = 1
    reduction: Reduction | None = None

    @property
    def most_steps_each(self) -> int | None:
        """Steps that a rank makes at most: where ranks meet now and then, those ahead go on until the window closes."""
        if self.steps_each is None or self.sync_every == 1:
            return self.steps_each
        return self.steps_each + self.sync_every


@dataclass(frozen=True)
class Program:
    """Everything that an engine needs besides the numbers that are drawn.

    Attributes
    ----------
    links
        Ports before this number are links; those from it on are caps of single connections, and devices.
    groups
        Ordered lists of ranks that do something together.
    partition
        Of each group the partition that it is of, numbered from 0 on; each rank is in exactly one group of every partition
        (:func:`memberships` tells which). Left out: all groups are of one.
    over
        Of each group the path over the links that it shares with others, for collectives that last a known time; -1: it shares none.
        Left out: no group does.
    exchanges
        Where collectives are simulated message by message, the messages of each group's buckets, in the order of the buckets; else
        nothing.
    feed
        What prepares batches; none: they are there, or a client has them.
    changes
        What others take from ports, where that changes; none: it does not.
    """

    ports: Ports
    links: int
    paths: Paths
    hosts: Hosts
    devices: Devices
    servers: Servers
    ranks: Ranks
    routines: tuple[Routine, ...]
    rules: Rules
    transport: Transport
    cores: Cores | None = None
    groups: tuple[Integers, ...] = ()
    partition: tuple[int, ...] = ()
    over: tuple[int, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    feed: Feed | None = None
    changes: Changes | None = None

    @property
    def together(self) -> bool:
        """Whether ranks meet only in collectives and each makes all passes: it has its own device, and nothing is sent, served or done on
        shared cores."""
        ranks = self.ranks
        operations = [operation for routine in self.routines for operation in routine.operations]
        alone = self.feed is None or self.feed.alone
        apart = any(operation.kind in ("send", "serve") or operation.lasts_s is not None for operation in operations)
        whole = all(math.isclose(math.fsum(getattr(each, name) for each in operations), 1.0) for name in ("forward", "backward", "apply"))
        return alone and not apart and whole and self.cores is None and bool((ranks.seat < 0).all()) and len(self.routines) == 1


@dataclass(frozen=True)
class Memberships:
    """Where the ranks of a program are. Columns of shape (partitions, ranks).

    Attributes
    ----------
    group
        The rank's group of each partition.
    place
        Its place in that group's list.
    """

    group: Integers
    place: Integers


def memberships(program: Program) -> Memberships:
    """The group that each rank is in, of every partition.

    Raises
    ------
    ValueError
        A rank is in none of a partition's groups, or in two of them.
    """
    partition = partition_of_each(program)
    if len(partition) != len(program.groups) or sorted(set(partition)) != list(range(len(set(partition)))):
        raise ValueError(f"{len(program.groups)} groups have the partitions {sorted(set(partition))}, but must have one each, from 0")
    ranks = len(program.ranks)
    group = np.full((len(set(partition)), ranks), -1, dtype=np.int32)
    place = np.zeros_like(group)
    for number, (ranks_of, of) in enumerate(zip(program.groups, partition, strict=True)):
        if ranks_of.size and not 0 <= ranks_of.min() <= ranks_of.max() < ranks:
            raise ValueError(f"group {number} lists a rank that does not exist")
        if np.any(group[of, ranks_of] >= 0) or len(np.unique(ranks_of)) < len(ranks_of):
            raise ValueError(f"partition {of}: a rank of group {number} is listed twice")
        group[of, ranks_of], place[of, ranks_of] = number, np.arange(len(ranks_of))
    for of, rank in np.argwhere(group < 0)[:1].tolist():
        raise ValueError(f"partition {of}: rank {rank} is in none of its groups")
    return Memberships(group, place)


def last_groups(program: Program) -> Integers:
    """The group in which each rank has the last of a step's collectives; 0 where it has none. Shape (ranks,)."""
    last = [[routine.operations[number] for number in collectives_of(routine)[-1:]] for routine in program.routines]
    partition = np.array([operations[0].partition if operations else 0 for operations in last])
    if len(program.groups) <= 1:
        return np.broadcast_to(np.int64(0), len(program.ranks))
    groups: Integers = memberships(program).group[partition[program.ranks.routine], np.arange(len(program.ranks))]
    return groups


def collectives_of(routine: Routine) -> list[int]:
    """The numbers of a routine's collectives: by partition, then by bucket."""
    operations = routine.operations
    collectives = [number for number, operation in enumerate(operations) if operation.kind == "collective"]
    return sorted(collectives, key=lambda number: (operations[number].partition, operations[number].bucket))


def exchanges_by_group(program: Program) -> list[list[Exchange]]:
    """The messages of each group's buckets, in their order."""
    by_group: list[list[Exchange]] = [[] for _ in program.groups]
    for exchange in program.exchanges:
        by_group[exchange.group].append(exchange)
    return by_group


def members_of_groups(program: Program) -> list[int]:
    """Ranks of each group, followed by the switches of any of its buckets."""
    return [
        len(ranks) + max((exchange.tables.switches for exchange in of_group), default=0)
        for ranks, of_group in zip(program.groups, exchanges_by_group(program), strict=True)
    ]


def partition_of_each(program: Program) -> tuple[int, ...]:
    """The partition that each group is of."""
    return program.partition or (0,) * len(program.groups)


def of_partition(program: Program, partition: int) -> list[int]:
    """The numbers of its groups."""
    return [number for number, of in enumerate(partition_of_each(program)) if of == partition]


def group_name(program: Program, group: int) -> str:
    """Return what records say before a bucket's number; nothing where there is one group only."""
    return f"group {group} " if len(program.groups) > 1 else ""


def amid_passes(routine: Routine) -> bool:
    """Tell whether a step's passes are in pieces between which a rank hears from others: ranks meet in several groups, or before a step's
    last pass, so that collectives tell by themselves when they go on, or they receive between one pass and the next."""
    if any(operation.kind == "collective" and operation.departs for operation in routine.operations):
        return True
    passes = sum(operation.kind == "compute" and not operation.apply for operation in routine.operations)
    return passes > 1 and any(operation.kind == "receive" for operation in routine.operations)


def stands_still(routine: Routine) -> bool:
    """Return whether a rank waits before a compute for data of others or for a meeting point."""
    return any(operation.kind == "receive" or operation.lasts_s is not None for operation in routine.operations)


def may_overlap(program: Program, routine: Routine) -> bool:
    """Tell whether a rank of a routine can compute while one of its messages, or a collective that tells when it goes on, is on its way."""
    rule = program.rules.updates
    if isinstance(rule, Synchronous) and rule.cancel:
        return True
    operations = routine.operations
    before: list[int] = []  # of each operation, all that must have ended: a bit each
    last = 0  # the compute before, and what that waited for
    for number, operation in enumerate(operations):
        ended = last if operation.kind == "compute" else 0
        for earlier in operation.after:
            ended |= before[earlier] | 1 << earlier
        before.append(ended)
        if operation.kind == "compute":
            last = ended | 1 << number
    computes = [number for number, each in enumerate(operations) if each.kind == "compute"]
    sends = [number for number, each in enumerate(operations) if each.kind == "send" or (each.kind == "collective" and each.departs)]
    return any(not before[compute] >> send & 1 and not before[send] >> compute & 1 for send in sends for compute in computes)
