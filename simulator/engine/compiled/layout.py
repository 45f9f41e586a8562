"""The records of the compiled engine's tables.

Numbers of records are 32-bit; -1 is none. Lists are linked through the records
themselves. ``_AWAY`` in a list's backward link says that a record is not in the list.
"""

from __future__ import annotations

import numpy as np

from simulator.engine.compiled.machine import table

__all__ = [
    "ALARM", "AWAY", "CONNECTION", "EDGE", "ENDS", "ENTRY", "HEAPED", "HOST", "INCIDENCE", "ITEM", "LEVEL", "MESSAGE", "NUMBER", "PAIR",
    "PARKED", "PORT", "REAL", "STATE", "TASK", "TURNS", "WORK", "alarm_at", "connection_at", "edge_at", "ends_at", "entry_at", "heaped_at",
    "host_at", "incidence_at", "item_at", "level_at", "message_at", "number_at", "pair_at", "parked_at", "port_at", "real_at", "state_at",
    "task_at", "turns_at", "work_at",
]  # fmt: skip

AWAY = -2
"""The backward link of a record that is in no list."""

STATE = np.dtype(
    [
        # addresses of tables
        *((name, "i8") for name in (
            "calendar", "soon", "at_end", "alarms", "alarm_of", "ports", "incidences", "pairs", "connections", "crossed", "carried",
            "messages", "heaps", "dirty", "fresh", "work", "touched", "owners", "component", "frontier", "reached", "levels", "candidates",
            "hosts", "ends", "turns", "parked", "came", "due", "gave_back", "edges", "edge_of", "tasks", "works", "weights",
        )),
        # the calendar: what happens at a time; what follows at once; what is put off to the end of an instant; alarms
        ("now", "f8"), ("latest", "f8"), ("serial", "i8"), ("entries", "i8"), ("entries_room", "i8"),
        ("soon_first", "i8"), ("soon_n", "i8"), ("soon_room", "i8"), ("end_first", "i8"), ("end_n", "i8"), ("end_room", "i8"),
        ("alarms_n", "i8"), ("what", "i8"), ("about", "i8"), ("over", "i8"), ("refused", "f8"), ("spare", "i8"),
        # messages
        ("messages_n", "i8"), ("messages_room", "i8"), ("messages_free", "i8"), ("messages_made", "i8"),
        # shares
        ("ports_n", "i8"), ("dirty_n", "i8"), ("fresh_n", "i8"), ("settling", "i8"), ("work_n", "i8"), ("touched_n", "i8"), ("stamp", "i8"),
        ("ending", "i8"), ("patience", "i8"),
        # hosts
        ("message_s", "f8"), ("copy_per_byte_s", "f8"), ("begins_anew", "i8"), ("hosts_n", "i8"),
        ("turned", "i8"), ("admitting", "i8"), ("arrivals", "i8"), ("came_n", "i8"), ("gave_back_n", "i8"), ("due_n", "i8"),
        ("queued", "i8"), ("own_s", "f8"), ("most_s", "f8"), ("requests", "i8"),
        ("weighted", "i8"), ("weights_next", "i8"), ("weights_n", "i8"),
        # cores
        ("cores", "i8"), ("number", "f8"), ("slice_s", "f8"), ("busy_s", "f8"), ("paced_for", "i8"), ("running_n", "i8"), ("running", "i8"),
        ("running_last", "i8"), ("waiting", "i8"), ("waiting_last", "i8"), ("host_tasks", "i8"),
        ("works_n", "i8"), ("works_room", "i8"), ("works_free", "i8"), ("works_made", "i8"),
    ],
    align=True,
)  # fmt: skip
"""Everything that is one of a kind."""

ENTRY = np.dtype([("time", "f8"), ("serial", "i8"), ("what", "i8"), ("about", "i8")])
"""What happens at a time."""

ITEM = np.dtype([("what", "i8"), ("about", "i8")])
"""What follows at once, or at the end of an instant."""

ALARM = np.dtype([("time", "f8"), ("serial", "i8"), ("which", "i8")])
"""When a port or a task is to be looked at: it has one alarm, which is moved."""

PORT = np.dtype(
    [
        ("capacity", "f8"), ("ceiling", "f8"), ("incast_loss", "f8"), ("incast_flows", "i8"),
        ("load", "f8"), ("owned", "f8"), ("rate", "f8"), ("clock", "f8"), ("updated", "f8"), ("floor", "f8"),
        ("busy_s", "f8"), ("busy_since", "f8"), ("serial", "i8"),
        # the connections that it owns, by when their messages end: those that came in order in a list, others in a heap
        ("heap", "i8"), ("heap_n", "i4"), ("heap_room", "i4"), ("queue", "i4"), ("queue_last", "i4"),
        # incidences
        ("active_n", "i4"), ("active", "i4"), ("active_last", "i4"), ("foreign_n", "i4"), ("foreign", "i4"), ("foreign_last", "i4"),
        # pairs, of this epoch
        ("coupled", "i4"), ("coupled_last", "i4"), ("epoch", "i8"),
        # in which sets it is
        ("dirty", "i4"), ("working", "i4"), ("touched", "i8"), ("planned", "i8"), ("reached", "i8"), ("arriving", "i4"),
        # whether no connection that crosses it has another shared port, so that it is never shared out together with others
        ("alone", "i4"),
        # for the time of a settlement
        ("new", "f8"), ("planned_rate", "f8"), ("planned_floor", "f8"), ("free", "f8"), ("unfixed", "f8"),
    ],
    align=True,
)  # fmt: skip
"""A port that may become full."""

