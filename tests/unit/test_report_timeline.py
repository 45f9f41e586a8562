"""The timeline of a report: lanes without overlap or hole, the critical path as the observer finds it, large runs cut and told."""

from __future__ import annotations

import re
from itertools import groupby, pairwise

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hybrids import hybrid
from support.modes import LOAD, MODES
from support.runs import recorded
from support.scenarios import scenario_table

from paceline.reporting.figures import timeline_figure
from paceline.reporting.simulated import records_a_step, shortened, timeline_of
from paceline.reporting.timeline import PATH_KINDS, Bar, Piece, Timeline, coarse, joined, merged
from simulator import Scenario, scenario_from_table, simulate
from simulator.observing.recording import bound_of_step, critical_path, median_step

SERVERS = {"kind": "parameter-server", "mode": "async"}


REPLICAS = [name for name, (strategy, *_) in MODES.items() if strategy["kind"] != "hybrid"]
CUT = [name for name in MODES if name not in REPLICAS]


def mode(name: str) -> Scenario:
    strategy, cluster, run = MODES[name]
    return scenario_from_table(scenario_table(workload=LOAD, strategy=strategy, cluster=cluster, run=run), "test")


def drawn(scenario: Scenario) -> Timeline:
    timeline = timeline_of(scenario, "mine")
    assert timeline is not None
    return timeline


def lane(timeline: Timeline, name: str) -> list[Bar]:
    return [bar for bar in timeline.bars if bar.lane == name]


def replicas(timeline: Timeline) -> list[str]:
    return [name for name in timeline.lanes if name.startswith(("worker", "replica")) and "→" not in name]


@pytest.mark.parametrize("name", REPLICAS)
def test_lanes_have_no_overlap_and_replicas_no_hole(name: str) -> None:
    scenario = mode(name)
    timeline = drawn(scenario)
    path, window_s = path_of(scenario)
    for each in timeline.lanes:
        bars = lane(timeline, each)
        assert all(one.end_s <= other.start_s + 1e-12 for one, other in pairwise(bars)), each
        assert all(0 <= bar.start_s < bar.end_s <= window_s + 1e-12 for bar in bars)
    assert len(replicas(timeline)) == scenario.replicas
    for each in replicas(timeline):
        bars = lane(timeline, each)
        assert all(one.end_s == pytest.approx(other.start_s, abs=1e-12) for one, other in pairwise(bars)), each
    own = lane(timeline, path.name)
    assert own[0].start_s == 0
    assert own[-1].end_s == pytest.approx(window_s, rel=1e-12)


def path_of(scenario: Scenario):
    """The critical path of the median step, and the length of three steps around it."""
    recording = recorded(scenario)
    path = critical_path(recording, median_step(recording.steps[scenario.warmup * scenario.replicas :]))
    own = [step for step in recording.steps if step.replica == path.step.replica]
    first = max(0, min(path.number - 2, len(own) - 3))
    return path, own[first + 2].end_s - own[first].start_s


@pytest.mark.parametrize("name", REPLICAS)
def test_the_critical_path_is_the_observers(name: str) -> None:
    scenario = mode(name)
    timeline = drawn(scenario)
    path, _ = path_of(scenario)
    bars = lane(timeline, timeline.lanes[0])
    assert timeline.lanes[0] == f"critical path of step {path.number}"
    assert timeline.sentence == bound_of_step(path)
    together = [list(its) for _, its in groupby(path.segments, key=lambda its: (its.kind, its.name, its.where))]
    assert [bar.end_s - bar.start_s for bar in bars] == pytest.approx([its[-1].end_s - its[0].start_s for its in together])
    assert sum(bar.end_s - bar.start_s for bar in bars) == pytest.approx(path.step.end_s - path.step.start_s, rel=1e-9)
    kinds = ["apply" if its[0].kind == "compute" and its[0].what == "apply" else PATH_KINDS[its[0].kind] for its in together]
    assert [bar.kind for bar in bars] == kinds
    assert all(bar.critical for bar in bars)
    for its in path.segments:  # the work stands in a lane of its own as well, marked
        if its.kind == "compute":
            assert any(bar.critical and bar.kind != "communication" for bar in lane(timeline, its.where)), its


# -- of models that are cut -------------------------------------------------------------------


