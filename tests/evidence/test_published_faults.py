"""Files of published faults: they say what their sources do, and jobs that use them fail as often as real ones did."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest
from scipy import stats
from support.scenarios import scenario_table

from evidence.published.fault_rates import FOLDER, files, text_of
from evidence.published.tables import data_file
from simulator import Scenario, load_scenario, scenario_from_table, simulate
from simulator.base.catalog import entries
from simulator.base.errors import ScenarioError
from simulator.catalogue.loading import load_faults
from simulator.job.costs import mtbf_s
from simulator.spec.figures import JobOutcome
from simulator.spec.job import Faults

HOUR_S, DAY_S = 3600.0, 86_400.0


def job(nodes: int, days: float, **faults: Any) -> Scenario:
    """So many days of steps of 6 s on nodes of eight GPUs, of which all must be there; checkpoints cost nothing."""
    table = scenario_table(
        workload={
            "jitter": {"kind": "constant"}, "apply": "0 s", "forward": {"base": "2 s", "per_sample": "0 s"},
            "backward": {"base": "4 s", "per_sample": "0 s"},
        },
        cluster={"devices_per_node": 8, "inter_node": {"bandwidth": "1000 TB/s", "latency": "0 s"}},
        strategy={"kind": "multi-worker-mirrored", "workers": 8 * nodes},
        run={"replications": 40, "steps": 4, "warmup_steps": 1},
    )  # fmt: skip
    free = {"every": "1 min", "size": "1 B", "write": "1000000 TB/s"}
    samples = round(days * DAY_S / 6.0) * 80 * nodes
    table["job"] = {"samples": samples, "startup": "0 s", "tracing": "0 s", "checkpoint": free, "faults": faults}
    return scenario_from_table(table, "test")


def outcome(its: Scenario) -> JobOutcome:
    found = simulate(its).job
    assert found is not None
    return found


def faults_of(its: Scenario) -> Faults:
    assert its.job is not None
    assert its.job.faults is not None
    return its.job.faults


def mtbf_h(its: Scenario) -> float:
    found = mtbf_s(its)
    assert found is not None
    return found / HOUR_S


# -- what the files say -----------------------------------------------------------------------


def test_the_files_are_those_that_the_published_figures_give() -> None:
    written = {file.stem: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.toml")}
    assert written == {name: text_of(keys) for name, keys in files().items()}


@pytest.mark.parametrize("name", entries("faults"))
def test_every_file_says_whose_faults_they_are_and_how_well_they_are_known(name: str) -> None:
    its = load_faults(entries("faults")[name])
    assert all((its.name, its.description, its.source))
    rates_90 = its.rates_90 if its.preemption is None else its.preemption.rates_90
    assert rates_90 is not None
    assert rates_90[0] < 1 < rates_90[1]


@pytest.mark.parametrize("name", [name for name in entries("faults") if name.startswith("aws")])
def test_a_spot_machine_is_there_as_much_of_the_time_as_it_was(name: str) -> None:
    """Mean life over life and wait; and the median of its lives is the one that was seen."""
    with open(data_file("availability.csv"), newline="", encoding="utf-8") as file:
        row = next(row for row in csv.DictReader(file) if row["zone_instance"] == f"{name.removeprefix('aws-v100-')}_v100_1")
    its = load_faults(entries("faults")[name]).preemption
    assert its is not None
    assert its.mtbf_s is not None
    assert its.shape is not None
    # spells that the trace begins or ends in are part of the share that it was there, but of no mean: in us-east-1d 55 h away
    assert its.mtbf_s / (its.mtbf_s + its.wait_s) == pytest.approx(float(row["fraction_all_up"]), abs=0.025)
    law = stats.weibull_min(its.shape, scale=its.mtbf_s / math.gamma(1 + 1 / its.shape))
    assert law.median() / HOUR_S == pytest.approx(float(row["median_all_up_h"]), rel=0.05)


# -- what comes of them in jobs ---------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "days"), [(64, 172.8), pytest.param(2048, 54.0, marks=pytest.mark.long)])
def test_llama_3_is_interrupted_419_times_in_54_days(nodes: int, days: float) -> None:
    """Every 3.09 h on 2,048 nodes; in 40 runs on so many or fewer within four standard errors, which is 3% of 54 days."""
    assert 54 * 24 / mtbf_h(job(2048, days, use="llama-3")) == pytest.approx(419, rel=1e-3)
    training = job(nodes, days, use="llama-3")
    expected = days * 24 / mtbf_h(training)
    found = outcome(training)
    made = found.faults * days * DAY_S / found.time_s.mean
    assert made == pytest.approx(expected, rel=min(0.03 * math.sqrt(419 / expected), 4 / math.sqrt(40 * expected)))


@pytest.mark.parametrize(("name", "rate"), [("rsc-1", 6.50), ("rsc-2", 2.34)])
def test_nodes_of_research_clusters_fail_so_often_in_1000_days(name: str, rate: float) -> None:
    assert 1000 * 24 / mtbf_h(job(10, 1.0, use=name)) / 10 == pytest.approx(rate, rel=1e-3)


@pytest.mark.parametrize(("nodes", "published_h", "days"), [(1, 47.7 * 24, 1000.0), (128, 7.9, 7.0)])
def test_jobs_of_8_and_of_1024_gpus_fail_as_often_as_on_research_clusters(nodes: int, published_h: float, days: float) -> None:
    """One rate per node is within 7% of both. A part per job makes neither better: it would have to be below nothing."""
    its = job(nodes, days, use="rsc-jobs")
    assert mtbf_h(its) == pytest.approx(published_h, rel=0.07)
    found = outcome(its)
    # 840 faults in all runs: 3.5% for one standard error
    assert found.time_s.mean / found.faults / HOUR_S == pytest.approx(published_h, rel=0.07 + 3 * 0.035)


def test_opt_175b_takes_56_days_for_33_of_compute() -> None:
    found = outcome(job(128, 33.0, use="opt-175b"))
    assert found.time_s.mean / DAY_S == pytest.approx(56, rel=0.05)
    assert found.faults == pytest.approx(90, rel=0.06)
    assert found.time_s.low < 56 * DAY_S < found.time_s.high


# -- how they are used ------------------------------------------------------------------------


def test_keys_of_the_scenario_come_before_those_of_the_file() -> None:
    its = faults_of(job(4, 1.0, use="llama-3", restart="5 min"))
    assert (its.name, its.restart_s, its.rates_90) == ("llama-3", 300.0, (0.921, 1.08))
    own = faults_of(job(4, 1.0, use="llama-3", node_mtbf="100 h"))
    # what is known of the published rate is not known of this one, and still of the other
    assert (own.node_mtbf_s, own.job_mtbf_s, own.rates_90_of, own.source) == (100 * HOUR_S, DAY_S, ("job",), "")


def test_a_key_of_the_file_is_unset_and_another_file_takes_its_place() -> None:
    settings = [("job.samples", 1e9), ("job.faults.use", "llama-3"), ("job.faults.detection", "30 s")]
    its = load_scenario("ring", settings)
    assert faults_of(its).job_mtbf_s == DAY_S
    assert faults_of(load_scenario("ring", [*settings, ("job.faults.job_mtbf", None)])).job_mtbf_s is None
    other = faults_of(load_scenario(its, [("job.faults.use", "rsc-1")]))
    assert (other.name, other.job_mtbf_s, other.detection_s) == ("rsc-1", None, 30.0)


def test_a_file_of_the_users_own(tmp_path: Path) -> None:
    own = tmp_path / "ours.toml"
    own.write_text('node_mtbf = "90 d"\n[preemption]\nmtbf = "3 h"\nreplacement = "1 min"\n')
    settings = [("job.samples", 1e9), ("job.faults.use", str(own))]
    its = faults_of(load_scenario("ring", [*settings, ("job.faults.preemption.mtbf", "5 h")]))
    assert its.preemption is not None
    assert (its.node_mtbf_s, its.preemption.mtbf_s, its.preemption.replacement_s) == (90 * DAY_S, 5 * HOUR_S, 60.0)
    own.write_text('node_mtbf = "90 d"\nshape = 99\n')
    with pytest.raises(ScenarioError, match=r"ours.toml: shape: 99 must be at most 20"):
        load_scenario("ring", settings)
