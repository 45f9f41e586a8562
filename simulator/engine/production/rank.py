"""Steps of ranks: ends of operations, computes and ends of steps; gates, messages and collectives are in ``interpreter``."""

from __future__ import annotations

from simulator.engine.production import codes
from simulator.engine.production.calendar import pack, soon, tell
from simulator.engine.production.codes import ENDED
from simulator.engine.production.compiling import compiled
from simulator.engine.production.device import cancel, compute_on, hidden_since, note_compute, note_message
from simulator.engine.production.layout import Record
from simulator.engine.production.record import record_step, record_update, waited_s
from simulator.engine.production.records import (
    count_at,
    input_at,
    last_ready_at,
    long_at,
    meeting_at,
    number_at,
    operation_at,
    pace_at,
    rank_at,
    real_at,
    routine_at,
)
from simulator.engine.production.rules import tick


@compiled
def pack_operation(step: int, number: int) -> int:
    """A step and the number of an operation in one integer."""
    return (step << 20) | number


@compiled
def step_of(about: int) -> int:
    """The step that was packed."""
    return about >> 20


@compiled
def operation_of(about: int) -> int:
    """The number of the operation."""
    return about & 0xFFFFF


# -- operations end ----------------------------------------------------------------------


@compiled
def end_operation(s: Record, rank: int, number: int, step: int) -> None:
    """An operation has ended: those that waited only for it begin."""
    r = rank_at(s.ranks, rank)
    routine = routine_at(s.routines, r.routine)
    first = routine.operations
    operation = operation_at(s.operations, first + number)
    if operation.lands and routine.overlaps:
        note_message(s, rank, -1)
    if step != r.step or not r.complete:
        # the step was given up: what is under way goes on to its end, nothing else begins
        for at in range(operation.then, operation.then + operation.then_n):
            following = number_at(s.then, at).n
            other = operation_at(s.operations, first + following)
            if other.missing == 1 and (other.kind == codes.SEND or other.kind == codes.SERVE):
                soon(s, pack(codes.BEGIN_OPERATION, rank), pack_operation(step, following))
        return
    shuffled = routine.shuffled_n if number == 0 else 0
    order = (rank * s.orders_n + step % s.orders_n) * s.order if shuffled else 0
    for place in range(operation.then_n):
        following = number_at(s.then, operation.then + place).n
        if shuffled and place >= routine.before and place < routine.before + shuffled:
            following = routine.shuffled + number_at(s.orders, order + place - routine.before).n
        missing = count_at(s.missing, rank * s.stride + following)
        left = missing.n - 1
        missing.n = left
        if left == 0:
            soon(s, pack(codes.BEGIN_OPERATION, rank), pack_operation(step, following))
    left = r.left - 1
    r.left = left
    if left == 0:
        _end_step(s, rank)


@compiled
def begin_step(s: Record, rank: int) -> None:
    """Forget the step before."""
    r = rank_at(s.ranks, rank)
    routine = routine_at(s.routines, r.routine)
    r.step += 1
    count = routine.operations_n
    missing = rank * s.stride
    for number in range(count):
        count_at(s.missing, missing + number).n = count_at(s.awaited, routine.operations + number).n
    r.left = count
    r.at = r.first = 0
    r.start_s = s.now
    r.began_s = s.now
    r.compute_s = r.pushed_s = 0.0
    if s.on_inputs:
        input_at(s.inputs, rank).input_s = 0.0
    r.accepted = 0
    r.complete = 1
    if not s.on_servers:
        meeting = meeting_at(s.meetings, rank)
        meeting.apply_s = meeting.begun_by_s = meeting.waiting_s = 0.0
        meeting.idle_since_s = s.now
        meeting.entered_n = 0


@compiled
def _stood_still(s: Record, meeting: Record, begun_s: float) -> None:
    """It has not computed since it last did or heard from others: waiting until what it has heard had begun, communication from then on."""
    meeting.waiting_s += min(max(begun_s - meeting.idle_since_s, 0.0), s.now - meeting.idle_since_s)


