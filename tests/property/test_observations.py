"""What ``simulate`` gives, put back into each front end in each way that it can be said, is as predicted."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.examples import examples
from support.scenarios import scenario_table

from calibrate.observations import Observed, alone_step_of, observed_at, samples_of_step
from calibrate.recorded.reading import read_recorded
from calibrate.validation.against_points import PointsCase, validate_points
from calibrate.validation.points import read_points
from paceline.diagnosing import Seen, diagnose, seen_in_epochs, seen_in_figures, seen_in_points, seen_in_runs
from paceline.diagnosing.causes import FOUND
from paceline.diagnosing.fitting import step_of
from paceline.reporting.measured import overlay_of
from paceline.sweeping import Runner, Simulations
from paceline.watching import Watch
from simulator import Scenario, scenario_from_table, simulate
from simulator.base.errors import ScenarioError
from simulator.results.results import Result

STEPS = 40


@st.composite
def trainings(draw: st.DrawFn) -> Scenario:
    """Trainings of every kind: a batch of each replica or of all, 1 to 16 devices a worker, servers, own or shared input."""
    kind = draw(st.sampled_from(["multi-worker-mirrored", "mirrored", "sync", "async"]))
    workers, devices = draw(st.sampled_from([2, 3, 4, 8])), draw(st.sampled_from([1, 1, 2, 4, 8, 16]))
    strategy: dict[str, Any] = {"kind": kind, "workers": workers, "replicas_per_worker": devices}
    if kind == "mirrored":
        strategy, devices = {"kind": kind, "replicas": workers}, workers
    elif kind in ("sync", "async"):
        strategy = {"kind": "parameter-server", "mode": kind, "workers": workers, "servers": draw(st.sampled_from([1, 2]))}
        devices = 1
    together = draw(st.booleans())
    replicas = workers * devices if kind != "mirrored" else workers
    batch = {"batch_per_replica": None, "global_batch": 8 * replicas} if together else {}
    table = scenario_table(
        workload=batch,
        cluster={"devices_per_node": devices},
        strategy=strategy,
        run={"steps": 12, "warmup_steps": 2, "replications": 2},
        job={"epochs": 2, "dataset_size": 100_000},
    )
    if together:
        del table["workload"]["batch_per_replica"]
    per = draw(st.sampled_from(["", "", "process", "replica"]))
    if per:
        serial = {"base": "0 s", "per_sample": draw(st.sampled_from(["20 us", "500 us"]))}
        table["input"] = {"per": per, "work": {"serial": serial}}
    try:
        return scenario_from_table(table, "test")
    except ScenarioError:
        assume(False)
        raise


def files_of(folder: Path, scenario: Scenario, step_s: float) -> Iterator[Path]:
    """A run as a table, a log, and TensorBoard's events record it."""
    table = folder / "steps.csv"
    table.write_text("step,step_time_s\n" + "".join(f"{step},{step_s!r}\n" for step in range(1, STEPS + 1)))
    yield table
    rates = folder / "rates.csv"
    samples = scenario.batch * scenario.replicas
    rates.write_text("step,throughput\n" + "".join(f"{step},{samples / step_s!r}\n" for step in range(1, STEPS + 1)))
    yield rates
    log = folder / "train.log"
    log.write_text("".join(f"global_step/sec: {1 / step_s!r} step = {step}\n" for step in range(1, STEPS + 1)))
    yield log
    events = folder / "events"
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(events)) as writer:
        for step in range(1, STEPS + 1):
            writer.add_scalar("batch_steps_per_second", 1 / step_s, step, walltime=step * step_s)
    yield events


def ways(folder: Path, scenario: Scenario, result: Result) -> Iterator[tuple[str, Seen]]:
    """The same run as each front end takes it."""
    step_s, samples = step_of(result), scenario.batch * scenario.replicas
    devices = f"{scenario.replicas} devices"
    for count in (f"{scenario.workers} workers", devices):
        (seen,) = seen_in_figures("step_time_s", {count: step_s}, scenario)
        yield f"--step '{count}'", seen
        (seen,) = seen_in_figures("throughput", {count: samples / step_s}, scenario)
        yield f"--throughput '{count}'", seen
        (seen,) = seen_in_figures("steps_per_s", {count: 1 / step_s}, scenario)
        yield f"--steps-per-s '{count}'", seen
        (seen,), remarks = seen_in_epochs({count: 100_000 / samples * step_s}, scenario, None, lambda _: 0.0)
        assert not remarks
        yield f"--epoch '{count}'", seen
    for column, value in (("throughput", samples / step_s), ("steps_per_s", 1 / step_s), ("step_time_s", step_s)):
        (seen,) = seen_in_points(read_points(points_of(folder, scenario, column, value)), scenario, "points.csv")
        yield f"a column {column}", seen
    for file in files_of(folder, scenario, step_s):
        (run,) = read_recorded([file], samples=samples_of_step(observed_at(f"{scenario.workers} workers", scenario), scenario))
        (seen,), _ = seen_in_runs([(f"{scenario.workers} workers", run)], scenario)
        yield file.name, seen


def points_of(folder: Path, scenario: Scenario, column: str, value: float) -> Path:
    points = folder / "points.csv"
    with points.open("w", newline="") as file:
        csv.writer(file).writerows([["workers", column], [scenario.workers, repr(value)]])
    return points


