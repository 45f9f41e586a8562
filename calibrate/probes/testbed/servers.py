"""Tasks of the modes with parameter servers.

``async``: ParameterServerStrategy with a ClusterCoordinator, one process that hands out the steps. ``between-graph`` and ``sync``
(compat.v1): each worker has a graph and a session of its own, and drives itself, asynchronously, or synchronously through
SyncReplicasOptimizer, with or without backup workers.
"""

from __future__ import annotations

import time
from typing import Any

from . import emulated_model, real
from .emulated_model import on
from .hub import Checkpoints, Task, first_line, is_job


def serve(tf: Any, task: Task) -> None:
    """A worker or a parameter server: does what the coordinator says, until the run ends."""
    config = emulated_model.session_config(tf, task.setting)
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
    model = emulated_model.Model.of(tf, setting, real.load(tf, task))
    with strategy.scope():
        variables = model.create()
        version = tf.Variable(tf.zeros([], tf.int64), name="version", trainable=False)
    return coordinator, tf.function(model.step(version), input_signature=[tf.TensorSpec([], tf.int64)]), variables, version


def warm_up(tf: Any, setting: dict[str, Any], coordinator: Any, step: Any) -> None:
    """As many short steps of each worker as the setting says."""
    warm = tf.constant(1000, tf.int64)
    for _ in range(setting["warm_up"]):
        # join lines all workers up: with as many steps as workers, each of them gets one
        for _ in range(setting["workers"]):
            coordinator.schedule(step, args=(warm,))
        coordinator.join()


def coordinate(tf: Any, task: Task) -> None:
    """The coordinator: builds the variables and the step, warms up, hands out the steps, reports every one.

    In a job it hands out those up to the next checkpoint, waits for them, writes it, and so on. A step whose worker dies goes to another
    one, which is ClusterCoordinator's own doing; it cannot go on without a parameter server.
    """
    setting, job = task.setting, is_job(task.setting)
    workers, steps = setting["workers"], setting["steps"] * setting["workers"]
    coordinator, step, variables, version = build(tf, task)
    checkpoints = Checkpoints(tf, task, True, variables=variables, version=version) if job else None
    done = checkpoints.restore() if checkpoints else 0

    @tf.function(input_signature=[tf.TensorSpec([], tf.int64)])
    def hold(microseconds: Any) -> Any:
        return emulated_model.sleep(tf, microseconds)

    durations_us = emulated_model.durations(setting, 1, steps, task.seed)[0]
    warm_up(tf, setting, coordinator, step)
    if job:
        version.assign(done)
        _tell_of_workers(task, coordinator)
    arguments = [(tf.constant(int(duration), tf.int64),) for duration in durations_us]
    task.line_up()
    origin_s = task.origin_s if job else time.time()
    for offset in task.start_offsets_s():
        coordinator.schedule(hold, args=(tf.constant(int(offset * 1e6), tf.int64),))
    every, results = (setting.get("checkpoint_every") or steps) * workers, []
    while done < steps:
        last = min(done + every - done % every, steps)
        results = [coordinator.schedule(step, args=argument) for argument in arguments[done:last]]
        try:
            coordinator.join()
            done = last
            if checkpoints is not None:
                _report(tf, task, results, origin_s)
                results = []
                if setting.get("checkpoint_every") and done % every == 0:
                    checkpoints.write(done)
        except tf.errors.OpError as error:
            if not job:
                raise
            _report(tf, task, results, origin_s)
            task.lost(error)
            break
    else:
        task.end()
        _report(tf, task, results, origin_s)
        task.line.say("reported")
    task.line.wait("finish")


def _report(tf: Any, task: Task, results: list[Any], origin_s: float) -> None:
    """Send all steps that were made."""
    for result in results:
        try:
            row = result.fetch()
        except tf.errors.OpError:  # cancelled, or nobody was left to make it
            continue
        task.report(worker_of(result), row, origin_s)


def worker_of(result: Any) -> int:
    """The worker that made a step, as the place of its result tells; -1 if TensorFlow does not tell."""
    try:
        values = result._values
        device = str((values[0] if isinstance(values, (list, tuple)) else values).backing_device)
        return int(device.split("task:")[1].split("/")[0])
    except (AttributeError, IndexError, ValueError):
        return -1


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
            task.event("noticed", of=f"worker {number}", message=first_line(error))
            then(closure, error)

        def on_recovery(number: int = worker.worker_index, then: Any = recovered) -> None:
            task.event("recovered", of=f"worker {number}")
            then()

        worker._on_closure_failure, worker._on_worker_recovery = on_failure, on_recovery


