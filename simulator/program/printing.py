"""A program as tables for a reader, in which what is alike is counted, not listed.

Ports stand together by kind and capacity, paths by the kinds of ports that they cross,
ranks by what they do and over which kinds of paths; of a long routine, operations of one
kind.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.base.records import Place
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
    """A program with what it is read beside.

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
    """Ports that stand for a device: those that seats are paths over."""
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
    """The groups; where there are several partitions, of which one each is."""
    rows = [(f"{number}", f"{len(group):,}", _in_order(group)) for number, group in enumerate(program.groups)]
    if max(program.partition, default=0) == 0:
        return Listing("Groups of ranks", ("group", "ranks", "which"), rows)
    told = [(f"{of}", *row) for of, row in zip(program.partition, rows, strict=True)]
    return Listing("Groups of ranks; each rank is in one of every partition", ("partition", "group", "ranks", "which"), told)


def _ports(program: Program) -> tuple[Integers, Listing]:
    """The kind of each port, and the kinds."""
    ports, devices = program.ports, device_ports(program)
    patterns = [name.pattern for name in ports.names]
    which, first = _kinds(patterns, ports.capacity, ports.ceiling, ports.incast_loss, ports.incast_flows, ports.whole, ports.others)
    rows = []
    for kind, (port, count) in enumerate(zip(first.tolist(), _counts(which), strict=True)):
        limits = []
        if math.isfinite(ports.ceiling[port]):
            limits.append(f"at most {format_rate(ports.ceiling[port])} a connection")
        if ports.incast_loss[port]:
            limits.append(
                f"over {ports.incast_flows[port]:,} flows, divided by 1 + {written(ports.incast_loss[port], 'setting')} for each more"
            )
        if ports.capacity[port] < ports.whole[port]:
            limits.append(f"of {format_rate(ports.whole[port])}, the rest taken by others")
        if flows := int(ports.others[port]):
            limits.append(f"shared with {flows:,} flow{'s' if flows > 1 else ''} of others")
        capacity = "1 s of work a second" if port in devices else format_rate(ports.capacity[port])
        if ports.names[port].kind in (PortKind.HOST_CORES, PortKind.SHARED_LINK):
            capacity = f"{ports.capacity[port]:g} s of work a second"
        name = str(ports.names[port]) if count == 1 else patterns[port]
        rows.append((f"{kind}", name, f"{count:,}", capacity, "; ".join(limits)))
    return which, Listing("Ports: what is shared", ("kind", "port", "count", "capacity", "limits"), rows)


def _paths(program: Program, ports: Integers) -> tuple[Integers, Listing]:
    """The kind of each path, and the kinds."""
    paths = program.paths
    lengths = np.diff(paths.first)
    crossed = []
    for place in range(int(lengths.max(initial=0))):
        column = np.full(len(paths), NONE)
        column[lengths > place] = ports[paths.port[paths.first[:-1][lengths > place] + place]]
        crossed.append(column)
    which, first = _kinds(lengths, *crossed, paths.latency_s, paths.source != NONE, paths.target != NONE, paths.asked_for)
    rows = []
    for kind, (path, count) in enumerate(zip(first.tolist(), _counts(which), strict=True)):
        crosses = [f"{column[path]}" for column in crossed[: lengths[path]]]
        ends = [text for text, end in (("sender", paths.source[path]), ("receiver", paths.target[path])) if end != NONE]
        beside = [f"hosts of {' and '.join(ends)}"] if ends else []
        if paths.asked_for[path]:
            beside.append("answers to requests")
        rows.append((f"{kind}", f"{count:,}", ", ".join(crosses) or "nothing", time_of(paths.latency_s[path]), "; ".join(beside)))
    return which, Listing("Paths: what messages cross", ("kind", "count", "kinds of ports", "latency", "besides"), rows)


