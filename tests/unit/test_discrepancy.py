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
from simulator.results.intervals import combined, interval_of_jobs, prediction_interval, widened
from simulator.results.results import Result
from simulator.spec.figures import Estimate
from simulator.spec.uncertainty import CERTAIN, Z_90, Regime, RelativeError, between

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
    told = widened(Estimate(mean=1.0, low=by_chance[0], high=by_chance[1]), RelativeError(0.12, 0.12))
    assert (told.low, told.high) == pytest.approx(np.quantile(np.exp(chance + model), [0.05, 0.95]), rel=0.005)


def test_model_error_ends_where_devices_would_scale_linearly() -> None:
    """Three per cent above, or what a single replica itself may be faster by; below it goes on."""
    linear = 4 * simulate(scenario_from_table(scenario_table(run=RUN), "one")).throughput_samples_per_s.mean

    def told(**compute: float) -> Estimate:
        table = scenario_table(strategy=RING, run=RUN, discrepancy={"compute": compute})
        return simulate(scenario_from_table(table, "test")).throughput_samples_per_s

    wide = told(per_doubling=0.3)
    assert wide.high == pytest.approx(1.03 * linear, rel=1e-6)
    assert wide.low < wide.mean * math.exp(-Z_90 * 0.3)
    away = math.log(told(per_doubling=0.3, at=0.1).high / wide.mean)
    assert away == pytest.approx(math.hypot(math.log(1.03 * linear / wide.mean), Z_90 * 0.1), rel=1e-6)


def test_an_end_at_nothing_stays_there() -> None:
    assert widened(Estimate(mean=1.0, low=0.0, high=2.0), RelativeError(0.1, 0.1)).low == 0.0
    assert widened(Estimate(mean=0.0, low=0.0, high=0.0), RelativeError(0.1, 0.1)) == Estimate(mean=0.0, low=0.0, high=0.0)


def test_of_jobs_few_of_which_wait_long_both_ends_are_those_of_the_mixture() -> None:
    """9 in 10 take 10 h of steps, the others wait for 990 h besides: 0.9 Phi(log(t / 10 h) / o) = 0.05, and at 0.95 half of the waits."""
    sd = 0.2
    times, shares = [10.0] * 900 + [1000.0] * 100, [1.0] * 900 + [0.01] * 100
    told = interval_of_jobs(times, shares, RelativeError(sd, sd))
    assert told.mean == pytest.approx(109.0)
    assert told.low == pytest.approx(10.0 * math.exp(sd * NormalDist().inv_cdf(0.05 / 0.9)), rel=0.005)
    assert told.high == pytest.approx(1000.0, rel=0.001)
    rates = interval_of_jobs([1 / time for time in times], shares, RelativeError(sd, sd), power=-1)
    assert (1 / rates.high, 1 / rates.low) == pytest.approx((told.low, told.high), rel=1e-3)
    # the mean's distance to what most jobs take would have hidden that their steps may be faster
    assert prediction_interval(times, RelativeError(sd, sd).times(10 / 109)).low == pytest.approx(10.0, rel=0.001)


def test_of_jobs_that_are_alike_the_interval_is_that_of_their_steps() -> None:
    rng = np.random.default_rng(4)
    values = rng.lognormal(3.0, 0.2, 40).tolist()
    assert interval_of_jobs(values, rng.random(40).tolist(), CERTAIN) == prediction_interval(values)
    told = interval_of_jobs([5.0] * 19, [1.0] * 19, RelativeError(0.1, 0.3))
    assert (told.low, told.high) == pytest.approx((5.0 * math.exp(-Z_90 * 0.1), 5.0 * math.exp(Z_90 * 0.3)), rel=0.005)
    half = interval_of_jobs([5.0] * 19, [0.5] * 19, RelativeError(0.1, 0.3))
    assert half.high == pytest.approx(2.5 + 2.5 * math.exp(Z_90 * 0.3), rel=0.005)
    plain = prediction_interval(values, RelativeError(0.12, 0.12))
    told = interval_of_jobs(values, [1.0] * 40, RelativeError(0.12, 0.12))
    assert (told.low, told.high) == pytest.approx((plain.low, plain.high), rel=0.05)


@pytest.mark.parametrize("count", [3, 19])
def test_jobs_that_cost_nothing_cost_nothing_for_certain(count: int) -> None:
    nothing = Estimate(mean=0.0, low=0.0, high=0.0)
    assert interval_of_jobs([0.0] * count, [0.5] * count, RelativeError(0.1, 0.3)) == nothing


