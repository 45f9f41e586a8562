"""A program to be read: summed up as tables and sentences for people, and in full as rows for programs.

What is alike is counted, not listed: ports by kind and capacity, paths by the kinds of
ports that they cross, ranks by what they do and over which kinds of paths; of a long
routine, operations of one kind. The rows leave nothing out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.collectives.schedule import Needs
from simulator.program.program import Asynchronous, Exchange, Floats, Integers, Operation, Program, Routine, Synchronous
from simulator.records import Place
from simulator.transport import Transport
from simulator.units import format_bytes, format_rate, format_seconds

__all__ = ["SCHEMA_VERSION", "Listing", "Printed", "Reduced", "rows_of", "sentences_of", "tables_of"]

SCHEMA_VERSION = 1
"""Of the rows: a reader that knows another version knows other fields."""
_LISTED = 64
"""Operations of a routine that are listed one by one."""
_FEW = 4
_ROUNDED = 1e-9
_NUMBER = re.compile(r"\d+")
_NOTHING = -1


class Reduced(NamedTuple):
    """How a collective is carried out: algorithm, protocol ("none": that of the links), and seconds where all ranks enter at once."""

    algorithm: str
    protocol: str
    alone_s: float

    @property
    def name(self) -> str:
        """Such as "ring (simple)"."""
        return self.algorithm if self.protocol == "none" else f"{self.algorithm} ({self.protocol})"


@dataclass(frozen=True)
class Printed:
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

    scenario: str
    program: Program
    forward_s: float
    backward_s: float
    apply_s: float
    speed: Floats
    reduced: Mapping[float, Reduced]

    def compute_s(self, operation: Operation) -> float:
        """Mean seconds of a compute on a device of speed 1."""
        return operation.forward * self.forward_s + operation.backward * self.backward_s + operation.apply * self.apply_s


class Listing(NamedTuple):
    """One table for people: what it is about, its columns, and rows of as many texts."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]


# -- for programs ---------------------------------------------------------------------


def rows_of(printed: Printed) -> Iterator[dict[str, Any]]:
    """All of a program, row by row; each names its ``table``, and the first counts the rows of all.

    Numbers refer to rows of other tables by their ``number``. Units are in the names;
    without one, ``capacity`` is in seconds of work a second. None stands for what is not
    there or has no limit.
    """
    program = printed.program
    operations = sum(len(routine.operations) for routine in program.routines)
    counts = {
        "port": len(program.ports.capacity), "path": len(program.paths), "host": program.hosts.count, "server": program.servers.count,
        "rank": len(program.ranks), "group": len(program.groups), "routine": len(program.routines), "operation": operations,
        "lane": sum(len(its.path) for its in program.exchanges),
    }  # fmt: skip
    yield {"schema_version": SCHEMA_VERSION, "table": "program", "scenario": printed.scenario, "rows": counts}
    means = {"forward_s": printed.forward_s, "backward_s": printed.backward_s, "apply_s": printed.apply_s}
    yield {"table": "means", **means}
    yield {"table": "transport", **program.transport.model_dump(mode="json")}
    yield {"table": "cores", **(asdict(program.cores) if program.cores is not None else {"number": None, "slice_s": None})}
    devices = {its.name: getattr(program.devices, its.name) for its in fields(program.devices)}
    yield {"table": "devices", **devices}
    yield {"table": "rules", **_rules_as_data(program)}
    yield from _port_rows(program)
    yield from _path_rows(program)
    yield from ({"table": "host", "number": number, "name": name} for number, name in enumerate(program.hosts.names))
    seats = program.servers.seat.tolist()
    yield from ({"table": "server", "number": number, "seat": _there(seat)} for number, seat in enumerate(seats))
    yield from _rank_rows(printed)
    yield from ({"table": "group", "number": number, "ranks": group.tolist()} for number, group in enumerate(program.groups))
    for number, routine in enumerate(program.routines):
        yield {"table": "routine", "number": number, "shuffled": list(routine.shuffled)}
        yield from _operation_rows(printed, number, routine)
    for bucket, exchange in enumerate(program.exchanges):
        yield from _lane_rows(bucket, exchange)


def _time(value_s: float) -> str:
    return format_seconds(value_s) if value_s else "no time"


