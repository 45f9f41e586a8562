"""The queue before a machine's cores, against times by hand, a plain round robin that counts every slice, and processor sharing."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from functools import partial

import pytest
from support.network import Network
from support.sampling import seeds

Arrivals = list[tuple[float, float]]
"""When each task comes, and its seconds of work."""


class Pool(Network):
    """Tasks on cores, and when their work ended."""

    def __init__(self, number: float, slice_s: float) -> None:
        super().__init__(cores=(number, slice_s))
        self.ends: dict[object, float] = {}

    def give(self, task: int, work_s: float, name: object) -> None:
        self.work(task, work_s, lambda: self.ends.update({name: self.now}))

    def ends_of(self, arrivals: Arrivals) -> list[float]:
        """Ends of tasks that each do one thing."""
        for number, (come_s, work_s) in enumerate(arrivals):
            self.at(come_s, partial(self.give, self.task(), work_s, number))
        self.run()
        return [self.ends[number] for number in range(len(arrivals))]


def ends_of(arrivals: Arrivals, number: float, slice_s: float) -> list[float]:
    return Pool(number, slice_s).ends_of(arrivals)


@pytest.mark.parametrize("cores", [1, 2, 3, 7])
@pytest.mark.parametrize("tasks", [1, 2, 5, 16])
@pytest.mark.parametrize("work_s", [1.0, 0.25])
def test_tasks_no_longer_than_a_slice_are_done_in_order_of_arrival(tasks, cores, work_s):
    """The k-th of n equal ones ends at ceil(k / c) X."""
    want = [math.ceil(k / cores) * work_s for k in range(1, tasks + 1)]
    assert ends_of([(0.0, work_s)] * tasks, cores, 1.0) == want


def test_slices_by_hand():
    """One core, slices of 1 s, 2.5, 1 and 1.5 s of work: A 0-1, B 1-2, C 2-3, A 3-4, C 4-4.5, A 4.5-5."""
    assert ends_of([(0.0, 2.5), (0.0, 1.0), (0.0, 1.5)], 1, 1.0) == [5.0, 2.0, 4.5]


def test_whoever_comes_later_waits_for_the_end_of_the_slice_in_progress():
    """A has the core from 0 on; B comes at 3.3, gets it at 4 and ends at 4.5; A has 6 s left, and ends at 10.5."""
    assert ends_of([(0.0, 10.0), (3.3, 0.5)], 1, 1.0) == [10.5, 4.5]
    # at the very end of a slice there is nothing to wait for
    assert ends_of([(0.0, 10.0), (3.0, 0.5)], 1, 1.0) == [10.5, 3.5]


def test_whose_slice_ends_when_nobody_waits_any_more_goes_on():
    """B comes at 0.5 and would have A's core at 1, but C leaves its own at 0.75: A is not interrupted, and ends at 5."""
    assert ends_of([(0.0, 5.0), (0.0, 0.75), (0.5, 0.5)], 2, 1.0) == [5.0, 0.75, 1.25]


def test_the_rounding_of_times_is_no_work_and_no_wait():
    """0.9 s are three slices of 0.3 s, though 3 x 0.3 is a little less; and 1.3 s is 3 x 0.1 s after 1 s, though the difference is more."""
    assert ends_of([(0.0, 0.9), (0.0, 0.9)], 1, 0.3) == pytest.approx([1.5, 1.8], rel=1e-12)
    assert ends_of([(0.0, 0.9), (0.7, 1.0)], 1, 0.3) == pytest.approx([0.9, 1.9], rel=1e-12)
    assert ends_of([(1.0, 2.0), (1.3, 0.05)], 1, 0.1) == pytest.approx([3.05, 1.35], rel=1e-12)


