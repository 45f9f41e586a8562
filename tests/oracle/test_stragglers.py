"""Nodes that are slow for a run, and slow-downs that many devices have in common: against the laws of their largest."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.looping import each
from support.runs import measured
from support.scenarios import scenario_table

from simulator import scenario_from_table
from simulator.base.rng import Streams
from simulator.engine.draws import Draws, node_factors
from simulator.resolve.resolve import resolve
from simulator.scenario import Scenario
from simulator.spec.distributions import Slowdown, SlowNodes

RUNS = 150


def together(workers: int, *, devices: int = 1, steps: int = 40, **cluster) -> Scenario:
    """Replicas that wait for each other in every step, and send next to nothing: a step is as long as the slowest one's 10 ms."""
    table = scenario_table(
        workload={"forward": {"base": "4 ms", "per_sample": "0 s"}, "backward": {"base": "6 ms", "per_sample": "0 s"}, "apply": "0 s",
                  "variables": [{"name": "w", "size": "1 B", "creation_index": 0, "ready": 1.0}]},
        strategy={"kind": "multi-worker-mirrored", "workers": workers},
        run={"steps": steps, "warmup_steps": 0},
    )  # fmt: skip
    table["cluster"] |= {"devices_per_node": devices, **cluster}
    return scenario_from_table(table, "test")


def steps_s(scenario: Scenario, runs: int = RUNS) -> np.ndarray:
    """Mean step of each of some runs, in units of the 10 ms of a step of equal nodes."""
    return np.array([run.window_s / (run.steps / scenario.ranks) / 10e-3 for run in measured(scenario, runs)])


