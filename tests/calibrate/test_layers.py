"""The layers of a Keras model: where it is cut, what each costs, hands on and keeps; how they are fitted."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.measurements import Truth, step_records, write_lines
from support.needs import needs_tensorflow
from support.probes import run_script
from support.waiting import PATIENCE_S

import paceline
from calibrate.fit.step import fit_workload
from calibrate.fit.writing import write_fitted
from calibrate.measurements import LayerTimes, read_measurements
from calibrate.profiling import profile_step
from simulator.base.errors import CalibrationError, InputError
from simulator.base.files import read_toml
from simulator.spec.workload import Workload

MODELS = Path(__file__).parents[2] / "models" / "keras"

COMMON = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import keras, numpy as np, tensorflow as tf
from _paceline_probes import counting, layers, training
L = keras.layers

def residual():
    x = keras.Input((8,), name="x")
    a = L.Dense(8, activation="relu", name="a")(x)
    b = L.Add(name="join")([a, L.Dense(8, name="b")(a)])
    return keras.Model(x, L.Dense(3, name="c", kernel_regularizer="l2")(b), name="residual")

def nested():
    inner = keras.Sequential([keras.Input((8,)), L.Dense(6, name="d1"), L.Dense(5, name="d2")], name="inner")
    return keras.Sequential([keras.Input((8,)), L.Dense(8, name="first"), inner, L.Dense(2, name="last")])

def shared():
    twice, x = L.Dense(8, name="twice"), keras.Input((8,), name="x")
    y = L.Dense(8, name="between")(twice(L.Dense(8, name="first")(x)))
    return keras.Model(x, L.Dense(2, name="last")(twice(y)))

def shared_within():
    twice = L.Dense(8, name="twice")
    inner = keras.Sequential([keras.Input((8,)), L.Dense(8, name="d1"), twice], name="inner")
    x = keras.Input((8,), name="x")
    return keras.Model(x, L.Dense(2, name="last")(twice(inner(x))))

def around():
    x = keras.Input((8,), name="x")
    return keras.Model(x, L.Concatenate(name="join")([x, L.Dense(4, name="a")(x)]), name="around")

class Own(keras.Model):
    def __init__(self):
        super().__init__(name="own")
        self.a, self.b = L.Dense(4), L.Dense(2)
    def call(self, x):
        return self.b(self.a(x))

def names(build):
    return [one.name for one in layers.cut(build())]

def refused(model):
    try:
        layers.cut(model)
    except layers.UsageError as error:
        return str(error)

def passes_of(build):
    steps = training.ModelSteps(tf, build(), False)
    steps.batch_of(4)
    return steps, layers.Passes(tf, steps)
"""

CUTS = """
assert names(residual) == ["a", "b..join", "c"], names(residual)
assert names(nested) == ["first", "d1", "d2", "last"], names(nested)
assert names(shared) == ["first", "twice..twice", "last"], names(shared)
assert names(shared_within) == ["inner..twice", "last"], names(shared_within)
assert "around cannot be split: no inner tensor" in refused(around())
own = Own(); own(tf.ones([1, 3]))
assert "own is a Own whose layers Keras 3 does not see" in refused(own)
print("fine")
"""

