"""Another device than the workload was measured on, from the command line: moved, refused, validated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command_line import refused

CNN = """\
[workload]
use = "cnn-cpu"
batch_per_replica = 32

[cluster]
use = "p3.2xlarge"
nodes = 2

[strategy]
kind = "multi-worker-mirrored"

[run]
steps = 4
replications = 19
"""


@pytest.fixture
def cnn(folder: Path) -> Path:
    path = folder / "cnn.toml"
    path.write_text(CNN)
    return path


def answer(done) -> dict:
    assert done.code == 0, done.stderr
    return json.loads(done.stdout)


def test_the_example_is_moved_to_a_gpu_by_a_roofline_with_a_wide_range(paceline, cnn):
    found = answer(paceline("simulate", str(cnn), "--json"))
    moved = found["moved"]
    assert found["scenario"]["workload"]["moved"] is None  # as it was written
    assert (moved["rule"], moved["to_device"]) == ("roofline", "Tesla V100-SXM2")
    assert "models/devices: Tesla V100-SXM2" in moved["sources"]
    warning = next(each for each in found["warnings"] if each["code"] == "moved-device")
    assert "'Intel(R) Xeon(R) Processor (CPU)'" in warning["text"]
    assert "models/published/speeds.csv, 12 sources" in warning["text"]
    assert "models/published/speeds.csv: lambda_2022" in moved["sources"]
    low, mid, high = moved["factor"]
    assert low < mid < high < 1
    assert warning["range"] == [low, high]


def test_the_warning_stands_below_the_table(paceline, cnn):
    done = paceline("simulate", str(cnn), "--details")
    assert done.code == 0
    assert "'Intel(R) Xeon(R) Processor (CPU)'" in " ".join(done.stdout.split())


def test_another_processor_is_refused(refusal, cnn):
    names = ("'Intel(R) Xeon(R) Processor (CPU)'", "'2 x Xeon Platinum 8124M'", "workload.moved = {factor = [0.2, 0.3]")
    refusal("simulate cnn.toml --set cluster.use=c5.18xlarge", *names)


def test_a_factor_from_the_command_line_overrides_every_rule(paceline, cnn):
    given = "workload.moved={factor=[0.1, 0.2], source='a test of mine'}"
    for cluster in ("p3.2xlarge", "c5.18xlarge"):
        found = answer(paceline("simulate", str(cnn), "--json", "--set", f"cluster.use={cluster}", "--set", given))
        assert found["moved"]["rule"] == "given"
        assert found["moved"]["sources"] == ["a test of mine"]


def test_a_sweep_over_devices_moves_each_to_its_own(paceline, cnn, folder):
    done = paceline("sweep", str(cnn), "--over", "cluster.use=p2.xlarge,p3.2xlarge,ethernet-10g", "--out", "s.ndjson")
    assert done.code == 0, done.stderr
    found = [json.loads(line) for line in (folder / "s.ndjson").read_text().splitlines()]
    rules = {
        each["scenario"]["cluster"]["name"]: (each["moved"] or {}).get("to_device")
        for each in found
        if "scenario" in each and "throughput_samples_per_s" in each
    }
    assert rules == {"p2.xlarge": "Tesla K80 (one die)", "p3.2xlarge": "Tesla V100-SXM2", "ethernet-10g": None}


def test_a_printed_scenario_is_simulated_again_to_the_same_result(paceline, cnn, folder):
    first = answer(paceline("simulate", str(cnn), "--json"))
    from calibrate.fit.writing import write_fitted
    from simulator import load_scenario
    from simulator.resolve.resolve import resolve
    from simulator.spec.workload import Workload

    write_fitted(Workload.model_validate(first["scenario"]["workload"]), folder / "printed.toml")
    again = answer(paceline("simulate", str(cnn), "--json", "--set", "workload.use=printed.toml"))
    assert again["scenario_hash"] == first["scenario_hash"]
    assert again["throughput_samples_per_s"] == first["throughput_samples_per_s"]
    there = answer(paceline("simulate", str(cnn), "--json", "--set", "workload.use=printed.toml", "--set", "cluster.use=p2.xlarge"))
    assert there["moved"]["to_device"] == "Tesla K80 (one die)"
    # a workload that was moved once stays where it is
    moved = resolve(load_scenario(cnn)).workload
    write_fitted(moved, folder / "moved.toml")
    again = answer(paceline("simulate", str(cnn), "--json", "--set", "workload.use=moved.toml"))
    assert (again["throughput_samples_per_s"], again["moved"]) == (first["throughput_samples_per_s"], first["moved"])
    elsewhere = paceline("simulate", str(cnn), "--set", "workload.use=moved.toml", "--set", "cluster.use=p2.xlarge")
    refused(elsewhere, "'Intel(R) Xeon(R) Processor (CPU)'", "'Tesla V100-SXM2'")


def test_a_price_from_the_command_line_is_the_scenarios_own(paceline, cnn):
    found = answer(paceline("simulate", str(cnn), "--json", "--set", "cluster.price.usd_per_node_hour=0.5"))
    assert found["scenario"]["cluster"]["price"] == {
        "usd_per_node_hour": 0.5, "source": "given in the scenario", "terms": "", "date": ""
    }  # fmt: skip