@pytest.mark.statistics
@pytest.mark.parametrize(("workers", "devices", "share"), [(1, 1, 0.3), (8, 1, 0.1), (8, 4, 0.1), (32, 1, 0.02)])
def test_a_run_is_slow_if_any_of_its_nodes_is(workers, devices, share):
    """1 - (1 - p)^n of all runs, with n nodes."""
    found = steps_s(together(workers, devices=devices, steps=2, slow_nodes={"share": share, "factor": 1.5}))
    chance = 1 - (1 - share) ** (-(-workers // devices))
    slow = found > 1.25
    assert found[slow] == pytest.approx(1.5, rel=1e-3)
    assert found[~slow] == pytest.approx(1.0, rel=1e-3)
    assert slow.mean() == pytest.approx(chance, abs=4 * math.sqrt(chance * (1 - chance) / RUNS))


@pytest.mark.statistics
def test_of_slow_nodes_that_differ_the_slowest_counts():
    """All n slow by a factor that is even between 1.2 and 1.8: the mean of the largest of n is n / (n + 1) of the way."""
    found = steps_s(together(4, steps=2, slow_nodes={"share": 1.0, "factor": [1.2, 1.8]}))
    sd = 0.6 * math.sqrt(4 / (5**2 * 6))
    assert found.mean() == pytest.approx(1.2 + 0.6 * 4 / 5, abs=4 * sd / math.sqrt(RUNS))


def test_nodes_spread_as_a_lognormal():
    its = node_factors(SlowNodes(spread_cv=0.2), Streams(1, 0), np.arange(20_000))
    assert its.mean() == pytest.approx(1.0, abs=4 * 0.2 / math.sqrt(20_000))
    logs = np.log(its)
    variance = math.log1p(0.2**2)
    assert logs.mean() == pytest.approx(-variance / 2, abs=4 * math.sqrt(variance / 20_000))
    assert logs.var() == pytest.approx(variance, rel=4 * math.sqrt(2 / 20_000))


def test_a_node_is_as_fast_whoever_else_there_is():
    law = SlowNodes(share=0.3, factor=(1.5, 2.0), spread_cv=0.1)
    few, many = (node_factors(law, Streams(7, 2), np.arange(count)) for count in (5, 2000))
    assert few.tolist() == many[:5].tolist()
    # nor does who is slow depend on by how much, or on how nodes spread
    slow = node_factors(SlowNodes(share=0.3, factor=3.0), Streams(7, 2), np.arange(2000)) > 1
    assert (slow == (many > node_factors(SlowNodes(spread_cv=0.1), Streams(7, 2), np.arange(2000)) * 1.4)).all()


@pytest.mark.statistics
@pytest.mark.parametrize(("of", "chains"), [("device", 16), ("node", 8), ("rack", 2), ("cluster", 1)])  # 16 devices on 8 nodes of 2 racks
def test_a_step_is_slow_if_any_chain_is(of, chains):
    """1 - (1 - p)^k of all steps, with k independent chains."""
    slowdown = {"factor": 3.0, "mean_slow_steps": 2.0, "mean_normal_steps": 38.0, "of": of}
    found = steps_s(together(16, devices=2, slowdown=slowdown, fabric={"nodes_per_leaf": 4}), 120)
    wanted = 1 + 2 * (1 - 0.95**chains)
    assert found.mean() == pytest.approx(wanted, abs=4 * found.std(ddof=1) / math.sqrt(len(found)))
    assert found.std(ddof=1) > 0


@pytest.mark.statistics
def test_both_at_once():
    """A slow node in a slow step is slower by both; independent, so that the mean over runs of n = 1 is the product of means."""
    cluster = {
        "slow_nodes": {"share": 0.5, "factor": 2.0},
        "slowdown": {"factor": 3.0, "mean_slow_steps": 1.0, "mean_normal_steps": 3.0, "of": "cluster"},
    }
    found = steps_s(together(1, **cluster))
    assert found.mean() == pytest.approx(1.5 * 1.5, abs=4 * found.std(ddof=1) / math.sqrt(RUNS))


def draws_of(of: str, *, classes: bool = False) -> Draws:
    slowdown = {"factor": 3.0, "mean_slow_steps": 3.0, "mean_normal_steps": 5.0, "of": of}
    cluster = {"fabric": {"nodes_per_leaf": 2}}
    cluster |= {"node_classes": [{"name": "all", "nodes": 6, "slowdown": slowdown}]} if classes else {"slowdown": slowdown}
    return Draws(resolve(together(12, devices=2, **cluster)), Streams(5, 1))


@pytest.mark.parametrize("classes", [False, True], ids=["of the cluster", "of a class"])
@pytest.mark.parametrize(("of", "size"), [("device", 1), ("node", 2), ("rack", 4), ("cluster", 12)])
def test_who_has_a_chain_in_common_is_slow_in_the_same_steps(of, size, classes):
    factors = draws_of(of, classes=classes).factors(np.arange(12), 400)
    groups = factors.reshape(12 // size, size, 400)
    assert (groups == groups[:, :1]).all()
    assert len({tuple(group[0]) for group in groups.tolist()}) == len(groups)
    assert set(np.unique(factors)) == {1.0, 3.0}
    share = (factors[::size] > 1).mean()
    # of a chain with these sojourns steps remember: effective steps are fewer, by (1 + r) / (1 - r) with r = 1 - 1/3 - 1/5
    assert share == pytest.approx(3 / 8, abs=4 * math.sqrt(3 / 8 * 5 / 8 / (400 * 12 / size) * (1 + 7 / 15) / (1 - 7 / 15)))


@pytest.mark.parametrize("of", ["device", "node", "rack", "cluster"])
@each("seed", range(10))
def test_steps_do_not_depend_on_how_they_are_asked_for(of, seed):
    """By block, by rank, some ahead of others."""
    rng = np.random.default_rng(seed)
    whole = draws_of(of).factors(np.arange(12), 120)
    its, found = draws_of(of), [[] for _ in range(12)]
    while min(map(len, found)) < 120:
        block = int(rng.integers(1, 20))
        ranks = np.sort(rng.choice(12, int(rng.integers(1, 12)), replace=False))
        for rank, row in zip(ranks.tolist(), its.factors(ranks, block).tolist(), strict=True):
            found[rank] += row
    assert [row[:120] for row in found] == whole.tolist()


def test_the_mean_factor_is_what_the_law_says():
    assert Slowdown(factor=3.0, mean_slow_steps=1.0, mean_normal_steps=3.0).mean() == 1.5
    assert SlowNodes(share=0.5, factor=(1.0, 3.0)).mean() == 1.5
