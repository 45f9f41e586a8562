"""A testbed that goes wrong: a clear error, what was measured is kept, nothing left behind."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.needs import needs_tensorflow
from support.probes import run_script
from support.waiting import PATIENCE_S, until
from support.warm_python import WarmProcess

from calibrate.measurements import LinkCheck, read_measurements
from calibrate.probing import PROBES
from calibrate.testbed.readings import read_run
from calibrate.testbed.setting import TestbedSetting
from simulator.base.errors import CalibrationError

pytestmark = needs_tensorflow

ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
LOCK = Path("/run/paceline-testbed.lock")
HANGS = """
import os, time

def build():
    print("opening the data set", flush=True)
    open(f"{os.path.dirname(__file__)}/hangs-{os.getpid()}", "w").close()
    time.sleep(600)
"""
DRIVER = """
import glob, os, runpy, sys, time
starter, began, real, monotonic = os.getpid(), time.monotonic(), time.time, time.monotonic

def adjusted():
    return {time} if os.getpid() == starter else real()

def passed():
    return monotonic() + (1e6 if os.getpid() == starter and {over} else 0.0)

time.time, time.monotonic = adjusted, passed
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""
"""Runs a probe whose starter has a clock that shows ``time``, and for which time is up when ``over``."""


def _setting(**fields: Any) -> TestbedSetting:
    table = {
        "mode": "between-graph",
        "workers": 2,
        "servers": 1,
        "model": "ladder-1mb",
        "link": {"bandwidth_bytes_per_s": 50e6},
        "compute": {"mean_s": 0.02},
        "steps": 10,
        "warm_up": 1,
    }
    return TestbedSetting.model_validate(table | fields)


def _obstacle() -> str | None:
    if sys.platform != "linux":
        return "network namespaces need Linux"
    if os.geteuid():
        return "shaped links need root"
    if not shutil.which("ip") or not shutil.which("tc"):
        return "shaped links need iproute2"
    trial = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x40000000))"
    refused = subprocess.run([sys.executable, "-c", trial], capture_output=True, timeout=PATIENCE_S).returncode
    return "this root may not make network namespaces" if refused or not os.access(ALLOWED, os.W_OK) else None


def _allowed() -> str:
    """What the machine allows when no testbed is in the moment of its choice."""
    with LOCK.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return ALLOWED.read_text()


def _interfaces() -> set[str]:
    return set(os.listdir("/sys/class/net"))


@pytest.fixture
def shaped() -> Iterator[None]:
    """Skips where links cannot be shaped; afterwards the machine must be as it was before."""
    if obstacle := _obstacle():
        pytest.skip(obstacle)
    before = _interfaces(), _allowed()
    yield
    assert (_interfaces(), _allowed()) == before


class Testbed:
    """A run of the probe, in a session of its own."""

    __test__ = False

    def __init__(self, python: str, folder: Path, setting: TestbedSetting, *, repeats: int = 2, name: str = "run", **driver: str) -> None:
        spec = folder / f"{name}.json"
        spec.write_text(json.dumps(setting.for_probe(repeats, 0, PATIENCE_S) | {"builder": setting.model}))
        self.setting = setting
        self.out = folder / f"{name}.ndjson"
        self.printed = folder / f"{name}.txt"
        command = [str(PROBES), "testbed.run", "--setting", str(spec), "--out", str(self.out)]
        if driver:
            command.insert(0, str(folder / "driver.py"))
            (folder / "driver.py").write_text(DRIVER.format(**{"time": "real()", "over": "False"} | driver))
        with self.printed.open("w") as file:
            self.process = WarmProcess(python, command, file)

    def members(self) -> list[int]:
        """All living processes of the run, the starter included, in the order in which they began."""
        found = []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == self.process.pid and fields[0] not in "ZX":
                    found.append((int(fields[19]), int(entry)))
        return [number for _, number in sorted(found)]

    def whole_repeats(self) -> int:
        return self.out.read_text().count('"kind": "repeat"') if self.out.exists() else 0

    def tasks_of_repeat(self, number: int) -> list[int]:
        """The tasks (server, worker 0, worker 1), once they are in the middle of that repeat's steps."""
        self.until(lambda: self.whole_repeats() == number)
        warm_bytes = (self.setting.warm_up + 2) * self.setting.parameter_bytes
        self.until(lambda: len(self.members()) == 4 and all(_received(task) > warm_bytes for task in self.members()[2:]))
        return self.members()[1:]

    def until(self, happened: Callable[[], object]) -> None:
        """Wait while it runs."""
        until(happened, Path("/proc", str(self.process.pid)).exists)

    def end(self) -> int:
        """Its exit status; nothing of it may live on."""
        status = self.process.wait(timeout=PATIENCE_S)
        until(lambda: not self.members())
        return status


