"""Laws of groups: who is in them, and that their ranks mean the same."""

from __future__ import annotations

from itertools import pairwise

from simulator.program.groups import collectives_of, memberships, partition_of_each
from simulator.program.laws.walk import Walk, broken, walks_of
from simulator.program.program import Program
from simulator.scenario import Scenario

__all__ = ["collectives_say_when_they_go_on", "groups_agree", "groups_divide_the_ranks"]


def groups_divide_the_ranks(program: Program, scenario: Scenario) -> None:
    """Each rank is in exactly one group of every partition, and its collectives are of partitions that there are."""
    del scenario
    law = groups_divide_the_ranks
    reduces = [(walk, index, its) for walk in walks_of(program) for index, its in walk.of_kind("collective")]
    if not program.groups and not reduces:
        return
    try:
        partitions = len(memberships(program).group)
    except ValueError as error:
        raise broken(law, str(error)) from None
    for walk, index, its in reduces:
        if not 0 <= its.partition < partitions:
            raise broken(law, f"{walk.place(index)} is of partition {its.partition}, but there are {partitions}")


def groups_agree(program: Program, scenario: Scenario) -> None:
    """All ranks of a group do the same collectives of its partition, which they enter in the order of the buckets."""
    del scenario
    law = groups_agree
    walks = walks_of(program)
    for walk in walks:
        needs = [_all_before(walk, index) for index in range(len(walk.operations))]
        found = collectives_of(program.routines[walk.number])
        for earlier, later in pairwise(found):
            one, other = walk.operations[earlier], walk.operations[later]
            if one.partition == other.partition and (earlier > later or not needs[earlier] <= needs[later]):
                raise broken(law, f"{walk.place(later)} can begin before {walk.place(earlier)}, whose bucket comes first")
    of_routines = []
    for walk in walks:
        its = [walk.operations[index] for index in collectives_of(program.routines[walk.number])]
        of_routines.append([(each.partition, each.bucket, each.does, each.size_bytes, each.every) for each in its])
    routine = program.ranks.routine
    for number, (group, of) in enumerate(zip(program.groups, partition_of_each(program), strict=True)):
        first, *others = ([each for each in of_routines[its] if each[0] == of] for its in sorted(set(routine[group].tolist())))
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
    """Collectives of several partitions, and those that a pass waits for, depart and land by themselves, as all of their routine do."""
    del scenario
    for walk in walks_of(program):
        reduced = list(walk.of_kind("collective"))
        passes = [index for index in walk.computes if walk.operations[index].forward or walk.operations[index].backward]
        waited_for = set().union(*(_all_before(walk, index) for index in passes[-1:]))
        amid = len({its.partition for _, its in reduced}) > 1 or any(index in waited_for for index, _ in reduced)
        for index, its in reduced:
            if its.departs != its.lands or (amid and not its.departs):
                raise broken(collectives_say_when_they_go_on, f"{walk.place(index)} does not both depart and land")
            if its.departs != reduced[0][1].departs:
                raise broken(collectives_say_when_they_go_on, f"{walk.place(index)} departs, or not, unlike others")
