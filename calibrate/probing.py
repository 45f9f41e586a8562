"""Starts probes as child processes in the user's Python, passes on their progress, and explains their failures.

Probes import nothing from here, so shared definitions are in both, under ``calibrate/probes``: the command line in
``__main__.py``, exit statuses and ``@probe`` lines of progress in ``recording.py``, ``@serving`` in ``links.py``, the
name of the folder for checkpoints in ``overheads.py``. The flags of each probe are in :mod:`calibrate.profiling`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

from calibrate.measurements import FRAMEWORKS, read_measurements
from simulator.base.errors import CalibrationError, InputError
from simulator.base.process import scratch
from simulator.base.text import listed

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with steps done, steps in all, and what is going on."""

Heard: TypeAlias = Callable[[Mapping[str, Any]], None]
"""Called with what a probe tells while it measures: ``event``, and more."""

PROBES = Path(__file__).parent / "probes"
_PROGRESS_PREFIX = "@probe "
_EXIT_NOT_INSTALLED = 4
_EXIT_USAGE = 5
_GRACE_S = 3.0


def run_probe(
    probe: str,
    arguments: Sequence[str],
    out: Path,
    python: str | None = None,
    timeout_s: float | None = None,
    progress: Progress | None = None,
    heard: Heard | None = None,
) -> None:
    """Run a probe until it has written its measurements into ``out``, which must not exist yet.

    Parameters
    ----------
    probe
        Name of one in ``calibrate/probes``, or the path of a script elsewhere.
    python
        The user's Python; this one, if None.
    timeout_s
        Seconds after which the probe is stopped; None waits for ever.

    Raises
    ------
    InputError
        There is no such Python.
    CalibrationError
        The probe failed or ran out of time; the message names what was kept.
    KeyboardInterrupt
        Ctrl-C; the child is stopped first, and what was measured is in ``out``.
    """
    run_probes(probe, [(arguments, out)], python, timeout_s, progress, heard)


def run_probes(
    probe: str,
    runs: Sequence[tuple[Sequence[str], Path]],
    python: str | None = None,
    timeout_s: float | None = None,
    progress: Progress | None = None,
    heard: Heard | None = None,
) -> None:
    """Do as :func:`run_probe` for several processes at once: arguments and measurement file of each; the first one's progress is passed on.

    Where one of them fails, all are stopped.
    """
    if timeout_s is not None and not timeout_s > 0:
        raise InputError(f"`timeout_s={timeout_s:g}`: must be above 0 seconds")
    with contextlib.ExitStack() as stack:
        folder, environment = stack.enter_context(probing(*(checkpoints_beside(out) for _, out in runs)))
        errors = [stack.enter_context((folder / f"errors-{number}").open("w+b")) for number in range(len(runs))]
        with contextlib.ExitStack() as started:
            children = [
                started.enter_context(_child(probe, [*arguments, "--out", str(out)], python, environment, stderr=printed))
                for (arguments, out), printed in zip(runs, errors, strict=True)
            ]
            timed_out = _follow(children, timeout_s, progress, heard)
            failed = [child.poll() not in (0, None) for child in children]
        if timed_out:
            raise CalibrationError(f"the probe was stopped after {timeout_s:g} s (`timeout_s`); {kept_in(*(out for _, out in runs))}")
        for child, wrong, (_, out), printed in zip(children, failed, runs, errors, strict=True):
            if wrong:
                message = _explained(child.returncode, out, printed, python or sys.executable)
                raise InputError(message) if child.returncode == _EXIT_USAGE else CalibrationError(message)


def run_reader(probe: str, arguments: Sequence[str], python: str | None, timeout_s: float | None) -> str:
    """Return what a probe that reads files writes; on its last line it says why it could not.

    Raises
    ------
    InputError
        There is no such Python, or what it read cannot be used.
    CalibrationError
        That Python has no TensorFlow, it took too long, or it broke.
    """
    with probing() as (folder, environment):
        out = folder / "read"
        with _child(probe, [*arguments, "--out", str(out)], python, environment) as child:
            try:
                _, printed = child.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                raise CalibrationError(f"reading stopped after {timeout_s:g} s (`timeout_s`)") from None
        if child.returncode == 0:
            return out.read_text(encoding="utf-8")
    said = _last_line(printed, "no output")
    if child.returncode == _EXIT_NOT_INSTALLED:
        raise CalibrationError(_not_installed("tensorflow", python or sys.executable, f"({said}), whose classes read the file"))
    if child.returncode == _EXIT_USAGE:
        raise InputError(said)
    raise CalibrationError(said if child.returncode > 0 else f"the reader was killed by signal {-child.returncode}: {said}")


