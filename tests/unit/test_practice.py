"""What software gets of nominal rates: when it is applied, to what, and what a result says of it."""

from __future__ import annotations

import json
import math
from statistics import geometric_mean

import numpy as np
import pytest
from oracles.audit import audit

from paceline.planning.bounds import Ceilings
from simulator import Scenario, scenario_from_table, simulate
from simulator.base.errors import ScenarioError
from simulator.base.rng import Streams
from simulator.resolve.measured_defaults import assumed_defaults, felt_by, slowest_of, with_measured_defaults, with_nominal_defaults
from simulator.resolve.published_throughputs import load_published_throughputs
from simulator.resolve.resolve import Asked, alone_scenario, resolve
from simulator.results.next_measurement import width_of
from simulator.run import preview
from simulator.spec.constants import Known, constants, drawn_values, nominal_values

LOAD = {
    "name": "two-layers", "batch_per_replica": 32,
    "forward": {"base": "10 ms", "per_sample_s": 0.0}, "backward": {"base": "20 ms", "per_sample_s": 0.0},
    "variables": [
        {"name": "last", "size": "8 MiB", "creation_index": 1, "ready": 0.4},
        {"name": "first", "size": "8 MiB", "creation_index": 0, "ready": 1.0},
    ],
}  # fmt: skip
RING = {"kind": "multi-worker-mirrored", "workers": 2, "replicas_per_worker": 8, "bucket_size": "8 MiB"}
PLAIN = {"inter_node": {"bandwidth": "25 Gbit/s", "latency": "50 us"}}
SERVERS = {"kind": "parameter-server", "mode": "sync", "workers": 4, "servers": 2}


def scenario(cluster: object = "p3.16xlarge", strategy: object = RING, load: object = LOAD, **sections: object) -> Scenario:
    section = {"use": cluster} if isinstance(cluster, str) else cluster
    run = sections.pop("run", {"steps": 4, "warmup_steps": 1})
    return scenario_from_table({"workload": load, "cluster": section, "strategy": strategy, "run": run, **sections}, "test")


def test_a_link_without_a_sort_is_taken_as_it_is():
    plain = scenario(PLAIN, {**RING, "replicas_per_worker": 1})
    resolved = resolve(plain)
    assert with_nominal_defaults(resolved) is resolved
    assert assumed_defaults(plain) == ()


def test_each_link_gets_the_share_of_its_sort():
    values = nominal_values({}) | {"nvlink_share": 0.5, "pcie_share": 0.25, "ethernet_share": 0.8}
    achieved = with_measured_defaults(resolve(scenario(strategy={**SERVERS, "replicas_per_worker": 8})), values).cluster
    assert achieved.intra_node.bandwidth_bytes_per_s == pytest.approx(0.5 * 150e9)
    assert achieved.host_link is not None
    assert achieved.host_link.bandwidth_bytes_per_s == pytest.approx(0.25 * 15.75e9)
    assert achieved.inter_node.bandwidth_bytes_per_s == pytest.approx(0.8 * 25e9 / 8)
    assert {link.sort for link in (achieved.intra_node, achieved.inter_node, achieved.host_link)} == {"given"}


def test_what_nothing_goes_over_is_not_spoken_of():
    assert "ethernet_share" in felt_by([scenario()])
    assert "pcie_share" not in felt_by([scenario()])
    assert "ethernet_share" not in felt_by([scenario(strategy={**RING, "workers": 1})])
    assert felt_by([scenario(strategy={"kind": "single"})]) == ("straggler_cv",)


def test_it_is_applied_once():
    values = nominal_values({})
    once = with_measured_defaults(resolve(scenario()), values)
    assert with_measured_defaults(resolve(once), values) is once


