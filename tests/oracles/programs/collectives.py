"""Laws of collectives and their groups: who is in a group, what enters a collective, and that it moves enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from oracles.collectives import least_shares, shares
from oracles.programs.messages import End, check_path
from oracles.programs.walk import SLACK, Walk, broken, ports_of, same, walks_of
from simulator.base.rng import Streams
from simulator.program.port_names import PortKind
from simulator.program.program import (
    Exchange,
    Operation,
    Program,
    collectives_of,
    exchanges_by_group,
    memberships,
    of_partition,
    partition_of_each,
)
from simulator.scenario import Scenario
from simulator.strategies.assembling import collective_of
from simulator.strategies.holding import layers_of


def gradients_enter_one_bucket(program: Program, scenario: Scenario) -> None:
    """Every gradient enters one bucket per step, the same on all ranks, when it is ready; local SGD averages all variables as one.

    Where partition 0 has several groups, each of the same shards of all copies, the ranks
    of a copy reduce all gradients together; so they do where a strategy cuts the model.
    """
    law, load, ranks = gradients_enter_one_bucket, scenario.workload, len(program.ranks)
    every = program.rules.sync_every
    if scenario.strategy.cuts_batches:
        _parts_make_up_all(program, scenario)
        return
    if len(of_partition(program, 0)) > 1:
        _shards_make_up_all(program, scenario)
        return
    for walk in walks_of(program):
        reduced = [(index, each) for index, each in walk.of_kind("collective") if each.partition == 0]
        if [each.bucket for _, each in reduced] != list(range(len(reduced))) or any(each.every != every for _, each in reduced):
            raise broken(law, f"routine {walk.number}: buckets are not numbered in their order, or not reduced every {every} steps")
        if bool(reduced) != (scenario.strategy.reduction is not None and ranks > 1):
            raise broken(law, f"routine {walk.number}: has {len(reduced)} buckets among {ranks} ranks")
        if (program.rules.reduction is not None) != bool(reduced):
            raise broken(law, f"routine {walk.number}: has {len(reduced)} buckets and no rule for them, or a rule and no buckets")
        if not reduced:
            continue
        if not program.groups or sorted(program.groups[0].tolist()) != list(range(ranks)):
            raise broken(law, f"routine {walk.number}: reduces in a group that is not all of the {ranks} ranks")
        apply = [index for index in walk.computes if walk.operations[index].apply]
        if every > 1:
            if len(reduced) > 1 or not same(reduced[0][1].size_bytes, load.parameter_bytes) or not set(apply) & set(reduced[0][1].after):
                raise broken(law, f"{walk.place(reduced[0][0])} does not average all variables, after the update")
            continue
        # (n - 1) S of a sparse gradient are gathered, 2 (n - 1) / n S of a dense one reduced
        sizes = _sizes(scenario, ranks)
        wanted = _together(reduced) if len(reduced) > 1 and _rounds(scenario) > 1 else [each.size_bytes for _, each in reduced]
        last = 0
        for (index, each), wanted_bytes in zip(reduced, wanted, strict=True):
            compute = walk.compute_before(index)
            if compute is None or not same(walk.backward_by[compute], each.ready):
                raise broken(law, f"{walk.place(index)} does not begin when {each.ready:g} of the backward pass are done")
            if not wanted_bytes:
                continue  # of gradients that another one is of too
            first, size_bytes = last, 0.0
            while last < len(sizes) and not same(size_bytes, wanted_bytes) and size_bytes < wanted_bytes:
                size_bytes += sizes[last]
                last += 1
            if not same(size_bytes, wanted_bytes) or last == first:
                raise broken(law, f"{walk.place(index)} has {wanted_bytes:g} bytes, which are no gradients from number {first} on")
            if each.ready < load.variables[last - 1].ready - SLACK:
                raise broken(law, f"{walk.place(index)} begins before its last gradient is ready")
        if last < len(sizes):
            raise broken(law, f"routine {walk.number}: gradients from number {last} on enter no bucket")
        if any(set(walk.operations[index].after) != {number for number, _ in reduced} for index in apply[:1]):
            raise broken(law, f"{walk.place(apply[0])} does not wait for all buckets")


def _sizes(scenario: Scenario, ranks: int) -> list[float]:
    """What each variable's gradient adds to the collectives of a step."""
    reduction, variables, batch = scenario.strategy.reduction, scenario.workload.variables, scenario.batch
    if reduction is not None and reduction.compression is not None:
        return [math.fsum(reduction.compression.collective_bytes(variable, batch, ranks)) for variable in variables]
    return [variable.gradient_bytes(batch) * (ranks / 2 if variable.sparse_bytes_per_sample is not None else 1.0) for variable in variables]


