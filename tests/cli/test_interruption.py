"""A sweep that is stopped, however, loses nothing: running it again gives the very bytes of one that was not."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.command_line import SCENARIO, Answer, refused
from support.journals import finished_lines
from support.once import once
from support.signals import SIGNALS, hearing
from support.waiting import PATIENCE_S, until

from paceline.sweeping import read_results
from paceline.sweeping.results_file import with_place

WORKERS = (1, 2, 3, 4, 5, 6)
SWEEP = ("sweep", "s.toml", "--set", "run.steps=200", "--set", "run.replications=5")
GRID = ("--over", f"strategy.workers={','.join(map(str, WORKERS))}")
long = pytest.mark.long


def whole(factory: pytest.TempPathFactory, name: str, *arguments: str) -> bytes:
    """The results of a sweep that nobody has stopped."""

    def make(folder: Path) -> None:
        (folder / "s.toml").write_text(SCENARIO)
        subprocess.run([sys.executable, "-m", "paceline", *arguments], cwd=folder, check=True, capture_output=True)
        assert {path.name for path in folder.iterdir()} == {"s.toml", "r.ndjson"}

    return (once(factory, name, make) / "r.ndjson").read_bytes()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return whole(tmp_path_factory, "uninterrupted", *SWEEP, *GRID, "--jobs", "2", "--out", "r.ndjson")


def started(*arguments: str, ignored: signal.Signals | None = None, **variables: str) -> subprocess.Popen[str]:
    """The command in a session of its own."""
    return subprocess.Popen(
        hearing("-m", "paceline", *arguments, ignored=ignored),
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def lines_written(file: Path, child: subprocess.Popen[str], count: int = 1) -> None:
    """Wait until the command has written so many whole lines."""
    until(lambda: file.exists() and file.read_bytes().count(b"\n") >= count, lambda: child.poll() is None)


def leaves_nothing(child: subprocess.Popen[str]) -> None:
    """Wait until every process of its session has ended, and nothing of what it shares lies in the folder that is memory."""
    until(lambda: all(_session_of(entry) != child.pid for entry in Path("/proc").glob("[0-9]*")))
    until(lambda: not any(f"-{child.pid}-" in name or f"_{child.pid}_" in name for name in os.listdir("/dev/shm")))


def _session_of(process: Path) -> int | None:
    try:
        state, *_, session = (process / "stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return None
    return None if state == "Z" else int(session)


def said(stderr: str) -> str:
    """What a command said besides its progress, of which a slow machine shows more."""
    return "".join(line for line in stderr.splitlines(keepends=True) if not re.match(r"[a-z ]+: [\d,]+ of [\d,]+", line))


def into_the_work(child: subprocess.Popen[str], cpu_s: float) -> None:
    """Wait until the command has its handlers, and its processes have computed for so long: on a busy machine that takes longer."""
    until(lambda: _catches(child.pid, signal.SIGTERM) and _computed_s(child.pid) >= cpu_s, lambda: child.poll() is None)


def _computed_s(session: int) -> float:
    """Processor time of all processes of a session."""
    ticks = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12]) if int(fields[3]) == session else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def _catches(process: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    (caught,) = (line.split()[1] for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)


def stopped(folder: Path, jobs: int, number: signal.Signals, *, everyone: bool, in_background: bool = False) -> Answer:
    """Start the sweep, and stop it after its first result as the terminal (everyone in the group) or ``kill`` would."""
    ignored = signal.SIGINT if in_background else None
    child = started(*SWEEP, *GRID, "--jobs", str(jobs), "--out", "r.ndjson", ignored=ignored)
    lines_written(folder / "r.ndjson", child)
    (os.killpg if everyone else os.kill)(child.pid, number)
    stdout, stderr = child.communicate(timeout=PATIENCE_S)
    leaves_nothing(child)
    return Answer(child.returncode, stdout, said(stderr))


@pytest.mark.parametrize(
    ("number", "jobs", "everyone", "in_background"),
    [
        (signal.SIGINT, 2, True, False),
        (signal.SIGTERM, 2, False, False),
        (signal.SIGHUP, 2, False, False),
        pytest.param(signal.SIGINT, 1, True, False, marks=long),
        pytest.param(signal.SIGINT, 2, False, False, marks=long),
        pytest.param(signal.SIGTERM, 2, True, True, marks=long),
        pytest.param(signal.SIGTERM, 1, False, False, marks=long),
        pytest.param(signal.SIGHUP, 2, True, False, marks=long),
    ],
)
def test_a_signal_ends_it_with_all_its_processes(
    folder: Path,
    paceline: Callable[..., Answer],
    uninterrupted: bytes,
    number: signal.Signals,
    jobs: int,
    everyone: bool,
    in_background: bool,
) -> None:
    """One line says what is kept; it is, and the same command makes the whole of it."""
    answer = stopped(folder, jobs, number, everyone=everyone, in_background=in_background)
    kept = (folder / "r.ndjson").read_bytes()
    lines = kept.count(b"\n")
    assert 1 <= lines < len(WORKERS)
    refused(answer, "interrupted" if number == signal.SIGINT else number.name, f"{lines} of 6 results", "r.ndjson", code=128 + number)
    assert finished_lines(kept) < set(uninterrupted.splitlines(keepends=True))
    assert paceline(*SWEEP, *GRID, "--jobs", "1", "--out", "r.ndjson").code == 0
    assert (folder / "r.ndjson").read_bytes() == uninterrupted


LONG = ("sweep", "s.toml", "--set", "run.steps=200000", "--set", "run.replications=50", *GRID, "--out", "r.ndjson", "--yes")


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=long), signal.SIGKILL])
def test_processes_end_in_the_midst_of_long_simulations(folder: Path, number: signal.Signals) -> None:
    child = started(*LONG, "--jobs", "2")
    until(lambda: len(_workers_of(child.pid)) == 2, lambda: child.poll() is None)
    into_the_work(child, 3.0)
    child.send_signal(number)
    child.communicate(timeout=PATIENCE_S)  # the pipes are at their end: nobody holds them
    assert child.returncode == (143 if number == signal.SIGTERM else -number)
    leaves_nothing(child)
    assert not (folder / "r.ndjson").exists() or number == signal.SIGKILL


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder in which a socket's path is not too long."""
    with tempfile.TemporaryDirectory(prefix="p", dir="/tmp") as made:
        yield Path(made)


