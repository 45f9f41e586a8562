"""Paceline as a library: frozen, typed answers that show themselves as tables, harmless whatever they are called."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_scenarios import scenario_table

import paceline
from paceline.face.arguments import _MUST_BE
from paceline.planning.answer import Candidate, Goal, Plan
from simulator.cluster import Cluster
from simulator.cost import cost_of_samples, time_of_samples_s
from simulator.errors import InputError, ScenarioError
from simulator.results import Failed, Failure
from simulator.rows import COLUMNS
from simulator.strategy import Single
from simulator.tables import frame_of, frame_of_rows, html_of, html_of_rows

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


class Cells(HTMLParser):
    """The tags of a piece of HTML, and the texts of its table's cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert all(name == "colspan" for name, _ in attrs)
        if tag in ("td", "th", "caption"):
            self.cells.append("")

    def handle_data(self, data):
        self.cells[-1] += data


def test_every_public_name_is_there():
    for name in paceline.__all__:
        assert callable(getattr(paceline, name))
        assert name in dir(paceline)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = paceline.nonsense


@pytest.mark.parametrize("code", ["import paceline", "import paceline; dir(paceline)"])
def test_importing_costs_nothing(code):
    heavy = "{'pandas', 'plotly', 'scipy', 'tensorflow', 'numpy', 'pydantic', 'joblib', 'simpy', 'jinja2'}"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(sorted({heavy} & set(sys.modules)))"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_simulating_needs_no_table_or_figure_library():
    code = "import paceline, sys; paceline.load('ring'); paceline.simulate; print({'pandas', 'plotly', 'tensorflow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# -- load ------------------------------------------------------------------------------


def test_load_takes_a_name_a_path_tables_or_a_scenario():
    path = ROOT / "models" / "scenarios" / "ring.toml"
    by_name = paceline.load("ring")
    assert by_name == paceline.load(path) == paceline.load(str(path)) == paceline.load(by_name)
    assert paceline.load(by_name).hash == by_name.hash
    assert paceline.load(scenario_table()).strategy == Single()


def test_settings_are_pairs_or_a_mapping():
    wanted = paceline.load("ring", [("strategy.workers", 4), ("cluster.inter_node.bandwidth", "1 Gbit/s")])
    assert paceline.load("ring", {"strategy.workers": 4, "cluster.inter_node.bandwidth": "1 Gbit/s"}) == wanted
    assert wanted.cluster.inter_node.bandwidth_bytes_per_s == 1.25e8


def test_a_section_as_a_whole_keeps_its_own_uncertainty():
    known = paceline.load("ring").workload
    moved = paceline.load("ssp", {"workload": known, "workload.batch_per_replica": 16, "strategy": Single()})
    assert moved.workload.uncertainty == known.uncertainty
    assert moved.batch == 16
    assert moved.strategy == Single()
    assert paceline.load("ring", {"workload": known}) == paceline.load("ring")


def test_another_file_for_a_section_of_a_loaded_scenario():
    before = paceline.load("ring", {"workload.batch_per_replica": 64})
    after = paceline.load(before, {"cluster.use": "ethernet-10g", "workload.use": "cnn-cpu"})
    assert after == paceline.load("ring", {"workload.batch_per_replica": 64, "cluster.use": "ethernet-10g"})


