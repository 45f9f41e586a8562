"""``paceline serve``: what it refuses, and how it ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

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
    process.link = process.stdout.readline().strip()  # type: ignore[attr-defined]
    assert process.link.startswith("http://127.0.0.1:")  # type: ignore[attr-defined]
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


def lines_of_group(process: subprocess.Popen[str]) -> list[str]:
    """The command lines of its processes."""
    found = []
    for pid in group(process):
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)])
def test_a_signal_ends_it_and_all_that_it_has_started(served: subprocess.Popen[str], number: signal.Signals, code: int) -> None:
    assert len(group(served)) > 2
    os.killpg(served.pid, number)
    _, said = served.communicate(timeout=PATIENCE_S)
    assert served.returncode == code, said
    assert "Traceback" not in said
    assert ("SIGTERM" in said.splitlines()[-1]) is (number == signal.SIGTERM)
    until(lambda: not group(served))


def test_a_signal_from_the_terminal_while_processes_start_is_one_line(folder: Path) -> None:
    """Ctrl-C goes to the whole group, to processes that have just begun as well."""
    command = hearing("-m", "paceline", "serve", "s.toml", "--jobs", "4")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    until(lambda: any("multiprocessing.spawn" in line for line in lines_of_group(process)), lambda: process.poll() is None)
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    assert Answer(process.returncode, stdout, stderr) == Answer(130, "", "paceline: interrupted\n")
    until(lambda: not group(process))


class Browser:
    """Who came in by the link, over connections of its own."""

    def __init__(self, process: subprocess.Popen[str], link: str) -> None:
        self.process, self.its = process, urlsplit(link)
        entered = self.connection()
        entered.request("GET", f"/?{self.its.query}")
        self.cookie = str(entered.getresponse().getheader("set-cookie")).partition(";")[0]

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(str(self.its.hostname), self.its.port, timeout=PATIENCE_S)

    def opened(self, begins: str) -> socket.socket:
        """A connection on which a request begins."""
        connection = socket.create_connection((str(self.its.hostname), int(self.its.port or 0)), timeout=PATIENCE_S)
        connection.sendall(begins.replace("\n", "\r\n").encode())
        return connection

    def status(self) -> int:
        connection = self.connection()
        connection.request("GET", "/", headers={"cookie": self.cookie})
        return connection.getresponse().status

    def half_question(self) -> str:
        origin = f"http://{self.its.netloc}"
        return (
            f"POST /ask HTTP/1.1\nhost: {self.its.netloc}\norigin: {origin}\ncookie: {self.cookie}\n"
            "content-type: application/json\ncontent-length: 1000\n\n{"
        )


@pytest.fixture
def browser(served: subprocess.Popen[str]) -> Browser:
    return Browser(served, served.link)  # type: ignore[attr-defined]


def ended(connection: socket.socket) -> bool:
    """Whether the server has closed a connection; waits for that."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def test_a_request_that_does_not_come_whole_is_dropped(browser: Browser) -> None:
    """Half a header, half a body, the half of a second request, and no request at all."""
    whole = f"GET /enter.js HTTP/1.1\nhost: {browser.its.netloc}\n\n"
    halves = ["GET / HTTP/1.1\nhost: 127", browser.half_question(), f"{whole}GET / HTTP", ""]
    assert all(ended(browser.opened(half)) for half in halves)
    assert browser.status() == 200


def test_many_connections_of_strangers_do_not_keep_the_owner_out(browser: Browser) -> None:
    resource.prlimit(browser.process.pid, resource.RLIMIT_NOFILE, (200, 200))
    strangers = [browser.opened("GET / HTTP/1.1\nhost: 127") for _ in range(260)]
    assert browser.status() == 200
    for stranger in strangers:
        stranger.close()


def test_clients_that_leave_are_nothing_to_tell_of(browser: Browser) -> None:
    for _ in range(100):
        browser.opened(browser.half_question()).close()
    assert browser.status() == 200
    os.killpg(browser.process.pid, signal.SIGINT)
    _, said = browser.process.communicate(timeout=PATIENCE_S)
    assert said == "Open the link. Ctrl-C stops it.\nstopped serving\n"


def test_ctrl_c_in_the_midst_of_an_answer_is_one_line(folder: Path, browser: Browser) -> None:
    question = {"text": (folder / "s.toml").read_text(), "most": 512, "changes": [["run.steps", "5000"]]}
    headers = {"cookie": browser.cookie, "origin": f"http://{browser.its.netloc}", "content-type": "application/json"}
    connection = browser.connection()
    connection.request("POST", "/ask", json.dumps(question), headers)
    assert b"scenario" in connection.getresponse().readline()
    os.killpg(browser.process.pid, signal.SIGINT)
    _, said = browser.process.communicate(timeout=PATIENCE_S)
    assert (browser.process.returncode, said) == (0, "Open the link. Ctrl-C stops it.\nstopped serving\n")


@pytest.mark.long
def test_kill_9_leaves_no_process_behind(served: subprocess.Popen[str]) -> None:
    served.kill()
    served.wait(timeout=PATIENCE_S)
    until(lambda: not group(served))


def test_what_serves_may_be_missing(paceline: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "paceline.serving.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
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
