"""What TensorBoard reads is what was simulated."""

from __future__ import annotations

import struct

import pytest
from support.hybrids import hybrid
from support.scenarios import scenario_table
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import RecordWriter

from simulator import scenario_from_table, simulate
from simulator.base.errors import InputError
from simulator.base.records import Step
from simulator.engine.replication import replicate
from simulator.observing.recording import FanOut, Recording
from simulator.observing.tensorboard import EVENT_FILE, EventHistogram, TensorBoard
from simulator.resolve.resolve import resolve

ASYNC = {"kind": "parameter-server", "mode": "async", "workers": 3}


def events_of(folder):
    """The events of a file, decoded here: length, its checksum, message, its checksum."""
    data = (folder / EVENT_FILE).read_bytes()
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        found.append(Event.FromString(data[at + 12 : at + 12 + length]))
        at += 12 + length + 4
    return found


def points_of(folder, tag):
    return [
        (event.step, event.wall_time, value.simple_value)
        for event in events_of(folder)
        for value in event.summary.value
        if value.tag == tag
    ]


def watched(folder, **parts):
    scenario = scenario_from_table(scenario_table(**parts), "test")
    recording = Recording()
    with TensorBoard(folder, resolve(scenario)) as board:
        replicate(resolve(scenario), 0, FanOut([recording, board]))
    return scenario, recording


def test_each_point_is_the_mean_of_a_step_of_all_replicas(tmp_path):
    scenario, recording = watched(tmp_path, workload={"jitter": {"kind": "lognormal", "sigma": 0.3}}, strategy=ASYNC)
    points = points_of(tmp_path, "step_time_s")
    assert [step for step, _, _ in points] == list(range(1, 21))
    third = recording.steps[6:9]
    _, wall_s, mean_s = points[2]
    assert wall_s == third[-1].end_s
    assert mean_s == pytest.approx(sum(one.end_s - one.start_s for one in third) / 3, rel=1e-6)
    rate = points_of(tmp_path, "throughput_samples_per_s")[2][2]
    assert rate == pytest.approx(3 * scenario.batch / (third[-1].end_s - recording.steps[5].end_s), rel=1e-6)
    stale = points_of(tmp_path, "staleness")
    assert sum(value for _, _, value in stale) * 3 == pytest.approx(sum(update.staleness for update in recording.updates), rel=1e-6)
    parts = {
        tag: points_of(tmp_path, f"breakdown_s/{tag}")[2][2] for tag in ("input", "compute", "exposed_communication", "waiting", "apply")
    }
    assert sum(parts.values()) == pytest.approx(mean_s, rel=1e-6)


def test_histograms_hold_every_step_and_update(tmp_path):
    _, recording = watched(tmp_path, workload={"jitter": {"kind": "exponential"}}, strategy=ASYNC, run={"steps": 120, "warmup_steps": 1})
    histograms = [(value.tag, value.histo) for event in events_of(tmp_path) for value in event.summary.value if value.HasField("histo")]
    for tag, values in (
        ("distribution/step_time_s", [step.end_s - step.start_s for step in recording.steps]),
        ("distribution/staleness", [update.staleness for update in recording.updates]),
    ):
        mine = [histogram for name, histogram in histograms if name == tag]
        assert 20 < len(mine) <= 50
        assert sum(histogram.num for histogram in mine) == len(values) == sum(sum(histogram.bucket) for histogram in mine)
        assert sum(histogram.sum for histogram in mine) == pytest.approx(sum(values))
        assert min(histogram.min for histogram in mine) == min(values)
        assert max(histogram.max for histogram in mine) == max(values)
        assert all(list(histogram.bucket_limit) == sorted(set(histogram.bucket_limit)) for histogram in mine)


def test_bins_say_where_values_lie():
    whole = EventHistogram(whole=True)
    for value in (0, 2, 2, 5):
        whole.add(value)
    fields = whole.fields()
    assert (fields["bucket_limit"], fields["bucket"]) == ([0.5, 1.5, 2.5, 4.5, 5.5], [1, 0, 2, 0, 1])
    assert (fields["min"], fields["max"], fields["num"], fields["sum"], fields["sum_squares"]) == (0, 5, 4, 9, 33)
    times = EventHistogram(whole=False)
    for value in (0.0, 1e-3, 1.02e-3, 2.0):
        times.add(value)
    limits, counts = times.fields()["bucket_limit"], times.fields()["bucket"]
    assert sum(counts) == 4
    assert any(low <= 2.0 < high and count == 1 for low, high, count in zip(limits, limits[1:], counts[1:], strict=False))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 7])
