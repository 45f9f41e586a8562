"""Every algorithm's times for all ranks at once against every message through the network, and against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from support.looping import each
from support.networks import INTER, INTRA, by_messages, chain_schedule, collective, grouped, meshed, running, switched

from simulator.collectives.wire import Group, Plan
from tests.support.closed_forms import (
    double_binary_tree_bounds_s,
    halving_doubling_all_reduce_s,
    hierarchical_all_reduce_s,
    hierarchical_copy_s,
    reduce_to_one_s,
    ring_all_reduce_s,
)

ALGORITHMS = [
    "ring",
    "bidirectional-ring",
    "halving-doubling",
    "hierarchical",
    "double-binary-tree",
    "reduce-to-one-device",
    "hierarchical-copy",
    "auto",
]
SHAPES = [(1, 1), (2, 1), (3, 1), (4, 1), (7, 1), (8, 1), (13, 1), (4, 4), (5, 8), (8, 8), (8, 4), (12, 4), (16, 8), (10, 4)]
SIZE = 5e6


def near(value):
    return pytest.approx(value, rel=1e-9, abs=1e-18)


@pytest.mark.slow
@each("protocol", ["none", "ll"])
@each("ranks, per_node", SHAPES)
@each("algorithm", ALGORITHMS)
def test_ranks_that_enter_together(algorithm, ranks, per_node, protocol):
    some = collective(algorithm, ranks, switched(per_node), per_node, protocol)
    ready_s = np.full(ranks, 0.25)
    want = by_messages(some, ready_s, SIZE) - 0.25
    got = some.finish_s(ready_s, SIZE) - 0.25
    if algorithm == "bidirectional-ring" and per_node > 1 and ranks > per_node:
        # the two rings do not share the fast links inside a node at all times, as is taken
        assert got == pytest.approx(want, rel=0.05)
    else:
        assert got == near(want)
    assert some.duration_s(SIZE) == near(got.max())
    assert some.least_s(SIZE) <= some.duration_s(SIZE) * (1 + 1e-12)


def random_ready(seed: int, ranks: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    scale = rng.choice([1e-5, 1e-3, 1e-2])  # less than a latency, less than the all-reduce, more than it
    return rng.exponential(scale, ranks)


@each("seed", range(6))
@each("ranks", [2, 3, 4, 5, 8, 13])
def test_ring_of_ranks_that_enter_apart(ranks, seed):
    some = collective("ring", ranks, switched())
    ready_s = random_ready(seed, ranks)
    assert some.finish_s(ready_s, SIZE) == near(by_messages(some, ready_s, SIZE))


@each("seed", range(6))
@each("ranks, per_node", [(2, 1), (3, 1), (6, 1), (8, 4), (10, 4)])
def test_ring_with_unequal_hops(ranks, per_node, seed):
    rng = np.random.default_rng(seed)
    nodes = -(-ranks // per_node)
    some = collective("ring", ranks, switched(per_node, rates=rng.uniform(0.2e9, 5e9, nodes).tolist()), per_node)
    ready_s = random_ready(seed, ranks)
    assert some.finish_s(ready_s, SIZE) == near(by_messages(some, ready_s, SIZE))


@each("seed", range(6))
@each("ranks", [3, 4, 8, 11])
def test_bidirectional_ring_with_links_of_its_own(ranks, seed):
    rng = np.random.default_rng(seed)
    links = {(i, j): (rng.uniform(0.5e9, 2e9), rng.uniform(0, 1e-4)) for i in range(ranks) for j in range(ranks)}
    for fresh in (meshed(), meshed(lambda source, target: links[source, target])):
        some = collective("bidirectional-ring", ranks, fresh)
        ready_s = random_ready(seed, ranks)
        assert some.finish_s(ready_s, SIZE) == near(by_messages(some, ready_s, SIZE))


@pytest.mark.slow
@each("seed", range(6))
@each("ranks", [2, 3, 4, 6, 7, 8, 13, 16])
def test_halving_and_doubling_of_ranks_that_enter_apart(ranks, seed):
    rng = np.random.default_rng(seed)
    for rates in ([], rng.uniform(0.2e9, 5e9, ranks).tolist()):
        some = collective("halving-doubling", ranks, switched(rates=rates))
        ready_s = random_ready(seed, ranks)
        assert not some.aligned
        assert some.finish_s(ready_s, SIZE) == near(by_messages(some, ready_s, SIZE))


@each("seed", range(6))
@each("ranks, per_node", [(4, 2), (8, 4), (12, 4), (6, 1)])
def test_hierarchical_ranks_that_enter_apart(ranks, per_node, seed):
    """With links of their own exact; with a shared link never early, and late by at most what the buffer takes between nodes."""
    ready_s = random_ready(seed, ranks)
    own = collective("hierarchical", ranks, meshed(), per_node)
    assert own.finish_s(ready_s, SIZE) == near(by_messages(own, ready_s, SIZE))
    shared = collective("hierarchical", ranks, switched(per_node), per_node)
    late_s = shared.finish_s(ready_s, SIZE) - by_messages(shared, ready_s, SIZE)
    nodes = ranks // per_node
    assert late_s.min() >= -1e-12
    assert late_s.max() <= 2 * (nodes - 1) / nodes * SIZE / INTER[0]


@each("seed", range(6))
@pytest.mark.parametrize(
    ("algorithm", "ranks", "per_node"), [("bidirectional-ring", 6, 1), ("bidirectional-ring", 8, 4), ("halving-doubling", 8, 4)]
)
def test_equal_shares_are_never_early(algorithm, ranks, per_node, seed):
    some = collective(algorithm, ranks, switched(per_node), per_node)
    ready_s = random_ready(seed, ranks)
    want = by_messages(some, ready_s, SIZE)
    got = some.finish_s(ready_s, SIZE)
    assert np.all(got >= want - 1e-12)
    assert got - ready_s.min() == pytest.approx(want - ready_s.min(), rel=0.25)


@each("algorithm", ["double-binary-tree", "reduce-to-one-device", "hierarchical-copy"])
def test_aligned_algorithms_enter_together_and_say_so(algorithm):
    some = collective(algorithm, 6, switched())
    ready_s = random_ready(1, 6)
    assert some.aligned
    assert some.choice(SIZE).aligned
    together_s = by_messages(some, np.zeros(6), SIZE)
    assert some.finish_s(ready_s, SIZE) == near(ready_s.max() + together_s)
    # who begins before the slowest is there gains, or loses next to nothing (fair shares may come at a worse moment)
    assert by_messages(some, ready_s, SIZE).max() <= ready_s.max() + together_s.max() * 1.01


def unequal(ranks: int, seed: int):
    return switched(rates=np.random.default_rng(seed).uniform(0.2e9, 5e9, ranks).tolist())


@each("seed", range(3))
@pytest.mark.parametrize(
    ("algorithm", "ranks", "network"),
    [
        ("ring", 5, unequal),
        ("ring", 5, lambda *_: switched()),
        ("halving-doubling", 8, unequal),
        ("bidirectional-ring", 5, lambda *_: meshed()),
    ],
)
def test_buckets_follow_one_another(algorithm, ranks, network, seed):
    """Steps of several buckets: what one has still to send delays the next."""
    sizes, steps = [3e6, 1e5, 2e6], 3
    some = collective(algorithm, ranks, network(ranks, seed))
    draws = [np.random.default_rng([seed, rank]) for rank in range(ranks)]
    compute_s = np.array([rng.exponential([2e-3, 2e-4, 1e-5][seed], (steps, len(sizes))) for rng in draws])

    at_once, data_s, ended_s, free_s = [], [], np.zeros(ranks), np.zeros(ranks)
    for step in range(steps):
        data_s += list(ended_s + compute_s[:, step].cumsum(axis=1).T)
        for ready_s, size in zip(data_s[-len(sizes) :], sizes, strict=True):
            ended_s = some.finish_s(np.maximum(ready_s, ended_s), size, free_s)
            at_once.append(ended_s)
    # steps begin at once where they do message by message, if all before have ended alike
    plans = [some.plan(size) for size in sizes]
    (by_messages_s,), _ = running([plans * steps], sizes * steps, [np.array(data_s)])
    assert np.array(at_once) == near(by_messages_s)


@each("algorithm", ["ring", "bidirectional-ring", "halving-doubling", "hierarchical", "double-binary-tree"])
def test_what_a_rank_has_still_to_send_delays_it(algorithm):
    some = collective(algorithm, 8, switched(4), 4)
    zeros, busy_s = np.zeros(8), np.array([0, 0, 0, 4e-3, 0, 1e-3, 0, 0])
    assert some.finish_s(zeros, SIZE, busy_s.copy()) == near(some.finish_s(busy_s, SIZE))
    # and it has sent all that it has to send by about the time that all have the result
    free_s = zeros.copy()
    finish_s = some.finish_s(zeros, SIZE, free_s)
    assert np.all(free_s <= finish_s.max())


@each("ranks", [1, 2, 3, 8, 31, 64])
def test_ring_closed_forms(ranks):
    rate, latency_s = INTER
    assert collective("ring", ranks, switched()).duration_s(SIZE) == near(ring_all_reduce_s(ranks, SIZE, rate, latency_s))
    if ranks > 2:
        own, shared = (collective("bidirectional-ring", ranks, fresh) for fresh in (meshed(), switched()))
        assert own.duration_s(SIZE) == near(ring_all_reduce_s(ranks, SIZE / 2, rate, latency_s))
        assert shared.duration_s(SIZE) == near(ring_all_reduce_s(ranks, SIZE, rate, latency_s))


@each("ranks", [1, 2, 3, 4, 6, 7, 8, 32, 33])
def test_halving_doubling_closed_form(ranks):
    some = collective("halving-doubling", ranks, switched())
    assert some.duration_s(SIZE) == near(halving_doubling_all_reduce_s(ranks, SIZE, *INTER))


@each("ranks, per_node", [(8, 8), (8, 4), (8, 1), (24, 8)])
def test_hierarchical_closed_form(ranks, per_node):
    some = collective("hierarchical", ranks, switched(per_node), per_node)
    assert some.duration_s(SIZE) == near(hierarchical_all_reduce_s(ranks // per_node, per_node, SIZE, *INTRA, *INTER))


@each("ranks", [1, 2, 3, 8])
def test_reduce_to_one_closed_form(ranks):
    assert collective("reduce-to-one-device", ranks, switched()).duration_s(SIZE) == near(reduce_to_one_s(ranks, SIZE, *INTER))


@each("ranks", [2, 4, 8])
def test_hierarchical_copy_closed_form(ranks):
    assert collective("hierarchical-copy", ranks, switched()).duration_s(SIZE) == near(hierarchical_copy_s(ranks, SIZE, *INTER))


@pytest.mark.slow
@each("chunk_bytes", [1e4, 1e5, 1e7])
@each("ranks", [2, 3, 4, 7, 8, 16, 33])
def test_double_tree_between_its_bounds(ranks, chunk_bytes):
    some = collective("double-binary-tree", ranks, switched(), chunk_bytes=chunk_bytes)
    pieces = some.plan(SIZE).schedule.parts // 2
    least_s, most_s = double_binary_tree_bounds_s(ranks, SIZE, *INTER, pieces)
    assert least_s <= some.duration_s(SIZE) <= most_s


@each("ranks", [2, 5, 8])
def test_double_tree_of_one_piece(ranks):
    """A tiny buffer: nothing but latencies, down to the farthest leaf and back."""
    height = ranks.bit_length() - 1
    assert collective("double-binary-tree", ranks, switched()).duration_s(1e-6) == pytest.approx(2 * height * INTER[1], rel=1e-6)


def test_double_tree_of_many_pieces_and_long_latencies():
    """The pace is not steady before the first pieces have come down again."""
    some = collective("double-binary-tree", 8, switched(inter=(1e9, 2e-4)), chunk_bytes=1e4)
    zeros = np.zeros(8)
    assert some.finish_s(zeros, SIZE) == pytest.approx(by_messages(some, zeros, SIZE), rel=5e-3)


@pytest.mark.slow
@each("ranks, per_node, within", [(8, 1, 1e-9), (16, 8, 1e-9), (33, 1, 1e-9), (64, 8, 5e-3)])
def test_double_tree_of_many_pieces(ranks, per_node, within):
    """Beyond the pieces that a trial run sends, the pace is taken to be steady."""
    some = collective("double-binary-tree", ranks, switched(per_node), per_node)
    assert some.plan(60e6).schedule.parts == 2 * 58
    zeros = np.zeros(ranks)
    assert some.finish_s(zeros, 60e6) == pytest.approx(by_messages(some, zeros, 60e6, witnessed=ranks < 64), rel=within)


@pytest.mark.parametrize("apart_s", [0.5e-12, 1.5e-12, 2.5e-12])
def test_ends_next_to_each_other(apart_s: float) -> None:
    """Two broadcasts on links of their own; within a picosecond they end in one instant, and an engine never waits for what is past."""
    fresh = meshed(lambda source, _: (1e9 if source == 0 else 1e6 / (1e-3 + apart_s), 0.0))
    wires = [grouped("ring", Group(ranks, ranks), fresh).plan(0.0).wire for ranks in ((0, 1), (2, 3))]
    plans = [[Plan(chain_schedule(2, 1), wire)] for wire in wires]
    first, second = (ends.max() for ends in running(plans, [1e6])[0])
    assert (first, second) == pytest.approx((1e-3, 1e-3 + apart_s), rel=1e-9)
