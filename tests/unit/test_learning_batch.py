"""The law of the gradient noise scale: samples and steps to a target against the global batch."""

from __future__ import annotations

import math

import pytest

from paceline.learning.planning import samples_factor, samples_ratio, samples_to_target
from simulator import load_scenario
from simulator.base.errors import ScenarioError
from simulator.spec.figures import Estimate
from simulator.spec.training import NoiseScale


def test_far_below_samples_stay_and_far_above_steps_stay():
    assert samples_ratio(64, 32, 1e9) == pytest.approx(1)
    assert samples_ratio(64e9, 32e9, 1.0) == pytest.approx(2)
    # at the noise scale a training takes twice the least samples and twice the least steps
    assert samples_ratio(1000, 1e-9, 1000) == pytest.approx(2)
    assert samples_ratio(1000, 1e12, 1000) / 1000 * 1e12 == pytest.approx(2)
    # one after the other is both at once
    assert samples_ratio(8, 2, 5) * samples_ratio(32, 8, 5) == pytest.approx(samples_ratio(32, 2, 5))


def test_an_interval_goes_on():
    noise = NoiseScale(samples=1000, low=500, high=2000)
    up, down = samples_factor(noise, 4000, 1000), samples_factor(noise, 1000, 4000)
    assert (up.mean, up.low, up.high) == (2.5, 2.0, 3.0)
    assert (down.mean, down.low, down.high) == pytest.approx((1 / 2.5, 1 / 3, 1 / 2))
    sure = samples_to_target(noise, 4000, 1000, Estimate(mean=100, low=100, high=100))
    assert (sure.mean, sure.low, sure.high) == pytest.approx((250, 200, 300))
    wide = samples_to_target(noise, 4000, 1000, Estimate(mean=100, low=80, high=125))
    assert wide.mean == 250
    assert math.log(250 / wide.low) == pytest.approx(math.hypot(math.log(2.5 / 2), math.log(100 / 80)))
    assert math.log(wide.high / 250) == pytest.approx(math.hypot(math.log(3 / 2.5), math.log(125 / 100)))


def test_an_interval_without_an_upper_end_goes_to_no_more_samples():
    assert samples_factor(NoiseScale(samples=1000, low=500), 4000, 1000).low == 1.0


def test_a_scenario_may_give_it_and_simulates_the_same():
    plain = load_scenario("ring")
    given = load_scenario("ring", [("workload.noise_scale.samples", 2000)])
    assert plain.workload.noise_scale is None
    assert "noise_scale" not in plain.workload.model_dump()
    its = given.workload.noise_scale
    assert (its.samples, its.low, its.high, its.source) == (2000, 2000, 2000, "given")
    open_ended = load_scenario("ring", [("workload.noise_scale.samples", 2000), ("workload.noise_scale.low", 500)]).workload.noise_scale
    assert (open_ended.low, open_ended.high) == (500, None)
    with pytest.raises(ScenarioError, match=r"workload\.noise_scale: samples \(2000\) must lie between low \(3000\) and no upper end"):
        load_scenario("ring", [("workload.noise_scale.samples", 2000), ("workload.noise_scale.low", 3000)])


def test_a_figure_of_the_scenario_replaces_what_was_measured_as_a_whole():
    load = plain_with(NoiseScale(samples=100, low=90, high=120, source="measured"))
    its = load_scenario("ring", [("workload", load), ("workload.noise_scale.samples", 2000)]).workload.noise_scale
    assert (its.samples, its.low, its.high, its.source) == (2000, 2000, 2000, "given")


def plain_with(noise: NoiseScale):
    load = load_scenario("ring").workload
    return load.model_copy(update={"noise_scale": noise})
