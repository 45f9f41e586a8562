"""The order in which a schedule is replayed: every gradient with the very versions that were read, in as few rows as are in use."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.probes import probe_module

replay = probe_module("replay")


def made_up(seed: int, workers: int, servers: int, updates: int):
    """A schedule as one comes about: workers read all servers, and apply on each in an order of its own."""
    rng = np.random.default_rng(seed)
    version = [0] * servers
    read = {}  # of workers under way
    left = {}
    rows = []
    reads, applied = {}, {}
    number = 0
    while len(rows) < updates:
        worker = int(rng.integers(workers))
        if worker not in left:
            reads[number], applied[number] = list(version), [0] * servers
            read[worker], left[worker] = number, list(rng.permutation(servers))
            number += 1
            continue
        server = left[worker].pop()
        applied[read[worker]][server] = version[server]
        version[server] += 1
        if not left[worker]:
            del left[worker]
            rows.append(read[worker])
    return np.array([reads[row] for row in rows]), np.array([applied[row] for row in rows])


@examples(60)
@given(seed=st.integers(0, 10_000), workers=st.integers(1, 9), servers=st.integers(1, 4), updates=st.integers(1, 60))
def test_each_gradient_has_the_versions_that_were_read(seed, workers, servers, updates):
    read, applied = made_up(seed, workers, servers, updates)
    its = replay.Applications(np, read, applied)
    # what a server has at each version, counted by updates that were completed
    complete = [np.sort(applied[:, server]) for server in range(servers)]
    holds = [{0: 0} for _ in range(servers)]  # of each row: the version in it
    version = [0] * servers
    gradients = {}
    seen = []
    for server, update, gradient, reads, write, stale in zip(
        its.server, its.update, its.gradient, its.reads, its.write, its.staleness, strict=True
    ):
        if gradient < 0:
            for other in range(servers):
                assert holds[other][reads[other]] == np.searchsorted(complete[other], read[update, other])
            gradients[-1 - gradient] = update
        else:
            assert gradients[gradient] == update  # nobody else's took its place
        assert stale == applied[update, server] - read[update, server]
        version[server] += 1
        holds[server][write] = version[server]
        assert write < its.kept[server]
        seen.append((update, server))
    assert len(set(seen)) == len(seen) == updates * servers
    for server in range(servers):
        order = [update for update, where in seen if where == server]
        assert order == np.argsort(applied[:, server], kind="stable").tolist()
    assert its.ends == sorted(its.ends)
    assert its.ends[-1] == updates * servers


@examples(30)
@given(seed=st.integers(0, 10_000), workers=st.integers(1, 9), servers=st.integers(1, 3))
def test_rows_are_as_many_as_versions_in_use(seed, workers, servers):
    read, applied = made_up(seed, workers, servers, 200)
    its = replay.Applications(np, read, applied)
    assert max(its.kept) <= workers + 1
    assert its.pending <= workers


def test_batches_are_slices_of_one_stream():
    stream = replay.Stream(np, 10, seed=4)
    first = np.concatenate([stream.take(3) for _ in range(10)])
    whole = replay.Stream(np, 10, seed=4).take(30)
    assert first.tolist() == whole.tolist()
    for epoch in whole.reshape(3, 10):
        assert sorted(epoch) == list(range(10))


def test_validations_are_even_and_end_with_the_last():
    assert list(replay._checkpoints(10, 4)) == [3, 5, 8, 10]
    assert list(replay._checkpoints(2, 50)) == [1, 2]
    assert list(replay._checkpoints(0, 5)) == []
