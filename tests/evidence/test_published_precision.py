"""Mixed precision on several devices, predicted from float32 on one and from what other models gained."""

from __future__ import annotations

import pytest

from evidence.published.precision import precision_rows
from evidence.published.tables import load_tables
from simulator.resolve.device_transfer import precision_gain
from simulator.resolve.published_throughputs import PublishedThroughputs, load_published_throughputs

NETWORK = "resnet-50"


@pytest.fixture(scope="module")
def tables():
    found = load_tables()
    found.series = [its for its in found.series if its.network == NETWORK]
    return found


def test_other_models_gain_beats_no_gain_and_the_ratio_of_peaks(tables):
    rows = precision_rows(tables)
    assert {row.settings["workers"] for row in rows} == {8, 16}
    for row in rows:
        assert row.predicted.low < row.mean < row.predicted.high
        assert all(abs(row.error) < abs(row.baselines[rule] / row.mean - 1) for rule in ("factor 1", "ratio of peaks"))


def test_no_row_of_the_model_is_used(tables):
    """Whatever the model itself gained, its predictions stay what they are."""
    speeds = load_published_throughputs()
    changed = (
        row.model_copy(update={"throughput": row.throughput * 9})
        if "resnet" in row.model.replace("-", "") and row.precision != "float32"
        else row
        for row in speeds.rows
    )
    other = PublishedThroughputs(changed, speeds.models)
    assert precision_gain("Tesla V100-SXM2", NETWORK, other)[1] > 5 * precision_gain("Tesla V100-SXM2", NETWORK, speeds)[1]
    assert [row.predicted for row in precision_rows(tables, other)] == [row.predicted for row in precision_rows(tables, speeds)]
