"""What others send over links: by hand, against SimGrid, and as many short transfers would leave it in the mean."""

from __future__ import annotations

import json
import math
import random
from functools import partial

import numpy as np
import pytest
from support.looping import each
from support.network import Network
from support.sampling import seeds
from support.scenarios import scenario_table

from simulator import scenario_from_table, simulate
from simulator.engine.replication import replicate
from simulator.observing.recording import Recording
from simulator.program.program import Changes
from simulator.resolve.resolve import resolve
from simulator.scenario import Scenario
from simulator.spec.transport import Background
from tests.support.closed_forms import ring_all_reduce_s

MEGABYTE, COMPUTE_S = 1e6, 6.5e-3


def over_one_link(messages: list[tuple[float, float]], trace: list[tuple[float, float, int]], repeat_s: float | None = None) -> list[float]:
    """When messages of given times and sizes end, each on a connection of its own, over one link of 1 byte/s."""
    network, ends = Network(), [math.nan] * len(messages)
    link = network.port(1.0)
    network.follow(Changes(np.array([link]), *np.array(trace, dtype=float).T, repeat_s))

    def end(number: int) -> None:
        ends[number] = network.now

    for number, (at_s, size) in enumerate(messages):
        network.at(at_s, partial(network.send, network.path([link]), size, partial(end, number)))
    network.run()
    return ends


@pytest.mark.parametrize("load", [0.0, 0.25, 0.9])
def test_a_flow_gets_what_a_constant_load_leaves(load):
    assert over_one_link([(0.0, 3.0)], [(0.0, 1 - load, 0)]) == [pytest.approx(3.0 / (1 - load), rel=1e-12)]


@pytest.mark.parametrize("flows", [1, 2, 7])
@pytest.mark.parametrize("ours", [1, 3])
def test_flows_of_ours_share_fairly_with_those_of_others(flows, ours):
    """Of m of ours beside k of others each gets 1 / (k + m)."""
    ends = over_one_link([(0.0, 3.0)] * ours, [(0.0, 1.0, flows)])
    assert ends == [pytest.approx(3.0 * (flows + ours), rel=1e-12)] * ours


def end_of_one(size: float, begin_s: float, trace: list[tuple[float, float, int]], repeat_s: float | None) -> float:
    """When the integral of left / (1 + flows) over time has come to the size: piece by piece."""
    now, sent = begin_s, 0.0
    while True:
        cycle = math.floor(now / repeat_s + 1e-12) * repeat_s if repeat_s is not None else 0.0
        since = [point for point in trace if cycle + point[0] <= now + 1e-12][-1]
        later = [cycle + point[0] for point in trace if cycle + point[0] > now + 1e-12]
        until = min([*later, *([cycle + repeat_s] if repeat_s is not None else [])], default=math.inf)
        rate = since[1] / (1 + since[2])
        if sent + rate * (until - now) >= size:
            return now + (size - sent) / rate
        sent, now = sent + rate * (until - now), until


@each("seed", seeds(150))
def test_bytes_are_the_integral_of_what_a_trace_leaves(seed):
    chance = random.Random(seed)
    times = [0.0, *sorted(chance.sample([0.5, 1.0, 1.75, 3.0, 4.2, 6.0, 9.0], chance.randint(1, 5)))]
    trace = [(at, chance.choice([1.0, 0.5, chance.uniform(0.05, 1.0)]), chance.choice([0, 0, 1, 3])) for at in times]
    repeat_s = chance.choice([None, times[-1] + 1.5])
    begin_s, size = chance.choice([0.0, chance.uniform(0, 8)]), chance.uniform(0.1, 12)
    (end,) = over_one_link([(begin_s, size)], trace, repeat_s)
    assert end == pytest.approx(end_of_one(size, begin_s, trace, repeat_s), rel=1e-9)


DISTRIBUTIONS = {
    "exponential": (lambda rng, n: rng.exponential(1.0, n), 2.0),
    "constant": (lambda _, n: np.ones(n), 1.0),
    "one in ten is large": (lambda rng, n: rng.exponential(np.where(rng.random(n) < 0.1, 5.5, 0.5)), 2 * (0.1 * 5.5**2 + 0.9 * 0.5**2)),
}
"""Sizes of mean 1: draws of n, and the mean of their squares."""


