"""Workers that have a copy of the model each: modes ``ring``, ``mirrored`` and ``apart``.

``ring`` is MultiWorkerMirroredStrategy, a process for each worker and TensorFlow's ring on gRPC; ``mirrored`` is MirroredStrategy in one
process. ``apart`` reduces nothing: calibrate/testbed/clocks.py tells from its turns what busy cores cost each other.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import numpy as np

from . import emulated_model, real
from .hub import Checkpoints, Task, is_job


def train(tf: Any, task: Task) -> None:
    """One worker."""
    setting = task.setting
    os.environ["TF_CONFIG"] = json.dumps({"cluster": task.cluster, "task": {"type": "worker", "index": task.index}})
    tf.config.threading.set_intra_op_parallelism_threads(setting["threads"])
    emulated = setting["compute"]["kind"] == "emulated"
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": emulated})
    options = tf.distribute.experimental.CommunicationOptions(implementation=tf.distribute.experimental.CommunicationImplementation.RING)
    # it is there when all workers are
    _run_steps(tf, task, tf.distribute.MultiWorkerMirroredStrategy(communication_options=options), setting["workers"])


def _step_of(tf: Any, task: Task, strategy: Any, workers: int) -> tuple[Any, int, list[Any]]:
    """A function of the local replicas' durations in microseconds, which makes the step; how many those are; and the variables."""
    setting = task.setting
    model = emulated_model.Model.of(tf, setting, real.load(tf, task))
    local = strategy.num_replicas_in_sync if workers == 1 else 1
    outside = model.real is not None and setting["mode"] == "mirrored"  # timed
    with strategy.scope():
        variables = model.create()

    def replica(durations: Any) -> Any:
        context = tf.distribute.get_replica_context()
        own = durations[context.replica_id_in_sync_group] if local > 1 else durations[0]
        values = [variable.read_value() for variable in variables]
        begun = None if outside else tf.timestamp()
        if outside:
            gradients, ended = model.real.gradients(tf, values)[0], None
        else:
            gradients, _, ended = model.compute(values, own)
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]  # sparse ones are reduced dense
        if setting.get("overlap"):
            order = sorted(range(len(variables)), key=lambda index: model.specs[index].ready)
            # one all-reduce a gradient, begun when it is there
            reduced_in_order = [context.all_reduce("SUM", gradients[index]) for index in order]
            reduced = [value for _, value in sorted(zip(order, reduced_in_order), key=lambda pair: pair[0])]
        else:
            reduced = context.all_reduce("SUM", gradients)
        if outside:
            # a value that follows from every gradient, so that none is left out
            return tf.add_n([tf.reduce_sum(tf.cast(value, tf.float64)) for value in reduced])
        with tf.control_dependencies(list(reduced)):
            done = tf.timestamp()
        return tf.stack([begun, begun, ended, done])

    @tf.function(input_signature=[tf.TensorSpec([local], tf.int64)])
    def step(durations: Any) -> Any:
        return strategy.experimental_local_results(strategy.run(replica, args=(durations,)))

    return step, local, variables


def _run_steps(tf: Any, task: Task, strategy: Any, workers: int) -> None:
    """Warm up, line up, and make the steps with a strategy that all-reduces; reports a row for each step of a replica.

    A worker of a job goes on from the latest checkpoint to the end, or until a peer is gone; then it waits.
    """
    setting, job = task.setting, is_job(task.setting)
    step, local, variables = _step_of(tf, task, strategy, workers)
    # clocks inside the graph would have one replica wait for the other, so a mirrored model is timed from outside, as a whole
    outside = setting["compute"]["kind"] == "real" and setting["mode"] == "mirrored"
    checkpoints = Checkpoints(tf, task, task.index == 0, variables=variables) if job else None
    first = checkpoints.restore() if checkpoints else 0
    durations_us = emulated_model.durations(setting, setting["workers"], setting["steps"], task.seed)
    own = durations_us if local > 1 else durations_us[task.index : task.index + 1]
    for _ in range(max(setting["warm_up"], 2)):
        step(tf.constant([1000] * local, tf.int64))
    arguments = [tf.constant(own[:, index], tf.int64) for index in range(first, setting["steps"])]
    task.line_up()
    every = setting.get("checkpoint_every")
    rows = []
    try:
        for number, argument in enumerate(arguments, start=first):
            task.before_step(number)
            asked_s = time.time()
            results = [value.numpy() for value in step(argument)]
            # as a whole: compute, and the all-reduce in it
            rows.append((number, [(asked_s, asked_s, time.time(), time.time())] * local if outside else results))
            if checkpoints is not None:
                _report(task, rows)
                rows = []
                if every and (number + 1) % every == 0:
                    checkpoints.write(number + 1)
    except tf.errors.OpError as error:
        if not job:
            raise
        task.lost(error)
    else:
        task.end()
        _report(task, rows)
        task.line.say("reported")
    task.line.wait("finish")


