"""A process of mode ``apart``: computes the model's step by turns with others, alone and all at the same time, and exchanges nothing.

calibrate/testbed/busy_cores.py tells from these turns what busy cores cost each other.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from . import emulated_model, real, training
from .hub import Task


def compute(tf: Any, task: Task) -> None:
    """One process: the model's step, again and again; nothing is pulled, pushed or reduced.

    Processes take turns: all compute together, then one of them alone, then all together
    again, and so on until each was alone once. A turn lasts as long as ``steps`` steps of the slowest process take while all are busy.
    """
    setting = task.setting
    tf.config.threading.set_intra_op_parallelism_threads(setting["threads"])
    model = real.load(tf, task)
    layers = emulated_model.layers_of(setting)
    variables = emulated_model.create(tf, layers, lambda value, name: tf.Variable(value, name=name), model)

    @tf.function(input_signature=[])
    def step() -> Any:
        values = [variable.read_value() for variable in variables]
        gradients, begun, ended = emulated_model.compute(tf, setting, layers, values, None, None, model)
        # a value that follows from every gradient, so that none is left out
        used = tf.add_n([tf.reduce_max(tf.cast(one, tf.float64)) for one in tf.nest.flatten(gradients, expand_composites=True)])
        return tf.stack([begun, ended, used])

    step()
    warmed = [step().numpy() for _ in range(setting["warm_up"])]
    turn_s = setting["steps"] * task.line_up(step_s=float(np.median([ended - begun for begun, ended, _ in warmed])))
    task.sleep_until(0.0)
    clocks = []
    for turn in range(2 * setting["workers"]):
        together = turn % 2 == 0
        end_s = task.began_s + (turn + 1) * turn_s
        while (together or turn // 2 == task.index) and time.time() < end_s:
            clocks.append(step().numpy())
        time.sleep(max(end_s - time.time(), 0.0))
    task.end()
    rows = [(task.index, (begun, begun, ended, ended, number, number + 1)) for number, (begun, ended, _) in enumerate(clocks)]
    training.report(task, rows, task.began_s)
    task.line.wait("finish")
