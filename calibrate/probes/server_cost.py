"""Times what a parameter server does with a gradient: the optimizer's update of one tensor, without any network.

calibrate/fit/step.py fits the ``server`` records. Pulls and pushes over the network are timed in transfers.py.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable

SIZES = (4 * 2**10, 64 * 2**10, 2**20, 8 * 2**20)
LARGEST = 64 * 2**20
SHORT, LONG, LONG_OF_SMALL = 1, 9, 33
"""Updates in one call: the difference of two such times is free of the call's own cost."""
SMALL = 256 * 2**10


def _optimizer_like(keras: Any, optimizer: Any) -> Any:
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if inner is None:
        return keras.optimizers.SGD(0.01)
    return type(inner).from_config(inner.get_config())


def _chain(tf: Any, optimizer: Any, variable: Any, gradient: Any, length: int) -> Callable[[], Any]:
    def body(gradient: Any) -> None:
        # updates of one variable wait for each other, so that the chain takes `length` times one
        for _ in range(length):
            optimizer.apply_gradients([(gradient, variable)])

    traced = tf.function(body, autograph=False)
    return lambda: traced(gradient)


def measure(tf: Any, optimizer: Any, largest_variable_bytes: int, rounds: int, recorder: Any) -> None:
    """Write ``server`` records: seconds for a call with several updates of a tensor of a size.

    Parameters
    ----------
    tf
        The TensorFlow module.
    optimizer
        Of which a fresh copy is used; None takes plain SGD.
    largest_variable_bytes
        Size of the model's largest variable, measured too (up to 64 MiB).
    rounds
        Times that each size is measured, in turn.
    recorder
        Takes the records.
    """
    import keras

    sizes = sorted({*SIZES, max(4, min(largest_variable_bytes, LARGEST) // 4 * 4)})
    calls: list[tuple[int, int, Callable[[], Any]]] = []
    with tf.device("/CPU:0"):
        for size in sizes:
            make = getattr(keras, "Variable", tf.Variable)
            variable = make(tf.zeros([size // 4]), trainable=True)
            copy = _optimizer_like(keras, optimizer)
            if hasattr(copy, "build"):
                copy.build([variable])
            gradient = tf.fill([size // 4], 1e-3)
            calls += [
                (size, length, _chain(tf, copy, variable, gradient, length)) for length in (SHORT, LONG_OF_SMALL if size <= SMALL else LONG)
            ]
        for _, _, call in calls:
            call()
            call()
        for turn in range(rounds):
            for size, length, call in calls:
                times = []
                for _ in range(5):
                    start = time.perf_counter()
                    call()
                    times.append(time.perf_counter() - start)
                recorder.write("server", size_bytes=size, round=turn, applies=length, seconds=statistics.median(times))
