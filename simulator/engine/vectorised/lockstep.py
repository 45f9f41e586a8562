"""All replicas at once: a step of every rank as a few operations on arrays.

Ranks that have a device each meet only in their all-reduces, so a step's times follow
from its draws and from when each collective ends, without an event for every rank. What
comes out is what an engine computes event by event.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
from numpy.typing import NDArray
from simpy.events import Event

from simulator.collectives.collective import Collective
from simulator.engine.draws import Draws
from simulator.engine.log import Log
from simulator.engine.recorder import InUse
from simulator.engine.vectorised.copies import HostCopies
from simulator.engine.vectorised.fusing import Fuser, Reduction
from simulator.engine.vectorised.telling import Pass, Piece, Teller
from simulator.fusion import Bucket
from simulator.kernel import Kernel
from simulator.names import Names, device_name
from simulator.program.program import Program
from simulator.program.program import Reduction as Rule
from simulator.recorder import KernelRecorder
from simulator.records import Update

__all__ = ["Lockstep"]

Times = NDArray[np.float64]


class Lockstep:
    """The training of all ranks as one process.

    Parameters
    ----------
    program
        Whose ranks have a device each, and meet in all-reduces alone.
    draws
        How fast each rank computes.
    collective
        How buckets are reduced; none of one rank alone.
    log
        Is told what was done; none if nobody wants to know.
    """

    def __init__(
        self,
        kernel: Kernel,
        program: Program,
        draws: Draws,
        recorder: KernelRecorder,
        collective: Collective | None,
        log: Log | None = None,
    ) -> None:
        rules = program.rules
        reduction = rules.reduction or Rule()
        reduced = [operation for operation in program.routines[0].operations if operation.kind == "collective"]
        buckets = [Bucket(its.ready, its.size_bytes) for its in reduced if its.every == 1] or [Bucket(1.0, 0.0)]
        copies = HostCopies(reduction.copies, draws.ranks) if reduction.copies is not None else None
        fuser = None
        if collective is not None:
            averaged_bytes = sum(its.size_bytes for its in reduced if its.every > 1)
            fuser = Fuser(collective, buckets, averaged_bytes, reduction, copies, one_by_one=recorder.observer is not None)
        self._kernel = kernel
        self._recorder = recorder
        assert rules.steps_each is not None
        self._teller = Teller(log, draws.start_s, [bucket.ready for bucket in buckets]) if log is not None else None
        self._steps = rules.steps_each
        self._draws = draws
        self._phases_s = np.array([draws.forward_s, draws.backward_s, draws.apply_s])
        self._input_s = float(draws.input_s[0])
        self._every = rules.sync_every
        self._buckets = buckets
        self._fuser = fuser
        self._overlapping = fuser is not None and reduction.by_need
        self._slowdown = program.devices.slowdown if fuser is not None else 0.0
        self._used_s = np.zeros(draws.ranks)
        self._factors = np.ones((0, draws.ranks))
        self._row = 0
        self._nothing_s = np.zeros(draws.ranks)
        self._applied_s = 0.0
        self._updates = 0
        self._collective = collective
        self._copies = copies
        recorder.watch("devices", lambda _: InUse(Names(draws.ranks, device_name), self._used_s.copy()))
        recorder.watch("links", self._links)
        kernel.start("replicas", self._train())

    @property
    def sizes(self) -> tuple[float, ...]:
        """Sizes in bytes that have been reduced, the first hundred of them."""
        return self._fuser.sizes if self._fuser is not None else ()

    def _links(self, now: float) -> InUse:  # noqa: ARG002 - in all steps ended so far
        if self._collective is None or self._fuser is None:
            return InUse((), np.zeros(0))
        self._fuser.count()
        use = self._collective.use
        reduced = InUse(use.names, use.seconds)
        return reduced.beside(self._copies.in_use) if self._copies is not None else reduced

    def _draw(self) -> Times:
        """Seconds of forward, backward and apply of all ranks in the next step, shape (3, ranks); factors are drawn in blocks of steps."""
        if self._row == len(self._factors):
            draws = self._draws
            self._factors = np.ascontiguousarray(draws.factors(np.arange(draws.ranks), draws.block).T)
            self._row = 0
        self._row += 1
        seconds: Times = self._phases_s * self._factors[self._row - 1]
        return seconds

    def _train(self) -> Generator[Event, None, None]:
        kernel = self._kernel
        start_s = self._draws.start_s
        input_ready_s = start_s + self._input_s
        pending: list[Reduction] = []  # of the step before, where the next one begins before they are done
        for step in range(self._steps):
            forward_s, backward_s, apply_s = self._draw()
            begun_s = np.maximum(start_s, input_ready_s) if self._input_s else start_s
            input_ready_s = begun_s + self._input_s
            done = self._compute(begun_s, forward_s, backward_s, apply_s, pending)
            late_s = done.computed_s.max()
            hidden_s = _hidden_s([*pending, *done.reductions], done.begun_s, done.computed_s) - done.exposed_s
            compute_s = done.computed_s - done.begun_s - done.waited_s
            waiting_s = done.late_s
            average: Reduction | None = None
            if self._overlapping:
                # the update is applied within the next forward pass, before each part of it
                pending = done.reductions
                compute_s = compute_s - (apply_s if step else 0.0)
                apply_s = apply_s if step else np.zeros_like(start_s)
                reduced_s = applied_s = end_s = done.computed_s
            else:
                reduced_s = done.computed_s
                if done.reductions:
                    reduced_s = np.maximum(done.reductions[-1].finish_s, reduced_s)
                    waiting_s = late_s - done.computed_s
                applied_s = reduced_s + apply_s
                end_s = applied_s
                if self._fuser is not None and self._every > 1 and (step + 1) % self._every == 0:
                    average = self._fuser.average(applied_s)
                    end_s = average.finish_s
                    waiting_s = applied_s.max() - applied_s
            self._used_s += compute_s + apply_s
            yield kernel.timeout(max(float(end_s.max()) - kernel.now, 0.0))
            causes: Sequence[int] = ()
            if self._teller is not None:
                causes = self._teller.step(start_s, done, (reduced_s, applied_s), average)
            self._update(step, start_s, end_s)
            self._recorder.steps(start_s, end_s, np.array([begun_s - start_s, compute_s, waiting_s, apply_s, hidden_s]), causes)
            start_s = end_s

    # -- compute, and the reductions that begin meanwhile ------------------------------

    def _compute(self, begun_s: Times, forward_s: Times, backward_s: Times, apply_s: Times, pending: list[Reduction]) -> Pass:
        waited_s = exposed_s = late_s = self._nothing_s
        now_s, name = begun_s, "forward and backward"
        pieces: list[Piece] = []
        if pending:
            now_s, waited_s, late_s, exposed_s, pieces = _forward_as_updates_come(begun_s, forward_s, apply_s, pending)
            forward_s, name = np.zeros_like(forward_s), "backward"
        from_s = now_s
        reductions: list[Reduction] = []
        fuser = self._fuser if self._every == 1 else None
        if fuser is not None and not self._slowdown:
            ready_s = [from_s + forward_s + bucket.ready * backward_s for bucket in self._buckets]
            reductions = fuser.reduce(ready_s)
            for each_s in ready_s:
                pieces.append(Piece(name, now_s, each_s))
                now_s, name = each_s, "backward"
            now_s = from_s + forward_s + backward_s
        else:
            done = 0.0
            busy_s: Times | None = None  # until when each rank communicates
            for number, bucket in enumerate(self._buckets):
                from_s = now_s
                now_s = self._stretched(now_s, (bucket.ready - done) * backward_s + (0.0 if number else forward_s), busy_s)
                pieces.append(Piece(name, from_s, now_s))
                done, name = bucket.ready, "backward"
                if fuser is not None:
                    reductions += fuser.reduce([now_s], [bucket])
                    busy_s = reductions[-1].finish_s
        if fuser is None:
            pieces = [Piece("forward and backward", begun_s, now_s)]  # on whose way nothing happens
        return Pass(begun_s, now_s, waited_s, late_s, exposed_s, reductions, pieces)

    def _stretched(self, now_s: Times, work_s: Times, busy_s: Times | None) -> Times:
        """When work that begins now ends, if compute is slower until ``busy_s``."""
        if busy_s is None or not self._slowdown:
            return now_s + work_s
        slow = 1.0 + self._slowdown
        until_s = np.maximum(busy_s, now_s)
        end_s: Times = np.where(now_s + work_s * slow <= until_s, now_s + work_s * slow, until_s + work_s - (until_s - now_s) / slow)
        return end_s

    # -- what is told of it ---------------------------------------------------------------

    def _update(self, step: int, start_s: Times, end_s: Times) -> None:
        """All replicas apply the same update, each to its own copy; it is counted once."""
        if (step + 1) % self._every:
            return
        read_s = float(start_s[0]) if self._every == 1 else self._applied_s
        self._recorder.update(Update(0, read_s, float(end_s[0]), self._updates, self._updates, ()))
        self._applied_s = float(end_s[0])
        self._updates += 1


def _hidden_s(reductions: Sequence[Reduction], begun_s: Times, computed_s: Times) -> Times:
    """Seconds between two instants in which a reduction was going on; of reductions that overlap (copies), once."""
    hidden_s, counted_s = np.zeros_like(begun_s), begun_s
    for reduction in reductions:
        until_s = np.minimum(reduction.finish_s, computed_s)
        hidden_s += np.maximum(until_s - np.maximum(reduction.begun_s, counted_s), 0.0)
        counted_s = np.maximum(counted_s, until_s)
    return hidden_s


def _forward_as_updates_come(
    begun_s: Times, forward_s: Times, apply_s: Times, pending: Sequence[Reduction]
) -> tuple[Times, Times, Times, Times, list[Piece]]:
    """The forward pass when each part waits for the update of the variables that it needs.

    Returns
    -------
    tuple
        When it ends, how long it stood still, how much of that for the slowest rank, how
        much of it communication was going on, each of shape (ranks,), and the pieces in between.
    """
    now_s, waited_s, late_s, exposed_s = begun_s, np.zeros_like(begun_s), np.zeros_like(begun_s), np.zeros_like(begun_s)
    pieces = []
    total = sum(reduction.size_bytes for reduction in pending)
    left = 1.0  # share of the backward pass after which what is still to come was ready
    for reduction in sorted(pending, key=lambda reduction: -reduction.ready):
        come_s = np.maximum(now_s, reduction.finish_s)
        waited_s = waited_s + (come_s - now_s)
        late_s = late_s + np.maximum(np.minimum(come_s, reduction.ready_s.max()) - now_s, 0.0)
        exposed_s = exposed_s + _hidden_s(pending, now_s, come_s)
        following = max((other.ready for other in pending if other.ready < reduction.ready), default=0.0)
        now_s = come_s + reduction.size_bytes / total * apply_s + (left - following) * forward_s
        pieces.append(Piece("forward", come_s, now_s, reduction))
        left = following
    return now_s, waited_s, late_s, exposed_s, pieces
