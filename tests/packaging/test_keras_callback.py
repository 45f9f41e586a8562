"""The Keras callback on real trainings gives what ``paceline validate`` and ``paceline watch`` read, and imports nothing but Keras."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from support.needs import needs_tensorflow
from typer.testing import CliRunner

from calibrate.recorded.reading import read_recorded
from calibrate.validation.points import read_points
from paceline.cli.app import app

CALLBACK = Path(__file__).parents[2] / "paceline" / "keras_callback.py"

FIT = """
import json
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np
import tensorflow as tf
from keras_callback import RecordSteps  # a copy: nothing of Paceline is there

cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}
os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 1}})
told = RecordSteps("never-written.ndjson")
assert (told.workers, told.worker) == (3, 2)
del os.environ["TF_CONFIG"]
assert not {"paceline", "pydantic", "simulator"} & set(sys.modules)

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
tf.summary.create_file_writer("runs/real").set_as_default()
x, y = np.ones((80, 4)), np.ones((80, 1))
saved = keras.callbacks.ModelCheckpoint("model.weights.h5", save_weights_only=True, save_freq=4)
for run in range(2):
    recorder = RecordSteps("run.ndjson", batch=8, points="points.csv")
    began = time.perf_counter()
    model.fit(x, y, batch_size=8, epochs=3, verbose=0, validation_data=(x, y), callbacks=[recorder, saved])
    # nine of an epoch's ten steps lie between the ends of the first and of the last, and no longer than the training
    assert len(recorder.rates) == 3
    assert sum(9 / rate for rate in recorder.rates) < time.perf_counter() - began
    assert "save" not in model.__dict__
    assert "save_weights" not in model.__dict__
"""

SCENARIO = """
[workload]
name = "tiny"
batch_per_replica = 32
forward = {base = "STEP_S s", per_sample = "1 ns"}
backward = {base = "0 s", per_sample = "1 ns"}
variables = [{name = "w", size = "20 B", ready = 1.0, creation_index = 0}]

[cluster]
use = "ethernet-25g"

[strategy]
kind = "single"

[run]
steps = 10
"""


@needs_tensorflow
def test_the_callback_writes_what_is_read(tmp_path: Path) -> None:
    shutil.copy(CALLBACK, tmp_path)
    (tmp_path / "train.py").write_text(FIT)
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    points = tmp_path / "points.csv"
    (setting,) = read_points(points)
    assert (setting.workers, setting.batch, len(setting.throughput)) == (1, 8, 2)
    assert all(value > 0 for value in setting.throughput)
    (events,) = (tmp_path / "runs" / "real").glob("events*")
    assert b"steps_per_s" in events.read_bytes()
    (recorded,) = read_recorded([tmp_path / "run.ndjson"])
    assert recorded.steps.tolist() == list(range(1, 61))  # the optimizer counts on
    assert recorded.ended
    assert recorded.facts.parameters == 5
    assert (recorded.cpu_s > 0).all()
    marks = [mark.what for mark in recorded.marks]
    assert (marks.count("epoch"), marks.count("evaluation"), marks.count("restart")) == (6, 6, 1)
    # each fourth step of both trainings
    assert marks.count("checkpoint") == 15
    assert all(mark.duration_s > 0 for mark in recorded.marks if mark.what in ("evaluation", "checkpoint"))
    # a prediction as fast as this machine is: one far off would be asked whether steps were meant
    step_s = 8 / statistics.fmean(setting.throughput)
    (tmp_path / "mine.toml").write_text(SCENARIO.replace("STEP_S", f"{step_s:.6f}"))
    answer = CliRunner().invoke(app, ["validate", str(tmp_path / "mine.toml"), "--measured", str(points)])
    assert answer.exit_code == 0, answer.output
    assert "1 worker, batch 8" in answer.output
