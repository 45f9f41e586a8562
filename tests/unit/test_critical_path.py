"""Critical paths of small scenarios, each worked out by hand; times in milliseconds.

The sample workload computes for 6 ms a step on a device of speed 1 and its variable of
1 MB takes 1 ms over a link of 1 GB/s; a server takes 1 ms for each gradient.
"""

from __future__ import annotations

import itertools

import pytest
from support.scenarios import scenario_table

from simulator import scenario_from_table
from simulator.base.records import Place, Service, Span, Step, Transfer
from simulator.engine.replication import replicate
from simulator.observing.recording import CriticalPath, Recording, bound_of_step, critical_path, median_step
from simulator.resolve.resolve import resolve

SERVER = {"server": {"base_s": 1e-3}}
TWO = [{"name": name, "size": "1 MB", "creation_index": index, "ready": 1.0} for index, name in enumerate(("a", "b"))]
HALF_AS_FAST = {"node_speed": [1.0, 0.5]}


def path_of(replica=0, number=2, **parts):
    recording = Recording()
    replicate(resolve(scenario_from_table(scenario_table(**parts), "test")), 0, recording)
    step = [step for step in recording.steps if step.replica == replica][number - 1]
    path = critical_path(recording, step)
    assert (path.number, path.step) == (number, step)
    return path


def shown(path: CriticalPath):
    """Kind, place and length of each segment, after checking that they follow each other from the step's start to its end."""
    ends = [path.step.start_s, *(segment.end_s for segment in path.segments)]
    assert [segment.start_s for segment in path.segments] == ends[:-1]
    assert ends[-1] == path.step.end_s
    return [(segment.kind, segment.where, round((segment.end_s - segment.start_s) * 1e3, 9)) for segment in path.segments]


def servers(**settings):
    return {"kind": "parameter-server", "mode": "async", "workers": 1, "grouping": "per-server"} | settings


def test_one_worker_and_its_server():
    path = path_of(workload=SERVER, strategy=servers())
    assert shown(path) == [
        ("transfer", "server 0 to worker 0", 1),
        ("compute", "worker 0", 6),
        ("transfer", "worker 0 to server 0", 1),
        ("service", "server 0", 1),
    ]
    assert bound_of_step(path) == (
        "Step 2 of worker 0 took 9.00 ms: 67% compute on worker 0, 11% pull from server 0, 11% push to server 0, "
        "11% service at server 0; compute on worker 0 bounds it."
    )


def test_the_slower_of_two_servers_bounds_a_pull():
    """Variables of 1 and 3 MB on a server each: all leave at once and share the worker's link until the small one is there."""
    variables = [TWO[0], TWO[1] | {"size": "3 MB"}]
    path = path_of(workload={**SERVER, "variables": variables}, strategy=servers(servers=2))
    # 4 MB each way through one link; the small gradient has long been applied when the large one comes
    assert shown(path) == [
        ("transfer", "server 1 to worker 0", 4),
        ("compute", "worker 0", 6),
        ("transfer", "worker 0 to server 1", 4),
        ("service", "server 1", 1),
    ]
    assert bound_of_step(path).startswith("Step 2 of worker 0 took 15.0 ms: 40% compute on worker 0, 27% pull from server 1, ")


def test_a_gradient_that_waits_for_its_turn_waits_for_another_workers():
    """Both pull until 2, compute until 8, push until 10; the server takes worker 0's gradient first."""
    path = path_of(replica=1, number=1, workload=SERVER, strategy=servers(workers=2))
    assert shown(path) == [
        ("transfer", "server 0 to worker 0", 2),
        ("compute", "worker 0", 6),
        ("transfer", "worker 0 to server 0", 2),
        ("service", "server 0", 1),
        ("service", "server 0", 1),
    ]
    assert [segment.record.worker for segment in path.segments[3:]] == [0, 1]
    assert bound_of_step(path) == (
        "Step 1 of worker 1 took 12.0 ms: 50% compute on worker 0, 17% pull of worker 0 from server 0, "
        "17% push of worker 0 to server 0, 8.3% queue at server 0, 8.3% service at server 0; compute on worker 0 bounds it."
    )


