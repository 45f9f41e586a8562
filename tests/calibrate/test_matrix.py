"""A matrix of testbed settings: read, split, measured once, predicted, judged. No cluster is started here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.testbed import as_measured

import calibrate.validation.running as running
from calibrate.testbed.readings import Readings
from calibrate.testbed.setting import TestbedSetting, TestbedVariable
from calibrate.validation.matrix import Matrix, read_matrix, with_models
from calibrate.validation.running import measure_matrix, validate_matrix
from paceline.reporting.validation import as_data
from simulator.base.errors import CalibrationError, InputError, PacelineWarning, ScenarioError

pytestmark = pytest.mark.usefixtures("fits_shared")

FIT = """
[[fit]]
mode = "between-graph"
workers = 1
servers = 1
link = { bandwidth = "400 Mbit/s" }
model = ["ladder-1mb/16", "ladder-4mb"]
compute = { mean = "20 ms" }
steps = 10
"""
HELD_OUT = """
[[held_out]]
group = "servers"
mode = "between-graph"
workers = [2, 3]
servers = 1
link = { bandwidth = "1 Gbit/s" }
model = "ladder-1mb"
compute = { mean = "50 ms" }
steps = 10
"""


def matrix_of(folder: Path, text: str) -> Matrix:
    path = folder / "m.toml"
    path.write_text(text, encoding="utf-8")
    return read_matrix(path)


@pytest.mark.parametrize("name", ["quick", "development", "first", "headline"])
def test_the_matrices_that_come_along_hold_nothing_out_that_they_fit(name: str) -> None:
    matrix = read_matrix(Path("models/matrices") / f"{name}.toml")
    fitted = {setting.kind_of_run for setting in matrix.fit}
    assert not fitted & {one.setting.kind_of_run for one in matrix.held_out}
    assert all(one.workers <= (5 if one.mode == "ring" else 2) for one in matrix.fit)
    assert all(one.setting.workers > 1 for one in matrix.held_out)


def test_the_headline_was_never_developed_on() -> None:
    headline = {one.setting.kind_of_run for one in read_matrix(Path("models/matrices/headline.toml")).held_out}
    others = {one.setting.kind_of_run for name in ("development", "first", "quick") for one in _matrix(name).held_out}
    assert len(headline) >= 12
    assert not headline & others


def test_a_matrix_takes_every_model_that_the_testbed_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def describe(model: str, python: str | None, batch: int) -> tuple[TestbedVariable, ...]:
        asked.append((model, batch))
        return (TestbedVariable(name="kernel", shape=(3, 4), ready=1.0),)

    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "net.py").write_text("def build(): ...", encoding="utf-8")
    (folder / "small.toml").write_text(
        'name = "small"\nforward = {base = "1 ms", per_sample = "0 s"}\nbackward = {base = "2 ms", per_sample = "0 s"}\n'
        '[[variables]]\nname = "table"\nsize = "4000 B"\ncreation_index = 0\nready = 1.0\n',
        encoding="utf-8",
    )
    path = folder / "m.toml"
    models = '["net.py:build", "cnn-cpu", "small.toml"]'
    part = f'mode = "async"\nservers = 1\nmodel = {models}\nbatch = 8\n'
    path.write_text(f"[[fit]]\nworkers = 1\n{part}[[held_out]]\nworkers = 2\n{part}", encoding="utf-8")
    read = read_matrix(path)
    assert [one.setting.is_built for one in read.held_out] == [False, True, True]
    monkeypatch.setattr("calibrate.validation.matrix.describe_model", describe)
    matrix = with_models(read)
    assert asked == [(f"{folder / 'net.py'}:build", 8)]  # once, by a path that means the same from anywhere
    function, workload, own = (one.setting for one in matrix.held_out)
    assert function.model_name == "net.py:build"
    assert "net.py:build" in function.label
    assert str(folder) not in function.label
    assert len(workload.variables) == 10
    assert workload.batch == 8
    assert own.parameter_bytes == 4000
    assert own.compute.mean_s == pytest.approx(0.003)


def test_a_model_that_is_missing_is_named_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"m.toml: fit\[0\]: model: there is no workload named 'resnet'"):
        matrix_of(tmp_path, FIT.replace('["ladder-1mb/16", "ladder-4mb"]', '"resnet"'))
    with pytest.raises(InputError, match=r"m.toml: fit\[0\]: model: .*none.py"):
        matrix_of(tmp_path, FIT.replace('["ladder-1mb/16", "ladder-4mb"]', '"none.py:build"'))


def _matrix(name: str) -> Matrix:
    return read_matrix(Path("models/matrices") / f"{name}.toml")


def test_lists_stand_for_all_combinations(tmp_path: Path) -> None:
    matrix = matrix_of(tmp_path, FIT + HELD_OUT)
    assert [one.model for one in matrix.fit] == ["ladder-1mb/16", "ladder-4mb"]
    assert [(one.group, one.setting.workers) for one in matrix.held_out] == [("servers", 2), ("servers", 3)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FIT + FIT.replace("[[fit]]", "[[held_out]]"), "remove it from one of them"),
        (FIT + FIT.replace("[[fit]]", "[[held_out]]").replace("steps = 10", "steps = 11"), "remove it from one of them"),
        (FIT + "[[held]]\n", "held: is not a key of a matrix"),
        (FIT.replace("workers = 1", "workers = 0"), r"m.toml: fit\[0\]: workers: 0 must be at least 1"),
        (FIT.replace("servers = 1", "servers = 0"), "takes at least one server"),
        (FIT.replace('"400 Mbit/s"', '"400"'), "bandwidth"),
        (FIT.replace('"400 Mbit/s"', '"400 mbit/s"'), r"fit\[0\]: link.bandwidth: '400 mbit/s' must be .*; did you mean \"400 Mbit/s\"\?"),
        (FIT.replace('["ladder-1mb/16", "ladder-4mb"]', '"ladder-5mb"'), "ladder-5mb"),
        ("fit = 3\n", r"must be tables, written as \[\[fit\]\]"),
        (HELD_OUT, "fit"),
        ("repeats = 0\n" + FIT, "repeats"),
        (FIT + HELD_OUT.replace("servers", "g" * 101, 1), r"held_out\[0\]: group: 'g+\.\.\.' must have at most 100 characters$"),
        (FIT + HELD_OUT.replace('"servers"', '""', 1), r"held_out\[0\]: group: '' must not be empty$"),
        (FIT + HELD_OUT.replace('"servers"', "[1]", 1), r"held_out\[0\]: group: must be text in quotes, not a list$"),
    ],
)
def test_faults_of_a_matrix_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said) as caught:
        matrix_of(tmp_path, text)
    assert "m.toml" in str(caught.value)


@pytest.fixture
def measured(tmp_path: Path) -> tuple[Matrix, Path]:
    """A matrix whose settings have all been measured, as a machine with known parameters would."""
    matrix = matrix_of(tmp_path, "repeats = 2\nseed = 4\n" + FIT + HELD_OUT)
    for setting in matrix.settings:
        as_measured(tmp_path, setting, seed=4)
    return matrix, tmp_path


def test_what_is_measured_is_not_measured_again(measured: tuple[Matrix, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, folder = measured
    monkeypatch.setattr(running, "measure_setting", _refuse)
    assert [one.setting for one in measure_matrix(matrix, folder)] == list(matrix.settings)


def test_other_repeats_another_seed_or_a_cut_file_are_measured_again(
    measured: tuple[Matrix, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix, folder = measured
    asked: list[str] = []

    def measure(setting: TestbedSetting, where: Path, **_: Any) -> Readings:
        asked.append(setting.label)
        return as_measured(where, setting, seed=4)

    monkeypatch.setattr(running, "measure_setting", measure)
    cut = next(folder.glob(f"*{matrix.fit[0].hash}*"))
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    measure_matrix(matrix, folder)
    assert asked == [matrix.fit[0].label]
    asked.clear()
    measure_matrix(matrix.model_copy(update={"seed": 5}), folder)
    assert asked == [one.label for one in matrix.settings]


def test_held_out_settings_are_predicted_from_the_fit_alone(measured: tuple[Matrix, Path]) -> None:
    matrix, folder = measured
    found, platform = validate_matrix(matrix, folder, replications=19)
    assert [row.fitted for row in found.rows] == [True, True, False, False]
    held_out = [row for row in found.rows if not row.fitted]
    assert all(abs(row.error) < 0.02 for row in held_out)
    assert all(row.staleness_distance is not None for row in held_out)
    assert all(row.baselines["max-min"] > 0 for row in found.rows)
    # what is held out takes no part: other values of it change nothing that was fitted
    for one in matrix.held_out:
        as_measured(folder, one.setting, {**_slow()}, seed=4)
    again, fitted_again = validate_matrix(matrix, folder, replications=19)
    assert fitted_again.parameters == platform.parameters
    assert all(row.error > 0.1 for row in again.rows if not row.fitted)


def _slow() -> dict[str, float]:
    from support.testbed import TRUE

    return TRUE | {"session_s": 0.1}


def test_a_real_model_needs_a_run_alone(measured: tuple[Matrix, Path]) -> None:
    matrix, folder = measured
    table = matrix.held_out[0].setting.model_dump(mode="json") | {"compute": {"kind": "real"}}
    real = TestbedSetting.model_validate(table)
    with pytest.raises(CalibrationError, match=r"add one to \[\[fit\]\]"):
        running.compute_of(real, measure_matrix(matrix, folder)[:2])


@pytest.mark.filterwarnings("default::simulator.base.errors.PacelineWarning")
def test_a_setting_that_fails_once_is_run_again_and_one_that_fails_twice_is_left_out_and_shown(
    measured: tuple[Matrix, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The injected fault is one that TensorFlow had: gone at the next try in the first setting, there again in the third."""
    matrix, folder = measured
    whole, _ = validate_matrix(matrix, folder, replications=19)
    once, never = matrix.fit[0], matrix.held_out[0].setting
    for setting in (once, never):
        next(folder.glob(f"*{setting.hash}*")).unlink()
    tries: list[str] = []

    def measure(setting: TestbedSetting, where: Path, **_: Any) -> Readings:
        tries.append(setting.label)
        if setting == never or tries.count(setting.label) == 1:
            raise CalibrationError("worker 1 ended with code 1: RecvFromRemoteAsync is cancelled")
        return as_measured(where, setting, seed=4)

    monkeypatch.setattr(running, "measure_setting", measure)
    with pytest.warns(PacelineWarning, match="failed and runs once more: worker 1 ended"):
        shown, _ = validate_matrix(matrix, folder, replications=19)
    assert tries == [once.label] * 2 + [never.label] * 2
    assert shown.rows == tuple(row for row in whole.rows if row.name != never.label)
    assert shown.notes[0].startswith(f"1 of 4 settings could not be measured and is not scored: {never.label}.")
    (table,) = (table for table in shown.tables if table.name == "unmeasured")
    assert [row[:2] for row in table.rows] == [("servers", never.label)]
    assert "RecvFromRemoteAsync" in as_data(shown)["unmeasured"][never.label]
    assert not whole.notes


