"""From measurements of a tf.data pipeline, whose truth is known, to its serial and parallel parts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.measurements import FINGERPRINT, header, write_lines
from typer.testing import CliRunner

from calibrate.fit.input_pipeline import fit_input, stages_of
from calibrate.fit.writing import write_fitted
from calibrate.measurements import MeasurementsError, StageNode
from paceline.cli.app import app
from simulator.base.units import parse_quantity
from simulator.catalogue.loading import load_input, load_scenario

SERIAL, PARALLEL = (0.5e-3, 20e-6), (1e-3, 400e-6)
"""Base and slope of a batch's seconds."""
LOAD = {"wall_s": 1.0, "cores": 8, "own_s": 1.0, "others_s": 0.0, "stolen_s": 0.0, "switches": 0, "throttled": 0, "clock_hz": None}
BATCHES, CALLS, ROUNDS, COUNT = (8, 32), (1, 2, 4, 64), 6, 40


def pipeline(**more: Any) -> dict[str, Any]:
    stages = [{"name": "Batch", "batch_size": 32}, {"name": "ParallelMap", "num_parallel_calls": 2}, {"name": "Range"}]
    known = {"takes": ["batch", "num_parallel_calls"], "stages": stages, "batch": 32, "batched": True, "epoch_batches": -1}
    return {
        "kind": "pipeline", **known, "shuffle_samples": 0, "prefetch": None, "calls": [2], "cached": False, "cores": 8, **more,
    }  # fmt: skip


def node(number: int, name: str, seconds: float, *inputs: int, calls: float | None = None, **more: Any) -> dict[str, Any]:
    parameters = {} if calls is None else {"parallelism": calls}
    its = {"asynchronous": calls is not None, "interleaves": False, "elements": 1.0, "parameters": parameters, **more}
    return {"id": number, "name": name, "seconds": seconds, "inputs": list(inputs), **its}


def parts(batch: int) -> tuple[float, float]:
    return SERIAL[0] + SERIAL[1] * batch, PARALLEL[0] + PARALLEL[1] * batch


def measurements(
    path: Path, *, cv: float = 0.03, accounts: bool = True, at: tuple[int, ...] = CALLS, later: float | None = None, **more: Any
) -> Path:
    """A file of a pipeline that takes max(serial, parallel / calls), and of which a cache leaves a part in ``later`` epochs."""
    rng = np.random.default_rng(7)
    records: list[dict[str, Any]] = [header("input"), FINGERPRINT, pipeline(**more)]
    for turn in range(ROUNDS):
        for batch in BATCHES:
            for its, (epoch, share) in product(at, {"first": 1.0, "later": later}.items()):
                if share is None:
                    continue
                serial, parallel = (share * part for part in parts(batch))
                times = max(serial, parallel / its) * rng.normal(1.0, cv, COUNT)
                where = {"batch": batch, "calls": its, "round": turn, "epoch": epoch}
                cost = {"cpu_s": serial + parallel, "read_bytes": 5e3 * batch}
                records.append({"kind": "batches", **where, "seconds": times.tolist(), **cost})
                if accounts:
                    nodes = [node(1, "Root", 0.0, 2), node(2, "ParallelMap", parallel, 3, calls=its), node(3, "Range", serial)]
                    records.append({"kind": "stages", **where, "nodes": nodes})
    return write_lines(path, [*records, {"kind": "end"}])


def test_both_parts_come_back(tmp_path: Path) -> None:
    found = fit_input(measurements(tmp_path / "x.ndjson"), "x", "some command")
    for batch in (8, 16, 32):
        serial, parallel = parts(batch)
        assert found.work.serial(batch) == pytest.approx(serial, rel=0.02)
        assert found.work.parallel(batch) == pytest.approx(parallel, rel=0.02)
    assert found.work.read_bytes_per_sample == pytest.approx(5e3)
    assert (found.parallel_calls, found.prefetch, found.shuffle_buffer, found.cached) == (2, 1, 0, None)
    drawn = found.jitter.sample(np.random.default_rng(0), 4000)
    assert np.std(drawn) / np.mean(drawn) == pytest.approx(0.03, rel=0.15)
    assert found.calibrated is not None
    assert (found.calibrated.batch, found.calibrated.parallel_calls) == ((8, 32), (1, 64))
    assert found.fit is not None
    assert found.fit.relative_residual < 0.02
    for name, value in (("serial.per_sample_s", SERIAL[1]), ("parallel.per_sample_s", PARALLEL[1])):
        low, high = found.fit.intervals_90[f"work.{name}"]
        assert 0.98 * low <= value <= 1.02 * high
        assert high - low < 0.1 * value
    assert found.provenance["command"] == "some command"
    assert "weak" not in found.provenance