def _there(number: int) -> int | None:
    return None if number == _NOTHING else number


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _rules_as_data(program: Program) -> dict[str, Any]:
    rules = asdict(program.rules)
    if program.rules.updates is not None:
        rules["updates"] = {"kind": type(program.rules.updates).__name__.lower(), **rules["updates"]}
    if program.rules.reduction is not None:
        rules["reduction"]["most_bytes"] = _finite(program.rules.reduction.most_bytes)
    return rules


def _port_rows(program: Program) -> Iterator[dict[str, Any]]:
    its, devices = program.ports, _device_ports(program)
    columns = zip(its.capacity.tolist(), its.ceiling.tolist(), its.incast_loss.tolist(), its.incast_flows.tolist(), strict=True)
    for number, (capacity, ceiling, loss, flows) in enumerate(columns):
        unit = "capacity" if number in devices else "capacity_bytes_per_s"
        yield {
            "table": "port", "number": number, "name": its.names[number], "link": number < program.links, unit: capacity,
            "ceiling_bytes_per_s": _finite(ceiling), "incast_loss": loss, "incast_flows": flows,
        }  # fmt: skip


def _path_rows(program: Program) -> Iterator[dict[str, Any]]:
    its = program.paths
    first, port = its.first.tolist(), its.port.tolist()
    columns = zip(its.latency_s.tolist(), its.source.tolist(), its.target.tolist(), its.asked_for.tolist(), strict=True)
    for number, (latency_s, source, target, asked_for) in enumerate(columns):
        yield {
            "table": "path", "number": number, "ports": port[first[number] : first[number + 1]], "latency_s": latency_s,
            "source": _there(source), "target": _there(target), "asked_for": asked_for,
        }  # fmt: skip


def _rank_rows(printed: Printed) -> Iterator[dict[str, Any]]:
    its = printed.program.ranks
    columns = zip(
        its.device.tolist(), its.copy.tolist(), its.routine.tolist(), its.seat.tolist(), its.path, printed.speed.tolist(), strict=True
    )
    for number, (device, copy, routine, seat, path, speed) in enumerate(columns):
        yield {
            "table": "rank", "number": number, "name": its.names[number], "device": device, "copy": copy, "routine": routine,
            "seat": _there(seat), "path": [_there(one) for one in path.tolist()],
            "peer": [_there(one) for one in its.peer[number].tolist()],
            "speed": speed,
        }  # fmt: skip


def _operation_rows(printed: Printed, routine: int, its: Routine) -> Iterator[dict[str, Any]]:
    """Of each operation what its kind has; ``mean_s`` is that on a device of speed 1."""
    for number, operation in enumerate(its.operations):
        row: dict[str, Any] = {"table": "operation", "routine": routine, "number": number}
        row |= {"kind": operation.kind, "name": operation.name, "after": list(operation.after)}
        row |= {name: str(its) if isinstance(its := getattr(operation, name), Place) else its for name in _OF_KIND[operation.kind]}
        if operation.kind == "compute":
            row["mean_s"] = printed.compute_s(operation)
        if (how := printed.reduced.get(operation.size_bytes)) is not None and operation.kind == "collective":
            row |= how._asdict()
        yield row


def _lane_rows(bucket: int, its: Exchange) -> Iterator[dict[str, Any]]:
    """Of each lane of a bucket its messages, and what they need: ``slope * k + base`` of a lane's, for message k >= ``onward``."""
    tables = its.tables
    columns = zip(
        tables.source.tolist(), tables.target.tolist(), its.path.tolist(), tables.messages.tolist(), its.size_bytes.tolist(),
        tables.meeting.tolist(), strict=True
    )  # fmt: skip
    for lane, (source, target, path, messages, size_bytes, meeting) in enumerate(columns):
        yield {
            "table": "lane", "bucket": bucket, "number": lane, "source": source, "target": target, "path": path, "messages": messages,
            "size_bytes": size_bytes, "awaits": _needed(tables.awaits, lane), "meets": _needed(tables.meets, lane) if meeting else None,
        }  # fmt: skip


