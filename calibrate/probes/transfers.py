"""Times chains of transfers and all-reduces of one tensor, and pulls and pushes of many tensors, for links.py.

calibrate/fit/link.py reads ``transfer`` records by the names of their paths (``grpc``, ``host-to-device``, ...),
calibrate/fit/server.py ``exchange`` records by their directions.
"""

from __future__ import annotations

import time
from typing import Any, Callable

from .recording import progress

BIG = 2**20
SHORT = 2
LONG, LONG_OF_BIG = 10, 4
"""Hops of a chain: there and back again, several times."""

Call = Callable[[], Any]


def chain_lengths(size: int) -> tuple[int, int]:
    """Hops of the short and of the long chain: fewer for large tensors, which take long."""
    return SHORT, LONG_OF_BIG if size >= BIG else LONG


class Timing:
    """Writes ``transfer`` records, and tells of progress among as many steps of it as there are in all."""

    def __init__(self, recorder: Any, rounds: int, total: int) -> None:
        self._recorder, self._rounds, self._total, self._done = recorder, rounds, total, 0

    def time(self, path: str, calls: dict[tuple[int, int], Call]) -> None:
        """Time calls by (bytes, hops), all of them in each round."""
        for call in calls.values():  # the first opens connections and allocates
            call()
            call()
        for turn in range(self._rounds):
            for (size, hops), call in calls.items():
                for _ in range(1 if size >= BIG else 5):
                    self._recorder.write("transfer", path=path, size_bytes=size, round=turn, hops=hops, seconds=_time(call))
                self._done += 1
                progress(self._done, self._total, path)


def _time(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def config_of(tf: Any, addresses: list[str]) -> Any:
    """Configuration of a session on two servers, the first this process's, without the optimiser, which would cut what changes nothing."""
    v1 = tf.compat.v1
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    config.cluster_def.CopyFrom(tf.train.ClusterSpec({"link": addresses}).as_cluster_def())
    config.operation_timeout_in_ms = 600_000
    return config


def between_processes(tf: Any, target: str, addresses: list[str], sizes: list[int], timing: Timing) -> None:
    """Through TensorFlow's gRPC transport: a tensor that hops between two servers."""
    v1 = tf.compat.v1
    graph = tf.Graph()
    ends = {}
    with graph.as_default():
        for size in sizes:
            with tf.device("/job:link/task:0/device:CPU:0"):
                start = v1.get_variable(f"message_{size}", [size], tf.uint8, v1.zeros_initializer(), use_resource=True)
            for hops in chain_lengths(size):
                with tf.device("/job:link/task:0/device:CPU:0"):
                    tensor = tf.identity(start)
                for hop in range(hops):
                    with tf.device(f"/job:link/task:{(hop + 1) % 2}/device:CPU:0"):
                        tensor = tf.identity(tensor)
                ends[size, hops] = tensor.op
        initial = v1.global_variables_initializer()
    with v1.Session(target, graph=graph, config=config_of(tf, addresses)) as session:
        session.run(initial)
        timing.time("grpc", {key: (lambda end=end: session.run(end)) for key, end in ends.items()})


def host_device(tf: Any, gpu: str, sizes: list[int], timing: Timing) -> None:
    """Copies from host to device, and from device to host, each waited for."""
    sync = tf.test.experimental.sync_devices
    up: dict[tuple[int, int], Call] = {}
    down: dict[tuple[int, int], Call] = {}
    for size in sizes:
        with tf.device("/CPU:0"):
            here = tf.zeros([size], tf.uint8)
        with tf.device(gpu):
            there = tf.identity(here)

        def copy(source: Any, where: str, times: int) -> None:
            for _ in range(times):
                with tf.device(where):
                    tf.identity(source)
                sync()

        for times in chain_lengths(size):
            up[size, times] = lambda here=here, times=times: copy(here, gpu, times)
            down[size, times] = lambda there=there, times=times: copy(there, "/CPU:0", times)
    timing.time("host-to-device", up)
    timing.time("device-to-host", down)


def all_reduce(tf: Any, devices: list[str], sizes: list[int], timing: Timing) -> None:
    """All-reduce between the devices of this machine through ``tf.distribute``."""
    strategy = tf.distribute.MirroredStrategy(devices)

    def reducing(size: int, times: int) -> Call:
        def replica() -> Any:
            context = tf.distribute.get_replica_context()
            tensor = tf.ones([size // 4])
            for _ in range(times):  # each waits for the one before
                tensor = context.all_reduce(tf.distribute.ReduceOp.MEAN, tensor)
            return tensor[:1]

        run = tf.function(lambda: strategy.run(replica), autograph=False)

        def call() -> None:
            for value in strategy.experimental_local_results(run()):
                value.numpy()

        return call

    timing.time(f"all-reduce-{len(devices)}", {(size, times): reducing(size, times) for size in sizes for times in (1, 5)})


# -- pulls and pushes of many tensors, between a worker, which this process is, and a server ---------

WARM_UP = 3
MOST_CALLS = 20
"""Calls of one setting in a round."""
LONGEST_SHARE = 0.2
"""Of all the time, what one setting may take in one direction; those that would take more are left out."""
WORKER, SERVER = "/job:link/task:0/device:CPU:0", "/job:link/task:1/device:CPU:0"


def _ladder(tf: Any, counts: list[int], sizes: list[int]) -> tuple[dict[tuple[str, int, int], Any], Any]:
    """Operations by (direction, tensors, bytes), and the one that initialises; within a graph of their own.

    Variables lie on the server. A pull reads them, and has the values on the worker. A push takes
    gradients that lie ready on the worker, and subtracts each from its variable on the server.
    """
    v1 = tf.compat.v1
    operations = {}
    for size in sizes:
        held: dict[str, list[Any]] = {SERVER: [], WORKER: []}
        for index in range(max(counts)):
            for place, kind in ((SERVER, "variable"), (WORKER, "gradient")):
                name, zeros = f"{kind}_{size}_{index}", v1.zeros_initializer()
                with tf.device(place):
                    held[place].append(v1.get_variable(name, [size // 4], tf.float32, zeros, use_resource=True))
        for count in counts:
            pulled, pushed = [], []
            for variable, gradient in zip(held[SERVER][:count], held[WORKER][:count]):
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


def pulls_and_pushes(tf: Any, target: str, addresses: list[str], arguments: Any, recorder: Any) -> None:
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