@compiled
def heard(s: Record, rank: int, begun_s: float) -> None:
    """It has what others have sent since ``begun_s``, or has met them since then."""
    meeting = meeting_at(s.meetings, rank)
    meeting.begun_by_s = max(meeting.begun_by_s, begun_s)
    r = rank_at(s.ranks, rank)
    if not r.computing and routine_at(s.routines, r.routine).amid:
        _stood_still(s, meeting, begun_s)
        meeting.idle_since_s = s.now


# -- compute -----------------------------------------------------------------------------


@compiled
def advance_rank(s: Record, rank: int) -> None:
    """Compute what may be computed by now, in one piece as far as that is asked for."""
    r = rank_at(s.ranks, rank)
    if r.computing or not r.complete:
        return
    routine = routine_at(s.routines, r.routine)
    pace = pace_at(s.paces, rank * s.paces_n)
    pending_s = 0.0
    at = r.at
    joins = 1
    while joins and at < routine.computes_n:
        number = number_at(s.computes, routine.computes + at).n
        if count_at(s.missing, rank * s.stride + number).n != 0:
            break
        operation = operation_at(s.operations, routine.operations + number)
        pending_s += operation.forward * pace.forward_s + operation.backward * pace.backward_s + operation.apply * pace.update_s
        at += 1
        joins = operation.joins
    r.at = at
    if not joins or pending_s != 0.0:
        _compute(s, rank, pending_s)


@compiled
def _compute(s: Record, rank: int, pending_s: float) -> None:
    r = rank_at(s.ranks, rank)
    r.computing = 1
    r.began_s = s.now
    r.work += 1
    work_s = pending_s
    if s.factors_n:
        work_s *= real_at(s.factors, r.step % s.factors_n * s.ranks_n + rank).x
    routine = routine_at(s.routines, r.routine)
    if routine.stands_still:
        meeting = meeting_at(s.meetings, rank)
        _stood_still(s, meeting, meeting.begun_by_s)
    if routine.overlaps:
        note_compute(s, rank, 1)
    compute_on(s, rank, work_s)


@compiled
def computed(s: Record, rank: int, work: int) -> None:
    """A rank's work has ended, unless it was given up."""
    r = rank_at(s.ranks, rank)
    if work != r.work:
        return
    routine = routine_at(s.routines, r.routine)
    logged = _stop_computing(s, r, rank)
    first = r.first
    last = r.at
    r.first = last
    now = s.now
    step = r.step
    if routine.stands_still:
        meeting_at(s.meetings, rank).idle_since_s = now
    if operation_at(s.operations, routine.operations + number_at(s.computes, routine.computes + last - 1).n).apply != 0.0:
        meeting_at(s.meetings, rank).apply_s = now - r.began_s
    else:
        r.compute_s += now - r.began_s
        if not s.on_servers:
            meeting_at(s.meetings, rank).computed_s = now
    r.began_s = now  # from now on: since when it does not compute
    for at in range(first, last):
        s.cause = logged
        end_operation(s, rank, number_at(s.computes, routine.computes + at).n, step)
    if last < routine.computes_n:
        soon(s, pack(codes.GO_ON, rank), step)


@compiled
def _stop_computing(s: Record, r: Record, rank: int) -> int:
    """The rank computes no longer; the number of what it did."""
    r.computing = 0
    routine = routine_at(s.routines, r.routine)
    if routine.overlaps:
        note_compute(s, rank, 0)
    if not s.observed:
        return -1
    # a compute that waits for no other operation follows the compute before it
    cause = -1
    number = 0
    for at in range(r.first, r.at):
        number = number_at(s.computes, routine.computes + at).n
        let = long_at(s.compute_causes, rank * s.each_operations + number)
        cause = max(cause, let.n)
        let.n = -1
    return tell(s, ENDED, rank, number, r.began_s, cause)