def _runs(session: int, program: str) -> bool:
    """Whether a process of a session runs a program of this name."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if _session_of(entry) == session and program in (entry / "cmdline").read_text().partition("\0")[0]:
                return True
    return False


@long
@pytest.mark.parametrize(
    ("number", "everyone", "starting"),
    [(signal.SIGTERM, False, True), (signal.SIGTERM, True, False), (signal.SIGKILL, False, False)],
    ids=["as it starts", "as schedulers do", "killed"],
)
def test_a_cluster_of_its_own_ends_with_it(folder: Path, short: Path, number: signal.Signals, everyone: bool, starting: bool) -> None:
    child = started(*LONG, "--jobs", "2", "--backend", "ray", TMPDIR=str(short), RAY_TMPDIR=str(short))
    until(lambda: _runs(child.pid, "gcs_server" if starting else "ray::_some"), lambda: child.poll() is None)
    assert os.listdir(short)
    (os.killpg if everyone else os.kill)(child.pid, number)
    stdout, stderr = child.communicate(timeout=PATIENCE_S)
    if number == signal.SIGKILL:
        assert (child.returncode, said(stderr)) == (-number, "")
    else:
        refused(Answer(child.returncode, stdout, said(stderr)), "SIGTERM; nothing ", code=128 + number)
    leaves_nothing(child)
    until(lambda: os.listdir(short) == [])


@pytest.fixture(scope="module")
def machine_code() -> None:
    """Made once, which else a line would tell of."""
    code = "from simulator.engine.choosing import choose; assert choose('compiled', 1.0) == 'compiled'"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.usefixtures("machine_code")
@pytest.mark.parametrize(
    ("command", "number", "says"),
    [
        *(
            pytest.param(("simulate", "s.toml", "--set", "run.steps=1000000", "--yes"), number, f"paceline: {how}\n", marks=long)
            for number, how in ((signal.SIGTERM, "ended by SIGTERM"), (signal.SIGINT, "interrupted"))
        ),
        (LONG, signal.SIGTERM, "paceline: ended by SIGTERM; nothing was finished yet\n"),
        pytest.param(
            ("plan", "s.toml", "--target-throughput", "1 samples/s", "--set", "run.steps=1000000", "--replications", "19", "--yes"),
            signal.SIGINT,
            "paceline: interrupted\n",
            marks=long,
        ),
    ],
    ids=["simulate", "simulate, typed", "sweep", "plan"],
)
def test_nothing_is_said_to_be_kept_where_nothing_is(folder: Path, command: tuple[str, ...], number: signal.Signals, says: str) -> None:
    child = started(*command)
    into_the_work(child, 3.0)
    child.send_signal(number)
    stdout, stderr = child.communicate(timeout=PATIENCE_S)
    assert Answer(child.returncode, stdout, said(stderr)) == Answer(128 + number, "", says)
    leaves_nothing(child)


MUCH = ("--set", "run.engine=compiled", "--set", "run.steps=3000000", "--set", "run.replications=9", "--yes")


@pytest.mark.usefixtures("machine_code")
@pytest.mark.parametrize(
    ("command", "number", "kept"),
    [
        (("simulate", "s.toml", *MUCH), signal.SIGINT, ""),
        pytest.param(("simulate", "s.toml", *MUCH), signal.SIGTERM, "", marks=long),
        pytest.param(
            ("sweep", "s.toml", *MUCH, *GRID, "--jobs", "2", "--out", "r.ndjson"), signal.SIGINT, "; nothing was finished yet", marks=long
        ),
    ],
    ids=["typed", "ended", "two processes"],
)
def test_machine_code_stops_as_soon(folder: Path, command: tuple[str, ...], kept: str, number: signal.Signals) -> None:
    child = started(*command, "--set", "strategy={kind='parameter-server',mode='async',workers=64}")
    into_the_work(child, 3.0)
    child.send_signal(number)
    stdout, stderr = child.communicate(timeout=PATIENCE_S)
    how = "interrupted" if number == signal.SIGINT else "ended by SIGTERM"
    assert Answer(child.returncode, stdout, said(stderr)) == Answer(128 + number, "", f"paceline: {how}{kept}\n")
    leaves_nothing(child)


@long
@pytest.mark.usefixtures("machine_code")
def test_a_sweep_by_machine_code_goes_on_where_it_was_stopped(folder: Path, paceline: Callable[..., Answer]) -> None:
    """The first scenario takes a moment, the second minutes."""
    sweep = (
        "sweep", "s.toml", "--set", "strategy={kind='parameter-server',mode='async',workers=4}", "--set", "run.engine=compiled",
        "--over", "run.steps=20,3000000", "--jobs", "1", "--out", "r.ndjson", "--yes",
    )  # fmt: skip
    child = started(*sweep)
    lines_written(folder / "r.ndjson", child)
    child.send_signal(signal.SIGINT)
    stdout, stderr = child.communicate(timeout=PATIENCE_S)
    refused(Answer(child.returncode, stdout, said(stderr)), "interrupted; 1 of 2 results", "r.ndjson", code=130)


def test_a_signal_that_the_parent_has_ignored_stays_so(folder: Path) -> None:
    """As ``nohup`` does with SIGHUP."""
    child = started(*SWEEP, "--over", "strategy.workers=1,6", "--jobs", "1", "--out", "r.ndjson", ignored=signal.SIGHUP)
    lines_written(folder / "r.ndjson", child)
    child.send_signal(signal.SIGHUP)
    child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 0


# -- while it starts -----------------------------------------------------------------------

WAYS = {"module": ["-m", "paceline"], "script": ["-c", "from paceline.__main__ import main; main()"]}


def run(*arguments: str, **options: object) -> Answer:
    """What a Python with these arguments answers."""
    done = subprocess.run(hearing(*arguments), capture_output=True, text=True, check=False, timeout=PATIENCE_S, **options)  # type: ignore[call-overload]
    return Answer(done.returncode, done.stdout, done.stderr)


def with_module(folder: Path, name: str, text: str, *command: str) -> Answer:
    """What the program answers where a module is another one, as if a signal came just while that is imported."""
    (folder / "instead").mkdir()
    (folder / "instead" / f"{name}.py").write_text(text)
    path = os.pathsep.join([str(folder / "instead"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return run(*command, env={**os.environ, "PYTHONPATH": path})


def ended_by(number: signal.Signals) -> Answer:
    how = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
    return Answer(128 + number, "", f"paceline: {how}\n")


@pytest.mark.parametrize(
    ("number", "way"),
    [
        *((number, "module") for number in SIGNALS),
        (signal.SIGINT, "script"),
        *(pytest.param(number, "script", marks=long) for number in SIGNALS[1:]),
    ],
)
def test_a_signal_while_the_command_line_is_imported_is_one_line(folder: Path, number: signal.Signals, way: str) -> None:
    text = f"import os, time\nos.kill(os.getpid(), {number:d})\ntime.sleep({PATIENCE_S})\n"
    assert with_module(folder, "typer", text, *WAYS[way], "--help") == ended_by(number)


@pytest.mark.parametrize("way", WAYS)
def test_a_signal_is_heard_before_anything_of_the_library_is_imported(folder: Path, way: str) -> None:
    """Python's own ``signal`` among it, whose import takes longer than all else until then."""
    text = f"import os, time\nos.kill(os.getpid(), {signal.SIGINT:d})\ntime.sleep({PATIENCE_S})\n"
    assert with_module(folder, "enum", text, *WAYS[way], "--help") == ended_by(signal.SIGINT)


