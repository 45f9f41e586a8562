"""The records of the compiled engine's tables, as numpy types; ``records`` has the functions by which machine code reads them.

Numbers of records are 32-bit; -1 is none. Lists are linked through the records themselves. ``AWAY`` in a list's backward link says
that a record is not in the list. ``state`` and ``tables`` fill the records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Record = Any
"""A record of a table: its fields are attributes, which can be set."""

Table = Callable[[int, int], Record]
"""Record number (second) of the table at an address (first)."""

AWAY = -2
"""The backward link of a record that is in no list."""

ONE_BY_ONE = np.dtype([("work_s", "f8"), ("latency_s", "f8"), ("free_s", "f8"), ("task", "i8")])
"""A process that does one thing at a time; ``task`` is that on shared cores, -1: none."""

LAST_READY = np.dtype([("step", "i8"), ("ready_s", "f8")])
"""Of a step, when the last rank had all that it reduces."""

STATE = np.dtype(
    [
        # addresses of tables
        *((name, "i8") for name in (
            "calendar", "noted", "soon", "at_end", "alarms", "heaped_alarms", "ports", "incidences", "links", "pairs", "first_pairs",
            "connections", "sorts", "crossed", "carried", "messages", "departures", "waiting_messages", "heaps", "dirty",
            "fresh", "work", "touched", "owners", "component", "frontier", "reached", "levels",
            "candidates",
            "hosts", "nodes", "ends", "sides",
            "turns", "parked", "came", "due", "gave_back", "edges", "edge_of", "tasks", "works", "weights",
            "soon_contexts", "noted_contexts", "message_contexts", "work_contexts", "beside", "changing", "changes",
        )),
        # the calendar: what happens at a time; what follows at once; what is put off to the end of an instant; alarms
        ("now", "f8"), ("latest", "f8"), ("serial", "i8"), ("entries", "i8"), ("gap", "i8"), ("entries_room", "i8"), ("noted_room", "i8"),
        ("noted_free", "i8"), ("noted_made", "i8"), ("left", "i8"), ("at_once", "i8"), ("batch", "i8"),
        ("soon_first", "i8"), ("soon_n", "i8"), ("soon_room", "i8"), ("end_first", "i8"), ("end_n", "i8"), ("end_room", "i8"),
        ("observed", "i8"), ("cause", "i8"), ("since_s", "f8"),
        ("alarms_n", "i8"), ("gone_off", "i8"), ("alarm_first", "i8"), ("alarm_last", "i8"),
        ("what", "i8"), ("about", "i8"), ("over", "i8"), ("refused", "f8"), ("spare", "i8"),
        # messages
        ("messages_n", "i8"), ("messages_room", "i8"), ("messages_free", "i8"), ("messages_made", "i8"),
        ("departs", "i8"),
        # shares
        ("ports_n", "i8"), ("dirty_n", "i8"), ("fresh_n", "i8"), ("settling", "i8"), ("work_n", "i8"), ("touched_n", "i8"),
        ("stamp", "i8"),
        ("ending", "i8"), ("patience", "i8"),
        # what others take from ports: whether some of their flows share one, and how it changes, in a trace that began at traced_s
        ("accompanied", "i8"), ("changing_n", "i8"), ("changes_n", "i8"), ("change", "i8"), ("traced_s", "f8"), ("repeat_s", "f8"),
        ("changed", "i8"),
        # hosts
        ("message_s", "f8"), ("copy_per_byte_s", "f8"), ("hosts_n", "i8"), ("nodes_n", "i8"),
        ("turned", "i8"), ("admitting", "i8"), ("instant", "i8"), ("came_n", "i8"), ("gave_back_n", "i8"), ("due_n", "i8"),
        ("queued", "i8"), ("own_s", "f8"), ("most_s", "f8"), ("requests", "i8"),
        ("weighted", "i8"), ("by_transfer", "i8"), ("weights_next", "i8"), ("weights_n", "i8"),
        # cores
        ("cores", "i8"), ("number", "f8"), ("slice_s", "f8"), ("busy_s", "f8"), ("paced_for", "i8"), ("running_n", "i8"),
        ("running", "i8"),
        ("running_last", "i8"), ("waiting", "i8"), ("waiting_last", "i8"), ("host_tasks", "i8"),
        ("works_n", "i8"), ("works_room", "i8"), ("works_free", "i8"), ("works_made", "i8"),
        # a program: tables of what is done, by operation, by routine, by rank, at servers
        *((name, "i8") for name in (
            "starts", "operations", "awaited", "then", "computes", "buckets", "routines", "ranks", "paces", "missing", "slots",
            "peers", "inputs", "meetings", "entered", "finished", "ready", "seats", "stretches", "overlaps", "servers", "jobs", "factors",
            "filled", "orders", "ordered", "versions", "pipelines", "parts_of_batches", "fed", "taken", "batch_factors", "batch_filled",
            "channels", "comings", "sent", "clocks", "behind", "tensors", "tokens", "waiting_ranks", "steps", "updates", "reads",
            "processes", "last_ready",
            "job_contexts", "compute_causes", "input_causes", "made_by", "member_causes", "logged",
            "members", "member_of", "standings", "lanes", "needs", "roles", "into", "exchanges", "message_sizes",
            "gatherings", "groups", "group_of", "gathered",
        )),
        ("starts_n", "i8"), ("started", "i8"), ("starts_serial", "i8"), ("ranks_n", "i8"), ("stride", "i8"), ("slots_n", "i8"),
        ("peers_n", "i8"), ("paces_n", "i8"), ("factors_n", "i8"), ("orders_n", "i8"), ("order", "i8"),
        ("soon_spare", "i8"), ("rows_spare", "i8"), ("rows_each", "i8"), ("pending", "i8"), ("wants", "i8"), ("bare", "i8"),
        ("by_messages", "i8"),
        ("on_servers", "i8"), ("on_inputs", "i8"),
        # pipelines: how many, whether they share nothing, batches ahead, room for when batches were taken, and for factors; their lead
        ("pipelines_n", "i8"), ("feeds_alone", "i8"), ("prefetch", "i8"), ("taken_n", "i8"),
        ("batch_factors_n", "i8"), ("batch_lead", "i8"),
        # tasks on shared cores: the first of devices, of servers, the coordinator's, the client's; -1: none
        ("device_tasks", "i8"), ("server_tasks", "i8"),
        ("slowing", "f8"),
        # who hands out steps, and who prepares batches
        ("drawn", "i8"), ("shared", "i8"), ("each", "i8"), ("closes", "i8"), ("dispatching", "i8"),
        ("preparing", "i8"),
        # clocks
        ("bound", "i8"), ("slowest", "i8"), ("at_slowest", "i8"), ("behind_n", "i8"),
        # servers and updates
        ("servers_n", "i8"), ("jobs_n", "i8"), ("jobs_room", "i8"), ("jobs_free", "i8"), ("jobs_made", "i8"),
        ("version", "i8"), ("parts", "i8"), ("synchronous", "i8"), ("required", "i8"), ("cancels", "i8"), ("unapplied", "i8"),
        ("released_s", "f8"), ("last_push_s", "f8"), ("tokens_taken", "i8"), ("waiting_first", "i8"), ("waiting_n", "i8"),
        # ranks that meet
        ("every", "i8"), ("buckets_n", "i8"), ("unready", "i8"), ("applied_s", "f8"), ("applied", "i8"),
        ("sent_n", "i8"), ("channels_n", "i8"), ("comings_n", "i8"), ("comings_room", "i8"), ("comings_free", "i8"),
        ("comings_made", "i8"),
        # what is recorded
        ("ended", "i8"), ("stops_at", "i8"), ("closes_at", "i8"), ("is_open", "i8"), ("turning", "i8"), ("turn_row", "i8"),
        ("turn_serial", "i8"),
        ("steps_n", "i8"), ("steps_room", "i8"), ("updates_n", "i8"), ("updates_room", "i8"), ("update_width", "i8"),
        ("reads_n", "i8"), ("reads_room", "i8"),
        ("logged_n", "i8"), ("logged_room", "i8"), ("logged_spare", "i8"), ("logged_so_far", "i8"), ("turn_logged", "i8"),
        ("each_operations", "i8"),
    ],
    align=True,
)  # fmt: skip
"""Everything that is one of a kind."""

ENTRY = np.dtype([("time", "f8"), ("order", "i8")])
"""Something happens at a time: its serial number, and where it is noted what; four siblings fill a line of the cache."""

CONTEXT = np.dtype([("cause", "i8"), ("since_s", "f8")])
"""Where somebody observes: the work that let something happen, and when it was asked for."""

ITEM = np.dtype([("what", "i8"), ("about", "i8")])
"""Work that follows at once, or at the end of an instant."""

ALARM = np.dtype([("time", "f8"), ("serial", "i8"), ("before", "i4"), ("after", "i4"), ("at", "i8")])
"""When a port or a task is to be looked at: it has one alarm, which is moved; in the list, or in the heap at ``at``, or (-1) not set."""

HEAPED_ALARM = np.dtype([("time", "f8"), ("serial", "i8"), ("which", "i8")])

PORT = np.dtype(
    [
        # who crosses it, and what they may have
        ("capacity", "f8"), ("ceiling", "f8"), ("incast_loss", "f8"), ("incast_flows", "i8"),
        ("load", "f8"), ("owned", "f8"), ("busy_since", "f8"), ("planned", "i8"),
        # incidences; pairs, of this epoch
        ("active_n", "i4"), ("active", "i4"), ("active_last", "i4"), ("foreign_n", "i4"), ("foreign", "i4"), ("foreign_last", "i4"),
        ("coupled", "i4"), ("coupled_last", "i4"),
        # in which sets it is; ``alone``: no connection that crosses it has another shared port, so that it is never shared out with others
        ("dirty", "i4"), ("alone", "i4"), ("checked", "i8"), ("touched", "i8"), ("busy_s", "f8"),
        # the connections that it owns, by when their messages end: those that came in order in a list, others in a heap
        ("rate", "f8"), ("clock", "f8"), ("updated", "f8"), ("floor", "f8"), ("serial", "i8"),
        ("heap", "i8"), ("heap_n", "i4"), ("heap_room", "i4"), ("queue", "i4"), ("queue_last", "i4"),
        # for the time of a settlement
        ("reached", "i8"), ("arriving", "i4"), ("working", "i4"), ("epoch", "i8"),
        ("new", "f8"), ("planned_rate", "f8"), ("planned_floor", "f8"), ("free", "f8"), ("unfixed", "f8"),
    ],
    align=True,
)  # fmt: skip
"""A port that may become full: four lines of the cache, of which a port that is nobody's bottleneck needs two."""