@compiled
def give_up(s: Record, rank: int, cause: int) -> None:
    """Its gradients would come too late: the rank ends its step where it is, because of ``cause``."""
    r = rank_at(s.ranks, rank)
    if r.computing:
        if r.manner < codes.SHARED:
            cancel(s, r)
        r.work += 1
        _stop_computing(s, r, rank)
        r.compute_s += s.now - r.began_s
        r.began_s = s.now
    if s.observed:
        routine = routine_at(s.routines, r.routine)
        for at in range(routine.computes_n):
            long_at(s.compute_causes, rank * s.each_operations + number_at(s.computes, routine.computes + at).n).n = -1
    s.cause = cause
    r.complete = 0
    r.left = 0
    _end_step(s, rank)


# -- ends of steps -----------------------------------------------------------------------


@compiled
def _end_step(s: Record, rank: int) -> None:
    r = rank_at(s.ranks, rank)
    input_s = input_at(s.inputs, rank).input_s if s.on_inputs else 0.0
    hidden_s = hidden_since(s, rank) if routine_at(s.routines, r.routine).overlaps else 0.0
    if s.on_servers:
        now = s.now
        waited = 0.0
        applied_s = 0.0
        if r.complete:
            waited = waited_s(s, r)
            applied_s = now - r.pushed_s - waited
        else:  # since its last work, for those whose update made it give up
            waited = max(min(s.last_push_s, now) - max(r.began_s, r.pushed_s), 0.0)
        accepted = r.accepted / routine_at(s.routines, r.routine).parts
        record_step(s, rank, r.start_s, input_s, r.compute_s, r.read_s - r.start_s + waited, applied_s, hidden_s, accepted)
    else:
        _end_together(s, rank, input_s, hidden_s)
    soon(s, pack(codes.BEGIN_OPERATION, rank), pack_operation(r.step + 1, 0))
    if s.bound >= 0 and tick(s, rank):
        for at in range(s.behind_n):
            soon(s, pack(codes.READ, number_at(s.behind, at).n), 0)
        s.behind_n = 0


@compiled
def _end_together(s: Record, rank: int, input_s: float, hidden_s: float) -> None:
    """The end of a step after which all ranks go on together."""
    r = rank_at(s.ranks, rank)
    meeting = meeting_at(s.meetings, rank)
    every = s.every
    step = r.step
    waiting_s = 0.0
    routine = routine_at(s.routines, r.routine)
    if routine.stands_still:
        _stood_still(s, meeting, meeting.begun_by_s)
        waiting_s = meeting.waiting_s
    if meeting.entered_n > 0:
        waiting_s = last_ready_at(s.last_ready, meeting.group * 4 + ((step // every) & 3)).ready_s - meeting.ready_s
        if every == 1 and not routine.amid:
            hidden_s = _hidden_s(s, rank, meeting.computed_s)
    if rank == 0 and (step + 1) % every == 0:
        read_s = r.start_s if every == 1 else s.applied_s
        s.applied_s = s.now
        record_update(s, 0, read_s, s.applied, s.applied)
        s.applied += 1
    compute_s = r.compute_s if routine.amid else meeting.computed_s - r.start_s - input_s
    record_step(s, rank, r.start_s, input_s, compute_s, waiting_s, meeting.apply_s, hidden_s, 1.0)


@compiled
def _hidden_s(s: Record, rank: int, computed_s: float) -> float:
    """Seconds in which the rank was in an all-reduce and still computed; one follows the other."""
    free_s = 0.0
    hidden_s = 0.0
    for bucket in range(s.buckets_n):
        ended_s = real_at(s.finished, bucket * s.ranks_n + rank).x
        entered_s = real_at(s.entered, rank * s.buckets_n + bucket).x
        hidden_s += max(min(ended_s, computed_s) - max(entered_s, free_s), 0.0)
        free_s = ended_s
    return hidden_s
