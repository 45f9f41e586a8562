"""Work of hours, and trainings whose steps take hours, are asked about before they are begun; nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import Answer, contents, refused
from support.terminal import at_a_terminal

Runner = Callable[..., Answer]
MANY = ("--set", "run.replications=100000", "--set", "run.steps=200000")
HUGE = ("--set", "workload.batch_per_replica=1000000000")
SLOW_LINK = ("--set", "cluster.inter_node.latency=1e6 s")
HUGE_STEP = "a step takes about 83 h of training, so 4 steps take 333 h"


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (("simulate", "s.toml", *MANY), ("s.toml: ", "100,000", "200,000", "10 min")),
        (("simulate", "s.toml", *HUGE), (f"s.toml: {HUGE_STEP}", "1 h", "batch")),
        (("simulate", "ring", *HUGE), ("(64)", "batch")),
        (("simulate", "ring", *SLOW_LINK), ("lower cluster.inter_node.latency than 277.778 h",)),
        (("simulate", "ring", "--set", "cluster.inter_node.bandwidth=8 bit/s"), ("higher cluster.inter_node.bandwidth than 8 bit/s",)),
        (("simulate", "ring", "--set", "workload.forward.base_s=1e6"), ("workload",)),
        (("simulate", "async-ps", "--set", "strategy.workers=2048", "--audit"), ("async-ps: an audit of 100 steps takes", "10 min")),
        (("sweep", "s.toml", *MANY, "--over", "strategy.workers=16,32,64", "--jobs", "1", "--out", "r"), ("s.toml: 3 scenarios ",)),
        (("sweep", "s.toml", *MANY, "--over", "strategy.workers=32", "--jobs", "1", "--out", "r"), ("s.toml: 1 scenario ",)),
        (("sweep", "s.toml", "--over", "workload.batch_per_replica=10,1000000000", "--out", "r"), (HUGE_STEP,)),
        (("plan", "s.toml", *MANY, "--target-throughput", "1 samples/s", "--jobs", "1"), ("s.toml: ", "64 configurations")),
        (("plan", "s.toml", *HUGE, "--target-throughput", "1 samples/s", "--out", "r"), ("83 h",)),
        (("validate", "s.toml", *HUGE, "--measured", "p.csv"), (HUGE_STEP,)),
    ],
)
def test_with_nobody_to_ask_it_is_refused(folder: Path, paceline: Runner, command: tuple[str, ...], names: tuple[str, ...]) -> None:
    """In words that depend on how fast this machine is."""
    (folder / "p.csv").write_text("workers,throughput\n2,100\n")
    before = contents(folder)
    refused(paceline(*command), "--yes", *names)
    assert contents(folder) == before


def test_yes_goes_on(folder: Path, paceline: Runner) -> None:
    assert paceline("simulate", "s.toml", *HUGE, "--yes").code == 0
    assert paceline("sweep", "s.toml", *HUGE, "--over", "strategy.workers=1,2", "--jobs", "1", "--out", "r", "-y").code == 0


def test_what_is_done_already_is_not_counted(folder: Path, paceline: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three scenarios of a sweep are there; the last alone is short enough."""
    sweep = ("sweep", "s.toml", "--over", "run.steps=30,29,4", "--jobs", "1", "--out", "r")
    assert paceline(*sweep).code == 0
    whole = (folder / "r").read_bytes()
    monkeypatch.setattr("paceline.lengthy._LONG_S", 0.02)
    monkeypatch.setattr("paceline.lengthy.timed_effort_s", lambda scenario: scenario.run.steps / 1000)
    monkeypatch.setattr("paceline.lengthy.effort_s", lambda scenario: scenario.run.steps / 1000)
    (folder / "r").write_bytes(b"".join(whole.splitlines(keepends=True)[:1]))
    refused(paceline(*sweep), "s.toml: 2 scenarios ", "--yes")
    (folder / "r").write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    assert paceline(*sweep).code == 0
    assert (folder / "r").read_bytes() == whole


def test_of_thousands_a_part_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from paceline.lengthy import Lengthy, agree_to_sweep
    from paceline.sweeping import grid

    asked: list[int] = []

    def each(scenario: object) -> float:
        asked.append(1)
        return 15.0

    monkeypatch.setattr("paceline.lengthy.effort_s", each)
    monkeypatch.setattr("paceline.lengthy.timed_effort_s", lambda _: 15.0)
    swept = grid("ring", [("run.seed", list(range(20))), ("strategy.workers", list(range(1, 61)))])
    told: list[Lengthy] = []
    agree_to_sweep(swept, range(len(swept)), told.append, jobs=1)
    (work,) = told
    assert "1,200 scenarios take about 5" in work.what
    assert len(asked) == 1000
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    agree_to_sweep(swept, range(len(swept)), told.append, jobs=2)
    agree_to_sweep(swept, range(len(swept), len(swept)), told.append, jobs=1)
    assert len(told) == 1


@pytest.mark.parametrize(("answer", "code"), [("\n", 2), ("y\n", 0), pytest.param("n\n", 2, marks=pytest.mark.long)])
def test_on_a_terminal_it_is_asked(folder: Path, answer: str, code: int) -> None:
    with at_a_terminal("sweep", "s.toml", *HUGE, "--over", "strategy.workers=1,2", "--jobs", "1", "--out", "r") as terminal:
        terminal.wait_for("[y/N]")
        assert "a step takes about 83 h" in terminal.said
        terminal.type(answer)
        assert terminal.ended() == code, terminal.said
    assert (folder / "r").exists() == (code == 0)


def test_ordinary_work_is_never_timed(folder: Path, paceline: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.lengthy.timed_effort_s", None)
    assert paceline("simulate", "s.toml").code == 0
    assert paceline("simulate", "s.toml", "--set", "run.steps=100", "--set", "run.replications=19").code == 0
