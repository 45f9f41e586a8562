"""Workers of any backend: order, how much is handed over, and versions that must agree."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.waiting import PATIENCE_S

import paceline
from paceline.sweeping.backends import Workers, check_versions, deaf_to, local_workers, versions
from simulator.base.errors import InputError, SimulationError

pytestmark = pytest.mark.slow


def done(function: Callable[..., Any], *given: Any) -> Future[Any]:
    """What a function has given, or that it failed."""
    future: Future[Any] = Future()
    try:
        future.set_result(function(*given))
    except Exception as error:
        future.set_exception(error)
    return future


def of_pretended(second: Callable[..., Any]) -> Workers:
    """Two workers of a cluster; the second does something else with what it is given."""
    which = itertools.cycle([lambda function, *given: function(*given), second])
    return Workers(lambda function, *given: done(next(which), function, *given), 2, lost={}, cluster="cluster x")


def with_other(monkeypatch: pytest.MonkeyPatch, name: str, there: str) -> Workers:
    """A second worker that has another version of one thing."""

    def second(function: Callable[..., Any], *given: Any) -> Any:
        own = {**versions(), name: there}
        with monkeypatch.context() as changed:
            changed.setattr("paceline.sweeping.backends.versions", lambda: own)
            return function(*given)

    return of_pretended(second)


@pytest.mark.parametrize(
    ("name", "there", "found"),
    [
        ("numpy", "9.9", "numpy 9.9"),
        ("Python", "CPython 3.7", "Python CPython 3.7"),
        ("simpy", "", "no simpy"),
        ("a processor of kind", "pdp11", "a processor of kind pdp11"),
        ("Paceline's sources", "0123456789ab", "Paceline's sources 0123456789ab"),
    ],
)
def test_workers_that_differ_are_refused(name: str, there: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = versions()[name]
    with pytest.raises(InputError, match=f"^cluster x: a worker has {re.escape(found)}, but this machine has {re.escape(here)}"):
        check_versions(with_other(monkeypatch, name, there), "cluster x")


def test_a_worker_that_comes_late_is_refused_before_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = []
    with pytest.raises(InputError, match=r"^cluster x: a worker has numpy 9.9,"):
        list(with_other(monkeypatch, "numpy", "9.9").map(answered.append, [1, 2, 3]))
    assert 2 not in answered


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "no Paceline, but this machine has"),
        ("0.0.1", "Paceline 0.0.1, but this machine has"),
        ("later", "Paceline later, but this machine has"),
    ],
)
def test_workers_with_another_paceline_are_refused(answer: str | None, told: str) -> None:
    with pytest.raises(InputError, match=f"^cluster x: a worker has {told} {paceline.__version__}"):
        check_versions(of_pretended(lambda *_: answer), "cluster x")


def test_workers_with_an_older_paceline_of_the_same_version_are_refused() -> None:
    def without_this(function: Callable[..., Any], *given: Any) -> Any:
        if given == ("paceline.__version__",):
            return function(*given)
        raise AttributeError("Can't get attribute '_some'")

    with pytest.raises(InputError, match=r"^cluster x: a worker has other sources of Paceline [\d.]+"):
        check_versions(of_pretended(without_this), "cluster x")


def test_workers_that_cannot_run_anything_are_refused() -> None:
    def bare(*_: object) -> object:
        raise ModuleNotFoundError("No module named 'joblib'")

    with pytest.raises(InputError, match=r"\(No module named 'joblib'\)"):
        check_versions(of_pretended(bare), "cluster x")


def test_equal_workers_pass() -> None:
    check_versions(of_pretended(lambda function, *arguments: function(*arguments)), "cluster x")


def test_what_is_compared_is_known_of_this_process() -> None:
    assert versions()["numpy"] == np.__version__
    assert versions()["Python"] == f"CPython {sys.version_info.major}.{sys.version_info.minor}"
    assert all(versions().values())


@pytest.mark.parametrize("cluster", [None, "cluster x"])
def test_answers_come_in_order(cluster: str | None) -> None:
    workers = Workers(done, 2, lost={}, cluster=cluster)
    for size in (0, 1, 7, 50):
        assert list(workers.map(str, range(size))) == [str(number) for number in range(size)]


def test_no_more_is_asked_for_than_somebody_is_free_to_do() -> None:
    asked, waiting = itertools.count(), list[Future[Any]]()

    def submit(*_: object) -> Future[Any]:
        waiting.append(Future())
        return waiting[-1]

    workers = Workers(submit, 3, lost={}, ahead=4, stop=lambda: waiting.append("stopped"))
    answers = workers.completed(abs, asked)
    threading.Timer(0.1, lambda: waiting[1].set_exception(ZeroDivisionError())).start()
    with pytest.raises(ZeroDivisionError):
        next(answers)
    assert [future if future == "stopped" else future.cancelled() for future in waiting] == [True, False, True, True, "stopped"]
    assert next(asked) == 4


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize(("took_s", "most"), [([0.01] * 300, 25), ([1.0] * 12, 1), ([0.01] * 60 + [1.0] * 4 + [0.01] * 60, 25)])
def test_a_process_is_given_about_a_quarter_of_a_second_at_a_time(
    took_s: list[float], most: int, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_s = [0.0]

    def square(number: int) -> int:
        clock_s[0] += took_s[number]
        return number * number

    monkeypatch.setattr("paceline.sweeping.backends.time.monotonic", lambda: clock_s[0])
    workers = Workers(done, jobs, lost={})
    groups = [[answer for _, answer in group] for group in workers.completed(square, range(len(took_s)))]
    assert list(workers.map(square, range(len(took_s)))) == [number * number for number in range(len(took_s))]
    assert sorted(answer for group in groups for answer in group) == [number * number for number in range(len(took_s))]
    assert max(map(len, groups)) <= most
    if most > 1:
        assert max(map(len, groups)) > 5
    # whoever is given one that takes long hands back what came behind it
    slow = {number * number for number, each_s in enumerate(took_s) if each_s == 1.0}
    assert sum(any(answer in slow for answer in group) for group in groups) == len(slow)


def test_what_means_that_workers_are_gone_is_one_sentence() -> None:
    def gone(item: int) -> int:
        raise ConnectionResetError

    lost = {BrokenPipeError: ("the first", "go on"), ConnectionError: ("the second", "go on"), OSError: ("the third", "go on")}
    with pytest.raises(SimulationError, match=r"^the second; go on$"):
        list(Workers(done, 2, lost=lost, cluster="cluster x").map(gone, [1, 2]))


def test_a_pool_that_takes_no_more_is_one_sentence_too() -> None:
    def gone(*_: object) -> Future[int]:
        raise BrokenPipeError

    with pytest.raises(SimulationError, match=r"^gone; go on$"):
        list(Workers(gone, 2, lost={BrokenPipeError: ("gone", "go on")}).map(abs, [1, 2, 3]))


def test_workers_whose_answers_nobody_waited_for_go_on_with_what_is_asked_next() -> None:
    with local_workers(2) as workers:
        with closing(workers.completed(time.sleep, itertools.repeat(0.3))) as answers:
            next(answers)
        assert list(workers.map(abs, [-1, -2, -3])) == [1, 2, 3]


def test_what_an_ended_process_leaves_behind_is_removed_without_a_word(tmp_path: Path) -> None:
    """joblib's tracker would warn of semaphores on stderr, after the last line that a person is meant to read."""
    script = tmp_path / "ended.py"
    script.write_text(
        "import os\n"
        "from paceline.sweeping.backends import local_workers\n"
        "with local_workers(2) as workers:\n"
        "    print(list(workers.map(abs, [-1, -2, -3])), flush=True)\n"
        "    os._exit(0)\n"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ended.stdout, ended.stderr) == ("[1, 2, 3]\n", "")


