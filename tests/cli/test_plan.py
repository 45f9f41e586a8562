"""``paceline plan`` on the command line."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import SCENARIO, Answer, refused
from support.journals import finished_lines
from support.waiting import PATIENCE_S, until
from syrupy.assertion import SnapshotAssertion

from paceline.planning import Plan
from paceline.planning.sentences import answer_of_plan
from paceline.sweeping import read_results
from simulator.base.text import written

PRICE = ("--set", "cluster.price.usd_per_node_hour=0.40")
QUICK = ("--set", "run.replications=19", "--jobs", "1")
GOAL = ("--target-throughput", "3000 samples/s")
Paceline = Callable[..., Answer]


def test_the_answer_comes_in_sentences_and_tables_of_80_columns(folder: Path, paceline: Paceline, snapshot: SnapshotAssertion) -> None:
    strategies = ("--strategies", "ring,async-ps", "--workers", "1..8", "--scaling", "both")
    answer = paceline("plan", "s.toml", *GOAL, *strategies, *PRICE, *QUICK, "--details")
    assert answer.code == 0
    lines = answer.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "at least 95% to reach the goal" in " ".join(answer.stdout.split())
    assert answer.stdout == snapshot


def test_a_probability_that_is_next_to_nothing_has_no_digits(folder: Path, paceline: Paceline) -> None:
    answer = paceline("plan", "s.toml", "--target-throughput", "5000 samples/s", "--workers", "1,2", *QUICK, "--json")
    assert answer.code == 3
    plan = Plan.model_validate_json(answer.stdout)
    assert 0 < plan.chosen.confidence < 0.001
    assert answer_of_plan(plan).confidence.startswith("<0.1% to reach the goal")


def test_without_details_the_answer_and_one_table(folder: Path, paceline: Paceline) -> None:
    many = ("--strategies", "ring,async-ps", "--workers", "1,2,4", "--clusters", "ethernet-1g,ethernet-10g", "--price", "0.40/h")
    answer = paceline("plan", "s.toml", *GOAL, *many, *QUICK)
    assert answer.code == 0
    lines = answer.stdout.splitlines()
    assert sum(set(line) == {"\u2500"} for line in map(str.strip, lines)) == 1
    text = " ".join(answer.stdout.split())
    assert "--details" in text
    table = answer.stdout
    for cluster in ("ethernet-1g", "ethernet-10g"):  # each that was asked for has its best
        assert cluster in table
    for part in ("Pareto front", "Gain of one improvement", "note: "):
        assert part not in text


def test_a_refusal_is_told_once_and_counted(folder: Path, paceline: Paceline) -> None:
    (folder / "s.toml").write_text(SCENARIO.replace('name = "lab"', 'name = "lab"\nnodes = 4'))
    both = paceline("plan", "s.toml", *GOAL, "--strategies", "ring,halving-doubling,mirrored", "--workers", "2..3", *QUICK)
    assert " ".join(both.stdout.split()).count("must be at most 1, the replicas of one node") == 1
    none = ("--strategies", "mirrored", "--over", "run.seed=1,2,3")
    alone = paceline("plan", "s.toml", *GOAL, *none, "--workers", "2..3", *QUICK)
    assert alone.code == 2
    assert alone.stderr.count("must be at most 1, the replicas of one node") == 1
    assert "run.seed=1" in alone.stderr
    assert "run.seed=2" in alone.stderr


def test_where_nothing_has_a_price_there_are_no_columns_for_it(folder: Path, paceline: Paceline) -> None:
    training = ("--samples", "1e6", "--deadline", "1 h", "--workers", "1,2")
    without = paceline("plan", "s.toml", *training, *QUICK).stdout
    with_one = paceline("plan", "s.toml", *training, *QUICK, *PRICE).stdout
    assert "cost  conf." in with_one
    assert "cost  conf." not in without
    assert "time  conf." in without


def test_json_is_the_plan(folder: Path, paceline: Paceline) -> None:
    answer = paceline("plan", "s.toml", *GOAL, "--workers", "1..8", *PRICE, *QUICK, "--json")
    assert answer.code == 0
    plan = Plan.model_validate_json(answer.stdout)
    assert plan.feasible
    assert plan.goal.target_throughput_samples_per_s == 3000.0
    assert plan.considered == 8 == plan.discarded + plan.passed_over + len(plan.candidates)
    assert json.loads(answer.stdout)["chosen"]["name"] == plan.chosen.name
    # one variable more than servers, so that 2 is the most there can be
    assert [count.servers for count in plan.servers] == [1, 2]
    known = [one.gain for one in plan.improvements if one.gain is not None]
    assert known == sorted(known, reverse=True)
    assert {one.name for one in plan.improvements} == {
        "2x network", "half latency", "2x device", "one more PS", "2x batch", "mixed precision",
    }  # fmt: skip
    assert plan.simulated >= len(plan.candidates) + len(known)


def test_a_goal_out_of_reach_exits_with_3_and_tells_the_nearest(folder: Path, paceline: Paceline) -> None:
    answer = paceline("plan", "s.toml", "--target-throughput", "1e6 samples/s", "--workers", "1..4", *PRICE, *QUICK)
    assert answer.code == 3
    text = " ".join(answer.stdout.split())
    assert "Nothing reaches 1,000,000 samples/s. Nearest: async PS, 1 server on 5 nodes of lab" in text
    assert re.search("Next a faster device, or a goal of at most [0-9,]+ samples/s; twice the workers are not enough", text)


def test_a_deadline_and_a_budget(folder: Path, paceline: Paceline) -> None:
    training = ("--dataset-size", "1e6", "--epochs", "2", "--deadline", "10 min")
    answer = paceline("plan", "s.toml", *training, "--budget", "1 USD", "--workers", "1..8", *PRICE, *QUICK)
    assert answer.code == 0
    text = " ".join(answer.stdout.split())
    assert "(deadline 10 min, budget $1)" in text
    assert re.search(r"cost \$\S+ \$\S+ to \$\S+ \d nodes? x \S+ \w+ x \$0\.40", text)
    alone = paceline("plan", "s.toml", "--samples", "1e6", "--budget", "1 USD", "--workers", "1,2,4", *PRICE, *QUICK)
    assert re.match("Fastest: .* \\(budget \\$1\\)", " ".join(alone.stdout.split()))


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ([], ()),
        ([*GOAL, "--deadline", "3h"], ()),
        (["--target-throughput", "20000"], ("--target-throughput '20000'",)),
        (["--target-throughput", "20000", "samples/s"], ("'20000 samples/s'",)),
        (["--samples", "1e6", "--deadline", "-3h"], ("--deadline '-3h'",)),
        (["--samples", "1e6", "--budget", "5 USD"], ("price",)),
        (["--budget", "5 USD"], ("--budget", "--samples")),
        ([*GOAL, "--workers", "0"], ("--workers '0'",)),
        ([*GOAL, "--workers", "8..2"], ("--workers '8..2'",)),
        ([*GOAL, "--price", "lba=0.2/h"], ("--price 'lba'",)),
        ([*GOAL, "--price", "lab=0.2"], ("--price", "0.2")),
        ([*GOAL, "--clusters", "p3.2xlarge,p3.8xlarge", "--price", "1/h"], ("--price", "p3.2xlarge=1.00/h")),
        ([*GOAL, "--servers", ""], ("--servers ''",)),
        ([*GOAL, "--servers", "5"], ("must be at most 2",)),
        ([*GOAL, "--clusters", "etherent-10g"], ("'etherent-10g'",)),
        ([*GOAL, "--clusters", ","], ("--clusters ','",)),
        ([*GOAL, "--strategies", "rign"], ("ring?",)),
        ([*GOAL, "--confidence", "0.95"], ("--confidence 0.95", "0.667", "--set")),
        ([*GOAL, "--over", "strategy.workers=1,2", "--workers", "3"], ()),
        ([*GOAL, "--set", "strategy.workers=8"], ("--set", "strategy.workers", "--workers")),
        ([*GOAL, "--set", "run.replications=3", "--replications", "2"], ("--replications", "--set", "run.replications")),
        ([*GOAL, "--over", "run.seed="], ("run.seed",)),
        ([*GOAL, "--out", "."], ("'.'",)),
        ([*GOAL, "--report", "s.toml"], ("'s.toml'",)),
        ([*GOAL, "--report", "a.html", "--out", "a.html"], ("--report", "--out")),
        ([*GOAL, *QUICK, "--scheduler", "tcp://127.0.0.1:1"], ("--scheduler",)),
        ([*GOAL, "--strategies", "mirrored", "--workers", "2..4"], ()),
    ],
)
def test_bad_input_is_one_line_and_2(refusal: Callable[..., None], options: list[str], names: tuple[str, ...]) -> None:
    refusal(["plan", "s.toml", *options], *names)


def test_a_cluster_that_the_workload_cannot_be_moved_to_is_told_and_not_dropped(folder: Path, paceline: Paceline) -> None:
    (folder / "other.toml").write_text('schema_version = 1\nname = "other"\ndevice = "Abacus"\n[inter_node]\nbandwidth = "1 GB/s"\n')
    measured = ("--set", 'workload.calibrated={batch=[1,64], device="Slide rule"}')
    answer = paceline(
        "plan", "s.toml", *GOAL, "--clusters", "other.toml,ethernet-10g", "--workers", "1,2,4", *measured, *QUICK, "--details"
    )
    assert answer.code == 0
    text = " ".join(answer.stdout.split())
    assert "refused, 3 configurations: on other.toml: " in text
    assert "'Slide rule'" in text
    assert "3 refused" in text
    alone = paceline("plan", "s.toml", *GOAL, "--clusters", "other.toml", *measured, *QUICK)
    assert alone.code == 2
    assert "'Abacus'" in alone.stderr


def test_each_cluster_has_a_line_and_a_general_price_says_where_it_was_used(folder: Path, paceline: Paceline) -> None:
    clusters = (
        "--clusters",
        "ethernet-10g,p3.2xlarge",
        "--workers",
        "1..8",
        "--strategies",
        "ring",
        "--samples",
        "1e7",
        "--deadline",
        "2h",
    )
    answer = paceline("plan", "s.toml", *clusters, *PRICE, *QUICK, "--details")
    assert answer.code == 0
    assert re.search(r"\$0\.40 per hour .* ethernet-10g; p3\.2xlarge", answer.stderr)
    lines = answer.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    table = lines[lines.index(next(line for line in lines if line.startswith("Each cluster"))) :]
    assert table[1].split() == ["cluster", "workers", "nodes", "samples/s", "time", "per", "hour", "cost", "conf."]
    rows = {line.split()[0]: line.split() for line in table[3:5]}
    assert set(rows) == {"ethernet-10g", "p3.2xlarge"}
    # the cost is hours x price before anything is rounded, and each is written once
    plan = json.loads(paceline("plan", "s.toml", *clusters, *PRICE, *QUICK, "--json").stdout)
    for cluster in plan["clusters"]:
        best = cluster["best"]
        hours, hourly, cost = best["time_s"]["mean"] / 3600, best["usd_per_hour"], best["cost_usd"]["mean"]
        assert hours * hourly == pytest.approx(cost, rel=1e-9)
        assert rows[cluster["cluster"]][4:8] == [*written(hours, "hours").split(), written(hourly, "hourly"), written(cost, "usd")]
    assert rows["p3.2xlarge"][6] in {f"${3.06 * nodes:.2f}" for nodes in range(1, 9)}


def test_simulate_tells_the_cost_and_what_is_left_out(folder: Path, paceline: Paceline) -> None:
    answer = paceline("simulate", "s.toml", "--price", "lab=BUY:4000USD,years:4,power:0.5kW", "--details")
    assert answer.code == 0
    text = " ".join(answer.stdout.split())
    assert "$0.56723 an hour for 3 x $0.18908 (bought for 4,000 USD over 4 years" in text
    assert "a node of lab costs $0.18908 per hour" in answer.stderr


WORK = ("--strategies", "ring,async-ps", "--workers", "1..4", "--set", "run.steps=30", *PRICE, "--set", "run.replications=19")
KEPT = ("plan", "s.toml", *GOAL, *WORK, "--out")


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_plan_that_was_stopped_goes_on_to_the_same_bytes(folder: Path, paceline: Paceline, killed: bool) -> None:
    whole = paceline(*KEPT, "whole.ndjson", "--jobs", "1", "--json")
    assert whole.code == 0
    out, expected = folder / "p.ndjson", (folder / "whole.ndjson").read_bytes()
    lines = expected.splitlines(keepends=True)
    if killed:
        command = [sys.executable, "-m", "paceline", *KEPT, "p.ndjson", "--jobs", "1"]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: out.exists() and out.read_bytes().count(b"\n") >= 3, lambda: child.poll() is None)
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=PATIENCE_S)
        assert finished_lines(out.read_bytes()) < set(lines)
    else:
        out.write_bytes(b"".join(lines[:3]) + lines[3][:100])
    again = paceline(*KEPT, "p.ndjson", "--jobs", "2" if killed else "1", "--json")
    assert again.stdout == whole.stdout
    assert (folder / "p.plan.json").read_text() == whole.stdout
    assert "paceline report p.ndjson --plan p.plan.json" in again.stderr
    assert out.read_bytes() == expected
    assert len(read_results(out).results) == Plan.model_validate_json(whole.stdout).simulated


def test_a_report_holds_the_plan(folder: Path, paceline: Paceline) -> None:
    answer = paceline("plan", "s.toml", *GOAL, "--workers", "1,2,4", *PRICE, *QUICK, "--report", "plan.html")
    assert answer.code == 0
    assert "wrote plan.html" in answer.stderr
    page = (folder / "plan.html").read_text()
    assert "async PS, 1 server on lab" in page
    assert 'id="figure-timeline"' in page
    assert 'id="figure-sensitivity"' in page


def test_the_scenario_in_this_file_is_priced_by_nobody() -> None:
    assert "price" not in SCENARIO  # else the refusals above would prove nothing


def test_what_cuts_a_model_needs_layers_and_says_how_to_get_them(folder: Path, paceline: Paceline) -> None:
    answer = paceline("plan", "s.toml", *GOAL, "--strategies", "pipeline", "--workers", "2", *QUICK)
    refused(answer, "layers", "`paceline calibrate --layers`")


OFFERS = """
[cluster.price]
name = "on demand"
usd_per_node_hour = 4.0
source = "a list"
date = "2026-11-01"

