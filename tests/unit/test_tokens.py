"""Tokens and MFU: by hand, as published, and as goals."""

from __future__ import annotations

from typing import Any

import pytest
from support.scenarios import scenario_table

import paceline
from paceline.answers import answer_of
from paceline.planning.goal import goal_of, length_of
from paceline.planning.sentences import answer_of_plan
from paceline.reporting.columns import columns_of
from paceline.reporting.coordinates import coordinates_of
from simulator import load_scenario, scenario_from_table, simulate
from simulator.base.errors import InputError, ScenarioError
from simulator.results.results import Result
from simulator.results.rows import IN_SAMPLES, IN_TOKENS, brief_of
from simulator.spec.accelerator import accelerator_named
from simulator.spec.dimensions import Transformer
from simulator.spec.figures import Unit

SHORT = [("run.steps", 6), ("run.warmup_steps", 1), ("run.replications", 3)]
GPT_2 = {"layers": 12, "hidden": 768, "heads": 12, "sequence": 1024, "vocabulary": 50257}
FORWARD = 2 * (12 * 12 * 768**2 + 768 * 50257) + 4 * 12 * 768 * 1024
"""Operations of a token's forward pass: matrices of layers and head, and scores."""


def measured(seconds: float, batch: int = 8, **cluster: Any) -> Result:
    """GPT-2, whose step was measured to take this long, on one device."""
    half = {"base": "0 s", "per_sample": f"{seconds / batch / 2!r} s"}
    load = {
        "forward": half,
        "backward": half,
        "apply": "0 s",
        "transformer": GPT_2,
        "batch_per_replica": batch,
        "precision": "mixed_bfloat16",
    }
    return simulate(scenario_from_table(scenario_table(workload=load, cluster=cluster), "test"))


@pytest.mark.parametrize(
    ("model", "samples_per_s", "devices", "peak", "share"),
    [
        # Megatron-LM, images/tables.tex: teraFLOP/s with all layers' forward passes computed again, so by 96 B s l h^2 (1 + s/6h + V/16lh)
        ({"layers": 24, "hidden": 1920, "heads": 15, "sequence": 1024, "vocabulary": 51200}, 8 / 1.121, 1, 125e12, 71.9 / 125),
        ({"layers": 24, "hidden": 1920, "heads": 15, "sequence": 1024, "vocabulary": 51200}, 16 / 1.076, 1, 312e12, 149.8 / 312),
    ],
)
def test_megatrons_rows_give_their_published_teraflops(
    model: dict[str, int], samples_per_s: float, devices: int, peak: float, share: float
) -> None:
    gpt = Transformer(**model)
    head = 6.0 * gpt.vocabulary * gpt.hidden
    again = (6.0 * gpt.parameters_per_token - head + gpt.attention_flops_per_token) * 4 / 3 + head
    assert again * gpt.sequence * samples_per_s / devices / peak == pytest.approx(share, rel=2e-3)