def _messages(program: Program, paths: Integers) -> Listing:
    """Of each group and bucket the kinds of lanes."""
    rows = []
    numbered = [(bucket, exchange) for of_group in exchanges_by_group(program) for bucket, exchange in enumerate(of_group)]
    several = len(program.groups) > 1
    for bucket, exchange in numbered:
        tables = exchange.tables
        which, first = _kinds(tables.messages, exchange.size_bytes, paths[exchange.path], np.diff(tables.awaits.start), tables.meeting)
        for lane, count in zip(first.tolist(), _counts(which), strict=True):
            awaits = int(tables.awaits.start[lane + 1] - tables.awaits.start[lane])
            waits = ["the rank's data"]
            waits += [f"messages of {awaits:,} other lane{'s' if awaits > 1 else ''}"] if awaits else []
            waits += ["the rank that it goes to"] if tables.meeting[lane] else []
            cells = f"{count:,}", f"{tables.messages[lane]:,}", format_bytes(exchange.size_bytes[lane]), f"{paths[exchange.path[lane]]}"
            rows.append((*((f"{exchange.group}",) if several else ()), f"{bucket}", *cells, ", ".join(waits)))
    columns = *(("group",) if several else ()), "bucket", "lanes", "messages of each", "size", "kind of path", "a message waits for"
    return Listing("Messages of collectives, one by one", columns, rows)


def _ranks(printed: Printed, paths: Integers) -> Listing:
    table = printed.program.ranks
    _, at, users = np.unique(table.device, return_inverse=True, return_counts=True)
    slots = [np.where(column == NONE, NONE, paths[column] if len(paths) else column) for column in table.path.T]
    which, first = _kinds(table.routine, users[at], table.seat != NONE, printed.speed, *slots)
    rows = []
    for kind, rank in enumerate(first.tolist()):
        ranks = np.flatnonzero(which == kind)
        device = "its own" if users[at[rank]] == 1 else f"of {users[at[rank]]:,} ranks"
        if table.seat[rank] != NONE and users[at[rank]] == 1:
            device = "shared with a server"
        copies = len(np.unique(table.copy[ranks]))
        cells = f"{len(ranks):,}", _numbers(ranks), f"{copies:,}", device, written(printed.speed[rank], "setting")
        rows.append((*cells, f"{table.routine[rank]}", _slots([int(slot[rank]) for slot in slots])))
    columns = "count", "ranks", "copies", "device", "speed", "routine", "kind of path of each slot"
    return Listing("Ranks: who makes steps", columns, rows)


def _slots(kinds: Sequence[int]) -> str:
    """``0 to 3: 0; 4 to 7: 1``."""
    runs: list[list[int]] = []
    for slot, kind in enumerate(kinds):
        if kind == NONE:
            continue
        if runs and runs[-1][2] == kind and runs[-1][1] == slot - 1:
            runs[-1][1] = slot
        else:
            runs.append([slot, slot, kind])
    return "; ".join(f"{first}: {kind}" if first == last else f"{first} to {last}: {kind}" for first, last, kind in runs)


# -- routines -----------------------------------------------------------------------------


def _routine(printed: Printed, number: int, routine: Routine) -> Listing:
    count = len(routine.operations)
    title = f"Routine {number}: {count:,} operations a step"
    if routine.shuffled[1]:
        first, last = routine.shuffled
        title += f"; {first:,} to {last - 1:,} begin in an order drawn for each step"
    if count <= _LISTED:
        rows = [
            (f"{place}", operation.kind, operation.title, _list(operation.after), _what(printed, operation))
            for place, operation in enumerate(routine.operations)
        ]
        return Listing(title, ("number", "kind", "name", "after", "what"), rows)
    return Listing(f"{title}; alike ones together", ("numbers", "count", "kind", "name", "after", "what"), _alike(printed, routine))


def _list(after: Sequence[int]) -> str:
    return _numbers(np.array(sorted(after), dtype=np.int64)) if after else ""


def _what(printed: Printed, operation: Operation) -> str:
    match operation.kind:
        case "compute":
            return _computed(printed, operation)
        case "send":
            besides = "; brings the batch" if operation.feeds else f"; channel {operation.channel}" if operation.channel >= 0 else ""
            tensors = f" ({operation.tensors:g} tensors)" if operation.tensors != 1 else ""
            ends = f"{_rank(operation.source)} to {_rank(operation.target)}"
            return f"{format_bytes(operation.size_bytes)}{tensors}, slot {operation.slot}: {ends}{besides}"
        case "receive":
            return f"the next message of channel {operation.channel}"
        case "serve":
            return f"server {operation.server}, tensor {operation.tensor}: {time_of(operation.cost_s)}"
        case "collective":
            every = f", once in {operation.every:,} steps" if operation.every > 1 else ""
            how = printed.reduced.get(operation.size_bytes)
            by = f" by {how.name}, {time_of(how.alone_s)} alone" if how else ""
            ready = f", there after {format_number(operation.ready)} of the backward pass" if operation.ready < 1 else ""
            several = max(printed.program.partition, default=0) > 0
            where = f"{operation.does} in the group of partition {operation.partition}, " if several else ""
            return f"{where}bucket {operation.bucket}: {format_bytes(operation.size_bytes)}{by}{ready}{every}"
        case "gate":
            return _gate(printed, operation)


