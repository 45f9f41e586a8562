"""What a step needs at least of what ranks share, and of a rank's own time: read from its program, without simulating.

Bytes over the links of their paths, work on messages and service follow from the operations
of a step; how they wait for each other is left out, which only makes a run longer. Whoever
adds a strategy so has its bounds, and the law of its critical path, from its program alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from simulator.program.port_names import PortKind
from simulator.program.program import Floats, Integers, Operation, Program, Routine, Synchronous


class Links(NamedTuple):
    """What the busiest links are, and their seconds."""

    kinds: frozenset[PortKind]
    seconds: float


class Needs(NamedTuple):
    """What is needed at least for one step of every rank.

    Attributes
    ----------
    shared
        The busiest link that every rank's messages cross.
    own
        Of all others that the ranks have, those together that as much goes over in every step; or the busiest of all.
    server_s
        Seconds of the busiest server.
    host_tensors, host_bytes
        Tensors and bytes that hosts work on which every rank's messages come to or go from, shape (hosts,).
    apart_s
        Seconds of its own messages that a rank cannot compute beside, in each of its steps.
    """

    shared: Links
    own: Links
    server_s: float
    host_tensors: Floats
    host_bytes: Floats
    apart_s: float

    def of_more(self, times: float, filled: float) -> Needs:
        """The same of ``times`` as many ranks, on nodes that are alike, of which ``filled`` is the share that is in use."""
        return Needs(
            self.shared._replace(seconds=self.shared.seconds * times),
            self.own._replace(seconds=self.own.seconds * filled),
            self.server_s * times,
            self.host_tensors * times,
            self.host_bytes * times,
            self.apart_s,
        )


def needs_of(program: Program, *, evenly: bool) -> Needs:
    """What one step of every rank needs.

    Where ranks may make different numbers of steps, a link counts if every step of any rank
    sends as much over it, or over one of several that are taken together.

    Parameters
    ----------
    program
        Of the scenario. What its collectives send is not counted.
    evenly
        Whether all ranks make as many steps.
    """
    ranks, paths, slots = len(program.ranks), program.paths, program.ranks.path.shape[1]
    rule = program.rules.updates
    late = isinstance(rule, Synchronous) and rule.required < ranks  # what comes too late may never be waited for
    sent = np.zeros((2, len(program.routines), slots))  # bytes, tensors
    served = np.zeros((len(program.routines), max(program.servers.count, 1)))
    for number, routine in enumerate(program.routines):
        for its in routine.operations:
            if its.kind == "send" and not (late and its.target.kind == "server"):
                sent[:, number, its.slot] += its.size_bytes, its.tensors
            elif its.kind == "serve" and not late:
                served[number, its.server] += its.cost_s
    least = sent.min(axis=1)
    hosts = np.zeros((2, program.hosts.count))
    over: dict[bytes, tuple[Integers, float]] = {}
    for slot in range(slots):
        path = program.ranks.path[:, slot].astype(np.int64)
        if not sent[0, :, slot].any() or (path < 0).any():
            continue
        first, after = paths.first[path].astype(np.int64), paths.first[path + 1].astype(np.int64)
        out, into = paths.port[first], paths.port[after - 1]
        for port in (out,) if (out == into).all() else (out, into):  # the same links of other slots are added
            port = port[:1] if (port == port[0]).all() else np.unique(port)
            its_bytes = over.get(port.tobytes(), (port, 0.0))[1]
            over[port.tobytes()] = port, its_bytes + float(least[0, slot])
        for host in (paths.source[path], paths.target[path]):
            if host[0] >= 0 and (host == host[0]).all():
                hosts[:, host[0]] += ranks * least[:, slot]
    loads = [(port, ranks * size_bytes / float(program.ports.whole[port].sum())) for port, size_bytes in over.values()]
    if evenly and slots:
        loads += _busiest(program, program.ranks.path.ravel().astype(np.int64), sent[0][program.ranks.routine].ravel())
    shared, own = ([its for its in loads if (len(its[0]) == 1) == one] for one in (True, False))
    served_s = ranks * float(served.min(axis=0).max())
    return Needs(_most(program, shared), _most(program, own), served_s, hosts[1], hosts[0], apart_s(program) or 0.0)


def _most(program: Program, loads: Sequence[tuple[Integers, float]]) -> Links:
    port, seconds = max(loads, key=lambda its: its[1], default=(np.empty(0, dtype=np.int64), 0.0))
    return Links(frozenset(program.ports.names[one].kind for one in port.tolist()), seconds)


def _busiest(program: Program, path: Integers, size_bytes: Floats) -> list[tuple[Integers, float]]:
    """The busiest of all ports, with these bytes on each path, and its seconds."""
    used = (path >= 0) & (size_bytes > 0)
    path, size_bytes, paths = path[used], size_bytes[used], program.paths
    if not len(path):
        return []
    first = paths.first[path].astype(np.int64)
    crossed = paths.first[path + 1].astype(np.int64) - first
    place = np.arange(crossed.sum()) + np.repeat(first - np.cumsum(crossed) + crossed, crossed)
    carried = np.bincount(paths.port[place], np.repeat(size_bytes, crossed), len(program.ports.capacity))
    busy_s = carried / program.ports.whole
    return [(np.array([busy_s.argmax()]), float(busy_s.max()))]


def apart_s(program: Program, collective_s: Callable[[Operation], float] = lambda _: 0.0) -> float | None:
    """Seconds of a rank's own messages that none of its compute can go on beside, at least: before it begins, and after it has ended.

    Of every step; the optimizer's update is not taken for compute here. None where a step may be given up, or ends before all has come.

    Parameters
    ----------
    program
        Of the scenario.
    collective_s
        Seconds of a collective, at least, from when a rank enters it; of those that last as long as the program says that is known.
    """
    rules = program.rules
    if (isinstance(rules.updates, Synchronous) and rules.updates.cancel) or (rules.reduction is not None and rules.reduction.by_need):
        return None
    slots = [_Slot.of(program, slot) for slot in range(program.ranks.path.shape[1])]
    one_by_one = rules.reduction is None or rules.reduction.cycle_s is None  # in cycles, what is ready is fused

    def lasts_s(its: Operation) -> float:
        if its.kind == "send" and not its.from_step:
            return slots[its.slot].seconds(its.size_bytes)
        if its.kind != "collective" or its.every > 1:
            return 0.0
        return collective_s(its) if its.lasts_s is None else its.lasts_s

    return min(_apart_s(routine, lasts_s, one_by_one=one_by_one) for routine in program.routines)


class _Slot(NamedTuple):
    """The fastest path of any rank's."""

    latency_s: float
    bytes_per_s: float

    @classmethod
    def of(cls, program: Program, slot: int) -> _Slot:
        paths, path = program.paths, program.ranks.path[:, slot].astype(np.int64)
        path = path[path >= 0]
        if not len(path):
            return cls(0.0, math.inf)
        first = program.ports.whole[paths.port[paths.first[path]]]
        return cls(float(paths.latency_s[path].min()), float(first.max()))

    def seconds(self, size_bytes: float) -> float:
        return self.latency_s + size_bytes / self.bytes_per_s


def _apart_s(routine: Routine, lasts_s: Callable[[Operation], float], *, one_by_one: bool) -> float:
    """The longest chain of messages before the first pass, and that after the last."""
    passes = [number for number, its in enumerate(routine.operations) if its.kind == "compute" and (its.forward or its.backward)]
    if not passes:
        return 0.0
    before: dict[int, float] = {}
    after = {passes[-1]: 0.0}
    last: tuple[int, ...] = ()  # of collectives that are made in their order; others, in that in which they are entered
    for number, its in enumerate(routine.operations):
        its_s, waits = lasts_s(its), its.after
        if its.kind == "collective" and its.lasts_s is None and one_by_one:
            waits, last = (*waits, *last), (number,)
        if number <= passes[0]:
            before[number] = max((before[each] for each in waits), default=0.0) + its_s
        if reached := [after[each] for each in waits if each in after]:
            after[number] = max(reached) + its_s
    return before[passes[0]] + max(after.values())
