"""Nodes that are processes of one machine: who works on its cores, and for how long, against times computed by hand."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from support.looping import each
from support.modes import LOAD, MODES
from support.networks import Messages
from support.runs import COMPUTE_S, FAST, assert_mean, ms, recorded, steps_per_s
from support.sampling import SHARE
from support.scenarios import scenario_table

from simulator import scenario_from_table, simulate
from simulator.base.errors import ScenarioError

INSTANT = {**FAST, "intra_node": {"bandwidth": "1000000 GB/s", "latency": "0 s"}}
ASYNC = {"kind": "parameter-server", "mode": "async"}
RING = {"kind": "multi-worker-mirrored"}
RUN = {"steps": 6, "warmup_steps": 0}


def on_cores(cores: float, **more) -> dict:
    """Compute on the cores, a network that costs nothing."""
    return {**INSTANT, "shared_cores": cores, "device_is_host": True, **more}


def services(records) -> list[tuple]:
    return [(one.worker, *ms(one.start_s, one.end_s)) for one in records.services]


LOCKSTEP = {
    "sync": {**ASYNC, "mode": "sync"},
    "ring": RING,
    "ring by messages": {**RING, "detail": "messages"},
    "mirrored": {"kind": "mirrored"},
    "local": {**RING, "sync_every": 2},
}


def in_step(kind: str, replicas: int, cores: float, slice_s: float) -> tuple[dict, dict]:
    """Strategy and cluster of so many replicas that compute on so many cores."""
    several = kind in ("mirrored", "several devices")
    strategy = {**LOCKSTEP, "async": ASYNC, "several devices": ASYNC}[kind]
    if kind != "mirrored":
        strategy = {**strategy, "workers": replicas}
    return strategy, on_cores(cores, time_slice_s=slice_s, devices_per_node=replicas if several else 1)


SIZES = random.Random(0).sample(list(itertools.product([1, 2, 3, 8], [1.0, 2.0, 3.0, 16.0])), 16 // SHARE)
"""Numbers of replicas and of cores."""


@pytest.mark.slow
@each("replicas, cores", SIZES)
@pytest.mark.parametrize("kind", [*LOCKSTEP, "async", "several devices"])
def test_compute_of_replicas_in_step_takes_n_x_over_c(scenario, kind, replicas, cores):
    """In short slices n replicas of X seconds on c cores take max(1, n / c) X, forward and backward and apply alike, to a slice each."""
    slice_s = 20e-6
    strategy, cluster = in_step(kind, replicas, cores, slice_s)
    result = simulate(scenario(cluster=cluster, strategy=strategy, run=RUN))
    stretch = max(1.0, replicas / cores)
    off_s = 0.0 if replicas <= cores else math.ceil(replicas / cores) * slice_s
    assert result.breakdown_s.compute == pytest.approx(stretch * COMPUTE_S, rel=1e-6, abs=off_s)
    assert result.breakdown_s.apply == pytest.approx(0.0 if "mode" in strategy else stretch * 0.5e-3, rel=1e-4, abs=off_s + 1e-9)
    assert result.utilisation.cores == pytest.approx(min(1.0, replicas / cores), rel=1e-2 if off_s else 1e-4)


@each("cores", [1, 2, 3, 16])
@each("replicas", [1, 2, 3, 8])
@pytest.mark.parametrize("kind", ["sync", "ring", "mirrored"])
def test_compute_within_a_slice_is_done_in_order(scenario, kind, replicas, cores):
    """The k-th of n replicas has computed after ceil(k / c) X, in every step; the mean over all of them is what is told."""
    strategy, cluster = in_step(kind, replicas, float(cores), 1.0)
    result = simulate(scenario(workload={"apply": "0 s"}, cluster=cluster, strategy=strategy, run=RUN))
    ends = [math.ceil(k / cores) * COMPUTE_S for k in range(1, replicas + 1)]
    assert result.breakdown_s.compute == pytest.approx(np.mean(ends), rel=1e-5)
    assert result.step_time_s.mean == pytest.approx(max(ends), rel=1e-5)


def test_compute_on_an_accelerator_is_off_the_cores(scenario):
    cluster = {**INSTANT, "shared_cores": 1.0}
    for strategy in ({**ASYNC, "workers": 8}, {**RING, "workers": 8}):
        result = simulate(scenario(cluster=cluster, strategy=strategy, run=RUN))
        assert result.breakdown_s.compute == pytest.approx(COMPUTE_S, rel=1e-6)
        assert result.utilisation.cores == 0.0


# -- work on messages, servers, coordinator, input ------------------------------------


class Hosts(Messages):
    """Messages of 10 bytes over links of 10 bytes/s; a second of work on each at either end, on cores that all share."""

    def __init__(self, cores: float, slice_s: float = 10.0) -> None:
        cluster = {"inter_node": {"bandwidth_bytes_per_s": 10.0, "latency_s": 0.0}, "shared_cores": cores, "time_slice_s": slice_s,
                   "transport": {"cpu_per_message_s": 0.5, "copy_per_byte_s": 0.05}}  # fmt: skip
        super().__init__(scenario_from_table(scenario_table(cluster=cluster, strategy={**RING, "workers": 6}), "test"), apart=True)

    def ends_of(self, *pairs: tuple[int, int]) -> list[float]:
        for pair in pairs:
            self.send(pair, *pair, 10.0)
        return list(self.run().values())


PAIRS = (0, 1), (2, 3), (4, 5)


@pytest.mark.parametrize(
    ("cores", "ends", "busy"),
    [
        # 0-1, 1-2 and 2-3 at the senders, the wire until 2, 3 and 4, and then 3-4, 4-5 and 5-6 at the receivers
        (1.0, [4.0, 5.0, 6.0], [1.0, 2.0, 2.0, 2.0, 3.0, 2.0]),
        # 0-1, 0-1 and 1-2; 2-3, 2-3 and 3-4: copies of one pair while the others' bytes cross
        (2.0, [3.0, 3.0, 4.0], [1.0, 1.0, 1.0, 1.0, 2.0, 1.0]),
        (3.0, [3.0, 3.0, 3.0], [1.0] * 6),
    ],
)
def test_hosts_work_in_order_of_arrival(cores, ends, busy):
    """Three pairs that begin together: three pieces of work of 1 s, then the wire for 1 s each, then three again."""
    hosts = Hosts(cores)
    assert hosts.ends_of(*PAIRS) == ends
    assert hosts.network.cores_in_use_s() * cores == 6.0
    assert list(hosts.hosts_in_use_s().values()) == busy


@each("cores, each_s", [(1.0, 3.0), (2.0, 1.5), (4.0, 1.0)])
def test_hosts_work_in_short_slices_shares_the_cores(cores, each_s):
    """The same three pairs keep in step, to a round of slices at either end: k tasks on c cores go on at min(1, c / k)."""
    assert Hosts(cores, 1e-3).ends_of(*PAIRS) == pytest.approx([2 * each_s + 1.0] * 3, abs=6e-3)


def test_a_host_works_on_one_message_at_a_time_however_many_cores():
    """0-1 s and 1-2 s at node 0; the first has come to node 1 at 2 s and is there at 3 s, the second a second later."""
    hosts = Hosts(8.0)
    assert hosts.ends_of((0, 1), (0, 2)) == [3.0, 4.0]
    assert hosts.hosts_in_use_s()["node 0 messages"] == 2.0


def test_servers_share_the_cores_with_one_another_and_with_compute(scenario):
    """Two workers, speeds 1 and 3, two servers of 1.5 ms a tensor, one core, slices of 3 ms.

    0-3 the slow worker computes, 3-5 the faster one, all of its 2 ms; 5-8 the slow one's
    other 3 ms, while the servers wait; 8-9.5 and 9.5-11 they serve the faster one. Then
    they do the slow one's two gradients until 14, behind which the faster one computes.
    """
    load = {"apply": "0 s", "server": {"base": "1.5 ms"},
            "variables": [{"name": f"v{i}", "size_bytes": 8.0, "creation_index": i, "ready": 1.0} for i in range(2)]}  # fmt: skip
    strategy = {**ASYNC, "workers": 2, "servers": 2, "server_placement": "colocated"}
    cluster = on_cores(1.0, node_speed=[1.0, 3.0])
    records = recorded(scenario(workload=load, cluster=cluster, strategy=strategy, run=RUN))
    near = [pytest.approx(at) for at in (5.0, 9.5, 11.0, 12.5, 14.0)]
    assert services(records)[:4] == [(1, near[0], near[1]), (1, near[0], near[2]), (0, near[1], near[3]), (0, near[2], near[4])]
    spans = {replica: [ms(one.start_s, one.end_s) for one in records.spans if one.replica == replica] for replica in (0, 1)}
    assert spans[0][0] == pytest.approx([0.0, 8.0])
    assert spans[1][:2] == [[0.0, 5.0], pytest.approx([11.0, 16.0])]


def test_servers_with_an_accelerator_beside_them_have_the_cores_to_themselves(scenario):
    load = {"apply": "0 s", "server": {"base": "1.5 ms"}}
    records = recorded(scenario(workload=load, cluster={**INSTANT, "shared_cores": 1.0}, strategy={**ASYNC, "workers": 1}, run=RUN))
    assert services(records)[:2] == [(0, pytest.approx(6.0), pytest.approx(7.5)), (0, pytest.approx(13.5), pytest.approx(15.0))]


def test_the_coordinator_works_on_the_cores_too(scenario):
    """One core, slices of 3 ms, 3 ms to hand out a step and 1 ms on its way.

    0-3 the first; 3-6 the second, while the first is there at 4 and waits; it computes
    6-9. The second, there at 7, has the core 9-12, the first 12-15, the second 15-18.
    """
    strategy = {**ASYNC, "workers": 2, "coordinator": {"dispatch": "3 ms", "latency": "1 ms"}}
    records = recorded(scenario(workload={"apply": "0 s"}, cluster=on_cores(1.0), strategy=strategy, run=RUN))
    first, second = (next(one for one in records.spans if one.replica == replica) for replica in (0, 1))
    assert ms(first.start_s, first.end_s) == pytest.approx([4.0, 15.0])
    assert ms(second.start_s, second.end_s) == pytest.approx([7.0, 18.0])


@pytest.mark.parametrize("latency_s", [0.0, 1e-3])
@pytest.mark.parametrize("workers", [1, 5])
def test_a_drained_job_of_a_coordinator_on_the_cores(scenario, workers, latency_s):
    """All of the job's work is done, no more, and at most one core's worth at a time."""
    strategy = {**ASYNC, "workers": workers, "coordinator": {"dispatch_s": 2e-3, "latency_s": latency_s}}
    run = {"job_steps": 40, "drain": True, "warmup_steps": 0, "replications": 2}
    cluster = on_cores(1.0)
    records = recorded(scenario(workload={"apply": "0 s"}, cluster=cluster, strategy=strategy, run=run))
    assert len(records.steps) == 40
    end_s = max(step.end_s for step in records.steps)
    if workers == 1:
        assert end_s == pytest.approx(40 * (2e-3 + latency_s + COMPUTE_S), rel=1e-6)
    else:  # the core is never idle but while the first step is on its way and the last one's workers are
        assert 40 * (2e-3 + COMPUTE_S) <= end_s * (1 + 1e-9) <= 40 * (2e-3 + COMPUTE_S) + 2 * latency_s + 1e-6


def test_input_is_prepared_on_the_cores(scenario):
    """One core: 5 ms of input; the next one's 5 ms and 6 ms of compute take turns of 3 ms: 3, 3, 2 and 3."""
    load = {"apply": "0 s", "input": {"base": "5 ms", "per_sample": "0 s"}}
    for strategy in ({**ASYNC, "workers": 1}, {"kind": "single"}):
        records = recorded(scenario(workload=load, cluster=on_cores(1.0), strategy=strategy, run=RUN))
        assert [ms(step.end_s)[0] for step in records.steps[:3]] == pytest.approx([16.0, 27.0, 38.0], rel=1e-6)
        two = recorded(scenario(workload=load, cluster=on_cores(2.0), strategy=strategy, run=RUN))
        assert [ms(step.end_s)[0] for step in two.steps[:3]] == pytest.approx([11.0, 17.0, 23.0], rel=1e-6)


