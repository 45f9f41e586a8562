"""Moves this process into a network namespace of its own, which nothing outside can reach.

TensorFlow's gRPC server listens on all interfaces (0.0.0.0), whatever address it is
given, and whoever reaches it can run code. Between two processes of one machine it is
therefore started in a network namespace that has nothing but a loopback interface.
Namespaces with links between them are made in testbed/links.py.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914
IFF_UP = 0x1


class NotIsolatedError(RuntimeError):
    """The system does not let this process have a network of its own."""


def _unshare(flags: int) -> bool:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return libc.unshare(flags) == 0
    except (OSError, AttributeError):  # no Linux
        return False


def _map_user(uid: int, gid: int) -> None:
    for path, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        try:
            with open("/proc/self/" + path, "w", encoding="ascii") as file:
                file.write(text)
        except OSError:
            pass


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(sock, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def isolate(otherwise: str = "; run it as root") -> None:
    """Move this process, which must have one thread, into a network of its own.

    ``otherwise`` says what to do where that is not allowed.

    As root a network namespace is enough; else one within a user namespace.
    """
    uid, gid = os.getuid(), os.getgid()
    if not _unshare(CLONE_NEWNET):
        if not _unshare(CLONE_NEWUSER | CLONE_NEWNET):
            raise NotIsolatedError(
                "this system does not allow a network namespace, and TensorFlow's server would listen on all interfaces" + otherwise
            )
        _map_user(uid, gid)
    try:
        _loopback_up()
    except OSError as error:
        raise NotIsolatedError(f"the loopback interface of the network namespace cannot be used: {error}") from error