@pytest.mark.statistics
def test_a_job_that_rarely_waits_is_as_uncertain_as_its_steps_where_it_does_not() -> None:
    """All four machines for 19 h, none for 1 h: a job of an hour of steps, begun at any time, against a million such jobs."""
    trace = [{"at": "0 s", "nodes": 4}, {"at": "19 h", "nodes": 0}, {"at": "20 h", "nodes": 0}]
    faults = {"preemption": {"available": trace, "replacement": "0 s"}}
    table = scenario_table(strategy=RING, run={"replications": 1000}, discrepancy={"compute": {"at": 0.2}})
    free = {"every_steps": 1, "size": "1 B", "write": "1000000 TB/s"}

    def job_of(samples: float, faults: dict[str, Any]) -> Result:
        job = {"samples": samples, "startup": "0 s", "tracing": "0 s", "checkpoint": free, "faults": faults}
        return simulate(scenario_from_table({**table, "job": job}, "test"))

    alone = job_of(1e6, {"worker_mtbf": "1000000000 h"}).job
    assert alone is not None
    result = job_of(round(1e6 * 3600 / alone.time_s.mean), faults)
    assert result.job is not None
    rng = np.random.default_rng(0)
    off = result.discrepancy.relative_error.inverse
    z = rng.normal(size=1_000_000)
    steps = np.exp(z * np.where(z < 0, off.low, off.high))
    begins = rng.uniform(0, 20, len(z))
    hours = steps + np.where(begins >= 19, 20 - begins, np.where(begins + steps > 19, 1.0, 0.0))
    told = np.array([result.job.time_s.low, result.job.time_s.high]) / 3600
    assert told == pytest.approx(np.quantile(hours, [0.05, 0.95]), rel=0.03)


DISTANCES = some.floats(-3, 3)


@given(one=DISTANCES, other=DISTANCES, more=some.floats(0, 1))
def test_distances_together_never_fall_where_one_rises(one: float, other: float, more: float) -> None:
    assert combined(one, 0.0) == one
    assert combined(one, other) == combined(other, one)
    assert combined(one + more, other) >= combined(one, other) - 1e-12


def test_means_stay_and_only_ends_move(scenario) -> None:
    plain = simulate(scenario(workload=JITTER, strategy=ASYNC, run=RUN))
    relative_error = simulate(scenario(workload=JITTER, strategy=ASYNC, run=RUN, discrepancy=TERM | {"staleness": {"at": 0.1}}))
    assert plain.discrepancy is None
    for name in ("throughput_samples_per_s", "updates_per_s", "mean_step_s", "speedup", "scaling_efficiency", "mean_staleness"):
        one, other = getattr(plain, name), getattr(relative_error, name)
        assert other.mean == one.mean
        assert other.low < one.low <= one.high < other.high, name
    for name in ("throughput_of_each_replication", "step_time_s", "breakdown_s", "staleness", "utilisation", "events"):
        assert getattr(relative_error, name) == getattr(plain, name)
    assert relative_error.mean_step_s.mean == relative_error.step_time_s.mean
    assert relative_error.mean_staleness.mean == relative_error.staleness.mean


WIDE = {"compute": {"at": 1.0}, "communication": {"at": 1.0}}


def test_no_efficiency_goes_beyond_the_speeds_of_the_devices(scenario) -> None:
    """Four equal devices are at most four; of speeds 2, 1, 1 and 1/2 at most 4.5. The throughput may be off by a factor of 5."""
    fast = {"inter_node": {"bandwidth": "1000 GB/s", "latency": "0 s"}}
    for speeds, most in (((), 1.0), ((2.0, 1.0, 1.0, 0.5), 4.5 / 4), ((0.5,) * 4, 0.5)):
        cluster = {**fast, "node_speed": list(speeds), "devices_per_node": 1}
        result = simulate(scenario(workload=JITTER, strategy=RING, cluster=cluster, run=RUN, discrepancy=WIDE))
        assert result.throughput_samples_per_s.high > 4 * result.throughput_samples_per_s.mean
        assert result.scaling_efficiency.high == pytest.approx(max(most, result.scaling_efficiency.mean))
        assert result.speedup.high == pytest.approx(4 * result.scaling_efficiency.high)