def _rounds(scenario: Scenario) -> int:
    reduction = scenario.strategy.reduction
    return reduction.compression.rounds if reduction is not None and reduction.compression is not None else 1


def _together(reduced: Sequence[tuple[int, Operation]]) -> list[float]:
    """Sizes of collectives of the same gradients, ready at the same time, at the first of them; nothing at the others."""
    sizes: list[float] = []
    first = 0
    for number, (_, operation) in enumerate(reduced):
        sizes.append(operation.size_bytes)
        if number and operation.ready == reduced[first][1].ready:
            sizes[first] += operation.size_bytes
            sizes[number] = 0.0
        else:
            first = number
    return sizes


def _shards_make_up_all(program: Program, scenario: Scenario) -> None:
    """The ranks of each data-parallel copy reduce all gradients, each in a group with one rank of every copy."""
    law, copy = gradients_enter_one_bucket, program.ranks.copy
    copies = int(copy.max()) + 1
    for number in of_partition(program, 0):
        if sorted(copy[program.groups[number]].tolist()) != list(range(copies)):
            raise broken(law, f"group {number} does not have one rank of each of the {copies} copies")
    of_routine = np.array(
        [math.fsum(each.size_bytes for _, each in walk.of_kind("collective") if each.partition == 0) for walk in walks_of(program)]
    )
    reduced_bytes = np.bincount(copy, of_routine[program.ranks.routine])
    wanted_bytes = math.fsum(_sizes(scenario, copies))
    for number, its_bytes in enumerate(reduced_bytes.tolist()):
        if not same(its_bytes, wanted_bytes):
            raise broken(law, f"the ranks of copy {number} reduce {its_bytes:g} bytes of gradients together, not {wanted_bytes:g}")


def _parts_make_up_all(program: Program, scenario: Scenario) -> None:
    """The ranks of each copy, among which a model is cut, reduce every gradient that others have too, once or for each micro-batch.

    Others are those of other copies, and those with another part of its sequences. Counted is what enters the first collective with them:
    not what a share of it goes through after, nor what stages of one copy sum.
    """
    law, copy_of = gradients_enter_one_bucket, program.ranks.copy
    wanted = {False: 0.0, True: 0.0}
    for stage in scenario.strategy.held(scenario):
        for chunk in stage:
            for owned in (owned for layer in layers_of(scenario.workload, chunk) for owned in layer):
                if chunk.sharing(1, experts=owned.experts).copies > 1:
                    size_bytes = owned.gradient_bytes(scenario.batch) * chunk.tensor * chunk.context * chunk.reduced
                    wanted[owned.experts and chunk.spreads] += size_bytes
    group_of = {(of, rank): group for group, of in zip(program.groups, partition_of_each(program), strict=True) for rank in group.tolist()}
    for copy in range(int(copy_of.max()) + 1):
        reduced_bytes = 0.0
        for rank in np.flatnonzero(copy_of == copy).tolist():
            operations = program.routines[int(program.ranks.routine[rank])].operations
            for each in operations:
                if each.kind != "collective" or each.does not in ("all-reduce", "reduce-scatter") or each.name != each.does:
                    continue
                scattered = [operations[before] for before in each.after if operations[before].does == "reduce-scatter"]
                of_shares = any(same(each.size_bytes * len(group_of[owned.partition, rank]), owned.size_bytes) for owned in scattered)
                group = group_of[each.partition, rank]
                one_stage = len(np.unique(program.ranks.routine[group])) == 1
                if (len(group) > 1 or each.lasts_s) and one_stage and not of_shares:
                    reduced_bytes += each.size_bytes
        counts = (1, scenario.training.micro_batches)
        if not any(same(reduced_bytes, of_all * wanted[False] + of_experts * wanted[True]) for of_all in counts for of_experts in counts):
            wanted_bytes = math.fsum(wanted.values())
            raise broken(law, f"the ranks of copy {copy} reduce {reduced_bytes:g} bytes of gradients together, not {wanted_bytes:g}")


