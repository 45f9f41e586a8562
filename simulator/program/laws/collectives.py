"""Laws of collectives: what enters them, and that they move enough."""

from __future__ import annotations

import numpy as np

from simulator.collectives.laws import least_shares, shares
from simulator.program.laws.messages import End, check_path
from simulator.program.laws.walk import SLACK, broken, same, walks_of
from simulator.program.program import Program
from simulator.rng import Streams
from simulator.scenario import Scenario
from simulator.strategies.reducing import collective_of

__all__ = ["all_reduces_move_enough", "exchanges_carry_the_buckets", "gradients_enter_one_bucket"]


def gradients_enter_one_bucket(program: Program, scenario: Scenario) -> None:
    """Every gradient enters one bucket of all ranks in a step, when it is ready; of local SGD all variables are averaged as one."""
    law, load, ranks = gradients_enter_one_bucket, scenario.workload, len(program.ranks)
    every = program.rules.sync_every
    for walk in walks_of(program):
        reduced = list(walk.of_kind("collective"))
        if [its.bucket for _, its in reduced] != list(range(len(reduced))) or any(its.every != every for _, its in reduced):
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
        sizes = [
            variable.gradient_bytes(scenario.batch) * (ranks / 2 if variable.sparse_bytes_per_sample is not None else 1.0)
            for variable in load.variables
        ]
        last = 0
        for index, its in reduced:
            compute = walk.compute_before(index)
            if compute is None or not same(walk.backward_by[compute], its.ready):
                raise broken(law, f"{walk.place(index)} does not begin when {its.ready:g} of the backward pass are done")
            first, size_bytes = last, 0.0
            while last < len(sizes) and not same(size_bytes, its.size_bytes) and size_bytes < its.size_bytes:
                size_bytes += sizes[last]
                last += 1
            if not same(size_bytes, its.size_bytes) or last == first:
                raise broken(law, f"{walk.place(index)} has {its.size_bytes:g} bytes, which are no gradients from number {first} on")
            if its.ready < load.variables[last - 1].ready - SLACK:
                raise broken(law, f"{walk.place(index)} begins before its last gradient is ready")
        if last < len(sizes):
            raise broken(law, f"routine {walk.number}: gradients from number {last} on enter no bucket")
        if any(set(walk.operations[index].after) != {number for number, _ in reduced} for index in apply[:1]):
            raise broken(law, f"{walk.place(apply[0])} does not wait for all buckets")


def all_reduces_move_enough(program: Program, scenario: Scenario) -> None:
    """The messages of an all-reduce move all that any algorithm must: 2 (n - 1) / n of the buffer a rank, and everybody's once."""
    streams = Streams(scenario.run.seed, 0)
    sizes = {its.size_bytes for walk in walks_of(program) for _, its in walk.of_kind("collective")}
    collective = collective_of(scenario, scenario.strategy.reduction, streams) if sizes else None
    if collective is None:
        return
    ranks = len(program.ranks)
    least = least_shares("all-reduce", ranks)
    for size_bytes in sorted(sizes):
        moved = shares(collective.plan(size_bytes).schedule)
        place = f"an all-reduce of {size_bytes:g} bytes among {ranks} ranks"
        if moved.sent.sum() < least.total * (1 - SLACK):
            raise broken(all_reduces_move_enough, f"{place} moves {moved.sent.sum():g} buffers, not {least.total:g}")
        for name, its, bound in (("sends", moved.sent, least.sent), ("receives", moved.received, least.received)):
            if np.any(its < bound * (1 - SLACK)):
                raise broken(all_reduces_move_enough, f"{place}: rank {int(np.argmin(its - bound))} {name} {its.min():g} buffers")
        both = moved.sent + moved.received
        if np.any(both < 2 * (ranks - 1) / ranks * (1 - SLACK)):
            raise broken(all_reduces_move_enough, f"{place}: {both.min():g} buffers cross the links of rank {int(np.argmin(both))}")


def exchanges_carry_the_buckets(program: Program, scenario: Scenario) -> None:
    """Where the messages of collectives are simulated one by one, each goes from its rank to its rank, and together they are enough."""
    law = exchanges_carry_the_buckets
    if not program.exchanges:
        return
    reduced = [its for _, its in walks_of(program)[0].of_kind("collective")]
    if not program.groups or len(reduced) != len(program.exchanges):
        raise broken(law, f"there are {len(program.exchanges)} exchanges for {len(reduced)} buckets")
    group = program.groups[0].tolist()
    for number, (its, exchange) in enumerate(zip(reduced, program.exchanges, strict=True)):
        tables = exchange.tables
        for lane, (source, target, path) in enumerate(zip(tables.source, tables.target, exchange.path.tolist(), strict=True)):
            ends = (End.of_rank(group[end], scenario) for end in (source, target))
            if check_path(law, f"exchange {number}, lane {lane}", program, scenario, path, *ends) < -SLACK:  # protocols add to it
                raise broken(law, f"exchange {number}, lane {lane} comes sooner than its links let it")
        sent_bytes = np.bincount(tables.source, tables.messages * exchange.size_bytes, len(group))
        least = least_shares("all-reduce", len(group))
        if sent_bytes.sum() < least.total * its.size_bytes * (1 - SLACK) or np.any(sent_bytes < least.sent * its.size_bytes * (1 - SLACK)):
            raise broken(law, f"exchange {number} sends {sent_bytes.sum():g} bytes, of which {sent_bytes.min():g} leave one rank")
