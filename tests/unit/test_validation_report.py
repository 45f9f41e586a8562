"""A validation as words, as a page and as Markdown: right numbers, nothing of a hostile name alive, the same bytes again."""

from __future__ import annotations

import base64
import json
import math
import re
from typing import Any

import pytest
from support.validations import HOSTILE, row, validation_of
from syrupy.assertion import SnapshotAssertion

from calibrate.validation.comparison import Reached
from calibrate.validation.validation import largest_errors, scores_of
from paceline.reporting.validation import place_section, render_validation, section, write_validation
from paceline.reporting.validation.content import answer_of_validation, csv_tables, rows_table, scores_table, summary
from paceline.reporting.validation.page import curves_of, lines_of
from simulator.base.errors import InputError
from simulator.base.table import Column, Table
from simulator.base.text import written


def figures_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script id="figures" type="application/json">(.*?)</script>', page, flags=re.DOTALL)
    assert found is not None
    drawn: dict[str, Any] = json.loads(found.group(1))
    return drawn


def body_of(page: str) -> str:
    return re.sub(r"<script.*?</script>|<style>.*?</style>", "", page, flags=re.DOTALL)


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", body_of(page)).split())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.018, "+1.8%"),
        (-0.018, "−1.8%"),
        (0.0, "±0%"),
        (-0.0001, "±0%"),
        (0.48, "+48%"),
        (-0.12, "−12%"),
        (0.0996, "+10%"),
        (12.0, "+1,200%"),
    ],
)
def test_errors_have_their_sign(value, text):
    assert written(value, "error") == text


def test_shares_that_were_not_measured_are_dashes():
    assert [written(value, "share") for value in (None, 0.0123, 0.5)] == ["–", "1.2%", "50%"]


def test_the_summary_says_how_good_and_how_sure(snapshot: SnapshotAssertion):
    told = summary(validation_of())
    assert told == snapshot
    first, second = (re.findall(r"[+−]?[\d.]*\d%?", sentence) for sentence in told)
    assert first == ["12", "3.0%", "86%", "90%"]
    assert second == ["3.0%", "+2.0%", "+6.0%", "16", "86%", "90%", "10%", "1.0%", "0.03"]


def test_the_summary_of_little(snapshot: SnapshotAssertion):
    alone, fitted = summary(validation_of([row(measured=(100.0,))])), summary(validation_of([row(fitted=True)]))
    assert [alone, fitted] == snapshot
    assert "worst error +3.0% (8 workers)" in alone[1]
    assert len(fitted) == 1


def test_a_headline_is_told_of_its_own_group():
    rows = [row(group="as given", predicted=150.0), row(group="left out"), row("16 workers", group="left out")]
    told = summary(validation_of(rows, headline="left out"))[0]
    assert re.match(r"2 settings predicted \(left out\):.* 3\.0%", told)


def test_tables_leave_out_what_nobody_measured():
    plain = validation_of([row(), row("16 workers")])
    assert named(rows_table(plain)) == (
        "number", "setting", "group", "measured", "repeats", "predicted", "90% interval", "error", "noise",
    )  # fmt: skip
    names = named(scores_table(plain))
    assert "staleness error" not in names
    assert "width over noise" in names
    full = rows_table(validation_of())
    assert named(full)[-3:] == ("alpha-beta", "ideal linear", "note")
    assert full.rows[0][:5] == (1, "async PS, 1 workers *", "async PS", pytest.approx(88.2), "87.3; 88.2; 89.1")


def named(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns)


def test_units_that_differ_have_a_column():
    table = rows_table(validation_of([row(), row(unit="samples/s")]))
    assert table.only("unit", "measured").rows == (("updates/s", 100.0), ("samples/s", 100.0))
    assert "unit" not in named(rows_table(validation_of()))


def test_every_setting_stands_on_the_page_and_in_markdown():
    validation = validation_of()
    text, markdown = text_of(render_validation(validation)), section(validation)
    for number, each in enumerate(validation.rows, start=1):
        assert f"{number} {each.name}" in text
        assert f"| {number} | {each.name}" in markdown
    assert answer_of_validation(validation).headline in text
    assert summary(validation)[0] in markdown
    for wanted in ("2026-01-02 03:04", "a machine, 2 cores", "python -m evidence published", "What was moved"):
        assert wanted in text
        assert wanted in markdown


def test_thresholds_are_told():
    assert "are met: error up to 5%." in text_of(render_validation(validation_of(wanted="error up to 5%")))
    missed = validation_of(wanted="error up to 1%", missed=("all: 3% above 1%",))
    assert "missed: all: 3% above 1%" in text_of(render_validation(missed))
    assert "- all: 3% above 1%" in section(missed)


