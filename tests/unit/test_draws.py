"""What a replication draws is what numpy's own generators draw, bit for bit, however it is asked for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.modes import LOAD
from support.scenarios import scenario_table

from simulator import scenario_from_table
from simulator.base import pcg64
from simulator.base.pcg64 import Sampler, doubles, seeded
from simulator.base.rng import Streams
from simulator.engine.draws import Draws, Jitter, JitterFactors, process_factors
from simulator.network.ports import exact_weight
from simulator.resolve.resolve import resolve
from simulator.spec.distributions import Constant, Empirical, Exponential, Gamma, LogNormal, Normal, ShiftedExponential
from simulator.spec.stragglers import Slowdown

LAWS = {
    "normal": (Normal(cv=0.3), lambda rng, n: np.maximum(rng.normal(1.0, 0.3, n), 0.01)),
    "lognormal": (LogNormal(sigma=0.7), lambda rng, n: rng.lognormal(0.0, 0.7, n)),
    "gamma": (Gamma(shape=3.0), lambda rng, n: rng.gamma(3.0, 1 / 3.0, n)),
    "small gamma": (Gamma(shape=0.4), lambda rng, n: rng.gamma(0.4, 1 / 0.4, n)),
    "exponential": (Exponential(), lambda rng, n: rng.exponential(1.0, n)),
    "shifted": (ShiftedExponential(tail=0.3), lambda rng, n: 1.0 + rng.exponential(0.3, n)),
    "empirical": (Empirical(values=(1.0, 1.3, 0.9, 7.0, 2.0)), lambda rng, n: rng.choice(np.array([1.0, 1.3, 0.9, 7.0, 2.0]), n)),
}
SLOWDOWN = Slowdown(factor=3.0, mean_slow_steps=4.0, mean_normal_steps=9.0)


def one_by_one(law, sample, slowdown, streams, worker, size, least=0.0):
    """The factors of a worker, from generators of its own."""
    values = np.ones(size)
    if law.kind != "constant":
        values = sample(streams.generator("compute", worker), size) / law.mean()
    values = np.maximum(values, least)
    if slowdown is None:
        return values
    rng = streams.generator("slowdown", worker)
    slow, at = bool(rng.random() < slowdown.slow_share), 0
    while at < size:
        left = int(rng.geometric(1.0 / (slowdown.mean_slow_steps if slow else slowdown.mean_normal_steps)))
        if slow:
            values[at : at + left] *= slowdown.factor
        at, slow = at + left, not slow
    return values


def taken(jitter, workers, sizes):
    """The factors of all workers in blocks of some sizes."""
    blocks = []
    for size in sizes:
        block = np.empty((workers, size))
        jitter.fill(np.arange(workers), block)
        blocks.append(block)
    return np.hstack(blocks)


@given(
    seed=st.integers(0, 2**140) | st.sampled_from([0, 2**32 - 1, 2**32, 2**64, 2**128 - 1, 2**128]),
    replication=st.integers(0, 2**33),
    name=st.text(max_size=8),
    indices=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=6),
)
def test_streams_are_seeded_as_numpy_seeds_them(seed, replication, name, indices):
    streams = Streams(seed, replication)
    states = streams.states(name, np.array(indices))
    generators = [streams.generator(name, index) for index in indices]
    for state, generator in zip(states.tolist(), generators, strict=True):
        its = generator.bit_generator.state["state"]
        assert (state[0] | state[1] << 64, state[2] | state[3] << 64) == (its["state"], its["inc"])
    for _ in range(3):
        assert doubles(states).tolist() == [generator.random() for generator in generators]


def test_many_streams_are_seeded_in_several_goes():
    indices = np.arange(40_000)[::-1]
    states = seeded(7, (1, 2), indices)
    for place in (0, 16_383, 16_384, 39_999):
        assert np.array_equal(states[place], seeded(7, (1, 2), indices[place : place + 1])[0])
        rng = np.random.default_rng(np.random.SeedSequence(7, spawn_key=(1, 2, int(indices[place]))))
        assert doubles(states[place : place + 1].copy())[0] == rng.random()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("slowdown", [None, SLOWDOWN])
@examples(20)
@given(seed=st.integers(0, 2**64), replication=st.integers(0, 10_000), sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_factors_are_those_of_a_generator_for_each_worker(law, slowdown, seed, replication, sizes):
    its, sample = LAWS[law]
    streams = Streams(seed, replication)
    least = np.array([0.0, 0.7, 1.2])
    got = taken(Jitter(its, slowdown, streams, np.arange(3), least), 3, sizes)
    want = [one_by_one(its, sample, slowdown, streams, worker, sum(sizes), least[worker]) for worker in range(3)]
    assert np.array_equal(got, want)


def test_workers_may_be_asked_in_any_order():
    law, sample = LAWS["empirical"]
    streams = Streams(5, 1)
    jitter, got = Jitter(law, SLOWDOWN, streams, np.arange(10, 15)), {worker: [] for worker in range(5)}
    for which, size in (([3, 1], 7), ([4], 3), ([1, 0, 2], 9), ([0, 1, 2, 3, 4], 5), ([4, 3], 1)):
        block = np.empty((len(which), size))
        jitter.fill(np.array(which), block)
        for worker, row in zip(which, block, strict=True):
            got[worker] += row.tolist()
    for worker, values in got.items():
        assert values == one_by_one(law, sample, SLOWDOWN, streams, 10 + worker, len(values)).tolist()


@pytest.mark.parametrize("law", ["gamma", "empirical"])
def test_numpy_that_keeps_its_states_elsewhere_gives_the_same_draws(law, monkeypatch):
    its, _ = LAWS[law]
    assert pcg64._memory_is_known()  # here; else the fast way is not what the other tests test
    fast = taken(Jitter(its, SLOWDOWN, Streams(3, 4), np.arange(4)), 4, (5, 30, 1))
    monkeypatch.setattr(pcg64, "_memory_is_known", lambda: False)
    assert Sampler()._memory is None
    assert np.array_equal(fast, taken(Jitter(its, SLOWDOWN, Streams(3, 4), np.arange(4)), 4, (5, 30, 1)))


def test_what_never_varies_has_no_streams():
    jitter = Jitter(Constant(), None, Streams(0, 0), np.arange(1_000_000_000_000, 1_000_000_000_003), np.full(3, 2.0))
    assert jitter.constant
    assert taken(jitter, 3, [4]).tolist() == [[1.0] * 4] * 3


# -- of a scenario --------------------------------------------------------------------------

CLASSES = [
    {"name": "slow", "nodes": 2, "speed": 0.5, "slowdown": SLOWDOWN.model_dump()},
    {"name": "other", "nodes": 1, "speed": 3.0, "jitter": {"kind": "gamma", "shape": 3.0}},
]


def built(**changes):
    workload = {**LOAD, "run_to_run_cv": 0.2, "run_to_run_shared": 0.4, "jitter_least": 0.9, **changes.pop("workload", {})}
    strategy = {"kind": "parameter-server", "workers": 10, "mode": "async", **changes.pop("strategy", {})}
    cluster = {"node_classes": CLASSES, "devices_per_node": 2, **changes.pop("cluster", {})}
    run = {"start": "random-phase", **changes.pop("run", {})}
    return scenario_from_table(scenario_table(workload=workload, strategy=strategy, cluster=cluster, run=run), "test")


def test_columns_are_those_of_each_worker():
    scenario, streams = built(), Streams(9, 2)
    draws = Draws(resolve(scenario), streams)
    load, variance = scenario.workload, np.log1p(0.04)
    for rank in range(10):
        own = np.sqrt(0.6 * variance) * streams.generator("run", rank).standard_normal()
        shared = np.sqrt(0.4 * variance) * streams.generator("machine", rank // 2).standard_normal()
        speed = {0: 0.5, 1: 0.5, 2: 3.0}.get(rank // 2, 1.0)
        slowness = np.exp(own + shared - variance / 2) / speed
        assert draws.forward_s[rank] == pytest.approx(load.forward(10) * slowness, rel=1e-15)
        assert draws.backward_s[rank] == pytest.approx(load.backward(10) * slowness, rel=1e-15)
        assert draws.apply_s[rank] == pytest.approx(load.apply_s * slowness, rel=1e-15)
        assert draws.start_s[rank] == streams.generator("start", rank).uniform(0.0, scenario.full_step_s)
    assert not draws.constant.any()


def test_each_kind_of_node_has_its_own_jitter():
    scenario, streams = built(), Streams(9, 2)
    draws, least = Draws(resolve(scenario), streams), 0.9 / process_factors(scenario.workload, streams, np.arange(10), np.arange(10) // 2)
    order = np.array([7, 0, 5, 3, 4, 9, 1, 2, 8, 6])
    got = np.hstack([draws.factors(order, 3), draws.factors(order, 20)])
    for row, rank in zip(got, order.tolist(), strict=True):
        law, sample = LAWS["gamma" if rank in (4, 5) else "exponential"]
        slowdown = SLOWDOWN if rank < 4 else None
        assert np.array_equal(row, one_by_one(law, sample, slowdown, streams, rank, 23, 0.0 if rank in (4, 5) else least[rank]))
    again = Draws(resolve(scenario), streams)
    factors = [JitterFactors(again, rank) for rank in order.tolist()]
    assert np.array_equal([[each.next() for each in factors] for _ in range(23)], got.T)


def test_adding_a_worker_changes_no_other_workers_draws():
    few, many = (
        Draws(resolve(built(strategy={"workers": workers}, run={"start": "staggered", "start_spread": "1 s"})), Streams(1, 0))
        for workers in (7, 9)
    )
    assert np.array_equal(few.start_s, many.start_s[:7])
    assert np.array_equal(few.forward_s, many.forward_s[:7])
    assert np.array_equal(few.factors(np.arange(7), 40), many.factors(np.arange(9), 40)[:7])


@pytest.mark.parametrize("count", [1, 4, 33])
def test_pull_orders_are_successive_permutations(count):
    streams = Streams(4, 1)
    draws = Draws(resolve(built()), streams)
    blocks = [draws.pull_orders(np.array([8, 3]), count, block=block) for block in (1, 5, 16)]
    for place, rank in enumerate((8, 3)):
        rng = streams.generator("pull-order", rank)
        for order in np.concatenate([block[place] for block in blocks]):
            assert np.array_equal(order, rng.permutation(count))


def test_weights_come_in_the_order_of_the_stream():
    transport = {"discipline": "weighted", "weight_sigma": 0.5}
    streams = Streams(4, 1)
    blocks = Draws(resolve(built(cluster={"transport": transport})), streams).weights()
    got = np.concatenate(list(itertools.islice(blocks, 3)))
    deviations = streams.generator("weights").standard_normal(len(got)).clip(-5, 5)
    assert got.tolist() == [exact_weight(weight) for weight in np.exp(0.5 * deviations).tolist()]


def test_a_million_workers_have_little_each():
    jitter = Jitter(Exponential(), None, Streams(0, 0), np.arange(1_000_000))
    assert jitter._states.nbytes <= 40e6
    block = np.empty((2, 16))
    jitter.fill(np.array([999_999, 0]), block)
    assert np.array_equal(block[0], Streams(0, 0).generator("compute", 999_999).exponential(1.0, 16))
