"""Divides the time of a step that has ended into its parts, for the recorder, and counts updates where there are no servers.

``_end_step`` and ``_end_together`` of ``simulator.engine.compiled.rank`` do the same, compiled: change both together
(tests/property/test_engines_agree.py holds them equal). Updates on servers are counted in ``updates``.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.base.records import Update
from simulator.engine.recorder import Parts
from simulator.engine.simpy.collectives import Collectives
from simulator.engine.simpy.rank import Rank
from simulator.engine.simpy.recorder import KernelRecorder
from simulator.engine.simpy.updates import Updates
from simulator.network.kernel import Kernel
from simulator.program.program import Integers

__all__ = ["Accounts"]


class Accounts:
    """Tells the recorder of steps and, where there are no servers, of updates.

    Parameters
    ----------
    kernel
        The calendar.
    recorder
        Keeps what is measured.
    every
        Steps after which all ranks hold the same variables.
    updates
        What becomes of gradients at servers; none without servers.
    collectives
        What reduces buckets among the ranks; none where nothing is reduced.
    group
        That in which each rank has the last of a step's collectives, shape (ranks,): it waits until all of that have entered it.
    """

    def __init__(
        self,
        kernel: Kernel,
        recorder: KernelRecorder,
        every: int,
        updates: Updates | None,
        collectives: Collectives | None,
        group: Integers,
    ) -> None:
        self._kernel = kernel
        self._recorder = recorder
        self._every = every
        self._updates = updates
        self._collectives = collectives
        self._group = group.tolist()
        self._last_ready_s: dict[tuple[int, int], float] = {}  # of each step and group, when the last rank had all that it reduces
        self._applied_s = 0.0
        self._applied = 0

    def entered(self, rank: Rank, *, last: bool) -> None:
        """The rank enters a collective, which may be the last of its step."""
        now = self._kernel.now
        rank.entered_s.append(now)
        if last:
            rank.ready_s = now
            where = rank.step, self._group[rank.index]
            self._last_ready_s[where] = max(now, self._last_ready_s.get(where, 0.0))

    def step_ended(self, rank: Rank, cause: int) -> None:
        """The rank's step has ended, with the work ``cause``."""
        if self._updates is not None:
            self._recorder.step(rank.index, rank.start_s, self._parts_with_servers(rank, self._updates), cause)
        else:
            self._end_together(rank, cause)

    def _parts_with_servers(self, rank: Rank, updates: Updates) -> Parts:
        """Where the time of a step went whose gradients go to servers."""
        now = self._kernel.now
        waited_s = updates.waited_s(rank) if rank.complete else 0.0
        applied_s = now - rank.pushed_s - waited_s if rank.complete else 0.0
        hidden_s = rank.overlap.take() if rank.overlap is not None else 0.0
        return Parts(rank.input_s, rank.compute_s, rank.held_s + waited_s, applied_s, hidden_s, rank.accepted / rank.plan.parts)

    def _end_together(self, rank: Rank, cause: int) -> None:
        """The end of a step after which all ranks go on together."""
        every, step, group = self._every, rank.step, self._group[rank.index]
        waiting_s, hidden_s = 0.0, rank.overlap.take() if rank.overlap is not None else 0.0
        if rank.plan.stands_still:
            rank.stood_still(self._kernel.now, rank.begun_by_s)
            waiting_s = rank.waiting_s
        if rank.entered_s:
            waiting_s = self._last_ready_s[step, group] - rank.ready_s
            if every == 1 and not rank.plan.amid:
                assert self._collectives is not None
                hidden_s = _hidden_s(rank.entered_s, self._collectives.ended_s(rank.index), rank.computed_s)
        self._last_ready_s.pop((step - 2 * every, group), None)
        # all ranks apply the same update, each to its own copy; it is counted once
        if not rank.index and not (step + 1) % every:
            read_s = rank.start_s if every == 1 else self._applied_s
            self._applied_s = self._kernel.now
            self._recorder.update(Update(0, read_s, self._applied_s, self._applied, self._applied, (), ()))
            self._applied += 1
        compute_s = rank.compute_s if rank.plan.amid else rank.computed_s - rank.start_s - rank.input_s
        self._recorder.step(rank.index, rank.start_s, Parts(rank.input_s, compute_s, waiting_s, rank.apply_s, hidden_s), cause)


def _hidden_s(entered_s: Sequence[float], ended_s: Sequence[float], computed_s: float) -> float:
    """Seconds in which the rank was in an all-reduce and still computed; one follows the other."""
    free_s = 0.0
    hidden_s = 0.0
    for entered, ended in zip(entered_s, ended_s, strict=True):
        hidden_s += max(min(ended, computed_s) - max(entered, free_s), 0.0)
        free_s = ended
    return hidden_s