def _needed(needs: Needs, lane: int) -> list[dict[str, int]]:
    some = slice(needs.start[lane], needs.start[lane + 1])
    columns = (column[some].tolist() for column in (needs.lane, needs.base, needs.slope, needs.onward))
    return [dict(zip(("lane", "base", "slope", "onward"), row, strict=True)) for row in zip(*columns, strict=True)]


_OF_KIND: dict[str, tuple[str, ...]] = {
    "gate": (),
    "compute": ("forward", "backward", "apply", "joins"),
    "send": ("slot", "size_bytes", "source", "target", "departs", "lands", "feeds", "channel"),
    "receive": ("channel",),
    "serve": ("server", "tensor", "cost_s"),
    "collective": ("bucket", "size_bytes", "every", "ready"),
}


# -- for people: what is alike --------------------------------------------------------


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
    found: list[int] = np.bincount(which).tolist()
    return found


def _numbers(values: Integers) -> str:
    """Whole numbers, ascending, for reading: a range, or the first of them."""
    if len(values) > 1 and values[-1] - values[0] == len(values) - 1:
        return f"{values[0]:,} to {values[-1]:,}"
    shown = ", ".join(f"{value:,}" for value in values[:_FEW].tolist())
    return shown if len(values) <= _FEW else f"{shown}, ... ({len(values):,})"


def _pattern(name: str) -> str:
    """A name without its numbers."""
    return _NUMBER.sub("*", name)


def _device_ports(program: Program) -> frozenset[int]:
    """Ports that stand for a device: those that seats are paths over."""
    seats = np.concatenate([program.ranks.seat, program.servers.seat])
    return frozenset(program.paths.port[program.paths.first[seats[seats != _NOTHING]]].tolist())


# -- for people: tables ---------------------------------------------------------------


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
        rows = [(f"{number}", f"{len(group):,}", _numbers(group)) for number, group in enumerate(program.groups)]
        yield Listing("Groups of ranks", ("group", "ranks", "which"), rows)
    for number, routine in enumerate(program.routines):
        yield _routine(printed, number, routine)
    if program.exchanges:
        yield _messages(program, paths)


def _ports(program: Program) -> tuple[Integers, Listing]:
    """The kind of each port, and the kinds."""
    its, devices = program.ports, _device_ports(program)
    patterns = [_pattern(name) for name in its.names]
    which, first = _kinds(patterns, its.capacity, its.ceiling, its.incast_loss, its.incast_flows)
    rows = []
    for kind, (port, count) in enumerate(zip(first.tolist(), _counts(which), strict=True)):
        limits = []
        if math.isfinite(its.ceiling[port]):
            limits.append(f"at most {format_rate(its.ceiling[port])} a connection")
        if its.incast_loss[port]:
            limits.append(f"over {its.incast_flows[port]:,} flows, divided by 1 + {its.incast_loss[port]:.3g} for each more")
        capacity = "1 s of work a second" if port in devices else format_rate(its.capacity[port])
        name = its.names[port] if count == 1 else patterns[port]
        rows.append((f"{kind}", name, f"{count:,}", capacity, "; ".join(limits)))
    return which, Listing("Ports: what is shared", ("kind", "port", "count", "capacity", "limits"), rows)


def _paths(program: Program, ports: Integers) -> tuple[Integers, Listing]:
    """The kind of each path, and the kinds."""
    its = program.paths
    lengths = np.diff(its.first)
    crossed = []
    for place in range(int(lengths.max(initial=0))):
        column = np.full(len(its), _NOTHING)
        column[lengths > place] = ports[its.port[its.first[:-1][lengths > place] + place]]
        crossed.append(column)
    which, first = _kinds(lengths, *crossed, its.latency_s, its.source != _NOTHING, its.target != _NOTHING, its.asked_for)
    rows = []
    for kind, (path, count) in enumerate(zip(first.tolist(), _counts(which), strict=True)):
        crosses = [f"{column[path]}" for column in crossed[: lengths[path]]]
        ends = [text for text, end in (("sender", its.source[path]), ("receiver", its.target[path])) if end != _NOTHING]
        beside = [f"hosts of {' and '.join(ends)}"] if ends else []
        if its.asked_for[path]:
            beside.append("answers to requests")
        rows.append((f"{kind}", f"{count:,}", ", ".join(crosses) or "nothing", _time(its.latency_s[path]), "; ".join(beside)))
    return which, Listing("Paths: what messages cross", ("kind", "count", "kinds of ports", "latency", "besides"), rows)


