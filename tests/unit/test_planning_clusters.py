"""Each cluster of a plan: its price, its machines, its best configuration, or why it has none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.scenarios import scenario_table

import paceline
from paceline.planning import Plan, goal_of, plan, space_of
from paceline.planning.sentences import answer_of_plan
from paceline.planning.tables import brief, plan_tables
from paceline.reporting.figures import pareto_figure
from simulator.base.text import format_number, written
from simulator.spec.figures import Bottleneck, Breakdown, Utilisation
from simulator.spec.prices import parse_prices

pytestmark = pytest.mark.slow

RING = {"kind": "multi-worker-mirrored", "workers": 2}
TEXT = 'name = "{0}"\nschema_version = 1\n{1}\n[inter_node]\nbandwidth = "{2}"\n'
JITTER = {"jitter": {"kind": "lognormal", "sigma": 0.1}, "run_to_run_cv": 0.1}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Three clusters: without a price, with one, and with eight devices a node."""
    folder = tmp_path_factory.mktemp("clusters")
    texts = {
        "bare": ("", "100 GB/s"),
        "slow": ("price = { usd_per_node_hour = 3.0 }", "1 MB/s"),
        "eight": ("devices_per_node = 8\nprice = { usd_per_node_hour = 20.0 }", "100 GB/s"),
    }
    for name, (more, rate) in texts.items():
        (folder / f"{name}.toml").write_text(TEXT.format(name, more, rate))
    return {name: str(folder / f"{name}.toml") for name in texts}


def planned(machines: dict[str, str], goal: Any, *, price: list[str] | None = None, **options: Any) -> Plan:
    table = scenario_table(strategy=RING, workload=JITTER, run={"replications": 19, "steps": 8})
    settings = options.pop("settings", ())
    prices = parse_prices(dict(text.split("=", 1) for text in price or []))
    space = space_of(table, clusters=list(machines.values()), prices=prices, settings=settings, **options)
    return plan(space, goal, jobs=1)


@pytest.fixture(scope="module")
def soon(machines: dict[str, str]) -> Plan:
    """1e7 samples in 45 minutes are 3,704 samples/s, about 3 devices."""
    return planned(machines, goal_of(samples=1e7, deadline="45 min"), price=["bare=0.2/h"], workers="1..8")


def by_name(answer: Plan) -> dict[str, Any]:
    return {Path(its.cluster).stem: its for its in answer.clusters}


def test_a_price_set_for_several_clusters_reprices_none_that_has_its_own(machines: dict[str, str]) -> None:
    goal = goal_of(samples=1e6, deadline="1h")
    answer = planned(machines, goal, settings=[("cluster.price.usd_per_node_hour", 0.2)], workers="1..8")
    prices = {name: its.price.usd_per_node_hour for name, its in by_name(answer).items()}
    assert prices == {"bare": 0.2, "slow": 3.0, "eight": 20.0}
    note = next(text for text in answer.notes if "applies to" in text)
    assert "to bare; slow and eight keep their own" in note
    named = planned(machines, goal, price=[f"{machines['slow']}=0.1/h", "bare=BUY:876.6USD,years:1"], workers="1..8")
    prices = {name: its.price.usd_per_node_hour for name, its in by_name(named).items()}
    assert prices == {"bare": pytest.approx(0.1), "slow": 0.1, "eight": 20.0}


def test_every_cluster_has_its_best_or_says_why_not(machines: dict[str, str], soon: Plan) -> None:
    answer, found = soon, by_name(soon)
    assert list(found) == ["bare", "slow", "eight"]
    assert found["bare"].text.startswith("the answer")
    assert found["eight"].best.meets
    assert (found["eight"].best.nodes, found["eight"].best.devices_per_node) == (1, 8)
    assert "8 replicas on 1 node with 8 devices" in found["eight"].best.placement
    assert not found["slow"].best.meets
    assert found["slow"].text.startswith("too slow ")
    assert found["slow"].best.result.scenario.cluster.name == "slow"
    # what is found on a cluster is what a plan for it alone answers
    for name in ("bare", "eight"):
        alone = planned({name: machines[name]}, answer.goal, price=["bare=0.2/h"] if name == "bare" else None, workers="1..8")
        assert found[name].best.name == alone.chosen.name
    assert 0 < answer.for_each_cluster < len(answer.candidates)
    assert answer.considered == 24 == len(answer.candidates) + answer.discarded + answer.passed_over