def test_servers_make_workers_faster_than_one_alone_by_its_update_at_most(scenario) -> None:
    """A step alone of 12 ms, of that 6 ms its update, which servers make at once: at most 12 / 6 times one alone each."""
    load = {"apply": "6 ms", "server": {"base": "0 s", "per_byte_s": 0.0}}
    fast = {"inter_node": {"bandwidth": "1000 GB/s", "latency": "0 s"}, "transport": {"software": "given"}}
    result = simulate(scenario(workload=load, strategy=ASYNC, cluster=fast, run=RUN, discrepancy=WIDE))
    alone_s = simulate(scenario(workload=load, run=RUN)).step_time_s.mean
    efficiency, most = result.scaling_efficiency, 12 / 6
    assert alone_s == pytest.approx(0.012)
    assert 1.5 < efficiency.mean <= most
    assert efficiency.high == pytest.approx(most)


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
    assert found is None or (found == Regime.of(regime) and found in regimes())


def test_a_link_that_is_measured_says_nothing_of_compute(scenario) -> None:
    for strategy in (RING, ASYNC, {**ASYNC, "mode": "sync"}):
        alike = [scenario(strategy=strategy, cluster={"basis": basis}) for basis in ("published", "measured")]
        assumed, measured = (discrepancy_of(each.model_copy(update={"discrepancy": None})) for each in alike)
        assert assumed is not None
        assert measured is not None
        assert measured.compute(1.0) >= assumed.compute(1.0) > 0
        assert measured.communication.at < assumed.communication.at


def test_intervals_that_no_run_tested_quote_no_coverage(scenario) -> None:
    result = simulate(scenario(strategy=ASYNC, cluster={"basis": "published"}).model_copy(update={"discrepancy": None}))
    assert result.discrepancy.regime == Regime("asynchronous servers", "between nodes")
    assert result.discrepancy.checked is None
    assert result.discrepancy.coverage_in_words == "no interval of this kind was compared with real runs"
    # every regime with a coverage has settings of its own
    assert all((known.checked is None) == known.about.startswith("0 settings") for known in regimes().values())


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("fsdp", [("cluster.use", "nd96isr_h100_v5")], "30% too fast on H100-SXM5-80GB; mean of 4 real runs, one in ten at least 34%"),
        ("fsdp", [], ""),
        ("ring", [("cluster.device", "Tesla V100-SXM2")], "48% too fast with multi-worker-mirrored; mean of 30 real runs"),
        ("ring", [("strategy.workers", 64)], "11% too fast on more than 16 devices; mean of 115 real runs"),
        ("ring", [], ""),
    ],
)
def test_the_bias_of_the_nearest_runs_is_told(name: str, settings: list[tuple[str, Any]], told: str) -> None:
    result = simulate(load_scenario(name, [*settings, ("run.steps", 10)]))
    biased = [warning.text for warning in result.warnings if warning.code == "biased"]
    assert len(biased) == bool(told)
    assert told in "".join(biased)


@pytest.mark.slow
def test_it_grows_with_doublings_beyond_what_was_calibrated(scenario) -> None:
    def applied(workers: int, most: int) -> Any:
        load = {**JITTER, "calibrated": {"batch": [1, 20], "workers": [1, most]}}
        return simulate(scenario(workload=load, strategy={**RING, "workers": workers}, run=RUN, discrepancy=TERM)).discrepancy

    assert reach_of(scenario(strategy={**RING, "workers": 8})) == 3.0
    assert applied(8, 8).reach == 0.0
    assert applied(8, 1).parts[0].slower > applied(8, 2).parts[0].slower > applied(8, 8).parts[0].slower
    whole = math.hypot(0.03, 0.02 * 3)
    assert applied(8, 1).parts[0].slower == pytest.approx(whole * applied(8, 1).compute, rel=0.05)


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
    relative_error = simulate(scenario(workload=uncertain, strategy=RING, run=RUN, discrepancy={"compute": {"at": 0.5}})).scatter
    assert luck.shares == pytest.approx((0.0, 0.0, 1.0))
    assert drawn.shares == pytest.approx((0.0, 1.0, 0.0), abs=0.02)
    assert relative_error.shares[0] > 0.8
    assert sum(relative_error.shares) == pytest.approx(1.0)
    assert (relative_error.parameters, relative_error.luck) == (drawn.parameters, drawn.luck)


# -- comparisons ----------------------------------------------------------------------


def test_what_two_results_have_in_common_cancels(scenario) -> None:
    ours, theirs = (
        simulate(scenario(workload=JITTER, strategy={**RING, "workers": workers}, run=RUN, discrepancy={"compute": {"at": 0.1}}))
        for workers in (4, 8)
    )
    plain = [simulate(scenario(workload=JITTER, strategy={**RING, "workers": workers}, run=RUN)) for workers in (4, 8)]
    whole = ours.discrepancy.relative_error.sd
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
    assert between(ours.discrepancy, theirs.discrepancy).sd == pytest.approx(math.sqrt(2) * ours.discrepancy.relative_error.sd, rel=0.1)


