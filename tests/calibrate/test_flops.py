"""What a real TensorFlow step asks of a device, counted from its graph, against closed forms."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.needs import needs_tensorflow
from support.probes import run_script
from support.waiting import PATIENCE_S

from calibrate.fit.step import fit_workload
from calibrate.measurements import CountedStep, Unmeasured, read_measurements
from calibrate.profiling import profile_step

pytestmark = [needs_tensorflow, pytest.mark.usefixtures("warm_probes")]

SCRIPT = """
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import keras, tensorflow as tf
from _paceline_probes import counting, training
L = keras.layers

def net(*layers, shape):
    return lambda: keras.Sequential([keras.Input(shape), *layers])

def counted(build, batch, mixed=False):
    if mixed:
        keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        steps = training.ModelSteps(tf, build(), mixed)
        return counting.count(tf, steps.step(batch, "/CPU:0", False), 2 if mixed else 4)
    finally:
        keras.mixed_precision.set_global_policy("float32")

def nested():
    w, x = tf.Variable(tf.ones([8, 3])), tf.ones([4, 8])
    inner = tf.function(lambda: tf.reduce_sum(x @ w), jit_compile=True)
    return lambda: inner()

def looped():
    w = tf.Variable(tf.ones([8, 8]))
    return tf.function(lambda: tf.while_loop(lambda i, y: i < tf.cast(w[0, 0], tf.int32), lambda i, y: (i + 1, y @ w), [0, w * 1.0]))

def to_numpy():
    w = tf.Variable(tf.ones([8, 8]))
    return lambda: float(w.numpy().sum())

wide = tf.Variable(tf.ones([5, 7, 11]))
dense = (L.Dense(20, use_bias=False), L.Dense(7, use_bias=False))
conv = lambda: (L.Conv2D(4, 3, use_bias=False), L.Conv2D(6, 3, strides=2, padding="same", use_bias=False))
found = {
    "dense": [counted(net(*dense, shape=(30,)), batch) for batch in (4, 8)],
    "dense-mixed": [counted(net(L.Dense(20, use_bias=False), L.Dense(7, use_bias=False), shape=(30,)), 4, mixed=True)],
    "conv": [counted(net(*conv(), shape=(10, 10, 3)), 5)],
    "depthwise": [counted(net(L.Conv2D(4, 1, use_bias=False), L.DepthwiseConv2D(3, padding="same", use_bias=False), shape=(8, 8, 3)), 2)],
    "grouped": [counted(net(L.Conv1D(8, 1, use_bias=False), L.Conv1D(6, 3, groups=2, padding="same", use_bias=False), shape=(16, 4)), 2)],
    "nested": [counting.count(tf, nested())],
    "einsum": [counting.count(tf, lambda: tf.einsum("abc,cd->abd", wide, tf.ones([11, 13])))],
    "attention": [counted(net(L.Dense(8, use_bias=False), shape=(6, 8)), 3)],
}
for name, step in (("looped", looped()), ("to-numpy", to_numpy())):
    try:
        found[name] = counting.count(tf, step)
    except Exception as error:
        found[name] = type(error).__name__ + ": " + str(error)[:200]
found["eager"] = tf.config.functions_run_eagerly()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(warm: str) -> dict[str, Any]:
    done = run_script(SCRIPT, python=(warm,), timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_dense_layers_are_two_operations_a_weight_three_times_less_the_first_layers_input_gradient(found):
    for batch, one in zip((4, 8), found["dense"], strict=True):
        assert one["flops"] == batch * (6 * 30 * 20 + 6 * 20 * 7 - 2 * 30 * 20)


def test_bytes_are_a_line_in_the_batch_that_holds_every_operand(found):
    four, eight = (one["bytes"] for one in found["dense"])
    # at least: both products forward and three backward, float32, each reading two operands and writing one
    weights = 2 * 30 * 20 + 3 * 20 * 7
    activations = 2 * (30 + 20) + 3 * (20 + 7)
    assert eight - four >= 4 * 4 * activations
    assert four >= 4 * (weights + 4 * activations)
    assert found["dense"][0]["kernels"] == found["dense"][1]["kernels"] >= 5


def test_mixed_precision_does_as_many_operations_and_moves_half_of_the_batchs_bytes(found):
    mixed, full = found["dense-mixed"][0], found["dense"][0]
    assert mixed["flops"] == full["flops"]
    assert mixed["bytes"] < full["bytes"]


def test_convolutions_forward_and_backward(found):
    first, second = 8 * 8 * 4 * 3 * 3 * 3, 4 * 4 * 6 * 3 * 3 * 4  # multiply-adds of a sample; 8x8 valid, then 4x4
    assert found["conv"][0]["flops"] == 5 * 2 * (2 * first + 3 * second)


def test_depthwise_and_grouped_convolutions(found):
    assert found["depthwise"][0]["flops"] == 2 * 2 * (2 * 64 * 4 * 3 + 3 * 64 * 4 * 9)
    assert found["grouped"][0]["flops"] == 2 * 2 * (2 * 16 * 8 * 4 + 3 * 16 * 6 * 3 * 4)


def test_functions_inside_and_einsum(found):
    assert found["nested"][0]["flops"] == 2 * 4 * 8 * 3
    assert found["einsum"][0]["flops"] == 2 * 5 * 7 * 11 * 13
    assert found["attention"][0]["flops"] == 3 * 6 * 2 * (2 * 8 * 8)


def test_what_depends_on_values_is_not_counted(found):
    assert found["looped"].startswith("UncountableError: what ")
    assert isinstance(found["to-numpy"], str)
    assert found["eager"] is False  # as it was before


def test_a_profile_carries_its_counts_and_its_model(real_steps):
    load = fit_workload(real_steps, "mlp", accept_disturbed=True)
    sizes = [variable.size_bytes / 4 for variable in load.variables if variable.rows and variable.size_bytes > 4096]
    assert load.model == "mlp"
    # every kernel six operations a weight, but the first one's, whose input needs no gradient
    first = max(sizes)
    assert load.counted.flops_per_sample == pytest.approx(6 * sum(sizes) - 2 * first, rel=0.02)
    assert load.counted.kernels > 10
    assert load.counted.per_sample_bytes > 0


def test_a_step_that_cannot_be_counted_is_measured_all_the_same(tmp_path):
    script = tmp_path / "own.py"
    script.write_text(
        "import tensorflow as tf\nW = tf.Variable(tf.ones([16, 4]))\n"
        "def step(batch):\n    x = tf.ones([batch, 16])\n    def run():\n        with tf.GradientTape() as tape:\n"
        "            loss = tf.reduce_mean(x @ W)\n        W.assign_sub(0.1 * tape.gradient(loss, W))\n        return float(loss.numpy())\n"
        "    return run\n"
    )
    options = {"custom": True, "batches": (4, 16), "steps": 5, "rounds": 2, "device": "CPU", "timeout_s": PATIENCE_S, "folder": tmp_path}
    measured = profile_step(f"{script}:step", "own", **options)
    assert read_measurements(measured).complete
    assert [one.what for one in read_measurements(measured).of(Unmeasured)] == ["checkpoint"]
    records = read_measurements(measured).of(CountedStep)
    assert [record.batch for record in records] == [4, 16]
    assert all(record.flops is None and record.why for record in records)
    load = fit_workload(measured, "own", accept_disturbed=True)
    assert (load.counted, load.model) == (None, "own")