@pytest.mark.parametrize(
    ("scenario", "settings", "says"),
    [
        ("no-such-scenario", {}, "no-such-scenario"),
        ("ring", {"strategy.workers": 0}, "strategy.workers"),
        ("ring", {"nonsense": 1}, "nonsense"),
        ({}, {}, "is empty"),
        ("ring", {"cluster.use": "nonsense"}, "no cluster named 'nonsense'"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_a_sentence(scenario, settings, says):
    with pytest.raises(ScenarioError, match=re.escape(says)):
        paceline.load(scenario, settings)


# -- simulate, and arguments of the wrong kind ------------------------------------------


def test_simulate_takes_what_load_takes(result):
    assert paceline.simulate("ring", SHORT).scenario == paceline.load("ring", SHORT)
    again = paceline.simulate(result.scenario)
    assert again.to_json() == result.model_copy(update={"wall_time_s": again.wall_time_s}).to_json()


@pytest.mark.parametrize("scenario", [None, 7, ["ring"], Single()])
@pytest.mark.parametrize("function", [paceline.load, paceline.simulate, lambda its: paceline.sweep(its, {"run.seed": [1]})])
def test_what_is_no_scenario_is_said_in_a_sentence(function, scenario):
    with pytest.raises(InputError, match=r"^scenario: .* must be a file, a name such as 'ring', nested tables or a loaded scenario$"):
        function(scenario)


@pytest.mark.parametrize("settings", [None, 7, "run.seed=1", ["run.seed=1"], [("run.seed",)], {7: 1}])
def test_settings_that_are_no_pairs_are_said_in_a_sentence(settings):
    with pytest.raises(InputError, match=r"^settings: .* must be (keys with values|a key with its value)"):
        paceline.load("ring", settings)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"over": None}, "over: None must be keys with lists of values"),
        ({"over": {"run.seed": 8}}, "over: {'run.seed': 8} must be keys with lists of values"),
        ({"over": [("run.seed", [1])]}, "must be keys with lists of values"),
        ({"over": {"run.seed": []}}, "over: run.seed: must be a list of one value or more"),
        ({"jobs": "2"}, "jobs: '2' must be a whole number; 0 takes all cores"),
        ({"jobs": 1.5}, "jobs: 1.5 must be a whole number"),
        ({"jobs": True}, "jobs: true must be a whole number"),
        ({"backend": "slurm"}, "backend: 'slurm' must be 'local', 'dask' or 'ray'"),
        ({"scheduler": 8786}, "scheduler: 8786 must be the address of a cluster"),
        ({"out": 7}, "out: 7 must be the path of a file"),
        ({"progress": "yes"}, "progress: 'yes' must be a function"),
    ],
)
def test_a_sweep_says_what_it_cannot_take(options, says):
    with pytest.raises(InputError, match=re.escape(says)):
        paceline.sweep("ring", **{"over": {"run.seed": [1]}, "settings": SHORT, "jobs": 1, **options})


def test_numbers_of_numpy_are_numbers():
    swept = paceline.sweep("ring", {"strategy.workers": np.array([1, 2])}, settings=SHORT, jobs=np.int64(1))
    assert [result.replicas for result in swept] == [1, 2]
    assert [type(result.scenario.strategy.workers) for result in swept] == [int, int]


@pytest.mark.parametrize("name", ["load", "simulate", "sweep", "plan", "report", "calibrate"])
def test_every_argument_that_is_no_switch_is_looked_at(name):
    """Or is looked at by the function itself: a report's source; an observer is whatever has its methods."""
    parameters = inspect.signature(getattr(paceline, name)).parameters.values()
    known = {*_MUST_BE, "source", "observer"}
    assert {its.name for its in parameters if not isinstance(its.default, bool)} <= known


def test_a_sweep_does_not_replace_its_scenario(tmp_path):
    mine, out = tmp_path / "mine.toml", tmp_path / "new" / "folder" / "r.ndjson"
    mine.write_bytes((ROOT / "models" / "scenarios" / "ring.toml").read_bytes())
    before = mine.read_bytes()
    with pytest.raises(InputError, match="is the file that is read; choose another name"):
        paceline.sweep(mine, {"run.seed": [1]}, settings=SHORT, out=mine, force=True, jobs=1)
    with pytest.raises(InputError, match="is the file that is read; choose another name"):
        paceline.plan(str(mine), target_throughput=100, settings=SHORT, out=mine, force=True, jobs=1)
    assert mine.read_bytes() == before
    assert len(paceline.sweep(mine, {"run.seed": [1]}, settings=SHORT, out=out, jobs=1)) == 1
    assert out.is_file()


def test_steps_set_take_the_place_of_the_job_steps_of_the_file():
    job = paceline.load("async-ps", {"run.job_steps": 50})
    assert job.run.job_steps == 50
    assert paceline.load(job, {"run.steps": 20}).run.job_steps is None
    assert paceline.load(job, {"run.steps": 20, "run.job_steps": 30}).run.job_steps == 30


# -- frozen ----------------------------------------------------------------------------


