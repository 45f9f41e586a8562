"""A worker of modes ``between-graph`` and ``sync`` (compat.v1): each has a graph and a session of its own, and drives itself.

Asynchronous, or synchronous through SyncReplicasOptimizer, with or without backup workers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import emulated_model, real, training
from .emulated_model import on
from .hub import Task


def train(tf: Any, task: Task) -> None:
    """One worker; worker 0 creates the variables."""
    v1 = tf.compat.v1
    setting, chief = task.setting, task.index == 0
    tf.config.threading.set_intra_op_parallelism_threads(setting["threads"])
    model = real.load(tf, task)  # Keras builds eagerly
    v1.disable_eager_execution()
    config = training.session_config(tf, setting)
    server = tf.distribute.Server(task.cluster, job_name="worker", task_index=task.index, protocol="grpc", config=config)
    where = f"/job:worker/task:{task.index}/device:CPU:0"
    layers = emulated_model.layers_of(setting)
    with tf.Graph().as_default():
        place = v1.train.replica_device_setter(worker_device=where, cluster=v1.train.ClusterSpec(task.cluster))
        with on(tf, place):
            variables = emulated_model.create(
                tf,
                layers,
                lambda value, name: v1.get_variable(name, initializer=value, use_resource=True, trainable=True),
                model if chief else None,
            )
            version = v1.get_variable("version", initializer=tf.zeros([], tf.int64), use_resource=True, trainable=False)
        microseconds = v1.placeholder(tf.int64, [])
        synchronous = setting["mode"] == "sync"
        if synchronous:
            fetch, prepare = _synchronous(tf, setting, layers, variables, version, microseconds, where, chief, model)
        else:
            fetch, prepare = training.step_function(tf, setting, layers, variables, version, where, model)(microseconds), None
        session = v1.Session(server.target, config=config)
        if chief:
            session.run(v1.global_variables_initializer())
            if prepare is not None:
                prepare(session)
            task.line.say("initialised")
        task.line.wait("initialised")
        if synchronous:
            session.run(v1.local_variables_initializer())
            session.run(list(v1.get_collection("paceline_local_init")))
        call = session.make_callable(fetch, [microseconds])
        for _ in range(setting["warm_up"]):
            call(1000)
        law = emulated_model.durations(setting, setting["workers"], 4 * setting["steps"], task.seed)[task.index]
        task.line_up()
        spread_s = setting.get("start_spread_s", 0.0)
        offsets = np.random.default_rng(task.seed + 1).uniform(0.0, spread_s, setting["workers"]) if spread_s else None
        task.sleep_until(float(offsets[task.index]) if offsets is not None else 0.0)
        rows = _steps(task, call, law, synchronous)
        task.end()
        training.report(task, [(task.index, row) for row in rows], task.began_s)
        task.line.wait("finish")
        # a worker that waits for a token, or a server, is not to be waited for
    del server


def _steps(task: Task, call: Any, law: Any, synchronous: bool) -> list[Any]:
    """Each worker makes as many steps; synchronously all go on until there have been as many updates."""
    setting, rows = task.setting, []
    for number, microseconds in enumerate(law):
        task.before_step(number)
        rows.append(call(int(microseconds)))
        if synchronous:
            # the version after the step tells how many updates there have been
            if rows[-1][5] - setting["warm_up"] >= setting["steps"]:
                break
        elif len(rows) == setting["steps"]:
            break
    return rows


def _synchronous(
    tf: Any,
    setting: dict[str, Any],
    layers: list[Any],
    variables: list[Any],
    version: Any,
    microseconds: Any,
    where: str,
    chief: bool,
    model: Any,
) -> tuple[Any, Any]:
    """The step through SyncReplicasOptimizer; ``version`` is its global step. Without initial tokens."""
    v1 = tf.compat.v1
    asked, read, pulled = training.pull_all(tf, layers, variables, version, where)
    gradients, begun, ended = emulated_model.compute(tf, setting, layers, pulled, microseconds, where, model)
    gradients = [
        tf.IndexedSlices(one, tf.range(layer.rows), tf.constant(layer.shape)) if layer.rows is not None and model is None else one
        for layer, one in zip(layers, gradients)
    ]
    optimizer = v1.train.SyncReplicasOptimizer(
        v1.train.GradientDescentOptimizer(0.0),
        replicas_to_aggregate=setting["workers"] - setting.get("backup_workers", 0),
        total_num_replicas=setting["workers"],
    )
    place = v1.train.replica_device_setter(worker_device=where, cluster=None, ps_tasks=setting["servers"])
    with on(tf, place):
        applied = optimizer.apply_gradients(list(zip(gradients, variables)), global_step=version)
    with tf.control_dependencies([applied]), on(tf, version.device):
        after = version.read_value()
    row = training.row_of(tf, asked, begun, ended, read, after, where)
    v1.add_to_collection("paceline_local_init", optimizer.chief_init_op if chief else optimizer.local_step_init_op)

    def prepare(session: Any) -> None:
        session.run(v1.local_variables_initializer())
        session.run(optimizer.chief_init_op)
        runner = optimizer.get_chief_queue_runner()
        coordinator = v1.train.Coordinator()
        runner.create_threads(session, coord=coordinator, daemon=True, start=True)
        session.run(optimizer.get_init_tokens_op(num_tokens=0))

    return row, prepare if chief else None