def test_nothing_of_the_working_directory_is_run(tmp_path: Path) -> None:
    """It may be one in which strangers write, as /tmp; a program that lies elsewhere takes no modules from it."""
    script = tmp_path / "program" / "sweeps.py"
    script.parent.mkdir()
    script.write_text(
        "from paceline.sweeping.backends import local_workers\n"
        "with local_workers(2) as workers:\n"
        "    print(list(workers.map(abs, [-1, -2, -3])), flush=True)\n"
    )
    shared = tmp_path / "shared"
    shared.mkdir()
    for name in ("joblib", "argparse", "pickle", "multiprocessing"):
        (shared / f"{name}.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'a').write({name!r})")
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=PATIENCE_S, cwd=shared)
    assert not (tmp_path / "marker").exists()
    assert ended.stdout == "[1, 2, 3]\n", ended.stderr


def test_the_environment_is_left_alone_while_workers_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with local_workers(2) as workers:
        assert "PYTHONSAFEPATH" not in os.environ
        assert list(workers.map(os.getenv, ["PYTHONSAFEPATH", "PYTHONSAFEPATH"])) == ["1", "1"]


def test_a_handler_that_was_set_outside_python_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    real = signal.getsignal
    monkeypatch.setattr(signal, "getsignal", lambda number: None if number == signal.SIGHUP else real(number))
    before = real(signal.SIGHUP)
    with deaf_to(signal.SIGINT, signal.SIGHUP):
        assert real(signal.SIGHUP) is before
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.SIGINT, signal.SIGHUP}


def test_a_signal_that_comes_while_processes_start_is_for_this_one_alone() -> None:
    """Another thread that does not block it would swallow what is ignored."""
    over, started = threading.Event(), []

    def interrupted() -> None:
        with deaf_to(signal.SIGINT):
            child = subprocess.Popen([sys.executable, "-c", "print(end='ready', flush=True); input()"], stdin=-1, stdout=-1, text=True)
            started.append(child)
            assert child.stdout is not None
            assert child.stdout.read(5) == "ready"
            for pid in (child.pid, os.getpid()):
                os.kill(pid, signal.SIGINT)
            time.sleep(0.1)
            assert child.poll() is None

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    other = threading.Thread(target=over.wait)
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        signal.signal(signal.SIGINT, before)
        over.set()
        other.join()
    (child,) = started
    child.communicate("\n", timeout=PATIENCE_S)
    assert child.returncode == 0


def answers_of(count: int) -> list[int]:
    with local_workers(count) as workers:
        return list(workers.map(abs, [-1, -2, -3]))


def test_a_process_that_may_start_none_does_it_all_itself() -> None:
    """A worker of multiprocessing's, which may have no children."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(answers_of, (2,)) == [1, 2, 3]


def test_where_there_are_no_semaphores_as_files_nobody_waits_to_remove_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []
    monkeypatch.setattr("paceline.sweeping.backends.removed_after_this_process", asked.append)
    for places in (tmp_path / "absent", tmp_path):
        monkeypatch.setattr("paceline.sweeping.backends._SEMAPHORES", str(places))
        with local_workers(2):
            pass
    assert asked == [f"{tmp_path}/sem.loky-{os.getpid()}-*"]
