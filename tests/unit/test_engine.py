"""The clocks' guards, placement, statistics, intervals, streams, units."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from support.network import Network
from support.scenarios import scenario_table

from simulator import load_scenario, scenario_from_table, simulate
from simulator.base.compact import CountHistogram, GroupedCounts, TimeSketch
from simulator.base.errors import DeadlockError, SimulationError, UnitError
from simulator.base.rng import Streams
from simulator.base.text import format_bytes, format_rate, format_seconds
from simulator.base.units import parse_quantity
from simulator.engine.draws import Jitter
from simulator.engine.replication import replicate
from simulator.engine.textbook.clock import Clock
from simulator.resolve.resolve import alone_scenario, resolve
from simulator.results.intervals import _STUDENT_95, prediction_interval
from simulator.results.metrics import Window
from simulator.run import _windows, _without_links
from simulator.spec.distributions import Constant, Slowdown
from simulator.spec.gradients import Partitioner, buckets, place, shards_of
from simulator.spec.workload import Variable


@pytest.mark.parametrize("delay", [float("nan"), float("inf"), -1.0])
def test_a_delay_must_be_finite_and_not_negative(delay):
    network = Network()
    network.at(delay, lambda: None)
    for wait in (network.run, lambda: Clock().timeout(delay)):
        with pytest.raises(SimulationError, match="delay"):
            wait()


def test_a_dead_lock_is_an_error():
    clock = Clock()
    clock.timeout(1.5)
    with pytest.raises(
        DeadlockError, match=r"^deadlock at 1.5 s: every process waits for an event that never happens, and the run has not ended$"
    ):
        clock.run_until(clock.event())


def test_simultaneous_events_run_as_scheduled_and_the_end_of_the_instant_last():
    clock = Clock()
    order: list[str] = []
    for name, event in {"end": clock.end_of_instant(), "first": clock.timeout(0.0), "second": clock.timeout(0.0)}.items():
        event.callbacks.append(lambda _, name=name: order.append(name))
    clock.run_until(clock.timeout(1.0))
    assert order == ["first", "second", "end"]


def test_placement_in_turn_and_greedy():
    sizes = [1.0, 1.0, 1.0, 5.0]
    assert place(sizes, 2, "round-robin") == [0, 1, 0, 1]
    assert place(sizes, 3, "round-robin") == [0, 1, 2, 0]
    assert place(sizes, 2, "greedy") == [0, 1, 0, 1]
    assert place(sizes[::-1], 2, "greedy") == [0, 1, 1, 1]


def test_variables_are_placed_in_the_order_of_their_creation():
    # ready in the reverse order of creation, as in a backward pass
    variables = [{"name": f"v{i}", "size_bytes": 10.0 + i, "creation_index": 3 - i, "ready": i / 4} for i in range(4)]
    strategy = {"kind": "parameter-server", "mode": "async", "workers": 1, "servers": 2}
    scenario = scenario_from_table(scenario_table(workload={"variables": variables}, strategy=strategy), "test")
    built = scenario.strategy.tensors(scenario)
    assert [gradient.server for gradient in built.gradients] == [1, 0, 1, 0]
    assert [share for share, _ in built.backward] == [0.0, 0.25, 0.5, 1.0]
    # the forward pass needs last what the backward pass readies first
    assert [built.variables[index].size_bytes for _, indices in built.forward for index in indices] == [13.0, 12.0, 11.0, 10.0]
    assert [share for share, _ in built.forward] == [0.0, 0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    ("partitioner", "rows", "shares"),
    [
        ({"kind": "fixed-shards", "shards": 3}, 7, [3 / 7, 2 / 7, 2 / 7]),
        ({"kind": "fixed-shards", "shards": 9}, 2, [1 / 2, 1 / 2]),
        # 1,000 bytes in shards of about 300: TensorFlow rounds up to 4, whose shards are smaller than its minimum
        ({"kind": "min-size", "shards": 8, "shard_size_bytes": 300.0}, 100, [1 / 4] * 4),
        ({"kind": "min-size", "shards": 2, "shard_size_bytes": 300.0}, 100, [1 / 2] * 2),
        # rows of 100 bytes, at most 2 of them a shard
        ({"kind": "max-size", "shard_size_bytes": 299.0}, 10, [1 / 5] * 5),
        ({"kind": "max-size", "shard_size_bytes": 299.0, "shards": 3}, 10, [4 / 10, 3 / 10, 3 / 10]),
        ({"kind": "max-size", "shard_size_bytes": 1.0}, 4, [1 / 4] * 4),
    ],
)
def test_partitioners_cut_between_rows(partitioner, rows, shares):
    variable = Variable(name="embedding", size_bytes=1000.0, creation_index=0, ready=1.0, rows=rows)
    assert shards_of(variable, Partitioner(**partitioner)) == pytest.approx(shares)


def test_buckets_fill_in_order_of_readiness():
    variables = [{"name": f"v{i}", "size_bytes": 3.0, "creation_index": i, "ready": i / 4} for i in range(5)]
    load = scenario_from_table(scenario_table(workload={"variables": variables}), "test").workload
    assert buckets(load, 10, None, 4) == [(1.0, 15.0)]
    assert buckets(load, 10, 6.0, 4) == [(0.25, 6.0), (0.75, 6.0), (1.0, 3.0)]
    assert buckets(load, 10, 1.0, 4) == [(0.0, 3.0), (0.25, 3.0), (0.5, 3.0), (0.75, 3.0), (1.0, 3.0)]


def test_sketch_quantiles_to_half_a_percent_in_fixed_memory():
    rng = np.random.default_rng(1)
    values = rng.lognormal(-5, 1.0, 20_000)
    sketch, half = TimeSketch(), TimeSketch()
    for block in np.split(values[:10_000], 10):
        sketch.add(block)
    half.add(values[10_000:])
    sketch.merge(half)
    assert sketch.mean() == pytest.approx(values.mean(), rel=1e-12)
    for share, got in zip((0.05, 0.5, 0.95, 0.99), sketch.quantiles(0.05, 0.5, 0.95, 0.99), strict=True):
        assert got == pytest.approx(np.quantile(values, share, method="inverted_cdf"), rel=0.0051)
    assert len(sketch._bins.counts) < 1500
    assert TimeSketch().quantiles(0.5) == [0.0]


def test_count_histogram():
    histogram = CountHistogram()
    for value in (3, 1, 1, 2):
        histogram.add(value)
    assert histogram.mean() == 7 / 4
    assert [histogram.quantile(share) for share in (0.5, 0.75, 0.99)] == [1, 2, 3]


@pytest.mark.parametrize("name", ["async-ps", "hierarchical-gpus", "oversubscribed-fabric", "ring"])
def test_one_replica_alone_runs_the_same_whatever_the_links(name):
    alone = alone_scenario(resolve(load_scenario(name, [("run.steps", 20)])))
    assert alone.replicas == 1
    own = tuple(Window.of(replicate(resolve(alone), number)) for number in range(3))
    assert _windows(_without_links(alone), 3, "at-once") == own
    slow = alone.cluster.inter_node.model_copy(update={"bandwidth_bytes_per_s": 1e3})
    other = alone.model_copy(update={"cluster": alone.cluster.model_copy(update={"inter_node": slow})})
    assert _without_links(other) == _without_links(alone)
    assert _without_links(alone.model_copy(update={"run": alone.run.model_copy(update={"seed": 5})})) != _without_links(alone)


@pytest.mark.parametrize("most", [30, 5000, 10**9])
def test_count_histogram_is_that_of_its_values(most):
    rng = np.random.default_rng(most)
    assert (CountHistogram().mean(), CountHistogram().quantile(0.5)) == (0.0, 0)
    for count in range(1, 40):
        histogram, values = CountHistogram(), rng.integers(most // 3, most, count)
        histogram.add_all(values[: count // 2])
        histogram.add_all(values[count // 2 :])
        assert histogram.mean() == sum(values.tolist()) / count
        for share in (0.0, 0.1, 0.5, 0.95, 1.0):
            assert histogram.quantile(share) == sorted(values.tolist())[max(math.ceil(share * count), 1) - 1]


def test_grouped_counts_keep_groups_apart():
    counts, other = GroupedCounts(3), GroupedCounts(3)
    rng = np.random.default_rng(4)
    values, groups = rng.poisson(40, 4000), rng.integers(0, 2, 4000)
    counts.add(groups[:2500], values[:2500])
    other.add(groups[2500:], values[2500:])
    counts.merge(other)
    assert counts.means() == pytest.approx([values[groups == 0].mean(), values[groups == 1].mean(), 0.0])
    assert counts.largest.tolist() == [values[groups == 0].max(), values[groups == 1].max(), 0]
    assert counts.quantiles(0.95)[:2] == pytest.approx([np.quantile(values[groups == group], 0.95) for group in (0, 1)], rel=0.15)
    counts.add(np.array([2, 2, 2, 2]), np.array([1, 2, 3, 15]))
    assert [counts.quantiles(share)[2] for share in (0.25, 0.5, 0.75, 1.0)] == [1, 2, 3, 15]


def test_student_table_is_scipys():
    assert pytest.approx([stats.t.ppf(0.95, degrees) for degrees in range(1, 18)], abs=6e-4) == list(_STUDENT_95)


@pytest.mark.parametrize(("count", "scale"), [(5, 1.0), (19, 1.0), (40, 3.0)])
def test_prediction_interval_covers_nine_in_ten(count, scale):
    """Coverage over 4,000 samples: its standard error is 0.005."""
    rng = np.random.default_rng(count)
    hits = 0
    for _ in range(4000):
        interval = prediction_interval(rng.normal(100.0, scale, count))
        hits += interval.low <= rng.normal(100.0, scale) <= interval.high
    assert hits / 4000 == pytest.approx(0.9, abs=4 * 0.005)


def test_streams_are_named_independent_and_repeatable():
    first = Streams(7, 0).generator("compute", 3).random(4)
    assert np.array_equal(first, Streams(7, 0).generator("compute", 3).random(4))
    for other in (
        Streams(8, 0).generator("compute", 3),
        Streams(7, 1).generator("compute", 3),
        Streams(7, 0).generator("start", 3),
        Streams(7, 0).generator("compute", 4),
    ):
        assert not np.array_equal(first, other.random(4))


def test_a_slow_worker_stays_slow_for_a_while():
    slowdown = Slowdown(factor=3.0, mean_slow_steps=20.0, mean_normal_steps=60.0)
    factors = np.empty((20, 20_000))
    Jitter(Constant(), slowdown, Streams(2, 0), np.arange(20)).fill(np.arange(20), factors)
    assert set(factors.flat) == {1.0, 3.0}
    slow = factors == 3.0
    # 400,000 steps in about 5,000 sojourns: standard errors of 1.2% of the share and of the mean sojourn
    assert slow.mean() == pytest.approx(slowdown.slow_share, rel=0.05)
    sojourns = slow.sum() / (np.diff(slow.astype(int)) == 1).sum()
    assert sojourns == pytest.approx(20.0, rel=0.06)
    assert factors.mean() == pytest.approx(slowdown.mean(), rel=0.04)


def test_units_round_trip_through_text():
    assert parse_quantity("25 Gbit/s", "rate") == 25e9 / 8
    assert parse_quantity("64 MiB", "information") == 64 * 2**20
    assert parse_quantity("20 us", "time") == pytest.approx(20e-6, rel=1e-15)
    assert format_rate(25e9 / 8) == "25 Gbit/s"
    assert format_bytes(97.5 * 2**20) == "97.5 MiB"
    assert format_seconds(0.0125) == "12.5 ms"
    for text, dimension in (
        ("5 Gbit", "rate"),
        ("25 GHz", "rate"),
        ("3", "time"),
        ("gbit/s", "rate"),
        ("1 m", "time"),
        ("nan s", "time"),
        ("", "time"),
    ):
        with pytest.raises(UnitError):
            parse_quantity(text, dimension)


def test_events_counted():
    """Events of a step do not creep up: a wall-clock-free guard of the engine's speed."""
    jitter = {"jitter": {"kind": "gamma", "shape": 9.0}}
    run = {"steps": 100, "warmup_steps": 10, "replications": 2}
    ring = simulate(
        scenario_from_table(scenario_table(workload=jitter, strategy={"kind": "multi-worker-mirrored", "workers": 16}, run=run), "test")
    )
    assert ring.events <= 2 * 101  # all ranks at once
    server = simulate(
        scenario_from_table(
            scenario_table(workload=jitter, strategy={"kind": "parameter-server", "mode": "async", "workers": 16}, run=run), "test"
        )
    )
    assert server.events / (16 * 100 * 2) <= 6.9


def test_memory_does_not_grow_with_steps():
    """Records kept by a run of 50 steps and one of 2,000: the same number of numbers."""
    from simulator.engine.replication import replicate

    def kept(steps: int) -> int:
        table = scenario_table(
            workload={"jitter": {"kind": "gamma", "shape": 50.0}},
            strategy={"kind": "parameter-server", "mode": "async", "workers": 4},
            run={"steps": steps, "warmup_steps": 5},
        )
        measured = replicate(resolve(scenario_from_table(table, "test")), 0)
        return len(measured.step_time._bins.counts) + len(measured.staleness.counts)

    assert kept(2000) <= 200 + 2 * kept(50)
