"""What a replication draws depends on its seed, its number and names alone, however it is asked for, and has the laws that it says."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.examples import examples
from support.modes import LOAD
from support.scenarios import scenario_table

from simulator import scenario_from_table
from simulator.base.rng import Rows, Streams
from simulator.engine.draws import Draws, Jitter, JitterFactors, node_factors, process_factors
from simulator.engine.slowdowns import Apart, Together, drawn
from simulator.resolve.resolve import resolve
from simulator.spec.distributions import Constant, Empirical, Exponential, Gamma, LogNormal, Normal, ShiftedExponential, Slowdown, SlowNodes

MEASURED = (1.0, 1.3, 0.9, 7.0, 2.0)
DISTRIBUTIONS = {
    "normal": (Normal(cv=0.3), stats.norm(1.0, 0.3)),
    "lognormal": (LogNormal(sigma=0.7), stats.lognorm(0.7)),
    "gamma": (Gamma(shape=3.0), stats.gamma(3.0, scale=1 / 3.0)),
    "small gamma": (Gamma(shape=0.4), stats.gamma(0.4, scale=1 / 0.4)),
    "exponential": (Exponential(), stats.expon()),
    "shifted": (ShiftedExponential(tail=0.3), stats.expon(1.0, 0.3)),
}
ALL = {**{name: law for name, (law, _) in DISTRIBUTIONS.items()}, "empirical": Empirical(values=MEASURED)}
SLOWDOWN = Slowdown(factor=3.0, mean_slow_steps=4.0, mean_normal_steps=9.0)
NO_CHANCE = 1e-3
"""Below this a test of a fixed seed would be said to fail."""


def asked(fill, which, size):
    """The next draws of some rows in a new array."""
    out = np.empty((len(which), size))
    fill(np.array(which), out)
    return out


def numpys(law, streams, name, number, columns=96):
    """The draws of a row by numpy's generators as they are made: a block of 32 draws of 256 rows after the other."""
    group, row = divmod(number, 256)
    blocks = []
    for block in range(-(-columns // 32)):
        philox = np.random.Philox(key=np.array(streams._key(name), dtype=np.uint64), counter=[0, 0, block, group])
        blocks.append(law.sample(np.random.Generator(philox), (256, 32))[row])
    return np.concatenate(blocks)[:columns]


# -- streams --------------------------------------------------------------------------------


def test_a_stream_is_of_its_seed_replication_name_and_index_alone():
    found = {
        tuple(stream.random(4).tolist())
        for seed, replication, name, index in itertools.product((0, 1, 2**130), (0, 1), ("compute", "start"), (0, 1))
        for stream in (Streams(seed, replication).generator(name, index),)
    }
    assert len(found) == 24
    assert np.array_equal(Streams(3, 1).generator("compute", 2).random(9), Streams(3, 1).generator("compute", 2).random(9))
    assert isinstance(Streams(0, 0).generator("compute").bit_generator, np.random.Philox)


def test_streams_of_the_seed_are_the_same_in_all_replications():
    first, second = (Streams(5, replication).of_the_seed("practice", 3).random(5).tolist() for replication in (0, 7))
    assert first == second
    others = [Streams(6, 0).of_the_seed("practice", 3), Streams(5, 0).of_the_seed("practice", 4), Streams(5, 0).generator("practice", 3)]
    assert all(other.random(5).tolist() != first for other in others)


def test_rows_of_other_seeds_replications_names_and_numbers_differ():
    found = {
        tuple(row)
        for seed, replication, name in itertools.product((0, 1), (0, 1), ("compute", "input"))
        for row in asked(Streams(seed, replication).rows(name, np.arange(600), np.random.Generator.random).fill, range(600), 3).tolist()
    }
    assert len(found) == 8 * 600
    uniform = asked(Streams(1, 0).rows("compute", np.arange(600), np.random.Generator.random).fill, range(600), 40)
    for values in (uniform.ravel(), uniform[:, 0], uniform[0], uniform[300]):
        assert stats.kstest(values, "uniform").pvalue > NO_CHANCE
    # neither neighbours, nor rows and blocks of different groups, go together
    for one, other in ((uniform[1:], uniform[:-1]), (uniform[:256], uniform[256:512]), (uniform[:, :8], uniform[:, 32:])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 4 / np.sqrt(one.size)


@pytest.mark.parametrize("law", ALL)
def test_rows_are_what_numpys_generators_draw(law):
    streams = Streams(2, 3)
    rows = streams.rows("compute", np.arange(700), ALL[law].sample)
    which = [0, 1, 255, 256, 511, 600, 699]
    found = np.hstack([asked(rows.fill, which, size) for size in (5, 40, 51)])
    assert np.array_equal(found, [numpys(ALL[law], streams, "compute", number) for number in which])


REQUESTS = st.lists(
    st.tuples(st.lists(st.sampled_from([0, 1, 2, 254, 255, 256, 299]), min_size=1, unique=True), st.integers(0, 70)), min_size=1, max_size=8
)


@pytest.mark.parametrize("law", ALL)
@examples(20)
@given(requests=REQUESTS, begins=st.integers(0, 300), more=st.integers(0, 300))
def test_draws_depend_neither_on_rows_nor_order_nor_sizes(law, requests, begins, more):
    streams, numbers = Streams(7, 1), np.arange(begins, begins + 300)
    rows = streams.rows("compute", numbers, ALL[law].sample)
    found = {place: [] for place in range(300)}
    for which, size in requests:
        for place, values in zip(which, asked(rows.fill, which, size).tolist(), strict=True):
            found[place] += values
    most = max(map(len, found.values()))
    at_once = asked(streams.rows("compute", np.arange(begins + 300 + more), ALL[law].sample).fill, numbers, most)
    for place, values in found.items():
        assert values == at_once[place, : len(values)].tolist()


@pytest.mark.parametrize("limit", [1, 1 << 17])
def test_blocks_that_had_to_go_are_drawn_again(monkeypatch, limit):
    monkeypatch.setattr("simulator.base.rng._KEPT_BYTES", limit)
    rows = Streams(7, 1).rows("compute", np.arange(2000), Exponential().sample)
    found = np.hstack([asked(rows.fill, range(2000), size) for size in (3, 30, 50)])
    monkeypatch.undo()
    assert np.array_equal(found, asked(Streams(7, 1).rows("compute", np.arange(2000), Exponential().sample).fill, range(2000), 83))


def test_blocks_go_when_all_their_draws_have_been_used():
    rows = Streams(7, 1).rows("compute", np.arange(2000), Exponential().sample)
    asked(rows.fill, range(1000), 40)
    assert len(rows._blocks) == 5  # the first block of the fourth group, and the second of all four
    asked(rows.fill, range(1000, 2000), 40)
    asked(rows.fill, range(2000), 24)
    assert not rows._blocks


def test_one_draw_of_each_row():
    assert not len(Streams(4, 0).once("start", np.arange(0), np.random.Generator.random))
    found = Streams(4, 0).once("start", np.array([3, 9, 8191, 8192, 20_000]), np.random.Generator.random)
    assert np.array_equal(found, Streams(4, 0).once("start", np.arange(30_000), np.random.Generator.random)[[3, 9, 8191, 8192, 20_000]])
    names = np.array([5, 77, 2**32 - 1])
    found = Streams(4, 0).once("background", names, np.random.Generator.random, scattered=True)
    assert found[1:2] == Streams(4, 0).once("background", names[1:2], np.random.Generator.random, scattered=True)
    assert len(set(found.tolist())) == 3


# -- laws -----------------------------------------------------------------------------------


@pytest.mark.parametrize("law", DISTRIBUTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_factors_have_their_law(law, seed):
    its, known = DISTRIBUTIONS[law]
    factors = asked(Jitter(its, None, Streams(seed, 0), np.arange(300)).fill, range(300), 50)
    assert stats.kstest(factors.ravel() * its.mean(), known.cdf).pvalue > NO_CHANCE
    assert its.mean() == pytest.approx(known.mean(), rel=1e-12)
    assert abs(factors.mean() - 1.0) < 4 * known.std() / known.mean() / np.sqrt(factors.size)


@pytest.mark.parametrize("seed", range(3))
def test_measured_values_come_equally_often(seed):
    its = ALL["empirical"]
    factors = asked(Jitter(its, None, Streams(seed, 0), np.arange(300)).fill, range(300), 50)
    values, counts = np.unique(factors, return_counts=True)
    assert values == pytest.approx(np.sort(MEASURED) / np.mean(MEASURED), rel=1e-15)
    assert stats.chisquare(counts).pvalue > NO_CHANCE


def test_a_law_is_sampled_in_any_shape():
    for law in [*ALL.values(), Constant()]:
        flat, table = (law.sample(np.random.default_rng(3), size) for size in (12, (4, 3)))
        assert np.array_equal(flat.reshape(4, 3), table)


def test_normal_draws_are_positive():
    draws = Normal(cv=0.3).sample(np.random.default_rng(1), 100_000)
    assert draws.min() == 0.01


def test_what_never_varies_draws_nothing():
    jitter = Jitter(Constant(), None, Streams(0, 0), np.arange(1_000_000_000_000, 1_000_000_000_003), np.full(3, 2.0))
    assert jitter.constant
    assert asked(jitter.fill, range(3), 4).tolist() == [[1.0] * 4] * 3


def test_no_factor_is_below_the_least_before_it_is_slowed_down():
    least = np.array([0.0, 0.7, 1.2])
    plain = asked(Jitter(Exponential(), None, Streams(5, 0), np.arange(3)).fill, range(3), 60)
    slow = np.ones((3, 60))
    Apart(SLOWDOWN, Streams(5, 0), np.arange(3)).slow_down(np.arange(3), slow)
    found = asked(Jitter(Exponential(), SLOWDOWN, Streams(5, 0), np.arange(3), least).fill, range(3), 60)
    assert np.array_equal(found, np.maximum(plain, least[:, None]) * slow)


# -- persistence ----------------------------------------------------------------------------


def persistent(law, persistence):
    """The same with persistence."""
    return law.model_copy(update={"persistence": persistence})


@pytest.mark.parametrize("law", DISTRIBUTIONS)
def test_what_persists_has_the_same_distribution_at_any_step(law):
    its, frozen = DISTRIBUTIONS[law]
    found = asked(drawn(persistent(its, 0.9), Streams(4, 0), "compute", np.arange(4000)).fill, range(4000), 30)
    for step in (0, 1, 29):
        assert stats.kstest(found[:, step], frozen.cdf).pvalue > NO_CHANCE


@pytest.mark.parametrize("persistence", [0.1, 0.66, 0.97])
def test_steps_that_are_k_apart_have_the_autocorrelation_persistence_to_the_k(persistence):
    found = asked(drawn(persistent(Gamma(shape=2.0), persistence), Streams(1, 0), "compute", np.arange(20_000)).fill, range(20_000), 41)
    for apart in (1, 2, 10, 40):
        now, then = found[:, 0], found[:, apart]
        assert stats.binomtest(int(np.count_nonzero(now == then)), 20_000, persistence**apart).pvalue > NO_CHANCE
        assert stats.pearsonr(now[now != then], then[now != then]).pvalue > NO_CHANCE  # a new one knows nothing of the old


def test_what_always_persists_is_drawn_once_and_what_never_does_as_before():
    streams, which = Streams(3, 1), range(50)
    for_ever = asked(drawn(persistent(Exponential(), 1.0), streams, "compute", np.arange(50)).fill, which, 70)
    assert np.array_equal(for_ever, np.repeat(for_ever[:, :1], 70, axis=1))
    assert len(np.unique(for_ever[:, 0])) == 50
    never = asked(drawn(persistent(Exponential(), 0.0), streams, "compute", np.arange(50)).fill, which, 70)
    assert np.array_equal(never, asked(streams.rows("compute", np.arange(50), Exponential().sample).fill, which, 70))


@pytest.mark.parametrize("law", ALL)
@examples(20)
@given(requests=REQUESTS, more=st.integers(0, 300), persistence=st.sampled_from([0.3, 0.9, 1.0]))
def test_persistent_draws_depend_neither_on_rows_nor_order_nor_sizes(law, requests, more, persistence):
    its, streams = persistent(ALL[law], persistence), Streams(7, 1)
    rows, found = drawn(its, streams, "compute", np.arange(300)), {place: [] for place in range(300)}
    for which, size in requests:
        for place, values in zip(which, asked(rows.fill, which, size).tolist(), strict=True):
            found[place] += values
    most = max(map(len, found.values()))
    at_once = asked(drawn(its, streams, "compute", np.arange(300 + more)).fill, range(300), most)
    for place, values in found.items():
        assert values == at_once[place, : len(values)].tolist()


def test_a_persistent_draw_follows_its_chances_one_by_one():
    streams, its = Streams(6, 2), persistent(Exponential(), 0.7)
    rows = drawn(its, streams, "compute", np.arange(5))
    found = np.hstack([asked(rows.fill, range(5), size) for size in (7, 1, 40)])
    fresh = asked(streams.rows("compute", np.arange(5), its.sample).fill, range(5), 48)
    chances = asked(streams.rows("compute stays", np.arange(5), np.random.Generator.random).fill, range(5), 48)
    now = streams.once("compute at first", np.arange(5), its.sample)
    for step in range(48):
        now = np.where(chances[:, step] < 0.7, now, fresh[:, step])
        assert np.array_equal(found[:, step], now)


# -- slowdowns ------------------------------------------------------------------------------


def steps_slow(chain, which, size):
    """Whether each of the next steps is slow."""
    out = np.ones((len(which), size))
    chain.slow_down(np.array(which), out)
    return out > 1


@pytest.mark.parametrize(("mean_slow", "mean_normal"), [(4.0, 9.0), (1.0, 9.0), (30.0, 2.0), (1.2, 1.1), (1.0, 1.0)])
def test_chains_have_the_sojourns_that_they_say(mean_slow, mean_normal):
    slowdown = Slowdown(factor=3.0, mean_slow_steps=mean_slow, mean_normal_steps=mean_normal)
    chain = Apart(slowdown, Streams(3, 0), np.arange(400))
    slow = np.hstack([steps_slow(chain, range(400), size) for size in (1, 63, 300, 36)])
    starts, ends = slow[:, :-1], slow[:, 1:]
    for state, mean in ((True, mean_slow), (False, mean_normal)):
        came, left = np.count_nonzero(starts == state), np.count_nonzero((starts == state) & (ends != state))
        assert stats.binomtest(left, came, 1 / mean).pvalue > NO_CHANCE
    assert stats.binomtest(int(slow[:, 0].sum()), 400, slowdown.slow_share).pvalue > NO_CHANCE


def test_a_chain_follows_its_draws_one_by_one():
    """The state after each draw, from the definition, for chains that tend to stay and for such that tend to change."""
    for slowdown in (SLOWDOWN, Slowdown(factor=2.0, mean_slow_steps=1.3, mean_normal_steps=1.5)):
        streams, chain = Streams(6, 2), Apart(slowdown, Streams(6, 2), np.arange(5))
        found = np.hstack([steps_slow(chain, range(5), size) for size in (7, 1, 40)])
        draws = asked(streams.rows("slowdown of device", np.arange(5), np.random.Generator.random).fill, range(5), 48)
        now = streams.once("slowdown of device at first", np.arange(5), np.random.Generator.random) < slowdown.slow_share
        for step in range(48):
            assert np.array_equal(found[:, step], now)
            now = draws[:, step] < np.where(now, 1 - 1 / slowdown.mean_slow_steps, 1 / slowdown.mean_normal_steps)


@examples(30)
@given(requests=st.lists(st.tuples(st.lists(st.integers(0, 5), min_size=1, unique=True), st.integers(1, 50)), min_size=1, max_size=8))
def test_a_group_is_slow_in_the_same_steps_whoever_asks_first(requests):
    groups = np.array([0, 0, 0, 4, 4, 7])
    of_nodes = SLOWDOWN.model_copy(update={"of": "node"})
    chain, found = Together(of_nodes, Streams(3, 0), groups), {place: [] for place in range(6)}
    for which, size in requests:
        for place, row in zip(which, steps_slow(chain, which, size).tolist(), strict=True):
            found[place] += row
    at_once = steps_slow(Together(of_nodes, Streams(3, 0), groups), range(6), max(map(len, found.values())))
    assert np.array_equal(at_once[0], at_once[2])
    for place, values in found.items():
        assert values == at_once[place, : len(values)].tolist()


def test_what_all_of_a_group_have_passed_is_forgotten():
    chain = Together(SLOWDOWN.model_copy(update={"of": "node"}), Streams(3, 0), np.arange(100) // 8)
    for _ in range(200):
        steps_slow(chain, range(100), 10)
    assert chain._ahead._known.shape[1] < 100


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
    own = np.sqrt(0.6 * variance) * streams.once("run", np.arange(10), np.random.Generator.standard_normal)
    shared = np.sqrt(0.4 * variance) * streams.once("machine", np.arange(5), np.random.Generator.standard_normal)
    starts = streams.once("start", np.arange(10), np.random.Generator.random)
    for rank in range(10):
        speed = {0: 0.5, 1: 0.5, 2: 3.0}.get(rank // 2, 1.0)
        slowness = np.exp(own[rank] + shared[rank // 2] - variance / 2) / speed
        assert draws.forward_s[rank] == pytest.approx(load.forward(10) * slowness, rel=1e-15)
        assert draws.backward_s[rank] == pytest.approx(load.backward(10) * slowness, rel=1e-15)
        assert draws.apply_s[rank] == pytest.approx(load.apply_s * slowness, rel=1e-15)
        assert draws.start_s[rank] == scenario.full_step_s * starts[rank]
    assert not draws.constant.any()


def test_each_kind_of_node_has_its_own_jitter():
    scenario, streams = built(), Streams(9, 2)
    draws, least = Draws(resolve(scenario), streams), 0.9 / process_factors(scenario.workload, streams, np.arange(10), np.arange(10) // 2)
    order = np.array([7, 0, 5, 3, 4, 9, 1, 2, 8, 6])
    got = np.hstack([draws.factors(order, 3), draws.factors(order, 20)])
    slowed = np.ones((10, 23))
    Apart(SLOWDOWN, streams, np.arange(4)).slow_down(np.arange(4), slowed[:4])
    for row, rank in zip(got, order.tolist(), strict=True):
        law = ALL["gamma" if rank in (4, 5) else "exponential"]
        own = numpys(law, streams, "compute", rank, 23) / law.mean()
        assert np.array_equal(row, np.maximum(own, 0.0 if rank in (4, 5) else least[rank]) * slowed[rank])
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


def test_a_replication_draws_the_same_in_scenarios_of_one_seed():
    """So that two settings are compared by the same luck."""
    plain, other = (
        Draws(resolve(built(workload={"jitter": jitter.model_dump()})), Streams(1, 4))
        for jitter in (DISTRIBUTIONS["gamma"][0], Exponential())
    )
    assert np.array_equal(plain.start_s, other.start_s)
    assert np.array_equal(plain.forward_s, other.forward_s)
    distributions = LogNormal(sigma=0.1), LogNormal(sigma=0.2)
    jitters = [Jitter(its, None, Streams(1, 4), np.arange(4)) for its in distributions]
    logs = [np.log(asked(jitter.fill, range(4), 40) * its.mean()) for jitter, its in zip(jitters, distributions, strict=True)]
    assert logs[1] == pytest.approx(2 * logs[0], abs=1e-12)


def test_nodes_draw_each_for_itself():
    few, many = (
        node_factors(SlowNodes(share=0.3, factor=(2.0, 4.0), spread_cv=0.1), Streams(1, 0), np.arange(count)) for count in (5, 9000)
    )
    assert np.array_equal(few, many[:5])
    assert many.mean() == pytest.approx(1 + 0.3 * 2, abs=4 * many.std() / np.sqrt(9000))


@pytest.mark.parametrize("count", [1, 4, 33, 5000])
def test_pull_orders_are_permutations_whatever_the_blocks(count):
    streams = Streams(4, 1)
    draws, again = Draws(resolve(built()), streams), Draws(resolve(built()), streams)
    found = np.concatenate([draws.pull_orders(np.array([8, 3]), count, block=block) for block in (1, 5, 16)], axis=1)
    assert np.array_equal(found, again.pull_orders(np.arange(10), count, block=22)[[8, 3]])
    assert (np.sort(found, axis=-1) == np.arange(count)).all()


def test_all_orders_are_as_frequent():
    orders = Draws(resolve(built()), Streams(4, 1)).pull_orders(np.arange(10), 3, block=300).reshape(-1, 3)
    assert stats.chisquare(np.unique(orders, axis=0, return_counts=True)[1]).pvalue > NO_CHANCE


def test_weights_come_in_the_order_of_the_stream():
    transport = {"discipline": "weighted", "weight_sigma": 0.5}
    streams = Streams(4, 1)
    blocks = Draws(resolve(built(cluster={"transport": transport})), streams).weights()
    got = np.concatenate(list(itertools.islice(blocks, 3)))
    deviations = streams.generator("weights").standard_normal(len(got)).clip(-5, 5)
    assert got.tolist() == [max(round(weight * 2**24), 1) / 2**24 for weight in np.exp(0.5 * deviations).tolist()]


@pytest.mark.slow
def test_a_million_workers_have_little_each():
    tracemalloc.start()
    rows: Rows = Streams(0, 0).rows("compute", np.arange(1_000_000), Exponential().sample)
    assert tracemalloc.get_traced_memory()[0] < 40e6
    block = np.empty((10_000, 5))
    for begin in range(0, 1_000_000, 10_000):
        rows.fill(np.arange(begin, begin + 10_000), block)
    assert tracemalloc.get_traced_memory()[1] < 120e6
    tracemalloc.stop()
    assert sum(kept.nbytes for kept, _ in rows._blocks.values()) <= 1 << 25
    assert np.array_equal(block[-1], numpys(Exponential(), Streams(0, 0), "compute", 999_999, 5))
