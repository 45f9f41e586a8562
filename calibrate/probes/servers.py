"""Times pulls and pushes of many tensors between a worker and a parameter server, through TensorFlow's own gRPC.

Without options: between two processes of this machine, in a network namespace of their own.
``--peer HOST:PORT`` measures with the half that ``links.py --serve`` is. This process is the
worker, the other one the server. TensorFlow's gRPC server listens on all interfaces of its
host: see isolation.py.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import sys
import time
import traceback
from typing import Any, Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]

EXIT_FAILED = 3
EXIT_NO_TENSORFLOW = 4
WARM_UP = 3
MOST_CALLS = 20
"""Calls of one setting in a round."""
LONGEST_SHARE = 0.2
"""Of all the time, what one setting may take in one direction; those that would take more are left out."""
WORKER, SERVER = "/job:link/task:0/device:CPU:0", "/job:link/task:1/device:CPU:0"

Call = Callable[[], Any]


def _sibling(name: str) -> Any:
    spec = importlib.util.spec_from_file_location("_paceline_probe_" + name, os.path.join(HERE, name + ".py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer")
    parser.add_argument("--tensors", default="1,4,16,64")
    parser.add_argument("--sizes", default="256,16384,262144,1048576", help="bytes of each tensor, multiples of 4")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=15.0, help="about so long it measures")
    parser.add_argument("--out", default="")
    return parser.parse_args()


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


def between_processes(tf: Any, target: str, addresses: list[str], arguments: argparse.Namespace, recorder: Any, progress: Any) -> None:
    """Write ``exchange`` records of the whole ladder, all of it in each round.

    The graph optimiser is off, else it would cut what changes nothing.
    """
    v1 = tf.compat.v1
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    config.cluster_def.CopyFrom(tf.train.ClusterSpec({"link": addresses}).as_cluster_def())
    config.operation_timeout_in_ms = 600_000
    counts, sizes = ([int(part) for part in text.split(",")] for text in (arguments.tensors, arguments.sizes))
    rounds, seconds = arguments.rounds, arguments.seconds
    graph = tf.Graph()
    with graph.as_default():
        operations, initial = _ladder(tf, counts, sizes)
    with v1.Session(target, graph=graph, config=config) as session:
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


def measure(tf: Any, arguments: argparse.Namespace, recorder: Any) -> None:
    """Start the worker's half, and the server's too where there is no peer, and time what is between them."""
    environment, links = _sibling("environment"), _sibling("links")
    recorder.write("fingerprint", **environment.fingerprint(tf, *environment.choose_device(tf, "CPU")))
    child = None
    try:
        if arguments.peer:
            peer, host = arguments.peer, links.own_address(arguments.peer)
        else:
            child, peer = links.second_process()
            host = "127.0.0.1"
        own = f"{host}:{links.free_port(host)}"
        # another job name than the session's: TensorFlow refuses a cluster that renames a task to itself
        server = tf.distribute.Server({"measuring": [own]}, job_name="measuring", task_index=0)
        where = " in a network namespace of its own" if child else ""
        recorder.write("note", remark=f"gRPC between a worker at {host} and a server at {peer.rpartition(':')[0]}{where}")
        between_processes(tf, server.target, [own, peer], arguments, recorder, _sibling("recorder").progress)
    finally:
        if child is not None:
            child.kill()
            child.wait()
    recorder.write("end")


def main() -> int:
    """Run the worker's half of the probe."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    recorder = _sibling("recorder").Recorder(arguments.out)
    recorder.header("servers", {key: value for key, value in vars(arguments).items() if key != "out"})
    try:
        if not arguments.peer:  # before TensorFlow starts its threads
            _sibling("isolation").isolate(
                "; if this network is trusted, "
                "run `paceline calibrate-link --serve 127.0.0.1:2222` in one terminal and `--peer 127.0.0.1:2222` in another"
            )
        try:
            import tensorflow as tf
        except ImportError as error:
            recorder.write("error", type=type(error).__name__, message=str(error), where="import tensorflow")
            return EXIT_NO_TENSORFLOW
        measure(tf, arguments, recorder)
    except Exception as error:
        recorder.write("error", type=type(error).__name__, message=str(error)[:2000], where="")
        traceback.print_exc()
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
