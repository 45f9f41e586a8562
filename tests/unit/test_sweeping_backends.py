"""Workers of any backend: order, how much is handed over, and versions that must agree."""

from __future__ import annotations

import pydoc
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import joblib
import pytest

import paceline
from paceline.sweeping.backends import Workers, check_versions, local_workers
from simulator.errors import InputError, SimulationError

pytestmark = pytest.mark.slow


class Pretended(Workers):
    """Two workers of a cluster, of which the second answers otherwise."""

    def __init__(self, second: Callable[[Any], object]) -> None:
        super().__init__(joblib.Parallel(n_jobs=1), 2, lost={})
        self._second = second

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        for place, item in enumerate(items):
            yield self._second(item) if place % 2 else function(item)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda _: None, f"cluster x: a worker has no Paceline, but here is {paceline.__version__}, so results could differ"),
        (lambda name: "9.9" if name == "numpy.__version__" else pydoc.locate(name), "a worker has numpy 9.9"),
    ],
)
def test_workers_that_differ_are_refused(answer: Callable[[Any], object], told: str) -> None:
    with pytest.raises(InputError) as raised:
        check_versions(Pretended(answer), "cluster x")
    assert told in str(raised.value)


def test_workers_that_cannot_run_anything_are_refused() -> None:
    def bare(name: str) -> object:
        raise ModuleNotFoundError("No module named 'joblib'")

    with pytest.raises(InputError, match=r"a worker cannot run anything \(No module named 'joblib'\); install paceline"):
        check_versions(Pretended(bare), "cluster x")


def test_equal_workers_pass() -> None:
    with local_workers(1) as workers:
        check_versions(workers, "here")


@pytest.mark.parametrize(("count", "window"), [(1, 64), (2, 128), (16, 1024), (64, 1024), (1000, 2000)])
def test_a_window_keeps_all_busy_and_is_bounded(count: int, window: int) -> None:
    assert Workers(joblib.Parallel(n_jobs=1), count, lost={}).window == window


@pytest.mark.parametrize("streaming", [True, False])
def test_answers_come_in_order(streaming: bool) -> None:
    with joblib.Parallel(n_jobs=1, return_as="generator" if streaming else "list") as parallel:
        workers = Workers(parallel, 2, lost={}, streaming=streaming)
        for size in (0, 1, 7, 50):
            assert list(workers.map(str, range(size))) == [str(number) for number in range(size)]


@pytest.mark.parametrize(("took_s", "sizes"), [(0.5, [4, 8, 16, 22]), (4.0, [4] * 12 + [2]), (9.0, [4] + [2] * 23)])
def test_batches_take_some_seconds(took_s: float, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s, seen = [0.0], []

    def parallel(tasks: Iterator[Any]) -> list[Any]:
        batch = list(tasks)
        clock_s[0] += took_s
        seen.append(len(batch))
        return [function(*arguments) for function, arguments, _ in batch]

    monkeypatch.setattr("paceline.sweeping.backends.time.monotonic", lambda: clock_s[0])
    workers = Workers(parallel, 2, lost={}, streaming=False)
    assert list(workers.map(abs, range(50))) == list(range(50))
    assert seen == sizes


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
    with joblib.Parallel(n_jobs=1, return_as="generator_unordered") as parallel:
        workers = Workers(parallel, jobs, lost={}, here=True)
        early: list[tuple[int, int]] = []
        groups = list(workers.groups(square, range(len(took_s)), lambda *told: early.append(told)))
    answers = [answer for group in groups for answer in group]
    assert answers == [number * number for number in range(len(took_s))]
    assert all(answer == number * number for number, answer in early)
    assert max(map(len, groups)) <= most + len(early)
    if most > 1:
        assert max(map(len, groups)) > 5
    # whoever is given one that takes long hands back what came behind it
    slow = {number * number for number, each_s in enumerate(took_s) if each_s == 1.0}
    assert sum(any(answer in slow for answer in group) for group in groups) == len(slow)


def test_what_means_that_workers_are_gone_is_one_sentence() -> None:
    def gone(item: int) -> int:
        raise ConnectionResetError

    with joblib.Parallel(n_jobs=1, return_as="generator") as parallel:
        workers = Workers(
            parallel,
            2,
            lost={BrokenPipeError: ("the first", "go on"), ConnectionError: ("the second", "go on"), OSError: ("the third", "go on")},
        )
        with pytest.raises(SimulationError, match=r"^the second; go on$"):
            list(workers.map(gone, [1, 2]))


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
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
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
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, cwd=shared)
    assert not (tmp_path / "marker").exists()
    assert ended.stdout == "[1, 2, 3]\n", ended.stderr
