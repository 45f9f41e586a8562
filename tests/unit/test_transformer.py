"""Workloads that are computed from published dimensions: formulas against published figures, and that nothing passes as measured."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from evidence.published.shares import SHARES, fitted, rows_of
from simulator import simulate
from simulator.base.catalog import entries
from simulator.base.errors import ScenarioError
from simulator.catalogue.loading import load_scenario, load_workload
from simulator.resolve.device_transfer import moved_to
from simulator.resolve.published_throughputs import load_published_throughputs
from simulator.resolve.resolve import resolve
from simulator.results.inadequacy import coverage
from simulator.spec.accelerator import accelerator_named
from simulator.spec.computed import BLACKWELL, CONSTANTS, EAGER, LAUNCH_SHARES, NEWER, attention_reach, step_of
from simulator.spec.constants import Known, constants
from simulator.spec.dimensions import ExpertsOf, Residual, Transformer
from simulator.spec.workload import Workload

GPT = {"layers": 24, "hidden": 2048, "heads": 16, "sequence": 2048, "vocabulary": 51200}
LLAMA = {
    "layers": 32, "hidden": 4096, "heads": 32, "key_value_heads": 8, "sequence": 8192, "vocabulary": 128256, "feed_forward": 14336,
    "gated": True, "tied": False, "bias": False, "dropout": False, "positions": 0, "attention": "fused",
}  # fmt: skip
COMPUTED = ("bert-base", "bert-tiny", "gpt-1.3b", "gpt-18b", "mixtral-8x7b", "resnet-50")
SCENARIO = {
    "workload": {"use": "gpt-1.3b", "batch_per_replica": 2},
    "cluster": {"use": "p4d.24xlarge"},
    "strategy": {"kind": "multi-worker-mirrored", "workers": 1, "replicas_per_worker": 8},
    "run": {"steps": 10, "replications": 19},
}


def workload(**changes) -> Workload:
    return Workload.model_validate({"name": "w", "precision": "mixed_float16", "transformer": GPT, **changes})


def of(name: str) -> Workload:
    return load_workload(entries("workloads")[name])


def size_of(dimensions: Transformer | Residual) -> int:
    return sum(each.size for block in dimensions.blocks(2) for each in block.parameters)


def flops(dimensions: Transformer | Residual, *, forward: bool = True, backward: bool = True) -> float:
    passes = [each for block in dimensions.blocks(2) for each in (block.forward,) * forward + (block.backward,) * backward]
    return sum(each.all_flops for each in passes)


# -- formulas against published figures ------------------------------------------------


@pytest.mark.parametrize(
    ("dimensions", "published"),
    [
        # released checkpoints
        ({"layers": 12, "hidden": 768, "heads": 12, "sequence": 1024, "vocabulary": 50257}, 124_439_808),  # GPT-2
        ({**LLAMA}, 8_030_261_248),  # Llama 3 8B
        ({**LLAMA, "vocabulary": 32000, "sequence": 4096, "experts": {"count": 8}}, 46_702_792_704),  # Mixtral 8x7B
        (
            {"architecture": "encoder", "layers": 12, "hidden": 768, "heads": 12, "sequence": 512, "vocabulary": 30522},
            110_106_428,
        ),  # BERT-base
        # mosaicml/llm-foundry, scripts/train/benchmarking/README.md at 8c8dd48f
        ({"layers": 12, "hidden": 768, "heads": 12, "sequence": 2048, "vocabulary": 50368}, 125_311_488),
        ({"layers": 24, "hidden": 2048, "heads": 16, "sequence": 2048, "vocabulary": 50368}, 1_315_950_592),
        ({"layers": 48, "hidden": 7168, "heads": 56, "sequence": 2048, "vocabulary": 50368}, 29_975_214_080),
    ],
)
def test_parameters_are_those_of_released_models(dimensions, published):
    found = Transformer.model_validate(dimensions)
    assert size_of(found) == published
    assert workload(transformer=dimensions).parameter_bytes == 4.0 * published


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "billions"),
    # Narayanan et al., SC 2021, table 1
    [(24, 2304, 24, 1.7), (30, 3072, 32, 3.6), (36, 4096, 32, 7.5), (40, 6144, 48, 18.4), (48, 8192, 64, 39.1), (96, 12288, 96, 174.6)],
)
def test_parameters_and_operations_are_those_of_the_megatron_paper(layers, hidden, heads, billions):
    found = Transformer(layers=layers, hidden=hidden, heads=heads, sequence=2048, vocabulary=51200)
    assert size_of(found) / 1e9 == pytest.approx(billions, abs=0.06)
    # the paper's 96 B s l h^2 (1 + s / 6h + V / 16 l h) counts each layer's forward pass twice, for recomputation
    again = layers * flops_of_layer(found)
    s, v = 2048, 51200
    theirs = 96 * s * layers * hidden**2 * (1 + s / (6 * hidden) + v / (16 * layers * hidden))
    assert flops(found) + again == pytest.approx(theirs, rel=1e-12)


def flops_of_layer(dimensions: Transformer) -> float:
    return dimensions.blocks(2)[1].forward.all_flops


@pytest.mark.parametrize(("s", "a", "h"), [(2048, 16, 2048), (1024, 12, 768)])
def test_activations_are_those_of_korthikanti(s, a, h):
    """Equations 1, 2 and 5 of arXiv:2205.05198, in bytes per sample."""
    layer = Transformer(layers=2, hidden=h, heads=a, sequence=s, vocabulary=50000).blocks(2)[1]
    assert layer.kept_bytes == s * h * (34 + 5 * a * s / h)
    assert layer.kept_selectively_bytes == 34 * s * h
    assert layer.kept_whole_bytes == 10 * s * h
    assert layer.output_bytes == 2 * s * h
    head = Transformer(layers=2, hidden=h, heads=a, sequence=s, vocabulary=50000).blocks(2)[-1]
    assert head.kept_bytes + 4 * head.logits == 4 * s * h * (1 + 50000 / h), "section 4.3"


def test_a_residual_network_is_that_of_he_and_that_of_keras():
    ours, keras = Residual(stages=(3, 4, 6, 3)), Residual(stages=(3, 4, 6, 3), stride="first", bias=True)
    assert size_of(ours) == 25_557_032, "torchvision's resnet50"
    assert flops(ours, backward=False) / 2 == pytest.approx(4.09e9, rel=0.001), "its multiply-adds"
    assert flops(keras, backward=False) / 2 == pytest.approx(3.8e9, rel=0.02), "He et al., table 1"
    # Keras' ResNet50 as the calibrator's probe counted it from TensorFlow's graph (models/published/speed_models.toml)
    known = {model.id: model for model in load_published_throughputs().models}
    assert size_of(keras) == known["resnet-50"].parameters
    assert flops(keras) == pytest.approx(known["resnet-50"].flops_per_sample, rel=1e-4)
    other = Residual(stages=(3, 4, 23, 3), stride="first", bias=True)
    assert (size_of(other), flops(other)) == (
        known["resnet-101"].parameters,
        pytest.approx(known["resnet-101"].flops_per_sample, rel=1e-4),
    )


@pytest.mark.parametrize(("name", "layers", "hidden", "s"), [("bert-base-384", 12, 768, 384), ("bert-large-128", 24, 1024, 128)])
def test_a_transformer_asks_what_tensorflow_counts(name, layers, hidden, s):
    """Of the layers alone, as the published model was counted; its input has no gradient there: that of query, key and value."""
    counted = next(model for model in load_published_throughputs().models if model.id == name).flops_per_sample
    found = Transformer(architecture="encoder", layers=layers, hidden=hidden, heads=hidden // 64, sequence=s, vocabulary=30522)
    mine = sum(block.forward.all_flops + block.backward.all_flops for block in found.blocks(4)[1:-1])
    assert mine - 2 * s * 3 * hidden**2 == pytest.approx(counted, rel=0.005)


# -- layers ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMPUTED)
def test_each_of_the_catalogue_says_that_it_is_computed_and_from_what(name):
    found = of(name)
    assert found.is_computed
    assert found.calibrated is None
    assert found.provenance["times"].startswith("computed")
    assert "arXiv" in found.provenance["dimensions"]
    assert sum(layer.forward for layer in found.layers) == pytest.approx(found.forward.per_sample_s)
    assert sum(layer.backward_work for layer in found.layers) == pytest.approx(found.backward.per_sample_s)
    assert {layer.tensor is None for layer in found.layers} == {name == "resnet-50"}


def test_gradients_become_ready_as_their_layers_are_done():
    found = workload()
    assert [variable.ready for variable in found.variables] == sorted(variable.ready for variable in found.variables)
    assert found.variables[-1].ready == 1.0
    assert found.variables[-1].creation_index == 0
    last_of_head = max(variable.ready for variable in found.variables if variable.name.startswith("head/"))
    assert last_of_head == pytest.approx(found.layers[-1].backward_work / found.backward.per_sample_s, rel=1e-6)


def test_experts_do_as_much_work_as_each_token_takes_and_have_all_variables():
    plain, mixed = Transformer.model_validate(LLAMA), Transformer.model_validate({**LLAMA, "experts": {"count": 8, "used": 1, "every": 2}})
    layers = workload(transformer=mixed.model_dump()).layers
    with_experts = [layer for layer in layers if layer.experts is not None]
    assert [layer.name for layer in with_experts] == [f"layer_{number}" for number in range(1, 32, 2)]
    assert len(with_experts[0].experts.variables) == 3
    router = 2 * 8192 * 4096 * 8
    assert mixed.blocks(2)[2].forward.all_flops - router == plain.blocks(2)[2].forward.all_flops
    assert size_of(mixed) - size_of(plain) == 16 * (7 * 3 * 4096 * 14336 + 8 * 4096)


def test_megatrons_all_reduces_are_those_of_a_split_layer():
    layer = workload().layers[1]
    assert layer.tensor.forward_bytes_per_sample == layer.tensor.backward_bytes_per_sample == (2 * 2048 * 2048,) * 2
    assert 0.9 < layer.tensor.divided < 1.0, "norms and sums are done whole"
    assert layer.tensor.kept_whole == pytest.approx(10 / (34 + 5 * 16))


# -- times -----------------------------------------------------------------------------


def test_times_are_operations_and_bytes_over_their_shares_of_the_datasheet():
    found, known = workload(), constants()
    passes = [block.forward for block in Transformer.model_validate(GPT).blocks(2)]
    products = [product for each in passes for product in each.products]
    bare_s = sum(max(flops * (1 + 32 / inner) / 312e12, moved / 2039e9) for flops, moved, inner, _ in products)
    bare_s /= known["matrix_share"].value
    moving_s = sum(each.moved_bytes for each in passes) / (2039e9 * known["fused_elementwise_share"].value)
    assert found.forward.per_sample_s == pytest.approx(bare_s + moving_s, rel=1e-12)
    assert found.forward.least_s == pytest.approx(sum(each.kernels for each in passes) * known["kernel_start_s"].value)
    assert found.counted.flops_per_sample == flops(Transformer.model_validate(GPT))


# TFLOP/s of FlashAttention-2 on an H100: Shah et al., "FlashAttention-3", arXiv:2407.08608, figures 5 and 6, by whether backward,
# whether masked, and values of a head; sequences of 512, 1,024, ... 16,384
FLASH_ATTENTION = {
    (False, False, 64): (282, 306, 318, 321, 322, 324),
    (False, False, 128): (309, 350, 362, 368, 370, 370),
    (False, True, 64): (180, 229, 262, 284, 295, 299),
    (False, True, 128): (191, 260, 298, 319, 333, 335),
    (True, False, 128): (214, 260, 291, 310, 318, 322),
}


@pytest.mark.parametrize("kind", FLASH_ATTENTION)
def test_a_fused_attention_is_as_fast_as_length_head_mask_and_pass_leave(kind):
    backward, causal, head = kind
    for power, speed in enumerate(FLASH_ATTENTION[kind]):
        reach = attention_reach(512 << power, head, causal=causal, backward=backward)
        assert 370 * reach == pytest.approx(speed, rel=0.165 if backward and not power else 0.13)


def test_attention_of_a_few_tokens_is_slow_and_no_head_is_faster_than_one_of_128():
    reaches = [attention_reach(tokens, 128, causal=True, backward=False) for tokens in (1, 64, 512, 8192, 10**6)]
    assert reaches == sorted(reaches)
    assert reaches[0] < 0.01
    assert reaches[-1] == pytest.approx(0.92, rel=1e-3)
    assert attention_reach(4096, 256, causal=False, backward=False) == attention_reach(4096, 128, causal=False, backward=False)


@pytest.mark.parametrize(
    ("hidden", "heads", "layers", "shorter", "longer"),
    [
        (768, 12, 12, (2048, 40 * 2048 * 2, 1.1471), (65536, 65536 * 2, 6.435)),
        (2048, 16, 24, (2048, 14 * 2048 * 4, 5.591), (32768, 32768 * 4, 20.885)),
        (2560, 20, 32, (2048, 10 * 2048 * 2, 3.7886), (16384, 16384 * 6, 17.779)),
    ],
)
def test_a_token_of_a_long_sequence_takes_longer_by_what_attention_does(hidden, heads, layers, shorter, longer):
    """llm-foundry, MPT of 125M, 1B and 3B on A100 of 80 GB (models/published/hybrids.csv): tokens of a device's step, and its seconds."""
    seconds = []
    for sequence, tokens, measured_s in (shorter, longer):
        table = {"layers": layers, "hidden": hidden, "heads": heads, "sequence": sequence, "vocabulary": 50368, "attention": "fused"}
        step = step_of(Transformer(**table, dropout=False, bias=False, kernels="separate"), "mixed_bfloat16", "A100-SXM4-80GB")
        seconds.append(((step["forward"]["per_sample_s"] + step["backward"]["per_sample_s"]) / sequence, measured_s / tokens))
    (predicted, measured), (predicted_longer, measured_longer) = seconds
    assert predicted_longer - predicted == pytest.approx(measured_longer - measured, rel=0.2)


