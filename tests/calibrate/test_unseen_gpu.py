"""A GPU that the machine has and TensorFlow does not see: loud, and kept."""

from __future__ import annotations

from pathlib import Path

import pytest

import calibrate
from paceline.cli.calibrating import warn_of_measurements

MODELS = Path(calibrate.__file__).parent.parent / "models" / "keras"


def test_it_is_seen_by_the_probe_and_said_in_the_provenance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed", exc_type=ImportError)
    if tensorflow.config.list_physical_devices("GPU"):
        pytest.skip("TensorFlow sees a GPU here")
    fake = tmp_path / "bin" / "nvidia-smi"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'Tesla T4, 550.54'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent), prepend=":")
    path = calibrate.profile_step(f"{MODELS / 'mlp.py'}:build", "gpu", batches=(2, 4), steps=5, folder=tmp_path, timeout_s=120)
    workload = calibrate.fit_workload(path, "gpu", accept_disturbed=True)
    assert "Tesla T4, 550.54" in workload.provenance["warning"]
    assert "(CPU)" in workload.provenance["device"]


def test_the_warning_is_loud_and_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_measurements({"warning": "this machine has a GPU (Tesla T4) that TensorFlow did not see: measured on the CPU"})
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "WARNING: this machine has a GPU (Tesla T4)" in printed.err
    assert "paceline[tensorflow-cuda]" in printed.err
    warn_of_measurements({})
    assert capsys.readouterr().err == ""
