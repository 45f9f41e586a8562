"""Every law of the audit finds the fault that it is there for: records that were tampered with, one fault at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.scenarios import scenario_table

from simulator import Scenario, scenario_from_table
from simulator.base.errors import InvariantError
from simulator.base.records import Step, Transfer
from simulator.checks.invariants import INVARIANTS, audit, check
from simulator.observing.recording import Recording

BY_NAME = {law.__name__: law for law in INVARIANTS}
VARIABLES = [{"name": f"v{i}", "size_bytes": 1e6 * (i + 1), "creation_index": i, "ready": (i + 1) / 2} for i in range(2)]
SERVER = {"kind": "parameter-server", "workers": 3}
RING = {"kind": "multi-worker-mirrored", "workers": 4}


def built(transport: dict[str, float] | None = None, **strategy) -> Scenario:
    load = {"server": {"base_s": 1e-4}, "jitter": {"kind": "exponential"}, "variables": VARIABLES}
    table = scenario_table(workload=load, cluster={"transport": transport or {}}, strategy=strategy, run={"steps": 20})
    return scenario_from_table(table, "test")


SCENARIOS = {
    "async": built(**SERVER, mode="async"),
    "ssp": built(**SERVER, mode="ssp", bound=1),
    "sync": built(**SERVER, mode="sync"),
    "backups": built(**SERVER, mode="sync", backup_workers=1),
    "ring": built(**RING),
    "messages": built(**RING, detail="messages"),
    "copies": built({"copy_per_byte_s": 1e-9, "cpu_per_message_s": 1e-5}, **SERVER, mode="async"),
}


def change(kind: str, at: int, **values) -> Callable[[Recording], None]:
    """Set fields of one record; a value that can be called gets the record."""

    def tamper(recording: Recording) -> None:
        records = getattr(recording, kind)
        records[at] = records[at]._replace(**{key: value(records[at]) if callable(value) else value for key, value in values.items()})

    return tamper


def first(kind: str, **having) -> Callable[[Recording], None]:
    """Lose the first record that has such values."""

    def tamper(recording: Recording) -> None:
        records = getattr(recording, kind)
        records.remove(next(one for one in records if all(getattr(one, key) == value for key, value in having.items())))

    return tamper


def least_s(transfer: Transfer) -> float:
    """Seconds on the fastest link of the sample scenario, that inside a node."""
    return transfer.size_bytes / 1e10


def computed_s(step: Step) -> float:
    """When a step would end if its messages took no time."""
    return step.start_s + step.compute_s


def twice(recording: Recording) -> None:
    """A gradient is served a second time."""
    recording.services.append(recording.services[3])


def runs_away(recording: Recording) -> None:
    """Worker 0's third read comes when it began its first: two steps that it had not made yet, and the others neither."""
    reads = [number for number, update in enumerate(recording.updates) if update.worker == 0]
    late = recording.updates[reads[5]]
    ahead = [number for number, step in enumerate(recording.steps) if step.replica == 0][:6]
    for number in ahead:
        recording.steps[number] = recording.steps[number]._replace(end_s=1e-9)
    recording.updates[reads[5]] = late._replace(read_s=2e-9)


