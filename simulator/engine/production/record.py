"""Input of the recorder: rows of steps, updates and reads in the order in which they happen.

Python takes them when a table is full, and where the window opens and closes. Tables are stored column by column: those of
``STEP_COLUMNS`` and ``UPDATE_COLUMNS`` in :mod:`simulator.engine.recorder`, which sums columns. Versions that ranks
read, and how long they waited for others' gradients, are here too.
"""

from __future__ import annotations

from simulator.engine.production import codes
from simulator.engine.production.calendar import call_later, note, pack
from simulator.engine.production.codes import STEP, UPDATE
from simulator.engine.production.compiling import compiled
from simulator.engine.production.layout import Record
from simulator.engine.production.records import long_at, number_at, rank_at, read_at, real_at, server_at


@compiled
def record_step(
    s: Record, rank: int, start_s: float, input_s: float, compute_s: float, waiting_s: float, apply_s: float, hidden_s: float,
    accepted: float,
) -> None:  # fmt: skip
    """A rank has ended a step."""
    if s.ended >= s.closes_at:
        return
    at = s.steps_n
    s.steps_n = at + 1
    for value in (float(rank), start_s, s.now, input_s, compute_s, waiting_s, apply_s, hidden_s, accepted):
        real_at(s.steps, at).x = value
        at += s.steps_room
    if s.observed:
        note(s, STEP, rank, 0, 0.0, 0.0, s.cause)
    s.ended += 1
    if s.ended == s.stops_at:
        s.turning = 1
        s.at_once = 0
        s.turn_row = s.steps_n
        s.turn_serial = s.serial
        s.turn_logged = s.logged_n
        if s.observed and s.ended == s.closes_at:
            call_later(s, 0.0, pack(codes.DONE, 0), 0)


@compiled
def record_update(s: Record, rank: int, read_s: float, read_version: int, version: int) -> int:
    """An update has been applied; the place of its first version on a server, -1 if nobody wants to know."""
    if not (s.is_open or s.observed) or s.ended >= s.closes_at:
        return -1
    at: int = s.updates_n
    s.updates_n = at + 1
    if s.observed:
        note(s, UPDATE, 0, 0, 0.0, 0.0, -1)
    for value in (float(rank), read_s, s.now, float(read_version), float(version)):
        real_at(s.updates, at).x = value
        at += s.updates_room
    return at


@compiled
def record_read(s: Record, spread: int) -> None:
    """A rank begins to read, and finds versions on the servers that differ by a number of updates."""
    if s.is_open:
        long_at(s.reads, s.reads_n).n = spread
        s.reads_n += 1


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
        shard = server_at(s.servers, server)
        version = shard.version
        read = read_at(s.versions, rank * servers + server)
        read.read = version
        read.applied = 0
        read.left = shard.parts
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