def test_what_a_cache_leaves_to_later_epochs_is_fitted_and_shown_beside_the_first(tmp_path: Path) -> None:
    path = measurements(tmp_path / "x.ndjson", later=0.1, cached=True)
    found = fit_input(path, "x", "some command")
    assert found.cached is not None
    assert [work.parallel(16) for work in (found.work, found.cached)] == pytest.approx([parts(16)[1], 0.1 * parts(16)[1]], rel=0.02)
    command = ["calibrate-input", "--from-measurements", str(path), "--name", "x", "--out", str(tmp_path / "x.toml")]
    answer = CliRunner().invoke(app, command)
    shown = re.findall(r"(first|later) +\d+ +\d+ +(\S+ \S+) +(\S+ \S+)\n", answer.output)
    assert len(shown) == 2 * len(BATCHES) * len(CALLS)
    seconds = np.array([[parse_quantity(text, "time") for text in times] for _, *times in shown])
    assert seconds[:, 1] == pytest.approx(seconds[:, 0], rel=0.05)


def test_without_an_account_of_stages_the_clock_alone_decides(tmp_path: Path) -> None:
    found = fit_input(measurements(tmp_path / "x.ndjson", accounts=False), "x")
    serial, parallel = parts(32)
    assert found.work.parallel(32) == pytest.approx(parallel, rel=0.05)
    assert found.work.serial(32) == pytest.approx(serial, rel=0.05)


def batches_of(path: Path, rows: list[dict[str, Any]], disturbed: bool = False, **more: Any) -> Path:
    """A file of batches without an account of stages: calls, seconds and CPU seconds of each row, six rounds."""
    rng = np.random.default_rng(3)
    records: list[dict[str, Any]] = [header("input"), FINGERPRINT, pipeline(**more)]
    for turn in range(ROUNDS):
        for row in rows:
            times = (row["seconds"] * rng.normal(1.0, 0.02, COUNT)).tolist()
            where = {"batch": 16, "calls": row["calls"], "round": turn, "epoch": "first"}
            records.append({"kind": "batches", **where, "seconds": times, "cpu_s": row["cpu_s"], "read_bytes": 0})
        why = "another process took a core" if disturbed else ""
        records.append({"kind": "load", "stage": "round", "round": turn, "why": why, **LOAD})
    return write_lines(path, [*records, {"kind": "end"}])


def test_cpu_time_bounds_what_the_clock_cannot_tell_apart(tmp_path: Path) -> None:
    """Whatever the truth is, the 90% intervals hold it or are told to be wide; the parallel part is never put at nothing."""
    rng = np.random.default_rng(11)
    told = 0
    for turn in range(24):
        serial, parallel = 10 ** rng.uniform(-3.5, -1.5, 2)
        at = [(1,), (1, 2), (1, 2, 4)][turn % 3]
        rows = [{"calls": its, "seconds": max(serial, parallel / its), "cpu_s": serial + parallel} for its in at]
        found = fit_input(batches_of(tmp_path / "x.ndjson", rows), "x")
        assert found.fit is not None
        assert found.work.parallel(16) > 0
        for part, truth in (("serial", serial), ("parallel", parallel)):
            # nothing else uses CPU time here, so the intervals, and the fitted value where there is none, must hold the truth
            low, high = found.fit.intervals_90.get(f"work.{part}.per_sample_s", (getattr(found.work, part).per_sample_s,) * 2)
            assert 0.9 * low * 16 <= truth <= 1.1 * high * 16 + 0.1 * max(serial, parallel), (turn, part, serial, parallel)
        for its in at:
            predicted = max(found.work.serial(16), found.work.parallel(16) / its)
            assert predicted == pytest.approx(max(serial, parallel / its), rel=0.05)
        told += "weak" in found.provenance
        if len(at) == 1:
            assert "only one measured number of calls" in found.provenance["weak"]
    assert 8 <= told < 24