def test_figures_hold_every_setting_its_range_and_its_interval():
    validation = validation_of()
    drawn = figures_of(render_validation(validation))
    assert set(drawn) == {"scatter", "ratios", "overlay"}
    points = [trace for trace in drawn["scatter"]["data"] if trace["mode"] == "markers"]
    assert [len(trace["x"]) for trace in points] == [5, 5, 5]
    first = validation.rows[0]
    assert points[0]["error_x"]["array"][0] == pytest.approx(max(first.measured) - first.mean)
    assert points[0]["error_y"]["arrayminus"][0] == pytest.approx(first.predicted.mean - first.predicted.low)
    assert [trace["marker"]["symbol"] for trace in points] == ["circle", "square", "diamond"]
    assert points[0]["marker"]["opacity"] == [0.45, 1, 1, 1, 1]
    noise, *others = drawn["ratios"]["data"]
    assert noise["base"] == pytest.approx([1 / (1 + each.noise) for each in validation.rows])
    assert [low + wide for low, wide in zip(noise["base"], noise["x"], strict=True)] == pytest.approx(
        [1 + each.noise for each in validation.rows]
    )
    ours = [trace for trace in others if trace["legendgroup"].startswith("s")]
    at = {place: (ratio, up) for trace in ours for place, ratio, up in zip(trace["y"], trace["x"], trace["error_x"]["array"], strict=True)}
    assert [at[place][0] for place in range(15)] == pytest.approx([1 + each.error for each in validation.rows])
    assert [at[place][1] for place in range(15)] == pytest.approx(
        [(each.predicted.high - each.predicted.mean) / each.mean for each in validation.rows]
    )
    assert drawn["ratios"]["layout"]["yaxis"]["ticktext"][:2] == ["async PS, 1 workers *", "async PS, 2 workers"]
    rules = {trace["name"]: trace for trace in others if trace["legendgroup"].startswith("rule")}
    assert rules["ideal linear"]["x"][0] == pytest.approx(1 + validation.rows[0].baseline_error("ideal linear"))


def test_the_middle_of_the_figure_of_ratios_is_one_and_misses_are_dark():
    inside, outside = row("inside"), row("outside", 150.0)
    drawn = figures_of(render_validation(validation_of([inside, outside])))["ratios"]
    low, high = drawn["layout"]["xaxis"]["range"]
    assert low == pytest.approx(-high)
    assert high > math.log10(1.5 * 1.05)
    whiskers = {place: trace["error_x"]["color"] for trace in drawn["data"] if trace["type"] == "scatter" for place in trace["y"]}
    assert whiskers == {0: "var(--series-1)", 1: "var(--ink)"}


def test_what_lies_beyond_the_axis_stands_at_its_edge_and_the_page_says_so():
    far = row("wrong unit", 1e6, baselines={"linear": 1e-3})
    page = render_validation(validation_of([row(), far]))
    drawn = figures_of(page)["ratios"]
    high = 10 ** drawn["layout"]["xaxis"]["range"][1]
    assert high == pytest.approx(8)
    (rule,) = (trace for trace in drawn["data"] if trace.get("name") == "linear")
    assert rule["x"] == pytest.approx([1 / 8])
    assert [trace["x"] for trace in drawn["data"] if trace.get("y") == [1] and trace.get("name") == "async PS"] == [[pytest.approx(8)]]
    said = "beyond the axis"
    assert said in page
    assert said not in render_validation(validation_of([row(baselines={"linear": 101.0})]))


def test_what_lies_beyond_what_was_calibrated_is_hollow():
    def reached(reach: float) -> Reached:
        return Reached(regime="all-reduce between nodes", reach=reach, compute=1, communication=0, low=1, high=1)

    rows = [row("8 workers", reached=reached(3)), row("1 worker", reached=reached(0)), row("16 workers")]
    page = render_validation(validation_of(rows))
    drawn = figures_of(page)
    for name in ("scatter", "ratios"):
        (points,) = (trace for trace in drawn[name]["data"] if trace["legendgroup"] == "s0")
        assert points["marker"]["color"] == ["var(--paper)", "var(--series-1)", "var(--series-1)"]
    assert "hollow: beyond what was calibrated" in page
    assert "hollow: beyond what was calibrated" not in render_validation(validation_of())


