"""Measures a training step or a link: runs the probe, returns the measurement file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calibrate.measurements import new_file
from calibrate.probing import Progress, run_probe
from simulator.errors import InputError

__all__ = ["DEFAULT_BATCHES", "DEFAULT_SIZES", "MEASUREMENTS", "profile_link", "profile_runs", "profile_step"]

DEFAULT_BATCHES = (16, 32, 64)
DEFAULT_SIZES = (2**10, 2**12, 2**14, 2**16, 2**18, 2**20, 2**22, 2**24, 2**26)
"""Bytes of the messages that a link is measured with: 1 KiB to 64 MiB."""
MEASUREMENTS = Path("measurements")


def profile_step(
    target: str,
    name: str,
    *,
    custom: bool = False,
    batches: Sequence[int] = DEFAULT_BATCHES,
    steps: int = 50,
    rounds: int = 10,
    device: str | None = None,
    precision: str = "float32",
    jit: bool = False,
    python: str | None = None,
    timeout_s: float | None = None,
    folder: Path = MEASUREMENTS,
    out: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Time real training steps in the user's Python.

    Parameters
    ----------
    target
        ``FILE.py:FUNCTION``. FUNCTION() returns a Keras model or ``(model, loss, input_spec)``;
        with ``custom``, FUNCTION(batch_size) returns a callable that does one training step.
    name
        Start of the measurement file's name.
    custom
        ``target`` is a training step of the user's own.
    batches
        Batch sizes, at least two different ones.
    steps
        Timed steps at each batch size.
    rounds
        In how many turns over the batch sizes.
    device
        ``CPU``, ``GPU`` or ``GPU:1``; None takes the first GPU, else the CPU.
    precision
        ``float32`` or ``mixed_float16``.
    jit
        Compile the step with XLA.
    python
        Path of the user's Python; this one, if None.
    timeout_s
        Seconds after which the probe is stopped.
    folder
        For the measurement file.
    out
        The measurement file itself, which must not exist yet; None makes up a new name.
    progress
        Called while measuring.

    Returns
    -------
    Path
        The measurement file.

    Raises
    ------
    InputError
        An argument cannot be used, or the file or function does not exist.
    CalibrationError
        The probe failed; what was measured is kept.
    """
    check_target(target, "--step" if custom else "MODEL.py:FUNCTION")
    check_batches(batches)
    if steps < 5:
        raise InputError(f"--steps {steps}: must be at least 5, better 50")
    path = _made(folder, out or new_file(folder, name, "step"))
    arguments = ["--step" if custom else "--model", target, "--batches", ",".join(str(one) for one in batches), "--steps", str(steps)]
    arguments += ["--rounds", str(rounds), "--precision", precision]
    arguments += ["--device", device] if device else []
    arguments += ["--jit"] if jit else []
    run_probe("step.py", arguments, path, python, timeout_s, progress)
    return path


def profile_runs(
    target: str,
    name: str,
    *,
    runs: int = 3,
    out: Path | None = None,
    folder: Path = MEASUREMENTS,
    progress: Progress | None = None,
    **options: Any,
) -> list[Path]:
    """:func:`profile_step` several times, each in a process of its own.

    Two processes on the same device differ in speed by more than the rounds of one do
    (memory layout, clocks, neighbours); without repeating, the fit cannot know.

    Parameters
    ----------
    target, name, folder, progress, options
        As for :func:`profile_step`.
    runs
        How many.
    out
        The first measurement file; the others are called after it.

    Returns
    -------
    list of Path
        The measurement files, one a run.
    """
    if runs < 1:
        raise InputError(f"--runs {runs}: must be at least 1, better 3")
    first = out or new_file(folder, name, "step")
    paths = [first, *(first.with_name(f"{first.stem}-run{number}{first.suffix}") for number in range(2, runs + 1))]
    for number, path in enumerate(paths):
        report = _part(progress, number, runs) if progress is not None else None
        profile_step(target, name, out=path, folder=folder, progress=report, **options)
    return paths


def _part(progress: Progress, number: int, runs: int) -> Progress:
    """Progress of one run among several."""
    return lambda done, total, what: progress(number * total + done, runs * total, what)


def profile_link(
    name: str,
    *,
    peer: str | None = None,
    sizes: Sequence[int] = DEFAULT_SIZES,
    rounds: int = 7,
    python: str | None = None,
    timeout_s: float | None = None,
    folder: Path = MEASUREMENTS,
    out: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Time transfers through TensorFlow's own gRPC transport, and between host and devices.

    Parameters
    ----------
    name
        Start of the measurement file's name.
    peer
        ``HOST:PORT`` where ``paceline calibrate-link --serve`` runs; None measures between
        two processes of this machine, on the loopback of a network namespace of their own.
    sizes
        Bytes of the messages.
    rounds
        How often each size is measured, in turn.
    python, timeout_s, folder, out, progress
        As for :func:`profile_step`.

    Returns
    -------
    Path
        The measurement file.
    """
    if peer is not None:
        check_address(peer, "--peer")
    if len(set(sizes)) < 2 or len(set(sizes)) != len(sizes) or min(sizes) < 4:
        raise InputError("--sizes must name at least two different sizes of 4 bytes or more")
    path = _made(folder, out or new_file(folder, name, "links"))
    arguments = ["--sizes", ",".join(str(one) for one in sizes), "--rounds", str(rounds)]
    arguments += ["--peer", peer] if peer else []
    run_probe("links.py", arguments, path, python, timeout_s, progress)
    return path


def check_target(target: str, option: str) -> None:
    """Raise InputError unless ``target`` is FILE:FUNCTION with a file that exists."""
    file, separator, function = target.rpartition(":")
    if not separator or not file or not function.isidentifier():
        raise InputError(f"{option}: {target!r} must be a file and a function in it, such as models/keras/cnn.py:build")
    if not Path(file).is_file():
        raise InputError(f"{option}: {file}: there is no such file; check the path")


def check_batches(batches: Sequence[int]) -> None:
    """Raise InputError unless a curve can be fitted to these batch sizes."""
    bad = [one for one in batches if one < 1]
    if bad:
        raise InputError(f"--batch {bad[0]}: must be at least 1")
    if len(set(batches)) < 2 or len(set(batches)) != len(batches):
        raise InputError(
            f"--batch {','.join(map(str, batches))}: must name at least two different batch sizes, better three, such as 16,32,64"
        )


def check_address(address: str, option: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; InputError if it is none."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError(f"{option} {address!r}: must be HOST:PORT, such as 10.0.0.2:2222")
    return host, int(port)


def _made(folder: Path, path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: measurements cannot be kept there: {error.strerror or error}") from None
    if path.exists():
        raise InputError(f"{path}: exists; measurements are never overwritten")
    return path