def time_beside_short_ones(load: float, law: str, size: float, seed: int) -> float:
    """How long a transfer of a size takes that begins in an empty queue to which short ones come."""
    rng, draws = np.random.default_rng(seed), DISTRIBUTIONS[law][0]
    at = np.cumsum(rng.exponential(1.0 / load, int(2 * load * size / (1 - load))))
    short = list(zip(at.tolist(), draws(rng, len(at)).tolist(), strict=True))
    took_s = over_one_link([(0.0, size), *short], [(0.0, 1.0, 0)])[0]
    assert took_s < at[-1]
    return took_s


@pytest.mark.slow
@pytest.mark.parametrize(
    "law", [pytest.param("exponential", marks=pytest.mark.long), pytest.param("constant", marks=pytest.mark.long), "one in ten is large"]
)
def test_many_short_transfers_leave_a_long_one_what_a_load_does(law):
    """M/G/1 with processor sharing beside a customer of size x: 1 - r of the link in the long run, for any law of sizes.

    While it is there the queue is a branching process with immigration, in the time that its attained service counts: of each
    short one that comes descends a tree whose sizes add up to a busy period of M/G/1, of which Poisson(l x) begin. Its time has the
    mean x / (1 - r) - l E[S^2] / (2 (1 - r)^2), where the second term is what it gains by beginning in an empty queue (the
    renewal equation of the mean number there), and a variance of x l E[S^2] / (1 - r)^3 (the second moment of a busy period,
    Takacs 1962), where what trees lack that are cut off at its end is left out: O(1) against x.
    """
    load, size, runs = 0.4, 150.0, 150
    squares = DISTRIBUTIONS[law][1]
    mean, sd = size / (1 - load) - load * squares / (2 * (1 - load) ** 2), math.sqrt(size * load * squares / (1 - load) ** 3)
    took_s = [time_beside_short_ones(load, law, size, seed) for seed in range(runs)]
    assert np.mean(took_s) == pytest.approx(mean, abs=4 * sd / math.sqrt(runs))
    assert np.std(took_s, ddof=1) == pytest.approx(sd, rel=4 / math.sqrt(2 * (runs - 1)))  # of a sum of some 60 busy periods
    assert 4 * sd / math.sqrt(runs) < 0.15 * load * mean  # so that a seventh more or less of what they take is seen


# -- in trainings --------------------------------------------------------------------------


def ring(background: dict, detail: str, *, ranks: int = 4, size: str = "8 MB", latency: str = "0 s", **cluster) -> Scenario:
    table = scenario_table(
        workload={"variables": [{"name": "w", "size": size, "creation_index": 0, "ready": 1.0}]},
        strategy={"kind": "multi-worker-mirrored", "workers": ranks, "algorithm": "ring"},
        run={"detail": detail},
    )
    table["cluster"] |= {"inter_node": {"bandwidth": "1 GB/s", "latency": latency}, "background": background, **cluster}
    return scenario_from_table(table, "test")


def communication_s(scenario: Scenario) -> float:
    return simulate(scenario).step_time_s.mean - COMPUTE_S


@pytest.mark.parametrize("detail", ["at-once", "messages"])
@pytest.mark.parametrize(("background", "left"), [({"load": 0.5}, 0.5), ({"flows": 3}, 0.25), ({"load": 0.2, "flows": 1}, 0.4)])
def test_a_ring_takes_what_others_leave(detail, background, left):
    found_s = communication_s(ring(background, detail, latency="10 us"))
    assert found_s == pytest.approx(ring_all_reduce_s(4, 8 * MEGABYTE, left * 1e9, 1e-5), rel=1e-9)


@pytest.mark.parametrize("detail", ["at-once", "messages"])
def test_a_ring_goes_as_fast_as_the_link_that_others_use_most(detail):
    found_s = communication_s(ring({"load": 0.5, "nodes": [2]}, detail))
    assert found_s == pytest.approx(ring_all_reduce_s(4, 8 * MEGABYTE, 0.5e9, 0.0), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["halving-doubling", "double-binary-tree", "bidirectional-ring"])