def test_answers_cannot_be_changed(result, swept, tmp_path):
    written = paceline.report(result, tmp_path / "report.html", what_ifs=False)
    for answer, name in (
        (result, "speedup"),
        (result.scenario, "run"),
        (result.scenario.workload, "name"),
        (swept, "path"),
        (written, "path"),
    ):
        with pytest.raises((pydantic.ValidationError, AttributeError)):
            setattr(answer, name, None)


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
                name=f"ring, {workers} workers", scaling="weak", result=result, usd_per_hour=3.6 * workers, usd_per_million_samples=cost,
                time_s=time_s, cost_usd=cost, confidence=float(workers > 1), meets=workers > 1,
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
    assert Cells(told._repr_html_()).cells[0] == "Two workers do it. Surely."
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
    for text in (hostile._repr_html_(), scenario._repr_html_(), html_of([hostile, result], name), html_of_rows([{name: name}] * 2, name)):
        seen = Cells(text)
        assert seen.tags <= {"table", "caption", "tr", "th", "td"}
        assert all(len(cell) <= 1000 for cell in seen.cells)
        assert not re.search("[\u202a-\u202e\u2066-\u2069\x00]", text)
        assert "\n" not in text


@given(
    st.lists(st.dictionaries(st.text(min_size=1, max_size=9), st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none())))
)
def test_any_rows_are_a_table_and_nothing_else(rows):
    text = html_of_rows(rows, "Any")
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
    assert Cells(html_of_rows([row], "Values")).cells == [
        "Values", "many", "123,456", "rate", "22,687", "share", "0.12346", "yes", "yes", "tiny", "1.5e-07",
    ]  # fmt: skip


def test_whole_numbers_stay_whole_beside_missing_ones():
    frame = frame_of_rows([{"a": 1, "b": 1.5, "c": None, "d": "x"}, {"a": None, "b": 2, "c": None}])
    assert frame.dtypes.astype(str)[["a", "b", "c"]].tolist() == ["Int64", "float64", "float64"]


