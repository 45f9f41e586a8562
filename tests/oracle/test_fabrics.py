"""Rails, islands, and switches that add: closed forms, laws, at once against message by message, and against SimGrid."""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.looping import each
from support.networks import by_messages, running

from simulator.base.rng import Streams
from simulator.collectives.collective import Collective, pieces_of
from simulator.collectives.factory import collective_for
from simulator.collectives.wire import Group
from simulator.program.wiring import Wiring
from simulator.spec.cluster import Cluster, Fabric, Islands, Link, Nvls
from tests.support.closed_forms import (
    all_to_all_over_racks_s,
    hierarchical_all_reduce_s,
    nvls_bounds_s,
    ring_all_reduce_s,
    ring_over_racks_s,
    sharp_s,
)

SIZE = 16e6
CHUNK = 1e6
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def cluster(devices: int = 1, *, between: float = 1e9, inside: float = 2e10, latency_s: float = 1e-5, **more: Any) -> Cluster:
    """Nodes with a NIC for each device; rates of a device, in bytes/s."""
    link = Link(bandwidth_bytes_per_s=between, latency_s=latency_s)
    inner = Link(bandwidth_bytes_per_s=inside, latency_s=latency_s / 5)
    return Cluster(name="lab", devices_per_node=devices, nics_per_node=devices, inter_node=link, intra_node=inner, **more)


