"""The plain data of a report: numbers, names and sentences that follow from literal results."""

from __future__ import annotations

import tomllib

import pytest

from paceline.reporting.context import build_report
from paceline.reporting.naming import clean, series_names
from paceline.reporting.reproduce import scenario_toml
from paceline.reporting.wording import amount, compact, counts, duration, percent, plot_text, sentence
from simulator.errors import ResultsError
from simulator.loading import scenario_from_table
from simulator.results import Estimate, Histogram
from tests.browser.samples import STRATEGIES, hostile_sweep, plausible, scenario_of, sweep

RING, SYNC, ASYNC = STRATEGIES


def test_a_curve_for_each_strategy_in_ascending_order_of_workers() -> None:
    report = build_report(sweep()[::-1])
    assert [each.name for each in report.series] == [
        "Parameter server, async, 4 servers",
        "Parameter server, sync, 4 servers",
        "Ring all-reduce (multi-worker mirrored)",
    ]
    assert [point.workers for point in report.series[0].points] == [1, 2, 4, 8, 16, 32, 64, 128, 256]


def test_the_answer_is_the_best_where_there_are_most_workers() -> None:
    answer = build_report(sweep()).answer
    assert (answer.name, answer.point.workers) == ("Ring all-reduce (multi-worker mirrored)", 256)
    assert answer.point.throughput == pytest.approx(367_345.884)
    assert (answer.rivals, answer.peak, answer.alone) == ((), None, False)


def test_overlapping_intervals_are_rivals() -> None:
    answer = build_report(sweep((SYNC, ASYNC), (1, 256))).answer
    assert answer.name == "Parameter server, async, 4 servers"
    assert answer.rivals == ("Parameter server, sync, 4 servers",)


def test_a_peak_at_fewer_workers_is_told() -> None:
    few, many = sweep((RING,), (8, 16))
    many = many.model_copy(update={"throughput_samples_per_s": Estimate(mean=9e3, low=8e3, high=1e4)})
    answer = build_report([few, many]).answer
    assert answer.point.workers == 16
    assert answer.peak is not None
    assert answer.peak.workers == 8


def test_the_ideal_line_starts_from_one_worker_alone() -> None:
    report = build_report(sweep())
    assert report.ideals == (pytest.approx(32 / (0.008056 + 0.0006)),)


def test_efficiency_has_the_interval_of_the_throughput() -> None:
    point = build_report(sweep((RING,), (8,))).series[0].points[0]
    assert point.efficiency_low / point.efficiency == pytest.approx(point.low / point.throughput)
    assert point.efficiency_high / point.efficiency == pytest.approx(point.high / point.throughput)


def test_points_beyond_calibration_are_hollow() -> None:
    series = build_report(sweep((RING,), (4, 8, 16))).series[0]
    assert [point.hollow for point in series.points] == [False, False, True]


def test_shares_of_a_step_sum_to_one() -> None:
    point = build_report(sweep((SYNC,), (64,))).series[0].points[0]
    parts = ("input", "compute", "exposed_communication", "waiting", "apply")
    assert sum(point.share(part) for part in parts) == pytest.approx(1)
    assert point.share("compute") == pytest.approx(0.008056 / point.step_mean)


def test_staleness_is_shown_for_asynchronous_curves_at_four_sizes() -> None:
    report = build_report(sweep())
    assert [facet.workers for facet in report.facets] == [2, 8, 64, 256]
    for facet in report.facets:
        assert [index for index, _, _ in facet.curves] == [2]
        assert sum(facet.curves[0][2]) == pytest.approx(1)


def test_many_values_of_staleness_share_bins() -> None:
    result = plausible(scenario_of(ASYNC, 64))
    stale = result.staleness.model_copy(update={"histogram": Histogram(values=tuple(range(100)), counts=(1,) * 100)})
    facet = build_report([result.model_copy(update={"staleness": stale})]).facets[0]
    assert facet.width == 3
    assert facet.curves[0][1][:3] == (0, 3, 6)
    assert facet.curves[0][2][0] == pytest.approx(0.03)


def test_synchronous_results_alone_have_no_staleness() -> None:
    assert build_report(sweep((RING, SYNC))).facets == ()


def test_another_setting_that_varies_tells_curves_apart() -> None:
    slow, fast = ({"inter_node": {"bandwidth_bytes_per_s": rate, "latency_s": 5e-5}} for rate in (1.25e9, 3.125e9))
    results = [*sweep((RING,), (1, 2), cluster=slow), *sweep((RING,), (1, 2), cluster=fast)]
    assert sorted(set(series_names(results))) == [
        "Ring all-reduce (multi-worker mirrored) · bandwidth 10 Gbit/s",
        "Ring all-reduce (multi-worker mirrored) · bandwidth 25 Gbit/s",
    ]