HIDES = """
import os
class Field:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), {number:d})
class Model:
    field = Field()
"""
"""Python 3.11 makes a RuntimeError of what is raised in ``__set_name__``, as pydantic's classes would."""


WAITS, FAILS = "import time\ntime.sleep(0.5)\n", "raise RuntimeError('half made')\n"


@pytest.mark.parametrize(
    ("number", "then"),
    [
        (signal.SIGINT, WAITS),
        (signal.SIGTERM, ""),
        (signal.SIGHUP, FAILS),
        *(pytest.param(number, then, marks=long) for number, then in zip(SIGNALS, (FAILS, WAITS, ""), strict=True)),
    ],
)
def test_a_signal_while_a_command_imports_is_one_line(folder: Path, number: signal.Signals, then: str) -> None:
    """What lacks since another module is imported, or fails by itself, comes after the signal."""
    command = ("-m", "paceline", "simulate", "s.toml", "--set", "run.engine=simpy")
    assert with_module(folder, "simpy", HIDES.format(number=number) + then, *command) == ended_by(number)


def test_a_signal_that_is_ignored_from_the_start_stays_so(folder: Path) -> None:
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGHUP)\nraise SystemExit(7)\n"
    starts = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.executable, [sys.executable, '-m', 'paceline'])"
    )
    assert with_module(folder, "typer", text, "-c", starts) == Answer(7, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, *(pytest.param(number, marks=long) for number in SIGNALS[1:])])
