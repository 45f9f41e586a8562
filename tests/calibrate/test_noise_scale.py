"""Gradient noise scale: estimators and their interval on gradients whose truth is known, and real gradients of a quadratic."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from support.needs import needs_tensorflow

import paceline
from calibrate.fit.noise_scale import Norms, fit_noise_scale, noise_of, noise_scale_of, signal_of
from calibrate.measurements import GradientNorms, MeasurementsError, read_measurements
from calibrate.profiling import profile_noise_scale
from simulator.base.catalog import find
from simulator.base.errors import CalibrationError, InputError
from simulator.catalogue.loading import load_workload

HERE = Path(__file__).parent / "problems"
SMALL, BIG = 16, 512


def norms(signal: float, noise: float, rng: np.random.Generator, width: int = 50, draws: int = 128, big_draws: int = 32) -> Norms:
    """Square norms of normal gradients with square norm ``signal`` of their mean and trace ``noise`` of a sample's covariance."""

    def of(batch: int, count: int) -> np.ndarray:
        scatter = rng.standard_normal((count, width)) * math.sqrt(noise / width / batch)
        return ((math.sqrt(signal / width) + scatter) ** 2).sum(axis=1)

    return Norms(0, SMALL, BIG, of(SMALL, draws), of(BIG, big_draws))


def test_estimators_are_unbiased():
    rng = np.random.default_rng(1)
    many = [norms(0.05, 20.0, rng, draws=2, big_draws=2) for _ in range(4000)]
    means = [(one.of_small.mean(), one.of_big.mean()) for one in many]
    for estimate, truth in ((signal_of, 0.05), (noise_of, 20.0)):
        found = np.array([estimate(SMALL, BIG, *mean) for mean in means])
        assert abs(found.mean() - truth) < 4 * found.std() / math.sqrt(len(found))


@pytest.mark.parametrize("tries", [50, pytest.param(150, marks=pytest.mark.long)])
def test_the_interval_holds_the_truth_nine_times_of_ten(tries):
    signals, noise = 4.0 * 0.5 ** np.arange(10), 50.0
    truth = SMALL * (1 / np.mean(signals / (signals + noise / SMALL)) - 1)
    held = 0
    for seed in range(tries):
        rng = np.random.default_rng(seed)
        found = noise_scale_of([norms(signal, noise, rng) for signal in signals], SMALL)
        assert found.high is not None
        held += found.low <= truth <= found.high
        assert found.samples == pytest.approx(truth, rel=0.1)
    assert 0.82 <= held / tries <= 0.96


def test_a_training_is_the_sum_of_its_stretches():
    """Steps without noise, and samples, each added up over the stretches, have the law of the combined noise scale at every batch."""
    at = np.array([10.0, 100.0, 4000.0])  # noise scales of stretches of as many steps at SMALL
    exact = [Norms(0, SMALL, BIG, np.full(2, 1 + its / SMALL), np.full(2, 1 + its / BIG)) for its in at]
    whole = noise_scale_of(exact, SMALL).samples
    steps = 1 / (1 + at / SMALL)  # of each stretch, without noise
    for batch in (64, 1000, 100_000):
        assert np.sum(steps * (batch + at)) / np.sum(steps * (SMALL + at)) == pytest.approx((batch + whole) / (SMALL + whole), rel=1e-5)


def test_an_interval_without_an_upper_end():
    found = [noise_scale_of([norms(0.004, 50.0, np.random.default_rng(seed))], SMALL) for seed in range(12)
             if signal_seen(norms(0.004, 50.0, np.random.default_rng(seed)))]  # fmt: skip
    assert any(its.high is None for its in found)
    assert all(its.low > 1000 for its in found)
    with pytest.raises(CalibrationError, match="only noise and no signal"):
        noise_scale_of([Norms(0, SMALL, BIG, np.full(4, 1.0), np.full(4, 0.01))], SMALL)


def signal_seen(one: Norms) -> bool:
    return float(signal_of(one.small, one.big, one.of_small.mean(), one.of_big.mean())) > 0


def test_without_noise_it_is_nothing():
    found = noise_scale_of([Norms(0, SMALL, BIG, np.full(4, 3.0), np.full(4, 3.0))], SMALL)
    assert (found.samples, found.low, found.high) == (0.0, 0.0, 0.0)


# -- real gradients --------------------------------------------------------------------------------


@pytest.mark.slow
@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
@pytest.mark.parametrize("seeds", [(2, 3), pytest.param(range(4), marks=pytest.mark.long)])
def test_a_quadratic_in_closed_form(seeds, tmp_path):
    """w goes to 0 by a hundredth a step, and its scatter by steps of 32 samples comes to the stationary one of SGD."""
    rate, batch, width, count = 0.01, 32, 40, 1 << 14
    rng = np.random.default_rng(2)
    y = rng.standard_normal((count, width)) * np.linspace(0.5, 2.0, width)
    trace = float(((y - y.mean(axis=0)) ** 2).mean(axis=0).sum())
    held = 0
    for seed in seeds:
        file = profile_noise_scale(f"{HERE / 'quadratic.py'}:wide", "wide", batch=batch, epochs=0.5, moments=8, seed=seed, folder=tmp_path)
        found = fit_noise_scale(file)
        steps = np.array(found.steps)
        assert list(steps) == [16, 48, 80, 112, 144, 176, 208, 240]
        signal = width * (1 - rate) ** (2 * steps) + trace * rate / (2 - rate) / batch * (1 - (1 - rate) ** (2 * steps))
        truth = batch * (1 / np.mean(signal / (signal + trace / batch)) - 1)
        its = found.noise_scale
        assert its.samples == pytest.approx(truth, rel=0.1)
        assert np.median(found.samples / (trace / signal)) == pytest.approx(1, abs=0.1)
        held += its.low <= truth <= (its.high or math.inf)
    assert held >= len(seeds) / 2  # each holds it nine times of ten, the path's own scatter aside
    again = profile_noise_scale(f"{HERE / 'quadratic.py'}:wide", "wide", batch=batch, epochs=0.5, moments=8, seed=3, folder=tmp_path)
    assert fit_noise_scale(again).noise_scale == its


