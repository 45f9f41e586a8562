"""calibrate: a workload from real training steps on the device at hand."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from paceline.face.arguments import checked
from simulator.errors import InputError
from simulator.files import check_writable
from simulator.workload import Workload

__all__ = ["calibrate"]


@checked
def calibrate(
    builder: str,
    *,
    name: str,
    batches: Sequence[int] = (16, 32, 64),
    steps: int = 50,
    runs: int = 3,
    at_once: int = 1,
    launches: int = 5,
    accept_disturbed: bool = False,
    step: bool = False,
    device: str | None = None,
    precision: Literal["float32", "mixed_float16"] = "float32",
    jit: bool = False,
    python: str | None = None,
    timeout_s: float = 1800.0,
    measurements: str | Path = "measurements",
    out: str | Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Workload:
    """Measure a real training step on the device at hand, and fit a workload to it.

    TensorFlow runs in child processes; raw measurements are kept and never overwritten.

    Parameters
    ----------
    builder
        ``FILE.py:FUNCTION``; FUNCTION() returns a Keras model or (model, loss, input_spec).
    name
        Of the workload.
    batches
        Batch sizes to measure, at least two.
    steps
        Timed steps at each batch size, in each run.
    runs
        Processes to measure in, one after the other; they differ more than steps do.
    at_once
        Processes to measure at the same time as well, each on cores of its own, which shows
        how much of the spread between processes those of one machine have in common; 1
        measures none. CPUs only.
    launches
        How often they are started together; fewer than 5 tell little.
    accept_disturbed
        Fit measurements that other processes have disturbed, and runs at different levels,
        with a warning in ``provenance["disturbed"]`` instead of refusing.
    step
        ``builder`` is a training step of your own instead: FUNCTION(batch_size) returns a
        callable that makes one step.
    device
        ``"CPU"``, ``"GPU"`` or ``"GPU:1"``; None takes the first GPU, else the CPU.
    precision
        ``"float32"`` or ``"mixed_float16"``.
    jit
        Compile the step with XLA.
    python
        A Python that has TensorFlow and the model's packages; None takes this one.
    timeout_s
        Seconds after which measuring is given up.
    measurements
        Folder for raw measurements.
    out
        A workload file to write as well, such as ``models/workloads/NAME.toml``, which
        scenarios then ``use``.
    progress
        Called with steps done, steps in all, and what is going on.

    Raises
    ------
    InputError
        An argument cannot be used, or the file or function does not exist.
    CalibrationError
        The child process failed, or what it measured cannot be fitted or trusted.

    Examples
    --------
    >>> calibrate("no_such_file.py:build", name="mine")
    Traceback (most recent call last):
        ...
    simulator.errors.InputError: MODEL.py:FUNCTION: no_such_file.py: there is no such file; check the path
    """
    from calibrate import fit_workload, profile_at_once, profile_runs, write_workload
    from calibrate.profiling import obstacle_to_at_once

    if out is not None:
        check_writable(Path(out), "out")
    options: dict[str, Any] = {
        "custom": step, "batches": sorted(batches), "steps": steps, "device": device, "precision": precision, "jit": jit,
        "python": python, "timeout_s": timeout_s, "folder": Path(measurements), "progress": progress,
    }  # fmt: skip
    if at_once > 1:
        obstacle = obstacle_to_at_once(at_once, (device or "CPU").partition(":")[0].upper())
        if obstacle:
            raise InputError(f"at_once: {at_once}: {obstacle}; leave it out")
    files = profile_runs(builder, name, runs=runs, **options)
    if at_once > 1:
        files += profile_at_once(builder, name, processes=at_once, launches=launches, out=files[0], **options)
    workload = fit_workload(files, name, f"paceline.calibrate({builder!r}, name={name!r})", accept_disturbed=accept_disturbed)
    if "disturbed" in workload.provenance:
        warnings.warn(workload.provenance["disturbed"], stacklevel=3)  # through the check of the arguments
    if out is not None:
        write_workload(workload, Path(out))
    return workload