def test_nothing_that_sends_a_signal_again_outlives_the_command(folder: Path, number: signal.Signals) -> None:
    """A thread that wants to go on while Python ends may crash it."""
    program = f"""
import _thread, os
from paceline.cli.ending import ending_by_signals
importing = "os.kill(os.getpid(), {number:d})\\nfor _ in range(1000): pass\\nraise RuntimeError('half made')"
with ending_by_signals() as ending:
    try:
        ending.during(lambda: exec(compile(importing, "<frozen importlib, as it were>", "exec")))
    except KeyboardInterrupt:
        print(ending.exit_code)
print(_thread._count())
"""
    assert run("-c", program) == Answer(0, f"{128 + number}\n0\n", "")


DEAF = {
    "as it goes": """
class Deaf:
    def __del__(self):
        os.kill(os.getpid(), number)
def meet():
    Deaf()
""",
    "to numpy": """
import numpy as np
class Asked(type):
    def __getattr__(cls, name):
        os.kill(os.getpid(), number)
        raise AttributeError(name)
class Deaf(metaclass=Asked):
    pass
def meet():
    np.ones(2) == Deaf()
""",
    "by name": """
def meet():
    try:
        os.kill(os.getpid(), number)
    except BaseException:
        pass
""",
}
"""Code that hears of no exception, or makes nothing of it: as an object goes, asked for what it lacks, and that which knows no better."""


