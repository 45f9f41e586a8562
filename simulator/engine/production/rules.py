"""Who may go on, and when: the job's length, stale-synchronous clocks, the coordinator, the client, and pipelines of input.

Pipelines prepare one batch after the other; what ranks do with batches is in ``interpreter``. ``at_once`` computes the same for all
ranks at once, of pipelines that share nothing.
"""

from __future__ import annotations

from simulator.engine.production import codes
from simulator.engine.production.calendar import call_later, pack, soon
from simulator.engine.production.compiling import compiled
from simulator.engine.production.cores import work
from simulator.engine.production.flows import send
from simulator.engine.production.layout import Record
from simulator.engine.production.records import number_at, one_by_one_at, part_at, pipeline_at, real_at

DISPATCHER, CLIENT = 0, 1
"""Processes that do one thing at a time."""


@compiled
def take_step(s: Record, r: Record) -> bool:
    """Return whether there is one more step for this rank; it is taken then."""
    if s.each >= 0:
        taken: bool = r.step + 1 < s.each
        return taken
    if s.shared < 0:
        return True
    if s.shared == 0:
        return False
    s.shared -= 1
    return True


@compiled
def may_begin(s: Record, rank: int) -> bool:
    """Return whether the rank may begin its next step now; else it goes on with those that :func:`tick` lets go."""
    if number_at(s.clocks, rank).n - s.slowest <= s.bound:
        return True
    number_at(s.behind, s.behind_n).n = rank
    s.behind_n += 1
    return False


@compiled
def tick(s: Record, rank: int) -> bool:
    """The rank has ended a step; whether the slowest has moved on, so that all who wait may go on."""
    c = number_at(s.clocks, rank)
    clock = c.n
    c.n = clock + 1
    if clock != s.slowest:
        return False
    s.at_slowest -= 1
    if s.at_slowest > 0:
        return False
    s.slowest += 1
    count = 0
    for other in range(s.ranks_n):
        if number_at(s.clocks, other).n == s.slowest:
            count += 1
    s.at_slowest = count
    return True


@compiled
def ask(s: Record, process: int, worked: int, done: int, about: int) -> None:
    """Have a process do its work for somebody: ``done`` follows when whoever asks knows, on cores after ``worked``."""
    p = one_by_one_at(s.processes, process)
    if p.task >= 0 and p.work_s > 0.0:
        work(s, p.task, p.work_s, worked, about)
        return
    now = s.now
    p.free_s = max(p.free_s, now) + p.work_s
    after(s, p.free_s + p.latency_s - now, done, about)


@compiled
def after(s: Record, wait_s: float, what: int, about: int) -> None:
    """Let something happen after some time, or at once."""
    if wait_s > 0.0:
        call_later(s, wait_s, what, about)
    else:
        soon(s, what, about)


@compiled
def _factor(s: Record, pipeline: int, batch: int) -> float:
    """Return what the time of a batch is multiplied by."""
    if s.batch_factors_n == 0:
        return 1.0
    factor: float = real_at(s.batch_factors, batch % s.batch_factors_n * s.pipelines_n + pipeline).x
    return factor


@compiled
def wait_s(s: Record, pipeline: int, batch: int) -> float:
    """Seconds for which a rank waits that asks for a batch of a pipeline that shares nothing."""
    p = pipeline_at(s.pipelines, pipeline)
    now = s.now
    if batch < p.asked - 1:
        return 0.0
    if batch < p.asked:
        return max(p.ready_s - now, 0.0)
    p.asked += 1
    p.begun = p.asked
    begun_s = p.ready_s
    prefetch = s.prefetch
    if prefetch == 0:
        begun_s = now
    elif batch >= prefetch:
        begun_s = max(begun_s, real_at(s.taken, pipeline * s.taken_n + batch % prefetch).x)
    ready_s = begun_s + p.batch_s * _factor(s, pipeline, batch)
    waiting_s = max(ready_s - now, 0.0)
    p.ready_s = now + waiting_s if waiting_s != 0.0 else ready_s
    if prefetch != 0:
        real_at(s.taken, pipeline * s.taken_n + batch % prefetch).x = now + waiting_s
    return waiting_s


@compiled
def ask_pipeline(s: Record, pipeline: int, batches: int) -> bool:
    """A rank asks for the last of a number of batches; whether that is there."""
    p = pipeline_at(s.pipelines, pipeline)
    p.asked = max(p.asked, batches)
    there: bool = p.made >= batches
    return there


@compiled
def go_on(s: Record, pipeline: int) -> None:
    """Begin a batch if none is in progress, and fewer than the limit are ready or one is needed."""
    p = pipeline_at(s.pipelines, pipeline)
    made = p.made
    if p.left > 0 or made >= max(min(p.asked, made) + s.prefetch, p.asked):
        return
    factor = _factor(s, pipeline, made)
    p.begun = made + 1
    p.left = p.parts_n
    what = pack(codes.PREFETCHED, pipeline)
    for number in range(p.parts, p.parts + p.parts_n):
        part = part_at(s.parts_of_batches, number)
        amount = part.amount * factor
        if amount == 0.0 or (part.path < 0 and part.task < 0):
            after(s, amount, what, 0)
        elif part.task >= 0:
            work(s, part.task, amount, what, 0)
        else:
            send(s, part.path, amount, what, 0, 0)


@compiled
def part_ended(s: Record, pipeline: int) -> bool:
    """A part of a batch has ended; whether the batch is there with it."""
    p = pipeline_at(s.pipelines, pipeline)
    p.left -= 1
    if p.left > 0:
        return False
    p.made += 1
    return True
