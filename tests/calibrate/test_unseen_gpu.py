"""A GPU that the machine has and TensorFlow does not see: loud, and kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.measurements import Truth, gamma_of, step_records, write_lines
from support.needs import needs_tensorflow

import calibrate
import paceline
from paceline.cli.measuring import warning_loudly
from simulator.base.errors import CalibrationWarning

MODELS = Path(calibrate.__file__).parent.parent / "models" / "keras"


@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
def test_it_is_seen_by_the_probe_and_said_in_the_provenance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("TensorFlow may see a GPU here")
    fake = tmp_path / "bin" / "nvidia-smi"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'Tesla T4, 550.54'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent), prepend=":")
    path = calibrate.profile_step(f"{MODELS / 'mlp.py'}:build", "gpu", batches=(2, 4), steps=5, folder=tmp_path, timeout_s=120)
    workload = calibrate.fit_workload(path, "gpu", accept_disturbed=True)
    assert "Tesla T4, 550.54" in workload.provenance["warning"]
    assert "(CPU)" in workload.provenance["device"]


def test_the_library_warns_of_it_and_the_command_line_says_it_loudly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header, fingerprint, *steps = step_records(Truth(), gamma_of(0.1))
    unseen = {**fingerprint, "gpu_unseen": True, "gpus_present": ["Tesla T4"]}
    path = write_lines(tmp_path / "step.ndjson", [header, unseen, *steps])
    with pytest.warns(CalibrationWarning, match=r"this machine has a GPU \(Tesla T4\) .*paceline\[tensorflow-cuda\]"):
        paceline.calibrate(name="gpu", from_measurements=[path])
    with warning_loudly():
        paceline.calibrate(name="gpu", from_measurements=[path])
    printed = capsys.readouterr()
    assert printed.out == ""
    said = " ".join(printed.err.replace("│", " ").split())
    assert "WARNING: this machine has a GPU (Tesla T4)" in said
    assert "paceline[tensorflow-cuda]" in said
    with warning_loudly():
        pass
    assert capsys.readouterr().err == ""
