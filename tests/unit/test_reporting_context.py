"""The plain data of a report: answer, trust, warnings and words that follow from literal results."""

from __future__ import annotations

import pytest
from support.results import PRICE, STRATEGIES, grid, sweep

from paceline.comparing import compare
from paceline.reporting.columns import columns_of
from paceline.reporting.content import content_of
from paceline.reporting.coordinates import coordinates_of
from simulator.base.errors import ResultsError
from simulator.base.text import (
    clause,
    clean,
    format_number,
    format_seconds,
    format_share,
    format_usd,
    listed_numbers,
    plot_text,
    sentence,
    written,
)
from simulator.results.intervals import prediction_interval
from simulator.results.results import Result
from simulator.spec.figures import Estimate

RING, SYNC, ASYNC = STRATEGIES


def test_the_answer_is_the_fastest_where_there_are_most_replicas() -> None:
    answer = content_of(sweep()).answer
    assert (answer.name, answer.result.replicas) == ("Ring all-reduce (multi-worker mirrored)", 256)
    assert answer.result.throughput_samples_per_s.mean == pytest.approx(367_345.884)
    assert answer.one_batch


def test_the_answer_of_a_grid_names_its_settings() -> None:
    answer = content_of(grid(workers=(1, 64))).answer
    assert answer.name.startswith("Async PS · ")
    assert {"servers 8", "batch per replica 64", "bandwidth 100 Gbit/s"} == set(answer.name.split(" · ")[1:])


def test_many_runs_are_compared_run_by_run() -> None:
    fast, slow = sweep((SYNC, ASYNC), (256,))

    def with_runs(result: Result, first: float, rest: float) -> Result:
        runs = (first,) * 101 + (rest,) * 99
        return result.model_copy(update={"throughput_of_each_replication": runs, "throughput_samples_per_s": prediction_interval(runs)})

    results = [with_runs(fast, 200.0, 100.0), with_runs(slow, 100.0, 110.0)]
    report = content_of(results)
    page = columns_of(report.results, report.at)["pairs"]
    expected = compare(*report.results)
    assert [page[0][0][0], *page[0][0][-2:]] == [1, 101, 200]
    assert page[0][0][1:4] == pytest.approx([getattr(expected.ratio, end) - 1 for end in ("mean", "low", "high")], rel=1e-4)
    assert page[1][0][-2:] == [99, 200]


def test_the_answer_is_the_result_that_the_headline_names() -> None:
    """Where more workers do not pay the page answers with fewer, and where a lower bandwidth suffices with that."""
    few, many = sweep((RING,), (8, 16))
    runs = tuple(rate * 0.5 for rate in few.throughput_of_each_replication)
    slower = {"throughput_samples_per_s": Estimate(mean=9e3, low=8e3, high=1e4), "throughput_of_each_replication": runs}
    content = content_of([few, many.model_copy(update=slower)])
    assert content.answer.result is few
    assert content.decision.headline.startswith("Workers pay off up to 8")
    slow, fast = ({"inter_node": {"bandwidth_bytes_per_s": rate, "latency_s": 5e-5}} for rate in (1.25e9, 3.125e9))
    content = content_of([*sweep((RING,), (1, 2), cluster=slow), *sweep((RING,), (1, 2), cluster=fast)])
    told = " ".join(content.decision.headline.split())
    assert ("10 Gbit/s suffices" in told) == (content.answer.index == 1)


def test_a_scenario_that_is_there_twice_counts_once() -> None:
    report = content_of(sweep((RING,), (1, 2, 2)))
    assert len(report.results) == 2
    assert report.notes == ("1 earlier result of repeated scenarios is left out; the last counts.",)


def test_the_same_scenario_of_two_files_counts_twice() -> None:
    results = sweep((RING,), (1, 2))
    assert len(content_of(results * 2, labels=["a", "a", "b", "b"]).results) == 4


def test_labels_must_be_as_many_as_results() -> None:
    with pytest.raises(ResultsError, match="2 results needs as many labels, not 1"):
        content_of(sweep((RING,), (1, 2)), labels=["a"])


def test_no_results_are_refused() -> None:
    with pytest.raises(ResultsError, match="at least one"):
        content_of([])


def test_a_title_takes_the_place_of_the_workload_s_name() -> None:
    assert content_of(sweep((RING,), (1,)), title="Autumn\u202e<b>").title == "Autumn <b>"


@pytest.mark.slow
def test_clusters_without_a_price_are_told_once_each() -> None:
    assert len(content_of(sweep()).unpriced) == 1
    assert "'ethernet-10g' has no price with a source" in content_of(sweep()).unpriced[0]
    assert content_of(sweep(cluster={"price": PRICE})).unpriced == ()
    many = [result for index in range(6) for result in sweep((RING,), (1,), cluster={"name": f"cluster-{index}"})]
    assert content_of(many).unpriced[3:] == ("3 more clusters have no price either",)


