"""A few rows of published tables, predicted from their smallest row: errors as they were seen, plus about a fifth.

Which rows: one or two of each kind of software and network. What they were measured on
stands in ``models/published``.
"""

from __future__ import annotations

import pytest
from calibrate.published.constants import load_constants

from calibrate.published.prediction import compared
from calibrate.published.tables import load_tables
from calibrate.published.validation import situations_of, validate_published

TABLES = load_tables()
CONSTANTS = load_constants(TABLES.home)
SITUATIONS = {situation.series.id: (situation, rows) for situation, rows in situations_of(TABLES)}

SEEN = {
    "tf2017-gce-k80-8-inceptionv3-synthetic-ps-sync": 0.03,
    "tf2017-p2-8xlarge-resnet-50-distributed": 0.1,
    "tensorpack-p100-resnet50-tensorpack-replicated": 0.1,
    "mxnet-p2-16xlarge-inception3": 0.1,
    "issue-tf5683-inception3": 0.17,
    "hkbu-bert-base-mg-wfbp-100gbe": 0.07,
    "hkbu-bert-base-wfbp-ps-10gbe": 0.05,
    "dlperf-oneflow-bert-base-fp32-b64-batch-size-64": 0.04,
    "horovod2017-25g-vgg-16-rdma-gpu-with-nccl": 0.28,
    "pollux-t4-imagenet-b163": 0.08,
    "paddleperf-word2vec-async-dataset-dataset": 0.05,
    "fleetx-bert-large-paddle-1-6-collective": 0.03,
    "mxnet2015-gtx980-inception-bn-batch-48": 0.16,
    "dle-resnet50v1-5-tensorflow1-fp32-16gb-dgx1-b128-throughput-fp32-xla": 0.03,
}
"""Largest absolute error of the series' predicted rows."""


@pytest.mark.parametrize("series", sorted(SEEN))
def test_errors_stay_as_they_were_seen(series):
    rows = compared(*SITUATIONS[series], CONSTANTS)
    predicted = [row for row in rows if not row.fitted]
    assert predicted
    assert max(abs(row.error) for row in predicted) <= SEEN[series]


def test_rows_that_were_fitted_come_back_and_are_not_scored():
    rows = compared(*SITUATIONS["tensorpack-p100-resnet50-tensorpack-replicated"], CONSTANTS)
    fitted = [row for row in rows if row.fitted]
    assert [row.settings["workers"] for row in fitted] == [1]
    assert fitted[0].error == pytest.approx(0.0, abs=0.02)


def test_a_series_without_a_row_of_one_device_says_so():
    rows = compared(*SITUATIONS["fleetx-bert-large-paddle-1-6-collective"], CONSTANTS)
    assert [row.fitted for row in rows] == [True, True, False]
    assert all("no row of one device: fitted on its two smallest rows" in row.note for row in rows)
    assert all(abs(row.error) < 0.02 for row in rows if row.fitted)


def test_the_same_run_gives_the_same_rows():
    situation, rows = SITUATIONS["mxnet2015-gtx980-inception-bn-batch-48"]
    assert compared(situation, rows, CONSTANTS) == compared(situation, rows, CONSTANTS)


def test_a_regime_by_itself():
    """Asynchronous tables: every series, its intervals around its predictions, the rules beside, coverage of all."""
    told = []
    found = validate_published(["async PS"], progress=lambda *args: told.append(args))
    series = [each for each in TABLES.series if each.regime == "async PS"]
    assert {row.settings["series"] for row in found.rows} == {each.id for each in series}
    assert [done for done, _, _ in told] == list(range(1, len(series) + 1))
    assert {row.group for row in found.rows} == {"async PS", "async PS, constants fitted on its table"}
    for row in found.rows:
        assert row.predicted.low <= row.predicted.mean <= row.predicted.high
        assert set(row.baselines) == {"linear", "alpha-beta"}
    assert all(each.rows_in < each.rows for each in found.coverage)
    assert found.constants == CONSTANTS.all
