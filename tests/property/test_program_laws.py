"""Every law of programs finds the fault that it is there for: programs that were tampered with, one fault at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from oracles.programs import PROGRAM_INVARIANTS, check_program
from support.scenarios import scenario_table

from simulator import Scenario, scenario_from_table
from simulator.base.errors import InvariantError
from simulator.program.program import Asynchronous, Client, Cores, Operation, Program
from simulator.resolve.drawing import compile_program
from simulator.resolve.resolve import resolve
from simulator.spec.transport import Transport

BY_NAME = {law.__name__: law for law in PROGRAM_INVARIANTS}
VARIABLES = [{"name": f"v{i}", "size_bytes": 1e6 * (i + 1), "creation_index": 2 - i, "ready": (1 + i) / 3} for i in range(3)]


def built(cluster: dict[str, Any] | None = None, pipeline: dict[str, Any] | None = None, **strategy: Any) -> Scenario:
    load = {"server": {"base_s": 1e-4, "per_byte_s": 1e-10}, "variables": VARIABLES, "input_bytes_per_sample": 1e4}
    own = {} if pipeline is None else {"input": pipeline}
    return scenario_from_table(scenario_table(workload=load, cluster=cluster or {}, strategy=strategy, **own), "test")


LAW = {"base_s": 1e-3, "per_sample_s": 1e-4}
PS: dict[str, Any] = {"kind": "parameter-server", "workers": 3, "servers": 2}
RING: dict[str, Any] = {"kind": "multi-worker-mirrored", "workers": 4, "bucket_size": "2 MB"}
SCENARIOS = {
    "async": built(**PS, mode="async"),
    "sync": built(**PS, mode="sync", backup_workers=1),
    "fed": built(**PS, mode="async", replication="in-graph"),
    "copied": built({"host_link": {"bandwidth": "8 GB/s"}}, **PS, mode="async"),
    "on devices": built({"device_is_host": True}, **PS, mode="async", server_placement="colocated"),
    "ring": built(**RING),
    "local": built(kind="multi-worker-mirrored", workers=4, sync_every=2),
    "messages": built({"inter_node": {"bandwidth": "1 GB/s", "latency": "20 us"}}, **RING, detail="messages"),
    "coordinated": built(**PS, mode="async", coordinator={"dispatch": "1 ms", "latency": "2 ms"}),
    "inside": built({"devices_per_node": 2}, kind="gossip", workers=4),
    "worked on": built({"transport": {"cpu_per_message": "10 us"}}, **PS, mode="async"),
    "gossip": built(kind="gossip", workers=4),
    "pipelines": built(
        {"devices_per_node": 2, "host_cores": 2, "storage": {"bandwidth": "1 GB/s"}},
        {"work": {"serial": LAW, "parallel": LAW, "read_bytes_per_sample": 1e3}, "parallel_calls": 2, "per": "replica"},
        kind="gossip",
        workers=4,
    ),
    "pipelines apart": built({}, {"work": {"serial": LAW}, "per": "replica"}, **RING),
}

Fault = Callable[[Program], Program]


def with_operations(program: Program, operations: list[Operation]) -> Program:
    (routine,) = program.routines
    return replace(program, routines=(replace(routine, operations=tuple(operations)),))


def number_of(operations: list[Operation], which: str | int) -> int:
    """The first operation whose kind and name begin so."""
    if isinstance(which, int):
        return which
    return next(number for number, its in enumerate(operations) if f"{its.kind} {its.title}".startswith(which))


def change(which: str | int, **values: Any) -> Fault:
    """Set fields of an operation; what can be called gets the operation, and numbers of others are looked up by their names."""

    def tamper(program: Program) -> Program:
        operations = list(program.routines[0].operations)
        number = number_of(operations, which)
        its = operations[number]
        fresh = {key: value(its) if callable(value) else value for key, value in values.items()}
        if "after" in fresh:
            fresh["after"] = tuple(number_of(operations, one) for one in fresh["after"])
        operations[number] = replace(its, **fresh)
        return with_operations(program, operations)

    return tamper


def more(which: str, **values: Any) -> Fault:
    """An operation once more, at the end, with other values."""

    def tamper(program: Program) -> Program:
        operations = list(program.routines[0].operations)
        return with_operations(program, [*operations, replace(operations[number_of(operations, which)], **values)])

    return tamper


def ranks(**columns: Callable[[np.ndarray], np.ndarray]) -> Fault:
    """Change columns of the ranks."""
    return lambda program: replace(
        program, ranks=replace(program.ranks, **{key: value(getattr(program.ranks, key).copy()) for key, value in columns.items()})
    )


def rules(**values: Any) -> Fault:
    """Change rules; what can be called gets the rule."""

    def tamper(program: Program) -> Program:
        fresh = {key: value(getattr(program.rules, key)) if callable(value) else value for key, value in values.items()}
        return replace(program, rules=replace(program.rules, **fresh))

    return tamper


def tables(which: str, **columns: Callable[[np.ndarray], np.ndarray]) -> Fault:
    """Change columns of ports, paths or servers."""

    def tamper(program: Program) -> Program:
        table = getattr(program, which)
        return replace(program, **{which: replace(table, **{key: value(getattr(table, key).copy()) for key, value in columns.items()})})

    return tamper


def put(place: Any, value: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Set one value of a column."""

    def changed(column: np.ndarray) -> np.ndarray:
        column[place] = value
        return column

    return changed


