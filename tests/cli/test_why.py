"""``paceline why`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command_line import refused
from support.needs import needs_tensorflow

QUICK = ("--set", "run.replications=2", "--set", "run.steps=6", "--set", "strategy.workers=4", "--jobs", "1")
PROFILE = Path(__file__).parents[1] / "calibrate" / "data" / "profiles" / "loop-32"
OWN = ("--parameters", "1e6", "--batch", "32", "--jobs", "1")


def test_numbers_give_an_answer_in_words_and_a_table(paceline) -> None:
    answer = paceline("why", "ring", "--step", "1=9ms", "--step", "4=60ms", *QUICK)
    assert answer.code == 0
    text = " ".join(answer.stdout.split())
    assert text.startswith("Slower than predicted: a step takes 60.0 ms on 4 workers, ")
    assert " Limit undecided: " in text
    assert " Next " in text


@pytest.mark.long
def test_a_table_of_throughputs_is_a_run(paceline, tmp_path) -> None:
    points = tmp_path / "points.csv"
    points.write_text("workers,batch,throughput\n1,32,3500\n4,32,11000\n4,32,11500\n")
    found = json.loads(paceline("why", "ring", "--run", str(points), *QUICK, "--json").stdout)
    assert found["run"]["step_s"] == pytest.approx((4 * 32 / 11000 + 4 * 32 / 11500) / 2)
    assert found["one_device_s"] == pytest.approx(32 / 3500)


@pytest.mark.long
def test_a_few_options_stand_for_a_scenario(paceline) -> None:
    found = json.loads(paceline("why", *OWN, "--strategy", "mirrored", "--step", "1=60ms,4=80ms", "--json").stdout)
    assert found["told_s"]["mean"] == pytest.approx(0.06, rel=0.2)


def test_steps_of_each_worker_are_read_from_their_files(paceline, tmp_path) -> None:
    for name, extra in (("one", 0.0), ("worker0", 0.02), ("worker1", 0.02)):
        rows = [f"{step},{0.009 + extra + (0.5 if step == 1 else 0.0) + 1e-4 * (step % 3)}" for step in range(1, 41)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["step,step_time_s", *rows]))
    runs = [part for name in ("1=one", "4=worker0", "4=worker1") for part in ("--run", f"{name[:2]}{tmp_path / name[2:]}.csv")]
    found = json.loads(paceline("why", "ring", *runs, *QUICK, "--json").stdout)
    assert found["run"]["step_s"] == pytest.approx(0.0291, rel=0.01), "the first step traces, and does not count"
    assert found["run"]["start_s"] == pytest.approx(0.5 / 40, rel=0.05)
    assert any("left out" in remark for remark in found["remarks"])
    assert found["run"]["workers"] == 4
    assert found["causes"]
    assert all(0 <= cause["probability"] <= 1 for cause in found["causes"])


@needs_tensorflow
def test_a_profile_is_the_run_of_one_device(paceline) -> None:
    found = json.loads(paceline("why", "ring", "--run", f"1={PROFILE}", "--step", "4=60ms", *QUICK, "--json").stdout)
    assert found["one_device_s"] == pytest.approx(0.966e-3, rel=0.02)
    assert any("966 µs" in remark for remark in found["remarks"])


def test_numbers_are_those_of_devices(paceline) -> None:
    machines = ("--parameters", "25.6e6", "--batch", "32", "--devices", "4", "--nodes", "2")
    found = json.loads(paceline("why", *machines, "--throughput", "1=500,4=1900,8=3500", "--json").stdout)
    assert found["run"]["workers"] == 8
    assert found["one_device_s"] == pytest.approx(32 / 500, rel=1e-6)
    assert found["run"]["step_s"] == pytest.approx(8 * 32 / 3500)


def test_wrong_input_is_one_line(paceline, tmp_path) -> None:
    refused(paceline("why", "ring", *QUICK), "--step")
    refused(paceline("why", "ring", "--step", "1=9ms", *QUICK), "1 device")
    refused(paceline("why", "ring", "--step", "eight=9ms", *QUICK), "--step", "eight")
    refused(paceline("why", "ring", "--step", "1=9ms,1=10ms", *QUICK), "--step 1")
    refused(paceline("why", "ring", "--step", "8=9 parsecs", *QUICK), "--step '8=9 parsecs'", "time with its unit")
    refused(paceline("why", "ring", "--step", "4=0ms", *QUICK), "step 4", "above 0")
    refused(paceline("why", "ring", "--throughput", "4=fast", *QUICK), "throughput 4", "fast")
    refused(paceline("why", "--parameters", "1e6", "--throughput", "1=fast,4=9"), "throughput 1", "fast")
    refused(paceline("why", "--step", "1=9ms,8=20ms"))
    refused(paceline("why", "--parameters", "1e6", "--epoch", "1=21h,4=9h"), "--epoch", "--dataset-size")
    refused(paceline("why", "ring", "--step", "1=9ms,many=20ms", *QUICK), "many", "16 devices")
    refused(paceline("why", "ring", "--batch", "8", "--step", "1=9ms,4=20ms", *QUICK), "--batch")
    refused(paceline("why", "ring", "--run", str(tmp_path / "none.csv"), *QUICK), "none.csv")
    one = tmp_path / "one.csv"
    one.write_text("step_time_s\n0.1\n0.1\n")
    refused(paceline("why", "ring", "--run", f"4={one}", *QUICK), "one.csv")
    few = tmp_path / "few.csv"
    few.write_text("step,step_time_s\n" + "\n".join(f"{step},0.02" for step in range(1, 6)))
    refused(paceline("why", "ring", "--run", f"4={few}", *QUICK), "few.csv", "steady")
    refused(paceline("why", "ring", "--run", str(few), *QUICK), "few.csv", "workers")
