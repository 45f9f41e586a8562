"""A diagnosis names what was put into a simulated run, tells nothing where nothing was, and says when it cannot tell."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator

import pytest

from calibrate.recorded.run import Facts, Growing, RecordedRun
from paceline.diagnosing import Diagnosis, Seen, diagnose, seen_in_figures, seen_in_runs
from paceline.diagnosing.causes import FOUND, OUTSIDE
from paceline.diagnosing.fitting import step_of
from paceline.sweeping import Runner, Simulations
from simulator import load_scenario, simulate
from simulator.base.errors import InputError, ReadingWarning
from simulator.scenario import Scenario

STRENGTHS = {"network": 2.0, "slow-worker": 0.7, "compute": 0.6, "input": 1.3}


@pytest.fixture(scope="module")
def run() -> Iterator[Simulations]:
    with Runner(jobs=1) as runner:
        yield Simulations(runner)


@pytest.fixture(scope="module")
def told() -> Scenario:
    settings = [("strategy.workers", 4), ("run.steps", 20), ("run.replications", 5), ("cluster.inter_node.bandwidth", "2 Gbit/s")]
    return load_scenario("ring", settings)


def seen_in(scenario: Scenario, told: Scenario, cause: str = "", strength: float = 0.0) -> list[Seen]:
    """What workers would record of a simulated run: their steps, what devices compute, and how long they wait for input."""
    result, alone = simulate(scenario), simulate(told)
    one_s = alone.scenario.batch * alone.speedup.mean / alone.throughput_samples_per_s.mean
    computes_s = alone.breakdown_s.compute
    slower = [math.exp(strength) if cause == "compute" or (cause == "slow-worker" and worker == 0) else 1.0 for worker in range(4)]
    return [
        Seen(workers=1, step_s=one_s, compute_s=(computes_s,), input_s=(0.0,), cpu_s=(computes_s,), error=0.01),
        Seen(
            workers=4,
            step_s=step_of(result),
            compute_s=tuple(computes_s * times for times in slower),
            input_s=(result.breakdown_s.input,) * 4,
            cpu_s=(computes_s,) * 4,
            error=0.01,
        ),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("cause", STRENGTHS)
def test_what_was_put_into_a_run_is_found(told: Scenario, run: Simulations, cause: str) -> None:
    strength = STRENGTHS[cause]
    slow = FOUND[cause].made(told, strength, 0)
    found = diagnose(told, seen_in(slow, told, cause, strength), run)
    first, *_ = (its for its in found.causes if its.known == "found")
    assert first.key == cause
    assert first.probability > 0.5
    assert not found.as_told
    gained = step_of(simulate(slow)) / step_of(simulate(told))
    assert first.gain.low <= gained <= first.gain.high
    assert first.gain.mean == pytest.approx(gained, rel=0.15)
    assert any(FOUND[cause].remedy in sentence for sentence in found.sentences)


@pytest.mark.slow
def test_a_run_as_predicted_needs_no_cause(told: Scenario, run: Simulations) -> None:
    found = diagnose(told, seen_in(told, told), run)
    assert found.as_told
    assert {its.known for its in found.causes} <= {"told"}
    assert found.unexplained_s == pytest.approx(0.0, abs=0.02 * found.run.step_s)
    assert "as predicted" in found.sentences[1]


@pytest.mark.slow
def test_two_numbers_tell_that_something_is_wrong_but_not_what(told: Scenario, run: Simulations) -> None:
    one, several = (its.step_s for its in seen_in(told, told))
    found = diagnose(told, seen_in_figures("step_time_s", {1: one, 4: 3.0 * several}, told), run)
    assert not found.as_told
    hypotheses = [its for its in found.causes if its.known == "found"]
    assert len(hypotheses) > 2
    assert all(its.probability < 0.6 and its.cost_s.low == 0.0 for its in hypotheses)
    assert found.measure is not None


@pytest.mark.slow
def test_a_checkpoint_that_was_seen_is_told_with_what_it_costs(told: Scenario, run: Simulations) -> None:
    alone, together = seen_in(told, told)
    seen = together.model_copy(update={"between_s": 0.5 * together.step_s, "between_every": 10})
    first = diagnose(told, [alone, seen], run).causes[0]
    assert (first.key, first.known) == ("between-steps", "measured")
    assert first.cost_s.mean == pytest.approx(0.5 * together.step_s)
    assert first.gain.mean == pytest.approx(1.5)
    assert "every 10 steps" in first.text


@pytest.mark.slow
def test_costs_never_exceed_what_a_step_takes_beyond_its_best(told: Scenario, run: Simulations) -> None:
    one, several = (its.step_s for its in seen_in(told, told))
    found: Diagnosis = diagnose(told, seen_in_figures("step_time_s", {1: one, 4: 5.0 * several}, told), run)
    for its in found.causes:
        assert 0.0 <= its.cost_s.low <= its.cost_s.mean <= its.cost_s.high < found.run.step_s


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ({}, "nothing was seen"),
        ({1: 0.1}, "only 1 device was seen"),
    ],
)
def test_too_little_is_refused(told: Scenario, run: Simulations, steps: dict[int, float], text: str) -> None:
    with pytest.raises(InputError, match=text):
        diagnose(told, seen_in_figures("step_time_s", steps, told), run)


@pytest.mark.slow
def test_milliseconds_taken_for_seconds_are_said(told: Scenario, run: Simulations) -> None:
    told = told.model_copy(update={"run": told.run.model_copy(update={"steps": 5, "warmup_steps": 1, "replications": 2})})
    found = diagnose(told, seen_in_figures("step_time_s", {1: 9.0, 4: 12.0}, told), run)
    assert sum("milliseconds" in remark for remark in found.remarks) == 1, "of the one alone, on which the others follow"
    found = diagnose(told, seen_in_figures("step_time_s", {1: 9e-3, 4: 12.0}, told), run)
    assert any("4: a step takes 12.0 s" in remark and "milliseconds" in remark for remark in found.remarks)


def recorded(facts: Facts) -> RecordedRun:
    growing = Growing("run.ndjson", "steps file", facts=facts)
    for step in range(1, 41):
        growing.add(step, 0.02 + 1e-4 * (step % 3))
    return growing.run()


def test_a_record_of_other_workers_than_said_is_refused(told: Scenario) -> None:
    with pytest.raises(InputError, match=r"8 workers, not 4; .*--run 8=run\.ndjson"):
        seen_in_runs([(4, recorded(Facts(workers=8)))], told)
    (found,), _ = seen_in_runs([(None, recorded(Facts(workers=8, batch=64)))], told)
    assert (found.workers, found.batch) == (8, None if told.batch == 64 else 64)


def test_a_record_of_another_model_is_said(told: Scenario) -> None:
    parameters = told.workload.parameter_bytes // 4
    with pytest.warns(ReadingWarning, match="another model"):
        seen_in_runs([(4, recorded(Facts(parameters=parameters // 3)))], told)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seen_in_runs([(4, recorded(Facts(parameters=parameters)))], told)


def test_shares_are_those_of_every_cause() -> None:
    assert all(0.0 < cause.share < 1.0 for cause in (*FOUND.values(), OUTSIDE))


def test_columns_that_are_there_and_not_filled_are_not_measured() -> None:
    seen = Seen(workers=2, step_s=0.1, compute_s=(0.0, 0.1), cpu_s=(0.0, 0.0), input_s=(0.0, 0.0))
    assert (seen.compute_s, seen.cpu_s, seen.input_s) == ((), (), (0.0, 0.0))
