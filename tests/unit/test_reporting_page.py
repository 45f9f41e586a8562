"""The page: escaped, self-contained, the same bytes for the same results."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from typing import Any, get_args

import pytest
from support.results import HOSTILE, PRICE, STRATEGIES, grid, hostile_sweep, planned, sweep
from syrupy.assertion import SnapshotAssertion

from paceline.reporting.content import Change, content_of
from paceline.reporting.measured import Beside, Overlay, Unmatched
from paceline.reporting.render import SCRIPTS, render
from paceline.reporting.timeline import Bar, Timeline
from paceline.sentences import servers_note, work_note, workers_note
from simulator.base.text import format_share, format_usd, written
from simulator.results.cost import usd_per_million_samples
from simulator.results.results import Result
from simulator.spec.figures import GROUPS, Bottleneck, Estimate, LimitGroup

RING, SYNC, ASYNC = STRATEGIES


_FORBIDDEN = (
    "eval(",
    "new Function",
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "fetch(",
    "XMLHttpRequest",
    "import(",
)


def page_of(results: list[Result], notes: tuple[str, ...] = (), **extra: Any) -> str:
    return render(content_of(results, notes, **extra))


def test_the_table_without_scripts_names_both_limits_that_are_in_balance() -> None:
    even = Bottleneck(name="server-network", balance="stragglers", text="Both.")
    page = page_of([result.model_copy(update={"bottleneck": even}) for result in sweep((RING,), (1, 2))])
    assert "<bdi>communication and stragglers</bdi>" in page


def without_scripts(page: str) -> str:
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def text_of(page: str) -> str:
    markup = re.sub(r"<style>.*?</style>", "", without_scripts(page), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", "", markup).split())


def embedded(page: str, name: str) -> dict[str, Any]:
    found = re.search(rf'<script id="{name}" type="application/json">(.*?)</script>', page, flags=re.DOTALL)
    assert found is not None
    held: dict[str, Any] = json.loads(found.group(1))
    return held


def summary_of(page: str) -> dict[str, str]:
    """What stands in the first screen: the answer, and what is said beside it under each heading."""
    found = re.search(r'<div class="first" id="summary">(.*?</dl>)\s*</div>', page, flags=re.DOTALL)
    assert found is not None

    def plain(markup: str) -> str:
        return html.unescape(" ".join(re.sub(r"<[^>]+>", "", markup).split()))

    (answer,) = re.findall(r'<p class="answer[^"]*">(.*?)</p>', found.group(1), flags=re.DOTALL)
    said = re.findall(r"<dt[^>]*>(.*?)</dt>\s*<dd[^>]*>(.*?)</dd>", found.group(1), flags=re.DOTALL)
    return {"answer": plain(answer)} | {heading: plain(text) for heading, text in said}


@pytest.mark.slow
def test_the_first_screens(snapshot: SnapshotAssertion) -> None:
    """Of one variant, of many, of what was never calibrated, and of weak and strong scaling together."""
    strong = sweep((RING,), (1, 2), workload={"batch_per_replica": None, "global_batch": 64})
    pages = {
        "plain": sweep(),
        "grid": grid(),
        "one": sweep((RING,), (4,)),
        "not calibrated": sweep((ASYNC,), (1, 4), workload={"calibrated": None, "uncertainty": None}),
        "weak and strong": [*sweep((RING,), (1, 2)), *strong],
        "different batches": [*sweep((RING,), (4,)), *sweep((ASYNC,), (4,), workload={"batch_per_replica": 8})],
    }
    assert {name: summary_of(page_of(results)) for name, results in pages.items()} == snapshot


def test_the_summary_says_answer_confidence_and_bottleneck() -> None:
    results = sweep()
    summary = summary_of(page_of(results))
    best = max(results, key=lambda result: result.throughput_samples_per_s.mean)
    rate, exposed = best.throughput_samples_per_s, best.breakdown_s.exposed_communication
    assert f"{best.replicas} replicas on 256 nodes: {written(rate.mean, 'throughput')} samples/s" in summary["answer"]
    assert f"{written(rate.low, 'throughput')} and {written(rate.high, 'throughput')} samples/s" in summary["How sure"]
    assert "15 of 27" in summary["Take care"]
    assert "ethernet-10g" in summary["Take care"]
    assert format_share(exposed / best.step_time_s.mean) in summary["What limits it"]


def test_the_answer_says_its_cost_where_there_is_a_price() -> None:
    (result,) = sweep((RING,), (4,), cluster={"price": PRICE})
    cost = usd_per_million_samples(result)
    assert cost is not None
    assert summary_of(page_of([result]))["answer"].endswith(f"{format_usd(cost.mean)} a million samples.")


@pytest.mark.slow
def test_the_summary_names_the_change_that_gains_most_and_no_part_of_the_cluster() -> None:
    changes = (
        Change("half device", "a", -0.5, -0.6, -0.4, "compute", "device"),
        Change("2x network", "b", 0.25, 0.2, 0.3, "compute", "network"),
        Change("mixed precision", "", None, None, None, "not known", "mixed precision"),
    )
    limit = summary_of(page_of(sweep(), sensitivity=changes))["What limits it"]
    assert limit.endswith(" 2x network helps most: throughput +25% (+20% to +30%).")
    limit = summary_of(page_of(sweep(), sensitivity=changes[:1]))["What limits it"]
    assert "half device" not in limit
    assert limit.endswith(" more than 1.0%.")
    (result,) = sweep((ASYNC,), (4,))
    bound = Bottleneck(name="server-network", share=0.96, detail="the servers' links", text="server node 0 is 96% busy.")
    limit = summary_of(page_of([result.model_copy(update={"bottleneck": bound})]))["What limits it"]
    assert "96%" in limit
    assert "node 0" not in limit


@pytest.mark.slow
def test_what_may_help_is_named_though_it_is_not_certain() -> None:
    certain = Change("2x network", "b", 0.25, 0.2, 0.3, "compute", "network")
    large = Change("2x batch", "c", 0.85, -0.1, 1.6, "compute", "batch")
    limit = summary_of(page_of(sweep(), sensitivity=(certain, large)))["What limits it"]
    assert re.search(r"2x network helps most: throughput \+25% \(\+20% to \+30%\)\. 2x batch \+85% \(−10% to \+160%\) may", limit)
    limit = summary_of(page_of(sweep(), sensitivity=(large,)))["What limits it"]
    assert "helps most" not in limit
    assert limit.endswith("2x batch +85% (−10% to +160%) may.")


def test_the_summary_says_where_to_stop() -> None:
    """Each row of the sweep is four times the devices; a step pays that brings at least half of what it adds."""
    summary = summary_of(page_of(sweep((RING,), (1, 4, 16, 64))))
    first, *_, last = sweep((RING,), (1, 4, 16, 64))
    assert last.throughput_samples_per_s.mean > 32 * first.throughput_samples_per_s.mean
    assert summary["Where to stop"].startswith("Not before 64 replicas: from 16 to 64 brings ")
    assert summary["Where to stop"].endswith(" more for 4 times the machines.")
    slow = sweep((ASYNC,), (1, 2, 4, 8, 16, 32, 64, 128, 256))
    assert re.match(r"At \d+ replicas: from \d+ to \d+ brings ", summary_of(page_of(slow))["Where to stop"])


def test_the_answer_is_where_all_strategies_have_results() -> None:
    results = [*sweep((RING,), (1, 4)), *sweep((ASYNC,), (1, 4, 16))]
    summary = summary_of(page_of(results))
    assert summary["answer"].startswith("Async PS, 4 servers is the fastest on average with 4 replicas")
    assert "comes from Async PS, 4 servers with 16 replicas" in summary["Against the next"]


def test_different_global_batches_are_said_first() -> None:
    results = [*sweep((RING,), (4,)), *sweep((ASYNC,), (4,), workload={"batch_per_replica": 8})]
    summary = summary_of(page_of(results))
    assert list(summary)[:2] == ["answer", "Not one training"]
    assert "(128 samples a step)" in summary["answer"]
    assert "32 to 128 samples" in summary["Not one training"]
    assert "With 32 the fastest is Async PS" in summary["Not one training"]


def test_the_summary_says_in_how_many_runs_the_answer_beats_the_next() -> None:
    """Run by run, not by whether two intervals overlap, which those of paired runs may well do."""
    first, second, _ = sweep(workers=(8,))
    rate, runs = first.throughput_samples_per_s, first.throughput_of_each_replication
    lower = {"mean": rate.mean * 0.97, "low": rate.low * 0.97, "high": rate.high * 0.97}
    slower = tuple(value * (0.96 if run % 2 else 0.98) for run, value in enumerate(runs))
    second = second.model_copy(update={"throughput_samples_per_s": Estimate(**lower), "throughput_of_each_replication": slower})
    assert second.throughput_samples_per_s.high > rate.low
    pairs = zip(first.throughput_of_each_replication, second.throughput_of_each_replication, strict=True)
    ratios = [ours / theirs for ours, theirs in pairs]
    against = summary_of(page_of([first, second]))["Against the next"]
    gain, low, high = (format_share(ratio - 1) for ratio in (sum(ratios) / 19, min(ratios), max(ratios)))
    assert f"there in 19 of 19 runs, by {gain} ({low} to {high})" in against
    other = second.model_copy(update={"seed": 3})
    against = summary_of(page_of([first, other]))["Against the next"]
    assert "of 19 runs" not in against
    assert "since their runs share no draws" in against


def test_every_limit_has_a_group() -> None:
    names = get_args(Bottleneck.model_fields["name"].annotation)
    assert set(names) == set(GROUPS)
    assert set(GROUPS.values()) == set(get_args(LimitGroup))


@pytest.mark.slow
def test_the_page_says_which_run_the_changes_rest_on() -> None:
    change = Change("2x network", "b", 0.25, 0.2, 0.3, "compute", "network", "5 replications of 20 steps")
    text = text_of(page_of(sweep(), sensitivity=(change,)))
    assert re.search(r"with 256 replicas on 256 nodes \(weak scaling\), simulated in 5 replications of 20 steps\.", text)


def test_every_result_is_embedded_with_its_numbers() -> None:
    results = sweep()
    held = embedded(page_of(results), "points")
    assert held["columns"]["throughput_samples_per_s"]["values"] == [result.throughput_samples_per_s.mean for result in results]
    assert [held["columns"][part]["heading"] for part, *_ in held["parts"]] == [
        "Input",
        "Compute",
        "Exposed communication",
        "Waiting for others",
        "Apply",
    ]


@pytest.mark.slow
def test_the_same_results_give_the_same_bytes() -> None:
    assert page_of(grid()) == page_of(grid())


@pytest.mark.slow
def test_another_process_gives_the_same_bytes() -> None:
    code = (
        "import hashlib; from paceline.reporting.content import content_of; from paceline.reporting.render import render;"
        "from tests.support.results import sweep; print(hashlib.sha256(render(content_of(sweep(workers=(1, 8)))).encode()).hexdigest())"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(hashes) == 1


def test_plotly_is_inside_exactly_once_and_nothing_is_loaded() -> None:
    page = page_of(sweep())
    assert page.count("plotly.js (cartesian - minified) v") == 1
    markup = without_scripts(page)
    assert re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)""", markup) == []
    assert "@import" not in markup
    assert "url(" not in markup


