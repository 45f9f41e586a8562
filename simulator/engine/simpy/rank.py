"""A rank's state: where it is in its step, and what the step has come to so far.

Only state: ``engine`` and ``accounts`` say what happens. In ``simulator.engine.compiled`` the counterparts are ``rank``, the records
of ``layout``, and ``tables``, which fills them: change them together (tests/property/test_engines_agree.py holds them equal).
"""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np

from simulator.base.records import NOTHING
from simulator.engine.draws import Draws, JitterFactors
from simulator.engine.simpy.device import Device, Overlap, Seat
from simulator.network.ports import Connection
from simulator.program.groups import amid_passes, collectives_of, stands_still
from simulator.program.program import Operation, Routine

__all__ = ["Orders", "Plan", "Rank"]


class Plan:
    """A routine as the engine walks it.

    Attributes
    ----------
    routine, operations
        What is walked, and all operations of a step.
    missing
        Of each, how many others must have ended before it may begin.
    then
        Of each, those that wait for it.
    computes
        Those that are computes, in their order.
    shuffled
        First and last + 1 of those that begin in a random order.
    parts
        Gradients that servers serve.
    input
        The gate that waits for the batch.
    buckets
        The collectives of a step, by partition and bucket.
    bucket
        Of each collective its place among them.
    amid
        Whether its passes are in pieces between which it hears from others.
    stands_still
        Whether it waits before computes until others have sent, or have come to where they meet.
    feeds
        Whether a message brings the batch.
    channels
        On how many channels it receives.
    """

    def __init__(self, routine: Routine) -> None:
        self.routine = routine
        self.operations: tuple[Operation, ...] = routine.operations
        self.missing = [len(operation.after) for operation in self.operations]
        then: dict[int, list[int]] = defaultdict(list)
        for number, operation in enumerate(self.operations):
            for before in operation.after:
                then[before].append(number)
        self.then = [tuple(then[number]) for number in range(len(self.operations))]
        self.computes = [number for number, operation in enumerate(self.operations) if operation.kind == "compute"]
        self.shuffled = routine.shuffled
        self.parts = sum(operation.kind == "serve" for operation in self.operations)
        named = [number for number, operation in enumerate(self.operations) if (operation.kind, operation.name) == ("gate", "input")]
        self.input = named[0] if named else -1
        self.buckets = collectives_of(routine)
        self.bucket = {number: place for place, number in enumerate(self.buckets)}
        self.amid = amid_passes(routine)
        self.stands_still = stands_still(routine)
        self.feeds = any(operation.feeds for operation in self.operations)
        self.channels = 1 + max((operation.channel for operation in self.operations), default=-1)


