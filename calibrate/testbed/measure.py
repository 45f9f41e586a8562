"""Run a setting on the testbed: a child process in the user's Python, and the file that it writes."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from calibrate.measurements import new_file
from calibrate.probing import Progress, run_probe
from calibrate.testbed.model import builder_of
from calibrate.testbed.readings import Readings, read_run
from calibrate.testbed.setting import TestbedSetting

__all__ = ["measure_setting"]


def measure_setting(
    setting: TestbedSetting,
    folder: Path,
    *,
    repeats: int = 3,
    seed: int = 0,
    timeout_s: float = 600.0,
    python: str | None = None,
    progress: Progress | None = None,
    out: Path | None = None,
) -> Readings:
    """Run a real TensorFlow cluster as the setting says, and measure it.

    Parameters
    ----------
    setting
        What is run.
    folder
        Where raw measurements go; each call adds a file.
    repeats
        How often; each repeat starts a cluster anew.
    seed
        Of the emulated device and of staggered starts.
    timeout_s
        Seconds after which one repeat is given up.
    python
        The user's Python; this one, if None.
    progress
        Called while it runs.
    out
        The file, in place of a new one in ``folder``.

    Raises
    ------
    InputError
        There is no such Python, or real compute is asked of a model without code, or its code is not there.
    CalibrationError
        A task died, or hung, or the machine does not reach the rate; names what was kept.
    """
    path = out or new_file(folder, f"{setting.mode}-{setting.workers}w{setting.servers}s-{setting.hash}", "testbed")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="paceline-") as scratch:
        spec = Path(scratch) / "setting.json"
        wanted = setting.for_probe(repeats, seed, timeout_s)
        if setting.compute.kind == "real":
            wanted["builder"] = builder_of(setting.model)
        spec.write_text(json.dumps(wanted), encoding="utf-8")
        # the probe keeps time for each repeat itself; this is for a probe that hangs
        run_probe(
            "testbed/run.py", ["--setting", str(spec), "--parent", str(os.getpid())], path, python, timeout_s * repeats + 60.0, progress
        )
    return read_run(path)