def test_at_once_is_as_message_by_message(algorithm):
    """A constant load, with flows or without, is in the capacities that both ways of evaluation have."""
    for background in ({"load": 0.3}, {"load": [0.1, 0.6]}, {"flows": 2}):
        times = []
        for detail in ("at-once", "messages"):
            scenario = ring(background, detail, latency="10 us")
            strategy = scenario.strategy.model_copy(update={"algorithm": algorithm, "pipeline_chunk_bytes": MEGABYTE})
            times.append(communication_s(scenario.model_copy(update={"strategy": strategy})))
        alone = communication_s(ring({}, "messages").model_copy(update={"strategy": strategy}))
        assert times[0] == pytest.approx(times[1], rel=1e-9 if algorithm != "double-binary-tree" else 0.02)
        assert times[0] > 1.1 * alone


def test_a_fabric_that_others_use():
    """One node a leaf, so that every hop crosses the spine, of half a node's bandwidth, of which half is left."""
    fabric = {"nodes_per_leaf": 1, "oversubscription": 2.0}
    for detail in ("at-once", "messages"):
        found_s = communication_s(ring({"load": 0.5, "on": "fabric"}, detail, fabric=fabric))
        assert found_s == pytest.approx(ring_all_reduce_s(4, 8 * MEGABYTE, 0.25e9, 0.0), rel=1e-9)


RAILS = {"devices_per_node": 4, "nics_per_node": 4, "rails": 4}


@pytest.mark.slow
def test_others_use_every_rail():
    """Four rails of 1 GB/s, over which a ring of whole nodes spreads: others take their part of each."""
    sizes = {"intra_node": {"bandwidth": "1 TB/s", "latency": "0 s"}, **RAILS}
    for detail in ("at-once", "messages"):
        for background, left in (
            ({"load": 0.5}, 0.5),
            ({"flows": 1}, 0.5),
            ({"load": 0.2, "flows": 3}, 0.2),
            ({"load": 0.5, "nodes": [1]}, 0.5),
        ):
            table = ring(background, detail, ranks=8, **sizes)
            assert communication_s(table) == pytest.approx(ring_all_reduce_s(8, 8 * MEGABYTE, 4 * left * 1e9, 0.0), rel=1e-9)
        # a hierarchy's four rings, each a rail of its own, of which all go on at the same time with a quarter of the bytes
        some = [communication_s(hierarchy(ring({"load": load}, detail, ranks=8, **sizes))) for load in (0.0, 0.5)]
        inside_s = 2 * 3 / 4 * 8 * MEGABYTE / 1e12
        assert some == [pytest.approx(ring_all_reduce_s(2, 2 * MEGABYTE, left * 1e9, 0.0) + inside_s, rel=1e-9) for left in (1.0, 0.5)]


def hierarchy(scenario: Scenario) -> Scenario:
    return scenario.model_copy(update={"strategy": scenario.strategy.model_copy(update={"algorithm": "hierarchical"})})


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["hierarchical", "sharp", "nvls"])
def test_switches_and_rails_that_others_use_are_the_same_at_once(algorithm):
    """The spine has half of what the nodes have, so that a load on these is felt from one half on."""
    more: dict = {"fabric": {"nodes_per_leaf": 1, "oversubscription": 2.0, "rail_optimised": True, "sharp": True}, "nvls": {}, **RAILS}
    for background in ({"load": 0.6}, {"flows": 2}, {"load": 0.3, "on": "fabric"}, {"load": 0.9, "on": "intra-node"}):
        found = []
        for its, detail in ((background, "at-once"), (background, "messages"), ({}, "messages")):
            scenario = ring(its, detail, ranks=8, latency="10 us", **more)
            strategy = scenario.strategy.model_copy(update={"algorithm": algorithm})
            found.append(communication_s(scenario.model_copy(update={"strategy": strategy})))
        assert found[0] == pytest.approx(found[1], rel=1e-9)
        assert found[0] > 1.05 * found[2]


