"""The scheduler of one machine's cores, for clusters whose nodes are all processes on that machine.

Tasks wait in one queue, in order of arrival. A free core takes the task in front and works on it for a time slice at most while
others wait; what is then left goes to the back of the queue: round robin (Kleinrock, Queueing Systems, volume 2, chapter 4),
with several servers. A task keeps its core while no other task waits; slices are then counted from when
it began. Cores that work at the same time may slow each other down (memory bandwidth, caches): a task with a slowdown of s takes
1 + s (b - 1) seconds for a second of its work while b cores are busy.

A task's alarm has the number of the task after those of the shared ports.
"""

from __future__ import annotations

import math

from simulator.engine.production.calendar import restore_context, save_context, set_alarm, soon
from simulator.engine.production.compiling import compiled
from simulator.engine.production.layout import Record
from simulator.engine.production.records import task_at, work_at

ROUNDING = 1e-9
"""Remainder of a slice, as a share of it, that is only rounding."""


@compiled
def work(s: Record, task: int, work_s: float, what: int, about: int) -> None:
    """Let a task do some seconds of work, more than 0, after what was asked of it before; ``what`` follows."""
    t = task_at(s.tasks, task)
    entry = s.works_free
    if entry >= 0:
        s.works_free = work_at(s.works, entry).after
    else:
        entry = s.works_made
        s.works_made = entry + 1
    s.works_n += 1
    w = work_at(s.works, entry)
    w.work_s = work_s
    w.what = what
    w.about = about
    if s.observed:
        save_context(s, s.work_contexts, entry)
    w.after = -1
    if t.works >= 0:
        work_at(s.works, t.works_last).after = entry
        t.works_last = entry
        return
    t.works = t.works_last = entry
    t.begun_s = s.now
    t.left_s = work_s
    _enter(s, task)


@compiled
def _enter(s: Record, task: int) -> None:
    """A task comes that has something to do."""
    if s.running_n < s.number:
        _begin(s, task)
        _pace(s)
        return
    first = s.waiting < 0
    _wait(s, task)
    if first:
        other = s.running
        while other >= 0:
            o = task_at(s.tasks, other)
            if _stop_s(s, o) != o.stop_s:
                _plan(s, o, other)
            other = o.after


@compiled
def _wait(s: Record, task: int) -> None:
    task_at(s.tasks, task).waiting_after = -1
    if s.waiting < 0:
        s.waiting = task
    else:
        task_at(s.tasks, s.waiting_last).waiting_after = task
    s.waiting_last = task


@compiled
def _begin(s: Record, task: int) -> None:
    t = task_at(s.tasks, task)
    t.before = s.running_last
    t.after = -1
    if s.running_last < 0:
        s.running = task
    else:
        task_at(s.tasks, s.running_last).after = task
    s.running_last = task
    s.running_n += 1
    t.began_s = t.since_s = s.now
    t.stretch = _stretch(s, t)
    _plan(s, t, task)


@compiled
def _stretch(s: Record, t: Record) -> float:
    """Seconds that a second of the task's work takes."""
    return 1.0 + t.slowdown * (s.running_n - 1)


@compiled
def _pace(s: Record) -> None:
    """The number of busy cores may have changed: count the work done so far, and plan again."""
    busy = s.running_n
    if busy == s.paced_for:
        return
    s.paced_for = busy
    now = s.now
    task = s.running
    while task >= 0:
        t = task_at(s.tasks, task)
        stretch = _stretch(s, t)
        if stretch != t.stretch:
            t.left_s = max(t.left_s - (now - t.since_s) / t.stretch, 0.0)
            t.since_s = now
            t.stretch = stretch
            _plan(s, t, task)
        task = t.after


@compiled
def _plan(s: Record, t: Record, task: int) -> None:
    """Wake up when the task is to leave its core."""
    t.stop_s = _stop_s(s, t)
    ran_s = s.now - t.since_s
    set_alarm(s, s.ports_n + task, max(t.stop_s - ran_s, 0.0))


@compiled
def _stop_s(s: Record, t: Record) -> float:
    """Seconds from ``since_s`` until the task leaves its core: to its end, or where others wait to that of its slice."""
    end_s = t.left_s * t.stretch
    if s.waiting < 0:
        return end_s
    slices = max(float(math.ceil((s.now - t.began_s) / s.slice_s - ROUNDING)), 1.0)
    cut_s = slices * s.slice_s - (t.since_s - t.began_s)
    return cut_s if cut_s < end_s - ROUNDING * s.slice_s else end_s


@compiled
def leave(s: Record, task: int) -> None:
    """The end of a task's work, or of its slice."""
    t = task_at(s.tasks, task)
    if t.before < 0:
        s.running = t.after
    else:
        task_at(s.tasks, t.before).after = t.after
    if t.after < 0:
        s.running_last = t.before
    else:
        task_at(s.tasks, t.after).before = t.before
    s.running_n -= 1
    s.busy_s += t.since_s - t.began_s + t.stop_s
    t.left_s = 0.0 if t.stop_s == t.left_s * t.stretch else max(t.left_s - t.stop_s / t.stretch, 0.0)
    what = 0
    about = 0
    if t.left_s == 0.0:
        entry = t.works
        w = work_at(s.works, entry)
        what = w.what
        about = w.about
        if s.observed:
            restore_context(s, s.work_contexts, entry)
        t.works = w.after
        if t.works >= 0:
            t.left_s = work_at(s.works, t.works).work_s
        else:
            t.busy_s += s.now - t.begun_s
        w.after = s.works_free
        s.works_free = entry
        s.works_n -= 1
    if t.left_s != 0.0:
        _wait(s, task)
    if s.waiting >= 0:
        first = s.waiting
        s.waiting = task_at(s.tasks, first).waiting_after
        _begin(s, first)
    _pace(s)
    if what != 0:
        soon(s, what, about)