CHANGING = np.dtype([("port", "i8"), ("whole", "f8")])
"""A port of which others take more or less, and what it has where nobody does."""

CHANGE = np.dtype([("at_s", "f8"), ("left", "f8"), ("beside", "f8")])
"""From when on, the share of such ports that is left, and the flows of others that share it."""

INCIDENCE = np.dtype([("port", "i4"), ("connection", "i4")])
"""One of the shared ports of a connection; those of a connection follow each other."""

LINK = np.dtype([(name, "i4") for name in ("active_before", "active_after", "foreign_before", "foreign_after")])
"""Place of an incidence in its port's lists; where no connection has several shared ports there are none, and nobody asks."""

PAIR = np.dtype([("epoch", "i8"), ("port", "i4"), ("after", "i4")])
"""An owner and another port of a connection: whether the one is coupled to the other by it."""

CONNECTION = np.dtype(
    [
        ("finish", "f8"), ("entry", "i8"),
        ("front", "i4"), ("last", "i4"),  # messages
        ("owner", "i4"),  # the incidence with its bottleneck
        ("before", "i4"), ("after", "i4"),  # in the bottleneck's list
        ("sort", "i4"),
    ]
)  # fmt: skip
"""Messages in order over a path."""

SORT = np.dtype(
    [
        ("weight", "f8"), ("latency_s", "f8"), ("first", "i8"), ("crosses", "i8"),
        ("shared", "i4"), ("crossed", "i4"), ("hosted", "i4"), ("linked", "i4"), ("asked_for", "i4"),
    ],
    align=True,
)  # fmt: skip
"""Common values of connections, unless weights are drawn; ``shared`` and ``crossed``: how many incidences, and ports.

Number n of them has the incidences from ``first + n * shared`` on, and the ports from ``crosses + n * crossed``.
"""

