"""Real compute on the testbed: the model's own gradients, between pull and push, in each of the five ways."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.needs import needs_tensorflow
from support.probes import run_script
from support.waiting import PATIENCE_S

from calibrate.measurements import Note
from calibrate.testbed.clocks import _turns
from calibrate.testbed.loading import builder_of, describe_model
from calibrate.testbed.running import measure_setting
from calibrate.testbed.setting import TestbedSetting, synthetic_variables
from simulator.base.errors import CalibrationError, InputError

pytestmark = [needs_tensorflow, pytest.mark.usefixtures("warm_probes")]


MODELS = """
import keras
from keras import layers, ops

def words():
    inputs = keras.Input((6,), dtype="int32")
    hidden = layers.Embedding(500, 8, name="words")(inputs)
    hidden = layers.Dropout(0.5)(layers.BatchNormalization()(ops.mean(hidden, axis=1)))
    hidden = layers.Dense(4, kernel_regularizer=keras.regularizers.L2(0.1), name="last")(hidden)
    return keras.Model(inputs, hidden), keras.losses.SparseCategoricalCrossentropy(from_logits=True), None

def still():
    inputs = keras.Input((12,))
    hidden = layers.BatchNormalization(name="norm")(layers.Dense(5, activation="tanh")(inputs))
    hidden = layers.Dense(3, kernel_regularizer=keras.regularizers.L2(0.1))(hidden)
    return keras.Model(inputs, hidden), "mse", None

def raises():
    raise ValueError("no weights for this model")

def another():
    other = keras.Variable(1.0)
    inputs = keras.Input((3,))
    return keras.Model(inputs, layers.Lambda(lambda x: x * other)(layers.Dense(2)(inputs))), "mse", None
