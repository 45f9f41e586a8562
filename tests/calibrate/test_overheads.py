"""What a job spends beside steps: measured on real TensorFlow, fitted with intervals, left out with a word where it fails."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.measurements import Synthetic, Truth, step_records, write_lines
from support.needs import needs_tensorflow
from support.waiting import PATIENCE_S

import paceline
from calibrate.fit.step import duration_of, fit_workload
from calibrate.measurements import CheckpointTime, EvaluationTime, IteratorEnd, StartUpTime, Unmeasured, read_measurements
from calibrate.profiling import profile_step
from simulator.base.errors import CalibrationWarning
from simulator.catalogue.loading import load_workload
from simulator.job.costs import longest_wait_s, next_turn_s
from simulator.spec.job import IteratorEnds

FAILING = """
import keras
import tensorflow as tf

class Picky(keras.layers.Layer):
    def call(self, x, training=None):
        if training is False:
            raise RuntimeError("cannot be evaluated\\nhere")
        return x

def build():
    import resource
    limit = 200_000  # bytes of a file: enough for the measurements, too few for a checkpoint
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    return keras.Sequential([keras.Input((256,)), keras.layers.Dense(256), Picky()])

def step(batch):
    w = tf.Variable(tf.ones([64, 1]))
    slot = tf.Variable(tf.zeros([64, 1]), trainable=False)
    x = tf.ones([batch, 64])
    @tf.function
    def once():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(x, w))
        slot.assign_add(tape.gradient(loss, [w])[0])
        w.assign_sub(1e-3 * slot)
        return loss
    return once
"""


def _beside(startup_s: float, tracing_s: float, truth: Truth) -> list[dict[str, Any]]:
    """Records of a run with overheads, its first step's among them."""
    header, fingerprint, *others = step_records(truth, lambda _, n: np.ones(n))
    found = [header, fingerprint, {"kind": "startup", "seconds": startup_s, "of_process": True}]
    found.append({"kind": "warmup", "batch": 16, "seconds": truth.mean(16) + tracing_s})
    found += [{"kind": "warmup", "batch": batch, "seconds": truth.mean(batch)} for batch in truth.batches]
    found += others[:-1]
    found += [{"kind": "evaluation", "batch": 16, "index": index, "seconds": 0.5 if index == 0 else 0.1} for index in range(4)]
    for index, (write_s, sync_s) in enumerate(((0.03, 0.01), (0.05, 0.03), (0.02, 0.04), (0.01, 0.01))):
        checkpoint = {"kind": "checkpoint", "index": index, "size_bytes": 5e6, "write_s": write_s, "sync_s": sync_s, "restore_s": 0.025}
        found.append({**checkpoint, "cold": True, "snapshot_s": 0.004})
    # of three that end well before the next turn, at 0.14 s, one waits for it; of what ends just before it nothing can be said
    for index, (age_s, wait_s) in enumerate(((0.08, 0.001), (0.1, 0.041), (0.11, 0.012), (0.135, 0.005))):
        found.append({"kind": "iterator", "index": index, "age_s": age_s, "wait_s": wait_s})
    return [*found, {"kind": "end"}]


def test_overheads_are_fitted_as_they_were_measured(tmp_path: Path) -> None:
    runs = ((3.0, 0.7), (3.3, 0.8), (3.6, 0.9))
    files = [write_lines(tmp_path / f"{number}.ndjson", _beside(*run, Truth())) for number, run in enumerate(runs)]
    workload = paceline.calibrate(name="beside", from_measurements=files, out=tmp_path / "beside.toml")
    found = workload.overheads
    assert found is not None
    assert found.startup is not None
    assert found.tracing is not None
    assert found.startup.value_s == pytest.approx(3.3)
    assert found.tracing.value_s == pytest.approx(0.8)
    assert found.startup.low_s < 3.0 < 3.6 < found.startup.high_s
    assert found.evaluation_tracing is not None
    assert found.evaluation_tracing.model_dump() == {"value_s": 0.4, "low_s": 0.4, "high_s": 0.4}
    assert found.checkpoint_bytes == 5e6
    assert found.write_bytes_per_s == pytest.approx(5e6 / 0.05)  # the mean of writing and synchronising together
    assert found.restore_bytes_per_s == pytest.approx(5e6 / 0.025)
    assert found.snapshot is not None
    assert found.snapshot.value_s == pytest.approx(0.004)
    assert found.iterators == IteratorEnds(ended=9, waited=3)
    assert workload.provenance["overheads"] == "3 processes, 12 checkpoints"
    assert load_workload(tmp_path / "beside.toml").overheads == found


def test_measurements_of_older_versions_have_none(synthetic: Synthetic, tmp_path: Path) -> None:
    workload = paceline.calibrate(name="old", from_measurements=[synthetic.steps()], out=tmp_path / "old.toml")
    assert workload.overheads is None
    assert "overheads" not in workload.provenance
    assert "overheads" not in (tmp_path / "old.toml").read_text()


def test_what_could_not_be_measured_is_left_out_with_a_warning(tmp_path: Path) -> None:
    records = [one for one in _beside(3.0, 0.7, Truth()) if one["kind"] not in ("checkpoint", "end")]
    records += [{"kind": "unmeasured", "what": "checkpoint", "why": "OSError: no space left"}, {"kind": "end"}]
    with pytest.warns(CalibrationWarning, match=r"checkpoint could not be measured \(OSError: no space left\); .* in \[job\]"):
        workload = paceline.calibrate(name="full", from_measurements=[write_lines(tmp_path / "full.ndjson", records)])
    assert workload.overheads is not None
    assert workload.overheads.startup is not None
    assert workload.overheads.checkpoint_bytes is None
    assert workload.overheads.write_bytes_per_s is None