def test_seeds_tell_results_of_one_point_apart() -> None:
    names = series_names([*sweep((RING,), (2,), run={"seed": 1}), *sweep((RING,), (2,), run={"seed": 2})])
    assert names == ["Ring all-reduce (multi-worker mirrored) · seed 1", "Ring all-reduce (multi-worker mirrored) · seed 2"]


def test_a_scenario_that_is_there_twice_counts_once() -> None:
    report = build_report(sweep((RING,), (1, 2, 2)))
    assert len(report.series[0].points) == 2
    assert report.notes == ("1 result of a scenario that is there twice is left out.",)


def test_warnings_are_said_once_with_what_they_affect() -> None:
    caveats = {caveat.code: caveat for caveat in build_report(sweep((RING, ASYNC))).caveats}
    assert caveats["assumed-network"].all_results
    beyond = caveats["outside-calibration"]
    assert beyond.values == "16 to 256"
    assert beyond.affected == (
        ("Ring all-reduce (multi-worker mirrored)", (16, 32, 64, 128, 256)),
        ("Parameter server, async, 4 servers", (16, 32, 64, 128, 256)),
    )


def test_strong_scaling_is_recognised() -> None:
    workload = {"batch_per_replica": None, "global_batch": 1024}
    asked = build_report(sweep((RING,), (1, 2), workload=workload)).asked
    assert (asked.scaling, asked.batches) == ("strong", (1024,))


def test_no_results_are_refused() -> None:
    with pytest.raises(ResultsError, match="at least one"):
        build_report([])


@pytest.mark.parametrize("result", [*sweep(workers=(4,)), *hostile_sweep()], ids=lambda result: result.scenario_hash)
def test_the_scenario_in_the_report_is_the_one_simulated(result: object) -> None:
    scenario = result.scenario  # type: ignore[attr-defined]
    assert scenario_from_table(tomllib.loads(scenario_toml(scenario)), "report").hash == scenario.hash


def test_the_recipe_runs_the_same_numbers_of_workers() -> None:
    recipe = build_report(sweep((ASYNC,), (1, 4))).recipe
    assert recipe.series[0].command == "paceline sweep scenario.toml --over strategy.workers=1,4 --out curve-1.ndjson"
    assert tomllib.loads(recipe.series[0].toml)["strategy"]["servers"] == 4


def test_the_recipe_gives_the_very_same_scenarios() -> None:
    cluster = {"inter_node": {"bandwidth_bytes_per_s": 3.125e9, "latency_s": 5e-5}, "uncertainty": None}
    workload = {"batch_per_replica": None, "global_batch": 1024}
    results = [*sweep(), *sweep(workers=(1, 2, 8), cluster=cluster, run={"steps": 50}), *sweep((ASYNC,), (1, 4), workload=workload)]
    recipe = build_report(results).recipe
    assert sum(len(step.hashes) for step in recipe.series) == len(results)
    for step in recipe.series:
        table = tomllib.loads(recipe.scenario_toml) | tomllib.loads(step.toml)
        for workers, scenario_hash in step.hashes:
            table["strategy"]["workers"] = workers
            assert scenario_from_table(table, "recipe").hash == scenario_hash


def test_numbers_as_people_read_them() -> None:
    assert [amount(value) for value in (0, 1, 99.44, 367_345.9, 0.01234, 5e-5)] == ["0", "1.00", "99.4", "367,000", "0.0123", "5.00e-05"]
    assert [percent(value) for value in (0, 0.0004, 0.042, 0.0999, 0.785, 1)] == ["0%", "<0.1%", "4.2%", "10%", "78%", "100%"]
    assert [compact(value) for value in (0.5, 200, 20_000, 3e6)] == ["0.5", "200", "20k", "3M"]
    assert [counts(values) for values in ((4,), (1, 2), (1, 2, 4, 8))] == ["4", "1 and 2", "1 to 8"]
    assert duration(0.013) == "13.0 ms"
    assert sentence("the network is slow") == "The network is slow."


def test_names_are_cut_and_cleaned() -> None:
    assert clean("x" * 10_000) == "x" * 71 + "…"
    assert clean("a\u202eb\x00c\n") == "a b c"
    assert clean("\u202e") == "(no name)"
    assert plot_text("<b>&") == "&lt;b&gt;&amp;"
