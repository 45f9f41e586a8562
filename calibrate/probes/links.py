"""Measures links and servers through the transports of TensorFlow (gRPC) and PyTorch (gloo).

``links``: bytes against time, between two processes and, under TensorFlow, between the devices of this one. ``servers``: pulls and pushes
of many tensors between a worker, which this process is, and a server. The other process runs on this machine, in a network namespace
that both share, or elsewhere, started there with ``serve HOST:PORT``. TensorFlow's transports are timed in transfers.py, gloo here. The
flags and the ``@serving`` line are those that calibrate/profiling.py and probing.py expect. TensorFlow's gRPC server, gloo and the store
by which its processes find each other listen on all interfaces of their host, and ask nobody who connects: see testbed/links.py.

Gloo reduces by a ring (``gloo/allreduce.cc``), of two ranks in two turns, in each of which both send half of the buffer at the same
time: so an all-reduce of S bytes is written as two messages of S/2, one after the other.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Iterator

from . import machine, recording, transfers
from .recording import Recorder, progress

CONNECT_S = 20.0
CHAINS = 1, 5
"""All-reduces in a row: what a call costs once cancels."""
WARM_UP = 3
SIOCGIFADDR = 0x8915
FAR = datetime.timedelta(days=7)
"""How long the serving half waits for somebody to measure with."""
OTHERWISE = {
    "grpc": "run `paceline calibrate-link --serve 127.0.0.1:2222` in one terminal and `--peer 127.0.0.1:2222` in another",
    "gloo": "serve at 127.0.0.1 in one terminal and measure with it in another",
}
"""Advice if the system allows no network namespace."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--carrier", choices=("grpc", "gloo"), default="grpc")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve", help="wait for the process that measures").add_argument("address", metavar="HOST:PORT")
    links = commands.add_parser("links", help="bytes against time")
    links.add_argument("--sizes", default=",".join(str(2**power) for power in range(10, 27, 2)))
    links.add_argument("--logical-devices", type=int, default=0, help="split the CPU to try the all-reduce without GPUs (TensorFlow)")
    servers = commands.add_parser("servers", help="pulls and pushes of many tensors")
    servers.add_argument("--tensors", default="1,4,16,64")
    servers.add_argument("--sizes", default="256,16384,262144,1048576", help="bytes per tensor, multiples of 4")
    servers.add_argument("--seconds", type=float, default=15.0, help="approximate time to measure, in seconds")
    for measuring in (links, servers):
        measuring.add_argument(
            "--peer", metavar="HOST:PORT", help="measure with the process that serves there instead of one on this machine"
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
                f"{address} cannot be opened: {error.strerror or error}; choose another port and an address of this host"
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


# -- the two halves ---------------------------------------------------------------------------


def serve(address: str, carrier: str) -> int:
    """One half: does what the peer asks for. Ends when its starter goes away, or with a line on stderr."""
    module, name, serving = {
        "grpc": ("tensorflow", "TensorFlow", _serve_grpc), "gloo": ("torch", "PyTorch", _serve_gloo)
    }[carrier]  # fmt: skip
    try:
        framework = recording.framework(module)
        check_port(address)
        go_on = serving(framework, address)
    except recording.NotInstalledError as error:
        print(f"{sys.executable} cannot import {name}: {error}", file=sys.stderr)
        return recording.EXIT_NOT_INSTALLED
    except Exception as error:
        print(str(error), file=sys.stderr)
        return recording.EXIT_FAILED
    print("@serving " + address, flush=True)
    if not sys.stdin.isatty():  # a pipe from the starter closes when it dies
        threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    go_on()
    return 0


def _serve_grpc(tf: Any, address: str) -> Callable[[], Any]:
    server = tf.distribute.Server({"serving": [address]}, job_name="serving", task_index=0)
    return server.join


def _serve_gloo(torch: Any, address: str) -> Callable[[], Any]:
    """Reduce whatever the peer reduces, and then wait for the next one."""
    import torch.distributed as distributed

    host, _, port = address.rpartition(":")
    store = distributed.TCPStore(host, int(port), None, is_master=True, wait_for_workers=False, timeout=FAR)

    def go_on() -> None:
        session = 0
        while True:
            session += 1
            store.wait([f"session {session}"], FAR)
            _join(distributed, distributed.PrefixStore(f"{session}/", store), 0, host)
            while (asked := _told(torch, distributed, None))[0]:
                size, count = asked
                buffer = torch.ones(size // 4)
                for _ in range(count):
                    distributed.all_reduce(buffer)
            distributed.destroy_process_group()

    return go_on


@contextlib.contextmanager
def _serving(peer: str | None, carrier: str) -> Iterator[tuple[str, str, str]]:
    """The address of the serving half, a process of this machine where no peer is named; this host's; and where it is, in words."""
    if peer:
        yield peer, own_address(peer), ""
        return
    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    command = [sys.executable, os.path.dirname(os.path.abspath(__file__)), "links", "--carrier", carrier, "serve", address]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        if not any(line.startswith("@serving") for line in child.stdout):
            child.wait()
            said = (child.stderr.read().strip().splitlines() or ["no output"])[-1]
            raise RuntimeError(f"the second process could not start its server: {said}")
        yield address, "127.0.0.1", " in a separate network namespace"
    finally:
        child.kill()
        child.wait()


# -- TensorFlow's gRPC ------------------------------------------------------------------------


@contextlib.contextmanager
def _both_halves(tf: Any, peer: str | None, recorder: Any, between: str) -> Iterator[tuple[str, list[str]]]:
    """Start this process's server with the peer's; yields its target and both addresses, own first. ``between``: a note of the hosts."""
    with _serving(peer, "grpc") as (address, host, where):
        own = f"{host}:{free_port(host)}"
        # another job name than the session's: TensorFlow refuses a cluster that renames a task to itself
        server = tf.distribute.Server({"measuring": [own]}, job_name="measuring", task_index=0)
        recorder.write("note", remark=between.format(host, address.rpartition(":")[0]) + where)
        yield server.target, [own, address]


def measure_links(arguments: argparse.Namespace, recorder: Any) -> None:
    """Time gRPC between this host and its peer; host-to-GPU copies and all-reduces here, where there are devices for them."""
    tf = recording.framework("tensorflow")
    if arguments.logical_devices:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * arguments.logical_devices)
    recorder.write("fingerprint", **machine.fingerprint(tf, *machine.choose_device(tf, None)))
    sizes = [int(part) for part in arguments.sizes.split(",")]
    gpus = [f"/GPU:{index}" for index in range(len(tf.config.list_physical_devices("GPU")))]
    parallel = gpus or [f"/CPU:{index}" for index in range(arguments.logical_devices)]
    kinds = 1 + 2 * bool(gpus) + (len(parallel) > 1)
    timing = transfers.Timing(recorder, arguments.rounds, kinds * 2 * len(sizes) * arguments.rounds)
    with _both_halves(tf, arguments.peer, recorder, "gRPC between {} and {}") as (target, addresses):
        transfers.between_processes(tf, target, addresses, sizes, timing)
    if gpus:
        transfers.host_device(tf, gpus[0], sizes, timing)
    if len(parallel) > 1:
        transfers.all_reduce(tf, parallel, sizes, timing)


def measure_servers(arguments: argparse.Namespace, recorder: Any) -> None:
    """Pulls from the peer, and pushes to it."""
    tf = recording.framework("tensorflow")
    recorder.write("fingerprint", **machine.fingerprint(tf, *machine.choose_device(tf, "CPU")))
    between = "gRPC between a worker at {} and a server at {}"
    with _both_halves(tf, arguments.peer, recorder, between) as (target, addresses):
        transfers.pulls_and_pushes(tf, target, addresses, arguments, recorder)


# -- PyTorch's gloo ---------------------------------------------------------------------------


def _interface_of(address: str) -> str:
    """Name of this host's network interface that has an address; "" where it cannot be told, and gloo chooses."""
    import fcntl  # which there is not on every system

    wanted = socket.gethostbyname(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(sock, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has none
                continue
            if socket.inet_ntoa(answer[20:24]) == wanted:
                return name
    return ""


def _join(distributed: Any, store: Any, rank: int, address: str) -> None:
    """Make this process one of two that reduce over gloo."""
    if name := _interface_of(address):
        os.environ["GLOO_SOCKET_IFNAME"] = name
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)


def _told(torch: Any, distributed: Any, asked: tuple[int, int] | None) -> tuple[int, int]:
    """Tell both ranks what rank 1 asks for next: bytes, and how many all-reduces; 0 bytes end it."""
    both = torch.tensor(asked or (0, 0))
    distributed.broadcast(both, 1)
    return int(both[0]), int(both[1])


def measure_gloo(arguments: argparse.Namespace, recorder: Any) -> None:
    """Say what is reduced, and time it."""
    from .on_torch import Torch

    recorder.write("fingerprint", **Torch("CPU").fingerprint())
    torch = recording.framework("torch")
    import torch.distributed as distributed

    with _serving(arguments.peer, "gloo") as (address, own, where):
        host, _, port = address.rpartition(":")
        recorder.write("note", remark=f"gloo between {own} and {host}{where}")
        store = distributed.TCPStore(host, int(port), None, is_master=False, timeout=datetime.timedelta(seconds=CONNECT_S))
        session = store.add("sessions", 1)
        store.set(f"session {session}", "begins")
        _join(distributed, distributed.PrefixStore(f"{session}/", store), 1, own)
        _time_gloo(torch, distributed, arguments, recorder)
        distributed.destroy_process_group()


def _time_gloo(torch: Any, distributed: Any, arguments: argparse.Namespace, recorder: Any) -> None:
    sizes = [int(part) for part in arguments.sizes.split(",")]
    total = arguments.rounds * len(sizes) * len(CHAINS)
    for turn in range(-1, arguments.rounds):
        for number, size in enumerate(sizes):
            buffer = torch.ones(size // 4)
            for chain, count in enumerate(CHAINS):
                _told(torch, distributed, (size, WARM_UP if turn < 0 else count + 1))
                distributed.all_reduce(buffer)  # both have begun when it is done
                start, used = time.perf_counter(), time.process_time()
                for _ in range(WARM_UP - 1 if turn < 0 else count):
                    distributed.all_reduce(buffer)
                seconds, cpu_s = time.perf_counter() - start, time.process_time() - used
                if turn < 0:
                    continue
                # of two messages of half the size; processor time is of this rank, which sends and receives both
                recorder.write("transfer", path="gloo", size_bytes=size / 2, round=turn, hops=2 * count, seconds=seconds, cpu_s=cpu_s)
                progress((turn * len(sizes) + number) * len(CHAINS) + chain + 1, total, "gloo")
    _told(torch, distributed, (0, 0))


def main() -> int:
    """Measure, or serve the process that does."""
    arguments = _arguments()
    recording.heed_sigterm()
    command, gloo = arguments.command, arguments.carrier == "gloo"
    if command == "serve":
        return serve(arguments.address, arguments.carrier)
    unknown = {"command", "logical_devices"} if gloo else {"command", "carrier"}

    def measure(recorder: Recorder) -> None:
        if not arguments.peer:  # before TensorFlow or PyTorch start their threads
            from .testbed import links  # which there is not on every system

            links.isolate("; if this network is trusted, " + OTHERWISE[arguments.carrier])
        (measure_gloo if gloo else measure_links if command == "links" else measure_servers)(arguments, recorder)

    return recording.run(command, arguments, measure, header={key: value for key, value in vars(arguments).items() if key not in unknown})
