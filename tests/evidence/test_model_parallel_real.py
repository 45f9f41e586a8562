"""A model on two devices for real: its gradients, the order of its passes, and what was measured of it."""

from __future__ import annotations

import csv
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support.needs import needs_tensorflow
from support.probes import run_script

from evidence.studies.staged_runs import COLUMNS, StagedRun, StagedSetting, measure_staged, read_settings, scenario_of
from simulator import simulate
from simulator.base.errors import InputError, ScenarioError
from simulator.base.files import read_toml

MODELS = Path(__file__).parents[2] / "models"
SMALL = f"{MODELS / 'keras' / 'resnet_small.py'}:build"

SAME = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
target = sys.argv[1]
import keras
import numpy as np
import tensorflow as tf
sys.path.insert(0, sys.argv[2])
import staged_model as staged

order = staged.schedule_of
assert order("gpipe", 0, 2, 2) == [("forward", 0), ("forward", 1), ("backward", 1), ("backward", 0)]
assert order("1f1b", 1, 2, 2) == [("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1)]
assert order("1f1b", 0, 3, 4) == [(p, n) for p, n in zip(
    ("forward", "forward", "forward", "backward", "forward", "backward", "backward", "backward"), (0, 1, 2, 0, 3, 1, 2, 3))]
for schedule, parts in (("gpipe", 1), ("1f1b", 4)):
    keras.utils.set_random_seed(1)
    model = staged.StagedModel(tf, target, 8, [7, 15], parts, schedule)
    values = [[tf.constant(one) for one in stage] for stage in model.initial]
    traced = tf.compat.v1.wrap_function(lambda: model.write(["/CPU:0", "/CPU:0"], values), [])
    loss, clocks, gradients = traced()
    steps = model._steps
    x, y = steps.batch_of(8)
    with tf.GradientTape() as tape:
        whole = steps.loss_of(y, steps.model(x, training=True), [])
    ours = [one.numpy() for stage in gradients for one in stage]
    theirs = [one.numpy() for one in tape.gradient(whole, steps.variables())]
    np.testing.assert_allclose(loss, whole, rtol=1e-5)
    for mine, one in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, one, rtol=1e-3, atol=1e-5)
    assert model.handed_bytes == [16 * 16 * 32 * 4 * 8 // parts]
    assert len(model.passes) == clocks.shape[0] + 2
print("fine")
"""


@needs_tensorflow
def test_stages_and_micro_batches_have_the_gradients_of_the_whole(warm: str) -> None:
    done = run_script(SAME, SMALL, str(Path(__file__).parents[2] / "evidence" / "probes"), python=(warm,))
    assert done.stdout == "fine\n", done.stderr[-2000:]


def _checked(run: StagedRun, setting: StagedSetting) -> None:
    assert len(run.steps_s) == setting.steps
    assert run.handed_bytes == (16 * 16 * 32 * 4 * setting.batch // setting.micro_batches,)
    by_step = defaultdict(dict)
    for one in run.passes:
        by_step[one.step][one.stage, one.phase, one.micro_batch] = one
    for passes in by_step.values():
        assert len(passes) == 2 * (2 * setting.micro_batches + 1)
        for stage in (0, 1):  # a device computes one pass at a time; gradients are applied as they come
            own = sorted((one for (its, phase, _), one in passes.items() if its == stage and phase != "apply"), key=lambda one: one.begun_s)
            assert all(later.begun_s >= earlier.ended_s - 1e-6 for earlier, later in pairwise(own))
        for number in range(setting.micro_batches):  # and begins when what it needs is there
            assert passes[1, "forward", number].ended_s > passes[0, "forward", number].begun_s
            assert passes[1, "backward", number].begun_s >= passes[1, "forward", number].ended_s - 1e-6
            assert passes[0, "backward", number].ended_s > passes[1, "backward", number].begun_s
    assert np.all(run.compute_s > 0)


@needs_tensorflow
@pytest.mark.usefixtures("warm_probes", "isolated")
@pytest.mark.parametrize(
    ("one_process", "micro_batches"),
    [pytest.param(True, 1, id="logical devices"), pytest.param(False, 2, id="two processes", marks=pytest.mark.long)],
)
def test_a_real_run(one_process: bool, micro_batches: int, tmp_path: Path) -> None:
    setting = StagedSetting(model=SMALL, batch=8, stages=(7, 8), micro_batches=micro_batches, one_process=one_process, steps=4, warm_up=2)
    (run,) = measure_staged(setting, tmp_path, repeats=1)
    _checked(run, setting)
    if micro_batches == 1:  # one device idles while the other works, so that both together take about the step
        share = run.compute_s.sum(axis=1) / run.steps_s
        # a pass's last clock is read once a thread of the process is free, on a busy machine after the next device has begun
        assert 0.5 < np.median(share) < 1.5


@needs_tensorflow
@pytest.mark.usefixtures("warm_probes", "isolated")
def test_stages_that_are_not_the_models(tmp_path: Path) -> None:
    setting = StagedSetting(model=SMALL, batch=8, stages=(7, 9), one_process=True)
    with pytest.raises(InputError, match=r"worker 0: stages: .*16.*resnet_small\.py:build.*15"):
        measure_staged(setting, tmp_path, repeats=1)


def test_settings_that_break_a_rule(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('[[setting]]\nmodel = "a.py:f"\nbatch = 8\nstages = [1, 1]\neach = {micro_batches = [1, 3]}\n')
    with pytest.raises(ScenarioError, match=r"setting 1.*batch \(8\).*micro_batches \(3\)"):
        read_settings(file)
    with pytest.raises(InputError, match=r"`model`: a\.py"):
        measure_staged(StagedSetting(model="a.py:f", batch=8, stages=(1, 1)), tmp_path)


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_the_scenario_of_a_setting_is_the_pipeline_that_it_is(micro_batches: int) -> None:
    workload = read_toml(MODELS / "workloads" / "resnet-small-cpu.toml")
    for key in ("uncertainty", "jitter_draws", "jitter_least", "jitter_steps", "run_to_run_cv", "run_to_run_shared", "busy_core_slowdown"):
        workload.pop(key, None)
    workload["jitter"] = {"kind": "constant"}
    setting = StagedSetting(model=SMALL, batch=16, stages=(7, 8), micro_batches=micro_batches, one_process=True)
    scenario = scenario_of(setting, workload, replications=2)
    load, samples = scenario.workload, 16 / micro_batches
    work = np.array([[layer.forward, layer.backward_work] for layer in load.layers])
    share = np.array([work[:7].sum(axis=0), work[7:].sum(axis=0)]) / work.sum(axis=0)
    forward, backward = share[:, 0] * load.forward(samples), share[:, 1] * load.backward(samples)
    # gpipe: the second stage waits for the first, both go through all, and the first stage's last pass follows the second's
    ends_s = forward[0] + max((micro_batches - 1) * forward[0] + forward[1], micro_batches * forward[1])
    first, second = np.zeros(micro_batches), np.zeros(micro_batches)
    for number in range(micro_batches):
        second[number] = (second[number - 1] if number else ends_s) + backward[1]
        first[number] = max(second[number], first[number - 1] if number else 0.0) + backward[0]
    assert simulate(scenario).mean_step_s.mean == pytest.approx(first[-1] + load.apply_s * 0.5, abs=load.apply_s)


def test_loopback_is_not_predicted() -> None:
    with pytest.raises(InputError, match="loopback"):
        scenario_of(StagedSetting(model=SMALL, batch=16, stages=(7, 8)), {})


def test_what_was_measured_lies_beside_its_settings() -> None:
    settings = {one.name for one in read_settings(MODELS / "measured" / "model-parallel.toml")}
    with (MODELS / "measured" / "model-parallel.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert {row["name"] for row in rows} == settings
    for row in rows:
        assert 0 < float(row["stage_1_compute_s"]) + float(row["stage_2_compute_s"]) < 2 * float(row["step_s"])
