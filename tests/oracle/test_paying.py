"""What machines cost in each way to pay, and when paying in advance pays, against sums worked out by hand."""

from __future__ import annotations

import math
import re
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scenarios import scenario_table

import paceline
from paceline.planning.answer import Payment, Plan, read_plan
from paceline.planning.tables import plan_tables
from simulator import simulate
from simulator.base.errors import InputError, PriceWarning, ResultsError, ScenarioError
from simulator.base.files import with_checksum, without_checksum
from simulator.catalogue.loading import scenario_from_table
from simulator.results.cost import affordable_s, capital_usd, committed_usd, cost_of_samples, running_usd_per_hour, usd_of, usd_per_hour
from simulator.scenario import Scenario
from simulator.spec.figures import Estimate
from simulator.spec.paying import Price
from simulator.spec.prices import price_of_text

HOUR_S = 3600.0
YEAR_H = 8766.0
MONTH_H = 730.5
STEP_S = 3e-3 + 10 * 0.3e-3 + 0.5e-3
RING = {"kind": "multi-worker-mirrored", "workers": 2}
NO_NETWORK = {"bandwidth": "1000 Tbit/s", "latency": "0 s"}
BOUGHT = {
    "name": "bought", "purchase_usd": 90_000.0, "share_in_use": 0.5,
    "owned": {"years": 3, "residual_usd": 9_000, "power": "5 kW", "pue": 1.4, "usd_per_kwh": 0.2,
              "hosting_usd_per_month": 300, "overhead_per_year": 0.1},
}  # fmt: skip
RESERVED = {"name": "reserved", "reserved": {"years": 1, "upfront_usd": 8766.0, "usd_per_hour": 1.0}, "share_in_use": 0.8}
SPOT = {"name": "spot", "usd_per_node_hour": 1.0, "preemption": {"mtbf": "20 h", "replacement": "10 min"}}
DEMAND = {"name": "on demand", "usd_per_node_hour": 4.0}


