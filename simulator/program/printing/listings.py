"""A program as tables for a reader, in which what is alike is counted, not listed.

Ports stand together by kind and capacity, paths by the kinds of ports that they cross,
ranks by what they do and over which kinds of paths; of a long routine, operations of one
kind.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.base.records import Place
from simulator.base.text import format_bytes, format_number, format_rate, written
from simulator.program.groups import exchanges_by_group
from simulator.program.port_names import PortKind
from simulator.program.printing.printed import NONE, Printed, device_ports, time_of
from simulator.program.program import Integers, Operation, Program, Routine

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
    its, devices = program.ports, device_ports(program)
    patterns = [name.pattern for name in its.names]
    which, first = _kinds(patterns, its.capacity, its.ceiling, its.incast_loss, its.incast_flows, its.whole, its.others)
    rows = []
    for kind, (port, count) in enumerate(zip(first.tolist(), _counts(which), strict=True)):
        limits = []
        if math.isfinite(its.ceiling[port]):
            limits.append(f"at most {format_rate(its.ceiling[port])} a connection")
        if its.incast_loss[port]:
            limits.append(
                f"over {its.incast_flows[port]:,} flows, divided by 1 + {written(its.incast_loss[port], 'setting')} for each more"
            )
        if its.capacity[port] < its.whole[port]:
            limits.append(f"of {format_rate(its.whole[port])}, the rest taken by others")
        if flows := int(its.others[port]):
            limits.append(f"shared with {flows:,} flow{'s' if flows > 1 else ''} of others")
        capacity = "1 s of work a second" if port in devices else format_rate(its.capacity[port])
        if its.names[port].kind in (PortKind.HOST_CORES, PortKind.SHARED_LINK):
            capacity = f"{its.capacity[port]:g} s of work a second"
        name = str(its.names[port]) if count == 1 else patterns[port]
        rows.append((f"{kind}", name, f"{count:,}", capacity, "; ".join(limits)))
    return which, Listing("Ports: what is shared", ("kind", "port", "count", "capacity", "limits"), rows)


def _paths(program: Program, ports: Integers) -> tuple[Integers, Listing]:
    """The kind of each path, and the kinds."""
    its = program.paths
    lengths = np.diff(its.first)
    crossed = []
    for place in range(int(lengths.max(initial=0))):
        column = np.full(len(its), NONE)
        column[lengths > place] = ports[its.port[its.first[:-1][lengths > place] + place]]
        crossed.append(column)
    which, first = _kinds(lengths, *crossed, its.latency_s, its.source != NONE, its.target != NONE, its.asked_for)
    rows = []
    for kind, (path, count) in enumerate(zip(first.tolist(), _counts(which), strict=True)):
        crosses = [f"{column[path]}" for column in crossed[: lengths[path]]]
        ends = [text for text, end in (("sender", its.source[path]), ("receiver", its.target[path])) if end != NONE]
        beside = [f"hosts of {' and '.join(ends)}"] if ends else []
        if its.asked_for[path]:
            beside.append("answers to requests")
        rows.append((f"{kind}", f"{count:,}", ", ".join(crosses) or "nothing", time_of(its.latency_s[path]), "; ".join(beside)))
    return which, Listing("Paths: what messages cross", ("kind", "count", "kinds of ports", "latency", "besides"), rows)


def _messages(program: Program, paths: Integers) -> Listing:
    """Of each group and bucket the kinds of lanes."""
    rows = []
    numbered = [(bucket, its) for of_group in exchanges_by_group(program) for bucket, its in enumerate(of_group)]
    several = len(program.groups) > 1
    for bucket, its in numbered:
        tables = its.tables
        which, first = _kinds(tables.messages, its.size_bytes, paths[its.path], np.diff(tables.awaits.start), tables.meeting)
        for lane, count in zip(first.tolist(), _counts(which), strict=True):
            awaits = int(tables.awaits.start[lane + 1] - tables.awaits.start[lane])
            waits = ["the rank's data"]
            waits += [f"messages of {awaits:,} other lane{'s' if awaits > 1 else ''}"] if awaits else []
            waits += ["the rank that it goes to"] if tables.meeting[lane] else []
            cells = f"{count:,}", f"{tables.messages[lane]:,}", format_bytes(its.size_bytes[lane]), f"{paths[its.path[lane]]}"
            rows.append((*((f"{its.group}",) if several else ()), f"{bucket}", *cells, ", ".join(waits)))
    columns = *(("group",) if several else ()), "bucket", "lanes", "messages of each", "size", "kind of path", "a message waits for"
    return Listing("Messages of collectives, one by one", columns, rows)


def _ranks(printed: Printed, paths: Integers) -> Listing:
    its = printed.program.ranks
    _, at, users = np.unique(its.device, return_inverse=True, return_counts=True)
    slots = [np.where(column == NONE, NONE, paths[column] if len(paths) else column) for column in its.path.T]
    which, first = _kinds(its.routine, users[at], its.seat != NONE, printed.speed, *slots)
    rows = []
    for kind, rank in enumerate(first.tolist()):
        ranks = np.flatnonzero(which == kind)
        device = "its own" if users[at[rank]] == 1 else f"of {users[at[rank]]:,} ranks"
        if its.seat[rank] != NONE and users[at[rank]] == 1:
            device = "shared with a server"
        copies = len(np.unique(its.copy[ranks]))
        cells = f"{len(ranks):,}", _numbers(ranks), f"{copies:,}", device, written(printed.speed[rank], "setting")
        rows.append((*cells, f"{its.routine[rank]}", _slots([int(slot[rank]) for slot in slots])))
    columns = "count", "ranks", "copies", "device", "speed", "routine", "kind of path of each slot"
    return Listing("Ranks: who makes steps", columns, rows)


def _slots(kinds: Sequence[int]) -> str:
    """``0 to 3: 0; 4 to 7: 1``."""
    found: list[list[int]] = []
    for slot, kind in enumerate(kinds):
        if kind == NONE:
            continue
        if found and found[-1][2] == kind and found[-1][1] == slot - 1:
            found[-1][1] = slot
        else:
            found.append([slot, slot, kind])
    return "; ".join(f"{first}: {kind}" if first == last else f"{first} to {last}: {kind}" for first, last, kind in found)


# -- routines -----------------------------------------------------------------------------


def _routine(printed: Printed, number: int, routine: Routine) -> Listing:
    count = len(routine.operations)
    title = f"Routine {number}: {count:,} operations a step"
    if routine.shuffled[1]:
        first, last = routine.shuffled
        title += f"; {first:,} to {last - 1:,} begin in an order drawn for each step"
    if count <= _LISTED:
        rows = [
            (f"{place}", its.kind, its.title, _list(its.after), _what(printed, its)) for place, its in enumerate(routine.operations)
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
            tensors = f" ({its.tensors:g} tensors)" if its.tensors != 1 else ""
            return f"{format_bytes(its.size_bytes)}{tensors}, slot {its.slot}: {_rank(its.source)} to {_rank(its.target)}{besides}"
        case "receive":
            return f"the next message of channel {its.channel}"
        case "serve":
            return f"server {its.server}, tensor {its.tensor}: {time_of(its.cost_s)}"
        case "collective":
            every = f", once in {its.every:,} steps" if its.every > 1 else ""
            how = printed.reduced.get(its.size_bytes)
            by = f" by {how.name}, {time_of(how.alone_s)} alone" if how else ""
            ready = f", there after {format_number(its.ready)} of the backward pass" if its.ready < 1 else ""
            several = max(printed.program.partition, default=0) > 0
            where = f"{its.does} in the group of partition {its.partition}, " if several else ""
            return f"{where}bucket {its.bucket}: {format_bytes(its.size_bytes)}{by}{ready}{every}"
        case "gate":
            return _gate(printed, its)


def _gate(printed: Printed, its: Operation) -> str:
    if its.name == "input" and printed.input_s:
        feed = printed.program.feed
        beside = "when it is asked for" if feed is not None and not feed.prefetch else "beside the step before"
        if feed is not None and feed.prefetch > 1:
            beside = f"beside the steps before, up to {feed.prefetch:,} batches ahead"
        share = "" if feed is None or feed.alone else ", by itself"
        return f"the batch is there, prepared in {time_of(printed.input_s)}{share} {beside}"
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
    return f"{' + '.join(shares) or 'nothing'}: {time_of(printed.compute_s(its))}{joined}"


def _share(share: float) -> str:
    return "all" if abs(share - 1) < _ROUNDED else format_number(share)


def _alike(printed: Printed, routine: Routine) -> Sequence[Sequence[str]]:
    """Operations by kind and name without its numbers, with what all of one kind come to."""
    patterns = [its.pattern for its in routine.operations]
    others = ([getattr(its, name) for its in routine.operations] for name in ("kind", "every", "partition", "does"))
    which, first = _kinds(patterns, *others)
    rows = []
    for kind, place in enumerate(first.tolist()):
        numbers = np.flatnonzero(which == kind)
        its = [routine.operations[number] for number in numbers.tolist()]
        if len(its) == 1:
            rows.append((f"{place}", "1", its[0].kind, its[0].title, _after(its, patterns), _what(printed, its[0])))
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
                kind="compute",
                name="",
                forward=math.fsum(its.forward for its in operations),
                backward=math.fsum(its.backward for its in operations),
                apply=math.fsum(its.apply for its in operations),
            )
            return _computed(printed, total)
        case "send":
            slots = np.unique([its.slot for its in operations])
            return f"{_sizes([its.size_bytes for its in operations])}; slots {_numbers(slots)}"
        case "receive":
            return f"channels {_numbers(np.unique([its.channel for its in operations]))}"
        case "serve":
            servers = np.unique([its.server for its in operations])
            total_s = time_of(math.fsum(its.cost_s for its in operations))
            return f"{total_s} in all; servers {_numbers(servers)}"
        case "collective":
            hows = [how for its in operations if (how := printed.reduced.get(its.size_bytes)) is not None]
            by = (
                f" by {', '.join(dict.fromkeys(how.name for how in hows))}, {time_of(math.fsum(how.alone_s for how in hows))} alone"
                if hows
                else ""
            )
            return f"{_sizes([its.size_bytes for its in operations])}{by}"
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
    found: list[int] = np.bincount(which).tolist()
    return found


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
