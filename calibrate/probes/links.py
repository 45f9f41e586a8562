"""Measures links and servers, through TensorFlow's own transports.

``links``: bytes against time, between two processes and between the devices of this one. ``servers``: pulls and pushes of many
tensors between a worker, which this process is, and a server. The other process runs on this machine, in a network namespace
that both share, or elsewhere, started there with ``serve HOST:PORT``. The timing itself is in transfers.py. The flags and the
``@serving`` line are those that calibrate/profiling.py and probing.py expect. TensorFlow's gRPC server listens on all interfaces
of its host: see isolation.py.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import threading
from typing import Any, Callable, Iterator

from . import ending, environment, transfers
from .recorder import Recorder, progress

CONNECT_S = 20.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve", help="wait for the process that measures").add_argument("address", metavar="HOST:PORT")
    links = commands.add_parser("links", help="bytes against time")
    links.add_argument("--sizes", default=",".join(str(2**power) for power in range(10, 27, 2)))
    links.add_argument("--logical-devices", type=int, default=0, help="split the CPU, to try the all-reduce without GPUs")
    servers = commands.add_parser("servers", help="pulls and pushes of many tensors")
    servers.add_argument("--tensors", default="1,4,16,64")
    servers.add_argument("--sizes", default="256,16384,262144,1048576", help="bytes of each tensor, multiples of 4")
    servers.add_argument("--seconds", type=float, default=15.0, help="about how long to measure, in seconds")
    for measuring in (links, servers):
        measuring.add_argument(
            "--peer", metavar="HOST:PORT", help="measure with the process that serves there, not with one of this machine"
        )
        measuring.add_argument("--rounds", type=int, default=7)
        measuring.add_argument("--out", required=True)
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


def serve(address: str) -> int:
    """One half: a server that the peer puts to work. Ends when its starter goes away, or with a line on stderr."""
    try:
        tf = ending.tensorflow()
        check_port(address)
        tf.distribute.Server({"serving": [address]}, job_name="serving", task_index=0)
    except ending.NotInstalledError as error:
        print(f"{sys.executable} cannot import TensorFlow: {error}", file=sys.stderr)
        return ending.EXIT_NOT_INSTALLED
    except Exception as error:
        print(str(error), file=sys.stderr)
        return ending.EXIT_FAILED
    print("@serving " + address, flush=True)
    if not sys.stdin.isatty():  # a pipe from the starter closes when it dies
        sys.stdin.read()
        return 0
    threading.Event().wait()
    return 0


def second_process() -> tuple[subprocess.Popen[str], str]:
    """The serving half as a process of this machine, and its address."""
    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    command = [sys.executable, os.path.dirname(os.path.abspath(__file__)), "links", "serve", address]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("@serving"):
            return child, address
    child.wait()
    raise RuntimeError(
        "the second process could not start its server: " + (child.stderr.read().strip().splitlines() or ["it said nothing"])[-1]
    )


@contextlib.contextmanager
def both_halves(tf: Any, peer: str | None, note: Callable[[str, str, str], None]) -> Iterator[tuple[str, list[str]]]:
    """Start this process's server beside the peer's; yields its target and both addresses, own first; ``note`` gets the hosts."""
    child = None
    try:
        if peer:
            host, where = own_address(peer), ""
        else:
            child, peer = second_process()
            host, where = "127.0.0.1", " in a network namespace of its own"
        own = f"{host}:{free_port(host)}"
        # another job name than the session's: TensorFlow refuses a cluster that renames a task to itself
        server = tf.distribute.Server({"measuring": [own]}, job_name="measuring", task_index=0)
        note(host, peer.rpartition(":")[0], where)
        yield server.target, [own, peer]
    finally:
        if child is not None:
            child.kill()
            child.wait()


def measure_links(tf: Any, arguments: argparse.Namespace, recorder: Any) -> None:
    """Time gRPC between this host and its peer; host-to-GPU copies and all-reduces here, where there are devices for them."""
    if arguments.logical_devices:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * arguments.logical_devices)
    recorder.write("fingerprint", **environment.fingerprint(tf, *environment.choose_device(tf, None)))
    sizes = [int(part) for part in arguments.sizes.split(",")]
    gpus = [f"/GPU:{index}" for index in range(len(tf.config.list_physical_devices("GPU")))]
    parallel = gpus or [f"/CPU:{index}" for index in range(arguments.logical_devices)]
    kinds = 1 + 2 * bool(gpus) + (len(parallel) > 1)
    done = [0]

    def report(what: str) -> None:
        done[0] += 1
        progress(done[0], kinds * 2 * len(sizes) * arguments.rounds, what)

    def note(host: str, peer: str, where: str) -> None:
        recorder.write("note", remark=f"gRPC between {host} and {peer}{where}")

    with both_halves(tf, arguments.peer, note) as (target, addresses):
        transfers.between_processes(tf, target, addresses, sizes, arguments.rounds, recorder, report)
    if gpus:
        transfers.host_device(tf, gpus[0], sizes, arguments.rounds, recorder, report)
    if len(parallel) > 1:
        transfers.all_reduce(tf, parallel, sizes, arguments.rounds, recorder, report)


def measure_servers(tf: Any, arguments: argparse.Namespace, recorder: Any) -> None:
    """Pulls from the peer, and pushes to it."""
    recorder.write("fingerprint", **environment.fingerprint(tf, *environment.choose_device(tf, "CPU")))

    def note(host: str, peer: str, where: str) -> None:
        recorder.write("note", remark=f"gRPC between a worker at {host} and a server at {peer}{where}")

    with both_halves(tf, arguments.peer, note) as (target, addresses):
        transfers.pulls_and_pushes(tf, target, addresses, arguments, recorder)


def main() -> int:
    """Measure, or serve the process that does."""
    arguments = _arguments()
    ending.heed_sigterm()
    if arguments.command == "serve":
        return serve(arguments.address)
    recorder = Recorder(arguments.out)
    recorder.header(arguments.command, {key: value for key, value in vars(arguments).items() if key not in ("command", "out")})

    def measure() -> None:
        if not arguments.peer:  # before TensorFlow starts its threads
            from . import isolation  # which there is not on every system

            isolation.isolate(
                "; if this network is trusted, "
                "run `paceline calibrate-link --serve 127.0.0.1:2222` in one terminal and `--peer 127.0.0.1:2222` in another"
            )
        tf = ending.tensorflow()
        (measure_links if arguments.command == "links" else measure_servers)(tf, arguments, recorder)

    return ending.recorded(measure, recorder)
