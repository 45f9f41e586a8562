"""Who may go on, and when: the job's length, stale-synchronous clocks, the coordinator, the client."""

from __future__ import annotations

from simulator.engine.production.calendar import call_later, soon
from simulator.engine.production.compiling import compiled
from simulator.engine.production.cores import work
from simulator.engine.production.layout import Record
from simulator.engine.production.records import number_at, one_by_one_at

DISPATCHER, CLIENT = 0, 1
"""Processes that do one thing at a time."""


@compiled
def take_step(s: Record, r: Record) -> bool:
    """Whether there is one more step for this rank; it is taken then."""
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
    """Whether the rank may begin its next step now; else it goes on with those that :func:`tick` lets go."""
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
