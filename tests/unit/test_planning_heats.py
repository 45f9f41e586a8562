"""Which of several ways that cut a model alike a search simulates in full, after a few short runs of each."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from paceline.planning import goal_of
from paceline.planning.configurations import Configuration, ranked
from paceline.planning.search import Search

NEEDED = 30.0


def way(name: str, rates: dict[int, float], shown: dict[int, float] | None = None) -> list[Any]:
    """Those of one way, by number of workers; ``shown``: what short runs show, where that is another rate. NaN: it fails in full."""
    line = SimpleNamespace(cluster="lab", scaling="strong", way="pipeline", cut=True, name=name, searched=True)
    given = {
        workers: SimpleNamespace(nodes_needed=workers // 8, rate=rate, shown=(shown or rates)[workers]) for workers, rate in rates.items()
    }
    line.candidates = {workers: SimpleNamespace(given=scenario) for workers, scenario in given.items()}
    goal = goal_of(target_throughput=NEEDED)
    return [_Row(goal, line, workers, None, NEEDED, 100.0, 0.01, scenario.shown) for workers, scenario in given.items()]


class _Row(Configuration):
    """At a price of one for each worker."""

    @property
    def simulated(self) -> bool:
        return self.outcome is not None and not math.isnan(cast(Any, self.outcome))

    @property
    def result(self) -> Any:
        return self.outcome

    @property
    def meets(self) -> bool:
        return self.simulated and self.result >= NEEDED

    @property
    def value(self) -> float:
        return float(self.workers) if self.simulated else math.inf

    @property
    def sample_s(self) -> float:
        return 1.0

    @property
    def rank(self) -> tuple[float | str | int, ...]:
        return (self.value,)

    @property
    def hope(self) -> float:
        return float(self.workers)

    @property
    def expected(self) -> float:
        return float(self.workers) if self.guess >= NEEDED else math.inf

    @property
    def margin(self) -> float:
        return self.result / NEEDED if self.simulated else -1.0

    @property
    def nearness(self) -> tuple[float | str | int, ...]:
        return (-self.margin,)


def searched(monkeypatch: pytest.MonkeyPatch, *ways: list[Any]) -> tuple[Any, set[tuple[str, int]]]:
    """The best, and all that was simulated in full."""

    def near(scenarios: list[Any], _: object, within: float) -> list[Any]:
        return [scenario for scenario in scenarios if scenario.shown * within >= max(other.shown for other in scenarios)]

    monkeypatch.setattr("paceline.planning.search.may_be_fastest", near)
    search = Search(list(ways), lambda scenarios: [cast(Any, scenario).rate for scenario in scenarios])
    search.run()
    meeting, _ = ranked(search.rows)
    return meeting[0], {(row.line.name, row.workers) for row in search.rows if row.outcome is not None}


def test_who_wins_a_heat_is_simulated_though_its_own_way_has_not_come_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """A is the faster one everywhere but at 24 workers, where only B reaches the goal."""
    best, simulated = searched(monkeypatch, way("A", {8: 10, 16: 19, 24: 27, 32: 40}), way("B", {8: 9, 16: 18, 24: 31, 32: 36}))
    assert (best.line.name, best.workers) == ("B", 24)
    assert ("A", 24) not in simulated


def test_where_the_fastest_of_a_heat_fails_in_full_the_others_are_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    best, simulated = searched(monkeypatch, way("A", {8: math.nan}, {8: 50}), way("B", {8: 31}))
    assert best.line.name == "B"
    assert simulated == {("A", 8), ("B", 8)}
