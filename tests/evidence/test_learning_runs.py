"""Real training on the testbed beside replays of predicted schedules: the rows that are carried, and what is found in them."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from support.needs import needs_tensorflow

from evidence.studies.learning_runs import LearningSetting, inside, predicted, read_rows, recorded, replayed, to_target

ROWS = Path(__file__).parents[2] / "models" / "measured" / "learning.csv"
TARGET = 0.85


@pytest.fixture(scope="module")
def rows():
    return read_rows(ROWS)


def test_there_are_five_runs_of_each(rows):
    for workers in (4, 8):
        for mode in ("async", "ssp", "sync"):
            assert len(rows[LearningSetting(mode, workers)]) >= 5
    for mode in ("async", "ssp", "sync"):
        assert len(rows[LearningSetting(mode, 1)]) >= 2


@pytest.mark.parametrize("workers", [4, 8])
def test_schedules_are_predicted_from_one_worker(rows, workers):
    for mode in ("async", "ssp", "sync"):
        setting = LearningSetting(mode, workers)
        real = statistics.median(run.end_s for run in rows[setting])
        ours = statistics.median(float(its.time_s[-1]) for its in predicted(setting, rows[LearningSetting(mode, 1)], 5))
        assert ours == pytest.approx(real, rel=0.03 if mode == "async" else 0.1), (mode, ours, real)


@pytest.mark.parametrize("workers", [4, 8])
def test_staleness_of_recorded_and_predicted_schedules(rows, workers):
    setting = LearningSetting("async", workers)
    real = statistics.fmean(recorded(run, setting).mean_staleness for run in rows[setting])
    ours = statistics.fmean(its.mean_staleness for its in predicted(setting, rows[LearningSetting("async", 1)], 5))
    assert real == pytest.approx(workers - 1, abs=0.5)
    assert ours == pytest.approx(real, abs=0.35)


@pytest.mark.long
@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
def test_the_predicted_curve_lies_within_the_real_ones(rows, tmp_path):
    setting = LearningSetting("async", 4)
    curves = replayed(predicted(setting, rows[LearningSetting("async", 1)], 5), tmp_path)
    assert inside(rows[setting], curves) >= 0.8
    real = statistics.median(to_target(run.time_s, run.accuracy, TARGET) for run in rows[setting])
    ours = statistics.median(to_target(*_accuracies(curve), TARGET) for curve in curves)
    assert ours == pytest.approx(real, rel=0.3)


def _accuracies(curve):
    return [its.time_s for its in curve.points], [its.metrics["accuracy"] for its in curve.points]
