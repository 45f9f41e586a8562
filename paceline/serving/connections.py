"""Connections to the page: how soon a request must have come, how many strangers may hold one, and how they end."""

from __future__ import annotations

import asyncio
import logging
import socket

import h11
import uvicorn
from starlette.requests import HTTPConnection
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0
"""What a request may take until its header and its body are here."""
MOST_STRANGERS = 32
"""Connections without the cookie, of more than which the oldest is closed; as many are accepted at a time."""


class Connection(H11Protocol):
    """A connection that is closed where a request does not come in time, or too many others come without the cookie."""

    known = False
    """Whether a request on it had the cookie."""
    _late: asyncio.TimerHandle | None = None
    _begun_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for it."""
        super().connection_made(transport)
        self._begun_s = self.loop.time()
        strangers = [stranger for stranger in self.connections if isinstance(stranger, Connection) and not stranger.known]
        for stranger in sorted(strangers, key=lambda stranger: stranger._begun_s)[:-MOST_STRANGERS]:
            stranger.transport.abort()
        self._expect()

    def handle_events(self) -> None:
        """Take what has come."""
        super().handle_events()
        self.known = self.known or (self.scope is not None and self.app_state["door"].knows(HTTPConnection(dict(self.scope)).cookies))
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing any more."""
        super().connection_lost(exc)
        if self._late is not None:
            self._late.cancel()

    def _expect(self) -> None:
        """Have it closed where a request, or the rest of one, does not come in time."""
        comes = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if comes and self._late is None:
            self._late = self.loop.call_later(REQUEST_S, self.transport.abort)
        elif not comes and self._late is not None:
            self._late.cancel()
            self._late = None


class Server(uvicorn.Server):
    """A server that says nothing of what its own end cuts off."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End all connections."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)
