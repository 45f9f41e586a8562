"""Cores that slow each other down while they are busy: against times by hand, a naive scheduler, and birth-death chains."""

from __future__ import annotations

import math
import random
from collections import deque
from functools import partial

import pytest
from oracles.audit import audit
from support.network import Network
from support.runs import COMPUTE_S, FAST, assert_mean, steps_per_s
from support.sampling import seeds

from simulator import simulate

ASYNC = {"kind": "parameter-server", "mode": "async"}
INSTANT = {**FAST, "intra_node": {"bandwidth": "1000000 GB/s", "latency": "0 s"}}
Arrival = tuple[float, float, float]
"""When a task comes, its seconds of work, and its slowdown."""


def ends_of(arrivals: list[Arrival], number: int, slice_s: float) -> list[float]:
    network = Network(cores=(number, slice_s))
    ends: dict[int, float] = {}

    def end(task: int) -> None:
        ends[task] = network.now

    for come_s, work_s, slowdown in arrivals:
        task = network.task(slowdown)
        network.at(come_s, partial(network.work, task, work_s, partial(end, task)))
    network.run()
    assert network.cores_in_use_s() * number == pytest.approx(naive(arrivals, number, slice_s)[1], rel=1e-9)
    return [ends[task] for task in range(len(arrivals))]


def naive(arrivals: list[Arrival], number: int, slice_s: float) -> tuple[list[float], float]:
    """From one arrival, end of work or end of slice to the next, all tasks at their present speed; ends, and seconds of busy cores."""
    left = [work_s for _, work_s, _ in arrivals]
    ends = [math.nan] * len(arrivals)
    coming = deque(sorted(range(len(arrivals)), key=lambda one: arrivals[one][0]))
    waiting: deque[int] = deque()
    slices: dict[int, float] = {}  # of those that run, what is left of their slice
    now = used_s = 0.0
    while coming or slices:
        speed = {one: 1.0 / (1.0 + arrivals[one][2] * (len(slices) - 1)) for one in slices}
        next_s = [arrivals[coming[0]][0] - now] if coming else []
        step_s = min([*next_s, *(left[one] / speed[one] for one in slices), *slices.values()])
        now += step_s
        used_s += step_s * len(slices)
        for one in list(slices):
            left[one] -= step_s * speed[one]
            slices[one] -= step_s
            if left[one] < 1e-12:
                ends[one] = now
                del slices[one]
            elif slices[one] < 1e-12:
                waiting.append(one)
                del slices[one]
        while coming and arrivals[coming[0]][0] <= now + 1e-12:
            waiting.append(coming.popleft())
        while waiting and len(slices) < number:
            slices[waiting.popleft()] = slice_s
    return ends, used_s


@pytest.mark.parametrize("cores", [1, 2, 4])
@pytest.mark.parametrize("tasks", [1, 2, 4])
def test_equal_tasks_with_a_core_each(tasks, cores):
    """X (1 + s (k - 1)) for k that run at the same time; on fewer cores in order of arrival, c at a time."""
    each_s = 1.0 + 0.25 * (min(tasks, cores) - 1)
    want = [math.ceil(k / cores) * each_s for k in range(1, tasks + 1)]
    assert ends_of([(0.0, 1.0, 0.25)] * tasks, cores, 100.0) == pytest.approx(want, rel=1e-12)


def test_speeds_change_as_others_come_and_go():
    """A has done 1 of 4 s when B comes for 1 s; both at 2/3 until B ends at 2.5; then A has 2 s left, and ends at 4.5."""
    assert ends_of([(0.0, 4.0, 0.5), (1.0, 1.0, 0.5)], 2, 100.0) == pytest.approx([4.5, 2.5], rel=1e-12)


def test_work_that_nothing_slows_still_slows_others():
    """B, such as a copy, takes its 1 s and slows A by a half meanwhile: A loses a third of a second of work."""
    assert ends_of([(0.0, 4.0, 0.5), (1.0, 1.0, 0.0)], 2, 100.0) == pytest.approx([4.0 + 1 / 3, 2.0], rel=1e-12)


