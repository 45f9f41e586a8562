"""Several groups of ranks that reduce at once: random partitions on both engines, everything equal to the last bit; a closed form."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from oracles.programs.collectives import (
    collectives_say_when_they_go_on,
    exchanges_carry_the_buckets,
    gradients_enter_one_bucket,
    groups_agree,
    groups_divide_the_ranks,
)
from oracles.programs.messages import what_departs_lands
from oracles.programs.structure import steps_begin_and_end
from support.engines import disagreement
from support.examples import examples
from support.networks import CHAINS, PAIRS, plan_of, wiring_of
from support.scenarios import scenario_table

from simulator import scenario_from_table, simulate
from simulator.base.errors import InvariantError, SimulationError
from simulator.base.rng import Streams
from simulator.collectives.factory import IN_SWITCHES, collective_for
from simulator.collectives.wire import Group, Plan, exchanges_of, exchanges_of_groups
from simulator.engine.draws import Draws
from simulator.engine.replication import Run
from simulator.program.printing import Printed, tables_of
from simulator.program.program import Exchange, Integers, Operation, Program, Routine
from simulator.program.schedule import Does
from simulator.resolve.drawing import compile_program
from simulator.resolve.resolve import resolve
from simulator.scenario import Scenario

STEPS = 2

AMONG_RANKS = sorted(pair for pair in (*PAIRS, *CHAINS) if pair[1] not in IN_SWITCHES)


class Records(list[Any]):
    """An observer that keeps all it is told."""

    def record(self, record: Any) -> None:
        self.append(record)


def scenario(ranks: int, jitter: float = 0.0, **cluster: Any) -> Scenario:
    """So many workers of one device each, whose forward pass takes 1 s."""
    table = scenario_table(
        cluster={"inter_node": {"bandwidth": "1 GB/s", "latency": "0 s"}, **cluster},
        strategy={"kind": "multi-worker-mirrored", "workers": ranks},
        run={"steps": STEPS, "warmup_steps": 0},
    )
    table["workload"] |= {"forward": {"base": "1 s", "per_sample": "0 s"}, "apply": "0 s"}
    if jitter:
        table["workload"]["jitter"] = {"kind": "lognormal", "sigma": jitter}
    return scenario_from_table(table, "test")


Reduced = tuple[Does, str, float]
"""Operation, algorithm and bytes."""


def program_of(built: Scenario, partitions: list[list[tuple[list[int], list[Reduced]]]], routines: list[list[Any]]) -> Program:
    """A program.

    Parameters
    ----------
    partitions
        Of each its groups, with what each does; the number of that may differ.
    routines
        Of each rank what it does: seconds of compute, or the partition whose next collective it enters, and what that waits
        for: the compute before, or the collective before as well.
    """
    wiring = wiring_of(built)
    groups: list[Integers] = []
    partition: list[int] = []
    exchanges: list[Exchange] = []
    reduced: dict[tuple[int, int], list[Reduced]] = {}
    for of, its in enumerate(partitions):
        for ranks, does in its:
            number = len(groups)
            group = Group(ranks, ranks)
            plans: list[Plan] = []
            for operation, algorithm, size_bytes in does:
                plans.append(plan_of(operation, algorithm, "none", built.cluster, group, lambda: wiring_of(built), 3e5, size_bytes))
            reduced |= {(of, rank): does for rank in ranks}
            groups.append(np.array(ranks, dtype=np.int32))
            partition.append(of)
            exchanges += exchanges_of(wiring, plans, [size_bytes for *_, size_bytes in does], number)
    ports, links, paths, hosts = wiring.tables()
    plain = compile_program(resolve(built))
    made = tuple(_routine(its, [reduced[of, rank] for of in range(len(partitions))]) for rank, its in enumerate(routines))
    return replace(
        plain, ports=ports, links=links, paths=paths, hosts=hosts, groups=tuple(groups), partition=tuple(partition),
        exchanges=tuple(exchanges), routines=made, ranks=replace(plain.ranks, routine=np.arange(built.replicas)),
    )  # fmt: skip


def _routine(does: list[Any], of_rank: list[list[Reduced]]) -> Routine:
    sizes = [[size_bytes for *_, size_bytes in its] for its in of_rank]
    does_of: list[list[Any]] = [[operation for operation, *_ in its] for its in of_rank]
    operations = [Operation(kind="gate", name="turn"), Operation(kind="gate", name="input", after=(0,))]
    entered = [0] * len(sizes)
    reduced: list[int] = []
    computed, waits = 1, cast(tuple[int, ...], ())
    for each in does:
        if isinstance(each, float):
            operations.append(Operation(kind="compute", name="forward", after=waits or (() if computed > 1 else (1,)), forward=each))
            computed, waits = len(operations) - 1, ()
            continue
        of, blocks = each
        collective = Operation(kind="collective", name=f"{of} {entered[of]}", after=(computed,), size_bytes=sizes[of][entered[of]],
                               does=does_of[of][entered[of]], partition=of, bucket=entered[of], departs=True, lands=True)  # fmt: skip
        entered[of] += 1
        reduced.append(len(operations))
        if blocks:
            waits = (len(operations),)
        operations.append(collective)
    operations.append(Operation(kind="compute", name="apply", after=tuple(reduced), apply=1.0))
    return Routine(tuple(operations))


def runs(built: Scenario, program: Program, observed: bool) -> list[tuple[Any, Records]]:
    """By SimPy, then by the compiled engine."""
    found = []
    for engine in ("simpy", "compiled"):
        told, streams = Records(), Streams(built.run.seed, 0)
        run = Run(built, streams, program, Draws(resolve(built), streams), None, told if observed else None)
        found.append((getattr(run, engine)(), told))
    return found


def assert_equal(built: Scenario, program: Program) -> None:
    """Both measure the same, whether or not somebody observes."""
    for observed in (False, True):
        (witness, _), (compiled, _) = runs(built, program, observed)
        assert disagreement(witness, compiled) is None


@st.composite
def programs(draw: st.DrawFn) -> tuple[Scenario, Program]:
    """Ranks in random groups of one to three partitions."""
    ranks = draw(st.integers(2, 8))
    fabric: dict[str, Any] = draw(st.sampled_from([{}, {"fabric": {"nodes_per_leaf": 2, "oversubscription": 2.0}}]))
    slowdown: dict[str, Any] = draw(st.sampled_from([{}, {}, {"overlap_slowdown": 0.5}]))
    built = scenario(ranks, draw(st.sampled_from([0.0, 0.3])), **fabric, **slowdown)
    partitions = []
    for _ in range(draw(st.integers(1, 3))):
        order = draw(st.permutations(range(ranks)))
        cuts = sorted({0, ranks, *draw(st.lists(st.integers(1, ranks - 1), max_size=3))})
        its = []
        for first, last in pairwise(cuts):
            does = []
            for _ in range(draw(st.integers(1, 3))):
                kinds = [kind for kind in AMONG_RANKS if last - first > 1 or kind == ("all-reduce", "ring")]
                does.append((*draw(st.sampled_from(kinds)), draw(st.sampled_from([0.0, 1e5, 1e6, 123456.7]))))
                event(f"{does[-1][0]} by {does[-1][1]}")
            its.append((list(order[first:last]), does))
        partitions.append(its)
    times = st.sampled_from([0.0, 1e-4, 1e-3, 0.00123])
    turns = draw(st.permutations([of for of in range(len(partitions)) for _ in range(3)]))
    routines: list[list[Any]] = []
    blocks = draw(st.booleans())
    for rank in range(ranks):
        mine_s = 1.37e-6 * (rank + 1)  # so that no two ranks do anything in the same instant
        left = [next(len(does) for group, does in its if rank in group) for its in partitions]
        routine: list[Any] = [draw(times) + mine_s]
        for of in turns:  # in the same order on all ranks, so that none waits for one that waits for it
            if left[of]:
                left[of] -= 1
                routine += [(of, blocks), draw(times) + mine_s / (2 + of)] if draw(st.booleans()) else [(of, False)]
        routines.append(routine)
    return built, program_of(built, partitions, routines)


@pytest.mark.slow
@examples(80)
@given(programs())
def test_random_groups(case: tuple[Scenario, Program]) -> None:
    assert_equal(*case)


TENSORS = [[0, 1], [2, 3], [4, 5], [6, 7]]
COPIES = [[0, 2, 4, 6], [1, 3, 5, 7]]
"""Eight ranks: four groups that hold the shards of a tensor, two of the ranks that hold the same shard."""


def partitions_of(copies: list[Reduced], tensors: list[Reduced]) -> list[list[tuple[list[int], list[Reduced]]]]:
    """Partition 0 has the ranks that hold the same shard, partition 1 those that hold shards of one tensor."""
    return [[(ranks, copies) for ranks in COPIES], [(ranks, tensors) for ranks in TENSORS]]


@pytest.mark.parametrize("jitter", [0.0, 0.3])
def test_tensor_and_data_groups_at_once(jitter: float) -> None:
    """Activations within the passes, gradients at their end, over a leaf's link that all share; the forward pass waits."""
    built = scenario(8, jitter, fabric={"nodes_per_leaf": 4, "oversubscription": 2.0})
    partitions = partitions_of([("all-reduce", "ring", 4e6)] * 2, [("all-reduce", "ring", 1e6), ("all-gather", "ring", 2e6)])
    does = [0.5e-3, (1, True), 0.5e-3, (0, False), (1, True), 1e-3, (0, False)]
    program = program_of(built, partitions, [does] * 8)
    assert_equal(built, program)
    (_, told), _ = runs(built, program, observed=True)
    chunks = [each for each in told if type(each).__name__ == "Transfer"]
    assert {each.name.split(" bucket")[0] for each in chunks} == {f"group {number}" for number in range(6)}
    for each in chunks:
        number = int(each.name.split()[1])
        assert {each.source.number, each.target.number} <= set(([*COPIES, *TENSORS])[number])


