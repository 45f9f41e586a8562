"""What a reader chooses moves every figure together, lives in the address, and works from the keyboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys
from support.pages import Page, write_report
from support.results import RATES, STRATEGIES, sweep

import paceline
from simulator.base.text import format_seconds, format_share, format_throughput
from simulator.results.results import Result

LIVE = ("throughput", "efficiency", "against", "cost", "staleness", "distribution", "steps-here", "steps", "around", "links", "busy")
RING = "Ring all-reduce (multi-worker mirrored)"


WHERE = "return document.getElementById('where').textContent"
"""What stands at the sliders."""


def slide(page: Page, name: str, value: int) -> None:
    """Move a slider as a hand would, to its n-th value."""
    page.run(f"""
        const label = [...document.querySelectorAll('#sliders label')].find(each => each.textContent.startsWith('{name}'));
        const slider = label.querySelector('input');
        slider.value = '{value}';
        slider.dispatchEvent(new Event('input', {{bubbles: true}}));
    """)
    page.settled()


def pick(page: Page, field: str, text: str) -> None:
    page.run(
        f"const field = document.getElementById('{field}');"
        f"field.value = [...field.options].find(each => each.textContent === '{text}').value;"
        "field.dispatchEvent(new Event('change', {bubbles: true}));"
    )
    page.settled()


def drawn(page: Page) -> dict[str, Any]:
    return {figure: page.traces(figure) for figure in LIVE}


def at(results: list[Result], **wanted: Any) -> list[Result]:
    """Results with these settings: strategy, servers, batch and bandwidth in Gbit/s."""

    def fits(result: Result) -> bool:
        scenario = result.scenario
        own = {
            "kind": (scenario.strategy.kind, getattr(scenario.strategy, "mode", "")),
            "servers": scenario.servers,
            "batch": scenario.workload.batch_per_replica,
            "rate": scenario.cluster.inter_node.bandwidth_bytes_per_s / 1.25e8,
            "replicas": scenario.replicas,
        }
        return all(own[key] == value for key, value in wanted.items())

    return sorted((result for result in results if fits(result)), key=lambda result: result.replicas)


ASYNC = ("parameter-server", "async")


def curve(page: Page, figure: str, name: str) -> dict[str, Any]:
    return next(trace for trace in page.traces(figure) if trace["name"] == name)


def test_the_figures_show_what_was_simulated_at_the_sliders(page: Page, report: Path, results: list[Result]) -> None:
    page.again(report)
    slide(page, "Servers", 0)
    slide(page, "Network bandwidth", 0)
    expected = at(results, kind=ASYNC, servers=2, batch=64, rate=10)
    shown = curve(page, "throughput", "Async PS")
    assert shown["x"] == [result.replicas for result in expected] == [1, 4, 16]
    assert shown["y"] == [result.throughput_samples_per_s.mean for result in expected]
    assert curve(page, "efficiency", "Async PS")["y"] == [result.scaling_efficiency.mean for result in expected]
    # the ring has no servers, so it is drawn whatever their number
    assert len(curve(page, "throughput", RING)["y"]) == 3


@pytest.mark.parametrize("name", ["Workers", "Servers", "Batch of a replica", "Network bandwidth"])
def test_a_slider_moves_every_figure(page: Page, report: Path, name: str) -> None:
    page.again(report)
    before, card = drawn(page), page.run(WHERE)
    slide(page, name, 0)
    after = drawn(page)
    moved = {figure for figure in LIVE if before[figure] != after[figure]}
    # the samples' links and staleness do not depend on everything
    always = {"throughput", "efficiency", "against", "cost", "steps-here", "around"}
    assert always <= moved
    if name == "Workers":
        assert {"distribution", "links", "staleness", "busy"} <= moved
    else:
        assert "steps" in moved
    assert page.run(WHERE) != card
    assert page.complaints() == []


def test_key_figures_are_those_of_the_point_at_the_sliders(page: Page, report: Path, results: list[Result]) -> None:
    page.again(report)
    slide(page, "Workers", 1)
    slide(page, "Batch of a replica", 0)
    pick(page, "choose-focus", RING)
    (result,) = at(results, kind=("multi-worker-mirrored", ""), replicas=4, batch=16, rate=25)
    told = page.run(WHERE)
    for text in (
        f"{format_throughput(result.throughput_samples_per_s.mean)} samples/s",
        f"efficiency {format_share(result.scaling_efficiency.mean)}",
        f"step {format_seconds(result.step_time_s.mean)}",
    ):
        assert f" {text}" in told


def test_x_may_be_any_swept_key(page: Page, report: Path, results: list[Result]) -> None:
    page.again(report)
    pick(page, "choose-x", "Network bandwidth")
    slide(page, "Workers", 2)
    shown = curve(page, "throughput", "Async PS")
    expected = sorted(
        at(results, kind=ASYNC, servers=8, batch=64, replicas=16),
        key=lambda result: result.scenario.cluster.inter_node.bandwidth_bytes_per_s,
    )
    assert shown["x"] == [1.25e9, 3.125e9, 12.5e9]
    assert shown["y"] == [result.throughput_samples_per_s.mean for result in expected]
    ticks = page.run("return [...document.querySelectorAll('#figure-throughput .xtick text')].map(tick => tick.textContent)")
    assert ticks == ["10 Gbit/s", "25 Gbit/s", "100 Gbit/s"]
    pick(page, "choose-x", "Servers")
    # what has no servers is a level line, and says so
    level = curve(page, "throughput", f"{RING} (has no such key)")
    assert level["x"] == [2, 8]
    assert level["y"][0] == level["y"][1]


def test_axes_are_logarithmic_or_linear(page: Page, report: Path) -> None:
    page.again(report)
    axes = "const shown = document.getElementById('figure-throughput')._fullLayout; return [shown.xaxis.type, shown.yaxis.type]"
    assert page.run(axes) == ["log", "log"]
    pick(page, "x-axis", "linear")
    pick(page, "y-axis", "linear")
    assert page.run(axes) == ["linear", "linear"]
    assert page.run("return document.getElementById('figure-throughput')._fullLayout.yaxis.range[0]") == 0


def test_unticked_strategies_leave_every_figure_and_legend(page: Page, report: Path) -> None:
    page.again(report)
    page.run("document.querySelector('[data-group=strategy]').click()")
    page.settled()
    for figure in ("throughput", "efficiency", "cost", "links", "busy"):
        assert RING not in [trace["name"] for trace in page.traces(figure)]
    shown = page.run("""
        const items = [...document.querySelectorAll('.legend [data-curve]')];
        return items.filter(item => item.offsetParent).map(item => item.textContent.trim());
    """)
    assert shown
    assert RING not in shown
    page.run("document.querySelectorAll('[data-group=strategy]:checked').forEach(box => box.click())")
    page.settled()
    assert page.traces("throughput") == []
    assert "Nothing is chosen" in page.run(WHERE)
    assert page.complaints() == []


def test_a_link_restores_what_was_chosen(page: Page, report: Path) -> None:
    page.again(report)
    slide(page, "Servers", 0)
    slide(page, "Workers", 1)
    pick(page, "choose-x", "Batch of a replica")
    pick(page, "y-axis", "linear")
    pick(page, "choose-focus", "Sync PS")
    page.run("document.querySelector('[data-group=strategy]').click()")
    page.settled()
    address, shown, text = page.driver.current_url, drawn(page), page.run(WHERE)
    assert "#x=workload.batch_per_replica" in address
    page.open(report, fragment=address.partition("#")[2])
    page.unfold()
    assert drawn(page) == shown
    assert page.run(WHERE) == text
    assert page.run("return document.querySelector('[data-group=strategy]').checked") is False
    page.run("document.getElementById('reset').click()")
    page.settled()
    assert drawn(page) != shown
    page.run("window.untouched = true")


def test_an_address_that_says_nothing_sensible_changes_nothing(page: Page, report: Path) -> None:
    page.again(report)
    shown = drawn(page)
    page.open(report, fragment="x=__proto__&at.replicas=%3Cimg%3E&hide.strategy=9.-1.x&of=1e9&xaxis=<script>&%%%=&hide.constructor=1")
    page.unfold()
    assert drawn(page) == shown
    assert page.complaints() == []
    page.run("window.location.hash = '#at.replicas=1'; window.untouched = true")
    page.settled()
    assert drawn(page) != shown


def test_the_link_can_be_copied_by_hand_where_the_clipboard_is_closed(page: Page, report: Path) -> None:
    page.open(report)
    page.unfold()
    page.run("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.run("document.getElementById('copy-link').click()")
    page.until("return document.getElementById('copied').textContent === 'Copy the address of this page.'")


def test_the_keyboard_moves_a_slider(page: Page, report: Path) -> None:
    page.again(report)
    before = page.traces("throughput")
    slider = page.driver.find_element("css selector", "#sliders label:last-of-type input")
    label = page.run("return document.querySelector('#sliders label:last-of-type').textContent")
    slider.send_keys(Keys.ARROW_LEFT)
    page.settled()
    assert page.traces("throughput") != before
    assert page.run("return document.querySelector('#sliders label:last-of-type').textContent") != label
    text = page.run("return document.querySelector('#sliders label:last-of-type input').getAttribute('aria-valuetext')")
    assert text in page.run(WHERE)
    outline = "const style = getComputedStyle(document.activeElement); return [style.outlineStyle, parseFloat(style.outlineWidth)]"
    style, width = page.run(outline)
    assert style != "none"
    assert width >= 2


def test_everything_to_choose_with_can_be_reached_and_is_named(page: Page, report: Path) -> None:
    page.again(report)
    unnamed = """
    return [...document.querySelectorAll('input, select, button')].filter(field =>
      !(field.labels && field.labels.length) && !field.textContent.trim() &&
      !field.getAttribute('aria-label')).map(field => field.outerHTML)
    """
    assert page.run(unnamed) == []
    assert page.run(
        "return [...document.querySelectorAll('#controls input, #controls select, #sliders input')].every(field => field.tabIndex === 0)"
    )
    ids = page.run("return [...document.querySelectorAll('[id]')].map(element => element.id)")
    assert len(ids) == len(set(ids))


def test_what_is_seen_is_told_in_words_too(page: Page, report: Path, results: list[Result]) -> None:
    page.again(report)
    label = "return document.getElementById('figure-throughput').getAttribute('aria-label')"
    before = page.run(label)
    title = page.run("return document.getElementById('title-throughput').textContent")
    assert before == (f"{title}. Samples per second; shaded: 90% prediction interval. The table “throughput” below holds the same numbers.")
    slide(page, "Batch of a replica", 0)
    assert page.run(label) != before
    labels = page.run("return [...document.querySelectorAll('.plot')].map(plot => plot.getAttribute('aria-label'))")
    assert all(len(text) > 60 for text in labels)


def test_files_that_are_compared_can_be_chosen(page: Page, tmp_path: Path) -> None:
    results = sweep(STRATEGIES[:1], (1, 4, 16))
    page.open(write_report(results * 2, tmp_path / "report.html", labels=["before"] * 3 + ["after"] * 3))
    assert page.run("return [...document.querySelectorAll('[data-group=source]')].map(box => box.parentElement.textContent.trim())") == [
        "before",
        "after",
    ]
    named = [trace["name"] for trace in page.traces("throughput")]
    assert f"{RING} · before" in named
    assert f"{RING} · after" in named


def test_a_sweep_that_is_no_grid_says_what_is_missing(page: Page, tmp_path: Path) -> None:
    ring, _, asynchronous = STRATEGIES
    page.open(write_report([*sweep((ring,), (1, 64)), *sweep((asynchronous,), (1, 4))], tmp_path / "report.html"))
    assert "No result there of Async PS, 4 servers." in page.run(WHERE)
    pick(page, "choose-focus", "Async PS, 4 servers")
    assert "samples/s" in page.run(WHERE)
    assert "4 workers" in page.run(WHERE)
    assert page.complaints() == []


def test_a_sweep_over_another_key_alone_is_drawn_over_it(page: Page, tmp_path: Path) -> None:
    links = [{"inter_node": {"bandwidth_bytes_per_s": rate, "latency_s": 5e-5}} for rate in RATES]
    results = [result for link in links for result in sweep(STRATEGIES[:1], (16,), cluster=link)]
    page.open(write_report(results, tmp_path / "report.html"))
    shown = curve(page, "throughput", RING)
    assert shown["x"] == list(RATES)
    assert shown["y"] == [result.throughput_samples_per_s.mean for result in results]
    assert page.run("return document.getElementById('figure-throughput').layout.xaxis.title.text") == "Network bandwidth"


def test_who_wants_no_motion_gets_none(page: Page, report: Path) -> None:
    page.again(report)
    behaviour = "return getComputedStyle(document.documentElement).scrollBehavior"
    assert page.run(behaviour) == "smooth"
    wanted = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)
    assert page.run(behaviour) == "auto"


@pytest.mark.parametrize(
    ("calibrated", "workers", "told"),
    [
        (None, (1, 2), "what was measured is not recorded"),
        ({"batch": (8, 64), "workers": (1, 8)}, (1, 2), "within what was measured"),
        ({"batch": (8, 64), "workers": (1, 8)}, (1, 64), "beyond what was measured"),
    ],
    ids=["none", "within", "beyond"],
)
def test_key_figures_say_how_they_stand_to_the_calibration(
    page: Page, tmp_path: Path, calibrated: dict[str, Any] | None, workers: tuple[int, ...], told: str
) -> None:
    results = sweep(STRATEGIES[:1], workers, workload={"calibrated": calibrated})
    page.open(write_report(results, tmp_path / "report.html"))
    slide(page, "Workers", 1)
    assert page.run(WHERE).endswith(f", {told}.")


def test_a_cell_of_the_map_takes_the_sliders_there(page: Page, report: Path) -> None:
    page.again(report)
    held = page.run("return JSON.parse(document.getElementById('points').textContent).map")
    rows, columns = held["rows"], held["columns"]
    assert {rows["name"], columns["name"]} <= {"Workers", "Servers", "Batch of a replica", "Network bandwidth"}
    page.run("""
        const plot = document.getElementById('figure-map');
        plot.emit('plotly_click', {points: [{x: 0, y: 0}]});
    """)
    page.settled()
    stand = page.run(WHERE)
    assert rows["told"][0] in stand
    assert columns["told"][0] in stand
    assert page.complaints() == []


def test_a_layout_that_is_clicked_shows_its_steps_in_time_and_its_memory(page: Page, tmp_path: Path) -> None:
    settings = {"run.steps": 6, "run.replications": 2, "run.warmup_steps": 1}
    swept = paceline.sweep("tensor-pipeline", {"strategy.tensor": [4, 8], "strategy.pipeline": [1, 2]}, settings=settings, jobs=1)
    page.open(paceline.report(swept, tmp_path / "layouts.html", jobs=1).path)
    page.unfold()
    title = "return document.getElementById('figure-{}').closest('figure').querySelector('h3').textContent"
    before = {name: page.run(title.format(name)) for name in ("timeline", "memory")}
    drawn = page.traces("memory")
    page.run("document.getElementById('figure-map').emit('plotly_click', {points: [{x: 1, y: 1}]})")
    page.settled()
    after = {name: page.run(title.format(name)) for name in ("timeline", "memory")}
    assert all(text.startswith("2-stage pipeline (1f1b), 8-way tensor parallel: ") for text in after.values())
    assert before != after
    assert page.traces("memory") != drawn
    assert page.complaints() == []
