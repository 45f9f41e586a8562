"""SimGrid as a peer for fabrics: every message of a collective, and what it waits for, over the same links.

Without latency, so that a message of a lane may begin when the one before it has arrived as
well as when it has left. Links, routes and messages are read from a plan's tables; shares,
and with them every time, are SimGrid's own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from oracles.collectives import dependencies
from simgrid_peer import COMPILER, OPTIONS

from simulator.collectives.wire import Plan, exchanges_of

SOURCE = Path(__file__).with_name("simgrid_graph.cpp")


class Message(NamedTuple):
    """Between which hosts, by which links, how many bytes, and after which other messages."""

    source: int
    target: int
    size_bytes: int
    before: tuple[int, ...]


class Graph(NamedTuple):
    """Bandwidths of links; the links between two hosts; messages, and to whom of which collective each matters."""

    links: list[float]
    routes: dict[tuple[int, int], tuple[int, ...]]
    messages: list[Message]
    hosts: int
    ends: list[list[list[int]]]
    """Of each collective and rank the messages that have ended when it has."""


def build(folder: Path) -> Path:
    """Compile the program that simulates a graph."""
    program = folder / "simgrid_graph"
    subprocess.run([str(COMPILER), "-O2", "-std=c++17", "-o", program, SOURCE, "-lsimgrid"], check=True)
    return program


def graph_of(plans: Sequence[Plan], size_bytes: float) -> Graph:
    """Collectives that begin together on one network; messages whose routes differ have hosts of their own."""
    cabling = plans[0].wire.fresh()
    exchanges = [exchanges_of(cabling, [plan], [size_bytes])[0] for plan in plans]
    ports, _, paths, _ = cabling.tables()
    routes: dict[tuple[int, int], tuple[int, ...]] = {}
    messages: list[Message] = []
    ends: list[list[list[int]]] = []
    for exchange in exchanges:
        tables = exchange.tables
        first = (len(messages) + np.cumsum([0, *tables.messages])).tolist()
        its: list[list[int]] = [[] for _ in range(tables.ranks)]
        for lane, path in enumerate(exchange.path.tolist()):
            # hosts stand for the two ends of one lane, since SimGrid has one route between two hosts
            source, target = 2 * len(routes), 2 * len(routes) + 1
            routes[source, target] = tuple(paths.port[paths.first[path] : paths.first[path + 1]].tolist())
            for index in range(int(tables.messages[lane])):
                before = [first[need] + number for need, number in dependencies(tables, lane, index)]
                before += [first[lane] + index - 1] if index else []
                messages.append(Message(source, target, round(float(exchange.size_bytes[lane])), tuple(before)))
            for end in (int(tables.source[lane]), int(tables.target[lane])):
                if end < tables.ranks:
                    its[end].append(len(messages) - 1)
        ends.append(its)
    return Graph(ports.capacity.tolist(), routes, messages, 2 * len(routes), ends)


def ends_s(program: Path, graph: Graph) -> list[list[float]]:
    """When each rank of each collective has ended, by SimGrid."""
    lines = [str(len(graph.links)), " ".join(map(repr, graph.links)), str(graph.hosts), str(len(graph.routes))]
    lines += [f"{source} {target} {len(links)} {' '.join(map(str, links))}" for (source, target), links in graph.routes.items()]
    lines.append(str(len(graph.messages)))
    lines += [f"{its.source} {its.target} {its.size_bytes} {len(its.before)} {' '.join(map(str, its.before))}" for its in graph.messages]
    answer = subprocess.run([program, *OPTIONS], input="\n".join(lines), text=True, capture_output=True, check=True)
    at_s = [float(line) for line in answer.stdout.split()]
    return [[max(at_s[number] for number in of_rank) for of_rank in ranks] for ranks in graph.ends]