INCIDENCE = np.dtype(
    [
        ("port", "i4"),
        ("connection", "i4"),
        ("active_before", "i4"),
        ("active_after", "i4"),
        ("foreign_before", "i4"),
        ("foreign_after", "i4"),
    ]
)
"""One of the shared ports of a connection; those of a connection follow each other."""

PAIR = np.dtype([("epoch", "i8"), ("port", "i4"), ("after", "i4")])
"""An owner and another port of a connection: whether the one is coupled to the other by it."""

CONNECTION = np.dtype(
    [
        ("weight", "f8"), ("finish", "f8"), ("entry", "i8"), ("latency_s", "f8"),
        ("front", "i4"), ("last", "i4"),  # messages
        ("first", "i4"), ("shared", "i4"),  # incidences
        ("pairs", "i4"), ("crosses", "i4"), ("crossed", "i4"),  # the first pair; the first of all its ports, and how many
        ("owner", "i4"),  # the incidence with its bottleneck
        ("before", "i4"), ("after", "i4"),  # in the bottleneck's list
        ("hosted", "i4"), ("asked_for", "i4"),
    ]
)  # fmt: skip
"""Messages in order over a path."""

MESSAGE = np.dtype(
    [("size_bytes", "f8"), ("arrival", "i8"), ("arrived", "i8"), ("about", "i8"), ("left", "i8"), ("connection", "i4"), ("after", "i4")]
)
"""A message: its bytes, its place in the order of arrival, and what follows when it has arrived and, unless that is 0, when it has left."""

HEAPED = np.dtype([("finish", "f8"), ("serial", "i8"), ("connection", "i8")])
"""A connection in a port's heap; it counts if it is still the connection's latest entry and the port its bottleneck."""

LEVEL = np.dtype([("level", "f8"), ("stamp", "i8")])
"""Of a connection, for the time of a progressive filling."""

NUMBER = np.dtype([("n", "i4")])
REAL = np.dtype([("x", "f8")])

HOST = np.dtype(
    [
        ("free_s", "f8"), ("worked_s", "f8"),
        # the queues before its link
        ("waiting_s", "f8"), ("growth", "f8"), ("since_s", "f8"), ("leaving", "i8"),
        ("targets", "i4"), ("targets_last", "i4"), ("sources", "i4"), ("sources_last", "i4"),
    ],
    align=True,
)  # fmt: skip
ENDS = np.dtype([("source", "i4"), ("target", "i4")])
"""The hosts of a connection."""

TURNS = np.dtype([("free", "i8"), ("parked", "i8"), ("parked_n", "i4"), ("gave_back", "i4")])
"""One direction of a host; sending ones are even, receiving ones odd."""

PARKED = np.dtype([("arrival", "i8"), ("connection", "i4"), ("turns", "i4")])
"""A message that waits for a turn, and where it is parked."""

EDGE = np.dtype(
    [("messages", "i8"), ("source", "i4"), ("target", "i4"),
     ("target_before", "i4"), ("target_after", "i4"), ("source_before", "i4"), ("source_after", "i4")]
)  # fmt: skip
"""Messages on their way from one host to another: in the list of the source's targets, and of the target's sources."""

TASK = np.dtype(
    [
        ("slowdown", "f8"), ("busy_s", "f8"), ("begun_s", "f8"), ("began_s", "f8"), ("since_s", "f8"), ("left_s", "f8"), ("stop_s", "f8"),
        ("stretch", "f8"), ("works", "i4"), ("works_last", "i4"), ("before", "i4"), ("after", "i4"), ("waiting_after", "i4"),
    ],
    align=True,
)  # fmt: skip
WORK = np.dtype([("work_s", "f8"), ("what", "i8"), ("about", "i8"), ("after", "i8")])
"""Something that a task is to do, and what follows."""

state_at = table(STATE)
entry_at = table(ENTRY)
item_at = table(ITEM)
alarm_at = table(ALARM)
port_at = table(PORT)
incidence_at = table(INCIDENCE)
pair_at = table(PAIR)
connection_at = table(CONNECTION)
message_at = table(MESSAGE)
heaped_at = table(HEAPED)
level_at = table(LEVEL)
number_at = table(NUMBER)
real_at = table(REAL)
host_at = table(HOST)
ends_at = table(ENDS)
turns_at = table(TURNS)
parked_at = table(PARKED)
edge_at = table(EDGE)
task_at = table(TASK)
work_at = table(WORK)
