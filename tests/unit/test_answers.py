"""Every answer has one shape: a headline of at most 20 words, at most six figures, four labelled lines."""

from __future__ import annotations

import pytest

from paceline.answers import MOST_FIGURES, Answer, answer_of, answer_of_memory, figure, watch_out
from paceline.cli.showing_results import show_table
from paceline.planning.goal import Goal
from paceline.reporting.content import content_of
from paceline.sentences import goal_in_words
from simulator import load_scenario, simulate
from simulator.memory import memory
from simulator.results.results import Result
from simulator.spec.figures import WARNINGS, Estimate, Unit, Warned

SHORT = [("run.steps", 6), ("run.warmup_steps", 1), ("run.replications", 3)]


def of(name: str, *settings: tuple[str, object]) -> Result:
    return simulate(load_scenario(name, [*SHORT, *settings]))


def has_the_shape(answer: Answer) -> None:
    assert 3 <= len(answer.headline.split()) <= 20, answer.headline
    assert answer.headline.endswith(".")
    assert len(answer.figures) <= MOST_FIGURES
    assert [label for label, _ in answer.lines] == [
        label
        for label, text in zip(
            ("Limit", "Confidence", "Watch out", "Next"), (answer.limit, answer.confidence, answer.watch_out, answer.next), strict=True
        )
        if text
    ]


@pytest.mark.parametrize("name", ["ring", "async-ps", "ssp", "fsdp", "pipeline", "whole-job", "input-bound", "virtual-devices"])
def test_every_scenario_has_an_answer_of_that_shape(name: str) -> None:
    result = of(name)
    answer = answer_of(result)
    has_the_shape(answer)
    shown = {row.what: row for row in answer.figures}
    assert shown["throughput"].interval.endswith(f" {result.scenario.unit.per_s}")
    assert ("job time" in shown) == (result.job is not None)
    assert ("staleness" in shown) == (result.staleness.max > 0)
    assert answer.limit.startswith(result.bottleneck.label)
    has_the_shape(answer_of_memory(memory(result.scenario)))


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ((1, 10, 25), "Network bandwidth 10 Gbit/s suffices: "),
        ((1, 2), "Network bandwidth 2 Gbit/s is fastest: "),
    ],
)
def test_the_least_value_that_loses_little_suffices(rates: tuple[int, ...], said: str) -> None:
    """At 10 Gbit/s compute hides what is sent; from 1 to 2 Gbit/s every bit helps."""
    slow = ("workload.backward.base_s", 0.05)
    results = [of("ring", slow, ("cluster.inter_node.bandwidth", f"{rate} Gbit/s")) for rate in rates]
    if rates[-1] == 2:
        results = [of("ring", ("cluster.inter_node.bandwidth", f"{rate} Gbit/s")) for rate in rates]
    decision = content_of(results).decision
    has_the_shape(decision)
    assert decision.headline.startswith(said), decision.headline


def test_more_workers_pay_up_to_where_they_work_half_as_well() -> None:
    results = [of("ring", ("strategy.workers", workers), ("cluster.inter_node.bandwidth", "200 Mbit/s")) for workers in (1, 2, 4)]
    decision = content_of(results).decision
    has_the_shape(decision)
    assert decision.headline.startswith("Workers pay off up to 1: "), decision.headline


def test_fewer_workers_that_are_as_fast_are_named() -> None:
    """Two servers are busy from 16 workers on, whichever the mode."""
    grid = [(workers, mode) for workers in (1, 16, 64) for mode in ("sync", "async")]
    decision = content_of([of("async-ps", ("strategy.workers", workers), ("strategy.mode", mode)) for workers, mode in grid]).decision
    has_the_shape(decision)
    assert decision.headline.startswith("Fastest on 64 workers: "), decision.headline
    assert decision.headline.endswith("; 16 are as fast."), decision.headline


def test_doubts_come_before_advice_and_the_rest_is_counted() -> None:
    codes = ["one-bucket", "no-effect", "assumed-network", "computed"]
    warnings = tuple(Warned.of(code, "x", "A sentence.", "strategy.kind") for code in codes)
    result = of("ring")
    said = watch_out(result.model_copy(update={"warnings": warnings}))
    assert said == "the network is assumed, not measured; times are computed, not measured; 2 more: --details"
    assert (
        watch_out(result.model_copy(update={"warnings": warnings[:1]}))
        == WARNINGS["one-bucket"].title[0].lower() + WARNINGS["one-bucket"].title[1:]
    )
    assert watch_out(result.model_copy(update={"warnings": ()})) == ""


def test_what_may_change_the_conclusion_comes_first_with_its_size() -> None:
    slow = of("ring", ("cluster.inter_node.latency", "5 s"))
    assert watch_out(slow).startswith("cluster.inter_node.latency_s means 5 s, far outside the usual range (1 ns to 1 s); 0.0")
    assert watch_out(of("pipeline")).startswith("the host needs 45.0 µs to 130 µs to launch each kernel; ")
    assert watch_out(of("whole-job")).startswith("predictions of this kind were 48% too fast with multi-worker-mirrored; ")


def test_a_number_of_workers_outside_what_was_validated_is_said_with_the_range() -> None:
    (told,) = (warned for warned in of("ring", ("strategy.workers", 32)).warnings if warned.code == "outside-calibration")
    assert told.brief.startswith("32 workers: outside what was validated (")


def test_an_interval_without_width_is_left_out() -> None:
    assert figure("time", Estimate(mean=2.0, low=2.0, high=2.0), "seconds").interval == ""
    row = figure("throughput", Estimate(mean=21_409.0, low=14_112.0, high=31_571.0), "throughput", "samples/s")
    assert (row.mean, row.interval) == ("21,400", "14,100 to 31,600 samples/s")


def test_links_outside_what_was_validated_are_said_with_both_rates() -> None:
    text = "links have 25 Gbit/s; predictions were validated on real runs, with links of 400 Mbit/s to 800 Mbit/s"
    told = Warned.of("outside-calibration", 4.0, text, "strategy.workers")
    assert told.brief == "links of 25 Gbit/s: outside what was validated (400 Mbit/s to 800 Mbit/s)"


@pytest.mark.parametrize(("samples", "said"), [(1e9, "1e9 samples in 12 h"), (1.28e6, "1.28e6 samples in 12 h"), (50_000, "50,000 ")])
def test_a_goal_names_its_samples_as_people_type_them(samples: float, said: str) -> None:
    assert goal_in_words(Goal(samples=samples, deadline_s=12 * 3600.0), Unit("samples", 1)).startswith(said)


def test_only_a_table_with_stars_explains_them(capsys):
    """Ring on ethernet-25g is outside what was validated; more than twelve results are a matrix, which has no stars."""
    for most, starred in (12, True), (13, False):
        show_table([of("ring", ("strategy.workers", count)) for count in range(1, most + 1)])
        assert ("* beyond what was measured" in capsys.readouterr().out) == starred