def _received(task: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{task}/net/dev").read_text().splitlines():
            name, _, counts = line.partition(":")
            if name.strip() == "eth0":
                return int(counts.split()[0])
    return 0


@pytest.fixture
def testbed(warm: str, tmp_path: Path) -> Iterator[Callable[..., Testbed]]:
    started: list[Testbed] = []

    def start(setting: TestbedSetting, **options: Any) -> Testbed:
        started.append(Testbed(warm, tmp_path, setting, **options))
        return started[-1]

    yield start
    for one in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait(timeout=PATIENCE_S)


def _failure(path: Path) -> str:
    failure = read_measurements(path).failure
    assert failure is not None
    return failure.message


@pytest.mark.usefixtures("shaped")
def test_a_worker_that_is_killed(testbed: Callable[..., Testbed]) -> None:
    run = testbed(_setting(steps=30), repeats=3)
    worker = run.tasks_of_repeat(1)[2]
    os.kill(worker, signal.SIGKILL)
    assert run.end() == 3
    assert re.fullmatch(r"worker 1 was killed by signal 9 before 'reported'; its last lines: .+", _failure(run.out))
    readings = read_run(run.out)
    assert [len(one.steps) for one in readings.runs] == [60]


@pytest.mark.long
@pytest.mark.usefixtures("shaped")
def test_a_coordinated_worker_that_is_killed(testbed: Callable[..., Testbed]) -> None:
    run = testbed(_setting(mode="async", steps=300), repeats=1)
    run.until(lambda: len(run.members()) == 5 and _received(run.members()[3]) > 5 * run.setting.parameter_bytes)
    os.kill(run.members()[3], signal.SIGKILL)
    assert run.end() == 3
    assert "worker 1 was killed by signal 9" in _failure(run.out)


@pytest.mark.usefixtures("shaped")
def test_a_starter_that_is_killed(testbed: Callable[..., Testbed]) -> None:
    run = testbed(_setting(steps=30))
    tasks = run.tasks_of_repeat(0)
    assert len(tasks) == 3
    os.kill(run.process.pid, signal.SIGKILL)
    assert run.end() == -signal.SIGKILL
    assert run.whole_repeats() == 0


@pytest.mark.usefixtures("shaped")
@pytest.mark.parametrize(("number", "status", "whole"), [(signal.SIGINT, 130, 1), (signal.SIGTERM, 143, 0)])
def test_a_run_that_is_interrupted(number: signal.Signals, status: int, whole: int, testbed: Callable[..., Testbed]) -> None:
    run = testbed(_setting(steps=30))
    run.tasks_of_repeat(whole)
    os.killpg(run.process.pid, number)
    assert run.end() == status
    assert run.whole_repeats() == whole
    assert _failure(run.out) == {130: "was interrupted (Ctrl-C)", 143: "was ended by SIGTERM"}[status]


@pytest.mark.usefixtures("shaped")
def test_a_task_that_stands_still(testbed: Callable[..., Testbed], tmp_path: Path) -> None:
    """Time is up when the other worker has pulled for its last step."""
    over = tmp_path / "over"
    run = testbed(_setting(steps=30), over=f"os.path.exists({str(over)!r})")
    *_, other, stopped = run.tasks_of_repeat(1)
    os.kill(stopped, signal.SIGSTOP)
    run.until(lambda: _received(other) >= (run.setting.warm_up + run.setting.steps) * run.setting.parameter_bytes)
    over.touch()
    assert run.end() == 3
    assert re.match(r"(worker 0, )?worker 1 did not reach 'reported' within 300 s \(`timeout_s`\); last lines of ", _failure(run.out))
    assert len(read_run(run.out).runs) == 1


@pytest.mark.usefixtures("shaped")
def test_the_last_lines_of_a_hung_task(testbed: Callable[..., Testbed], tmp_path: Path) -> None:
    """Time is up when both workers hang."""
    (tmp_path / "slow.py").write_text(HANGS)
    setting = _setting(link=None, model=f"{tmp_path}/slow.py:build", variables=_setting().variables, compute={"kind": "real"})
    run = testbed(setting, repeats=1, over=f"len(glob.glob({str(tmp_path / 'hangs-*')!r})) == 2")
    assert run.end() == 3
    assert re.match(r"worker 0 did not reach 'initialised' within 300 s .*last lines of worker 0: opening the data set", _failure(run.out))


@pytest.mark.usefixtures("shaped")
def test_a_rate_that_no_machine_reaches(testbed: Callable[..., Testbed]) -> None:
    run = testbed(_setting(link={"bandwidth_bytes_per_s": 400e9 / 8}))
    assert run.end() == 3
    message = _failure(run.out)
    found = re.fullmatch(
        r"link.bandwidth: 400000 Mbit/s requested, but this machine moves (\d+) Mbit/s between two hosts: give less", message
    )
    assert found, message
    (check,) = read_measurements(run.out).of(LinkCheck)
    assert check.bytes_per_s * 8e-6 == pytest.approx(float(found[1]), abs=0.5)
    with pytest.raises(CalibrationError, match=r"has no complete repeat: link.bandwidth: 400000"):
        read_run(run.out)


@pytest.mark.usefixtures("shaped")
def test_two_testbeds_at_once_and_a_file_that_is_cut(testbed: Callable[..., Testbed], tmp_path: Path) -> None:
    # rates that two of them reach on two cores
    slow = {"bandwidth_bytes_per_s": 12.5e6, "congestion": "reno"}
    runs = [testbed(_setting(link=slow, steps=4), name="one"), testbed(_setting(mode="ring", servers=0, link=slow, steps=4), name="two")]
    assert [run.end() for run in runs] == [0, 0]
    for run in runs:
        readings = read_run(run.out)
        assert [len(one.steps) for one in readings.runs] == [8, 8]
        assert all(0.5 * 12.5e6 < rate < 1.2 * 12.5e6 for rate in readings.link_bytes_per_s)
    _check_cut(runs[0].out, tmp_path / "cut.ndjson")


def _check_cut(whole: Path, cut: Path) -> None:
    """However a file is cut: its whole repeats, or one clear error."""
    content = whole.read_bytes()
    ends = [content.index(b"\n", found.start()) for found in re.finditer(rb'"kind": "repeat"', content)]
    for size in range(1, len(content), 97):
        cut.write_bytes(content[:size])
        expected = sum(end <= size for end in ends)
        if expected:
            assert len(read_run(cut).runs) == expected
            assert len(read_run(cut).runs[0].steps) == 8
        else:
            with pytest.raises(CalibrationError, match=r"has no (complete repeat|measurements): measure again"):
                read_run(cut)


@pytest.mark.usefixtures("shaped")
def test_a_clock_that_jumps(testbed: Callable[..., Testbed]) -> None:
    """The starter's clock is set forward by a twentieth of what passes."""
    run = testbed(_setting(link=None, steps=20), repeats=1, time="real() + 0.05 * (monotonic() - began)")
    assert run.end() == 3
    assert re.match(r"the machine's clock jumped by \d+ ms", _failure(run.out))


def _sentence(command: list[str], tmp_path: Path, **options: Any) -> str:
    """What a run says that ends before TensorFlow has even been imported."""
    folder = Path(tempfile.mkdtemp(dir=tmp_path if "user" not in options else "/tmp"))
    try:
        folder.chmod(0o777)
        spec, out = folder / "spec.json", folder / "out.ndjson"
        spec.write_text(json.dumps(_setting().for_probe(1, 0, 60)))
        spec.chmod(0o644)
        command = [*command, "-B", str(PROBES), "testbed.run", "--setting", str(spec), "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, **options)
        assert done.returncode == 3, done.stderr
        return _failure(out)
    finally:
        shutil.rmtree(folder)


@pytest.mark.usefixtures("shaped")
def test_without_iproute2(tmp_path: Path) -> None:
    said = _sentence([sys.executable], tmp_path, env={**os.environ, "PATH": str(tmp_path)})
    assert re.search(r"\bip\b.* missing", said)


@pytest.mark.usefixtures("shaped")
def test_without_root(tmp_path: Path) -> None:
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None or subprocess.run([python, "-c", ""], user=65534, cwd="/").returncode:
        pytest.skip("no Python here that a user without rights can run")
    said = _sentence([python], tmp_path, user=65534, cwd="/")
    assert re.search(r"need root; run it as root", said)


@pytest.mark.usefixtures("shaped")
def test_root_without_capabilities(tmp_path: Path) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("there is no setpriv")
    said = _sentence(["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable], tmp_path)
    assert said.startswith("no network namespace: Operation not permitted; ")


# -- TCP's congestion control, which is the machine's ------------------------------------


def _congestion() -> ModuleType:
    return importlib.import_module("calibrate.probes.testbed.links")


def _one_not_allowed(module: ModuleType) -> str:
    available = Path(module.AVAILABLE).read_text().split()
    missing = [name for name in available if name not in _allowed().split()]
    if not missing:
        pytest.skip("this machine allows every congestion control that it has")
    return missing[0]


@pytest.mark.usefixtures("shaped")
def test_a_congestion_control_is_allowed_for_a_moment_only() -> None:
    module = _congestion()
    name, before = _one_not_allowed(module), _allowed()
    control = module.Congestion(name)
    with control.choosable():
        assert name in ALLOWED.read_text().split()
    assert _allowed() == before

    def fails() -> None:
        with control.choosable():
            raise OSError("in the moment")

    with pytest.raises(OSError, match="in the moment"):
        fails()
    assert _allowed() == before
    assert LOCK.read_bytes() == b""


@pytest.mark.usefixtures("shaped")
def test_a_run_that_was_killed_in_that_moment_is_mended_by_the_next() -> None:
    module = _congestion()
    name, before = _one_not_allowed(module), _allowed()
    killed = f"import os; from _paceline_probes.testbed import links\nwith links.Congestion({name!r}).choosable(): os.kill(os.getpid(), 9)"
    assert run_script(killed, timeout=PATIENCE_S).returncode == -signal.SIGKILL
    # a run to which nothing has to be allowed mends it too
    with module.Congestion(before.split()[0]).choosable():
        assert ALLOWED.read_text() == before
    assert (_allowed(), LOCK.read_bytes()) == (before, b"")


def test_a_congestion_control_that_the_machine_lacks() -> None:
    module = _congestion()
    if not Path(module.AVAILABLE).exists():
        pytest.skip("this system does not list its congestion controls")
    with pytest.raises(ValueError, match=r"link.congestion: 'snail' is not a congestion control of this machine; it has .*"):
        module.Congestion("snail")
