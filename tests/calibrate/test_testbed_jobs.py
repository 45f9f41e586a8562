"""Jobs of the testbed whose tasks are killed and come back: what a setting may say, what runs have shown, and the scenario for it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from support.needs import needs_tensorflow
from support.waiting import PATIENCE_S

from calibrate.measurements import JobEvent, Updated
from calibrate.testbed.loading import load_setting
from calibrate.testbed.platform import MEANINGS, Parameter, Platform
from calibrate.testbed.prediction import predict_setting
from calibrate.testbed.readings import OneRun, faults_of, lost_steps
from calibrate.testbed.running import measure_setting
from calibrate.testbed.setting import TestbedSetting
from calibrate.testbed.summary import TestbedRun
from evidence.studies.fault_check import HEADER, Compared, compared, lines, read_experiments
from evidence.studies.job_prediction import JobCosts, costs_of, job_scenario, job_table
from evidence.studies.job_readings import checkpoint_stops_s, fewer_workers_s, finished_s, rates, startups_s
from simulator import simulate
from simulator.base.errors import InputError

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "models" / "measured"
PRIOR = Platform(name="prior", cores=2, parameters={name: Parameter.prior(name) for name in MEANINGS})
KILLED = {"at": "4 s", "number": 1, "back_after": "2 s"}


def job(mode: str, **fields: Any) -> TestbedSetting:
    table = {
        "mode": mode, "workers": 2, "servers": int(mode == "async"), "link": "loopback", "model": "ladder-1mb",
        "compute": {"mean": "100 ms"}, "steps": 40, "checkpoint_every": 10, "faults": [KILLED],
    }  # fmt: skip
    return load_setting(table | fields, [])


@pytest.mark.parametrize(
    ("mode", "fields", "said"),
    [
        ("between-graph", {"servers": 1}, 'checkpoint_every applies to mode = "async" and "ring"'),
        ("async", {"faults": [KILLED | {"number": 2}]}, "faults.0.number is 2, but of workers there are 2 (0 to 1)"),
        ("ring", {"faults": [KILLED | {"of": "server", "number": 0}]}, "but of servers there are none"),
        ("async", {"link": {"bandwidth": "400 Mbit/s"}}, 'needs link = "loopback"'),
        ("async", {"start_spread": "1 s"}, "start_spread cannot be combined with faults or checkpoint_every"),
        ("async", {"faults": [{"at": "1 s"}]}, "faults.0.back_after"),
    ],
)
def test_what_cannot_be_is_refused(mode: str, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        job(mode, **fields)
    assert said in str(caught.value)


def test_a_setting_without_faults_is_what_it_was() -> None:
    plain = TestbedSetting.model_validate({"mode": "ring", "workers": 3})
    assert not {"faults", "checkpoint_every"} & set(plain.model_dump())
    assert "faults" not in plain.for_probe(1, 0, 1.0)
    assert len({plain.hash, job("ring").hash, job("ring", faults=[]).hash}) == 3


def test_a_prediction_of_steps_refuses_jobs() -> None:
    with pytest.raises(InputError, match="whole jobs"):
        predict_setting(job("async"), PRIOR)


def event(what: str, at_s: float, **fields: Any) -> JobEvent:
    return JobEvent(repeat=0, what=what, at_s=at_s, **{"attempt": 0} | fields)  # type: ignore[arg-type]


def step(worker: int, start_s: float, end_s: float, version: int) -> Updated:
    return Updated(
        repeat=0, worker=worker, start_s=start_s, pulled_s=start_s, computed_s=end_s, applied_s=end_s,
        read_version=version - 1, version=version,
    )  # fmt: skip


def test_a_synchronous_job_loses_what_came_after_its_checkpoint() -> None:
    """Steps of 100 ms, a checkpoint of 50 ms after 10; killed in the 15th step, launched again 2 s later, a second of start-up."""
    steps = [step(worker, 0.1 * n + (0.05 if n >= 10 else 0.0), 0.1 * (n + 1) + (0.05 if n >= 10 else 0.0), n + 1)
             for worker in (0, 1) for n in range(14)]  # fmt: skip
    steps += [step(worker, 4.5 + 0.1 * n, 4.6 + 0.1 * n, 11 + n) for worker in (0, 1) for n in range(30)]
    events = (
        event("launched", -1.2), event("started", 0.0), event("checkpoint", 1.0, seconds=0.05, step=10, task="worker 0"),
        event("killed", 1.5, task="worker 1"), event("noticed", 1.56, task="worker 0"), event("launched", 3.5, attempt=1),
        event("restored", 4.3, seconds=0.1, step=10, attempt=1), event("started", 4.5, attempt=1),
    )  # fmt: skip
    run = OneRun(job("ring"), tuple(steps), (), events=events)
    (one,) = faults_of(run)
    assert (one.of, one.number, one.stopped) == ("worker", 1, True)
    assert (one.detection_s, one.started_s, one.start_up_s, one.lost_s) == pytest.approx((0.06, 3.5, 1.0, 0.45))
    assert lost_steps(run) == 4
    assert startups_s(run) == pytest.approx((1.2, 1.0))
    assert checkpoint_stops_s(run) == pytest.approx((0.05,))
    assert finished_s(run) == pytest.approx(7.5)
    costs = costs_of([run], [run])
    assert (costs.detection_s, costs.restore_s, costs.rejoin_s) == pytest.approx((0.06, 0.1, 0.0))


def test_an_asynchronous_job_goes_on_with_fewer_workers() -> None:
    """Two workers with steps of 100 ms; one is away from 1 to 3 s, and nothing is made again."""
    steps = [step(0, 0.1 * n, 0.1 * n + 0.099, 1) for n in range(50)]
    steps += [step(1, 0.1 * n, 0.1 * n + 0.099, 1) for n in range(50) if not 10 <= n < 30]
    events = (
        event("launched", -1.0), event("started", 0.0), event("killed", 1.0, task="worker 1"),
        event("noticed", 1.01, task="chief 0", of="worker 1"), event("restarted", 2.0, task="worker 1"),
        event("recovered", 3.0, task="chief 0", of="worker 1"),
    )  # fmt: skip
    run = OneRun(job("async", steps=40, checkpoint_every=None), tuple(steps), (), events=events)
    (one,) = faults_of(run)
    assert (one.detection_s, one.start_up_s, one.lost_s, one.stopped) == pytest.approx((0.01, 1.0, 0.0, False))
    assert lost_steps(run) == 0
    assert rates(run) == pytest.approx((20.0, 10.0), rel=0.01)
    assert fewer_workers_s(run) == pytest.approx(1.0, rel=0.01)


def test_the_scenario_of_a_job_says_what_was_measured() -> None:
    costs = JobCosts(startup_s=1.5, stop_s=0.1, detection_s=0.5, rejoin_s=1.1, restore_s=0.2)
    ring, alone = job_table(job("ring"), costs)["faults"], job_table(job("async"), costs)["faults"]
    assert ring == {"trace": [{"at_s": 5.5, "of": "worker", "number": 1}], "detection_s": 0.5, "restart_s": 1.5}
    assert alone == ring | {"startup_s": 1.1}
    assert job_table(job("async"), costs)["checkpoint"]["every_steps"] == 2 * job_table(job("ring"), costs)["checkpoint"]["every_steps"]
    with pytest.raises(InputError, match="one restart for all"):
        job_table(job("async", faults=[KILLED, KILLED | {"back_after": "3 s"}]), costs)


def test_a_fault_costs_what_its_parts_do() -> None:
    """The worker of a ring that is away: detection, restart, start-up, restore, and the work since the checkpoint."""
    costs = JobCosts(startup_s=1.5, stop_s=0.1, detection_s=0.5, restore_s=0.2)
    faulty, whole = (simulate(job_scenario(job("ring", faults=faults), PRIOR, costs, replications=2)).job for faults in ([KILLED], []))
    assert faulty is not None
    assert whole is not None
    assert faulty.parts_s.down == pytest.approx(2.0 + 1.5 + 0.2)
    assert faulty.parts_s.lost_work > 0
    assert faulty.time_s.mean == pytest.approx(whole.time_s.mean + faulty.parts_s.down + faulty.parts_s.lost_work)


def test_a_worker_that_comes_back_alone_needs_no_start_up_of_the_job() -> None:
    """Two asynchronous workers make half as much while one is missing: for its restart and what it takes to be taken back."""
    costs = JobCosts(startup_s=5.0, rejoin_s=1.0)
    setting = job("async", checkpoint_every=None, steps=200)
    back_soon, back_late = (
        simulate(job_scenario(setting, PRIOR, one, replications=2)).job for one in (costs, costs.model_copy(update={"rejoin_s": 6.0}))
    )
    assert back_soon is not None
    assert back_late is not None
    assert back_soon.parts_s.fewer_workers == pytest.approx(3.0 / 2, rel=0.02)
    assert back_late.parts_s.fewer_workers == pytest.approx(8.0 / 2, rel=0.02)
    assert back_soon.parts_s.down == back_soon.parts_s.lost_work == 0


def checked(*workers: int) -> list[Compared]:
    """Jobs of so many workers that were run for real, beside their predictions."""
    with (MEASURED / "faults.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    experiments = [one for one in read_experiments(MEASURED / "faults.toml")[1] if one.setting.workers in workers]
    return compared(experiments, rows, Platform.model_validate_json((MEASURED / "faults-machine.json").read_text(encoding="utf-8")))


def written() -> list[list[str]]:
    """The rows of real jobs and their predictions that lie next to the study."""
    with (ROOT / "evidence" / "tables" / "faults.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert tuple(header) == HEADER
    return rows


@pytest.mark.long
def test_the_documented_table_is_what_rows_and_predictions_say() -> None:
    whole = checked(2, 4)
    assert lines(whole) == written()
    _, experiments = read_experiments(MEASURED / "faults.toml")
    assert len(whole) == sum(one.part != "calibration" for one in experiments)
    _check_rings(whole, pairs=2)


def test_a_prediction_rests_on_no_run_that_it_predicts() -> None:
    _, experiments = read_experiments(MEASURED / "faults.toml")
    held_out = [one for one in experiments if one.part == "held-out"]
    others = {(one.setting.hash, one.seed) for one in experiments if one.part != "held-out"}
    assert held_out
    assert not others & {(one.setting.hash, one.seed) for one in held_out}
    faults = {(one.setting.mode, its.at_s) for one in experiments if one.part == "calibration" for its in one.setting.faults}
    assert not faults & {(one.setting.mode, its.at_s) for one in held_out for its in one.setting.faults}


def test_under_the_same_faults_a_ring_loses_more_than_asynchronous_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As measured and as predicted: all of a ring stop for one that is missing, and go back to the checkpoint."""
    monkeypatch.setattr("evidence.studies.fault_check._REPLICATIONS", 2)
    jobs = checked(2)
    assert all(line[:3] in [row[:3] for row in written()] for line in lines(jobs))  # mode, job and the time measured
    _check_rings(jobs, pairs=1)


