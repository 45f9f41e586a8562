"""Whether this machine can shape links for the testbed, told before anything is started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from simulator.errors import InputError

__all__ = ["check_congestion", "obstacle_to_shaped_links"]

_ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_TRIAL = """
import ctypes, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x40000000):  # CLONE_NEWNET
    sys.exit(f"no network namespace can be made here ({os.strerror(ctypes.get_errno())}); it takes root")
for command in ("ip link add br0 type bridge", "ip link add v0 type veth peer name v1", f"tc qdisc add dev v0 root {sys.argv[1]}"):
    done = subprocess.run(command.split(), capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[0]
        sys.exit(f"`{command}` fails ({said}); it takes root, and a kernel with bridge, veth and htb")
"""
"""Tries in a network namespace of its own, which ends with the process, what the probe will do."""
_QDISC = {"fair": "htb", "tcp": "tbf rate 1mbit burst 64k latency 20ms"}


def obstacle_to_shaped_links(sharing: str) -> str | None:
    """Why links cannot be shaped on this machine, as a clause; None if they can.

    Parameters
    ----------
    sharing
        ``fair`` or ``tcp``: what is to share the flows of a link.
    """
    if sys.platform != "linux":
        return f"network namespaces are Linux's, and this is {sys.platform}"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"the program {tool} is missing; install iproute2"
    try:
        done = subprocess.run([sys.executable, "-c", _TRIAL, _QDISC[sharing]], capture_output=True, text=True, check=False, timeout=30)  # noqa: S603
    except subprocess.TimeoutExpired:
        return "making a network namespace took more than 30 s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no network namespace can be made here; it takes root"])[-1]
    if not os.access(_ALLOWED, os.W_OK):
        return f"{_ALLOWED} may not be written here, so TCP's congestion control cannot be chosen; it takes root"
    return None


def check_congestion(name: str, where: str) -> None:
    """Raise InputError unless this machine has a congestion control; ``where`` begins the message."""
    available = _AVAILABLE.read_text(encoding="ascii").split()
    if name not in available:
        raise InputError(f"{where}: {name!r} is no congestion control of this machine; it has {', '.join(sorted(available))}")