def test_a_bandwidth_of_the_scenario_is_what_transfers_get():
    own = scenario({"use": "p3.16xlarge", "inter_node": {"bandwidth": "10 Gbit/s"}})
    assert own.cluster.inter_node.sort == "given"
    assert own.cluster.intra_node.sort == "nvlink"
    assert with_nominal_defaults(resolve(own)).cluster.inter_node.bandwidth_bytes_per_s == 1.25e9
    nominal = scenario({"use": "p3.16xlarge", "inter_node": {"bandwidth": "10 Gbit/s", "sort": "ethernet"}})
    assert with_nominal_defaults(resolve(nominal)).cluster.inter_node.bandwidth_bytes_per_s < 1.25e9


def test_another_sort_replaces_no_figure():
    own = scenario({"use": "pascal-25g", "inter_node": {"sort": "rdma"}}, {**RING, "replicas_per_worker": 4})
    assert own.cluster.inter_node.sort == "rdma"
    assert (own.cluster.basis, own.cluster.overridden) == ("published", ())


@pytest.mark.slow
def test_a_protocol_that_nccl_enables_with_nvlink_alone_is_not_chosen_without():
    """LL128: src/graph/tuning.cc."""
    auto = {**RING, "algorithm": "auto", "protocol": "auto", "bucket_size": "1 kB"}
    load = LOAD | {
        "variables": [{"name": f"v{k}", "size_bytes": 4.0**k, "creation_index": 12 - k, "ready": (k - 4) / 8} for k in range(5, 13)]
    }

    def chosen(cluster, strategy=auto, **protocols):
        its = scenario({"use": cluster, **({"protocols": protocols} if protocols else {})}, strategy, load)
        return {one.protocol for one in preview(its).reduced.values()}

    assert "ll128" in chosen("p3.16xlarge")
    assert "ll128" not in chosen("p2.8xlarge")
    assert "ll128" in chosen("p2.8xlarge", auto=["ll128"])
    assert chosen("p3.16xlarge", auto=["simple"]) == {"simple"}
    assert chosen("p2.8xlarge", {**auto, "protocol": "ll128"}) == {"ll128"}


def test_a_measured_jitter_is_kept():
    own = scenario(load={**LOAD, "jitter": {"kind": "gamma", "shape": 50.0}})
    assert with_nominal_defaults(resolve(own)).workload.jitter == own.workload.jitter
    assert "straggler_cv" not in felt_by([own])
    assert "straggler_cv" in felt_by([scenario()])


def test_devices_of_one_host_crowd_each_other_and_one_alone_is_not_crowded():
    busy, alone = with_nominal_defaults(resolve(scenario())), with_nominal_defaults(resolve(alone_scenario(resolve(scenario()))))
    assert alone.workload.forward.base_s == pytest.approx(0.010)
    assert busy.workload.forward.base_s == pytest.approx(0.010 * (1.0 + constants()["crowding"].value))


def test_a_scenario_may_set_constants_itself():
    own = scenario(practice={"nvlink_share": 0.3, "straggler_cv": {"value": 0.01, "low": 0.005, "high": 0.02}})
    assert own.practice["nvlink_share"] == Known(value=0.3, low=0.3, high=0.3)
    assert with_nominal_defaults(resolve(own)).cluster.intra_node.bandwidth_bytes_per_s == pytest.approx(0.3 * 150e9)
    draws = [drawn_values(own.practice, Streams(0, number)) for number in range(5)]
    assert {draw["nvlink_share"] for draw in draws} == {0.3}
    assert len({draw["straggler_cv"] for draw in draws}) == 5
    assert own.hash != scenario().hash
    assert scenario_from_table(json.loads(json.dumps(own.model_dump(mode="json"))), "again") == own


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"practice": {"warp_share": 0.5}}, "there is no constant 'warp_share'; known are nvlink_share"),
        ({"practice": {"nvlink_share": {"value": 0.5, "low": 0.6, "high": 0.7}}}, "must lie between low (0.6) and high (0.7)"),
        ({"practice": {"nvlink_share": -1.0}}, "practice.nvlink_share"),
        ({"practice": {"nvlink_share": 2.0}}, "nvlink_share (2) is a share of a nominal rate and must be at most 1"),
        ({"discrepancy": "some"}, "discrepancy: 'some' must be \"none\" or a table"),
        ({"cluster": {"use": "p3.16xlarge", "inter_node": {"sort": "nvlink"}}}, 'inter_node.sort ("nvlink") must be one of rdma, ethernet'),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_line(sections, said):
    with pytest.raises(ScenarioError) as refused:
        scenario(**sections)
    assert said in str(refused.value)