@pytest.mark.parametrize(
    ("number", "deaf"),
    [
        *zip(SIGNALS, DEAF, strict=True),
        *(pytest.param(number, deaf, marks=long) for number, deaf in zip(SIGNALS, reversed(DEAF), strict=True)),
    ],
)
def test_what_is_raised_where_nobody_is_told_is_raised_again(folder: Path, number: signal.Signals, deaf: str) -> None:
    program = f"""
import os, time
from paceline.cli.ending import ending_by_signals
number = {number:d}
{DEAF[deaf]}
def command():
    meet()
    time.sleep({PATIENCE_S})
with ending_by_signals() as ending:
    try:
        ending.during(command)
    except KeyboardInterrupt:
        print(ending.exit_code)
"""
    assert run("-c", program) == Answer(0, f"{128 + number}\n", "")


def test_a_thread_that_trips_over_what_was_stopped_says_nothing(folder: Path) -> None:
    """As joblib's does over a task whose hand-over was interrupted; what fails before is told."""
    program = f"""
import os, threading, time
from paceline.cli.ending import ending_by_signals
def fail(why):
    thread = threading.Thread(target={{}}.__getitem__, args=(why,))
    thread.start()
    thread.join()
def command():
    fail("before")
    try:
        os.kill(os.getpid(), {signal.SIGHUP:d})
        time.sleep({PATIENCE_S})
    finally:
        fail("after")
with ending_by_signals() as ending:
    try:
        ending.during(command)
    except KeyboardInterrupt:
        print(ending.exit_code)
"""
    answer = run("-c", program)
    assert (answer.code, answer.stdout) == (0, f"{128 + signal.SIGHUP}\n")
    assert "KeyError: 'before'" in answer.stderr
    assert "after" not in answer.stderr


def test_a_plan_says_what_it_keeps(folder: Path) -> None:
    arguments = ("plan", "s.toml", "--target-throughput", "1 samples/s", "--workers", "1,2,3,4,6,8", "--set", "run.steps=6000")
    child = started(*arguments, "--replications", "19", "--jobs", "1", "--out", "p.ndjson")
    lines_written(folder / "p.ndjson", child)
    child.send_signal(signal.SIGTERM)
    stdout, stderr = child.communicate(timeout=PATIENCE_S)
    kept = (folder / "p.ndjson").read_bytes().count(b"\n")
    refused(Answer(child.returncode, stdout, said(stderr)), f"SIGTERM; {kept} of ", "p.ndjson", code=143)


UNEVEN = (
    *("sweep", "s.toml", "--set", "run.replications=19", "--set", "run.engine=simpy", "--over", "run.steps=400,10,20,30"),
    *("--out", "r.ndjson", "--yes"),
)


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return whole(tmp_path_factory, "uneven", *UNEVEN, "--jobs", "2")


@pytest.mark.parametrize(
    ("number", "jobs"),
    [(signal.SIGTERM, "2"), pytest.param(signal.SIGINT, "1", marks=long), pytest.param(signal.SIGKILL, "2", marks=long)],
)
def test_what_was_finished_before_its_turn_is_kept(
    folder: Path, paceline: Callable[..., Answer], uneven: bytes, number: signal.Signals, jobs: str
) -> None:
    """The first scenario takes some seconds; it is stopped when the three behind it are done."""
    child = started(*UNEVEN, "--jobs", "2")
    lines_written(folder / "r.ndjson", child, 3)
    child.send_signal(number)
    stdout, stderr = child.communicate(timeout=PATIENCE_S)
    leaves_nothing(child)
    if number != signal.SIGKILL:
        refused(Answer(child.returncode, stdout, said(stderr)), "3 of 4 results", "r.ndjson", code=128 + number)
    assert [result.scenario.run.steps for result in read_results(folder / "r.ndjson").results] == [10, 20, 30]
    assert paceline(*UNEVEN, "--jobs", jobs).code == 0
    assert (folder / "r.ndjson").read_bytes() == uneven
    assert {path.name for path in folder.iterdir() if ".ndjson" in path.name} == {"r.ndjson"}