def test_disturbed_rounds_without_an_account_leave_the_split_open(tmp_path: Path) -> None:
    # 20 ms of CPU time in a parallel map, and neighbours that leave it one core
    rows = [{"calls": its, "seconds": 20e-3, "cpu_s": 20e-3} for its in (1, 2)]
    found = fit_input(batches_of(tmp_path / "x.ndjson", rows, disturbed=True), "x")
    assert "other processes disturbed the rounds" in found.provenance["weak"]
    assert "\n" not in found.provenance["weak"]
    assert found.fit is not None
    low, high = found.fit.intervals_90["work.parallel.per_sample_s"]
    assert 0 <= 16 * low < 2e-3
    assert 18e-3 < 16 * high < 21e-3
    assert 16 * found.work.parallel.per_sample_s == pytest.approx(10e-3, rel=0.05)


def test_more_calls_than_cores_tell_nothing_of_a_pipeline_that_fills_them(tmp_path: Path) -> None:
    rows = [{"calls": its, "seconds": 20e-3 / min(its, 2), "cpu_s": 20.5e-3} for its in (1, 2, 8)]
    found = fit_input(batches_of(tmp_path / "x.ndjson", rows, cores=2), "x")
    assert found.work.parallel(16) == pytest.approx(20e-3, rel=0.02)
    assert found.work.serial(16) < 1e-3


def test_without_parallel_calls_all_is_serial_and_nothing_is_in_doubt(tmp_path: Path) -> None:
    rows = [{"calls": its, "seconds": 20e-3, "cpu_s": 20e-3} for its in (1, 2)]
    stages = [{"name": "Batch", "batch_size": 16}, {"name": "Map"}, {"name": "Range"}]
    found = fit_input(batches_of(tmp_path / "x.ndjson", rows, takes=["batch"], calls=[], stages=stages), "x")
    assert (found.work.parallel(16), "weak" in found.provenance) == (0.0, False)
    assert found.work.serial(16) == pytest.approx(20e-3, rel=0.02)


def test_a_serial_part_that_no_setting_shows_is_said_to_be_from_the_account(tmp_path: Path) -> None:
    found = fit_input(measurements(tmp_path / "x.ndjson", at=(1, 2)), "x")
    assert found.work.serial(32) == pytest.approx(parts(32)[0], rel=0.02)
    assert "not from the clock" in found.provenance["work_serial"]


@pytest.mark.usefixtures("all_draws")
def test_noise_widens_intervals_and_is_told(tmp_path: Path) -> None:
    path = measurements(tmp_path / "x.ndjson", cv=0.0)
    lines = path.read_text().splitlines()
    rng = np.random.default_rng(0)

    def shaken(line: str) -> str:
        factor = rng.choice([0.2, 1.8])
        return line.replace('"seconds": [', f'"seconds": [{factor}, ', 1) if '"kind": "batches"' in line else line

    path.write_text("".join(f"{shaken(line)}\n" for line in lines))
    found = fit_input(path, "x")
    assert "work.serial" in found.provenance["weak"]


@pytest.mark.parametrize(
    ("more", "of", "expected"),
    [
        ({"prefetch": 4}, "prefetch", 4),
        ({"prefetch": 0}, "prefetch", 0),
        ({"calls": [-1]}, "parallel_calls", 8),
        ({"calls": [3, 2]}, "parallel_calls", 3),
        ({"shuffle_samples": 1000}, "shuffle_buffer", 1000),
    ],
)
def test_what_the_graph_says_is_kept(tmp_path: Path, more: dict[str, Any], of: str, expected: int) -> None:
    found = fit_input(measurements(tmp_path / "x.ndjson", **more), "x")
    assert getattr(found, of) == expected


def test_batches_that_stood_ready_are_the_prefetch_of_a_pipeline_that_does_not_say(tmp_path: Path) -> None:
    path = measurements(tmp_path / "x.ndjson", prefetch=-1)
    with path.open("a") as file:
        file.write('{"kind": "ahead", "batches": 3, "most": 20, "mean_s": 0.01}\n')
    assert fit_input(path, "x").prefetch == 3