def test_plotly_inside_is_of_the_version_that_figures_are_made_for() -> None:
    from plotly.offline import get_plotlyjs_version

    (inside,) = re.findall(r"plotly\.js \(cartesian - minified\) v([\d.]+)", page_of(sweep()))
    assert inside.split(".")[0] == get_plotlyjs_version().split(".")[0]


def test_the_script_of_the_page_evaluates_no_text() -> None:
    own = page_of(sweep()).rpartition("<script>")[2]
    for forbidden in _FORBIDDEN:
        assert forbidden not in own
    assert len(SCRIPTS) == len(set(SCRIPTS))


@pytest.mark.long
def test_a_thousand_scenarios_stay_below_three_megabytes() -> None:
    results = grid(workers=(1, 2, 4, 8, 16, 32, 64, 128), servers=(1, 2, 4, 8), batches=(8, 16, 32, 64, 128))
    assert len(results) >= 1000
    assert len(page_of(results[:1000]).encode()) < 3_000_000


def extras(text: str, results: list[Result]) -> dict[str, Any]:
    """Sections that only some reports have, with a text in every place that takes one."""
    first = results[0]
    beside = Beside(
        setting=text,
        name=text,
        result=0,
        scenario_hash=first.scenario_hash,
        replicas=first.replicas,
        ranks=first.ranks,
        predicted=first.throughput_samples_per_s,
        measured=4_000.0,
        repeats=(4_000.0,),
        error=first.throughput_samples_per_s.mean / 4_000 - 1,
        inside=False,
        staleness_predicted=None,
        staleness_measured=None,
        line=2,
    )
    return {
        "plan": planned(results, text),
        "measured": Overlay(source=text, rows=(beside,), unmatched=(Unmatched(setting=text, measured=1.0, line=3, why=text),)),
        "timeline": Timeline(name=text, lanes=(text,), bars=(Bar(text, 0.0, 1e-3, "compute", True, text),), sentence=text, note=text),
        "sensitivity": (Change(text, text, 0.5, 0.4, 0.6, text, "network"), Change("other", text, None, None, None, text, "other")),
        "title": text,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "results",
    [hostile_sweep(), *([result] for result in hostile_sweep())],
    ids=["together", "tag", "attribute", "right-to-left", "template", "long"],
)
def test_hostile_text_stays_text(results: list[Result]) -> None:
    page = page_of(results, notes=("<script>window.pwned=1</script>",))
    markup = without_scripts(page)
    assert len(re.findall(r"<script[ >]", page)) - page.count("<script>window.pwned") >= 4
    assert "<script>window.pwned" not in page
    assert "<img" not in markup
    assert "href='javascript" not in markup
    assert "\u202e" not in markup.split('<pre tabindex="0">')[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", [*HOSTILE, "=HYPERLINK(1)", "a\nb\tc"], ids=["tag", "attribute", "right-to-left", "template", "long", "formula", "lines"]
)
def test_hostile_text_stays_text_in_every_section(text: str) -> None:
    results = hostile_sweep()
    page = page_of(results, (text,), labels=[text + str(index) for index in range(len(results))], **extras(text, results))
    markup = without_scripts(page)
    assert "<script>window.pwned" not in page
    assert "<img" not in markup
    assert "\u202e" not in markup.split('<pre tabindex="0">')[0]
    drawn = embedded(page, "figures").values()
    texts = json.dumps([[trace.get("hovertext", []) for trace in figure["data"]] for figure in drawn])
    texts += json.dumps([figure["layout"]["yaxis"].get("ticktext", []) for figure in drawn])
    assert set(re.findall(r"</?[a-z]+", texts)) <= {"<b", "</b", "<br"}


