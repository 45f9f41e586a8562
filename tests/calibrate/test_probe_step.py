"""Real TensorFlow steps, measured and fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.needs import needs_tensorflow
from support.waiting import PATIENCE_S

import calibrate
from calibrate.fit.step import fit_workload
from calibrate.measurements import Measurements, Ready, Rows, Split, StepTime, WarmUp, read_measurements
from calibrate.profiling import profile_step
from simulator.spec.workload import Workload

pytestmark = [needs_tensorflow, pytest.mark.usefixtures("warm_probes")]

MODELS = Path(calibrate.__file__).parent.parent / "models" / "keras"

CUSTOM = """
import tensorflow as tf

@tf.function
def shared(x, w, b):  # traced once a shape: a second copy of the module is what gets the clocks
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.matmul(x, w) + b) ** 2)
    gradients = tape.gradient(loss, [w, b])
    for variable, gradient in zip((w, b), gradients):
        variable.assign_sub(0.01 * gradient)
    return loss

W = tf.Variable(tf.ones([256, 64]), name="w")
B = tf.Variable(tf.zeros([64]), name="b")

def step(batch):
    x = tf.random.normal([batch, 256])
    return lambda: shared(x, W, B)

def eager(batch):
    x = tf.random.normal([batch, 256])
    return lambda: shared.python_function(x, W, B)

def compiled(batch):
    x = tf.random.normal([batch, 256])
    run = tf.function(shared.python_function, jit_compile=True)
    return lambda: run(x, W, B)

def by_keras(batch):
    import keras
    model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(64), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    x, y = tf.random.normal([batch, 256]), tf.zeros([batch, 1])
    return lambda: model.train_on_batch(x, y)
"""


def _measured(target: str, folder: Path, **kwargs: Any) -> tuple[Measurements, Workload]:
    events: list[tuple[int, int, str]] = []
    options: dict[str, Any] = {
        "batches": (4, 8),
        "steps": 10,
        "rounds": 5,
        "repeats": 0,
        "device": "CPU",
        "timeout_s": PATIENCE_S,
        **kwargs,
    }
    path = profile_step(target, "real", folder=folder, progress=lambda *event: events.append(event), **options)
    assert events[-1][0] == events[-1][1] > 0
    measured = read_measurements(path)
    assert measured.complete
    return measured, fit_workload(path, "real", accept_disturbed=True)


def test_the_cnn_gives_a_workload_whose_last_layers_are_ready_first(tmp_path: Path) -> None:
    measured, workload = _measured(f"{MODELS / 'cnn.py'}:build", tmp_path, batches=(4, 8, 16))
    for batch in (4, 8, 16):
        assert len([step for step in measured.of(StepTime) if step.batch == batch]) == 10
        assert len([split for split in measured.of(Split) if split.batch == batch]) >= 10
        assert len([one for one in measured.of(WarmUp) if one.batch == batch]) >= 11
    order = [variable.name.split("/")[-2] for variable in workload.variables if variable.name.endswith("kernel")]
    # both dense kernels' gradients need no more than that of the logits: dataflow leaves their order open
    assert set(order[:2]) == {"dense_1", "dense"}
    assert order[2:] == ["conv2d_2", "conv2d_1", "conv2d"]
    assert workload.variables[-1].ready == 1.0
    shares = {variable.name: variable.ready for variable in workload.variables}
    assert shares["cnn/conv2d_1/kernel"] > 0.3  # convolutions come last and take most of the pass
    assert min(workload.variables, key=lambda one: one.creation_index).name == "cnn/conv2d/kernel"
    assert workload.parameter_bytes == 4 * (896 + 18496 + 73856 + 262272 + 1290)
    for point in workload.fit.points:
        assert 0 < point.forward_s < point.mean_s
    # the rule of thumb says twice; of ten steps of a few milliseconds on a busy machine single batches may say otherwise
    assert sum(point.backward_s for point in workload.fit.points) > sum(point.forward_s for point in workload.fit.points)
    assert workload.server.per_byte_s > 0
    assert workload.provenance["optimizer"] == "SGD"


def test_a_sparse_gradient_counts_the_rows_that_are_touched(tmp_path: Path) -> None:
    measured, workload = _measured(f"{MODELS / 'bert_tiny.py'}:build", tmp_path, batches=(1, 2), steps=5)
    sparse = {variable.name: variable.sparse_bytes_per_sample for variable in workload.variables if variable.sparse_bytes_per_sample}
    # 32 tokens a sample, each a row of 128 numbers and an index of 4 bytes
    assert sparse == {"tokens/embeddings": pytest.approx(32 * (128 * 4 + 4))}
    assert {row.rows for row in measured.of(Rows)} == {32, 64}
    assert len(workload.variables) == 36


def test_a_compiled_model_needs_no_loss(tmp_path: Path) -> None:
    _, workload = _measured(f"{MODELS / 'linear_regression.py'}:build", tmp_path, jit=True)
    assert len(workload.variables) == 2
    assert "without XLA" in workload.provenance["split"]


@pytest.mark.parametrize("function", ["step", "compiled", "by_keras"])
def test_a_step_of_the_users_own(tmp_path: Path, function: str) -> None:
    (tmp_path / "mine.py").write_text(CUSTOM)
    measured, workload = _measured(f"{tmp_path / 'mine.py'}:{function}", tmp_path, custom=True)
    assert all(ready.observed for ready in measured.of(Ready))
    sizes = sorted(variable.size_bytes for variable in workload.variables)
    assert sizes == ([256, 65536] if function != "by_keras" else [4, 256, 256, 65536])
    assert workload.compute_s(8) > 0


def test_an_eager_step_says_that_readiness_cannot_be_seen(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CUSTOM)
    measured, workload = _measured(f"{tmp_path / 'mine.py'}:eager", tmp_path, custom=True)
    assert not any(ready.observed for ready in measured.of(Ready))
    assert all(variable.ready == 1.0 for variable in workload.variables)
    assert "their order is unknown" in workload.provenance["gradients"]


def test_half_precision(tmp_path: Path) -> None:
    _, workload = _measured(f"{MODELS / 'mlp.py'}:build", tmp_path, precision="mixed_float16")
    assert workload.precision == "mixed_float16"
    assert workload.parameter_bytes == 4 * (784 * 128 + 128 + 1280 + 10)
