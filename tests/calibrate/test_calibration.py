"""The calibrator as a library: what each function takes, gives, writes and refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.profiles import host_sample

import paceline
from calibrate.fit.step import fit_workload
from calibrate.probing import keeping
from simulator.base.errors import CalibrationError, CalibrationWarning, InputError, PacelineWarning
from simulator.catalogue.loading import load_cluster, load_scenario, load_workload

DATA = Path(__file__).parent / "data"
RUNS = sorted(DATA.glob("cnn-cpu-step-*.ndjson"))
CONFIG = '{"cluster": {"worker": ["h1:2222", "h2:2222"], "ps": ["h3:2222"]}}'


def test_stored_measurements_are_fitted_again(tmp_path: Path) -> None:
    out = tmp_path / "cnn.toml"
    workload = paceline.calibrate(name="cnn", from_measurements=RUNS, out=out)
    assert workload.uncertainty == fit_workload(RUNS, "cnn").uncertainty
    assert load_workload(out).forward == workload.forward
    assert workload.provenance["command"] == f"paceline.calibrate({[str(one) for one in RUNS]!r}, name='cnn')"
    assert paceline.calibrate(name="cnn", from_measurements=RUNS[:1], command="by hand").provenance["command"] == "by hand"


def test_what_was_accepted_though_disturbed_is_warned_about(synthetic: Any, tmp_path: Path) -> None:
    quick, slow = (synthetic.steps(synthetic.Truth(apply_s=apply_s), name=f"{apply_s}.ndjson") for apply_s in (1e-3, 9e-3))
    with pytest.raises(CalibrationError, match=r"the runs are at different levels.*, or accept the measurements:\n") as refusal:
        paceline.calibrate(name="both", from_measurements=[quick, slow])
    files = [str(quick), str(slow)]
    assert refusal.value.copyable == f"paceline.calibrate(name='both', from_measurements={files!r}, accept_disturbed=True)"
    with pytest.raises(CalibrationError) as refusal:
        paceline.calibrate(name="both", from_measurements=files, out=tmp_path / "b.toml", command="paceline calibrate")
    given = " ".join(f"--from-measurements {file}" for file in files)
    assert refusal.value.copyable == f"paceline calibrate --name both {given} --out {tmp_path / 'b.toml'} --accept-disturbed"
    with pytest.warns(CalibrationWarning, match=r"the runs are at different levels.*; stop what else runs here and calibrate again"):
        workload = paceline.calibrate(name="both", from_measurements=[quick, slow], accept_disturbed=True)
    assert "different levels" in workload.provenance["disturbed"]


def test_processes_at_once_are_left_out_with_a_warning_where_they_cannot_be(synthetic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = synthetic.steps()
    monkeypatch.setattr("calibrate.calibration.profile_runs", lambda *_, **__: [run])
    with pytest.warns(PacelineWarning, match=r"`at_once=5000` is left out: 5000 simultaneous processes need as many cores"):
        workload = paceline.calibrate("model.py:build", name="x", at_once=5000)
    assert workload.run_to_run_shared is None


def test_processes_at_once_are_measured_after_the_runs_and_named_after_the_first(synthetic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run, asked = synthetic.steps(), {}
    monkeypatch.setattr("calibrate.calibration.profile_runs", lambda *_, **__: [run])
    monkeypatch.setattr("calibrate.calibration.obstacle_to_at_once", lambda *_: "")
    monkeypatch.setattr("calibrate.calibration.profile_at_once", lambda *words, **options: asked.update(options, words=words) or [])
    paceline.calibrate(step="model.py:step", name="x", at_once=2, launches=7, batches=[4, 2])
    assert asked["words"] == ("model.py:step", "x")
    assert (asked["processes"], asked["launches"], asked["out"], asked["custom"], asked["batches"]) == (2, 7, run, True, [2, 4])


@pytest.mark.parametrize("way", [{}, {"step": "a.py:b"}, {"from_measurements": RUNS}])
def test_a_calibration_has_one_source(way: dict[str, Any]) -> None:
    given = ("m.py:f",) if way else ()
    with pytest.raises(InputError, match="give one of `model`, `step` and `from_measurements`"):
        paceline.calibrate(*given, name="x", **way)
    with pytest.raises(InputError, match="`at_once=2`: has no effect"):
        paceline.calibrate(name="x", from_measurements=RUNS, at_once=2)


def test_a_link_is_measured_fitted_and_written(synthetic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, asked = synthetic.links(50e-6, 1e9), {}
    monkeypatch.setattr("calibrate.profiling.profile_link", lambda name, **options: asked.update(options, name=name) or file)
    cluster = paceline.calibrate_link("lab", sizes=[1024, 4096], measurements=tmp_path, out=tmp_path / "lab.toml")
    assert (asked["name"], asked["sizes"], asked["peer"], asked["folder"]) == ("lab", [1024, 4096], None, tmp_path)
    assert cluster.inter_node.bandwidth_bytes_per_s == pytest.approx(1e9, rel=0.1)
    assert cluster.provenance["command"] == "paceline.calibrate_link('lab')"
    assert load_cluster(tmp_path / "lab.toml").inter_node == cluster.inter_node


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: paceline.calibrate("m.py:f", name="../x"), "`name`: '../x' must be letters, digits"),
        (lambda: paceline.calibrate("m.py:f", name="x", at_once=0), "`at_once`: 0 must be a whole number from 1 on"),
        (lambda: paceline.calibrate_link("x", peer="nowhere"), "`peer`: 'nowhere': must be HOST:PORT"),
        (lambda: paceline.calibrate_link("x", sizes=[1024]), "`sizes` must list at least two different sizes"),
        (lambda: paceline.calibrate_link("x", rounds=1), "`rounds`: 1 must be a whole number from 2 on"),
        (lambda: paceline.serve_link("here"), "`address`: 'here': must be HOST:PORT"),
        (lambda: paceline.read_profiles("logs"), "`profiles`: 'logs' must be log directories by the samples of a step"),
        (lambda: paceline.read_profiles({}), "`profiles`: give at least one log directory"),
        (lambda: paceline.calibrate_profile(7, name="x"), "`profiles`: 7 must be log directories"),
        (lambda: paceline.calibrate_profile({32: "none"}, name="x", out="/proc/x.toml"), "'/proc/x.toml': cannot be written"),
        (lambda: paceline.scenario_of_tf_config(7, workload="cnn-cpu", batch=32), "`tf_config`: 7 must be a file, JSON, 'env'"),
        (lambda: paceline.scenario_of_tf_config(CONFIG, workload="cnn-cpu", batch=0), "`batch=0`: must be at least 1"),
        (lambda: paceline.scenario_of_tf_config(CONFIG, workload="cnn-cpu", batch=8, out=__file__), "exists already; overwrite it"),
    ],
)
def test_what_cannot_be_used_is_said_by_the_arguments_name(call: Callable[[], object], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)) as refusal:
        call()
    assert "--" not in str(refusal.value)


def test_a_tf_config_becomes_a_scenario_and_a_file(tmp_path: Path) -> None:
    tasks = paceline.read_tf_config(CONFIG)
    assert tasks.hosts == ["h1", "h2", "h3"]
    for given in (CONFIG, tasks):
        out = tmp_path / f"{type(given).__name__}.toml"
        scenario = paceline.scenario_of_tf_config(given, workload="cnn-cpu", batch=32, cluster="ethernet-10g", out=out)
        assert (scenario.replicas, scenario.servers, scenario.batch, scenario.cluster.name) == (2, 1, 32, "ethernet-10g")
        assert load_scenario(out).strategy == scenario.strategy


def test_profiles_are_read_once_and_fitted(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow.tsl", reason="TensorFlow is not installed", exc_type=ImportError)
    file = host_sample().write(tmp_path / "lab.xplane.pb")
    listed = tmp_path / "variables.json"
    listed.write_text(json.dumps([{"name": "net/first/kernel", "shape": [100, 50]}, {"name": "net/head/kernel", "shape": [50, 10]}]))
    profiled = paceline.read_profiles({10: file})
    frame = profiled.to_frame()
    assert frame["batch"].tolist() == [10]
    assert frame["mean_s"].tolist() == pytest.approx([1e-3], rel=0.01)
    assert frame["forward_s"].tolist() == pytest.approx([300e-6], rel=0.01)
    steps, parts, operations = profiled.tables()
    assert [row[0] for row in steps.rows] == [row[0] for row in parts.rows] == [10]
    assert {row[2] for row in operations.rows} == {"computes"}
    assert profiled._repr_html_().count("<table>") == 3
    workload = paceline.calibrate_profile(profiled, name="net", variables=listed, out=tmp_path / "net.toml")
    assert workload.forward == paceline.calibrate_profile({10: [file]}, name="net", variables=listed).forward
    assert load_workload(tmp_path / "net.toml").backward == workload.backward
    with pytest.raises(InputError, match="do not contain the sizes of the variables; add `model`, `checkpoint` or `variables`"):
        paceline.calibrate_profile(profiled, name="net")


@pytest.mark.parametrize(("measured", "says"), [(True, "the measured part is kept in"), (False, "nothing had been measured")])
def test_ctrl_c_says_what_is_kept_of_a_measurement(synthetic: Any, measured: bool, says: str) -> None:
    file = synthetic.steps() if measured else synthetic.folder / "none.ndjson"
    with pytest.raises(KeyboardInterrupt, match=says), keeping(file):
        raise KeyboardInterrupt


def test_ctrl_c_names_all_files_of_several_processes_and_removes_those_without_anything(synthetic: Any) -> None:
    first = synthetic.steps()
    second, empty = first.with_name("second.ndjson"), first.with_name("empty.ndjson")
    second.write_bytes(first.read_bytes())
    empty.write_bytes(first.read_bytes().splitlines(keepends=True)[0])
    with (
        pytest.raises(KeyboardInterrupt, match=re.escape(f"the measured part is kept in {first} and {second}")),
        keeping(first, empty, second),
    ):
        raise KeyboardInterrupt
    assert second.exists()
    assert not empty.exists()
