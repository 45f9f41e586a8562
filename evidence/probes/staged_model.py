"""A model whose layers are on two devices: activations go from one to the other, their gradients come back.

Either one process with logical devices, or a process a stage, on gRPC: the placement of TensorFlow
itself, a graph whose operations name their devices. Micro-batches follow each other by a
schedule; each device does one pass at a time, in the schedule's order, by control edges.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable

import numpy as np
from _paceline_probes import layers, training
from _paceline_probes.recording import UsageError, let_import
from _paceline_probes.testbed.emulated_model import on
from _paceline_probes.testbed.hub import Task

INTER_OP_THREADS = 4
LEARNING_RATE = 0.0
"""The same work as with any other, and every step starts from the same values."""


def schedule_of(kind: str, stage: int, stages: int, count: int) -> list[tuple[str, int]]:
    """Passes of a stage in their order, each a phase and a micro-batch.

    ``gpipe``: all forward passes, then all backward passes, the last one's first (Huang et al., NeurIPS 2019, figure 2c).
    ``1f1b``: as few forward passes ahead as keep the last stage busy, then one of each in turn
    (Narayanan et al., SOSP 2019, figure 4, without its weight versions).
    """
    if kind == "gpipe":
        return [("forward", number) for number in range(count)] + [("backward", number) for number in reversed(range(count))]
    ahead = min(count, stages - stage)
    order = [("forward", number) for number in range(ahead)]
    for number in range(count):
        order.append(("backward", number))
        if ahead + number < count:
            order.append(("forward", ahead + number))
    return order


class StagedModel:
    """A Keras model in stages, written down as a graph without variables.

    Parameters
    ----------
    builder
        FILE.py:FUNCTION, as ``paceline calibrate`` takes it.
    batch
        Samples of a step, of all micro-batches together.
    ends
        One past the last layer of each stage.
    micro_batches
        Equal parts of the batch.
    schedule
        As of :func:`schedule_of`.

    Attributes
    ----------
    initial
        Values of the trainable variables of each stage.
    handed_bytes
        Bytes that each stage but the last hands on for a micro-batch.
    """

    def __init__(self, tf: Any, builder: str, batch: int, ends: list[int], micro_batches: int, schedule: str) -> None:
        let_import(builder)
        self._tf = tf
        self._steps = training.ModelSteps(tf, training.load_function(builder)(), False)
        x, y = self._steps.batch_of(batch)
        parts = [layer.part for layer in layers.cut(self._steps.model)]
        if ends[-1] != len(parts) or ends != sorted(set(ends)):
            raise UsageError(f"stages: have {ends[-1]} layers, and {builder} has {len(parts)}; count them as --layers does")
        if tf.nest.is_nested(x):
            raise UsageError(f"stages: {builder} has several inputs, and one tensor is handed from stage to stage; take another model")
        self.stages = [parts[begin:end] for begin, end in zip([0, *ends], ends)]
        self.initial = [[np.asarray(one.numpy()) for part in stage for one in part.trainable_variables] for stage in self.stages]
        self._orders = [schedule_of(schedule, stage, len(ends), micro_batches) for stage in range(len(ends))]
        self._others = [[[one.numpy() for one in part.non_trainable_variables] for part in stage] for stage in self.stages]
        self._micro_batches = micro_batches
        held = [np.split(np.asarray(one), micro_batches) for one in tf.nest.flatten((x, y))]
        self._batches = [tf.nest.pack_sequence_as((x, y), [one[number] for one in held]) for number in range(micro_batches)]
        self.handed_bytes: list[int] = []

    @property
    def passes(self) -> list[tuple[int, str, int]]:
        """Stage, phase and micro-batch of each pass, in the order of the clocks; last what applies each stage's gradients."""
        found = [(stage, *one) for stage, order in enumerate(self._orders) for one in order]
        return [*found, *((stage, "apply", 0) for stage in range(len(self._orders)))]

    def write(self, devices: list[str], values: list[list[Any]]) -> tuple[Any, Any, list[list[Any]]]:
        """Add forward and backward passes of a step to the graph that is being built.

        Parameters
        ----------
        devices
            Of each stage.
        values
            Of its variables, on its device.

        Returns
        -------
        (loss, clocks, gradients)
            Clocks have shape (passes, 2): when each pass began and ended, in seconds since the epoch. Gradients by stage.
        """
        tf = self._tf
        clocks: list[list[Any]] = [[] for _ in devices]
        made: dict[tuple[int, str, int], list[Any]] = {}
        tapes: dict[tuple[int, int], Any] = {}
        sums: list[list[Any]] = [[] for _ in devices]
        waiting = [list(order) for order in self._orders]
        self.handed_bytes = []
        while any(waiting):
            for stage, device in enumerate(devices):
                while waiting[stage] and self._can_begin(stage, waiting[stage][0], made):
                    phase, number = waiting[stage].pop(0)
                    with on(tf, device):
                        given = self._given(stage, phase, number, made)
                        begun = _clock(tf, [*given, *(clocks[stage][-1][1:] if clocks[stage] else [])])
                        given = _after(tf, given, [begun])
                        if phase == "forward":
                            out, tapes[stage, number] = self._forward(stage, number, given[0], values[stage])
                            until = out
                        else:
                            out, gradients = self._backward(stage, tapes[stage, number], given, values[stage])
                            sums[stage] = [a + b for a, b in zip(sums[stage], gradients)] if sums[stage] else gradients
                            until = [*out, *sums[stage]]
                        made[stage, phase, number] = out
                        clocks[stage].append([begun, _clock(tf, until)])
        rows = []
        for device, each in zip(devices, clocks):
            with on(tf, device):
                rows.append(tf.stack([tf.stack(one) for one in each]))
        with on(tf, devices[-1]):
            loss = tf.add_n([made[len(devices) - 1, "forward", number][0] for number in range(self._micro_batches)]) / self._micro_batches
        with on(tf, devices[0]):
            return loss, tf.concat(rows, 0), sums

    def _can_begin(self, stage: int, what: tuple[str, int], made: dict[tuple[int, str, int], Any]) -> bool:
        phase, number = what
        if phase == "forward":
            return stage == 0 or (stage - 1, "forward", number) in made
        return (stage, "forward", number) in made and (stage == len(self.stages) - 1 or (stage + 1, "backward", number) in made)

    def _given(self, stage: int, phase: str, number: int, made: dict[tuple[int, str, int], list[Any]]) -> list[Any]:
        """What a pass begins with: activations, or the gradient of those that it handed on, taken over to its own device."""
        tf = self._tf
        if phase == "forward" and stage == 0:
            held = self._batches[number][0]
            # a default is no constant: nothing that follows from the batch alone is computed beforehand
            return [tf.compat.v1.placeholder_with_default(tf.constant(held), held.shape)]
        if phase == "forward":
            (tensor,) = made[stage - 1, "forward", number]
            if number == 0:
                self.handed_bytes.append(int(np.prod(tensor.shape)) * tensor.dtype.size)
            return [tf.identity(tensor)]
        if stage == len(self.stages) - 1:
            loss = made[stage, "forward", number][0]
            return _after(tf, [tf.ones_like(loss) / self._micro_batches], [loss])
        return [tf.identity(made[stage + 1, "backward", number][0])]

    def _forward(self, stage: int, number: int, x: Any, values: list[Any]) -> tuple[list[Any], Any]:
        tf = self._tf
        with tf.GradientTape() as tape:
            tape.watch(values)
            if stage:
                tape.watch(x)
            out, rest = x, list(values)
            for part, others in zip(self.stages[stage], self._others[stage]):
                own, rest = rest[: len(part.trainable_variables)], rest[len(part.trainable_variables) :]
                out, _ = part.stateless_call(own, [tf.constant(one) for one in others], out, training=True)
            if stage == len(self.stages) - 1:
                held = self._batches[number][1]
                y = None if held is None else tf.compat.v1.placeholder_with_default(tf.constant(held), held.shape)
                out = self._steps.loss_of(y, out, [])
        return [out], (tape, out, x)

    def _backward(self, stage: int, taped: Any, given: list[Any], values: list[Any]) -> tuple[list[Any], list[Any]]:
        tf = self._tf
        tape, out, x = taped
        sources = [*([x] if stage else []), *values]
        found = tape.gradient(out, sources, output_gradients=given[0], unconnected_gradients=tf.UnconnectedGradients.ZERO)
        found = [tf.convert_to_tensor(one) for one in found]
        return (found[:1], found[1:]) if stage else ([], found)


