"""A worker that learns: pulls, sleeps as long as its emulated device computes, and pushes the real gradient of its batch meanwhile.

Asynchronous, with or without a bound on how far it may be ahead of the slowest (SSP), or synchronous through
SyncReplicasOptimizer; compat.v1, as ``servers`` of the testbed. Some of the versions that it pulls are kept, and
validated when the training has ended, so that nothing but the training goes over the links meanwhile.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from _paceline_probes import training as models
from _paceline_probes.learner import Learner
from _paceline_probes.recording import let_import
from _paceline_probes.testbed import emulated_model
from _paceline_probes.testbed.emulated_model import on
from _paceline_probes.testbed.hub import Task

_POLL_S = 0.004


class Traced:
    """A function as a graph without variables, for any session."""

    def __init__(self, tf: Any, function: Any, specs: list[Any]) -> None:
        traced = tf.function(function).get_concrete_function(*specs)
        graph = traced.graph
        self._inputs = [one.name for one in graph.inputs[: len(specs)]]
        self._captured = {inside.name: outside.numpy() for outside, inside in graph.captures}
        self._outputs = [one.name for one in tf.nest.flatten(traced.structured_outputs)]
        self._graph = graph.as_graph_def()
        for node in self._graph.node:
            node.device = ""
        for one in self._graph.library.function:
            for node in one.node_def:
                node.device = ""

    def add(self, tf: Any, given: list[Any]) -> list[Any]:
        """Add it to the graph that is being built; its outputs."""
        mapped = dict(zip(self._inputs, given))
        mapped.update({name: tf.constant(value) for name, value in self._captured.items()})
        return list(tf.compat.v1.import_graph_def(self._graph, input_map=mapped, return_elements=self._outputs, name="model"))


class Problem:
    """The model and its data, built eagerly, as graphs of its gradients and its validation."""

    def __init__(self, tf: Any, setting: dict[str, Any], seed: int) -> None:
        import keras

        let_import(setting["problem"])
        keras.utils.set_random_seed(seed)
        self._learner = learner = Learner(tf, models.load_function(setting["problem"])())
        self.samples = learner.samples
        self.initial = [np.array(one) for one in learner.variables]
        values = [tf.TensorSpec(one.shape, one.dtype) for one in learner.variables]
        fixed = [tf.constant(np.array(one)) for one in learner.model.non_trainable_variables]

        def gradients(*given: Any) -> list[Any]:
            *pulled, rows = given
            x, y = tf.gather(learner.x, rows), tf.gather(learner.y, rows)
            with tf.GradientTape() as tape:
                tape.watch(pulled)
                outputs, _, losses = learner.model.stateless_call(pulled, fixed, x, training=True, return_losses=True)
                loss = tf.reduce_mean(learner.model.loss(y, outputs)) + (tf.add_n(losses) if losses else 0.0)
            return list(tape.gradient(loss, pulled))

        self.gradients = Traced(tf, gradients, [*values, tf.TensorSpec([None], tf.int32)])

        def validation(*pulled: Any) -> list[Any]:
            outputs, _ = learner.model.stateless_call(list(pulled), fixed, learner.valid_x, training=False)
            right = tf.equal(tf.argmax(outputs, 1, tf.int32), tf.cast(learner.valid_y, tf.int32))
            return [tf.reduce_mean(learner.model.loss(learner.valid_y, outputs)), tf.reduce_mean(tf.cast(right, tf.float32))]

        self.validation = Traced(tf, validation, values)

    def batches(self, batch: int, count: int, seed: int) -> np.ndarray:
        """Numbers of the samples of each step: the worker shuffles all data by itself, epoch after epoch."""
        rng = np.random.default_rng(seed)
        epochs = -(-count * batch // self.samples)
        rows = np.concatenate([rng.permutation(self.samples) for _ in range(epochs)])
        return rows[: count * batch].reshape(count, batch).astype(np.int32)


def train(tf: Any, task: Task) -> None:
    """One worker; worker 0 creates the variables."""
    v1 = tf.compat.v1
    setting, chief = task.setting, task.index == 0
    tf.config.threading.set_intra_op_parallelism_threads(setting["threads"])
    problem = Problem(tf, setting, task.seed)  # Keras builds eagerly
    v1.disable_eager_execution()
    config = emulated_model.session_config(tf, setting)
    server = tf.distribute.Server(task.cluster, job_name="worker", task_index=task.index, protocol="grpc", config=config)
    where = f"/job:worker/task:{task.index}/device:CPU:0"
    synchronous = setting["mode"] == "sync"
    with tf.Graph().as_default():
        place = v1.train.replica_device_setter(worker_device=where, cluster=v1.train.ClusterSpec(task.cluster))
        with on(tf, place):
            initial = [tf.constant(one) for one in problem.initial]
            variables = [v1.get_variable(f"v{number}", initializer=one, use_resource=True) for number, one in enumerate(initial)]
            version = v1.get_variable("version", initializer=tf.zeros([], tf.int64), use_resource=True, trainable=False)
            clocks = v1.get_variable("clocks", initializer=tf.zeros([setting["workers"]], tf.int64), use_resource=True, trainable=False)
        microseconds, rows = v1.placeholder(tf.int64, []), v1.placeholder(tf.int32, [None])
        specs = [emulated_model.VariableSpec(f"v{number}", one.shape, "float32", None, 1.0) for number, one in enumerate(problem.initial)]
        model = emulated_model.Model(tf, specs, None, where)
        model.variables = variables
        asked, read, pulled = model.pull(version)
        with on(tf, where):
            with tf.control_dependencies(pulled):
                begun = tf.timestamp()
            with tf.control_dependencies([begun]):
                slept = emulated_model.sleep(tf, microseconds)
            gradients = problem.gradients.add(tf, [*pulled, rows])
            with tf.control_dependencies([slept, *gradients]):
                ended = tf.timestamp()
            with tf.control_dependencies([ended]):
                gradients = [tf.identity(one) for one in gradients]
        optimizer = v1.train.MomentumOptimizer(setting["learning_rate"], setting["momentum"])
        if synchronous:
            optimizer = v1.train.SyncReplicasOptimizer(
                optimizer, replicas_to_aggregate=setting["workers"], total_num_replicas=setting["workers"]
            )
        with on(tf, v1.train.replica_device_setter(worker_device=where, cluster=None, ps_tasks=setting["servers"])):
            applied = optimizer.apply_gradients(list(zip(gradients, variables)), global_step=version)
        with tf.control_dependencies([applied]), on(tf, version.device):
            after = version.read_value()
        row = model.row(asked, begun, ended, read, after)
        with on(tf, clocks.device):
            tick = tf.raw_ops.ResourceScatterAdd(
                resource=clocks.handle, indices=tf.constant([task.index]), updates=tf.constant([1], tf.int64)
            )
            slowest = tf.reduce_min(clocks.read_value())
        local = [optimizer.chief_init_op if chief else optimizer.local_step_init_op] if synchronous else []
        session = v1.Session(server.target, config=config)
        if chief:
            session.run(v1.global_variables_initializer())
            if synchronous:
                session.run(v1.local_variables_initializer())
                session.run(optimizer.chief_init_op)
                optimizer.get_chief_queue_runner().create_threads(session, coord=v1.train.Coordinator(), daemon=True, start=True)
                session.run(optimizer.get_init_tokens_op(num_tokens=0))
            task.line.say("initialised")
        task.line.wait("initialised")
        if synchronous:
            session.run(v1.local_variables_initializer())
            session.run(local)
        call = session.make_callable([row, *pulled], [microseconds, rows])
        steps = setting["steps"]
        law = emulated_model.durations(setting, setting["workers"], 4 * steps, task.seed)[task.index]
        batches = problem.batches(setting["batch"], 4 * steps, 1000 * task.seed + task.index)
        # the first call of a session takes long: graphs are handed out; nothing may be learned by it
        reach = session.make_callable([read, *pulled])
        for _ in range(setting["warm_up"]):
            reach()
        task.line_up()
        bound = setting.get("bound")
        found, kept, seen = [], [], -1
        for number in range(4 * steps):
            if bound is not None:
                while number - int(session.run(slowest)) > bound:
                    time.sleep(_POLL_S)
            row_now, *values = call(int(law[number]), batches[number])
            found.append(row_now)
            if row_now[4] // setting["keep_every"] > seen:
                seen = row_now[4] // setting["keep_every"]
                kept.append((row_now[0] - task.began_s, int(row_now[4]), values))
            if bound is not None:
                session.run(tick)
            if (row_now[5] >= steps) if synchronous else (row_now[5] >= steps * setting["workers"]):
                break
        task.end()
        if bound is not None:  # nobody waits for one that has ended
            session.run(tf.raw_ops.ResourceScatterAdd(resource=clocks.handle, indices=tf.constant([task.index]),
                                                      updates=tf.constant([1 << 40], tf.int64)))  # fmt: skip
    _validate(tf, task, problem, kept)
    for row_now in found:
        task.report(task.index, row_now, task.began_s)
    task.line.say("reported")
    task.line.wait("finish")
    del server


def _validate(tf: Any, task: Task, problem: Problem, kept: list[tuple[float, int, list[Any]]]) -> None:
    """How good each version was that was kept, computed when all has ended."""
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        given = [v1.placeholder(tf.float32, one.shape) for one in problem.initial]
        outputs = problem.validation.add(tf, given)
        with v1.Session() as session:
            validate = session.make_callable(outputs, given)
            for at_s, version, values in kept:
                loss, accuracy = (float(one) for one in validate(*values))
                task.line.say("note", worker=task.index, at_s=at_s, version=version, loss=loss, accuracy=accuracy)