def test_a_near_miss_is_seen_beside_what_meets_the_goal(machines: dict[str, str]) -> None:
    one = {"bare": machines["bare"]}
    rates = sorted(planned(one, goal_of(target_throughput=1.0), workers=[3]).chosen.result.throughput_of_each_replication)
    answer = planned(one, goal_of(target_throughput=rates[4] * 0.9999), price=["bare=1/h"], workers=[2, 3, 4])
    (its,) = answer.clusters
    assert its.best.result.replicas == 4
    assert its.near_miss.result.replicas == 3
    assert its.near_miss.confidence == pytest.approx(0.75)
    assert "confidence 0.75" in its.text


def test_a_cluster_without_a_price_and_one_that_cannot_be_say_so(machines: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text('name = "odd"\nschema_version = 1\ndevice = "Abacus"\n[inter_node]\nbandwidth = "1 GB/s"\n')
    measured = [("workload.calibrated", {"batch": [1, 64], "device": "Slide rule"})]
    all_ = {**machines, "odd": str(tmp_path / "odd.toml")}
    found = by_name(planned(all_, goal_of(samples=1e6, budget="50 USD"), workers=[1, 2], settings=measured))
    assert found["bare"].best is None or not found["bare"].best.meets
    assert "price is unknown" in found["bare"].text
    assert found["odd"].best is None
    assert found["odd"].text.startswith("not possible: ")
    assert "'Abacus'" in found["odd"].text


def test_the_figures_of_the_answer_are_told_in_one_rounding_and_multiply(machines: dict[str, str]) -> None:
    answer = planned({"bare": machines["bare"]}, goal_of(samples=1e9, deadline="1000 h"), price=["bare=0.526/h"], workers=[3])
    chosen = answer.chosen
    rate, time_s, cost = chosen.result.throughput_samples_per_s, chosen.time_s, chosen.cost_usd
    said = {figure.what: figure for figure in answer_of_plan(answer).figures}
    assert said["throughput"].mean == format_number(rate.mean)
    assert (said["time"].mean, said["cost"].mean) == (written(time_s.mean, "seconds"), written(cost.mean, "usd"))
    assert said["cost"].interval == f"{written(cost.low, 'usd')} to {written(cost.high, 'usd')}"
    assert said["cost"].note == f"3 nodes x {written(time_s.mean, 'seconds')} x $0.526"
    assert chosen.usd_per_hour * time_s.mean / 3600 == pytest.approx(cost.mean)


def test_the_answer_is_compared_run_by_run(machines: dict[str, str]) -> None:
    answer = planned(machines, goal_of(samples=1e6, deadline="1h"), price=["bare=2/h"], workers=[1, 2, 3])
    chosen = answer.chosen.result.throughput_of_each_replication
    assert answer.chosen.paired is None
    for other in answer.candidates:
        if other.key != answer.chosen.key:
            rates = other.result.throughput_of_each_replication
            ours, theirs = answer.chosen.usd_per_hour, other.usd_per_hour
            wins = sum(mine / ours > its / theirs for mine, its in zip(chosen, rates, strict=True))
            assert (other.paired.wins, other.paired.runs, other.paired.by) == (wins, 19, "cheaper")


def test_where_no_goal_is_met_nothing_is_compared_with_an_answer(machines: dict[str, str]) -> None:
    missed = planned(machines, goal_of(samples=1e12, deadline="1h"), price=["bare=2/h"], workers=[1, 2])
    assert not missed.feasible
    assert len(missed.candidates) > 2
    assert all(its.paired is None for its in missed.candidates)
    columns = {column.title for table in plan_tables(missed) for column in brief(table).columns}
    assert "Answer better in (paired runs)" not in columns


def test_a_purchase_is_told_as_a_sum_beside_the_share_of_it(machines: dict[str, str]) -> None:
    answer = planned(machines, goal_of(samples=1e7, deadline="45 min"), price=["bare=BUY:4000USD,years:4,power:0.5kW"], workers="1..8")
    best, text = by_name(answer)["bare"].best, by_name(answer)["bare"].text
    assert best == answer.chosen
    said = re.search(r"([\d,]+) x \$4,000 = \$([\d,]+) to buy; \$([\d.]+) is the share of ([\d.]+) min by the terms", text)
    assert said is not None, text
    assert int(said[1]) == best.nodes
    assert int(said[2].replace(",", "")) == 4000 * best.nodes
    assert float(said[3]) == pytest.approx(best.cost_usd.mean, rel=5e-3)
    assert float(said[4]) == pytest.approx(best.time_s.mean / 60, rel=1e-4)
    assert said[0] in " ".join(answer.sentences)
    assert "to buy" not in by_name(answer)["eight"].text


def test_what_costs_nothing_is_equal_and_no_multiple(machines: dict[str, str]) -> None:
    free = planned(machines, goal_of(samples=1e6, deadline="1h"), price=["bare=0/h"], workers=[1, 2])
    assert by_name(free)["bare"].text == "the answer"
    assert "costs nothing" in by_name(free)["eight"].text
    assert pareto_figure(free) is not None
    alone = planned({"bare": machines["bare"]}, goal_of(samples=1e6, deadline="1h"), price=["bare=0/h"], workers=[1, 2])
    assert alone.chosen.cost_usd.mean == 0
    assert pareto_figure(alone) is None  # nothing is drawn where a logarithmic axis has no place for it


def test_parts_of_a_step_that_are_nearly_as_long_are_a_balance() -> None:
    from simulator.program.port_names import Owner, PortKind, PortName
    from simulator.results.bottleneck import bottleneck

    scenario = paceline.load("ring")
    busiest = PortName(PortKind.NODE_OUT, Owner("node", 0))
    use = Utilisation(devices=0.5, links=0.4, servers=0.0, busiest_link=0.5, busiest_link_name=str(busiest), busiest_server=0.0)
    near = bottleneck(scenario, Breakdown(input=0.0, compute=0.49, exposed_communication=0.46, waiting=0.05, apply=0.0), use, busiest)
    assert isinstance(near, Bottleneck)
    assert (near.name, near.balance, near.label) == ("compute", "network", "compute and communication")
    assert near.text.startswith("Compute and communication limit together (49% and 46% of a step)")
    far = bottleneck(scenario, Breakdown(input=0.0, compute=0.6, exposed_communication=0.4, waiting=0.0, apply=0.0), use, busiest)
    assert (far.name, far.balance, far.label) == ("compute", None, "compute")
    full = use.model_copy(update={"busiest_link": 0.9})
    assert (
        bottleneck(scenario, Breakdown(input=0.0, compute=0.5, exposed_communication=0.5, waiting=0.0, apply=0.0), full, busiest).balance
        is None
    )


def test_the_page_has_a_line_for_each_cluster_and_machines_in_each_table(soon: Plan) -> None:
    grids = {table.name: brief(table) for table in plan_tables(soon)}
    names = [column.title for column in grids["plan-clusters"].columns]
    rows = [dict(zip(names, row, strict=True)) for row in grids["plan-clusters"].rows]
    assert [Path(str(row["Cluster"])).stem for row in rows] == ["bare", "slow", "eight"]
    assert (rows[2]["Nodes"], rows[2]["Devices of each"]) == (1, 8)
    assert "Scaling" not in names  # all rows agree: it stands in the title
    assert grids["plan-clusters"].title == "Each cluster, weak scaling"
    assert str(rows[1]["Comparison, or why not"]).startswith("too slow")
    for name in ("plan-candidates", "plan-workers", "plan-improvements"):
        assert "Machines" in [column.title for column in grids[name].columns]
