"""One run of a whole job: its epochs, interrupted by faults, without simulating a step.

Between two events (the end of an epoch, a fault, a worker that is back) steps go on at a constant pace, with a checkpoint after
every so often, so that where the training is at any moment follows from a formula. A fault that stops the training takes it back
to the last checkpoint that had been written; what was done since is lost. Faults may come at any time: while a checkpoint is
written, and while the training starts again. tests/oracle/test_whole_job.py makes the same jobs step by step.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from simulator.base.errors import SimulationError
from simulator.job.costs import Course
from simulator.job.faults import Arrival, Effect
from simulator.spec.figures import JobParts
from simulator.spec.job import Faults

_MOST_FAULTS = 100_000
_ROUNDING = 1e-9
_KEPT = ("tracing", "first_epoch", "filling", "iterators", "steps", "evaluation", "checkpoints", "fewer_workers")
"""Parts of which a fault takes back what came after the last checkpoint."""
_TRACING, _FIRST, _FILLING, _ITERATORS, _STEPS, _EVALUATION, _CHECKPOINTS, _FEWER = range(len(_KEPT))


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended.

    Attributes
    ----------
    time_s
        From its start.
    parts
        Where the time went; together it.
    faults
        That came until then.
    given_up
        Whether it had to start again too often.
    away
        Of nodes that were taken away: which, since when, and until when, of that run.
    """

    time_s: float
    parts: JobParts
    faults: int
    given_up: bool
    away: tuple[tuple[int, float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Crew:
    """Who trains, and what becomes of faults.

    Attributes
    ----------
    faults
        Times that follow a fault.
    workers
        Worker processes.
    needed
        Of them, with which the training goes on at least.
    effect_of
        What a fault does.
    step_s_with
        Seconds of a step of the job with a number of workers.
    """

    faults: Faults
    workers: int
    needed: int
    effect_of: Callable[[Arrival], Effect]
    step_s_with: Callable[[int], float]


_UNDISTURBED = Crew(Faults(), 1, 1, lambda _: Effect(stops=False, waits=False, workers=()), lambda _: math.nan)


@dataclass(slots=True)
class _Place:
    """A point of the training from which it can go on: steps done of an epoch, and the seconds that led there."""

    epoch: int = 0
    step: float = 0.0
    spent_s: list[float] = field(default_factory=lambda: [0.0] * len(_KEPT))

    def copy(self) -> _Place:
        return _Place(self.epoch, self.step, list(self.spent_s))


class _RolledBackError(Exception):
    """The training goes on from an earlier place."""


class _GivenUpError(Exception):
    """It does not go on."""


class Renewal:
    """One run.

    Parameters
    ----------
    course
        The job without faults.
    crew
        Who trains, and what becomes of faults; none: nothing fails.
    arrivals
        Faults in the order in which they come.
    """

    def __init__(self, course: Course, crew: Crew | None = None, arrivals: Iterable[Arrival] = ()) -> None:
        self._course = course
        self._crew = _UNDISTURBED if crew is None else crew
        self._arrivals = iter(arrivals)
        self._next = next(self._arrivals, None)
        self._taken: list[Arrival] = []  # announced preemptions, as of when they happen
        self._away: dict[int, float] = {}  # workers that are missing, and when each is back
        self._back: list[tuple[float, int]] = []
        self._before = list(itertools.accumulate(course.epochs, initial=0.0))  # steps before each epoch
        self._now = 0.0
        self._place = _Place()
        self._safe = _Place()  # of the last checkpoint that has been written
        self._written: tuple[float, _Place] | None = None  # one that is being written, and when that is done
        self._startup_s = self._down_s = self._lost_s = 0.0
        self._gone: list[tuple[int, float, float]] = []  # nodes that were taken away: which, since when, and until when
        self._count = self._restarts = 0
        self._rolled_back = self._down = False
        self._traced = self._evaluated = self._filled = False  # by the processes that run now
        self._iterating_since_s: float | None = None  # when they began the iterators that they have

    def run(self) -> Ended:
        """Until its last step, or until it is given up.

        Raises
        ------
        SimulationError
            Faults come so often that it does not end.
        """
        with contextlib.suppress(_GivenUpError):
            self.begin()
            while self._place.epoch < len(self._course.epochs):
                self.advance()
        given_up = self._place.epoch < len(self._course.epochs)
        kept = dict(zip(_KEPT, self._place.spent_s, strict=True))
        parts = JobParts(startup=self._startup_s, lost_work=self._lost_s, down=self._down_s, **kept)
        return Ended(self._now, parts, self._count, given_up, tuple(self._absences()))

    def _absences(self) -> Iterator[tuple[int, float, float]]:
        """When nodes were away until the run ended; a node that is taken before its replacement is there is away once."""
        back_s: dict[int, float] = {}
        for node, since_s, until_s in self._gone:
            begin_s, end_s = max(since_s, back_s.get(node, 0.0)), min(until_s, self._now)
            if end_s > begin_s:
                back_s[node] = end_s
                yield node, begin_s, end_s

    @property
    def checkpoints_s(self) -> float:
        """For which it has waited for checkpoints so far, those left out that were lost."""
        return self._place.spent_s[_CHECKPOINTS]

    def advance(self) -> None:
        """To the end of the epoch, or until something takes it back."""
        with contextlib.suppress(_RolledBackError):
            self._epoch()

    # -- what is to be done ----------------------------------------------------------

    def begin(self) -> None:
        """Until the first step."""
        end_s = self._course.startup_s
        while (event_s := self._event_s()) < end_s:
            self._now = event_s
            until_s = self._happen()
            if until_s > event_s:
                self._startup_s = event_s
                self._down_until(until_s)
                return
        self._startup_s = self._now = end_s

    def _epoch(self) -> None:
        """From where the training is to the end of the epoch."""
        course, epoch = self._course, self._place.epoch
        if self._place.step < course.epochs[epoch]:
            if course.iterators is not None and course.renews and self._iterating_since_s is not None:  # end those of the epoch before
                self._spend(_ITERATORS, course.iterators.wait_s(self._now - self._iterating_since_s))
            filling_s = course.filling_s if self._filled else course.first_filling_s
            self._spend(_FILLING, filling_s)
            if not self._traced:
                self._spend(_TRACING, course.tracing_s)
                self._traced = True
            self._iterating_since_s = self._now - filling_s  # they are first asked for a batch when the step has been traced
            self._make_steps()
        if course.evaluates(epoch):
            if not self._evaluated:
                self._spend(_TRACING, course.evaluation_tracing_s)
                self._evaluated = True
            ending_s = course.iterators.wait_s(course.evaluation_s) if course.iterators is not None else 0.0
            self._spend(_EVALUATION, course.evaluation_s + ending_s)
        if course.writes_after(epoch):
            self._spend(_CHECKPOINTS, self._unwritten_s(self._now) + course.writing.stop_s)
        self._place.epoch, self._place.step = epoch + 1, 0.0
        self._filled = True
        if course.writes_after(epoch):
            self._write()

    def _spend(self, part: int, seconds: float) -> None:
        """Do something that takes a fixed time."""
        while (event_s := self._event_s()) < self._now + seconds:
            until_s = max(event_s - self._now, 0.0)
            self._place.spent_s[part] += until_s
            seconds -= until_s
            self._now += until_s
            self._interrupted()
        self._place.spent_s[part] += seconds
        self._now += seconds

    def _make_steps(self) -> None:
        """The steps that are left of the epoch, and the checkpoints between them."""
        course = self._course
        while True:
            place = self._place
            paced_s = course.step_s if self._filled else course.first_step_s
            step_s = paced_s * self._slower()
            left = course.epochs[place.epoch] - place.step
            writes = self._writes(left)
            end_s = left * step_s
            if writes:
                first_s = self._to_next_write() * step_s
                waits_s = self._unwritten_s(self._now + first_s) + (writes - 1) * self._stall_s(step_s)
                end_s += writes * course.writing.stop_s + waits_s
            event_s = self._event_s()
            whole = self._now + end_s <= event_s
            left_s = self._pass(end_s if whole else max(event_s - self._now, 0.0), step_s, paced_s, writes, whole=whole)
            if whole:
                self._place.step = course.epochs[place.epoch]
                return
            self._interrupted()
            if left_s:  # what happened has not stopped the checkpoint that is being written
                self._spend(_CHECKPOINTS, left_s)
                self._write()

    # -- where it is -----------------------------------------------------------------

    def _writes(self, steps: float) -> int:
        """Checkpoints in the next steps."""
        each, done = self._course.write_steps, self._steps_to(self._place)
        return math.floor((done + steps) / each + _ROUNDING) - math.floor(done / each + _ROUNDING) if each else 0

    def _to_next_write(self) -> float:
        """Steps until the next checkpoint begins."""
        each, done = self._course.write_steps, self._steps_to(self._place)
        return (math.floor(done / each + _ROUNDING) + 1) * each - done

    def _unwritten_s(self, at_s: float) -> float:
        """For how long a checkpoint that is due then waits for the one before it, if one is being written."""
        return max(self._written[0] - at_s, 0.0) if self._written is not None else 0.0

    def _stall_s(self, step_s: float) -> float:
        """For how long one that comes a whole interval of steps after another waits for that."""
        return max(self._course.writing.lasts_s - self._course.write_steps * step_s, 0.0)

    def _pass(self, seconds: float, step_s: float, paced_s: float, writes: int, *, whole: bool) -> float:
        """Some seconds of steps go by, in which at most a number of checkpoints begin; ``whole``: all end too.

        Returns the seconds for which one that has begun still stops the training.
        """
        course, place, began_s = self._course, self._place, self._now
        self._now += seconds
        steps = self._to_next_write() if writes else math.inf
        first_s = steps * step_s
        if not writes or (not whole and seconds < first_s):
            self._place = self._ahead(place, seconds / step_s, 0.0, step_s, paced_s)
            return 0.0
        each, stop_s, lasts_s = course.write_steps, course.writing.stop_s, course.writing.lasts_s
        # the first of them may wait for one that is being written, each other one waits for the one before
        waits_s, stall_s = self._unwritten_s(began_s + first_s), self._stall_s(step_s)
        period_s, later_s = each * step_s + stop_s + stall_s, waits_s - stall_s
        begun = writes if whole else min(max(math.floor((seconds - first_s - later_s) / period_s) + 1, 1), writes)
        since_s = seconds - first_s - (begun - 1) * period_s - (later_s if begun > 1 else 0.0)  # the last one began
        held_s = stop_s + (stall_s if begun > 1 else waits_s)
        stopped = begun if whole or since_s >= held_s else begun - 1

        def spent_s(count: int) -> float:
            """For the first of them."""
            return count * stop_s + (waits_s + (count - 1) * stall_s if count else 0.0)

        if stopped:
            at_s = began_s + first_s + (stopped - 1) * period_s + stop_s + waits_s
            last = self._ahead(place, steps + (stopped - 1) * each, spent_s(stopped), step_s, paced_s)
            if at_s + lasts_s > self._now and stopped > 1:  # the one before it had been written, as this one has waited for that
                self._safe, self._written = self._ahead(place, steps + (stopped - 2) * each, spent_s(stopped - 1), step_s, paced_s), None
            self._begin_writing(last, at_s)
        written_s = spent_s(begun - 1) + (held_s if whole else min(since_s, held_s))
        made = steps + (begun - 1) * each + max(since_s - held_s, 0.0) / step_s
        self._place = self._ahead(place, made, written_s, step_s, paced_s)
        return 0.0 if whole else max(held_s - since_s, 0.0)

    def _ahead(self, place: _Place, steps: float, written_s: float, step_s: float, paced_s: float) -> _Place:
        """The place some steps on."""
        ahead = place.copy()
        ahead.step += steps
        ahead.spent_s[_STEPS] += steps * self._course.step_s
        ahead.spent_s[_FIRST] += steps * (paced_s - self._course.step_s)
        ahead.spent_s[_FEWER] += steps * (step_s - paced_s)
        ahead.spent_s[_CHECKPOINTS] += written_s
        return ahead

    def _write(self) -> None:
        """A checkpoint of where the training is, for which it has waited."""
        self._begin_writing(self._place.copy(), self._now)

    def _begin_writing(self, place: _Place, at_s: float) -> None:
        """A checkpoint of a place is written from some time on; the one before it had been."""
        until_s = at_s + self._course.writing.lasts_s
        if until_s <= self._now:
            self._safe, self._written = place, None
            return
        if self._written is not None:
            self._safe = self._written[1]
        self._written = until_s, place

    # -- what happens to it ----------------------------------------------------------

    def _event_s(self) -> float:
        """When the next thing happens to it."""
        return min(
            self._next.at_s if self._next is not None else math.inf,
            self._back[0][0] if self._back else math.inf,
            self._taken[0].at_s if self._taken else math.inf,
        )

    def _interrupted(self) -> None:
        """Something happens now, while it trains."""
        self._rolled_back = False
        until_s = self._happen()
        if until_s > self._now:
            self._down_until(until_s)
        if self._rolled_back:
            raise _RolledBackError

    def _down_until(self, end_s: float) -> None:
        """Nothing is trained until then, or later if something happens meanwhile."""
        self._down = True
        while (event_s := self._event_s()) <= end_s:  # who is back then, is there when it goes on
            until_s = max(event_s - self._now, 0.0)
            self._down_s += until_s
            self._now += until_s
            end_s = max(end_s, self._happen())
        self._down_s += end_s - self._now
        self._now = end_s
        self._down = False

    def _happen(self) -> float:
        """Let the next event happen; return until when nothing is trained because of it."""
        now, faults, course = self._now, self._crew.faults, self._course
        if self._back and self._back[0][0] <= now:
            back_s, worker = heapq.heappop(self._back)
            if self._away.get(worker) != back_s:
                return now  # all have begun again since
            del self._away[worker]
            # elastic ones are joined by it: traced anew, with the parameters of the others
            return now + (course.tracing_s + self._read_s if faults.elastic and not self._keeps_state else 0.0)
        if self._taken and self._taken[0].at_s <= now:
            return self._fault(heapq.heappop(self._taken))
        fault, self._next = self._next, next(self._arrivals, None)
        assert fault is not None
        if fault.what == "preemption" and faults.preemption is not None and faults.preemption.notice_s:
            self._announced(fault, faults.preemption.notice_s)
            return now
        return self._fault(fault)

    def _announced(self, fault: Arrival, notice_s: float) -> None:
        """A node will be taken: what has been trained is written, where that can be done in time."""
        heapq.heappush(self._taken, fault._replace(at_s=fault.at_s + notice_s))
        writing = self._course.writing
        effect = self._crew.effect_of(fault)
        ahead = (self._place.epoch, self._place.step) != (self._safe.epoch, self._safe.step)
        trains = not self._down and ahead and (effect.stops or effect.rolls_back)
        stop_s = self._unwritten_s(self._now) + writing.stop_s
        if trains and stop_s + writing.lasts_s <= notice_s:
            self._place.spent_s[_CHECKPOINTS] += stop_s
            self._now += stop_s
            self._safe, self._written = self._place.copy(), None

    @property
    def _keeps_state(self) -> bool:
        """Return whether others than the workers keep what these train."""
        return not self._crew.effect_of(Arrival(0.0, "worker", 0)).rolls_back

    def _steps_to(self, place: _Place) -> float:
        return self._before[place.epoch] + place.step

    @property
    def _read_s(self) -> float:
        """Seconds to read the last checkpoint; before the first nothing is read."""
        return self._course.writing.restore_s if self._steps_to(self._safe) else 0.0

    def _fault(self, fault: Arrival) -> float:
        """Something fails now; until when nothing is trained because of it."""
        crew, course, now = self._crew, self._course, self._now
        effect = crew.effect_of(fault)
        if fault.what == "preemption":
            self._gone.append((fault.number, now, now + self._repair_s(fault)))
        startup_s = course.startup_s + course.tracing_s if crew.faults.startup_s is None else crew.faults.startup_s
        # a process that is not there cannot crash; one that starts up can, and a node that is taken was there
        starts_s = math.inf if fault.what == "preemption" else startup_s
        hit = [worker for worker in effect.workers if self._away.get(worker, now) - starts_s <= now]
        if effect.workers and not hit:
            return now
        self._count += 1
        if self._count > _MOST_FAULTS:
            raise SimulationError(
                f"the job does not end: after {_MOST_FAULTS:,} faults in {now:,.0f} s only {self._steps_to(self._safe):,.0f} of its "
                f"{course.steps:,.0f} steps are saved in a checkpoint: write checkpoints more often (job.checkpoint), or give longer mean "
                "times between faults (job.faults)"
            )
        back_s = crew.faults.detection_s + self._repair_s(fault) + startup_s
        if effect.stops:
            self._roll_back()
            ready_s = max([now + back_s, *self._away.values()])
            self._away.clear()
            self._back.clear()
            self._traced, self._evaluated, self._filled = True, False, False  # its steps are traced before it goes on
            self._iterating_since_s = None
            return float(ready_s + self._read_s)
        trained = any(worker not in self._away for worker in hit)
        for worker in hit:
            self._away[worker] = max(self._away.get(worker, 0.0), now + back_s)
            heapq.heappush(self._back, (self._away[worker], worker))
        until_s = now
        if effect.rolls_back and trained:
            self._roll_back()
            until_s = now + crew.faults.detection_s + course.tracing_s + self._read_s
        if effect.waits:
            until_s = max(until_s, now + back_s)
        present = crew.workers - len(self._away)
        if present < crew.needed:
            until_s = max(until_s, sorted(self._away.values())[crew.needed - present - 1])
        return until_s

    def _repair_s(self, fault: Arrival) -> float:
        """Until what failed is there again, before its start-up."""
        faults = self._crew.faults
        if fault.gone_s is not None:
            return fault.gone_s
        if fault.what == "preemption":
            assert faults.preemption is not None
            return float(faults.preemption.replacement_s)
        return float(faults.replacement_s if fault.what == "node" else faults.restart_s)

    def _roll_back(self) -> None:
        """Go back to the last checkpoint that has been written."""
        if self._written is not None and self._written[0] <= self._now:
            self._safe = self._written[1]
        self._written = None
        self._lost_s += math.fsum(self._place.spent_s) - math.fsum(self._safe.spent_s)
        self._place = self._safe.copy()
        self._rolled_back = True
        self._restarts += 1
        if self._crew.faults.retries is not None and self._restarts > self._crew.faults.retries:
            raise _GivenUpError

    def _slower(self) -> float:
        """By how much a step takes longer while workers are missing."""
        if not self._away:
            return 1.0
        return self._crew.step_s_with(self._crew.workers - len(self._away)) / self._course.step_s


def checkpoints_of(course: Course) -> list[float]:
    """Seconds for which training waits for checkpoints in each epoch, where nothing fails."""
    writing = course.writing
    if not 0.0 < writing.lasts_s < math.inf:  # none waits for another
        return [written * writing.stop_s for written in course.written_in()]
    renewal, waits_s = Renewal(replace(course, iterators=None)), []
    renewal.begin()
    for _ in course.epochs:
        before_s = renewal.checkpoints_s
        renewal.advance()
        waits_s.append(round(renewal.checkpoints_s - before_s, 9))  # sums of like epochs differ in their last bits
    return waits_s