def test_a_shuffle_before_the_work_counts_for_less(tmp_path: Path) -> None:
    path = measurements(tmp_path / "x.ndjson", shuffle_samples=3200)
    serial, parallel = parts(32)
    with path.open("a") as file:
        for turn in range(ROUNDS):  # a tenth of what the whole pipeline takes for 100 batches
            seconds = 11 * max(serial, parallel / 2)
            file.write(f'{{"kind": "first_batch", "batch": 32, "calls": 2, "round": {turn}, "epoch": "first", "seconds": {seconds}}}\n')
    found = fit_input(path, "x")
    assert found.shuffle_buffer == 3200
    assert found.shuffle_fill == pytest.approx(0.1, rel=0.02)


@pytest.mark.parametrize("key", ["batch", "calls", "shuffle_samples", "round"])
def test_a_count_that_nothing_reaches_is_refused_with_its_line(tmp_path: Path, key: str) -> None:
    path = measurements(tmp_path / "x.ndjson")
    for number in (2**63, 10**400):
        whole = re.sub(rf'("{key}": )\d+', rf"\g<1>{number}", path.read_text(), count=1)
        (tmp_path / "y.ndjson").write_text(whole)
        with pytest.raises(MeasurementsError, match=rf"y\.ndjson:\d+: .*{key}"):
            fit_input(tmp_path / "y.ndjson", "x")


def test_the_largest_batch_may_lack_the_fewest_calls(tmp_path: Path) -> None:
    path = measurements(tmp_path / "x.ndjson")
    lines = path.read_text().splitlines(keepends=True)
    largest = max(json.loads(line).get("batch", 0) for line in lines)
    kept = [line for line in lines if (its := json.loads(line)).get("kind") != "batches" or (its["batch"], its["calls"]) != (largest, 1)]
    assert len(kept) < len(lines)
    path.write_text("".join(kept))
    assert fit_input(path, "x").calibrated is not None


def test_the_file_is_one_that_a_scenario_uses(tmp_path: Path) -> None:
    found = fit_input(measurements(tmp_path / "x.ndjson"), "x")
    found = found.model_copy(update={"work": found.work.model_copy(update={"read_bytes_per_sample": 0.0})})
    file = write_fitted(found, tmp_path / "x.toml")
    assert load_input(file) == found
    scenario = load_scenario("ring", {"input.use": str(file), "input.parallel_calls": 3, "input.prefetch": 2})
    assert scenario.input == found.model_copy(update={"parallel_calls": 3, "prefetch": 2})
    replaced = load_scenario("ring", {"input.use": str(file), "input.work.serial.base_s": 1.0}).input
    assert replaced is not None
    assert (replaced.work.serial.base_s, replaced.calibrated, replaced.fit) == (1.0, None, None)


def test_stages_share_threads_between_asynchronous_ones() -> None:
    nodes = [
        node(1, "Root", 1.0, 2),
        node(2, "Prefetch", 0.1, 3, asynchronous=True),
        node(3, "Batch", 2.0, 4),
        node(4, "ParallelMap", 40.0, 5, calls=4),
        node(5, "Shuffle", 3.0, 6),
        node(6, "ParallelInterleave", 8.0, 7, calls=2, interleaves=True),
        node(7, "TFRecord", 16.0),
    ]
    serial, parallel = stages_of([StageNode.model_validate(each) for each in nodes])
    assert (serial, parallel) == (3.0, 64.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda lines: [lines[0].replace('"input"', '"step"'), *lines[1:]],
            "has measurements of a training step, not of an input pipeline",
        ),
        (lambda lines: lines[:3], "has no batches"),
        (lambda lines: [*lines[:3], lines[3].replace('"epoch": "first"', '"epoch": "other"')], "epoch"),
    ],
)
def test_a_file_that_cannot_be_fitted(tmp_path: Path, change: Callable[[list[str]], list[str]], said: str) -> None:
    path = measurements(tmp_path / "x.ndjson")
    path.write_text("".join(f"{line}\n" for line in change(path.read_text().splitlines())))
    with pytest.raises(MeasurementsError, match=said):
        fit_input(path, "x")