def _gate(printed: Printed, operation: Operation) -> str:
    if operation.name == "input" and printed.input_s:
        feed = printed.program.feed
        beside = "when it is asked for" if feed is not None and not feed.prefetch else "beside the step before"
        if feed is not None and feed.prefetch > 1:
            beside = f"beside the steps before, up to {feed.prefetch:,} batches ahead"
        share = "" if feed is None or feed.alone else ", by itself"
        return f"the batch is there, prepared in {time_of(printed.input_s)}{share} {beside}"
    return _GATES.get(operation.name, "")


_GATES = {
    "turn": "the step is handed out, and begins to read",
    "prepare": "the client has the batch",
    "input": "the batch is there",
    "update": "the rank may end its step",
}


def _rank(end: Place) -> str:
    return str(end).replace("{rank}", "r").replace("{peer}", "peer")


def _computed(printed: Printed, operation: Operation) -> str:
    shares = [
        f"{_share(share)} of {part}"
        for share, part in ((operation.forward, "forward"), (operation.backward, "backward"), (operation.apply, "apply"))
        if share
    ]
    joined = ", joins the next" if operation.joins else ""
    return f"{' + '.join(shares) or 'nothing'}: {time_of(printed.compute_s(operation))}{joined}"


def _share(share: float) -> str:
    return "all" if abs(share - 1) < _ROUNDED else format_number(share)


def _alike(printed: Printed, routine: Routine) -> Sequence[Sequence[str]]:
    """Operations by kind and name without its numbers, with what all of one kind come to."""
    patterns = [operation.pattern for operation in routine.operations]
    others = ([getattr(operation, name) for operation in routine.operations] for name in ("kind", "every", "partition", "does"))
    which, first = _kinds(patterns, *others)
    rows = []
    for kind, place in enumerate(first.tolist()):
        numbers = np.flatnonzero(which == kind)
        alike = [routine.operations[number] for number in numbers.tolist()]
        if len(alike) == 1:
            rows.append((f"{place}", "1", alike[0].kind, alike[0].title, _after(alike, patterns), _what(printed, alike[0])))
        else:
            cells = _numbers(numbers), f"{len(alike):,}", alike[0].kind, patterns[place], _after(alike, patterns)
            rows.append((*cells, _all(printed, alike)))
    return rows


def _after(operations: Sequence[Operation], patterns: Sequence[str]) -> str:
    """What they wait for, by name."""
    names = dict.fromkeys(patterns[number] for operation in operations for number in operation.after)
    shown = ", ".join(list(names)[:_FEW])
    return shown if len(names) <= _FEW else f"{shown}, ... ({len(names)})"


def _all(printed: Printed, operations: Sequence[Operation]) -> str:
    """What operations of one kind come to."""
    match operations[0].kind:
        case "compute":
            total = Operation(
                kind="compute",
                name="",
                forward=math.fsum(operation.forward for operation in operations),
                backward=math.fsum(operation.backward for operation in operations),
                apply=math.fsum(operation.apply for operation in operations),
            )
            return _computed(printed, total)
        case "send":
            slots = np.unique([operation.slot for operation in operations])
            return f"{_sizes([operation.size_bytes for operation in operations])}; slots {_numbers(slots)}"
        case "receive":
            return f"channels {_numbers(np.unique([operation.channel for operation in operations]))}"
        case "serve":
            servers = np.unique([operation.server for operation in operations])
            total_s = time_of(math.fsum(operation.cost_s for operation in operations))
            return f"{total_s} in all; servers {_numbers(servers)}"
        case "collective":
            hows = [how for operation in operations if (how := printed.reduced.get(operation.size_bytes)) is not None]
            by = (
                f" by {', '.join(dict.fromkeys(how.name for how in hows))}, {time_of(math.fsum(how.alone_s for how in hows))} alone"
                if hows
                else ""
            )
            return f"{_sizes([operation.size_bytes for operation in operations])}{by}"
        case "gate":
            return _gate(printed, operations[0])


