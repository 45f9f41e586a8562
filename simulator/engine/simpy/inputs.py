"""When each rank has its batch: prepared by a pipeline while devices compute, or sent by a client.

``inputs`` and ``interpreter`` of ``simulator.engine.compiled`` do the same, compiled: change them together
(tests/property/test_engines_agree.py holds them equal). ``simulator.engine.vectorised.feeding`` computes what ``_Alone`` does for
all ranks at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from simpy.events import Event

from simulator.base.records import NOTHING
from simulator.engine.draws import BatchFactors, Draws
from simulator.engine.simpy.rank import Rank
from simulator.network.cores import Task
from simulator.network.flows import Network
from simulator.network.ports import Connection
from simulator.program.program import Feed

__all__ = ["Inputs"]


class Inputs:
    """The batches of all ranks.

    Parameters
    ----------
    network
        Carries what pipelines read, and their work on cores that they share; has the calendar.
    feed
        The pipelines; none: batches are there, or a client sends them.
    draws
        How long each batch takes.
    connections
        All paths of the program.
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
        network: Network,
        feed: Feed | None,
        draws: Draws,
        connections: Sequence[Connection],
        ranks: Sequence[Rank],
        passed: Callable[[Rank, int, float, int], int],
        ended: Callable[[Rank, int, int, int], None],
    ) -> None:
        self._kernel = network.kernel
        self._passed = passed
        self._ended = ended
        self._alone: list[_Alone] = []
        self._sharing: list[_Sharing] = []
        self._of_rank: list[int] = []
        if feed is None:
            return
        self._of_rank = feed.of_rank.tolist()
        fed: list[list[Rank]] = [[] for _ in range(len(feed))]
        for rank, pipeline in zip(ranks, self._of_rank, strict=True):
            fed[pipeline].append(rank)
        jitter = draws.of_batches(len(feed))
        for number, its_ranks in enumerate(fed):
            factors = BatchFactors(jitter, number, draws.block) if jitter is not None else None
            if feed.alone:
                self._alone.append(_Alone(feed, number, factors, min(rank.first_s for rank in its_ranks)))
            else:
                parts = _parts(network, feed, number, connections)
                self._sharing.append(_Sharing(feed.prefetch, parts, factors, its_ranks, self._come))

    def start(self, rank: Rank) -> None:
        """Have the first batch of a rank's pipeline prepared from the start of the first rank on that it feeds."""
        if not self._sharing:
            return
        pipeline = self._sharing[self._of_rank[rank.index]]
        if pipeline.ranks[0] is rank and pipeline.prefetch:
            self._kernel.after(min(each.first_s for each in pipeline.ranks), pipeline.go_on)

    def needed(self, rank: Rank, number: int, cause: int) -> None:
        """The rank needs its batch."""
        now = self._kernel.now
        rank.input_from_s, rank.input_cause = now, cause
        done = partial(self._batch_come, rank, number, rank.step)
        if rank.plan.feeds:
            rank.wants_batch = not rank.batch_there
            if rank.batch_there:
                rank.batch_there = False
                done()
        elif self._alone:
            self._kernel.after(self._alone[self._of_rank[rank.index]].wait_s(rank.batches, now), done)
            rank.batches += 1
        elif self._sharing:
            pipeline = self._sharing[self._of_rank[rank.index]]
            rank.batches += 1
            rank.wants_batch = not pipeline.ask(rank.batches)
            if not rank.wants_batch:
                done()
            pipeline.go_on()
        else:
            done()

    def _batch_come(self, rank: Rank, number: int, step: int, brought: int = NOTHING) -> None:
        """The batch is there, brought by a message or prepared by a pipeline."""
        if step == rank.step:
            rank.idle_since_s = self._kernel.now
            rank.input_s = rank.idle_since_s - rank.input_from_s
            if brought == NOTHING:
                brought = self._passed(rank, number, rank.input_from_s, rank.input_cause)
            self._ended(rank, number, step, brought)

    def _come(self, rank: Rank) -> None:
        """A batch is there for which a rank waits, prepared by its pipeline."""
        rank.wants_batch = False
        self._batch_come(rank, rank.plan.input, rank.step)

    def come(self, rank: Rank, brought: int) -> None:
        """A batch is there, brought by the message ``brought``."""
        if not rank.wants_batch:
            rank.batch_there = True
            return
        rank.wants_batch = False
        self._batch_come(rank, rank.plan.input, rank.step, brought)


