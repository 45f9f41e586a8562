"""How fast bytes cross a link by plain sockets: whether the machine reaches the rate that was asked for."""

from __future__ import annotations

import socket
import time

from .hub import Line

PORT = 2221
_BLOCK = bytes(1 << 18)
_WARM_SHARE = 0.4
"""Share of the time that is not counted: buffers fill and TCP finds its window."""


def until_start(line: Line) -> None:
    """Send or receive when the supervisor asks for it, until the run starts."""
    while True:
        messages = line.heard()
        if messages is None:
            raise SystemExit(1)
        for number, message in enumerate(messages):
            if message["kind"] == "start":
                line.keep(messages[number + 1 :])
                return
            if message["kind"] == "receive":
                _receive(line, message["seconds"])
            elif message["kind"] == "send":
                _send(message["address"], message["seconds"])


def _receive(line: Line, seconds: float) -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", PORT))
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
    with socket.create_connection((address, PORT), timeout=10) as connection:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            connection.sendall(_BLOCK)