def test_a_scenario_without_any_of_it_is_written_as_before():
    written = json.dumps(scenario(PLAIN, SERVERS).model_dump(mode="json"))
    assert not any(key in written for key in ('"sort"', '"practice"', '"replicas_per_worker"'))


def test_draws_are_the_seeds_and_spread_evenly_over_the_interval():
    draws = [drawn_values({}, Streams(7, number)) for number in range(2000)]
    assert draws[3] == drawn_values({}, Streams(7, 3))
    assert draws[3] != drawn_values({}, Streams(8, 3))
    for name, known in constants().items():
        logs = np.log([draw[name] for draw in draws])
        low, high = np.quantile(logs, [0.05, 0.95])
        assert high - low == pytest.approx(math.log(known.high / known.low), rel=0.05)
        if name.startswith("grpc_"):  # a time of one step, and a rate of a server: neither mean decides
            assert math.exp(np.median(logs)) == pytest.approx(known.value, rel=0.02)
            continue
        times = np.exp(-logs if name.endswith("_share") else logs) * known.value ** (1 if name.endswith("_share") else -1)
        assert times.mean() == pytest.approx(1.0, abs=0.02), "in the mean times are what they are with the value"


@pytest.mark.slow
def test_ends_of_intervals_move_smoothly_from_one_size_to_the_next():
    """What neighbours have in common is drawn alike, so that the relative ends differ by little."""
    ends = []
    for workers in (2, 3, 4, 5):
        found = simulate(scenario(strategy={**RING, "workers": workers}, discrepancy="none")).throughput_samples_per_s
        ends.append((math.log(found.low / found.mean), math.log(found.high / found.mean)))
    assert np.abs(np.diff(np.array(ends), axis=0)).max() < 0.03


@pytest.mark.slow
def test_a_result_says_what_was_applied_and_where_it_is_from():
    told = {each.value.split()[0]: each for each in simulate(scenario()).assumed}
    assert {"nvlink_share", "ethernet_share", "straggler_cv", "crowding"} <= set(told)
    share = constants()["nvlink_share"]
    assert f"{share.value:.3g} ({share.low:.3g} to {share.high:.3g})" in told["nvlink_share"].value
    assert told["nvlink_share"].reason.endswith(f"no table determines it: {share.prior.source}")
    assert told["crowding"].reason.endswith(f"fitted to {', '.join(constants()['crowding'].tables)}")
    own = simulate(scenario(practice={"nvlink_share": 0.3})).assumed
    assert any(each.value == "nvlink_share 0.3" and each.reason.endswith("set by the scenario") for each in own)


def test_undetermined_constants_have_their_priors():
    for constant in constants().values():
        prior = constant.prior
        if not constant.determined:
            assert (constant.value, constant.low, constant.high) == (prior.value, prior.low, prior.high)


# -- a step that was timed with one batch --------------------------------------------------------

ONE_BATCH = {**LOAD, "batch_per_replica": None, "global_batch": 1920, "calibrated": {"batch": [1920, 1920]},
             "jitter": {"kind": "lognormal", "sigma": 0.02}, "forward": {"base": "0 s", "per_sample": "1 ms"},
             "backward": {"base": "0 s", "per_sample": "2 ms"}}  # fmt: skip


def strong(workers: int, load: dict | None = None, **sections: object) -> Scenario:
    link = {"inter_node": {"bandwidth": "100 Gbit/s", "latency": "5 us"}}
    ring = {"kind": "multi-worker-mirrored", "workers": workers}
    return scenario(link, ring, load or ONE_BATCH, **({"discrepancy": "none", "run": {"replications": 19, "steps": 4}} | sections))