def _messages(program: Program, paths: Integers) -> Listing:
    """Of each bucket the kinds of lanes."""
    rows = []
    for bucket, its in enumerate(program.exchanges):
        tables = its.tables
        which, first = _kinds(tables.messages, its.size_bytes, paths[its.path], np.diff(tables.awaits.start), tables.meeting)
        for lane, count in zip(first.tolist(), _counts(which), strict=True):
            awaits = int(tables.awaits.start[lane + 1] - tables.awaits.start[lane])
            waits = ["the rank's data"]
            waits += [f"messages of {awaits:,} other lane{'s' if awaits > 1 else ''}"] if awaits else []
            waits += ["the rank that it goes to"] if tables.meeting[lane] else []
            cells = f"{count:,}", f"{tables.messages[lane]:,}", format_bytes(its.size_bytes[lane]), f"{paths[its.path[lane]]}"
            rows.append((f"{bucket}", *cells, ", ".join(waits)))
    columns = "bucket", "lanes", "messages of each", "size", "kind of path", "a message waits for"
    return Listing("Messages of collectives, one by one", columns, rows)


def _ranks(printed: Printed, paths: Integers) -> Listing:
    its = printed.program.ranks
    _, at, users = np.unique(its.device, return_inverse=True, return_counts=True)
    slots = [np.where(column == _NOTHING, _NOTHING, paths[column] if len(paths) else column) for column in its.path.T]
    which, first = _kinds(its.routine, users[at], its.seat != _NOTHING, printed.speed, *slots)
    rows = []
    for kind, rank in enumerate(first.tolist()):
        ranks = np.flatnonzero(which == kind)
        device = "its own" if users[at[rank]] == 1 else f"of {users[at[rank]]:,} ranks"
        if its.seat[rank] != _NOTHING and users[at[rank]] == 1:
            device = "shared with a server"
        copies = len(np.unique(its.copy[ranks]))
        cells = f"{len(ranks):,}", _numbers(ranks), f"{copies:,}", device, f"{printed.speed[rank]:.4g}"
        rows.append((*cells, f"{its.routine[rank]}", _slots([int(slot[rank]) for slot in slots])))
    columns = "count", "ranks", "copies", "device", "speed", "routine", "kind of path of each slot"
    return Listing("Ranks: who makes steps", columns, rows)


def _slots(kinds: Sequence[int]) -> str:
    """``0 to 3: 0; 4 to 7: 1``."""
    found: list[list[int]] = []
    for slot, kind in enumerate(kinds):
        if kind == _NOTHING:
            continue
        if found and found[-1][2] == kind and found[-1][1] == slot - 1:
            found[-1][1] = slot
        else:
            found.append([slot, slot, kind])
    return "; ".join(f"{first}: {kind}" if first == last else f"{first} to {last}: {kind}" for first, last, kind in found)


# -- for people: routines -------------------------------------------------------------


def _routine(printed: Printed, number: int, routine: Routine) -> Listing:
    count = len(routine.operations)
    title = f"Routine {number}: {count:,} operations a step"
    if routine.shuffled[1]:
        first, last = routine.shuffled
        title += f"; {first:,} to {last - 1:,} begin in an order drawn for each step"
    if count <= _LISTED:
        rows = [
            (f"{place}", its.kind, its.name, _list(its.after), _what(printed, its)) for place, its in enumerate(routine.operations)
        ]  # fmt: skip
        return Listing(title, ("number", "kind", "name", "after", "what"), rows)
    return Listing(f"{title}; alike ones together", ("numbers", "count", "kind", "name", "after", "what"), _alike(printed, routine))


def _list(after: Sequence[int]) -> str:
    return _numbers(np.array(sorted(after), dtype=np.int64)) if after else ""


