"""Which groups the ranks of a program are in.

A partition divides all ranks into groups, so that each rank is in exactly one of them:
all ranks, the shards of each tensor, the copies of each shard. A rank takes part in the
collectives of its group of every partition that its routine names. Those of one partition
follow one another, as on one stream of a device; those of several partitions go on at the
same time and share the links. Both event engines ask here what follows from that, so that
they agree; strategies make the groups (``simulator.strategies.hybrid.groups``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.program.program import Exchange, Integers, Program, Routine, Synchronous


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
        raise ValueError(f"{len(program.groups)} groups have the partitions {sorted(set(partition))}, which are not one each, from 0 on")
    ranks = len(program.ranks)
    group = np.full((len(set(partition)), ranks), -1, dtype=np.int32)
    place = np.zeros_like(group)
    for number, (its, of) in enumerate(zip(program.groups, partition, strict=True)):
        if its.size and not 0 <= its.min() <= its.max() < ranks:
            raise ValueError(f"group {number} names a rank that is not there")
        if np.any(group[of, its] >= 0) or len(np.unique(its)) < len(its):
            raise ValueError(f"partition {of}: a rank of group {number} is named twice")
        group[of, its], place[of, its] = number, np.arange(len(its))
    for of, rank in np.argwhere(group < 0)[:1].tolist():
        raise ValueError(f"partition {of}: rank {rank} is in none of its groups")
    return Memberships(group, place)


def last_groups(program: Program) -> Integers:
    """The group in which each rank has the last of a step's collectives; 0 where it has none. Shape (ranks,)."""
    last = [collectives_of(routine)[-1:] for routine in program.routines]
    partition = np.array([routine.operations[its[0]].partition if its else 0 for routine, its in zip(program.routines, last, strict=True)])
    if len(program.groups) <= 1:
        return np.broadcast_to(np.int64(0), len(program.ranks))
    its: Integers = memberships(program).group[partition[program.ranks.routine], np.arange(len(program.ranks))]
    return its


def collectives_of(routine: Routine) -> list[int]:
    """The numbers of a routine's collectives: by partition, then by bucket."""
    its = routine.operations
    found = [number for number, operation in enumerate(its) if operation.kind == "collective"]
    return sorted(found, key=lambda number: (its[number].partition, its[number].bucket))


def exchanges_by_group(program: Program) -> list[list[Exchange]]:
    """The messages of each group's buckets, in their order."""
    found: list[list[Exchange]] = [[] for _ in program.groups]
    for exchange in program.exchanges:
        found[exchange.group].append(exchange)
    return found


def members_of_groups(program: Program) -> list[int]:
    """Of each group its ranks, and the switches that any of its buckets has behind them."""
    return [
        len(ranks) + max((its.tables.switches for its in of_group), default=0)
        for ranks, of_group in zip(program.groups, exchanges_by_group(program), strict=True)
    ]


def partition_of_each(program: Program) -> tuple[int, ...]:
    """The partition that each group is of."""
    return program.partition or (0,) * len(program.groups)


def of_partition(program: Program, partition: int) -> list[int]:
    """The numbers of its groups."""
    return [number for number, of in enumerate(partition_of_each(program)) if of == partition]


def group_name(program: Program, group: int) -> str:
    """What records say before a bucket's number; nothing where there is one group only."""
    return f"group {group} " if len(program.groups) > 1 else ""


def amid_passes(routine: Routine) -> bool:
    """Whether a step's passes are in pieces between which a rank hears from others: ranks meet in several groups, or before a step's
    last pass, so that collectives tell by themselves when they go on, or they receive between one pass and the next."""
    if any(operation.kind == "collective" and operation.departs for operation in routine.operations):
        return True
    passes = sum(operation.kind == "compute" and not operation.apply for operation in routine.operations)
    return passes > 1 and any(operation.kind == "receive" for operation in routine.operations)


def stands_still(routine: Routine) -> bool:
    """Whether a rank stands still before a compute until others have sent what it receives, or have come to where they meet."""
    return any(operation.kind == "receive" or operation.lasts_s is not None for operation in routine.operations)


def may_overlap(program: Program, routine: Routine) -> bool:
    """Whether a rank of a routine can compute while one of its messages, or a collective that tells when it goes on, is on its way."""
    rule = program.rules.updates
    if isinstance(rule, Synchronous) and rule.cancel:
        return True
    operations = routine.operations
    before: list[int] = []  # of each operation, all that must have ended: a bit each
    last = 0  # the compute before, and what that waited for
    for number, operation in enumerate(operations):
        its = last if operation.kind == "compute" else 0
        for one in operation.after:
            its |= before[one] | 1 << one
        before.append(its)
        if operation.kind == "compute":
            last = its | 1 << number
    computes = [number for number, its in enumerate(operations) if its.kind == "compute"]
    sends = [number for number, its in enumerate(operations) if its.kind == "send" or (its.kind == "collective" and its.departs)]
    return any(not before[compute] >> send & 1 and not before[send] >> compute & 1 for send in sends for compute in computes)
