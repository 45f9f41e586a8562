"""A few rows of published tables, predicted from their smallest row: errors as they were seen, plus about a fifth.

Which rows: one or two of each kind of software and network. What they were measured on
stands in ``models/published``.
"""

from __future__ import annotations

import pytest

from evidence.published.prediction import compared, left_out
from evidence.published.scenarios import cases_of
from evidence.published.tables import load_tables
from evidence.published.validation import validate_published
from simulator.spec.constants import constants

TABLES = load_tables()
LEFT_OUT = left_out(TABLES.home)
CASES = {case.series.id: (case, rows) for case, rows in cases_of(TABLES)}

SEEN = {
    "tf2017-gce-k80-8-inceptionv3-synthetic-ps-sync": 0.037,
    "tf2017-p2-8xlarge-resnet-50-distributed": 0.12,
    "tensorpack-p100-resnet50-tensorpack-replicated": 0.079,
    "mxnet-p2-16xlarge-inception3": 0.065,
    "issue-tf5683-inception3": 4.5,  # sixteen workers on each host's processors, which no scenario of it describes
    "hkbu-bert-base-mg-wfbp-100gbe": 0.68,  # TCP does not fill 100 Gbit/s
    "hkbu-bert-base-wfbp-ps-10gbe": 0.096,
    "dlperf-oneflow-bert-base-fp32-b64-batch-size-64": 0.062,
    "horovod2017-25g-vgg-16-rdma-gpu-with-nccl": 0.069,
    "pollux-t4-imagenet-b163": 0.11,
    "paddleperf-word2vec-async-dataset-dataset": 0.97,  # from its smallest row alone, which shows no cost of more servers
    "fleetx-bert-large-paddle-1-6-collective": 0.036,
    "mxnet2015-gtx980-inception-bn-batch-48": 0.14,
    "dle-resnet50v1-5-tensorflow1-fp32-16gb-dgx1-b128-throughput-fp32-xla": 0.051,
}
"""Largest absolute error of the series' predicted rows."""
LARGEST = ("issue-tf5683-inception3", "fleetx-bert-large-paddle-1-6-collective", "mxnet-p2-16xlarge-inception3")
SLOW = ("cmdare-k80", "cmdare-p100-shake", "cmdare-p100-resnet-32", "cmdare-p100-resnet-15-1")
"""Series of many steps: one of their table is enough here, and evidence/tables/published-async-ps.csv has them all."""


def held_out(series):
    """The series as the validation predicts it: with what comes out without its table."""
    case, rows = CASES[series]
    return compared(case, rows, LEFT_OUT[case.series.table], case.series.table)


@pytest.mark.parametrize("series", [pytest.param(name, marks=[pytest.mark.long] * (name in LARGEST)) for name in sorted(SEEN)])
def test_errors_stay_as_they_were_seen(series):
    rows = held_out(series)
    predicted = [row for row in rows if not row.fitted]
    assert predicted
    assert max(abs(row.error) for row in predicted) <= SEEN[series]


@pytest.mark.parametrize("series", ["tensorpack-p100-resnet50-tensorpack-replicated", "fleetx-bert-large-paddle-1-6-collective"])
def test_the_smallest_row_comes_back_and_is_not_scored(series):
    fitted = [row for row in held_out(series) if row.fitted]
    assert len(fitted) == 1
    assert fitted[0].error == pytest.approx(0.0, abs=0.002)
    assert ("no row of one device" in fitted[0].note) == (fitted[0].settings["workers"] > 1)


def test_the_same_run_gives_the_same_rows():
    assert held_out("mxnet2015-gtx980-inception-bn-batch-48") == held_out("mxnet2015-gtx980-inception-bn-batch-48")


@pytest.mark.parametrize("begin", ["paddleperf-word2vec-geo-dataset", pytest.param("", marks=pytest.mark.long)])
def test_a_regime_by_itself(begin):
    """Asynchronous tables: every series, its intervals around its predictions, the rules beside, coverage of all."""
    told = []
    series = [each for each in TABLES.series if each.regime == "async PS" and not each.id.startswith(SLOW)]
    series = [each for each in series if each.id.startswith(begin)]
    found = validate_published(["async PS"], progress=lambda *args: told.append(args), only=[each.id for each in series])
    assert {row.settings["series"] for row in found.rows} == {each.id for each in series}
    assert [done for done, _, _ in told] == list(range(1, len(series) + 1))
    assert {row.group for row in found.rows} == {"async PS"}
    for row in found.rows:
        assert row.predicted.low <= row.predicted.mean <= row.predicted.high
        assert set(row.baselines) == {"linear", "alpha-beta"}
    assert all(each.rows_in <= each.rows for each in found.coverage)
    assert found.constants == tuple(constants().values())