def test_devices_of_newer_generations_get_less_of_their_peak():
    older, newer = ("Tesla V100-SXM2", "A100-SXM4-80GB", "RTX A6000", "RTX 4090"), ("H100-SXM5-80GB", "H200", "B200", "GB200")
    assert [accelerator_named(name).newer for name in (*older, *newer)] == [False] * 4 + [True] * 4
    assert not accelerator_named("2 x Xeon Platinum 8124M").newer
    known = {name: constants()[name].plain for name in CONSTANTS}
    whole = {**known, **dict.fromkeys(NEWER, Known(value=1.0, low=1.0, high=1.0))}
    for table, name in ((GPT, "newer_matrix_share"), (LLAMA, "newer_attention_share")):
        load = Transformer.model_validate(table)
        less, all_of_it = (step_of(load, "mixed_bfloat16", "H100-SXM5-80GB", own)["forward"]["per_sample_s"] for own in (known, whole))
        assert 1.02 < less / all_of_it < 1.0 / constants()[name].value
        on_a100 = [step_of(load, "mixed_bfloat16", "A100-SXM4-80GB", own)["forward"]["per_sample_s"] for own in (known, whole)]
        assert on_a100[0] == on_a100[1]


def test_draws_spread_as_the_constants_do():
    found = workload()
    drawn = dict(zip(found.uncertainty.parameters, np.array(found.uncertainty.draws).T, strict=True))
    times = drawn["forward.per_sample_s"]
    assert times.mean() == pytest.approx(found.forward.per_sample_s, rel=0.05)
    assert 1.5 < np.quantile(times, 0.95) / np.quantile(times, 0.05) < 4.0


