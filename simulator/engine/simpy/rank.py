"""A rank's state: where it is in its step, and what the step has come to so far."""

from __future__ import annotations

from collections import defaultdict

from simulator.engine.simpy.device import Device, Seat
from simulator.network.ports import Connection
from simulator.overlap import Overlap
from simulator.program.program import Operation, Routine
from simulator.records import NOTHING
from simulator.replica import Paces

__all__ = ["Plan", "Rank"]


class Plan:
    """A routine as the engine walks it.

    Attributes
    ----------
    operations
        All of a step.
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
        The collectives of a step, by bucket.
    feeds
        Whether a message brings the batch.
    """

    def __init__(self, routine: Routine) -> None:
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
        self.buckets = [number for number, operation in enumerate(self.operations) if operation.kind == "collective"]
        self.feeds = any(operation.feeds for operation in self.operations)


class Rank:
    """One rank.

    Attributes
    ----------
    index
        Its number.
    plan, paces, seat, device, paths, overlap
        What it does, how fast it computes, on what, the connections of its slots, and where it may compute and communicate at
        the same time, who follows that.
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
        Of computes that may begin, where that is told: the work that let them.
    input_ready_s, batch_there, wants_batch, input_cause
        When the batch that is being prepared will be there; whether it is; whether the step waits for it, and after which work.
    start_s, held_s, input_from_s, input_s, computed_s, compute_s, apply_s
        Of the step: its begin; seconds before it began to read; since when it waits for its batch, and seconds of that; when its
        last pass ended; seconds of passes and of the update.
    arrived, accepted, pushed_s
        Gradients at their servers, those in an update; when the last one was at its server.
    read_s, read_version, local_step
        Of the variables that it reads: when, which version; by which token.
    ready_s, entered_s
        When it had all that it reduces; when it entered each collective.
    complete
        Whether the step was not given up.
    """

    __slots__ = (
        "accepted", "apply_s", "arrived", "at", "batch_there", "began_s", "causes", "complete", "compute_s", "computed_s", "computing",
        "device", "entered_s", "factor", "held_s", "index", "input_cause", "input_from_s", "input_ready_s", "input_s", "left",
        "local_step", "missing", "overlap", "paces", "paths", "pending", "pending_s", "plan", "pushed_s", "read_s", "read_version",
        "ready_s", "seat", "start_s", "step", "wants_batch", "work",
    )  # fmt: skip

    def __init__(
        self, index: int, plan: Plan, paces: Paces, device: Device, seat: Seat, paths: list[Connection | None], overlap: Overlap | None
    ) -> None:
        self.index = index
        self.plan = plan
        self.paces = paces
        self.device = device
        self.seat = seat
        self.paths = paths
        self.overlap = overlap
        self.step = -1
        self.work = 0
        self.computing = False
        self.input_ready_s = paces.start_s + paces.input_s
        self.batch_there = self.wants_batch = False
        self.read_s = self.ready_s = self.computed_s = self.began_s = self.input_from_s = 0.0
        self.read_version = self.local_step = 0
        self.causes: dict[int, int] = {}
        self.input_cause = NOTHING

    def begin_step(self, now: float) -> None:
        """Forget the step before."""
        plan = self.plan
        self.step += 1
        self.factor = self.paces.factors.next()
        self.missing = plan.missing.copy()
        self.left = len(plan.operations)
        self.at = 0
        self.pending_s = 0.0
        self.pending: list[int] = []
        self.start_s = now
        self.held_s = self.input_s = self.compute_s = self.apply_s = self.pushed_s = 0.0
        self.arrived = self.accepted = 0
        self.entered_s: list[float] = []
        self.complete = True