def test_a_task_does_one_thing_at_a_time_each_of_which_stands_for_a_core_by_itself():
    """A has three things of 1 s to do, B one: A, B, A, A on one core; on two A is not done any sooner than in 3 s."""
    for cores, want in ((1, {"A0": 1.0, "B": 2.0, "A1": 3.0, "A2": 4.0}), (2, {"A0": 1.0, "B": 1.0, "A1": 2.0, "A2": 3.0})):
        pool = Pool(cores, 10.0)
        first, second = pool.task(), pool.task()
        for number in range(3):
            pool.give(first, 1.0, f"A{number}")
        pool.give(second, 1.0, "B")
        pool.run()
        assert pool.ends == want
        assert pool.tasks_in_use_s().tolist() == [want["A2"], want["B"]]


def test_use_of_the_cores_is_known_while_they_work():
    pool = Pool(2, 1.0)
    seen = []
    for at_s in (0.0, 0.5, 1.5, 2.5, 4.0):
        pool.at(at_s, lambda: seen.append(pool.cores_in_use_s()))
    pool.ends_of([(0.0, 1.5), (0.0, 1.5), (0.0, 0.5)])
    # both cores until 1.5 s, when two of the three are done; then one for another half second
    assert seen == [0.0, 0.5, 1.5, 1.75, 1.75]


# -- random tasks ------------------------------------------------------------------


def counted(arrivals: Arrivals, number: int, slice_s: float) -> list[float]:
    """Round robin as a naive scheduler does it: a decision at the end of every slice of every core."""
    left = [work_s for _, work_s in arrivals]
    ends = [0.0] * len(arrivals)
    waiting: deque[int] = deque()
    free = number
    order = itertools.count()
    calendar = [(come_s, next(order), "comes", task) for task, (come_s, _) in enumerate(arrivals)]
    heapq.heapify(calendar)
    while calendar:
        now, _, what, task = heapq.heappop(calendar)
        if what == "stops":
            left[task] -= min(slice_s, left[task])
            free += 1
            if left[task] < 1e-9 * slice_s:
                ends[task] = now
            else:
                waiting.append(task)
        else:
            waiting.append(task)
        while free and waiting:
            task = waiting.popleft()
            free -= 1
            heapq.heappush(calendar, (now + min(slice_s, left[task]), next(order), "stops", task))
    return ends


def shared(arrivals: Arrivals, number: int) -> list[float]:
    """Processor sharing, at most one core each: from one arrival or end to the next."""
    ends = [math.inf] * len(arrivals)
    left: dict[int, float] = {}
    coming = deque(sorted(range(len(arrivals)), key=lambda task: arrivals[task][0]))
    now = 0.0
    while coming or left:
        speed = min(1.0, number / len(left)) if left else 1.0
        first = min(left, key=lambda task: left[task], default=None)
        end_s = now + left[first] / speed if first is not None else math.inf
        then = min(end_s, arrivals[coming[0]][0] if coming else math.inf)
        left = {task: rest - (then - now) * speed for task, rest in left.items()}
        now = then
        if first is not None and now == end_s:
            ends[first] = now
            del left[first]
        else:
            task = coming.popleft()
            left[task] = arrivals[task][1]
    return ends


def some_arrivals(seed: int) -> tuple[Arrivals, int]:
    chance = random.Random(seed)
    tasks, cores = chance.randint(2, 30), chance.randint(1, 5)
    load = chance.choice([0.5, 1.0, 3.0])  # of the cores, as long as tasks come
    return [(chance.uniform(0.0, tasks / cores / load), chance.expovariate(1.0)) for _ in range(tasks)], cores


@pytest.mark.parametrize("slice_s", [0.01, 0.1, 0.7, 5.0])
def test_random_tasks_end_as_where_every_slice_is_counted(slice_s):
    for seed in seeds(250):
        arrivals, cores = some_arrivals(seed)
        assert ends_of(arrivals, cores, slice_s) == pytest.approx(counted(arrivals, cores, slice_s), rel=1e-9)