def test_sections_appear_only_where_there_is_something() -> None:
    bare = text_of(page_of(sweep((RING,), (4,))))
    for heading in ("The plan", "Some steps in time", "Measured against predicted", "What would change it", "Staleness How"):
        assert heading not in bare
    assert "has no price with a source" in bare
    results = sweep(cluster={"price": PRICE})
    full = text_of(page_of(results, **extras("some text", results)))
    for heading in ("The plan", "Some steps in time", "Measured against predicted", "What would change it", "Staleness How"):
        assert heading in full
    assert "has no price with a source" not in full
    assert "source: a price list, 2026-01-01" in full


def test_sections_stand_in_order() -> None:
    results = sweep(cluster={"price": PRICE})
    found = re.findall(r"<h2[^>]*>(.*?)</h2>", page_of(results, **extras("some text", results)))
    assert found == [
        "The answer",
        "Key figures",
        "The plan",
        "What is shown",
        "How it scales",
        "What it costs",
        "Where a step’s time goes",
        "What would change it",
        "Staleness",
        "Some steps in time",
        "Measured against predicted",
        "What the width is made of",
        "Assumptions and warnings",
        "What the words mean, and what the figures rest on",
        "How busy network and servers are",
        "Calibration",
        "All results",
        "How to reproduce it",
    ]


