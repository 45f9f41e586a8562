"""Runs a program: what begins, and what follows from what has happened; :func:`act` is the function by which Python enters (``machine``).

Here are gates, batches, messages and collectives; operations that end, computes and ends of steps are in ``rank``. The reasons to
return to Python (``codes``) are answered in ``compiled``.
"""

from __future__ import annotations

from simulator.engine.production import codes
from simulator.engine.production.calendar import (
    at_end_of_instant,
    call_later,
    code_of,
    make_entry,
    next_serial,
    note,
    number_of,
    pack,
    passed,
    soon,
    tell,
)
from simulator.engine.production.codes import ALL_REDUCE, ENDED, STARTED
from simulator.engine.production.collectives import (
    advance_member,
    end_collective,
    end_gathering,
    enter,
    enter_gathering,
    move,
    moved,
    receive_chunk,
    sent_last,
)
from simulator.engine.production.compiling import compiled
from simulator.engine.production.cores import work
from simulator.engine.production.device import note_message, rank_of, wake
from simulator.engine.production.flows import send, send_tensors
from simulator.engine.production.layout import Record
from simulator.engine.production.loop import advance, next_change
from simulator.engine.production.ports import leave_out
from simulator.engine.production.rank import advance_rank, begin_step, computed, end_operation, heard, operation_of, pack_operation, step_of
from simulator.engine.production.record import read_variables
from simulator.engine.production.records import (
    channel_at,
    coming_at,
    crossings_at,
    input_at,
    last_ready_at,
    long_at,
    meeting_at,
    number_at,
    one_by_one_at,
    operation_at,
    pipeline_at,
    rank_at,
    real_at,
    routine_at,
    starting_at,
    state_at,
)
from simulator.engine.production.rules import CLIENT, DISPATCHER, after, ask, ask_pipeline, go_on, may_begin, part_ended, take_step, wait_s
from simulator.engine.production.updates import finish, serve, served


def act(address: int, verb: int, number: int, amount: float, what: int, about: int, left: int) -> int:
    """One thing that Python asks for, so that one function is compiled for all.

    0: go on with the program for ``number`` things, or until there is a reason to stop;
    1: :func:`send` over path ``number``; 2: :func:`work` of task ``number``; 3: :func:`call_later`;
    4: :func:`soon`; 5: :func:`at_end_of_instant`; 6: let all ranks begin; 7: ranks go on
    after a collective; 8: as 0, but leave everything that is not the network's to Python;
    9: :func:`leave_out`, where ``address`` is that of a record of ``layout.CROSSINGS``.
    """
    if verb == 9:
        leave_out(crossings_at(address, 0))
        return 0
    s = state_at(address, 0)
    if verb == 0:
        s.left = number
        return _run(s)
    if verb == 1:
        send(s, number, amount, what, about, left)
    elif verb == 2:
        work(s, number, amount, what, about)
    elif verb == 3:
        call_later(s, amount, what, about)
    elif verb == 4:
        soon(s, what, about)
    elif verb == 5:
        at_end_of_instant(s, what, about)
    elif verb == 6:
        _start(s)
    elif verb == 7:
        _go_on_together(s)
    else:
        s.bare = 1
        s.left = number
        return _run(s)
    return 0


@compiled
def _run(s: Record) -> int:
    while True:
        if s.pending and s.wants == 0:
            s.pending = 0
        else:
            why = advance(s)
            if why != codes.HANDLE or s.bare:
                return why
        _handle(s)


