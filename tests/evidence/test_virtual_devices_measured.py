"""Steps of MirroredStrategy on two and four logical devices as they were measured, predicted again from what one device told."""

from __future__ import annotations

import csv
import math
import statistics

import pytest

from evidence.studies.virtual_devices import FOLDER, Steps, row_of

with (FOLDER / "steps.csv").open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file))


def of(row: dict[str, str], key: str) -> float:
    return float(row[key])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['model']}-{row['replicas']}x{row['batch']}")
def test_rows_are_what_a_user_would_be_told(row):
    """Workload and machine from the files beside the rows, no figure of the rows among them."""
    its = Steps(row["model"], int(row["replicas"]), int(row["batch"]), int(row["steps"]), of(row, "measured_s"))
    again = row_of(FOLDER, its, of(row, "alone_s"))
    assert tuple(again) == tuple(row)
    for key in ("predicted_s", "busy_share", "exchange_s"):
        assert float(again[key]) == pytest.approx(of(row, key), rel=1e-3, abs=1e-7)
    for key in ("error", "error_without_cost", "error_in_turns"):
        assert float(again[key]) == pytest.approx(of(row, key), abs=1e-3)
    assert of(row, "low_s") < of(row, "predicted_s") < of(row, "high_s")


def off(key: str, model: str | None = None) -> float:
    """Root mean square of the logarithms of predicted over measured."""
    return math.sqrt(statistics.fmean(math.log1p(of(row, key)) ** 2 for row in ROWS if model in (None, row["model"])))


@pytest.mark.parametrize("baseline", ["error_without_cost", "error_in_turns"])
def test_the_law_is_nearer_than_either_plain_rule(baseline):
    assert off("error") < off(baseline)


@pytest.mark.parametrize("model", sorted({row["model"] for row in ROWS}))
def test_sharing_costs_something_for_every_model(model):
    assert off("error", model) < 0.5 * off("error_without_cost", model)