[[cluster.offers]]
name = "bought"
purchase_usd = 30_000
share_in_use = 0.5
owned = {years = 3, power = "1 kW", usd_per_kwh = 0.2, hosting_usd_per_month = 50}

[[cluster.upgrades]]
name = "newer devices"
usd_per_node = 2_000
device_speed = 2.0
"""


def test_ways_to_pay_and_upgrades_are_printed_with_their_sources(folder: Path, paceline: Paceline, snapshot: SnapshotAssertion) -> None:
    text = (folder / "s.toml").read_text()
    (folder / "offers.toml").write_text(text.replace("[strategy]", f"{OFFERS}\n[strategy]"))
    goal = ("--samples", "1e7", "--deadline", "100 h", "--workers", "2", "--trainings-per-month", "30", "--confidence", "0.5")
    answer = paceline("plan", "offers.toml", *goal, *QUICK, "--details")
    assert answer.code == 0
    assert max(map(len, answer.stdout.splitlines())) <= 80
    text = " ".join(answer.stdout.split())
    for part in ("Ways to pay", "$90,000", "a list, 2026-11-01", "30.0 trainings a month", "$2,000", "$6,000 for 3 nodes"):
        assert part in text, part
    simulated = paceline("simulate", "offers.toml", "--set", "cluster.offers=[]", "--set", "cluster.price.purchase_usd=30000",
                         "--set", "cluster.price.owned={years=3,power='1 kW'}", "--details")  # fmt: skip
    assert simulated.code == 0
    said = " ".join(simulated.stdout.split())
    assert re.search(r"\$[\d,]+ to buy; running costs \$[\d.]+ an hour in use", said), said
    never = paceline("plan", "offers.toml", "--target-throughput", "100 samples/s", "--trainings-per-month", "3", *QUICK)
    refused(never, "--trainings-per-month 3")
    throughput = ("--target-throughput", "100 samples/s", "--workers", "2", "--confidence", "0.5")
    assert paceline("plan", "offers.toml", *throughput, *QUICK, "--report", "paid.html").code == 0  # whose payments have no time
    assert ">Ways to pay<" in (folder / "paid.html").read_text()
