"""Batches: what a rank's own pipeline prepares beside the step before, or what a client sends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from simulator.cores import Cores, Task
from simulator.engine.simpy.rank import Rank
from simulator.kernel import Kernel
from simulator.records import NOTHING

__all__ = ["Inputs"]


class Inputs:
    """The batches of all ranks.

    Parameters
    ----------
    kernel
        The calendar.
    cores
        On which pipelines work, as all nodes do; none: each has processors of its own.
    ranks
        Whose batches they are.
    passed
        Called with a rank, its gate, when it came there and because of what, when a batch is there that no message brought; the
        work that let the rank pass.
    ended
        Called with a rank, its gate, the step and the cause, when the rank has its batch.
    """

    def __init__(
        self,
        kernel: Kernel,
        cores: Cores | None,
        ranks: Sequence[Rank],
        passed: Callable[[Rank, int, float, int], int],
        ended: Callable[[Rank, int, int, int], None],
    ) -> None:
        self._kernel = kernel
        self._tasks = [Task(cores) if cores is not None and rank.input_time_s else None for rank in ranks]
        self._passed = passed
        self._ended = ended

    def start(self, rank: Rank) -> None:
        """Have the rank's first batch prepared from the rank's own start on."""
        if rank.input_time_s and self._tasks[rank.index] is not None:
            self._kernel.after(rank.first_s, partial(self._prefetch, rank))

    def needed(self, rank: Rank, number: int, cause: int) -> None:
        """The rank needs its batch; the next one is prepared from the time at which it gets it."""
        now, input_s = self._kernel.now, rank.input_time_s
        rank.input_from_s, rank.input_cause = now, cause
        done = partial(self._batch_come, rank, number, rank.step)
        if rank.plan.feeds:
            self._take_batch(rank, done)
        elif not input_s:
            done()
        elif self._tasks[rank.index] is not None:
            if self._take_batch(rank, done):
                self._prefetch(rank)
        else:
            wait_s = max(rank.input_ready_s - now, 0.0)
            rank.input_ready_s = now + wait_s + input_s
            self._kernel.after(wait_s, done)

    def _take_batch(self, rank: Rank, done: Callable[[], None]) -> bool:
        """Whether the batch is there; else the rank is remembered to want it."""
        rank.wants_batch = not rank.batch_there
        if rank.batch_there:
            rank.batch_there = False
            done()
            return True
        return False

    def _batch_come(self, rank: Rank, number: int, step: int, brought: int = NOTHING) -> None:
        """The batch is there, brought by a message or prepared by the rank's own process."""
        if step == rank.step:
            rank.idle_since_s = self._kernel.now
            rank.input_s = rank.idle_since_s - rank.input_from_s
            if brought == NOTHING:
                brought = self._passed(rank, number, rank.input_from_s, rank.input_cause)
            self._ended(rank, number, step, brought)

    def _prefetch(self, rank: Rank) -> None:
        """Prepare a batch on cores that others use as well."""
        task = self._tasks[rank.index]
        assert task is not None
        task.work(rank.input_time_s, lambda _: self._prefetched(rank))

    def _prefetched(self, rank: Rank) -> None:
        if rank.wants_batch:
            self._prefetch(rank)
        self.come(rank)

    def come(self, rank: Rank, brought: int = NOTHING) -> None:
        """A batch is there, prepared by the rank's own process or brought by the message ``brought``."""
        if not rank.wants_batch:
            rank.batch_there = True
            return
        rank.wants_batch = False
        self._batch_come(rank, rank.plan.input, rank.step, brought)