MESSAGE = np.dtype([("size_bytes", "f8"), ("arrived", "i8"), ("about", "i8"), ("connection", "i4"), ("after", "i4")])
"""A message: its bytes, and what follows when it has arrived."""

DEPARTURE = np.dtype([("arrival", "i8"), ("left", "i8")])
"""Of a message, where somebody asks: its place in the order of arrival, and what follows, unless that is 0, when it has left."""

WAITING = np.dtype([("work_s", "f8"), ("done_s", "f8"), ("serial", "i8"), ("receives", "i8")])
"""Of a message between hosts: what it costs each; of the one that works on it, or is to, when that is done, which entry of the calendar
that is, and whether it receives."""

HEAPED = np.dtype([("finish", "f8"), ("serial", "i8"), ("connection", "i8")])
"""A connection in a port's heap; it counts if it is still the connection's latest entry and the port its bottleneck."""

LEVEL = np.dtype([("level", "f8"), ("stamp", "i8")])
"""Of a connection, for the time of a progressive filling."""

NUMBER = np.dtype([("n", "i4")])
REAL = np.dtype([("x", "f8")])

HOST = np.dtype([("free_s", "f8"), ("worked_s", "f8"), ("front", "i4"), ("last", "i4")], align=True)
"""Works on messages, one at a time."""

