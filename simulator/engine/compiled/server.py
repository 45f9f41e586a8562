"""Parameter servers: the compiled counterpart of ``simulator.engine.simpy.server``."""

from __future__ import annotations

from simulator.engine.compiled import codes
from simulator.engine.compiled.calendar import call_later, pack, soon
from simulator.engine.compiled.cores import work
from simulator.engine.compiled.flows import send
from simulator.engine.compiled.layout import job_at, server_at
from simulator.engine.compiled.machine import Record, compiled
from simulator.engine.compiled.telling import save_context

__all__ = ["go_on_after", "submit"]


@compiled
def submit(s: Record, server: int, cost_s: float, rank: int, about: int) -> None:
    """Queue work on a tensor: for a rank's operation, or with rank -1 on the mean of a tensor."""
    job = s.jobs_free
    if job >= 0:
        s.jobs_free = job_at(s.jobs, job).after
    else:
        job = s.jobs_made
        s.jobs_made = job + 1
    s.jobs_n += 1
    j = job_at(s.jobs, job)
    j.cost_s = cost_s
    j.rank = rank
    j.about = about
    if s.observed:
        save_context(s, s.job_contexts, job)
    j.after = -1
    its = server_at(s.servers, server)
    if its.front >= 0:
        job_at(s.jobs, its.last).after = job
        its.last = job
        return
    its.front = its.last = job
    its.busy_since = s.now
    _begin(s, its, server, cost_s)


@compiled
def _begin(s: Record, its: Record, server: int, cost_s: float) -> None:
    """It begins with what is in front."""
    what = pack(codes.SERVED, server)
    its.began_s = s.now
    if cost_s <= 0.0:
        soon(s, what, 0)
    elif its.seat >= 0:
        send(s, its.seat, cost_s, what, 0, 0)
    elif its.task >= 0:
        work(s, its.task, cost_s, what, 0)
    else:
        call_later(s, cost_s, what, 0)


@compiled
def go_on_after(s: Record, server: int) -> None:
    """What was in front has been done, and what follows from it."""
    its = server_at(s.servers, server)
    job = its.front
    j = job_at(s.jobs, job)
    following = j.after
    j.after = s.jobs_free
    s.jobs_free = job
    s.jobs_n -= 1
    its.front = following
    if following >= 0:
        _begin(s, its, server, job_at(s.jobs, following).cost_s)
    else:
        its.busy_s += s.now - its.busy_since
