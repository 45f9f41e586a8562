"""Published NCCL times, fitted on a part and predicted on the rest: the errors stay what they were found to be.

The tolerances are those errors, rounded up by a fifth or so for the sake of other versions
of the optimiser; they say how good the model is, not how good it ought to be.
"""

from __future__ import annotations

import csv
import statistics
from dataclasses import replace

import numpy as np
import pytest

from calibrate.published.data import data_file
from calibrate.published.nccl import nccl_rows
from calibrate.published.nccl_fit import SCATTER, fit, plain_prior, prior_from_others
from calibrate.published.nccl_model import Numbers, durations_s, least_durations_s, nominal_of, read_series
from calibrate.published.staleness import read_staleness
from calibrate.published.tables import Accounted, Excluded
from calibrate.validation.scores import scores_of
from simulator.loading import read_toml

SERIES = read_series()


@pytest.fixture(scope="module")
def rows():
    return nccl_rows()


def score(rows, question):
    (found,) = scores_of([row for row in rows if row.settings["question"] == question])
    return found


def named(name):
    return next((series, points) for series, points in SERIES.items() if series.name == name)


@pytest.mark.parametrize(
    ("question", "median", "worst_series", "inside"),
    [
        # found: 6.7%; 41% where EFA gave 0.7 of its nominal rate, which no small size tells; 80% inside the intervals
        ("larger sizes", 0.08, 0.50, 0.75),
        # found: 5.5%; 12%; 63%: with more nodes the split between launch and network latency is at stake
        ("more ranks", 0.07, 0.15, 0.55),
    ],
)
def test_held_out_rows(rows, question, median, worst_series, inside):
    found = score(rows, question)
    assert found.median_absolute_error <= median
    assert found.inside >= inside
    held = [row for row in rows if row.settings["question"] == question and not row.fitted]
    errors = {}
    for row in held:
        errors.setdefault(row.settings["series"], []).append(abs(row.error))
    assert len(errors) == {"larger sizes": 21, "more ranks": 3}[question]
    assert max(map(statistics.median, errors.values())) <= worst_series


@pytest.mark.parametrize("question", ["larger sizes", "more ranks"])
def test_better_than_a_bandwidth_and_than_alpha_and_beta(rows, question):
    """Found: 6.7% against 51% and 32%, and 5.5% against 1,900% and 34%."""
    found = score(rows, question)
    assert found.median_absolute_error < 0.3 * min(found.baselines.values())


def test_what_is_held_out_lies_beyond_what_is_fitted(rows):
    for name in {row.settings["series"] for row in rows}:
        its = [row for row in rows if (row.settings["series"], row.settings["question"]) == (name, "larger sizes")]
        fitted, held = ([row.settings["size_bytes"] for row in its if row.fitted is kind] for kind in (True, False))
        assert held
        assert max(fitted) < min(held)
    assert not any(row.fitted for row in rows if row.settings["question"] == "more ranks")


def test_the_prior_of_a_system_does_not_know_its_times():
    fits = {series.name: fit(series, points, plain_prior(series)) for series, points in list(SERIES.items())[:5]}
    series, _ = named("p4de-a100-16")
    before = prior_from_others(series, fits)
    fits[series.name] = replace(fits[series.name], logs=fits[series.name].logs + 1.0)
    after = prior_from_others(series, fits)
    np.testing.assert_array_equal(before.mean, after.mean)
    np.testing.assert_array_equal(before.spread, after.spread)
    other, _ = named("p5-h100-16")
    assert np.any(prior_from_others(other, fits).mean != plain_prior(other).mean)


@pytest.mark.parametrize("name", ["infiniband-h100-32", "p5-h100-8", "p3dn-v100-16"])
def test_a_fit_finds_the_numbers_that_times_were_made_of(name):
    """Times made by the model itself, from numbers off the prior, are explained with a fifth of the scatter that is allowed."""
    series, points = named(name)
    nominal = nominal_of(series, points[-1])
    prior = plain_prior(series)
    truth = prior.mean + 0.3 * prior.spread * np.array([1, -1, 1, -1, 1, 1, 1, -1, 1])
    numbers = Numbers(*np.exp(truth).tolist())
    sizes = [point.size_bytes for point in points]
    made = [
        point._replace(times_s=(float(time_s),))
        for point, time_s in zip(points, least_durations_s(series, nominal, numbers, sizes), strict=True)
    ]
    found = fit(series, made[: 2 * len(made) // 3], prior)
    seen, _ = found.predict_s(series, sizes[: 2 * len(made) // 3])
    assert found.scatter < 0.2 * SCATTER
    assert np.median(np.abs(seen / [point.mean_s for point in made[: len(seen)]] - 1)) < SCATTER


@pytest.mark.parametrize("name", ["infiniband-h100-16", "infiniband-h100-32", "v100-8"])
def test_what_is_fitted_is_what_the_simulator_predicts(name):
    """In the middle of each class of sizes the simulator has chosen the fastest; elsewhere it is never faster, nor slower by half."""
    series, points = named(name)
    nominal = nominal_of(series, points[-1])
    numbers = fit(series, points[:10], plain_prior(series)).numbers
    middles = [1.5 * 2.0**k for k in range(3, 33)]
    np.testing.assert_allclose(
        durations_s(series, nominal, numbers, middles), least_durations_s(series, nominal, numbers, middles), rtol=1e-12
    )
    sizes = [2.0**k for k in range(3, 34)]
    ratio = durations_s(series, nominal, numbers, sizes) / least_durations_s(series, nominal, numbers, sizes)
    assert np.all(ratio >= 1 - 1e-12)
    assert np.all(ratio < 1.5)
    assert statistics.median(ratio) == pytest.approx(1.0, abs=1e-12)


def test_every_series_of_the_tables_enters_or_is_excluded():
    with data_file("nccl_staleness_accounting.csv").open(newline="") as file:
        accounted = [Accounted.model_validate({**row, "rows": int(row["rows"])}) for row in csv.DictReader(file)]
    excluded = {
        (one.table, one.series): one.rows
        for one in map(Excluded.model_validate, read_toml(data_file("excluded_nccl_staleness.toml"))["excluded"])
    }
    entering = {series.name: sum(len(point.times_s) for point in points) for series, points in SERIES.items()}
    stale = {series.name: counts for series, counts in read_staleness().items()}
    left = dict(excluded)
    for one in accounted:
        if (one.table, one.series) in excluded:
            assert left.pop((one.table, one.series)) == one.rows
        elif one.table == "nccl_allreduce":
            assert entering.pop(one.series) == one.rows
        else:
            assert one.series in stale
            if one.table == "staleness_hist_delay_data":
                assert len(stale[one.series]) == one.rows
    assert not entering
    assert not left
    assert sum(one.rows for one in accounted if one.table == "nccl_allreduce") == 427
    assert {one.series for one in accounted if one.table.startswith("staleness_hist")} == stale.keys()
    assert sum(one.rows for one in accounted if one.table == "staleness") == 116
