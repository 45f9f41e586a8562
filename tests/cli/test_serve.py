"""``paceline serve``: what it refuses, and how it ends."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.command_line import Answer, refused

pytestmark = pytest.mark.slow
_PATIENCE_S = 60.0


@pytest.fixture
def served(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A page that is served, in a process group of its own, as a shell starts one."""
    command = [sys.executable, "-m", "paceline", "serve", "s.toml", "--jobs", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    yield process
    process.kill()
    process.communicate()


def group(process: subprocess.Popen[str]) -> list[int]:
    """Processes of its session that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text(encoding="utf-8").rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) == process.pid and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


def none_left(process: subprocess.Popen[str]) -> bool:
    end_s = time.monotonic() + _PATIENCE_S
    while group(process) and time.monotonic() < end_s:
        time.sleep(0.05)
    return not group(process)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_all_that_it_has_started(served: subprocess.Popen[str], number: signal.Signals, code: int) -> None:
    assert len(group(served)) > 2
    os.killpg(served.pid, number)
    _, said = served.communicate(timeout=_PATIENCE_S)
    assert served.returncode == code, said
    assert "Traceback" not in said
    assert said.splitlines()[-1] == ("stopped serving" if number == signal.SIGINT else "paceline: ended by SIGTERM")
    assert none_left(served)


def test_kill_9_leaves_no_process_behind(served: subprocess.Popen[str]) -> None:
    served.kill()
    served.wait(timeout=_PATIENCE_S)
    assert none_left(served)


def test_what_serves_may_be_missing(paceline: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr("paceline.serving.server.find_spec", lambda name: None if name == "uvicorn" else there(name))
    refused(paceline("serve", "s.toml"), "uvicorn", "pip install 'paceline[serve]'")


def test_a_port_in_use_is_refused(paceline: Callable[..., Answer]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        refused(paceline("serve", "s.toml", "--port", str(there.getsockname()[1])), "--port")


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing.toml",),
        ("asinc-ps",),
        ("s.toml", "--host", "no.such.host.invalid"),
        ("s.toml", "--port", "70000"),
    ],
)
def test_what_cannot_be_served_is_refused(paceline: Callable[..., Answer], arguments: tuple[str, ...]) -> None:
    answer = paceline("serve", *arguments)
    assert answer.code == 2
    assert answer.stdout == ""
    assert "Traceback" not in answer.stderr