@pytest.mark.slow
@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
def test_what_is_measured_changes_nothing_of_the_training(tmp_path):
    """Also where layers keep moving means, and drop at random: with more moments, gradients at the same step are the same."""
    few, many = (
        profile_noise_scale(f"{HERE / 'models.py'}:normalised", "normalised", batch=8, epochs=4, moments=moments, folder=tmp_path)
        for moments in (1, 3)
    )
    alone, among = ({(its.step, its.batch): its.squares for its in read_measurements(file).of(GradientNorms)} for file in (few, many))
    assert list(alone) == [(48, 8), (48, 192)]
    assert [step for step, batch in among if batch == 8] == [16, 48, 80]
    assert alone.items() <= among.items()


@pytest.mark.slow
@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
@pytest.mark.parametrize(
    ("function", "batch", "text"),
    [
        ("sgd", 97, "have 192 samples, but the noise scale needs at least two batches of 97: give a smaller batch"),
        ("no_data", 8, r"must return \(model, \(x, y\), \(x, y\)\)"),
        ("not_compiled", 2, "not compiled with both"),
        ("diverging", 8, "gradients are not finite after .* steps at batch 8"),
        ("missing", 8, "has no function 'missing'"),
    ],
)
def test_a_problem_without_a_noise_scale(function, batch, text, tmp_path):
    with pytest.raises(InputError, match=text):
        profile_noise_scale(f"{HERE / 'models.py'}:{function}", "bad", batch=batch, epochs=2, folder=tmp_path)


@pytest.mark.slow
@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
def test_it_is_added_to_a_workload_that_is_there(tmp_path):
    out, raw = tmp_path / "its.toml", tmp_path / "raw"
    asked = {"noise_scale": f"{HERE / 'models.py'}:sgd", "batches": [8], "epochs": 2.0, "out": out, "measurements": raw}
    first = paceline.calibrate(name="cnn-cpu", **asked)
    written = load_workload(out)
    assert written == first
    assert first.forward == load_workload(find("workloads", "cnn-cpu", "")).forward
    assert first.noise_scale is not None
    assert first.noise_scale.source == "measured"
    assert "in 2 epochs at batch 8" in first.provenance["noise_scale"]
    # what is written is what is added to the next time, and the file of measurements gives the same
    assert paceline.calibrate(name="any", **asked).noise_scale == first.noise_scale
    assert fit_noise_scale(min(raw.glob("*.ndjson"))).noise_scale == first.noise_scale


def test_files_of_steps_and_of_gradients_are_fitted_together(synthetic, tmp_path):
    gradients = tmp_path / "its-noise_scale.ndjson"
    records = [
        {"kind": "header", "schema_version": 1, "probe": "noise_scale", "started": "", "arguments": {"epochs": 3.0}},
        {"kind": "gradient_norms", "step": 5, "trained_batch": 8, "batch": 8, "squares": [2.0, 2.0]},
        {"kind": "gradient_norms", "step": 5, "trained_batch": 8, "batch": 256, "squares": [1.03125, 1.03125]},
        {"kind": "end"},
    ]
    gradients.write_text("".join(json.dumps(record) + "\n" for record in records))
    workload = paceline.calibrate(name="its", from_measurements=[synthetic.steps(), gradients])
    assert workload.noise_scale is not None
    assert workload.noise_scale.samples == pytest.approx(8)
    with pytest.raises(MeasurementsError, match="is a second file of gradient norms"):
        paceline.calibrate(name="its", from_measurements=[synthetic.steps(), gradients, gradients])


def test_arguments_and_files_that_cannot_be_used(tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        profile_noise_scale(str(tmp_path / "none.py:build"), "bad")
    with pytest.raises(InputError, match="`epochs=0`"):
        profile_noise_scale(f"{HERE / 'models.py'}:sgd", "bad", epochs=0.0, folder=tmp_path)
    cut = tmp_path / "cut.ndjson"
    cut.write_text('{"kind": "header", "schema_version": 1, "probe": "noise_scale", "started": "", "arguments": {}}\n')
    with pytest.raises(MeasurementsError, match="cut short"):
        fit_noise_scale(cut)
    cut.write_text('{"kind": "header", "schema_version": 1, "probe": "replay", "started": "", "arguments": {}}\n')
    with pytest.raises(MeasurementsError, match="has measurements of a model that learns, not of gradient norms"):
        fit_noise_scale(cut)
