"""The length of a job, and what its results say, on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import Answer, refused

from paceline.planning import Plan
from paceline.sweeping import read_results

Paceline = Callable[..., Answer]
JOB = ("--set", "job.startup='20 s'", "--set", "job.tracing='4 s'")
LENGTH = ("--set", "job.samples=1")
"""Any: the goal says how long it is."""
QUICK = ("--set", "run.replications=19", "--jobs", "1")


def test_options_make_a_job(folder: Path, paceline: Paceline) -> None:
    length = ("--epochs", "3", "--dataset-size", "1e5")
    result = json.loads(paceline("simulate", "s.toml", *length, *JOB, "--json").stdout)
    assert result["job"]["samples"] == 3e5
    assert result["scenario"]["job"]["epochs"] == 3
    assert "job time" in paceline("simulate", "s.toml", *length, *JOB).stdout
    shown = paceline("simulate", "s.toml", *length, *JOB, "--details").stdout
    assert "300,000 samples in 3 epochs" in " ".join(shown.split())
    for part in ("The job", "Start-up", "Tracing", "Steps"):
        assert part in shown
    assert "job" not in json.loads(paceline("simulate", "s.toml", "--json").stdout)


def test_samples_take_the_place_of_epochs(folder: Path, paceline: Paceline) -> None:
    (folder / "j.toml").write_text((folder / "s.toml").read_text() + "\n[job]\nepochs = 4\ndataset_size = 1000\n")
    job = json.loads(paceline("simulate", "j.toml", "--samples", "500", "--json").stdout)["job"]
    assert (job["samples"], job["epochs"]) == (500, 0.5)
    assert json.loads(paceline("simulate", "j.toml", "--epochs", "2", "--json").stdout)["job"]["samples"] == 2000


@pytest.mark.parametrize(
    "command", [("simulate",), ("sweep", "--over", "strategy.workers=1,2", "--out", "o.ndjson")], ids=lambda its: its[0]
)
@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--epochs", "3"), ("dataset_size",)),
        (("--dataset-size", "3"), ("epochs",)),
        (("--epochs", "3", "--samples", "9", "--dataset-size", "3"), ("samples",)),
        (("--samples", "-5"), ("job.samples: -5",)),
        (("--samples", "nan"), ("nan",)),
        (("--epochs", "0", "--dataset-size", "3"), ("job.epochs: 0",)),
        (("--samples", "5", "--set", "job.samples=6"), ("--samples", "--set", "job.samples")),
        (("--dataset-size", "5", "--set", "job.dataset_size=6"), ("--dataset-size", "--set", "job.dataset_size")),
    ],
)
def test_lengths_that_cannot_be_are_refused(
    folder: Path, refusal: Callable[..., None], command: tuple[str, ...], options: tuple[str, ...], names: tuple[str, ...]
) -> None:
    refusal((command[0], "s.toml", *command[1:], *options), *names)
    assert not (folder / "o.ndjson").exists()


def test_checkpoints_without_a_speed_are_refused(refusal: Callable[..., None]) -> None:
    refusal(("simulate", "s.toml", "--samples", "1e5", "--set", "job.checkpoint.every='1 s'"), "checkpoint")


def test_what_a_job_is_can_be_swept(folder: Path, paceline: Paceline) -> None:
    over = ("--over", "job.epochs=1,4", "--over", "job.checkpoint.every='1 s','10 s'")
    keys = ("--dataset-size", "1e5", *JOB, "--set", "job.checkpoint.write='100 MB/s'", "--out", "o.ndjson", "--jobs", "1")
    answer = paceline("sweep", "s.toml", *over, *keys)
    assert answer.code == 0
    assert "whole job" in answer.stdout
    results = read_results(folder / "o.ndjson")
    jobs = [result.job for result in results if result.job is not None]
    assert [job.epochs for job in jobs] == [1, 1, 4, 4]
    assert len({result.throughput_samples_per_s.mean for result in results}) == 1  # the same windows
    assert jobs[2].parts_s.checkpoints > jobs[3].parts_s.checkpoints


def test_a_deadline_is_held_against_the_whole_job(folder: Path, paceline: Paceline) -> None:
    goal = (
        "--dataset-size",
        "1e5",
        "--epochs",
        "2",
        "--deadline",
        "80 s",
        "--workers",
        "1..8",
        "--price",
        "0.40/h",
        "--prefer",
        "fewest-devices",
    )
    steps = Plan.model_validate_json(paceline("plan", "s.toml", *goal, *QUICK, "--json").stdout)
    whole = Plan.model_validate_json(paceline("plan", "s.toml", *goal, *QUICK, *JOB, *LENGTH, "--json").stdout)
    assert steps.feasible
    assert whole.feasible
    job = whole.chosen.result.job
    assert job is not None
    assert job.samples == 2e5
    assert (whole.chosen.time_s, whole.chosen.cost_usd) == (job.time_s, job.cost_usd)
    assert job.time_s.mean <= 80
    assert whole.chosen.result.replicas > steps.chosen.result.replicas  # 24 s are gone before the first step ends
    assert all(candidate.job is not None for candidate in whole.workers)
    assert whole.workers_pay_until is not None
    assert steps.workers_pay_until is not None
    assert whole.workers_pay_until < steps.workers_pay_until  # a small data set stops gaining
    assert "job" not in json.loads(steps.workers[0].to_json())


def test_a_deadline_shorter_than_the_start_cannot_be_reached(folder: Path, paceline: Paceline) -> None:
    answer = paceline("plan", "s.toml", "--dataset-size", "1e4", "--deadline", "22 s", "--workers", "1..4", *QUICK, *JOB, *LENGTH)
    assert answer.code == 3
    text = " ".join(answer.stdout.split())
    assert text.startswith("Nothing reaches 10,000 samples in 22 s.")
    assert "0% to meet the deadline" in text


def test_a_plan_takes_its_length_from_the_scenario(folder: Path, paceline: Paceline) -> None:
    (folder / "j.toml").write_text((folder / "s.toml").read_text() + "\n[job]\nepochs = 4\ndataset_size = 10_000\nstartup = '5 s'\n")
    found = Plan.model_validate_json(paceline("plan", "j.toml", "--deadline", "1 h", "--workers", "1,2", *QUICK, "--json").stdout)
    assert found.goal.samples == 40_000
    refused(paceline("plan", "s.toml", "--deadline", "1 h", *QUICK), "--deadline needs --samples")
    three = ("--samples", "5", "--dataset-size", "6", "--epochs", "2")
    refused(paceline("plan", "s.toml", "--deadline", "1 h", *three), "samples")


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--epochs", "1e6", "--dataset-size", "1e5"), ("1,000,000", "100,000")),
        (("--samples", "1e6", "--set", "job.startup='-5 s'"), ("job.startup: '-5 s'",)),
        (("--samples", "1e6", "--set", "job.startup='5 MB'"), ("job.startup: '5 MB'",)),
    ],
)
def test_what_is_wrong_is_said_once(refusal: Callable[..., None], options: tuple[str, ...], names: tuple[str, ...]) -> None:
    refusal(("simulate", "s.toml", *options), *names)
