"""Published staleness: conservation gives its mean, one fitted number its distribution, and 10 workers' that of 30."""

from __future__ import annotations

import pytest

from evidence.published.staleness import read_staleness, staleness_rows


@pytest.fixture(scope="module")
def rows():
    return staleness_rows()


@pytest.fixture(scope="module")
def series():
    return {one.name: one for one in read_staleness()}


def test_one_run_of_each_family_is_fitted(rows, series):
    assert [row.name for row in rows] == list(series)
    assert {series[row.name].family: row.name for row in rows if row.fitted}.keys() == {one.family for one in series.values()}
    assert sum(row.fitted for row in rows) == 4


def test_the_logged_mean_is_workers_less_one(rows, series):
    """2,000 to 3,000 updates of 8 workers: each cuts up to n - 1 others at the ends of the log, so n (n - 1) / updates at most."""
    logged = [row for row in rows if series[row.name].family != "thesis"]
    assert len(logged) == 12
    for row in logged:
        assert row.predicted.mean == pytest.approx(row.mean, abs=8 * 7 / 2000)


def test_the_mean_read_from_a_figure_is_not_above_workers_less_one(rows):
    """Reading it is good to 0.3 of 10 workers and 0.6 of 30; workers that start and stop one by one lower it, to 9% of 30 at most."""
    ten, thirty = (row for row in rows if row.name.startswith("thesis"))
    assert ten.inside
    assert 0.91 * thirty.predicted.mean < thirty.mean < thirty.predicted.high


@pytest.mark.parametrize(
    ("family", "distance"),
    [
        # found: at most 0.017, 0.025 and 0.045
        ("cifar100", 0.021),
        ("mnist", 0.029),
        ("rcv1", 0.055),  # most updates miss exactly n - 1, and a few miss thrice as many: no gamma law has both
        ("thesis", 0.15),  # found: 0.125; the published mean is 8% below n - 1, and some workers were faster than others
    ],
)
def test_distributions_that_were_not_fitted(rows, series, family, distance):
    held = [row for row in rows if series[row.name].family == family and not row.fitted]
    assert held
    for row in held:
        assert row.staleness_distance <= distance


def test_nearer_than_simple_distributions(rows):
    """All updates alike, Poisson and geometric of the same mean, by half for the logs."""
    for row in rows:
        simple = min(value for name, value in row.settings.items() if name.startswith("distance of"))
        assert row.staleness_distance < (0.85 if row.name.startswith("thesis") else 0.5) * simple
