"""Invariants of every run, and :func:`audit`, which checks them on a scenario.

Use it in tests of your own::

    from simulator.checks.invariants import audit

    def test_my_cluster_is_simulated_soundly():
        audit(load_scenario(Path("my.toml")))

A new one is a function in :data:`INVARIANTS`, which yields each event that breaks it, a row of docs/extend.md
(tests/packaging/test_documents.py), and a fault that it finds (tests/property/test_audit_catches.py). Invariants of programs need no
run: Paceline's tests have them (tests/oracles).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np

from simulator.base.errors import InvariantError
from simulator.base.records import EVERYBODY, NOTHING, Service, Span, begin_of, end_of
from simulator.base.rng import Streams
from simulator.collectives.factory import IN_SWITCHES
from simulator.engine.choosing import textbook_knows
from simulator.engine.replication import drawn_scenario, replicate
from simulator.estimate import apart_s
from simulator.observing.recording import Recording
from simulator.program.program import Operation
from simulator.program.schedule import columns
from simulator.resolve.drawing import compile_program
from simulator.resolve.resolve import resolve
from simulator.scenario import Drawn, Scenario
from simulator.strategies.assembling import collective_of

_SLACK = 1e-9
Invariant = Callable[[Drawn, Recording], Iterator[str]]
"""Yields what breaks it: each event, in words."""


def audit(scenario: Scenario, replication: int = 0) -> Recording:
    """Run one replication with full records and check every invariant of :data:`INVARIANTS`.

    The textbook engine runs it, which shares no code with the one that results come from; what that does not know, all ranks at once.

    Returns
    -------
    Recording
        All records of the run.

    Raises
    ------
    InvariantError
        Names the invariant that is broken, and the event.
    """
    recording = Recording()
    resolved = resolve(scenario)
    replicate(resolved, replication, recording, engine="simpy" if textbook_knows(resolved) else "at-once")
    drawn = drawn_scenario(resolved, Streams(scenario.run.seed, replication))
    for invariant in INVARIANTS:
        check(invariant, drawn, recording)
    return recording


def laws() -> dict[str, str]:
    """Every invariant that :func:`audit` checks, by its name, with what it says."""
    return {invariant.__name__: (invariant.__doc__ or "").strip().splitlines()[0] for invariant in INVARIANTS}


def check(invariant: Invariant, scenario: Drawn, recording: Recording) -> None:
    """Check one of :data:`INVARIANTS` on the records of a run; errors as of :func:`audit`."""
    for event in invariant(scenario, recording):
        raise InvariantError(f"invariant violated: {invariant.__name__}: {event}")


def _at_least(value: float, bound: float) -> bool:
    return value >= bound - _SLACK * max(1.0, abs(bound))


def parts_sum_to_the_step(_: Drawn, recording: Recording) -> Iterator[str]:
    """The five parts of a step are not negative, and add up to its duration."""
    for step in recording.steps:
        parts = step.input_s, step.compute_s, step.communication_s, step.waiting_s, step.apply_s
        if min(parts) < -_SLACK or not math.isclose(math.fsum(parts), step.end_s - step.start_s, rel_tol=1e-9, abs_tol=1e-12):
            yield str(step)


def steps_of_a_replica_follow_each_other(_: Drawn, recording: Recording) -> Iterator[str]:
    """A replica begins a step when its last one has ended, and never makes two at a time."""
    ended: dict[int, float] = {}
    for step in recording.steps:
        if step.replica in ended and step.start_s != ended[step.replica]:
            yield str(step)
        ended[step.replica] = step.end_s


def nothing_works_twice_at_once(_: Drawn, recording: Recording) -> Iterator[str]:
    """Work of a replica, and services of a server, never overlap: nothing is busy for longer than the time that passes."""
    work: dict[str, list[Span | Service]] = defaultdict(list)
    for span in recording.spans:
        work[f"replica {span.replica}"].append(span)
    for service in recording.services:
        work[f"server {service.server}"].append(service)
    for pieces in work.values():
        for before, after in itertools.pairwise(pieces):
            if not _at_least(after.start_s, before.end_s):
                yield f"{before} and {after}"


def versions_count_the_updates(scenario: Drawn, recording: Recording) -> Iterator[str]:
    """Updates are numbered without gaps; an update read only what had been applied by then; staleness counts the updates in between."""
    applied = sorted(update.applied_version for update in recording.updates)
    if applied != list(range(len(applied))):
        yield f"applied versions {applied[:10]}... are not 0, 1, 2, ..."
    when = [update.applied_s for update in sorted(recording.updates, key=lambda update: update.applied_version)]
    for update in recording.updates:
        if update.staleness < 0 or (not scenario.servers and update.staleness):
            yield str(update)
        if update.read_version and update.read_version <= len(when) and when[update.read_version - 1] > update.read_s * (1 + _SLACK):
            yield f"{update} read a version from the future"
        if update.read_version < len(when) and when[update.read_version] < update.read_s * (1 - _SLACK) - 1e-12:
            yield f"{update} did not read the latest version"


def _fastest_bytes_per_s(scenario: Scenario) -> float:
    """Bandwidth of the fastest link that any message can cross."""
    cluster = scenario.cluster
    return float(max(link.bandwidth_bytes_per_s for _, _, link in cluster.links) * cluster.nics_per_node)


def every_byte_sent_is_received(scenario: Drawn, recording: Recording) -> Iterator[str]:
    """In each step a worker receives all variables and the servers all of its gradients, byte for byte."""
    if not scenario.servers or scenario.strategy.pace.cancels:
        return
    load, batch = scenario.workload, scenario.batch
    last = {step.replica: step.end_s for step in recording.steps}
    pulled: dict[int, float] = defaultdict(float)
    pushed: dict[int, float] = defaultdict(float)
    for transfer in recording.transfers:
        for moved, near, far in ((pulled, transfer.target, transfer.source), (pushed, transfer.source, transfer.target)):
            if near.kind == "worker" and far.kind == "server" and transfer.arrived_s <= last.get(near.number, -1.0):
                moved[near.number] += transfer.size_bytes
    for worker, steps in Counter(step.replica for step in recording.steps).items():
        name = f"worker {worker}"
        for verb, got, want in (
            ("pulled", pulled[worker], steps * math.fsum(variable.pull_bytes(batch) for variable in load.variables)),
            ("pushed", pushed[worker], steps * math.fsum(scenario.strategy.pushed_bytes(scenario))),
        ):
            if not math.isclose(got, want, rel_tol=1e-9):
                yield f"{name} {verb} {got:.0f} bytes in {steps} steps, not {want:.0f}"


def no_message_beats_its_link(scenario: Drawn, recording: Recording) -> Iterator[str]:
    """From sending to arrival a message takes no less time than its bytes take on the fastest link.

    Between workers and servers on nodes of their own, what both hosts work on it comes to that.
    """
    bandwidth = _fastest_bytes_per_s(scenario)
    transport = scenario.cluster.transport
    # where a fit leaves open what messages cost, a run draws it
    known = scenario.layout.server_nodes > 0 and scenario.cluster.uncertainty is None
    for transfer in recording.transfers:
        # an all-reduce among ranks at once is one record of 2 (n - 1) / n of its bytes and more; a rank's own part of it counts
        if transfer.target == EVERYBODY:
            continue
        least_s = transfer.size_bytes / bandwidth
        if known and "device" not in (transfer.source.kind, transfer.target.kind):
            least_s += 2 * (transport.cpu_per_message_s + transport.copy_per_byte_s * transfer.size_bytes)
        if not _at_least(transfer.arrived_s, transfer.sent_s + least_s):
            yield str(transfer)


def every_gradient_is_applied_once(scenario: Drawn, recording: Recording) -> Iterator[str]:
    """Asynchronous: each gradient of a worker is applied once per step. Synchronous: each is accumulated once, then all are applied once.

    With backup workers, each variable is applied once an update, from no fewer gradients
    than a step averages, and no worker's gradient is accumulated twice a step.
    """
    if not scenario.servers:
        return
    pace = scenario.strategy.pace
    last = {step.replica: step.end_s for step in recording.steps}
    steps = Counter(step.replica for step in recording.steps)
    name = "apply" if pace.asynchronous else "accumulate"
    served = Counter(
        (service.worker, service.variable)
        for service in recording.services
        if service.name == name and service.end_s <= last.get(service.worker, -1.0)
    )
    parts = len({service.variable for service in recording.services})
    for worker, count in steps.items():
        for variable in range(parts):
            once = served[worker, variable] <= count if pace.backups else served[worker, variable] == count
            if not once:
                yield f"gradient {variable} of worker {worker}: {served[worker, variable]} times in {count} steps"
    if not pace.asynchronous:
        yield from _enough_for_each_apply(pace.awaited(scenario.ranks), recording)


def _enough_for_each_apply(required: int, recording: Recording) -> Iterator[str]:
    waiting: Counter[int] = Counter()
    for service in recording.services:
        if service.name == "accumulate":
            waiting[service.variable] += 1
        elif waiting[service.variable] < required:
            yield f"{service} averages {waiting[service.variable]} gradients, not {required}"
        else:
            waiting[service.variable] = 0


def nobody_runs_away(scenario: Drawn, recording: Recording) -> Iterator[str]:
    """Stale-synchronous: no worker begins a step while more than bound steps ahead of the slowest; staleness stays within its bound."""
    bound = scenario.strategy.pace.bound
    if bound is None:
        return
    workers = scenario.ranks
    clocks = [0] * workers
    # a worker's step begins when its last one has ended, so it first reads when nothing holds it back any more
    ends = sorted((step.end_s, step.replica) for step in recording.steps)
    reads = sorted((update.read_s, update.worker, update) for update in recording.updates)
    at = 0
    for read_s, worker, update in reads:
        while at < len(ends) and ends[at][0] <= read_s:
            clocks[ends[at][1]] += 1
            at += 1
        if clocks[worker] - min(clocks) > bound:
            yield f"{update} was begun {clocks[worker] - min(clocks)} steps ahead of the slowest"
        if update.staleness > (workers - 1) * (2 * bound + 1):
            yield f"{update} is staler than (n - 1) (2 bound + 1)"


def no_step_beats_its_critical_path(scenario: Drawn, recording: Recording) -> Iterator[str]:
    """No step is shorter than its compute plus the messages that cannot overlap with it, without contention."""
    floor_s = apart_s(compile_program(scenario), lambda operation: _least_collective_s(operation, scenario))
    if floor_s is None:
        return
    for step in recording.steps:
        if not _at_least(step.end_s - step.start_s, step.compute_s + floor_s):
            yield f"{step} is shorter than compute and {floor_s:.9g} s of transfers"


def _least_collective_s(operation: Operation, scenario: Scenario) -> float:
    """Seconds of a collective of all ranks from when the last of them enters it, with all links as the fastest."""
    cluster, ranks, reduction = scenario.cluster, scenario.ranks, scenario.strategy.reduction
    assert reduction is not None, "others last as long as the program says"
    links = [cluster.inter_node, cluster.intra_node]
    if cluster.islands is not None and cluster.islands.between is not None:
        links.append(cluster.islands.between)
    latency_s, size_s = float(min(link.latency_s for link in links)), operation.size_bytes / _fastest_bytes_per_s(scenario)
    if reduction.algorithm == "ring":
        # its hop has all of its chunks to send, and the last of them depends on one that goes round at least once
        return (ranks - 1) * ((1 if operation.does == "all-gather" else 2) * size_s / ranks + latency_s)
    # its own data still has to reach everybody, and everybody else's to reach it
    least_s = (ranks - 1) / ranks * size_s / (ranks - 1 if cluster.intra_node_topology == "mesh" else 1)
    # of copies to one device, this one only sends if it is the last, and ends when all has left it
    copied = reduction.algorithm in ("reduce-to-one-device", "hierarchical-copy", "auto", *IN_SWITCHES)
    return least_s if copied else least_s + latency_s


def no_link_carries_more_than_it_can(scenario: Drawn, recording: Recording) -> Iterator[str]:
    """No rank ends an all-reduce before its own link can have carried all that the rank sends in it."""
    reduction = scenario.strategy.reduction
    if reduction is None or scenario.ranks == 1:
        return
    sent_s = _sending_times(scenario)
    for transfer in recording.transfers:
        if transfer.target == EVERYBODY:
            least_s = sent_s(transfer.size_bytes)[transfer.source.number]
            if not _at_least(transfer.arrived_s, transfer.sent_s + least_s):
                yield f"{transfer} needs {least_s:.9g} s on the rank's own link"
    if reduction.bucket_size_bytes is not None or scenario.strategy.pace.every > 1 or reduction.forward_first:
        return  # what is sent while the rank computes cannot be told from the length of its steps
    sizes = [math.fsum(scenario.strategy.pushed_bytes(scenario))]
    if reduction.compression is not None:
        sizes = reduction.as_one(scenario.workload, scenario.batch, scenario.replicas)
    for step in recording.steps:
        least_s = step.input_s + step.compute_s + step.apply_s + math.fsum(sent_s(size)[step.replica] for size in sizes)
        if not _at_least(step.end_s - step.start_s, least_s):
            yield f"{step} needs {least_s:.9g} s with the bytes on the rank's own link"


def _sending_times(scenario: Scenario) -> Callable[[float], list[float]]:
    """By the size of a buffer, seconds that the links out of each rank need for it: the schedule's bytes, no simulated time."""
    collective = collective_of(scenario, scenario.strategy.reduction, Streams(scenario.run.seed, 0))
    assert collective is not None, "there is something to reduce"
    background = scenario.cluster.background
    varies = background is not None and (background.changes or background.each_link)

    @cache
    def sent_s(size_bytes: float) -> list[float]:
        schedule, wire = collective.plan(size_bytes)
        source, target, _, messages, parts = columns(schedule)
        laid = wire.laid(source, target)
        carried = messages * (parts / schedule.parts) * size_bytes * wire.bytes_of(source, target)
        # where others take more at one time than at another, or on one link than on another, no more than the whole is known
        capacity = laid.ports.whole if varies else laid.ports.capacity
        carried_s = carried[laid.path] / capacity[laid.paths.port]
        port_s = np.zeros((schedule.members, len(laid.ports.capacity)))
        np.add.at(port_s, (source[laid.path], laid.paths.port), carried_s)
        most_s: list[float] = port_s.max(axis=1, initial=0.0).tolist()
        return most_s

    return sent_s


def causes_come_before_what_they_let_begin(_: Drawn, recording: Recording) -> Iterator[str]:
    """The cause of a piece of work is recorded before it, and had ended when the work began; what ended a step ended with it."""
    work = recording.by_number()
    for piece in work.values():
        cause = work.get(piece.cause)
        if piece.cause >= piece.number or (cause is not None and end_of(cause) > begin_of(piece)):
            yield f"{piece} because of {cause}"
    for step in recording.steps:
        last = work.get(step.cause)
        if step.cause != NOTHING and (last is None or end_of(last) != step.end_s):
            yield f"{step} because of {last}"


INVARIANTS: Sequence[Invariant] = (
    parts_sum_to_the_step,
    steps_of_a_replica_follow_each_other,
    nothing_works_twice_at_once,
    versions_count_the_updates,
    every_byte_sent_is_received,
    no_message_beats_its_link,
    every_gradient_is_applied_once,
    nobody_runs_away,
    no_step_beats_its_critical_path,
    no_link_carries_more_than_it_can,
    causes_come_before_what_they_let_begin,
)
"""All that :func:`audit` checks."""
