"""The whole job at the front door: tables, sentences, columns, strips of the timeline, and what a plan's goal is held against."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go
import pytest
from support.jobs import STARTUP_S, TRACING_S, with_job
from support.results import PRICE, sweep
from support.scenarios import scenario_table

from paceline.answers import answer_of
from paceline.cli.showing_results import show_result, show_table
from paceline.planning import Goal, length_of
from paceline.planning.goal import confidence_of, cost_of, model_error, rates_of, sample_s_of, time_of
from paceline.reporting.content import content_of
from paceline.reporting.figures import job_timeline_figure, strips_of
from paceline.reporting.report import tables_of
from paceline.sentences import job_in_words
from paceline.tables import PART_LABELS, epochs_table, jobs_table, parts_table
from simulator import Result, load_scenario, simulate
from simulator.base.errors import InputError, ScenarioError
from simulator.base.table import frame_of
from simulator.results.rows import COLUMNS, OF_JOB
from simulator.spec.figures import JobOutcome, JobParts
from simulator.spec.uncertainty import relative_error_of

RESULT = sweep()[4]
LONG = with_job(RESULT, 1e9)
GOAL = Goal(samples=1e8, epochs=10, deadline_s=3600.0)
RATE = Goal(target_throughput_samples_per_s=100.0)


def job_of(result: Result) -> JobOutcome:
    """The job, which it has."""
    assert result.job is not None
    return result.job


# -- tables and sentences --------------------------------------------------------------------


def test_every_part_has_a_label_in_its_order() -> None:
    assert list(PART_LABELS) == list(JobParts.model_fields)


def test_the_parts_that_take_time_add_up_to_the_job() -> None:
    rows = parts_table(LONG).rows
    assert [row[0] for row in rows] == [label for name, label in PART_LABELS.items() if getattr(job_of(LONG).parts_s, name) > 0]
    assert math.fsum(row[1] for row in rows if isinstance(row[1], float)) == pytest.approx(job_of(LONG).time_s.mean)
    assert math.fsum(row[2] for row in rows if isinstance(row[2], float)) == pytest.approx(1.0)
    assert not parts_table(RESULT).rows
    assert not epochs_table(RESULT).rows
    assert job_in_words(RESULT) == []


def test_epochs_that_are_alike_are_one_line_without_empty_columns() -> None:
    assert [row[0] for row in epochs_table(LONG).rows] == ["1", "9 like 2"]
    plain = epochs_table(with_job(RESULT, plain=True))
    assert {column.name for column in plain.columns}.isdisjoint({"evaluation_s", "checkpoint_s"})


def test_the_terminal_says_how_long_what_for_and_where_it_went(capsys: pytest.CaptureFixture[str]) -> None:
    show_result(LONG, "mine.toml", details=True)
    shown = capsys.readouterr().out
    text = " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 80
    assert "1,000,000,000 samples in 10 epochs" in text
    assert "best after 8.15 min of steps (Young 8.17 min, Daly 8.15 min)" in text
    assert "0.737 on average before the end of the job" in text  # in the same runs as the time; less than one has no time between
    assert "Lost work" in shown
    assert "Slower first epoch" in shown
    show_result(RESULT, "mine.toml", details=True)
    assert "The job" not in capsys.readouterr().out


def test_a_sweep_shows_jobs_below_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    results = [with_job(result) for result in sweep()[:3]]
    show_table(results)
    shown = capsys.readouterr().out
    assert "The whole job" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert [row[0] for row in jobs_table(results).rows] == [1, 2, 4]
    assert "cost_usd" not in {column.name for column in jobs_table(results).columns}
    show_table(sweep()[:3])
    assert "The whole job" not in capsys.readouterr().out


def test_a_job_of_nothing_else_is_steps_alone() -> None:
    plain = with_job(RESULT, plain=True)
    assert [row[0] for row in parts_table(plain).rows] == ["Steps"]
    assert jobs_table([plain]).rows[0][-1] == "nothing"


# -- columns -------------------------------------------------------------------------------


def test_columns_of_jobs_are_shown_where_a_result_has_one() -> None:
    jobs, steps = [with_job(result) for result in sweep()[:3]], sweep()[:3]
    named = Result.shown_columns(Result.rows_of(jobs))
    assert [name for name in OF_JOB if name in named] == [name for name in OF_JOB if name != "job_cost_usd"]  # nothing has a price
    assert not set(OF_JOB) & set(Result.shown_columns(Result.rows_of(steps)))
    frame = frame_of(jobs)
    parts = [f"job_{name}_s" for name in JobParts.model_fields]
    assert frame[parts].sum(axis=1).tolist() == pytest.approx(frame["job_time_s"].tolist())
    assert frame["job_time_low_s"].le(frame["job_time_s"]).all()
    assert frame_of(steps)["job_time_s"].isna().all()
    assert set(parts) <= set(COLUMNS)


def test_csv_files_hold_parts_and_epochs_of_every_job() -> None:
    named = {table.name: table for table in tables_of(content_of([with_job(result) for result in sweep()[:3]]))}
    assert {row[2] for row in named["job_parts"].rows} == {1, 2, 4}
    assert len(named["job_epochs"].rows) == 6
    assert not {"job_parts", "job_epochs"} & {table.name for table in tables_of(content_of(sweep()[:3]))}


# -- the timeline --------------------------------------------------------------------------


def test_strips_are_as_long_as_what_they_show() -> None:
    whole, start, later, fault = strips_of(LONG)
    first, usual = job_of(LONG).each_epoch
    assert math.fsum(piece.seconds for piece in whole.pieces) == pytest.approx(job_of(LONG).time_s.mean, rel=0.02)
    assert math.fsum(piece.seconds for piece in start.pieces) == pytest.approx(STARTUP_S + first.time_s, rel=1e-6)
    assert math.fsum(piece.seconds for piece in later.pieces) == pytest.approx(usual.time_s, rel=1e-6)
    assert [piece.part for piece in start.pieces] == ["startup", "tracing", "steps", "first_epoch", "checkpoints", "evaluation"]
    assert start.pieces[1].seconds == pytest.approx(TRACING_S)
    assert [piece.part for piece in fault.pieces] == ["checkpoints", "lost_work", "down", "steps"]
    assert strips_of(RESULT) == ()
    drawn = go.Figure(job_timeline_figure((whole, start, later, fault)))
    assert all(drawn.layout[axis].range[1] > 0 for axis in ("xaxis", "xaxis2", "xaxis3"))
    places = [drawn.layout[axis].domain for axis in ("yaxis", "yaxis2", "yaxis3")]
    assert all(low < high for low, high in places)
    assert all(above[0] > below[1] for above, below in pairwise(places))


def test_epochs_that_are_evaluated_stand_where_they_are() -> None:
    scenario = load_scenario(
        "ring", {"run.steps": 5, "job.epochs": 6, "job.dataset_size": 1e4, "job.evaluation": {"samples": 5e3, "every_epochs": 2}}
    )
    whole, *_ = strips_of(simulate(scenario))
    assert [piece.text for piece in whole.pieces if piece.part == "evaluation"] == [f"epoch {number}: evaluation" for number in (2, 4, 6)]


def test_many_epochs_are_drawn_together() -> None:
    whole, *_ = strips_of(with_job(RESULT, 1e9, epochs=90))
    assert len([piece for piece in whole.pieces if piece.part == "steps"]) == 1


# -- plans ---------------------------------------------------------------------------------


def test_a_goal_with_samples_is_held_against_the_whole_job() -> None:
    assert rates_of(LONG, GOAL) == job_of(LONG).samples_per_s_of_each_replication
    assert time_of(LONG, GOAL) == job_of(LONG).time_s
    assert cost_of(LONG, GOAL) == job_of(LONG).cost_usd
    assert sample_s_of(LONG, GOAL) == pytest.approx(job_of(LONG).time_s.mean / 1e9)
    assert max(rates_of(LONG, GOAL)) < max(LONG.throughput_of_each_replication)
    assert rates_of(LONG, RATE) == LONG.throughput_of_each_replication
    assert rates_of(RESULT, GOAL) == RESULT.throughput_of_each_replication
    assert time_of(LONG, RATE) is None
    assert cost_of(LONG, RATE) is None


def test_what_the_model_is_off_by_is_of_steps_alone() -> None:
    result = simulate(load_scenario("ring", {"run.steps": 10, "job.samples": 1e4, "job.startup": "10 min"}))
    whole, of_job = relative_error_of(result.discrepancy), model_error(result, GOAL)
    share = job_of(result).parts_s.of_steps / job_of(result).time_s.mean
    assert share < 0.01
    assert of_job.high == pytest.approx(whole.high * share)
    assert of_job.high > 0
    assert model_error(result, RATE) == whole


def test_a_replication_that_is_given_up_reaches_no_goal() -> None:
    rates = (0.0, *job_of(LONG).samples_per_s_of_each_replication[1:])
    result = LONG.model_copy(update={"job": job_of(LONG).model_copy(update={"samples_per_s_of_each_replication": rates})})
    assert confidence_of(rates_of(result, GOAL), min(rates[1:])) == pytest.approx(18 / 20)


def table(**job: Any) -> dict[str, Any]:
    """A scenario's table, with a job if any of it is given."""
    return {**scenario_table(), **({"job": job} if job else {})}