def test_a_client_prepares_batches_on_the_cores(scenario):
    """One core: 4 ms of input for either worker. 4-7 the client goes on with the second; 7-10 the first computes; 10-11 the client."""
    load = {"apply": "0 s", "input": {"base": "4 ms", "per_sample": "0 s"}, "input_bytes_per_sample": 1.0}
    records = recorded(scenario(workload=load, cluster=on_cores(1.0), strategy={**ASYNC, "workers": 2, "replication": "in-graph"}, run=RUN))
    begun = {span.replica: ms(span.start_s)[0] for span in reversed(records.spans)}
    assert begun == pytest.approx({0: 4.0, 1: 11.0}, rel=1e-6)


# -- against queueing theory --------------------------------------------------------


@pytest.mark.statistics
@pytest.mark.parametrize(
    ("law", "slice_s"),
    [({"kind": "exponential"}, 3e-3), ({"kind": "exponential"}, 1.0), ({"kind": "gamma", "shape": 4.0}, 2e-4)],
    ids=["exponential, some slices", "exponential, in order", "gamma, short slices"],
)
@pytest.mark.parametrize(("workers", "cores"), [(4, 1.0), (6, 2.0), (8, 3.0)])
def test_machine_repairmen(scenario, law, slice_s, workers, cores):
    """n workers wait 6 ms on the network and compute 6 ms on c cores.

    Exponential work does not know how long it has lasted, so that slices change nothing.
    A closed network of a delay and a station of processor sharing, which short slices come
    to, has the same throughput whatever the laws of either (Baskett, Chandy, Muntz and
    Palacios, JACM 1975): that of M/M/c//n, p(k) ~ Z^(n - k) / (n - k)! X^k / prod min(j, c).
    """
    latency_s = 3e-3
    weights, served = [], 1.0
    for k in range(workers + 1):
        served *= COMPUTE_S / min(k, cores) if k else 1.0
        weights.append((2 * latency_s) ** (workers - k) / math.factorial(workers - k) * served)
    rate = sum(weight * min(k, cores) for k, weight in enumerate(weights)) / sum(weights) / COMPUTE_S
    built = scenario(
        workload={"apply": "0 s", "jitter": law},
        cluster={**on_cores(cores, time_slice_s=slice_s), "inter_node": {"bandwidth": "1000000 GB/s", "latency_s": latency_s}},
        strategy={**ASYNC, "workers": workers},
        run={"steps": 400, "warmup_steps": 40},
    )
    assert_mean(steps_per_s(built, 12), rate)