NODE = np.dtype(
    [
        # its transfers in progress: what it has asked others for, and what it sends
        ("asked_weight", "f8"), ("sent_weight", "f8"), ("asked", "i8"), ("sent", "i8"),
        # the queues before its link
        ("waiting_s", "f8"), ("growth", "f8"), ("since_s", "f8"), ("leaving", "i8"), ("coming", "i8"), ("peak", "i8"),
        ("targets", "i4"), ("targets_last", "i4"), ("sources", "i4"), ("sources_last", "i4"),
    ],
    align=True,
)  # fmt: skip
ENDS = np.dtype([("source", "i4"), ("target", "i4")])
"""The hosts that work on a connection's messages."""

SIDES = np.dtype([("sender", "i4"), ("receiver", "i4")])
"""The nodes whose links its messages take in turns, by weight or behind a queue."""

TURNS = np.dtype([("free", "i8"), ("parked", "i8"), ("parked_n", "i4"), ("gave_back", "i4")])
"""One direction of a node's link; sending ones are even, receiving ones odd."""

PARKED = np.dtype([("arrival", "i8"), ("connection", "i4"), ("turns", "i4")])
"""A message that waits for a turn, and where it is parked."""

EDGE = np.dtype(
    [("messages", "i8"), ("sender", "i4"), ("receiver", "i4"),
     ("target_before", "i4"), ("target_after", "i4"), ("source_before", "i4"), ("source_after", "i4")]
)  # fmt: skip
"""Messages on their way from one node to another: in the list of the sender's targets, and of the receiver's sources."""

TASK = np.dtype(
    [
        ("slowdown", "f8"), ("busy_s", "f8"), ("begun_s", "f8"), ("began_s", "f8"), ("since_s", "f8"), ("left_s", "f8"),
        ("stop_s", "f8"),
        ("stretch", "f8"), ("works", "i4"), ("works_last", "i4"), ("before", "i4"), ("after", "i4"), ("waiting_after", "i4"),
    ],
    align=True,
)  # fmt: skip
WORK = np.dtype([("work_s", "f8"), ("what", "i8"), ("about", "i8"), ("after", "i8")])
"""Something that a task is to do, and what follows."""

# -- a program -----------------------------------------------------------------------------

OPERATION = np.dtype(
    [
        ("forward", "f8"), ("backward", "f8"), ("apply", "f8"), ("size_bytes", "f8"), ("tensors", "f8"), ("cost_s", "f8"),
        ("lasts_s", "f8"), ("moves_s", "f8"), ("kind", "i4"), ("gate", "i4"), ("missing", "i4"), ("then", "i4"), ("then_n", "i4"),
        ("joins", "i4"), ("slot", "i4"), ("departs", "i4"), ("lands", "i4"), ("feeds", "i4"),
        ("channel", "i4"), ("sent", "i4"), ("server", "i4"), ("tensor", "i4"), ("partition", "i4"), ("bucket", "i4"), ("in_group", "i4"),
        ("every", "i4"), ("from_step", "i4"),
    ],
    align=True,
)  # fmt: skip
"""An operation; ``then`` is the first of those that wait for it, ``sent`` its place among those that send to ranks, ``bucket`` that among
collectives, ``in_group`` that among those of its group; ``lasts_s`` -1: what its messages take."""

