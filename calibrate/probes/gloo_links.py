"""Measures a link as PyTorch's DDP uses it: all-reduces of two processes over gloo, bytes against time.

The other process runs on this machine, in a network namespace that both share, or elsewhere, started there with ``serve HOST:PORT``.
Gloo reduces by a ring (``gloo/allreduce.cc``), of two ranks in two turns, in each of which both send half of the buffer at the same
time: so an all-reduce of S bytes is written as two messages of S/2, one after the other. The flags and the ``@serving`` line are those
of links.py. Gloo and the store by which the processes find each other listen without asking who connects: see isolation.py.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import os
import socket
import struct
import subprocess
import sys
import time
from typing import Any

from . import ending, links
from .on_torch import Torch
from .recorder import Recorder, progress

CHAINS = 1, 5
"""All-reduces in a row: what a call costs once cancels."""
WARM_UP = 3
SIOCGIFADDR = 0x8915
FAR = datetime.timedelta(days=7)
"""How long the serving half waits for somebody to measure with."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve", help="wait for the process that measures").add_argument("address", metavar="HOST:PORT")
    measuring = commands.add_parser("links", help="bytes against time")
    measuring.add_argument("--sizes", default=",".join(str(2**power) for power in range(10, 27, 2)))
    measuring.add_argument("--peer", metavar="HOST:PORT", help="measure with the process that serves there, not with one of this machine")
    measuring.add_argument("--rounds", type=int, default=7)
    measuring.add_argument("--out", required=True)
    return parser.parse_args()


def interface_of(address: str) -> str:
    """Name of this host's network interface that has an address; "" where it cannot be told, and gloo chooses."""
    wanted = socket.gethostbyname(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(sock, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has none
                continue
            if socket.inet_ntoa(found[20:24]) == wanted:
                return name
    return ""


def joined(torch: Any, store: Any, rank: int, address: str) -> Any:
    """The module ``torch.distributed``, with this process as one of two that reduce over gloo."""
    if name := interface_of(address):
        os.environ["GLOO_SOCKET_IFNAME"] = name
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    return torch.distributed


def serve(address: str) -> int:
    """One half: reduces whatever the peer reduces, and then waits for the next one. Ends when its starter goes away."""
    try:
        torch = ending.framework("torch")
        import torch.distributed as distributed

        links.check_port(address)
        host, _, port = address.rpartition(":")
        store = distributed.TCPStore(host, int(port), None, is_master=True, wait_for_workers=False, timeout=FAR)
    except ending.NotInstalledError as error:
        print(f"{sys.executable} cannot import PyTorch: {error}", file=sys.stderr)
        return ending.EXIT_NOT_INSTALLED
    except Exception as error:
        print(str(error), file=sys.stderr)
        return ending.EXIT_FAILED
    print("@serving " + address, flush=True)
    session = 0
    while True:
        session += 1
        store.wait([f"session {session}"], FAR)
        joined(torch, distributed.PrefixStore(f"{session}/", store), 0, host)
        while (asked := _told(torch, distributed, None))[0]:
            size, count = asked
            buffer = torch.ones(size // 4)
            for _ in range(count):
                distributed.all_reduce(buffer)
        distributed.destroy_process_group()


def _told(torch: Any, distributed: Any, asked: tuple[int, int] | None) -> tuple[int, int]:
    """What rank 1 asks for next: bytes, and how many all-reduces; 0 bytes end it."""
    both = torch.tensor(asked or (0, 0))
    distributed.broadcast(both, 1)
    return int(both[0]), int(both[1])


def measure(arguments: argparse.Namespace, recorder: Any) -> None:
    """The other half: says what is reduced, and times it."""
    if not arguments.peer:  # before PyTorch starts its threads
        from . import isolation  # which there is not on every system

        isolation.isolate("; if this network is trusted, serve at 127.0.0.1 in one terminal, and measure with it in another")
    on = Torch("CPU")
    torch = ending.framework("torch")
    import torch.distributed as distributed

    recorder.write("fingerprint", **on.fingerprint())
    child = None
    try:
        peer = arguments.peer
        if not peer:
            child, peer = _second_process()
        host, _, port = peer.rpartition(":")
        own = links.own_address(peer)
        recorder.write("note", remark=f"gloo between {own} and {host}" + ("" if arguments.peer else " in a network namespace of its own"))
        store = distributed.TCPStore(host, int(port), None, is_master=False, timeout=datetime.timedelta(seconds=links.CONNECT_S))
        session = store.add("sessions", 1)
        store.set(f"session {session}", "begins")
        joined(torch, distributed.PrefixStore(f"{session}/", store), 1, own)
        _time_all(torch, distributed, arguments, recorder)
        distributed.destroy_process_group()
    finally:
        if child is not None:
            child.kill()
            child.wait()


def _time_all(torch: Any, distributed: Any, arguments: argparse.Namespace, recorder: Any) -> None:
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


def _second_process() -> tuple[subprocess.Popen[str], str]:
    """The serving half as a process of this machine, and its address."""
    address = f"127.0.0.1:{links.free_port('127.0.0.1')}"
    command = [sys.executable, os.path.dirname(os.path.abspath(__file__)), "gloo_links", "serve", address]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("@serving"):
            return child, address
    child.wait()
    raise RuntimeError(f"the second process could not start: {(child.stderr.read().strip().splitlines() or ['it said nothing'])[-1]}")


def _until_starter_ends() -> None:
    """End this process when its standard input, a pipe from its starter, closes."""
    import threading

    def watch() -> None:
        sys.stdin.read()
        os._exit(0)

    if not sys.stdin.isatty():
        threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    """Measure, or serve the process that does."""
    arguments = _arguments()
    ending.heed_sigterm()
    if arguments.command == "serve":
        _until_starter_ends()
        return serve(arguments.address)
    recorder = Recorder(arguments.out)
    recorder.header("links", {key: value for key, value in vars(arguments).items() if key not in ("command", "out")} | {"carrier": "gloo"})
    return ending.recorded(lambda: measure(arguments, recorder), recorder)
