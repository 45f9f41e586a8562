"""What-ifs of a report against closed forms, and what happens where they would take too long."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest
from support.runs import FAST
from support.scenarios import scenario_table

from paceline.comparing import Change
from paceline.planning.improvements import worsened
from paceline.reporting.figures import sensitivity_figure
from paceline.reporting.simulated import changes_of
from simulator import Scenario, scenario_from_table, simulate
from simulator.base.errors import SimulationError

SYNC = {"kind": "parameter-server", "mode": "sync", "workers": 2, "grouping": "per-server"}


def scenario(**parts) -> Scenario:
    return scenario_from_table(scenario_table(**parts), "test")


def changes(of: Scenario) -> dict[str, Change]:
    return {its.name: its for its in changes_of(simulate(of), jobs=1)}


def gain(of: dict[str, Change], name: str) -> float:
    found = of[name].gain
    assert found is not None
    return found


def test_on_one_device_all_is_compute() -> None:
    """A step is 3 ms + 300 us a sample + 500 us of update: twice the device halves all of it, a batch only shares the rest."""
    found = changes(scenario())
    assert gain(found, "2x device") == pytest.approx(1.0)
    assert gain(found, "half device") == pytest.approx(-0.5)
    step_ms = {batch: 3.5 + 0.3 * batch for batch in (5, 10, 20)}
    assert gain(found, "2x batch") == pytest.approx(2 * step_ms[10] / step_ms[20] - 1)
    assert gain(found, "half batch") == pytest.approx(step_ms[10] / step_ms[5] / 2 - 1)
    assert found["2x network"].gain is None
    assert found["2x network"].reason == "nothing to gain: all devices are on one node"
    assert "half network" not in found


def test_where_the_network_costs_nothing_the_device_is_all() -> None:
    found = changes(scenario(cluster=FAST, strategy={"kind": "multi-worker-mirrored", "workers": 4}))
    assert gain(found, "2x device") == pytest.approx(1.0, rel=1e-5)
    assert gain(found, "half network") == pytest.approx(0.0, abs=1e-5)


def test_a_ring_by_its_closed_form() -> None:
    """A ring of 4 moves 2 x 3/4 of 1 MB at 1 GB/s: 1.5 ms beside 6.5 ms of the device."""
    found = changes(scenario(strategy={"kind": "multi-worker-mirrored", "workers": 4}))
    assert gain(found, "2x network") == pytest.approx(8.0 / 7.25 - 1)
    assert gain(found, "half network") == pytest.approx(8.0 / 9.5 - 1)
    assert gain(found, "2x device") == pytest.approx(8.0 / 4.75 - 1)
    assert gain(found, "half device") == pytest.approx(8.0 / 14.5 - 1)
    assert found["2x network"].low == found["2x network"].high == pytest.approx(gain(found, "2x network"))  # nothing is left to chance


def test_latency_is_halved_and_doubled() -> None:
    """Six turns of the ring of 4, each with 1 ms of latency."""
    cluster = {"inter_node": {"bandwidth": "1 GB/s", "latency": "1 ms"}}
    found = changes(scenario(cluster=cluster, strategy={"kind": "multi-worker-mirrored", "workers": 4}))
    assert gain(found, "half latency") == pytest.approx(14.0 / 11.0 - 1)
    assert gain(found, "2x latency") == pytest.approx(14.0 / 20.0 - 1)


def test_a_server_more_and_one_fewer_share_a_row() -> None:
    variables = [{"name": f"v{index}", "size": "1 MB", "creation_index": index, "ready": 1.0} for index in range(6)]
    found = changes(scenario(workload={"variables": variables}, strategy={**SYNC, "workers": 4, "servers": 2}))
    # 6 MB to and from 4 workers: each server's link carries 12 MB each way, or 8, or 24, at 1 GB/s
    assert gain(found, "one more PS") == pytest.approx(30.0 / 22.0 - 1)
    assert gain(found, "one PS fewer") == pytest.approx(30.0 / 54.0 - 1)
    assert found["one more PS"].row == found["one PS fewer"].row == "server"


def test_the_greatest_comes_first_and_what_is_not_known_last() -> None:
    found = changes_of(simulate(scenario(strategy={"kind": "multi-worker-mirrored", "workers": 4})), jobs=1)
    sizes = [abs(its.gain) for its in found if its.gain is not None]
    assert sizes == sorted(sizes, reverse=True)
    unknown = [its for its in found if its.gain is None]
    assert unknown == list(found[-len(unknown) :])
    assert all(its.reason and its.low is None and its.high is None for its in unknown)


def test_progress_counts_every_scenario() -> None:
    told: list[tuple[int, int]] = []
    found = changes_of(simulate(scenario()), 1, lambda done, known: told.append((done, known)))
    assert told[-1] == (1 + sum(its.gain is not None for its in found),) * 2


@pytest.mark.slow
def test_jobs_change_nothing() -> None:
    result = simulate(scenario(workload={"jitter": {"kind": "exponential"}}, strategy=SYNC))
    assert changes_of(result, 1) == changes_of(result, 2)


def test_a_long_run_is_made_shorter_and_each_change_says_so() -> None:
    result = simulate(scenario(run={"steps": 40, "replications": 19}))
    found = changes_of(result.model_copy(update={"events": 3_000_000}), 1)
    known = [its for its in found if its.gain is not None]
    assert {its.run for its in known} == {"19 replications of 20 steps"}
    assert gain({its.name: its for its in known}, "2x device") == pytest.approx(1.0)


@pytest.mark.slow
def test_many_small_all_reduces_count_though_they_are_few_events() -> None:
    variables = [{"name": f"v{index}", "size": "1 MB", "creation_index": index, "ready": 1.0} for index in range(50)]
    ring = {"kind": "multi-worker-mirrored", "workers": 2, "bucket_size": "1 MB"}
    result = simulate(scenario(workload={"variables": variables}, strategy=ring, run={"steps": 20, "replications": 19}))
    assert result.events < 1000
    assert changes_of(result, 1)[0].run == "19 replications of 20 steps"
    longer = result.model_copy(update={"scenario": lengthened(result.scenario, 1000)})
    assert changes_of(longer, 1)[0].run == "19 replications of 20 steps"


@pytest.mark.slow
def test_replications_are_what_is_given_up_last() -> None:
    """More than 19 first, then steps, and only then those that an interval without assumptions needs."""
    result = simulate(scenario(run={"steps": 100, "replications": 40}))
    for events, told in (
        (299_000, ""),
        (599_000, "20 replications of 100 steps"),
        (1_199_000, "19 replications of 52 steps"),
        (12_000_000, "19 replications of 20 steps"),
        (60_000_000, "6 replications of 20 steps"),
    ):
        without_reduces = result.model_copy(update={"events": events})
        assert {its.run for its in changes_of(without_reduces, 1) if its.gain is not None} == {told}, events


@pytest.mark.slow
def test_what_is_not_known_about_the_device_does_not_hide_what_a_change_does() -> None:
    """Twice the latency costs 2%: nothing beside what the fit leaves open, but the same in each run."""
    wide = {
        "uncertainty": {"parameters": ["backward.per_sample_s"], "draws": [[1e-4], [2e-4], [4e-4], [6e-4]]},
        "jitter": {"kind": "lognormal", "sigma": 0.05},
        "run_to_run_cv": 0.1,
    }
    cluster = {"inter_node": {"bandwidth": "10 GB/s", "latency": "20 us"}}
    ring = {"kind": "multi-worker-mirrored", "workers": 4}
    result = simulate(scenario(workload=wide, cluster=cluster, strategy=ring, run={"steps": 40, "replications": 19}))
    rate = result.throughput_samples_per_s
    assert rate.high / rate.low > 1.5
    found = {its.name: its for its in changes_of(result, 1)}
    slower = found["2x latency"]
    assert slower.gain is not None
    assert slower.low is not None
    assert slower.high is not None
    assert -0.05 < slower.low < slower.gain < slower.high < 0
    assert slower.high - slower.low < 0.03
    assert slower.seen
    assert found["2x device"].seen
    assert not found["mixed precision"].seen


@pytest.mark.slow
def test_where_nothing_happens_no_effect_is_seen() -> None:
    ring = {"kind": "multi-worker-mirrored", "workers": 4}
    jitter = {"jitter": {"kind": "exponential"}}
    found = changes(scenario(workload=jitter, cluster=FAST, strategy=ring, run={"steps": 20, "replications": 19}))
    assert not found["2x network"].seen
    assert found["half device"].seen
    drawn = go.Figure(sensitivity_figure(list(found.values())))
    assert "half device" in drawn.layout.yaxis.ticktext
    assert "2x network" not in drawn.layout.yaxis.ticktext


def lengthened(of: Scenario, steps: int) -> Scenario:
    return of.model_copy(update={"run": of.run.model_copy(update={"steps": steps})})


def test_one_that_would_take_minutes_is_refused() -> None:
    result = simulate(scenario()).model_copy(update={"events": 10**9})
    with pytest.raises(SimulationError, match="would take minutes"):
        changes_of(result, 1)


def test_halvings_are_valid_scenarios_and_undo_nothing_else() -> None:
    base = scenario(
        workload={"uncertainty": {"parameters": ["forward.base_s"], "draws": [[1e-3], [2e-3]]}},
        cluster={"uncertainty": {"parameters": ["inter_node.bandwidth_bytes_per_s"], "draws": [[8e8], [1e9]]}},
        strategy={**SYNC, "servers": 1},
    )
    found = {its.name: its.scenarios[0] for its in worsened(base)}
    assert set(found) == {"half network", "half device", "half batch"}  # no latency to double, no server to spare
    network = found["half network"].cluster
    assert network.uncertainty is not None
    assert network.uncertainty.draws == ((4e8,), (5e8,))
    device = found["half device"].workload
    assert device.uncertainty is not None
    assert device.uncertainty.draws == ((2e-3,), (4e-3,))
    assert found["half network"].workload == base.workload
    assert found["half batch"].batch == 5


def test_the_tornado_draws_what_does_anything_opposites_together_the_largest_on_top() -> None:
    found = [
        Change("2x device", "a", 0.9, 0.7, 1.1, "compute", "device"),
        Change("half device", "b", -0.5, -0.6, -0.4, "compute", "device"),
        Change("half batch", "c", -0.2, -0.3, -0.1, "compute", "batch"),
        Change("2x <network>", "d", 0.3, 0.2, 0.4, "compute", "<network>"),
        Change("half latency", "e", 0.001, -0.1, 0.1, "compute", "latency"),
        Change("mixed precision", "", None, None, None, "not known", "mixed precision"),
    ]
    drawn = go.Figure(sensitivity_figure(found))
    assert [list(trace.x) for trace in drawn.data] == [[0.9], [-0.5], [0.3], [-0.2], [0.001]]
    assert [list(trace.y) for trace in drawn.data] == [[0], [1], [2], [3], [4]]
    assert list(drawn.layout.yaxis.ticktext) == ["2x device", "half device", "2x &lt;network&gt;", "half batch", "half latency"]
    assert [note.text for note in drawn.layout.annotations] == ["+90%", "−50%", "+30%", "−20%", "+0.1%"]
    assert [trace.marker.opacity < 1 for trace in drawn.data] == [False] * 4 + [True]  # pale: not certain
    assert drawn.data[0].error_x.array[0] == pytest.approx(0.2)
    assert "<network>" not in drawn.to_json()
