"""Versions of the variables that ranks read, and whether their gradients come too late: part of ``simulator.engine.simpy.updates``."""

from __future__ import annotations

from simulator.engine.compiled.layout import number_at, rank_at, read_at, server_at
from simulator.engine.compiled.machine import Record, compiled
from simulator.engine.compiled.record import record_read

__all__ = ["outdated", "read_variables", "waited_s"]


@compiled
def read_variables(s: Record, rank: int) -> None:
    """A rank begins to read the variables."""
    r = rank_at(s.ranks, rank)
    if s.synchronous:
        r.read_version = s.version if s.cancels else number_at(s.tokens, rank).n
        return
    r.read_version = s.version
    servers = s.servers_n
    if servers == 1:
        return
    least = most = server_at(s.servers, 0).version
    for server in range(servers):
        its = server_at(s.servers, server)
        version = its.version
        read = read_at(s.versions, rank * servers + server)
        read.read = version
        read.stale = 0
        read.left = its.parts
        least = min(least, version)
        most = max(most, version)
    record_read(s, most - least)


@compiled
def waited_s(s: Record, r: Record) -> float:
    """Seconds that a rank, whose step ends now, has waited for others' gradients."""
    if not s.synchronous:
        return 0.0
    if s.released_s != s.now:
        return 0.0
    waited: float = min(max(s.last_push_s - r.pushed_s, 0.0), s.now - r.pushed_s)
    return waited


@compiled
def outdated(s: Record, r: Record) -> bool:
    """Whether the gradients of a rank's step would come too late, and it cares."""
    late: bool = s.cancels != 0 and r.read_version < s.version
    return late