@compiled
def _start(s: Record) -> None:
    """Every rank begins its first step when it is due."""
    if s.changes_n > 0:
        next_change(s)
    feeds = s.pipelines_n != 0 and not s.feeds_alone and s.prefetch != 0
    for rank in range(s.ranks_n):
        start_s = rank_at(s.ranks, rank).start_s
        if feeds:
            pipeline = input_at(s.inputs, rank).pipeline
            p = pipeline_at(s.pipelines, pipeline)
            if number_at(s.fed, p.fed).n == rank:
                _at(s, p.first_s, pack(codes.PREFETCH, pipeline), 0)
        if feeds or start_s == 0.0:
            _at(s, start_s, pack(codes.START, rank), 0)
    s.started = s.starts_n if feeds else 0
    s.starts_serial = s.serial + 1
    if s.started < s.starts_n:
        last_s = rank_at(s.ranks, starting_at(s.starts, s.starts_n - 1).rank).start_s
        if last_s < float("inf"):
            s.serial += s.starts_n - 1
            next_serial(s, last_s)
            _start_next(s)
        else:
            call_later(s, last_s, 0, 0)  # which refuses it


@compiled
def _start_next(s: Record) -> None:
    """Put the next rank that does not begin at once on the calendar: all others would fill it."""
    starting = starting_at(s.starts, s.started)
    s.started += 1
    make_entry(s, rank_at(s.ranks, starting.rank).start_s, s.starts_serial + starting.number, pack(codes.START, starting.rank), 0)


@compiled
def _at(s: Record, wait_s: float, what: int, about: int) -> None:
    if wait_s != 0.0:
        call_later(s, wait_s, what, about)
    else:
        soon(s, what, about)


@compiled
def _handle(s: Record) -> None:
    """Run current work."""
    what = s.what
    about = s.about
    code = code_of(what)
    rank = number_of(what)
    if code == codes.ADVANCE:
        advance_member(s, rank)
    elif code == codes.CHUNK:
        receive_chunk(s, rank, about)
    elif code == codes.SENT_LAST:
        sent_last(s, rank)
    elif code == codes.BEGIN_OPERATION:
        _begin(s, rank, operation_of(about), step_of(about))
    elif code == codes.ARRIVED:
        if s.observed:
            s.cause = tell(s, ENDED, rank, operation_of(about), s.since_s, s.cause)
        _arrived(s, rank, operation_of(about), step_of(about))
    elif code == codes.GATHERED:
        end_gathering(s, rank)
    elif code == codes.MOVING:
        move(s, rank)
    elif code == codes.MOVED:
        moved(s, rank)
    elif code == codes.COMPUTED:
        computed(s, rank, about)
    elif code == codes.GO_ON:
        if about == rank_at(s.ranks, rank).step:
            advance_rank(s, rank)
    elif code == codes.SERVED:
        served(s, rank)
    elif code == codes.WAKE:
        done = wake(s, rank, about)
        if done >= 0:
            computed(s, rank_of(s, rank), done)
    elif code == codes.READ:
        _read(s, rank)
    elif code == codes.HANDED_OUT:
        s.cause = passed(s, rank, 0, rank_at(s.ranks, rank).start_s, s.cause)
        _read(s, rank)
    elif code == codes.START:
        if s.now > 0.0 and s.started < s.starts_n:
            s.cause = -1
            s.since_s = 0.0
            _start_next(s)
        s.cause = tell(s, STARTED, rank, 0, 0.0, -1) if s.observed and s.now > 0.0 else -1
        _begin(s, rank, 0, 0)
    elif code == codes.BATCH_COMES:
        _batch_comes(s, rank, operation_of(about), step_of(about), -1)
    elif code == codes.DELIVERED:
        _delivered(s, rank, operation_of(about), step_of(about))
    elif code == codes.DISPATCHED:
        after(s, one_by_one_at(s.processes, DISPATCHER).latency_s, pack(codes.HANDED_OUT, rank), 0)
    elif code == codes.PREPARED:
        after(s, one_by_one_at(s.processes, CLIENT).latency_s, pack(codes.END_OPERATION, rank), about)
    elif code == codes.END_OPERATION:
        s.cause = passed(s, rank, operation_of(about), s.since_s, s.cause)
        end_operation(s, rank, operation_of(about), step_of(about))
    elif code == codes.PREFETCH:
        go_on(s, rank)
    elif code == codes.PREFETCHED:
        if part_ended(s, rank):
            go_on(s, rank)
            _hand_over(s, rank)
    elif code == codes.ALL_REDUCED:
        logged = _tell_of_all_reduce(s, rank) if s.observed else -1
        for bucket in range(s.buckets_n):
            s.cause = logged
            end_collective(s, rank, bucket)
    elif code == codes.CLOSE:
        _stop(s, codes.CLOSES)
    elif code == codes.DONE:
        _stop(s, codes.ENDS)