@pytest.mark.slow
def test_the_constants_are_what_the_published_rows_give():
    found = fitted(rows_of(load_published_throughputs()))
    for name in SHARES:
        assert found.constants[name] == constants()[name].plain, "run python -m evidence.published.shares"
    assert np.median(np.abs(found.errors)) < 0.2


def test_rows_of_a_source_left_out_lie_within_the_intervals():
    """Nine of ten of them, each by a fit without its source; with the constants drawn independently."""
    rows = rows_of(load_published_throughputs())
    held = []
    for source in sorted({row.source for row in rows}):
        found = fitted([row for row in rows if row.source != source]).constants
        for row in rows:
            if row.source == source:
                values = {name: known.value for name, known in found.items()}
                wide = math.log(found["elementwise_share"].high / found["elementwise_share"].value)
                part = row.product_s / values["matrix_share"] / row.predicted_s(values)
                held.append(abs(math.log(row.predicted_s(values) / row.measured_s)) <= wide * math.hypot(part, 1.0 - part))
    assert len(held) == len(rows)
    assert np.mean(held) > 0.8


# -- as a workload ---------------------------------------------------------------------


def test_what_is_given_wins_and_what_was_filled_in_stays():
    found = workload(forward={"base_s": 0.0, "per_sample_s": 1.0})
    assert found.forward.per_sample_s == 1.0
    assert "forward" not in found.computed.keys
    assert not any(name.startswith("forward") for name in found.uncertainty.parameters)
    assert Workload.model_validate(json.loads(found.to_json())) == found
    assert Workload.model_validate(found.model_dump(context={"filled": True})) == found
    assert not {"variables", "layers", "backward"} & json.loads(found.to_json()).keys(), "what follows from dimensions is not written"
    other = found.model_copy(update={"backward": found.forward})
    assert Workload.model_validate(json.loads(other.to_json())) == other
    assert workload() == workload()
    measured = workload(forward={"base_s": 0.0, "per_sample_s": 1.0}, backward={"base_s": 0.0, "per_sample_s": 2.0})
    assert not measured.is_computed
    assert len(measured.layers) == 26


