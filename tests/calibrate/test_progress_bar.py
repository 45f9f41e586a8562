"""Epochs of a job as Keras prints them: its own progress bar, told when steps and epochs end, against what a real training printed."""

from __future__ import annotations

import json

import pytest
from support.needs import needs_tensorflow
from support.probes import run_script
from support.waiting import PATIENCE_S

from simulator import simulate

pytestmark = [needs_tensorflow, pytest.mark.usefixtures("warm_probes")]

SCRIPT = """
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
from keras.src.utils import io_utils, progbar

class Clock:
    now = 0.0
    def time(self):
        return self.now

printed = []
io_utils.print_msg = lambda message, line_break=True: printed.append(message)
for steps, first_s, step_s, after_s in json.loads(sys.argv[1]):
    progbar.time = clock = Clock()
    bar = progbar.Progbar(target=steps, unit_name="step", verbose=2)
    for step in range(steps):
        clock.now += step_s if step else first_s
        bar.update(step + 1, finalize=False)
    clock.now += after_s   # the progress bar of an epoch is closed after its validation
    bar.update(steps, finalize=True)
print(json.dumps([line.strip() for line in printed]))
"""

REPLICAS, BATCH = 4, 128
STEPS, TESTED = 121, 15
FIRST_EPOCH_S, LATER_EPOCH_S, FIRST_STEP_S, TEST_STEP_S = 48.0, 29.0, 16.0, 112e-3
"""What was printed of BERT-tiny on one RTX 4090 as four logical GPUs, and how long about its first step took."""


def as_keras_prints(*epochs: tuple[float, float, float, float]) -> list[str]:
    """What its progress bar says: of each its steps, seconds of the first one, of each other, and after the last."""
    done = run_script(SCRIPT, json.dumps(epochs), timeout=PATIENCE_S)
    lines: list[str] = json.loads(done.stdout.splitlines()[-1])
    return lines


def test_first_and_later_epochs_and_the_test_are_printed_as_they_were(scenario):
    """Four figures go in: a step and a validation of the later epochs, the first step, and the first epoch's time.

    A later epoch is 121 steps and 15 steps of validation, as long as those of the test, which
    leaves 226 ms to a step of training. The first epoch takes 19 s longer, of which the
    first step's tracing is 15.8 s: the rest is that of validation, which Keras traces too. Then it
    prints 267 ms (told as 270) and 240 ms a step, though a step takes as long in all epochs: the epoch's line
    leaves out the first step, and divides what the validation takes by the steps of training.
    """
    validation_s = TESTED * TEST_STEP_S
    step_s = (LATER_EPOCH_S - validation_s) / STEPS
    tracing_s = FIRST_STEP_S - step_s
    built = scenario(
        workload={
            "batch_per_replica": BATCH // REPLICAS,
            "forward": {"base": f"{TEST_STEP_S / REPLICAS} s", "per_sample": "0 s"},
            "backward": {"base": f"{(step_s - TEST_STEP_S) / REPLICAS} s", "per_sample": "0 s"},
            "apply": "0 s",
        },
        cluster={"replicas_per_device": REPLICAS, "intra_device": {"bandwidth": "1000000 GB/s"}},
        strategy={"kind": "mirrored", "replicas": REPLICAS},
        job={
            "epochs": 5,
            "dataset_size": STEPS * BATCH,
            "tracing": f"{tracing_s} s",
            "evaluation_tracing": f"{FIRST_EPOCH_S - LATER_EPOCH_S - tracing_s} s",
            "evaluation": {"samples": TESTED * BATCH},
        },
    )
    job = simulate(built).job
    assert job is not None
    first, later = job.each_epoch
    assert (first.like_it, later.like_it) == (1, 4)
    assert first.first_step_s == pytest.approx(FIRST_STEP_S, rel=1e-4)
    assert first.step_s == later.step_s == pytest.approx(0.2258, rel=1e-3)
    assert later.evaluation_s == pytest.approx(1.68, rel=1e-4)
    assert first.evaluation_s == pytest.approx(1.68 + 3.23, rel=1e-2)
    assert job.time_s.mean == pytest.approx(FIRST_EPOCH_S + 4 * LATER_EPOCH_S, rel=1e-4)
    rows = [(int(each.steps), each.first_step_s, each.step_s, each.evaluation_s) for each in (first, later)]
    tested_s = later.evaluation_s / TESTED
    printed = as_keras_prints(*rows, (TESTED, tested_s, tested_s, 0.0))
    assert printed == [f"{STEPS}/{STEPS} - 48s - 267ms/step", f"{STEPS}/{STEPS} - 29s - 240ms/step", "15/15 - 2s - 112ms/step"]