@pytest.mark.slow
def test_a_plan_answers_in_its_own_sentences() -> None:
    results = sweep(cluster={"price": PRICE})
    plan = planned(results, "Ring on 8")
    (count,) = plan.workers
    plan = plan.model_copy(update={"workers": (count, count.model_copy(update={"workers": 16}))})
    summary = summary_of(page_of(results, plan=plan))
    assert tuple(summary[heading] for heading in ("answer", "How sure", "What limits it")) == plan.sentences
    text = text_of(page_of(results, plan=plan))
    for sentence in (work_note(plan), servers_note(plan), workers_note(plan)):  # those of the terminal, word for word
        assert sentence in text
    assert "from 8 to 16 " in workers_note(plan)
    assert re.findall(r"[\d,]*\d", work_note(plan)) == ["1,200", "1,100", "3", "27", "15"]
    assert embedded(page_of(results, plan=plan), "points")["chosen"] == {"curve": 0, "at": [3]}
    assert "pareto" in embedded(page_of(results, plan=plan), "figures")


@pytest.mark.slow
def test_a_plan_without_sentences_is_summed_up_from_its_facts(snapshot: SnapshotAssertion) -> None:
    results = sweep(cluster={"price": PRICE})
    plan = planned(results, "Ring on 8").model_copy(update={"sentences": ()})
    summary = summary_of(page_of(results, plan=plan))
    assert summary == snapshot
    for figure in ("Ring on 8 (weak scaling, 8 replicas on 8 nodes)", "1,000,000,000 samples in 12 h", "18,037 samples/s"):
        assert figure in summary["answer"]
    assert summary["How sure"].startswith("97% ")
    assert "between 17,316 and" in summary["How sure"]
    assert "15 of 27 " in summary["Take care"]
    missed = plan.model_copy(update={"feasible": False})
    answer = summary_of(page_of(results, plan=missed))["answer"]
    assert "nearest to 1,000,000,000 samples in 12 h" in answer
    assert "cheapest" not in answer


