"""A GPU that the machine has and TensorFlow does not see: loud, and kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.measurements import Truth, gamma_of, step_records, write_lines
from support.needs import needs_tensorflow
from support.probes import run_script
from support.waiting import PATIENCE_S

import paceline
from paceline.cli.terminal import warning_loudly
from simulator.base.errors import CalibrationWarning

SEEN = """
import json
import tensorflow as tf
from _paceline_probes import machine
found = machine.fingerprint(tf, *machine.choose_device(tf, None))
print(json.dumps([found["gpu_unseen"], found["gpus_present"], found["device_kind"]]))
"""


@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
def test_it_is_seen_by_the_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("TensorFlow may see a GPU here")
    fake = tmp_path / "bin" / "nvidia-smi"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'Tesla T4, 550.54'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent), prepend=":")
    done = run_script(SEEN, timeout=PATIENCE_S)
    assert json.loads(done.stdout) == [True, ["Tesla T4, 550.54"], "CPU"], done.stderr


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
