"""The tables of one simulation's calendar, network and cores: made, grown and read by Python, changed by machine code.

``tables`` adds those of a program. The types of records are in ``layout``.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.base.compact import numbers
from simulator.base.process import give_back
from simulator.engine.production import layout
from simulator.engine.production.layout import AWAY, Record
from simulator.engine.production.machine import act, address_of
from simulator.program.program import Changes, Cores, Floats, Integers, Paths, Ports
from simulator.spec.transport import Transport

_NONE: Integers = np.zeros(0, dtype=np.int64)


def shared_crossings(ports: Ports, paths: Paths, weight: NDArray[np.float64], changing: Integers = _NONE) -> NDArray[np.bool_]:
    """Of each entry of ``paths.port``, whether the port has to be shared there; the others are ample.

    A port is ample if all paths that cross it, each as fast as its other shared ports
    allow, fit into its capacity; ports that incast affects are never ample.

    Parameters
    ----------
    ports, paths
        All there are.
    weight
        Of each path, shape (paths,).
    changing
        Ports of which others take more at one time than at another: never ample, no more than one that flows of others share.
    """
    crossings = len(paths.port)
    path = np.repeat(np.arange(len(paths)), np.diff(paths.first))
    by_port = np.argsort(paths.port, kind="stable")
    users = np.bincount(paths.port, minlength=len(ports.capacity))
    begins = np.concatenate(([0], np.cumsum(users)))
    appears = np.full(len(users), crossings)
    np.minimum.at(appears, paths.port, np.arange(crossings))
    order = np.lexsort((appears, users))
    shared = np.ones(crossings, dtype=np.bool_)
    most = room = np.require(ports.capacity, np.float64, "C")
    if ports.beside is not None:
        most, room = most.copy(), most.copy()
        most[changing] = ports.whole[changing]
        room[changing] = -1.0
        room[ports.beside > 0] = -1.0
    room = np.where(ports.incast_loss > 0, -1.0, room)  # whose use is the time for which they have anything to do
    columns = {
        **{name: np.require(values, np.int64, "C") for name, values in (
            ("order", order), ("begins", begins), ("by_port", by_port), ("path", path), ("first", paths.first), ("crossed", paths.port),
        )},
        **{name: np.require(values, np.float64, "C") for name, values in (
            ("weight", weight), ("capacity", most), ("room", room), ("ceiling", ports.ceiling),
        )},
        "shared": shared,
    }  # fmt: skip
    crossings_of = np.zeros(1, layout.CROSSINGS)
    crossings_of["ports_n"] = len(order)
    for name, column in columns.items():
        crossings_of[name] = address_of(column)
    act(address_of(crossings_of), 9, 0, 0.0, 0, 0, 0)
    return shared


_PATIENCE = 16
"""Ports that may be visited per arrival or departure before the whole component is shared again."""
_FIRST_ROOM = 1 << 10
_LINE = 64
_LARGE = 1 << 22
"""Bytes from which a table has pages of its own."""
_CONTEXTS = {
    "soon": "soon_contexts",
    "noted": "noted_contexts",
    "messages": "message_contexts",
    "works": "work_contexts",
    "jobs": "job_contexts",
}
_RINGS = {"soon": "soon_first", "at_end": "end_first"}
_NOT_KEPT = frozenset(
    {"noted", "soon", "at_end", "messages", "works", "jobs", "comings", "departures", "waiting_messages", "heaps", "candidates",
     "parked", "came", "due", "factors", "batch_factors", "orders", "steps", "updates", "reads", "logged", *_CONTEXTS.values()}
)  # fmt: skip
"""Tables of which nothing is read before it has been written."""
_ROOMS = {
    "calendar": "entries_room",
    "noted": "noted_room",
    "soon": "soon_room",
    "at_end": "end_room",
    "messages": "messages_room",
    "works": "works_room",
    "jobs": "jobs_room",
    "comings": "comings_room",
}


class State:
    """Calendar, network and cores of one simulation.

    Parameters
    ----------
    ports, paths
        The network; each path is a connection.
    hosts
        How many hosts the paths name.
    transport
        What messages between hosts cost, and how they take turns.
    cores, slowdown
        The cores that all share, none if there are none, and of each task on them the share by which its work takes longer for
        each other core that is busy. The hosts have a task each after those.
    weight
        Of each path, a multiple of 2**-24; left out: 1.
    leaves_out
        Whether ports that can never be full are left out of the sharing.
    observed
        Whether it is noted what let everything happen.
    departs
        Whether it may be asked what follows when a message has left.
    spare
        Messages that what happens at once may begin, and other things that may follow from it.
    changes
        What others take from ports, where that changes.
    """

    def __init__(
        self,
        ports: Ports,
        paths: Paths,
        hosts: int,
        transport: Transport,
        *,
        cores: Cores | None = None,
        slowdown: Floats | None = None,
        weight: Floats | None = None,
        leaves_out: bool = True,
        departs: bool = True,
        spare: int = 64,
        observed: bool = False,
        changes: Changes | None = None,
    ) -> None:
        self.tables: dict[str, NDArray[Any]] = {}
        self._kept: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._kept_tables: dict[str, NDArray[Any]] = {}
        self._ports = ports
        self._state = np.zeros(1, layout.STATE)
        self.address = address_of(self._state)
        self.s: Record = self._state.view(np.recarray)[0]
        s = self.s
        s.spare, s.batch = spare + 8, 1
        s.observed = observed
        s.departs = departs or transport.at_a_time is not None
        s.cause = -1
        s.noted_free = s.messages_free = s.works_free = s.jobs_free = s.comings_free = -1
        s.ending = -1
        s.patience = _PATIENCE
        weights = np.broadcast_to(1.0, len(paths)) if weight is None else weight
        sender: Integers = np.broadcast_to(np.int32(-1), len(paths))
        receiver = sender
        one_by_one = transport.at_a_time is not None or transport.weight_sigma is not None  # as nodes' links are shared
        if one_by_one and paths.sender is not None and paths.receiver is not None:
            sender, receiver = paths.sender, paths.receiver
        changing = np.zeros(0, dtype=np.int64) if changes is None else changes.port
        shared = shared_crossings(ports, paths, weights, changing) if leaves_out else np.ones(len(paths.port), dtype=np.bool_)
        self._make_calendar()
        self._make_ports(ports, paths, shared)
        self._make_others(ports, changes)
        self._make_connections(paths, sender, weights, shared, drawn=transport.weight_sigma is not None)
        give_back(len(paths))  # what was freed meanwhile is as much again
        self._make_hosts(hosts, paths)
        self._make_nodes(sender, receiver, transport)
        self.take_host_costs(transport)
        self._make_cores(cores, np.zeros(0) if slowdown is None else slowdown, hosts)
        alarms = int(s.ports_n) + (len(self.tables["tasks"]) if cores is not None else 0)
        table = np.zeros(alarms, layout.ALARM)
        table["at"] = -1
        self.add("alarms", table)
        self.add("heaped_alarms", aligned(alarms, layout.HEAPED_ALARM))
        s.alarm_first = s.alarm_last = -1

    # -- making ----------------------------------------------------------------------

    def add(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        """Keep a table under its name, and let machine code know where it is."""
        if not len(array):
            array = np.zeros(1, array.dtype)
        self.tables[name] = array
        self._state[name] = address_of(array)
        return array

    def _make_calendar(self) -> None:
        for name, dtype in (
            ("calendar", layout.ENTRY),
            ("noted", layout.ITEM),
            ("soon", layout.ITEM),
            ("at_end", layout.ITEM),
            ("messages", layout.MESSAGE),
            ("works", layout.WORK),
            ("jobs", layout.JOB),
            ("comings", layout.COMING),
        ):
            self.add(name, _room(name, _FIRST_ROOM, dtype))
            self._state[_ROOMS[name]] = _FIRST_ROOM
            if name in _CONTEXTS:
                self.add(_CONTEXTS[name], aligned(_FIRST_ROOM if self.s.observed else 0, layout.CONTEXT))
        self.add("departures", aligned(_FIRST_ROOM if self.s.departs else 0, layout.DEPARTURE))

    def _make_ports(self, ports: Ports, paths: Paths, shared: NDArray[np.bool_]) -> None:
        users = np.bincount(paths.port[shared], minlength=len(ports.capacity))
        self._shared = np.flatnonzero(users)  # numbers of the ports that are shared
        number = np.full(len(ports.capacity), -1, dtype=np.int32)
        number[self._shared] = np.arange(len(self._shared))
        count = len(self._shared)
        table = aligned(count, layout.PORT)
        for name in ("capacity", "ceiling", "incast_loss", "incast_flows"):
            table[name] = getattr(ports, name)[self._shared]
        table["floor"] = np.inf
        for name in ("queue", "queue_last", "active", "active_last", "foreign", "foreign_last", "coupled", "coupled_last"):
            table[name] = -1
        table["epoch"] = 1
        several = np.bincount(np.repeat(np.arange(len(paths)), np.diff(paths.first))[shared], minlength=len(paths)) > 1
        table["alone"] = 1
        mixed = number[paths.port[shared & np.repeat(several, np.diff(paths.first))]]
        table["alone"][mixed] = 0
        rooms = users[self._shared] + users[self._shared] // 2 + 4  # what is stale is dropped when a heap is full
        begins = np.concatenate(([0], np.cumsum(rooms)))
        heaps = self.add("heaps", aligned(int(begins[-1]), layout.HEAPED))
        table["heap_room"] = rooms
        table["heap"] = int(heaps.ctypes.data) + begins[:-1] * layout.HEAPED.itemsize
        self._heap_begins = begins
        self.add("ports", table)
        self.s.ports_n = count
        self.add("carried", aligned(len(ports.capacity), layout.REAL))
        for name in ("dirty", "work", "touched", "owners", "component", "frontier"):
            self.add(name, aligned(count, layout.NUMBER))

    def _make_others(self, ports: Ports, changes: Changes | None) -> None:
        """Background traffic on the ports."""
        s, others = self.s, ports.others[self._shared]
        s.accompanied = others.any() or changes is not None
        self.add("beside", others.astype(np.float64).view(layout.REAL) if s.accompanied else np.zeros(0, layout.REAL))
        if s.accompanied:
            table = self.tables["ports"][: len(others)]
            table["load"] = table["owned"] = others
        changing, trace = np.zeros(0, layout.CHANGING), np.zeros(0, layout.CHANGE)
        if changes is not None:
            places = np.searchsorted(self._shared, changes.port)
            kept = places[np.isin(changes.port, self._shared)]
            changing, trace = np.zeros(len(kept), layout.CHANGING), np.zeros(len(changes.at_s), layout.CHANGE)
            self.tables["ports"]["alone"][kept] = 0  # who is active there may be shared out anew at any time
            changing["port"], changing["whole"] = kept, ports.whole[self._shared[kept]]
            for name in ("at_s", "left", "beside"):
                trace[name] = getattr(changes, name)
            s.changing_n, s.changes_n, s.change, s.repeat_s = len(kept), len(trace), 1, changes.repeat_s or 0.0
        self.add("changing", changing)
        self.add("changes", trace)

    def _make_connections(self, paths: Paths, sender: Integers, weights: Floats, shared: NDArray[np.bool_], *, drawn: bool) -> None:
        count = len(paths)
        table = aligned(count, layout.CONNECTION)
        path = np.repeat(np.arange(count), np.diff(paths.first))
        kept = np.bincount(path[shared], minlength=count)
        first = np.concatenate(([0], np.cumsum(kept)))
        pairs = np.where(kept > 1, kept * kept, 0)
        first_pair = np.concatenate(([0], np.cumsum(pairs)))
        columns = {
            "weight": weights,
            "latency_s": paths.latency_s,
            "shared": kept,
            "crossed": np.diff(paths.first),
            "first": _remainder(first[:-1], kept),
            "crosses": _remainder(paths.first[:-1], np.diff(paths.first)),
            "hosted": paths.source >= 0,
            "linked": sender >= 0,
            "asked_for": paths.asked_for,
        }
        examples, table["sort"] = (np.arange(count), np.arange(count)) if drawn else _sorts(*columns.values())
        sorts = np.zeros(len(examples), layout.SORT)
        for name, column in columns.items():
            sorts[name] = column[examples]
        self.add("sorts", sorts)
        table["front"] = table["last"] = table["owner"] = -1
        table["before"] = AWAY
        self.add("connections", table)
        self.add("first_pairs", first_pair[: -1 if first_pair[-1] else 0].astype(np.int32).view(layout.NUMBER))
        incidences = aligned(int(first[-1]), layout.INCIDENCE)
        number = np.full(len(self._ports.capacity), -1, dtype=np.int32)
        number[self._shared] = np.arange(len(self._shared))
        incidences["port"] = number[paths.port[shared]]
        incidences["connection"] = path[shared]
        self.add("incidences", incidences)
        links = aligned(len(incidences) if (kept > 1).any() or self.s.changes_n else 0, layout.LINK)
        links["foreign_before"] = AWAY
        self.add("links", links)
        self.add("pairs", aligned(int(first_pair[-1]), layout.PAIR))
        self.add("crossed", numbers(paths.port).view(layout.NUMBER))
        self.add("fresh", aligned(count, layout.NUMBER))
        self.add("reached", aligned(count, layout.NUMBER))
        self.add("levels", aligned(count, layout.LEVEL))
        self.add("candidates", aligned(max(count, int(self.s.ports_n)), layout.HEAPED))

    def _make_hosts(self, hosts: int, paths: Paths) -> None:
        self.s.hosts_n = hosts
        table = np.zeros(hosts, layout.HOST)
        table["front"] = table["last"] = -1
        self.add("hosts", table)
        ends = np.zeros(len(paths) if hosts else 0, layout.ENDS)
        if hosts:
            ends["source"], ends["target"] = paths.source, paths.target
        self.add("ends", ends)

    def _make_nodes(self, sender: Integers, receiver: Integers, transport: Transport) -> None:
        s = self.s
        s.nodes_n = nodes = 1 + max(int(sender.max(initial=-1)), int(receiver.max(initial=-1)))
        self.add("waiting_messages", aligned(_FIRST_ROOM if s.hosts_n or nodes else 0, layout.WAITING))
        s.turned = transport.at_a_time is not None
        s.weighted = transport.weight_sigma is not None
        s.by_transfer = transport.weights_of == "transfer"
        s.queued = transport.queue_s is not None
        table = np.zeros(nodes, layout.NODE)
        for name in ("targets", "targets_last", "sources", "sources_last"):
            table[name] = -1
        self.add("nodes", table)
        sides = np.zeros(len(sender) if nodes else 0, layout.SIDES)
        if nodes:
            sides["sender"], sides["receiver"] = sender, receiver
        self.add("sides", sides)
        self._make_turns(nodes, sender, receiver, transport.at_a_time)
        self.add("weights", np.zeros(0, layout.REAL))
        if transport.queue_s is None or transport.buffer_s is None:
            self.add("edges", np.zeros(0, layout.EDGE))
            self.add("edge_of", np.zeros(0, layout.NUMBER))
            return
        s.own_s, s.most_s, s.requests = transport.queue_s, transport.buffer_s, transport.requests_per_pull
        pairs, edge_of = np.unique(sender.astype(np.int64) * (nodes + 1) + receiver, return_inverse=True)
        edges = np.zeros(len(pairs), layout.EDGE)
        edges["sender"], edges["receiver"] = pairs // (nodes + 1), pairs % (nodes + 1)
        self.add("edges", edges)
        self.add("edge_of", edge_of.astype(np.int32).view(layout.NUMBER))

    def take_host_costs(self, transport: Transport) -> None:
        """Set host costs of messages from now on."""
        self.s.message_s, self.s.copy_per_byte_s = transport.cpu_per_message_s, transport.copy_per_byte_s

    def _make_turns(self, nodes: int, sender: Integers, receiver: Integers, at_a_time: int | None) -> None:
        count = 2 * nodes if at_a_time is not None else 0
        turns = np.zeros(count, layout.TURNS)
        linked = sender >= 0
        users = np.zeros(count, dtype=np.int64)
        if count:
            users[0::2] = np.bincount(sender[linked], minlength=nodes)
            users[1::2] = np.bincount(receiver[linked], minlength=nodes)
            turns["free"] = at_a_time
        begins = np.concatenate(([0], np.cumsum(users)))
        parked = self.add("parked", np.empty(int(begins[-1]) + 1, layout.PARKED))
        turns["parked"] = int(parked.ctypes.data) + begins[:-1] * layout.PARKED.itemsize
        self.add("turns", turns)
        most = int(linked.sum()) if count else 0
        self.add("came", np.empty(most, layout.PARKED))
        self.add("due", np.empty(most + count, layout.PARKED))
        self.add("gave_back", np.empty(count, layout.NUMBER))

    def _make_cores(self, cores: Cores | None, slowdown: Floats, hosts: int) -> None:
        s = self.s
        s.running = s.running_last = s.waiting = s.waiting_last = -1
        tasks = np.zeros(0, layout.TASK)
        if cores is not None:
            s.cores, s.number, s.slice_s = 1, cores.number, cores.slice_s
            s.host_tasks = len(slowdown)
            tasks = np.zeros(len(slowdown) + hosts, layout.TASK)
            tasks["slowdown"][: len(slowdown)] = slowdown
            tasks["stretch"] = 1.0
            tasks["works"] = tasks["works_last"] = -1
        self.add("tasks", tasks)

    # -- beginning again -------------------------------------------------------------

    def keep(self) -> None:
        """Note all as it is, to begin there again."""
        self._kept_tables = dict(self.tables)
        changing = [self._state, *(table for name, table in self.tables.items() if name not in _NOT_KEPT)]
        # as bytes: numpy copies records field by field
        self._kept = [(table := each.view(np.uint8), table.copy()) for each in changing]

    def reset(self) -> None:
        """All as it was when it was kept."""
        self.tables = dict(self._kept_tables)
        for table, content in self._kept:
            table[...] = content

    # -- growing ---------------------------------------------------------------------

    def grow(self, more: int = 0) -> None:
        """Make room for whatever may happen next, and for more entries."""
        s = self.s
        most = int(s.messages_n + s.spare)
        for name, need in (
            ("calendar", int(s.entries) + most + more),
            ("noted", int(s.entries) + most + more),
            ("soon", int(s.soon_n + s.soon_spare) + 2 * most + more),
            ("at_end", int(s.end_n + s.spare)),
            ("messages", most),
            ("works", int(s.works_n + s.spare)),
            ("jobs", int(s.jobs_n + s.spare)),
            ("comings", int(s.comings_n + s.spare)),
        ):
            room = int(self._state[_ROOMS[name]][0])
            while room < need:
                room *= 2
            old = self.tables[name]
            if room == len(old):
                continue
            first = int(self._state[_RINGS[name]][0]) & (len(old) - 1) if name in _RINGS else 0
            for each in self._beside(name):
                before = self.tables[each]
                new = _room(each, room, before.dtype)
                new[: len(old)] = np.roll(before, -first) if first else before
                self.add(each, new)
            if name in _RINGS:
                self._state[_RINGS[name]] = 0
            self._state[_ROOMS[name]] = room

    def _beside(self, name: str) -> list[str]:
        """The table, and those that have as many records as it."""
        names = [name]
        if name in _CONTEXTS and self.s.observed:
            names.append(_CONTEXTS[name])
        if name == "messages":
            names += ["departures"] * bool(self.s.departs) + ["waiting_messages"] * bool(self.s.hosts_n + self.s.nodes_n)
        return names

    def add_weights(self, weights: Floats) -> None:
        """Weights of the messages that come to the front after those that have some."""
        s = self.s
        left = self.tables["weights"][int(s.weights_next) : int(s.weights_n)]
        self.add("weights", np.concatenate((left, weights.view(layout.REAL))))
        s.weights_next, s.weights_n = 0, len(left) + len(weights)

    @property
    def weights_needed(self) -> int:
        """How many weights it lacks for whatever may happen next."""
        s = self.s
        return max(int(s.messages_n + s.spare) - int(s.weights_n - s.weights_next), 0)

    def drop(self, *names: str) -> None:
        """Give back tables that nobody reads any more."""
        for name in self.tables.keys() & set(names):
            self.add(name, np.zeros(0, self.tables[name].dtype))

    # -- reading ---------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of all tables."""
        return sum(array.nbytes for array in self.tables.values())

    @property
    def carried_bytes(self) -> Floats:
        """Bytes that each port has carried, counted when a message ends."""
        return self.tables["carried"]["x"].copy()

    def busy_until(self, now: float) -> Floats:
        """Seconds in which each port was in use up to now; 0 of those that are left out of the sharing."""
        table = self.tables["ports"][: int(self.s.ports_n)]
        busy_s = np.zeros(len(self._ports.capacity))
        busy_s[self._shared] = table["busy_s"] + np.where(table["active_n"] > 0, now - table["busy_since"], 0.0)
        return busy_s

    def in_use_s(self, now: float) -> Floats:
        """Of each port, seconds of the whole capacity that the bytes carried stand for; where incast eats into it, seconds in use."""
        used: Floats = self.tables["carried"]["x"] / self._ports.whole
        lossy = np.flatnonzero(self._ports.incast_loss > 0)
        if len(lossy):
            used[lossy] = self.busy_until(now)[lossy]
        return used

    def hosts_in_use_s(self, now: float) -> Floats:
        """Of each host, seconds in which it worked on messages."""
        s = self.s
        if s.cores:
            return self.tasks_in_use_s(now)[int(s.host_tasks) :][: int(s.hosts_n)]
        table = self.tables["hosts"][: int(s.hosts_n)]
        used: Floats = table["worked_s"] - np.maximum(table["free_s"] - now, 0.0)
        return used

    def tasks_in_use_s(self, now: float) -> Floats:
        """Of each task, seconds up to now in which it had something to do."""
        table = self.tables["tasks"]
        used: Floats = table["busy_s"] + np.where(table["works"] >= 0, now - table["begun_s"], 0.0)
        return used

    def cores_in_use_s(self, now: float) -> float:
        """Seconds for which a core was busy up to now, in the mean over all of them."""
        s, tasks = self.s, self.tables["tasks"]
        running_s, task = 0.0, int(s.running)
        while task >= 0:
            running_s += now - float(tasks["began_s"][task])
            task = int(tasks["after"][task])
        return (float(s.busy_s) + running_s) / float(s.number)


