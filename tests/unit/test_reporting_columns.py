"""The embedded data: the same numbers as the results, small, and plain JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.results import STRATEGIES, grid, hostile_sweep, plausible, scenario_of, sweep

from paceline.reporting.columns import MOST_BINS, PARTS, columns_of
from paceline.reporting.coordinates import coordinates_of
from simulator.base.text import written
from simulator.results.cost import usd_per_million_samples
from simulator.results.results import Result
from simulator.spec.figures import Histogram

RING, SYNC, ASYNC = STRATEGIES


def columns(results: list[Result]) -> dict:  # type: ignore[type-arg]
    return columns_of(results, coordinates_of(results))


@pytest.mark.slow
def test_every_number_is_that_of_its_result() -> None:
    results = grid()
    held = json.loads(json.dumps(columns(results), allow_nan=False))
    for index, result in enumerate(results):
        own = {name: read(held, name, index) for name in held["columns"]}
        rate, cost = result.throughput_samples_per_s, usd_per_million_samples(result)
        assert (own["throughput_samples_per_s"], own["throughput_low"], own["throughput_high"]) == (rate.mean, rate.low, rate.high)
        assert sum(own[f"{part}_s"] for part in PARTS) == pytest.approx(own["step_mean_s"])
        assert own["busiest_link_busy"] == result.utilisation.busiest_link
        assert own["key.replicas"] == result.replicas
        assert cost is not None
        assert own["usd_per_million_samples"] == cost.mean
        assert own["scenario_hash"] == result.scenario_hash
        assert own["seed"] == str(result.seed)
        assert own["warning_texts"] == [warning.text for warning in result.warnings]


def read(held: dict, name: str, index: int) -> Any:  # type: ignore[type-arg]
    """What a column holds of a result; of texts the text, or all of them where there are several."""
    column = held["columns"][name]
    value = column["values"][index]
    if "texts" not in column:
        return value
    return [column["texts"][each] for each in value] if isinstance(value, list) else column["texts"][value]


def test_of_very_many_curves_each_is_compared_with_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    results = [plausible(scenario_of(RING, 4, workload={"batch_per_replica": 8}, name=f"model {number}")) for number in range(6)]
    whole = columns(results)
    assert (whole["most_compared"], [len(pairs) for pairs in whole["pairs"]]) == (0, [5] * 6)
    for name, value in (("_MOST_PAIRS", 12), ("_FEWEST_OF_EACH", 1)):
        monkeypatch.setattr(f"paceline.reporting.columns.{name}", value)
    bounded = columns(results)
    assert (bounded["most_compared"], [len(pairs) for pairs in bounded["pairs"]]) == (2, [2] * 6)
    assert all(pair in every for every, kept in zip(whole["pairs"], bounded["pairs"], strict=True) for pair in kept)


def test_what_does_not_apply_is_none() -> None:
    held = columns([plausible(scenario_of(RING, 4)), plausible(scenario_of(ASYNC, 4))])
    assert held["columns"]["servers"]["values"] == [None, 4]
    assert held["columns"]["busiest_server_busy"]["values"][0] is None
    assert held["columns"]["staleness_mean"]["values"] == [None, 3]
    assert held["histograms"][0] is None
    assert held["columns"]["usd_per_million_samples"]["values"] == [None, None]


def test_tables_name_columns_that_are_there_and_leave_out_what_says_nothing() -> None:
    held = columns(sweep(workers=(1, 4)))
    for name in ("throughput", "efficiency", "cost", "staleness", "steps", "busy", "results", "shown"):
        assert set(held["tables"][name]) <= set(held["columns"]), name
        headings = [held["columns"][each]["heading"] for each in held["tables"][name]]
        assert len(set(headings)) == len(headings), name
    assert set(held["tables"]["results"]) - set(held["tables"]["shown"]) >= {"usd_per_hour", "cores_busy", "warning_texts"}
    assert {column["kind"] for column in held["columns"].values()} - {"text"} <= set(held["formats"])


@pytest.mark.slow
def test_keys_come_with_their_texts() -> None:
    held = {key["path"]: (key["texts"], key["told"]) for key in columns(grid())["keys"]}
    assert held["replicas"] == (["1", "4", "16"], ["1 worker", "4 workers", "16 workers"])
    assert held["cluster.inter_node.bandwidth_bytes_per_s"][1][0] == "network bandwidth 10 Gbit/s"


def test_many_values_of_staleness_share_bins_and_none_is_lost() -> None:
    result = plausible(scenario_of(ASYNC, 64))
    for values in (range(100), range(5, 53), (0, 10_000)):
        stale = result.staleness.model_copy(update={"histogram": Histogram(values=tuple(values), counts=(2,) * len(values))})
        low, width, bins = columns([result.model_copy(update={"staleness": stale})])["histograms"][0]
        assert low == min(values)
        assert len(bins) <= MOST_BINS
        assert sum(bins) == 2 * len(values)
        assert low + width * len(bins) > max(values)


@pytest.mark.long
def test_a_thousand_points_are_small() -> None:
    results = (grid(workers=(1, 2, 4, 8, 16, 32, 64, 128), servers=(1, 2, 4, 8), batches=(8, 16, 32, 64, 128)) * 2)[:1000]
    held = columns_of(results, coordinates_of(results, [str(index) for index in range(1000)]))
    assert len(json.dumps(held, separators=(",", ":"))) < 1_500_000


def test_hostile_texts_are_cut_and_cleaned() -> None:
    held = columns(hostile_sweep())
    for texts in (column["texts"] for column in held["columns"].values() if "texts" in column):
        assert all(len(text) <= 600 and text.isprintable() for text in texts)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "number", "–"),
        (1234.5, "number", "1,230"),
        (1234.5, "count", "1,235"),
        (0.0123, "seconds", "12.3 ms"),
        (0.123, "share", "12%"),
        (-0.0312, "change", "−3.1%"),
        (-0.0001, "change", "±0%"),
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


def test_a_histogram_is_a_row_for_each_value_with_its_share() -> None:
    frame = Histogram(values=(0, 1, 3), counts=(2, 1, 1)).to_frame()
    assert frame.to_dict("list") == {"staleness": [0, 1, 3], "updates": [2, 1, 1], "share": [0.5, 0.25, 0.25]}
