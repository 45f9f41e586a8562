"""Hosts as network namespaces, joined by a bridge, each interface shaped in both directions; or a namespace without any link.

TensorFlow's gRPC server listens on all interfaces (0.0.0.0), whatever address it is given, and whoever reaches it can run code. Between
processes of one machine it is therefore started in a network namespace, which nothing outside can reach.

The namespaces have no names: the bridge lives in that of the process which calls
:meth:`Switch.connect`, each host's in its own process. The kernel removes a namespace and
its interfaces with the last process in it, so nothing is left behind however the
processes end, and two testbeds never meet. calibrate/testbed/running.py tries beforehand whether a machine allows all this.

TCP's congestion control: a namespace may only choose among those that the whole machine allows.
Allowing one more is a change to the machine. It is made for the moment in which the namespaces
choose, under a lock, and put back; the previous value is in the lock file, so that a run
that was killed in that moment is repaired by the next one.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import time
from dataclasses import dataclass
from typing import Any, Iterator

from ..recording import UsageError

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1
PREFIX = "10.77"
"""First half of the hosts' addresses; nothing outside the namespaces can see them."""

LOOPBACK = 'link = "loopback"'
"""Advice if links cannot be shaped."""

FRAME_BYTES = 1514
PACKET_BYTES = 64 * 1024
"""Quantum of a peer: the longest packet that the kernel forwards in one piece."""
SHORT_BYTES = 512
"""Packets below this go first (acknowledgements, requests, messages of the coordinator), as fq_codel sends those of
sparse flows first (RFC 8290, section 4.2): else each would wait for 64 KiB of every other peer."""
BUCKET_BYTES = 72 * 1024
"""A token bucket's; a packet must fit with all its headers, otherwise it is split."""
BURST_BYTES = 2 * FRAME_BYTES
"""Burst of an idle class. Small: it is saved up for each peer anew, so that with much more a link of many
peers would carry some percent more than its rate whenever it had been idle."""


class NetworkError(RuntimeError):
    """The system does not let us build the network; the message says what to do."""


class NotIsolatedError(RuntimeError):
    """The system does not let this process have a network of its own."""


def _unshare(flags: int) -> str:
    """Say why this process cannot have namespaces of its own; "" if it has them now."""
    try:
        failed = ctypes.CDLL(None, use_errno=True).unshare(flags)
    except (OSError, AttributeError):  # no Linux
        return "this is not Linux"
    return os.strerror(ctypes.get_errno()) if failed else ""


def new_namespace() -> None:
    """Move this process, which must have one thread, into a network namespace of its own."""
    if why := _unshare(CLONE_NEWNET):
        raise NetworkError(f"no network namespace: {why}; shaped links need root, or use {LOOPBACK}")


def isolate(otherwise: str = "; run it as root") -> None:
    """The same with a loopback interface that can be used, and as any user, then within a user namespace.

    ``otherwise`` says what to do where that is not allowed.
    """
    ids = (("setgroups", "deny"), ("uid_map", f"{os.getuid()} {os.getuid()} 1"), ("gid_map", f"{os.getgid()} {os.getgid()} 1"))
    if _unshare(CLONE_NEWNET):
        if _unshare(CLONE_NEWUSER | CLONE_NEWNET):
            raise NotIsolatedError(
                "this system does not allow a network namespace, and TensorFlow's server would listen on all interfaces" + otherwise
            )
        for name, text in ids:
            with contextlib.suppress(OSError), open("/proc/self/" + name, "w", encoding="ascii") as file:
                file.write(text)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            request = struct.pack("16sh14x", b"lo", 0)
            flags = struct.unpack("16sh14x", fcntl.ioctl(sock, SIOCGIFFLAGS, request))[1]
            fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))
    except OSError as error:
        raise NotIsolatedError(f"the loopback interface of the network namespace cannot be used: {error}") from error


def check_tools() -> None:
    """Say at once what shaped links lack here: root, or the programs of iproute2."""
    if os.geteuid():
        raise NetworkError(f"shaped links need root; run it as root, or use {LOOPBACK}")
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise NetworkError(_missing(tool))


def _missing(tool: str) -> str:
    return f"the program {tool} is missing; install iproute2, or use {LOOPBACK}"


