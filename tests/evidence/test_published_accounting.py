"""Every series of the collected tables is predicted, or left out for a reason that is written down."""

from __future__ import annotations

from collections import Counter

import pytest

from evidence.published.tables import load_tables
from evidence.published.validation import coverage_of
from simulator.base.errors import ScenarioError


@pytest.fixture(scope="module")
def tables():
    return load_tables()


def own(tables):
    """Accounted series of the throughput tables."""
    return [each for each in tables.accounted if each.table not in {"nccl_allreduce"} and not each.table.startswith("staleness")]


def test_each_series_is_accounted_for_once(tables):
    seen = Counter((each.table, each.series) for each in tables.accounted)
    assert [key for key, count in seen.items() if count > 1] == []


def test_each_accounted_series_is_predicted_or_excluded(tables):
    predicted = {(each.table, each.id) for each in tables.series}
    excluded = Counter()
    for each in tables.excluded:
        excluded[(each.table, each.series)] += each.rows
    for each in own(tables):
        key = (each.table, each.series)
        if each.role == "excluded":
            assert key not in predicted, key
            assert excluded[key] == each.rows, key
        elif each.role == "predicted":
            assert key in predicted, key
            assert excluded[key] < each.rows, key
    assert predicted <= {(each.table, each.series) for each in tables.accounted}
    assert set(excluded) <= {(each.table, each.series) for each in tables.accounted}


def test_every_published_value_of_a_predicted_series_is_carried(tables):
    """Rows of the table, less those left out, plus the one-device rows that several series share."""
    excluded = Counter()
    for each in tables.excluded:
        excluded[(each.table, each.series)] += each.rows
    rows = {each.id: tables.rows(each) for each in tables.series}
    for each in own(tables):
        if each.role == "predicted":
            carried = sum(len(row.throughput) for row in rows[each.series])
            assert carried == each.rows - excluded[(each.table, each.series)] + each.shared, each


def test_coverage_counts_what_is_left(tables):
    coverage = coverage_of(tables)
    assert [each.of for each in coverage] == ["throughput", "NCCL", "staleness"]
    assert sum(each.rows for each in coverage) == sum(each.rows for each in tables.accounted)
    assert sum(each.rows - each.rows_in for each in coverage) == sum(each.rows for each in tables.excluded)
    assert all(0 < each.series_in < each.series for each in coverage)


def test_every_row_has_its_source_and_level(tables):
    for series in tables.series:
        for row in tables.rows(series):
            assert "/" in row.source
            assert set(row.level) <= set("TLDFE/")


def test_series_name_what_exists(tables):
    for series in tables.series:
        assert series.stack in tables.stacks
        assert series.cluster in tables.clusters
        assert len(tables.rows(series)) > 1


def test_a_row_of_an_unknown_series_is_refused(tables, tmp_path):
    for name in ("series.toml", "stacks.toml"):
        (tmp_path / name).write_text((tables.home / name).read_text())
    for table in {series.table for series in tables.series}:
        (tmp_path / f"{table}.csv").write_text((tables.home / f"{table}.csv").read_text())
    path = tmp_path / "tensorpack.csv"
    path.write_text(path.read_text() + "nobody,1,1,,64,100,images/s,,,T,https://example.org/\n")
    with pytest.raises(ScenarioError, match=r"series 'nobody' is not in series\.toml"):
        load_tables(tmp_path)


def test_a_broken_row_is_named_with_its_line(tables, tmp_path):
    for name in ("series.toml", "stacks.toml"):
        (tmp_path / name).write_text((tables.home / name).read_text())
    for table in {series.table for series in tables.series}:
        (tmp_path / f"{table}.csv").write_text((tables.home / f"{table}.csv").read_text())
    path = tmp_path / "tensorpack.csv"
    lines = path.read_text().splitlines()
    lines[3] = lines[3].replace(",1,", ",none,", 1)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ScenarioError, match=r"tensorpack\.csv: line 4"):
        load_tables(tmp_path)
