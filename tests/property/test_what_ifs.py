"""What a change of speeds brings keeps to what physics allows, whatever the scenario: no harm, and no more than the parts' own ratio."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from support.random_scenarios import seeded_scenarios
from support.sampling import SHARE

from paceline.comparing import compare, has_effect
from paceline.gain_bounds import NO_BOUNDS, gain_bounds
from simulator import load_scenario, simulate
from simulator.base.errors import PacelineError
from simulator.results.results import Result
from simulator.results.what_if import with_batch, with_compute, with_inner_links, with_latency, with_network
from simulator.scenario import Scenario

FASTER: dict[str, Callable[[Scenario], Scenario]] = {
    "twice the network": lambda its: with_network(its, 2.0),
    "half the latency": lambda its: with_latency(its, 0.5),
    "twice the device": lambda its: with_compute(its, 0.5),
    "twice the links in a node": lambda its: with_inner_links(its, 2.0),
    "twice all of these": lambda its: with_inner_links(with_latency(with_network(with_compute(its, 0.5), 2.0), 0.5), 2.0),
}


@cache
def small_scenarios() -> dict[int, Scenario]:
    """Those of at most 64 ranks among the first eighty, or twenty."""
    return {place: scenario for place, scenario in enumerate(seeded_scenarios(80 // SHARE)) if scenario.ranks <= 64}


def doubtful(scenario: Scenario) -> Scenario:
    """With the widest discrepancy that any regime has, so that intervals would reach wherever they are let."""
    own = {"compute": {"at": 0.2, "per_doubling": 0.1}, "communication": {"at": 0.9}}
    return Scenario.model_validate({**scenario.sections, "discrepancy": own})


@cache
def plain_result(seed: int) -> Result | None:
    """Of the scenario of a seed as it is, which every change is compared with."""
    return simulated(doubtful(small_scenarios()[seed]))


def simulated(scenario: Scenario) -> Result | None:
    try:
        return simulate(scenario)
    except PacelineError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("name", list(FASTER))
def test_a_faster_part_never_slows_a_run_and_brings_no_more_than_its_own_ratio(name: str) -> None:
    pairs = certain = 0
    for seed, scenario in small_scenarios().items():
        base = doubtful(scenario)
        try:
            faster = FASTER[name](base)
        except PacelineError:
            continue
        if faster == base:  # such as half of no latency
            continue
        ours, theirs = simulated(faster), plain_result(seed)
        if ours is None or theirs is None:
            continue
        bounds = gain_bounds(faster, base)
        assert bounds == pytest.approx((1.0, 2.0)), f"{name} of seed {scenario.run.seed} is not seen as a change of speed"
        assert gain_bounds(base, faster) == pytest.approx((0.5, 1.0))
        found = compare(ours, theirs)
        pairs += 1
        assert 1.0 <= found.ratio.low <= found.ratio.mean <= found.ratio.high <= 2.0 * (1 + 1e-9)
        if found.runs and found.wins == found.runs and found.ratio.mean > 1.001:
            assert found.clear, "what wins every pair is not called uncertain"
            certain += 1
        mirrored = compare(theirs, ours)
        assert 0.5 * (1 - 1e-9) <= mirrored.ratio.low <= mirrored.ratio.mean <= mirrored.ratio.high <= 1.0
    assert pairs >= 28 // SHARE
    assert certain >= 4 // SHARE


@pytest.mark.slow
def test_what_limits_at_all_ends_of_the_doubt_shows_in_full() -> None:
    """64 workers at one server's link, of which twice is twice the throughput: an interval below 1 hid that."""
    settings = [("strategy.workers", 64), ("strategy.servers", 1), ("cluster.inter_node.latency", "0 s"),
                ("cluster.transport.software", "given"), ("run.steps", 20), ("run.replications", 3)]  # fmt: skip
    theirs = simulate(load_scenario("async-ps", settings))
    ours = simulate(load_scenario("async-ps", [*settings, ("cluster.inter_node.bandwidth", "50 Gbit/s")]))
    found = compare(ours, theirs)
    assert found.wins == found.runs
    assert found.ratio.mean > 1.9
    assert found.ratio.low >= 1.0
    assert found.clear
    assert has_effect(found.ratio)


def test_what_differs_in_more_than_speeds_has_no_bounds() -> None:
    base = load_scenario("ring")
    assert gain_bounds(base, base) == NO_BOUNDS
    assert gain_bounds(load_scenario("ring", [("strategy.workers", 3)]), base) == NO_BOUNDS
    assert gain_bounds(load_scenario("ring", [("workload.jitter", {"kind": "constant"})]), base) == NO_BOUNDS


@pytest.mark.slow
def test_twice_the_batch_is_at_most_twice_the_throughput_whatever_launching_takes() -> None:
    """Kernels so small that the host may launch them in several times as long: with twice the batch they are twice as large."""
    base = load_scenario("rails-sharp", [("run.steps", 10), ("workload.batch_per_replica", 32)])
    larger = with_batch(base, 2)
    assert gain_bounds(larger, base) == pytest.approx((1.0, 2.0))
    result, before = simulate(larger), simulate(base)
    assert any(part.name == "launching of kernels" and part.ends[0] > 1.0 for part in before.discrepancy.parts)
    found = compare(result, before)
    assert 1.0 <= found.ratio.low <= found.ratio.mean <= found.ratio.high <= 2.0


def test_fitted_draws_count_as_the_speeds_that_they_are() -> None:
    """Every draw of a fit is scaled with its parameter; draws that are not are another workload."""
    base = load_scenario("ring", [("workload.use", "cnn-cpu")])
    assert base.workload.uncertainty is not None
    twice = with_compute(base, 0.5)
    assert gain_bounds(twice, base) == pytest.approx((1.0, 2.0))
    drawn = base.workload.uncertainty
    shuffled = drawn.model_copy(update={"draws": tuple(map(tuple, np.array(drawn.draws)[::-1].tolist()))})
    other = base.model_copy(update={"workload": base.workload.model_copy(update={"uncertainty": shuffled})})
    assert gain_bounds(other, base) == NO_BOUNDS


def test_times_computed_from_dimensions_count_as_well() -> None:
    base = load_scenario("fsdp")
    assert base.workload.is_computed
    assert gain_bounds(with_compute(base, 0.5), base) == pytest.approx((1.0, 2.0))


def test_mixed_changes_lie_between_the_worse_and_the_better() -> None:
    base = load_scenario("ring")
    mixed = with_compute(with_network(base, 4.0), 3.0)
    assert gain_bounds(mixed, base) == pytest.approx((1 / 3, 4.0))