SIZES = """
def dense():
    return keras.Sequential([
        keras.Input((8,)), L.Dense(16, activation="relu", name="a"), L.Dropout(0.5, name="drop"), L.Dense(4, name="b")])
steps, passes = passes_of(dense)
small, large = passes.sizes(10), passes.sizes(20)
slope = lambda key: [(high[key] - low[key]) / 10 for low, high in zip(small, large)]
assert slope("output_bytes") == [16 * 4, 16 * 4, 0], slope("output_bytes")
# a: its input; drop: relu's result is a's own, the mask is drop's. b: its input; and the loss's own square, which is of 4 numbers
kept = slope("kept_bytes")
assert kept[0] == (8 + 16) * 4, kept
assert kept[1] in (16, 16 * 4), kept  # the mask, as booleans or numbers
assert kept[2] == (16 + 4) * 4, kept
# twice forward, and backward twice as much again, but for the gradient of the model's input
assert slope("flops") == [2 * 2 * 8 * 16, 0, 3 * 2 * 16 * 4], slope("flops")

steps, passes = passes_of(residual)
x, y = steps.batch_of(6)
loss, found = passes.body(x, y, lambda phase, index, tensors: tensors)
with tf.GradientTape() as tape:
    outputs = steps.model(x, training=True)
    whole = steps.loss_of(y, outputs, steps.model.losses)
gradients = {id(variable): one for layer, each in zip(passes.layers, found) for variable, one in zip(layer.variables, each)}
for variable, one in zip(steps.variables(), tape.gradient(whole, steps.variables()), strict=True):
    np.testing.assert_allclose(gradients[id(variable)], one, rtol=1e-5, atol=1e-7)
print("fine")
"""


@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
@pytest.mark.parametrize("script", [CUTS, SIZES], ids=["cuts", "sizes and gradients"])
def test_a_model_is_cut_where_one_tensor_is_all_that_passes(script: str) -> None:
    done = run_script(COMMON + script, timeout=PATIENCE_S)
    assert done.stdout == "fine\n", done.stderr[-2000:]


@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
@pytest.mark.filterwarnings("ignore::simulator.base.errors.CalibrationWarning")  # a machine that runs tests is no quiet one
def test_a_real_model_gives_a_workload_with_layers(tmp_path: Path) -> None:
    out = tmp_path / "cnn.toml"
    workload = paceline.calibrate(
        f"{MODELS / 'cnn.py'}:build", name="layered", batches=(2, 8), steps=10, runs=1, device="CPU", layers=True, timeout_s=PATIENCE_S,
        measurements=tmp_path, out=out, accept_disturbed=True,
    )  # fmt: skip
    names = [layer.name for layer in workload.layers]
    assert names == ["conv2d", "max_pooling2d", "conv2d_1", "max_pooling2d_1", "conv2d_2", "flatten", "dense", "dense_1"]
    assert [layer.variables for layer in workload.layers] == [(0, 1), (), (2, 3), (), (4, 5), (), (6, 7), (8, 9)]
    assert [layer.output_bytes_per_sample for layer in workload.layers[:3]] == [4 * 30 * 30 * 32, 4 * 15 * 15 * 32, 4 * 13 * 13 * 64]
    assert workload.counted is not None
    flops = [layer.flops_per_sample for layer in workload.layers]
    assert sum(one or 0.0 for one in flops) == pytest.approx(workload.counted.flops_per_sample, rel=1e-6)
    assert flops[0] == 2 * 2 * 30 * 30 * 32 * 27  # the gradient of the model's input is not asked for
    work = {layer.name: layer.forward + layer.backward_work for layer in workload.layers}
    assert max(work, key=work.__getitem__).startswith("conv2d")
    assert "mean seconds at batch 8, from 20 steps" in workload.provenance["layers"]
    assert Workload.model_validate(read_toml(out)) == workload
    (file,) = tmp_path.glob("*.ndjson")
    total = [sum(one.forward_s) + sum(one.backward_s) for one in read_measurements(file).of(LayerTimes) if one.batch == 8]
    # of a step of some milliseconds on a machine that does other things as well: an order of magnitude
    assert workload.fit is not None
    assert 0.3 < np.median(total) / (workload.fit.points[-1].forward_s + workload.fit.points[-1].backward_s) < 2


def _ever_alike(_: np.random.Generator, count: int) -> np.ndarray:
    return np.ones(count)