@compiled
def _stop(s: Record, why: int) -> None:
    """Return to Python before anything else happens."""
    s.wants = why
    s.at_once = 0


# -- operations begin --------------------------------------------------------------------


@compiled
def _begin(s: Record, rank: int, number: int, step: int) -> None:
    r = rank_at(s.ranks, rank)
    routine = routine_at(s.routines, r.routine)
    operation = operation_at(s.operations, routine.operations + number)
    kind = operation.kind
    if step < operation.from_step:
        if operation.departs and operation.lands and routine.overlaps:
            note_message(s, rank, 1)
        end_operation(s, rank, number, step)
    elif kind == codes.SEND:
        if operation.departs and routine.overlaps:
            note_message(s, rank, 1)
        code = codes.ARRIVED
        if operation.channel >= 0:
            code = codes.DELIVERED
            real_at(s.sent, rank * s.sent_n + operation.sent).x = s.now
        path = number_at(s.slots, rank * s.slots_n + operation.slot).n
        send_tensors(s, path, operation.size_bytes, operation.tensors, pack(code, rank), pack_operation(step, number), 0)
    elif kind == codes.COMPUTE:
        if s.observed:
            long_at(s.compute_causes, rank * s.each_operations + number).n = s.cause
        advance_rank(s, rank)
    elif kind == codes.SERVE:
        serve(s, rank, number, operation, step)
    elif kind == codes.COLLECTIVE:
        _begin_collective(s, r, rank, number, operation, step)
    elif kind == codes.RECEIVE:
        channel = channel_at(s.channels, rank * s.channels_n + operation.channel)
        if channel.front >= 0:
            _receive(s, rank, number, channel)
        else:
            channel.receiving = number
    elif operation.gate == codes.TURN_GATE:
        _turn(s, r, rank)
    elif step != r.step or not r.complete:
        return  # the step was given up meanwhile
    elif operation.gate == codes.UPDATE_GATE:
        finish(s, rank, number)
    elif operation.gate == codes.INPUT_GATE:
        _input(s, r, rank, number)
    else:
        s.since_s = s.now
        prepared = pack_operation(r.step, number)
        ask(s, CLIENT, pack(codes.PREPARED, rank), pack(codes.END_OPERATION, rank), prepared)


# -- gates -------------------------------------------------------------------------------


@compiled
def _turn(s: Record, r: Record, rank: int) -> None:
    """The rank asks for its next step."""
    following = r.step + 1
    if following >= s.drawn and (  # not all ranks have so much
        (s.factors_n and number_at(s.filled, rank).n <= following)
        or (s.orders_n and number_at(s.ordered, rank).n <= following)
        or (s.batch_factors_n and number_at(s.batch_filled, input_at(s.inputs, rank).pipeline).n <= following + s.batch_lead)
    ):
        s.pending = 1
        _stop(s, codes.DRAWS)
        return
    if not take_step(s, r):
        if s.closes:  # from now on not all ranks are busy
            at_end_of_instant(s, pack(codes.CLOSE, 0), 0)
        return
    begin_step(s, rank)
    if routine_at(s.routines, r.routine).feeds:
        r.batch_there = r.wants_batch = 0
    if s.dispatching:
        ask(s, DISPATCHER, pack(codes.DISPATCHED, rank), pack(codes.HANDED_OUT, rank), 0)
    elif s.bound < 0 or may_begin(s, rank):
        _read(s, rank)


