"""Collectives of any group, every operation, and groups beside one another: at once against message by message."""

from __future__ import annotations

import numpy as np
import pytest
from support.looping import each
from support.networks import INTER, INTRA, PAIRS, by_messages, chain_schedule, collective, grouped, meshed, running, switched

from simulator.collectives.factory import IN_SWITCHES
from simulator.collectives.wire import Group, Plan
from tests.support.closed_forms import all_to_all_s, pipelined_chain_s, ring_half_s

SIZE = 5e6
AMONG_RANKS = [pair for pair in PAIRS if pair[1] not in IN_SWITCHES]


def near(value):
    return pytest.approx(value, rel=1e-9, abs=1e-18)


def random_group(rng: np.random.Generator, ranks: int, per_node: int, of: int) -> Group:
    chosen = rng.permutation(of)[:ranks].tolist()
    return Group(tuple(chosen), tuple(rank // per_node for rank in chosen))


def random_ready(seed: int, ranks: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.exponential(rng.choice([1e-5, 1e-3, 1e-2]), ranks)


def all_by_messages(collectives, ready_s: np.ndarray, size_bytes: float) -> np.ndarray:
    """When each rank of each group has ended, shape (groups, ranks): all groups on one network."""
    end_s, _ = running([[some.plan(size_bytes)] for some in collectives], [size_bytes], ready_s[:, None])
    return np.concatenate(end_s)


@each("operation, algorithm", AMONG_RANKS)
def test_names_of_ranks_do_not_matter(operation, algorithm):
    """A group on a network of unequal links takes what ranks 0 to n - 1 take on a network that is so labelled, to the last bit."""
    rng = np.random.default_rng(5)
    links = {(i, j): (rng.uniform(0.5e9, 2e9), rng.uniform(0, 1e-4)) for i in range(20) for j in range(20)}
    for ranks in (1, 2, 3, 6, 8):
        group = random_group(rng, ranks, 1, 20)
        of_all = meshed(lambda source, target: links[source, target])
        of_these = meshed(lambda source, target, group=group: links[group.ranks[source], group.ranks[target]])
        here = grouped(algorithm, group, of_all, operation=operation)
        there = grouped(algorithm, Group.in_order(ranks, 1), of_these, operation=operation)
        ready_s = random_ready(ranks, ranks)
        assert here.finish_s(ready_s, SIZE).tolist() == there.finish_s(ready_s, SIZE).tolist()
        assert by_messages(here, ready_s, SIZE).tolist() == by_messages(there, ready_s, SIZE).tolist()
        assert here.least_s(SIZE) <= here.duration_s(SIZE) * (1 + 1e-12)


@each("protocol", ["none", "ll"])
@each("operation, algorithm", AMONG_RANKS)
def test_groups_scattered_over_nodes(operation, algorithm, protocol):
    """Four devices a node, ranks in any order. Exact, but where hops of a ring that differ share a port: then never early."""
    rng = np.random.default_rng(11)
    for ranks in (2, 5, 8, 12):
        group = random_group(rng, ranks, 4, 16)
        some = grouped(algorithm, group, switched(4), protocol, operation=operation)
        got, want = some.finish_s(np.zeros(ranks), SIZE), by_messages(some, np.zeros(ranks), SIZE)
        # a hierarchical all-reduce is a ring where its ranks' neighbours do not sit on their nodes
        if "ring" in algorithm or algorithm == "hierarchical":
            assert np.all(got >= want * (1 - 1e-9))
            assert got.max() <= want.max() * 1.1
        else:
            assert got == near(want)


@each("seed", range(4))
@each("ranks", [2, 3, 5, 8])
@pytest.mark.parametrize("algorithm", ["ring", "bidirectional-ring"])
@each("operation", ["reduce-scatter", "all-gather"])
def test_half_rings_of_ranks_that_enter_apart(operation, algorithm, ranks, seed):
    rng = np.random.default_rng(seed)
    links = {(i, j): (rng.uniform(0.5e9, 2e9), rng.uniform(0, 1e-4)) for i in range(ranks) for j in range(ranks)}
    for fresh in (meshed(), meshed(lambda source, target: links[source, target])):
        some = grouped(algorithm, Group.in_order(ranks, 1), fresh, operation=operation)
        ready_s = random_ready(seed, ranks)
        assert some.finish_s(ready_s, SIZE) == near(by_messages(some, ready_s, SIZE))


@each("times", [1, 2, 5])
@each("operation", ["all-reduce", "reduce-scatter", "all-gather"])
def test_several_right_after_one_another(operation, times):
    for ranks in (2, 3, 8):
        some = grouped("ring", Group.in_order(ranks, 1), switched(), operation=operation)
        ready_s = random_ready(times, ranks)
        finish_s, free_s = ready_s, np.full(ranks, -np.inf)
        for _ in range(times):
            finish_s = some.finish_s(finish_s, SIZE, free_s)
        assert some.finish_run_s(ready_s, [SIZE] * times) == near(finish_s)


@each("seed", range(3))
@each("operation, algorithm", [pair for pair in AMONG_RANKS if pair[1] in ("ring", "bidirectional-ring")])
def test_buckets_of_every_operation_follow_one_another(operation, algorithm, seed):
    """Also of a rank that has the data of all buckets long before the others have entered the first."""
    ranks, sizes = 5, [3e6, 1e5, 2e6] * 3
    ready_s = np.cumsum(np.random.default_rng(seed).exponential([2e-2, 2e-3, 1e-5][seed], (len(sizes), ranks)), axis=0)
    ready_s[:, ranks // 2] = 0.0
    some = grouped(algorithm, Group.in_order(ranks, 1), meshed(), operation=operation)
    finish_s, free_s = np.zeros(ranks), np.full(ranks, -np.inf)
    want = []
    for data_s, size in zip(ready_s, sizes, strict=True):
        finish_s = some.finish_s(np.maximum(data_s, finish_s), size, free_s)
        want.append(finish_s)
    (got,), _ = running([[some.plan(size) for size in sizes]], sizes, [ready_s])
    assert got == near(np.array(want))


def test_operations_may_differ_from_bucket_to_bucket():
    """A root is done with broadcasts that the end of its chain has not entered yet, and sends it nothing of an all-reduce before it has."""
    ranks, group, fresh = 5, Group.in_order(5, 1), meshed()
    rings = grouped("bidirectional-ring", group, fresh)
    plans = [*(Plan(chain_schedule(ranks, 5, root=2), rings.plan(SIZE).wire) for _ in range(2)), rings.plan(SIZE)]
    ready_s = np.zeros((3, ranks))
    ready_s[:, 1] = 1.0, 1.1, 1.2  # rank 2 is the root, rank 1 the end of its chain, which the counter-clockwise ring sends to first
    (got,), _ = running([plans], [SIZE] * 3, [ready_s])
    assert max(got[0, 2], got[1, 2]) < 0.1 < 1.0 < got[0, 1] < got[1, 1] < got[2, 1]
    piece_s, latency_s = SIZE / 5 / INTER[0], INTER[1]
    assert got[0, 1] == near(1.0 + 5 * piece_s + latency_s)  # all pieces but the last hop's are there when it enters
    finish_s = rings.finish_s(np.maximum(ready_s[2], got[1]), SIZE, np.full(ranks, -np.inf))
    assert got[2] == near(finish_s)


# -- groups beside one another ------------------------------------------------------------

COLUMNS = tuple(Group((k, 4 + k, 8 + k), (0, 1, 2)) for k in range(4))  # the k-th device of each of three nodes
PAIRS = tuple(Group((k, k + 1, 4 + k, 5 + k, 8 + k, 9 + k, 12 + k, 13 + k), (0, 0, 1, 1, 2, 2, 3, 3)) for k in (0, 2))


@pytest.mark.parametrize("groups", [COLUMNS, PAIRS])
@each("operation, algorithm", [pair for pair in AMONG_RANKS if pair[1] != "bidirectional-ring"])
def test_equal_groups_share_the_links_of_their_nodes(operation, algorithm, groups):
    """As data-parallel groups of tensor-parallel devices do: exact for ranks that enter together."""
    fresh, ranks = switched(4), len(groups[0])
    every = [grouped(algorithm, group, fresh, operation=operation, beside=tuple(set(groups) - {group})) for group in groups]
    want = all_by_messages(every, np.zeros((len(groups), ranks)), SIZE)
    for some, want_s in zip(every, want, strict=True):
        assert some.finish_s(np.zeros(ranks), SIZE) == near(want_s)
    # it would be wrong to know nothing of the others
    alone = grouped(algorithm, groups[0], fresh, operation=operation)
    assert alone.duration_s(SIZE) < want.max() * 0.95


@each("seed", range(4))
@each("operation", ["all-reduce", "reduce-scatter", "all-gather"])
def test_groups_that_enter_apart_are_never_early(operation, seed):
    fresh = switched(4)
    every = [grouped("ring", group, fresh, operation=operation, beside=tuple(set(COLUMNS) - {group})) for group in COLUMNS]
    ready_s = random_ready(seed, 12).reshape(4, 3)
    want = all_by_messages(every, ready_s, SIZE)
    for some, enter_s, want_s in zip(every, ready_s, want, strict=True):
        assert np.all(some.finish_s(enter_s, SIZE) >= want_s - 1e-12)


def test_groups_on_links_of_their_own_do_not_disturb_one_another():
    groups = (Group((0, 1), (0, 1)), Group((2, 3), (2, 3)))
    alone, beside = (grouped("ring", groups[0], switched(), beside=others) for others in ((), groups[1:]))
    assert alone.duration_s(SIZE) == beside.duration_s(SIZE)


# -- closed forms -------------------------------------------------------------------------


@each("ranks", [1, 2, 3, 8, 31])
def test_closed_forms_of_the_other_operations(ranks):
    group = Group.in_order(ranks, 1)
    for operation in ("reduce-scatter", "all-gather"):
        assert grouped("ring", group, switched(), operation=operation).duration_s(SIZE) == near(ring_half_s(ranks, SIZE, *INTER))
    chain = Plan(chain_schedule(ranks, 8, root=ranks - 1), grouped("ring", group, switched()).plan(0.0).wire)
    (got,), _ = running([[chain]], [SIZE])
    assert got.max() == near(pipelined_chain_s(ranks, SIZE, *INTER, 8))
    assert grouped("direct", group, switched(), operation="all-to-all").duration_s(SIZE) == near(all_to_all_s(ranks, SIZE, *INTER))


def test_all_to_all_within_a_node_and_between_nodes():
    """Each device sends 3 parts inside its node and 12 out of it; a node's link carries 4 x 12."""
    some = grouped("direct", Group.in_order(16, 4), switched(4), operation="all-to-all")
    between_s = INTER[1] + 48 * SIZE / 16 / INTER[0]
    assert between_s > INTRA[1] + 3 * SIZE / 16 / INTRA[0]
    assert some.duration_s(SIZE) == near(between_s)


def test_a_hierarchical_all_reduce_in_one_node_is_a_ring():
    """However many of the node's devices take part."""
    for ranks in (4, 5, 6, 8):
        hierarchical, ring = (collective(name, ranks, switched(8), 8) for name in ("hierarchical", "ring"))
        assert hierarchical.duration_s(SIZE) == near(ring.duration_s(SIZE))