def test_a_workload_without_dimensions_is_written_as_before():
    written = of("cnn-cpu").model_dump(mode="json")
    assert not {"transformer", "residual", "computed"} & written.keys()


def test_settings_reach_dimensions_of_files_and_of_loaded_scenarios():
    for given in (SCENARIO, load_scenario(SCENARIO)):
        shorter = load_scenario(given, {"workload.transformer.sequence": 1024}).workload
        assert shorter.forward.per_sample_s < of("gpt-1.3b").forward.per_sample_s / 2
        other = load_scenario(given, {"workload.precision": "float32"}).workload
        assert other.layers[1].output_bytes_per_sample == 2 * of("gpt-1.3b").layers[1].output_bytes_per_sample
        own = load_scenario(given, {"workload.forward.per_sample_s": 1.0}).workload
        assert (own.forward.per_sample_s, own.forward.base_s, "forward" in own.computed.keys) == (1.0, 0.0, False)
        assert own.overridden == ("forward",) or own.overridden == ("forward.per_sample_s",)
        assert not any(name.startswith("forward.per_sample_s") for name in own.uncertainty.parameters)
        same = load_scenario(given, {"workload.batch_per_replica": 4}).workload
        assert same.forward == of("gpt-1.3b").forward


def test_times_are_computed_for_the_clusters_device_and_with_the_scenarios_constants():
    on_a100 = resolve(load_scenario(SCENARIO))
    on_v100 = resolve(load_scenario(SCENARIO, {"cluster.use": "p3dn.24xlarge"}))
    assert (on_a100.workload.device, on_v100.workload.device) == ("A100-SXM4-40GB", "Tesla V100-SXM2-32GB")
    assert on_v100.workload.compute_s(1) > 1.9 * on_a100.workload.compute_s(1)
    assert on_v100.workload.moved is None
    assert resolve(on_v100) == on_v100
    half = resolve(load_scenario(SCENARIO, {"practice.fused_elementwise_share": 0.31})).workload
    assert half.compute_s(1) > 1.3 * on_a100.workload.compute_s(1)
    assert half.layers[1].tensor.divided != on_a100.workload.layers[1].tensor.divided
    given = load_scenario(SCENARIO, {"workload.moved": {"factor": [2.0, 2.0], "source": "mine"}})
    assert resolve(given).workload.forward.per_sample_s == 2 * given.workload.forward.per_sample_s


