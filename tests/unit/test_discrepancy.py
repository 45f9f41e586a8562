"""The discrepancy: intervals, confidences and comparisons that hold what the model is off by."""

from __future__ import annotations

import json
import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.scenarios import scenario_table

from paceline.comparing import compare
from paceline.planning.goal import confidence_of, reached_with
from simulator import Scenario, load_scenario, scenario_from_table, simulate
from simulator.base.errors import ScenarioError
from simulator.results.inadequacy import discrepancy_of, reach_of, regime_of, regimes
from simulator.results.intervals import combined, prediction_interval, widened
from simulator.results.results import Result
from simulator.spec.discrepancy import CERTAIN, Z_90, Off, Regime, between
from simulator.spec.figures import Estimate

RING = {"kind": "multi-worker-mirrored", "workers": 4}
ASYNC = {"kind": "parameter-server", "mode": "async", "workers": 4, "servers": 1}
JITTER = {"jitter": {"kind": "lognormal", "sigma": 0.2}, "run_to_run_cv": 0.05}
TERM = {"compute": {"at": 0.03, "per_doubling": 0.02}, "communication": {"at": 0.1}}
RUN = {"replications": 19}


# -- intervals ------------------------------------------------------------------------


def test_without_a_discrepancy_the_interval_of_the_replications_comes_out() -> None:
    values = np.random.default_rng(1).lognormal(3.0, 0.2, 30).tolist()
    assert prediction_interval(values, CERTAIN) == prediction_interval(values)


def test_normal_chance_and_a_normal_discrepancy_are_those_of_their_sum() -> None:
    rng = np.random.default_rng(2)
    chance, model = rng.normal(0, 0.05, 200_000), rng.normal(0, 0.12, 200_000)
    by_chance = np.quantile(np.exp(chance), [0.05, 0.95])
    told = widened(Estimate(mean=1.0, low=by_chance[0], high=by_chance[1]), Off(0.12, 0.12))
    assert (told.low, told.high) == pytest.approx(np.quantile(np.exp(chance + model), [0.05, 0.95]), rel=0.005)


def test_an_end_at_nothing_stays_there() -> None:
    assert widened(Estimate(mean=1.0, low=0.0, high=2.0), Off(0.1, 0.1)).low == 0.0
    assert widened(Estimate(mean=0.0, low=0.0, high=0.0), Off(0.1, 0.1)) == Estimate(mean=0.0, low=0.0, high=0.0)


DISTANCES = some.floats(-3, 3)


@given(one=DISTANCES, other=DISTANCES, more=some.floats(0, 1))
def test_distances_together_never_fall_where_one_rises(one: float, other: float, more: float) -> None:
    assert combined(one, 0.0) == one
    assert combined(one, other) == combined(other, one)
    assert combined(one + more, other) >= combined(one, other) - 1e-12


def test_means_stay_and_only_ends_move(scenario) -> None:
    plain = simulate(scenario(workload=JITTER, strategy=ASYNC, run=RUN))
    off = simulate(scenario(workload=JITTER, strategy=ASYNC, run=RUN, discrepancy=TERM | {"staleness": {"at": 0.1}}))
    assert plain.discrepancy is None
    for name in ("throughput_samples_per_s", "updates_per_s", "mean_step_s", "speedup", "scaling_efficiency", "mean_staleness"):
        one, other = getattr(plain, name), getattr(off, name)
        assert other.mean == one.mean
        assert other.low < one.low <= one.high < other.high, name
    for name in ("throughput_of_each_replication", "step_time_s", "breakdown_s", "staleness", "utilisation", "events"):
        assert getattr(off, name) == getattr(plain, name)
    assert off.mean_step_s.mean == off.step_time_s.mean
    assert off.mean_staleness.mean == off.staleness.mean


def test_one_replica_alone_has_none(scenario) -> None:
    assert simulate(scenario(workload=JITTER, run=RUN, discrepancy=TERM)).discrepancy is None


# -- which one ------------------------------------------------------------------------


def test_left_out_it_is_that_of_the_regime_and_no_part_of_the_hash(scenario) -> None:
    own, none = scenario(strategy=RING, discrepancy=TERM), scenario(strategy=RING)
    left_out = none.model_copy(update={"discrepancy": None})
    assert regime_of(left_out) == Regime("all-reduce", "between nodes")
    assert discrepancy_of(left_out) == regimes()[Regime("all-reduce", "between nodes")]
    assert discrepancy_of(own).compute.per_doubling == 0.02
    assert len({own.hash, none.hash, left_out.hash}) == 3
    assert "discrepancy" not in json.loads(left_out.model_dump_json())
    for each in (own, none, left_out):
        assert Scenario.model_validate_json(each.model_dump_json()) == each


