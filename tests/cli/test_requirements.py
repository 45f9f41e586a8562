"""``--require``: exit code 3 where a result misses what was asked of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import Answer

import paceline
from paceline.requirements import Requirement
from simulator.base.errors import InputError
from simulator.results.results import Result
from simulator.results.rows import COLUMNS

Runner = Callable[..., Answer]


@pytest.fixture(scope="module")
def result() -> Result:
    return paceline.simulate("ring", {"strategy.workers": 8, "run.steps": 10, "run.replications": 19})


def test_each_requirement_that_is_missed_is_a_line(folder: Path, paceline: Runner) -> None:
    asked = ("scaling_efficiency>=101%", "step_mean_s<1 us", "replicas==2")
    words = [word for text in asked for word in ("--require", text)]
    answer = paceline("simulate", "s.toml", "--json", *words)
    assert answer.code == 3
    row = json.loads(answer.stdout)
    first, second = answer.stderr.splitlines()
    assert first.startswith("paceline: scaling_efficiency>=101% is not met: it is ")
    assert f"{100 * row['scaling_efficiency']['mean']:.0f}%" in first
    assert " (90% interval " in first
    assert second.startswith("paceline: step_mean_s<1 us is not met: it is ")
    assert paceline("simulate", "s.toml", "--json", "--require", "replicas==2").code == 0


def test_of_a_sweep_every_result_must_meet_it(folder: Path, paceline: Runner) -> None:
    command = ("sweep", "s.toml", "--over", "strategy.workers=1,2", "--jobs", "1", "--out", "r.ndjson", "--require")
    answer = paceline(*command, "replicas>=2")
    assert answer.code == 3
    assert answer.stderr.splitlines()[-1] == "paceline: strategy.workers=1: replicas>=2 is not met: it is 1"
    assert paceline(*command, "replicas>=1").code == 0


def test_nothing_is_simulated_for_a_requirement_that_cannot_be_read(folder: Path, paceline: Runner) -> None:
    for text, reason in (
        ("efficiency", "must be a column, a comparison and a value"),
        ("efficiency>=70", "write 70%"),
        ("eficiency>=70%", "did you mean efficiency?"),
        ("bottleneck>=compute", "compare it with == or !="),
        ("job_time_s<=12 GB", "must be a time"),
        ("throughput>=5.000", "write 5 or 5000"),
    ):
        answer = paceline("sweep", "s.toml", "--over", "run.seed=1,2", "--out", "r.ndjson", "--require", text)
        assert answer.code == 2
        assert answer.stderr.startswith(f"paceline: --require {text!r}")
        assert reason in answer.stderr
        assert len(answer.stderr.splitlines()) == 1
        assert not (folder / "r.ndjson").exists()


def test_every_column_can_be_required(result: Result) -> None:
    for name, column in COLUMNS.items():
        value = result.row()[name]
        limit = ("1 s" if column.kind == "seconds" else "1") if column.kind not in ("text", "any") else "x"
        (told,) = paceline.unmet(result, f"{name}=={limit}") or ("",)
        assert (value is None) == (told == f"{name}=={limit} is not met: there is no {name} in this result")


def test_a_value_is_read_with_its_unit_or_as_the_column_is_named() -> None:
    for text, limit in (
        ("efficiency >= 70%", 0.7),
        ("goodput>=.7", 0.7),
        ("job_time_s<=12 h", 43200.0),
        ("job_time_s<=43200", 43200.0),
        ("job_cost_usd<=500 USD", 500.0),
        ("usd_per_hour<=$3/h", 3.0),
        ("throughput>=2e4 samples/s", 2e4),
        ("bottleneck==compute", "compute"),
    ):
        assert Requirement.of(text).limit == limit
    with pytest.raises(InputError, match="must be a time with its unit"):
        Requirement.of("time of the job<=12")


def test_the_estimate_decides_and_an_interval_with_the_limit_in_it_is_named(result: Result) -> None:
    rate = result.throughput_samples_per_s
    assert rate.low is not None
    assert rate.high is not None
    below, above = (rate.low + rate.mean) / 2, (rate.mean + rate.high) / 2
    row = result.row()
    for text, met, said in (
        (f"throughput>={rate.low * 0.99}", True, ""),
        (f"throughput>={below}", True, f"throughput_low>={below} is stricter"),
        (f"throughput<={above}", True, f"throughput_high<={above} is stricter"),
        (f"throughput>={above}", False, "; the interval contains the limit"),
        (f"throughput>={rate.high * 1.01}", False, ")"),
        (f"throughput_low>={below}", False, ""),
        (f"throughput>={rate.mean}", True, f"throughput_low>={rate.mean} is stricter"),
        (f"throughput>{rate.mean}", False, "; the interval contains the limit"),
    ):
        is_met, sentence = Requirement.of(text).judge(row)
        assert is_met == met, text
        assert sentence.endswith(said), text
        assert bool(sentence) == (not met or bool(said)), text


def test_a_value_that_rounds_to_the_limit_is_told_apart_from_it(result: Result) -> None:
    mean = result.scaling_efficiency.mean
    (told,) = paceline.unmet(result, f"efficiency>={mean * (1 + 1e-6):.9f}")
    assert f"({mean:.10g})" in told
