"""All replicas at once: a step of every rank as a few operations on arrays.

Ranks that have a device each meet only in their all-reduces, so a step's times follow from its draws and from when each
collective ends, without an event for every rank. It takes programs that are ``together`` (:class:`simulator.program.program.Program`).
Except for rounding, the results equal those of an event-by-event engine: tests/oracle/test_at_once.py. Fusion in cycles,
priorities and copies to hosts (``fusing``) are not known to the compiled engine.

Batches of pipelines that share nothing follow the rule of ``wait_s`` (``rules``); change both together.

From step to step only what the next one begins with is carried on; where the time of steps went is found out for a block of them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.base.compact import Names, device_name
from simulator.base.errors import no_delay
from simulator.base.records import NOTHING, Log
from simulator.collectives.collective import Collective
from simulator.engine.draws import Draws
from simulator.engine.production.at_once_observer import ObserverFeed, Pass, Piece
from simulator.engine.production.fusing import Fuser, HostCopies, Reduction
from simulator.engine.recorder import STEP_COLUMNS, InUse, Kind, Progress, Recorder
from simulator.program.program import Feed, Floats, Program
from simulator.program.program import Reduction as Rule
from simulator.spec.gradients import Bucket


class Feeder:
    """When each rank has its batches: one is begun when the one before is there, and that one taken which makes room for it.

    Parameters
    ----------
    feed
        Pipelines that share nothing.
    draws
        When ranks begin, and how long each batch takes.
    """

    def __init__(self, feed: Feed, draws: Draws) -> None:
        self._of_rank, self._batch_s, self._prefetch = feed.of_rank, feed.own_s, feed.prefetch
        self._shares = len(feed) < len(feed.of_rank)  # else each rank has a pipeline to itself, in their order
        self._pipelines = np.arange(len(feed))
        self._jitter = draws.of_batches(len(feed))
        self._block = draws.block
        self._factors = np.ones((0, len(feed)))
        self._row = 0
        self._ready_s = self._first(draws.start_s)
        self._taken_s: deque[Floats] = deque(maxlen=feed.prefetch)

    def take(self, asked_s: Floats) -> Floats:
        """When each rank has its next batch that asks for it at some time, shape (ranks,)."""
        begun_s = self._ready_s
        if not self._prefetch:
            begun_s = self._first(asked_s)
        elif len(self._taken_s) == self._prefetch:
            begun_s = np.maximum(begun_s, self._taken_s[0])
        self._ready_s = begun_s + self._next_s()
        has_s: Floats = np.maximum(asked_s, self._ready_s if not self._shares else self._ready_s[self._of_rank])
        self._taken_s.append(self._first(has_s))
        return has_s

    def _first(self, times_s: Floats) -> Floats:
        """The earliest of the times of each pipeline's ranks."""
        if not self._shares:
            return times_s
        first_s = np.full(len(self._pipelines), np.inf)
        np.minimum.at(first_s, self._of_rank, times_s)
        return first_s

    def _next_s(self) -> Floats:
        """Seconds of the next batch of each pipeline."""
        if self._jitter is None:
            return self._batch_s
        if self._row == len(self._factors):
            drawn = np.empty((len(self._pipelines), self._block))
            self._jitter.fill(self._pipelines, drawn)
            self._factors, self._row = drawn.T, 0
        self._row += 1
        seconds: Floats = self._batch_s * self._factors[self._row - 1]
        return seconds


Times = NDArray[np.float64]

_END, _COMPUTE, _APPLY, _BEGUN, _COMPUTED, _APPLIED, _NUMBER, _CAUSE, _COLUMNS = 2, 4, 6, 9, 10, 11, 12, 13, 14
"""Of steps as rows: what follows the recorder's columns says more of the step than the recorder takes."""
_NO_ROWS = np.empty((0, _COLUMNS))
_CELLS = 8192
"""Buckets of steps of ranks that are looked at together."""


class _Steps(NamedTuple):
    """Steps of all ranks, one after the other; arrays of shape (steps, ranks), in seconds."""

    start_s: Times
    begun_s: Times
    """When compute began: the batch is there."""
    computed_s: Times
    """When the backward pass ended."""
    applied_s: Times
    end_s: Times
    apply_s: Times
    """Time to apply the update, within the forward pass or after the backward pass."""
    still_s: Times | float
    """Time within compute that ranks waited for parameters."""
    waiting_s: Times | float
    """Time in which they waited for the slowest."""
    hidden_s: Times | float
    """Time of compute in which they communicated."""


