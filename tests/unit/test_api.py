"""Paceline as a library: what its functions take, refuse in a sentence, and answer with: frozen and typed."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pydantic
import pytest
from support.notebook import Cells
from support.scenarios import scenario_table

import paceline
from simulator.base.errors import InputError, ScenarioError
from simulator.results.results import Failed, Failure
from simulator.spec.cluster import Cluster
from simulator.strategies.data_parallel import Single

ROOT = Path(__file__).parents[2]
SHORT = {"run.steps": 10, "run.replications": 3}


@pytest.fixture(scope="module")
def result():
    return paceline.simulate(paceline.load(scenario_table()))


@pytest.fixture(scope="module")
def swept():
    table = scenario_table(strategy={"kind": "parameter-server", "mode": "async", "workers": 2})
    return paceline.sweep(table, {"strategy.workers": [1, 2, 4], "run.seed": [1, 2]}, jobs=1)


def test_every_public_name_is_there():
    for name in paceline.__all__:
        assert callable(getattr(paceline, name))
        assert name in dir(paceline)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = paceline.nonsense


@pytest.mark.slow
def test_importing_costs_nothing_and_simulating_needs_no_table_or_figure_library():
    code = """
import paceline, sys
dir(paceline)
print(sorted({'pandas', 'plotly', 'scipy', 'tensorflow', 'numpy', 'pydantic', 'joblib', 'simpy', 'jinja2'} & set(sys.modules)))
paceline.load('ring')
paceline.simulate
print(sorted({'pandas', 'plotly', 'tensorflow'} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n[]\n"


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
    assert again.to_json() == result.to_json()


@pytest.mark.parametrize("scenario", [None, 7, ["ring"], Single()])
@pytest.mark.parametrize("function", [paceline.load, paceline.simulate, lambda its: paceline.sweep(its, {"run.seed": [1]})])
def test_what_is_no_scenario_is_said_in_a_sentence(function, scenario):
    with pytest.raises(InputError, match=r"^`scenario`: .*'ring'"):
        function(scenario)


@pytest.mark.parametrize("settings", [None, 7, "run.seed=1", ["run.seed=1"], [("run.seed",)], {7: 1}])
def test_settings_that_are_no_pairs_are_said_in_a_sentence(settings):
    with pytest.raises(InputError, match=r"^`settings`: .*key"):
        paceline.load("ring", settings)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"over": None}, "`over`: None"),
        ({"over": {"run.seed": 8}}, "`over`: {'run.seed': 8}"),
        ({"over": [("run.seed", [1])]}, "lists of values"),
        ({"over": {"run.seed": []}}, "`over`: run.seed: "),
        ({"jobs": "2"}, "`jobs`: '2'"),
        ({"jobs": 1.5}, "`jobs`: 1.5"),
        ({"jobs": True}, "`jobs`: true"),
        ({"backend": "slurm"}, "`backend`: 'slurm' must be 'local', 'dask' or 'ray'"),
        ({"scheduler": 8786}, "`scheduler`: 8786"),
        ({"out": 7}, "`out`: 7"),
        ({"progress": "yes"}, "`progress`: 'yes'"),
    ],
)
def test_a_sweep_says_what_it_cannot_take(options, says):
    with pytest.raises(InputError, match=re.escape(says)):
        paceline.sweep("ring", **{"over": {"run.seed": [1]}, "settings": SHORT, "jobs": 1, **options})


def test_results_are_compared_and_nothing_else(result):
    assert paceline.compare(result, result).ratio.mean == 1.0
    with pytest.raises(InputError, match=r"`theirs`: 'ring'"):
        paceline.compare(result, "ring")
    with pytest.raises(InputError, match="`ours`: "):
        paceline.compare(result.model_dump(), result)


def test_settings_follow_the_scenario_and_what_is_varied():
    alone = paceline.simulate("ring", {**SHORT, "strategy.workers": 2})
    (swept,) = paceline.sweep("ring", {"strategy.workers": [2]}, SHORT, jobs=1)
    assert swept.throughput_samples_per_s == alone.throughput_samples_per_s


def test_numbers_of_numpy_are_numbers():
    swept = paceline.sweep("ring", {"strategy.workers": np.array([1, 2])}, settings=SHORT, jobs=np.int64(1))
    assert [result.replicas for result in swept] == [1, 2]
    assert [type(result.scenario.strategy.workers) for result in swept] == [int, int]


NEEDED = {
    "load": {"scenario": "ring"},
    "simulate": {"scenario": "ring"},
    "compare": {},  # two results
    "sweep": {"scenario": "ring", "over": {"run.seed": [1]}},
    "plan": {"scenario": "ring"},
    "report": {"source": []},
    "calibrate": {"model": "model.py:build", "name": "mine"},
    "calibrate_profile": {"profiles": {32: "logs"}, "name": "mine"},
    "calibrate_traced_links": {"profiles": {32: "logs"}, "name": "mine"},
    "calibrate_link": {"name": "mine"},
    "calibrate_server": {"name": "mine"},
    "observe": {"scenario": "ring"},
    "preview": {"scenario": "ring"},
    "schema": {"format": "cluster"},
    "validate": {"scenario": "ring", "measured": "points.csv"},
    "refit": {"scenario": "ring", "measured": "points.csv"},
    "read_profiles": {"profiles": {32: "logs"}},
    "read_tf_config": {"tf_config": "env"},
    "scenario_of_tf_config": {"tf_config": "env", "workload": "cnn-cpu", "batch": 32},
    "serve_link": {"address": "127.0.0.1:2222"},
}