def _sizes(sizes: Sequence[float]) -> str:
    least, most, total = format_bytes(min(sizes)), format_bytes(max(sizes)), format_bytes(math.fsum(sizes))
    return f"{total} in all, {least}{f' to {most}' if most != least else ''} each"


# -- what is alike ------------------------------------------------------------------------


def _kinds(*columns: Sequence[Hashable] | NDArray[Any]) -> tuple[Integers, Integers]:
    """Which rows of some columns are alike.

    Returns
    -------
    which
        The kind of each row, numbered in the order in which they first come; shape (rows,).
    first
        The first row of each kind.
    """
    which = np.zeros(len(columns[0]), dtype=np.int64)
    first = np.zeros(min(len(which), 1), dtype=np.int64)
    for column in columns:
        values = column if isinstance(column, np.ndarray) else _numbered(column)
        _, codes = np.unique(values, return_inverse=True)
        _, first, which = np.unique(which * (int(codes.max(initial=0)) + 1) + codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place[which], first[order]


def _numbered(values: Iterable[Hashable]) -> Integers:
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64)


def _counts(which: Integers) -> list[int]:
    counts: list[int] = np.bincount(which).tolist()
    return counts


def _numbers(values: Integers) -> str:
    """Whole numbers, ascending, for reading: a range, or the first of them."""
    if len(values) > 1 and values[-1] - values[0] == len(values) - 1:
        return f"{values[0]:,} to {values[-1]:,}"
    shown = ", ".join(f"{value:,}" for value in values[:_FEW].tolist())
    return shown if len(values) <= _FEW else f"{shown}, ... ({len(values):,})"


def _in_order(ranks: Integers) -> str:
    """The ranks of a group, in its order."""
    return (
        _numbers(ranks)
        if np.all(np.diff(ranks) > 0)
        else ", ".join(f"{rank:,}" for rank in ranks[:_FEW]) + (f", ... ({len(ranks):,})" if len(ranks) > _FEW else "")
    )


def sentences_of(program: Program) -> Iterator[str]:
    """What is no graph, one sentence a rule: who gets a step, what becomes of gradients, how messages and cores are shared."""
    rules, ranks = program.rules, len(program.ranks)
    yield (
        "An operation begins when those that it comes after have ended. A rank's computes begin one after the other, in their order; "
        "one that joins the next is made in one piece with it where that can begin as well."
    )
    if rules.steps_shared is not None:
        yield f"{rules.steps_shared:,} steps of the whole job are handed out to whoever asks."
    if rules.steps_each is not None:
        more = f", and up to {rules.sync_every:,} more until the slowest has made its own" if rules.sync_every > 1 else ""
        yield f"Every rank makes {rules.steps_each:,} steps{more}."
    if rules.steps_shared is None and rules.steps_each is None:
        yield "As many steps are handed out as are asked for, until the measurement ends."
    if rules.closes and (rules.steps_shared is not None or rules.steps_each is not None):
        yield "The measurement ends when a rank has no step left to make."
    if rules.bound is not None:
        yield f"A rank may be {rules.bound:,} steps ahead of the slowest; then it waits."
    if rules.dispatcher is not None:
        dispatcher = rules.dispatcher
        yield (
            f"One process hands out steps, one at a time: {time_of(dispatcher.dispatch_s)} for each, and {time_of(dispatcher.latency_s)} "
            "between a step's end and the next one's begin."
        )
    if rules.client is not None:
        yield f"One process prepares every rank's batch, one at a time: {time_of(rules.client.input_s)} for each."
    if program.feed is not None:
        yield from _feed(program.feed)
    if isinstance(rules.updates, Asynchronous):
        yield (
            f"Each gradient is applied when its turn comes at its server ({_parts(rules.updates.parts)}); "
            "a step whose gradients are all applied is an update."
        )
    if isinstance(rules.updates, Synchronous):
        yield from _synchronous(rules.updates, ranks)
    if rules.sync_every > 1:
        yield f"All ranks hold the same variables once in {rules.sync_every:,} steps; between, each goes on alone."
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
    again = f"; after {time_of(changes.repeat_s)} it begins again" if changes.repeat_s is not None else "; then it stays so"
    least, most = format_number(float(changes.left.min())), format_number(float(changes.left.max()))
    flows = f" and {int(changes.beside.min())} to {int(changes.beside.max())} of their flows share the rest" if changes.beside.any() else ""
    return (
        f"What others take from {len(changes.port):,} ports changes {len(changes.at_s) - 1:,} times in {time_of(changes.at_s[-1])}: "
        f"they leave {least} to {most}, as a share{flows}{again}."
    )


