"""The Chrome trace of small scenarios: tracks, arrows, and the marked critical path."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from support.scenarios import scenario_table

from simulator import scenario_from_table
from simulator.base.records import Place, Span, Step, Transfer
from simulator.engine.replication import replicate
from simulator.observing.chrome_trace import chrome_trace, lanes
from simulator.observing.recording import Recording, bound_of_step, critical_path
from simulator.resolve.resolve import resolve

SERVER = {"server": {"base_s": 1e-3}}


class Read:
    """A trace by names instead of numbers."""

    def __init__(self, text):
        self.whole = json.loads(text)
        self.events = self.whole["traceEvents"]
        meta = {(event["name"], event["pid"], event["tid"]): event["args"] for event in self.events if event["ph"] == "M"}
        self.process = {pid: args["name"] for (name, pid, _), args in meta.items() if name == "process_name"}
        self.thread = {tid: args["name"] for (name, _, tid), args in meta.items() if name == "thread_name"}
        self.order = {self.thread[tid]: args["sort_index"] for (name, _, tid), args in meta.items() if name == "thread_sort_index"}
        self.slices = [event for event in self.events if event["ph"] == "X"]

    def at(self, event):
        """The innermost slice that an arrow's end binds to."""
        open_ = [
            one
            for one in self.slices
            if one["tid"] == event["tid"] and (one["ts"] <= event["ts"] < one["ts"] + one["dur"] or one["ts"] == event["ts"])
        ]
        return min(open_, key=lambda one: one["dur"])

    def arrows(self):
        """Pairs of (track, name, begin in ms) that an arrow connects."""
        ends = {}
        for event in self.events:
            if event["ph"] in "sf":
                ends.setdefault(event["id"], {})[event["ph"]] = self.at(event)
        return [(self.named(both["s"]), self.named(both["f"])) for both in ends.values()]

    def named(self, one):
        return self.thread[one["tid"]], one["name"], round(one["ts"] / 1000, 6)


def recorded(**parts):
    recording = Recording()
    replicate(resolve(scenario_from_table(scenario_table(**parts), "test")), 0, recording)
    return recording


def test_arrows_lead_from_compute_through_messages_to_services_and_back():
    strategy = {"kind": "parameter-server", "mode": "async", "workers": 1}
    arrows = Read(chrome_trace(recorded(workload=SERVER, strategy=strategy))).arrows()
    device, down, up, server = "device 0 (worker 0)", "server 0 to worker 0", "worker 0 to server 0", "server 0"
    # a step of 9 ms: pull until 1, compute until 7, push until 8, apply until 9
    assert ((server, "apply", 8), (down, "pull", 9)) in [(a, (b[0], b[1].split()[0], b[2])) for a, b in arrows]
    second = [(a[0], b[0], b[2]) for a, b in arrows if 9 <= b[2] < 18]
    assert second == [
        (server, down, 9),
        (down, device, 10),
        (device, up, 16),
        (up, server, 17),
    ]


def test_a_ring_passes_its_messages_on_from_one_to_the_next():
    trace = Read(chrome_trace(recorded(strategy={"kind": "multi-worker-mirrored", "workers": 3, "detail": "messages"})))
    first = [(a[0], b[0]) for a, b in trace.arrows() if b[2] < 7.9]
    hops = [f"device {rank} to device {(rank + 1) % 3}" for rank in range(3)]
    devices = [f"device {rank} (replica {rank})" for rank in range(3)]
    for rank in range(3):
        assert first.count((devices[rank], hops[rank])) == 1  # the first chunk leaves when the backward pass ends
        assert first.count((hops[rank - 1], hops[rank])) == 3  # three more go on as soon as the one before has come
        assert first.count((hops[rank], devices[(rank + 1) % 3])) == 1  # and the last one is applied


def test_overlapping_messages_are_drawn_in_lanes():
    recording = Recording()
    for sent_s, arrived_s in ((0.0, 3.0), (1.0, 2.0), (1.5, 4.0), (3.0, 5.0)):
        recording.record(Transfer(Place("device", 0), Place("device", 1), "chunk", 8.0, sent_s, arrived_s))
    trace = Read(chrome_trace(recording))
    drawn = {(round(one["ts"] / 1e6, 9)): trace.thread[one["tid"]] for one in trace.slices}
    name = "device 0 to device 1"
    assert drawn == {0.0: name, 1.0: f"{name} (2)", 1.5: f"{name} (3)", 3.0: name}
    assert all(one["args"] == {"bytes": 8.0, "queued_s": 0.0} for one in trace.slices)