def _room(name: str, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Room for records; of the calendar, whose entries but the first are four in a line of the cache."""
    return aligned(count + 3, dtype)[3:] if name == "calendar" else aligned(count, dtype)


def aligned(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A table of zeros that begins with a line of the cache; a large one takes no memory where nothing is written, and gives it back.

    Raises
    ------
    MemoryError
        The system has not so much.
    """
    size = count * dtype.itemsize
    if size >= _LARGE:
        return np.frombuffer(_mapped(size), dtype=dtype)
    room = np.zeros(size + _LINE, dtype=np.uint8)
    begins = -room.ctypes.data % _LINE
    return room[begins : begins + size].view(dtype)


def _mapped(size: int) -> mmap.mmap:
    """So many bytes of the system's own, not of what the C library keeps, where what others have left is cleared by writing to it."""
    flags = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}  # not on Windows
    try:
        pages = mmap.mmap(-1, size, **flags)
    except OSError as error:
        raise MemoryError(str(error)) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # as numpy asks for its own arrays; a system may have none
            pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def _remainder(first: NDArray[Any], count: NDArray[Any]) -> NDArray[np.int64]:
    """Return what is left of where each connection's begin if all before it had as many as it has."""
    return first - np.arange(len(count)) * count


def _sorts(*columns: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of columns, the same ones once: where each first stands, and of every row which it is."""
    of_row = np.zeros(len(columns[0]), dtype=np.int64)
    first = of_row[:1]
    for column in columns:
        if len(column) and (column != column[0]).any():
            values, which = np.unique(column, return_inverse=True)
            _, first, of_row = np.unique(of_row * len(values) + which, return_index=True, return_inverse=True)
    return first, of_row