def serve_probe(probe: str, arguments: Sequence[str], python: str | None, ready: Callable[[], None] | None) -> str:
    """Run a probe that serves until it is stopped; if it ends on its own, the last line that it printed.

    ``ready`` is called when it can be reached. At Ctrl-C the child is stopped first.
    """
    # the probe ends when its standard input is closed, so also when this process is killed
    with probing() as (_, environment), _child(probe, arguments, python, environment, stdin=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        for line in child.stdout:
            if line.startswith(b"@serving") and ready is not None:
                ready()
        return _last_line(child.stderr.read(), "the server ended without output")


@contextlib.contextmanager
def _child(
    probe: str,
    arguments: Sequence[str],
    python: str | None,
    environment: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
    stderr: IO[bytes] | int = subprocess.PIPE,
) -> Iterator[subprocess.Popen[bytes]]:
    """A probe's process, which is stopped in the end."""
    command, piped = command_of(probe, arguments, python), subprocess.PIPE
    try:
        # S603: the Python that the user named
        child = subprocess.Popen(command, stdin=stdin, stdout=piped, stderr=stderr, env=environment, start_new_session=True)  # noqa: S603
    except OSError as error:
        raise InputError(
            f"`python`: {python or sys.executable!r} cannot be run: {error.strerror or error}; "
            "give the path of a Python that has the model's backend"
        ) from None
    try:
        yield child
    finally:
        stop(child)


@contextlib.contextmanager
def probing(*beside: Path) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Around a process of TensorFlow or of the user's code: a temporary folder, in which nothing stays, and its environment.

    TensorFlow writes a Python file for each function that it traces, and removes none where a process is killed or forks.
    What is ``beside`` is removed afterwards too, as by :func:`~simulator.base.process.scratch`.
    """
    with scratch(*beside) as folder:
        # what a step is measured under is a flag of its probe, and all other probes run TensorFlow
        own = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONUNBUFFERED": "1", "TMPDIR": str(folder)}
        yield folder, {**os.environ, **own}


def checkpoints_beside(out: Path) -> Path:
    """Where a probe may write checkpoints, since where measurements go there is a disk and a temporary folder may be memory.

    Removed when the probe has ended. Probes, which import nothing from here, make the same name of their ``--out``.
    """
    return out.with_name(out.name + ".checkpoints")


def command_of(probe: str, arguments: Sequence[str], python: str | None = None) -> list[str]:
    """The command that runs a probe with these arguments."""
    return [python or sys.executable, "-B", str(PROBES), probe, *arguments]


def _not_installed(framework: str, executable: str, why: str, backend: str = "tensorflow") -> str:
    """That a Python lacks a framework: of TensorFlow, JAX and PyTorch the extra of that name brings all that is needed."""
    extra = backend if framework == "keras" else framework
    return (
        f"{executable} cannot import {FRAMEWORKS[framework]} {why}; install it there with `pip install 'paceline[{extra}]'`, or give "
        "another Python with `python`"
    )


def _last_line(text: bytes, otherwise: str) -> str:
    printed = [line.strip() for line in text.decode("utf-8", "replace").splitlines() if line.strip() and not _LOGGED.match(line)]
    return printed[-1] if printed else otherwise


def _follow(children: Sequence[subprocess.Popen[bytes]], timeout_s: float | None, progress: Progress | None, heard: Heard | None) -> bool:
    """Pass on what the first one tells until all have ended, or one has failed; True if they ran out of time."""
    readers = []
    for number, child in enumerate(children):
        assert child.stdout is not None
        told = (None, None) if number else (progress, heard)
        readers.append(threading.Thread(target=_relay, args=(child.stdout, *told), daemon=True))
        readers[-1].start()
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while any(child.poll() is None for child in children):
        if any(child.poll() not in (0, None) for child in children):
            return False
        if deadline is not None and time.monotonic() > deadline:
            return True
        time.sleep(0.05)
    for reader in readers:
        reader.join(timeout=_GRACE_S)
    return False


def _relay(stream: IO[bytes], progress: Progress | None, heard: Heard | None) -> None:
    for raw in stream:  # read to the end even if nobody wants it: a full pipe would stop the child
        line = raw.decode("utf-8", "replace")
        if not line.startswith(_PROGRESS_PREFIX):
            continue
        with contextlib.suppress(ValueError, KeyError):
            told = json.loads(line.removeprefix(_PROGRESS_PREFIX))
            if "event" not in told and progress is not None:
                progress(int(told["done"]), int(told["total"]), str(told["what"]))
            elif "event" in told and heard is not None:
                heard(told)


def stop(child: subprocess.Popen[Any]) -> None:
    """End the child with everything that it started: they share a separate process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=_GRACE_S)