def _feed(feed: Feed) -> Iterator[str]:
    """Whom pipelines feed, how far ahead, and what they share."""
    ranks = len(feed.of_rank)
    alone, several = len(feed) == ranks, "" if len(feed) > 1 else "s"
    whose = "Each rank has a pipeline, which prepares" if alone else f"{len(feed):,} pipeline{'' if several else 's'} feed{several} "
    whose += "" if alone else f"{ranks:,} ranks, which get their parts of a batch together, and prepare{several}"
    ahead = f"until {feed.prefetch:,} stand ready" if feed.prefetch else "when they are asked for"
    yield f"{whose} batches one after the other, {ahead}."
    if feed.path.shape[1]:
        yield "What pipelines read, and their work, cross ports that they share; a batch is there when all of it has."
    if feed.work_s.shape[1]:
        yield f"For a batch they work on these cores, {feed.work_s.shape[1]:,} thread{'s' if feed.work_s.shape[1] > 1 else ''} at a time."


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
            yield f"Slot {slot} leads from rank r to rank {way}, around the circle of {ranks:,}."
        else:
            yield f"Slot {slot} leads from {int((peer >= 0).sum()):,} ranks to one other each."


def _parts(parts: Sequence[int]) -> str:
    each = f"{min(parts):,}" if min(parts) == max(parts) else f"{min(parts):,} to {max(parts):,}"
    return f"{each} of a step on each of {len(parts):,} server{'s' if len(parts) > 1 else ''}"


def _synchronous(rule: Synchronous, ranks: int) -> Iterator[str]:
    late = "stops computing and begins the next step" if rule.cancel else "finishes its step, for nothing"
    dropped = f"; a rank whose gradients come too late {late}" if rule.required < ranks else ""
    yield f"An update averages the gradients of {rule.required:,} of {ranks:,} ranks, which then get a token each{dropped}."
    yield f"Applying it takes {time_of(math.fsum(rule.cost_s))} for {len(rule.cost_s):,} tensors on {len(set(rule.server)):,} servers."


def _reduction(program: Program) -> Iterator[str]:
    rule = program.rules.reduction
    if rule is None:
        return
    if rule.cycle_s is not None:
        most = f", up to {format_bytes(rule.most_bytes)} at once" if math.isfinite(rule.most_bytes) else ""
        yield f"Every {time_of(rule.cycle_s)}, what is ready on all ranks is fused and reduced{most}."
    elif program.rules.sync_every == 1:
        yield "Each bucket is reduced as it becomes ready, one after the other."
    if not program.exchanges:
        yield 'When each rank has a bucket is computed for all at once; run.detail = "messages" lists messages, paths and ports.'
    if rule.by_need:
        yield "Those go first that the next forward pass needs first, and it begins when they have come."
    if rule.copies is not None:
        rate = format_rate(1 / rule.copies.s_per_byte)
        yield f"Buffers go by the hosts' memory: {rate} of a rank in each direction, {time_of(rule.copies.latency_s)} a copy."


def _on_devices(program: Program) -> Iterator[str]:
    devices = program.devices
    if devices.on_cores:
        yield "Devices compute on these cores."
    if program.servers.count and program.servers.on_cores:
        yield "Servers work on these cores."
    if devices.slowdown:
        yield f"Work takes {format_number(devices.slowdown)} longer, as a share, while the rank communicates."
    if devices.busy_core_slowdown and devices.on_cores:
        yield f"Work takes {format_number(devices.busy_core_slowdown)} longer, as a share, for each other core that is busy."


def _transport(transport: Transport) -> Iterator[str]:
    given = {name: getattr(transport, name) for name, field in Transport.model_fields.items() if getattr(transport, name) != field.default}
    if not given:
        yield "Messages share ports max-min fairly and cost nothing but their bytes."
    else:
        yield f"Transport: {', '.join(f'{name} = {value}' for name, value in given.items())}; the rest as `paceline schema cluster` has it."