@pytest.mark.statistics
def test_each_run_draws_its_load_and_each_link_its_own():
    """Together: a ring's time is that of the one load; each for itself: that of the largest of 2 n draws, whose mean is known."""
    low, high, ranks, runs = 0.1, 0.6, 4, 150
    together, apart = [], []
    for each_link, found in ((False, together), (True, apart)):
        resolved = resolve(ring({"load": [low, high], "each_link": each_link}, "at-once", ranks=ranks))
        for number in range(runs):
            measured = replicate(resolved, number)
            found.append(1 - ring_all_reduce_s(ranks, 8 * MEGABYTE, 1e9, 0.0) / (measured.window_s / (measured.steps / ranks) - COMPUTE_S))
    for found, count in ((together, 1), (apart, 2 * ranks)):
        share = (np.array(found) - low) / (high - low)
        sd = math.sqrt(count / ((count + 1) ** 2 * (count + 2)))
        assert share.mean() == pytest.approx(count / (count + 1), abs=4 * sd / math.sqrt(runs))
        assert share.min() >= -1e-9
        assert share.max() <= 1 + 1e-9


def plain_of(result) -> str:
    """All that was found, without what was asked."""
    return json.dumps({name: value for name, value in result.model_dump(mode="json").items() if name not in ("scenario", "scenario_hash")})


def test_nobody_is_the_same_as_no_neighbours():
    """Byte for byte, but for the scenario's hash and the seconds that it took."""
    cluster = ring({}, "messages").cluster.model_copy(update={"background": None})
    plain = plain_of(simulate(ring({}, "messages").model_copy(update={"cluster": cluster})))
    for background in ({}, {"load": 0.0}, {"load": [0.0, 0.0]}, {"trace": [{"at": "0 s"}, {"at": "1 ms"}], "repeat": "2 ms"}):
        assert plain_of(simulate(ring(background, "messages"))) == plain


@pytest.mark.parametrize("key", ["load", "flows"])
def test_more_of_others_is_never_faster(key):
    grid = [0.0, 0.1, 0.3, 0.35, 0.8] if key == "load" else [0, 1, 2, 5]
    times = [communication_s(ring({key: value}, "messages", latency="10 us")) for value in grid]
    assert times == sorted(times)
    assert len(set(times)) == len(times)


def test_a_trace_changes_a_training_as_its_integral_says():
    """One worker and one server: what is pulled and pushed crosses the links for as long as the integral of what is left takes."""
    period_s, table = 1e-3, scenario_table(strategy={"kind": "parameter-server", "mode": "async", "workers": 1, "servers": 1})
    trace = [(0.0, 0.5, 0), (0.4e-3, 1.0, 0), (0.7e-3, 1.0, 1)]
    table["cluster"]["background"] = {
        "trace": [{"at_s": at, "load": 1 - left, "flows": flows} for at, left, flows in trace], "repeat_s": period_s
    }  # fmt: skip
    scaled = [(at, left * 1e9, flows) for at, left, flows in trace]
    scenario, ends = scenario_from_table(table, "test"), []
    now, compute_s = 0.0, 3e-3 + 10 * 3e-4
    while len(ends) < 6:
        pulled = end_of_one(MEGABYTE, now, scaled, period_s)
        now = end_of_one(MEGABYTE, pulled + compute_s, scaled, period_s)
        ends.append(now)

    recording = Recording()
    replicate(resolve(scenario), 0, recording)
    assert [step.end_s for step in recording.steps[:6]] == pytest.approx(ends, rel=1e-9)


def test_use_counts_our_bytes_alone():
    """Of the whole link, whatever others take of it; and a lack of it is put down to them."""
    scenario = ring({"load": 0.5}, "messages", size="80 MB")
    result = simulate(scenario)
    step_s = result.step_time_s.mean
    carried = 2 * 3 / 4 * 80 * MEGABYTE
    assert result.utilisation.busiest_link == pytest.approx(carried / 1e9 / step_s, rel=1e-3)
    assert result.bottleneck.name == "network"
    assert "background traffic leaves 50%" in result.bottleneck.text
    assert result.utilisation.busiest_link < 0.5


def test_what_is_taken_is_the_mean_over_a_trace():
    its = Background.model_validate({"trace": [{"at_s": 0.0, "load": 0.5}, {"at_s": 1.0, "flows": 3}], "repeat_s": 4.0})
    assert its.taken() == pytest.approx((1 * 0.5 + 3 * 0.75) / 4)
    assert Background.model_validate({"trace": [{"at_s": 0.0, "load": 0.5}, {"at_s": 1.0, "flows": 3}]}).taken() == 0.75
    assert Background(load=0.2, flows=1).taken() == pytest.approx(0.6)
