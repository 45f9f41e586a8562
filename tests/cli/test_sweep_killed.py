"""A sweep that is killed, wherever it stands, goes on to the very bytes of one that was not."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.command_line import SCENARIO
from support.journals import finished_lines

from paceline.sweeping import read_results
from paceline.sweeping.lines import with_place

GRID = ("--over", "run.seed=0,1,2,3,4,5", "--over", "strategy.workers=2,3")
ARGUMENTS = ("sweep", "s.toml", "--set", "run.steps=60", *GRID)
KILLED_IN_A_LINE = """
import os, signal
from paceline.cli.app import main
from paceline.sweeping import Journal

write = Journal._write

def killed(file, line):
    write(file, line)
    if line.place == 4:
        file._file.truncate(file._end - len(line.text) + {length} % (len(line.text) + 1))
        os.kill(os.getpid(), signal.SIGKILL)

Journal._write = killed
main()
"""
"""Of the fifth line only so many bytes have reached the file when the process dies."""


def command(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-m", "paceline", *ARGUMENTS, "--out", "r.ndjson", *options]
    return subprocess.Popen(arguments, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def finished(folder: Path, *options: str) -> bytes:
    """The file, once the sweep has gone on to its end; nothing lies beside it."""
    with command(folder, *options) as child:
        assert child.wait(timeout=120) == 0, child.communicate()
    assert {path.name for path in folder.iterdir()} == {"s.toml", "r.ndjson"}
    return (folder / "r.ndjson").read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.toml").write_text(SCENARIO)
    return tmp_path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("whole")
    (folder / "s.toml").write_text(SCENARIO)
    return finished(folder, "--jobs", "1")


def test_as_many_processes_as_one_likes_write_the_same_bytes(folder: Path, whole: bytes) -> None:
    assert finished(folder, "--jobs", "2") == whole


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_killed_again_and_again(folder: Path, whole: bytes, jobs: str) -> None:
    out = folder / "r.ndjson"
    for wanted in (1, 4, 8):
        child = command(folder, "--jobs", jobs)
        deadline_s = time.monotonic() + 120
        while not (out.exists() and out.read_bytes().count(b"\n") >= wanted):
            assert child.poll() is None, child.communicate()
            assert time.monotonic() < deadline_s
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        assert child.returncode == -signal.SIGKILL
        kept = finished_lines(out.read_bytes())
        assert kept <= set(whole.splitlines(keepends=True))
        # read at any moment, it is in the order of the grid
        read = [outcome.to_json().encode() + b"\n" for outcome in read_results(out)]
        assert read == [line for line in whole.splitlines(keepends=True) if line in kept]
    assert finished(folder, "--jobs", jobs) == whole


@pytest.mark.parametrize("length", [0, 30, -2, -1])
def test_killed_in_the_middle_of_a_line(folder: Path, whole: bytes, length: int) -> None:
    program = KILLED_IN_A_LINE.format(length=length)
    arguments = [sys.executable, "-c", program, *ARGUMENTS, "--jobs", "1", "--out", "r.ndjson"]
    assert subprocess.run(arguments, cwd=folder, capture_output=True, check=False).returncode == -signal.SIGKILL
    *first, fifth = [with_place(line, place) for place, line in enumerate(whole.splitlines(keepends=True)[:5])]
    assert (folder / "r.ndjson").read_bytes() == b"".join(first) + fifth[: length % (len(fifth) + 1)]
    assert finished(folder, "--jobs", "1") == whole


def test_a_full_disk_leaves_what_can_be_gone_on_with(folder: Path, whole: bytes) -> None:
    """A file that may not grow any further stands for a disk without room."""
    size = 20_000
    arguments = [sys.executable, "-m", "paceline", *ARGUMENTS, "--jobs", "1", "--out", "r.ndjson"]
    limited = subprocess.run(
        arguments,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )
    assert (limited.returncode, limited.stdout) == (1, "")
    assert limited.stderr == "paceline: r.ndjson: cannot be written: File too large; finished results are kept: run again when it can\n"
    assert len((folder / "r.ndjson").read_bytes()) == size
    assert finished_lines((folder / "r.ndjson").read_bytes()) < set(whole.splitlines(keepends=True))
    assert finished(folder, "--jobs", "1") == whole
