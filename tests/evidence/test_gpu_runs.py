"""Real GPU runs, predicted by the scenario that a user would write of each: what a device holds, and steps of small models."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest

from calibrate.validation.points import Setting
from calibrate.validation.refit import refit
from evidence.studies.gpu_runs import (
    CONTENDED,
    Run,
    Score,
    StepScore,
    held,
    left_out_coverage,
    markdown,
    megatron_bytes,
    read_runs,
    result_of,
    scores,
    step_error,
    step_interval_s,
    step_markdown,
    step_scores,
)
from simulator import simulate
from simulator.memory import does_not_fit, memory
from simulator.resolve.resolve import resolve
from simulator.spec.constants import constants

pytestmark = pytest.mark.slow
RUNS = read_runs()
MEASURED = [run for run in RUNS if run.peak_bytes is not None]
DESCRIBED = [run for run in MEASURED if not run.note]
"""Those that do nothing which no key describes."""


def keys_of(run: Run) -> dict[str, object]:
    return dict(run.keys)


@pytest.fixture(scope="module")
def found() -> dict[str, Score]:
    return {each.kind: each for each in scores(RUNS)}


def test_what_devices_hold_is_predicted_within_a_percent_or_two_in_the_median(found: dict[str, Score]) -> None:
    assert len(DESCRIBED) >= 380
    most = {"bert": 0.03, "experts": 0.02, "mla": 0.065, "lora": 0.04, "fsdp": 0.02, "context": 0.015, "fp8": 0.03}
    for kind, each in found.items():
        if not any(run.note == kind for run in MEASURED):
            assert each.median < most.get(kind, 0.0151), each
            assert each.median < each.megatron / 3, "Megatron-LM's own estimate"
    assert found["all"].within >= 0.9
    assert abs(found["all"].bias) < 0.01


def test_the_interval_holds_about_nine_of_ten_runs(found: dict[str, Score]) -> None:
    assert 0.85 <= found["all"].inside <= 0.97
    dense = [run for run in DESCRIBED if run.kind in ("dist optimizer", "virtual", "pipeline", "context")]
    assert left_out_coverage(dense) > 0.85, "that of other shapes"


def test_the_documentation_has_these_figures() -> None:
    text = (Path(__file__).parents[2] / "docs" / "large-models.md").read_text(encoding="utf-8")
    assert "\n".join(markdown(RUNS)) in text
    assert "\n".join(step_markdown(RUNS)) in text


def test_megatrons_estimate_is_what_it_prints() -> None:
    # its parameters: 2 L h^2 (2 + f / h + 2 / h + 1 / L h) and h V, 18 bytes of each; activations of 34 s b h a layer, and more at the ends
    layers, h, s, b, v = 12, 512, 1024, 4, 50304
    run = next(run for run in RUNS if run.case == "gpt/gpt3_mcore_tp1_pp2")
    parameters = 2 * layers * h * h * (2 + 4 + 2 / h + 1 / (layers * h)) / 2 + h * v
    activations = 34 * s * b * h * layers + 16 * s * b + 2 * s * b * h
    assert megatron_bytes(run) == pytest.approx(18 * parameters + activations, rel=1e-12)


def test_what_ran_fits_and_what_ran_out_of_memory_does_not() -> None:
    failed = [run for run in RUNS if run.note == "failed: out of memory"]
    assert failed
    for run in failed:
        assert does_not_fit(resolve(run.scenario)) is not None
    large = [run for run in DESCRIBED if (run.peak_bytes or 0.0) > 20e9]
    assert len(large) >= 20
    wrong = [run for run in large if does_not_fit(resolve(run.scenario)) is not None]
    assert len(wrong) <= 1, "one at 96% of the device's memory"
    for run in large:  # "it fits" is never said of less than what was taken
        assert (run.peak_bytes or 0.0) < memory(run.scenario).devices[-1].interval_bytes[1]


def test_interval_is_that_of_models_with_experts_and_of_gathered_parameters() -> None:
    def width(kind: str) -> float:
        value, low, high = held(next(run for run in DESCRIBED if run.kind == kind))
        return (high - low) / value

    assert width("virtual") < width("experts") < 0.2
    assert width("virtual") < width("fsdp") < 0.2


@pytest.fixture(scope="module")
def steps() -> dict[str, StepScore]:
    return {each.kind: each for each in step_scores(RUNS)}


def test_steps_that_the_host_decides_are_predicted_from_dimensions_and_better_after_one_run(steps: dict[str, StepScore]) -> None:
    host = steps["the host decides"]
    assert host.runs >= 350
    assert host.median < 0.11
    assert -0.12 < host.bias < 0, "the constant lies between these runs and vTrain's"
    assert host.ninth < 0.3
    assert 0.9 <= host.inside <= 0.99, "0.93 with those on one node of four GB200"
    assert host.after_one is not None
    assert host.after_one < 0.1
    assert host.without > 0.8, "what the device needs is a tenth of it"
    for kind in ("bert", "dist optimizer", "pipeline", "virtual", "context", "experts"):
        assert steps[kind].median < 0.2, kind
        assert steps[kind].inside > 0.8, kind
    assert steps["one node of four GB200"].bias < -0.7, "what no key describes is not fitted"


def test_other_shapes_give_the_same_time_for_a_kernel() -> None:
    """The host's time per kernel that all other shapes give predicts a shape, and is a tenth above the constant, which heeds vTrain."""
    runs = [run for run in RUNS if run.step_s and run.source == "megatron-lm" and not run.note and CONTENDED not in run.case]
    runs = [run for run in runs if result_of(run).bottleneck.name == "host"]
    logs = {run: math.log(1 + step_error(run)) for run in runs}
    sizes = []
    for shape in {run.shape for run in runs}:
        others = statistics.median(log for run, log in logs.items() if run.shape != shape)
        assert others == pytest.approx(-0.1, abs=0.04)
        sizes += [abs(math.exp(logs[run] - others) - 1) for run in runs if run.shape == shape]
    assert statistics.median(sizes) < 0.1


def test_one_run_of_a_shape_is_what_a_refit_makes_of_it() -> None:
    """As a user does it: validate --refit of the run on A100, then the scenario on another device."""
    here, there = (
        next(run for run in RUNS if run.case == "gpt/gpt3_mcore_te_tp2_pp2_cp2" and name in run.hardware) for name in ("a100", "h100")
    )
    setting = Setting(workers=8, throughput=(here.samples / (here.step_s or 1.0),), line=2)
    fitted = refit([setting], [here.scenario]).fitted
    assert set(fitted.factors) == {"launching of kernels"}
    practice = {"launch_s": constants()["launch_s"].plain.times(fitted.factors["launching of kernels"])}
    moved = simulate(there.scenario.replaced({"practice": practice})).throughput_samples_per_s.mean
    after = (1 + step_error(there)) / (1 + step_error(here)) - 1
    assert there.samples / moved / (there.step_s or 1.0) - 1 == pytest.approx(after, abs=0.04), (
        "the constant's interval holds it back a little"
    )


def test_steps_of_large_models_are_within_a_tenth() -> None:
    large = [run for run in RUNS if run.case == "gpt/gpt3_7b_tp1_pp4_memory_speed" and "gb200" not in run.hardware]
    assert len(large) == 2
    for run in large:
        result, told = result_of(run), step_interval_s(run)
        assert result.bottleneck.name == "compute"
        assert "host-bound" not in [warned.code for warned in result.warnings]
        assert told.mean == pytest.approx(run.step_s, rel=0.1)
        assert result.discrepancy is not None
        assert all(part.name != "launching of kernels" for part in result.discrepancy.parts)