@pytest.mark.parametrize(
    ("strategy", "cluster", "regime"),
    [
        (RING, {}, "all-reduce, between nodes"),
        ({**RING, "workers": 1, "replicas_per_worker": 2}, {"devices_per_node": 2}, "all-reduce, inside one node"),
        (RING, {"basis": "measured"}, "all-reduce, measured links"),
        ({**ASYNC, "mode": "sync"}, {"basis": "measured", "shared_cores": 2.0}, "synchronous servers, measured, contended"),
        (ASYNC, {"basis": "published"}, "asynchronous servers, between nodes"),
        (ASYNC, {"basis": "published", "transport": {"software": "grpc"}}, "asynchronous servers, over gRPC"),
        ({"kind": "single"}, {}, ""),
    ],
)
def test_every_regime_has_figures(scenario, strategy: dict[str, Any], cluster: dict[str, Any], regime: str) -> None:
    found = regime_of(scenario(strategy=strategy, cluster=cluster))
    assert str(found or "") == regime
    assert found is None or (found == Regime.of(regime) and regimes()[found].checked is not None)


def test_it_grows_with_doublings_beyond_what_was_calibrated(scenario) -> None:
    def doubt(workers: int, most: int) -> Any:
        load = {**JITTER, "calibrated": {"batch": [1, 20], "workers": [1, most]}}
        return simulate(scenario(workload=load, strategy={**RING, "workers": workers}, run=RUN, discrepancy=TERM)).discrepancy

    assert reach_of(scenario(strategy={**RING, "workers": 8})) == 3.0
    assert doubt(8, 8).reach == 0.0
    assert doubt(8, 1).parts[0].slower > doubt(8, 2).parts[0].slower > doubt(8, 8).parts[0].slower
    whole = math.hypot(0.03, 0.02 * 3)
    assert doubt(8, 1).parts[0].slower == pytest.approx(whole * doubt(8, 1).compute, rel=0.05)


@pytest.mark.parametrize("given", ["nothing", 3, {"compute": {"at": -1.0}}, {"comput": {"at": 0.1}}])
def test_what_it_cannot_be_is_said_in_one_line(given: Any) -> None:
    with pytest.raises(ScenarioError, match="discrepancy") as raised:
        load_scenario("ring", [("discrepancy", given)])
    assert len(raised.value.problems) == 1


# -- what an interval is made of ------------------------------------------------------


def test_luck_parameters_and_model_are_told_apart(scenario) -> None:
    draws = np.exp(np.random.default_rng(3).normal(0, 0.2, 60))
    uncertain = {"uncertainty": {"parameters": ["backward.per_sample_s"], "draws": [[2e-4 * float(one)] for one in draws]}}
    luck = simulate(scenario(workload=JITTER, strategy=RING, run=RUN)).scatter
    drawn = simulate(scenario(workload=uncertain, strategy=RING, run=RUN)).scatter
    off = simulate(scenario(workload=uncertain, strategy=RING, run=RUN, discrepancy={"compute": {"at": 0.5}})).scatter
    assert luck.shares == pytest.approx((0.0, 0.0, 1.0))
    assert drawn.shares == pytest.approx((0.0, 1.0, 0.0), abs=0.02)
    assert off.shares[0] > 0.8
    assert sum(off.shares) == pytest.approx(1.0)
    assert (off.parameters, off.luck) == (drawn.parameters, drawn.luck)


# -- comparisons ----------------------------------------------------------------------


def test_what_two_results_have_in_common_cancels(scenario) -> None:
    ours, theirs = (
        simulate(scenario(workload=JITTER, strategy={**RING, "workers": workers}, run=RUN, discrepancy={"compute": {"at": 0.1}}))
        for workers in (4, 8)
    )
    plain = [simulate(scenario(workload=JITTER, strategy={**RING, "workers": workers}, run=RUN)) for workers in (4, 8)]
    whole = ours.discrepancy.off.sd
    assert between(ours.discrepancy, ours.discrepancy) == CERTAIN
    assert between(ours.discrepancy, theirs.discrepancy).sd < 0.3 * whole
    # beside nothing all of it counts, at the ends of its 90% interval rather than at one standard deviation
    assert between(ours.discrepancy, None).sd == pytest.approx(whole, rel=1e-3)
    told, by_chance = compare(ours, theirs).ratio, compare(*plain).ratio
    assert told.mean == by_chance.mean
    assert by_chance.low / told.low < ours.throughput_samples_per_s.mean / ours.throughput_samples_per_s.low