def _report(task: Task, rows: list[tuple[int, list[Any]]]) -> None:
    for number, replicas in rows:
        for replica, times in enumerate(replicas):
            task.report(task.index * len(replicas) + replica, (*times, number, number + 1), task.origin_s)


OF_EACH_REPLICA = frozenset(
    ("Timestamp", "TensorDataset", "SleepDataset", "ExperimentalSleepDataset", "TakeDataset", "DatasetToSingleElement")
)
"""Operations of ours that have side effects, so that a tf.function would run them one after the other."""


def mirrored(tf: Any, task: Task) -> None:
    """MirroredStrategy on logical devices of one physical device."""
    from tensorflow.python.framework import auto_control_deps

    setting = task.setting
    # clocks and sleeps of one replica must not wait for those of another; those of one replica have their order from us
    auto_control_deps.SKIPPED_ORDER_INSENSITIVE_STATEFUL_OPS |= OF_EACH_REPLICA
    replicas = setting["workers"]
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    physical = tf.config.list_physical_devices(kind)[0]
    logical = tf.config.LogicalDeviceConfiguration
    limit = {"memory_limit": setting["gpu_memory_mib"]} if kind == "GPU" else {}
    tf.config.set_logical_device_configuration(physical, [logical(**limit) for _ in range(replicas)])
    tf.config.threading.set_intra_op_parallelism_threads(setting["threads"])
    strategy = tf.distribute.MirroredStrategy([f"/{kind}:{index}" for index in range(replicas)])
    _run_steps(tf, task, strategy, 1)


def apart(tf: Any, task: Task) -> None:
    """One process of mode ``apart``: the model's step, again and again; nothing is pulled, pushed or reduced.

    Processes take turns: all compute together, then one of them alone, then all together again, until each was alone once. A turn lasts as
    long as ``steps`` steps of the slowest process take while all are busy.
    """
    setting = task.setting
    tf.config.threading.set_intra_op_parallelism_threads(setting["threads"])
    model = emulated_model.Model.of(tf, setting, real.load(tf, task))
    variables = model.create()

    @tf.function(input_signature=[])
    def step() -> Any:
        values = [variable.read_value() for variable in variables]
        gradients, begun, ended = model.compute(values, None)
        # a value that follows from every gradient, so that none is left out
        used = tf.add_n([tf.reduce_max(tf.cast(value, tf.float64)) for value in tf.nest.flatten(gradients, expand_composites=True)])
        return tf.stack([begun, ended, used])

    step()
    warmed = [step().numpy() for _ in range(setting["warm_up"])]
    turn_s = setting["steps"] * task.line_up(step_s=float(np.median([ended - begun for begun, ended, _ in warmed])))
    clocks = []
    for turn in range(2 * setting["workers"]):
        together = turn % 2 == 0
        end_s = task.began_s + (turn + 1) * turn_s
        while (together or turn // 2 == task.index) and time.time() < end_s:
            clocks.append(step().numpy())
        time.sleep(max(end_s - time.time(), 0.0))
    task.end()
    for number, (begun, ended, _) in enumerate(clocks):
        task.report(task.index, (begun, begun, ended, ended, number, number + 1), task.began_s)
    task.line.say("reported")
    task.line.wait("finish")
