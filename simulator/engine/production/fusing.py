"""Which gradients are reduced when: in order of readiness, by priority, or fused every cycle; and copies between hosts and devices.

The compiled engine knows neither cycles nor priorities nor copies to hosts; the textbook engine has no priorities.
``simulator.strategies.all_reduce`` checks what these exclude in a scenario. How long a reduction takes:
``simulator.collectives.collective``.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.collectives.collective import Collective
from simulator.engine.recorder import InUse
from simulator.program.port_names import Owner, PortKind, PortName
from simulator.program.program import HostCopies as Link
from simulator.program.program import Reduction as Rule
from simulator.spec.gradients import Bucket

Times = NDArray[np.float64]
_LISTED = 100
_LATELY = 512
"""Copies of which it is known when they took place: more than are made in a step."""


@dataclass(frozen=True)
class Reduction:
    """One all-reduce; arrays of shape (ranks,), in seconds.

    Attributes
    ----------
    ready
        Share of the backward pass after which the last of its gradients was ready.
    ready_s
        When each rank had them.
    begun_s
        When each rank entered the collective.
    finish_s
        When each rank has ended it: it has the result, and has sent what others need of it.
    """

    ready: float
    size_bytes: float
    ready_s: Times
    begun_s: Times
    finish_s: Times


class Fuser:
    """Hands buckets to the collective, one after the other.

    Parameters
    ----------
    collective
        Reduces a buffer.
    buckets
        Gradients as they become ready; with a fusion cycle, one each.
    variables_bytes
        All variables together, which local SGD averages.
    rule
        In which order, and what is fused.
    copies
        Where gradients go by the host.
    one_by_one
        Whether each bucket's times are asked for.
    """

    def __init__(
        self,
        collective: Collective,
        buckets: Sequence[Bucket],
        variables_bytes: float,
        rule: Rule,
        copies: HostCopies | None,
        *,
        one_by_one: bool,
    ) -> None:
        self._collective = collective
        self._buckets = buckets
        self._variables_bytes = variables_bytes
        self._cycle_s = rule.cycle_s
        self._most_bytes = rule.most_bytes
        self._by_need = rule.by_need
        self._copies = copies
        self._one_by_one = one_by_one
        self._free_s: Times | None = None  # when what each rank sent before has left it
        self._last_s: Times | float = 0.0  # when each rank ended the last reduction
        self._seen: dict[float, None] = {}
        self._uncounted: dict[float, int] = {}  # reductions of each size that no port knows of yet

    @property
    def sizes(self) -> tuple[float, ...]:
        """Sizes in bytes that have been reduced, the first hundred of them."""
        self.count()
        return tuple(self._seen)

    def count(self) -> None:
        """Tell the ports what has been reduced since this was last called."""
        room = _LISTED - len(self._seen)
        self._seen.update(dict.fromkeys(itertools.islice(self._uncounted, room)))
        for size, times in self._uncounted.items():
            self._collective.account(size, times)
        self._uncounted.clear()

    def average(self, ready_s: Times) -> Reduction:
        """Average all variables; :meth:`count_average` counts it."""
        average = self._one(Bucket(1.0, self._variables_bytes), ready_s, ready_s)
        self._uncounted[self._variables_bytes] -= 1
        return average

    def count_average(self) -> None:
        """Count an average."""
        self._uncounted[self._variables_bytes] = self._uncounted.get(self._variables_bytes, 0) + 1

    def reduce(self, ready_s: Sequence[Times], buckets: Sequence[Bucket] | None = None) -> list[Reduction]:
        """Reduce the buckets of a step, or those given, which are ready on each rank at ``ready_s[bucket]``."""
        waiting = list(zip(self._buckets if buckets is None else buckets, ready_s, strict=True))
        if self._cycle_s is not None:
            return self._each_cycle(waiting, self._cycle_s)
        if self._by_need:
            return self._as_needed(waiting)
        return self._in_order(waiting)

    def _in_order(self, waiting: list[tuple[Bucket, Times]]) -> list[Reduction]:
        """One after the other; a backlog, which all ranks enter as soon as they have what came before, as one."""
        done: list[Reduction] = []
        at = 0
        while at < len(waiting):
            first, ready_s = waiting[at]
            run = [first.size_bytes]
            if at + 1 < len(waiting) and not self._one_by_one and self._copies is None:
                # the least that any rank has to wait for the results so far
                enough_s = float(np.max(np.maximum(ready_s, self._last_s))) + self._collective.least_s(first.size_bytes)
                while at + len(run) < len(waiting) and float(waiting[at + len(run)][1].max()) <= enough_s:
                    run.append(waiting[at + len(run)][0].size_bytes)
                    enough_s += self._collective.least_s(run[-1])
            reduction = self._run(ready_s, run, waiting[at + len(run) - 1][0].ready) if len(run) > 1 else None
            done.append(reduction or self._one(first, ready_s, ready_s))
            at += len(run) if reduction else 1
        return done

    def _run(self, ready_s: Times, sizes_bytes: Sequence[float], ready: float) -> Reduction | None:
        """Several buckets right after one another, if the collective knows how long they take together."""
        begun_s = np.maximum(ready_s, self._last_s)
        finish_s = self._collective.finish_run_s(begun_s, sizes_bytes)
        if finish_s is None:
            self._one_by_one = True
            return None
        self._last_s = finish_s
        for size in sizes_bytes:
            self._uncounted[size] = self._uncounted.get(size, 0) + 1
        return Reduction(ready, math.fsum(sizes_bytes), ready_s, begun_s, finish_s)

    def _one(self, bucket: Bucket, ready_s: Times, enter_s: Times) -> Reduction:
        """Reduce a bucket that the ranks may enter at ``enter_s``."""
        size = bucket.size_bytes
        if self._free_s is None:
            self._free_s = np.zeros(len(ready_s))
        at_host_s = self._copies.out(enter_s, size) if self._copies else enter_s
        begun_s = np.maximum(at_host_s, self._last_s)
        finish_s = self._last_s = self._collective.finish_s(begun_s, size, self._free_s)
        self._uncounted[size] = self._uncounted.get(size, 0) + 1
        if self._copies:
            finish_s = self._copies.back(finish_s, size)
        return Reduction(bucket.ready, size, ready_s, enter_s if self._copies else begun_s, finish_s)

    def _as_needed(self, waiting: list[tuple[Bucket, Times]]) -> list[Reduction]:
        """Whenever the ranks are free: of the buckets ready on all of them, the one that the next forward pass needs first."""
        done: list[Reduction] = []
        left = [(bucket, ready_s, float(ready_s.max())) for bucket, ready_s in waiting]  # in the order in which they become ready
        while left:
            free_s = max(float(np.max(self._last_s)), left[0][2])
            # those ready by then are the first few, of which the last is needed first
            count = bisect.bisect_right(left, free_s, key=lambda item: item[2])
            bucket, ready_s, latest_s = left.pop(count - 1)
            # all ranks must agree on the order, so none enters before the last one has the bucket
            done.append(self._one(bucket, ready_s, np.full_like(ready_s, latest_s)))
        return done

    def _each_cycle(self, waiting: list[tuple[Bucket, Times]], cycle_s: float) -> list[Reduction]:
        """Horovod: each cycle, what is ready on all ranks is fused, up to the threshold, and reduced.

        Sergeev and Del Balso, "Horovod: fast and easy distributed deep learning in
        TensorFlow", 2018, and its documentation of tensor fusion.
        """
        done: list[Reduction] = []
        while waiting:
            soonest_s = min(float(ready.max()) for _, ready in waiting)
            tick_s = max((math.floor(soonest_s / cycle_s) + 1) * cycle_s, soonest_s)  # rounding must not bring it before
            ready_now = [item for item in waiting if float(item[1].max()) <= tick_s]
            waiting = [item for item in waiting if float(item[1].max()) > tick_s]
            if self._by_need:
                ready_now.reverse()
            while ready_now:
                group = [ready_now.pop(0)]
                size = group[0][0].size_bytes
                while ready_now and size + ready_now[0][0].size_bytes <= self._most_bytes:
                    size += ready_now[0][0].size_bytes
                    group.append(ready_now.pop(0))
                ready_s = np.max([ready for _, ready in group], axis=0)
                fused = Bucket(max(bucket.ready for bucket, _ in group), size)
                done.append(self._one(fused, ready_s, np.full_like(ready_s, tick_s)))
        return done


_WAYS = PortKind.HOST_LINK_OUT, PortKind.HOST_LINK_IN


class HostCopies:
    """The two directions of every rank's link to its host, for all ranks at once."""

    def __init__(self, link: Link, ranks: int) -> None:
        self._latency_s, self._s_per_byte = link.latency_s, link.s_per_byte
        self._free_s = np.zeros((2, ranks))  # when what each direction has been given is over
        self._used_s = np.zeros((2, ranks))  # by copies long ago
        self._lately: deque[tuple[int, Times, Times]] = deque()  # direction, begin and end of others

    def in_use(self, now_s: float) -> InUse:
        """How long each rank's part of its link has been in use up to now, both directions."""
        used_s = self._used_s.copy()
        for way, begun_s, ended_s in self._lately:
            used_s[way] += np.clip(now_s, begun_s, ended_s) - begun_s
        return InUse([PortName(way, Owner("host link", rank)) for way in _WAYS for rank in range(used_s.shape[1])], used_s.flatten())

    def out(self, ready_s: Times, size_bytes: float) -> Times:
        """When a buffer that is ready at ``ready_s``, shape (ranks,), is in the hosts' memory."""
        return self._copy(0, ready_s, size_bytes)

    def back(self, ready_s: Times, size_bytes: float) -> Times:
        """When a buffer that is in the hosts' memory at ``ready_s``, shape (ranks,), is in the devices'."""
        return self._copy(1, ready_s, size_bytes)

    def _copy(self, way: int, ready_s: Times, size_bytes: float) -> Times:
        begun_s = np.maximum(self._free_s[way], ready_s)
        self._free_s[way] = begun_s + size_bytes * self._s_per_byte
        self._lately.append((way, begun_s, self._free_s[way].copy()))
        if len(self._lately) > _LATELY:
            long_ago, from_s, to_s = self._lately.popleft()
            self._used_s[long_ago] += to_s - from_s
        at_s: Times = self._free_s[way] + self._latency_s
        return at_s
