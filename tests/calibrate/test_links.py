"""Real transfers through TensorFlow's gRPC transport on this machine."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from support.needs import needs_tensorflow
from support.waiting import PATIENCE_S

from calibrate.fit.link import fit_link
from calibrate.measurements import Transfer, read_measurements
from calibrate.profiling import profile_link, serve_link
from simulator.base.errors import CalibrationError, InputError

pytestmark = [needs_tensorflow, pytest.mark.usefixtures("warm_probes")]


@pytest.mark.usefixtures("isolated")
def test_two_processes_of_this_machine_and_all_reduce_between_logical_devices(tmp_path: Path) -> None:
    """Nobody outside reaches their servers."""
    before = _listening()
    seen: set[int] = set()

    def look(*_: object) -> None:
        seen.update(_listening() - before)

    options: dict[str, Any] = {"sizes": (1024, 65536, 1048576, 8388608), "rounds": 5, "logical_devices": 2}
    for again in range(3):  # a busy machine delays the largest transfers more than others: then the link is measured anew
        path = profile_link("loopback", **options, folder=tmp_path / str(again), timeout_s=PATIENCE_S, progress=look)
        assert not _of_children(seen)
        measured = read_measurements(path)
        assert measured.complete
        assert {record.path for record in measured.of(Transfer)} == {"grpc", "all-reduce-2"}
        cluster = fit_link(path, "loopback")
        largest = cluster.fit.points[-1]
        told_s = cluster.inter_node.latency_s + largest.size_bytes / cluster.inter_node.bandwidth_bytes_per_s
        if told_s == (near := pytest.approx(largest.median_s, rel=0.5)):
            break
    assert largest.size_bytes == 8388608
    assert 0 <= cluster.inter_node.latency_s < largest.median_s
    assert told_s == near
    assert "separate network namespace" in cluster.provenance["remark"]
    assert "per message" in cluster.provenance["all-reduce-2"]


def _listening() -> set[int]:
    """Ports listened on in this process's network."""
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def _of_children(ports: set[int]) -> set[int]:
    """Those that speak HTTP/2 as gRPC does: others of this machine may come and go."""
    speaking = set()
    for port in ports:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as sock:
                sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
                if sock.recv(9)[3:4] == b"\x04":
                    speaking.add(port)
        except OSError:
            continue
    return speaking


def test_a_port_in_use_is_one_clear_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CalibrationError, match=f"127.0.0.1:{port} cannot be opened: Address already in use; choose another port"):
            serve_link(f"127.0.0.1:{port}")


@pytest.mark.parametrize("address", ["2222", "host:", ":2222", "host:port", "host:0", "host:99999"])
def test_an_address_that_is_none(address: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be HOST:PORT"):
        serve_link(address)
    with pytest.raises(InputError, match="must be HOST:PORT"):
        profile_link("x", peer=address, folder=tmp_path)


@pytest.mark.parametrize("sizes", [(), (1024,), (1024, 1024), (1, 1024), (-5, 1024)])
def test_sizes_that_give_no_line(sizes: tuple[int, ...], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`sizes`"):
        profile_link("x", sizes=sizes, folder=tmp_path)
