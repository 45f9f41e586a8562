"""A workload on another device than it was measured on: which rule, how far, how sure, or a refusal."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support.scenarios import scenario_table

from simulator import scenario_from_table, simulate
from simulator.base.errors import ScenarioError
from simulator.catalogue.loading import apply_settings
from simulator.resolve.device_transfer import (
    COMPUTE,
    LAUNCH_ALONE_S,
    LAUNCH_S,
    LAUNCH_TOGETHER_S,
    bound_s,
    efficiency,
    factors,
    moved_to,
    precision_gain,
    ratio_scatter,
    roofline,
    speed_ups,
)
from simulator.resolve.published_throughputs import (
    Model,
    PublishedThroughput,
    PublishedThroughputs,
    Scatter,
    load_published_throughputs,
    same_device,
)
from simulator.resolve.resolve import Asked, resolve
from simulator.results.results import Result
from simulator.results.warnings import warnings_of
from simulator.results.what_if import with_compute
from simulator.scenario import Scenario
from simulator.spec.accelerator import accelerator_named
from simulator.spec.uncertainty import Uncertainty
from simulator.spec.workload import Affine, Counted, DeviceTransfer, Variable, Workload, WorkloadRange

V100, A100, K80 = "Tesla V100-SXM2", "A100-SXM4-40GB", "Tesla K80 (one die)"
RESNET = 25.6e6 * 4


def workload(device: str = V100, **parts) -> Workload:
    given = {
        "name": "mine",
        "forward": Affine(base_s=1e-3, per_sample_s=1e-3),
        "backward": Affine(base_s=2e-3, per_sample_s=2e-3),
        "apply_s": 1e-3,
        "variables": (Variable(name="all", size_bytes=RESNET, creation_index=0, ready=1.0),),
        "calibrated": WorkloadRange(batch=(32, 32), device=device),
        **parts,
    }
    return Workload(**given)


COUNTED = Counted(flops_per_sample=2.3e10, base_bytes=8e8, per_sample_bytes=2e9, kernels=1000)


def speed(device: str, throughput: float, source: str = "a table", model: str = "resnet-50", batch: int | None = 64) -> PublishedThroughput:
    return PublishedThroughput(
        source=source, software="TensorFlow", model=model, precision="float32", device=device, devices=1, batch=batch,
        throughput=throughput, unit="images/s", url=f"https://example.org/{source}",
    )  # fmt: skip


def published(*rows: PublishedThroughput) -> PublishedThroughputs:
    others = [
        speed(name, rate, source, "another", None) for source in "xy" for name, rate in ((V100, 1.0), (A100, 2.0 if source == "x" else 2.5))
    ]
    return PublishedThroughputs((*rows, *others), load_published_throughputs().models)


# --- which rule ------------------------------------------------------------------------------------


def test_the_rules_come_in_their_order():
    there = workload(A100, name="measured", model="resnet-50", forward=Affine(base_s=0.0, per_sample_s=4e-4))
    rows = published(speed(V100, 400.0), speed(A100, 1000.0))
    load = workload(model="ResNet50", counted=COUNTED)
    given = load.model_copy(update={"moved": DeviceTransfer(factor=(0.2, 0.3), source="my own test")})
    assert moved_to(given, A100, [there], rows).moved.rule == "given"
    assert moved_to(load, A100, [there], rows).moved.rule == "measured-there"
    assert moved_to(load, A100, [], rows).moved.rule == "published-pair"
    assert moved_to(load.model_copy(update={"model": ""}), A100, []).moved.rule == "roofline"


def test_nothing_is_moved_to_the_same_device_or_from_or_to_none():
    load = workload("NVIDIA Tesla V100-SXM2-16GB")
    assert moved_to(load, "tesla  v100-sxm2") is load
    assert moved_to(load, "Tesla V100-SXM2-32GB") is load  # memory is no speed
    assert moved_to(load, "") is load
    assert moved_to(workload("NVIDIA Tesla V100-SXM2-16GB (GPU)"), V100).moved is None  # as `paceline calibrate` writes it
    assert moved_to(workload("Our own chip (GPU)"), "our own Chip").moved is None
    assert moved_to(workload(""), A100) is not None
    assert moved_to(workload(calibrated=None), A100).moved is None


def test_a_device_as_the_calibrator_writes_it_has_its_datasheet():
    for name in ("Tesla V100-SXM2-16GB (GPU)", "NVIDIA A100-SXM4-40GB (GPU)", "Tesla T4 (GPU)"):
        moved = moved_to(workload(name, counted=COUNTED), "H100-SXM5-80GB").moved
        assert "the ratio of two rooflines" in moved.text


def test_a_device_is_found_with_its_kind_behind_any_of_its_names():
    for name in ("Tesla T4", "NVIDIA T4", "tesla  t4"):
        for kind in ("", " (GPU)", "(gpu)"):
            assert accelerator_named(name + kind) is accelerator_named("T4")
    assert accelerator_named("Tesla T4 (TPU)") is None


def test_a_refusal_names_both_devices_and_the_four_ways_out():
    with pytest.raises(ScenarioError) as caught:
        moved_to(workload(), A100, [], published())
    text = str(caught.value)
    assert "\n" not in text
    for part in (repr(V100), repr(A100), "calibrate the same model", "published pair", "roofline", "workload.moved = {factor = [0.2, 0.3]"):
        assert part in text


@pytest.mark.parametrize(
    ("load", "device", "why"),
    [
        (workload(counted=COUNTED), "2 x Xeon Platinum 8124M", "efficiency"),
        (workload(counted=COUNTED), "Unheard-of 9000", "models/devices .*'Unheard-of 9000'"),
        (workload(counted=COUNTED, precision="mixed_float16"), K80, r"'Tesla K80 \(one die\)' for mixed_float16"),
        (workload(model="resnet-50"), "Unheard-of 9000", "'resnet-50' in float32"),
    ],
)
def test_a_refusal_says_why_each_rule_fails(load, device, why):
    with pytest.raises(ScenarioError, match=why):
        moved_to(load, device)


def test_a_workload_of_another_size_is_not_the_published_model():
    rows = published(speed(V100, 400.0), speed(A100, 1000.0))
    small = (Variable(name="all", size_bytes=4e6, creation_index=0, ready=1.0),)
    with pytest.raises(ScenarioError, match=r"25.6M parameters, not 1M"):
        moved_to(workload(model="resnet-50", variables=small), A100, [], rows)
    few = COUNTED.model_copy(update={"flops_per_sample": 1e9})
    moved = moved_to(workload(model="resnet-50", counted=few), A100)
    assert moved.moved.rule == "roofline"


def test_a_workload_with_other_variables_does_not_stand_in():
    other = workload(A100, model="m", variables=(Variable(name="all", size_bytes=8.0, creation_index=0, ready=1.0),))
    with pytest.raises(ScenarioError, match="no workload of model 'm'"):
        moved_to(workload(model="m"), A100, [other], published())


# --- how far and how sure ------------------------------------------------------------------------------


def test_measured_there_takes_the_times_of_there_and_keeps_the_scenarios_own():
    draws = Uncertainty(parameters=("apply_s",), draws=((5e-4,), (7e-4,)))
    there = workload(A100, name="there", model="m", forward=Affine(base_s=0.0, per_sample_s=5e-4), run_to_run_cv=0.2, uncertainty=draws)
    moved = moved_to(workload(model="M", batch_per_replica=48, run_to_run_cv=0.1), A100, [there])
    assert (moved.forward, moved.uncertainty, moved.run_to_run_cv, moved.batch_per_replica) == (there.forward, draws, 0.2, 48)
    assert moved.calibrated.device == A100
    assert moved.moved.sources == ("workload 'there'",)
    expected = (0.5e-3 * 32 + 2e-3 + 2e-3 * 32 + 1e-3) / (3e-3 + 3e-3 * 32 + 1e-3)
    assert moved.moved.low_mid_high[1] == pytest.approx(expected)


def test_a_published_pair_gives_its_ratio_with_the_scatter_of_sources():
    rows = published(speed(V100, 400.0), speed(A100, 1000.0))
    moved = moved_to(workload(model="resnet-50"), A100, [], rows).moved
    # one pair of other models in two sources: their logarithms differ by log(1.25), one degree of freedom
    sigma = math.log(1.25) / math.sqrt(2)
    wider = math.exp(6.313752 * sigma * math.sqrt(2))
    assert moved.factor == pytest.approx((0.4 / wider, 0.4, 0.4 * wider), rel=1e-5)
    assert moved.sources == ("https://example.org/a table",)
    assert "a table (TensorFlow, batch 64)" in moved.text


def test_more_sources_make_the_range_narrower():
    one = published(speed(V100, 400.0), speed(A100, 1000.0))
    two = published(*(speed(name, rate, source) for source in "pq" for name, rate in ((V100, 400.0), (A100, 1000.0))))
    low, _, high = moved_to(workload(model="resnet-50"), A100, [], one).moved.low_mid_high
    nearer, mid, further = moved_to(workload(model="resnet-50"), A100, [], two).moved.low_mid_high
    assert low < nearer < mid < further < high


def test_a_pair_is_made_of_the_batches_nearest_to_one_another():
    rows = published(
        speed(V100, 300.0, batch=16), speed(V100, 400.0, batch=128), speed(A100, 1000.0, batch=256), speed(A100, 900.0, batch=8)
    )
    assert moved_to(workload(model="resnet-50"), A100, [], rows).moved.factor[1] == pytest.approx(math.sqrt(300 / 900 * 400 / 1000))


def test_the_bound_is_operations_over_peak_plus_bytes_over_bandwidth():
    device = accelerator_named(V100)
    assert bound_s(COUNTED, device, "float32", 10) == pytest.approx(2.3e11 / 15.7e12 + (8e8 + 2e10) / 900e9)
    assert bound_s(COUNTED, device, "mixed_bfloat16", 10) is None


def test_between_two_accelerators_the_ratio_of_bounds_is_taken():
    speeds, here, there = load_published_throughputs(), accelerator_named(V100), accelerator_named(A100)
    ratio = bound_s(COUNTED, there, "float32", 32) / bound_s(COUNTED, here, "float32", 32)
    wider = math.exp(ratio_scatter(speeds).half_width())
    fast = workload(counted=COUNTED)
    assert roofline(fast, here, there, speeds) == pytest.approx((ratio / wider, ratio, ratio * wider))


def test_a_faster_device_never_takes_longer_and_low_is_below_high():
    load, speeds = workload(counted=COUNTED), load_published_throughputs()
    found = [roofline(load, accelerator_named(V100), accelerator_named(name), speeds) for name in (K80, "Tesla T4", A100, "H100-SXM5-80GB")]
    assert all(each.low < each.mid < each.high for each in found)
    for slower, faster in pairwise(found):
        assert all(one > other for one, other in zip(slower, faster, strict=True))


def test_what_no_roofline_explains_does_not_become_faster():
    speeds, here, there = load_published_throughputs(), accelerator_named(V100), accelerator_named(A100)
    slow = workload(counted=COUNTED, apply_s=10.0)
    found, fast = roofline(slow, here, there, speeds), roofline(workload(counted=COUNTED), here, there, speeds)
    assert found.low == pytest.approx(fast.low)
    assert fast.mid < 0.5 < 0.98 < found.mid < found.high


def test_from_a_processor_starting_the_kernels_is_added():
    speeds, there = load_published_throughputs(), accelerator_named(V100)
    load = workload("a processor", counted=COUNTED)
    known, best_s = efficiency(speeds), bound_s(COUNTED, there, "float32", 32)
    measured_s = load.compute_s(32) + load.apply_s
    expected = (
        best_s / known.high + 1000 * LAUNCH_TOGETHER_S,
        best_s / known.mid + 1000 * LAUNCH_S,
        best_s / known.low + 1000 * LAUNCH_ALONE_S,
    )
    assert roofline(load, None, there, speeds) == pytest.approx([value / measured_s for value in expected])


def test_the_range_covers_all_batches_that_were_measured():
    load = workload("a processor", counted=COUNTED, calibrated=WorkloadRange(batch=(1, 256), device="a processor"))
    there, speeds = accelerator_named(V100), load_published_throughputs()
    every = roofline(load, None, there, speeds)
    for batch in (1, 256):
        one = roofline(load.model_copy(update={"batch_per_replica": batch}), None, there, speeds)
        assert every.low <= one.low <= one.mid <= one.high <= every.high


def test_each_model_counts_once_in_what_is_left_open():
    speeds = load_published_throughputs()
    known, without = efficiency(speeds), efficiency(speeds.without(model="resnet-50"))
    assert known.low < without.mid < known.high
    doubled = PublishedThroughputs((*speeds.rows, *(row.model_copy(update={"source": "again"}) for row in speeds.rows)), speeds.models)
    assert efficiency(doubled) == pytest.approx(known)
    assert ratio_scatter(doubled).freedom == ratio_scatter(speeds).freedom
    assert efficiency(PublishedThroughputs((row for row in speeds.rows if row.model in ("resnet-50", "vgg-16")), speeds.models)) is None


# --- draws -----------------------------------------------------------------------------------------------


def test_draws_of_a_factor_have_its_ends_as_5_and_95_percent():
    drawn = factors(0.2, 0.3, 0.9, 2001)
    assert np.quantile(drawn, [0.05, 0.5, 0.95]) == pytest.approx([0.2, 0.3, 0.9], rel=5e-3)
    assert list(drawn) == list(factors(0.2, 0.3, 0.9, 2001))
    assert sorted(drawn) != list(drawn)


def test_all_compute_is_moved_and_nothing_else():
    draws = Uncertainty(parameters=("apply_s", "server.base_s"), draws=((1e-3, 5e-6), (2e-3, 6e-6)))
    load = workload(
        uncertainty=draws, run_to_run_cv=0.1, moved=DeviceTransfer(factor=(0.2, 0.3, 0.4), source="a test"), server={"base_s": 5e-6}
    )
    moved = moved_to(load, A100)
    assert moved.compute_s(7) == pytest.approx(0.3 * load.compute_s(7))
    assert moved.apply_s == pytest.approx(0.3 * load.apply_s)
    assert (moved.server, moved.input, moved.jitter, moved.run_to_run_cv, moved.calibrated) == (
        load.server, load.input, load.jitter, 0.1, load.calibrated
    )  # fmt: skip
    names = moved.uncertainty.parameters
    assert set(names) == {*COMPUTE, "server.base_s"}
    column = {name: [draw[names.index(name)] for draw in moved.uncertainty.draws] for name in names}
    assert set(column["server.base_s"]) == {5e-6, 6e-6}
    ratios = np.array(column["forward.base_s"]) / load.forward.base_s
    assert len(ratios) == 60
    assert np.array(column["backward.per_sample_s"]) == pytest.approx(ratios * 2e-3)  # one factor for all of a draw
    assert min(ratios) < 0.2 < 0.4 < max(ratios)
    assert np.array(column["apply_s"]) == pytest.approx(ratios * np.tile([1e-3, 2e-3], 30))


# --- through a scenario ------------------------------------------------------------------------------------

KNOWN = {"calibrated": {"batch": [1, 64], "device": "CPU"}, "jitter": {"kind": "gamma", "shape": 25.0}}
GIVEN = {"factor": [0.2, 0.5], "source": "my own benchmark"}
SETTINGS = {"strategy": {"kind": "single"}, "cluster": {"device": "GPU"}, "run": {"replications": 40, "steps": 20}}


def scenario(moved=GIVEN, **parts) -> Scenario:
    load = {**KNOWN, **({"moved": moved} if moved else {})}
    return scenario_from_table(scenario_table(**{**SETTINGS, "workload": load, **parts}), "test")


def test_a_scenario_is_read_as_it_was_written_and_moved_when_it_is_simulated():
    found = scenario()
    assert not found.workload.moved.applied
    assert Asked.of(found).moved.rule == "given"
    assert resolve(found).workload == moved_to(found.workload, "GPU")
    result = simulate(found)
    assert (result.scenario, result.scenario_hash, result.moved) == (found, found.hash, Asked.of(found).moved)
    assert Result.model_validate_json(result.to_json()) == result
    warning = next(each for each in warnings_of(Asked.of(found)) if each.code == "moved-device")
    assert warning.range == (0.2, 0.5)
    assert "'CPU'" in warning.text
    assert "'GPU'" in warning.text
    assert "0.316 times" in warning.text
    assert "(0.2 to 0.5)" in warning.text
    assert "my own benchmark" in warning.text
    assert "taken to have" not in warning.text
    assert not {"other-device", "no-uncertainty"} & {each.code for each in warnings_of(Asked.of(found))}


def test_a_moved_workload_on_a_cluster_that_names_no_device_says_which_it_is_taken_to_have():
    moved = resolve(scenario()).workload
    bare = Scenario(**{**{name: getattr(scenario(), name) for name in ("strategy", "run")}, "workload": moved,
                       "cluster": scenario().cluster.model_copy(update={"device": ""})})  # fmt: skip
    warning = next(each for each in warnings_of(Asked.of(bare)) if each.code == "moved-device")
    assert "'GPU' (assumed" in warning.text


def test_intervals_widen_by_themselves():
    moved, plain = simulate(scenario()), simulate(scenario(None, cluster={"device": "CPU"}))
    speedup = moved.throughput_samples_per_s.mean / plain.throughput_samples_per_s.mean
    assert 2.0 < speedup < 5.0

    def width(result):
        return result.throughput_samples_per_s.high / result.throughput_samples_per_s.low

    assert width(plain) < 1.2
    assert 2.0 < width(moved) < 4.0  # the range alone is 2.5


def test_the_same_scenario_gives_the_same_result_and_is_not_moved_twice():
    first = scenario()
    again = scenario_from_table(first.model_dump(mode="json"), "printed")
    assert again == first
    assert again.hash == scenario().hash == first.hash
    once = resolve(first)
    assert resolve(once) is once
    assert scenario_from_table(once.model_dump(mode="json"), "printed") == once
    assert simulate(once).throughput_samples_per_s == simulate(first).throughput_samples_per_s
    with pytest.raises(ScenarioError, match=r"from 'CPU' to 'GPU', .*'TPU'"):
        scenario_from_table(apply_settings(once.model_dump(mode="json"), [("cluster.device", "TPU")]), "printed")


def test_what_twice_as_fast_a_device_brings_is_counted_from_its_own_times():
    moved = resolve(scenario()).workload
    assert with_compute(scenario(), 0.5).workload.forward.base_s == moved.forward.base_s / 2


def test_a_refusal_names_the_file():
    with pytest.raises(ScenarioError, match=r"^test: cluster\.device: .*'plain' .*'CPU', .*'GPU'"):
        scenario(None)


@pytest.mark.parametrize(
    ("moved", "why"),
    [
        ({"factor": [0.2, 0.5]}, "source is missing"),
        ({"factor": [0.5, 0.2], "source": "x"}, "low and high"),
        ({"factor": [0.2], "source": "x"}, "workload.moved.factor: must have at least 2"),
        ({"factor": [0.0, 0.5], "source": "x"}, "must be above 0"),
        ({"factor": ["0.1", 0.5], "source": "x"}, "must be a number"),
        ({"factor": [0.1, 0.5], "rule": "roofline"}, "rule is set by Paceline"),
        ({"source": "x"}, "workload.moved.factor: is missing"),
        (0.3, "workload.moved: 0.3 must"),
    ],
)
def test_a_wrong_factor_is_told_in_one_line(moved, why):
    with pytest.raises(ScenarioError) as caught:
        scenario(moved)
    assert why in str(caught.value)


def test_times_that_the_scenario_sets_itself_are_not_moved():
    load = workload(overridden=("forward", "backward.base_s"))
    assert moved_to(load, A100) is load
    with pytest.raises(ScenarioError):
        moved_to(workload(overridden=("forward",)), A100, [], published())


def test_a_workload_of_the_catalogue_that_was_measured_there_is_found(tmp_path: Path, monkeypatch):
    from calibrate.fit.writing import write_fitted

    monkeypatch.chdir(tmp_path)
    for name, device, per_sample in (("on-v100", V100, 1e-3), ("on-a100", A100, 4e-4)):
        write_fitted(
            workload(device, name=name, model="mine", forward=Affine(base_s=0.0, per_sample_s=per_sample)), tmp_path / f"{name}.toml"
        )
    (tmp_path / "models" / "workloads").mkdir(parents=True)
    (tmp_path / "on-a100.toml").rename(tmp_path / "models" / "workloads" / "on-a100.toml")
    table = scenario_table(**{**SETTINGS, "cluster": {"device": A100}})
    found = scenario_from_table({**table, "workload": {"use": "on-v100.toml", "batch_per_replica": 8}}, "test", tmp_path)
    assert Asked.of(found).moved.rule == "measured-there"
    assert resolve(found).workload.forward.per_sample_s == 4e-4
    assert with_compute(found, 0.5).workload.forward.per_sample_s == 2e-4  # of the device that the cluster has


# --- prices ------------------------------------------------------------------------------------------------


def priced(**price) -> dict:
    return {"usd_per_node_hour": 1.0, "source": "a page", "terms": "spot", "date": "2024-01-01", **price}


@pytest.mark.parametrize("key", ["price", "server_price"])
def test_a_price_of_the_scenarios_own_does_not_keep_the_files_source(key, tmp_path: Path):
    (tmp_path / "mine.toml").write_text(
        f'name = "mine"\ninter_node = {{bandwidth = "1 GB/s"}}\n[{key}]\n'
        'usd_per_node_hour = 1.0\nsource = "a page"\nterms = "spot"\ndate = "2024-01-01"\n'
    )
    for cluster in ({"use": "mine.toml"}, {"name": "mine", "inter_node": {"bandwidth": "1 GB/s"}, key: priced()}):
        table = {**scenario_table(**{**SETTINGS, "workload": {}}), "cluster": cluster}
        kept = getattr(scenario_from_table(apply_settings(table, []), "test", tmp_path).cluster, key)
        assert (kept.usd_per_node_hour, kept.source) == (1.0, "a page")
        set_own = apply_settings(table, [(f"cluster.{key}.usd_per_node_hour", 2.0)])
        own = getattr(scenario_from_table(set_own, "test", tmp_path).cluster, key)
        assert (own.usd_per_node_hour, own.source, own.terms, own.date) == (2.0, "given in the scenario", "", "")
        sourced = apply_settings(table, [(f"cluster.{key}.usd_per_node_hour", 2.0), (f"cluster.{key}.source", "an offer")])
        assert getattr(scenario_from_table(sourced, "test", tmp_path).cluster, key).source == "an offer"
        only = apply_settings(table, [(f"cluster.{key}.terms", "reserved")])
        assert getattr(scenario_from_table(only, "test", tmp_path).cluster, key).source == "a page"


# --- published rows ----------------------------------------------------------------------------------------


def test_every_published_row_has_a_source_and_a_known_shape():
    speeds = load_published_throughputs()
    assert len(speeds.rows) > 400
    assert all(row.url.startswith("https://") for row in speeds.rows)
    assert {row.precision for row in speeds.rows} == {"float32", "mixed_float16"}
    named = {row.device for row in speeds.rows}
    assert {"H100-PCIE-80GB", "Tesla P100, link not stated"} >= {name for name in named if accelerator_named(name) is None}
    assert len(
        {(row.source, row.software, row.model, row.precision, row.device, row.batch, row.setting, row.throughput) for row in speeds.rows}
    ) == len(speeds.rows)


@pytest.mark.slow
def test_pairs_stand_in_both_directions_and_never_on_one_device():
    pairs = load_published_throughputs().pairs
    assert all(not same_device(pair.here, pair.there) for pair in pairs)
    forth = {(pair.source, pair.software, pair.model, pair.precision, pair.here, pair.there, pair.unit): pair.factor for pair in pairs}
    for (*rest, here, there, unit), factor in forth.items():
        assert forth[(*rest, there, here, unit)] == pytest.approx(1.0 / factor)


def test_k80_to_p100_as_tensorflow_published_it():
    # TensorFlow's benchmarks of May 2017: 142 images/s on P100, 30.5, 30.8 and 29.7 on K80, batch 64
    (pair,) = load_published_throughputs().pairs_of("InceptionV3", "float32", "K80", "Tesla P100-SXM2")
    assert 1.0 / pair.factor == pytest.approx(142 / (30.5 * 30.8 * 29.7) ** (1 / 3))


def test_mixed_precision_gains_are_ranges_with_sources():
    low, mid, high, sources = precision_gain(V100, "resnet-50")
    assert 1.5 < low < mid < high < 5.0
    assert 2.5 < mid < 3.5
    assert all(source.startswith("https://") for source in sources)
    wide = precision_gain(V100)
    assert wide[0] < low
    assert wide[2] > high
    assert precision_gain(V100, "a model of nobody") == wide
    assert precision_gain(K80) is None
    assert precision_gain("a device of nobody") is None


def test_a_gain_is_of_one_software_on_one_device():
    rows = [speed(V100, 100.0), speed(V100, 250.0).model_copy(update={"precision": "mixed_float16"})]
    rows += [speed(A100, 900.0).model_copy(update={"precision": "mixed_float16"})]
    found = speed_ups(PublishedThroughputs(rows, []))
    assert [(each.model, each.device, each.gain) for each in found] == [("resnet50", V100, pytest.approx(2.5))]


def test_student_t_of_a_scatter():
    assert Scatter(0.1, 1).half_width(1) == pytest.approx(6.313752 * 0.1 * math.sqrt(2), rel=1e-5)
    assert Scatter(0.1, 10**6).half_width() == pytest.approx(1.644854 * 0.1, rel=1e-4)


def test_a_broken_row_is_told_with_its_line(tmp_path: Path, monkeypatch):
    home = tmp_path / "models" / "published"
    home.mkdir(parents=True)
    (tmp_path / "models" / "clusters").mkdir()
    (home / "speed_models.toml").write_text("")
    heads = ",".join(PublishedThroughput.model_fields)
    (home / "speeds.csv").write_text(f"{heads}\na,b,c,float32,d,one,,1,images/s,,,https://example.org\n")
    monkeypatch.setattr("simulator.resolve.published_throughputs.own_file", lambda name: tmp_path / "models" / name)
    with pytest.raises(ScenarioError, match=r"speeds\.csv: line 2: "):
        load_published_throughputs()


def test_every_counted_model_is_named_by_rows_or_serves_as_a_model():
    models = load_published_throughputs().models
    assert len({model.id for model in models}) == len(models)
    assert all(isinstance(model, Model) and len(model.source) > 20 for model in models)
