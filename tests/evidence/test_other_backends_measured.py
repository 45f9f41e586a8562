"""Real steps of DDP over gloo and of JAX's CPU devices, as they were measured, predicted again from what one process told."""

from __future__ import annotations

import csv
import math
import statistics
from pathlib import Path
from types import SimpleNamespace

import pytest

from calibrate.measurements import Updated, Used
from evidence.studies import ddp_runs, jax_devices


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


DDP, JAX = rows_of(ddp_runs.FOLDER / "steps.csv"), rows_of(jax_devices.FOLDER / "steps.csv")
DDP_RUNS, JAX_RUNS = ddp_runs.read_runs(), jax_devices.read_runs()


@pytest.mark.parametrize(("shares", "kept"), [((0.2, 0.05), 0.05), ((0.2, 0.3, 0.06), None)])
def test_a_run_counts_where_others_left_the_machine_alone(monkeypatch, tmp_path, shares, kept):
    left = iter(shares)

    records = {Updated: [SimpleNamespace(start_s=0.0, applied_s=2.0)], Used: [SimpleNamespace(user_s=40.0, system_s=0.0)]}
    measured = SimpleNamespace(of=lambda kind: records.get(kind) or [SimpleNamespace(others_share=next(left))])
    monkeypatch.setattr(ddp_runs, "_probed", lambda *_: None)
    monkeypatch.setattr(ddp_runs, "read_measurements", lambda _: measured)
    run = ddp_runs.trained(ddp_runs.drawn_settings()[0], "python", tmp_path, "2.0")
    assert next(left, None) is None
    assert run is None if kept is None else (float(run["others_share"]), run["mean_s"], run["cpu_s"]) == (kept, "2", "1")


def test_every_drawn_setting_was_run_and_no_other():
    assert sorted(map(repr, map(ddp_runs.setting_of, DDP_RUNS))) == sorted(map(repr, ddp_runs.drawn_settings()))
    drawn = {(model, devices, batch) for (model, devices), batches in jax_devices.drawn_settings().items() for batch in batches}
    assert {(run["model"], int(run["devices"]), int(run["batch"])) for run in JAX_RUNS} == drawn


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "run", "row"),
    [*((ddp_runs, *pair) for pair in zip(DDP_RUNS, DDP, strict=True)), *((jax_devices, *pair) for pair in zip(JAX_RUNS, JAX, strict=True))],
)
def test_rows_are_what_a_user_would_be_told(study, run, row):
    """Workload and link from the files beside the rows, no figure of the rows among them."""
    again = study.row_of(run, study.FOLDER)
    assert tuple(again) == tuple(row)
    assert float(again["predicted_s"]) == pytest.approx(float(row["predicted_s"]), rel=1e-3)
    for key in ("error", "error_linear"):
        assert float(again[key]) == pytest.approx(float(row[key]), abs=1e-3)
    assert float(row["low_s"]) < float(row["predicted_s"]) < float(row["high_s"])


def median_and_90th(rows: list[dict[str, str]], key: str) -> tuple[str, str]:
    sizes = sorted(abs(float(row[key])) for row in rows)
    return f"{statistics.median(sizes):.1%}", f"{sizes[math.ceil(0.9 * len(sizes)) - 1]:.1%}"


@pytest.mark.parametrize(
    ("rows", "keys", "told"),
    [
        (DDP, ("error", "error_linear", "error_bytes"), ("2.2% / 3.6%", "88.3% / 97.0%", "6.6% / 15.8%")),
        ([row for row in JAX if row["devices"] == "2"], ("error", "error_linear", "error_in_turns"),
         ("19.6% / 64.9%", "53.0% / 84.9%", "22.3% / 69.7%")),
        ([row for row in JAX if row["devices"] == "4"], ("error", "error_linear", "error_in_turns"),
         ("14.6% / 64.0%", "74.8% / 93.1%", "23.0% / 72.6%")),
    ],
)  # fmt: skip
def test_the_studies_say_what_came_out(rows, keys, told):
    assert tuple(f"{median} / {high}" for median, high in (median_and_90th(rows, key) for key in keys)) == told


@pytest.mark.parametrize("rows", [DDP, JAX])
def test_predictions_are_nearer_than_linear_scaling(rows):
    assert statistics.median(abs(float(row["error"])) for row in rows) < statistics.median(abs(float(row["error_linear"])) for row in rows)