def test_nothing_computed_stands_in_for_a_measurement():
    """A measured ResNet-50 is not moved to the A100 by way of the computed one of that name."""
    table = {
        "name": "mine", "model": "resnet-50", "precision": "mixed_float16", "forward": {"base_s": 0.0, "per_sample_s": 1e-3},
        "backward": {"base_s": 0.0, "per_sample_s": 2e-3}, "calibrated": {"batch": [1, 64], "device": "Tesla V100-SXM2"},
        "variables": [variable.model_dump() for variable in of("resnet-50").variables],
    }  # fmt: skip
    load = Workload.model_validate({**table, "batch_per_replica": 64})
    moved = resolve(load_scenario({**SCENARIO, "workload": load.model_dump(mode="json", exclude_none=True)})).workload
    assert moved.moved.rule == "published-pair"
    assert moved_to(load, "A100-SXM4-80GB", [of("resnet-50")]).moved.rule != "measured-there"


def test_a_result_says_what_nobody_measured():
    scenario = load_scenario(SCENARIO, [("run.memory", "ignore")])  # it does not fit into 40 GB
    result = simulate(scenario)
    warned = {warning.code: warning.text for warning in result.warnings}
    assert "was not measured" in warned["computed"]
    assert "A100-SXM4-40GB" in warned["computed"]
    assert "not-calibrated" not in warned
    assert {each.grade for each in coverage(resolve(scenario))} == {"uncovered"}
    told = " ".join(each.value + each.reason for each in result.assumed)
    assert all(name in told for name in ("matrix_share", "elementwise_share", "kernel_start_s"))
    throughput = result.throughput_samples_per_s
    assert throughput.high / throughput.low > 1.5, "the constants' intervals are in it"
    assert simulate(scenario).throughput_of_each_replication == result.throughput_of_each_replication


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({**GPT, "heads": 15}, "hidden (2048) must be a multiple of heads (15)"),
        ({**GPT, "key_value_heads": 3}, "must be a multiple of key_value_heads"),
        ({**GPT, "hiden": 1}, "transformer.hiden: "),
        ({**GPT, "layers": 0}, "transformer.layers: 0 must be at least 1"),
        ({**GPT, "device": "A100-SXM4-8GB"}, "did you mean a100-sxm4-80gb?"),
        ({**GPT, "device": "Tesla K80"}, "needs a peak rate for mixed_float16"),
        ({**GPT, "experts": {"count": 2, "used": 3}}, "used (3) must be at most count (2)"),
        ({key: value for key, value in GPT.items() if key != "hidden"}, "transformer.hidden: is missing"),
    ],
)
def test_bad_dimensions_get_one_line(table, message):
    with pytest.raises(ScenarioError) as error:
        load_scenario({**SCENARIO, "workload": {"name": "w", "precision": "mixed_float16", "batch_per_replica": 1, "transformer": table}})
    assert len(error.value.args) == 1
    assert message in error.value.args[0]


