"""Mode ``async``: ParameterServerStrategy with a ClusterCoordinator, one process that hands out the steps; its tasks.

The coordinator of a job with checkpoints or faults is in lasting.py, on the functions of this module.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from . import emulated_model, real, training
from .hub import Task


def serve(tf: Any, task: Task) -> None:
    """A worker or a parameter server: does what the coordinator says, until the run ends."""
    config = training.session_config(tf, task.setting)
    server = tf.distribute.Server(task.cluster, job_name=task.job, task_index=task.index, protocol="grpc", config=config)
    task.line_up()
    task.line.wait("finish")
    task.end()
    del server


def build(tf: Any, task: Task) -> tuple[Any, Any, list[Any], Any]:
    """The coordinator's side of a cluster: itself, the step as a function of its duration in microseconds, the variables, their version."""
    setting = task.setting
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": setting["compute"]["kind"] == "emulated"})
    tf.config.threading.set_intra_op_parallelism_threads(setting["threads"])
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(task.cluster), rpc_layer="grpc", task_type="chief", task_id=0
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    model = real.load(tf, task)
    layers = emulated_model.layers_of(setting)
    with strategy.scope():
        variables = emulated_model.create(tf, layers, lambda value, name: tf.Variable(value, name=name), model)
        version = tf.Variable(tf.zeros([], tf.int64), name="version", trainable=False)
    step = training.step_function(tf, setting, layers, variables, version, None, model)
    return coordinator, tf.function(step, input_signature=[tf.TensorSpec([], tf.int64)]), variables, version


def warm_up(tf: Any, setting: dict[str, Any], coordinator: Any, step: Any) -> None:
    """As many short steps of each worker as the setting says."""
    warm = tf.constant(1000, tf.int64)
    for _ in range(setting["warm_up"]):
        # join lines all workers up: with as many steps as workers, each of them gets one
        for _ in range(setting["workers"]):
            coordinator.schedule(step, args=(warm,))
        coordinator.join()


def coordinate(tf: Any, task: Task) -> None:
    """The coordinator: builds the variables and the step, warms up, hands out the job, reports every step."""
    setting = task.setting
    workers, steps = setting["workers"], setting["steps"] * setting["workers"]
    coordinator, step, _, _ = build(tf, task)

    @tf.function(input_signature=[tf.TensorSpec([], tf.int64)])
    def hold(microseconds: Any) -> Any:
        return emulated_model.sleep(tf, microseconds)

    law = emulated_model.durations(setting, 1, steps, task.seed)[0]
    warm_up(tf, setting, coordinator, step)
    arguments = [(tf.constant(int(one), tf.int64),) for one in law]
    task.line_up()
    task.sleep_until(0.0)
    began_s = time.time()
    spread_s = setting.get("start_spread_s", 0.0)
    if spread_s:
        offsets = np.random.default_rng(task.seed + 1).uniform(0.0, spread_s, workers)
        for offset in offsets:
            coordinator.schedule(hold, args=(tf.constant(int(offset * 1e6), tf.int64),))
    results = [coordinator.schedule(step, args=one) for one in arguments]
    coordinator.join()
    task.end()
    rows = [(worker_of(result), result.fetch()) for result in results]
    training.report(task, rows, began_s)
    task.line.wait("finish")


def worker_of(result: Any) -> int:
    """The worker that made a step, as the place of its result tells; -1 if TensorFlow does not tell."""
    try:
        name = tf_device(result)
        return int(name.split("task:")[1].split("/")[0])
    except (AttributeError, IndexError, ValueError):
        return -1


def tf_device(result: Any) -> str:
    """The device that holds a remote value."""
    values = result._values
    return str((values[0] if isinstance(values, (list, tuple)) else values).backing_device)
