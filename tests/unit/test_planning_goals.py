"""Goals and ranges of a plan: what is read, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.planning.goal import Goal, confidence_of, enough_of, goal_of, reachable_confidence, replications_for, required_rate
from paceline.planning.space import counts_of
from simulator.base.errors import InputError, ReadingWarning
from simulator.strategies.catalogue import SHORT_NAMES, strategy_table


@pytest.mark.parametrize(
    ("given", "samples_per_s"),
    [
        ("20000 samples/s", 20000.0),
        ("6e4 images/min", 1000.0),
        ("1.8e6 examples per hour", 500.0),
        (250.0, 250.0),
        ("8.64e4 samples/d", 1.0),
    ],
)
def test_rates_are_read_with_their_units(given: str | float, samples_per_s: float) -> None:
    assert goal_of(target_throughput=given).target_throughput_samples_per_s == pytest.approx(samples_per_s)


@pytest.mark.parametrize(("given", "seconds"), [("12h", 43200.0), ("30 min", 1800.0), ("2 d", 172800.0), (60.0, 60.0)])
def test_deadlines_are_read_with_their_units(given: str | float, seconds: float) -> None:
    assert goal_of(samples=1.0, deadline=given).deadline_s == seconds


@pytest.mark.parametrize(("given", "usd"), [("500 USD", 500.0), ("$12.5", 12.5), ("1e3 $", 1000.0), ("USD 7", 7.0), (3.0, 3.0)])
def test_budgets_are_read(given: str | float, usd: float) -> None:
    assert goal_of(samples=1.0, budget=given).budget_usd == usd


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "the goal is missing"),
        ({"target_throughput": "1 samples/s", "deadline": "1h"}, "`target_throughput` and `deadline`"),
        ({"target_throughput": "1 samples/s", "samples": 5.0}, "`target_throughput` and `samples`"),
        ({"deadline": "12h"}, "`deadline` needs `samples`"),
        ({"budget": "5 USD"}, "`budget` needs `samples`"),
        ({"target_throughput": "1 samples/s", "epochs": 3.0}, "`epochs` 3"),
        ({"target_throughput": "20000"}, "`target_throughput` '20000'"),
        ({"target_throughput": "-3 samples/s"}, "`target_throughput` '-3 samples/s' must be"),
        ({"target_throughput": "0 samples/s"}, "above 0"),
        ({"target_throughput": "5 samples/furlong"}, "`target_throughput` '5 samples/furlong' must be"),
        ({"target_throughput": float("nan")}, "`target_throughput` nan must be"),
        ({"samples": 1e6, "deadline": "12"}, "`deadline` '12' must be a time"),
        ({"samples": 1e6, "deadline": "-12h"}, "`deadline` '-12h' must be"),
        ({"samples": 1e6, "deadline": "0 s"}, "`deadline` '0 s' must be"),
        ({"samples": 1e6, "deadline": "12 Gbit"}, "`deadline` '12 Gbit' must be a time"),
        ({"samples": 1e6, "budget": "500 EUR"}, "`budget` '500 EUR' must be"),
        ({"samples": 1e6, "budget": "1.000 USD"}, "`budget` '1.000 USD' may be 1 or 1,000"),
        ({"samples": 1e6, "budget": "$12.500"}, "`budget` '$12.500' may be 12.5 or 12,500"),
        ({"samples": 1e6, "budget": "1,000 USD"}, "no separator of thousands"),
        ({"samples": 1e6, "budget": "1.000.000 USD"}, "no separator of thousands"),
        ({"samples": 1e6, "deadline": "1,5 h"}, "no separator of thousands"),
        ({"target_throughput": "20,000 samples/s"}, "no separator of thousands"),
        ({"samples": 1e6, "budget": "-5 USD"}, "`budget` '-5 USD' must be"),
        ({"samples": 0.0, "deadline": "1h"}, "`samples` 0.0 must be"),
        ({"samples": 1e6, "epochs": -1.0, "deadline": "1h"}, "`epochs` -1.0 must be"),
        ({"samples": 1e6, "deadline": "1h", "confidence": 1.0}, "`confidence` 1 must"),
    ],
)
def test_goals_that_cannot_be_are_refused_in_one_line(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as refused:
        goal_of(**given)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_rate_that_may_mean_thousands_is_read_with_a_word() -> None:
    with pytest.warns(ReadingWarning, match=r"'20.000 samples/s' means 20 samples/s, .*20000 samples/s$"):
        assert goal_of(target_throughput="20.000 samples/s").target_throughput_samples_per_s == 20.0


def test_a_budget_alone_asks_for_the_fastest_and_all_else_for_the_cheapest() -> None:
    assert goal_of(samples=1.0, budget=1.0).prefer == "fastest"
    assert goal_of(samples=1.0, budget=1.0, deadline=1.0).prefer == "cheapest"
    assert goal_of(target_throughput=1.0).prefer == "cheapest"
    assert goal_of(samples=1.0, budget=1.0, prefer="cheapest").prefer == "cheapest"


def test_every_goal_is_a_throughput() -> None:
    both = Goal(samples=3600.0, epochs=3.6, deadline_s=100.0, budget_usd=2.0)
    assert required_rate(both, usd_per_hour=1.0) == 36.0  # 3,600 samples in 100 s
    assert required_rate(both, usd_per_hour=90.0) == 45.0  # 3,600 samples in the 80 s that 2 USD buy
    assert required_rate(both, usd_per_hour=None) == float("inf")
    assert required_rate(Goal(target_throughput_samples_per_s=7.0), None) == 7.0


def test_confidence_counts_replications_and_the_run_to_come() -> None:
    rates = [float(rate) for rate in range(1, 20)]  # 19 replications
    assert confidence_of(rates, 1.0) == 0.95
    assert confidence_of(rates, 1.5) == 0.90
    assert confidence_of(rates, 20.0) == 0.0
    assert reachable_confidence(19) == 0.95
    for confidence in (0.5, 0.8, 0.9, 0.95, 0.99, 0.999):
        fewest = replications_for(confidence)
        assert reachable_confidence(fewest) >= confidence - 1e-12
        assert fewest == 2 or reachable_confidence(fewest - 1) < confidence
        needed = enough_of(fewest, confidence)
        assert needed / (fewest + 1) >= confidence - 1e-12 > (needed - 1) / (fewest + 1) - 1e-9


def test_ranges_and_lists_of_counts() -> None:
    assert counts_of("3..6", "workers")[:2] == ((3, 4, 5, 6), True)
    assert counts_of("8, 2,2,4", "workers")[:2] == ((2, 4, 8), False)
    assert counts_of([4, 1], "servers")[:2] == ((1, 4), False)


@pytest.mark.parametrize("given", ["", "0", "0..4", "1..", "two", "1,,2", "1..200000", "-3", "1.5", "4..x", "1,0"])
def test_counts_that_cannot_be_are_refused(given: str) -> None:
    with pytest.raises(InputError, match=r"`workers` .*`workers='1\.\.64'`"):
        counts_of(given, "workers")


def test_short_names_keep_what_the_scenario_says_of_the_same_kind() -> None:
    own = {"kind": "parameter-server", "mode": "ssp", "bound": 7, "servers": 3, "variable_placement": "greedy"}
    assert strategy_table("ssp", own) == own
    of_others = {key: value for key, value in own.items() if key != "bound"}
    assert strategy_table("async-ps", own) == {**of_others, "mode": "async"}
    assert strategy_table("backup", own)["backup_workers"] == 1
    assert strategy_table("ring", own) == SHORT_NAMES["ring"]
    backups = {"kind": "parameter-server", "mode": "sync", "backup_workers": 2, "late_workers": "cancel"}
    assert strategy_table("backup", backups)["backup_workers"] == 2
    assert strategy_table("sync-ps", backups) == {"kind": "parameter-server", "mode": "sync"}
    with pytest.raises(InputError, match="did you mean async-ps"):
        strategy_table("asynch-ps", own)