def address(host: int) -> str:
    """Address of host 0, 1, ..."""
    return f"{PREFIX}.{(host + 1) // 250}.{(host + 1) % 250 + 1}"


def _peers(host: int, hosts: int) -> list[str]:
    return [address(other) for other in range(hosts) if other != host]


def _batch(tool: str, lines: list[str], *, force: bool = False) -> None:
    try:
        options = ["-force"] if force else []
        done = subprocess.run([tool, *options, "-batch", "-"], input="\n".join(lines) + "\n", text=True, capture_output=True, timeout=60)
    except FileNotFoundError:
        raise NetworkError(_missing(tool)) from None
    if done.returncode and not force:
        first = (done.stderr.strip().splitlines() or ["no output"])[0]
        raise NetworkError(f"{tool} failed: {first}; the kernel may lack support for shaped links: use {LOOPBACK}")


def _without_ipv6() -> None:
    """Nothing is to be sent by it; a kernel without it has nothing to be switched off."""
    for which in ("all", "default"):
        with contextlib.suppress(FileNotFoundError):
            _sysctl(f"net.ipv6.conf.{which}.disable_ipv6", "1")


def _sysctl(name: str, value: str) -> None:
    with open("/proc/sys/" + name.replace(".", "/"), "w", encoding="ascii") as file:
        file.write(value)


@dataclass(frozen=True)
class Shape:
    """How an interface is shaped.

    Parameters
    ----------
    bits_per_s
        Rate of the link in each direction.
    sharing
        ``fair``: a class a peer, each guaranteed an equal part and lent what others leave;
        ``tcp``: one token bucket, behind which TCP shares as it decides.
    buffer_ms
        What may queue, as time at the link's rate.
    """

    bits_per_s: float
    sharing: str
    buffer_ms: float

    def lines(self, device: str, peers: list[str], side: str) -> list[str]:
        """Commands for ``tc``: ``side`` is the header field that tells peers apart, ``dst`` or ``src``."""
        rate = f"{self.bits_per_s:.0f}bit"
        if self.sharing == "tcp":
            return [f"qdisc add dev {device} root tbf rate {rate} burst {BUCKET_BYTES} latency {self.buffer_ms:g}ms"]
        queue = max(int(self.bits_per_s / 8 * self.buffer_ms / 1000), 4 * PACKET_BYTES)
        share = f"{self.bits_per_s / max(len(peers), 1):.0f}bit"
        burst = f"burst {BURST_BYTES} cburst {BURST_BYTES} quantum {PACKET_BYTES}"
        lines = [
            f"qdisc add dev {device} root handle 1: htb default 1",
            f"class add dev {device} parent 1: classid 1:ffff htb rate {rate} ceil {rate} {burst}",
            f"class add dev {device} parent 1:ffff classid 1:1 htb rate {share} ceil {rate} {burst} prio 0",
            f"filter add dev {device} parent 1: protocol ip prio 1 u32 match u16 0 0x{0xFFFF & ~(SHORT_BYTES - 1):04x} at 2 flowid 1:1",
        ]
        for number, peer in enumerate(peers, start=2):
            lines += [
                f"class add dev {device} parent 1:ffff classid 1:{number:x} htb rate {share} ceil {rate} {burst} prio 1",
                f"qdisc add dev {device} parent 1:{number:x} handle {number:x}: bfifo limit {queue}",
                f"filter add dev {device} parent 1: protocol ip prio 2 u32 match ip {side} {peer}/32 flowid 1:{number:x}",
            ]
        return lines


class Switch:
    """The bridge, in the namespace of the process that makes it."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._hosts = 0
        _without_ipv6()
        _batch("ip", ["link set lo up", "link add br0 type bridge", "link set br0 up"])

    def connect(self, pids: list[int]) -> None:
        """A cable to the namespace of each process; its end there is ``eth0``, shaped here and by :func:`plug_in`."""
        self._hosts = len(pids)
        cables, shaping = [], []
        for host, pid in enumerate(pids):
            cables += [f"link add v{host} type veth peer name eth0 netns {pid}", f"link set v{host} master br0 up"]
            shaping += self._shape.lines(f"v{host}", _peers(host, len(pids)), "src")
        _batch("ip", cables)
        _batch("tc", shaping)

    def close(self) -> None:
        """Remove bridge and cables now; the kernel takes a while over those of processes that have ended."""
        _batch("ip", [f"link del v{host}" for host in range(self._hosts)] + ["link del br0"], force=True)


def plug_in(host: int, hosts: int, shape: Shape, congestion: str) -> None:
    """In a host's own namespace, once its cable is there: address, shape, congestion control."""
    _without_ipv6()
    _batch("ip", ["link set lo up", f"addr add {address(host)}/16 dev eth0", "link set eth0 up"])
    _batch("tc", shape.lines("eth0", _peers(host, hosts), "dst"))
    try:
        _sysctl("net.ipv4.tcp_congestion_control", congestion)
    except OSError as error:
        raise NetworkError(f"TCP congestion control {congestion!r} is not available here: {error.strerror}; see link.congestion") from None