def _layered(path: Path, drop: int = 0) -> Path:
    records = step_records(Truth(batches=(16, 32, 64)), _ever_alike)
    end = records.pop()
    assert end["kind"] == "end"
    added: list[dict[str, Any]] = []
    for batch in (16, 64):
        for index, (name, variables, handed) in enumerate((("one", [0], 100), ("two", [], 100), ("three", [1, 2], 0))):
            sizes = {"output_bytes": handed * batch, "kept_bytes": 50 + 10 * batch, "flops": None if index == 1 else 1000.0 * batch}
            added.append({"kind": "layer", "index": index, "name": name, "batch": batch, "variables": variables, **sizes})
    for batch in (16, 32, 64):
        for index in range(10):
            times = {"forward_s": [batch * 1e-5, 1e-6, batch * 2e-5], "backward_s": [batch * 3e-5, 1e-6, batch * 4e-5]}
            if index == 0:  # something came between: left out
                times["forward_s"] = [1.0, 1.0, 1.0]
            added.append({"kind": "layers", "batch": batch, "index": index, **times})
    return write_lines(path, [*records, *(added[:-drop] if drop else added), end])


def test_layers_are_fitted_to_what_was_measured(tmp_path: Path) -> None:
    workload = fit_workload(_layered(tmp_path / "a.ndjson"), "x")
    one, two, three = workload.layers
    assert [one.forward, three.forward] == pytest.approx([32e-5, 64e-5])
    assert [one.backward, two.backward, three.backward] == pytest.approx([96e-5, 1e-6, 128e-5])
    assert (one.variables, two.variables, three.variables) == ((0,), (), (1, 2))
    assert [layer.output_bytes_per_sample for layer in workload.layers] == [100, 100, 0]
    assert [layer.kept_bytes_per_sample for layer in workload.layers] == [10, 10, 10]  # what does not grow with the batch is no sample's
    assert [layer.flops_per_sample for layer in workload.layers] == [1000, None, 1000]
    # of the whole step 3 ms + 0.15 ms a sample are forward and backward
    assert f"{(32 * 10e-5 + 2e-6) / (3e-3 + 32 * 0.15e-3) - 1:+.0%} at batch 32".replace("-", "−") in workload.provenance["layers"]
    written = write_fitted(workload, tmp_path / "x.toml")
    assert Workload.model_validate(read_toml(written)) == workload


def test_without_layers_nothing_is_written_of_them(tmp_path: Path) -> None:
    records = step_records(Truth(), _ever_alike)
    workload = fit_workload(write_lines(tmp_path / "a.ndjson", records), "x")
    assert workload.layers == ()
    assert "layers" not in write_fitted(workload, tmp_path / "x.toml").read_text()


def test_layers_that_are_cut_short_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="has incomplete layers: the file was cut short"):
        fit_workload(_layered(tmp_path / "a.ndjson", drop=10), "x")


def test_a_step_of_ones_own_has_no_layers_to_be_seen(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`layers=True`: needs `model`"):
        paceline.calibrate(step=f"{MODELS / 'cnn.py'}:build", name="x", layers=True)
    with pytest.raises(InputError, match=r"`layers`: the layers of your own training step .* are not visible: give a model"):
        profile_step(f"{MODELS / 'cnn.py'}:build", "x", custom=True, layers=True, folder=tmp_path)


def test_the_measured_workload_of_the_catalogue_has_layers() -> None:
    workload = Workload.model_validate(read_toml(MODELS.parent / "workloads" / "resnet-small-cpu.toml"))
    assert len(workload.layers) >= 6
    assert "steps with clocks between the layers" in workload.provenance["layers"]
    # residual blocks are whole: nothing is handed on that is not the one tensor between two of them
    assert {layer.name for layer in workload.layers} >= {"stem", "block1_conv1..block1_add", "classes"}
    assert all(later.output_bytes_per_sample <= earlier.output_bytes_per_sample for earlier, later in pairwise(workload.layers))
    assert workload.counted is not None
    assert sum(layer.flops_per_sample or 0.0 for layer in workload.layers) == pytest.approx(workload.counted.flops_per_sample, rel=1e-6)
