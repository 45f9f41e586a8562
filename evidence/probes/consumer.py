"""A training loop whose step takes a known time: how fast it gets batches from a tf.data pipeline; knows only TensorFlow.

The step is a ``tf.function`` that takes a batch off an iterator and then sleeps, as a host does while a GPU computes. One line of JSON for
each epoch: seconds of each step, the first with all that it takes to make an iterator. The first lines have no pipeline: the same step with
ready batches.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
from _paceline_probes import training

STEPS_ALONE = 60


def loop(tf: Any, dataset: Any, step_s: float, steps: int) -> list[float]:
    """Seconds of each step of an epoch, or of its first steps."""

    def compute() -> Any:
        time.sleep(step_s)
        return np.int64(0)

    @tf.function
    def step(iterator: Any) -> Any:
        batch = next(iterator)
        with tf.control_dependencies(tf.nest.flatten(batch)):
            return tf.numpy_function(compute, [], tf.int64, stateful=True)

    # an iterator that has begun nothing, to be traced with
    step.get_concrete_function(tf.data.IteratorSpec(dataset.element_spec))
    times: list[float] = []
    last = time.perf_counter()
    iterator = iter(dataset)
    while len(times) < steps:
        try:
            step(iterator)
        except tf.errors.OutOfRangeError:
            break
        now = time.perf_counter()
        times.append(now - last)
        last = now
    return times


def tell(setting: dict[str, Any], times: list[float]) -> None:
    """One line on stdout."""
    print(json.dumps({**setting, "seconds": times}), flush=True)


def main() -> int:
    """Train for some epochs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True, metavar="FILE.py:FUNCTION")
    parser.add_argument("--settings", required=True, help="JSON: a list of {calls, prefetch, batch, step_s, steps, epochs}")
    arguments = parser.parse_args()
    import tensorflow as tf

    function = training.load_function(arguments.input)
    settings = json.loads(arguments.settings)
    for step_s in sorted({one["step_s"] for one in settings}):
        ready = tf.data.Dataset.from_tensors(tf.zeros([1])).repeat()
        tell({"step_s": step_s}, loop(tf, ready, step_s, STEPS_ALONE))
    for one in settings:
        dataset = function(num_parallel_calls=one["calls"], prefetch=one["prefetch"], batch=one["batch"])
        for epoch in range(one["epochs"]):
            tell({**one, "epoch": epoch}, loop(tf, dataset, one["step_s"], one["steps"]))
    return 0
