"""Runs a probe in the user's Python as a child process, and tells its failures apart."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

from calibrate.measurements import read_measurements
from simulator.errors import CalibrationError, InputError

__all__ = ["PROBES", "Progress", "kept_in", "run_probe", "stop"]

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with steps done, steps in all, and what is going on."""

PROBES = Path(__file__).parent / "probes"

_PROGRESS_PREFIX = "@probe "
_EXIT_NO_TENSORFLOW = 4
_EXIT_USAGE = 5
_GRACE_S = 3.0


def run_probe(
    script: str,
    arguments: Sequence[str],
    out: Path,
    python: str | None = None,
    timeout_s: float | None = None,
    progress: Progress | None = None,
) -> None:
    """Run a probe until it has written its measurements.

    Parameters
    ----------
    script
        File name within ``calibrate/probes``.
    arguments
        For the script; ``--out`` is added.
    out
        Measurement file, which must not exist yet.
    python
        The user's Python; this one, if None.
    timeout_s
        Seconds after which the probe is stopped; None waits for ever.
    progress
        Called while it runs.

    Raises
    ------
    InputError
        There is no such Python.
    CalibrationError
        The probe failed or ran out of time; the message names what was kept.
    KeyboardInterrupt
        Ctrl-C; the child is stopped first, and what was measured is in ``out``.
    """
    if timeout_s is not None and not timeout_s > 0:
        raise InputError(f"--timeout {timeout_s:g}: must be above 0 seconds")
    executable = python or sys.executable
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONUNBUFFERED": "1"}
    command = [executable, "-B", str(PROBES / script), *arguments, "--out", str(out)]
    with tempfile.TemporaryFile() as errors:
        try:
            child = subprocess.Popen(  # noqa: S603 - the Python that the user named
                command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
            )
        except OSError as error:
            raise InputError(
                f"--python {executable!r} cannot be run: {error.strerror or error}; give the path of a Python that has TensorFlow"
            ) from None
        try:
            timed_out = _follow(child, timeout_s, progress)
        finally:
            stop(child)
        if timed_out:
            raise CalibrationError(f"the probe was stopped after {timeout_s:g} s (--timeout); {kept_in(out)}")
        if child.returncode != 0:
            message = _explained(child.returncode, out, errors, executable)
            raise InputError(message) if child.returncode == _EXIT_USAGE else CalibrationError(message)


def _follow(child: subprocess.Popen[bytes], timeout_s: float | None, progress: Progress | None) -> bool:
    """Pass progress on until the child ends; True if it ran out of time."""
    assert child.stdout is not None
    reader = threading.Thread(target=_relay, args=(child.stdout, progress), daemon=True)
    reader.start()
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while child.poll() is None:
        if deadline is not None and time.monotonic() > deadline:
            return True
        time.sleep(0.05)
    reader.join(timeout=_GRACE_S)
    return False


def _relay(stream: IO[bytes], progress: Progress | None) -> None:
    for raw in stream:  # read to the end even if nobody wants it: a full pipe would stop the child
        line = raw.decode("utf-8", "replace")
        if progress is None or not line.startswith(_PROGRESS_PREFIX):
            continue
        with contextlib.suppress(ValueError, KeyError):
            event = json.loads(line.removeprefix(_PROGRESS_PREFIX))
            progress(int(event["done"]), int(event["total"]), str(event["what"]))


def stop(child: subprocess.Popen[Any]) -> None:
    """End the child with all that it has started: they share a process group of their own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=_GRACE_S)


def kept_in(out: Path) -> str:
    """Where measurements are that may be incomplete, in words; a file without any is removed."""
    try:
        empty = not out.exists() or read_measurements(out).empty
    except CalibrationError:  # cut off in the first line, say: leave it to the user to look at
        return f"what was written is kept in {out}"
    if not empty:
        return f"what was measured is kept in {out}"
    out.unlink(missing_ok=True)
    return "nothing had been measured"


def _explained(status: int, out: Path, errors: IO[bytes], executable: str) -> str:
    """One line: the exception that the probe recorded, or the last line it printed."""
    errors.seek(0)
    printed = [line.strip() for line in errors.read().decode("utf-8", "replace").splitlines() if line.strip()]
    with contextlib.suppress(CalibrationError):
        failure = read_measurements(out).failure
        if failure is not None:
            if status == _EXIT_NO_TENSORFLOW:
                kept_in(out)
                return (
                    f"{executable} cannot import TensorFlow ({_one_line(failure.message)}); install it there with "
                    "`pip install 'paceline[tensorflow]'`, or name another Python with --python"
                )
            if status == _EXIT_USAGE:
                kept_in(out)
                return _one_line(failure.message)
            where = f" at {failure.where}" if failure.where else ""
            return f"{failure.type}{where}: {_one_line(failure.message)}; {kept_in(out)}"
    last = printed[-1] if printed else "it printed nothing"
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return f"the probe {how}: {_one_line(last)}; {kept_in(out)}"


def _one_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # TensorFlow wraps what a traced function raises: "in user code: ... ValueError: message"
    chosen = lines[-1] if lines and lines[0].startswith("in user code") else " ".join(lines)
    return chosen if len(chosen) <= 300 else chosen[:297] + "..."