def test_two_tables_of_dimensions_are_one_too_many():
    with pytest.raises(ScenarioError, match="has both transformer and residual; keep one"):
        load_scenario({**SCENARIO, "workload": {"name": "w", "batch_per_replica": 1, "transformer": GPT, "residual": {"stages": [1]}}})


def test_every_constant_is_used_by_some_model():
    tables = GPT, LLAMA, {**GPT, "kernels": "separate"}, *({**LLAMA, "flash_attention": version} for version in (2, 3))
    used = {name for table in tables for name in Transformer.model_validate(table).constants} | set(Residual(stages=(1,)).constants)
    assert used | {*NEWER, BLACKWELL, EAGER, *LAUNCH_SHARES} == set(CONSTANTS)
    on = {
        name: set(step_of(Transformer(**GPT), "mixed_bfloat16", name)["computed"]["constants"]) for name in ("B200-SXM-180GB", "H100-SXM")
    }
    assert on["B200-SXM-180GB"] - on["H100-SXM"] == {BLACKWELL}
    newer, older = (set(step_of(Transformer(**GPT), "mixed_float16", on)["computed"]["constants"]) for on in ("H100-SXM", "A100-SXM-80GB"))
    assert newer > set(NEWER)
    assert not older & set(NEWER)
    assert ExpertsOf(count=4).used == 2


