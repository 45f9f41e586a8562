"""Adds the messages of a program's collectives to the tables of the compiled engine; ``collectives`` has them sent."""

from __future__ import annotations

import numpy as np

from simulator.engine.production import layout
from simulator.engine.production.state import State
from simulator.program.program import (
    Integers,
    Program,
    collectives_of,
    exchanges_by_group,
    members_of_groups,
    memberships,
    partition_of_each,
)
from simulator.program.schedule import Needs, Tables

_ALWAYS = (1 << 31) - 1
"""Buckets that a switch is asked to do: it has nothing to wait for but messages."""


def add_exchanges(state: State, program: Program) -> None:
    """Give a simulation the tables of the messages of its program's collectives.

    The members of all groups are numbered one group after the other, each in its order, with its switches behind its ranks.
    """
    exchanges = [exchange for of_group in exchanges_by_group(program) for exchange in of_group]
    first_member = np.cumsum([0, *members_of_groups(program)])
    members_of = np.diff(first_member)
    begins = first_member[[exchange.group for exchange in exchanges]]
    kinds: dict[tuple[int, int], int] = {}  # those that differ in size alone share lanes
    of_kind = [kinds.setdefault((id(exchange.tables), id(exchange.path)), len(kinds)) for exchange in exchanges]
    different = [exchanges[of_kind.index(kind)] for kind in range(len(kinds))]
    first_lane = np.cumsum([0, *(len(exchange.path) for exchange in different)])
    needs: list[np.ndarray[tuple[int], np.dtype[np.void]]] = [np.zeros(0, layout.NEED)]
    into: list[Integers] = [np.zeros(0, dtype=np.int32)]
    lanes = np.zeros(int(first_lane[-1]), layout.LANE)
    first_role = np.cumsum([0, *(members_of[exchange.group] for exchange in different)])
    roles = np.zeros(int(first_role[-1]), layout.ROLE)
    rows = 0
    for kind, exchange in enumerate(different):
        tables, begin = exchange.tables, int(first_lane[kind])
        some = lanes[begin : int(first_lane[kind + 1])]
        some["source"], some["target"] = (end + first_member[exchange.group] for end in (tables.source, tables.target))
        some["messages"], some["path"] = tables.messages, exchange.path
        for name, its_needs in (("awaits", tables.awaits), ("meets", tables.meets)):
            some[name] = rows + its_needs.start[:-1]
            some[f"{name}_n"] = np.diff(its_needs.start)
            needs.append(_needs(its_needs, begin))
            rows += len(its_needs.lane)
        some["meets_n"][~tables.meeting] = -1
        _fill_roles(roles[first_role[kind] : first_role[kind + 1]], tables, begin, sum(map(len, into)))
        into.append(begin + np.argsort(tables.target, kind="stable"))
    table = np.zeros(len(exchanges), layout.EXCHANGE)
    # such that the number of a member, added, finds its part
    table["roles"] = first_role[of_kind] - begins
    counts = [len(of_group) for of_group in exchanges_by_group(program)]
    first_exchange = np.cumsum([0, *counts])
    table["bucket"] = np.concatenate([np.arange(count) for count in counts])
    table["following"] = np.concatenate(
        [begin + np.roll(np.arange(count), -1) for begin, count in zip(first_exchange[:-1], counts, strict=True)]
    )
    sizes = [exchange.size_bytes for exchange in exchanges]
    # such that the number of a lane, added, finds the size of its messages
    table["sizes"] = np.cumsum([0, *map(len, sizes)])[:-1] - first_lane[of_kind]
    members = np.zeros(int(first_member[-1]), layout.MEMBER)
    members["waiting"] = members["waiting_last"] = -1
    standings = _standings(program)
    members["asked"][standings["rank"] < 0] = _ALWAYS
    members["exchange"] = np.repeat(first_exchange[:-1], np.diff(first_member))
    its_memberships = memberships(program)
    state.add("members", members)
    state.add("member_of", (first_member[its_memberships.group] + its_memberships.place).astype(np.int32).reshape(-1).view(layout.NUMBER))
    state.add("standings", standings)
    state.add("lanes", lanes)
    state.add("roles", roles)
    state.add("exchanges", table)
    state.add("needs", np.concatenate(needs))
    state.add("into", np.concatenate(into).astype(np.int32).view(layout.NUMBER))
    state.add("message_sizes", np.concatenate([np.zeros(0), *sizes]).view(layout.REAL))
    s = state.s
    # a rank may send at once all that it sends in a bucket, and let all go on that send to it
    s.spare += roles["outgoing"].max(initial=0)
    s.soon_spare += roles["into_n"].max(initial=0)


def _standings(program: Program) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """Who the members are, group by group."""
    called = [
        np.concatenate([ranks, -1 - np.arange(members - len(ranks))])
        for ranks, members in zip(program.groups, members_of_groups(program), strict=True)
    ]
    table = np.zeros(sum(map(len, called)), layout.STANDING)
    table["rank"] = np.concatenate(called)
    partition = np.repeat(partition_of_each(program), [len(calls) for calls in called])
    # of each routine and partition, how many collectives come before those of the partition
    of_routines = [[routine.operations[number].partition for number in collectives_of(routine)] for routine in program.routines]
    before = np.array(
        [[sum(earlier < of for earlier in partitions) for of in range(max(program.partition, default=0) + 1)] for partitions in of_routines]
    )
    is_rank = table["rank"] >= 0
    table["bucket"][is_rank] = before[program.ranks.routine[table["rank"][is_rank]], partition[is_rank]]
    return table


def _needs(needs: Needs, first_lane: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    table = np.zeros(len(needs.lane), layout.NEED)
    table["lane"] = needs.lane + first_lane
    for name in ("base", "slope", "onward"):
        table[name] = getattr(needs, name)
    return table


def _fill_roles(roles: np.ndarray[tuple[int], np.dtype[np.void]], tables: Tables, first_lane: int, first_into: int) -> None:
    roles = roles[: tables.members]  # the others are switches that other buckets of the group have
    roles["first"], roles["last"] = tables.out[:-1] + first_lane, tables.out[1:] + first_lane
    roles["outgoing"] = np.bincount(tables.source, tables.messages, tables.members)
    roles["incoming"] = tables.incoming
    lanes_into = np.bincount(tables.target, minlength=tables.members)
    roles["into_n"] = lanes_into
    roles["into"] = first_into + np.cumsum(lanes_into) - lanes_into