@pytest.mark.parametrize(
    ("layers", "hidden", "sequence", "tokens_per_s", "devices", "peak", "mfu"),
    [
        # mosaicml/llm-foundry, scripts/train/benchmarking/README.md; it counts trained positions, 0.1% of the parameters
        (32, 4096, 2048, 37130, 8, 312e12, 0.6423),
        (80, 8192, 2048, 26274, 64, 312e12, 0.5333),
        (32, 4096, 2048, 85144, 8, 989.4e12, 0.4644),
    ],
)
def test_mpts_rows_give_their_published_mfu(
    layers: int, hidden: int, sequence: int, tokens_per_s: float, devices: int, peak: float, mfu: float
) -> None:
    mpt = Transformer(layers=layers, hidden=hidden, heads=hidden // 128, sequence=sequence, vocabulary=50368)
    flops = 6.0 * mpt.parameters_per_token + mpt.attention_flops_per_token
    assert flops * tokens_per_s / devices / peak == pytest.approx(mfu, rel=3e-3)


def test_experts_count_where_a_token_is_sent_and_an_encoders_head_where_it_predicts() -> None:
    mixtral = load_scenario("experts", [("workload.transformer.layers", 32)]).workload.transformer
    assert mixtral is not None
    layer = 2 * 4096 * (4096 + 1024) + 2 * 3 * 4096 * 14336 + 4096 * 8
    assert mixtral.parameters_per_token == 32 * layer + 32000 * 4096
    bert = Transformer(architecture="encoder", layers=12, hidden=768, heads=12, sequence=512, vocabulary=30522)
    assert bert.parameters_per_token == pytest.approx(12 * 12 * 768**2 + 0.15 * (30522 * 768 + 768**2))


def test_a_result_has_tokens_and_mfu_with_the_interval_of_its_throughput() -> None:
    result = simulate(load_scenario("fsdp", SHORT))
    tokens, rate = result.tokens, result.throughput_samples_per_s
    assert tokens is not None
    assert tokens.mfu is not None
    assert tokens.mfu_with_attention is not None
    parameters = 24 * 12 * 2048**2 + 50257 * 2048
    assert (tokens.per_sample, tokens.parameters) == (2048, parameters)
    for end in ("mean", "low", "high"):
        per_s = 2048 * getattr(rate, end)
        assert getattr(tokens.per_s, end) == pytest.approx(per_s)
        assert getattr(tokens.mfu, end) == pytest.approx(6 * parameters * per_s / (16 * 312e12))
        assert getattr(tokens.mfu_with_attention, end) == pytest.approx((6 * parameters + 12 * 24 * 2048 * 2048) * per_s / (16 * 312e12))
    row = result.row()
    assert (row["tokens_per_s"], row["mfu"]) == (tokens.per_s.mean, tokens.mfu.mean)
    assert " tokens/s, " in answer_of(result).headline
    assert Result.model_validate_json(result.model_dump_json(exclude={"checksum"})).tokens == tokens


def test_samples_without_sequences_have_none_and_tables_are_in_one_unit() -> None:
    of_images, of_tokens = (simulate(load_scenario(name, SHORT)) for name in ("ring", "fsdp"))
    assert of_images.tokens is None
    assert "tokens" not in of_images.model_dump()
    rows = {name: result.row() for name, result in (("images", of_images), ("tokens", of_tokens))}
    assert not {*brief_of([rows["images"]])} & {*IN_TOKENS, "mfu"}
    assert not {*brief_of([rows["tokens"]])} & {*IN_SAMPLES}
    assert {*IN_SAMPLES, "mfu"} <= {*brief_of([*rows.values()])}


def test_a_device_without_a_known_peak_has_tokens_and_no_mfu() -> None:
    known = measured(0.1, device="A100-SXM4-80GB")
    assert known.tokens is not None
    assert known.tokens.mfu_with_attention is not None
    assert known.tokens.mfu_with_attention.mean == pytest.approx(3 * FORWARD * 8 * 1024 / 0.1 / 312e12, rel=1e-9)
    others = {"name": "slow", "nodes": 1, "speed": 0.5}
    for unknown in (measured(0.1, device="an own chip"), measured(0.1, device="A100-SXM4-80GB", node_classes=[others])):
        assert unknown.tokens is not None
        assert unknown.tokens.mfu is None is unknown.tokens.mfu_with_attention
        assert "MFU" not in "".join(row.what for row in answer_of(unknown).figures)


def test_an_mfu_above_any_published_is_warned_of_by_the_run_that_reached_most() -> None:
    def warned(result: Result) -> list[str]:
        return [warning.brief for warning in result.warnings if warning.code == "mfu-above-published"]

    reached = accelerator_named("A100-SXM4-80GB")
    highest = reached.highest("mixed_bfloat16") if reached is not None else None
    assert highest is not None
    step_s = 3 * FORWARD * 8 * 1024 / 312e12 / highest.mfu
    assert not warned(measured(1.01 * step_s, device="A100-SXM4-80GB"))
    (brief,) = warned(measured(step_s / 1.5, device="A100-SXM4-80GB"))
    assert brief == "MFU of 96% is above the highest published for A100-SXM4-80GB, 64% (MPT-7B on 8 A100-SXM4-80GB, llm-foundry)"
    assert not warned(measured(step_s / 1.5, device="an own chip"))


def test_a_goal_in_tokens_is_that_in_samples_times_the_sequence() -> None:
    given: dict[str, Any] = {"epochs": None, "dataset_size": None, "rate": False}
    assert length_of("fsdp", [], samples=None, tokens=300e9, **given) == length_of("fsdp", [], samples=300e9 / 2048, **given)
    assert length_of("fsdp", [("job.tokens", 2049.0)], samples=None, **given).samples == 2
    rate = goal_of(target_throughput="1.2e6 tokens per min", unit=Unit("tokens", 2000)).target_throughput_samples_per_s
    assert rate == pytest.approx(10)
    jobs = [load_scenario("fsdp", [pair]) for pair in (("job.tokens", 2048e3), ("job.samples", 1000))]
    assert jobs[0].hash == jobs[1].hash
    replaced = load_scenario(jobs[0], [("job.tokens", 4096e3)])
    assert replaced.job is not None
    assert replaced.job.samples == 2000


def test_tokens_of_a_workload_without_sequences_are_refused_in_one_line() -> None:
    given: dict[str, Any] = {"samples": None, "epochs": None, "dataset_size": None, "rate": False}
    with pytest.raises(InputError, match=r"^`tokens` 300,000,000,000: the workload has no sequences of tokens .*; give samples$"):
        length_of("ring", [], tokens=300e9, **given)
    with pytest.raises(ScenarioError, match=r"job\.tokens: the workload has no sequences"):
        load_scenario("ring", [("job.tokens", 300e9)])
    with pytest.raises(InputError, match="no sequences"):
        paceline.plan("ring", target_throughput="1e6 tokens/s")
    with pytest.raises(InputError, match="both determine the length"):
        length_of("fsdp", [], tokens=300e9, **{**given, "samples": 1e6})
    with pytest.raises(ScenarioError, match="both set the length"):
        load_scenario("fsdp", [("job.tokens", 300e9), ("job.samples", 1e6)])


def test_a_goal_in_tokens_has_sequences_of_one_length() -> None:
    lengths = {"workload.transformer.sequence": [1024, 2048]}
    for goal in ({"tokens": 1e9, "deadline": "1 h"}, {"target_throughput": "1e6 tokens/s"}):
        with pytest.raises(InputError, match="sequences of one length"):
            paceline.plan("fsdp", over=lengths, workers=[8], strategies=["fsdp"], **goal)


def test_a_report_draws_throughput_cost_and_measured_points_in_tokens() -> None:
    results = [simulate(load_scenario("fsdp", [*SHORT, ("strategy.workers", workers)])) for workers in (8, 16)]
    data = columns_of(results, coordinates_of(results), measured=[(0, 10.0)])
    assert (data["unit"], data["rate"], data["cost"]["many"]) == ("tokens/s", IN_TOKENS, "a billion tokens")
    assert data["measured"] == [[0, 20480.0]]
    assert {*IN_TOKENS, "mfu", *data["cost"]["columns"]} <= data["columns"].keys()
    images = columns_of(of_images := [simulate(load_scenario("ring", SHORT))], coordinates_of(of_images))
    assert (images["unit"], images["rate"]) == ("samples/s", IN_SAMPLES)
    assert "mfu" not in images["columns"]


def test_a_plan_in_tokens_speaks_of_them() -> None:
    settings = {"run.steps": 6, "run.warmup_steps": 1, "run.replications": 3, "strategy.bucket_size": "100 MB"}
    plan = paceline.plan("fsdp", tokens=20e9, deadline="1 h", confidence=0.5, workers=[8], strategies=["fsdp"], settings=settings, jobs=1)
    answer = answer_of_plan(plan)
    assert plan.goal.samples == pytest.approx(20e9 / 2048, abs=1)
    assert answer.headline.startswith("Nothing reaches 2e10 tokens in 1 h"), answer.headline
    assert {row.what: row.interval for row in answer.figures}["throughput"].endswith(" tokens/s")
    assert "samples/s" not in " ".join((*answer.sentences, *plan.sentences, *plan.notes))