@pytest.mark.parametrize("name", CUT)
def test_lanes_of_a_cut_model_have_no_overlap_and_stages_no_hole(name: str) -> None:
    # a seed at which none draws the run's last step, after which the steps that others are in are not recorded
    scenario = mode(name)
    timeline = drawn(scenario.model_copy(update={"run": scenario.run.model_copy(update={"seed": 5})}))
    end_s = max(bar.end_s for bar in timeline.bars)
    devices = [each for each in timeline.lanes[1:] if each.startswith(("stage", "copy"))]
    assert devices
    for each in timeline.lanes:
        bars = lane(timeline, each)
        assert all(one.end_s <= other.start_s + 1e-12 for one, other in pairwise(bars)), each
    for each in devices:
        bars = lane(timeline, each)
        assert all(one.end_s == pytest.approx(other.start_s, abs=1e-12) for one, other in pairwise(bars)), each
        assert bars[0].start_s == pytest.approx(0, abs=1e-12)
        assert bars[-1].end_s == pytest.approx(end_s)


@pytest.mark.parametrize("name", CUT)
def test_the_critical_path_of_a_cut_model_is_the_observers(name: str) -> None:
    scenario = mode(name)
    timeline, recording = drawn(scenario), recorded(scenario)
    ranks = len({step.replica for step in recording.steps})
    path = critical_path(recording, median_step(recording.steps[scenario.warmup * ranks :]))
    assert timeline.sentence == bound_of_step(path)
    bars = lane(timeline, timeline.lanes[0])
    assert sum(bar.end_s - bar.start_s for bar in bars) == pytest.approx(path.step.end_s - path.step.start_s, rel=1e-9)
    assert all(bar.critical for bar in bars)


def test_every_stage_of_one_copy_is_drawn_with_its_micro_batches() -> None:
    timeline = drawn(hybrid({"workers": 8, "pipeline": 4, "schedule": "zero-bubble"}, 4))
    copy = timeline.lanes[1].removeprefix("stage 0 of ")
    assert timeline.lanes[1:5] == tuple(f"stage {stage} of {copy}" for stage in range(4))
    for each in timeline.lanes[1:5]:
        bars = lane(timeline, each)
        for kind in ("forward", "backward", "weights"):
            assert {bar.label for bar in bars if bar.kind == kind} == {"0", "1", "2", "3"}, each
        assert any(bar.kind == "bubble" for bar in bars) or each == timeline.lanes[4]
    assert timeline.note.startswith("Step ")


def test_what_stages_hand_on_leads_from_lane_to_lane() -> None:
    cluster = {"inter_node": {"bandwidth": "1 GB/s", "latency": "1 ms"}}
    timeline = drawn(hybrid({"workers": 2, "pipeline": 2}, 4, cluster=cluster, layer={"output_bytes_per_sample": 1e5}))
    ways = {(arrow.source, arrow.target) for arrow in timeline.arrows}
    assert ways == {("stage 0", "stage 1"), ("stage 1", "stage 0")}
    assert all(arrow.arrived_s - arrow.sent_s >= 1e-3 for arrow in timeline.arrows)
    lines = next(trace for trace in go.Figure(timeline_figure(timeline)).data if trace.type == "scatter")
    assert len(lines.x) == 3 * len(timeline.arrows)
    labels = [text for trace in go.Figure(timeline_figure(timeline)).data if trace.type == "bar" for text in trace.text or ()]
    assert {"0", "1", "2", "3"} <= set(labels)


def test_of_many_stages_sixteen_are_drawn() -> None:
    work = (1.0,) * 20
    variables = [{"name": f"v{at}", "size_bytes": 1e6, "creation_index": at, "ready": 1 - at / 20} for at in reversed(range(20))]
    timeline = drawn(hybrid({"workers": 20, "pipeline": 20}, 4, work=work, workload={"variables": variables}))
    stages = [each for each in timeline.lanes[1:] if each.startswith("stage")]
    assert (len(stages), stages[0], stages[-1]) == (16, "stage 0", "stage 19")
    assert "16 of 20 stages are drawn." in timeline.note


def test_gathers_have_a_lane_of_their_own_and_passes_are_whole() -> None:
    timeline = drawn(hybrid({"workers": 4, "shard": "parameters"}, cluster={"inter_node": {"bandwidth": "1 GB/s", "latency": "1 us"}}))
    assert {"all-gather", "reduce-scatter"} <= set(timeline.lanes)
    assert not timeline.arrows
    bars = lane(timeline, "copy 0")
    assert {bar.kind for bar in bars} >= {"forward", "backward"}
    assert all(not bar.label for bar in bars)  # a batch that is not cut


DIFFER = {
    # by its causes a replica waits for the messages of an earlier bucket, while the engine counts until the slowest is ready
    "ring, messages", "ring, copies", "ring, buckets", "ring, forward", "ring, cycles", "ring, through hosts", "ring, slowed",
    "ring, shared cores", "shared devices", "gossip", "DDP", "Keras data parallel",
}  # fmt: skip


