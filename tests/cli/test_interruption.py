"""A sweep that is stopped, however, loses nothing: running it again gives the very bytes of one that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import SCENARIO, Answer

WORKERS = (1, 2, 3, 4, 5, 6)
SWEEP = ("sweep", "s.toml", "--set", "run.steps=400", "--set", "run.replications=5")
GRID = ("--over", f"strategy.workers={','.join(map(str, WORKERS))}")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("whole")
    (folder / "s.toml").write_text(SCENARIO)
    subprocess.run([sys.executable, "-m", "paceline", *SWEEP, *GRID, "--out", "r.ndjson"], cwd=folder, check=True, capture_output=True)
    return (folder / "r.ndjson").read_bytes()


def stopped(folder: Path, jobs: int, number: signal.Signals, *, everyone: bool) -> Answer:
    """Start the sweep, and stop it after its first result as the terminal (everyone in the group) or ``kill`` would."""
    out = folder / "r.ndjson"
    child = subprocess.Popen(
        [sys.executable, "-m", "paceline", *SWEEP, *GRID, "--jobs", str(jobs), "--out", "r.ndjson"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not (out.exists() and b"\n" in out.read_bytes()):
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    (os.killpg if everyone else os.kill)(child.pid, number)
    stdout, stderr = child.communicate(timeout=60)
    return Answer(child.returncode, stdout, stderr)


@pytest.mark.parametrize("everyone", [True, False], ids=["typed", "sent"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c(folder: Path, paceline: Callable[..., Answer], uninterrupted: bytes, jobs: int, everyone: bool) -> None:
    answer = stopped(folder, jobs, signal.SIGINT, everyone=everyone)
    assert answer == Answer(130, "", "paceline: interrupted; what was finished is kept\n")
    kept = (folder / "r.ndjson").read_bytes()
    assert 1 <= kept.count(b"\n") < len(WORKERS)
    assert uninterrupted.startswith(kept)
    assert paceline(*SWEEP, *GRID, "--jobs", "1", "--out", "r.ndjson").code == 0
    assert (folder / "r.ndjson").read_bytes() == uninterrupted


@pytest.mark.parametrize("jobs", [1, 2])
def test_kill(folder: Path, paceline: Callable[..., Answer], uninterrupted: bytes, jobs: int) -> None:
    assert stopped(folder, jobs, signal.SIGKILL, everyone=True).code == -signal.SIGKILL
    kept = (folder / "r.ndjson").read_bytes()
    assert kept.count(b"\n") < len(WORKERS)
    assert paceline(*SWEEP, *GRID, "--jobs", "2", "--out", "r.ndjson").code == 0
    assert (folder / "r.ndjson").read_bytes() == uninterrupted


@pytest.mark.parametrize("cut", [1, 40, 700, 5000])
def test_a_half_written_line_is_written_again(folder: Path, paceline: Callable[..., Answer], uninterrupted: bytes, cut: int) -> None:
    lines = uninterrupted.splitlines(keepends=True)
    (folder / "r.ndjson").write_bytes(b"".join(lines[:2]) + lines[2][:cut])
    assert paceline(*SWEEP, *GRID, "--jobs", "1", "--out", "r.ndjson").code == 0
    assert (folder / "r.ndjson").read_bytes() == uninterrupted


def test_a_killed_worker_process_is_one_line_and_keeps_results(folder: Path, uninterrupted: bytes) -> None:
    out = folder / "r.ndjson"
    child = subprocess.Popen(
        [sys.executable, "-m", "paceline", *SWEEP, *GRID, "--jobs", "2", "--out", "r.ndjson"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not (out.exists() and b"\n" in out.read_bytes()):
        assert child.poll() is None, child.communicate()
        time.sleep(0.005)
    os.kill(_workers_of(child.pid)[0], signal.SIGKILL)
    stdout, stderr = child.communicate(timeout=60)
    assert (child.returncode, stdout) == (1, "")
    assert stderr.startswith("paceline: a worker process was killed")
    assert stderr.count("\n") == 1
    assert uninterrupted.startswith(out.read_bytes())


def _workers_of(parent: int) -> list[int]:
    """Processes that simulate for a sweep: joblib's own tracker of resources is none."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status, command = (entry / "stat").read_text(), (entry / "cmdline").read_text()
        except OSError:
            continue
        if int(status.rpartition(")")[2].split()[1]) == parent and "popen_loky" in command:
            found.append(int(entry.name))
    return found
