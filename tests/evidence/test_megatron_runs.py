"""Real runs by Megatron-LM, predicted by the scenario that a user would write of each: what a device holds, and steps of small models."""

from __future__ import annotations

import statistics

import pytest

from evidence.studies.megatron_runs import (
    HOLD_LOGITS,
    Run,
    interval,
    left_out_coverage,
    memory_ratio,
    read_runs,
    result_of,
    scenario_of,
    step_interval_s,
)
from simulator.memory import memory
from simulator.spec.constants import constants

pytestmark = pytest.mark.slow
RUNS = read_runs()
PLAIN = [run for run in RUNS if run.option is None]
"""Those that do nothing which no key describes."""
SMALL = [run for run in RUNS if run.step_s is not None and run.device != "GB200" and run.hidden < 1024]


@pytest.fixture(scope="module")
def ratios() -> dict[Run, float]:
    return {run: memory_ratio(run) for run in RUNS}


def test_what_devices_hold_is_told_within_a_percent_in_the_median(ratios: dict[Run, float]) -> None:
    errors = [1 / ratios[run] - 1 for run in PLAIN]
    assert len(errors) == 188
    assert statistics.median(map(abs, errors)) < 0.01
    assert abs(statistics.median(errors)) < 0.01
    assert sum(error < -0.03 for error in errors) <= 2


def test_the_interval_of_memory_holds_nine_of_ten_runs_but_for_two_options_that_hold_more_logits(ratios: dict[Run, float]) -> None:
    known = constants()["memory_need"]
    described = [ratio for run, ratio in ratios.items() if run.option not in HOLD_LOGITS]
    low, high = interval(described)
    assert known.low <= low
    assert high <= known.high
    assert sum(known.low <= ratio <= known.high for ratio in described) >= 0.9 * len(described)
    assert left_out_coverage(PLAIN, [ratios[run] for run in PLAIN]) > 0.85


def test_which_attention_ran_beside_more_logits_is_that_with_which_these_options_take_the_same_everywhere() -> None:
    plain = {(run.case, run.hardware, run.attention): run.peak_bytes for run in PLAIN}
    more = []
    for run in RUNS:
        beside = plain.get((run.case.replace(f"_{run.option}", ""), run.hardware, run.attention))
        if run.option in HOLD_LOGITS and beside is not None:
            more.append((run.peak_bytes - beside) / (4 * run.sequence * run.micro_batch * run.vocabulary / run.tensor))
    assert len(more) >= 20
    assert sum(0.8 < times < 1.2 for times in more) >= len(more) - 3  # a later version of one option needs less


def test_the_largest_runs_fit_by_the_upper_end_as_they_did() -> None:
    large = [run for run in PLAIN if run.hidden == 4096 and run.device != "GB200"]
    for run in large:
        told = memory(scenario_of(run))
        low, high = told.devices[-1].interval_bytes
        reserve = told.devices[-1].part("reserve")
        assert reserve is not None
        assert low < run.peak_bytes + (reserve.size_bytes or 0.0) < high
    assert len(large) == 2


def test_steps_that_launching_decides_lie_inside_the_interval_and_the_limit_is_the_host() -> None:
    assert len(SMALL) == 181
    inside = 0
    for run in SMALL:
        result, told = result_of(run), step_interval_s(run)
        assert result.bottleneck.name == "host"
        assert "host-bound" in [warned.code for warned in result.warnings]
        inside += told.low <= (run.step_s or 0.0) <= told.high
    assert inside >= 0.9 * len(SMALL)


def test_large_models_are_told_as_before() -> None:
    large = [run for run in RUNS if run.hidden == 4096 and run.device != "GB200"]
    for run in large:
        result, told = result_of(run), step_interval_s(run)
        assert result.bottleneck.name == "compute"
        assert "host-bound" not in [warned.code for warned in result.warnings]
        assert told.mean == pytest.approx(run.step_s, rel=0.1)
        assert result.discrepancy is not None
        assert all(part.name != "launching of kernels" for part in result.discrepancy.parts)