def test_measured_points_are_embedded_with_their_prediction() -> None:
    results = sweep()
    page = page_of(results, measured=extras("a", results)["measured"])
    assert embedded(page, "points")["measured"] == [[0, 4000.0]]
    sure = summary_of(page)["How sure"].partition("Beside ")[2]
    assert re.findall(r"[\d.]*\d", sure) == ["1", "7.6", "0"]


def test_without_a_fit_a_sentence_says_so() -> None:
    page = page_of(sweep((RING,), (1, 2), fit=False))
    assert "no measured points" in text_of(page)
    assert "calibration-0" not in embedded(page, "figures")


def test_the_fit_shows_measured_points_and_line() -> None:
    page = page_of(sweep((RING,), (1,)))
    figure = embedded(page, "figures")["calibration-0"]
    line, measured = figure["data"][0], figure["data"][-1]
    assert line["y"][0] == pytest.approx(3.6)
    assert measured["x"] == [8, 16, 32, 64]
    assert measured["y"][0] == pytest.approx(4.864 * 1.005)
    rows = re.findall(r'<th scope="row" data-value="(\d+)">\d+</th><td data-value="60">60</td><td data-value="([\d.e-]+)">', page)
    assert [float(value) * 1e3 for _, value in rows] == pytest.approx(measured["y"])


@pytest.mark.slow
def test_weak_or_strong_is_named_in_every_table() -> None:
    results = sweep(cluster={"price": PRICE})
    tables = re.findall(
        r'<table data-csv="([a-z-]+).*?(<caption.*?)</thead>', page_of(results, **extras("some text", results)), flags=re.DOTALL
    )
    elsewhere = {"plan-refused", "measured-only", "timeline", "calibration-", "width", "measurements"}
    named = {name for name, head in tables if ">Scaling<" in head or " scaling</caption>" in head}
    assert {name for name, _ in tables} - named == elsewhere
    assert len(named) == 9


def test_notes_are_repeated() -> None:
    assert "The results file ends early." in text_of(page_of(sweep((RING,), (1,)), ("The results file ends early.",)))


def test_files_that_were_compared_are_compared_again() -> None:
    page = page_of(sweep((RING,), (1, 2)) * 2, labels=["before", "before", "after", "after"])
    assert "paceline report results-1.ndjson results-2.ndjson" in text_of(page)
    assert "cat results-1.ndjson" not in text_of(page)
    assert "cat results-1.ndjson results-2.ndjson results-3.ndjson &gt; results.ndjson" in text_of(page_of(sweep()))