def all_reduces_move_enough(program: Program, scenario: Scenario) -> None:
    """The messages of an all-reduce move at least what any algorithm must: 2 (n - 1) / n of the buffer per rank, and each rank's part."""
    streams = Streams(scenario.run.seed, 0)
    if len(program.groups) > 1:
        return  # those of each group are looked at one by one, where there are messages
    sizes = {each.size_bytes for walk in walks_of(program) for _, each in walk.of_kind("collective")}
    collective = collective_of(scenario, scenario.strategy.reduction, streams) if sizes else None
    if collective is None:
        return
    ranks = len(program.ranks)
    does = scenario.strategy.reduction.does if scenario.strategy.reduction is not None else "all-reduce"
    least = least_shares(does, ranks)
    for size_bytes in sorted(sizes):
        moved = shares(collective.plan(size_bytes).schedule)
        place = f"an {does} of {size_bytes:g} bytes among {ranks} ranks"
        if moved.sent.sum() < least.total * (1 - SLACK):
            raise broken(all_reduces_move_enough, f"{place} moves {moved.sent.sum():g} buffers, not {least.total:g}")
        sent, received = (each[:ranks] for each in moved)
        for name, each, bound in (("sends", sent, least.sent), ("receives", received, least.received)):
            if np.any(each < bound * (1 - SLACK)):
                raise broken(all_reduces_move_enough, f"{place}: rank {int(np.argmin(each - bound))} {name} {each.min():g} buffers")
        both = sent + received
        if does == "all-reduce" and np.any(both < 2 * (ranks - 1) / ranks * (1 - SLACK)):
            raise broken(all_reduces_move_enough, f"{place}: {both.min():g} buffers cross the links of rank {int(np.argmin(both))}")


def exchanges_carry_the_buckets(program: Program, scenario: Scenario) -> None:
    """Where messages of collectives are simulated one by one, each goes between the ranks that it names, and together they move enough."""
    law = exchanges_carry_the_buckets
    if not program.exchanges:
        return
    walks = walks_of(program)
    for number, (ranks, exchanges) in enumerate(zip(program.groups, exchanges_by_group(program), strict=True)):
        of = partition_of_each(program)[number]
        reduced = [each for _, each in walks[int(program.ranks.routine[ranks[0]])].of_kind("collective") if each.partition == of]
        if len(reduced) != len(exchanges):
            raise broken(law, f"group {number}: there are {len(exchanges)} exchanges for {len(reduced)} buckets")
        _carry(program, scenario, number, reduced, exchanges)


def _carry(program: Program, scenario: Scenario, of: int, reduced: Sequence[Operation], exchanges: Sequence[Exchange]) -> None:
    """The messages of one group's buckets."""
    law, group = exchanges_carry_the_buckets, program.groups[of].tolist()
    for bucket, (operation, exchange) in enumerate(zip(reduced, exchanges, strict=True)):
        number, tables = f"{bucket} of group {of}", exchange.tables
        for lane, (source, target, path) in enumerate(zip(tables.source, tables.target, exchange.path.tolist(), strict=True)):
            if max(source, target) >= len(group):
                _check_end_at_switch(program, scenario, path, *(group[end] if end < len(group) else None for end in (source, target)))
                continue
            ends = (End.of_rank(group[end], scenario) for end in (source, target))
            if check_path(law, f"exchange {number}, lane {lane}", program, scenario, path, *ends) < -SLACK:  # protocols add to it
                raise broken(law, f"exchange {number}, lane {lane} comes sooner than its links let it")
        sent_bytes = np.bincount(tables.source, tables.messages * exchange.size_bytes, tables.members)
        least = least_shares(operation.does, len(group))
        too_few = sent_bytes[: len(group)] < least.sent * operation.size_bytes * (1 - SLACK)
        if sent_bytes.sum() < least.total * operation.size_bytes * (1 - SLACK) or np.any(too_few):
            raise broken(law, f"exchange {number} sends {sent_bytes.sum():g} bytes, of which {sent_bytes.min():g} leave one rank")