class Rank:
    """One rank.

    Attributes
    ----------
    index
        Its number.
    plan, seat, device, paths, overlap
        What it does, on what, the connections of its slots, and where it may compute and communicate at
        the same time, who follows that.
    forward_s, backward_s, update_s
        Mean seconds of its passes and of its update.
    first_s
        When its first step begins.
    factors
        What the steps' times are multiplied by.
    step
        Number of its step, from 0; -1 before the first.
    factor
        What the step's compute times are multiplied by.
    missing, left
        Operations that each operation waits for; operations that have not ended.
    at, pending_s, pending
        The next compute; mean seconds of those that are about to be made in one piece, and their numbers.
    computing, work, began_s
        Whether it computes; the number of the work that counts; since when.
    causes
        Of computes that may begin, where that is recorded: the work that let them.
    batches
        That it has asked its pipeline for.
    batch_there, wants_batch, input_cause
        Whether the batch that a client sends is there; whether the step waits for its batch, and after which work.
    start_s, held_s, input_from_s, input_s, computed_s, compute_s, apply_s
        Of the step: its begin; seconds before it began to read; since when it waits for its batch, and seconds of that; when its
        last pass ended; seconds of passes and of the update.
    arrived, accepted, pushed_s
        Gradients at their servers, those in an update; when the last one was at its server.
    read_s, read_version, local_step
        Of the variables that it reads: when, which version; by which token.
    ready_s, entered_s
        When it had all that it reduces; when it entered each collective.
    come, receiving
        Of each channel, when the messages that have come and were not received yet had been sent, and their numbers as work; the
        receive that waits, -1: none.
    begun_by_s, idle_since_s, waiting_s
        When the last to begin had begun to send what the step has received, or had come to where the rank met others; since when it does
        not compute; seconds in which it stood still until others had begun.
    complete
        Whether the step was not given up.
    """

    __slots__ = (
        "accepted", "apply_s", "arrived", "at", "backward_s", "batch_there", "batches", "began_s", "begun_by_s", "causes", "come",
        "complete", "compute_s", "computed_s", "computing", "device", "entered_s", "factor", "factors", "first_s", "forward_s", "held_s",
        "idle_since_s", "index", "input_cause", "input_from_s", "input_s", "left", "local_step", "missing", "overlap", "paths", "pending",
        "pending_s", "plan", "pushed_s", "read_s", "read_version", "ready_s", "receiving", "seat", "start_s", "step", "update_s",
        "waiting_s", "wants_batch", "work",
    )  # fmt: skip

    def __init__(
        self, index: int, plan: Plan, draws: Draws, device: Device, seat: Seat, paths: list[Connection | None], overlap: Overlap | None
    ) -> None:
        self.index = index
        self.plan = plan
        self.forward_s, self.backward_s = float(draws.forward_s[index]), float(draws.backward_s[index])
        self.update_s = float(draws.apply_s[index])
        self.first_s = float(draws.start_s[index])
        self.factors = JitterFactors(draws, index)
        self.device = device
        self.seat = seat
        self.paths = paths
        self.overlap = overlap
        self.step = -1
        self.work = 0
        self.computing = False
        self.batches = 0
        self.batch_there = self.wants_batch = False
        self.read_s = self.ready_s = self.computed_s = self.began_s = self.input_from_s = 0.0
        self.read_version = self.local_step = 0
        self.causes: dict[int, int] = {}
        self.input_cause = NOTHING
        self.come: list[deque[tuple[float, int]]] = [deque() for _ in range(plan.channels)]
        self.receiving = [-1] * plan.channels

    def begin_step(self, now: float) -> None:
        """Forget the step before."""
        plan = self.plan
        self.step += 1
        self.factor = self.factors.next()
        self.missing = plan.missing.copy()
        self.left = len(plan.operations)
        self.at = 0
        self.pending_s = 0.0
        self.pending: list[int] = []
        self.start_s = now
        self.held_s = self.input_s = self.compute_s = self.apply_s = self.pushed_s = 0.0
        self.arrived = self.accepted = 0
        self.entered_s: list[float] = []
        self.begun_by_s = self.waiting_s = 0.0
        self.idle_since_s = now
        self.complete = True

    def stood_still(self, now: float, begun_s: float) -> None:
        """It has not computed since it last did, or last heard from others: that is waiting until what it has heard since had begun to be
        sent, or until the last had come to where they meet, and communication from then on."""
        self.waiting_s += min(max(begun_s - self.idle_since_s, 0.0), now - self.idle_since_s)

    def heard(self, now: float, begun_s: float) -> None:
        """It has what others have sent since ``begun_s``, or has met them since then."""
        self.begun_by_s = max(self.begun_by_s, begun_s)
        if self.plan.amid and not self.computing:
            self.stood_still(now, begun_s)
            self.idle_since_s = now


class Orders:
    """The random orders in which each rank's messages begin, step by step."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws
        self._left: dict[int, list[list[int]]] = {}

    def next(self, rank: int, count: int) -> list[int]:
        """The order of the rank's next step."""
        left = self._left.get(rank)
        if not left:
            left = self._left[rank] = self._draws.pull_orders(np.array([rank]), count, block=self._draws.block)[0, ::-1].tolist()
        return left.pop()