@pytest.mark.statistics
def test_more_workers_than_cores_keep_them_busy(scenario):
    """Without a network the cores never rest: c / X steps a second, whatever the law."""
    built = scenario(
        workload={"apply": "0 s", "jitter": {"kind": "exponential"}},
        cluster=on_cores(2.0),
        strategy={**ASYNC, "workers": 5},
        run={"steps": 800, "warmup_steps": 20},
    )
    assert_mean(steps_per_s(built, 12), 2.0 / COMPUTE_S)


# -- against the same without shared cores ------------------------------------------


REFUSED = {"async, streams", "ring, forward", "ring, cycles", "ring, through hosts", "ring, slowed"}
REFUSED |= {mode for mode, (strategy, *_) in MODES.items() if strategy["kind"] == "hybrid"}
"""Work on bytes while they cross, what is simulated for all ranks at once, and models that are cut."""
APART = {
    "async, random order, shards": "tensors that come to a host link in the same instant take the order that rounding gives them",
    "sync, backups on shared cores": "so do gradients that come to a server, and whose counts then decides who is late",
    "async, random phase": "the spread of the start is estimated from the load of the cores as well",
}


@pytest.mark.slow
@each("mode", [mode for mode in MODES if mode not in APART][::SHARE])
def test_cores_for_everybody_are_as_good_as_cores_of_ones_own(mode):
    """10,000 cores change nothing, in any mode that they can be given to."""
    strategy, cluster, run = MODES[mode]
    parts = {"workload": LOAD, "run": {"steps": 12, "warmup_steps": 2, **run}}
    own = {key: value for key, value in cluster.items() if key not in ("shared_cores", "device_is_host")}
    off_cores = strategy.get("late_workers") == "cancel" or "overlap_slowdown" in own or "replicas_per_device" in own
    ample = {**own, "shared_cores": 1e4, "device_is_host": not off_cores}
    if mode in REFUSED:
        with pytest.raises(ScenarioError, match="shared_cores"):
            scenario_from_table(scenario_table(cluster=ample, strategy=strategy, **parts), mode)
        return
    # where ranks are looked at all at once a window that begins within a round has other steps in it
    by_rank = {"detail": "messages"} if mode in ("local SGD", "ring, copies", "ring, shared cores") else {}
    shared = simulate(scenario_from_table(scenario_table(cluster=ample, strategy=strategy, **parts), mode))
    plain = simulate(scenario_from_table(scenario_table(cluster=own, strategy={**strategy, **by_rank}, **parts), mode))
    assert shared.throughput_of_each_replication == pytest.approx(plain.throughput_of_each_replication, rel=1e-9)
    assert shared.breakdown_s.model_dump() == pytest.approx(plain.breakdown_s.model_dump(), rel=1e-8, abs=1e-12)
    assert shared.staleness == plain.staleness


