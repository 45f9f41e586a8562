"""A program as tables for a reader, with equal items counted instead of listed.

Ports are grouped by kind and capacity, paths by the kinds of ports that they cross, ranks by their work and kinds of paths; of a long
routine, operations of one kind.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import ClassVar, NamedTuple

import numpy as np

from simulator.base.text import Short, counted, format_bytes, format_number, format_rate, format_seconds, written
from simulator.program.port_names import PortKind
from simulator.program.program import (
    Asynchronous,
    Changes,
    Feed,
    Floats,
    Integers,
    Operation,
    Program,
    Routine,
    Synchronous,
    exchanges_by_group,
)
from simulator.spec.transport import Transport

NONE = -1
"""In a column of numbers: there is none."""


class Reduced(NamedTuple):
    """How a collective is carried out: algorithm, protocol ("none": that of the links), and seconds where all ranks enter at once."""

    algorithm: str
    protocol: str
    alone_s: float

    @property
    def name(self) -> str:
        """Such as "ring (simple)"."""
        return self.algorithm if self.protocol == "none" else f"{self.algorithm} ({self.protocol})"


@dataclass(frozen=True, repr=False)
class Printed(Short):
    """A program with the data needed to print it.

    Attributes
    ----------
    scenario
        Content hash of what it is the program of.
    program
        What happens.
    forward_s, backward_s, apply_s
        Mean seconds of the passes and of the update on a device of speed 1, nothing drawn.
    speed
        Of each rank's device, shape (ranks,).
    reduced
        By size in bytes, how a collective is carried out.
    """

    see: ClassVar[str] = "paceline simulate SCENARIO.toml --program prints it; .program has ranks, links and operations"

    scenario: str
    program: Program
    forward_s: float
    backward_s: float
    apply_s: float
    speed: Floats
    reduced: Mapping[float, Reduced]

    def _in_short(self) -> Iterator[str]:
        yield counted(len(self.program.ranks), "rank")
        yield f"forward {format_seconds(self.forward_s)}, backward {format_seconds(self.backward_s)}"

    @property
    def input_s(self) -> float:
        """Mean seconds in which the slowest pipeline prepares a batch that shares nothing; 0: there is none, or a client does it."""
        feed = self.program.feed
        return float(feed.mean_s.max()) if feed is not None else 0.0

    def compute_s(self, operation: Operation) -> float:
        """Mean seconds of a compute on a device of speed 1."""
        return operation.forward * self.forward_s + operation.backward * self.backward_s + operation.apply * self.apply_s


def device_ports(program: Program) -> frozenset[int]:
    """Ports that represent a device: those of the seats' paths."""
    seats = np.concatenate([program.ranks.seat, program.servers.seat])
    return frozenset(program.paths.port[program.paths.first[seats[seats != NONE]]].tolist())


def time_of(value_s: float) -> str:
    """Seconds for reading."""
    return format_seconds(value_s) if value_s else "no time"


_LISTED = 64
"""Operations of a routine that are listed one by one."""
_FEW = 4
_ROUNDED = 1e-9