def swapped(one: Any, other: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Exchange two values of a column."""

    def changed(column: np.ndarray) -> np.ndarray:
        column[one], column[other] = column[other].copy(), column[one].copy()
        return column

    return changed


def shuffled(first: int, last: int) -> Fault:
    """Have operations of a routine begin in an order that is drawn."""
    return lambda program: replace(program, routines=(replace(program.routines[0], shuffled=(first, last)),))


def exchanges(**columns: Callable[[np.ndarray], np.ndarray]) -> Fault:
    """Change columns of the first bucket's messages."""

    def tamper(program: Program) -> Program:
        first, *others = program.exchanges
        fresh = {key: value(getattr(first, key).copy()) for key, value in columns.items()}
        return replace(program, exchanges=(replace(first, **fresh), *others))

    return tamper


def half(its: Operation) -> float:
    """Half of its bytes."""
    return its.size_bytes / 2


def one_less(its: Operation) -> float:
    """A byte less."""
    return its.size_bytes - 1


FAULTS: dict[str, dict[str, tuple[str, Fault]]] = {
    "tables_fit_together": {
        "a path over a port that is not there": ("async", tables("paths", port=put(0, 99))),
        "a port that carries nothing": ("async", tables("ports", capacity=put(1, 0.0))),
        "a rank on a device that is not there": ("ring", ranks(device=put(3, 4))),
        "a copy that nobody is": ("ring", ranks(copy=put(0, 9))),
        "a seat on another's device": ("on devices", ranks(seat=put(0, 0))),
        "two ranks on one device": ("ring", ranks(device=put(3, 2))),
        "fewer copies than replicas": ("ring", ranks(copy=put(3, 2))),
        "a server's seat on a link": ("on devices", tables("servers", seat=put(0, 0))),
    },
    "steps_begin_and_end": {
        "an operation after one that is not there": ("async", change("gate update", after=(99,))),
        "an operation after nothing": ("ring", change("collective", after=())),
        "a cycle": ("async", change("send pull 0", after=("send push 0",))),
        "a cycle by the order of computes": ("ring", change("compute forward", after=("collective all-reduce 0",))),
        "a step that begins in its middle": ("ring", change(0, name="input")),
        "computes in an order that is drawn": ("ring", shuffled(2, 4)),
    },
    "gates_have_rules": {
        "an update before the last server": ("async", change("gate update", after=("serve apply 0", "serve apply 1"))),
        "a client and nobody who asks it": ("fed", rules(client=Client(1e-3))),
        "a gate that nobody knows": ("async", change("gate input", name="lunch")),
        "a pass that does not wait for its batch": ("async", change("compute forward", after=("send pull 0",))),
        "two batches": ("fed", change("send pull 0", feeds=True)),
        "no batch": ("fed", change("send input", feeds=False)),
        "half a batch": ("fed", change("send input", size_bytes=half)),
        "a batch from a server": ("async", change("send pull 0", feeds=True)),
    },
    "passes_are_whole": {
        "half a forward pass": ("async", change("compute forward", forward=0.0)),
        "a backward pass and a half": ("ring", change("compute backward", backward=lambda its: its.backward + 0.5)),
        "a share below nothing": ("ring", change("compute apply", forward=-0.5)),
        "forward after backward": (
            "ring",
            lambda program: change("compute forward", forward=0.5)(change("compute apply", forward=0.5)(program)),
        ),
        "a rank that updates what servers do": ("sync", change("compute forward", apply=1.0)),
        "a gradient that waits for the next compute as well": ("async", change("compute forward and backward", joins=True)),
        "a last compute that joins another": ("ring", change("compute apply", joins=True)),
    },
    "messages_go_where_they_say": {
        "a push to the wrong server's link": ("async", change("send push 0", slot=lambda its: 5 - its.slot)),
        "a pull that comes as a push goes": ("async", change("send pull 0", slot=lambda its: its.slot + 2)),
        "a rank that uses its neighbour's link": ("async", ranks(path=swapped((0, 2), (1, 2)))),
        "a copy out of the device that goes in": ("copied", change("send from device", slot=lambda its: its.slot - 1)),
        "a message without a path": ("async", ranks(path=put((2, 0), -1))),
        "a message that is late": ("async", tables("paths", latency_s=put(0, 1e-3))),
        "a pull that nobody asked for": ("async", tables("paths", asked_for=lambda column: ~column)),
    },
    "what_departs_lands": {
        "a push that never lands": ("async", change("send push 1", lands=False)),
        "a copy that lands and has not departed": ("copied", change("send from device 0", departs=False)),
        "a copy that departs twice": ("copied", change("send push 0", departs=True)),
    },
    "what_is_sent_to_ranks_is_received": {
        "a message that nobody receives": ("gossip", change("receive variables 0", channel=1)),
        "a message to oneself": ("gossip", ranks(peer=put((0, 0), 0))),
        "half of the variables": ("gossip", change("send variables 0", size_bytes=half)),
        "an update that does not wait for a neighbour": ("gossip", change("compute apply", after=("receive variables 0",))),
        "a message to a server on a channel": ("async", change("send push 0", channel=0)),
    },
    "gradients_reach_their_server_once": {
        "a gradient served twice": ("async", more("serve apply 0")),
        "a gradient not served": ("sync", change("serve accumulate 1", tensor=0)),
        "a gradient at another server": ("async", change("serve apply 0", server=lambda its: 1 - its.server)),
        "a byte lost": ("async", change("send push 2", size_bytes=one_less)),
        "a byte lost on the way to the host": ("copied", change("send from device 1", size_bytes=one_less)),
        "a gradient that leaves early": ("async", change("send push 2", after=("compute forward and backward",))),
        "one message for two gradients": ("async", change("serve apply 2", after=("send push 0",))),
        "a gradient sent once more": ("async", more("send push 0")),
        "a service without servers": ("ring", more("gate input", kind="serve")),
    },
    "variables_are_pulled_once": {
        "a variable pulled twice": (
            "async",
            lambda program: change("gate input", after=("send pull 0", len(program.routines[0].operations)))(more("send pull 0")(program)),
        ),
        "a variable not waited for": ("async", change(6, after=("send pull 0",))),
        "half a variable": ("async", change("send pull 1", size_bytes=half)),
        "a variable cut on its way to the device": ("copied", change("send to device 1", size_bytes=half)),
    },
    "servers_work_as_measured": {
        "a server that works for nothing": ("async", change("serve apply 1", cost_s=0.0)),
        "a server that works too long": ("async", change("serve apply 1", cost_s=lambda its: its.cost_s * 1.01)),
        "a gradient that the update does not wait for": ("async", rules(updates=lambda its: replace(its, parts=(1, 1)))),
        "a chief that works too long": ("sync", rules(updates=lambda its: replace(its, cost_s=(1.0, *its.cost_s[1:])))),
        "an update of nobody's gradients": ("sync", rules(updates=lambda its: replace(its, required=0))),
        "servers without updates": ("sync", rules(updates=None)),
    },
    "groups_divide_the_ranks": {
        "a group with a rank twice": ("ring", lambda program: replace(program, groups=(np.array([0, 1, 1]),))),
        "a rank in two groups": ("ring", lambda program: replace(program, groups=(program.groups[0], np.array([3])))),
        "a partition without groups": ("ring", change("collective all-reduce 1", partition=1)),
    },
    "groups_agree": {
        "a bucket that may come before the one before it": (
            "ring",
            change("collective all-reduce 1", after=("gate input",)),
        ),
        "two buckets of one number": ("ring", change("collective all-reduce 0", bucket=1)),
    },
    "collectives_say_when_they_go_on": {
        "one that departs and does not land": ("ring", change("collective all-reduce 0", departs=True)),
        "one that says when it goes on, unlike the others": ("ring", change("collective all-reduce 0", departs=True, lands=True)),
    },
    "gradients_enter_one_bucket": {
        "a gradient in no bucket": ("ring", change("collective all-reduce 1", size_bytes=half)),
        "a gradient in two buckets": ("ring", change("collective all-reduce 0", size_bytes=lambda its: its.size_bytes * 2)),
        "a bucket before it is ready": ("ring", change("collective all-reduce 1", after=("compute forward and backward",))),
        "a bucket that says that it is ready before": ("ring", change("collective all-reduce 0", ready=0.1)),
        "buckets out of order": ("ring", change("collective all-reduce 0", bucket=1)),
        "an update that does not wait for its bucket": ("ring", change("compute apply", after=("collective all-reduce 0",))),
        "no buckets at all": ("ring", change("collective all-reduce 0", kind="gate")),
        "buckets and no rule for them": ("ring", rules(reduction=None)),
        "a group of all ranks but one": ("ring", lambda program: replace(program, groups=(program.groups[0][:-1],))),
        "no group": ("local", lambda program: replace(program, groups=())),
        "an average of half the variables": ("local", change("collective average", size_bytes=half)),
        "an average before the update": ("local", change("collective average", after=("compute forward and backward",))),
        "an average in every step": ("local", change("collective average", every=1)),
    },
    "rules_are_those_of_the_strategy": {
        "averages more seldom than asked for": ("local", rules(sync_every=3)),
        "a bound that nobody asked for": ("async", rules(bound=7)),
        "nobody to hand out steps": ("coordinated", rules(dispatcher=None)),
        "a coordinator in a hurry": ("coordinated", rules(dispatcher=lambda its: replace(its, dispatch_s=0.0))),
        "a client that nobody asked for": ("async", rules(client=Client(1e-3))),
        "an update that waits for the backup worker": ("sync", rules(updates=lambda its: replace(its, required=3))),
        "a late worker that stops": ("sync", rules(updates=lambda its: replace(its, cancel=True))),
        "asynchronous updates of synchronous workers": ("sync", rules(updates=Asynchronous((2, 1)))),
        "a step less": ("ring", rules(steps_each=19)),
        "a job that ends": ("async", rules(steps_shared=60)),
        "a measurement that does not end": ("async", rules(closes=False)),
        "pulls in an order that is drawn": ("async", shuffled(1, 4)),
    },
    "machines_are_those_of_the_cluster": {
        "a faster link": ("async", tables("ports", capacity=put(0, 2e9))),
        "a slower link inside a node": ("inside", tables("ports", capacity=lambda capacity: np.where(capacity == 1e10, 5e9, capacity))),
        "a slower link to the host": ("copied", tables("ports", capacity=lambda capacity: np.where(capacity == 8e9, 4e9, capacity))),
        "another transport": ("async", lambda program: replace(program, transport=Transport(copy_per_byte_s=1e-10))),
        "cores that nobody shares": ("async", lambda program: replace(program, cores=Cores(2.0, 3e-3))),
        "devices on cores": ("async", lambda program: replace(program, devices=replace(program.devices, on_cores=True))),
        "a device that messages slow down": ("ring", lambda program: replace(program, devices=replace(program.devices, slowdown=0.5))),
        "a host that works on messages for nothing": ("worked on", tables("paths", source=put(0, -1))),
    },
    "pipelines_prepare_the_batches": {
        "no pipelines": ("pipelines", lambda program: replace(program, feed=None)),
        "a pipeline that reads too little": ("pipelines", tables("feed", amount=put((1, 2), 0.0))),
        "a pipeline that works too little": ("pipelines", tables("feed", amount=put((1, 0), 0.0))),
        "a pipeline that prepares batches in no time": ("pipelines apart", tables("feed", own_s=put(2, 0.0))),
        "a rank at another's pipeline": ("pipelines", tables("feed", of_rank=put(1, 0))),
    },
    "exchanges_carry_the_buckets": {
        "an exchange on another's link": ("messages", exchanges(path=swapped(0, 1))),
        "an exchange that beats its link": ("messages", tables("paths", latency_s=lambda latency_s: latency_s - 1e-5)),
        "an exchange of too little": ("messages", exchanges(size_bytes=lambda sizes: sizes * 0.9)),
        "a rank that sends too little": ("messages", exchanges(size_bytes=put(2, 0.0))),
        "an exchange for each bucket but one": ("messages", lambda program: replace(program, exchanges=program.exchanges[1:])),
    },
}


@pytest.mark.parametrize(("law", "fault"), [(law, fault) for law, faults in FAULTS.items() for fault in faults])
def test_the_laws_catch(law: str, fault: str) -> None:
    name, tamper = FAULTS[law][fault]
    scenario = SCENARIOS[name]
    program = compile_program(resolve(scenario))
    check_program(program, scenario)
    with pytest.raises(InvariantError, match=f"law of programs broken: {law}: "):
        BY_NAME[law](tamper(program), scenario)
    with pytest.raises(InvariantError):
        check_program(tamper(program), scenario)


def test_an_all_reduce_that_moves_too_little_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from oracles.programs import collectives as laws

    shares = laws.shares
    monkeypatch.setattr(laws, "shares", lambda schedule: type(its := shares(schedule))(its.sent * 0.99, its.received))
    with pytest.raises(InvariantError, match="all_reduces_move_enough: an all-reduce of 3e"):
        check_program(compile_program(resolve(SCENARIOS["ring"])), SCENARIOS["ring"])


def test_every_law_has_a_fault() -> None:
    assert FAULTS.keys() | {"all_reduces_move_enough"} == BY_NAME.keys()
