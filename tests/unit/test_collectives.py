"""Schedules that are all-reduces, protocols, the choice of the fastest, and what ports carry."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.collectives import dependencies, end_of, least_shares, shares, start_of, stuck
from support.examples import examples
from support.networks import CLUSTER, INTER, by_messages, collective, meshed, running, switched

from simulator.base.records import Place, Transfer
from simulator.collectives.factory import IN_SWITCHES, collective_for
from simulator.collectives.pairwise import direct_schedule, halving_doubling_schedule
from simulator.collectives.rings import hierarchical_schedule, ring_schedule
from simulator.collectives.switches import nvls_schedule, sharp_schedule
from simulator.collectives.trees import double_tree_schedule, hierarchical_copy_schedule, parents, reduce_to_one_schedule
from simulator.collectives.wire import Group, Plan
from simulator.engine.textbook.clock import Busy
from simulator.program.schedule import ALGORITHMS, Await, Lane, Schedule, columns, flattened, whole_buffer


def hierarchical(per_node: int):
    return lambda ranks: hierarchical_schedule(ranks, Group.in_order(ranks, per_node).neighbours)


def _leaves(ranks: int, joined: int, per_leaf: int):
    """The trees of a fabric of whole nodes, and of what is left of the last one."""
    joined = joined if ranks % joined == 0 else 1
    return (tuple(node // per_leaf for node in range(ranks // joined)),) * joined


def rails(joined: int, operation="all-reduce"):
    def schedule(ranks: int) -> Schedule:
        rails = joined if ranks % joined == 0 else 1
        return ring_schedule(ranks, operation, joined=rails, rails=rails)

    return schedule


def added_by_fabric(joined: int, per_leaf: int, pieces: int):
    return lambda ranks: sharp_schedule(ranks, _leaves(ranks, joined, per_leaf), pieces)


def added_by_both(joined: int, per_leaf: int, pieces: int):
    def schedule(ranks: int) -> Schedule:
        trees = _leaves(ranks, joined, per_leaf)
        return nvls_schedule(ranks, len(trees), pieces, trees)

    return schedule


SCHEDULES = {
    "ring": ("all-reduce", ring_schedule),
    "bidirectional ring": ("all-reduce", lambda ranks: ring_schedule(ranks, both=True)),
    "halving and doubling": ("all-reduce", halving_doubling_schedule),
    "hierarchical by 2": ("all-reduce", hierarchical(2)),
    "hierarchical by 3": ("all-reduce", hierarchical(3)),
    "hierarchical by 8": ("all-reduce", hierarchical(8)),
    "double tree of 1": ("all-reduce", lambda ranks: double_tree_schedule(ranks, 1)),
    "double tree of 3": ("all-reduce", lambda ranks: double_tree_schedule(ranks, 3)),
    "to one device": ("all-reduce", reduce_to_one_schedule),
    "hierarchical copy": ("all-reduce", hierarchical_copy_schedule),
    "ring, scattering": ("reduce-scatter", lambda ranks: ring_schedule(ranks, "reduce-scatter")),
    "both rings, scattering": ("reduce-scatter", lambda ranks: ring_schedule(ranks, "reduce-scatter", both=True)),
    "ring, gathering": ("all-gather", lambda ranks: ring_schedule(ranks, "all-gather")),
    "both rings, gathering": ("all-gather", lambda ranks: ring_schedule(ranks, "all-gather", both=True)),
    "direct": ("all-to-all", direct_schedule),
    "a ring a rail": ("all-reduce", rails(2)),
    "a ring a rail, scattering": ("reduce-scatter", rails(3, "reduce-scatter")),
    "a ring a rail, gathering": ("all-gather", rails(2, "all-gather")),
    "switches, one leaf": ("all-reduce", added_by_fabric(1, 8, 2)),
    "switches, several leaves": ("all-reduce", added_by_fabric(1, 2, 3)),
    "switches of several leaves, rings inside": ("all-reduce", added_by_fabric(3, 2, 2)),
    "NVSwitch": ("all-reduce", lambda ranks: nvls_schedule(ranks, ranks, 3)),
    "NVSwitches and those of the fabric": ("all-reduce", added_by_both(2, 2, 3)),
}


class Transfers:
    def __init__(self) -> None:
        self.transfers: list = []

    def record(self, record) -> None:
        if isinstance(record, Transfer):
            self.transfers.append(record)


def carry_out(operation: str, schedule: Schedule, seed: int) -> None:
    """Deliver messages in a random order, as late as the schedule lets them be, and see what becomes of each rank's data.

    A rank's buffer holds, for each part, how often each rank's contribution is in it.
    """
    rng, ranks = random.Random(seed), schedule.members
    lanes = list(schedule.lanes())
    ids = {(lane.source, lane.target, lane.number): lane for lane in lanes}
    assert len(ids) == len(lanes)
    data = start_of(operation, schedule)
    counts, holds = end_of(operation, schedule)
    sent = dict.fromkeys(ids, 0)
    received = dict.fromkeys(ids, 0)
    on_the_way: dict[tuple[int, int, int], deque] = {key: deque() for key in ids}
    incoming = [sum(lane.messages for lane in lanes if lane.target == rank) for rank in range(schedule.members)]
    ready = set()

    def has(rank, awaits, index):
        return rank in ready and all(received[each.source, rank, each.number] >= each.messages(index) for each in awaits)

    moves = [("ready", rank) for rank in range(ranks)] + [(what, key) for key in ids for what in ("send", "arrive")]
    while True:
        rng.shuffle(moves)
        moved = False
        for what, key in moves:
            if what == "ready":
                moved |= key not in ready
                ready.add(key)
            elif what == "send" and sent[key] < ids[key].messages:
                lane, index = ids[key], sent[key]
                if has(key[0], lane.awaits, index) and (lane.meets is None or has(key[1], lane.meets, index)):
                    message = lane.message(index)
                    on_the_way[key].append((message, data[key[0], message.first : message.last].copy()))
                    sent[key] += 1
                    moved = True
            elif what == "arrive" and on_the_way[key] and rng.random() < 0.7:
                message, content = on_the_way[key].popleft()
                target = data[key[1]]
                if message.adds:
                    target[message.first : message.last] += content
                else:
                    target[message.first : message.last] = content
                assert target.max() <= 1, "a contribution was counted twice"
                received[key] += 1
                incoming[key[1]] -= 1
                rank = key[1]
                assert incoming[rank] or np.array_equal(target[counts[rank]], holds[rank][counts[rank]]), "all was received, not as wanted"
                moved = True
            else:
                moved |= bool(what == "arrive" and on_the_way[key])
        if not moved:
            break
    assert all(sent[key] == lane.messages for key, lane in ids.items()), "a message was never sent"
    assert incoming == [0] * ranks
    assert np.array_equal(data[counts], holds[counts])


SOME = (*range(1, 10), 12, 13, 16, 17)


@pytest.mark.slow
@pytest.mark.parametrize("counts", [SOME, pytest.param(range(10, 34), marks=pytest.mark.long)], ids=["some", "many"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_contribution_reaches_whom_it_must_once(name, counts):
    operation, build = SCHEDULES[name]
    for ranks in counts:
        if ranks < 18 or operation != "all-to-all":
            carry_out(operation, build(ranks), seed=ranks)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_obey_the_laws_that_need_no_run(name):
    operation, build = SCHEDULES[name]
    for ranks in (*range(1, 20), 32, 48, 63):
        schedule = build(ranks)
        traffic, least = shares(schedule), least_shares(operation, ranks)
        assert traffic.sent.sum() == pytest.approx(traffic.received.sum())
        assert traffic.sent.sum() >= least.total * (1 - 1e-12)
        assert np.all(traffic.sent[:ranks] >= least.sent * (1 - 1e-12))
        assert np.all(traffic.received[:ranks] >= least.received * (1 - 1e-12))
        if operation == "all-reduce":
            assert np.all((traffic.sent + traffic.received)[:ranks] >= 2 * (ranks - 1) / ranks)
        assert stuck(schedule) == 0


def test_a_cycle_is_found():
    """Two ranks that each wait for the other's message first."""
    ring = ring_schedule(2)

    def lanes(rank):
        return tuple(replace(lane, awaits=(lane.awaits[0]._replace(base=1),)) for lane in ring.lanes_from(rank))

    assert stuck(replace(ring, lanes_from=lanes)) == 4