def test_a_slice_is_a_length_of_time_not_of_work():
    """Two cores, slices of 1 s, s = 1: A and B at half speed; C has A's core from 1 on. A, 0.5 s done, is behind; B leaves at 1 too."""
    # A and B until 1 (half a second each); C and A from 1 to 2, and so on, always two at half speed: 6 s of work in 6 s
    ends = ends_of([(0.0, 2.0, 1.0), (0.0, 2.0, 1.0), (0.0, 2.0, 1.0)], 2, 1.0)
    assert max(ends) <= 6.0 + 1e-9
    assert ends == pytest.approx(naive([(0.0, 2.0, 1.0)] * 3, 2, 1.0)[0], rel=1e-9)


@pytest.mark.parametrize("slice_s", [0.02, 0.3, 50.0])
def test_random_tasks_end_as_a_naive_scheduler_has_them(slice_s):
    for seed in seeds(200):
        chance = random.Random(seed)
        cores, tasks = chance.randint(1, 5), chance.randint(2, 20)
        arrivals = [
            (chance.uniform(0.0, tasks / cores), chance.expovariate(1.0), chance.choice([0.0, 0.3, chance.random()])) for _ in range(tasks)
        ]
        assert ends_of(arrivals, cores, slice_s) == pytest.approx(naive(arrivals, cores, slice_s)[0], rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3, 6])
def test_steps_that_are_always_computing(scenario, workers):
    """min(n, c) / (X (1 + s (min(n, c) - 1))) steps a second; a lone worker is as measured."""
    built = scenario(
        workload={"apply": "0 s", "busy_core_slowdown": 0.3},
        cluster={**INSTANT, "shared_cores": 2.0, "device_is_host": True, "time_slice": "100 us"},
        strategy={**ASYNC, "workers": workers},
        run={"steps": 200, "warmup_steps": 10},
    )
    audit(built)
    busy = min(workers, 2)
    assert simulate(built).updates_per_s.mean == pytest.approx(busy / (COMPUTE_S * (1.0 + 0.3 * (busy - 1))), rel=2e-3)


@pytest.mark.statistics
@pytest.mark.parametrize(("workers", "cores"), [(2, 2.0), (5, 2.0), (6, 3.0)])
def test_machine_repairmen_whose_cores_slow_each_other(scenario, workers, cores):
    """n workers wait 6 ms, exponential compute of mean X: a birth-death chain with rates b / (X (1 + s (b - 1))), b = min(k, c)."""
    latency_s, slowdown = 3e-3, 0.4

    def rate(k: int) -> float:
        busy = min(k, int(cores))
        return busy / (COMPUTE_S * (1.0 + slowdown * (busy - 1)))

    weights, served = [], 1.0
    for k in range(workers + 1):
        served *= 1.0 / rate(k) if k else 1.0
        weights.append((2 * latency_s) ** (workers - k) / math.factorial(workers - k) * served)
    want = sum(weight * rate(k) for k, weight in enumerate(weights) if k) / sum(weights)
    built = scenario(
        workload={"apply": "0 s", "jitter": {"kind": "exponential"}, "busy_core_slowdown": slowdown},
        cluster={
            **INSTANT,
            "shared_cores": cores,
            "device_is_host": True,
            "inter_node": {"bandwidth": "1000000 GB/s", "latency_s": latency_s},
        },
        strategy={**ASYNC, "workers": workers},
        run={"steps": 400, "warmup_steps": 40},
    )
    assert_mean(steps_per_s(built, 12), want)


@pytest.mark.parametrize(
    "cluster", [{}, {"shared_cores": 2.0}, {"device_is_host": True}], ids=["own devices", "accelerators", "hosts that share nothing"]
)
def test_it_is_of_compute_on_cores_that_all_share(scenario, cluster):
    """Elsewhere it changes nothing, to the byte."""
    parts = {"cluster": cluster, "strategy": {**ASYNC, "workers": 4}}
    with_it, without = (
        simulate(scenario(workload={"busy_core_slowdown": value, "jitter": {"kind": "exponential"}}, **parts)) for value in (0.5, 0.0)
    )
    assert with_it.throughput_of_each_replication == without.throughput_of_each_replication
    assert with_it.breakdown_s == without.breakdown_s