def counters() -> tuple[int, int]:
    """Bytes sent and received by this host's interface so far; those of loopback where there is no other."""
    with open("/proc/self/net/dev", encoding="ascii") as file:
        rows = {line.split(":")[0].strip(): line.split(":")[1].split() for line in file if ":" in line}
    fields = rows.get("eth0") or rows["lo"]
    return int(fields[8]), int(fields[0])


# -- TCP's congestion control, which is the machine's ------------------------------------------

ALLOWED = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"
AVAILABLE = "/proc/sys/net/ipv4/tcp_available_congestion_control"
LOCK = "/run/paceline-testbed.lock"


class Congestion:
    """Makes one congestion control choosable; to be made in the machine's own network namespace.

    Parameters
    ----------
    name
        Such as ``cubic``.

    Raises
    ------
    UsageError
        This machine has no such congestion control.
    RuntimeError
        It does not let us allow it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        with open(AVAILABLE, encoding="ascii") as file:
            available = file.read().split()
        if name not in available:
            raise UsageError(
                f"link.congestion: {name!r} is not a congestion control of this machine; it has {', '.join(sorted(available))}"
            )
        # the file is not to be seen from within other namespaces, but stays open there
        try:
            self._allowed = os.open(ALLOWED, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            why = f"{ALLOWED} cannot be written ({error.strerror})"
            raise RuntimeError(f'{why}; shaped links need root, or use link = "loopback"') from None

    @contextlib.contextmanager
    def choosable(self) -> Iterator[None]:
        """Namespaces may choose it for the length of the block."""
        lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            left = os.pread(lock, 4096, 0)
            if left:  # a run before was killed between its change and putting it back
                os.pwrite(self._allowed, left, 0)
                os.ftruncate(lock, 0)
            before = os.pread(self._allowed, 4096, 0).strip()
            if self.name.encode() in before.split():
                yield
                return
            os.pwrite(lock, before, 0)
            os.fsync(lock)
            try:
                os.pwrite(self._allowed, before + b" " + self.name.encode(), 0)
                yield
            finally:
                os.pwrite(self._allowed, before, 0)
                os.ftruncate(lock, 0)
        finally:
            os.close(lock)


# -- whether the machine reaches the rate that was asked for -----------------------------------

CHECK_PORT = 2221
_BLOCK = bytes(1 << 18)
_WARM_SHARE = 0.4
"""Share of the time that is not counted: buffers fill and TCP finds its window."""


def check_until_start(line: Any) -> None:
    """Send or receive when the supervisor asks for it, until the run starts."""
    while (message := line.wait("start", "receive", "send"))["kind"] != "start":
        if message["kind"] == "receive":
            _receive(line, message["seconds"])
        else:
            _send(message["address"], message["seconds"])


def _receive(line: Any, seconds: float) -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", CHECK_PORT))
        server.listen(1)
        server.settimeout(10)
        line.say("listening")
        connection, _ = server.accept()
        with connection:
            began_s = since_s = time.monotonic()
            counted = 0
            buffer = bytearray(1 << 20)
            while size := connection.recv_into(buffer):
                now = time.monotonic()
                if now - began_s < _WARM_SHARE * seconds:
                    since_s = now
                else:
                    counted += size
            line.say("received", bytes_per_s=counted / max(time.monotonic() - since_s, 1e-9))


def _send(address: str, seconds: float) -> None:
    with socket.create_connection((address, CHECK_PORT), timeout=10) as connection:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            connection.sendall(_BLOCK)
