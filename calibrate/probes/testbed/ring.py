"""Workers that train by all-reduce: modes ``ring`` and ``mirrored``.

``ring`` is MultiWorkerMirroredStrategy, a process for each worker and TensorFlow's ring on gRPC; ``mirrored`` is MirroredStrategy in one
process. Ring workers of a job with checkpoints or faults are in lasting.py, which makes its steps by :func:`step_of`.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from . import emulated_model, real
from .hub import Task


def train(tf: Any, task: Task) -> None:
    """One worker."""
    run_steps(tf, task, strategy_of(tf, task), task.setting["workers"])


def strategy_of(tf: Any, task: Task) -> Any:
    """The strategy of one worker; it is there when all workers are."""
    setting = task.setting
    os.environ["TF_CONFIG"] = json.dumps({"cluster": task.cluster, "task": {"type": "worker", "index": task.index}})
    tf.config.threading.set_intra_op_parallelism_threads(setting["threads"])
    emulated = setting["compute"]["kind"] == "emulated"
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": emulated})
    options = tf.distribute.experimental.CommunicationOptions(implementation=tf.distribute.experimental.CommunicationImplementation.RING)
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def step_of(tf: Any, task: Task, strategy: Any, workers: int) -> tuple[Any, int, list[Any]]:
    """A function of the local replicas' durations in microseconds, which makes the step; how many those are; and the variables."""
    setting = task.setting
    model = real.load(tf, task)
    layers = emulated_model.layers_of(setting)
    local = strategy.num_replicas_in_sync if workers == 1 else 1
    outside = model is not None and setting["mode"] == "mirrored"  # timed
    with strategy.scope():
        variables = emulated_model.create(tf, layers, lambda value, name: tf.Variable(value, name=name), model)

    def replica(durations: Any) -> Any:
        context = tf.distribute.get_replica_context()
        own = durations[context.replica_id_in_sync_group] if local > 1 else durations[0]
        values = [variable.read_value() for variable in variables]
        begun = None if outside else tf.timestamp()
        if outside:
            gradients, ended = model.gradients(tf, values)[0], None
        else:
            gradients, _, ended = emulated_model.compute(tf, setting, layers, values, own, None, model)
        gradients = [tf.convert_to_tensor(one) for one in gradients]  # sparse ones are reduced dense
        if setting.get("overlap"):
            order = sorted(range(len(layers)), key=lambda index: layers[index].ready)
            # one all-reduce a gradient, begun when it is there
            reduced_in_order = [context.all_reduce("SUM", gradients[index]) for index in order]
            reduced = [value for _, value in sorted(zip(order, reduced_in_order), key=lambda pair: pair[0])]
        else:
            reduced = context.all_reduce("SUM", gradients)
        if outside:
            # a value that follows from every gradient, so that none is left out
            return tf.add_n([tf.reduce_sum(tf.cast(one, tf.float64)) for one in reduced])
        with tf.control_dependencies(list(reduced)):
            done = tf.timestamp()
        return tf.stack([begun, begun, ended, done])

    @tf.function(input_signature=[tf.TensorSpec([local], tf.int64)])
    def step(durations: Any) -> Any:
        return strategy.experimental_local_results(strategy.run(replica, args=(durations,)))

    return step, local, variables


def run_steps(tf: Any, task: Task, strategy: Any, workers: int) -> None:
    """Warm up, line up, and make the steps with a strategy that all-reduces; reports one row per step."""
    setting = task.setting
    step, local, _ = step_of(tf, task, strategy, workers)
    # clocks inside the graph would have one replica wait for the other, so a mirrored model is timed from outside, as a whole
    outside = setting["compute"]["kind"] == "real" and setting["mode"] == "mirrored"
    total = setting["workers"]
    law = emulated_model.durations(setting, total, setting["steps"], task.seed)
    own = law if local > 1 else law[task.index : task.index + 1]
    warm = tf.constant([1000] * local, tf.int64)
    for _ in range(max(setting["warm_up"], 2)):
        step(warm)
    arguments = [tf.constant(own[:, index], tf.int64) for index in range(setting["steps"])]
    task.line_up()
    task.sleep_until(0.0)
    rows = []
    for number, one in enumerate(arguments):
        task.before_step(number)
        asked_s = time.time()
        results = [value.numpy() for value in step(one)]
        # as a whole: compute, and the all-reduce in it
        rows.append([(asked_s, asked_s, time.time(), time.time())] * local if outside else results)
    task.end()
    for number, row in enumerate(rows):
        for replica_index, times in enumerate(row):
            task.line.say(
                "update",
                worker=task.index * local + replica_index,
                start_s=float(times[0]) - task.began_s,
                pulled_s=float(times[1]) - task.began_s,
                computed_s=float(times[2]) - task.began_s,
                applied_s=float(times[3]) - task.began_s,
                read_version=number,
                version=number + 1,
            )
    task.line.say("reported")
    task.line.wait("finish")


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
    run_steps(tf, task, strategy, 1)
