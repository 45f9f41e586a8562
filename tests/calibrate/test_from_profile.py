"""``paceline calibrate --from-profile``: real profiles of known steps, and profiles made by hand."""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.needs import needs_tensorflow
from support.probes import run_script
from support.profiles import HOST, POOL, Sample, classes, gpu_sample, host_sample
from support.waiting import PATIENCE_S

from calibrate.fit.profile import BACKWARD_SHARE, fit_profiles
from calibrate.traces.profiles import Profiled, read_steps
from calibrate.traces.steps import StepsOfProfile, steps_of
from calibrate.traces.trace import uncovered_s
from calibrate.traces.variables import GradientOp, ModelVariable, ModelVariables, gradient_ops, readiness, variables_of
from calibrate.traces.xplane import Event, profile_files, read_profiles, role_of, trace_of
from simulator.base.errors import CalibrationError, InputError
from simulator.catalogue.loading import load_scenario, load_workload

pytestmark = [needs_tensorflow, pytest.mark.usefixtures("warm_probes")]

DATA = Path(__file__).parent / "data" / "profiles"
VARIABLES = DATA / "variables.json"
REAL = [("loop-32", 0.01), ("loop-256", 0.01), ("keras-64", 0.01)]
"""Profiles of real steps; ``walls.json`` has [step, begun, ended] of each by ``time.perf_counter``."""
PARTS = ("input_s", "forward_s", "backward_s", "apply_s", "collective_s")
NET = ModelVariables(
    (ModelVariable(name="net/first/kernel", shape=(100, 50)), ModelVariable(name="net/head/kernel", shape=(50, 10))), "test", "creation"
)


@functools.cache
def real(name: str) -> StepsOfProfile:
    return steps_of(trace_of(read_profiles(profile_files(DATA / name))[0]))


def made(sample: Sample, folder: Path) -> StepsOfProfile:
    return steps_of(trace_of(read_profiles([sample.write(folder / "lab.xplane.pb")])[0]))


def walls(name: str, marks: StepsOfProfile) -> np.ndarray:
    """Begin and end of the profiled steps by the wall clock, shape (steps, 2)."""
    rows = {int(number): (begun, ended) for number, begun, ended in json.loads((DATA / name / "walls.json").read_text())}
    return np.array([rows[step.number] for step in marks.steps])


@pytest.mark.parametrize(("name", "tolerance"), REAL)
def test_steps_last_as_long_as_the_wall_clock_says(name: str, tolerance: float) -> None:
    found = real(name)
    clock = walls(name, found)
    whole = np.array([step.whole_s for step in found.steps])
    # the callback's clock starts before the profiler does, which the first step cannot know
    first = 1 if name.startswith("keras") else 0
    assert whole[first:].sum() == pytest.approx(clock[-1, 1] - clock[first, 0], rel=tolerance)
    # each step by itself, to a few microseconds of the clock's own calls
    assert whole[first:-1].tolist() == pytest.approx(np.diff(clock[first:, 0]).tolist(), rel=0.03, abs=40e-6)


@pytest.mark.parametrize("name", [name for name, _ in REAL])
def test_parts_of_a_real_step_add_up_and_none_is_empty(name: str) -> None:
    for step in real(name).steps:
        assert sum(getattr(step, part) for part in PARTS) == pytest.approx(step.whole_s, rel=1e-9)
        assert min(step.forward_s, step.backward_s or 0, step.apply_s or 0, step.input_s) > 0


@pytest.mark.parametrize("name", [name for name, _ in REAL])
def test_gradients_of_a_real_model_come_from_its_end_to_its_beginning(name: str) -> None:
    names = [row["name"] for row in json.loads(VARIABLES.read_text())]
    shares = readiness(names, gradient_ops(real(name).steps))
    assert set(shares) == set(names)
    kernels = [shares[f"small/{layer}/kernel"] for layer in ("head", "second", "first")]
    assert kernels == sorted(kernels)
    assert shares["small/second/kernel"] < shares["small/norm/gamma"] < shares["small/first/kernel"] <= 1


