"""Alternatives compared as decisions: what they share cancels, what they do not makes a decision uncertain, and 19 runs show no more."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.scenarios import scenario_table

import paceline
from paceline.comparing import drawn_rates, fastest, stakes
from paceline.planning import Plan
from paceline.planning.sentences import answer_of_plan
from paceline.planning.tables import plan_tables
from simulator import simulate
from simulator.results.results import Result

RING = {"kind": "multi-worker-mirrored", "workers": 4}
JITTER = {"jitter": {"kind": "lognormal", "sigma": 0.2}, "run_to_run_cv": 0.05}
RUN = {"replications": 19}


@pytest.fixture
def results(scenario):
    def build(faster: float, other: str = "lab", compute: float = 0.0, communication: float = 0.3) -> list[Result]:
        off = {"compute": {"at": compute}, "communication": {"at": communication}}
        clusters = [("lab", 1.0), (other, faster)]
        return [
            simulate(
                scenario(
                    workload=JITTER,
                    cluster={"name": name, "inter_node": {"bandwidth": f"{rate} GB/s", "latency": "0 s"}},
                    strategy=RING,
                    run=RUN,
                    discrepancy=off,
                )
            )
            for name, rate in clusters
        ]

    return build


def test_the_best_of_constants_is_certain_but_for_what_the_runs_can_show() -> None:
    worse, better = stakes(np.array([[2.0] * 19, [1.0] * 19]), 19)
    assert (better.best, worse.best) == (0.95, pytest.approx(0.05))
    assert (better.regret, better.share, better.where_not_best) == (0.0, 0.0, None)
    assert (worse.regret, worse.share, worse.where_not_best) == (1.0, 1.0, 1.0)


def test_more_is_better_where_it_is_asked_for() -> None:
    worse, better = stakes(np.array([[1.0] * 19, [2.0] * 19]), 19, most=True)
    assert better.best == 0.95
    assert (worse.regret, worse.share) == (1.0, 0.5)


def test_equals_share_the_probability() -> None:
    one, other = stakes(np.ones((2, 19)), 19)
    assert one == other
    assert (one.best, one.regret, one.where_not_best) == (0.5, 0.0, None)


def test_a_cause_in_common_cancels(results) -> None:
    """Twice the bandwidth on a cluster of the same name is better whatever communication takes; on another it may be worse."""
    alike, apart = fastest(results(1.5)), fastest(results(1.5, "another"))
    assert alike[1].best == 0.95
    assert 0.5 < apart[1].best < 0.95
    assert apart[1].regret > alike[1].regret == 0.0


def test_the_model_counts_as_a_normal_number_of_its_own(results) -> None:
    """Chance is small beside causes of different clusters: P = Phi(gap / spread of the difference), of each at its ends."""
    ours, theirs = results(1.3, "another", communication=0.05)
    rates = drawn_rates([ours, theirs], [its.throughput_of_each_replication for its in (ours, theirs)], [[1.0] * 19] * 2)
    gap = np.log(rates[1] / rates[0])
    sd = math.hypot(*(part.slower for its in (ours, theirs) for part in its.discrepancy.parts))
    paired = np.log(np.array(theirs.throughput_of_each_replication) / np.array(ours.throughput_of_each_replication))
    assert gap.mean() == pytest.approx(paired.mean(), abs=0.005)
    assert gap.std() == pytest.approx(math.hypot(sd, paired.std()), rel=0.05)


def test_runs_that_share_no_draws_are_paired_by_chance(scenario) -> None:
    one, other = (simulate(scenario(workload=JITTER, strategy=RING, run={**RUN, "seed": seed})) for seed in (1, 2))
    rates = [its.throughput_of_each_replication for its in (one, other)]
    found = drawn_rates([one, other], rates, [[1.0] * 19] * 2)
    assert len(set(zip(*found.tolist(), strict=True))) > 19 * 10  # most of all pairs, not the 19 of the same number


def test_of_a_job_the_model_is_off_by_its_steps_alone(results) -> None:
    ours, theirs = results(1.5, "another")
    rates = [its.throughput_of_each_replication for its in (ours, theirs)]
    whole, none = (drawn_rates([ours, theirs], rates, [[share] * 19] * 2) for share in (1.0, 0.0))
    assert sorted({*none[0]}) == pytest.approx(sorted(rates[0]))
    sd = ours.discrepancy.relative_error.sd
    assert np.log(whole[0]).std() == pytest.approx(math.hypot(np.log(none[0]).std(), sd), rel=0.05)


def test_the_least_regret_is_recommended_beside_what_is_the_best_more_often() -> None:
    """At a spot price that saves 4% most runs cost less, and those in which a node is taken begin anew."""
    price = {"name": "on demand", "usd_per_node_hour": 1.0}
    spot = {"name": "spot", "usd_per_node_hour": 0.96, "preemption": {"mtbf": "100 h", "replacement": "10 min"}}
    table = scenario_table(strategy={**RING, "workers": 2}, cluster={"price": price, "offers": [spot]}, run=RUN)
    table["job"] = {
        "samples": 108e6,
        "startup": "0 s",
        "tracing": "0 s",
        "checkpoint": {"every": "100 h", "size": "1 MB", "write": "1 GB/s"},
    }
    plan = paceline.plan(table, samples=108e6, deadline="40 h", workers=[2], confidence=0.5, jobs=1)
    (other,) = plan.runners_up
    ours, theirs = plan.chosen.decision, other.decision
    assert plan.chosen.result.scenario.cluster.price.called == "on demand"
    assert ours.regret < theirs.regret
    assert ours.best < theirs.best
    assert f"{ours.best:.0%} that no alternative is cheaper; if one is, " in answer_of_plan(plan).confidence
    assert ours.best + theirs.best == pytest.approx(1.0)


@pytest.mark.slow
def test_a_plan_says_what_is_at_stake_where_chance_has_a_say() -> None:
    asked = {"samples": 1e7, "deadline": "12 h", "clusters": ["ethernet-10g", "ethernet-25g"], "workers": "2,4", "jobs": 1}
    short = {"run.steps": 5, "run.warmup_steps": 1}
    prices = {"ethernet-10g": "0.40/h", "ethernet-25g": "0.40/h"}
    plan = paceline.plan("ring", settings=short, prices=prices, **asked)
    compared = (plan.chosen, *plan.runners_up)
    stake = plan.chosen.decision
    assert stake is not None
    assert (stake.unit, stake.among, stake.runs) == ("usd", len(compared), 19)
    assert 0.05 <= stake.best <= 0.95
    assert stake.best == max(its.decision.best for its in compared)
    assert 0.0 <= stake.regret <= plan.chosen.cost_usd.mean
    assert "that no alternative is cheaper; if one is, " in answer_of_plan(plan).confidence
    assert all(its.decision is None for its in plan.candidates if its.key not in {one.key for one in compared})
    table = next(its for its in plan_tables(plan) if its.name == "plan-candidates")
    assert {"best", "regret", "regret_share"} <= {column.name for column in table.columns}
    assert Plan.model_validate_json(plan.to_json()) == plan
    few = {**asked, "clusters": ["ethernet-10g"], "confidence": 0.5}
    fewest = paceline.plan("ring", settings={**short, "run.replications": 2}, prefer="fewest-devices", **few)
    assert fewest.chosen.decision is None  # how many devices there are is no matter of chance
