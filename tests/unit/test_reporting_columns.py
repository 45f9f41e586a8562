"""The embedded data: the same numbers as the results, small, and plain JSON."""

from __future__ import annotations

import json

import pytest
from support.results import STRATEGIES, grid, hostile_sweep, plausible, scenario_of, sweep

from paceline.reporting.columns import MOST_BINS, PARTS, columns_of
from paceline.reporting.coordinates import coordinates_of
from simulator.cost import usd_per_million_samples
from simulator.figures import Histogram
from simulator.results import Result
from simulator.text import written

RING, SYNC, ASYNC = STRATEGIES


def columns(results: list[Result]) -> dict:  # type: ignore[type-arg]
    return columns_of(results, coordinates_of(results))


def test_every_number_is_that_of_its_result() -> None:
    results = grid()
    held = json.loads(json.dumps(columns(results), allow_nan=False))
    for index, result in enumerate(results):
        own = {name: column[index] for name, column in held["numbers"].items()}
        assert own["throughput"] == result.throughput_samples_per_s.mean
        assert (own["low"], own["high"]) == (result.throughput_samples_per_s.low, result.throughput_samples_per_s.high)
        assert sum(own[part] for part in PARTS) == pytest.approx(own["step_mean"])
        assert own["busiest_link"] == result.utilisation.busiest_link
        assert own["replicas"] == result.replicas
        cost = usd_per_million_samples(result)
        assert cost is not None
        assert held["cost"]["mean"][index] == cost.mean
        names, of = held["texts"]["hash"]
        assert names[of[index]] == result.scenario_hash
        warned, which = held["warnings"]
        assert [warned[each] for each in which[index]] == [warning.text for warning in result.warnings]


def test_what_does_not_apply_is_none() -> None:
    held = columns([plausible(scenario_of(RING, 4)), plausible(scenario_of(ASYNC, 4))])
    assert held["numbers"]["servers"] == [None, 4]
    assert held["numbers"]["busiest_server"][0] is None
    assert held["numbers"]["stale_mean"] == [None, 3]
    assert held["histograms"][0] is None
    assert held["cost"]["mean"] == [None, None]


def test_many_values_of_staleness_share_bins_and_none_is_lost() -> None:
    result = plausible(scenario_of(ASYNC, 64))
    for values in (range(100), range(5, 53), (0, 10_000)):
        stale = result.staleness.model_copy(update={"histogram": Histogram(values=tuple(values), counts=(2,) * len(values))})
        low, width, bins = columns([result.model_copy(update={"staleness": stale})])["histograms"][0]
        assert low == min(values)
        assert len(bins) <= MOST_BINS
        assert sum(bins) == 2 * len(values)
        assert low + width * len(bins) > max(values)


def test_a_thousand_points_are_small() -> None:
    results = (grid(workers=(1, 2, 4, 8, 16, 32, 64, 128), servers=(1, 2, 4, 8), batches=(8, 16, 32, 64, 128)) * 2)[:1000]
    held = columns_of(results, coordinates_of(results, [str(index) for index in range(1000)]))
    assert len(json.dumps(held, separators=(",", ":"))) < 1_500_000


def test_hostile_texts_are_cut_and_cleaned() -> None:
    held = columns(hostile_sweep())
    for texts, _ in (*held["texts"].values(), held["warnings"]):
        assert all(len(text) <= 600 and text.isprintable() for text in texts)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "number", "–"),
        (1234.5, "number", "1,235"),
        (1234.5, "count", "1,235"),
        (0.0123, "seconds", "12.3 ms"),
        (0.123, "share", "12%"),
        (-0.0312, "change", "−3.1%"),
        (-0.0001, "change", "±0.0%"),
        (64.8, "usd", "$64.80"),
        (0.0611, "usd", "$0.0611"),
        (12_345.6, "usd", "$12,346"),
        ("a\u202eb\nc", "text", "a b c"),
        ("x" * 1000, "text", "x" * 399 + "…"),
    ],
)
def test_cells_are_written_by_their_kind(value: float | str | None, kind: str, text: str) -> None:
    assert written(value, kind) == text  # type: ignore[arg-type]


def test_sweeps_alone_begin_with_the_chosen_point() -> None:
    results = sweep(workers=(1, 4))
    held = columns_of(results, coordinates_of(results), 3)
    assert held["chosen"] == {"curve": 1, "at": [1]}
