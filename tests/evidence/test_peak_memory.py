"""Memory against real TensorFlow: slots that Keras makes, peaks of real steps over batch sizes, XLA's own figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.needs import needs_tensorflow
from support.probes import run_script
from support.scenarios import scenario_table

from evidence.studies.peak_memory import Peak, measure, read_peaks
from simulator import scenario_from_table
from simulator.memory import memory_of
from simulator.resolve.resolve import resolve
from simulator.spec.training import SLOTS

PEAKS = read_peaks(Path(__file__).parents[1] / "data" / "peak_memory.csv")
FITTED = {"bert_tiny": (64, 192), "cnn": (256, 1024), "resnet50": (2, 8)}
"""Batch sizes whose peaks a workload has; all others are held out."""
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
def test_slots_are_those_that_keras_makes(warm: str) -> None:
    found = json.loads(run_script(_SLOTS, python=(warm,)).stdout.splitlines()[-1])
    assert found.keys() == SLOTS.keys()
    for name, shapes in found.items():
        assert shapes.count([100, 200]) == SLOTS[name], name
        assert ([100] in shapes, [200] in shapes) == (name == "adafactor", name == "adafactor")


def errors(model: str, *, jit: bool = False, onednn: bool = True) -> dict[int, float]:
    """Of each batch held out: by how much a workload with the peaks of the fitted ones misses it, as a share."""
    rows = {peak.batch: _bytes(peak) for peak in PEAKS if (peak.model, peak.jit, peak.onednn) == (model, jit, onednn)}
    fit = {"relative_residual": 0.0, "peak_memory_bytes": {str(batch): rows[batch] for batch in FITTED[model]}}
    found = {}
    for batch in rows.keys() - set(FITTED[model]):
        (device,) = memory_of(resolve(scenario_from_table(scenario_table(workload={"batch_per_replica": batch, "fit": fit}), "test")))
        found[batch] = device.need_bytes / rows[batch] - 1
    assert len(found) >= 2
    return found


def _bytes(peak: Peak) -> float:
    """What XLA sets aside, or all that is resident."""
    return peak.peak_bytes if peak.xla_temporary_bytes is None else peak.xla_temporary_bytes


@pytest.mark.parametrize(
    ("model", "how", "missed"),
    [("bert_tiny", {}, set()), ("cnn", {}, set()),
     # oneDNN's convolutions take more with 8 than with 6 or 12 images, for each
     ("resnet50", {}, {12}), ("resnet50", {"onednn": False}, set()),
     *((model, {"jit": True}, set()) for model in FITTED)],
)  # fmt: skip
def test_peaks_of_two_batches_predict_others(model: str, how: dict[str, bool], missed: set[int]) -> None:
    assert {batch for batch, error in errors(model, **how).items() if abs(error) > WITHIN} == missed


@needs_tensorflow
@pytest.mark.long
def test_a_peak_is_measured_in_a_process_of_its_own() -> None:
    found = measure(str(Path(__file__).parents[2] / "models" / "keras" / "mlp.py") + ":build", 16)
    assert (found.model, found.batch, found.jit) == ("mlp", 16, False)
    assert found.variables_bytes == 4 * (784 * 128 + 128 + 128 * 10 + 10)
    assert found.outputs_bytes_per_sample == 4 * (128 + 10)
    assert found.peak_bytes >= found.before_bytes > 0
