"""Whatever a probe leaves in its temporary folder, or beside its measurements, is gone with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.programs import program
from support.waiting import PATIENCE_S, until

from calibrate.probing import run_probe, run_reader, serve_probe
from simulator.base.errors import CalibrationError, InputError

PROBE = """
import os, sys, tempfile, time
tempfile.mkstemp(prefix="__autograph_generated_file")
if "--out" in sys.argv:
    out = sys.argv[sys.argv.index("--out") + 1]
    os.makedirs(out + ".checkpoints/0")
    open(out, "w").close()
print("@serving here", flush=True)
{then}
"""
PROBED = "import sys; from pathlib import Path; from calibrate.probing import run_probe; run_probe('p.py', [], Path('out'), sys.argv[1])"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this process and of those that it starts, and the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def python(folder: Path, then: str) -> str:
    return program(folder / "python", PROBE.format(then=then))


def left(folder: Path) -> set[str]:
    return {path.name for path in (*folder.iterdir(), *(folder / "t").iterdir())} - {"t", "python", "out"}


@pytest.mark.parametrize("then", ["pass", "sys.exit(3)", "os.kill(os.getpid(), 9)"])
def test_of_a_probe(folder: Path, then: str) -> None:
    try:
        run_probe("p.py", [], folder / "out", python(folder, then))
    except CalibrationError:
        assert then != "pass"
    assert left(folder) == set()


def test_of_a_probe_that_hangs_and_of_all_that_it_has_started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is over as soon as it has begun to hang."""
    then = """import subprocess
started = subprocess.Popen(["sleep", "600"])
open("half", "w").write(f"{os.getpid()} {started.pid}")
os.rename("half", "pids")
time.sleep(600)"""
    clock = SimpleNamespace(monotonic=lambda: 1e9 if (folder / "pids").exists() else 0.0, sleep=time.sleep)
    monkeypatch.setattr("calibrate.probing.time", clock)
    with pytest.raises(CalibrationError, match=r"stopped after 8 s \(`timeout_s`\)"):
        run_probe("p.py", [], folder / "out", python(folder, then), timeout_s=8.0)
    numbers = (folder / "pids").read_text().split()
    (folder / "pids").unlink()
    until(lambda: not any(Path("/proc", number).exists() for number in numbers))
    assert left(folder) == set()


def test_a_probe_has_some_time(folder: Path) -> None:
    with pytest.raises(InputError, match=r"`timeout_s=-1`: must be above 0 seconds"):
        run_probe("p.py", [], folder / "out", python(folder, "pass"), timeout_s=-1.0)
    assert left(folder) == set()


@pytest.mark.parametrize("then", ["pass", "sys.exit(3)"])
def test_of_a_reader(folder: Path, then: str) -> None:
    try:
        run_reader("p.py", [], python(folder, then), None)
    except CalibrationError:
        assert then != "pass"
    assert left(folder) == set()


def test_of_a_server(folder: Path) -> None:
    serving: list[set[str]] = []
    assert serve_probe("p.py", [], python(folder, "sys.exit('no port')"), lambda: serving.append(left(folder))) == "no port"
    assert [len(names) for names in serving] == [1]
    assert left(folder) == set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_of_a_command_that_is_stopped_or_killed(folder: Path, number: signal.Signals) -> None:
    """The probe, which nobody could tell, ends as well."""
    then = "open('half', 'w').write(str(os.getpid()))\nos.rename('half', 'pid')\ntime.sleep(600)"
    command = [sys.executable, "-c", PROBED, python(folder, then)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True) as child:
        until((folder / "pid").exists, lambda: child.poll() is None)
        probe = (folder / "pid").read_text()
        (folder / "pid").unlink()
        child.send_signal(number)
        child.wait(timeout=PATIENCE_S)
    until(lambda: not Path("/proc", probe).exists() and left(folder) == set())
