"""Measured points beside predictions: matched by workers, servers and batch, signed errors, nothing dropped."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.results import STRATEGIES, plausible, scenario_of

from paceline.reporting.content import content_of
from paceline.reporting.measured import Overlay, overlay_of
from paceline.reporting.render import error_in_words, measured_points, measured_tables
from simulator.base.errors import InputError, ReadingWarning
from simulator.results.results import Result
from simulator.spec.figures import Estimate

RING, SYNC, ASYNC = STRATEGIES


def points(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "points.csv"
    file.write_text(text)
    return file


def rate(result: Result) -> float:
    return result.throughput_samples_per_s.mean


@pytest.fixture
def ring() -> list[Result]:
    return [plausible(scenario_of(RING, workers)) for workers in (1, 2, 4)]


def test_errors_are_predicted_over_measured_less_one(tmp_path: Path, ring: list[Result]) -> None:
    text = f"workers,throughput\n4,{rate(ring[2]) / 1.25}\n2,{rate(ring[1]) * 1.01}\n2,{rate(ring[1]) * 0.99}\n"
    overlay = overlay_of(points(tmp_path, text), ring)
    first, second = overlay.rows
    assert (first.setting, first.result, first.replicas, first.line) == ("4 workers", 2, 4, 2)
    assert first.error == pytest.approx(0.25)
    assert not first.inside
    assert second.repeats == (rate(ring[1]) * 1.01, rate(ring[1]) * 0.99)
    assert second.measured == pytest.approx(rate(ring[1]))
    assert second.error == pytest.approx(0.0, abs=1e-12)
    assert second.inside
    assert second.predicted == ring[1].throughput_samples_per_s
    assert second.scenario_hash == ring[1].scenario_hash
    assert overlay.source == "points.csv"


def test_a_speed_is_read_as_it_is_said(tmp_path: Path, ring: list[Result]) -> None:
    scenario = ring[2].scenario
    step_s = scenario.batch * scenario.replicas / rate(ring[2])
    for column, value in (("steps_per_s", 1 / step_s), ("step_time_s", step_s)):
        (beside,) = overlay_of(points(tmp_path, f"workers,{column}\n4,{value!r}\n"), ring).rows
        assert beside.error == pytest.approx(0.0, abs=1e-9)
    with pytest.warns(ReadingWarning, match=r"points\.csv:2: throughput .* are they steps/s\? Then give a column steps_per_s"):
        overlay_of(points(tmp_path, f"workers,throughput\n4,{1 / step_s!r}\n"), ring)
    with pytest.raises(InputError, match=r"are they steps/s"):
        overlay_of(points(tmp_path, f"workers,throughput\n1,{1 / step_s!r}\n"), ring)


def test_an_end_of_the_interval_is_inside(tmp_path: Path, ring: list[Result]) -> None:
    low = ring[0].throughput_samples_per_s.low
    overlay = overlay_of(points(tmp_path, f"workers,throughput,batch\n1,{low!r},32\n"), ring)
    assert overlay.rows[0].inside
    overlay = overlay_of(points(tmp_path, f"workers,throughput,batch\n1,{low * 0.999!r},32\n"), ring)
    assert not overlay.rows[0].inside


def test_a_point_stands_beside_every_strategy_that_predicts_it(tmp_path: Path) -> None:
    results = [plausible(scenario_of(strategy, 4)) for strategy in STRATEGIES]
    overlay = overlay_of(points(tmp_path, "workers,throughput\n4,1000\n"), results)
    assert [its.result for its in overlay.rows] == [0, 1, 2]
    assert len({its.name for its in overlay.rows}) == 3
    servers = overlay_of(points(tmp_path, "workers,servers,throughput\n4,4,1000\n"), results)
    assert [its.result for its in servers.rows] == [1, 2]
    without = overlay_of(points(tmp_path, "workers,servers,throughput\n4,0,1000\n"), results)
    assert [its.result for its in without.rows] == [0]


def test_files_are_told_apart(tmp_path: Path, ring: list[Result]) -> None:
    overlay = overlay_of(points(tmp_path, "workers,throughput\n4,1000\n"), [ring[2], ring[2]], ["old", "new"])
    assert [its.name.endswith(label) for its, label in zip(overlay.rows, ("old", "new"), strict=True)] == [True, True]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("12,,,1000", "no result has workers 12; there are 1, 2 and 4"),
        ("4,3,,1000", "no result of these workers has servers 3; there is 0"),
        ("4,,64,1000", "no result of these workers has batch 64; there is 32"),
        ("4,0,64,1000", "no result of these workers and servers has batch 64; there is 32"),
    ],
)
def test_what_matches_nothing_is_listed_with_the_reason(tmp_path: Path, ring: list[Result], row: str, why: str) -> None:
    overlay = overlay_of(points(tmp_path, f"workers,servers,batch,throughput\n4,,32,900\n{row}\n"), ring)
    assert len(overlay.rows) == 1
    (left,) = overlay.unmatched
    assert (left.why, left.measured, left.line) == (why, 1000, 3)


def test_the_batch_is_that_of_all_where_the_scenario_fixes_that(tmp_path: Path) -> None:
    strong = plausible(scenario_of(RING, 4, workload={"batch_per_replica": None, "global_batch": 256}))
    overlay = overlay_of(points(tmp_path, "workers,batch,throughput\n4,256,1000\n4,64,1000\n"), [strong])
    assert [its.setting for its in overlay.rows] == ["4 workers, batch 256"]
    assert [its.setting for its in overlay.unmatched] == ["4 workers, batch 64"]


def test_workers_are_processes_where_they_have_several_devices(tmp_path: Path) -> None:
    cluster = {"devices_per_node": 2}
    result = plausible(scenario_of({**RING, "replicas_per_worker": 2}, 3, cluster=cluster))
    assert result.replicas == 6
    overlay = overlay_of(points(tmp_path, "workers,throughput\n3,1000\n6,2000\n"), [result])
    assert [its.setting for its in overlay.rows] == ["3 workers"]


def test_staleness_is_compared_where_it_was_measured(tmp_path: Path) -> None:
    result = plausible(scenario_of(ASYNC, 4))
    overlay = overlay_of(points(tmp_path, "workers,throughput,staleness\n4,1000,2.5\n4,1000,\n"), [result])
    assert (overlay.rows[0].staleness_measured, overlay.rows[0].staleness_predicted) == (2.5, result.staleness.mean)
    bare = overlay_of(points(tmp_path, "workers,throughput\n4,1000\n"), [result])
    assert (bare.rows[0].staleness_measured, bare.rows[0].staleness_predicted) == (None, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("workers,throughput\n", "no rows"),
        ("4,1000\n", "must name the columns"),
        ("workers,throughput\n4,fast\n", ":2: throughput"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, ring: list[Result], text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        overlay_of(points(tmp_path, text), ring)


def test_nothing_matched_is_no_error(tmp_path: Path, ring: list[Result]) -> None:
    overlay = overlay_of(points(tmp_path, "workers,throughput\n9,1000\n"), ring)
    assert isinstance(overlay, Overlay)
    assert overlay.rows == ()
    assert len(overlay.unmatched) == 1


def test_each_measured_point_is_marked_on_the_curve_of_every_file(ring: list[Result], tmp_path: Path) -> None:
    found, labels = [*ring, *ring], ["old"] * len(ring) + ["new"] * len(ring)
    overlay = overlay_of(points(tmp_path, "workers,throughput\n4,1000\n"), found, labels)
    report = content_of(found, labels=labels, measured=overlay)
    marked = measured_points(report)
    assert [report.at.name_of(index).rpartition(" · ")[2] for index, _ in marked] == ["old", "new"]
    assert {report.results[index].replicas for index, _ in marked} == {4}


def test_a_setting_that_several_curves_predict_has_an_error_for_each_and_none_in_the_summary(ring: list[Result], tmp_path: Path) -> None:
    faster = [result.model_copy(update={"throughput_samples_per_s": Estimate(mean=2e6, low=1e6, high=3e6)}) for result in ring]
    found, labels = [*ring, *faster], ["old"] * len(ring) + ["new"] * len(ring)
    exact = rate(ring[2])
    overlay = overlay_of(points(tmp_path, f"workers,throughput\n4,{exact!r}\n"), found, labels)
    tables = measured_tables(content_of(found, labels=labels, measured=overlay))
    assert error_in_words(overlay).startswith("1 measured setting fits 2 predictions")
    assert [(row[0].rpartition(" · ")[2], *row[1:]) for row in tables["fit"].rows] == [
        ("old", "weak", 1, 0.0, 1),
        ("new", "weak", 1, pytest.approx(2e6 / exact - 1), 0),
    ]
    alone = overlay_of(points(tmp_path, f"workers,throughput\n4,{exact!r}\n"), ring)
    assert error_in_words(alone) == "at 1 measured setting the median error is 0%, and 1 of them lies in the interval"
