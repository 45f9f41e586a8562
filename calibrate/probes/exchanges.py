"""Times pulls and pushes of many tensors between a worker, which this process is, and a parameter server, through TensorFlow's own gRPC."""

from __future__ import annotations

import time
from typing import Any, Callable

from .recorder import progress
from .transfers import config_of

WARM_UP = 3
MOST_CALLS = 20
"""Calls of one setting in a round."""
LONGEST_SHARE = 0.2
"""Of all the time, what one setting may take in one direction; those that would take more are left out."""
WORKER, SERVER = "/job:link/task:0/device:CPU:0", "/job:link/task:1/device:CPU:0"

Call = Callable[[], Any]


def _ladder(tf: Any, counts: list[int], sizes: list[int]) -> tuple[dict[tuple[str, int, int], Any], Any]:
    """Operations by (direction, tensors, bytes), and the one that initialises; within a graph of their own.

    Variables lie on the server. A pull reads them, and has the values on the worker. A push takes
    gradients that lie ready on the worker, and subtracts each from its variable on the server.
    """
    v1 = tf.compat.v1
    operations = {}
    for size in sizes:
        variables, gradients = [], []
        for index in range(max(counts)):
            for place, kind, held in ((SERVER, "variable", variables), (WORKER, "gradient", gradients)):
                with tf.device(place):
                    held.append(
                        v1.get_variable(f"{kind}_{size}_{index}", [size // 4], tf.float32, v1.zeros_initializer(), use_resource=True)
                    )
        for count in counts:
            pulled, pushed = [], []
            for variable, gradient in zip(variables[:count], gradients[:count]):
                with tf.device(SERVER):
                    value = variable.read_value()
                with tf.device(WORKER):
                    pulled.append(tf.identity(value).op)
                    ready = gradient.read_value()
                with tf.device(SERVER):
                    pushed.append(variable.assign_sub(ready, read_value=False))
            with tf.device(WORKER):
                operations["pull", count, size] = tf.group(*pulled)
                operations["push", count, size] = tf.group(*pushed)
    return operations, v1.global_variables_initializer()


def _time(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def between_processes(tf: Any, target: str, addresses: list[str], arguments: Any, recorder: Any) -> None:
    """Write ``exchange`` records of the whole ladder, all of it in each round."""
    counts, sizes = ([int(part) for part in text.split(",")] for text in (arguments.tensors, arguments.sizes))
    rounds, seconds = arguments.rounds, arguments.seconds
    graph = tf.Graph()
    with graph.as_default():
        operations, initial = _ladder(tf, counts, sizes)
    with tf.compat.v1.Session(target, graph=graph, config=config_of(tf, addresses)) as session:
        session.run(initial)
        calls: dict[tuple[str, int, int], tuple[Call, float]] = {}
        too_long: set[tuple[int, int]] = set()
        for (direction, count, size), operation in sorted(operations.items(), key=lambda item: item[0][1] * item[0][2]):
            if any(count >= other and size >= large for other, large in too_long):
                continue
            call = lambda operation=operation: session.run(operation)  # noqa: E731
            call()  # the first registers the graph, opens connections and allocates
            typical = _time(call)
            if typical * rounds > LONGEST_SHARE * seconds and typical * rounds > 1.0:
                too_long.add((count, size))
                continue
            for _ in range(WARM_UP - 2):
                typical = min(typical, _time(call))
            calls[direction, count, size] = call, typical
        for count, size in sorted(too_long):
            recorder.write("note", left_out=f"{count} tensors of {size} bytes: they take too long")
        share = seconds / rounds / max(len(calls), 1)
        for turn in range(rounds):
            for done, ((direction, count, size), (call, typical)) in enumerate(calls.items(), start=1):
                for _ in range(max(1, min(MOST_CALLS, int(share / typical)))):
                    recorder.write("exchange", direction=direction, tensors=count, size_bytes=size, round=turn, seconds=_time(call))
                progress(turn * len(calls) + done, rounds * len(calls), direction)
