"""What the tasks of a job with faults do: train, write checkpoints, report steps as they end, and say when a peer is gone.

Killing and starting again is in enduring.py. Steps count from the job's first common start, also in processes that were
started later; events have wall-clock times until enduring.py writes them. Their names are those of calibrate/measurements.py.
"""

from __future__ import annotations

import os
import time
from typing import Any

from . import coordinated, emulated_model, ring, training
from .hub import Task


class Checkpoints:
    """The job's checkpoints in a folder, as ``tf.train.CheckpointManager`` keeps them, each timed.

    Parameters
    ----------
    objects
        What is written, by name.
    ours
        Whether this process's files are the ones that count. Each worker of
        MultiWorkerMirroredStrategy has to write, and those of the others are not kept.
    """

    def __init__(self, tf: Any, task: Task, ours: bool, **objects: Any) -> None:
        self._tf = tf
        self._task = task
        self._ours = ours
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps")
        self._checkpoint = tf.train.Checkpoint(steps=self.steps, **objects)
        folder = task.setting["checkpoints"]
        kept = os.path.join(folder, "kept")
        own = kept if ours else os.path.join(folder, f"worker-{task.index}")
        self._manager = tf.train.CheckpointManager(self._checkpoint, own, max_to_keep=2)
        self._latest = tf.train.latest_checkpoint(kept)

    def restore(self) -> int:
        """Take the latest one, where there is one; returns the steps that it holds."""
        if self._latest is None:
            return 0
        began_s = time.time()
        self._checkpoint.restore(self._latest)
        done = int(self.steps.numpy())
        self._say("restored", began_s, done)
        return done

    def write(self, done: int) -> None:
        """Write one after this many steps; training waits for it."""
        began_s = time.time()
        self.steps.assign(done)
        self._manager.save(checkpoint_number=done)
        self._say("checkpoint", began_s, done)

    def _say(self, what: str, began_s: float, done: int) -> None:
        if self._ours:
            self._task.line.say("event", what=what, at_s=began_s, seconds=time.time() - began_s, step=done)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def train(tf: Any, task: Task) -> None:
    """One worker of MultiWorkerMirroredStrategy: from the latest checkpoint to the end, or until a peer is gone; then it waits."""
    setting = task.setting
    strategy = ring.strategy_of(tf, task)
    step, _, variables = ring.step_of(tf, task, strategy, setting["workers"])
    checkpoints = Checkpoints(tf, task, task.index == 0, variables=variables)
    first = checkpoints.restore()
    durations_us = emulated_model.durations(setting, setting["workers"], setting["steps"], task.seed)[task.index]
    for _ in range(max(setting["warm_up"], 2)):
        step(tf.constant([1000], tf.int64))
    arguments = [tf.constant([duration], tf.int64) for duration in durations_us[first:]]
    task.line_up()
    task.sleep_until(0.0)
    every = setting.get("checkpoint_every")
    try:
        for number, argument in enumerate(arguments, start=first):
            (times,) = (value.numpy() for value in step(argument))
            training.report_step(task, task.index, (*times, number, number + 1), task.origin_s)
            if every and (number + 1) % every == 0:
                checkpoints.write(number + 1)
    except tf.errors.OpError as error:
        task.line.say("event", what="noticed", at_s=time.time(), message=_first_line(error))
        task.line.say("lost")
    else:
        task.end()
        task.line.say("reported")
    task.line.wait("finish")


def coordinate(tf: Any, task: Task) -> None:
    """The coordinator: hands out the steps up to the next checkpoint, waits for them, writes it, and so on.

    A step whose worker dies goes to another one, which is ClusterCoordinator's own doing; it
    cannot go on without a parameter server.
    """
    setting = task.setting
    workers, steps = setting["workers"], setting["steps"] * setting["workers"]
    coordinator, step, variables, version = coordinated.build(tf, task)
    checkpoints = Checkpoints(tf, task, True, variables=variables, version=version)
    done = checkpoints.restore()
    durations_us = emulated_model.durations(setting, 1, steps, task.seed)[0]
    coordinated.warm_up(tf, setting, coordinator, step)
    version.assign(done)
    _tell_of_workers(task, coordinator)
    arguments = [(tf.constant(int(duration), tf.int64),) for duration in durations_us]
    task.line_up()
    task.sleep_until(0.0)
    every = setting.get("checkpoint_every", steps) * workers
    while done < steps:
        last = min(done + every - done % every, steps)
        results = [coordinator.schedule(step, args=one) for one in arguments[done:last]]
        try:
            coordinator.join()
            _report(tf, task, results)
            results, done = [], last
            if setting.get("checkpoint_every") and done % every == 0:
                checkpoints.write(done)
        except tf.errors.OpError as error:
            task.line.say("event", what="noticed", at_s=time.time(), message=_first_line(error))
            _report(tf, task, results)
            task.line.say("lost")
            break
    else:
        task.end()
        task.line.say("reported")
    task.line.wait("finish")


def _report(tf: Any, task: Task, results: list[Any]) -> None:
    """Send all steps that were made."""
    for result in results:
        try:
            row = result.fetch()
        except tf.errors.OpError:  # cancelled, or nobody was left to make it
            continue
        training.report_step(task, coordinated.worker_of(result), row, task.origin_s)


def _tell_of_workers(task: Task, coordinator: Any) -> None:
    """Say when the coordinator notices that a worker is gone, and when it has it back.

    TensorFlow's ``Worker`` (cluster_coordinator.py) learns of both in two private methods, which are wrapped here; with a version
    that lacks them training works as well, and these events are missing.
    """
    for worker in getattr(getattr(coordinator, "_cluster", None), "workers", []):
        failed, recovered = getattr(worker, "_on_closure_failure", None), getattr(worker, "_on_worker_recovery", None)
        if failed is None or recovered is None:
            continue

        def on_failure(closure: Any, error: Any, number: int = worker.worker_index, then: Any = failed) -> None:
            task.line.say("event", what="noticed", at_s=time.time(), of=f"worker {number}", message=_first_line(error))
            then(closure, error)

        def on_recovery(number: int = worker.worker_index, then: Any = recovered) -> None:
            task.line.say("event", what="recovered", at_s=time.time(), of=f"worker {number}")
            then()

        worker._on_closure_failure, worker._on_worker_recovery = on_failure, on_recovery
