"""Memory against real TensorFlow: slots that Keras makes, peaks of real steps over batch sizes, XLA's own figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.needs import needs_tensorflow

from calibrate.peak_memory import Peak, line_through, measure, read_peaks
from simulator.memory import SLOTS

PEAKS = read_peaks(Path(__file__).parents[1] / "data" / "peak_memory.csv")
FITTED = {"bert_tiny": (64, 192), "cnn": (256, 1024), "resnet50": (2, 8)}
"""Batch sizes that the line goes through; all others are held out."""
WITHIN = 0.1

_SLOTS = """
import json, keras, numpy
found = {}
for name in ("SGD", "Adagrad", "RMSprop", "Adam", "Lamb", "Adafactor"):
    model = keras.Sequential([keras.Input((100,)), keras.layers.Dense(200, use_bias=False)])
    optimizer = getattr(keras.optimizers, name)()
    optimizer.build(model.trainable_variables)
    found[name.lower()] = [list(its.shape) for its in optimizer.variables]
momentum = keras.optimizers.SGD(momentum=0.9)
momentum.build(model.trainable_variables)
found["momentum"] = [list(its.shape) for its in momentum.variables]
print(json.dumps(found))
"""


@needs_tensorflow
@pytest.mark.slow
def test_slots_are_those_that_keras_makes() -> None:
    done = subprocess.run([sys.executable, "-c", _SLOTS], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() == SLOTS.keys()
    for name, shapes in found.items():
        assert shapes.count([100, 200]) == SLOTS[name], name
        assert ([100] in shapes, [200] in shapes) == (name == "adafactor", name == "adafactor")


def of(model: str, *, jit: bool) -> list[Peak]:
    return [peak for peak in PEAKS if (peak.model, peak.jit) == (model, jit)]


@pytest.mark.parametrize("model", FITTED)
def test_a_line_through_two_peaks_predicts_those_of_other_batches(model: str) -> None:
    rows = of(model, jit=False)
    fitted = [row for row in rows if row.batch in FITTED[model]]
    line = line_through([row.batch for row in fitted], [row.peak_bytes for row in fitted])
    held_out = [row for row in rows if row.batch not in FITTED[model]]
    assert len(held_out) >= 2
    for row in held_out:
        assert line(row.batch) == pytest.approx(row.peak_bytes, rel=WITHIN), row.batch
        # and what a step takes beyond what is there before it
        assert line(row.batch) - row.before_bytes == pytest.approx(row.peak_bytes - row.before_bytes, rel=WITHIN), row.batch


@pytest.mark.parametrize("model", FITTED)
def test_so_does_one_through_what_xla_sets_aside(model: str) -> None:
    rows = of(model, jit=True)
    fitted = [row for row in rows if row.batch in FITTED[model]]
    line = line_through([row.batch for row in fitted], [row.xla_temporary_bytes or 0.0 for row in fitted])
    held_out = [row for row in rows if row.batch not in FITTED[model]]
    assert len(held_out) >= 2
    for row in held_out:
        assert line(row.batch) == pytest.approx(row.xla_temporary_bytes, rel=WITHIN), row.batch


@needs_tensorflow
@pytest.mark.slow
def test_a_peak_is_measured_in_a_process_of_its_own() -> None:
    found = measure(str(Path(__file__).parents[2] / "models" / "keras" / "mlp.py") + ":build", 16)
    assert (found.model, found.batch, found.jit) == ("mlp", 16, False)
    assert found.variables_bytes == 4 * (784 * 128 + 128 + 128 * 10 + 10)
    assert found.outputs_bytes_per_sample == 4 * (128 + 10)
    assert found.peak_bytes >= found.before_bytes > 0