def test_clusters_of_other_names_are_off_by_themselves(scenario) -> None:
    ours, theirs = (
        simulate(scenario(strategy=RING, cluster={"name": name}, run=RUN, discrepancy={"communication": {"at": 0.3}}))
        for name in ("one", "other")
    )
    assert between(ours.discrepancy, theirs.discrepancy).sd == pytest.approx(math.sqrt(2) * ours.discrepancy.off.sd, rel=0.1)


# -- confidences ----------------------------------------------------------------------

RATES = some.lists(some.floats(50, 200), min_size=2, max_size=40)
OFF = some.builds(Off, some.floats(0.001, 0.5), some.floats(0.001, 0.5))


@given(rates=RATES, needed=some.floats(20, 300))
def test_without_a_discrepancy_it_is_the_share_of_runs(rates: list[float], needed: float) -> None:
    assert confidence_of(rates, needed) == sum(rate >= needed * (1 - 1e-12) for rate in rates) / (len(rates) + 1)


@given(rates=RATES, off=OFF, confidence=some.floats(0.05, 0.95))
def test_what_is_reached_with_a_confidence_has_at_least_that_confidence(rates: list[float], off: Off, confidence: float) -> None:
    if confidence > len(rates) / (len(rates) + 1):
        return
    reached = reached_with(confidence, rates, off)
    assert confidence_of(rates, reached * (1 - 1e-9), off) >= confidence - 1e-6
    above = confidence_of(rates, reached * (1 + 1e-6), off)
    assert above < confidence + 1e-6 + 1 / (len(rates) + 1)


@given(rates=RATES, off=OFF, needed=some.floats(20, 300), more=some.floats(1.0, 2.0))
def test_more_is_never_surer(rates: list[float], off: Off, needed: float, more: float) -> None:
    assert 0.0 <= confidence_of(rates, needed * more, off) <= confidence_of(rates, needed, off) + 1e-12
    assert confidence_of(rates, needed, off) <= len(rates) / (len(rates) + 1)


def test_nineteen_of_nineteen_runs_and_a_doubt() -> None:
    rates, off = [100.0] * 19, Off(0.1, 0.1)
    assert confidence_of(rates, 90.0) == 0.95
    assert confidence_of(rates, 90.0, off) == pytest.approx(NormalDist().cdf(-math.log(0.9) / 0.1))
    assert reached_with(0.95, rates, off) == pytest.approx(100.0 * math.exp(-Z_90 * 0.1))
    assert confidence_of(rates, math.inf, off) == 0.0


@pytest.mark.parametrize("kind", ["gossip", "multi-worker-mirrored"])
def test_communication_that_is_only_just_hidden_may_show(kind: str) -> None:
    """222 ms behind 250 ms of compute, or 155 behind a backward pass of 167: on links as slow as they may be it lasts longer."""
    variables = [{"name": f"v{at}", "size_bytes": 645_000.0, "creation_index": at, "ready": (at + 1) / 20} for at in range(20)]
    load = {"variables": variables, "forward": {"base": "83 ms", "per_sample": "0 s"}, "backward": {"base": "167 ms", "per_sample": "0 s"}}
    strategy: dict[str, Any] = {"kind": kind, "workers": 4} | ({} if kind == "gossip" else {"bucket_size": "1 MB"})

    def found(of_rate: float) -> Result:
        cluster = {"inter_node": {"bandwidth": f"{1e9 * of_rate:.6g} bit/s", "latency": "0 s"}}
        run = {"replications": 5, "steps": 20}
        table = scenario_table(workload=load, cluster=cluster, strategy=strategy, run=run)
        return simulate(scenario_from_table({**table, "discrepancy": {"communication": {"at": 0.36}}}, "test"))

    result = found(1.0)
    assert result.breakdown_s.exposed_communication < 0.03
    slowed = found(math.exp(-0.36)).throughput_samples_per_s.mean
    assert slowed < 0.9 * result.throughput_samples_per_s.mean
    assert result.throughput_samples_per_s.low < slowed
