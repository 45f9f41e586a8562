"""How long a message waits behind what others have queued, where each link has one queue for all connections.

TCP keeps data of each connection waiting before the bottleneck. A sender's own link gets from each of its connections as much as
that may have on its way at once, as soon as it starts. Before a receiver's link nothing waits as long as a single sender has its
full rate; what several send beyond the link's rate waits, up to the buffer, and stays until the link has caught up. Losses cut
the windows when the most connections shared the buffer, and they are kept between transfers (RFC 5681, sections 3.1 and 4.1;
RFC 9438): when some connections have ended, no more than the others' parts waits. Shares of messages under way are not changed.

``simulator.engine.compiled.queues`` does the same, compiled: change both together
(tests/oracle/test_compiled_network.py holds them equal).
"""

from __future__ import annotations

from simulator.network.hosts import Host
from simulator.network.ports import Connection

__all__ = ["Queues"]


class _Link:
    """The two queues before a host's link: out of it, and into it.

    Attributes
    ----------
    targets
        Messages on their way out, by the host that they go to.
    sources
        Messages on their way in, by the host that they come from.
    leaving
        How many are on their way out.
    coming
        How many are on their way in.
    peak
        The most that have ever been on their way in at the same time.
    waiting_s
        What waits before the way in, as time at its rate, when it was last looked at.
    growth
        Seconds that it grows by each second since then.
    """

    __slots__ = ("coming", "growth", "leaving", "peak", "since_s", "sources", "targets", "waiting_s")

    def __init__(self) -> None:
        self.targets: dict[_Link, int] = {}
        self.sources: dict[_Link, int] = {}
        self.leaving = 0
        self.coming = 0
        self.peak = 0
        self.waiting_s = 0.0
        self.growth = 0.0
        self.since_s = 0.0

    def catch_up(self, now: float, most_s: float) -> float:
        """Bring what waits before the way in up to date, and return it."""
        most_s = most_s * self.coming / self.peak if self.coming else 0.0
        self.waiting_s = min(max(self.waiting_s + self.growth * (now - self.since_s), 0.0), most_s)
        self.since_s = now
        return self.waiting_s

    def grow(self) -> None:
        """What comes in each second, each sender's link shared equally by its messages, less what leaves."""
        coming = 0.0
        for source, messages in self.sources.items():
            coming += messages / source.leaving
        self.growth = coming - 1.0


class Queues:
    """The queues of all hosts, whose links are taken to have the same rate.

    Parameters
    ----------
    own_s
        What a message on its way keeps waiting before its sender's link, as time at its rate.
    most_s
        The most that waits in one queue.
    requests
        Short messages to the sender that a message which is asked for waits for.
    """

    def __init__(self, own_s: float, most_s: float, requests: int) -> None:
        self._own_s = own_s
        self._most_s = most_s
        self._requests = requests
        self._links: dict[Host, _Link] = {}

    def wait_s(self, connection: Connection, now: float) -> float:
        """Seconds that a message waits before its first byte crosses: the requests for it on their way, then the message itself."""
        source, target = self._ends(connection)
        wait_s = min(source.leaving * self._own_s, self._most_s) + target.catch_up(now, self._most_s)
        return wait_s + self._requests * source.catch_up(now, self._most_s) if connection.asked_for else wait_s

    def begin(self, connection: Connection, now: float) -> None:
        """A message begins to cross."""
        self._change(connection, now, 1)

    def end(self, connection: Connection, now: float) -> None:
        """Its last byte has crossed."""
        self._change(connection, now, -1)

    def _change(self, connection: Connection, now: float, by: int) -> None:
        source, target = self._ends(connection)
        touched = {target: None} | dict.fromkeys(source.targets)
        for link in touched:
            link.catch_up(now, self._most_s)
        source.leaving += by
        target.coming += by
        target.peak = max(target.peak, target.coming)
        for counts, other in ((source.targets, target), (target.sources, source)):
            counts[other] = counts.get(other, 0) + by
            if not counts[other]:
                del counts[other]
        for link in touched:
            link.grow()

    def _ends(self, connection: Connection) -> tuple[_Link, _Link]:
        source, target = connection.source, connection.target
        assert source is not None
        assert target is not None
        return self._link(source), self._link(target)

    def _link(self, host: Host) -> _Link:
        link = self._links.get(host)
        if link is None:
            link = self._links[host] = _Link()
        return link