MODERN = {"gated": True, "bias": False, "dropout": False, "positions": 0, "attention": "fused", "sequence": 4096}
QWEN = {**MODERN, "layers": 28, "hidden": 1024, "heads": 16, "key_value_heads": 8, "head_width": 128, "feed_forward": 3072,
        "vocabulary": 151936, "query_key_norm": True}  # fmt: skip
DEEPSEEK = {
    **MODERN, "layers": 61, "hidden": 7168, "heads": 128, "head_width": 128, "vocabulary": 129280, "tied": False, "feed_forward": 18432,
    "latent": {"query_rank": 1536, "key_value_rank": 512, "rotary_width": 64, "value_width": 128},
    "experts": {"count": 256, "used": 8, "feed_forward": 2048, "shared": 2048, "dense_layers": 3},
}  # fmt: skip


@pytest.mark.parametrize(
    ("dimensions", "published"),
    [
        (QWEN, 596_049_920),  # Qwen3-0.6B
        ({**MODERN, "layers": 48, "hidden": 2048, "heads": 32, "key_value_heads": 4, "head_width": 128, "vocabulary": 151936, "tied": False,
          "query_key_norm": True, "experts": {"count": 128, "used": 8, "feed_forward": 768}}, 30_532_122_624),  # Qwen3-30B-A3B
        (DEEPSEEK, 671_026_404_352),  # DeepSeek-V3, without its module that predicts a further token
    ],
)  # fmt: skip
def test_parameters_are_those_of_newer_models(dimensions: dict[str, object], published: int) -> None:
    assert size_of(Transformer.model_validate(dimensions)) == published


def test_parameters_of_a_token_are_those_that_are_activated() -> None:
    assert Transformer.model_validate(DEEPSEEK).parameters_per_token / 1e9 == pytest.approx(37, abs=0.5), "DeepSeek-V3's report"
    further = size_of(Transformer.model_validate({**DEEPSEEK, "further_tokens": 1})) - size_of(Transformer.model_validate(DEEPSEEK))
    assert (further + 2 * 129280 * 7168) / 1e9 == pytest.approx(14, abs=0.6), "with embedding and head, which its files repeat"


def test_adapters_are_trained_and_all_else_is_frozen() -> None:
    """10,092,544 of Qwen3-0.6B by rank 16 at all matrices of its layers, as Hugging Face's PEFT counts."""
    adapted = workload(transformer={**QWEN, "adapter_rank": 16})
    assert adapted.parameter_bytes == 4 * 10_092_544
    assert sum(layer.frozen_bytes for layer in adapted.layers) == 4 * 596_049_920
    whole = workload(transformer=QWEN)
    # gradients of weights are left out, and adapters have three products each
    saved = 2 * 4096 * Transformer.model_validate(QWEN).parameters_per_token - 6 * 4096 * 10_092_544
    assert whole.counted.flops_per_sample - adapted.counted.flops_per_sample == pytest.approx(saved, rel=1e-9)


def test_products_in_8_bits_take_half_as_long_and_keep_half() -> None:
    short, full = (
        workload(transformer={**QWEN, "float8": float8, "device": "H100-SXM5-80GB"}, precision="mixed_bfloat16") for float8 in (True, False)
    )
    assert 0.5 < short.forward.per_sample_s / full.forward.per_sample_s < 0.9
    h, q, f, s = 1024, 2048, 3072, 4096
    assert full.layers[1].kept_bytes_per_sample - short.layers[1].kept_bytes_per_sample == s * (2 * h + f - q), "norms, gate; results twice"