ROUTINE = np.dtype(
    [(name, "i4") for name in (
        "operations", "operations_n", "computes", "computes_n", "buckets", "buckets_n", "shuffled", "shuffled_n", "before",
        "parts", "input", "update", "feeds", "channels_n", "overlaps", "amid", "stands_still",
    )]
)  # fmt: skip
"""A routine: where its operations, computes and collectives begin in their tables;
of what waits for the first operation, ``before`` come before those that are shuffled.
"""

OWN_OPERATIONS, OWN_SLOTS = 8, 4

PACE = np.dtype([("forward_s", "f8"), ("backward_s", "f8"), ("update_s", "f8")])
"""Mean seconds of each phase of a step: of a rank, or of all of them where they are equal."""

STARTING = np.dtype([("rank", "i4"), ("number", "i4")])
"""A rank that does not begin at once, in the order in which they begin; ``number``: its place among them by rank."""

RANK = np.dtype(
    [
        ("start_s", "f8"), ("read_s", "f8"), ("compute_s", "f8"), ("pushed_s", "f8"), ("began_s", "f8"), ("read_version", "i8"),
        ("busy_s", "f8"), ("free_s", "f8"),  # of the device, where the rank has one to itself
        ("device", "i4"), ("step", "i4"), ("work", "i4"),
        ("routine", "i2"), ("left", "i2"), ("accepted", "i2"), ("at", "i2"), ("first", "i2"),
        ("manner", "i1"), ("computing", "i1"), ("complete", "i1"), ("batch_there", "i1"), ("wants_batch", "i1"),
        ("unused", "i1", 5), ("missing", "i2", OWN_OPERATIONS), ("slots", "i4", OWN_SLOTS),
    ],
)  # fmt: skip
"""A rank; its computes from ``first`` to ``at`` are under way; ``manner``: how it computes.

Where gradients are averaged, ``read_version`` is the step at which it began. Of few operations and slots
the counts of ``missing`` and the paths of ``slots`` stand here, else in tables of their own. Two lines of the cache.
"""

INPUT = np.dtype([("from_s", "f8"), ("input_s", "f8"), ("batches", "i8"), ("pipeline", "i8")])
"""A rank's input, where it has some: since when it waits and for how long, batches that it has asked for."""

PIPELINE = np.dtype(
    [
        ("batch_s", "f8"), ("ready_s", "f8"), ("first_s", "f8"), ("asked", "i8"), ("made", "i8"), ("begun", "i8"),
        ("left", "i4"), ("parts", "i4"), ("parts_n", "i4"), ("fed", "i4"), ("fed_n", "i4"), ("unused", "i4"),
    ],
    align=True,
)  # fmt: skip
"""A pipeline of input; ``begun``: batches that it has begun, ``left``: parts of the last one
that go on, ``fed``: its ranks."""

PART = np.dtype([("amount", "f8"), ("path", "i4"), ("task", "i4")])
"""A part of a batch: what crosses a path, a task's work, or, with neither, seconds."""

MEETING = np.dtype(
    [("computed_s", "f8"), ("apply_s", "f8"), ("ready_s", "f8"), ("begun_by_s", "f8"), ("idle_since_s", "f8"), ("waiting_s", "f8"),
     ("entered_n", "i4"), ("group", "i4")]
)  # fmt: skip
"""Further state of a rank's step, if ranks meet without servers; ``group``: that of its last collective."""

STRETCH = np.dtype([("since_s", "f8"), ("left_s", "f8"), ("turn", "i4"), ("done", "i4"), ("flights", "i4"), ("rank", "i4")])
"""Of a device that communication slows down: mean seconds of work that were left, and when; ``done``: the work in progress, -1: none."""

OVERLAP = np.dtype([("since_s", "f8"), ("hidden_s", "f8"), ("flights", "i4"), ("computing", "i4")])

SERVER = np.dtype(
    [
        ("began_s", "f8"),
        ("busy_s", "f8"),
        ("busy_since", "f8"),
        ("version", "i8"),
        ("parts", "i8"),
        ("logged", "i8"),
        ("front", "i4"),
        ("last", "i4"),
        ("seat", "i4"),
        ("task", "i4"),
    ]
)
"""A server: its jobs, the path of its seat, its task on shared cores; ``logged``: the number of what it has done last."""