def train(tf: Any, task: Task) -> None:
    """A stage's process, or the one process of all; worker 0 starts each step."""
    setting = task.setting
    cores = sorted(os.sched_getaffinity(0))
    alone = setting["one_process"]
    if not alone:
        os.sched_setaffinity(0, [cores[task.index % len(cores)]])
    if alone:
        _in_one_process(tf, task)
    elif task.index:
        server = tf.distribute.Server(task.cluster, job_name="worker", task_index=task.index, protocol="grpc", config=_config(tf, setting))
        task.line_up()
        task.line.wait("finish")
        task.end()
        del server
    else:
        _over_grpc(tf, task)


def _config(tf: Any, setting: dict[str, Any]) -> Any:
    # requests for tensors are answered by threads of the same pool as operations (GrpcWorkerService::Schedule): with one, as many as
    # a process on one core has if nothing is said, what a pass hands on leaves only when no other pass is computed
    return tf.compat.v1.ConfigProto(intra_op_parallelism_threads=setting["threads"], inter_op_parallelism_threads=INTER_OP_THREADS)


def _model(tf: Any, setting: dict[str, Any]) -> StagedModel:
    return StagedModel(tf, setting["builder"], setting["batch"], setting["ends"], setting["micro_batches"], setting["schedule"])


def _over_grpc(tf: Any, task: Task) -> None:
    v1 = tf.compat.v1
    setting = task.setting
    tf.config.threading.set_intra_op_parallelism_threads(setting["threads"])
    model = _model(tf, setting)
    devices = [f"/job:worker/task:{stage}/device:CPU:0" for stage in range(len(model.stages))]
    count = [len(one) for one in model.initial]

    def body(*flat: Any) -> Any:
        values = [list(flat[sum(count[:stage]) : sum(count[: stage + 1])]) for stage in range(len(count))]
        # the passes alone: variables, and what updates them, are made in the session's own graph
        loss, rows, gradients = model.write(devices, values)
        return [loss, rows, *(one for each in gradients for one in each)]

    flat = [one for stage in model.initial for one in stage]
    graph = v1.wrap_function(body, [tf.TensorSpec(one.shape, one.dtype) for one in flat]).graph
    definition = graph.as_graph_def()
    v1.disable_eager_execution()
    server = tf.distribute.Server(task.cluster, job_name="worker", task_index=0, protocol="grpc", config=_config(tf, setting))
    with tf.Graph().as_default():
        variables, given = [], {}
        for stage, device in enumerate(devices):
            with on(tf, device):
                variables.append(
                    [
                        v1.get_variable(f"stage{stage}_{index}", initializer=one, use_resource=True)
                        for index, one in enumerate(model.initial[stage])
                    ]
                )
        for inside, variable in zip(graph.inputs, [one for each in variables for one in each]):
            with on(tf, variable.device):
                given[inside.name] = variable.read_value()
        names = [one.name for one in graph.outputs]
        loss, rows, *gradients = tf.compat.v1.import_graph_def(definition, input_map=given, return_elements=names, name="model")
        applied = []
        for stage, device in enumerate(devices):
            since = sum(count[:stage])
            applied.append(_apply(tf, device, variables[stage], gradients[since : since + count[stage]]))
        with on(tf, devices[0]):
            fetch = [loss, tf.concat([rows, *applied], 0)]
        session = v1.Session(server.target, config=_config(tf, setting))
        session.run(v1.global_variables_initializer())
        call = session.make_callable(fetch)
        _run(task, model, lambda: call()[1])
    del server


