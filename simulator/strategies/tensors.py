"""The messages of a step between workers and parameter servers: variables and gradients, cut into shards, placed and grouped.

Rules of cutting and placing are in ``simulator.spec.gradients``; parameter_server.py makes operations of the messages, and
tests/oracles/programs holds programs to them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar

from simulator.spec.gradients import Compression, Partitioner, Placement, place, shards_of
from simulator.strategies.setup import Setup


@dataclass(frozen=True, slots=True)
class Gradient:
    """One message to a server: a gradient tensor, a shard of one, or all for that server.

    Attributes
    ----------
    index
        Its number, from 0, in the order in which gradients become ready.
    server
        Where it goes.
    size_bytes
        What travels.
    cost_s
        Service time there, to apply it or add it to others.
    whole_bytes
        What is served: as much as travels, or what compression has made of it.
    unpack_s
        Time there to make it whole again.
    tensors
        Of the model, that go as one.
    """

    index: int
    server: int
    size_bytes: float
    cost_s: float
    whole_bytes: float
    unpack_s: float = 0.0
    tensors: float = 1.0


@dataclass(frozen=True, slots=True)
class Variable:
    """One message from a server: the value of a variable, of a shard of one, or of all that it holds."""

    index: int
    server: int
    size_bytes: float
    tensors: float = 1.0


Cut = tuple[float, Collection[int]]
"""A point of a pass, as a share of it, and the messages that go (or must have come) there."""


@dataclass(frozen=True)
class Tensors:
    """All messages of a step.

    Attributes
    ----------
    gradients
        In the order in which they become ready.
    backward
        Shares of the backward pass, rising, with the gradients ready then.
    variables
        In the order in which the forward pass needs them.
    forward
        Shares of the forward pass, rising, with the variables needed to go on from there.
    """

    gradients: tuple[Gradient, ...]
    backward: tuple[Cut, ...]
    variables: tuple[Variable, ...]
    forward: tuple[Cut, ...]


class Cutting(NamedTuple):
    """How variables are cut, placed and sent; as in :class:`simulator.strategies.parameter_server.ParameterServer`."""

    servers: int
    partitioner: Partitioner | None
    variable_placement: Placement
    pulls: Literal["forward", "random", "together"]
    compression: Compression | None = None


def tensors_of(setup: Setup, cutting: Cutting) -> Tensors:
    """Cut, place and group the variables of a training.

    A variable is needed in the forward pass where the backward pass would produce its
    gradient if it ran the other way: at share 1 - ready.
    """
    load, batch = setup.workload, setup.batch
    whole = [each for variable in load.variables for each in variable.each]
    shards = [shards_of(variable, cutting.partitioner) for variable in whole]
    created = sorted(range(len(shards)), key=lambda number: whole[number].creation_index)
    by_traffic = cutting.variable_placement == "traffic"
    loads = [its.pull_bytes(batch) + its.gradient_bytes(batch) if by_traffic else its.size_bytes for its in whole]
    placed = iter(
        place([share * loads[number] for number in created for share in shards[number]], cutting.servers, cutting.variable_placement)
    )
    homes = {number: [next(placed) for _ in shards[number]] for number in created}
    gradients: list[Gradient] = []
    ready_at: list[float] = []
    variables: list[Variable] = []
    last = whole[-1].ready
    for number, variable in enumerate(whole):
        # the last gradient ends the backward pass, whatever the clock of the measurement said
        ready = 1.0 if variable.ready == last else variable.ready
        for share, server in zip(shards[number], homes[number], strict=True):
            size = variable.gradient_bytes(batch) * share
            sent, unpack_s = size, 0.0
            if (compression := cutting.compression) is not None:
                sent = math.fsum(compression.sent_bytes(variable, batch)) * share
                unpack_s = compression.decompress_s((variable,), None) * share
            gradients.append(Gradient(len(gradients), server, sent, load.server(size), size, unpack_s))
            variables.append(Variable(len(variables), server, variable.pull_bytes(batch) * share))
            ready_at.append(ready)
    if setup.run.grouping == "per-server":
        gradients = [
            Gradient(
                index,
                server,
                math.fsum(g.size_bytes for g in its),
                math.fsum(g.cost_s for g in its),
                math.fsum(g.whole_bytes for g in its),
                math.fsum(g.unpack_s for g in its),
                math.fsum(g.tensors for g in its),
            )
            for index, (server, its) in enumerate(_by_server(gradients).items())
        ]
        ready_at = [1.0] * len(gradients)
    order = cutting.pulls
    if setup.run.grouping == "per-server" or order == "together":
        variables = [
            Variable(index, server, math.fsum(v.size_bytes for v in its), math.fsum(v.tensors for v in its))
            for index, (server, its) in enumerate(_by_server(variables).items())
        ]
        needed_at = [0.0] * len(variables)
    else:
        first = load.first_pass(batch)  # of several micro-batches, the first needs them
        needed_at = [(1.0 - ready) * first for ready in reversed(ready_at)]
        needed_at[0] = 0.0  # the first layer begins the pass
        needed = list(zip(needed_at, reversed(variables), strict=True))
        if (order == "forward" or len(set(needed_at)) == 1) and _alike_in_one_message(setup):
            needed = _together(needed)
        variables = [replace(variable, index=index) for index, (_, variable) in enumerate(needed)]
        needed_at = [share for share, _ in needed]
    forward = tuple((share, frozenset(indices)) for share, indices in _cuts(needed_at))
    return Tensors(tuple(gradients), _cuts(ready_at), tuple(variables), forward)


def traffic_of(tensors: Tensors, servers: int) -> list[float]:
    """Bytes that a step of one worker pulls from each server and pushes to it."""
    traffic = [0.0] * servers
    for variable in tensors.variables:
        traffic[variable.server] += variable.size_bytes
    for gradient in tensors.gradients:
        traffic[gradient.server] += gradient.size_bytes
    return traffic


def _alike_in_one_message(setup: Setup) -> bool:
    """Whether variables of one server, all needed at once, have come when one message with all of them would have."""
    transport = setup.cluster.transport
    return transport.discipline == "fair" and not transport.works_on_messages and setup.cluster.host_link is None


def _together(needed: Iterable[tuple[float, Variable]]) -> list[tuple[float, Variable]]:
    """Variables of one server that are needed at the same point, as one message."""
    sizes: dict[tuple[float, int], float] = {}
    for share, variable in needed:
        key = share, variable.server
        sizes[key] = sizes.get(key, 0.0) + variable.size_bytes
    return [(share, Variable(0, server, size)) for (share, server), size in sizes.items()]


Message = TypeVar("Message", Gradient, Variable)


def _by_server(messages: Iterable[Message]) -> dict[int, list[Message]]:
    """What each server has, servers in the order of their first."""
    found: dict[int, list[Message]] = {}
    for message in messages:
        found.setdefault(message.server, []).append(message)
    return found


def _cuts(shares: Iterable[float]) -> tuple[tuple[float, tuple[int, ...]], ...]:
    """Messages by the share of a pass that they belong to."""
    cuts: dict[float, list[int]] = {}
    for index, share in enumerate(shares):
        cuts.setdefault(share, []).append(index)
    return tuple((share, tuple(indices)) for share, indices in cuts.items())
