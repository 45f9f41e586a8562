"""calibrate: a workload from real training steps on the device at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from paceline.face.arguments import checked
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
        The child process failed, or what it measured cannot be fitted.

    Examples
    --------
    >>> calibrate("no_such_file.py:build", name="mine")
    Traceback (most recent call last):
        ...
    simulator.errors.InputError: MODEL.py:FUNCTION: no_such_file.py: there is no such file; check the path
    """
    from calibrate import fit_workload, profile_runs, write_workload

    if out is not None:
        check_writable(Path(out), "out")
    files = profile_runs(
        builder, name, runs=runs, custom=step, batches=sorted(batches), steps=steps, device=device, precision=precision, jit=jit,
        python=python, timeout_s=timeout_s, folder=Path(measurements), progress=progress,
    )  # fmt: skip
    workload = fit_workload(files, name, f"paceline.calibrate({builder!r}, name={name!r})")
    if out is not None:
        write_workload(workload, Path(out))
    return workload
