"""The level of a step is the mean of plain steps; the split divides it and adds nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.fit.step import fit_workload
from calibrate.fit.step_times import StepTable, step_cost
from calibrate.measurements import StepTime, read_measurements
from simulator.spec.workload import Workload

BATCHES = (16, 32, 64)


def _predicted(workload: Workload, batch: int) -> float:
    return workload.compute_s(batch) + workload.apply_s


def _two_levels(synthetic: Any, seed: int = 0, factor: float = 1.75) -> list[Path]:
    """Two runs of ten steps at each batch size, sixty in all, the second disturbed."""
    truth = synthetic.Truth(rounds=5, steps_a_round=2, round_cv=0.02)
    slowed = synthetic.Truth(
        forward=tuple(value * factor for value in truth.forward),
        backward=tuple(value * factor for value in truth.backward),
        apply_s=truth.apply_s * factor,
        rounds=5,
        steps_a_round=2,
        round_cv=0.02,
    )
    draw = synthetic.gamma_of(0.05)
    return [synthetic.steps(truth, draw, 2 * seed, "quiet.ndjson"), synthetic.steps(slowed, draw, 2 * seed + 1, "disturbed.ndjson")]


def test_two_runs_of_which_one_is_disturbed_keep_their_mean(synthetic: Any) -> None:
    """A fit robust against the slow run would predict steps 14% faster than they were in the mean."""
    for seed in range(2):
        files = _two_levels(synthetic, seed)
        workload = fit_workload(files, "disturbed", accept_disturbed=True)
        ratios = [_predicted(workload, point.batch) / point.mean_s for point in workload.fit.points]
        # a straight truth: what is left is the noise of 20 steps, 1% each
        assert ratios == pytest.approx([1.0] * 3, abs=0.03)
        assert np.mean([1.0 / ratio for ratio in ratios]) == pytest.approx(1.0, abs=1e-6)
        steps = [step for file in files for step in read_measurements(file).of(StepTime)]
        draws = np.array(workload.uncertainty.draws)
        for batch in BATCHES:
            drawn = draws[:, [0, 2, 4]].sum(axis=1) + batch * draws[:, [1, 3]].sum(axis=1)
            seen = [step.seconds for step in steps if step.batch == batch]
            assert min(drawn) >= 0.999 * min(seen)
            assert max(drawn) <= max(seen)


def test_the_mean_over_batch_sizes_is_met_exactly_whatever_the_curve() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        rounds = {batch: [rng.lognormal(0.1 * batch**0.5, 0.5, 4) for _ in range(3)] for batch in BATCHES}
        table = StepTable(rounds, {batch: np.array([[1.0, 2.0, 0.3]]) for batch in BATCHES}, (0, 0, 0))
        cost = step_cost(table)
        totals = [cost.forward(batch) + cost.backward(batch) + cost.apply_s for batch in BATCHES]
        assert np.mean([table.mean(batch) / total for batch, total in zip(BATCHES, totals, strict=True)]) == pytest.approx(1.0, abs=1e-9)


def test_the_split_moves_nothing_but_shares() -> None:
    """Instrumented steps three times as slow as plain ones: forward, backward and apply still sum to plain steps."""
    rng = np.random.default_rng(2)
    means = {16: 4.0, 32: 7.0, 64: 13.0}
    plain = {batch: [np.array([mean]), np.array([mean])] for batch, mean in means.items()}
    for _ in range(30):
        slow = {batch: 3.0 * mean * rng.dirichlet([2.0, 4.0, 1.0], 10) for batch, mean in means.items()}
        cost = step_cost(StepTable(plain, slow, (0, 0)))
        for batch, mean in means.items():
            assert cost.forward(batch) + cost.backward(batch) + cost.apply_s == pytest.approx(mean, rel=1e-9)
        assert min(*cost.forward, *cost.backward) >= 0
        assert cost.apply_s <= 1.0 + 1e-9  # the fixed part of the line


def test_shares_are_those_of_the_summed_time() -> None:
    """Nine steps of 1 s that are half forward, one of 11 s that is nearly all backward: forward has 4.5 s + 0.5 s of 20 s."""
    splits = np.array([[0.5, 0.5, 0.0]] * 9 + [[0.5, 10.5, 0.0]])
    table = StepTable({8: [np.ones(3)]}, {8: splits}, (0,))
    assert table.shares(8)[0] == pytest.approx(0.25)
    assert table.shares(8).sum() == pytest.approx(1.0)


def test_a_pause_in_a_split_step_is_no_part_of_its_phase(synthetic: Any) -> None:
    rows = synthetic.step_records(synthetic.Truth(), synthetic.gamma_of(0.05))
    path = synthetic.lines(rows)
    smooth = fit_workload(path, "smooth")
    paused = [
        {**row, "apply_s": row["apply_s"] + 0.03} if row["kind"] == "split" and row["index"] in (3, 7) else row for row in rows
    ]  # 30 ms while another process had the core
    workload = fit_workload(synthetic.lines(paused), "paused")
    assert workload.apply_s == pytest.approx(smooth.apply_s, rel=0.01)
    assert workload.compute_s(32) == pytest.approx(smooth.compute_s(32), rel=0.01)


def test_no_law_of_jitter_is_faster_than_the_fastest_step(synthetic: Any) -> None:
    file = synthetic.steps(draw=synthetic.gamma_of(0.3))
    workload = fit_workload(file, "cut")
    means = {point.batch: point.mean_s for point in workload.fit.points}
    factors = [step.seconds / means[step.batch] for step in read_measurements(file).of(StepTime)]
    assert workload.jitter_least == pytest.approx(min(factors), rel=1e-5)


def test_a_round_slowed_in_part_makes_no_steps_that_nobody_saw() -> None:
    steps = [np.array([1.0, 1.0, 1.0, 1.0]), np.array([1.0, 1.0, 9.0, 1.0])]
    table = StepTable({8: steps, 16: steps}, {8: np.ones((1, 3)), 16: np.ones((1, 3))}, (0, 0))
    # 1 s over the round's mean of 3 s would be a factor of a third; over the mean of all steps, 2 s, it is a half
    assert min(table.factors()) == pytest.approx(0.5)
    assert table.fastest() == pytest.approx(0.5)


@pytest.mark.usefixtures("all_draws")
def test_the_law_is_drawn_with_the_rounds(synthetic: Any) -> None:
    workload = fit_workload(synthetic.steps(draw=synthetic.gamma_of(0.15)), "drawn")
    assert workload.jitter.kind in ("gamma", "lognormal", "normal")
    assert len(workload.jitter_draws) == 50
    spreads = [float(np.std(law.sample(np.random.default_rng(0), 4000) / law.mean())) for law in workload.jitter_draws]
    assert 0.1 < min(spreads) < 0.15 < max(spreads) < 0.2
    assert len({law.kind for law in workload.jitter_draws}) > 1  # 150 steps do not tell gamma from lognormal


def test_an_empirical_law_has_no_draws_of_its_own(synthetic: Any) -> None:
    def two(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.where(rng.random(n) < 0.5, 1.0, 2.0) * rng.normal(1, 0.01, n)

    workload = fit_workload(synthetic.steps(draw=two), "two")
    assert workload.jitter.kind == "empirical"
    assert workload.jitter_draws == ()
    assert len(workload.jitter.values) == sum(point.steps for point in workload.fit.points) == 150