GIVEN_UP = {"sync, backups stop", "sync, backups stop, slowed"}
"""Of a step that is given up some gradients have been served, which the engine counts as communication, since others were on their way."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in REPLICAS if name != "ring, forward"])
def test_a_lane_adds_up_to_what_the_engine_accounts_for(name: str) -> None:
    scenario = mode(name)
    path, _ = path_of(scenario)
    own = [step for step in recorded(scenario).steps if step.replica == path.step.replica]
    first = max(0, min(path.number - 2, len(own) - 3))
    bars = lane(drawn(scenario), path.name)
    apart = [("communication", "waiting")] if name in DIFFER else [("communication",), ("waiting",)]
    served = [("communication", "apply", "waiting")] if name in GIVEN_UP else [("apply",), *apart]
    for kinds in (("input",), ("compute",), *served):
        want = sum(getattr(step, f"{kind}_s") for step in own[first : first + 3] for kind in kinds)
        assert sum(bar.end_s - bar.start_s for bar in bars if bar.kind in kinds) == pytest.approx(want, abs=1e-12), kinds


def test_a_worker_and_its_server_by_hand() -> None:
    """Pull 1 ms, compute 6 ms, push 1 ms, service 1 ms: a step of 9 ms, three of which are drawn."""
    scenario = scenario_from_table(
        scenario_table(workload={"server": {"base_s": 1e-3}}, strategy={**SERVERS, "workers": 1, "grouping": "per-server"}),
        "test",
    )
    timeline = drawn(scenario)
    assert [(bar.kind, round(bar.end_s - bar.start_s, 9)) for bar in lane(timeline, "worker 0")] == [
        ("communication", 1e-3),
        ("compute", 6e-3),
        ("communication", 1e-3),
        ("apply", 1e-3),
    ] * 3
    assert [round(bar.start_s, 9) for bar in lane(timeline, "worker 0 → server 0")] == [7e-3, 16e-3, 25e-3]
    assert [round(bar.start_s, 9) for bar in lane(timeline, "server 0")] == [8e-3, 17e-3, 26e-3]
    assert [bar.critical for bar in lane(timeline, "server 0")].count(True) == 1
    assert lane(timeline, "worker 0 → server 0")[0].text == "worker 0 → server 0: push, 977 KiB, 1.00 ms"


def test_input_stands_before_the_compute_that_waits_for_it() -> None:
    """A batch takes 10 ms to prepare, a step 7 ms to compute and apply: the device waits for 3 ms and a half."""
    scenario = scenario_from_table(scenario_table(workload={"input": {"base": "10 ms", "per_sample": "0 s"}}), "test")
    bars = lane(drawn(scenario), "replica 0")
    assert [(bar.kind, round(bar.end_s - bar.start_s, 9)) for bar in bars] == [("input", 3.5e-3), ("compute", 6e-3), ("apply", 5e-4)] * 3


def test_of_many_workers_eight_are_drawn_with_the_slowest() -> None:
    classes = [{"name": "slow", "nodes": 1, "speed": 0.5}]
    scenario = scenario_from_table(
        scenario_table(
            cluster={"node_classes": classes},
            strategy={**SERVERS, "workers": 20},
        ),
        "test",
    )
    timeline = drawn(scenario)
    assert len(replicas(timeline)) == 8
    assert "worker 0" in replicas(timeline)
    assert "8 of 20 workers are drawn: worker 0 is the slowest of all, worker" in timeline.note
    assert re.search(r"10 of \d+ connections are drawn", timeline.note)


def test_of_a_path_through_many_workers_three_are_drawn_and_others_evenly() -> None:
    timeline = drawn(
        scenario_from_table(scenario_table(strategy={"kind": "multi-worker-mirrored", "workers": 30, "detail": "messages"}), "test")
    )
    assert replicas(timeline) == [f"replica {number}" for number in (0, 1, 2, 4, 8, 12, 17, 27)]


def test_a_long_run_is_cut_to_its_first_steps_and_told() -> None:
    table = scenario_table(strategy={**SERVERS, "workers": 4}, run={"steps": 100_000})
    short, told = shortened(scenario_from_table(table, "test"))
    assert short.run.steps == 300_000 // records_a_step(short, 4)
    assert told == f"The run is cut to the first {short.run.steps:,} of 100,000 steps of each replica."
    whole = scenario_from_table(scenario_table(strategy={**SERVERS, "workers": 4}, run={"steps": 40}), "test")
    half = whole.model_copy(update={"run": whole.run.model_copy(update={"steps": 20})})
    ended = recorded(half).steps
    assert recorded(whole).steps[: len(ended) - 4] == ended[:-4]  # the very same run, as far as it goes


def test_a_large_run_gets_fewer_replicas_and_says_that_it_is_another() -> None:
    table = scenario_table(strategy={"kind": "multi-worker-mirrored", "workers": 4096, "detail": "messages"})
    table["workload"]["global_batch"] = 4096 * table["workload"].pop("batch_per_replica")
    short, told = shortened(scenario_from_table(table, "test"))
    assert 2 <= short.replicas < 4096
    assert records_a_step(short, short.replicas) * short.run.steps <= 300_000
    assert short.batch == 10
    assert told.startswith(f"Simulated with {short.replicas} replicas in place of 4,096, ")


def test_a_short_run_stays_as_it_is() -> None:
    scenario = mode("async")
    assert shortened(scenario) == (scenario, "")


def test_the_figure_holds_every_bar_once_in_the_page_s_colours() -> None:
    timeline = drawn(mode("sync, backups finish"))
    chart = go.Figure(timeline_figure(timeline))
    places = {(round(base + length, 9), y) for trace in chart.data for base, length, y in zip(trace.base, trace.x, trace.y, strict=True)}
    assert len(places) == len(timeline.bars) == sum(len(trace.x) for trace in chart.data)
    assert {trace.marker.color for trace in chart.data} <= {
        f"var(--part-{part})" for part in ("input", "compute", "exposed-communication", "waiting", "apply")
    }
    outlined = sum(width > 0 for trace in chart.data for width in trace.marker.line.width)
    assert outlined == sum(bar.critical for bar in timeline.bars)
    assert chart.layout.height < 600
    assert list(chart.layout.yaxis.ticktext) == list(timeline.lanes)


def test_pieces_that_overlap_become_one_and_what_is_critical_is_cut_out() -> None:
    pieces = [
        Piece(0.0, 4.0, "communication", "push"),
        Piece(2.0, 6.0, "communication", "push"),
        Piece(3.0, 5.0, "communication", "push", critical=True),
        Piece(6.5, 7.0, "communication", "push"),
        Piece(9.0, 9.5, "communication", "push"),
    ]
    assert [(one.start_s, one.end_s, one.critical) for one in joined(pieces, 0.6)] == [
        (0.0, 3.0, False),
        (3.0, 5.0, True),
        (5.0, 7.0, False),
        (9.0, 9.5, False),
    ]


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10), st.booleans(), st.sampled_from(["push", "pull"])), max_size=12),
    st.integers(1, 8),
)
def test_whatever_overlaps_no_time_is_lost_or_drawn_twice(some: list[tuple[int, int, bool, str]], smallest: int) -> None:
    pieces = [Piece(start, start + length, "communication", what, critical) for start, length, critical, what in some]
    found = joined(pieces, 0.0)
    for its in (found, coarse(found, smallest)):
        assert all(one.end_s <= other.start_s for one, other in pairwise(its))
        for moment in range(51):
            under_way = [piece for piece in pieces if piece.start_s <= moment + 0.5 < piece.end_s]
            drawn = [piece for piece in its if piece.start_s <= moment + 0.5 < piece.end_s]
            assert len(drawn) == bool(under_way)
            assert any(piece.critical for piece in drawn) == any(piece.critical for piece in under_way)


def test_small_pieces_become_part_of_what_they_touch() -> None:
    pieces = [Piece(0.0, 1.0, "compute", "forward"), Piece(1.0, 1.1, "waiting", "waits"), Piece(1.1, 3.0, "compute", "backward")]
    found = coarse(pieces, 0.5)
    assert [(one.start_s, one.end_s, one.what) for one in found] == [(0.0, 1.1, "forward"), (1.1, 3.0, "backward")]
    assert coarse([pieces[0], pieces[2]], 0.5) == [pieces[0], pieces[2]]  # they do not touch


def test_intervals_that_overlap_or_touch_are_merged() -> None:
    assert merged([(4.0, 5.0), (0.0, 2.0), (1.0, 3.0), (7.0, 7.0), (5.0, 6.0)]) == [(0.0, 3.0), (4.0, 6.0)]


def test_local_sgd_is_shortened_to_a_whole_averaging_period() -> None:
    table = scenario_table(strategy={"kind": "multi-worker-mirrored", "workers": 1024, "sync_every": 100}, run={"steps": 400})
    short, _ = shortened(scenario_from_table(table, "test"))
    assert short.run.steps - short.warmup == 100
    assert simulate(short.model_copy(update={"run": short.run.model_copy(update={"replications": 2})})).updates_per_s.mean > 0