@pytest.mark.parametrize("engine", [0, 1])
def test_groups_that_share_links_take_as_long_as_their_bytes(engine: int) -> None:
    """Two partitions of pairs cross one leaf's uplink: with so little of it, it alone decides.

    Four pairs across the leaves send S/2 of a buffer each way twice; the two halves of the
    ring follow one another. Alone, 4 x S/2 bytes cross the uplink at a time, and both
    halves take 2 x 4 S/2 / B. With a second partition at the same time, of other pairs,
    twice as many bytes share it: twice as long for all, as each gets an eighth of B.
    """
    size_bytes, uplink = 8e6, 4 * 1e9 / 16
    built = scenario(8, fabric={"nodes_per_leaf": 4, "oversubscription": 16.0})
    across = [[0, 4], [1, 5], [2, 6], [3, 7]], [[0, 5], [1, 6], [2, 7], [3, 4]]
    alone_s = 2 * 4 * (size_bytes / 2) / uplink
    for partitions, wanted_s in ((across[:1], alone_s), (across, 2 * alone_s)):
        its = [[(pair, [("all-reduce", "ring", size_bytes)]) for pair in pairs] for pairs in partitions]
        program = program_of(built, its, [[0.001, *((of, False) for of in range(len(its)))]] * 8)
        measured, _ = runs(built, program, observed=False)[engine]
        compute_s = 0.001 + 0.0
        assert measured.window_s / STEPS == pytest.approx(compute_s + wanted_s, rel=1e-9)
        share_s = measured.parts_s / measured.steps
        assert share_s[:3] == pytest.approx([0.0, compute_s, wanted_s], rel=1e-9)