ASKED: dict[str, Any] = {"samples": None, "epochs": None, "dataset_size": None, "rate": False}


@pytest.mark.parametrize(
    ("job", "asked", "size", "epochs", "sets"),
    [
        ({}, {"samples": 3e6, "epochs": 3.0}, 1e6, 3.0, False),  # nothing beside steps
        ({}, {"dataset_size": 1e6}, 1e6, None, False),
        ({"epochs": 5, "dataset_size": 1e4}, {}, 1e4, 5.0, False),
        ({"samples": 5e4}, {}, 5e4, None, False),
        ({"samples": 5e4, "dataset_size": 1e4}, {}, 1e4, 5.0, False),
        ({"samples": 6e4, "epochs": 3}, {}, 2e4, 3.0, False),
        ({"epochs": 5, "dataset_size": 1e4}, {"samples": 2e4}, 1e4, 2.0, True),
        ({"epochs": 5, "dataset_size": 1e4}, {"epochs": 2.0}, 1e4, 2.0, True),
        ({"epochs": 5}, {"dataset_size": 2e4}, 2e4, 5.0, True),
        ({"samples": 5e4, "startup": "1 s"}, {"dataset_size": 2e4, "epochs": 2.0}, 2e4, 2.0, True),
    ],
)
def test_the_length_of_a_plan_is_what_is_asked_for_and_what_its_job_says(
    job: dict[str, Any], asked: dict[str, Any], size: float, epochs: float | None, sets: bool
) -> None:
    length = length_of(table(**job), (), **{**ASKED, **asked})
    assert (length.samples, length.epochs) == (pytest.approx(size * (epochs or 1.0)), epochs)
    if not sets:
        assert length.settings == []
        return
    loaded = load_scenario(table(**job), length.settings).job
    assert loaded is not None
    assert loaded.total_samples == pytest.approx(size * (epochs or 1.0))
    assert loaded.epoch_samples == pytest.approx(size)