@compiled
def _read(s: Record, rank: int) -> None:
    """The step is the rank's, which begins to read the variables."""
    r = rank_at(s.ranks, rank)
    r.read_s = s.now
    if s.on_servers:
        read_variables(s, rank)
    end_operation(s, rank, 0, r.step)


@compiled
def _input(s: Record, r: Record, rank: int, number: int) -> None:
    """The rank needs its batch."""
    if s.observed:
        long_at(s.input_causes, rank).n = s.cause
    if not s.on_inputs:
        _batch_comes(s, rank, number, r.step, -1)
        return
    now = s.now
    i = input_at(s.inputs, rank)
    i.from_s = now
    if routine_at(s.routines, r.routine).feeds:
        there = r.batch_there
        r.wants_batch = 0 if there else 1
        if there:
            r.batch_there = 0
            _batch_comes(s, rank, number, r.step, -1)
    elif s.pipelines_n == 0:
        _batch_comes(s, rank, number, r.step, -1)
    elif s.feeds_alone:
        waiting_s = wait_s(s, i.pipeline, i.batches)
        i.batches += 1
        _at(s, waiting_s, pack(codes.BATCH_COMES, rank), pack_operation(r.step, number))
    else:
        i.batches += 1
        if ask_pipeline(s, i.pipeline, i.batches):
            r.wants_batch = 0
            _batch_comes(s, rank, number, r.step, -1)
        else:
            r.wants_batch = 1
        go_on(s, i.pipeline)


@compiled
def _batch_comes(s: Record, rank: int, number: int, step: int, brought: int) -> None:
    """The batch is there, brought by a message or, -1, prepared by a pipeline."""
    r = rank_at(s.ranks, rank)
    if step == r.step:
        since_s = s.now
        if s.on_inputs:
            i = input_at(s.inputs, rank)
            since_s = i.from_s
            i.input_s = s.now - since_s
            if s.on_servers:
                r.began_s = s.now if not r.computing else r.began_s
            else:
                meeting_at(s.meetings, rank).idle_since_s = s.now
        if s.observed:
            s.cause = passed(s, rank, number, since_s, long_at(s.input_causes, rank).n) if brought < 0 else brought
        end_operation(s, rank, number, step)


@compiled
def _hand_over(s: Record, pipeline: int) -> None:
    """A batch is there: those of the pipeline's ranks go on that wait for it."""
    p = pipeline_at(s.pipelines, pipeline)
    made = p.made
    for at in range(p.fed, p.fed + p.fed_n):
        rank = number_at(s.fed, at).n
        r = rank_at(s.ranks, rank)
        if r.wants_batch and input_at(s.inputs, rank).batches <= made:
            r.wants_batch = 0
            _batch_comes(s, rank, routine_at(s.routines, r.routine).input, r.step, -1)


@compiled
def _batch_is_there(s: Record, rank: int, brought: int) -> None:
    r = rank_at(s.ranks, rank)
    if not r.wants_batch:
        r.batch_there = 1
        return
    r.wants_batch = 0
    _batch_comes(s, rank, routine_at(s.routines, r.routine).input, r.step, brought)


# -- messages ----------------------------------------------------------------------------


@compiled
def _arrived(s: Record, rank: int, number: int, step: int) -> None:
    r = rank_at(s.ranks, rank)
    feeds = operation_at(s.operations, routine_at(s.routines, r.routine).operations + number).feeds
    logged = s.cause
    end_operation(s, rank, number, step)
    if feeds and step == r.step:
        _batch_is_there(s, rank, logged)