@given(scenario=trainings())
@examples(60)
def test_every_way_of_saying_it_is_the_same_step(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, result = tmp_path_factory.mktemp("said"), simulate(scenario)
    for way, seen in ways(folder, scenario, result):
        assert seen.step_s == pytest.approx(step_of(result), rel=1e-6), way
        assert seen.scenario_of(scenario).hash == scenario.hash, way


@given(scenario=trainings())
@examples(40)
def test_points_of_what_is_simulated_are_not_off(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, result = tmp_path_factory.mktemp("points"), simulate(scenario)
    table = scenario.model_dump(mode="json")
    for column, value in (("throughput", result.throughput_samples_per_s.mean), ("step_time_s", step_of(result))):
        points = points_of(folder, scenario, column, value)
        settings = tuple(setting.as_throughput(scenario) for setting in read_points(points))
        case = PointsCase(table, "told.toml", None, points, settings, "samples/s")
        (row,) = validate_points(case, lambda scenarios: [simulate(own) for own in scenarios]).rows
        assert row.predicted.mean / row.measured[0] == pytest.approx(1.0, rel=1e-6)
        (beside,) = overlay_of(points, [result]).rows
        assert beside.error == pytest.approx(0.0, abs=1e-6)


@given(scenario=trainings())
@examples(40)
def test_a_watch_of_what_is_simulated_says_as_predicted(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, result = tmp_path_factory.mktemp("watch"), simulate(scenario)
    for file in files_of(folder, scenario, result.mean_step_s.mean):
        update = Watch(result, [file], coverage=0.99, waits=False).look()
        assert (update.state, update.left) == ("inside", False), file.name
        assert update.mean_s == pytest.approx(update.predicted.mean_s, rel=1e-6)


@pytest.mark.slow
@given(scenario=trainings())
@examples(24, few=4)
def test_a_diagnosis_of_what_is_simulated_says_as_predicted(scenario: Scenario) -> None:
    result = simulate(scenario)
    seen = seen_in_figures("step_time_s", {f"{scenario.workers} workers": step_of(result)}, scenario)
    with Runner(jobs=1) as runner:
        answer = diagnose(scenario, seen, Simulations(runner))
    assert answer.as_told
    assert answer.runs[-1].state == "inside"
    assert answer.told_s.mean == pytest.approx(step_of(result), rel=1e-6)
    assert not [cause for cause in answer.causes if cause.known == "found" and cause.probability > 0.5]


@pytest.mark.parametrize(
    ("count", "workers", "devices"), [("1", 1, 1), ("2", 2, None), ("16 devices", 2, None), ("4 devices", 1, 4), ("1 worker", 1, None)]
)
def test_a_count_counts_workers_unless_it_says_devices(count: str, workers: int, devices: int | None) -> None:
    strategy = {"kind": "multi-worker-mirrored", "workers": 2, "replicas_per_worker": 8}
    told = scenario_from_table(scenario_table(strategy=strategy, cluster={"devices_per_node": 8, "available": 2}), "test")
    assert observed_at(count, told) == Observed(workers=workers, devices=devices)
    assert observed_at("16", told) == Observed(workers=2), "more than there are machines for: devices"


@st.composite
def planted(draw: st.DrawFn) -> tuple[Scenario, str, float]:
    """A training on two or four workers, a cause, and how strong it is: 1.6 to 7 times."""
    kind = draw(st.sampled_from(["ring", "mirrored", "servers"]))
    strategy: dict[str, Any] = {"kind": "multi-worker-mirrored", "workers": 4}
    cluster: dict[str, Any] = {"inter_node": {"bandwidth": "1 GB/s", "latency": "20 us"}}
    if kind == "mirrored":
        strategy, cluster = {"kind": "mirrored", "replicas": 4}, {"devices_per_node": 4}
    elif kind == "servers":
        strategy = {"kind": "parameter-server", "mode": "sync", "workers": 4, "servers": 2}
    variables = [{"name": f"v{part}", "size": "1 MB", "creation_index": 3 - part, "ready": (part + 1) / 4} for part in range(4)]
    told = scenario_from_table(
        scenario_table(
            workload={"variables": variables}, strategy=strategy, cluster=cluster, discrepancy={"communication": {"at": 0.1}},
            run={"steps": 10, "warmup_steps": 2, "replications": 2},
        ),
        "test",
    )  # fmt: skip
    key = draw(st.sampled_from([key for key, cause in FOUND.items() if key != "smaller-batch" and cause.possible(told)]))
    return told, key, draw(st.sampled_from([0.5, 1.0, 2.0]))


@pytest.mark.slow
@given(case=planted())
@examples(60, few=5)
def test_a_planted_cause_is_found_or_undecided_and_never_another(case: tuple[Scenario, str, float]) -> None:
    told, key, strength = case
    runs = {}
    for workers in (2, 4):
        scenario = Observed(workers=workers).scenario_of(told)
        runs[workers] = step_of(simulate(FOUND[key].made(scenario, strength, 0)))
    with Runner(jobs=1) as runner:
        answer = diagnose(told, seen_in_figures("step_time_s", {1: alone_step_of(simulate(told)), **runs}, told), Simulations(runner))
    told_of = {cause.key: cause.probability for cause in answer.causes if cause.known == "found"}
    assert [other for other, chance in told_of.items() if chance >= 0.6 and other != key] == [], (key, strength, told_of)
    if told_of and all(chance < 0.6 for chance in told_of.values()):
        assert key in told_of or any(FOUND[key].title in remark.lower() for remark in answer.remarks), (key, strength, told_of)
