"""Disturbed rounds are left out, too many of them refused, and so are runs at different levels."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.needs import needs_tensorflow
from support.waiting import PATIENCE_S

from calibrate.fit.step import fit_workload
from calibrate.measurements import Load, StepTime, read_measurements
from calibrate.profiling import profile_step
from simulator.base.errors import CalibrationError

CALM: dict[str, Any] = {
    "wall_s": 0.5,
    "cores": 2,
    "own_s": 0.9,
    "others_s": 0.01,
    "stolen_s": 0.0,
    "switches": 10,
    "throttled": 0,
    "clock_hz": 3e9,
}
BUSY = {**CALM, "own_s": 0.5, "others_s": 0.45}


@pytest.fixture(scope="module")
def load() -> ModuleType:
    """The probe's own module, as a child process of any Python runs it."""
    return importlib.import_module("calibrate.probes.machine")


def _disturbed(synthetic: Any, bad: set[int], name: str = "step.ndjson", seed: int = 0, factor: float = 1.75) -> Path:
    """A file in which some rounds took longer, and the probe saw why."""
    rows = synthetic.step_records(synthetic.Truth(), synthetic.gamma_of(0.05), seed)
    for row in rows:
        if row["kind"] == "step" and row["round"] in bad:
            row["seconds"] *= factor
    why = "other load took 45% of CPU time"
    looks = [
        {"kind": "load", "stage": "round", "round": turn, "why": why if turn in bad else "", **(BUSY if turn in bad else CALM)}
        for turn in range(10)
    ]
    return synthetic.lines([*rows[:-1], *looks, rows[-1]], name)


def test_disturbed_rounds_are_left_out(synthetic: Any) -> None:
    clean = fit_workload(synthetic.steps(draw=synthetic.gamma_of(0.05)), "clean")
    workload = fit_workload(_disturbed(synthetic, {2, 3, 7}), "left-out")
    assert workload.compute_s(32) == pytest.approx(clean.compute_s(32), rel=0.02)
    assert [point.steps for point in workload.fit.points] == [35, 35, 35]
    assert "3 of 10 rounds were disturbed" in workload.provenance["left_out"]
    assert "disturbed" not in workload.provenance


def test_too_few_undisturbed_rounds_are_refused_or_accepted_loudly(synthetic: Any) -> None:
    path = _disturbed(synthetic, set(range(8)))
    with pytest.raises(CalibrationError, match=r"8 of 10 rounds were disturbed \(other load took .*; stop other") as refusal:
        fit_workload(path, "refused")
    assert "\n" not in str(refusal.value)
    assert refusal.value.exit_code == 1
    workload = fit_workload(path, "accepted", accept_disturbed=True)
    assert "8 of 10 rounds were disturbed" in workload.provenance["disturbed"]
    assert [point.steps for point in workload.fit.points] == [50, 50, 50]


def test_a_load_seen_in_all_rounds_together_counts_for_each(synthetic: Any) -> None:
    rows = synthetic.step_records(synthetic.Truth(), synthetic.gamma_of(0.05))
    look = {"kind": "load", "stage": "rounds", "why": "other load took 9% of CPU time in all rounds together", **CALM}
    with pytest.raises(CalibrationError, match="10 of 10 rounds were disturbed"):
        fit_workload(synthetic.lines([*rows[:-1], look, rows[-1]]), "together")


def test_of_several_runs_one_alone_is_not_enough(synthetic: Any) -> None:
    files = [_disturbed(synthetic, set(), "one.ndjson"), _disturbed(synthetic, set(range(10)), "two.ndjson", 1)]
    with pytest.raises(CalibrationError, match="10 of 20 rounds were disturbed"):
        fit_workload(files, "two")
    files.append(_disturbed(synthetic, {0}, "three.ndjson", 2))
    workload = fit_workload(files, "three")
    assert workload.provenance["runs"] == "2"


