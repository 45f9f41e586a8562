"""Between two hosts, for real: two network namespaces joined by a shaped pair of interfaces."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.needs import needs_tensorflow
from support.once import once
from support.waiting import PATIENCE_S

import calibrate
from calibrate.fit.link import fit_link
from calibrate.fit.server import fit_server
from calibrate.probing import command_of
from calibrate.profiling import profile_link, profile_server
from simulator.base.errors import CalibrationError
from simulator.spec.cluster import Cluster, Link

pytestmark = needs_tensorflow

ROOT = Path(calibrate.__file__).parent.parent
RATE_BYTES_PER_S = 400e6 / 8
ADDRESS = "10.231.7.1:2222"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _obstacle() -> str:
    """Why two namespaces cannot be made here; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (iproute2)"
    probe = f"plprobe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"network namespaces are not allowed here: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", probe], check=False, capture_output=True)
    return ""


def _sweep() -> None:
    """Remove what a killed run of this test left behind: namespaces whose maker is gone."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for maker, side in re.findall(r"^pl([0-9a-f]+)([ab])\b", listed, re.MULTILINE):
        if not Path(f"/proc/{int(maker, 16)}").exists():
            subprocess.run(["ip", "netns", "del", f"pl{maker}{side}"], check=False, capture_output=True)


@contextmanager
def _two_hosts() -> Iterator[tuple[str, str]]:
    """Namespaces 10.231.x.1 and .2, both directions shaped; always cleaned up."""
    _sweep()
    tag = f"{os.getpid():x}"
    names = f"pl{tag}a", f"pl{tag}b"
    try:
        for name in names:
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "-n", names[0], "link", "add", "left", "type", "veth", "peer", "name", "right", "netns", names[1])
        for name, interface, address in ((names[0], "left", "10.231.7.1/24"), (names[1], "right", "10.231.7.2/24")):
            _run("ip", "-n", name, "addr", "add", address, "dev", interface)
            _run("ip", "-n", name, "link", "set", interface, "up")
            _run("tc", "-n", name, "qdisc", "add", "dev", interface, "root", "tbf", "rate", "400mbit", "burst", "16kb", "latency", "20ms")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@contextmanager
def _serving(namespace: str, python: str) -> Iterator[None]:
    command = ["ip", "netns", "exec", namespace, *command_of("links", ["serve", ADDRESS], python)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            assert any(line.startswith("@serving") for line in server.stdout)
            yield
        finally:
            server.kill()


@pytest.fixture(scope="module")
def measured(warm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of the link and of the server, measured through the same server from the other host."""
    if obstacle := _obstacle():
        pytest.skip(obstacle)

    def measure(folder: Path) -> None:
        with _two_hosts() as (here, there), _serving(here, warm):
            python = folder / "python"
            python.write_text(f'#!/bin/sh\nexec ip netns exec {there} {warm} "$@"\n')
            python.chmod(0o755)
            with_peer = {"peer": ADDRESS, "python": str(python), "timeout_s": PATIENCE_S}
            profile_link("two", sizes=[2**10, 2**12, 2**20, 2**21, 2**22], rounds=5, out=folder / "link.ndjson", **with_peer)
            ladder = {"tensors": (1, 4, 16, 48), "sizes": (256, 2**14, 2**18), "rounds": 3}
            profile_server("two", out=folder / "server.ndjson", **ladder, **with_peer)

    return once(tmp_path_factory, "two-hosts", measure)


def test_a_shaped_link_between_two_hosts_is_measured_right(measured: Path) -> None:
    cluster = fit_link(measured / "link.ndjson", "two")
    # TCP, IP and gRPC add 3 to 7% of bytes to a tensor's own
    assert cluster.inter_node.bandwidth_bytes_per_s == pytest.approx(RATE_BYTES_PER_S / 1.05, rel=0.10)
    assert cluster.inter_node.latency_s < 2 * cluster.fit.points[0].median_s  # of 1 KiB
    assert "10.231.7.2 and 10.231.7.1" in cluster.provenance["remark"]


def test_a_server_behind_a_slow_link_tells_tensors_but_no_bytes(measured: Path) -> None:
    base = Cluster(name="two", inter_node=Link(bandwidth_bytes_per_s=RATE_BYTES_PER_S, sort="ethernet"))
    cluster = fit_server(measured / "server.ndjson", "two", base)
    assert 5e-6 < cluster.transport.cpu_per_message_s < 5e-3
    assert cluster.transport.copy_per_byte_s == 0.0
    assert "the link is slower than the hosts" in cluster.provenance["bytes"]
    assert cluster.fit_hosts is not None
    many = next(point for point in cluster.fit_hosts.points if (point.direction, point.tensors, point.size_bytes) == ("pull", 48, 2**18))
    assert many.median_s == pytest.approx(many.fitted_s, rel=0.15)  # where the link alone decides


@pytest.mark.usefixtures("warm_probes")
def test_a_peer_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match=r"127.0.0.1:9 cannot be reached: .*--serve 127.0.0.1:9"):
        profile_link("gone", peer="127.0.0.1:9", sizes=[1024, 4096], rounds=2, folder=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("number", "code", "says"),
    [(signal.SIGINT, 0, "stopped serving\n"), pytest.param(signal.SIGTERM, 143, "paceline: ended by SIGTERM\n", marks=pytest.mark.long)],
)
def test_ctrl_c_is_the_way_to_end_the_serving_half(warm: str, number: signal.Signals, code: int, says: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "paceline", "calibrate-link", "--serve", address, "--python", warm]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            assert any(line.startswith("ready") for line in child.stderr)
            child.send_signal(number)
            assert child.stdout.read() == ""
            assert child.stderr.read() == says
            assert child.wait(timeout=PATIENCE_S) == code
        finally:
            child.kill()
