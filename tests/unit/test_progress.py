"""Progress moves within a replication that is long, whatever runs it; being told changes nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from paceline.cli.terminal import progress_bar
from simulator import load_scenario, simulate
from simulator.engine.recorder import Progress
from simulator.scenario import Scenario

WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "async": ("async-ps", {"strategy.workers": 8, "run.steps": 400, "run.grouping": "per-server"}),
    "no warm-up": ("async-ps", {"strategy.workers": 8, "run.steps": 400, "run.grouping": "per-server", "run.warmup_steps": 0}),
    "sync": ("sync-ps", {"strategy.workers": 8, "run.steps": 400, "run.grouping": "per-server"}),
    "messages": ("ring", {"strategy.workers": 4, "run.steps": 800, "run.detail": "messages"}),
    "at once": ("ring", {"strategy.workers": 16, "run.steps": 800}),
    "local SGD": ("local-sgd", {"strategy.workers": 8, "run.steps": 1000}),
}


def scenario_of(way: str, engine: str) -> Scenario:
    name, settings = WAYS[way]
    steps = settings["run.steps"] * (8 if engine == "compiled" else 1)  # machine code looks up after many thousand events only
    return load_scenario(name, [*settings.items(), ("run.steps", steps), ("run.replications", 2), ("run.engine", engine)])


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["simpy", "compiled"])
@pytest.mark.parametrize("way", WAYS)
def test_it_moves_within_a_replication(way: str, engine: str) -> None:
    scenario = scenario_of(way, engine)
    told: list[tuple[float, int]] = []
    result = simulate(scenario, progress=lambda *now: told.append(now))
    shares = [done for done, _ in told]
    assert shares == sorted(shares)
    assert (shares[-1], {count for _, count in told}) == (2, {2})
    assert 1 in shares, "each whole replication is told"
    steps = scenario.run.total_steps(scenario.replicas)
    for replication in range(2):
        within = [0.0, *(share - replication for share in shares if replication < share <= replication + 1)]
        assert max(after - before for before, after in pairwise(within)) < 0.4
        assert len(within) <= 2 + steps // 1000
    assert simulate(scenario).model_dump() == result.model_dump()


def test_it_is_told_no_more_than_some_hundred_times() -> None:
    told: list[float] = []
    progress = Progress(told.append, 20_000_000)
    for ended in range(0, 20_000_001, 500):
        progress.at(ended)
    assert len(told) == 200
    assert (told[0], told[-1]) == (0.005, 1.0)
    quiet = Progress(None, 1000)
    quiet.at(1000)
    assert quiet.due > 1000


def test_a_share_of_a_replication_is_told_on_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    with progress_bar("replications") as advance:
        for now_s, done in ((0, 0.005), (30, 0.305), (60, 1)):
            clock[0] = now_s
            advance(done, 2)
    first, second = capsys.readouterr().err.splitlines()
    assert "0.30 of 2, about 2.8 min" in first
    assert "1 of 2, about 1 min" in second
