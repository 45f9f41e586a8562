"""A sweep that is killed, wherever it stands, goes on to the very bytes of one that was not."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import SCENARIO, Answer, refused
from support.journals import finished_lines
from support.once import once
from support.waiting import PATIENCE_S, until

from paceline.sweeping import read_results
from paceline.sweeping.results_file import with_place

GRID = ("--over", "run.seed=0,1,2,3,4,5", "--over", "strategy.workers=2,3")
ARGUMENTS = ("sweep", "s.toml", "--set", "run.steps=60", *GRID, "--out", "r.ndjson")
KILLED_IN_A_LINE = """
import os, signal
from paceline.cli.app import main
from paceline.sweeping import Journal

write = Journal._write

def killed(file, line):
    write(file, line)
    if len(file._entries) == 5:
        file._file.truncate(file._end - len(line.text) + {length} % (len(line.text) + 1))
        os.kill(os.getpid(), signal.SIGKILL)

Journal._write = killed
main()
"""
"""Of the fifth line, which on a slow machine is not that of the fifth scenario, only so many bytes reach the file."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What is written where nobody kills anything."""

    def make(folder: Path) -> None:
        (folder / "s.toml").write_text(SCENARIO)
        arguments = [sys.executable, "-m", "paceline", *ARGUMENTS, "--jobs", "1"]
        subprocess.run(arguments, cwd=folder, check=True, capture_output=True)

    return (once(tmp_path_factory, "not-killed", make) / "r.ndjson").read_bytes()


def goes_on(folder: Path, paceline: Callable[..., Answer], whole: bytes, jobs: str = "1") -> None:
    """To the very end, and nothing lies beside it."""
    assert paceline(*ARGUMENTS, "--jobs", jobs).code == 0
    assert (folder / "r.ndjson").read_bytes() == whole
    assert {path.name for path in folder.iterdir()} == {"s.toml", "r.ndjson"}


@pytest.mark.parametrize(("jobs", "counts"), [("2", (4,)), *(pytest.param(jobs, (1, 4, 8), marks=pytest.mark.long) for jobs in ("1", "2"))])
def test_killed_again_and_again(folder: Path, paceline: Callable[..., Answer], whole: bytes, jobs: str, counts: tuple[int, ...]) -> None:
    out = folder / "r.ndjson"
    for wanted in counts:
        arguments = [sys.executable, "-m", "paceline", *ARGUMENTS, "--jobs", jobs]
        child = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        until(lambda: out.exists() and out.read_bytes().count(b"\n") >= wanted, lambda: child.poll() is None)  # noqa: B023
        os.killpg(child.pid, signal.SIGKILL)
        assert child.wait(timeout=PATIENCE_S) == -signal.SIGKILL
        kept = finished_lines(out.read_bytes())
        assert kept <= set(whole.splitlines(keepends=True))
        # read at any moment, it is in the order of the grid
        read = [outcome.to_json().encode() + b"\n" for outcome in read_results(out)]
        assert read == [line for line in whole.splitlines(keepends=True) if line in kept]
    goes_on(folder, paceline, whole, jobs)


@pytest.mark.parametrize("length", [30, *(pytest.param(length, marks=pytest.mark.long) for length in (0, -2, -1))])
def test_killed_in_the_middle_of_a_line(folder: Path, paceline: Callable[..., Answer], whole: bytes, length: int) -> None:
    program = KILLED_IN_A_LINE.format(length=length)
    arguments = [sys.executable, "-c", program, *ARGUMENTS, "--jobs", "1"]
    assert subprocess.run(arguments, cwd=folder, capture_output=True, check=False).returncode == -signal.SIGKILL
    lines = whole.splitlines(keepends=True)
    *first, fifth = (folder / "r.ndjson").read_bytes().split(b"\n")[:5]
    assert finished_lines(b"\n".join([*first, b""])) < set(lines)
    beginnings = [text[: length % (len(text) + 1)] for text in map(with_place, lines, range(len(lines)))]
    assert fifth in [beginning.removesuffix(b"\n") for beginning in beginnings]
    goes_on(folder, paceline, whole)


def test_a_full_disk_leaves_what_can_be_gone_on_with(folder: Path, paceline: Callable[..., Answer], whole: bytes) -> None:
    """A file that may not grow any further stands for a disk without room."""
    size = 20_000
    arguments = [sys.executable, "-m", "paceline", *ARGUMENTS, "--jobs", "1"]
    limited = subprocess.run(
        arguments,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )
    refused(Answer(limited.returncode, limited.stdout, limited.stderr), "r.ndjson: ", "File too large", code=1)
    assert len((folder / "r.ndjson").read_bytes()) == size
    assert finished_lines((folder / "r.ndjson").read_bytes()) < set(whole.splitlines(keepends=True))
    goes_on(folder, paceline, whole)