class _Alone:
    """A pipeline that shares nothing: a batch is begun when the one before is there, and that one taken which makes room for it."""

    def __init__(self, feed: Feed, number: int, factors: BatchFactors | None, first_s: float) -> None:
        self._batch_s = float(feed.own_s[number])
        self._factors = factors
        self._prefetch = feed.prefetch
        self._ready_s = first_s
        self._taken_s: deque[float] = deque(maxlen=feed.prefetch)
        self._asked = 0

    def wait_s(self, batch: int, now: float) -> float:
        """Seconds for which a rank waits that asks for a batch, by its number; from the second rank on it is known when it comes."""
        if batch < self._asked - 1:
            return 0.0  # another rank has been given the one after it
        if batch < self._asked:
            return max(self._ready_s - now, 0.0)
        self._asked += 1
        begun_s = self._ready_s
        if not self._prefetch:
            begun_s = now
        elif batch >= self._prefetch:
            begun_s = max(begun_s, self._taken_s[0])
        ready_s = begun_s + (self._batch_s if self._factors is None else self._batch_s * self._factors.next())
        wait_s = max(ready_s - now, 0.0)
        # on the calendar it comes at just that time
        self._ready_s = now + wait_s if wait_s else ready_s
        self._taken_s.append(now + wait_s)
        return wait_s


Work = Callable[[float, Callable[[Event | None], None]], None]
"""Does a part of a batch: how much, and what to call at its end."""


class _Sharing:
    """A pipeline that shares cores, storage or links: parts of a batch go on at the same time, and it is there when all have ended."""

    def __init__(
        self,
        prefetch: int,
        parts: Sequence[tuple[Work, float]],
        factors: BatchFactors | None,
        ranks: Sequence[Rank],
        come: Callable[[Rank], None],
    ) -> None:
        self.prefetch = prefetch
        self.ranks = ranks
        self._parts = parts
        self._factors = factors
        self._come = come
        self._left = 0
        self._made = self._asked = 0

    def ask(self, batches: int) -> bool:
        """A rank asks for the last of a number of batches; whether that is there."""
        self._asked = max(self._asked, batches)
        return self._made >= batches

    def go_on(self) -> None:
        """Begin a batch, if none is under way, and fewer stand ready than may or one is waited for."""
        if self._left or self._made >= max(min(self._asked, self._made) + self.prefetch, self._asked):
            return
        factor = 1.0 if self._factors is None else self._factors.next()
        self._left = len(self._parts)
        for work, amount in self._parts:
            work(amount * factor, self._part_ended)

    def _part_ended(self, _: Event | None) -> None:
        self._left -= 1
        if self._left:
            return
        self._made += 1
        self.go_on()
        for rank in self.ranks:
            if rank.wants_batch and rank.batches <= self._made:
                self._come(rank)


def _parts(network: Network, feed: Feed, number: int, connections: Sequence[Connection]) -> list[tuple[Work, float]]:
    """What a pipeline does for a batch, and how much of it."""
    kernel = network.kernel

    def wait(wait_s: float, done: Callable[[Event | None], None]) -> None:
        if wait_s:
            kernel.call_later(wait_s, done)
        else:
            kernel.soon(done, None)

    def sent(connection: Connection) -> Work:
        def send(amount: float, done: Callable[[Event | None], None]) -> None:
            if amount:
                network.send(connection, amount, done)
            else:
                kernel.soon(done, None)

        return send

    def worked(task: Task) -> Work:
        def work(work_s: float, done: Callable[[Event | None], None]) -> None:
            if work_s:
                task.work(work_s, done)
            else:
                kernel.soon(done, None)

        return work

    parts: list[tuple[Work, float]] = []
    if network.cores is not None:
        parts += [(worked(Task(network.cores)), each_s) for each_s in feed.work_s[number].tolist() if each_s]
    parts += [
        (sent(connections[path]), amount)
        for path, amount in zip(feed.path[number].tolist(), feed.amount[number].tolist(), strict=True)
        if amount
    ]
    if feed.own_s[number]:
        parts.append((wait, float(feed.own_s[number])))
    return parts