def test_warnings_are_said_once_with_what_they_affect() -> None:
    caveats = {caveat.code: caveat for caveat in content_of(sweep((RING, ASYNC))).warnings}
    assert caveats["assumed-network"].all_results
    beyond = caveats["outside-calibration"]
    assert beyond.values == "16 to 256"
    assert beyond.affected == (
        ("Ring all-reduce (multi-worker mirrored)", (16, 32, 64, 128, 256)),
        ("Async PS, 4 servers", (16, 32, 64, 128, 256)),
    )


def test_strong_scaling_is_recognised() -> None:
    workload = {"batch_per_replica": None, "global_batch": 1024}
    asked = content_of(sweep((RING,), (1, 2), workload=workload)).request
    assert asked == "on ethernet-10g, 1 to 2 workers, strong scaling: all workers share a batch of 1,024 samples"


def titles_of(results: list[Result]) -> list[str]:
    at = coordinates_of(results)
    return [at.title_of(index) for index in range(len(results))]


def test_another_setting_that_varies_tells_results_apart() -> None:
    slow, fast = ({"inter_node": {"bandwidth_bytes_per_s": rate, "latency_s": 5e-5}} for rate in (1.25e9, 3.125e9))
    results = [*sweep((RING,), (1, 2), cluster=slow), *sweep((RING,), (1, 2), cluster=fast)]
    assert sorted(set(titles_of(results))) == [
        "Ring all-reduce (multi-worker mirrored) · bandwidth 10 Gbit/s",
        "Ring all-reduce (multi-worker mirrored) · bandwidth 25 Gbit/s",
    ]


def test_what_is_met_and_not_chosen_ranks_nothing() -> None:
    calm, noisy = ({"jitter": {"kind": "lognormal", "sigma": sigma}} for sigma in (0.01, 0.2))
    results = [*sweep((RING,), (1, 2, 4), workload=noisy), *sweep((RING,), (1, 2, 4), workload=calm)]
    content = content_of(results)
    assert content.at.conditions == (0, 0, 0, 3, 3, 3)
    assert content.answer.result is results[2]
    assert content.at.met_by(content.answer.index) == "jitter sigma 0.2"
    data = columns_of(content.results, content.at, content.answer.index)
    assert [key["condition"] for key in data["keys"]] == [False, True]
    assert data["conditions"] == [0, 0, 0, 3, 3, 3]


def test_the_sliders_begin_where_the_best_rival_is_that_has_what_the_answer_lacks() -> None:
    results = [*sweep((STRATEGIES[0],), (4,)), *sweep(tuple({**STRATEGIES[2], "servers": count} for count in (1, 2, 4)), (4,))]
    content = content_of(results)
    rivals = sorted(results[1:], key=lambda result: -result.throughput_samples_per_s.mean)
    at = dict(zip((key.path for key in content.at.keys), columns_of(content.results, content.at, 0)["chosen"]["at"], strict=True))
    assert (1, 2, 4)[at["strategy.servers"]] == rivals[0].scenario.servers


def test_seeds_tell_results_of_one_point_apart() -> None:
    names = titles_of([*sweep((RING,), (2,), run={"seed": 1}), *sweep((RING,), (2,), run={"seed": 2})])
    assert names == ["Ring all-reduce (multi-worker mirrored) · seed 1", "Ring all-reduce (multi-worker mirrored) · seed 2"]


def test_numbers_as_people_read_them() -> None:
    assert [format_number(value) for value in (0, 1, 99.44, 367_345.9, 0.01234, 5e-5)] == [
        "0",
        "1.00",
        "99.4",
        "367,000",
        "0.0123",
        "5.00e-05",
    ]
    assert [format_share(value) for value in (0, 0.0004, 0.042, 0.0999, 0.785, 1)] == ["0%", "<0.1%", "4.2%", "10%", "79%", "100%"]
    assert [written(value, "tick") for value in (0.5, 200, 20_000, 3e6)] == ["0.5", "200", "20k", "3M"]
    assert [listed_numbers(values) for values in ((4,), (1, 2), (1, 2, 4, 8))] == ["4", "1 and 2", "1 to 8"]
    assert [format_usd(value) for value in (12_345, 999.5, 0.5, 0.0611)] == ["$12,345", "$999.50", "$0.50", "$0.0611"]
    assert format_seconds(0.013) == "13.0 ms"
    assert sentence("the network is slow") == "The network is slow."


def test_several_sentences_become_one() -> None:
    assert clause("The network is slow. Buy another! It helps.") == "The network is slow; Buy another; It helps."
    assert clause("waits for 2.5 ms, e.g. for it") == "Waits for 2.5 ms, e.g. for it."


def test_names_are_cut_and_cleaned() -> None:
    assert clean("x" * 10_000) == "x" * 71 + "…"
    assert clean("a\u202eb\x00c\n") == "a b c"
    assert clean("\u202e") == "(no name)"
    assert plot_text("<b>&") == "&lt;b&gt;&amp;"