"""

GRADIENTS = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
target = sys.argv[1]
import numpy as np
import tensorflow as tf
from _paceline_probes import training
from _paceline_probes.testbed import real
model = real.RealCompute(tf, target, 7)
values = [np.random.default_rng(index).normal(size=one.shape).astype("float32") for index, one in enumerate(model.initial)]
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ours, _ = session.run(model.gradients(tf, [tf.constant(one) for one in values]))
plain = training.ModelSteps(tf, training.load_function(target)(), False)
x, y = plain.batch_of(7)
for variable, value in zip(plain.variables(), values):
    variable.assign(value)
with tf.GradientTape() as tape:
    outputs = plain.model(x, training=True)
    loss = plain.loss_of(y, outputs, plain.model.losses)
for mine, theirs in zip(ours, tape.gradient(loss, plain.variables()), strict=True):
    assert np.abs(theirs).max() > 1e-4
    np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)
print(len(ours), "alike")
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    path = tmp_path / "models_of_mine.py"
    path.write_text(MODELS)
    return path


def _setting(mode: str, **fields: object) -> TestbedSetting:
    servers = 1 if mode in ("async", "between-graph", "sync") else 0
    table = {"mode": mode, "workers": 2, "servers": servers, "compute": {"kind": "real"}, "steps": 3, "warm_up": 1, **fields}
    return TestbedSetting.model_validate(table)


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize("mode", ["between-graph", pytest.param("sync", marks=pytest.mark.long), "mirrored"])
def test_every_way_computes_the_model(mode: str, tmp_path: Path) -> None:
    batch = 4096
    readings = measure_setting(_setting(mode, model="ladder-1mb", batch=batch), tmp_path, repeats=1, timeout_s=PATIENCE_S)
    (run,) = readings.runs
    assert len(run.steps) == 6
    # two multiply-adds of the backward pass for each of the forward pass, but for the first layer's input;
    # no thread makes more than 400 GFLOP/s
    operations = 2 * batch * (3 * 2**18 - 2**16)
    assert min(step.computed_s - step.pulled_s for step in run.steps) > operations / 400e9
    assert run.cpu_s("worker") > 6 * operations / 400e9
    notes = readings.file.of(Note)
    assert [(note.model_extra["compute"], note.model_extra["batch"], note.pulled_dense) for note in notes if note.model_extra] == [
        ("real", batch, ())
    ]


@pytest.mark.usefixtures("isolated")
def test_processes_apart_are_alone_and_together(tmp_path: Path) -> None:
    readings = measure_setting(_setting("apart", model="ladder-1mb", batch=256, steps=30), tmp_path, repeats=1, timeout_s=PATIENCE_S)
    (run,) = readings.runs
    alone, together = zip(*_turns(run), strict=True)
    assert len(alone) == 2
    assert all(len(one) >= 2 for one in (*alone, *together))
    assert run.others_share is not None


WORDS = [((500, 8), 48, 1.0), ((8,), None, 0.8), ((8,), None, 0.6), ((8, 4), None, 0.4), ((4,), None, 0.2)]
"""Shape, rows of a batch of 8, and readiness of each variable of the model ``words``."""


def test_a_sparse_model_is_described(models: Path) -> None:
    found = describe_model(f"{models}:words", batch=8)
    assert [(one.shape, one.rows, pytest.approx(one.ready)) for one in found] == WORDS


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize("mode", ["async", "ring"])
def test_the_other_ways_compute_a_sparse_model_and_send_what_is_ready(mode: str, models: Path, tmp_path: Path) -> None:
    target = f"{models}:words"
    names = ("words/embeddings", "gamma", "beta", "last/kernel", "last/bias")
    variables = [
        {"name": name, "shape": shape, "rows": rows, "ready": ready} for name, (shape, rows, ready) in zip(names, WORDS, strict=True)
    ]
    setting = _setting(mode, model=target, variables=variables, batch=8, overlap=True)
    readings = measure_setting(setting, tmp_path, repeats=1, timeout_s=PATIENCE_S)
    assert len(readings.runs[0].steps) == 6
    (note,) = readings.file.of(Note)
    about = note.model_extra or {}
    assert (about["compute"], about["batch"], note.pulled_dense) == ("real", 8, ("words/embeddings",))
    assert readings.setting == setting


def test_the_gradients_are_those_of_keras(models: Path) -> None:
    done = run_script(GRADIENTS, f"{models}:still", timeout=PATIENCE_S)
    assert done.stdout == "6 alike\n", done.stderr[-2000:]


@pytest.mark.parametrize("model", ["ladder-1mb/3", pytest.param("ladder-4mb/16", marks=pytest.mark.long)])
def test_the_file_of_the_ladder_builds_the_shapes_of_the_ladder(model: str) -> None:
    known = synthetic_variables(model)
    assert known is not None
    built = describe_model(builder_of(model), batch=2)
    assert [(one.shape, pytest.approx(one.ready)) for one in built] == [(one["shape"], one["ready"]) for one in known]
    assert all(one.rows is None for one in built)


@pytest.mark.parametrize(
    ("function", "error", "said"),
    [
        ("raises", CalibrationError, "ValueError.*no weights for this model; nothing had been measured"),
        ("another", CalibrationError, "reads a variable that is not the model's own.*choose emulated compute for it"),
    ],
)
def test_a_model_that_cannot_be_described(function: str, error: type[Exception], said: str, models: Path) -> None:
    with pytest.raises(error, match=said):
        describe_model(f"{models}:{function}")


def test_a_workload_has_no_code() -> None:
    with pytest.raises(InputError, match=r"model 'cnn-cpu' has no code to compute: give FILE\.py:FUNCTION .*or choose emulated"):
        builder_of("cnn-cpu")


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("still", r"its variables are 6 \(12x5, 5, 5, 5, \.\.\.\), but the setting has 4 \(256x256, .*: describe the model again"),
        ("raises", r"worker [01]: .*cannot be computed on pulled values \(ValueError: no weights for this model\); choose emulated"),
    ],
)
def test_a_model_that_cannot_be_computed(function: str, said: str, models: Path, tmp_path: Path) -> None:
    setting = _setting("between-graph", model=f"{models}:{function}", variables=synthetic_variables("ladder-1mb"))
    with pytest.raises(CalibrationError, match=said):
        measure_setting(setting, tmp_path, repeats=1, timeout_s=PATIENCE_S)
    assert not list(tmp_path.glob("*.ndjson"))


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize("mode", [pytest.param("between-graph", marks=pytest.mark.long), "sync"])
def test_an_emulated_sparse_variable_sends_its_rows(mode: str, tmp_path: Path) -> None:
    variables = [{"name": "rows", "shape": [5000, 64], "rows": 10, "ready": 1.0}, {"name": "whole", "shape": [64, 64], "ready": 0.5}]
    setting = _setting(mode, variables=variables, model="sparse", compute={"mean": "10 ms"}, steps=4)
    readings = measure_setting(setting, tmp_path, repeats=1, timeout_s=PATIENCE_S)
    assert readings.runs[0].updates >= 4
