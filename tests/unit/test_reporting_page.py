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

from paceline.comparing import Change
from paceline.reporting.content import content_of
from paceline.reporting.measured import Beside, Overlay, Unmatched
from paceline.reporting.render import SCRIPTS, render
from paceline.reporting.timeline import Bar, Timeline
from paceline.sentences import servers_note, work_note, workers_note
from simulator.results.results import Result
from simulator.spec.figures import GROUPS, Bottleneck, LimitGroup

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
    """What stands in the first screen: the headline, and what is said under each label."""

    def plain(markup: str) -> str:
        return html.unescape(" ".join(re.sub(r"<[^>]+>", "", markup).split()))

    (headline,) = re.findall(r"<h1>(.*?)</h1>", page, flags=re.DOTALL)
    (first,) = re.findall(r'<dl class="said">(.*?)</dl>', page, flags=re.DOTALL)
    said = re.findall(r"<dt[^>]*>(.*?)</dt>\s*<dd[^>]*>(.*?)</dd>", first, flags=re.DOTALL)
    return {"headline": plain(headline)} | {label: plain(text) for label, text in said}


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


def test_other_global_batches_are_something_to_watch() -> None:
    results = [*sweep((RING,), (4,)), *sweep((ASYNC,), (4,), workload={"batch_per_replica": 8})]
    assert "global batches differ, 32 to 128 samples" in content_of(results).decision.watch_out


def test_every_limit_has_a_group() -> None:
    names = get_args(Bottleneck.model_fields["name"].annotation)
    assert set(names) == set(GROUPS)
    assert set(GROUPS.values()) == set(get_args(LimitGroup))


@pytest.mark.slow
def test_the_page_says_which_run_the_changes_rest_on() -> None:
    change = Change("2x network", "b", 0.25, 0.2, 0.3, "compute", "network", "5 replications of 20 steps")
    text = text_of(page_of(sweep(), sensitivity=(change,)))
    assert re.search(r"on 256 workers on 256 nodes \(weak scaling\), simulated in 5 replications of 20 steps\.", text)


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
    for heading in ("Alternatives", "Some steps in time", "Measured against predicted", "What would change it", "Staleness How"):
        assert heading not in bare
    assert "has no price with a source" in bare
    results = sweep(cluster={"price": PRICE})
    full = text_of(page_of(results, **extras("some text", results)))
    for heading in ("Alternatives", "Some steps in time", "Measured against predicted", "What would change it", "Staleness How"):
        assert heading in full
    assert "has no price with a source" not in full
    assert "source: a price list, 2026-01-01" in full


def test_sections_stand_in_order() -> None:
    results = sweep(cluster={"price": PRICE})
    found = re.findall(r"<h2[^>]*>(.*?)</h2>", page_of(results, **extras("some text", results)))
    assert found == [
        "The answer",
        "Alternatives",
        "What is shown",
        "How it scales",
        "What it costs",
        "Where a step’s time goes",
        "Staleness",
        "How busy network and servers are",
        "What would change it",
        "Some steps in time",
        "Measured against predicted",
        "Sources of the interval’s width",
        "Assumptions and warnings",
        "What the words mean, and what the figures rest on",
        "Calibration",
        "All results",
        "How to reproduce it",
    ]


@pytest.mark.slow
def test_a_plan_shows_its_notes_and_its_front() -> None:
    results = sweep(cluster={"price": PRICE})
    plan = planned(results, "Ring on 8")
    (count,) = plan.workers
    plan = plan.model_copy(update={"workers": (count, count.model_copy(update={"workers": 16}))})
    text = text_of(page_of(results, plan=plan))
    for sentence in (work_note(plan), servers_note(plan), workers_note(plan)):  # those of the terminal, word for word
        assert sentence in text
    assert "from 8 to 16 " in workers_note(plan)
    assert re.findall(r"[\d,]*\d", work_note(plan)) == ["1,200", "1,100", "3", "27", "15"]
    assert embedded(page_of(results, plan=plan), "points")["chosen"] == {"curve": 0, "at": [3]}
    assert "pareto" in embedded(page_of(results, plan=plan), "figures")


def test_measured_points_are_embedded_with_their_prediction() -> None:
    results = sweep()
    page = page_of(results, measured=extras("a", results)["measured"])
    assert embedded(page, "points")["measured"] == [[0, 4000.0]]


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
    elsewhere = {"plan-alternatives", "plan-refused", "measured-only", "timeline", "calibration-", "width", "measurements"}
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