@pytest.mark.parametrize("engine", [0, 1])
@pytest.mark.parametrize("blocks", [False, True])
def test_what_is_computed_beside_a_collective_is_hidden(engine: int, blocks: bool) -> None:
    """A pass of 1 ms, an all-reduce of S / B seconds among two, and a pass of 2 ms, which begins beside it or waits for it.

    One rank's first pass takes 5 ms more, which the other waits for. A rank waits until
    the last has entered; while it does it may compute.
    """
    built = scenario(2)
    program = program_of(built, [[([0, 1], [("all-reduce", "ring", 2e7)])]], [[1e-3, (0, blocks), 2e-3], [6e-3, (0, blocks), 2e-3]])
    measured, _ = runs(built, program, observed=False)[engine]
    input_s, compute_s, communication_s, waiting_s, apply_s = (measured.parts_s / measured.steps).tolist()
    assert (input_s, apply_s) == (0.0, 0.0)
    assert compute_s == pytest.approx((3e-3 + 8e-3) / 2, rel=1e-9)
    assert waiting_s == pytest.approx(5e-3 / 2, rel=1e-9)
    assert measured.window_s / STEPS == pytest.approx(6e-3 + 2e-2 + (2e-3 if blocks else 0.0), rel=1e-9)
    # what is left is communication: that which is not hidden, less what was computed while waiting
    assert communication_s == pytest.approx(measured.window_s / STEPS - compute_s - waiting_s, rel=1e-9)
    assert measured.hidden_s / measured.steps == pytest.approx(0.0 if blocks else 2e-3, rel=1e-9, abs=1e-15)


