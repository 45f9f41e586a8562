"""The tables of a report as CSV: what is read back equals the results, and no cell is a formula."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from support.results import STRATEGIES, hostile_sweep, plausible, scenario_of
from support.scenarios import scenario_table

from paceline.comparing import Change
from paceline.planning.answer import Candidate, Improvement, Plan, Refused, ServerCount, WorkerCount
from paceline.planning.goal import Goal
from paceline.reporting.content import content_of
from paceline.reporting.measured import Beside, Overlay, Unmatched
from paceline.reporting.report import tables_of
from paceline.reporting.simulated import timeline_of
from paceline.tables import check_tables, write_tables
from simulator import scenario_from_table, simulate
from simulator.base.errors import InputError
from simulator.base.table import Column, Table, csv_cell
from simulator.results.results import Failed, Failure, Result
from simulator.results.rows import COLUMNS

Rows = list[dict[str, str]]


@pytest.fixture(scope="module")
def results() -> list[Result]:
    servers = {"kind": "parameter-server", "mode": "async"}
    price = {"price": {"usd_per_node_hour": 2.0}}
    return [
        simulate(scenario_from_table(scenario_table(strategy={**servers, "workers": workers}, cluster=price), "test")) for workers in (2, 3)
    ]


def read(table: Table) -> Rows:
    rows = list(csv.DictReader(io.StringIO(table.to_csv(), newline="")))
    assert len(rows) == len(table.rows)
    return rows


def named(tables: tuple[Table, ...], name: str) -> Rows:
    return read(next(table for table in tables if table.name == name))


def test_results_come_back_as_they_are(results: list[Result]) -> None:
    rows = named(tables_of(content_of(results)), "results")
    assert set(COLUMNS) <= set(rows[0])
    for row, result in zip(rows, results, strict=True):
        rate = result.throughput_samples_per_s
        assert [float(row[f"throughput_{end}"]) for end in ("samples_per_s", "low", "high")] == [rate.mean, rate.low, rate.high]
        assert float(row["strategy.workers"]) == result.replicas == int(row["replicas"])
        assert float(row["step_p99_s"]) == result.step_time_s.p99
        assert float(row["usd_per_million_samples"]) == pytest.approx(4.0 * (result.replicas + 1) / 2 / 3600 * 1e6 / rate.mean)
        assert (row["scaling"], row["seed"], row["extrapolated"]) == ("weak", "3", str(int(result.extrapolated)))
        assert float(row["monte_carlo_error_samples_per_s"]) == result.monte_carlo_error
        assert int(row["events"]) == result.events


def test_breakdown_and_utilisation_come_back(results: list[Result]) -> None:
    tables = tables_of(content_of(results))
    for row, result in zip(named(tables, "breakdown"), results, strict=True):
        parts = ("input", "compute", "exposed_communication", "waiting", "apply")
        assert [float(row[f"{part}_s"]) for part in parts] == [getattr(result.breakdown_s, part) for part in parts]
        assert sum(float(row[f"{part}_s"]) for part in parts) == pytest.approx(float(row["step_mean_s"]))
    for row, result in zip(named(tables, "utilisation"), results, strict=True):
        assert row["busiest_link_name"] == result.utilisation.busiest_link_name
        assert float(row["busiest_server"]) == result.utilisation.busiest_server


def test_the_histogram_of_staleness_comes_back(results: list[Result]) -> None:
    rows = named(tables_of(content_of(results)), "staleness")
    for result in results:
        own = [row for row in rows if row["scenario_hash"] == result.scenario_hash]
        histogram = result.staleness.histogram
        assert [(int(row["staleness"]), int(row["updates"])) for row in own] == list(zip(histogram.values, histogram.counts, strict=True))
        assert sum(float(row["share"]) for row in own) == pytest.approx(1.0)
        assert sum(int(row["staleness"]) * float(row["share"]) for row in own) == pytest.approx(result.staleness.mean)


def test_replications_and_warnings_come_back(results: list[Result]) -> None:
    tables = tables_of(content_of(results))
    rates = [float(row["samples_per_s"]) for row in named(tables, "replications")]
    assert rates == [rate for result in results for rate in result.throughput_of_each_replication]
    warned = [(row["scenario_hash"], row["code"], row["text"]) for row in named(tables, "warnings")]
    assert warned == [(result.scenario_hash, its.code, its.text) for result in results for its in result.warnings]


def test_a_synchronous_training_has_no_table_of_staleness() -> None:
    tables = tables_of(content_of([plausible(scenario_of(STRATEGIES[0], 4))]))
    assert "staleness" not in [table.name for table in tables]
    points = named(tables, "calibration")
    assert [int(row["batch"]) for row in points] == [8, 16, 32, 64]
    load = scenario_of(STRATEGIES[0], 4).workload
    assert [float(row["fitted_step_s"]) for row in points] == [load.compute_s(int(row["batch"])) + load.apply_s for row in points]


def test_files_that_are_compared_are_named(results: list[Result]) -> None:
    rows = named(tables_of(content_of([results[0], results[0]], labels=["old", "new"])), "results")
    assert [row["configuration"].endswith(label) for row, label in zip(rows, ("old", "new"), strict=True)] == [True, True]


def counted(its: Candidate) -> dict[str, Any]:
    """What is said of the same with another number of workers or servers."""
    rate, runs = its.result.throughput_samples_per_s, its.result.throughput_of_each_replication
    return {"throughput_samples_per_s": rate, "throughput_of_each_replication": runs, "placement": its.placement}


def test_the_plan_comes_back(results: list[Result]) -> None:
    few, many = (
        Candidate(
            name=f"{result.replicas} workers",
            what="ring",
            others=(),
            scaling="weak",
            result=result,
            usd_per_hour=2.0 * result.replicas,
            usd_per_million_samples=None,
            time_s=None,
            cost_usd=None,
            confidence=confidence,
            reached_by=round(20 * confidence),
            meets=confidence > 0.5,
            nodes=result.replicas + 1,
            devices_per_node=1,
            placement="a device on each node",
        )
        for result, confidence in zip(results, (0.95, 0.25), strict=True)
    )
    plan = Plan(
        goal=Goal(target_throughput_samples_per_s=1000.0),
        feasible=True,
        chosen=few,
        why="cheapest",
        runners_up=(),
        pareto=(few,),
        candidates=(many, few),
        servers=(ServerCount(servers=1, usd_per_hour=3.0, nodes=3, **counted(few)),),
        workers=(WorkerCount(workers=4, replicas=4, usd_per_hour=None, nodes=5, **counted(many)),),
        refused=(Refused(name="cluster x", text="no such machine", configurations=2),),
        improvements=(Improvement(name="mixed precision", text="=not known"),),
        considered=5,
        discarded=3,
        simulated=2,
    )
    tables = tables_of(content_of(results, plan=plan))
    rows = named(tables, "plan")
    assert [(row["rank"], row["name"], row["scaling"], row["meets"], row["pareto"]) for row in rows] == [
        ("1", "2 workers", "weak", "1", "1"),
        ("", "3 workers", "weak", "0", "0"),
    ]
    assert float(rows[0]["throughput_low"]) == few.result.throughput_samples_per_s.low
    assert named(tables, "plan_servers")[0]["usd_per_hour"] == "3.0"
    assert float(named(tables, "plan_workers")[0]["samples_per_s"]) == many.result.throughput_samples_per_s.mean
    assert named(tables, "plan_refused") == [{"name": "cluster x", "configurations": "2", "text": "no such machine"}]
    assert named(tables, "plan_improvements")[0]["text"] == "'=not known"


def test_measured_points_keep_those_without_a_prediction(results: list[Result]) -> None:
    rate = results[0].throughput_samples_per_s
    beside = Beside("2 workers", "async", 0, "abc", 2, 2, rate, 1500.0, (1400.0, 1600.0), rate.mean / 1500 - 1, True, 1.0, 0.9, 2)
    overlay = Overlay("points.csv", (beside,), (Unmatched("9 workers", 100.0, 3, "no result has workers 9"),))
    known, unknown = named(tables_of(content_of(results, measured=overlay)), "measured")
    assert float(known["error"]) == rate.mean / 1500 - 1
    assert (known["inside"], known["repeats"], known["line"]) == ("1", "2", "2")
    assert (unknown["predicted_samples_per_s"], unknown["why_not"], unknown["line"]) == ("", "no result has workers 9", "3")


def test_timeline_and_what_ifs_come_back(results: list[Result]) -> None:
    timeline = timeline_of(results[0].scenario, "async")
    assert timeline is not None
    change = Change("2x network", "doubled", 0.5, 0.25, 0.75, "compute", "network", "5 replications of 20 steps")
    tables = tables_of(content_of(results, timeline=timeline, sensitivity=[change]))
    assert [(row["lane"], float(row["start_s"]), float(row["end_s"])) for row in named(tables, "timeline")] == [
        (bar.lane, bar.start_s, bar.end_s) for bar in timeline.bars
    ]
    assert named(tables, "sensitivity") == [
        {
            "change": "2x network",
            "of": "network",
            "scaling": "weak",
            "gain": "0.5",
            "gain_low": "0.25",
            "gain_high": "0.75",
            "text": "doubled",
            "reason": "compute",
            "run": "5 replications of 20 steps",
        }
    ]


def test_scenarios_that_failed_are_listed(results: list[Result]) -> None:
    scenario = scenario_of(STRATEGIES[1], 4)
    failure = Failure(scenario_hash=scenario.hash, scenario=scenario, failed=Failed(kind="DeadlockError", text="=nothing moves"))
    (row,) = named(tables_of(content_of(results, failures=[failure])), "failures")
    assert (row["scenario_hash"], row["replicas"], row["kind"], row["text"]) == (scenario.hash, "4", "DeadlockError", "'=nothing moves")
    assert "failures" not in [table.name for table in tables_of(content_of(results))]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"])
def test_text_that_begins_like_a_formula_gets_an_apostrophe(text: str) -> None:
    assert csv_cell(text) == f"'{text}"
    (row,) = read(Table("t", (Column("a"), Column("b")), ((text, "x"),)))
    assert row == {"a": f"'{text}", "b": "x"}


def test_numbers_keep_their_sign_and_all_their_digits() -> None:
    assert [csv_cell(value) for value in (-0.1, 1e-300, 0.1 + 0.2, 3, None, True, "a,b")] == [
        "-0.1", "1e-300", "0.30000000000000004", "3", "", "1", "a,b",
    ]  # fmt: skip


def test_hostile_names_stay_in_their_cells() -> None:
    results = hostile_sweep()
    for table in tables_of(content_of(results)):
        for row in read(table):
            assert None not in row
            assert not any(value.startswith(("=", "+", "@")) for value in row.values() if value)


def test_files_are_written_whole(results: list[Result], tmp_path: Path) -> None:
    tables = tables_of(content_of(results))
    files = write_tables({table.name: table for table in tables}, check_tables(tables, tmp_path / "new" / "folder"))
    assert [file.name for file in files] == [f"{table.name}.csv" for table in tables]
    for file, table in zip(files, tables, strict=True):
        assert file.read_bytes().decode() == table.to_csv()
    assert sorted(file.name for file in (tmp_path / "new" / "folder").iterdir()) == sorted(file.name for file in files)


def test_a_folder_that_is_a_file_is_refused(results: list[Result], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"^`tables`: .*/file': is a file, not a folder"):
        check_tables(tables_of(content_of(results)), tmp_path / "file")
