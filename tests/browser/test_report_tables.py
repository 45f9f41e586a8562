"""Tables hold what the figures show, and what is saved from them is safe to open."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from support.pages import Page, write_report
from support.results import PRICE, STRATEGIES, hostile_sweep, planned, sweep

from paceline.comparing import compare
from simulator.results.cost import placement_of, usd_per_million_samples
from simulator.results.results import Result

FIGURES = ("throughput", "efficiency", "against", "cost", "staleness", "distribution", "steps-here", "steps", "around", "links", "busy")
SAVED = """
window.saved = [];
URL.createObjectURL = blob => { window.saved.push(blob.text()); return '#'; };
HTMLAnchorElement.prototype.click = function () { window.names = (window.names || []).concat(this.download); };
"""


def named(page: Page, figure: str) -> list[dict[str, Any]]:
    """The traces that show results."""
    return [trace for trace in page.traces(figure) if trace["name"] not in ("", "chosen")]


def csv_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))


def saved(page: Page, selector: str) -> list[str]:
    """What each of the buttons saves."""
    page.run(
        SAVED
        + f"document.querySelectorAll('{selector}').forEach(button => {{ if (button.textContent === 'Save as CSV') button.click(); }});"
    )
    texts: list[str] = page.run("return Promise.all(window.saved)")
    return texts


def test_the_tables_behind_curves_hold_what_is_drawn(page: Page, report: Path) -> None:
    page.again(report)
    for figure, column in (
        ("throughput", "Throughput (samples/s)"),
        ("efficiency", "Efficiency"),
        ("cost", "Cost of a million samples"),
        ("links", "Busiest link"),
    ):
        drawn = {(trace["name"], x, y) for trace in named(page, figure) for x, y in zip(trace["x"], trace["y"], strict=True)}
        assert {(row["Strategy"], row["Workers"], row[column]) for row in page.table(figure)} == drawn, figure
        assert len(drawn) == 9, figure


def test_the_other_tables_hold_what_is_drawn(page: Page, report: Path) -> None:
    page.again(report)
    bars = [y for trace in named(page, "distribution") for y in trace["y"]]
    assert [row["Share of updates"] for row in page.table("distribution")] == bars
    assert sum(bars) == pytest.approx(1)
    means = [y for trace in named(page, "staleness") for y in trace["y"]]
    assert [row["Mean staleness"] for row in page.table("staleness") if row["Mean staleness"]] == means
    for figure in ("steps", "steps-here"):
        parts = {trace["name"]: trace["x"] for trace in named(page, figure)}
        for index, row in enumerate(page.table(figure)):
            for name, shares in parts.items():
                assert row[name] / row["Step, mean"] == pytest.approx(shares[index])
    gains = sorted(x for trace in named(page, "around") for x in trace["x"] if x is not None)
    assert sorted(row["Faster by"] for row in page.table("around")) == gains
    assert gains
    for trace in named(page, "busy"):
        (row,) = [row for row in page.table("busy") if row["Strategy"] == trace["name"]]
        assert [value for value in trace["x"] if value is not None] == [
            row[name] for name in ("Devices busy", "Links busy", "Busiest link", "Servers busy", "Busiest server") if row[name] != "–"
        ]


def test_the_script_compares_run_by_run_as_the_library_does(page: Page, report: Path, results: list[Result]) -> None:
    page.again(report)
    rate, batch = 3.125e9, 64
    here = {
        (result.scenario.strategy.kind, getattr(result.scenario.strategy, "mode", "")): result
        for result in results
        if result.replicas == 16
        and result.scenario.servers in (0, 8)
        and result.scenario.batch == batch
        and result.scenario.cluster.inter_node.bandwidth_bytes_per_s == rate
    }
    ring = here["multi-worker-mirrored", ""]
    page.run("""
        const field = document.getElementById('choose-focus');
        field.value = [...field.options].find(option => option.textContent.startsWith('Ring')).value;
        field.dispatchEvent(new Event('change'));
    """)
    page.settled()
    rows = {row["Against"]: row for row in page.table("against")}
    assert len(rows) == 2
    for mode in ("sync", "async"):
        row, expected = rows[f"{mode.capitalize()} PS"], compare(ring, here["parameter-server", mode])
        shown = [1 + row[name] for name in ("Faster by", "Low", "High")]
        assert shown == pytest.approx([expected.ratio.mean, expected.ratio.low, expected.ratio.high], rel=1e-5)
        assert (row["Faster in runs"], row["Of runs"]) == (expected.wins, 19)
    (fewer,) = [
        result
        for result in results
        if result.replicas == 4
        and result.scenario.strategy == ring.scenario.strategy.model_copy(update={"workers": 4})
        and result.scenario.batch == batch
        and result.scenario.cluster == ring.scenario.cluster
    ]
    (row,) = [row for row in page.table("around") if row["What is changed"] == "Workers"]
    expected = compare(fewer, ring)
    shown = [1 + row[name] for name in ("Faster by", "Low", "High")]
    assert shown == pytest.approx([expected.ratio.mean, expected.ratio.low, expected.ratio.high], rel=1e-5)


def test_efficiency_has_its_own_interval_and_every_table_its_nodes(page: Page, report: Path, results: list[Result]) -> None:
    page.again(report)
    rows = page.table("efficiency")
    assert len(rows) == 9
    known = {
        (its.scaling_efficiency.mean, its.scaling_efficiency.low, its.scaling_efficiency.high, placement_of(its.scenario).nodes)
        for its in results
    }
    assert {(row["Efficiency"], row["Low efficiency"], row["High efficiency"], row["Nodes"]) for row in rows} <= known
    for figure in ("throughput", "cost", "staleness", "steps", "busy"):
        assert all(row["Nodes"] >= row["Workers"] for row in page.table(figure)), figure
    hover = page.run("return document.getElementById('figure-efficiency').data.map(trace => [].concat(trace.hovertext).join()).join()")
    assert "4 replicas on 4 nodes with 1 device each" in hover


def test_few_runs_have_a_normal_interval_and_other_seeds_are_no_pairs(page: Page, tmp_path: Path) -> None:
    ring, sync, other = sweep(workers=(8,))

    def short(result: Result, seed: int) -> Result:
        run = result.scenario.run.model_copy(update={"replications": 5, "seed": seed})
        scenario = result.scenario.model_copy(update={"run": run})
        runs = result.throughput_of_each_replication[:5]
        return result.model_copy(
            update={"scenario": scenario, "scenario_hash": scenario.hash, "seed": seed, "throughput_of_each_replication": runs}
        )

    ring, sync, other = short(ring, 7), short(sync, 7), short(other, 8)
    page.open(write_report([ring, sync, other], tmp_path / "report.html"))
    page.run("""
        const field = document.getElementById('choose-focus');
        field.value = [...field.options].find(option => option.textContent.startsWith('Ring')).value;
        field.dispatchEvent(new Event('change'));
    """)
    page.settled()
    rows = page.table("against")
    for result, mode in ((sync, "Sync"), (other, "Async")):
        (row,) = [row for row in rows if mode in row["Against"]]
        expected = compare(ring, result)
        assert expected.runs == (5 if result is sync else 0)
        shown = [1 + row[name] for name in ("Faster by", "Low", "High")]
        assert shown == pytest.approx([expected.ratio.mean, expected.ratio.low, expected.ratio.high], rel=1e-5)
        assert row["Of runs"] == expected.runs


def test_an_open_table_follows_the_sliders(page: Page, report: Path) -> None:
    page.again(report)
    before = page.table("throughput")
    page.run("""
        const slider = document.querySelector('#sliders label:last-of-type input');
        slider.value = '0';
        slider.dispatchEvent(new Event('input'));
    """)
    page.settled()
    assert page.table("throughput") != before


def test_every_table_names_the_scaling(page: Page, report: Path) -> None:
    page.again(report)
    for figure in FIGURES:
        assert {row["Scaling"] for row in page.table(figure)} == {"weak"}, figure


def test_all_results_are_saved_with_every_number(page: Page, report: Path, results: list[Result]) -> None:
    page.open(report)
    (text,) = saved(page, "#all-results button")
    rows = {row["Scenario"]: row for row in csv_rows(text)}
    assert len(rows) == len(results)
    for result in results:
        row, rate = rows[result.scenario_hash], result.throughput_samples_per_s
        cost = usd_per_million_samples(result)
        assert cost is not None
        assert [float(row[name]) for name in ("Throughput (samples/s)", "Low", "High")] == [rate.mean, rate.low, rate.high]
        assert float(row["Cost of a million samples (USD)"]) == cost.mean
        assert float(row["Step, 99% (s)"]) == result.step_time_s.p99
        assert float(row["Hidden communication (s)"]) == result.hidden_communication_s
        assert row["Scaling"] == "weak"
        assert row["Servers"] == (str(result.scenario.servers) if result.scenario.servers else "")
        assert float(row["Network bandwidth (bytes/s)"]) == result.scenario.cluster.inter_node.bandwidth_bytes_per_s
        assert row["What they say"] == " ".join(warned.text for warned in result.warnings)
    assert page.run("return window.names") == ["paceline-results.csv"]
    assert page.requests() == []


def test_long_tables_show_their_first_rows_and_then_all(page: Page, tmp_path: Path) -> None:
    results = sweep(STRATEGIES[:1], tuple(range(1, 131)))
    page.open(write_report(results, tmp_path / "report.html"))
    count = "return document.querySelectorAll('#all-results tbody tr').length"
    assert page.run(count) == 100
    page.run("[...document.querySelectorAll('#all-results button')].find(button => button.textContent === 'Show all 130 rows').click()")
    assert page.run(count) == 130


def test_every_table_of_the_page_can_be_saved(page: Page, tmp_path: Path) -> None:
    results = sweep(cluster={"price": PRICE})
    page.open(write_report(results, tmp_path / "report.html", plan=planned(results, "Ring on 8")))
    page.run("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    page.until("return [...document.querySelectorAll('details[data-of]')].every(details => details.querySelector('table'))")
    tables = page.run("return document.querySelectorAll('main table').length - document.querySelectorAll('main noscript table').length")
    texts = saved(page, "main button")
    assert len(texts) == tables >= 18
    candidates = next(csv_rows(text) for text in texts if "Cost of the training (USD)" in text)
    assert {row["Configuration"] for row in candidates} == {"Ring on 8"}
    assert all(float(row["Throughput (samples/s)"]) > 0 for row in candidates)
    assert page.complaints() == []


def test_saved_text_is_no_formula(page: Page, tmp_path: Path) -> None:
    texts = ("=HYPERLINK(1)", "+1+cmd", "-2+3", "@cmd", " =1", 'a "b", c')
    results = sweep(STRATEGIES[:1], (1, 2, 4, 8, 16, 32), cluster={"price": PRICE})
    plan = planned(results, "")
    named = tuple(each.model_copy(update={"name": text}) for each, text in zip(plan.candidates, texts, strict=True))
    page.open(write_report(results, tmp_path / "report.html", plan=plan.model_copy(update={"candidates": named})))
    rows = next(rows for text in saved(page, "main button") if len(rows := csv_rows(text)) == 6 and "Configuration" in rows[0])
    assert [row["Configuration"] for row in rows] == ["'=HYPERLINK(1)", "'+1+cmd", "'-2+3", "'@cmd", "'=1", 'a "b", c']


def test_saved_hostile_names_keep_their_rows(page: Page, tmp_path: Path) -> None:
    results = hostile_sweep()
    page.open(write_report(results, tmp_path / "report.html"))
    (text,) = saved(page, "#all-results button")
    assert sorted(row["Scenario"] for row in csv_rows(text)) == sorted(result.scenario_hash for result in results)


def test_tables_are_printed_where_they_are_open(page: Page, report: Path) -> None:
    page.open(report)
    page.unfold()
    page.run("document.querySelector('.lead details.behind').open = true")
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    shown = "return [...document.querySelectorAll('{}')].filter(element => element.getClientRects().length).length"
    assert page.run(shown.format("details.behind")) == 1
    assert page.run(shown.format("#sliders input, .buttons button, .fields select")) == 0
    assert page.run(shown.format(".plot")) > 5
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