def test_what_does_not_shrink_with_the_batch_is_that_of_published_pairs():
    rates: dict[tuple[str, ...], dict[int, list[float]]] = {}
    for row in load_published_throughputs().rows:
        if row.devices == 1 and row.batch is not None:
            key = (row.source, row.software, row.model, row.precision, row.device, row.setting)
            rates.setdefault(key, {}).setdefault(row.batch, []).append(row.throughput)
    fixed = []
    for by_batch in rates.values():
        small, large = min(by_batch), max(by_batch)
        if large >= 4 * small:
            small_s, large_s = (batch / geometric_mean(by_batch[batch]) for batch in (small, large))
            fixed.append((small_s * large - large_s * small) / (large - small) / large_s)
    known = constants()["fixed_part"]
    assert len(fixed) == 18
    (low, high), mean = np.quantile(fixed, [0.05, 0.95]), float(np.mean(fixed))
    assert (known.low, known.value, known.high) == pytest.approx((low, mean, high), rel=0.01)


def test_the_further_the_batch_from_the_one_that_was_timed_the_wider_the_interval():
    widths = []
    for workers in (1, 2, 8, 60):
        found = simulate(strong(workers))
        widths.append(math.log(found.throughput_samples_per_s.high / found.throughput_samples_per_s.low))
        assert {each.code for each in found.warnings if each.code == "one-batch"} == ({"one-batch"} if workers > 1 else set())
    assert widths == sorted(widths)
    assert widths[0] < 0.05 < 0.1 < widths[1] < widths[2] < 1.5 < widths[3]
    # a machine on which 1.6% of the step at 1,920 samples stays: in proportion to the batch, 32 would be 98% too fast
    stays = {"forward": {"base": "32 ms", "per_sample": "983 us"}, "backward": {"base": "64 ms", "per_sample": "1967 us"}}
    none = {"forward": {"base": "1 ns", "per_sample": "1 ms"}, "backward": {"base": "1 ns", "per_sample": "2 ms"}}
    true, proportional = (simulate(strong(60, {**ONE_BATCH, **passes})).throughput_samples_per_s.mean for passes in (stays, none))
    assert proportional / true == pytest.approx(1.98, abs=0.03)
    told = simulate(strong(60, discrepancy=None)).throughput_samples_per_s  # with what predictions are off by
    assert told.low < true < told.high < proportional
    (warned,) = (each for each in found.warnings if each.code == "one-batch")
    assert "paceline calibrate MODEL.py:FUNCTION --batch 32,1920" in warned.text
    assert "paceline calibrate MODEL.py:FUNCTION" in width_of(found).measure_next[0].command
    assert audit(strong(60, run={"replications": 2, "steps": 4}))


def test_passes_that_are_told_in_proportion_to_a_batch_are_so_and_may_take_longer():
    told = {**ONE_BATCH, "calibrated": None, "jitter": {"kind": "constant"}}
    results = {workers: simulate(strong(workers, told, discrepancy=None)) for workers in (1, 4, 60)}
    for workers, result in results.items():
        assert result.breakdown_s.compute == pytest.approx(1920 / workers * 3e-3)
        assert ("one-batch" in {each.code for each in result.warnings}) == (workers > 1)
    fixed = {name: {"base": "1 ns", "per_sample": told[name]["per_sample"]} for name in ("forward", "backward")}
    rates, known = (simulate(strong(60, load, discrepancy=None)).throughput_samples_per_s for load in (told, {**told, **fixed}))
    assert rates.mean == pytest.approx(known.mean, rel=1e-3)
    assert rates.high == pytest.approx(known.high, rel=2e-3), "which ends at linear scaling of a single replica, that has the fixed part"
    assert rates.low < 0.2 * rates.mean < known.low