FAULTS = {
    "a part too long": ("parts_sum_to_the_step", "async", change("steps", 0, compute_s=9.0)),
    "a part below nothing": (
        "parts_sum_to_the_step", "ring",
        change("steps", 4, waiting_s=-1e-3, communication_s=lambda s: s.communication_s + s.waiting_s + 1e-3),
    ),
    "a step before its last one": ("steps_of_a_replica_follow_each_other", "async", change("steps", -1, start_s=0.0)),
    "a hole between steps": ("steps_of_a_replica_follow_each_other", "ssp", change("steps", -1, start_s=lambda s: s.start_s * (1 + 1e-6))),
    "two services at a time": ("nothing_works_twice_at_once", "async", change("services", 1, start_s=-1.0)),
    "two computations at a time": ("nothing_works_twice_at_once", "ring", change("spans", -1, start_s=0.0)),
    "a version twice": ("versions_count_the_updates", "async", change("updates", 5, applied_version=4)),
    "a read of a newer version": ("versions_count_the_updates", "async", change("updates", 5, read_version=lambda u: u.read_version + 1)),
    "a read of an older version": ("versions_count_the_updates", "async", change("updates", 9, read_version=lambda u: u.read_version - 2)),
    "a stale update of equal replicas": ("versions_count_the_updates", "ring", change("updates", 5, read_version=4)),
    "a lost pull": ("every_byte_sent_is_received", "async", first("transfers", name="pull 0")),
    "a lost push": ("every_byte_sent_is_received", "sync", first("transfers", name="push 1")),
    "a byte too many": ("every_byte_sent_is_received", "ssp", change("transfers", 0, size_bytes=lambda t: t.size_bytes + 1)),
    "a pull too fast": ("no_message_beats_its_link", "async", change("transfers", 0, arrived_s=lambda t: t.sent_s + 0.99 * least_s(t))),
    "a push at once": ("no_message_beats_its_link", "backups", change("transfers", -1, arrived_s=lambda t: t.sent_s)),
    "a chunk too fast": ("no_message_beats_its_link", "messages", change("transfers", 7, sent_s=lambda t: t.arrived_s - 0.9 * least_s(t))),
    "a pull that one host has not copied": (
        "no_message_beats_its_link", "copies",
        change("transfers", 0, arrived_s=lambda t: t.sent_s + least_s(t) + 2 * 1e-5 + 1e-9 * t.size_bytes),
    ),
    "a message from the future": ("no_message_beats_its_link", "sync", change("transfers", 5, sent_s=lambda t: t.arrived_s + 1e-6)),
    "a gradient not applied": ("every_gradient_is_applied_once", "async", first("services", name="apply", worker=1)),
    "a gradient applied twice": ("every_gradient_is_applied_once", "async", twice),
    "a gradient not accumulated": ("every_gradient_is_applied_once", "sync", first("services", name="accumulate")),
    "a mean of too few": ("every_gradient_is_applied_once", "backups", first("services", name="accumulate", variable=1)),
    "a read beyond the bound": ("nobody_runs_away", "ssp", runs_away),
    "staler than can be": ("nobody_runs_away", "ssp", change("updates", -1, read_version=0)),
    "a step shorter than its transfers": ("no_step_beats_its_critical_path", "async", change("steps", 0, end_s=computed_s)),
    "a ring in no time": ("no_step_beats_its_critical_path", "ring", change("steps", 5, end_s=lambda s: s.start_s + s.compute_s + 1e-4)),
    "an all-reduce that ends while its link still sends": (
        "no_link_carries_more_than_it_can", "ring",
        change("transfers", -1, arrived_s=lambda t: t.sent_s + 0.99 * 2 * 3 / 4 * t.size_bytes / 1e9),
    ),
    "a step that ends while its link still sends": (
        "no_link_carries_more_than_it_can", "messages",
        change("steps", -1, end_s=lambda s: s.start_s + s.compute_s + s.apply_s + 0.99 * 2 * 3 / 4 * 3e6 / 1e9),
    ),
    "a message from before its cause": (
        "causes_come_before_what_they_let_begin", "messages", change("transfers", -1, begun_s=0.0, sent_s=lambda t: t.sent_s - 1e-9),
    ),
    "a compute that is its own cause": ("causes_come_before_what_they_let_begin", "ring", change("spans", 7, cause=lambda s: s.number)),
    "a step that goes on after its last work": (
        "causes_come_before_what_they_let_begin", "sync", change("steps", 3, end_s=lambda s: s.end_s + 1e-9),
    ),
    "a step that nothing ended": ("causes_come_before_what_they_let_begin", "ssp", change("steps", 0, cause=10**9)),
    "a server in no time": ("no_step_beats_its_critical_path", "sync", change("steps", 5, end_s=computed_s)),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_audit_catches(fault):
    law, scenario, tamper = FAULTS[fault]
    recording = audit(SCENARIOS[scenario])
    check(BY_NAME[law], SCENARIOS[scenario], recording)
    tamper(recording)
    with pytest.raises(InvariantError, match=law):
        check(BY_NAME[law], SCENARIOS[scenario], recording)


def test_every_law_has_a_fault():
    assert {law for law, *_ in FAULTS.values()} == BY_NAME.keys()
