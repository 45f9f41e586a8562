"""Noise of repeats and misfit between settings are told apart, and one setting that is far off does not decide."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from support.testbed import FAST, TRUE, as_measured, setting

from calibrate.testbed.fitting import factors_of, fit_misfit, fit_noise, fit_platform
from calibrate.testbed.platform import MEANINGS, PRIORS, Parameter, Platform
from calibrate.testbed.prediction import predict_setting
from calibrate.testbed.setting import TestbedSetting
from simulator.base.errors import InputError

LABELS = [f"setting {number}" for number in range(40)]


def test_noise_is_the_scatter_within_settings_whatever_lies_between_them() -> None:
    rng = np.random.default_rng(1)
    rates = [np.exp(level + rng.normal(0, 0.02, 5)).tolist() for level in rng.normal(0, 1.0, 200)]
    found = fit_noise(rates)
    assert found is not None
    assert found.freedom == 800
    assert found.value == pytest.approx(0.02, rel=0.08)
    assert found.low < 0.02 < found.high


def test_the_interval_of_noise_covers_it_nine_times_in_ten() -> None:
    rng = np.random.default_rng(2)
    inside = 0
    for _ in range(1000):
        found = fit_noise(np.exp(rng.normal(0, 0.03, (4, 3))).tolist())
        assert found is not None
        inside += found.low < 0.03 < found.high
    assert 870 < inside < 930


def test_few_repeats_say_nothing_of_noise() -> None:
    assert fit_noise([[1.0, 1.1], [1.0, 1.2], [1.0]]) is None


@pytest.mark.parametrize("tau", [0.0, 0.01, 0.05])
def test_misfit_is_what_settings_differ_by_beyond_noise(tau: float) -> None:
    rng = np.random.default_rng(3)
    count, noise = 40, 0.01
    found = [fit_misfit(rng.normal(0, math.hypot(tau, noise), count), np.eye(count), np.full(count, noise), LABELS) for _ in range(300)]
    values = [one.value for one in found if one is not None]
    assert len(values) == 300
    if tau:
        assert math.sqrt(np.mean(np.square(values))) == pytest.approx(tau, rel=0.05)
    else:  # as often nothing as a little
        assert np.median(values) < 0.3 * noise


def test_what_the_fit_has_taken_up_is_counted_in() -> None:
    """Residuals of a straight line through 6 settings are smaller than their deviations from the truth."""
    rng = np.random.default_rng(4)
    count, tau = 6, 0.05
    design = np.column_stack([np.ones(count), np.arange(count)])
    left = np.eye(count) - design @ np.linalg.pinv(design)
    values = [
        one.value for _ in range(500) if (one := fit_misfit(left @ rng.normal(0, tau, count), left, np.zeros(count), LABELS)) is not None
    ]
    assert math.sqrt(np.mean(np.square(values))) == pytest.approx(tau, rel=0.1)


def test_one_setting_far_off_is_named_and_does_not_decide() -> None:
    misses = np.array([0.01, -0.012, 0.008, -0.009, 0.011, -0.01, 0.3])
    found = fit_misfit(misses, np.eye(7), np.full(7, 0.001), LABELS)
    assert found is not None
    assert found.value < 0.02
    assert "setting 6 (+35%)" in found.why
    assert "setting 1" not in found.why
    without = fit_misfit(misses[:6], np.eye(6), np.full(6, 0.001), LABELS)
    assert without is not None
    assert "far off" not in without.why


def test_settings_that_the_fit_follows_wherever_they_go_say_nothing_of_misfit() -> None:
    assert fit_misfit(np.full(3, 1e-6), 0.01 * np.eye(3), np.full(3, 0.001), LABELS) is None
    assert fit_misfit(np.zeros(4), np.eye(4), np.zeros(4), LABELS) is not None


def _platform(**given: Parameter) -> Platform:
    plain = {name: Parameter(value=TRUE[name], low=0.0, high=1e10) for name in MEANINGS}
    for name in ("noise", "misfit", "loopback_noise", "loopback_misfit"):
        plain[name] = Parameter(value=0.0, low=0.0, high=0.0)
    return Platform(name="made up", cores=2.0, parameters=plain | given)


@pytest.mark.parametrize("freedom", [None, 4])
def test_factors_have_both_spreads_and_are_one_in_the_middle(freedom: int | None) -> None:
    both = {name: Parameter(value=0.03, low=0.0, high=1.0, freedom=freedom) for name in ("noise", "misfit")}
    factors = np.log(factors_of(_platform(**both), setting("async", 4, FAST), 999, np.random.default_rng(5)))
    deviation = 0.03 * math.sqrt(2.0 * (1.0 if freedom is None else freedom / (freedom - 2)))
    assert factors.mean() == pytest.approx(0.0, abs=1e-9)
    assert factors.std() == pytest.approx(deviation, rel=0.1)
    # over loopback these play no part
    assert (factors_of(_platform(**both), setting("async", 4), 99, np.random.default_rng(5)) == 1).all()


def test_the_interval_is_as_wide_as_both_and_the_mean_stays() -> None:
    one = setting("between-graph", 2, FAST)
    plain = predict_setting(one, _platform(), replications=59).updates_per_s
    noise, misfit = Parameter(value=0.03, low=0.0, high=1.0), Parameter(value=0.04, low=0.0, high=1.0)
    wide = predict_setting(one, _platform(noise=noise, misfit=misfit), replications=59).updates_per_s
    assert wide.mean == plain.mean
    half, without = (math.log(its.high / its.low) / 2 for its in (wide, plain))
    assert math.sqrt(half**2 - without**2) == pytest.approx(1.645 * 0.05, rel=0.25)


def test_a_fit_tells_noisy_repeats_from_a_setting_that_is_off(tmp_path: Path) -> None:
    settings = [
        setting("between-graph", 1, FAST),
        setting("between-graph", 1, {"bandwidth": "1 Gbit/s"}),
        setting("between-graph", 1, FAST, "ladder-1mb/16"),
        setting("between-graph", 1, FAST, "ladder-16mb"),
        setting("between-graph", 1, {"bandwidth": "200 Mbit/s"}, "ladder-1mb"),
    ]
    exact = fit_platform([as_measured(tmp_path, one) for one in settings], "exact", 2.0).parameters
    assert exact["noise"].value == 0.0
    assert exact["misfit"].value < 2e-3
    assert exact["loopback_noise"].why == exact["loopback_misfit"].why  # the prior: nothing ran over loopback
    assert exact["loopback_misfit"].value == PRIORS["loopback_misfit"][0]
    # without a run of a ring nothing is claimed to be known of rings
    assert [exact[name].determined for name in ("wire_bytes_per_byte", "turn_per_byte_s", "ring_step_s")] == [True, False, False]
    # one setting is slower as a whole: no noise
    slow = [as_measured(tmp_path, one, TRUE | ({"wire_bytes_per_byte": 1.07} if one is settings[1] else {})) for one in settings]
    found = fit_platform(slow, "slow", 2.0).parameters
    assert found["noise"].value == 0.0
    assert found["misfit"].value > 2 * exact["misfit"].value


@pytest.mark.parametrize(
    ("one", "work_s", "regime"),
    [
        (setting("between-graph", 4, FAST), 1e-3, "asynchronous servers, measured links"),
        (setting("between-graph", 4, FAST), 0.2, "asynchronous servers, measured, contended"),
        (setting("between-graph", 4), 1e-3, "asynchronous servers, measured, contended"),
        (setting("ring", 4, FAST), 1e-9, "all-reduce, measured links"),
        (setting("ring", 4, FAST), 1e-7, "all-reduce, measured, contended"),
    ],
)
def test_model_errors_are_those_of_shared_cores_where_simulated_tasks_keep_them_busy(
    one: TestbedSetting, work_s: float, regime: str
) -> None:
    given = {name: Parameter(value=work_s, low=0.0, high=1.0) for name in ("step_cpu_s", "ring_cpu_per_byte_s")}
    applied = predict_setting(one, _platform(**given), replications=19).applied
    assert applied is not None
    assert str(applied.regime) == regime


def test_a_file_of_before_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    _platform().write(path)
    path.write_text(path.read_text(encoding="utf-8").replace('"schema_version": 4', '"schema_version": 3'), encoding="utf-8")
    with pytest.raises(InputError, match=r"schema_version 3 is older than 4.*fit the same measurements again"):
        Platform.read(path)