@pytest.mark.parametrize("name", NEEDED)
def test_every_argument_is_looked_at_and_named(name, result):
    function = getattr(paceline, name)
    needed = NEEDED[name] or dict.fromkeys(("ours", "theirs"), result)
    for argument in inspect.signature(function).parameters:
        with pytest.raises(InputError, match=f"^`{argument}`: .*must be "):
            function(**{**needed, argument: object()})


def test_a_sweep_does_not_replace_its_scenario(tmp_path):
    mine, out = tmp_path / "mine.toml", tmp_path / "new" / "folder" / "r.ndjson"
    mine.write_bytes((ROOT / "models" / "scenarios" / "ring.toml").read_bytes())
    before = mine.read_bytes()
    with pytest.raises(InputError, match=r"mine\.toml.* is the input file"):
        paceline.sweep(mine, {"run.seed": [1]}, settings=SHORT, out=mine, force=True, jobs=1)
    with pytest.raises(InputError, match=r"mine\.toml.* is the input file"):
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


# -- sweep, report, round trip ---------------------------------------------------------


def test_sweep_says_what_it_cannot_vary():
    with pytest.raises(InputError, match=r"list of values"):
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
    assert "1 of 2 scenarios" in written.notes[0]
    assert "all wait (scenario 2)" in written.notes[0]
    assert "1 of 2 scenarios failed" in written.path.read_text()
    assert written.to_frame()["failed"].tolist() == ["", "DeadlockError: all wait"]


@pytest.mark.parametrize("source", [7, [7], [None], {"a": 1}, Single()])
def test_a_report_says_what_it_cannot_be_of(source, tmp_path):
    with pytest.raises(InputError, match=r"`source`: "):
        paceline.report(source, tmp_path / "page.html")


def test_a_report_does_not_replace_what_it_reads(result, tmp_path):
    results = tmp_path / "results.ndjson"
    results.write_text(result.to_json() + "\n")
    with pytest.raises(InputError, match=r"results\.ndjson"):
        paceline.report(results, results)
    assert paceline.read_results(results).results == (result,)


# -- calibrate -------------------------------------------------------------------------

MEASURED = ROOT / "tests" / "calibrate" / "data" / "cnn-cpu-step-20261121T094433.ndjson"


@pytest.mark.slow
def test_calibrate_fits_what_was_measured_and_writes_it(tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr("calibrate.calibration.profile_runs", lambda *words, **options: asked.update(options, words=words) or [MEASURED])
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
        ({"precision": "float8"}, "`precision`: 'float8' must be 'float32', 'mixed_float16', 'mixed_bfloat16' or 'bfloat16'"),
        ({"batches": "16,32"}, "`batches`: '16,32'"),
        ({"batches": [16]}, "two different batch sizes"),
        ({"steps": 1}, "must be at least 5"),
        ({"runs": 0}, "must be at least 1"),
        ({"python": "/no/such/python"}, "cannot be run"),
        ({"out": "/proc/no/such/folder.toml"}, "'/proc/no/such/folder.toml': cannot be written"),
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
        ({}, "the goal is missing"),
        ({"target_throughput": "fast"}, "'fast'"),
        ({"target_throughput": 100, "clusters": ["nonsense"]}, "nonsense"),
        ({"target_throughput": 100, "over": {"run.seed": 3}}, "`over`: {'run.seed': 3}"),
        ({"target_throughput": 100, "clusters": "ethernet-10g"}, "`clusters`: 'ethernet-10g'"),
        ({"target_throughput": 100, "workers": 8}, "`workers`: 8 "),
        ({"target_throughput": 100, "scaling": "sideways"}, "`scaling`: 'sideways' must be 'weak', 'strong' or 'both'"),
        ({"target_throughput": 100, "confidence": "high"}, "`confidence`: 'high'"),
        ({"samples": "1e6", "deadline": "12 h"}, "`samples`: '1e6'"),
        ({"samples": 1e6, "budget": "5 USD"}, "no price"),
    ],
)
def test_plan_says_what_it_cannot_do(options, says):
    with pytest.raises(InputError, match=re.escape(says)):
        paceline.plan("ring", settings=SHORT, jobs=1, **options)


def test_a_plan_for_a_workload_of_ones_own():
    own = paceline.load(scenario_table()).workload  # a step of 10 samples takes 6.5 ms alone: 1,538 samples/s
    settings = {"workload": own, "workload.batch_per_replica": 10, "run.replications": 3, "run.steps": 5}
    found = paceline.plan("ring", target_throughput=2000, workers=[1, 2], settings=settings, confidence=0.5, jobs=1)
    assert isinstance(found, paceline.Plan)
    assert found.chosen.result.scenario.workload.name == "plain"
    assert found.feasible
    assert found.chosen.result.replicas == 2