def test_runs_at_different_levels_are_refused_and_the_odd_one_named(synthetic: Any) -> None:
    names = ["one.ndjson", "two.ndjson", "three.ndjson"]
    files = [_disturbed(synthetic, set(), name, seed) for seed, name in enumerate(names)]
    assert "disturbed" not in fit_workload(files, "alike").provenance
    # nobody saw what disturbed it: all its rounds took 1.75 times as long
    rows = synthetic.step_records(synthetic.Truth(), synthetic.gamma_of(0.05), 1)
    files[1] = synthetic.lines([{**row, "seconds": 1.75 * row["seconds"]} if row["kind"] == "step" else row for row in rows], "two.ndjson")
    with pytest.raises(CalibrationError, match=r"steps of two.ndjson took 1\.7\d times as long as in the other runs") as refusal:
        fit_workload(files, "apart")
    assert "measure again" in str(refusal.value)
    accepted = fit_workload(files, "apart", accept_disturbed=True)
    assert "two.ndjson took 1.7" in accepted.provenance["disturbed"]
    assert accepted.run_to_run_cv > 0.2
    with pytest.raises(CalibrationError, match=r"steps of two.ndjson took 1\.7\d times as long as in the other run,"):
        fit_workload(files[:2], "apart")
    quick = [{**row, "seconds": 0.6 * row["seconds"]} if row["kind"] == "step" else row for row in rows]
    files[1] = synthetic.lines(quick, "two.ndjson")
    with pytest.raises(CalibrationError, match=r"steps of two.ndjson took 0\.[56]\d times as long as in the other runs"):
        fit_workload(files, "apart")


@pytest.mark.parametrize(("tries", "most"), [(7, 1), pytest.param(20, 3, marks=pytest.mark.long)])
def test_runs_that_scatter_widely_are_not_called_apart(synthetic: Any, monkeypatch: pytest.MonkeyPatch, tries: int, most: int) -> None:
    """Rounds of 40%: the means of three rounds differ by more than 1.25 without any run being another."""
    monkeypatch.setattr("calibrate.fit.step_times.DRAWS", 10)
    refused = 0
    for seed in range(tries):
        truth = synthetic.Truth(rounds=3, round_cv=0.2)
        files = [synthetic.steps(truth, synthetic.gamma_of(0.3), 10 * seed + run, f"{run}.ndjson") for run in range(3)]
        try:
            fit_workload(files, "wide")
        except CalibrationError:
            refused += 1
    assert refused <= most


def test_a_file_of_an_older_version_has_no_load_and_is_fitted(synthetic: Any) -> None:
    workload = fit_workload(synthetic.steps(), "old")
    assert not {"load", "left_out", "disturbed"} & set(workload.provenance)


# -- the probe -------------------------------------------------------------------------


def test_a_quiet_round_counts_and_a_busy_one_does_not(load: ModuleType) -> None:
    judge = load.Judge()
    assert judge.round(CALM, 1.0) == ""
    assert "other load took 45% of CPU time" in judge.round(BUSY, 1.4)
    assert "other load took 20%" in judge.round({**CALM, "own_s": 0.7, "stolen_s": 0.19, "others_s": 0.01}, 1.0)
    assert judge.round({**CALM, "others_s": None}, 1.0) == ""


def test_a_clock_that_fell_is_seen_until_it_is_the_usual_one(load: ModuleType) -> None:
    judge = load.Judge()
    assert [judge.round(CALM, 1.0) for _ in range(2)] == ["", ""]
    slow = {**CALM, "clock_hz": 2e9}
    assert "the clock fell to 2.00 GHz" in judge.round(slow, 1.5)
    assert [bool(judge.round(slow, 1.5)) for _ in range(3)] == [True, False, False]  # now it is that of half the rounds


