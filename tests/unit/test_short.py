"""What a person sees of an object at a prompt: one line, and with print a few."""

from __future__ import annotations

import re
from typing import Any

import pytest

import paceline
from simulator.base.text import Short
from simulator.results.results import Failed, Failure

QUICK = {"run.steps": 6, "run.replications": 3}


@pytest.fixture(scope="module")
def result() -> paceline.Result:
    return paceline.simulate("async-ps", QUICK)


def of_every_kind(result: paceline.Result) -> dict[str, Any]:
    scenario = result.scenario
    plan = paceline.plan("ring", target_throughput=1000.0, workers=[1, 2], settings={**QUICK, "run.replications": 19}, jobs=1)
    return {
        "result": result,
        "scenario": scenario,
        "workload": scenario.workload,
        "cluster": scenario.cluster,
        "input": paceline.load("input-bound").input,
        "sweep": paceline.sweep("ring", {"strategy.workers": "1..2"}, settings=QUICK, jobs=1),
        "comparison": paceline.compare(result, result),
        "memory": paceline.memory("fsdp"),
        "preview": paceline.preview("ring"),
        "models": paceline.models(),
        "plan": plan,
        "candidate": plan.chosen,
    }


@pytest.mark.slow
def test_every_object_is_one_line_at_a_prompt_and_more_in_print(result: paceline.Result) -> None:
    for name, its in of_every_kind(result).items():
        assert isinstance(its, Short), name
        assert repr(its).startswith(f"<{type(its).__name__}: "), name
        assert "\n" not in repr(its), name
        assert str(its).splitlines()[-1].startswith("  More: "), name


def test_a_result_says_throughput_limit_and_warnings(result: paceline.Result) -> None:
    text = repr(result)
    assert "async PS, 2 servers, 8 workers, cnn-cpu on ethernet-25g" in text
    assert re.search(r"[\d,]+ samples/s \(90% of runs: [\d,]+ to [\d,]+\)", text)
    assert f"limit: {result.bottleneck.label}" in text
    assert f"{len(result.warnings)} warnings" in text


def test_a_job_says_how_long_it_takes() -> None:
    assert re.search(r"whole job [\d.]+ \w+ \(90% of runs: ", repr(paceline.simulate("whole-job", QUICK)))


def test_a_failure_says_why(result: paceline.Result) -> None:
    its = Failure(scenario_hash="0", scenario=result.scenario, failed=Failed(kind="DeadlockError", text="all wait"))
    assert repr(its).endswith("; DeadlockError: all wait>")


@pytest.mark.slow
def test_a_goal_that_nothing_reaches_is_said() -> None:
    settings = {**QUICK, "run.replications": 19}
    assert repr(paceline.plan("ring", target_throughput=1e9, workers=[1, 2], settings=settings, jobs=1)).startswith(
        "<Plan: nothing reaches the goal; nearest: "
    )


def test_small_parts_still_show_all_of_themselves(result: paceline.Result) -> None:
    assert repr(result.speedup).startswith("Estimate(mean=")