def test_every_column_is_documented():
    page = (ROOT / "docs" / "metrics.md").read_text()
    section = page[page.index("## As a table") : page.index("## Cost")]
    named = re.findall(r"`([a-z0-9_]+)`", "\n".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `")))
    assert named == list(COLUMNS)


# -- sweep, report, round trip ---------------------------------------------------------


def test_sweep_says_what_it_cannot_vary():
    with pytest.raises(InputError, match=r"must be a list of values"):
        paceline.sweep("ring", {"cluster.use": "dgx-2"})


def test_a_sweep_in_a_file_is_read_back_as_it_was(tmp_path):
    out = tmp_path / "swept.ndjson"
    swept = paceline.sweep("ring", {"strategy.workers": [1, 2]}, settings=SHORT, out=out, jobs=1)
    read = paceline.read_results(str(out))
    assert read.results == tuple(swept)
    pd.testing.assert_frame_equal(read.to_frame(), swept.to_frame())
    assert Cells(read._repr_html_()).cells[0] == "Results of 2 scenarios."
    assert type(read.results[0]).model_validate_json(swept[0].to_json()) == swept[0]


def test_a_report_of_anything_with_results(result, swept, tmp_path):
    one, two = tmp_path / "one.ndjson", tmp_path / "two.ndjson"
    one.write_text(result.to_json() + "\n")
    two.write_text("".join(its.to_json() + "\n" for its in swept))
    read = paceline.read_results(two)
    for source, rows in ((result, 1), (swept, 6), ([result, *swept], 7), (str(one), 1), ([one, two], 7), (read, 6)):
        written = paceline.report(source, tmp_path / "page.html", what_ifs=False)
        assert written.path.stat().st_size == written.bytes > 1e6
        assert len(written.to_frame()) == rows
        assert str(written.path) in Cells(written._repr_html_()).cells


def test_clusters_show_their_price():
    cluster = Cluster.model_validate({"name": "lab", "inter_node": {"bandwidth": "1 GB/s"}, "price": {"usd_per_node_hour": 2.5}})
    assert cluster.to_frame()["price.usd_per_node_hour"].tolist() == [2.5]


def test_failed_scenarios_are_told_in_the_report(result, tmp_path):
    failure = Failure(scenario_hash="0" * 16, scenario=result.scenario, failed=Failed(kind="DeadlockError", text="all wait"))
    written = paceline.report(paceline.Sweep(None, (result, failure)), tmp_path / "page.html", what_ifs=False)
    assert "1 of 2 scenarios failed: scenario 2: all wait" in written.notes[0]
    assert "1 of 2 scenarios failed" in written.path.read_text()
    assert written.to_frame()["failed"].tolist() == ["", "DeadlockError: all wait"]


@pytest.mark.parametrize("source", [7, [7], [None], {"a": 1}, Single()])
def test_a_report_says_what_it_cannot_be_of(source, tmp_path):
    with pytest.raises(InputError, match=r"source: must be results, a sweep, a plan or results files, not "):
        paceline.report(source, tmp_path / "page.html")


def test_a_report_does_not_replace_what_it_reads(result, tmp_path):
    results = tmp_path / "results.ndjson"
    results.write_text(result.to_json() + "\n")
    with pytest.raises(InputError, match="is one of the results files"):
        paceline.report(results, results)
    assert paceline.read_results(results).results == (result,)


# -- calibrate -------------------------------------------------------------------------

MEASURED = ROOT / "tests" / "calibrate" / "data" / "cnn-cpu-step-20261121T094433.ndjson"


def test_calibrate_fits_what_was_measured_and_writes_it(tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr("calibrate.profiling.profile_runs", lambda *words, **options: asked.update(options, words=words) or [MEASURED])
    out = tmp_path / "workloads" / "mine.toml"
    workload = paceline.calibrate("model.py:build", name="mine", batches=(64, 16), runs=1, measurements=tmp_path, out=out)
    assert isinstance(workload, paceline.Workload)
    assert asked["words"] == ("model.py:build", "mine")
    assert (asked["batches"], asked["runs"], asked["custom"], asked["folder"]) == ([16, 64], 1, False, tmp_path)
    assert workload.provenance["command"] == "paceline.calibrate('model.py:build', name='mine')"
    assert paceline.load("ring", {"workload.use": str(out)}).workload.forward == workload.forward
    with pytest.raises(pydantic.ValidationError):
        workload.apply_s = 0.0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"precision": "float8"}, "precision: 'float8' must be 'float32' or 'mixed_float16'"),
        ({"batches": "16,32"}, "batches: '16,32' must be a list of batch sizes, such as [16, 32, 64]"),
        ({"batches": [16]}, "at least two different batch sizes"),
        ({"steps": 1}, "must be at least 5"),
        ({"runs": 0}, "must be at least 1"),
        ({"python": "/no/such/python"}, "cannot be run"),
        ({"out": "/proc/no/such/folder.toml"}, "out '/proc/no/such/folder.toml': cannot be written"),
    ],
)
def test_calibrate_says_what_it_cannot_do(options, says, tmp_path):
    builder = tmp_path / "model.py"
    builder.write_text("def build(): ...")
    with pytest.raises(InputError, match=re.escape(says)):
        paceline.calibrate(f"{builder}:build", name="mine", measurements=tmp_path / "raw", **options)


# -- plan ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "there is no goal"),
        ({"target_throughput": "fast"}, "must be a number of samples over a time"),
        ({"target_throughput": 100, "clusters": ["nonsense"]}, "nonsense"),
        ({"target_throughput": 100, "over": {"run.seed": 3}}, "over: {'run.seed': 3} must be keys with lists of values"),
        ({"target_throughput": 100, "clusters": "ethernet-10g"}, "clusters: 'ethernet-10g' must be a list of names"),
        ({"target_throughput": 100, "workers": 8}, "workers: 8 must be a range such as '1..64', or a list"),
        ({"target_throughput": 100, "scaling": "sideways"}, "scaling: 'sideways' must be 'weak', 'strong' or 'both'"),
        ({"target_throughput": 100, "confidence": "high"}, "confidence: 'high' must be a number"),
        ({"samples": "1e6", "deadline": "12 h"}, "samples: '1e6' must be a number"),
        ({"samples": 1e6, "budget": "5 USD"}, "has no price with a source"),
    ],
)
def test_plan_says_what_it_cannot_do(options, says):
    with pytest.raises(InputError, match=re.escape(says)):
        paceline.plan("ring", settings=SHORT, jobs=1, **options)


def test_a_plan_for_a_workload_of_ones_own():
    own = paceline.load(scenario_table()).workload  # a step of 10 samples takes 6.5 ms alone: 1,538 samples/s
    settings = {"workload": own, "workload.batch_per_replica": 10, "run.replications": 19, "run.steps": 5}
    found = paceline.plan("ring", target_throughput=2000, workers=[1, 2, 4], settings=settings, jobs=1)
    assert isinstance(found, paceline.Plan)
    assert found.chosen.result.scenario.workload.name == "plain"
    assert found.feasible
    assert found.chosen.result.replicas == 2