def _in_one_process(tf: Any, task: Task) -> None:
    setting = task.setting
    physical = tf.config.list_physical_devices("CPU")[0]
    stages = len(setting["ends"])
    tf.config.set_logical_device_configuration(physical, [tf.config.LogicalDeviceConfiguration() for _ in range(stages)])
    tf.config.threading.set_intra_op_parallelism_threads(setting["threads"])
    model = _model(tf, setting)
    devices = [f"/CPU:{stage}" for stage in range(stages)]
    variables = []
    for device, values in zip(devices, model.initial):
        with tf.device(device):
            variables.append([tf.Variable(one) for one in values])

    def body() -> Any:
        values = []
        for device, each in zip(devices, variables):
            with tf.device(device):
                values.append([one.read_value() for one in each])
        loss, rows, gradients = model.write(devices, values)
        applied = [_apply(tf, *one) for one in zip(devices, variables, gradients)]
        return loss, tf.concat([rows, *applied], 0)

    step = tf.compat.v1.wrap_function(body, [])
    _run(task, model, lambda: step()[1].numpy())


def _run(task: Task, model: StagedModel, call: Callable[[], Any]) -> None:
    """Warm up, line up, make the steps, report each step and each pass of it."""
    setting = task.setting
    for _ in range(setting["warm_up"]):
        call()
    task.line_up()
    steps = []
    for _ in range(setting["steps"]):
        start_s = time.time()
        rows = call()
        steps.append((start_s, time.time(), rows))
    task.end()
    task.line.say("note", handed_bytes=model.handed_bytes, parts=[len(stage) for stage in model.stages])
    for number, (start_s, end_s, rows) in enumerate(steps):
        began = task.began_s
        first, last = float(rows.min()) - began, float(rows.max()) - began
        task.line.say(
            "update",
            worker=0,
            start_s=start_s - began,
            pulled_s=first,
            computed_s=last,
            applied_s=end_s - began,
            read_version=number,
            version=number + 1,
        )
        for (stage, phase, micro_batch), (begun_s, ended_s) in zip(model.passes, rows):
            task.line.say(
                "pass",
                step=number,
                stage=stage,
                phase=phase,
                micro_batch=micro_batch,
                begun_s=float(begun_s) - began,
                ended_s=float(ended_s) - began,
            )
    task.line.say("reported")
    task.line.wait("finish")


def _apply(tf: Any, device: str, variables: list[Any], gradients: list[Any]) -> Any:
    """Apply the gradients of a stage; returns when that began and ended, shape (1, 2)."""
    with on(tf, device):
        begun = _clock(tf, gradients)
        updates = [
            tf.raw_ops.AssignSubVariableOp(resource=variable.handle, value=LEARNING_RATE * gradient)
            for variable, gradient in zip(variables, _after(tf, gradients, [begun]))
        ]
        return tf.stack([[begun, _clock(tf, updates)]])


def _clock(tf: Any, until: list[Any]) -> Any:
    with tf.control_dependencies(until):
        return tf.timestamp()


def _after(tf: Any, tensors: list[Any], until: list[Any]) -> list[Any]:
    with tf.control_dependencies(until):
        return [tf.identity(one) for one in tensors]
