"""A matrix is checked whole before anything is measured; each fault is a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.testbed import FAST, setting

import calibrate.testbed.running as running
from calibrate.testbed.running import faults_of_machine
from calibrate.testbed.setting import TestbedSetting
from calibrate.validation.matrix import NEEDS, HeldOut, Matrix, check_matrix, faults_of, read_matrix
from simulator.base.errors import ScenarioError

TCP = {"bandwidth": "400 Mbit/s", "sharing": "tcp"}
REAL = {"kind": "real"}
FIT = (
    setting("async", 1, FAST),
    setting("between-graph", 1, FAST),
    setting("sync", 1, FAST),
    setting("async", 1),
    setting("ring", 2, FAST),
    setting("ring", 2),
    setting("async", 2, TCP),
    setting("between-graph", 1, compute=REAL, batch=64),
    setting("mirrored", 1, compute=REAL, batch=64),
    setting("mirrored", 2),
)


def matrix(held_out: TestbedSetting, fit: tuple[TestbedSetting, ...] = FIT) -> Matrix:
    return Matrix(name="mine", fit=fit, held_out=(HeldOut(group="g", setting=held_out),))


HELD_OUT = [
    (setting("async", 4, FAST), 'mode = "async" with 1 worker', lambda one: one.mode == "async" and one.workers == 1),
    (setting("between-graph", 4, FAST), "a session's work", lambda one: one.mode in ("between-graph", "sync")),
    (setting("sync", 4, FAST), "SyncReplicasOptimizer", lambda one: one.mode == "sync"),
    (setting("async", 4), "the cost of bytes over loopback", lambda one: one.link is None and one.servers and one.compute.kind != "real"),
    (setting("ring", 4, FAST), "the cost of a ring's messages on a shaped link", lambda one: one.mode == "ring" and one.link is not None),
    (setting("ring", 4), "the cost of a ring's bytes over loopback", lambda one: one.mode == "ring" and one.link is None),
    (setting("mirrored", 4), "the slowdown between MirroredStrategy's replicas", lambda one: one.mode == "mirrored"),
    (setting("async", 4, TCP), "how TCP shares a link", lambda one: one.link is not None and one.link.sharing == "tcp"),
    (setting("async", 4, compute=REAL, batch=64), "times ladder-4mb with batch 64", lambda one: one.compute.kind == "real" and one.servers),
    (setting("mirrored", 4, compute=REAL, batch=64), 'mode = "mirrored"', lambda one: one.mode == "mirrored"),
]


@pytest.mark.parametrize(("held_out", "said", "gives"), HELD_OUT)
def test_what_a_prediction_needs_must_be_in_the_fit(held_out: TestbedSetting, said: str, gives) -> None:  # type: ignore[no-untyped-def]
    assert faults_of(matrix(held_out)) == []
    without = tuple(one for one in FIT if not gives(one))
    told = faults_of(matrix(held_out, without))
    assert any(said in line for line in told)
    assert all("\n" not in line and line.startswith("mine: ") for line in told)


def test_another_batch_or_other_threads_are_not_timed() -> None:
    for other in ({"batch": 32}, {"batch": 64, "threads": 2}, {"batch": 64, "model": "ladder-1mb"}):
        [told] = faults_of(matrix(setting("ring", 4, **{"compute": REAL, "model": "ladder-4mb"} | other)))
        assert "no run of the fit times" in told


def test_runs_apart_time_a_step_too() -> None:
    apart = TestbedSetting.model_validate({"mode": "apart", "workers": 2, "model": "ladder-4mb", "compute": REAL, "batch": 32})
    for mode in ("ring", "mirrored"):
        asked = matrix(setting(mode, 4, compute=REAL, batch=32), (*FIT, apart))
        assert faults_of(asked) == []
    assert faults_of(matrix(setting("ring", 4, compute=REAL, batch=16), (*FIT, apart)))


@pytest.mark.parametrize("name", ["quick", "development", "first", "headline"])
def test_the_matrices_that_come_along_are_whole(name: str) -> None:
    assert faults_of(read_matrix(Path("models/matrices") / f"{name}.toml")) == []


def test_every_need_is_met_by_some_run() -> None:
    assert all(any(need.given_by(one) for one in FIT) for need in NEEDS)


def test_without_one_worker_and_a_server_nothing_is_fitted() -> None:
    [told] = faults_of(matrix(setting("ring", 4, FAST), (setting("ring", 2, FAST),)))
    assert "no setting has 1 worker and a server" in told


def test_a_run_longer_than_its_limit_is_named() -> None:
    [told] = faults_of(matrix(setting("async", 4, FAST, steps=100_000)))
    assert "give fewer steps" in told
    assert faults_of(matrix(setting("async", 4, FAST, steps=100_000)), timeout_s=1e9) == []


def test_all_faults_are_told_at_once_and_nothing_is_asked_of_a_machine_that_has_measured(tmp_path: Path) -> None:
    wrong = matrix(setting("ring", 4, TCP, steps=100_000), FIT[:1])
    with pytest.raises(ScenarioError) as caught:
        check_matrix(wrong, [], tmp_path, python="no-such-python", timeout_s=600.0)
    assert len(caught.value.problems) == 2
    with pytest.raises(ScenarioError, match="'no-such-python' cannot be run"):
        check_matrix(wrong, wrong.settings, tmp_path, python="no-such-python", timeout_s=600.0)


def test_memory_and_disk_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_without_tensorflow", lambda _: [])
    plain = setting("async", 2)
    assert faults_of_machine([plain], 2, tmp_path / "new" / "folder") == []
    [memory] = faults_of_machine(
        [plain, setting("async", 64, None, "ladder-64mb", batch=2).model_copy(update={"workers": 10**6})], 2, tmp_path
    )
    assert "GiB of memory" in memory
    assert "async 1000000 x 1 PS" in memory
    [disk] = faults_of_machine([plain.model_copy(update={"steps": 10**13})], 2, tmp_path)
    assert "`measurements`" in disk


def test_links_and_congestion_control_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_without_tensorflow", lambda _: [])
    monkeypatch.setattr(running, "obstacle_to_shaped_links", lambda sharing: f"no {sharing} here")
    assert faults_of_machine([setting("async", 2)], 2, tmp_path) == []
    told = faults_of_machine([setting("async", 2, FAST), setting("async", 2, TCP)], 2, tmp_path)
    assert [line.partition(": ")[2] for line in told] == ["no fair here", "no tcp here"]
    monkeypatch.setattr(running, "obstacle_to_shaped_links", lambda _: None)
    [told_one] = faults_of_machine([setting("async", 2, FAST | {"congestion": "carrier-pigeon"})], 2, tmp_path)
    assert "'carrier-pigeon' is not a congestion control" in told_one


def test_nothing_of_the_working_directory_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried here, by root at that, must not depend on where: it may be /tmp."""
    for name in ("subprocess", "ctypes", "importlib", "contextlib"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'a').write({name!r})")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running.shutil, "which", str)
    running.obstacle_to_shaped_links("fair")
    running._without_tensorflow(None)
    assert not (tmp_path / "marker").exists()