@pytest.mark.parametrize(
    ("more", "is_open"),
    [
        ({}, True),
        ({"calibrated": None}, False),
        ({"calibrated": {"batch": [64, 64]}}, True),
        ({"calibrated": {"batch": [16, 16]}}, False),
        ({"calibrated": {"batch": [16, 64]}}, False),
        ({"forward": {"base": "1 ms", "per_sample": "1 ms"}}, False),
        ({"measured_with": "servers"}, False),
        ({"global_batch": None, "batch_per_replica": 32, "calibrated": None}, False),
        ({"global_batch": None, "batch_per_replica": 32, "calibrated": {"batch": [64, 64]}}, True),
    ],
)
def test_only_a_smaller_batch_than_the_one_that_was_timed_leaves_it_open(more, is_open):
    resolved = resolve(strong(60, {**ONE_BATCH, **more}))
    assert ("fixed_part" in felt_by([resolved])) == is_open
    nominal = with_nominal_defaults(resolved)
    assert with_nominal_defaults(nominal) == nominal
    assert (nominal.workload.compute_s(32) > resolved.workload.compute_s(32)) == is_open
    if is_open:
        timed = resolved.workload.timed_batch
        assert nominal.workload.compute_s(timed) == pytest.approx(resolved.workload.compute_s(timed))


@pytest.mark.parametrize("cluster", ["p3.16xlarge", "gtx980-1g", "nd96asr_v4"])
@pytest.mark.parametrize("strategy", [{**RING, "replicas_per_worker": 1, "workers": 6}, SERVERS, {**SERVERS, "replicas_per_worker": 2}])
def test_bounds_stay_bounds(cluster, strategy):
    """Of every replication; also where the bounds were made of another number of workers."""
    if cluster == "gtx980-1g" and strategy.get("kind") == "multi-worker-mirrored":
        strategy = {**strategy, "workers": 4}
    asked = scenario(cluster, strategy)
    other = asked.model_copy(update={"strategy": asked.strategy.model_copy(update={"workers": 1})})
    result = simulate(asked)
    for first in (asked, other):
        ceilings = Ceilings()
        ceilings.of(Asked.of(first))
        assert (np.array(result.throughput_of_each_replication) <= ceilings.of(Asked.of(asked)) * (1 + 1e-9)).all()


@pytest.mark.parametrize("strategy", [RING, SERVERS, {**SERVERS, "replicas_per_worker": 4}])
def test_every_invariant_holds_of_what_is_simulated(strategy):
    assert audit(scenario(strategy=strategy))


def test_a_bottleneck_is_told_of_achieved_rates():
    machine = {"use": "p3.16xlarge", "devices_per_node": 1, "devices_per_host_link": 1, "transport": {"flow_cap": "25 Gbit/s"}}
    load = {**LOAD, "forward": {"base": "1 ms", "per_sample_s": 0.0}}
    slow = simulate(scenario(machine, {"kind": "multi-worker-mirrored", "workers": 4}, load, practice={"ethernet_share": 0.2}))
    assert slow.bottleneck.name == "network"
    assert slow.utilisation.busiest_link > 0.5


def test_collectives_over_ethernet_go_at_the_pace_of_the_slowest_link() -> None:
    """Of n normal values the smallest is expected where simulated ones are; servers, one node and measured links know nothing of it."""
    rng = np.random.default_rng(0)
    for count in (2, 4, 16, 64):
        drawn = rng.standard_normal((100_000, count)).min(axis=1).mean()
        assert math.log(slowest_of(count, 0.1)) == pytest.approx(0.1 * drawn, rel=0.05)
    values = nominal_values({})
    ring, servers = (
        scenario(strategy={**RING, "workers": 16}),
        scenario(strategy={**SERVERS, "workers": 16}),
    )
    rates = [with_measured_defaults(resolve(each), values).cluster.inter_node.bandwidth_bytes_per_s for each in (ring, servers)]
    assert rates[0] == pytest.approx(rates[1] * slowest_of(16, values["ethernet_spread"]))
