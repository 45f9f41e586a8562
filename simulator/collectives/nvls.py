"""All-reduce by NVSwitches (NVLink SHARP): inside a node or island the switch adds, and sends copies of the sum.

Each device owns a part. Piece by piece all devices put out a part, the switch adds it and gives the sum to the owner
(``multimem.ld_reduce``); the owner puts it out again, and the switch sends it to all (``multimem.st``). So (g + 1) / g S leave and
reach each of g devices, and not 2 (g - 1) / g S one after the other as in a ring: S. Jeaugey, NVIDIA/nccl-tests issue 212. Between
nodes the owners of a part reduce it in a double binary tree (NCCL's NVLSTree), or the fabric's switches do (NVLS with CollNet); all
of it is one pipeline. NCCL: ``src/device/all_reduce.h``, ``src/transport/nvls.cc``. Times at once come from ``trial`` runs of the
messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache, partial

from simulator.collectives.aggregation import Trees, lanes_of_tree
from simulator.collectives.around import Times
from simulator.collectives.collective import Scheduled
from simulator.collectives.double_tree import parents
from simulator.collectives.exchanges import Plan
from simulator.collectives.trial import at_a_steady_pace_s, together_s
from simulator.collectives.wire import Wire
from simulator.program.schedule import Await, Lane, Schedule

_OUT, _SUM, _BACK, _BETWEEN, _COPY = 0, 1, 2, 4, 6
"""Numbers of lanes: parts to the switch, sums to their owners, and back (one a stripe), between owners (likewise), copies to all."""


def nvls_pieces(size_bytes: float, joined: int, chunk_bytes: float, stripes: int) -> int:
    """Pieces of each device's part: the fewest that are no larger than ``chunk_bytes``, as many for each of the ``stripes``."""
    return max(math.ceil(size_bytes / joined / stripes / chunk_bytes), 1) * stripes


def _stripes(ranks: int, joined: int, trees: Trees) -> int:
    """Two where owners reduce in a double binary tree: every other piece goes by the other tree."""
    return 2 if ranks > joined and not trees else 1


@lru_cache(maxsize=64)
def nvls_schedule(ranks: int, joined: int, pieces: int, trees: Trees = ()) -> Schedule:
    """Runs of ``joined`` ranks around a switch each, with a part of ``pieces`` parts for each of them.

    ``trees``: of the fabric's switches that add between nodes; empty: the owners of a part do in a double binary tree.
    """
    nodes = ranks // joined
    stripes = _stripes(ranks, joined, trees)
    lanes: dict[int, list[Lane]] = {rank: [] for rank in range(ranks + nodes)}
    next_switch = ranks + nodes
    for place in range(nodes):
        for lane in _to_owners(ranks + place, list(range(place * joined, (place + 1) * joined)), pieces):
            lanes[lane.source].append(lane)
    for column in range(joined):
        owners, done = list(range(column, ranks, joined)), [_own] * nodes
        if nodes > 1 and trees:
            tree = trees[column]
            before = [Await(ranks + place, _SUM, 1, 1) for place in range(nodes)]
            between = list(lanes_of_tree(tree, owners, next_switch, _BETWEEN, pieces, column * pieces, before))
            done = [partial(_of_switch, next_switch + leaf) for leaf in tree]
            next_switch += max(tree) + 1 + (max(tree) > 0)
        elif nodes > 1:
            between = [lane for stripe in range(2) for lane in _between_owners(owners, ranks, column, pieces, stripe)]
            above = [parents(nodes, stripe) for stripe in range(2)]
            done = [partial(_of_tree, place, owners, above) for place in range(nodes)]
        else:
            between = []
        for lane in between:
            lanes.setdefault(lane.source, []).append(lane)
        for place, owner in enumerate(owners):
            joined_ranks = range(place * joined, (place + 1) * joined)
            for lane in _to_all(owner, ranks + place, joined_ranks, column, pieces, stripes, done[place]):
                lanes[lane.source].append(lane)
    switches = next_switch - ranks
    return Schedule(ranks, joined * pieces, lambda member: tuple(lanes[member]), switches=switches)


def _own(switch: int, stripe: int, stripes: int) -> tuple[Await, ...]:
    """The sum of a node alone, of each piece of a stripe."""
    return (Await(switch, _SUM, stripe + 1, stripes),)


def _of_switch(leaf: int, switch: int, stripe: int, stripes: int) -> tuple[Await, ...]:  # noqa: ARG001 - as of a node alone
    """The sum of all nodes, from the fabric."""
    return (Await(leaf, _BETWEEN, 1, 1),)


