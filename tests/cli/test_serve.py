"""``paceline serve``: what it refuses, and how it ends."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.command_line import Answer, refused
from support.signals import hearing
from support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow


@pytest.fixture
def served(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A page that is served, in a process group of its own, as a shell starts one."""
    command = hearing("-m", "paceline", "serve", "s.toml", "--jobs", "2")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    yield process
    process.kill()
    process.communicate()


def group(process: subprocess.Popen[str]) -> list[int]:
    """Processes of its session that have not ended."""
    living = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text(encoding="utf-8").rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) == process.pid and state not in "ZX":
            living.append(int(stat.parent.name))
    return living


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)])
def test_a_signal_ends_it_and_all_that_it_has_started(served: subprocess.Popen[str], number: signal.Signals, code: int) -> None:
    assert len(group(served)) > 2
    os.killpg(served.pid, number)
    _, said = served.communicate(timeout=PATIENCE_S)
    assert served.returncode == code, said
    assert "Traceback" not in said
    assert ("SIGTERM" in said.splitlines()[-1]) is (number == signal.SIGTERM)
    until(lambda: not group(served))


@pytest.mark.long
def test_kill_9_leaves_no_process_behind(served: subprocess.Popen[str]) -> None:
    served.kill()
    served.wait(timeout=PATIENCE_S)
    until(lambda: not group(served))


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