def test_a_slow_round_counts_unless_somebody_was_seen(load: ModuleType) -> None:
    judge = load.Judge()
    for _ in range(4):
        judge.round({**CALM, "wall_s": 5.0, "own_s": 9.0, "others_s": 0.05}, 1.0)
    assert judge.round({**CALM, "wall_s": 5.0, "own_s": 9.0, "others_s": 0.0}, 1.3) == ""
    seen = {**CALM, "wall_s": 5.0, "own_s": 9.0, "others_s": 0.45}
    assert judge.round(seen, 1.0) == ""
    assert "1.30 times as long" in judge.round(seen, 1.3)
    assert "throttled" in judge.round({**CALM, "throttled": 3}, 1.3)


def test_a_short_round_is_not_blamed_on_the_ticks_of_the_kernel(load: ModuleType) -> None:
    """Of 0.1 s on two cores the kernel sees twenty ticks: two of them prove nothing. Over all rounds they do."""
    judge = load.Judge()
    short = {**CALM, "wall_s": 0.1, "own_s": 0.15, "others_s": 0.03}
    assert [judge.round(short, 1.0) for _ in range(30)] == [""] * 30
    assert "in all rounds together" in judge.all_rounds()["why"]
    calm = load.Judge()
    for _ in range(30):
        calm.round({**short, "others_s": 0.002}, 1.0)
    assert calm.all_rounds()["why"] == ""


def test_another_process_is_seen_and_this_one_is_not(load: ModuleType) -> None:
    """On any load: work of this process's own counts as its own, that of a child as that of others."""
    if load.ticks(load.cores_of_process()) is None:
        pytest.skip("no /proc/stat")
    core = load.cores_of_process()[0]
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [core])
    try:
        burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            watch = load.Watch()
            until = time.perf_counter() + 0.8
            while time.perf_counter() < until:
                pass
            seen = watch.end()
        finally:
            burner.kill()
            burner.wait()
        assert seen["cores"] == 1
        # the two share the core with whoever else is there: never all of it is ours
        assert seen["others_s"] > 0.2 * seen["wall_s"]
        assert seen["own_s"] > 0.02 * seen["wall_s"]
        assert seen["others_s"] + seen["own_s"] <= 1.1 * seen["wall_s"]
        assert "of CPU time" in load.Judge().round(seen, 1.0)
    finally:
        os.sched_setaffinity(0, before)


def test_a_gpu_in_use_is_read_from_nvidia_smi(load: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "nvidia-smi"
    fake.write_text('#!/bin/sh\n[ "$2" = 3 ] && echo 87\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3")
    assert load.gpu_used("/GPU:1") == 87.0
    assert load.gpu_used("/GPU:0") is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8f5c")
    assert load.gpu_used("/GPU:0") is None


BUSY_MODEL = """
import itertools
import keras
from _paceline_probes import machine

looks = itertools.count()

def ticks(cores):
    # a minute of CPU time passes between two looks, whatever this process does
    return 60.0 * next(looks), 0.0

machine.ticks = ticks

def build():
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
"""


@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
def test_a_busy_machine_makes_the_probe_repeat_and_keep_both(tmp_path: Path) -> None:
    """The model's file plays the part of the machine: it says that others are at work all the time."""
    (tmp_path / "busy.py").write_text(BUSY_MODEL)
    options: dict[str, Any] = {"batches": (2, 4), "steps": 8, "rounds": 4, "device": "CPU", "timeout_s": PATIENCE_S}
    path = profile_step(f"{tmp_path / 'busy.py'}:build", "busy", folder=tmp_path, **options)
    measured = read_measurements(path)
    looks = [one for one in measured.of(Load) if one.stage == "round"]
    assert len(looks) == 6  # four, and half as many again
    assert {step.round for step in measured.of(StepTime)} == set(range(6))
    assert all("other load took" in one.why for one in looks)
    assert [load.stage for load in measured.of(Load)].count("before") == 1
    with pytest.raises(CalibrationError, match="6 of 6 rounds were disturbed"):
        fit_workload(path, "busy")
