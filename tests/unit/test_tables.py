"""Answers show themselves as tables, in pandas and in notebooks, harmless whatever things are called."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pandas as pd
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from support.notebook import Cells
from support.scenarios import scenario_table

import paceline
from paceline.planning.answer import Candidate, Plan
from paceline.planning.goal import Goal
from simulator.base.table import Column, Table, frame_of, html_of
from simulator.results.cost import cost_of_samples, time_of_samples_s
from simulator.results.results import Failed, Failure
from simulator.results.rows import COLUMNS
from simulator.spec.figures import Bottleneck

ROOT = Path(__file__).parents[2]
HOSTILE = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "x" * 10_000,
    "\u202eevil\u202c\u2066",
    "a\nb\x00\ud7ff",
    "{{7*7}}",
]
SHORT = {"run.steps": 10, "run.replications": 3}


@pytest.fixture(scope="module")
def result():
    return paceline.simulate(paceline.load(scenario_table()))


@pytest.fixture(scope="module")
def swept():
    table = scenario_table(strategy={"kind": "parameter-server", "mode": "async", "workers": 2})
    return paceline.sweep(table, {"strategy.workers": [1, 2, 4], "run.seed": [1, 2]}, jobs=1)


# -- tables ----------------------------------------------------------------------------


def test_a_result_is_one_row_of_the_documented_columns(result):
    frame = result.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == list(COLUMNS)
    row = frame.iloc[0]
    assert row["throughput_samples_per_s"] == result.throughput_samples_per_s.mean
    assert row["replicas"] == 1
    assert row["strategy"] == "single"
    assert row["scaling"] == "weak"
    assert row["compute_s"] + row["input_s"] + row["exposed_communication_s"] + row["waiting_s"] + row["apply_s"] == pytest.approx(
        row["step_mean_s"]
    )
    assert pd.isna(row["usd_per_million_samples"])
    assert row["failed"] == ""


def test_every_column_is_of_something_that_results_have(result):
    facts = result._facts()
    for column in COLUMNS.values():
        first, *rest = (column.of or column.name).split(".")
        assert first in facts or hasattr(result, first), column.name
        value = facts[first] if first in facts else getattr(result, first)
        for part in rest:
            assert value is None or hasattr(value, part), column.name
            value = getattr(value, part, None)
        if column.of and (statistic := re.search(r"_(p\d+|mean|low|high|max)(_s)?$", column.name)):
            assert rest[-1:] == [statistic[1]], column.name
        assert column.heading, column.name
        assert column.meaning, column.name


def test_a_column_of_what_items_do_not_have_is_refused(result):
    with pytest.raises(AttributeError, match="stap_mean_s"):
        Table.reading("", [Column("stap_mean_s")], [result])


def test_columns_have_the_types_of_what_they_hold(swept):
    types = swept.to_frame().dtypes.astype(str)
    assert types["replicas"] == types["warnings"] == types["strategy.workers"] == "int64"
    assert types["throughput_low"] == types["usd_per_hour"] == types["compute_s"] == "float64"
    assert types["extrapolated"] == "bool"
    assert types["strategy"] == types["bottleneck"] == types["failed"]
    assert types["strategy"] in ("str", "object")  # of pandas 3, and of 2


def test_a_sweep_shows_the_keys_that_differ_first(swept):
    frame = swept.to_frame()
    assert list(frame.columns) == ["strategy.workers", "run.seed", *COLUMNS]
    assert frame["strategy.workers"].tolist() == [1, 1, 2, 2, 4, 4]
    assert frame["scenario_hash"].tolist() == [result.scenario_hash for result in swept]


def test_two_limits_in_balance_are_both_in_the_row(result):
    even = result.model_copy(update={"bottleneck": Bottleneck(name="compute", balance="network", text="Both.")})
    assert frame_of([even])[["bottleneck", "balance"]].iloc[0].tolist() == ["compute", "network"]
    assert result.to_frame()["balance"].tolist() == [""]
    assert "network" in html_of([even, even], "Sweep")


def test_costs_are_those_of_the_price(result):
    priced = paceline.simulate(paceline.load(result.scenario, {"cluster.price.usd_per_node_hour": 3.6}))
    row = priced.to_frame().iloc[0]
    assert row["usd_per_hour"] == 3.6
    assert row["usd_per_million_samples"] == pytest.approx(1e-3 * 1e6 / row["throughput_samples_per_s"])
    assert row["usd_per_million_samples_low"] == pytest.approx(1e3 / row["throughput_high"])


def test_strong_scaling_is_named():
    strong = paceline.load("ring", {"workload.global_batch": 64, "strategy.workers": 4, **SHORT})
    row = paceline.simulate(strong).to_frame().iloc[0]
    assert (row["scaling"], row["batch_per_replica"], row["global_batch"]) == ("strong", 16, 64)


def test_a_failure_stands_among_results_with_its_reason(result):
    failure = Failure(scenario_hash="0" * 16, scenario=result.scenario, failed=Failed(kind="DeadlockError", text="all wait"))
    frame = frame_of([failure, result])
    assert frame["failed"].tolist() == ["DeadlockError: all wait", ""]
    assert frame["throughput_samples_per_s"].isna().tolist() == [True, False]
    assert frame["staleness_max"].dtype == "Int64"


@pytest.mark.parametrize("part", ["workload", "cluster", "run"])
def test_parts_of_a_scenario_show_themselves(part):
    spec = getattr(paceline.load("ring"), part)
    frame = spec.to_frame()
    assert len(frame) == 1
    assert "provenance" not in frame.columns
    assert all(isinstance(name, str) for name in frame.columns)
    assert Cells(spec._repr_html_()).tags == {"table", "caption", "tr", "th", "td"}


def test_a_scenario_shows_all_its_settings():
    row = paceline.load("ring", {"strategy.workers": 4}).to_frame().iloc[0]
    assert row["strategy.workers"] == 4
    assert row["workload.name"] == "cnn-cpu"
    assert row["cluster.inter_node.bandwidth_bytes_per_s"] == 25e9 / 8


def test_no_rows_are_an_empty_table():
    assert frame_of([]).empty
    assert "none" in html_of([], "Sweep")


# -- plans -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planned():
    """A plan with a price: two workers are chosen, four are the runner-up, one does not reach the goal."""
    table = scenario_table(strategy={"kind": "multi-worker-mirrored"}, cluster={"price": {"usd_per_node_hour": 3.6}})
    candidates = []
    for workers in (1, 2, 4):
        result = paceline.simulate(paceline.load(table, {"strategy.workers": workers}))
        time_s, cost = time_of_samples_s(result, 1e6), cost_of_samples(result, 1e6)
        candidates.append(
            Candidate(
                name=f"ring, {workers} workers", what="ring", others=(), scaling="weak",
                result=result, usd_per_hour=3.6 * workers, usd_per_million_samples=cost,
                time_s=time_s, cost_usd=cost, confidence=float(workers > 1), reached_by=19 * (workers > 1), meets=workers > 1,
                nodes=workers, devices_per_node=1, placement="a device on each node",
            )
        )  # fmt: skip
    one, two, four = candidates
    return Plan(
        goal=Goal(target_throughput_samples_per_s=1500), feasible=True, chosen=two, why="It is the cheapest.", runners_up=(four,),
        pareto=(four, two), candidates=(one, two, four), considered=3, discarded=0, simulated=3,
    )  # fmt: skip


def test_a_plan_is_a_row_a_candidate_the_chosen_one_first(planned):
    frame = planned.to_frame()
    assert frame["standing"].tolist() == ["chosen", "runner-up", ""]
    assert frame["pareto"].tolist() == [True, True, False]
    assert frame["name"].tolist() == ["ring, 2 workers", "ring, 4 workers", "ring, 1 workers"]
    assert frame["strategy.workers"].tolist() == [2, 4, 1]
    assert frame["time_s"].tolist() == pytest.approx((1e6 / frame["throughput_samples_per_s"]).tolist())
    assert frame["cost_usd"].tolist() == pytest.approx(frame["usd_per_million_samples"].tolist())
    assert (frame["cost_low_usd"] <= frame["cost_usd"]).all()
    assert set(COLUMNS) <= set(frame.columns)
    assert frame.dtypes.astype(str)["meets"] == "bool"


def test_a_plan_shows_its_answer_and_cannot_be_changed(planned):
    seen = Cells(planned._repr_html_()).cells
    assert seen[0] == "ring, 2 workers. It is the cheapest."
    told = planned.model_copy(update={"sentences": ("Two workers do it.", "Surely.")})
    assert Cells(told._repr_html_()).cells[0] == "ring, 2 workers. Two workers do it. Surely. It is the cheapest."
    assert "runner-up" in seen
    assert "scenario_hash" not in seen
    with pytest.raises(pydantic.ValidationError):
        planned.feasible = False
    assert Plan.model_validate_json(planned.to_json()) == planned


def test_a_plan_with_hostile_names_is_harmless(planned):
    for name in HOSTILE:
        chosen = planned.chosen.model_copy(update={"name": name})
        assert Cells(planned.model_copy(update={"chosen": chosen, "why": name})._repr_html_()).tags <= {
            "table",
            "caption",
            "tr",
            "th",
            "td",
        }


def test_a_candidate_shows_itself(planned):
    assert planned.chosen.to_frame()["name"].tolist() == ["ring, 2 workers"]
    assert "ring, 2 workers" in Cells(planned.chosen._repr_html_()).cells


# -- HTML ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_harmless(name, result):
    scenario = paceline.load(result.scenario, {"workload.name": name.replace("\x00", ""), "cluster.name": name.replace("\x00", "")})
    hostile = result.model_copy(update={"scenario": scenario})
    for text in (
        hostile._repr_html_(),
        scenario._repr_html_(),
        html_of([hostile, result], name),
        Table.of([{name: name}] * 2, name).to_html(),
    ):
        seen = Cells(text)
        assert seen.tags <= {"table", "caption", "tr", "th", "td"}
        assert all(len(cell) <= 1000 for cell in seen.cells)
        assert not re.search("[\u202a-\u202e\u2066-\u2069\x00]", text)
        assert "\n" not in text


@pytest.mark.slow
@given(
    st.lists(st.dictionaries(st.text(min_size=1, max_size=9), st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none())))
)
def test_any_rows_are_a_table_and_nothing_else(rows):
    text = Table.of(rows, "Any").to_html()
    assert Cells(text).tags <= {"table", "caption", "tr", "th", "td"}
    assert text.count("<tr>") == text.count("</tr>")
    assert text.isprintable()


def test_a_long_sweep_shows_its_first_rows_and_how_many_more(result):
    seen = Cells(html_of([result] * 50, "Sweep", total=50))
    assert "and 30 more" in seen.cells
    assert "and more" in Cells(html_of(iter([result] * 50), "Sweep")).cells


def test_a_sweep_shows_its_important_columns(swept):
    seen = Cells(swept._repr_html_()).cells
    assert "strategy.workers" in seen
    assert "scaling_efficiency" in seen
    assert "scenario_hash" not in seen


def test_values_are_written_for_people():
    row = {"many": 123456, "rate": 22686.605, "share": 0.123456789, "yes": True, "none": None, "tiny": 1.5e-7}
    assert Cells(Table.of([row], "Values").to_html()).cells == [
        "Values", "many", "123,456", "rate", "22,687", "share", "0.12346", "yes", "yes", "tiny", "1.5e-07",
    ]  # fmt: skip


def test_whole_numbers_stay_whole_beside_missing_ones():
    frame = Table.of([{"a": 1, "b": 1.5, "c": None, "d": "x"}, {"a": None, "b": 2, "c": None}]).to_frame()
    assert frame.dtypes.astype(str)[["a", "b", "c"]].tolist() == ["Int64", "float64", "float64"]


def test_every_column_says_what_it_is():
    meanings = [column.meaning for column in COLUMNS.values()]
    assert all(meanings)
    assert len(set(meanings)) == len(meanings)  # on its own: no "high end" of something above it


def test_a_long_title_is_broken_into_lines_on_a_terminal_not_cut():
    console = Console(file=io.StringIO(), width=60)
    console.print(Table.of([{"a": "wide " * 12}], "compression 1-bit " * 6 + "weak scaling").to_rich())
    assert " ".join(console.file.getvalue().split()).startswith("compression 1-bit " * 6 + "weak scaling")
