"""Which of several ways that cut a model alike a search simulates in full, after a few short runs of each."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from paceline.planning.judging import Judge
from paceline.planning.search import Search

NEEDED = 30.0


def way(name: str, rates: dict[int, float], shown: dict[int, float] | None = None) -> list[Any]:
    """Points of one way, by number of workers; ``shown``: what short runs show, where that is another rate. NaN: it fails in full."""
    line = SimpleNamespace(cluster="lab", scaling="strong", way="pipeline", family="any", name=name, searched=True)
    line.scenarios = {
        workers: SimpleNamespace(nodes_needed=workers // 8, rate=rate, shown=(shown or rates)[workers]) for workers, rate in rates.items()
    }
    return [_Point(line, workers, scenario) for workers, scenario in line.scenarios.items()]


class _Point(SimpleNamespace):
    def __init__(self, line: Any, workers: int, scenario: Any) -> None:
        super().__init__(line=line, workers=workers, scenario=scenario, needed=NEEDED, ceiling=100.0, least_sample_s=0.01, outcome=None)
        self.guess = scenario.shown

    @property
    def result(self) -> float | None:
        return None if self.outcome is None or math.isnan(self.outcome) else self.outcome


class _Cheapest:
    """A price of one for each worker."""

    goal = SimpleNamespace(prefer="cheapest")

    def meets(self, point: _Point) -> bool:
        return (point.result or 0.0) >= NEEDED

    def value(self, point: _Point) -> float:
        return math.inf if point.result is None else float(point.workers)

    def rank(self, point: _Point) -> tuple[float, ...]:
        return (self.value(point),)

    def hope(self, point: _Point) -> float:
        return float(point.workers)

    def expected(self, point: _Point) -> float:
        return float(point.workers) if point.guess >= NEEDED else math.inf

    def reachable(self, _: _Point) -> bool:
        return True

    def margin(self, point: _Point) -> float:
        return -1.0 if point.result is None else point.result / NEEDED

    def nearness(self, point: _Point) -> tuple[float, ...]:
        return (-self.margin(point),)


def searched(monkeypatch: pytest.MonkeyPatch, *ways: list[Any]) -> tuple[Any, set[tuple[str, int]]]:
    """The best, and all that was simulated in full."""

    def near(scenarios: list[Any], _: object, within: float) -> list[Any]:
        return [scenario for scenario in scenarios if scenario.shown * within >= max(other.shown for other in scenarios)]

    monkeypatch.setattr("paceline.planning.search.may_be_fastest", near)
    monkeypatch.setattr("paceline.planning.search.sample_s_of", lambda *_: 1.0)
    search = Search(list(ways), cast(Judge, _Cheapest()), lambda scenarios: [cast(Any, scenario).rate for scenario in scenarios])
    search.run()
    return search.meeting[0], {(point.line.name, point.workers) for point in search.points if point.outcome is not None}


def test_who_wins_a_heat_is_simulated_though_its_own_way_has_not_come_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """A is the faster one everywhere but at 24 workers, where only B reaches the goal."""
    best, simulated = searched(monkeypatch, way("A", {8: 10, 16: 19, 24: 27, 32: 40}), way("B", {8: 9, 16: 18, 24: 31, 32: 36}))
    assert (best.line.name, best.workers) == ("B", 24)
    assert ("A", 24) not in simulated


def test_where_the_fastest_of_a_heat_fails_in_full_the_others_are_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    best, simulated = searched(monkeypatch, way("A", {8: math.nan}, {8: 50}), way("B", {8: 31}))
    assert best.line.name == "B"
    assert simulated == {("A", 8), ("B", 8)}