def test_groups_of_other_sizes_side_by_side() -> None:
    """A partition whose groups differ in size, algorithm and number of buckets, and a rank that is alone in its group."""
    built = scenario(7)
    many: list[Reduced] = [("all-reduce", "ring", 1e6), ("reduce-scatter", "ring", 1e6), ("all-gather", "ring", 1e6)]
    groups = [([3, 0, 5], many), ([1, 6, 2], [("all-reduce", "double-binary-tree", 2e6)]), ([4], [("all-reduce", "ring", 1e6)] * 2)]
    counts = [next(len(does) for ranks, does in groups if rank in ranks) for rank in range(7)]
    program = program_of(built, [groups], [[1e-3, *[(0, True), 1e-3] * count] for count in counts])
    assert_equal(built, program)


def test_groups_of_one_shape_have_the_messages_of_one() -> None:
    """What stands beside a group gets the same schedule over its own ranks."""
    built = scenario(8)
    groups = [Group(ranks, ranks) for ranks in COPIES]
    some = collective_for("ring", "none", built.cluster, groups[0], lambda: wiring_of(built), 3e5, beside=(groups[1],))
    wiring = wiring_of(built)
    of_both = exchanges_of_groups(wiring, [some.plan(1e6)], [1e6], 4)
    assert [its.group for its in of_both] == [4, 5]
    assert of_both[0].tables is of_both[1].tables
    ports, _, paths, _ = wiring.tables()
    for ranks, its in zip(COPIES, of_both, strict=True):
        for lane, path in enumerate(its.path.tolist()):
            ends = (ranks[int(its.tables.source[lane])], ranks[int(its.tables.target[lane])])
            crossed = [str(ports.names[port]) for port in paths.port[paths.first[path] : paths.first[path + 1]]]
            assert (crossed[0], crossed[-1]) == (f"node {ends[0]} out", f"node {ends[1]} in")


def test_what_several_groups_do_is_not_computed_at_once() -> None:
    built = scenario(8)
    program = program_of(built, partitions_of([("all-reduce", "ring", 4e6)], []), [[1e-3, (0, False)]] * 8)
    streams = Streams(built.run.seed, 0)
    with pytest.raises(SimulationError, match=r'6 groups of ranks .* only simulated with run.detail = "messages": set it$'):
        Run(built, streams, replace(program, exchanges=()), Draws(resolve(built), streams), None, None)


# -- laws and print ----------------------------------------------------------------------