def test_work_on_messages_of_an_all_reduce_and_compute_share_the_cores(scenario):
    """Two ranks A and B, one core, slices of 3 ms; 2 messages each way of half a megabyte, 2 ms of copying at either end.

    A and B compute by turns until 9 and 12. A copies out 12-14, B 14-16, while A's bytes
    cross; B copies in 16-18, A 18-20, and as soon as it has, B copies out 20-22 and A
    22-24; A copies in 24-26, B 26-28.
    """
    cluster = {"shared_cores": 1.0, "device_is_host": True, "transport": {"copy_per_byte_s": 4e-9}}
    built = scenario(workload={"apply": "0 s"}, cluster=cluster, strategy={**RING, "workers": 2}, run=RUN)
    records = recorded(built)
    assert [(step.replica, ms(step.end_s)[0]) for step in records.steps[:2]] == [(0, pytest.approx(26.0)), (1, pytest.approx(28.0))]
    assert len({transfer.target for transfer in records.transfers}) == 2  # every message was simulated


@pytest.mark.parametrize(("ranks", "cores"), [(2, 2), (4, 2), (8, 2), (8, 3)])
def test_a_ring_spreads_out_on_few_cores(scenario, ranks, cores):
    """Copies in order of arrival are done beside others' transfers and compute: faster than in step.

    In step, all ranks copy, then all transfer: 2 (n - 1) rounds of (2 ceil(n / c) copies + a
    transfer). It cannot be faster than a rank alone, nor than the cores with all copies.
    """
    size, per_byte_s = 1e6, 4e-9
    cluster = {"shared_cores": float(cores), "inter_node": {"bandwidth": "100 MB/s"}, "transport": {"copy_per_byte_s": per_byte_s}}
    built = scenario(workload={"apply": "0 s"}, cluster=cluster, strategy={**RING, "workers": ranks}, run={"steps": 20})
    step_s = simulate(built).step_time_s.mean
    chunk, rounds = size / ranks, 2 * (ranks - 1)
    copy_s, wire_s = per_byte_s * chunk, chunk / 1e8
    in_step_s = COMPUTE_S + rounds * (2 * math.ceil(ranks / cores) * copy_s + wire_s)
    least_s = max(COMPUTE_S + rounds * (2 * copy_s + wire_s), rounds * ranks * 2 * copy_s / cores)
    if ranks <= cores:
        assert step_s == pytest.approx(least_s, rel=1e-9)
    else:
        assert least_s * (1 - 1e-9) <= step_s < 0.95 * in_step_s
