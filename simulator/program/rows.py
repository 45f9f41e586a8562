"""A program as JSON rows, for other programs to read (``paceline simulate --program --json``).

Names of tables and of their fields are a format that others read: a change of fields raises :data:`SCHEMA_VERSION`. A field that is
added to ``simulator.program.program`` is added here too (tests/unit/test_program_printing.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from simulator.base.records import Place
from simulator.program.port_names import PortKind
from simulator.program.printing import NONE, Printed, device_ports
from simulator.program.program import Integers, Program, Routine, exchanges_by_group, partition_of_each
from simulator.program.schedule import Needs

SCHEMA_VERSION = 1
"""Of the rows: a reader that knows another version knows other fields."""


def rows_of(printed: Printed) -> Iterator[dict[str, Any]]:
    """All of a program, row by row; each names its ``table``, and the first counts the rows of all.

    Numbers refer to rows of other tables by their ``number``. Units are in the names;
    without one, ``capacity`` is in seconds of work a second. None means absent or unlimited.
    """
    program, ranks, paths, feed = printed.program, printed.program.ranks, printed.program.paths, printed.program.feed
    operations = sum(len(routine.operations) for routine in program.routines)
    counts = {
        "port": len(program.ports.capacity), "path": len(paths), "host": program.hosts.count, "server": program.servers.count,
        "rank": len(ranks), "group": len(program.groups), "routine": len(program.routines), "operation": operations,
        "lane": sum(len(exchange.path) for exchange in program.exchanges), "pipeline": len(feed) if feed is not None else 0,
    }  # fmt: skip
    yield {"schema_version": SCHEMA_VERSION, "table": "program", "scenario": printed.scenario, "rows": counts}
    means = {"forward_s": printed.forward_s, "backward_s": printed.backward_s, "apply_s": printed.apply_s, "input_s": printed.input_s}
    yield {"table": "means", **means}
    yield {"table": "transport", **program.transport.model_dump(mode="json")}
    yield {"table": "cores", **(asdict(program.cores) if program.cores is not None else {"number": None, "slice_s": None})}
    yield {"table": "devices", **asdict(program.devices)}
    yield {"table": "servers", "count": program.servers.count, "on_cores": program.servers.on_cores}
    yield {"table": "rules", **_rules_as_data(program)}
    if feed is not None:
        used = [amounts != 0 for amounts in feed.amount]
        yield from _rows(
            "pipeline", ranks=[np.flatnonzero(feed.of_rank == number).tolist() for number in range(len(feed))],
            prefetch=[feed.prefetch] * len(feed), own_s=feed.own_s.tolist(),
            threads_s=[threads[threads != 0].tolist() for threads in feed.work_s],
            paths=[crossed[some].tolist() for crossed, some in zip(feed.path, used, strict=True)],
            amounts=[amounts[some].tolist() for amounts, some in zip(feed.amount, used, strict=True)],
        )  # fmt: skip
    yield from _port_rows(program)
    yield from _rows(
        "path", ports=[ports.tolist() for ports in np.split(paths.port, paths.first[1:-1])] if len(paths) else [],
        latency_s=paths.latency_s.tolist(), source=_there(paths.source), target=_there(paths.target), asked_for=paths.asked_for.tolist(),
    )  # fmt: skip
    yield from _rows("host", name=map(str, program.hosts.names))
    yield from _rows("server", seat=_there(program.servers.seat))
    yield from _rows(
        "rank", name=ranks.names, device=ranks.device.tolist(), copy=ranks.copy.tolist(), routine=ranks.routine.tolist(),
        seat=_there(ranks.seat), path=map(_there, ranks.path), peer=map(_there, ranks.peer), speed=printed.speed.tolist(),
    )  # fmt: skip
    over = _there(np.array(program.over)) if program.over else [None] * len(program.groups)
    yield from _rows("group", partition=partition_of_each(program), ranks=[group.tolist() for group in program.groups], over=over)
    for number, routine in enumerate(program.routines):
        yield {"table": "routine", "number": number, "shuffled": list(routine.shuffled)}
        yield from _operation_rows(printed, number, routine)
    for of_group in exchanges_by_group(program):
        for bucket, exchange in enumerate(of_group):
            tables = exchange.tables
            meets = _needed(tables.meets)
            yield from _rows(
                "lane", {"group": exchange.group, "bucket": bucket}, source=tables.source.tolist(), target=tables.target.tolist(),
                path=exchange.path.tolist(), messages=tables.messages.tolist(), size_bytes=exchange.size_bytes.tolist(),
                awaits=_needed(tables.awaits), meets=[row if meeting else None for row, meeting in zip(meets, tables.meeting, strict=True)],
            )  # fmt: skip


def _rows(table: str, of: Mapping[str, int] = MappingProxyType({}), **columns: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Rows of some columns; ``of``: what all of them belong to."""
    for number, values in enumerate(zip(*columns.values(), strict=True)):
        yield {"table": table, **of, "number": number, **dict(zip(columns, values, strict=True))}


def _there(numbers: Integers) -> list[int | None]:
    return [None if number == NONE else number for number in numbers.tolist()]


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
    ports, devices = program.ports, device_ports(program)
    columns = ports.capacity, ports.ceiling, ports.incast_loss, ports.incast_flows, ports.whole, ports.others
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for number, (capacity, ceiling, loss, flows, whole, others) in enumerate(rows):
        works = number in devices or ports.names[number].kind in (PortKind.HOST_CORES, PortKind.SHARED_LINK)
        yield {
            "table": "port", "number": number, "name": str(ports.names[number]), "link": number < program.links,
            "capacity" if works else "capacity_bytes_per_s": capacity, "ceiling_bytes_per_s": _finite(ceiling), "incast_loss": loss,
            "incast_flows": flows, **({} if ports.nominal is None else {"nominal_bytes_per_s": whole, "background_flows": others}),
        }  # fmt: skip


def _operation_rows(printed: Printed, number_of_routine: int, routine: Routine) -> Iterator[dict[str, Any]]:
    """Fields of each operation, depending on its kind; ``mean_s`` is that on a device of speed 1."""
    for number, operation in enumerate(routine.operations):
        row: dict[str, Any] = {"table": "operation", "routine": number_of_routine, "number": number}
        row |= {"kind": operation.kind, "name": operation.title, "after": list(operation.after)}
        row |= {name: str(value) if isinstance(value := getattr(operation, name), Place) else value for name in _OF_KIND[operation.kind]}
        if operation.kind == "compute":
            row["mean_s"] = printed.compute_s(operation)
        if operation.kind == "collective" and (how := printed.reduced.get(operation.size_bytes)) is not None:
            row |= how._asdict()
        yield row


def _needed(needs: Needs) -> list[list[dict[str, int]]]:
    """Return what each lane's messages need: ``slope * k + base`` of a lane's, for message k >= ``onward``."""
    names = "lane", "base", "slope", "onward"
    rows = [dict(zip(names, row, strict=True)) for row in zip(*(getattr(needs, name).tolist() for name in names), strict=True)]
    return [rows[first:last] for first, last in pairwise(needs.start.tolist())]


_OF_KIND: dict[str, tuple[str, ...]] = {
    "gate": (),
    "compute": ("forward", "backward", "apply", "joins"),
    "send": ("slot", "size_bytes", "tensors", "source", "target", "departs", "lands", "feeds", "channel", "from_step"),
    "receive": ("channel", "from_step"),
    "serve": ("server", "tensor", "cost_s"),
    "collective": ("does", "partition", "bucket", "size_bytes", "every", "ready", "departs", "lands", "lasts_s", "moves_s"),
}
