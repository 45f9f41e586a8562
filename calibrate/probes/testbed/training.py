"""One training step with clocks in it, as all modes with parameter servers make it, and its report.

Steps of ``ring`` and ``mirrored`` are made in ring.py. A step's report becomes an ``update`` record of calibrate/measurements.py.
"""

from __future__ import annotations

from typing import Any

from . import emulated_model
from .emulated_model import on
from .hub import Task
from .real import RealCompute


def session_config(tf: Any, setting: dict[str, Any]) -> Any:
    """Threads of a server; graphs are left as they were written, so that what should travel travels."""
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=setting["threads"])
    if setting["compute"]["kind"] == "emulated":
        rewrite = config.graph_options.rewrite_options
        rewrite.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    return config


def step_function(
    tf: Any,
    setting: dict[str, Any],
    layers: list[emulated_model.Layer],
    variables: list[Any],
    version: Any,
    where: str | None,
    model: RealCompute | None,
) -> Any:
    """A function of the step's duration in microseconds, which makes the step; real compute takes the time that it takes.

    It returns float64 [pull begins, pull ended, compute ended, all applied, version read,
    version after its own update]. Times are the worker's wall clock.
    """

    def step(microseconds: Any) -> Any:
        asked, read, pulled = pull_all(tf, layers, variables, version, where)
        gradients, begun, ended = emulated_model.compute(tf, setting, layers, pulled, microseconds, where, model)
        applied = [emulated_model.push(tf, *one) for one in zip(layers, variables, gradients)]
        with tf.control_dependencies([one for one in applied if one is not None]), on(tf, version.device):
            written = tf.raw_ops.AssignAddVariableOp(resource=version.handle, value=tf.ones([], tf.int64))
            with tf.control_dependencies([written]):
                after = version.read_value()
        return row_of(tf, asked, begun, ended, read, after, where)

    return step


def pull_all(
    tf: Any, layers: list[emulated_model.Layer], variables: list[Any], version: Any, where: str | None
) -> tuple[Any, Any, list[Any]]:
    """The beginning of a step: when it began, the version that it reads, and the value of each variable on the worker."""
    with on(tf, where):
        asked = tf.timestamp()
    with tf.control_dependencies([asked]), on(tf, version.device):
        read = version.read_value()
    pulled = []
    for layer, variable in zip(layers, variables):
        # on the version's server it is read first; elsewhere at the same time
        with tf.control_dependencies([read] if variable.device == version.device else [asked]):
            pulled.append(emulated_model.pull(tf, layer, variable, where))
    return asked, read, pulled


def row_of(tf: Any, asked: Any, begun: Any, ended: Any, read: Any, after: Any, where: str | None) -> Any:
    """The end of a step: its row, once the version after it has come back to the worker."""
    with on(tf, where):
        after = tf.identity(after)
        with tf.control_dependencies([after]):
            done = tf.timestamp()
        return tf.stack([asked, begun, ended, done, tf.cast(read, tf.float64), tf.cast(after, tf.float64)])


def report(task: Task, rows: list[tuple[int, Any]], began_s: float) -> None:
    """Send every step, with times since the common start."""
    for worker, row in rows:
        report_step(task, worker, row, began_s)
    task.line.say("reported")


def report_step(task: Task, worker: int, row: Any, began_s: float) -> None:
    """Send one step."""
    asked, begun, ended, done, read, after = (float(value) for value in row)
    task.line.say(
        "update",
        worker=worker,
        start_s=asked - began_s,
        pulled_s=begun - began_s,
        computed_s=ended - began_s,
        applied_s=done - began_s,
        read_version=int(read),
        version=int(after),
    )