@compiled
def _delivered(s: Record, rank: int, number: int, step: int) -> None:
    """A message to another rank has arrived: operations that wait for it continue."""
    r = rank_at(s.ranks, rank)
    operation = operation_at(s.operations, routine_at(s.routines, r.routine).operations + number)
    peer = number_at(s.peers, rank * s.peers_n + operation.slot).n
    channel = channel_at(s.channels, peer * s.channels_n + operation.channel)
    entry = s.comings_free
    if entry >= 0:
        s.comings_free = coming_at(s.comings, entry).after
    else:
        entry = s.comings_made
        s.comings_made = entry + 1
    s.comings_n += 1
    coming = coming_at(s.comings, entry)
    coming.sent_s = real_at(s.sent, rank * s.sent_n + operation.sent).x
    coming.after = -1
    logged = -1
    if s.observed:
        logged = tell(s, ENDED, rank, number, s.since_s, s.cause)
    coming.logged = logged
    if channel.front < 0:
        channel.front = entry
    else:
        coming_at(s.comings, channel.last).after = entry
    channel.last = entry
    waits = channel.receiving
    if waits >= 0:
        channel.receiving = -1
        s.cause = -1
        _receive(s, peer, waits, channel)
    s.cause = logged
    _arrived(s, rank, number, step)


@compiled
def _receive(s: Record, rank: int, number: int, channel: Record) -> None:
    entry = channel.front
    coming = coming_at(s.comings, entry)
    channel.front = coming.after
    coming.after = s.comings_free
    s.comings_free = entry
    s.comings_n -= 1
    heard(s, rank, coming.sent_s)
    s.cause = max(coming.logged, s.cause)
    end_operation(s, rank, number, rank_at(s.ranks, rank).step)


# -- collectives -------------------------------------------------------------------------


@compiled
def _begin_collective(s: Record, r: Record, rank: int, number: int, operation: Record, step: int) -> None:
    routine = routine_at(s.routines, r.routine)
    if operation.departs and routine.overlaps:
        note_message(s, rank, 1)
    if (step + 1) % operation.every != 0:
        end_operation(s, rank, number, step)
        return
    if operation.lasts_s >= 0.0:
        enter_gathering(s, rank, number, operation)
        return
    now = s.now
    meeting = meeting_at(s.meetings, rank)
    real_at(s.entered, rank * s.buckets_n + meeting.entered_n).x = now
    meeting.entered_n += 1
    if number == number_at(s.buckets, routine.buckets + routine.buckets_n - 1).n:
        meeting.ready_s = now
        last = last_ready_at(s.last_ready, meeting.group * 4 + ((step // operation.every) & 3))
        if last.step != step:
            last.step = step
            last.ready_s = 0.0
        last.ready_s = max(now, last.ready_s)
    if s.by_messages:
        enter(s, rank, operation.partition)
        return
    real_at(s.ready, operation.bucket * s.ranks_n + rank).x = now
    if s.observed:
        long_at(s.made_by, operation.bucket * s.ranks_n + rank).n = s.cause
    s.unready -= 1
    if s.unready == 0:
        _stop(s, codes.REDUCES)


@compiled
def _tell_of_all_reduce(s: Record, rank: int) -> int:
    """A rank has ended all buckets of the step; the number of the last."""
    logged = -1
    now = s.now
    for bucket in range(s.buckets_n):
        at = bucket * s.ranks_n + rank
        # the last one ends now, if not for rounding
        ended_s = now if bucket == s.buckets_n - 1 else min(real_at(s.finished, at).x, now)
        note(s, ALL_REDUCE, rank, bucket, real_at(s.ready, at).x, ended_s, long_at(s.made_by, at).n)
        logged = s.logged_so_far
        s.logged_so_far += 1
    return logged


@compiled
def _go_on_together(s: Record) -> None:
    """Ranks go on when they have all buckets of the step; Python has found out when."""
    now = s.now
    s.unready = s.buckets_n * s.ranks_n
    last = (s.buckets_n - 1) * s.ranks_n
    for rank in range(s.ranks_n):
        after(s, real_at(s.finished, last + rank).x - now, pack(codes.ALL_REDUCED, rank), 0)
