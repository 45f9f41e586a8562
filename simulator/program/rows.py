"""A program as JSON rows, for other programs to read (``paceline simulate --program --json``).

Names of tables and of their fields are a format that others read: docs/inside-a-run.md lists the tables, and a change of fields
raises :data:`SCHEMA_VERSION`. A field that is added to ``simulator.program.program`` is added here too
(tests/unit/test_program_printing.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from simulator.base.records import Place
from simulator.program.port_names import PortKind
from simulator.program.printing import NONE, Printed, device_ports
from simulator.program.program import Exchange, Feed, Program, Routine, exchanges_by_group, partition_of_each
from simulator.program.schedule import Needs

SCHEMA_VERSION = 1
"""Of the rows: a reader that knows another version knows other fields."""


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
        "lane": sum(len(exchange.path) for exchange in program.exchanges), "pipeline": len(program.feed) if program.feed is not None else 0,
    }  # fmt: skip
    yield {"schema_version": SCHEMA_VERSION, "table": "program", "scenario": printed.scenario, "rows": counts}
    means = {"forward_s": printed.forward_s, "backward_s": printed.backward_s, "apply_s": printed.apply_s, "input_s": printed.input_s}
    yield {"table": "means", **means}
    yield {"table": "transport", **program.transport.model_dump(mode="json")}
    yield {"table": "cores", **(asdict(program.cores) if program.cores is not None else {"number": None, "slice_s": None})}
    devices = {field.name: getattr(program.devices, field.name) for field in fields(program.devices)}
    yield {"table": "devices", **devices}
    yield {"table": "servers", "count": program.servers.count, "on_cores": program.servers.on_cores}
    yield {"table": "rules", **_rules_as_data(program)}
    if program.feed is not None:
        yield from _feed_rows(program.feed)
    yield from _port_rows(program)
    yield from _path_rows(program)
    yield from ({"table": "host", "number": number, "name": str(name)} for number, name in enumerate(program.hosts.names))
    seats = program.servers.seat.tolist()
    yield from ({"table": "server", "number": number, "seat": _there(seat)} for number, seat in enumerate(seats))
    yield from _rank_rows(printed)
    partition = partition_of_each(program)
    for number, (group, of) in enumerate(zip(program.groups, partition, strict=True)):
        over = _there(program.over[number]) if program.over else None
        yield {"table": "group", "number": number, "partition": of, "ranks": group.tolist(), "over": over}
    for number, routine in enumerate(program.routines):
        yield {"table": "routine", "number": number, "shuffled": list(routine.shuffled)}
        yield from _operation_rows(printed, number, routine)
    for of_group in exchanges_by_group(program):
        for bucket, exchange in enumerate(of_group):
            yield from _lane_rows(bucket, exchange)


def _there(number: int) -> int | None:
    return None if number == NONE else number


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _rules_as_data(program: Program) -> dict[str, Any]:
    rules = asdict(program.rules)
    if program.rules.updates is not None:
        rules["updates"] = {"kind": type(program.rules.updates).__name__.lower(), **rules["updates"]}
    if program.rules.reduction is not None:
        rules["reduction"]["most_bytes"] = _finite(program.rules.reduction.most_bytes)
    return rules


def _feed_rows(feed: Feed) -> Iterator[dict[str, Any]]:
    """A row a pipeline."""
    for number in range(len(feed)):
        amounts = [amount for amount in feed.amount[number].tolist() if amount]
        yield {
            "table": "pipeline", "number": number, "ranks": np.flatnonzero(feed.of_rank == number).tolist(), "prefetch": feed.prefetch,
            "own_s": float(feed.own_s[number]), "threads_s": [each for each in feed.work_s[number].tolist() if each],
            "paths": [path for path, amount in zip(feed.path[number].tolist(), feed.amount[number].tolist(), strict=True) if amount],
            "amounts": amounts,
        }  # fmt: skip


def _port_rows(program: Program) -> Iterator[dict[str, Any]]:
    ports, devices = program.ports, device_ports(program)
    whole, others = ports.whole.tolist(), ports.others.tolist()
    columns = zip(ports.capacity.tolist(), ports.ceiling.tolist(), ports.incast_loss.tolist(), ports.incast_flows.tolist(), strict=True)
    for number, (capacity, ceiling, loss, flows) in enumerate(columns):
        neighbours = {} if ports.nominal is None else {"nominal_bytes_per_s": whole[number], "background_flows": others[number]}
        works = number in devices or ports.names[number].kind in (PortKind.HOST_CORES, PortKind.SHARED_LINK)
        unit = "capacity" if works else "capacity_bytes_per_s"
        yield {
            "table": "port", "number": number, "name": str(ports.names[number]), "link": number < program.links, unit: capacity,
            "ceiling_bytes_per_s": _finite(ceiling), "incast_loss": loss, "incast_flows": flows, **neighbours,
        }  # fmt: skip


def _path_rows(program: Program) -> Iterator[dict[str, Any]]:
    paths = program.paths
    first, port = paths.first.tolist(), paths.port.tolist()
    columns = zip(paths.latency_s.tolist(), paths.source.tolist(), paths.target.tolist(), paths.asked_for.tolist(), strict=True)
    for number, (latency_s, source, target, asked_for) in enumerate(columns):
        yield {
            "table": "path", "number": number, "ports": port[first[number] : first[number + 1]], "latency_s": latency_s,
            "source": _there(source), "target": _there(target), "asked_for": asked_for,
        }  # fmt: skip


def _rank_rows(printed: Printed) -> Iterator[dict[str, Any]]:
    ranks = printed.program.ranks
    for number in range(len(ranks)):
        yield {
            "table": "rank", "number": number, "name": ranks.names[number], "device": int(ranks.device[number]),
            "copy": int(ranks.copy[number]), "routine": int(ranks.routine[number]), "seat": _there(int(ranks.seat[number])),
            "path": [_there(path) for path in ranks.path[number].tolist()],
            "peer": [_there(peer) for peer in ranks.peer[number].tolist()], "speed": float(printed.speed[number]),
        }  # fmt: skip


def _operation_rows(printed: Printed, number_of_routine: int, routine: Routine) -> Iterator[dict[str, Any]]:
    """Of each operation what its kind has; ``mean_s`` is that on a device of speed 1."""
    for number, operation in enumerate(routine.operations):
        row: dict[str, Any] = {"table": "operation", "routine": number_of_routine, "number": number}
        row |= {"kind": operation.kind, "name": operation.title, "after": list(operation.after)}
        row |= {name: str(value) if isinstance(value := getattr(operation, name), Place) else value for name in _OF_KIND[operation.kind]}
        if operation.kind == "compute":
            row["mean_s"] = printed.compute_s(operation)
        if operation.kind == "collective" and (how := printed.reduced.get(operation.size_bytes)) is not None:
            row |= how._asdict()
        yield row


def _lane_rows(bucket: int, exchange: Exchange) -> Iterator[dict[str, Any]]:
    """Of each lane of a bucket its messages, and what they need: ``slope * k + base`` of a lane's, for message k >= ``onward``."""
    tables = exchange.tables
    columns = zip(
        tables.source.tolist(), tables.target.tolist(), exchange.path.tolist(), tables.messages.tolist(), exchange.size_bytes.tolist(),
        tables.meeting.tolist(), strict=True
    )  # fmt: skip
    for lane, (source, target, path, messages, size_bytes, meeting) in enumerate(columns):
        yield {
            "table": "lane", "group": exchange.group, "bucket": bucket, "number": lane, "source": source, "target": target, "path": path,
            "messages": messages, "size_bytes": size_bytes, "awaits": _needed(tables.awaits, lane),
            "meets": _needed(tables.meets, lane) if meeting else None,
        }  # fmt: skip


def _needed(needs: Needs, lane: int) -> list[dict[str, int]]:
    some = slice(needs.start[lane], needs.start[lane + 1])
    columns = (column[some].tolist() for column in (needs.lane, needs.base, needs.slope, needs.onward))
    return [dict(zip(("lane", "base", "slope", "onward"), row, strict=True)) for row in zip(*columns, strict=True)]


_OF_KIND: dict[str, tuple[str, ...]] = {
    "gate": (),
    "compute": ("forward", "backward", "apply", "joins"),
    "send": ("slot", "size_bytes", "tensors", "source", "target", "departs", "lands", "feeds", "channel", "from_step"),
    "receive": ("channel", "from_step"),
    "serve": ("server", "tensor", "cost_s"),
    "collective": ("does", "partition", "bucket", "size_bytes", "every", "ready", "departs", "lands", "lasts_s", "moves_s"),
}