def _check_rings(jobs: list[Compared], pairs: int) -> None:
    held_out = [one for one in jobs if one.experiment.part == "held-out"]
    rings, others = ([one for one in held_out if one.experiment.setting.mode == mode] for mode in ("ring", "async"))
    alike = [(ring, alone) for ring in rings for alone in others if ring.experiment.name == alone.experiment.name]
    assert len(alike) >= pairs
    for ring, alone in alike:
        for found in ("measured", "predicted"):
            one, other = getattr(ring, found), getattr(alone, found)
            assert one["down_s"] + one["lost_s"] > 2 * other["fewer_workers_s"] > 0
            assert other["down_s"] == other["lost_s"] == one["fewer_workers_s"] == 0


@needs_tensorflow
@pytest.mark.usefixtures("isolated", "warm_probes")
def test_a_worker_is_killed_and_comes_back(tmp_path: Path) -> None:
    """Asynchronous: the other worker goes on meanwhile, every step is made once, and the killed one takes part again."""
    setting = job("async", faults=[KILLED | {"at": "1 s", "back_after": "1 s"}], checkpoint_every=25, steps=50)
    readings = measure_setting(setting, tmp_path, repeats=1, timeout_s=PATIENCE_S)
    (run,) = readings.runs
    (one,) = faults_of(run)
    assert (len(run.steps), lost_steps(run)) == (100, 0)
    assert [event.step for event in run.events if event.what == "checkpoint"] == [50, 100]
    assert one.noticed_s is not None
    assert one.started_s is not None
    assert one.back_s is not None
    assert one.killed_s <= one.noticed_s < one.started_s < one.back_s < run.seconds
    away = [step.worker for step in run.steps if one.noticed_s < step.applied_s < one.started_s]
    assert away
    assert set(away) == {0}
    assert {step.worker for step in run.steps if step.start_s > one.back_s} == {0, 1}
    shown = TestbedRun.of(readings)
    assert [fault.killed for fault in shown.faults] == ["worker 1"]
    assert "Faults" in [table.title for table in shown.tables()]
    assert list(tmp_path.iterdir()) == [readings.file.path]  # checkpoints are gone