def test_many_settings_are_drawn_source_by_source():
    """Each source's median, 10% to 90%, and worst; what took part in a fit is left out."""
    rows = [row(f"a: {n}", 100.0 + n, settings={"table": "a"}, baselines={"linear": 100.0 + 2 * n}) for n in range(11)]
    rows += [row(f"b: {n}", 90.0, settings={"table": "b"}, fitted=n < 20) for n in range(60)]
    validation = validation_of(rows)
    lines = lines_of(validation)
    assert [line.name for line in lines] == ["async PS, a: 18 of 33 inside", "async PS, b: 0 of 120 inside"]
    rule, points, worst = figures_of(render_validation(validation))["ratios"]["data"]
    assert rule["x"] == pytest.approx([1.1])
    assert points["x"] == pytest.approx([1.05, 0.9])
    assert points["error_x"]["array"] == pytest.approx([0.04, 0])
    assert points["error_x"]["arrayminus"] == pytest.approx([0.04, 0])
    assert worst["x"] == pytest.approx([1.1, 0.9])
    page = text_of(render_validation(validation))
    assert "Every setting 71 rows" in page
    assert "async PS, a 11 rows" in page
    assert "async PS, b 60 rows" in page


def test_the_page_begins_with_the_errors_and_those_of_simpler_rules():
    page = text_of(render_validation(validation_of()))
    first = page[: page.index("Predicted over measured")]
    assert "Worst error +6.0% ring all-reduce, 16 workers" in first
    assert "Median error of simpler rules: alpha-beta 10%, ideal linear 14%." in first


def test_a_table_too_long_to_be_read_is_a_file_inside_the_page():
    table = Table(
        "Left out", (Column("series", "text"), Column("rows", "count")), tuple((f"series {n}", n) for n in range(200)), "excluded"
    )
    validation = validation_of(details=(table,))
    page = render_validation(validation)
    (data,) = re.findall(r'<a href="data:text/csv;charset=utf-8;base64,([^"]+)" download="sample-excluded.csv">', page)
    assert base64.b64decode(data).decode() == csv_tables(validation)["sample-excluded.csv"].to_csv()
    assert "Left out 200 rows" in text_of(page)
    assert "series 150" not in page


def test_axes_are_logarithmic_where_throughputs_span_much():
    assert figures_of(render_validation(validation_of()))["scatter"]["layout"]["xaxis"]["type"] == "log"
    few = figures_of(render_validation(validation_of([row(), row(predicted=120.0)])))
    assert "type" not in few["scatter"]["layout"]["xaxis"]


def test_curves_of_many_groups_are_not_drawn():
    assert [curve.name for curve in curves_of(validation_of())] == ["async PS", "sync PS", "ring all-reduce"]
    assert [len(curve.rows) for curve in curves_of(validation_of(overlay=("sync PS",)))] == [5]
    assert curves_of(validation_of([row(group=f"group {index}") for index in range(8)])) == ()
    assert curves_of(validation_of([row(settings={})])) == ()
    assert curves_of(validation_of(overlay=())) == ()


def test_the_same_validation_gives_the_same_bytes(tmp_path):
    one = write_validation(validation_of(), tmp_path / "one.html").read_bytes()
    assert one == write_validation(validation_of(), tmp_path / "two.html").read_bytes()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["one.html", "two.html"]


def hostile():
    rows = [row(HOSTILE, group=HOSTILE, unit=HOSTILE, note=HOSTILE, settings={"workers": 8.0, HOSTILE: HOSTILE}, baselines={HOSTILE: 90.0})]
    table = Table(HOSTILE, (Column(HOSTILE, "text"), Column("b", "text")), ((HOSTILE, HOSTILE),), "hostile", HOSTILE)
    return validation_of(
        rows,
        title=HOSTILE,
        command=HOSTILE,
        machine=HOSTILE,
        about=(HOSTILE,),
        notes=(HOSTILE,),
        tables=(table,),
        missed=(HOSTILE,),
        wanted=HOSTILE,
    )


def test_hostile_names_are_text_on_the_page():
    page = render_validation(hostile())
    body = body_of(page)
    assert "&lt;script&gt;window.pwned" in body
    assert not re.search(r"<(img|iframe|object)\b", body)
    assert all(target.startswith("#") for target in re.findall(r'<a\b[^>]*?href="([^"]*)', body))
    assert body.count("<a ") == body.count('<a href="#')
    assert page.count("<script") == 4
    assert "://" not in body.replace("http://www.w3.org/2000/svg", "")
    shown = json.dumps(figures_of(page))
    assert "<script" not in shown
    assert "<img" not in shown
    assert "\u202e" not in body