@pytest.mark.parametrize("replica", [0, 1])
def test_a_synchronous_step_leads_to_the_slowest_worker(replica):
    """Worker 1 computes for 12: pulls of two variables until 2, compute until 14, pushes until 16, accumulate, apply."""
    strategy = servers(mode="sync", workers=2, servers=2)
    path = path_of(replica, workload={**SERVER, "variables": TWO}, cluster=HALF_AS_FAST, strategy=strategy)
    lengths = [(kind, ms) for kind, _, ms in shown(path)]
    assert lengths == [("transfer", 2), ("compute", 12), ("transfer", 2), ("service", 1), ("service", 1)]
    assert path.segments[1].where == "worker 1"
    assert [segment.record.name for segment in path.segments[3:]] == ["accumulate", "apply"]
    assert path.segments[2].where.startswith("worker 1 to server")


@pytest.mark.parametrize(("messages", "kinds"), [(True, ["transfer", "transfer"]), (False, ["all-reduce"])])
def test_a_ring_waits_for_its_slowest_rank(messages, kinds):
    """Rank 1 is ready after 12; two chunks of 0.5 MB follow, one there and one back; it then takes 1 to apply."""
    strategy = {"kind": "multi-worker-mirrored", "workers": 2, "detail": "messages" if messages else "auto"}
    path = path_of(1, cluster=HALF_AS_FAST, strategy=strategy)
    parts = shown(path)
    assert parts[0] == ("compute", "replica 1", 12)
    assert [kind for kind, _, _ in parts[1:-1]] == kinds
    assert sum(ms for _, _, ms in parts[1:-1]) == pytest.approx(1)
    assert parts[-1] == ("compute", "replica 1", 1)
    # the fast rank is done with its step, and begins the next one, 0.5 before: that step contains the other one's apply
    other = path_of(0, cluster=HALF_AS_FAST, strategy=strategy)
    assert [(where, ms) for _, where, ms in shown(other)[:2]] == [("replica 1", 0.5), ("replica 1", 12)]
    assert shown(other)[-1] == ("compute", "replica 0", 0.5)


def test_a_rank_that_sends_last_goes_on_when_its_last_byte_has_left():
    """1 MB from device 1 to 0 and back at 1 GB/s with 0.25 of latency: device 0 ends when it has sent, device 1 when it has received."""
    strategy = {"kind": "mirrored", "replicas": 2, "algorithm": "reduce-to-one-device"}
    cluster = {"devices_per_node": 2, "intra_node": {"bandwidth": "1 GB/s", "latency": "0.25 ms"}}
    path = path_of(0, number=1, cluster=cluster, strategy=strategy, run={"detail": "messages"})
    assert shown(path) == [
        ("compute", "replica 1", 6),
        ("transfer", "device 1 to device 0", 1.25),
        ("transfer", "replica 0", 1),
        ("compute", "replica 0", 0.5),
    ]
    assert "26% messages between devices" in bound_of_step(path)
    other = path_of(1, number=1, cluster=cluster, strategy=strategy, run={"detail": "messages"})
    assert shown(other)[2] == ("transfer", "device 0 to device 1", 1.25)