class AtOnceEngine:
    """The training of all ranks as one process.

    Parameters
    ----------
    program
        A program whose ranks have a device each and meet only in all-reduces.
    draws
        How fast each rank computes.
    recorder
        Is told what is measured.
    collective
        How buckets are reduced; None for a single rank.
    log
        Is told what was done; none if nobody wants to know.
    on_progress
        Called now and then with the share of the steps that have ended.
    """

    def __init__(
        self,
        program: Program,
        draws: Draws,
        recorder: Recorder,
        collective: Collective | None,
        log: Log | None = None,
        on_progress: Callable[[float], None] | None = None,
    ) -> None:
        rules = program.rules
        reduction = rules.reduction or Rule()
        reduced = [operation for operation in program.routines[0].operations if operation.kind == "collective"]
        buckets = [Bucket(operation.ready, operation.size_bytes) for operation in reduced if operation.every == 1] or [Bucket(1.0, 0.0)]
        copies = HostCopies(reduction.copies, draws.ranks) if reduction.copies is not None else None
        observed = recorder.observer is not None
        fuser = None
        if collective is not None:
            averaged_bytes = math.fsum(operation.size_bytes for operation in reduced if operation.every > 1)
            fuser = Fuser(collective, buckets, averaged_bytes, reduction, copies, one_by_one=observed)
        self._recorder = recorder
        self._progress = Progress(on_progress, recorder.closes_at)
        self._feed = ObserverFeed(log, draws.start_s, [bucket.ready for bucket in buckets]) if log is not None else None
        # whoever observes hears of each step before the next one; of copies the last ones are known
        self._most = 1 if observed or copies is not None else max(_CELLS // (draws.ranks * len(buckets)), 1)
        self._draws = draws
        self._phases_s = np.array([draws.forward_s, draws.backward_s, draws.apply_s])
        self._feeder = Feeder(program.feed, draws) if program.feed is not None else None
        self._every = rules.sync_every
        self._buckets = buckets
        self._fuser = fuser
        self._overlapping = fuser is not None and reduction.by_need
        self._slowdown = program.devices.slowdown if fuser is not None else 0.0
        self._used_s = np.zeros(draws.ranks)
        self._factors = np.ones((0, draws.ranks))
        self._row = 0
        self._nothing_s = np.zeros(draws.ranks)
        self._collective = collective
        self._copies = copies
        self._made = 0  # steps of each rank
        self._averages_s: deque[float] = deque()  # when all had what they averaged, of averages that are still to be counted
        # what the next step begins with
        self._start_s = draws.start_s
        self._pending: list[Reduction] = []  # of the step before, where the next one begins before they are done
        self._averaged_s = 0.0  # when the last average was there
        self._causes: Sequence[int] = ()  # what ended the last step of each rank, for whoever observes

    @property
    def sizes(self) -> tuple[float, ...]:
        """Sizes in bytes that have been reduced, the first hundred of them."""
        return self._fuser.sizes if self._fuser is not None else ()

    def run(self) -> None:
        """Until the recorder's window closes.

        Raises
        ------
        SimulationError
            A step took a time that is no finite number.
        """
        recorder = self._recorder
        if not recorder.opens_at:
            recorder.open(0.0, self._used(self._in_use(0.0, _NO_ROWS)))
        if self._every > 1:
            self._run_apart()
        else:
            self._run_together()

    def _run_together(self) -> None:
        """Steps that all ranks end before any ends the next one."""
        recorder, ranks = self._recorder, self._draws.ranks
        opens, closes = recorder.opens_at // ranks, recorder.closes_at // ranks
        now_s, steps = 0.0, self._make(min(opens or closes, self._most))
        while True:
            now_s = _later(now_s, steps.end_s.max(axis=1).tolist())
            self._tell(steps)
            told = recorder.ended // ranks
            self._progress.at(recorder.ended)
            if told == closes:
                # an event of the calendar for each step, and one for the beginning; nobody begins a step beyond the last
                recorder.close(now_s, self._in_use(now_s, _NO_ROWS), 1 + closes)
                return
            links = self._links()
            steps = self._make(min((opens if told < opens else closes) - told, self._most))
            if told == opens:
                recorder.open(now_s, self._used(self._in_use(now_s, self._rows(steps), links)))

    def _run_apart(self) -> None:
        """Steps between two averages, of which some ranks end several while others end one: told in the order in which they end."""
        recorder = self._recorder
        waiting = _NO_ROWS
        while True:
            steps = self._make(min(self._most, self._every))
            waiting = np.concatenate((waiting, self._rows(steps)))
            waiting = waiting[np.argsort(waiting[:, _END], kind="stable")]
            known = int(np.searchsorted(waiting[:, _END], steps.end_s[-1].min(), side="right"))  # no step that comes ends before
            while known:
                until = recorder.closes_at if recorder.is_open else recorder.opens_at
                count = min(until - recorder.ended, known)
                rows, waiting, known = waiting[:count], waiting[count:], known - count
                self._tell_rows(rows)
                self._progress.at(recorder.ended)
                now_s = float(rows[-1, _END])
                if recorder.ended == recorder.opens_at and not recorder.is_open:
                    recorder.open(now_s, self._used(self._in_use(now_s, waiting)))
                if recorder.ended == recorder.closes_at:
                    recorder.close(now_s, self._in_use(now_s, waiting), 1 + recorder.ended // self._draws.ranks)
                    return

    def _links(self) -> InUse:
        """How long links have been in use, by all that has been reduced."""
        links = InUse((), np.zeros(0))
        if self._collective is not None and self._fuser is not None:
            self._fuser.count()
            use = self._collective.use
            links = InUse(use.names, use.seconds.copy())
        return links

    def _in_use(self, now_s: float, begun: Times, links: InUse | None = None) -> Mapping[Kind, InUse]:
        """Of each kind up to now; ``begun``: steps that may have begun and have not been told, as rows."""
        while self._averages_s and self._averages_s[0] <= now_s:
            self._averages_s.popleft()
            assert self._fuser is not None
            self._fuser.count_average()
        used_s = self._used_s.copy()
        compute_s = np.clip(now_s - begun[:, _BEGUN], 0.0, begun[:, _COMPUTE])
        apply_s = np.clip(now_s - (begun[:, _APPLIED] - begun[:, _APPLY]), 0.0, begun[:, _APPLY])
        np.add.at(used_s, begun[:, 0].astype(np.int64), compute_s + apply_s)
        links = links or self._links()
        if self._copies is not None:
            links = links.beside(self._copies.in_use(now_s))
        return {"devices": InUse(Names(self._draws.ranks, device_name), used_s), "links": links}

    @staticmethod
    def _used(in_use: Mapping[Kind, InUse]) -> dict[Kind, Times]:
        return {kind: use.seconds for kind, use in in_use.items()}

    def _draw(self, most: int) -> Times:
        """Seconds of forward, backward and apply of all ranks in the next steps, shape (at most ``most``, 3, ranks)."""
        if self._row == len(self._factors):
            draws = self._draws
            self._factors = np.ascontiguousarray(draws.factors(np.arange(draws.ranks), draws.block).T)
            self._row = 0
        factors = self._factors[self._row : self._row + most]
        self._row += len(factors)
        seconds: Times = self._phases_s * factors[:, None, :]
        return seconds

    def _make(self, most: int) -> _Steps:
        """Make some steps of each rank."""
        seconds = self._draw(most)
        apart = self._fuser is None and self._feeder is None and self._feed is None
        self._made += len(seconds)
        return self._apart(seconds) if apart else self._one_by_one(seconds)

    def _parts(self, steps: _Steps) -> Times:
        """Where their time went, as the recorder takes it."""
        compute_s = steps.computed_s - steps.begun_s - steps.still_s
        if self._overlapping:
            compute_s -= steps.apply_s
        parts = np.empty((5, *compute_s.shape))
        parts[0], parts[1], parts[2] = steps.begun_s - steps.start_s, compute_s, steps.waiting_s
        parts[3], parts[4] = steps.apply_s, steps.hidden_s
        return parts

    def _tell(self, steps: _Steps) -> None:
        """Tell of steps that all ranks have made together; all apply the same update, each to its own copy: it is counted once."""
        parts = self._parts(steps)
        self._used_s = np.add.accumulate(np.concatenate((self._used_s[None], parts[1] + parts[3])))[-1]
        first = self._recorder.ended // self._draws.ranks
        number = np.arange(first, first + len(steps.end_s))
        self._recorder.updates(np.stack((np.zeros(len(number)), steps.start_s[:, 0], steps.end_s[:, 0], number, number), axis=1))
        self._recorder.together(steps.start_s, steps.end_s, parts, self._causes)

    def _tell_rows(self, rows: Times) -> None:
        """Tell of steps that have ended, one after the other."""
        np.add.at(self._used_s, rows[:, 0].astype(np.int64), rows[:, _COMPUTE] + rows[:, _APPLY])
        averaged = rows[(rows[:, 0] == 0) & ((rows[:, _NUMBER] + 1) % self._every == 0)]
        for end_s, number in averaged[:, [_END, _NUMBER]].tolist():
            updates = number // self._every
            self._recorder.updates(np.array([[0.0, self._averaged_s, end_s, updates, updates]]))
            self._averaged_s = end_s
        self._recorder.steps(rows[:, : len(STEP_COLUMNS)], rows[:, _CAUSE].astype(int).tolist())

    def _rows(self, steps: _Steps) -> Times:
        """The same as a row of each step."""
        parts = self._parts(steps)
        count, ranks = steps.end_s.shape
        rows = np.ones((count, ranks, _COLUMNS))
        rows[..., 0], rows[..., 1], rows[..., _END] = np.arange(ranks), steps.start_s, steps.end_s
        rows[..., 3:8] = np.moveaxis(parts, 0, -1)
        rows[..., _BEGUN], rows[..., _COMPUTED], rows[..., _APPLIED] = steps.begun_s, steps.computed_s, steps.applied_s
        rows[..., _NUMBER] = np.arange(self._made - count, self._made)[:, None]
        rows[..., _CAUSE] = np.reshape(self._causes, (count, ranks)) if len(self._causes) else NOTHING
        return rows.reshape(-1, _COLUMNS)

    # -- steps ----------------------------------------------------------------------------

    def _apart(self, seconds: Times) -> _Steps:
        """Steps of ranks that wait for nothing: each begins with the end of the one before."""
        forward_s, backward_s, apply_s = seconds[:, 0], seconds[:, 1], seconds[:, 2]
        pieces = np.empty((len(seconds), len(self._buckets) + 1, self._draws.ranks))
        done = 0.0
        for number, bucket in enumerate(self._buckets):
            pieces[:, number] = (bucket.ready - done) * backward_s + (0.0 if number else forward_s)
            done = bucket.ready
        pieces[:, -1] = apply_s
        each = pieces.shape[1]
        # one after the other, as they are added step by step
        ends_s = np.add.accumulate(np.concatenate((self._start_s[None], pieces.reshape(-1, self._draws.ranks))))
        start_s, computed_s, end_s = ends_s[:-1:each], ends_s[each - 1 :: each], ends_s[each::each]
        self._start_s = end_s[-1]
        return _Steps(start_s, start_s, computed_s, end_s, end_s, apply_s, 0.0, 0.0, 0.0)

    def _one_by_one(self, seconds: Times) -> _Steps:
        """Steps of ranks that wait for each other, or for their input."""
        each: list[tuple[Times, Times, Times, Times, Times]] = []
        passes: list[Pass] = []
        reductions: list[list[Reduction]] = []  # which may go on while a step computes
        for number, (forward_s, backward_s, apply_s) in enumerate(seconds, self._made - len(seconds)):
            start_s = begun_s = self._start_s
            if self._feeder is not None:
                begun_s = self._feeder.take(start_s)
            done = self._compute(begun_s, forward_s, backward_s, apply_s)
            reductions.append([*self._pending, *done.reductions])
            reduced_s = applied_s = end_s = done.computed_s
            average: Reduction | None = None
            if self._overlapping:
                # the update is applied within the next forward pass, before each part of it
                self._pending = done.reductions
            else:
                if done.reductions:
                    reduced_s = np.maximum(done.reductions[-1].finish_s, reduced_s)
                applied_s = end_s = reduced_s + apply_s
                if self._fuser is not None and self._every > 1 and (number + 1) % self._every == 0:
                    average = self._fuser.average(applied_s)
                    self._averages_s.append(float(applied_s.max()))
                    end_s = average.finish_s
            if self._feed is not None:
                self._causes = self._feed.step(start_s, done, (reduced_s, applied_s), average)
            each.append((start_s, begun_s, done.computed_s, applied_s, end_s))
            passes.append(done)
            self._start_s = end_s
        start_s, begun_s, computed_s, applied_s, end_s = np.array(each).transpose(1, 0, 2)
        applying_s, still_s, waiting_s = seconds[:, 2], np.zeros_like(computed_s), np.zeros_like(computed_s)
        hidden_s = _hidden_in_each(reductions, begun_s, computed_s)
        if self._overlapping:
            if self._made == len(seconds):
                applying_s = applying_s.copy()
                applying_s[0] = 0.0
            still_s, waiting_s = np.array([done.waited_s for done in passes]), np.array([done.late_s for done in passes])
            hidden_s -= [done.exposed_s for done in passes]
        elif self._fuser is not None and self._every > 1:
            averaged = (np.arange(self._made - len(seconds), self._made) + 1) % self._every == 0
            waiting_s[averaged] = applied_s[averaged].max(axis=1)[:, None] - applied_s[averaged]
        elif self._fuser is not None:
            waiting_s = computed_s.max(axis=1)[:, None] - computed_s
        return _Steps(start_s, begun_s, computed_s, applied_s, end_s, applying_s, still_s, waiting_s, hidden_s)

    # -- compute, and the reductions that begin meanwhile ------------------------------

    def _compute(self, begun_s: Times, forward_s: Times, backward_s: Times, apply_s: Times) -> Pass:
        waited_s = exposed_s = late_s = self._nothing_s
        now_s, name = begun_s, "forward and backward"
        pieces: list[Piece] = []
        if self._pending:
            now_s, waited_s, late_s, exposed_s, pieces = _forward_as_updates_come(begun_s, forward_s, apply_s, self._pending)
            forward_s, name = np.zeros_like(forward_s), "backward"
        reductions: list[Reduction] = []
        fuser = self._fuser if self._every == 1 else None
        if fuser is not None and not self._slowdown:
            passed_s = now_s + forward_s
            ready_s = [passed_s + bucket.ready * backward_s for bucket in self._buckets]
            reductions = fuser.reduce(ready_s)
            for each_s in ready_s:
                pieces.append(Piece(name, now_s, each_s))
                now_s, name = each_s, "backward"
            now_s = passed_s + backward_s
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


def _later(now: float, ends_s: Iterable[float]) -> float:
    """The instant at which the last of some steps has ended, each so much later than the one before as it takes."""
    for end_s in ends_s:
        delay_s = max(end_s - now, 0.0)
        if not 0 <= delay_s < math.inf:
            raise no_delay(delay_s, now)
        now += delay_s
    return now


def _hidden_in_each(reductions: Sequence[Sequence[Reduction]], begun_s: Times, computed_s: Times) -> Times:
    """:func:`_hidden_s` of each of some steps; arrays of shape (steps, ranks)."""
    if len({len(of_step) for of_step in reductions}) > 1:
        columns = reductions, begun_s, computed_s
        return np.array(
            [_hidden_in_each([reduction], from_s[None], to_s[None])[0] for reduction, from_s, to_s in zip(*columns, strict=True)]
        )
    spans = [
        (np.array([reduction.begun_s for reduction in same]), np.array([reduction.finish_s for reduction in same]))
        for same in zip(*reductions, strict=True)
    ]
    return _hidden_s(spans, begun_s, computed_s)


def _hidden_s(spans: Iterable[tuple[Times, Times]], begun_s: Times, computed_s: Times) -> Times:
    """Seconds between two instants in which a reduction was going on: in one of the spans; where these overlap (copies), once."""
    hidden_s, counted_s = np.zeros_like(begun_s), begun_s
    for from_s, finish_s in spans:
        until_s = np.minimum(finish_s, computed_s)
        hidden_s += np.maximum(until_s - np.maximum(from_s, counted_s), 0.0)
        counted_s = np.maximum(counted_s, until_s)
    return hidden_s


def _forward_as_updates_come(
    begun_s: Times, forward_s: Times, apply_s: Times, pending: Sequence[Reduction]
) -> tuple[Times, Times, Times, Times, list[Piece]]:
    """The forward pass when each part waits for the update of the variables that it needs.

    Returns
    -------
    tuple
        End, waiting time, part of it for the slowest rank, and time with communication, each of shape (ranks,), and the pieces in between.
    """
    now_s, waited_s, late_s, exposed_s = begun_s, np.zeros_like(begun_s), np.zeros_like(begun_s), np.zeros_like(begun_s)
    pieces = []
    spans = [(reduction.begun_s, reduction.finish_s) for reduction in pending]
    total = math.fsum(reduction.size_bytes for reduction in pending)
    left = 1.0  # share of the backward pass after which what is still to come was ready
    for reduction in sorted(pending, key=lambda reduction: -reduction.ready):
        come_s = np.maximum(now_s, reduction.finish_s)
        waited_s = waited_s + (come_s - now_s)
        late_s = late_s + np.maximum(np.minimum(come_s, reduction.ready_s.max()) - now_s, 0.0)
        exposed_s = exposed_s + _hidden_s(spans, now_s, come_s)
        following = max((other.ready for other in pending if other.ready < reduction.ready), default=0.0)
        now_s = come_s + reduction.size_bytes / total * apply_s + (left - following) * forward_s
        pieces.append(Piece("forward", come_s, now_s, reduction))
        left = following
    return now_s, waited_s, late_s, exposed_s, pieces
