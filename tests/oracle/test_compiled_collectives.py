"""Collectives message by message on both engines: random groups, operations, networks and times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from support.engines import disagreement
from support.examples import examples
from support.networks import CHAINS, PAIRS, chain_schedule, plan_of, wiring_of
from support.scenarios import scenario_table

from simulator import scenario_from_table
from simulator.base.rng import Streams
from simulator.collectives.factory import IN_SWITCHES, collective_for
from simulator.collectives.rings import ring_schedule
from simulator.collectives.wire import Group, Plan, exchanges_of
from simulator.engine.draws import Draws
from simulator.engine.production.compiled import run
from simulator.engine.recorder import Measured, Recorder
from simulator.engine.textbook import engine as textbook
from simulator.program.program import Operation, Program, Routine
from simulator.program.schedule import Schedule
from simulator.resolve.drawing import compile_program
from simulator.resolve.resolve import resolve
from simulator.scenario import Scenario

STEPS = 2
AMONG_RANKS = [pair for pair in (*PAIRS, *CHAINS) if pair[1] not in IN_SWITCHES]


@st.composite
def programs(draw: st.DrawFn) -> tuple[Scenario, Program]:
    """Each rank computes, enters a collective, computes again, enters the next; none does so in the same instant as another."""
    ranks = draw(st.integers(2, 9))
    per_node = draw(st.sampled_from([1, 1, 2, 4]))
    latency = draw(st.sampled_from(["0 s", "0 s", "20 us"]))
    cluster: dict[str, Any] = {"devices_per_node": per_node, "inter_node": {"bandwidth": "1 GB/s", "latency": latency}}
    cluster["intra_node"] = {"bandwidth": "4 GB/s", "latency": latency}
    cluster["intra_node_topology"] = draw(st.sampled_from(["switch", "mesh"]))
    work = {"cpu_per_message": draw(st.sampled_from(["0 s", "5 us"])), "copy_per_byte_s": draw(st.sampled_from([0.0, 1e-10]))}
    # without turns and random weights: messages of equal size that set out together, as to both neighbours, would decide those by chance
    cluster["transport"] = work if draw(st.booleans()) else {}
    adding = not cluster["transport"] and cluster["intra_node_topology"] == "switch"
    if adding:
        cluster |= {"rails": draw(st.sampled_from([1, per_node])), "nics_per_node": per_node, "nvls": {}}
        leaves = {"nodes_per_leaf": draw(st.integers(1, 3)), "oversubscription": draw(st.sampled_from([1.0, 4.0])), "latency": latency}
        cluster["fabric"] = {**leaves, "sharp": True, "rail_optimised": draw(st.booleans())}
    strategy = {"kind": "multi-worker-mirrored", "workers": -(-ranks // per_node)}
    if per_node > 1:
        ranks = strategy["workers"] * per_node
        strategy["replicas_per_worker"] = per_node
    table = scenario_table(cluster=cluster, strategy=strategy, run={"steps": STEPS, "warmup_steps": 0})
    table["workload"] |= {"forward": {"base": "1 s", "per_sample": "0 s"}, "apply": "0 s"}
    built = scenario_from_table(table, "test")

    numbers = draw(st.permutations(range(ranks)))
    group = Group(tuple(numbers), tuple(rank // per_node for rank in numbers))
    plans, sizes = [], []
    for _ in range(draw(st.integers(1, 3))):
        one_way = [pair for pair in AMONG_RANKS if pair[1] == "ring"]  # messages of equal size would come to a host together
        kinds = [*PAIRS, *CHAINS] if adding else one_way if cluster["transport"] else AMONG_RANKS
        operation, algorithm = draw(st.sampled_from(sorted(kinds)))
        root = draw(st.integers(0, ranks - 1)) if (operation, algorithm) in CHAINS else 0
        protocol = draw(st.sampled_from(["none", "none", "ll"])) if algorithm not in IN_SWITCHES else "none"
        size = draw(st.sampled_from([0.0, 1e5, 1e6, 1e6, 123456.7]))
        if cluster["transport"]:  # else messages of two buckets come to a host together
            size = max(size, 1e5) * (1.0 + 0.0137 * len(sizes))
        plan = plan_of(operation, algorithm, protocol, built.cluster, group, lambda: wiring_of(built), 3e5, size, root)
        event(f"{operation} by {algorithm}")
        plans.append(plan)
        sizes.append(size)
    # one bucket may be as another, and then shares its tables
    if draw(st.booleans()):
        plans.append(plans[0])
        sizes.append(draw(st.sampled_from([1e5, 2e5])))
    times = st.sampled_from([0.0, 0.0, 1e-4, 1e-3, 0.00123])
    times_s = [[draw(times) + 1.37e-6 * (rank + 1) / (bucket + 2) for bucket in range(len(sizes))] for rank in range(ranks)]
    return built, program_of(built, plans, sizes, np.array(times_s))


def _routine(times_s: list[float], sizes: list[float]) -> Routine:
    operations = [Operation(kind="gate", name="turn"), Operation(kind="gate", name="input", after=(0,))]
    reduced = []
    for bucket, (time_s, size) in enumerate(zip(times_s, sizes, strict=True)):
        operations.append(Operation(kind="compute", name="forward", after=() if bucket else (1,), forward=time_s))
        reduced.append(len(operations))
        after = (len(operations) - 1,)
        operations.append(Operation(kind="collective", name=str(bucket), after=after, size_bytes=size, bucket=bucket))
    operations.append(Operation(kind="compute", name="apply", after=tuple(reduced), apply=1.0))
    return Routine(tuple(operations))


def by(engine: Callable[..., object], built: Scenario, program: Program) -> Measured:
    recorder = Recorder(built.replicas, 0, built.run.total_steps(built.replicas), apart=False)
    engine(program, Draws(resolve(built), Streams(built.run.seed, 0)), recorder)
    return recorder.measured


def assert_equal(built: Scenario, program: Program) -> None:
    """Both measure the same."""
    witness = by(lambda *given: textbook.run(*given, None, None, None), built, program)
    compiled = by(lambda *given: run(*given, None, STEPS), built, program)
    assert disagreement(witness, compiled) is None


@pytest.mark.slow
@examples(60, few=60)
@given(programs())
def test_random_collectives(case: tuple[Scenario, Program]) -> None:
    assert_equal(*case)


def of_schedules(built: Scenario, schedules: list[Schedule], sizes: list[float], times_s: np.ndarray) -> Program:
    """A collective for each bucket; ``times_s``: compute of each rank before each bucket."""
    wire = collective_for("ring", "none", built.cluster, Group.in_order(built.replicas, 1), lambda: wiring_of(built), 1.0).plan(0.0).wire
    return program_of(built, [Plan(schedule, wire) for schedule in schedules], sizes, times_s)


def program_of(built: Scenario, plans: list[Plan], sizes: list[float], times_s: np.ndarray) -> Program:
    """A plan for each bucket; ``times_s``: compute of each rank before each bucket."""
    wiring = wiring_of(built)
    exchanges = exchanges_of(wiring, plans, sizes)
    ports, links, paths, hosts = wiring.tables()
    plain = compile_program(resolve(built))
    routines = tuple(_routine(each, sizes) for each in times_s.tolist())
    ranks = replace(plain.ranks, routine=np.arange(built.replicas))
    return replace(plain, ports=ports, links=links, paths=paths, hosts=hosts, exchanges=exchanges, routines=routines, ranks=ranks)


def small(ranks: int, **cluster: Any) -> Scenario:
    strategy = {"kind": "multi-worker-mirrored", "workers": ranks}
    table = scenario_table(strategy=strategy, cluster=cluster, run={"steps": STEPS, "warmup_steps": 0})
    table["workload"] |= {"forward": {"base": "1 s", "per_sample": "0 s"}, "apply": "0 s"}
    return scenario_from_table(table, "test")


def test_nobody_sends_to_who_is_two_buckets_behind() -> None:
    """A root is done with broadcasts that the end of its chain has not entered yet, and sends it nothing of an all-reduce before it has."""
    schedules = [chain_schedule(5, 5, root=2), chain_schedule(5, 5, root=2), ring_schedule(5, both=True)]
    times_s = np.zeros((5, 3))
    times_s[1] = 1.0, 0.1, 0.1  # the end of the chain, which the counter-clockwise ring sends to first
    built = small(5)
    program = of_schedules(built, schedules, [5e6] * 3, times_s)
    assert_equal(built, program)


@pytest.mark.parametrize("pieces", [3, 2000])
def test_a_root_that_sends_all_at_once(pieces: int) -> None:
    """A broadcast's root may send every piece as soon as it has the data: there is room for them."""
    built = small(3)
    program = of_schedules(built, [chain_schedule(3, pieces)], [1e6], np.zeros((3, 1)))
    assert program.exchanges[0].tables.messages.tolist() == [pieces, pieces]
    assert_equal(built, program)


def test_an_alarm_that_is_set_a_rounding_before_one_that_has_gone_off() -> None:
    """Messages of no bytes end as they begin, in the same instant as others whose end lies a rounding later: none may be forgotten."""
    built = small(6, inter_node={"bandwidth": "1 GB/s", "latency": "20 us"})
    group = Group.in_order(6, 1)
    plans = [
        plan_of(operation, algorithm, protocol, built.cluster, group, lambda: wiring_of(built), 3e5, size)
        for operation, algorithm, protocol, size in (("all-gather", "bidirectional-ring", "ll", 1e6), ("all-reduce", "ring", "none", 0.0))
    ]
    times_s = [6.85e-7, 1.0137e-4, 2.055e-6, 1.23274e-3, 1.003425e-3, 1.00411e-3]
    then_s = [1.0004566666666668e-3, 9.133333333333333e-7, 1.0137e-4, 1.8266666666666666e-6, 1.0228333333333334e-4, 1.23274e-3]
    assert_equal(built, program_of(built, plans, [1e6, 0.0], np.array([times_s, then_s]).T))
