"""Servers with their queues, and how gradients become updates there: one by one, or averaged behind a barrier.

The rules are those of ``SynchronousUpdates`` in ``simulator.engine.textbook.servers``, which has their sources.
"""

from __future__ import annotations

from simulator.engine.production import codes
from simulator.engine.production.calendar import call_later, pack, restore_context, save_context, soon, tell
from simulator.engine.production.codes import APPLIED, ENDED
from simulator.engine.production.compiling import compiled
from simulator.engine.production.cores import work
from simulator.engine.production.flows import send
from simulator.engine.production.layout import Record
from simulator.engine.production.rank import end_operation, give_up, operation_of, pack_operation, step_of
from simulator.engine.production.record import record_update
from simulator.engine.production.records import job_at, number_at, operation_at, rank_at, read_at, real_at, routine_at, server_at, tensor_at


@compiled
def serve(s: Record, rank: int, number: int, operation: Record, step: int) -> None:
    """A gradient's last byte is at its server."""
    r = rank_at(s.ranks, rank)
    tensor = operation.tensor
    if s.synchronous and step != r.step:
        return  # of a step that was given up: too late, so it is dropped
    r.pushed_s = s.now
    if s.synchronous:
        t = tensor_at(s.tensors, tensor)
        if r.read_version >= t.step and t.come < s.required:
            t.come += 1
            s.last_push_s = s.now
    submit(s, operation.server, operation.cost_s, rank, pack_operation(step, number))


@compiled
def served(s: Record, server: int) -> None:
    """A server has done what is in front; what follows may queue more."""
    queue = server_at(s.servers, server)
    j = job_at(s.jobs, queue.front)
    rank = j.rank
    about = j.about
    late = _is_late(s, rank, about)
    if s.observed:
        restore_context(s, s.job_contexts, queue.front)
        if late:
            s.cause = max(s.cause, queue.logged)
        else:
            s.cause = tell(s, ENDED if rank >= 0 else APPLIED, rank, operation_of(about) if rank >= 0 else about, queue.began_s, s.cause)
            queue.logged = s.cause
    if rank < 0:
        _applied_mean(s)
    elif late:
        end_operation(s, rank, operation_of(about), step_of(about))
    elif s.synchronous:
        _accumulate(s, rank, operation_of(about), step_of(about))
    else:
        _applied(s, rank, operation_of(about), server, step_of(about))
    go_on_after(s, server)


# -- asynchronously ----------------------------------------------------------------------


@compiled
def _applied(s: Record, rank: int, number: int, server: int, step: int) -> None:
    """One gradient is in its variable."""
    rank_at(s.ranks, rank).accepted += 1
    if s.servers_n > 1:
        read = read_at(s.versions, rank * s.servers_n + server)
        left = read.left - 1
        read.left = left
        if left == 0:
            queue = server_at(s.servers, server)
            read.applied = queue.version
            queue.version += 1
    end_operation(s, rank, number, step)


@compiled
def _finish_own(s: Record, rank: int, number: int) -> None:
    """The last gradient of a step completes an update."""
    r = rank_at(s.ranks, rank)
    at = record_update(s, rank, r.read_s, r.read_version, s.version)
    if at >= 0:
        if s.servers_n == 1:
            real_at(s.updates, at).x = float(r.read_version)
            real_at(s.updates, at + s.updates_room).x = float(s.version)
        else:
            for server in range(s.servers_n):
                versions = read_at(s.versions, rank * s.servers_n + server)
                real_at(s.updates, at + server * s.updates_room).x = float(versions.read)
                real_at(s.updates, at + (s.servers_n + server) * s.updates_room).x = float(versions.applied)
    s.version += 1
    end_operation(s, rank, number, r.step)


# -- averaged ----------------------------------------------------------------------------


@compiled
def _is_late(s: Record, rank: int, about: int) -> bool:
    """Return whether a gradient is of a version that has its update already: when its turn comes it is dropped, at no cost."""
    if not s.synchronous or rank < 0:
        return False
    r = rank_at(s.ranks, rank)
    tensor = operation_at(s.operations, routine_at(s.routines, r.routine).operations + operation_of(about)).tensor
    late: bool = step_of(about) != r.step or r.read_version < tensor_at(s.tensors, tensor).step
    return late