# -- workers that drive themselves ------------------------------------------------------------


def drive(tf: Any, task: Task) -> None:
    """One worker; worker 0 creates the variables."""
    v1 = tf.compat.v1
    setting, chief = task.setting, task.index == 0
    tf.config.threading.set_intra_op_parallelism_threads(setting["threads"])
    computed = real.load(tf, task)  # Keras builds eagerly
    v1.disable_eager_execution()
    config = emulated_model.session_config(tf, setting)
    server = tf.distribute.Server(task.cluster, job_name="worker", task_index=task.index, protocol="grpc", config=config)
    where = f"/job:worker/task:{task.index}/device:CPU:0"
    model, optimizer = emulated_model.Model.of(tf, setting, computed, where), None
    with tf.Graph().as_default():
        place = v1.train.replica_device_setter(worker_device=where, cluster=v1.train.ClusterSpec(task.cluster))
        with on(tf, place):

            def make(value: Any, name: str) -> Any:
                return v1.get_variable(name, initializer=value, use_resource=True, trainable=True)

            model.create(make, initial=chief)
            version = v1.get_variable("version", initializer=tf.zeros([], tf.int64), use_resource=True, trainable=False)
        microseconds = v1.placeholder(tf.int64, [])
        synchronous = setting["mode"] == "sync"
        if synchronous:
            fetch, optimizer = _synchronous(tf, setting, model, version, microseconds, where)
        else:
            fetch = model.step(version)(microseconds)
        session = v1.Session(server.target, config=config)
        if chief:
            session.run(v1.global_variables_initializer())
            if optimizer is not None:
                session.run(v1.local_variables_initializer())
                session.run(optimizer.chief_init_op)
                optimizer.get_chief_queue_runner().create_threads(session, coord=v1.train.Coordinator(), daemon=True, start=True)
                session.run(optimizer.get_init_tokens_op(num_tokens=0))
            task.line.say("initialised")
        task.line.wait("initialised")
        if optimizer is not None:
            session.run(v1.local_variables_initializer())
            session.run(optimizer.chief_init_op if chief else optimizer.local_step_init_op)
        call = session.make_callable(fetch, [microseconds])
        for _ in range(setting["warm_up"]):
            call(1000)
        durations_us = emulated_model.durations(setting, setting["workers"], 4 * setting["steps"], task.seed)[task.index]
        offsets_s = task.start_offsets_s()
        task.line_up(offset_s=offsets_s[task.index] if offsets_s else 0.0)
        rows = []
        for number, duration_us in enumerate(durations_us):
            task.before_step(number)
            rows.append(call(int(duration_us)))
            # each worker makes as many steps; synchronously all go on until there have been as many updates, as the version tells
            if (rows[-1][5] - setting["warm_up"] if synchronous else len(rows)) >= setting["steps"]:
                break
        task.end()
        for row in rows:
            task.report(task.index, row, task.began_s)
        task.line.say("reported")
        task.line.wait("finish")
        # a worker that waits for a token, or a server, is not to be waited for
    del server


def _synchronous(
    tf: Any, setting: dict[str, Any], model: emulated_model.Model, version: Any, microseconds: Any, where: str
) -> tuple[Any, Any]:
    """The step through SyncReplicasOptimizer, whose global step is ``version``, without initial tokens; and the optimizer."""
    v1 = tf.compat.v1
    asked, read, pulled = model.pull(version)
    gradients, begun, ended = model.compute(pulled, microseconds)
    gradients = [
        gradient if spec.rows is None else tf.IndexedSlices(gradient, tf.range(spec.rows), tf.constant(spec.shape))
        for spec, gradient in zip(model.specs, gradients)
    ]
    optimizer = v1.train.SyncReplicasOptimizer(
        v1.train.GradientDescentOptimizer(0.0),
        replicas_to_aggregate=setting["workers"] - setting.get("backup_workers", 0),
        total_num_replicas=setting["workers"],
    )
    with on(tf, v1.train.replica_device_setter(worker_device=where, cluster=None, ps_tasks=setting["servers"])):
        applied = optimizer.apply_gradients(list(zip(gradients, model.variables)), global_step=version)
    with tf.control_dependencies([applied]), on(tf, version.device):
        after = version.read_value()
    return model.row(asked, begun, ended, read, after), optimizer
