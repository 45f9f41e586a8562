"""Measures links: bytes against time through TensorFlow's own transports.

Without options: between two processes of this machine, in a network namespace of their
own. ``--serve HOST:PORT`` waits for the other half, ``--peer HOST:PORT`` measures with it.
TensorFlow's gRPC server listens on all interfaces of its host: see isolation.py.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]

EXIT_FAILED = 3
EXIT_NO_TENSORFLOW = 4
CONNECT_S = 20.0


def _sibling(name: str) -> Any:
    spec = importlib.util.spec_from_file_location("_paceline_probe_" + name, os.path.join(HERE, name + ".py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve")
    parser.add_argument("--peer")
    parser.add_argument("--sizes", default=",".join(str(2**power) for power in range(10, 27, 2)))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--logical-devices", type=int, default=0, help="split the CPU, to try the all-reduce without GPUs")
    parser.add_argument("--out", default="")
    return parser.parse_args()


def free_port(host: str) -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as sock:
        sock.bind((host, 0))
        return int(sock.getsockname()[1])


def check_port(address: str) -> None:
    """Fail in words if the port is taken: TensorFlow would only say that it could not start."""
    host, _, port = address.rpartition(":")
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, int(port)))
        except OSError as error:
            raise OSError(
                f"{address} cannot be listened on: {error.strerror or error}; choose another port, and an address of this host"
            ) from None


def own_address(peer: str) -> str:
    """The address of this host that the peer sees, found by connecting to it."""
    host, _, port = peer.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=CONNECT_S) as sock:
            return str(sock.getsockname()[0])
    except OSError as error:
        raise ConnectionError(
            f"{peer} cannot be reached: {error.strerror or error}; start `paceline calibrate-link --serve {peer}` there first"
        ) from None


def serve(tf: Any, address: str) -> None:
    """One half: a server that the peer puts to work. Ends when its starter goes away."""
    check_port(address)
    tf.distribute.Server({"serving": [address]}, job_name="serving", task_index=0)
    print("@serving " + address, flush=True)
    if not sys.stdin.isatty():  # a pipe from the starter closes when it dies
        sys.stdin.read()
        return
    threading.Event().wait()


def second_process() -> tuple[subprocess.Popen[str], str]:
    """The serving half as a process of this machine, and its address."""
    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    command = [sys.executable, os.path.abspath(__file__), "--serve", address]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("@serving"):
            return child, address
    child.wait()
    raise RuntimeError(
        "the second process could not start its server: " + (child.stderr.read().strip().splitlines() or ["it said nothing"])[-1]
    )


def measure(tf: Any, arguments: argparse.Namespace, recorder: Any) -> None:
    """The other half: everything that this host and its peer can show."""
    environment, transfers = _sibling("environment"), _sibling("transfers")
    progress = _sibling("recorder").progress
    device, kind = environment.choose_device(tf, None)
    recorder.write("fingerprint", **environment.fingerprint(tf, device, kind))
    sizes = [int(part) for part in arguments.sizes.split(",")]
    gpus = [f"/GPU:{index}" for index in range(len(tf.config.list_physical_devices("GPU")))]
    parallel = gpus or [f"/CPU:{index}" for index in range(arguments.logical_devices)]
    kinds = 1 + 2 * bool(gpus) + (len(parallel) > 1)
    done = [0]

    def report(what: str) -> None:
        done[0] += 1
        progress(done[0], kinds * 2 * len(sizes) * arguments.rounds, what)

    child = None
    try:
        if arguments.peer:
            peer, host = arguments.peer, own_address(arguments.peer)
        else:
            child, peer = second_process()
            host = "127.0.0.1"
        own = f"{host}:{free_port(host)}"
        # another job name than the session's: TensorFlow refuses a cluster that renames a task to itself
        server = tf.distribute.Server({"measuring": [own]}, job_name="measuring", task_index=0)
        recorder.write(
            "note", remark=f"gRPC between {host} and {peer.rpartition(':')[0]}" + (" in a network namespace of its own" if child else "")
        )
        transfers.between_processes(tf, server.target, [own, peer], sizes, arguments.rounds, recorder, report)
    finally:
        if child is not None:
            child.kill()
            child.wait()
    if gpus:
        transfers.host_device(tf, gpus[0], sizes, arguments.rounds, recorder, report)
    if len(parallel) > 1:
        transfers.all_reduce(tf, parallel, sizes, arguments.rounds, recorder, report)
    recorder.write("end")


def _split_cpu(tf: Any, count: int) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)


def main() -> int:
    """Run one half of the probe."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    recorder = None
    if not arguments.serve:
        recorder = _sibling("recorder").Recorder(arguments.out)
        recorder.header("links", {key: value for key, value in vars(arguments).items() if key != "out"})
    try:
        if recorder is not None and not arguments.peer:
            # before TensorFlow starts its threads
            _sibling("isolation").isolate(
                "; if this network is trusted, "
                "run `paceline calibrate-link --serve 127.0.0.1:2222` in one terminal and `--peer 127.0.0.1:2222` in another"
            )
        try:
            import tensorflow as tf
        except ImportError as error:
            if recorder is None:
                print(f"{sys.executable} cannot import TensorFlow: {error}", file=sys.stderr)
            else:
                recorder.write("error", type=type(error).__name__, message=str(error), where="import tensorflow")
            return EXIT_NO_TENSORFLOW
        if arguments.logical_devices:
            _split_cpu(tf, arguments.logical_devices)
        if recorder is None:
            serve(tf, arguments.serve)
        else:
            measure(tf, arguments, recorder)
    except Exception as error:
        if recorder is None:
            print(str(error), file=sys.stderr)
        else:
            recorder.write("error", type=type(error).__name__, message=str(error)[:2000], where="")
            traceback.print_exc()
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