def test_two_batch_sizes_give_a_line_through_what_was_measured() -> None:
    profiled = read_steps([(DATA / "loop-32", 32), (DATA / "loop-256", 256)])
    workload = fit_profiles(profiled, variables_of(listed=VARIABLES), "small", "paceline calibrate ...")
    assert workload.fit is not None
    assert workload.calibrated is not None
    assert workload.calibrated.batch == (32, 256)
    for batch, ones in profiled.by_batch.items():
        measured = np.mean([step.compute_s for one in ones for step in one.steps])
        assert workload.compute_s(batch) + workload.apply_s == pytest.approx(measured, rel=0.03)
    assert workload.forward.per_sample_s > 0
    assert workload.backward.per_sample_s > 0
    for key, (low, high) in workload.fit.intervals_90.items():
        assert low < high, key
    files = [profile_files(DATA / name)[0] for name in ("loop-32", "loop-256")]
    assert workload.provenance["profiles_sha256"].split() == [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    assert "undetermined" not in workload.provenance
    assert workload.input_bytes_per_sample == pytest.approx(64 * 4 + 4)  # 64 floats and a label
    assert workload.parameter_bytes == 4 * (64 * 512 + 512 + 2 * 512 + 512 * 256 + 256 + 256 * 10 + 10)


def test_one_batch_size_leaves_fixed_and_per_sample_cost_undetermined() -> None:
    profiled = read_steps([(DATA / "keras-64", 64)])
    workload = fit_profiles(profiled, variables_of(listed=VARIABLES), "small")
    measured = np.mean([step.compute_s for step in profiled.profiles[0].steps])
    assert workload.forward.base_s == workload.backward.base_s == 0
    assert workload.compute_s(64) + workload.apply_s == pytest.approx(measured, rel=1e-5)
    assert "one batch size (64)" in workload.provenance["undetermined"]
    assert workload.uncertainty is not None
    assert set(workload.uncertainty.parameters) == {"forward.per_sample_s", "backward.per_sample_s", "apply_s"}
    assert workload.calibrated is not None
    assert workload.calibrated.batch == (64, 64)


def test_a_batch_size_that_the_shapes_contradict_is_told() -> None:
    flagged = fit_profiles(read_steps([(DATA / "keras-64", 16)]), variables_of(listed=VARIABLES), "small")
    assert "64 rows in the profile, but batch 16 was given" in flagged.provenance["batch"]
    right = fit_profiles(read_steps([(DATA / "keras-64", 64)]), variables_of(listed=VARIABLES), "small")
    assert "batch" not in right.provenance


@pytest.mark.parametrize("lag", [0.0, 5000.0])
def test_a_gpus_steps_are_its_own_however_far_behind_the_host(tmp_path: Path, lag: float) -> None:
    found = made(gpu_sample(lag=lag), tmp_path)
    assert found.trace.device == "/device:GPU:0"
    assert len(found.steps) == 12
    for step in found.steps[:-1]:
        parts = [step.whole_s, step.forward_s, step.backward_s, step.apply_s, step.collective_s]
        # 200 microseconds at the end idle: the host's; of the collective's 150 all but 50 are exposed
        assert parts == pytest.approx([1000e-6, 500e-6, 300e-6, 100e-6, 100e-6], abs=1e-9)
    assert found.steps[-1].whole_s == pytest.approx(800e-6, abs=1e-9)


def test_a_devices_own_line_of_steps_is_believed(tmp_path: Path) -> None:
    sample = gpu_sample(lag=5000.0)
    for number in range(12):
        sample.add(("/device:GPU:0", "Steps"), str(number), 5000.0 + number * 1000, 5900.0 + number * 1000)
    # the host's marks could mean anything now
    sample.lines[POOL] = []
    found = made(sample, tmp_path)
    assert [step.number for step in found.steps] == list(range(12))
    assert [step.whole_s for step in found.steps] == pytest.approx([1000e-6] * 11 + [900e-6], abs=1e-9)
    assert found.steps[3].backward_s == pytest.approx(300e-6, abs=1e-9)


def test_communication_and_copies_are_counted_with_their_bytes(tmp_path: Path) -> None:
    profiled = Profiled({8: (made(gpu_sample(), tmp_path),)})
    (report,) = profiled.reports
    totals = {total.name: total for total in report.communication}
    assert totals["ncclDevKernel_AllReduce_Sum_f32_RING_LL"].seconds == pytest.approx(150e-6)
    assert totals["MemcpyH2D"].size_bytes == 4096
    assert totals["MemcpyH2D"].calls == 1
    workload = fit_profiles(profiled, NET, "net")
    assert "100 µs per step without computing is subtracted" in workload.provenance["communication"]
    assert [variable.name for variable in workload.variables] == ["net/head/kernel", "net/first/kernel"]
    assert [variable.ready for variable in workload.variables] == pytest.approx([1 / 3, 1.0], abs=1e-5)


def test_a_statistic_that_is_no_number_counts_as_not_recorded(tmp_path: Path) -> None:
    event = Event("a:b", 0.0, 1.0, {"element_size": "(64,)", "bytes_transferred": "", "correlation_id": 7, "step_num": -1})
    assert [event.number(name) for name in event.statistics] == [None, None, 7, None]
    sample = gpu_sample()
    whole = made(sample, tmp_path / "whole")
    for events in sample.lines.values():
        for *_, statistics in events:
            statistics.update({name: "many" for name in ("bytes_transferred", "element_size") if name in statistics})
    assert [step.whole_s for step in made(sample, tmp_path / "broken").steps] == [step.whole_s for step in whole.steps]


def test_waiting_for_input_is_no_computation_where_it_is_prefetched(tmp_path: Path) -> None:
    step = made(host_sample(), tmp_path).steps[0]
    assert [getattr(step, part) for part in PARTS] == pytest.approx([100e-6, 300e-6, 400e-6, 200e-6, 0.0], abs=1e-9)
    plain = made(host_sample(prefetch=False), tmp_path / "plain")
    assert [getattr(plain.steps[0], part) for part in PARTS] == pytest.approx([0.0, 400e-6, 400e-6, 200e-6, 0.0], abs=1e-9)
    beside = fit_profiles(Profiled({10: (made(host_sample(), tmp_path),)}), NET, "net")
    assert beside.input(10) == pytest.approx(150e-6)
    assert beside.input_bytes_per_sample == 320
    within = fit_profiles(Profiled({10: (plain,)}), NET, "net")
    assert within.input(10) == 0


def test_a_profile_of_jax_is_read_by_the_same_door(tmp_path: Path) -> None:
    sample = host_sample(gradients=False)
    for number in range(12):
        sample.add(HOST, "PjitFunction(train_step)", number * 1000.0 + 95, number * 1000.0 + 99)
        sample.add(POOL, "dot.3", number * 1000.0 + 955, number * 1000.0 + 965, hlo_op="dot.3")
    found = made(sample, tmp_path)
    assert (found.trace.backend, found.steps[0].ops[-1].kind) == ("jax", "dot")
    assert fit_profiles(Profiled({10: (found,)}), NET, "net").backend == "jax"


def test_steps_without_marks_are_calls_of_the_function(tmp_path: Path) -> None:
    found = made(host_sample(marks=False), tmp_path)
    assert found.trace.marks.name == "__inference_train_step_7"
    assert [step.whole_s for step in found.steps[:-1]] == pytest.approx([1000e-6] * 11, abs=1e-9)


def test_tracing_steps_and_pauses_are_left_out(tmp_path: Path) -> None:
    sample = host_sample(steps=6)
    sample.add(HOST, "train_step", 100.0, 900.0, tf_function_call="traced-nonXla")
    sample.add(HOST, "train_step", 1100.0, 1900.0, tf_function_call="notTraced-nonXla")
    for number in range(3):  # after an evaluation of a second
        at = 1e6 + number * 1000
        sample.add(HOST, "train", at, at + 980.0, step_num=6 + number, _r=1)
    found = made(sample, tmp_path)
    assert found.trace.marks.traced == 1
    assert found.trace.marks.pauses == 1
    assert [step.number for step in found.steps] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert max(step.whole_s for step in found.steps) < 1.001e-3
    flags = fit_profiles(Profiled({10: (found,)}), NET, "net").provenance
    assert flags["traced"].startswith("1 steps")
    assert flags["pauses"].startswith("1 pauses")
    assert "too few for a distribution" in flags["jitter"]


def test_without_gradients_names_the_documented_split_is_taken(tmp_path: Path) -> None:
    workload = fit_profiles(Profiled({10: (made(host_sample(gradients=False), tmp_path),)}), NET, "net")
    assert workload.backward(10) / workload.compute_s(10) == pytest.approx(BACKWARD_SHARE)
    assert workload.apply_s == 0
    assert "no step shows the gradients' operations" in workload.provenance["split"]
    assert "each counts as ready at the end" in workload.provenance["gradients"]
    assert {variable.ready for variable in workload.variables} == {1.0}


def test_profiles_of_one_batch_size_are_runs_whose_spread_is_seen(tmp_path: Path) -> None:
    slow = host_sample()
    for events in slow.lines.values():
        events[:] = [(name, short, start * 1.2, end * 1.2, statistics) for name, short, start, end, statistics in events]
    both = (made(host_sample(), tmp_path / "a"), made(slow, tmp_path / "b"))
    workload = fit_profiles(Profiled({10: both}), NET, "net")
    assert workload.provenance["runs"] == "2"
    assert workload.run_to_run_cv == pytest.approx(0.2 / 2.2 * 2**0.5, rel=0.05)  # of two numbers 1 and 1.2
    assert fit_profiles(Profiled({10: both[:1]}), NET, "net").run_to_run_cv < 0.01


@pytest.mark.parametrize(
    ("scopes", "layers"),
    [
        (("net/norm", "net/norm_1"), ("net/norm", "net/norm_1")),
        (("net_1/norm_1", "net_1/norm_1_1"), ("net/norm", "net/norm_1")),
        (("block_0_1/query_1", "block_1_1/query_1"), ("net/block_0/query", "net/block_1/query")),
        (("norm_2", "norm_1_2"), ("net/norm", "net/norm_1")),
    ],
)
def test_scopes_are_told_from_layers_with_numbers_of_their_own(scopes: tuple[str, str], layers: tuple[str, str]) -> None:
    ops = [GradientOp(f"{scope}/MatMul/MatMul_1", "MatMul", ready) for scope, ready in zip(scopes, (0.9, 0.3), strict=True)]
    assert readiness([f"{layer}/kernel" for layer in layers], ops) == {f"{layers[0]}/kernel": 0.9, f"{layers[1]}/kernel": 0.3}


def test_variables_of_a_layer_have_operations_of_their_own() -> None:
    ops = [
        GradientOp("net/conv/Conv2D/Conv2DBackpropFilter", "Conv2DBackpropFilter", 0.5),
        GradientOp("net/conv/Conv2D/Conv2DBackpropInput", "Conv2DBackpropInput", 0.7),
        GradientOp("net/conv/BiasAdd/BiasAddGrad", "BiasAddGrad", 0.2),
        GradientOp("net/norm/FusedBatchNormGradV3", "FusedBatchNormGradV3", 0.1),
    ]
    ops += [GradientOp("net/query/Add/Sum", "Sum", 0.3), GradientOp("net/query/MatMul/MatMul_1", "MatMul", 0.4)]
    found = readiness([f"net/{name}" for name in ("conv/kernel", "conv/bias", "norm/gamma", "norm/beta", "query/bias", "lost/kernel")], ops)
    wanted = {"conv/kernel": 0.5, "conv/bias": 0.2, "norm/gamma": 0.1, "norm/beta": 0.1, "query/bias": 0.3}
    assert found == {f"net/{name}": ready for name, ready in wanted.items()}


def test_the_number_of_an_output_is_no_part_of_a_variables_name() -> None:
    ops = [GradientOp("net/dense/BiasAdd/BiasAddGrad", "BiasAddGrad", 0.5), GradientOp("net/dense/MatMul/MatMul_1", "MatMul", 0.9)]
    assert readiness(["net/dense/kernel:0", "net/dense/bias:0"], ops) == {"net/dense/kernel:0": 0.9, "net/dense/bias:0": 0.5}


def test_a_layer_may_have_the_name_of_what_is_around_it() -> None:
    ops = [GradientOp("net/dense/dense/MatMul/MatMul_1", "MatMul", 0.9)]
    assert readiness(["net/dense/dense/kernel"], ops) == {"net/dense/dense/kernel": 0.9}


@pytest.mark.parametrize(
    ("path", "kind", "role"),
    [
        ("gradient_tape/net/dense/MatMul/MatMul_1", "MatMul", "gradient"),
        ("StatefulPartitionedCall/gradient_tape/net/dense/BiasAdd/BiasAddGrad", "BiasAddGrad", "gradient"),
        ("gradients/dense/MatMul_grad/MatMul", "MatMul", "gradient"),
        ("gradients_1/dense/MatMul_grad/MatMul", "MatMul", "gradient"),
        ("jit(train_step)/transpose(jvp(Net))/Dense_0/dot_general", "dot_general", "gradient"),
        ("adam/truediv_5", "RealDiv", "optimizer"),
        ("GradientDescent/update_dense/kernel/ResourceApplyGradientDescent", "ResourceApplyGradientDescent", "optimizer"),
        ("", "ncclKernel_AllReduce_RING_LL_Sum_float", "communication"),
        ("CollectiveReduceV2", "CollectiveReduceV2", "communication"),
        ("", "all-reduce", "communication"),
        ("IteratorGetNext", "IteratorGetNext", "input"),
        ("", "MemcpyD2H", "copy"),
        ("net/dense/Relu", "_FusedMatMul", "forward"),
    ],
)
def test_an_operations_name_tells_its_part_in_the_step(path: str, kind: str, role: str) -> None:
    assert role_of(path, kind) == role


def test_only_what_nothing_else_covers_is_exposed() -> None:
    assert uncovered_s([(0, 4), (3, 6)], [(1, 2), (5, 9)]) == pytest.approx(4)
    assert uncovered_s([(0, 1)], []) == 1
    assert uncovered_s([], [(0, 1)]) == 0


def test_the_newest_run_is_taken_or_the_one_named(tmp_path: Path) -> None:
    old = host_sample(steps=3).write(tmp_path / "train/plugins/profile/2026_01_02_03_04_05/h1.xplane.pb")
    new = tmp_path / "train/plugins/profile/2026_01_10_00_00_00"
    files = [shutil.copyfile(old, (new.mkdir(exist_ok=True), new / f"{host}.xplane.pb")[1]) for host in ("h2", "h1")]
    assert profile_files(tmp_path) == sorted(files)
    assert profile_files(tmp_path, "2026_01_02_03_04_05") == [old]
    assert profile_files(new) == sorted(files)
    assert profile_files(old) == [old]
    with pytest.raises(InputError, match=r"has no run of that name; it has 2026_01_02_03_04_05, 2026_01_10_00_00_00"):
        profile_files(tmp_path, "2026")


def test_marks_that_only_trace_are_no_training(tmp_path: Path) -> None:
    sample = host_sample(steps=1)
    sample.add(HOST, "train_step", 100.0, 900.0, tf_function_call="traced-nonXla")
    with pytest.raises(CalibrationError, match="each of its 1 steps traced a graph"):
        made(sample, tmp_path)


def test_a_python_without_tensorflow_is_told_how_to_install_it(tmp_path: Path) -> None:
    empty = tmp_path / "python"
    empty.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "$@"\n')
    empty.chmod(0o755)
    with pytest.raises(CalibrationError, match=r"cannot import TensorFlow .*`pip install 'paceline\[tensorflow\]'"):
        read_profiles(profile_files(DATA / "loop-32"), str(empty))


def test_the_command_writes_a_workload_and_a_scenario_that_uses_it(paceline: Any, tmp_path: Path) -> None:
    config = json.dumps({"cluster": {"worker": ["h1:1", "h2:1"], "ps": ["h3:1"]}})
    profiles = [part for name, batch in (("loop-32", 32), ("loop-256", 256)) for part in ("--from-profile", f"{DATA / name}@{batch}")]
    code, out, err = paceline(
        "calibrate", "--name", "small", *profiles, "--variables", str(VARIABLES), "--from-tf-config", config, "-o", "s.toml"
    )
    assert code == 0, err
    assert "Steps in the profiles" in out
    assert ["256", "14"] in [line.split()[:2] for line in out.splitlines()]
    workload = load_workload(tmp_path / "models/workloads/small.toml")
    assert workload.provenance["command"].startswith("paceline calibrate --name small --from-profile")
    scenario = load_scenario(tmp_path / "s.toml")
    assert scenario.workload.name == "small"
    assert scenario.batch == 256
    assert (scenario.replicas, scenario.servers, scenario.cluster.nodes) == (2, 1, 3)


def test_without_sizes_the_profile_is_told_and_the_workload_refused(paceline: Any, tmp_path: Path) -> None:
    code, out, err = paceline("calibrate", "--name", "small", "--from-profile", str(DATA / "keras-64"), "--batch", "64")
    assert code == 2
    assert ["64", "12"] in [line.split()[:2] for line in out.splitlines()]
    assert "gradients" in out
    assert "add MODEL.py:FUNCTION, --checkpoint or --variables" in err
    assert not (tmp_path / "models/workloads/small.toml").exists()
    code, out, _ = paceline("calibrate", "--name", "small", "--from-profile", str(DATA / "keras-64"), "--batch", "64", "--json")
    assert code == 2
    (report,) = json.loads(out)["profiles"]
    assert report["steps"] == 12
    assert report["gradients"][0][1] < report["gradients"][-1][1] <= 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--from-profile", "logs"], "--batch is missing: a profile does not contain it"),
        (["--from-profile", "logs", "--batch", "16,32"], "--batch 16,32: has 2 sizes for 1 profiles"),
        (["--from-profile", "logs@16", "--batch", "16"], "--batch 16: each --from-profile already has its batch size"),
        (["--from-profile", "logs@16", "--from-profile", "other"], "some lack a batch size; write LOGDIR@BATCH for each"),
        (["--from-profile", "logs@0"], "--from-profile: 0 samples per step: must be at least 1"),
        (["--from-profile", "none@16"], "--from-profile 'none': there is no such file or folder"),
        (["--from-profile", "logs@16"], "--from-profile 'logs': has no profile (*.xplane.pb); tf.profiler"),
        (["--from-profile", "note.txt@16"], "--from-profile 'note.txt': must end in .xplane.pb, .json, .json.gz"),
        (["--from-profile", "half.xplane.pb@16"], "half.xplane.pb: is not an XPlane protobuf, or was cut off in writing"),
        (
            ["--from-profile", "nameless.xplane.pb@16"],
            "nameless.xplane.pb: is damaged: an event of the line 'python' has no name; profile again",
        ),
        (["--from-profile", "empty.xplane.pb@16"], "empty.xplane.pb: has no training steps among its 0 events (nothing)"),
        (
            ["--from-profile", "idle.xplane.pb@16"],
            "idle.xplane.pb: has no training steps among its 1 events (/host:CPU); mark each step with",
        ),
        (["--from-profile", "half.xplane.pb@16", "--profile-run", "x"], "--profile-run 'x': half.xplane.pb is already one profile"),
        (["--from-profile", "idle.xplane.pb@16", "--from-profile", "idle.xplane.pb@32"], "is given twice: give each profile once"),
        (["--from-profile", "REAL@64", "--variables", "none.json"], "--variables none.json: there is no such file"),
        (["--from-profile", "REAL@64", "--variables", "note.txt"], "--variables note.txt: is not JSON: give a list such as"),
        (["--from-profile", "REAL@64", "--variables", "bad.json"], "--variables bad.json: 0.shape: is missing"),
        (["--from-profile", "REAL@64", "--variables", "twice.json"], "--variables twice.json 'a' is listed twice"),
        (["--from-profile", "REAL@64", "--checkpoint", "logs"], "--checkpoint logs: has no checkpoint"),
        (["--from-profile", "REAL@64", "--checkpoint", "logs", "--variables", "x"], "--checkpoint and --variables: give one source"),
        (["m.py:none", "--from-profile", "REAL@64"], "has no function 'none'; it has build"),
        (["--step", "m.py:build", "--from-profile", "REAL@64"], "--step: has no effect with --from-profile"),
        (["m.py:build", "--from-profile", "REAL@64", "--runs", "2"], "--runs: has no effect with --from-profile"),
        (["m.py:build", "--checkpoint", "logs"], "--checkpoint: needs --from-profile; add it"),
    ],
)
def test_bad_input_is_one_line(paceline: Any, tmp_path: Path, arguments: list[str], says: str) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "note.txt").write_text("no profile")
    (tmp_path / "bad.json").write_text('[{"name": "a"}]')
    (tmp_path / "twice.json").write_text('[{"name": "a", "shape": [1]}, {"name": "a", "shape": [2]}]')
    (tmp_path / "m.py").write_text("def build():\n    return None\n")
    (tmp_path / "empty.xplane.pb").write_bytes(b"")
    whole = profile_files(DATA / "loop-32")[0].read_bytes()
    (tmp_path / "half.xplane.pb").write_bytes(whole[: len(whole) // 2])
    idle = Sample()
    idle.add(HOST, "sleep", 0.0, 1.0)
    idle.write(tmp_path / "idle.xplane.pb")
    nameless = classes().XSpace.FromString((tmp_path / "idle.xplane.pb").read_bytes())
    nameless.planes[0].lines[0].events[0].metadata_id = 0
    (tmp_path / "nameless.xplane.pb").write_bytes(nameless.SerializeToString())
    code, _, err = paceline("calibrate", "--name", "x", *[one.replace("REAL", str(DATA / "keras-64")) for one in arguments])
    *_, line = err.strip().splitlines()
    assert says in line
    assert "Traceback" not in err
    assert code == (1 if "training steps" in says else 2)


BUILDER = """
import keras

def build():
    L = keras.layers
    return keras.Sequential([keras.Input((4,)), L.Dense(8, name='first'), L.BatchNormalization(name='norm'), L.Dropout(0.5),
                             L.Dense(3, name='head')], name='net')
"""
SAVES = """
import tensorflow
exec(open("m.py").read())
model = build()
model.compile("adam", "mse")
model.fit(tensorflow.zeros((4, 4)), tensorflow.zeros((4, 3)), verbose=0)
tensorflow.train.Checkpoint(model=model, optimizer=model.optimizer).save("checkpoint/ckpt")
model.export("saved_model", verbose=False)
model.save("net.keras")
"""


def test_sizes_are_read_from_whatever_the_model_was_saved_as(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(BUILDER)
    done = run_script(SAVES, cwd=tmp_path, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    for place in ("checkpoint", "saved_model", "net.keras", "m.py:build"):
        source = str(tmp_path / place)
        found = variables_of(model=source) if ":" in place else variables_of(checkpoint=Path(source))
        assert found is not None
        # Keras leaves the name of the model itself out when it loads one
        assert [(f"net/{one.name.removeprefix('net/')}", one.shape, one.bytes) for one in found.variables] == [
            ("net/first/kernel", (4, 8), 128),
            ("net/first/bias", (8,), 32),
            ("net/norm/gamma", (8,), 32),
            ("net/norm/beta", (8,), 32),
            ("net/head/kernel", (8, 3), 96),
            ("net/head/bias", (3,), 12),
        ], place