def table(price: dict[str, Any], *offers: dict[str, Any], job: dict[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    """Workers that all take as long, without a network."""
    found = scenario_table(strategy=RING, cluster={"inter_node": NO_NETWORK, "price": price, "offers": list(offers), **cluster})
    found["run"] = {**found["run"], "replications": 19}
    return found if job is None else {**found, "job": job}


def scenario(price: dict[str, Any], *offers: dict[str, Any], **parts: Any) -> Scenario:
    return scenario_from_table(table(price, *offers, **parts), "test")


# -- the four figures of a price ----------------------------------------------------------------


def test_an_hour_of_a_bought_machine_is_its_depreciation_its_standing_costs_and_its_electricity() -> None:
    price = Price.model_validate(BOUGHT)
    depreciation = (90_000 - 9_000) / (3 * YEAR_H * 0.5)
    standing = (300 * 12 + 0.1 * 90_000) / YEAR_H
    electricity = 5 * 1.4 * 0.2
    assert price.usd_per_node_hour == pytest.approx(depreciation + standing / 0.5 + electricity, rel=1e-12)
    assert (price.costs.capital_usd, price.committed_usd, price.costs.years) == (90_000, 90_000, 3)
    assert price.costs.standing_usd_per_hour == pytest.approx(standing, rel=1e-12)
    assert price.costs.running_usd_per_hour == pytest.approx(electricity, rel=1e-12)
    assert price.running_usd_per_hour_in_use == pytest.approx(standing / 0.5 + electricity, rel=1e-12)
    assert Price.model_validate(price.model_dump(mode="json")) == price
    assert "usd_per_node_hour" not in price.model_dump(mode="json"), "which follows from the others"


def test_an_hour_of_a_reserved_machine_is_its_term_over_the_hours_in_use() -> None:
    price = Price.model_validate(RESERVED)
    assert price.usd_per_node_hour == pytest.approx((8766 / YEAR_H + 1.0) / 0.8, rel=1e-12)
    assert (price.costs.capital_usd, price.committed_usd) == (8766.0, 8766.0 + YEAR_H)
    assert price.costs.running_usd_per_hour == 0.0


def test_the_option_and_the_table_are_the_same_price() -> None:
    typed = price_of_text(
        "BUY:90000USD,years:3,residual:9000USD,power:5kW,pue:1.4,electricity:0.2USD/kWh,hosting:300USD/month,overhead:0.1,use:0.5"
    )
    written = Price.model_validate(BOUGHT)
    assert typed.usd_per_node_hour == written.usd_per_node_hour
    assert typed.owned == written.owned
    assert typed.terms == written.worked_out_in_words
    # the formula that is said gives the price again
    said = written.formula.replace(",", "").replace(" USD/kWh", "").replace(" USD", "").replace(" years", "").replace(" kW", "")
    assert eval(said.replace(" x ", "*").replace(" h)", ")").replace(" h*", "*")) == pytest.approx(written.usd_per_node_hour, rel=1e-9)  # noqa: S307


def test_terms_of_another_purchase_do_not_hold_for_a_changed_one() -> None:
    with pytest.warns(PriceWarning):
        typed = paceline.load(table(DEMAND), prices={"lab": "BUY:4000USD,years:4"})
    price = paceline.load(typed, {"cluster.price.owned.years": 8}).cluster.price
    assert price is not None
    assert price.usd_per_node_hour == pytest.approx(4000 / (8 * YEAR_H))
    assert all(name in price.said for name in ("4,000 USD", "8 years", "assumed"))
    rented = paceline.load(typed, {"cluster.price.usd_per_node_hour": 3.0}).cluster.price
    assert rented == Price(usd_per_node_hour=3.0)


def test_all_nodes_cost_their_number_times_one() -> None:
    its = scenario(BOUGHT)
    price = its.cluster.price
    assert price is not None
    assert usd_per_hour(its) == pytest.approx(2 * price.usd_per_node_hour)
    assert (capital_usd(its), committed_usd(its)) == (180_000, 180_000)
    running = running_usd_per_hour(its)
    assert running is not None
    assert running + 2 * (90_000 - 9_000) / (3 * YEAR_H * 0.5) == pytest.approx(usd_per_hour(its))
    assert (capital_usd(scenario(DEMAND)), committed_usd(scenario(DEMAND)), running_usd_per_hour(scenario(DEMAND))) == (0.0, None, 8.0)


# -- billing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "time_s", "own_startup_s", "billed_s"),
    [
        ({}, 100.0, 0.0, 100.0),
        ({"billing_step": "1 h"}, 3600.0, 0.0, 3600.0),
        ({"billing_step": "1 h"}, 3601.0, 0.0, 7200.0),
        ({"billing_minimum": "10 min"}, 100.0, 0.0, 600.0),
        ({"billing_minimum": "10 min", "billing_step": "7 min"}, 430.0, 0.0, 840.0),
        ({"startup": "3 min"}, 100.0, 0.0, 280.0),
        ({"startup": "3 min"}, 100.0, 60.0, 220.0),  # a job's own start-up is a part of it
        ({"startup": "3 min"}, 400.0, 300.0, 400.0),
        ({"startup": "3 min", "billing_step": "1 min"}, 100.0, 0.0, 300.0),
    ],
)
def test_time_is_billed_by_its_terms(terms: dict[str, str], time_s: float, own_startup_s: float, billed_s: float) -> None:
    assert Price.model_validate({**DEMAND, **terms}).billed_s(time_s, own_startup_s) == pytest.approx(billed_s)


def test_a_training_is_billed_for_each_node_in_steps() -> None:
    its = scenario({**DEMAND, "billing_step": "1 h"})
    result = simulate(its)
    samples = 1.5 * HOUR_S * result.throughput_samples_per_s.mean
    cost = cost_of_samples(result, samples)
    assert cost is not None
    assert cost.mean == pytest.approx(2 * 2 * 4.0)  # two nodes, two hours each
    plain = cost_of_samples(simulate(scenario(DEMAND)), samples)
    assert plain is not None
    assert plain.mean == pytest.approx(2 * 1.5 * 4.0)


def test_a_job_s_own_start_up_is_not_billed_twice() -> None:
    job = {"samples": 1_000_000, "startup": "2 min", "tracing": "0 s"}
    times = {"job": job}
    plain, with_startup = simulate(scenario(DEMAND, **times)).job, simulate(scenario({**DEMAND, "startup": "5 min"}, **times)).job
    assert plain is not None
    assert with_startup is not None
    assert with_startup.time_s == plain.time_s
    assert with_startup.cost_usd is not None
    assert plain.cost_usd is not None
    assert with_startup.cost_usd.mean - plain.cost_usd.mean == pytest.approx(2 * 4.0 * 3 / 60)


@settings(deadline=None)
@given(
    budget=st.floats(0.01, 1e4), step=st.sampled_from([0.0, 1.0, 60.0, 3600.0]),
    minimum=st.sampled_from([0.0, 60.0, 7200.0]), startup=st.sampled_from([0.0, 90.0]),
)  # fmt: skip
def test_what_a_budget_affords_is_the_longest_that_costs_no_more(budget: float, step: float, minimum: float, startup: float) -> None:
    its = scenario({**DEMAND, "billing_step_s": step, "billing_minimum_s": minimum, "startup_s": startup})
    longest_s = affordable_s(its, budget)
    if longest_s > 0:
        assert (usd_of(its, longest_s) or 0.0) <= budget * (1 + 1e-6)
    assert (usd_of(its, longest_s * (1 + 1e-5) + 1e-3) or math.inf) > budget * (1 - 1e-6)


def test_each_lease_of_a_node_that_comes_back_is_billed_by_itself() -> None:
    """Node 1 is there for 90 min, away for an hour, and there again for 30 min: with hours begun, 2 and 1 of them; the other 3 h."""
    its = scenario({**DEMAND, "billing_step": "1 h"})
    away = [(1, 1.5 * HOUR_S, 2.5 * HOUR_S)]
    assert usd_of(its, 3 * HOUR_S, away) == pytest.approx((3 + 2 + 1) * 4.0)
    assert usd_of(scenario(DEMAND), 3 * HOUR_S, away) == pytest.approx((3 + 2) * 4.0)
    assert usd_of(scenario({**DEMAND, "startup": "6 min"}), 3 * HOUR_S, away) == pytest.approx((3.1 + 1.6 + 0.6) * 4.0)


# -- a spot price -------------------------------------------------------------------------------


def test_a_spot_price_is_lived_through_as_the_same_preemption_of_the_job() -> None:
    """Whose times are held against closed forms in test_preemption.py."""
    job = {"samples": 20_000_000, "startup": "30 s", "tracing": "0 s", "checkpoint": {"every": "10 min", "size": "1 MB", "write": "1 GB/s"}}
    at_spot = simulate(scenario(SPOT, job=job)).job
    faults = {"preemption": SPOT["preemption"]}
    as_fault = simulate(scenario({"usd_per_node_hour": 1.0}, job={**job, "faults": faults})).job
    untaken = simulate(scenario({"usd_per_node_hour": 1.0}, job=job)).job
    assert at_spot == as_fault
    assert at_spot is not None
    assert untaken is not None
    assert at_spot.faults > 0
    assert at_spot.time_s.mean > untaken.time_s.mean


def test_a_spot_price_without_a_job_warns_that_preemptions_are_not_counted() -> None:
    def codes(its: Scenario) -> set[str]:
        return {one.code for one in simulate(its).warnings}

    job = {"samples": 1000, "startup": "0 s", "tracing": "0 s"}
    assert "spot-without-job" in codes(scenario(SPOT))
    assert "spot-without-job" not in codes(scenario(SPOT, job=job)) | codes(scenario(DEMAND))
    # what is said of prices is said of jobs too
    assert "implausible" in codes(scenario({"usd_per_node_hour": 5000.0}, job=job))


# -- plans --------------------------------------------------------------------------------------

JOB = {"samples": 40_000_000, "startup": "0 s", "tracing": "0 s", "checkpoint": {"every": "10 min", "size": "1 MB", "write": "1 GB/s"}}


def planned(price: dict[str, Any], *offers: dict[str, Any], job: dict[str, Any] | None = JOB, **options: Any) -> Plan:
    cluster = options.pop("cluster", {})
    options = {"samples": 40_000_000, "deadline": "40 h", "workers": [2], "confidence": 0.9, **options}
    return paceline.plan(table(price, *offers, job=job, **cluster), jobs=1, **options)


def payment(answer: Plan, name: str) -> Payment:
    return next(its for its in answer.payments if its.name == name)


@pytest.mark.slow
def test_a_plan_chooses_the_cheapest_way_to_pay_that_reaches_the_goal() -> None:
    answer = planned(DEMAND, SPOT, RESERVED, BOUGHT)
    assert answer.feasible
    assert [its.name for its in answer.payments if its.cheapest] == ["spot"]
    assert answer.chosen.result.scenario.cluster.price == Price.model_validate(SPOT)
    costs = [its.best.cost_usd.mean for its in answer.payments if its.best is not None and its.best.cost_usd is not None]
    assert costs == sorted(costs)
    assert len(costs) == 4
    time_s = payment(answer, "on demand").best.time_s.mean  # type: ignore[union-attr]
    assert payment(answer, "on demand").best.cost_usd.mean == pytest.approx(2 * 4.0 * time_s / HOUR_S)  # type: ignore[union-attr]
    # what is rented by the hour alone takes a deadline that preemptions miss
    slow = planned(DEMAND, {**SPOT, "preemption": {"mtbf": "3 h", "replacement": "3 h"}}, deadline=time_s * 1.05)
    assert [its.name for its in slow.payments if its.cheapest] == ["on demand"]
    assert slow.chosen.result.scenario.cluster.price == Price.model_validate(DEMAND)
    assert payment(slow, "spot").best.meets is False  # type: ignore[union-attr]


def test_where_speed_decides_the_cheapest_way_to_pay_is_still_told() -> None:
    answer = planned(DEMAND, RESERVED, SPOT, prefer="fastest")
    assert [its.name for its in answer.payments if its.cheapest] == ["spot"]
    assert answer.payments[0].name == "spot"
    its = answer.chosen.result.scenario.cluster.price
    assert its is not None
    assert its.called == "reserved", "as fast as on demand, and cheaper"


def test_a_spot_price_without_a_job_is_refused_with_the_reason() -> None:
    answer = planned(DEMAND, SPOT, job=None)
    assert payment(answer, "spot").best is None
    assert payment(answer, "spot").text.endswith("[job]")
    (shown,) = (one for one in plan_tables(answer) if one.name == "plan-payments")
    assert shown.to_frame().set_index("payment")["text"]["spot"].endswith("[job]")
    assert any("[job]" in one.text for one in answer.refused)
    with_rate = paceline.plan(table(DEMAND, SPOT, job=JOB), target_throughput=100, workers=[2], jobs=1, confidence=0.5)
    assert payment(with_rate, "spot").best is None
    assert payment(with_rate, "spot").text.endswith("[job]")


def test_paying_in_advance_pays_after_the_months_of_the_closed_form() -> None:
    """Everything is constant: k trainings of T hours on two nodes."""
    answer = planned(DEMAND, BOUGHT, trainings_per_month=20)
    (found,) = answer.break_even
    hours = 40_000_000 / (20 / STEP_S) / HOUR_S
    assert answer.payments[0].best.time_s.mean / HOUR_S == pytest.approx(hours, rel=1e-3)  # type: ignore[union-attr]
    hours = answer.payments[0].best.time_s.mean / HOUR_S  # type: ignore[union-attr]
    rented = 20 * hours * 2 * 4.0
    own = 2 * (300 * 12 + 9_000) / YEAR_H * MONTH_H + 20 * hours * 2 * 1.4
    assert found.rented_usd_per_month.mean == pytest.approx(rented)
    assert found.own_usd_per_month.mean == pytest.approx(own)
    assert rented < own, "so little work never pays the hosting"
    assert (found.months, found.months_low, found.months_high) == (None, None, None)
    assert all(name in found.text for name in ("bought", "on demand", "36 months"))
    assert found.share_in_use == pytest.approx(20 * hours / MONTH_H)

    dear = planned({**DEMAND, "usd_per_node_hour": 100.0}, BOUGHT, trainings_per_month=20)
    (found,) = dear.break_even
    expected = 180_000 / (20 * hours * 2 * 100.0 - own)
    assert found.months == pytest.approx(expected)
    assert found.months_low == pytest.approx(expected)
    assert f"{expected:.3g} months" in found.text
    # above this share an hour in use costs what an hour rented does
    fixed = 2 * ((90_000 - 9_000) / 3 + 300 * 12 + 9_000) / YEAR_H
    assert found.pays_above == pytest.approx(fixed / (2 * 100.0 - 2 * 1.4))
    at_it = Price.model_validate({**BOUGHT, "share_in_use": found.pays_above})
    assert at_it.usd_per_node_hour == pytest.approx(100.0)


def test_a_reserved_term_pays_above_its_threshold_of_use() -> None:
    answer = planned(DEMAND, RESERVED)
    (found,) = answer.break_even
    assert found.pays_above == pytest.approx((8766 / YEAR_H + 1.0) / 4.0)
    assert found.share_in_use == pytest.approx(0.8)
    assert found.months == pytest.approx(2 * 8766.0 / (0.8 * MONTH_H * 2 * 4.0 - 2 * MONTH_H))
    low = planned(DEMAND, {**RESERVED, "share_in_use": 0.45})
    assert low.break_even[0].months is None, "a term of a year is over before"


def test_the_interval_of_the_months_is_that_of_the_time() -> None:
    parts = table({**DEMAND, "usd_per_node_hour": 100.0}, BOUGHT, job=JOB)
    parts["workload"] = {**parts["workload"], "run_to_run_cv": 0.2}
    answer = paceline.plan(parts, samples=4e7, deadline="40 h", workers=[2], trainings_per_month=20, jobs=1, confidence=0.5)
    (found,) = answer.break_even
    its = payment(answer, "bought").best
    other = payment(answer, "on demand").best
    assert its is not None
    assert other is not None
    for months, end in ((found.months_low, "high"), (found.months, "mean"), (found.months_high, "low")):
        rent = 20 * getattr(other.cost_usd, end)
        own = 2 * (300 * 12 + 9_000) / YEAR_H * MONTH_H + 20 * getattr(its.time_s, end) / HOUR_S * 2 * 1.4
        assert months == pytest.approx(180_000 / (rent - own))
    assert found.months_low is not None
    assert found.months is not None
    assert found.months_high is not None
    assert found.months_low < found.months < found.months_high


def test_an_upgrade_pays_back_from_the_hours_that_it_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices twice as fast take half the time, and the update of the variables is on them too."""
    upgrades = [{"name": "twice", "usd_per_node": 1000.0, "device_speed": 2.0, "source": "a shop", "date": "2026-11-02"}]
    answer = planned({**DEMAND, "name": ""}, cluster={"upgrades": upgrades}, job=None, trainings_per_month=10)
    found = next(its for its in answer.improvements if its.name == "twice")
    assert found.gain == pytest.approx(1.0, rel=1e-5)
    hours = 10 * answer.chosen.time_s.mean / HOUR_S  # type: ignore[union-attr]
    assert found.usd == 2000.0
    assert found.months == pytest.approx(2000.0 / (2 * 4.0 * hours * 0.5), rel=1e-5)
    assert all(name in found.text for name in ("$1,000", "a shop", "2026-11-02"))
    none = [{"name": "network", "usd_per_node": 1000.0, "changes": {"inter_node.bandwidth": "2000 Tbit/s"}}]
    useless = next(its for its in planned(DEMAND, cluster={"upgrades": none}).improvements if its.name == "network")
    assert useless.months is None
    for device_speed in (0.5, 1e-6):
        slower = [{"name": "slower", "usd_per_node": 1000.0, "device_speed": device_speed}]
        harmful = next(its for its in planned(DEMAND, cluster={"upgrades": slower}).improvements if its.name == "slower")
        assert harmful.gain == pytest.approx(device_speed - 1, rel=1e-3)
        assert (harmful.months, harmful.months_low, harmful.months_high) == (None, None, None)
        assert "never pays" in harmful.text
    monkeypatch.setattr(sys.modules["paceline.planning.improvements"], "_ratio", lambda *_: Estimate(mean=0.5, low=0.0, high=0.9))
    stopping = next(its for its in planned(DEMAND, cluster={"upgrades": slower}).improvements if its.name == "slower")
    assert (stopping.months, stopping.months_low, stopping.months_high) == (None, None, None)


def test_a_plan_with_ways_to_pay_is_read_again_and_has_its_tables(tmp_path) -> None:
    answer = planned(DEMAND, SPOT, RESERVED)
    file = tmp_path / "a.plan.json"
    file.write_text(answer.to_json() + "\n")
    assert read_plan(file) == answer
    tables = {one.name: one for one in plan_tables(answer)}
    assert [row[0] for row in tables["plan-payments"].rows] == [its.name for its in answer.payments]
    assert len(tables["plan-break-even"].rows) == 2
    plain = planned({**DEMAND, "name": ""})
    assert "payments" not in plain.to_json()
    assert not {"plan-payments", "plan-break-even"} & {one.name for one in plan_tables(plain)}


def test_a_plan_whose_scenario_was_edited_is_refused_wherever_it_stands(tmp_path) -> None:
    """As of results files, whoever makes the checksum anew."""
    answer = planned(DEMAND, RESERVED, workers=[1, 2])
    file, whole = tmp_path / "a.plan.json", without_checksum(answer.to_json().encode()).decode()
    latencies = [match.span(1) for match in re.finditer(r'"inter_node":\{"bandwidth_bytes_per_s":[^,]+,"latency_s":([^,}]+)', whole)]
    assert len(latencies) == len(re.findall('"scenario_hash":', whole)) > 4
    for begin, end in latencies:
        file.write_text(with_checksum(f"{whole[:begin]}0.123{whole[end:]}") + "\n")
        with pytest.raises(ResultsError, match="scenario_hash"):
            read_plan(file)
    file.write_text(with_checksum(whole) + "\n")
    assert read_plan(file) == answer


@pytest.mark.slow
def test_names_are_escaped_in_the_report(tmp_path) -> None:
    answer = planned(DEMAND, {**RESERVED, "name": "<b>term</b>"})
    page = tmp_path / "a.html"
    paceline.report(answer, page, jobs=1)
    text = page.read_text()
    assert "figure-paying" in text
    assert "&lt;b&gt;term&lt;/b&gt;" in text
    assert "<b>term" not in text


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("price", "offers", "names"),
    [
        ({"terms": "on demand"}, [], ("cluster.price: ", "usd_per_node_hour", "purchase_usd", "owned")),
        ({"owned": {"years": 3}}, [], ("cluster.price: ", "owned", "purchase_usd")),
        ({**BOUGHT, "usd_per_node_hour": 3.0}, [], ("cluster.price: ", "usd_per_node_hour (3)", "10.4349", "owned")),
        ({**DEMAND, "share_in_use": 0.5}, [], ("cluster.price: ", "share_in_use")),
        ({**BOUGHT, "billing_step": "1 h"}, [], ("cluster.price: ", "billing_step", "bought")),
        ({**RESERVED, "startup": "1 min"}, [], ("cluster.price: ", "startup", "reserved")),
        ({**RESERVED, "purchase_usd": 1.0}, [], ("cluster.price: ", "reserved", "purchase_usd")),
        ({"purchase_usd": 10, "owned": {"years": 3, "residual_usd": 11}}, [], ("owned.residual_usd (11)", "purchase_usd (10)")),
        ({"purchase_usd": 10, "owned": {"years": 3, "pue": 1.4}}, [], ("cluster.price.owned: ", "usd_per_kwh", "pue", "power")),
        ({"purchase_usd": 10, "owned": {"years": 3, "power": 500}}, [], ("cluster.price.owned.power: 500", '"5 kW"')),
        ({"purchase_usd": 10, "owned": {"years": 0}}, [], ("cluster.price.owned.years: 0",)),
        (DEMAND, [DEMAND], ("'on demand'",)),
        (
            {"purchase_usd": 10, "owned": {"years": 3, "overhead_per_year": 8}},
            [],
            ("cluster.price.owned.overhead_per_year: 8", "at most 1"),
        ),
        ({**DEMAND, "date": "01/02/2026"}, [], ("cluster.price.date: ", "has 01/02/2026", "ambiguous")),
        ({**DEMAND, "date": "1.2.26"}, [], ("cluster.price.date: ", "has 1.2.26")),
        ({**DEMAND, "date": "as of 2026/02/01"}, [], ("cluster.price.date: ", "has 2026/02/01")),
        ({**DEMAND, "date": "soon"}, [], ("cluster.price.date: 'soon'", "1990", "2100")),
        (DEMAND, [{"name": "b", "usd_per_node_hour": 1, "date": "2026-02-30"}], ("cluster.offers.0.date: '2026-02-30'",)),
    ],
)
def test_a_price_that_cannot_be_is_one_line(price: dict[str, Any], offers: list[dict[str, Any]], names: tuple[str, ...]) -> None:
    with pytest.raises(ScenarioError) as refused:
        scenario(price, *offers)
    assert all(name in str(refused.value) for name in names), refused.value
    assert "\n" not in str(refused.value)


def test_offers_need_a_price_and_servers_none_of_their_own_preemption() -> None:
    bare = table(DEMAND, SPOT)
    bare["cluster"].pop("price")
    with pytest.raises(ScenarioError, match=r"offers.*price"):
        scenario_from_table(bare, "test")
    with pytest.raises(ScenarioError, match=r"server_price\.preemption: leave it out; price\.preemption"):
        scenario_from_table(table(DEMAND, server_price={**SPOT, "name": "servers"}), "test")


def test_how_often_nodes_are_taken_stands_in_one_place() -> None:
    faults = {"preemption": {"mtbf": "5 h", "replacement": "1 min"}}
    with pytest.raises(ScenarioError, match=r"cluster\.price\.preemption.*job\.faults\.preemption"):
        scenario(SPOT, job={"samples": 1000, "faults": faults})


def test_upgrades_and_trainings_that_cannot_be_are_refused_before_anything_is_simulated() -> None:
    wrong = [{"name": "NIC", "usd_per_node": 1.0, "changes": {"inter_node.bandwith": "1 GB/s"}}]
    with pytest.raises(ScenarioError) as refused:
        planned(DEMAND, cluster={"upgrades": wrong})
    assert "cluster.upgrades.0 (NIC): " in str(refused.value)
    assert "bandwidth" in str(refused.value)
    with pytest.raises(ScenarioError, match=r"cluster\.upgrades\.0\b"):
        planned(DEMAND, cluster={"upgrades": [{"name": "NIC", "usd_per_node": 1.0}]})
    with pytest.raises(InputError, match=r"`trainings_per_month` 0\.0"):
        planned(DEMAND, trainings_per_month=0.0)
    with pytest.raises(InputError, match="trainings_per_month"):
        paceline.plan(table(DEMAND), target_throughput=10, trainings_per_month=2, jobs=1)


# -- one calculation for headline, months and upgrades -------------------------------------------


def training_hours(answer: Plan) -> float:
    assert answer.chosen.time_s is not None
    return answer.chosen.time_s.mean / HOUR_S


@pytest.mark.slow
@settings(deadline=None, max_examples=12)
@given(
    often=st.floats(1.0, 800.0), rent=st.floats(0.5, 60.0), purchase=st.floats(1e4, 3e5), residual=st.sampled_from([0.0, 0.1, 0.6, 0.9]),
    years=st.integers(1, 6),
)  # fmt: skip
def test_what_costs_less_for_a_training_is_what_pays_before_it_is_worn_out(
    often: float, rent: float, purchase: float, residual: float, years: int
) -> None:
    bought = {**BOUGHT, "purchase_usd": purchase, "owned": {**BOUGHT["owned"], "residual_usd": residual * purchase, "years": years}}
    answer = planned({**DEMAND, "usd_per_node_hour": rent}, bought, trainings_per_month=often)
    (pair,) = answer.break_even
    own, rented = payment(answer, "bought").best, payment(answer, "on demand").best
    assert own is not None
    assert own.cost_usd is not None
    assert own.time_s is not None
    assert own.usd_per_hour is not None
    assert rented is not None
    assert rented.cost_usd is not None
    assert (own.cost_usd.mean <= rented.cost_usd.mean) == (pair.months is not None)
    # the sum closes: hours at the price of an hour in use, for which no more hours are taken than a month has
    hours = own.time_s.mean / HOUR_S
    assert own.cost_usd.mean == pytest.approx(own.usd_per_hour * hours, rel=1e-6)
    assert pair.share_in_use <= 1 + 1e-9
    assert pair.sets_of_nodes == math.ceil(often * hours / MONTH_H - 1e-9)
    fixed = 2 * pair.sets_of_nodes * ((1 - residual) * purchase / years + 300 * 12 + 0.1 * purchase) / 12
    assert own.cost_usd.mean * often == pytest.approx(fixed + often * hours * 2 * 1.4, rel=1e-6)
    for end in (pair.months_low, pair.months_high):
        assert end is None or 0 <= end <= 12 * years


def test_a_month_has_no_more_hours_than_a_month() -> None:
    """Nodes that are in use at all hours are so however slow a run is: the months have no interval, and no rental is beyond all hours."""
    bought = {name: value for name, value in BOUGHT.items() if name != "share_in_use"}
    answer = planned({**DEMAND, "usd_per_node_hour": 20.0}, bought)
    (pair,) = answer.break_even
    assert (pair.months_low, pair.months_high) == (pair.months, pair.months)
    assert pair.rented_usd_per_month.high == pytest.approx(2 * 20.0 * MONTH_H, rel=1e-3)
    assert pair.share_in_use == 1.0


def test_more_work_than_a_month_has_hours_takes_more_sets_of_nodes() -> None:
    reserved = {**RESERVED, "share_in_use": 1.0}
    answer = planned(DEMAND, reserved, trainings_per_month=1)
    hours = training_hours(answer)
    often = 2.76 * MONTH_H / hours
    (pair,) = planned(DEMAND, reserved, trainings_per_month=often).break_even
    assert pair.sets_of_nodes == 3
    assert pair.capital_usd == 3 * 2 * 8766.0
    own, rented = 3 * 2 * 1.0 * MONTH_H, often * hours * 2 * 4.0
    assert pair.own_usd_per_month.mean == pytest.approx(own)
    assert pair.months == pytest.approx(3 * 2 * 8766.0 / (rented - own))
    assert "3 sets of nodes" in pair.text


def test_an_upgrade_of_reserved_nodes_saves_nothing_of_their_bill_unless_other_work_fills_the_hours() -> None:
    upgrade = {"name": "fast", "usd_per_node": 10.0, "device_speed": 2.0}
    counted = planned({**RESERVED, "share_in_use": 0.5}, trainings_per_month=4, cluster={"upgrades": [upgrade]})
    filled = planned({**RESERVED, "share_in_use": 0.5}, cluster={"upgrades": [upgrade]})
    of_counted, of_filled = (next(one for one in plan.improvements if one.name == "fast") for plan in (counted, filled))
    assert of_counted.months is None
    assert "unless other work fills" in of_counted.text
    assert of_filled.months is not None