def test_a_chain_of_messages_round_a_ring():
    """Four equal ranks, chunks of 0.25 MB: six messages one after the other, each enabled by the one before."""
    path = path_of(strategy={"kind": "multi-worker-mirrored", "workers": 4, "detail": "messages"})
    parts = shown(path)
    assert [kind for kind, _, _ in parts] == ["compute", *["transfer"] * 6, "compute"]
    hops = [segment.where.split(" to ") for segment in path.segments[1:-1]]
    assert all(before[1] == after[0] for before, after in itertools.pairwise(hops))
    assert "19% messages between devices" in bound_of_step(path)  # 1.5 of 8


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ({"kind": "single"}, [("input", 3.5), ("compute", 6), ("compute", 0.5)]),
        (servers(), [("transfer", 1), ("input", 1), ("compute", 6), ("transfer", 1), ("service", 1)]),
    ],
)
def test_input_that_is_not_ready_in_time(strategy, expected):
    """A batch takes 10 to prepare while the one before is trained on."""
    path = path_of(workload={**SERVER, "input": {"base_s": 10e-3, "per_sample_s": 0.0}}, strategy=strategy)
    assert [(kind, ms) for kind, _, ms in shown(path)] == expected


WORKER, SERVER_0 = Place("worker", 3), Place("server", 0)


def kept(*records):
    """A recording of these, numbered in their order."""
    recording = Recording()
    for number, record in enumerate(records):
        recording.record(record if isinstance(record, Step) else record._replace(number=number))
    return recording


def test_time_between_a_cause_and_its_effect_is_a_wait():
    recording = kept(
        Transfer(SERVER_0, WORKER, "pull 0", 1.0, 2.0, 3.0, kind="pull"),  # sent late: asked for only then
        Span(3, "forward", 5.0, 6.0, cause=0),
        Transfer(WORKER, SERVER_0, "push 0", 1.0, 6.0, 7.0, cause=1, kind="push"),
        Service(0, "apply", 3, 0, 8.0, 9.0, cause=2),
        Step(3, 1.0, 10.0, 0.0, 1.0, 4.0, 4.0, 0.0, cause=3),
    )
    path = critical_path(recording, recording.steps[0])
    assert [(segment.kind, segment.where, segment.start_s, segment.end_s) for segment in path.segments] == [
        ("wait", "server 0", 1.0, 2.0),
        ("transfer", "server 0 to worker 3", 2.0, 3.0),
        ("wait", "worker 3", 3.0, 5.0),
        ("compute", "worker 3", 5.0, 6.0),
        ("transfer", "worker 3 to server 0", 6.0, 7.0),
        ("wait", "server 0", 7.0, 8.0),
        ("service", "server 0", 8.0, 9.0),
        ("wait", "worker 3", 9.0, 10.0),
    ]


def test_a_step_without_any_record_is_a_wait():
    recording = kept(Step(0, 1.0, 2.0, 0.0, 0.0, 0.0, 1.0, 0.0))
    path = critical_path(recording, recording.steps[0])
    assert bound_of_step(path) == "Step 1 of replica 0 took 1.00 s: 100% wait of replica 0; the wait of replica 0 bounds it."


def test_copies_between_host_and_device_are_followed():
    host, device = Place("host", 3), Place("device", 3)
    recording = kept(
        Transfer(SERVER_0, WORKER, "pull 7", 1.0, 0.0, 1.0, kind="pull"),
        Transfer(host, device, "to device 7", 1.0, 1.0, 1.5, cause=0, kind="to device"),
        Span(3, "forward and backward", 1.5, 4.0, cause=1),
        Transfer(device, host, "from device 7", 1.0, 4.0, 4.5, cause=2, kind="from device"),
        Transfer(WORKER, SERVER_0, "push 7", 1.0, 4.5, 5.5, cause=3, kind="push"),
        Service(0, "apply", 3, 7, 5.5, 6.0, cause=4),
        Step(3, 0.0, 6.0, 0.0, 2.5, 3.0, 0.0, 0.5, cause=5),
    )
    path = critical_path(recording, recording.steps[0])
    assert [segment.what for segment in path.segments] == [
        "pull 7", "to device 7", "forward and backward", "from device 7", "push 7", "apply 7",
    ]  # fmt: skip
    assert "8.3% transfer from host of worker 3 to device 3" in bound_of_step(path)


