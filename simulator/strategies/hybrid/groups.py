"""The groups of ranks that meet in collectives where a model is cut, and how long these collectives take by themselves.

Ranks that split tensors go through each step in lock-step and count as one here (:mod:`simulator.resolve.drawing`), but for
:func:`tensor_groups`, which counts them one by one. The rest is a grid of stages by copies. All groups exchange at about the same time
during passes, so each gets a share of the links that several of them cross. All else shares links with what it meets there
(:func:`shared_links`). Groups of any program are in ``simulator.program.program``; a new kind (:data:`Among`) needs a name in laid.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Literal

import numpy as np

from simulator.base.rng import Streams
from simulator.collectives.collective import Collective
from simulator.collectives.factory import collective_for
from simulator.collectives.wire import Group
from simulator.program.program import Integers
from simulator.program.schedule import ALGORITHMS, Does
from simulator.program.wiring import Wiring
from simulator.spec.cluster import Cluster

Order = Literal["data", "pipeline"]
Among = Literal["pass", "context", "data", "shard", "across", "experts", "alike", "expert shard", "tied"]
"""With whom, seen from a rank. ``pass``: who goes through a pass in step with it; ``context``: those that split its sequences;
``data``: all copies of its stage; ``shard``: those
that share one copy of its state; ``across``: those that have the same part of that state; ``experts``: those that experts are spread
over; ``alike``: copies that have the same experts; ``expert shard``: those of them that share one copy of their state; ``tied``: the
stages of its copy of the model that have copies of the same variables."""


class Grid:
    """Ranks of stages by copies, where each device that has a part of a copy's sequences has a copy of the stage.

    Parameters
    ----------
    stages, copies
        How many.
    context
        Of these copies, neighbours that split sequences.
    order
        data: copies of a stage sit next to each other; pipeline: stages of a copy.
    shard
        Copies that share one state.
    expert
        Copies that experts are spread over.
    split
        Of these copies, neighbours that split each expert.
    tied
        Stages that have copies of the same variables.

    Attributes
    ----------
    rank
        Of each stage and copy, shape (stages, copies).
    """

    def __init__(
        self, stages: int, copies: int, context: int, order: Order, shard: int, expert: int, tied: Sequence[int] = (), split: int = 1
    ) -> None:
        ranks = np.arange(stages * copies)
        by_copy = ranks.reshape(-1, stages, context).swapaxes(0, 1)
        self.rank: Integers = (ranks if order == "data" else by_copy).reshape(stages, copies)
        self._context, self._shard, self._expert, self._split, self._tied = context, shard, expert, split, list(tied)

    def partition(self, among: Among) -> list[Integers]:
        """The groups that ranks are divided into."""
        if among != "tied":
            return [group for of_stage in self.groups(among) for group in of_stage]
        return [*self._both, *self.rank[[stage for stage in range(len(self.rank)) if stage not in self._tied]].reshape(-1, 1)]

    def groups(self, among: Among) -> list[list[Integers]]:
        """The groups of a partition that ranks of each stage are in."""
        if among == "tied":
            return [self._both if stage in self._tied else list(ranks.reshape(-1, 1)) for stage, ranks in enumerate(self.rank)]
        copies, shard, expert = self.rank.shape[1], self._shard, self._expert
        size, apart = {  # members of a group, and copies from one to the next
            "data": (copies, 1),
            "shard": (shard, 1),
            "across": (copies // shard, shard),
            "experts": (expert // self._split, self._split),
            "context": (self._context, 1),
            "pass": (math.lcm(expert, self._context), 1),
            "alike": (copies // expert, expert),
            "expert shard": (shard // expert, expert),
        }[among]
        return [list(ranks.reshape(-1, size, apart).swapaxes(1, 2).reshape(-1, size)) for ranks in self.rank]

    @property
    def _both(self) -> list[Integers]:
        """Of each copy the ranks of its tied stages."""
        return list(self.rank[self._tied].T)


class Timing:
    """How long collectives of groups take, if all ranks enter together.

    Parameters
    ----------
    cluster
        Its links.
    streams
        Choose routes.
    algorithm, protocol, chunk_bytes
        As of :func:`~simulator.collectives.factory.collective_for`; operations that have no such algorithm take their own.
    partition
        The groups by their name.
    of_experts
        In place of this for what experts exchange, where not all devices that are one rank split each of them: that of single devices;
        and how many are one.
    """

    def __init__(
        self,
        cluster: Cluster,
        streams: Streams,
        algorithm: str,
        protocol: str,
        chunk_bytes: float,
        partition: Callable[[Any], Sequence[Integers]],
        of_experts: tuple[Timing, int] | None = None,
    ) -> None:
        self._of_experts = of_experts
        self._cluster, self._fresh = cluster, partial(Wiring, cluster, streams)
        self._algorithm, self._protocol, self._chunk_bytes = algorithm, protocol, chunk_bytes
        self._partition, self._collectives, self.seconds = cache(partition), cache(self._of_shapes), cache(self._seconds)

    def _seconds(self, among: str | int, does: Does, size_bytes: float, *, beside: bool = False) -> float:
        """How long the slowest of some groups takes.

        It has the links to itself, or runs ``beside`` all others of its shape, which do the same at the same time.
        """
        if (devices := self._devices(among)) is not None:
            return devices[0].seconds(among, does, size_bytes / devices[1], beside=beside)
        if len(self._partition(among)[0]) == 1 or not size_bytes:
            return 0.0
        return max(collective.duration_s(size_bytes) for collective in self._collectives(among, does, beside))

    def moves_s(self, among: str | int, does: Does, size_bytes: float) -> float:
        """Of these seconds, those in which it needs the busiest of its links."""
        if (devices := self._devices(among)) is not None:
            return devices[0].moves_s(among, does, size_bytes / devices[1])
        least_s = max(collective.least_s(size_bytes) for collective in self._collectives(among, does, False))
        return min(least_s, self.seconds(among, does, size_bytes))

    def _devices(self, among: str | int) -> tuple[Timing, int] | None:
        return self._of_experts if among in ("experts", "alike", "expert shard") else None

    def _of_shapes(self, among: str | int, does: Does, beside: bool) -> list[Collective]:
        """One per shape of groups, alone or with all others of that shape on the same nodes."""
        per_node, joined = self._cluster.replicas_per_node, self._cluster.replicas_joined
        shaped: dict[tuple[int, int], list[Group]] = {}
        for ranks in self._partition(among):
            group = Group(tuple(ranks.tolist()), tuple((ranks // joined).tolist()))
            shaped.setdefault((group.neighbours, len(set(group.nodes))), []).append(group)
        has = ALGORITHMS[does]
        algorithm = self._algorithm if self._algorithm in (*has, "auto") else has[0]
        on = {id(group): set((group.numbers // per_node).tolist()) for same in shaped.values() for group in same}
        return [
            collective_for(
                algorithm,
                self._protocol,
                self._cluster,
                same[0],
                self._fresh,
                self._chunk_bytes,
                operation=does,
                beside=tuple(other for other in same[1:] if beside and not on[id(other)].isdisjoint(on[id(same[0])])),
            )
            for same in shaped.values()
        ]


def shared_links(wiring: Wiring, groups: Sequence[Integers], kinds: Sequence[tuple[int, Among]]) -> list[list[int]]:
    """Of each group the links that it shares with others: those that neighbours in its order cross.

    Links that the same groups share are one. Operations of a stage between all copies and between those with the same experts alternate,
    and those of tied stages come later, so they do not compete for these links.

    Parameters
    ----------
    wiring
        Without paths yet.
    groups
        Ranks, in order.
    kinds
        Of each its stage, and with whom it is.
    """
    at = [number for number, ranks in enumerate(groups) if len(ranks) > 1 and kinds[number][1] != "pass"]
    users: dict[int, set[int]] = {}
    if at:
        source = np.concatenate([groups[number] for number in at])
        target = np.concatenate([np.roll(groups[number], -1) for number in at])
        wiring.between_replicas(source, target)
        _, links, paths, _ = wiring.tables()
        group = np.repeat(np.repeat(at, [len(groups[number]) for number in at]), np.diff(paths.first))
        for port, number in set(zip(paths.port.tolist(), group.tolist(), strict=True)):
            if port < links:
                users.setdefault(port, set()).add(number)
    links_of: list[list[int]] = [[] for _ in groups]
    several = {tuple(sorted(sharing)) for sharing in users.values() if _may_meet([kinds[number] for number in sharing])}
    for link, sharing in enumerate(sorted(several)):
        for number in sharing:
            links_of[number].append(link)
    return links_of


def _may_meet(kinds: Sequence[tuple[int, Among]]) -> bool:
    """Tell whether some of the groups may go on at the same time."""
    turns = {(stage, among == "across") for stage, among in kinds if among != "tied"}
    return len(turns) > 1 or len(set(kinds)) < len(kinds)


def tensor_groups(cluster: Cluster, tensor: int) -> list[Integers]:
    """The groups that split tensors on the first nodes that hold whole ones."""
    ranks = np.arange(max(tensor, cluster.replicas_per_node // tensor * tensor))
    return list(ranks.reshape(-1, tensor))