def test_what_was_finished_before_its_turn_is_of_its_own_sweep_alone(folder: Path, paceline: Callable[..., Answer]) -> None:
    sweep = ("sweep", "s.toml", "--out", "r.ndjson", "--jobs", "1")
    assert paceline(*sweep, "--set", "run.replications=3", "--over", "run.steps=40,10,20,30").code == 0
    lines = (folder / "r.ndjson").read_bytes().splitlines(keepends=True)
    journal = b"".join(with_place(lines[place], place) for place in (2, 3))
    (folder / "r.ndjson").write_bytes(journal)
    other = (*sweep, "--over", "run.steps=5,10,20")
    refused(paceline(*other), "r.ndjson:1: ", "run.replications was 3 and is now 2", "--force")
    assert (folder / "r.ndjson").read_bytes() == journal
    assert paceline(*other, "--force").code == 0
    assert len(read_results(folder / "r.ndjson").results) == 3


@long
@pytest.mark.parametrize("jobs", [1, 2])
def test_kill(folder: Path, paceline: Callable[..., Answer], uninterrupted: bytes, jobs: int) -> None:
    assert stopped(folder, jobs, signal.SIGKILL, everyone=True).code == -signal.SIGKILL
    kept = (folder / "r.ndjson").read_bytes()
    assert kept.count(b"\n") < len(WORKERS)
    assert paceline(*SWEEP, *GRID, "--jobs", "2", "--out", "r.ndjson").code == 0
    assert (folder / "r.ndjson").read_bytes() == uninterrupted


@pytest.mark.parametrize("cut", [1, *(pytest.param(cut, marks=long) for cut in (40, 700, 5000))])
def test_a_half_written_line_is_written_again(folder: Path, paceline: Callable[..., Answer], uninterrupted: bytes, cut: int) -> None:
    lines = uninterrupted.splitlines(keepends=True)
    (folder / "r.ndjson").write_bytes(b"".join(lines[:2]) + lines[2][:cut])
    assert paceline(*SWEEP, *GRID, "--jobs", "1", "--out", "r.ndjson").code == 0
    assert (folder / "r.ndjson").read_bytes() == uninterrupted


def test_a_killed_worker_process_is_one_line_and_keeps_results(folder: Path, uninterrupted: bytes) -> None:
    out = folder / "r.ndjson"
    child = started(*SWEEP, *GRID, "--jobs", "2", "--out", "r.ndjson")
    lines_written(out, child)
    os.kill(_workers_of(child.pid)[0], signal.SIGKILL)
    stdout, stderr = child.communicate(timeout=PATIENCE_S)
    refused(Answer(child.returncode, stdout, said(stderr)), "r.ndjson", "--jobs", code=1)
    assert finished_lines(out.read_bytes()) <= set(uninterrupted.splitlines(keepends=True))


def _workers_of(parent: int) -> list[int]:
    """Processes that simulate for a sweep: joblib's own tracker of resources is none."""
    workers = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status, command = (entry / "stat").read_text(), (entry / "cmdline").read_text()
        except OSError:
            continue
        if int(status.rpartition(")")[2].split()[1]) == parent and "popen_loky" in command:
            workers.append(int(entry.name))
    return workers


@pytest.mark.parametrize(("code", "seconds", "said"), [(143, 10 * PATIENCE_S, ""), (2, 0.5, "done")])
def test_a_stopped_command_ends_though_a_thread_hangs(code: int, seconds: float, said: str) -> None:
    """Python waits for threads of libraries before it exits, and so does a command that nobody stopped."""
    program = (
        "import sys, threading\nfrom paceline import __main__\nfrom paceline.cli import app, ending\nending._PATIENCE_S = 0.1\n"
        f"app.main = lambda: sys.exit({code})\nthreading.Timer({seconds}, print, ['done']).start()\n__main__.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=PATIENCE_S, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (code, said)