def test_messages_that_queue_in_a_connection_follow_each_other():
    recording = Recording()
    for sent_s, begun_s, arrived_s in ((0.0, 0.0, 3.0), (0.0, 3.0, 4.0), (1.0, 4.0, 6.0), (6.0, 6.0, 7.0)):
        recording.record(Transfer(Place("server", 0), Place("worker", 0), "pull", 8.0, sent_s, arrived_s, begun_s))
    trace = Read(chrome_trace(recording))
    assert list(trace.thread.values()) == ["server 0 to worker 0"]
    assert [(one["ts"] / 1e6, one["dur"] / 1e6, one["args"]["queued_s"]) for one in trace.slices] == [
        (0, 3, 0), (3, 1, 3), (4, 2, 3), (6, 1, 0),
    ]  # fmt: skip


def test_lanes():
    assert lanes([(0, 3), (1, 2), (1, 4), (3, 5), (5, 5), (5, 6)]) == [0, 1, 2, 0, 0, 0]
    assert lanes([(0, 9), (0, 4), (4, 9), (5, 10), (9, 12)], nested=True) == [0, 0, 0, 1, 0]
    assert lanes([]) == lanes([], nested=True) == []


def test_tracks_are_named_and_sorted_as_one_counts():
    strategy = {"kind": "parameter-server", "mode": "async", "workers": 12, "servers": 1}
    trace = Read(chrome_trace(recorded(strategy=strategy, run={"steps": 3, "warmup_steps": 1})))
    devices = sorted((name for name in trace.order if name.startswith("device")), key=trace.order.get)
    assert devices == [f"device {number} (worker {number})" for number in range(12)]
    assert list(trace.process.values()) == ["critical path", "devices", "network", "servers"]
    assert 0 not in trace.process  # taken for the idle process
    assert not set(trace.thread) & set(trace.process)  # taken for main threads


def test_replicas_that_share_a_device_stand_below_each_other():
    recording = recorded(
        cluster={"devices_per_node": 1, "replicas_per_device": 2}, strategy={"kind": "multi-worker-mirrored", "workers": 4}
    )
    trace = Read(chrome_trace(recording, replicas_per_device=2))
    assert sorted(name for name in trace.thread.values() if not name.endswith(" to all replicas")) == [
        "device 0 (replica 0)", "device 0 (replica 1)", "device 1 (replica 2)", "device 1 (replica 3)",
    ]  # fmt: skip


def test_steps_hold_their_work_and_tell_their_parts():
    recording = recorded(strategy={"kind": "single"})
    trace = Read(chrome_trace(recording))
    steps = [one for one in trace.slices if one["cat"] == "step"]
    assert [one["name"] for one in steps] == [f"step {number}" for number in range(1, 21)]
    assert steps[0]["args"]["compute_s"] == recording.steps[0].compute_s
    assert [one["name"] for one in trace.slices if one["cat"] == "compute"][:2] == ["forward and backward", "apply"]
    assert sum(event["ph"] == "i" and event["name"] == "update applied" for event in trace.events) == 20


def test_the_critical_path_is_marked_where_it_lies():
    strategy = {"kind": "parameter-server", "mode": "async", "workers": 2}
    recording = recorded(workload=SERVER, strategy=strategy)
    path = critical_path(recording, recording.steps[1])
    trace = Read(chrome_trace(recording, path, about={"seed": 3}))
    assert trace.whole["otherData"] == {"written_by": "Paceline", "seed": 3, "critical_path": bound_of_step(path)}
    own = [one for one in trace.slices if trace.process[one["pid"]] == "critical path"]
    assert [(one["ts"] / 1000, one["dur"] / 1000) for one in own] == [
        pytest.approx((segment.start_s * 1e3, (segment.end_s - segment.start_s) * 1e3)) for segment in path.segments
    ]
    marked = [one for one in trace.slices if one["args"].get("critical") and one not in own]
    assert len(marked) == len(path.segments) == 5
    assert {one["cname"] for one in [*own, *marked]} == {"terrible"}
    assert sum("cname" in one for one in trace.slices) == 10
    assert [trace.thread[one["tid"]] for one in sorted(marked, key=lambda one: one["ts"])] == [
        "server 0 to worker 0", "device 0 (worker 0)", "worker 0 to server 0", "server 0", "server 0",
    ]  # fmt: skip


def test_slices_that_touch_still_touch_when_a_reader_cuts_off_to_nanoseconds():
    recording = Recording()
    at_s = 0.0
    for number in range(1, 3000):
        recording.record(Span(0, "work", at_s, at_s + number * 1.37e-9))
        at_s += number * 1.37e-9
    recording.record(Step(0, 0.0, at_s, 0.0, at_s, 0.0, 0.0, 0.0))
    trace = Read(chrome_trace(recording))
    assert len(trace.thread) == 1
    ends = [(math.trunc(one["ts"] * 1000), math.trunc(one["dur"] * 1000)) for one in trace.slices if one["cat"] == "compute"]
    assert all(begin + length == after for (begin, length), (after, _) in itertools.pairwise(ends))


def test_an_empty_run_is_an_empty_trace():
    assert Read(chrome_trace(Recording())).slices == []