def test_work_that_takes_no_time_is_passed_over():
    recording = kept(
        Span(3, "forward", 0.0, 1.0),
        Transfer(WORKER, SERVER_0, "push 0", 1.0, 1.0, 1.0, cause=0, kind="push"),
        Service(0, "apply", 3, 0, 1.0, 1.0, cause=1),
        Step(3, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, cause=2),
        Step(3, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    )
    assert shown(critical_path(recording, recording.steps[0])) == [("compute", "worker 3", 1000)]
    assert bound_of_step(critical_path(recording, recording.steps[1])) == "Step 2 of worker 3 took 0 s: no operation in it takes time."


def test_a_message_that_stood_behind_another_counts_from_its_begin():
    recording = kept(
        Span(3, "backward", 0.0, 1.0),
        Transfer(WORKER, SERVER_0, "push 0", 1.0, 1.0, 5.0, cause=0, kind="push"),
        Transfer(WORKER, SERVER_0, "push 1", 1.0, 1.0, 6.0, begun_s=5.0, cause=1, sender=0, kind="push"),
        Step(3, 0.0, 6.0, 0.0, 2.0, 3.0, 0.0, 1.0, cause=2),
    )
    path = critical_path(recording, recording.steps[0])
    assert [(segment.what, segment.start_s) for segment in path.segments] == [("backward", 0.0), ("push 0", 1.0), ("push 1", 5.0)]


def test_gradients_that_wait_for_a_server_name_their_message_and_what_they_stood_behind():
    """Two workers push at once; worker 1's gradient comes with worker 0's and is served after it."""
    recording = Recording()
    replicate(resolve(scenario_from_table(scenario_table(workload=SERVER, strategy=servers(workers=2)), "test")), 0, recording)
    first, second = recording.services[:2]
    by_number = recording.by_number()
    assert by_number[first.cause] is by_number[first.sender] is recording.transfers[2]
    assert by_number[second.cause] is first
    assert by_number[second.sender] is recording.transfers[3]
    assert [recording.transfers[2].source, recording.transfers[3].source] == [Place("worker", 0), Place("worker", 1)]


def test_what_the_coordinator_hands_out_one_by_one_stands_in_a_queue():
    """Each step takes it 1 ms; three workers ask at once."""
    recording = Recording()
    strategy = servers(workers=3, coordinator={"dispatch": "1 ms", "latency": "0.5 ms"})
    replicate(resolve(scenario_from_table(scenario_table(strategy=strategy), "test")), 0, recording)
    waits = recording.waits[:3]
    assert [(wait.replica, wait.name, round(wait.start_s * 1e3, 9), round(wait.end_s * 1e3, 9)) for wait in waits] == [
        (0, "dispatch", 0.0, 1.5), (1, "dispatch", 1.5, 2.5), (2, "dispatch", 2.5, 3.5),
    ]  # fmt: skip
    assert [wait.cause for wait in waits] == [-1, waits[0].number, waits[1].number]


def test_who_held_a_stale_synchronous_worker_back_is_on_its_path():
    """Worker 1 takes twice as long; with a bound of 0 the fast one waits for its steps."""
    strategy = servers(mode="ssp", bound=0, workers=2)
    path = path_of(0, number=3, workload=SERVER, cluster=HALF_AS_FAST, strategy=strategy)
    assert ("compute", "worker 1") in [(kind, where) for kind, where, _ in shown(path)]
    assert {kind for kind, _, _ in shown(path)} == {"transfer", "compute", "service"}


def test_the_median_step_is_the_first_of_the_shorter_middle_ones():
    steps = [Step(0, 0.0, length, 0.0, length, 0.0, 0.0, 0.0) for length in (4.0, 1.0, 2.0, 2.0, 9.0, 3.0)]
    assert median_step(steps) is steps[3]
    assert median_step(steps[:1]) is steps[0]