@compiled
def _accumulate(s: Record, rank: int, number: int, step: int) -> None:
    """A gradient is in its accumulator; the chief takes the mean of enough, and applies it."""
    r = rank_at(s.ranks, rank)
    tensor = operation_at(s.operations, routine_at(s.routines, r.routine).operations + number).tensor
    t = tensor_at(s.tensors, tensor)
    t.accumulated += 1
    r.accepted += 1
    if t.accumulated == s.required:
        t.accumulated = 0
        t.come = 0
        t.step += 1
        submit(s, t.server, t.cost_s, -1, tensor)
    end_operation(s, rank, number, step)


@compiled
def _applied_mean(s: Record) -> None:
    s.unapplied -= 1
    if s.unapplied > 0:
        return
    record_update(s, -1, s.released_s, s.version, s.version)
    s.version += 1
    s.released_s = s.now
    s.unapplied = s.parts
    logged = s.cause
    if s.cancels:
        waiting = s.waiting_n
        for _ in range(waiting):
            _end_update(s, _first_waiting(s))
        for rank in range(s.ranks_n):
            if rank_at(s.ranks, rank).left > 0 and rank_at(s.ranks, rank).read_version < s.version:
                give_up(s, rank, logged)
    else:
        while s.waiting_n > 0 and s.tokens_taken < s.version * s.ranks_n:
            _give_token(s, _first_waiting(s))
    s.cause = logged


@compiled
def _first_waiting(s: Record) -> int:
    rank: int = number_at(s.waiting_ranks, s.waiting_first).n
    following = s.waiting_first + 1
    s.waiting_first = following if following < s.ranks_n else 0
    s.waiting_n -= 1
    return rank


@compiled
def _wait(s: Record, rank: int) -> None:
    at = s.waiting_first + s.waiting_n
    number_at(s.waiting_ranks, at if at < s.ranks_n else at - s.ranks_n).n = rank
    s.waiting_n += 1


@compiled
def _end_update(s: Record, rank: int) -> None:
    r = rank_at(s.ranks, rank)
    end_operation(s, rank, routine_at(s.routines, r.routine).update, r.step)


@compiled
def _give_token(s: Record, rank: int) -> None:
    """A new version brings a token for each rank, which carries it; they are taken in order."""
    number_at(s.tokens, rank).n = 1 + s.tokens_taken // s.ranks_n
    s.tokens_taken += 1
    _end_update(s, rank)


@compiled
def finish(s: Record, rank: int, number: int) -> None:
    """All gradients of the rank's step have been handed over: it goes on as soon as it may."""
    if not s.synchronous:
        _finish_own(s, rank, number)
        return
    if not s.cancels and s.tokens_taken < s.version * s.ranks_n:
        _give_token(s, rank)
    else:
        _wait(s, rank)


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
    queue = server_at(s.servers, server)
    if queue.front >= 0:
        job_at(s.jobs, queue.last).after = job
        queue.last = job
        return
    queue.front = queue.last = job
    queue.busy_since = s.now
    _begin(s, queue, server, cost_s)


@compiled
def _begin(s: Record, queue: Record, server: int, cost_s: float) -> None:
    """It begins with what is in front."""
    what = pack(codes.SERVED, server)
    queue.began_s = s.now
    j = job_at(s.jobs, queue.front)
    if cost_s <= 0.0 or _is_late(s, j.rank, j.about):
        soon(s, what, 0)
    elif queue.seat >= 0:
        send(s, queue.seat, cost_s, what, 0, 0)
    elif queue.task >= 0:
        work(s, queue.task, cost_s, what, 0)
    else:
        call_later(s, cost_s, what, 0)


@compiled
def go_on_after(s: Record, server: int) -> None:
    """Finish the first entry of the queue, with its consequences."""
    queue = server_at(s.servers, server)
    job = queue.front
    j = job_at(s.jobs, job)
    following = j.after
    j.after = s.jobs_free
    s.jobs_free = job
    s.jobs_n -= 1
    queue.front = following
    if following >= 0:
        _begin(s, queue, server, job_at(s.jobs, following).cost_s)
    else:
        queue.busy_s += s.now - queue.busy_since