def _what(printed: Printed, its: Operation) -> str:
    match its.kind:
        case "compute":
            return _computed(printed, its)
        case "send":
            besides = "; brings the batch" if its.feeds else f"; channel {its.channel}" if its.channel >= 0 else ""
            return f"{format_bytes(its.size_bytes)}, slot {its.slot}: {_rank(its.source)} to {_rank(its.target)}{besides}"
        case "receive":
            return f"the next message of channel {its.channel}"
        case "serve":
            return f"server {its.server}, tensor {its.tensor}: {_time(its.cost_s)}"
        case "collective":
            every = f", once in {its.every:,} steps" if its.every > 1 else ""
            how = printed.reduced.get(its.size_bytes)
            by = f" by {how.name}, {_time(how.alone_s)} alone" if how else ""
            ready = f", there after {its.ready:.3g} of the backward pass" if its.ready < 1 else ""
            return f"bucket {its.bucket}: {format_bytes(its.size_bytes)}{by}{ready}{every}"
        case "gate":
            return _GATES.get(its.name, "")


_GATES = {
    "turn": "the step is handed out, and begins to read",
    "prepare": "the client has the batch",
    "input": "the batch is there",
    "update": "the rank may end its step",
}


def _rank(end: Place) -> str:
    return str(end).replace("{rank}", "r").replace("{peer}", "peer")


def _computed(printed: Printed, its: Operation) -> str:
    shares = [
        f"{_share(share)} of {part}"
        for share, part in ((its.forward, "forward"), (its.backward, "backward"), (its.apply, "apply"))
        if share
    ]
    joined = ", joins the next" if its.joins else ""
    return f"{' + '.join(shares) or 'nothing'}: {_time(printed.compute_s(its))}{joined}"


def _share(share: float) -> str:
    return "all" if abs(share - 1) < _ROUNDED else f"{share:.3g}"


def _alike(printed: Printed, routine: Routine) -> Sequence[Sequence[str]]:
    """Operations by kind and name without its numbers, with what all of one kind come to."""
    patterns = [_pattern(its.name) for its in routine.operations]
    which, first = _kinds(patterns, [its.kind for its in routine.operations], [its.every for its in routine.operations])
    rows = []
    for kind, place in enumerate(first.tolist()):
        numbers = np.flatnonzero(which == kind)
        its = [routine.operations[number] for number in numbers.tolist()]
        if len(its) == 1:
            rows.append((f"{place}", "1", its[0].kind, its[0].name, _after(its, patterns), _what(printed, its[0])))
        else:
            cells = _numbers(numbers), f"{len(its):,}", its[0].kind, patterns[place], _after(its, patterns)
            rows.append((*cells, _all(printed, its)))
    return rows


def _after(operations: Sequence[Operation], patterns: Sequence[str]) -> str:
    """What they wait for, by name."""
    names = dict.fromkeys(patterns[number] for its in operations for number in its.after)
    shown = ", ".join(list(names)[:_FEW])
    return shown if len(names) <= _FEW else f"{shown}, ... ({len(names)})"


def _all(printed: Printed, operations: Sequence[Operation]) -> str:
    """What operations of one kind come to."""
    match operations[0].kind:
        case "compute":
            total = Operation(
                kind="compute", name="", forward=sum(its.forward for its in operations), backward=sum(its.backward for its in operations),
                apply=sum(its.apply for its in operations),
            )  # fmt: skip
            return _computed(printed, total)
        case "send":
            slots = np.unique([its.slot for its in operations])
            return f"{_sizes([its.size_bytes for its in operations])}; slots {_numbers(slots)}"
        case "receive":
            return f"channels {_numbers(np.unique([its.channel for its in operations]))}"
        case "serve":
            servers = np.unique([its.server for its in operations])
            total_s = _time(sum(its.cost_s for its in operations))
            return f"{total_s} in all; servers {_numbers(servers)}"
        case "collective":
            hows = [how for its in operations if (how := printed.reduced.get(its.size_bytes)) is not None]
            by = (
                f" by {', '.join(dict.fromkeys(how.name for how in hows))}, {_time(sum(how.alone_s for how in hows))} alone" if hows else ""
            )
            return f"{_sizes([its.size_bytes for its in operations])}{by}"
        case "gate":
            return _GATES.get(operations[0].name, "")


def _sizes(sizes: Sequence[float]) -> str:
    least, most, total = format_bytes(min(sizes)), format_bytes(max(sizes)), format_bytes(math.fsum(sizes))
    return f"{total} in all, {least}{f' to {most}' if most != least else ''} each"


