"""A program's exchanges as tables of the compiled engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.collectives.schedule import Needs, Tables
from simulator.engine.compiled import layout
from simulator.engine.compiled.state import State
from simulator.program.program import Exchange, Integers

__all__ = ["add_exchanges"]


def add_exchanges(state: State, exchanges: Sequence[Exchange], ranks: int) -> None:
    """Give a simulation the tables of the messages of its collectives.

    Parameters
    ----------
    state
        The simulation.
    exchanges
        Of each bucket.
    ranks
        How many take part; all.
    """
    kinds: dict[tuple[int, int], int] = {}  # those that differ in size alone share lanes
    of_kind = [kinds.setdefault((id(its.tables), id(its.path)), len(kinds)) for its in exchanges]
    different = [exchanges[of_kind.index(kind)] for kind in range(len(kinds))]
    first_lane = np.cumsum([0, *(len(its.path) for its in different)])
    needs: list[np.ndarray[tuple[int], np.dtype[np.void]]] = [np.zeros(0, layout.NEED)]
    into: list[Integers] = [np.zeros(0, dtype=np.int32)]
    lanes = np.zeros(int(first_lane[-1]), layout.LANE)
    roles = np.zeros((len(kinds), ranks), layout.ROLE)
    rows = 0
    for kind, its in enumerate(different):
        tables, begin = its.tables, int(first_lane[kind])
        some = lanes[begin : int(first_lane[kind + 1])]
        for name in ("source", "target", "messages"):
            some[name] = getattr(tables, name)
        some["path"] = its.path
        for name, its_needs in (("awaits", tables.awaits), ("meets", tables.meets)):
            some[name] = rows + its_needs.start[:-1]
            some[f"{name}_n"] = np.diff(its_needs.start)
            needs.append(_needs(its_needs, begin))
            rows += len(its_needs.lane)
        some["meets_n"][~tables.meeting] = -1
        _fill_roles(roles[kind], tables, begin, sum(map(len, into)))
        into.append(begin + np.argsort(tables.target, kind="stable"))
    table = np.zeros(len(exchanges), layout.EXCHANGE)
    table["roles"] = np.array(of_kind, dtype=np.int64) * ranks
    sizes = [its.size_bytes for its in exchanges]
    # such that the number of a lane, added, finds the size of its messages
    table["sizes"] = np.cumsum([0, *map(len, sizes)])[:-1] - first_lane[of_kind]
    members = np.zeros(ranks, layout.MEMBER)
    members["waiting"] = members["waiting_last"] = -1
    state.add("members", members)
    state.add("lanes", lanes)
    state.add("roles", roles.reshape(-1))
    state.add("exchanges", table)
    state.add("needs", np.concatenate(needs))
    state.add("into", np.concatenate(into).astype(np.int32).view(layout.NUMBER))
    state.add("message_sizes", np.concatenate([np.zeros(0), *sizes]).view(layout.REAL))
    s = state.s
    s.exchanges_n = len(exchanges)
    # a rank may send at once all that it sends in a bucket, and let all go on that send to it
    s.spare += roles["outgoing"].max(initial=0)
    s.soon_spare += roles["into_n"].max(initial=0)


def _needs(its: Needs, first_lane: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    table = np.zeros(len(its.lane), layout.NEED)
    table["lane"] = its.lane + first_lane
    for name in ("base", "slope", "onward"):
        table[name] = getattr(its, name)
    return table


def _fill_roles(roles: np.ndarray[tuple[int], np.dtype[np.void]], tables: Tables, first_lane: int, first_into: int) -> None:
    roles["first"], roles["last"] = tables.out[:-1] + first_lane, tables.out[1:] + first_lane
    roles["outgoing"] = np.bincount(tables.source, tables.messages, tables.ranks)
    roles["incoming"] = tables.incoming
    lanes_into = np.bincount(tables.target, minlength=tables.ranks)
    roles["into_n"] = lanes_into
    roles["into"] = first_into + np.cumsum(lanes_into) - lanes_into