@pytest.mark.filterwarnings("default::simulator.base.errors.PacelineWarning")
def test_a_machine_on_which_nothing_can_be_measured_is_not_tried_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = matrix_of(tmp_path, FIT + HELD_OUT)
    tries: list[str] = []

    def fail(setting: TestbedSetting, *_: Any, **__: Any) -> Readings:
        tries.append(setting.label)
        raise CalibrationError("no space is left on the device")

    monkeypatch.setattr(running, "measure_setting", fail)
    with pytest.warns(PacelineWarning), pytest.raises(CalibrationError, match=r"3 settings in a row .* no space is left on the device"):
        measure_matrix(matrix, tmp_path)
    assert len(tries) == 2 * 3 < 2 * len(matrix.settings)


@pytest.mark.filterwarnings("default::simulator.base.errors.PacelineWarning")
def test_a_matrix_too_small_for_three_failures_in_a_row_says_why_nothing_was_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One setting is fitted and one held out, and neither can be measured."""
    text = FIT.replace('["ladder-1mb/16", "ladder-4mb"]', '"ladder-4mb"') + HELD_OUT.replace("[2, 3]", "2")
    monkeypatch.setattr(running, "measure_setting", _no_space)
    with pytest.warns(PacelineWarning), pytest.raises(CalibrationError, match=r"no setting of the fit could be measured; no space is left"):
        validate_matrix(matrix_of(tmp_path, text), tmp_path)


def _no_space(*_: Any, **__: Any) -> Readings:
    raise CalibrationError("no space is left on the device")


def _refuse(*_: Any, **__: Any) -> Readings:
    raise AssertionError("nothing was to be measured")


def test_runs_of_two_machines_are_not_mixed(measured: tuple[Matrix, Path]) -> None:
    matrix, folder = measured
    other = next(folder.glob(f"*{matrix.held_out[0].setting.hash}*"))
    other.write_text(other.read_text(encoding="utf-8").replace('"cores": 2', '"cores": 4'), encoding="utf-8")
    with pytest.raises(CalibrationError, match="measured with cores 4"):
        validate_matrix(matrix, folder, replications=19)
