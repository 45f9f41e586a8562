"""What must not matter does not: the numbering of workers, another worker's presence; and what helps never hurts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.runs import FAST, recorded
from support.sampling import SHARE, seeds

from simulator import simulate
from tests.support.closed_forms import ring_all_reduce_s

KINDS = [
    {"name": "plain", "nodes": 1},
    {"name": "fast", "nodes": 1, "speed": 1.7},
    {"name": "slow", "nodes": 1, "speed": 0.6},
    {"name": "thin", "nodes": 1, "inter_node": {"bandwidth": "0.2 GB/s", "latency": "300 us"}},
]
STRATEGIES = {
    "async": {"kind": "parameter-server", "mode": "async", "workers": 4},
    "ssp": {"kind": "parameter-server", "mode": "ssp", "bound": 1, "workers": 4},
    "sync": {"kind": "parameter-server", "mode": "sync", "workers": 4},
    "backups": {"kind": "parameter-server", "mode": "sync", "backup_workers": 1, "workers": 4},
    "backups stop": {"kind": "parameter-server", "mode": "sync", "backup_workers": 1, "late_workers": "cancel", "workers": 4},
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_renaming_workers_changes_nothing(scenario, strategy):
    """Four workers of four kinds without jitter: in any order the same throughput, and each kind's staleness goes with it."""
    load = {"server": {"base": "200 us"}}
    results = {
        order: simulate(
            scenario(
                workload=load, cluster={"node_classes": [KINDS[kind] for kind in order]}, strategy=STRATEGIES[strategy], run={"steps": 40}
            )
        )
        for order in list(itertools.permutations(range(4)))[::SHARE]
    }
    plain = results[0, 1, 2, 3]
    for order, result in results.items():
        assert result.throughput_samples_per_s.mean == pytest.approx(plain.throughput_samples_per_s.mean, rel=1e-9)
        assert result.breakdown_s.model_dump() == pytest.approx(plain.breakdown_s.model_dump(), rel=1e-9, abs=1e-15)
        assert result.staleness.histogram == plain.staleness.histogram
        if plain.staleness.per_worker_mean:
            assert result.staleness.per_worker_mean == pytest.approx([plain.staleness.per_worker_mean[kind] for kind in order])


@pytest.mark.parametrize("bucket", [{}, {"bucket_size_bytes": 1.0}])
def test_where_a_slow_rank_sits_in_an_equal_ring_changes_nothing(scenario, bucket):
    """Without latency a ring ends a fixed time after its last rank is ready, wherever that is."""
    got = {
        simulate(
            scenario(
                cluster={"node_classes": [KINDS[kind] for kind in order]},
                strategy={"kind": "multi-worker-mirrored", "workers": 5, **bucket},
                run={"steps": 20},
            )
        ).throughput_samples_per_s.mean.__format__(".9e")
        for order in itertools.permutations(range(3))
    }
    # nine digits: another order of the same sums
    assert len(got) == 1


def works(scenario, workers: int, strategy: dict) -> dict[tuple[int, int], float]:
    """Seconds of compute of each worker's first steps, and when it began."""
    run = {"steps": 30, "warmup_steps": 0, "start": "staggered", "start_spread": "10 ms"}
    load = {"jitter": {"kind": "gamma", "shape": 2.0}}
    bursts = {"node_classes": [{"name": "b", "nodes": 2, "slowdown": {"factor": 2.0, "mean_slow_steps": 2.0, "mean_normal_steps": 2.0}}]}
    records = recorded(scenario(workload=load, cluster={**FAST, **bursts}, strategy={**strategy, "workers": workers}, run=run))
    made: dict[tuple[int, int], float] = {}
    for step in records.steps:
        number = sum(key[0] == step.replica for key in made)
        if number < 10:
            made[step.replica, number] = step.compute_s
    return made


@pytest.mark.parametrize("strategy", [STRATEGIES["async"], STRATEGIES["ssp"], STRATEGIES["sync"], {"kind": "multi-worker-mirrored"}])
def test_adding_a_worker_changes_no_other_workers_draws(scenario, strategy):
    few, many = works(scenario, 4, strategy), works(scenario, 7, strategy)
    assert len(few) == 40
    assert {key: many[key] for key in few} == pytest.approx(few, rel=1e-9)


SYNCHRONOUS = {
    "server": {"kind": "parameter-server", "mode": "sync"},
    "ring": {"kind": "multi-worker-mirrored"},
    "buckets": {"kind": "multi-worker-mirrored", "bucket_size_bytes": 1.0},
    "halving": {"kind": "multi-worker-mirrored", "algorithm": "halving-doubling"},
    "local SGD": {"kind": "multi-worker-mirrored", "sync_every": 3},
}


@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_a_faster_link_never_slows_a_synchronous_step(scenario, strategy):
    """All links scaled alike. One tensor and one server: each station ends each message sooner; of rings, longest paths get shorter."""
    rng = np.random.default_rng(5)
    sizes = [1e6] if strategy == "server" else [2e6, 1e6, 3e6]
    for _ in seeds(12):
        load = {
            "jitter": {"kind": "lognormal", "sigma": float(rng.uniform(0.05, 1.0))},
            "server": {"base_s": float(rng.choice([0.0, 3e-4]))},
            "variables": [
                {"name": f"v{i}", "size_bytes": size, "creation_index": i, "ready": (i + 1) / len(sizes)} for i, size in enumerate(sizes)
            ],
        }
        latency = {"latency_s": float(rng.choice([0.0, 1e-4]))}
        strategy_table = {**SYNCHRONOUS[strategy], "workers": int(rng.integers(2, 9))}
        rates = [
            simulate(
                scenario(
                    workload=load,
                    cluster={"inter_node": {"bandwidth_bytes_per_s": 2e8 * factor, **latency}},
                    strategy=strategy_table,
                    run={"steps": 15, "warmup_steps": 3},
                )
            ).throughput_of_each_replication
            for factor in (1.0, 1.3, 4.0, 100.0)
        ]
        for slower, faster in itertools.pairwise(rates):
            assert all(a <= b * (1 + 1e-9) for a, b in zip(slower, faster, strict=True))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_slower_worker_never_speeds_up_a_job_without_a_network(scenario, strategy):
    speeds = (0.3, 0.6, 1.0, 1.5)
    rates = [
        simulate(
            scenario(
                cluster={**FAST, "node_classes": [{"name": "one", "nodes": 1, "speed": speed}]},
                strategy=STRATEGIES[strategy],
                run={"steps": 60},
            )
        ).updates_per_s.mean
        for speed in speeds
    ]
    # a window holds whole steps only: one update of 240 more or less
    assert all(a <= b * (1 + 1 / 200) for a, b in itertools.pairwise(rates))


def test_a_larger_ring_takes_longer_and_never_twice_the_bytes(scenario):
    times = [simulate(scenario(strategy={"kind": "multi-worker-mirrored", "workers": n})).step_time_s.mean for n in (2, 3, 5, 9, 33)]
    assert times == sorted(times)
    assert all(time < 6.5e-3 + 2e-3 for time in times)
    assert times[-1] == pytest.approx(6.5e-3 + ring_all_reduce_s(33, 1e6, 1e9, 0.0), rel=1e-9)