def test_the_interval_of_a_time_holds_nine_of_ten_further_runs() -> None:
    """Of lognormal times the prediction interval is exact: 1,000 triples, and a fourth time each."""
    rng = np.random.default_rng(1)
    for count in (2, 3, 6):
        inside = 0
        for _ in range(1000):
            *seen, further = np.exp(rng.normal(1.0, 0.3, count + 1))
            duration = duration_of(seen)
            assert duration is not None
            inside += duration.low_s <= further <= duration.high_s
        assert abs(inside / 1000 - 0.9) < 3 * math.sqrt(0.9 * 0.1 / 1000), (count, inside)


def test_a_time_of_zero_or_of_one_run_has_an_interval_too() -> None:
    assert duration_of([]) is None
    alone = duration_of([2.5])
    assert alone is not None
    assert (alone.low_s, alone.value_s, alone.high_s) == (2.5, 2.5, 2.5)
    with_zero = duration_of([0.0, 0.2, 0.1])
    assert with_zero is not None
    assert 0.0 == with_zero.low_s < with_zero.value_s < 0.2 < with_zero.high_s


@needs_tensorflow
def test_a_real_model_is_started_evaluated_and_written(real_steps: Path) -> None:
    measured = read_measurements(real_steps)
    (startup,) = measured.of(StartUpTime)
    assert startup.of_process
    assert startup.seconds > 0
    assert [one.index for one in measured.of(EvaluationTime)] == [0, 1, 2, 3]
    written = measured.of(CheckpointTime)
    assert written
    ends = measured.of(IteratorEnd)
    assert max(one.age_s for one in ends) > 0.06
    workload = fit_workload(real_steps, "mlp", accept_disturbed=True)
    assert workload.overheads is not None
    # of those that end just before the next turn, as all may on a slow machine, nothing can be said
    assert workload.overheads.iterators is None or 0 < workload.overheads.iterators.ended <= len(ends)
    assert workload.overheads.checkpoint_bytes is not None
    assert workload.parameter_bytes < workload.overheads.checkpoint_bytes < workload.parameter_bytes + 10_000
    assert list(real_steps.parent.iterdir()) == [real_steps], "nothing of the checkpoints stays"


@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
def test_steps_are_measured_where_nothing_else_can_be(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    path = profile_step(f"{tmp_path / 'failing.py'}:build", "picky", batches=(2, 4), steps=5, folder=tmp_path, timeout_s=PATIENCE_S)
    measured = read_measurements(path)
    assert measured.complete
    why = {one.what: one.why for one in measured.of(Unmeasured)}
    assert set(why) == {"evaluation", "checkpoint"}
    assert why["evaluation"].startswith("RuntimeError: in user code: ")  # the first 500 characters, by the lengths of paths more or less
    assert "\n" not in why["evaluation"]
    workload = fit_workload(path, "picky", accept_disturbed=True)
    assert "; checkpoint could not be measured (" in workload.provenance["unmeasured"]
    assert workload.overheads is not None
    assert workload.overheads.startup is not None
    assert workload.overheads.checkpoint_bytes is None


@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
def test_a_step_of_ones_own_is_written_with_the_slots_of_its_optimizer(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FAILING)
    target = f"{tmp_path / 'mine.py'}"
    options: dict[str, Any] = {"custom": True, "batches": (2, 4), "steps": 5, "folder": tmp_path, "timeout_s": PATIENCE_S}
    measured = read_measurements(profile_step(f"{target}:step", "step", **options))
    sizes = {one.size_bytes for one in measured.of(CheckpointTime)}
    assert sizes
    assert all(2 * 64 * 4 < size < 2 * 64 * 4 + 2000 for size in sizes)
    assert not measured.of(Unmeasured)


REAL = """
import json, os, sys, time
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
import tensorflow as tf
found = []
for tuned in (True, False):
    options = tf.data.Options()
    options.autotune.enabled = tuned
    data = tf.data.Dataset.from_tensors(tf.zeros(())).repeat(8).prefetch(2).with_options(options)
    for _ in range(12):
        began = time.perf_counter()
        iterator = iter(data)
        for _ in iterator:
            until = time.perf_counter() + 0.02
            while time.perf_counter() < until:
                pass
        ended = time.perf_counter()
        del iterator
        found.append([tuned, ended - began, time.perf_counter() - ended])
json.dump(found, sys.stdout)
"""


@pytest.mark.long  # it depends on who gets which core
@needs_tensorflow
def test_tensorflow_waits_for_the_next_turn_on_one_core() -> None:
    """Who has been at work gives its core up at once to the thread that it wakes; without tuning there is no such thread.

    Where other processes want the core as well, the woken thread comes later and waits less often: then once more.
    """
    for _ in range(3):
        ran = subprocess.run([sys.executable, "-c", REAL], capture_output=True, check=True, text=True, timeout=PATIENCE_S)
        found = json.loads(ran.stdout)
        tuned = [(age_s, wait_s) for its, age_s, wait_s in found if its and longest_wait_s(age_s) > 0.03]
        waited = [(age_s, wait_s) for age_s, wait_s in tuned if wait_s > longest_wait_s(age_s) / 2]
        if len(waited) > len(tuned) / 2:
            break
    assert len(waited) > len(tuned) / 2
    late = sorted(age_s + wait_s - next_turn_s(age_s) for age_s, wait_s in waited)
    assert abs(late[len(late) // 2]) < 0.02
    assert sorted(wait_s for its, _, wait_s in found if not its)[6] < 0.01
