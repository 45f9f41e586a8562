"""A program as it is printed: the tables count everything, and no rule goes without a sentence."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from support.looping import each
from support.modes import LOAD, MODES
from support.scenarios import scenario_table

from simulator import load_scenario, scenario_from_table
from simulator.program import Rules
from simulator.program.printing import Listing, Printed, sentences_of, tables_of
from simulator.program.program import Asynchronous, Client, Dispatcher, HostCopies, Reduction, Synchronous
from simulator.run import preview


def printed_of(mode: str) -> Printed:
    strategy, cluster, run = MODES[mode]
    return preview(scenario_from_table(scenario_table(workload=LOAD, strategy=strategy, cluster=cluster, run=run), mode))


def listing(printed: Printed, title: str) -> Listing:
    return next(its for its in tables_of(printed) if its.title.startswith(title))


def column(its: Listing, name: str) -> list[str]:
    return [row[its.columns.index(name)] for row in its.rows]


def total(its: Listing) -> int:
    return sum(int(count.replace(",", "")) for count in column(its, "count"))


def test_collectives_of_one_name_are_numbered_from_0_on():
    routines = printed_of("pipeline").program.routines
    titles = [[each.title for each in routine.operations if each.kind == "collective"] for routine in routines]
    assert titles == [["all-reduce 0", "all-reduce 1"], ["all-reduce 0"]]


# -- what is printed ------------------------------------------------------------------


@each("mode", ["ring, messages", "halving"])
def test_messages_of_collectives_are_printed(mode):
    printed = printed_of(mode)
    (exchange,) = printed.program.exchanges
    its = listing(printed, "Single messages")
    counts = zip(column(its, "lanes"), column(its, "messages of each"), strict=True)
    assert sum(int(lanes) * int(messages) for lanes, messages in counts) == exchange.tables.messages.sum()


@each("mode", MODES)
def test_computes_add_up_to_a_step(mode):
    printed = printed_of(mode)
    if MODES[mode][0]["kind"] == "hybrid":
        return  # a rank has a part of the model
    operations = [operation for routine in printed.program.routines for operation in routine.operations]
    computed_s = sum(printed.compute_s(operation) for operation in operations if operation.kind == "compute")
    at_servers = any(operation.kind == "serve" for operation in operations)
    assert computed_s == pytest.approx(printed.forward_s + printed.backward_s + (0.0 if at_servers else printed.apply_s), rel=1e-9)


def test_input_is_told_where_it_is_the_ranks_own():
    own, fed = printed_of("async"), printed_of("async, in graph")
    assert (own.input_s, fed.input_s) == (2e-3, 0.0)
    assert fed.program.rules.client == Client(2e-3)
    assert any("prepared in 2.00 ms" in row[-1] for row in listing(own, "Routine").rows)
    assert not any("prepared in" in row[-1] for row in listing(fed, "Routine").rows)


def test_pipelines_are_told():
    """Whom they feed, what they share, and how much of it a batch takes."""
    work = {"serial": {"base_s": 1e-3, "per_sample_s": 0.0}, "parallel": {"base_s": 6e-3, "per_sample_s": 0.0}}
    table = scenario_table(
        input={"work": {**work, "read_bytes_per_sample": 1e6}, "parallel_calls": 3, "prefetch": 2, "per": "replica"},
        cluster={"devices_per_node": 2, "host_cores": 4, "storage": {"bandwidth": "1 GB/s"}},
        strategy={"kind": "mirrored", "replicas": 2},
    )
    printed = preview(scenario_from_table(table, "fed"))
    feed, program = printed.program.feed, printed.program
    for number in range(2):
        ports = [str(program.ports.names[program.paths.port[program.paths.first[path]]]) for path in feed.path[number]]
        assert sorted(ports) == ["node 0 cores", "node 0 cores", "storage"]
        assert sorted(feed.amount[number]) == [1e-3, 6e-3, 1e7]
    its = listing(printed, "Ports")
    capacity = dict(zip(column(its, "port"), column(its, "capacity"), strict=True))
    assert capacity == {"node 0 cores": "4 s of work per second", "storage": "8 Gbit/s"}
    assert any(
        "prepared in 10.0 ms without contention during earlier steps, up to 2 batches ahead" in row[-1]
        for row in listing(printed, "Routine").rows
    )
    assert "Each rank has a pipeline, which prepares batches in sequence, until 2 are ready." in set(sentences_of(printed.program))


# -- tables ---------------------------------------------------------------------------


@pytest.mark.slow
@each("mode", MODES)
def test_tables_count_everything_once(mode):
    printed = printed_of(mode)
    program, listings = printed.program, list(tables_of(printed))
    assert all(len(row) == len(its.columns) for its in listings for row in its.rows)
    if len(program.ports.capacity):
        assert total(listing(printed, "Ports")) == len(program.ports.capacity)
        assert total(listing(printed, "Paths")) == len(program.paths)
    assert total(listing(printed, "Ranks")) == len(program.ranks)
    its = listing(printed, "Routine 0")
    count = len(program.routines[0].operations)
    assert (len(its.rows) if "number" in its.columns else total(its)) == count


def test_ranks_that_differ_stand_apart():
    its = listing(printed_of("async, classes of nodes"), "Ranks")
    assert column(its, "count") == ["1", "1", "2"]
    assert column(its, "speed") == ["0.5", "1", "1"]
    assert len(set(column(its, "kind of path of each slot"))) == 2, "a thin link is another kind of path"


@pytest.mark.slow
def test_many_ranks_are_a_few_lines():
    printed = preview(load_scenario("async-ps", [("strategy.workers", 20_000), ("strategy.servers", 2)]))
    lines = sum(len(its.rows) for its in tables_of(printed) if not its.title.startswith("Routine"))
    assert lines < 10
    assert column(listing(printed, "Ranks"), "ranks") == ["0 to 19,999"]


def test_a_long_routine_is_summed_up():
    variables = [{"name": f"v{i}", "size": "1 MiB", "creation_index": i, "ready": (i + 1) / 100} for i in range(100)]
    strategy = {"kind": "parameter-server", "mode": "async", "workers": 2, "servers": 4}
    printed = preview(scenario_from_table(scenario_table(workload={"variables": variables}, strategy=strategy), "long"))
    its = listing(printed, "Routine 0")
    assert len(its.rows) < 12
    assert total(its) == len(printed.program.routines[0].operations)
    (pulls,) = (row for row in its.rows if row[its.columns.index("name")] == "pull *")
    assert pulls[its.columns.index("count")] == "100"
    assert pulls[-1] == "100 MiB in total, 1 MiB each; slots 0 to 3"
    assert "backward" in next(row for row in its.rows if row[its.columns.index("name")] == "push *")[its.columns.index("after")]


# -- rules ----------------------------------------------------------------------------

GIVEN = {
    "steps_shared": 77,
    "steps_each": 78,
    "bound": 3,
    "dispatcher": Dispatcher(1e-3, 2e-3),
    "client": Client(4e-3),
    "sync_every": 8,
    "reduction": Reduction(),
}


def sentences(printed: Printed, **rules: object) -> str:
    return " ".join(sentences_of(replace(printed.program, rules=Rules(**rules))))


@pytest.mark.parametrize("rule", GIVEN)
def test_every_rule_has_a_sentence(rule):
    printed = printed_of("async")
    assert sentences(printed, **{rule: GIVEN[rule]}) != sentences(printed)


def test_no_rule_is_forgotten():
    assert set(Rules.__dataclass_fields__) == {*GIVEN, "closes", "updates"}
    printed = printed_of("async")
    assert sentences(printed, steps_each=5, closes=True) != sentences(printed, steps_each=5)


@pytest.mark.parametrize(
    ("updates", "words"),
    [
        (Asynchronous((3, 2)), "2 to 3 per step on each of 2 servers"),
        (Synchronous(3, False, (0, 1), (1e-3, 2e-3)), "3 of 4 ranks"),
        (Synchronous(3, False, (0, 1), (1e-3, 2e-3)), "finishes its step in vain"),
        (Synchronous(3, True, (0, 1), (1e-3, 2e-3)), "stops computing"),
        (Synchronous(4, False, (0, 1), (1e-3, 2e-3)), "3.00 ms for 2 tensors on 2 servers"),
    ],
)
def test_updates_are_told_with_their_numbers(updates, words):
    assert words in sentences(printed_of("async"), updates=updates)


@pytest.mark.parametrize(
    ("reduction", "words"),
    [
        (Reduction(cycle_s=5e-3, most_bytes=2**26), "Every 5.00 ms"),
        (Reduction(by_need=True), "in which the next forward pass needs them"),
        (Reduction(copies=HostCopies(3e-6, 1e-10)), "80 Gbit/s per rank in each direction, 3.00 µs"),
    ],
)
def test_reductions_are_told_with_their_numbers(reduction, words):
    assert words in sentences(printed_of("async"), reduction=reduction)


@each("mode", [mode for mode, (_, cluster, _) in MODES.items() if "transport" in cluster])
def test_what_messages_cost_is_named(mode):
    printed = printed_of(mode)
    said = " ".join(sentences_of(printed.program))
    for key in MODES[mode][1]["transport"]:
        assert key in said


def test_neighbours_are_told():
    said = " ".join(sentences_of(printed_of("gossip").program))
    assert re.search(r"Slot 0 [^.]* r - 1\b[^.]*\b5\.", said)
    assert re.search(r"Slot 1 [^.]* r \+ 1\b[^.]*\b5\.", said)
    assert not any("leads from" in sentence for sentence in sentences_of(printed_of("async").program))


@each("mode, at_once", [("ring", True), ("ring, messages", False), ("async", False), ("single", False)])
def test_it_is_told_where_messages_are_not_simulated(mode, at_once):
    said = " ".join(sentences_of(printed_of(mode).program))
    assert ("run.detail" in said) == at_once


def test_cores_are_told():
    said = " ".join(sentences_of(printed_of("async, shared cores").program))
    assert "share its 3 cores" in said
    assert "Devices compute on these cores." in said
    assert "Servers work on these cores." in said