def _check_end_at_switch(program: Program, scenario: Scenario, path: int, source: int | None, target: int | None) -> None:
    """A path to a switch crosses a link of its rank's device or node, as one from there; else it joins a leaf and a spine."""
    law, crossed = exchanges_carry_the_buckets, [program.ports.names[port] for port in ports_of(program, path)]
    links = [port for port in crossed if port.kind != PortKind.CPU]
    if source is None and target is None:
        right = len(links) == 1 and links[0].kind in (PortKind.LEAF_UP, PortKind.LEAF_DOWN)
    else:
        rank, kinds = (
            (source, (PortKind.INSIDE_OUT, PortKind.NODE_OUT)) if source is not None else (target, (PortKind.INSIDE_IN, PortKind.NODE_IN))
        )
        end = End.of_rank(int(rank or 0), scenario)
        right = len(links) == 1 and links[0].kind in kinds and links[0].owner == (end.owner if links[0].kind == kinds[0] else end.node)
    if not right:
        raise broken(law, f"what goes from {source} to {target} by a switch crosses {', '.join(map(str, crossed))}")


def groups_divide_the_ranks(program: Program, scenario: Scenario) -> None:
    """Each rank is in exactly one group of every partition, and its collectives are of partitions that exist."""
    del scenario
    law = groups_divide_the_ranks
    reduces = [(walk, index, operation) for walk in walks_of(program) for index, operation in walk.of_kind("collective")]
    if not program.groups and not reduces:
        return
    try:
        partitions = len(memberships(program).group)
    except ValueError as error:
        raise broken(law, str(error)) from None
    for walk, index, operation in reduces:
        if not 0 <= operation.partition < partitions:
            raise broken(law, f"{walk.place(index)} is of partition {operation.partition}, but there are {partitions}")


def groups_agree(program: Program, scenario: Scenario) -> None:
    """All ranks of a group do the same collectives of its partition, and enter them in the order of the buckets."""
    del scenario
    law = groups_agree
    walks = walks_of(program)
    for walk in walks:
        needs = [_all_before(walk, index) for index in range(len(walk.operations))]
        numbers = collectives_of(program.routines[walk.number])
        for earlier, later in pairwise(numbers):
            here, other = walk.operations[earlier], walk.operations[later]
            if here.lasts_s is not None and other.lasts_s is not None:
                continue  # they take place in the order in which all of the group have come to them
            if here.partition == other.partition and (earlier > later or not needs[earlier] <= needs[later]):
                raise broken(law, f"{walk.place(later)} can begin before {walk.place(earlier)}, whose bucket comes first")
    of_routines = []
    for walk in walks:
        of_rank = [walk.operations[index] for index in collectives_of(program.routines[walk.number])]
        of_routines.append([(each.partition, each.bucket, each.does, each.size_bytes, each.every) for each in of_rank])
    routine = program.ranks.routine
    for number, (group, of) in enumerate(zip(program.groups, partition_of_each(program), strict=True)):
        first, *others = ([each for each in of_routines[of_rank] if each[0] == of] for of_rank in sorted(set(routine[group].tolist())))
        if any(other != first for other in others):
            raise broken(law, f"group {number}: its ranks do different collectives of partition {of}")
        if [bucket for _, bucket, *_ in first] != list(range(len(first))):
            raise broken(law, f"group {number}: buckets are not numbered in their order, from 0 on")


def _all_before(walk: Walk, index: int) -> set[int]:
    """All that must have ended before an operation begins."""
    seen: set[int] = set()
    ahead = [index]
    while ahead:
        new = walk.before[ahead.pop()] - seen
        seen |= new
        ahead += new
    return seen


def collectives_say_when_they_go_on(program: Program, scenario: Scenario) -> None:
    """Collectives of several partitions, and those that a pass waits for, both depart and land, as do all others of their routine."""
    del scenario
    for walk in walks_of(program):
        reduced = list(walk.of_kind("collective"))
        passes = [index for index in walk.computes if walk.operations[index].forward or walk.operations[index].backward]
        waited_for = set().union(*(_all_before(walk, index) for index in passes[-1:]))
        amid = len({operation.partition for _, operation in reduced}) > 1 or any(index in waited_for for index, _ in reduced)
        for index, operation in reduced:
            if operation.departs != operation.lands or (amid and not operation.departs):
                raise broken(collectives_say_when_they_go_on, f"{walk.place(index)} does not both depart and land")
            if operation.departs != reduced[0][1].departs:
                raise broken(collectives_say_when_they_go_on, f"{walk.place(index)} departs, or not, unlike others")