# -- confidences ----------------------------------------------------------------------

RATES = some.lists(some.floats(50, 200), min_size=2, max_size=40)
OFF = some.builds(RelativeError, some.floats(0.001, 0.5), some.floats(0.001, 0.5))


@given(rates=RATES, needed=some.floats(20, 300))
def test_without_a_discrepancy_it_is_the_share_of_runs(rates: list[float], needed: float) -> None:
    assert confidence_of(rates, needed) == sum(rate >= needed * (1 - 1e-12) for rate in rates) / (len(rates) + 1)


@given(rates=RATES, relative_error=OFF, confidence=some.floats(0.05, 0.95))
def test_what_is_reached_with_a_confidence_has_at_least_that_confidence(
    rates: list[float], relative_error: RelativeError, confidence: float
) -> None:
    if confidence > len(rates) / (len(rates) + 1):
        return
    reached = reached_with(confidence, rates, relative_error)
    assert confidence_of(rates, reached * (1 - 1e-9), relative_error) >= confidence - 1e-6
    above = confidence_of(rates, reached * (1 + 1e-6), relative_error)
    assert above < confidence + 1e-6 + 1 / (len(rates) + 1)


@given(rates=RATES, relative_error=OFF, needed=some.floats(20, 300), more=some.floats(1.0, 2.0))
def test_more_is_never_surer(rates: list[float], relative_error: RelativeError, needed: float, more: float) -> None:
    assert 0.0 <= confidence_of(rates, needed * more, relative_error) <= confidence_of(rates, needed, relative_error) + 1e-12
    assert confidence_of(rates, needed, relative_error) <= len(rates) / (len(rates) + 1)


@given(jobs=some.lists(some.tuples(some.floats(50, 200), some.floats(0, 1)), min_size=2, max_size=40), relative_error=OFF, data=some.data())
def test_of_jobs_that_differ_too(jobs: list[tuple[float, float]], relative_error: RelativeError, data: some.DataObject) -> None:
    rates, shares = map(list, zip(*jobs, strict=True))
    most = len(rates) / (len(rates) + 1)
    needed, more, confidence = data.draw(some.floats(20, 300)), data.draw(some.floats(1, 2)), data.draw(some.floats(0.05, 0.95))
    surer, less = (confidence_of(rates, each, relative_error, shares) for each in (needed, needed * more))
    assert 0.0 <= less <= surer + 1e-12 <= most + 2e-12
    reached = reached_with(confidence, rates, relative_error, shares)
    assert confidence_of(rates, reached * (1 - 1e-9), relative_error, shares) >= min(confidence, most) - 1e-6
    assert confidence_of(rates, needed, RelativeError(1e-9, 1e-9), shares) == pytest.approx(
        confidence_of(rates, needed), abs=1e-3 if all(abs(rate / needed - 1) > 1e-6 for rate in rates) else 1
    )


def test_of_jobs_that_are_alike_the_confidence_is_that_of_their_steps() -> None:
    rates, relative_error = [100.0] * 19, RelativeError(0.1, 0.1)
    for needed in (80.0, 95.0, 110.0):
        assert confidence_of(rates, needed, relative_error, [1.0] * 19) == pytest.approx(confidence_of(rates, needed, relative_error))
    assert reached_with(0.9, rates, relative_error, [1.0] * 19) == pytest.approx(reached_with(0.9, rates, relative_error))
    # half of the time is certain: 5% more of all of it is 10% more of the other half
    assert confidence_of(rates, 100 / 1.05, relative_error, [0.5] * 19) == pytest.approx(NormalDist().cdf(math.log(1.1) / 0.1))


def test_nineteen_of_nineteen_runs_and_a_doubt() -> None:
    rates, relative_error = [100.0] * 19, RelativeError(0.1, 0.1)
    assert confidence_of(rates, 90.0) == 0.95
    assert confidence_of(rates, 90.0, relative_error) == pytest.approx(NormalDist().cdf(-math.log(0.9) / 0.1))
    assert reached_with(0.95, rates, relative_error) == pytest.approx(100.0 * math.exp(-Z_90 * 0.1))
    assert confidence_of(rates, math.inf, relative_error) == 0.0


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