def test_measured_overheads_make_a_job_of_a_training() -> None:
    measured = scenario_table(workload={"overheads": {"startup": "20 s"}})
    length = length_of(measured, (), **{**ASKED, "samples": 1e5})
    assert dict(length.settings) == {"job.dataset_size": 1e5, "job.epochs": 1.0}
    assert length_of(measured, (), **{**ASKED, "rate": True}).settings == []


def test_a_length_is_not_given_twice() -> None:
    with pytest.raises(InputError, match="two of them determine the length; leave one out"):
        length_of(table(), (), **{**ASKED, "samples": 1.0, "dataset_size": 2.0, "epochs": 1.0})


def test_samples_are_those_of_the_whole_training_here_as_in_a_job() -> None:
    """Six samples of a data set of two are three passes, in a plan and in a simulated job alike."""
    given = table(samples=6.0, dataset_size=2.0)
    asked = length_of(given, (), **{**ASKED, "samples": 6.0, "dataset_size": 2.0})
    job = load_scenario(given).job
    assert job is not None
    assert (asked.samples, asked.epochs) == (6.0, 3.0) == (job.total_samples, job.total_samples / job.epoch_samples)
    assert load_scenario(given, asked.settings).job == job.model_copy(update={"samples": None, "epochs": 3.0})


@pytest.mark.parametrize("epochs", [-1, "three"])
def test_a_job_that_cannot_be_is_refused_where_it_stands(epochs: Any) -> None:
    given = table(epochs=epochs, dataset_size=10)
    assert length_of(given, (), **ASKED).epochs is None
    with pytest.raises(ScenarioError, match=r"job\.epochs"):
        load_scenario(given)


def test_a_length_that_is_set_takes_the_place_of_the_one_that_is_there() -> None:
    base = table(epochs=5, dataset_size=1e4)
    totals = [
        (load_scenario(base, {"job.samples": 7.0}).job, 7.0),
        (load_scenario(table(samples=9e4), {"job.epochs": 2, "job.dataset_size": 5}).job, 10.0),
    ]
    assert all(job is not None and job.total_samples == total for job, total in totals)
    with pytest.raises(ScenarioError, match="missing: dataset_size"):
        load_scenario(table(samples=9e4), {"job.epochs": 2})
    with pytest.raises(ScenarioError, match="leave one out"):
        load_scenario(base, {"job.epochs": 2, "job.samples": 5})


def test_results_with_a_price_have_a_cost() -> None:
    result = simulate(load_scenario("ring", {"run.steps": 5, "cluster.price": PRICE, "job.samples": 1e5, "job.startup": "9 s"}))
    assert result.row()["job_cost_usd"] == pytest.approx(job_of(result).time_s.mean / 3600 * 8 * 0.9)
    assert "job cost" in [figure.what for figure in answer_of(result).figures]


def test_jobs_are_ranked_by_their_time_and_conditions_are_no_choice() -> None:
    """Three intervals between checkpoints under two mean times between faults: the shortest job under the first of them is the answer."""
    settings = [("job.samples", 3_000_000), ("job.startup", "0 s"), ("job.tracing", "0 s"), ("job.checkpoint.size", "1 GB")]
    settings += [("job.checkpoint.write", "1 GB/s"), ("run.replications", 5)]
    results = [
        simulate(load_scenario("ring", [*settings, ("job.checkpoint.every", every), ("job.faults.node_mtbf", mtbf)]))
        for mtbf in ("20 min", "10 h")
        for every in ("2 s", "10 s", "60 s")
    ]
    content = content_of(results)
    times_s = [result.job.time_s.mean for result in results if result.job is not None]
    assert min(times_s[3:]) < min(times_s[:3])  # fewer faults make a shorter job, which nobody can choose
    assert times_s[content.answer.index] == min(times_s[:3])