def made(algorithm: str, where: Cluster, ranks: int, order: list[int] | None = None, **more: Any) -> Collective:
    numbers = tuple(order or range(ranks))
    group = Group(numbers, tuple(rank // where.replicas_joined for rank in numbers))
    return collective_for(algorithm, "none", where, group, partial(Wiring, where, Streams(1, 0)), CHUNK, **more)


def seconds(algorithm: str, where: Cluster, ranks: int, order: list[int] | None = None, **more: Any) -> float:
    """By messages, after at once has said the same."""
    some = made(algorithm, where, ranks, order, **more)
    got = by_messages(some, np.zeros(ranks), SIZE)
    assert some.finish_s(np.zeros(ranks), SIZE) == pytest.approx(got, rel=1e-9)
    assert some.least_s(SIZE) <= got.max() * (1 + 1e-12)
    return float(got.max())


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-9)


@each("oversubscription", [1.0, 2.0, 4.0, 16.0])
@each("racks, rack", [(2, 4), (4, 2), (4, 4)])
def test_a_ring_over_racks(racks, rack, oversubscription):
    """In order one hop leaves each rack; dealt out in turn every hop does."""
    ranks = racks * rack
    where = cluster(latency_s=0.0, fabric=Fabric(nodes_per_leaf=rack, oversubscription=oversubscription))
    closed = partial(ring_over_racks_s, ranks, SIZE, 1e9, 0.0, rack, oversubscription)
    assert seconds("ring", where, ranks) == near(closed(1))
    in_turn = np.arange(ranks).reshape(racks, rack).T.ravel().tolist()
    assert seconds("ring", where, ranks, in_turn) == near(closed(rack))


@each("oversubscription", [1.0, 1.5, 4.0])
@each("racks, rack", [(2, 4), (4, 2)])
def test_an_all_to_all_over_racks(racks, rack, oversubscription):
    where = cluster(fabric=Fabric(nodes_per_leaf=rack, oversubscription=oversubscription))
    got = seconds("direct", where, racks * rack, operation="all-to-all")
    assert got == near(all_to_all_over_racks_s(racks * rack, SIZE, 1e9, 1e-5, rack, oversubscription))


@each("fabric", [None, Fabric(nodes_per_leaf=2), Fabric(nodes_per_leaf=2, rail_optimised=True, oversubscription=2.0)])
def test_a_ring_a_rail_and_a_hierarchy_use_all_nics(fabric):
    """g rings of S / g, each by a NIC of its own, take what one ring takes that has all of them."""
    nodes, devices = 4, 4
    where = cluster(devices, latency_s=0.0, rails=devices, fabric=fabric)
    assert seconds("ring", where, nodes * devices) == near(ring_all_reduce_s(nodes * devices, SIZE, devices * 1e9, 0.0))
    closed = hierarchical_all_reduce_s(nodes, devices, SIZE, 2e10, 0.0, devices * 1e9, 0.0)
    assert seconds("hierarchical", where, nodes * devices) == near(closed)


def test_between_rails_of_other_leaves_pxn_spares_the_spine():
    """Device 0 of a node to device 1 of another: by the node's own device 1, or over a spine that carries a quarter."""
    fabric = Fabric(nodes_per_leaf=4, oversubscription=16.0, rail_optimised=True)
    here, there = (0, 0), (3, 1)
    for pxn, rate in ((True, 1e9), (False, 0.25e9)):
        where = cluster(2, latency_s=0.0, rails=2, pxn=pxn, fabric=fabric)
        numbers = [node * 2 + device for node, device in (here, there)]
        assert seconds("ring", where, 2, numbers, operation="reduce-scatter") == near(SIZE / 2 / rate)


@each("nodes, per_leaf", [(4, 4), (8, 4), (6, 2)])
@each("devices", [1, 4])
@each("oversubscription", [1.0, 8.0])
def test_switches_add(nodes, per_leaf, devices, oversubscription):
    """Rings inside, then streams up and down: of each node all devices at once, over the rack's links those of all trees."""
    fabric = Fabric(nodes_per_leaf=per_leaf, oversubscription=oversubscription, latency_s=3e-6, sharp=True)
    where = cluster(devices, fabric=fabric)
    up = per_leaf * 1e9 / oversubscription  # of a device's stream: the leaf's link carries one for each device, and per_leaf nodes' worth
    stages = [1e9, up, up, 1e9] if nodes > per_leaf else [1e9, 1e9]
    latency_s = 1e-5 + (3e-6 if nodes > per_leaf else 0.0)
    closed = sharp_s(SIZE / devices, stages, latency_s, pieces_of(SIZE, devices, CHUNK))
    assert seconds("sharp", where, nodes * devices) == near(closed + ring_all_reduce_s(devices, SIZE, 2e10, 2e-6))


@each("devices", [2, 4, 8])
@each("size_bytes", [1e6, 16e6, 64e6])
def test_an_nvswitch_adds(devices, size_bytes):
    where = cluster(devices, nvls=Nvls(efficiency=0.8))
    some = made("nvls", where, devices)
    pieces = max(-(-size_bytes // devices // CHUNK), 1)
    least_s, most_s = nvls_bounds_s(devices, size_bytes, 0.8 * 2e10, 2e-6, int(pieces))
    assert least_s <= some.duration_s(size_bytes) <= most_s


@pytest.mark.slow
def test_nvls_as_nccl_measured_it():
    """Eight H100 of one node, 2 to 4 GiB: ring 365 to 370 GB/s, NVLS by devices (NVIDIA/nccl issue 1455); efficiency of NCCL's tuner."""
    for devices, bus in ((4, 370e9), (5, 420e9), (6, 440e9), (7, 460e9), (8, 480e9)):
        where = cluster(devices, inside=367.5e9, latency_s=2.5e-5, nvls=Nvls())
        size_bytes = 4 * 2.0**30
        rate = size_bytes / made("nvls", where, devices).duration_s(size_bytes)
        assert rate == pytest.approx(bus / (2 * (devices - 1) / devices), rel=0.02)


def test_switches_beat_rings_for_large_buffers_and_never_lose_bytes():
    """An NVSwitch moves (g + 1) / g S where a ring moves 2 (g - 1) / g; the fabric's S where rings of nodes move 2 (n - 1) / n S."""
    where = cluster(8, inside=1e9, rails=8, nvls=Nvls(efficiency=1.0), fabric=Fabric(nodes_per_leaf=8, sharp=True))
    gain = made("ring", where, 8).duration_s(1e9) / made("nvls", where, 8).duration_s(1e9)
    assert gain == pytest.approx(2 * 7 / 9, rel=0.02)
    alone = cluster(fabric=Fabric(nodes_per_leaf=8, sharp=True))
    assert made("ring", alone, 8).duration_s(1e9) / made("sharp", alone, 8).duration_s(1e9) == pytest.approx(2 * 7 / 8, rel=0.01)


def test_islands():
    """Four devices in two islands: rings inside each, and between them over the slower links; an island of two nodes needs no NIC."""
    slow = Link(bandwidth_bytes_per_s=5e9)
    halves = cluster(4, latency_s=0.0, islands=Islands(devices=2, between=slow))
    assert seconds("hierarchical", halves, 4) == near(hierarchical_all_reduce_s(2, 2, SIZE, 2e10, 0.0, 2 * 5e9, 0.0))
    assert seconds("ring", halves, 4) == near(ring_all_reduce_s(4, SIZE, 5e9, 0.0))
    joined = cluster(2, latency_s=0.0, islands=Islands(devices=4))
    assert seconds("ring", joined, 4) == near(ring_all_reduce_s(4, SIZE, 2e10, 0.0))
    assert seconds("hierarchical", joined, 8) == near(hierarchical_all_reduce_s(2, 4, SIZE, 2e10, 0.0, 2 * 2e9, 0.0))


@pytest.mark.slow
@each("algorithm", ["ring", "bidirectional-ring", "double-binary-tree", "hierarchical", "sharp", "nvls"])
@each("seed", range(3))
def test_more_bandwidth_or_less_oversubscription_never_slows_a_lone_collective(algorithm, seed):
    rng = np.random.default_rng(seed)
    devices, nodes, leaf = 2, int(rng.integers(2, 6)), int(rng.integers(1, 4))
    order = rng.permutation(nodes).repeat(devices) * devices + np.tile(np.arange(devices), nodes)

    def takes(between: float, inside: float, oversubscription: float) -> float:
        fabric = Fabric(nodes_per_leaf=leaf, oversubscription=oversubscription, rail_optimised=bool(seed % 2), sharp=True)
        where = cluster(devices, between=between, inside=inside, rails=devices, nvls=Nvls(), fabric=fabric)
        return float(by_messages(made(algorithm, where, nodes * devices, order.tolist()), np.zeros(nodes * devices), SIZE).max())

    base_s = takes(1e9, 8e9, 4.0)
    for faster_s in (takes(2e9, 8e9, 4.0), takes(1e9, 16e9, 4.0), takes(1e9, 8e9, 2.0)):
        assert faster_s <= base_s * (1 + 1e-9)


@each("seed", range(6))
def test_switches_wait_for_the_slowest(seed):
    """Ranks that enter apart: as message by message, where every rank has links of its own."""
    rng = np.random.default_rng(seed)
    for nodes, leaf in ((4, 4), (6, 2)):
        where = cluster(fabric=Fabric(nodes_per_leaf=leaf, oversubscription=float(rng.choice([1.0, 8.0])), sharp=True))
        some, ready_s = made("sharp", where, nodes), rng.exponential(1e-2, nodes)
        assert some.finish_s(ready_s, SIZE) == pytest.approx(by_messages(some, ready_s, SIZE), rel=1e-9)


# -- SimGrid -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def simgrid(tmp_path_factory):
    """How to ask it: plans and a size in bytes in, ends out."""
    if not (BENCHMARKS / "simgrid_graph.py").exists():
        pytest.skip("the benchmarks are not here")
    loaded = {}
    for name in ("simgrid_peer", "simgrid_graph"):
        spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = loaded[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded[name])
        reason = loaded["simgrid_peer"].missing()
        if reason is not None:
            pytest.skip(f"SimGrid cannot be asked: {reason}")
    graph = loaded["simgrid_graph"]
    program = graph.build(tmp_path_factory.mktemp("simgrid"))
    return lambda plans: graph.ends_s(program, graph.graph_of(plans, SIZE))


@pytest.mark.long
@each("oversubscription", [1.0, 8.0])
@each("algorithm", ["ring", "bidirectional-ring", "double-binary-tree", "hierarchical", "sharp", "nvls"])
@each("rails", [None, 4])
def test_collectives_end_when_simgrid_says(simgrid, algorithm, rails, oversubscription):
    """Devices, NICs, leaves and spines: four kinds of links that are shared; nodes in order, and placed badly."""
    fabric = Fabric(nodes_per_leaf=2, oversubscription=oversubscription, spines=2, rail_optimised=rails is not None, sharp=True)
    where = cluster(4, latency_s=0.0, rails=rails, nvls=Nvls(efficiency=1.0), fabric=fabric)
    for nodes in ([0, 1, 2, 3], [0, 2, 1, 3]):
        some = made(algorithm, where, 16, [node * 4 + device for node in nodes for device in range(4)])
        assert by_messages(some, np.zeros(16), SIZE) == pytest.approx(simgrid([some.plan(SIZE)])[0], rel=1e-7)


@pytest.mark.long
def test_rings_beside_one_another_end_when_simgrid_says(simgrid):
    """Three rings that all cross the same uplinks, of which the largest is slower than the others."""
    where = cluster(latency_s=0.0, fabric=Fabric(nodes_per_leaf=4, oversubscription=6.0))
    orders = [[0, 4, 1], [2, 5], [3, 6, 7, 8]]
    plans = [made("ring", where, len(order), order).plan(SIZE) for order in orders]
    end_s, _ = running([[plan] for plan in plans], [SIZE])
    for (ours,), theirs in zip(end_s, simgrid(plans), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-7)