def test_short_slices_come_to_processor_sharing():
    """Ends are off by some slices, so that with slices of a tenth they are off by a tenth."""
    for seed in seeds(40):
        arrivals, cores = some_arrivals(seed)
        want = shared(arrivals, cores)
        for slice_s in (1e-2, 1e-3):
            off_s = max(abs(end - ideal) for end, ideal in zip(ends_of(arrivals, cores, slice_s), want, strict=True))
            assert off_s <= len(arrivals) * slice_s


@pytest.mark.parametrize("cores", [1, 2, 3])
@pytest.mark.parametrize("tasks", [1, 3, 8])
def test_equal_long_tasks_end_within_a_round_of_slices_of_processor_sharing(tasks, cores):
    work_s, slice_s = 10.0, 0.1
    ideal = max(1.0, tasks / cores) * work_s
    for end in ends_of([(0.0, work_s)] * tasks, cores, slice_s):
        assert work_s * (1 - 1e-9) <= end
        assert abs(end - ideal) <= math.ceil(tasks / cores) * slice_s * (1 + 1e-9)


@pytest.mark.parametrize("slice_s", [0.03, 0.4, 100.0])
def test_all_work_is_done_once_and_no_core_rests_while_anybody_waits(slice_s):
    for seed in seeds(60):
        arrivals, cores = some_arrivals(seed)
        pool = Pool(cores, slice_s)
        ends = pool.ends_of(arrivals)
        assert pool.cores_in_use_s() * cores == pytest.approx(sum(work_s for _, work_s in arrivals), rel=1e-12)
        assert all(end >= (come_s + work_s) * (1 - 1e-12) for end, (come_s, work_s) in zip(ends, arrivals, strict=True))
        if cores == 1:  # whatever the order, the core is busy from the same times to the same times
            assert max(ends) == pytest.approx(max(shared(arrivals, 1)), rel=1e-9)


def test_work_asked_for_at_an_end_is_behind_those_who_wait():
    """A asks for more as soon as it has ended: B, who waits, is first."""
    pool = Pool(1, 1.0)
    first = pool.task()
    pool.work(first, 0.5, lambda: pool.give(first, 0.5, "A again"))
    pool.give(pool.task(), 0.5, "B")
    pool.run()
    assert pool.ends == {"B": 1.0, "A again": 1.5}


@pytest.mark.slow
@pytest.mark.parametrize("slice_s", [0.1, 1e6])
def test_a_closed_queue_of_exponential_work_has_the_throughput_of_m_m_c_n(slice_s):
    """Six tasks think for 2 s and work for 1 s on two cores: the discipline does not matter to memoryless work."""
    tasks, cores, thought_s, runs, length_s = 6, 2, 2.0, 10, 3000.0
    weights = [1.0]
    for k in range(1, tasks + 1):
        weights.append(weights[-1] * (tasks - k + 1) / thought_s / min(k, cores))
    want = sum(weight * min(k, cores) for k, weight in enumerate(weights)) / sum(weights)
    rates = []
    for seed in range(runs):
        chance = random.Random(seed)
        pool = Pool(cores, slice_s)
        ends: list[float] = []

        def think(task: int, chance: random.Random = chance, pool: Pool = pool) -> None:
            pool.at(chance.expovariate(1 / thought_s), partial(work, task))

        def work(task: int, chance: random.Random = chance, pool: Pool = pool, ends: list[float] = ends) -> None:
            def ended() -> None:
                ends.append(pool.now)
                if pool.now < length_s:
                    think(task)

            pool.work(task, chance.expovariate(1.0), ended)

        for _ in range(tasks):
            think(pool.task())
        pool.run()
        rates.append(sum(end <= length_s for end in ends) / length_s)
    mean = sum(rates) / runs
    error = math.sqrt(sum((rate - mean) ** 2 for rate in rates) / (runs - 1) / runs)
    assert abs(mean - want) < 4 * error
    assert error < 0.01 * want