# -- looked at closely, and what was for the command line alone ------------------------


def test_observe_is_simulate_with_a_trace_events_and_an_audit(tmp_path):
    seen = paceline.observe("ring", SHORT, trace=tmp_path / "t.json", tensorboard=tmp_path / "board", audit=True)
    alone = paceline.simulate("ring", SHORT)
    assert seen.result == alone
    assert "no_message_beats_its_link" in seen.laws
    assert seen.records["steps"] == 80  # 8 workers
    assert seen.bound
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert len(list(seen.tensorboard.iterdir())) == 1
    assert (seen.to_frame()["replicas"].tolist(), seen._repr_html_()) == ([8], seen.result._repr_html_())
    plain = paceline.observe("ring", SHORT)
    assert (plain.laws, plain.trace, plain.bound, plain.tensorboard) == ({}, None, "", None)


def test_preview_simulates_nothing():
    printed = paceline.preview("ring", {"strategy.workers": 3})
    assert len(printed.program.ranks) == 3
    assert printed.scenario == paceline.load("ring", {"strategy.workers": 3}).hash


@pytest.mark.slow
def test_a_plan_is_kept_and_reported_from_its_files(tmp_path):
    out = tmp_path / "p.ndjson"
    found = paceline.plan("ring", target_throughput=5000, workers=[1, 2], settings=SHORT, confidence=0.5, out=out, jobs=1)
    kept = tmp_path / "p.plan.json"
    assert kept.read_text() == found.to_json() + "\n"
    told = []
    written = paceline.report(out, plan=kept, tables=tmp_path / "tables", jobs=1, progress=lambda *progress: told.append(progress))
    assert written.path == tmp_path / "p.html"
    assert "plan.csv" in {file.name for file in written.tables}
    assert {what for _, _, what in told} == {"what-ifs"}
    of_itself = paceline.report(found, tmp_path / "itself.html", what_ifs=False)
    assert of_itself.notes[: len(found.notes)] == found.notes


def test_a_report_replaces_a_report_and_nothing_else(result, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("mine")
    with pytest.raises(InputError, match=r"page\.html.*`force=True`.*`out`"):
        paceline.report(result, page, what_ifs=False)
    assert page.read_text() == "mine"
    paceline.report(result, page, what_ifs=False, force=True)
    paceline.report(result, page, what_ifs=False)


def test_a_report_is_written_though_its_what_ifs_are_stopped(result, tmp_path, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("paceline.reporting.simulated.changes_of", stopped)
    with pytest.raises(paceline.StoppedReport, match="without what-ifs") as stop:
        paceline.report(result, tmp_path / "page.html")
    assert stop.value.report.path.is_file()
    assert "interrupted" in stop.value.report.notes[-1]


def test_what_failed_is_tried_again_where_that_is_asked_for(tmp_path, monkeypatch):
    from simulator.base.errors import DeadlockError

    def fails(scenario):
        raise DeadlockError("all wait")

    out = tmp_path / "r.ndjson"
    with monkeypatch.context() as patched:
        patched.setattr("paceline.sweeping.simulating.simulate", fails)
        assert len(paceline.sweep("ring", {"run.seed": [1, 2]}, settings=SHORT, out=out, jobs=1).failed) == 2
    assert len(paceline.sweep("ring", {"run.seed": [1, 2]}, settings=SHORT, out=out, jobs=1).failed) == 2
    assert not paceline.sweep("ring", {"run.seed": [1, 2]}, settings=SHORT, out=out, jobs=1, retry_failed=True).failed


@pytest.mark.slow
def test_the_catalogue_is_a_sequence_by_name_too():
    found = paceline.models()
    assert {entry.kind for entry in found} == {"workload", "cluster", "device", "input", "fault", "scenario"}
    assert found["ethernet-25g"].spec == paceline.load("ring").cluster
    assert found["ethernet-25g"].text.startswith("schema_version")
    assert found.to_frame()["name"].tolist() == [entry.name for entry in found]
    assert "<td>ethernet-25g</td>" in found._repr_html_()
    with pytest.raises(ScenarioError, match="did you mean ethernet-25g"):
        found["ethernet-25"]


@pytest.mark.slow
def test_schemas_by_name_and_all():
    assert set(paceline.schema()) >= {"scenario", "workload", "cluster", "device", "result"}
    assert paceline.schema("cluster") == paceline.schema()["cluster"]
    with pytest.raises(InputError, match=r"`format`: 'plan' must be 'scenario', 'workload', .*'result'"):
        paceline.schema("plan")


@pytest.mark.slow
def test_every_key_of_every_format_is_described():
    lacking = [
        f"{name}: {table['title']}.{key}"
        for name, schema in paceline.schema().items()
        for table in (schema, *schema["$defs"].values())
        for key, its in table.get("properties", {}).items()
        if not its.get("description", "").strip()
    ]
    assert not lacking