@contextlib.contextmanager
def keeping(*outs: Path) -> Iterator[None]:
    """Around measuring: Ctrl-C, which goes on its way, says what of it is kept, where ``outs`` are the first files."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        stopped.args = (kept_in(*outs),)
        raise


def kept_in(*outs: Path) -> str:
    """Where measurements are that may be incomplete, in words; files without any are removed."""
    what, kept = "measured", []
    for out in outs:
        try:
            if not out.exists() or read_measurements(out).empty:
                out.unlink(missing_ok=True)
                continue
        except CalibrationError:  # cut off in the first line, say: leave it to the user to look at
            what = "written"
        kept.append(str(out))
    return f"the {what} part is kept in {listed(kept)}" if kept else "nothing had been measured"


def _explained(status: int, out: Path, errors: IO[bytes], executable: str) -> str:
    """One line: the exception that the probe recorded, or the last line it printed."""
    errors.seek(0)
    last = _last_line(errors.read(), "no output")
    with contextlib.suppress(CalibrationError):
        measured = read_measurements(out)
        failure = measured.failure
        if failure is not None:
            if status == _EXIT_NOT_INSTALLED:
                kept_in(out)
                backend = str(measured.header.arguments.get("backend") or "tensorflow")
                return _not_installed(failure.lacks or "tensorflow", executable, f"({_one_line(failure.message)})", backend)
            if status == _EXIT_USAGE:
                kept_in(out)
                return _one_line(failure.message)
            where = f" at {failure.where}" if failure.where else ""
            return f"{failure.type}{where}: {_one_line(failure.message)}; {kept_in(out)}"
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return f"the probe {how}: {_one_line(last)}; {kept_in(out)}"


_AROUND = re.compile(r"\x1b\[[0-9;]*m|\{\{function_node \S+\}\} | \[Op:\w+\]( name:)?")
"""Colours, and the names of TensorFlow's own functions."""
_LOGGED = re.compile(r"[IWE]\d{4} \d\d:\d\d|\d{4}-\d\d-\d\d \S+ [IWE] |WARNING")
"""Lines that TensorFlow always logs."""
_OF_A_GRAPH = re.compile(r'(?:Detected at node|File "|\[\[|<stack traces|\.\.\.$|The above|Original stack)')
"""Lines around what went wrong in a function of TensorFlow."""


def _one_line(text: str) -> str:
    """Return what a message says, without where in Keras or TensorFlow it was raised and with what arguments."""
    text = _AROUND.sub("", text).partition("Arguments received by ")[0]
    said, traced, rest = text.partition("in user code:")
    lines = [line.strip() for line in rest.splitlines() if line.strip()][-1:] if traced else []  # ends "ValueError: message"
    if not traced:
        said, failed, rest = text.partition("Graph execution error:")
        lines = [line for line in map(str.strip, rest.splitlines()) if line and not _OF_A_GRAPH.match(line)] if failed else []
        lines = lines or [failed]
    lines = [line for line in [*map(str.strip, said.splitlines()), *lines] if line]
    chosen = " ".join(lines)
    return chosen if len(chosen) <= 300 else chosen[:297] + "..."