@pytest.mark.slow
@examples(100)
@given(st.sampled_from(sorted(SCHEDULES)), st.integers(1, 40))
def test_tables_say_what_the_schedule_says(name, ranks):
    """Message for message: sizes, what is awaited and what is met."""
    schedule = SCHEDULES[name][1](ranks)
    assume(ranks > 1 or not schedule.switches)
    tables, lanes = flattened(schedule), list(schedule.lanes())
    assert len(lanes) == len(tables.source)
    ids = {(lane.source, lane.target, lane.number): index for index, lane in enumerate(lanes)}
    for at, lane in enumerate(lanes):
        assert tables.out[lane.source] <= at < tables.out[lane.source + 1]
        assert (tables.source[at], tables.target[at], tables.number[at]) == (lane.source, lane.target, lane.number)
        assert (tables.messages[at], tables.meeting[at]) == (lane.messages, lane.meets is not None)
        for index in range(lane.messages):
            message = lane.message(index)
            assert tables.each[at] == message.last - message.first
            awaited = [(ids[one.source, lane.source, one.number], one.messages(index) - 1) for one in lane.awaits]
            met = [(ids[one.source, lane.target, one.number], one.messages(index) - 1) for one in lane.meets or ()]
            assert dependencies(tables, at, index) == [need for need in (*awaited, *met) if need[1] >= 0]
    assert tables.incoming.tolist() == [sum(lane.messages for lane in lanes if lane.target == rank) for rank in range(schedule.members)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_one_rank_has_nothing_to_say(name):
    schedule = SCHEDULES[name][1](1)
    # switches that add are asked by several alone; there is no reduction with one
    assert schedule.switches or not [lane for lane in schedule.lanes() if lane.messages]


@pytest.mark.parametrize("ranks", [2, 4, 8, 32])
@pytest.mark.parametrize("name", ["ring", "bidirectional ring", "halving and doubling"])
def test_each_rank_sends_the_least_there_is_to_send(name, ranks):
    assert shares(SCHEDULES[name][1](ranks)).sent == pytest.approx(np.full(ranks, 2 * (ranks - 1) / ranks))


@pytest.mark.parametrize("ranks", range(1, 34))
def test_the_two_trees(ranks):
    """Binary, of logarithmic height, and nobody has children in both."""
    interior = []
    for tree in (0, 1):
        above = parents(ranks, tree)
        assert above.count(None) == 1
        assert max((above.count(rank) for rank in range(ranks)), default=0) <= 2
        interior.append({parent for parent in above if parent is not None})
        for rank in range(ranks):
            height = 0
            while above[rank] is not None:
                rank, height = above[rank], height + 1
            assert height <= ranks.bit_length() - 1
    assert not interior[0] & interior[1]


@pytest.mark.parametrize("algorithm", ["ring", "bidirectional-ring", "halving-doubling", "hierarchical", "double-binary-tree", "auto"])
def test_one_rank_takes_no_time(algorithm):
    some = collective(algorithm, 1, switched())
    assert some.finish_s(np.array([3.0]), 1e6).tolist() == [3.0]
    assert some.duration_s(1e6) == 0.0
    some.watch(1e6)
    assert list(some.use.names) == []
    assert not some.aligned
    assert by_messages(some, np.array([3.0]), 1e6).tolist() == [3.0]


@pytest.mark.parametrize("protocol", ["ll", "ll128", "simple"])
def test_a_protocol_costs_latency_and_bytes(protocol):
    terms = getattr(CLUSTER.protocols, protocol)
    rate, latency_s = INTER
    size, steps = 3e6, 2 * 3
    some = collective("ring", 4, switched(), protocol=protocol)
    want_s = steps * (latency_s + terms.latency_s) + steps / 4 * size * terms.wire_bytes_per_byte / rate
    assert some.duration_s(size) == pytest.approx(want_s, rel=1e-12)
    inside = collective("ring", 4, switched(4), 4, protocol)
    assert inside.duration_s(1e-3) == pytest.approx(steps * (5e-6 + terms.intra_node_latency_s), rel=1e-6)


def test_auto_takes_the_fastest_of_each_size():
    names = ("ring", "halving-doubling", "double-binary-tree")
    auto, *others = (collective(name, 16, switched()) for name in ("auto", *names))
    for size in (1e3, 1e5, 1e7, 1e9):
        middle = 1.5 * 2.0 ** np.floor(np.log2(size))
        durations = {other.choice(size).algorithm: other.duration_s(middle) for other in others}
        assert auto.choice(size).algorithm == min(durations, key=durations.get)
        assert auto.duration_s(size) == dict(zip(names, others, strict=True))[auto.choice(size).algorithm].duration_s(size)


def test_auto_takes_the_protocol_of_least_latency_for_small_buffers_and_of_fewest_bytes_for_large_ones():
    some = collective("auto", 8, switched(), protocol="auto")
    assert some.choice(1e2).protocol == "ll"
    assert some.choice(1e9).protocol == "simple"


def test_auto_says_whether_ranks_entered_together():
    some = collective("auto", 8, meshed())
    assert not some.aligned
    tree = next(size for size in 2.0 ** np.arange(10, 31) if some.choice(size).aligned)
    assert some.choice(tree).algorithm == "double-binary-tree"
    assert some.aligned


@pytest.mark.parametrize(("ranks", "per_node"), [(8, 1), (8, 4), (6, 1)])
@pytest.mark.parametrize(
    "algorithm", ["ring", "bidirectional-ring", "halving-doubling", "hierarchical", "double-binary-tree", "hierarchical-copy"]
)
def test_ports_carry_as_much_at_once_as_by_messages(algorithm, ranks, per_node):
    fresh = switched(per_node)
    some = collective(algorithm, ranks, fresh, per_node, "ll")
    size = 4e6
    _, ports = running([[some.plan(size)]], [size])
    some.account(size)
    by_name = {port.name: port for port in ports}
    use = some.use
    for name, used_s, carried, busy_s in zip(use.names, use.seconds.tolist(), use.carried.tolist(), use.busy_s.tolist(), strict=True):
        port = by_name.pop(name)
        assert carried == pytest.approx(port.carried_bytes)
        assert used_s == carried / port.capacity <= busy_s * (1 + 1e-12)
        assert busy_s <= Busy.in_use_s(port) * (1 + 1e-9)
    assert not by_name


def test_transfers_are_recorded():
    recording = Transfers()
    some = collective("halving-doubling", 4, switched(), protocol="ll")
    running([[some.plan(8.0)]], [8.0], observer=recording)
    assert len(recording.transfers) == 4 * 2 * 2
    # half of the buffer, then a quarter, twice as many bytes on the wire, there and back
    assert sorted(transfer.size_bytes for transfer in recording.transfers if transfer.source == Place("device", 0)) == [4.0, 4.0, 8.0, 8.0]


def test_a_late_rank_delays_its_neighbour_first():
    """While rank 0 is late, the rank at distance d downstream gets d - 1 chunks: the neighbour none, the next one, and so on."""
    ranks, late_s, recording = 6, 100.0, Transfers()
    some = collective("ring", ranks, meshed(lambda *_: (1.0, 0.0)))
    ready_s = np.array([[late_s, 0.0, 0.0, 0.0, 0.0, 0.0]])
    (end_s,), _ = running([[some.plan(float(ranks))]], [float(ranks)], [ready_s], recording)
    for distance in range(1, ranks):
        early = [
            transfer for transfer in recording.transfers if transfer.target == Place("device", distance) and transfer.arrived_s < late_s
        ]
        assert len(early) == distance - 1
    assert end_s.max() == late_s + 2 * (ranks - 1)


# -- groups, libraries, bad input ---------------------------------------------------------


def test_neighbours_on_a_node_form_equal_rings():
    assert Group.in_order(12, 4).neighbours == 4
    assert Group.in_order(10, 4).neighbours == 2
    assert Group.in_order(6, 8).neighbours == 6  # all on one node
    assert Group((0, 4, 1, 5), (0, 1, 0, 1)).neighbours == 1
    assert Group((5, 4, 0, 1), (1, 1, 0, 0)).neighbours == 2
    assert Group.in_order(6, 8).on_one_node
    assert not Group((3, 7), (0, 1)).on_one_node


def of_group(algorithm: str, ranks: int, operation: str = "all-reduce", **more):
    return collective_for(algorithm, more.pop("protocol", "none"), CLUSTER, Group.in_order(ranks, 1), switched(), 5e5,
                          operation=operation, **more)  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"algorithm": "double-binary-tree", "operation": "all-gather"}, "all-gather has no algorithm 'double-binary-tree'; it has ring"),
        ({"algorithm": "ring", "beside": (Group((9, 8), (9, 8)),)}, "the same shape"),
        ({"algorithm": "ring", "beside": (Group((3, 4, 5, 6), (3, 4, 5, 6)),)}, "no rank in common"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        of_group(ranks=4, **arguments)
    with pytest.raises(ValueError, match="each rank once"):
        Group((0, 0), (0, 0))


@pytest.mark.parametrize("per_node", [1, 4, 16])
def test_auto_takes_what_nccl_has_when_it_stands_for_nccl(per_node):
    fresh = switched(per_node)
    sizes = 2.0 ** np.arange(4, 31, 2)

    def taken(protocol):
        some = collective("auto", 16, fresh, per_node, protocol)
        return {some.choice(size).algorithm for size in sizes}

    for protocol in ("ll", "ll128", "simple", "auto"):
        assert taken(protocol) <= {"ring", "double-binary-tree"}  # no switch here can add
    assert taken("none") - {"ring", "double-binary-tree"}  # of other libraries' as well


def test_every_algorithm_can_be_made():
    for operation, names in ALGORITHMS.items():
        for name in names:
            assert name in IN_SWITCHES or of_group(name, 4, operation).choice(1e6).algorithm == name


def test_a_schedule_by_two_protocols_has_both():
    """Message by message, each bucket of a step has the cost of its own protocol."""
    fresh = meshed()
    plans = [collective("ring", 3, fresh, protocol=protocol).plan(1.0) for protocol in ("ll", "simple")]
    alone_s = [collective("ring", 3, fresh, protocol=protocol).duration_s(1e6) for protocol in ("ll", "simple")]
    assert plans[0].schedule is plans[1].schedule
    (end_s,), _ = running([plans], [1e6, 1e6])
    assert end_s[:, 0] == pytest.approx([alone_s[0], sum(alone_s)])


def test_consequences_take_no_time():
    """However many messages follow from one, at the same instant."""
    ranks = 600
    # along a chain: each passes on what it has got
    chain = [Lane(rank, rank + 1, 0, 1, 1, whole_buffer, 0, (Await(rank - 1, 0, 1),) if rank else (), ()) for rank in range(ranks - 1)]
    schedule = Schedule(ranks, 1, lambda rank: tuple(chain[rank : rank + 1]))
    wire = collective("ring", ranks, meshed(lambda *_: (1e9, 0.0))).plan(0.0).wire
    (end_s,), _ = running([[Plan(schedule, wire)]], [0.0])
    assert not end_s.any()


def test_transfers_name_the_ranks_of_the_network():
    recording, groups = Transfers(), ((7, 2, 5), (0, 1, 3, 4, 6))
    every = [collective_for("ring", "none", CLUSTER, Group(its, its), meshed(), 1e6, operation="all-gather") for its in groups]
    running([[some.plan(3.0)] for some in every], [3.0], observer=recording)
    ends = {(transfer.source.number, transfer.target.number) for transfer in recording.transfers}
    assert ends == {(7, 2), (2, 5), (5, 7)} | {(0, 1), (1, 3), (3, 4), (4, 6), (6, 0)}


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_columns_of_rings_are_those_of_their_lanes(ranks):
    for operation in ("all-reduce", "all-gather"):
        for schedule in (ring_schedule(ranks, operation), ring_schedule(ranks, operation, both=True)):
            plain = columns(replace(schedule, at_once=None))
            assert [one.tolist() for one in columns(schedule)] == [one.tolist() for one in plain]


@pytest.mark.slow
def test_a_ring_of_a_million_ranks_at_once():
    """Sharing nothing, ranks that enter together take what the closed form says, and each link carries 2 (n - 1) / n of the buffer."""
    from simulator.base.rng import Streams
    from simulator.program.wiring import Wiring
    from tests.support.closed_forms import ring_all_reduce_s

    ranks, size = 1_000_000, 1e9
    some = collective_for("ring", "none", CLUSTER, Group.in_order(ranks, 1), lambda: Wiring(CLUSTER, Streams(1, 0)), 1e6)
    assert some.finish_s(np.zeros(ranks), size).max() == pytest.approx(ring_all_reduce_s(ranks, size, *INTER))
    some.account(size)
    assert len(some.use.carried) == 2 * ranks
    assert some.use.carried == pytest.approx(2 * (ranks - 1) / ranks * size)
