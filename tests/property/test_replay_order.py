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
    order = replay.Order(np, read, applied)
    # the versions that were read, counted by updates that were completed
    for server in range(servers):
        complete = np.sort(applied[:, server])
        assert [versions[server] for versions in order.read] == np.searchsorted(complete, read[:, server]).tolist()
    version = [0] * servers
    computed = set()
    seen = []
    for complete in range(updates):
        for server, update in order.until(complete):
            if update not in computed:
                assert all(there >= needed for there, needed in zip(version, order.read[update], strict=True))
                computed.add(update)
            version[server] += 1
            seen.append((update, server))
        assert {(complete, server) for server in range(servers)} <= set(seen)
    assert len(set(seen)) == len(seen) == updates * servers
    for server in range(servers):
        assert [update for update, where in seen if where == server] == np.argsort(applied[:, server], kind="stable").tolist()


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
