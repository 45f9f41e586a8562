"""A folder of a block's own, and names that belong to a process, are gone afterwards, however it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.waiting import PATIENCE_S, until

from simulator.base.process import scratch

SLEEPER = "[sys.executable, '-c', 'import time; time.sleep(600)']"
WORKING = f"""
import os, subprocess, sys, time
from pathlib import Path
from simulator.base.process import removed_after_this_process, scratch

removed_after_this_process(sys.argv[1] + "/named-*")
Path(sys.argv[1], "named-[1]").touch()
with scratch(Path("beside"), Path("absent")) as folder:
    Path("beside").mkdir()
    (folder / "file").touch()
    named = subprocess.Popen({SLEEPER}, env={{**os.environ, "TMPDIR": str(folder)}}, start_new_session=True)
    ray = subprocess.Popen({SLEEPER}, env={{**os.environ, "RAY_TMPDIR": str(folder)}}, start_new_session=True)
    print(folder, named.pid, ray.pid, flush=True)
    exec(sys.argv[2])
print("over", flush=True)
sys.stdin.read()
"""
"""Has something in every place, and two processes that nobody of its group would end."""


def ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def work(tmp_path: Path) -> Callable[[str], tuple[subprocess.Popen[str], Path, list[int]]]:
    def begun(then: str) -> tuple[subprocess.Popen[str], Path, list[int]]:
        (tmp_path / "t").mkdir()
        child = subprocess.Popen(
            [sys.executable, "-c", WORKING, str(tmp_path), then],
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(tmp_path / "t"), "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert child.stdout is not None
        folder, *workers = child.stdout.readline().split()
        return child, Path(folder), list(map(int, workers))

    return begun


@pytest.mark.parametrize("then", ["pass", "raise ValueError"])
def test_nothing_stays_of_a_block(work: Callable[[str], tuple[subprocess.Popen[str], Path, list[int]]], tmp_path: Path, then: str) -> None:
    child, folder, workers = work(then)
    if then == "pass":
        assert child.stdout is not None
        assert child.stdout.readline() == "over\n"
        assert (tmp_path / "named-[1]").exists()
    else:
        child.wait(timeout=PATIENCE_S)
    assert folder.parent == tmp_path / "t"
    assert not folder.exists()
    assert not (tmp_path / "beside").exists()
    until(lambda: all(map(ended, workers)))
    child.communicate(timeout=PATIENCE_S)
    assert not (tmp_path / "named-[1]").exists()
    assert os.listdir(tmp_path) == ["t"]


@pytest.mark.slow
@pytest.mark.parametrize("everyone", [False, True])
def test_nothing_stays_of_a_process_that_is_killed(
    work: Callable[[str], tuple[subprocess.Popen[str], Path, list[int]]], tmp_path: Path, everyone: bool
) -> None:
    child, folder, workers = work("time.sleep(600)")
    assert folder.exists()
    (os.killpg if everyone else os.kill)(child.pid, signal.SIGKILL)
    child.communicate(timeout=PATIENCE_S)
    until(lambda: os.listdir(tmp_path) == ["t"] and os.listdir(tmp_path / "t") == [] and all(map(ended, workers)))
    # whoever has tidied up has ended as well: it is told of the folder when it is started
    until(lambda: not any(str(tmp_path) in command for command in commands()))


def commands() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_text())
    return found


def test_who_only_looks_into_it_goes_on(tmp_path: Path) -> None:
    with scratch(within=str(tmp_path)) as folder, (folder / "file").open("w") as file:
        command = [sys.executable, "-c", "input()"]
        looking = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=file, env={**os.environ, "SEEN": str(folder)})
    assert not folder.exists()
    assert looking.communicate(b"\n", timeout=PATIENCE_S) == (None, None)
    assert looking.returncode == 0


def test_what_was_not_there_is_no_error(tmp_path: Path) -> None:
    with scratch(tmp_path / "absent", within=str(tmp_path)) as folder:
        assert folder.parent == tmp_path
        folder.rmdir()
    assert os.listdir(tmp_path) == []


def test_a_child_that_was_forked_leaves_all_to_its_parent(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    program = """
import os, sys
from pathlib import Path
from simulator.base.process import removed_after_this_process, scratch

removed_after_this_process(sys.argv[1] + "/named-*")
Path(sys.argv[1], "named-1").touch()
with scratch(within=sys.argv[1] + "/t") as folder:
    child = os.fork()
    if not child:
        sys.exit()
    os.waitpid(child, 0)
    print(folder.is_dir(), os.path.exists(sys.argv[1] + "/named-1"))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.stdout, done.stderr) == ("True True\n", "")
    assert os.listdir(tmp_path) == ["t"]
    assert os.listdir(tmp_path / "t") == []


def test_what_was_there_before_the_process_is_not_its_own(tmp_path: Path) -> None:
    older, newer = tmp_path / "named-older", tmp_path / "named-newer"
    older.touch()
    os.utime(older, (time.time() - 60,) * 2)
    program = "import sys; from simulator.base.process import *; removed_after_this_process(sys.argv[1]); open(sys.argv[2], 'w').close()"
    subprocess.run(
        [sys.executable, "-c", program, f"{tmp_path}/named-*", newer],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        timeout=PATIENCE_S,
    )
    assert os.listdir(tmp_path) == ["named-older"]