class Listing(NamedTuple):
    """One table: what it is about, its columns, and rows of as many texts."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]


def tables_of(printed: Printed) -> Iterator[Listing]:
    """Tables that say, together, all that happens: ports, paths, ranks, groups and each routine."""
    program = printed.program
    ports, listing = _ports(program)
    if listing.rows:
        yield listing
    paths, listing = _paths(program, ports)
    if listing.rows:
        yield listing
    yield _ranks(printed, paths)
    if any(operation.kind == "collective" for routine in program.routines for operation in routine.operations):
        yield _groups(program)
    for number, routine in enumerate(program.routines):
        yield _routine(printed, number, routine)
    if program.exchanges:
        yield _messages(program, paths)


def _groups(program: Program) -> Listing:
    """The groups; where there are several partitions, of which each is."""
    rows = [(f"{number}", f"{len(group):,}", _in_order(group)) for number, group in enumerate(program.groups)]
    if max(program.partition, default=0) == 0:
        return Listing("Groups of ranks", ("group", "ranks", "which"), rows)
    told = [(f"{of}", *row) for of, row in zip(program.partition, rows, strict=True)]
    return Listing("Groups of ranks; each rank is in one of every partition", ("partition", "group", "ranks", "which"), told)


def _ports(program: Program) -> tuple[Integers, Listing]:
    """The kind of each port, and the kinds."""
    ports, devices = program.ports, device_ports(program)
    patterns = [name.pattern for name in ports.names]
    which, kinds = _kinds(patterns, ports.capacity, ports.ceiling, ports.incast_loss, ports.incast_flows, ports.whole, ports.others)
    rows = []
    for kind, alike in enumerate(kinds):
        port, name, limits = alike[0], ports.names[alike[0]], []
        if math.isfinite(ports.ceiling[port]):
            limits.append(f"at most {format_rate(ports.ceiling[port])} a connection")
        if loss := ports.incast_loss[port]:
            limits.append(f"above {ports.incast_flows[port]:,} flows, divided by 1 + {written(loss, 'setting')} per further flow")
        if ports.capacity[port] < ports.whole[port]:
            limits.append(f"of {format_rate(ports.whole[port])}; others take the rest")
        if flows := int(ports.others[port]):
            limits.append(f"shared with {flows:,} background flow{'s' if flows > 1 else ''}")
        capacity = "1 s of work per second" if port in devices else format_rate(ports.capacity[port])
        if name.kind in (PortKind.HOST_CORES, PortKind.SHARED_LINK):
            capacity = f"{ports.capacity[port]:g} s of work per second"
        rows.append((f"{kind}", str(name) if len(alike) == 1 else patterns[port], f"{len(alike):,}", capacity, "; ".join(limits)))
    return which, Listing("Ports: shared resources", ("kind", "port", "count", "capacity", "limits"), rows)


def _paths(program: Program, ports: Integers) -> tuple[Integers, Listing]:
    """The kind of each path, and the kinds."""
    paths = program.paths
    crossed = [tuple(ports[paths.port[first:last]].tolist()) for first, last in pairwise(paths.first.tolist())]
    which, kinds = _kinds(crossed, paths.latency_s, paths.source != NONE, paths.target != NONE, paths.asked_for)
    rows = []
    for kind, alike in enumerate(kinds):
        path = alike[0]
        ends = [text for text, end in (("sender", paths.source[path]), ("receiver", paths.target[path])) if end != NONE]
        beside = [f"hosts of {' and '.join(ends)}"] * bool(ends) + ["answers to requests"] * bool(paths.asked_for[path])
        crosses = ", ".join(map(str, crossed[path])) or "nothing"
        rows.append((f"{kind}", f"{len(alike):,}", crosses, time_of(paths.latency_s[path]), "; ".join(beside)))
    return which, Listing("Paths: ports that messages cross", ("kind", "count", "kinds of ports", "latency", "besides"), rows)


def _messages(program: Program, paths: Integers) -> Listing:
    """Of each group and bucket the kinds of lanes."""
    rows = []
    several = len(program.groups) > 1
    for bucket, exchange in ((bucket, each) for of_group in exchanges_by_group(program) for bucket, each in enumerate(of_group)):
        tables, awaits, path = exchange.tables, np.diff(exchange.tables.awaits.start), paths[exchange.path]
        for alike in _kinds(tables.messages, exchange.size_bytes, path, awaits, tables.meeting)[1]:
            lane, others = alike[0], awaits[alike[0]]
            waits = ["the rank's data"]
            waits += [f"messages of {others:,} other lane{'s' if others > 1 else ''}"] if others else []
            waits += ["the receiving rank"] if tables.meeting[lane] else []
            cells = f"{len(alike):,}", f"{tables.messages[lane]:,}", format_bytes(exchange.size_bytes[lane]), f"{path[lane]}"
            rows.append((*[f"{exchange.group}"] * several, f"{bucket}", *cells, ", ".join(waits)))
    columns = *["group"] * several, "bucket", "lanes", "messages of each", "size", "kind of path", "a message waits for"
    return Listing("Single messages of collectives", columns, rows)


def _ranks(printed: Printed, paths: Integers) -> Listing:
    table = printed.program.ranks
    users = np.bincount(table.device)[table.device]
    slots = np.where(table.path == NONE, NONE, paths[table.path] if len(paths) else table.path)
    rows = []
    for ranks in _kinds(table.routine, users, table.seat != NONE, printed.speed, map(tuple, slots.tolist()))[1]:
        rank = ranks[0]
        device = "its own" if users[rank] == 1 else f"of {users[rank]:,} ranks"
        if table.seat[rank] != NONE and users[rank] == 1:
            device = "shared with a server"
        copies, speed = len(np.unique(table.copy[ranks])), written(printed.speed[rank], "setting")
        cells = f"{len(ranks):,}", _numbers(ranks), f"{copies:,}", device, speed, f"{table.routine[rank]}"
        rows.append((*cells, _slots(slots[rank].tolist())))
    columns = "count", "ranks", "copies", "device", "speed", "routine", "kind of path of each slot"
    return Listing("Ranks: processes that make steps", columns, rows)


def _slots(kinds: Sequence[int]) -> str:
    """``0 to 3: 0; 4 to 7: 1``."""
    runs = [(kind, [slot for slot, _ in alike]) for kind, alike in groupby(enumerate(kinds), key=lambda each: each[1]) if kind != NONE]
    return "; ".join(f"{slots[0]}: {kind}" if len(slots) == 1 else f"{slots[0]} to {slots[-1]}: {kind}" for kind, slots in runs)


# -- routines -----------------------------------------------------------------------------


def _routine(printed: Printed, number: int, routine: Routine) -> Listing:
    """Each operation of a short routine; of a long one equal ones together, by kind and name, with their totals."""
    operations, shuffled = routine.operations, routine.shuffled
    title = f"Routine {number}: {len(operations):,} operations per step"
    if shuffled[1]:
        title += f"; {shuffled[0]:,} to {shuffled[1] - 1:,} begin in a random order in each step"
    if len(operations) <= _LISTED:
        rows = [
            (f"{number}", operation.kind, operation.title, _distinct(operation.after), _what(printed, [operation]))
            for number, operation in enumerate(operations)
        ]
        return Listing(title, ("number", "kind", "name", "after", "what"), rows)
    patterns = [operation.pattern for operation in operations]
    kinds = _kinds([(each.pattern, each.kind, each.every, each.partition, each.does) for each in operations])[1]
    told = []
    for numbers in kinds:
        alike = [operations[number] for number in numbers.tolist()]
        names = list(dict.fromkeys(patterns[number] for operation in alike for number in operation.after))
        after = ", ".join(names[:_FEW]) + (f", ... ({len(names)})" if len(names) > _FEW else "")
        which, name = (f"{numbers[0]}", alike[0].title) if len(alike) == 1 else (_numbers(numbers), alike[0].pattern)
        told.append((which, f"{len(alike):,}", alike[0].kind, name, after, _what(printed, alike)))
    return Listing(f"{title}; equal ones together", ("numbers", "count", "kind", "name", "after", "what"), told)


def _what(printed: Printed, operations: Sequence[Operation]) -> str:
    """Return what an operation does, or several of one kind come to."""
    first, alone = operations[0], len(operations) == 1
    match first.kind:
        case "gate":
            return _gate(printed, first)
        case "compute":
            parts = {part: math.fsum(getattr(each, part) for each in operations) for part in ("forward", "backward", "apply")}
            shares = [f"{_share(share)} of {part}" for part, share in parts.items() if share]
            seconds = printed.compute_s(replace(first, forward=parts["forward"], backward=parts["backward"], apply=parts["apply"]))
            return f"{' + '.join(shares) or 'nothing'}: {time_of(seconds)}{', joins the next' if alone and first.joins else ''}"
        case "send" if alone:
            besides = "; brings the batch" if first.feeds else f"; channel {first.channel}" if first.channel >= 0 else ""
            tensors = f" ({first.tensors:g} tensors)" if first.tensors != 1 else ""
            ends = f"{first.source} to {first.target}".replace("{rank}", "r").replace("{peer}", "peer")
            return f"{format_bytes(first.size_bytes)}{tensors}, slot {first.slot}: {ends}{besides}"
        case "send":
            return f"{_sizes(operations)}; slots {_distinct(each.slot for each in operations)}"
        case "receive":
            channels = _distinct(each.channel for each in operations)
            return f"the next message of channel {first.channel}" if alone else f"channels {channels}"
        case "serve":
            if alone:
                return f"server {first.server}, tensor {first.tensor}: {time_of(first.cost_s)}"
            total_s = time_of(math.fsum(each.cost_s for each in operations))
            return f"{total_s} in total; servers {_distinct(each.server for each in operations)}"
        case "collective":
            hows = [how for each in operations if (how := printed.reduced.get(each.size_bytes)) is not None]
            names, alone_s = ", ".join(dict.fromkeys(how.name for how in hows)), math.fsum(how.alone_s for how in hows)
            by = f" by {names}, {time_of(alone_s)} alone" if hows else ""
            if not alone:
                return f"{_sizes(operations)}{by}"
            every = f", every {first.every:,} steps" if first.every > 1 else ""
            ready = f", ready after {format_number(first.ready)} of the backward pass" if first.ready < 1 else ""
            several = max(printed.program.partition, default=0) > 0
            where = f"{first.does} in the group of partition {first.partition}, " if several else ""
            return f"{where}bucket {first.bucket}: {format_bytes(first.size_bytes)}{by}{ready}{every}"


def _gate(printed: Printed, operation: Operation) -> str:
    feed = printed.program.feed
    if operation.name != "input" or not printed.input_s or feed is None:
        return _GATES.get(operation.name, "")
    beside = "during the previous step" if feed.prefetch else "on demand"
    if feed.prefetch > 1:
        beside = f"during earlier steps, up to {feed.prefetch:,} batches ahead"
    return f"the batch is ready, prepared in {time_of(printed.input_s)}{'' if feed.alone else ' without contention'} {beside}"


_GATES = {
    "turn": "the step is handed out and begins to read",
    "prepare": "the client has the batch",
    "input": "the batch is ready",
    "update": "the rank may end its step",
}


def _share(share: float) -> str:
    return "all" if abs(share - 1) < _ROUNDED else format_number(share)


def _sizes(operations: Sequence[Operation]) -> str:
    sizes = [operation.size_bytes for operation in operations]
    least, most, total = format_bytes(min(sizes)), format_bytes(max(sizes)), format_bytes(math.fsum(sizes))
    return f"{total} in total, {least}{f' to {most}' if most != least else ''} each"


# -- what is alike ------------------------------------------------------------------------


def _kinds(*columns: Iterable[Hashable]) -> tuple[Integers, list[Integers]]:
    """Groups of equal rows of some columns.

    Returns
    -------
    which
        The kind of each row, numbered in the order in which they first come; shape (rows,).
    kinds
        The rows of each kind.
    """
    rows_of: dict[Hashable, list[int]] = {}
    for number, row in enumerate(zip(*columns, strict=True)):
        rows_of.setdefault(row, []).append(number)
    kinds = [np.array(rows) for rows in rows_of.values()]
    which = np.zeros(sum(map(len, kinds)), dtype=np.int64)
    for kind, rows in enumerate(kinds):
        which[rows] = kind
    return which, kinds


def _distinct(values: Iterable[int]) -> str:
    return _numbers(np.unique(np.fromiter(values, dtype=np.int64)))


def _numbers(values: Integers) -> str:
    """Whole numbers, ascending, for reading: a range, or the first of them."""
    if len(values) > 1 and values[-1] - values[0] == len(values) - 1:
        return f"{values[0]:,} to {values[-1]:,}"
    return _few(values)


def _few(values: Integers) -> str:
    return ", ".join(f"{value:,}" for value in values[:_FEW]) + (f", ... ({len(values):,})" if len(values) > _FEW else "")


def _in_order(ranks: Integers) -> str:
    """The ranks of a group, in its order."""
    return _numbers(ranks) if np.all(np.diff(ranks) > 0) else _few(ranks)


# -- rules --------------------------------------------------------------------------------


def sentences_of(program: Program) -> Iterator[str]:
    """Yield what is no graph, one sentence a rule: who gets a step, what becomes of gradients, how messages and cores are shared."""
    rules, ranks = program.rules, len(program.ranks)
    yield (
        "An operation begins when the operations it depends on have ended. A rank's computes begin in order, one at a time; a compute "
        "that joins the next runs in one piece with it if that one can begin too."
    )
    if rules.steps_shared is not None:
        yield f"{rules.steps_shared:,} steps of the whole job are handed out to free ranks."
    if rules.steps_each is not None:
        more = f", and up to {rules.sync_every:,} more until the slowest has finished" if rules.sync_every > 1 else ""
        yield f"Every rank makes {rules.steps_each:,} steps{more}."
    if rules.steps_shared is None and rules.steps_each is None:
        yield "Steps are handed out on request until the measurement ends."
    elif rules.closes:
        yield "The measurement ends when a rank has no step left."
    if rules.bound is not None:
        yield f"A rank waits when it is {rules.bound:,} steps ahead of the slowest."
    if (dispatcher := rules.dispatcher) is not None:
        yield (
            f"One process hands out steps, one at a time: {time_of(dispatcher.dispatch_s)} for each, and {time_of(dispatcher.latency_s)} "
            "between the end of a step and the start of the next."
        )
    if rules.client is not None:
        yield f"One process prepares every rank's batch, one at a time: {time_of(rules.client.input_s)} for each."
    if program.feed is not None:
        yield from _feed(program.feed)
    if isinstance(rules.updates, Asynchronous):
        parts = rules.updates.parts
        each = f"{min(parts):,}" if min(parts) == max(parts) else f"{min(parts):,} to {max(parts):,}"
        yield (
            f"Each server applies gradients one at a time ({each} per step on each of {counted(len(parts), 'server')}); a step counts as "
            "an update when all its gradients are applied."
        )
    if isinstance(rules.updates, Synchronous):
        yield from _synchronous(rules.updates, ranks)
    if rules.sync_every > 1:
        yield f"All ranks average their variables every {rules.sync_every:,} steps and continue separately in between."
    yield from _peers(program)
    yield from _reduction(program)
    if program.cores is not None:
        slices = f", in slices of {time_of(program.cores.slice_s)}" if program.cores.slice_s else ""
        yield f"All nodes are processes of one machine and share its {program.cores.number:g} cores{slices}."
    yield from _on_devices(program)
    yield from _transport(program.transport)
    if program.changes is not None:
        yield _changing(program.changes)


def _changing(changes: Changes) -> str:
    again = f"; it repeats after {time_of(changes.repeat_s)}" if changes.repeat_s is not None else "; then it stays constant"
    least, most = format_number(float(changes.left.min())), format_number(float(changes.left.max()))
    flows = f" and {int(changes.beside.min())} to {int(changes.beside.max())} of their flows share the rest" if changes.beside.any() else ""
    return (
        f"Background traffic on {len(changes.port):,} ports changes {len(changes.at_s) - 1:,} times in {time_of(changes.at_s[-1])}: it "
        f"leaves a share of {least} to {most}{flows}{again}."
    )


def _feed(feed: Feed) -> Iterator[str]:
    """Whom pipelines feed, how far ahead, and what they share."""
    ranks = len(feed.of_rank)
    alone, several = len(feed) == ranks, "" if len(feed) > 1 else "s"
    whose = "Each rank has a pipeline, which prepares" if alone else f"{len(feed):,} pipeline{'' if several else 's'} feed{several} "
    whose += "" if alone else f"{ranks:,} ranks, which get their parts of a batch together, and prepare{several}"
    ahead = f"until {feed.prefetch:,} are ready" if feed.prefetch else "on demand"
    yield f"{whose} batches in sequence, {ahead}."
    if feed.path.shape[1]:
        yield "Pipelines share ports for reads and work; a batch is ready when all of it has crossed them."
    if feed.work_s.shape[1]:
        yield f"They prepare a batch on these cores, {feed.work_s.shape[1]:,} thread{'s' if feed.work_s.shape[1] > 1 else ''} at a time."


def _peers(program: Program) -> Iterator[str]:
    """Which ranks messages between ranks go to."""
    ranks = len(program.ranks)
    for slot, peer in enumerate(program.ranks.peer.T):
        ahead = (peer - np.arange(ranks)) % ranks
        if (peer < 0).all():
            continue
        if (ahead == ahead[0]).all() and (peer >= 0).all():
            step = int(ahead[0])
            way = f"r + {step:,}" if 2 * step <= ranks else f"r - {ranks - step:,}"
            yield f"Slot {slot} leads from rank r to rank {way} in the ring of {ranks:,}."
        else:
            yield f"Slot {slot} leads from {int((peer >= 0).sum()):,} ranks to one other rank each."


def _synchronous(rule: Synchronous, ranks: int) -> Iterator[str]:
    late = "stops computing and begins the next step" if rule.cancel else "finishes its step in vain"
    dropped = f"; a rank with late gradients {late}" if rule.required < ranks else ""
    yield f"An update averages the gradients of {rule.required:,} of {ranks:,} ranks; each of these then gets a token{dropped}."
    yield f"Applying it takes {time_of(math.fsum(rule.cost_s))} for {len(rule.cost_s):,} tensors on {len(set(rule.server)):,} servers."


def _reduction(program: Program) -> Iterator[str]:
    rule = program.rules.reduction
    if rule is None:
        return
    if rule.cycle_s is not None:
        most = f", up to {format_bytes(rule.most_bytes)} at once" if math.isfinite(rule.most_bytes) else ""
        yield f"Every {time_of(rule.cycle_s)}, gradients that are ready on all ranks are fused and reduced{most}."
    elif program.rules.sync_every == 1:
        yield "Buckets are reduced one at a time, as they become ready."
    if not program.exchanges:
        yield 'All-reduces are evaluated for all ranks at once; run.detail = "messages" lists messages, paths and ports.'
    if rule.by_need:
        yield "Buckets are reduced in the order in which the next forward pass needs them; it begins when the first have arrived."
    if rule.copies is not None:
        rate = format_rate(1 / rule.copies.s_per_byte)
        yield f"Buffers are copied through host memory: {rate} per rank in each direction, {time_of(rule.copies.latency_s)} per copy."


def _on_devices(program: Program) -> Iterator[str]:
    devices = program.devices
    if devices.on_cores:
        yield "Devices compute on these cores."
    if program.servers.count and program.servers.on_cores:
        yield "Servers work on these cores."
    if devices.slowdown:
        yield f"Work slows down by a share of {format_number(devices.slowdown)} while the rank communicates."
    if devices.busy_core_slowdown and devices.on_cores:
        yield f"Work slows down by a share of {format_number(devices.busy_core_slowdown)} per other busy core."


def _transport(transport: Transport) -> Iterator[str]:
    given = {name: getattr(transport, name) for name, field in Transport.model_fields.items() if getattr(transport, name) != field.default}
    if not given:
        yield "Messages share ports max-min fairly and have no cost beyond their bytes."
    else:
        yield (
            f"Transport: {', '.join(f'{name} = {value}' for name, value in given.items())}; the rest has the defaults of `paceline schema "
            "cluster`."
        )