def both(**changed: Any) -> Program:
    """Tensor and data groups; ``changed``: of the program."""
    built = scenario(8)
    copies: list[Reduced] = [("all-reduce", "ring", built.workload.parameter_bytes / 2)]
    program = program_of(built, partitions_of(copies, [("all-gather", "ring", 1e6)]), [[0.5, (1, True), 0.5, (0, False)]] * 8)
    return replace(program, ranks=replace(program.ranks, copy=np.arange(8) // 2), **changed)


INVARIANTS = [groups_divide_the_ranks, groups_agree, collectives_say_when_they_go_on, what_departs_lands, gradients_enter_one_bucket,
        exchanges_carry_the_buckets, steps_begin_and_end]  # fmt: skip


def changed(program: Program, rank: int, name: str, **values: Any) -> Program:
    """Another operation of one rank."""
    routine = program.routines[rank]
    operations = tuple(replace(its, **values) if its.name == name else its for its in routine.operations)
    routines = [*program.routines[:rank], replace(routine, operations=operations), *program.routines[rank + 1 :]]
    return replace(program, routines=tuple(routines))


def test_groups_obey_the_laws() -> None:
    for law in INVARIANTS:
        law(both(), scenario(8))


FAULTS = {
    "a rank in two groups": (groups_divide_the_ranks, lambda its: replace(its, groups=(np.array([0, 2, 4, 6, 1]), *its.groups[1:]))),
    "a rank in none": (groups_divide_the_ranks, lambda its: replace(its, groups=(np.array([0, 2, 4]), *its.groups[1:]))),
    "a partition that is not there": (groups_divide_the_ranks, lambda its: changed(its, 3, "0 0", partition=2)),
    "a rank that reduces less than its group": (groups_agree, lambda its: changed(its, 3, "1 0", size_bytes=5e5)),
    "a collective that nobody says goes on": (collectives_say_when_they_go_on, lambda its: changed(its, 3, "1 0", departs=False)),
    "a copy that reduces too little": (
        gradients_enter_one_bucket, lambda its: changed(changed(its, 3, "0 0", size_bytes=1.0), 2, "0 0", size_bytes=1.0)
    ),
    "shards of one copy that are averaged": (
        gradients_enter_one_bucket, lambda its: replace(its, ranks=replace(its.ranks, copy=np.arange(8) % 4))
    ),
    "messages of one group too few": (exchanges_carry_the_buckets, lambda its: replace(its, exchanges=its.exchanges[:-1])),
    "messages over another's links": (
        exchanges_carry_the_buckets, lambda its: replace(its, exchanges=(replace(its.exchanges[0], path=its.exchanges[1].path),
                                                                          *its.exchanges[1:]))
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_laws_catch(fault: str) -> None:
    law, tamper = FAULTS[fault]
    with pytest.raises(InvariantError, match=f"law of programs broken: {law.__name__}: "):
        law(tamper(both()), scenario(8))


def test_groups_are_printed() -> None:
    program = both()
    printed = Printed("hash", program, 1.0, 1.0, 0.0, np.ones(8), {})
    listings = {its.title: its for its in tables_of(printed)}
    groups = next(its for title, its in listings.items() if title.startswith("Groups of ranks"))
    assert groups.columns == ("partition", "group", "ranks", "which")
    assert [row[:3] for row in groups.rows] == [("0", "0", "4"), ("0", "1", "4"), *(("1", f"{number}", "2") for number in range(2, 6))]
    routine = next(its for title, its in listings.items() if title.startswith("Routine 0"))
    whats = [row[-1] for row in routine.rows if row[1] == "collective"]
    assert [what.split(",")[0] for what in whats] == [
        "all-gather in the group of partition 1", "all-reduce in the group of partition 0"
    ]  # fmt: skip


@pytest.mark.parametrize("which", [0, 1])
def test_devices_that_split_tensors_message_by_message_take_as_long_as_taken_together(which: int) -> None:
    """Two copies of two devices on two nodes: by a program in which every device sends its messages, and by the strategy that takes
    those that split tensors as one, whose data-parallel groups share the nodes' links."""
    activations, gradients = 4e6, 2e7
    between, inside = {"bandwidth": "1 GB/s", "latency": "20 us"}, {"bandwidth": "10 GB/s", "latency": "3 us"}
    built = scenario(4, devices_per_node=2, inter_node=between, intra_node=inside)
    tensors, copies = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
    partitions = [
        [(ranks, [("all-reduce", "ring", gradients / 2)]) for ranks in copies],
        [(ranks, [("all-reduce", "ring", activations)] * 2) for ranks in tensors],
    ]
    program = program_of(built, partitions, [[0.05, (1, True), 0.1, (1, True), 0.0, (0, True), 0.0]] * 4)
    measured, _ = runs(built, program, observed=False)[which]
    layer = {"name": "all", "forward": 1.0, "variables": [0], "output_bytes_per_sample": 0.0}
    exchanged = {"forward_bytes_per_sample": [activations / 10], "backward_bytes_per_sample": [activations / 10]}
    table = scenario_table(
        workload={
            "forward": {"base": "100 ms", "per_sample": "0 s"},
            "backward": {"base": "200 ms", "per_sample": "0 s"},
            "apply": "0 s",
            "variables": [{"name": "kernel", "size_bytes": gradients, "creation_index": 0, "ready": 1.0}],
            "layers": [{**layer, "tensor": exchanged}],
        },
        cluster={"devices_per_node": 2, "inter_node": between, "intra_node": inside},
        strategy={"kind": "hybrid", "workers": 4, "tensor": 2},
    )
    together = simulate(scenario_from_table(table, "test"))
    assert together.step_time_s.mean == pytest.approx(measured.window_s / STEPS, rel=1e-9)
