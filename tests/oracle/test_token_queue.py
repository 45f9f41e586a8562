"""Backup workers that finish late steps, against an independent simulation of SyncReplicasOptimizer's tokens.

TensorFlow's: a gradient is taken if its worker's local step is not older than the
accumulator's; ``required`` of them make an update; each update puts one token a worker,
with the new step, into a queue; a worker that has pushed takes the first token there is
and continues at its step, so that a worker that was late may find old ones.
"""

from __future__ import annotations

import heapq
from collections import deque

import numpy as np
import pytest
from support.runs import COMPUTE_S, FAST, recorded

from simulator import simulate
from simulator.base.rng import Streams
from simulator.engine.draws import Draws, JitterFactors
from simulator.engine.replication import replicate
from simulator.resolve.resolve import resolve

EXPONENTIAL = {"apply": "0 s", "jitter": {"kind": "exponential"}}
SEED = 3  # of the sample scenario


def token_queue(durations: list, required: int, updates: int) -> tuple[list[float], int, int]:
    """Times of the first updates, and how many gradients had been taken and dropped by the last of them."""
    workers = len(durations)
    local = [0] * workers
    tokens: deque[int] = deque()
    waiting: deque[int] = deque()
    accumulator = count = taken = dropped = 0
    times: list[float] = []
    running = [(next(durations[worker]), worker) for worker in range(workers)]
    heapq.heapify(running)
    while len(times) < updates:
        now, worker = heapq.heappop(running)
        if local[worker] < accumulator:
            dropped += 1
        else:
            taken += 1
            count += 1
        waiting.append(worker)
        if count == required:
            accumulator += 1
            count = 0
            times.append(now)
            tokens.extend([accumulator] * workers)
        while waiting and tokens:
            free = waiting.popleft()
            local[free] = tokens.popleft()
            heapq.heappush(running, (now + next(durations[free]), free))
    return times, taken, dropped


def draws(built, worker: int):
    """The compute times that the engine will draw for a worker."""
    factors = JitterFactors(Draws(resolve(built), Streams(SEED, 0)), worker)
    while True:
        yield factors.next() * COMPUTE_S


@pytest.mark.parametrize(("workers", "backups"), [(2, 1), (4, 1), (4, 3), (10, 2), (10, 6)])
def test_updates_come_when_the_token_queue_says(scenario, workers, backups):
    """The same draws, so the same times; the engine's network adds nanoseconds."""
    strategy = {"kind": "parameter-server", "mode": "sync", "workers": workers, "backup_workers": backups}
    built = scenario(workload=EXPONENTIAL, cluster=FAST, strategy=strategy, run={"steps": 300, "warmup_steps": 20})
    got = [update.applied_s for update in recorded(built).updates]
    want, _, _ = token_queue([draws(built, worker) for worker in range(workers)], workers - backups, len(got))
    assert len(got) > 100
    assert got == pytest.approx(want, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "backups"), [(4, 1), (10, 6)])
def test_the_dropped_share_is_the_token_queues(scenario, workers, backups):
    strategy = {"kind": "parameter-server", "mode": "sync", "workers": workers, "backup_workers": backups}
    built = scenario(workload=EXPONENTIAL, cluster=FAST, strategy=strategy, run={"steps": 2000, "warmup_steps": 1})
    run = replicate(resolve(built), 0)
    _, taken, dropped = token_queue([draws(built, worker) for worker in range(workers)], workers - backups, run.updates + 1)
    # steps that are counted when they end, and gradients when they come: they differ by no more than two a worker
    assert 1 - run.accepted_steps / run.steps == pytest.approx(dropped / (taken + dropped), abs=2 / 2000)


@pytest.mark.slow
def test_waiting_late_workers_are_slower_than_ones_that_stop(scenario):
    """K-sync restarts everybody; a worker that must finish a lost step comes late again."""
    strategy = {"kind": "parameter-server", "mode": "sync", "workers": 8, "backup_workers": 2}
    run = {"steps": 400, "warmup_steps": 20, "replications": 5}
    gamma = {"apply": "0 s", "jitter": {"kind": "gamma", "shape": 4.0}}
    finish = simulate(scenario(workload=gamma, cluster=FAST, strategy=strategy, run=run))
    cancel = simulate(scenario(workload=gamma, cluster=FAST, strategy={**strategy, "late_workers": "cancel"}, run=run))
    assert finish.updates_per_s.high < cancel.updates_per_s.low
    assert finish.dropped_share > 0
    assert finish.wasted_samples_per_s == pytest.approx(
        finish.throughput_samples_per_s.mean * finish.dropped_share / (1 - finish.dropped_share), rel=0.02
    )


def test_without_backups_the_token_queue_is_a_barrier(scenario):
    built = scenario(
        workload=EXPONENTIAL, cluster=FAST, strategy={"kind": "parameter-server", "mode": "sync", "workers": 5}, run={"steps": 60}
    )
    streams = [draws(built, worker) for worker in range(5)]
    want = np.cumsum([max(next(stream) for stream in streams) for _ in range(60)])
    assert [update.applied_s for update in recorded(built).updates] == pytest.approx(want, rel=1e-5)