JOB = np.dtype([("cost_s", "f8"), ("about", "i8"), ("rank", "i4"), ("after", "i4")])
"""Work of a server: for the rank's operation ``about``, or for the mean of tensor ``about`` (rank -1)."""

READ = np.dtype([("read", "i8"), ("applied", "i8"), ("left", "i8")])
"""Of a rank and a server: the version when it read, the one that its update found, gradients that are still to be applied."""

CHANNEL = np.dtype([("front", "i4"), ("last", "i4"), ("receiving", "i4")])
"""Of a rank: the messages that have come and were not received yet; the receive that waits, -1: none."""

GATHERING = np.dtype(
    [
        ("joined_s", "f8"), ("lasts_s", "f8"), ("moves_s", "f8"), ("joined_by", "i8"), ("here", "i4"), ("front", "i4"), ("last", "i4"),
        ("after", "i4"),
    ]
)  # fmt: skip
"""A collective of a group that lasts a known time: who has entered it, and when and because of which work the last did; the group's
next that all have entered."""

GROUP = np.dtype([("free_s", "f8"), ("ranks", "i4"), ("gatherings", "i4"), ("over", "i4"), ("next", "i4"), ("last", "i4")])
"""A group whose collectives last known times: when it has ended what it entered, how many it has, its first gathering; the path over
links that it shares, and of its gatherings that all have entered the first and the last."""

ENTERED = np.dtype([("entered_s", "f8"), ("cause", "i8"), ("rank", "i4"), ("number", "i4"), ("after", "i8")])
"""Of a rank and one of its collectives: when it entered, by which of its operations and because of which work; who entered next."""

COMING = np.dtype([("sent_s", "f8"), ("logged", "i8"), ("after", "i8")])

TENSOR = np.dtype([("cost_s", "f8"), ("step", "i8"), ("accumulated", "i4"), ("come", "i4"), ("server", "i4")], align=True)
"""A tensor's accumulator, and what its update costs; ``come``: gradients at their server, of those that its next mean averages."""

# -- collectives message by message ----------------------------------------------------------

MEMBER = np.dtype(
    [(name, "i4") for name in ("asked", "current", "exchange", "sent", "gone", "got_even", "got_odd", "waiting", "waiting_last")]
)  # fmt: skip
"""A rank in a group: buckets announced, and the one that it is at, over all steps, with its exchange; what it has sent and got; the lanes
that wait for it."""

STANDING = np.dtype([("rank", "i4"), ("bucket", "i4")])
"""Rank of a member, and the place of its group's first bucket among the rank's collectives."""

LANE = np.dtype(
    [(name, "i4") for name in (
        "source", "target", "path", "messages", "sent", "received_even", "received_odd", "waits", "after", "awaits", "awaits_n",
        "meets",
        "meets_n",
    )]
)  # fmt: skip
"""A lane, and the place of its messages; ``after``: in the list of those that wait for its target; ``meets_n`` -1: it never does."""

NEED = np.dtype([("lane", "i4"), ("base", "i4"), ("slope", "i4"), ("onward", "i4")])
"""As a row of :class:`simulator.program.schedule.Needs`."""

ROLE = np.dtype([(name, "i4") for name in ("first", "last", "outgoing", "incoming", "into", "into_n")])
"""A rank's part in an exchange: its lanes ``first`` to ``last`` - 1, messages that it sends and gets, and lanes to it."""

EXCHANGE = np.dtype([("roles", "i8"), ("sizes", "i8"), ("bucket", "i4"), ("following", "i4")])
"""A bucket of a group: with a member's number added, its part, and with a lane's, the size of its messages; the
exchange after it, in turn."""

LOGGED = np.dtype([("kind", "i4"), ("rank", "i4"), ("about", "i8"), ("begun_s", "f8"), ("ended_s", "f8"), ("cause", "i8")])
"""Events for an observer."""

COUNT = np.dtype([("n", "i2")])
LONG = np.dtype([("n", "i8")])
FLAG = np.dtype([("on", "u1")])

CROSSINGS = np.dtype(
    [("ports_n", "i8")]
    + [(name, "i8") for name in (
        "order", "begins", "by_port", "path", "first", "crossed", "weight", "capacity", "room", "ceiling", "shared",
    )]
)  # fmt: skip
"""Addresses of what ``state`` has looked through for ports that are never full: LONG up to ``crossed``, then REAL, and FLAG."""
