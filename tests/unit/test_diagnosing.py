"""A diagnosis names what was put into a simulated run, tells nothing where nothing was, and says when it cannot tell."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.scenarios import scenario_table

from calibrate.observations import alone_step_of
from calibrate.recorded.reading import read_recorded
from calibrate.recorded.run import Facts, Growing, RecordedRun
from paceline import load, new_scenario, why
from paceline.diagnosing import Diagnosis, Seen, diagnose, seen_in_figures, seen_in_runs
from paceline.diagnosing.causes import FOUND, OUTSIDE, STANDING
from paceline.diagnosing.diagnosis import answer_of_diagnosis
from paceline.diagnosing.fitting import step_of
from paceline.sweeping import Runner, Simulations
from simulator import load_scenario, scenario_from_table, simulate
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
    assert FOUND[cause].remedy in [row[-1] for row in found.table().rows]


@pytest.mark.slow
def test_a_run_as_predicted_needs_no_cause(told: Scenario, run: Simulations) -> None:
    found = diagnose(told, seen_in(told, told), run)
    assert found.as_told
    assert {its.known for its in found.causes} <= {"told"}
    assert found.unexplained_s == pytest.approx(0.0, abs=0.02 * found.run.step_s)
    assert found.sentences[0].startswith("As predicted: ")


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
        ({}, "no runs are given"),
        ({1: 0.1}, "only 1 device is given"),
    ],
)
def test_too_little_is_refused(told: Scenario, run: Simulations, steps: dict[int, float], text: str) -> None:
    with pytest.raises(InputError, match=text):
        diagnose(told, seen_in_figures("step_time_s", steps, told), run)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ({1: 9.0, 4: 12.0}, r"--step 1: a step takes 9.00 s,.* is it 9.00 ms"),
        ({1: 9e-3, 4: 12.0}, r"--step 4: a step takes 12.0 s,.* is it 12.0 ms"),
        ({1: 9e-3, 4: 20e-6}, r"--step 4: a step takes 20.0 µs,.* is it 20.0 ms"),
        ({1: 9e-3, 4: 1e-3}, r"--step 4: a step of 1.00 ms is faster than possible"),
    ],
)
def test_steps_in_another_unit_and_impossible_ones_are_refused(
    told: Scenario, run: Simulations, steps: dict[int, float], text: str
) -> None:
    told = told.model_copy(update={"run": told.run.model_copy(update={"steps": 5, "warmup_steps": 1, "replications": 2})})
    with pytest.raises(InputError, match=text):
        diagnose(told, seen_in_figures("step_time_s", steps, told), run)


def small(**parts: object) -> Scenario:
    """Four devices of one machine, or as given, with no more than two runs of ten steps."""
    cluster = {"devices_per_node": 8, "intra_node": {"bandwidth": "10 GB/s", "latency": "10 us"}}
    run = {"steps": 10, "warmup_steps": 2, "replications": 2}
    given = {"cluster": cluster, "run": run, "strategy": {"kind": "mirrored", "replicas": 4}, **parts}
    return scenario_from_table(scenario_table(**given), "test")


def global_batch() -> Scenario:
    table = scenario_table(
        workload={"global_batch": 256, "forward": {"base": "0 s", "per_sample": "1 ms"}, "backward": {"base": "0 s", "per_sample": "2 ms"},
                  "apply": "0 s", "variables": [{"name": "all", "size": "40 MB", "creation_index": 0, "ready": 1.0}]},
        cluster={"devices_per_node": 8, "intra_node": {"bandwidth": "10 GB/s", "latency": "10 us"}},
        strategy={"kind": "mirrored", "replicas": 4},
        run={"steps": 10, "warmup_steps": 2, "replications": 2},
    )  # fmt: skip
    del table["workload"]["batch_per_replica"]
    return scenario_from_table(table, "test")


@pytest.mark.slow
def test_one_device_alone_takes_all_of_a_global_batch() -> None:
    answer = why(global_batch(), step={1: "768ms", 4: "400ms"}, jobs=1)
    (run,) = answer.runs
    assert (answer.one_device_s, run.state) == (0.768, "slower")
    assert run.efficiency == pytest.approx(0.48)
    assert run.told_s.mean == pytest.approx(step_of(simulate(global_batch())), rel=1e-6)
    assert run.told_s.mean == pytest.approx(0.198, rel=0.01)


@pytest.mark.slow
def test_workers_of_several_devices_are_counted_as_the_scenario_counts_them() -> None:
    told = new_scenario(parameters=25e6, batch=32, step_time="96ms", devices=8, nodes=2)
    told = load(told, {"run.steps": 10, "run.replications": 2})
    by_rate = why(told, throughput={1: 333, 2: 3500}, jobs=1)
    by_step = why(told, step={"1 device": "96.1ms", "16 devices": "146.3ms"}, jobs=1)
    for answer in (by_rate, by_step):
        assert answer.run.step_s == pytest.approx(16 * 32 / 3500, rel=1e-3)
        assert answer.runs[0].efficiency == pytest.approx(0.66, abs=0.005)


@pytest.mark.slow
def test_a_flat_throughput_of_one_process_is_one_input_pipeline() -> None:
    told = new_scenario(parameters=0.31e6, tensors=12, batch=32, step_time="40ms", devices=4, nodes=1, strategy="mirrored", workers=4)
    for inner in ({}, {"cluster.intra_node.bandwidth": "10 GB/s"}):
        own = load(told, {"run.steps": 10, "run.replications": 2, **inner})
        answer = why(own, throughput={1: 800, 2: 1450, 3: 1941, 4: 1950}, jobs=1)
        first = answer.causes[0]
        assert (first.key, first.known) == ("input", "found")
        assert first.probability > 0.9
        assert first.gain.low < 1.63 < first.gain.high
        assert "the pipeline that all replicas" in first.text
        assert answer.runs[0].state in ("inside", "beyond")
        assert [run.state for run in answer.runs[1:]] == ["slower", "slower"]


def test_a_record_of_another_batch_is_read_with_its_own(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    lines = "".join(f"{step}\timages/sec: 47.5 +/- 0.3 (jitter = 2.2)\t7.{step % 10}\n" for step in range(10, 210, 10))
    log.write_text("Batch size:  32 global\n             16 per device\n" + lines)
    told = small(workload={"batch_per_replica": 32}, strategy={"kind": "mirrored", "replicas": 2})
    with pytest.warns(ReadingWarning, match="another batch: 32 samples.*scenario has 64"):
        (seen,), _ = seen_in_runs([(2, run) for run in read_recorded([log], samples=64)], told)
    assert seen.step_s == pytest.approx(32 / 47.5, rel=1e-3)
    assert seen.batch == 16
    assert seen.scenario_of(told).batch == 16


@pytest.mark.slow
def test_times_of_epochs_are_told_from_those_of_steps() -> None:
    told = small(strategy={"kind": "multi-worker-mirrored", "workers": 6}, cluster={"devices_per_node": 3})
    with pytest.raises(InputError, match=r"--step 1: 21\.0 h is too long for a step: is it the time of an epoch\? Then give --epoch"):
        why(told, step={1: "21h", 4: "9h", 6: "22h"}, jobs=1)
    for size in (None, 1.28e6):
        answer = why(told, epoch={1: "21h", 4: "9h", 6: "22h"}, dataset_size=size, jobs=1)
        assert [run.efficiency for run in answer.runs] == pytest.approx([21 / 9 / 4, 21 / 22 / 6])
        assert any("the samples of an epoch are unknown" in remark for remark in answer.remarks) == (size is None)


@pytest.mark.slow
def test_more_than_perfect_scaling_is_questioned() -> None:
    answer = why(small(), step={1: "6.5ms", 4: "3ms"}, jobs=1)
    assert answer.runs[0].efficiency > 2
    assert any("more than linear scaling (4 workers)" in sentence for sentence in answer.sentences)


@pytest.mark.slow
def test_a_verdict_follows_from_the_interval_and_every_number_has_one() -> None:
    told = small()
    predicted_s = {count: step_of(simulate(load(told, {"strategy.replicas": count}))) for count in (2, 4)}
    answer = why(told, step={2: 1.3 * predicted_s[2], 4: 0.999 * predicted_s[4]}, jobs=1)
    assert [run.state for run in answer.runs] == ["slower", "inside"]
    assert not answer.as_told
    assert answer.sentences[0].startswith("As predicted: a step takes "), "the largest run"
    assert [row[-1] for row in answer.runs_table.rows] == ["slower than predicted", "as predicted"]


@pytest.mark.parametrize("key", FOUND)
def test_a_cause_changes_what_it_names(key: str) -> None:
    variables = [{"name": f"v{part}", "size": "1 MB", "creation_index": 3 - part, "ready": (part + 1) / 4} for part in range(4)]
    kind: dict[str, object] = {"kind": "multi-worker-mirrored", "workers": 4}
    cluster: dict[str, object] = {"transport": {"software": "given", "cpu_per_message": "1 ms"}} if key == "host-costs" else {}
    if key == "links-in-a-node":
        kind, cluster = {"kind": "mirrored", "replicas": 4}, {"devices_per_node": 4}
    told = small(workload={"variables": variables}, strategy=kind, cluster=cluster)
    assert FOUND[key].possible(told)
    one, other = simulate(told), simulate(FOUND[key].made(told, 1.0, 0))
    if key == "smaller-batch":
        assert other.scenario.batch == max(round(told.batch / 4), 1)
        return
    assert step_of(other) > 1.01 * step_of(one)
    if part := FOUND[key].part:
        assert getattr(other.breakdown_s, part) > 1.01 * getattr(one.breakdown_s, part)


def test_a_cause_changes_what_is_drawn() -> None:
    cluster = {"inter_node": {"bandwidth": "1 GB/s", "latency": "1 ms"}, "transport": {"software": "given", "flow_cap": "0.5 GB/s"}}
    drawn = {"inter_node.latency_s": [1e-3, 1.1e-3], "transport.flow_cap_bytes_per_s": [0.5e9, 0.6e9]}
    cluster["uncertainty"] = {"parameters": list(drawn), "draws": list(zip(*drawn.values(), strict=True))}
    workload = {"uncertainty": {"parameters": ["forward.base_s", "backward.base_s"], "draws": [[1e-3, 2e-3], [1.2e-3, 2.2e-3]]}}
    told = small(workload=workload, cluster=cluster, strategy={"kind": "multi-worker-mirrored", "workers": 4})
    step_s = step_of(simulate(told))
    assert step_of(simulate(FOUND["latency"].made(told, 2.0, 0))) > 1.1 * step_s
    assert step_of(simulate(FOUND["network"].made(told, 1.0, 0))) > 1.1 * step_s
    (batch,) = (standing for standing in STANDING if standing.key == "batch")
    (without,) = batch.gone(told)
    assert step_of(simulate(without)) < step_s - 2e-3


def test_what_is_removed_is_removed_of_every_draw() -> None:
    jitter = {"kind": "lognormal", "sigma": 0.4}
    told = small(workload={"jitter": jitter, "jitter_draws": [jitter, {"kind": "lognormal", "sigma": 0.5}], "run_to_run_cv": 0.1})
    (stragglers,) = (standing for standing in STANDING if standing.key == "stragglers")
    (even,) = stragglers.gone(told)
    waits_s = [simulate(own).breakdown_s.waiting + simulate(own).breakdown_s.exposed_communication for own in (told, even)]
    assert step_of(simulate(told)) > 1.1 * step_of(simulate(even))
    assert waits_s[0] > 3.0 * waits_s[1]
    assert not stragglers.gone(even)


@pytest.mark.slow
def test_no_cause_costs_more_than_a_step_takes_beyond_its_compute() -> None:
    told = load(new_scenario(parameters=25.6e6, batch=32, step_time="60ms", nodes=8), {"run.steps": 10, "run.replications": 2})
    answer = why(told, step={1: "60ms", 8: "75ms"}, jobs=1)
    assert answer.runs[0].state == "faster"
    assert answer.causes
    for cause in answer.causes:
        assert cause.cost_s.high <= 15.1e-3
        assert cause.gain.mean <= 1.255
    assert not answer.changes, "of a run that nothing here explains"


@pytest.mark.slow
def test_a_cause_beneath_a_larger_one_is_never_said_to_make_steps_shorter() -> None:
    variables = [{"name": "all", "size": "2 MB", "creation_index": 0, "ready": 1.0}]
    told = small(workload={"variables": variables}, strategy={"kind": "multi-worker-mirrored", "workers": 4},
                 cluster={"inter_node": {"bandwidth": "1 GB/s"}}, discrepancy={"communication": {"at": 0.1}})  # fmt: skip
    slow = FOUND["network"].made(told, math.log(2.0), 0)
    step_s = step_of(simulate(slow))
    each_s = 1.3 * step_s / told.batch
    late = load(slow, {"input": {"per": "replica", "work": {"serial": {"base_s": 0.0, "per_sample_s": each_s}}}})
    result = simulate(late)
    assert step_of(result) == pytest.approx(1.3 * step_s, rel=0.02), "input alone is felt"
    computes_s = simulate(told).breakdown_s.compute
    seen = Seen(workers=4, step_s=step_of(result), compute_s=(computes_s,) * 4, input_s=(result.breakdown_s.input,) * 4, error=0.01)
    with Runner(jobs=1) as runner:
        answer = diagnose(told, [seen_in(told, told)[0].model_copy(update={"step_s": computes_s, "devices": 1}), seen], Simulations(runner))
    assert not any("shorter" in text for text in (*answer.remarks, *answer.sentences))
    assert all(cause.cost_s.mean > 0 and cause.gain.mean >= 1.0 for cause in answer.causes)
    (first, *_) = (cause for cause in answer.causes if cause.known == "found")
    assert first.key == "input"


@pytest.mark.slow
def test_a_batch_of_all_workers_together_is_one_cause_at_every_number() -> None:
    told = small(workload={"batch_per_replica": 32}, strategy={"kind": "multi-worker-mirrored", "workers": 8})
    real = {1: told, 2: told, 4: told, 8: told}
    steps_s = {
        count: step_of(simulate(load(own, {"strategy.workers": count, "workload.batch_per_replica": 32 // count})))
        for count, own in real.items()
        if count > 1
    }
    alone = simulate(told)
    answer = why(told, step={1: alone_step_of(alone), **steps_s}, jobs=1)
    assert not [cause for cause in answer.causes if cause.known == "found"], "smaller batches make steps shorter: that costs nothing"
    assert not any("shorter" in remark for remark in answer.remarks)
    assert answer.explained_s == pytest.approx(steps_s[8], rel=0.05)


@pytest.mark.slow
def test_a_cure_that_a_number_contradicts_is_not_named() -> None:
    variables = [{"name": f"v{place}", "size": "4 MB", "creation_index": 7 - place, "ready": (place + 1) / 8} for place in range(8)]
    compute = {"forward": {"base": "4 ms", "per_sample": "0 s"}, "backward": {"base": "12 ms", "per_sample": "0 s"}, "apply": "0 s"}
    told = small(workload={"variables": variables, **compute}, strategy={"kind": "multi-worker-mirrored", "workers": 4},
                 cluster={"inter_node": {"bandwidth": "2 GB/s", "latency": "0 s"}}, discrepancy={"communication": {"at": 0.3}})  # fmt: skip
    overlapping = load(told, {"strategy.bucket_size": "4 MB"})
    steps_s = {count: step_of(simulate(load(overlapping, {"strategy.workers": count}))) for count in (2, 4)}
    answer = why(told, step={1: "16ms", **steps_s}, jobs=1)
    assert "buckets" not in {cause.key for cause in answer.causes}
    assert not any(change.name == "other buckets" for change in answer.changes)
    assert any("the run already overlaps that much" in remark for remark in answer.remarks)


@pytest.mark.slow
def test_steps_a_second_are_not_taken_for_samples() -> None:
    told = small(workload={"batch_per_replica": 64})
    with pytest.raises(InputError, match=r"--throughput 1: .* of 64 samples takes .*: are they steps/s\? Then give --steps-per-s"):
        why(told, throughput={1: 43.0, 2: 42.0, 4: 40.0}, jobs=1)
    answer = why(told, steps_per_s={1: 43.0, 4: 40.0}, jobs=1)
    assert answer.run.step_s == pytest.approx(1 / 40.0)


@pytest.mark.slow
def test_a_single_worker_with_its_server_is_explained() -> None:
    told = small(strategy={"kind": "parameter-server", "mode": "sync", "workers": 1, "servers": 1}, cluster={})
    answer = why(told, step={1: 2.0 * step_of(simulate(told))}, jobs=1)
    assert answer.runs[0].told_s.mean == pytest.approx(step_of(simulate(told)), rel=1e-6)
    assert answer.one_device_s < answer.runs[0].told_s.mean
    assert answer.runs[0].state == "slower"


@pytest.mark.slow
def test_chances_are_told_whole() -> None:
    answer = why(small(), step={1: "6.5ms", 4: "30ms"}, jobs=1)
    doubtful = [cause for cause in answer.causes if cause.probability < 0.6]
    assert len(doubtful) > 1
    rest = {"causes": (doubtful[0].model_copy(update={"probability": 0.45}),), "own_error": 0.5, "unknown": 0.02}
    told = answer_of_diagnosis(answer.model_copy(update=rest))
    assert told.limit == f"undecided: {doubtful[0].title} (45%) or model error (50%)"
    alone = answer_of_diagnosis(answer.model_copy(update={**rest, "own_error": 0.0}))
    assert alone.limit == f"undecided: {doubtful[0].title} (45%)"


def test_a_mean_of_many_steps_is_taken_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("{'train_runtime': '120.0', 'train_samples_per_second': '80.0', 'train_steps_per_second': '2.5', 'epoch': '3.0'}\n")
    (seen,), remarks = seen_in_runs([(4, run) for run in read_recorded([log])], small(workload={"batch_per_replica": 8}))
    assert (seen.step_s, seen.is_average, seen.batch) == (pytest.approx(0.4), True, None)
    assert any("has only 1 mean" in remark for remark in remarks)


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


def test_a_host_that_launches_short_kernels_is_named_with_what_a_graph_would_bring() -> None:
    (launching,) = (standing for standing in STANDING if standing.key == "launching")
    told = load_scenario("pipeline", {"run.steps": 2, "run.warmup_steps": 1})
    (graph,) = launching.gone(told)
    assert step_of(simulate(graph)) < 0.5 * step_of(simulate(told))
    assert launching.gone(load_scenario("ring")) == launching.gone(graph) == []