def _of_tree(place: int, owners: list[int], above: list[list[int | None]], switch: int, stripe: int, stripes: int) -> tuple[Await, ...]:
    """The sum of all nodes: from the owner above, or at the root from those below and of its own node."""
    parent = above[stripe][place]
    if parent is not None:
        return (Await(owners[parent], _BETWEEN + stripe, 1, 1),)
    below = (Await(owners[child], _BETWEEN + stripe, 1, 1) for child, its in enumerate(above[stripe]) if its == place)
    return (*_own(switch, stripe, stripes), *below)


def _to_owners(switch: int, joined: list[int], pieces: int) -> Iterator[Lane]:
    """What the devices of a switch put out, the parts in turn, and the sum of each part to its owner."""
    count = len(joined)
    for rank in joined:
        yield Lane(rank, switch, _OUT, count * pieces, 1, partial(_in_turn, count, pieces), count * pieces)
    for column, owner in enumerate(joined):
        awaits = tuple(Await(rank, _OUT, column + 1, count) for rank in joined)
        yield Lane(switch, owner, _SUM, pieces, 1, (column * pieces).__add__, 0, awaits)


def _in_turn(count: int, pieces: int, index: int) -> int:
    return index % count * pieces + index // count


def _striped(first: int, stripe: int, stripes: int, index: int) -> int:
    return first + stripes * index + stripe


def _between_owners(owners: list[int], ranks: int, column: int, pieces: int, stripe: int) -> Iterator[Lane]:
    """One of the two trees between the owners of a part."""
    above, number = parents(len(owners), stripe), _BETWEEN + stripe
    messages = (pieces + 1 - stripe) // 2
    if not messages:
        return
    lane = partial(Lane, number=number, messages=messages, parts=1, first=partial(_striped, column * pieces, stripe, 2))
    for place, owner in enumerate(owners):
        below = tuple(Await(owners[child], number, 1, 1) for child, its in enumerate(above) if its == place)
        rises = (*_own(ranks + place, stripe, 2), *below)
        parent = above[place]
        if parent is not None:
            yield lane(source=owner, target=owners[parent], adding=messages, awaits=rises)
        falls = rises if parent is None else (Await(owners[parent], number, 1, 1),)
        for child, its in enumerate(above):
            if its == place:
                yield lane(source=owner, target=owners[child], adding=0, awaits=falls)


def _to_all(
    owner: int, switch: int, joined: range, column: int, pieces: int, stripes: int, done: Callable[[int, int, int], tuple[Await, ...]]
) -> Iterator[Lane]:
    """The sum of a part from its owner to its switch, and copies from there to all."""
    for stripe in range(stripes):
        messages = (pieces + stripes - 1 - stripe) // stripes
        if not messages:
            continue
        first = partial(_striped, column * pieces, stripe, stripes)
        back = _BACK + stripe
        yield Lane(owner, switch, back, messages, 1, first, 0, done(switch, stripe, stripes))
        for rank in joined:
            number = _COPY + stripes * column + stripe
            yield Lane(switch, rank, number, messages, 1, first, 0, (Await(owner, back, 1, 1),))


class Nvls(Scheduled):
    """From a trial run in which all ranks enter together; of many pieces only some are simulated, as in the double binary tree.

    Parameters
    ----------
    name, protocol, wire
        As in :class:`~simulator.collectives.collective.Scheduled`.
    trees
        Of the fabric's switches; empty where they do not add.
    chunk_bytes
        What a device owns is cut into the fewest equal pieces that are no larger.
    """

    _aligned = True

    def __init__(self, name: str, protocol: str, wire: Wire, trees: Trees, chunk_bytes: float) -> None:
        ranks, joined = len(wire.group), wire.group.neighbours
        self._shape = ranks, joined, trees
        self._stripes = _stripes(ranks, joined, trees)

        def schedule(size_bytes: float) -> Schedule:
            return nvls_schedule(ranks, joined, nvls_pieces(size_bytes, joined, chunk_bytes, self._stripes), trees)

        super().__init__(name, protocol, schedule, wire)
        self._chunk_bytes = chunk_bytes

    def _received_s(self, ready_s: Times, size_bytes: float, free_s: Times) -> Times:  # noqa: ARG002 - all enter at 0
        rounds = nvls_pieces(size_bytes, self._shape[1], self._chunk_bytes, self._stripes) // self._stripes
        return at_a_steady_pace_s(partial(self._trial_s, size_bytes / rounds), rounds, self._shape[0].bit_length())

    def _trial_s(self, round_bytes: float, rounds: int) -> Times:
        ranks, joined, trees = self._shape
        pieces = rounds * self._stripes
        return together_s(Plan(nvls_schedule(ranks, joined, pieces, trees), self._wire), rounds * round_bytes)