def test_hostile_names_are_text_in_markdown():
    told = re.sub(r"by `[^`]*`\.$", "", section(hostile()), flags=re.MULTILINE)  # the command, as code
    assert "<script" not in told
    assert "<img" not in told
    assert not re.search(r"(?<!\\)[`\[]", told)
    grid = [line for line in told.splitlines() if line.startswith("| ")]
    assert all(len(re.findall(r"(?<!\\)\|", line)) == len(re.findall(r"(?<!\\)\|", grid[-1])) for line in grid[-2:])
    assert told.count("<!--") == 2


def test_a_section_replaces_its_predecessor_alone():
    first, second = validation_of(title="First"), validation_of(title="Second")
    other = validation_of(title="Other", key="other")
    document = place_section(place_section("# Fidelity\n\nBy hand.\n", first), other)
    again = place_section(document, second)
    assert again.startswith("# Fidelity\n\nBy hand.\n\n<!-- begin paceline validate: sample -->")
    assert "## First" not in again
    assert again.index("## Second") < again.index("## Other")
    assert place_section(again, second) == again
    assert place_section("", first) == section(first)


def test_a_section_with_files_links_to_what_is_long():
    validation = validation_of(
        details=(Table("What is left out", (Column("series", "text"),), (("alexnet",), ("vgg",)), "excluded"),),
        family=lambda row: row.group,
    )
    files = csv_tables(validation)
    assert list(files) == ["sample-async-ps.csv", "sample-sync-ps.csv", "sample-ring-all-reduce.csv", "sample-excluded.csv"]
    text = section(validation, {name: f"rows of it/{name}" for name in files})
    assert "- Every setting, async PS: [sample-async-ps.csv](rows%20of%20it/sample-async-ps.csv), 5 rows" in text
    assert "- What is left out: [sample-excluded.csv](rows%20of%20it/sample-excluded.csv), 2 rows" in text
    assert "### Scores" in text
    assert "### What was moved" in text
    assert "alexnet" not in text
    assert "async PS, 8 workers" not in text
    assert "alexnet" in section(validation)
    frame = files["sample-async-ps.csv"].to_frame()
    assert frame["measured_each"][1] == "171.072 172.8 174.528"
    assert frame["error"].tolist() == pytest.approx([row.error for row in validation.rows[:5]], rel=1e-7)
    assert frame["baselines.ideal linear"].tolist() == [90.0, 180.0, 360.0, 720.0, 1440.0]


def test_scores_of_many_groups_stand_one_below_the_other():
    rows = [row(f"{number} workers", group=f"group {number}") for number in range(11)]
    few, many = section(validation_of(rows[:9])), section(validation_of(rows))
    assert "| measure | group 0 | group 1 " in few
    assert "| group | settings | median error (bias) " in many


def test_the_largest_errors_are_told_with_few_of_a_series():
    rows = [row(f"resnet: {number} workers", 110.0 + number) for number in range(4)]
    rows += [row("vgg: 2 workers", 95.0, note="one host is slow"), row("vgg: 1 worker", 200.0, fitted=True), row("bert: 2 workers", 100.4)]
    table = largest_errors(rows, "throughput", of_a_series=2)
    assert table.title == "The largest errors, throughput"
    assert [(cells[0], cells[-1]) for cells in table.rows] == [
        ("resnet: 3 workers", None),
        ("resnet: 2 workers", None),
        ("vgg: 2 workers", "one host is slow"),
    ]
    assert [cells[0] for cells in largest_errors(rows, most=3).rows] == [f"resnet: {number} workers" for number in (3, 2, 1)]


def test_a_section_without_its_end_is_not_guessed_at():
    with pytest.raises(InputError, match="has <!-- begin paceline validate: sample --> without"):
        place_section("<!-- begin paceline validate: sample -->\nmine", validation_of())


@pytest.mark.slow
def test_scores_of_very_many_settings_are_drawn_in_a_bounded_height():
    rows = [row(f"{index}", group=f"g{index % 3}") for index in range(500)]
    page = render_validation(validation_of(rows, scores=tuple(scores_of(rows))))
    height = re.search(r'id="figure-ratios"[^>]*--height: (\d+)px', page)
    assert height is not None
    assert int(height.group(1)) <= 2000
    assert figures_of(page)["ratios"]["layout"]["yaxis"]["ticktext"] == [
        f"g{n}: {its} of {its} inside" for n, its in enumerate((501, 501, 498))
    ]
    rows = [row(f"{index}", group=f"g{index}", settings={"table": f"t{index}"}) for index in range(300)]
    assert [line.name for line in lines_of(validation_of(rows))] == ["all: 900 of 900 inside"]
