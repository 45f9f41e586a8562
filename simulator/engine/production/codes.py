"""Numbers that machine code has in place of names: kinds of operations, gates, seats, what can happen, reasons to return to Python, rows.

What can happen is handled in ``loop`` below ``FIRST`` (the network; cores have alarms), in ``interpreter`` from there on: a new code
needs a case there. ``tables`` translates the names of :class:`simulator.program.program.Operation`.
"""

from __future__ import annotations

STAND_FOR_LINK = 1
"""The sending host's work on a message is done, on cores that all share."""
HOST_DONE = 7
"""A host has done what is in front."""
RECEIVED = 2
"""A message has come in whole."""
BEGIN = 3
"""A connection's message has waited behind what others have queued."""
SETTLE = 4
"""Shares are computed again."""
ADMIT = 5
"""Messages are given their turns."""
CHANGE = 6
"""Others take another part of some ports."""
FIRST = 16

# -- of programs -------------------------------------------------------------------------

BEGIN_OPERATION = FIRST
"""A rank's operation begins; ``about`` packs step and operation."""
END_OPERATION = FIRST + 1
"""A rank's operation has ended."""
READ = FIRST + 2
"""The step is the rank's, which begins to read."""
DISPATCHED = FIRST + 3
"""The coordinator has done its work on cores for a rank."""
PREPARED = FIRST + 4
"""The client has done its work on cores for a rank's operation."""
BATCH_COMES = FIRST + 5
"""The batch that a rank's pipeline has prepared is there."""
PREFETCH = FIRST + 6
"""A pipeline that shares something begins its first batch."""
PREFETCHED = FIRST + 7
"""A part of its batch has ended."""
COMPUTED = FIRST + 8
"""A rank's work, number ``about``, has ended on a device that it shares, or on cores."""
WAKE = FIRST + 9
"""A device that one rank has to itself has worked, if its turn is still ``about``."""
GO_ON = FIRST + 10
"""A rank goes on with its computes, if its step is still ``about``."""
ARRIVED = FIRST + 11
"""A rank's message has arrived."""
DELIVERED = FIRST + 12
"""A rank's message to another has arrived."""
SERVED = FIRST + 13
"""A server has done what is in front."""
ALL_REDUCED = FIRST + 14
"""A rank has all buckets of the step."""
CLOSE = FIRST + 15
"""A rank is out of steps, and the measurement ends."""

# -- of collectives message by message -----------------------------------------------------

ADVANCE = FIRST + 16
"""A rank may be able to go on with its collective."""
CHUNK = FIRST + 17
"""A message of a lane, in bucket ``about``, has come."""
SENT_LAST = FIRST + 18
"""The last message of a lane has left its rank."""
START = FIRST + 19
"""A rank begins its first step."""
HANDED_OUT = FIRST + 20
"""A rank knows that the coordinator has handed out its step."""
DONE = FIRST + 21
"""The other engine stops here, after what happens in the same instant as the window's closing."""
GATHERED = FIRST + 22
"""A collective that lasts a known time has ended for all of its group."""
MOVING = FIRST + 23
"""A group's collective comes to what goes over links that it shares with others."""
MOVED = FIRST + 24
"""Work is done."""


GATE, COMPUTE, SEND, RECEIVE, SERVE, COLLECTIVE = range(6)
"""Kinds of operations."""
TURN_GATE, PREPARE_GATE, INPUT_GATE, UPDATE_GATE = range(4)
"""Gates."""
ALONE, STRETCHED, SHARED, ON_CORES = range(4)
"""How a rank computes: on a device of its own, which communication may slow down; on one that it shares; on cores that all share."""

# -- reasons to return to Python, which ``compiled`` answers ---------------------------------

SLICE = 0
"""As much has happened as was asked for."""
DRAINED = 1
"""Nothing is left that could happen."""
FULL = 3
"""A table must grow before anything else happens."""
WEIGHTS = 4
"""More weights of messages are needed."""
HANDLE = 5
"""``what`` and ``about`` are not of the network; the caller is to handle them."""
REFUSED = 6
"""A delay that is not a finite number, or below 0, was asked for."""
TURNS = 16
"""The window opens or closes."""
ROWS = 18
"""A table of rows is full."""
CLOSES = 17
"""A rank is out of steps."""
DRAWS = 19
"""A rank needs factors or orders."""
ENDS = 21
"""Nothing more is recorded for an observer."""
REDUCES = 20
"""All ranks have all buckets of a step, which are to be reduced at once."""

# -- what an observer gets ---------------------------------------------------------------

ENDED, APPLIED, STARTED, ALL_REDUCE, TRANSFER, SENDING, JOINED, STEP, UPDATE = range(9)
"""Kinds of rows: the calls of the logs; the last two the recorder's."""
INDEX_BITS = 24
"""In ``about`` of the row of a message of a collective: bits of its number on its lane; the bucket stands above."""
