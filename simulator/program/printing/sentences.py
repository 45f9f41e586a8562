"""Rules of a program that are no graph, its transport, cores and devices, as sentences for a reader.

listings.py shows all else. Each field of ``Rules`` needs its sentence (tests/unit/test_program_printing.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from simulator.base.text import format_bytes, format_number, format_rate
from simulator.program.printing.printed import time_of
from simulator.program.program import Asynchronous, Changes, Feed, Program, Synchronous
from simulator.spec.transport import Transport


def sentences_of(program: Program) -> Iterator[str]:
    """What is no graph, one sentence a rule: who gets a step, what becomes of gradients, how messages and cores are shared."""
    rules, ranks = program.rules, len(program.ranks)
    yield (
        "An operation begins when those that it comes after have ended. A rank's computes begin one after the other, in their order; "
        "one that joins the next is made in one piece with it where that can begin as well."
    )
    if rules.steps_shared is not None:
        yield f"{rules.steps_shared:,} steps of the whole job are handed out to whoever asks."
    if rules.steps_each is not None:
        more = f", and up to {rules.sync_every:,} more until the slowest has made its own" if rules.sync_every > 1 else ""
        yield f"Every rank makes {rules.steps_each:,} steps{more}."
    if rules.steps_shared is None and rules.steps_each is None:
        yield "As many steps are handed out as are asked for, until the measurement ends."
    if rules.closes and (rules.steps_shared is not None or rules.steps_each is not None):
        yield "The measurement ends when a rank has no step left to make."
    if rules.bound is not None:
        yield f"A rank may be {rules.bound:,} steps ahead of the slowest; then it waits."
    if rules.dispatcher is not None:
        its = rules.dispatcher
        yield (
            f"One process hands out steps, one at a time: {time_of(its.dispatch_s)} for each, and {time_of(its.latency_s)} "
            "between a step's end and the next one's begin."
        )
    if rules.client is not None:
        yield f"One process prepares every rank's batch, one at a time: {time_of(rules.client.input_s)} for each."
    if program.feed is not None:
        yield from _feed(program.feed)
    if isinstance(rules.updates, Asynchronous):
        yield (
            f"Each gradient is applied when its turn comes at its server ({_parts(rules.updates.parts)}); "
            "a step whose gradients are all applied is an update."
        )
    if isinstance(rules.updates, Synchronous):
        yield from _synchronous(rules.updates, ranks)
    if rules.sync_every > 1:
        yield f"All ranks hold the same variables once in {rules.sync_every:,} steps; between, each goes on alone."
    yield from _peers(program)
    yield from _reduction(program)
    if program.cores is not None:
        slices = f", in slices of {time_of(program.cores.slice_s)}" if program.cores.slice_s else ""
        yield f"All nodes are processes of one machine and share its {program.cores.number:g} cores{slices}."
    yield from _on_devices(program)
    yield from _transport(program.transport)
    if program.changes is not None:
        yield _changing(program.changes)


def _changing(its: Changes) -> str:
    again = f"; after {time_of(its.repeat_s)} it begins again" if its.repeat_s is not None else "; then it stays so"
    least, most = format_number(float(its.left.min())), format_number(float(its.left.max()))
    flows = f" and {int(its.beside.min())} to {int(its.beside.max())} of their flows share the rest" if its.beside.any() else ""
    return (
        f"What others take from {len(its.port):,} ports changes {len(its.at_s) - 1:,} times in {time_of(its.at_s[-1])}: "
        f"they leave {least} to {most}, as a share{flows}{again}."
    )


def _feed(its: Feed) -> Iterator[str]:
    """Whom pipelines feed, how far ahead, and what they share."""
    ranks = len(its.of_rank)
    one, several = len(its) == ranks, "" if len(its) > 1 else "s"
    whose = "Each rank has a pipeline, which prepares" if one else f"{len(its):,} pipeline{'' if several else 's'} feed{several} "
    whose += "" if one else f"{ranks:,} ranks, which get their parts of a batch together, and prepare{several}"
    ahead = f"until {its.prefetch:,} stand ready" if its.prefetch else "when they are asked for"
    yield f"{whose} batches one after the other, {ahead}."
    if its.path.shape[1]:
        yield "What pipelines read, and their work, cross ports that they share; a batch is there when all of it has."
    if its.work_s.shape[1]:
        yield f"For a batch they work on these cores, {its.work_s.shape[1]:,} thread{'s' if its.work_s.shape[1] > 1 else ''} at a time."


def _peers(program: Program) -> Iterator[str]:
    """Which ranks messages between ranks go to."""
    ranks = len(program.ranks)
    for slot, peer in enumerate(program.ranks.peer.T):
        ahead = (peer - np.arange(ranks)) % ranks
        if (peer < 0).all():
            continue
        if (ahead == ahead[0]).all() and (peer >= 0).all():
            step = int(ahead[0])
            way = f"r + {step:,}" if 2 * step <= ranks else f"r - {ranks - step:,}"
            yield f"Slot {slot} leads from rank r to rank {way}, around the circle of {ranks:,}."
        else:
            yield f"Slot {slot} leads from {int((peer >= 0).sum()):,} ranks to one other each."


def _parts(parts: Sequence[int]) -> str:
    each = f"{min(parts):,}" if min(parts) == max(parts) else f"{min(parts):,} to {max(parts):,}"
    return f"{each} of a step on each of {len(parts):,} server{'s' if len(parts) > 1 else ''}"


def _synchronous(its: Synchronous, ranks: int) -> Iterator[str]:
    late = "stops computing and begins the next step" if its.cancel else "finishes its step, for nothing"
    dropped = f"; a rank whose gradients come too late {late}" if its.required < ranks else ""
    yield f"An update averages the gradients of {its.required:,} of {ranks:,} ranks, which then get a token each{dropped}."
    yield f"Applying it takes {time_of(math.fsum(its.cost_s))} for {len(its.cost_s):,} tensors on {len(set(its.server)):,} servers."


def _reduction(program: Program) -> Iterator[str]:
    its = program.rules.reduction
    if its is None:
        return
    if its.cycle_s is not None:
        most = f", up to {format_bytes(its.most_bytes)} at once" if math.isfinite(its.most_bytes) else ""
        yield f"Every {time_of(its.cycle_s)}, what is ready on all ranks is fused and reduced{most}."
    elif program.rules.sync_every == 1:
        yield "Each bucket is reduced as it becomes ready, one after the other."
    if not program.exchanges:
        yield 'When each rank has a bucket is computed for all at once; run.detail = "messages" lists messages, paths and ports.'
    if its.by_need:
        yield "Those go first that the next forward pass needs first, and it begins when they have come."
    if its.copies is not None:
        rate = format_rate(1 / its.copies.s_per_byte)
        yield f"Buffers go by the hosts' memory: {rate} of a rank in each direction, {time_of(its.copies.latency_s)} a copy."


def _on_devices(program: Program) -> Iterator[str]:
    its = program.devices
    if its.on_cores:
        yield "Devices compute on these cores."
    if program.servers.count and program.servers.on_cores:
        yield "Servers work on these cores."
    if its.slowdown:
        yield f"Work takes {format_number(its.slowdown)} longer, as a share, while the rank communicates."
    if its.busy_core_slowdown and its.on_cores:
        yield f"Work takes {format_number(its.busy_core_slowdown)} longer, as a share, for each other core that is busy."


def _transport(its: Transport) -> Iterator[str]:
    given = {name: getattr(its, name) for name, field in Transport.model_fields.items() if getattr(its, name) != field.default}
    if not given:
        yield "Messages share ports max-min fairly and cost nothing but their bytes."
    else:
        yield f"Transport: {', '.join(f'{name} = {value}' for name, value in given.items())}; the rest as `paceline schema cluster` has it."