# -- for people: rules ----------------------------------------------------------------


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
        yield f"Every rank makes {rules.steps_each:,} steps."
    if rules.steps_shared is None and rules.steps_each is None:
        yield "As many steps are handed out as are asked for, until the measurement ends."
    if rules.closes and (rules.steps_shared is not None or rules.steps_each is not None):
        yield "The measurement ends when a rank has no step left to make."
    if rules.bound is not None:
        yield f"A rank may be {rules.bound:,} steps ahead of the slowest; then it waits."
    if rules.dispatcher is not None:
        its = rules.dispatcher
        yield (
            f"One process hands out steps, one at a time: {_time(its.dispatch_s)} for each, and {_time(its.latency_s)} "
            "between a step's end and the next one's begin."
        )
    if rules.client is not None:
        yield f"One process prepares every rank's batch, one at a time: {_time(rules.client.input_s)} for each."
    if isinstance(rules.updates, Asynchronous):
        yield (
            f"Each gradient is applied when its turn comes at its server ({_parts(rules.updates.parts)}); "
            "a step whose gradients are all applied is an update."
        )
    if isinstance(rules.updates, Synchronous):
        yield from _synchronous(rules.updates, ranks)
    if rules.sync_every > 1:
        yield f"All ranks hold the same variables once in {rules.sync_every:,} steps; between, each goes on alone."
    yield from _reduction(program)
    if program.cores is not None:
        slices = f", in slices of {_time(program.cores.slice_s)}" if program.cores.slice_s else ""
        yield f"All nodes are processes of one machine and share its {program.cores.number:g} cores{slices}."
    yield from _on_devices(program)
    yield from _transport(program.transport)


def _parts(parts: Sequence[int]) -> str:
    each = f"{min(parts):,}" if min(parts) == max(parts) else f"{min(parts):,} to {max(parts):,}"
    return f"{each} of a step on each of {len(parts):,} server{'s' if len(parts) > 1 else ''}"


def _synchronous(its: Synchronous, ranks: int) -> Iterator[str]:
    late = "stops computing and begins the next step" if its.cancel else "finishes its step, for nothing"
    dropped = f"; a rank whose gradients come too late {late}" if its.required < ranks else ""
    yield f"An update averages the gradients of {its.required:,} of {ranks:,} ranks, which then get a token each{dropped}."
    yield f"Applying it takes {_time(math.fsum(its.cost_s))} for {len(its.cost_s):,} tensors on {len(set(its.server)):,} servers."


def _reduction(program: Program) -> Iterator[str]:
    its = program.rules.reduction
    if its is None:
        return
    if its.cycle_s is not None:
        most = f", up to {format_bytes(its.most_bytes)} at once" if math.isfinite(its.most_bytes) else ""
        yield f"Every {_time(its.cycle_s)}, what is ready on all ranks is fused and reduced{most}."
    elif program.rules.sync_every == 1:
        yield "Each bucket is reduced as it becomes ready, one after the other."
    if its.by_need:
        yield "Those go first that the next forward pass needs first, and it begins when they have come."
    if its.copies is not None:
        rate = format_rate(1 / its.copies.s_per_byte)
        yield f"Buffers go by the hosts' memory: {rate} of a rank in each direction, {_time(its.copies.latency_s)} a copy."


def _on_devices(program: Program) -> Iterator[str]:
    its = program.devices
    if its.on_cores:
        yield "Devices compute on these cores."
    if program.servers.count and program.servers.on_cores:
        yield "Servers work on these cores."
    if its.slowdown:
        yield f"Work takes {its.slowdown:.3g} longer, as a share, while the rank communicates."
    if its.busy_core_slowdown and its.on_cores:
        yield f"Work takes {its.busy_core_slowdown:.3g} longer, as a share, for each other core that is busy."


def _transport(its: Transport) -> Iterator[str]:
    given = {name: getattr(its, name) for name, field in Transport.model_fields.items() if getattr(its, name) != field.default}
    if not given:
        yield "Messages share ports max-min fairly and cost nothing but their bytes."
    else:
        yield f"Transport: {', '.join(f'{name} = {value}' for name, value in given.items())}; the rest as `paceline schema cluster` has it."