def test_a_long_run_is_thinned(tmp_path, workers):
    steps = 20_011
    scenario = scenario_from_table(scenario_table(strategy=ASYNC | {"workers": workers}, run={"steps": steps}), "test")
    with TensorBoard(tmp_path, resolve(scenario)) as board:
        for number in range(steps * workers):
            board.record(Step(number % workers, number * 1.0, number + 1.0, 0.0, 1.0, 0.0, 0.0, 0.0))
    points = points_of(tmp_path, "step_time_s")
    assert 900 < len(points) <= 1000
    assert points[-1][:2] == (steps, steps * workers * 1.0)
    assert len({step for step, _, _ in points}) == len(points)


def test_the_same_scenario_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        watched(tmp_path / name, workload={"jitter": {"kind": "exponential"}}, strategy=ASYNC)
    assert (tmp_path / "one" / EVENT_FILE).read_bytes() == (tmp_path / "two" / EVENT_FILE).read_bytes()
    watched(tmp_path / "one", workload={"jitter": {"kind": "exponential"}}, strategy=ASYNC, run={"steps": 20, "seed": 4})
    assert (tmp_path / "one" / EVENT_FILE).read_bytes() != (tmp_path / "two" / EVENT_FILE).read_bytes()
    assert [path.name for path in (tmp_path / "one").iterdir()] == [EVENT_FILE]  # a folder holds one run


def test_a_run_that_fails_leaves_no_file_and_keeps_the_old_one(tmp_path):
    scenario = scenario_from_table(scenario_table(strategy=ASYNC), "test")

    def fail():
        with TensorBoard(tmp_path, resolve(scenario)) as board:
            board.record(Step(0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0))
            raise ZeroDivisionError

    for kept in ([], [EVENT_FILE]):
        with pytest.raises(ZeroDivisionError):
            fail()
        assert [path.name for path in tmp_path.iterdir()] == kept
        with TensorBoard(tmp_path, resolve(scenario)):
            pass
        old = (tmp_path / EVENT_FILE).read_bytes()
    assert (tmp_path / EVENT_FILE).read_bytes() == old


def test_only_a_run_of_its_own_is_replaced(tmp_path):
    scenario = scenario_from_table(scenario_table(strategy=ASYNC), "test")
    # as TensorFlow begins its own: with the time of a clock
    writer = RecordWriter(str(tmp_path / EVENT_FILE))
    writer.write(Event(wall_time=1.7e9, file_version="brain.Event:2").SerializeToString())
    writer.close()
    with pytest.raises(InputError, match="exists already and is not a run of Paceline; overwrite it with `force=True`"):
        TensorBoard(tmp_path, resolve(scenario))
    with TensorBoard(tmp_path, resolve(scenario), force=True):
        pass
    with TensorBoard(tmp_path, resolve(scenario)):
        pass


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    scenario = scenario_from_table(scenario_table(), "test")
    with pytest.raises(InputError, match="file': is a file, not a folder"):
        TensorBoard(tmp_path / "file", resolve(scenario))
    with pytest.raises(InputError, match=r"below': .*file is a file, not a folder"):
        TensorBoard(tmp_path / "file" / "below", resolve(scenario))


@pytest.mark.slow
def test_tensorboard_itself_reads_it(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    _, recording = watched(tmp_path, workload={"jitter": {"kind": "exponential"}}, strategy=ASYNC)
    board = accumulator.EventAccumulator(str(tmp_path), size_guidance={"scalars": 0, "histograms": 0})
    board.Reload()
    tags = board.Tags()
    assert set(tags["scalars"]) == {
        "step_time_s", "throughput_samples_per_s", "staleness",
        *(f"breakdown_s/{part}" for part in ("input", "compute", "exposed_communication", "waiting", "apply")),
    }  # fmt: skip
    assert set(tags["histograms"]) == {"distribution/step_time_s", "distribution/staleness"}
    scalars = board.Scalars("step_time_s")
    assert [(point.step, pytest.approx(point.value, rel=1e-6)) for point in scalars] == [
        (step, value) for step, _, value in points_of(tmp_path, "step_time_s")
    ]
    assert scalars[-1].wall_time == recording.steps[-1].end_s
    assert sum(point.histogram_value.num for point in board.Histograms("distribution/step_time_s")) == len(recording.steps)


@pytest.mark.parametrize("strategy", [{"pipeline": 2}, {"tensor": 2}, {"pipeline": 2, "tensor": 2}, {"shard": "parameters"}])
def test_the_course_of_a_cut_model_has_its_throughput(strategy, tmp_path):
    scenario = hybrid({"workers": 4, **strategy}, 2, cluster={"devices_per_node": 4}, layer={"tensor": {}})
    with TensorBoard(tmp_path, resolve(scenario)) as board:
        replicate(resolve(scenario), 0, board)
    points = points_of(tmp_path, "throughput_samples_per_s")
    assert points[-1][0] == scenario.run.steps
    assert points[-1][2] == pytest.approx(simulate(scenario).throughput_samples_per_s.mean, rel=1e-3)
